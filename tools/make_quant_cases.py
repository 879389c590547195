#!/usr/bin/env python3
"""Writes src/checkpoint/testdata/: of every stored type random blocks and what the `gguf` package (0.19) makes of them.
quant_cases.bin has the floats of a few. A record: name (16 bytes), values and bytes of a block, blocks (u32 each), blocks,
floats. quant_sums.txt has sums over many blocks, whose bytes the test makes as this script does: a line is a type, its
number of blocks, and the sum of (2 i + 1) times the bits of float i, modulo 2^64. Also a seed for the GGUF fuzz target."""
import pathlib
import struct

import gguf
import numpy as np

# Where float16 fields are in a block: random bits there would be infinities and NaN.
HALVES = {
    "F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ1_S": [0], "IQ1_M": [], "IQ2_XXS": [0], "IQ2_XS": [0],
    "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64], "MXFP4": [],
    "NVFP4": [], "Q1_0": [0], "Q2_0": [0], "BF16": [],
}
# Bytes that have a high bit of an exponent in bit 6: without it every block is finite.
EXPONENTS = {"BF16": [1], "IQ1_M": [55], "MXFP4": [0]}
SIZES = {"Q1_0": (128, 18), "Q2_0": (64, 18)}  # which the package does not decode
MANY = 1000


def sizes_of(name):
    return SIZES.get(name) or gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]


def dequantize(name, stored):
    """Floats [blocks, values]."""
    if name not in SIZES:
        floats = gguf.quants.dequantize(stored, gguf.GGMLQuantizationType[name])
        return np.ascontiguousarray(floats, dtype=np.float32).reshape(len(stored), -1)
    d = stored[:, :2].copy().view(np.float16).astype(np.float32)
    bits = np.unpackbits(stored[:, 2:], axis=1, bitorder="little")
    if name == "Q1_0":
        return np.where(bits == 1, d, -d)
    return d * (bits[:, ::2].astype(np.float32) + 2 * bits[:, 1::2] - 1).astype(np.float32)


def random_bytes(count, seed):
    """The bytes of splitmix64."""
    with np.errstate(over="ignore"):
        steps = np.arange(1, (count + 7) // 8 + 1, dtype=np.uint64)
        z = np.uint64(seed) + steps * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))).view(np.uint8)[:count]


def few_blocks(name, size, blocks, random):
    stored = random.integers(0, 256, (blocks, size), dtype=np.uint8)
    for at in EXPONENTS.get(name, []):
        stored[:, at] &= 0xBF
    for at in HALVES[name]:
        exponents = random.uniform(-24, 8, blocks)  # subnormals too
        halves = (random.choice([-1, 1], blocks) * 2**exponents).astype(np.float16)
        stored[:, at : at + 2] = halves.view(np.uint8).reshape(blocks, 2)
    return stored


def sum_of_many(name, size):
    stored = random_bytes(MANY * size, 20).reshape(MANY, size).copy()
    for at in EXPONENTS.get(name, []) + [half + 1 for half in HALVES[name]]:
        stored[:, at] &= 0xBF
    bits = dequantize(name, stored).astype(np.float32).ravel().view(np.uint32).astype(np.uint64)
    with np.errstate(over="ignore"):
        return int(np.sum(bits * (2 * np.arange(bits.size, dtype=np.uint64) + np.uint64(1)), dtype=np.uint64))


def fuzz_seed(tensors):
    """A GGUF file with one row of each type."""
    infos = data = b""
    for name, values, stored in tensors:
        id = {"Q1_0": 41, "Q2_0": 42}.get(name) or gguf.GGMLQuantizationType[name].value
        infos += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<IQIQ", 1, values, id, len(data))
        data += stored.tobytes() + bytes(-stored.size % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 0) + infos
    return head + bytes(-len(head) % 32) + data


def main():
    random = np.random.default_rng(20)
    out = b""
    sums = ""
    tensors = []
    for name in HALVES:
        values, size = sizes_of(name)
        blocks = 2 if values == 256 else 8
        stored = few_blocks(name, size, blocks, random)
        floats = dequantize(name, stored).astype(np.float32)
        assert floats.shape == (blocks, values) and np.isfinite(floats).all(), name
        out += struct.pack("<16sIII", name.encode(), values, size, blocks) + stored.tobytes() + floats.tobytes()
        tensors.append((name, blocks * values, stored))
        sums += f"{name} {MANY} {sum_of_many(name, size):016x}\n"
    folder = pathlib.Path(__file__).parent.parent / "src/checkpoint/testdata"
    folder.mkdir(exist_ok=True)
    (folder / "quant_cases.bin").write_bytes(out)
    (folder / "quant_sums.txt").write_text(sums)
    (folder.parents[2] / "tests/fuzz/seeds/gguf/types.gguf").write_bytes(fuzz_seed(tensors))
    print(folder, len(out), "bytes")


main()

#!/usr/bin/env python3
"""Writes src/checkpoint/testdata/quant_cases.bin: random blocks of every stored type, and the floats that the `gguf`
package (0.19) makes of them. A record: name (16 bytes), values and bytes of a block, blocks (u32 each), blocks, floats."""
import pathlib
import struct

import gguf
import numpy as np

BLOCKS = {"F16": 64, "BF16": 64, "Q4_0": 20, "Q4_1": 20, "Q5_0": 20, "Q8_0": 20, "Q4_K": 6, "Q6_K": 6}
# Where float16 fields are in a block: random bits there would be infinities and NaN.
HALVES = {"F16": [0], "BF16": [], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q8_0": [0], "Q4_K": [0, 2], "Q6_K": [208]}


def main():
    random = np.random.default_rng(20)
    out = b""
    for name, blocks in BLOCKS.items():
        type = gguf.GGMLQuantizationType[name]
        values, size = gguf.GGML_QUANT_SIZES[type]
        stored = random.integers(0, 256, (blocks, size), dtype=np.uint8)
        if name == "BF16":
            stored[:, 1] &= 0xBF  # finite
        for at in HALVES[name]:
            exponents = random.uniform(-24, 8, blocks)  # subnormals too
            halves = (random.choice([-1, 1], blocks) * 2**exponents).astype(np.float16)
            stored[:, at : at + 2] = halves.view(np.uint8).reshape(blocks, 2)
        floats = gguf.quants.dequantize(stored, type).astype(np.float32)
        assert floats.size == blocks * values and np.isfinite(floats).all()
        out += struct.pack("<16sIII", name.encode(), values, size, blocks) + stored.tobytes() + floats.tobytes()
    path = pathlib.Path(__file__).parent.parent / "src/checkpoint/testdata/quant_cases.bin"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(out)
    print(path, len(out), "bytes")


main()

"""Quantized twins of checkpoints: 8-bit floats (safetensors) with a scale for each row, as compressed-tensors writes them,
and for some with one for each matrix or for each block of 128 x 128; and Q8_0 (GGUF). What is expected of one is what transformers computes with the values that it has."""
import json
import shutil

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file

Q8_0 = gguf.GGMLQuantizationType.Q8_0
NOT_LINEAR = ("embed", "lm_head", "norm", ".gate.weight", "router", "expert_gate", "wte", "wpe", "conv", "position", "token_type")
BLOCK = 128
CONFIG = {"channel": {"quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
          "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
              "num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}}}},
          "tensor": {"quant_method": "fp8", "activation_scheme": "static"},
          "block": {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [BLOCK, BLOCK]},
          "modelopt": {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}}


def eight_bit_float(x, form="channel"):
    """Codes, scales as they are stored, and the values that they make."""
    if form == "channel":
        scales = (x.abs().amax(1, keepdim=True) / 448).bfloat16()
        spread = scales.float()
    elif form == "tensor":
        scales = x.abs().amax() / 448
        spread = scales
    else:  # blocks, of which the last ones of a row and of a column may be parts
        rows, columns = (-(-size // BLOCK) for size in x.shape)
        padded = torch.nn.functional.pad(x, (0, columns * BLOCK - x.shape[1], 0, rows * BLOCK - x.shape[0]))
        scales = padded.reshape(rows, BLOCK, columns, BLOCK).abs().amax((1, 3)) / 448
        spread = scales.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[:x.shape[0], :x.shape[1]]
        if form == "modelopt":
            scales = scales.reshape(rows, 1, columns, 1)
    codes = (x / spread).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes, scales, codes.float() * spread


def q8_0(x, axis):
    """The nearest values that Q8_0 has, in blocks along an axis."""
    rows = np.ascontiguousarray(x.float().numpy().swapaxes(axis, -1))
    if rows.shape[-1] % 32 != 0:
        return x
    flat = rows.reshape(-1, rows.shape[-1])
    values = gguf.quants.dequantize(gguf.quants.quantize(flat, Q8_0), Q8_0)
    return torch.from_numpy(np.ascontiguousarray(values.reshape(rows.shape).swapaxes(axis, -1)))


def is_linear(name, x):
    return x.ndim == 2 and name.endswith(".weight") and not any(word in name for word in NOT_LINEAR)


def copy_folder(source, target):
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


def plain_values(tensors, folder):
    """A checkpoint of these values, for transformers to read."""
    newer = folder / "config.v5.json"
    if newer.exists():
        newer.replace(folder / "config.json")
    save_file({name: x.float() if x.dtype == torch.bfloat16 else x for name, x in tensors.items()},
              folder / "model.safetensors", metadata={"format": "pt"})


def to_eight_bit_floats(source, target, plain, form="channel"):
    """Makes `target` from the checkpoint in `source`, and in `plain` the same values; the number of matrices that became
    8-bit floats."""
    tensors = load_file(source / "model.safetensors")
    stored, values = {}, dict(tensors)
    for name, x in tensors.items():
        # A matrix that is stored transposed is of GPT-2, which nobody quantizes so.
        if is_linear(name, x) and x.shape[1] % 16 == 0 and ".c_" not in name:
            codes, scales, values[name] = eight_bit_float(x.float(), form)
            stored[name], stored[name + ("_scale_inv" if form == "block" else "_scale")] = codes, scales
            if form == "tensor":  # of activations, which are not quantized here
                stored[name.removesuffix("weight") + "input_scale"] = torch.tensor(0.01)
        else:
            stored[name] = x
    count = sum(x.dtype == torch.float8_e4m3fn for x in stored.values())
    if count == 0:
        return 0
    plain_values(values, copy_folder(source, plain))
    copy_folder(source, target)
    (target / "config.v5.json").unlink(missing_ok=True)
    save_file({name: x.contiguous() for name, x in stored.items()}, target / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((target / "config.json").read_text())
    config["quantization_config"] = CONFIG[form]
    (target / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return count


def to_q8_0_values(source, plain):
    """The checkpoint in `source` with the values that Q8_0 has, where a GGUF file has it: not in vectors and routers."""
    tensors = load_file(source / "model.safetensors")
    transposed = any(name.endswith("experts.gate_up_proj_bias") for name in tensors)  # stacks of GPT-OSS
    for name, x in tensors.items():
        kept = any(word in name for word in ("norm", ".gate.weight", "router", "expert_gate", "conv", "position", "token_type", "wpe"))
        stack = name.endswith(("experts.gate_up_proj", "experts.down_proj")) and not transposed
        if x.ndim >= 2 and (name.endswith(".weight") or stack) and not kept:
            tensors[name] = q8_0(x, 0 if ".c_" in name else -1).contiguous()  # c_attn ... of GPT-2 are stored transposed
    plain_values(tensors, copy_folder(source, plain))


def add_exactly(w, name, x):
    """A tensor as Q8_0 if that has its values, else as numbers that do."""
    x = np.ascontiguousarray(x)
    if x.ndim >= 2 and x.shape[-1] % 32 == 0:
        blocks = gguf.quants.quantize(x, Q8_0)
        if np.array_equal(gguf.quants.dequantize(blocks, Q8_0), x):
            w.add_tensor(name, blocks, raw_dtype=Q8_0)
            return
    bits = x.view(np.uint32)
    if x.ndim >= 2 and not (bits & 0xFFFF).any():
        w.add_tensor(name, (bits >> 16).astype(np.uint16).view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    else:
        w.add_tensor(name, x)

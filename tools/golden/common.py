"""How a tiny random checkpoint is made, what transformers computes with it, and its twin in GGUF."""
import json
import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

os.environ["HF_HUB_OFFLINE"] = "1"

import gguf
import numpy as np
import torch
import transformers as T

T.logging.set_verbosity_error()
T.logging.disable_progress_bar()
torch.set_num_threads(1)

from . import quantized

PROMPT = 40
STEPS = 16
DECODED = (8, 15)  # full rows of logits are kept of what follows so many tokens of the greedy text
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
COMMON = dict(dtype="bfloat16", bos_token_id=1, eos_token_id=2, pad_token_id=None, tie_word_embeddings=False,
              max_position_embeddings=256)


@dataclass
class Family:
    """A checkpoint of tests/golden, and by `gguf` its twin."""
    name: str
    config: object
    cls: str
    # Changes a dictionary in the spelling of transformers 5 to that of published files; None: left as it is.
    old: Callable | None = None
    arch: str | None = None              # llama.cpp's name; None: no twin
    keys: Callable | None = None         # (writer, config, model): metadata beyond the common
    tensors: Callable | None = None      # (name, array, config) -> [(name, array)]: how the converter changes tensors
    embedding_spread: float | None = None
    round: Callable | None = None        # (model): values to those that a format has
    twin: Callable | None = None         # (folder, twin, model): another twin, in the folder NAME_twin
    fp8: tuple = ()                      # forms of 8-bit floats beyond a scale for each row: twins in NAME_fp8_FORM
    stacked_twin: bool = False           # a twin with experts in one tensor and the new spelling


def randomize(model, seed, spread):
    """Values at which every tensor matters."""
    generator = torch.Generator().manual_seed(seed)
    seen = set()
    with torch.no_grad():
        biases = [(n, b) for n, b in model.named_buffers() if n.endswith("bias") and b.is_floating_point()]
        for name, p in [*model.named_parameters(), *biases]:
            if p.data_ptr() in seen:
                continue
            seen.add(p.data_ptr())
            r = torch.randn(p.shape, generator=generator)
            if ("norm" in name.lower() or ".ln_" in name) and not name.endswith("bias"):
                p.add_(0.15 * r)
            elif p.dim() == 1:
                p.copy_(0.2 * r)
            elif "embed" in name or ".wte" in name or ".wpe" in name:
                p.copy_(r * spread)
            else:
                p.copy_(r * 1.4 / math.sqrt(p.shape[-1]))
        for name, b in model.named_buffers():
            if name.endswith("layer_scalar"):
                b.add_(0.3 * torch.randn(b.shape, generator=generator))


def load(folder, cls):
    return getattr(T, cls).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                           experts_implementation="eager").eval()


def reference(folder, cls, ids):
    """Logits of the prompt, those of DECODED, the greedy text, and how far the best token of each step was from the next."""
    model = load(folder, cls)
    x = torch.tensor([ids])
    decoded, margins = [], []
    with torch.no_grad():
        rows = model(x, use_cache=False).logits[0]
        for step in range(STEPS):
            last = model(x, use_cache=False).logits[0, -1]
            if step in DECODED:
                decoded.append(last)
            top = last.topk(2).values
            margins.append((top[0] - top[1]).item())
            x = torch.cat([x, last.argmax().view(1, 1)], 1)
    return rows, decoded, x[0, len(ids):].tolist(), margins


def old_spelling(c):
    """config.json as nearly all published files have it: what all families share."""
    for key in ("transformers_version", "layer_types", "_sliding_window_pattern", "use_cache"):
        c.pop(key, None)
    c["torch_dtype"] = c.pop("dtype")
    rope = c.pop("rope_parameters", None)
    if rope is None:
        return c
    rope = rope.get("full_attention", rope)
    c["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        c["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    c["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    return c


def write_config(folder, family):
    """config.json in the older spelling where there is one, and config.v5.json beside it."""
    path = folder / "config.json"
    if family.old is None:
        return
    path.rename(folder / "config.v5.json")
    config = family.old(json.loads((folder / "config.v5.json").read_text()))
    path.write_text(json.dumps(config, indent=1) + "\n")


def save(family, seed, folder):
    model = getattr(T, family.cls)._from_config(family.config, attn_implementation="eager")
    spread = family.embedding_spread or (0.05 if family.config.tie_word_embeddings else 1.0)
    randomize(model, seed, spread)
    if family.round is not None:
        family.round(model)
    model.save_pretrained(folder)
    return model


def make(out, family):
    folder = out / family.name
    ids = torch.randint(3, family.config.vocab_size, (PROMPT,), generator=torch.Generator().manual_seed(7)).tolist()
    best = None
    for seed in range(40):  # until no step of the greedy text is nearly undecided
        save(family, seed, folder)
        *_, greedy, margins = reference(folder, family.cls, ids)
        margin = min(margins)
        score = min(margin, 0.05) + 0.01 * min(len(set(greedy)), 8)
        if best is None or score > best[0]:
            best = (score, seed)
        if margin > 0.05 and len(set(greedy)) >= 8:
            break
    model = save(family, best[1], folder)
    write_config(folder, family)
    (folder / "generation_config.json").unlink(missing_ok=True)
    rows, decoded, greedy, margins = reference(folder, family.cls, ids)
    write_expected(folder, ids, rows, decoded, greedy, min(margins))
    print(f"{family.name}: seed {best[1]}, margin {min(margins):.3f}, {len(set(greedy))} different tokens", flush=True)
    if family.stacked_twin:
        make_stacked_twin(out, family, model)
    if family.twin is not None:
        twin = out / f"{family.name}_twin"
        twin.mkdir(exist_ok=True)
        family.twin(folder, twin, model)
        copy_expected(folder, twin)
    make_twins(out, family)


def make_again(out, family):
    """What is expected, and the twins, of the checkpoint that is there."""
    folder = out / family.name
    ids = json.loads((folder / "expected.json").read_text())["prompt"]
    rows, decoded, greedy, margins = reference(folder, family.cls, ids)
    write_expected(folder, ids, rows, decoded, greedy, min(margins))
    for twin in (out / f"{family.name}_stacked", out / f"{family.name}_twin"):
        if twin.exists():
            copy_expected(folder, twin)
    make_twins(out, family)


def make_twins(out, family):
    """In GGUF, and quantized, from the checkpoint that is there."""
    if family.arch is not None:
        make_gguf_twin(out / f"{family.name}_gguf", family, load(out / family.name, family.cls))
        copy_expected(out / family.name, out / f"{family.name}_gguf")
    make_quantized(out, family)


def make_quantized(out, family):
    """Twins of 8-bit floats and of Q8_0."""
    folder = out / family.name
    ids = json.loads((folder / "expected.json").read_text())["prompt"]
    with tempfile.TemporaryDirectory() as place:
        plain = Path(place) / "plain"
        for form in ("channel", *family.fp8):
            target = out / (f"{family.name}_fp8" + (form != "channel") * f"_{form}")
            if quantized.to_eight_bit_floats(folder, target, plain, form) > 0:
                write_expected(target, ids, *reference(plain, family.cls, ids))
        if family.arch is not None:
            quantized.to_q8_0_values(folder, plain)
            target = out / f"{family.name}_q8_0"
            make_gguf_twin(target, family, load(plain, family.cls), quantized.add_exactly)
            write_expected(target, ids, *reference(plain, family.cls, ids))
    print(f"{family.name}: quantized", flush=True)


def copy_expected(source, folder):
    (folder / "expected.json").write_text((source / "expected.json").read_text())


def write_expected(folder, ids, rows, decoded, greedy, margin):
    def spelled(row):
        return [round(v, 5) for v in row.tolist()]
    positions = [0, 15, len(ids) - 1]
    margin = [round(step, 3) for step in margin] if isinstance(margin, list) else round(margin, 4)
    expected = {"prompt": ids, "greedy": greedy, "margin": margin, "positions": positions,
                "logits": [spelled(rows[p]) for p in positions],
                "decoded": [{"tokens": tokens, "logits": spelled(row)} for tokens, row in zip(DECODED, decoded)]}
    (folder / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


def make_stacked_twin(out, family, model):
    """The spelling of new files: experts stacked, keys of config.json as transformers 5 writes them."""
    folder = out / f"{family.name}_stacked"
    model.save_pretrained(folder, save_original_format=False)
    (folder / "generation_config.json").unlink(missing_ok=True)
    copy_expected(out / family.name, folder)


def permuted(name, x, config):
    """Rows of q and k as llama.cpp keeps them for architectures that rotate neighbours where the model rotates halves."""
    if ".q_proj." in name or ".k_proj." in name:
        heads = config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads
        x = x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
    return [(name, x)]


def norms_plus_one(name, x, config):
    return [(name, x + 1 if "norm" in name else x)]


def separate_experts(name, x, config):
    """Stacks of gate above up become two."""
    if name.endswith("experts.gate_up_proj"):
        half = x.shape[1] // 2
        return [(name.replace("gate_up_proj", "gate_proj.weight"), x[:, :half]),
                (name.replace("gate_up_proj", "up_proj.weight"), x[:, half:])]
    return [(name + (".weight" if name.endswith("experts.down_proj") else ""), x)]


def rope_of(config):
    rope = getattr(config, "rope_parameters", None)
    return None if rope is None else rope.get("full_attention", rope)


def write_common_keys(w, c):
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    if getattr(c, "intermediate_size", None) is not None:
        w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(getattr(c, "num_key_value_heads", c.num_attention_heads))
    w.add_vocab_size(c.vocab_size)
    if hasattr(c, "rms_norm_eps"):
        w.add_layer_norm_rms_eps(c.rms_norm_eps)
    head_dim = getattr(c, "head_dim", None)
    if head_dim is not None and head_dim != c.hidden_size // c.num_attention_heads:
        w.add_key_length(head_dim)
        w.add_value_length(head_dim)


def write_rope_keys(w, c, model):
    rope = rope_of(c)
    if rope is None:
        return
    w.add_rope_freq_base(rope["rope_theta"])
    if "partial_rotary_factor" in rope:
        dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        w.add_rope_dimension_count(int(dim * rope["partial_rotary_factor"]))
    if rope["rope_type"] in ("linear", "yarn"):
        kinds = {"linear": gguf.RopeScalingType.LINEAR, "yarn": gguf.RopeScalingType.YARN}
        w.add_rope_scaling_type(kinds[rope["rope_type"]])
        w.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "llama3":
        inverse = model.model.rotary_emb.inv_freq.double().numpy()
        dims = len(inverse) * 2
        plain = rope["rope_theta"] ** (-np.arange(0, dims, 2) / dims)
        w.add_tensor("rope_freqs.weight", (plain / inverse).astype(np.float32))


def make_gguf_twin(folder, family, model, add=None):
    """The same weights and numbers as GGUF spells them."""
    c = family.config
    c.allow_global_per_layer_attribute_access = True  # what differs between layers is for `keys`
    folder.mkdir(exist_ok=True)
    w = gguf.GGUFWriter(str(folder / "model.gguf"), family.arch)
    write_common_keys(w, c)
    write_rope_keys(w, c, model)
    if family.keys is not None:
        family.keys(w, c, model)
    arch = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == family.arch)
    names = gguf.get_tensor_name_map(arch, c.num_hidden_layers)
    for key, p in model.state_dict().items():
        if key == "lm_head.weight" and c.tie_word_embeddings:
            continue
        change = family.tensors or (lambda name, x, config: [(name, x)])
        for name, x in change(key, p.float().numpy(), c):
            stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
            if x.dtype == np.uint8:
                w.add_tensor(stored, x, raw_dtype=gguf.GGMLQuantizationType.MXFP4)
            else:
                (add or add_tensor)(w, stored, x)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def add_tensor(w, name, x):
    x = np.ascontiguousarray(x)
    if x.ndim >= 2:
        bits = (x.view(np.uint32) >> 16).astype(np.uint16)
        w.add_tensor(name, bits.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    else:
        w.add_tensor(name, x)

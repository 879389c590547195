#!/usr/bin/env python3
"""Makes tests/golden: tiny random checkpoints of every family, and what transformers computes with them in fp32.

usage: make_golden.py OUTPUT_FOLDER          needs torch, transformers 5.23, safetensors, gguf; two minutes on one core

Weights are stored as bfloat16, so that they have the same value everywhere. Norms and biases are never left at one and
zero, so that a loader that forgets one is found out. expected.json holds a prompt, full rows of logits at some of its
positions and the ids of a greedy continuation whose smallest margin is above 0.05 where the family allows it.
"""
import json
import math
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import gguf
import numpy as np
import torch
import transformers as T

T.logging.set_verbosity_error()
T.logging.disable_progress_bar()

PROMPT = 40
STEPS = 16
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
COMMON = dict(vocab_size=288, hidden_size=64, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=256, dtype="bfloat16", bos_token_id=1, eos_token_id=2,
              pad_token_id=None, tie_word_embeddings=False)


def families():
    """name -> (configuration, class, spelling of config.json)"""
    plain = {"rope_type": "default", "rope_theta": 10000.0}
    return {
        "llama": (T.LlamaConfig(**COMMON, rms_norm_eps=1e-5, rope_parameters=plain), "LlamaForCausalLM", "old"),
        "llama3_rope": (T.LlamaConfig(**COMMON, rms_norm_eps=1e-5, rope_parameters=LLAMA3, attention_bias=True,
                                      mlp_bias=True), "LlamaForCausalLM", "old"),
        "qwen2": (T.Qwen2Config(**COMMON, rope_parameters=plain | {"rope_theta": 1e6}), "Qwen2ForCausalLM", "old"),
        "qwen3": (T.Qwen3Config(**COMMON | {"tie_word_embeddings": True}, head_dim=24,
                                rope_parameters=plain | {"rope_theta": 1e6}), "Qwen3ForCausalLM", "new"),
        "qwen3_moe": (T.Qwen3MoeConfig(**COMMON | {"hidden_size": 48, "vocab_size": 224}, head_dim=16, num_experts=6,
                                       num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True,
                                       rope_parameters=plain | {"rope_theta": 1e6}), "Qwen3MoeForCausalLM", "old"),
        "gemma3": (T.Gemma3TextConfig(**COMMON | {"hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 6,
                                                  "num_key_value_heads": 1, "tie_word_embeddings": True}, head_dim=16,
                                      query_pre_attn_scalar=16, sliding_window=12,
                                      rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0,
                                                                          "rope_theta": 1e6},
                                                       "sliding_attention": plain}), "Gemma3ForCausalLM", "old"),
    }


def randomize(model, seed, tied):
    """Values at which every tensor matters."""
    generator = torch.Generator().manual_seed(seed)
    seen = set()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.data_ptr() in seen:
                continue
            seen.add(p.data_ptr())
            r = torch.randn(p.shape, generator=generator)
            if "norm" in name and not name.endswith("bias"):
                p.add_(0.15 * r)
            elif p.dim() == 1:
                p.copy_(0.2 * r)
            elif "embed" in name:
                p.copy_(r * (0.05 if tied else 1.0))
            else:
                p.copy_(r * 1.4 / math.sqrt(p.shape[-1]))


def reference(folder, cls, ids):
    model = getattr(T, cls).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                            experts_implementation="eager").eval()
    x = torch.tensor([ids])
    with torch.no_grad():
        rows = model(x, use_cache=False).logits[0]
        margin = math.inf
        for _ in range(STEPS):
            last = model(x, use_cache=False).logits[0, -1]
            top = last.topk(2).values
            margin = min(margin, (top[0] - top[1]).item())
            x = torch.cat([x, last.argmax().view(1, 1)], 1)
    return rows, x[0, len(ids):].tolist(), margin


def old_spelling(config):
    """config.json as nearly all published files have it."""
    c = dict(config)
    for key in ("transformers_version", "layer_types", "_sliding_window_pattern", "use_cache"):
        c.pop(key, None)
    c["torch_dtype"] = c.pop("dtype")
    rope = c.pop("rope_parameters")
    if "num_local_experts" in c:
        c["num_experts"] = c.pop("num_local_experts")
    if "full_attention" in rope:
        c["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        c["sliding_window_pattern"] = 6
        rope = rope["full_attention"]
    c["rope_theta"] = rope.pop("rope_theta")
    c["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    return c


def write_config(folder, spelling):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if spelling == "old":
        config = old_spelling(config)
    path.write_text(json.dumps(config, indent=1) + "\n")


def make(out, name, config, cls, spelling):
    folder = out / name
    tied = config.tie_word_embeddings
    ids = torch.randint(3, config.vocab_size, (PROMPT,), generator=torch.Generator().manual_seed(7)).tolist()
    best = None
    for seed in range(40):  # until no step of the greedy text is nearly undecided
        model = getattr(T, cls)._from_config(config, attn_implementation="eager")
        randomize(model, seed, tied)
        model.save_pretrained(folder)
        rows, greedy, margin = reference(folder, cls, ids)
        score = min(margin, 0.05) + 0.01 * min(len(set(greedy)), 8)
        if best is None or score > best[0]:
            best = (score, seed)
        if margin > 0.05 and len(set(greedy)) >= 8:
            break
    model = getattr(T, cls)._from_config(config, attn_implementation="eager")
    randomize(model, best[1], tied)
    model.save_pretrained(folder)
    write_config(folder, spelling)
    (folder / "generation_config.json").unlink(missing_ok=True)
    rows, greedy, margin = reference(folder, cls, ids)
    write_expected(folder, ids, rows, greedy, margin)
    print(f"{name}: seed {best[1]}, margin {margin:.3f}, {len(set(greedy))} different tokens", flush=True)
    return model


def write_expected(folder, ids, rows, greedy, margin):
    positions = [0, 15, len(ids) - 1]
    expected = {"prompt": ids, "greedy": greedy, "margin": round(margin, 4), "positions": positions,
                "logits": [[round(v, 5) for v in rows[p].tolist()] for p in positions]}
    (folder / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


def make_stacked_twin(out, model):
    """The spelling of new files: experts stacked, keys of config.json as transformers 5 writes them."""
    folder = out / "qwen3_moe_stacked"
    model.save_pretrained(folder, save_original_format=False)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "expected.json").write_text((out / "qwen3_moe" / "expected.json").read_text())


GGUF_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate": "ffn_gate_inp", "mlp.experts.gate_proj": "ffn_gate_exps", "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}


def gguf_name(name, arch):
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    if name == "lm_head.weight":
        return "output.weight"
    _, _, layer, rest = name.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    norms = {"post_attention_layernorm": "ffn_norm"} if arch != "gemma3" else {
        "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm"}
    return f"blk.{layer}.{(GGUF_NAMES | norms)[part]}.{kind}"


def separate_experts(state):
    """Stacks of gate above up become two, as GGUF has them."""
    for key, p in state.items():
        x = p.float().numpy()
        if key.endswith("experts.gate_up_proj"):
            half = x.shape[1] // 2
            yield key.replace("gate_up_proj", "gate_proj.weight"), x[:, :half]
            yield key.replace("gate_up_proj", "up_proj.weight"), x[:, half:]
        else:
            yield key + (".weight" if key.endswith("experts.down_proj") else ""), x


def make_gguf_twin(out, name, arch, model):
    """The same weights and numbers as GGUF spells them."""
    c = model.config
    folder = out / f"{name}_gguf"
    folder.mkdir(exist_ok=True)
    w = gguf.GGUFWriter(str(folder / "model.gguf"), arch)
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_vocab_size(c.vocab_size)
    rope = c.rope_parameters.get("full_attention", c.rope_parameters)
    w.add_rope_freq_base(rope["rope_theta"])
    if arch in ("gemma3", "qwen3moe"):
        w.add_key_length(c.head_dim)
        w.add_value_length(c.head_dim)
    if arch == "gemma3":
        w.add_sliding_window(c.sliding_window)
    if arch == "qwen3moe":
        w.add_expert_count(c.num_experts)
        w.add_expert_used_count(c.num_experts_per_tok)
        w.add_expert_feed_forward_length(c.moe_intermediate_size)
    if rope["rope_type"] == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "llama3":
        inverse = getattr(model.model.rotary_emb, "inv_freq").double().numpy()
        dims = len(inverse) * 2
        plain = rope["rope_theta"] ** (-np.arange(0, dims, 2) / dims)
        w.add_tensor("rope_freqs.weight", (plain / inverse).astype(np.float32))
    for key, x in separate_experts(model.state_dict()):
        if key == "lm_head.weight" and c.tie_word_embeddings:
            continue
        if arch == "llama" and (".q_proj." in key or ".k_proj." in key):
            heads = c.num_attention_heads if ".q_proj." in key else c.num_key_value_heads
            x = x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
        if arch == "gemma3" and "norm" in key:
            x = x + 1
        if x.ndim >= 2:
            bits = (np.ascontiguousarray(x).view(np.uint32) >> 16).astype(np.uint16)
            w.add_tensor(gguf_name(key, arch), bits.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            w.add_tensor(gguf_name(key, arch), np.ascontiguousarray(x))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    (folder / "expected.json").write_text((out / name / "expected.json").read_text())


def main():
    torch.set_num_threads(1)
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    models = {}
    for name, (config, cls, spelling) in families().items():
        models[name] = make(out, name, config, cls, spelling)
    make_stacked_twin(out, models["qwen3_moe"])
    for name, arch in (("llama3_rope", "llama"), ("qwen2", "qwen2"), ("gemma3", "gemma3"), ("qwen3_moe", "qwen3moe")):
        make_gguf_twin(out, name, arch, models[name])


main()

"""Mixtures of experts, and latent attention."""
import json

import gguf
import numpy as np
import torch
import transformers as T
from safetensors.torch import load_file, save_file

from .common import COMMON, PLAIN, Family, old_spelling, permuted, separate_experts
from .dense import granite_keys

SIZES = dict(vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2)
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32,
        "mscale": 0.7, "mscale_all_dim": 0.7, "beta_fast": 32, "beta_slow": 1}


def expert_keys(w, c, hidden):
    w.add_expert_count(getattr(c, "num_local_experts", None) or getattr(c, "num_experts", None) or c.n_routed_experts)
    w.add_expert_used_count(c.num_experts_per_tok)
    w.add_expert_feed_forward_length(hidden)


def qwen3_moe_old(c):
    c["num_experts"] = c.pop("num_local_experts", c.get("num_experts"))
    return old_spelling(c)


def qwen3_moe_keys(w, c, model):
    expert_keys(w, c, c.moe_intermediate_size)


def mixtral_keys(w, c, model):
    expert_keys(w, c, c.intermediate_size)
    w.add_rope_dimension_count(c.hidden_size // c.num_attention_heads)


def mixtral_tensors(name, x, c):
    return [pair for key, part in permuted(name, x, c) for pair in separate_experts(key, part, c)]


def qwen2_moe_keys(w, c, model):
    expert_keys(w, c, c.moe_intermediate_size)
    w.add_expert_shared_feed_forward_length(c.shared_expert_intermediate_size)


def deepseek_routing_keys(w, c, gating, renormalize):
    expert_keys(w, c, c.moe_intermediate_size)
    w.add_expert_shared_count(c.n_shared_experts)
    w.add_leading_dense_block_count(c.first_k_dense_replace)
    w.add_expert_weights_scale(c.routed_scaling_factor)
    w.add_expert_weights_norm(renormalize)
    w.add_expert_gating_func(gating)
    w.add_expert_group_count(c.n_group)
    w.add_expert_group_used_count(c.topk_group)


def glm4_moe_keys(w, c, model):
    deepseek_routing_keys(w, c, gguf.ExpertGatingFuncType.SIGMOID, c.norm_topk_prob)


def choice_bias(name, x, c):
    """The bias of choices has a name of its own in GGUF."""
    return [(key.replace("e_score_correction_bias", "e_score_correction.bias"), part)
            for key, part in separate_experts(name, x, c)]


def deepseek_keys(w, c, model):
    """llama.cpp's converter writes attention as one head of latents."""
    v3 = c.model_type == "deepseek_v3"
    deepseek_routing_keys(w, c, gguf.ExpertGatingFuncType.SIGMOID if v3 else gguf.ExpertGatingFuncType.SOFTMAX, v3)
    w.add_head_count_kv(1)
    w.add_key_length(c.kv_lora_rank + c.qk_rope_head_dim)
    w.add_value_length(c.kv_lora_rank)
    w.add_kv_lora_rank(c.kv_lora_rank)
    if c.q_lora_rank is not None:
        w.add_q_lora_rank(c.q_lora_rank)
    w.add_key_length_mla(c.qk_nope_head_dim + c.qk_rope_head_dim)
    w.add_value_length_mla(c.v_head_dim)
    w.add_rope_dimension_count(c.qk_rope_head_dim)
    rope = c.rope_parameters
    if rope["rope_type"] == "yarn":
        w.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])


def latent_tensors(name, x, c):
    """kv_b becomes two stacks of heads, that of keys transposed."""
    if not name.endswith("kv_b_proj.weight"):
        return choice_bias(name, x, c)
    heads = x.reshape(c.num_attention_heads, c.qk_nope_head_dim + c.v_head_dim, c.kv_lora_rank)
    keys, values = np.split(heads, [c.qk_nope_head_dim], axis=1)
    return [(name.replace("kv_b_proj", "k_b_proj"), keys.transpose(0, 2, 1)),
            (name.replace("kv_b_proj", "v_b_proj"), values)]


def gpt_oss_keys(w, c, model):
    expert_keys(w, c, c.intermediate_size)
    w.add_sliding_window(c.sliding_window)
    w.add_rope_dimension_count(c.head_dim)


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def mxfp4(x):
    """Codes of 4 bits and exponents with a bias of 127, one for each 32 values of the last axis."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    largest = np.abs(blocks).max(-1, keepdims=True)
    exponents = np.floor(np.log2(np.maximum(largest, 1e-30))) - 2
    scaled = blocks / 2.0**exponents
    codes = np.abs(np.abs(scaled)[..., None] - FP4).argmin(-1) + 8 * (scaled < 0)
    return codes.astype(np.uint8), (exponents[..., 0] + 127).astype(np.uint8)


def of_mxfp4(codes, exponents, shape):
    values = FP4[codes % 8] * np.where(codes < 8, 1, -1) * 2.0**(exponents.astype(np.float32) - 127)[..., None]
    return values.reshape(shape).astype(np.float32)


def expert_weights(model):
    return [(n, p) for n, p in model.named_parameters() if n.endswith(("gate_up_proj", "down_proj"))]


def gpt_oss_round(model):
    """The experts to values that MXFP4 has: their rows are the columns of what transformers keeps."""
    with torch.no_grad():
        for _, p in expert_weights(model):
            x = p.float().numpy().swapaxes(1, 2)
            p.copy_(torch.from_numpy(of_mxfp4(*mxfp4(x), x.shape).swapaxes(1, 2).copy()))


def gpt_oss_twin(folder, twin, model):
    """As the model was published."""
    tensors = load_file(folder / "model.safetensors")
    for name, p in expert_weights(model):
        codes, exponents = mxfp4(p.detach().float().numpy().swapaxes(1, 2))
        tensors.pop(name)
        tensors[name + "_blocks"] = torch.from_numpy(codes[..., 0::2] | codes[..., 1::2] << 4).contiguous()
        tensors[name + "_scales"] = torch.from_numpy(exponents).contiguous()
    save_file(tensors, twin / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    (twin / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def gguf_mxfp4(x):
    codes, exponents = mxfp4(x)
    blocks = np.concatenate([exponents[..., None], codes[..., :16] | codes[..., 16:] << 4], -1)
    return blocks.reshape(*x.shape[:-1], -1)


def gpt_oss_tensors(name, x, c):
    """Gate and up are in turn in one tensor, transposed; the converter parts and turns them."""
    if ".experts." not in name:
        return [(name + (".weight" if name.endswith("sinks") else ""), x)]
    kind = "bias" if name.endswith("_bias") else "weight"
    stem = name.removesuffix("_bias")
    turned = x if kind == "bias" else np.ascontiguousarray(x.swapaxes(1, 2))
    parts = {f"{stem}.{kind}": turned}
    if "gate_up_proj" in name:
        parts = {f"{stem.replace('gate_up_proj', part)}.{kind}": turned[:, i::2]
                 for i, part in enumerate(("gate_proj", "up_proj"))}
    return [(key, part if kind == "bias" else gguf_mxfp4(part)) for key, part in parts.items()]


def only_expert_keys(w, c, model):
    expert_keys(w, c, c.intermediate_size)


def granite_moe_keys(w, c, model):
    w.add_expert_count(c.num_local_experts)
    w.add_expert_used_count(c.num_experts_per_tok)
    granite_keys(w, c, model)


def granite_moe_tensors(name, x, c):
    name = name.replace("block_sparse_moe.router.", "block_sparse_moe.router.layer.").replace("block_sparse_moe.experts", "mlp.experts")
    return [pair for key, part in permuted(name, x, c) for pair in separate_experts(key, part, c)]


def minimax_keys(w, c, model):
    expert_keys(w, c, c.intermediate_size)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def families():
    deepseek = COMMON | SIZES | dict(num_hidden_layers=2, num_key_value_heads=4, kv_lora_rank=24, qk_rope_head_dim=8,
                                     qk_nope_head_dim=16, v_head_dim=8, moe_intermediate_size=16, n_routed_experts=8,
                                     n_shared_experts=2, num_experts_per_tok=3, first_k_dense_replace=1,
                                     routed_scaling_factor=1.5)
    return [
        Family("qwen3_moe",
               T.Qwen3MoeConfig(**COMMON, vocab_size=224, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
                                num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=6,
                                num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True,
                                rope_parameters=PLAIN | {"rope_theta": 1e6}),
               "Qwen3MoeForCausalLM", old=qwen3_moe_old, arch="qwen3moe", keys=qwen3_moe_keys,
               tensors=separate_experts, stacked_twin=True),
        Family("mixtral",
               T.MixtralConfig(**COMMON, **SIZES, num_local_experts=4, num_experts_per_tok=2, rope_parameters=PLAIN),
               "MixtralForCausalLM", old=old_spelling, arch="llama", keys=mixtral_keys, tensors=mixtral_tensors),
        Family("qwen2_moe",
               T.Qwen2MoeConfig(**COMMON, **SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
                                shared_expert_intermediate_size=40, rope_parameters=PLAIN),
               "Qwen2MoeForCausalLM", old=old_spelling, arch="qwen2moe", keys=qwen2_moe_keys,
               tensors=separate_experts),
        Family("glm4_moe",
               T.Glm4MoeConfig(**COMMON, **SIZES, head_dim=16, num_local_experts=8, n_routed_experts=8, num_experts_per_tok=2,
                               moe_intermediate_size=16, n_shared_experts=1, first_k_dense_replace=1, n_group=2,
                               topk_group=1, routed_scaling_factor=1.5, use_qk_norm=True, attention_bias=True,
                               rope_parameters=PLAIN | {"partial_rotary_factor": 0.5}),
               "Glm4MoeForCausalLM", old=old_spelling, arch="glm4moe", keys=glm4_moe_keys, tensors=choice_bias),
        Family("deepseek_v2",
               T.DeepseekV2Config(**deepseek, q_lora_rank=None, topk_method="group_limited_greedy", n_group=4,
                                  topk_group=2, rope_parameters=PLAIN),
               "DeepseekV2ForCausalLM", old=old_spelling, arch="deepseek2", keys=deepseek_keys, tensors=latent_tensors,
               fp8=("block",)),
        Family("deepseek_v3",
               T.DeepseekV3Config(**deepseek, q_lora_rank=24, n_group=2, topk_group=1, norm_topk_prob=True,
                                  num_mtp_layers=0, rope_parameters=YARN),
               "DeepseekV3ForCausalLM", old=old_spelling, arch="deepseek2", keys=deepseek_keys, tensors=latent_tensors),
        Family("gpt_oss",
               T.GptOssConfig(**COMMON, **SIZES | {"intermediate_size": 64}, head_dim=16, num_local_experts=4, num_experts_per_tok=2,
                              sliding_window=12, rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0,
                                                                  "factor": 4.0, "truncate": False, "beta_fast": 32.0,
                                                                  "beta_slow": 1.0,
                                                                  "original_max_position_embeddings": 32}),
               "GptOssForCausalLM", old=old_spelling, arch="gpt-oss", keys=gpt_oss_keys, tensors=gpt_oss_tensors,
               round=gpt_oss_round, twin=gpt_oss_twin),
        Family("olmoe",
               T.OlmoeConfig(**COMMON, **SIZES, num_experts=4, num_experts_per_tok=2, rope_parameters=PLAIN),
               "OlmoeForCausalLM", old=old_spelling, arch="olmoe", keys=only_expert_keys, tensors=separate_experts),
        Family("granitemoe",
               T.GraniteMoeConfig(**COMMON | {"tie_word_embeddings": True}, **SIZES, num_local_experts=4,
                                  num_experts_per_tok=2, embedding_multiplier=6.0, attention_multiplier=0.2,
                                  residual_multiplier=0.4, logits_scaling=0.25, rope_parameters=PLAIN),
               "GraniteMoeForCausalLM", old=old_spelling, arch="granitemoe", keys=granite_moe_keys,
               tensors=granite_moe_tensors),
        Family("minimax_m2",
               T.MiniMaxM2Config(**COMMON, **SIZES, head_dim=16, num_local_experts=6, num_experts_per_tok=2,
                                 rotary_dim=8, rope_parameters=PLAIN | {"partial_rotary_factor": 0.5}),
               "MiniMaxM2ForCausalLM", old=old_spelling, arch="minimax-m2", keys=minimax_keys, tensors=choice_bias),
    ]

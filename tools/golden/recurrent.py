"""Decoders with a recurrent state: gated delta nets and short convolutions beside attention."""
import gguf
import numpy as np
import transformers as T

from .common import COMMON, Family, old_spelling, separate_experts

SIZES = dict(vocab_size=160, hidden_size=32, num_attention_heads=4, num_key_value_heads=2)
DELTA = dict(**SIZES, num_hidden_layers=4, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
             linear_key_head_dim=16, linear_value_head_dim=32, linear_conv_kernel_dim=4,
             rope_parameters={"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25})
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=40)
CONV = dict(**SIZES, num_hidden_layers=5, conv_L_cache=3, layer_types=["conv", "conv", "full_attention"] * 2,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6})
CONV["layer_types"] = CONV["layer_types"][:5]


def interval_old(c):
    c["full_attention_interval"] = 4
    return old_spelling(c)


def as_vision_language(c):
    """Text models are published as a part of one that sees."""
    text = {key: value for key, value in c.items() if key not in ("architectures", "transformers_version")}
    name = c["architectures"][0].replace("ForCausalLM", "ForConditionalGeneration")
    return {"architectures": [name], "model_type": "qwen3_5", "text_config": text}


def lfm2_old(c):
    c["full_attn_idxs"] = [i for i, kind in enumerate(c["layer_types"]) if kind == "full_attention"]
    c["block_ff_dim"] = c.pop("intermediate_size")
    return old_spelling(c)


def tiled(x, config, axis, size):
    """Value heads of one key head stand side by side in the model, and `key heads` apart in llama.cpp."""
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads
    shape = x.shape
    x = x.reshape(*shape[:axis], keys, values // keys, size, *shape[axis + 1:])
    return x.swapaxes(axis, axis + 1).reshape(shape)


def tile_values(name, x, config):
    """What llama.cpp does to Qwen 3.5 beyond Qwen3-Next."""
    size = config.linear_value_head_dim
    first = 2 * config.linear_num_key_heads * config.linear_key_head_dim
    if "in_proj_qkv." in name or "conv1d" in name:
        return np.concatenate([x[:first], tiled(x[first:], config, 0, size)])
    if "in_proj_z" in name:
        return tiled(x, config, 0, size)
    if "in_proj_a." in name or "in_proj_b." in name or name.endswith((".A_log", ".dt_bias")):
        return tiled(x, config, 0, 1)
    return tiled(x, config, 1, size) if "linear_attn.out_proj" in name else x


def delta_tensors(name, x, config):
    if name.endswith(".A_log"):
        x = -np.exp(x)
    elif name.endswith(".dt_bias"):
        name = name.replace(".dt_bias", ".dt_proj.bias")
    elif "conv1d" in name:
        x = x.squeeze(1)
    elif name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        x = x + 1
    elif "in_proj_qkvz" in name:
        shared = config.linear_num_value_heads // config.linear_num_key_heads * config.linear_value_head_dim
        keys = config.linear_key_head_dim
        groups = x.reshape(config.linear_num_key_heads, -1, x.shape[-1])
        parts = np.split(groups, np.cumsum([keys, keys, shared]), axis=1)
        q, k, v, z = (part.reshape(-1, x.shape[-1]) for part in parts)
        return [(name.replace("in_proj_qkvz", "in_proj_qkv"), np.concatenate([q, k, v])),
                (name.replace("in_proj_qkvz", "in_proj_z"), z)]
    return separate_experts(name, x, config)


def tiled_delta_tensors(name, x, config):
    return delta_tensors(name, tile_values(name, x, config), config)


def delta_keys(w, c, model):
    w.add_ssm_conv_kernel(c.linear_conv_kernel_dim)
    w.add_ssm_state_size(c.linear_key_head_dim)
    w.add_ssm_group_count(c.linear_num_key_heads)
    w.add_ssm_time_step_rank(c.linear_num_value_heads)
    w.add_ssm_inner_size(c.linear_num_value_heads * c.linear_value_head_dim)
    w.add_uint32(f"{w.arch}.full_attention_interval", 4)
    if hasattr(c, "num_experts"):
        w.add_expert_count(c.num_experts)
        w.add_expert_used_count(c.num_experts_per_tok)
        w.add_expert_feed_forward_length(c.moe_intermediate_size)
        w.add_expert_shared_feed_forward_length(c.shared_expert_intermediate_size)


def conv_tensors(name, x, config):
    return [(name, x.squeeze(1) if "conv.conv" in name else x)]


def lfm2_keys(w, c, model):
    w.add_shortconv_l_cache(c.conv_L_cache)
    w.add_layer_norm_rms_eps(c.norm_eps)
    w.add_array(f"{w.arch}.attention.head_count_kv",
                [c.num_key_value_heads if kind == "full_attention" else 0 for kind in c.layer_types])


def lfm2_moe_keys(w, c, model):
    lfm2_keys(w, c, model)
    w.add_expert_count(c.num_experts)
    w.add_expert_used_count(c.num_experts_per_tok)
    w.add_expert_feed_forward_length(c.moe_intermediate_size)
    w.add_leading_dense_block_count(c.num_dense_layers)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def lfm2_moe_tensors(name, x, config):
    """The bias of choices has a name of its own in GGUF."""
    return [pair for key, part in conv_tensors(name.replace(".expert_bias", ".expert_bias.bias"), x, config)
            for pair in separate_experts(key, part, config)]


def families():
    return [
        Family("qwen3_next", T.Qwen3NextConfig(**COMMON, **DELTA, **EXPERTS), "Qwen3NextForCausalLM", old=interval_old,
               arch="qwen3next", keys=delta_keys, tensors=delta_tensors),
        Family("qwen3_5", T.Qwen3_5TextConfig(**COMMON, **DELTA, intermediate_size=48), "Qwen3_5ForCausalLM",
               old=as_vision_language, arch="qwen35", keys=delta_keys, tensors=tiled_delta_tensors),
        Family("qwen3_5_moe", T.Qwen3_5MoeTextConfig(**COMMON, **DELTA, **EXPERTS), "Qwen3_5MoeForCausalLM", arch="qwen35moe",
               keys=delta_keys, tensors=tiled_delta_tensors),
        Family("lfm2", T.Lfm2Config(**COMMON | {"tie_word_embeddings": True}, **CONV, intermediate_size=48,
                                    block_auto_adjust_ff_dim=False),
               "Lfm2ForCausalLM", old=lfm2_old, arch="lfm2", keys=lfm2_keys, tensors=conv_tensors,
               embedding_spread=0.3),
        Family("lfm2_moe", T.Lfm2MoeConfig(**COMMON | {"tie_word_embeddings": True}, **CONV, intermediate_size=48, moe_intermediate_size=24,
                                           num_experts=4, num_experts_per_tok=2, num_dense_layers=1,
                                           norm_topk_prob=True, use_expert_bias=True),
               "Lfm2MoeForCausalLM", arch="lfm2moe", keys=lfm2_moe_keys, tensors=lfm2_moe_tensors,
               embedding_spread=0.3),
    ]

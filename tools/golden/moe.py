"""Mixtures of experts."""
import transformers as T

from .common import COMMON, PLAIN, Family, old_spelling, separate_experts


def qwen3_moe_old(c):
    c["num_experts"] = c.pop("num_local_experts", c.get("num_experts"))
    return old_spelling(c)


def qwen3_moe_keys(w, c, model):
    w.add_expert_count(c.num_experts)
    w.add_expert_used_count(c.num_experts_per_tok)
    w.add_expert_feed_forward_length(c.moe_intermediate_size)


def families():
    return [
        Family("qwen3_moe",
               T.Qwen3MoeConfig(**COMMON, vocab_size=224, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
                                num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=6,
                                num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True,
                                rope_parameters=PLAIN | {"rope_theta": 1e6}),
               "Qwen3MoeForCausalLM", old=qwen3_moe_old, arch="qwen3moe", keys=qwen3_moe_keys,
               tensors=separate_experts, stacked_twin=True),
    ]

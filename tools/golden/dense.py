"""Dense decoders."""
import transformers as T

from .common import COMMON, PLAIN, Family, norms_plus_one, old_spelling, permuted

SIZES = dict(vocab_size=288, hidden_size=64, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2)
SMALL = dict(vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}


def gemma3_old(c):
    c["rope_local_base_freq"] = c["rope_parameters"]["sliding_attention"]["rope_theta"]
    c["sliding_window_pattern"] = 6
    return old_spelling(c)


def gemma3_keys(w, c, model):
    w.add_sliding_window(c.sliding_window)


def families():
    return [
        Family("llama", T.LlamaConfig(**COMMON, **SIZES, rms_norm_eps=1e-5, rope_parameters=PLAIN), "LlamaForCausalLM",
               old=old_spelling),
        Family("llama3_rope",
               T.LlamaConfig(**COMMON, **SIZES, rms_norm_eps=1e-5, rope_parameters=LLAMA3, attention_bias=True,
                             mlp_bias=True),
               "LlamaForCausalLM", old=old_spelling, arch="llama", tensors=permuted),
        Family("mistral", T.MistralConfig(**COMMON, **SMALL, head_dim=16, sliding_window=12, rope_parameters=PLAIN),
               "MistralForCausalLM", old=old_spelling),
        Family("qwen2", T.Qwen2Config(**COMMON, **SIZES, rope_parameters=PLAIN | {"rope_theta": 1e6}),
               "Qwen2ForCausalLM", old=old_spelling, arch="qwen2"),
        Family("qwen3",
               T.Qwen3Config(**COMMON | {"tie_word_embeddings": True}, **SIZES, head_dim=24,
                             rope_parameters=PLAIN | {"rope_theta": 1e6}),
               "Qwen3ForCausalLM"),
        Family("gemma3",
               T.Gemma3TextConfig(**COMMON | {"tie_word_embeddings": True},
                                  **SIZES | {"hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 6,
                                             "num_key_value_heads": 1},
                                  head_dim=16, query_pre_attn_scalar=16, sliding_window=12,
                                  rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0,
                                                                      "rope_theta": 1e6},
                                                   "sliding_attention": PLAIN}),
               "Gemma3ForCausalLM", old=gemma3_old, arch="gemma3", keys=gemma3_keys, tensors=norms_plus_one),
    ]

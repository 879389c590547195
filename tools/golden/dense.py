"""Dense decoders."""
import gguf
import numpy as np
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


YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16,
        "beta_fast": 32.0, "beta_slow": 1.0}
TIED = COMMON | {"tie_word_embeddings": True}


def small(cls, tied=False, **more):
    return cls(**(TIED if tied else COMMON) | SMALL | {"rope_parameters": PLAIN} | more)


def kept_types(c):
    """Layer types that no older key says."""
    types = c["layer_types"]
    return old_spelling(c) | {"layer_types": types}


def ministral3_keys(w, c, model):
    w.add_rope_scaling_yarn_log_mul(c.rope_parameters["mscale_all_dim"])
    w.add_attn_temperature_scale(c.rope_parameters["llama_4_scaling_beta"])


def gemma2_keys(w, c, model):
    w.add_attn_logit_softcapping(c.attn_logit_softcapping)
    w.add_final_logit_softcapping(c.final_logit_softcapping)
    w.add_sliding_window(c.sliding_window)
    w.add_attention_scale(c.query_pre_attn_scalar ** -0.5)


def gemma4_keys(w, c, model):
    full = c.per_layer_config[c.layer_types.index("full_attention")]
    sliding_keys(w, c, model)
    w.add_key_length(full.head_dim)
    w.add_value_length(full.head_dim)
    w.add_key_length_swa(c.head_dim)
    w.add_value_length_swa(c.head_dim)
    w.add_head_count_kv([layer.num_key_value_heads for layer in c.per_layer_config])
    w.add_rope_dimension_count(full.head_dim)
    w.add_rope_dimension_count_swa(c.head_dim)
    w.add_rope_freq_base_swa(c.rope_parameters["sliding_attention"]["rope_theta"])
    w.add_shared_kv_layers(c.num_kv_shared_layers)
    w.add_embedding_length_per_layer_input(c.hidden_size_per_layer_input)
    if c.use_double_wide_mlp:
        own = c.num_hidden_layers - c.num_kv_shared_layers
        w.add_feed_forward_length([c.intermediate_size * (1 if i < own else 2) for i in range(c.num_hidden_layers)])
    w.add_final_logit_softcapping(c.final_logit_softcapping)
    turning = int(full.head_dim * c.rope_parameters["full_attention"]["partial_rotary_factor"] / 2)
    w.add_tensor("rope_freqs.weight", np.array([1.0] * turning + [1e30] * (full.head_dim // 2 - turning), np.float32))
    if not c.enable_moe_block:
        return
    w.add_expert_count(c.num_experts)
    w.add_expert_used_count(c.top_k_experts)
    w.add_expert_feed_forward_length(c.moe_intermediate_size)
    for i, layer in enumerate(model.model.layers):  # names that the map of gguf does not have
        w.add_tensor(f"blk.{i}.ffn_gate_inp.scale", layer.router.scale.detach().float().numpy())
        w.add_tensor(f"blk.{i}.ffn_down_exps.scale", layer.router.per_expert_scale.detach().float().numpy())


def gemma4_tensors(name, x, config):
    if name.endswith(("router.scale", "router.per_expert_scale")):
        return []
    return [(name + (".weight" if name.endswith(("layer_scalar", "experts.gate_up_proj", "experts.down_proj")) else ""), x)]


def gemma4(name, layers, **more):
    return Family(name,
                  small(T.Gemma4TextConfig, tied=True, num_attention_heads=2, head_dim=8, global_head_dim=16,
                        num_hidden_layers=len(layers), sliding_window=12,
                        final_logit_softcapping=2.0,
                        layer_types=["sliding_attention" if kind == "s" else "full_attention" for kind in layers],
                        rope_parameters={"sliding_attention": PLAIN,
                                         "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                                                            "rope_theta": 1e6}}, **more),
                  "Gemma4ForCausalLM", arch="gemma4", keys=gemma4_keys, tensors=gemma4_tensors)


def phi3_keys(w, c, model):
    rope = c.rope_parameters
    ratio = c.max_position_embeddings / c.original_max_position_embeddings
    w.add_rope_scaling_orig_ctx_len(c.original_max_position_embeddings)
    w.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(ratio) / np.log(c.original_max_position_embeddings))))
    w.add_sliding_window(0)
    for kind in ("long", "short"):
        w.add_tensor(f"rope_factors_{kind}.weight", np.array(rope[f"{kind}_factor"], np.float32))


def sliding_keys(w, c, model):
    w.add_sliding_window(c.sliding_window)
    w.add_sliding_window_pattern([kind == "sliding_attention" for kind in c.layer_types])


def granite_keys(w, c, model):
    w.add_attention_scale(c.attention_multiplier)
    w.add_embedding_scale(c.embedding_multiplier)
    w.add_residual_scale(c.residual_multiplier)
    w.add_logit_scale(c.logits_scaling)


def granite4_keys(w, c, model):
    granite_keys(w, c, model)
    w.add_rope_scaling_finetuned(False)


def granite4_tensors(name, x, config):
    if name.endswith("shared_mlp.input_linear.weight"):
        half = x.shape[0] // 2
        return [(name.replace("shared_mlp.input_linear", "mlp.gate_proj"), x[:half]),
                (name.replace("shared_mlp.input_linear", "mlp.up_proj"), x[half:])]
    return permuted(name.replace("shared_mlp.output_linear", "mlp.down_proj"), x, config)


def cohere_keys(w, c, model):
    w.add_layer_norm_eps(c.layer_norm_eps)
    w.add_logit_scale(c.logit_scale)
    w.add_rope_scaling_type(gguf.RopeScalingType.NONE)


def cohere2_old(c):
    c["sliding_window_pattern"] = 4
    return old_spelling(c)


def cohere2_keys(w, c, model):
    cohere_keys(w, c, model)
    w.add_sliding_window(c.sliding_window)


def starcoder2_keys(w, c, model):
    w.add_layer_norm_eps(c.norm_epsilon)
    w.add_sliding_window(c.sliding_window)


def gpt2_keys(w, c, model):
    w.add_layer_norm_eps(c.layer_norm_epsilon)
    w.add_feed_forward_length(4 * c.n_embd)


def gpt2_tensors(name, x, config):
    transposed = name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight"))
    return [(name, x.T if transposed else x)]


def exaone4_old(c):
    c["sliding_window_pattern"] = 4
    return old_spelling(c)


def families():
    return [
        Family("llama", T.LlamaConfig(**COMMON, **SIZES, rms_norm_eps=1e-5, rope_parameters=PLAIN), "LlamaForCausalLM",
               old=old_spelling),
        # Rows and columns of more than a block of 128 that are no multiple of it.
        Family("llama_wide",
               T.LlamaConfig(**COMMON, vocab_size=128, hidden_size=144, intermediate_size=176, num_hidden_layers=1,
                             num_attention_heads=4, num_key_value_heads=2, head_dim=32, rope_parameters=PLAIN),
               "LlamaForCausalLM", old=old_spelling, fp8=("tensor", "block", "modelopt")),
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
               "Qwen3ForCausalLM", old=old_spelling),
        Family("gemma3",
               T.Gemma3TextConfig(**COMMON | {"tie_word_embeddings": True},
                                  **SIZES | {"hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 6,
                                             "num_key_value_heads": 1},
                                  head_dim=16, query_pre_attn_scalar=16, sliding_window=12,
                                  rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0,
                                                                      "rope_theta": 1e6},
                                                   "sliding_attention": PLAIN}),
               "Gemma3ForCausalLM", old=gemma3_old, arch="gemma3", keys=gemma3_keys, tensors=norms_plus_one),
        Family("ministral",
               small(T.MinistralConfig, head_dim=16, sliding_window=12,
                     layer_types=["sliding_attention", "full_attention"]),
               "MinistralForCausalLM", old=kept_types),
        Family("ministral3",
               small(T.Ministral3Config, head_dim=16,
                     rope_parameters=YARN | {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3}),
               "Ministral3ForCausalLM", arch="mistral3", keys=ministral3_keys, tensors=permuted),
        Family("smollm3",
               small(T.SmolLM3Config, tied=True, num_hidden_layers=4, rope_parameters=PLAIN | {"rope_theta": 2e6}),
               "SmolLM3ForCausalLM", old=old_spelling, arch="smollm3", tensors=permuted),
        Family("gemma", small(T.GemmaConfig, tied=True, head_dim=16, num_key_value_heads=1), "GemmaForCausalLM",
               old=old_spelling, arch="gemma", tensors=norms_plus_one),
        Family("gemma2",
               small(T.Gemma2Config, tied=True, head_dim=16, query_pre_attn_scalar=24, sliding_window=12,
                     num_hidden_layers=4, attn_logit_softcapping=1.5, final_logit_softcapping=2.0),
               "Gemma2ForCausalLM", old=old_spelling, arch="gemma2", keys=gemma2_keys, tensors=norms_plus_one),
        gemma4("gemma4", "sfsf", num_key_value_heads=2, num_global_key_value_heads=1, attention_k_eq_v=True,
               hidden_size_per_layer_input=0, vocab_size_per_layer_input=1),
        gemma4("gemma4_e", "sfsssf", num_key_value_heads=1, num_kv_shared_layers=3, use_double_wide_mlp=True,
               hidden_size_per_layer_input=16, vocab_size_per_layer_input=128),
        gemma4("gemma4_moe", "sf", num_key_value_heads=2, num_global_key_value_heads=1, attention_k_eq_v=True,
               hidden_size_per_layer_input=0, vocab_size_per_layer_input=1, enable_moe_block=True, num_experts=4,
               top_k_experts=2, moe_intermediate_size=32),
        Family("phi3",
               small(T.Phi3Config, original_max_position_embeddings=16,
                     rope_parameters=PLAIN | {"rope_type": "longrope", "partial_rotary_factor": 0.5,
                                              "short_factor": [1.1, 1.3], "long_factor": [2.5, 6.0],
                                              "original_max_position_embeddings": 16}),
               "Phi3ForCausalLM", old=old_spelling, arch="phi3", keys=phi3_keys),
        Family("phi4", small(T.Phi3Config, sliding_window=12, rope_parameters=PLAIN | {"rope_theta": 250000.0}),
               "Phi3ForCausalLM", old=old_spelling),
        Family("glm", small(T.GlmConfig, head_dim=16, attention_bias=True,
                            rope_parameters=PLAIN | {"partial_rotary_factor": 0.5}),
               "GlmForCausalLM", old=old_spelling, arch="chatglm"),
        Family("glm4", small(T.Glm4Config, head_dim=16, attention_bias=True,
                             rope_parameters=PLAIN | {"partial_rotary_factor": 0.5}),
               "Glm4ForCausalLM", old=old_spelling, arch="glm4"),
        Family("olmo2", small(T.Olmo2Config), "Olmo2ForCausalLM", old=old_spelling, arch="olmo2"),
        Family("olmo3",
               small(T.Olmo3Config, num_hidden_layers=4, sliding_window=12,
                     rope_parameters={"full_attention": YARN | {"rope_theta": 5e5},
                                      "sliding_attention": PLAIN | {"rope_theta": 5e5}}),
               "Olmo3ForCausalLM", old=old_spelling, arch="olmo2", keys=sliding_keys),
        Family("granite",
               small(T.GraniteConfig, attention_multiplier=0.2, embedding_multiplier=2.0, residual_multiplier=0.6,
                     logits_scaling=0.25),
               "GraniteForCausalLM", old=old_spelling, arch="granite", keys=granite_keys, tensors=permuted),
        Family("granite4",
               small(T.GraniteMoeHybridConfig, tied=True, attention_multiplier=0.2, embedding_multiplier=2.0,
                     residual_multiplier=1.5, logits_scaling=0.25, num_local_experts=0, num_experts_per_tok=0,
                     shared_intermediate_size=48, layer_types=["attention", "attention"], mamba_n_heads=4,
                     position_embedding_type="nope"),
               "GraniteMoeHybridForCausalLM", old=kept_types, arch="granite", keys=granite4_keys,
               tensors=granite4_tensors),
        Family("cohere",
               small(T.CohereConfig, tied=True, use_qk_norm=True, logit_scale=4.0),
               "CohereForCausalLM", old=old_spelling, arch="command-r", keys=cohere_keys),
        Family("cohere2",
               small(T.Cohere2Config, tied=True, num_hidden_layers=4, sliding_window=12, logit_scale=4.0, head_dim=8),
               "Cohere2ForCausalLM", old=cohere2_old, arch="cohere2", keys=cohere2_keys),
        Family("starcoder2", small(T.Starcoder2Config, tied=True, sliding_window=12), "Starcoder2ForCausalLM",
               old=old_spelling, arch="starcoder2", keys=starcoder2_keys),
        Family("gpt2",
               T.GPT2Config(**{k: v for k, v in TIED.items() if k != "max_position_embeddings"}, vocab_size=128,
                            n_embd=32, n_layer=2, n_head=4, n_positions=64),
               "GPT2LMHeadModel", old=old_spelling, arch="gpt2", keys=gpt2_keys, tensors=gpt2_tensors,
               embedding_spread=0.2),
        Family("exaone4",
               small(T.Exaone4Config, num_hidden_layers=4, sliding_window=12, sliding_window_pattern=4),
               "Exaone4ForCausalLM", old=exaone4_old, arch="exaone4", keys=sliding_keys),
    ]

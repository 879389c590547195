"""The GGUF twins of models that answer with vectors or scores, for make_pooling_cases.py."""
import json
from types import SimpleNamespace

import gguf
import torch
from safetensors.torch import load_file

from golden.common import add_tensor


def start_twin(folder, arch, config):
    folder.mkdir(exist_ok=True)
    w = gguf.GGUFWriter(str(folder / "model.gguf"), arch)
    w.add_block_count(config.num_hidden_layers)
    w.add_context_length(config.max_position_embeddings)
    w.add_embedding_length(config.hidden_size)
    w.add_feed_forward_length(config.intermediate_size)
    w.add_head_count(config.num_attention_heads)
    return w


def finish_twin(w, model, config, arch, add, skip=()):
    kind = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    for key, p in model.state_dict().items():
        if not any(word in key for word in skip):
            add(w, names.get_name(key, try_suffixes=(".weight", ".bias")), p.float().numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def bert_twin(folder, model, config, tokenizer, add=add_tensor, arch="bert"):
    w = start_twin(folder, arch, config)
    w.add_layer_norm_eps(config.layer_norm_eps)
    w.add_causal_attention(False)
    w.add_pooling_type(gguf.PoolingType.MEAN)
    words = [word for word, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]
    # llama.cpp marks starts of words instead of what continues one.
    marked = [word if word.startswith("[") else word[2:] if word.startswith("##") else "\u2581" + word for word in words]
    w.add_tokenizer_model("bert")
    w.add_tokenizer_pre("default")
    w.add_token_type_count(config.type_vocab_size)
    padded = marked + [f"[PAD{i}]" for i in range(config.vocab_size - len(marked))]
    w.add_token_list(padded)
    w.add_token_types([3 if word.startswith("[") else 1 for word in padded])
    w.add_unk_token_id(1)
    w.add_pad_token_id(0)
    w.add_sep_token_id(3)
    w.add_mask_token_id(4)
    w.add_bos_token_id(2)
    w.add_eos_token_id(3)
    w.add_add_bos_token(True)
    w.add_add_eos_token(True)
    if arch == "nomic-bert":
        w.add_rope_freq_base(config.rope_parameters["rope_theta"])
    finish_twin(w, model, config, arch, add, skip=("pooler", "position_ids"))


# Of transformers, and what its own code and so the converter calls them; the converter keeps q, k and v together.
NOMIC_NAMES = [("layers.", "encoder.layers."), ("self_attn.o_proj", "attn.out_proj"), ("up_proj", "fc11"), ("gate_proj", "fc12"),
               ("down_proj", "fc2"), ("post_attention_layernorm", "norm1"), ("post_mlp_layernorm", "norm2"),
               ("embeddings.LayerNorm", "emb_ln")]


class Renamed:
    """The tensors of a Nomic model as its own code names them."""

    def __init__(self, model):
        self.model = model

    def state_dict(self):
        made, parts = {}, {}
        for key, p in self.model.state_dict().items():
            if "self_attn." in key and "o_proj" not in key:
                parts.setdefault(key.split(".self_attn.")[0], []).append(p)
                continue
            for now, own in NOMIC_NAMES:
                key = key.replace(now, own)
            made[key] = p
        made.update({f"encoder.{layer}.attn.Wqkv.weight": torch.cat(qkv) for layer, qkv in parts.items()})
        return made


def nomic_twin(folder, model, config, tokenizer, add=add_tensor):
    bert_twin(folder, Renamed(model), config, tokenizer, add, "nomic-bert")


def unigram_vocabulary(w, tokenizer, size):
    pieces = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["vocab"]
    special = set(tokenizer.all_special_ids)
    unknown = tokenizer.unk_token_id
    w.add_tokenizer_model("t5")
    w.add_tokenizer_pre("default")
    w.add_token_list([piece for piece, _ in pieces] + [f"[PAD{i}]" for i in range(size - len(pieces))])
    w.add_token_scores([score for _, score in pieces] + [-10000.0] * (size - len(pieces)))
    w.add_token_types([2 if i == unknown else 3 if i in special else 1 if i < len(pieces) else 5 for i in range(size)])
    w.add_add_space_prefix(True)
    w.add_remove_extra_whitespaces(False)
    for add, token in ((w.add_bos_token_id, tokenizer.bos_token_id), (w.add_eos_token_id, tokenizer.eos_token_id),
                       (w.add_unk_token_id, unknown), (w.add_sep_token_id, tokenizer.sep_token_id),
                       (w.add_pad_token_id, tokenizer.pad_token_id)):
        add(token)
    w.add_add_bos_token(True)
    w.add_add_eos_token(True)


def roberta_twin(folder, model, config, tokenizer, add=add_tensor):
    """Tables of positions begin at the first that is used, and a classifier is `cls` and `cls.output`."""
    w = start_twin(folder, "bert", config)
    w.add_layer_norm_eps(config.layer_norm_eps)
    w.add_causal_attention(False)
    scores = hasattr(model, "classifier")
    w.add_pooling_type(gguf.PoolingType.RANK if scores else gguf.PoolingType.CLS)
    w.add_token_type_count(config.type_vocab_size)
    unigram_vocabulary(w, tokenizer, config.vocab_size)
    tensors = {key.removeprefix("roberta."): p for key, p in model.state_dict().items() if "pooler" not in key and "_ids" not in key}
    positions = "embeddings.position_embeddings.weight"
    tensors[positions] = tensors[positions][config.pad_token_id + 1:]
    finish_twin(w, SimpleNamespace(state_dict=lambda: tensors), config, "bert", add)


def byte_vocabulary(w, tokenizer, size):
    words = [word for word, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]
    padded = words + [f"[PAD{i}]" for i in range(size - len(words))]
    special = set(tokenizer.all_special_tokens)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(padded)
    w.add_token_types([3 if word in special else 5 if word.startswith("[PAD") else 1 for word in padded])
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    w.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in merges])


def modern_twin(folder, model, config, tokenizer, add=add_tensor):
    w = start_twin(folder, "modern-bert", config)
    w.add_layer_norm_eps(config.norm_eps)
    w.add_causal_attention(False)
    w.add_rope_freq_base(config.rope_parameters["full_attention"]["rope_theta"])
    w.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    w.add_sliding_window(config.local_attention)
    w.add_sliding_window_pattern(config.global_attn_every_n_layers)
    w.add_pooling_type(gguf.PoolingType.MEAN)
    byte_vocabulary(w, tokenizer, config.vocab_size)
    w.add_bos_token_id(0)
    w.add_eos_token_id(2)
    w.add_pad_token_id(1)
    w.add_add_bos_token(True)
    w.add_add_eos_token(True)
    finish_twin(w, model, config, "modern-bert", add)


def start_decoder(folder, architecture, config):
    w = start_twin(folder, architecture, config)
    w.add_head_count_kv(config.num_key_value_heads)
    w.add_key_length(config.head_dim)
    w.add_value_length(config.head_dim)
    w.add_layer_norm_rms_eps(config.rms_norm_eps)
    return w


def vocabulary_with_end(w, tokenizer, config):
    """Texts end with token 0."""
    byte_vocabulary(w, tokenizer, config.vocab_size)
    w.add_eos_token_id(0)
    w.add_pad_token_id(0)
    w.add_add_bos_token(False)
    w.add_add_eos_token(True)


def qwen_twin(folder, model, config, tokenizer, add=add_tensor):
    w = start_decoder(folder, "qwen3", config)
    w.add_rope_freq_base(config.rope_parameters["rope_theta"])
    w.add_pooling_type(gguf.PoolingType.LAST)
    vocabulary_with_end(w, tokenizer, config)
    finish_twin(w, model, config, "qwen3", add)


def gemma_twin(folder, model, config, tokenizer, add=add_tensor):
    w = start_decoder(folder, "gemma-embedding", config)
    w.add_rope_freq_base(config.rope_parameters["full_attention"]["rope_theta"])
    w.add_sliding_window((config.sliding_window - 1) * 2)  # transformers keeps half of it
    w.add_pooling_type(gguf.PoolingType.MEAN)
    vocabulary_with_end(w, tokenizer, config)
    for layer in ("2_Dense", "3_Dense"):
        weights = load_file(folder.parent / "embedding_gemma" / layer / "model.safetensors")
        w.add_tensor(f"dense_{layer[0]}.weight", weights["linear.weight"].numpy())
    finish_twin(w, model, config, "gemma-embedding", lambda w, name, x: add(w, name, x + 1 if "norm" in name else x))


def distil_twin(folder, model, config, tokenizer, add=add_tensor):
    """llama.cpp has it as a BERT without types of texts."""
    config.layer_norm_eps, config.intermediate_size, config.type_vocab_size = 1e-12, config.hidden_dim, 1
    bert_twin(folder, model, config, tokenizer, add)


# By the model's name.
TWINS = {"bert": bert_twin, "distil_bert": distil_twin, "embedding_gemma": gemma_twin, "modern_bert": modern_twin,
         "nomic_bert": nomic_twin, "qwen3_embedding": qwen_twin, "xlm_roberta": roberta_twin, "xlm_roberta_score": roberta_twin}

"""Model files that lie or lack something: every command that takes a model says so in one sentence and ends with 1."""
import json
import os
import random
import struct
import subprocess

import pytest

QUERN = os.environ["QUERN_BINARY"]
HIDDEN, FFN, VOCABULARY = 32, 64, 8
CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN, "num_hidden_layers": 1,
          "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": FFN, "vocab_size": VOCABULARY,
          "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True}
TOKENIZER = {"model": {"type": "BPE", "vocab": {c: i for i, c in enumerate("abcdefgh")}, "merges": []}}


def commands(model):
    """The commands that read a model; serve and run must refuse before they listen or answer."""
    return {"run": ["run", model, "Hello"], "serve": ["serve", model, "--port", "0"], "describe": ["describe", model]}


def refused(model, command="describe", names=None):
    """The one sentence that a command says of a model; it must name the file."""
    result = subprocess.run([QUERN, *commands(str(model))[command]], capture_output=True, text=True, timeout=120,
                            errors="replace")
    assert result.returncode == 1, result
    lines = [line for line in result.stderr.splitlines() if " info " not in line]  # a server may tell that it listens already
    assert len(lines) == 1 and lines[0].startswith("quern: "), result.stderr
    assert str(names or model) in lines[0]
    return lines[0]


def safetensors(tensors):
    """Tensors by name and shape, all float32 zeros."""
    header, offset = {}, 0
    for name, shape in tensors.items():
        size = 4
        for dim in shape:
            size *= dim
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(offset)


def tensors():
    layer = "model.layers.0."
    return {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,),
            layer + "input_layernorm.weight": (HIDDEN,), layer + "post_attention_layernorm.weight": (HIDDEN,),
            layer + "self_attn.q_proj.weight": (HIDDEN, HIDDEN), layer + "self_attn.k_proj.weight": (HIDDEN // 2, HIDDEN),
            layer + "self_attn.v_proj.weight": (HIDDEN // 2, HIDDEN), layer + "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
            layer + "mlp.gate_proj.weight": (FFN, HIDDEN), layer + "mlp.up_proj.weight": (FFN, HIDDEN),
            layer + "mlp.down_proj.weight": (HIDDEN, FFN)}


def directory(path, config=None, stored=None, tokenizer=TOKENIZER):
    """A model as a directory; what is None or {} beside the defaults is as a right one has it."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps({**CONFIG, **(config or {})}))
    (path / "model.safetensors").write_bytes(safetensors(tensors() if stored is None else stored))
    if tokenizer is not None:
        (path / "tokenizer.json").write_text(tokenizer if isinstance(tokenizer, str) else json.dumps(tokenizer))
    return path


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(pairs, stored=()):
    """Metadata as (key, type, bytes) and tensors as (name, dims, type, bytes), version 3."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(stored), len(pairs))
    for key, kind, value in pairs:
        out += text(key) + struct.pack("<I", kind) + value
    data = b""
    for name, dims, kind, values in stored:
        out += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", dim) for dim in dims)
        out += struct.pack("<IQ", kind, len(data))
        data += values + bytes(-len(values) % 32)
    return out + bytes(-len(out) % 32) + data


def u32(key, value):
    return key, 4, struct.pack("<I", value)


def llama_gguf(architecture="llama", embedding=None, **changed):
    sizes = {"block_count": 1, "context_length": 64, "embedding_length": HIDDEN, "feed_forward_length": FFN,
             "attention.head_count": 2, "attention.head_count_kv": 1, **changed}
    pairs = [("general.architecture", 8, text(architecture))]
    pairs += [u32(f"{architecture}.{key}", value) for key, value in sizes.items()]
    pairs.append((f"{architecture}.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)))
    stored = embedding or ("token_embd.weight", (HIDDEN, VOCABULARY), 0, bytes(4 * HIDDEN * VOCABULARY))
    return gguf(pairs, [stored])


@pytest.mark.parametrize("command", ["run", "serve", "describe"])
def test_s3_a_truncated_gguf(tmp_path, command):
    path = tmp_path / "cut.gguf"
    whole = llama_gguf()
    for length in (0, 3, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refused(path, command)


@pytest.mark.parametrize("command", ["run", "serve", "describe"])
def test_s6_random_bytes(tmp_path, command):
    path = tmp_path / "noise.gguf"
    noise = random.Random(1)
    for head in (b"", b"GGUF", b"GGUF\x03\0\0\0"):
        path.write_bytes(head + noise.randbytes(4096))
        refused(path, command)


@pytest.mark.parametrize("command", ["run", "serve", "describe"])
def test_a_directory_without_a_config(tmp_path, command):
    assert "config.json" in refused(tmp_path, command)


@pytest.mark.parametrize("command", ["run", "serve", "describe"])
def test_an_unknown_architecture_lists_the_known_ones(tmp_path, command):
    for known in ("LlamaForCausalLM", "Qwen3ForCausalLM"):
        assert known in refused(directory(tmp_path / "m", {"architectures": ["T5Model"]}), command)
    path = tmp_path / "m.gguf"
    path.write_bytes(llama_gguf("t5"))
    message = refused(path, command)
    assert '"t5"' in message and "llama" in message and "qwen3" in message


def test_an_unsupported_type_is_named(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(llama_gguf(embedding=("token_embd.weight", (256, VOCABULARY), 24, bytes(256 * VOCABULARY)),
                                embedding_length=256))
    message = refused(path, "run")
    assert "type I8" in message and "Q4_1" in message
    path.write_bytes(llama_gguf(embedding=("token_embd.weight", (256, VOCABULARY), 139, b"")))
    assert "IQ4_K (139), which only ik_llama.cpp has" in refused(path, "run")
    folder = directory(tmp_path / "m", {"quantization_config": {"quant_method": "awq"}})
    assert "awq" in refused(folder, "run", folder / "config.json")


@pytest.mark.parametrize("command", ["run", "serve", "describe"])
@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                                 "vocab_size", "max_position_embeddings", "head_dim"])
def test_s2_absurd_sizes(tmp_path, key, command):
    for value in (0, -1, 2**31, 2**63, 10**30, 1e400, "5", [], {}, True):
        if value in (0, 2**31) and key in ("head_dim", "max_position_embeddings"):
            continue  # means absent, or is only large
        message = refused(directory(tmp_path / "m", {key: value}), command)
        assert key in message or "Infinity" in message or "number" in message, message


def test_s2_absurd_sizes_in_a_gguf(tmp_path):
    path = tmp_path / "m.gguf"
    for key in ("block_count", "attention.head_count", "attention.head_count_kv", "embedding_length",
                "feed_forward_length"):
        for value in (0, 2**32 - 1):
            path.write_bytes(llama_gguf(**{key: value}))
            refused(path)


@pytest.mark.parametrize("command", ["run", "serve"])
def test_a_missing_tensor_is_named(tmp_path, command):
    for name in tensors():
        stored = tensors()
        del stored[name]
        assert name in refused(directory(tmp_path / "m", stored=stored), command)


@pytest.mark.parametrize("command", ["run", "serve"])
def test_a_tensor_of_another_shape_is_named(tmp_path, command):
    stored = {**tensors(), "model.norm.weight": (HIDDEN + 1,)}
    message = refused(directory(tmp_path / "m", stored=stored), command)
    assert "model.norm.weight" in message and "[33]" in message and "[32]" in message


@pytest.mark.parametrize("command", ["run", "serve"])
def test_a_missing_tokenizer(tmp_path, command):
    assert "tokenizer.json" in refused(directory(tmp_path / "m", tokenizer=None), command)


@pytest.mark.parametrize("command", ["run", "serve"])
@pytest.mark.parametrize("tokenizer, says", [
    ("", ""), ("{", ""), ("[" * 100000, "expected an object"), ('{"version":' + "[" * 100000, ""), ({"model": {"type": "Unigram"}}, "Unigram"),
    ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}, '"b"'),
])
def test_s5_a_broken_tokenizer(tmp_path, command, tokenizer, says):
    folder = directory(tmp_path / "m", tokenizer=tokenizer)
    assert says in refused(folder, command, folder / "tokenizer.json")


def test_s7_pickled_files_are_never_loaded(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(b"PK\3\4")
    assert "never loaded" in refused(path, "run")
    folder = directory(tmp_path / "m", {"auto_map": {"AutoModel": "evil.Model"}, "trust_remote_code": True})
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    (folder / "evil.py").write_text("raise SystemExit(0)")
    assert "never loaded" in refused(folder, "run")


def test_s8_shard_names_are_no_paths(tmp_path):
    folder = directory(tmp_path / "m")
    (folder / "model.safetensors").rename(tmp_path / "out.safetensors")
    for name in ("../out.safetensors", str(tmp_path / "out.safetensors")):
        index = folder / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": {"model.norm.weight": name}}))
        refused(folder, "describe", index)


def test_what_the_other_tests_break_is_right(tmp_path):
    """Otherwise they might be refused for another reason than the one they mean."""
    folder = directory(tmp_path / "m")
    result = subprocess.run([QUERN, "serve", str(folder), "--dry-run"], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "weights" in result.stdout

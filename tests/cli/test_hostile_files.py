"""A corpus of minimal hostile model files, one test for each: `quern run` refuses it in one sentence that names what is wrong,
within seconds, or takes it where it is only unusual. The readers' own tests beside their sources go deeper."""
import base64
import json
import struct
import subprocess

import pytest
from test_bad_files import FFN, HIDDEN, QUERN, TOKENIZER, directory, safetensors, tensors, text, u32

TOKENS = ["<s>", "a", "b", "ab", "c", "d", "e", "f"]
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down"}
NAN = float("nan")


def run(path, prompt="ab"):
    return subprocess.run([QUERN, "run", str(path), prompt, "--max-tokens", "1", "--threads", "1"], capture_output=True,
                          text=True, errors="replace", timeout=60)


def refused(path, says):
    result = run(path)
    lines = result.stderr.strip().splitlines()
    assert result.returncode == 1 and len(lines) == 1 and lines[0].startswith("quern: "), result
    assert says in lines[0] and len(lines[0]) < 1000, lines[0][:1000]


def accepted(path):
    result = run(path)
    assert result.returncode == 0, result.stderr


# GGUF: a whole small model, of which a case changes one thing.

def strings(values):
    return struct.pack("<IQ", 8, len(values)) + b"".join(text(value) for value in values)


def floats(values):
    return struct.pack(f"<IQ{len(values)}f", 6, len(values), *values)


def gguf_pairs():
    """Key -> type and bytes."""
    sizes = {"block_count": 1, "context_length": 64, "embedding_length": HIDDEN, "feed_forward_length": FFN,
             "attention.head_count": 2, "attention.head_count_kv": 1, "rope.dimension_count": HIDDEN // 2}
    pairs = [("general.architecture", 8, text("llama")), ("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
             *(u32(f"llama.{key}", value) for key, value in sizes.items()),
             ("tokenizer.ggml.model", 8, text("gpt2")), ("tokenizer.ggml.pre", 8, text("smollm")),
             ("tokenizer.ggml.tokens", 9, strings(TOKENS)), ("tokenizer.ggml.merges", 9, strings(["a b"])),
             ("tokenizer.ggml.token_type", 9, struct.pack("<IQ8i", 5, 8, 3, *[1] * 7)),
             u32("tokenizer.ggml.bos_token_id", 0), u32("tokenizer.ggml.eos_token_id", 7)]
    return {key: (kind, value) for key, kind, value in pairs}


def gguf_tensors():
    """Name -> dimensions, type, bytes."""
    stored = {}
    for name, shape in tensors().items():
        layer, _, part = name.removesuffix(".weight").partition("layers.0.")
        short = ("blk.0." + NAMES[part] if part else NAMES[layer]) + ".weight"
        size = 4
        for dim in shape:
            size *= dim
        stored[short] = (tuple(reversed(shape)), 0, bytes(size))
    return stored


def write(head, table, data):
    """`head`: raw pairs; `table`: raw entries of tensors, before the data."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(table), len(head)) + b"".join(head) + b"".join(table)
    return out + bytes(-len(out) % 32) + data


def raw_pair(key, kind, value):
    return (key if isinstance(key, bytes) else text(key)) + struct.pack("<I", kind) + value


def raw_tensor(name, dims, kind, offset):
    name = name if isinstance(name, bytes) else text(name)
    return name + struct.pack(f"<I{len(dims)}Q", len(dims), *(dim % 2**64 for dim in dims)) + struct.pack("<IQ", kind, offset)


def gguf(changed=None, more=(), tensor=None, replace=None, cut=0):
    """`changed`: key -> (type, bytes) or None; `more`: raw pairs; `tensor`: (name, dims, type) laid over output_norm.weight;
    `replace`: (place, bytes) in the header; `cut`: bytes that the end lacks."""
    pairs = gguf_pairs()
    for key, value in (changed or {}).items():
        pairs.pop(key, None)
        if value is not None:
            pairs[key] = value
    table, data = [], b""
    for name, (dims, kind, values) in gguf_tensors().items():
        if tensor and name == "output_norm.weight":
            name, dims, kind, at = (*tensor, None)[:4]
            table.append(raw_tensor(name, dims, kind, len(data) if at is None else at))
        else:
            table.append(raw_tensor(name, dims, kind, len(data)))
        data += values + bytes(-len(values) % 32)
    out = write([*(raw_pair(key, kind, value) for key, (kind, value) in pairs.items()), *more], table, data)
    if replace:
        out = out[:replace[0]] + replace[1] + out[replace[0] + len(replace[1]):]
    return out[:len(out) - cut]


def number(key, value):
    return gguf({f"llama.{key}": (4, struct.pack("<I", value))})


def key_of(length):
    return gguf(more=[raw_pair(struct.pack("<Q", length) + b"key", 0, b"\1")])


def key_longer_than_the_file():
    return key_of(len(gguf()) + 1)


def alignment(value):
    return gguf({"general.alignment": (4, struct.pack("<I", value))})


def array(kind, count, values=b""):
    return gguf({"x.list": (9, struct.pack("<IQ", kind, count) + values)})


def place(name, dims=(HIDDEN,), kind=0, offset=None):
    return gguf(tensor=(name, dims, kind, offset))


def dims(*values, kind=0):
    return place("output_norm.weight", values, kind)


def dim_count(count):
    """With the entries that it says."""
    name = text("output_norm.weight")
    whole = gguf()
    at = whole.index(name) + len(name)
    return whole[:at] + struct.pack("<I", count) + struct.pack("<Q", 1) * count + whole[at + 12:]


def vocabulary(key, kind, value):
    return gguf({f"tokenizer.ggml.{key}": (kind, value)})


def template(value):
    return gguf({"tokenizer.chat_template": (8, text(value))})


SPECIAL = {name: [("n_vocab", 4, struct.pack("<I", len(TOKENS))), ("-1", 5, struct.pack("<i", -1)),
                  ("2^32-1", 4, struct.pack("<I", 2**32 - 1))] for name in ("bos", "eos", "unknown")}

GGUF = {
    "empty file": (b"", "not a GGUF file"),
    "3 bytes": (b"GGU", "not a GGUF file"),
    "bad magic": (b"GGJT" + gguf()[4:], "not a GGUF file"),
    "byte-swapped version": (gguf(replace=(4, b"\0\0\0\3")), "big-endian"),
    **{f"version {name}": (gguf(replace=(4, struct.pack("<I", value))), "GGUF version")
       for name, value in {"0": 0, "1": 1, "4": 4, "2^31": 2**31}.items()},
    **{f"{what} {name}": (gguf(replace=(at, struct.pack("<Q", value))), "more than fit the file")
       for what, at in {"n_tensors": 8, "n_kv": 16}.items() for name, value in {"2^32-1": 2**32 - 1, "2^63": 2**63, "-1": 2**64 - 1}.items()},
    **{f"key length {name}": (key_of(value), "key") for name, value in {"0": 0, "2^32": 2**32, "2^63": 2**63}.items()},
    "key length file size + 1": (key_longer_than_the_file(), "key"),
    "duplicate key": (gguf(more=[raw_pair("general.architecture", 8, text("llama"))]), "there twice"),
    "key with NUL": (gguf(more=[raw_pair("a\0b", 0, b"\1")]), "NUL"),
    **{f"value type {kind}": (gguf(more=[raw_pair("x", kind, bytes(8))]), f"unknown value type {kind}") for kind in (13, 255)},
    "array of arrays": (array(9, 1, bytes(16)), "arrays of arrays"),
    "array length 2^63": (array(4, 2**63), "x.list"),
    "array length right and element type too narrow": (vocabulary("scores", 9, struct.pack("<IQ", 0, 8) + bytes(8)), "tokenizer.ggml.scores"),
    "string value length past the end": (gguf({"x": (8, struct.pack("<Q", 2**20) + b"x")}), '"x"'),
    "bool byte 2": (gguf({"x": (7, b"\2")}), "neither 0 nor 1"),
    **{f"alignment {name}": (alignment(value), "power of two") for name, value in {"0": 0, "1": 1, "3": 3, "2^31": 2**31}.items()},
    "alignment as string": (gguf({"general.alignment": (8, text("32"))}), "general.alignment"),
    "architecture missing": (gguf({"general.architecture": None}), "general.architecture"),
    "architecture a number": (gguf({"general.architecture": (4, bytes(4))}), "general.architecture"),
    "architecture 10 MB long": (lambda: gguf({"general.architecture": (8, text("x" * 10_000_000))}), "(10000000 bytes) is not supported"),
    "tensor name length 0": (place(""), "name"),
    "tensor name length 64": (place("n" * 64), "name"),
    "tensor name length 2^20": (place("n" * 2**20), "name"),
    "duplicate tensor name": (place("blk.0.attn_norm.weight"), "there twice"),
    **{f"n_dims {count}": (dim_count(count), "dimensions") for count in (0, 5, 255)},
    "a dimension 0": (dims(0), "dimension 0"),
    "a dimension -1": (dims(-1), "dimension"),
    "a dimension 2^62": (dims(2**62), "output_norm.weight"),
    "a product that wraps": (dims(2**32 + 1, 2**32 + 1, 1), "output_norm.weight"),
    "row no multiple of the block": (dims(33, kind=8), "multiple of 32"),
    "removed type 4": (dims(HIDDEN, kind=4), "type Q4_2 (4), which GGUF no longer has; convert the model again"),
    "removed type 5": (dims(HIDDEN, kind=5), "type Q4_3 (5), which GGUF no longer has; convert the model again"),
    "type 255": (dims(HIDDEN, kind=255), "type 255"),
    "offset unaligned": (place("output_norm.weight", offset=33), "unaligned"),
    "offset beyond the end": (place("output_norm.weight", offset=2**40), "cut short"),
    "offset equal for two tensors": (place("output_norm.weight", offset=0), "overlaps"),
    "data shorter by 1 byte": (gguf(cut=1), "cut short"),
    "split.count 65535": (gguf({"split.count": (2, struct.pack("<H", 65535)), "split.no": (2, bytes(2))}), "-00001-of-65535.gguf"),
    "tokens empty": (vocabulary("tokens", 9, strings([])), "tokenizer.ggml.tokens"),
    "tokens shorter than the embedding": (vocabulary("tokens", 9, strings(TOKENS[:-1])), "embedding has 8 rows"),
    "tokens longer than the embedding": (vocabulary("tokens", 9, strings([*TOKENS, "g"])), "embedding has 8 rows"),
    **{f"{name} id {what}": (vocabulary(f"{name}_token_id", kind, value), f"tokenizer.ggml.{name}_token_id")
       for name, cases in SPECIAL.items() for what, kind, value in cases},
    "merges with an unknown piece": (vocabulary("merges", 9, strings(["a z"])), "z"),
    "merges with no space": (vocabulary("merges", 9, strings(["ab"])), "tokenizer.ggml.merges"),
    "scores NaN": (vocabulary("scores", 9, floats([NAN] * 8)), "tokenizer.ggml.scores"),
    "template 50 MB": (lambda: template("{" * 50_000_000), "more than the 1048576 allowed"),
    "template with an unclosed {%": (template("{% if x"), "a tag is not closed"),
    "template with a self-including macro": (template("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "too deeply"),
    "template with range(10**9)": (template("{% for i in range(10**9) %}x{% endfor %}"), "range too big"),
    "template with a string times 10^9": (template("{{ 'x' * 10**9 }}"), "makes a text of more than"),
    "head_count 0": (number("attention.head_count", 0), "llama.attention.head_count"),
    "head_count_kv > head_count": (number("attention.head_count_kv", 4), "head_count_kv"),
    "block_count 0": (number("block_count", 0), "llama.block_count"),
    "block_count 10^9": (number("block_count", 10**9), "block_count"),
    "context_length 0": (number("context_length", 0), "llama.context_length"),
    "rope dimension 0": (number("rope.dimension_count", 0), "rope.dimension_count"),
    "rope dimension odd": (number("rope.dimension_count", 7), "rope.dimension_count"),
    "expert_used_count > expert_count": (gguf({"llama.expert_count": (4, struct.pack("<I", 2)), "llama.expert_used_count": (4, struct.pack("<I", 3))}),
                                         "expert_used_count"),
}


@pytest.mark.parametrize("case", GGUF)
def test_gguf(tmp_path, case):
    path = tmp_path / "m.gguf"
    content, says = GGUF[case]
    path.write_bytes(content() if callable(content) else content)
    refused(path, says)


def test_gguf_that_is_right_runs(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf())
    accepted(path)
    path.write_bytes(gguf({"split.count": (2, bytes(2))}))  # 0 is what joining parts leaves behind
    accepted(path)


def part(no, count, *, own):
    """A part of a split model with one tensor, the first one with the metadata too."""
    pairs = gguf_pairs() if no == 0 else {}
    pairs |= {"split.no": (2, struct.pack("<H", no)), "split.count": (2, struct.pack("<H", count))}
    return write([raw_pair(key, *value) for key, value in pairs.items()], [raw_tensor(own, (HIDDEN,), 0, 0)], bytes(4 * HIDDEN))


def test_gguf_parts_with_split_no_repeated(tmp_path):
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(part(0, 2, own="output_norm.weight"))
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(part(0, 2, own="blk.0.attn_norm.weight"))
    refused(tmp_path / "m-00001-of-00002.gguf", "says that it is part 1 of 2, expected part 2 of 2")


def test_gguf_parts_with_a_missing_part(tmp_path):
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(part(0, 2, own="output_norm.weight"))
    refused(tmp_path / "m-00001-of-00002.gguf", "part 2 of 2 is missing")


def test_gguf_parts_with_65535_of_them(tmp_path):
    (tmp_path / "m-00001-of-65535.gguf").write_bytes(part(0, 65535, own="output_norm.weight"))
    refused(tmp_path / "m-00001-of-65535.gguf", "part 2 of 65535 is missing")


# safetensors: a right folder, whose weights a case replaces.

def weights(header, data=b"", length=None):
    header = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def one(dtype="U8", shape="[4]", offsets="[0,4]", data=b"1234"):
    return weights(f'{{"t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}', data)


def two(second):
    entry = '"dtype":"U8","shape":[4],"data_offsets":'
    return weights(f'{{"a":{{{entry}[0,4]}},"b":{{{entry}{second}}}}}', b"12345678")


def with_header(change, behind=b""):
    """The right file, its header changed as text."""
    whole = safetensors(tensors())
    size = struct.unpack_from("<Q", whole)[0]
    return weights(change(whole[8:8 + size]), whole[8 + size:] + behind)


def with_more(entry):
    return with_header(lambda header: header[:-1] + b"," + entry + b"}")


SAFETENSORS = {
    **{f"length {length} bytes": (bytes(length), "model.safetensors") for length in (0, 1, 7)},
    "header length 2^63": (weights("{}", length=2**63), "more than the 100000000 allowed"),
    "header length > file": (weights("{}", length=3), "cut short"),
    "header length > 100 MB": (weights("{}", length=100_000_001), "more than the 100000000 allowed"),
    "header not UTF-8": (weights(b'{"\xff":1}'), "header"),
    "header not JSON": (weights("not json"), "header"),
    "header a JSON array": (weights("[]"), "is an array"),
    "duplicate tensor name": (with_more(b'"model.norm.weight":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'), "twice"),
    "trailing non-space": (weights("{}x"), "header"),
    "dtype unknown": (one(dtype="F33"), "unknown dtype"),
    "shape negative": (one(shape="[-4]"), "shape"),
    "shape [2, 2^64-2]": (one(shape="[2,18446744073709551614]"), '"t"'),
    "shape [2, 2^63-1]": (one(shape="[2,9223372036854775807]"), '"t"'),
    "bits that are no whole byte": (one(dtype="F4", shape="[3]", offsets="[0,1]", data=b"1"), '"t"'),
    "data_offsets reversed": (one(offsets="[4,0]"), "reversed"),
    "data_offsets overlapping": (two("[3,7]"), "overlaps"),
    "data_offsets leaving a hole": (weights('{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}',
                                            b"12345678"), "hole"),
    "data_offsets not starting at 0": (one(shape="[3]", offsets="[1,4]"), "hole"),
    "data_offsets beyond the end": (one(shape="[5]", offsets="[0,5]"), "cut short"),
    "size != shape x dtype": (one(shape="[3]"), "does not fit its 4 bytes"),
    "extra bytes behind the last tensor": (with_header(lambda header: header, b"x"), "behind the last tensor"),
}


@pytest.mark.parametrize("case", SAFETENSORS)
def test_safetensors(tmp_path, case):
    folder = directory(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(SAFETENSORS[case][0])
    refused(folder, SAFETENSORS[case][1])


def with_scalar():
    size = len(safetensors(tensors()))
    end = size - 8 - struct.unpack_from("<Q", safetensors(tensors()))[0]
    return with_header(lambda header: header[:-1] + b',"t":{"dtype":"U8","shape":[],"data_offsets":[%d,%d]}}' % (end, end + 1), b"x")


UNUSUAL = {
    "white space before the object": with_header(lambda header: b" \n\t" + header),
    "white space after the object": with_header(lambda header: header + b" \n\t"),
    "a tensor with a zero dimension": with_more(b'"t":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]}'),
    "a scalar": with_scalar(),
}


@pytest.mark.parametrize("case", UNUSUAL)
def test_safetensors_that_are_unusual_are_taken(tmp_path, case):
    folder = directory(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(UNUSUAL[case])
    accepted(folder)


def test_safetensors_without_tensors_are_no_broken_file(tmp_path):
    folder = directory(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(weights("{}"))
    refused(folder, 'tensor "model.embed_tokens.weight" is missing')


def test_safetensors_with_metadata_that_is_no_string(tmp_path):
    folder = directory(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(weights('{"__metadata__":{"a":1}}'))
    refused(folder, "__metadata__")


INDEX = {
    "a missing shard": ({"t": "gone.safetensors"}, 'the shard "gone.safetensors" is missing'),
    "../x": ({"t": "../out.safetensors"}, "no .safetensors file of this directory"),
    "an absolute path": ({"t": "/out.safetensors"}, "no .safetensors file of this directory"),
    "a tensor that the shard lacks": ({"gone": "s1.safetensors"}, "where the index has it"),
    "a tensor in two shards": ({"t": "s1.safetensors", "u": "s2.safetensors"}, "in two shards"),
}


@pytest.mark.parametrize("case", INDEX)
def test_index_of_shards(tmp_path, case):
    folder = directory(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    for name in ("s1", "s2"):
        (folder / f"{name}.safetensors").write_bytes(one())
    (tmp_path / "out.safetensors").write_bytes(one())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": INDEX[case][0]}))
    refused(folder, INDEX[case][1])


# tokenizer.json beside right weights.

def tokenizer(model=None, **parts):
    return {**TOKENIZER, "model": {**TOKENIZER["model"], **(model or {})}, **parts}


def charsmap(values):
    return tokenizer(normalizer={"type": "Precompiled", "precompiled_charsmap": base64.b64encode(values).decode()})


def added(token_id, content):
    return tokenizer(added_tokens=[{"id": token_id, "content": content, "special": True}])


def split(regex):
    return tokenizer(pre_tokenizer={"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False})


VOCAB = TOKENIZER["model"]["vocab"]
REFUSED_TOKENIZERS = {
    "empty": ("", "tokenizer.json"),
    "model type unknown": (tokenizer({"type": "Quantum"}), "Quantum"),
    "two tokens of one id": (tokenizer({"vocab": {**VOCAB, "i": 0}}), "id 0"),
    "merge of unknown pieces": (tokenizer({"merges": ["a z"]}), '"z"'),
    "added token id far above the vocabulary": (added(2**31 - 1, "<x>"), "added token"),
    "added token id negative": (added(-1, "<x>"), "added token"),
    "Split with an invalid regex": (split("(a"), "(a"),
    "charsmap shorter than its header": (charsmap(b"\4\0"), "charsmap is shorter than its header"),
    "charsmap whose header lies": (charsmap(struct.pack("<I", 2**31) + bytes(64)), "charsmap is shorter than its header says"),
    "charsmap cut short": (charsmap(struct.pack("<I", 64) + bytes(63)), "charsmap is shorter than its header says"),
    "charsmap cut within a character": (charsmap(struct.pack("<I", 4) + bytes(4) + b"\xe2\x82"), "no UTF-8"),
    "charsmap that is no base64": (tokenizer(normalizer={"type": "Precompiled", "precompiled_charsmap": "\u00e9"}), "no base64"),
}


@pytest.mark.parametrize("case", REFUSED_TOKENIZERS)
def test_tokenizer(tmp_path, case):
    refused(directory(tmp_path / "m", tokenizer=REFUSED_TOKENIZERS[case][0]), REFUSED_TOKENIZERS[case][1])


TAKEN_TOKENIZERS = {
    "ids with gaps": tokenizer({"vocab": {"a": 0, "b": 3, "c": 7}}),
    "added token with empty content": added(8, ""),
    "byte_fallback without byte tokens": tokenizer({"byte_fallback": True}),
    "charsmap whose indexes lead out of it": charsmap(struct.pack("<I", 64) + b"\xff" * 64),
    "charsmap whose results lead out of it": charsmap(struct.pack("<I", 1024) + struct.pack("<I", 0x7fffffff) * 256 + b"x"),
}


@pytest.mark.parametrize("case", TAKEN_TOKENIZERS)
def test_tokenizer_that_is_unusual_is_taken(tmp_path, case):
    accepted(directory(tmp_path / "m", tokenizer=TAKEN_TOKENIZERS[case]))


def test_tokenizer_with_an_added_token_beyond_the_embedding(tmp_path):
    """A template may spell it; the row that is not there is no memory of somebody else."""
    folder = directory(tmp_path / "m", tokenizer=added(5000, "<x>"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "<x>{{ messages[0].content }}"}))
    accepted(folder)


def test_tokenizer_with_an_explosive_regex(tmp_path):
    result = run(directory(tmp_path / "m", tokenizer=split("(a+)+$")), "a" * 40 + "b")
    assert result.returncode == 1 and "match limit" in result.stderr and len(result.stderr.splitlines()) == 1, result


def test_tokenizer_with_truncation_and_padding_does_neither(tmp_path):
    cut = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
    filled = {"strategy": {"Fixed": 32}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}
    folder = directory(tmp_path / "m", tokenizer=tokenizer(truncation=cut, padding=filled))
    result = subprocess.run([QUERN, "tokenize", str(folder), "abcd"], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(result.stdout) == [0, 1, 2, 3]

"""tools/make_scripted_model.py DIRECTORY: a tiny valid Llama checkpoint whose next token is a table of the last one.

The embedding of token i is a one-hot vector, attention and FFN add nothing, and column i of lm_head holds the logits of
what follows token i. So texts, stop strings, split characters and probabilities are known in advance.
Needs Python only.
"""
import array
import json
import math
import pathlib
import struct
import sys

VOCAB = 320  # also the width of the model
HEADS = 5
HEAD_DIM = 64
FFN = 64
CONTEXT = 512
UNLIKELY = -60.0

BOS, EOS, IM_START, IM_END = "<s>", "</s>", "<|im_start|>", "<|im_end|>"
FIM = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
SPECIAL = [BOS, EOS, IM_START, IM_END, *FIM]
MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o")]

DIGITS = {"0": b" zero", "1": b" one", "2": b" two", "3": b" three", "4": b" four",
          "5": b" five", "6": b" six", "7": b" seven", "8": b" eight", "9": b" nine"}

# What a prompt that ends with the letter is answered with: tokens, then the end of the text. Every token is spelled once.
SCRIPTS = {
    "\n": [b"Hello", b" from", b" the", b" script"],
    "A": [b"The capital", b" of", b" France", b" is", b" Paris", b" ."],
    "S": [b"alpha ", b"ST", b"OP", b" omega"],
    "H": [b"beta ", b"STO"],
    "E": [b"\xf0\x9f", b"\x98\x80", b" \xe2\x82", b"\xac!", b" \xc3", b"\xa9 end"],
    "B": [b"bad \xff", b" byte"],
    "U": [b"cut \xe2\x82"],
    "T": [b"t-one", b"t-two", b"t-three"],
}
FILLED = b"filled in"                                     # between a prompt and a suffix, then the end
LOOP = b" la"                                             # "L" and the end token: for ever
CHOICES = {b"x1": 0.5, b"x2": 0.3, b"x3": 0.2}            # "P": one of these, then the end
RANDOM = [b" r0", b" r1", b" r2", b" r3"]                 # "R": each with equal probability, for ever

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] }}"
    "{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% if ask is defined %}{{ ask }}{% endif %}{% endif %}")


def byte_alphabet():
    """GPT-2's printable stand-ins for bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


ALPHABET = byte_alphabet()


def spell(text):
    return "".join(ALPHABET[b] for b in text)


class Script:
    """What a model says, and how it is asked; a trigger is a letter at the end of the prompt."""

    def __init__(self, scripts, template=TEMPLATE, special=(), vocab=VOCAB, context=CONTEXT):
        self.scripts, self.template, self.special = scripts, template, [*SPECIAL, *special]
        self.vocab, self.context = vocab, context


def cut(texts, special=()):
    """Texts by trigger -> scripts: tokens that each occur once, so that each knows what follows it. A special token in a
    text is a token, and may occur in one place only."""
    used = {LOOP, *CHOICES, *RANDOM, *DIGITS.values(), *((left + right).encode() for left, right in MERGES)}
    marks = [token.encode() for token in special]
    scripts = {}
    for trigger, text in texts.items():
        scripts[trigger], rest = [], text.encode()
        while rest:
            length = next((len(mark) for mark in marks if rest.startswith(mark)), 0)
            if not length:  # at least two bytes, and no single one is left over
                end = min([len(rest), *(at for mark in marks if (at := rest.find(mark)) > 0)])
                length = min(2, end)
                while length < end and (rest[:length] in used or end - length == 1 or rest[length:end] in used):
                    length += 1
            assert rest[:length] not in used, (trigger, rest[:length])
            used.add(rest[:length])
            scripts[trigger].append(rest[:length])
            rest = rest[length:]
    return scripts


def vocabulary(said=Script(SCRIPTS)):
    """Spelling -> id."""
    ids = {}
    for token in said.special:
        ids[token] = len(ids)
    for byte in range(256):
        ids[ALPHABET[byte]] = len(ids)
    for left, right in MERGES:
        ids[left + right] = len(ids)
    generated = [token for script in said.scripts.values() for token in script if not is_special(token, said)]
    for token in [*generated, FILLED, LOOP, *CHOICES, *RANDOM, *DIGITS.values()]:
        assert spell(token) not in ids, token
        ids[spell(token)] = len(ids)
    assert len(ids) <= said.vocab, len(ids)
    return ids


def is_special(token, said):
    return token.decode(errors="replace") in said.special


def id_in(ids, said, token):
    return ids[token.decode() if is_special(token, said) else spell(token)]


def follow_ups(ids, said):
    """Id -> {next id: probability}; what is not listed ends the text."""
    table = {}
    for trigger, script in said.scripts.items():
        chain = [ids[spell(trigger.encode())], *(id_in(ids, said, token) for token in script), ids[EOS]]
        table.update({last: {following: 1.0} for last, following in zip(chain, chain[1:])})
    table[ids[FIM[-1]]] = {ids[spell(FILLED)]: 1.0}
    loop = ids[spell(LOOP)]
    for last in (ids["L"], loop, ids[EOS]):
        table[last] = {loop: 1.0}
    table[ids["P"]] = {ids[spell(token)]: chance for token, chance in CHOICES.items()}
    random = [ids[spell(token)] for token in RANDOM]
    for last in (ids["R"], *random):
        table[last] = {following: 1 / len(random) for following in random}
    for digit, word in DIGITS.items():
        table[ids[digit]] = table[ids[spell(word)]] = {ids[spell(word)]: 1.0}
    return table


def tensors(said):
    width, vocab = HEADS * HEAD_DIM, said.vocab
    ids = vocabulary(said)
    table = follow_ups(ids, said)
    norm = math.sqrt(vocab)  # what is left of a one-hot vector by RMS normalization
    embedding = array.array("f", [0.0]) * (vocab * vocab)
    head = array.array("f", [UNLIKELY / norm]) * (vocab * vocab)
    for last in range(vocab):
        embedding[last * vocab + last] = norm
        for following, chance in table.get(last, {ids[EOS]: 1.0}).items():
            head[following * vocab + last] = math.log(chance) / norm
    zeros = lambda *shape: (list(shape), array.array("f", [0.0]) * math.prod(shape))
    ones = ([vocab], array.array("f", [1.0]) * vocab)
    layer = "model.layers.0."
    return {
        "model.embed_tokens.weight": ([vocab, vocab], embedding),
        "lm_head.weight": ([vocab, vocab], head),
        "model.norm.weight": ones,
        layer + "input_layernorm.weight": ones,
        layer + "post_attention_layernorm.weight": ones,
        layer + "self_attn.q_proj.weight": zeros(width, vocab),
        layer + "self_attn.k_proj.weight": zeros(HEAD_DIM, vocab),
        layer + "self_attn.v_proj.weight": zeros(HEAD_DIM, vocab),
        layer + "self_attn.o_proj.weight": zeros(vocab, width),
        layer + "mlp.gate_proj.weight": zeros(FFN, vocab),
        layer + "mlp.up_proj.weight": zeros(FFN, vocab),
        layer + "mlp.down_proj.weight": zeros(vocab, FFN),
    }


def safetensors(parts):
    header, offset = {}, 0
    for name, (shape, values) in parts.items():
        size = len(values) * 4
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(values.tobytes() for _, values in parts.values())


def tokenizer(ids, said):
    added = [{"id": ids[token], "content": token, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for token in said.special]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    first = [{"SpecialToken": {"id": BOS, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    second = [{"Sequence": {"id": "B", "type_id": 0}}]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": {"type": "TemplateProcessing", "single": first, "pair": first + second,
                           "special_tokens": {BOS: {"id": BOS, "ids": [ids[BOS]], "tokens": [BOS]}}},
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": ids, "merges": [f"{left} {right}" for left, right in MERGES]},
    }


def config(ids, said):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": said.vocab,
        "intermediate_size": FFN, "num_hidden_layers": 1, "num_attention_heads": HEADS, "num_key_value_heads": 1,
        "head_dim": HEAD_DIM, "vocab_size": said.vocab, "max_position_embeddings": said.context, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
        "torch_dtype": "float32", "bos_token_id": ids[BOS], "eos_token_id": ids[EOS],
    }


def write(directory, said=None):
    said = said or Script(SCRIPTS)
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    ids = vocabulary(said)
    (directory / "model.safetensors").write_bytes(safetensors(tensors(said)))
    files = {
        "config.json": config(ids, said),
        "generation_config.json": {"bos_token_id": ids[BOS], "eos_token_id": [ids[EOS], ids[IM_END]]},
        "tokenizer.json": tokenizer(ids, said),
        "tokenizer_config.json": {"bos_token": BOS, "eos_token": EOS, "chat_template": said.template,
                                  "tokenizer_class": "PreTrainedTokenizerFast"},
    }
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content))
    return directory


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(sys.argv[1])

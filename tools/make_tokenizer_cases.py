#!/usr/bin/env python3
"""Makes small tokenizer.json files and cases for src/text/tokenizer_json_test.cc with Hugging Face's `tokenizers`.

    pip install tokenizers==0.23.3
    tools/make_tokenizer_cases.py src/text/testdata

A file NAME.tokenizer.json and NAME.cases.json come out per kind. A case is {text, ids, special, plain, decoded,
decoded_special}: ids without and with the post-processor, ids with special tokens taken as ordinary text, and the text
of `special` without and with special tokens. What equals an earlier member (special, plain: ids; decoded: text;
decoded_special: decoded) is left out.
"""

import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + TAIL
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + TAIL

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog doesn't mind; it's only a fox.",
    "def tokenize(text):\n    for piece in split(text):\n        yield encode(piece)\n    return None\n",
    "In 2024 there were 1234567 people, 3.14 pies and 42 answers. We'll see what they've done, I'm sure.",
    "Die Straße führt über Köln nach München. L'été à la plage, ça va très bien, n'est-ce pas?",
    "Привет, мир! Как дела? Всё хорошо. こんにちは世界、元気ですか。你好,世界。안녕하세요 세계.",
    "if (a != b && c <= d) { x += y[i] * z; } // comment\n\n\n#include <vector>\t\tint main();  // two\r\n",
    "the the and and that that with with this this there their they them then than these those other",
] * 20

TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\t", " \n ", "\r\n", "a", " a", "  a", "a ", "Hello", " Hello", "  Hello",
    "    Hello\n    Hello", "Hello world", "the quick brown fox", "it's IT'S we'Ll they'VE 'tis 'ſ",
    "1", "12", "123", "1234", "1234567", "3.14159", "½ ² ٣٤٥ Ⅻ 一二三", "a1b22c333", "x" * 60, "ab" * 40, "the" * 30,
    "é", "e\u0301", "e\u0301\u0323", "\u00C5 \u212B A\u030A", "ﬁ ﬀ ① Ａ", "\uAC00 \u1100\u1161\u11A8", "Straße FÜR Köln",
    "Привет, мир!", "こんにちは世界", "你好，世界。", "안녕하세요", "नमस्ते दुनिया", "สวัสดี", "مرحبا بالعالم", "שלום",
    "😀", "👩‍👩‍👧‍👦 family", "🇩🇪🇫🇷", "\U0001F469\U0001F3FD", "a\u200bb", "a\u00a0b", "a\u3000b", "\u180e x", "a\u0085b",
    "\u0000", "a\u0000b", "\u0001\u0002\u001f\u007f", "\ufeffbom", "\ufffd", "\ufffd\ufffd", "\u2581", "\u2581a \u2581", "a\u2581b",
    "<unk>", "<0x0A>", "<0xE4>", "<s>", "</s>", "<s>Hello</s>", "<s> Hello </s> world", "ab</s> cd", "<|im_start|>user\nhi<|im_end|>",
    "<|im_start|>", "x<|im_start|>y", "<|im_start", "|im_end|>", "<|im_start|><|im_end|>", " <|im_end|> ", "<think>hm</think> ok",
    "before <left> after", "before  <left>after", "before <right>  \n after", "<right>x", "<word>", "a<word>", "<word>b", "a <word> b",
    "É<word>", "<norm>", "a <norm> b", "x<norm>", "<left><right> <left>", "<both> <both>", "a  <both>  b",
    "def f(x):\n    return x + 1\n", "if (a != b && c <= d) {\n\tx += y[i];\n}\n", "#include <vector>\n\n\nint main() {}\n",
    "!!!", "...", "---===---", "a.b,c;d:e", "\"quoted\" 'single' `back`", "100%", "$5.00", "C++ & C#", "http://a.b/c?d=e&f=g",
    "line one\nline two\n\nline four\r\nline five\r", "trailing spaces   ", "   leading", "tab\tseparated\tvalues", "\n\n\n\nmany", "a\n\n\nb",
    "mixed 日本語 and English テキスト 123", "zażółć gęślą jaźń", "İstanbul ǅ ß ẞ", "ΑΣ σς", "𝕳𝖊𝖑𝖑𝖔", "\U0010ffff", "\ue000",
    "a\u0301\u0302\u0303\u0304b", "\u0301", "q\u0307\u0323", "The-final--countdown", "snake_case camelCase kebab-case",
]

ADDED = [
    AddedToken("<|im_start|>", special=True, normalized=False), AddedToken("<|im_end|>", special=True, normalized=False),
    AddedToken("<think>", special=False, normalized=False), AddedToken("</think>", special=False, normalized=False),
    AddedToken("<left>", special=True, lstrip=True, normalized=False),
    AddedToken("<right>", special=True, rstrip=True, normalized=False),
    AddedToken("<both>", special=False, lstrip=True, rstrip=True, normalized=False),
    AddedToken("<word>", special=False, single_word=True, normalized=False),
    AddedToken("<norm>", special=False, normalized=True),
]


def template(start, start_id, end=None, end_id=None):
    specials = [(start, start_id)] + ([(end, end_id)] if end else [])
    return processors.TemplateProcessing(single=f"{start} $A" + (f" {end}" if end else ""), special_tokens=specials)


def byte_level(pattern, ignore_merges, normalizer=None):
    made = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        made.normalizer = normalizer
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    made.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<s>", "</s>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(CORPUS, trainer)
    return made


def llama3():
    made = byte_level(LLAMA3, True)
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template("<s>", 0)])
    return made


def qwen2():
    return byte_level(QWEN2, False, normalizers.NFC())


def digits_gpt2():
    """StarCoder and SmolLM2: digits alone, then the pattern of GPT-2, which ByteLevel brings along."""
    made = byte_level(QWEN2, False)
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return made


def falcon():
    """ByteLevel in the middle: later cuts see the byte alphabet."""
    made = byte_level(QWEN2, False)
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    return made


def sentence_piece(prepare, decoder_strip):
    """Trained with characters; byte tokens are put in, as sentencepiece does."""
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    prepare(made)
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=850, special_tokens=names, show_progress=False, limit_alphabet=120)
    made.train_from_iterator(CORPUS, trainer)
    parts = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence(parts + ([decoders.Strip(" ", 1, 0)] if decoder_strip else []))
    made.post_processor = template("<s>", 1)
    raw = json.loads(made.to_str())  # byte tokens belong to the vocabulary only
    raw["added_tokens"] = [token for token in raw["added_tokens"] if not token["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(raw))


def llama2():
    def prepare(made):
        made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        made.pre_tokenizer = pre_tokenizers.Split(Regex("\u2581+[^\u2581]*"), "isolated")  # for training only
    made = sentence_piece(prepare, True)
    raw = json.loads(made.to_str())
    raw["pre_tokenizer"] = None
    return Tokenizer.from_str(json.dumps(raw))


def llama2_metaspace():
    def prepare(made):
        made.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", prepend_scheme="first", split=True)
    made = sentence_piece(prepare, True)
    raw = json.loads(made.to_str())
    raw["pre_tokenizer"]["split"] = False
    return Tokenizer.from_str(json.dumps(raw))


def gemma():
    def prepare(made):
        made.normalizer = normalizers.Replace(" ", "\u2581")
        made.pre_tokenizer = pre_tokenizers.Split(Regex("\u2581+[^\u2581]*"), "isolated")
    made = sentence_piece(prepare, False)
    raw = json.loads(made.to_str())
    raw["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    return Tokenizer.from_str(json.dumps(raw))


def cases(made):
    for text in TEXTS:
        made.encode_special_tokens = False
        ids = made.encode(text, add_special_tokens=False).ids
        special = made.encode(text, add_special_tokens=True).ids
        made.encode_special_tokens = True
        plain = made.encode(text, add_special_tokens=False).ids
        case = {"text": text, "ids": ids, "special": special, "plain": plain, "decoded": made.decode(special),
                "decoded_special": made.decode(special, skip_special_tokens=False)}
        same = {"special": "ids", "plain": "ids", "decoded": "text", "decoded_special": "decoded"}
        yield {key: value for key, value in case.items() if key not in same or value != case[same[key]]}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for make in (llama3, qwen2, digits_gpt2, falcon, llama2, llama2_metaspace, gemma):
        made = make()
        made.add_tokens(ADDED)
        made.save(str(folder / f"{make.__name__}.tokenizer.json"), pretty=False)
        lines = ",\n".join(json.dumps(case, ensure_ascii=True, separators=(",", ":")) for case in cases(made))
        (folder / f"{make.__name__}.cases.json").write_text("[\n" + lines + "\n]\n")


main()

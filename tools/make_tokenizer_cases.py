#!/usr/bin/env python3
"""Makes small tokenizers and cases for src/text/tokenizer/*_test.cc with Hugging Face's `tokenizers` and `sentencepiece`.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3
    tools/make_tokenizer_cases.py src/text/testdata

The hashes of 10,000 texts mixed of the seeded strings, with the tokenizers and strings that are there already:

    tools/make_tokenizer_cases.py src/text/testdata --mixed

and, for a longer comparison that nobody keeps (QUERN_TEXT_TESTDATA=FOLDER build/bin/text_tests):

    tools/make_tokenizer_cases.py FOLDER --strings 10000 --big-charsmap

A kind has its NAME.tokenizer.json or NAME.model, and NAME.cases.json. A case is {text, ids, special, plain, decoded,
decoded_special}: ids without and with the post-processor, ids with special tokens taken as ordinary text, and the text
of `special` without and with special tokens. What equals an earlier member (special, plain: ids; decoded: text;
decoded_special: decoded) is left out. generated_texts.json has seeded strings, generated_hashes.json for each kind the
FNV-1a hashes of "ids|special|plain|decoded" for each of them. mixed_hashes.json has for each kind the hashes of the
hashes of 250 mixed texts after the other; texts that cannot be compared have none.
"""

import argparse
import json
import pathlib

import sentencepiece
from tokenizers import Tokenizer

import tokenizer_kinds as kinds
import tokenizer_strings

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



def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


MIXED = 10000
HIDDEN = "\ue000" * 3


class HuggingFace:
    def __init__(self, made, added=kinds.ADDED):
        made.add_tokens(added)
        self.made = made
        # Special tokens in ordinary text are ordinary: where the model could find them as pieces, they get other names.
        raw = json.loads(made.to_str())
        special = {token["content"] for token in raw["added_tokens"] if token["special"]}
        self.hides = raw["model"]["type"] == "Unigram"
        if self.hides:
            raw["model"]["vocab"] = [[HIDDEN + piece if piece in special else piece, score] for piece, score in raw["model"]["vocab"]]
        self.plain = Tokenizer.from_str(json.dumps(raw))
        self.plain.encode_special_tokens = True

    def plain_ids(self, text):
        ids = self.plain.encode(text, add_special_tokens=False).ids
        return [self.made.token_to_id(self.plain.id_to_token(i).removeprefix(HIDDEN)) for i in ids] if self.hides else ids

    def save(self, folder, name):
        self.made.save(str(folder / f"{name}.tokenizer.json"), pretty=False)

    def case(self, text):
        special = self.made.encode(text).ids
        return {"text": text, "ids": self.made.encode(text, add_special_tokens=False).ids, "special": special,
                "plain": self.plain_ids(text), "decoded": self.made.decode(special),
                "decoded_special": self.made.decode(special, skip_special_tokens=False)}


class SentencePiece:
    def __init__(self, model):
        self.model = model
        self.made = sentencepiece.SentencePieceProcessor(model_proto=model)

    def save(self, folder, name):
        (folder / f"{name}.model").write_bytes(self.model)

    def case(self, text):
        ids = self.made.encode(text)
        special = [self.made.bos_id()] + ids
        return {"text": text, "ids": ids, "special": special, "plain": ids, "decoded": self.made.decode(special)}


def brief(case):
    same = {"special": "ids", "plain": "ids", "decoded": "text", "decoded_special": "decoded"}
    return {key: value for key, value in case.items() if key not in same or value != case[same[key]]}


def summary(case):
    lists = [",".join(map(str, case[key])) for key in ("ids", "special", "plain")]
    return fnv1a("|".join(lists + [case["decoded"]]))


def comparable(make, text):
    """The scripts that `tokenizers` knows are those of Unicode 9; the planes got many characters since."""
    return make is not kinds.scripts or max(map(ord, text)) < 0x10000


def mixed_hashes(folder):
    texts = json.loads((folder / "generated_texts.json").read_text())
    mixed = [tokenizer_strings.mixed(texts, index) for index in range(MIXED)]
    kept = {}
    for make in kinds.TRAINED + kinds.WORDS + kinds.SENTENCE_PIECE:
        name = make.__name__
        made = (SentencePiece((folder / f"{name}.model").read_bytes()) if make in kinds.SENTENCE_PIECE
                else HuggingFace(Tokenizer.from_file(str(folder / f"{name}.tokenizer.json"))))
        found = ["" if make is kinds.scripts and max(tokenizer_strings.to_bytes(text)) >= 0xF0
                 else summary(made.case(tokenizer_strings.to_text(text))) for text in mixed]
        kept[name] = [fnv1a(",".join(found[first:first + 250])) for first in range(0, MIXED, 250)]
    lines = [f"{json.dumps(name)}:{json.dumps(hashes, separators=(',', ':'))}" for name, hashes in kept.items()]
    (folder / "mixed_hashes.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def write_list(path, items):
    lines = ",\n".join(json.dumps(item, ensure_ascii=True, separators=(",", ":")) for item in items)
    path.write_text("[\n" + lines + "\n]\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--strings", type=int, default=200)
    parser.add_argument("--big-charsmap", action="store_true")
    parser.add_argument("--mixed", action="store_true")
    arguments = parser.parse_args()
    kinds.BIG_CHARSMAP = arguments.big_charsmap
    folder = arguments.folder
    if arguments.mixed:
        return mixed_hashes(folder)
    folder.mkdir(parents=True, exist_ok=True)
    texts = tokenizer_strings.strings(arguments.strings)
    write_list(folder / "generated_texts.json", texts)
    makers = [(make, HuggingFace) for make in kinds.TRAINED + kinds.WORDS] + [(make, SentencePiece) for make in kinds.SENTENCE_PIECE]
    hashes = []
    for make, oracle in makers:
        made = oracle(make())
        made.save(folder, make.__name__)
        if make in kinds.WITH_CASES:
            write_list(folder / f"{make.__name__}.cases.json", (brief(made.case(text)) for text in TEXTS))
        found = [summary(made.case(tokenizer_strings.to_text(text))) if comparable(make, text) else None for text in texts]
        hashes.append(f"{json.dumps(make.__name__)}:{json.dumps(found, separators=(',', ':'))}")
    (folder / "generated_hashes.json").write_text("{\n" + ",\n".join(hashes) + "\n}\n")


if __name__ == "__main__":
    main()

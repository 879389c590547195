#!/usr/bin/env python3
"""Makes src/text/testdata/pattern_cases.json: how Hugging Face's `tokenizers` cuts texts by the patterns of GGUF files.

    pip install tokenizers==0.23.3
    tools/make_pattern_cases.py src/text/testdata      (with a Python of Unicode 14: 3.11)

A GGUF file only names its patterns (`tokenizer.ggml.pre`). What they are is stated here a second time, and not taken
from src/text/pattern: as the tokenizer.json of the models have them, or where those are not known, llama.cpp. The file has seeded `texts`; for each list of
`names` a string of 8 hexadecimal digits per text, from the FNV-1a hash of the lengths of its pieces; and for `classes`
of characters the hashes of their members, as far as Unicode 14 has them.
"""

import argparse
import json
import pathlib
import random
import unicodedata

from tokenizers import Regex, pre_tokenizers

import tokenizer_strings

SUFFIXES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN2 = rf"{SUFFIXES}|{WORD}|\p{{N}}|{TAIL}"
ASCII_WORD = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"


def cased(suffixes, numbers, but=""):
    """Words that change from upper to lower case once."""
    upper, lower = rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]", rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]"
    lead = r"[^\r\n\p{L}\p{N}]?"
    return f"{lead}{upper}*{lower}+{suffixes}|{lead}{upper}+{lower}*{suffixes}|{numbers}"


def cased_tail(after):
    return rf"| ?[^\s\p{{L}}\p{{N}}]+[{after}]*|" + SPACES


O200K = cased(SUFFIXES + "?", r"\p{N}{1,3}") + cased_tail(r"\r\n/")
LINES = r"[^\n]+|[\n]+"
THREE = "[0-9][0-9][0-9]"
KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
DEEPSEEK_HAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# Letters with case as DeepSeek LLM's tokenizer.json lists them: first and last ones.
DEEPSEEK_LETTERS = """41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376-377 37B-37D 37F 386 388-38A 38C 38E-3A1
    3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15
    1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3
    1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 213C-213F
    2145-2149 214E 2183-2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2-2CF3 A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF
    FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"""
# 8C48-FAFF as llama.cpp has it; the model's file may mean F900-FAFF, whose first character has the normal form U+8C48.
AFMOE_LETTERS = """4E00-9FFF 3400-4DBF 8C48-FAFF 3040-309F 30A0-30FF FF65-FF9F 2F00-2FDF E40-E7F E80-EFF 1780-17FF 1000-109F AA60-AA7F
    A9E0-A9FF AC00-D7AF 1100-11FF"""


def ranges(text):
    """A class of characters."""
    return "[" + "".join("-".join(f"\\x{{{end}}}" for end in part.split("-")) for part in text.split()) + "]"


BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
LONG_SPACES = "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"|\s{1,2}(?!\S)|\s{1}"
ESCAPED, DROPPED = "escape spaces", "drop spaces"

PRE_TOKENIZERS = [
    ("gpt-2 phi-2 mpt olmo jais jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code gigachat a.x-4.0 mellum "
     "modern-bert roberta-bpe trillion granite-docling exaone4", [GPT2]),
    ("llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano glm4 glm5 dbrx smaug-bpe chatglm-bpe",
     [rf"{SUFFIXES}|{WORD}|\p{{N}}{{1,3}}|{TAIL}"]),
    ("qwen2 deepseek-r1-qwen megrez kormo f2llmv2 stablelm2 hunyuan solar-open grok-2", [QWEN2]),
    ("qwen35", [SUFFIXES + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES]),
    ("starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", [r"\p{N}", GPT2]),
    ("falcon", [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, THREE]),
    ("default", [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", THREE]),
    ("bloom poro-chat gpt3-finnish", [BLOOM]),
    ("viking", [BLOOM, r"\p{N}"]),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     [r"\p{N}{1,3}", KANA, ASCII_WORD + r"| ?[\p{P}\p{S}]+[\r\n]*|" + SPACES]),
    ("spark2_5", [r"\p{N}{1,3}", KANA, ASCII_WORD + r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+", r"\p{N}"]),
    ("afmoe", [r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))", ranges(AFMOE_LETTERS) + "+",
               ASCII_WORD + r"| ?[\p{P}\p{S}]+[\r\n]*|" + SPACES]),
    ("deepseek-llm", [r"[\r\n]", rf"\s?{ranges(DEEPSEEK_LETTERS)}+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", DEEPSEEK_HAN,
                      r"\p{N}+"]),
    ("deepseek-coder", [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_HAN, r"\p{N}"]),
    ("gpt-4o llama4 kanana2 talkie minimax-m2 granite-embed-multi-97m", [O200K]),
    ("tiny_aya cohere2moe", [r"\d{1,3}(?=(?:\d{3})*\b)", O200K]),
    ("tekken", [cased("", r"\p{N}") + cased_tail(r"\r\n/")]),
    ("kimi-k2", [r"[\p{Han}]+|" + cased(SUFFIXES + "?", r"\p{N}{1,3}", r"&&[^\p{Han}]") + cased_tail(r"\r\n")]),
    ("youtu", ["[\uac00-\ud7a3\u3131-\u318e]+|[！…“”‘’—：；，、-〿︰-﹏]+|[\u3105-\u312f]+|" + KANA,
               cased(SUFFIXES + "?", r"\p{N}") + cased_tail(r"\r\n/")]),
    ("jais-2", [rf"{SUFFIXES}|{WORD}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|" + LONG_SPACES]),
    ("minicpm5", [r"\p{N}{1,3}", rf"{SUFFIXES}|{WORD}|\p{{N}}+|{TAIL}"]),
    ("bailingmoe bailingmoe2 llada-moe",
     [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"]),
    ("seed-coder", [rf"{SUFFIXES}|{WORD}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|" + SPACES]),
    ("exaone-moe", [SUFFIXES + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|"
                    r"\s*[\r\n]|\s+(?!\S)|\s+"]),
    ("ufakzeka", [rf"{WORD}|\p{{N}}|{TAIL}"]),
    ("laguna", [LINES, QWEN2]),
    ("superbpe", [r"\p{N}+", r"(?=(\d{3})+(?!\d))"]),
    ("chameleon", ["<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", r"\p{N}",
                   r"[\p{P}!-/:-@\[-`{-~]", GPT2]),
    ("gemma4 granite-embed-multi-311m sarvam-moe", [ESCAPED, LINES]),
    ("whitespace", [DROPPED]),
]
CLASSES = [r"\w", r"[\w]", r"\s", r"\d", r"\h", r"\v", r"\p{L}", r"\p{Lu}", r"\p{Ll}", r"\p{M}", r"\p{N}", r"\p{P}", r"\p{S}", r"\p{Han}"]
CLASSES += [f"[[:{name}:]]" for name in "word upper punct blank graph print space digit xdigit cntrl".split()]

NUMBERS = "0123456789٣५²½₂⑪Ⅻ𝟗"
AFTER_NUMBERS = ["", " ", "a", "_", "²", "₂", "⑪", "Ⓐ", "\u0301", ".", "\u200d", "年"]
LETTERS = "aAzZ\u0241\u0294\u02b0\u03a9\u0416\u0561\u10d3\u10a3\u10c7\u13a3\u1c93\u2126\ua790\uab30\uab75𝕳𖹀ǅªꜝ日ー한ㄱㄅไลខမא\u0301"
MARKS = "'!/-_.,…。，、“”—：؛،।$+<=>^~|`#&@\\°€😀\u20dd" + "\r\n\t "
WHOLE = ["<sentinel:12>", "IMGIMGABCIZ", "IMGIMGABCDEZ", "'S", "it's", "I'd've", "you'RE7", "x'LL",
         "'ſ", "’s", "\r\n", " /\n", "//\n/", "a b\u0301 c", "    x",
         " " * 300 + "x", "\t" * 5, " " * 9]


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def piece(r):
    kind = r.randrange(7)
    if kind == 0:
        digits = NUMBERS if r.randrange(3) == 0 else "0123456789"
        return "".join(r.choice(digits) for _ in range(r.randint(1, 11))) + r.choice(AFTER_NUMBERS)
    if kind == 1:
        return "".join(r.choice(LETTERS) for _ in range(r.randint(1, 8)))
    if kind == 2:
        return "".join(r.choice(MARKS) for _ in range(r.randint(1, 5)))
    if kind == 3:
        return r.choice(WHOLE)
    if kind == 4:
        return "".join(r.choice(LETTERS + NUMBERS + MARKS) for _ in range(r.randint(1, 8)))
    return tokenizer_strings.piece(r)


def texts(count, seed):
    r = random.Random(seed)
    made = ("".join(r.choice(("", "", " ")) + piece(r) for _ in range(r.randint(4, 9))) for _ in range(count))
    return [tokenizer_strings.to_text(text) for text in made]


def cuts(patterns):
    """What pieces the patterns make of a text."""
    steps = [pre_tokenizers.WhitespaceSplit() if pattern == DROPPED else pre_tokenizers.Split(Regex(pattern), "isolated")
             for pattern in patterns if pattern != ESCAPED]
    cut = pre_tokenizers.Sequence(steps)
    return lambda text: [x for x, _ in cut.pre_tokenize_str(text.replace(" ", "\u2581") if ESCAPED in patterns else text)]


def hash_of_pieces(pieces):
    return fnv1a(",".join(str(len(piece.encode())) for piece in pieces))[:8]


def hash_of_members(pattern):
    known = "".join(chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs"))
    found = pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed", invert=True).pre_tokenize_str(known)
    return fnv1a(",".join(f"{ord(c):x}" for part, _ in found for c in part))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=150)
    arguments = parser.parse_args()
    assert unicodedata.unidata_version == "14.0.0", "the members of classes are those of Unicode 14"
    made = {"texts": texts(arguments.texts, 5), "pre_tokenizers": [],
            "classes": {pattern: hash_of_members(pattern) for pattern in CLASSES}}
    for names, patterns in PRE_TOKENIZERS:
        cut = cuts(patterns)
        made["pre_tokenizers"].append({"names": names, "hashes": "".join(hash_of_pieces(cut(text)) for text in made["texts"])})
    text = json.dumps(made, ensure_ascii=True, indent=0, separators=(",", ":"))
    (arguments.folder / "pattern_cases.json").write_text(text + "\n")


if __name__ == "__main__":
    main()

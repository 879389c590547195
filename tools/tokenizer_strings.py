"""Seeded strings that tokenizers get wrong: all kinds of characters, code, runs, digits, controls, invalid UTF-8.

A byte that is no UTF-8 is spelled as the private character U+F700 + byte; `to_bytes` gives the real text.
"""

import random
import unicodedata

WORDS = ("the The quick brown fox jumps over lazy dog don't it's WE'LL they've I'm naïve café résumé Straße München "
         "Ünïcödé привет мир Здравствуйте Ελλάδα σοφός नमस्ते दुनिया สวัสดี مرحبا שלום 你好 世界 こんにちは カタカナ 안녕하세요 "
         "한국어 tokenization unbelievable internationalization supercalifragilistic antidisestablishmentarianism "
         "http://example.com/a?b=c&d user@mail.org snake_case camelCase PascalCase SCREAMING_CASE x86_64 C++ C# .NET "
         "1 12 123 1234 3.14159 1,000,000 0xDEADBEEF ½ ² Ⅻ ٣٤٥ १२३ fi ﬁ ﬀ Ａｂｃ ① ㎏ İ ı ß ẞ ǅ ſ K Å").split()
CODE = ("def f(x):\n    return x + 1\n", "if (a != b && c <= d) {\n\tx += y[i];\n}\n", "#include <vector>\n\n\nint main() {}\n",
        "for i in range(10):\n        print(f\"{i:>3}\")\r\n", "SELECT * FROM t WHERE a = 'b' -- c\n", "\\begin{x}\\alpha^2_3\\end{x}",
        "<div class=\"a\">&amp;</div>", "{\"key\": [1, 2.5e-3, null, true]}", "a->b(c)::d<e>(&f, *g);", "λx. x ∘ f ≠ ∅ → ∀y∃z")
MARKED = ("<s>", "</s>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "<|im_start|>", "<|im_end|>", "<think>", "<left>", "<right>", "<both>",
          "<word>", "<norm>", "<0x0A>", "\u2581", "##", "<keep>")
SPACES = " \t\n\r\v\f\u0085\u00a0\u1680\u2003\u2028\u202f\u205f\u3000\u200b\u200d\ufeff\u180e"
RANGES = ((0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x5D0, 0x5EA), (0x620, 0x64A), (0x904, 0x939),
          (0xE01, 0xE3A), (0x1100, 0x1112), (0x1E00, 0x1EFF), (0x2010, 0x2027), (0x2190, 0x21FF), (0x2460, 0x2473), (0x3041, 0x3096),
          (0x30A1, 0x30FC), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0xF900, 0xFA6A), (0xFF01, 0xFF5E), (0x1D400, 0x1D7FF), (0x1F300, 0x1F64F),
          (0x20000, 0x20100))


def character(r):
    low, high = r.choice(RANGES)
    return chr(r.randint(low, high))


def any_character(r):
    """Of all that Python's Unicode 14 has."""
    while True:
        c = chr(r.randrange(0x110000))
        if unicodedata.category(c) not in ("Cs", "Cn") and not 0xF700 <= ord(c) <= 0xF7FF:
            return c


def piece(r):
    kind = r.randrange(14)
    if kind < 4:
        return " ".join(r.choice(WORDS) for _ in range(r.randint(1, 6)))
    if kind == 4:
        return r.choice(CODE)
    if kind == 5:
        return "".join(r.choice(SPACES) for _ in range(r.randint(1, 6)))
    if kind == 6:
        return r.choice(" \n\tae0=-\u2581") * r.randint(1, 40)
    if kind == 7:
        return "".join(r.choice("0123456789") for _ in range(r.randint(1, 24)))
    if kind == 8:
        return "".join(chr(r.randrange(0x20)) for _ in range(r.randint(1, 4))) + r.choice(("", "\x7f", "\x80\x9f"))
    if kind == 9:
        return "".join(chr(0xF700 + r.randint(0x80, 0xFF)) for _ in range(r.randint(1, 4)))
    if kind == 10:
        return "".join(character(r) for _ in range(r.randint(1, 12)))
    if kind == 11:
        return "".join(any_character(r) for _ in range(r.randint(1, 4)))
    if kind == 12:
        return r.choice(WORDS) + "".join(chr(r.randint(0x300, 0x345)) for _ in range(r.randint(1, 3))) + r.choice(WORDS)
    return r.choice(("", " ", "a")) + r.choice(MARKED) + r.choice(("", " ", "b"))


def strings(count, seed=1):
    r = random.Random(seed)
    return [r.choice(("", "", "", " ")).join(piece(r) for _ in range(r.randint(1, 4))) for _ in range(count)]


class Numbers:
    """SplitMix64: the same numbers in every language (src/text/tokenizer/tokenizer_generated_test.cc)."""

    def __init__(self, seed):
        self.state = seed

    def below(self, count):
        mask = 2**64 - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        return (z ^ z >> 31) % count


def mixed(texts, index):
    """Text `index` of those that are made of parts of others, and of runs of their characters."""
    numbers = Numbers(index)
    parts = []
    for _ in range(1 + numbers.below(4)):
        text = texts[numbers.below(len(texts))]
        first = numbers.below(len(text))
        count = 1 + numbers.below(40)
        is_run = numbers.below(8) == 0
        parts.append(text[first] * count if is_run else text[first:first + count])
    return "".join(parts)


def to_bytes(text):
    return b"".join(bytes([ord(c) - 0xF700]) if 0xF700 <= ord(c) <= 0xF7FF else c.encode() for c in text)


def to_text(text):
    """As an engine sees it that takes text only."""
    return to_bytes(text).decode(errors="replace")

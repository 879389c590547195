"""Small tokenizers of every kind, trained on the spot with Hugging Face's `tokenizers` and with `sentencepiece`."""

import io
import json
import tempfile

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + TAIL
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + TAIL
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+")

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog doesn't mind; it's only a fox.",
    "def tokenize(text):\n    for piece in split(text):\n        yield encode(piece)\n    return None\n",
    "In 2024 there were 1234567 people, 3.14 pies and 42 answers. We'll see what they've done, I'm sure.",
    "Die Straße führt über Köln nach München. L'été à la plage, ça va très bien, n'est-ce pas?",
    "Привет, мир! Как дела? Всё хорошо. こんにちは世界、元気ですか。你好,世界。안녕하세요 세계.",
    "if (a != b && c <= d) { x += y[i] * z; } // comment\n\n\n#include <vector>\t\tint main();  // two\r\n",
    "the the and and that that with with this this there their they them then than these those other",
] * 20

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


def o200k():
    return byte_level(O200K, False)


def deepseek_v3():
    made = byte_level(QWEN2, False)
    cuts = [pre_tokenizers.Split(Regex(rx), "isolated") for rx in (r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK)]
    made.pre_tokenizer = pre_tokenizers.Sequence(cuts + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return made


def bert(lowercase=True):
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=600, special_tokens=names, show_progress=False))
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    made.decoder = decoders.WordPiece()
    return made


def bert_cased():
    made = bert(False)
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.decoder = decoders.WordPiece(cleanup=False)
    return made


def sentence_piece_model(**options):
    """The bytes of a trained SentencePiece model."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS * 3), model_writer=model, minloglevel=2,
                                             hard_vocab_limit=False, **options)
    return model.getvalue()


RULES = [("\ufb01", "fi"), ("\ufb00", "ff"), ("\u2460", "1"), ("\u00bd", "1\u20442"), ("\u00b2", "2"), ("\u212b", "\u00c5"),
         ("A\u030a", "\u00c5"), ("e\u0301", "\u00e9"), ("u\u0308", "\u00fc"), ("\u338f", "kg"), ("...", "\u2026"), ("\t", " "), ("\n", " "),
         ("\r", " "), ("\u3000", " "), ("\u00a0", " "), ("\u200b", ""), ("\x01", "")]
RULES += [(chr(c), chr(c - 0xFEE0)) for c in range(0xFF01, 0xFF5F)]


def with_rules(**options):
    """SentencePiece with a charsmap that is small enough to be kept; `normalization_rule_name` overrides it."""
    if "normalization_rule_name" in options:
        return sentence_piece_model(**options)
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        for source, target in RULES:
            spelled = [" ".join(f"{ord(c):X}" for c in part) for part in (source, target)]
            rules.write("\t".join(spelled) + "\n")
        rules.flush()
        return sentence_piece_model(normalization_rule_tsv=rules.name, **options)


def charsmap_of(model):
    """normalizer_spec.precompiled_charsmap"""
    at, charsmap = 0, b""

    def varint(data, at):
        value = shift = 0
        while True:
            value |= (data[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 0x80:
                return value, at

    def fields(data):
        at = 0
        while at < len(data):
            tag, at = varint(data, at)
            if tag & 7 == 2:
                size, at = varint(data, at)
                yield tag >> 3, data[at:at + size]
                at += size
            elif tag & 7 == 0:
                _, at = varint(data, at)
            else:
                at += 4 if tag & 7 == 5 else 8

    for number, value in fields(model):
        if number == 3:
            charsmap = dict(fields(value)).get(2, b"")
    return charsmap


def unigram(normalizer, pre_tokenizer, byte_fallback):
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizer
    made.pre_tokenizer = pre_tokenizer
    names = ["<s>", "<pad>", "</s>", "<unk>"] + ([f"<0x{i:02X}>" for i in range(256)] if byte_fallback else [])
    trainer = trainers.UnigramTrainer(vocab_size=600 + len(names), special_tokens=names, unk_token="<unk>", show_progress=False)
    made.train_from_iterator(CORPUS, trainer)
    made.decoder = decoders.Metaspace()
    raw = json.loads(made.to_str())
    raw["added_tokens"] = [token for token in raw["added_tokens"] if not token["content"].startswith("<0x")]
    raw["model"]["byte_fallback"] = byte_fallback
    return Tokenizer.from_str(json.dumps(raw))


def xlm_roberta():
    """Unigram behind a charsmap, as XLM-R, bge-m3 and e5 have it."""
    rules = {"normalization_rule_name": "nmt_nfkc"} if BIG_CHARSMAP else {}
    charsmap = charsmap_of(with_rules(model_type="unigram", vocab_size=400, **rules))
    made = unigram(normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Replace(Regex(" {2,}"), " ")]),
                   pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]), False)
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
                                                        special_tokens=[("<s>", 0), ("</s>", 2)])
    return made


def unigram_bytes():
    made = unigram(normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()]), pre_tokenizers.Metaspace(prepend_scheme="first"), True)
    made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first"), decoders.Fuse()])
    return made


def word_end():
    """BPE whose tokens mark the ends of words, as GPT-1 and CLIP have it; its decoder looks at all tokens."""
    made = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation()])
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<s>", "<unk>"], end_of_word_suffix="</w>", show_progress=False)
    made.train_from_iterator(CORPUS, trainer)
    made.decoder = decoders.BPEDecoder()
    return made


def scripts():
    """Odds and ends: words looked up whole, cut by script and digits."""
    made = Tokenizer(models.WordLevel(unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.UnicodeScripts(),
                                                  pre_tokenizers.Digits(individual_digits=False)])
    made.train_from_iterator(CORPUS, trainers.WordLevelTrainer(vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False))
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    return made


def sp_unigram():
    rules = {"normalization_rule_name": "nmt_nfkc"} if BIG_CHARSMAP else {}
    return with_rules(model_type="unigram", vocab_size=700, byte_fallback=True, user_defined_symbols=["<keep>", "<think>"], **rules)


def sp_bpe():
    return sentence_piece_model(model_type="bpe", vocab_size=700, byte_fallback=True, normalization_rule_name="identity",
                                remove_extra_whitespaces=False, user_defined_symbols=["<keep>", "\n\n"])


def sp_unknown():
    """No byte tokens, the space after the words, nothing escaped away."""
    return with_rules(model_type="unigram", vocab_size=500, treat_whitespace_as_suffix=True)


BIG_CHARSMAP = False  # whether to take the charsmap of 240 KB that real models have
WITH_CASES = (llama3, qwen2, digits_gpt2, falcon, llama2, llama2_metaspace, gemma)
TRAINED = WITH_CASES + (o200k, deepseek_v3)
WORDS = (bert, bert_cased, xlm_roberta, unigram_bytes, word_end, scripts)
SENTENCE_PIECE = (sp_unigram, sp_bpe, sp_unknown)

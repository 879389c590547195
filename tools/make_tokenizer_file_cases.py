#!/usr/bin/env python3
"""Makes small tekken.json and vocab.json with merges.txt, and cases for src/text/tokenizer/tokenizer_files_test.cc.

usage: make_tokenizer_file_cases.py src/text/testdata
       needs mistral-common 1.13.1 (tekken), transformers 5.23 (the classes that read the others), tokenizers, sentencepiece

Cases are those of make_tokenizer_cases.py: of tekken with special tokens read (ids) and not (plain), of each class with its
post-processor (special).
"""
import base64
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import tiktoken
import transformers as T
from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import make_tokenizer_cases as cases
import tokenizer_kinds as kinds

TEKKEN = kinds.O200K.replace(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}")
SPECIAL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"]
RESERVED = 10  # special tokens, named or not


def trained(special):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(kinds.CORPUS, trainer)
    return json.loads(made.to_str())["model"]


def tekken(folder):
    """Bytes, then what pairs make in the order of their merges."""
    letters = {letter: byte for byte, letter in enumerate(byte_letters())}
    ranks = [bytes([byte]) for byte in range(256)]
    ranks += [bytes(letters[letter] for letter in "".join(pair)) for pair in trained([])["merges"]]
    ranks = list(dict.fromkeys(ranks))
    vocabulary = [{"rank": i, "token_bytes": base64.b64encode(x).decode(), "token_str": x.decode("utf-8", "replace")}
                  for i, x in enumerate(ranks)]
    file = {"config": {"pattern": TEKKEN, "num_vocab_tokens": len(ranks), "default_vocab_size": RESERVED + len(ranks) - 8,
                       "default_num_special_tokens": RESERVED, "version": "v7"},
            "vocab": vocabulary,
            "special_tokens": [{"rank": i, "token_str": text, "is_control": True} for i, text in enumerate(SPECIAL)]}
    path = folder / "tekken.json"
    path.write_text(json.dumps(file, separators=(",", ":")) + "\n")
    made = Tekkenizer.from_file(path)
    # The same with special tokens, numbered behind the others.
    size = made.n_words - RESERVED
    reading = tiktoken.Encoding("reading", pat_str=TEKKEN, mergeable_ranks={x: i for i, x in enumerate(ranks[:size])},
                                special_tokens={text: size + i for i, text in enumerate(SPECIAL)})

    def case(text):
        ids = [RESERVED + i if i < size else i - size for i in reading.encode(text, allowed_special="all")]
        special = [made.bos_id] + ids
        return cases.brief({"text": text, "ids": ids, "special": special, "plain": made.encode(text, bos=False, eos=False),
                            "decoded": made.decode(special, SpecialTokenPolicy.IGNORE),
                            "decoded_special": made.decode(special, SpecialTokenPolicy.KEEP)})
    texts = [text for text in cases.TEXTS[::2]] + ["[INST] hi [/INST]", "a[TOOL_CALLS]b", "[INST"]
    cases.write_list(folder / "tekken.cases.json", map(case, texts))


def byte_letters():
    """The byte alphabet."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in kept else chr(next(others)) for byte in range(256)]


# Beside vocab.json and merges.txt: tokenizer_config.json of each class.
CLASSES = {
    "gpt2": {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>",
             "unk_token": "<|endoftext|>"},
    "qwen2": {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": None,
              "added_tokens_decoder": {str(500 + i): {"content": text, "lstrip": False, "normalized": False, "rstrip": False,
                                                      "single_word": False, "special": special}
                                       for i, (text, special) in enumerate([("<|im_start|>", True), ("<|im_end|>", True),
                                                                            ("<think>", False)])}},
    "roberta": {"tokenizer_class": "RobertaTokenizer"},
}


def of_classes(folder):
    model = trained(["<s>", "<pad>", "</s>", "<unk>", "<|endoftext|>", "<mask>"])
    (folder / "merges.vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False) + "\n")
    lines = [" ".join(pair) for pair in model["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(lines) + "\n")
    made = {}
    for name, config in CLASSES.items():
        with tempfile.TemporaryDirectory() as place:
            (Path(place) / "vocab.json").write_text((folder / "merges.vocab.json").read_text())
            (Path(place) / "merges.txt").write_text((folder / "merges.txt").read_text())
            (Path(place) / "tokenizer_config.json").write_text(json.dumps(config))
            backend = getattr(T, config["tokenizer_class"]).from_pretrained(place).backend_tokenizer
        oracle = cases.HuggingFace(backend, added=[])
        texts = [*cases.TEXTS[::4], "<|endoftext|>x", "<think>", "<|im_start|>user\nhi<|im_end|>"]
        made[name] = {"config": config, "cases": [cases.brief(oracle.case(text)) for text in texts]}
    (folder / "merges.cases.json").write_text(json.dumps(made, separators=(",", ":")) + "\n")


def main():
    folder = Path(sys.argv[1])
    tekken(folder)
    of_classes(folder)


main()

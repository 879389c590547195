#!/usr/bin/env python3
"""Makes tests/pooling: tiny random models that answer with vectors or scores, and what sentence-transformers says of them.

usage: make_pooling_cases.py OUTPUT_FOLDER [--quantized] [NAME...]
       needs torch, transformers 5.23, sentence-transformers 6.2, gguf. --quantized makes only the twins of what is there.

Each folder is a model as it is published: config.json, weights (bfloat16), tokenizer.json, the files of
sentence-transformers. expected.json holds texts with their ids and vectors, or pairs with their ids, types and scores, in
fp32. NAME_gguf is the twin of a model in GGUF; NAME_fp8 and NAME_q8_0 are quantized (golden/quantized.py).
"""
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import tokenizers as K
import torch
import transformers as T
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from golden import quantized
from golden.common import PLAIN, randomize
from pooling_twins import TWINS

TEXTS = ["Hello world", "The cat sits on the mat", "a", "A feline rests on a rug, doesn't it?",
         "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"]
PAIRS = [("what is a cat", "The cat sits on the mat"), ("what is a cat", "Hello world"), ("a", "b"),
         ("one two three", "four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen")]
CORPUS = [*TEXTS, *(text for pair in PAIRS for text in pair)]
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, dtype="bfloat16")


def wordpiece(inputs=("input_ids", "token_type_ids", "attention_mask")):
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters), ",", "?", "'",
             "hello", "world", "the", "cat", "##at", "##ing", "one", "##een", "se", "##ve"]
    tokenizer = K.Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.decoder = decoders.WordPiece()
    return T.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]",
                                     sep_token="[SEP]", mask_token="[MASK]",
                                     model_input_names=list(inputs))


def unigram():
    tokenizer = K.Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = K.trainers.UnigramTrainer(vocab_size=120, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], unk_token="<unk>",
                                        show_progress=False)
    tokenizer.train_from_iterator(CORPUS * 4, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return T.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", cls_token="<s>",
                                     sep_token="</s>", unk_token="<unk>", pad_token="<pad>")


def byte_bpe(special, post, size=300, **names):
    tokenizer = K.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = K.trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                    initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = post(tokenizer)
    return T.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def roberta_bpe():
    return byte_bpe(["<s>", "<pad>", "</s>", "<unk>"],
                    lambda t: processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False),
                    bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", unk_token="<unk>", pad_token="<pad>")


def modern_bpe():
    return byte_bpe(["[CLS]", "[PAD]", "[SEP]"], lambda t: processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 2)]),
        cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]")


def qwen_bpe(ends=True):
    """Embedding models end a text with a token of its own. For a classifier that is padding, and not looked at."""
    def post(tokenizer):
        if not ends:
            return processors.ByteLevel(trim_offsets=False)
        end = tokenizer.token_to_id("<|endoftext|>")
        return processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            single="$A <|endoftext|>", pair="$A $B:1 <|endoftext|>:1", special_tokens=[("<|endoftext|>", end)])])
    return byte_bpe(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], post, pad_token="<|endoftext|>",
                    eos_token="<|endoftext|>")


def save(cls, config, folder, tokenizer, seed=1):
    """A random model in fp32 arithmetic whose weights are bfloat16 numbers, and its files."""
    config.vocab_size = (len(tokenizer) + 7) // 8 * 8
    model = getattr(T, cls)._from_config(config)
    randomize(model, seed, 1.0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for name in ("generation_config.json", "special_tokens_map.json", "chat_template.jinja"):
        (folder / name).unlink(missing_ok=True)
    shorten(folder)
    return model


def shorten(folder):
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()), separators=(",", ":")) + "\n")


def rounded(vector):
    return [round(float(x), 6) for x in vector]


def write_expected(folder, expected):
    (folder / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


def embedder(folder, tokenizer, pooling, normalize=True, prompts=None, dense=()):
    """Adds the files of sentence-transformers, and what it computes. `dense`: sizes, biases and functions of layers."""
    transformer = Transformer(str(folder), model_kwargs={"dtype": torch.float32}, max_seq_length=120)
    size = transformer.get_embedding_dimension()
    modules = [transformer, Pooling(size, pooling_mode=pooling)]
    torch.manual_seed(3)
    for out, bias, function in dense:
        modules.append(Dense(size, out, bias=bias, activation_function=function()))
        size = out
    if normalize:
        modules.append(Normalize())
    model = SentenceTransformer(modules=modules, device="cpu", prompts=prompts)
    weights = (folder / "model.safetensors").read_bytes()
    config = (folder / "config.json").read_text()
    model.save(str(folder), create_model_card=False)
    (folder / "model.safetensors").write_bytes(weights)  # as they were: bfloat16
    (folder / "config.json").write_text(config)
    shorten(folder)
    assert all(len(tokenizer(text)["input_ids"]) <= 120 for text in TEXTS), "a text is cut"
    cases = [{"text": text, "ids": tokenizer(text)["input_ids"], "vector": vector}
             for text, vector in zip(TEXTS, vectors_of(model))]
    expected = {"task": "embed", "cases": cases}
    if prompts:
        name = next(iter(prompts))
        expected["prompted"] = {"name": name, "text": TEXTS[0],
                                "vector": rounded(model.encode([TEXTS[0]], prompt_name=name)[0])}
    write_expected(folder, expected)


def vectors_of(model):
    return [rounded(vector) for vector in model.encode(TEXTS, convert_to_numpy=True)]


def loaded(folder):
    return SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})


def scores_of(folder):
    """Of each pair: what the model says, and its sigmoid."""
    model = CrossEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    answers = [model.predict(PAIRS, activation_fn=f) for f in (torch.nn.Identity(), torch.nn.Sigmoid())]
    return [{"logit": round(float(logit), 6), "score": round(float(score), 6)} for logit, score in zip(*answers)]


def cross_encoder(folder, tokenizer):
    cases = []
    for pair, answer in zip(PAIRS, scores_of(folder)):
        encoded = tokenizer(*pair, return_token_type_ids=True)
        cases.append({"pair": pair, "ids": encoded["input_ids"], "types": encoded["token_type_ids"], **answer})
    write_expected(folder, {"task": "score", "cases": cases})


def with_answers_of(folder, expected, always_normal):
    """What is expected of a model, with the answers of other weights. GGUF files do not say whether vectors are normalised:
    they always are."""
    if expected["task"] == "embed":
        for case, vector in zip(expected["cases"], vectors_of(loaded(folder))):
            case["vector"] = rounded(np.array(vector) / np.linalg.norm(vector)) if always_normal else vector
    else:
        for case, answer in zip(expected["cases"], scores_of(folder)):
            case.update(answer)
    expected.pop("prompted", None)
    return expected


def make_quantized(out, name):
    """Twins of 8-bit floats and of Q8_0, from the model that is there."""
    source = out / name
    expected = json.loads((source / "expected.json").read_text())
    if "asked" in expected:
        return  # a language model like those of tests/golden
    with tempfile.TemporaryDirectory() as place:
        plain = Path(place) / "plain"
        quantized.to_eight_bit_floats(source, out / f"{name}_fp8", plain)
        write_expected(out / f"{name}_fp8", with_answers_of(plain, expected, False))
        if name in TWINS:
            quantized.to_q8_0_values(source, plain)
            scores = expected["task"] == "score"
            model = CrossEncoder(str(plain), device="cpu", model_kwargs={"dtype": torch.float32}).model if scores \
                else loaded(plain)[0].auto_model
            tokenizer = T.AutoTokenizer.from_pretrained(source)
            folder = out / f"{name}_q8_0"
            TWINS[name](folder, model, model.config, tokenizer, quantized.add_exactly)
            write_expected(folder, with_answers_of(plain, expected, True))


def bert(out, name):
    tokenizer = wordpiece()
    config = T.BertConfig(max_position_embeddings=160, **SMALL)
    model = save("BertModel", config, out / name, tokenizer)
    embedder(out / name, tokenizer, "mean", prompts={"query": "query: ", "document": ""})
    path = out / name / "sentence_bert_config.json"  # as older releases wrote it
    path.write_text(json.dumps({"max_seq_length": 120, "do_lower_case": False}, indent=1) + "\n")
    TWINS[name](out / f"{name}_gguf", model, config, tokenizer)
    copy_vectors(out / name, out / f"{name}_gguf")


def nomic_bert(out, name):
    """With config.json as its own code spells it."""
    tokenizer = wordpiece()
    config = T.NomicBertConfig(max_position_embeddings=160, rope_parameters=PLAIN | {"rope_theta": 1000.0}, **SMALL)
    model = save("NomicBertModel", config, out / name, tokenizer)
    embedder(out / name, tokenizer, "mean")
    TWINS[name](out / f"{name}_gguf", model, config, tokenizer)
    copy_vectors(out / name, out / f"{name}_gguf")
    (out / name / "config.json").rename(out / name / "config.v5.json")
    (out / name / "config.json").write_text(json.dumps({
        "architectures": ["NomicBertModel"], "model_type": "nomic_bert", "activation_function": "swiglu",
        "layer_norm_epsilon": config.layer_norm_eps, "n_embd": config.hidden_size, "n_head": config.num_attention_heads,
        "n_inner": config.intermediate_size, "n_layer": config.num_hidden_layers, "n_positions": 160,
        "max_trained_positions": 2048, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "qkv_proj_bias": False, "prenorm": False,
        "parallel_block": False, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
        "rotary_emb_scale_base": None, "rotary_scaling_factor": None, "type_vocab_size": 2, "use_rms_norm": False,
        "causal": False, "vocab_size": config.vocab_size, "torch_dtype": "bfloat16"}, indent=1) + "\n")


def distil_bert(out, name):
    tokenizer = wordpiece(("input_ids", "attention_mask"))
    config = T.DistilBertConfig(max_position_embeddings=160, dim=32, n_layers=2, n_heads=4, hidden_dim=48, dtype="bfloat16")
    model = save("DistilBertModel", config, out / name, tokenizer, seed=5)
    embedder(out / name, tokenizer, "mean")
    TWINS[name](out / f"{name}_gguf", model, config, tokenizer)
    copy_vectors(out / name, out / f"{name}_gguf")


def bert_dense(out, name):
    tokenizer = wordpiece()
    save("BertModel", T.BertConfig(max_position_embeddings=160, **SMALL), out / name, tokenizer, seed=4)
    embedder(out / name, tokenizer, "cls", normalize=False, dense=[(24, True, torch.nn.Tanh)])


def embedding_gemma(out, name):
    """A decoder that sees both sides, and two layers behind the mean."""
    tokenizer = qwen_bpe()
    config = T.Gemma3TextConfig(max_position_embeddings=256, num_key_value_heads=1, head_dim=16, query_pre_attn_scalar=16,
                                sliding_window=8, use_bidirectional_attention=True, tie_word_embeddings=True,
                                rope_parameters={"full_attention": PLAIN | {"rope_theta": 1e6}, "sliding_attention": PLAIN},
                                bos_token_id=None, eos_token_id=0, pad_token_id=0, **SMALL | {"num_hidden_layers": 6})
    model = save("Gemma3TextModel", config, out / name, tokenizer)
    embedder(out / name, tokenizer, "mean", prompts={"query": "task: search result | query: ", "document": "title: none | text: "},
             dense=[(64, False, torch.nn.Identity), (32, False, torch.nn.Identity)])
    TWINS[name](out / f"{name}_gguf", model, config, tokenizer)
    copy_vectors(out / name, out / f"{name}_gguf")


def bert_score(out, name):
    tokenizer = wordpiece()
    config = T.BertConfig(max_position_embeddings=160, num_labels=1, **SMALL)
    save("BertForSequenceClassification", config, out / name, tokenizer)
    cross_encoder(out / name, tokenizer)


def xlm_roberta(out, name):
    tokenizer = unigram()
    config = T.XLMRobertaConfig(max_position_embeddings=162, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2,
                                layer_norm_eps=1e-5, **SMALL)
    model = save("XLMRobertaModel", config, out / name, tokenizer)
    embedder(out / name, tokenizer, "cls")
    TWINS[name](out / f"{name}_gguf", model, config, tokenizer)
    copy_vectors(out / name, out / f"{name}_gguf")


def xlm_roberta_score(out, name):
    tokenizer = unigram()
    config = T.XLMRobertaConfig(max_position_embeddings=162, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2,
                                layer_norm_eps=1e-5, num_labels=1, **SMALL)
    model = save("XLMRobertaForSequenceClassification", config, out / name, tokenizer)
    cross_encoder(out / name, tokenizer)
    TWINS[name](out / f"{name}_gguf", model, config, tokenizer)
    (out / f"{name}_gguf" / "expected.json").write_text((out / name / "expected.json").read_text())


def roberta_score(out, name):
    tokenizer = roberta_bpe()
    config = T.RobertaConfig(max_position_embeddings=162, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2,
                             layer_norm_eps=1e-5, num_labels=1, **SMALL)
    save("RobertaForSequenceClassification", config, out / name, tokenizer)
    cross_encoder(out / name, tokenizer)


def modern_config(**more):
    return T.ModernBertConfig(max_position_embeddings=160, local_attention=16, global_attn_every_n_layers=2, pad_token_id=1,
                              cls_token_id=0, sep_token_id=2, bos_token_id=0, eos_token_id=2,
                              **{**SMALL, "num_hidden_layers": 3}, **more)


def modern_bert(out, name):
    tokenizer = modern_bpe()
    config = modern_config()
    model = save("ModernBertModel", config, out / name, tokenizer)
    embedder(out / name, tokenizer, "mean", normalize=False)
    TWINS[name](out / f"{name}_gguf", model, config, tokenizer)
    copy_vectors(out / name, out / f"{name}_gguf")


def modern_bert_score(out, name):
    tokenizer = modern_bpe()
    save("ModernBertForSequenceClassification", modern_config(num_labels=1, classifier_pooling="mean"), out / name, tokenizer)
    cross_encoder(out / name, tokenizer)


def qwen_config(positions=256, **more):
    return T.Qwen3Config(max_position_embeddings=positions, num_key_value_heads=2, head_dim=16, rope_parameters=PLAIN,
                         tie_word_embeddings=True, bos_token_id=None, eos_token_id=0, pad_token_id=0, **SMALL, **more)


def qwen3_embedding(out, name):
    """A decoder: last token, and a config.json that names the class that makes text."""
    tokenizer = qwen_bpe()
    config = qwen_config()
    model = save("Qwen3Model", config, out / name, tokenizer)
    path = out / name / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "architectures": ["Qwen3ForCausalLM"],
                                "is_matryoshka": True}, indent=1) + "\n")
    embedder(out / name, tokenizer, "lasttoken", prompts={"query": "Instruct: find it\nQuery:", "document": ""})
    TWINS[name](out / f"{name}_gguf", model, config, tokenizer)
    copy_vectors(out / name, out / f"{name}_gguf")


def qwen3_mean(out, name):
    """A decoder whose tokens are averaged: prompts in several steps have to give the same."""
    tokenizer = qwen_bpe()
    save("Qwen3Model", qwen_config(), out / name, tokenizer, seed=2)
    path = out / name / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "architectures": ["Qwen3ForCausalLM"]}, indent=1) + "\n")
    embedder(out / name, tokenizer, "mean")


def qwen3_score(out, name):
    tokenizer = qwen_bpe(ends=False)
    save("Qwen3ForSequenceClassification", qwen_config(num_labels=1), out / name, tokenizer)
    cross_encoder(out / name, tokenizer)


QUESTION = ("<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
            "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a "
            "web search query, retrieve relevant passages that answer the query\n<Query>: {}\n<Document>: {}<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\n")


def qwen3_reranker(out, name):
    """A language model that says yes or no."""
    CORPUS.extend(["yes no", "yes no", "yes", "no"] * 10)
    tokenizer = qwen_bpe(ends=False)
    save("Qwen3ForCausalLM", qwen_config(positions=1024), out / name, tokenizer, seed=3)
    model = T.Qwen3ForCausalLM.from_pretrained(out / name, dtype=torch.float32).eval()
    yes, no = (tokenizer(word, add_special_tokens=False)["input_ids"] for word in ("yes", "no"))
    assert len(yes) == len(no) == 1, "the tokenizer has no such words"
    cases = []
    for pair in PAIRS:
        ids = tokenizer(QUESTION.format(*pair), add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1]
        logit = float(logits[yes[0]] - logits[no[0]])
        cases.append({"pair": pair, "ids": ids, "types": [0] * len(ids), "logit": round(logit, 6),
                      "score": round(float(torch.stack([logits[no[0]], logits[yes[0]]]).softmax(0)[1]), 6)})
    write_expected(out / name, {"task": "score", "asked": True, "cases": cases})


def copy_vectors(source, folder):
    """GGUF files do not say whether vectors are normalised: they always are."""
    expected = json.loads((source / "expected.json").read_text())
    expected.pop("prompted", None)
    for case in expected["cases"]:
        case["vector"] = rounded(np.array(case["vector"]) / np.linalg.norm(case["vector"]))
    write_expected(folder, expected)


MODELS = (distil_bert, xlm_roberta_score, bert_dense, embedding_gemma, bert, nomic_bert, bert_score, xlm_roberta, roberta_score, modern_bert, modern_bert_score, qwen3_embedding, qwen3_mean, qwen3_score,
          qwen3_reranker)


def main():
    out, *names = (word for word in sys.argv[1:] if word != "--quantized")
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    for make in MODELS:
        if not names or make.__name__ in names:
            if "--quantized" not in sys.argv:
                make(out, make.__name__)
            make_quantized(out, make.__name__)
            print(make.__name__, flush=True)


main()

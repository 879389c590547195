#!/usr/bin/env python3
"""tools/check_perplexity.py QUERN MODEL TEXT [CONTEXT [STRIDE]]: the perplexity that `quern perplexity` finds beside the
one computed here from another program's logits: llama.cpp's (llama_cpp) for a .gguf file, those of transformers for a
folder. Fails when they differ by more than 1 % (llama.cpp rounds activations to 8 bits), or 0.1 % (transformers computes
in float32; quern keeps keys and values as float16)."""
import json
import math
import pathlib
import subprocess
import sys

import numpy as np


def windows(tokens, context, stride, start):
    """Window and the first token of it that is scored. `start`: what the tokenizer begins texts with."""
    if stride == 0:
        for begin in range(0, len(tokens) - context + 1, context):
            yield start + tokens[begin + len(start):begin + context], context // 2 + 1
        return
    seen = 0
    for begin in range(0, len(tokens), stride):
        yield tokens[begin:begin + context], max(1, seen - begin)
        seen = min(begin + context, len(tokens))
        if seen == len(tokens):
            return


def perplexity(logits_of, *text):
    total, count = 0.0, 0
    for window, first in windows(*text):
        logits = logits_of(window).astype(np.float64)[first - 1:len(window) - 1]
        largest = logits.max(axis=1, keepdims=True)
        logprobs = logits - largest - np.log(np.exp(logits - largest).sum(axis=1, keepdims=True))
        total -= logprobs[np.arange(len(logprobs)), window[first:]].sum()
        count += len(logprobs)
    return math.exp(total / count)


def llama_cpp_logits(model, context):
    import llama_cpp

    loaded = llama_cpp.Llama(model, n_ctx=context, n_batch=context, logits_all=True, verbose=False)

    def logits(window):
        loaded.reset()
        loaded.eval(window)
        return loaded.scores[:len(window)]

    return logits


def transformers_logits(model):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)

    def logits(window):
        with torch.no_grad():
            return loaded(torch.tensor([window])).logits[0].numpy()

    return logits


def main(quern, model, text, context=512, stride=0):
    context, stride = int(context), int(stride)
    flags = ["--context", str(context), "--stride", str(stride), "--json"]
    ours = json.loads(subprocess.run([quern, "perplexity", model, text, *flags], check=True, capture_output=True).stdout)
    tokens, start = (json.loads(subprocess.run([quern, "tokenize", model], check=True, capture_output=True, input=content).stdout)
                     for content in (pathlib.Path(text).read_bytes(), b""))
    print(f"quern         {ours['perplexity']:.4f} +- {ours['perplexity_error']:.4f}, {ours['scored_tokens']} tokens")
    is_file = pathlib.Path(model).is_file()
    name, tolerance = ("llama.cpp", 0.01) if is_file else ("transformers", 0.001)
    logits_of = llama_cpp_logits(model, context) if is_file else transformers_logits(model)
    value = perplexity(logits_of, tokens, context, stride, start)
    difference = ours["perplexity"] / value - 1
    print(f"{name:13} {value:.4f}, differs by {100 * difference:+.4f} %")
    sys.exit(abs(difference) > tolerance)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])

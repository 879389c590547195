#!/usr/bin/env python3
"""Writes src/ops/testdata/sampling_cases.json: logits, sampling parameters, and the distribution that numpy makes of
them by sorting, in double. Where transformers has the same step (temperature, min_p, top_k, typical_p, top_p,
repetition penalty), its processors must agree."""
import json
import pathlib

import numpy as np
import torch
from transformers.generation import logits_process as hf

VOCAB = 257
CASES = {
    "Plain": {},
    "Cold": {"temperature": 0.5},
    "TopK": {"top_k": 20},
    "TopP": {"top_p": 0.8},
    "MinP": {"min_p": 0.1},
    "Typical": {"typical_p": 0.6},
    "TypicalLittle": {"typical_p": 0.2},
    "TypicalHot": {"typical_p": 0.9, "temperature": 2.5},
    "TypicalAfterTopK": {"typical_p": 0.7, "top_k": 40},
    "TypicalAfterMinP": {"typical_p": 0.5, "min_p": 0.02, "temperature": 1.5},
    "TypicalBeforeTopP": {"typical_p": 0.9, "top_p": 0.5},
    "Everything": {"temperature": 1.4, "min_p": 0.01, "top_k": 100, "typical_p": 0.9, "top_p": 0.9},
    "Repetition": {"repetition_penalty": 1.3, "counts": [[i, 0] for i in range(0, VOCAB, 3)]},
    "Penalties": {"repetition_penalty": 1.1, "frequency_penalty": 0.3, "presence_penalty": 0.6,
                  "counts": [[i, i % 4] for i in range(0, VOCAB, 2)]},
    "Bias": {"biases": [[3, 2.5], [50, -4.0], [200, 4.0]]},
    "Banned": {"banned": list(range(0, VOCAB, 5))},
    "Allowed": {"allowed": list(range(1, VOCAB, 7))},
    "AllowedTypical": {"allowed": list(range(1, VOCAB, 2)), "typical_p": 0.5},
}


def log_softmax(x):
    shifted = x - x.max()
    return shifted - np.log(np.exp(shifted).sum())


def keep(x, kept):
    return np.where(kept, x, -np.inf)


def adjusted(x, case):
    x = x.copy()
    if "allowed" in case:
        x = keep(x, np.isin(np.arange(VOCAB), case["allowed"]))
    x[case.get("banned", [])] = -np.inf
    for token, bias in case.get("biases", []):
        x[token] += bias
    for token, outputs in case.get("counts", []):
        penalty = case["repetition_penalty"]
        x[token] = x[token] / penalty if x[token] > 0 else x[token] * penalty
        if outputs > 0:
            x[token] -= outputs * case.get("frequency_penalty", 0) + case.get("presence_penalty", 0)
    return x


def best_first(x):
    return np.argsort(-x, kind="stable")


def fewest(order, probabilities, share):
    """Marks the fewest tokens of `order` whose share is at least `share`."""
    before = np.cumsum(probabilities[order]) - probabilities[order]
    kept = np.zeros(VOCAB, bool)
    kept[order[before < share]] = True
    return kept


def distribution(x, case):
    x = adjusted(x, case) / case.get("temperature", 1.0)
    if "min_p" in case:
        x = keep(x, np.exp(x - x.max()) >= case["min_p"])
    if "top_k" in case:
        kept = np.zeros(VOCAB, bool)
        kept[best_first(x)[: case["top_k"]]] = True
        x = keep(x, kept)
    if "typical_p" in case:
        logprobs = log_softmax(x)
        probabilities = np.exp(logprobs)
        entropy = -np.sum(probabilities[probabilities > 0] * logprobs[probabilities > 0])
        distance = np.abs(-logprobs - entropy)
        kept = fewest(np.argsort(distance, kind="stable"), probabilities, case["typical_p"])
        x = keep(x, kept & (probabilities > 0))
    if "top_p" in case:
        x = keep(x, fewest(best_first(x), np.exp(log_softmax(x)), case["top_p"]) & np.isfinite(x))
    return np.exp(log_softmax(x))


def by_transformers(x, case):
    """The same by transformers, as far as it has the steps."""
    scores = torch.tensor(adjusted(x, {key: value for key, value in case.items() if key != "counts"}))[None]
    steps = []
    if "counts" in case:
        assert all(outputs == 0 for _, outputs in case["counts"])
        steps.append(hf.RepetitionPenaltyLogitsProcessor(case["repetition_penalty"]))
    steps.append(hf.TemperatureLogitsWarper(case.get("temperature", 1.0)))
    for name, step in (("min_p", hf.MinPLogitsWarper), ("top_k", hf.TopKLogitsWarper),
                       ("typical_p", hf.TypicalLogitsWarper), ("top_p", hf.TopPLogitsWarper)):
        if name in case:
            steps.append(step(case[name]))
    tokens = torch.tensor([[token for token, _ in case.get("counts", [[0, 0]])]])
    for step in steps:
        scores = step(tokens, scores)
    return torch.softmax(scores, -1)[0].numpy()


def main():
    torch.set_num_threads(1)
    logits = np.random.default_rng(31).normal(0, 2.5, VOCAB).astype(np.float32)
    cases = []
    for name, case in CASES.items():
        expected = distribution(logits.astype(np.float64), case)
        assert abs(expected.sum() - 1) < 1e-12
        if name != "Penalties":
            assert np.abs(expected - by_transformers(logits.astype(np.float64), case)).max() < 1e-9, name
        cases.append({"name": name, **case, "probabilities": [float(f"{value:.6g}") for value in expected]})
    path = pathlib.Path(__file__).parent.parent / "src/ops/testdata/sampling_cases.json"
    path.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    path.write_text('{"logits":' + json.dumps([float(value) for value in logits], separators=(",", ":"))
                    + ',\n"cases":[\n' + lines + "\n]}\n")
    print(path, path.stat().st_size, "bytes")


main()

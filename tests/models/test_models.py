"""Larger real models against reference texts and ids: those of the file's weights as float32. Free-running answers are compared
where every engine agrees (the smallest gap between the two best tokens is above 0.17); every reference answer is also fed to the
model token by token, whose own best token may then be only a little better. `tools/fetch_model` brings the files; a model that is
not there is skipped."""
import json
import os
import pathlib
import re
import signal
import subprocess
import urllib.request

import pytest

QUERN = os.environ["QUERN_BINARY"]
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
MODELS = pathlib.Path(os.environ.get("QUERN_MODELS") or os.path.join(CACHE, "quern", "models"))

CHAT = {
    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf": {
        "What is the capital of France?": "The capital of France is Paris.",
        "List three prime numbers.": "Three prime numbers are 2, 3, and 5.",
    },
}
RAW = {
    "gemma-3-270m-q4_k_m.gguf": {
        "What is the capital of France?": [108, 818, 5279, 529, 7001, 563, 9079, 236761, 108, 3689, 563, 506, 5279, 529, 7001, 236881],
        "List three prime numbers.": [108, 1613, 1806, 8355, 4945, 236761, 108, 1613, 1806, 8355, 4945, 236761],
        "The quick brown fox": [38167, 1024, 506, 31770, 4799, 236761, 108, 818, 31770, 4799, 563, 496, 4799, 600, 563, 31770],
    },
}


def path_of(name):
    path = MODELS / name
    if not path.exists():
        pytest.skip(f"{name} is not there: tools/fetch_model brings it (Gemma only after its terms are accepted)")
    return str(path)


@pytest.mark.parametrize("name, prompt", [(name, prompt) for name, cases in CHAT.items() for prompt in cases])
def test_chat_text(name, prompt):
    result = subprocess.run([QUERN, "run", path_of(name), prompt], capture_output=True, text=True, timeout=300, check=True)
    assert result.stdout.strip() == CHAT[name][prompt]


# Prompts with greedy answers and the five best first logits of float32 weights, keys and values, and how much less than the
# engine's best logit that of the reference token may be: engines with 8-bit activations differ by up to 0.09.
FIRST_LIMIT = 0.02
FORCED = json.loads((pathlib.Path(__file__).parent / "forced.json").read_text())


@pytest.fixture(scope="module", params=list(FORCED))
def server(request):
    process = subprocess.Popen([QUERN, "serve", path_of(request.param), "--port", "0", "--max-model-len", "2048"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    url = next(found.group(1) for line in process.stdout if (found := re.search(r"ready after .* at (http://\S+)", line)))
    yield request.param, url
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.loads(urllib.request.urlopen(request, timeout=300).read())


def test_teacher_forcing(server):
    name, url = server
    worst, others, steps = 0.0, 0, 0
    for case in FORCED[name]["cases"]:
        tokens = case["prompt"] + case["answer"]
        told = post(url + "/v1/completions", {"model": name[:-5], "prompt": tokens, "max_tokens": 1, "temperature": 0, "ignore_eos": True,
                                              "prompt_logprobs": 5})["choices"][0]["prompt_logprobs"]
        for token, entry in list(zip(tokens, told, strict=True))[len(case["prompt"]):]:
            gap = max(one["logprob"] for one in entry.values()) - entry[str(token)]["logprob"]
            worst, others, steps = max(worst, gap), others + (entry[str(token)]["rank"] != 1), steps + 1
        first = told[len(case["prompt"])]
        best = max(case["first_logits"].values())
        top = max(one["logprob"] for one in first.values())
        for token, logit in case["first_logits"].items():
            if token in first:  # the last of five may be another one
                assert abs((best - logit) - (top - first[token]["logprob"])) < FIRST_LIMIT, (case["text"], token)
    print(f"{name}: another best token at {others} of {steps} steps, at most {worst:.3f} better")
    assert steps > 70 and worst <= FORCED[name]["limit"]


def test_raw_ids(server):
    name, url = server
    for prompt, ids in RAW.get(name, {}).items():
        answer = post(url + "/v1/completions", {"model": name[:-5], "prompt": prompt, "max_tokens": len(ids), "temperature": 0,
                                                "return_token_ids": True})
        assert answer["choices"][0]["token_ids"] == ids


# Mean over all tokens, then length 1, in float64 on the float32 weights.
MINILM = {
    "Hello world": ([-0.034477, 0.031023, 0.006735, 0.026109, -0.039362, -0.160302, 0.066924, -0.006441], [0.038938, 0.030207]),
    "The cat sits on the mat": ([0.134891, -0.032063, -0.020335, 0.035901, -0.028333, 0.041502, 0.033159, 0.036606],
                                [0.014925, 0.058633]),
    "A feline rests on a rug": ([0.070950, 0.024681, 0.034808, 0.108685, -0.035372, 0.072757, 0.022626, 0.010781],
                                [0.009628, 0.026627]),
}
COSINES = {(0, 1): -0.066691, (0, 2): 0.005587, (1, 2): 0.557109}


def test_minilm_vectors():
    texts = list(MINILM)
    result = subprocess.run([QUERN, "embed", path_of("all-MiniLM-L6-v2"), *texts, "--json"], capture_output=True, text=True,
                            timeout=300, check=True)
    vectors = [json.loads(line)["embedding"] for line in result.stdout.splitlines()]
    for vector, (first, last) in zip(vectors, MINILM.values(), strict=True):
        assert len(vector) == 384
        assert max(abs(a - b) for a, b in zip(vector[:8] + vector[-2:], first + last)) < 1e-4
    for (i, j), cosine in COSINES.items():
        assert abs(sum(a * b for a, b in zip(vectors[i], vectors[j])) - cosine) < 1e-4

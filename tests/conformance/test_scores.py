"""Sections I and J of the checklist: sampling, determinism and logprobs, against probabilities known in advance."""
import collections
import math
import threading

import pytest

import make_scripted_model as script
from conftest import chat_body, error_of

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
IDS = script.vocabulary()
X = {"x1": .5, "x2": .3, "x3": .2}  # what follows "P"


def token(text):
    return IDS[script.spell(text if isinstance(text, bytes) else text.encode())]


def near(value, chance):
    return abs(value - math.log(chance)) < 1e-3


def draws(server, **fields):
    """What follows "P" in 2,048 draws."""
    counts = collections.Counter()
    for block in range(16):
        choices = server.complete("P", n=128, max_tokens=1, seed=1000 * block, **{"temperature": 1, **fields})["choices"]
        counts.update(choice["text"] for choice in choices)
    return counts


# I. Sampling and determinism

def test_i81_greedy_text_beside_others(server):
    def ask():
        choice = server.complete("S", logprobs=3)["choices"][0]
        return choice["text"], choice["logprobs"]

    alone = ask()
    others = [threading.Thread(target=server.complete, args=("L",), kwargs={"max_tokens": 120}) for _ in range(8)]
    for other in others:
        other.start()
    for _ in range(5):
        assert ask() == alone
    for other in others:
        other.join()


def test_i82_seeds(server, serve):
    def text(seed):
        return server.text("R", temperature=1, seed=seed, max_tokens=20)

    for seed in (-1, 0, 2**63 - 1, -2**63):
        assert text(seed) == text(seed)
    assert text(7) != text(8)
    texts = []
    for _ in range(2):
        with serve("--seed", "5") as seeded:  # requests without a seed repeat too
            texts.append([seeded.text("R", max_tokens=12, temperature=1) for _ in range(3)])
    assert texts[0] == texts[1] and len(set(texts[0])) == 3


@pytest.mark.parametrize("fields", [{"top_k": 1}, {"top_p": 0.01}, {"min_p": 1}, {"temperature": 0, "typical_p": 0.3}])
def test_i83_limits_that_mean_greedy(server, fields):
    for seed in range(5):
        assert server.text("P", **{"temperature": 1, "seed": seed, **fields}) == "x1"


def test_i84_logit_bias(server):
    assert server.text("P", max_tokens=1, logit_bias={str(token(b"x3")): 100}) == "x3"
    assert server.text("P", max_tokens=1, logit_bias={str(token(b"x1")): -100}) == "x2"


def test_i85_penalties(server):
    def repeats(**fields):
        return server.text("L", max_tokens=60, **fields).count(" la")

    assert repeats() == 60 == repeats(frequency_penalty=0, repetition_penalty=1.0, presence_penalty=0)
    assert repeats(frequency_penalty=2) < 40
    assert repeats(frequency_penalty=2, repeat_last_n=-1) == repeats(frequency_penalty=2)
    assert repeats(frequency_penalty=2, repeat_last_n=100) == repeats(frequency_penalty=2)
    # " la" loses 2 for each time that it is among the last tokens, and no other is within 60 of it.
    assert repeats(frequency_penalty=2, repeat_last_n=20) == 60 == repeats(frequency_penalty=2, repeat_last_n=0)
    assert repeats(frequency_penalty=2, repeat_last_n=35) < 40


def test_i86_allowed_tokens(server, client):
    for temperature in (0, 1):
        assert server.text("P", temperature=temperature, allowed_token_ids=[token(b"x2"), IDS["</s>"]]) == "x2"
    answer = client.completions.create(model="alias", prompt="P", extra_body={"allowed_token_ids": [token(b"x3"), IDS["</s>"]]})
    assert answer.choices[0].text == "x3"
    assert server.chat("P", allowed_token_ids=[token(b"x3"), IDS["</s>"]])["choices"][0]["message"]["content"] == "x3"
    for ids in ([], [320], [-1], ["a"], 5):
        assert error_of(server.post(COMPLETIONS, {"prompt": "P", "allowed_token_ids": ids}))["param"].startswith("allowed_token_ids")


def test_i86_bad_words(server):
    """After an "h" of its own the answer may not go on with another one."""
    forced = {"logit_bias": {str(token("h")): 100, str(token("e")): 99}, "max_tokens": 6}
    assert server.text("A", **forced) == "hhhhhh"
    assert server.text("A", **forced, bad_words=["h"]) == "eeeeee"
    assert server.text("A", **forced, bad_words=["hh"]) == "hehehe"
    assert server.text("h", **forced, bad_words=["hh"]) == "hehehe"  # the prompt's "h" is not the answer's
    assert server.text("A", **forced, bad_words=["hhh"]) == "hhehhe"
    for words in ([""], [" "], [5], "h"):
        assert error_of(server.post(COMPLETIONS, {"prompt": "P", "bad_words": words}))["param"] == "bad_words"


@pytest.mark.parametrize(("fields", "weights"), [
    ({}, X), ({"top_k": 2}, {"x1": .5, "x2": .3}), ({"top_p": .7}, {"x1": .5, "x2": .3}), ({"min_p": .5}, {"x1": .5, "x2": .3}),
    ({"temperature": 2}, {text: chance ** .5 for text, chance in X.items()}),
    # Surprises of .69, 1.20 and 1.61 nats are 1.03 on average, so that x2 is the most typical.
    ({"typical_p": .25}, {"x2": .3}), ({"typical_p": .7}, {"x1": .5, "x2": .3}),
    ({"logit_bias": {str(token(b"x3")): math.log(2)}}, {"x1": .5, "x2": .3, "x3": .4})])
def test_i87_frequencies(server, fields, weights):
    counts = draws(server, **fields)
    assert set(counts) == set(weights)
    means = {text: 2048 * weight / sum(weights.values()) for text, weight in weights.items()}
    assert sum((counts[text] - mean) ** 2 / mean for text, mean in means.items()) < 13.8  # p = 0.001


# J. Logprobs

def test_j88_chat_logprobs(server, client):
    entries = server.chat("E", logprobs=True, top_logprobs=5)["choices"][0]["logprobs"]["content"]
    assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == "😀 €! é end"
    for entry in entries:
        values = [top["logprob"] for top in entry["top_logprobs"]]
        assert len(values) == 5 and values == sorted(values, reverse=True) and all(-9999 <= value <= 0 for value in values)
        assert entry["logprob"] == next(top["logprob"] for top in entry["top_logprobs"] if top["token"] == entry["token"])
    answer = client.chat.completions.create(model="alias", messages=[{"role": "user", "content": "x"}], temperature=0, logprobs=True)
    assert [entry.token for entry in answer.choices[0].logprobs.content] == ["Hello", " from", " the", " script"]


def test_j89_completion_logprobs(server):
    logprobs = server.complete("P", logprobs=3)["choices"][0]["logprobs"]
    for (text, chance), value in zip(X.items(), logprobs["top_logprobs"][0].items(), strict=True):
        assert value[0] == text and near(value[1], chance)
    choice = server.complete("S", logprobs=3)["choices"][0]
    assert len(set(map(len, choice["logprobs"].values()))) == 1
    for text, offset in zip(choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"]):
        assert choice["text"][offset:].startswith(text)
    assert all(3 <= len(best) <= 4 for best in choice["logprobs"]["top_logprobs"])
    logprobs = server.complete("P", temperature=1, seed=3, logprobs=0)["choices"][0]["logprobs"]
    assert list(logprobs["top_logprobs"][0]) == logprobs["tokens"]


def test_j90_echoed_logprobs(server, client):
    """Scores of a prompt are those of generating it, whatever of it is cached and however it is cut into steps."""
    generated = server.complete("L", max_tokens=99, logprobs=1)["choices"][0]["logprobs"]
    prompt = [token("L"), *[token(b" la")] * 99]
    for _ in range(2):
        choice = server.complete(prompt, max_tokens=0, echo=True, logprobs=1)["choices"][0]
        scored = choice["logprobs"]
        assert scored["token_logprobs"][0] is None and scored["top_logprobs"][0] is None
        assert scored["token_logprobs"][1:] == generated["token_logprobs"]
        assert scored["top_logprobs"][1:] == generated["top_logprobs"]
        assert scored["text_offset"] == [0, *range(1, 298, 3)] and choice["finish_reason"] == "length"
    assert server.complete(prompt, max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"] >= 96
    answer = client.completions.create(model="alias", prompt=[token("P"), token(b"x2")], echo=True, logprobs=2, max_tokens=1, n=2)
    for choice in answer.choices:
        assert choice.logprobs.tokens == ["P", "x2", "</s>"][:len(choice.logprobs.tokens)]
        assert choice.logprobs.token_logprobs[0] is None and near(choice.logprobs.token_logprobs[1], .3)
        assert near(choice.logprobs.top_logprobs[1]["x1"], .5)


def test_j90_echoed_text(server):
    """The tokens of a text; the one that begins it is not seen."""
    for prompt in ("hello A", "  héllo 日 A"):
        choice = server.complete(prompt, max_tokens=2, echo=True, logprobs=0)["choices"][0]
        logprobs = choice["logprobs"]
        assert choice["text"] == prompt + "The capital of" and logprobs["tokens"][0] == "<s>"
        assert len(set(map(len, logprobs.values()))) == 1
        for text, offset in list(zip(logprobs["tokens"], logprobs["text_offset"]))[-3:]:
            assert choice["text"][offset:].startswith(text)
        streamed = [chunk["choices"][0]["logprobs"] for chunk in
                    server.events(COMPLETIONS, {"prompt": prompt, "max_tokens": 2, "echo": True, "logprobs": 0, "temperature": 0})]
        for name, values in logprobs.items():
            assert [value for part in streamed if part for value in part[name]] == values


def test_j91_prompt_logprobs(server, client):
    prompt = [token("P"), token(b"x3"), IDS["</s>"]]
    choices = server.complete(prompt, prompt_logprobs=1, n=2, max_tokens=1)["choices"]
    for choice in choices:
        told = choice["prompt_logprobs"]
        assert len(told) == 3 and told[0] is None and choice["logprobs"] is None
        assert told[1][str(prompt[1])]["rank"] == 3 and near(told[1][str(prompt[1])]["logprob"], .2)
        assert told[1][str(token(b"x1"))] == {"logprob": told[1][str(token(b"x1"))]["logprob"], "rank": 1, "decoded_token": "x1"}
        assert told[2] == {str(prompt[2]): {"logprob": told[2][str(prompt[2])]["logprob"], "rank": 1, "decoded_token": "</s>"}}
    told = client.chat.completions.create(model="alias", messages=[{"role": "user", "content": "x"}],
                                          extra_body={"prompt_logprobs": 0, "return_token_ids": True}).model_extra
    assert len(told["prompt_logprobs"]) == len(told["prompt_token_ids"])
    assert all(len(entry) == 1 for entry in told["prompt_logprobs"][1:])
    assert error_of(server.post(COMPLETIONS, {"prompt": "A", "prompt_logprobs": 1, "stream": True}))["param"] == "prompt_logprobs"
    assert error_of(server.post(CHAT, chat_body(prompt_logprobs=21)))["param"] == "prompt_logprobs"


def test_j91_scores_in_small_steps(serve):
    with serve("--max-num-batched-tokens", "7", "--max-num-seqs", "2") as small:
        prompt = [token("R"), *[token(b" r%d" % (i * i % 4)) for i in range(60)]]
        for _ in range(2):
            told = small.complete(prompt, prompt_logprobs=0, max_tokens=1)["choices"][0]["prompt_logprobs"]
            assert len(told) == 61
            for following, entry in zip(prompt[1:], told[1:]):
                assert near(entry[str(following)]["logprob"], .25)


def chances_of(entry):
    """By token id, of prompt_logprobs or of a map whose tokens are named by their ids."""
    def value(told):
        return told["logprob"] if isinstance(told, dict) else told
    return {int(name.removeprefix("token_id:")): math.exp(value(told)) for name, told in entry.items()}


def test_j91_the_whole_vocabulary(serve):
    ids = {text: token(text.encode()) for text in X}
    with serve("--max-logprobs", "-1") as running:
        vocab = len(running.complete("P", logprobs=-1, max_tokens=1, return_tokens_as_token_ids=True)["choices"][0]["logprobs"]["top_logprobs"][0])
        assert vocab >= len(IDS)
        told = [running.complete("P", logprobs=-1, max_tokens=1, return_tokens_as_token_ids=True, **fields)["choices"][0]["logprobs"]["top_logprobs"][0]
                for fields in ({}, {"temperature": 1, "seed": 1}, {"logit_bias": {str(ids["x3"]): 100}})]
        told.append(running.complete([token("P"), ids["x1"]], prompt_logprobs=-1, max_tokens=1)["choices"][0]["prompt_logprobs"][1])
        for entry in told:
            chances = chances_of(entry)
            assert len(chances) == vocab and abs(sum(chances.values()) - 1) < 1e-4
            assert all(abs(chances[ids[text]] - chance) < 1e-3 for text, chance in X.items())
        assert sorted(one["rank"] for one in told[-1].values()) == list(range(1, vocab + 1))
        content = running.chat(logprobs=True, top_logprobs=-1, max_tokens=1)["choices"][0]["logprobs"]["content"]
        assert len(content[0]["top_logprobs"]) == vocab
        few, many = (running.complete("P", logprobs=n, max_tokens=1)["choices"][0]["logprobs"]["top_logprobs"][0] for n in (20, 21))
        assert all(abs(many[text] - value) < 1e-4 for text, value in few.items() if value > -20)
        streamed = running.events(COMPLETIONS, {"prompt": "P", "temperature": 0, "max_tokens": 1, "logprobs": 30, "return_tokens_as_token_ids": True})
        assert len(streamed[0]["choices"][0]["logprobs"]["top_logprobs"][0]) == 30


def test_j91_more_than_the_operator_allows(server):
    for path, body in ((COMPLETIONS, {"prompt": "P", "logprobs": -1}), (COMPLETIONS, {"prompt": "P", "logprobs": 21}),
                       (CHAT, chat_body(prompt_logprobs=-1))):
        assert error_of(server.post(path, body))["param"] in ("logprobs", "prompt_logprobs")


def test_j91_logprobs_of_named_tokens(server):
    x1, x2, x3 = (token(text.encode()) for text in X)
    fields = {"max_tokens": 1, "return_tokens_as_token_ids": True, "logprob_token_ids": [x3, x2, x3]}
    for logprobs, expected in ((0, {x1, x2, x3}), (1, {x1, x2, x3})):
        chances = chances_of(server.complete("P", logprobs=logprobs, **fields)["choices"][0]["logprobs"]["top_logprobs"][0])
        assert set(chances) == expected and all(abs(chances[id] - chance) < 1e-3 for id, chance in zip((x1, x2, x3), X.values()))
    body = chat_body(logprobs=True, logprob_token_ids=[x2, x1], max_tokens=3, return_tokens_as_token_ids=True)
    content = server.chat(**{name: value for name, value in body.items() if name != "messages"})["choices"][0]["logprobs"]["content"]
    assert len(content) == 3 and all({one["token"] for one in entry["top_logprobs"]} == {f"token_id:{x1}", f"token_id:{x2}"} for entry in content)
    for body in ({"logprob_token_ids": [x1]}, {"logprobs": 1, "logprob_token_ids": [10 ** 6]}, {"logprobs": 1, "logprob_token_ids": 5}):
        assert error_of(server.post(COMPLETIONS, {"prompt": "P", **body}))["param"] == "logprob_token_ids"


def test_j91_logits_in_place_of_logprobs(serve):
    with serve("--logprobs-mode", "raw_logits") as running:
        top = running.complete("P", logprobs=3, max_tokens=1)["choices"][0]["logprobs"]
        assert top["token_logprobs"][0] == top["top_logprobs"][0]["x1"]
        told = running.complete([token("P"), token(b"x3")], prompt_logprobs=3, max_tokens=1)["choices"][0]["prompt_logprobs"][1]
        for values in (top["top_logprobs"][0], {one["decoded_token"]: one["logprob"] for one in told.values()}):
            assert abs(values["x1"] - values["x2"] - math.log(.5 / .3)) < 1e-3 > abs(values["x2"] - values["x3"] - math.log(.3 / .2))
        assert error_of(running.post(COMPLETIONS, {"prompt": "P", "best_of": 2}))["param"] == "best_of"


def test_j91_logprobs_of_what_is_drawn_from(serve):
    ids = {name: token(name.encode()) for name in X}

    def told(running, **fields):
        answer = running.complete("P", logprobs=3, max_tokens=1, seed=1, **fields)["choices"][0]["logprobs"]
        return answer["token_logprobs"][0], answer["top_logprobs"][0]

    def expect(values, **parts):
        total = sum(parts.values())
        assert all(abs(values[name] - math.log(part / total)) < 1e-3 for name, part in parts.items()), values

    with serve("--logprobs-mode", "processed_logprobs") as running:
        chosen, top = told(running, temperature=1, top_k=2)
        expect(top, x1=.5, x2=.3)
        assert chosen in top.values() and min(top.values()) == -9999 and len(top) == 3
        expect(told(running, temperature=.5)[1], x1=.25, x2=.09, x3=.04)
        expect(told(running, temperature=0, logit_bias={str(ids["x3"]): 2})[1], x1=.5, x2=.3, x3=.2 * math.exp(2))
        expect(told(running, temperature=0, allowed_token_ids=[ids["x2"], ids["x3"]])[1], x2=.3, x3=.2)
        expect(told(running, temperature=1, logprob_token_ids=[ids["x3"]])[1], **X)
        prompt = running.complete([token("P"), ids["x3"]], prompt_logprobs=3, max_tokens=1, temperature=.5)["choices"][0]["prompt_logprobs"][1]
        expect({one["decoded_token"]: one["logprob"] for one in prompt.values()}, **X)
    with serve("--logprobs-mode", "processed_logits") as running:
        cold, warm = (told(running, temperature=heat)[1] for heat in (.5, 1))
        assert all(abs(cold[name] - 2 * warm[name]) < 1e-4 for name in X)


def test_j92_token_ids_as_tokens(server):
    logprobs = server.complete("P", logprobs=3, return_tokens_as_token_ids=True)["choices"][0]["logprobs"]
    assert logprobs["tokens"] == [f"token_id:{token(b'x1')}"] and len(logprobs["top_logprobs"][0]) == 3
    entries = server.chat(logprobs=True, top_logprobs=1, return_tokens_as_token_ids=True)["choices"][0]["logprobs"]["content"]
    assert all(entry["token"].startswith("token_id:") for entry in entries)


def test_j93_streamed_logprobs(server):
    for fields in ({}, {"stop": "STOP"}, {"stop": "a ST"}):
        whole = server.complete("S", logprobs=1, **fields)["choices"][0]["logprobs"]
        parts = [chunk["choices"][0]["logprobs"] for chunk in
                 server.events(COMPLETIONS, {"prompt": "S", "temperature": 0, "logprobs": 1, **fields})]
        for name, values in whole.items():
            assert [value for part in parts if part for value in part[name]] == values
        assert len(set(map(len, whole.values()))) == 1

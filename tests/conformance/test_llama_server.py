"""llama-server's own routes, by hand: the exact shapes that its clients read (checks 118 and 119)."""
import json
import pathlib

import pytest

import make_scripted_model as script
from conftest import CONTEXT, Running

IDS = script.vocabulary()
POOLING = pathlib.Path(__file__).parents[1] / "pooling"
WHOLE = {"index", "content", "tokens", "id_slot", "stop", "model", "tokens_predicted", "tokens_evaluated",
         "generation_settings", "prompt", "has_new_line", "truncated", "stop_type", "stopping_word", "tokens_cached",
         "timings"}
EVENT = {"index", "content", "tokens", "stop", "id_slot", "tokens_predicted", "tokens_evaluated"}
TIMINGS = {"cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_n", "predicted_ms",
           "predicted_per_token_ms", "predicted_per_second"}


def post(server, path, status=200, **body):
    got, _, text = server.post(path, body)
    assert got == status, text
    return json.loads(text)


def complete(server, prompt, **fields):
    return post(server, "/completion", prompt=prompt, temperature=0, **fields)


def events(server, prompt, **fields):
    status, headers, text = server.post("/completion", {"prompt": prompt, "temperature": 0, "stream": True, **fields})
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    assert "[DONE]" not in text and text.endswith("\n\n")
    return [json.loads(event.removeprefix("data: ")) for event in text.split("\n\n") if event]


def error_of(server, path, status=400, **body):
    error = post(server, path, status, **body)["error"]
    assert error["code"] == status and isinstance(error["message"], str) and isinstance(error["type"], str)
    return error


def test_p119_completion_says_what_completions_say(server):
    answer = complete(server, "A", return_tokens=True)
    theirs = server.complete("A", return_token_ids=True)
    assert set(answer) == WHOLE and set(answer["timings"]) == TIMINGS
    assert answer["content"] == theirs["choices"][0]["text"]
    assert answer["tokens"] == theirs["choices"][0]["token_ids"]
    assert (answer["tokens_evaluated"], answer["tokens_predicted"]) == (
        theirs["usage"]["prompt_tokens"], theirs["usage"]["completion_tokens"])
    assert answer["stop"] is True and answer["stop_type"] == "eos" and answer["truncated"] is False
    assert answer["timings"]["predicted_n"] == answer["tokens_predicted"]
    assert answer["timings"]["prompt_n"] + answer["timings"]["cache_n"] == answer["tokens_evaluated"]
    assert complete(server, "A")["tokens"] == []
    assert post(server, "/completions", prompt="A", temperature=0)["content"] == answer["content"]


def test_stream(server):
    said = events(server, "A")
    assert all(set(event) == EVENT and event["stop"] is False for event in said[:-1])
    assert set(said[-1]) == WHOLE and said[-1]["stop"] is True and said[-1]["content"] == ""
    assert "".join(event["content"] for event in said) == complete(server, "A")["content"]
    assert [event["tokens_predicted"] for event in said[:-1]] == list(range(1, len(said)))
    assert all(set(event["timings"]) == TIMINGS for event in events(server, "A", timings_per_token=True))


def test_stops(server):
    assert complete(server, "S", stop=["STOP"])["stopping_word"] == "STOP"
    assert complete(server, "S", stop=["STOP"])["stop_type"] == "word"
    limited = complete(server, "L", n_predict=3)
    assert (limited["content"], limited["stop_type"], limited["tokens_predicted"]) == (" la la la", "limit", 3)
    endless = complete(server, "L", n_predict=-1)
    assert endless["truncated"] and endless["tokens_evaluated"] + endless["tokens_predicted"] == CONTEXT
    assert complete(server, "L", n_predict=2, ignore_eos=True)["content"] == " la la"


def test_prompts(server):
    ids = post(server, "/tokenize", content="hello A", add_special=True)["tokens"]
    text = complete(server, "hello A")["content"]
    assert complete(server, ids)["content"] == text
    assert complete(server, [*ids[:-1], "A"])["content"] == text
    several = complete(server, ["A", ids, {"prompt_string": "S"}])
    assert [one["index"] for one in several] == [0, 1, 2]
    assert [one["content"] for one in several] == [complete(server, "A")["content"], text, complete(server, "S")["content"]]
    rendered = post(server, "/apply-template", messages=[{"role": "user", "content": "hi"}])["prompt"]
    assert rendered.endswith("<|im_start|>assistant\n")
    again = complete(server, rendered)  # special tokens of a prompt count as such
    assert again["tokens_evaluated"] == server.chat()["usage"]["prompt_tokens"]
    assert again["content"] == server.chat()["choices"][0]["message"]["content"]
    for bad in (5, [], [[]], [10 ** 6], {"prompt_string": "a", "multimodal_data": ["aGk="]}):
        error_of(server, "/completion", prompt=bad)


def test_settings(server):
    asked = {"temperature": 0.5, "top_k": 7, "top_p": 0.25, "min_p": 0.125, "repeat_penalty": 1.5, "repeat_last_n": 9,
             "seed": 42, "n_predict": 2, "stop": ["x"], "n_probs": 2}
    settings = post(server, "/completion", prompt="A", **asked)["generation_settings"]
    assert {name: settings[name] for name in asked} == asked
    chosen = post(server, "/completion", prompt="A", n_predict=2, response_fields=["content", "generation_settings/n_predict"])
    assert set(chosen) == {"content", "generation_settings/n_predict"} and chosen["generation_settings/n_predict"] == 2
    defaults = json.loads(server.get("/props")[2])["default_generation_settings"]["params"]
    assert set(defaults) == set(settings) and defaults["n_predict"] == -1


def test_probabilities(server):
    answer = complete(server, "A", n_probs=3)
    theirs = server.complete("A", logprobs=3)["choices"][0]["logprobs"]
    told = answer["completion_probabilities"]
    assert [one["logprob"] for one in told] == pytest.approx(theirs["token_logprobs"], abs=1e-5)
    for one in told:
        assert set(one) == {"id", "token", "bytes", "logprob", "top_logprobs"} and len(one["top_logprobs"]) == 3
        assert bytes(one["bytes"]).decode(errors="replace") == one["token"]
    assert sum(len(event.get("completion_probabilities", [])) for event in events(server, "A", n_probs=1)) == len(told)


def test_constraints(server):
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    assert json.loads(complete(server, "A", json_schema=schema)["content"])["a"] in (1, 2)
    assert complete(server, "A", grammar='root ::= "yes" | "no"')["content"] in ("yes", "no")
    assert complete(server, "A", grammar="", json_schema=None)["content"] == complete(server, "A")["content"]
    error_of(server, "/completion", prompt="A", grammar="root ::= (")


def test_bias_and_samplers(server):
    seven, capital = (IDS[script.spell(text)] for text in (b" seven", b"The capital"))
    assert complete(server, "A", n_predict=1, logit_bias=[[seven, 100]])["content"] == " seven"
    assert complete(server, "A", n_predict=1, logit_bias={str(seven): 100})["content"] == " seven"
    assert complete(server, "A", n_predict=1, logit_bias=[["hello", 100]])["content"] == "hello"
    assert complete(server, "A", n_predict=1)["content"] == "The capital"
    assert complete(server, "A", n_predict=1, logit_bias=[[capital, False]])["content"] != "The capital"
    for off in ({"mirostat": 2}, {"xtc_probability": 0.1}, {"dry_multiplier": 1}, {"post_sampling_probs": True}):
        error_of(server, "/completion", prompt="A", **off)
    assert post(server, "/completion", prompt="A", samplers=["temperature", "top_k"], top_k=1, n_predict=2)["content"]


def test_infill(server):
    answer = post(server, "/infill", input_prefix="A", input_suffix="hello", temperature=0)
    assert answer["content"] == "filled in" and set(answer) == WHOLE
    assert answer["prompt"].endswith("<|fim_middle|>") and "<|fim_suffix|>hello" in answer["prompt"]
    more = post(server, "/infill", input_prefix="A", input_suffix="b", input_extra=[{"filename": "x", "text": "extra"}], n_predict=1)
    assert "extra" in more["prompt"].split("<|fim_prefix|>")[0]
    error_of(server, "/infill", input_prefix="A")


def test_cache_prompt(server):
    prompt = "the same words again and again and again and again S"
    complete(server, prompt)
    assert complete(server, prompt)["tokens_cached"] > 0
    assert complete(server, prompt, cache_prompt=False)["tokens_cached"] == 0


def test_p118_tokens(server):
    text = "h\u00e9llo \U0001F600 hello"
    tokens = post(server, "/tokenize", content=text)
    assert set(tokens) == {"tokens"}
    assert post(server, "/detokenize", tokens=tokens["tokens"])["content"] == text
    assert post(server, "/tokenize", content=text, add_special=True)["tokens"][1:] == tokens["tokens"]
    assert len(post(server, "/tokenize", content="<|im_end|>")["tokens"]) == 1
    assert len(post(server, "/tokenize", content="<|im_end|>", parse_special=False)["tokens"]) > 1
    pieces = post(server, "/tokenize", content=text, with_pieces=True)["tokens"]
    spelled = [piece["piece"].encode() if isinstance(piece["piece"], str) else bytes(piece["piece"]) for piece in pieces]
    assert b"".join(spelled).decode() == text
    theirs = post(server, "/tokenize", prompt=text)
    assert theirs["count"] == len(theirs["tokens"]) and theirs["max_model_len"] == CONTEXT


def test_server_state(server):
    props = json.loads(server.get("/props")[2])
    assert {"default_generation_settings", "total_slots", "model_path", "chat_template", "build_info", "modalities"} <= set(props)
    assert props["default_generation_settings"]["n_ctx"] == CONTEXT and "<|im_start|>" in props["chat_template"]
    slots = json.loads(server.get("/slots")[2])
    assert len(slots) == props["total_slots"] and {"id", "n_ctx", "is_processing"} <= set(slots[0])
    for path in ("/health", "/v1/health"):
        assert json.loads(server.get(path)[2]) == {"status": "ok"}
    assert json.loads(server.get("/models")[2]) == json.loads(server.get("/v1/models")[2])
    assert json.loads(server.get("/lora-adapters")[2]) == []


def test_aliases(server):
    body = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}
    assert post(server, "/chat/completions", **body)["choices"] == server.chat()["choices"]


def test_embedding():
    running = Running(POOLING / "qwen3_embedding", "--max-model-len", "120")
    texts = ["Hello world", "a"]
    theirs = post(running, "/v1/embeddings", input=texts, normalize=True)["data"]
    for path in ("/embedding", "/embeddings"):
        answer = post(running, path, content=texts)
        assert answer == [{"index": one["index"], "embedding": [one["embedding"]]} for one in theirs]
    assert post(running, "/embedding", input="a")[0]["embedding"][0] == pytest.approx(theirs[1]["embedding"], abs=1e-6)
    error_of(running, "/completion", prompt="A")
    assert running.stop() == 0


def test_errors(server):
    assert error_of(server, "/completion")["type"] == "invalid_request_error"
    full = error_of(server, "/completion", prompt="word " * 300)
    assert full["type"] == "exceed_context_size_error" and full["n_ctx"] == CONTEXT and full["n_prompt_tokens"] > CONTEXT
    assert error_of(server, "/completion", 404, prompt="A", model="none")["type"] == "not_found_error"
    assert json.loads(server.get("/completion")[2])["error"]["code"] == 405

"""Section N of the checklist: /v1/embeddings, with its neighbours /v1/score and /v1/rerank; numbers are those of the list."""
import base64
import json
import math
import pathlib
import struct
import threading

import openai
import pytest

from conftest import error_of, servers

POOLING = pathlib.Path(__file__).parents[1] / "pooling"
TEXTS = ["Hello world", "a", "The cat sits on the mat", "one two three four five six seven"]
LIMIT = 120


@pytest.fixture(scope="session")
def start():
    """start(model, flags...): a server of a model of tests/pooling."""
    with servers() as of:
        yield lambda name, *flags: of(POOLING / name, *flags)


@pytest.fixture(scope="session")
def embedder(start):
    return start("qwen3_embedding", "--max-model-len", str(LIMIT), "--served-model-name", "org/embedder")


@pytest.fixture(scope="session")
def scorer(start):
    return start("qwen3_score", "--max-model-len", str(LIMIT))


def vectors(server, texts, **fields):
    status, _, text = server.post("/v1/embeddings", {"input": texts, **fields})
    assert status == 200, text
    return json.loads(text)


def bits(values):
    return struct.pack(f"<{len(values)}f", *values)


def near(a, b, limit=1e-6):
    return len(a) == len(b) and all(abs(x - y) <= limit for x, y in zip(a, b))


def expected_of(name):
    return json.loads((POOLING / name / "expected.json").read_text())


def test_n110_float_and_base64_have_the_same_bits(embedder):
    floats = vectors(embedder, TEXTS)["data"]
    packed = vectors(embedder, TEXTS, encoding_format="base64")["data"]
    for one, other in zip(floats, packed, strict=True):
        assert bits(one["embedding"]) == base64.b64decode(other["embedding"], validate=True)


def test_n110_the_openai_client_reads_what_it_asks_for(embedder):
    packed = embedder.client(max_retries=0).embeddings.create(model="org/embedder", input=TEXTS)  # asks for base64
    strict = embedder.client(max_retries=0, _strict_response_validation=True)
    plain = strict.embeddings.create(model="org/embedder", input=TEXTS, encoding_format="float")
    assert [one.index for one in packed.data] == list(range(len(TEXTS)))
    assert all(bits(a.embedding) == bits(b.embedding) for a, b in zip(packed.data, plain.data, strict=True))
    assert packed.model == "org/embedder" and packed.object == "list"


def test_n110_order_and_usage_are_those_of_the_input(embedder):
    together = vectors(embedder, TEXTS)
    alone = [vectors(embedder, text) for text in TEXTS]
    assert [one["index"] for one in together["data"]] == list(range(len(TEXTS)))
    for one, other in zip(together["data"], alone, strict=True):
        assert one["embedding"] == other["data"][0]["embedding"]  # a batch changes no bit
    total = sum(one["usage"]["prompt_tokens"] for one in alone)
    assert together["usage"] == {"prompt_tokens": total, "total_tokens": total}


def test_n110_vectors_are_those_of_sentence_transformers(embedder):
    cases = expected_of("qwen3_embedding")["cases"]
    got = vectors(embedder, [case["text"] for case in cases])["data"]
    for case, one in zip(cases, got, strict=True):
        assert near(one["embedding"], case["vector"], 1e-3)
        assert math.isclose(sum(x * x for x in one["embedding"]), 1, rel_tol=1e-5)


def test_n111_token_ids_are_the_string(embedder):
    for case in expected_of("qwen3_embedding")["cases"]:
        by_text = vectors(embedder, case["text"])
        by_ids = vectors(embedder, case["ids"])
        assert by_text["data"] == by_ids["data"] == vectors(embedder, [case["ids"]])["data"]
        assert by_text["usage"] == by_ids["usage"]


@pytest.mark.parametrize("wrong", ["", [], [""], 5, {}, ["a", 5], [[]], [1, -1], [1, 10**6], ["a"] * 2049, None])
def test_n111_bad_input(embedder, wrong):
    assert error_of(embedder.post("/v1/embeddings", {"input": wrong}))["param"] == "input"


def test_n111_a_text_that_is_too_long(embedder):
    error = error_of(embedder.post("/v1/embeddings", {"input": ["a", "one two three " * 500]}), code="context_length_exceeded")
    assert f"maximum context length is {LIMIT} tokens" in error["message"]
    cut = vectors(embedder, "one two three " * 500, truncate_prompt_tokens=-1)
    assert cut["usage"]["prompt_tokens"] == LIMIT
    assert vectors(embedder, "Hello world", truncate_prompt_tokens=4)["usage"]["prompt_tokens"] == 4
    error_of(embedder.post("/v1/embeddings", {"input": "a", "truncate_prompt_tokens": LIMIT + 1}))


def test_n111_dimensions(embedder, start):
    whole = vectors(embedder, "Hello world")["data"][0]["embedding"]
    cut = vectors(embedder, "Hello world", dimensions=8)["data"][0]["embedding"]
    length = math.sqrt(sum(x * x for x in whole[:8]))
    assert near(cut, [x / length for x in whole[:8]])
    assert vectors(embedder, "Hello world", dimensions=len(whole))["data"][0]["embedding"] == whole
    for wrong in (0, -1, len(whole) + 1, 2.5, "8"):
        assert error_of(embedder.post("/v1/embeddings", {"input": "a", "dimensions": wrong}))["param"] == "dimensions"
    other = start("qwen3_mean")  # its files declare no shorter vectors
    assert error_of(other.post("/v1/embeddings", {"input": "a", "dimensions": 8}), code="unsupported_parameter")


def test_n111_a_model_that_makes_text_refuses(server):
    for path, body in (("/v1/embeddings", {"input": "a"}), ("/v1/score", {"text_1": "a", "text_2": "b"}),
                       ("/v1/rerank", {"query": "a", "documents": ["b"]})):
        error = error_of(server.post(path, body), code="unsupported_model")
        assert "makes text" in error["message"]


def test_n111_a_model_that_makes_vectors_refuses_text(embedder, scorer):
    client = embedder.client(max_retries=0)
    with pytest.raises(openai.BadRequestError, match="makes embeddings"):
        client.chat.completions.create(model="org/embedder", messages=[{"role": "user", "content": "hi"}])
    error_of(embedder.post("/v1/completions", {"prompt": "hi"}), code="unsupported_model")
    error_of(scorer.post("/v1/embeddings", {"input": "hi"}), code="unsupported_model")


def test_the_task_is_shown(embedder, scorer, server):
    tasks = [json.loads(one.get("/v1/models")[2])["data"][0]["task"] for one in (embedder, scorer, server)]
    assert tasks == ["embed", "score", "generate"]


def test_prompts_of_the_model_go_before_the_text(embedder):
    prompted = expected_of("qwen3_embedding")["prompted"]
    got = vectors(embedder, prompted["text"], prompt_name=prompted["name"])["data"][0]["embedding"]
    assert near(got, prompted["vector"], 1e-3)
    assert error_of(embedder.post("/v1/embeddings", {"input": "a", "prompt_name": "x"}))["param"] == "prompt_name"


def test_many_texts_in_one_request_and_many_requests(start):
    small = start("qwen3_embedding", "--max-num-seqs", "4", "--max-queued-requests", "8")
    many = vectors(small, [f"text {i}" for i in range(300)])
    assert [one["index"] for one in many["data"]] == list(range(300))
    results = []
    threads = [threading.Thread(target=lambda i=i: results.append((i, vectors(small, [f"text {i}", "a"])))) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, one in results:
        assert one["data"][0]["embedding"] == many["data"][i]["embedding"]
    before = small.metric("vllm:request_success_total", finished_reason="stop")
    assert before == 310
    assert small.metric("vllm:prompt_tokens_total") == many["usage"]["prompt_tokens"] + sum(
        one["usage"]["prompt_tokens"] for _, one in results)


def test_a_client_that_goes_away_frees_the_engine(start):
    slow = start("qwen3_mean", "--max-num-seqs", "1", "--max-num-batched-tokens", "16")
    connection = slow.connect()
    body = json.dumps({"input": ["one two three " * 8] * 2000})
    connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    while slow.metric("vllm:num_requests_running") == 0:
        pass
    connection.close()
    slow.wait_idle()
    assert slow.metric("vllm:request_success_total", finished_reason="abort") == 1


def test_scores_of_pairs(scorer):
    cases = expected_of("qwen3_score")["cases"]
    firsts, seconds = [case["pair"][0] for case in cases], [case["pair"][1] for case in cases]
    status, _, text = scorer.post("/v1/score", {"text_1": firsts, "text_2": seconds})
    assert status == 200, text
    answer = json.loads(text)
    assert answer["object"] == "list" and [one["index"] for one in answer["data"]] == list(range(len(cases)))
    assert all(one["object"] == "score" for one in answer["data"])
    assert near([one["score"] for one in answer["data"]], [case["score"] for case in cases], 1e-3)
    assert answer["usage"]["prompt_tokens"] == sum(len(case["ids"]) for case in cases)
    raw = json.loads(scorer.post("/score", {"text_1": firsts, "text_2": seconds, "use_activation": False})[2])
    assert near([one["score"] for one in raw["data"]], [case["logit"] for case in cases], 1e-3)
    for wrong in ({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, {"text_1": "a"}, {"text_1": "a", "text_2": []},
                  {"text_1": "a", "text_2": 5}, {"text_1": "a", "text_2": "one two three " * 500}):
        error_of(scorer.post("/v1/score", wrong))


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_ranking(scorer, path):
    documents = TEXTS
    answer = json.loads(scorer.post(path, {"query": "what is a cat", "documents": documents})[2])
    results = answer["results"]
    scores = [one["relevance_score"] for one in results]
    assert scores == sorted(scores, reverse=True) and sorted(one["index"] for one in results) == [0, 1, 2, 3]
    assert all(one["document"] == {"text": documents[one["index"]]} for one in results)
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 0 and answer["id"]
    best = json.loads(scorer.post(path, {"query": "what is a cat", "documents": [{"text": text} for text in documents],
                                         "top_n": 2, "return_documents": False})[2])["results"]
    assert [one["index"] for one in best] == [one["index"] for one in results[:2]]
    assert all("document" not in one for one in best)
    for wrong in ({"query": "a"}, {"documents": ["a"]}, {"query": "a", "documents": []}, {"query": 5, "documents": ["a"]},
                  {"query": "a", "documents": ["b"], "top_n": -1}):
        error_of(scorer.post(path, wrong))


def test_ranking_by_vectors(embedder):
    results = json.loads(embedder.post("/v1/rerank", {"query": TEXTS[2], "documents": TEXTS})[2])["results"]
    assert results[0]["index"] == 2 and math.isclose(results[0]["relevance_score"], 1, abs_tol=1e-6)


def test_a_language_model_that_says_yes_or_no(start):
    judge = start("qwen3_reranker", "--task", "score")
    cases = expected_of("qwen3_reranker")["cases"]
    body = {"text_1": [case["pair"][0] for case in cases], "text_2": [case["pair"][1] for case in cases]}
    answer = json.loads(judge.post("/v1/score", {**body, "use_activation": False})[2])
    assert near([one["score"] for one in answer["data"]], [case["logit"] for case in cases], 0.02)
    assert answer["usage"]["prompt_tokens"] == sum(len(case["ids"]) for case in cases)

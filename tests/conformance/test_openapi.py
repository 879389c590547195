"""/openapi.json: every request that can be made of it is answered without a 5xx, and others are still served."""
import json
import os

import pytest
import jsonschema
import schemathesis
from hypothesis import HealthCheck, Phase, errors, given, settings

from conftest import chat_body, error_of
from test_embeddings import embedder, scorer, start  # noqa: F401
from test_tools import TOOLS, hermes, talk  # noqa: F401

CASES = int(os.environ.get("QUERN_SCHEMATHESIS_CASES", "300"))


@pytest.fixture(scope="module")
def document(server):
    status, _, text = server.get("/openapi.json")
    assert status == 200, text
    return json.loads(text)


def test_d39_the_document_tells_what_is_refused(server, document):
    fields = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert fields["required"] == ["messages"]
    assert fields["properties"]["temperature"] == {"type": ["number", "null"], "minimum": 0, "maximum": 2,
                                                   "description": fields["properties"]["temperature"]["description"]}
    body = {"messages": [{"role": "user", "content": "hi"}], "temperature": 2.5}
    assert error_of(server.post("/v1/chat/completions", body))["param"] == "temperature"
    assert fields["properties"]["stream_options"]["properties"]["include_usage"]["type"] == ["boolean", "null"]


def test_d39_no_5xx(server, document):
    """Bodies that fit the document and such that do not, for all routes; a usual request is answered all the while."""
    operations = [result.ok() for result in schemathesis.openapi.from_dict(document).get_all_operations()]
    assert len(operations) >= len(document["paths"])
    share = CASES // sum(1 for operation in operations if operation.body)
    asked = 0

    def check(case):
        nonlocal asked
        answer = case.call(base_url=server.url, timeout=60)
        assert answer.status_code < 500, (case.as_curl_command(), answer.text)
        asked += 1
        if asked % 100 == 0:
            assert server.text("abcA", max_tokens=3)

    for operation in operations:
        for mode in schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE:
            run(operation.as_strategy(generation_mode=mode), check, max(1, share // 2))
    assert asked >= CASES // 2


def run(strategy, check, cases):
    limits = settings(max_examples=cases, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
                      suppress_health_check=list(HealthCheck))
    try:
        limits(given(strategy)(lambda case: check(case)))()
    except errors.Unsatisfiable:  # where nothing is sent nothing can be wrong
        pass


def hold(document, server, path, body=None):
    """A real answer, held to what the document says of it."""
    method = "get" if body is None else "post"
    status, _, text = server.call(method.upper(), path, body)
    assert status == 200, text
    route = "/v1/models/{id}" if path.startswith("/v1/models/") else path
    schema = document["paths"][route][method]["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema.Draft202012Validator(schema).validate(json.loads(text))


LOGPROBS = {"logprobs": True, "top_logprobs": 2, "prompt_logprobs": 1, "return_token_ids": True}


def test_d39_answers_are_what_the_document_says(server, document):
    for fields in ({}, LOGPROBS, {"stop": "from"}, {"max_tokens": 1}, {"n": 2, "service_tier": "auto"}, {"response_format": {"type": "json_object"}}):
        hold(document, server, "/v1/chat/completions", chat_body(**fields))
    for fields in ({}, {**LOGPROBS, "logprobs": 2, "top_logprobs": None}, {"echo": True, "logprobs": 1}, {"stop": "of"}, {"stop_token_ids": [30]},
                   {"suffix": "x"}, {"prompt": ["A", "S"], "n": 2, "temperature": 1}, {"max_tokens": 0, "echo": True}):
        hold(document, server, "/v1/completions", {"prompt": "A", "temperature": 0, **fields})
    for path in "/v1/models", "/v1/models/alias", "/version":
        hold(document, server, path)


def test_d39_calls_and_reasoning_are_what_the_document_says(hermes, document):  # noqa: F811
    for ask in ("C", "K", "\n"):
        hold(document, hermes, "/v1/chat/completions", chat_body(ask, tools=TOOLS))


def test_d39_vectors_and_scores_are_what_the_document_says(embedder, scorer, document):  # noqa: F811
    hold(document, embedder, "/v1/embeddings", {"input": ["a", "b"]})
    hold(document, embedder, "/v1/embeddings", {"input": "a", "encoding_format": "base64"})
    for server in embedder, scorer:
        hold(document, server, "/v1/score", {"text_1": "a", "text_2": ["b", "c"]})
        hold(document, server, "/v1/rerank", {"query": "a", "documents": ["b", "c"], "top_n": 1})
        hold(document, server, "/v1/rerank", {"query": "a", "documents": ["b"], "return_documents": False})

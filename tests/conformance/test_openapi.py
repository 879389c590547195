"""/openapi.json: every request that can be made of it is answered without a 5xx, and others are still served.

`make test` makes about 300 of them, `make fuzz` 10,000 (QUERN_SCHEMATHESIS_CASES)."""
import json
import os

import pytest
import jsonschema
import schemathesis
from hypothesis import HealthCheck, Phase, errors, given, settings

from conftest import chat_body, error_of
from test_embeddings import embedder, scorer, start  # noqa: F401
from test_http import PARIS
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
    """Bodies that fit the document and such that do not, for all routes; a usual request is answered after each hundred."""
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
            assert server.text("A") == PARIS

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


def told(document, path, method, kind):
    """What the document says of an answer, as a judge of one."""
    route = "/v1/models/{id}" if path.startswith("/v1/models/") else path
    schema = document["paths"][route][method]["responses"]["200"]["content"][kind]["schema"]
    return jsonschema.Draft202012Validator({**schema, "components": document["components"]})


def hold(document, server, path, body=None):
    """A real answer, held to what the document says of it."""
    method = "get" if body is None else "post"
    status, _, text = server.call(method.upper(), path, body)
    assert status == 200, text
    told(document, path, method, "application/json").validate(json.loads(text))
    return json.loads(text)


def hold_stream(document, server, path, body):
    """The same for every event or line of a streamed answer; the data of all of them."""
    status, headers, text = server.post(path, {**body, "stream": True})
    assert status == 200, text
    kind = headers["content-type"].split(";")[0]
    if kind == "application/x-ndjson":
        data = [json.loads(line) for line in text.splitlines()]
    else:
        said = [line for line in text.splitlines() if line.startswith("data: ")]
        data = [json.loads(line.removeprefix("data: ")) for line in said if line != "data: [DONE]"]
    judge = told(document, path, "post", kind)
    for one in data:
        judge.validate(one)
        if one:  # that the judge would see what is missing
            with pytest.raises(jsonschema.ValidationError):
                judge.validate({**one, "no such member": 1})
    assert data
    return data


def name_of(server):
    return json.loads(server.get("/v1/models")[2])["data"][0]["id"]


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
    name = name_of(hermes)
    named = [{"name": tool["function"]["name"], "input_schema": tool["function"].get("parameters", {"type": "object"})} for tool in TOOLS]
    flat = [{"type": "function", **tool["function"]} for tool in TOOLS]
    for ask in ("C", "K", "\n"):
        body = chat_body(ask, tools=TOOLS)
        hold(document, hermes, "/v1/chat/completions", body)
        hold_stream(document, hermes, "/v1/chat/completions", body)
        for path, tools in (("/v1/messages", {"tools": named, "max_tokens": 200}), ("/api/chat", {"tools": TOOLS})):
            more = {**body, "model": name, **tools}
            hold(document, hermes, path, {**more, "stream": False})
            hold_stream(document, hermes, path, more)
        answer = {"model": name, "input": "hi", "tools": flat, "temperature": 0, "chat_template_kwargs": {"ask": ask}}
        hold(document, hermes, "/v1/responses", answer)
        hold_stream(document, hermes, "/v1/responses", answer)


def test_d39_streams_are_what_the_document_says(server, document):
    usage = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    logprobs = {"logprobs": True, "top_logprobs": 2, "return_token_ids": True}
    for fields in ({}, usage, logprobs, {"stop": "from"}, {"max_tokens": 1}, {"n": 2, "stream_options": {"include_usage": True}}):
        hold_stream(document, server, "/v1/chat/completions", chat_body(**fields))
    for fields in ({}, usage, {**logprobs, "logprobs": 2, "top_logprobs": None}, {"echo": True, "logprobs": 1}, {"stop": "of"},
                   {"stop_token_ids": [30]}, {"prompt": ["A", "S"], "n": 2, "temperature": 1}):
        hold_stream(document, server, "/v1/completions", {"prompt": "A", "temperature": 0, **fields})
    hi = {"model": "alias", "messages": [{"role": "user", "content": "hi"}]}
    for fields in ({}, {"stop_sequences": ["from"]}, {"max_tokens": 1}):
        hold(document, server, "/v1/messages", {"max_tokens": 100, **hi, **fields})
        hold_stream(document, server, "/v1/messages", {"max_tokens": 100, **hi, **fields})
    hold(document, server, "/v1/messages/count_tokens", hi)


def test_d39_responses_are_what_the_document_says(server, document):
    for fields in ({}, {"include": ["message.output_text.logprobs"], "top_logprobs": 2}, {"max_output_tokens": 1}, {"metadata": {"a": "b"}},
                   {"instructions": "Be brief.", "reasoning": {"effort": "low"}, "text": {"format": {"type": "json_object"}}, "max_output_tokens": 8}):
        body = {"model": "alias", "input": "hi", "temperature": 0, **fields}
        hold(document, server, "/v1/responses", body)
        names = [event["type"] for event in hold_stream(document, server, "/v1/responses", body)]
        assert names[0] == "response.created" and names[-1] in ("response.completed", "response.incomplete")
    hold(document, server, "/v1/responses/input_tokens", {"model": "alias", "input": "hi"})


def test_d39_ollamas_answers_are_what_the_document_says(server, document):
    hi = {"messages": [{"role": "user", "content": "hi"}]}
    scored = {"logprobs": True, "top_logprobs": 2}
    for path, body in (("/api/chat", hi), ("/api/chat", {**hi, **scored}), ("/api/chat", {}), ("/api/generate", {"prompt": "A"}),
                       ("/api/generate", {"prompt": "A", "raw": True, **scored}), ("/api/generate", {"keep_alive": -1})):
        body = {"model": "alias", **body}
        hold(document, server, path, {**body, "stream": False})
        if "prompt" in body or "messages" in body:
            hold_stream(document, server, path, body)
    for path in "/api/tags", "/api/ps", "/api/version":
        hold(document, server, path)
    hold(document, server, "/api/show", {"model": "alias"})


def test_p119_requests_about_models_are_told(server, document):
    def fields(path, method):
        return document["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]
    assert {"model", "name", "verbose"} <= set(fields("/api/show", "post")["properties"])
    assert fields("/api/copy", "post")["required"] == ["source", "destination"]
    assert fields("/api/pull", "post")["properties"]["stream"]["type"] == ["boolean", "null"]
    assert "model" in fields("/api/delete", "delete")["properties"]
    status, headers, _ = server.post("/api/show", {"model": "alias", "verbos": True})
    assert status == 200 and headers["x-unknown-fields"] == "verbos"
    for body, message in (({"model": 5}, "'model': expected a string"), ({"model": "alias", "template": "x"}, "'template'"), ({}, "model is required")):
        status, _, text = server.post("/api/show", body)
        assert status == 400 and message in json.loads(text)["error"]


def test_d39_vectors_and_scores_are_what_the_document_says(embedder, scorer, document):  # noqa: F811
    hold(document, embedder, "/v1/embeddings", {"input": ["a", "b"]})
    hold(document, embedder, "/v1/embeddings", {"input": "a", "encoding_format": "base64"})
    name = name_of(embedder)
    hold(document, embedder, "/api/embed", {"model": name, "input": ["a", "b"]})
    hold(document, embedder, "/api/embeddings", {"model": name, "prompt": "a"})
    for server in embedder, scorer:
        hold(document, server, "/v1/score", {"text_1": "a", "text_2": ["b", "c"]})
        hold(document, server, "/v1/rerank", {"query": "a", "documents": ["b", "c"], "top_n": 1})
        hold(document, server, "/v1/rerank", {"query": "a", "documents": ["b"], "return_documents": False})

"""Sections A to D of the checklist: discovery, transport, keys, errors and validation. B14's header that never ends is in
src/net/net_test.cc."""
import json
import socket
import subprocess
import time
from concurrent import futures
from random import Random

import openai
import pytest

from conftest import CONTEXT, QUERN, chat_body, error_of

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
PARIS = "The capital of France is Paris ."


def raw(server, *pieces, pause=0.0):
    """Sends bytes as they are and reads until the server closes or is quiet."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(pause)
        connection.settimeout(1.5)
        text = b""
        try:
            while part := connection.recv(65536):
                text += part
        except TimeoutError:
            pass
        return text.decode()


def http_post(body, *headers):
    head = [f"POST {COMPLETIONS} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


# A. Models and discovery

def test_a1_a2_models(server, client):
    for entry, name in zip(json.loads(server.get("/v1/models")[2])["data"], ["org/scripted", "alias"], strict=True):
        assert entry["id"] == name and entry["object"] == "model"
        assert isinstance(entry["created"], int) and isinstance(entry["owned_by"], str)
        assert entry["max_model_len"] == CONTEXT
    assert [model.id for model in client.models.list()] == ["org/scripted", "alias"]
    assert 'model_name="org/scripted"' in server.get("/metrics")[2]


def test_a3_a4_one_model(server, client):
    assert client.models.retrieve("org/scripted").id == "org/scripted"
    assert server.get("/v1/models/org/scripted")[2] == server.get("/v1/models/org%2Fscripted")[2]
    assert server.get("/v1//models")[2] == server.get("/v1/models/")[2] == server.get("/v1/models")[2]
    error_of(server.get("/v1/models/none"), 404, "model_not_found")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("none")


def test_a5_a6_version_and_front_page(server):
    version = json.loads(server.get("/version")[2])["version"]
    assert subprocess.run([QUERN, "--version"], capture_output=True, text=True).stdout.split()[-1] == version
    assert "Quern" in server.get("/")[2]
    assert server.call("HEAD", "/")[::2] == (200, "")


def test_a7_answers_under_the_name_asked_for(client):
    answer = client.chat.completions.create(model="alias", messages=[{"role": "user", "content": "x"}])
    assert answer.model == "alias"


# B. HTTP transport

def test_b8_b9_bad_json(server):
    connection = server.connect()
    for body in ['{"model":', "[]", '"x"', "null", ""]:
        connection.request("POST", CHAT, body)
        response = connection.getresponse()
        error = error_of((response.status, {}, response.read().decode()))
        assert "JSON" in error["message"]
    connection.close()


def test_b10_content_types(server):
    for kind in ("application/json; charset=utf-8", "application/json"):
        assert server.post(COMPLETIONS, '{"prompt":"A"}', Content_Type=kind)[0] == 200
    assert " 200 " in raw(server, http_post(b'{"prompt":"A"}', "Connection: close"))
    error_of(server.post(COMPLETIONS, '{"prompt":"A"}', Content_Type="text/plain"), 415)
    form = {"Content_Type": "application/x-www-form-urlencoded"}  # of `curl -d`, as Ollama's and llama-server's users type it
    assert "-H 'Content-Type" in error_of(server.post(COMPLETIONS, '{"prompt":"A"}', **form), 415)["message"]
    for path, body in ("/api/generate", '{"model":"alias","prompt":"A","stream":false}'), ("/completion", '{"prompt":"A","n_predict":2}'):
        assert server.post(path, body, **form)[0] == 200
        assert server.post(path, body, Origin="http://elsewhere.test", **form)[0] == 415


def test_b11_methods_and_routes(server):
    answer = server.get(CHAT)
    error_of(answer, 405)
    assert "POST" in answer[1]["allow"] and "OPTIONS" in answer[1]["allow"]
    error_of(server.get("/v1/none"), 404)


def test_b12_limits(server):
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n"
    assert raw(server, head.encode()).startswith("HTTP/1.1 413 ")
    assert raw(server, b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n").startswith("HTTP/1.1 431 ")


def test_b13_ways_to_send(server):
    body = b'{"prompt":"A","temperature":0}'
    chunked = (f"POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode()
               + b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n")
    assert "Paris" in raw(server, chunked)
    head, _, tail = http_post(body, "Expect: 100-continue", "Connection: close").partition(b"\r\n\r\n")
    answer = raw(server, head + b"\r\n\r\n", tail, pause=0.1)
    assert answer.startswith("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ") and "Paris" in answer
    old = f"POST {COMPLETIONS} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    assert "Paris" in raw(server, old)
    assert raw(server, http_post(body) * 3 + http_post(body, "Connection: close")).count("Paris") == 4
    connection = server.connect()
    for _ in range(1000):
        connection.request("GET", "/version")
        assert connection.getresponse().read()
    connection.close()


CHUNKED = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n".encode()


@pytest.mark.parametrize("nonsense", [
    b"\r\nxyz\r\nabc\r\n0\r\n\r\n", b"\r\n-1\r\nabc\r\n0\r\n\r\n", b"\r\n\r\nabc\r\n0\r\n\r\n", b"\r\n2\r\nabcdef\r\n0\r\n\r\n",
    b"\r\nfffffffffffffffff\r\nabc\r\n", b"\r\n3\r\nabc\r\n0\r\n" + b"x" * 100_000 + b"\r\n\r\n",
    b"\r\n" + b"0" * 100_000 + b"3\r\nabc\r\n", b"\r\n3;" + b"x" * 100_000 + b"\r\nabc\r\n",
    b"Content-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n", b"\r\n\xff\x00\r\n", b"\r\n3\rabc\r0\r\r",
])
def test_b13_chunked_nonsense(server, nonsense):
    """Chunks that are none end their connection with a 4xx; the next connection is served."""
    status = int(raw(server, CHUNKED + nonsense).split()[1])
    assert status in (400, 413, 431), status
    assert server.text("A") == PARIS


def test_b14_slow_senders(server):
    request = http_post(b'{"prompt":"A"}', "Connection: close")
    head, _, body = request.partition(b"\r\n\r\n")
    assert "200 OK" in raw(server, head + b"\r\n\r\n", *[body[i:i + 1] for i in range(len(body))], pause=0.01)


def test_b15_odd_json(server):
    assert json.loads(server.post(COMPLETIONS, '{"prompt":"L","max_tokens":3,"max_tokens":2}')[2])["usage"]["completion_tokens"] == 2
    for body in ['{"prompt":"A","temperature":NaN}', '{"prompt":"A","temperature":Infinity}', b'{"prompt":"\xff"}',
                 '{"prompt":"A","temperature":1e400}']:
        error_of(server.post(COMPLETIONS, body))
    assert server.post(COMPLETIONS, '{"prompt":"\\ud800 A"}')[0] in (200, 400)
    assert server.text("nul \0 A") == PARIS


def test_b16_deep_json_and_large_integers(server):
    for body in "[" * 10_000, '{"a":' * 10_000, "[" * 10_000 + "]" * 10_000:
        started = time.monotonic()
        error_of(server.post(CHAT, body))
        assert time.monotonic() - started < 0.5
    exact, next_to_it = (server.text("R", max_tokens=30, temperature=1, seed=2**53 + more) for more in (1, 0))
    assert exact != next_to_it  # a double holds only one of them


def test_b17_request_ids(server, client):
    assert server.get("/version", X_Request_Id="mine")[1]["x-request-id"] == "mine"
    assert len(server.get("/version", X_Request_Id="x" * 200)[1]["x-request-id"]) == 32
    answer = client.completions.create(model="alias", prompt="A", extra_headers={"X-Request-Id": "seen-in-the-log"})
    assert answer._request_id == "seen-in-the-log"
    server.wait_for_log("seen-in-the-log")


def test_b18_headers_of_sdks(server):
    headers = {"Accept_Encoding": "gzip", "x_stainless_lang": "python", "OpenAI_Organization": "o", "Idempotency_Key": "k", "anthropic_beta": "b"}
    assert server.post(COMPLETIONS, {"prompt": "A"}, **headers)[0] == 200


def test_b20_streams_are_not_compressed(server):
    """Who takes gzip gets its events as they are made, in the clear."""
    body = json.dumps({"prompt": "L", "max_tokens": 250, "stream": True, "ignore_eos": True}).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(http_post(body, "Accept-Encoding: gzip, deflate, br, zstd"))
        packets = []
        while not packets or not packets[-1].endswith(b"0\r\n\r\n"):
            packets.append(connection.recv(1 << 20))
    head, _, text = b"".join(packets).partition(b"\r\n\r\n")
    assert b"content-encoding" not in head.lower() and b"content-type: text/event-stream" in head.lower()
    assert text.count(b"data: {") == 250 and len(packets) > 10


def test_b19_preflight(server):
    status, headers, _ = server.call("OPTIONS", CHAT, Origin="http://page",
                                     Access_Control_Request_Headers="authorization, content-type, x-stainless-lang")
    assert status // 100 == 2
    assert headers["access-control-allow-origin"] == "*"
    assert "POST" in headers["access-control-allow-methods"]
    for name in ("authorization", "content-type", "x-stainless-lang"):
        assert name in headers["access-control-allow-headers"]


# C. Authentication

@pytest.fixture(scope="module")
def locked(serve):
    with serve("--api-key", "first-key", "--api-key", "second-key") as running:
        yield running


def test_c21_c22_keys(locked):
    error = error_of(locked.get("/v1/models"), 401)
    assert "API key" in error["message"]
    wrong = locked.get("/v1/models", Authorization="Bearer other-secret")
    error_of(wrong, 401, "invalid_api_key")
    assert "other-secret" not in wrong[2] and not any("other-secret" in line for line in list(locked.log))
    for headers in ({"Authorization": "Bearer first-key"}, {"Authorization": "bearer second-key"}, {"x_api_key": "first-key"}):
        assert locked.get("/v1/models", **headers)[0] == 200
    assert locked.client(api_key="second-key").models.list().data
    with pytest.raises(openai.AuthenticationError):
        locked.client(api_key="x").models.list()


def test_c23_c24_open_routes(locked):
    for path in ("/health", "/ping", "/version", "/", "/metrics"):
        assert locked.get(path)[0] == 200, path
    assert locked.call("OPTIONS", CHAT, Origin="http://page")[0] == 204


OPEN = {"/", "/ping", "/health", "/health/live", "/health/ready", "/v1/health", "/version", "/metrics"}


def test_c23_p119_every_other_route_asks_for_the_key(locked):
    """Those of all protocols, as the server tells them itself."""
    paths = json.loads(locked.get("/openapi.json", x_api_key="first-key")[2])["paths"]
    assert {CHAT, COMPLETIONS, "/v1/messages", "/completion", "/infill", "/api/chat", "/api/generate", "/tokenize"} <= set(paths)
    for path, methods in paths.items():
        for method in methods:
            status, _, text = locked.call(method.upper(), path.replace("{id}", "x").replace("{digest}", "x"), {} if method == "post" else None)
            assert (status != 401) if path in OPEN else (status == 401 and json.loads(text)["error"]), (method, path, status)


# D. Errors and validation

def test_d25_unknown_model(server):
    error = error_of(server.post(CHAT, chat_body(model="other")), 404, "model_not_found")
    assert error["param"] == "model" and "other" in error["message"] and "org/scripted" in error["message"]


@pytest.mark.parametrize("messages", [..., [], "hi"])
def test_d26_messages_and_prompt(server, messages):
    body = {} if messages is ... else {"messages": messages}
    assert error_of(server.post(CHAT, body))["param"] == "messages"
    assert error_of(server.post(COMPLETIONS, {}))["param"] == "prompt"


@pytest.mark.parametrize("field, wrong, right", [
    ("temperature", [2.1, -0.1], [0, 2]), ("top_p", [1.1, 0, -1], [0.1, 1]), ("presence_penalty", [2.1, -2.1], [2, -2]),
    ("frequency_penalty", [2.1, -2.1], [2, -2]), ("n", [0, 129], [1, 128]), ("max_tokens", [0, -1], [1]),
    ("max_completion_tokens", [0], [1]), ("min_p", [1.1, -0.1], [0, 1]), ("top_k", [-2], [-1, 0, 5]),
    ("repetition_penalty", [0, -1], [1.0]), ("seed", [2**70], [-1, 2**63 - 1]),
    ("stop", [["a", "b", "c", "d", "e"], [""], ""], [["a", "b", "c", "d"], None]),
    ("logit_bias", [{"abc": 1}, {"320": 1}, {"5": 101}], [{"5": 100}]), ("stop_token_ids", [[320], [-1]], [[319]]),
])
def test_d27_d36_d37_ranges(server, field, wrong, right):
    for value in wrong:
        assert error_of(server.post(CHAT, chat_body(**{field: value})))["param"] == field, value
    for value in right:
        assert server.post(CHAT, chat_body(**{"max_tokens": 1, field: value}))[0] == 200, value


def test_d27_logprobs_ranges(server):
    assert error_of(server.post(CHAT, chat_body(logprobs=True, top_logprobs=21)))["param"] == "top_logprobs"
    assert error_of(server.post(COMPLETIONS, {"prompt": "A", "logprobs": 21}))["param"] == "logprobs"
    assert server.post(CHAT, chat_body(logprobs=True, top_logprobs=20))[0] == 200


def test_d28_wrong_types(server):
    for field, value in {"temperature": "1", "stream": 1, "stop": {}, "n": 1.5, "model": 1, "logprobs": "x", "user": 1,
                         "metadata": [], "logit_bias": [1], "seed": "x", "tools": {}, "response_format": "json"}.items():
        assert error_of(server.post(CHAT, chat_body(**{field: value})), 400, "invalid_type")["param"] == field


def test_d29_null_is_absent(server):
    plain = server.chat()["choices"]
    for field in ("top_p", "n", "stop", "max_tokens", "logprobs", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls",
                  "stream_options", "response_format", "seed", "user", "logit_bias", "functions", "chat_template_kwargs"):
        assert server.chat(**{field: None})["choices"] == plain, field


def test_d30_unknown_fields(server, serve):
    status, headers, _ = server.post(CHAT, chat_body(temprature=1))
    assert status == 200 and "temprature" in headers["x-unknown-fields"]
    with serve("--strict-params") as strict:
        error = error_of(strict.post(CHAT, chat_body(temprature=1)), 400, "unknown_parameter")
        assert "temperature" in error["message"]


def test_d31_d33_context(server):
    used = server.complete("L", max_tokens=1)["usage"]["prompt_tokens"]
    exact = server.complete("L", max_tokens=CONTEXT - used)
    assert exact["choices"][0]["finish_reason"] == "length"
    error = error_of(server.post(COMPLETIONS, {"prompt": "L", "max_tokens": CONTEXT - used + 1}), 400, "context_length_exceeded")
    assert f"maximum context length is {CONTEXT} tokens" in error["message"]
    assert str(used) in error["message"] and str(CONTEXT - used + 1) in error["message"]
    error_of(server.post(COMPLETIONS, {"prompt": "A" * 300}), 400, "context_length_exceeded")
    to_the_end = server.chat("L")
    assert to_the_end["choices"][0]["finish_reason"] == "length"
    assert to_the_end["usage"]["total_tokens"] == CONTEXT


def test_d32_huge_prompts(server):
    body = json.dumps({"prompt": "word " * 1_000_000})
    error = error_of(server.post(COMPLETIONS, body), 400, "context_length_exceeded")
    assert "at least" in error["message"]
    started = time.monotonic()
    server.post(COMPLETIONS, body)
    assert time.monotonic() - started < 0.5


def test_d34_max_tokens_zero(server):
    error_of(server.post(COMPLETIONS, {"prompt": "A", "max_tokens": 0}))
    assert server.text("x A", max_tokens=0, echo=True) == "x A"


def test_d35_fields_that_need_others(server):
    assert error_of(server.post(CHAT, chat_body(stream_options={"include_usage": True})))["param"] == "stream_options"
    assert error_of(server.post(CHAT, chat_body(top_logprobs=1)))["param"] == "top_logprobs"
    assert error_of(server.post(CHAT, chat_body(tool_choice="required")))["param"] == "tool_choice"
    error_of(server.post(CHAT, chat_body(add_generation_prompt=True, continue_final_message=True)))


@pytest.mark.parametrize("fields", [
    {"modalities": ["text", "audio"], "audio": {"voice": "x"}},
    {"tools": [{"type": "function", "function": {"name": "f"}}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]},
])
def test_d38_unsupported(server, fields):
    assert error_of(server.post(CHAT, chat_body(**fields)))["code"] in ("unsupported_parameter", "unsupported_value")


def test_d39_mutated_bodies(server):
    """Each field with each kind of value, alone and in pairs: never a 5xx, never a broken connection."""
    fields = ["model", "messages", "max_tokens", "temperature", "top_p", "n", "stop", "stream_options", "logprobs", "top_logprobs",
              "logit_bias", "seed", "tools", "response_format", "user", "min_tokens", "stop_token_ids", "cache_salt", "priority"]
    values = [None, True, 0, -1, 1.5, 1e300, "", "x", [], [1], ["x"], [[]], {}, {"x": 1}, {"type": "text"}, [{"role": "user"}]]
    connection = server.connect()
    asked = 0
    for round in range(10):
        for i, field in enumerate(fields):
            for j, value in enumerate(values):
                other, odd = fields[(i + j + round) % len(fields)], values[(i * 7 + j + round * 5) % len(values)]
                body = chat_body(**{"max_tokens": 1, other: odd, field: value})
                connection.request("POST", CHAT, json.dumps(body), {"Content-Type": "application/json"})
                response = connection.getresponse()
                text = response.read()
                assert response.status in (200, 400, 404), (body, text)
                asked += 1
                if asked % 100 == 0:
                    assert server.text("A") == PARIS
    connection.close()


SPLICES = [b"null", b"true", b"-1", b"1e999", b"99999999999999999999", b"0.1", b'""', b"[]", b"{}", b"[" * 200, b'{"a":' * 200, b'"', b"\\", b",",
           b":", b"}", b"]", b'"\\ud800"', b"\xff\xfe", b"\x00", b"\xe2\x82", b" ", b"model", b"stream", b"messages"]
SEEDS = {
    CHAT: chat_body(max_tokens=2, stop=["x"], logprobs=True, top_logprobs=2, response_format={"type": "json_object"}),
    "/v1/chat/completions?": chat_body(max_tokens=2, stream=True, stream_options={"include_usage": True}),
    COMPLETIONS: {"prompt": ["A", [1, 2]], "max_tokens": 2, "echo": True, "logprobs": 1, "logit_bias": {"5": 1}, "seed": 7},
    "/v1/messages": {"model": "alias", "max_tokens": 2, "system": [{"type": "text", "text": "x"}], "messages": [{"role": "user", "content": "hi"}]},
    "/v1/messages/count_tokens": {"model": "alias", "messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"model": "alias", "max_output_tokens": 2, "stream": True, "input": [{"role": "user", "content": "hi"}], "store": False},
    "/tokenize": {"prompt": "hello", "add_special_tokens": True}, "/detokenize": {"tokens": [1, 2, 3]},
    "/apply-template": {"messages": [{"role": "user", "content": "hi"}]}, "/completion": {"prompt": "A", "n_predict": 2, "n_probs": 1},
    "/infill": {"input_prefix": "A", "input_suffix": "B", "n_predict": 2},
    "/api/chat": {"model": "alias", "messages": [{"role": "user", "content": "hi"}], "options": {"num_predict": 2}, "format": "json"},
    "/api/generate": {"model": "alias", "prompt": "A", "options": {"num_predict": 2, "stop": ["x"]}, "keep_alive": "5m"},
    "/api/show": {"model": "alias", "verbose": False}, "/v1/embeddings": {"model": "alias", "input": ["a"]},
    "/v1/rerank": {"model": "alias", "query": "a", "documents": ["b"]},
}


def mutated(random, body):
    """A body with one to three spans of bytes taken out, put in, doubled or turned into something else."""
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(body) + 1)
        end = min(len(body), at + random.choice((0, 1, 1, 2, 5, 20)))
        put = random.choice((b"", random.randbytes(1), random.choice(SPLICES), body[at:end] * 2, body[random.randrange(len(body) + 1):][:20]))
        body = body[:at] + put + body[end:]
    return body if random.random() < 0.95 else body[:random.randrange(len(body) + 1)]


def test_d39_ten_thousand_mutated_bodies(server):
    """Bytes of good bodies changed at random, for all routes that read one: no 5xx, no reset, and a usual request is answered
    after each hundred."""
    def ask(seed):
        random, wrong = Random(seed), []
        connection = server.connect()
        for count in range(2500):
            route = random.choice(list(SEEDS))
            body = mutated(random, json.dumps(SEEDS[route]).encode())
            connection.request("POST", route.rstrip("?"), body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
            if response.status not in (200, 400, 404):
                wrong.append((route, body, response.status, text[:500]))
            if count % 100 == 99:
                assert server.text("A") == PARIS
        connection.close()
        return wrong

    with futures.ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(ask, range(4)), []) == []


def test_d40_errors_before_the_stream(server):
    answer = server.post(CHAT, chat_body(stream=True, temperature=3))
    error_of(answer)
    assert answer[1]["content-type"] == "application/json"

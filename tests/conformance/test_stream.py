"""Sections G and Q of the checklist: streams, disconnects, limits. G69 to G71 (pings, errors in the middle, slow readers) are in
test_limits.py, overload in test_overload.py, C6's second signal in test_promises.py."""
import concurrent.futures
import json
import signal
import socket
import subprocess
import time

import openai
import pytest

import make_scripted_model as script
from conftest import QUERN, Running, chat_body, error_of
from test_limits import LONG, opened

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


# G. Streaming

@pytest.mark.parametrize("ask, fields", [(None, {}), ("E", {}), ("S", {"stop": "STOP"}), ("L", {"max_tokens": 9}), ("R", {"temperature": 1, "seed": 3, "max_tokens": 20})])
def test_g60_to_g65_streams(server, ask, fields):
    whole = server.chat(ask, **fields)
    chunks = server.events(CHAT, chat_body(ask, stream_options={"include_usage": True}, **fields))
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    for name in ("id", "created", "model"):
        assert len({chunk[name] for chunk in chunks}) == 1
    choices = [chunk["choices"][0] for chunk in chunks[:-1]]
    assert [i for i, choice in enumerate(choices) if "role" in choice["delta"]] == [0]
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == whole["choices"][0]["message"]["content"]
    assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
    assert choices[-1]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert chunks[-1]["choices"] == []
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert chunks[-1]["usage"][name] == whole["usage"][name]
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert all(chunk.get("usage") is None for chunk in server.events(CHAT, chat_body(ask, **fields)))


def test_g62_g64_real_client(client):
    with client.chat.completions.stream(model="alias", messages=[{"role": "user", "content": "x"}], temperature=0) as stream:
        for _ in stream:
            pass
        completion = stream.get_final_completion()
    assert completion.choices[0].message.role == "assistant"
    assert completion.choices[0].message.content == "Hello from the script"
    assert completion.choices[0].finish_reason == "stop"


def test_g66_continuous_usage(server):
    counts = [chunk["usage"]["completion_tokens"] for chunk in
              server.events(COMPLETIONS, {"prompt": "A", "temperature": 0, "stream_options": {"continuous_usage_stats": True}})]
    assert counts == sorted(counts) and counts[-1] == 7


def test_g67_several_choices(client):
    texts = {}
    for chunk in client.completions.create(model="alias", prompt=["A", "S"], n=2, temperature=0, stream=True):
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
    assert texts == {0: "The capital of France is Paris .", 1: "The capital of France is Paris .",
                     2: "alpha STOP omega", 3: "alpha STOP omega"}


def test_g68_echo_comes_first(server):
    chunks = server.events(COMPLETIONS, {"prompt": "hello A", "echo": True, "temperature": 0})
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert chunks[0]["choices"][0]["text"] == "hello A"


STREAMS = {
    CHAT: chat_body("R", max_tokens=50),
    COMPLETIONS: {"prompt": "R", "max_tokens": 50},
    "/v1/responses": {"input": "hi", "max_output_tokens": 50, "chat_template_kwargs": {"ask": "R"}},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 50, "chat_template_kwargs": {"ask": "R"}},
    "/completion": {"prompt": "R", "n_predict": 50},
    "/infill": {"input_prefix": "A", "input_suffix": "B", "n_predict": 50, "ignore_eos": True},
    "/api/generate": {"model": "alias", "prompt": "R", "raw": True, "options": {"num_predict": 50}},
    "/api/chat": {"model": "alias", "messages": [{"role": "user", "content": "hi"}]},
}


def chunks_of(packet):
    """The chunks of a packet, all of which must be whole."""
    while packet:
        size, _, packet = packet.partition(b"\r\n")
        length = int(size, 16)
        assert packet[length:length + 2] == b"\r\n", packet
        yield packet[:length]
        packet = packet[length + 2:]


@pytest.mark.parametrize("path", STREAMS)
def test_g117b_every_event_arrives_whole(server, path):
    """A reader that forgets what it has after each packet still sees whole events, or whole lines of Ollama's."""
    body = json.dumps({**STREAMS[path], "stream": True}).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        packets = []
        while not packets or not packets[-1].endswith(b"0\r\n\r\n"):
            packets.append(connection.recv(1 << 20))
    head, _, packets[0] = packets[0].partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    events = [chunk for packet in packets for chunk in chunks_of(packet)]
    assert events.pop() == b"" and len(events) > 3
    start, end = ((b"{",), b"}\n") if path.startswith("/api/") else ((b"data: ", b"event: "), b"\n\n")
    for event in events:
        assert event.startswith(start) and event.endswith(end), event


def leave_after(server, body, chunks):
    """Opens a stream and closes it after so many packets; none: before the answer."""
    data = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    connection.sendall(f"POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    for _ in range(chunks):
        connection.recv(300)
    connection.close()


@pytest.mark.parametrize("stream, chunks", [(True, 3), (True, 0), (False, 0)])
def test_g72_disconnects_free_everything(server, stream, chunks):
    server.wait_idle()  # after whoever came before
    base = server.metric("vllm:kv_cache_usage_perc")
    for _ in range(5):
        leave_after(server, {"prompt": "L", "max_tokens": 250, "n": 2, "stream": stream, "ignore_eos": True}, chunks)
    left = time.monotonic()
    server.wait_idle()
    assert time.monotonic() - left < 5
    assert server.metric("vllm:kv_cache_usage_perc") == base == 0
    assert server.metric("quern_streams_open") == 0


# Q. Limits, overload, cancel

def test_q121_deadline(server):
    answer = server.post(COMPLETIONS, {"prompt": "L", "max_tokens": 200, "n": 100}, X_Request_Timeout_Ms="1")
    error = error_of(answer, 504)
    assert error["type"] == "timeout"
    server.wait_idle()


def test_q122_many_streams(server):
    """Each stream gets its own text, whoever runs beside it."""
    words = {digit: word.decode() for digit, word in script.DIGITS.items()}

    def ask(i):
        digit = str(i % 10)
        chunks = server.events(COMPLETIONS, {"prompt": f"stream {i} says {digit}", "max_tokens": 20, "temperature": 0})
        return "".join(chunk["choices"][0]["text"] for chunk in chunks) == words[digit] * 20

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        assert all(pool.map(ask, range(200)))


def test_q123_bounded_products(server):
    error_of(server.post(COMPLETIONS, {"prompt": ["A"] * 1024, "n": 128}))


def test_q124_salts_and_priorities(server):
    prompt = "a prompt of some length that is only used by this test, " * 2 + "A"

    def cached(**fields):
        return server.complete(prompt, **fields)["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached(cache_salt="one") == 0
    assert cached(cache_salt="one") > 0
    assert cached(cache_salt="two") == 0
    assert server.text("A", priority=-5) == server.text("A", priority=5)


# R. Metrics as far as they concern the ledger of requests; how a process begins and ends

def test_r127_counters_equal_usage(serve):
    with serve() as fresh:
        assert fresh.metric("vllm:request_success_total", finished_reason="stop") == 0
        usages = [fresh.complete("A")["usage"], fresh.complete("S", stop="STOP")["usage"], fresh.complete("L", n=3)["usage"]]
        assert fresh.metric("vllm:prompt_tokens_total") == sum(usage["prompt_tokens"] for usage in usages)
        assert fresh.metric("vllm:generation_tokens_total") == sum(usage["completion_tokens"] for usage in usages)
        assert fresh.metric("vllm:request_success_total", finished_reason="stop") == 2
        assert fresh.metric("vllm:request_success_total", finished_reason="length") == 3
        assert fresh.metric("vllm:time_to_first_token_seconds_count") == 5


@pytest.fixture
def begun(tmp_path):
    """begun(count, tokens, flags...): a server and so many streams that have begun."""
    servers = []

    def start(count, tokens, *flags):
        folder = script.write(tmp_path / "draining", script.Script(script.SCRIPTS, context=LONG))
        servers.append(Running(folder, "--max-model-len", str(LONG), "--kv-cache-memory-bytes", "256m", *flags))
        body = {"prompt": "L", "max_tokens": tokens, "ignore_eos": True, "stream": True}
        streams = [opened(servers[0], body) for _ in range(count)]
        return servers[0], streams, [stream.recv(1000) for stream in streams]
    yield start
    for server in servers:
        server.process.kill()
        server.process.wait()


def rest_of(stream, came):
    """The data of all events of a stream whose beginning has come."""
    came = bytearray(came)
    while piece := stream.recv(1 << 20):
        came += piece
        if came.endswith(b"\r\n0\r\n\r\n"):
            break
    stream.close()
    events = [line.removeprefix("data: ") for line in came.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(event) for event in events if event != "[DONE]"], events[-1] == "[DONE]"


def test_r129_drain(begun):
    server, streams, came = begun(5, 1500, "--shutdown-grace", "1")
    stopped = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    while server.get("/health")[0] == 200:
        assert time.monotonic() - stopped < 1
    assert server.get("/health/ready")[0] == 503 and server.get("/health/live")[0] == 200
    status, headers, text = server.post(COMPLETIONS, {"prompt": "A"})
    error_of((status, headers, text), 503)
    assert int(headers["retry-after"]) >= 1 and headers["connection"] == "close"
    with pytest.raises(openai.InternalServerError):
        server.client(max_retries=0).completions.create(model="draining", prompt="A")
    assert server.process.poll() is None
    for stream, beginning in zip(streams, came):
        events, done = rest_of(stream, beginning)
        assert done and events[-1]["choices"][0]["finish_reason"] == "length"
        assert sum(event["choices"][0]["text"].count("la") for event in events) == 1500
    assert server.process.wait(timeout=30) == 0
    assert time.monotonic() - stopped >= 1, "the port stays open for the time of grace"
    with pytest.raises(ConnectionRefusedError):
        server.get("/health")


def test_r129_what_takes_too_long_ends_with_an_error(begun):
    server, (stream,), (came,) = begun(1, LONG - 10, "--shutdown-timeout", "1")
    stopped = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    events, _ = rest_of(stream, came)
    assert events[-1]["error"]["message"] and not any(choice["finish_reason"] for event in events[:-1] for choice in event["choices"])
    assert server.process.wait(timeout=30) == 0
    assert 1 <= time.monotonic() - stopped < 10


def refused(*arguments):
    """Status, lines of errors and seconds of a server that does not begin."""
    began = time.monotonic()
    result = subprocess.run([QUERN, "serve", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    return result.returncode, result.stderr.strip().splitlines(), time.monotonic() - began


def corrupt(folder):
    path = folder / "noise.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0" + bytes(range(256)) * 16)
    return path


@pytest.mark.parametrize("arguments, hint", [
    (lambda server, model, folder: [model, "--port", server.port], "is in use; choose another one with --port"),
    (lambda server, model, folder: ["/nowhere/model.gguf"], "/nowhere/model.gguf: No such file or directory"),
    (lambda server, model, folder: [corrupt(folder)], "noise.gguf"),
    (lambda server, model, folder: [model, "--max-model-length", "64"], "did you mean --max-model-len?"),
    (lambda server, model, folder: [model, "--kv-cache-memory-bytes", "1k"], "no room for a KV cache"),
], ids=["port in use", "no such file", "corrupt file", "unknown flag", "too little memory"])
def test_r130_what_keeps_a_server_from_beginning(server, model, tmp_path, arguments, hint):
    status, lines, took = refused(*arguments(server, model, tmp_path))
    assert status == 1 and len(lines) == 1 and lines[0].startswith("quern: ") and hint in lines[0], lines
    assert took < 5


def test_errors_of_the_real_client(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="alias", prompt="A", temperature=3)
    assert caught.value.param == "temperature" and caught.value.code == "decimal_above_max_value"
    assert "Invalid 'temperature'" in caught.value.message

"""Sections G and Q of the checklist: streams, disconnects, overload, limits, drain. G69 to G71 (pings, errors in the middle, slow
readers) are in test_limits.py."""
import concurrent.futures
import json
import signal
import socket
import subprocess
import threading
import time

import openai
import pytest

import make_scripted_model as script
from conftest import QUERN, chat_body, error_of

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


def test_g117b_every_event_arrives_whole(server):
    """A reader that forgets what it has after each packet still sees whole events."""
    body = json.dumps({"prompt": "R", "temperature": 1, "max_tokens": 50, "stream": True}).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(f"POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        packets = []
        while not packets or not packets[-1].endswith(b"0\r\n\r\n"):
            packets.append(connection.recv(1 << 20))
    packets[0] = packets[0].partition(b"\r\n\r\n")[2]
    for packet in packets:
        assert packet in (b"", b"0\r\n\r\n") or packet.endswith(b"\n\n\r\n") or packet.endswith(b"\n\n\r\n0\r\n\r\n"), packet


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
    base = server.metric("vllm:kv_cache_usage_perc")
    for _ in range(5):
        leave_after(server, {"prompt": "L", "max_tokens": 250, "n": 2, "stream": stream, "ignore_eos": True}, chunks)
    server.wait_idle()
    assert server.metric("vllm:kv_cache_usage_perc") == base == 0
    assert server.metric("quern_streams_open") == 0


# Q. Limits, overload, cancel

def test_q120_full_queue(serve):
    with serve("--max-num-seqs", "1", "--max-queued-requests", "1") as small:
        def ask(_):
            return small.post(COMPLETIONS, {"prompt": "L", "max_tokens": 200, "ignore_eos": True})
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(ask, range(12)))
        refused = [answer for answer in answers if answer[0] == 429]
        assert {answer[0] for answer in answers} == {200, 429}
        for answer in refused:
            error_of(answer, 429, "rate_limit_exceeded")
            assert int(answer[1]["retry-after"]) >= 1
        assert small.client(max_retries=2).completions.create(model="scripted", prompt="A").choices


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


# R. Metrics and drain, as far as they concern the ledger of requests

def test_r127_counters_equal_usage(serve):
    with serve() as fresh:
        assert fresh.metric("vllm:request_success_total", finished_reason="stop") == 0
        usages = [fresh.complete("A")["usage"], fresh.complete("S", stop="STOP")["usage"], fresh.complete("L", n=3)["usage"]]
        assert fresh.metric("vllm:prompt_tokens_total") == sum(usage["prompt_tokens"] for usage in usages)
        assert fresh.metric("vllm:generation_tokens_total") == sum(usage["completion_tokens"] for usage in usages)
        assert fresh.metric("vllm:request_success_total", finished_reason="stop") == 2
        assert fresh.metric("vllm:request_success_total", finished_reason="length") == 3
        assert fresh.metric("vllm:time_to_first_token_seconds_count") == 5


def test_r129_drain(serve):
    with serve() as draining:
        answers = [[] for _ in range(5)]

        def stream(mine):
            for chunk in draining.client().completions.create(model="scripted", prompt="L", max_tokens=250, stream=True,
                                                               extra_body={"ignore_eos": True}):
                mine.append(chunk.choices[0].finish_reason)

        threads = [threading.Thread(target=stream, args=(mine,)) for mine in answers]
        for thread in threads:
            thread.start()
        while not all(answers):
            time.sleep(0.001)
        stopped = time.monotonic()
        draining.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert [mine[-1] for mine in answers] == ["length"] * 5
        assert draining.process.wait(timeout=30) == 0
        assert time.monotonic() - stopped < 15


def test_r130_port_in_use(server, model):
    started = time.monotonic()
    result = subprocess.run([QUERN, "serve", str(model), "--port", str(server.port)], capture_output=True, text=True, timeout=60)
    assert result.returncode != 0 and "in use" in result.stderr
    assert time.monotonic() - started < 30


def test_errors_of_the_real_client(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="alias", prompt="A", temperature=3)
    assert caught.value.param == "temperature" and caught.value.code == "decimal_above_max_value"
    assert "Invalid 'temperature'" in caught.value.message

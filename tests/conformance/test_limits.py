"""Checks of the list that need a long context, a clock or a second program; numbers are those of the list. 131 to 133 wait for
adapters and for prefill and decode on different machines: until then what asks for them is refused by name."""
import json
import os
import pathlib
import resource
import socket
import subprocess
import time

import pytest

import make_scripted_model as script
from conftest import QUERN, Running, error_of, servers

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
LONG = 131_072


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A server whose model has 131,072 positions."""
    model = script.write(tmp_path_factory.mktemp("models") / "long", script.Script(script.SCRIPTS, context=LONG))
    with servers() as of:
        yield of(model, "--max-model-len", LONG, "--served-model-name", "long", "--kv-cache-memory-bytes", "256m")


def opened(server, body, receive_bytes=None, path=COMPLETIONS):
    """A connection that has sent a request and reads nothing."""
    connection = socket.socket()
    if receive_bytes:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.settimeout(60)
    connection.connect(("127.0.0.1", server.port))
    data = json.dumps(body).encode()
    connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    return connection


def seconds(action):
    start = time.monotonic()
    action()
    return time.monotonic() - start


def test_g69_r125_a_long_prefill_is_alive_and_hinders_nobody(long):
    """/health answers at once, and the stream shows comments, never events, until there is a token."""
    with opened(long, {"prompt": [65] * 120_000, "max_tokens": 1, "stream": True}) as connection:
        came, slowest = b"", 0.0
        deadline = time.monotonic() + 60
        connection.settimeout(0.1)
        while b"\n:" not in came and b"data:" not in came and time.monotonic() < deadline:
            slowest = max(slowest, seconds(lambda: long.get("/health")))
            try:
                came += connection.recv(1 << 16)
            except TimeoutError:
                pass
    body = came.partition(b"\r\n\r\n")[2]
    assert b": ping" in body or b":ping" in body or b"\n:" in body, came[:300]
    assert b"data:" not in body
    assert slowest < 5
    long.wait_idle()


def test_r125_health_while_the_batch_is_full(serve):
    with serve("--max-num-seqs", "2") as small:
        streams = [opened(small, {"prompt": "L", "max_tokens": 250, "n": 8, "ignore_eos": True}) for _ in range(4)]
        assert seconds(lambda: small.get("/health")) < 5 and small.get("/health")[0] == 200
        for stream in streams:
            stream.close()
        small.wait_idle()


def test_g70_an_error_in_the_middle_is_an_event_of_its_own(tmp_path_factory):
    model = script.write(tmp_path_factory.mktemp("models") / "hasty", script.Script(script.SCRIPTS, context=LONG))
    hasty = Running(model, "--max-model-len", str(LONG), "--request-timeout", "1", "--kv-cache-memory-bytes", "256m")
    with opened(hasty, {"prompt": "L", "max_tokens": LONG - 10, "stream": True, "ignore_eos": True}) as connection:
        came = b""
        while piece := connection.recv(1 << 20):
            came += piece
            if came.endswith(b"0\r\n\r\n"):
                break
    events = [line[6:] for line in came.decode().splitlines() if line.startswith("data: ")]
    last = json.loads([event for event in events if event != "[DONE]"][-1])
    assert last["error"]["type"] == "timeout" and last["error"]["message"]
    assert len(events) > 2 and not any('"finish_reason":"' in event for event in events)
    assert hasty.stop() == 0


def resident_bytes(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_g71_a_slow_reader_is_dropped_and_slows_nobody(long):
    """Of hundreds of megabytes that it asked for, the server keeps a few."""
    deadline = time.monotonic() + 10
    before = peak = resident_bytes(long.process.pid)
    with opened(long, {"prompt": "L", "n": 16, "max_tokens": 30_000, "stream": True, "ignore_eos": True, "logprobs": 5},
                receive_bytes=4096) as connection:
        connection.recv(100)
        while not any("reads too slowly" in line for line in list(long.log)):
            assert seconds(lambda: long.text("A")) < 5
            peak = max(peak, resident_bytes(long.process.pid))
            assert time.monotonic() < deadline
        assert peak - before < 64e6
        assert seconds(lambda: long.text("A")) < 5
        connection.settimeout(60)
        with pytest.raises((ConnectionError, StopIteration)):
            while connection.recv(1 << 20):
                pass
            raise StopIteration
    long.wait_idle()


CONNECTIONS, HELD = 10_000, 4096  # tried; open at once


@pytest.fixture
def count():
    """So many connections, or as many as this process may have."""
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + 500
    allowed = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    yield allowed - 500
    resource.setrlimit(resource.RLIMIT_NOFILE, (usual, most))


def test_ten_thousand_connections(serve, count):
    """The server holds as many as it may and tells the others; who was there before is served, and later everybody again."""
    with serve() as flooded:
        early = flooded.connect()
        early.request("GET", "/health")
        early.getresponse().read()
        before = resident_bytes(flooded.process.pid)
        flood = [socket.create_connection(("127.0.0.1", flooded.port), timeout=30) for _ in range(count)]
        early.request("POST", COMPLETIONS, json.dumps({"prompt": "A", "temperature": 0}), {"Content-Type": "application/json"})
        assert b"Paris" in early.getresponse().read()
        for connection in flood[HELD:]:
            assert connection.recv(100).startswith(b"HTTP/1.1 503 ")
        assert resident_bytes(flooded.process.pid) - before < 100e6
        for connection in flood:
            connection.close()
        deadline = time.monotonic() + 10
        while b"503" in first_line(flooded):
            assert time.monotonic() < deadline
        assert flooded.text("A") == "The capital of France is Paris ."


def first_line(server):
    """What a new connection is told."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return connection.recv(100).partition(b"\r\n")[0]


def test_r128_time_to_first_token_is_what_a_client_sees(long):
    seen = []
    before = long.metric("vllm:time_to_first_token_seconds_sum")
    for i in range(5):
        body = {"prompt": [65 + i] * 6000, "max_tokens": 2, "stream": True}
        start = time.monotonic()
        with opened(long, body) as connection:
            came = b""
            while b"data:" not in came:
                came += connection.recv(1 << 16)
            seen.append(time.monotonic() - start)
            while b"[DONE]" not in came:
                came += connection.recv(1 << 16)
    counted = long.metric("vllm:time_to_first_token_seconds_sum") - before
    assert 0.75 * sum(seen) <= counted <= sum(seen)


KEYS = {"date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate", "burstiness",
        "max_concurrency", "duration", "completed", "failed", "total_input_tokens", "total_output_tokens", "request_throughput",
        "request_goodput", "output_throughput", "total_token_throughput", "max_output_tokens_per_s", "max_concurrent_requests",
        *(f"{kind}_{what}_ms" for kind in ("mean", "median", "std", "p99") for what in ("ttft", "tpot", "itl", "e2el"))}
DETAILS = {"input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors"}


def test_s135_bench_agrees_with_the_server(serve, tmp_path):
    with serve() as fresh:
        done = subprocess.run([QUERN, "bench", "--url", fresh.url, "--num-prompts", "20", "--random-vocab-size", "300", "--random-input-len", "40",
                               "--random-output-len", "16", "--ignore-eos", "--max-concurrency", "4", "--save-result", "--save-detailed",
                               "--result-dir", str(tmp_path)], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        (path,) = tmp_path.glob("*.json")
        result = json.loads(path.read_text())
        assert KEYS <= set(result) and DETAILS <= set(result), (KEYS | DETAILS) - set(result)
        assert (result["completed"], result["failed"]) == (20, 0)
        assert result["total_output_tokens"] == 20 * 16 == sum(result["output_lens"])
        assert "Serving Benchmark Result" in done.stdout
        warm_up = fresh.metric("vllm:generation_tokens_total") - result["total_output_tokens"]
        assert 0 <= warm_up <= 16 and fresh.metric("vllm:prompt_tokens_total") >= result["total_input_tokens"]


@pytest.mark.parametrize("path", ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"])
def test_s131_adapters_are_not_loaded(server, path):
    error_of(server.post(path, {"lora_name": "a", "lora_path": "/nowhere"}), 400, "unsupported_parameter")
    error_of(server.post(COMPLETIONS, {"model": "a", "prompt": "A"}), 404, "model_not_found")


def test_s132_adapters_in_requests_are_refused_by_name(server):
    for path, body in ((COMPLETIONS, {"prompt": "A"}), (CHAT, {"messages": [{"role": "user", "content": "A"}]})):
        error = error_of(server.post(path, {**body, "lora_path": "/nowhere"}), 400, "unsupported_parameter")
        assert error["param"] == "lora_path"


def test_s133_c26_prefill_elsewhere_is_refused_by_name(server):
    error = error_of(server.post(COMPLETIONS, {"prompt": "A", "kv_transfer_params": {"do_remote_decode": True}}), 400, "unsupported_parameter")
    assert error["param"] == "kv_transfer_params"
    assert server.text("A")

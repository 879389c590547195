"""From the start of the process until the model is loaded, and how it ends: statuses that scripts and probes rely on."""
import contextlib
import http.client
import json
import pathlib
import re
import signal
import socket
import subprocess
import time

import pytest

from conftest import QUERN, chat_body, error_of

# Random weights that take seconds to make.
SLOW = ["--load-format", "dummy", "--hf-overrides", json.dumps({"num_hidden_layers": 100, "intermediate_size": 4096})]


@contextlib.contextmanager
def started(*words):
    process = subprocess.Popen([QUERN, "serve", *map(str, words)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def port_of(process):
    """Once it is open; the model is still being loaded then."""
    for line in process.stderr:
        if "is open; /health answers 503" in line:
            return int(line.split("port ")[1].split(" ")[0])
    raise AssertionError("the port was not opened")


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"} if body else {})
    response = connection.getresponse()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read().decode()


def slow_model(model):
    return [model, "--port", 0, "--tokenizer", model, *SLOW]


def test_125_the_port_is_open_while_the_model_is_loaded(model):
    with started(*slow_model(model)) as process:
        port = port_of(process)
        for path in "/health", "/health/ready", "/v1/models":
            answer = ask(port, "GET", path)
            assert "is being loaded" in error_of(answer, 503)["message"] and answer[1]["retry-after"] == "5"
        error_of(ask(port, "POST", "/v1/completions", {"prompt": "a"}), 503)
        assert ask(port, "GET", "/health/live")[0] == 200 and ask(port, "GET", "/metrics")[0] == 200
        deadline = time.monotonic() + 60
        while ask(port, "GET", "/health")[0] != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert ask(port, "POST", "/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200


@pytest.mark.parametrize("sign, status", [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_loading_at_once(model, sign, status):
    with started(*slow_model(model)) as process:
        port_of(process)
        begin = time.monotonic()
        process.send_signal(sign)
        said = process.communicate(timeout=30)[1]
        assert process.returncode == status and "stopped before anything was served" in said
        assert time.monotonic() - begin < 1


def test_a_port_in_use_is_told_before_anything_is_loaded(model, tmp_path):
    (tmp_path / "bad.json").write_text("no tokenizer")
    words = [QUERN, "serve", str(model), "--tokenizer", str(tmp_path / "bad.json"), "--port"]
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        refused = subprocess.run([*words, str(port)], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and f"port {port} on 127.0.0.1 is in use; choose another one with --port" in refused.stderr
    broken = subprocess.run([*words, "0"], capture_output=True, text=True, timeout=60)
    assert broken.returncode == 1 and "bad.json" in broken.stderr.splitlines()[-1]


def test_the_exit_statuses_that_the_help_promises(model, serve):
    told = subprocess.run([QUERN, "help", "serve"], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0
    assert "exit status: 0 " in told.stdout and "130" in told.stdout and "143" in told.stdout
    assert subprocess.run([QUERN, "serve", "--no-such-flag"], capture_output=True, timeout=60).returncode == 1
    for sign, second in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with serve() as running:
            running.process.send_signal(sign)
            assert running.process.wait(timeout=60) == 0
        with serve("--shutdown-grace", "60") as running:
            running.process.send_signal(sign)
            running.wait_for_log("draining")
            running.process.send_signal(sign)
            assert running.process.wait(timeout=60) == second


def outward_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return probe.getsockname()[0]


def screen(*words):
    """What is printed up to the line to be copied."""
    with started(*words) as process:
        said = ""
        while "curl" not in said:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            said += line
        return said


def test_the_first_screen_tells_how_others_call_and_how_many_fit(model):
    said = screen(model, "--port", "0", "--host", "0.0.0.0", "--max-model-len", "64", "--kv-cache-memory-bytes", "1Mi")
    address = outward_address()
    assert ("for other machines: http://" in said) == (address is not None)
    if address:
        assert f"http://{address}:" in said
    tokens = int(said.split("up to ")[1].split(" ")[0])
    assert f"maximum concurrency for 64 tokens per request: {tokens / 64:.2f}x" in said
    assert "for other machines" not in screen(model, "--port", "0")


def test_a_socket_in_the_file_system(model, tmp_path):
    path = tmp_path / "quern.sock"
    with started(model, "--uds", path) as process:
        line = ""
        while "curl" not in line:
            line = process.stdout.readline()
        assert f"--unix-socket {path} http://localhost/v1/" in line
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    assert not path.exists()


def test_flags_of_vllm_that_are_not_in_the_help(serve):
    wanted = {"temperature": 0.125, "top_k": 3, "max_new_tokens": 2}
    with serve("--override-generation-config", json.dumps(wanted), "--enable-force-include-usage", "--root-path", "/llm",
               "--structured-outputs-config", '{"backend": "xgrammar", "disable_fallback": true}') as running:
        told = json.loads(running.get("/llm/props")[2])["default_generation_settings"]["params"]
        assert (told["temperature"], told["top_k"]) == (0.125, 3)
        events = running.events("/v1/chat/completions", chat_body())
        assert events[-1]["usage"]["completion_tokens"] == 2 and events[-1]["choices"] == []


def test_a_greedy_default(serve):
    with serve("--override-generation-config", '{"do_sample": false}') as running:
        assert json.loads(running.get("/props")[2])["default_generation_settings"]["params"]["temperature"] == 0


def test_the_version_names_the_commit_that_was_built(server):
    told = json.loads(server.get("/version")[2])
    if (pathlib.Path(__file__).parents[2] / ".git").exists():
        assert re.fullmatch("[0-9a-f]{12}", told["build"]), told


@pytest.mark.parametrize("flag, value, reason", [
    ("--override-generation-config", '{"temprature": 1}', "temprature is not one of do_sample, temperature"),
    ("--override-generation-config", '{"temperature": -1}', "temperature cannot be -1; it is a number from 0 to 2"),
    ("--override-generation-config", '{"top_k": 2.5}', "top_k cannot be 2.5; it is a whole number from -1 to"),
    ("--override-generation-config", '{"max_new_tokens": 4294967296}', "max_new_tokens cannot be 4294967296"),
    ("--override-generation-config", '{"top_k": "all"}', "top_k cannot be"),
    ("--structured-outputs-config", '{"backend": "outlines"}', "backend \"outlines\" is not supported"),
    ("--structured-outputs-config", '{"disable_any_whitespace": true}', "is not supported"),
    ("--structured-outputs-config", "[]", "must be a JSON object"),
    ("--root-path", "llm", "must begin with /"),
])
def test_values_that_cannot_be_are_told(model, flag, value, reason):
    refused = subprocess.run([QUERN, "serve", str(model), flag, value], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and reason in refused.stderr, refused.stderr

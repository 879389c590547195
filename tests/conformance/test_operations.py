"""What an operator meets: metrics that Prometheus reads, a dashboard whose names exist, log lines for machines."""
import hashlib
import json
import pathlib
import re
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request

import pytest

from conftest import QUERN, Running, chat_body, error_of

ROOT = pathlib.Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "quern.json"
PROMETHEUS = ROOT / "build" / "prometheus" / "usr" / "bin"  # from tools/bootstrap test


def samples(server):
    """Names of all samples that /metrics shows."""
    return {re.match(r"[\w:]+", line).group(0) for line in server.get("/metrics")[2].splitlines() if line[:1] not in ("#", "")}


def test_126_promtool_finds_only_what_other_engines_names_cause(server):
    found = subprocess.run([PROMETHEUS / "promtool", "check", "metrics"], input=server.get("/metrics")[2], capture_output=True, text=True)
    lints = [line for line in (found.stdout + found.stderr).splitlines() if line]
    allowed = re.compile(r'vllm:\S+ metric names should not contain|vllm:iteration_tokens_total non-counter metrics should not have "_total"')
    assert [line for line in lints if not allowed.match(line)] == []


def test_126_prometheus_scrapes(server, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "prometheus.yml"
    config.write_text("scrape_configs:\n- job_name: quern\n  scrape_interval: 1s\n  static_configs:\n"
                      f"  - targets: ['127.0.0.1:{server.port}']\n")
    process = subprocess.Popen([PROMETHEUS / "prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
                                f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        server.chat()
        made = server.metric("vllm:generation_tokens_total")
        assert made > 0
        asked = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": "sum(vllm:generation_tokens_total)"})
        deadline = time.monotonic() + 60
        value = None
        while value != made:
            assert time.monotonic() < deadline, f"Prometheus has {value}, the server {made}"
            time.sleep(0.3)
            try:
                result = json.load(urllib.request.urlopen(asked, timeout=5))["data"]["result"]
                value = float(result[0]["value"][1]) if result else None
            except OSError:
                pass
    finally:
        process.terminate()
        process.wait(timeout=30)


def test_every_name_of_the_dashboard_exists(server):
    known = samples(server)
    board = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    expressions += [entry["query"] for entry in board["templating"]["list"] if entry["type"] == "query"]
    used = {name for text in expressions for name in re.findall(r"\b(?:vllm:|quern_|process_|http_)\w+", text)}
    assert len(used) > 15
    assert used - known == set()


def test_log_lines_for_machines(serve):
    with serve("--log-format", "json") as running:
        running.post("/v1/chat/completions", chat_body(nonsense=1), X_Request_Id="mine-1")
        running.get("/nowhere")
        running.wait_for_log("/nowhere")
        lines = [json.loads(line) for line in running.log]
        answered = [line for line in lines if line.get("request_id") == "mine-1" and "status" in line]
        assert [(line["method"], line["target"], line["status"], line["level"]) for line in answered] == \
            [("POST", "/v1/chat/completions", 200, "info")]
        running.wait_for_log("finish_reason")
        (ended,) = [line for line in map(json.loads, running.log) if "finish_reason" in line]
        assert (ended["request_id"], ended["model"], ended["finish_reason"]) == ("mine-1", "scripted", "stop")
        assert ended["prompt_tokens"] > ended["completion_tokens"] > 0 == ended["cached_tokens"]
        assert 0 <= ended["queue_ms"] <= ended["ttft_ms"] <= ended["total_ms"]
        assert any(line["level"] == "warning" and "nonsense" in line["message"] for line in lines)
        assert all({"time", "level", "message"} <= set(line) for line in lines)
        assert not any("hi" in line.get("message", "").split() for line in lines)


def test_unknown_log_format_is_refused(model):
    result = subprocess.run([QUERN, "serve", str(model), "--log-format", "xml"], capture_output=True, text=True, timeout=30)
    assert result.returncode == 1 and "--log-format xml: say text or json" in result.stderr


KEYS = """
[alice]
key = "alice-secret"
requests_per_minute = 2
[bob]
sha256 = "%s"
priority = 5
"""


def ask_with(running, key, **fields):
    return running.post("/v1/chat/completions", chat_body(**fields), Authorization=f"Bearer {key}")


def test_keys_have_names_and_limits_and_are_read_again(serve, tmp_path):
    path = tmp_path / "keys.toml"
    path.write_text(KEYS % hashlib.sha256(b"bob-secret").hexdigest())
    with serve("--api-keys-file", str(path)) as running:
        status, headers, _ = ask_with(running, "alice-secret")
        assert (status, headers["x-ratelimit-limit-requests"], headers["x-ratelimit-remaining-requests"]) == (200, "2", "1")
        assert ask_with(running, "alice-secret")[0] == 200
        answer = ask_with(running, "alice-secret")
        error_of(answer, 429, "rate_limit_exceeded")
        assert 1 <= int(answer[1]["retry-after"]) <= 30
        assert ask_with(running, "bob-secret")[0] == 200
        error_of(ask_with(running, "eve-secret"), 401, "invalid_api_key")

        path.write_text("[alice]\nkey = 7\n")
        running.process.send_signal(signal.SIGHUP)
        running.wait_for_log("the keys stay as they are")
        assert ask_with(running, "bob-secret")[0] == 200

        path.write_text("[carol]\nkey = 'carol-secret'\n")
        running.process.send_signal(signal.SIGHUP)
        running.wait_for_log("has been read again: 1 keys")
        error_of(ask_with(running, "bob-secret"), 401)
        assert ask_with(running, "carol-secret")[0] == 200
        running.wait_for_log("carol ")
        assert any("alice " in line for line in running.log)
        assert not any("secret" in line for line in running.log)


def refusal(*arguments):
    result = subprocess.run([QUERN, "serve", *arguments], capture_output=True, text=True, timeout=30)
    assert result.returncode == 1
    return result.stderr


@pytest.mark.parametrize("text, reason", [
    ("[a]\nkey = 'long enough'\nrequests_per_minut = 1", "requests_per_minut is not known; did you mean requests_per_minute?"),
    ("[a]\nkey = 'short'", "a key has at least 8 characters"),
    ("[a]\nsha256 = 'xyz'", "sha256 takes 64 digits"),
    ("[a]\nkey = 'long enough'\nconcurrency = 0", "concurrency takes a whole number from 1"),
    ("[a]\nkey = 'long enough'\n[b]\nkey = 'long enough'", "a and b have the same key"),
    ("[a]\nkey = ", "line 2"),
    ("", "has no keys"),
])
def test_a_broken_file_of_keys_is_told(model, tmp_path, text, reason):
    path = tmp_path / "keys.toml"
    path.write_text(text)
    said = refusal(str(model), "--api-keys-file", str(path))
    assert reason in said and "long enough" not in said, said


def test_flags_in_a_file(model, tmp_path):
    path = tmp_path / "quern.toml"
    path.write_text(f'models = ["{model}"]\nport = 1\nmax-model-len = "128"\nserved-model-name = ["from-file", "other"]\n'
                    'webui = false\nstrict-params = true\n')
    running = Running(f"--config={path}", "--served-model-name", "from-line")
    try:
        models = json.loads(running.get("/v1/models")[2])["data"]
        assert [(one["id"], one["max_model_len"]) for one in models] == [("from-line", 128)]
        error_of(running.post("/v1/chat/completions", chat_body(nonsense=1)), 400)
        assert "<html" not in running.get("/", Accept="text/html")[2]
    finally:
        assert running.stop() == 0


@pytest.mark.parametrize("text, reason", [
    ("prot = 80", "unknown flag --prot; did you mean --port?"),
    ("port = 'many'", "--port many: say a whole number from 0 to 65535"),
    ("port = true", "port takes a value"),
    ("webui = 'no'", "webui takes true or false"),
    ("[server]\nport = 80", "flags stand in no table"),
    ("port 80", "line 1"),
])
def test_a_broken_file_of_flags_is_told(tmp_path, text, reason):
    path = tmp_path / "quern.toml"
    path.write_text(text)
    said = refusal("--config", str(path))
    assert reason in said and "quern.toml" in said, said


def test_134_sleep_and_wake(serve):
    with serve() as running:
        assert running.post("/sleep", None)[0] == 404
    with serve("--enable-sleep-mode") as running:
        assert json.loads(running.get("/is_sleeping")[2]) == {"is_sleeping": False}
        assert running.post("/sleep?level=1", None)[0] == 200
        assert json.loads(running.get("/is_sleeping")[2]) == {"is_sleeping": True}
        assert running.metric("vllm:engine_sleep_state", sleep_state="weights_offloaded") == 1
        assert running.metric("quern_model_memory_bytes") == 0
        assert running.post("/v1/chat/completions", chat_body())[0] == 503
        assert running.post("/wake_up", None)[0] == 200
        assert running.metric("vllm:engine_sleep_state", sleep_state="awake") == 1
        running.chat()

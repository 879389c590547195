"""What an operator meets: metrics that Prometheus reads, a dashboard whose names exist, log lines for machines."""
import json
import pathlib
import re
import socket
import subprocess
import time
import urllib.parse
import urllib.request

from conftest import chat_body

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
            [("POST", "/v1/chat/completions", "200", "info")]
        assert any(line["level"] == "warning" and "nonsense" in line["message"] for line in lines)
        assert all({"time", "level", "message"} <= set(line) for line in lines)
        assert not any("hi" in line.get("message", "").split() for line in lines)


def test_unknown_log_format_is_refused(model):
    from conftest import QUERN
    result = subprocess.run([QUERN, "serve", str(model), "--log-format", "xml"], capture_output=True, text=True, timeout=30)
    assert result.returncode == 1 and "--log-format xml: say text or json" in result.stderr

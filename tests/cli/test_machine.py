"""quern doctor, ps and stop."""
import http.server
import json
import os
import socket
import subprocess
import threading

import pytest

QUERN = os.environ["QUERN_BINARY"]


def quern(*words, **env):
    return subprocess.run([QUERN, *words], capture_output=True, text=True, timeout=60, env={**os.environ, **env})


def test_doctor_says_what_there_is_and_what_is_in_the_way(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = quern("doctor", "--json", "--port", port, HF_HOME=str(tmp_path), HF_HUB_OFFLINE="1", HF_TOKEN="hidden-token")
    assert result.returncode == 0 and "hidden-token" not in result.stdout
    checks = {check["check"]: check for check in json.loads(result.stdout)["checks"]}
    assert set(checks) == {"cpu", "memory", "gpu", "models", "disk", "hub", "port", "open files"}
    assert checks["port"]["status"] == "warning" and "choose another one" in checks["port"]["advice"]
    assert checks["hub"]["status"] == "warning" and "with a token" in checks["hub"]["found"]
    assert str(tmp_path) in checks["models"]["found"]
    assert all((check["status"] == "ok") == (check["advice"] == "") for check in checks.values())


def test_doctor_is_a_table_for_people():
    text = quern("doctor").stdout
    assert len([line for line in text.splitlines() if line.startswith(("ok ", "warning "))]) == 8


@pytest.fixture
def server():
    """What Ollama's API answers about models in memory."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *words):
            pass

        def reply(self, status, answer):
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            if self.headers.get("Authorization") != "Bearer k":
                return self.reply(401, {"error": "no"})
            return self.reply(200, {"models": [{"name": "org/tiny", "size": 4000, "size_vram": 1000, "context_length": 512,
                                                "expires_at": "2030-01-01T00:00:00Z"}]})

        def do_POST(self):
            asked.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            known = asked[-1][1]["model"] == "org/tiny"
            self.reply(200 if known else 404, {"done": True} if known else {"error": "model 'x' not found"})

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{made.server_address[1]}", asked
    made.shutdown()
    made.server_close()


def test_ps_shows_what_is_in_memory(server):
    url, _ = server
    text = quern("ps", "--url", url, QUERN_API_KEY="k").stdout
    assert "org/tiny" in text and "75%/25% CPU/GPU" in text and "512" in text
    assert json.loads(quern("ps", "--url", url, "--json", "--api-key", "k").stdout)["models"][0]["size"] == 4000
    assert "wants a key" in quern("ps", "--url", url).stderr


def test_stop_lets_a_server_unload(server):
    url, asked = server
    assert quern("stop", "org/tiny", "--url", url).returncode == 0
    assert asked == [("/api/generate", {"model": "org/tiny", "keep_alive": 0, "stream": False})]
    result = quern("stop", "x", "--url", url)
    assert result.returncode == 1 and result.stderr == "quern: model 'x' not found\n"


def test_no_server_is_one_sentence():
    result = quern("ps", "--url", "http://127.0.0.1:1")
    assert result.returncode == 1 and "start one with quern serve" in result.stderr and len(result.stderr.splitlines()) == 1

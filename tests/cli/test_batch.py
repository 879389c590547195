"""quern batch: files of OpenAI's batch API, answered by a model that says what a table says."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
import make_scripted_model  # noqa: E402

QUERN = os.environ["QUERN_BINARY"]
PARIS = "The capital of France is Paris ."


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_scripted_model.write(tmp_path_factory.mktemp("models") / "scripted")


def line(number, url="/v1/completions", **body):
    return {"custom_id": f"request-{number}", "method": "POST", "url": url,
            "body": {"prompt": "A", "temperature": 0, **body} if url == "/v1/completions" else body}


def write(path, lines):
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))


def batch(*words, **options):
    return subprocess.run([QUERN, "batch", *map(str, words)], capture_output=True, text=True, timeout=120, **options)


def answers(path):
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    assert len({one["custom_id"] for one in lines}) == len(lines)
    return {one["custom_id"]: one for one in lines}


def test_answers_every_line(tmp_path, model):
    chat = {"messages": [{"role": "user", "content": "x"}], "temperature": 0}
    write(tmp_path / "in", [*(line(i) for i in range(300)), line("chat", "/v1/chat/completions", **chat), line("bad", top_p=7),
                            line("files", "/v1/files"), line("stream", stream=True)])
    done = batch(tmp_path / "in", tmp_path / "out", model)
    assert done.returncode == 0, done.stderr
    assert "304 of 304 requests answered" in done.stderr and "3 answers are errors" in done.stderr
    found = answers(tmp_path / "out")
    assert len(found) == 304
    for i in range(300):
        response = found[f"request-{i}"]["response"]
        assert response["status_code"] == 200 and response["request_id"]
        assert response["body"]["choices"][0]["text"] == PARIS and found[f"request-{i}"]["error"] is None
    assert found["request-chat"]["response"]["body"]["choices"][0]["message"]["content"] == "Hello from the script"
    assert found["request-bad"]["response"]["status_code"] == 400
    assert found["request-bad"]["response"]["body"]["error"]["param"] == "top_p"
    for name in ("files", "stream"):
        assert found[f"request-{name}"]["response"] is None and found[f"request-{name}"]["error"]["code"] == "invalid_request"


def test_goes_on_after_a_stop(tmp_path, model):
    write(tmp_path / "in", [line(i, prompt="L", max_tokens=200, ignore_eos=True) for i in range(800)])
    with subprocess.Popen([QUERN, "batch", tmp_path / "in", tmp_path / "out", model], stderr=subprocess.PIPE, text=True) as running:
        while not (tmp_path / "out").exists() or (tmp_path / "out").stat().st_size < 10_000:
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        assert "the same command goes on from here" in running.stderr.read()
    assert running.returncode == 130
    before = len(answers(tmp_path / "out"))
    assert 0 < before < 800
    with open(tmp_path / "out", "a") as file:
        file.write('{"id":"cut off')
    done = batch(tmp_path / "in", tmp_path / "out", model)
    assert done.returncode == 0 and "800 of 800 requests answered" in done.stderr, done.stderr
    found = answers(tmp_path / "out")
    assert len(found) == 800 and all(one["response"]["status_code"] == 200 for one in found.values())
    again = batch(tmp_path / "in", tmp_path / "out", model)
    assert again.returncode == 0 and "nothing is left" in again.stderr


@pytest.mark.parametrize("words, text, message", [
    (["in"], "", "name two files"),
    (["none", "out"], "", "No such file"),
    (["in", "out"], "{}\n", "line 1: there is no 'custom_id'"),
    (["in", "out"], "no JSON\n", "in line 1: "),
    (["in", "folder/out"], json.dumps(line(1)), "No such file"),
    (["in", "in"], json.dumps({"x": 1}) + "\n", "is no answer of a batch"),
    (["in", "out", "--no-such-flag"], json.dumps(line(1)), "unknown flag --no-such-flag"),
    (["in", "out", "/nowhere/model.gguf"], json.dumps(line(1)), "No such file"),
])
def test_says_what_is_wrong(tmp_path, words, text, message):
    (tmp_path / "in").write_text(text)
    done = batch(*words, cwd=tmp_path)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 1 and len(lines) == 1 and message in lines[0], done.stderr

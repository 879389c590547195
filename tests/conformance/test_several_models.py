"""Several models in one process: named by requests, loaded on first use, unloaded when others need the memory."""
import concurrent.futures
import json
import shutil
import subprocess
import time

import pytest

from conftest import CONTEXT, QUERN, chat_body, error_of, servers

FLAGS = ("--max-model-len", str(CONTEXT), "--kv-cache-memory-bytes", "8Mi")


@pytest.fixture(scope="module")
def models(model, tmp_path_factory):
    """A folder with the models a, b and c."""
    folder = tmp_path_factory.mktemp("several")
    for name in "abc":
        shutil.copytree(model, folder / name)
    return folder


@pytest.fixture
def start(models):
    with servers() as of:
        yield lambda first, *rest: of(first, *FLAGS, *rest)


@pytest.fixture(scope="module")
def bytes_of_one(models):
    """What one of them takes."""
    with servers() as of:
        running = of(models / "a", models / "b", *FLAGS)
        answer(running, "a")
        size = int(running.metric("quern_model_memory_bytes", model_name="a"))
    assert size > 0
    return size


def answer(running, model, **fields):
    return running.post("/v1/chat/completions", chat_body(model=model, **fields))


def loaded(running):
    return {model["id"] for model in json.loads(running.get("/v1/models")[2])["data"] if model["loaded"]}


def wait_until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_requests_name_their_model(start, models):
    running = start(models / "a", models / "b")
    assert loaded(running) == set()
    status, _, text = answer(running, "b")
    assert status == 200 and json.loads(text)["model"] == "b"
    assert loaded(running) == {"b"}
    assert json.loads(running.post("/v1/chat/completions", chat_body())[2])["model"] == "a"
    assert loaded(running) == {"a", "b"}
    message = error_of(answer(running, "nobody"), 404, "model_not_found")["message"]
    assert "This server has: a, b." in message
    assert running.metric("vllm:request_success_total", model_name="b") == 1


def test_other_names_may_be_given(start, models):
    running = start(f"small={models / 'a'}", f"large={models / 'b'}", "--pin", "large")
    assert loaded(running) == {"large"}
    assert answer(running, "small")[0] == 200


def test_a_folder_of_models(start, models):
    (models / "broken").mkdir(exist_ok=True)
    (models / "broken" / "config.json").write_text("{}")
    running = start(f"--models-dir={models}")
    running.wait_for_log("broken is passed over")
    assert {model["id"] for model in json.loads(running.get("/v1/models")[2])["data"]} == {"a", "b", "c"}
    assert answer(running, "c")[0] == 200


def test_what_was_not_used_for_longest_goes(start, models, bytes_of_one):
    running = start(models / "a", models / "b", models / "c", "--models-memory-bytes", 2 * bytes_of_one + 1000)
    for name in "abac":
        assert answer(running, name)[0] == 200
    assert loaded(running) == {"a", "c"}
    assert running.metric("quern_model_unloads_total", model_name="b") == 1


def test_many_clients_of_more_models_than_fit(start, models, bytes_of_one):
    running = start(models / "a", models / "b", models / "c", "--models-memory-bytes", bytes_of_one + 1000)
    expected = answer(running, "a")[2].split('"message"')[1].split('"usage"')[0]

    def ask(i):
        name = "abc"[i % 3]
        status, _, text = answer(running, name)
        return status, json.loads(text)["model"] == name, text.split('"message"')[1].split('"usage"')[0] == expected
    with concurrent.futures.ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(ask, range(48)))
    assert answers == [(200, True, True)] * 48


def test_an_idle_model_goes_after_its_time(start, models):
    running = start(models / "a", models / "b", "--keep-alive", "200ms")
    assert answer(running, "a")[0] == 200
    wait_until(lambda: loaded(running) == set())
    assert answer(running, "a")[0] == 200
    assert running.metric("quern_model_loads_total", model_name="a") == 2


def test_ollamas_keep_alive_and_quern_stop_unload(start, models):
    running = start(models / "a", models / "b")
    assert answer(running, "a")[0] == answer(running, "b")[0] == 200
    shown = subprocess.run([QUERN, "ps", "--json", "--url", running.url], capture_output=True, text=True, timeout=60)
    assert all(f'"{name}' in shown.stdout for name in "ab"), shown.stdout + shown.stderr
    stopped = subprocess.run([QUERN, "stop", "a", "--url", running.url], capture_output=True, text=True, timeout=60)
    assert stopped.returncode == 0, stopped.stderr
    wait_until(lambda: loaded(running) == {"b"})
    status, _, text = running.post("/api/chat", {"model": "b", "messages": [{"role": "user", "content": "x"}], "stream": False, "keep_alive": 0})
    assert status == 200 and json.loads(text)["done"]
    wait_until(lambda: loaded(running) == set())
    assert answer(running, "a")[0] == 200 and loaded(running) == {"a"}
    assert running.post("/api/generate", {"model": "a", "keep_alive": "1s"})[0] == 200
    wait_until(lambda: loaded(running) == set())


def test_one_model_may_go_and_come_back(start, models):
    running = start(models / "a", "--keep-alive", "200ms")
    wait_until(lambda: loaded(running) == set())
    assert answer(running, "a")[0] == 200


def test_a_model_that_cannot_be_loaded_harms_no_other(start, models, tmp_path):
    shutil.copytree(models / "a", tmp_path / "gone")
    running = start(models / "a", tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone")
    message = error_of(answer(running, "gone"), 503)["message"]
    assert "`gone` could not be loaded" in message and str(tmp_path) not in message
    running.wait_for_log("gone cannot be loaded")
    assert answer(running, "a")[0] == 200
    assert running.get("/health")[0] == 200


@pytest.mark.parametrize("arguments, reason", [
    (("a", "a"), "two models are called a"),
    (("a", "b", "--pin", "x"), "--pin x: no model is called so"),
    (("a", "nothing"), "nothing"),
    (("a", "b", "--served-model-name", "x"), "NAME=PATH"),
    (("a", "b", "--models-memory-bytes", "1000"), "--models-memory-bytes"),
    (("a", "--keep-alive", "soon"), "--keep-alive: 'soon' is no duration"),
    (("--models-dir", "nothing"), "--models-dir nothing"),
])
def test_what_cannot_be_served_is_said_at_once(models, arguments, reason):
    result = subprocess.run([QUERN, "serve", *arguments, "--port", "0", *FLAGS], cwd=models, capture_output=True, text=True, timeout=30)
    assert result.returncode == 1 and reason in result.stderr, result.stderr

"""A server of the scripted model for the whole session, and ways to talk to it."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import openai
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
import make_scripted_model  # noqa: E402

QUERN = os.environ["QUERN_BINARY"]
CONTEXT = 256


class Running:
    """One `quern serve` process."""

    def __init__(self, model, *flags, env=None):
        self.process = subprocess.Popen([QUERN, "serve", str(model), "--port", "0", *flags], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        self.log, self.printed = [], []
        reader = threading.Thread(target=self._read_log, daemon=True)
        reader.start()
        for line in self.process.stdout:
            self.printed.append(line)
            if found := re.search(r"https?://[^:\s]+:(\d+)", line):
                self.port = int(found.group(1))
                break
        else:
            self.process.wait(timeout=60)
            reader.join(timeout=60)
            raise RuntimeError("the server did not start:\n" + "".join(self.log))
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.port}"

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line)

    def wait_for_log(self, text):
        deadline = time.monotonic() + 10
        while not any(text in line for line in list(self.log)):
            assert time.monotonic() < deadline, f"'{text}' is not in the log"
            time.sleep(0.01)

    def stop(self):
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def call(self, method, path, body=None, **headers):
        """Status, headers and text of the answer; a dict is sent as JSON."""
        connection = self.connect()
        if isinstance(body, dict):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, text

    def get(self, path, **headers):
        return self.call("GET", path, None, **headers)

    def post(self, path, body, **headers):
        return self.call("POST", path, body, **headers)

    def complete(self, prompt, **fields):
        status, _, text = self.post("/v1/completions", {"prompt": prompt, "temperature": 0, **fields})
        assert status == 200, text
        return json.loads(text)

    def text(self, prompt, **fields):
        return self.complete(prompt, **fields)["choices"][0]["text"]

    def chat(self, ask=None, **fields):
        status, _, text = self.post("/v1/chat/completions", chat_body(ask, **fields))
        assert status == 200, text
        return json.loads(text)

    def events(self, path, body):
        """The data of all events of a stream, the last one being [DONE]."""
        status, headers, text = self.post(path, {**body, "stream": True})
        assert status == 200, text
        assert headers["content-type"].startswith("text/event-stream")
        events = text.split("\n\n")
        assert events.pop() == ""
        assert all(event.startswith("data: ") and "\n" not in event for event in events), text
        assert events[-1] == "data: [DONE]"
        return [json.loads(event[len("data: "):]) for event in events[:-1]]

    def metric(self, name, **labels):
        """The sum of the samples of that name with these labels."""
        total, found = 0.0, False
        for line in self.get("/metrics")[2].splitlines():
            if line.startswith(name + "{") and all(f'{key}="{value}"' in line for key, value in labels.items()):
                total, found = total + float(line.rsplit(" ", 1)[1]), True
        assert found, name
        return total

    def wait_idle(self):
        """Until nothing has run for a while: a request that was just sent may not have been read yet."""
        deadline = time.monotonic() + 20
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < 0.3:
            if sum(map(self.metric, ("vllm:num_requests_running", "vllm:num_requests_waiting", "quern_streams_open"))) > 0:
                quiet_since = time.monotonic()
            assert time.monotonic() < deadline, "requests are still running"
            time.sleep(0.01)

    def client(self, **options):
        return openai.OpenAI(base_url=self.url + "/v1", api_key=options.pop("api_key", "none"), timeout=60, **options)


@contextlib.contextmanager
def servers():
    """start(model, words...): a server. At the end all are stopped, and each must say that it ended well."""
    started = []

    def start(model, *words, **options):
        started.append(Running(model, *map(str, words), **options))
        return started[-1]
    try:
        yield start
    finally:
        statuses = [running.stop() for running in started]
    assert set(statuses) <= {0}, statuses


def chat_body(ask=None, **fields):
    body = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, **fields}
    if ask is not None:
        body["chat_template_kwargs"] = {"ask": ask}
    return body


def error_of(answer, status=400, code=...):
    """Checks the shape of an error answer and returns its error object."""
    assert answer[0] == status, answer
    error = json.loads(answer[2])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] is None or isinstance(error["code"], str)
    if code is not ...:
        assert error["code"] == code, error
    return error


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    return make_scripted_model.write(tmp_path_factory.mktemp("models") / "scripted")


@pytest.fixture(scope="session")
def serve(model):
    """serve(flags...) as a context manager: a server of its own."""
    @contextlib.contextmanager
    def start(*flags, **options):
        running = Running(model, "--max-model-len", str(CONTEXT), *flags, **options)
        try:
            yield running
        finally:
            if running.process.poll() is None:
                running.process.kill()
                running.process.wait()
    return start


@pytest.fixture(scope="session")
def server(serve):
    with serve("--served-model-name", "org/scripted", "alias") as running:
        yield running
        running.wait_idle()
        assert running.stop() == 0


@pytest.fixture(scope="session")
def client(server):
    return server.client(max_retries=0)

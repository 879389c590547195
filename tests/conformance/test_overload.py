"""Checks 72, 119, 120, 121, 122 and 124: who leaves, who is too many, who waits too long and who goes first, on every route that
generates. The model here never ends its text."""
import concurrent.futures
import json
import selectors
import statistics
import threading
import time

import pytest

import make_scripted_model as script
from conftest import error_of, servers
from test_limits import LONG, opened, seconds

COMPLETIONS = "/v1/completions"
ENDLESS = 100_000  # tokens: seconds of work
HI = [{"role": "user", "content": "hi"}]
# Route -> a request for so many tokens.
ROUTES = {
    "/v1/chat/completions": lambda count: {"messages": HI, "max_tokens": count},
    COMPLETIONS: lambda count: {"prompt": "L", "max_tokens": count},
    "/v1/responses": lambda count: {"input": "hi", "max_output_tokens": count},
    "/v1/messages": lambda count: {"messages": HI, "max_tokens": count},
    "/completion": lambda count: {"prompt": "L", "n_predict": count},
    "/infill": lambda count: {"input_prefix": "A", "input_suffix": "B", "n_predict": count, "ignore_eos": True},
    "/api/generate": lambda count: {"model": "endless", "prompt": "L", "raw": True, "options": {"num_predict": count}},
    "/api/chat": lambda count: {"model": "endless", "messages": HI, "options": {"num_predict": count}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Its template ends every prompt with the letter of the endless text."""
    template = script.TEMPLATE.replace("{% if ask is defined %}{{ ask }}{% endif %}", "L")
    return script.write(tmp_path_factory.mktemp("models") / "endless", script.Script(script.SCRIPTS, template, context=LONG))


@pytest.fixture(scope="module")
def start(folder):
    """start(flags...): a server of it."""
    with servers() as of:
        yield lambda *flags: of(folder, "--max-model-len", LONG, "--kv-cache-memory-bytes", "256m", *flags)


@pytest.fixture(scope="module")
def endless(start):
    return start()


@pytest.fixture(scope="module")
def narrow(start):
    """One request runs, two wait."""
    return start("--max-num-seqs", "1", "--max-queued-requests", "2")


def until(condition):
    """Seconds until it holds; what is allowed one second is given five."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < 5
        time.sleep(0.001)
    return time.monotonic() - began


def running(server):
    return server.metric("vllm:num_requests_running")


def waiting(server):
    return server.metric("vllm:num_requests_waiting")


def is_free(server):
    return running(server) == waiting(server) == server.metric("vllm:kv_cache_usage_perc") == 0


@pytest.fixture
def busy(narrow):
    """A request that runs in the narrow server and two that wait; closed after the test, if not by it."""
    connections = []
    for count in range(3):
        connections.append(opened(narrow, ROUTES[COMPLETIONS](ENDLESS)))
        until(lambda: running(narrow) + waiting(narrow) == count + 1)
    assert waiting(narrow) == 2
    yield connections
    for connection in connections:
        connection.close()
    until(lambda: is_free(narrow))


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ROUTES)
def test_g72_p119_a_client_that_leaves(endless, path, stream):
    """What it asked for is not made any more, and its pages are free."""
    made = endless.metric("vllm:generation_tokens_total")
    aborted = endless.metric("vllm:request_success_total", finished_reason="abort")
    with opened(endless, {**ROUTES[path](ENDLESS), "stream": stream}, path=path) as connection:
        until(lambda: running(endless) == 1)
        if stream:
            assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
    until(lambda: is_free(endless))
    assert endless.metric("vllm:generation_tokens_total") - made < ENDLESS / 2
    assert endless.metric("vllm:request_success_total", finished_reason="abort") == aborted + 1


def test_g72_a_client_that_leaves_the_queue(narrow, busy):
    busy.pop().close()
    until(lambda: waiting(narrow) == 1)
    assert running(narrow) == 1


@pytest.mark.parametrize("path", ROUTES)
def test_q120_p119_more_than_may_wait(narrow, busy, path):
    """They are refused at once, by every route in its words."""
    began = time.monotonic()
    status, headers, text = narrow.post(path, ROUTES[path](5))
    assert time.monotonic() - began < 0.25
    assert status == 429 and int(headers["retry-after"]) >= 1 and json.loads(text)["error"]
    if path in ("/v1/chat/completions", COMPLETIONS, "/v1/responses"):
        error_of((status, headers, text), 429, "rate_limit_exceeded")


def test_q120_the_rest_finish(narrow, busy):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        busy.pop().close()
        until(lambda: waiting(narrow) == 1)
        fitting = pool.submit(narrow.post, COMPLETIONS, ROUTES[COMPLETIONS](5))
        until(lambda: waiting(narrow) == 2)
        refused = [pool.submit(narrow.post, COMPLETIONS, ROUTES[COMPLETIONS](5)) for _ in range(6)]
        assert [one.result()[0] for one in refused] == [429] * 6
        assert not fitting.done()
        for connection in busy:
            connection.close()
        assert fitting.result()[0] == 200


@pytest.mark.parametrize("path", ROUTES)
def test_q121_p119_deadlines(endless, path):
    def ask():
        status, _, text = endless.post(path, {**ROUTES[path](ENDLESS), "stream": False}, X_Request_Timeout_Ms="100")
        assert status in (408, 504) and json.loads(text)["error"]
    assert 0.1 <= seconds(ask) < 1
    until(lambda: is_free(endless))


def test_q121_a_deadline_in_the_queue(narrow, busy):
    busy.pop().close()
    until(lambda: waiting(narrow) == 1)
    assert error_of(narrow.post(COMPLETIONS, ROUTES[COMPLETIONS](5), X_Request_Timeout_Ms="100"), 504)["type"] == "timeout"
    assert (running(narrow), waiting(narrow)) == (1, 1)


@pytest.mark.parametrize("path", ROUTES)
def test_p119_too_long_prompts(endless, path):
    body = ROUTES[path](5)
    name = next(name for name in ("messages", "prompt", "input", "input_prefix") if name in body)
    long_text = "word " * LONG
    status, _, text = endless.post(path, {**body, name: [{"role": "user", "content": long_text}] if name == "messages" else long_text})
    assert status == 400 and str(LONG) in text, text[:300]


def test_q122_five_hundred_streams_at_once(serve):
    """Each stream gets its own text, whoever runs beside it, and none is finished twice as late as most are."""
    words = {digit: word.decode() for digit, word in script.DIGITS.items()}
    with serve("--max-num-seqs", "512", "--max-queued-requests", "512") as wide:
        bodies = [{"prompt": f"stream {i} says {i % 10}", "max_tokens": 150, "temperature": 0, "stream": True} for i in range(500)]
        answers = read_all([opened(wide, body) for body in bodies])
        for i, (text, _) in enumerate(answers):
            events = [line.removeprefix("data: ") for line in text.decode().splitlines() if line.startswith("data: ")]
            assert events.pop() == "[DONE]"
            choices = [json.loads(event)["choices"][0] for event in events]
            assert "".join(choice["text"] for choice in choices) == words[str(i % 10)] * 150 and choices[-1]["finish_reason"] == "length"
        ends = [end for _, end in answers]
        assert max(ends) < 2 * statistics.median(ends), (min(ends), statistics.median(ends), max(ends))


def read_all(connections):
    """For each connection what came until its answer ended, and after how many seconds that was."""
    began = time.monotonic()
    texts, ends = [b""] * len(connections), [0.0] * len(connections)
    with selectors.DefaultSelector() as selector:
        for i, connection in enumerate(connections):
            selector.register(connection, selectors.EVENT_READ, i)
        while selector.get_map():
            for key, _ in selector.select(timeout=60):
                texts[key.data] += key.fileobj.recv(1 << 16)
                if texts[key.data].endswith(b"\r\n0\r\n\r\n"):
                    ends[key.data] = time.monotonic() - began
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
    return list(zip(texts, ends))


def test_q124_priorities_reorder_the_queue(start):
    """A request that is more urgent overtakes those that have waited longer; equal ones stay in order."""
    single = start("--max-num-seqs", "1")
    order = []

    def ask(name, priority):
        assert single.post(COMPLETIONS, {**ROUTES[COMPLETIONS](2000), "priority": priority})[0] == 200
        order.append(name)
    with opened(single, {**ROUTES[COMPLETIONS](ENDLESS), "priority": -100}):
        until(lambda: running(single) == 1)
        threads = []
        for name, priority in (("low 1", 5), ("low 2", 5), ("usual", 0), ("high", -5)):
            threads.append(threading.Thread(target=ask, args=(name, priority)))
            threads[-1].start()
            until(lambda: waiting(single) == len(threads))
    for thread in threads:
        thread.join()
    assert order == ["high", "usual", "low 1", "low 2"]

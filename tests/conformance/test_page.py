"""The page at /, in a real browser."""
import http.server
import json
import threading
import time
import types

import pytest
from browser import COMMAND, Browser

HOSTILE = """Look <script>document.title = "owned"</script> at <img src=x onerror="document.title='owned'">this:

[click](javascript:document.title='owned') [data](data:text/html,<script>1</script>) [good](https://example.org/a?b=c)
![picture](https://example.org/track.png) `<b>code</b>` **bold** and *slanted*

```html
<script>document.title = "owned"</script>
```

| a | b |
|---|---|
| <i>1</i> | 2 |

1. one
   - inner
2. two
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    assert COMMAND, "chromium is not installed; `tools/bootstrap test` installs it"
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def page(server):
    """The page's bytes and headers, as a browser gets them."""
    status, headers, text = server.get("/", Accept="text/html")
    assert status == 200
    return headers, text


@pytest.fixture()
def stand_in(page):
    """A server of the same page whose chat says what a test wants: stand_in(deltas). Its address, and a record of what
    was asked and whether the browser left before the end."""
    servers = []

    def start(deltas):
        record = types.SimpleNamespace(asked=[], left=threading.Event())

        class Handler(http.server.BaseHTTPRequestHandler):

            def answer(self, kind, body, **headers):
                self.send_response(200)
                for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                if self.path == "/":
                    policy = page[0]["content-security-policy"]
                    return self.answer("text/html; charset=utf-8", page[1].encode(), **{"Content-Security-Policy": policy})
                self.answer("application/json", b'{"data": [{"id": "stand-in"}]}')

            def say(self, delta, finish_reason=None):
                choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
                self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())

            def do_POST(self):
                record.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                try:
                    for delta in deltas:
                        self.say(delta)
                    self.say({}, "stop")
                    self.wfile.write(b"data: [DONE]\n\n")
                except (BrokenPipeError, ConnectionResetError):
                    record.left.set()

            def log_message(self, *_):
                pass

        running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=running.serve_forever, daemon=True).start()
        servers.append(running)
        return f"http://127.0.0.1:{running.server_port}/", record

    yield start
    for running in servers:
        running.shutdown()


def open_page(browser, url):
    browser.open(url)
    browser.run("localStorage.clear(); sessionStorage.clear()")
    browser.console.clear()
    browser.requests.clear()
    browser.open(url)
    browser.wait("document.querySelector('#model').options.length > 0")


def ask(browser, text):
    browser.type("#input", text)
    browser.press("Enter")
    browser.wait("document.querySelector('#send').innerText === 'Send' && document.querySelector('.message.assistant')")


def test_page_is_one_small_file_with_a_strict_policy(server, page):
    headers, text = page
    assert len(text.encode()) <= 200_000
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["connect-src"] == "'self'"
    assert policy["script-src"].startswith("'sha256-") and "unsafe" not in headers["content-security-policy"]
    connection = server.connect()
    connection.request("GET", "/", headers={"Accept": "text/html", "Accept-Encoding": "gzip"})
    response = connection.getresponse()
    assert response.getheader("Content-Encoding") == "gzip" and len(response.read()) <= 80_000
    connection.close()


def test_page_can_be_turned_off(serve):
    with serve("--no-webui") as running:
        _, headers, text = running.get("/", Accept="text/html")
        assert headers["content-type"].startswith("text/plain") and "<script" not in text


def test_chat_streams_and_is_kept(browser, server):
    open_page(browser, server.url)
    ask(browser, "first question")
    assert "Hello from the script" in browser.text(".message.assistant .body")
    assert "tokens" in browser.text(".message.assistant .figures")
    ask(browser, "second question")
    assert browser.run("document.querySelectorAll('.message').length") == 4
    browser.open(server.url)
    browser.wait("document.querySelectorAll('.message').length === 4")
    assert browser.text("#chats .current .open") == "first question"
    assert browser.console == []
    assert all(url.startswith((server.url, "data:")) for url in browser.requests), browser.requests


def test_regenerate_edit_and_new(browser, server):
    open_page(browser, server.url)
    ask(browser, "one")
    ask(browser, "two")
    browser.run("[...document.querySelectorAll('.message.assistant')][0].querySelectorAll('.tools button')[1].click()")
    browser.wait("document.querySelectorAll('.message').length === 2 && document.querySelector('#send').innerText === 'Send'")
    browser.run("document.querySelector('#input').focus()")
    browser.press("ArrowUp")
    browser.wait("document.querySelector('.message.user textarea')")
    browser.run("document.querySelector('.message.user textarea').value = 'changed'; document.querySelector('.message.user .tools button').click()")
    browser.wait("document.querySelector('#send').innerText === 'Send'")
    assert browser.text(".message.user .body") == "changed"
    browser.click("#new-chat")
    assert browser.run("document.querySelectorAll('.message').length") == 0
    assert browser.run("document.querySelectorAll('#chats > div').length") == 2


def test_stop(browser, stand_in):
    def slowly():
        for _ in range(600):
            yield {"content": "la "}
            time.sleep(0.1)

    url, record = stand_in(slowly())
    open_page(browser, url)
    browser.type("#input", "go on")
    browser.press("Enter")
    browser.wait("document.querySelector('.message.assistant .body')?.innerText.includes('la la la')")
    assert browser.text("#send") == "Stop"
    browser.press("Escape")
    browser.wait("document.querySelector('.failure')?.innerText === 'Stopped.'")
    assert browser.text("#send") == "Send"
    assert record.left.wait(10)


def test_settings_are_sent(browser, stand_in):
    url, record = stand_in([{"role": "assistant", "content": "yes"}])
    open_page(browser, url)
    browser.click("#toggle-settings")
    browser.type("#system", "Be short.")
    browser.type("#temperature", "0.5")
    browser.type("#seed", "7")
    ask(browser, "hello")
    asked = record.asked[-1]
    assert asked["messages"] == [{"role": "system", "content": "Be short."}, {"role": "user", "content": "hello"}]
    assert (asked["temperature"], asked["seed"], asked["model"]) == (0.5, 7, "stand-in")
    assert "top_p" not in asked and asked["stream"]


def test_nothing_a_model_says_runs(browser, stand_in):
    url, _ = stand_in([{"role": "assistant", "content": ""}, *({"content": c} for c in HOSTILE)])
    open_page(browser, url)
    ask(browser, "attack me")
    assert browser.run("document.title") == "Quern"
    body = "document.querySelector('.message.assistant .body')"
    assert browser.run(f"{body}.querySelectorAll('script, img, iframe, i').length") == 0
    assert browser.run(f"[...{body}.querySelectorAll('a')].map(a => a.href)") == \
        ["https://example.org/a?b=c", "https://example.org/track.png"]
    assert browser.text(".message.assistant .body strong") == "bold"
    assert browser.text(".message.assistant .body em") == "slanted"
    assert browser.text(".block pre") == '<script>document.title = "owned"</script>'
    assert browser.run(f"{body}.querySelectorAll('table td').length") == 2
    assert browser.run(f"{body}.querySelector('ol > li > ul > li').innerText") == "inner"
    assert all(asked.startswith((url, "data:")) for asked in browser.requests), browser.requests
    # Whatever got into the page by another way would be stopped by the policy.
    browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"document.title=1\">')")
    browser.run("new Promise(done => setTimeout(done, 200))")
    assert browser.run("document.title") == "Quern"


def test_reasoning_and_tool_calls_are_folded(browser, stand_in):
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    url, _ = stand_in([{"role": "assistant", "reasoning": "Let me ", "reasoning_content": "Let me "}, {"reasoning": "think."},
                       {"content": "So."}, {"tool_calls": [call]},
                       {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": "Oslo"}'}}]}])
    open_page(browser, url)
    ask(browser, "weather?")
    assert browser.run("[...document.querySelectorAll('details')].map(d => [d.className, d.open, d.textContent])") == [
        ["reasoning", False, "ReasoningLet me think."], ["call", False, 'Tool call: weather{"city": "Oslo"}']]
    assert browser.text(".message.assistant .body") == "So."


def test_key_is_asked_for(browser, serve):
    with serve("--api-key", "secret") as running:
        browser.open(running.url)
        browser.run("localStorage.clear(); sessionStorage.clear()")
        browser.open(running.url)
        browser.wait("!document.querySelector('#settings').hidden")
        browser.type("#key", "secret")
        browser.press("Enter")
        browser.run("document.querySelector('#key').dispatchEvent(new Event('change'))")
        browser.wait("document.querySelector('#model').options.length > 0")
        ask(browser, "hello")
        assert "Hello from the script" in browser.text(".message.assistant .body")
        assert browser.run("Object.values(localStorage).some(v => v.includes('secret'))") is False


def test_status_and_narrow_screens(browser, server):
    open_page(browser, server.url)
    browser.wait("document.querySelector('#kv').innerText.endsWith('%')")
    assert browser.text("#running") == "0" and browser.text("#waiting") == "0"
    browser.wait("document.querySelector('#rate-graph polyline')")
    browser.size(390, 800)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    assert browser.run("getComputedStyle(document.querySelector('#sidebar')).display") == "none"
    browser.click("#toggle-sidebar")
    assert browser.run("getComputedStyle(document.querySelector('#sidebar')).display") == "flex"
    browser.size(1200, 800)


def test_dark_and_light(browser, server):
    open_page(browser, server.url)
    ground = "getComputedStyle(document.body).backgroundColor"
    browser.size(1200, 800, dark=True)
    dark = browser.run(ground)
    browser.size(1200, 800)
    light = browser.run(ground)
    assert dark != light
    browser.click("#theme")
    assert browser.run(ground) == dark
    browser.open(server.url)
    assert browser.run(ground) == dark

"""A headless Chromium, driven through its debugging pipe."""
import base64
import itertools
import json
import os
import shutil
import subprocess
import threading
import time

COMMAND = shutil.which("chromium")


class Browser:
    """One page of a browser of its own, without a profile."""

    def __init__(self, profile):
        read_commands, self._commands = os.pipe()
        self._answers, write_answers = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-extensions", "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{read_commands} 4>&{write_answers}', "browser", COMMAND, *flags],
            pass_fds=(read_commands, write_answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(read_commands)
        os.close(write_answers)
        self._ids = itertools.count(1)
        self._waiting, self._done, self._session = {}, threading.Condition(), None
        self.console, self.requests = [], []
        threading.Thread(target=self._read, daemon=True).start()
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.command(f"{domain}.enable")

    def _read(self):
        rest = b""
        while block := os.read(self._answers, 1 << 16):
            *messages, rest = (rest + block).split(b"\0")
            for message in map(json.loads, messages):
                with self._done:
                    self._take(message)
                    self._done.notify_all()

    def _take(self, message):
        if "id" in message:
            self._waiting[message["id"]] = message
        elif message["method"] == "Runtime.exceptionThrown":
            self.console.append(json.dumps(message["params"]["exceptionDetails"]))
        elif message["method"] == "Log.entryAdded":
            self.console.append(message["params"]["entry"]["text"])
        elif message["method"] == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])

    def command(self, name, **parameters):
        number = next(self._ids)
        message = {"id": number, "method": name, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        with self._done:
            assert self._done.wait_for(lambda: number in self._waiting, timeout=60), f"{name}: no answer"
            answer = self._waiting.pop(number)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, url):
        self.command("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script):
        """The value of a JavaScript expression; a promise is waited for."""
        result = self.command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, condition, seconds=30):
        deadline = time.monotonic() + seconds
        while not self.run(f"!!({condition})"):
            assert time.monotonic() < deadline, f"never true: {condition}\npage: {self.run('document.body.innerText')}"
            time.sleep(0.05)

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)}).innerText")

    def click(self, selector):
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, key, **modifiers):
        code = {"Enter": 13, "Escape": 27, "ArrowUp": 38}[key]
        for kind in ("rawKeyDown", "keyUp"):
            self.command("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **modifiers)

    def type(self, selector, text):
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.command("Input.insertText", text=text)

    def size(self, width, height, dark=False):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                     mobile=width < 500)
        self.command("Emulation.setEmulatedMedia",
                     features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def picture(self, path):
        data = self.command("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        os.close(self._commands)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

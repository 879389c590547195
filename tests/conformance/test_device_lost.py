"""A device that dies ends every request once, and then the process, with a status that tells a supervisor to start it again."""
import concurrent.futures
import json

import make_scripted_model as script
from conftest import CONTEXT, Running

LONG = 16_384


def ask(server, stream=False, tokens=5):
    body = {"prompt": "abc", "max_tokens": tokens, "ignore_eos": True, "stream": stream}
    return server.post("/v1/completions", body)


def test_every_request_is_answered_once_and_the_process_ends(tmp_path):
    """Three run when it happens, and five wait."""
    model = script.write(tmp_path / "long", script.Script(script.SCRIPTS, context=LONG))
    server = Running(model, "--max-model-len", str(LONG), "--max-num-seqs", "3", env={"QUERN_DEVICE_FAILS_AFTER": "8000"})
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        plain = [pool.submit(ask, server, False, 10_000) for _ in range(5)]
        streams = [pool.submit(ask, server, True, 10_000) for _ in range(3)]
        plain = [answer.result() for answer in plain]
        streams = [answer.result() for answer in streams]
    for status, _, text in plain:
        assert status == 500, text
        assert json.loads(text)["error"]["message"] == "The engine could not finish this request."
    for status, _, text in streams:  # begun with 200, or refused before a token was there
        assert status in (200, 500), text
        assert text.count('"error"') == 1, text
    assert server.process.wait(timeout=60) == 1
    server.wait_for_log("the device was told to fail")
    server.wait_for_log("start the server again")


def test_a_device_that_never_fails_ends_as_always(model):
    server = Running(model, "--max-model-len", str(CONTEXT), env={"QUERN_DEVICE_FAILS_AFTER": "10000000"})
    assert ask(server)[0] == 200
    assert server.stop() == 0

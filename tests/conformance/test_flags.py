"""What flags and variables of vLLM do to a server, over the scripted model."""
import json
import shutil
import signal
import subprocess

import pytest

from conftest import QUERN, Running, error_of


def test_defaults_of_sampling_come_from_the_folder_that_is_named(model, tmp_path):
    def sampling(*flags, of=model):
        running = Running(of, *flags)
        shown = json.loads(running.get("/props")[2])["default_generation_settings"]["params"]
        assert running.stop() == 0
        return shown["temperature"], shown["top_k"], shown["repeat_penalty"]

    own = sampling()
    (tmp_path / "generation_config.json").write_text(json.dumps({"temperature": 0.25, "top_k": 7, "repetition_penalty": 1.5}))
    assert sampling("--generation-config", str(tmp_path)) == (0.25, 7, 1.5) != own
    copy = shutil.copytree(model, tmp_path / "copy")
    shutil.copy(tmp_path / "generation_config.json", copy)
    assert sampling(of=copy) == (0.25, 7, 1.5)
    assert sampling("--generation-config", "vllm", of=copy) == own


def test_end_tokens_come_from_the_folder_that_is_named(serve, tmp_path):
    body = {"prompt": "T", "max_tokens": 9}
    with serve() as running:
        answer = running.complete(**body, return_token_ids=True)["choices"][0]
    assert answer["text"] == "t-onet-twot-three"
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [answer["token_ids"][1]]}))
    with serve("--generation-config", str(tmp_path)) as running:
        assert running.text(**body) == "t-one"


def test_suppressed_tokens_are_never_chosen(serve, tmp_path):
    body = {"prompt": "T", "max_tokens": 9}
    with serve() as running:
        first, second = running.complete(**body, return_token_ids=True)["choices"][0]["token_ids"][:2]
    (tmp_path / "generation_config.json").write_text(json.dumps({"suppress_tokens": [second, 1 << 30]}))
    with serve("--generation-config", str(tmp_path)) as running:
        for more in ({}, {"temperature": 1, "seed": 3}, {"bad_words": ["x"]}):
            ids = running.complete(**body, **more, return_token_ids=True)["choices"][0]["token_ids"]
            assert second not in ids
        assert running.complete(**body, return_token_ids=True)["choices"][0]["token_ids"][0] == first
    for key in ("suppress_tokens", "begin_suppress_tokens"):
        (tmp_path / "generation_config.json").write_text(json.dumps({key: list(range(1025))}))
        with pytest.raises(RuntimeError, match="suppresses 1025 tokens, more than the 1024 allowed"):
            with serve("--generation-config", str(tmp_path)):
                pass


def test_tokens_suppressed_at_the_beginning_are_chosen_after_it(serve, tmp_path):
    body = {"prompt": "T", "max_tokens": 9, "return_token_ids": True}
    with serve() as running:
        free = running.complete(**body)["choices"][0]["token_ids"]
    (tmp_path / "generation_config.json").write_text(json.dumps({"begin_suppress_tokens": free[:1] + [1 << 30]}))
    with serve("--generation-config", str(tmp_path)) as running:
        for more in ({}, {"temperature": 1, "seed": 3}):
            wanted = {**body, **more, "max_tokens": 4, "ignore_eos": True, "logit_bias": {str(free[0]): 100}}
            ids = running.complete(**wanted)["choices"][0]["token_ids"]
            assert ids[0] != free[0] and ids[1:] == free[:1] * 3
    (tmp_path / "generation_config.json").write_text(json.dumps({"begin_suppress_tokens": [free[1]]}))
    with serve("--generation-config", str(tmp_path)) as running:
        assert running.complete(**body)["choices"][0]["token_ids"] == free


def test_a_line_of_vllm_starts_the_server(serve):
    passed_over = ["--tensor-parallel-size", "1", "--pipeline-parallel-size=1", "--stream-interval", "1", "--enable-chunked-prefill",
                   "--disable-access-log-for-endpoints", "/health,/metrics", "--trust-remote-code"]
    with serve("--max-model-len", "-1", "--dtype", "float", "--served-model-name", "one", "two", *passed_over,
               env={"VLLM_API_KEY": "secret"}) as running:
        error_of(running.get("/v1/models"), 401)
        listed = json.loads(running.get("/v1/models", authorization="Bearer secret")[2])["data"]
        assert [model["id"] for model in listed] == ["one", "two"]


@pytest.mark.parametrize("flag, value", [("--tensor-parallel-size", "2"), ("--scheduling-policy", "x"), ("--cpu-offload-gb", "4")])
def test_what_vllm_can_do_in_other_ways_is_refused(model, flag, value):
    result = subprocess.run([QUERN, "serve", str(model), flag, value], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert f"{flag} {value}: only " in result.stderr, result.stderr


@pytest.mark.parametrize("host, flags, warned", [("0.0.0.0", (), True), ("127.0.0.2", (), False), ("0.0.0.0", ("--api-key", "k"), False)])
def test_an_open_port_without_a_key_is_warned_of(model, host, flags, warned):
    process = subprocess.Popen([QUERN, "serve", str(model), "--port", "0", "--host", host, *flags], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)
    said = ""
    while "curl" not in said:
        said += process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    said += process.stdout.read()
    assert process.wait(timeout=60) == 0
    assert ("set --api-key" in said) == warned, said

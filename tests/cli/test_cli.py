"""The program as a person at a terminal meets it: the built-in default model, wrong words, pipes, Ctrl-C."""
import os
import pty
import re
import select
import signal
import socket
import subprocess
import time

import pytest

QUERN = os.environ["QUERN_BINARY"]


def quern(*words, **options):
    return subprocess.run([QUERN, *words], capture_output=True, text=True, timeout=120, **options)


def one_sentence(result, status=1):
    assert result.returncode == status
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("quern: "), result.stderr
    return lines[0]


def test_answers_once_and_exits():
    result = quern("run", "What is the capital of France?")
    assert result.returncode == 0
    assert "Paris" in result.stdout
    assert result.stderr == ""


def test_answers_what_comes_through_a_pipe():
    result = quern("run", input="What is the capital of France?\n")
    assert result.returncode == 0
    assert "Paris" in result.stdout


@pytest.mark.parametrize("isa", ["portable", "avx2", "avx512"])
def test_every_instruction_set_says_paris(isa):
    """Levels that this processor lacks fall back to the best that it has."""
    result = quern("run", "What is the capital of France?", env={**os.environ, "QUERN_CPU_ISA": isa})
    assert result.returncode == 0
    assert "Paris" in result.stdout


def test_verbose_prints_speeds():
    result = quern("run", "--verbose", "--max-tokens", "4", "Say hello.")
    assert re.search(r"prompt \d+ tokens, 0 cached; first token \d+ ms, prefill \d+ tokens/s; 4 tokens, [\d.]+ tokens/s",
                     result.stderr)


@pytest.mark.parametrize("words, message", [
    (["run", "--temprature", "1", "x"], "unknown flag --temprature; did you mean --temperature?"),
    (["serv"], "unknown command 'serv'; did you mean serve?"),
    (["run", "/nowhere/model.gguf", "x"], "/nowhere/model.gguf: No such file or directory"),
    (["run", "--max-model-len", "many", "x"], "--max-model-len many: say a whole number from 1 to 2147483647, or auto"),
    (["run", "--kv-cache-memory-bytes", "1k", "x"], "no room for a KV cache"),
    (["run", "--max-model-len", "1g", "x"], "more than the 8192 positions of the model"),
    (["serve", "--max-num-seqs", "0"], "--max-num-seqs 0: say a whole number from 1 to 4096"),
    (["serve", "--device", "tpu"], "--device tpu"),
    (["serve", "--logprobs-mode", "raw"], "--logprobs-mode takes raw_logprobs, raw_logits, processed_logprobs, processed_logits"),
    (["describe", "/"], "config.json"),
    (["serve", "nope"], "there is no file, folder or model 'nope' here; quern list shows the models"),
    (["tokenize"], "name a model"),
])
def test_wrong_words_get_one_sentence(words, message):
    assert message in one_sentence(quern(*words))


NUMBERS = {"N", "P", "K", "T", "R", "B", "SECONDS", "BYTES", "N|auto", "A,B,..."}  # what stands behind numeric flags in help
WITHOUT_END = {"--request-rate", "--burstiness"}


@pytest.mark.parametrize("command", ["run", "serve", "bench", "bench --url http://127.0.0.1:1", "embed", "perplexity", "pull",
                                     "doctor", "replay"])
def test_numbers_that_mean_nothing_get_one_sentence_with_the_bounds(command):
    words = command.split()
    numeric = [(name, value) for name, value in re.findall(r"^  (--[\w-]+) (\S+)", quern(*words, "--help").stdout, re.M)
               if value in NUMBERS]
    assert numeric
    for name, value in numeric:
        for text in ("-5", "1e99", "nan", "abc", ""):
            if text == "1e99" and name in WITHOUT_END or text == "" and value == "A,B,...":
                continue
            said = one_sentence(quern(*words, f"{name}={text}"))
            assert said.startswith(f"quern: {name} {text or 'an empty value'}: say "), said


@pytest.mark.parametrize("words", [
    "run --max-tokens 0 x", "run --temperature 2.5 x", "run --top-p 0 x", "run --kv-cache-memory-bytes 0 x",
    "run --gpu-memory-utilization 1.01 x", "bench --repeats 0", "bench --prompt-lengths 8,0", "bench --batch-sizes 8,x",
    "bench --context 0", "bench --output-tokens 1", "bench --workloads 8x8x0", "bench --limits 1,nan", "bench --sweep 0",
    "bench --url http://127.0.0.1:1 --num-prompts 0", "bench --url http://127.0.0.1:1 --random-range-ratio 1",
    "bench --url http://127.0.0.1:1 --metric-percentiles 101", "bench --url http://127.0.0.1:1 --goodput ttft:-1",
    "embed m x --dimensions 0", "perplexity m f --context 3", "serve --port 65536", "serve --watchdog-timeout 0",
    "serve --keep-alive abc", "pull a/b --max-workers 65",
])
def test_numbers_out_of_bounds_are_refused_by_name(words):
    words = words.split()
    name = next(word for word in reversed(words) if word.startswith("--"))
    assert one_sentence(quern(*words)).startswith(f"quern: {name}")


def test_a_folder_without_config_is_refused(tmp_path):
    assert "config.json" in one_sentence(quern("describe", str(tmp_path)))


def test_a_port_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert str(port) in one_sentence(quern("serve", "--port", str(port)))


def test_help_of_every_command_has_an_example():
    listed = re.findall(r"^  (\w+) ", quern("help").stdout, re.M)
    assert {"run", "serve", "bench", "describe", "tokenize", "replay"} <= set(listed)
    for command in listed:
        if command == "help":
            continue
        text = quern("help", command).stdout
        assert text.startswith("usage: quern " + command) and "example:" in text
        assert len(re.findall(r"^  --", text, re.M)) <= 60


def test_help_of_help():
    assert quern("help", "help").stdout == quern("help").stdout == quern("help", "--help").stdout == quern().stdout


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_one_answer_and_the_status_says_so(sign):
    process = subprocess.Popen([QUERN, "run", "--max-tokens", "4000", "Write a long story about a dragon and a knight."],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    begun = process.stdout.read(5)
    process.send_signal(sign)
    rest, said = process.communicate(timeout=120)
    assert process.returncode == 128 + sign and said == ""
    assert begun and len(rest) < 10_000


def test_version():
    assert re.fullmatch(r"quern \d+\.\d+\.\d+\n", quern("--version").stdout)


def test_describe_says_what_the_model_is():
    text = quern("describe").stdout
    for part in ("LlamaForCausalLM", "Q4_1", "210 tensors", "chat template: 368 characters", "tool calls: json", "weights", "KV cache"):
        assert part in text, text


def test_dry_run_prints_exact_bytes_and_serves_nothing():
    result = quern("serve", "--dry-run", "--kv-cache-memory-bytes", "64Mi")
    assert result.returncode == 0
    assert re.search(r"weights +\d+ bytes", result.stdout) and re.search(r"KV cache +\d+ bytes", result.stdout)


class Terminal:
    """A child on a pseudo terminal."""

    def __init__(self, *words):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(QUERN, [QUERN, *words])
        self.text = ""

    def wait_for(self, pattern, seconds=60):
        end = time.monotonic() + seconds
        while not re.search(pattern, self.text):
            assert time.monotonic() < end, f"{pattern!r} did not come; got {self.text!r}"
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode(errors="replace")
                except OSError:
                    break
        found = re.search(pattern, self.text)
        assert found, self.text
        self.text = self.text[found.end():]

    def send(self, text):
        os.write(self.fd, text.encode())

    def status(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_chats_and_leaves_at_the_end_of_input():
    terminal = Terminal("run", "--temperature", "0")
    terminal.wait_for("> ")
    terminal.send("What is the capital of France?\n")
    terminal.wait_for("Paris")
    terminal.wait_for("> ")
    terminal.send("\x04")
    assert terminal.status() == 0


def test_ctrl_c_stops_an_answer_and_then_leaves():
    terminal = Terminal("run", "--temperature", "0")
    terminal.wait_for("> ")
    terminal.send("Write a long story about a dragon and a knight.\n")
    terminal.wait_for("knight\\.\r\n")  # the echo
    terminal.wait_for(r"\w+ \w+ \w+")
    os.kill(terminal.pid, signal.SIGINT)
    terminal.wait_for("> ")
    os.kill(terminal.pid, signal.SIGINT)
    assert terminal.status() == 0


def test_a_plan_log_runs_again_with_the_same_tokens(tmp_path):
    log = tmp_path / "steps.log"
    assert quern("run", "--plan-log", str(log), "--temperature", "1", "--seed", "7", "Tell a story.",
                 "--max-tokens", "40").returncode == 0
    result = quern("replay", str(log))
    assert result.returncode == 0
    assert re.fullmatch(r"\d+ steps, 4\d tokens, 0 slices differ\n", result.stdout)
    log.write_text(log.read_text() + "nonsense\n")
    assert "line" in one_sentence(quern("replay", str(log)))

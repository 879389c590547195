"""Promises of docs/reliability.md that are kept by the whole program."""
import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import make_scripted_model as script
from conftest import CONTEXT, QUERN, Running, chat_body, error_of
from test_limits import LONG, opened, resident_bytes
from test_stream import CHAT, COMPLETIONS, leave_after

CANARY = "xylophone-canary-7319"


def listening_ports(pid):
    """Ports of all sockets of a process that listen."""
    inodes = {os.readlink(path)[8:-1] for path in pathlib.Path(f"/proc/{pid}/fd").iterdir() if os.readlink(path).startswith("socket:")}
    ports = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.append(int(fields[1].rpartition(":")[2], 16))
    return ports


def test_s29_no_other_port_is_open(server):
    assert listening_ports(server.process.pid) == [server.port]


def test_c6_sigterm_at_any_point_of_the_start(model):
    """The process ends, whatever it was doing, and the port is free again."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    statuses = set()
    for delay in [0.002 * i for i in range(25)]:
        process = subprocess.Popen([QUERN, "serve", str(model), "--port", str(port), "--max-model-len", str(CONTEXT)],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(delay)
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=60)[1]
        assert process.returncode in (0, -signal.SIGTERM), (delay, errors)  # before there are handlers, the signal itself
        statuses.add(process.returncode)
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))
    assert statuses


def test_c6_r129_the_second_signal_ends_at_once(tmp_path):
    folder = script.write(tmp_path / "endless", script.Script(script.SCRIPTS, context=LONG))
    busy = Running(folder, "--max-model-len", str(LONG), "--kv-cache-memory-bytes", "256m", "--shutdown-timeout", "600")
    with opened(busy, {"prompt": "L", "max_tokens": LONG - 10, "ignore_eos": True}):
        while busy.metric("vllm:num_requests_running") == 0:
            time.sleep(0.01)
        busy.process.send_signal(signal.SIGTERM)
        while busy.get("/health")[0] == 200:
            time.sleep(0.01)
        again = time.monotonic()
        assert busy.stop() == 128 + signal.SIGTERM
        assert time.monotonic() - again < 5


BAD = [{"max_tokens": -1}, {"temperature": "x"}, {"logit_bias": {"999999": 1}}, {"stop": [""] * 99}, {"n": 10**9}, {"prompt": []},
       {"prompt": [-1]}, {"prompt": "x" * 9000}, {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "y"}}}},
       {"structured_outputs": {"regex": "("}}, {"structured_outputs": {"grammar": ""}}, {"min_tokens": 2, "max_tokens": 1}, {"logprobs": 10**6},
       {"prompt": ["A", 1]}, {"suffix": 1}, {"stop_token_ids": [10**9]}, {"allowed_token_ids": []}, {"unknown": 1, "best_of": 0}]


def test_c8_bad_requests_disturb_nobody(server):
    """A stream that runs meanwhile says, number for number, what it says when nothing else happens."""
    body = {"prompt": "L", "max_tokens": 240, "ignore_eos": True, "seed": 7, "logprobs": 3}

    def said():
        choices = [event["choices"][0] for event in server.events(COMPLETIONS, body)]
        return "".join(choice["text"] for choice in choices), [top for choice in choices for top in choice["logprobs"]["top_logprobs"]]
    wanted = said()
    done = threading.Event()
    statuses = []

    def disturb():
        while not done.is_set() or len(statuses) < len(BAD):
            for fields in BAD:
                statuses.append((server.post(COMPLETIONS, {"prompt": "A", **fields})[0], str(fields)[:40]))
    thread = threading.Thread(target=disturb)
    thread.start()
    for _ in range(20):
        assert said() == wanted
    done.set()
    thread.join()
    assert [status for status in statuses if status[0] != 400] == []
    server.wait_idle()


def test_c9_a_row_that_is_no_number_ends_alone(tmp_path):
    """One token's embedding is not finite; texts with it fail with an error, texts beside them do not change."""
    folder = script.write(tmp_path / "poisoned")
    ids = script.vocabulary()
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    size = struct.unpack_from("<Q", data)[0]
    begin = json.loads(data[8:8 + size])["model.embed_tokens.weight"]["data_offsets"][0]
    row = 4 * script.VOCAB
    for token, value in ((ids["X"], float("nan")), (ids["Y"], float("inf")), (ids["Z"], 3e38)):
        struct.pack_into(f"<{script.VOCAB}f", data, 8 + size + begin + token * row, *[value] * script.VOCAB)
    path.write_bytes(data)
    running = Running(folder, "--max-model-len", str(CONTEXT))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        bad = [pool.submit(running.post, COMPLETIONS, {"prompt": f"{letter} then A", "max_tokens": 30}) for letter in "XYZ" * 5]
        good = [pool.submit(running.text, "A") for _ in range(30)]
        assert {future.result() for future in good} == {"The capital of France is Paris ."}
        for future in bad:
            status, _, text = future.result()
            assert status in (200, 500), text
            assert status == 200 or "number" in json.loads(text)["error"]["message"] or json.loads(text)["error"]["type"]
        assert [future.result()[0] for future in bad if future.result()[0] == 500]
    running.wait_idle()
    assert running.stop() == 0


def test_c18_a_burst_is_refused_at_once_and_every_request_answered_once(serve):
    with serve("--max-num-seqs", "2", "--max-queued-requests", "6") as small:
        before = resident_bytes(small.process.pid)

        def ask(_):
            start = time.monotonic()
            status, headers, _ = small.post(COMPLETIONS, {"prompt": "L", "max_tokens": 150, "ignore_eos": True})
            return status, headers.get("retry-after"), time.monotonic() - start
        with concurrent.futures.ThreadPoolExecutor(80) as pool:
            answers = list(pool.map(ask, range(400)))
        accepted = [answer for answer in answers if answer[0] == 200]
        refused = [answer for answer in answers if answer[0] == 429]
        assert len(accepted) + len(refused) == 400 and len(refused) > 100 and len(accepted) >= 8
        assert all(retry is not None for _, retry, _ in refused)
        small.wait_idle()
        assert small.metric("vllm:request_success_total", finished_reason="length") == len(accepted)
        assert small.metric("vllm:generation_tokens_total") == 150 * len(accepted)
        assert resident_bytes(small.process.pid) - before < 100e6


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
static long off(void) { static long calls; return (++calls * 7 % 5 - 2) * 3600; }
int clock_gettime(clockid_t which, struct timespec* at) {
  static int (*real)(clockid_t, struct timespec*);
  if (!real) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  int status = real(which, at);
  if (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE) at->tv_sec += off();
  return status;
}
time_t time(time_t* at) { struct timespec now; clock_gettime(CLOCK_REALTIME, &now); if (at) *at = now.tv_sec; return now.tv_sec; }
int gettimeofday(struct timeval* at, void* zone) {
  struct timespec now; (void)zone; clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec; at->tv_usec = now.tv_nsec / 1000; return 0;
}
"""


def test_c21_the_wall_clock_decides_nothing(serve, tmp_path):
    """It jumps by an hour or more each time that it is read; deadlines, time-outs and metrics do not see it."""
    (tmp_path / "clock.c").write_text(CLOCK)
    compiler = shutil.which("clang-19") or shutil.which("cc") or shutil.which("clang++-19")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "clock.so", tmp_path / "clock.c", "-ldl"], check=True)
    with serve("--request-timeout", "30", env={"LD_PRELOAD": str(tmp_path / "clock.so")}) as jumping:
        created = {json.loads(jumping.post(CHAT, chat_body())[2])["created"] // 3600 for _ in range(4)}
        assert len(created) > 1, "the clock does not jump"
        with jumping.client().completions.create(model="scripted", prompt="L", max_tokens=200, stream=True,
                                                 extra_body={"ignore_eos": True}) as stream:
            assert sum(1 for _ in stream) >= 1
        error_of(jumping.post(COMPLETIONS, {"prompt": "L", "max_tokens": 200, "n": 100}, X_Request_Timeout_Ms="1"), 504)
        connection = jumping.connect()
        for _ in range(3):  # a connection that is idle meanwhile is not taken for an old one
            connection.request("GET", "/health")
            assert connection.getresponse().read() is not None
            time.sleep(0.1)
        connection.close()
        for name in ("vllm:e2e_request_latency_seconds_sum", "vllm:time_to_first_token_seconds_sum", "vllm:request_queue_time_seconds_sum"):
            assert 0 <= jumping.metric(name) < 600, name
        assert jumping.stop() == 0


def test_c23_the_ledger_holds_at_every_scrape(serve):
    """Counters never fall, and cancelled, failed and preempted requests are counted once."""
    with serve("--max-num-seqs", "3", "--kv-cache-memory-bytes", "600k") as small:
        done = threading.Event()
        scrapes = []

        def scrape():
            while not done.is_set():
                scrapes.append(small.get("/metrics")[2])
        thread = threading.Thread(target=scrape)
        thread.start()
        sent = 0
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for i in range(200):
                body = {"prompt": "one and the same prompt L" if i % 3 else f"{i} L", "max_tokens": 60, "ignore_eos": True, "stream": i % 4 == 0}
                if i % 10 == 9:
                    pool.submit(leave_after, small, {**body, "stream": True}, i % 20 // 10)
                elif i % 10 == 4:
                    pool.submit(small.post, COMPLETIONS, {**body, "temperature": -1})
                else:
                    pool.submit(small.post, COMPLETIONS, body)
                    sent += 1
        small.wait_idle()
        done.set()
        thread.join()
        scrapes.append(small.get("/metrics")[2])
        last = {}
        for text in scrapes:
            kinds = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE"))
            for line in text.splitlines():
                if line.startswith("#"):
                    continue
                key, value = line.rsplit(" ", 1)
                name = key.partition("{")[0]
                if kinds.get(name) == "counter" or name.endswith(("_bucket", "_count", "_sum")):
                    assert float(value) >= last.get(key, 0), key
                    last[key] = float(value)
        finished = small.metric("vllm:request_success_total")
        assert small.metric("vllm:num_requests_running") == small.metric("vllm:num_requests_waiting") == 0
        assert small.metric("vllm:request_success_total", finished_reason="length") >= sent
        aborted = small.metric("vllm:request_success_total", finished_reason="abort")
        assert finished == small.metric("vllm:e2e_request_latency_seconds_count") + aborted
        assert sent <= finished <= sent + 20


def test_c27_logs_hold_no_prompts(tmp_path_factory):
    """Whatever goes wrong with a text, no log line and no other client's answer repeats it."""
    model = script.write(tmp_path_factory.mktemp("models") / "talkative")
    running = Running(model, "--max-model-len", str(CONTEXT), "--log-level", "debug", "--request-timeout", "5")
    text = f"{CANARY} L"
    bodies = [(COMPLETIONS, {"prompt": text, **fields}) for fields in BAD if "prompt" not in fields]
    bodies += [(COMPLETIONS, {"prompt": text * 99}), (COMPLETIONS, {"prompt": text, CANARY: CANARY}), (COMPLETIONS, {"prompt": {"x": text}}),
               (COMPLETIONS, {"prompt": text, "stop": text, "user": "someone"}), (COMPLETIONS, {"prompt": text, "model": CANARY}),
               (CHAT, {"messages": [{"role": CANARY, "content": text}]}), (CHAT, {"messages": text}), (CHAT, {"messages": [{"content": text}]}),
               (CHAT, chat_body(text)), ("/v1/responses", {"input": text}), ("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": text}]}),
               ("/api/generate", {"model": "talkative", "prompt": text}), ("/completion", {"prompt": text}), ("/tokenize", {"prompt": text}),
               ("/v1/embeddings", {"input": text}), ("/v1/score", {"text_1": text, "text_2": text})]
    for path, body in bodies:
        running.post(path, body)
    for broken in (f'{{"prompt": "{text}', f'{{"prompt": "{text}"}} {CANARY}'):
        assert running.call("POST", COMPLETIONS, broken, Content_Type="application/json")[0] == 400
    leave_after(running, {"prompt": text, "max_tokens": 200, "stream": True, "ignore_eos": True}, 1)
    running.wait_idle()
    assert CANARY not in running.get("/metrics")[2] and CANARY not in running.get("/v1/models")[2]
    assert running.stop() == 0
    assert len(running.log) >= len(bodies)
    allowed = f"unknown fields are ignored: {CANARY}"  # the name of a field is no text
    assert [line for line in running.log if CANARY in line.replace(allowed, "")] == []


def test_c28_a_model_that_is_loaded_again_is_the_new_one(tmp_path):
    """Other files under the old name: nothing of the old ones' answers or caches is left. Meanwhile another model answers."""
    folders = {name: script.write(tmp_path / name) for name in ("swapped", "steady")}
    running = Running(folders["swapped"], folders["steady"], "--max-model-len", str(CONTEXT), "--kv-cache-memory-bytes", "8Mi")
    prompt = "a prompt that is long enough to be kept in some pages of the cache, A"

    def ask(name):
        status, _, text = running.post(COMPLETIONS, {"model": name, "prompt": prompt, "temperature": 0})
        assert status == 200, text
        answer = json.loads(text)
        return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    done = threading.Event()

    def load_steady():
        while not done.is_set():
            assert ask("steady")[0] == "The capital of France is Paris ."
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        others = [pool.submit(load_steady) for _ in range(2)]
        for round in range(30):
            said = {**script.SCRIPTS, "A": [b"answer", f" number{round}".encode()]}
            script.write(folders["swapped"], script.Script(said))
            assert ask("swapped") == (f"answer number{round}", 0)
            assert ask("swapped")[1] > 0
            unloaded = running.post("/api/generate", {"model": "swapped", "keep_alive": 0})
            assert unloaded[0] == 200, unloaded
        done.set()
        for other in others:
            other.result()
    assert running.metric("quern_model_loads_total", model_name="swapped") >= 30
    assert running.stop() == 0

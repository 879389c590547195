"""`quern bench` against a real server and on a model: vLLM's flags, figures and keys, and llama-bench's table."""
import csv
import io
import json
import os
import subprocess

import pytest

from conftest import QUERN

KEYS = """date endpoint_type backend label model_id tokenizer_id num_prompts request_rate burstiness max_concurrency duration
completed failed total_input_tokens total_output_tokens request_throughput request_goodput output_throughput
total_token_throughput max_output_tokens_per_s max_concurrent_requests""".split()
DETAILS = "input_lens output_lens ttfts itls start_times generated_texts errors".split()
ROWS = """Successful requests: Failed requests: Maximum request concurrency: Request rate configured (RPS): Benchmark duration (s):
Total input tokens: Total generated tokens: Request throughput (req/s): Request goodput (req/s): Output token throughput (tok/s):
Peak output token throughput (tok/s): Peak concurrent requests: Total token throughput (tok/s):""".replace("\n", " ").split(": ")


def run(*words):
    done = subprocess.run([QUERN, "bench", *map(str, words)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def load(server, tmp_path):
    """load(flags...): the saved result of a run, with the times and texts of all requests."""
    def start(*flags, at=server):
        table = run("--url", at.url, "--quiet", "--save-detailed", "--result-dir", tmp_path, "--result-filename", "r.json", *flags)
        result = json.loads((tmp_path / "r.json").read_text())
        result["table"] = table
        return result
    return start


def lines(tmp_path, *prompts):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
    return ["--dataset-name", "custom", "--dataset-path", path]


def test_all_flags_and_keys_of_vllm(server, model, tmp_path):
    table = run("--base-url", server.url, "--backend", "vllm", "--endpoint", "/v1/completions", "--model", "alias",
                "--tokenizer", model, "--dataset-name", "random", "--random-input-len", 20, "--random-output-len", 6,
                "--random-range-ratio", 0.5, "--num-prompts", 12, "--request-rate", 200, "--burstiness", 2, "--max-concurrency", 4,
                "--seed", 3, "--ignore-eos",
                "--goodput", "ttft:60000", "tpot:60000", "e2el:60000", "--percentile-metrics", "ttft,tpot,itl,e2el",
                "--metric-percentiles", "50,90,95,99", "--num-warmups", 2, "--save-result", "--save-detailed", "--result-dir", tmp_path,
                "--extra-body", '{"presence_penalty":0}', "--header", "x-test=1", "x-other=2", "--metadata", "host=a", "run=b", "--quiet")
    saved, = tmp_path.glob("*.json")
    result = json.loads(saved.read_text())

    metrics = [f"{kind}_{name}_ms" for name in ("ttft", "tpot", "itl", "e2el")
               for kind in ("mean", "median", "std", "p50", "p90", "p95", "p99")]
    assert not [key for key in KEYS + DETAILS + metrics if key not in result]
    assert result["completed"] == 12 and result["failed"] == 0 and result["errors"] == [""] * 12
    assert result["backend"] == "vllm" and result["model_id"] == "alias" and result["tokenizer_id"] == str(model)
    assert (result["host"], result["run"], result["request_rate"], result["burstiness"]) == ("a", "b", 200, 2)
    assert all(10 <= length <= 30 for length in result["input_lens"]) and all(3 <= length <= 9 for length in result["output_lens"])
    assert len(set(result["input_lens"])) > 1
    assert result["total_output_tokens"] == sum(result["output_lens"])
    assert result["request_goodput"] == pytest.approx(result["request_throughput"]) == pytest.approx(12 / result["duration"])
    assert result["max_concurrent_requests"] <= 4
    for name in ROWS:
        assert f"\n{name.rstrip(':')}:" in table, name
    assert table.startswith("============ Serving Benchmark Result ============\n")


def test_requests_start_when_they_are_due(load):
    small = ["--random-input-len", 4, "--random-vocab-size", 200, "--output-len", 1]
    poisson = load(*small, "--num-prompts", 40, "--request-rate", 80)
    again = load(*small, "--num-prompts", 40, "--request-rate", 80)
    ramp = load(*small, "--num-prompts", 30, "--burstiness", "inf", "--ramp-up-strategy", "exponential",
                "--ramp-up-start-rps", 20, "--ramp-up-end-rps", 200)

    assert poisson["start_times"] == sorted(poisson["start_times"]) and 0.5 <= poisson["start_times"][-1] < 1.5
    assert poisson["start_times"] == pytest.approx(again["start_times"], abs=0.25)  # of the same seed
    gaps = [after - before for before, after in zip(ramp["start_times"], ramp["start_times"][1:])]
    assert sum(gaps[:10]) > 2 * sum(gaps[-10:])
    assert (ramp["ramp_up_strategy"], ramp["ramp_up_end_rps"], ramp["request_rate"]) == ("exponential", 200, "inf")


def test_prompts_have_an_exact_length_by_the_tokenizer(server, model, load):
    words = ["--tokenizer", model, "--random-text", "--num-prompts", 4, "--output-len", 3, "--ignore-eos"]
    plain = load(*words, "--random-input-len", 33)
    chat = [load(*words, "--backend", "openai-chat", "--random-input-len", length)["input_lens"] for length in (20, 30)]

    assert plain["input_lens"] == [33] * 4
    assert [len(set(lengths)) for lengths in chat] == [1, 1]
    assert chat[1][0] - chat[0][0] == 10  # around it stands what the template says


def test_outputs_are_counted_without_usage(server, model, load, tmp_path):
    files = lines(tmp_path, {"prompt": "L", "output_len": 9}, {"prompt": "A", "output_len": 20})
    without_usage = ["--extra-body", '{"stream_options":null}', "--num-prompts", 2]
    result = load(*files, *without_usage, "--tokenizer", model)
    guessed = load(*files, *without_usage)

    counted = [len(json.loads(server.post("/tokenize", {"prompt": text, "add_special_tokens": False})[2])["tokens"])
               for text in result["generated_texts"]]
    assert result["generated_texts"] == [" la" * 9, "The capital of France is Paris ."]
    assert result["output_lens"] == counted and result["client_output_tokens"] == sum(counted)
    assert "sent no usage" not in result["table"] and "sent no usage for 2 requests" in guessed["table"]


def test_sizes_of_chunks(load, tmp_path):
    files = lines(tmp_path, {"prompt": "L", "output_len": 9})
    result = load(*files, "--num-prompts", 3, "--extra-body",
                  '{"stream_options":{"include_usage":true,"continuous_usage_stats":true}}')

    assert 0 < result["mean_ttft_ms"] <= result["mean_first_text_ms"] <= result["mean_e2el_ms"]
    assert result["chunk_size_unit"] == "tokens"
    assert result["chunk_sizes"]["1"] == 27 and set(result["chunk_sizes"]) <= {"0", "1"}
    assert "Chunks of 1 tokens:                      27" in result["table"]


def test_prefixes_are_repeated_and_their_cache_is_cold_or_warm(serve, model, load):
    flags = ["--dataset-name", "prefix_repetition", "--prefix-repetition-prefix-len", 40, "--prefix-repetition-suffix-len", 10,
             "--prefix-repetition-num-prefixes", 2, "--prefix-repetition-output-len", 2, "--num-prompts", 6, "--max-concurrency", 1,
             "--tokenizer", model, "--prefix-cache"]
    with serve("--enable-sleep-mode") as own:
        cold, warm = load(*flags, "cold", at=own), load(*flags, "warm", at=own)

    assert cold["input_lens"] == warm["input_lens"] == [50] * 6
    assert (cold["prefix_cache"], warm["prefix_cache"]) == ("cold", "warm")
    assert 4 * 40 <= cold["cached_input_tokens"] < 4 * 40 + 40  # all but the first of each prefix
    assert 6 * 48 <= warm["cached_input_tokens"] <= 6 * 49  # whole pages of each prompt at least, never its last token
    assert cold["server_prefix_hit_percent"] == pytest.approx(100 * cold["cached_input_tokens"] / 300, abs=4)
    assert f"Cached input tokens:                     {warm['cached_input_tokens']}" in warm["table"]


def test_a_result_says_where_and_by_what_it_was_measured(server, load):
    result = load("--num-prompts", 3, "--num-warmups", 2, "--random-input-len", 8, "--random-vocab-size", 200, "--output-len", 2)

    client = result["client"]
    assert client["cores"] >= client["usable_cores"] >= 1 and client["cpu"] and client["memory_bytes"] > 1 << 20
    assert {"version", "git_hash", "cpu_mhz", "kernel", "clock", "clock_resolution_ns"} <= set(client)
    assert result["server_version"] == json.loads(server.get("/version")[2])["version"]
    assert result["num_warmups"] == 2 and result["warmup_duration"] > 0
    assert 0 < result["server_mean_ttft_ms"] <= result["mean_ttft_ms"]
    assert "spec_decode_num_drafts" not in result  # this server drafts nothing


def test_a_server_that_does_not_empty_its_cache(server):
    done = subprocess.run([QUERN, "bench", "--url", server.url, "--num-prompts", "1", "--random-vocab-size", "200", "--random-input-len", "4",
                           "--prefix-cache", "cold"], capture_output=True, text=True, timeout=60)

    assert done.returncode == 1 and "start the server with --enable-sleep-mode" in done.stderr


def test_a_model_beside_the_limits_of_the_machine(model):
    figures = [json.loads(line) for line in run(model, "--json", "--prompt-lengths", "16,32", "--batch-sizes", "1,2",
                                                "--output-tokens", 8, "--repeats", 1, "--threads", 1).splitlines()]
    limits, = (figure for figure in figures if figure["what"] == "limits")
    rows = {(figure["what"], figure["size"]): figure for figure in figures if figure["what"] in ("prefill", "decode")}

    assert set(rows) == {("prefill", "16"), ("prefill", "32"), ("decode", "1"), ("decode", "2")}
    assert limits["read_bytes_per_second"] > 1e8 and limits["flops_per_second"] > 1e8
    assert limits["machine"]["usable_cores"] >= 1 and limits["device"]
    for row in rows.values():
        assert row["tokens_per_second"] > 0 and row["percent_of_bandwidth"] > 0 and row["percent_of_flops"] > 0
        assert row["percent_of_limit"] >= max(row["percent_of_bandwidth"], row["percent_of_flops"]) - 0.02
    again = run(model, "--prompt-lengths", 16, "--batch-sizes", 1, "--output-tokens", 8, "--repeats", 1, "--threads", 1,
                "--limits", f"{limits['read_bytes_per_second']},{limits['flops_per_second']}")
    assert "% of the limit" in again and "% of the reads" in again and "% of FLOP/s" in again


def test_the_table_of_llama_bench(model):
    flags = [model, "-p", "16", "-n", "8", "-pg", "16,8", "-r", "2", "--threads", "1"]
    tests = json.loads(run(*flags, "-o", "json"))
    rows = list(csv.DictReader(io.StringIO(run(*flags, "-o", "csv"))))
    markdown = [[cell.strip() for cell in line.strip("|").split("|")] for line in run(*flags, "-o", "md").splitlines()]

    assert [(test["n_prompt"], test["n_gen"]) for test in tests] == [(16, 0), (0, 8), (16, 8)]
    for test in tests:
        assert len(test["samples_ts"]) == len(test["samples_ns"]) == 2
        assert test["avg_ts"] == pytest.approx(sum(test["samples_ts"]) / 2)
        assert test["samples_ts"][0] == pytest.approx((test["n_prompt"] + test["n_gen"]) * 1e9 / test["samples_ns"][0], rel=1e-3)
        assert test["n_threads"] == 1 and test["backends"] == "CPU" and test["model_filename"] == os.fspath(model)
    assert [row["n_prompt"] for row in rows] == ["16", "0", "16"] and float(rows[0]["avg_ts"]) > 0
    assert markdown[0] == ["model", "size", "params", "backend", "threads", "test", "t/s"]
    assert [row[5] for row in markdown[2:]] == ["pp16", "tg8", "pp16+tg8"] and "±" in markdown[2][6]

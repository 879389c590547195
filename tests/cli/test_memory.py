"""Too little memory is said in one sentence with the numbers, before anything is loaded."""
import json
import re
import subprocess
import time

import pytest
from test_bad_files import QUERN, directory

HUGE = {"hidden_size": 65536, "intermediate_size": 262144, "num_attention_heads": 512, "num_key_value_heads": 8,
        "num_hidden_layers": 1000}  # petabytes


def refused(command, folder, *flags):
    words = [command, str(folder), *(["hi"] if command == "run" else ["--port", "0"]), *flags]
    began = time.monotonic()
    result = subprocess.run([QUERN, *words], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1 and result.stdout == "" and time.monotonic() - began < 10, result
    line, = (line for line in result.stderr.splitlines() if " info " not in line)
    return line


@pytest.mark.parametrize("command", ["run", "serve"])
def test_a_cache_of_less_than_a_page(tmp_path, command):
    line = refused(command, directory(tmp_path / "m"), "--kv-cache-memory-bytes", "1")
    assert re.fullmatch(r"quern: no room for a KV cache: 1 bytes hold less than one page of \d+ bytes for each of 1 layer groups; "
                        r"raise --kv-cache-memory-bytes", line), line


@pytest.mark.parametrize("command", ["run", "serve"])
def test_a_cache_that_does_not_fit(tmp_path, command):
    line = refused(command, directory(tmp_path / "m"), "--kv-cache-memory-bytes", str(2**40))
    assert re.fullmatch(r"quern: not enough memory: 1048\d{3}\.\d MiB are needed \(weights 0\.\d, KV cache 1048576\.0, states 0\.0, "
                        r"executor \d+\.\d\) and \d+\.\d MiB are free; lower --kv-cache-memory-bytes or --max-num-seqs", line), line


@pytest.mark.parametrize("command", ["run", "serve"])
@pytest.mark.parametrize("cache", [[], ["--kv-cache-memory-bytes", "64Mi"]], ids=["cache by itself", "cache named"])
def test_weights_that_do_not_fit(tmp_path, command, cache):
    line = refused(command, directory(tmp_path / "m"), "--load-format", "dummy", "--hf-overrides", json.dumps(HUGE), *cache)
    assert re.match(r"quern: not enough memory: .*weights.* \d+\.\d MiB .*free", line), line
    assert line.endswith("free some memory, or take a smaller model"), line


def test_a_context_that_does_not_fit_names_the_largest(tmp_path):
    folder = directory(tmp_path / "m", {"max_position_embeddings": 100000})
    line = refused("run", folder, "--kv-cache-memory-bytes", "1Mi", "--max-model-len", "100000")
    found = re.fullmatch(r"quern: --max-model-len 100000 does not fit: the largest that does is --max-model-len (\d+); say that, or "
                         r"raise --kv-cache-memory-bytes", line)
    assert found, line
    fits = subprocess.run([QUERN, "run", str(folder), "--kv-cache-memory-bytes", "1Mi", "--max-model-len", found[1], "--max-tokens", "1",
                           "a"], capture_output=True, text=True, timeout=60)
    assert fits.returncode == 0, fits.stderr

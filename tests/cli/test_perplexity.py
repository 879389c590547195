"""quern perplexity, over a model whose distributions are known in advance."""
import json
import math
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
import make_scripted_model as script  # noqa: E402

QUERN = os.environ["QUERN_BINARY"]


def perplexity(*words):
    return subprocess.run([QUERN, "perplexity", *map(str, words)], capture_output=True, text=True, timeout=120)


def result(*words):
    run = perplexity(*words, "--json")
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def refusal(*words):
    run = perplexity(*words)
    lines = run.stderr.strip().splitlines()
    assert run.returncode == 1 and len(lines) == 1 and lines[0].startswith("quern: "), run.stderr
    return lines[0]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two models that differ in what follows "P"."""
    folder = tmp_path_factory.mktemp("models")
    script.write(folder / "base")
    saved = dict(script.CHOICES)
    script.CHOICES.update({b"x1": 0.2, b"x3": 0.5})
    script.write(folder / "other")
    script.CHOICES.update(saved)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "text.txt"
    path.write_text("P" * 199)  # 200 tokens with the one that begins texts
    return path


@pytest.mark.parametrize(("flags", "windows", "scored"), [
    (["--context", 64], 3, 3 * 31), (["--context", 64, "--stride", 16], 10, 199), (["--context", 64, "--stride", 64], 4, 63 * 3 + 7),
    (["--context", 64, "--windows", 2], 2, 62), (["--context", 200, "--stride", 200, "--max-num-batched-tokens", 9, "--max-num-seqs", 1], 1, 199)])
def test_every_window_is_scored(models, text, flags, windows, scored):
    """A "P" after a "P", or after the beginning, is as unlikely as can be."""
    run = result(models / "base", text, *flags)
    assert (run["windows"], run["scored_tokens"]) == (windows, scored)
    assert abs(run["nats_per_token"] + script.UNLIKELY) < 1e-3
    assert run["perplexity_error"] < 1e-4 * run["perplexity"]


def test_compares_with_a_saved_run(models, text, tmp_path):
    saved = tmp_path / "saved.run"
    first = result(models / "base", text, "--context", 32, "--save-base", saved)
    assert saved.stat().st_size == 64 + 4 * 192 + 2 * 320 * first["scored_tokens"]

    same = result(models / "base", "--base", saved)
    assert same["perplexity"] == first["perplexity"] and same["context"] == 32
    assert 0 <= same["kl_divergence"]["max"] < 1e-7 and same["same_top_token"] == 1

    other = result(models / "other", text, "--base", saved)
    expected = .5 * math.log(.5 / .2) + .2 * math.log(.2 / .5)
    for name in ("mean", "median", "p99.9", "max"):
        assert abs(other["kl_divergence"][name] - expected) < 1e-4
    assert other["same_top_token"] == 0
    shown = perplexity(models / "other", text, "--base", saved).stdout
    assert "perplexity" in shown and "KL divergence" in shown and "same top token: 0.000" in shown


def test_refuses_runs_and_texts_that_do_not_fit(models, text, tmp_path):
    saved = tmp_path / "saved.run"
    result(models / "base", text, "--context", 32, "--save-base", saved)
    short = tmp_path / "short.txt"
    short.write_text("PPP")
    other = tmp_path / "other.txt"
    other.write_text("P" * 100 + "Q" * 99)
    cut = tmp_path / "cut.run"
    cut.write_bytes(saved.read_bytes()[:-2])
    assert "too few for a window of 512" in refusal(models / "base", short)
    assert "token 101" in refusal(models / "base", other, "--base", saved)
    assert "not what its head says" in refusal(models / "base", "--base", cut)
    assert "no finished base run" in refusal(models / "base", "--base", text)
    assert "No such file" in refusal(models / "base", tmp_path / "none.txt")
    assert "name a text" in refusal(models / "base")
    assert "--stride 9" in refusal(models / "base", text, "--context", 8, "--stride", 9)
    assert "No such file" in refusal(models / "base", text, "--context", 32, "--save-base", tmp_path / "no" / "folder")

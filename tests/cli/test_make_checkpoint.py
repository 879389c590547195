"""tools/make_checkpoint writes what the program loads: every tensor of the model, and no other."""
import json
import pathlib
import subprocess
import sys

import pytest
from test_bad_files import QUERN

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "make_checkpoint"
SHAPE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
         "vocab_size": 300, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "max_position_embeddings": 512,
         "torch_dtype": "bfloat16"}
LLAMA = SHAPE | {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": False}
QWEN3 = SHAPE | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 32, "tie_word_embeddings": True}
MOE = QWEN3 | {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2,
               "moe_intermediate_size": 32, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}


def make(config, folder):
    folder.mkdir()
    (folder / "source.json").write_text(json.dumps(config))
    return subprocess.run([sys.executable, TOOL, folder / "source.json", folder / "made"], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("config", [LLAMA, QWEN3, MOE], ids=lambda config: config["model_type"])
def test_the_program_loads_it(tmp_path, config):
    assert make(config, tmp_path / "m").returncode == 0
    index = json.loads((tmp_path / "m/made/model.safetensors.index.json").read_text())
    described = subprocess.run([QUERN, "describe", tmp_path / "m/made"], capture_output=True, text=True, timeout=60)
    assert described.returncode == 0, described.stderr
    assert f"{len(index['weight_map'])} tensors" in described.stdout.replace("  ", " "), described.stdout
    assert str(index["metadata"]["total_size"]) in described.stdout


def test_another_kind_is_refused(tmp_path):
    result = make(LLAMA | {"model_type": "gpt2"}, tmp_path / "m")
    assert result.returncode == 2 and "name a llama, qwen3 or qwen3_moe config" in result.stderr

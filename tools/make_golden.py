#!/usr/bin/env python3
"""Makes tests/golden: tiny random checkpoints of every family, and what transformers computes with them in fp32.

usage: make_golden.py OUTPUT_FOLDER [--twins] [NAME...]       needs torch, transformers 5.23, safetensors, gguf
       With names, only these; else all: minutes on one core. --twins makes only what is expected, and the
       twins, of what is there.

Families are listed in tools/golden/, a file for each group. Weights are stored as bfloat16, so that they have the same
value everywhere. Norms and biases are never left at one and zero, so that a loader that forgets one is found out.
expected.json holds a prompt, full rows of logits at some of its positions, the ids of a greedy continuation whose
smallest margin is above 0.05 where the family allows it, and full rows of logits of two of its steps.
"""
import importlib
import sys
from pathlib import Path

from golden import common

GROUPS = sorted(path.stem for path in (Path(__file__).parent / "golden").glob("*.py")
                if path.stem not in ("__init__", "common", "quantized"))


def main():
    out, *names = (word for word in sys.argv[1:] if word != "--twins")
    out = Path(out)
    make = common.make_again if "--twins" in sys.argv else common.make
    out.mkdir(parents=True, exist_ok=True)
    for group in GROUPS:
        for family in importlib.import_module(f"golden.{group}").families():
            if not names or family.name in names:
                make(out, family)


main()

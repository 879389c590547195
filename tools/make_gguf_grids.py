#!/usr/bin/env python3
"""Writes src/checkpoint/schemes/gguf_grids.h: the grids of the IQ types, from the `gguf` package (0.19)."""
import pathlib
import subprocess

import gguf

# Bits of a value: of iq3 a magnitude's number takes four, as the runtime format has it.
GRIDS = {"IQ2_XXS": 2, "IQ2_XS": 2, "IQ2_S": 2, "IQ3_XXS": 4, "IQ3_S": 4, "IQ1_S": 2}
HEAD = """// The grids of the IQ types: what a place in the grid stands for, four or eight values by their number among the type's
// magnitudes, ascending (of iq1: -1, 0, 1), the first in the lowest 4 or 2 bits. Made by tools/make_gguf_grids.py.
#pragma once

#include <cstdint>

namespace quern::grids {

"""


def main():
    text = HEAD
    for name, bits in GRIDS.items():
        type = getattr(gguf.quants, name)
        type.init_grid()
        levels = [float(level) for level in type.grid_map]
        grid = type.grid.reshape(type.grid_shape)
        entries = [sum(levels.index(float(v)) << (bits * j) for j, v in enumerate(row)) for row in grid]
        numbers = ", ".join(f"{entry:#06x}" for entry in entries).upper().replace("X", "x")
        text += f"inline constexpr uint16_t {name.lower()}[{len(entries)}] = {{{numbers}}};\n"
    text += "\n}  // namespace quern::grids\n"
    path = pathlib.Path(__file__).parent.parent / "src/checkpoint/schemes/gguf_grids.h"
    path.write_text(text)
    subprocess.run(["clang-format-19", "-i", str(path)], check=True)
    print(path)


main()

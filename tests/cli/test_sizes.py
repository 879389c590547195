"""tools/size finds what is over each of its budgets, and nothing where all is within."""
import pathlib
import subprocess
import sys

import pytest

SIZE = pathlib.Path(__file__).parents[2] / "tools" / "size"


def sizes(folder):
    result = subprocess.run([sys.executable, SIZE, folder], capture_output=True, text=True, timeout=60)
    return result.returncode, result.stdout


def nested(depth):
    return "void f() {\n" + "if (a) {\n" * depth + "g();\n" + "}\n" * depth + "}\n"


WITHIN = {
    "lines": "\n" * 600,
    "a long function": "void f() {\n" + "  g();\n" * 58 + "}\n",
    "parameters": "void f(int a, int b, int c, int d, std::map<int, int> e, int f, Call<void(int, int)> g, int h = min(1, 2)) {\n}\n",
    "calls": "void f() {\n  g(1, 2, 3, 4, 5, 6, 7, 8, 9);\n}\n",
    "nesting": nested(4),
    "a chain of else": "void f() {\n" + "if (a) {\n g();\n}\n" + "else if (b) {\n g();\n}\n" * 9 + "}\n",
    "blocks that control nothing": "void f() {\n" + "{\n" * 9 + "}\n" * 9 + "}\n",
    "comments and strings": "// if (a) { if (b) { if (c) { if (d) { if (e) {\nconst char* s = \"if (a) { if (b) {\";\n",
}
OVER = {
    "lines": ("\n" * 601, "601 lines, more than 600"),
    "a long function": ("void f() {\n" + "  g();\n" * 59 + "}\n", "a function of 61 lines"),
    "a mean function": ("".join(f"void f{i}() {{\n" + "  g();\n" * 15 + "}\n" for i in range(4)), "in the mean more than 15"),
    "parameters": ("void f(int a, int b, int c, int d, int e, int f, int g, int h, int i) {\n}\n", "f has 9 parameters"),
    "parameters of a method": ("struct S {\n  virtual int m(int a, int b, int c, int d, int e, int f, int g, int h, int i) const = 0;\n};\n",
                               "m has 9 parameters"),
    "parameters of a kernel": ("__global__ void __launch_bounds__(32, 2)\n    k(int a, int b, int c, int d, int e, int f, int g, int h, int i) {\n}\n",
                               "k has 9 parameters"),
    "nesting": (nested(5), "5 statements within each other"),
    "nesting without braces": ("void f() {\n" + "for (;;) {\n" * 3 + "for (;;) if (a) g();\n" + "}\n" * 3 + "}\n", "5 statements"),
    "nesting behind a list": (nested(4).replace("g();", "for (int i : {1, 2}) {\n g();\n}"), "5 statements"),
    "nesting in a lambda": (nested(3).replace("g();", "g([&] {\nif (a) {\nif (b) {\n h();\n}\n}\n});"), "5 statements"),
}


@pytest.mark.parametrize("case", WITHIN)
def test_what_is_within_the_budgets(tmp_path, case):
    (tmp_path / "x.cc").write_text(WITHIN[case].replace("void f() {\n  g();\n  g();", "void small() {\n}\n" * 9 + "void f() {\n  g();\n  g();"))
    assert sizes(tmp_path)[0] == 0, sizes(tmp_path)[1]


@pytest.mark.parametrize("case", OVER)
def test_what_is_over_a_budget(tmp_path, case):
    (tmp_path / "x.cc").write_text(OVER[case][0])
    status, text = sizes(tmp_path)
    assert status == 1 and OVER[case][1] in text, text


def test_a_folder_of_too_many_files(tmp_path):
    for i in range(31):
        (tmp_path / "part").mkdir(exist_ok=True)
        (tmp_path / "part" / f"{i}.cc").write_text("int x;\n")
    assert sizes(tmp_path)[0] == 1 and "31 files, more than 30" in sizes(tmp_path)[1]

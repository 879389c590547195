"""docs/reliability.md names a test for every requirement and promise, and all of them exist."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
NUMBERS = [f"S{i}" for i in range(1, 36)] + [f"C{i}" for i in range(1, 29)]


def names_of_tests():
    """File name -> names of its tests."""
    names = {}
    for path in [*ROOT.glob("src/**/*_test.cc"), *ROOT.glob("tests/**/test_*.py")]:
        found = re.findall(r"^TEST(?:_F|_P)?\(\w+, (\w+)\)|^def (test_\w+)\(", path.read_text(), re.M)
        names[path.name] = {cpp or python for cpp, python in found}
    return names


def rows():
    """Number -> what its row says is the proof."""
    proofs = {}
    for line in (ROOT / "docs" / "reliability.md").read_text().splitlines():
        if found := re.match(r"\| ([SC]\d[SC\d, ]*) \| .* \| (.*) \|$", line):
            proofs.update(dict.fromkeys(found.group(1).split(", "), found.group(2)))
    return proofs


TESTS, PROOFS = names_of_tests(), rows()


@pytest.mark.parametrize("number", NUMBERS)
def test_every_number_has_its_test(number):
    named = []
    for files, rest in re.findall(r"`([^`]+)`([^`;]*)", PROOFS[number]):
        if not files.endswith((".cc", ".py")):
            assert (ROOT / "tests" / "fuzz" / f"{files}.cc").exists(), files
            continue
        tests = TESTS[files.rpartition("/")[2]]
        for word in re.findall(r"\b(?:test_\w+|[A-Z]\w+)\*?", rest.partition(":")[0]):
            found = [name for name in tests if (name.startswith(word[:-1]) if word.endswith("*") else name == word)]
            assert found, f"{files} has no test {word}"
            named += found
    assert any(re.search(rf"{number}(?!\d)", name, re.I) for name in named), named

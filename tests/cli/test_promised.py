"""docs/reliability.md names a test for every requirement and promise, and all of them exist; so does one for each of the 138
checks of the API, by its number."""
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
    """Number -> what Quern does, and what its row says is the proof."""
    said, proofs = {}, {}
    for line in (ROOT / "docs" / "reliability.md").read_text().splitlines():
        if found := re.match(r"\| ([SC]\d[SC\d, ]*) \| (.*) \| (.*) \|$", line):
            for number in found.group(1).split(", "):
                assert number not in proofs, number
                said[number], proofs[number] = found.group(2), found.group(3)
    return said, proofs


TESTS, (SAID, PROOFS) = names_of_tests(), rows()
# Of these a part has nothing to hold to yet, because Quern does not do it; the row says which, and the test that it is refused or
# not there.
LATER = {"S29": ("several ranks", "test_s29_no_other_port_is_open"), "S34": ("media", "S30FetchesNothingForARequest"),
         "S35": ("adapters", "test_s131_adapters_are_not_loaded"), "C26": ("several nodes", "test_s133_c26_prefill_elsewhere_is_refused_by_name")}


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


def test_there_is_a_row_for_each_number_and_no_other():
    assert list(PROOFS) == NUMBERS


def test_what_comes_later_is_told():
    assert {number for number, text in SAID.items() if re.search(r"\blater\b|\bcomes? with\b", text)} == set(LATER)
    for number, (what, test) in LATER.items():
        assert what in SAID[number]
        assert any(test in names for names in TESTS.values()), test


CHECKS = [*map(str, range(1, 137)), "117a", "117b"]


def check_of(word):
    """The number of a check in a word like a1, s136, 136 or g117b; S1 to S35 and C1 to C28 are no checks."""
    if found := re.fullmatch(r"(?:[abd-r]?|c(?=2[1-4]$)|s(?=13[1-6]$))(\d+[ab]?)", word):
        return found.group(1)
    return None


def checks_of(name):
    """All of them in the name of a test; of test_g60_to_g65_streams also those between."""
    words = name.split("_")[1:]
    numbers = {check_of(word) for word in words} - {None}
    for first, to, last in zip(words, words[1:], words[2:]):
        if to == "to" and check_of(first) and check_of(last):
            numbers |= {str(number) for number in range(int(check_of(first)), int(check_of(last)))}
    return numbers


def test_numbers_are_read_out_of_names():
    assert checks_of("test_g60_to_g62_streams_136") == {"60", "61", "62", "136"}
    assert checks_of("test_c21_c6_s22_s131_r117a_200") == {"21", "131", "117a", "200"}


# test_promises.py has C21 to C28 of docs/reliability.md.
CHECKED = {number for folder in ("conformance", "clients") for path in (ROOT / "tests" / folder).glob("test_*.py")
           if path.name != "test_promises.py" for name in TESTS[path.name] for number in checks_of(name)}


@pytest.mark.parametrize("number", CHECKS)
def test_every_check_of_the_api_has_its_test(number):
    assert number in CHECKED

"""What tools and tests install is pinned: whatever pip brings is named with its version and sha256."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
LISTS = sorted(path for folder in ("tests", "bench", "tools", "cmake") for path in (ROOT / folder).rglob("*requirements*.txt"))
# Each with the lines behind it, where its other words may stand.
COMMANDS = [(path.name, found) for path in sorted((ROOT / "tools").iterdir()) if path.is_file()
            for found in re.findall(r"^[^#\n]*-m\"?,? \"?pip\"?,? \"?(?:install|download)\b(?:.*\n){1,4}", path.read_text(), re.M)]


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.name)
def test_every_package_has_a_version_and_a_hash(path):
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert lines and all(re.fullmatch(r"[a-z0-9.-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line) for line in lines), lines


def test_the_lists_are_found():
    assert {"requirements.txt", "client-requirements.txt", "vocabulary-requirements.txt", "peer-requirements.txt"} <= {path.name for path in LISTS}


def test_pip_is_never_run_without_hashes():
    assert {"bootstrap", "build_peers", "fetch_sources", "fetch_vocabularies"} <= {name for name, _ in COMMANDS}
    for name, command in COMMANDS:
        assert "--require-hashes" in command or "--dry-run" in command, (name, command)

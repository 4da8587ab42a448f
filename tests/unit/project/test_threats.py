"""The register of threats: each has an answer, and the tests that it names exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROWS = re.findall(r"^\| ((?:AT|THR)-\d\d) .*\| (.*) \|$", (ROOT / "docs/threats.md").read_text(encoding="utf-8"), re.M)


def test_every_threat_and_attack_has_a_row():
    assert [number for number, _ in ROWS] == [
        *(f"AT-{number:02d}" for number in range(1, 19)),
        *(f"THR-{number:02d}" for number in range(1, 15)),
    ]


def test_the_tests_that_a_row_names_exist():
    for number, shown in ROWS:
        file = None
        for word in re.findall(r"`([^`]+)`", shown):
            if word.endswith(".py"):
                file = ROOT / word if "/" in word else ROOT / "tests/e2e" / word
                assert file.is_file(), (number, word)
            else:
                assert f"def test_{word.rstrip('…')}" in file.read_text(encoding="utf-8"), (number, word)
        assert file is not None, number

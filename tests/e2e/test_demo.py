"""What a newcomer sees first."""

import re
import subprocess
import sys

import pytest
from rich.console import Console

from cloister.lessons.tour import tour

pytestmark = pytest.mark.e2e


def test_the_tour_shows_answers_a_refusal_the_ledger_and_a_forgery():
    console = Console(record=True, width=120, force_terminal=False)
    tour(console)
    text = console.export_text()
    assert text.count("95 % intervals") == 3
    assert "Plan first" in text
    assert "CLO-209" in text
    assert re.search(r"CLO-204: .* is left, .* short", text)
    assert "entries hold" in text
    assert "Genuine" in text
    assert "CLO-302" in text


def test_the_command_runs_from_anywhere(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", "from cloister.cli import main; main(['demo'])"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Genuine" in done.stdout
    assert not list(tmp_path.iterdir())

"""Every code block of the README and the docs runs, each page in an empty folder of its own.

A `python` block runs in the namespace of its page; one that begins with `>>>` is a doctest. In a `console` block each
line after `$ ` runs in bash, with this environment's commands first on the path; it must succeed, and what stands below
it must be what it prints (`...` stands for anything; nothing below it means that its output does not matter).
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path

import pytest
from sybil import Example, Sybil
from sybil.example import SybilFailure
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FLAGS = ELLIPSIS | NORMALIZE_WHITESPACE
PLAIN = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100"}


def steps(block: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output that is shown for it."""
    for part in block.removeprefix("$ ").split("\n$ "):
        command, _, shown = part.partition("\n")
        while command.endswith("\\"):
            more, _, shown = shown.partition("\n")
            command = f"{command}\n{more}"
        yield command, shown


def run(command: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, **PLAIN, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )


def run_console(example: Example) -> str | None:
    """Run a block; a sentence says what went wrong."""
    if not example.parsed.startswith("$ "):
        return None  # tests/unit/project/test_project.py says what may stand in a block that does not run
    for command, shown in steps(example.parsed):
        done = run(command)
        if done.returncode:
            return f"$ {command}\nended with {done.returncode}:\n{done.stdout}"
        if shown.strip() and not OutputChecker().check_output(shown, done.stdout, FLAGS):
            return f"$ {command}\nshould print\n{shown}\nbut printed\n{done.stdout}"
    return None


READER = Sybil(
    [
        PythonCodeBlockParser(doctest_optionflags=FLAGS),
        CodeBlockParser("console", run_console),
        CodeBlockParser("sh", run_console),
    ]
)


def follow(page: Path) -> None:
    """Do what a reader would: run the blocks from top to bottom."""
    for example in READER.parse(page).examples():
        example.evaluate()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_code_block_of_this_page_runs(page, tmp_path, monkeypatch):
    # One test a page, not one a block: blocks build on the ones before them.
    monkeypatch.chdir(tmp_path)
    follow(page)


@pytest.mark.parametrize(
    "block",
    [
        "```python\n1 / 0\n```",
        "```python\n>>> 1 + 1\n3\n```",
        "```console\n$ false\n```",
        "```console\n$ echo two\nthree\n```",
        "```console\n$ echo one\none\n$ echo two\nthree\n```",
        "```sh\n$ exit 3\n```",
    ],
)
def test_a_block_that_does_not_do_what_it_shows_is_noticed(block, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"A page.\n\n{block}\n", encoding="utf-8")
    with pytest.raises((SybilFailure, ZeroDivisionError)):
        follow(page)


def test_cloister_is_on_the_path_of_a_console_block():
    assert run("cloister --version").stdout.startswith("cloister ")

"""`cloister shell` as people use it: at a terminal, through a pipe, and key by key."""

import fcntl
import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from pyarrow import csv
from rich.console import Console

import cloister as cl
from cloister.data.hospital import WARDS, hospital
from cloister.query.prompt import Lines, Terminal, complete, suggestions
from cloister.query.shell import COMMANDS, Shell

pytestmark = pytest.mark.e2e

SCHEMA = f"""
unit: {{name: patient, max_rows: 4}}
tables:
  visits:
    unit: patient
    columns:
      ward: {{type: text, categories: [{", ".join(WARDS)}], nullable: false}}
      stay_days: {{type: integer, bounds: [0, 60], nullable: false}}
      first name: {{type: text}}
  wards:
    public: true
    columns:
      ward: {{type: text, categories: [{", ".join(WARDS)}]}}
      building: {{type: text, categories: [north, "o'brien"]}}
"""
FACTS = cl.Schema.load(SCHEMA)
START = [sys.executable, "-c", "from cloister.cli import main; main()"]
WITHOUT_EDITOR = [sys.executable, "-c", "import sys; sys.modules['prompt_toolkit'] = None\n" + START[2]]
OPTIONS = [
    *("shell", "visits.csv", "--schema", "schema.yaml", "--table", "wards=wards.csv"),
    *("--budget", "rho 1", "--ledger", "books"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    table = pa.table(hospital(400))
    csv.write_csv(table.append_column("first name", pa.array(["x"] * table.num_rows)), tmp_path / "visits.csv")
    (tmp_path / "wards.csv").write_text("ward,building\n" + "".join(f"{ward},north\n" for ward in WARDS))
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    return tmp_path


@pytest.fixture
def dataset(folder: Path) -> Iterator[cl.Dataset]:
    places = {"visits": folder / "visits.csv", "wards": folder / "wards.csv"}
    with cl.open(places, schema=FACTS, budget=cl.rho(1), ledger=folder / "books") as opened:
        yield opened


# At a terminal


class Person:
    """Somebody at a terminal: types, and waits until something is to be seen."""

    def __init__(self, folder: Path, *more: str, start: list[str] = START) -> None:
        self.keys, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        env = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
        command = [*start, *OPTIONS, *more]
        self.process = subprocess.Popen(command, cwd=folder, env=env, stdin=other, stdout=other, stderr=other)
        os.close(other)
        self.seen = ""

    def __enter__(self) -> "Person":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.keys)

    def types(self, text: str) -> None:
        os.write(self.keys, text.encode())

    def sees(self, words: str, within_s: float = 30) -> None:
        """Wait for words; what came before them is then gone from sight."""
        end = time.monotonic() + within_s
        while words not in (clean := re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.seen)):
            ready, _, _ = select.select([self.keys], [], [], max(0, end - time.monotonic()))
            assert ready, f"{words!r} did not appear in {self.seen!r}"
            more = os.read(self.keys, 65536).decode(errors="replace")
            self.seen += more
            if "\x1b[6n" in more:  # a terminal says where its cursor is when it is asked
                os.write(self.keys, b"\x1b[1;1R")
        self.seen = clean.partition(words)[2]

    def asks(self, text: str, answer: str) -> None:
        """Type a line once the prompt is there (with the bar below it), and wait for what it brings."""
        self.sees("left · \\help")
        self.types(f"{text}\r")
        self.sees(answer)

    def leaves(self) -> int:
        self.sees("left · \\help")
        self.types("\x04")
        return self.process.wait(20)


def test_a_sitting_at_a_terminal(folder: Path) -> None:
    with Person(folder) as person:
        person.asks("SELECT COUNT(*) FROM visits;", "say first what an answer may cost")
        person.asks("\\spend rho 0.1", "An answer may cost rho 0.1.")
        person.sees("left · \\help")
        person.types("SELECT non")
        person.sees("non")
        person.types("\x03")  # Ctrl-C: the line is gone, the shell is not
        joined = "SELECT building, COUNT(*) AS n\rFROM visits JOIN wards USING (ward)\rGROUP BY building;"
        person.asks(joined, "95 % interval")
        person.sees("rho 0.9 left")
        person.sees("left · \\help")
        person.types("SELECT AVG(stay_\t")
        person.sees("days")
        person.types(") FROM nowhere;\r")
        person.sees("CLO-209: there is no table nowhere")
        person.asks("\\budget", "spent rho 0.1")
        assert person.leaves() == 0


def test_the_history_outlives_the_sitting_and_is_nobody_elses_business(folder: Path) -> None:
    with Person(folder) as person:
        person.asks("\\spend rho 0.125", "An answer may cost rho 0.125.")
        assert person.leaves() == 0
    assert (folder / "books" / "history").stat().st_mode & 0o777 == 0o600
    with Person(folder, "--spend", "rho 0.2") as again:
        again.sees("spend rho 0.2")
        again.asks("\x1b[A", "An answer may cost rho 0.125.")  # arrow up
        again.asks("\\history", "\\spend rho 0.125\r\n\\history")
        assert again.leaves() == 0


def test_without_the_line_editor_the_shell_says_what_to_install_and_works_plainly(folder: Path) -> None:
    with Person(folder, "--spend", "rho 0.1", start=WITHOUT_EDITOR) as person:
        person.sees("pip install 'cloister[shell]'")
        person.sees("visits> ")
        person.types("SELECT COUNT(*)\nFROM visits;\n")
        person.sees("......> ")
        person.sees("95 % interval")
        person.sees("visits> ")
        person.types("\\quit\n")
        assert person.process.wait(20) == 0


# Through a pipe


def test_a_file_of_questions_is_answered_without_prompts(folder: Path) -> None:
    text = (
        "\\spend rho 0.1\nSELECT COUNT(*)\nFROM visits;\nSELECT * FROM visits;\n\\budget\nSELECT COUNT(*) FROM visits"
    )
    done = subprocess.run([*START, *OPTIONS], cwd=folder, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "visits>" not in done.stdout
    assert done.stdout.count("95 % interval") == 2  # the last question lacks its semicolon, and is answered
    assert done.stdout.count("rho 0.9 left") == 2  # and it is the first one again, so it is free
    assert "CLO-209" in done.stdout


def test_plain_lines_are_kept_for_the_history_of_the_sitting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 1\n;\n\\help\n"))
    lines = Lines("")
    assert [lines.read(""), lines.read("")] == ["SELECT 1\n;", "\\help"] == lines.past()
    with pytest.raises(EOFError):
        lines.read("")


# Key by key


def typed(keys: str, history: Path) -> str:
    """What the line editor makes of some keys."""
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(keys)
        return Terminal("visits", FACTS, history, list(COMMANDS)).read("")


def test_a_question_goes_on_until_its_semicolon_and_a_command_ends_with_its_line(tmp_path: Path) -> None:
    assert typed("SELECT 1,\r2\r;\r", tmp_path / "h") == "SELECT 1,\n2\n;"
    assert typed("\\budget\r", tmp_path / "h") == "\\budget"
    assert typed("quit\r", tmp_path / "h") == "quit"


def test_ctrl_c_and_ctrl_d_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        typed("SELECT\x03", tmp_path / "h")
    with pytest.raises(EOFError):
        typed("\x04", tmp_path / "h")


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("", True),
        ("\\plan SELECT 1", True),
        ("help", True),
        ("SELECT 1", False),
        ("SELECT 1; ", True),
        ("SELECT 1; -- done", True),
        ("SELECT ';", False),
        ("SELECT ';'", False),
        ("-- don't\nSELECT 1;", True),
        ("SELECT 1 -- not yet;", False),
    ],
)
def test_where_a_question_ends(text: str, ends: bool) -> None:
    assert complete(text) is ends


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\\b", ["\\budget"]),
        ("\\schema w", ["wards"]),
        ("SEL", ["SELECT"]),
        ("SELECT sta", ["stay_days"]),
        ("SELECT pat", ["patient"]),
        ("SELECT wards.b", ["building"]),
        ("SELECT v.sta", ["stay_days"]),
        ("SELECT COUNT(*) FROM visits JOIN w", ["wards"]),
        ("select count(*) from v", ["visits"]),
        ("SELECT 1 FROM visits WHERE ward = 'ca", ["cardiology'"]),
        ("SELECT 1 FROM visits WHERE ward IN ('surgery', 'm", ["maternity'"]),
        ("SELECT 1 FROM wards WHERE building = 'o", ["o''brien'"]),
        ("SELECT visits.", ["patient", "ward", "stay_days", '"first name"']),
        ("SELECT qqq", []),
    ],
)
def test_what_is_completed_is_public(text: str, words: list[str]) -> None:
    typed, found = suggestions(text, FACTS, list(COMMANDS))
    assert found == words
    assert text.endswith(typed)


# What the commands do


def conversation(dataset: cl.Dataset, *texts: str, **settings: object) -> str:
    console = Console(file=io.StringIO(), width=120)
    shell = Shell(dataset, Lines(""), console, **settings)  # type: ignore[arg-type]
    for text in texts:
        shell.do(text)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_every_command_is_in_the_help_and_works(dataset: cl.Dataset, tmp_path: Path) -> None:
    shown = conversation(dataset, "\\help")
    assert all(f"\\{name}" in shown for name in COMMANDS)
    assert "public" in conversation(dataset, "\\tables")
    schema = conversation(dataset, "\\schema VISITS")
    for words in ("names one patient", "0 to 60", "cardiology, emergency"):
        assert words in schema
    question = "SELECT COUNT(*) AS n FROM visits;"
    plan = conversation(dataset, f"\\plan {question}", spend=cl.rho("0.1"))
    assert "cost       rho 0.1" in plan
    assert "WITH" not in plan
    assert "cost nothing" in conversation(dataset, "\\receipt")
    kept = conversation(dataset, question, f"\\receipt {tmp_path / 'r'}", "\\receipt", spend=cl.rho("0.1"))
    assert "Written to" in kept
    assert "paid  rho 0.1" in kept
    cl.Receipt.parse((tmp_path / "r").read_bytes()).verify(dataset.account.book.key.public)


def test_a_question_may_be_asked_by_its_error_under_a_ceiling(dataset: cl.Dataset) -> None:
    question = "SELECT COUNT(*) AS n FROM visits;"
    refused = conversation(dataset, "\\within 5", question, spend=cl.rho("0.001"))
    assert "CLO-204: an error within 5 costs rho" in refused
    assert dataset.left == cl.rho(1)
    assert "95 % interval" in conversation(dataset, "\\within 20", question)
    assert 0 < dataset.account.spent.amount < 1
    assert "what \\spend says" in conversation(dataset, "\\within 5", "\\within off")


@pytest.mark.parametrize(
    "text",
    [
        "\\nonsense",
        "\\s",
        "\\",
        "\\spend lots",
        "\\within lots",
        "\\schema nothing",
        "\\receipt no-such-folder/r",
        "\\plan",
        "nonsense;",
        "SELECT COUNT(*) FROM visits; SELECT COUNT(*) FROM visits;",
        "DROP TABLE visits;",
    ],
)
def test_a_refusal_is_a_sentence_and_the_shell_goes_on(dataset: cl.Dataset, text: str) -> None:
    sql = "SELECT MAX(stay_days) AS x FROM visits;"
    shown = conversation(dataset, sql, text, "\\budget", spend=cl.rho("0.1"))
    assert "spent rho 0.1" in shown
    middle = shown.partition("counts for at most 4 rows\n")[2].partition("visits: rho 1")[0]
    assert middle.count(".\n") >= 1


def test_an_interrupted_question_says_that_its_charge_stands(
    dataset: cl.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_sql: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(dataset.tables.engine), "run", lambda _self, sql: stop(sql))
    shown = conversation(dataset, "SELECT COUNT(*) FROM visits;", "\\budget", spend=cl.rho("0.1"))
    assert "the charge stands" in shown
    assert "spent rho 0.1" in shown

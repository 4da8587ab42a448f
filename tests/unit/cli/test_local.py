"""`cloister local`: from a question to a chart, on CSV or JSON lines, and one sentence for a refusal."""

import json
import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cloister import local
from cloister.cli import main
from cloister.local.survey.question import read_questions

CHOICES = ["clerk", "nurse", "teacher"]


def run(*arguments: Any, fails: bool = False) -> str:
    result = CliRunner().invoke(main, ["local", *map(str, arguments)])
    assert (result.exit_code != 0) == fails, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.output


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with questions, and answers as CSV and as JSON lines."""
    monkeypatch.chdir(tmp_path)
    run("advise", "job", "--choices", ",".join(CHOICES), "--people", 2000, "--output", "survey.json")
    run("advise", "smoker", "--yes-no", "--output", "survey.json")
    run("advise", "pets", "--choices", "cat,dog,fish", "--up-to", 2, "--output", "survey.json")
    run("advise", "age", "--between", "17:90", "--levels", "1,2", "--output", "survey.json")
    dice = random.Random(4)
    rows = []
    for _ in range(900):
        pets = dice.sample(["cat", "dog", "fish"], dice.randint(0, 2))
        row = {"job": dice.choices(CHOICES, [6, 3, 1])[0], "smoker": dice.choice(["no", "no", "yes"])}
        row |= {
            "pets": ";".join(pets) or "none",
            "age": str(dice.randint(18, 80)),
            "job.level": dice.choice(["0.5", "2"]),
        }
        rows.append(row)
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    (tmp_path / "answers.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    listed = [
        json.dumps({**row, "pets": row["pets"].replace("none", "").split(";") if row["pets"] != "none" else []})
        for row in rows
    ]
    (tmp_path / "answers.jsonl").write_text("\n".join(listed) + "\n", encoding="utf-8")
    return tmp_path


def test_advice_shows_the_table_for_every_level_and_writes_the_question(place: Path) -> None:
    shown = run("advise", "job", "--choices", ",".join(CHOICES), "--people", 500, "--output", "survey.json")
    assert shown.count("→") == 3
    assert "epsilon 0.5, 500 people" in shown
    assert shown.endswith("wrote survey.json\n")
    questions = {question.id: question for question in read_questions("survey.json")}
    assert set(questions) == {"job", "smoker", "pets", "age"}
    assert questions["job"].choices == tuple(CHOICES)
    assert questions["age"].offered == ("1", "2")
    assert questions["pets"].most == 2
    shown = run("advise", "age", "--between", "0:1")
    assert all(f" {label} " in shown for label in ("Lap", "SR", "PM", "HM"))  # with the table, as for choices
    best = questions["age"].at(1)
    assert best == local.advise_number(("17", "90"), local.epsilon(1), 1000).best
    assert best.mse(1000) < local.Piecewise.for_loss((17, 90), local.epsilon(1)).mse(1000)
    assert "OLH" in run("advise", "word", "--domain", "1000", "--most-bits", "20")


@pytest.mark.parametrize("answers", ["answers.csv", "answers.jsonl"])
def test_answers_become_reports_counts_and_estimates_with_intervals(place: Path, answers: str) -> None:
    assert (
        run("perturb", "survey.json", answers, "--level", 1, "--output", "r.jsonl")
        == "wrote 3,600 reports to r.jsonl\n"
    )
    lines = (place / "r.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 3_600
    assert {json.loads(line)["level"] for line in lines if '"question":"job"' in line} == {"1/2", "2"}
    said = {json.dumps({**json.loads(line), "id": "", "report": ""}) for line in lines}
    assert len(said) == 2 + 3  # one for each question and level: whoever answered what, all else is alike
    shown = run("collect", "survey.json", "r.jsonl", "--counts", "counts.json")
    assert shown == "counted 3,600 reports, refused 0\n"
    shown = run("estimate", "counts.json")
    for words in ("job: 900 reports", "95 % interval", "projected", "self-selection p", "made-up reports", "mean"):
        assert words in shown


def test_collecting_goes_on_where_it_stopped_and_counts_what_it_refuses(place: Path) -> None:
    run("perturb", "survey.json", "answers.csv", "--level", 1, "--output", "r.jsonl")
    lines = (place / "r.jsonl").read_bytes().splitlines(keepends=True)
    (place / "one.jsonl").write_bytes(b"".join(lines[:1000]) + b"nonsense\n\n")
    (place / "two.jsonl").write_bytes(b"".join(lines[900:]) + b"x" * 3_000_000)
    run("collect", "survey.json", "one.jsonl", "--counts", "counts.json")
    shown = run("collect", "survey.json", "two.jsonl", "--counts", "counts.json")
    assert shown.splitlines() == [
        "counted 2,600 reports, refused 103",
        "  malformed: 1 in all",
        "  oversized: 3 in all",
        "  replayed: 100 in all",
    ]
    assert "job: 900 reports" in run("estimate", "counts.json", "--question", "job")


def test_a_bar_is_shown_on_a_terminal_and_nowhere_else(place: Path) -> None:
    run("perturb", "survey.json", "answers.csv", "--level", 1, "--output", "r.jsonl")
    screen, terminal = os.openpty()
    line = [sys.executable, "-c", "from cloister.cli import main; main()", "local", "collect", "survey.json", "r.jsonl"]
    done = subprocess.run(
        [*line, "--counts", "c.json"], stdout=subprocess.PIPE, stderr=terminal, check=True, timeout=60
    )
    os.close(terminal)
    seen = ""
    with suppress(OSError):  # which is how a terminal says that nobody writes any more
        while more := os.read(screen, 1 << 16).decode():
            seen += more
    os.close(screen)
    assert "collecting" in seen
    assert "100%" in seen
    assert done.stdout == b"counted 3,600 reports, refused 0\n"


def test_estimates_are_written_as_json_and_drawn_with_the_truth_beside_them(place: Path) -> None:
    pytest.importorskip("altair", reason="charts need Altair: pip install 'cloister[hub]'")
    run("perturb", "survey.json", "answers.csv", "--level", 1, "--output", "r.jsonl")
    run("collect", "survey.json", "r.jsonl", "--counts", "counts.json")
    told = json.loads(run("estimate", "counts.json", "--json", "--confidence", "0.9", "--fakes", 9))
    assert [one["question"] for one in told] == ["job", "smoker", "pets", "age"]
    assert [row["value"] for row in told[0]["shares"]] == CHOICES
    assert (told[0]["confidence"], told[0]["private"], told[0]["poisoning"]["fakes"]) == (0.9, True, 9)
    shown = run("estimate", "counts.json", "--teaching", "answers.csv", "--chart", "chart.svg")
    assert shown.count("truth (a lesson, not private)") == 4
    drawn = (place / "chart.svg").read_text(encoding="utf-8")
    for words in ("estimate, raw", "estimate, projected", "truth (a lesson: not private)", "teacher"):
        assert words in drawn
    plain = run("estimate", "counts.json", "--question", "job", "--chart", "chart.png", "--weights", "people")
    assert "truth" not in plain
    assert (place / "chart.png").read_bytes().startswith(b"\x89PNG")
    run("estimate", "counts.json", "--question", "job", "--chart", "chart.html")
    assert "<html" in (place / "chart.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["advise", "q"], "say what the answers are, in one way"),
        (["advise", "q", "--yes-no", "--domain", "4"], "say what the answers are, in one way"),
        (["advise", "a b", "--yes-no", "--output", "x.json"], "a question's id has"),
        (["advise", "q", "--between", "3"], "write LOW:HIGH"),
        (["advise", "q", "--domain", "4", "--levels", "0"], "epsilon"),
        (["perturb", "survey.json", "answers.csv", "--output", "r.jsonl"], "row 1 has no level for smoker"),
        (["perturb", "survey.json", "answers.csv", "--level", "7", "--output", "r.jsonl"], "not asked at this level"),
        (
            ["perturb", "survey.json", "bad.csv", "--level", "1", "--output", "r.jsonl"],
            "row 2: this is no answer to job",
        ),
        (["perturb", "survey.json", "bad.jsonl", "--level", "1", "--output", "r.jsonl"], "line 2 is no JSON object"),
        (["perturb", "answers.csv", "answers.csv", "--level", "1", "--output", "r.jsonl"], "no JSON file of questions"),
        (["collect", "survey.json", "answers.csv", "--counts", "other.json"], "no file of counts"),
        (["collect", "survey.json", "missing.jsonl", "--counts", "c.json"], "does not exist"),
        (["estimate", "survey.json"], "no file of counts"),
        (["estimate", "empty.json"], "nothing to estimate"),
        (["estimate", "few.json", "--question", "nonsense"], "no such question"),
        (["estimate", "few.json", "--chart", "x.gif"], "a chart is written as"),
        (["estimate", "few.json", "--fakes", "99999"], "at most all of them"),
    ],
)
def test_a_refusal_is_one_sentence_and_leaves_nothing_behind(place: Path, arguments: list[str], sentence: str) -> None:
    (place / "bad.csv").write_text("job\nclerk\nastronaut\n", encoding="utf-8")
    (place / "bad.jsonl").write_text('{"job": "clerk"}\n[1]\n', encoding="utf-8")
    (place / "other.json").write_text("{}", encoding="utf-8")
    (place / "none").write_text("", encoding="utf-8")
    (place / "few.csv").write_text("smoker\nyes\nno\n", encoding="utf-8")
    run("collect", "survey.json", "none", "--counts", "empty.json")
    run("perturb", "survey.json", "few.csv", "--level", 1, "--output", "few.jsonl")
    run("collect", "survey.json", "few.jsonl", "--counts", "few.json")
    before = {path.name for path in place.iterdir()}
    shown = run(*arguments, fails=True)
    assert sentence in shown
    assert "Traceback" not in shown
    assert "astronaut" not in shown
    assert {path.name for path in place.iterdir()} == before


def test_counts_of_other_questions_are_not_mixed(place: Path) -> None:
    run("perturb", "survey.json", "answers.csv", "--level", 1, "--output", "r.jsonl")
    run("collect", "survey.json", "r.jsonl", "--counts", "counts.json")
    run("advise", "smoker", "--yes-no", "--levels", "1", "--output", "survey.json")
    assert "counts are of other questions" in run(
        "collect", "survey.json", "r.jsonl", "--counts", "counts.json", fails=True
    )


def test_wrong_answers_are_counted_and_skipped_on_request(place: Path) -> None:
    (place / "bad.csv").write_text(
        "job,smoker\nclerk,yes\nastronaut,no\npilot,maybe\nclerk,\nclerk,no\n", encoding="utf-8"
    )
    shown = run("perturb", "survey.json", "bad.csv", "--level", 1, "--skip-wrong", "--output", "r.jsonl")
    assert "no answer to smoker: 1 " in shown
    assert "astronaut" not in shown
    wrong = sum(choice not in CHOICES for choice in ("clerk", "astronaut", "pilot", "clerk", "clerk"))
    assert f"no answer to job: {wrong} " in shown
    assert f"wrote {5 - wrong + 3} reports" in shown
    assert f"counted {5 - wrong + 3} reports, refused 0" in run(
        "collect", "survey.json", "r.jsonl", "--counts", "c.json"
    )


def test_a_mistyped_column_is_refused_and_named(place: Path) -> None:
    header, rest = (place / "answers.csv").read_text(encoding="utf-8").split("\n", 1)
    (place / "wrong.csv").write_text(header.replace("smoker", "smokr") + "\n" + rest, encoding="utf-8")
    asked = ("survey.json", "wrong.csv", "--level", 1, "--output", "reports.jsonl")
    said = run("perturb", *asked, fails=True)
    assert "there is no column for smoker" in said
    assert "no question: smokr" in said
    assert not (place / "reports.jsonl").exists()
    (place / "wrong.jsonl").write_text('{"job": "nurse", "smokr": "no"}\n{"pets": "cat", "age": 30}\n')
    said = run("perturb", "survey.json", "wrong.jsonl", "--level", 1, "--output", "reports.jsonl", fails=True)
    assert "there is no column for smoker" in said

"""`cloister query` and `cloister plan`: thin, and careful with what is paid for."""

import io
import json
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner, Result
from pyarrow import csv, parquet
from rich.console import Console

from cloister.cli import main
from cloister.data.hospital import SCHEMA as HOSPITAL
from cloister.data.hospital import WARDS, hospital
from cloister.dataset import open as open_source
from cloister.hub.web.words import cell_text
from cloister.privacy.errors import BadLoss, BadNumber, QueryRefused
from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import Loss, Unit, epsilon, rho
from cloister.query.answer import Answer
from cloister.query.display import answer_table, show_answer

SCHEMA = f"""
unit: {{name: patient, max_rows: 4}}
tables:
  visits:
    unit: patient
    rows: 600
    columns:
      ward: {{type: text, categories: [{", ".join(WARDS)}], nullable: false}}
      stay_days: {{type: integer, bounds: [0, 60], nullable: false}}
"""
PUBLIC = f"""  wards:
    public: true
    columns:
      ward: {{type: text, categories: [{", ".join(WARDS)}], nullable: false}}
      building: {{type: text, categories: [north, south], nullable: false}}
"""
COUNT = "SELECT COUNT(*) AS n FROM visits"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with a table, its schema, and the options in the environment, as an analyst would set them."""
    csv.write_csv(pa.table(hospital(400)), tmp_path / "visits.csv")
    (tmp_path / "wards.csv").write_text("ward,building\n" + "".join(f"{ward},north\n" for ward in WARDS))
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLOISTER_SCHEMA", "schema.yaml")
    monkeypatch.setenv("CLOISTER_BUDGET", "rho 1")
    monkeypatch.setenv("CLOISTER_LEDGER", "books")
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words, catch_exceptions=False)


def spent() -> Loss:
    with Ledger.in_folder("books") as book:
        return book.open_account("visits", rho(1)).spent


# Losses in words


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        ("rho 0.01", rho("0.01")),
        ("epsilon 1", epsilon(1)),
        ("0.5", epsilon("0.5")),
        ("1/3", epsilon("1/3")),
        ("epsilon 1, delta 1e-6", epsilon(1, delta="1e-6")),
        ("EPSILON=1 delta=1e-6", epsilon(1, delta="1e-6")),
        ("1, delta 1e-6", epsilon(1, delta="1e-6")),
        (" rho  0.1 , delta 1e-9 ", rho("0.1", delta="1e-9")),
    ],
)
def test_a_loss_is_read_from_words(text, loss):
    assert Loss.parse(text, bare=True) == loss


@pytest.mark.parametrize(
    "text", ["", "rho", "epsilon one", "sigma 1", "rho 0.1 0.2", "rho -1", "0", "epsilon 1, delta 2"]
)
def test_what_is_no_loss_is_refused_with_a_sentence(text):
    with pytest.raises((BadLoss, BadNumber), match=r"\."):
        Loss.parse(text, bare=True)


def test_every_loss_reads_back_what_it_prints():
    for loss in (rho("0.01"), epsilon(2, delta="1e-7"), epsilon("0.25")):
        assert Loss.parse(str(loss)) == loss


# Asking


def test_an_answer_is_a_table_with_intervals_its_cost_and_what_is_left(folder):
    done = run("query", "visits.csv", "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward", "--spend", "rho 0.1")
    assert done.exit_code == 0
    for words in (*WARDS, "95 % interval", "cost rho 0.1", "one patient (at most 4 rows)", "rho 0.9 left"):
        assert words in done.stdout
    assert spent() == rho("0.1")


def test_the_options_on_the_line_win_over_the_environment(folder):
    done = run(
        "query", "visits.csv", COUNT, "--budget", "epsilon 3", "--spend", "1", "--ledger", "other", "--name", "x"
    )
    assert "epsilon 2 left" in done.stdout
    assert (folder / "other").is_dir()
    assert not (folder / "books").exists()


def test_csv_json_and_parquet_hold_the_limits_and_nothing_else_is_printed_there(folder):
    asked = ("query", "visits.csv", COUNT, "--spend", "rho 0.1")
    table = csv.read_csv(io.BytesIO(run(*asked, "--format", "csv").stdout_bytes))
    record = json.loads(run(*asked, "--format", "json").stdout)
    assert run(*asked, "--output", "answer.parquet").stdout == ""
    again = parquet.read_table("answer.parquet")
    assert table.column_names == again.column_names == ["n", "n_low", "n_high"]
    assert table.to_pylist() == again.to_pylist() == record["answer"]
    assert record["confidence"] == 0.95
    assert record["protects"] == "one patient (at most 4 rows)"


def test_asking_again_is_free_and_says_so(folder):
    first = run("query", "visits.csv", COUNT, "--spend", "rho 0.1", "--format", "csv")
    again = run("query", "visits.csv", COUNT, "--spend", "rho 0.1", "--format", "csv")
    assert first.stdout == again.stdout
    assert "rho 0.9 left" in again.stderr
    assert spent() == rho("0.1")


def test_a_further_table_is_named_and_joined(folder):
    (folder / "schema.yaml").write_text(SCHEMA + PUBLIC)
    sql = "SELECT building, COUNT(*) AS n FROM visits JOIN wards USING (ward) GROUP BY building"
    done = run("query", "visits.csv", sql, "--table", "wards=wards.csv", "--spend", "rho 0.1", "--format", "json")
    north, south = json.loads(done.stdout)["answer"]
    assert (north["building"], south["building"]) == ("north", "south")
    assert north["n"] > south["n"]


def test_a_receipt_is_saved_and_verifies(folder):
    assert (
        run("query", "visits.csv", COUNT, "--spend", "rho 0.1", "--receipt", "r.json", "--version", "2025").exit_code
        == 0
    )
    with Ledger.in_folder("books") as book:
        done = run("receipt", "verify", "r.json", "--key", str(book.key.public))
    assert done.exit_code == 0
    assert "2025" in done.stdout
    free = run("query", "visits.csv", COUNT, "--spend", "rho 0.1", "--receipt", "free.json", "--version", "2025")
    assert "no new receipt" in free.stderr
    assert not (folder / "free.json").exists()
    # A job of a hub with two charges has two receipts, one on each line.
    line = (folder / "r.json").read_text().strip()
    (folder / "both.json").write_text(f"{line}\n{line}\n")
    (folder / "bad.json").write_text(f"{line}\n{line.replace('2025', '2026')}\n")
    with Ledger.in_folder("books") as book:
        both, bad = (
            run("receipt", "verify", name, "--key", str(book.key.public)) for name in ("both.json", "bad.json")
        )
    assert "All 2 receipts are genuine." in both.stdout
    assert bad.exit_code == 1
    assert "genuine" not in bad.stdout


def test_the_receipt_of_a_search_for_groups_is_saved_too(folder):
    listed = f"categories: [{', '.join(WARDS)}], "
    (folder / "open.yaml").write_text(SCHEMA.replace(listed, ""))
    sql = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
    options = ("--schema", "open.yaml", "--spend", "rho 0.2, delta 1e-8", "--receipt", "r.json")
    done = run("query", "visits.csv", sql, *options, "--name", "other", "--budget", "rho 1, delta 1e-6")
    assert done.exit_code == 0, done.stderr
    assert len((folder / "r.json").read_text().splitlines()) == 2
    # Found groups are not kept on the disk, so they are searched and paid for again; the answer is not.
    again = run(
        "query", "visits.csv", sql, *options[:-1], "r2.json", "--name", "other", "--budget", "rho 1, delta 1e-6"
    )
    assert again.exit_code == 0, again.stderr
    assert "search for groups, which was paid" in again.stderr
    (first, _), (second,) = ((folder / name).read_text().splitlines() for name in ("r.json", "r2.json"))
    assert first != second
    with Ledger.in_folder("books") as book:
        done = run("receipt", "verify", "r2.json", "--key", str(book.key.public))
    assert "If the file held others before, that cannot be seen here" in done.stdout


def test_accuracy_first_pays_the_cheapest_loss_up_to_what_may_be_spent(folder):
    done = run("query", "visits.csv", COUNT, "--within", "20", "--format", "json")
    (row,) = json.loads(done.stdout)["answer"]
    assert 19 < (row["n_high"] - row["n_low"]) / 2 <= 20
    before = spent()
    refused = run("query", "visits.csv", COUNT, "--within", "10", "--spend", "rho 0.01")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("Error: CLO-204: an error within 10 costs rho ")
    assert spent() == before


# Refusals


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["SELECT * FROM visits", "--spend", "rho 0.1"], "CLO-209"),
        (["SELECT COUNT(*) OVER () FROM visits", "--spend", "rho 0.1"], "CLO-209"),
        (["nonsense", "--spend", "rho 0.1"], "CLO-209"),
        ([COUNT, "--spend", "rho 2"], "CLO-204"),
        ([COUNT, "--spend", "lots"], "CLO-101"),
        ([COUNT, "--spend", "rho 0.1", "--confidence", "2"], "CLO-108"),
        ([COUNT, "--within", "-1"], "CLO-101"),
        ([COUNT, "--spend", "rho 0.1", "--schema", "none.yaml"], "CLO-111"),
    ],
)
def test_a_refusal_is_one_sentence_with_status_1_and_spends_nothing(folder, words, code):
    done = run("query", "visits.csv", *words)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"Error: {code}: ")
    assert len(done.stderr.splitlines()) == 1
    assert spent() == Loss.nothing("rho")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--spend", "rho 0.1", "--output", "no-such-folder/answer.csv"],
        ["--spend", "rho 0.1", "--receipt", "no-such-folder/receipt"],
        ["--spend", "rho 0.1", "--output", "answer.txt"],
        ["--spend", "rho 0.1", "--format", "parquet"],
        ["--spend", "rho 0.1", "--table", "wards"],
    ],
)
def test_a_call_that_cannot_be_carried_out_is_refused_before_it_is_paid_for(folder, words):
    done = run("query", "visits.csv", COUNT, *words)
    assert done.exit_code == 2
    assert "Error: " in done.stderr
    assert spent() == Loss.nothing("rho")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_an_answer_that_was_paid_for_is_shown_if_the_disk_is_full(folder):
    done = run("query", "visits.csv", COUNT, "--spend", "rho 0.1", "--output", "/dev/full", "--format", "csv")
    assert done.exit_code == 1
    assert "95 % interval" in done.stdout
    assert "could not be written" in done.stderr


# Planning


def test_a_plan_tells_the_cost_and_the_error_and_leaves_nothing_behind(folder):
    done = run("plan", "visits.csv", COUNT, "--spend", "rho 0.1")
    assert done.exit_code == 0
    for words in ("cost       rho 0.1", "COUNT(*)", "±", "the engine will run (duckdb)"):
        assert words in done.stdout
    assert not (folder / "books").exists()


def test_a_plan_knows_what_was_asked_before(folder):
    run("query", "visits.csv", COUNT, "--spend", "rho 0.1")
    done = run("plan", "visits.csv", COUNT, "--spend", "rho 0.1")
    assert "from the record, at no cost" in done.stdout
    assert spent() == rho("0.1")


def test_a_plan_opens_no_account_in_a_ledger_that_is_there(folder):
    run("query", "visits.csv", COUNT, "--spend", "rho 0.1")
    assert run("plan", "visits.csv", COUNT, "--spend", "rho 0.1", "--name", "misspelt").exit_code == 0
    with Ledger.in_folder("books") as book:
        assert [account.rules.key for account in book.accounts()] == ["visits"]


def test_a_plan_is_refused_like_a_question(folder):
    assert run("plan", "visits.csv", "SELECT * FROM visits", "--spend", "rho 0.1").exit_code == 1
    assert run("plan", "visits.csv", COUNT).exit_code == 2


def test_the_commands_load_no_engine_before_they_are_run():
    code = (
        "import sys; import cloister.cli.query, cloister.cli.plan, cloister.cli.shell; "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"duckdb", "sqlglot", "pyarrow", "rich", "prompt_toolkit"} & set(loaded)


# The guide


GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "ask-a-question.md").read_text(encoding="utf-8")


def snippets(heading: str, column: int) -> list[str]:
    """The code in one column of the first table after some words of the guide."""
    lines = GUIDE.partition(heading)[2].partition("\n|---|---|\n")[2].partition("\n\n")[0].splitlines()
    return [code for line in lines for code in re.findall(r"`([^`]+)`", line.strip("|").split(" | ")[column])]


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    schema = {**HOSPITAL, "tables": {**HOSPITAL["tables"], "wards": yaml.safe_load(PUBLIC)["wards"]}}
    tables = {"visits": pa.table(hospital(50)), "wards": pa.table({"ward": ["surgery"], "building": ["north"]})}
    with open_source(tables, schema=schema, budget=rho(1), ledger=tmp_path_factory.mktemp("books")) as dataset:
        yield dataset


@pytest.mark.parametrize("aggregate", snippets("Aggregates, over numbers", 0))
def test_every_aggregate_of_the_guide_is_offered(asked, aggregate):
    assert asked.plan(f"SELECT {aggregate} AS x FROM visits", spend=rho("0.1")).loss == rho("0.1")


@pytest.mark.parametrize("form", snippets("Row by row, in WHERE", 1))
def test_every_row_wise_form_of_the_guide_is_offered(asked, form):
    assert asked.plan(f"SELECT COUNT({form}) AS x FROM visits", spend=rho("0.1")).loss == rho("0.1")


@pytest.mark.parametrize("sql", snippets("## What is refused", 0))
def test_what_the_guide_calls_refused_is_refused(asked, sql):
    with pytest.raises(QueryRefused):
        asked.plan(sql, spend=rho("0.1"))


@pytest.mark.parametrize("sql", [one for one in snippets("## What is refused", 1) if one.startswith("SELECT")])
def test_what_the_guide_offers_instead_works(asked, sql):
    assert asked.plan(sql, spend=rho("0.1")).loss == rho("0.1")


def test_the_guide_speaks_of_enough():
    counts = [
        len(snippets(heading, column))
        for heading, column in (("Aggregates, over", 0), ("Row by row, in", 1), ("## What is refused", 0))
    ]
    assert all(count > 10 for count in counts), counts


# Showing


def answer(table: dict[str, list[object]], columns: tuple[str, ...], **more: object) -> Answer:
    facts = {"loss": rho("0.1"), "unit": Unit("patient", 4), "mechanism": "none", "parameters": {}, **more}
    return Answer(value=pa.table(table), columns=columns, **facts)  # type: ignore[arg-type]


def printed(shown: object) -> list[str]:
    console = Console(file=io.StringIO(), width=100)
    console.print(shown)
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]  # type: ignore[attr-defined]


def test_numbers_have_the_digits_that_their_intervals_deserve():
    columns = {"x": [1234.5678, -0.0001], "x_low": [1224.4, -10.0], "x_high": [1244.6, 10.0]}
    _, _, first, second = printed(answer_table(answer(columns, ("x",))))
    assert first.split() == ["1,235", "1,224", "to", "1,245"]
    assert second.split() == ["0", "-10", "to", "10"]
    fine = {"x": [0.12345], "x_low": [0.12], "x_high": [0.13]}
    assert printed(answer_table(answer(fine, ("x",))))[-1].split() == ["0.1235", "0.1200", "to", "0.1300"]


@pytest.mark.parametrize(
    ("low", "value", "high"),
    [
        (2.99807e-07, 3e-07, 3.00176e-07),
        (99.6, 120.0, 140.4),
        (1e-20, 2e-20, 3e-20),
        (0.3, 0.3, 0.3),
        (-0.4, 0.0, 30.6),
    ],
)
def test_a_printed_interval_holds_the_interval(low, value, high):
    """In a table, as text, in a notebook and on a page alike."""
    shown = answer({"x": [value], "x_low": [low], "x_high": [high]}, ("x",))
    texts = [
        printed(answer_table(shown))[-1],
        str(shown).splitlines()[1],
        re.sub("<.*?>", " ", shown._repr_html_().partition("<td>")[2].partition("</td>")[0]),
        cell_text({"value": value, "low": low, "high": high}),
    ]
    for text in texts:
        middle, below, above = (float(word) for word in re.findall(r"-?[0-9.]+(?:e[+-][0-9]+)?", text))
        assert below <= low
        assert above >= high
        assert below <= middle <= above
        assert above - below <= 1.2 * (high - low)


def test_a_missing_interval_and_a_missing_value_are_said_plainly():
    columns = {"y": ["[red]a[/red]", None], "x": [1.0, None], "x_low": [float("nan"), None], "x_high": [2.0, None]}
    _, _, first, second = printed(answer_table(answer(columns, ("y", "x"))))
    assert first.split() == ["[red]a[/red]", "1", "none"]
    assert second.split() == ["NULL", "NULL", "none"]


def test_a_long_answer_is_cut_for_the_eye_and_a_seeded_one_is_marked():
    console = Console(file=io.StringIO(), width=100)
    show_answer(answer({"k": list(range(300))}, ("k",), private=False), console, rho(Fraction(1, 2)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "… 100 more rows" in text
    assert text.startswith("NOT PRIVATE")
    assert "rho 0.5 left" in text

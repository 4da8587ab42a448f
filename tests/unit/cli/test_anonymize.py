"""`cloister anonymize`: plan, run, check, risk and rules, from files to files; a refusal writes nothing."""

import io
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner, Result
from pyarrow import csv, parquet

from cloister.cli import main, progress_bar

ROLES = ("--quasi", "age,zip", "--quasi", "sex", "--sensitive", "disease", "--identifier", "name")
ROWS = 400


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of patients, as CSV and as Parquet."""
    draw = np.random.default_rng(7)
    table = pa.table(
        {
            "name": [f"person {number}" for number in range(ROWS)],
            "age": draw.integers(18, 80, ROWS),
            "zip": [f"{code:05d}" for code in 2130 + draw.integers(0, 12, ROWS)],
            "sex": draw.choice(["f", "m"], ROWS),
            "disease": draw.choice(["flu", "ulcer", "cancer"], ROWS),
            "cost": draw.integers(0, 9, ROWS) / 2,
        }
    )
    csv.write_csv(table, tmp_path / "patients.csv")
    parquet.write_table(table, tmp_path / "patients.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["anonymize", *words], catch_exceptions=False)


def release(*words: str, require: str = "k=5, l=2", out: str = "release.csv") -> Result:
    return run("run", "patients.csv", *ROLES, "--require", require, "--suppression", "10%", "--out", out, *words)


def test_a_plan_names_roles_hierarchies_and_the_lattice_and_writes_nothing(folder: Path) -> None:
    before = sorted(folder.iterdir())
    done = run("plan", "patients.csv", *ROLES, "--require", "k=5, l=2", "--suppression", "10%")
    assert done.exit_code == 0, done.output
    assert "k=5, l=2 (disease): not differentially private" in done.output
    assert "zip (masking of 5 characters, proposed): 12 values -> 2 -> 1 -> 1 -> 1 -> *" in done.output
    assert "0213" not in done.output
    assert "age (intervals of 5, 10, 50, proposed)" in done.output
    assert "dropped       name" in done.output
    assert "combinations of levels" in done.output
    assert "at most 40 (10.0%)" in done.output
    assert sorted(folder.iterdir()) == before


def test_a_plan_says_that_several_rows_of_a_person_count_as_several_people() -> None:
    csv.write_csv(pa.table({"patient": ["a", "a", "b"], "age": [1, 1, 2]}), "visits.csv")
    done = run("plan", "visits.csv", "--identifier", "patient", "--quasi", "age", "--require", "k=1")
    assert "patient has 2 different values in 3 rows" in done.output


@pytest.mark.parametrize("source", ["patients.csv", "patients.parquet"])
@pytest.mark.parametrize("out", ["release.csv", "release.parquet"])
def test_a_release_is_written_with_its_facts_and_is_confirmed_by_check(source: str, out: str) -> None:
    done = run("run", source, *ROLES, "--require", "k=5, l=2", "--suppression", "10%", "--out", out)
    assert done.exit_code == 0, done.output
    assert f"verified and wrote {out}" in done.output
    assert re.search(r"levels: age \d of 4, zip \d of 5, sex \d of 1\n", done.output)
    rows = csv.read_csv(out) if out.endswith("csv") else parquet.read_table(out)
    assert rows.column_names == ["age", "zip", "sex", "disease", "cost"]
    facts = json.loads(Path(f"{out}.anonymized.json").read_text(encoding="utf-8"))
    assert facts["label"] == "k=5, l=2 (disease): not differentially private"
    checked = run("check", out)
    assert checked.exit_code == 0, checked.output
    assert "confirmed: k=5\nconfirmed: l=2 (disease)" in checked.output


def test_mondrian_removes_no_row() -> None:
    done = run("run", "patients.csv", *ROLES, "--require", "k=5, t=0.4", "--method", "mondrian", "--out", "release.csv")
    assert done.exit_code == 0, done.output
    assert "400 rows by Mondrian, strict; 0 rows suppressed" in done.output


def test_a_column_that_is_plain_by_request_is_not_asked_about_again() -> None:
    stated = release("--plain", "cost")
    assert "released as they are: cost" in stated.output
    assert "no role was given" not in stated.output
    silent = release(out="silent.csv")
    assert "no role was given for cost: say it if others may know them of a person" in silent.output
    assert "no role       cost" in run("plan", "patients.csv", *ROLES, "--require", "k=5").output


def test_a_few_odd_values_that_cost_a_column_its_hierarchy_are_told(folder: Path) -> None:
    rows = csv.read_csv("patients.csv", convert_options=csv.ConvertOptions(column_types={"zip": pa.string()}))
    zips = [f"{2100 + place % 50:05d}" for place in range(ROWS - 2)]
    ages = [str(20 + place % 60) for place in range(ROWS - 1)]
    rows = rows.set_column(rows.column_names.index("zip"), "zip", pa.array([*zips, "n/a", "D-02130"]))
    rows = rows.set_column(rows.column_names.index("age"), "age", pa.array([*ages, "unknown"]))
    csv.write_csv(rows, "odd.csv")
    told = run("plan", "odd.csv", *ROLES, "--require", "k=5").output
    assert "2 of the 52 values of zip are no code of 5 characters. Correct them, or give zip a hierarchy" in told
    assert "1 of the 61 values of age is no number. Correct it, or empty it in a copy of the table." in told
    assert "D-02130" not in told
    made = run("run", "odd.csv", *ROLES, "--require", "k=5", "--suppression", "10%", "--out", "odd-k5.csv")
    assert "note: 2 of the 52 values of zip" in made.output
    given = run("plan", "odd.csv", *ROLES, "--require", "k=5", "--hierarchy", "zip=masking:5").output
    assert "values of zip are" not in given


def test_the_command_that_check_names_next_runs_as_it_is_written() -> None:
    done = run("check", "patients.csv", "--quasi", "age,zip", "--sensitive", "disease")
    command = done.output.partition("Next: `cloister anonymize ")[2].partition("`")[0]
    assert run(*shlex.split(command)).exit_code == 0


@pytest.mark.parametrize("share", ["2%", "0.02", "100%"])
def test_shares_of_risk_are_written_as_every_share(share: str) -> None:
    release()
    done = run("risk", "release.csv", "--sampling-fraction", share, "--threshold", share)
    assert done.exit_code == 0, done.output
    assert "uniqueness in the population: " in done.output
    assert "this share is above 0 and at most 1" in run("risk", "release.csv", "--threshold", "0%").output


def test_attacks_that_were_not_run_name_the_option_that_is_missing() -> None:
    release("--report", "report.html")
    told = run("risk", "release.csv").output
    page = Path("report.html").read_text(encoding="utf-8")
    for option in ("--sampling-fraction", "--group", "--earlier"):
        assert f"Give {option}" in told
        assert f"Give {option}" in page
    assert "Give `" not in told + page


def test_every_value_of_the_verifier_is_printed_as_json() -> None:
    release()
    record = json.loads(run("check", "release.csv", "--json").output)
    assert record["k"] >= 5
    assert record["diversity"]["disease"]["distinct_l"] >= 2
    assert record["failures"] == []


def test_a_table_that_does_not_satisfy_the_models_has_the_exit_status_3() -> None:
    done = run("check", "patients.csv", "--quasi", "age,zip", "--sensitive", "disease", "--require", "k=5, l=2")
    assert done.exit_code == 3
    assert "FAILS: k is 1 and must be at least 5" in done.output


def test_a_release_that_was_changed_is_not_confirmed() -> None:
    release()
    rows = csv.read_csv("release.csv", convert_options=csv.ConvertOptions(column_types={"zip": pa.string()}))
    csv.write_csv(rows.slice(0, 3), "release.csv")
    done = run("check", "release.csv")
    assert done.exit_code == 3
    assert "FAILS: k is" in done.output


def test_hierarchies_come_from_files_and_words() -> None:
    Path("zip.csv").write_text("".join(f"{code:05d};low;*\n" for code in range(2130, 2142)), encoding="utf-8")
    words = ("--hierarchy", "zip=zip.csv", "--hierarchy", "age=intervals:0,100,20,40", "--hierarchy", "sex=flat")
    done = run("plan", "patients.csv", *ROLES, "--require", "k=5", *words)
    assert "zip (file zip.csv): 12 values -> 1 -> *" in done.output
    assert "age (intervals of 20, 40)" in done.output


def test_roles_types_bounds_and_hierarchies_come_from_a_schema(folder: Path) -> None:
    columns = {
        "name": {"type": "text", "role": "identifier"},
        "age": {"type": "integer", "bounds": [0, 99], "role": "quasi-identifier"},
        "zip": {"type": "text", "role": "quasi-identifier", "hierarchy": "zip.csv"},
        "sex": {"type": "text", "categories": ["f", "m"], "role": "plain"},
        "disease": {"type": "text", "role": "sensitive"},
        "cost": {"type": "real", "bounds": [0, 10]},
    }
    schema = {"unit": "row", "tables": {"patients": {"columns": columns}}}
    (folder / "facts").mkdir()
    (folder / "facts" / "schema.yaml").write_text(yaml.safe_dump(schema), encoding="utf-8")
    lines = "".join(f"{code:05d};low;*\n" for code in range(2130, 2142))
    (folder / "facts" / "zip.csv").write_text(lines, encoding="utf-8")
    done = run("plan", "patients.csv", "--schema", "facts/schema.yaml", "--require", "k=5, l=2")
    assert done.exit_code == 0, done.output
    assert "dropped       name" in done.output
    assert "age (intervals of 5, 10, 50, proposed)" in done.output
    assert "zip (file zip.csv): 12 values -> 1 -> *" in done.output
    assert "l=2 (disease)" in done.output
    assert "plain         sex (released as they are)\nno role       cost (released as they are)" in done.output
    overruled = run("plan", "patients.csv", "--schema", "facts/schema.yaml", "--require", "k=5", "--quasi", "sex")
    assert "no role       cost" in overruled.output


def test_values_that_are_not_of_the_type_in_the_schema_are_refused() -> None:
    schema = {"unit": "row", "tables": {"patients": {"columns": {"sex": {"type": "integer", "bounds": [0, 1]}}}}}
    Path("schema.yaml").write_text(yaml.safe_dump(schema), encoding="utf-8")
    done = run("plan", "patients.csv", "--schema", "schema.yaml", *ROLES, "--require", "k=5")
    assert done.exit_code == 1
    assert "the schema says that sex is integer, and some of its values are not" in done.output


def test_a_column_whose_name_suggests_a_role_stops_a_release() -> None:
    words = ("patients.csv", "--quasi", "age,sex", "--identifier", "name", "--require", "k=5", "--suppression", "5%")
    planned = run("plan", *words)
    assert planned.exit_code == 0
    assert "role missing  zip: 'zip' in its name stands for" in planned.output
    assert "Next: say the role of zip. By their names: --quasi zip." in planned.output
    assert "no role       disease, cost (released as they are)" in planned.output
    stopped = run("run", *words, "--out", "release.csv")
    assert stopped.exit_code == 1
    assert "the column zip has no role and would be released as it is" in stopped.output
    assert not Path("release.csv").exists()
    assert run("run", *words, "--plain", "zip", "--out", "release.csv").exit_code == 0


def test_without_roles_the_plan_says_which_columns_look_like_quasi_identifiers() -> None:
    done = run("plan", "patients.csv", "--require", "k=5")
    assert done.exit_code == 1
    assert "name the quasi-identifiers" in done.output
    assert "--quasi A,B" in done.output
    assert "By their names: age, zip, sex." in done.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--require", "k=5"), "--out release.csv"),
        (("--require", "k=5", "--out", "release.txt"), "--out release.csv"),
        (("--require", "k", "--out", "r.csv"), "cannot be read as a model"),
        (("--require", "k=5", "--out", "r.csv", "--suppression", "100%"), "below 1"),
        (("--require", "k=5", "--out", "r.csv", "--hierarchy", "age"), "is no hierarchy of a column"),
        (("--require", "k=5", "--out", "r.csv", "--hierarchy", "cost=flat"), "which is no quasi-identifier"),
        (("--require", "k=5", "--out", "r.csv", "--quasi", "height"), "there is no column height"),
        (("--require", "k=5", "--out", "r.csv", "--quasi", "name"), "has two roles"),
        (("--require", "k=401", "--out", "r.csv"), "Nothing was written"),
        (("--require", "k=5", "--out", "r.csv", "--method", "mondrian", "--gap", "1%"), "mondrian takes no gap"),
        (("--require", "k=5", "--out", "r.csv", "--weight", "age=much"), "a weight is a number"),
        (("--require", "k-map=5", "--out", "r.csv"), "population"),
    ],
)
def test_a_request_that_cannot_be_met_says_why_and_writes_nothing(
    folder: Path, words: tuple[str, ...], sentence: str
) -> None:
    before = sorted(folder.iterdir())
    done = run("run", "patients.csv", *ROLES, *words)
    assert done.exit_code in (1, 2)
    assert sentence in done.output
    assert sorted(folder.iterdir()) == before


def test_a_source_that_is_not_there_is_refused() -> None:
    done = run("plan", "nobody.csv", *ROLES, "--require", "k=5")
    assert done.exit_code == 1
    assert "there is no file nobody.csv" in done.output


def test_a_release_is_not_overwritten_unless_asked() -> None:
    assert release().exit_code == 0
    again = release()
    assert again.exit_code == 2
    assert "is there already" in again.output
    assert release("--force").exit_code == 0


RELEASE = ("run", "patients.csv", *ROLES, "--require", "k=5", "--suppression", "10%", "--force")


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ((*RELEASE, "--out", "patients.csv"), "patients.csv"),
        ((*RELEASE, "--out", "./link.csv"), "patients.csv"),
        ((*RELEASE, "--out", "new.csv", "--report", "patients.csv"), "patients.csv"),
        ((*RELEASE, "--out", "new.csv", "--earlier", "patients.parquet", "--report", "patients.parquet"),
         "patients.parquet"),
        ((*RELEASE, "--out", "new.csv", "--hierarchy", "zip=zip.csv", "--report", "zip.csv"), "zip.csv"),
        (("risk", "release.csv", "--html", "release.csv"), "release.csv"),
        (("risk", "release.csv", "--auxiliary", "patients.csv", "--html", "patients.csv"), "patients.csv"),
        (("risk", "release.csv", "--html", "release.csv.anonymized.json"), "release.csv.anonymized.json"),
        (("rules", "zip.csv", "--support", "10%", "--hide", "a -> b", "--force", "--out", "zip.csv"), "zip.csv"),
    ],
)  # fmt: skip
def test_no_option_overwrites_a_file_that_is_read(folder: Path, words: tuple[str, ...], kept: str) -> None:
    release()
    (folder / "link.csv").symlink_to("patients.csv")
    (folder / "zip.csv").write_text("".join(f"{code:05d};low;*\n" for code in range(2130, 2142)), encoding="utf-8")
    before = (folder / kept).read_bytes()
    done = run(*words)
    assert done.exit_code == 2, done.output
    assert "is read here" in done.output
    assert (folder / kept).read_bytes() == before
    assert not (folder / "new.csv").exists()


@pytest.mark.parametrize("report", ["new.csv", "./new.csv", "new.csv.anonymized.json"])
def test_two_outputs_of_a_command_are_two_files(folder: Path, report: str) -> None:
    done = run(*RELEASE, "--out", "new.csv", "--report", report)
    assert done.exit_code == 2, done.output
    assert "Give each its own name" in done.output
    assert not (folder / "new.csv").exists()


def test_a_release_is_not_added_to_the_folder_that_is_read(folder: Path) -> None:
    (folder / "parts").mkdir()
    (folder / "patients.parquet").rename(folder / "parts" / "1.parquet")
    done = run("run", "parts", *ROLES, "--require", "k=5", "--suppression", "10%", "--out", "parts/2.parquet")
    assert done.exit_code == 2, done.output
    assert sorted(path.name for path in (folder / "parts").iterdir()) == ["1.parquet"]


def test_k_map_is_measured_in_the_population() -> None:
    done = release("--population", "patients.parquet", require="k-map=6", out="mapped.csv")
    assert done.exit_code == 0, done.output
    missing = run("check", "mapped.csv")
    assert missing.exit_code == 1
    assert "needs --population" in missing.output


def test_risks_are_printed_and_written_as_a_page() -> None:
    release()
    done = run("risk", "release.csv", "--auxiliary", "patients.csv", "--html", "risk.html")
    assert done.exit_code == 0, done.output
    assert "prosecutor: highest" in done.output
    assert "linkage: " in done.output
    assert "Who could be found" in Path("risk.html").read_text(encoding="utf-8")
    record = json.loads(run("risk", "release.csv", "--json").output)
    assert record["differentially_private"] is False


def test_a_file_without_facts_needs_roles() -> None:
    done = run("risk", "patients.csv")
    assert done.exit_code == 1
    assert "--quasi age,zip" in done.output
    for text in ("[]", "{", "[" * 100_000, '{"quasi_identifiers": "age"}'):
        Path("patients.csv.anonymized.json").write_text(text, encoding="utf-8")
        assert "is no file of facts" in run("check", "patients.csv").output


def test_a_report_shows_original_rows_only_if_asked() -> None:
    assert release("--report", "plain.html").exit_code == 0
    done = release("--report", "owner.html", "--with-originals", "--force")
    assert "wrote owner.html: for the owner's eyes" in done.output
    plain, owner = (Path(name).read_text(encoding="utf-8") for name in ("plain.html", "owner.html"))
    assert "first rows of the original table" not in plain
    assert "first rows of the original table" in owner
    assert "person 0" not in owner  # identifiers are hidden even there


def test_rules_are_mined_and_hidden() -> None:
    lines = ["beer,crisps,nuts", "beer,crisps", "beer,crisps,milk", "milk,bread", "milk,bread,nuts", "bread"]
    Path("baskets.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = run("rules", "baskets.csv", "--support", "30%", "--confidence", "60%", "--hide", "beer -> crisps",
               "--out", "hidden.csv")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "beer -> crisps  support 0.5000, confidence 1.000" in done.output
    assert "of 6 baskets with 5 items" in done.output
    none = run("rules", "patients.csv", "--support", "60%")
    assert "A table with one item in each row needs --basket and --item; else lower --support." in none.output
    assert "1 of 1 sensitive rules" in done.output
    for out in ("hidden.csv", "hidden.parquet"):
        words = ("--support", "30%", "--confidence", "60%")
        assert run("rules", "baskets.csv", *words, "--hide", "beer -> crisps", "--out", out, "--force").exit_code == 0
        again = run("rules", out, *words)
        assert "bread -> milk" in again.output
        assert "beer -> crisps" not in again.output
        assert "False" not in again.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--hide", "beer"), "is no rule"),
        (("--out", "hidden.csv"), "name one, --hide"),
        (("--support", "all"), "is no share"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused(words: tuple[str, ...], sentence: str) -> None:
    done = run("rules", "patients.csv", "--support", "30%", *words)
    assert done.exit_code in (1, 2)
    assert sentence in done.output


def test_progress_is_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with progress_bar("searching") as tell:
        tell(0.5, "half")
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stderr", terminal)
    with progress_bar("searching") as tell:
        tell(0.5, "loss 0.1")
    assert "loss 0.1" in terminal.getvalue()

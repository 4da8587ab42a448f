"""Every label that `run` writes is one that `check` can check, and every attack that `risk` advises can be run."""

import datetime as dt
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyarrow import csv

from cloister.cli import main

ROLES = ("--quasi", "age,zip", "--sensitive", "disease", "--identifier", "name")
MODELS = (
    "k=3", "k=3, l=2", "k=3, frequency l=1.3", "k=3, entropy l=1.3", "k=3, recursive (3, 2)", "k=3, t=0.5",
    "k=3, t=0.5 (disease, ordered)", "k=3, t=0.5 (disease, hierarchical)", "k=3, t=0.5 (disease, total variation)",
    "k=3, t=0.6 (disease, kl)", "alpha=0.8, k=3", "k=3, beta=2", "k=3, basic beta=3", "k-map=3",
    "k=3, delta-presence=0..1",
)  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    draw, rows = np.random.default_rng(3), 240
    table = {
        "name": [f"person {number}" for number in range(rows)],
        "age": draw.integers(20, 60, rows),
        "zip": [f"336{code}" for code in draw.integers(10, 20, rows)],
        "disease": draw.choice(["flu", "cold", "ulcer", "gastritis"], rows),
        "born": [dt.date(1985, 1, 1) + dt.timedelta(days=int(days)) for days in draw.integers(0, 1800, rows)],
    }
    csv.write_csv(pa.table(table), tmp_path / "patients.csv")
    more = {name: np.concatenate([column, column]) for name, column in table.items()}
    csv.write_csv(pa.table(more), tmp_path / "everybody.csv")
    lines = ["flu;lung", "cold;lung", "ulcer;stomach", "gastritis;stomach"]
    (tmp_path / "diseases.csv").write_text("\n".join(f"{line};*" for line in lines), encoding="utf-8")
    zips = [f"336{code};{'north' if code < 15 else 'south'};*" for code in range(10, 20)]
    (tmp_path / "zips.csv").write_text("\n".join(zips), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["anonymize", *words], catch_exceptions=False)


@pytest.mark.parametrize("method", ["mondrian", "top_down"])
@pytest.mark.parametrize("require", ["k-map=4", "k-map=60, k=3", "delta-presence=0..0.5", "delta-presence=0.1..0.9"])
def test_labels_of_methods_that_make_boxes_are_checked_against_exact_values(require: str, method: str) -> None:
    """Labels of one column overlap, but no person of the population is in two boxes."""
    rows = csv.read_csv("everybody.csv").to_pydict()
    rows["zip"] = [None if place % 19 == 0 else code for place, code in enumerate(rows["zip"])]
    rows["age"] = [None if place % 23 == 0 else age for place, age in enumerate(rows["age"])]
    everybody = pa.table(rows)
    csv.write_csv(everybody, "everybody.csv")
    csv.write_csv(everybody.take(pa.array(range(0, everybody.num_rows, 2))), "patients.csv")
    population = ("--population", "everybody.csv")
    made = run("run", "patients.csv", *ROLES, "--plain", "born", "--require", require, *population, "--method", method,
               "--out", "release.csv")  # fmt: skip
    assert made.exit_code == 0, made.output
    checked = run("check", "release.csv", *population)
    assert checked.exit_code == 0, checked.output
    assert checked.output.count("confirmed: ") == require.count(",") + 1


@pytest.mark.parametrize("out", ["release.csv", "release.parquet"])
@pytest.mark.parametrize("require", MODELS)
def test_every_label_that_run_writes_can_be_checked(require: str, out: str) -> None:
    population = ("--population", "everybody.csv") if "k-map" in require or "delta" in require else ()
    tree = ("--hierarchy", "disease=diseases.csv") if "hierarchical" in require else ()
    roles = (*ROLES, "--plain", "born", "--suppression", "20%")
    made = run("run", "patients.csv", *roles, "--require", require, *tree, *population, "--out", out)
    assert made.exit_code == 0, made.output
    checked = run("check", out, *population)
    assert checked.exit_code == 0, checked.output
    assert checked.output.count("confirmed: ") == len(json.loads(Path(f"{out}.anonymized.json").read_text())["models"])
    if population:
        assert "needs --population" in run_refused("check", out)


def run_refused(*words: str) -> str:
    done = CliRunner().invoke(main, ["anonymize", *words])
    assert done.exit_code != 0
    return done.output + str(done.exception)


def test_the_order_of_text_can_be_given() -> None:
    run("run", "patients.csv", *ROLES, "--plain", "born", "--require", "k=3", "--suppression", "20%", "--out", "r.csv")
    words = ("check", "r.csv", "--require", "t=1 (disease, ordered)")
    assert run(*words, "--order", "disease=cold,flu,gastritis,ulcer").output == run(*words).output
    assert run(*words, "--order", "disease=ulcer,cold,gastritis,flu").output != run(*words).output


@pytest.mark.parametrize("how", ["dates:month", "dates:quarter", "dates:year", "dates:decade", "dates:century"])
def test_every_person_fits_the_release_made_of_the_original_rows(how: str) -> None:
    roles = ("--quasi", "born,zip", "--sensitive", "disease", "--identifier", "name", "--plain", "age")
    made = run("run", "patients.csv", *roles, "--hierarchy", f"born={how}", "--hierarchy", "zip=zips.csv",
               "--require", "k=2", "--out", "r.csv")  # fmt: skip
    assert made.exit_code == 0, made.output
    done = run("risk", "r.csv", "--auxiliary", "patients.csv", "--json")
    linkage = next(attack for attack in json.loads(done.output)["attacks"] if attack["name"] == "linkage")
    assert linkage["present"] == 240
    assert linkage["average"] > 0
    assert linkage["notes"] == []


def test_every_attack_that_is_advised_can_be_run() -> None:
    words = ("--plain", "born", "--require", "k=2, l=2", "--suppression", "20%", "--hierarchy", "zip=zips.csv")
    run("run", "patients.csv", *ROLES, *words, "--out", "first.csv")
    made = run("run", "patients.csv", *ROLES, "--plain", "born", "--require", "k=2", "--method", "mondrian", "--out",
               "second.csv", "--earlier", "first.csv", "--report", "second.html")  # fmt: skip
    assert made.exit_code == 0, made.output
    page = Path("second.html").read_text(encoding="utf-8")
    assert "linkage" in page
    assert "intersection of 2 releases" in page
    done = run("risk", "first.csv", "--auxiliary", "patients.csv", "--earlier", "second.csv",
               "--harmful", "disease=flu", "--group", "disease=diseases.csv", "--sampling-fraction", "0.5",
               "--population", "everybody.csv", "--json")  # fmt: skip
    report = json.loads(done.output)
    names = {attack["name"].partition(" ")[0] for attack in report["attacks"]}
    assert names >= {"linkage", "identification", "intersection", "minimality", "similarity", "skewness", "homogeneity"}
    assert report["skipped"] == {}
    crossed = next(attack for attack in report["attacks"] if attack["name"].startswith("intersection"))
    assert crossed["at_risk"] > 0


def test_a_page_of_risks_says_what_is_confirmed_and_what_is_only_claimed() -> None:
    run("run", "patients.csv", *ROLES, "--plain", "born", "--require", "k=3", "--suppression", "20%", "--out", "r.csv")
    side = Path("r.csv.anonymized.json")
    facts = json.loads(side.read_text())
    side.write_text(json.dumps({**facts, "label": "epsilon=0.1, differentially private"}), encoding="utf-8")
    run("risk", "r.csv", "--html", "risk.html")
    page = Path("risk.html").read_text(encoding="utf-8")
    assert "epsilon=0.1" not in page
    assert '<p class="label">k=3: not differentially private</p>' in page
    assert "Confirmed by the independent verifier" in page
    side.write_text(json.dumps({**facts, "models": [{"model": "KAnonymity", "k": 900}]}), encoding="utf-8")
    run("risk", "r.csv", "--html", "risk.html")
    page = Path("risk.html").read_text(encoding="utf-8")
    assert "Claimed, not verified:</b> k=900" in page
    assert "NOT confirmed" in page

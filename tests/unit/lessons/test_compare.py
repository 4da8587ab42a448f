"""The textbook's exercise: right numbers, and never a claim that it is private."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import csv
from sklearn.metrics import roc_auc_score

import cloister as cl
from cloister.cli import main
from cloister.data.hospital import SCHEMA, hospital
from cloister.lessons.compare.comparison import BOTH, DATA, MODEL, PLAIN
from cloister.lessons.compare.run import _composed, compare
from cloister.lessons.compare.scores import measures, per_group
from cloister.lessons.compare.table import read_lesson
from cloister.privacy.errors import BadBounds, BadInput, BadSchema, BadSource, MissingExtra
from cloister.privacy.noise import SeededSource

FACTS = {"bounds": {"age": (0, 100), "score": (0, 1)}, "categories": {"town": ["a", "b"]}, "classes": ["no", "yes"]}


def table(n=1_200, seed=0):
    random = np.random.default_rng(seed)
    age, town, score = random.uniform(0, 100, n), random.choice(["a", "b"], n), random.random(n)
    likely = 1 / (1 + np.exp(-(0.1 * (age - 50) + 2 * (town == "b") - 1)))
    return {"age": age, "town": town, "score": score, "ill": np.where(random.random(n) < likely, "yes", "no")}


@pytest.fixture(scope="module")
def found():
    return compare(
        table(), "ill", **FACTS, group="town", epsilons=["0.1", "20"], repetitions=30, fits=2, seed=1,
        estimators=["LogisticRegression", "LinearSVC"],
    )  # fmt: skip


# What is compared.


def test_every_model_meets_every_place_for_noise_at_every_epsilon(found):
    seen = {(one["estimator"], one["setting"], one["epsilon"], one["repetition"]) for one in found.results}
    assert len(seen) == len(found.results) == 2 * (1 + 3 * 2 * 2)
    assert {setting for _, setting, _, _ in seen} == {PLAIN, MODEL, DATA, BOTH}
    assert found.estimators == ["LogisticRegression", "LinearSVC"]


def test_noise_in_the_model_costs_less_than_noise_in_the_data(found):
    plain = found.mean("accuracy", "LogisticRegression", PLAIN)[0]
    private = found.mean("accuracy", "LogisticRegression", MODEL, "20")[0]
    noisy = found.mean("accuracy", "LogisticRegression", DATA, "0.1")[0]
    assert plain > 0.8
    assert private > plain - 0.03
    assert noisy < plain - 0.1
    assert found.majority == pytest.approx(0.5, abs=0.15)


def test_means_gather_around_the_true_value_as_epsilon_grows(found):
    truth = float(table()["age"].mean())
    assert found.true_value == pytest.approx(truth)
    errors = {
        amount: np.std([value - truth for one, value in found.means if one == amount]) for amount in ("0.1", "20")
    }
    assert len(found.means) == 60
    assert errors["20"] < errors["0.1"] / 20
    # A sum of scale 50/(0.05) over 1,200 rows, and a count: about 1.2 years.
    assert 0.5 < errors["0.1"] < 2.5


def test_the_same_seed_gives_the_same_report():
    told = {"epsilons": ["1"], "repetitions": 2, "fits": 1, "estimators": ["GaussianNB"]}
    first, second, third = (compare(table(300), "ill", **FACTS, **told, seed=seed) for seed in (3, 3, 4))
    assert first.markdown() == second.markdown() != third.markdown()


def test_trees_bayes_and_boosting_take_part():
    names = ["RandomForestClassifier", "DecisionTreeClassifier", "GradientBoostingClassifier", "MixedNB"]
    told = {"epsilons": ["5"], "repetitions": 1, "fits": 1, "estimators": names}
    found = compare(table(600), "ill", **FACTS, **told)
    for name in names:
        assert found.mean("accuracy", name, MODEL, "5")[0] > 0.6
    assert "membership" in found.markdown()


# Honesty.


def test_the_report_says_first_that_it_is_not_private(found):
    text = found.markdown()
    assert text.splitlines()[2].startswith("**A lesson, not a release: nothing here is private.**")
    assert f"True value {found.true_value:.4g} (not private)" in text
    assert f"Always the most common class: {100 * found.majority:.1f} %" in text
    assert str(found.model_cost) in text
    assert str(found.table_cost) in text


def test_the_cost_is_composed_of_everything_that_was_drawn(found):
    # 30 means and 2 fits of 2 models at 0.1 and at 20; 2 tables at each.
    simple = 30 * (0.1 + 20) + 4 * (0.1 + 20)
    assert float(found.model_cost.amount) <= simple
    assert found.table_cost == cl.epsilon("40.2", relation="replace-one")
    assert found.model_cost.relation == "add/remove"


def test_composition_takes_the_smaller_of_both_ways():
    few, many = [cl.epsilon(1)] * 2, [cl.epsilon("0.1")] * 1_000
    assert _composed(few, "1e-6") == cl.epsilon(2)
    assert float(_composed(many, "1e-6").amount) < 30


# The table.


@pytest.mark.parametrize(
    "frame", [dict, pd.DataFrame, pl.DataFrame, pa.table], ids=["dict", "pandas", "polars", "arrow"]
)
def test_tables_of_every_kind_are_read_alike(frame):
    lesson = read_lesson(frame(table(50)), "ill", **FACTS)
    same = read_lesson(table(50), "ill", **FACTS)
    np.testing.assert_allclose(lesson.matrix(), same.matrix())
    np.testing.assert_array_equal(lesson.labels, same.labels)
    assert lesson.matrix().shape == (50, 4)
    assert lesson.indicators() == [False, True, True, False]


def test_a_schema_says_what_is_public():
    lesson = read_lesson(hospital(100), "readmitted", schema=SCHEMA, group="ward")
    assert lesson.classes == (0, 1)
    assert set(lesson.columns) == {"ward", "age", "stay_days", "cost"}
    assert lesson.groups().max() == 5


def test_missing_and_unlisted_values_need_no_look_at_the_data():
    rows = {"age": [None, 200.0, -3.0], "town": ["a", None, "z"], "ill": ["yes", "no", "maybe"]}
    facts = {"bounds": {"age": (0, 100)}, "categories": {"town": ["a", "b"]}, "classes": ["no", "yes"]}
    lesson = read_lesson({name: np.array(values, dtype=object) for name, values in rows.items()}, "ill", **facts)
    assert lesson.matrix().tolist() == [[0.5, 1.0, 0.0], [1.0, 0.0, 0.0]]
    assert lesson.labels.tolist() == [1, 0]
    found = compare(
        {name: np.array(values * 20, dtype=object) for name, values in rows.items()},
        "ill", **facts, epsilons=["1"], repetitions=1, fits=1, estimators=["GaussianNB"],
    )  # fmt: skip
    assert found.true_value == 75


def test_noise_reaches_every_cell_and_stays_within_public_facts():
    lesson = read_lesson(table(2_000), "ill", **FACTS)
    noisy = lesson.noisy("0.4", SeededSource(0))
    assert not (noisy.columns["age"] == lesson.columns["age"]).any()
    assert noisy.columns["age"].min() == 0
    assert noisy.columns["age"].max() == 100
    assert set(noisy.columns["town"]) == {"a", "b"}
    # Four cells share 0.4: a word of two is kept with probability e^0.1 / (1 + e^0.1).
    kept = np.exp(0.1) / (1 + np.exp(0.1))
    for before, after in ((lesson.columns["town"], noisy.columns["town"]), (lesson.labels, noisy.labels)):
        assert np.mean(before == after) == pytest.approx(kept, abs=0.05)


@pytest.mark.parametrize(
    ("target", "change", "error"),
    [
        ("ill", {"classes": None}, BadSchema),
        ("nothing", {}, BadInput),
        ("ill", {"bounds": None, "categories": None}, BadSchema),
        ("ill", {"bounds": {"age": (1, 0)}}, BadBounds),
        ("ill", {"group": "age"}, BadSchema),
        ("ill", {"statistic": "town"}, BadInput),
        ("ill", {"estimators": ["KMeans"]}, BadInput),
        ("ill", {"epsilons": []}, BadInput),
        ("ill", {"fits": 0}, BadInput),
        ("ill", {"classes": ["x", "y"]}, BadInput),
    ],
)
def test_what_must_be_public_must_be_said(target, change, error):
    with pytest.raises(error):
        compare(table(20), target, **{**FACTS, "estimators": ["GaussianNB"], "fits": 1, **change})


# The measures.


def test_measures_are_those_of_scikit_learn():
    random = np.random.default_rng(0)
    share, labels = random.random(500), random.integers(0, 2, 500)
    told = np.column_stack([1 - share, share])
    found = measures(told, labels, None, told, labels)
    assert found["auc"] == pytest.approx(roc_auc_score(labels, share))
    assert found["accuracy"] == pytest.approx(np.mean((share > 0.5) == labels))
    assert found["membership"] == pytest.approx(0.5)
    assert found["gap"] is None
    assert found["calibration"] > 0.1
    sure = np.column_stack([1.0 - labels, labels])
    assert measures(sure, labels, None, told, labels)["calibration"] == 0


def test_gaps_are_between_groups():
    told = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    labels, groups = np.array([1, 0, 0, 1, 1]), np.array([0, 0, 1, 1, -1])
    assert measures(told, labels, groups, told, labels)["gap"] == 0.5
    assert [one["accuracy"] for one in per_group(told, labels, groups)] == [0.5, 1.0]


# Files and the command.


def test_the_report_is_written_with_charts_that_need_no_network(found, tmp_path):
    files = {path.name: path for path in found.write(tmp_path / "report")}
    assert set(files) >= {"report.md", "charts.html", "accuracy.png", "accuracy.svg", "auc.svg", "released-means.png"}
    assert files["accuracy.png"].read_bytes().startswith(b"\x89PNG")
    assert files["released-means.svg"].read_text().startswith("<svg")
    assert "![accuracy](accuracy.png)" in files["report.md"].read_text()
    assert 'src="http' not in files["charts.html"].read_text()
    assert "not private" in files["charts.html"].read_text()


def test_without_altair_the_pip_command_is_said(found, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "altair", None)
    with pytest.raises(MissingExtra, match="pip install"):
        found.write(tmp_path)


def test_the_command_compares_a_file(tmp_path):
    csv.write_csv(pa.table(table(200)), tmp_path / "people.csv")
    asked = ["compare", str(tmp_path / "people.csv"), "--target", "ill", "--classes", "no,yes", "--bounds", "age=0:100"]
    asked += ["--categories", "town=a,b", "--epsilons", "1", "--fits", "1", "--repetitions", "2", "--group", "town"]
    done = CliRunner().invoke(main, [*asked, "--estimators", "GaussianNB"])
    assert done.exit_code == 0, done.output
    assert "nothing here is private" in done.output
    assert "| GaussianNB | private model, original data |" in done.output


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["people.csv"], "say which column to predict"),
        (["people.csv", "--target", "ill", "--bounds", "age=0-100"], "NAME=LOW:HIGH"),
        (["people.csv", "--target", "ill", "--categories", "town"], "NAME=ONE,TWO"),
        (["people.csv", "--target", "ill"], "CLO-111"),
        (["nowhere.csv", "--target", "ill"], "CLO-112"),
    ],
)
def test_the_command_says_what_is_missing(asked, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    csv.write_csv(pa.table(table(20)), "people.csv")
    done = CliRunner().invoke(main, ["compare", *asked])
    assert done.exit_code != 0
    assert said in done.output


def test_the_demo_needs_no_file():
    done = CliRunner().invoke(
        main, ["compare", "demo", "--epsilons", "1", "--fits", "1", "--repetitions", "1", "--estimators", "GaussianNB"]
    )
    assert done.exit_code == 0, done.output
    assert "predicting readmitted" in done.output


def test_a_file_that_is_no_table_is_refused(tmp_path):
    from cloister.lessons.compare.table import read_file

    (tmp_path / "t.parquet").write_text("hello")
    with pytest.raises(BadSource):
        read_file(str(tmp_path / "t.parquet"))

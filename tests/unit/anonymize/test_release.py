"""Releases by recoding and Mondrian: verified by the independent checker, honest, and written only if confirmed."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cloister as cl
from cloister import anonymize as an
from cloister.data.schema import Schema
from cloister.privacy.errors import BadInput, BadSource, NotPrivate
from tests.unit.anonymize.tables import QUASI, people

KEPT = {"quasi": QUASI, "sensitive": ["disease"], "identifiers": ["born"], "plain": ["income"]}
EVERY = [
    an.KAnonymity(4),
    an.DistinctDiversity(2, "disease"),
    an.FrequencyDiversity(1.2, "disease"),
    an.EntropyDiversity(1.5, "disease"),
    an.RecursiveDiversity(8, 2, "disease"),
    an.TCloseness(0.6, "disease"),
    an.TCloseness(0.6, "disease", "ordered"),
    an.TCloseness(2.0, "disease", "kl"),
    an.AlphaK(0.9, 3, "disease"),
    an.BetaLikeness(9, "disease", enhanced=False),
]
METHODS = {"recode": lambda rows, **more: an.recode(rows, suppression=0.1, **more), "mondrian": an.mondrian}


@pytest.mark.parametrize("method", METHODS)
def test_every_model_is_confirmed_by_the_verifier(method):
    for seed in range(4):
        release = METHODS[method](people(400, seed, missing=0.03), require=EVERY, **KEPT)
        release.verify()
        assert release.checked.k >= 4
        assert release.rows.column_names == ["age", "zip", "sex", "income", "disease"]


@pytest.mark.parametrize("method", METHODS)
@settings(deadline=None, max_examples=40)
@given(
    rows=st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(-3, 60)),
            st.sampled_from(["a", "b", None, "A", ""]),
            st.one_of(st.none(), st.floats(-5, 5)),
            st.sampled_from(["x", "y", None]),
        ),
        min_size=1,
        max_size=60,
    ),
    k=st.integers(1, 12),
    l=st.integers(1, 2),
)
def test_whatever_is_released_is_confirmed_and_whatever_is_not_is_refused_in_a_sentence(method, rows, k, l):  # noqa: E741
    names = ("n", "word", "real", "secret")
    table = {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    require = [an.KAnonymity(k), an.DistinctDiversity(l, "secret")]
    words = [value for value in table["secret"] if value is not None]
    if len(rows) < k or len(set(words)) < l:
        with pytest.raises(BadInput, match="Nothing was written"):
            METHODS[method](table, quasi=["n", "word", "real"], require=require)
        return
    release = METHODS[method](table, quasi=["n", "word", "real"], require=require)
    release.verify()
    assert release.suppressed <= 0.1 * len(rows)


def test_more_rows_than_there_are_is_refused():
    for method in METHODS.values():
        with pytest.raises(BadInput, match=r"there are 10 rows.*Nothing was written"):
            method(people(10), require=an.KAnonymity(11), **KEPT)


def test_labels_are_true_of_the_original_values():
    table = people(500, 7)
    release = an.mondrian(table, require=an.KAnonymity(5), **KEPT)
    for age, label in zip(table["age"], release.rows.column("age").to_pylist(), strict=True):
        low, _, high = str(label).partition("-")
        assert int(low) <= age <= int(high or low)
    for code, label in zip(table["zip"], release.rows.column("zip").to_pylist(), strict=True):
        assert label == "*" or code in label.strip("{}").split(", ")


def test_strict_classes_do_not_overlap_and_relaxed_ones_may():
    table = {"age": [30] * 11 + [31], "disease": ["flu"] * 12}
    strict = an.mondrian(table, quasi=["age"], require=an.KAnonymity(5))
    relaxed = an.mondrian(table, quasi=["age"], require=an.KAnonymity(5), relaxed=True)
    assert set(strict.rows.column("age").to_pylist()) == {"30-31"}
    assert set(relaxed.rows.column("age").to_pylist()) == {"30", "30-31"}


def test_no_class_of_mondrian_can_be_split_further():
    table = people(300, 9)
    release = an.mondrian(table, quasi=["age"], identifiers=["born"], plain=["zip", "sex"], require=an.KAnonymity(5))
    sizes = pd.Series(release.rows.column("age").to_pylist()).value_counts()
    assert sizes.min() >= 5
    for label in sizes[sizes >= 10].index:
        low, _, high = str(label).partition("-")
        ages = np.array([age for age in table["age"] if int(low) <= age <= int(high or low)])
        cuts = [cut for cut in np.unique(ages)[1:] if min((ages < cut).sum(), (ages >= cut).sum()) >= 5]
        median = np.sort(ages)[len(ages) // 2]
        assert not any(cut in (median, median + 1) for cut in cuts)


def test_global_recoding_uses_one_level_for_a_column():
    release = an.recode(
        people(400, 3), require=an.KAnonymity(5), hierarchies={"zip": an.Hierarchy.masking(5)}, suppression=0.05, **KEPT
    )
    stars = {label.count("*") for label in release.rows.column("zip").to_pylist()}
    assert len(stars) == 1
    assert release.levels["zip"] in (0, 1, 2, 3, 4, 5)
    assert "proven optimum" in release.method


def test_a_column_that_is_not_generalised_keeps_its_type():
    release = an.recode({"age": [30, 30, 31, 31], "s": ["a", "b", "a", "b"]}, quasi=["age"], require=an.KAnonymity(2))
    assert release.rows.schema.field("age").type == pa.int64()


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "dict"])
def test_rows_may_come_in_any_frame(kind):
    table = people(120, 1)
    rows = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table, "dict": dict}[kind](table)
    plain = an.mondrian(table, require=an.KAnonymity(5), **KEPT)
    assert an.mondrian(rows, require=an.KAnonymity(5), **KEPT).rows.to_pydict() == plain.rows.to_pydict()


def test_the_population_makes_k_map_and_delta_presence_possible():
    whole = people(800, 5)
    sample = {name: column[:150] for name, column in whole.items()}
    population = {name: whole[name] for name in QUASI}
    release = an.recode(
        sample, require=[an.KMap(8), an.DeltaPresence(0, 0.6)], population=population, suppression=0.2, **KEPT
    )
    release.verify()
    assert release.checked.presence.k_map >= 8
    with pytest.raises(BadInput, match="population"):
        an.recode(sample, require=an.KMap(5), **KEPT)


def test_a_telling_name_without_a_role_is_refused_until_it_has_one():
    table = {**people(50), "name": ["x"] * 50}
    with pytest.raises(BadInput, match="name has no role"):
        an.mondrian(table, require=an.KAnonymity(5), **KEPT)
    roles = {**KEPT, "identifiers": ["born", "name"]}
    assert "name" not in an.mondrian(table, require=an.KAnonymity(5), **roles).rows.column_names


@pytest.mark.parametrize(
    ("roles", "word"),
    [
        ({"quasi": ["height"]}, "no column height"),
        ({"quasi": ["age"], "sensitive": ["age"]}, "two roles"),
        ({"quasi": []}, "name the quasi-identifiers"),
        ({"quasi": ["age"], "identifiers": ["zip", "sex"], "plain": []}, "born has no role"),
    ],
)
def test_roles_that_do_not_fit_are_refused(roles, word):
    with pytest.raises(BadInput, match=word):
        an.mondrian(people(40), require=an.KAnonymity(2), **roles)


def test_roles_and_bounds_come_from_the_schema():
    columns = {
        "age": {"type": "integer", "bounds": [0, 99], "role": "quasi-identifier"},
        "zip": {"type": "text", "role": "quasi-identifier"},
        "sex": {"type": "text", "categories": ["f", "m"], "role": "plain"},
        "born": {"type": "date", "role": "identifier"},
        "disease": {"type": "text", "role": "sensitive"},
    }
    schema = Schema.load({"unit": "row", "tables": {"people": {"columns": columns}}}).tables["people"]
    release = an.recode(people(200), require=an.KAnonymity(5), schema=schema)
    assert release.roles.quasi == ("age", "zip")
    assert release.roles.identifiers == ("born",)
    assert release.roles.sensitive == ("disease",)


def test_a_file_is_verified_sorted_and_has_its_facts_beside_it(tmp_path):
    release = an.mondrian(people(200, 2), require=[an.KAnonymity(5), an.DistinctDiversity(2, "disease")], **KEPT)
    release.to_csv(tmp_path / "people.csv")
    written = pyarrow.csv.read_csv(tmp_path / "people.csv")
    assert written.num_rows == release.rows.num_rows
    ages = [str(age) for age in written.column("age").to_pylist()]
    assert ages == sorted(ages)
    facts = json.loads((tmp_path / "people.csv.anonymized.json").read_text())
    assert facts["label"] == "k=5, l=2 (disease): not differentially private"
    assert facts["differentially_private"] is False
    release.to_parquet(tmp_path / "people.parquet")
    assert (tmp_path / "people.parquet.anonymized.json").exists()


def test_a_release_that_the_verifier_does_not_confirm_is_not_written(tmp_path):
    release = an.mondrian(people(100), require=an.KAnonymity(5), **KEPT)
    forged = replace(release, rows=release.rows.slice(0, 7))
    with pytest.raises(NotPrivate, match="not confirmed by the verifier"):
        forged.to_csv(tmp_path / "people.csv")
    assert not list(tmp_path.iterdir())


def test_a_release_has_no_loss_that_could_be_taken_for_epsilon():
    release = an.mondrian(people(100), require=an.KAnonymity(5), **KEPT)
    assert not any(hasattr(release, name) for name in ("loss", "epsilon", "receipt", "private"))
    assert "not differentially private" in str(release)


def test_the_penalty_of_mondrian_is_below_that_of_recoding():
    table = people(2000, 11)
    local = an.mondrian(table, require=an.KAnonymity(5), **KEPT).utility.certainty_penalty
    whole = an.recode(table, require=an.KAnonymity(5), suppression=0.05, **KEPT).utility.certainty_penalty
    assert 0 < local < whole < 1


@pytest.mark.parametrize(
    "ask",
    [
        lambda data: an.check(data, quasi=["age"]),
        lambda data: an.risk(data, quasi=["age"]),
        lambda data: an.mondrian(data, require=an.KAnonymity(5), quasi=["age"]),
        lambda data: an.Anonymizer(quasi=["age"]).fit(data),
        an.Protect,
    ],
)
def test_a_dataset_that_answers_with_noise_is_refused_in_a_sentence(tmp_path, ask):
    """Anonymity models need the rows as they are; a dataset gives them to nobody."""
    schema = {"unit": "row", "tables": {"people": {"columns": {"age": {"type": "integer", "bounds": [18, 90]}}}}}
    with (
        cl.open(pa.table({"age": people(50)["age"]}), schema=schema, budget=cl.rho(1), ledger=tmp_path) as data,
        pytest.raises(BadSource, match="Give the table or the file that it was opened from"),
    ):
        ask(data)


def test_an_anonymised_synthetic_table_has_cost_what_the_synthetic_one_cost(tmp_path):
    """Anonymising is work on what was released: it charges nothing, and turns into no loss."""
    schema = Schema.load(
        {"unit": "row", "tables": {"people": {"columns": {
            "age": {"type": "integer", "bounds": [18, 90], "nullable": False},
            "disease": {"type": "text", "categories": ["asthma", "cancer", "flu", "ulcer"], "nullable": False},
        }}}}
    )  # fmt: skip
    rows = {name: people(400)[name] for name in ("age", "disease")}
    with cl.open(pa.table(rows), schema=schema, budget=cl.rho(1), ledger=tmp_path) as data:
        made = cl.synth.mst(data, spend=cl.rho("0.02"), rows=500)
        assert data.account.spent == cl.rho("0.02")
        release = an.mondrian(made, require=an.KAnonymity(5), quasi=["age"], sensitive=["disease"])
        release.verify()
        assert data.account.spent == cl.rho("0.02")
    assert release.label == "k=5: not differentially private"
    assert not hasattr(release, "spent")

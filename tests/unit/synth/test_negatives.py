"""Tables that protect nobody are made as their authors say, and labelled; deniability and linkage, by hand."""

import math
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pytest

from cloister import synth
from cloister.data.hospital import SCHEMA, hospital
from cloister.privacy.errors import BadInput
from cloister.privacy.noise import SeededSource
from cloister.synth.scoring import negatives
from cloister.synth.scoring.risk.deniability import deniable, loss_of_a_row, seeded_rows

VISITS = {"unit": "row", "tables": {"visits": {"columns": SCHEMA["tables"]["visits"]["columns"]}}}


@pytest.fixture(scope="module")
def real():
    made = hospital(300, "real")
    return pa.table({name: made[name] for name in made if name != "patient"})


def rows_of(table):
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("make", [negatives.copying, negatives.bootstrap, lambda t: negatives.smote(t, VISITS)])
def test_each_is_labelled_not_private_and_states_no_loss(real, make):
    made = make(real)
    assert made.private is False
    assert made.loss is None
    assert str(made).startswith("NOT PRIVATE")
    assert made.to_arrow().column_names == real.column_names
    assert len(made) == len(real)


def test_copying_gives_the_same_rows_in_another_order(real):
    made = negatives.copying(real)
    assert sorted(rows_of(made.table)) == sorted(rows_of(real))
    assert rows_of(made.table) != rows_of(real)
    some = negatives.copying(real, rows=50)
    assert len(set(rows_of(some.table)) & set(rows_of(real))) == len(set(rows_of(some.table)))
    with pytest.raises(BadInput, match="rows to copy"):
        negatives.copying(real, rows=len(real) + 1)


def test_a_bootstrap_holds_about_63_percent_of_all_rows(real):
    unique = pa.table({"row": np.arange(5000)})
    made = negatives.bootstrap(unique)
    assert len(set(made.table["row"].to_pylist())) / 5000 == pytest.approx(1 - math.exp(-1), abs=0.02)
    assert len(negatives.bootstrap(real, rows=7)) == 7


def test_smote_lies_between_two_rows_by_hand():
    columns = {
        "x": {"type": "real", "bounds": [0, 10]},
        "n": {"type": "integer", "bounds": [0, 100]},
        "day": {"type": "date", "bounds": ["2025-01-01", "2025-12-31"]},
        "at": {"type": "timestamp", "bounds": [datetime(2025, 1, 1), datetime(2025, 12, 31)]},
        "kind": {"type": "text", "categories": ["a", "b"]},
    }
    table = pa.table(
        {
            "x": [1.0, 3.0, 9.0, 9.5],
            "n": [10, 20, 90, 95],
            "day": [date(2025, 1, 1), date(2025, 1, 3), date(2025, 12, 1), date(2025, 12, 3)],
            "at": [datetime(2025, 1, 1), datetime(2025, 1, 3), datetime(2025, 12, 1), datetime(2025, 12, 3)],
            "kind": ["a", "a", "b", "b"],
        }
    )
    schema = {"unit": "row", "tables": {"t": {"columns": columns}}}
    made = negatives.smote(table, schema, 200, neighbours=1).table.to_pylist()
    for row in made:
        low = row["kind"] == "a"
        assert (1 <= row["x"] <= 3) if low else (9 <= row["x"] <= 9.5)
        assert (10 <= row["n"] <= 20) if low else (90 <= row["n"] <= 95)
        assert (row["day"].month == 1) if low else (row["day"].month == 12)
        assert (row["at"].month == 1) if low else (row["at"].month == 12)
        # All numbers of a row are equally far along the way.
        way = (row["x"] - (1 if low else 9)) / (2 if low else 0.5)
        assert row["n"] == pytest.approx((10 + 10 * way) if low else (90 + 5 * way), abs=0.51)
    assert len({row["x"] for row in made}) > 100


def test_smote_keeps_what_is_missing_with_its_row():
    schema = {"unit": "row", "tables": {"t": {"columns": {"x": {"type": "real", "bounds": [0, 1]}}}}}
    made = negatives.smote(pa.table({"x": [None, 0.2, 0.4]}), schema, 90, neighbours=2).table["x"].to_pylist()
    assert any(one is None for one in made)
    assert all(one is None or 0.2 <= one <= 0.4 for one in made)


@pytest.mark.parametrize(
    "call", [lambda t: negatives.bootstrap(t, rows=0), lambda t: negatives.smote(t, VISITS, neighbours=0)]
)
def test_wrong_numbers_are_refused(real, call):
    with pytest.raises(BadInput):
        call(real)


def test_a_row_is_deniable_if_enough_could_have_given_rise_to_it():
    # gamma 2: bands (1/2, 1], (1/4, 1/2], (1/8, 1/4], …
    chances = [0.5, 0.3, 0.26, 0.25, 0.9, 0.0]
    assert deniable(chances, 0, k=3, gamma=2.0).alike == 3
    assert deniable(chances, 0, k=3, gamma=2.0).passed
    assert not deniable(chances, 0, k=4, gamma=2.0).passed
    assert deniable(chances, 4, k=2, gamma=2.0).alike == 1
    assert deniable([1.0, 0.51], 0, k=2, gamma=2.0).passed


def test_a_noisy_threshold_sometimes_passes_what_is_one_short():
    source = SeededSource("deniability")
    found = [deniable([0.5] * 4, 0, k=5, gamma=2.0, epsilon0=1, source=source).passed for _ in range(2000)]
    # Discrete Laplace of scale 1: Pr[noise >= 1] = q/(1 + q) with q = 1/e.
    assert np.mean(found) == pytest.approx(math.exp(-1) / (1 + math.exp(-1)), abs=0.04)


def test_the_price_of_one_row_is_that_of_the_paper():
    # k 50, gamma 4, epsilon0 1, delta 1e-9: t = 50 - 20.7 rounded down = 29.
    assert loss_of_a_row(50, 4.0, 1, 1e-9) == pytest.approx(1 + math.log(1 + 4 / 29))
    assert loss_of_a_row(5, 4.0, 1, 1e-9) == math.inf


def test_seeds_with_many_look_alikes_pass_and_others_do_not(real):
    few = real.select(["ward", "readmitted"])
    schema = {
        "unit": "row",
        "tables": {"t": {"columns": {c: VISITS["tables"]["visits"]["columns"][c] for c in few.column_names}}},
    }
    made = seeded_rows(few, schema, 20, k=20)
    assert len(made) == 20
    assert made.private is False
    assert "promises nothing" in str(made)
    unique = {"unit": "row", "tables": {"t": {"columns": {"n": {"type": "integer", "bounds": [0, 9999]}}}}}
    made = seeded_rows(pa.table({"n": [1, 5000, 9000]}), unique, 5, k=3, keep=0.9)
    # Only rows that no seed has kept pass: those that are as likely from each of the three. Their bins begin at:
    assert not set(made.table["n"].to_pylist()) & {0, 5000, 8750}


@pytest.mark.parametrize("wrong", [{"k": 1}, {"gamma": 1.0}, {"seed": 9}])
def test_a_wrong_test_is_refused(wrong):
    asked = {"seed": 0, "k": 2, "gamma": 2.0} | wrong
    with pytest.raises(BadInput):
        deniable([0.5, 0.5], **asked)


RELEASE = {
    "zip": ["02138", "02138", "02139", "02139", None],
    "birth": [1945, 1950, 1960, 1960, 1970],
    "sex": ["m", "f", "f", "f", "m"],
    "diagnosis": ["flu", "asthma", "flu", "cancer", "flu"],
}
VOTERS = {
    "name": ["Weld", "Jones", "Smith", "Brown", "Nobody"],
    "zip": ["02138", "02139", "02138", "02138", None],
    "birth": [1945, 1960, 1950, 1950, 1970],
    "sex": ["m", "f", "f", "f", "m"],
    "diagnosis": ["flu", "cancer", "asthma", "flu", "flu"],
}


def test_linkage_names_those_who_are_alone_on_both_sides():
    found = synth.link(RELEASE, VOTERS, ["zip", "birth", "sex"], name="name", learns="diagnosis")
    # Jones has two rows; Smith and Brown share one; Nobody has no zip.
    assert found.matches == (("Weld", "flu"),)
    assert (found.people, found.found, found.unique) == (5, 4, 1)
    assert (found.right, found.guessed) == (1, 1)
    assert "1 of 5 people" in str(found)
    assert "Weld" not in str(found.to_json())
    assert found.share.low < 0.2 < found.share.high
    finding = found.finding("discharges")
    assert (finding.target, finding.attempts) == ("discharges", 5)
    assert finding.figures["unique matches that tell the truth"] == 1


def test_fewer_columns_link_fewer_people():
    assert synth.link(RELEASE, VOTERS, ["sex"]).unique == 0
    assert synth.link(RELEASE, VOTERS, ["birth"]).unique == 2  # Weld, Nobody


def test_a_copy_is_linked_and_independent_columns_tell_no_truth():
    random = np.random.default_rng(0)
    n = 2000
    people = pa.table(
        {"zip": random.integers(200, size=n), "age": random.integers(80, size=n), "ill": random.integers(5, size=n)}
    )
    copied = synth.link(negatives.copying(people), people, ["zip", "age"], learns="ill")
    assert copied.unique > 0.7 * n
    assert copied.right == copied.unique
    apart = pa.table({c: random.permutation(people[c].to_numpy()) for c in people.column_names})
    fresh = synth.link(apart, people, ["zip", "age"], learns="ill")
    assert fresh.unique > 0
    assert fresh.right < 0.4 * fresh.unique  # one in five by chance


def test_linkage_refuses_columns_that_are_not_there():
    for on, more in (([], {}), (["phone"], {}), (["zip"], {"learns": "salary"}), (["zip"], {"name": "alias"})):
        with pytest.raises(BadInput, match="columns"):
            synth.link(RELEASE, VOTERS, on, **more)

"""Laws that answers obey on any table: one patient moves only so much, and what is summed is what the rows say."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloister.data.statistics import WEIGHT
from cloister.privacy.loss import epsilon
from cloister.privacy.noise import SeededSource
from cloister.query.run import _look

from ..statistical.query_shapes import (
    BY_ROW,
    LOSSES,
    MAX_ROWS,
    MODES,
    OTHERS,
    SHAPES,
    Pair,
    breaches,
    overcharge,
    pair,
)

ALL = {**SHAPES, **MODES}

visits = st.fixed_dictionaries({
    "ward": st.sampled_from(["a", "b", "ç", "elsewhere", None]),
    "age": st.one_of(st.none(), st.integers(-3, 15), st.floats()),
    "cost": st.one_of(st.none(), st.floats(-6, 10), st.floats()),
    "note": st.sampled_from(["x", "y", "z", "", None]),
})  # fmt: skip
few = settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def of(patient: int, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"patient": patient, **row} for row in rows]


@few
@given(
    patient=st.lists(visits, min_size=1, max_size=9),
    first=st.lists(visits, max_size=5),
    second=st.lists(visits, max_size=2),
    shapes=st.lists(st.sampled_from(sorted(ALL)), min_size=3, max_size=3, unique=True),
    law=st.sampled_from(sorted(LOSSES)),
)
def test_no_patient_moves_any_statistic_of_any_table_too_far(patient, first, second, shapes, law) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = pair(Path(folder), of(9, patient), [*of(1, first), *of(2, second)])
        for shape in shapes:
            plan = made.plan(ALL[shape], LOSSES[law])
            assert breaches(plan, *made.look(plan)) == [], shape
            assert overcharge(plan) <= 0
        made.close()


@settings(few, max_examples=10)
@given(
    row=visits,
    others=st.lists(visits, max_size=5),
    law=st.sampled_from(sorted(LOSSES)),
    sql=st.sampled_from([
        "SELECT ward, COUNT(*), AVG(cost) FROM visits GROUP BY ward",
        "SELECT MEDIAN(age), COUNT(DISTINCT age) FROM visits",
        "SELECT SUM(x) FROM (SELECT age AS x FROM visits UNION ALL SELECT age * 2 AS x FROM visits WHERE age > 3) AS t",
        "SELECT SUM(beds * age) FROM visits JOIN wards USING (ward)",
        "SELECT MODE(ward) FROM visits",
    ]),
)  # fmt: skip
def test_no_row_moves_any_statistic_too_far_where_the_unit_is_the_row(row, others, law, sql) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = pair(Path(folder), [row], others, BY_ROW)
        plan = made.plan(sql, LOSSES[law])
        assert breaches(plan, *made.look(plan)) == []
        made.close()


def weights(rows: list[dict[str, Any]]) -> list[float]:
    """What each row counts: the cap by weight, in parts of a row, rounded down."""
    owned = [sum(other["patient"] == row["patient"] for other in rows) for row in rows]
    return [min(WEIGHT, MAX_ROWS * WEIGHT // n) / WEIGHT for n in owned]


@few
@given(rows=st.lists(st.tuples(st.integers(1, 3), visits), max_size=12))
def test_counts_and_sums_are_those_of_the_clipped_and_capped_rows(rows) -> None:
    given_rows = [{"patient": patient, **row} for patient, row in rows]
    # The schema says that age is known: a row in which it does not read as a whole number is left out.
    kept = [
        row for row in given_rows if row["age"] is not None and (float(row["age"]).is_integer() or np.isinf(row["age"]))
    ]
    ages = [min(max(row["age"], 0), 12) for row in kept]
    wards = [row["ward"] if row["ward"] in ("a", "b", "ç") else None for row in kept]
    share = weights(kept)
    with tempfile.TemporaryDirectory() as folder:
        made = pair(Path(folder), given_rows, [])
        plan = made.plan("SELECT ward, COUNT(*), SUM(age) FROM visits GROUP BY ward", epsilon(1))
        counts, sums = (
            one * measurement.unit
            for one, measurement in zip(_look(plan, made.with_patient.tables.engine), plan.measurements, strict=True)
        )
        made.close()
    for i, ward in enumerate(("a", "b", "ç", None)):
        mine = [(w, age) for w, age, at in zip(share, ages, wards, strict=True) if at == ward]
        assert counts[i] == pytest.approx(sum(w for w, _ in mine))
        assert sums[i] == pytest.approx(sum(w * age for w, age in mine))


@pytest.fixture
def hospital(tmp_path) -> Pair:
    made = pair(tmp_path, [], OTHERS)
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("expression", "truth"), [
    ("(COUNT(*) - 5) * (COUNT(*) - 5)", 0.0),
    ("COUNT(*) - COUNT(*) * COUNT(*) / 5", 0.0),
    ("SUM(age) / COUNT(*)", 24 / 5),
    ("COUNT(*) / SUM(age)", 5 / 24),
    ("2 * COUNT(*) - SUM(age)", -14.0),
    ("-COUNT(*)", -5.0),
])  # fmt: skip
def test_limits_of_an_expression_hold_the_truth_when_those_of_its_parts_do(
    hospital: Pair, expression: str, truth: float, seed: int
) -> None:
    """At this confidence the parts miss one time in a billion, so the expression may not miss at all."""
    side = hospital.with_patient
    plan = side.plan(f"SELECT {expression} AS x FROM visits", spend=epsilon(2), confidence="0.999999999")
    [row] = side.run(plan, source=SeededSource(seed)).rows()
    low, high = row.get("x_low"), row.get("x_high")
    assert low is None or np.isnan(low) or low - 1e-9 <= truth <= high + 1e-9


def test_votes_and_counts_are_not_taken_for_one_another(hospital: Pair) -> None:
    """Both count the same rows by the same key; one is kept as a choice and one as numbers."""
    side = hospital.with_patient
    for _ in range(2):
        counts = side.sql("SELECT age AS candidate, COUNT(*) AS n FROM visits GROUP BY age", spend=epsilon(1))
        chosen = side.sql("SELECT MODE(age) AS m FROM visits", spend=epsilon(1))
        assert len(counts) == 13
        assert chosen.item() in range(13)


def test_a_question_in_other_words_costs_nothing_more(hospital: Pair) -> None:
    side = hospital.with_patient
    first = side.sql("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward", spend=epsilon(1))
    paid = side.account.spent
    second = side.sql("select WARD, count(*) as n from visits group by WARD order by ward", spend=epsilon("0.5"))
    assert side.account.spent == paid
    assert sorted(first.column("n")) == sorted(second.column("n"))


def test_a_refused_question_spends_nothing(hospital: Pair) -> None:
    side = hospital.with_patient
    paid = side.account.spent
    for sql in (
        "SELECT nonsense(COUNT(*)) FROM visits",
        "SELECT COUNT(*) FROM visits HAVING COUNT(*) = 'a'",
        "SELECT age FROM visits",
    ):
        with pytest.raises(Exception, match="CLO-209"):
            side.sql(sql, spend=epsilon(1))
    assert side.account.spent == paid

"""Every shape of question, attacked on two tables that differ in one patient with more rows than count."""

from itertools import product

import numpy as np
import pytest

from cloister.attack import Audit, Batched, audit, audit_exact
from cloister.privacy.errors import QueryRefused
from cloister.privacy.noise import SeededSource
from cloister.query.plan import Plan
from cloister.query.run import _look

from .query_shapes import BY_ROW, HEAVY, LOSSES, MODES, OTHERS, SHAPES, Pair, breaches, draw, overcharge, pair

pytestmark = pytest.mark.statistical


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory):
    made = pair(tmp_path_factory.mktemp("audits"))
    yield made
    made.close()


def attacked(plan: Plan, left: list, right: list, n: int = 20_000) -> Audit:
    """What samples of all noisy numbers that differ, and two that do not, prove about the claim."""
    telling = [(a != b).ravel() for a, b in zip(left, right, strict=True)]
    for one in telling:
        one[:2] = True
    assert plan.loss is not None
    # A false alarm has a chance of 1e-9, and the seed is fixed.
    sampler = Batched(draw(plan, 7, telling))
    return audit(sampler, left, right, plan.loss, n=n, confidence=1 - 1e-9)


def test_there_are_far_more_than_twenty_shapes() -> None:
    assert len(SHAPES) + len(MODES) >= 40


@pytest.mark.parametrize("law", LOSSES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_patient_moves_no_statistic_further_than_its_sensitivity(neighbours: Pair, shape: str, law: str) -> None:
    plan = neighbours.plan(SHAPES[shape], LOSSES[law])
    assert breaches(plan, *neighbours.look(plan)) == []
    assert overcharge(plan) <= 0


@pytest.mark.parametrize("shape", SHAPES)
def test_samples_of_an_answer_do_not_refute_its_claim(neighbours: Pair, shape: str) -> None:
    law = "laplace" if len(shape) % 2 else "gaussian"
    plan = neighbours.plan(SHAPES[shape], LOSSES[law])
    left, right = neighbours.look(plan)
    found = attacked(plan, left, right)
    assert found.verdict == "holds", str(found)


@pytest.mark.parametrize(("law", "share"), [("laplace", 0.5), ("gaussian", 0.4)])
@pytest.mark.parametrize("shape", ["count", "sum of integers", "people by group"])
def test_where_the_cap_is_reached_the_audit_comes_near_the_claim(
    neighbours: Pair, shape: str, law: str, share: float
) -> None:
    plan = neighbours.plan(SHAPES[shape], LOSSES[law])
    found = attacked(plan, *neighbours.look(plan), n=60_000)
    assert share * found.allowed < found.lower_bound <= found.allowed, str(found)


@pytest.mark.parametrize("law", LOSSES)
@pytest.mark.parametrize("shape", MODES)
def test_the_exact_law_of_a_choice_keeps_its_claim(neighbours: Pair, shape: str, law: str) -> None:
    plan = neighbours.plan(MODES[shape], LOSSES[law])
    left, right = neighbours.look(plan)
    assert breaches(plan, left, right) == []
    [mechanism] = plan.mechanisms
    laws = []
    for votes in (left[0], right[0]):
        each = [mechanism.inner.probabilities(one) for one in votes]
        places = product(*(range(len(one)) for one in each))
        laws.append({at: float(np.prod([one[i] for one, i in zip(each, at, strict=True)])) for at in places})
    assert plan.loss is not None
    found = audit_exact(laws[0], laws[1], plan.loss)
    assert found.verdict == "holds", str(found)
    assert found.lower_bound > 0.03 * found.allowed


class Repeated(SeededSource):
    """The same noise again, of which the record must not know: it keeps only what is private."""

    private = True


@pytest.mark.parametrize("shape", ["count", "average by group", "median by group", "rollup", "mode by group"])
def test_what_is_audited_is_what_runs(neighbours: Pair, shape: str) -> None:
    """The released numbers are the exact integers with the mechanisms' noise, in that order, and nothing else."""
    sql = {**SHAPES, **MODES}[shape]
    side = neighbours.with_patient
    plan = side.plan(sql, spend=LOSSES["laplace"])
    before = side.account.spent
    kept = {}
    side_keep, side._record.keep = side._record.keep, lambda one, values: kept.setdefault(one.need, values)
    try:
        side.run(plan, source=Repeated("the same"))
    finally:
        side._record.keep = side_keep
    source = SeededSource("the same")
    by_hand = [
        one.release(stat, source) for one, stat in zip(plan.mechanisms, _look(plan, side.tables.engine), strict=True)
    ]
    released = [value for one in plan.measurements for value in kept.get(one.need, [])]
    if shape != "rollup":  # there two measurements share a need
        assert [np.asarray(a).tolist() for a in released] == [np.asarray(b).tolist() for b in by_hand]
    paid = side.account.spent - before
    assert paid.amount == sum(side.account.price(one).amount for one in plan.mechanisms)


@pytest.mark.parametrize("law", LOSSES)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM visits",
        "SELECT ward, AVG(cost) FROM visits GROUP BY ward",
        "SELECT COUNT(DISTINCT age) FROM visits",
        "SELECT COUNT(*) FROM (SELECT age FROM visits UNION ALL SELECT age FROM visits) AS twice",
        "SELECT COUNT(*) FROM visits JOIN wards ON visits.ward = wards.ward",
        "SELECT SUM(beds) FROM visits LEFT JOIN wards USING (ward)",
        "SELECT MEDIAN(age) FROM (SELECT age FROM visits UNION ALL SELECT age + 1 AS age FROM visits WHERE age < 9) t",
    ],
)
def test_where_the_unit_is_the_row_one_row_keeps_within_the_sensitivity(tmp_path, sql: str, law: str) -> None:
    made = pair(tmp_path, patient=HEAVY[:1], others=OTHERS, schema=BY_ROW)
    plan = made.plan(sql, LOSSES[law])
    left, right = made.look(plan)
    assert breaches(plan, left, right) == []
    assert any((a != b).any() for a, b in zip(left, right, strict=True))
    made.close()


def assert_safe_or_refused(made: Pair, sql: str) -> None:
    try:
        plan = made.plan(sql, LOSSES["laplace"])
    except QueryRefused:
        return
    assert breaches(plan, *made.look(plan)) == []


@pytest.mark.parametrize(
    "condition", ["wards.ward = wards.ward", "wards.ward = wards.ward AND visits.ward = 'a'", "wards.beds = wards.beds"]
)
def test_a_public_table_cannot_multiply_a_row(tmp_path, condition: str) -> None:
    """An equality between columns of the public table itself joins every row to all of its rows."""
    made = pair(tmp_path, patient=HEAVY[:1], others=OTHERS, schema=BY_ROW)
    assert_safe_or_refused(made, f"SELECT COUNT(*) FROM visits JOIN wards ON {condition}")
    made.close()


@pytest.mark.parametrize("name", ["_unit", "_UNIT", "_Unit"])
@pytest.mark.parametrize(
    "inner",
    [
        'SELECT age AS "{}" FROM visits',
        'SELECT patient, age, COUNT(*) AS "{}" FROM visits GROUP BY patient, age',
        'SELECT age AS "{}", patient FROM visits GROUP BY patient, age',
    ],
)
def test_an_analyst_cannot_choose_whom_we_protect(neighbours: Pair, inner: str, name: str) -> None:
    """Engines fold the case of names: a second column called _UNIT must not take the place of the unit."""
    assert_safe_or_refused(neighbours, f"SELECT COUNT(*) FROM ({inner.format(name)}) AS t")

"""Faults planted in the planner and in the caps are caught; without them the same checks pass."""

from collections.abc import Callable

import pytest

from cloister.attack import Batched, audit

from .query_faults import FAULTS, Fault
from .query_shapes import BY_ROW, HEAVY, LOSSES, OTHERS, SCHEMA, Pair, breaches, draw, overcharge, pair

pytestmark = pytest.mark.statistical


def by_sensitivity(made: Pair, sql: str) -> bool:
    """Whether one unit moves a statistic too far."""
    plan = made.plan(sql, LOSSES["laplace"])
    return bool(breaches(plan, *made.look(plan)))


def by_price(made: Pair, sql: str) -> bool:
    """Whether the mechanisms cost more than the plan says."""
    return any(overcharge(made.plan(sql, loss)) > 0 for loss in LOSSES.values())


def by_samples(made: Pair, sql: str) -> bool:
    """Whether noisy answers refute the claim."""
    plan = made.plan(sql, LOSSES["laplace"])
    assert plan.loss is not None
    left, right = made.look(plan)
    return audit(Batched(draw(plan, 3)), left, right, plan.loss, n=40_000, confidence=1 - 1e-9).broken


def by_groups(made: Pair, sql: str) -> bool:
    """Whether a patient who is alone in a ward changes what is listed."""
    texts = []
    for side in (made.with_patient, made.without):
        made.reading = side
        texts.append(str(side.plan(sql, spend=LOSSES["laplace"])))
    return texts[0] != texts[1]


def by_record(made: Pair, sql: str) -> bool:
    """Whether a question asked again is answered afresh, for nothing."""
    side = made.with_patient
    first = side.sql(sql, spend=LOSSES["laplace"])
    paid = side.account.spent
    second = side.sql(sql, spend=LOSSES["laplace"])
    return side.account.spent == paid and first.rows() != second.rows()


CHECKS: dict[str, Callable[[Pair, str], bool]] = {
    "sensitivity": by_sensitivity,
    "price": by_price,
    "samples": by_samples,
    "groups": by_groups,
    "record": by_record,
}


@pytest.fixture
def checked(tmp_path, monkeypatch) -> Callable[[Fault, bool], bool]:
    def run(fault: Fault, planted: bool) -> bool:
        patient, others = (HEAVY[:1], OTHERS) if fault.by_row else (HEAVY, OTHERS)
        if fault.check == "groups":
            others = [row for row in OTHERS if row["ward"] != "b"]
        early = fault.plant.__name__.endswith("clipped")  # views are written when a dataset is opened
        if planted and early:
            fault.plant(monkeypatch.setattr, None)  # type: ignore[arg-type]
        made = pair(tmp_path, patient, others, BY_ROW if fault.by_row else SCHEMA)
        if planted and not early:
            fault.plant(monkeypatch.setattr, made)
        caught = CHECKS[fault.check](made, fault.sql)
        made.close()
        return caught

    return run


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_caught(fault: Fault, checked) -> None:
    assert checked(fault, True)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_without_the_fault_the_same_check_passes(fault: Fault, checked) -> None:
    assert not checked(fault, False)


def test_there_are_at_least_ten_different_faults() -> None:
    assert len({fault.plant for fault in FAULTS}) >= 12

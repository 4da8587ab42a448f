"""The audit catches every broken mechanism of the zoo, by a margin, and lets its honest twin pass."""

import pytest

from cloister.attack import Audit, audit
from cloister.attack.zoo import ZOO, Twins, run
from cloister.privacy.errors import BadNumber

pytestmark = pytest.mark.statistical


def look_at(twins: Twins, which: str) -> Audit:
    # A false alarm has a chance of 1e-9 here, and the seed is fixed.
    return audit(twins.mechanism(which, seed=1), twins.left, twins.right, twins.claim, n=50_000, confidence=1 - 1e-9)


@pytest.mark.parametrize("twins", ZOO, ids=lambda twins: twins.name)
def test_a_broken_mechanism_is_caught_with_a_margin(twins: Twins) -> None:
    found = look_at(twins, "broken")
    assert found.verdict == "broken", str(found)
    assert found.lower_bound > 1.25 * found.allowed, str(found)


@pytest.mark.parametrize("twins", ZOO, ids=lambda twins: twins.name)
def test_its_honest_twin_is_not(twins: Twins) -> None:
    found = look_at(twins, "honest")
    assert found.verdict == "holds", str(found)


def test_the_zoo_has_all_kinds_of_faults_and_no_name_twice() -> None:
    assert len({twins.name for twins in ZOO}) == len(ZOO) >= 24
    assert {twins.kind for twins in ZOO} == {"mechanism", "query", "training", "protocol"}
    assert all(twins.fault.endswith(".") for twins in ZOO)


def test_a_run_audits_each_pair_and_its_twin_as_often_as_asked() -> None:
    results = run(samples=2_000, repeats=2)
    first = next(results)
    assert first.caught
    assert len(first.honest) == 2
    assert first.false_alarms == 0
    assert str(first).startswith("caught")


@pytest.mark.parametrize("repeats", [0, True, 1.5])
def test_repeats_are_a_whole_number(repeats: object) -> None:
    with pytest.raises(BadNumber, match="repeats"):
        run(repeats=repeats)

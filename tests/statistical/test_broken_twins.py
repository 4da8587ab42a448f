"""The audit catches every broken mechanism of the zoo, by a margin, and lets its honest twin pass."""

import pytest

from cloister.attack import Audit, audit

from .broken_mechanisms import ZOO, Twins

pytestmark = pytest.mark.statistical


def look_at(twins: Twins, which: str) -> Audit:
    # A false alarm has a chance of 1e-9 here, and the seed is fixed.
    return audit(twins.mechanism(which, seed=1), twins.left, twins.right, twins.claim, n=100_000, confidence=1 - 1e-9)


@pytest.mark.parametrize("twins", ZOO, ids=lambda twins: twins.name)
def test_a_broken_mechanism_is_caught_with_a_margin(twins: Twins) -> None:
    found = look_at(twins, "broken")
    assert found.verdict == "broken", str(found)
    assert found.lower_bound > 1.25 * found.allowed, str(found)


@pytest.mark.parametrize("twins", ZOO, ids=lambda twins: twins.name)
def test_its_honest_twin_is_not(twins: Twins) -> None:
    found = look_at(twins, "honest")
    assert found.verdict == "holds", str(found)


def test_the_zoo_has_the_twelve_animals_it_must_have_and_no_name_twice() -> None:
    assert len({twins.name for twins in ZOO}) == len(ZOO) >= 12

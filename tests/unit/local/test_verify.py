"""Every mechanism's claim is certified, and the flawed twins of the textbook listings are not."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import pytest

from cloister import local
from cloister.local.privacy.certificate import verify
from cloister.privacy.loss import Loss
from cloister.privacy.number import exp_up, rational

AMOUNTS = ("0.01", "0.5", "1", "2", "4", "8")


def small(amount: str) -> Iterator[local.Oracle]:
    loss = local.epsilon(amount)
    yield local.RandomisedResponse.for_loss(loss)
    for domain in (2, 3, 7):
        yield local.DirectEncoding.for_loss(domain, loss)
        yield local.UnaryEncoding.symmetric(domain, loss)
        yield local.UnaryEncoding.optimised(domain, loss)
        yield local.ThresholdEncoding.for_loss(domain, loss)
        yield local.ThresholdEncoding.for_loss(domain, loss, theta="0.25")
        yield local.LocalHashing.for_loss(domain, loss, buckets=3)
        yield local.LocalHashing.for_loss(domain, loss, buckets=5)
        yield local.SubsetSelection.for_loss(domain, loss)
        for blocks in (1, 2, 4):
            yield local.HadamardResponse.for_loss(domain, loss, blocks=blocks)
    yield local.SubsetSelection.for_loss(7, loss, size=3)
    yield local.HeavyHitters(4, 2, 2, local.LocalHashing.for_loss(4, loss, buckets=2).lie, loss)


@pytest.mark.parametrize("amount", AMOUNTS)
def test_every_law_is_listed_and_holds_and_agrees_with_its_closed_form(amount: str) -> None:
    for mechanism in small(amount):
        certificate = verify(mechanism)
        assert certificate.method == "listed"
        assert certificate.holds, (mechanism, str(certificate))
        assert certificate.ratio == mechanism.largest_ratio(), mechanism


@pytest.mark.parametrize("amount", AMOUNTS)
def test_rounding_wastes_less_than_a_fifth_of_a_percent_of_epsilon(amount: str) -> None:
    for mechanism in small(amount):
        if mechanism.name in ("threshold-encoding",):  # the cut throws some away by design
            continue
        used = verify(mechanism).epsilon
        assert used is not None
        floor = 0.8 if amount == "0.01" and mechanism.kind == "bits" else 0.998
        assert floor * float(amount) < float(used) <= float(amount) * (1 + 1e-11), mechanism


@pytest.mark.parametrize("amount", AMOUNTS)
def test_large_mechanisms_are_certified_by_exact_arithmetic(amount: str) -> None:
    loss = local.epsilon(amount)
    large = [
        local.DirectEncoding.for_loss(2**24, loss),
        local.UnaryEncoding.optimised(1024, loss),
        local.UnaryEncoding.symmetric(1024, loss),
        local.ThresholdEncoding.for_loss(1024, loss),
        local.HistogramEncoding.for_loss(1024, loss),
        local.LocalHashing.for_loss(1024, loss),
        local.HadamardResponse.for_loss(1024, loss),
        local.SubsetSelection.for_loss(1024, loss),
        local.CountMeanSketch.for_loss(2**32, loss),
        local.HeavyHitters.for_loss(loss),
    ]
    for mechanism in large:
        certificate = verify(mechanism)
        assert (certificate.holds, certificate.method) == (True, "exact"), mechanism


def test_a_law_of_a_sketch_holds_row_by_row() -> None:
    sketch = local.CountMeanSketch.for_loss(4, local.epsilon(1), buckets=3, rows=2)
    laws = [sketch.law(value) for value in range(4)]
    assert all(sum(law) == 1 for law in laws)
    seen = [chances for chances in zip(*laws, strict=True) if max(chances)]
    assert max(max(chances) / min(chances) for chances in seen) == sketch.largest_ratio()


def test_hash_functions_meet_with_probability_exactly_one_in_buckets() -> None:
    for domain, buckets in ((9, 3), (20, 3), (7, 5), (30, 2)):
        olh = local.LocalHashing.for_loss(domain, local.epsilon(1), buckets=buckets)
        for x in range(domain):
            for y in range(x):
                meetings = sum(olh.hashed(seed, x) == olh.hashed(seed, y) for seed in range(olh.seeds))
                assert meetings * buckets == olh.seeds


def test_a_subset_contains_each_other_value_with_probability_q() -> None:
    subsets = local.SubsetSelection.for_loss(6, local.epsilon(1), size=2)
    law = subsets.law(4)
    for value in range(6):
        chance = sum(p for report, p in enumerate(law) if report >> value & 1)
        assert chance == (subsets.p if value == 4 else subsets.q)


# The flawed twins.


@dataclass(frozen=True)
class Listing47:
    """Direct encoding as printed (spec E-01): the other value is code + randint(0, d-1), which leaves code - 1 out."""

    domain: int
    loss: Loss

    def law(self, value: int) -> list[Fraction]:
        keep = 1 / (1 + (self.domain - 1) / exp_up(self.loss.amount))
        chances = [Fraction(0)] * self.domain
        chances[value] = keep
        for offset in range(self.domain - 1):
            chances[(value + offset) % self.domain] += (1 - keep) / (self.domain - 1)
        return chances


@dataclass(frozen=True)
class Bits:
    """Independent bits with whatever p and q a listing prints."""

    domain: int
    loss: Loss
    p: Fraction
    q: Fraction

    def law(self, value: int) -> tuple[Fraction, ...]:
        from cloister.local.mechanisms.unary import bits_law

        return bits_law(value, self.domain, self.p, self.q)


@dataclass(frozen=True)
class Even:
    """Local hashing whose lie is 1/(e^epsilon + 1) whatever the buckets: a slip that looks harmless."""

    domain: int
    loss: Loss

    def law(self, value: int) -> list[Fraction]:
        lie = rational(str(round(1 / (math.exp(float(self.loss.amount)) + 1), 9))) / 4
        return [1 - 4 * lie if bucket == value % 5 else lie for bucket in range(5)]


def test_the_listing_of_direct_encoding_is_not_private_at_any_epsilon() -> None:
    for amount in (1, 5, 20):
        broken = verify(Listing47(14, local.epsilon(amount)))
        assert not broken.holds
        assert "infinite" in broken.reason
        assert verify(local.DirectEncoding.for_loss(14, local.epsilon(amount))).holds


def test_the_listing_of_thresholding_is_no_law_below_one_and_ours_is() -> None:
    loss = local.epsilon(5)
    p = rational(repr(1 - 0.5 * math.exp(5 * (1 - 0.25) / 2)))  # listing 4.15 (spec E-02): -2.26
    q = rational(repr(0.5 * math.exp(-5 * 0.25 / 2)))
    assert p < 0
    broken = verify(Bits(3, loss, p, q))
    assert not broken.holds
    assert verify(local.ThresholdEncoding.for_loss(3, loss, theta="0.25")).holds


def test_unary_bits_that_spend_epsilon_on_each_bit_cost_twice_as_much() -> None:
    p = rational(repr(math.exp(1) / (math.exp(1) + 1)))  # SUE with the numerator as misprinted (spec E-18)
    broken = verify(Bits(4, local.epsilon(1), p, 1 - p))
    assert not broken.holds
    assert broken.epsilon is not None
    assert float(broken.epsilon) == pytest.approx(2, abs=1e-6)


def test_a_lie_shared_among_too_many_buckets_is_noticed() -> None:
    assert not verify(Even(5, local.epsilon(1))).holds


def test_a_ratio_a_billionth_above_the_claim_is_broken() -> None:
    exact = local.RandomisedResponse.for_loss(local.epsilon(1))
    more = Bits(2, local.epsilon("0.999999999"), Fraction(1, 2), local.UnaryEncoding.optimised(2, local.epsilon(1)).q)
    assert verify(exact).holds
    assert not verify(
        type("Twin", (), {"domain": 2, "loss": local.epsilon("0.999999999"), "law": staticmethod(exact.law)})()
    ).holds
    assert verify(more).method == "listed"

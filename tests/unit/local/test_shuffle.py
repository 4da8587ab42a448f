"""Shuffling: upper and lower bounds meet where they can, never cross, and name who is trusted against whom."""

import math
from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import comb
from typing import Any

import numpy as np
import pytest
from scipy.special import betainc

from cloister import local
from cloister.local.privacy.divergence import (
    Pair,
    alike,
    covered_divergence,
    divergence,
    divergence_of_two,
    weights,
    yes_counts,
)
from cloister.local.privacy.shuffle import _cover
from cloister.privacy.errors import BadInput, BadLoss, RelationMismatch
from cloister.privacy.loss import Relation
from cloister.privacy.loss import epsilon as any_epsilon

DELTA = "1e-6"


def exact(epsilon: float, n: int, own: Fraction, cross: Fraction, other: Fraction) -> Fraction:
    """The divergence by summing every outcome, in rationals (but for e^epsilon)."""
    power, silent, total = Fraction(math.exp(epsilon)), 1 - own - cross, Fraction(0)
    copies = [comb(n - 1, c) * (2 * other) ** c * (1 - 2 * other) ** (n - 1 - c) for c in range(n)]
    for t in range(n + 1):
        for a in range(t + 1):
            left = right = Fraction(0)
            for first, second, chance in ((1, 0, own), (0, 1, cross), (0, 0, silent)):
                c, x = t - first - second, a - first
                if 0 <= x <= c <= n - 1:
                    left += chance * copies[c] * Fraction(comb(c, x), 2**c)
                y = a - second
                if 0 <= y <= c <= n - 1:
                    right += chance * copies[c] * Fraction(comb(c, y), 2**c)
            total += max(left - power * right, Fraction(0))
    return total


@pytest.mark.parametrize(("n", "epsilon"), [(1, 0.3), (2, 0.1), (7, 0.5), (25, 0.05), (25, 0.4), (25, 0.9)])
@pytest.mark.parametrize("kind", [(1, 3), (2, 3), (1, 8)])
def test_the_divergence_is_the_sum_over_all_outcomes(n: int, epsilon: float, kind: tuple[int, int]) -> None:
    local_power = Fraction(272, 100)
    p = 1 / (local_power + kind[1] - 1) / kind[0]
    own, cross = local_power * p, p
    truth = float(exact(epsilon, n, own, cross, p))
    above, below = divergence(epsilon, n, Pair(float(own), float(cross), float(p)), 1e-9)
    assert below <= truth * (1 + 1e-12) + 1e-18
    assert truth <= above
    assert above == pytest.approx(truth, rel=1e-5, abs=1e-7)
    assert below == pytest.approx(truth, rel=1e-5, abs=1e-7)


def worst_of_all(mechanism: Any, n: int, epsilons: tuple[float, ...]) -> dict[float, float]:
    """The divergence of the multiset of reports, by brute force over all reports and all answers of others."""
    laws = [[float(chance) for chance in mechanism.law(value)] for value in range(mechanism.domain)]
    worst = dict.fromkeys(epsilons, 0.0)
    for answers in combinations_with_replacement(range(mechanism.domain), n - 1):
        pair = []
        for mine in (0, 1):
            found: dict[tuple[int, ...], float] = {}
            for said in product(range(len(laws[0])), repeat=n):
                chance = math.prod(laws[value][report] for value, report in zip((mine, *answers), said, strict=True))
                key = tuple(sorted(said))
                found[key] = found.get(key, 0.0) + chance
            pair.append(found)
        for epsilon, (one, other) in product(epsilons, (pair, pair[::-1])):
            power = math.exp(epsilon)
            worst[epsilon] = max(worst[epsilon], sum(max(one[key] - power * other[key], 0) for key in one))
    return worst


@pytest.mark.parametrize(
    ("mechanism", "n"),
    [
        (local.DirectEncoding.for_loss(3, local.epsilon(1)), 4),
        (local.DirectEncoding.for_loss(4, local.epsilon(2)), 4),
        (local.RandomisedResponse.for_loss(local.epsilon(1)), 7),
        (local.RandomisedResponse.coins("0.6", "0.3"), 6),
        (local.UnaryEncoding.optimised(3, local.epsilon(1)), 3),
        (local.UnaryEncoding.symmetric(3, local.epsilon(2)), 3),
        (local.SubsetSelection.for_loss(4, local.epsilon(1), size=2), 3),
        (local.LocalHashing.for_loss(4, local.epsilon(1), buckets=3), 2),
        (local.OneOfSet.for_loss(3, 2, local.epsilon(1)), 4),
    ],
    ids=lambda one: getattr(one, "name", str(one)),
)
def test_no_answers_of_a_few_people_break_the_bound_of_their_mechanism_or_of_all(mechanism: Any, n: int) -> None:
    epsilons = tuple(share * float(mechanism.epsilon) for share in (0.05, 0.2, 0.5, 0.8, 0.95))
    for epsilon, truth in worst_of_all(mechanism, n, epsilons).items():
        for cover in (_cover(mechanism, mechanism.epsilon), _cover(mechanism.loss, mechanism.epsilon)):
            bound = covered_divergence(epsilon, n, cover, 1e-9)
            assert truth <= bound * (1 + 1e-12)
            assert bound < 60 * truth  # and it is not empty


def test_what_is_sent_otherwise_must_be_covered_too() -> None:
    # Copies of As and Bs alone, with one's own S unhidden: three people break this bound, and not ours.
    mechanism = local.DirectEncoding.for_loss(3, local.epsilon(1))
    p, q = float(mechanism.p), float(mechanism.q)
    truth = worst_of_all(mechanism, 3, (0.8,))[0.8]
    uncovered, _ = divergence(0.8, 3, Pair(p, q, q), 1e-9)
    assert uncovered < 0.6 * truth
    assert truth <= covered_divergence(0.8, 3, _cover(mechanism, mechanism.epsilon), 1e-9) * (1 + 1e-12)


def test_binomial_weights_and_tails_are_right_to_ten_digits() -> None:
    for trials, rate in ((50, Fraction(1, 2)), (3000, Fraction(1, 3)), (40_000, Fraction(1, 2))):
        middle, spread = int(trials * rate), int(math.sqrt(trials) / 2)
        for k in (0, 1, middle - 3 * spread, middle, middle + 6 * spread, trials):
            if 0 <= k <= trials:
                truth = comb(trials, k) * rate.numerator**k * (rate.denominator - rate.numerator) ** (trials - k)
                known = Fraction(truth, rate.denominator**trials)
                got = weights(np.array([float(k)]), trials, float(rate))[0]
                assert got == pytest.approx(float(known), rel=1e-10, abs=1e-290)
    trials, total, term = 100_000, 0, comb(100_000, 51_000)
    for k in range(51_000, 53_000):  # beyond, less than 1e-70 of it is left
        total += term
        term = term * (trials - k) // (k + 1)
    assert betainc(51_000.0, 49_001.0, 0.5) == pytest.approx(float(Fraction(total, 2**trials)), rel=1e-10)


@pytest.mark.parametrize("amount", ["0.1", "1", "8"])
@pytest.mark.parametrize("domain", [3, 10, 1024])
def test_for_direct_encoding_the_bounds_meet(amount: str, domain: int) -> None:
    found = local.shuffled(local.DirectEncoding.for_loss(domain, local.epsilon(amount)), 100_000, DELTA)
    assert found.lower is not None
    assert found.lower <= found.loss.amount
    assert found.gap is not None
    assert found.gap < 0.02


def test_a_million_reports_take_at_most_two_seconds_and_meet_within_two_percent(within) -> None:
    mechanism = local.DirectEncoding.for_loss(16, local.epsilon(1))
    found = within(2, lambda: local.shuffled(mechanism, 1_000_000, "1e-8"))
    assert found.gap is not None
    assert found.gap < 0.02
    assert float(found.loss.amount) < 0.01


@pytest.mark.parametrize(
    "mechanism",
    [
        local.UnaryEncoding.optimised(20, local.epsilon(1)),
        local.UnaryEncoding.symmetric(20, local.epsilon(1)),
        local.ThresholdEncoding.for_loss(20, local.epsilon(1)),
        local.SubsetSelection.for_loss(20, local.epsilon(1)),
        local.LocalHashing.for_loss(200, local.epsilon(1)),
        local.epsilon(1),
    ],
    ids=lambda one: getattr(one, "name", "any"),
)
def test_elsewhere_the_bounds_do_not_cross_and_the_gap_is_told(mechanism: Any) -> None:
    found = local.shuffled(mechanism, 50_000, DELTA)
    assert found.lower is not None
    assert 0 < found.lower <= found.loss.amount < 1
    assert found.gap is not None
    assert 0.02 < found.gap < 0.5


def test_no_mechanism_loses_more_than_its_loss_alone_says() -> None:
    alone = local.shuffled(local.epsilon(1), 20_000, DELTA).loss.amount
    for mechanism in (
        local.RandomisedResponse.for_loss(local.epsilon(1)),
        local.DirectEncoding.for_loss(3, local.epsilon(1)),
        local.UnaryEncoding.optimised(5, local.epsilon(1)),
        local.HadamardResponse.for_loss(5, local.epsilon(1)),
        local.OneOfSet.for_loss(5, 2, local.epsilon(1)),
        local.PairOrder.for_loss(5, local.epsilon(1)),
    ):
        found = local.shuffled(mechanism, 20_000, DELTA)
        assert found.loss.amount <= alone * Fraction(10001, 10000)
        assert found.lower is None or found.lower <= alone


def test_the_upper_bound_beats_the_closed_form_of_the_clones_paper() -> None:
    # Feldman, McMillan & Talwar 2021, theorem 3.1: ln(1 + (e-1)/(e+1) (8 sqrt(e ln(4/d)/n) + 8e/n)).
    for amount, n in ((1, 10_000), (2, 100_000), (0.5, 1_000_000)):
        e = math.exp(amount)
        closed = math.log(1 + (e - 1) / (e + 1) * (8 * math.sqrt(e * math.log(4e6) / n) + 8 * e / n))
        assert float(local.shuffled(local.epsilon(str(amount)), n, DELTA).loss.amount) < closed / 2


def test_more_people_and_a_larger_delta_hide_better() -> None:
    mechanism = local.DirectEncoding.for_loss(5, local.epsilon(2))
    by_people = [local.shuffled(mechanism, n, DELTA).loss.amount for n in (1, 100, 10_000, 100_000)]
    assert by_people[0] == 2  # nobody to hide among: the local loss
    assert by_people == sorted(by_people, reverse=True)
    assert by_people[1] > by_people[2] > by_people[3]
    # Four times as many people hide about twice as well.
    assert float(by_people[2] / local.shuffled(mechanism, 40_000, DELTA).loss.amount) == pytest.approx(2, rel=0.1)
    by_delta = [local.shuffled(mechanism, 1000, delta).loss.amount for delta in ("1e-12", "1e-6", "1e-3")]
    assert by_delta[0] > by_delta[1] > by_delta[2]


def test_a_result_names_the_shuffler_and_says_the_collector_is_not_covered() -> None:
    found = local.shuffled(local.DirectEncoding.for_loss(5, local.epsilon(2)), 10_000, DELTA)
    assert (found.loss.relation, found.loss.delta) == (Relation.REPLACE_ONE, Fraction(1, 10**6))
    assert found.local == local.epsilon(2)
    text = str(found)
    for words in ("shuffler", "readers of what is published", "NOT the collector", "Against the collector: epsilon 2"):
        assert words in text


def test_several_levels_are_stated_at_the_weakest() -> None:
    strong = local.DirectEncoding.for_loss(5, local.epsilon("0.5"))
    weak = local.DirectEncoding.for_loss(5, local.epsilon(3))
    both = local.shuffled_levels([(strong, 9_000), (weak, 1_000)], DELTA)
    alone = local.shuffled(weak, 1_000, DELTA)
    assert both.loss == alone.loss
    assert (both.local, both.n) == (local.epsilon(3), 10_000)
    assert [level.n for level in both.levels] == [9_000, 1_000]
    # A private level with few people in it can be the weakest one, and is then what is stated.
    few = local.shuffled_levels([(strong, 2), (weak, 10**5)], DELTA)
    assert few.loss.amount == local.shuffled(strong, 2, DELTA).loss.amount
    assert few.local == local.epsilon(3)
    with pytest.raises(BadInput):
        local.shuffled_levels([], DELTA)


def test_of_two_answers_the_law_of_the_count_is_computed() -> None:
    n, yes, no, epsilon = 12, 0.75, 0.25, 0.3
    count = [comb(n - 1, k) * no**k * yes ** (n - 1 - k) for k in range(n)]
    assert alike(n - 1, no, 1e-9) == pytest.approx(np.array(count), rel=1e-12)
    one, zero = ([(1 - p) * x + p * y for x, y in zip([*count, 0], [0, *count], strict=True)] for p in (yes, no))
    power = math.exp(epsilon)
    truth = max(
        sum(max(a - power * b, 0) for a, b in zip(one, zero, strict=True)),
        sum(max(b - power * a, 0) for a, b in zip(one, zero, strict=True)),
    )
    above, below = divergence_of_two(epsilon, np.array(count), yes, no, 1e-9)
    assert below <= truth <= above
    assert above == pytest.approx(below, rel=1e-6)


@pytest.mark.parametrize(("yes", "no", "n"), [(0.75, 0.25, 7), (0.72, 0.12, 6)])
def test_of_two_answers_no_others_break_the_bound_and_some_reach_it(yes: float, no: float, n: int) -> None:
    for epsilon in (0.05, 0.3, 0.7):
        worst = 0.0
        for would in range(n):  # so many of the others would say yes
            law = np.array([1.0])
            for rate in [yes] * would + [no] * (n - 1 - would):
                law = np.convolve(law, [1 - rate, rate])
            worst = max(worst, divergence_of_two(epsilon, law, yes, no, 1e-9)[1])
        bounds = {
            cells: max(divergence_of_two(epsilon, law, yes, no, 1e-9)[0] for law in yes_counts(n, yes, no, 1e-9, cells))
            for cells in (n, 3)
        }
        assert worst <= bounds[n] <= worst * (1 + 1e-6)
        assert bounds[n] <= bounds[3]


@pytest.mark.parametrize("amount", ["0.1", "1", "2", "4"])
def test_for_two_answers_the_bounds_meet(amount: str) -> None:
    for mechanism in (
        local.RandomisedResponse.for_loss(local.epsilon(amount)),
        local.DirectEncoding.for_loss(2, local.epsilon(amount)),
    ):
        found = local.shuffled(mechanism, 50_000, DELTA)
        assert found.gap is not None
        assert 0 <= found.gap < 0.02


def test_wrong_calls_are_refused() -> None:
    mechanism = local.DirectEncoding.for_loss(5, local.epsilon(2))
    for delta in (0, 1, "-1"):
        with pytest.raises(BadLoss):
            local.shuffled(mechanism, 100, delta)
    with pytest.raises(BadInput):
        local.shuffled(mechanism, 0, DELTA)
    with pytest.raises(RelationMismatch):
        local.shuffled(any_epsilon(1), 100, DELTA)

"""Rankings: one pair or one place is told with the whole epsilon, and gives preferences, places and scores."""

from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from cloister import local
from cloister.local.privacy.certificate import verify
from cloister.privacy.errors import BadCandidates, BadInput, BadLoss, BadProbability, NotPrivate
from cloister.privacy.noise import SeededSource

LOSS = local.epsilon("1.5")
MECHANISMS: dict[str, Any] = {
    "pair": local.PairOrder.for_loss(5, LOSS),
    "place": local.ItemAtPlace.for_loss(5, LOSS),
}
every = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
PEOPLE = np.array([[4, 2, 0, 1, 3], [4, 0, 2, 3, 1], [2, 4, 0, 1, 3]] * 400)


@pytest.mark.parametrize("amount", ["0.01", "1", "4"])
@pytest.mark.parametrize("items", [2, 3, 4])
def test_all_pairs_of_rankings_are_listed_and_hold(amount: str, items: int) -> None:
    for mechanism in (
        local.PairOrder.for_loss(items, local.epsilon(amount)),
        local.ItemAtPlace.for_loss(items, local.epsilon(amount)),
    ):
        certificate = verify(mechanism)
        assert (certificate.method, certificate.holds) == ("listed", True)
        assert certificate.ratio == mechanism.largest_ratio()
        assert float(certificate.epsilon or 0) == pytest.approx(float(amount), rel=1e-9)


def test_long_rankings_are_certified_by_exact_arithmetic() -> None:
    for mechanism in (local.PairOrder.for_loss(200, LOSS), local.ItemAtPlace.for_loss(200, LOSS)):
        certificate = verify(mechanism)
        assert (certificate.method, certificate.holds) == ("exact", True)


@every
def test_the_law_averages_to_preferences_and_places(mechanism: Any) -> None:
    number = [*permutations(range(5))].index((4, 2, 0, 1, 3))
    law = mechanism.law(number)
    assert sum(law) == 1
    if mechanism.name == "pair-order":  # pairs (0,1) … (3,4); 0 comes before 1, and 3 after 4
        assert law[1] == mechanism.p / 10
        assert law[-1] == mechanism.q / 10
    else:
        assert law[4] == law[5 + 2] == law[10 + 0] == mechanism.p / 5
        assert law[0] == mechanism.q / 5


@every
def test_reports_survive_the_wire_and_counts_add_up(mechanism: Any) -> None:
    reports = mechanism.perturb(PEOPLE, SeededSource(1))
    wire = mechanism.encode(reports)
    back, refused = mechanism.decode(wire.tobytes())
    assert refused == 0
    assert np.array_equal(back.data, reports.data)
    halves = mechanism.aggregate(wire[:500]) + mechanism.aggregate(wire[500:])
    assert np.array_equal(halves.table, mechanism.aggregate(reports).table)
    spoiled = mechanism.aggregate([wire[0].tobytes(), b"", 7, b"\xff"])
    assert (spoiled.n, spoiled.refused) == (1, 3)


@every
def test_scores_find_the_order_and_have_errors(mechanism: Any) -> None:
    estimate = mechanism.estimate(mechanism.aggregate(mechanism.perturb(np.tile(PEOPLE, (10, 1)), SeededSource(3))))
    truth = np.zeros(5)
    for ranking in PEOPLE[:3]:
        truth[ranking] += np.arange(4, -1, -1) / 3
    assert (np.abs(estimate.scores - truth) < 4.5 * estimate.standard_error).all()
    assert estimate.order[0] == 4
    low, high = estimate.interval
    assert np.allclose(high - low, 2 * 1.95996 * estimate.standard_error, rtol=0.1)
    assert (low < estimate.scores).all()
    assert (estimate.scores < high).all()
    projected = estimate.projected()
    assert not projected.raw
    assert projected.matrix.min() >= 0
    assert projected.matrix.max() <= 1
    with pytest.raises(BadInput):
        projected.projected()
    with pytest.raises(NotPrivate):
        estimate.require_private()


def test_preferences_of_two_items_add_up_to_one() -> None:
    pairs = MECHANISMS["pair"]
    estimate = pairs.estimate(pairs.aggregate(pairs.perturb(PEOPLE, SeededSource(5))))
    assert np.allclose(estimate.matrix + estimate.matrix.T, 1)
    assert estimate.scores.sum() == pytest.approx(10)
    assert np.array_equal(estimate.matrix_error, estimate.matrix_error.T)
    assert abs(estimate.matrix[4, 3] - 1) < 4.5 * estimate.matrix_error[4, 3]


def test_a_pair_nobody_was_asked_about_is_unknown_and_says_so() -> None:
    pairs = MECHANISMS["pair"]
    estimate = pairs.estimate(pairs.aggregate([b"\x01"] * 50))  # all told about items 0 and 1
    assert estimate.matrix[3, 4] == 0.5
    assert np.isinf(estimate.matrix_error[3, 4])
    assert np.isinf(estimate.standard_error).all()
    assert np.isfinite(estimate.matrix_error[0, 1])


@pytest.mark.parametrize(
    ("kind", "items", "amount", "people", "reversed_"),
    [
        (local.ItemAtPlace, 4, "8", 120, 4),
        (local.ItemAtPlace, 4, "8", 400, 4),
        (local.ItemAtPlace, 4, "8", 1000, 5),
        (local.ItemAtPlace, 3, "1", 60, 6),
        (local.PairOrder, 4, "8", 120, 2),
        (local.PairOrder, 4, "8", 400, 3),
        (local.PairOrder, 2, "8", 100, 1),
        (local.PairOrder, 3, "1", 60, 6),
    ],
)
def test_intervals_of_scores_hold_where_few_people_differ_from_the_rest(
    kind: Any, items: int, amount: str, people: int, reversed_: int
) -> None:
    mechanism, order, runs = kind.for_loss(items, local.epsilon(amount)), list(range(items)), 300
    rankings = [order] * (people - reversed_) + [order[::-1]] * reversed_
    truth = np.mean([[items - 1 - ranking.index(item) for item in order] for ranking in rankings], axis=0)
    missed = np.zeros(items)
    for _ in range(runs):
        low, high = mechanism.estimate(mechanism.aggregate(mechanism.perturb(rankings)), "0.95").interval
        missed += (truth < low - 1e-9) | (truth > high + 1e-9)
    assert missed.max() <= 0.14 * runs  # of 5 % by chance: less than once in a hundred million


class Script:
    private = False

    def __init__(self, *words: int) -> None:
        self.text = b"".join(number.to_bytes(8, "little") for number in words)

    def bytes(self, count: int) -> bytes:
        taken, self.text = self.text[:count], self.text[count:]
        assert len(taken) == count
        return taken


def test_a_report_follows_from_two_little_endian_words() -> None:
    pairs, places = MECHANISMS["pair"], MECHANISMS["place"]
    limit = int(pairs.p * 2**64)
    ranking = [4, 2, 0, 1, 3]
    # Pair 9 is (3, 4): 3 comes after 4.
    assert pairs.perturb(ranking, Script(9, limit - 1)).data.tolist() == [18]
    assert pairs.perturb(ranking, Script(9, limit)).data.tolist() == [19]
    # The last, incomplete run of words is drawn again.
    assert pairs.perturb(ranking, Script(2**64 - 1, 10, 0)).data.tolist() == [1]
    keep, _ = places.thresholds
    assert places.perturb(ranking, Script(6, keep - 1)).data.tolist() == [5 + 2]
    assert places.perturb(ranking, Script(6, keep)).data.tolist() == [5 + 3]


@every
@pytest.mark.parametrize(
    "wrong", [[0, 1, 2, 3], [0, 1, 2, 3, 3], [0, 1, 2, 3, 123456], 3, None, "abcde", [[0], [1, 2]], []]
)
def test_what_is_no_ranking_is_refused_without_being_shown(mechanism: Any, wrong: Any) -> None:
    with pytest.raises(BadCandidates) as caught:
        mechanism.perturb(wrong)
    assert "123456" not in str(caught.value)


def test_one_pair_beats_a_share_of_the_budget_for_every_pair() -> None:
    for items in (3, 6, 12):
        one = local.PairOrder.for_loss(items, local.epsilon(1))
        pairs = items * (items - 1) // 2
        all_of_them = local.RandomisedResponse.for_loss(local.epsilon(1).split(pairs))
        assert one.mse(1) < (items - 1) * float(all_of_them.variance(np.array([0.5]), 1)[0])


def test_pairs_are_advised_for_scores_and_both_are_shown() -> None:
    advice = local.Ranking(6).advise(local.epsilon(1), 1000)
    assert advice.best.name == "pair-order"
    assert {line.label for line in advice.table} == {"pair", "item"}
    assert advice.best.mse(1000) == min(line.mse for line in advice.table)


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(BadLoss):
        local.PairOrder(4, Fraction(7, 8), local.epsilon(1))
    with pytest.raises(BadLoss):
        local.ItemAtPlace(4, Fraction(1, 16), local.epsilon(1))
    with pytest.raises(BadProbability):
        local.PairOrder(4, Fraction(1, 2), local.epsilon(1))
    with pytest.raises(BadCandidates):
        local.Ranking(1)
    pairs, places = MECHANISMS["pair"], MECHANISMS["place"]
    with pytest.raises(BadInput):
        pairs.estimate(places.aggregate(places.perturb([0, 1, 2, 3, 4])))
    with pytest.raises(BadInput):
        pairs.estimate(pairs.aggregate([]))


def test_liars_who_all_claim_the_same_pair_are_bounded() -> None:
    pairs = MECHANISMS["pair"]
    bound = local.poisoning(pairs, 20, 2000)
    honest = [
        row.tobytes() for row in pairs.encode(pairs.perturb(np.tile(np.arange(5)[::-1], (1980, 1)), SeededSource(8)))
    ]
    fooled = pairs.estimate(pairs.aggregate(honest + [b"\x01"] * 20))  # 0 before 1, which nobody thinks
    plain = pairs.estimate(pairs.aggregate(honest))
    moved = fooled.matrix[0, 1] - plain.matrix[0, 1]
    assert 0.5 * bound.up < moved < bound.up + 3 * plain.matrix_error[0, 1]
    assert bound.honest == pytest.approx(0.01)
    assert bound.honest < bound.up
    assert local.poisoning(pairs, 0, 2000).up == 0


def expected_rise(mechanism: Any, parts: int, fakes: list[int], n: int) -> float:
    """The sum of expected rises of shares that nobody holds, if so many fakes claim each of some pairs or places.

    Exact: a part is reported by a binomial number H of honest devices; without any report its share is a guess.
    """
    high = float((1 - mechanism.q) / (mechanism.p - mechanism.q))
    guess = 0.5 if isinstance(mechanism, local.PairOrder) else 1 / mechanism.domain
    honest = n - sum(fakes)
    law = binom.pmf(np.arange(honest + 1), honest, 1 / parts)
    share = [float((law * (k / (np.arange(honest + 1) + k))).sum()) for k in fakes]
    return sum(share) * high - len(fakes) * float(law[0]) * guess


@pytest.mark.parametrize("name", ["pair", "place"])
def test_few_liars_among_few_people_stay_within_the_bound_too(name: str) -> None:
    mechanism = MECHANISMS[name]
    parts = 10 if name == "pair" else 5
    for n in (2, 5, 10, 30, 100, 1000):
        for fakes in {1, 2, 3, n // 2, n}:
            bound = local.poisoning(mechanism, min(fakes, n), n)
            exact = expected_rise(mechanism, parts, [min(fakes, n)], n)
            assert exact <= bound.up * (1 + 1e-9), (n, fakes)
            if n >= 100 and fakes < n:
                assert bound.up <= 1.05 * exact, (n, fakes)


@pytest.mark.parametrize("name", ["pair", "place"])
def test_liars_who_claim_several_pairs_or_places_stay_within_the_bound_of_all_together(name: str) -> None:
    mechanism = MECHANISMS[name]
    parts = 10 if name == "pair" else 5
    for n in (10, 70, 1000):
        for fakes, targets in ((2, 2), (9, 3), (10, 2), (10, 5)):
            bound = local.poisoning(mechanism, fakes, n, targets)
            for split in (1, 2, 3, targets):
                each = [len(part) for part in np.array_split(np.arange(fakes), min(split, targets, fakes))]
                assert expected_rise(mechanism, parts, each, n) <= bound.together * (1 + 1e-9), (n, fakes, targets)


def test_a_single_liar_moves_a_real_estimate_by_no_more_than_the_bound_on_average() -> None:
    mechanism, n = MECHANISMS["pair"], 10
    bound, moved = local.poisoning(mechanism, 1, n), []
    for turn in range(400):
        honest = mechanism.aggregate(mechanism.perturb(np.tile(np.arange(5)[::-1], (n - 1, 1)), SeededSource(turn)))
        fooled = mechanism.estimate(honest + mechanism.aggregate([b"\x01"]))
        moved.append(fooled.matrix[0, 1] - mechanism.estimate(honest).matrix[0, 1])
    slip = 3 * np.std(moved) / len(moved) ** 0.5
    assert 0.4 * bound.up < np.mean(moved) < bound.up + slip


def test_rankings_of_several_levels_are_not_mixed_up_with_shares() -> None:
    pairs = MECHANISMS["pair"]
    with pytest.raises(BadInput):
        local.combine([pairs.estimate(pairs.aggregate(pairs.perturb(PEOPLE)))])

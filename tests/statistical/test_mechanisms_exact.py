"""Where outputs are few, no sampling is needed: every probability, on every pair of neighbours, against e^epsilon."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from cloister.privacy.loss import epsilon
from cloister.privacy.mechanisms import (
    AboveThreshold,
    Exponential,
    KaryResponse,
    NoisyMax,
    PermuteAndFlip,
    RandomisedResponse,
    TopK,
)
from cloister.privacy.number import ratio_within

REPLACE = {"relation": "replace-one"}
CHOOSERS = [
    (Exponential, {}),
    (PermuteAndFlip, {}),
    (NoisyMax, {}),
    (NoisyMax, {"noise": "geometric"}),
    (TopK, {"k": 2}),
]
SCORES = [(0, 0, 0), (3, 2, 0), (5, 5, 4), (0, 9, 1), (-2, -2, 3)]


def law(mechanism: Exponential, scores: tuple[int, ...]) -> np.ndarray:
    found = mechanism.probabilities(list(scores))
    return np.array([found[key] for key in sorted(found)]) if isinstance(found, dict) else found


def worst_ratio(mechanism: Exponential, moves: tuple[int, ...]) -> float:
    worst = 0.0
    for scores in SCORES:
        here = law(mechanism, scores)
        assert here.sum() == pytest.approx(1, abs=1e-9)
        for step in product(moves, repeat=len(scores)):
            there = law(mechanism, tuple(a + b for a, b in zip(scores, step, strict=True)))
            worst = max(worst, float(np.abs(np.log(here / there)).max()))
    return worst


@pytest.mark.parametrize(("kind", "more"), CHOOSERS)
@pytest.mark.parametrize("amount", ["0.5", "2"])
def test_no_neighbour_changes_a_choice_by_more_than_epsilon(kind: type[Exponential], more: dict, amount: str) -> None:
    worst = worst_ratio(kind.for_loss(1, epsilon(amount), **more), (-1, 0, 1))
    assert 0.4 * float(amount) < worst <= float(amount) * (1 + 1e-9)


@pytest.mark.parametrize(("kind", "more"), CHOOSERS)
def test_monotone_scores_may_have_twice_the_rate(kind: type[Exponential], more: dict) -> None:
    monotone = kind.for_loss(1, epsilon(2), monotone=True, **more)
    assert 0.8 < worst_ratio(monotone, (0, 1)) <= 2 * (1 + 1e-9)
    # The flag is a fact about the scores: where they are not monotone, the promise is broken.
    assert worst_ratio(monotone, (-1, 0, 1)) > 2.2


@pytest.mark.parametrize(("kind", "more"), CHOOSERS)
def test_a_sensitivity_of_three_bears_steps_of_three(kind: type[Exponential], more: dict) -> None:
    assert worst_ratio(kind.for_loss(3, epsilon(1), **more), (-3, 1, 3)) <= 1 + 1e-9
    assert worst_ratio(kind.for_loss(1, epsilon(1), **more), (-3, 1, 3)) > 1.2


@pytest.mark.parametrize("mechanism", [Exponential.for_loss(1, epsilon(2)), TopK.for_loss(1, epsilon(2), k=2)])
def test_the_better_rho_of_the_exponential_mechanism_holds(mechanism: Exponential) -> None:
    for scores, step in product(SCORES, product((-1, 0, 1), repeat=3)):
        here, there = law(mechanism, scores), law(mechanism, tuple(a + b for a, b in zip(scores, step, strict=True)))
        for alpha in (1.01, 2.0, 5.0):
            divergence = np.log((here**alpha * there ** (1 - alpha)).sum()) / (alpha - 1)
            assert divergence <= alpha * float(mechanism.zcdp.amount) * (1 + 1e-9)
            assert divergence <= mechanism.rdp(alpha) * (1 + 1e-9)


def test_the_better_rho_does_not_hold_for_permute_and_flip() -> None:
    here, there = (law(PermuteAndFlip.for_loss(1, epsilon(1)), scores) for scores in ((3, 2), (2, 3)))
    rate = np.log((here**1.01 * there ** (1 - 1.01)).sum()) / 0.01 / 1.01
    assert 2 * 1 / 8 < rate <= 1 / 2  # more than twice epsilon²/8, within epsilon²/2


def test_permute_and_flip_is_never_worse_than_the_exponential_mechanism() -> None:
    for scores in SCORES:
        regret = max(scores) - np.array(scores)
        flip, soft = (law(kind.for_loss(1, epsilon(1)), scores) @ regret for kind in (PermuteAndFlip, Exponential))
        assert flip <= soft + 1e-12


@pytest.mark.parametrize("positives", [1, 2])
@pytest.mark.parametrize("monotone", [False, True])
def test_no_neighbour_changes_a_transcript_by_more_than_epsilon(positives: int, monotone: bool) -> None:
    made = AboveThreshold.for_loss(1, epsilon(1), threshold=2, positives=positives, monotone=monotone)
    worst = 0.0
    for answers in ((2, 2, 2, 2), (0, 1, 2, 3), (4, 0, 4, 0), (-30, 2, 40, 2)):
        here = made.probabilities(answers)
        assert sum(here.values()) == pytest.approx(1, abs=1e-9)
        for step in product((0, 1) if monotone else (-1, 1), repeat=4):
            there = made.probabilities([a + b for a, b in zip(answers, step, strict=True)])
            worst = max(worst, max(abs(np.log(here[told] / there[told])) for told in here))
    assert 0.5 < worst <= 1 + 1e-9


def test_sparse_vector_spends_its_epsilon_exactly() -> None:
    for monotone, positives in product((False, True), (1, 3, 10)):
        made = AboveThreshold.for_loss(2, epsilon("0.7"), threshold=0, positives=positives, monotone=monotone)
        shifts = positives * (1 if monotone else 2)
        spent = made.sensitivity / made.threshold_scale + shifts * made.sensitivity / made.answer_scale
        assert spent == Fraction(7, 10)


@pytest.mark.parametrize("amount", ["0.1", "1", "5"])
def test_responses_keep_to_epsilon_in_exact_arithmetic(amount: str) -> None:
    loss = epsilon(amount, **REPLACE)
    answers = [(RandomisedResponse.for_loss(loss), (False, True))]
    answers += [(KaryResponse.for_loss(k, loss), range(k)) for k in (2, 3, 10)]
    for mechanism, inputs in answers:
        laws = [mechanism.probabilities(one) for one in inputs]
        assert all(sum(one) == 1 for one in laws)
        ratios = [a / b for here, there in product(laws, repeat=2) for a, b in zip(here, there, strict=True)]
        assert ratio_within(max(ratios), loss.amount)
        assert not ratio_within(max(ratios), loss.amount * Fraction(999, 1000))


@pytest.mark.parametrize("p", ["0.1", "0.5", "0.8", "0.99"])
def test_a_coin_costs_what_it_says_in_exact_arithmetic(p: str) -> None:
    coin = RandomisedResponse.coin(p)
    here, there = coin.probabilities(True), coin.probabilities(False)
    ratio = max(max(a / b, b / a) for a, b in zip(here, there, strict=True))
    assert ratio_within(ratio, coin.epsilon)
    assert not ratio_within(ratio, coin.epsilon * (1 - Fraction(1, 10**9)))

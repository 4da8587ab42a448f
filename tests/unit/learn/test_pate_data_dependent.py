"""The data-dependent loss of PATE's votes: bounds against exact divergences, smoothness by enumeration, its price."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import cloister as cl
from cloister.learn.pate import PATEClassifier
from cloister.learn.pate.data_dependent import divergences, smooth_bound
from cloister.privacy.errors import BadInput

RANDOM = np.random.default_rng(5)
ROWS, POOL = (RANDOM.normal(size=(n, 3)) for n in (3000, 300))
LABELS = (ROWS[:, 0] > ROWS[:, 1]).astype(int)


def tables(teachers: int, classes: int) -> list[tuple[int, ...]]:
    """Every histogram of the votes of one query."""
    every = itertools.product(range(teachers + 1), repeat=classes)
    return [counts for counts in every if sum(counts) == teachers]


def neighbours(counts: tuple[int, ...]) -> list[tuple[int, ...]]:
    moved = []
    for i, j in itertools.permutations(range(len(counts)), 2):
        if counts[i]:
            other = list(counts)
            other[i], other[j] = other[i] - 1, other[j] + 1
            moved.append(tuple(other))
    return moved


def label_law(counts: tuple[int, ...], sigma: float) -> Any:
    """Exact probabilities of the noisy plurality, ties to the lower index, by summation over discrete Gaussians."""
    marks = np.arange(-12 * int(sigma + 1), sum(counts) + 12 * int(sigma + 1))
    laws = []
    for count in counts:
        weights = np.exp(-((marks - count) ** 2) / (2 * sigma**2))
        laws.append(weights / weights.sum())
    below = [np.cumsum(law) - law for law in laws]
    chances = []
    for i, law in enumerate(laws):
        others = [below[j] + (j > i) * laws[j] for j in range(len(laws)) if j != i]
        chances.append(float((law * np.prod(others, axis=0)).sum()))
    return np.array(chances)


def gap(counts: tuple[int, ...]) -> int:
    first, second = sorted(counts, reverse=True)[:2]
    return first - second


@pytest.mark.parametrize(("sigma", "order"), [(1.0, 2.0), (1.5, 2.5), (2.0, 3.0), (4.0, 4.0)])
def test_no_pair_of_neighbours_diverges_more_than_the_bound_of_its_gap(sigma: float, order: float) -> None:
    bounds = divergences(12, 3, sigma, order)
    smaller = 0
    for counts in tables(12, 3):
        law = label_law(counts, sigma)
        assert 1 - law[int(np.argmax(counts))] <= 2 * math.exp(-(gap(counts) ** 2) / (4 * sigma**2)) + 1e-9
        for other in neighbours(counts):
            ratio = float((law**order * label_law(other, sigma) ** (1 - order)).sum())
            assert math.log(ratio) / (order - 1) <= bounds[gap(counts)] + 1e-9, (counts, other)
        smaller += bounds[gap(counts)] < 0.5 * order / sigma**2
    assert smaller or sigma > 1.5  # where teachers agree it is far below the data-independent loss
    assert (np.diff(bounds) <= 0).all()
    assert bounds[0] == order / sigma**2


@pytest.mark.parametrize("rate", [0.05, 0.3, 1.0])
def test_the_smooth_bound_is_at_least_the_divergence_and_its_logarithm_moves_by_the_rate(rate: float) -> None:
    bounds = divergences(8, 3, 1.0, 2.0)
    every = tables(8, 3)
    moved = 0.0
    for first, second in itertools.product(every[::3], every[::4]):
        here = smooth_bound(np.array([gap(first), gap(second)]), bounds, rate)
        assert here >= bounds[gap(first)] + bounds[gap(second)]
        for one, other in itertools.product(neighbours(first), neighbours(second)):
            there = smooth_bound(np.array([gap(one), gap(other)]), bounds, rate)
            moved = max(moved, abs(math.log(there / here)))
    assert moved <= rate + 1e-12
    assert moved > rate / 2  # the rate is needed


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_the_smooth_bound_is_the_largest_discounted_divergence_at_every_distance(rate: float) -> None:
    bounds = divergences(8, 3, 1.0, 2.0)
    for start in tables(8, 3):
        seen, edge, best = {start}, {start}, bounds[gap(start)]
        for distance in range(1, 9):
            edge = {other for counts in edge for other in neighbours(counts)} - seen
            seen |= edge
            best = max([best, *(math.exp(-rate * distance) * bounds[gap(counts)] for counts in edge)])
        assert smooth_bound(np.array([gap(start)]), bounds, rate) >= best - 1e-12


def made(**more: Any) -> PATEClassifier:
    told = {"public": POOL, "teachers": 250, "estimator": GaussianNB(), "classes": [0, 1], "queries": 20, **more}
    return PATEClassifier(cl.epsilon(3, delta="1e-5"), **told)


@pytest.mark.parametrize("more", [{}, {"confident": 0.7}, {"check_teachers": True}], ids=str)
def test_it_is_paid_for_within_the_spend_and_marked_as_no_claim(tmp_path: Any, more: dict[str, Any]) -> None:
    with cl.Ledger.in_folder(tmp_path) as ledger:
        plain = made(ledger=ledger, **more).fit(ROWS, LABELS)
        model = made(ledger=ledger, data_dependent="1e-5", **more).fit(ROWS, LABELS)
    assert plain.data_dependent_ is None
    assert "data-dependent loss" not in plain.release_.parameters
    assert model.loss_ == plain.loss_
    assert model.data_dependent_.startswith("not the claim: for these votes about epsilon ")
    assert model.release_.parameters["data-dependent loss"] == model.data_dependent_


@pytest.mark.parametrize(
    ("spend", "delta"), [(cl.epsilon(3), "1e-5"), (cl.rho("0.1"), "0"), (cl.rho("0.1"), 1), (cl.rho("0.1"), "much")]
)
def test_what_cannot_be_published_is_refused_before_the_charge(tmp_path: Any, spend: Any, delta: Any) -> None:
    with cl.Ledger.in_folder(tmp_path) as ledger:
        account = ledger.open_account("rows", cl.rho(1) if spend.measure == "rho" else cl.epsilon(9))
        model = PATEClassifier(spend, public=POOL, teachers=50, classes=[0, 1], data_dependent=delta, account=account)
        with pytest.raises(BadInput):
            model.fit(ROWS, LABELS)
        assert not account.spent.amount

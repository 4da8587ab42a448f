"""k-means, trees and boosting on neighbouring tables: what they release tells no more about a row than they say.

The attacker knows both tables and sees everything a fit releases, step by step, not just the model. From a transcript
it works out how much likelier each step is under either table (by carrying the fit out again on both, with the
released values put in), and adds up: no attack on the same outputs can be stronger (Neyman & Pearson). The row in doubt
is the worst we can think of: alone in its cells, far from all others, or of a class that nobody else has.
"""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloister.attack import Batched, audit
from cloister.learn import additive, growth, lloyd
from cloister.learn.additive import boost
from cloister.learn.ball import read_ground
from cloister.learn.binned import BinnedRows
from cloister.learn.bins import read_axes, read_columns
from cloister.learn.boosting import _classes_task
from cloister.learn.boosting_regressor import _number_task, _survey, _Target
from cloister.learn.growth import grow
from cloister.learn.lloyd import cluster
from cloister.learn.purse import Purse
from cloister.learn.splits import SENSITIVITY, Apart
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss, epsilon, rho
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace, PermuteAndFlip
from cloister.privacy.meter import Meter
from cloister.privacy.noise import SeededSource, Source

pytestmark = pytest.mark.statistical

SURE, N = 1 - 1e-7, 300
Fit = Callable[[Any, Purse, Any], None]


def binned(rows: Any, labels: Any, classes: Any = (0, 1), bins: int = 2) -> BinnedRows:
    columns = read_columns(np.asarray(rows, dtype=float), None, None)
    axes = read_axes(columns.names, (0, 1), bins, None, bins)
    return BinnedRows(columns, np.asarray(labels), axes, None if classes is None else np.asarray(classes))


@pytest.fixture
def account(tmp_path: Path) -> Callable[[Loss], Account]:
    book = Ledger.in_folder(tmp_path)
    return lambda loss: book.open_account(f"audit-{loss.measure}", loss)


class Recording:
    """A meter that keeps what it releases. Noise and public chance come from different sources, so that the second
    can be had again."""

    def __init__(self, payer: Account, loss: Loss, noise: Source, public: str) -> None:
        self.source = SeededSource(public)
        self.kept: list[Any] = []
        self._meter = Meter(payer, loss, noise, Loss.nothing(loss.measure))

    def release(self, look: Callable[[], Any], mechanism: Any) -> Any:
        self.kept.append(self._meter.release(look, mechanism))
        return self.kept[-1]


class Replaying:
    """A meter that releases what was kept, and adds up how likely that is."""

    def __init__(self, kept: list[Any], public: str) -> None:
        self.source = SeededSource(public)
        self.log_likelihood = 0.0
        self._kept = iter(kept)

    def release(self, look: Callable[[], Any], mechanism: Any) -> Any:
        value = next(self._kept)
        self.log_likelihood += log_probability(mechanism, look(), value)
        return value


def log_probability(mechanism: Any, statistic: Any, value: Any) -> float:
    """Up to a constant that does not depend on the statistic."""
    if isinstance(mechanism, Apart):
        pairs = zip(statistic, value, strict=True)
        return sum(float(np.log(mechanism.one.probabilities(scores)[pick])) for scores, pick in pairs)
    gap = (np.asarray(value) - np.asarray(statistic)).astype(float)
    if isinstance(mechanism, DiscreteLaplace):
        return -float(np.abs(gap).sum() / float(mechanism.scale))
    assert isinstance(mechanism, DiscreteGaussian)
    return -float(np.square(gap / float(mechanism.sigma)).sum() / 2)


def evidence(fit: Fit, payer: Account, loss: Loss, tables: tuple[Any, Any], n: int) -> list[list[float]]:
    """For n fits on each table, the log-likelihood ratio of all they released."""
    noise, found = SeededSource(f"{fit.__name__} {loss}"), []
    for side in (0, 1):
        ratios = []
        for i in range(n):
            public = f"public {side} {i}"
            record = Recording(payer, loss, noise, public)
            fit(record, Purse(loss), tables[side])
            replays = [Replaying(record.kept, public) for _ in tables]
            for replay, table in zip(replays, tables, strict=True):
                fit(replay, Purse(loss), table)
            ratios.append(replays[1].log_likelihood - replays[0].log_likelihood)
        found.append(ratios)
    return found


def tree_of(meter: Any, budget: Purse, data: BinnedRows) -> None:
    grow(meter, budget, data, 2, Fraction(1))


def forest_of(meter: Any, budget: Purse, data: BinnedRows) -> None:
    for _ in range(2):
        grow(meter, budget, data, 1, Fraction(1, 2), 1)


def shapes_of(meter: Any, budget: Purse, data: BinnedRows) -> None:
    boost(meter, budget, data, _classes_task(2), 3, Fraction(1))


def three_shapes_of(meter: Any, budget: Purse, data: BinnedRows) -> None:
    boost(meter, budget, data, _classes_task(3), 3, Fraction(1))


def regression_of(meter: Any, budget: Purse, data: BinnedRows) -> None:
    target = _Target(-1.0, 1.0)
    mean, deviation = _survey(meter, budget.part("1/25"), data, target)
    boost(meter, budget, data, _number_task(target, mean, deviation), 3, 1 - Fraction(1, 25))


def centres_of(meter: Any, budget: Purse, rows: Any) -> None:
    cluster(meter, budget, read_ground((-1, 1), None, 2), rows, 2, 3)


SIX = [[0.1, 0.1], [0.2, 0.9], [0.3, 0.2], [0.1, 0.8], [0.2, 0.3], [0.4, 0.7]]
FEW, MORE = binned(SIX, [0] * 6), binned([*SIX, [0.9, 0.9]], [0] * 6 + [1])
FEW3, MORE3 = binned(SIX, [0, 1] * 3, (0, 1, 2)), binned([*SIX, [0.9, 0.9]], [0, 1] * 3 + [2], (0, 1, 2))
CALM, WILD = binned(SIX, [0.0] * 6, None), binned([*SIX, [0.9, 0.9]], [0.0] * 6 + [1.0], None)
NEAR = np.full((6, 2), -0.9)
FAR = np.vstack([NEAR, [[1.0, 1.0]]])

LOUD, PURE = rho(2), epsilon(4)
# The last number: how much of the loss the attacker must at least see, so that the audit is known to have power.
CASES = [
    (tree_of, (FEW, MORE), LOUD, 0.25),
    (tree_of, (FEW, MORE), PURE, 0.7),
    (tree_of, (FEW3, MORE3), LOUD, 0.25),
    (forest_of, (FEW, MORE), LOUD, 0.2),
    (forest_of, (FEW, MORE), PURE, 0.2),
    (shapes_of, (FEW, MORE), LOUD, 0.6),
    (shapes_of, (FEW, MORE), PURE, 0.7),
    (three_shapes_of, (FEW3, MORE3), LOUD, 0.6),
    (regression_of, (CALM, WILD), LOUD, 0.6),
    (centres_of, (NEAR, FAR), LOUD, 0.7),
    (centres_of, (NEAR, FAR), PURE, 0.7),
]


def seen(ratios: list[list[float]], loss: Loss) -> tuple[float, float]:
    """What the ratios show of the loss, and how far chance may carry that beyond it (less than once in 1e7).

    Pure: no transcript may be e^epsilon times likelier on either side, so the largest ratio counts. zCDP: the mean
    ratio is the divergence of order 1, which is at most rho (and smaller if large ratios count as 50).
    """
    if loss.measure == "epsilon":
        return float(np.abs(ratios).max()), 1e-9
    likelier = np.minimum([[-one for one in ratios[0]], ratios[1]], 50.0)
    best = likelier[likelier.mean(axis=1).argmax()]
    return float(best.mean()), 5.5 * float(best.std()) / len(best) ** 0.5


@pytest.mark.parametrize(
    ("fit", "tables", "loss", "least"), CASES, ids=[f"{case[0].__name__}, {case[2]}" for case in CASES]
)
def test_a_fit_tells_no_more_about_a_row_than_it_says_and_about_as_much(
    account: Any, fit: Fit, tables: tuple[Any, Any], loss: Loss, least: float
) -> None:
    ratios = evidence(fit, account(loss), loss, tables, N)
    amount, chance = seen(ratios, loss)
    assert least * float(loss.amount) <= amount <= float(loss.amount) + chance
    found = audit(Batched(lambda side, n: np.array(ratios[side][:n])), 0, 1, loss, n=N, confidence=SURE)
    assert found.verdict == "holds", str(found)


def one_feature(square: int) -> int:
    """A root that forgets that a row is in a cell of every feature."""
    return int((square / 2) ** 0.5)


def uncut(cells: Any, longest: int) -> Any:
    return cells


def half_as_sensitive(loss: Loss) -> Apart:
    return Apart(PermuteAndFlip.for_loss(SENSITIVITY // 2, loss, monotone=True))


FAULTS = [
    ("features forgotten", shapes_of, (FEW, MORE), LOUD, (additive, "_root_above", one_feature)),
    ("features forgotten", shapes_of, (FEW, MORE), PURE, (additive, "_root_above", lambda square: 2**14)),
    ("residuals not clipped", regression_of, (CALM, WILD), LOUD, (additive, "shorten", uncut)),
    ("rows not clipped", centres_of, (NEAR, FAR), LOUD, (lloyd, "shorten", uncut)),
    ("half the sensitivity", tree_of, (FEW, MORE), PURE, (growth, "chooser", half_as_sensitive)),
]


@pytest.mark.parametrize(
    ("fit", "tables", "loss", "fault"), [case[1:] for case in FAULTS], ids=[f"{case[0]}, {case[3]}" for case in FAULTS]
)
def test_a_fault_is_caught(
    account: Any, monkeypatch: Any, fit: Fit, tables: tuple[Any, Any], loss: Loss, fault: tuple[Any, str, Any]
) -> None:
    monkeypatch.setattr(*fault)
    amount, chance = seen(evidence(fit, account(loss), loss, tables, N), loss)
    assert amount > float(loss.amount) + chance

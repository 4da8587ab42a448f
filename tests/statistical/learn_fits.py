"""Fits without a ledger, thousands of them, on tables that differ by one canary; and what is seen of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cloister.learn.base.estimator import PrivateEstimator
from cloister.learn.trees.splits import Apart
from cloister.privacy.filter import BudgetShare, PrivacyFilter, budget_share
from cloister.privacy.ledger import Account
from cloister.privacy.loss import ROW, Loss
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace
from cloister.privacy.noise import SeededSource, Source
from cloister.privacy.release import Release

Table = Any
Fit = Callable[[Any, BudgetShare, Any], None]


class Keeping(PrivacyFilter):
    """A meter that keeps every number it released."""

    __slots__ = ("kept",)

    def release(self, look: Callable[[], Any], mechanism: Any) -> Any:
        value = super().release(look, mechanism)
        self.kept.append(np.ravel(np.asarray(value)).astype(np.float64))
        return value


def quick_noise(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Rounded normal noise in the place of exact, which takes most of a small fit's time. Exact samplers are audited
    elsewhere; here it is what the noise is put on that is doubted."""
    random = np.random.default_rng(seed)

    def draw(self: DiscreteGaussian, shape: Any, source: Any) -> Any:
        found = np.rint(random.normal(0, float(self.sigma), shape)).astype(np.int64)
        return int(found) if shape is None else found

    monkeypatch.setattr(DiscreteGaussian, "draw", draw)


def without_a_ledger(monkeypatch: pytest.MonkeyPatch, account: Account, source: Source, most: Loss) -> list[Keeping]:
    """Fits from now on pay nobody. The list grows by a meter for each of them."""
    meters: list[Keeping] = []

    def train(self: Any, steps: Any, data: Any = None) -> Any:
        budget = budget_share(self.spend)
        if self._meter is not None:
            return self._train_within(self._meter, steps, budget, data)
        meter = Keeping(account, most, source, Loss.nothing(most.measure))
        meter.kept = []
        meters.append(meter)
        model = steps(meter, budget)
        self.loss_ = budget.loss
        self.release_ = Release(model, budget.loss, ROW, "audited", {}, private=False)
        return model

    monkeypatch.setattr(PrivateEstimator, "_train", train)
    return meters


class Recording:
    """A meter that keeps what it releases. Noise and public chance come from different sources, so that the second
    can be had again."""

    def __init__(self, payer: Account, loss: Loss, noise: Source, public: str) -> None:
        self.source = SeededSource(public)
        self.kept: list[Any] = []
        self._meter = PrivacyFilter(payer, loss, noise, Loss.nothing(loss.measure))

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


def evidence(
    fit: Fit, payer: Account, loss: Loss, tables: tuple[Any, Any], n: int, most: Loss | None = None
) -> list[list[float]]:
    """For n fits on each table, the log-likelihood ratio of all they released.

    No attack on the same outputs is stronger (Neyman & Pearson). A meter stops what goes beyond `most`.
    """
    noise, found = SeededSource(f"{fit.__name__} {loss}"), []
    for side in (0, 1):
        ratios = []
        for i in range(n):
            public = f"public {side} {i}"
            record = Recording(payer, most or loss, noise, public)
            fit(record, BudgetShare(loss), tables[side])
            replays = [Replaying(record.kept, public) for _ in tables]
            for replay, table in zip(replays, tables, strict=True):
                fit(replay, BudgetShare(loss), table)
            ratios.append(replays[1].log_likelihood - replays[0].log_likelihood)
        found.append(ratios)
    return found


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

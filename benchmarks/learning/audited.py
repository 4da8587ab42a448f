"""Attacks every estimator on made-up rows and writes what was found to src/cloister/learn/audited.json.

    python benchmarks/learning/audited.py          # some minutes

Two tables differ in one row (the worst we can think of: alone in a corner, of a rare class). The attacker knows both,
sees every number that a fit releases, and works out how much likelier they are under either table; no attack on the
same numbers is stronger (Neyman & Pearson). What an audit proves from many fits is a lower bound of the loss; the claim
is an upper one. All noise comes from seeds, so a run can be repeated (tests/statistical/test_learn_audited.py).
"""

import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np

import cloister as cl
from cloister import learn
from cloister.attack import audit
from cloister.learn.audited import FILE
from cloister.learn.model_selection.candidates import fit_within
from cloister.learn.trees.splits import Apart
from cloister.privacy.accountant.planned import NoiseSteps, PlannedRelease
from cloister.privacy.filter import PrivacyFilter, budget_share
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import DiscreteGaussian
from cloister.privacy.noise import SeededSource

CLAIM, SAMPLES, CONFIDENCE = cl.epsilon(8, delta="1e-5"), 400, 0.95
BOX: dict[str, Any] = {"bounds": (0, 1)}
CLASSES: dict[str, Any] = {"classes": [0, 1]}
MODELS: dict[str, dict[str, Any]] = {
    "LogisticRegression": {**BOX, **CLASSES, "method": "quadratic"},
    "LinearSVC": {**BOX, **CLASSES},
    "GaussianNB": {**BOX, **CLASSES},
    "CategoricalNB": {**CLASSES, "categories": 2},
    "MixedNB": {**BOX, **CLASSES, "bins": 4},
    "DecisionTreeClassifier": {**BOX, **CLASSES},
    "RandomForestClassifier": {**BOX, **CLASSES, "n_estimators": 3},
    "GradientBoostingClassifier": {**BOX, **CLASSES, "rounds": 4},
    "LinearRegression": {**BOX, "target_bounds": (0, 1)},
    "Ridge": {**BOX, "target_bounds": (0, 1)},
    "GradientBoostingRegressor": {**BOX, "target_bounds": (0, 1), "rounds": 4},
    "NeuralNetworkClassifier": {**BOX, **CLASSES, "hidden_layer_sizes": (4,), "max_iter": 4},
    "NeuralNetworkRegressor": {**BOX, "target_bounds": (0, 1), "hidden_layer_sizes": (4,), "max_iter": 4},
    "KMeans": {**BOX, "n_clusters": 2, "max_iter": 3},
    "PCA": {"n_components": 2, **BOX},
}


def sides() -> tuple[Any, Any]:
    """Six rows near one corner, and the same with one row more in the other corner, of the class that is rarer."""
    few = np.floor(np.random.default_rng(0).random((6, 2)) * 1.2)
    label = np.array([0, 1, 0, 0, 1, 0])
    return (few, label), (np.vstack([few, [[1.0, 1.0]]]), np.append(label, 1))


class Recording(PrivacyFilter):
    """Keeps what it releases. Noise and public chance come from different sources, so that the second can be had
    again."""

    __slots__ = ("kept", "noise")

    def release(self, look: Callable[[], Any], mechanism: Any) -> Any:
        self.spent = self.spent + self.account.price(mechanism)
        assert self.spent <= self.total
        if isinstance(mechanism, PlannedRelease):
            return look()(RecordingSteps(mechanism.steps, self.noise, self.kept))
        self.kept.append(mechanism.release(look(), self.noise))
        return self.kept[-1]


class Replaying(PrivacyFilter):
    """Releases what was kept, and adds up how likely that is."""

    __slots__ = ("kept", "likely")

    def release(self, look: Callable[[], Any], mechanism: Any) -> Any:
        if isinstance(mechanism, PlannedRelease):
            return look()(ReplayingSteps(mechanism.steps, self.source, self))
        value = next(self.kept)
        self.likely += log_probability(mechanism, look(), value)
        return value


class RecordingSteps(NoiseSteps):
    """Keeps the noisy sum of every step of a planned release."""

    def __init__(self, steps: Any, source: Any, kept: list[Any]) -> None:
        super().__init__(steps, source)
        self.kept = kept

    def release(self, integers: Any) -> Any:
        self.kept.append(super().release(integers))
        return self.kept[-1]


class ReplayingSteps(NoiseSteps):
    """Releases the noisy sums that were kept, and adds up how likely they are."""

    def __init__(self, steps: Any, source: Any, meter: Any) -> None:
        super().__init__(steps, source)
        self.meter = meter

    def release(self, integers: Any) -> Any:
        value, step = next(self.meter.kept), self._next()
        self.done += 1
        gap = (value - integers).astype(float) / float(step.sigma)  # type: ignore[union-attr]
        self.meter.likely -= float(np.square(gap).sum() / 2)
        return value


def log_probability(mechanism: Any, statistic: Any, value: Any) -> float:
    """Up to a constant that does not depend on the statistic."""
    if isinstance(mechanism, Apart):
        pairs = zip(statistic, value, strict=True)
        return sum(float(np.log(mechanism.one.probabilities(scores)[pick])) for scores, pick in pairs)
    gap = (np.asarray(value) - np.asarray(statistic)).astype(float)
    assert isinstance(mechanism, DiscreteGaussian)
    return -float(np.square(gap / float(mechanism.sigma)).sum() / 2)


def attack(name: str, samples: int = SAMPLES) -> dict[str, Any]:
    """Try to refute the claim of one estimator."""
    noise, tables, numbers = SeededSource(f"audit of {name}"), sides(), itertools.count()
    with tempfile.TemporaryDirectory() as folder, cl.Ledger.in_folder(folder) as book:
        account, spend = book.open_account("audit", CLAIM), budget_share(CLAIM).loss

        def fit(meter: PrivacyFilter, table: Any) -> None:
            fit_within(meter, getattr(learn, name)(spend, **MODELS[name]), *table)

        def evidence(side: int) -> float:
            public = f"public {next(numbers)}"
            meters = [kind(account, spend, SeededSource(public), Loss.nothing(spend.measure))
                      for kind in (Recording, Replaying, Replaying)]  # fmt: skip
            record, *replays = meters
            record.kept, record.noise = [], noise
            fit(record, tables[side])
            for replay, table in zip(replays, tables, strict=True):
                replay.kept, replay.likely = iter(record.kept), 0.0
                fit(replay, table)
            return float(replays[1].likely - replays[0].likely)

        found = audit(evidence, 0, 1, CLAIM, n=samples, confidence=CONFIDENCE)
    return {
        "lower_bound": round(found.lower_bound, 4),
        "allowed": round(found.allowed, 4),
        "delta": found.delta,
        "verdict": found.verdict,
    }


def main() -> None:
    """Attack all of them, or those that are named; one fit after another."""
    chosen = sys.argv[1:] or list(MODELS)
    known = json.loads(FILE.read_text(encoding="utf-8"))["found"] if FILE.exists() else {}
    for name in chosen:
        begun = time.perf_counter()
        known[name] = attack(name)
        print(f"{name:<28} {known[name]}  {time.perf_counter() - begun:.0f} s", flush=True)
    about = {
        "claim": str(CLAIM),
        "samples": SAMPLES,
        "confidence": CONFIDENCE,
        "made": datetime.now(UTC).date().isoformat(),
        "attack": "everything that a fit releases, on two made-up tables that differ in one row",
    }
    record = {"about": about, "found": {name: known[name] for name in MODELS if name in known}}
    FILE.write_text(json.dumps(record, indent=2) + os.linesep, encoding="utf-8")


if __name__ == "__main__":
    main()

"""Audits of mechanisms whose epsilon is known, and of training in one run with a thousand canaries."""

import secrets
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import optax

import cloister as cl
from cloister import learn
from cloister.attack import Batched, audit, audit_one_run
from cloister.attack.intervals import epsilon_of_shift
from cloister.learn.model_selection.candidates import fit_within
from cloister.privacy.filter import PrivacyFilter, budget_share
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import DiscreteGaussian
from cloister.privacy.noise import SYSTEM, SeededSource

__all__ = ["DELTA", "FAMILIES", "TRAINED", "gaussian", "one_run"]

DELTA = "1e-5"
GRID = 2**20  # grid steps between the two inputs: the discrete law is the normal one to fifteen digits
FAMILIES = (None, "gaussian", "normal scores")
STEPS = 20
GUESSES = {1: 600, 4: 200, 8: 100}  # of a thousand canaries; chosen on simulated Gaussian scores


def shift_for(epsilon: float, delta: float) -> float:
    """Return the distance of two Gaussian means, in deviations, that has this epsilon at delta."""
    low, high = 0.0, 20.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of_shift(middle, delta) < epsilon else (low, middle)
    return low


def gaussian(epsilon: float, delta: str, samples: int, repeats: int, few: int, audits: int) -> dict[str, Any]:
    """Audit our Gaussian mechanism at its true epsilon, and count claims refuted in repeats of fewer samples.

    Bounds are medians over several audits, and seconds those of the slowest.
    """
    shift = shift_for(epsilon, float(delta))
    law, claim = DiscreteGaussian.for_loss(GRID, cl.rho(shift**2 / 2)), cl.epsilon(epsilon, delta=delta)
    mechanism = Batched(lambda data, n: data + law.release(np.zeros(n, dtype=np.int64), SYSTEM))
    found: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
    for name, family in (("known", "gaussian"), ("unknown", None)):
        bounds, seconds = [], []
        for _ in range(audits):
            start = time.perf_counter()
            bounds.append(audit(mechanism, 0, GRID, claim, n=samples, family=family).lower_bound)
            seconds.append(time.perf_counter() - start)
        found[name] = statistics.median(bounds), max(seconds)
        found[f"{name} alarms"] = sum(
            audit(mechanism, 0, GRID, claim, n=few, family=family).broken for _ in range(repeats)
        )
    return found


class Recording(PrivacyFilter):
    """Keeps every number that a fit releases."""

    __slots__ = ("kept",)

    def release(self, look: Callable[[], Any], mechanism: Any) -> Any:
        self.kept.append(np.asarray(super().release(look, mechanism), dtype=np.float64))
        return self.kept[-1]


def logistic(claim: Loss, inside: Any) -> Any:
    """Fit LogisticRegression to the canaries that came in and to rows at zero; score canaries by all its gradients.

    A canary is as long as a row may be, and most rows are at zero, so each of its gradients is clipped to the norm that
    the noise is for, in the direction of its own feature.
    """
    size = len(inside)
    rows = np.concatenate((np.eye(size)[inside], np.zeros((5 * size, size))))
    labels = np.arange(len(rows)) < inside.sum()
    spend = budget_share(claim).loss
    with tempfile.TemporaryDirectory() as folder, cl.Ledger.in_folder(folder) as book:
        meter = Recording(book.open_account("audit", claim), spend, SYSTEM, Loss.nothing(spend.measure))
        meter.kept = []
        facts = {"data_norm": 1, "classes": [0, 1], "method": "gradient"}
        fit_within(meter, learn.LogisticRegression(spend, **facts), rows, labels.astype(int))
    gradients = [kept for kept in meter.kept if kept.shape == (size + 1, 1)]
    return -sum(gradients)[:-1, 0]


def descent(claim: Loss, inside: Any) -> Any:
    """Train a linear model by DP-SGD, whose gradient for a row is the row; score canaries by its parameters."""
    size = len(inside)
    start = {"w": np.zeros(size, np.float32)}
    rows = np.eye(size, dtype=np.float32)[inside]
    with tempfile.TemporaryDirectory() as folder:
        result = learn.deep.train(
            minus_product, start, (rows,), spend=claim, rate=1, lot=size // 2, steps=STEPS, clip=1.0,
            optimizer=optax.sgd(1.0), ledger=folder,
        )  # fmt: skip
    return np.asarray(result.params["w"])


def minus_product(params: Any, row: Any) -> Any:
    return -(params["w"] * row).sum()


TRAINED = {"logistic regression": logistic, "DP-SGD": descent}


def one_run(what: str, epsilon: int, canaries: int) -> dict[str, Any]:
    """Train once with half of the canaries, and bound epsilon in three ways from the same coins and scores.

    The attacker sees what training releases. Each canary is one row, on a feature of its own.
    """
    claim, seed, seen = cl.epsilon(epsilon, delta=DELTA), secrets.token_hex(8), list[Any]()
    start = time.perf_counter()

    def train(inside: Any) -> Any:
        if not seen:
            seen.append(TRAINED[what](claim, inside))
        return seen[0]

    bounds = {
        str(family): audit_one_run(
            train, lambda scores: scores, canaries, claim, guesses=GUESSES[epsilon] * canaries // 1000, family=family,
            source=SeededSource(seed),
        ).lower_bound
        for family in FAMILIES
    }  # fmt: skip
    return {"what": what, "epsilon": epsilon, "bounds": bounds, "seconds": time.perf_counter() - start}

"""Audit a training function in one run: many canaries, each a fair coin (Steinke, Nasr & Jagielski 2023).

    coin for each canary ──► train once on those that came in ──► score each canary ──► guess the surest ──► bound

Every canary is a row of its own. A guess is right with probability at most e^epsilon/(1 + e^epsilon) under pure
privacy, and right guesses exceed a binomial count only as far as delta allows (their Theorem 5.2). So one run with
hundreds of canaries refutes a claim for which `audit` would train thousands of models. It is weaker for small epsilon,
and it sees only faults that show in the canaries' own scores: use `audit` on neighbouring tables beside it.

Where the training's trade-off curve is that of Gaussian noise, guesses are bounded along the whole curve (Mahloujifar,
Melis & Chaudhuri 2024, "Auditing f-differential privacy in one run"), which shows more of a large epsilon.

A bound from guesses holds however the scores of canaries hang together, and pays for that: with a thousand canaries it
shows little of an epsilon of 1. Where each canary moves a coordinate of its own that has Gaussian noise of its own, the
distance of the two mean scores shows more (Andrew, Kairouz, Oh, Oprea, McMahan & Suriyakumar 2024, "One-shot empirical
privacy estimation for federated learning").
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.attack.finding import EpsilonBound, Finding, clopper_pearson
from cloister.attack.intervals import curve, epsilon_of_shift
from cloister.attack.mechanisms.audit import check_claim
from cloister.privacy.errors import BadInput, BadNumber, BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.noise import SYSTEM, Source, bernoulli
from cloister.privacy.number import lower_text

__all__ = ["Family", "OneRunAudit", "audit_one_run", "epsilon_from_guesses", "shift_from_guesses", "shift_from_scores"]

Family = Literal["gaussian", "normal scores"]

_DELTAS = 12  # points of a rho's curve that are tried; each at a share of the risk


@dataclass(frozen=True, slots=True)
class OneRunAudit:
    """The result of an audit in one run.

    Attributes:
        claim: the loss that was tested.
        lower_bound: epsilon is at least this at `delta`, with the stated confidence.
        allowed: the epsilon that the claim allows at `delta`.
        delta: the claim's delta; for a rho, a point of the curve that it implies.
        right: right guesses.
        guesses: all guesses.
        canaries: the number of canaries.
        confidence: the chance that `lower_bound` is not above the truth.
    """

    claim: Loss
    lower_bound: float
    allowed: float
    delta: float
    right: int
    guesses: int
    canaries: int
    confidence: float

    @property
    def broken(self) -> bool:
        """Return True if the claim is refuted."""
        return self.lower_bound > self.allowed

    @property
    def verdict(self) -> str:
        """Return `"broken"` if the claim is false, `"holds"` if this audit did not refute it, which is no proof."""
        return "broken" if self.broken else "holds"

    def finding(self, target: str) -> Finding:
        """Return the audit as a finding about a training function, for a report."""
        return Finding(
            attack="audit in one run",
            target=target,
            access="white box",
            knowledge=f"{self.canaries:,} canaries, each of which was trained with or not, and the model",
            measure="guesses of canaries that are right",
            success=self.right / self.guesses,
            interval=clopper_pearson(self.right, self.guesses),
            baseline=0.5,
            attempts=self.guesses,
            epsilon=EpsilonBound(self.lower_bound, self.delta, self.confidence, self.allowed),
            claim=self.claim,
            remedies=("Check clipping, sampling and accounting of the training function.",) if self.broken else (),
            notes=("It sees only faults that show in the canaries' own scores.",),
        )

    def __str__(self) -> str:
        at = f" at delta {self.delta:.3g}" if self.delta else ""
        return (
            f"{self.verdict}: claim {self.claim}: epsilon ≥ {lower_text(self.lower_bound, 4)}, allowed "
            f"{self.allowed:.4g}{at}\n{self.right} of {self.guesses} guesses right, {self.canaries} canaries, one run, "
            f"confidence {100 * self.confidence:.10g} %"
        )


def audit_one_run(
    train: Callable[[NDArray[np.bool_]], Any],
    score: Callable[[Any], ArrayLike],
    canaries: int,
    claim: Loss,
    *,
    guesses: int | None = None,
    confidence: float = 0.95,
    family: Family | None = None,
    source: Source | None = None,
) -> OneRunAudit:
    """Try to refute the claimed loss of a training function in one run.

    Args:
        train: trains with the canaries for which its argument is True, beside any fixed rows, and returns the model.
        score: returns one number for each canary from the model: high for one that it was trained with.
        canaries: the number of canaries. Each is one unit of the claim, and no other row depends on it.
        claim: the loss that the training states, for a unit added or removed.
        guesses: how many canaries are guessed, half of them in and half of them out: those with the highest and the
            lowest scores. A quarter of them unless given; chosen before the run.
        confidence: the chance that a true claim survives is at least this.
        family: "gaussian" if the training is as private as Gaussian noise of some deviation, such as DP-SGD with many
            steps, nearly: a bound along that curve, which means nothing for other training. "normal scores" if besides
            each score is normal with one variance and independent of the others, as for canaries on coordinates of
            their own: a bound from the mean scores, which means nothing where that is not so.
        source: the source of the coins.

    Privacy: for use on made-up rows. It charges no ledger, and shows the scores of its canaries.

    >>> from cloister.privacy.loss import epsilon
    >>> from cloister.privacy.noise import SeededSource
    >>> leaks = audit_one_run(lambda inside: inside, lambda model: model, 200, epsilon(1), source=SeededSource(1))
    >>> leaks.verdict, leaks.right
    ('broken', 50)
    """
    check_claim(claim)
    if isinstance(canaries, bool) or not isinstance(canaries, int) or canaries < 10:
        raise BadNumber(f"canaries is a whole number of at least 10, got {canaries!r:.40}.")
    guessed = max(2, canaries // 4) if guesses is None else guesses
    if isinstance(guessed, bool) or not isinstance(guessed, int) or not 2 <= guessed <= canaries:
        raise BadNumber(f"guesses is a whole number from 2 to the number of canaries, got {guesses!r:.40}.")
    if not isinstance(confidence, int | float) or not 0 < confidence < 1:
        raise BadProbability(f"confidence must lie strictly between 0 and 1, got {confidence!r:.40}. Write 0.99.")
    if family not in (None, "gaussian", "normal scores"):
        raise BadInput(f"family is 'gaussian', 'normal scores' or None, got {family!r:.40}.")
    inside = np.asarray(bernoulli("1/2", canaries, source or SYSTEM))
    scores = np.asarray(score(train(inside.copy())), dtype=np.float64)
    if scores.shape != (canaries,):
        raise BadInput(f"score returns one number for each of {canaries} canaries, got shape {scores.shape}.")
    order = np.argsort(scores, kind="stable")
    low, high = order[: guessed // 2], order[len(order) - (guessed - guessed // 2) :]
    right = int((~inside[low]).sum() + inside[high].sum())
    if family is not None:
        shift, allowed = shift_from_guesses(right, guessed, canaries, confidence), curve(claim)
        if family == "normal scores":
            shift = shift_from_scores(scores[inside], scores[~inside], confidence)
        shown = np.array([epsilon_of_shift(shift, float(delta)) for delta in allowed.deltas])
        at = int(allowed.strain(shown).argmax())
        return OneRunAudit(
            claim, float(shown[at]), float(allowed.epsilons[at]), float(allowed.deltas[at]), right, guessed, canaries,
            confidence,
        )  # fmt: skip
    points = _curve(claim)
    bounds = [
        epsilon_from_guesses(right, guessed, canaries, delta, 1 - (1 - confidence) / len(points)) for _, delta in points
    ]
    best = max(range(len(points)), key=lambda i: bounds[i] - points[i][0])
    return OneRunAudit(claim, bounds[best], points[best][0], points[best][1], right, guessed, canaries, confidence)


def epsilon_from_guesses(right: int, guesses: int, canaries: int, delta: float, confidence: float) -> float:
    """Return the largest epsilon that so many right guesses refute at this delta and confidence; 0 for none."""
    low, high = 0.0, 1.0
    if _chance(right, guesses, canaries, 0.0, delta) > 1 - confidence:
        return 0.0
    while high < 64 and _chance(right, guesses, canaries, high, delta) <= 1 - confidence:
        low, high = high, high * 2
    for _ in range(50):
        middle = (low + high) / 2
        if _chance(right, guesses, canaries, middle, delta) <= 1 - confidence:
            low = middle
        else:
            high = middle
    return low


def shift_from_guesses(right: int, guesses: int, canaries: int, confidence: float) -> float:
    """Return the largest distance of Gaussian means, in deviations, that so many right guesses refute; 0 for none."""
    low, high = 0.0, 1.0
    if not _refuted(right, guesses, canaries, 0.0, 1 - confidence):
        return 0.0
    while high < 64 and _refuted(right, guesses, canaries, high, 1 - confidence):
        low, high = high, high * 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _refuted(right, guesses, canaries, middle, 1 - confidence) else (low, middle)
    return low


def shift_from_scores(inside: ArrayLike, outside: ArrayLike, confidence: float) -> float:
    """Return a distance of two normal laws' means, in deviations, that the truth is not below; 0 for none.

    Args:
        inside: scores of the canaries that came in.
        outside: scores of the others.
        confidence: the chance that the truth is not below the result.
    """
    from scipy.special import stdtrit

    sides = [np.asarray(side, dtype=np.float64) for side in (inside, outside)]
    if not all(np.isfinite(side).all() for side in sides):
        raise BadInput("family='normal scores' is for scores that are finite numbers, and some are not.")
    n, m = map(len, sides)
    if min(n, m) < 2:
        return 0.0
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in sides)
    gap = float(sides[0].mean() - sides[1].mean())
    if not squares > 0:
        return math.inf if gap > 0 else 0.0
    freedom = n + m - 2  # of the deviation's estimate: with few canaries it is far from normal
    shift = gap / math.sqrt(squares / freedom)
    wide = math.sqrt(1 / n + 1 / m + shift**2 / (2 * freedom))
    return max(0.0, shift - float(stdtrit(freedom, confidence)) * wide)


def _refuted(right: int, guesses: int, canaries: int, shift: float, risk: float) -> bool:
    """Return True if so many right guesses are less probable than this under Gaussian noise (Mahloujifar et al. 2024).

    With h and r the shares of wrong and right guesses among runs that are that good, each step takes one right guess
    away: what was wrong is at least the trade-off curve of what was right. More than all guesses is a contradiction.
    """
    from scipy.special import ndtr, ndtri

    good, bad = risk * right / canaries, risk * (guesses - right) / canaries
    for i in range(right - 1, -1, -1):
        worse = max(bad, float(ndtr(ndtri(good) - shift)))
        if worse == bad:
            break
        good, bad = min(good + i / (guesses - i) * (worse - bad), 1.0), worse
    return good + bad > guesses / canaries


def _chance(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Return the largest probability of so many right guesses under (epsilon, delta) (Steinke et al., Theorem 5.2).

    Pr[B >= v] + 2 m delta max_i Pr[v - i <= B < v]/i, for B binomial of r trials at e^epsilon/(1 + e^epsilon).
    """
    from scipy.stats import binom  # slow to import, and only audits need it

    law = binom(guesses, 1 / (1 + math.exp(-epsilon)))
    tail = float(law.sf(right - 1))
    if not delta or not right:
        return min(tail, 1.0)
    steps = np.arange(1, right + 1)
    below = np.cumsum(law.pmf(right - steps))
    return min(tail + 2 * canaries * delta * float((below / steps).max()), 1.0)


def _curve(claim: Loss) -> list[tuple[float, float]]:
    """Return the (epsilon, delta) pairs that a claim implies."""
    if claim.measure == "epsilon":
        return [(float(claim.amount), float(claim.delta))]
    deltas = [10.0 ** -(i / 2 + 2) for i in range(_DELTAS)]
    return [(float(claim.as_epsilon(delta).amount), float(claim.delta) + delta) for delta in deltas]

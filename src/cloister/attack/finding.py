"""Result of an attack: what the attacker knew, what was learned beyond guessing, and what would have stopped it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from cloister.attack.intervals import Floats, at_least, at_most, curve, epsilon_at_least
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.privacy.number import lower_text

__all__ = ["FOREIGN_ERRORS", "Access", "EpsilonBound", "Finding", "Roc", "clopper_pearson", "figure_text"]

Access = Literal["white box", "grey box", "black box", "labels only", "release"]

# What models and mechanisms of others raise at inputs that they cannot read.
FOREIGN_ERRORS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_THRESHOLDS = 8  # candidate thresholds that share the risk of a false alarm
_SPLIT_SEED = 20260101  # the split of the scores into halves; any split that ignores the scores is valid


def clopper_pearson(count: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return Clopper and Pearson's interval for a share; it holds for every n.

    >>> [round(end, 3) for end in clopper_pearson(0, 100)]
    [0.0, 0.036]
    """
    level = (1 - confidence) / 2
    return (float(at_least(count, n, level)), float(at_most(count, n, level))) if n else (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class EpsilonBound:
    """A lower bound on epsilon that the attack proves, beside what the claim allows.

    Attributes:
        lower: epsilon is at least this at `delta`, with the stated confidence.
        delta: the delta of the bound.
        confidence: the chance that `lower` is not above the truth.
        allowed: the epsilon that the claim allows at `delta`; None without a claim.
    """

    lower: float
    delta: float
    confidence: float
    allowed: float | None = None

    @property
    def broken(self) -> bool:
        """Return True if the claim is refuted."""
        return self.allowed is not None and self.lower > self.allowed

    def __str__(self) -> str:
        at = f" at delta {self.delta:.3g}" if self.delta else ""
        claim = "" if self.allowed is None else f"; the claim allows {self.allowed:.4g}"
        return f"epsilon ≥ {lower_text(self.lower, 4)}{at}, confidence {100 * self.confidence:.10g} %{claim}"


@dataclass(frozen=True, slots=True, eq=False)
class Roc:
    """Receiver operating characteristic: true positives against false positives over all thresholds.

    Attributes:
        positives: scores of the records that were members (or had the property), sorted.
        negatives: scores of the others, sorted. Higher means "member".
    """

    positives: Floats = field(repr=False)
    negatives: Floats = field(repr=False)

    @classmethod
    def of(cls, positives: ArrayLike, negatives: ArrayLike) -> "Roc":
        """Build a curve from scores.

        >>> Roc.of([3, 2], [1, 0]).auc
        1.0
        """
        sides = [np.sort(np.asarray(side, dtype=np.float64).ravel()) for side in (positives, negatives)]
        if not len(sides[0]) or not len(sides[1]):
            raise BadInput("a curve needs scores of at least one member and of at least one other record.")
        if np.isnan(sides[0]).any() or np.isnan(sides[1]).any():
            raise BadInput("an attack's scores are numbers, and some are NaN.")
        return cls(*sides)

    def points(self) -> tuple[Floats, Floats]:
        """Return false-positive and true-positive rates at every threshold, from (0, 0) to (1, 1)."""
        cuts = np.unique(np.concatenate((self.positives, self.negatives)))[::-1]
        false = 1 - np.searchsorted(self.negatives, cuts, side="left") / len(self.negatives)
        true = 1 - np.searchsorted(self.positives, cuts, side="left") / len(self.positives)
        return np.concatenate(([0.0], false)), np.concatenate(([0.0], true))

    @property
    def auc(self) -> float:
        """Probability that a member scores above another record; ties count half."""
        below = np.searchsorted(self.negatives, self.positives, side="left")
        upto = np.searchsorted(self.negatives, self.positives, side="right")
        return float((below + upto).mean() / 2 / len(self.negatives))

    def auc_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return an interval of the area under the curve: what DeLong's or Newcombe's contains.

        DeLong's takes any law of the scores, and is too short for few records: where all members score above all
        others it has no width. Newcombe's (2006, method 5) takes the variance at each end of the interval.
        """
        from scipy.special import ndtri

        below = np.searchsorted(self.negatives, self.positives, side="left")
        upto = np.searchsorted(self.negatives, self.positives, side="right")
        of_positives = (below + upto) / 2 / len(self.negatives)
        above = len(self.positives) - np.searchsorted(self.positives, self.negatives, side="right")
        atleast = len(self.positives) - np.searchsorted(self.positives, self.negatives, side="left")
        of_negatives = (above + atleast) / 2 / len(self.positives)
        variance = sum(
            float(np.var(part, ddof=1)) / len(part) if len(part) > 1 else 0.25 for part in (of_positives, of_negatives)
        )
        deviations = float(ndtri((1 + confidence) / 2))
        wide, area = deviations * variance**0.5, self.auc
        low, high = (_area_end(area, end, len(self.positives), len(self.negatives), deviations) for end in (0.0, 1.0))
        return max(0.0, min(low, area - wide)), min(1.0, max(high, area + wide))

    def tpr_at(self, fpr: float) -> float:
        """Return the largest true-positive rate among thresholds with at most this false-positive rate.

        >>> Roc.of([5, 4], [3, 2, 0]).tpr_at(0.0)
        1.0
        """
        false, true = self.points()
        return float(true[false <= fpr].max())

    @property
    def accuracy(self) -> float:
        """Largest accuracy over all thresholds where members and others are equally many."""
        false, true = self.points()
        return float((1 + (true - false).max()) / 2)

    def split(self) -> tuple["Roc", "Roc"]:
        """Return two curves, each on half of the scores, by a split that does not look at them."""
        draw = np.random.default_rng(_SPLIT_SEED)
        sides = [side[draw.permutation(len(side))] for side in (self.positives, self.negatives)]
        halves = [(side[: len(side) // 2], side[len(side) // 2 :]) for side in sides]
        return Roc.of(halves[0][0], halves[1][0]), Roc.of(halves[0][1], halves[1][1])

    def balanced_accuracy(self, confidence: float = 0.95) -> tuple[float, tuple[float, float]]:
        """Return accuracy and interval on one half of the scores at the threshold that the other half chooses."""
        choosing, proving = self.split()
        cut = _best_cut(choosing)
        level = 1 - (1 - confidence) / 2
        hits = int((proving.positives >= cut).sum())
        false = int((proving.negatives >= cut).sum())
        true_range = clopper_pearson(hits, len(proving.positives), level)
        false_range = clopper_pearson(false, len(proving.negatives), level)
        value = (1 + hits / len(proving.positives) - false / len(proving.negatives)) / 2
        return value, ((1 + true_range[0] - false_range[1]) / 2, (1 + true_range[1] - false_range[0]) / 2)

    def epsilon_bound(
        self, *, delta: float = 0.0, claim: Loss | None = None, confidence: float = 0.95
    ) -> EpsilonBound | None:
        """Return the largest lower bound on epsilon: thresholds are chosen on one half, the bound holds on the other.

        Holds if the scores are independent over records. Shadow models that share training rows make them slightly
        dependent: such a bound is an estimate, and the finding says so.

        Args:
            delta: the delta of the bound without a claim.
            claim: the loss that is tested; a rho is tested along its curve.
            confidence: the chance that the bound is not above the truth.
        """
        if min(len(self.positives), len(self.negatives)) < 4:
            return None
        choosing, proving = self.split()
        deltas = np.array([delta]) if claim is None else curve(claim).deltas
        best: tuple[float, float, int] | None = None
        events = _events(choosing, deltas)
        for cut, swapped in events:
            often, seldom = (
                (proving.negatives, proving.positives) if swapped else (proving.positives, proving.negatives)
            )
            counts = [int((side < cut).sum() if swapped else (side >= cut).sum()) for side in (often, seldom)]
            bounds = _bounds(counts, (len(often), len(seldom)), (1 - confidence) / len(events), deltas)[0]
            for place, bound in enumerate(bounds):
                allowed = 1e-9 if claim is None else max(float(curve(claim).epsilons[place]), 1e-9)
                strain = float(bound) / allowed
                if best is None or strain >= best[1]:  # where nothing is proved, the smallest delta says most
                    best = float(bound), strain, place
        assert best is not None
        allowed_here = None if claim is None else float(curve(claim).epsilons[best[2]])
        return EpsilonBound(best[0], float(deltas[best[2]]), confidence, allowed_here)


def _area_end(area: float, end: float, members: int, others: int, deviations: float) -> float:
    """Return the area between this end and the one seen from which the latter is so many deviations away."""
    half = (members + others) / 2 - 1

    def too_far(truth: float) -> bool:
        variance = truth * (1 - truth) * (1 + half * ((1 - truth) / (2 - truth) + truth / (1 + truth)))
        return abs(area - truth) > deviations * math.sqrt(variance / (members * others))

    outside, inside = end, area
    for _ in range(50):
        middle = (outside + inside) / 2
        outside, inside = (middle, inside) if too_far(middle) else (outside, middle)
    return outside


def _best_cut(roc: Roc) -> float:
    cuts = np.unique(np.concatenate((roc.positives, roc.negatives)))
    true = 1 - np.searchsorted(roc.positives, cuts, side="left") / len(roc.positives)
    false = 1 - np.searchsorted(roc.negatives, cuts, side="left") / len(roc.negatives)
    return float(cuts[int(np.argmax(true - false))])


def _events(roc: Roc, deltas: Floats) -> list[tuple[float, bool]]:
    """Return thresholds with the best bounds on this half, half of them for each direction."""
    cuts = np.unique(np.concatenate((roc.positives, roc.negatives)))
    cuts = cuts[np.linspace(0, len(cuts) - 1, min(len(cuts), 400)).astype(int)]
    found: list[tuple[float, bool]] = []
    for swapped in (False, True):
        often, seldom = (roc.negatives, roc.positives) if swapped else (roc.positives, roc.negatives)
        below = [np.searchsorted(side, cuts, side="left") for side in (often, seldom)]
        counts = below if swapped else [len(side) - count for side, count in zip((often, seldom), below, strict=True)]
        worth = _bounds(counts, (len(often), len(seldom)), 0.01, deltas).max(axis=1)
        order = np.argsort(-worth, kind="stable")[: _THRESHOLDS // 2]
        found += [(float(cuts[place]), swapped) for place in order]
    return found


def _bounds(counts: Any, sizes: tuple[int, int], level: float, deltas: Floats) -> Floats:
    return epsilon_at_least(counts[0], counts[1], sizes[0], level, deltas, others=sizes[1])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Finding:
    """Result of an attack on a model, a table, a query interface or an update.

    Attributes:
        attack: the attack's name.
        target: what was attacked.
        access: what the attacker reaches: parameters, gradients, probabilities, labels, or a release.
        knowledge: what the attacker knows besides, in one sentence.
        measure: what `success` counts, such as "guesses of membership that are right".
        success: the attacker's success, from 0 to 1.
        interval: 95 % interval of the success.
        baseline: success of the best guess without the target.
        attempts: number of guesses or records behind `success`.
        roc: curve over all thresholds, if the attack gives scores.
        epsilon: lower bound on epsilon that the attack proves; None if it does not speak about one.
        claim: the loss that the target claims.
        risk: for each record attacked, the probability that the conclusion about it is right. As sensitive as rows.
        figures: numbers that only this attack has, such as queries or bits.
        pictures: SVG or HTML fragments, each under its title; never with a record of the owner's.
        remedies: what would have stopped it.
        notes: limits of this run.
    """

    attack: str
    target: str
    access: Access
    knowledge: str
    measure: str
    success: float
    interval: tuple[float, float]
    baseline: float
    attempts: int
    roc: Roc | None = field(default=None, repr=False)
    epsilon: EpsilonBound | None = None
    claim: Loss | None = None
    risk: Floats | None = field(default=None, repr=False)
    figures: Mapping[str, float | int | str] = field(default_factory=dict)
    pictures: Mapping[str, str] = field(default_factory=dict, repr=False)
    remedies: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def advantage(self) -> float:
        """Success beyond the best guess, as a share of what guessing leaves open; 0 is nothing, 1 is everything."""
        left = 1 - self.baseline
        return (self.success - self.baseline) / left if left > 0 else 0.0

    @property
    def learned(self) -> bool:
        """Return True if the whole interval lies above the best guess, or if the loss is proved to be above 0.

        The second shows an attack that recognises a few records and errs about all others.
        """
        return self._guesses_better or (self.epsilon is not None and self.epsilon.lower > 0)

    @property
    def _guesses_better(self) -> bool:
        return self.interval[0] > self.baseline

    @property
    def broken(self) -> bool:
        """Return True if the attack refutes the claim."""
        return self.epsilon is not None and self.epsilon.broken

    @property
    def verdict(self) -> str:
        """One sentence: what was learned, and whether a claim is refuted."""
        if self.broken:
            return "The claim is refuted."
        if not self.learned:
            return "Nothing beyond guessing was learned that so many attempts can show. This is no proof of safety."
        strength = "a little" if self.advantage < 0.1 else "much" if self.advantage >= 0.5 else "something"
        tested = self.epsilon is not None and self.epsilon.allowed is not None
        held = " The claim is not refuted, which is no proof of it." if tested else ""
        if not self._guesses_better:
            return f"The attack learns something beyond guessing, of a few records only.{held}"
        return f"The attack learns {strength} beyond guessing.{held}"

    def to_json(self) -> dict[str, Any]:
        """Return figures and sentences, without the risk of each record."""
        roc = self.roc
        return {
            "attack": self.attack,
            "target": self.target,
            "access": self.access,
            "knowledge": self.knowledge,
            "measure": self.measure,
            "success": self.success,
            "interval": list(self.interval),
            "baseline": self.baseline,
            "advantage": self.advantage,
            "attempts": self.attempts,
            "verdict": self.verdict,
            "auc": None if roc is None else roc.auc,
            "auc_interval": None if roc is None else list(roc.auc_interval()),
            "tpr_at_0.1%": None if roc is None else roc.tpr_at(0.001),
            "tpr_at_1%": None if roc is None else roc.tpr_at(0.01),
            "epsilon_lower": None if self.epsilon is None else self.epsilon.lower,
            "epsilon_allowed": None if self.epsilon is None else self.epsilon.allowed,
            "delta": None if self.epsilon is None else self.epsilon.delta,
            "claim": None if self.claim is None else str(self.claim),
            "figures": dict(self.figures),
            "remedies": list(self.remedies),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        lines = [
            f"{self.attack} against {self.target}",
            f"  {self.verdict}",
            f"  attacker  {self.access}: {self.knowledge}",
            f"  success   {self.success:.1%} of {self.measure} (95 % interval {self.interval[0]:.1%} to "
            f"{self.interval[1]:.1%}); {self.baseline:.1%} by guessing; {self.attempts:,} attempts",
        ]
        if self.roc is not None:
            low, high = self.roc.auc_interval()
            lines.append(
                f"  curve     AUC {self.roc.auc:.3f} ({low:.3f} to {high:.3f}); true positives "
                f"{self.roc.tpr_at(0.001):.2%} at 0.1 % false positives, {self.roc.tpr_at(0.01):.2%} at 1 %"
            )
        if self.epsilon is not None:
            lines.append(f"  loss      {self.epsilon}")
        lines += [f"  {name}  {figure_text(figure)}" for name, figure in self.figures.items()]
        lines += [f"  remedy    {sentence}" for sentence in self.remedies]
        lines += [f"  note      {sentence}" for sentence in self.notes]
        return "\n".join(lines)


def figure_text(value: float | int | str) -> str:
    """Return a figure of a finding as text."""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"

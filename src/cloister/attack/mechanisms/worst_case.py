"""Audit on the worst of many pairs of neighbouring inputs, searched for by several divergences.

    pairs ──► few samples of each ──► divergences, as shares of ──► the worst half, ──► fresh samples of
                                      what the claim allows         again and again     the worst pair

In each round there are half as many pairs, and twice the samples of each (successive halving).

A fault often shows on few inputs alone: a value at a bound, an empty table, many equal rows. Different faults show in
different divergences: a moved mean in total variation, a missing tail in the hockey-stick divergence, too narrow a
scale in Rényi's. A pair goes on if any of them is large (Ding et al. 2018, "Detecting violations of differential
privacy", search over such pairs by p-values).

The search only ranks. The bound comes from `audit` on fresh samples of the pair that was chosen, so it holds as if
that pair had been known before.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cloister.attack.intervals import curve
from cloister.attack.mechanisms.audit import Audit, audit, check_claim, draw_outputs
from cloister.attack.mechanisms.events import choose, learn
from cloister.attack.mechanisms.outputs import Outputs, as_outputs
from cloister.privacy.errors import BadInput, BadNumber
from cloister.privacy.loss import Loss

__all__ = ["Candidate", "WorstCase", "audit_worst", "neighbour_patterns"]

_FEWEST = 200
_LEVEL = 0.05  # of the bounds that rank events
_BINS = 64
_ORDER = 4.0  # of the Rényi divergence: large enough for tails, small enough to be estimated


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pair of neighbouring inputs that was tried.

    Attributes:
        left, right: the pair.
        samples: samples a side in the last round that it reached.
        divergences: estimates by name, each divided by what the claim allows; above 1 is suspicious, and no proof.
    """

    left: Any = field(repr=False)
    right: Any = field(repr=False)
    samples: int
    divergences: Mapping[str, float]

    @property
    def strain(self) -> float:
        """Return the largest divergence, by which candidates are ranked."""
        return max(self.divergences.values())

    @property
    def told_by(self) -> str:
        """Return the name of the largest divergence."""
        return max(self.divergences, key=lambda name: self.divergences[name])


@dataclass(frozen=True, slots=True)
class WorstCase:
    """Result of a search, and the audit on fresh samples of the worst pair.

    Attributes:
        audit: the audit; its bound holds for the pair.
        candidates: all pairs, the worst first.
    """

    audit: Audit
    candidates: tuple[Candidate, ...]

    @property
    def worst(self) -> Candidate:
        """Return the pair that was audited."""
        return self.candidates[0]

    @property
    def broken(self) -> bool:
        """Return True if the claim is refuted."""
        return self.audit.broken

    def __str__(self) -> str:
        worst, tried = self.worst, len(self.candidates)
        chosen = (
            f"the worst of {tried:,} pairs of inputs, by {worst.told_by}" if tried > 1 else "the only pair of inputs"
        )
        shown = (f"{name} {_short(side)}" for name, side in (("left", worst.left), ("right", worst.right)))
        return "\n".join((str(self.audit), f"on {chosen}:", *shown))


def audit_worst(
    mechanism: Callable[[Any], Any],
    pairs: Sequence[tuple[Any, Any]],
    claim: Loss,
    *,
    n: int = 100_000,
    search: int = 2_000,
    confidence: float = 0.95,
) -> WorstCase:
    """Search for the pair of inputs on which a claim is worst, and try to refute the claim there.

    Args:
        mechanism: as for `audit`.
        pairs: pairs of neighbouring inputs under the claim's relation; the caller ensures that they are neighbours.
            `neighbour_patterns` gives pairs of vectors.
        claim: the loss that the mechanism states.
        n: samples a side of the audit.
        search: samples a side of each pair in the first round; doubled from round to round.
        confidence: the chance that a true claim survives is at least this.

    Privacy: for use on synthetic inputs. It calls the mechanism about 2 (n + pairs × search × rounds) times, charges no
        ledger, and shows its outputs.
    """
    check_claim(claim)
    if not callable(mechanism):
        raise BadInput(f"a mechanism must be a callable from data to an output, got a {type(mechanism).__name__}.")
    if isinstance(search, bool) or not isinstance(search, int) or search < _FEWEST:
        raise BadNumber(f"search is a whole number of at least {_FEWEST} samples a side, got {search!r:.40}.")
    listed = list(pairs)
    if not listed or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in listed):
        raise BadInput("pairs are (left, right) inputs that are neighbours, at least one. Try neighbour_patterns(5).")
    left_over, samples, dropped = listed, search, list[Candidate]()
    while True:
        ranked = sorted((_tried(mechanism, *pair, claim, samples) for pair in left_over), key=lambda one: -one.strain)
        if len(ranked) == 1:
            break
        half = (len(ranked) + 1) // 2
        dropped = ranked[half:] + dropped
        left_over, samples = [(one.left, one.right) for one in ranked[:half]], 2 * samples
    worst = ranked[0]
    found = audit(mechanism, worst.left, worst.right, claim, n=n, confidence=confidence)
    return WorstCase(found, (worst, *dropped))


def neighbour_patterns(width: int, step: float = 1.0) -> list[tuple[list[float], list[float]]]:
    """Return pairs of vectors whose entries differ by at most a step: answers to counting queries on neighbours.

    The patterns are those of Ding et al. 2018: one entry differs, all but one, all, or halves in opposite directions;
    from zeros, and from a vector whose first entry stands out.

    >>> neighbour_patterns(2)[0]
    ([0.0, 0.0], [1.0, 0.0])
    """
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise BadNumber(f"width is the number of entries, at least 1, got {width!r:.40}.")
    if not isinstance(step, int | float) or not 0 < step < math.inf:
        raise BadNumber(f"step is how far an entry may move, above 0, got {step!r:.40}.")
    found = []
    for base in (np.zeros(width), np.r_[10 * step, np.zeros(width - 1)]):
        for move in _moves(width):
            pair = base.tolist(), (base + step * move).tolist()
            if pair not in found:
                found.append(pair)
    return found


def _moves(width: int) -> Iterator[Any]:
    first, half = np.eye(width)[0], np.arange(width) < (width + 1) // 2
    yield from (first, -first, 1 - first if width > 1 else first, np.ones(width), -np.ones(width))
    yield from (first - (1 - first), half * 1.0, np.where(half, 1.0, -1.0))


# One pair


def _tried(mechanism: Callable[[Any], Any], left: Any, right: Any, claim: Loss, samples: int) -> Candidate:
    """Estimate the divergences of one pair."""
    sides = as_outputs(*(draw_outputs(mechanism, data, samples) for data in (left, right)))
    half = samples // 2
    learning, choosing = ((sides[0][part], sides[1][part]) for part in (slice(0, half), slice(half, None)))
    allowed, features = curve(claim), learn(*learning)
    best = choose(features, *choosing, allowed, _LEVEL)[0]
    found = {"hockey-stick": best.strain}
    for feature in features:
        left_scores, right_scores = (feature(side) for side in choosing)
        # Two halves that mix both sides equally have one law: their divergence is that of sampling alone.
        mixed = (np.concatenate((left_scores[start::2], right_scores[start::2])) for start in (0, 1))
        alone = _divergences(*_binned(*mixed))
        for name, value in _divergences(*_binned(left_scores, right_scores)).items():
            share = max(value - alone[name], 0.0) / _most(name, claim)
            found[name] = max(found.get(name, 0.0), share)
    return Candidate(left, right, samples, found)


def _binned(left: Outputs, right: Outputs) -> tuple[Any, Any]:
    """Return two smoothed laws of a feature over common bins."""
    pooled = np.sort(np.concatenate((left, right)))
    edges = np.unique(pooled[np.linspace(0, len(pooled) - 1, _BINS).astype(np.int64)])
    counts = [np.bincount(np.searchsorted(edges, side), minlength=len(edges) + 1) for side in (left, right)]
    # A bin that one side never reached counts as one sample there: the estimate stays finite, and too low.
    smooth = [count + 1.0 for count in counts]
    return smooth[0] / smooth[0].sum(), smooth[1] / smooth[1].sum()


def _divergences(left: Any, right: Any) -> dict[str, float]:
    """Return divergences of two laws, the larger of both directions."""
    ways = ((left, right), (right, left))
    return {
        "total variation": float(np.abs(left - right).sum() / 2),
        "Kullback-Leibler": max(float((p * np.log(p / q)).sum()) for p, q in ways),
        "Rényi": max(float(np.log((p**_ORDER * q ** (1 - _ORDER)).sum()) / (_ORDER - 1)) for p, q in ways),
    }


def _most(name: str, claim: Loss) -> float:
    """Return what a claim allows of a divergence; with a delta, what it would allow without."""
    if claim.measure == "rho":
        rho = float(claim.amount)
        most = {"Kullback-Leibler": rho, "Rényi": rho * _ORDER, "total variation": min(1.0, math.sqrt(rho / 2))}
        return max(most[name], 1e-12)
    epsilon, delta = min(float(claim.amount), 300.0), float(claim.delta)
    even = math.tanh(epsilon / 2)
    # Of two laws whose ratio is within e^±epsilon, those of randomised response are the farthest apart.
    likely = 1 / (1 + math.exp(-epsilon))
    power = likely**_ORDER * (1 - likely) ** (1 - _ORDER) + (1 - likely) ** _ORDER * likely ** (1 - _ORDER)
    most = {
        "total variation": min(1.0, even + delta),
        "Kullback-Leibler": epsilon * even + delta,
        "Rényi": math.log(power) / (_ORDER - 1) + delta,
    }
    return max(most[name], 1e-12)


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 100 else f"{text[:97]}..."

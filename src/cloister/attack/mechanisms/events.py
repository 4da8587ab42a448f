"""Events: sets of outputs that distinguish two inputs.

A feature gives every output a score; an event is a tail of the score. Features are learned on one part of the samples
and thresholds are chosen on another, so neither overfits; the bound comes from samples that neither has seen.

    the output, or each of its coordinates      shifted or truncated noise, wrong scale
    its lowest set bit                          floating-point noise, grids that depend on the data (Mironov 2012)
    likelihood ratio over bins, over whole rows the most powerful event, where the histogram resolves it
    best linear direction, sum, largest, least  noise reused or shared between coordinates
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cloister.attack.intervals import Floats, TradeoffCurve, epsilon_at_least
from cloister.attack.mechanisms.outputs import Outputs

__all__ = ["Event", "OutputFeature", "choose", "learn", "lowest_bit"]

_COLUMNS = 64  # of a wider output only the most informative coordinates are used
_ALONE = 6  # number of coordinates that are also used one by one
_BINS = 128
_THRESHOLDS = 200
_LARGEST = 1e140  # larger outputs count as this where a direction is learned
_ROUGH = 4  # strips of a bound that only ranks events


@dataclass(frozen=True, slots=True)
class OutputFeature:
    """A score for every output: `score(matrix of outputs, one row per run)` returns one number per run."""

    name: str
    score: Callable[[Outputs], NDArray[np.generic]]

    def __call__(self, outputs: Outputs) -> Floats:
        """Return the scores, as floats."""
        score = np.asarray(self.score(outputs), dtype=np.float64)
        return np.where(np.isnan(score), -np.inf, score)  # NaN is an output like any other


@dataclass(frozen=True, slots=True)
class Event:
    """A tail of a feature, and the side that makes it more likely."""

    feature: OutputFeature
    threshold: float
    above: bool
    swapped: bool  # True if the right input makes it more likely
    strain: float  # the share of the claim it reached on the samples for choosing

    def holds(self, scores: Floats) -> NDArray[np.bool_]:
        """Return a mask of the scores in the event."""
        return scores > self.threshold if self.above else scores <= self.threshold

    def __str__(self) -> str:
        return f"{self.feature.name} {'>' if self.above else '≤'} {self.threshold:.6g}"


def learn(left: Outputs, right: Outputs) -> list[OutputFeature]:
    """Learn features from samples."""
    width = left.shape[1]
    columns = _telling(left, right)
    features = [OutputFeature("likelihood ratio", _binned_ratio(left, right, columns))]
    for column in columns[:_ALONE]:
        name = "output" if width == 1 else f"output[{column}]"
        features.append(OutputFeature(name, partial(_column, column)))
        features.append(OutputFeature(f"lowest bit of {name}", partial(_lowest_bit_of, column)))
    if width > 1:
        features.append(OutputFeature("best direction", _direction(left, right, columns)))
        features.append(OutputFeature("sum", lambda rows: rows.sum(axis=1, dtype=np.float64)))
        features.append(OutputFeature("largest", lambda rows: rows.max(axis=1)))
        features.append(OutputFeature("least", lambda rows: rows.min(axis=1)))
    features.append(OutputFeature("likelihood ratio of the whole output", _whole_ratio(left, right)))
    return features


def choose(
    features: Sequence[OutputFeature], left: Outputs, right: Outputs, allowed: TradeoffCurve, level: float
) -> list[Event]:
    """Return the best event of every feature in each direction, best first."""
    chosen = []
    for feature in features:
        scores = np.sort(feature(left)), np.sort(feature(right))
        thresholds = _thresholds(np.sort(np.concatenate(scores)))
        below = [np.searchsorted(side, thresholds, side="right") for side in scores]
        for swapped in (False, True):
            often, seldom = below[::-1] if swapped else below
            # One list of candidates: first the tails at most t, then the tails above t.
            often, seldom = (np.concatenate((count, len(left) - count)) for count in (often, seldom))
            bounds = epsilon_at_least(often, seldom, len(left), level, allowed.deltas, strips=_ROUGH)
            strain = allowed.strain(bounds).max(axis=1)
            best = int(strain.argmax())
            above, index = divmod(best, len(thresholds))
            chosen.append(Event(feature, float(thresholds[index]), bool(above), swapped, float(strain[best])))
    return sorted(chosen, key=lambda event: -event.strain)


def lowest_bit(values: NDArray[np.generic]) -> Floats:
    """Return the exponent of the last set bit: 3.5 = 0b11.1 has -1, 12 = 0b1100 has 2; zero has 9,999."""
    if np.issubdtype(values.dtype, np.integer):
        integers, exponent = values.astype(np.int64), np.zeros(len(values), dtype=np.int64)
    else:
        finite = np.where(np.isfinite(values), values, 0.0)
        mantissa, exponent = np.frexp(finite.astype(np.float64))
        integers, exponent = np.ldexp(mantissa, 53).astype(np.int64), exponent - 53
    last = np.where(integers == 0, 1, np.abs((integers & -integers).astype(np.float64)))
    return np.where(integers == 0, 9_999.0, np.log2(last) + exponent)


def _column(column: int, rows: Outputs) -> Outputs:
    return rows[:, column]


def _lowest_bit_of(column: int, rows: Outputs) -> Floats:
    return lowest_bit(rows[:, column])


def _telling(left: Outputs, right: Outputs) -> list[int]:
    """Return the coordinates with the largest Kolmogorov distance between both sides, best first."""
    rows = min(len(left), 2_000)
    gaps = []
    for column in range(left.shape[1]):
        a, b = np.sort(left[:rows, column]), np.sort(right[:rows, column])
        grid = np.concatenate((a, b))
        gaps.append(np.abs(np.searchsorted(a, grid, "right") - np.searchsorted(b, grid, "right")).max())
    return [int(column) for column in np.argsort(gaps, kind="stable")[::-1][:_COLUMNS]]


def _thresholds(pooled: Floats) -> Floats:
    """Return scores at evenly spaced ranks, and at ranks that double towards both ends."""
    last = len(pooled) - 1
    doubling = 2 ** np.arange(max(last, 1).bit_length())
    ranks = np.concatenate((np.linspace(0, last, _THRESHOLDS).astype(np.int64), doubling - 1, last - doubling))
    return np.unique(pooled[np.clip(ranks, 0, last)])


def _log_ratio(left: NDArray[np.int64], right: NDArray[np.int64]) -> Floats:
    return np.log((left + 0.5) / (right + 0.5))


def _binned_ratio(left: Outputs, right: Outputs, columns: list[int]) -> Callable[[Outputs], Floats]:
    """Sum ln(left / right) by bin over coordinates: exact for independent coordinates, a classifier otherwise."""
    tables = []
    for column in columns:
        pooled = np.sort(np.concatenate((left[:, column], right[:, column])))
        edges = np.unique(pooled[np.linspace(0, len(pooled) - 1, _BINS).astype(np.int64)])
        places = (np.searchsorted(edges, side[:, column]) for side in (left, right))
        counts = [np.bincount(cells, minlength=len(edges) + 1) for cells in places]
        tables.append((column, edges, _log_ratio(counts[0], counts[1])))

    def score(rows: Outputs) -> Floats:
        return np.asarray(sum(ratios[np.searchsorted(edges, rows[:, c])] for c, edges, ratios in tables))

    return score


def _whole_ratio(left: Outputs, right: Outputs) -> Callable[[Outputs], Floats]:
    """Return ln(left / right) by exact output; an output not seen while learning scores zero."""
    a, b = _fingerprint(left), _fingerprint(right)
    values, index = np.unique(np.concatenate((a, b)), return_inverse=True)
    ratios = _log_ratio(
        np.bincount(index[: len(a)], minlength=len(values)), np.bincount(index[len(a) :], minlength=len(values))
    )

    def score(rows: Outputs) -> Floats:
        marks = _fingerprint(rows)
        nearest = np.minimum(np.searchsorted(values, marks), len(values) - 1)
        return np.where(values[nearest] == marks, ratios[nearest], 0.0)

    return score


def _fingerprint(rows: Outputs) -> NDArray[np.uint64]:
    """Return one hash word per row; equal rows get equal words. Collisions cost power, never soundness."""
    words = np.ascontiguousarray(rows + 0).view(np.uint64).reshape(rows.shape)  # + 0 turns -0.0 into 0.0
    marks = np.zeros(len(rows), dtype=np.uint64)
    for column in range(rows.shape[1]):
        marks = (marks ^ words[:, column]) * np.uint64(0x9E3779B97F4A7C15)
        marks ^= marks >> np.uint64(29)
    return marks


def _direction(left: Outputs, right: Outputs, columns: list[int]) -> Callable[[Outputs], Floats]:
    """Return Fisher's linear discriminant, which cancels noise that the coordinates share."""
    a, b = (_finite(side[:20_000, columns]) for side in (left, right))
    spread = np.cov(a, rowvar=False) + np.cov(b, rowvar=False)
    ridge = 1e-9 * max(float(np.trace(spread)) / len(columns), 1e-300)
    weights = np.linalg.lstsq(spread + ridge * np.eye(len(columns)), a.mean(axis=0) - b.mean(axis=0), rcond=None)[0]
    weights /= max(float(np.abs(weights).max()), 1e-300)
    return lambda rows: np.asarray(_finite(rows[:, columns]) @ weights)


def _finite(rows: Outputs) -> Floats:
    """Return numbers whose squares can be summed."""
    return np.clip(np.nan_to_num(rows.astype(np.float64)), -_LARGEST, _LARGEST)

"""The hockey-stick divergence of shuffled reports: sums of binomial tails, with their rounding bounded."""

import math
from typing import Any, NamedTuple

import numpy as np

from cloister.local.base.oracle import Floats

__all__ = [
    "Cover",
    "Pair",
    "alike",
    "covered_divergence",
    "divergence",
    "divergence_of_two",
    "expected",
    "weights",
    "yes_counts",
]

# Floats compute the divergence; Fractions state it. Binomial weights (Loader's saddle point) and tails (the incomplete
# beta function) have relative errors below 1e-10 for a million people (tested against exact integers). A hundred times
# that share of every summand's size is added to an upper bound and subtracted from a lower one. The truncation at both
# ends of C is bounded by Bernstein's inequality and added too.
_SLACK = 1e-8
_CUT = 1e-6
# The number of covering reports is cut into ranges as wide as this share of the number, if that gives more than this
# many or few people make it cheap.
_WIDTH = 0.006
_RANGES = 32
_CHEAP = 1 << 17
# For two answers, the number of ranges of the number of others who would say yes.
_CELLS = 64


class Pair(NamedTuple):
    """Two neighbours after the reduction: the person's report is an A, a B or neither, and so is every other report.

    Attributes:
        own: the probability that the person's report is of the kind that the answer favours.
        cross: of the other kind.
        other: the probabilities that another person's report is an A, and that it is a B.
    """

    own: float
    cross: float
    other: float


class Cover(NamedTuple):
    """The guaranteed cover of a report: its law in three parts, and how much of each part all others send.

    Attributes:
        own: the probability that the person's report is an A (a B, for the other neighbour).
        cross: that it is a B (an A).
        copy: every other report is such an A with at least this probability, and a B with as much.
        rest: it is like the person's remaining part with at least this probability.
    """

    own: float
    cross: float
    copy: float
    rest: float


def expected(n: int, cover: Cover) -> tuple[int, Pair]:
    """Return a first guess: the expected number of covering reports, the person's own included, and their law."""
    rate = 2 * cover.copy + cover.rest
    return math.ceil((n - 1) * rate) + 1, Pair(cover.own, cover.cross, cover.copy / rate)


def covered_divergence(epsilon: float, n: int, cover: Cover, limit: float) -> float:
    """Bound the hockey-stick divergence of the shuffled reports from above, whatever the other answers are.

    The number of others whose report is a covering one is binomial. Given c of them, the situation is that of c + 1
    people who send nothing else; a further report only hides more (an observer can add it), so for a range of c the
    least one is used.
    """
    rate = 2 * cover.copy + cover.rest
    first, last, cut = _range(n - 1, rate, limit)
    span = last + 1 - first
    ranges = max(_RANGES, _CHEAP // span**2 * _RANGES)
    width = 1 if span <= ranges else math.ceil(max(_WIDTH * first, span / ranges))
    starts = np.arange(first, last + 1, width)
    shares = np.add.reduceat(weights(np.arange(first, last + 1, dtype=np.float64), n - 1, rate), starts - first)
    pair = Pair(cover.own, cover.cross, cover.copy / rate)
    terms = (
        float(share) * divergence(epsilon, int(c) + 1, pair, limit)[0] for share, c in zip(shares, starts, strict=True)
    )
    return (1 + _SLACK) * sum(terms) + cut


def divergence(epsilon: float, n: int, pair: Pair, limit: float) -> tuple[float, float]:
    """Bound the hockey-stick divergence between the two neighbours from above and from below.

    With t As and Bs in all, a of them As, and c_t = Pr[t of the others are As or Bs], the first neighbour has
    Bin(a; t, 1/2) (silent c_t + 2 c_{t-1} (own a + cross (t - a)) / t) and the second the same with `own` and `cross`
    exchanged. Their difference is a straight line in a, so it is positive from one a on, and sums to tails.
    """
    from scipy.special import betainc

    others, rate, power = n - 1, 2 * pair.other, math.exp(epsilon)
    own, cross, silent = pair.own, pair.cross, max(0.0, 1 - pair.own - pair.cross)
    first, last, cut = _range(others, rate, limit)
    t = np.arange(max(first, 1), last + 2, dtype=np.float64)
    current, before = weights(t, others, rate), weights(t - 1, others, rate)
    slope = 2 * before * (1 + power) * (own - cross) / t
    start = silent * current * (1 - power) + 2 * before * (cross - power * own)
    with np.errstate(divide="ignore", invalid="ignore"):
        a = np.where(slope > 0, np.ceil(-start / slope), t + 1)
    a = np.clip(a, 0, t + 1)
    # For t - 1 coins: at least a, and exactly a - 1.
    inside = (a >= 1) & (a <= t - 1)
    tail = np.where(a < 1, 1.0, 0.0)
    tail[inside] = betainc(a[inside], t[inside] - a[inside], 0.5)
    edge = np.where((a >= 1) & (a <= t), weights(a - 1, t - 1, 0.5), 0.0)
    parts = np.stack(
        [
            silent * current * (1 - power) * (tail + edge / 2),
            before * (own - power * cross) * (tail + edge),
            before * (cross - power * own) * tail,
        ]
    )
    slack = _SLACK * float(np.abs(parts).sum())
    total = float(parts.sum())
    return total + slack + cut, total - slack


def yes_counts(n: int, yes: float, no: float, limit: float, cells: int = _CELLS) -> list[Floats]:
    """Return laws of the number of yeses among the n - 1 others, one for each range of the number who would say yes.

    An observer can add a further person's report, so each additional person only hides better: for a range from a to b,
    a people who would say yes and n - 1 - b who would say no are used, and the b - a between are left out.
    """
    others, step = n - 1, -(-n // cells)
    laws = []
    for a in range(0, n, step):
        b = min(a + step - 1, others)
        # All terms are positive: nothing cancels.
        laws.append(np.convolve(alike(a, yes, limit), alike(others - b, no, limit)))
        if yes + no == 1 and b >= others / 2:
            break  # the other half is the mirror image
    return laws


def alike(people: int, rate: float, limit: float) -> Floats:
    """Return the law of the number of yeses among people who say yes at this rate, truncated at both ends."""
    first, last, _ = _range(people, rate, limit)
    return weights(np.arange(first, last + 1, dtype=np.float64), people, rate)


def divergence_of_two(epsilon: float, law: Floats, yes: float, no: float, limit: float) -> tuple[float, float]:
    """Bound randomised response among others with this law of yeses: in both directions, from above and below."""
    same, less = np.append(law, 0.0), np.append(0.0, law)
    if_yes, if_no = (1 - yes) * same + yes * less, (1 - no) * same + no * less
    power = math.exp(epsilon)
    above = below = 0.0
    for left, right in ((if_yes, power * if_no), (if_no, power * if_yes)):
        at = left > right
        gap, slack = float((left[at] - right[at]).sum()), _SLACK * float((left[at] + right[at]).sum())
        above, below = max(above, gap + slack), max(below, gap - slack)
    return above + 2 * _CUT * limit, below


def _range(trials: int, rate: float, limit: float) -> tuple[int, int, float]:
    """Return a range that a binomial stays in, except for a returned probability. Bernstein's inequality."""
    left = _CUT * limit
    log = math.log(2 / left)
    reach = log / 3 + math.sqrt(log * log / 9 + 2 * trials * rate * (1 - rate) * log)
    middle = trials * rate
    return max(0, math.floor(middle - reach)), min(trials, math.ceil(middle + reach)), left


def weights(k: Floats, trials: Any, rate: float) -> Floats:
    """Return binomial probabilities by Loader's saddle point expansion (2000), accurate for large numbers."""
    m = np.broadcast_to(np.asarray(trials, dtype=np.float64), k.shape)
    if rate >= 1:
        return np.asarray(k == m, dtype=np.float64)
    chances = np.zeros(k.shape)
    for at, value in ((k == 0, m * math.log1p(-rate)), (k == m, m * math.log(rate))):
        chances = np.where(at, np.exp(value), chances)
    mid = (k > 0) & (k < m)
    x, n = k[mid], m[mid]
    y = n - x
    log = _stirling(n) - _stirling(x) - _stirling(y) - _deviance(x, n * rate) - _deviance(y, n * (1 - rate))
    chances[mid] = np.exp(log) * np.sqrt(n / (2 * math.pi * x * y))
    return chances


def _deviance(x: Floats, mean: Floats) -> Floats:
    """Return x ln(x/mean) + mean - x."""
    off = (x - mean) / mean
    return np.asarray(x * np.log1p(off) - (x - mean))


def _stirling(x: Floats) -> Floats:
    """Return ln x! - ln(sqrt(2 pi x) (x/e)^x)."""
    from scipy.special import gammaln

    inverse = 1 / (x * x)
    series = (1 / 12 - inverse * (1 / 360 - inverse * (1 / 1260 - inverse * (1 / 1680 - inverse / 1188)))) / x
    small = gammaln(x + 1) - (x + 0.5) * np.log(x) + x - 0.5 * math.log(2 * math.pi)
    return np.asarray(np.where(x < 16, small, series))

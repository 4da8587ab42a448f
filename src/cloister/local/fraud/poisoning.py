"""A bound on the change that m fake reporters can cause in an estimate, whatever they send.

`attack.poison_survey` crafts such reports, and measures how near they come to the bound.
"""

from dataclasses import dataclass
from fractions import Fraction

from cloister.local.base.number import NumberMechanism
from cloister.local.base.oracle import Oracle
from cloister.local.mechanisms.direct import DirectEncoding, RandomisedResponse
from cloister.local.mechanisms.hadamard import HadamardResponse
from cloister.local.mechanisms.heavy import HeavyHitters
from cloister.local.mechanisms.histogram import HistogramEncoding
from cloister.local.mechanisms.labelled import STEPS, LabelledNumber
from cloister.local.mechanisms.rankings import ItemAtPlace, PairOrder
from cloister.local.mechanisms.sampled import SampledNumbers
from cloister.local.mechanisms.sets import OneOfSet
from cloister.local.mechanisms.sketch import CountMeanSketch
from cloister.local.mechanisms.square_wave import SquareWave
from cloister.local.mechanisms.subset import SubsetSelection
from cloister.privacy.errors import BadInput
from cloister.privacy.mechanisms.checks import count
from cloister.privacy.number import upper_text

__all__ = ["Poisoning", "poisoning"]


@dataclass(frozen=True, slots=True)
class Poisoning:
    """A bound on the effect of fake reporters.

    Attributes:
        fakes: the number of made-up reports among n.
        n: all reports counted.
        up: the most that any one raw share can be raised.
        down: the most that any one raw share can be lowered.
        targets: the number of values raised together.
        together: the most that the sum of those values' raw shares can be raised.
        honest: the same bound for respondents who lie about their value only, and let the device add its noise.
        what: whether a share or a mean is moved.
    """

    fakes: int
    n: int
    up: float
    down: float
    targets: int
    together: float
    honest: float
    what: str = "share"

    def __str__(self) -> str:
        up, down, together, honest = map(upper_text, (self.up, self.down, self.together, self.honest))
        push = f"{self.fakes:,} fake among {self.n:,} reports push a {self.what} up by at most {up} or down by {down}"
        if self.what == "mean":
            return f"{push}; by false values alone they move it by {honest}."
        return (
            f"{push}, and {self.targets} shares together up by {together}; by false values alone they move shares by "
            f"{honest}."
        )


def poisoning(mechanism: Oracle, fakes: int, n: int, targets: int = 1) -> Poisoning:
    """Bound the effect of `fakes` made-up reports among n.

    A report adds between low/n and high/n to a raw share. Without its fakes an estimate is a mean over honest reports,
    whose expectation is in [0, 1]; so the expectation rises by at most fakes/n · high and falls by at most fakes/n · (1
    - low). Cao, Jia & Gong 2021 show that crafted reports come close to this (their maximal gain attack), far beyond
    false values alone: the noise that protects honest respondents amplifies fakes, more so as epsilon falls.

    All fakes may be about one pair or place of a ranking, one of several numbers, or the last level of heavy hitters.
    The expectation is then also over the honest devices that happen to report on it: if few did, fakes moved it more.

    Privacy: reads public facts alone.
    """
    count(n, "n")
    count(targets, "targets")
    if isinstance(fakes, bool) or not isinstance(fakes, int) or not 0 <= fakes <= n:
        raise BadInput("fakes must be a whole number of reports, at most all of them.")
    if isinstance(mechanism, NumberMechanism):
        return _means(mechanism, fakes, n)
    if targets > mechanism.domain:
        raise BadInput("there are more targets than values.")
    if isinstance(mechanism, LabelledNumber):  # an honest component's expectation is in [-1, 1]
        moved = fakes / n * (mechanism.limit / STEPS + 1)
        return Poisoning(fakes, n, moved, moved, targets, targets * moved, 2 * fakes / n, "mean")
    low, high = _reach(mechanism)
    share, chance = _share(mechanism, fakes, n - fakes), _chance(mechanism)
    if isinstance(mechanism, PairOrder | ItemAtPlace):
        # The share of fakes is concave in their number: spread over several pairs or places they raise the sum most.
        apart = max(1, min(targets, fakes))
        together = apart * _claimed(Fraction(fakes, apart), n - fakes, chance) * high
    else:
        most = _supported(mechanism, targets)
        together = share * max(most * high + (targets - most) * low, high)
    return Poisoning(fakes, n, share * high, share * (1 - low), targets, together, fakes / n)


def _chance(mechanism: Oracle) -> Fraction:
    """Return the probability that an honest device reports the part that all fakes may claim; 1 without parts.

    A share of a ranking is estimated from the reports on its pair or place, a number of several from those on its
    coordinate, and a heavy hitter from those at the last level.
    """
    if isinstance(mechanism, PairOrder):
        return Fraction(1, mechanism.pairs)
    if isinstance(mechanism, ItemAtPlace):
        return Fraction(1, mechanism.domain)
    if isinstance(mechanism, SampledNumbers):
        return Fraction(mechanism.picked, mechanism.size)
    return mechanism.share(mechanism.levels - 1) if isinstance(mechanism, HeavyHitters) else Fraction(1)


def _share(mechanism: Oracle, fakes: int, honest: int) -> float:
    """Bound the expected share of fakes among the reports that one estimate is made from, if all are about it."""
    return _claimed(Fraction(fakes), honest, _chance(mechanism))


def _claimed(fakes: Fraction, honest: int, chance: Fraction) -> float:
    """Bound the expected share of fakes among the reports on one part that they all claim.

    Each of m honest devices reports the part with this chance, so that their number H is random, and E[k/(H + k)] is
    more than k/(E[H] + k). With Y a sum of m + 1 such coins, E[1/(H + k)] = E[Y/(Y + k - 1)] / E[Y], and y/(y + k - 1)
    is concave: so E[k/(H + k)] is at most k/(E[Y] + k - 1).
    """
    return float(min(Fraction(1), fakes / ((honest + 1) * chance + fakes - 1))) if fakes else 0.0


def _reach(mechanism: Oracle) -> tuple[float, float]:
    """Return the least and the most that a report adds to a share times the number of reports it is estimated from."""
    if isinstance(mechanism, HistogramEncoding):
        return -float(mechanism.limit), float(mechanism.limit)
    if isinstance(mechanism, HadamardResponse):
        reach = float(1 / ((mechanism.inside - mechanism.outside) * (mechanism.order // 2)))
        return -reach, reach
    gap = float(mechanism.p - mechanism.q)
    low, high = -float(mechanism.q) / gap, float(1 - mechanism.q) / gap
    if isinstance(mechanism, RandomisedResponse):  # what it adds to no is 1 minus what it adds to yes
        return min(low, 1 - high), max(high, 1 - low)
    if isinstance(mechanism, CountMeanSketch):
        meet = 1 / mechanism.buckets
        return (low - meet) / (1 - meet), (high - meet) / (1 - meet)
    return low, high


def _supported(mechanism: Oracle, targets: int) -> int:
    """Return the number of targets one report can support at once."""
    if isinstance(mechanism, DirectEncoding | RandomisedResponse | OneOfSet):
        return 1
    if isinstance(mechanism, SubsetSelection):
        return min(targets, mechanism.size)
    return targets  # bits of all of them, or a hash or codeword that matches all


def _means(mechanism: NumberMechanism, fakes: int, n: int) -> Poisoning:
    """Return the bound for a mean, in the units of the values; of several coordinates, the largest."""
    if isinstance(mechanism, SquareWave):
        raise BadInput("a rebuilt distribution is no sum of reports, so no such bound is known for a square wave.")
    reaches = [
        abs((position - part.mean[0]) / part.mean[1]) for part in mechanism.parts for position in (0, part.outputs - 1)
    ]
    half = max((high - low) / 2 for low, high in mechanism.ends)
    moved = _share(mechanism, fakes, n - fakes) * float(half * (max(reaches) + 1))
    return Poisoning(fakes, n, moved, moved, 1, moved, float(Fraction(fakes, n) * 2 * half), "mean")

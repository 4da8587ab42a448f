"""The effect of made-up submissions on a mean of products: the extreme products of well-formed reports."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from cloister.local.analysis.linked.pairs import ReportGroup
from cloister.local.base.number import NumberMechanism
from cloister.local.base.oracle import Oracle
from cloister.local.fraud.poisoning import Poisoning, poisoning
from cloister.privacy.errors import BadInput

__all__ = ["poisoned", "reach"]


@lru_cache(maxsize=512)  # exact rationals, requested repeatedly
def reach(mechanism: Oracle) -> tuple[float, float]:
    """Return the least and the largest score of a report; of a number, from the middle of its bounds."""
    if isinstance(mechanism, NumberMechanism):
        half = float(mechanism.ends[0][1] - mechanism.ends[0][0]) / 2
        places = [abs((at - part.mean[0]) / part.mean[1]) for part in mechanism.parts for at in (0, part.outputs - 1)]
        farthest = half * float(max(places))
        return -farthest, farthest
    alone = poisoning(mechanism, 1, 1)
    return 1 - alone.down, alone.up


def poisoned(groups: Sequence[ReportGroup], fakes: int | None, honest: tuple[float, float] = (0.0, 1.0)) -> Poisoning:
    """Bound the change of a raw share (or mean of products), whatever the fakes send and whichever levels they choose.

    A made-up submission replaces one whose expectation is within `honest`. It adds at most the largest product of
    scores that its levels allow, and fakes take the levels with the largest effect until these are full.

    Args:
        groups: people of equal levels, with weights.
        fakes: the number of made-up submissions; default one in a hundred.
        honest: the range of the expectation of an honest product.
    """
    people = sum(group.n for group in groups)
    number = max(1, people // 100) if fakes is None else fakes
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= people:
        raise BadInput("fakes must be a whole number of submissions, at most all of them.")
    ends = np.array([_ends(group) for group in groups])
    each = np.array([group.weight / group.n for group in groups])
    sizes = [group.n for group in groups]

    def most(moved: list[float]) -> float:
        left, total = number, 0.0
        for index in np.argsort(moved)[::-1]:
            count = min(left, sizes[index])
            left, total = left - count, total + count * moved[index]
        return total

    up = most((each * (ends[:, 1] - honest[0])).tolist())
    down = most((each * (honest[1] - ends[:, 0])).tolist())
    return Poisoning(number, people, up, down, 1, up, most((each * (honest[1] - honest[0])).tolist()))


def _ends(group: ReportGroup) -> tuple[float, float]:
    if len(group.mechanisms) == 1:
        return reach(group.mechanisms[0])
    (a, b), (c, d) = (reach(mechanism) for mechanism in group.mechanisms)
    corners = a * c, a * d, b * c, b * d
    return min(corners), max(corners)

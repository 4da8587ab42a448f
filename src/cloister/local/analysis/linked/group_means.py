"""The mean of a number within each group of another answer, from matched reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import NormalDist
from typing import Any

import numpy as np

from cloister.local.analysis.linked.independence import Independence, independence
from cloister.local.analysis.linked.influence import poisoned, reach
from cloister.local.analysis.linked.pairs import PairMoments, ReportGroup, choice_of_level, moments
from cloister.local.analysis.ratio import Ratio, ratio
from cloister.local.base.number import NumberMechanism
from cloister.local.base.oracle import Floats
from cloister.local.fraud.poisoning import Poisoning
from cloister.local.survey.question import Question
from cloister.privacy.mechanisms.checks import confidence_left
from cloister.privacy.number import Number, limits_text, places_for, upper_text

__all__ = ["GroupMeans", "by_group"]

_HOW = "from matched reports: each answer was perturbed by itself"


@dataclass(frozen=True, slots=True, eq=False)
class GroupMeans:
    """The mean of a number for each answer to another question.

    Attributes:
        ids: of the question that groups, and of the one that asks for the number.
        names: of the groups.
        means: raw, with standard errors and Fieller intervals; NaN where a group is too small. It is the mean
            of score · number over the mean of the group's score.
        shares: the raw share of each group, among those who answered both.
        share_error: its standard error.
        bounds: of the number, public.
        independence: a test of independence of the number and the answer.
        selection: the p value of the difference between groups of equal levels if answers did not affect the choice.
        poisoning: the most that fakes could move the mean of [in the group] · (number - middle of the bounds).
        moved: the least and the largest mean of each group that these could have caused; infinite if they could have
            made its share 0.
        people: the number of people at each pair of levels. Publish it only in aggregate (ERR-17).
        weights: the weight of each pair; they depend on public facts alone.
        effective: the number of people at the least private of these levels that would give the same error.
        confidence: of each interval individually.
        private: False if randomness was seeded.
    """

    ids: tuple[str, str]
    names: Sequence[str]
    means: Ratio
    shares: Floats
    share_error: Floats
    bounds: tuple[float, float]
    independence: Independence
    selection: float | None
    poisoning: Poisoning
    moved: tuple[Floats, Floats]
    people: Mapping[tuple[str, ...], int]
    weights: Mapping[tuple[str, ...], float]
    effective: float
    confidence: float
    private: bool = True
    how: str = "matched"

    @property
    def n(self) -> int:
        """The number of people who answered both."""
        return sum(self.people.values())

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per group; None where it is too small or `moved` is unbounded. `projected` is clipped."""
        columns = {
            "raw": self.means.value,
            "standard error": self.means.standard_error,
            "low": self.means.low,
            "high": self.means.high,
            "projected": np.clip(self.means.value, *self.bounds),
            "share": self.shares,
            "share error": self.share_error,
            "moved low": self.moved[0],
            "moved high": self.moved[1],
        }
        return [
            {"value": name, **{key: float(part[at]) if isfinite(part[at]) else None for key, part in columns.items()}}
            for at, name in enumerate(self.names)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON, without the number of people at each level."""
        return {
            "group": self.ids[0],
            "number": self.ids[1],
            "how": self.how,
            "stated": _HOW,
            "n": self.n,
            "effective": self.effective,
            "confidence": self.confidence,
            "private": self.private,
            "groups": self.rows(),
            "independence": {
                "statistic": self.independence.statistic,
                "freedom": self.independence.freedom,
                "p": self.independence.p,
                "sentence": self.independence.sentence,
            },
            "selection": self.selection,
        }

    def __str__(self) -> str:
        wide = max(5, *(len(name) for name in self.names))
        sure = f"{100 * self.confidence:g} % interval"
        lines = [f"mean of {self.ids[1]} by {self.ids[0]}: {self.n:,} answered both, {_HOW}"]
        lines.append(f"  {'':{wide}} {'mean':>10} {'std.err.':>9} {sure:>24} {'share':>7}")
        for row in self.rows():
            text = f"{'too few':>10}"
            if row["raw"] is not None:
                ends = " … ".join(limits_text(row["low"], row["high"], places_for(row["low"], row["high"])))
                text = f"{row['raw']:>10.4g} {row['standard error']:>9.3g} {ends:>24}"
            lines.append(f"  {row['value']:{wide}} {text:45} {row['share']:>7.3f}")
        lines.append(f"  {self.independence.sentence}")
        low, high = (np.where(np.isfinite(end), end, np.nan) for end in self.moved)
        farthest = np.maximum(high - self.means.value, self.means.value - low)
        lines += [
            f"  {self.poisoning.fakes:,} made-up submissions could have moved the mean of {name} by at most "
            f"{upper_text(far)}."
            for name, far in zip(self.names, farthest, strict=True)
            if not np.isnan(far)
        ]
        lines.append(f"  each interval holds with {100 * self.confidence:g} % by itself, not all of them together.")
        if not self.private:
            lines.append("  not private: some randomness was seeded.")
        return "\n".join(lines)


def by_group(
    first: Question,
    second: Question,
    groups: list[ReportGroup],
    confidence: Number,
    fakes: int | None,
    private: bool,
) -> GroupMeans:
    """Return means of the question that asks for a number, for each answer to the other: see `cross`."""
    if first.kind == "number":
        first, second = second, first
        groups = [_turned(group) for group in groups]
    number = second.levels[0]
    assert isinstance(number, NumberMechanism)
    low, high = (float(end) for end in number.ends[0])
    left = float(confidence_left(confidence))
    z = NormalDist().inv_cdf(1 - left / 2)
    pairs, middle, half = moments(groups), (low + high) / 2, (high - low) / 2
    from_middle = ratio(
        pairs.joint[:, 0], pairs.rows, pairs.joint_variance[:, 0], pairs.with_row[:, 0], pairs.row_variance, z
    )
    above = [middle + offset for offset in (from_middle.value, from_middle.low, from_middle.high)]
    bound = poisoned(groups, fakes, (-half, half))
    return GroupMeans(
        ids=(first.id, second.id),
        names=first.names,
        means=Ratio(above[0], from_middle.standard_error, above[1], above[2]),
        shares=pairs.rows,
        share_error=np.sqrt(np.maximum(pairs.row_variance, 0)),
        bounds=(low, high),
        independence=independence(groups, first.kind == "choice", False),
        selection=choice_of_level(groups),
        poisoning=bound,
        moved=_moved(pairs, groups, bound, middle),
        people={group.levels: group.n for group in groups},
        weights={group.levels: group.weight for group in groups},
        effective=min(group.spread for group in groups) * sum(group.n / group.spread for group in groups),
        confidence=1 - left,
        private=private,
    )


def _turned(group: ReportGroup) -> ReportGroup:
    first, second = group.mechanisms
    return ReportGroup(group.levels[::-1], (second, first), group.second, group.first, None, group.spread, group.weight)


def _moved(pairs: PairMoments, groups: list[ReportGroup], bound: Poisoning, middle: float) -> tuple[Floats, Floats]:
    """Return the range a mean may have been moved over: numerator and share each moved as far as possible."""
    heaviest = max(group.weight / group.n for group in groups)
    ends = [reach(group.mechanisms[0]) for group in groups]
    least = pairs.rows - bound.fakes * heaviest * (1 - min(low for low, _ in ends))
    most = pairs.rows + bound.fakes * heaviest * max(high for _, high in ends)
    down, up = pairs.joint[:, 0] - bound.down, pairs.joint[:, 0] + bound.up
    sure = least > 0
    under = np.where(sure, least, 1.0)
    low = np.where(sure, np.minimum(down / under, down / np.where(sure, most, 1.0)), -np.inf)
    high = np.where(sure, np.maximum(up / under, up / np.where(sure, most, 1.0)), np.inf)
    return middle + low, middle + high

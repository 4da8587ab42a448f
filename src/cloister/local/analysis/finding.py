"""The finding of one question: shares or a mean from all levels, and a bound on the effect of made-up reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from cloister.local.analysis.combine import combine, selection
from cloister.local.analysis.linked.influence import reach
from cloister.local.base.counts import Counts
from cloister.local.base.estimate import Estimate, Projection
from cloister.local.base.mean import MeanEstimate
from cloister.local.fraud.poisoning import Poisoning, poisoning
from cloister.local.mechanisms.square_wave import DistributionEstimate, SquareWave, mean_of
from cloister.local.privacy.shuffle import Shuffled, shuffled_levels
from cloister.local.survey.question import Question
from cloister.privacy.errors import BadInput
from cloister.privacy.number import Number, limits_text, upper_text

__all__ = ["Finding", "find"]


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """The estimated answer to one question.

    Attributes:
        question: the question.
        raw: unbiased shares (or the unbiased mean) from all levels together; they may be negative.
        levels: the raw estimate of each level alone.
        weights: the weight of each level; they depend on public facts alone.
        selection: the p value of the difference between levels if answers did not affect the choice; None for one.
        poisoning: bounds how far made-up reports could have moved a raw share, whatever their content.
        distributions: of a question asked by square waves, the distribution estimated at each level; `raw` and
            `levels` are then unbiased means.
    """

    question: Question
    raw: Any
    levels: Mapping[str, Any]
    weights: Mapping[str, float]
    selection: float | None
    poisoning: Poisoning
    distributions: Mapping[str, DistributionEstimate] = field(default_factory=dict)

    @property
    def effective(self) -> float:
        """The number of people at the least private level that would give the same error: the cost of mixing."""
        groups = list(self.levels.values())
        share = list(self.weights.values())
        error = sum(part**2 * group.mechanism.mse(group.n) for part, group in zip(share, groups, strict=True))
        return float(groups[-1].mechanism.mse(1) / error)

    def projected(self, method: Projection = "norm-sub") -> Any:
        """Return feasible values: shares of at least 0 with sum 1, of sets at most `most`; a mean within bounds."""
        if isinstance(self.raw, MeanEstimate):
            bounded: Any = self.question.levels[0]
            return replace(self.raw, mechanism=bounded).projected()
        return self.raw.projected(method)

    def shuffled(self, delta: Number) -> Shuffled:
        """Return a person's loss to readers of published results, if a trusted party shuffled the reports.

        Stated at the weakest level. The result names the trusted party and the readers it protects against.
        """
        return shuffled_levels([(group.mechanism, group.n) for group in self.levels.values()], delta)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per value (name, raw share with interval, projected share), or one row for a mean."""
        names, better = self.question.names, self.projected()
        if isinstance(self.raw, MeanEstimate):
            columns: Any = [
                [number] for number in (self.raw.mean, self.raw.standard_error, *self.raw.interval, better.mean)
            ]
        else:
            columns = self.raw.frequencies, self.raw.standard_error, *self.raw.interval, better.frequencies
        keys = ("raw", "standard error", "low", "high", "projected")
        return [
            {"value": name, **{key: float(number) for key, number in zip(keys, row, strict=True)}}
            for name, *row in zip(names, *columns, strict=True)
        ]

    def __str__(self) -> str:
        rows = self.rows()
        wide = max(5, *(len(row["value"]) for row in rows))
        sure = f"{100 * self.raw.confidence:g} % interval"
        lines = [f"{self.question.id}: {self.raw.n:,} reports"]
        lines.append(f"  {'':{wide}} {'raw':>8} {'std.err.':>8} {sure:>20} {'projected':>10}")
        for row in rows:
            ends = " … ".join(limits_text(row["low"], row["high"], 4))
            share = f"{row['raw']:>8.4f} {row['standard error']:>8.4f} {ends:>20} {row['projected']:>10.4f}"
            lines.append(f"  {row['value']:{wide}} {share}")
        if len(self.levels) > 1:
            parts = [
                f"{level}: {group.n:,} people, weight {self.weights[level]:.3f}" for level, group in self.levels.items()
            ]
            lines.append(f"  levels (epsilon) {'; '.join(parts)}")
            lines.append(f"  as exact as {self.effective:,.0f} people at epsilon {list(self.levels)[-1]} would be")
            assert self.selection is not None
            doubt = "  choice of level and answer may be linked: compare the levels." if self.selection < 0.01 else ""
            lines.append(f"  self-selection p = {self.selection:.3g}.{doubt}")
        lines.append(f"  {_sentence(self.poisoning)}")
        if not self.raw.private:
            lines.append("  not private: some randomness was seeded.")
        return "\n".join(lines)


def _sentence(bound: Poisoning) -> str:
    """Return the bound on made-up reports in words, for shares and means."""
    return (
        f"{bound.fakes:,} made-up reports could move an estimate up by at most {upper_text(bound.up)} or down by "
        f"{upper_text(bound.down)}; by false answers alone, {upper_text(bound.honest)}."
    )


def find(
    question: Question,
    counts: Mapping[str, Counts],
    confidence: Number = "0.95",
    weights: Literal["variance", "people"] = "variance",
    fakes: int | None = None,
) -> Finding:
    """Estimate a question from the counts of its levels.

    Args:
        question: the question.
        counts: for each level in use.
        confidence: of each interval.
        weights: `"variance"` or `"people"`: see `combine`.
        fakes: the number of made-up reports to bound; default one in a hundred.

    Privacy: post-processing.
    """
    if not counts:
        raise BadInput(f"no report on {question.id} was counted, so there is nothing to estimate.")
    each: dict[str, Any] = {
        level: level_counts.mechanism.estimate(level_counts, confidence) for level, level_counts in counts.items()
    }
    distributions = {level: estimate for level, estimate in each.items() if isinstance(estimate, DistributionEstimate)}
    for level, distribution in distributions.items():
        each[level] = mean_of(distribution.mechanism, counts[level], confidence)
    groups = list(each.values())
    if not all(isinstance(group, Estimate | MeanEstimate) for group in groups):
        raise BadInput(f"{question.id} asks for an order. Estimate each level with its own mechanism.")
    share = _weights(groups, weights)
    people = sum(group.n for group in groups)
    return Finding(
        question=question,
        raw=combine(groups, weights, confidence) if len(groups) > 1 else groups[0],
        levels=each,
        weights=dict(zip(each, share, strict=True)),
        selection=selection(groups) if len(groups) > 1 else None,
        poisoning=_poisoning(groups, share, max(1, people // 100) if fakes is None else fakes),
        distributions=distributions,
    )


def _weights(groups: list[Any], weights: str) -> list[float]:
    """Return the weights of `combine`: from public facts alone."""
    if weights not in ("variance", "people"):
        raise BadInput(f"weights are 'variance' or 'people', got {weights!r:.40}.")
    sizes = [float(group.n) if weights == "people" else 1 / group.mechanism.mse(group.n) for group in groups]
    return [size / sum(sizes) for size in sizes]


def _poisoning(groups: list[Any], share: list[float], fakes: int) -> Poisoning:
    """Bound made-up reports at the level where a report weighs most; when that has no reports left, the next."""
    people = sum(group.n for group in groups)
    if isinstance(fakes, bool) or not isinstance(fakes, int) or not 0 <= fakes <= people:
        raise BadInput("fakes must be a whole number of reports, at most all of them.")
    alone = [_alone(group.mechanism, group.n) for group in groups]

    def most(which: str) -> float:
        reach = [part * float(getattr(effect, which)) for part, effect in zip(share, alone, strict=True)]
        left, moved = fakes, 0.0
        for group in np.argsort(reach)[::-1]:
            count = min(left, groups[group].n)
            left, moved = left - count, moved + count * reach[group]
        return moved

    return Poisoning(fakes, people, most("up"), most("down"), 1, most("up"), most("honest"))


def _alone(mechanism: Any, n: int) -> Poisoning:
    """Return the effect of one made-up report. For a square wave, on its mean, which is a sum of reports."""
    if not isinstance(mechanism, SquareWave):
        return poisoning(mechanism, 1, n)
    half = float(mechanism.high - mechanism.low) / 2
    moved = (reach(mechanism)[1] + half) / n
    return Poisoning(1, n, moved, moved, 1, moved, 2 * half / n, "mean")

"""The mean of a scale, such as 1 to 5, from reports on a single choice."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from cloister.local.analysis.scores import scores
from cloister.local.survey.question import Question
from cloister.privacy.errors import BadInput
from cloister.privacy.mechanisms.checks import confidence_left
from cloister.privacy.number import Number, limits_text

__all__ = ["ScaleMean", "scale_mean"]

# An empirical variance of fewer people is not trusted below the public one, as in
# `cloister.local.analysis.linked.pairs`.
_FEW = 30


@dataclass(frozen=True, slots=True)
class ScaleMean:
    """The estimated mean of a scale.

    Attributes:
        mean: raw and unbiased; noise may push it beyond the ends of the scale.
        standard_error: from noise and sampling.
        interval: lower and upper end, with `confidence`.
        confidence: of the interval.
        n: the number of respondents.
        values: the values of the choices.
        levels: for each level its mean and standard error.
        weights: the weight of each level; they depend on public facts alone.
        private: False if randomness was seeded.
    """

    mean: float
    standard_error: float
    interval: tuple[float, float]
    confidence: float
    n: int
    values: tuple[float, ...]
    levels: Mapping[str, tuple[float, float]]
    weights: Mapping[str, float]
    private: bool = True

    @property
    def projected(self) -> float:
        """The mean cut to the ends of the scale."""
        return min(max(self.mean, min(self.values)), max(self.values))

    def to_json(self) -> dict[str, Any]:
        """Return JSON, without the number of people at each level."""
        return {
            "raw": self.mean,
            "standard error": self.standard_error,
            "low": self.interval[0],
            "high": self.interval[1],
            "projected": self.projected,
            "confidence": self.confidence,
            "n": self.n,
            "values": list(self.values),
            "private": self.private,
        }

    def __str__(self) -> str:
        low, high = self.interval
        sure = f"{100 * self.confidence:g} % interval {' … '.join(limits_text(low, high, 3))}"
        return f"mean {self.mean:.3f} (standard error {self.standard_error:.3f}, {sure}), {self.n:,} reports"


def scale_mean(
    question: Question,
    reports: Iterable[tuple[str, bytes]],
    values: Sequence[float] | None = None,
    confidence: Number = "0.95",
    private: bool = True,
) -> ScaleMean:
    """Estimate the mean of the choices' values, with its error.

    Shares of one question are correlated, so the error of a mean does not follow from the errors of the shares; it
    follows from each report's own score of the scale, the sum of value · score. A constant is first added to all values
    so that they add up to 0: then scores that do not add up to 1 (as those of bits) add no unnecessary noise.

    Args:
        question: a single choice.
        reports: level and report of each person.
        values: the value of each choice, in order; default 1, 2, 3, ….
        confidence: of the interval.
        private: False if the randomness of any report was seeded.

    Privacy: post-processing.

    >>> from cloister import local
    >>> stars = local.Question("stars", [local.DirectEncoding.for_loss(5, local.epsilon(3))])
    >>> sent = [("3", bytes([star])) for star in (4, 4, 4, 3, 0)]
    >>> print(scale_mean(stars, sent))
    mean 4.262 (standard error 0.978, 95 % interval 2.346 … 6.178), 5 reports
    """
    if question.kind != "choice":
        raise BadInput("a scale is a single choice. Of a number, Collection.estimate gives the mean.")
    domain = question.levels[0].domain
    counted = np.arange(1.0, domain + 1) if values is None else np.asarray(values, dtype=np.float64)
    if counted.shape != (domain,) or not np.isfinite(counted).all():
        raise BadInput(f"values are {domain} finite numbers, one for each choice.")
    middle = float(counted.mean())
    by_level: dict[str, list[bytes]] = {}
    for level, report in reports:
        by_level.setdefault(level, []).append(report)
    if not by_level:
        raise BadInput(f"no report on {question.id} was given, so there is nothing to estimate.")
    means, spread, sizes = {}, {}, {}
    for level in sorted(by_level):
        mechanism = question.at(level)
        each = scores(mechanism, by_level[level]) @ (counted - middle)
        # Few people show hardly any spread, one none: use at least the variance of the noise of independent scores.
        variance = float(each.var(ddof=1)) if len(each) > 1 else 0.0
        if len(each) < _FEW:
            variance = max(variance, mechanism.mse(1) * float(np.square(counted - middle).sum()))
        means[level], spread[level] = float(each.mean()), variance / len(each)
        sizes[level] = len(each) / mechanism.mse(1)
    weights = {level: size / sum(sizes.values()) for level, size in sizes.items()}
    mean = middle + sum(weights[level] * means[level] for level in means)
    error = sum(weights[level] ** 2 * spread[level] for level in means) ** 0.5
    left = float(confidence_left(confidence))
    half = NormalDist().inv_cdf(1 - left / 2) * error
    return ScaleMean(
        mean=mean,
        standard_error=error,
        interval=(mean - half, mean + half),
        confidence=1 - left,
        n=sum(len(group) for group in by_level.values()),
        values=tuple(counted.tolist()),
        levels={level: (middle + means[level], spread[level] ** 0.5) for level in means},
        weights=weights,
        private=private,
    )

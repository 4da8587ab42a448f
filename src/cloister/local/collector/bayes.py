"""Naive Bayes from reports: shares with noise to what a class makes likely. Post-processing throughout."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.columns import Span
from cloister.local.base.oracle import Floats
from cloister.local.collector.counts import Counts, aggregate
from cloister.local.collector.estimate import Estimate, estimate
from cloister.local.collector.projection import norm_sub
from cloister.local.survey.form import Form, FormAnswer
from cloister.privacy.errors import BadInput

__all__ = ["Beliefs", "beliefs", "conditional", "count", "estimates"]

# Standard deviations that a cell's evidence is measured against, and the least part of its expected share that is left.
_DAMPING, _LEAST = 3.0, 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Beliefs:
    """What the collector believes.

    Attributes:
        prior: the share of each class.
        tables: for each column of choices or bins: P(value | class), one row a class.
        means, variances: for each column of numbers: of each class, in numbers scaled to [-1, 1].
    """

    prior: Floats
    tables: Mapping[int, Floats] = field(default_factory=dict)
    means: Mapping[int, Floats] = field(default_factory=dict)
    variances: Mapping[int, Floats] = field(default_factory=dict)

    def scores(self, read: list[NDArray[Any]]) -> Floats:
        """ln P(class, row), one row a person. `read` are columns as codes, or as numbers in [-1, 1]."""
        total = np.tile(np.log(self.prior), (len(read[0]), 1))
        for place, table in self.tables.items():
            total += np.log(table).T[read[place]]
        for place, mean in self.means.items():
            spread = self.variances[place]
            total -= 0.5 * (np.log(spread) + (read[place][:, None] - mean) ** 2 / spread)
        return total


def count(form: Form, answers: Iterable[FormAnswer]) -> tuple[list[Counts], int]:
    """Counts of each question's reports, and how many answers were to no question of the form."""
    found = [aggregate(question.oracle, []) for question in form.questions]
    strange = 0
    for one in answers:
        place = getattr(one, "question", None)
        if isinstance(place, int) and not isinstance(place, bool) and 0 <= place < len(found):
            found[place] = found[place] + aggregate(form.questions[place].oracle, one.reports)
        else:
            strange += 1
    return found, strange


def estimates(form: Form, counts: list[Counts]) -> tuple[Estimate | None, ...]:
    """The raw, unbiased estimate of every question; None for one that nobody answered."""
    pairs = zip(form.questions, counts, strict=True)
    return tuple(estimate(question.oracle, held) if held.n else None for question, held in pairs)


def beliefs(form: Form, found: tuple[Estimate | None, ...], floor: float, shared: bool) -> Beliefs:
    """The model that the estimates make likely.

    Args:
        form: the public facts.
        found: an estimate for every question.
        floor: the least variance of a number, as a share of the squared half-width of its bounds.
        shared: whether all classes have one variance.
    """
    if all(one is None for one in found):
        raise BadInput("no report was counted, so there is nothing to learn from.")
    k = form.classes.size
    prior = _prior(form, found)
    tables = {place: np.full((k, column.size), 1 / column.size) for place, column in _listed(form)}
    firsts: dict[int, tuple[Floats, float]] = {}
    seconds: dict[int, tuple[Floats, float]] = {}
    for question, one in zip(form.questions, found, strict=True):
        if one is None or question.about == "class":
            continue
        if question.about == "joint":
            place = question.columns[0]
            tables[place] = conditional(one.frequencies.reshape(-1, k), _noise(one), one.n, prior)
        else:
            kept = firsts if question.about == "numbers" else seconds
            for place, mean in zip(question.columns, one.frequencies.reshape(-1, k), strict=True):
                kept[place] = mean, _noise(one)
    means, variances = {}, {}
    for place in (place for place, column in enumerate(form.columns) if isinstance(column, Span)):
        if place in firsts and place in seconds:  # a column that nobody spoke of says nothing
            means[place], variances[place] = _normal(firsts[place], seconds[place], prior, floor, shared)
    return Beliefs(prior, tables, means, variances)


def conditional(raw: Floats, noise: float, people: int, prior: Floats) -> Floats:
    """P(value | class), one row a class, from raw shares of (value, class).

    What noise makes of a rare value would be taken for strong evidence, and a projection to shares that can be takes
    from all to mend a few. So each cell keeps what independence of value and class gives it, times one plus its raw
    distance from it, divided by it plus three standard deviations: evidence that noise explains is damped, and its
    sign kept, since many weak columns decide together. The textbook sets negative counts to 1 instead, which biases
    all totals (spec E-17), and was right less often on tables that we generated.

    Args:
        raw: one row a value, one column a class.
        noise: the variance of a share.
        people: how many answered.
        prior: the share of each class.
    """
    values = norm_sub(raw.sum(axis=1)) + 1 / (people * len(raw))
    apart = np.outer(values / values.sum(), prior)
    doubt = _DAMPING * noise**0.5 + 1 / people  # without noise, one person in each cell
    joint = apart * np.maximum(1 + (raw - apart) / (apart + doubt), min(_LEAST, doubt / apart.max()))
    return np.asarray((joint / joint.sum(axis=0)).T)


def _prior(form: Form, found: tuple[Estimate | None, ...]) -> Floats:
    """Shares of classes from all who spoke of them, each question weighted by the inverse of its variance.

    Sums of a joint question's shares over the values are shares of classes too: with many columns, most people's.
    """
    k, total, weights, people = form.classes.size, np.zeros(form.classes.size), 0.0, 0
    for question, one in zip(form.questions, found, strict=True):
        if one is not None and question.about in ("class", "joint"):
            cells = one.frequencies.reshape(-1, k)
            weight = 1 / (len(cells) * _noise(one) + 1 / (4 * one.n))
            total, weights, people = total + weight * cells.sum(axis=0), weights + weight, people + one.n
    if not people:
        return np.full(k, 1 / k)
    shares = norm_sub(total / weights) + 1 / (people * k)
    return np.asarray(shares / shares.sum())


def _normal(
    first: tuple[Floats, float], second: tuple[Floats, float], prior: Floats, floor: float, shared: bool
) -> tuple[Floats, Floats]:
    """Means and variances of the classes, from means of number · [class] and of (2·number² - 1) · [class]."""
    weight = np.maximum(prior, 1e-9)
    means = np.clip(_by_class(*first, weight), -1, 1)
    squares = np.clip((1 + _by_class(*second, weight)) / 2, 0, 1)
    spread = squares - means**2
    if shared:
        spread = np.full_like(spread, float(weight @ squares - weight @ means**2))
    # A variance that noise took away would be read as proof: it is floored, the higher the noisier it is.
    least = floor + 0.25 * (second[1] ** 0.5 / 2 / (1.0 if shared else weight) + first[1] ** 0.5)
    return means, np.clip(spread, np.minimum(least, 1.0), 1.0)


def _by_class(sums: Floats, noise: float, weight: Floats) -> Floats:
    """Class means, drawn towards the mean of all as far as noise explains their distance from it."""
    overall = float(sums.sum())
    gap = sums - weight * overall
    kept = max(0.0, 1 - (len(sums) - 1) * noise / max(float(np.square(gap).sum()), 1e-300))
    return np.asarray(overall + kept * gap / weight)


def _noise(one: Estimate) -> float:
    return float(np.square(one.standard_error).mean())


def _listed(form: Form) -> list[tuple[int, Any]]:
    return [(place, column) for place, column in enumerate(form.columns) if not isinstance(column, Span)]

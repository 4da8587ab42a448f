"""Private evaluation of a model on held-out people, overall and by group.

Rows of a classifier are counted by group, true class and prediction; those of a regressor by group and size of the
error. A row is in one cell. All results (accuracy, gaps between groups) are post-processing of these counts.

Intervals hold the value for the population of the held-out people. Sampling error is computed as if all rows of a
person were equal, since their correlation would have to be released. The interval of a share holds the shares that are
consistent with the counts (Wilson 1927), with a continuity correction. The gap is between the best and the worst
group, which are not known beforehand: it follows from simultaneous intervals of all groups.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.data.private_table import PrivateTable
from cloister.data.schema import Column
from cloister.learn.base.cells import Categories, numbers_in
from cloister.learn.base.containers import read_column
from cloister.learn.preprocessing.encode_features import prepare
from cloister.privacy.filter import PrivacyFilter, noise_for
from cloister.privacy.loss import Loss

__all__ = ["SURE", "Evaluation", "Interval", "Trial", "column_values", "evaluate", "expected_error"]

Floats = NDArray[np.float64]
_STEPS = 24
_WRONG = 0.05  # error rate of an interval
SURE = 1.959963984540054  # 95 %


@dataclass(frozen=True, slots=True)
class Interval:
    """Number with its 95 % interval; all None where noise hides the number."""

    value: float | None
    low: float | None
    high: float | None

    def to_json(self) -> dict[str, float | None]:
        """Return the JSON form for a page."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result of an evaluation.

    Attributes:
        measure: "accuracy", or "median absolute error".
        overall: the measure over all held-out people.
        baseline: that of a model that always predicts the more frequent of two classes; otherwise unknown.
        rows: approximate number of rows evaluated.
        groups: the measure by group, if groups were requested.
        gap: the gap between the best and the worst of the groups that have a number. Noise and sampling error make it
            too large; its interval allows for that, and for which groups they are.
        chosen: by group, the rate of predictions of the second class; for two classes.
        chosen_gap: the gap between the groups with the highest and lowest rate, computed in the same way.
    """

    measure: str
    overall: Interval
    baseline: Interval
    rows: Interval
    groups: dict[str, Interval]
    gap: Interval | None = None
    chosen: dict[str, Interval] | None = None
    chosen_gap: Interval | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for a page."""
        return {
            "measure": self.measure,
            **{name: getattr(self, name).to_json() for name in ("overall", "baseline", "rows")},
            "groups": _listed(self.groups),
            "gap": None if self.gap is None else self.gap.to_json(),
            "chosen": None if self.chosen is None else _listed(self.chosen),
            "chosen_gap": None if self.chosen_gap is None else self.chosen_gap.to_json(),
        }


def _listed(groups: dict[str, Interval]) -> list[dict[str, Any]]:
    return [{"group": name, **figure.to_json()} for name, figure in groups.items()]


@dataclass(frozen=True, slots=True)
class Trial:
    """Held-out rows and columns for the evaluation of a model.

    Attributes:
        relation: the held-out people, with all columns that are used.
        features, target, group: names of columns; "" for no group.
        groups: the public values of the group's column, None for a missing one.
        ends: the bounds of a target that is a number; None for classes.
    """

    relation: PrivateTable
    features: tuple[str, ...]
    target: str
    group: str = ""
    groups: tuple[Any, ...] = ()
    ends: tuple[float, float] | None = None

    @property
    def labels(self) -> tuple[Any, ...]:
        """Return the public groups, or one group of everyone."""
        return self.groups if self.group else ("everybody",)

    def rows(self) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
        """Return the columns, and the group of each row. Reads rows: call it inside a step."""
        names = tuple(dict.fromkeys((*self.features, self.target, *([self.group] if self.group else []))))
        table = self.relation.chosen(names).run(self.relation.engine)
        columns = {name: column_values(table.column(name), self.relation.columns[name]) for name in names}
        if not self.group:
            return columns, np.zeros(table.num_rows, dtype=np.int64)
        return columns, _codes(np.asarray(table.column(self.group).to_pylist(), dtype=object), self.labels)


def evaluate(meter: PrivacyFilter, loss: Loss, model: Any, trial: Trial) -> Evaluation:
    """Evaluate a fitted model on the held-out people.

    Privacy: the loss, for the unit of the relation: it has a bounded number of rows, and each is in one cell.
    """
    return _numbers(meter, loss, model, trial) if trial.ends is not None else _classes(meter, loss, model, trial)


# Classes


def expected_error(loss: Loss, relation: PrivateTable, rows: float, cells: int) -> float:
    """Return the standard error, due to noise alone, of an accuracy of about one half on this many rows and cells."""
    noise = noise_for(relation.rows_each, relation.rows_each, loss).standard_error
    return float(noise * math.sqrt(cells) / 2 / max(rows, 1.0))


def _classes(meter: PrivacyFilter, loss: Loss, model: Any, trial: Trial) -> Evaluation:
    classes, groups = list(model.classes_), len(trial.labels)
    answers = 2 if len(classes) > 2 else 4  # right or wrong; or class × answer

    def look() -> Any:
        columns, group = trial.rows()
        counts = np.zeros(groups * answers, dtype=np.int64)
        true = _codes(columns[trial.target], classes)
        mask = (true >= 0) & (group >= 0)
        # The model predicts even if there are no rows: an error must not reveal if there is one.
        predicted = _codes(read_column(model.predict(prepare(model, _some(columns, mask)))), classes)
        cell = (predicted == true[mask]) if answers == 2 else 2 * true[mask] + predicted
        np.add.at(counts, group[mask] * answers + cell.astype(np.int64), 1)
        return counts

    most = trial.relation.rows_each
    noise = noise_for(most, most, loss)
    counted = np.asarray(meter.release(look, noise), dtype=np.float64).reshape(groups, answers)
    right = [1] if answers == 2 else [0, 3]
    single, every = (
        _Doubt(noise.standard_error, most, loss),
        _Doubt(noise.standard_error * math.sqrt(groups), most, loss),
    )
    each = replace(single, wrong=_WRONG / groups)  # simultaneous for all groups
    total = counted.sum(axis=0)

    def by_group(wanted: Sequence[int], doubt: _Doubt) -> dict[str, Interval]:
        return {name: _share(row, wanted, doubt) for name, row in _pairs(trial, counted)}

    baseline = Interval(None, None, None)
    if answers == 4:
        larger = [2, 3] if total[2:].sum() > total[:2].sum() else [0, 1]
        baseline = _share(total, larger, every)
    grouped, two = bool(trial.group), answers == 4
    return Evaluation(
        "accuracy",
        _share(total, right, every),
        baseline,
        every.count(float(total.sum()), answers),
        by_group(right, single) if grouped else {},
        _gap(by_group(right, each)) if grouped else None,
        by_group([1, 3], single) if grouped and two else None,
        _gap(by_group([1, 3], each)) if grouped and two else None,
    )


@dataclass(frozen=True, slots=True)
class _Doubt:
    """Sources of error of an interval.

    Attributes:
        noise: the standard deviation of the noise on a cell.
        rows: largest number of rows of one person.
        loss: the loss of the release: a pure one has Laplace noise, whose tails are longer.
        wrong: the error rate of the interval.
    """

    noise: float
    rows: int
    loss: Loss
    wrong: float = _WRONG

    @property
    def chance(self) -> float:
        """Return the number of standard deviations of sampling error in the interval."""
        return NormalDist().inv_cdf(1 - self.wrong / 2)

    @property
    def hidden(self) -> float:
        """Return the bound on a cell's noise; for Laplace noise the quantile of one cell: sums have shorter tails."""
        tails = -math.log(self.wrong) / math.sqrt(2) if self.loss.measure == "epsilon" else 0.0
        return self.noise * max(self.chance, tails)

    def count(self, total: float, cells: int) -> Interval:
        """Return the number of rows in the given number of cells, with its interval."""
        margin = self.hidden * math.sqrt(cells) + 0.5  # the noise is integer
        return Interval(max(total, 0.0), max(total - margin, 0.0), max(total + margin, 0.0))


def _share(cells: Floats, right: Sequence[int], doubt: _Doubt) -> Interval:
    """Return the share of some cells among all, with noise and sampling error in its interval.

    At a true share p, wanted - p · total has the sampling variance, at most m p (1 - p) · total for m rows per person,
    and that of the noise, (1 - p)² on each wanted cell and p² on each other.
    """
    total, wanted = float(cells.sum()), float(cells[list(right)].sum())
    if total < 3 * doubt.noise * math.sqrt(len(cells)) or total < 1:
        return Interval(None, None, None)
    share, step = min(max(wanted / total, 0.0), 1.0), doubt.rows / (2 * total)
    few, chance = len(right), doubt.chance**2 * doubt.rows / total
    noise = doubt.hidden**2 / total**2

    def held(p: float) -> bool:
        allowed = noise * ((1 - p) ** 2 * few + p**2 * (len(cells) - few)) + chance * p * (1 - p)
        return abs(share - p) <= step + math.sqrt(allowed)

    return Interval(share, _end(held, share, 0.0), _end(held, share, 1.0))


def _end(contains: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return the farthest point that is contained, from `inside` towards `outside`."""
    if contains(outside):
        return outside
    for _ in range(40):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if contains(middle) else (inside, middle)
    return outside


# Numbers


def _numbers(meter: PrivacyFilter, loss: Loss, model: Any, trial: Trial) -> Evaluation:
    assert trial.ends is not None
    (low, high), groups = trial.ends, len(trial.labels)
    # Size of the error, in steps of a factor sqrt(2) below the width of the bounds: sums of errors would need noise for
    # the largest possible error.
    edges = (high - low) * 2.0 ** (-np.arange(_STEPS, 0, -1) / 2)

    def look() -> Any:
        columns, group = trial.rows()
        counts = np.zeros(groups * (_STEPS + 1), dtype=np.int64)
        goal = numbers_in(columns[trial.target])
        mask = ~np.isnan(goal) & (group >= 0)
        predicted = numbers_in(read_column(model.predict(prepare(model, _some(columns, mask)))))
        away = np.nan_to_num(np.abs(np.clip(predicted, low, high) - np.clip(goal[mask], low, high)), nan=high - low)
        np.add.at(counts, group[mask] * (_STEPS + 1) + np.searchsorted(edges, away, side="left"), 1)
        return counts

    most = trial.relation.rows_each
    noise = noise_for(most, most, loss)
    error_counts = np.asarray(meter.release(look, noise), dtype=np.float64).reshape(groups, _STEPS + 1)
    ends = np.append(edges, high - low)
    single, every = (
        _Doubt(noise.standard_error, most, loss),
        _Doubt(noise.standard_error * math.sqrt(groups), most, loss),
    )
    total = error_counts.sum(axis=0)

    def by_group(doubt: _Doubt) -> dict[str, Interval]:
        return {name: _median(row, ends, doubt) for name, row in _pairs(trial, error_counts)}

    return Evaluation(
        "median absolute error",
        _median(total, ends, every),
        Interval(None, None, None),
        every.count(float(total.sum()), _STEPS + 1),
        by_group(single) if trial.group else {},
        _gap(by_group(replace(single, wrong=_WRONG / groups))) if trial.group else None,
    )


def _median(cells: Floats, ends: Floats, doubt: _Doubt) -> Interval:
    """Return the median absolute error, from noisy counts of cells with these ends.

    Up to the cell of the median there are at least half of all rows, and before it at most half. So the interval
    reaches from the first cell that may hold it to the last, in whole cells, since positions within a cell are unknown.
    """
    total, spread = float(cells.sum()), doubt.noise * math.sqrt(len(cells))
    if total < 3 * spread or total < 1:
        return Interval(None, None, None)
    sums = np.cumsum(cells) / total
    # All cells count with weight one half: 1/4 of the noise variance of each, and of the sampling variance of each row.
    hidden, chance = doubt.hidden * math.sqrt(len(cells)), doubt.chance * math.sqrt(doubt.rows * total)
    margin = math.hypot(hidden, chance) / 2 / total
    enough, few = np.flatnonzero(sums >= 0.5 - margin), np.flatnonzero(sums <= 0.5 + margin)
    first = int(enough[0]) if len(enough) else len(ends) - 1
    last = min(int(few[-1]) + 1, len(ends) - 1) if len(few) else 0
    low, high = float(ends[first - 1]) if first else 0.0, float(ends[max(first, last)])
    middle = _reached(np.maximum.accumulate(sums), ends, 0.5)
    return Interval(min(max(middle, low), high), low, high)


def _reached(below: Floats, ends: Floats, share: float) -> float:
    """Return the point where a share of all rows is reached, interpolated within a cell."""
    index = min(int(np.searchsorted(below, share)), len(ends) - 1)
    if index == 0:
        return float(ends[0] * min(max(share / max(below[0], 1e-12), 0.0), 1.0))
    part = (share - below[index - 1]) / max(below[index] - below[index - 1], 1e-12)
    return float(ends[index - 1] + (ends[index] - ends[index - 1]) * min(max(part, 0.0), 1.0))


# Both


def _gap(groups: dict[str, Interval]) -> Interval:
    """Return the gap between the best and the worst group, from simultaneous intervals.

    The largest true value is then at least the highest lower end, and the smallest at most the lowest upper end.
    """
    triples = [(interval.value, interval.low, interval.high) for interval in groups.values()]
    complete = np.array([triple for triple in triples if None not in triple], dtype=np.float64)
    if len(complete) < 2:
        return Interval(None, None, None)
    values, lows, highs = complete.T
    low, high = max(float(lows.max() - highs.min()), 0.0), float(highs.max() - lows.min())
    return Interval(float(np.ptp(values)), low, high)


def _pairs(trial: Trial, counts: Floats) -> list[tuple[str, Floats]]:
    """Return the counts of each group with its name; rows without an entry have a name that no category has."""
    named = [str(label) for label in trial.labels if label is not None]
    absent = "missing"
    while absent in named:
        absent += ", no entry"
    return [(absent if label is None else str(label), row) for label, row in zip(trial.labels, counts, strict=True)]


def _some(columns: dict[str, NDArray[Any]], mask: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    return {name: column[mask] for name, column in columns.items()}


def _codes(values: NDArray[Any], listed: Sequence[Any]) -> NDArray[np.int64]:
    """Return the index of each value in a public list of the schema; -1 for an unlisted value."""
    return Categories(listed, exact=True).codes(values)


def column_values(column: Any, facts: Column) -> NDArray[Any]:
    """Return a column as an array: numbers with NaN where they are missing, other types as objects.

    The type of the array follows from the schema alone: if integers were read as floats as soon as one of them is
    missing, one row would change how all others are read.
    """
    import pyarrow as pa

    if facts.type == "real":
        return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    if facts.type == "integer" and not facts.nullable and not column.null_count:
        return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False))
    return np.asarray(column.to_pylist(), dtype=object)

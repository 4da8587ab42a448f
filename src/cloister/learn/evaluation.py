"""How good a model is, released privately: counted on people it did not learn from, in all and for each group.

A classifier's rows are counted by group, true class and answer; those of a regressor by group and how far off the
answer is. A row stands in one cell. Whatever is said afterwards (accuracy, gaps between groups) follows from these.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.data.relation import Relation
from cloister.data.schema import Column
from cloister.learn.cells import Categories, numbers_in
from cloister.learn.feeding import prepare
from cloister.learn.figures import SURE, Evaluation, Figure
from cloister.learn.found import law
from cloister.privacy.loss import Loss
from cloister.privacy.meter import Meter

__all__ = ["Trial", "evaluate", "expected_error"]

Floats = NDArray[np.float64]
_STEPS = 24


@dataclass(frozen=True, slots=True)
class Trial:
    """What a model is tried on.

    Attributes:
        relation: the people held back, with all columns that are used.
        features, target, group: names of columns; "" for no group.
        groups: the public values of the group's column, None for a missing one.
        ends: the bounds of a target that is a number; None for classes.
    """

    relation: Relation
    features: tuple[str, ...]
    target: str
    group: str = ""
    groups: tuple[Any, ...] = ()
    ends: tuple[float, float] | None = None

    @property
    def labels(self) -> tuple[Any, ...]:
        """The public groups, or one of everybody."""
        return self.groups if self.group else ("everybody",)

    def rows(self) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
        """Columns, and the group of each row. Reads rows: call it inside a step."""
        names = tuple(dict.fromkeys((*self.features, self.target, *([self.group] if self.group else []))))
        table = self.relation.chosen(names).run(self.relation.engine)
        columns = {name: _values(table.column(name), self.relation.columns[name]) for name in names}
        if not self.group:
            return columns, np.zeros(table.num_rows, dtype=np.int64)
        return columns, _codes(np.asarray(table.column(self.group).to_pylist(), dtype=object), self.labels)


def evaluate(meter: Meter, loss: Loss, model: Any, trial: Trial) -> Evaluation:
    """Try a fitted model on the people held back.

    Privacy: the loss, for the unit of the relation: it has at most so many rows, and each is in one cell.
    """
    return _numbers(meter, loss, model, trial) if trial.ends is not None else _classes(meter, loss, model, trial)


# Classes


def expected_error(loss: Loss, relation: Relation, rows: float, cells: int) -> float:
    """The standard error that the noise alone gives an accuracy of about a half, on so many rows counted in cells."""
    noise = law(relation.rows_each, relation.rows_each, loss).standard_error
    return float(noise * math.sqrt(cells) / 2 / max(rows, 1.0))


def _classes(meter: Meter, loss: Loss, model: Any, trial: Trial) -> Evaluation:
    classes, groups = list(model.classes_), len(trial.labels)
    answers = 2 if len(classes) > 2 else 4  # right or wrong; or class × answer

    def look() -> Any:
        columns, group = trial.rows()
        counts = np.zeros(groups * answers, dtype=np.int64)
        true = _codes(columns[trial.target], classes)
        kept = (true >= 0) & (group >= 0)
        if not kept.any():
            return counts
        said = _codes(np.asarray(model.predict(prepare(model, _some(columns, kept)))), classes)
        cell = (said == true[kept]) if answers == 2 else 2 * true[kept] + said
        np.add.at(counts, group[kept] * answers + cell.astype(np.int64), 1)
        return counts

    most = trial.relation.rows_each
    noise = law(most, most, loss)
    found = np.asarray(meter.release(look, noise), dtype=np.float64).reshape(groups, answers)
    right = [1] if answers == 2 else [0, 3]
    by_group = {_word(name): _share(row, right, noise.standard_error) for name, row in _pairs(trial, found)}
    whole = found.sum(axis=0)
    error = noise.standard_error * math.sqrt(groups)
    chosen = None
    if answers == 4:
        chosen = {_word(name): _share(row, [1, 3], noise.standard_error) for name, row in _pairs(trial, found)}
    baseline = Figure(None, None, None)
    if answers == 4:
        larger = [2, 3] if whole[2:].sum() > whole[:2].sum() else [0, 1]
        baseline = _share(whole, larger, error)
    return Evaluation(
        "accuracy",
        _share(whole, right, error),
        baseline,
        Figure.of(float(whole.sum()), error * math.sqrt(answers), 0.0),
        by_group if trial.group else {},
        _gap(by_group) if trial.group else None,
        chosen if trial.group else None,
        _gap(chosen) if trial.group and chosen else None,
    )


def _share(cells: Floats, right: Sequence[int], noise: float) -> Figure:
    """The share of some cells among all, with noise and chance in its interval."""
    total, wanted = float(cells.sum()), float(cells[list(right)].sum())
    if total < 3 * noise * math.sqrt(len(cells)) or total < 1:
        return Figure(None, None, None)
    share = min(max(wanted / total, 0.0), 1.0)
    others = len(cells) - len(right)
    spread = noise**2 * ((1 - share) ** 2 * len(right) + share**2 * others) / total**2
    return Figure.of(share, math.sqrt(spread + share * (1 - share) / total), 0.0, 1.0)


# Numbers


def _numbers(meter: Meter, loss: Loss, model: Any, trial: Trial) -> Evaluation:
    assert trial.ends is not None
    (low, high), groups = trial.ends, len(trial.labels)
    # How far off an answer is, in steps of the square root of two below the width of the bounds: sums of errors would
    # drown in the noise that the largest possible error needs.
    edges = (high - low) * 2.0 ** (-np.arange(_STEPS, 0, -1) / 2)

    def look() -> Any:
        columns, group = trial.rows()
        counts = np.zeros(groups * (_STEPS + 1), dtype=np.int64)
        goal = numbers_in(columns[trial.target])
        kept = ~np.isnan(goal) & (group >= 0)
        if not kept.any():
            return counts
        said = np.asarray(model.predict(prepare(model, _some(columns, kept))), dtype=np.float64)
        away = np.nan_to_num(np.abs(np.clip(said, low, high) - np.clip(goal[kept], low, high)), nan=high - low)
        np.add.at(counts, group[kept] * (_STEPS + 1) + np.searchsorted(edges, away, side="left"), 1)
        return counts

    most = trial.relation.rows_each
    noise = law(most, most, loss)
    found = np.asarray(meter.release(look, noise), dtype=np.float64).reshape(groups, _STEPS + 1)
    ends = np.append(edges, high - low)
    by_group = {_word(name): _median(row, ends, noise.standard_error) for name, row in _pairs(trial, found)}
    whole, error = found.sum(axis=0), noise.standard_error * math.sqrt(groups)
    return Evaluation(
        "median absolute error",
        _median(whole, ends, error),
        Figure(None, None, None),
        Figure.of(float(whole.sum()), error * math.sqrt(_STEPS + 1), 0.0),
        by_group if trial.group else {},
        _gap(by_group) if trial.group else None,
    )


def _median(cells: Floats, ends: Floats, noise: float) -> Figure:
    """How far off half of the answers are at most, from noisy counts of cells that end there."""
    total, spread = float(cells.sum()), noise * math.sqrt(len(cells))
    if total < 3 * spread or total < 1:
        return Figure(None, None, None)
    below = np.maximum.accumulate(np.cumsum(cells)) / total
    doubt = SURE * math.sqrt(spread**2 + total) / 2 / total
    return Figure(*(_reached(below, ends, share) for share in (0.5, 0.5 - doubt, 0.5 + doubt)))


def _reached(below: Floats, ends: Floats, share: float) -> float:
    """Where a share of all rows is reached, between the ends of a cell."""
    place = min(int(np.searchsorted(below, share)), len(ends) - 1)
    if place == 0:
        return float(ends[0] * min(max(share / max(below[0], 1e-12), 0.0), 1.0))
    part = (share - below[place - 1]) / max(below[place] - below[place - 1], 1e-12)
    return float(ends[place - 1] + (ends[place] - ends[place - 1]) * min(max(part, 0.0), 1.0))


# Both


def _gap(groups: dict[str, Figure] | None) -> Figure:
    known = [one for one in (groups or {}).values() if one.value is not None]
    if len(known) < 2:
        return Figure(None, None, None)
    ordered = sorted(known, key=lambda one: one.value or 0.0)
    worst, best = ordered[0], ordered[-1]
    value = (best.value or 0.0) - (worst.value or 0.0)
    error = math.hypot(*(((one.high or 0.0) - (one.low or 0.0)) / (2 * SURE) for one in (worst, best)))
    return Figure.of(value, error, 0.0)


def _pairs(trial: Trial, found: Floats) -> list[tuple[Any, Floats]]:
    return list(zip(trial.labels, found, strict=True))


def _some(columns: dict[str, NDArray[Any]], kept: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    return {name: one[kept] for name, one in columns.items()}


def _codes(values: NDArray[Any], listed: Sequence[Any]) -> NDArray[np.int64]:
    """The place of each value in a public list of the schema; -1 for one that is not in it."""
    return Categories(listed, exact=True).codes(values)


def _word(label: Any) -> str:
    return "missing" if label is None else str(label)


def _values(column: Any, facts: Column) -> NDArray[Any]:
    """A column as an array: numbers with NaN where they are missing, all else as objects.

    What kind of array it is follows from the schema alone: were whole numbers read as 1.0 as soon as one of them is
    missing, one row would change how all others are read.
    """
    import pyarrow as pa

    if facts.type == "real":
        return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    if facts.type == "integer" and not facts.nullable and not column.null_count:
        return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False))
    return np.asarray(column.to_pylist(), dtype=object)

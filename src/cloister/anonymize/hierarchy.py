"""Generalisation hierarchies: for each value of a column, what it becomes at each level.

    Hierarchy.read_csv("age.csv")                            # ARX's format: value;level 1;level 2;…;*
    Hierarchy.intervals(0, 100, [5, 10, 20])                 # 37 -> 35-39 -> 30-39 -> 20-39 -> *
    Hierarchy.dates("month", "quarter", "year")              # 2021-05-03 -> 2021-05 -> 2021-Q2 -> 2021 -> *
    Hierarchy.masking(5)                                     # 33617 -> 3361* -> 336** -> 33*** -> 3**** -> *
    Hierarchy.tree({"Europe": ["France", "Spain"], "Asia": ["Japan"]})
    Hierarchy.flat()                                         # value -> *

Level 0 is the value itself; the last level is `*` for every value. A missing value stays missing up to the last level,
so that it is never mistaken for another.
"""

import csv
import datetime as dt
import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cloister.anonymize.coded import Array, CodedColumn
from cloister.anonymize.intervals import Intervals, is_whole, printed
from cloister.data.schema import Column
from cloister.privacy.errors import BadInput

__all__ = ["ALL", "CodedHierarchy", "Hierarchy", "automatic", "value_text"]

ALL = "*"
_UNITS = ("month", "quarter", "year", "decade", "century")
_LONGEST = 64
_FAR = 1e300  # bounds of automatic intervals; numbers beyond, and infinite ones, are labelled as beyond them


@dataclass(frozen=True)
class Hierarchy:
    """What the values of a column become, level by level.

    Attributes:
        kind: how it was made, for reports.
        levels: for each level between the value and `*`, a function from a value to its label.
        sizes: for each of these levels, the share of the domain that the label of a value stands for; None means the
            share of the column's different values.
        leaves: the values listed, if the hierarchy lists them; other values are refused.
        ancestors: of the values listed, their labels from level 1 on.
        intervals_of: bounds and widths, for intervals of numbers.
        rooted: True if the labels were listed without `*` and end with one that all values have: it is the root, which
            counts for distances in the tree.
    """

    kind: str
    levels: tuple[Callable[[Any], str], ...]
    sizes: tuple[Callable[[Any], float] | None, ...]
    leaves: frozenset[str] | None = None
    ancestors: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    intervals_of: Intervals | None = field(default=None, repr=False)
    rooted: bool = False

    @property
    def height(self) -> int:
        """Return the number of the last level, `*`."""
        return len(self.levels) + 1

    @property
    def to_root(self) -> dict[str, list[str]]:
        """Return the labels of each value that is listed, with the root as the last one: `*`, unless it is listed."""
        root = [] if self.rooted else [ALL]
        return {value: [*labels, *root] for value, labels in self.ancestors.items()}

    @staticmethod
    def read_csv(path: str | os.PathLike[str], *, separator: str = ";") -> "Hierarchy":
        """Read a hierarchy in ARX's format: one line for each value, its labels from level 1 on, then `*`."""
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError):
            raise BadInput(f"{path} cannot be read as a hierarchy. Give a UTF-8 file: value;level 1;…;*.") from None
        lines = [line for line in csv.reader(text.splitlines(), delimiter=separator) if any(line)]
        return Hierarchy.table({line[0]: line[1:] for line in lines}, kind=f"file {Path(path).name}", lines=len(lines))

    @staticmethod
    def table(labels: Mapping[str, Sequence[str]], *, kind: str = "table", lines: int | None = None) -> "Hierarchy":
        """Return the hierarchy that lists each value's labels, from the most specific to the most general.

        Args:
            labels: of each value. A last label `*` may be left out; it stands above all others.
            kind: how it was made, for reports.
            lines: number of lines read, to find values that are listed twice.

        >>> Hierarchy.table({"flu": ["lung"], "cold": ["lung"], "ulcer": ["stomach"]}).levels[0]("cold")
        'lung'
        """
        rows = {
            str(value): tuple(label for label in map(str, names) if label != ALL) for value, names in labels.items()
        }
        depths = {len(names) for names in rows.values()}
        if not rows or len(depths) != 1:
            raise BadInput("a hierarchy needs a line for each value, all with equally many labels.")
        if lines is not None and lines != len(rows):
            raise BadInput("a hierarchy lists a value twice. Keep one line for each value.")
        depth = depths.pop()
        for level in range(1, depth):
            parents: dict[str, str] = {}
            for names in rows.values():
                if parents.setdefault(names[level - 1], names[level]) != names[level]:
                    raise BadInput(
                        f"the label {names[level - 1]} has two different parents: {parents[names[level - 1]]} and "
                        f"{names[level]}. A hierarchy is a tree; rename one of the labels."
                    )
        counts = [_tally(names[level] for names in rows.values()) for level in range(depth)]
        return Hierarchy(
            kind,
            tuple(_lookup(rows, level) for level in range(depth)),
            tuple(_share(rows, level, counts[level]) for level in range(depth)),
            frozenset(rows),
            rows,
            rooted=depth > 0 and len(counts[-1]) == 1 and not any(ALL in map(str, names) for names in labels.values()),
        )

    @staticmethod
    def tree(tree: Mapping[str, Any]) -> "Hierarchy":
        """Return the hierarchy of a nested mapping: inner names are labels, lists hold the values.

        >>> Hierarchy.tree({"EU": {"west": ["fr", "es"], "east": ["pl"]}, "Asia": {"east Asia": ["jp"]}}).height
        3
        """
        paths: dict[str, tuple[str, ...]] = {}

        def walk(node: Any, above: tuple[str, ...]) -> None:
            if len(above) > _LONGEST:
                raise BadInput("the tree of labels is nested too deeply.")
            if isinstance(node, Mapping):
                for name, child in node.items():
                    walk(child, (str(name), *above))
            else:
                for value in [node] if isinstance(node, str) else node:
                    if str(value) in paths:
                        raise BadInput(f"the value {value} is twice in the tree of labels. Keep one of them.")
                    paths[str(value)] = above

        walk(tree, ())
        depth = max(map(len, paths.values()), default=0)
        # A shallow branch repeats its most specific label, so that every value has a label at every level.
        return Hierarchy.table(
            {value: (*above[:1] * (depth - len(above)), *above) for value, above in paths.items()}, kind="tree"
        )

    @staticmethod
    def intervals(low: float, high: float, widths: Sequence[float]) -> "Hierarchy":
        """Return intervals of growing width between public bounds; values beyond are labelled `<low` and `>=high`.

        Whole bounds and widths give labels such as 20-29 to whole numbers. If a column has other numbers, or bounds and
        widths are not whole, intervals are half-open: [20, 30) does not contain 30. Edges are decimals, printed with
        all their digits, and each interval is made of intervals of the level below.

        >>> ages = Hierarchy.intervals(0, 100, [5, 10])
        >>> ages.levels[0](37), ages.levels[1](37), ages.levels[0](120), ages.levels[0](34.5)
        ('35-39', '30-39', '>=100', '[30, 35)')
        """
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise BadInput("intervals need finite bounds, the lower one first.")
        steps = list(widths)
        if not steps or any(not (math.isfinite(width) and width > 0) for width in steps):
            raise BadInput("intervals need widths above 0, such as [5, 10, 20].")
        if any(b <= a or not math.isclose(b / a, round(b / a), rel_tol=1e-9) for a, b in itertools.pairwise(steps)):
            raise BadInput("each width must be a multiple of the one before it, so that intervals nest: [5, 10, 20].")
        return _of_intervals(Intervals.of(low, high, steps))

    def fitted(self, column: CodedColumn) -> "Hierarchy":
        """Return the hierarchy with labels that are true for every value of a column and for others of its kind.

        Intervals of whole numbers, such as 20-29, say nothing of 29.5: a column with such a value gets half-open ones.
        """
        own = self.intervals_of
        if own is None or not own.whole or all(value is None or is_whole(value) for value in column.values):
            return self
        return _of_intervals(replace(own, whole=False))

    def listed(self, column: CodedColumn) -> "Hierarchy":
        """Return the hierarchy as a table of the values of a column and their labels."""
        if self.ancestors:
            return self
        return Hierarchy.table(
            {value_text(value): [*names, ALL] for value, names in self.paths(column).items()} or {"": ()},
            kind=self.kind,
        )

    def paths(self, column: CodedColumn) -> dict[Any, list[str]]:
        """Return the labels of each value of a column, from level 1 up to the one below `*`."""
        coded = self.over(column)
        return {
            value: [coded.labels[level][coded.maps[level][place]] for level in range(1, coded.height)]
            for place, value in enumerate(column.values)
            if value is not None
        }

    @staticmethod
    def dates(*units: str) -> "Hierarchy":
        """Return months, quarters, years, decades or centuries, from fine to coarse."""
        names = units or _UNITS[:4]
        if any(name not in _UNITS for name in names) or [*names] != sorted(set(names), key=_UNITS.index):
            raise BadInput(f"levels of dates are, in this order: {', '.join(_UNITS)}.")
        return Hierarchy(
            f"dates by {', '.join(names)}",
            tuple(_period(name) for name in names),
            tuple(_span(name) for name in names),
        )

    @staticmethod
    def masking(length: int, *, from_right: bool = True) -> "Hierarchy":
        """Return codes of a public length with one more character masked at each level: 33617 -> 3361* -> 336**.

        Shorter codes are filled with `*`, longer ones are cut, so that a label does not tell the length.
        """
        if not 1 <= length <= _LONGEST:
            raise BadInput(f"masking needs a length between 1 and {_LONGEST}.")
        return Hierarchy(
            f"masking of {length} characters",
            tuple(_mask(length, hidden, from_right) for hidden in range(1, length)),
            (None,) * (length - 1),
        )

    @staticmethod
    def flat() -> "Hierarchy":
        """Return the hierarchy with one step: a value becomes `*`."""
        return Hierarchy("none", (), ())

    def over(self, column: CodedColumn) -> "CodedHierarchy":
        """Return the codes and labels of every level for the values of a column.

        Raises:
            BadInput: the hierarchy lists its values, and does not list one of the column's; or a label is empty.
        """
        present = [value for value in column.values if value is not None]
        if self.leaves is not None:
            missing = [value for value in present if value_text(value) not in self.leaves]
            if missing:
                raise BadInput(
                    f"the hierarchy of {column.name} lacks {len(missing):,} of its {len(present):,} values. Add a "
                    "line for each, or clean the column."
                )
        maps, labels = [np.arange(len(column.values), dtype=np.int32)], [[*map(value_text, column.values)]]
        losses = [np.zeros(len(column.values))]
        fitted = self.fitted(column)
        for name, size in zip(fitted.levels, fitted.sizes, strict=True):
            words: list[str | None] = [
                None if value is None else _named(name, value, column) for value in column.values
            ]
            if "" in words:  # it would be released as a missing value
                raise BadInput(
                    f"the hierarchy of {column.name} has an empty label. Write what it stands for, or `*` as the last "
                    "label of every line."
                )
            order: dict[str | None, int] = {}
            maps.append(np.array([order.setdefault(word, len(order)) for word in words], np.int32))
            labels.append([word if word is not None else "" for word in order])
            shares = (
                _spread(maps[-1], present)
                if size is None
                else np.array([0.0 if value is None else size(value) for value in column.values])
            )
            losses.append(np.maximum(losses[-1], np.clip(shares, 0.0, 1.0)))
        maps.append(np.zeros(len(column.values), np.int32))
        labels.append([ALL])
        losses.append(np.ones(len(column.values)))
        return CodedHierarchy(column, tuple(maps), tuple(map(tuple, labels)), tuple(losses), self.ancestors)


@dataclass(frozen=True)
class CodedHierarchy:
    """A hierarchy over the values of one column.

    Attributes:
        column: the values.
        maps: for each level, the label's number of each value.
        labels: for each level, its labels; a missing value is the empty text.
        losses: for each level, the certainty penalty of each value: the share of the domain that its label stands for.
        ancestors: for each value that the hierarchy lists, its labels.
    """

    column: CodedColumn
    maps: tuple[Array, ...]
    labels: tuple[tuple[str, ...], ...]
    losses: tuple[Array, ...]
    ancestors: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    @property
    def height(self) -> int:
        """Return the number of the last level."""
        return len(self.maps) - 1


def automatic(column: CodedColumn, facts: Column | None = None) -> Hierarchy:
    """Return a hierarchy from public facts: bounds, categories and type in the schema, or the type of the values.

    Categories that are whole numbers become intervals, categories that are paths (Europe/France) their tree.
    Without a schema the kind, the length of codes and the size of bounds are those of the values: then intervals start
    at 0 and their widths are 5, 10, 50, 100 …, and only how many levels there are depends on the values.
    """
    kind = facts.type if facts is not None else _kind_of(column)
    if kind in ("integer", "real"):
        low, high = (min(max(bound, -_FAR), _FAR) for bound in _bounds(column, facts))
        return Hierarchy.intervals(low, high, _ladder(high - low, whole=kind == "integer"))
    if kind in ("date", "timestamp"):
        return Hierarchy.dates()
    listed = facts.categories if facts is not None and facts.categories else None
    words = [value_text(value) for value in listed or column.values if value is not None]
    if (
        kind == "text"
        and len(words) > 1
        and {len(word) for word in words} in ({4}, {5}, {6})
        and all(map(str.isalnum, words))
        and all(any(letter.isdigit() for letter in word) for word in words)
    ):
        return Hierarchy.masking(len(words[0]))
    return _of_categories(words) if listed is not None and {*words} >= _texts(column) else Hierarchy.flat()


def _texts(column: CodedColumn) -> set[str]:
    return {value_text(value) for value in column.values if value is not None}


def _of_categories(words: Sequence[str]) -> Hierarchy:
    """Return a hierarchy of the categories of a schema: their tree if they are paths, else one step.

    Paths such as Europe/France/Lyon name their tree. Other categories have one step: that they are listed one after the
    other is no order.
    """
    parts = {word: word.split("/") for word in words}
    depth = max(map(len, parts.values()), default=1)
    if depth < 2:
        return Hierarchy.flat()
    above = {word: ["/".join(some[:length]) for length in range(len(some) - 1, 0, -1)] for word, some in parts.items()}
    # A shallow category is its own label until the deeper ones have reached its height.
    labels = {word: [word] * (depth - 1 - len(names)) + names for word, names in above.items()}
    return Hierarchy.table(labels, kind="tree of the categories' paths")


def _kind_of(column: CodedColumn) -> str:
    present = [value for value in column.values if value is not None]
    if column.numeric:
        return "integer" if all(isinstance(value, int) for value in present) else "real"
    if present and all(isinstance(value, dt.date) for value in present):
        return "date"
    return "text"


def _bounds(column: CodedColumn, facts: Column | None) -> tuple[float, float]:
    if facts is not None and facts.bounds is not None:
        low, high = facts.bounds
        return float(low), float(high) + (1 if facts.type == "integer" else 0)  # type: ignore[arg-type]
    if facts is not None and facts.categories and facts.type == "integer":  # numbers have an order
        return float(min(facts.categories)), float(max(facts.categories)) + 1
    present = [float(value) for value in column.values if value is not None]
    lowest, highest = min(present, default=0.0), max(present, default=1.0)
    reach = min(max(abs(lowest), abs(highest), 1.0), _FAR)
    top = next(
        width for width in _ladder(10 * reach, whole=column.numeric and float(reach).is_integer()) if width > reach
    )
    return (-top if lowest < 0 else 0.0), top


def _ladder(span: float, *, whole: bool) -> list[float]:
    """Return widths 5, 10, 50, 100 … (or their decimal fractions) below a span, each a multiple of the last."""
    first = Decimal(5) if whole else Decimal(10) ** math.floor(math.log10(span / 50)) if span > 0 else Decimal(1)
    widths, factors = [first], (2, 5)
    while widths[-1] * factors[(len(widths) - 1) % 2] < span:
        widths.append(widths[-1] * factors[(len(widths) - 1) % 2])
    return [float(width) for width in widths]


def value_text(value: object) -> str:
    """Return a value as hierarchies and labels print it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return printed(value) if isinstance(value, Decimal) and value.is_finite() else str(value)


def _named(name: Callable[[Any], str], value: object, column: CodedColumn) -> str:
    try:
        return name(value)
    except (TypeError, ValueError, AttributeError, InvalidOperation):
        raise BadInput(
            f"the hierarchy of {column.name} does not fit its type {type(value).__name__}. Choose intervals for "
            "numbers, dates for dates, masking or a table for text."
        ) from None


def _tally(words: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return counts


def _lookup(rows: Mapping[str, tuple[str, ...]], level: int) -> Callable[[Any], str]:
    return lambda value: rows[value_text(value)][level]


def _share(rows: Mapping[str, tuple[str, ...]], level: int, counts: Mapping[str, int]) -> Callable[[Any], float]:
    def share(value: Any) -> float:
        count = counts[rows[value_text(value)][level]]
        return count / len(rows) if count > 1 else 0.0

    return share


def _spread(labels: Array, values: Sequence[Any]) -> Array:
    """Return for each value the share of the different values that have its label; 0 if it is the only one."""
    counts = np.bincount(labels)[labels]
    return np.where(counts > 1, counts / max(1, len(values)), 0.0)


def _constant(share: float) -> Callable[[Any], float]:
    return lambda value: share


def _of_intervals(intervals: Intervals) -> Hierarchy:
    return Hierarchy(
        intervals.kind,
        tuple(partial(intervals.label, factor) for factor in intervals.factors),
        tuple(map(_constant, intervals.shares)),
        intervals_of=intervals,
    )


def _period(unit: str) -> Callable[[Any], str]:
    def label(value: Any) -> str:
        date = value if isinstance(value, dt.date) else dt.date.fromisoformat(str(value)[:10])
        year = date.year
        return {
            "month": f"{year}-{date.month:02d}",
            "quarter": f"{year}-Q{(date.month + 2) // 3}",
            "year": str(year),
            "decade": f"{year // 10 * 10}-{year // 10 * 10 + 9}",
            "century": f"{year // 100 * 100}-{year // 100 * 100 + 99}",
        }[unit]

    return label


def _span(unit: str) -> Callable[[Any], float]:
    days = {"month": 30.4, "quarter": 91.3, "year": 365.25, "decade": 3652.5, "century": 36525.0}[unit]
    return _constant(min(days / 36525.0, 1.0))


def _mask(length: int, hidden: int, from_right: bool) -> Callable[[Any], str]:
    def label(value: Any) -> str:
        text = value_text(value)[:length].ljust(length, ALL)
        shown = text[: length - hidden] if from_right else text[hidden:]
        return shown + ALL * hidden if from_right else ALL * hidden + shown

    return label

"""One column as public cells: the cells that a marginal counts, and the values that a cell stands for.

    categories, booleans, few integers    a cell for each value
    numbers, dates, moments               a cell for each of some bins between public cuts
    text without categories               no cell: every synthetic row gets a fresh pseudonym
    columns that may be NULL              one more cell, the last

Privacy: everything here follows from the schema and the caller's arguments. Nothing is derived from the data.
"""

import math
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from cloister.data.dialect import literal
from cloister.data.schema import Column, Type
from cloister.data.statistics import GroupKey
from cloister.privacy.errors import BadBounds, BadSchema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MOST_CELLS", "Axis", "Cells", "arrow_types", "read_axis", "step_from"]

Cells = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_CELLS = 4096
_EPOCH = datetime(1970, 1, 1)
_DAY = date(1970, 1, 1).toordinal()
_STEPS = 2**53  # largest range of whole numbers that doubles distinguish
_FAR = 2**60
_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True, slots=True)
class Axis:
    """The public cells of one column.

    Attributes:
        name: name of the column.
        type: type of its values.
        values: the value of each cell; None if the column is binned or is a pseudonym.
        ends: the ends of all bins in ascending order, one more than there are bins. Numbers unchanged, dates as days,
            moments as microseconds since 1970. A bin includes its lower end; the last bin also includes its upper end.
        nullable: whether the last cell stands for NULL.
        origin: the offset of the ends, for whole numbers and moments too far from 0 for doubles to distinguish
            neighbours: the lower bound. 0 otherwise.
    """

    name: str
    type: Type
    values: tuple[Any, ...] | None = None
    ends: tuple[float, ...] | None = None
    nullable: bool = False
    origin: int = 0

    @property
    def pseudonym(self) -> bool:
        """Return True if the values identify a person, so that synthetic rows get new ones."""
        return self.values is None and self.ends is None

    @property
    def ordered(self) -> bool:
        """Return True if neighbouring cells are similar: numbers and dates, binned or not."""
        return self.ends is not None or (self.values is not None and self.type == "integer")

    @property
    def known(self) -> int:
        """Return the number of cells whose values are not NULL."""
        if self.values is not None:
            return len(self.values)
        return 1 if self.ends is None else len(self.ends) - 1

    @property
    def size(self) -> int:
        """Return the number of cells."""
        return self.known + (1 if self.nullable and not self.pseudonym else 0)

    @property
    def widths(self) -> Floats:
        """Return the width of each cell that is not NULL: a number of whole values, or a length."""
        if self.ends is None:
            return np.ones(self.known)
        ends = np.array(self.ends)
        if self.type == "real":
            return np.diff(ends)
        first, last = _whole(ends[:-1], ends[1:], np.arange(self.known) == self.known - 1)
        return last - first + 1

    def labels(self) -> list[str]:
        """Return a description of each cell."""
        if self.values is not None:
            cell_labels = [str(value) for value in self.values]
        elif self.ends is not None:
            named = self.type in ("date", "timestamp") or self.origin
            texts = [str(self._value(end)) if named else f"{end:g}" for end in self.ends]
            cell_labels = [f"{low} to {high}" for low, high in pairwise(texts)]
        else:
            return ["a fresh pseudonym"]
        return [*cell_labels, "missing"] if self.nullable else cell_labels

    def key(self) -> GroupKey:
        """Return the group key by which an engine computes the cell of a row."""
        column = exp.column(self.name, quoted=True)
        missing = (None,) if self.nullable else ()
        if self.values is not None:
            return GroupKey(self.name, column, (*self.values, *missing), self.type)
        if self.ends is None:
            raise BadSchema(f"{self.name} is replaced by pseudonyms and cannot be counted by.")
        # Comparisons only: every engine puts a value into the same bin, whatever its arithmetic.
        tree = _between(column, [self._literal(end) for end in self.ends[1:-1]], 0)
        absent = exp.Is(this=column.copy(), expression=exp.Null())
        cell = exp.Case(ifs=[exp.If(this=absent, true=exp.Null())], default=tree)
        cells: Sequence[Any] = range(self.known) if not self.nullable else (*range(self.known), None)
        return GroupKey(self.name, cell, cells, "integer")

    def place(self, column: "pa.ChunkedArray") -> Cells:
        """Return the cell of each value of a column; -1 for a value outside all cells.

        Privacy: as sensitive as the column. For an owner who scores a table, or for synthetic rows.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        absent = self.known if self.nullable else -1
        if self.pseudonym:
            return np.zeros(len(column), dtype=np.int64)
        if self.values is not None:
            kind = arrow_types()[self.type]
            indices = pc.index_in(column.cast(kind), value_set=pa.array(list(self.values), type=kind))
            return np.asarray(pc.fill_null(indices, absent).to_numpy(zero_copy_only=False), dtype=np.int64)
        assert self.ends is not None
        valid = np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), dtype=bool)
        numbers = self.numbers(column)
        cells = np.searchsorted(np.array(self.ends[1:-1]), numbers, side="right")
        return np.where(valid & ~np.isnan(numbers), cells, absent)

    def draw(self, cells: Cells, generator: np.random.Generator, wanted: Any = None) -> "pa.Array":
        """Sample a value of each cell: the cell's own value, or one distributed uniformly over its bin.

        Args:
            cells: the cell of each row.
            generator: any random generator.
            wanted: a condition as in `cells_of`, as a list of one: in a bin that it cuts, only matching values
                are sampled.
        """
        import pyarrow as pa

        if self.pseudonym:
            return pa.array([secrets.token_hex(8) for _ in range(len(cells))], pa.string())
        absent = cells >= self.known
        inside = np.where(absent, 0, cells)
        kind = arrow_types()[self.type]
        if self.values is not None:
            return pa.array(self.values, kind).take(pa.array(np.where(absent, 0, inside), mask=absent))
        ends = np.array(self.ends)
        low, high, top = ends[inside], ends[inside + 1], inside == self.known - 1
        condition = None if wanted is None else wanted[0]
        if isinstance(condition, dict):
            least, most = self._range(condition)
            # A bin does not include values at or beyond its end.
            low, top, high = np.maximum(low, least), top & (most > high), np.minimum(high, most)
        if self.type == "real":
            # Below its end, the last bin too: a rule may begin there.
            numbers = np.minimum(low + (high - low) * generator.random(len(cells)), np.nextafter(high, low))
        else:
            first, last = _whole(low, high, top)
            numbers = np.minimum(np.floor(first + (last - first + 1) * generator.random(len(cells))), last)
        if wanted is not None and not isinstance(condition, dict):  # named values: one of those in the bin
            numbers = _among(self._named(condition), numbers, inside, np.array(self.ends), generator)
        if self.type == "real":
            return pa.array(numbers, kind, mask=absent)
        integers = numbers.astype(np.int64) + self.origin
        if self.type == "date":
            return pa.array(integers.astype(np.int32), pa.int32(), mask=absent).cast(kind)
        return pa.array(integers, pa.int64(), mask=absent).cast(kind)

    def cells_of(self, wanted: Any) -> NDArray[np.bool_]:
        """Return the cells that match a condition: a value, a list, None for missing, or {"below": 16, "from": 65}.

        A bin matches if any part of it does.
        """
        chosen = np.zeros(self.size, dtype=bool)
        if isinstance(wanted, dict):
            low, high = self._range(wanted)
            if self.ends is not None and self.type == "real":
                ends = np.array(self.ends)
                chosen[: self.known] = (ends[1:] > low) & (ends[:-1] < high)
            elif self.ends is not None:
                chosen[: self.known] = self._steps(low, high) > 0
            else:
                chosen[: self.known] = [low <= _exact(self.type, value) < high for value in self.values or ()]
            return chosen
        for value in wanted if isinstance(wanted, list | tuple | set | frozenset) else [wanted]:
            chosen[self._cell(value)] = True
        return chosen

    def weights_of(self, wanted: Any) -> Floats:
        """Return the share of each cell that matches a condition, from 0 to 1: for a bin that it cuts, by width.

        A single real number has no width, so it matches no part of its bin.
        """
        shares = self.cells_of(wanted).astype(np.float64)
        if self.ends is None:
            return shares
        ends, part = np.array(self.ends), np.zeros(self.known)
        if not isinstance(wanted, dict):
            values = np.unique(self._named(wanted))
            if self.type != "real":
                np.add.at(part, np.searchsorted(ends[1:-1], values, side="right"), 1.0)
        elif self.type == "real":
            low, high = self._range(wanted)
            part = np.clip(np.minimum(ends[1:], high) - np.maximum(ends[:-1], low), 0.0, None)
        else:
            part = self._steps(*self._range(wanted))
        widths = self.widths  # 0 where the caller's cuts lie between the same whole numbers
        shares[: self.known] = np.minimum(np.divide(part, widths, out=np.zeros(self.known), where=widths > 0), 1.0)
        return shares

    def _steps(self, low: float, high: float) -> Floats:
        """Return the number of whole steps of each bin in a range of whole steps, lower inclusive, upper exclusive."""
        ends = np.array(self.ends)
        first, last = _whole(ends[:-1], ends[1:], np.arange(self.known) == self.known - 1)
        return np.asarray(np.clip(np.minimum(last, high - 1) - np.maximum(first, low) + 1, 0.0, None))

    def _range(self, wanted: Any) -> tuple[Any, Any]:
        """Return the ends of a range, lower inclusive, upper exclusive; of whole numbers and days whole ones."""
        if self.ends is None and not self.ordered:
            raise BadBounds(f"{self.name} has no order. Name its values.")
        if set(wanted) - {"from", "below"} or not wanted:
            raise BadBounds(f"a range of {self.name} is written {{from: …, below: …}}, one of them or both.")
        low = step_from(self.type, wanted["from"]) if "from" in wanted else -math.inf
        high = step_from(self.type, wanted["below"]) if "below" in wanted else math.inf
        return (low, high) if self.ends is None else (_from(self.origin, low), _from(self.origin, high))

    def _named(self, wanted: Any) -> Floats:
        """Return the values of a condition that is not a range, in the units of bin ends; without missing ones."""
        listed = wanted if isinstance(wanted, list | tuple | set | frozenset) else [wanted]
        return np.array(sorted(self.number(value) for value in listed if value is not None), dtype=np.float64)

    def number(self, value: Any) -> float:
        """Convert a value to the units of bin ends: a number, or days or microseconds since 1970, minus the origin."""
        return _from(self.origin, _exact(self.type, value))

    def numbers(self, column: "pa.ChunkedArray") -> Floats:
        """Convert the values of a column to the units of bin ends; 0 where one is missing.

        Privacy: as sensitive as the column.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.type == "date":
            column = column.cast(pa.date32()).cast(pa.int32())
        elif self.type == "timestamp":
            column = column.cast(pa.timestamp("us")).cast(pa.int64())
        if not self.origin or not pa.types.is_integer(column.type):
            filled = pc.fill_null(column.cast(pa.float64(), safe=False), 0.0)
            return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.float64) - self.origin
        integers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
        # Far beyond the bounds the distance does not matter; the difference must fit into 64 bits.
        least, most = max(self.origin - _FAR, _INT64.min), min(self.origin + _FAR, _INT64.max)
        near = np.array([min(max(integer, least), most) for integer in integers.tolist()], dtype=np.int64)
        return np.asarray((near - self.origin).astype(np.float64))

    def _cell(self, value: Any) -> int:
        if value is None:
            if not self.nullable:
                raise BadBounds(f"{self.name} is never missing.")
            return self.known
        if self.values is not None:
            if value not in self.values:
                raise BadBounds(f"{value!r:.40} is no public value of {self.name}. Look at the schema.")
            return self.values.index(value)
        if self.ends is None:
            raise BadBounds(f"{self.name} is replaced by pseudonyms: nothing can be asked of it.")
        number = self.number(value)
        if self.type != "real" and not number.is_integer():
            raise BadBounds(f"{value!r:.40} is between two values of {self.name}. Name one of them, or a range.")
        if not self.ends[0] <= number <= self.ends[-1]:
            raise BadBounds(f"{value!r:.40} is beyond the bounds of {self.name}. Look at the schema.")
        return int(np.searchsorted(np.array(self.ends[1:-1]), number, side="right"))

    def value(self, end: float) -> Any:
        """Convert a number in the units of bin ends to a value of the column; rounded up for integers and dates."""
        return self._value(end)

    def _value(self, end: float) -> Any:
        if self.type == "date":
            return date.fromordinal(_DAY + math.ceil(end))
        if self.type == "timestamp":
            return _EPOCH + timedelta(microseconds=self.origin + math.ceil(end))
        return self.origin + math.ceil(end) if self.type == "integer" else end

    def _literal(self, end: float) -> exp.Expression:
        value = self._value(end)
        if isinstance(value, datetime):  # without a zone: a Spark session has one of its own
            text = exp.Literal.string(value.isoformat(" "))
            return exp.Cast(this=text, to=exp.DataType.build("TIMESTAMPNTZ"))
        return literal(value)


def read_axis(column: Column, bins: Any) -> Axis:
    """Return the cells of a column, from its public facts.

    Args:
        column: its schema.
        bins: number of equal bins for a number or date with more values than that; or the ends of its bins.
    """
    listed = column.categories if column.type != "boolean" else (False, True)
    if listed is not None:
        return Axis(column.name, column.type, tuple(listed), nullable=column.nullable)
    if column.type == "text":
        return Axis(column.name, "text")
    if isinstance(bins, Sequence) and not isinstance(bins, str):
        return _of_cuts(column, bins)
    if column.bounds is None:
        raise BadSchema(f"{column.name} has neither public bounds nor categories. Give them in the schema.")
    if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= MOST_CELLS:
        raise BadBounds(
            f"{column.name} is cut into 1 to {MOST_CELLS} bins, or between the ends of bins in rising order."
        )
    first, last = (_exact(column.type, end) for end in column.bounds)
    origin = _origin(column, first, last)
    if column.type != "real" and last - first < bins:
        if column.type == "integer":
            every = tuple(range(int(first), int(last) + 1))
            return Axis(column.name, "integer", every, nullable=column.nullable, origin=origin)
        bins = int(last - first) + 1
    low, high = _from(origin, first), _from(origin, last)
    # Whole numbers and days: the upper bound is a value like the others, so the bins reach one step beyond it.
    edges = np.linspace(low, high if column.type == "real" else high + 1, bins + 1)[:-1]
    if column.type == "real":  # bounds may be so close that the doubles between them run out
        edges = np.unique(edges[edges < high])
    if column.type == "integer" and first <= 0 < last:  # zero often differs from small values: it is not part of a bin
        edges = np.unique([*edges, _from(origin, 0), _from(origin, 1)])
    return _checked(column, [*edges, high], origin)


def _of_cuts(column: Column, cuts: Sequence[Any]) -> Axis:
    exact = [_exact(column.type, cut) for cut in cuts]
    first, last = column.bounds or (min(exact, default=0), max(exact, default=0))
    origin = _origin(column, _exact(column.type, first), _exact(column.type, last))
    ends = [_from(origin, cut) for cut in exact]
    if column.bounds is not None:
        low, high = (_from(origin, _exact(column.type, end)) for end in column.bounds)
        # The bounds are the outermost ends: values beyond them cannot occur.
        ends = [low, *(end for end in ends if low < end < high or (end == high and column.type != "real")), high]
    return _checked(column, ends, origin)


def _origin(column: Column, first: Any, last: Any) -> int:
    """Return the offset of a column's bin ends, so that doubles represent every whole step between its bounds.

    Raises:
        BadBounds: there are more steps between the bounds than doubles can distinguish.
    """
    if column.type == "real" or not (math.isfinite(first) and math.isfinite(last)):
        return 0
    if last - first >= _STEPS:
        step = "moments" if column.type == "timestamp" else "whole numbers"
        raise BadBounds(
            f"{column.name} has more {step} between its bounds than can be told apart: 2^53 at most. Narrow them in "
            "the schema, or leave the column out."
        )
    return 0 if max(abs(first), abs(last)) < _STEPS else math.floor(first)


def _checked(column: Column, ends: Sequence[float], origin: int) -> Axis:
    if not 2 <= len(ends) <= MOST_CELLS + 1 or not np.isfinite(ends).all() or not (np.diff(ends[:-1]) > 0).all():
        raise BadBounds(f"the bins of {column.name} need ends in rising order, at most {MOST_CELLS + 1}.")
    if ends[-1] < ends[-2] or (column.type == "real" and ends[-1] <= ends[-2]):
        raise BadBounds(f"the bins of {column.name} need ends in rising order, at most {MOST_CELLS + 1}.")
    return Axis(
        column.name, column.type, ends=tuple(float(end) for end in ends), nullable=column.nullable, origin=origin
    )


def _between(column: exp.Expression, cuts: Sequence[exp.Expression], first: int) -> exp.Expression:
    """Count the cuts that are not above a value, by binary search."""
    if not cuts:
        return literal(first)
    middle = len(cuts) // 2
    below = exp.LT(this=column.copy(), expression=cuts[middle].copy())
    lower, upper = _between(column, cuts[:middle], first), _between(column, cuts[middle + 1 :], first + middle + 1)
    return exp.Case(ifs=[exp.If(this=below, true=lower)], default=upper)


def _whole(low: Floats, high: Floats, top: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return the first and the last whole step of bins; only the topmost bin includes its upper end."""
    return np.ceil(low), np.where(top, np.floor(high), np.ceil(high) - 1)


def _among(values: Floats, numbers: Floats, cells: Cells, ends: Floats, generator: np.random.Generator) -> Floats:
    """Pick for each row one of the named values in its bin, uniformly; keep its number if there is none."""
    home = np.searchsorted(ends[1:-1], values, side="right")
    first, last = np.searchsorted(home, cells, side="left"), np.searchsorted(home, cells, side="right")
    chosen = first + np.floor((last - first) * generator.random(len(cells))).astype(np.int64)
    matched = last > first
    return np.where(matched, values[np.where(matched, chosen, 0)], numbers) if len(values) else numbers


def _exact(kind: str, value: Any) -> int | float:
    """Convert a value to the units of bin ends exactly: whole numbers, days and microseconds."""
    try:
        if kind in ("date", "timestamp") and isinstance(value, str):
            value = datetime.fromisoformat(value)
        if kind == "timestamp":
            moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
            return (moment - _EPOCH) // timedelta(microseconds=1)
        if kind == "date":
            between = isinstance(value, datetime) and value.time() != time.min  # after this day's start
            return int(value.toordinal() - _DAY) + (0.5 if between else 0)
        if kind == "integer" and isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]+", value):
            value = int(value)
        number = float(value)  # a whole number without a nearby double cannot be the end of a bin
        return int(value) if isinstance(value, int | np.integer) and kind == "integer" else number
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise BadBounds(f"a {kind} was expected, got {value!r:.40}.") from None


def step_from(kind: str, value: Any) -> int | float:
    """Return the end of a range in the units of bin ends: for all but real numbers the first whole step from it on.

    A range from 10.5 begins at the whole number 11, and one below 10.5 ends there. All that reads ranges uses this.
    """
    exact = _exact(kind, value)
    if math.isnan(exact):
        raise BadBounds("a range ends at numbers, got NaN.")
    return exact if kind == "real" or not math.isfinite(exact) else math.ceil(exact)


def _from(origin: int, exact: float) -> float:
    """Return the difference to the origin: the nearest double to the exact difference."""
    if not origin or not math.isfinite(exact):
        return float(exact)
    return float(exact - origin if isinstance(exact, int) else Fraction(exact) - origin)


def arrow_types() -> dict[str, Any]:
    """Map each type of a schema to its Arrow type."""
    import pyarrow as pa

    return {
        "integer": pa.int64(),
        "real": pa.float64(),
        "text": pa.string(),
        "boolean": pa.bool_(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us"),
    }

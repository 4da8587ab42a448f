"""Poisson lots from a table of a dataset, read from the engine in portions.

The table is never wholly in memory. For the next block of lots it is read once, in sixteen portions; each unit draws
which of the lots it enters, and only the rows of units that enter some lot are kept:

    portion 0 … f of the table ──► units draw their lots ──► rows of the next lots ──► lots

A block has as many lots as are expected to hold `_KEPT` rows. Of a unit with more rows than the schema allows, those
with the smallest keyed hash count (data/private_table.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.data.private_data import PrivateData
from cloister.data.schema import UNIT
from cloister.learn.base.row_source import FetchedTable, fetch
from cloister.learn.deep.rows import Rows, padded_units
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Unit
from cloister.privacy.noise import Source, bernoulli

__all__ = ["TableLots", "read_table_lots"]

_KEPT = 2**16
_PORTIONS = "0123456789abcdef"


@dataclass(frozen=True, slots=True)
class TableLots:
    """Columns of a dataset as rows (x,) or (x, y): numbers unchanged, an indicator for each category.

    Attributes:
        source: the columns.
    """

    source: FetchedTable

    @property
    def data(self) -> PrivateData:
        """Return the dataset, whose account is charged."""
        data: PrivateData = self.source.data
        return data

    @property
    def row(self) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
        """The shape and type of each part of one row."""
        parts: list[tuple[tuple[int, ...], np.dtype[Any]]] = [((self.source.width,), np.dtype(np.float32))]
        if self.source.target is not None:
            parts.append(((), np.dtype(np.float32 if self.source.classes is None else np.int32)))
        return tuple(parts)

    @property
    def unit(self) -> Unit:
        """The unit that is sampled and clipped."""
        unit: Unit = self.data.tables.schema.unit
        return unit

    @property
    def grouped(self) -> bool:
        """Return True if an example is a unit with several rows."""
        return self.source.relation.max_rows is not None

    # Private: reads rows.

    def count(self) -> int:
        """Return the number of units."""
        return sum(len(groups) for _, groups in self._portions())

    def lots(self, rate: Fraction, steps: int, source: Source) -> Iterator[Rows]:
        """Yield this many Poisson lots."""
        left, expected = steps, 1.0
        while left:
            block = max(1, min(left, int(_KEPT / expected)))
            seen, found = 0, [self._empty() for _ in range(block)]
            for arrays, groups in self._portions():
                seen += len(groups)
                for lot, chosen in enumerate(_members(rate, len(groups), block, source)):
                    if len(chosen):
                        found[lot].append(self._taken(arrays, [groups[place] for place in chosen]))
            for parts in found:
                yield tuple(np.concatenate(each) for each in zip(*parts, strict=True))
            left -= block
            # The first block is one lot; then the number of units is known here, and nowhere else.
            expected = max(1.0, float(rate) * seen * self.source.relation.rows_each)

    def _portions(self) -> Iterator[tuple[Rows, Sequence[NDArray[np.int64]]]]:
        """Yield the rows of each portion, and for each unit the positions of its rows."""
        for digit in _PORTIONS:
            yield _read(self.source, digit, self.grouped)

    def _taken(self, arrays: Rows, groups: Sequence[NDArray[np.int64]]) -> Rows:
        if self.grouped:
            return padded_units(arrays, groups, self.source.relation.rows_each)
        places = np.concatenate(groups)
        return tuple(array[places] for array in arrays)

    def _empty(self) -> list[Rows]:
        most = (self.source.relation.rows_each,) if self.grouped else ()
        mask = (np.zeros((0, *most), dtype=np.float32),) if self.grouped else ()
        return [(*mask, *(np.zeros((0, *most, *shape), dtype=dtype) for shape, dtype in self.row))]


def _read(source: FetchedTable, digit: str, grouped: bool) -> tuple[Rows, Sequence[NDArray[np.int64]]]:
    relation = source.relation.portion(digit)
    names = source.features if source.target is None else (*source.features, source.target)
    table = relation.chosen(names, unit=grouped).run(relation.engine)
    part = source.portion(table)
    with np.errstate(all="ignore"):  # a number beyond single floats is infinite
        arrays: Rows = (part.numbers().astype(np.float32),)
    real = np.ones(table.num_rows, dtype=bool)
    if source.target is not None:
        labels = part.labels()
        if source.classes is not None:
            real = labels >= 0  # a row whose label is not public counts as no row
        with np.errstate(all="ignore"):
            arrays = (*arrays, labels.astype(np.float32 if source.classes is None else np.int32))
    places = np.flatnonzero(real)
    if not grouped:
        return arrays, [places[at : at + 1] for at in range(len(places))]
    groups: dict[Any, list[int]] = {}
    names_of_units = table.column(UNIT).to_pylist()
    for place in places.tolist():
        groups.setdefault(names_of_units[place], []).append(place)
    return arrays, [np.array(group, dtype=np.int64) for group in groups.values()]


def _members(rate: Fraction, units: int, lots: int, source: Source) -> Iterator[NDArray[np.int64]]:
    """Yield for each lot the units that enter it."""
    for _ in range(lots):
        yield np.flatnonzero(bernoulli(rate, units, source)) if rate < 1 else np.arange(units)


def read_table_lots(
    data: PrivateData,
    *,
    target: str | None = None,
    features: Sequence[str] | None = None,
    table: str | None = None,
    classes: Sequence[Any] | None = None,
    kind: str | None = None,
    fill: float | None = None,
) -> TableLots:
    """Check the named columns against the schema. No row is read.

    Args:
        data: the dataset.
        target, features, table, classes, fill: as in `learn.base.row_source.fetch`.
        kind: kind of target: "classes" or "number"; "none" if no target is named.
    """
    source = fetch(
        data, target, features, table,
        classes=classes, kind=kind or ("none" if target is None else "classes"), fill=fill,
    )  # fmt: skip
    if source.relation.max_rows is None and source.relation.copies > 1:
        raise BadInput("a row of this table can occur several times. Name a unit in the schema, or train on one table.")
    return TableLots(source)

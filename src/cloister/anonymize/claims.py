"""What a release claims, put to the independent verifier: the same way when it is made, written, and checked later.

    checked = check_claims(rows, models, quasi=["zip"], sensitive=["disease"])
    problems = [problem for model in models for problem in failures(checked, model)]

The order of a sensitive column of text is that of its released values; its hierarchy is recorded with the facts of the
release (`describe_models`, `recorded`). A population with exact values is generalised as the release is, by
`as_released`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from cloister.anonymize.checking.verifier import Checked, check
from cloister.anonymize.hierarchy import ALL, Hierarchy, value_text
from cloister.anonymize.models import Model, Requirement, TCloseness
from cloister.attack.tables.columns import Integers, encode
from cloister.attack.tables.generalised import Containment, Hierarchies, containment
from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadInput

__all__ = ["as_released", "check_claims", "describe_models", "merged", "recorded"]

_ALIKE = "Give a population that was generalised in the same way."
_CELLS = 16_000_000  # of a table of people and classes, at most


class _Listed(Protocol):
    """A hierarchy that may list its values."""

    @property
    def ancestors(self) -> Mapping[str, tuple[str, ...]]: ...


def check_claims(
    rows: pa.Table,
    models: Sequence[Model],
    *,
    quasi: Sequence[str],
    sensitive: Sequence[str],
    order: Mapping[str, Sequence[object] | str] | None = None,
    population: pa.Table | None = None,
) -> Checked:
    """Return the verifier's values for a release, with the orders and hierarchies that its models need.

    Args:
        rows: the released rows.
        models: what it claims.
        quasi, sensitive: its roles.
        order: of sensitive columns; for the ordered distance that of the released values unless given.
        population: generalised in the same way.
    """
    close = [model for model in models if isinstance(model, TCloseness) and model.column in sensitive]
    orders = {
        model.column: _values(rows, model.column)
        for model in close
        if model.distance == "ordered" and not _has_order(rows.schema.field(model.column).type)
    }
    trees = {m.column: _tree(m.hierarchy, _values(rows, m.column)) for m in close if m.hierarchy is not None}
    return check(
        rows,
        quasi=quasi,
        sensitive=sensitive,
        hierarchies=trees,
        order={**orders, **(order or {})},
        population=population,
    )


def _has_order(kind: pa.DataType) -> bool:
    """Return True for numbers, dates and times, which the verifier orders itself."""
    return any(
        check(kind) for check in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_temporal)
    )


def _values(rows: pa.Table, column: str) -> list[Any]:
    """Return the values of a column in their order, without NULL and NaN."""
    return sorted({value for value in rows.column(column).drop_null().to_pylist() if value == value})


def _tree(hierarchy: Hierarchy, values: Sequence[Any]) -> Mapping[str, Sequence[str]]:
    """Return the labels above each value up to the root: as the hierarchy lists them, or as its levels name them."""
    if hierarchy.leaves is not None:
        return hierarchy.to_root
    return {value_text(value): [*(name(value) for name in hierarchy.levels), ALL] for value in values}


def describe_models(requirement: Requirement, rows: pa.Table) -> list[dict[str, Any]]:
    """Return the models and their parameters as plain values, with which the release can be checked again."""
    entries = requirement.describe()
    for entry, model in zip(entries, requirement.models, strict=True):
        if isinstance(model, TCloseness) and model.hierarchy is not None:
            tree = _tree(model.hierarchy, _values(rows, model.column))
            entry["hierarchy"] = {value: list(labels) for value, labels in tree.items()}
    return entries


def recorded(hierarchies: Mapping[str, _Listed]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the hierarchies whose labels cannot be read without them: those that list their values."""
    return {name: dict(ladder.ancestors) for name, ladder in hierarchies.items() if ladder.ancestors}


def merged(ladders: Iterable[Hierarchies]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return hierarchies that read the labels of several releases.

    >>> merged([{"zip": {"33617": ("336",)}}, {"zip": {"33617": ("Tampa",)}}])
    {'zip': {'33617': ('336', 'Tampa')}}
    """
    together: dict[str, dict[str, tuple[str, ...]]] = {}
    for ladder in ladders:
        for column, labels in ladder.items():
            listed = together.setdefault(column, {})
            for value, above in labels.items():
                listed[value] = tuple(dict.fromkeys([*listed.get(value, ()), *above]))
    return together


def as_released(population: object, released: pa.Table, quasi: Sequence[str], hierarchies: Hierarchies) -> pa.Table:
    """Return the quasi-identifiers of a population with the labels of a release in place of exact values.

    Where the labels of a column overlap, as those of boxes do, a person has the labels of the one class of the release
    that contains all of the person's values. A value, or person, that no label stands for is left as it is.

    Raises:
        BadInput: a label is not understood, or several classes contain one person, who then has no one label.
    """
    table = to_arrow(population)
    missing = [name for name in quasi if name not in table.column_names]
    if missing:
        raise BadInput(f"the population has no column {missing[0]:.60}. Give it all quasi-identifiers.")
    columns = [_Read.of(name, table.column(name), released.column(name), hierarchies.get(name)) for name in quasi]
    chosen = [column.pairs.as_function() for column in columns]
    by_row = [label[column.codes] for column, label in zip(columns, chosen, strict=True) if label is not None]
    if len(by_row) < len(columns):
        by_row = _by_class(columns)
    return pa.table({column.name: column.text(labels) for column, labels in zip(columns, by_row, strict=True)})


@dataclass(frozen=True)
class _Read:
    """A column of a population, and which labels of the release contain its values.

    Attributes:
        name: of the column.
        codes, values: of the population.
        places, labels: the same of the release.
        pairs: which labels contain which values.
    """

    name: str
    codes: Integers
    values: pa.Array
    places: Integers
    labels: pa.Array
    pairs: Containment

    @staticmethod
    def of(name: str, people: pa.ChunkedArray, released: pa.ChunkedArray, ladder: Any) -> "_Read":
        (codes, values), (places, labels) = encode(people), encode(released)
        pairs = containment(labels, values, ladder)
        if pairs.unknown:
            raise BadInput(
                f"the population cannot be generalised like the release: labels are not understood in {name:.60}. "
                f"{_ALIKE}"
            )
        return _Read(name, codes, values, places, labels, pairs)

    def text(self, labels: Integers) -> pa.Array:
        """Return the label of each row as text, and the row's own value where it has none (-1)."""
        cells = [
            None if cell is None else value_text(cell) for cell in (*self.labels.to_pylist(), *self.values.to_pylist())
        ]
        return pa.array(cells, pa.string()).take(pa.array(np.where(labels < 0, len(self.labels) + self.codes, labels)))


def _by_class(columns: Sequence[_Read]) -> list[Integers]:
    """Return for each column the label of each row of a population: that of the class which contains the row, or -1.

    A class may have `*` where it holds values and missing ones together; among several, the one with the fewest `*`.
    """
    classes = np.unique(np.stack([column.places for column in columns], axis=1), axis=0)
    people, of_row = np.unique(np.stack([column.codes for column in columns], axis=1), axis=0, return_inverse=True)
    starred = [np.array([word == ALL for word in column.labels.to_pylist()]) for column in columns]
    stars = sum(star[classes[:, axis]].astype(np.int64) for axis, star in enumerate(starred))
    found = np.full(len(people), -1, np.int64)
    step = max(1, _CELLS // max(len(classes), *(len(column.labels) for column in columns)))
    for start in range(0, len(people), step):
        part = people[start : start + step]
        inside = np.ones((len(part), len(classes)), bool)
        for axis, column in enumerate(columns):
            values, places = np.unique(part[:, axis], return_inverse=True)
            inside &= column.pairs.matrix(values, len(column.labels))[:, classes[:, axis]][places.ravel()]
        rank = np.where(inside, stars, len(columns) + 1)
        fewest = rank.min(axis=1)
        if ((rank == fewest[:, None]) & inside).sum(axis=1).max(initial=0) > 1:
            names = ", ".join(column.name for column in columns)
            raise BadInput(
                f"the population cannot be generalised like the release: labels overlap in {names:.120}. {_ALIKE}"
            )
        found[start : start + step] = np.where(fewest > len(columns), -1, rank.argmin(axis=1))
    chosen = np.where(found[:, None] < 0, -1, classes[found])[of_row.ravel()]
    return [chosen[:, axis] for axis in range(len(columns))]

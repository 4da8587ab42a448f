"""What a release claims, put to the independent verifier: the same way when it is made, written, and checked later.

    checked = check_claims(rows, models, quasi=["zip"], sensitive=["disease"])
    problems = [problem for model in models for problem in failures(checked, model)]

The order of a sensitive column of text is that of its released values; its hierarchy is recorded with the facts of the
release (`describe_models`, `recorded`). A population with exact values is generalised as the release is, by
`as_released`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from cloister.anonymize.checking.verifier import Checked, check
from cloister.anonymize.hierarchy import ALL, Hierarchy, value_text
from cloister.anonymize.models import Model, Requirement, TCloseness
from cloister.attack.tables.columns import encode
from cloister.attack.tables.generalised import Hierarchies, containment
from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadInput

__all__ = ["as_released", "check_claims", "describe_models", "merged", "recorded"]


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

    A value that no released label stands for is left as it is.

    Raises:
        BadInput: a label is not understood, or several labels stand for one value, so that it has no one label.
    """
    table = to_arrow(population)
    missing = [name for name in quasi if name not in table.column_names]
    if missing:
        raise BadInput(f"the population has no column {missing[0]:.60}. Give it all quasi-identifiers.")
    columns = {}
    for name in quasi:
        (codes, values), (_, labels) = encode(table.column(name)), encode(released.column(name))
        pairs = containment(labels, values, hierarchies.get(name))
        label_of = pairs.as_function()
        if pairs.unknown or label_of is None:
            reason = "labels are not understood" if pairs.unknown else "labels overlap"
            raise BadInput(
                f"the population cannot be generalised like the release: {reason} in {name:.60}. Give a population "
                "that was generalised in the same way."
            )
        own, words = values.to_pylist(), labels.to_pylist()
        texts = [own[i] if label < 0 else words[label] for i, label in enumerate(label_of)]
        printed = pa.array([None if text is None else value_text(text) for text in texts], pa.string())
        columns[name] = printed.take(pa.array(codes))
    return pa.table(columns)

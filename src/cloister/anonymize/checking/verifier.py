"""Verify a table: give the value of every anonymity model, whoever made the table and with whichever algorithm.

    checked = check(rows, quasi=["zip", "age"], sensitive=["disease"])
    print(checked)                          # every value, and the class that decides it
    checked.meets(k=5, l=3, t=0.2)          # what fails; empty if nothing does

The verifier shares no code with the algorithms of this room. Values are compared as they are printed (see
`checking/columns.py`), rows in an engine are counted there (`checking/source.py`).
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from cloister.anonymize.checking.classes import Classes, Floats, cells_of, combine, group, matching_classes, spread
from cloister.anonymize.checking.columns import (
    Column,
    Integers,
    common_codes,
    encode,
    lookalikes,
    ranks_of_numbers,
    share_codes,
)
from cloister.anonymize.checking.diversity import Measures, measure
from cloister.anonymize.checking.presence import Invariance, Presence, invariance, presence, support_of_sets
from cloister.anonymize.checking.result import Checked, Diversity, Group, Sizes
from cloister.anonymize.checking.source import Rows, column_of, is_source, read
from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadSchema, BadSource

__all__ = ["Checked", "Diversity", "Group", "check"]

_ROWS_KEPT = 1_000


def check(
    rows: object,
    *,
    quasi: Sequence[str],
    sensitive: Sequence[str] = (),
    table: str | None = None,
    order: Mapping[str, Sequence[object] | str] | None = None,
    hierarchies: Mapping[str, object] | None = None,
    reference: Mapping[str, Mapping[object, float]] | None = None,
    population: object = None,
    population_table: str | None = None,
    items: str | None = None,
    m: int = 2,
    earlier: Sequence[object] = (),
    ids: str | None = None,
    suppressed: str = "*",
    matching: str = "exact",
) -> Checked:
    """Return the value of every anonymity model for a table.

    A NULL is a value of its own that equals only NULL; NaN is NULL. Distinct l does not count it. In an order NULL
    comes first; in a hierarchy that does not list it, it is a child of the root.

    Args:
        rows: an Arrow table, a pandas or polars frame, a dict of lists; or a source whose rows stay in their engine: a
            file, a postgresql:// address, a Spark frame, a dict of sources, or an open engine.
        quasi: the quasi-identifiers.
        sensitive: the sensitive columns, each checked by itself and with the others as quasi-identifiers.
        table: the name of the table, for a source with several.
        order: for a sensitive column, its values from the lowest to the highest, all of them, or "number" for text
            that holds numbers. Columns of numbers, dates and times have their own order.
        hierarchies: for a sensitive column, a dict from each value to the list of its ancestors, all of one length,
            the nearest first; or an Arrow or pandas table with the value in its first column and its ancestors in the
            others, which is ARX's format.
        reference: for a sensitive column, weights of its values in an outside population, against which t, KL and
            beta are measured. By default it is the table itself.
        population, population_table: the table that the release was drawn from, generalised in the same way.
        items: a column of lists, checked for k^m-anonymity with this m.
        earlier, ids: earlier releases of the same people, and the column that identifies them, for m-invariance.
        suppressed: the text of a suppressed cell.
        matching: "exact": a suppressed cell is a value of its own. "overlap": it matches any value, for tables with
            local suppression; every value is then that of the rows that match a combination. This is the view of
            somebody who does not know the true value behind a suppressed cell. Who knows it may exclude some of these
            rows, so exact matching is the safe check.

    Raises:
        BadSchema: a column has two roles, or an order or hierarchy lacks a value.
        BadSource: there is no such table or column, or no rows.

    >>> rows = {"zip": ["130**"] * 4, "disease": ["Cancer", "Flu", "Flu", "Cancer"]}
    >>> checked = check(rows, quasi=["zip"], sensitive=["disease"])
    >>> checked.k, checked.diversity["disease"].distinct_l
    (4, 2)
    >>> checked.meets(k=5, l=2)
    ['k is 4 and must be at least 5: zip=130** (4 rows)']
    """
    quasi, sensitive = _names(quasi, "quasi"), _names(sensitive, "sensitive")
    _refuse_roles(quasi, sensitive, order, hierarchies, reference, items, ids)
    if matching not in ("exact", "overlap"):
        raise BadSchema("matching is 'exact' or 'overlap'. Use 'exact' if in doubt.")
    if is_source(rows, table) and (items is not None or earlier):
        raise BadSource("items= and earlier= need rows in memory. Load the table first.")
    if bool(earlier) != (ids is not None):
        raise BadSchema("m-invariance needs earlier= and ids= together. Give both.")
    data = read(rows, [*quasi, *sensitive], table)
    keys = [data.columns[name] for name in quasi]
    if matching == "exact":
        exact = classes = group(keys, data.entries, data.weights)
    else:
        exact, classes = matching_classes(keys, data.entries, data.weights, suppressed)
    scales = {name: _Scale(name, data, order, hierarchies, reference) for name in sensitive}
    diversity = {name: _diversity(data, scale, quasi, exact, classes) for name, scale in scales.items()}
    joint = _joint(data, scales, quasi, exact, suppressed, matching) if len(sensitive) > 1 else {}
    shares = None
    if population is not None:
        shares = presence(data, exact, read(population, quasi, population_table), quasi)
    series = _series(rows, data, exact, earlier, quasi, sensitive, ids)
    sets = None if items is None else support_of_sets(items, column_of(rows, items), m)
    cells, entire = _suppressed(keys, data, suppressed)
    number = int(np.argmin(classes.sizes))
    singles = classes.sizes[exact.ids] == 1
    return Checked(
        rows=data.rows,
        classes=len(exact.sizes),
        k=int(classes.sizes[number]),
        sizes=_sizes(classes.sizes),
        unique_rows=int(singles.sum() if data.weights is None else data.weights[singles].sum()),
        suppressed_cells=cells,
        suppressed_rows=entire,
        quasi=quasi,
        sensitive=sensitive,
        matching=matching,
        diversity=diversity,
        joint=joint,
        presence=shares,
        sets=sets,
        invariance=series,
        deciding={"k": _Groups(data, quasi, exact, classes).group(number)},
        notes=_notes(data, sensitive, cells, matching, shares),
        engine=data.engine,
    )


def _names(names: Sequence[str], role: str) -> tuple[str, ...]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise BadSchema(f"{role} is a list of column names. Write {role}=['zip'].")
    return tuple(names)


def _refuse_roles(quasi: tuple[str, ...], sensitive: tuple[str, ...], *options: Any) -> None:
    *mappings, items, ids = options
    roles = [*quasi, *sensitive, *(name for name in (items, ids) if name is not None)]
    twice = [name for name in dict.fromkeys(roles) if roles.count(name) > 1]
    if twice:
        raise BadSchema(f"the column {twice[0]:.60} has two roles. Name it once, in quasi or in sensitive.")
    for mapping in mappings:
        unknown = [name for name in mapping or () if name not in sensitive]
        if unknown:
            raise BadSchema(f"{unknown[0]!s:.60} is no sensitive column. Add it to sensitive, or leave it out.")


class _Scale:
    """A sensitive column with the shares it is compared with, its order and its hierarchy."""

    def __init__(self, name: str, data: Rows, order: Any, hierarchies: Any, reference: Any) -> None:
        self.name = name
        column = data.columns[name]
        counts = np.bincount(column.codes, weights=data.weights, minlength=len(column.texts))
        self.q: Floats = counts / counts.sum()
        self.order, self.domain = column.ranks, len(column.texts)
        self.levels: list[Integers] | None = None
        if order is not None and name in order:
            self.order, self.domain = _given_order(name, column, order[name])
        if reference is not None and name in reference:
            column, self.q = _reference(name, column, reference[name])
            self.order, self.domain = _widened(name, column, order, self.order, self.domain)
        if hierarchies is not None and name in hierarchies:
            self.levels = _levels(name, column, hierarchies[name])
        self.column = column


def _given_order(name: str, column: Column, order: object) -> tuple[Integers, int]:
    """Return the position of each value in an order, and the number of positions."""
    if isinstance(order, str):
        ranks = ranks_of_numbers(column.texts) if order == "number" else None
        if ranks is None:
            raise BadSchema(f"the order of {name:.60} is a list of its values, or 'number' if all of them are numbers.")
        return ranks, len(column.texts)
    listed = encode(name, pa.chunked_array([to_arrow({name: list(order)}).column(name).combine_chunks()]))  # type: ignore[call-overload]
    if len(listed.texts) < len(listed.codes):
        raise BadSchema(f"the order of {name:.60} has a value twice. List every value once.")
    positions = _found(column.texts, listed.texts)
    null = column.null_code()
    first = int(null is not None and positions[null] < 0)  # NULL comes first unless it is listed
    if null is not None and first:
        positions = positions + 1
        positions[null] = 0
    if (positions < first).sum() > first:
        raise BadSchema(f"the order of {name:.60} lacks a value of the table. List all values.")
    return positions, len(listed.codes) + first


def _found(texts: pa.Array, among: pa.Array) -> Integers:
    """Return the position of each text among others; -1 if it is not there."""
    position = pa.compute.index_in(texts, value_set=among.cast(texts.type))
    return np.asarray(pa.compute.fill_null(position, -1).to_numpy(), dtype=np.int64)


def _reference(name: str, column: Column, weights: Mapping[object, float]) -> tuple[Column, Floats]:
    """Return a column with all values of a reference distribution, and their shares in it."""
    values = list(weights)
    shares = np.array([float(weights[value]) for value in values], dtype=np.float64)
    if not len(shares) or not np.isfinite(shares).all() or shares.min() < 0 or shares.sum() <= 0:
        raise BadSchema(f"the reference of {name:.60} is a dict from value to a weight that is not negative.")
    listed = encode(name, pa.chunked_array([to_arrow({name: values}).column(name).combine_chunks()]))
    both = share_codes([column, listed])
    q = np.bincount(both[1].codes, weights=shares, minlength=len(both[0].texts))
    return Column(column.codes, both[0].texts, None), q / q.sum()


def _widened(name: str, column: Column, order: Any, ranks: Integers | None, domain: int) -> tuple[Integers | None, int]:
    """Return the order of the values of a table and a reference together."""
    if order is not None and name in order:
        return _given_order(name, column, order[name])
    if ranks is None:
        return None, domain
    ranks = ranks_of_numbers(column.texts)
    if ranks is None:  # dates and times: their printed form sorts as they do, and NULL comes first
        texts = [text or "" for text in column.texts.to_pylist()]
        ranks = np.argsort(np.argsort(np.array(texts, dtype=object), kind="stable"), kind="stable")
    return ranks, len(column.texts)


def _levels(name: str, column: Column, hierarchy: object) -> list[Integers]:
    """Return the node of each value on each level, from the values themselves to the children of the root."""
    if isinstance(hierarchy, Mapping):
        if not all(isinstance(path, list | tuple) for path in hierarchy.values()):
            raise BadSchema(f"the hierarchy of {name:.60} is a dict from each value to the list of its ancestors.")
        paths = [[value, *path] for value, path in hierarchy.items()]
        if len({len(path) for path in paths}) > 1:
            raise BadSchema(
                f"the values of {name:.60} have lists of ancestors of different lengths. Repeat an ancestor where the "
                "tree is less deep."
            )
        ladder = to_arrow({str(i): list(level) for i, level in enumerate(zip(*paths, strict=True))})
    else:
        ladder = to_arrow(hierarchy)
    if not ladder.num_rows:
        raise BadSchema(f"the hierarchy of {name:.60} is empty. List every value with its ancestors.")
    levels = [encode(name, ladder.column(i)) for i in range(ladder.num_columns)]
    if len(levels[0].texts) < ladder.num_rows:
        raise BadSchema(f"the hierarchy of {name:.60} has a value twice. List every value once.")
    for lower, upper in pairwise(levels):
        if len(np.unique(combine([lower, upper], ladder.num_rows))) > len(lower.texts):
            raise BadSchema(f"the hierarchy of {name:.60} is no tree: an entry has two parents. Give it one.")
    if len(levels) > 1 and len(levels[-1].texts) == 1:
        levels = levels[:-1]  # the root: its distance is counted by the number of levels below it
    line = _found(column.texts, levels[0].texts.take(pa.array(levels[0].codes)))
    null = column.null_code()
    if (np.delete(line, [] if null is None else [null]) < 0).any():
        raise BadSchema(f"the hierarchy of {name:.60} lacks a value of the table. List all values.")
    nodes = [np.where(line < 0, len(level.texts), level.codes[line]) for level in levels]
    return [np.arange(len(column.texts)), *nodes[1:]]


class _Groups:
    """Classes as they are reported. Each is looked up once."""

    def __init__(self, data: Rows, names: tuple[str, ...], exact: Classes, classes: Classes) -> None:
        self._data, self._names, self._exact, self._classes = data, names, exact, classes
        self._known: dict[int, Group] = {}

    def group(self, number: int) -> Group:
        """Return a class by its number."""
        if number not in self._known:
            entry = int(np.argmax(self._exact.ids == number))
            columns = ((name, self._data.columns[name]) for name in self._names)
            values = {name: column.text(int(column.codes[entry])) for name, column in columns}
            members = self._classes.members(number)[:_ROWS_KEPT].tolist() if self._data.weights is None else ()
            self._known[number] = Group(values, int(self._classes.sizes[number]), tuple(members))
        return self._known[number]


def _diversity(data: Rows, scale: _Scale, names: tuple[str, ...], exact: Classes, classes: Classes) -> Diversity:
    column = scale.column
    cells = spread(cells_of(exact, column, data.weights), classes, len(column.texts))
    found = measure(cells, scale.q, scale.order, scale.levels, scale.domain, column.null_code())
    return _described(found, scale, names, _Groups(data, names, exact, classes), data)


def _described(found: Measures, scale: _Scale, names: tuple[str, ...], groups: _Groups, data: Rows) -> Diversity:
    deciding = {name: groups.group(number) for name, (_, number) in found.worst.items()}
    deciding |= {f"recursive {i}": groups.group(number) for i, (_, number) in enumerate(found.recursive[:10], 1)}
    deciding["recursive beyond"] = groups.group(found.few)
    occurs = found.alpha_classes >= 0
    texts = scale.column.texts.filter(pa.array(occurs)).to_pylist()
    value = {name: worst for name, (worst, _) in found.worst.items()}
    return Diversity(
        column=scale.name,
        grouped_by=names,
        values=len(texts),
        distinct_l=int(value.pop("distinct_l")),
        recursive=tuple(bound for bound, _ in found.recursive),
        t_ordered=value.pop("t_ordered", None),
        t_hierarchical=value.pop("t_hierarchical", None),
        alphas=dict(zip(texts, found.alphas[occurs].tolist(), strict=True)),
        deciding=deciding,
        **value,
    )


def _joint(
    data: Rows, scales: Mapping[str, _Scale], quasi: tuple[str, ...], exact: Classes, suppressed: str, matching: str
) -> dict[str, Diversity]:
    """Check each sensitive column with the others as quasi-identifiers."""
    joint = {}
    for name, scale in scales.items():
        others = tuple(other for other in scales if other != name)
        names, columns = (*quasi, *others), [data.columns[other] for other in others]
        if matching == "exact":
            # The classes of the quasi-identifiers are known: they count as one column.
            known = Column(exact.ids, pa.nulls(len(exact.sizes)), None)
            inner = outer = group([known, *columns], data.entries, data.weights)
        else:
            keys = [data.columns[key] for key in quasi]
            inner, outer = matching_classes([*keys, *columns], data.entries, data.weights, suppressed)
        joint[name] = _diversity(data, scale, names, inner, outer)
    return joint


def _series(
    rows: object,
    data: Rows,
    exact: Classes,
    earlier: Sequence[object],
    quasi: tuple[str, ...],
    sensitive: tuple[str, ...],
    ids: str | None,
) -> dict[str, Invariance]:
    if ids is None:
        return {}
    if not sensitive:
        raise BadSchema("m-invariance is about a sensitive column. Give sensitive=.")
    if any(is_source(release, None) for release in earlier):
        raise BadSource("items= and earlier= need rows in memory. Load the table first.")
    people, null = common_codes(ids, [column_of(release, ids) for release in (*earlier, rows)])
    releases = [*(read(release, [*quasi, *sensitive]) for release in earlier), data]
    before = [group([release.columns[name] for name in quasi], release.entries, None) for release in releases[:-1]]
    return {name: invariance(releases, [*before, exact], name, people, null) for name in sensitive}


def _suppressed(keys: Sequence[Column], data: Rows, suppressed: str) -> tuple[int, int]:
    """Return the number of suppressed cells, and of rows in which every quasi-identifier is suppressed."""
    weights = np.ones(data.entries, dtype=np.int64) if data.weights is None else data.weights
    cells, entire = 0, np.full(data.entries, bool(keys))
    for column in keys:
        code = column.texts.index(pa.scalar(suppressed, column.texts.type)).as_py()
        stars = column.codes == code
        cells += int(weights[stars].sum()) if code >= 0 else 0
        entire &= stars
    return cells, int(weights[entire].sum())


def _sizes(sizes: Integers) -> Sizes:
    return Sizes(int(sizes.min()), float(np.median(sizes)), float(sizes.mean()), int(sizes.max()))


def _notes(
    data: Rows, sensitive: tuple[str, ...], cells: int, matching: str, shares: Presence | None
) -> tuple[str, ...]:
    notes = ["These values are not differential privacy, and no epsilon follows from them."]
    for name in sensitive:
        if count := lookalikes(data.columns[name].texts):
            notes.append(
                f"{count} values of {name} differ from another one only in case, outer spaces or Unicode form. They "
                "count as different values, which makes l larger than a reader would say."
            )
    if cells and matching == "exact":
        notes.append("A suppressed cell is a value of its own (matching='exact').")
    if cells and matching == "overlap":
        notes.append(
            "A suppressed cell matches any value (matching='overlap'); somebody who knows the true value may exclude "
            "some of these rows."
        )
    if shares is not None and shares.outside:
        notes.append(f"The population does not contain the release: {shares.outside} rows have no counterpart.")
    return tuple(notes)

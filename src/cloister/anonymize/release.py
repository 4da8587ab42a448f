"""Anonymise a table: by global recoding in the lattice of hierarchies, or by Mondrian's partition.

    from cloister.anonymize import recode, mondrian, KAnonymity, DistinctDiversity, Hierarchy
    release = recode(frame, quasi=["age", "zip"], sensitive=["disease"], identifiers=["name"],
                     hierarchies={"zip": Hierarchy.masking(5)}, suppression=0.05,
                     require=[KAnonymity(5), DistinctDiversity(3, "disease")])
    print(release)                       # label, loss, suppressed rows, levels
    release.to_csv("visits-k5.csv")      # verified again by `check`, then written

Identifiers are dropped, quasi-identifiers are generalised, sensitive and plain columns are kept as they are. A release
is not differentially private: `risk` and `attack.tables` show what is left.

Falls to: `attack.tables.linkage`, `attack.tables.homogeneity`, `attack.tables.minimality`,
`attack.tables.intersection`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from cloister.anonymize.algorithms.boxes import boxed
from cloister.anonymize.algorithms.lattice import Lattice, Search, search
from cloister.anonymize.algorithms.partition import partition
from cloister.anonymize.claims import recorded
from cloister.anonymize.classes import EquivalenceClasses, group
from cloister.anonymize.coded import Array, CodedColumn, CodedTable
from cloister.anonymize.hierarchy import CodedHierarchy, Hierarchy, automatic, value_text
from cloister.anonymize.models import DeltaPresence, KMap, Model, Requirement, TCloseness
from cloister.anonymize.suppression import suppress
from cloister.anonymize.table import AnonymizedTable, Roles
from cloister.anonymize.utility import ReleasedColumn, measure_utility
from cloister.data.rows import to_arrow
from cloister.data.schema import Table
from cloister.privacy.errors import BadInput

__all__ = ["Task", "hierarchies_of", "hopeless", "levelled", "mondrian", "prepare", "recode", "release"]

Progress = Callable[[float, str], None]
_MOST_WORDS = 12


def recode(
    rows: object,
    *,
    require: Model | Sequence[Model],
    quasi: Sequence[str] = (),
    sensitive: Sequence[str] = (),
    identifiers: Sequence[str] = (),
    plain: Sequence[str] = (),
    schema: Table | None = None,
    hierarchies: Mapping[str, Hierarchy] | None = None,
    suppression: float = 0.0,
    weights: Mapping[str, float] | None = None,
    population: object = None,
    seconds: float | None = None,
    gap: float = 0.0,
    progress: Progress | None = None,
) -> AnonymizedTable:
    """Anonymise by global recoding: every value of a column is released at the same level of its hierarchy.

    The level of each column is chosen with the least certainty penalty, suppressed rows included: the optimum is over
    all levels and all sets of classes to suppress. The result is proven to be the best one, unless `seconds` or `gap`
    ends the search earlier, or rows are suppressed for a model that compares classes with the release (t, beta). Then
    it states how far above the optimum it may be, at most.

    Args:
        rows: a pandas or polars frame, an Arrow table, or a dict of lists.
        require: the models that every class must satisfy.
        quasi, sensitive, identifiers, plain: the roles of columns. A column without a role is kept, unless its name
            suggests that it identifies people: then it is refused until it is named.
        schema: takes the roles, bounds and categories from a table of a schema where they are not given.
        hierarchies: of quasi-identifiers; others are made from type and public facts (`automatic`).
        suppression: share of the rows that may be removed, between 0 and 1.
        weights: of quasi-identifiers in the penalty.
        population: the rows that the release is drawn from, for `KMap` and `DeltaPresence`; quasi-identifiers only.
        seconds: time limit of the search.
        gap: stop when the penalty is at most this share above the optimum: 0.05 for 5 %.
        progress: called with a share and a sentence.

    Raises:
        BadInput: a column or hierarchy is wrong, or no level satisfies the models.
    """
    if not 0 <= suppression < 1:
        raise BadInput("suppression is the share of rows that may be removed: at least 0, below 1.")
    requirement = Requirement.of(require)
    roles = Roles.of(
        rows, requirement, quasi=quasi, sensitive=sensitive, identifiers=identifiers, plain=plain, schema=schema
    )
    roles.refuse_weights(weights)
    coded, outside = coded_rows(rows, roles, requirement, population)
    chosen = hierarchies_of(coded, roles, hierarchies or {}, schema)
    lattice = Lattice(
        chosen,
        {name: coded.columns[name] for name in requirement.columns},
        requirement,
        suppression,
        weights,
        None if outside is None else outside,
    )
    state = search(lattice, seconds=seconds, gap=gap, progress=progress)
    if state.best is None:
        raise BadInput(hopeless(requirement, lattice.rows, suppression, proven=state.hopeless))
    return _recoded(coded, roles, requirement, chosen, state, outside, weights, lattice.allowed)


def mondrian(
    rows: object,
    *,
    require: Model | Sequence[Model],
    quasi: Sequence[str] = (),
    sensitive: Sequence[str] = (),
    identifiers: Sequence[str] = (),
    plain: Sequence[str] = (),
    schema: Table | None = None,
    relaxed: bool = False,
    weights: Mapping[str, float] | None = None,
    population: object = None,
    progress: Progress | None = None,
) -> AnonymizedTable:
    """Anonymise by Mondrian: classes are boxes of different sizes, each released as intervals and sets of values.

    It needs no hierarchies, suppresses nothing, and usually keeps more than global recoding.

    Args:
        relaxed: True to cut classes at their middle row, so that rows with equal values may fall into two classes.
        population: for `KMap` and `DeltaPresence`, as for `recode`. Boxes are made of its rows, too.
        rows, require, quasi, sensitive, identifiers, plain, schema, weights, progress: as for `recode`.

    Raises:
        BadInput: a column is wrong, or the table as a single class does not satisfy the models.
    """
    task = prepare(
        rows,
        require,
        quasi=quasi,
        sensitive=sensitive,
        identifiers=identifiers,
        plain=plain,
        schema=schema,
        population=population,
    )
    coded, roles, requirement, held = task.coded, task.roles, task.requirement, task.held
    roles.refuse_weights(weights)
    of_row = partition(
        task.columns, held, requirement, relaxed=relaxed, weights=weights, outside=task.outside, progress=progress
    )
    released = [boxed(column, of_row) for column in task.columns]
    kept = np.ones(len(of_row), bool)
    method = f"Mondrian, {'relaxed' if relaxed else 'strict'}"
    return release(coded, roles, requirement, released, kept, method=method, weights=weights)


@dataclass(frozen=True)
class Task:
    """A table to anonymise, and what every class must satisfy.

    Attributes:
        coded: the rows.
        roles: of the columns.
        requirement: satisfied by the table as a single class.
        held: the sensitive columns that the requirement names.
        outside: True for each row of the population, which follow those of the table; None without a population.
    """

    coded: CodedTable
    roles: Roles
    requirement: Requirement
    held: Mapping[str, CodedColumn]
    outside: Array | None = None

    @property
    def columns(self) -> list[CodedColumn]:
        """Return the quasi-identifiers."""
        return [self.coded.columns[name] for name in self.roles.quasi]


def prepare(
    rows: object,
    require: Model | Sequence[Model],
    *,
    quasi: Sequence[str],
    sensitive: Sequence[str],
    identifiers: Sequence[str],
    plain: Sequence[str],
    schema: Table | None,
    suppresses: bool = False,
    population: object = None,
    takes_population: str = "",
) -> Task:
    """Read a table for an algorithm that makes classes of all rows.

    If all classes satisfy the models, so does the table as one class. An algorithm that suppresses rows looks itself.
    An algorithm that cannot compare with a population says why in `takes_population`.

    Raises:
        BadInput: a column is wrong, or the table as a single class does not satisfy the models.
    """
    requirement = Requirement.of(require)
    if requirement.needs_population and takes_population:
        names = ", ".join(m.label for m in requirement.models if isinstance(m, KMap | DeltaPresence))
        raise BadInput(f"{names} is refused here: {takes_population} Choose recode, mondrian or top_down.")
    roles = Roles.of(
        rows, requirement, quasi=quasi, sensitive=sensitive, identifiers=identifiers, plain=plain, schema=schema
    )
    coded, outside = coded_rows(rows, roles, requirement, population)
    held = {name: coded.columns[name] for name in requirement.columns}
    of_row = np.zeros(len(coded.columns[roles.quasi[0]].codes), np.int64)
    whole = EquivalenceClasses(of_row, 1, held, *sides(outside))
    if not suppresses and not requirement.holds(whole).all():
        raise BadInput(hopeless(requirement, len(coded), 0.0))
    return Task(coded, roles, requirement, held, outside)


def release(
    coded: CodedTable,
    roles: Roles,
    requirement: Requirement,
    columns: Sequence[ReleasedColumn],
    kept: Array,
    *,
    method: str,
    levels: Mapping[str, int] | None = None,
    state: Search | None = None,
    weights: Mapping[str, float] | None = None,
) -> AnonymizedTable:
    """Return the rows that are kept, with labels in place of quasi-identifiers, and what they lost.

    Columns and `kept` may go on with the rows of a population behind those of the table.
    """
    own, after = slice(0, len(coded)), slice(len(coded), None)
    people = None
    if len(columns[0].codes) > len(coded):
        people = pa.table({column.name: _generalised(column, column.labels[after]) for column in columns})
        columns = [
            replace(column, codes=column.codes[own], labels=column.labels[own], penalty=column.penalty[own])
            for column in columns
        ]
    kept = kept[own]
    of_row, _ = group([column.labels for column in columns], [len(column.words) for column in columns])
    first = coded.columns[requirement.columns[0]].codes[own] if requirement.columns else None
    places = pa.array(np.flatnonzero(kept))
    table = coded.rows.slice(0, len(kept)).take(places)
    labelled = {column.name: _labelled(column, kept, table) for column in columns}
    names = [name for name in table.column_names if name not in roles.identifiers]
    trees = [m.column for m in requirement.models if isinstance(m, TCloseness) and m.hierarchy is not None]
    return AnonymizedTable(
        rows=pa.table({name: labelled.get(name, table.column(name)) for name in names}),
        roles=roles,
        requirement=requirement.bound(CodedTable.of(table, trees).columns) if trees else requirement,
        method=method,
        utility=measure_utility(columns, of_row, kept, requirement.smallest, sensitive=first, weights=weights),
        original_rows=len(kept),
        levels=dict(levels or {}),
        search=state,
        population=people,
    )


def _generalised(column: ReleasedColumn, labels: Array) -> pa.Array:
    """Return labels of a population; a column that is not generalised keeps its type."""
    plain = not any(isinstance(word, str) for word in column.words)
    return (pa.array(list(column.words)) if plain else _words(column)).take(pa.array(labels))


def _labelled(column: ReleasedColumn, kept: Array, table: pa.Table) -> Any:
    if not column.penalty[kept].any() and all(word is None or not isinstance(word, str) for word in column.words):
        return table.column(column.name)  # nothing was generalised: the column keeps its type
    return _words(column).take(pa.array(column.labels[kept]))


def _words(column: ReleasedColumn) -> pa.Array:
    return pa.array([None if word is None else value_text(word) for word in column.words], pa.string())


def coded_rows(
    rows: object, roles: Roles, requirement: Requirement, population: object
) -> tuple[CodedTable, Array | None]:
    """Return the rows as codes; a population is appended, with True for each of its rows that is not released."""
    names = [*roles.quasi, *requirement.columns]
    if not requirement.needs_population:
        return CodedTable.of(rows, names), None
    if population is None:
        raise BadInput("k-map and delta-presence need population=…, the table that the rows are drawn from.")
    own, others = to_arrow(rows), to_arrow(population)
    missing = [name for name in roles.quasi if name not in others.column_names]
    if missing:
        raise BadInput(f"the population has no column {missing[0]}. Give it all quasi-identifiers.")
    try:
        together = pa.concat_tables([own, others.select(list(roles.quasi))], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        name = next(n for n in roles.quasi if not _alike(own.schema.field(n).type, others.schema.field(n).type))
        raise BadInput(
            f"{name:.60} is {own.schema.field(name).type} in the rows and {others.schema.field(name).type} in the "
            "population. Convert one of them, so that equal values are equal."
        ) from None
    coded = CodedTable.of(together, names)
    return CodedTable(own, coded.columns), np.arange(together.num_rows) >= own.num_rows


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Return True if columns of two types can be put together."""
    schemas = [pa.schema([("x", kind)]) for kind in (one, other)]
    try:
        pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return True


def sides(outside: Array | None) -> tuple[Array | None, Array | None]:
    """Return how often each row is in the release, and how often in the population."""
    return (None, None) if outside is None else ((~outside).astype(np.int64), outside.astype(np.int64))


def hierarchies_of(
    coded: CodedTable, roles: Roles, given: Mapping[str, Hierarchy], schema: Table | None
) -> list[CodedHierarchy]:
    """Return a hierarchy for each quasi-identifier: the given one, or one made from type and public facts."""
    unknown = [name for name in given if name not in roles.quasi]
    if unknown:
        raise BadInput(
            f"there is a hierarchy for {unknown[0]}, which is no quasi-identifier. Remove it, or add the column."
        )
    facts = {} if schema is None else schema.listed
    return [
        (given.get(name) or automatic(coded.columns[name], facts.get(name))).over(coded.columns[name])
        for name in roles.quasi
    ]


def _recoded(
    coded: CodedTable,
    roles: Roles,
    requirement: Requirement,
    hierarchies: Sequence[CodedHierarchy],
    state: Search,
    outside: Array | None,
    weights: Mapping[str, float] | None,
    room: int,
) -> AnonymizedTable:
    assert state.best is not None
    node = state.best.node
    columns = [levelled(hierarchy, level) for hierarchy, level in zip(hierarchies, node, strict=True)]
    of_row, number = group([column.labels for column in columns], [len(column.words) for column in columns])
    held = {name: coded.columns[name] for name in requirement.columns}
    classes = EquivalenceClasses(of_row, number, held, *sides(outside))
    made = release(
        coded,
        roles,
        requirement,
        columns,
        suppress(requirement, classes, room).kept[of_row],
        method=f"global recoding, {state.verdict.removeprefix('the ')}",
        levels=dict(zip(roles.quasi, node, strict=True)),
        state=state,
        weights=weights,
    )
    return replace(made, hierarchies=recorded(dict(zip(roles.quasi, hierarchies, strict=True))))


def levelled(hierarchy: CodedHierarchy, level: int) -> ReleasedColumn:
    """Return a column with every value at one level of its hierarchy."""
    column = hierarchy.column
    words = column.values if level == 0 else [label or None for label in hierarchy.labels[level]]
    return ReleasedColumn(
        column.name, column.codes, hierarchy.maps[level][column.codes], words, hierarchy.losses[level][column.codes]
    )


def hopeless(requirement: Requirement, rows: int, suppression: float, *, proven: bool = True) -> str:
    """Return why no release can satisfy a requirement, and what to change."""
    if not proven:
        return (
            f"no release that satisfies {', '.join(model.label for model in requirement.models)} was found in the "
            "time. Give it more seconds, or ask for less. Nothing was written."
        )
    few = requirement.smallest > rows
    whole = "the table as a whole does not satisfy the models"
    cause = f"there are {rows:,} rows" if few else f"{whole}, whatever is suppressed" if suppression else whole
    way = "Ask for less" if few else "Lower l, or raise t"
    return (
        f"no release satisfies {', '.join(model.label for model in requirement.models)}: {cause}. "
        f"{way}{'' if suppression else ', or allow suppression'}. Nothing was written."
    )

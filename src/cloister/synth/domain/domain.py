"""The columns of a table as public cells, with structural zeros and dependencies.

    domain = read_domain(ds, table="visits", columns=["ward", "age"], bins=32)
    domain.axes          # every column of the synthetic table
    domain.modelled      # those that a model describes; the others are pseudonyms, or determined by them

Privacy: derived from the schema and the caller's arguments. Neighbouring tables have the same domain.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cloister.data.private_data import PrivateTables
from cloister.data.schema import Column
from cloister.privacy.errors import BadInput, BadSchema
from cloister.synth.domain.axis import MOST_CELLS, Axis, Cells, read_axis
from cloister.synth.domain.cuts import PrivateCuts
from cloister.synth.model.junction_tree import junction_tree
from cloister.synth.options import check_names

if TYPE_CHECKING:
    import pyarrow as pa

    from cloister.data.private_table import PrivateTable

__all__ = ["Domain", "Zero", "check_rows", "most_rows", "read_domain"]

Positions = tuple[int, ...]
_MOST_VALUES = 400_000_000  # of a table sampled at once
_MOST_UNASKED = 20_000_000  # of a table whose number of rows is a noisy estimate, which may be anything
_MOST_DECIDED = 4_000_000  # cells of columns tied by a rule or a dependency


@dataclass(frozen=True)
class Zero:
    """Combinations of cells that never occur.

    Attributes:
        positions: indices of the columns among the modelled columns, ascending.
        allowed: False where a combination never occurs; one dimension for each column.
    """

    positions: Positions
    allowed: NDArray[np.bool_]


@dataclass(frozen=True)
class Domain:
    """Public cells of all columns of a table.

    Attributes:
        table: name of the table.
        axes: the axis of every column of the synthetic table, in order.
        never: combinations that no row has: {column: condition}, as in `Axis.cells_of`.
        determines: (columns, column): the columns that determine another.
    """

    table: str
    axes: tuple[Axis, ...]
    never: tuple[Mapping[str, Any], ...] = ()
    determines: tuple[tuple[tuple[str, ...], str], ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the names of all columns."""
        return tuple(axis.name for axis in self.axes)

    @cached_property
    def modelled(self) -> tuple[Axis, ...]:
        """Return the columns that a model describes: all but pseudonyms and determined columns."""
        decided = {right for _, right in self.determines}
        return tuple(axis for axis in self.axes if not axis.pseudonym and axis.name not in decided)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Return the number of cells of each modelled column."""
        return tuple(axis.size for axis in self.modelled)

    @cached_property
    def positions(self) -> dict[str, int]:
        """Return the index of each modelled column."""
        return {axis.name: index for index, axis in enumerate(self.modelled)}

    @cached_property
    def zeros(self) -> tuple[Zero, ...]:
        """Return the structural zeros, as cells of modelled columns."""
        return tuple(self._zero(rule) for rule in self.never)

    def axis(self, name: str) -> Axis:
        """Return the axis of one column."""
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise BadInput(f"there is no column {name!r:.60} here. There are: {', '.join(self.names)}.")

    def cells(self, positions: Sequence[int]) -> int:
        """Return the number of cells of a marginal of these columns."""
        return math.prod(self.shape[column] for column in positions)

    def words(self, positions: Sequence[int]) -> tuple[str, ...]:
        """Return the names of modelled columns."""
        return tuple(self.modelled[column].name for column in positions)

    def encode(self, table: "pa.Table") -> Cells:
        """Return the cells of rows, one column for each axis; -1 for a value outside all cells.

        Privacy: as sensitive as the rows.
        """
        return np.column_stack([axis.place(table.column(axis.name)) for axis in self.axes])

    def possible(self) -> bool:
        """Return True if some row satisfies all rules."""
        tree = junction_tree(self.shape, [zero.positions for zero in self.zeros])
        tables = [np.ones([self.shape[column] for column in clique], dtype=bool) for clique in tree.cliques]
        for zero in self.zeros:
            home = tree.home(zero.positions, self.shape)
            tables[home] &= _over(zero.allowed, zero.positions, tree.cliques[home])
        # From the leaves up: a clique's cell is possible if every child clique has a compatible cell.
        for i in range(len(tables) - 1, -1, -1):
            clique, above, shared = tree.cliques[i], tree.parents[i], tree.separators[i]
            left = np.asarray(tables[i].any(axis=tuple(k for k, column in enumerate(clique) if column not in shared)))
            if not left.any():
                return False
            if above >= 0:
                tables[above] &= _over(left, shared, tree.cliques[above])
        return True

    def _zero(self, rule: Mapping[str, Any]) -> Zero:
        names = sorted(rule, key=lambda name: self.positions.get(name, -1))
        missing = [name for name in names if name not in self.positions]
        if missing:
            raise BadSchema(
                f"{missing[0]} is decided by other columns, so never cannot speak of it. Name those instead."
            )
        chosen = np.array(True)
        for name in names:
            chosen = np.multiply.outer(chosen, self.axis(name).cells_of(rule[name]))
        return Zero(tuple(self.positions[name] for name in names), ~chosen)


def _over(table: NDArray[np.bool_], positions: Positions, clique: Positions) -> NDArray[np.bool_]:
    """Reshape a table over some columns of a clique to broadcast over all of them."""
    sizes = dict(zip(positions, table.shape, strict=True))
    return table.reshape([sizes.get(column, 1) for column in clique])


def read_domain(
    data: PrivateTables,
    *,
    table: str | None = None,
    columns: Sequence[str] | None = None,
    bins: Any = 32,
    rules: bool = True,
) -> tuple[Domain, "PrivateTable"]:
    """Return the domain of a dataset's table, and its rows as a relation. No row is read.

    Args:
        data: a Cloister dataset; its views are respected.
        table: the private table; the only one unless given.
        columns: columns of the synthetic table; all usable ones unless given.
        bins: number of equal bins for numbers and dates with more values; or {column: bins or ends of bins}; or
            `PrivateCuts`, represented by as many equal bins until the cuts are measured.
        rules: whether to apply the schema's `never` and `determines`. False for counts of single columns.

    Raises:
        BadInput: `data` is not a dataset.
        BadSchema: a column has no public bounds or categories.
    """
    if not (hasattr(data, "relation") and hasattr(data, "columns")):
        raise BadInput("synthetic data are made from a Cloister dataset: cl.open(source, schema=…, budget=…).")
    check_names("columns", columns)
    column_bins = dict(bins) if isinstance(bins, Mapping) else {}
    check_names("what bins names", column_bins)
    name = data.relation(table, []).table
    chosen = _chosen(name, data.columns(name), columns, column_bins)
    usual = 32 if isinstance(bins, Mapping) else bins.bins if isinstance(bins, PrivateCuts) else bins
    facts = data.tables.schema.tables[name]
    never = tuple(rule for rule in facts.never if rules and set(rule) <= set(chosen))
    determines = tuple((left, right) for left, right in facts.determines if rules and {*left, right} <= set(chosen))
    terms = {column: _facts(data.relation(name, [column]).columns[column], term) for column, term in chosen.items()}
    axes = tuple(
        read_axis(term, _with_ends(term, column_bins.get(column, usual), never)) for column, term in terms.items()
    )
    domain = Domain(name, axes, never, determines)
    _check_cells(domain)
    _check_size(domain, _sizes(domain, bins))
    if not domain.possible():  # before the charge
        raise BadSchema(f"what {name} says under never leaves no row that can be. Take a rule back.")
    needed = [axis.name for axis in domain.axes if not axis.pseudonym]
    return domain, data.relation(name, needed)


def _chosen(
    name: str, every: Mapping[str, Any], columns: Sequence[str] | None, bins: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the facts of the columns to synthesise; refuse columns, and bins of columns, that are not among them."""
    available = {column: term for column, term in every.items() if not term.unit}
    unknown = [column for column in columns or () if column not in available]
    if unknown and unknown[0] in every:
        raise BadSchema(
            f"{name}.{unknown[0]} says whose a row is and is in no synthetic table: rows of one person are not made "
            "together, so a name would join strangers. Leave it out; synth.two_tables gives people and their rows."
        )
    if unknown:
        raise BadSchema(f"there is no column {name}.{unknown[0]:.60} to synthesise. Look at the schema.")
    chosen = tuple(dict.fromkeys(available if columns is None else columns))
    if not chosen:
        raise BadInput("a synthetic table needs at least one column.")
    if set(bins) - set(chosen):
        raise BadInput(f"bins names {sorted(set(bins) - set(chosen))[0]:.60}, which is no column of the table.")
    return {column: available[column] for column in chosen}


def _check_cells(domain: Domain) -> None:
    """Refuse a table, or a rule that decides a column, without public cells."""
    if not domain.modelled:
        raise BadSchema("no column has public cells. Give bounds or categories in the schema.")
    for left, right in domain.determines:
        if any(domain.axis(name).pseudonym for name in (*left, right)):
            raise BadSchema(f"{right} and what decides it need public bounds or categories.")


def most_rows(domain: Domain, asked: bool = True) -> int:
    """Return the maximum number of rows sampled at once, as requested or as a noisy estimate."""
    return max(1, (_MOST_VALUES if asked else _MOST_UNASKED) // len(domain.axes))


def check_rows(domain: Domain, rows: int | None) -> None:
    """Refuse a number of rows that is not positive, or too large to sample at once. From public facts only.

    Raises:
        BadInput: with the largest possible number.
    """
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
        raise BadInput("rows is a whole number of at least 1, or None to have it estimated inside the spend.")
    if rows is not None and rows > most_rows(domain):
        raise BadInput(
            f"{rows:,} rows of {len(domain.axes)} columns are more than memory holds: {most_rows(domain):,} at most. "
            "Ask for fewer, and draw more with .sample()."
        )


def _sizes(domain: Domain, bins: Any) -> dict[str, int]:
    """Return the number of cells of each column; with cuts yet to be measured, the maximum."""
    if not isinstance(bins, PrivateCuts):
        return {axis.name: axis.size for axis in domain.axes}
    sizes = {axis.name: axis.size for axis in domain.axes}
    for axis in domain.axes:
        if axis.ends is not None:
            most = bins.most_bins + len(_lines_of(axis, domain.never)) + axis.nullable
            sizes[axis.name] = max(axis.size, most)
    return sizes


def _check_size(domain: Domain, sizes: Mapping[str, int]) -> None:
    """Refuse a domain that needs more memory than there is, before any charge. From public facts only."""
    for left, right in domain.determines:
        cells = math.prod(sizes[name] for name in (*left, right))
        if cells > _MOST_DECIDED:
            raise BadSchema(
                f"what {', '.join(left)} decide of {right} is learnt from {cells:,} cells. At most {_MOST_DECIDED:,} "
                "are allowed: give fewer bins or categories, or take the dependency back."
            )
    for axis in {name: domain.axis(name) for rule in domain.never for name in rule}.values():
        if sizes[axis.name] > MOST_CELLS:  # such a column is never coarsened, so that the rule holds
            raise BadSchema(
                f"never speaks of {axis.name}, which has {sizes[axis.name]:,} cells; {MOST_CELLS:,} are the most for "
                "that. Give fewer categories or bins, or take the rule back."
            )
    for rule in domain.never:
        cells = math.prod(sizes[name] for name in rule)
        if cells > _MOST_DECIDED:
            raise BadSchema(
                f"a rule under never speaks of {cells:,} combinations of {', '.join(rule)}. At most {_MOST_DECIDED:,} "
                "are allowed: give fewer bins, or split the rule."
            )


def _facts(column: Column, term: Any) -> Column:
    """Return a column with the bounds of dates, which a relation omits since no model learns from them."""
    if column.type not in ("date", "timestamp") or term.low is None or term.high is None:
        return column
    first, last = date.fromordinal(int(term.low)), date.fromordinal(int(term.high))
    if column.type == "date":
        return replace(column, bounds=(first, last))
    if term.moments is not None:
        return replace(column, bounds=term.moments)
    # For a moment computed by a view only the days are known.
    start, end = (datetime(day.year, day.month, day.day) for day in (first, last))
    return replace(column, bounds=(start, end + timedelta(days=1) - timedelta(microseconds=1)))


def _with_ends(column: Column, bins: Any, never: Sequence[Mapping[str, Any]]) -> Any:
    """Add the boundaries of `never` rules to the bins, so that each bin is entirely inside or outside a rule."""
    rules = [rule[column.name] for rule in never if column.name in rule]
    if not rules or column.categories is not None or column.bounds is None:
        return bins
    plain = read_axis(column, bins)
    if plain.ends is None:
        return bins
    lines = _lines_of(plain, never)
    extra = read_axis(column, sorted(lines, key=plain.number)).ends or ()
    # As values: two ends between the same whole numbers are one.
    return sorted({plain.value(end) for end in (*plain.ends[1:-1], *extra[1:-1])})


def _lines_of(axis: Axis, never: Sequence[Mapping[str, Any]]) -> set[Any]:
    """Return the boundaries of all rules in a binned column, as its values."""
    if axis.ends is None:
        return set()
    lines = (line for rule in never if axis.name in rule for line in _lines(axis, rule[axis.name]))
    return {axis.value(line) for line in lines if axis.ends[0] < line <= axis.ends[-1]}


def _lines(axis: Axis, wanted: Any) -> list[float]:
    """Return the boundaries of the cells that a rule of a binned column names."""
    if isinstance(wanted, Mapping):
        return [axis.number(end) for end in wanted.values()]
    singles = wanted if isinstance(wanted, list | tuple | set | frozenset) else [wanted]
    numbers = [axis.number(value) for value in singles if value is not None]
    if numbers and axis.type == "real":
        raise BadSchema(
            f"never names single values of {axis.name}, a real number in bins: one of them cannot be left out of its "
            "bin alone. Name a range: {from: …, below: …}."
        )
    if any(not value.is_integer() for value in numbers):
        raise BadSchema(f"never names a value of {axis.name} that is not whole. Name one that is, or a range.")
    return [line for value in numbers for line in (value, value + 1)]

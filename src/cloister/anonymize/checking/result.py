"""The result of a check: every model's value, the class that decides it, and what a requirement fails."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cloister.anonymize.checking.presence import Invariance, Presence, SetSupport
from cloister.privacy.errors import BadInput, BadNumber

__all__ = ["Checked", "Diversity", "Group", "Sizes"]

_ROUNDING = 1e-9  # a value this close to a bound meets it: 4/9 computed in two ways
_DISTANCES = ("equal", "ordered", "hierarchical")


@dataclass(frozen=True, slots=True)
class Group:
    """A class of rows that decides a value.

    Attributes:
        values: its quasi-identifiers as printed; None is NULL.
        size: its number of rows.
        rows: their numbers, counted from 0, the first 1,000 at most; empty if the rows stayed in an engine.
    """

    values: Mapping[str, str | None]
    size: int
    rows: tuple[int, ...] = ()

    def __str__(self) -> str:
        values = ", ".join(f"{name}={'NULL' if text is None else _cut(text)}" for name, text in self.values.items())
        return f"{values or 'all rows'} ({self.size} row{'s' * (self.size != 1)})"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Smallest, median, mean and largest class. With overlap, numbers of rows that match a combination."""

    min: int
    median: float
    mean: float
    max: int


@dataclass(frozen=True, slots=True)
class Diversity:
    """Values of one sensitive column, for the worst class each.

    Attributes:
        column: the sensitive column.
        grouped_by: the columns that make the classes.
        values: its number of different values, NULL included.
        distinct_l: fewest different values in a class, without NULL.
        frequency_l: 1 / the largest frequency of a value in a class.
        entropy_l: exp of the smallest entropy of a class.
        recursive: for l = 1, 2, …, the bound that c must exceed; see `recursive_c`.
        t_equal: earth mover's distance with equal ground distance, which is the total variation.
        t_ordered: the same for values in an order; None without an order.
        t_hierarchical: the same over a hierarchy; None without one.
        kl: largest Kullback-Leibler divergence of a class from the table, in nats.
        kl_reverse: largest divergence of the table from a class; infinite if a class lacks a value.
        alpha: largest frequency of any value in a class.
        alphas: the same for each value.
        beta, beta_enhanced: smallest beta for basic and enhanced beta-likeness; infinite if there is none.
        deciding: the class that decides each of these, by name; those of recursive are called "recursive 2", …
    """

    column: str
    grouped_by: tuple[str, ...]
    values: int
    distinct_l: int
    frequency_l: float
    entropy_l: float
    recursive: tuple[float, ...]
    t_equal: float
    t_ordered: float | None
    t_hierarchical: float | None
    kl: float
    kl_reverse: float
    alpha: float
    alphas: Mapping[str | None, float] = field(repr=False)
    beta: float
    beta_enhanced: float
    deciding: Mapping[str, Group] = field(repr=False)

    @property
    def total_variation(self) -> float:
        """Return the largest total variation between a class and the table; equal to `t_equal`."""
        return self.t_equal

    def recursive_c(self, l: int) -> float:  # noqa: E741
        """Return the bound of recursive (c, l)-diversity: the table has it for every c above, and for no other.

        Infinite if a class has fewer than l values.
        """
        if l < 1:
            raise BadNumber("l of recursive diversity is a positive integer such as 2.")
        return self.recursive[l - 1] if l <= len(self.recursive) else math.inf

    def recursive_group(self, l: int) -> Group | None:  # noqa: E741
        """Return the class that decides `recursive_c`; None for an l between 10 and the fewest values of a class."""
        return self.deciding.get(f"recursive {l}" if l <= len(self.recursive) else "recursive beyond")

    def distance(self, name: str | None = None) -> str:
        """Return the name of a distance; by default hierarchical or ordered if the column has it, otherwise equal."""
        if name is not None and name not in _DISTANCES:
            raise BadInput(f"there is no distance {name!s:.40}. Use one of {', '.join(_DISTANCES)}.")
        names = [each for each in _DISTANCES if getattr(self, f"t_{each}") is not None]
        if name is not None and name not in names:
            raise BadInput(f"{self.column} has no {name} distance. Give order= or hierarchies= to check.")
        return name or names[-1]

    def t(self, distance: str | None = None) -> float:
        """Return t for a distance; see `distance`."""
        value: float = getattr(self, f"t_{self.distance(distance)}")
        return value


@dataclass(frozen=True)
class Checked:
    """The values of every model for one table. It is not differentially private, whatever the values are.

    Attributes:
        rows, classes: their numbers.
        k: the smallest class.
        sizes: the distribution of class sizes.
        unique_rows: rows in classes of one row.
        suppressed_cells, suppressed_rows: quasi-identifier cells that are suppressed, and rows in which all are.
        matching: exact, or overlap where a suppressed cell matches any value.
        diversity: for each sensitive column, its values.
        joint: the same with the other sensitive columns as further quasi-identifiers; empty for fewer than two.
        presence: delta-presence and k-map; None without a population.
        sets: k^m-anonymity; None without a column of sets.
        invariance: for each sensitive column, m-invariance with the earlier releases; empty without them.
        deciding: the class that decides k.
        notes: what to know about these values.
        engine: where rows were counted.
    """

    rows: int
    classes: int
    k: int
    sizes: Sizes
    unique_rows: int
    suppressed_cells: int
    suppressed_rows: int
    quasi: tuple[str, ...]
    sensitive: tuple[str, ...]
    matching: str
    diversity: Mapping[str, Diversity]
    joint: Mapping[str, Diversity]
    presence: Presence | None
    sets: SetSupport | None
    invariance: Mapping[str, Invariance]
    deciding: Mapping[str, Group]
    notes: tuple[str, ...]
    engine: str

    def meets(
        self,
        *,
        k: int | None = None,
        l: float | Mapping[str, float] | None = None,  # noqa: E741
        frequency_l: float | Mapping[str, float] | None = None,
        entropy_l: float | Mapping[str, float] | None = None,
        recursive: tuple[float, int] | None = None,
        t: float | Mapping[str, float] | None = None,
        distance: str | None = None,
        kl: float | Mapping[str, float] | None = None,
        alpha: float | Mapping[str, float] | None = None,
        beta: float | Mapping[str, float] | None = None,
        beta_enhanced: float | Mapping[str, float] | None = None,
        delta: tuple[float, float] | None = None,
        k_map: int | None = None,
        km: int | None = None,
        m_invariance: int | None = None,
        joint: bool = False,
    ) -> list[str]:
        """Return what fails, one sentence each; an empty list if every requirement is met.

        Args:
            k, k_map, km, m_invariance: smallest values allowed. km is the k of k^m-anonymity.
            l, frequency_l, entropy_l: smallest values allowed, for every sensitive column or by column; l is distinct.
            recursive: (c, l) of recursive diversity.
            t, kl, alpha, beta, beta_enhanced: largest values allowed, for every sensitive column or by column. kl is of
                a class from the table.
            distance: for t: equal, ordered or hierarchical; by default the last of them that a column has.
            delta: the smallest and the largest share of a population class that may be in the release.
            joint: if True, sensitive columns are held to this with the others as quasi-identifiers, too.

        Raises:
            BadInput: a requirement needs something that was not checked, such as a population.
        """
        failures = []
        if k is not None and self.k < k:
            failures.append(f"k is {self.k} and must be at least {k}: {self.deciding['k']}")
        least = {"distinct_l": l, "frequency_l": frequency_l, "entropy_l": entropy_l}
        most = {"kl": kl, "alpha": alpha, "beta": beta, "beta_enhanced": beta_enhanced}
        checks = [*self.diversity.values(), *(self.joint.values() if joint else ())]
        if not checks and any(bound is not None for bound in (*least.values(), *most.values(), t, recursive)):
            raise BadInput("no sensitive column was checked. Give sensitive= to check.")
        for values in checks:
            failures += _failures(values, least, most, t, distance, recursive)
        return failures + self._other_failures(delta, k_map, km, m_invariance)

    def _other_failures(
        self, delta: tuple[float, float] | None, k_map: int | None, km: int | None, m_invariance: int | None
    ) -> list[str]:
        failures = []
        if delta is not None or k_map is not None:
            if self.presence is None:
                raise BadInput("delta-presence and k-map need a population. Give population= to check.")
            low, high = self.presence.delta_min, self.presence.delta_max
            if delta is not None and (low < delta[0] - _ROUNDING or high > delta[1] + _ROUNDING):
                failures.append(f"delta-presence is [{low:.4g}, {high:.4g}] and must be within {list(delta)}")
            if k_map is not None and self.presence.k_map < k_map:
                failures.append(f"k-map is {self.presence.k_map} and must be at least {k_map}")
        if km is not None:
            if self.sets is None:
                raise BadInput("k^m-anonymity needs a column of sets. Give items= to check.")
            if self.sets.k < km:
                failures.append(f"k^{self.sets.m} is {self.sets.k} and must be at least {km}")
        if m_invariance is not None:
            if not self.invariance:
                raise BadInput("m-invariance needs earlier releases. Give earlier= and ids= to check.")
            for column, series in self.invariance.items():
                if series.m < m_invariance:
                    failures.append(f"m-invariance of {column} is {series.m} and must be at least {m_invariance}")
        return failures

    def to_dict(self) -> dict[str, Any]:
        """Return all values as plain objects. Infinity is the text "inf"."""
        plain: dict[str, Any] = _plain(self)
        return plain

    def to_json(self, indent: int | None = None) -> str:
        """Return all values as JSON, readable by any parser."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        lines = [
            f"{self.rows:,} rows, {self.classes:,} classes of {', '.join(self.quasi) or 'no column'}; "
            f"matching {self.matching}; counted in {self.engine}",
            *_table([("value", "", "decided by"), ("k", str(self.k), str(self.deciding["k"])), *self._size_lines()]),
        ]
        for values in (*self.diversity.values(), *self.joint.values()):
            lines += ["", f"{values.column} in classes of {', '.join(values.grouped_by) or 'no column'}"]
            lines += _table(_diversity_lines(values))
        return "\n".join([*lines, *self._other_lines(), *(f"note: {note}" for note in self.notes)])

    def _size_lines(self) -> list[tuple[str, str, str]]:
        sizes = f"{self.sizes.min} / {self.sizes.median:g} / {self.sizes.mean:.2f} / {self.sizes.max}"
        return [
            ("class sizes", sizes, "smallest / median / mean / largest"),
            ("unique rows", f"{self.unique_rows:,}", "rows in classes of one row"),
            ("suppressed", f"{self.suppressed_cells:,}", f"cells; {self.suppressed_rows:,} rows entirely"),
        ]

    def _other_lines(self) -> list[str]:
        lines = []
        if self.presence is not None:
            found = self.presence
            lines.append(f"delta-presence [{found.delta_min:.4g}, {found.delta_max:.4g}], k-map {found.k_map}")
        if self.sets is not None:
            lines.append(f"k^{self.sets.m} {self.sets.k}, decided by {{{', '.join(map(str, self.sets.items))}}}")
        for column, series in self.invariance.items():
            lines.append(
                f"m-invariance of {column} {series.m}: {series.repeated} classes with a repeated value, "
                f"{series.changed} ids with changed sets, fewest values left {series.fewest_left}"
            )
        return lines


def _failures(
    values: Diversity,
    least: Mapping[str, Any],
    most: Mapping[str, Any],
    t: float | Mapping[str, float] | None,
    distance: str | None,
    recursive: tuple[float, int] | None,
) -> list[str]:
    where, failures = f"{values.column} in classes of {', '.join(values.grouped_by) or 'no column'}", []
    for name, bound in least.items():
        value, limit = getattr(values, name), _bound(bound, values.column)
        if limit is not None and value < limit - _ROUNDING:
            decided = values.deciding[name]
            failures.append(f"{name} of {where} is {value:.4g} and must be at least {limit:g}: {decided}")
    for name, bound in most.items():
        value, limit = getattr(values, name), _bound(bound, values.column)
        if limit is not None and value > limit + _ROUNDING:
            decided = values.deciding[name]
            failures.append(f"{name} of {where} is {value:.4g} and must be at most {limit:g}: {decided}")
    limit = _bound(t, values.column)
    if limit is not None and values.t(distance) > limit + _ROUNDING:
        decided = values.deciding[f"t_{values.distance(distance)}"]
        failures.append(f"t of {where} is {values.t(distance):.4g} and must be at most {limit:g}: {decided}")
    if recursive is not None and not values.recursive_c(recursive[1]) < recursive[0]:
        bound, deciding = values.recursive_c(recursive[1]), values.recursive_group(recursive[1])
        rest = "" if deciding is None else f": {deciding}"
        failures.append(f"c of recursive {recursive[1]}-diversity of {where} must exceed {bound:.4g}{rest}")
    return failures


def _cut(text: str, most: int = 30) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _bound(bound: float | Mapping[str, float] | None, column: str) -> float | None:
    return bound.get(column) if isinstance(bound, Mapping) else bound


def _diversity_lines(values: Diversity) -> list[tuple[str, str, str]]:
    names = (
        "distinct_l", "frequency_l", "entropy_l", "t_equal", "t_ordered", "t_hierarchical", "kl", "kl_reverse",
        "alpha", "beta", "beta_enhanced",
    )  # fmt: skip
    present = [(name, getattr(values, name)) for name in names if getattr(values, name) is not None]
    lines = [(name, f"{value:.4g}", str(values.deciding[name])) for name, value in present]
    for number in (2, 3):
        lines.append((f"c, recursive {number}", f"> {values.recursive_c(number):.4g}", ""))
    return lines


def _table(lines: list[tuple[str, str, str]]) -> list[str]:
    widths = [max(len(line[i]) for line in lines) for i in range(2)]
    return [f"  {name:<{widths[0]}}  {value:>{widths[1]}}  {rest}".rstrip() for name, value, rest in lines]


def _plain(thing: Any) -> Any:
    """Return dataclasses and mappings as JSON has them. Alphas are pairs, since NULL may be one of their values."""
    if isinstance(thing, Diversity):
        pairs = [{"value": value, "alpha": alpha} for value, alpha in thing.alphas.items()]
        return {name: pairs if name == "alphas" else _plain(getattr(thing, name)) for name in _fields(thing)}
    if isinstance(thing, Mapping):
        return {str(key): _plain(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [_plain(item) for item in thing]
    if isinstance(thing, float) and not math.isfinite(thing):
        return "inf"
    return {name: _plain(getattr(thing, name)) for name in _fields(thing)} if _fields(thing) else thing


def _fields(thing: Any) -> list[str]:
    return list(getattr(thing, "__dataclass_fields__", ()))

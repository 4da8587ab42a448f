"""Discovery, at a charge, of facts that are not public: the groups that occur, and the range of a column."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from sqlglot import exp

from cloister.data.bounds_search import POWERS, bounds_of
from cloister.data.dialect import as_double, literal
from cloister.data.distinct import DistinctPairs
from cloister.data.engines.engine import Engine
from cloister.data.schema import internal
from cloister.data.statistics import GroupKey, Sums, integers
from cloister.privacy import conversion
from cloister.privacy.errors import BadLoss, BadSchema, RelationMismatch
from cloister.privacy.loss import Loss, Relation, Unit, check_loss
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace, root_above
from cloister.privacy.noise import Source
from cloister.privacy.release import Release
from cloister.query.analyst import Payers
from cloister.query.catalog import Catalog, Found
from cloister.query.expression import Expression, told_apart
from cloister.query.from_clause import SourceRows
from cloister.query.question import Question

__all__ = [
    "MOST_CELLS",
    "Bounds",
    "Find",
    "Thresholded",
    "find_bounds",
    "find_groups",
    "find_keys",
    "fitting",
    "key_finder",
    "keys_in",
    "keys_sql",
    "most_found",
    "range_counts",
    "range_finder",
    "to_find",
]

MOST_CELLS = 20_000_000  # that one query can answer
_LARGEST_INTEGER, _LARGEST_POWER = 2**63 - 1, 2.0**62


@dataclass(frozen=True, slots=True)
class Thresholded:
    """Noisy counts of values that are not public; only values with large counts are released.

    Korolova et al. 2009; Wilkins et al. 2024 for the Gaussian law.

    Args:
        noise: added to the number of units of each value.
        most: the most values one unit can have.
        delta: bounds the probability that a value of a single unit is released.
        weight: the most one unit adds to one value; more than 1 where a row can occur several times.

    Privacy: the noise's loss, plus delta: a value of one unit alone has at most the count `weight`, and passes with
        probability at most delta/most; it has at most `most` such values. Audited in tests/statistical/test_find.py.
    """

    name: ClassVar[str] = "thresholded"
    textbook: ClassVar[bool] = False

    noise: DiscreteLaplace | DiscreteGaussian
    most: int
    delta: Fraction
    weight: int = 1

    def __post_init__(self) -> None:
        if self.noise.relation is not Relation.ADD_REMOVE:  # a replaced unit removes values and adds others
            raise RelationMismatch("values are found for add/remove neighbours. Give an add/remove loss.")

    @property
    def threshold(self) -> int:
        """The smallest t with Pr[weight + noise >= t] <= delta/most."""
        return self.noise.beyond(self.delta / self.most) + 1 + self.weight

    @property
    def relation(self) -> Relation:
        """The neighbour relation of the loss."""
        return self.noise.relation

    @property
    def loss(self) -> Loss:
        """The noise's loss, plus delta."""
        inner = self.noise.zcdp
        return Loss("rho", inner.amount, inner.delta + self.delta, inner.relation)

    @property
    def zcdp(self) -> Loss:
        """The loss as an approximate rho."""
        return self.loss

    @property
    def pure(self) -> None:
        """None: releasing values that are not public has no pure guarantee."""
        return None

    def rdp(self, alpha: float) -> float:
        """Return infinity: an event of probability delta has no Rényi curve."""
        return math.inf

    def parameters(self) -> dict[str, str]:
        """Return the public, exact parameters for a receipt."""
        settings = {"threshold": str(self.threshold), "values of one unit": str(self.most), "delta": str(self.delta)}
        return {**self.noise.parameters(), **settings}

    def release(self, statistic: Found, source: Source | None = None) -> Found:
        """Release the values whose noisy count reaches the threshold, sorted, with that count."""
        counts = np.array([count for _, count in statistic], dtype=np.int64)
        noisy = self.noise.release(counts, source) if len(counts) else counts
        frequent = [(value, int(n)) for (value, _), n in zip(statistic, noisy, strict=True) if n >= self.threshold]
        return sorted(frequent, key=lambda pair: (str(type(pair[0])), pair[0]))


def key_finder(spend: Loss, unit: Unit, by_row: bool, copies: int = 1) -> Thresholded:
    """Return the mechanism that finds keys at a loss with a delta: half for the threshold, half for the noise."""
    if not spend.delta:
        raise BadLoss("finding groups needs a delta: write spend=epsilon('0.5', delta='1e-8').")
    most = copies if by_row else unit.max_rows
    # A unit counts once for each of its values. A row that occurs several times counts each time, maybe for one value.
    weight, reach = (copies, Fraction(copies)) if by_row else (1, root_above(most))
    delta = spend.delta if spend.measure == "rho" else spend.delta / 2
    rho = Loss("rho", spend.amount, relation=spend.relation)
    if spend.measure == "epsilon":
        rho = Loss("rho", conversion.rho_within(spend.amount, delta), relation=spend.relation)
    return Thresholded(DiscreteGaussian.for_loss(reach, rho), most, delta, weight)


@dataclass(frozen=True, slots=True)
class Find:
    """A group whose values are not public and will be found first.

    Attributes:
        group: the index of the group in the query.
        name: its name in the query.
        mechanism: finds the values; its threshold is public.
    """

    group: int
    name: str
    mechanism: Thresholded

    def __str__(self) -> str:
        least = self.mechanism.threshold
        return (
            f"groups of {self.name}: those with a noisy number of people of at least {least}, costs "
            f"{self.mechanism.loss}"
        )


# Finding groups takes a quarter of the loss. A missed group is lost entirely, but groups near the threshold are those
# whose numbers would be mostly noise anyway.
_SHARE = Fraction(1, 4)


def to_find(
    groups: Sequence[tuple[int, str]], spend: Loss, rows: SourceRows, unit: Unit
) -> tuple[tuple[Find, ...], Loss]:
    """Return the mechanisms that find some groups of a query, and the remaining spend for their numbers.

    Args:
        groups: the indexes of the groups in the query, and their names.
        spend: with a delta, all of which goes into the thresholds.
    """
    total, delta = spend.amount, spend.delta
    if spend.measure == "epsilon":
        delta = spend.delta / 2
        total = conversion.rho_within(spend.amount, delta)
    each = Loss("rho", total * _SHARE / len(groups), delta / len(groups), spend.relation)
    finds = tuple(Find(i, name, key_finder(each, unit, rows.by_row, rows.copies)) for i, name in groups)
    return finds, Loss("rho", total * (1 - _SHARE), relation=spend.relation)


def most_found(question: Question, found: Sequence[int]) -> int:
    """Return the most values of each of these groups that one query can answer, given its other groups."""
    low, high = 1, MOST_CELLS
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _fits(question, dict.fromkeys(found, middle)) else (low, middle - 1)
    return low


def fitting(question: Question, found: Mapping[int, Sequence[tuple[Any, int]]]) -> tuple[Question, list[str]]:
    """Return a query with the values found for some groups, as many as it can answer, and notes.

    The values with the largest noisy counts are kept: post-processing.

    Args:
        found: for each of these groups, its values with their noisy counts.
    """
    sizes = {i: len(values) for i, values in found.items()}
    most = max(sizes.values(), default=0)
    if not _fits(question, sizes):
        low, high = 1, most
        while low < high:
            middle = (low + high + 1) // 2
            few = {i: min(size, middle) for i, size in sizes.items()}
            low, high = (middle, high) if _fits(question, few) else (low, middle - 1)
        most = low
    groups, notes = list(question.groups), []
    for i, values in found.items():
        largest = set(sorted(range(len(values)), key=lambda k: -values[k][1])[:most])
        listed = tuple(value for k, (value, _) in enumerate(values) if k in largest)
        groups[i] = replace(groups[i], values=listed, complete=False)  # rows of groups not found are left out
        if len(listed) < len(values):
            notes.append(
                f"groups of {groups[i].name}: the {len(listed):,} most frequent of {len(values):,} that were found are "
                "answered, as many as fit into one question"
            )
    return replace(question, groups=tuple(groups)), notes


def _fits(question: Question, sizes: Mapping[int, int]) -> bool:
    """Return True if a query can be answered when its groups have these sizes."""
    total = 0
    for members in question.sets:
        cells = math.prod(sizes.get(i, len(question.groups[i].values or (None,))) for i in members)
        extras = [
            len(need.extra.values)
            for aggregate in question.aggregates
            for need in aggregate.needs
            if need.extra is not None
        ]
        if cells * max(extras, default=1) > MOST_CELLS:
            return False
        total += cells
    return total <= MOST_CELLS


def find_groups(question: Question, find: Find, catalog: Catalog, payers: Payers, source: Source | None) -> Release:
    """Find the values of a group of a query.

    Privacy: the loss of `find.mechanism`.
    """
    term = question.groups[find.group].term
    return payers.measure(
        lambda: keys_in(question.rows, term, catalog.unit, catalog.secret, catalog.engine),
        find.mechanism,
        f"groups of {find.name} in {question.text}",
        unit=catalog.unit,
        data_version=catalog.version,
        source=source,
    )


def keys_in(rows: SourceRows, term: Expression, unit: Unit, secret: str, engine: Engine) -> Found:
    """Return every value of a column with its number of units. Reads rows; must be followed by `Thresholded`."""
    table = engine.run(keys_sql(rows, term, unit, secret, engine.dialect))
    return list(
        zip(table.column(internal("x")).to_pylist(), integers(table.column(internal("n"))).tolist(), strict=True)
    )


def keys_sql(rows: SourceRows, term: Expression, unit: Unit, secret: str, dialect: str) -> str:
    """Return the statement behind `keys_in`."""
    most = None if rows.by_row else unit.max_rows
    pairs = DistinctPairs(rows.sql, (), told_apart(term), most, secret, rows.copies)  # type: ignore[arg-type]
    return pairs.units_sql(dialect)


# Columns


def find_keys(column: str, spend: Loss, catalog: Catalog, payers: Payers, source: Source | None) -> Release:
    """Find the values of a column that enough people share, and use them as its groups from now on.

    Privacy: the spend. What seeded noise found is returned, marked as not private, and not used.
    """
    check_loss(spend)
    table, name, rows, term = catalog.column(column)
    mechanism = key_finder(spend, catalog.unit, rows.by_row, rows.copies)
    catalog.engine.prepare(keys_sql(rows, term, catalog.unit, "...", catalog.dialect))
    release = payers.measure(
        lambda: keys_in(rows, term, catalog.unit, catalog.secret, catalog.engine),
        mechanism,
        f"find_keys({column})",
        unit=catalog.unit,
        data_version=catalog.version,
        source=source,
    )
    values = [value for value, _ in release.value]
    if release.private:  # seeded noise is no release: later answers must not rest on it
        # All other values form one more group, NULL, so that totals include every row.
        catalog.keep_column(table, name, replace(term, values=tuple(values), nullable=True, listed=False))
    return replace(release, value=values)


def find_bounds(column: str, spend: Loss, catalog: Catalog, payers: Payers, source: Source | None) -> Release:
    """Find a range between powers of two that holds nearly all of a column, and clip to it from now on.

    Privacy: the spend. What seeded noise found is returned, marked as not private, and not used.
    """
    check_loss(spend)
    table, name, rows, term = catalog.column(column)
    if term.type not in ("integer", "real"):
        raise BadSchema(f"{column} is {term.type}: only numbers have bounds to find.")
    if term.values is not None:
        raise BadSchema(f"{column} has a list of values, and so its bounds are known.")
    sums = range_counts(rows, term, catalog.unit)
    mechanism = range_finder(spend, sums)
    catalog.engine.prepare(sums.sql(catalog.dialect))
    counts = payers.measure(
        lambda: sums.run(catalog.engine)[0],
        mechanism,
        f"find_bounds({column})",
        unit=catalog.unit,
        data_version=catalog.version,
        source=source,
    )
    bounds = found_range(counts.value, mechanism)
    if term.type == "integer":  # powers of two beyond 64 bits would widen the column's type
        low, high = min(bounds.low, _LARGEST_POWER), max(bounds.high, -_LARGEST_POWER)
        bounds = Bounds(max(low, -_LARGEST_INTEGER), min(high, _LARGEST_INTEGER))
    if counts.private:
        catalog.keep_column(table, name, replace(term, low=bounds.low, high=bounds.high, clipped=False, decimals=None))
    return replace(counts, value=(bounds.low, bounds.high), standard_error=None, _margin=None)


@dataclass(frozen=True, slots=True)
class Bounds:
    """A range that was found."""

    low: float
    high: float


def range_finder(spend: Loss, sums: Sums) -> DiscreteLaplace | DiscreteGaussian:
    """Return the noise on counts of powers of two."""
    kind: Any = DiscreteLaplace if spend.is_pure else DiscreteGaussian
    if spend.measure == "epsilon" and spend.delta:
        spend = Loss("rho", conversion.rho_within(spend.amount, spend.delta), relation=spend.relation)
    return kind.for_loss(sums.sensitivity(), spend)  # type: ignore[no-any-return]


def range_counts(rows: SourceRows, term: Expression, unit: Unit) -> Sums:
    """Count a number by sign and power of two: public bins."""
    x = as_double(term.sql)
    size = exp.Ln(this=exp.Greatest(this=exp.Abs(this=x.copy()), expressions=[literal(1e-9)]))
    power = exp.Floor(this=exp.Div(this=size, expression=literal(math.log(2)), typed=False, safe=False))
    inside = exp.Least(
        this=exp.Greatest(this=power, expressions=[literal(float(POWERS[0]))]),
        expressions=[literal(float(POWERS[-1]))],
    )
    index = exp.Cast(
        this=exp.Add(this=exp.Paren(this=inside), expression=literal(float(1 - POWERS[0]))),
        to=exp.DataType.build("BIGINT"),
    )
    small = exp.LT(this=exp.Abs(this=x.copy()), expression=literal(2.0 ** POWERS[0]))
    bin_ = exp.Case(
        ifs=[
            exp.If(this=exp.Is(this=exp.Paren(this=term.sql.copy()), expression=exp.Null()), true=exp.Null()),
            exp.If(this=small, true=exp.Literal.number(0)),
            exp.If(
                this=exp.LT(this=x.copy(), expression=literal(0.0)), true=exp.Neg(this=exp.Paren(this=index.copy()))
            ),
        ],
        default=index,
    )
    key = GroupKey(
        "power",
        exp.Cast(this=bin_, to=exp.DataType.build("BIGINT")),
        tuple(range(-len(POWERS), len(POWERS) + 1)),
        "integer",
    )
    return Sums(rows.sql, (key,), (), None if rows.by_row else unit.max_rows, rows.copies)  # type: ignore[arg-type]


def found_range(noisy: Any, mechanism: DiscreteLaplace | DiscreteGaussian) -> Bounds:
    """Return the smallest range of bins that holds every count the noise cannot explain. Post-processing."""
    return Bounds(*bounds_of(noisy, mechanism))

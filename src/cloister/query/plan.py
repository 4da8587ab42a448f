"""Plans: the measurements of a query, their noise, the cost, and the expected error. Planning costs nothing.

A plan is made from the query and public facts alone. It never reads a row, so two neighbouring tables have the same
plan.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from cloister.data.distinct import DistinctPairs, DistinctUnits
from cloister.data.statistics import GroupKey, Sums
from cloister.privacy import conversion
from cloister.privacy.errors import QueryRefused
from cloister.privacy.loss import Loss, Unit
from cloister.privacy.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    Mechanism,
    PermuteAndFlip,
    Sensitivity,
    root_above,
    same_neighbours,
)
from cloister.privacy.noise import Source
from cloister.privacy.number import rounded_up
from cloister.privacy.signing import fingerprint
from cloister.query import discovery
from cloister.query.aggregate import Statistic
from cloister.query.catalog import Catalog
from cloister.query.discovery import Find, fitting, most_found, to_find
from cloister.query.estimate import FAN_OUT
from cloister.query.from_clause import SourceRows
from cloister.query.question import Group, Question

if TYPE_CHECKING:
    from cloister.query.answer_cache import KeptRelease, Snapshot

__all__ = ["Measurement", "Plan", "as_noise", "make_plan", "plan_question"]

_FEW = 1000  # if at most this many groups can be answered, a plan that finds groups notes it
# Placeholders for groups that are still to be found, by type. Groups of other types cannot be found. They are ASCII, as
# the encodings of some servers have no other letters.
_PLACEHOLDERS: Mapping[str, tuple[Any, ...]] = {"text": ("...",), "integer": (0,)}
_ABOUT = Fraction("1.0001")  # a release that is worse by less than this is reused
_CHOSEN = "rows are chosen by noisy numbers: intervals are wider, so that those of all groups hold together"


# Rows whose rounding the interval of a sum includes where the schema does not state how many there are.
_ASSUMED_ROWS = 2.0**24


@dataclass(frozen=True, slots=True)
class EachGroup:
    """One choice for every group, from one list of candidates.

    A person's rows are spread over the groups, and the loss of each choice shrinks in proportion: together they cost as
    much as one choice over all of the person's rows.
    """

    inner: PermuteAndFlip
    name: str = "permute-and-flip"
    textbook: bool = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def release(self, votes: Any, source: Source | None = None) -> list[int]:
        """Return the index chosen in each row of votes."""
        return [self.inner.choose(row, source) for row in votes]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One statistic for one grouping set: the statement that computes it and its noise.

    Attributes:
        need: the statistic.
        group_set: the index of its grouping set.
        sums: the statement.
        index: the index among its sums; None for the number of rows.
        unit: the value of one integer step.
        sizes: for a tree, the number of nodes of each level.
        mechanisms: the noise; one for each level of a tree.
        reused: whether it is answered from the record, at no cost.
        release: that release.
    """

    need: Statistic
    group_set: int
    sums: Sums | DistinctPairs
    index: int | None
    unit: float
    sizes: tuple[int, ...] = ()
    mechanisms: tuple[Mechanism, ...] = ()
    reused: bool = False
    release: str = ""

    @property
    def parts(self) -> int:
        """The number of mechanisms it takes."""
        return max(1, len(self.sizes))

    @property
    def sensitivity(self) -> Sensitivity:
        """The sensitivity in integer steps, over all groups."""
        return self.sums.sensitivity(self.index)

    def most_rows(self, rows: int | None) -> float:
        """Return the number of rows whose rounding the interval of a sum includes.

        Args:
            rows: the public number of rows, if it is known; each counts as often as joins copy it.
        """
        each = self.sums.copies if self.sums.max_rows is None else self.sums.max_rows
        return _ASSUMED_ROWS if rows is None else float(rows * each)

    def behind(self, confidence: Fraction) -> float:
        """Return the most rows that a vote's choice is behind the most frequent value, in one group."""
        assert self.need.extra is not None
        return float(self.mechanisms[0].margin(confidence, len(self.need.extra.values))) * self.unit  # type: ignore[attr-defined]

    def fingerprint(self, version: str) -> str:
        """Return the identity of the statistic on this data, independent of the analyst and the rest of the query."""
        sums, need = self.sums, self.need
        keys = [(key.sql.sql(), key.values if isinstance(key.values, range) else list(key.values)) for key in sums.keys]
        value: Any = need.column and need.column.sql()
        if need.value:
            value = (type(need.value).__name__, need.value.sql.sql(), need.value.low, need.value.high)
        rows = _identity(_Same(sums.rows))
        weight = sums.unit_weight
        return fingerprint(repr((version, rows, need.kind, keys, value, sums.max_rows, sums.copies, weight)))

    def shown(self, dialect: str) -> str:
        """Return the statement for display, without the secret that chooses pairs."""
        text = self.sums.sql(dialect)
        return (
            text.replace(self.sums.secret, "...") if isinstance(self.sums, DistinctPairs) and self.sums.secret else text
        )

    @property
    def variance(self) -> float:
        """The variance of the noise on one number, in the statistic's own unit."""
        return float(self.mechanisms[0].variance * self.unit * self.unit)  # type: ignore[attr-defined]

    def as_good_as(self, other: "Measurement") -> bool:
        """Return True if the noise is about that of another measurement of the same statistic, or less."""
        if self.need.kind == "vote":  # the expected distance from the most frequent value falls with the rate
            return self.mechanisms[0].rate * _ABOUT >= other.mechanisms[0].rate  # type: ignore[attr-defined, no-any-return]
        return self.variance <= other.variance * float(_ABOUT)


@dataclass(frozen=True)
class Plan:
    """The plan of a query. Print it, then run it."""

    question: Question
    measurements: tuple[Measurement, ...]
    needs: Mapping[tuple[int, Statistic], int]
    spend: Loss
    unit: Unit
    dialect: str
    confidence: float
    size_hint: int | None
    notes: tuple[str, ...] = ()
    finds: tuple[Find, ...] = ()  # groups that are found first; until then the plan has one placeholder for each
    basis: tuple[int, int] | None = field(default=None, repr=False)  # the record's snapshot when the plan was made
    origin: object = field(default=None, repr=False, compare=False)  # the dataset and views it was made for

    @property
    def new(self) -> list[Measurement]:
        """The measurements still to be made; the rest is in the record."""
        return [measurement for measurement in self.measurements if not measurement.reused]

    @property
    def mechanisms(self) -> list[Mechanism]:
        """All noise, in the order of the measurements."""
        return [mechanism for measurement in self.new for mechanism in measurement.mechanisms]

    @property
    def interval_confidence(self) -> Fraction:
        """The exact confidence of each single interval.

        Where rows are selected by their noisy numbers, the intervals of all candidates hold jointly (a union bound), so
        those of the selected rows hold too. Individual intervals would rarely hold the truth: the largest of many noisy
        numbers is the one with the largest noise.
        """
        if not self.question.chooses:
            return Fraction(self.confidence)
        return 1 - (1 - Fraction(self.confidence)) / max(1, self.question.cells)

    def closeness(self, vote: Measurement) -> str:
        """Return the accuracy of a vote in words, rounded up: its distance in rows from the most frequent value."""
        rows = float(rounded_up(vote.behind(self.interval_confidence), 4))
        together = " in all groups together" if self.question.chooses else ""
        return f"with probability {self.confidence:.10g}{together}, at most {rows:,.10g} rows behind the most frequent"

    @cached_property
    def loss(self) -> Loss | None:
        """The cost of running it; None if it is free."""
        return sum((find.mechanism.loss for find in self.finds), start=self.spend) if self.new or self.finds else None

    def statements(self) -> list[str]:
        """Return the SQL that the engine will run."""
        each = {id(measurement.sums): measurement for measurement in self.new}  # many sums share one statement
        return list(dict.fromkeys(measurement.shown(self.dialect) for measurement in each.values()))

    def __str__(self) -> str:
        from cloister.query.explain import explain

        return explain(self)


def plan_question(question: Question, spend: Loss, catalog: Catalog, seen: "Snapshot", confidence: float) -> Plan:
    """Return the plan of a query on the tables of a catalog.

    Args:
        question: the query, compiled against the catalog.
        spend: the most it may cost; with a delta, groups that are not public are found first.
        catalog: the tables, and the groups that were found before.
        seen: the record; what is in it costs nothing.
        confidence: of the intervals.
    """
    finds: tuple[Find, ...] = ()
    original, hidden = question, [(i, group.name) for i, group in enumerate(question.groups) if group.values is None]
    known_groups = {i: catalog.groups(question, i) for i, _ in hidden}
    if spend.delta and hidden and all(question.groups[i].term.type in _PLACEHOLDERS for i, _ in hidden):
        # Keep the same remainder once the groups are known, so that repeating the question is free.
        finds, spend = to_find(hidden, spend, question.rows, catalog.unit)
        finds = tuple(find for find in finds if known_groups[find.group] is None)
    for i in (i for i, _ in hidden if known_groups[i] is None):
        question = _with_values(question, i, _PLACEHOLDERS[original.groups[i].term.type] if finds else None)
    notes: list[str] = []
    if hidden:
        question, notes = fitting(question, {i: values for i, values in known_groups.items() if values is not None})
    most = most_found(question, [find.group for find in finds]) if finds else _FEW
    if most < _FEW:
        notes.append(f"groups that are found: the {most:,} most frequent are answered, as many as fit")
    plan = make_plan(
        question,
        spend,
        catalog.unit,
        dialect=catalog.dialect,
        confidence=confidence,
        size_hint=question.rows.size,
        known=(lambda _one: None) if finds else seen.release,  # a placeholder is never in the record
        secret=catalog.secret,
    )
    basis = (seen.number, id(question))
    return replace(plan, notes=(*plan.notes, *notes), finds=finds, basis=basis, origin=catalog.origin)


def _with_values(question: Question, group: int, values: tuple[Any, ...] | None) -> Question:
    groups = list(question.groups)
    groups[group] = replace(groups[group], values=values, complete=False)  # rows of groups not found are left out
    return replace(question, groups=tuple(groups))


def make_plan(
    question: Question,
    spend: Loss,
    unit: Unit,
    *,
    dialect: str,
    confidence: float = 0.95,
    size_hint: int | None = None,
    known: "Callable[[Measurement], KeptRelease | None]" = lambda _one: None,
    secret: str = "",
) -> Plan:
    """Lay out the measurements of a query and divide the loss among them.

    Args:
        question: the query.
        spend: the most it may cost.
        unit: the privacy unit.
        dialect: the engine's SQL dialect.
        confidence: of the intervals.
        size_hint: a public number of rows, for expected errors of averages.
        known: the record: an earlier release of the same statistic, if there is one.
        secret: keys the choice of pairs where a unit has too many different values.
    """
    _check_groups(question)
    uses: dict[tuple[int, Statistic], int] = {}
    for group_set in range(len(question.sets)):
        for aggregate in question.aggregates:
            for need in aggregate.needs:
                uses[group_set, need] = uses.get((group_set, need), 0) + 1
    bare = _measurements(question, list(uses), unit, secret)
    target, pure = as_noise(spend)
    planned = _with_noise(bare, [uses[measurement.group_set, measurement.need] for measurement in bare], target, pure)
    final = []
    for measurement in planned:
        release = known(measurement)
        reused = (
            None
            if release is None
            else replace(measurement, mechanisms=release.mechanisms, reused=True, release=release.id)
        )
        final.append(reused if reused is not None and reused.as_good_as(measurement) else measurement)
    fresh = [i for i, measurement in enumerate(final) if not measurement.reused]
    if fresh and len(fresh) < len(final):  # reused releases cost nothing, so the others get their share
        again = _with_noise(
            [bare[i] for i in fresh], [uses[bare[i].group_set, bare[i].need] for i in fresh], target, pure
        )
        for i, measurement in zip(fresh, again, strict=True):
            final[i] = measurement
    places = {(measurement.group_set, measurement.need): i for i, measurement in enumerate(final)}
    clipped = [aggregate.clipped for aggregate in question.aggregates if aggregate.clipped]
    capped = [] if question.rows.by_row else [f"one {unit.name} counts for at most {_most(question.rows, unit)} rows"]
    chosen = [_CHOSEN] if question.chooses else []
    notes = tuple(dict.fromkeys([*clipped, *capped, *question.rows.notes, *chosen]))
    return Plan(
        question, tuple(final), places, target if not pure else spend, unit, dialect, confidence, size_hint, notes
    )


def _check_groups(question: Question) -> None:
    for group in question.groups:
        if group.values is None:
            raise QueryRefused(f"the groups of {group.name} are not public. {_ways_out(group)}")
    cells = question.cells
    if cells > discovery.MOST_CELLS:
        raise QueryRefused(
            f"{cells:,} groups are more than the {discovery.MOST_CELLS:,} that are answered at once. Group by less."
        )


def _ways_out(group: Group) -> str:
    """Return alternatives to a group whose values are not public."""
    name = group.name
    if group.term.type in ("date", "timestamp"):
        return f"Group by parts of it: EXTRACT(YEAR FROM {name}), EXTRACT(MONTH FROM {name}), EXTRACT(DAY FROM {name})."
    if group.term.type == "real":
        return f"Group by whole steps of it: FLOOR({name} / 10) * 10, or WIDTH_BUCKET({name}, 0, 100, 20)."
    return (
        f"Give the column categories or bounds in the schema, name them with WHERE {name} IN (...), or pay for finding "
        "those that many people share with a delta: epsilon 1, delta 1e-8. A column that names people has none of "
        "these: ask how many people have so many rows instead."
    )


def _measurements(
    question: Question, wanted: Sequence[tuple[int, Statistic]], unit: Unit, secret: str
) -> list[Measurement]:
    """Return one statement for all counts and sums of a grouping set; trees, votes and people have their own."""
    measurements = []
    for group_set, members in enumerate(question.sets):
        keys = tuple(
            _key(question.groups[i].name, question.groups[i].term, question.groups[i].values or ()) for i in members
        )
        needs = [need for which, need in wanted if which == group_set]
        sums = [need for need in needs if need.kind == "sum"]
        shared = _sums(question, keys, tuple(need.value for need in sums if need.value), unit)
        for need in needs:
            if need.kind in ("rows", "sum"):
                index = None if need.kind == "rows" else sums.index(need)
                measurements.append(Measurement(need, group_set, shared, index, need.step / shared.unit_weight))
            elif need.kind == "people":
                measurements.append(_people(question, need, group_set, keys, unit))
            elif need.kind == "values":
                measurements.append(_values(question, need, group_set, keys, unit, secret))
            else:
                assert need.extra is not None
                extra_sums = _sums(question, (*keys, need.extra), (), unit)
                sizes = _levels(len(need.extra.values)) if need.kind == "tree" else ()
                if extra_sums.cells > discovery.MOST_CELLS:
                    raise QueryRefused(
                        f"{need.label} in {extra_sums.cells:,} cells is too much for one question. Group by less."
                    )
                measurements.append(Measurement(need, group_set, extra_sums, None, 1 / extra_sums.unit_weight, sizes))
    return measurements


class _Same:
    """An expression compared by identity: comparing two by structure takes as long as writing them out."""

    __slots__ = ("sql",)

    def __init__(self, sql: exp.Expression) -> None:
        self.sql = sql

    def __hash__(self) -> int:
        return id(self.sql)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.sql is other.sql


@lru_cache(64)  # the statistics of one query share their rows, and each is looked up several times
def _identity(rows: _Same) -> str:
    """Return the rows in terms of the schema, independent of how their views are written."""

    def plainly(node: exp.Expression) -> exp.Expression:
        return exp.to_identifier(node.meta["table"], quoted=True) if "table" in node.meta else node

    return rows.sql.transform(plainly).sql()


def _key(name: str, term: Any, values: Sequence[Any]) -> GroupKey:
    return GroupKey(name, term.sql, values, term.type)


def _sums(question: Question, keys: tuple[GroupKey, ...], values: tuple[Any, ...], unit: Unit) -> Sums:
    rows = question.rows
    return Sums(rows.sql, keys, values, None if rows.by_row else _most(rows, unit), rows.copies)  # type: ignore[arg-type]


def _most(rows: SourceRows, unit: Unit) -> int:
    """Return the contribution bound of a unit: the schema's, or a smaller one that the query implies."""
    return min(unit.max_rows, rows.most or unit.max_rows)


def _people(question: Question, need: Statistic, group_set: int, keys: tuple[GroupKey, ...], unit: Unit) -> Measurement:
    if question.rows.by_row:
        sums = _sums(question, keys, (), unit)
        return Measurement(need, group_set, sums, None, 1.0)
    groups = min(_most(question.rows, unit), math.prod(len(key.values) for key in keys))
    sums = DistinctUnits(question.rows.sql, keys, groups).as_sums()  # type: ignore[arg-type]
    return Measurement(need, group_set, sums, None, 1 / sums.unit_weight)


def _values(
    question: Question, need: Statistic, group_set: int, keys: tuple[GroupKey, ...], unit: Unit, secret: str
) -> Measurement:
    assert need.column is not None
    rows = question.rows
    most = None if rows.by_row else _most(rows, unit)
    return Measurement(
        need,
        group_set,
        DistinctPairs(rows.sql, keys, need.column, most, secret, rows.copies),  # type: ignore[arg-type]
        None,
        1.0,
    )


def _levels(leaves: int) -> tuple[int, ...]:
    sizes = [leaves]
    while sizes[0] > FAN_OUT:
        sizes.insert(0, math.ceil(sizes[0] / FAN_OUT))
    return tuple(sizes)


# Division of the loss


def as_noise(spend: Loss) -> tuple[Loss, bool]:
    """Return the loss to calibrate to: Laplace if pure; Gaussian for rho, or for the largest rho in (epsilon, delta).

    The delta of a rho is for groups that must be found. Where there are none it is not spent.
    """
    if spend.is_pure:
        return spend, True
    if spend.measure == "epsilon":
        return Loss("rho", conversion.rho_within(spend.amount, spend.delta), relation=spend.relation), False
    return replace(spend, delta=Fraction(0)), False


def _with_noise(bare: Sequence[Measurement], uses: Sequence[int], target: Loss, pure: bool) -> list[Measurement]:
    """Assign noise. Total variance is least if shares grow with the cube root (Laplace) or root (Gaussian) of uses."""
    weights = [Fraction(round(2**20 * use ** (1 / 3 if pure else 1 / 2))) for use in uses]
    total = sum(weights)
    return [
        _noised(measurement, replace(target, amount=target.amount * weight / total))
        for measurement, weight in zip(bare, weights, strict=True)
    ]


def _noised(measurement: Measurement, share: Loss) -> Measurement:
    same_neighbours(measurement.sensitivity, share)
    each = share.split(measurement.parts)
    if measurement.need.kind == "vote":
        chooser = PermuteAndFlip.for_loss(measurement.sensitivity, each, monotone=True)
        return replace(measurement, mechanisms=(EachGroup(chooser),))  # type: ignore[arg-type]
    kind: type[DiscreteLaplace] | type[DiscreteGaussian] = DiscreteLaplace if share.is_pure else DiscreteGaussian
    size: Any = measurement.sensitivity
    if measurement.need.kind == "people" and not share.is_pure and measurement.sums.max_rows:
        # A person counts at most once in each of max_groups groups: L2 norm sqrt(max_groups), not max_groups.
        size = root_above(measurement.sums.max_rows) * measurement.sums.unit_weight
    mechanism: Mechanism = kind.for_loss(size, each)
    return replace(measurement, mechanisms=(mechanism,) * measurement.parts)

"""Faults of the kind that planners and caps have had, each put into the real code by replacing one piece of it.

Each fault names a question on which the checks of `query_shapes` must see it: exact sensitivities, the price of the
mechanisms, sampled answers, the public list of groups, what a repeated question costs.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from sqlglot import exp

from cloister.data import statistics, views
from cloister.data.dialect import Dialect
from cloister.data.distinct import DistinctUnits
from cloister.data.schema import internal
from cloister.data.statistics import Sums
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace
from cloister.query import from_clause as relations
from cloister.query import plan as planning
from cloister.query import question as asking
from cloister.query.answer_cache import Snapshot

from .query_shapes import SHAPES, Pair

__all__ = ["FAULTS", "Fault"]

Patch = Callable[[Any, str, Any], None]  # setattr of pytest's monkeypatch


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, the check that must catch it, and a question that shows it."""

    name: str
    check: str
    sql: str
    plant: Callable[[Patch, Pair], None]
    by_row: bool = False


def nobody_is_heavy(patch: Patch, _: Pair) -> None:
    """Rows beyond the cap count in full."""
    honest = statistics._heavy
    patch(statistics, "_heavy", lambda _max_rows, say: honest(10**9, say))


def weights_round_up(patch: Patch, _: Pair) -> None:
    """Ten rows of 308/1024 are more than three."""
    honest = Sums._weight

    def weight(self: Sums, say: Dialect) -> Any:
        share, source = honest(self, say)
        assert share is not None
        return share.replace("FLOOR(", "CEIL("), source

    patch(Sums, "_weight", weight)


@dataclass(frozen=True, slots=True)
class _Whole(Sums):
    """Everybody counts once in every group."""

    def _weight(self, say: Dialect) -> tuple[str | None, str]:
        return str(statistics.WEIGHT), say.name(internal("rows"))


def no_cap_on_groups(patch: Patch, _: Pair) -> None:
    """A person counts in all groups; the noise is that for one."""
    honest = DistinctUnits.as_sums

    def as_sums(self: DistinctUnits) -> Sums:
        sums = honest(replace(self, max_groups=1))
        return _Whole(**{field.name: getattr(sums, field.name) for field in fields(Sums)})

    patch(DistinctUnits, "as_sums", as_sums)


def loss_is_not_split(patch: Patch, _: Pair) -> None:
    """Sum and count of an average each get the whole loss."""
    patch(
        planning,
        "_with_noise",
        lambda bare, uses, target, pure: [planning._noised(one, target) for one in bare],
    )


def tree_levels_are_charged_as_one(patch: Patch, _: Pair) -> None:
    """Every level of a quantile tree gets the whole loss."""
    honest = planning._noised

    def noised(one: Any, share: Any) -> Any:
        made = honest(replace(one, sizes=()), share)
        return replace(made, sizes=one.sizes, mechanisms=made.mechanisms * one.parts)

    patch(planning, "_noised", noised)


def noise_is_shared(patch: Patch, _: Pair) -> None:
    """All cells of an answer get the same noise: their differences are exact."""
    for law in (DiscreteLaplace, DiscreteGaussian):
        honest = law.draw

        def draw(self: Any, shape: Any, source: Any, honest: Any = honest) -> Any:
            one = honest(self, (*shape[:-1], 1), source)
            return np.broadcast_to(one, shape)

        patch(law, "draw", draw)


def values_are_not_clipped(patch: Patch, _: Pair) -> None:
    """Bounds are applied to the total, if at all."""
    patch(views, "_clip", lambda column, say: say.name(column.name))
    patch(statistics, "_clipped", lambda sql, low, high: sql)


def the_top_is_not_clipped(patch: Patch, _: Pair) -> None:
    """Only the lower bound holds."""

    def clip(column: Any, say: Dialect) -> str:
        name = say.name(column.name)
        return name if column.bounds is None else f"GREATEST({name}, {say.constant(column.bounds[0])})"

    patch(views, "_clip", clip)
    patch(statistics, "_clipped", lambda sql, low, high: exp.Greatest(this=sql, expressions=[low]))


def the_cap_is_forgotten_in_the_noise(patch: Patch, _: Pair) -> None:
    """Three rows count, and the noise hides one."""
    honest = Sums.sensitivity
    patch(Sums, "sensitivity", lambda self, index=None: honest(self, index) // (self.max_rows or 1))


def the_largest_value_is_forgotten_in_the_noise(patch: Patch, _: Pair) -> None:
    """The noise of a sum is that of a count."""
    honest = Sums.sensitivity
    patch(Sums, "sensitivity", lambda self, index=None: honest(self))


def joins_mix_people(patch: Patch, _: Pair) -> None:
    """Private tables are joined on what the analyst says alone."""
    honest = relations._join

    def join(node: Any, parts: Any, name: str, right: Any, unit_at: Any) -> Any:
        made, _, side = honest(node, parts, name, right, unit_at)
        return made, relations._condition(node, parts, name, relations._scope({**parts, name: right})), side

    patch(relations, "_join", join)


def copies_are_not_counted(patch: Patch, _: Pair) -> None:
    """UNION ALL of a table with itself has every row twice."""
    honest = relations._union
    patch(relations, "_union", lambda query, tables: replace(honest(query, tables), copies=1))


def groups_are_read_from_rows(patch: Patch, made: Pair) -> None:
    """The answer lists the groups that occur."""
    honest = asking._group

    def group(*args: Any) -> Any:
        found = made.reading.tables.engine.run("SELECT DISTINCT ward AS x FROM visits").column("x").to_pylist()
        made_group = honest(*args)
        return replace(made_group, values=tuple(value for value in made_group.values if value in found))

    patch(asking, "_group", group)


def the_record_draws_again(patch: Patch, made: Pair) -> None:
    """A question that was answered gets fresh noise each time, and pays nothing."""

    def values(self: Snapshot, one: Any) -> list[Any]:
        exact = one.sums.run(made.reading.tables.engine)[0 if one.index is None else one.index + 1]
        return [mechanism.release(exact) for mechanism in one.mechanisms]

    patch(Snapshot, "values", values)


FAULTS = [
    Fault("no weight for heavy people", "sensitivity", SHAPES["count"], nobody_is_heavy),
    Fault("weights round up", "sensitivity", SHAPES["count"], weights_round_up),
    Fault("no cap on groups per person", "sensitivity", SHAPES["people by group"], no_cap_on_groups),
    Fault("an average is charged once", "price", SHAPES["average"], loss_is_not_split),
    Fault("an average is charged once, seen from outside", "samples", SHAPES["average"], loss_is_not_split),
    Fault("tree levels are charged as one", "price", SHAPES["median of reals"], tree_levels_are_charged_as_one),
    Fault("cells share their noise", "samples", SHAPES["count by group"], noise_is_shared),
    Fault("values are not clipped", "sensitivity", "SELECT SUM(age) FROM visits WHERE age < 0", values_are_not_clipped),
    Fault("values are not clipped at the top", "sensitivity", SHAPES["sum of integers"], the_top_is_not_clipped),
    Fault("the noise forgets the cap", "sensitivity", SHAPES["count by group"], the_cap_is_forgotten_in_the_noise),
    Fault(
        "the noise forgets the cap, seen from outside", "samples", SHAPES["count"], the_cap_is_forgotten_in_the_noise
    ),
    Fault(
        "the noise forgets the values",
        "sensitivity",
        SHAPES["sum of integers"],
        the_largest_value_is_forgotten_in_the_noise,
    ),
    Fault(
        "joins mix people",
        "sensitivity",
        "SELECT COUNT(*) FROM visits AS a JOIN visits AS b ON b.age = 12",
        joins_mix_people,
    ),
    Fault(
        "copies of a row are not counted",
        "sensitivity",
        "SELECT COUNT(*) FROM (SELECT age FROM visits UNION ALL SELECT age FROM visits) AS t",
        copies_are_not_counted,
        by_row=True,
    ),
    Fault("groups are read from rows", "groups", SHAPES["count by group"], groups_are_read_from_rows),
    Fault("the record draws again", "record", SHAPES["count"], the_record_draws_again),
]

"""Post-processing of the answer: totals that add up, arithmetic over groups and numbers, HAVING, ORDER BY, LIMIT.

All of it works on released numbers, in a separate engine that never reads a row.
"""

import math
import os
import threading
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from cloister.data.schema import internal
from cloister.privacy.errors import QueryRefused
from cloister.query.estimate import Estimate
from cloister.query.expression import Expression, compile_term
from cloister.query.plan import Plan
from cloister.query.question import Question

__all__ = ["arrange", "check_arrangement", "consistent"]

Floats = NDArray[np.float64]

_TYPES = {
    "integer": pa.int64(),
    "real": pa.float64(),
    "text": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
}
# Beyond this many aggregates in one expression there are too many corners of their intervals to try.
_MOST_CORNERS = 4


def check_arrangement(question: Question) -> None:
    """Refuse an answer that could not be arranged, before anything is charged."""
    scope = _post_scope(question)
    for node in (*(output.node for output in question.outputs), *(ordered.this for ordered in question.order)):
        compile_term(node, scope)
    if question.having is not None and compile_term(question.having, scope).type != "boolean":
        raise QueryRefused("HAVING needs a condition, such as COUNT(*) > 100.")


def arrange(plan: Plan, estimates: Callable[[Fraction], list[list[Estimate]]]) -> tuple[pa.Table, list[str]]:
    """Return the table of the answer, and notes.

    Args:
        plan: the plan of the query.
        estimates: for a confidence, an estimate of each aggregate for each grouping set.
    """
    question = plan.question
    # Values, limits and notes from one estimate: MAX names a value with a confidence too, and HAVING may choose by it.
    per_set = estimates(plan.interval_confidence)
    base = _base(question, per_set, "value")
    engine = _Arithmetic()
    rows = _kept_rows(engine, base, question)
    columns: dict[str, Any] = {}
    for output in question.outputs:
        columns[output.name] = _pick(_evaluate(engine, base, question, output.node), rows)
        limits = _limits(engine, plan, per_set, estimates, output.node, output.aggregate)
        if limits is not None:
            low, high = (_pick(_column(end), rows) for end in limits)
            columns[f"{output.name}_low"], columns[f"{output.name}_high"] = low, high
    notes = list(dict.fromkeys(estimate.note for group in per_set for estimate in group if estimate.note))
    return pa.table(columns), notes


class _Arithmetic:
    """An engine for released numbers only: in memory, without outside access. One per thread."""

    _own = threading.local()

    def run(self, base: pa.Table, sql: str) -> pa.Table:
        """Run a statement over the table `base`."""
        if getattr(self._own, "process", None) != os.getpid():
            import duckdb

            self._own.engine = duckdb.connect(":memory:", config={"enable_external_access": "false"})
            self._own.process = os.getpid()
        self._own.engine.register("base", base)
        try:
            return self._own.engine.sql(sql).to_arrow_table()
        finally:
            self._own.engine.unregister("base")


def _column(values: Any) -> pa.Array:
    """Return the numbers of an answer as a column; missing ones are NULL."""
    return pa.array(values, from_pandas=True)


def _pick(column: Any, rows: pa.Array | None) -> Any:
    return column if rows is None else column.take(rows)


def _base(question: Question, per_set: Sequence[Sequence[Estimate]], which: str) -> pa.Table:
    """Return one row for each group of each grouping set: keys k0 …, aggregates a0 …, and a row number."""
    keys: list[list[Any]] = [[] for _ in question.groups]
    aggregates: list[list[Any]] = [[] for _ in question.aggregates]
    for members, estimates in zip(question.sets, per_set, strict=True):
        sizes = [len(question.groups[i].values or ()) for i in members]
        cells = math.prod(sizes)
        places = np.unravel_index(np.arange(cells), sizes) if members else ()
        for i, group in enumerate(question.groups):
            values = group.values or ()
            all_values = _numbers(values) if isinstance(values, range) else list(values)
            listed = pa.array([None] if i not in members else all_values, _TYPES[group.term.type])
            at = places[members.index(i)] if i in members else np.zeros(cells, dtype=np.int64)
            keys[i].append(listed.take(pa.array(at)))
        for j, estimate in enumerate(estimates):
            number = getattr(estimate, which)  # an aggregate without limits does not enter expressions over limits
            aggregates[j].append(_column(estimate.value if number is None else number))
    columns = {f"k{i}": pa.chunked_array(parts) for i, parts in enumerate(keys)}
    columns |= {f"a{j}": pa.chunked_array(parts) for j, parts in enumerate(aggregates)}
    rows = len(columns["a0"])
    return pa.table({internal("row"): pa.array(np.arange(rows)), **columns})


def _numbers(values: range) -> Any:
    """Return a range as 64-bit integers. Its stop itself may not fit 64 bits."""
    return np.arange(len(values), dtype=np.int64) * values.step + values.start


def _post_scope(question: Question) -> Callable[[exp.Column], Expression]:
    def look_up(node: exp.Column) -> Expression:
        index = int(node.name[1:])
        sql = exp.column(node.name, quoted=True)
        if node.name.startswith("k"):
            return Expression(sql, question.groups[index].term.type)
        vote = question.aggregates[index].needs[0].kind == "vote"
        return Expression(sql, question.aggregates[index].needs[0].extra.type if vote else "real")  # type: ignore[union-attr]

    return look_up


def _evaluate(engine: _Arithmetic, base: pa.Table, question: Question, node: exp.Expression) -> Any:
    if isinstance(node, exp.Column):
        return base.column(node.name)
    term = compile_term(node, _post_scope(question))
    query = (
        exp.select(exp.alias_(term.sql, "x", quoted=True))
        .from_("base")
        .order_by(exp.column(internal("row"), quoted=True))
    )
    return engine.run(base, query.sql(dialect="duckdb")).column("x")


def _kept_rows(engine: _Arithmetic, base: pa.Table, question: Question) -> pa.Array | None:
    """Return the rows that HAVING keeps, in the order of ORDER BY, up to LIMIT; None for all rows unchanged."""
    if question.having is None and not question.order and question.limit is None:
        return None
    scope = _post_scope(question)
    query = exp.select(exp.column(internal("row"), quoted=True)).from_("base")
    if question.having is not None:
        condition = compile_term(question.having, scope)
        if condition.type != "boolean":
            raise QueryRefused("HAVING needs a condition, such as COUNT(*) > 100.")
        query = query.where(condition.sql)
    for ordered in question.order:
        term = compile_term(ordered.this, scope)
        query = query.order_by(
            exp.Ordered(this=term.sql, **{key: ordered.args[key] for key in ("desc", "nulls_first")})
        )
    query = query.order_by(exp.column(internal("row"), quoted=True))
    if question.limit is not None:
        query = query.limit(question.limit)
    return engine.run(base, query.sql(dialect="duckdb")).column(internal("row")).combine_chunks()


def _limits(
    engine: _Arithmetic,
    plan: Plan,
    per_set: list[list[Estimate]],
    estimates: Callable[[Fraction], list[list[Estimate]]],
    node: exp.Expression,
    aggregate: int | None,
) -> tuple[Any, Any] | None:
    """Return the limits of one column: the aggregate's own, or the extremes of an expression over its limits."""
    if aggregate is not None:
        if any(group[aggregate].low is None for group in per_set):
            return None
        return tuple(np.concatenate([getattr(group[aggregate], end) for group in per_set]) for end in ("low", "high"))  # type: ignore[return-value]
    named = [int(column.name[1:]) for column in node.find_all(exp.Column) if column.name.startswith("a")]
    used = sorted(set(named))
    # An aggregate that occurs twice, as in COUNT(*) * COUNT(*), may have its extreme between the corners.
    if (
        not used
        or len(named) > len(used)
        or len(used) > _MOST_CORNERS
        or any(group[i].low is None for group in per_set for i in used)
    ):
        return None
    allowed = exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Neg | exp.Column | exp.Literal | exp.Paren | exp.Identifier
    if not all(isinstance(child, allowed) for child in node.walk()):
        return None
    # Sums, products and quotients are monotone in each argument, so the extremes are at corners of the box.
    wider = estimates(1 - (1 - plan.interval_confidence) / len(used))
    ends = {which: _base(plan.question, wider, which) for which in ("low", "high")}
    corners = []
    for choice in product(("low", "high"), repeat=len(used)):
        table = ends["low"]
        for i, which in zip(used, choice, strict=True):
            table = table.set_column(table.column_names.index(f"a{i}"), f"a{i}", ends[which].column(f"a{i}"))
        corners.append(_evaluate(engine, table, plan.question, node).to_numpy(zero_copy_only=False).astype(np.float64))
    safe = _denominators_keep_sign(ends, node)
    low, high = np.min(corners, axis=0), np.max(corners, axis=0)
    return np.where(safe, low, np.nan), np.where(safe, high, np.nan)


def _denominators_keep_sign(ends: dict[str, pa.Table], node: exp.Expression) -> Any:
    """Return True where every divisor is one aggregate or constant with limits on one side of zero."""
    safe: Any = np.ones(ends["low"].num_rows, dtype=bool)
    for division in node.find_all(exp.Div):
        divisor = division.expression.unnest()
        if isinstance(divisor, exp.Literal):
            continue
        if not isinstance(divisor, exp.Column):
            return np.zeros_like(safe)
        low, high = (
            ends[end].column(divisor.name).to_numpy(zero_copy_only=False).astype(np.float64) for end in ("low", "high")
        )
        safe &= (low > 0) | (high < 0)
    return safe


# Consistent totals
#
# ROLLUP measures every level separately, and least squares makes them agree.
#
# Hay et al. 2010: going up, a total and the sum of its parts are averaged by their variances; going down, the
# remainder is divided among the parts by theirs. No variance grows. The result has another law, so intervals stay
# around the measured values (`Noisy.limits`). This holds where every row of a total is in one of its parts. Groups that
# were found leave rows out, so a total over them stays as measured.


def consistent(plan: Plan, values: Sequence[list[Any]]) -> list[list[Any]]:
    """Return the values with counts and sums made consistent over nested grouping sets."""
    adjusted = [list(parts) for parts in values]
    needs = {need for _, need in plan.needs if need.kind in ("rows", "sum")}
    for order in _nested(plan.question):
        for need in needs:
            places = [plan.needs[group_set, need] for group_set in order]
            shapes = [plan.measurements[index].sums.cells for index in places]
            levels = [np.asarray(adjusted[index][0], dtype=np.float64) for index in places]
            variances = [plan.measurements[index].variance for index in places]
            for index, level in zip(places, _least_squares(levels, variances, shapes), strict=True):
                adjusted[index][0] = level
    return adjusted


def _nested(question: Question) -> list[list[int]]:
    """Return chains of two or more grouping sets, from coarse to fine, in which the parts of each group add up to it.

    Each set begins with all keys of the one before, and the further keys have a value for every row. Return None if the
    query's sets are not nested.
    """
    order = sorted(range(len(question.sets)), key=lambda i: len(question.sets[i]))
    chains = [order[:1]]
    for coarse, fine in pairwise(order):
        above, below = question.sets[coarse], question.sets[fine]
        if below[: len(above)] != above or len(below) == len(above):
            return []
        if all(question.groups[i].complete for i in below[len(above) :]):
            chains[-1].append(fine)
        else:
            chains.append([fine])
    return [chain for chain in chains if len(chain) > 1]


def _least_squares(levels: Sequence[Floats], variances: Sequence[float], cells: Sequence[int]) -> list[Floats]:
    best, spread = [levels[-1]], [variances[-1]]
    for level, variance, size in zip(levels[-2::-1], variances[-2::-1], cells[-2::-1], strict=True):
        parts = best[0].reshape(size, -1)
        of_sum = spread[0] * parts.shape[1]
        weight = of_sum / (of_sum + variance) if of_sum else 0.0  # without noise, the parts are as exact as the total
        best.insert(0, weight * level + (1 - weight) * parts.sum(axis=1))
        spread.insert(0, weight * variance)
    agreed = [best[0]]
    for mine in best[1:]:
        parts = mine.reshape(len(agreed[-1]), -1)
        left_over = (agreed[-1] - parts.sum(axis=1)) / parts.shape[1]
        agreed.append((parts + left_over[:, None]).ravel())
    return agreed

"""The aggregate functions in one table: the bounded statistics each needs, and its estimator.

A statistic is measured once, however many aggregates use it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlglot import exp

from cloister.data.dialect import as_double, greatest_of, least_of, literal, rounded_near_zero
from cloister.data.statistics import GroupKey, Known, Value, grid_value, whole_value
from cloister.privacy.errors import QueryRefused
from cloister.query import estimate
from cloister.query.estimate import Estimate, Leaves
from cloister.query.expression import Expression, Scope, compile_term, shown, told_apart

__all__ = ["Aggregate", "Statistic", "compile_aggregate", "is_aggregate", "tree_statistic"]


# Statistics

# Values are cut into about this many steps, as a power of two, so that noise fits into 64 bits: it is drawn much faster
# then. A person's rows have weights of 20 bits, single rows have none. Intervals include the rounding of rows.
_STEP_BITS, _STEP_BITS_OF_ROWS = 30, 42
_ROUNDED = 0.5 + 2.0**-8  # most steps by which a row is rounded, together with the rounding of doubles
_FAR = 2**10  # times their width integers beyond 2^53 may be from zero: a double rounds less than the grid does
_LEAVES = 4096
_MOST_LEAVES = 1 << 16
_TINY = 1e-100  # a number minus one that is not tiny is no tinier than its last digit: its square does not underflow
_TOO_CLOSE = (
    "the bounds of {} are too close to each other. Subtract one of them, or multiply it, in a WITH query first."
)


@dataclass(frozen=True, slots=True)
class Statistic:
    """One bounded statistic.

    Attributes:
        kind: the number of rows, a sum, the number of people or of different values, a tree of counts, or votes.
        label: for display.
        value: the summed expression (kind `sum`).
        step: the value of one integer step of the sum.
        rounding: the most that one row is off, since it is rounded to a multiple of the step.
        extra: the further key of a tree or vote.
        leaves: of a tree.
        column: the column whose different values are counted.
    """

    kind: Literal["rows", "sum", "people", "values", "tree", "vote"]
    label: str
    value: Value | None = None
    step: float = 1.0
    extra: GroupKey | None = None
    leaves: Leaves | None = None
    column: exp.Expression | None = None
    rounding: float = 0.0


def rows_statistic() -> Statistic:
    """Return the number of rows."""
    return Statistic("rows", "number of rows")


def people_statistic() -> Statistic:
    """Return the number of units."""
    return Statistic("people", "number of people")


def values_statistic(term: Expression, text: str) -> Statistic:
    """Return the number of different values of a column."""
    return Statistic("values", f"different values of {text}", column=told_apart(term))


def sum_statistic(
    term: Expression, text: str, centre: float = 0.0, *, squares: bool = False, bits: int = _STEP_BITS
) -> Statistic:
    """Return the sum of (x - centre), or of its square, over rows where x is not NULL, in about 2^bits steps."""
    low, high = limits_of(term, text)
    if term.type == "integer" and not centre and not squares and max(abs(low), abs(high)) < 2**bits:
        return Statistic(
            "sum", f"sum of {text}", whole_value(term.sql, math.floor(low), math.ceil(high), clipped=_kept(term))
        )
    sql, label = term.sql, f"{text} - {centre:g}" if centre else text
    if squares:
        difference = exp.Sub(this=as_double(term.sql), expression=literal(float(centre)))
        moved = exp.Paren(this=difference) if abs(centre) > _TINY else rounded_near_zero(difference)
        sql, low, high, centre = (
            exp.Mul(this=moved, expression=moved.copy()),
            0.0,
            max(low - centre, high - centre, key=abs) ** 2,
            0.0,
        )
        label = f"({label})²"
    reach = max(abs(low - centre), abs(high - centre), 1e-100)
    exponent = bits - math.ceil(math.log2(reach))
    value = grid_value(sql, low, high, exponent, centre, clipped=_kept(term) and not squares)
    if not value.reach:
        raise QueryRefused(_TOO_CLOSE.format(text))
    return Statistic("sum", f"sum of {label}", value, 2.0**-exponent, rounding=2.0**-exponent * _ROUNDED)


def known_statistic(term: Expression, text: str) -> Statistic:
    """Return the number of rows where x is not NULL."""
    if not term.nullable:
        return rows_statistic()
    return Statistic("sum", f"number of known {text}", Known(term.sql))


def tree_statistic(term: Expression, text: str) -> Statistic:
    """Return counts of x in equal bins between its bounds, for quantiles."""
    leaves = leaves_of(term, text)
    difference = exp.Sub(this=as_double(term.sql), expression=literal(leaves.low))
    above = (
        rounded_near_zero(difference) if leaves.width > 1 and abs(leaves.low) < _TINY else exp.Paren(this=difference)
    )
    if not leaves.whole:
        above = exp.Mul(this=above, expression=literal(leaves.factor))
    if _kept(term):  # within the limits already, and NULL stays NULL: comparing would double the cost
        leaf: exp.Expression = exp.Cast(this=exp.Floor(this=above), to=exp.DataType.build("BIGINT"))
    else:
        between = least_of(greatest_of(above, literal(0.0)), literal(float(leaves.count - 1)))
        leaf = exp.Case(
            ifs=[exp.If(this=exp.Is(this=exp.Paren(this=term.sql.copy()), expression=exp.Null()), true=exp.Null())],
            default=exp.Cast(this=exp.Floor(this=between), to=exp.DataType.build("BIGINT")),
        )
    return Statistic(
        "tree",
        f"distribution of {text}",
        extra=GroupKey("leaf", leaf, tuple(range(leaves.count)), "integer"),
        leaves=leaves,
    )


def leaves_of(term: Expression, text: str) -> Leaves:
    """Return the leaves into which a number's range is cut for quantiles."""
    low, high = limits_of(term, text)
    if term.type == "integer" and high - low < _MOST_LEAVES:
        first, last = math.floor(low), math.floor(high)
        return Leaves(float(first), float(last), 1.0, last - first + 1, whole=True)
    if high - low < _TINY:
        raise QueryRefused(_TOO_CLOSE.format(text))
    width = (high - low) / _LEAVES
    factor = 1 / width
    while (high - low) * factor >= _LEAVES:  # the upper limit is in the last leaf
        factor = math.nextafter(factor, 0)
    return Leaves(low, high, width, _LEAVES, whole=False, factor=factor)


def vote_statistic(term: Expression, text: str) -> Statistic:
    """Return counts of each value of x, to choose the most frequent."""
    domain = term.domain()
    values: tuple[Any, ...] = tuple(value for value in domain or () if value is not None)
    if not values:
        raise QueryRefused(f"MODE({text}) needs a public list of values: give the column categories in the schema.")
    return Statistic("vote", f"votes for {text}", extra=GroupKey("candidate", term.sql, values, term.type))


def _kept(term: Expression) -> bool:
    """Return True if a term is a column that its view already keeps within its limits: no clipping needed."""
    return term.clipped and isinstance(term.sql, exp.Column) and term.low != term.high


def limits_of(term: Expression, text: str) -> tuple[float, float]:
    """Return the public limits of a number, made distinct: those of a constant are slightly below and above it."""
    if term.type not in ("integer", "real"):
        raise QueryRefused(f"{text} is {term.type}, and a number is needed.")
    if term.low is None or term.high is None:
        raise QueryRefused(
            f"{text} has no public bounds. Give them in the schema, or write LEAST(GREATEST({text}, 0), 100), "
            "with limits of yours."
        )
    reach = max(abs(term.low), abs(term.high))
    if term.type == "integer" and reach > 2**53 and reach > _FAR * (term.high - term.low):
        raise QueryRefused(
            f"{text} is beyond 2^53 and its bounds are close to each other, where doubles cannot tell its values "
            f"apart. Write ({text} - {math.floor(term.low)}), and add that number to the answer."
        )
    apart = max(1.0, abs(term.low) * 2.0**-20)  # a step of one is negligible beside a constant beyond 2^53
    return (term.low, term.high) if term.low < term.high else (term.low - apart, term.high + apart)


# Aggregates


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate of a query.

    Attributes:
        text: as the analyst wrote it.
        needs: the statistics behind it.
        estimate: maps those statistics, noisy, to the answer.
        whole: whether the answer is an integer.
        expected: maps the margins of the needs and a public number of rows to the expected error of the answer; None if
            it cannot be computed beforehand.
        clipped: the possible effect of clipping, in words.
    """

    text: str
    needs: tuple[Statistic, ...]
    estimate: Callable[..., Estimate]
    whole: bool = False
    expected: Callable[[Sequence[float], float | None], float | None] = lambda _margins, _rows: None
    clipped: str = ""


def is_aggregate(node: exp.Expression) -> bool:
    """Return True if a node is an aggregate call, supported or not."""
    return isinstance(node, exp.AggFunc | exp.WithinGroup) or (
        isinstance(node, exp.Anonymous) and node.name.lower() in ("quantile",)
    )


def compile_aggregate(node: exp.Expression, scope: Scope, *, by_row: bool = False) -> Aggregate:
    """Compile the aggregate an analyst wrote, or refuse it and name an alternative.

    Args:
        node: the aggregate.
        scope: the columns.
        by_row: whether the unit is the row: then sums are taken on a finer grid.
    """
    rule = _RULES.get(type(node))
    if rule is None:
        offered = "COUNT, SUM, AVG, VARIANCE, STDDEV, MIN, MAX, MEDIAN, QUANTILE, PERCENTILE_CONT and MODE"
        instead = _INSTEAD.get(node.name.lower()) if isinstance(node, exp.Anonymous) else None
        hint = f"Write {instead}." if instead else f"The aggregates are {offered}."
        raise QueryRefused(f"{shown(node)[:60]} is not offered. {hint}")
    return rule(node, scope, _STEP_BITS_OF_ROWS if by_row else _STEP_BITS)


def _count(node: exp.Count, scope: Scope) -> Aggregate:
    text, inner = _text(node), node.this
    if node.expressions:
        raise QueryRefused("COUNT takes one thing: COUNT(*), COUNT(x) or COUNT(DISTINCT x).")
    if isinstance(inner, exp.Star):
        return Aggregate(text, (rows_statistic(),), estimate.count, whole=True, expected=_as_it_is)
    if isinstance(inner, exp.Distinct):
        return _count_distinct(inner, scope, text)
    return Aggregate(
        text,
        (known_statistic(compile_term(inner, scope), _text(inner)),),
        estimate.count,
        whole=True,
        expected=_as_it_is,
    )


def _count_distinct(node: exp.Distinct, scope: Scope, text: str) -> Aggregate:
    terms = [compile_term(argument, scope) for argument in node.expressions]
    if len(terms) == 1 and terms[0].unit:
        return Aggregate(text, (people_statistic(),), estimate.count, whole=True, expected=_as_it_is)
    if len(terms) != 1:
        raise QueryRefused(f"{text}: COUNT(DISTINCT …) takes one column.")
    return Aggregate(
        text, (values_statistic(terms[0], _text(node.expressions[0])),), estimate.count, whole=True, expected=_as_it_is
    )


def _sum(node: exp.Sum, scope: Scope, bits: int) -> Aggregate:
    term, text = _number(node.this, scope)
    is_integer, clipped = term.type == "integer", _clipping(term, text)
    return Aggregate(
        _text(node), (sum_statistic(term, text, bits=bits),), estimate.total, is_integer, _as_it_is, clipped
    )


def _average(node: exp.Avg, scope: Scope, bits: int) -> Aggregate:
    term, text = _number(node.this, scope)
    low, high = limits_of(term, text)
    centre = (low + high) / 2
    needs = (sum_statistic(term, text, centre, bits=bits), known_statistic(term, text))
    expected = _of_mean((high - low) / 2)
    return Aggregate(
        _text(node), needs, estimate.mean(centre, low, high), expected=expected, clipped=_clipping(term, text)
    )


def _spread(*, sample: bool, root: bool) -> Callable[[Any, Scope, int], Aggregate]:
    def rule(node: exp.Expression, scope: Scope, bits: int) -> Aggregate:
        term, text = _number(node.this, scope)
        low, high = limits_of(term, text)
        centre = (low + high) / 2
        needs = (
            sum_statistic(term, text, centre, squares=True, bits=bits),
            sum_statistic(term, text, centre, bits=bits),
            known_statistic(term, text),
        )
        formula = estimate.variance(centre, (high - low) / 2, sample=sample)
        if root:
            return Aggregate(_text(node), needs, estimate.deviation(formula), clipped=_clipping(term, text))
        expected = _of_variance((high - low) / 2)
        return Aggregate(_text(node), needs, formula, expected=expected, clipped=_clipping(term, text))

    return rule


def _quantile(
    node: exp.Expression,
    scope: Scope,
    share: exp.Expression,
    of: exp.Expression,
    definition: Callable[[float], Callable[..., Estimate]] = estimate.quantile,
) -> Aggregate:
    term, text = _number(of, scope)
    where = compile_term(share, scope)
    if where.nullable or where.low is None or where.low != where.high or not 0 <= where.low <= 1:
        raise QueryRefused("a quantile needs a constant between 0 and 1, such as QUANTILE(age, 0.9).")
    tree = tree_statistic(term, text)
    return Aggregate(_text(node), (tree,), definition(where.low), clipped=_clipping(term, text))


def _median(node: exp.Median, scope: Scope) -> Aggregate:
    return _quantile(node, scope, exp.Literal.number("0.5"), node.this)


def _quantile_call(node: exp.Quantile, scope: Scope) -> Aggregate:
    return _quantile(node, scope, node.args["quantile"], node.this)


def _within_group(node: exp.WithinGroup, scope: Scope, bits: int) -> Aggregate:
    inner, order = node.this, node.expression.expressions
    if not isinstance(inner, exp.PercentileCont | exp.PercentileDisc) or len(order) != 1 or order[0].args.get("desc"):
        raise QueryRefused("write PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x).")
    if isinstance(inner, exp.PercentileDisc):
        return _quantile(node, scope, inner.this, order[0].this)
    whole_rows = bits == _STEP_BITS_OF_ROWS  # rows of people with many count less than once

    def continuous(q: float) -> Callable[..., Estimate]:
        return estimate.quantile(q, **estimate.between_rows(q, whole_rows=whole_rows))

    return _quantile(node, scope, inner.this, order[0].this, continuous)


def _extreme(*, largest: bool) -> Callable[[Any, Scope], Aggregate]:
    def rule(node: exp.Expression, scope: Scope) -> Aggregate:
        term, text = _number(node.this, scope)
        return Aggregate(
            _text(node), (tree_statistic(term, text),), estimate.extreme(largest=largest), clipped=_clipping(term, text)
        )

    return rule


def _mode(node: exp.Mode, scope: Scope) -> Aggregate:
    term = compile_term(node.this, scope)
    return Aggregate(
        _text(node), (vote_statistic(term, _text(node.this)),), lambda chosen, _confidence: Estimate(chosen)
    )


def _as_it_is(margins: Sequence[float], rows: float | None) -> float:
    return margins[0]


def _of_mean(half: float) -> Callable[[Sequence[float], float | None], float | None]:
    """Return the function that computes the expected error of a mean.

    A mean is within `half` of the centre, so each row of error in the count adds at most `half` to the error of the
    sum. The divisor is the smallest row count that the noisy count leaves possible, as for the interval.
    """

    def expected(margins: Sequence[float], rows: float | None) -> float | None:
        if rows is None:
            return None
        sums, counts = margins
        return _at_most(half, sums + half * counts, rows - counts)

    return expected


def _of_variance(half: float) -> Callable[[Sequence[float], float | None], float | None]:
    def expected(margins: Sequence[float], rows: float | None) -> float | None:
        if rows is None:
            return None
        squares, sums, counts = margins
        return _at_most(half**2, squares + half**2 * counts + 2 * half * (sums + half * counts), rows - counts)

    return expected


def _at_most(most: float, top: float, rows: float) -> float:
    """Return a quotient, or the interval's largest possible error if too few rows may be left."""
    return most if rows < 1 else min(most, top / rows)


def _number(node: exp.Expression, scope: Scope) -> tuple[Expression, str]:
    if isinstance(node, exp.Distinct):
        raise QueryRefused("DISTINCT is offered inside COUNT only.")
    term, text = compile_term(node, scope), _text(node)
    if term.type == "boolean":
        # 1, 0, or NULL where the condition is NULL: an average skips it.
        term = compile_term(exp.Cast(this=node.copy(), to=exp.DataType.build("BIGINT")), scope)
    sum_statistic(term, text)  # refuses unbounded arguments with the same message everywhere
    return term, text


def _clipping(term: Expression, text: str) -> str:
    return f"{text} is read within {term.low:g} and {term.high:g}"


def _text(node: exp.Expression) -> str:
    return (
        node.sql(dialect="duckdb", normalize_functions="upper").lower() if isinstance(node, exp.Column) else shown(node)
    )


# Aggregate names of other systems.
_INSTEAD = {
    "var": "VARIANCE(x)", "mean": "AVG(x)", "std": "STDDEV(x)", "stdev": "STDDEV(x)", "count_if": "SUM(CASE WHEN …)",
    "countif": "COUNT(CASE WHEN x > 3 THEN 1 END)", "average": "AVG(x)", "percentile": "QUANTILE(x, 0.5)",
}  # fmt: skip


def _without_grid(rule: Callable[[Any, Scope], Aggregate]) -> Callable[[Any, Scope, int], Aggregate]:
    """Return a rule that counts rows, and rounds no value to a grid."""
    return lambda node, scope, _bits: rule(node, scope)


_RULES: Mapping[type[exp.Expression], Callable[[Any, Scope, int], Aggregate]] = {
    exp.Count: _without_grid(_count),
    exp.Sum: _sum,
    exp.Avg: _average,
    exp.Variance: _spread(sample=True, root=False),
    exp.VariancePop: _spread(sample=False, root=False),
    exp.Stddev: _spread(sample=True, root=True),
    exp.StddevSamp: _spread(sample=True, root=True),
    exp.StddevPop: _spread(sample=False, root=True),
    exp.Median: _without_grid(_median),
    exp.Quantile: _without_grid(_quantile_call),
    exp.WithinGroup: _within_group,
    exp.Min: _without_grid(_extreme(largest=False)),
    exp.Max: _without_grid(_extreme(largest=True)),
    exp.Mode: _without_grid(_mode),
}

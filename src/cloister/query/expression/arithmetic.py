"""Arithmetic and rounding of numbers.

In integers where the result provably fits, else in doubles that neither overflow nor underflow, which is an error in
PostgreSQL. A number without public limits counts as at most 1e100.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlglot import exp

from cloister.data.dialect import as_double, greatest_of, least_of, literal, near_zero, rounded_near_zero
from cloister.privacy.errors import QueryRefused
from cloister.query.expression.convert import (
    as_real,
    at_least,
    clipped_to_limits,
    decimals_of,
    double,
    farthest,
    largest_size,
    least_size,
    limited,
    number_term,
)
from cloister.query.expression.expression import (
    INT64,
    MOST_MAPPED,
    MOST_VALUES,
    RULES,
    SMALLEST,
    Decimals,
    Expression,
    Scope,
    as_long,
    compile_term,
    constant_term,
    whole_number,
    wrap,
)

__all__ = ["round_to_whole"]

_MOST_FOLDED = 2**63  # the largest integer an engine may fold from constants
_LARGEST_INTEGER = 2**63 - 1
_EXACT = 2.0**53  # from here on every double is an integer


def _binary(make: Callable[..., exp.Expression], corners: Callable[[float, float], float]) -> Callable[..., Expression]:
    def rule(node: exp.Binary, scope: Scope) -> Expression:
        left, right = number_term(node.this, scope), number_term(node.expression, scope)
        constant = _folded(left, right, corners)
        if constant is not None:
            return constant
        low, high = _hull(left, right, corners)
        fits = low is not None and high is not None and max(abs(low), abs(high)) < INT64
        folded = left.folded * right.folded if make is exp.Mul else left.folded + right.folded
        nullable = left.nullable or right.nullable
        if left.type == right.type == "integer" and fits and folded < _MOST_FOLDED:
            sql = exp.Paren(this=make(this=wrap(left.sql), expression=wrap(right.sql)))
            return Expression(sql, "integer", low, high, _mapped(left, right, corners), nullable, folded=folded)
        underflows = make is exp.Mul and least_size(left) * least_size(right) == 0
        most = max(abs(corners(largest_size(left), sign * largest_size(right))) for sign in (1, -1))
        digits = _combined(make, left, right)
        left, right = limited(left, underflows), limited(right, underflows)
        low, high = _hull(left, right, corners)  # in doubles, as the engine does
        sql = exp.Paren(this=make(this=wrap(left.sql), expression=wrap(right.sql)))
        return Expression(sql, "real", low, high, nullable=nullable, most=most, decimals=digits)

    return rule


def _combined(make: Callable[..., exp.Expression], left: Expression, right: Expression) -> Decimals | None:
    """Return the digits of a sum, difference or product."""
    left_digits, right_digits = decimals_of(left), decimals_of(right)
    if left_digits is None or right_digits is None:
        return None
    if make is exp.Mul:
        return Decimals.of(
            left_digits.scale + right_digits.scale, left_digits.reach * right_digits.reach, nearest=False
        )
    return Decimals.of(
        max(left_digits.scale, right_digits.scale), left_digits.reach + right_digits.reach, nearest=False
    )


def _folded(left: Expression, right: Expression, apply: Callable[..., Any]) -> Expression | None:
    """Fold two constants exactly, rounded once; None where folding does not apply."""
    if left.constant is None or right.constant is None or left.type == right.type == "integer":
        return None  # integers are exact already
    return constant_term(apply(left.constant, right.constant))


def _mapped(left: Expression, right: Expression, apply: Callable[[float, float], float]) -> tuple[Any, ...] | None:
    """Return all values of a listed integer combined with a constant: FLOOR(age / 10) * 10 is one of 0, 10, … 100."""
    for variable, fixed, swap in ((left, right, False), (right, left, True)):
        if fixed.low is not None and fixed.low == fixed.high and variable.low != variable.high:
            values = [value for value in variable.domain() or () if value is not None][: MOST_MAPPED + 1]
            if values and len(values) <= MOST_MAPPED:
                constant = int(fixed.low)
                return tuple(dict.fromkeys(int(apply(constant, x) if swap else apply(x, constant)) for x in values))
    return None


def _hull(
    left: Expression, right: Expression, corner: Callable[[float, float], float]
) -> tuple[float | None, float | None]:
    if left.low is None or left.high is None or right.low is None or right.high is None:
        return None, None
    corners = [corner(a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
    return min(corners), max(corners)


def _divide(node: exp.Div, scope: Scope) -> Expression:
    left, right = number_term(node.this, scope), number_term(node.expression, scope)
    if left.constant is not None and right.constant:
        folded = constant_term(left.constant / right.constant)
        if folded is not None:
            return folded
    # Division by (nearly) zero gives NULL: an error, or an infinity that is an error in another engine, would leak.
    guard = exp.LT(this=exp.Abs(this=double(right)), expression=literal(SMALLEST))
    underflows = largest_size(right) > 0 and least_size(left) / largest_size(right) == 0
    above, below = limited(left, underflows), limited(right)
    low, high = None, None
    if below.low is not None and below.high is not None and (below.low >= SMALLEST or below.high <= -SMALLEST):
        low, high = _hull(above, below, lambda a, b: a / b)
    quotient = exp.Div(this=wrap(above.sql), expression=wrap(below.sql), typed=False, safe=False)
    if low is None or not right.sure:
        sql: exp.Expression = exp.Case(ifs=[exp.If(this=guard, true=exp.Null())], default=quotient)
    else:
        sql = exp.Paren(this=quotient)
    nullable = left.nullable or right.nullable or low is None
    digits = None
    if right.constant:  # a tenth of a decimal is a decimal, a third is not
        digits = _combined(exp.Mul, left, replace(right, constant=1 / right.constant))
    return Expression(sql, "real", low, high, nullable=nullable, most=largest_size(left) / SMALLEST, decimals=digits)


def _modulo(node: exp.Mod, scope: Scope) -> Expression:
    left, right = number_term(node.this, scope), number_term(node.expression, scope)
    if (
        left.type != "integer"
        or right.type != "integer"
        or right.low is None
        or right.low != right.high
        or right.low <= 0
    ):
        raise QueryRefused("% works on a whole number and a positive whole constant, such as age % 10.")
    low = 0.0 if left.low is not None and left.low >= 0 else 1 - right.low
    return Expression(
        exp.Paren(this=exp.Mod(this=wrap(left.sql), expression=right.sql)),
        "integer",
        low,
        right.low - 1,
        nullable=left.nullable or right.nullable,
    )


def _negate(node: exp.Neg, scope: Scope) -> Expression:
    inner = number_term(node.this, scope)
    low, high = (None if end is None else -end for end in (inner.high, inner.low))
    return Expression(
        exp.Paren(this=exp.Neg(this=wrap(_with_opposite(inner)))),
        inner.type,
        low,
        high,
        nullable=inner.nullable,
        most=inner.most,
        clipped=inner.clipped,
        constant=None if inner.constant is None else -inner.constant,
        decimals=inner.decimals,
        folded=inner.folded,
    )


def _with_opposite(term: Expression) -> exp.Expression:
    """Return a number raised to -(2^63 - 1) if it may be -2^63, as an id may: no 64-bit integer is its opposite."""
    if term.type != "integer" or term.low is not None:
        return term.sql.copy()
    least = literal(-_LARGEST_INTEGER)
    below = exp.LT(this=wrap(term.sql), expression=least)
    return exp.Case(ifs=[exp.If(this=below, true=least.copy())], default=term.sql.copy())


def _monotone(
    make: type[exp.Expression], apply: Callable[[float], float], kind: str | None = None
) -> Callable[..., Expression]:
    """Compile a non-decreasing function of one number."""

    def rule(node: exp.Expression, scope: Scope) -> Expression:
        inner = number_term(node.this, scope)
        low, high = (None if end is None else apply(end) for end in (inner.low, inner.high))
        if inner.type == "integer" and kind == "integer":
            return inner
        sql: exp.Expression = make(this=double(inner))
        # Both ends: an end that is not public may be 1e308, and the engine's error would leak it.
        is_integer = kind == "integer" and low is not None and high is not None and max(abs(low), abs(high)) < INT64
        if is_integer and inner.sure:
            sql = as_long(sql)
        elif is_integer:  # the cast must not fail whatever the computed limits, and integers rely on them from here on
            sql = as_long(make(this=clipped_to_limits(inner)))
        else:  # in Spark FLOOR and CEIL are 64-bit integers, and an error beyond
            small = exp.LT(this=exp.Abs(this=double(inner)), expression=literal(_EXACT))
            sql = exp.Case(ifs=[exp.If(this=small, true=as_double(sql))], default=double(inner))
        return Expression(sql, "integer" if is_integer else "real", low, high, nullable=inner.nullable)

    return rule


def _absolute(node: exp.Abs, scope: Scope) -> Expression:
    inner = number_term(node.this, scope)
    low = high = None
    if inner.low is not None and inner.high is not None:
        high = max(abs(inner.low), abs(inner.high))
        low = 0 if inner.low <= 0 <= inner.high else min(abs(inner.low), abs(inner.high))
    return Expression(
        exp.Abs(this=_with_opposite(inner)),
        inner.type,
        low,
        high,
        nullable=inner.nullable,
        most=inner.most,
        clipped=inner.clipped,
        decimals=inner.decimals,
        folded=inner.folded,
    )


def _root(node: exp.Sqrt, scope: Scope) -> Expression:
    inner = number_term(node.this, scope)
    sql = exp.Sqrt(this=at_least(inner, 0.0))
    low, high = (None if end is None else math.sqrt(max(end, 0)) for end in (inner.low, inner.high))
    return Expression(sql, "real", low or 0.0, high, nullable=inner.nullable)


def _logarithm(node: exp.Ln, scope: Scope) -> Expression:
    inner = number_term(node.this, scope)
    smallest = max(float(inner.low or 0.0), SMALLEST)
    sql = exp.Ln(this=at_least(inner, smallest))
    # Engines' logarithms differ in the last digit.
    low = math.log(smallest) - 1e-12 * (1 + abs(math.log(smallest)))
    high = None
    if inner.high is not None:
        top = math.log(max(float(inner.high), smallest))
        high = top + 1e-12 * (1 + abs(top))
    return Expression(sql, "real", low, high, nullable=inner.nullable)


def round_to_whole(node: exp.Round, scope: Scope) -> Expression:
    """Compile ROUND to the nearest integer, halves upwards."""
    if node.args.get("decimals") is not None:
        raise QueryRefused("ROUND takes one number here. Round to a step with FLOOR(x / 10) * 10.")
    return _monotone(exp.Floor, math.floor, "integer")(
        exp.Floor(this=exp.Add(this=node.this.copy(), expression=exp.Literal.number("0.5"))), scope
    )


def _extreme(make: Callable[..., exp.Expression], choose: Callable[..., float]) -> Callable[..., Expression]:
    def rule(node: exp.Expression, scope: Scope) -> Expression:
        parts = [number_term(argument, scope) for argument in (node.this, *node.expressions)]
        is_integer = all(part.type == "integer" for part in parts)
        sqls = [part.sql if is_integer else double(part) for part in parts]
        lows, highs = [part.low for part in parts], [part.high for part in parts]
        least = choose is min
        low = (None if None in lows else min(lows)) if least else _known(lows, max)  # type: ignore[type-var]
        high = _known(highs, min) if least else (None if None in highs else max(highs))  # type: ignore[type-var]
        # Engines differ on NULL among the arguments: here the result is always NULL.
        nullable = any(part.nullable for part in parts)
        sql: exp.Expression = make(*sqls)
        if nullable:
            missing = exp.or_(
                *(exp.Is(this=wrap(part.sql.copy()), expression=exp.Null()) for part in parts if part.nullable)
            )
            sql = exp.Case(ifs=[exp.If(this=missing, true=exp.Null())], default=sql)
        digits = None if is_integer else Decimals.common([decimals_of(part) for part in parts])
        return Expression(
            sql,
            "integer" if is_integer else "real",
            low,
            high,
            nullable=nullable,
            most=max(map(farthest, parts)),
            decimals=digits,
            folded=max(part.folded for part in parts),
        )

    return rule


def _known(ends: list[float | None], choose: Callable[..., float]) -> float | None:
    bounds = [end for end in ends if end is not None]
    return choose(bounds) if bounds else None


def _bucket(node: exp.WidthBucket, scope: Scope) -> Expression:
    """Compile WIDTH_BUCKET(x, low, high, n): 1 … n inside, 0 below, n + 1 above."""
    inner = number_term(node.this, scope)
    ends = [compile_term(node.args[name], scope) for name in ("min_value", "max_value", "num_buckets")]
    if any(end.low is None or end.low != end.high or end.nullable for end in ends):
        raise QueryRefused("WIDTH_BUCKET needs constants: WIDTH_BUCKET(age, 0, 100, 20).")
    low, high, n = (float(end.low or 0) for end in ends)
    if high <= low or n < 1 or n != int(n) or n > MOST_VALUES:
        raise QueryRefused("WIDTH_BUCKET needs low < high and a whole number of buckets.")
    real, width = as_real(inner), high - low
    below, beyond = real.low is None or real.low < low, real.high is None or real.high >= high

    rounds = width > n  # the quotient may underflow, and only then

    def place(x: exp.Expression) -> exp.Expression:
        # Multiply by n, then divide: a number on the edge of a bucket stays on it.
        above: exp.Expression = exp.Paren(this=exp.Sub(this=wrap(x), expression=literal(low)))
        above = rounded_near_zero(above) if rounds else above
        return exp.Div(
            this=exp.Mul(this=above, expression=literal(n)), expression=literal(width), typed=False, safe=False
        )

    if real.sure and not below and not beyond and real.high is not None:
        top = real.high - low
        if (near_zero(top) if rounds else top) * n / width < n:  # the engine's own rounding: no comparison is needed
            inside = exp.Add(this=as_long(exp.Floor(this=place(real.sql))), expression=whole_number(1))
            return Expression(exp.Paren(this=inside), "integer", 1, n, nullable=inner.nullable)
    # Clipped first, so that no quotient overflows. At most n - 1 afterwards: a quotient may be rounded up to n.
    at = place(least_of(greatest_of(real.sql.copy(), literal(low)), literal(high)))
    at = exp.Floor(this=least_of(at, literal(n - 1)))
    sql: exp.Expression = exp.Add(this=as_long(at), expression=whole_number(1))
    # LEAST and GREATEST skip NULL.
    ifs = [exp.If(this=exp.Is(this=wrap(real.sql), expression=exp.Null()), true=exp.Null())] if inner.nullable else []
    if below:
        ifs.append(exp.If(this=exp.LT(this=wrap(real.sql), expression=literal(low)), true=whole_number(0)))
    if beyond:
        ifs.append(exp.If(this=exp.GTE(this=wrap(real.sql), expression=literal(high)), true=whole_number(int(n) + 1)))
    if ifs:
        sql = exp.Case(ifs=ifs, default=sql)
    first, last = 0 if below else 1, n + 1 if beyond else n
    return Expression(exp.Paren(this=sql), "integer", first, last, nullable=inner.nullable)


RULES.update(
    {
        exp.Add: _binary(exp.Add, lambda a, b: a + b),
        exp.Sub: _binary(exp.Sub, lambda a, b: a - b),
        exp.Mul: _binary(exp.Mul, lambda a, b: a * b),
        exp.Div: _divide,
        exp.Mod: _modulo,
        exp.Neg: _negate,
        exp.Abs: _absolute,
        exp.Floor: _monotone(exp.Floor, math.floor, "integer"),
        exp.Ceil: _monotone(exp.Ceil, math.ceil, "integer"),
        exp.Round: round_to_whole,
        exp.Sqrt: _root,
        exp.Ln: _logarithm,
        exp.Least: _extreme(least_of, min),
        exp.Greatest: _extreme(greatest_of, max),
        exp.WidthBucket: _bucket,
    }
)

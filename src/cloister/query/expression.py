"""Row-wise expressions with public facts: type, interval, list of values. The allow-list of the language.

Anything not in the table below is refused. Every form here is total: it gives a value or NULL for every row in every
engine, never an error, so the control flow never depends on the rows.

Three rules ensure this. An integer term is BIGINT in every engine, a real one DOUBLE: constants and NULL are cast, so
no form built from them is narrower. Limits hold for every row: those of an integer by construction, because a
conversion from real to integer clips to them; those of a real in the engine's own double arithmetic. A term made of
several states each public fact for all of them (`one_of`). tests/property/test_terms_hold.py checks all three.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from fractions import Fraction
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from sqlglot import exp

from cloister.data.dialect import as_double, canonical, greatest_of, least_of, literal, near_zero, rounded_near_zero
from cloister.privacy.errors import QueryRefused

__all__ = ["Decimals", "Scope", "Expression", "compared", "compile_term", "equated", "one_of", "shown", "told_apart"]

NUMBERS = ("integer", "real")
_LARGEST = 1e100  # beyond this an engine might overflow
_TOO_LARGE = 1e140  # a product of two such numbers does not overflow
_SMALLEST = 1e-100  # below this an engine might underflow
_INT64 = 2**62
_MOST_FOLDED = 2**63  # the largest integer an engine may fold from constants
_EXACT = 2.0**53  # from here on every double is an integer
_MOST_NODES = 8000
_MOST_VALUES = 1_000_000
_MOST_MAPPED = 10_000
_MOST_DIGITS = 15
_MOST_STEPS = 2.0**42
_MOST_NAMED = 10  # categories shown in a message


@dataclass(frozen=True, slots=True)
class Decimals:
    """A real number with few decimal digits, so that rounding its double restores it exactly.

    A sum, difference or product of such numbers in doubles is off by at most u·n·reach, for n nested operations and u =
    2^-53. Where reach · 10^scale is below 2^42 that is less than half a step of its last digit.

    Attributes:
        scale: the number of decimal digits.
        reach: bounds the absolute value of every part of the expression.
        nearest: whether its double is the nearest to it, as for a column; a comparison then needs no rounding.
    """

    scale: int
    reach: float
    nearest: bool = True

    @staticmethod
    def of(scale: int, reach: float, *, nearest: bool = True) -> "Decimals | None":
        """Return the digits; None if there are too many before and after the point together."""
        fits = 0 <= scale <= _MOST_DIGITS and reach * 10.0**scale <= _MOST_STEPS
        return Decimals(scale, reach, nearest) if fits else None

    @staticmethod
    def common(parts: Sequence["Decimals | None"]) -> "Decimals | None":
        """Return the digits that hold for every one of several numbers."""
        known = [one for one in parts if one is not None]
        if not known or len(known) < len(parts):
            return None
        scale, reach = max(one.scale for one in known), max(one.reach for one in known)
        return Decimals.of(scale, reach, nearest=all(one.nearest for one in known))

    @staticmethod
    def within(scale: int, low: float, high: float) -> "Decimals | None":
        """Return the digits of a column kept within bounds; the bounds must not have more digits than the column."""
        ends = [Fraction(repr(float(end))) * 10**scale for end in (low, high)] if scale <= _MOST_DIGITS else []
        whole = ends and all(end.denominator == 1 for end in ends)
        return Decimals.of(scale, max(abs(low), abs(high))) if whole else None


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression, its type, and the public facts of its values.

    Attributes:
        sql: the expression as the engine will run it.
        type: integer, real, text, boolean, date or timestamp.
        low, high: limits of a number, as the engine computes it: exact integers of an integer, doubles of a real; None
            if there is no public limit.
        values: all values it can take besides NULL, if that list is public.
        listed: whether it is a column whose values the schema or an owner's view lists.
        nullable: whether it may be NULL.
        unit: whether it is the column that identifies the unit.
        clipped: whether it is a column that its view already keeps within low and high, to the last bit.
        most: the largest absolute value of a number without public limits.
        decimals: of a real, its decimal digits, if public.
        moments: the limits of a timestamp to the microsecond, of which low and high are the days; None if not known.
        constant: its exact value, if it is written with constants only: 0.06 + 0.01 is 0.07, also where doubles differ.
            An expression that may be NULL is no constant.
        folded: of an integer, the largest number an engine can fold from its constants. DuckDB turns (x * a) * b into
            x * (a * b), which may overflow where no row does.
    """

    sql: exp.Expression
    type: str
    low: float | None = None
    high: float | None = None
    values: tuple[Any, ...] | None = None
    nullable: bool = True
    unit: bool = False
    most: float = math.inf
    clipped: bool = False
    constant: Fraction | None = None
    listed: bool = False
    decimals: Decimals | None = None
    folded: int = 1
    moments: tuple[datetime, datetime] | None = None

    def __post_init__(self) -> None:
        if self.nullable:
            object.__setattr__(self, "constant", None)
        # Limits use the engine's arithmetic: beyond 2^53 integers and doubles round differently.
        low: float | None
        high: float | None
        if self.type == "integer":
            low = None if self.low is None else math.floor(self.low)
            high = None if self.high is None else math.ceil(self.high)
        elif self.type == "real":
            low, high = (None if end is None else float(end) for end in (self.low, self.high))
        else:
            return
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def sure(self) -> bool:
        """True if the limits hold by construction (a constant or clipped column), not by interval arithmetic."""
        return self.bounded and (self.clipped or (self.constant is not None and self.low == self.high))

    @property
    def bounded(self) -> bool:
        """True if both limits are public."""
        return self.low is not None and self.high is not None

    def domain(self) -> Sequence[Any] | None:
        """Return every value a group could have, if public; NULL last if it can occur."""
        if self.values is not None:
            known: Sequence[Any] | None = self.values
        elif self.type == "boolean":
            known = (False, True)
        elif self.type == "integer" and self.low is not None and self.high is not None:
            wide = self.high - self.low
            known = range(math.ceil(self.low), math.floor(self.high) + 1) if wide < _MOST_VALUES else None
        else:
            known = None
        if known is None:
            return None
        return (*known, None) if self.nullable else known


Scope = Callable[[exp.Column], Expression]


def compile_term(node: exp.Expression, scope: Scope) -> Expression:
    """Compile an expression the analyst wrote, or refuse it and name an alternative."""
    rule = _RULES.get(type(node))
    if rule is None:
        raise QueryRefused(_unknown(node))
    try:
        term = rule(node, scope)
    except RecursionError:
        raise QueryRefused("this expression is nested too deeply. Compute parts of it in a WITH query.") from None
    reach = max(abs(term.low or 0), abs(term.high or 0))
    if reach > _LARGEST:
        raise QueryRefused(f"{_text(node)} may become larger than 1e100. Limit it with LEAST(...) and GREATEST(...).")
    if sum(1 for _ in term.sql.walk()) > _MOST_NODES:
        raise QueryRefused(f"{_text(node)} ... is too long for one expression. Compute parts of it in a WITH query.")
    return term


# Leaves


def _column(node: exp.Column, scope: Scope) -> Expression:
    return scope(node)


def _literal(node: exp.Literal, scope: Scope) -> Expression:
    if node.is_string:
        return Expression(node.copy(), "text", values=(node.this,), nullable=False)
    try:
        value: float = int(node.this) if len(node.this) < 100 else math.inf
        kind = "integer" if abs(value) < _INT64 else "real"
    except ValueError:
        value, kind = float(node.this), "real"
    sql = _whole(int(value)) if kind == "integer" else literal(float(value))
    folded = max(1, int(value)) if kind == "integer" else 1
    return Expression(sql, kind, value, value, nullable=False, constant=_exact(node.this), folded=folded)


def _exact(text: str) -> Fraction | None:
    """Return a number as written; None if it has unreasonably many digits."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    exponent = number.as_tuple().exponent
    return Fraction(number) if isinstance(exponent, int) and abs(exponent) < 100 and len(text) < 100 else None


def _constant(value: Fraction) -> Expression | None:
    """Return an exactly computed real value as a term; None if an engine cannot represent it."""
    near = float(value)
    if value and not _SMALLEST <= abs(near) <= _LARGEST:
        return None
    return Expression(literal(near), "real", near, near, nullable=False, constant=value)


def _boolean(node: exp.Boolean, scope: Scope) -> Expression:
    return Expression(node.copy(), "boolean", values=(bool(node.this),), nullable=False)


def _null(node: exp.Null, scope: Scope) -> Expression:
    # Typed: PostgreSQL takes a bare NULL for text, and then has no -NULL and no NULL + 1 in an outer query.
    return Expression(_as_long(node), "integer", 0, 0)


def _is_missing(term: Expression) -> bool:
    """Return True if the expression is a literal NULL, which matches values of any type."""
    sql = term.sql.unnest()
    return isinstance(sql.this if isinstance(sql, exp.Cast) else sql, exp.Null)


def _paren(node: exp.Paren, scope: Scope) -> Expression:
    inner = compile_term(node.this, scope)
    return replace(inner, sql=exp.Paren(this=inner.sql), unit=False)


# Arithmetic: in integers where the result provably fits, else in doubles that neither overflow nor underflow, which is
# an error in PostgreSQL. A number without public limits counts as at most 1e100.


def _binary(make: Callable[..., exp.Expression], corners: Callable[[float, float], float]) -> Callable[..., Expression]:
    def rule(node: exp.Binary, scope: Scope) -> Expression:
        left, right = _number(node.this, scope), _number(node.expression, scope)
        constant = _folded(left, right, corners)
        if constant is not None:
            return constant
        low, high = _hull(left, right, corners)
        fits = low is not None and high is not None and max(abs(low), abs(high)) < _INT64
        folded = left.folded * right.folded if make is exp.Mul else left.folded + right.folded
        nullable = left.nullable or right.nullable
        if left.type == right.type == "integer" and fits and folded < _MOST_FOLDED:
            sql = exp.Paren(this=make(this=_wrap(left.sql), expression=_wrap(right.sql)))
            return Expression(sql, "integer", low, high, _mapped(left, right, corners), nullable, folded=folded)
        underflows = make is exp.Mul and _least(left) * _least(right) == 0
        most = max(abs(corners(_most(left), sign * _most(right))) for sign in (1, -1))
        digits = _combined(make, left, right)
        left, right = _limited(left, underflows), _limited(right, underflows)
        low, high = _hull(left, right, corners)  # in doubles, as the engine does
        sql = exp.Paren(this=make(this=_wrap(left.sql), expression=_wrap(right.sql)))
        return Expression(sql, "real", low, high, nullable=nullable, most=most, decimals=digits)

    return rule


def _combined(make: Callable[..., exp.Expression], left: Expression, right: Expression) -> Decimals | None:
    """Return the digits of a sum, difference or product."""
    one, other = _decimals(left), _decimals(right)
    if one is None or other is None:
        return None
    if make is exp.Mul:
        return Decimals.of(one.scale + other.scale, one.reach * other.reach, nearest=False)
    return Decimals.of(max(one.scale, other.scale), one.reach + other.reach, nearest=False)


def _decimals(term: Expression) -> Decimals | None:
    """Return the digits of any number: zero for an integer, the written digits for a constant."""
    if term.constant is not None:
        scale = next((k for k in range(_MOST_DIGITS + 1) if (term.constant * 10**k).denominator == 1), None)
        return None if scale is None else Decimals.of(scale, abs(float(term.constant)))
    if term.type == "integer" and term.low is not None and term.high is not None:
        return Decimals.of(0, max(abs(term.low), abs(term.high)))
    return term.decimals if term.type == "real" else None


def _folded(left: Expression, right: Expression, apply: Callable[..., Any]) -> Expression | None:
    """Fold two constants exactly, rounded once; None where folding does not apply."""
    if left.constant is None or right.constant is None or left.type == right.type == "integer":
        return None  # integers are exact already
    return _constant(apply(left.constant, right.constant))


def _mapped(left: Expression, right: Expression, apply: Callable[[float, float], float]) -> tuple[Any, ...] | None:
    """Return all values of a listed integer combined with a constant: FLOOR(age / 10) * 10 is one of 0, 10, … 100."""
    for one, other, swap in ((left, right, False), (right, left, True)):
        if other.low is not None and other.low == other.high and one.low != one.high:
            known = [value for value in one.domain() or () if value is not None][: _MOST_MAPPED + 1]
            if known and len(known) <= _MOST_MAPPED:
                constant = int(other.low)
                return tuple(dict.fromkeys(int(apply(constant, x) if swap else apply(x, constant)) for x in known))
    return None


def _hull(
    left: Expression, right: Expression, corner: Callable[[float, float], float]
) -> tuple[float | None, float | None]:
    if left.low is None or left.high is None or right.low is None or right.high is None:
        return None, None
    corners = [corner(a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
    return min(corners), max(corners)


def _divide(node: exp.Div, scope: Scope) -> Expression:
    left, right = _number(node.this, scope), _number(node.expression, scope)
    if left.constant is not None and right.constant:
        folded = _constant(left.constant / right.constant)
        if folded is not None:
            return folded
    # Division by (nearly) zero gives NULL: an error, or an infinity that is an error in another engine, would leak.
    guard = exp.LT(this=exp.Abs(this=_double(right)), expression=literal(_SMALLEST))
    underflows = _most(right) > 0 and _least(left) / _most(right) == 0
    above, below = _limited(left, underflows), _limited(right)
    low, high = None, None
    if below.low is not None and below.high is not None and (below.low >= _SMALLEST or below.high <= -_SMALLEST):
        low, high = _hull(above, below, lambda a, b: a / b)
    quotient = exp.Div(this=_wrap(above.sql), expression=_wrap(below.sql), typed=False, safe=False)
    if low is None or not right.sure:
        sql: exp.Expression = exp.Case(ifs=[exp.If(this=guard, true=exp.Null())], default=quotient)
    else:
        sql = exp.Paren(this=quotient)
    nullable = left.nullable or right.nullable or low is None
    digits = None
    if right.constant:  # a tenth of a decimal is a decimal, a third is not
        digits = _combined(exp.Mul, left, replace(right, constant=1 / right.constant))
    return Expression(sql, "real", low, high, nullable=nullable, most=_most(left) / _SMALLEST, decimals=digits)


def _modulo(node: exp.Mod, scope: Scope) -> Expression:
    left, right = _number(node.this, scope), _number(node.expression, scope)
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
        exp.Paren(this=exp.Mod(this=_wrap(left.sql), expression=right.sql)),
        "integer",
        low,
        right.low - 1,
        nullable=left.nullable or right.nullable,
    )


def _negate(node: exp.Neg, scope: Scope) -> Expression:
    inner = _number(node.this, scope)
    low, high = (None if end is None else -end for end in (inner.high, inner.low))
    return Expression(
        exp.Paren(this=exp.Neg(this=_wrap(inner.sql))),
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


def _monotone(
    make: type[exp.Expression], apply: Callable[[float], float], kind: str | None = None
) -> Callable[..., Expression]:
    """Compile a non-decreasing function of one number."""

    def rule(node: exp.Expression, scope: Scope) -> Expression:
        inner = _number(node.this, scope)
        low, high = (None if end is None else apply(end) for end in (inner.low, inner.high))
        if inner.type == "integer" and kind == "integer":
            return inner
        sql: exp.Expression = make(this=_double(inner))
        # Both ends: an end that is not public may be 1e308, and the engine's error would leak it.
        whole = kind == "integer" and low is not None and high is not None and max(abs(low), abs(high)) < _INT64
        if whole and inner.sure:
            sql = _as_long(sql)
        elif whole:  # the cast must not fail whatever the computed limits, and integers rely on them from here on
            sql = _as_long(make(this=_clipped(inner)))
        else:  # in Spark FLOOR and CEIL are 64-bit integers, and an error beyond
            small = exp.LT(this=exp.Abs(this=_double(inner)), expression=literal(_EXACT))
            sql = exp.Case(ifs=[exp.If(this=small, true=as_double(sql))], default=_double(inner))
        return Expression(sql, "integer" if whole else "real", low, high, nullable=inner.nullable)

    return rule


def _absolute(node: exp.Abs, scope: Scope) -> Expression:
    inner = _number(node.this, scope)
    low = high = None
    if inner.low is not None and inner.high is not None:
        high = max(abs(inner.low), abs(inner.high))
        low = 0 if inner.low <= 0 <= inner.high else min(abs(inner.low), abs(inner.high))
    return Expression(
        exp.Abs(this=inner.sql),
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
    inner = _number(node.this, scope)
    sql = exp.Sqrt(this=_at_least(inner, 0.0))
    low, high = (None if end is None else math.sqrt(max(end, 0)) for end in (inner.low, inner.high))
    return Expression(sql, "real", low or 0.0, high, nullable=inner.nullable)


def _logarithm(node: exp.Ln, scope: Scope) -> Expression:
    inner = _number(node.this, scope)
    smallest = max(float(inner.low or 0.0), _SMALLEST)
    sql = exp.Ln(this=_at_least(inner, smallest))
    # Engines' logarithms differ in the last digit.
    low = math.log(smallest) - 1e-12 * (1 + abs(math.log(smallest)))
    high = None
    if inner.high is not None:
        top = math.log(max(float(inner.high), smallest))
        high = top + 1e-12 * (1 + abs(top))
    return Expression(sql, "real", low, high, nullable=inner.nullable)


def _round(node: exp.Round, scope: Scope) -> Expression:
    if node.args.get("decimals") is not None:
        raise QueryRefused("ROUND takes one number here. Round to a step with FLOOR(x / 10) * 10.")
    return _monotone(exp.Floor, math.floor, "integer")(
        exp.Floor(this=exp.Add(this=node.this.copy(), expression=exp.Literal.number("0.5"))), scope
    )


def _extreme(make: Callable[..., exp.Expression], choose: Callable[..., float]) -> Callable[..., Expression]:
    def rule(node: exp.Expression, scope: Scope) -> Expression:
        parts = [_number(one, scope) for one in (node.this, *node.expressions)]
        whole = all(part.type == "integer" for part in parts)
        sqls = [part.sql if whole else _double(part) for part in parts]
        lows, highs = [part.low for part in parts], [part.high for part in parts]
        least = choose is min
        low = (None if None in lows else min(lows)) if least else _known(lows, max)  # type: ignore[type-var]
        high = _known(highs, min) if least else (None if None in highs else max(highs))  # type: ignore[type-var]
        # Engines differ on NULL among the arguments: here the result is always NULL.
        nullable = any(part.nullable for part in parts)
        sql: exp.Expression = make(*sqls)
        if nullable:
            missing = exp.or_(
                *(exp.Is(this=_wrap(part.sql.copy()), expression=exp.Null()) for part in parts if part.nullable)
            )
            sql = exp.Case(ifs=[exp.If(this=missing, true=exp.Null())], default=sql)
        digits = None if whole else Decimals.common([_decimals(part) for part in parts])
        return Expression(
            sql,
            "integer" if whole else "real",
            low,
            high,
            nullable=nullable,
            most=max(map(_farthest, parts)),
            decimals=digits,
            folded=max(part.folded for part in parts),
        )

    return rule


def _known(ends: list[float | None], choose: Callable[..., float]) -> float | None:
    known = [end for end in ends if end is not None]
    return choose(known) if known else None


# Logic


def _compare(make: type[exp.Expression]) -> Callable[..., Expression]:
    def rule(node: exp.Binary, scope: Scope) -> Expression:
        left, right, flipped = _sides(node, scope)
        compare = _FLIPPED[make] if flipped else make
        sql = exp.Paren(this=compare(this=_wrap(left.sql), expression=_wrap(right.sql)))
        return Expression(sql, "boolean", nullable=left.nullable or right.nullable)

    return rule


def _sides(node: exp.Binary, scope: Scope) -> tuple[Expression, Expression, bool]:
    """Return both sides of a comparison as the engine compares them, and whether its direction changed."""
    first, second = compile_term(node.this, scope), compile_term(node.expression, scope)
    if isinstance(node, exp.EQ | exp.NEQ):
        _refuse_unlisted(node.this, first, [node.expression], scope)
        _refuse_unlisted(node.expression, second, [node.this], scope)
    flipped = False
    if second.constant is not None and first.constant is None:
        first, (second,), flipped = _isolated(node.this, first, [second], scope)
    elif first.constant is not None and second.constant is None:
        second, (first,), flipped = _isolated(node.expression, second, [first], scope)
    return *compared(first, second), flipped


def equated(node: exp.EQ, scope: Scope) -> tuple[Expression, Expression]:
    """Return both sides of an equality as the engine compares them. Rows are equal exactly where these values are.

    Any count, numbering or removal of rows by an equality must use these values. The written sides may differ where
    these do not: 0.4 - 0.3 and 0.1 are one decimal and two doubles.
    """
    left, right, _ = _sides(node, scope)
    return left, right


def compared(left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """Return two terms as every comparison compares them: as decimals if both are, else in one type."""
    steps = _in_steps([left, right])
    return comparable(left, right) if steps is None else (steps[0], steps[1])


def told_apart(term: Expression) -> exp.Expression:
    """Return a term in which equal values are identical to the last bit, for DISTINCT and PARTITION BY.

    A decimal computed in doubles is rounded to the nearest double; zero has no sign.
    """
    digits = _decimals(term)
    sql = term.sql
    if term.type == "real" and digits is not None and not digits.nearest:
        # An integer below 2^42 divided by a power of ten up to 10^15: both are exact, so the quotient is rounded once.
        whole = _steps(term, digits.scale).sql
        sql = exp.Paren(
            this=exp.Div(this=_wrap(whole), expression=literal(10.0**digits.scale), typed=False, safe=False)
        )
    return canonical(sql, term.type)


def _in_steps(terms: Sequence[Expression]) -> list[Expression] | None:
    """Return decimals as multiples of their last digit: a + b = 0.3 holds for 0.1 and 0.2.

    Return None where comparing their doubles is as good, or where their digits are not known.
    """
    digits = [_decimals(term) for term in terms]
    common = Decimals.common(digits)
    if common is None or all(one is not None and one.nearest for one in digits):
        return None
    return [_steps(term, common.scale) for term in terms]


def _steps(term: Expression, scale: int) -> Expression:
    if term.constant is not None:
        return Expression(literal(float(term.constant * 10**scale)), "real", nullable=False)
    scaled = exp.Mul(this=_wrap(_double(term)), expression=literal(10.0**scale))
    whole = exp.Floor(this=exp.Add(this=scaled, expression=literal(0.5)))
    return Expression(as_double(whole), "real", nullable=term.nullable)


def _refuse_unlisted(column: exp.Expression, term: Expression, written: Sequence[exp.Expression], scope: Scope) -> None:
    """Refuse comparing a column with a constant that is none of its categories: a charge for no information."""
    if not term.listed or term.values is None:
        return
    known = set(term.values)
    for node in written:
        value = _written_value(node, term.type, scope)
        if value is not None and value not in known:
            hint = _nearest(str(value), term.values)
            raise QueryRefused(f"{_text(column)} is never {_text(node)}: the schema lists its categories. {hint}")


def _written_value(node: exp.Expression, kind: str, scope: Scope) -> Any:
    """Return the value of a constant of this type; None for anything else."""
    plain = node.unnest()
    if kind == "text":
        return plain.this if isinstance(plain, exp.Literal) and plain.is_string else None
    return None if node.find(exp.Column) else compile_term(node, scope).constant


def _nearest(word: str, values: Sequence[Any]) -> str:
    """Return the public values that a word may stand for."""
    folded = {str(one).lower(): one for one in values[:_MOST_MAPPED]}
    near = [folded[one] for one in get_close_matches(word.lower(), folded, n=3)]
    if near:
        return f"Did you mean {' or '.join(map(repr, near))}?"
    more = f" and {len(values) - _MOST_NAMED:,} more" if len(values) > _MOST_NAMED else ""
    return f"They are {', '.join(map(repr, values[:_MOST_NAMED]))}{more}."


_FLIPPED: Mapping[type[exp.Expression], type[exp.Expression]] = {
    exp.EQ: exp.EQ, exp.NEQ: exp.NEQ, exp.GT: exp.LT, exp.LT: exp.GT, exp.GTE: exp.LTE, exp.LTE: exp.GTE,
}  # fmt: skip


def _isolated(
    node: exp.Expression, term: Expression, others: list[Expression], scope: Scope
) -> tuple[Expression, list[Expression], bool]:
    """Move constants added to a real number to the constants it is compared with, exactly.

    price + 0.1 = 0.3 holds for a price of 0.2, but not for its double plus that of 0.1. Return the compared expression,
    the constants, and whether the sign changed. Decimals of up to 15 digits are then compared as written.
    """
    if term.type != "real":
        return term, others, False
    inner, sign, offset = _without_constants(node, scope)
    moved = [_constant(sign * (one.constant - offset)) for one in others if one.constant is not None]
    if not offset or len(moved) < len(others) or None in moved:
        return term, others, False
    return _as_real(_number(inner, scope)), [one for one in moved if one is not None], sign < 0


def _without_constants(written: exp.Expression, scope: Scope) -> tuple[Any, int, Fraction]:
    """Return an expression as sign · inner + offset, with all added constants in the offset."""
    node = written.unnest()
    if isinstance(node, exp.Neg):
        inner, sign, offset = _without_constants(node.this, scope)
        return inner, -sign, -offset
    if isinstance(node, exp.Add | exp.Sub):
        sides = (node.this, node.expression)
        left, right = (None if one.find(exp.Column) else compile_term(one, scope).constant for one in sides)
        step = 1 if isinstance(node, exp.Add) else -1
        if right is not None and left is None:
            inner, sign, offset = _without_constants(node.this, scope)
            return inner, sign, offset + step * right
        if left is not None and right is None:
            inner, sign, offset = _without_constants(node.expression, scope)
            return inner, step * sign, left + step * offset
    return node, 1, Fraction(0)


def _connect(make: type[exp.Expression]) -> Callable[..., Expression]:
    def rule(node: exp.Binary, scope: Scope) -> Expression:
        left, right = _truth(node.this, scope), _truth(node.expression, scope)
        return Expression(
            exp.Paren(this=make(this=left.sql, expression=right.sql)),
            "boolean",
            nullable=left.nullable or right.nullable,
        )

    return rule


def _not(node: exp.Not, scope: Scope) -> Expression:
    inner = _truth(node.this, scope)
    return Expression(exp.Paren(this=exp.Not(this=_wrap(inner.sql))), "boolean", nullable=inner.nullable)


def _is(node: exp.Is, scope: Scope) -> Expression:
    if not isinstance(node.expression, exp.Null):
        raise QueryRefused("IS works with NULL only: x IS NULL, x IS NOT NULL.")
    inner = compile_term(node.this, scope)
    return Expression(exp.Paren(this=exp.Is(this=_wrap(inner.sql), expression=exp.Null())), "boolean", nullable=False)


def _between(node: exp.Between, scope: Scope) -> Expression:
    both = exp.And(
        this=exp.GTE(this=node.this.copy(), expression=node.args["low"].copy()),
        expression=exp.LTE(this=node.this.copy(), expression=node.args["high"].copy()),
    )
    return compile_term(both, scope)


def _in(node: exp.In, scope: Scope) -> Expression:
    if node.args.get("query") is not None or not node.expressions:
        raise QueryRefused("IN works with a list of constants. For a table of values use a JOIN.")
    left, listed = compile_term(node.this, scope), [compile_term(one, scope) for one in node.expressions]
    _refuse_unlisted(node.this, left, node.expressions, scope)
    left, listed, _ = _isolated(node.this, left, listed, scope)
    steps = _in_steps([left, *listed])
    if steps is not None:
        left, *listed = steps
    for one in listed:  # all in the type that fits the widest of them
        left = comparable(left, one)[0]
    sides = [comparable(left, one)[1] for one in listed]
    return Expression(
        exp.Paren(this=exp.In(this=_wrap(left.sql), expressions=[_written(side) for side in sides])),
        "boolean",
        nullable=left.nullable or any(side.nullable for side in sides),
    )


def _written(term: Expression) -> exp.Expression:
    """Return a term for a comparison list; an integer constant goes without its cast, which would lengthen the list."""
    return literal(int(term.constant)) if term.type == "integer" and term.constant is not None else term.sql


def _like(node: exp.Like, scope: Scope) -> Expression:
    left = _text_term(node.this, scope)
    if not isinstance(node.expression, exp.Literal) or not node.expression.is_string:
        raise QueryRefused("LIKE needs a constant pattern, such as name LIKE 'A%'.")
    if "\\" in node.expression.this:
        raise QueryRefused("LIKE patterns here have no escapes: leave out the backslash.")
    sql: exp.Expression = exp.Paren(this=exp.Like(this=left.sql, expression=node.expression.copy()))
    if node.args.get("negate"):  # NOT LIKE
        sql = exp.Paren(this=exp.Not(this=sql))
    return Expression(sql, "boolean", nullable=left.nullable)


def _case(node: exp.Case, scope: Scope) -> Expression:
    subject = node.this
    branches: list[tuple[exp.Expression, Expression]] = []
    for one in node.args["ifs"]:
        condition = exp.EQ(this=subject.copy(), expression=one.this.copy()) if subject else one.this
        branches.append((_truth(condition, scope).sql, compile_term(one.args["true"], scope)))
    default = node.args.get("default")
    other = None if default is None or isinstance(default.unnest(), exp.Null) else compile_term(default, scope)
    return _merge(branches, other)


def _if(node: exp.If, scope: Scope) -> Expression:
    return _case(exp.Case(ifs=[exp.If(this=node.this, true=node.args["true"])], default=node.args.get("false")), scope)


def _merge(
    branches: list[tuple[exp.Expression, Expression]], other: Expression | None, *, nullable: bool | None = None
) -> Expression:
    """Compile CASE: the results of all branches and of ELSE. A caller that knows better passes `nullable`."""
    every = [*(term for _, term in branches), *([] if other is None else [other])]
    results = [term for term in every if not _is_missing(term)]
    if not results:
        raise QueryRefused("CASE needs at least one result that is not NULL.")
    if nullable is None:
        nullable = other is None or any(term.nullable for term in every)
    kind = _common({term.type for term in results})

    def result(term: Expression | None) -> exp.Expression:
        missing = term is None or _is_missing(term)
        return exp.Null() if missing or term is None else _double(term) if kind == "real" else term.sql

    ifs = [exp.If(this=when, true=result(then)) for when, then in branches]
    return one_of(exp.Case(ifs=ifs, default=result(other)), kind, results, nullable=nullable)


def one_of(sql: exp.Expression, kind: str, parts: Sequence[Expression], *, nullable: bool) -> Expression:
    """Return a value that is one of several, or NULL. Each public fact holds for all of them."""
    terms = [_as_real(part) for part in parts] if kind == "real" else list(parts)
    lows = [term.low for term in terms if term.low is not None]
    highs = [term.high for term in terms if term.high is not None]
    listed = [term.values for term in terms if term.values is not None]
    spans = [term.moments for term in terms if term.moments is not None]
    number = kind in NUMBERS
    return Expression(
        sql,
        kind,
        min(lows) if len(lows) == len(terms) else None,
        max(highs) if len(highs) == len(terms) else None,
        tuple(dict.fromkeys(value for values in listed for value in values)) if len(listed) == len(terms) else None,
        nullable=nullable,
        most=max(map(_farthest, terms)) if number else math.inf,
        decimals=Decimals.common([_decimals(term) for term in terms]) if kind == "real" else None,
        folded=max(term.folded for term in terms),
        moments=(min(a for a, _ in spans), max(b for _, b in spans)) if len(spans) == len(terms) else None,
    )


def _coalesce(node: exp.Coalesce, scope: Scope) -> Expression:
    parts = [compile_term(one, scope) for one in (node.this, *node.expressions)]
    present: list[tuple[exp.Expression, Expression]] = [
        (exp.Not(this=exp.Paren(this=exp.Is(this=_wrap(part.sql.copy()), expression=exp.Null()))), part)
        for part in parts[:-1]
    ]
    return _merge(present, parts[-1], nullable=all(part.nullable for part in parts))


def _nullif(node: exp.Nullif, scope: Scope) -> Expression:
    left, right = comparable(compile_term(node.this, scope), compile_term(node.expression, scope))
    return Expression(
        exp.Nullif(this=left.sql, expression=right.sql),
        left.type,
        left.low,
        left.high,
        left.values,
        nullable=True,
        most=left.most,
        clipped=left.clipped,
        decimals=_decimals(left),
        folded=left.folded,
        moments=left.moments,
    )


# Types, text, dates


def _cast(node: exp.Cast, scope: Scope) -> Expression:
    inner, wanted = compile_term(node.this, scope), str(getattr(node.to.this, "value", "")).upper()
    if wanted in ("DOUBLE", "FLOAT", "DECIMAL", "REAL") and inner.type in (*NUMBERS, "boolean"):
        return replace(_as_real(_bool_number(inner)), constant=None, decimals=None)
    if wanted in ("INT", "BIGINT", "SMALLINT", "TINYINT") and inner.type in (*NUMBERS, "boolean"):
        if inner.type == "real":
            return _round(exp.Round(this=node.this), scope)
        return _bool_number(inner)
    if wanted in ("TEXT", "VARCHAR") and inner.type == "text":
        return inner
    if wanted == "DATE" and isinstance(node.this, exp.Literal) and node.this.is_string:
        try:
            day = date.fromisoformat(node.this.this)
        except ValueError:
            raise QueryRefused("a date constant is written DATE '2026-01-31'.") from None
        return Expression(literal(day), "date", values=(day,), nullable=False)
    raise QueryRefused(
        f"{_text(node)} is not offered. Casts work from numbers to INTEGER or DOUBLE, and DATE '2026-01-31'."
    )


def _letters(old: str, new: str) -> Callable[..., Expression]:
    """Compile LOWER and UPPER for A to Z. Engines disagree about all other letters, and PostgreSQL with itself."""

    def rule(node: exp.Expression, scope: Scope) -> Expression:
        inner, table = _text_term(node.this, scope), str.maketrans(old, new)
        values = (
            None if inner.values is None else tuple(dict.fromkeys(value.translate(table) for value in inner.values))
        )
        sql = exp.Anonymous(this="TRANSLATE", expressions=[inner.sql, literal(old), literal(new)])
        return Expression(sql, "text", values=values, nullable=inner.nullable)

    return rule


_LONGEST_TEXT = 1_000_000_000


def _substring(node: exp.Substring, scope: Scope) -> Expression:
    inner = _text_term(node.this, scope)
    ends = [node.args.get("start"), node.args.get("length")]
    if not all(isinstance(end, exp.Literal) and end.this.isdigit() and int(end.this) > 0 for end in ends):
        raise QueryRefused("SUBSTRING needs a constant start and length, such as SUBSTRING(code, 1, 3).")
    start, length = (int(end.this) for end in ends)  # type: ignore[union-attr]
    if start + length > _LONGEST_TEXT:  # an engine fails beyond its limits, and only for rows that reach them
        raise QueryRefused(f"SUBSTRING goes up to character {_LONGEST_TEXT:,}.")
    values = None
    if inner.values is not None:
        values = tuple(dict.fromkeys(value[start - 1 : start - 1 + length] for value in inner.values))
    sql = exp.Substring(this=inner.sql, start=exp.Literal.number(start), length=exp.Literal.number(length))
    return Expression(sql, "text", values=values, nullable=inner.nullable)


def _length(node: exp.Length, scope: Scope) -> Expression:
    inner = _text_term(node.this, scope)
    high = max(map(len, inner.values), default=0) if inner.values is not None else None
    return Expression(
        exp.Cast(this=exp.Length(this=inner.sql), to=exp.DataType.build("BIGINT")),
        "integer",
        0,
        high,
        nullable=inner.nullable,
    )


_PARTS = {"YEAR": (1, 9999), "QUARTER": (1, 4), "MONTH": (1, 12), "DAY": (1, 31), "HOUR": (0, 23)}


def _extract(node: exp.Expression, scope: Scope) -> Expression:
    part = node.name.upper() if isinstance(node, exp.Extract) else type(node).__name__.upper()
    inner = compile_term(node.expression if isinstance(node, exp.Extract) else node.this, scope)
    if inner.type not in ("date", "timestamp") or part not in _PARTS or (part == "HOUR" and inner.type == "date"):
        raise QueryRefused(
            f"{_text(node)} is not offered. EXTRACT gives YEAR, QUARTER, MONTH or DAY of a date or timestamp, "
            "and HOUR of a timestamp."
        )
    low, high = _PARTS[part]
    if part == "YEAR" and inner.low is not None and inner.high is not None:
        low, high = (date.fromordinal(int(end)).year for end in (inner.low, inner.high))
    sql = exp.Cast(this=exp.Extract(this=exp.Var(this=part), expression=inner.sql), to=exp.DataType.build("BIGINT"))
    return Expression(sql, "integer", low, high, nullable=inner.nullable)


def _bucket(node: exp.WidthBucket, scope: Scope) -> Expression:
    """Compile WIDTH_BUCKET(x, low, high, n): 1 … n inside, 0 below, n + 1 above."""
    inner = _number(node.this, scope)
    ends = [compile_term(node.args[name], scope) for name in ("min_value", "max_value", "num_buckets")]
    if any(end.low is None or end.low != end.high or end.nullable for end in ends):
        raise QueryRefused("WIDTH_BUCKET needs constants: WIDTH_BUCKET(age, 0, 100, 20).")
    low, high, n = (float(end.low or 0) for end in ends)
    if high <= low or n < 1 or n != int(n) or n > _MOST_VALUES:
        raise QueryRefused("WIDTH_BUCKET needs low < high and a whole number of buckets.")
    real, width = _as_real(inner), high - low
    below, beyond = real.low is None or real.low < low, real.high is None or real.high >= high

    rounds = width > n  # the quotient may underflow, and only then

    def place(x: exp.Expression) -> exp.Expression:
        # Multiply by n, then divide: a number on the edge of a bucket stays on it.
        above: exp.Expression = exp.Paren(this=exp.Sub(this=_wrap(x), expression=literal(low)))
        above = rounded_near_zero(above) if rounds else above
        return exp.Div(
            this=exp.Mul(this=above, expression=literal(n)), expression=literal(width), typed=False, safe=False
        )

    if real.sure and not below and not beyond and real.high is not None:
        top = real.high - low
        if (near_zero(top) if rounds else top) * n / width < n:  # the engine's own rounding: no comparison is needed
            inside = exp.Add(this=_as_long(exp.Floor(this=place(real.sql))), expression=_whole(1))
            return Expression(exp.Paren(this=inside), "integer", 1, n, nullable=inner.nullable)
    # Clipped first, so that no quotient overflows. At most n - 1 afterwards: a quotient may be rounded up to n.
    at = place(least_of(greatest_of(real.sql.copy(), literal(low)), literal(high)))
    at = exp.Floor(this=least_of(at, literal(n - 1)))
    sql: exp.Expression = exp.Add(this=_as_long(at), expression=_whole(1))
    # LEAST and GREATEST skip NULL.
    ifs = [exp.If(this=exp.Is(this=_wrap(real.sql), expression=exp.Null()), true=exp.Null())] if inner.nullable else []
    if below:
        ifs.append(exp.If(this=exp.LT(this=_wrap(real.sql), expression=literal(low)), true=_whole(0)))
    if beyond:
        ifs.append(exp.If(this=exp.GTE(this=_wrap(real.sql), expression=literal(high)), true=_whole(int(n) + 1)))
    if ifs:
        sql = exp.Case(ifs=ifs, default=sql)
    first, last = 0 if below else 1, n + 1 if beyond else n
    return Expression(exp.Paren(this=sql), "integer", first, last, nullable=inner.nullable)


# Shared by the rules


def _number(node: exp.Expression, scope: Scope) -> Expression:
    term = _bool_number(compile_term(node, scope))
    if term.type not in NUMBERS:
        hint = " Take a part of it: EXTRACT(MONTH FROM x)." if term.type in ("date", "timestamp") else ""
        raise QueryRefused(f"{_text(node)} is {term.type}, and a number is needed here.{hint}")
    return term


def _bool_number(term: Expression) -> Expression:
    if term.type != "boolean":
        return term
    sql = exp.Case(
        ifs=[
            exp.If(this=term.sql, true=_whole(1)),
            exp.If(this=exp.Not(this=_wrap(term.sql.copy())), true=_whole(0)),
        ],
        default=exp.Null(),
    )
    return Expression(sql, "integer", 0, 1, nullable=term.nullable)


def _truth(node: exp.Expression, scope: Scope) -> Expression:
    term = compile_term(node, scope)
    if term.type != "boolean":
        raise QueryRefused(f"{_text(node)} is {term.type}, and a condition is needed here. Compare it with something.")
    return term


def _text_term(node: exp.Expression, scope: Scope) -> Expression:
    term = compile_term(node, scope)
    if term.type != "text":
        raise QueryRefused(f"{_text(node)} is {term.type}, and text is needed here.")
    return term


def comparable(left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """Return both sides in one type. A text constant beside a date is read as a date."""
    if left.type in ("date", "timestamp") and right.type == "text":
        return left, _as_date(right)
    if right.type in ("date", "timestamp") and left.type == "text":
        return _as_date(left), right
    kinds = {left.type, right.type}
    if kinds == {"integer", "real"}:
        return _as_real(left), _as_real(right)
    if len(kinds) > 1 and kinds != {"date", "timestamp"}:
        hint = "Write smoker or NOT smoker." if "boolean" in kinds else "Check the column types in the schema."
        raise QueryRefused(f"{left.type} and {right.type} cannot be compared. {hint}")
    return left, right


def _as_date(term: Expression) -> Expression:
    written = term.sql.unnest()
    if not isinstance(written, exp.Literal) or not written.is_string:
        raise QueryRefused("text is not compared with a date, only a constant like '2026-01-31' is.")
    try:
        day = date.fromisoformat(written.this)
    except ValueError:
        raise QueryRefused("a date is compared with a constant like '2026-01-31'.") from None
    return Expression(literal(day), "date", values=(day,), nullable=False)


def _as_real(term: Expression) -> Expression:
    if term.type == "real":
        return term
    return Expression(
        _double(term),
        "real",
        term.low,
        term.high,
        nullable=term.nullable,
        most=_farthest(term),
        clipped=term.clipped,
        constant=term.constant,
        decimals=_decimals(term),
    )


def _double(term: Expression) -> exp.Expression:
    return term.sql.copy() if term.type == "real" else as_double(term.sql)


def _limited(term: Expression, underflows: bool = False) -> Expression:
    """Return a double that no engine fails to add, multiply and, with `underflows`, divide."""
    real = _as_real(term)
    sql, low, high = real.sql.copy(), real.low, real.high
    if _farthest(term) > _TOO_LARGE:
        ends = [(exp.LT, literal(-_LARGEST)), (exp.GT, literal(_LARGEST))]
        beyond = [exp.If(this=compare(this=_wrap(sql), expression=end), true=end.copy()) for compare, end in ends]
        sql = exp.Case(ifs=beyond, default=sql)
    if underflows and _least(term) < _SMALLEST:
        sql = rounded_near_zero(sql)
        low, high = (None if end is None else near_zero(end) for end in (low, high))
    return Expression(sql, "real", low, high, nullable=real.nullable, most=_most(term))


def _clipped(term: Expression) -> exp.Expression:
    """Return a double clipped to its public limits. NULL stays NULL."""
    if term.low is None or term.high is None:
        raise AssertionError("only what has limits is clipped to them")
    x, low, high = _double(term), literal(float(term.low)), literal(float(term.high))
    below, beyond = exp.LT(this=_wrap(x), expression=low), exp.GT(this=_wrap(x), expression=high)
    ifs = [exp.If(this=below, true=low.copy()), exp.If(this=beyond, true=high.copy())]
    return exp.Case(ifs=ifs, default=x)


def _least(term: Expression) -> float:
    """Return the smallest absolute value of a number, zero aside."""
    if term.low is not None and term.high is not None and (term.low > 0 or term.high < 0):
        return min(abs(term.low), abs(term.high))
    return 1.0 if term.type == "integer" else math.ulp(0.0)


def _most(term: Expression) -> float:
    """Return the largest absolute value of a number, once it is limited."""
    return _LARGEST if _farthest(term) > _TOO_LARGE else _farthest(term)


def _farthest(term: Expression) -> float:
    if term.low is not None and term.high is not None:
        return max(abs(term.low), abs(term.high))
    return min(term.most, 2.0**63) if term.type == "integer" else term.most


def _at_least(term: Expression, least: float) -> exp.Expression:
    """Return a double raised to the least where it is below. NULL stays NULL."""
    if term.sure and term.low is not None and term.low >= least:
        return _double(term)
    below = exp.LT(this=_wrap(_double(term)), expression=literal(least))
    return exp.Case(ifs=[exp.If(this=below, true=literal(least))], default=_double(term))


def _as_long(sql: exp.Expression) -> exp.Expression:
    return exp.Cast(this=sql.copy(), to=exp.DataType.build("BIGINT"))


def _whole(value: int) -> exp.Expression:
    """Return an integer constant, cast: engines take one without a cast for 32 bits."""
    return _as_long(literal(value))


def _common(kinds: set[str]) -> str:
    if kinds == {"integer", "real"}:
        return "real"
    if len(kinds) != 1:
        raise QueryRefused(f"the branches have different types ({', '.join(sorted(kinds))}). Make them alike.")
    return kinds.pop()


def _wrap(sql: exp.Expression) -> exp.Expression:
    atomic = exp.Column | exp.Literal | exp.Paren | exp.Func | exp.Boolean | exp.Null
    return sql.copy() if isinstance(sql, atomic) else exp.Paren(this=sql.copy())


def _text(node: exp.Expression) -> str:
    return shown(node)[:60]


def shown(node: exp.Expression) -> str:
    """Return the analyst's text for a message. sqlglot can parse some trees that it cannot write."""
    try:
        return node.sql(dialect="duckdb")
    except Exception:
        return type(node).__name__.upper()


def _unknown(node: exp.Expression) -> str:
    if isinstance(node, exp.AggFunc):
        return f"{_text(node)} stands where a row's value is needed. Aggregate in the outermost SELECT, once."
    if isinstance(node, exp.Window):
        return "window functions look at other people's rows. Use GROUP BY instead."
    if isinstance(node, exp.Subquery | exp.Select | exp.Exists):
        return (
            "a subquery stands in FROM or WITH here, not inside an expression. Use a JOIN; or ask for its number "
            "first, and write that number here."
        )
    if isinstance(node, exp.Anonymous):
        return f"the function {node.name} is not offered. docs/guides/ask-a-question.md lists those that are."
    instead = _INSTEAD.get(type(node), "docs/guides/ask-a-question.md lists what is.")
    return f"{_text(node)} is not offered ({type(node).__name__}). {instead}"


_INSTEAD: Mapping[type[exp.Expression], str] = {
    exp.ILike: "Write LOWER(x) LIKE 'a%'.",
    exp.RegexpLike: "Write x LIKE 'a%'.",
    exp.SimilarTo: "Write x LIKE 'a%'.",
    exp.DPipe: "Compare or group by the parts one by one.",
    exp.Concat: "Compare or group by the parts one by one.",
    exp.NullSafeEQ: "Write x = y OR (x IS NULL AND y IS NULL).",
    exp.NullSafeNEQ: "Write x <> y OR x IS NULL.",
    exp.IntDiv: "Write FLOOR(x / y).",
    exp.Pow: "Write x * x.",
    exp.TryCast: "Write CAST(x AS DOUBLE); text is read as a number if the schema says that it is one.",
    exp.TimestampTrunc: "Write EXTRACT(MONTH FROM x).",
    exp.DateTrunc: "Write EXTRACT(MONTH FROM x).",
    exp.CurrentDate: "Write the day, such as DATE '2026-01-31'.",
    exp.CurrentTimestamp: "Write the day, such as DATE '2026-01-31'.",
    exp.Rand: "A question reads all rows; the noise is added afterwards.",
}


_RULES: Mapping[type[exp.Expression], Callable[[Any, Scope], Expression]] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Boolean: _boolean,
    exp.Null: _null,
    exp.Paren: _paren,
    exp.Add: _binary(exp.Add, lambda a, b: a + b),
    exp.Sub: _binary(exp.Sub, lambda a, b: a - b),
    exp.Mul: _binary(exp.Mul, lambda a, b: a * b),
    exp.Div: _divide,
    exp.Mod: _modulo,
    exp.Neg: _negate,
    exp.Abs: _absolute,
    exp.Floor: _monotone(exp.Floor, math.floor, "integer"),
    exp.Ceil: _monotone(exp.Ceil, math.ceil, "integer"),
    exp.Round: _round,
    exp.Sqrt: _root,
    exp.Ln: _logarithm,
    exp.Least: _extreme(least_of, min),
    exp.Greatest: _extreme(greatest_of, max),
    exp.EQ: _compare(exp.EQ),
    exp.NEQ: _compare(exp.NEQ),
    exp.GT: _compare(exp.GT),
    exp.GTE: _compare(exp.GTE),
    exp.LT: _compare(exp.LT),
    exp.LTE: _compare(exp.LTE),
    exp.And: _connect(exp.And),
    exp.Or: _connect(exp.Or),
    exp.Not: _not,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _like,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.Cast: _cast,
    exp.Lower: _letters(ascii_uppercase, ascii_lowercase),
    exp.Upper: _letters(ascii_lowercase, ascii_uppercase),
    exp.Substring: _substring,
    exp.Length: _length,
    exp.Extract: _extract,
    exp.Year: _extract,
    exp.Month: _extract,
    exp.Day: _extract,
    exp.WidthBucket: _bucket,
}

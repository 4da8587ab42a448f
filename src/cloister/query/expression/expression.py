"""Row-wise expressions with public facts: type, interval, list of values; and the compiler of what an analyst wrote.

Anything without an entry in `RULES` is refused. The other files of this folder add their entries on import.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from sqlglot import exp

from cloister.data.dialect import literal
from cloister.privacy.errors import QueryRefused

__all__ = [
    "Decimals",
    "Expression",
    "INT64",
    "LARGEST",
    "MOST_DIGITS",
    "MOST_MAPPED",
    "MOST_VALUES",
    "NUMBERS",
    "SMALLEST",
    "Scope",
    "as_long",
    "compile_term",
    "constant_term",
    "shown",
    "text_of",
    "whole_number",
    "wrap",
    "RULES",
]

NUMBERS = ("integer", "real")
LARGEST = 1e100  # beyond this an engine might overflow
SMALLEST = 1e-100  # below this an engine might underflow
INT64 = 2**62
_MOST_NODES = 8000
MOST_VALUES = 1_000_000
MOST_MAPPED = 10_000
MOST_DIGITS = 15
_MOST_STEPS = 2.0**42


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
        fits = 0 <= scale <= MOST_DIGITS and reach * 10.0**scale <= _MOST_STEPS
        return Decimals(scale, reach, nearest) if fits else None

    @staticmethod
    def common(parts: Sequence["Decimals | None"]) -> "Decimals | None":
        """Return the digits that hold for every one of several numbers."""
        decimals = [part for part in parts if part is not None]
        if not decimals or len(decimals) < len(parts):
            return None
        scale, reach = max(part.scale for part in decimals), max(part.reach for part in decimals)
        return Decimals.of(scale, reach, nearest=all(part.nearest for part in decimals))

    @staticmethod
    def within(scale: int, low: float, high: float) -> "Decimals | None":
        """Return the digits of a column kept within bounds; the bounds must not have more digits than the column."""
        ends = [Fraction(repr(float(end))) * 10**scale for end in (low, high)] if scale <= MOST_DIGITS else []
        exact = ends and all(end.denominator == 1 for end in ends)
        return Decimals.of(scale, max(abs(low), abs(high))) if exact else None


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
            values: Sequence[Any] | None = self.values
        elif self.type == "boolean":
            values = (False, True)
        elif self.type == "integer" and self.low is not None and self.high is not None:
            wide = self.high - self.low
            values = range(math.ceil(self.low), math.floor(self.high) + 1) if wide < MOST_VALUES else None
        else:
            values = None
        if values is None:
            return None
        return (*values, None) if self.nullable else values


Scope = Callable[[exp.Column], Expression]


Rule = Callable[[Any, Scope], Expression]

RULES: dict[type[exp.Expression], Rule] = {}


def compile_term(node: exp.Expression, scope: Scope) -> Expression:
    """Compile an expression the analyst wrote, or refuse it and name an alternative."""
    rule = RULES.get(type(node))
    if rule is None:
        raise QueryRefused(_unknown(node))
    try:
        term = rule(node, scope)
    except RecursionError:
        raise QueryRefused("this expression is nested too deeply. Compute parts of it in a WITH query.") from None
    reach = max(abs(term.low or 0), abs(term.high or 0))
    if reach > LARGEST:
        raise QueryRefused(f"{text_of(node)} may become larger than 1e100. Limit it with LEAST(...) and GREATEST(...).")
    if sum(1 for _ in term.sql.walk()) > _MOST_NODES:
        raise QueryRefused(f"{text_of(node)} ... is too long for one expression. Compute parts of it in a WITH query.")
    return term


def _column(node: exp.Column, scope: Scope) -> Expression:
    return scope(node)


def _literal(node: exp.Literal, scope: Scope) -> Expression:
    if node.is_string:
        return Expression(node.copy(), "text", values=(node.this,), nullable=False)
    try:
        value: float = int(node.this) if len(node.this) < 100 else math.inf
        kind = "integer" if abs(value) < INT64 else "real"
    except ValueError:
        value, kind = float(node.this), "real"
    sql = whole_number(int(value)) if kind == "integer" else literal(float(value))
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


def constant_term(value: Fraction) -> Expression | None:
    """Return an exactly computed real value as a term; None if an engine cannot represent it."""
    near = float(value)
    if value and not SMALLEST <= abs(near) <= LARGEST:
        return None
    return Expression(literal(near), "real", near, near, nullable=False, constant=value)


def _boolean(node: exp.Boolean, scope: Scope) -> Expression:
    return Expression(node.copy(), "boolean", values=(bool(node.this),), nullable=False)


def _null(node: exp.Null, scope: Scope) -> Expression:
    # Typed: PostgreSQL takes a bare NULL for text, and then has no -NULL and no NULL + 1 in an outer query.
    return Expression(as_long(node), "integer", 0, 0)


def _paren(node: exp.Paren, scope: Scope) -> Expression:
    inner = compile_term(node.this, scope)
    return replace(inner, sql=exp.Paren(this=inner.sql), unit=False)


def as_long(sql: exp.Expression) -> exp.Expression:
    """Return the SQL cast to BIGINT."""
    return exp.Cast(this=sql.copy(), to=exp.DataType.build("BIGINT"))


def whole_number(value: int) -> exp.Expression:
    """Return an integer constant, cast: engines take one without a cast for 32 bits."""
    return as_long(literal(value))


def wrap(sql: exp.Expression) -> exp.Expression:
    """Return the SQL in brackets, unless it needs none."""
    atomic = exp.Column | exp.Literal | exp.Paren | exp.Func | exp.Boolean | exp.Null
    return sql.copy() if isinstance(sql, atomic) else exp.Paren(this=sql.copy())


def text_of(node: exp.Expression) -> str:
    """Return the beginning of the analyst's text, for a message."""
    return shown(node)[:60]


def shown(node: exp.Expression) -> str:
    """Return the analyst's text for a message. sqlglot can parse some trees that it cannot write."""
    try:
        return node.sql(dialect="duckdb")
    except Exception:
        return type(node).__name__.upper()


def _unknown(node: exp.Expression) -> str:
    if isinstance(node, exp.AggFunc):
        return f"{text_of(node)} stands where a row's value is needed. Aggregate in the outermost SELECT, once."
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
    return f"{text_of(node)} is not offered ({type(node).__name__}). {instead}"


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


RULES.update(
    {
        exp.Column: _column,
        exp.Literal: _literal,
        exp.Boolean: _boolean,
        exp.Null: _null,
        exp.Paren: _paren,
    }
)

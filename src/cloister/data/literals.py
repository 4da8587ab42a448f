"""Small pieces of SQL that every engine reads the same: constants, casts, LEAST and GREATEST."""

from datetime import date, datetime
from typing import Any

from sqlglot import exp

__all__ = ["as_double", "canonical", "greatest_of", "least_of", "literal", "near_zero", "rounded_near_zero", "verbatim"]

_TINY = 1e-84  # what is added and taken away again takes along whatever is below its own last digit


def literal(value: Any) -> exp.Expression:
    """A public value as an SQL constant, typed so that every engine reads it the same."""
    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, int):
        return exp.Literal.number(value) if value >= 0 else exp.Paren(this=exp.Neg(this=exp.Literal.number(-value)))
    if isinstance(value, float):
        number = exp.Cast(this=exp.Literal.number(repr(abs(value))), to=exp.DataType.build("DOUBLE"))
        return number if value >= 0 else exp.Paren(this=exp.Neg(this=number))
    if isinstance(value, datetime):
        return exp.Cast(this=exp.Literal.string(value.isoformat(" ")), to=exp.DataType.build("TIMESTAMPNTZ"))
    if isinstance(value, date):
        return exp.Cast(this=exp.Literal.string(value.isoformat()), to=exp.DataType.build("DATE"))
    return exp.Literal.string(str(value))


def as_double(sql: exp.Expression) -> exp.Expression:
    """An expression read as a double."""
    return exp.Cast(this=sql.copy(), to=exp.DataType.build("DOUBLE"))


def canonical(sql: exp.Expression, kind: str) -> exp.Expression:
    """An expression in which equal values are the same to the last bit: a real without its negative zero.

    Engines hold 0.0 and -0.0 for equal, and which of them stands for both depends on the order of rows.
    """
    if kind != "real":
        return sql.copy()
    return exp.Paren(this=exp.Add(this=as_double(sql), expression=literal(0.0)))


def verbatim(sql: str) -> exp.Expression:
    """SQL text as a node. Two are equal if they are so letter by letter; sqlglot compares other text without case."""
    return exp.Literal(this=sql, is_string=False)


def least_of(first: exp.Expression, *others: exp.Expression) -> exp.Expression:
    """The smallest of some expressions. Engines differ on NULL among them: keep it out with a CASE around this."""
    return exp.Least(this=first, expressions=list(others), ignore_nulls=True)


def greatest_of(first: exp.Expression, *others: exp.Expression) -> exp.Expression:
    """The largest of some expressions; of NULL see `least_of`."""
    return exp.Greatest(this=first, expressions=list(others), ignore_nulls=True)


def rounded_near_zero(sql: exp.Expression) -> exp.Expression:
    """A double in steps of about 1e-100 near zero, and above 1e-67 as it was: a factor that cannot underflow.

    PostgreSQL makes an error of a product or quotient that underflows, and an error tells that there was such a row.
    """
    tiny = literal(_TINY)
    raised = exp.Paren(this=exp.Add(this=exp.Paren(this=sql.copy()), expression=tiny))
    return exp.Paren(this=exp.Sub(this=raised, expression=tiny.copy()))


def near_zero(value: float) -> float:
    """What `rounded_near_zero` makes of a number."""
    return (value + _TINY) - _TINY

"""Casts, functions of text, and parts of dates."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from string import ascii_lowercase, ascii_uppercase

from sqlglot import exp

from cloister.data.dialect import literal
from cloister.privacy.errors import QueryRefused
from cloister.query.expression.arithmetic import round_to_whole
from cloister.query.expression.convert import as_real, bool_number, text_term
from cloister.query.expression.expression import NUMBERS, RULES, Expression, Scope, compile_term, text_of


def _cast(node: exp.Cast, scope: Scope) -> Expression:
    inner, wanted = compile_term(node.this, scope), str(getattr(node.to.this, "value", "")).upper()
    if wanted in ("DOUBLE", "FLOAT", "DECIMAL", "REAL") and inner.type in (*NUMBERS, "boolean"):
        return replace(as_real(bool_number(inner)), constant=None, decimals=None)
    if wanted in ("INT", "BIGINT", "SMALLINT", "TINYINT") and inner.type in (*NUMBERS, "boolean"):
        if inner.type == "real":
            return round_to_whole(exp.Round(this=node.this), scope)
        return bool_number(inner)
    if wanted in ("TEXT", "VARCHAR") and inner.type == "text":
        return inner
    if wanted == "DATE" and isinstance(node.this, exp.Literal) and node.this.is_string:
        try:
            day = date.fromisoformat(node.this.this)
        except ValueError:
            raise QueryRefused("a date constant is written DATE '2026-01-31'.") from None
        return Expression(literal(day), "date", values=(day,), nullable=False)
    raise QueryRefused(
        f"{text_of(node)} is not offered. Casts work from numbers to INTEGER or DOUBLE, and DATE '2026-01-31'."
    )


def _letters(old: str, new: str) -> Callable[..., Expression]:
    """Compile LOWER and UPPER for A to Z. Engines disagree about all other letters, and PostgreSQL with itself."""

    def rule(node: exp.Expression, scope: Scope) -> Expression:
        inner, table = text_term(node.this, scope), str.maketrans(old, new)
        values = (
            None if inner.values is None else tuple(dict.fromkeys(value.translate(table) for value in inner.values))
        )
        sql = exp.Anonymous(this="TRANSLATE", expressions=[inner.sql, literal(old), literal(new)])
        return Expression(sql, "text", values=values, nullable=inner.nullable)

    return rule


_LONGEST_TEXT = 1_000_000_000


def _substring(node: exp.Substring, scope: Scope) -> Expression:
    inner = text_term(node.this, scope)
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
    inner = text_term(node.this, scope)
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
            f"{text_of(node)} is not offered. EXTRACT gives YEAR, QUARTER, MONTH or DAY of a date or timestamp, "
            "and HOUR of a timestamp."
        )
    low, high = _PARTS[part]
    if part == "YEAR" and inner.low is not None and inner.high is not None:
        low, high = (date.fromordinal(int(end)).year for end in (inner.low, inner.high))
    sql = exp.Cast(this=exp.Extract(this=exp.Var(this=part), expression=inner.sql), to=exp.DataType.build("BIGINT"))
    return Expression(sql, "integer", low, high, nullable=inner.nullable)


RULES.update(
    {
        exp.Cast: _cast,
        exp.Lower: _letters(ascii_uppercase, ascii_lowercase),
        exp.Upper: _letters(ascii_lowercase, ascii_uppercase),
        exp.Substring: _substring,
        exp.Length: _length,
        exp.Extract: _extract,
        exp.Year: _extract,
        exp.Month: _extract,
        exp.Day: _extract,
    }
)

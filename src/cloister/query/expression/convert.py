"""Conversions between types: to numbers, doubles, dates and decimal steps, within limits that no engine exceeds."""

import math
from collections.abc import Sequence
from datetime import date

from sqlglot import exp

from cloister.data.dialect import as_double, canonical, literal, near_zero, rounded_near_zero
from cloister.privacy.errors import QueryRefused
from cloister.query.expression.expression import (
    LARGEST,
    MOST_DIGITS,
    NUMBERS,
    SMALLEST,
    Decimals,
    Expression,
    Scope,
    compile_term,
    text_of,
    whole_number,
    wrap,
)

__all__ = [
    "as_real",
    "at_least",
    "bool_number",
    "clipped_to_limits",
    "common_type",
    "comparable",
    "compared",
    "decimals_of",
    "double",
    "farthest",
    "in_steps",
    "largest_size",
    "least_size",
    "limited",
    "number_term",
    "one_of",
    "text_term",
    "told_apart",
    "truth_term",
]

_TOO_LARGE = 1e140  # a product of two such numbers does not overflow


def decimals_of(term: Expression) -> Decimals | None:
    """Return the digits of any number: zero for an integer, the written digits for a constant."""
    if term.constant is not None:
        scale = next((k for k in range(MOST_DIGITS + 1) if (term.constant * 10**k).denominator == 1), None)
        return None if scale is None else Decimals.of(scale, abs(float(term.constant)))
    if term.type == "integer" and term.low is not None and term.high is not None:
        return Decimals.of(0, max(abs(term.low), abs(term.high)))
    return term.decimals if term.type == "real" else None


def compared(left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """Return two terms as every comparison compares them: as decimals if both are, else in one type."""
    steps = in_steps([left, right])
    return comparable(left, right) if steps is None else (steps[0], steps[1])


def told_apart(term: Expression) -> exp.Expression:
    """Return a term in which equal values are identical to the last bit, for DISTINCT and PARTITION BY.

    A decimal computed in doubles is rounded to the nearest double; zero has no sign.
    """
    digits = decimals_of(term)
    sql = term.sql
    if term.type == "real" and digits is not None and not digits.nearest:
        # An integer below 2^42 divided by a power of ten up to 10^15: both are exact, so the quotient is rounded once.
        steps = _steps(term, digits.scale).sql
        sql = exp.Paren(this=exp.Div(this=wrap(steps), expression=literal(10.0**digits.scale), typed=False, safe=False))
    return canonical(sql, term.type)


def in_steps(terms: Sequence[Expression]) -> list[Expression] | None:
    """Return decimals as multiples of their last digit: a + b = 0.3 holds for 0.1 and 0.2.

    Return None where comparing their doubles is as good, or where their digits are not known.
    """
    digits = [decimals_of(term) for term in terms]
    common = Decimals.common(digits)
    if common is None or all(decimals is not None and decimals.nearest for decimals in digits):
        return None
    return [_steps(term, common.scale) for term in terms]


def _steps(term: Expression, scale: int) -> Expression:
    if term.constant is not None:
        return Expression(literal(float(term.constant * 10**scale)), "real", nullable=False)
    scaled = exp.Mul(this=wrap(double(term)), expression=literal(10.0**scale))
    rounded = exp.Floor(this=exp.Add(this=scaled, expression=literal(0.5)))
    return Expression(as_double(rounded), "real", nullable=term.nullable)


def one_of(sql: exp.Expression, kind: str, parts: Sequence[Expression], *, nullable: bool) -> Expression:
    """Return a value that is one of several, or NULL. Each public fact holds for all of them."""
    terms = [as_real(part) for part in parts] if kind == "real" else list(parts)
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
        most=max(map(farthest, terms)) if number else math.inf,
        decimals=Decimals.common([decimals_of(term) for term in terms]) if kind == "real" else None,
        folded=max(term.folded for term in terms),
        moments=(min(a for a, _ in spans), max(b for _, b in spans)) if len(spans) == len(terms) else None,
    )


def number_term(node: exp.Expression, scope: Scope) -> Expression:
    """Compile an expression that must be a number; a condition counts as 1 or 0."""
    term = bool_number(compile_term(node, scope))
    if term.type not in NUMBERS:
        hint = " Take a part of it: EXTRACT(MONTH FROM x)." if term.type in ("date", "timestamp") else ""
        raise QueryRefused(f"{text_of(node)} is {term.type}, and a number is needed here.{hint}")
    return term


def bool_number(term: Expression) -> Expression:
    """Return a boolean as 1, 0 or NULL; anything else unchanged."""
    if term.type != "boolean":
        return term
    sql = exp.Case(
        ifs=[
            exp.If(this=term.sql, true=whole_number(1)),
            exp.If(this=exp.Not(this=wrap(term.sql.copy())), true=whole_number(0)),
        ],
        default=exp.Null(),
    )
    return Expression(sql, "integer", 0, 1, nullable=term.nullable)


def truth_term(node: exp.Expression, scope: Scope) -> Expression:
    """Compile an expression that must be a condition."""
    term = compile_term(node, scope)
    if term.type != "boolean":
        raise QueryRefused(
            f"{text_of(node)} is {term.type}, and a condition is needed here. Compare it with something."
        )
    return term


def text_term(node: exp.Expression, scope: Scope) -> Expression:
    """Compile an expression that must be text."""
    term = compile_term(node, scope)
    if term.type != "text":
        raise QueryRefused(f"{text_of(node)} is {term.type}, and text is needed here.")
    return term


def comparable(left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """Return both sides in one type. A text constant beside a date is read as a date."""
    if left.type in ("date", "timestamp") and right.type == "text":
        return left, _as_date(right)
    if right.type in ("date", "timestamp") and left.type == "text":
        return _as_date(left), right
    kinds = {left.type, right.type}
    if kinds == {"integer", "real"}:
        return as_real(left), as_real(right)
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


def as_real(term: Expression) -> Expression:
    """Return a number as a real one, with its public facts."""
    if term.type == "real":
        return term
    return Expression(
        double(term),
        "real",
        term.low,
        term.high,
        nullable=term.nullable,
        most=farthest(term),
        clipped=term.clipped,
        constant=term.constant,
        decimals=decimals_of(term),
    )


def double(term: Expression) -> exp.Expression:
    """Return the SQL of a number as a DOUBLE."""
    return term.sql.copy() if term.type == "real" else as_double(term.sql)


def limited(term: Expression, underflows: bool = False) -> Expression:
    """Return a double that no engine fails to add, multiply and, with `underflows`, divide."""
    real = as_real(term)
    sql, low, high = real.sql.copy(), real.low, real.high
    if farthest(term) > _TOO_LARGE:
        ends = [(exp.LT, literal(-LARGEST)), (exp.GT, literal(LARGEST))]
        beyond = [exp.If(this=compare(this=wrap(sql), expression=end), true=end.copy()) for compare, end in ends]
        sql = exp.Case(ifs=beyond, default=sql)
    if underflows and least_size(term) < SMALLEST:
        sql = rounded_near_zero(sql)
        low, high = (None if end is None else near_zero(end) for end in (low, high))
    return Expression(sql, "real", low, high, nullable=real.nullable, most=largest_size(term))


def clipped_to_limits(term: Expression) -> exp.Expression:
    """Return a double clipped to its public limits. NULL stays NULL."""
    if term.low is None or term.high is None:
        raise AssertionError("only what has limits is clipped to them")
    x, low, high = double(term), literal(float(term.low)), literal(float(term.high))
    below, beyond = exp.LT(this=wrap(x), expression=low), exp.GT(this=wrap(x), expression=high)
    ifs = [exp.If(this=below, true=low.copy()), exp.If(this=beyond, true=high.copy())]
    return exp.Case(ifs=ifs, default=x)


def least_size(term: Expression) -> float:
    """Return the smallest absolute value of a number, zero aside."""
    if term.low is not None and term.high is not None and (term.low > 0 or term.high < 0):
        return min(abs(term.low), abs(term.high))
    return 1.0 if term.type == "integer" else math.ulp(0.0)


def largest_size(term: Expression) -> float:
    """Return the largest absolute value of a number, once it is limited."""
    return LARGEST if farthest(term) > _TOO_LARGE else farthest(term)


def farthest(term: Expression) -> float:
    """Return the largest absolute value of a number."""
    if term.low is not None and term.high is not None:
        return max(abs(term.low), abs(term.high))
    return min(term.most, 2.0**63) if term.type == "integer" else term.most


def at_least(term: Expression, least: float) -> exp.Expression:
    """Return a double raised to the least where it is below. NULL stays NULL."""
    if term.sure and term.low is not None and term.low >= least:
        return double(term)
    below = exp.LT(this=wrap(double(term)), expression=literal(least))
    return exp.Case(ifs=[exp.If(this=below, true=literal(least))], default=double(term))


def common_type(kinds: set[str]) -> str:
    """Return the one type of several results: real if they are integers and reals."""
    if kinds == {"integer", "real"}:
        return "real"
    if len(kinds) != 1:
        raise QueryRefused(f"the branches have different types ({', '.join(sorted(kinds))}). Make them alike.")
    return kinds.pop()

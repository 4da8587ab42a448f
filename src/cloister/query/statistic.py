"""The bounded statistics behind aggregates. Each is measured once, however many aggregates use it."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from sqlglot import exp

from cloister.data.dialect import as_double, greatest_of, least_of, literal, rounded_near_zero
from cloister.data.statistics import GroupKey, Known, Value, grid_value, whole_value
from cloister.privacy.errors import QueryRefused
from cloister.query.expression import Expression, told_apart

__all__ = [
    "Leaves",
    "Statistic",
    "leaves_of",
    "limits_of",
    "people_statistic",
    "rows_statistic",
    "sum_statistic",
    "tree_statistic",
    "values_statistic",
    "vote_statistic",
]

# Values are cut into about 2^30 steps: rounding a row is then negligible beside any noise.
_STEP_BITS = 30
_LEAVES = 4096
_MOST_LEAVES = 1 << 16
_TINY = 1e-100  # a number minus one that is not tiny is no tinier than its last digit: its square does not underflow


_TOO_CLOSE = (
    "the bounds of {} are too close to each other. Subtract one of them, or multiply it, in a WITH query first."
)


@dataclass(frozen=True, slots=True)
class Leaves:
    """The bottom of a quantile tree: equal bins between public bounds, or single integers."""

    low: float
    width: float
    count: int
    whole: bool

    def edge(self, index: Any) -> Any:
        """Return the lower edge of a leaf, or of each in an array."""
        return self.low + index * self.width


@dataclass(frozen=True, slots=True)
class Statistic:
    """One bounded statistic.

    Attributes:
        kind: the number of rows, a sum, the number of people or of different values, a tree of counts, or votes.
        label: for display.
        value: the summed expression (kind `sum`).
        step: the value of one integer step of the sum.
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


def rows_statistic() -> Statistic:
    """Return the number of rows."""
    return Statistic("rows", "number of rows")


def people_statistic() -> Statistic:
    """Return the number of units."""
    return Statistic("people", "number of people")


def values_statistic(term: Expression, text: str) -> Statistic:
    """Return the number of different values of a column."""
    return Statistic("values", f"different values of {text}", column=told_apart(term))


def sum_statistic(term: Expression, text: str, centre: float = 0.0, *, squares: bool = False) -> Statistic:
    """Return the sum of (x - centre), or of its square, over rows where x is not NULL."""
    low, high = limits_of(term, text)
    if term.type == "integer" and not centre and not squares and max(abs(low), abs(high)) < 2**_STEP_BITS:
        return Statistic(
            "sum", f"sum of {text}", whole_value(term.sql, math.floor(low), math.ceil(high), clipped=_kept(term))
        )
    sql, shown = term.sql, f"{text} - {centre:g}" if centre else text
    if squares:
        difference = exp.Sub(this=as_double(term.sql), expression=literal(float(centre)))
        moved = exp.Paren(this=difference) if abs(centre) > _TINY else rounded_near_zero(difference)
        sql, low, high, centre = (
            exp.Mul(this=moved, expression=moved.copy()),
            0.0,
            max(low - centre, high - centre, key=abs) ** 2,
            0.0,
        )
        shown = f"({shown})²"
    reach = max(abs(low - centre), abs(high - centre), 1e-100)
    exponent = _STEP_BITS - math.ceil(math.log2(reach))
    value = grid_value(sql, low, high, exponent, centre, clipped=_kept(term) and not squares)
    if not value.reach:
        raise QueryRefused(_TOO_CLOSE.format(text))
    return Statistic("sum", f"sum of {shown}", value, 2.0**-exponent)


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
        above = exp.Mul(this=above, expression=literal(_leaves_per_one(leaves, float(term.high or 0))))
    if _kept(term):  # within the limits already, and NULL stays NULL: comparing would double the cost
        known: exp.Expression = exp.Cast(this=exp.Floor(this=above), to=exp.DataType.build("BIGINT"))
    else:
        between = least_of(greatest_of(above, literal(0.0)), literal(float(leaves.count - 1)))
        known = exp.Case(
            ifs=[exp.If(this=exp.Is(this=exp.Paren(this=term.sql.copy()), expression=exp.Null()), true=exp.Null())],
            default=exp.Cast(this=exp.Floor(this=between), to=exp.DataType.build("BIGINT")),
        )
    return Statistic(
        "tree",
        f"distribution of {text}",
        extra=GroupKey("leaf", known, tuple(range(leaves.count)), "integer"),
        leaves=leaves,
    )


def leaves_of(term: Expression, text: str) -> Leaves:
    """Return the leaves into which a number's range is cut for quantiles."""
    low, high = limits_of(term, text)
    if term.type == "integer" and high - low < _MOST_LEAVES:
        return Leaves(float(math.floor(low)), 1.0, math.floor(high) - math.floor(low) + 1, whole=True)
    if high - low < _TINY:
        raise QueryRefused(_TOO_CLOSE.format(text))
    return Leaves(low, (high - low) / _LEAVES, _LEAVES, whole=False)


def _leaves_per_one(leaves: Leaves, high: float) -> float:
    """Return the factor for a distance from the lowest edge, rounded such that the upper limit is in the last leaf."""
    factor = 1 / leaves.width
    while (high - leaves.low) * factor >= leaves.count:
        factor = math.nextafter(factor, 0)
    return factor


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
    apart = max(1.0, abs(term.low) * 2.0**-20)  # a step of one is negligible beside a constant beyond 2^53
    return (term.low, term.high) if term.low < term.high else (term.low - apart, term.high + apart)

"""Format of times, losses and numbers on pages."""

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from cloister.privacy import number
from cloister.privacy.loss import Loss
from cloister.privacy.number import limits_text, lower_text, percent_limits, places_for, show, upper_text

__all__ = ["FILTERS", "cell_text", "column_digits", "group_text", "loss_text", "number_text"]
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # text direction


def iso(seconds: float) -> str:
    """Format a time for machines: 2026-03-01T09:30:00Z."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def when(seconds: float) -> str:
    """Format a time for people: 1 March 2026, 09:30 UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%-d %B %Y, %H:%M UTC")


def day(seconds: float) -> str:
    """Format a day for people: 1 March 2026."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%-d %B %Y")


def loss_text(value: Any) -> str:
    """Format a loss: ε 0.5, δ 1e-07. Takes a Loss or what its to_json() wrote."""
    if value is None:
        return "nothing"
    loss = Loss.from_json(value) if isinstance(value, dict) else value
    if not loss.amount and not loss.delta:
        return "nothing"
    sign = {"epsilon": "ε", "rho": "ρ"}[loss.measure]
    return f"{sign} {show(loss.amount)}" + (f", δ {show(loss.delta)}" if loss.delta else "")


def exact_text(value: str) -> str:
    """Format an exact number, such as 1/2, as a decimal: 0.5."""
    return show(Fraction(value))


def number_text(value: Any, digits: int | None = None) -> str:
    """Format a released value."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and digits is None:
        return f"{value:,}"
    if isinstance(value, int | float):
        return number.number_text(value, digits) if digits is not None else f"{value:,.4g}"
    return str(value)


def cell_text(cell: Mapping[str, Any], places: int | None = None) -> str:
    """Format a number with its interval: 123 [100, 147], with the decimals that the interval justifies.

    The limits are rounded outwards.

    Args:
        cell: value, low and high.
        places: the number of decimals, where a column should have the same in every row.
    """
    value, low, high = cell.get("value"), cell.get("low"), cell.get("high")
    if low is None or high is None or not all(_number(each) for each in (value, low, high)):
        return number_text(value)
    places = places_for(low, high) if places is None else places
    return f"{number_text(value, places)} [{', '.join(limits_text(low, high, places))}]"


def percent_texts(cell: Mapping[str, Any]) -> list[str]:
    """Format a share, and the limits of its interval, in percent: 12.3 %, 10.1 %, 14.6 %; limits rounded outwards."""
    places = max(1, places_for(100 * cell["low"], 100 * cell["high"]))
    value = number.number_text(100 * cell["value"], places)
    return [f"{text}\N{NO-BREAK SPACE}%" for text in (value, *percent_limits(cell["low"], cell["high"], places))]


def column_digits(cells: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the decimals for a whole column: those of its middle interval; None if there is none."""
    intervals = sorted(
        ((cell["low"], cell["high"]) for cell in cells if _number(cell.get("low")) and _number(cell.get("high"))),
        key=lambda ends: float(ends[1] - ends[0]),
    )
    return places_for(*intervals[len(intervals) // 2]) if intervals else None


def group_text(value: Any) -> str:
    """Return the name of a group: a year without a comma."""
    return "missing" if value is None else str(value)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def in_order(text: object) -> str:
    """Return text in which characters that reverse its order on a page are written out, as ⟨U+202E⟩."""
    return "".join(f"⟨U+{ord(sign):04X}⟩" if sign in _TURNING else sign for sign in str(text))


FILTERS = {
    "in_order": in_order,
    "group": group_text,
    "iso": iso,
    "when": when,
    "day": day,
    "loss": loss_text,
    "exact": exact_text,
    "cell": cell_text,
    "percent": percent_texts,
    "at_most": upper_text,
    "at_least": lower_text,
    "shown": number_text,
}

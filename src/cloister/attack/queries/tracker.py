"""Tracker attacks: allowed queries that combine to a forbidden one (Denning, Denning, Schwartz 1979).

Each attack takes `ask`, any query function: a lesson's `count`, or a private dataset's SQL. It returns None to refuse.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cloister.privacy.errors import BadName

__all__ = [
    "EVERYBODY",
    "Ask",
    "TrackerCondition",
    "general_tracker",
    "individual_tracker",
    "narrowed",
    "refusal",
    "where",
]

_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrackerCondition:
    """A condition on people, both as SQL and as a test of one row; `&`, `|` and `~` combine."""

    sql: str
    test: Callable[[Mapping[str, Any]], bool]

    def __and__(self, other: "TrackerCondition") -> "TrackerCondition":
        return TrackerCondition(f"({self.sql} AND {other.sql})", lambda row: self.test(row) and other.test(row))

    def __or__(self, other: "TrackerCondition") -> "TrackerCondition":
        return TrackerCondition(f"({self.sql} OR {other.sql})", lambda row: self.test(row) or other.test(row))

    def __invert__(self) -> "TrackerCondition":
        return TrackerCondition(f"(NOT {self.sql})", lambda row: not self.test(row))

    def reworded(self, times: int) -> "TrackerCondition":
        """Return an equivalent condition with other text."""
        return TrackerCondition(f"({self.sql} AND {times} = {times})", self.test)


EVERYBODY = TrackerCondition("(1 = 1)", lambda _row: True)
Ask = Callable[[TrackerCondition], float | None]


def where(column: str, sign: str, value: str | int) -> TrackerCondition:
    """Return the condition of one comparison.

    >>> (where("ward", "=", "surgery") & ~where("age", ">=", 65)).sql
    "(ward = 'surgery' AND (NOT age >= 65))"
    """
    if sign not in _SIGNS:
        raise BadName(f"a comparison is one of {' '.join(_SIGNS)}, got {sign!r:.20}.")
    compare = _SIGNS[sign]
    literal = "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
    return TrackerCondition(f"{column} {sign} {literal}", lambda row: compare(row[column], value))


def individual_tracker(
    ask: Ask, known: TrackerCondition, rest: TrackerCondition, secret: TrackerCondition | None = None
) -> float | None:
    """Return the answer about the one person for whom `known & rest` holds, though the direct query is refused.

    With T = known and not rest: q(known & rest) = q(known) - q(T), and for a further, secret fact
    q(known & rest & secret) = q(T or (known & secret)) - q(T).

    Args:
        ask: COUNT or SUM over a condition.
        known: half of the facts that identify the person; enough people share it for an answer.
        rest: the other half.
        secret: the fact that the attacker wants to learn; None for the statistic itself.
    """
    tracker = known & ~rest
    padding = ask(tracker)
    padded = ask(known if secret is None else tracker | (known & secret))
    return None if padded is None or padding is None else padded - padding


def general_tracker(ask: Ask, wanted: TrackerCondition, trackers: Iterable[TrackerCondition]) -> float | None:
    """Return any refused answer, from one formula T with 2k <= |T| <= N - 2k.

    q(C) = q(C or T) + q(C or not T) - q(T) - q(not T).

    Args:
        ask: COUNT or SUM over a condition.
        wanted: the condition that is refused.
        trackers: formulas to try; about half of all fitting ones work.
    """
    for tracker in trackers:
        answers = [ask(tracker), ask(~tracker), ask(wanted | tracker), ask(wanted | ~tracker)]
        if not any(answer is None for answer in answers):
            in_t, out, with_t, with_out = (float(answer or 0) for answer in answers)
            return with_t + with_out - in_t - out
    return None


def narrowed(ask: Callable[[TrackerCondition], tuple[float, float]], wanted: TrackerCondition,
             padding: Iterable[tuple[TrackerCondition, float]]) -> tuple[float, float]:  # fmt: skip
    """Return limits of an answer that is only given as a range, by intersection.

    Args:
        ask: a range for the SUM over a condition: rounded, recoded or in public bands.
        wanted: the person or group asked about.
        padding: people outside `wanted` whose sum the attacker knows; each shifts the answer across the bands' edges.
    """
    low, high = ask(wanted)
    for others, total in padding:
        below, above = ask(wanted | others)
        low, high = max(low, below - total), min(high, above - total)
    return low, high


def refusal(largest: Ask, everyone: TrackerCondition, target: TrackerCondition) -> float | None:
    """Return the target's value, revealed by a refusal: an audit that reads the data refuses only for secrets.

    If the largest of `everyone` is answered and that of everyone but the target is refused, the target has the largest
    (Kenthapadi, Mishra, Nissim 2005). None if nothing was learned.
    """
    top = largest(everyone)
    return top if top is not None and largest(everyone & ~target) is None else None

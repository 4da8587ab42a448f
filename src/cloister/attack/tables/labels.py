"""Read generalised labels: the one parser of what a release prints in place of a value.

    20-29   [20, 30)   <30   >=40   40+          intervals of numbers
    2001-05   2001-Q2   2001   2000-2009         periods: month, quarter, year, years (decades, centuries)
    [2001-05-03, 2001-06-01 10:30:00]            intervals of dates or times
    {a, "b, c", missing}                         one of several values, quoted as in CSV; `missing` is NULL
    236**   *3617   B1***                        masks

A whole-number range such as 20-29 covers everything below 30: it is also printed for real numbers. A mask may be longer
than its value (codes are filled to one length) and shorter (long codes are cut).
"""

import datetime as dt
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cloister.attack.tables.columns import Floats

__all__ = ["LabelInterval", "Span", "mask_pattern", "microseconds", "parse_interval", "parse_set", "parse_span"]

_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_TIME = r"[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2}(?::?\d{2})?)?"
# A date with or without time, a month, a quarter, a year; years below 1000 are printed without zeros.
_MOMENT = rf"(?:\d{{4}}-\d{{2}}-\d{{2}}(?:{_TIME})?|\d{{1,4}}-(?:0[1-9]|1[0-2])|\d{{1,4}}-Q[1-4]|\d{{1,4}})"
_TO = r"\s*(?:-|–|—|\.\.|/|\bto\b)\s*"
_EPOCH = dt.datetime(1970, 1, 1)
_EARLIEST, _LATEST = -(2**62), 2**62
_MEMBER = re.compile(r'\s*("(?:[^"]|"")*"|[^,]*?)\s*(?:,|$)')


def _forms(end: str, infinite: str) -> tuple[re.Pattern[str], ...]:
    """Return the patterns of a range, of brackets, of one side, and of everything from a value on."""
    inner = rf"({end}|{infinite})?"
    return (
        re.compile(rf"({end}){_TO}({end})"),
        re.compile(rf"([\[(])\s*{inner}\s*[,;]\s*{inner}\s*([\])])"),
        re.compile(rf"(<=|>=|<|>|≤|≥)\s*({end})"),
        re.compile(rf"({end})\s*\+"),
    )


_INFINITE = r"[+-]?inf|[+-]?∞"
_RANGE, _BRACKETS, _ONE_SIDED, _UPWARDS = _forms(_NUMBER, _INFINITE)
_SPAN, _SPAN_BRACKETS, _SPAN_ONE_SIDED, _SPAN_UPWARDS = _forms(_MOMENT, _INFINITE)


@dataclass(frozen=True, slots=True)
class LabelInterval:
    """An interval of numbers."""

    low: float
    high: float
    low_closed: bool = True
    high_closed: bool = True

    def range_in(self, ordered: Floats) -> tuple[int, int]:
        """Return the first and the end position of the members in an ascending array."""
        start = int(np.searchsorted(ordered, self.low, side="left" if self.low_closed else "right"))
        return start, max(start, int(np.searchsorted(ordered, self.high, side="right" if self.high_closed else "left")))

    def widened(self) -> "LabelInterval":
        """Return a range of whole numbers with the numbers behind its last one: 20-29 is also printed for 29.5."""
        whole = float(self.high).is_integer() and self.high + 1 > self.high
        return LabelInterval(self.low, self.high + 1, self.low_closed, False) if whole else self


def parse_interval(label: str) -> LabelInterval | None:
    """Return the interval of numbers that a label denotes; None if it is none.

    >>> parse_interval("20-29")
    LabelInterval(low=20.0, high=29.0, low_closed=True, high_closed=True)
    >>> parse_interval("[-5, 30)")
    LabelInterval(low=-5.0, high=30.0, low_closed=True, high_closed=False)
    >>> parse_interval("≥ 40").high, parse_interval("90+").low, parse_interval("blue")
    (inf, 90.0, None)
    """
    label = label.strip()
    if (match := _RANGE.fullmatch(label)) is not None:
        low, high = _number(match[1]), _number(match[2])
        return LabelInterval(low, high) if low <= high else None
    if (match := _BRACKETS.fullmatch(label)) is not None:
        low = -math.inf if match[2] is None else _number(match[2])
        high = math.inf if match[3] is None else _number(match[3])
        return LabelInterval(low, high, match[1] == "[", match[4] == "]")
    if (match := _ONE_SIDED.fullmatch(label)) is not None:
        end, closed = _number(match[2]), match[1] not in "<>"
        if match[1] in ("<", "<=", "≤"):
            return LabelInterval(-math.inf, end, True, closed)
        return LabelInterval(end, math.inf, closed, True)
    if (match := _UPWARDS.fullmatch(label)) is not None:
        return LabelInterval(_number(match[1]), math.inf)
    return None


def _number(text: str) -> float:
    return float(text.replace("∞", "inf"))


@dataclass(frozen=True, slots=True)
class Span:
    """Times from `start` to before `end`, in microseconds since 1970.

    Attributes:
        utc: True if the label states an offset, so that it is about instants and not about what a clock shows.
    """

    start: int
    end: int
    utc: bool = False


def parse_span(label: str) -> Span | None:
    """Return the times that a label denotes in a column of dates or times; None if it denotes none.

    >>> [parse_span(label).end // 86_400_000_000 for label in ("1970-01-02", "1970-02", "1970-Q1", "1970", "1970-1979")]
    [2, 59, 90, 365, 3652]
    >>> parse_span("blue")
    """
    label = label.strip()
    try:
        if (found := _extent(label)) is not None:
            return found
        if (match := _SPAN.fullmatch(label)) is not None:
            return _between(match[1], match[2], "[", "]")
        if (match := _SPAN_BRACKETS.fullmatch(label)) is not None:
            return _between(match[2], match[3], match[1], match[4])
        if (match := _SPAN_ONE_SIDED.fullmatch(label)) is not None:
            closed = "[]" if match[1] not in "<>" else "()"
            if match[1] in ("<", "<=", "≤"):
                return _between(None, match[2], "[", closed[1])
            return _between(match[2], None, closed[0], "]")
        if (match := _SPAN_UPWARDS.fullmatch(label)) is not None:
            return _between(match[1], None, "[", "]")
    except ValueError:  # 2001-02-30
        return None
    return None


def _between(low: str | None, high: str | None, opening: str, closing: str) -> Span | None:
    first = _end(low) or Span(_EARLIEST, _EARLIEST)
    last = _end(high) or Span(_LATEST, _LATEST)
    start = first.start if opening == "[" else first.end
    end = last.end if closing == "]" else last.start
    return Span(start, end, first.utc or last.utc) if start <= end else None


def _end(text: str | None) -> Span | None:
    """Return what an end covers; None for an end that is open or infinite."""
    return None if text is None else _extent(text)


def _extent(text: str) -> Span | None:
    """Return what one date, time, month, quarter or year covers."""
    if not re.fullmatch(_MOMENT, text):
        return None
    head, _, rest = text.partition("-")
    if not rest:
        return Span(_month(int(text), 1), _month(int(text) + 1, 1))
    if rest[0] == "Q":
        first = 3 * int(rest[1]) - 2
        return Span(_month(int(head), first), _month(int(head), first + 3))
    if len(rest) == 2:
        return Span(_month(int(head), int(rest)), _month(int(head), int(rest) + 1))
    moment = dt.datetime.fromisoformat(text)
    start = microseconds(moment, utc=moment.tzinfo is not None)
    return Span(start, start + (86_400_000_000 if len(text) == 10 else 1), moment.tzinfo is not None)


def _month(year: int, month: int) -> int:
    year, month = (year + 1, month - 12) if month > 12 else (year, month)
    if not 1 <= year <= 9999:
        return _EARLIEST if year < 1 else _LATEST
    return microseconds(dt.datetime(year, month, 1), utc=False)


def microseconds(moment: dt.date, *, utc: bool) -> int:
    """Return a date or time in microseconds since 1970: of its instant, or of what the clock shows."""
    if not isinstance(moment, dt.datetime):
        return (moment.toordinal() - _EPOCH.toordinal()) * 86_400_000_000
    offset = moment.utcoffset() if utc else None
    days = moment.toordinal() - _EPOCH.toordinal()
    seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
    shown = (days * 86_400 + seconds) * 1_000_000 + moment.microsecond
    return shown - (0 if offset is None else offset // dt.timedelta(microseconds=1))


def parse_set(label: str) -> list[str | None] | None:
    """Return the members of a set as they are printed, None for a missing one; None if the label is no set.

    >>> parse_set('{a, "b, c", missing}')
    ['a', 'b, c', None]
    """
    label = label.strip()
    if len(label) < 2 or label[0] != "{" or label[-1] != "}":
        return None
    return list(_members(label[1:-1]))


def _members(inner: str) -> Iterator[str | None]:
    at = 0
    while at < len(inner):
        match = _MEMBER.match(inner, at)
        if match is None:  # text behind a closing quote: an old file, which quoted nothing
            yield inner[at:]
            return
        word = match[1]
        yield (
            word[1:-1].replace('""', '"') if word[:1] == '"' and len(word) > 1 else None if word == "missing" else word
        )
        at = match.end()
        if match.end() == len(inner) and not inner.endswith(","):
            return


def mask_pattern(mask: str) -> re.Pattern[str]:
    """Return the pattern of the values that a mask covers.

    Stars at the end stand for any characters or none, three stars between kept ones for any number of characters (a
    mask that hides lengths), and every other star for one. A mask that begins with stars may have been cut at the end.

    >>> [bool(mask_pattern("B1***").fullmatch(code)) for code in ("B1", "B1234", "B2")]
    [True, True, False]
    """
    parts = []
    runs = re.findall(r"\*+|[^*]+", mask)
    for place, run in enumerate(runs):
        if run[0] != "*":
            parts.append(re.escape(run))
        elif place == len(runs) - 1 or len(run) == 3:
            parts.append(".*")
        else:
            parts.append(f".{{{len(run)}}}")
    if mask.startswith("*"):
        parts.append(".*")
    return re.compile("".join(parts), re.DOTALL)

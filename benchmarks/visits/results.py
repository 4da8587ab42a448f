"""What is told of the answers: tables, bars, and the lines of the chart."""

import math
import statistics
from dataclasses import dataclass, field
from typing import Any

from visits.questions import short

PEERS = {"opendp": "OpenDP on Polars", "smartnoise": "SmartNoise SQL on pandas", "tumult": "Tumult on Spark"}
_PEER_QUESTIONS = {
    "row count": "count",
    "row mean": "mean",
    "row histogram": "20-bin histogram",
    "row groups": "count and sum by two columns",
    "row median": "median",
    "person groups": "the same, at most 8 rows a person",
}
_WORDS = {
    "histogram": "20-bin histogram",
    "groups": "count and sum by two columns",
    "join": "join with a public table",
    "private join": "join of two private tables",
    "million": "count by 1,000,000 keys (beside the same in SQL)",
}
_HELD_AGAINST = {
    "row": ("A row is protected", "the same statistic in SQL written by hand"),
    "person": ("A person with at most 8 rows is protected", "`SELECT person, COUNT(*) … GROUP BY person`"),
}
_BARS = {
    "row": "a row protected: at most 1.3 times the SQL by hand plus 25 ms",
    "person": "a person protected: at most 2.5 times GROUP BY person plus 25 ms",
}


@dataclass(frozen=True)
class Times:
    """Milliseconds: ours, what it is held against, and the bar."""

    ours: float
    other: float
    bar: float


@dataclass
class Found:
    """Everything measured so far.

    Attributes:
        times: by number of rows, then by question: `row mean`, `person groups`, ...
        peers: by library, its milliseconds by rows and question, or a sentence on what failed.
        memory: peak gigabytes and seconds of the largest table under DuckDB's limit.
    """

    times: dict[int, dict[str, Times]] = field(default_factory=dict)
    peers: dict[str, dict[int, dict[str, Any]] | str] = field(default_factory=dict)
    memory: dict[str, Any] | None = None


def tables(found: Found) -> list[dict[str, Any]]:
    return [_table(found, unit) for unit in _HELD_AGAINST] + ([_peer_table(found)] if found.peers else [])


def _table(found: Found, unit: str) -> dict[str, Any]:
    names = dict.fromkeys(name for one in found.times.values() for name in one if name.startswith(unit))
    rows = []
    for name in names:
        times = [one.get(name) for one in found.times.values()]
        rows.append([_words(name), *(f"{_ms(one.ours)} / {_ms(one.other)}" if one else "" for one in times)])
    whom, beside = _HELD_AGAINST[unit]
    caption = f"{whom}: milliseconds for our answer / for {beside}, by number of rows."
    return {"caption": caption, "columns": ["question", *map(short, found.times)], "rows": rows}


def _peer_table(found: Found) -> dict[str, Any]:
    rows = []
    for size, times in found.times.items():
        ours = {name: one.ours for name, one in times.items()}
        answers = {PEERS[name]: one.get(size, {}) for name, one in found.peers.items() if isinstance(one, dict)}
        for library, one in {"Cloister": ours, **answers}.items():
            if one:
                rows.append([short(size), library, *(_cell(one.get(name)) for name in _PEER_QUESTIONS)])
    failed = [
        ["", sentence, *[""] * len(_PEER_QUESTIONS)] for sentence in found.peers.values() if isinstance(sentence, str)
    ]
    caption = "Milliseconds an answer, beside other libraries. Empty: not offered, or not asked."
    return {"caption": caption, "columns": ["rows", "library", *_PEER_QUESTIONS.values()], "rows": rows + failed}


def _words(name: str) -> str:
    question = name.partition(" ")[2]
    return _WORDS.get(question, question)


def _ms(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def _cell(value: Any) -> str:
    return "" if value is None else _ms(value) if isinstance(value, int | float) else value


# Bars


def bars(found: Found) -> list[dict[str, Any]]:
    made = [_speed(rows, unit, times) for rows, times in found.times.items() for unit in _BARS]
    return [*made, *_million(found), *_memory(found), *_growth(found)]


def _speed(rows: int, unit: str, times: dict[str, Times]) -> dict[str, Any]:
    held = {name: one for name, one in times.items() if name.startswith(unit) and not name.endswith("million")}
    missed = [name for name, one in held.items() if one.ours > one.bar]
    nearest = max(held, key=lambda name: held[name].ours / held[name].bar)
    told = [f"{_words(name)} {_ms(held[name].ours)} of {_ms(held[name].bar)} ms" for name in missed or [nearest]]
    return _bar(f"{short(rows)} rows, {_BARS[unit]}", ("" if missed else "nearest: ") + "; ".join(told), not missed)


def _million(found: Found) -> list[dict[str, Any]]:
    took = [one.ours for times in found.times.values() for name, one in times.items() if name.endswith("million")]
    text = "1,000,000 public keys, up to 1e7 rows: answered in at most 3 s"
    return [_bar(text, f"{max(took) / 1000:.1f} s", max(took) <= 3000)] if took else []


def _memory(found: Found) -> list[dict[str, Any]]:
    if found.memory is None:
        return []
    limit, peak, seconds = (found.memory[name] for name in ("limit_gb", "peak_gb", "seconds"))
    most = limit + 0.5
    text = f"1e8 rows, count and sum by two columns, a person protected, DuckDB held to {limit} GB: at most {most} GB"
    return [_bar(text, f"{peak:.1f} GB at the peak, answered in {seconds:.0f} s", peak <= most)]


def _growth(found: Found) -> list[dict[str, Any]]:
    """The slope of log time over log rows, ours and that of what it is held against."""
    if len(found.times) < 2:
        return []
    names = [name for name in next(reversed(found.times.values())) if not name.endswith("million")]
    slopes = {name: _slope([(rows, one[name].ours) for rows, one in found.times.items()]) for name in names}
    steepest = max(slopes, key=lambda name: slopes[name])
    others = _slope([(rows, one[steepest].other) for rows, one in found.times.items()])
    sizes = f"{short(min(found.times))} to {short(max(found.times))}"
    text = f"growth from {sizes} rows: linear or better (a power of at most 1)"
    told = f"steepest: {slopes[steepest]:.2f}, {_words(steepest)} ({steepest.split()[0]}), beside {others:.2f} in SQL"
    return [_bar(text, told, slopes[steepest] <= 1)]


def _slope(points: list[tuple[int, float]]) -> float:
    return statistics.linear_regression([math.log(x) for x, _ in points], [math.log(y) for _, y in points]).slope


def _bar(text: str, measured: str, met: bool) -> dict[str, Any]:
    return {"bar": text, "measured": measured, "met": met}


# The chart


def lines(found: Found) -> dict[str, list[tuple[float, float]]]:
    """Count and sum by two columns, by number of rows."""
    made = {
        "Cloister, row": [(rows, one["row groups"].ours) for rows, one in found.times.items()],
        "SQL by hand": [(rows, one["row groups"].other) for rows, one in found.times.items()],
        "Cloister, person": [(rows, one["person groups"].ours) for rows, one in found.times.items()],
        "GROUP BY person": [(rows, one["person groups"].other) for rows, one in found.times.items()],
    }
    for name, answers in found.peers.items():
        sizes = answers if isinstance(answers, dict) else {}
        points = [(rows, one["row groups"]) for rows, one in sizes.items() if isinstance(one.get("row groups"), float)]
        if len(points) > 1:
            made[f"{PEERS[name].split()[0]}, row"] = points
    return made

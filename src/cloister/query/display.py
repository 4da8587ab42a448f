"""Output of an answer: a table in the terminal; CSV, JSON or Parquet for other programs."""

import io
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cloister.privacy.loss import Loss
from cloister.privacy.number import limits_text, number_text, places_for
from cloister.query.answer import Answer

__all__ = ["FORMATS", "answer_table", "plain_console", "show_answer", "written"]

_MOST_ROWS = 200
_WIDE = 400


def plain_console(*, stderr: bool = False) -> Console:
    """Return a console of the terminal's width; for a file or pipe, wide enough that no row wraps."""
    console = Console(highlight=False, markup=False, emoji=False, stderr=stderr)
    if not console.is_terminal:
        console.width = _WIDE
    return console


def show_answer(answer: Answer, console: Console, left: Loss) -> None:
    """Print the table, its cost, the privacy unit, the remaining budget, and the notes."""
    if not answer.private:
        console.print(Text("NOT PRIVATE: the noise came from a seeded source", style="bold red"))
    console.print(answer_table(answer))
    if len(answer) > _MOST_ROWS:
        console.print(f"… {len(answer) - _MOST_ROWS:,} more rows")
    cost = f"cost {answer.loss}" if answer.loss.amount else "cost nothing"
    console.print(Text(f"{cost}; protects {answer.unit}; {left} left"), soft_wrap=True)
    for note in answer.notes:
        console.print(Text(f"note: {note}", style="dim"), soft_wrap=True)


def answer_table(answer: Answer) -> Table:
    """Return the rows as a table, each number with its interval."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    rows, columns = answer.value.slice(0, _MOST_ROWS), []
    for name in answer.columns:
        values = rows.column(name).to_pylist()
        if f"{name}_low" not in rows.column_names:
            right = any(isinstance(value, int | float) for value in values)
            table.add_column(Text(name), justify="right" if right else "left")
            columns.append([Text(_plain(value)) for value in values])
            continue
        lows, highs = (rows.column(f"{name}_{end}").to_pylist() for end in ("low", "high"))
        places = _places(lows, highs)
        table.add_column(Text(name), justify="right")
        table.add_column(Text(f"{100 * answer.confidence:g} % interval", style="dim"), style="dim")
        columns.append([Text(_number(value, places)) for value in values])
        columns.append([Text(_interval(low, high, places)) for low, high in zip(lows, highs, strict=True)])
    for row in zip(*columns, strict=True):
        table.add_row(*row)
    return table


def _interval(low: float | None, high: float | None, places: int) -> str:
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return "none"
    return " to ".join(limits_text(low, high, places))


def _places(lows: Sequence[float | None], highs: Sequence[float | None]) -> int:
    """Return the number of decimals that shows two digits of the narrowest interval's half-width."""
    pairs = [(low, high) for low, high in zip(lows, highs, strict=True) if low is not None and high is not None]
    halves = [half for low, high in pairs if 0 < (half := (high - low) / 2) < math.inf]
    if not halves:  # points, or no limits at all
        return max((places_for(low, high) for low, high in pairs), default=0)
    return max(0, 1 - math.floor(math.log10(min(halves))))


def _number(value: float | None, places: int) -> str:
    return "NULL" if value is None or math.isnan(value) else number_text(value, places)


def _plain(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"{value:,.6g}" if isinstance(value, float) else str(value)


# For other programs


def written(answer: Answer, form: str) -> bytes:
    """Return the whole answer, limits included, in one of the `FORMATS`."""
    return FORMATS[form](answer)


def _csv(answer: Answer) -> bytes:
    from pyarrow import csv

    sink = io.BytesIO()
    csv.write_csv(answer.to_arrow(), sink)
    return sink.getvalue()


def _parquet(answer: Answer) -> bytes:
    from pyarrow import parquet

    sink = io.BytesIO()
    parquet.write_table(answer.to_arrow(), sink)
    return sink.getvalue()


def _json(answer: Answer) -> bytes:
    record = {
        "answer": [{name: _jsonable(value) for name, value in row.items()} for row in answer.rows()],
        "confidence": answer.confidence,
        "cost": answer.loss.to_json(),
        "protects": str(answer.unit),
        "private": answer.private,
        "notes": list(answer.notes),
    }
    return (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode()


def _jsonable(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no infinity or NaN
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


FORMATS: dict[str, Callable[[Answer], bytes]] = {"csv": _csv, "json": _json, "parquet": _parquet}

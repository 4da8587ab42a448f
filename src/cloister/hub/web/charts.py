"""Charts of answers: points with their intervals, drawn by Vega-Lite without a network.

A chart is drawn from the released result alone, so it costs nothing and can be drawn again.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt

from cloister.data.charts import PALETTE, chart_of, name_axis, style, to_svg
from cloister.hub.core.cache import Cache
from cloister.hub.web.words import cell_text, column_digits, group_text

__all__ = ["COLOURS", "INK", "Picture", "Size", "Theme", "bars", "draw", "pictures", "svg"]

Theme = Literal["light", "dark"]
Size = Literal["wide", "half", "narrow"]
_WIDTH: Mapping[Size, int] = {"wide": 620, "half": 250, "narrow": 180}
_MOST_GROUPS = 60
_MOST_COLOURS = 6
_PICTURES = Cache(32 * 2**20)
INK: Mapping[Theme, Mapping[str, str]] = {
    "light": {"ink": "#1b2326", "soft": "#55616a", "line": "#dddad2", "accent": "#0f6b66", "card": "#ffffff"},
    "dark": {"ink": "#e6eaea", "soft": "#a3afb3", "line": "#303c40", "accent": "#6fc9c1", "card": "#1a2224"},
}
COLOURS: Mapping[Theme, Sequence[str]] = {
    "light": tuple(PALETTE[name] for name in ("teal", "orange", "blue", "purple", "green", "grey")),
    "dark": ("#6fc9c1", "#f5b544", "#9db1ff", "#f09ac9", "#b6d66b", "#c4c4c4"),
}


@dataclass(frozen=True, slots=True)
class Picture:
    """Chart that can be drawn of a result.

    Attributes:
        column: the column with the numbers.
        groups: the columns along the axis and, if there are two, by colour.
        text: alternative text.
    """

    column: str
    groups: tuple[str, ...]
    text: str


def pictures(result: Mapping[str, Any]) -> list[Picture]:
    """Return the useful charts of a table of cells: one for each column of numbers, if there are groups to compare."""
    columns, rows = result.get("columns", []), result.get("rows", [])
    if not isinstance(rows, list):
        return []
    groups = [i for i, column in enumerate(columns) if not column.get("number")]
    numbers = [i for i, column in enumerate(columns) if column.get("number")]
    if not 1 <= len(groups) <= 2 or not 2 <= len(rows) <= _MOST_GROUPS * (1 if len(groups) == 1 else _MOST_COLOURS):
        return []
    if len(groups) == 2 and len({str(row[groups[1]]["value"]) for row in rows}) > _MOST_COLOURS:
        return []
    names = tuple(columns[i]["name"] for i in groups)
    return [
        Picture(columns[i]["name"], names, _alt_text(columns[i]["name"], names, rows, groups, i))
        for i in numbers
        if any(_finite(row[i].get("value")) for row in rows)
    ]


def svg(result: Mapping[str, Any], picture: Picture, theme: Theme = "light", size: Size = "wide") -> str:
    """Draw a chart: across a page, across half of it, or for a phone."""
    positions = {column["name"]: i for i, column in enumerate(result["columns"])}
    places = column_digits(row[positions[picture.column]] for row in result["rows"])
    points = []
    for order, row in enumerate(result["rows"]):
        cell = row[positions[picture.column]]
        if not _finite(cell.get("value")):
            continue
        point: dict[str, Any] = {"order": order, "value": cell["value"], "answer": cell_text(cell, places)}
        for name, group in zip(("group", "shade"), picture.groups, strict=False):
            raw = row[positions[group]]["value"]
            point[name] = raw if _finite(raw) else group_text(raw)
        if _finite(cell.get("low")) and _finite(cell.get("high")):
            point |= {"low": cell["low"], "high": cell["high"]}
        points.append(point)
    return draw(_dots(points, picture, theme, size).to_json(indent=None), theme)


def bars(values: Sequence[Mapping[str, Any]], theme: Theme = "light", size: Size = "half") -> str:
    """Draw a histogram with intervals for a profile: {label, value, low, high} in order, one line each."""
    points = [{"order": i, "group": str(bar["label"]), **_numbers(bar)} for i, bar in enumerate(values)]
    base = chart_of(points)
    ink = INK[theme]
    names = [str(point["group"]) for point in points]
    up = alt.Y("group:N", sort=None, title=None, axis=name_axis(names, 100 if size == "narrow" else 170))
    ends = [0.0, *(float(point[key]) for point in points for key in ("value", "low", "high") if key in point)]
    scale = alt.Scale(domain=[min(ends), max(ends) or 1.0], nice=True)
    across = alt.X("value:Q", title=None, scale=scale, axis=alt.Axis(tickCount=2 if size == "narrow" else 4))
    box = base.mark_bar(color=ink["accent"], opacity=0.55, cornerRadiusEnd=3, height={"band": 0.72})
    rule = base.mark_rule(color=ink["ink"], strokeWidth=1.6, strokeCap="round")
    layers = [
        box.encode(across, up),
        rule.encode(alt.X("low:Q", scale=scale, title=None), alt.X2("high:Q"), up),
    ]
    chart = alt.layer(*layers).properties(width=120 if size == "narrow" else 240, height=max(44, 22 * len(points)))
    return draw(chart.to_json(indent=None), theme)


def _dots(points: list[dict[str, Any]], picture: Picture, theme: Theme, size: Size) -> Any:
    """Draw points with intervals: along an axis if the groups are numbers, else one line of text for each group."""
    base = chart_of(points)
    ink = INK[theme]
    shade: Any = alt.value(ink["accent"])
    if len(picture.groups) == 2:
        title = picture.groups[1]
        shade = alt.Color("shade:N", title=title, sort=None, scale=alt.Scale(range=list(COLOURS[theme])))
    ordered = all(_finite(point["group"]) for point in points) and len(points) > _MOST_COLOURS
    if ordered:
        across = alt.X("group:Q", title=picture.groups[0], scale=alt.Scale(zero=False), axis=alt.Axis(grid=False))
        up = alt.Y("value:Q", title=picture.column, scale=alt.Scale(zero=False))
        layers = [
            base.mark_rule(strokeWidth=2).encode(across, alt.Y("low:Q"), alt.Y2("high:Q"), color=shade),
            base.mark_line(strokeWidth=1.2, opacity=0.45).encode(across, up, color=shade),
            base.mark_point(filled=True, size=60, opacity=1).encode(across, up, color=shade),
        ]
        return alt.layer(*layers).properties(width=_WIDTH[size], height=300)
    shift = alt.YOffset("shade:N", sort=None) if len(picture.groups) == 2 else alt.Undefined
    names = [str(point["group"]) for point in points]
    up = alt.Y("group:N", sort=None, title=None, axis=name_axis(names, 110 if size == "narrow" else 220))
    span = [point.get(key, point["value"]) for point in points for key in ("low", "value", "high")]
    from_zero = min(span) > 0 and min(span) < 0.75 * max(span)
    scale = alt.Scale(zero=from_zero or min(span) <= 0 <= max(span), nice=True)
    axis = alt.Axis(tickCount={"wide": 8, "half": 4, "narrow": 3}[size])
    across = alt.X("value:Q", title=picture.column, scale=scale, axis=axis)
    low, high = alt.X("low:Q", scale=scale, title=picture.column, axis=axis), alt.X2("high:Q")
    common: dict[str, Any] = {"color": shade} if shift is alt.Undefined else {"color": shade, "yOffset": shift}
    layers = [
        base.mark_rule(strokeWidth=3, opacity=0.45, strokeCap="round").encode(low, high, up, **common),
        base.mark_point(filled=True, size=95, opacity=1).encode(across, up, **common),
    ]
    if len(picture.groups) == 1 and size != "narrow":
        words = base.transform_calculate(end="isValid(datum.high) ? datum.high : datum.value")
        words = words.mark_text(align="left", dx=12, fontSize=12.5, color=ink["soft"])
        layers.append(words.encode(alt.X("end:Q", scale=scale, title=picture.column, axis=axis), up, text="answer:N"))
    step = 36 if len(picture.groups) == 1 else 24 + 14 * len({point["shade"] for point in points})
    return alt.layer(*layers).properties(width=_WIDTH[size], height=max(80, step * len(set(names))))


def draw(spec: str, theme: Theme) -> str:
    """Render a Vega-Lite specification as an SVG, in the hub's style."""
    key = hashlib.sha256(spec.encode()).digest(), theme  # a specification may be as large as its picture
    text: str = _PICTURES.get(key, lambda: to_svg(spec, _config(theme)))
    return text


def _config(theme: Theme) -> dict[str, Any]:
    config = style(INK[theme], size=13, gap=10, right=24)
    words = {name: value for name, value in config["axis"].items() if name.startswith(("label", "title"))}
    del words["titlePadding"]
    config["axis"] |= {"labelPadding": 8, "tickCount": 6}
    config["legend"] = {**words, "symbolOpacity": 1, "orient": "top", "direction": "horizontal"}
    return config


def _alt_text(
    column: str, groups: Sequence[str], rows: Sequence[Sequence[Mapping[str, Any]]], named: Sequence[int], at: int
) -> str:
    places = column_digits(row[at] for row in rows)
    parts = [
        f"{', '.join(group_text(row[i]['value']) for i in named)}: {cell_text(row[at], places)}" for row in rows[:12]
    ]
    more = f"; and {len(rows) - 12} more, in the table below" if len(rows) > 12 else ""
    return f"{column} by {' and '.join(groups)}, with intervals. {'; '.join(parts)}{more}."


def _numbers(bar: Mapping[str, Any]) -> dict[str, Any]:
    return {key: bar[key] for key in ("value", "low", "high") if _finite(bar.get(key))}


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

"""Charts of a survey: shares with intervals, a mean on its scale, a cross-table, and two sources side by side."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from cloister.data.charts import chart_of, name_axis
from cloister.hub.web.charts import COLOURS, INK, Size, Theme, draw

__all__ = ["both", "heat", "mean", "means", "shares"]

_WIDTH: Mapping[Size, int] = {"wide": 640, "half": 300, "narrow": 180}
_LONG = 26  # more values than this are placed along an axis, not in lines of text
_MOST_LINES = 40
_KINDS = ("projected", "raw, with its interval")


def shares(
    rows: Sequence[Mapping[str, Any]], ordered: bool = False, theme: Theme = "light", size: Size = "wide"
) -> str:
    """Draw shares of values: a bar for the projected share, a point with its interval for the measured one.

    Args:
        rows: as `QuestionResult.rows` gives them.
        ordered: True if the values have a natural order: then many of them are placed along an axis.
        theme: light or dark.
        size: of the page.
    """
    points = [
        {"order": order, "group": str(row["value"]), **{key: row[key] for key in ("raw", "low", "high", "projected")}}
        for order, row in enumerate(rows)
    ]
    if len(points) > _LONG and ordered:
        return draw(_along(points, theme, size).to_json(indent=None), theme)
    if len(points) > _MOST_LINES:  # the rest is in the table
        points = sorted(points, key=lambda point: -float(point["raw"]))[:_MOST_LINES]
    base = chart_of(points)
    up = alt.Y("group:N", sort=None, title=None, axis=_names(points, size))
    scale = _scale(points)
    axis = alt.Axis(format="%", tickCount=3 if size == "narrow" else 6)
    across = alt.X("projected:Q", title=None, scale=scale, axis=axis)
    low, high = alt.X("low:Q", title=None, scale=scale, axis=axis), alt.X2("high:Q")
    kind = _kinds(theme)
    layers = [
        base.transform_calculate(kind=f"'{_KINDS[0]}'")
        .mark_bar(opacity=0.4, cornerRadiusEnd=3, height={"band": 0.66})
        .encode(across, up, color=kind),
        base.mark_rule(strokeWidth=2.5, strokeCap="round", color=INK[theme]["ink"]).encode(low, high, up),
        base.transform_calculate(kind=f"'{_KINDS[1]}'")
        .mark_point(filled=True, size=80, opacity=1)
        .encode(alt.X("raw:Q", title=None, scale=scale, axis=axis), up, color=kind),
    ]
    chart = alt.layer(*layers).properties(width=_WIDTH[size], height=max(64, 30 * len(points)))
    return draw(chart.to_json(indent=None), theme)


def _along(points: list[dict[str, Any]], theme: Theme, size: Size) -> Any:
    base = chart_of(points)
    each = max(1, len(points) // (4 if size == "narrow" else 9))
    labels = [point["group"] for point in points[::each]]
    axis = alt.Axis(values=labels, labelAngle=-40, grid=False, labelOverlap=True)
    across = alt.X("group:N", sort=None, title=None, axis=axis)
    up = alt.Y("projected:Q", title=None, axis=alt.Axis(format="%", tickCount=5))
    kind = _kinds(theme)
    bars = base.transform_calculate(kind=f"'{_KINDS[0]}'").mark_bar(opacity=0.4)
    dots = base.transform_calculate(kind=f"'{_KINDS[1]}'").mark_point(filled=True, size=26, opacity=1)
    layers = [
        bars.encode(across, up, color=kind),
        base.mark_rule(strokeWidth=1.2, color=INK[theme]["ink"]).encode(
            across, alt.Y("low:Q", title=None), alt.Y2("high:Q")
        ),
        dots.encode(across, alt.Y("raw:Q", title=None), color=kind),
    ]
    return alt.layer(*layers).properties(width=_WIDTH[size], height=260)


def _names(points: Sequence[Mapping[str, Any]], size: Size) -> alt.Axis:
    """Return an axis with a line for each group; type and space depend on the page."""
    axis: alt.Axis = name_axis((str(point["group"]) for point in points), 110 if size == "narrow" else 220)
    return axis


def _kinds(theme: Theme) -> alt.Color:
    ink = INK[theme]
    colours = alt.Scale(domain=list(_KINDS), range=[ink["accent"], ink["ink"]])
    return alt.Color("kind:N", title=None, scale=colours)


def _scale(points: Sequence[Mapping[str, Any]], floor: float = 0.0) -> alt.Scale:
    ends = [float(point[key]) for point in points for key in ("low", "high") if point.get(key) is not None]
    return alt.Scale(domain=[min(floor, *ends), max(ends)], nice=True)


def mean(
    found: Mapping[str, Any], bounds: tuple[float, float], unit: str, theme: Theme = "light", size: Size = "wide"
) -> str:
    """Draw a mean with its interval, on the whole of its public scale."""
    point = {"value": found["raw"], "low": found["low"], "high": found["high"], "group": "mean"}
    base = chart_of([point])
    scale = alt.Scale(domain=[min(bounds[0], point["low"]), max(bounds[1], point["high"])], nice=False, zero=False)
    axis = alt.Axis(tickCount=4 if size == "narrow" else 8, grid=True)
    title = unit or None
    low = alt.X("low:Q", scale=scale, axis=axis, title=title)
    layers = [
        base.mark_rule(strokeWidth=4, opacity=0.5, strokeCap="round", color=INK[theme]["accent"]).encode(
            low, alt.X2("high:Q")
        ),
        base.mark_point(filled=True, size=160, opacity=1, color=INK[theme]["accent"]).encode(
            alt.X("value:Q", scale=scale, axis=axis, title=title)
        ),
    ]
    return draw(alt.layer(*layers).properties(width=_WIDTH[size], height=56).to_json(indent=None), theme)


def heat(
    cells: Sequence[Mapping[str, Any]], names: tuple[str, str], theme: Theme = "light", size: Size = "wide"
) -> str:
    """Draw a cross-table: cells of {first, second, share}; a large share is dark, with its number.

    At most 40 answers to one question are drawn, those with the largest shares; all are in the table.
    """
    cells = _largest(_largest(cells, "first"), "second")
    base = chart_of(cells)
    ink = INK[theme]
    most = max((float(cell["share"]) for cell in cells), default=1.0) or 1.0
    wide = len({cell["second"] for cell in cells})
    tall = len({cell["first"] for cell in cells})
    across = alt.X(
        "second:N", sort=None, title=names[1], axis=alt.Axis(labelAngle=-30 if wide > 3 else 0, labelLimit=110)
    )
    up = alt.Y("first:N", sort=None, title=names[0], axis=alt.Axis(labelLimit=90 if size == "narrow" else 160))
    colour = alt.Color(
        "shown:Q",
        legend=None,
        scale=alt.Scale(domain=[0, most], range=[ink["card"], ink["accent"]], clamp=True, interpolate="rgb"),
    )
    boxes = (
        base.transform_calculate(shown="max(datum.share, 0)").mark_rect(stroke=ink["line"]).encode(across, up, colour)
    )
    strong = f"datum.share > {0.75 * most}"
    words = base.mark_text(fontSize=12 if size == "wide" else 10).encode(
        across,
        up,
        text=alt.Text("share:Q", format=".0%"),
        color=alt.condition(strong, alt.value(ink["card"]), alt.value(ink["ink"])),
    )
    layers = [boxes, words] if wide <= (12 if size == "wide" else 5) else [boxes]
    chart = alt.layer(*layers).properties(
        width=min(_WIDTH[size], 110 * wide + 40) if size == "wide" else _WIDTH[size],
        height=max(70, min(36 * tall, 640)),
    )
    return draw(chart.to_json(indent=None), theme)


def _largest(cells: Sequence[Mapping[str, Any]], side: str) -> list[Mapping[str, Any]]:
    totals: Counter[str] = Counter()
    for cell in cells:
        totals[cell[side]] += cell["share"]
    drawn = {name for name, _ in totals.most_common(_MOST_LINES)}
    return [cell for cell in cells if cell[side] in drawn]


def both(points: Sequence[Mapping[str, Any]], theme: Theme = "light", size: Size = "wide") -> str:
    """Draw two sources side by side: points of {group, source, value, low, high}."""
    base = chart_of(points)
    count = len({point["group"] for point in points})
    shade = alt.Color("source:N", title=None, sort=None, scale=alt.Scale(range=list(COLOURS[theme])))
    up = alt.Y("group:N", sort=None, title=None, axis=_names(points, size))
    shift = alt.YOffset("source:N", sort=None)
    axis = alt.Axis(format="%", tickCount=3 if size == "narrow" else 6)
    scale = _scale(points)
    layers = [
        base.mark_rule(strokeWidth=3.5, opacity=0.5, strokeCap="round").encode(
            alt.X("low:Q", scale=scale, title=None, axis=axis), alt.X2("high:Q"), up, color=shade, yOffset=shift
        ),
        base.mark_point(filled=True, size=95, opacity=1).encode(
            alt.X("value:Q", scale=scale, title=None, axis=axis),
            up,
            color=shade,
            yOffset=shift,
            shape=alt.Shape("source:N", title=None, sort=None),
        ),
    ]
    return draw(
        alt.layer(*layers).properties(width=_WIDTH[size], height=max(90, 48 * count)).to_json(indent=None), theme
    )


def means(points: Sequence[Mapping[str, Any]], title: str, theme: Theme = "light", size: Size = "wide") -> str:
    """Draw a mean with its interval for each group: points of {group, value, low, high}."""
    base = chart_of(points)
    ink = INK[theme]
    up = alt.Y("group:N", sort=None, title=None, axis=_names(points, size))
    axis = alt.Axis(tickCount=3 if size == "narrow" else 6)
    scale = alt.Scale(zero=False, nice=True)
    layers = [
        base.mark_rule(strokeWidth=3.5, opacity=0.5, strokeCap="round", color=ink["accent"]).encode(
            alt.X("low:Q", scale=scale, title=title, axis=axis), alt.X2("high:Q"), up
        ),
        base.mark_point(filled=True, size=95, opacity=1, color=ink["accent"]).encode(
            alt.X("value:Q", scale=scale, title=title, axis=axis), up
        ),
    ]
    chart = alt.layer(*layers).properties(width=_WIDTH[size], height=max(80, 34 * len(points)))
    return draw(chart.to_json(indent=None), theme)

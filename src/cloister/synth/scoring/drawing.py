"""Charts as SVG, drawn by Vega-Lite without a network, in colours that a page's style decides.

Every colour in a chart is a stand-in that becomes a CSS variable, so that one drawing serves light, dark and paper.
Keys to the colours are text of the page, above the drawing: a reader's font is wider than the one it is measured with.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from cloister.privacy.errors import MissingExtra

__all__ = ["INK", "altair", "bars", "draw", "heat", "intervals", "lines", "steps"]

INK = {"ink": "#000101", "soft": "#000102", "line": "#000103", "real": "#000104", "made": "#000105", "other": "#000106"}
_FONT = "Arial, Liberation Sans, Helvetica, sans-serif"
_WIDTH = 330
Point = dict[str, Any]
Kinds = Mapping[str, str]
"""What is compared, in words, and the name of its colour."""


def altair() -> Any:
    """Altair, or a refusal that says how to get it."""
    try:
        import altair as alt
        import vl_convert  # noqa: F401
    except ImportError:
        raise MissingExtra("a report with charts needs Altair: pip install 'cloister[report]'.") from None
    return alt


def draw(chart: Any) -> str:
    """A chart as SVG for a page that defines --ink, --soft, --line, --real, --made and --other."""
    import vl_convert

    text: str = vl_convert.vegalite_to_svg(chart.to_json(indent=None), config=_config(), allowed_base_urls=[])
    for name, colour in INK.items():
        text = text.replace(colour, f"var(--{name})")
    return text


def bars(points: Sequence[Point], kinds: Kinds, title: str) -> str:
    """Groups of bars, one above the other: points of {group, kind, value}."""
    alt = altair()
    base = alt.Chart(alt.InlineData(values=list(points)))
    groups = list(dict.fromkeys(point["group"] for point in points))
    shape = {
        "y": alt.Y("group:N", sort=groups, title=None, axis=_words(groups)),
        "yOffset": alt.YOffset("kind:N", sort=list(kinds)),
        "x": alt.X("value:Q", title=title, axis=alt.Axis(tickCount=5)),
    }
    box = base.mark_bar(cornerRadiusEnd=2).encode(color=_colours(kinds), **shape)
    text = base.mark_text(align="left", dx=4, fontSize=11, color=INK["soft"]).encode(text="text:N", **shape)
    return _key(kinds) + draw((box + text).properties(width=_WIDTH, height=len(groups) * (18 + 17 * len(kinds))))


def intervals(points: Sequence[Point], kinds: Kinds, title: str, rule: float | None = None) -> str:
    """Points with intervals: {group, kind, value, low, high}; a dashed line where chance is."""
    alt = altair()
    base = alt.Chart(alt.InlineData(values=list(points)))
    groups = list(dict.fromkeys(point["group"] for point in points))
    span = [point[key] for point in points for key in ("low", "value", "high") if point.get(key) is not None]
    span += [] if rule is None else [rule]
    room = 0.04 * (max(span) - min(span))
    low_end = max(0.0, min(span) - room) if min(span) >= 0 else min(span) - room  # a share is not below nought
    scale = alt.Scale(domain=[low_end, max(span) + room], zero=False)
    axis = alt.Axis(format="~%", tickCount=4)
    shape: dict[str, Any] = {"y": alt.Y("group:N", sort=groups, title=None, axis=_words(groups))}
    shape |= {"yOffset": alt.YOffset("kind:N", sort=list(kinds)), "color": _colours(kinds)}
    low = alt.X("low:Q", scale=scale, title=title, axis=axis)
    layers = [
        base.mark_rule(strokeWidth=3, opacity=0.5, strokeCap="round").encode(low, alt.X2("high:Q"), **shape),
        base.mark_point(filled=True, size=80, opacity=1).encode(
            alt.X("value:Q", scale=scale, title=title, axis=axis), shape=_marks(kinds), **shape
        ),
    ]
    if rule is not None:
        chance = alt.Chart(alt.InlineData(values=[{"at": rule}]))
        line = chance.mark_rule(strokeDash=[5, 4], strokeWidth=1.5, color=INK["soft"])
        layers.insert(0, line.encode(alt.X("at:Q", scale=scale, title=title, axis=axis)))
    return _key(kinds) + draw(alt.layer(*layers).properties(width=_WIDTH, height=len(groups) * (22 + 18 * len(kinds))))


def lines(points: Sequence[Point], kinds: Kinds, across: str, up: str) -> str:
    """Lines: points of {kind, x, y}."""
    alt = altair()
    base = alt.Chart(alt.InlineData(values=list(points)))
    dash = alt.StrokeDash("kind:N", sort=list(kinds), legend=None, scale=alt.Scale(range=[[1, 0], [6, 3]]))
    chart = base.mark_line(strokeWidth=2.2, interpolate="monotone").encode(
        alt.X("x:Q", title=across, axis=alt.Axis(tickCount=5)),
        alt.Y("y:Q", title=up, axis=alt.Axis(format="%", tickCount=5)),
        _colours(kinds),
        dash,
    )
    return _key(kinds) + draw(chart.properties(width=_WIDTH + 60, height=220))


def steps(points: Sequence[Point], kinds: Kinds, title: str, words: Sequence[str] | None) -> str:
    """A column's shares: points of {kind, place, label, value}; bars for words, outlines for what is ordered."""
    alt = altair()
    base = alt.Chart(alt.InlineData(values=list(points)))
    if words is not None:
        shape = {
            "y": alt.Y("label:N", sort=list(words), title=None, axis=_words(words, 100)),
            "yOffset": alt.YOffset("kind:N", sort=list(kinds)),
        }
        across = alt.X("value:Q", title=None, axis=alt.Axis(format="%", tickCount=4))
        chart = base.mark_bar().encode(across, color=_colours(kinds), **shape)
        return draw(chart.properties(width=170, height=max(50, 22 * len(words)), title=title))
    places = list(dict.fromkeys(point["label"] for point in points))
    room = max(2, 240 // (8 * max(map(len, places)) + 16))  # so many labels stand beside each other
    shown = places[:: max(1, -(-len(places) // room))]
    # The first label begins where the axis does: in its middle it would lie on the other axis.
    first_left = {"condition": {"test": "datum.index == 0", "value": "left"}, "value": "center"}
    beside: dict[str, Any] = {"labelAngle": 0, "ticks": False, "labelAlign": first_left, "labelOverlap": False}
    across = alt.X("label:O", sort=places, title=None, axis=alt.Axis(values=shown, **beside))
    up = alt.Y("value:Q", title=None, axis=alt.Axis(format="%", tickCount=4), stack=None)
    first, second = kinds
    real = base.transform_filter(f"datum.kind == '{first}'").mark_bar(color=INK["real"], opacity=0.45)
    made = base.transform_filter(f"datum.kind == '{second}'").mark_line(
        color=INK["made"], strokeWidth=2, interpolate="step"
    )
    layers = real.encode(across, up) + made.encode(across, up)
    return draw(layers.properties(width=240, height=130, title=title))


def heat(names: Sequence[str], values: Sequence[Sequence[float | None]], most: float, title: str) -> str:
    """A square map: the fuller a cell, the larger the number; of another colour if it is negative."""
    alt = altair()
    points = [
        {"row": a, "column": b, "value": value, "size": min(1.0, abs(value or 0.0) / most) if most > 0 else 0.0}
        for a, line in zip(names, values, strict=True)
        for b, value in zip(names, line, strict=True)  # what has no number is an empty cell: a map without gaps
    ]
    size = 7 if len(names) > 24 else 11
    axis = {"labelFontSize": size, "ticks": False, "domain": False, "grid": False, "labelLimit": 90, "labelPadding": 3}
    room = min(110, round(0.68 * size * max(map(len, names))) + 6)
    up = alt.Y("row:N", sort=list(names), title=None, axis=alt.Axis(minExtent=room, **axis))
    across = alt.X(
        "column:N", sort=list(names), title=None, axis=alt.Axis(labelAngle=-60, minExtent=0.8 * room, **axis)
    )
    sign = alt.condition("datum.value < 0", alt.value(INK["other"]), alt.value(INK["made"]))
    opacity = alt.FillOpacity("size:Q", scale=alt.Scale(domain=[0, 1], range=[0, 1]), legend=None)
    base = alt.Chart(alt.InlineData(values=points))
    chart = base.mark_rect(stroke=INK["line"], strokeWidth=0.4).encode(across, up, fill=sign, fillOpacity=opacity)
    side = max(190, min(300, 17 * len(names)))
    return draw(chart.properties(width=side, height=side, title=title))


def _colours(kinds: Kinds) -> Any:
    alt = altair()
    scale = alt.Scale(domain=list(kinds), range=[INK[ink] for ink in kinds.values()])
    return alt.Color("kind:N", sort=list(kinds), title=None, legend=None, scale=scale)


def _marks(kinds: Kinds) -> Any:
    alt = altair()
    scale = alt.Scale(domain=list(kinds), range=["circle", "diamond", "square"][: len(kinds)])
    return alt.Shape("kind:N", scale=scale, title=None, legend=None)


def _key(kinds: Kinds) -> str:
    if len(kinds) < 2:
        return ""
    parts = (f'<span class="{ink}">{escape(kind)}</span>' for kind, ink in kinds.items())
    return f'<p class="key">{" ".join(parts)}</p>'


def _words(told: Sequence[str], most: int = 200) -> Any:
    """An axis of words, with room for a reader's font."""
    room = min(round(1.18 * most) + 12, 12 + max((round(7.6 * len(one)) for one in told), default=0))
    return altair().Axis(labelLimit=most, minExtent=room, ticks=False, domain=False, grid=False)


def _config() -> dict[str, Any]:
    ink, soft, line = INK["ink"], INK["soft"], INK["line"]
    words = {
        "labelColor": ink,
        "titleColor": soft,
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
    }
    return {
        "background": None,
        "font": _FONT,
        "padding": {"left": 4, "right": 28, "top": 6, "bottom": 4},
        "view": {"stroke": None},
        "title": {"color": ink, "anchor": "start", "fontSize": 13, "fontWeight": 600, "offset": 8},
        "axis": {**words, "gridColor": line, "domainColor": line, "tickColor": line, "titlePadding": 8},
    }

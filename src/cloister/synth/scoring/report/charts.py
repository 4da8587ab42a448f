"""The charts of a score, each with its caption."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from cloister.attack.report.interval import Interval, percent
from cloister.data.charts import altair, name_axis, style, to_svg
from cloister.data.report_page import INK, inked
from cloister.synth.scoring.utility.dependence import Map
from cloister.synth.scoring.utility.shapes import ColumnShape

if TYPE_CHECKING:
    from cloister.synth.scoring.score import Score

__all__ = [
    "MOST_COLUMNS",
    "apart_chart",
    "attacks_chart",
    "chance_chart",
    "columns_charts",
    "distances_chart",
    "learning_chart",
    "maps_charts",
    "marginals_chart",
    "ranges_chart",
]


# Colour legends are text of the page, above the drawing: a reader's font may be wider than the one used for layout.
_MISSING = "a report with charts needs Altair: pip install 'cloister[report]'."
_WIDTH = 330
Point = dict[str, Any]
Kinds = Mapping[str, str]
"""Label of a compared table, and the name of its colour."""


def draw(chart: Any) -> str:
    """Render a chart as SVG for a page that defines --ink, --soft, --line, --real, --made and --other."""
    return inked(to_svg(chart, style(INK, size=12, gap=8, right=28)))


def bars(points: Sequence[Point], kinds: Kinds, title: str) -> str:
    """Draw groups of bars, one above the other: points of {group, kind, value}."""
    alt = altair(_MISSING)
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
    """Draw points with intervals: {group, kind, value, low, high}; a dashed line marks chance."""
    alt = altair(_MISSING)
    base = alt.Chart(alt.InlineData(values=list(points)))
    groups = list(dict.fromkeys(point["group"] for point in points))
    span = [point[key] for point in points for key in ("low", "value", "high") if point.get(key) is not None]
    span += [] if rule is None else [rule]
    room = 0.04 * (max(span) - min(span))
    low_end = max(0.0, min(span) - room) if min(span) >= 0 else min(span) - room  # a share is not below zero
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
    """Draw lines: points of {kind, x, y}."""
    alt = altair(_MISSING)
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
    """Draw a column's shares: points of {kind, place, label, value}; bars for words, outlines for ordered values."""
    alt = altair(_MISSING)
    base = alt.Chart(alt.InlineData(values=list(points)))
    if words is not None:
        shape = {
            "y": alt.Y("label:N", sort=list(words), title=None, axis=_words(words, 100)),
            "yOffset": alt.YOffset("kind:N", sort=list(kinds)),
        }
        across = alt.X("value:Q", title=None, axis=alt.Axis(format="%", tickCount=4))
        chart = base.mark_bar().encode(across, color=_colours(kinds), **shape)
        return draw(chart.properties(width=170, height=max(50, 22 * len(words)), title=title))
    positions = list(dict.fromkeys(point["label"] for point in points))
    room = max(2, 240 // (8 * max(map(len, positions)) + 16))  # number of labels that fit side by side
    labels = positions[:: max(1, -(-len(positions) // room))]
    # The first label begins where the axis does: centred, it would overlap the other axis.
    first_left = {"condition": {"test": "datum.index == 0", "value": "left"}, "value": "center"}
    beside: dict[str, Any] = {"labelAngle": 0, "ticks": False, "labelAlign": first_left, "labelOverlap": False}
    across = alt.X("label:O", sort=positions, title=None, axis=alt.Axis(values=labels, **beside))
    up = alt.Y("value:Q", title=None, axis=alt.Axis(format="%", tickCount=4), stack=None)
    first, second = kinds
    real = base.transform_filter(f"datum.kind == '{first}'").mark_bar(color=INK["real"], opacity=0.45)
    synthetic = base.transform_filter(f"datum.kind == '{second}'").mark_line(
        color=INK["made"], strokeWidth=2, interpolate="step"
    )
    layers = real.encode(across, up) + synthetic.encode(across, up)
    return draw(layers.properties(width=240, height=130, title=title))


def heat(names: Sequence[str], values: Sequence[Sequence[float | None]], most: float, title: str) -> str:
    """Draw a square map: the fuller a cell, the larger the number; in another colour if it is negative."""
    alt = altair(_MISSING)
    points = [
        {"row": a, "column": b, "value": value, "size": min(1.0, abs(value or 0.0) / most) if most > 0 else 0.0}
        for a, line in zip(names, values, strict=True)
        for b, value in zip(names, line, strict=True)  # a missing number is an empty cell: a map without gaps
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
    alt = altair(_MISSING)
    scale = alt.Scale(domain=list(kinds), range=[INK[ink] for ink in kinds.values()])
    return alt.Color("kind:N", sort=list(kinds), title=None, legend=None, scale=scale)


def _marks(kinds: Kinds) -> Any:
    alt = altair(_MISSING)
    scale = alt.Scale(domain=list(kinds), range=["circle", "diamond", "square"][: len(kinds)])
    return alt.Shape("kind:N", scale=scale, title=None, legend=None)


def _key(kinds: Kinds) -> str:
    if len(kinds) < 2:
        return ""
    parts = (f'<span class="{ink}">{escape(kind)}</span>' for kind, ink in kinds.items())
    return f'<p class="key">{" ".join(parts)}</p>'


def _words(words: Sequence[str], most: int = 200) -> Any:
    """Return an axis of words, with room for a reader's font."""
    return name_axis(words, most, letter=7.6)


Drawn = tuple[str, str]
MOST_COLUMNS = 24  # that are drawn
_MOST_WORDS, _FEW_PLACES, _MOST_PAIRS = 8, 3, 5
_FRAMES = {"bootstrap": "real rows drawn again", "independent": "independent columns"}
_SHAPE = {"real": "real", "synthetic": "made"}


def marginals_chart(score: "Score") -> Drawn:
    """Draw errors of marginals between their two reference tables."""
    points: list[dict[str, Any]] = []
    for marginal in score.marginals:
        group = f"{marginal.way} column{'s' if marginal.way > 1 else ''} at a time"
        values = {
            "this synthetic table": marginal.mean.value,
            **{_FRAMES[name]: marginal.frames[name] for name in _FRAMES},
        }
        points += [{"group": group, "kind": kind, "value": x, "text": f"{x:.3f}"} for kind, x in values.items()]
    last = score.marginals[-1]
    text = (
        f"To turn the synthetic table into the real one, as far as {last.way} columns at a time can tell, "
        f"{percent(last.mean.value)} of its rows would have to change on average; the farthest off is "
        f"{' × '.join(last.worst[0])} with {percent(last.worst[1])}."
    )
    kinds = dict(zip(("this synthetic table", *_FRAMES.values()), ("made", "real", "other"), strict=True))
    return bars(points, kinds, "share of rows that would have to change"), text


def ranges_chart(score: "Score") -> Drawn:
    """Draw the distribution of errors of range queries."""
    errors = np.sort(score.ranges.errors)
    positions = np.unique(np.linspace(0, len(errors) - 1, 120).astype(int))
    points = [{"kind": "synthetic", "x": float(errors[i]), "y": (i + 1) / len(errors)} for i in positions]
    fresh = "" if score.ranges.fresh is None else f"; fresh real rows are off by {percent(score.ranges.fresh, 2)}"
    text = (
        f"{len(errors):,} questions of the kind “how many rows lie between these two and have one of those?”: "
        f"on average the answer is off by {percent(score.ranges.mean.value, 2)} of all rows, in 19 of 20 by at most "
        f"{percent(score.ranges.quantile(0.95), 2)}{fresh}."
    )
    kinds = {"synthetic": "made"}
    return lines(points, kinds, "error of the answer, as a share of all rows", "share of questions"), text


def apart_chart(score: "Score") -> Drawn:
    """Draw how well models distinguish synthetic rows from real ones."""
    kinds = {"this synthetic table": "made", "rows of one population": "real"}
    points = [
        {"group": result.model, "kind": kind, "value": value, "text": f"{value:.2g}"}
        for result in score.propensity
        for kind, value in zip(kinds, (result.value, result.expected), strict=True)
    ]
    times = " and ".join(f"{result.ratio:.3g} for a {result.model}" for result in score.propensity)
    text = (
        "A model is shown rows of both tables and says how likely each is to be synthetic. How far that is from even "
        f"odds, over what chance alone does: {times}. At 1 nobody tells the tables apart; noise that protects people "
        "shows here."
    )
    return bars(points, kinds, "distance from even odds, squared (pMSE)"), text


def learning_chart(score: "Score") -> Drawn:
    """Draw the results of trained models."""
    learning = score.learning
    assert learning is not None
    kinds = {"trained on synthetic rows": "made", "trained on real rows": "real"}
    points = [
        {"group": model, "kind": kind, **result.accuracy.to_json()}
        for kind, models in zip(kinds, (learning.synthetic, learning.real), strict=True)
        for model, result in models.items()
    ]
    synthetic = learning.synthetic["logistic regression"]
    best = learning.real["logistic regression"]
    auc = (
        ""
        if synthetic.auc is None or best.auc is None
        else f" (AUC {synthetic.auc.value:.3f}, from real rows {best.auc.value:.3f})"
    )
    where = "rows that were held back" if learning.held_back else "rows that the generator saw, which is too kind"
    text = (
        f"Models that learn {learning.target} from synthetic rows, tested on real {where}: logistic regression is "
        f"right for {percent(synthetic.accuracy.value)}{auc}. Saying the more frequent answer to everybody is right "
        f"for {percent(learning.floor)} (dashed)."
    )
    return intervals(points, kinds, "right answers on real rows", learning.floor), text


def attacks_chart(score: "Score") -> Drawn:
    """Draw attacks whose chance level is one half."""
    near, guessed = score.closeness, score.membership
    assert near is not None
    assert guessed is not None
    rates = {
        "guesses who was in the table": guessed.right,
        "real rows nearer than strangers": near.nearer,
        "synthetic rows closer to real ones": near.closer,
    }
    points = [{"group": name, "kind": "right", **rate.to_json()} for name, rate in rates.items()]
    low, high = guessed.right.low or 0.0, guessed.right.high or 1.0
    beats = (
        "no better than a coin" if low <= 0.5 <= high else "better than a coin" if low > 0.5 else "worse than a coin"
    )
    text = (
        f"An attacker who guesses from the synthetic table whether somebody was in the real one is right in "
        f"{percent(guessed.right.value)} of {guessed.guesses:,} tries: {beats} (dashed)."
    )
    return intervals(points, {"right": "made"}, "how often it succeeds", 0.5), text


def chance_chart(score: "Score") -> Drawn:
    """Draw attacks that also succeed by chance: real against held-out rows."""
    kinds = {"found": "made", "by chance, from rows held back": "real"}
    pairs: dict[str, tuple[Interval, Interval | None]] = {"copied exactly": (score.copies.real, score.copies.fresh)}
    single = score.singling_out
    if single is not None:
        pairs["rule fits one person"] = single.real, single.fresh
    points = [
        {"group": name, "kind": kind, **rate.to_json()}
        for name, both in pairs.items()
        for kind, rate in zip(kinds, both, strict=True)
        if rate is not None
    ]
    text = (
        f"{score.copies.synthetic:,} of {score.copies.rows:,} synthetic rows are equal to a real one to the last digit."
    )
    if score.copies.fresh is None:
        text += " No rows were held back, so how many that would be by chance is not known."
    if single is not None:
        text += (
            f" Rules read off the synthetic table fit exactly one real row in {percent(single.real.value)} of "
            f"{single.rules:,} tries; if the table knew nobody, {percent(single.fresh.value)} would: only the "
            "difference counts."
        )
    if score.copies.fresh is None:
        kinds = {"found": "made"}
    return intervals(points, kinds, "share"), text


def distances_chart(score: "Score") -> Drawn:
    """Draw the distance to the closest record."""
    near = score.closeness
    assert near is not None
    kinds = {"closest row in the table": "made", "closest row held back": "real"}
    points = [
        {"kind": kind, "x": distance, "y": share}
        for kind, quantiles in zip(kinds, (near.real, near.fresh), strict=True)
        for share, distance in quantiles.items()
    ]
    text = (
        "How far synthetic rows are from the closest real row, and from the closest row that the generator never saw. "
        "If the table copies nobody, the two lines lie on each other; a line that starts earlier tells of copies. "
        f"{percent(near.closer.value)} of synthetic rows are closer to one of {score.attacked:,} real rows than to one "
        "of as many held back."
    )
    return lines(points, kinds, "distance (0: equal, 1: different in everything)", "share of synthetic rows"), text


def columns_charts(score: "Score") -> Iterator[Drawn]:
    """Draw each column by itself, the worst first."""
    for shape in sorted(score.shapes, key=lambda column: -column.error)[:MOST_COLUMNS]:
        yield _column(shape), f"{shape.name}: {percent(shape.error)} of rows would have to change."


def _column(shape: ColumnShape) -> str:
    labels, shares = list(shape.labels), {"real": list(shape.real), "synthetic": list(shape.synthetic)}
    outlined = shape.ordered and len(labels) > _FEW_PLACES
    if not shape.ordered and len(labels) > _MOST_WORDS:
        order = np.argsort(shape.real, kind="stable")[::-1]
        largest = order[: _MOST_WORDS - 1]
        for kind, values in shares.items():
            shares[kind] = [values[i] for i in largest] + [sum(values[i] for i in order[_MOST_WORDS - 1 :])]
        labels = [labels[i] for i in largest] + [f"{len(order) - len(largest)} others"]
    points = [
        {"kind": kind, "label": label, "value": value}
        for kind in _SHAPE
        for label, value in zip(labels, shares[kind], strict=True)
    ]
    return steps(points, _SHAPE, shape.name, None if outlined else labels)


def maps_charts(score: "Score") -> Iterator[tuple[str, str, list[Drawn]]]:
    """Draw the dependence maps: a heading, a sentence, three charts."""
    maps = (("Correlations", "correlation", score.correlations), ("What tells of what", "bits", score.information))
    for heading, unit, dependence in maps:
        if dependence is None or dependence.mean is None:
            continue
        fresh = "" if dependence.fresh is None else f"; for fresh real rows that is {dependence.fresh:.3f}"
        size = f"{dependence.mean:.3f} {unit}" if unit == "bits" else f"{dependence.mean:.3f}"
        sentence = f"Real and synthetic differ by {size} on average over pairs of columns{fresh}."
        listed = [
            f"{a} and {b} {real:.2f}, here {synthetic:.2f}"
            for a, b, real, synthetic in dependence.strongest(_MOST_PAIRS)
        ]
        sentence += f" The strongest in the real rows: {'; '.join(listed)}." if listed else ""
        yield heading, sentence, _three(dependence, " bits" if unit == "bits" else "")


def _three(dependence: Map, unit: str) -> list[Drawn]:
    most = max(float(np.nanmax(np.abs(table))) for table in (dependence.real, dependence.synthetic))
    worst = dependence.worst
    far = "" if worst is None else f" The farthest off: {worst[0]} and {worst[1]}, {worst[2]:+.3f}."
    listed = dependence.to_json()
    below = any((np.nan_to_num(table) < 0).any() for table in (dependence.real, dependence.synthetic))
    negative = "; the other colour is negative" if below else ""
    less = ", where the other colour is less" if (np.nan_to_num(dependence.difference) < 0).any() else ""
    texts = {
        "real": f"Real rows. A full cell is {most:.2f}{unit}{negative}.",
        "synthetic": "Synthetic rows, on the same scale.",
        "difference": f"Synthetic less real, on the same scale{less}.{far}",
    }
    return [(heat(dependence.names, listed[kind], most, kind), text) for kind, text in texts.items()]

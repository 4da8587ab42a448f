"""The pictures of a release: what each column lost, sizes of classes, attacks, the lattice. SVG for a page.

Every colour is a placeholder for a CSS variable, so that one drawing serves light, dark and print.
"""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise, product
from typing import Any

import numpy as np
import pyarrow as pa

from cloister.anonymize.algorithms.lattice import Node, Search
from cloister.anonymize.risks.attackers import Risk, RiskReport
from cloister.data.charts import altair, name_axis, style, to_svg
from cloister.data.report_page import INK, inked

__all__ = ["attacks_chart", "gauge", "lattice_chart", "losses_chart", "sizes_chart"]

MISSING = "a report with charts needs Altair: pip install 'cloister[report]'."
_WIDTH = 330
_MOST_NAMES = 24
_MOST_DRAWN = 48  # nodes of the lattice at one height
_MOST_EDGES = 600
_BINS = 12
_KINDS = ("not visited", "visited, does not satisfy", "visited, satisfies", "chosen")
_DOTS = (30, 44, 60, 260)
Drawn = tuple[str, str]
"""SVG and its caption."""


def _draw(chart: Any) -> str:
    return inked(to_svg(chart, style(INK, size=12, gap=8, right=40)))


def _bars(
    points: Sequence[Mapping[str, Any]], title: str, ink: str, domain: Sequence[float] | None = None, form: str = ""
) -> str:
    """Draw horizontal bars: points of {name, value, text}. `form` is how the axis writes its numbers."""
    alt = altair(MISSING)
    base = alt.Chart(alt.InlineData(values=list(points)))
    names = [str(point["name"]) for point in points]
    scale = alt.Scale(domain=list(domain)) if domain else alt.Scale()
    shape = {
        "y": alt.Y("name:N", sort=names, title=None, axis=name_axis(names, 200, letter=7.6)),
        "x": alt.X(
            "value:Q", title=title, scale=scale, axis=alt.Axis(tickCount=5, **({"format": form} if form else {}))
        ),
    }
    box = base.mark_bar(cornerRadiusEnd=2, color=INK[ink]).encode(**shape)
    text = base.mark_text(align="left", dx=4, fontSize=11, color=INK["soft"]).encode(text="text:N", **shape)
    return _draw((box + text).properties(width=_WIDTH, height=max(60, 26 * len(points))))


def losses_chart(columns: Mapping[str, float]) -> Drawn:
    """Draw the certainty penalty of each quasi-identifier."""
    worst = sorted(columns.items(), key=lambda entry: -entry[1])
    points = [{"name": _cut(name), "value": loss, "text": f"{loss:.3f}"} for name, loss in worst[:_MOST_NAMES]]
    name, loss = worst[0]
    text = (
        f"What each quasi-identifier lost: the share of its domain that a cell stands for. 0 is a value as it was, 1 "
        f"is nothing. Most was lost in {name} ({loss:.3f})."
    )
    return _bars(points, "certainty penalty", "made", [0, max(0.05, 1.15 * loss)]), text


def sizes_chart(rows: pa.Table, quasi: Sequence[str], smallest: int) -> Drawn:
    """Draw how many rows are in classes of which size."""
    sizes = np.asarray(rows.group_by(list(quasi)).aggregate([([], "count_all")])["count_all"].to_numpy(), np.int64)
    edges = np.unique(np.geomspace(max(1, int(sizes.min())), int(sizes.max()) + 1, _BINS + 1).astype(np.int64))
    points = []
    for low, high in pairwise(edges):
        inside = sizes[(sizes >= low) & (sizes < high)]
        name = f"{low:,}" if high == low + 1 else f"{low:,} to {high - 1:,}"
        count = int(inside.sum())
        points.append({"name": name, "value": count, "text": f"{count:,}"})
    classes = f"{len(sizes):,} class{'' if len(sizes) == 1 else 'es'}"
    text = (
        f"{int(sizes.sum()):,} rows in {classes} of rows that look alike. The smallest class has {int(sizes.min()):,} "
        f"rows, the largest {int(sizes.max()):,}; no class may have fewer than {smallest:,}."
    )
    return _bars(points, "rows, by the size of their class", "made"), text


def attacks_chart(report: RiskReport) -> Drawn:
    """Draw the share of records that each attack puts at risk."""
    attacks = sorted(report.attacks, key=lambda attack: -attack.share)[:_MOST_NAMES]
    points = [{"name": _cut(a.name), "value": a.share, "text": f"{a.share:.1%}"} for a in attacks]
    worst = attacks[0]
    text = f"Share of the records that each attack puts at risk. The worst is {worst.name}, with {worst.share:.1%}."
    most = max(0.05, 1.15 * worst.share)
    return _bars(points, "share of the records at risk", "other", [0, most], ".0%"), text


def gauge(measure: Risk) -> str:
    """Draw the risk by which an attacker is judged on a scale from 0 to 100 %, with the threshold."""
    label = escape(f"{measure.name}: risk {measure.judged:.1%}, threshold {measure.threshold:.0%}", quote=True)
    ink = "other" if measure.judged > measure.threshold else "made"
    at = 200 * measure.threshold
    return (
        f'<svg viewBox="0 0 208 34" width="208" height="34" role="img" aria-label="{label}">'
        '<rect x="0" y="8" width="200" height="12" rx="6" fill="var(--line)"/>'
        f'<rect x="0" y="8" width="{max(3.0, 200 * min(1.0, measure.judged)):.1f}" height="12" rx="6" '
        f'fill="var(--{ink})"/><line x1="{at:.1f}" x2="{at:.1f}" y1="3" y2="25" stroke="var(--ink)" stroke-width="2"/>'
        f'<text x="{min(at, 170):.1f}" y="34" font-size="9" fill="var(--soft)">threshold</text></svg>'
    )


def lattice_chart(search: Search, names: Sequence[str]) -> Drawn:
    """Draw the lattice: a dot for each combination of levels, by height, with the way it was judged."""
    alt = altair(MISSING)
    nodes = _shown(search)
    points, places = _placed(nodes, search)
    height = sum(search.heights)
    axis = alt.Axis(tickCount=min(height + 1, 8), format="d", grid=False)
    up = alt.Y("height:Q", title="sum of levels: more general above", axis=axis)
    across = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-1.05, 1.05]))
    edges = _edges(nodes, places)
    lines = alt.Chart(alt.InlineData(values=edges)).mark_rule(color=INK["line"], strokeWidth=0.8)
    dots = alt.Chart(alt.InlineData(values=points))
    inks = alt.Scale(domain=list(_KINDS), range=[INK[ink] for ink in ("line", "real", "made", "other")])
    shapes = alt.Scale(domain=list(_KINDS), range=["circle", "cross", "circle", "diamond"])
    drawn = dots.mark_point(opacity=1, strokeWidth=0.6, stroke=INK["soft"]).encode(
        across,
        up,
        fill=alt.Fill("kind:N", legend=None, scale=inks),
        shape=alt.Shape("kind:N", legend=None, scale=shapes),
        size=alt.Size("size:Q", legend=None, scale=None),
        order=alt.Order("size:Q"),
    )
    words = dots.transform_filter(alt.datum.kind == _KINDS[-1]).mark_text(
        dy=-15, fontSize=12, fontWeight=600, color=INK["ink"]
    )
    layers = [lines.encode(across, up, x2="x2:Q", y2="height2:Q")] if edges else []
    chart = alt.layer(*layers, drawn, words.encode(across, up, text=alt.value("chosen")))
    chart = chart.properties(width=860, height=max(140, min(420, 34 * (height + 1))))
    key = '<p class="key"><span class="line">not visited</span> <span class="real">visited, does not satisfy</span> '
    key += '<span class="made">visited, satisfies</span> <span class="other">chosen</span></p>'
    return key + _draw(chart), _lattice_caption(search, names, len(nodes))


def _lattice_caption(search: Search, names: Sequence[str], drawn: int) -> str:
    assert search.best is not None
    levels = ", ".join(
        f"{name} at level {level} of {top}"
        for name, level, top in zip(names, search.best.node, search.heights, strict=True)
    )
    part = "" if drawn == search.nodes else f" {drawn:,} of them are drawn."
    proof = (
        "No combination that satisfies the models loses less, whatever is suppressed: that is proven."
        if search.optimal
        else f"Not proven to be the best: the loss is {search.verdict}."
    )
    return (
        f"Each dot is one combination of levels, the most general at the top; there are {search.nodes:,}.{part} "
        f"{search.visited:,} were evaluated, the rest were ruled out many at a time. Chosen: {levels}. {proof}"
    )


def _shown(search: Search) -> list[Node]:
    """Return the nodes to draw: all of a small lattice, else the visited ones, evenly chosen at each height."""
    if search.nodes <= 10 * _MOST_DRAWN:
        nodes: Sequence[Node] = list(product(*(range(top + 1) for top in search.heights)))
    else:
        nodes = list(search.seen)
    by_height: dict[int, list[Node]] = {}
    for node in sorted(nodes):
        by_height.setdefault(sum(node), []).append(node)
    chosen = []
    for level in by_height.values():
        # Nodes that satisfy the models go first: a sample that leaves them out would show nothing.
        level.sort(key=lambda node: -_rank(node, search))
        best = [node for node in level if _rank(node, search) == 3]
        rest = [node for node in level if node not in best]
        step = max(1, -(-len(rest) // (_MOST_DRAWN - len(best))))
        chosen += best + rest[::step]
    return chosen


def _rank(node: Node, search: Search) -> int:
    if search.best is not None and node == search.best.node:
        return 3
    evaluated = search.seen.get(node)
    return 0 if evaluated is None else 2 if np.isfinite(evaluated.loss) else 1


def _placed(nodes: Sequence[Node], search: Search) -> tuple[list[dict[str, Any]], dict[Node, float]]:
    rows: dict[int, list[Node]] = {}
    for node in sorted(nodes):
        rows.setdefault(sum(node), []).append(node)
    widest = max(map(len, rows.values()))
    places: dict[Node, float] = {}
    for row in rows.values():
        half = len(row) / widest
        for place, node in enumerate(row):
            places[node] = half * (2 * (place + 0.5) / len(row) - 1)
    points = [
        {"x": places[node], "height": sum(node), "kind": _KINDS[rank], "size": _DOTS[rank]}
        for node in nodes
        for rank in [_rank(node, search)]
    ]
    return points, places


def _edges(nodes: Sequence[Node], places: Mapping[Node, float]) -> list[dict[str, float]]:
    """Return a line between each two nodes that differ by one level; none if there would be too many."""
    edges = []
    for node in nodes:
        for axis, level in enumerate(node):
            above = (*node[:axis], level + 1, *node[axis + 1 :])
            if above in places:
                edges.append({"x": places[node], "height": sum(node), "x2": places[above], "height2": sum(node) + 1})
    return edges if len(edges) <= _MOST_EDGES else []


def _cut(name: str, most: int = 40) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"

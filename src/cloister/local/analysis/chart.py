"""Charts of findings, by Vega-Lite: shares with intervals, and the truth where it is known."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cloister.data.charts import PALETTE, altair, chart_of, to_html, to_png, to_svg
from cloister.local.analysis.finding import Finding
from cloister.local.base.oracle import Floats
from cloister.privacy.errors import BadInput

__all__ = ["chart", "draw"]

_RAW, _PROJECTED, _TRUTH = "estimate, raw", "estimate, projected", "truth (a lesson: not private)"
# Legible without colours: every mark has its own shape.
_COLOURS = {_RAW: PALETTE["blue"], _PROJECTED: PALETTE["teal"], _TRUTH: PALETTE["orange"]}
_SHAPES = {_RAW: "circle", _PROJECTED: "diamond", _TRUTH: "cross"}


def draw(findings: Sequence[Finding], path: Path | str, truths: Mapping[str, Floats] | None = None) -> None:
    """Write a chart of all findings as SVG, PNG or HTML, by the file's extension."""
    file = Path(path)
    if file.suffix not in (".svg", ".png", ".html"):
        raise BadInput("a chart is written as .svg, .png or .html; give its name such an ending.")
    parts = [chart(finding, (truths or {}).get(finding.question.id)) for finding in findings]
    if file.suffix == ".html":
        file.write_text(to_html(parts), encoding="utf-8")
    elif file.suffix == ".svg":
        file.write_text(to_svg(altair().vconcat(*parts)), encoding="utf-8")
    else:
        file.write_bytes(to_png(altair().vconcat(*parts)))


def chart(finding: Finding, truth: Floats | None = None) -> Any:
    """Return a chart of one finding: raw shares with intervals, projected shares, and the truth if given."""
    alt = altair()
    points = _points(finding, truth)
    kinds = [kind for kind in _COLOURS if any(point["kind"] == kind for point in points)]
    names = [row["value"] for row in finding.rows()]
    kind = {
        "color": alt.Color(
            "kind:N", scale=alt.Scale(domain=kinds, range=[_COLOURS[label] for label in kinds]), title=None
        ),
        "shape": alt.Shape(
            "kind:N", scale=alt.Scale(domain=kinds, range=[_SHAPES[label] for label in kinds]), title=None
        ),
    }
    level = sum(len(name) for name in names) <= 60
    across = alt.X(
        "value:N", sort=names, title=None, scale=alt.Scale(type="band"), axis=alt.Axis(labelAngle=0 if level else -60)
    )
    beside = alt.XOffset("kind:N", scale=alt.Scale(domain=kinds))  # side by side, so that no mark hides another
    base = chart_of(points)
    bars = base.transform_filter(f"datum.kind == '{_RAW}'").mark_rule(strokeWidth=2, color=_COLOURS[_RAW])
    dots = base.mark_point(filled=True, size=70).encode(
        across,
        beside,
        alt.Y("share:Q", title=_axis(finding), scale=alt.Scale(zero=finding.question.kind != "number")),
        **kind,
    )
    sure = f"{100 * finding.raw.confidence:g} % intervals"
    return (bars.encode(across, beside, alt.Y("low:Q"), alt.Y2("high:Q")) + dots).properties(
        width=max(240, min(900, 60 * len(names))),
        height=220,
        title=f"{finding.question.id}: {finding.raw.n:,} reports, {sure} of raw estimates",
    )


def _axis(finding: Finding) -> str:
    return "mean" if finding.question.kind == "number" else "share of people"


def _points(finding: Finding, truth: Floats | None) -> list[dict[str, Any]]:
    points = []
    for index, row in enumerate(finding.rows()):
        name = {"value": row["value"]}
        points.append({**name, "kind": _RAW, "share": row["raw"], "low": row["low"], "high": row["high"]})
        points.append({**name, "kind": _PROJECTED, "share": row["projected"]})
        if truth is not None:
            points.append({**name, "kind": _TRUTH, "share": float(truth[index])})
    return points

"""Pictures of an exercise, by Vega-Lite; legible without colours, made without a network."""

from typing import Any

from cloister.learn.exercise.comparison import PLAIN, SETTINGS, Comparison
from cloister.privacy.errors import MissingExtra

__all__ = ["charts", "html", "png", "svg"]

_COLOURS = ["#3b4fa0", "#0f6b66", "#b45309", "#9c3d78"]
_TITLES = {"accuracy": "accuracy", "auc": "AUC", "calibration": "calibration error", "gap": "gap between groups"}


def charts(found: Comparison) -> dict[str, Any]:
    """Every chart by the name of its file."""
    alt = _altair()
    made = {}
    if found.means:
        made["released-means"] = _means(alt, found)
    for measure, title in _TITLES.items():
        points = _points(found, measure)
        if points:
            made[measure] = _lines(alt, found, points, measure, title)
    return made


def html(found: Comparison, title: str) -> str:
    """All charts in one page that needs no network."""
    alt = _altair()
    page: str = alt.vconcat(*charts(found).values()).properties(title=title).to_html(inline=True)
    return page


def svg(chart: Any) -> str:
    """A chart as SVG."""
    import vl_convert

    drawn: str = vl_convert.vegalite_to_svg(chart.to_json(), allowed_base_urls=[])
    return drawn


def png(chart: Any) -> bytes:
    """A chart as PNG."""
    import vl_convert

    drawn: bytes = vl_convert.vegalite_to_png(chart.to_json(), scale=2, allowed_base_urls=[])
    return drawn


def _altair() -> Any:
    try:
        import altair
        import vl_convert  # noqa: F401
    except ImportError:
        raise MissingExtra("charts need Altair: pip install 'cloister[hub]'.") from None
    return altair


def _means(alt: Any, found: Comparison) -> Any:
    points = [{"epsilon": float(amount), "mean": value} for amount, value in found.means]
    across = _across(alt, found)
    base = alt.Chart(alt.Data(values=points))
    dots = base.mark_point(opacity=0.35, color=_COLOURS[0]).encode(
        across, alt.Y("mean:Q", title=f"released mean of {found.statistic}", scale=alt.Scale(zero=False))
    )
    average = base.mark_line(color=_COLOURS[2]).encode(across, alt.Y("mean(mean):Q"))
    true = alt.Chart(alt.Data(values=[{"true": found.true_value}])).mark_rule(strokeDash=[6, 4]).encode(y="true:Q")
    title = f"Released means of {found.statistic}; dashed: the true value (not private)"
    return (dots + average + true).properties(width=460, height=220, title=title)


def _across(alt: Any, found: Comparison) -> Any:
    ticks = alt.Axis(values=[float(amount) for amount in found.epsilons], format="~g")
    return alt.X("epsilon:Q", scale=alt.Scale(type="log"), axis=ticks, title="epsilon")


def _points(found: Comparison, measure: str) -> list[dict[str, Any]]:
    points = []
    for estimator in found.estimators:
        for setting in SETTINGS:
            for amount in found.epsilons:
                told = found.mean(measure, estimator, setting, None if setting == PLAIN else amount)
                if told is not None:
                    facts = {"estimator": estimator, "setting": setting, "epsilon": float(amount), "value": told[0]}
                    points.append({**facts, "low": told[0] - 2 * told[1], "high": told[0] + 2 * told[1]})
    return points


def _lines(alt: Any, found: Comparison, points: list[dict[str, Any]], measure: str, title: str) -> Any:
    base = alt.Chart().encode(
        x=_across(alt, found),
        color=alt.Color("setting:N", scale=alt.Scale(domain=list(SETTINGS), range=_COLOURS), title=None),
    )
    value = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False))
    dashes = alt.StrokeDash("setting:N", scale=alt.Scale(domain=list(SETTINGS)), title=None)
    layers = [
        base.mark_line(point=True).encode(y=value, strokeDash=dashes),
        base.mark_rule(opacity=0.5).encode(y="low:Q", y2="high:Q"),
    ]
    if measure == "accuracy":
        layers.append(alt.Chart().mark_rule(strokeDash=[2, 3]).encode(y=alt.datum(found.majority)))
    body = alt.layer(*layers, data=alt.Data(values=points)).properties(width=300, height=200)
    told = f"{title} of {found.target}" + ("; dotted: always the most common class" if measure == "accuracy" else "")
    return body.facet(column=alt.Column("estimator:N", title=None)).properties(title=told)

"""The report of an exercise."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from cloister.data.charts import PALETTE, altair, to_html, to_png, to_svg
from cloister.lessons.compare.comparison import DATA, MODEL, PLAIN, SETTINGS, Comparison
from cloister.lessons.compare.scores import MEASURES
from cloister.privacy.errors import StoreFailed

__all__ = ["markdown", "write"]


# Charts are legible without colours


_COLOURS = [PALETTE[name] for name in ("blue", "teal", "orange", "purple")]
_TITLES = {"accuracy": "accuracy", "auc": "AUC", "calibration": "calibration error", "gap": "gap between groups"}


def charts(found: Comparison) -> dict[str, Any]:
    """Return every chart by its file name."""
    alt = altair()
    made = {}
    if found.means:
        made["released-means"] = _charts_means(alt, found)
    for measure, title in _TITLES.items():
        points = _points(found, measure)
        if points:
            made[measure] = _lines(alt, found, points, measure, title)
    return made


def html(found: Comparison, title: str) -> str:
    """Return all charts in one page that needs no network."""
    return to_html(list(charts(found).values()), title)


def _charts_means(alt: Any, found: Comparison) -> Any:
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


_WARNING = (
    "**A lesson, not a release: nothing here is private.** It draws the true value, scores models on raw rows and "
    "tries many epsilons; choosing an epsilon by looking at such pictures is a look at the data too."
)


def markdown(found: Comparison, pictures: dict[str, str] | None = None) -> str:
    """Return the report. Images are chart files by name."""
    parts = [f"# What noise costs: predicting {found.target}", _WARNING, _cost(found)]
    parts.append(f"{found.rows[0]:,} rows to learn from, {found.rows[1]:,} to test on. {_lines_of(found)}")
    if found.means:
        parts += [f"## 1. Noise on a statistic: the mean of {found.statistic}", _means(found)]
        parts += _picture(pictures, "released-means")
    parts.append("## 2 to 4. Noise in the model, in the data, in both")
    for measure, meaning in MEASURES.items():
        table = _measure(found, measure)
        if table:
            parts += [f"### {measure}: {meaning}", table, *_picture(pictures, measure)]
    if found.by_group:
        parts += [f"## Groups of {found.group}, at epsilon {found.epsilons[-1]}", _groups(found)]
    parts += ["## What to see", _lesson()]
    return "\n\n".join(parts) + "\n"


def write(found: Comparison, folder: str | os.PathLike[str]) -> list[Path]:
    """Write report.md, charts.html, and every chart as PNG and SVG."""
    place = Path(folder)
    drawn = charts(found)
    pictures = {name: f"{name}.png" for name in drawn}
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, chart in drawn.items():
            (place / f"{name}.svg").write_text(to_svg(chart), encoding="utf-8")
            (place / f"{name}.png").write_bytes(to_png(chart))
        title = f"What noise costs: predicting {found.target} (a lesson, not private)"
        (place / "charts.html").write_text(html(found, title), encoding="utf-8")
        (place / "report.md").write_text(markdown(found, pictures), encoding="utf-8")
    except OSError as error:
        raise StoreFailed(f"the report could not be written to {place} ({error.strerror}).") from None
    names = ["report.md", "charts.html", *(f"{name}.{form}" for name in drawn for form in ("png", "svg"))]
    return [place / name for name in names]


def _cost(found: Comparison) -> str:
    return (
        f"Had it all been released, the means and private models would have cost **{found.model_cost}** together (one "
        f"row added or removed), and the noisy tables **{found.table_cost}**. Each private model has the epsilon named "
        f"at delta {found.delta}."
    )


def _lines_of(found: Comparison) -> str:
    return f"Always the most common class: {100 * found.majority:.1f} %. A model below that line has learnt nothing."


def _means(found: Comparison) -> str:
    rows = []
    for amount in found.epsilons:
        told = np.array([value for one, value in found.means if one == amount])
        true = found.true_value or 0.0
        rows.append([amount, f"{told.mean():.4g}", f"{np.sqrt(((told - true) ** 2).mean()):.3g}", f"{len(told)}"])
    head = ["epsilon", "average release", "typical error of one", "repetitions"]
    said = f"True value {found.true_value:.4g} (not private). Averaging releases is no trick: each one was paid for."
    return f"{said}\n\n{_table(head, rows)}"


def _measure(found: Comparison, measure: str) -> str:
    rows = []
    for estimator in found.estimators:
        for setting in SETTINGS:
            cells = [found.mean(measure, estimator, setting, amount) for amount in found.epsilons]
            if any(cells):
                rows.append([estimator, setting, *map(_cell, cells)])
    return _table(["model", "where the noise is", *(f"ε {one}" for one in found.epsilons)], rows) if rows else ""


def _cell(told: tuple[float, float] | None) -> str:
    return "" if told is None else f"{told[0]:.3f}" + (f" ± {2 * told[1]:.3f}" if told[1] else "")


def _groups(found: Comparison) -> str:
    rows = [
        [one["estimator"], one["setting"], found.groups[one["group"]], f"{one['rows']:,}"]
        + [f"{one[name]:.3f}" for name in ("accuracy", "predicted", "true")]
        for one in found.by_group
        if one["setting"] in (PLAIN, MODEL, DATA)
    ]
    head = ["model", "where the noise is", "group", "test rows", "accuracy", "last class predicted", "and true"]
    return _table(head, rows)


def _lesson() -> str:
    return (
        "- Noise in the model is paid once for a few numbers; noise in the data is paid for every cell of every row.\n"
        "- A private model on noisy data is charged twice by habit, but costs no more than the noisy data alone: "
        "whatever is computed from them is free. Its own noise is wasted.\n"
        "- Noise on a few columns, or less than a column's range needs, would protect nobody; so every cell has it.\n"
        "- A gap between groups may grow when small groups drown in noise: look at it before a model is used."
    )


def _picture(pictures: dict[str, str] | None, name: str) -> list[str]:
    return [f"![{name}]({pictures[name]})"] if pictures and name in pictures else []


def _table(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)

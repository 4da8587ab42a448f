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
    drawn = {}
    if found.means:
        drawn["released-means"] = _charts_means(alt, found)
    for measure, title in _TITLES.items():
        points = _points(found, measure)
        if points:
            drawn[measure] = _lines(alt, found, points, measure, title)
    return drawn


def html(found: Comparison, title: str) -> str:
    """Return all charts in one page that needs no network."""
    return to_html(list(charts(found).values()), title)


def _charts_means(alt: Any, comparison: Comparison) -> Any:
    points = [{"epsilon": float(amount), "mean": value} for amount, value in comparison.means]
    across = _across(alt, comparison)
    base = alt.Chart(alt.Data(values=points))
    dots = base.mark_point(opacity=0.35, color=_COLOURS[0]).encode(
        across, alt.Y("mean:Q", title=f"released mean of {comparison.statistic}", scale=alt.Scale(zero=False))
    )
    average = base.mark_line(color=_COLOURS[2]).encode(across, alt.Y("mean(mean):Q"))
    true = alt.Chart(alt.Data(values=[{"true": comparison.true_value}])).mark_rule(strokeDash=[6, 4]).encode(y="true:Q")
    title = f"Released means of {comparison.statistic}; dashed: the true value (not private)"
    return (dots + average + true).properties(width=460, height=220, title=title)


def _across(alt: Any, comparison: Comparison) -> Any:
    ticks = alt.Axis(values=[float(amount) for amount in comparison.epsilons], format="~g")
    return alt.X("epsilon:Q", scale=alt.Scale(type="log"), axis=ticks, title="epsilon")


def _points(comparison: Comparison, measure: str) -> list[dict[str, Any]]:
    points = []
    for estimator in comparison.estimators:
        for setting in SETTINGS:
            for amount in comparison.epsilons:
                estimate = comparison.mean(measure, estimator, setting, None if setting == PLAIN else amount)
                if estimate is not None:
                    facts = {"estimator": estimator, "setting": setting, "epsilon": float(amount), "value": estimate[0]}
                    points.append(
                        {**facts, "low": estimate[0] - 2 * estimate[1], "high": estimate[0] + 2 * estimate[1]}
                    )
    return points


def _lines(alt: Any, comparison: Comparison, points: list[dict[str, Any]], measure: str, title: str) -> Any:
    base = alt.Chart().encode(
        x=_across(alt, comparison),
        color=alt.Color("setting:N", scale=alt.Scale(domain=list(SETTINGS), range=_COLOURS), title=None),
    )
    value = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False))
    dashes = alt.StrokeDash("setting:N", scale=alt.Scale(domain=list(SETTINGS)), title=None)
    layers = [
        base.mark_line(point=True).encode(y=value, strokeDash=dashes),
        base.mark_rule(opacity=0.5).encode(y="low:Q", y2="high:Q"),
    ]
    if measure == "accuracy":
        layers.append(alt.Chart().mark_rule(strokeDash=[2, 3]).encode(y=alt.datum(comparison.majority)))
    body = alt.layer(*layers, data=alt.Data(values=points)).properties(width=300, height=200)
    heading = f"{title} of {comparison.target}" + (
        "; dotted: always the most common class" if measure == "accuracy" else ""
    )
    return body.facet(column=alt.Column("estimator:N", title=None)).properties(title=heading)


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
    directory = Path(folder)
    drawn = charts(found)
    pictures = {name: f"{name}.png" for name in drawn}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, chart in drawn.items():
            (directory / f"{name}.svg").write_text(to_svg(chart), encoding="utf-8")
            (directory / f"{name}.png").write_bytes(to_png(chart))
        title = f"What noise costs: predicting {found.target} (a lesson, not private)"
        (directory / "charts.html").write_text(html(found, title), encoding="utf-8")
        (directory / "report.md").write_text(markdown(found, pictures), encoding="utf-8")
    except OSError as error:
        raise StoreFailed(f"the report could not be written to {directory} ({error.strerror}).") from None
    names = ["report.md", "charts.html", *(f"{name}.{form}" for name in drawn for form in ("png", "svg"))]
    return [directory / name for name in names]


def _cost(comparison: Comparison) -> str:
    return (
        f"Had it all been released, the means and private models would have cost **{comparison.model_cost}** together "
        f"(one row added or removed), and the noisy tables **{comparison.table_cost}**. Each private model has the "
        f"epsilon named at delta {comparison.delta}."
    )


def _lines_of(comparison: Comparison) -> str:
    return (
        f"Always the most common class: {100 * comparison.majority:.1f} %. A model below that line has learnt nothing."
    )


def _means(comparison: Comparison) -> str:
    rows = []
    for amount in comparison.epsilons:
        releases = np.array([value for epsilon, value in comparison.means if epsilon == amount])
        true = comparison.true_value or 0.0
        rows.append(
            [amount, f"{releases.mean():.4g}", f"{np.sqrt(((releases - true) ** 2).mean()):.3g}", f"{len(releases)}"]
        )
    head = ["epsilon", "average release", "typical error of one", "repetitions"]
    summary = (
        f"True value {comparison.true_value:.4g} (not private). Averaging releases is no trick: each one was paid for."
    )
    return f"{summary}\n\n{_table(head, rows)}"


def _measure(found: Comparison, measure: str) -> str:
    rows = []
    for estimator in found.estimators:
        for setting in SETTINGS:
            cells = [found.mean(measure, estimator, setting, amount) for amount in found.epsilons]
            if any(cells):
                rows.append([estimator, setting, *map(_cell, cells)])
    return _table(["model", "where the noise is", *(f"ε {amount}" for amount in found.epsilons)], rows) if rows else ""


def _cell(estimate: tuple[float, float] | None) -> str:
    return "" if estimate is None else f"{estimate[0]:.3f}" + (f" ± {2 * estimate[1]:.3f}" if estimate[1] else "")


def _groups(comparison: Comparison) -> str:
    rows = [
        [entry["estimator"], entry["setting"], comparison.groups[entry["group"]], f"{entry['rows']:,}"]
        + [f"{entry[name]:.3f}" for name in ("accuracy", "predicted", "true")]
        for entry in comparison.by_group
        if entry["setting"] in (PLAIN, MODEL, DATA)
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

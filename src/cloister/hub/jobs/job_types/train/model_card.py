"""Fitted model as numbers and charts for its page. Everything here follows from released data."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cloister.hub.jobs.job_types.train.form import TrainingRequest
from cloister.learn.audited import audited
from cloister.learn.model_selection.evaluation import SURE

__all__ = ["card"]

_MOST_BARS = 60


def card(model: Any, asked: TrainingRequest) -> dict[str, Any]:
    """Return what a page shows of a model; plain JSON.

    `columns` are charts (a name, a sentence and bars), `coefficients` a table.
    """
    audit = audited(asked.offer.name)
    classes = [_word(label) for label in getattr(model, "classes_", ())]
    return {
        "estimator": asked.offer.name,
        "about": asked.offer.about,
        "table": asked.table,
        "target": asked.target,
        "features": list(asked.features),
        "classes": classes,
        "training": asked.training.to_json(),
        "evaluating": asked.evaluation.to_json() if asked.share else None,
        "group": asked.group,
        "audited": audit,
        "coefficients": _coefficients(model, asked, classes),
        "columns": _pictures(model, asked, classes),
    }


def _coefficients(model: Any, request: TrainingRequest, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return coefficients, with intervals where there are standard errors; components of a PCA; cluster centres."""
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    if hasattr(model, "coef_") and request.offer.predicts:
        rows = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
        ends = np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64))
        errors = getattr(model, "standard_errors_", None)
        sure = None if errors is None or len(rows) > 1 else np.ravel(errors)
        entries = []
        for index, row in enumerate(rows):
            of = classes[index] if len(rows) > 1 else ""
            values = [*row.tolist(), float(ends[index])]
            for i, (name, value) in enumerate(zip([*names, "intercept"], values, strict=True)):
                entries.append({"feature": name, "of": of, **_figure(value, None if sure is None else float(sure[i]))})
        return entries
    for attribute, word in (("components_", "component"), ("cluster_centers_", "cluster")):
        if hasattr(model, attribute):
            errors = getattr(model, "center_errors_", None)
            return [
                {"feature": name, "of": f"{word} {index + 1}"}
                | _figure(float(value), None if errors is None else float(errors[index]))
                for index, row in enumerate(np.asarray(getattr(model, attribute)))
                for name, value in zip(names, row.tolist(), strict=True)
            ]
    return []


def _pictures(model: Any, request: TrainingRequest, classes: Sequence[str]) -> list[dict[str, Any]]:
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    pictures = []
    if hasattr(model, "shapes_"):
        words = "What each value adds to the score, with two standard errors"
        for name, shape in model.shapes_.items():
            pictures += _shape(name, shape.table(), classes, words)
    elif hasattr(model, "coef_") and len(np.atleast_2d(model.coef_)) == 1:
        pictures += _effects(model, names, request)
    if hasattr(model, "class_prior_"):
        pictures.append(_picture("classes", "The share of each class", zip(classes, model.class_prior_, strict=True)))
    if getattr(model, "explained_variance_ratio_", None) is not None:
        shares = enumerate(np.asarray(model.explained_variance_ratio_).tolist(), 1)
        pictures.append(
            _picture("variance", "The share that each component explains", ((f"{i}", v) for i, v in shares))
        )
    if hasattr(model, "cluster_sizes_"):
        sizes = ((f"cluster {i}", size) for i, size in enumerate(np.asarray(model.cluster_sizes_).tolist(), 1))
        words = "About how many rows each cluster has, with the error of the noise"
        pictures.append(_picture("clusters", words, sizes, getattr(model, "size_error_", None)))
    if getattr(model, "feature_importances_", None) is not None:
        pairs = zip(names or request.features, np.asarray(model.feature_importances_).tolist(), strict=True)
        pictures.append(_picture("importance", "How much each feature matters", pairs))
    return [picture for picture in pictures if picture["bars"]]


def _effects(model: Any, names: Sequence[str], request: TrainingRequest) -> list[dict[str, Any]]:
    """Return coefficients times the width of their column, which are comparable across units."""
    values = np.ravel(model.coef_).tolist()
    errors = getattr(model, "standard_errors_", None)
    sure = [None] * len(values) if errors is None else np.ravel(errors)[: len(values)].tolist()
    bars = []
    for name, value, error in zip(names, values, sure, strict=True):
        term = request.terms.get(name)
        width = 1.0 if term is None or not term.bounded else float(term.high or 0) - float(term.low or 0)
        bars.append({"label": name, **_figure(value * width, None if error is None else error * width)})
    words = "What a feature adds from the lowest to the highest value of its column"
    words += "; no error is known for these" if errors is None else ", with two standard errors"
    return [{"name": "effects", "type": "", "note": words, "bars": bars[:_MOST_BARS]}]


def _shape(name: str, cells: Sequence[dict[str, Any]], classes: Sequence[str], words: str) -> list[dict[str, Any]]:
    outputs = sorted({cell["output"] for cell in cells})
    pictures = []
    for output in outputs:
        title = name if len(outputs) == 1 else f"{name}, {classes[output]}"
        bars = [
            {"label": str(cell["cell"]), **{key: _plain(cell[key]) for key in ("value", "low", "high")}}
            for cell in cells
            if cell["output"] == output
        ]
        pictures.append({"name": title, "type": "", "note": words, "bars": bars[:_MOST_BARS]})
    return pictures


def _picture(name: str, words: str, pairs: Iterable[tuple[str, Any]], error: float | None = None) -> dict[str, Any]:
    bars = [{"label": str(label), **_figure(float(value), error)} for label, value in pairs]
    return {"name": name, "type": "", "note": words, "bars": bars[:_MOST_BARS]}


def _figure(value: float, error: float | None) -> dict[str, float | None]:
    margin = None if error is None or not math.isfinite(error) else SURE * error
    ends = (None, None) if margin is None else (value - margin, value + margin)
    return {"value": _plain(value), "low": _plain(ends[0]), "high": _plain(ends[1])}


def _plain(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _word(value: Any) -> str:
    return str(value.item() if isinstance(value, np.generic) else value)

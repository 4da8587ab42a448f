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
    known = audited(asked.offer.name)
    classes = [_word(one) for one in getattr(model, "classes_", ())]
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
        "audited": known,
        "coefficients": _coefficients(model, asked, classes),
        "columns": _pictures(model, asked, classes),
    }


def _coefficients(model: Any, asked: TrainingRequest, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return coefficients, with intervals where there are standard errors; components of a PCA; cluster centres."""
    names = [str(one) for one in getattr(model, "feature_names_in_", ())]
    if hasattr(model, "coef_") and asked.offer.predicts:
        rows = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
        ends = np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64))
        errors = getattr(model, "standard_errors_", None)
        sure = None if errors is None or len(rows) > 1 else np.ravel(errors)
        found = []
        for place, row in enumerate(rows):
            of = classes[place] if len(rows) > 1 else ""
            values = [*row.tolist(), float(ends[place])]
            for i, (name, value) in enumerate(zip([*names, "intercept"], values, strict=True)):
                found.append({"feature": name, "of": of, **_figure(value, None if sure is None else float(sure[i]))})
        return found
    for attribute, word in (("components_", "component"), ("cluster_centers_", "cluster")):
        if hasattr(model, attribute):
            errors = getattr(model, "center_errors_", None)
            return [
                {"feature": name, "of": f"{word} {place + 1}"}
                | _figure(float(value), None if errors is None else float(errors[place]))
                for place, row in enumerate(np.asarray(getattr(model, attribute)))
                for name, value in zip(names, row.tolist(), strict=True)
            ]
    return []


def _pictures(model: Any, asked: TrainingRequest, classes: Sequence[str]) -> list[dict[str, Any]]:
    names = [str(one) for one in getattr(model, "feature_names_in_", ())]
    found = []
    if hasattr(model, "shapes_"):
        words = "What each value adds to the score, with two standard errors"
        for name, shape in model.shapes_.items():
            found += _shape(name, shape.table(), classes, words)
    elif hasattr(model, "coef_") and len(np.atleast_2d(model.coef_)) == 1:
        found += _effects(model, names, asked)
    if hasattr(model, "class_prior_"):
        found.append(_picture("classes", "The share of each class", zip(classes, model.class_prior_, strict=True)))
    if getattr(model, "explained_variance_ratio_", None) is not None:
        shares = enumerate(np.asarray(model.explained_variance_ratio_).tolist(), 1)
        found.append(_picture("variance", "The share that each component explains", ((f"{i}", v) for i, v in shares)))
    if hasattr(model, "cluster_sizes_"):
        sizes = ((f"cluster {i}", one) for i, one in enumerate(np.asarray(model.cluster_sizes_).tolist(), 1))
        words = "About how many rows each cluster has, with the error of the noise"
        found.append(_picture("clusters", words, sizes, getattr(model, "size_error_", None)))
    if getattr(model, "feature_importances_", None) is not None:
        pairs = zip(names or asked.features, np.asarray(model.feature_importances_).tolist(), strict=True)
        found.append(_picture("importance", "How much each feature matters", pairs))
    return [one for one in found if one["bars"]]


def _effects(model: Any, names: Sequence[str], asked: TrainingRequest) -> list[dict[str, Any]]:
    """Return coefficients times the width of their column, which are comparable across units."""
    values = np.ravel(model.coef_).tolist()
    errors = getattr(model, "standard_errors_", None)
    sure = [None] * len(values) if errors is None else np.ravel(errors)[: len(values)].tolist()
    bars = []
    for name, value, error in zip(names, values, sure, strict=True):
        term = asked.terms.get(name)
        width = 1.0 if term is None or not term.bounded else float(term.high or 0) - float(term.low or 0)
        bars.append({"label": name, **_figure(value * width, None if error is None else error * width)})
    words = "What a feature adds from the lowest to the highest value of its column"
    words += "; no error is known for these" if errors is None else ", with two standard errors"
    return [{"name": "effects", "type": "", "note": words, "bars": bars[:_MOST_BARS]}]


def _shape(name: str, cells: Sequence[dict[str, Any]], classes: Sequence[str], words: str) -> list[dict[str, Any]]:
    outputs = sorted({one["output"] for one in cells})
    found = []
    for output in outputs:
        title = name if len(outputs) == 1 else f"{name}, {classes[output]}"
        bars = [
            {"label": str(one["cell"]), **{key: _plain(one[key]) for key in ("value", "low", "high")}}
            for one in cells
            if one["output"] == output
        ]
        found.append({"name": title, "type": "", "note": words, "bars": bars[:_MOST_BARS]})
    return found


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

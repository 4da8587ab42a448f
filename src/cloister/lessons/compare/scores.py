"""The quality of a model, overall and by group."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MEASURES", "likelihoods", "measures", "per_group"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_BINS = 10

# In the order of the report, with the meaning of each.
MEASURES = {
    "accuracy": "share of rows that it gets right",
    "auc": "chance that of two rows of different classes it ranks the right one first",
    "calibration": "mean distance between what it says it is sure of and how often it is right",
    "gap": "largest difference between groups in how often the last class is predicted",
    "membership": "how well its confidence tells a training row from another: 0.5 is not at all",
}


def likelihoods(model: Any, rows: Floats, classes: int) -> Floats:
    """Return the probability of each class for each row; from margins if a model has no probabilities."""
    if hasattr(model, "predict_proba"):
        probabilities = np.asarray(model.predict_proba(rows), dtype=np.float64)
    else:
        margins = np.asarray(model.decision_function(rows), dtype=np.float64)
        margins = np.column_stack([-margins, margins]) / 2 if margins.ndim == 1 else margins
        weights = np.exp(margins - margins.max(axis=1, keepdims=True))
        probabilities = weights / weights.sum(axis=1, keepdims=True)
    full = np.zeros((len(rows), classes))
    # A plain model has only the classes it was trained on.
    full[:, np.asarray(model.classes_, dtype=np.int64)] = probabilities
    return full


def measures(
    told: Floats, labels: Integers, groups: Integers | None, trained: Floats, seen: Integers
) -> dict[str, Any]:
    """Return every measure of a model.

    Args:
        told: its probabilities for rows it was not trained on.
        labels: their classes.
        groups: their groups, or None.
        trained: its probabilities for rows it was trained on.
        seen: their classes.
    """
    guess = told.argmax(axis=1)
    gaps = [] if groups is None else [group["predicted"] for group in per_group(told, labels, groups)]
    return {
        "accuracy": float((guess == labels).mean()),
        "auc": _auc(told, labels),
        "calibration": _calibration(told.max(axis=1), guess == labels),
        "gap": float(max(gaps) - min(gaps)) if gaps else None,
        "membership": _ranked(_own(trained, seen), _own(told, labels)),
    }


def per_group(told: Floats, labels: Integers, groups: Integers) -> list[dict[str, Any]]:
    """Return accuracy and the rates at which the last class is predicted and true, in every non-empty group."""
    guess, last = told.argmax(axis=1), told.shape[1] - 1
    results = []
    for group in np.unique(groups[groups >= 0]):
        inside = groups == group
        results.append(
            {
                "group": int(group),
                "rows": int(inside.sum()),
                "accuracy": float((guess[inside] == labels[inside]).mean()),
                "predicted": float((guess[inside] == last).mean()),
                "true": float((labels[inside] == last).mean()),
            }
        )
    return results


def _auc(probabilities: Floats, labels: Integers) -> float | None:
    """Return the AUC; for more than two classes, the mean over classes, each against the rest."""
    places = [1] if probabilities.shape[1] == 2 else range(probabilities.shape[1])
    each = [_ranked(probabilities[labels == k, k], probabilities[labels != k, k]) for k in places]
    defined = [area for area in each if area is not None]
    return float(np.mean(defined)) if defined else None


def _ranked(high: Floats, low: Floats) -> float | None:
    """Return how often a value of the first kind exceeds one of the second; ties count half."""
    from scipy.stats import rankdata

    if not len(high) or not len(low):
        return None
    ranks = rankdata(np.concatenate([high, low]))[: len(high)]
    return float((ranks.sum() - len(high) * (len(high) + 1) / 2) / (len(high) * len(low)))


def _calibration(sure: Floats, right: NDArray[np.bool_]) -> float:
    """Return the expected calibration error over ten equal bins (Guo et al. 2017)."""
    cell = np.minimum((sure * _BINS).astype(np.int64), _BINS - 1)
    sums = [np.bincount(cell, weights=weights, minlength=_BINS) for weights in (sure, right.astype(np.float64))]
    return float(np.abs(sums[0] - sums[1]).sum() / max(len(sure), 1))


def _own(probabilities: Floats, labels: Integers) -> Floats:
    return np.asarray(probabilities[np.arange(len(labels)), labels])

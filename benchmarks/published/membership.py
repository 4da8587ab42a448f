"""Scores of membership attacks as their authors publish them, for losses that were computed before.

LiRA: Carlini et al. 2022, and their code (tensorflow/privacy, research/mi_lira_2021/plot.py). RMIA: Zarifzadeh, Liu &
Shokri 2024, and their code (privacytrustlab/ml_privacy_meter, modules/mia/attacks/rmia.py).
"""

from typing import Any

import numpy as np
from scipy import stats

__all__ = ["lira", "lira_offline", "rmia", "rmia_online"]


def lira(target: Any, logits: Any, inside: Any, fixed: bool) -> Any:
    """Medians and variances of each record's logits with and without it, or one variance for all."""
    records = range(logits.shape[1])
    held = [logits[inside[:, j], j] for j in records]
    free = [logits[~inside[:, j], j] for j in records]
    held, free = (np.array([x[: min(map(len, side))] for x in side]) for side in (held, free))
    spread = (np.std(held), np.std(held)) if fixed else (np.std(held, 1), np.std(free, 1))
    law = [stats.norm.logpdf(target, np.median(x, 1), s + 1e-30) for x, s in zip((held, free), spread, strict=True)]
    return law[0] - law[1]


def lira_offline(target: Any, logits: Any, inside: Any, fixed: bool) -> Any:
    """How far above the models without the record, in deviations (equation 4)."""
    free = [logits[~inside[:, j], j] for j in range(logits.shape[1])]
    free = np.array([x[: min(map(len, free))] for x in free])
    spread = np.std(free) if fixed else np.std(free, 1)
    return (target - np.median(free, 1)) / (spread + 1e-30)


def rmia(target: Any, models: Any, inside: Any, beside: Any, beside_models: Any, a: float) -> Any:
    """RMIA from models without the record, gamma 1."""
    out = np.array([models[~inside[:, j], j].mean() for j in range(models.shape[1])])
    ratio = target / ((1 + a) / 2 * out + (1 - a) / 2)
    ratio_beside = beside / ((1 + a) / 2 * beside_models.mean(0) + (1 - a) / 2)
    return np.average(ratio[:, None] / ratio_beside > 1.0, axis=1)


def rmia_online(target: Any, models: Any, inside: Any, beside: Any, beside_models: Any) -> Any:
    """RMIA with models on both sides of each record (equation 10)."""
    average = [(models[inside[:, j], j].mean() + models[~inside[:, j], j].mean()) / 2 for j in range(models.shape[1])]
    return np.average((target / np.array(average))[:, None] / (beside / beside_models.mean(0)) > 1.0, axis=1)

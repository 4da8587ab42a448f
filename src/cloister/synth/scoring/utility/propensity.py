"""The propensity score mean-squared error (pMSE): how well a model distinguishes synthetic rows from real ones.

A model predicts for every row of both tables the probability that it is synthetic; pMSE is the mean of (that - c)², c
the share of synthetic rows. A model that sees no difference still fits noise, so pMSE is reported with its expectation
in that case:

- logistic regression on k features: k (1 - c)² c / N, with standard deviation sqrt(2k) (1 - c)² c / N (Snoke, Raab,
  Nowok, Dibben & Slavković 2018). It sees each column, not the dependence between them.
- a decision tree: the mean over shuffles of the synthetic labels. It sees combinations.

A ratio of 1 is as if both came from one population; 10 and more is easily distinguished. The closed form is for rows
sampled from a true model; for a bootstrap of the real rows it is too large.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.synth.scoring.rows import Floats, ScoreRows
from cloister.synth.scoring.utility.learning import features, sklearn_or_refuse

__all__ = ["Propensity", "propensity"]

_SHUFFLES = 5


@dataclass(frozen=True, slots=True)
class Propensity:
    """Propensity-score error (pMSE) of a model that distinguishes two tables.

    Attributes:
        model: the model used.
        value: pMSE.
        expected: its expectation if there were no difference.
        spread: the standard deviation of that.
        most: its value if every row were classified with certainty: c (1 - c).
    """

    model: str
    value: float
    expected: float
    spread: float
    most: float

    @property
    def told_apart(self) -> float:
        """Return pMSE scaled between chance, 0, and certain classification of every row, 1.

        Unlike the ratio it does not grow with the number of rows.
        """
        return (
            max(0.0, (self.value - self.expected) / (self.most - self.expected)) if self.most > self.expected else 0.0
        )

    @property
    def ratio(self) -> float:
        """Return pMSE over its expectation: 1 is no difference."""
        return self.value / self.expected if self.expected > 0 else float("inf" if self.value > 0 else 1)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for a file."""
        figures = {name: getattr(self, name) for name in ("model", "value", "expected", "spread")}
        return {**figures, "told apart": self.told_apart, "ratio": self.ratio if np.isfinite(self.ratio) else None}


def propensity(real: ScoreRows, synthetic: ScoreRows, random: np.random.Generator) -> tuple[Propensity, ...]:
    """Compute pMSE with both models."""
    sklearn_or_refuse()
    classes = np.r_[np.zeros(len(real), dtype=np.int64), np.ones(len(synthetic), dtype=np.int64)]
    return _by_regression(real, synthetic, classes), _by_tree(real, synthetic, classes, random)


def _by_regression(real: ScoreRows, synthetic: ScoreRows, classes: NDArray[np.int64]) -> Propensity:
    from sklearn.linear_model import LogisticRegression

    x = np.concatenate([features(rows, first=False) for rows in (real, synthetic)])
    x = x[:, x.std(axis=0) > 0]
    k = int(np.linalg.matrix_rank(x - x.mean(axis=0))) if x.size else 0
    c, n = float(classes.mean()), len(classes)
    unit = (1 - c) ** 2 * c / n
    value = 0.0
    if k:
        with warnings.catch_warnings():  # a column that separates them perfectly has no finite weight
            warnings.simplefilter("ignore")
            model = LogisticRegression(C=1e6, solver="newton-cholesky", max_iter=50).fit(x, classes)
        value = _pmse(model.predict_proba(x)[:, 1], c)
    return Propensity("logistic regression", value, k * unit, float(np.sqrt(2 * k)) * unit, c * (1 - c))


def _by_tree(
    real: ScoreRows, synthetic: ScoreRows, classes: NDArray[np.int64], random: np.random.Generator
) -> Propensity:
    from sklearn.tree import DecisionTreeClassifier

    x = np.concatenate([np.nan_to_num(rows.points, nan=-1.0) for rows in (real, synthetic)]).astype(np.float32)
    c = float(classes.mean())

    def fitted(labels: NDArray[np.int64]) -> float:
        tree = DecisionTreeClassifier(max_depth=10, min_samples_leaf=max(20, len(classes) // 1000), random_state=0)
        return _pmse(tree.fit(x, labels).predict_proba(x)[:, 1], c)

    null = np.array([fitted(random.permutation(classes)) for _ in range(_SHUFFLES)])
    return Propensity("decision tree", fitted(classes), float(null.mean()), float(null.std(ddof=1)), c * (1 - c))


def _pmse(likely: Floats, c: float) -> float:
    return float(((likely - c) ** 2).mean())

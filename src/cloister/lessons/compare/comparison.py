"""The results of an exercise."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cloister.privacy.loss import Loss

__all__ = ["BOTH", "DATA", "MODEL", "PLAIN", "SETTINGS", "Comparison"]

PLAIN, MODEL, DATA, BOTH = SETTINGS = (
    "plain model, original data",
    "private model, original data",
    "plain model, noisy data",
    "private model, noisy data",
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results of an exercise.

    Attributes:
        target, group, groups: the predicted column; the column whose groups are compared, and their names.
        epsilons, delta: the losses tried.
        statistic, true_value: the column whose mean was released, and its mean.
        means: (epsilon, released mean), one for every repetition.
        results: one record for every fit: estimator, setting, epsilon, repetition, and every measure.
        by_group: one record for every group of every estimator and setting, at the largest epsilon.
        majority: the share of the most common class among test rows.
        model_cost: the total cost of all means and private models on original data, had they been released.
        table_cost: the total cost of all noisy tables; models trained on them cost nothing more.

    Privacy: none. The costs are those a private release would have had.
    """

    target: str
    group: str | None
    groups: tuple[str, ...]
    rows: tuple[int, int]
    epsilons: tuple[str, ...]
    delta: str
    statistic: str | None
    true_value: float | None
    means: list[tuple[str, float]]
    results: list[dict[str, Any]]
    by_group: list[dict[str, Any]]
    majority: float
    model_cost: Loss
    table_cost: Loss

    def mean(self, measure: str, estimator: str, setting: str, amount: str | None = None) -> tuple[float, float] | None:
        """Return the mean of a measure over repetitions, and its standard error."""
        values = [
            result[measure]
            for result in self.results
            if (result["estimator"], result["setting"]) == (estimator, setting)
            and result["epsilon"] in (None, amount)
            and result[measure] is not None
        ]
        if not values:
            return None
        return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0

    @property
    def estimators(self) -> list[str]:
        """The estimators that were compared."""
        return list(dict.fromkeys(result["estimator"] for result in self.results))

    def markdown(self) -> str:
        """Return the report as Markdown."""
        from cloister.lessons.compare.report import markdown

        return markdown(self)

    def write(self, folder: Any) -> list[Any]:
        """Write the report and its charts: Markdown, HTML, PNG and SVG."""
        from cloister.lessons.compare.report import write

        return write(self, folder)

    def __str__(self) -> str:
        return self.markdown()

"""Accuracy against epsilon: the experiment of the sources (figures 5.3 to 5.5), with both baselines.

A lesson: it needs the rows and their labels. The baselines of each curve are the same model without privacy, and the
most common class: accuracy that does not exceed the latter shows no learning (spec E-20).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from cloister.data.charts import altair, chart_of
from cloister.local.analysis.naive_bayes import Beliefs, LocalNaiveBayes
from cloister.local.base.columns import Span
from cloister.local.survey.form import Form
from cloister.privacy.errors import BadInput
from cloister.privacy.number import Number

__all__ = ["ORACLES", "Accuracies", "evaluate", "without_privacy"]

ORACLES: dict[str, dict[str, Any]] = {name: {"oracle": name} for name in ("DE", "SHE", "THE", "SUE", "OUE")}
_COLOURS = ["#3b4fa0", "#b45309", "#0f6b66", "#9c3d78", "#6b7280", "#a16207", "#1d7a46", "#7c3aed"]


@dataclass(frozen=True, slots=True)
class Accuracies:
    """The results of an experiment.

    Attributes:
        table: rows of (setting, epsilon, mean accuracy, its standard error over the repeats).
        plain: the accuracy without privacy.
        majority: the accuracy of always predicting the most common class.
        repeats: the number of simulated splits and collections.
    """

    table: tuple[tuple[str, float, float, float], ...]
    plain: float
    majority: float
    repeats: int

    def mean(self, setting: str, epsilon: Number) -> float:
        """Return the mean accuracy of one setting at one epsilon."""
        for name, amount, mean, _ in self.table:
            if name == setting and amount == float(epsilon):
                return mean
        raise BadInput("this setting was not tried at this epsilon.")

    def chart(self, title: str) -> Any:
        """Return curves with error bars; dashed without privacy, dotted the most common class. Offline Vega-Lite."""
        alt = altair()
        values = [
            {"setting": name, "epsilon": amount, "accuracy": mean, "low": mean - 2 * error, "high": mean + 2 * error}
            for name, amount, mean, error in self.table
        ]
        names = list(dict.fromkeys(name for name, *_ in self.table))
        colour = alt.Color("setting:N", sort=names, scale=alt.Scale(domain=names, range=_COLOURS), title=None)
        base = chart_of(values).encode(x=alt.X("epsilon:Q", title="epsilon"), color=colour)
        shape = alt.Shape("setting:N", sort=names, scale=alt.Scale(domain=names), title=None)
        lines = base.mark_line().encode(alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(zero=False)))
        points = base.mark_point(filled=True, size=45).encode(y="accuracy:Q", shape=shape)
        doubt = base.mark_rule(opacity=0.4).encode(y="low:Q", y2="high:Q")
        still = alt.Chart().mark_rule(strokeDash=[6, 4]).encode(y=alt.datum(self.plain))
        least = alt.Chart().mark_rule(strokeDash=[2, 3]).encode(y=alt.datum(self.majority))
        heading = alt.TitleParams(title, subtitle="dashed: without privacy; dotted: always the most common class")
        return (lines + points + doubt + still + least).properties(width=300, height=200, title=heading)


def evaluate(
    model: LocalNaiveBayes,
    rows: Any,
    labels: Any,
    *,
    epsilons: Sequence[Number] = ("0.5", "1", "2", "3", "4", "5"),
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    repeats: int = 5,
    test: float = 0.25,
    seed: int = 1,
) -> Accuracies:
    """Simulate collections over a grid of losses and settings, each on fresh splits into respondents and test rows.

    Args:
        model: with classes, categories and bounds; its epsilon and the settings' parameters are replaced.
        rows, labels: a table that is not secret.
        epsilons: the loss of one person.
        settings: for each name of a curve the model's parameters; default the five oracles of the sources.
        repeats: the number of simulations.
        test: the share of rows kept for testing.
        seed: of splits and noise, so nothing here is private.
    """
    tried = ORACLES if settings is None else settings
    table = rows.to_numpy() if hasattr(rows, "to_numpy") else np.asarray(rows)
    truth = np.asarray(labels)
    plain, most, accuracies = [], [], {(name, float(amount)): [] for name in tried for amount in epsilons}  # type: ignore[var-annotated]
    for repeat in range(repeats):
        order = np.random.default_rng([seed, repeat]).permutation(len(table))
        test_count = round(test * len(table))
        respondents, test_rows = order[test_count:], order[:test_count]
        form = clone(model).set_params(epsilon=epsilons[0]).form()
        best = (
            without_privacy(form, table[respondents], truth[respondents])
            .scores(form.read(table[test_rows]))
            .argmax(axis=1)
        )
        codes = form.classes.codes(truth[test_rows])
        plain.append(float((best == codes).mean()))
        common = np.bincount(form.classes.codes(truth[respondents])).argmax()
        most.append(float((codes == common).mean()))
        for name, amount in accuracies:
            trial = clone(model).set_params(epsilon=str(amount), random_state=f"{seed} {repeat} {name}", **tried[name])
            predicted = trial.fit(table[respondents], truth[respondents]).predict(table[test_rows])
            accuracies[name, amount].append(float((predicted == truth[test_rows]).mean()))
    curves = tuple((*key, float(np.mean(got)), _error(got)) for key, got in accuracies.items())
    return Accuracies(curves, float(np.mean(plain)), float(np.mean(most)), repeats)


def without_privacy(form: Form, rows: Any, labels: Any) -> Beliefs:
    """Return the model a curator with access to all rows would fit: for comparison, not private."""
    read, codes, k = form.read(rows), form.classes.codes(np.asarray(labels).tolist()), form.classes.size
    people = len(codes)
    sizes = np.bincount(codes, minlength=k)
    prior = (sizes + 1 / k) / (people + 1)
    tables, means, variances = {}, {}, {}
    for index, column in enumerate(form.columns):
        if isinstance(column, Span):
            means[index] = np.bincount(codes, read[index], k) / np.maximum(sizes, 1)
            squares = np.bincount(codes, read[index] ** 2, k) / np.maximum(sizes, 1)
            variances[index] = np.maximum(squares - means[index] ** 2, 1e-3)
        else:
            cells = np.bincount(read[index] * k + codes, minlength=column.size * k).reshape(-1, k) + 1.0
            tables[index] = (cells / cells.sum(axis=0)).T
    return Beliefs(prior, tables, means, variances)


def _error(scores: list[float]) -> float:
    return float(np.std(scores, ddof=1) / len(scores) ** 0.5) if len(scores) > 1 else 0.0

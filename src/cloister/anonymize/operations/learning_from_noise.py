"""Classifiers on reconstructed distributions: naive Bayes, and a decision tree (`ByClass` of Agrawal and Srikant).

Noise hides values, but the distribution of each column within each class can be reconstructed, and that is what these
classifiers need. The class itself is published without noise. A learner sees marginals per class: dependence between
columns within a class is what the noise left of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cloister.anonymize.operations.noise import Noise
from cloister.anonymize.operations.operated import (
    Floats,
    Integers,
    Operated,
    codes,
    columns_of,
    to_numbers,
    with_column,
)
from cloister.anonymize.operations.reconstruction import Reconstruction, reconstruct_values
from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadSchema, MissingExtra

__all__ = ["ByClassTree", "NoisyNaiveBayes", "correct_by_class"]

Bounds = Mapping[str, tuple[float, float]]
_NOTE = (
    "Corrected values follow the reconstructed distribution of their class; they are estimates, not the values of "
    "their rows."
)


@dataclass(frozen=True)
class NoisyNaiveBayes:
    """Naive Bayes on reconstructed class-conditional distributions.

    Args:
        noise: the noise of each feature by name; these columns are the features.
        bounds: public bounds of each feature before noise.
        bins: number of cells of the grid.
    """

    noise: Mapping[str, Noise]
    bounds: Bounds
    bins: int = 30

    def fit(self, rows: object, target: str) -> "FittedNaiveBayes":
        """Learn from noisy features and an exact class. Rows with a NULL class are left out."""
        table, labels, classes = _labelled(rows, target, self.noise, self.bounds)
        known = labels >= 0
        priors = np.bincount(labels[known], minlength=len(classes)) / known.sum()
        estimates = {
            name: _by_class(to_numbers(table, name), labels, len(classes), law, self.bounds[name], self.bins)
            for name, law in self.noise.items()
        }
        return FittedNaiveBayes(classes, priors, estimates, self.noise)


@dataclass(frozen=True)
class FittedNaiveBayes:
    """A naive Bayes model of distributions before noise.

    Attributes:
        classes: the classes.
        priors: their shares.
        estimates: for each feature one reconstruction per class.
        noise: the noise of each feature.
    """

    classes: pa.Array
    priors: Floats
    estimates: Mapping[str, tuple[Reconstruction, ...]]
    noise: Mapping[str, Noise]

    def probabilities(self, rows: object, *, noisy: bool = False) -> Floats:
        """Return the probability of each class (columns) for each row.

        Args:
            rows: rows with the features. NULL gives no information.
            noisy: True if these rows carry the same noise as the rows of the fit.
        """
        table = to_arrow(rows)
        columns_of(table, self.estimates)
        scores = np.log(self.priors)[None, :].repeat(table.num_rows, axis=0)
        for name, estimates in self.estimates.items():
            values = to_numbers(table, name)
            likelihoods = np.column_stack([self._likelihood(values, name, item, noisy) for item in estimates])
            scores += np.where(np.isnan(values)[:, None], 0.0, np.log(likelihoods))
        scores -= scores.max(axis=1, keepdims=True)
        weights = np.exp(scores)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def _likelihood(self, values: Floats, name: str, estimate: Reconstruction, noisy: bool) -> Floats:
        clean = np.where(np.isnan(values), estimate.edges[0], values)
        smooth = (estimate.probabilities * estimate.count + 1) / (estimate.count + len(estimate.probabilities))
        if not noisy:
            cells = np.clip(np.searchsorted(estimate.edges, clean, side="right") - 1, 0, len(smooth) - 1)
            return np.asarray(smooth[cells])
        width = estimate.edges[1] - estimate.edges[0]
        grid = np.linspace(clean.min(), clean.max() + width, 512)
        density = np.diff(self.noise[name].cdf(grid[:, None], estimate.middles[None, :]), axis=0) @ smooth
        return np.maximum(np.interp(clean, (grid[1:] + grid[:-1]) / 2, density), 1e-12)

    def predict(self, rows: object, *, noisy: bool = False) -> pa.Array:
        """Return the most probable class of each row."""
        return self.classes.take(pa.array(self.probabilities(rows, noisy=noisy).argmax(axis=1)))


def correct_by_class(
    rows: object, target: str, noise: Mapping[str, Noise], bounds: Bounds, *, bins: int = 30
) -> Operated:
    """Replace noisy values by values that follow the reconstructed distribution of their class.

    Within a class the noisy values keep their order: the smallest ones are assigned to the first cell of the grid, as
    many as it is expected to hold, and so on (Agrawal and Srikant 2000, section 4). NULL stays NULL.

    Args:
        rows: rows with noisy features and an exact class.
        target: the column of the class; rows with a NULL class keep their cells.
        noise: the noise of each feature by name.
        bounds: public bounds of each feature before noise.
        bins: number of cells of the grid.
    """
    table, labels, classes = _labelled(rows, target, noise, bounds)
    log = []
    for name, law in noise.items():
        values = to_numbers(table, name)
        corrected = values.copy()
        estimates = _by_class(values, labels, len(classes), law, bounds[name], bins)
        for label, estimate in enumerate(estimates):
            members = np.flatnonzero((labels == label) & ~np.isnan(values))
            ordered = members[np.argsort(values[members], kind="stable")]
            ranks = (np.arange(len(members)) + 0.5) / max(1, len(members))
            cells = np.searchsorted(np.cumsum(estimate.probabilities), ranks).clip(0, bins - 1)
            corrected[ordered] = estimate.middles[cells]
        table = with_column(table, name, pa.array(corrected, from_pandas=True))
        count = int((~np.isnan(values) & (labels >= 0)).sum())
        log.append(f"Column {name}: {count:,} cells corrected by the distribution of their class of {target}.")
    return Operated(table, tuple(log), _NOTE)


@dataclass(frozen=True)
class ByClassTree:
    """A decision tree on values corrected by class. It needs scikit-learn.

    Args:
        noise: the noise of each feature by name; these columns are the features.
        bounds: public bounds of each feature before noise.
        bins: number of cells of the grid.
        depth: depth of the tree.
        leaf: smallest number of rows in a leaf.
    """

    noise: Mapping[str, Noise]
    bounds: Bounds
    bins: int = 30
    depth: int = 6
    leaf: int = 20

    def fit(self, rows: object, target: str) -> "FittedTree":
        """Correct the noisy features by class and grow a tree (Gini index) on them.

        Raises:
            MissingExtra: scikit-learn is not installed.
            BadSchema: a feature has a NULL.
        """
        try:
            from sklearn.tree import DecisionTreeClassifier
        except ImportError:
            raise MissingExtra("a decision tree needs scikit-learn: pip install 'cloister[learn]'.") from None
        _, labels, classes = _labelled(rows, target, self.noise, self.bounds)
        corrected = correct_by_class(rows, target, self.noise, self.bounds, bins=self.bins)
        known = labels >= 0
        tree = DecisionTreeClassifier(max_depth=self.depth, min_samples_leaf=self.leaf, random_state=0)
        tree.fit(_features(corrected.rows, self.noise)[known], labels[known])
        return FittedTree(classes, tree, tuple(self.noise))


@dataclass(frozen=True)
class FittedTree:
    """A decision tree that predicts classes from values without noise.

    Attributes:
        classes: the classes.
        tree: scikit-learn's tree.
        features: names of the columns.
    """

    classes: pa.Array
    tree: Any
    features: tuple[str, ...]

    def predict(self, rows: object) -> pa.Array:
        """Return the class of each row."""
        table = to_arrow(rows)
        columns_of(table, self.features)
        return self.classes.take(pa.array(self.tree.predict(_features(table, self.features))))


def _features(table: pa.Table, names: Any) -> Floats:
    features = np.column_stack([to_numbers(table, name) for name in names])
    if np.isnan(features).any():
        raise BadSchema("a decision tree needs complete features: suppress rows with a NULL first.")
    return features


def _labelled(
    rows: object, target: str, noise: Mapping[str, Noise], bounds: Bounds
) -> tuple[pa.Table, Integers, pa.Array]:
    """Return the table, the position of each row's class (-1 for NULL), and the classes."""
    table = to_arrow(rows)
    columns_of(table, [*noise, target])
    missing = [name for name in noise if name not in bounds]
    if not noise or missing:
        raise BadSchema(
            f"give noise and public bounds for every feature; bounds are missing for: {', '.join(missing)}."
        )
    labels, values = codes(table, target)
    known = [position for position, value in enumerate(values.to_pylist()) if value is not None]
    if len(known) < 2:
        raise BadSchema(f"column {target} has fewer than two classes, so there is nothing to learn.")
    mapping = np.full(len(values), -1)
    mapping[known] = np.arange(len(known))
    return table, mapping[labels], values.take(pa.array(known))


def _by_class(
    values: Floats, labels: Integers, count: int, noise: Noise, bounds: tuple[float, float], bins: int
) -> tuple[Reconstruction, ...]:
    return tuple(reconstruct_values(values[labels == label], noise, bounds=bounds, bins=bins) for label in range(count))

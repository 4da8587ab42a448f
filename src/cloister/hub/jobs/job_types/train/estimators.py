"""Estimators that a hub offers, and what each needs. Public facts; scikit-learn is not loaded for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

__all__ = ["OFFERS", "Offer"]


@dataclass(frozen=True, slots=True)
class Offer:
    """An estimator.

    Attributes:
        name: its class in `cloister.learn`.
        about: a short description.
        predicts: the type of prediction, a class, a number, or nothing.
        takes: columns that can be features: all, numbers, or those with a list of values.
        missing: True if it accepts missing numbers.
        by_row: True if the method protects one row, so that a unit with more rows pays for each (group privacy).
        parts: the parameter for the number of clusters or components.
    """

    name: str
    about: str
    predicts: Literal["class", "number", ""]
    takes: Literal["all", "numbers", "values"] = "all"
    missing: bool = False
    by_row: bool = False
    parts: str = ""

    def make(self, spend: Any, parts: str = "") -> Any:
        """Return the estimator, not fitted."""
        from cloister import learn

        more = {self.parts: int(parts)} if self.parts and parts else {}
        return getattr(learn, self.name)(spend, **more)


_OFFERED = (
    Offer("LogisticRegression", "linear, for classes", "class"),
    Offer("MixedNB", "naive Bayes on counts, for classes", "class", missing=True),
    Offer("GaussianNB", "naive Bayes on numbers, for classes", "class", "numbers"),
    Offer("CategoricalNB", "naive Bayes on categories, for classes", "class", "values", missing=True),
    Offer("LinearSVC", "linear, with a margin, for classes", "class", by_row=True),
    Offer("DecisionTreeClassifier", "one tree, for classes", "class", by_row=True),
    Offer("RandomForestClassifier", "many trees, for classes", "class", by_row=True),
    Offer("GradientBoostingClassifier", "one shape for each feature, for classes", "class", by_row=True),
    Offer("LinearRegression", "least squares, with standard errors", "number"),
    Offer("Ridge", "least squares with a penalty", "number"),
    Offer("GradientBoostingRegressor", "one shape for each feature, for numbers", "number", by_row=True),
    Offer("PCA", "principal components", "", "numbers", parts="n_components"),
    Offer("KMeans", "clusters", "", by_row=True, parts="n_clusters"),
)
OFFERS: Mapping[str, Offer] = MappingProxyType({one.name: one for one in _OFFERED})

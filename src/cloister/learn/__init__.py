"""Private models that drop into scikit-learn.

    from cloister import learn, epsilon
    model = learn.LogisticRegression(epsilon(1, delta="1e-6"), bounds=(0, 1), classes=[0, 1]).fit(X, y)

The way of a fit: inputs.py (what is public, what is clipped) → estimator.py (charge, once, before anything is read) →
integer_rows.py (rows as integers, summed exactly, plus noise) → the estimator's own file → release_ and receipt.

    classes     LogisticRegression, LinearSVC, GaussianNB, CategoricalNB, MixedNB, DecisionTreeClassifier,
                RandomForestClassifier, GradientBoostingClassifier
    numbers     LinearRegression, Ridge, GradientBoostingRegressor
    structure   KMeans, PCA
    features    MinMaxScaler, StandardScaler, OneHotEncoder (from public facts), QuantileTransformer (pays)
    around them select (a search that pays for its choice), cross_val_score (with noise on the scores),
                save and load (signed files), prepare (columns of a schema as a model's features)

The textbook's methods are there by name, corrected (method="output", "objective", "input"…; method.py): for lessons.

Nothing is loaded before it is asked for.
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloister.learn.cluster.kmeans import KMeans
    from cloister.learn.decomposition.pca import PCA
    from cloister.learn.linear_model.logistic import LogisticRegression
    from cloister.learn.linear_model.regression import LinearRegression, Ridge
    from cloister.learn.linear_model.svm import LinearSVC
    from cloister.learn.model_selection.cross_val import cross_val_score
    from cloister.learn.model_selection.search import select
    from cloister.learn.naive_bayes.gaussian import GaussianNB
    from cloister.learn.naive_bayes.mixed import CategoricalNB, MixedNB
    from cloister.learn.persistence import load, save
    from cloister.learn.preprocessing.encode_features import prepare
    from cloister.learn.preprocessing.quantiles import QuantileTransformer
    from cloister.learn.preprocessing.scalers import MinMaxScaler, OneHotEncoder, StandardScaler
    from cloister.learn.trees.boosting import GradientBoostingClassifier
    from cloister.learn.trees.boosting_regressor import GradientBoostingRegressor
    from cloister.learn.trees.forest import RandomForestClassifier
    from cloister.learn.trees.tree import DecisionTreeClassifier

__all__ = [
    "LogisticRegression",
    "LinearSVC",
    "GaussianNB",
    "CategoricalNB",
    "MixedNB",
    "DecisionTreeClassifier",
    "RandomForestClassifier",
    "GradientBoostingClassifier",
    "LinearRegression",
    "Ridge",
    "GradientBoostingRegressor",
    "KMeans",
    "PCA",
    "MinMaxScaler",
    "StandardScaler",
    "OneHotEncoder",
    "QuantileTransformer",
    "select",
    "cross_val_score",
    "save",
    "load",
    "prepare",
]

# No file may have the name of what is offered here: importing it would put the module in the name's place.
_HOMES = {
    "LogisticRegression": "linear_model.logistic",
    "LinearSVC": "linear_model.svm",
    "GaussianNB": "naive_bayes.gaussian",
    "CategoricalNB": "naive_bayes.mixed",
    "MixedNB": "naive_bayes.mixed",
    "DecisionTreeClassifier": "trees.tree",
    "RandomForestClassifier": "trees.forest",
    "GradientBoostingClassifier": "trees.boosting",
    "LinearRegression": "linear_model.regression",
    "Ridge": "linear_model.regression",
    "GradientBoostingRegressor": "trees.boosting_regressor",
    "KMeans": "cluster.kmeans",
    "PCA": "decomposition.pca",
    "MinMaxScaler": "preprocessing.scalers",
    "StandardScaler": "preprocessing.scalers",
    "OneHotEncoder": "preprocessing.scalers",
    "QuantileTransformer": "preprocessing.quantiles",
    "select": "model_selection.search",
    "cross_val_score": "model_selection.cross_val",
    "save": "persistence",
    "load": "persistence",
    "prepare": "preprocessing.encode_features",
}


def __getattr__(name: str) -> object:
    """Fetch a name from its home the first time it is asked for: scikit-learn is not loaded to list the names."""
    if name == "compare":
        warnings.warn("learn.compare is lessons.compare.run.compare now.", DeprecationWarning, stacklevel=2)
        return import_module("cloister.lessons.compare.run").compare
    if name not in _HOMES:
        raise AttributeError(f"cloister.learn has no {name!r}. It offers: {', '.join(__all__)}.")
    try:
        home = import_module(f"cloister.learn.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sklearn":
            raise
        from cloister.privacy.errors import MissingExtra

        raise MissingExtra("models need scikit-learn: pip install 'cloister[learn]'.") from None
    value: object = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

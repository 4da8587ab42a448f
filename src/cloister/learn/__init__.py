"""Private models that drop into scikit-learn.

    from cloister import learn, epsilon
    model = learn.LogisticRegression(epsilon(1, delta="1e-6"), bounds=(0, 1), classes=[0, 1]).fit(X, y)

The way of a fit: inputs.py (what is public, what is clipped) → estimator.py (charge, once, before anything is read) →
exact.py (rows as integers, summed exactly, plus noise) → the estimator's own file → release_ and receipt.

    classes     LogisticRegression, LinearSVC, GaussianNB, CategoricalNB, MixedNB, DecisionTreeClassifier,
                RandomForestClassifier, GradientBoostingClassifier
    numbers     LinearRegression, Ridge, GradientBoostingRegressor
    structure   KMeans, PCA
    features    MinMaxScaler, StandardScaler, OneHotEncoder (from public facts), QuantileTransformer (pays)
    around them select (a search that pays for its choice), cross_val_score (with noise on the scores),
                save and load (signed files), prepare (columns of a schema as a model's features),
                compare (the textbook's exercise; a lesson, not private)

The textbook's methods are there by name, corrected (method="output", "objective", "input"…; textbook.py): for lessons.

Nothing is loaded before it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloister.learn.boosting import GradientBoostingClassifier
    from cloister.learn.boosting_regressor import GradientBoostingRegressor
    from cloister.learn.categorical_naive_bayes import CategoricalNB
    from cloister.learn.exercise.run import compare
    from cloister.learn.feeding import prepare
    from cloister.learn.forest import RandomForestClassifier
    from cloister.learn.keeping import load, save
    from cloister.learn.kmeans import KMeans
    from cloister.learn.linear import LinearRegression
    from cloister.learn.logistic import LogisticRegression
    from cloister.learn.mixed_naive_bayes import MixedNB
    from cloister.learn.naive_bayes import GaussianNB
    from cloister.learn.pca import PCA
    from cloister.learn.quantiles import QuantileTransformer
    from cloister.learn.ridge import Ridge
    from cloister.learn.scaling import MinMaxScaler, OneHotEncoder, StandardScaler
    from cloister.learn.selection import select
    from cloister.learn.svm import LinearSVC
    from cloister.learn.tree import DecisionTreeClassifier
    from cloister.learn.validation import cross_val_score

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
    "compare",
]

# No file may have the name of what is offered here: importing it would put the module in the name's place.
_HOMES = {
    "LogisticRegression": "logistic",
    "LinearSVC": "svm",
    "GaussianNB": "naive_bayes",
    "CategoricalNB": "categorical_naive_bayes",
    "MixedNB": "mixed_naive_bayes",
    "DecisionTreeClassifier": "tree",
    "RandomForestClassifier": "forest",
    "GradientBoostingClassifier": "boosting",
    "LinearRegression": "linear",
    "Ridge": "ridge",
    "GradientBoostingRegressor": "boosting_regressor",
    "KMeans": "kmeans",
    "PCA": "pca",
    "MinMaxScaler": "scaling",
    "StandardScaler": "scaling",
    "OneHotEncoder": "scaling",
    "QuantileTransformer": "quantiles",
    "select": "selection",
    "cross_val_score": "validation",
    "save": "keeping",
    "load": "keeping",
    "prepare": "feeding",
    "compare": "exercise.run",
}


def __getattr__(name: str) -> object:
    """Fetch a name from its home the first time it is asked for: scikit-learn is not loaded to list the names."""
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

"""Lessons: textbook methods and exercises, each with the attack that defeats it. Not private; not for deployment.

    learn/            textbook methods of models: `lessons.LogisticRegression(…, method="objective")`
    compare/          the textbook's exercise: the cost of noise and the best place for it
    sql/              statistical-database protections before differential privacy, and the attacks on them
    controls/         classical rules in addition to noise; answers keep the guarantee of the dataset behind them
    tour              the terminal tour behind `cloister demo`
    local_accuracy    accuracy of local naive Bayes against epsilon
    synth_utility     utility of models trained on synthetic rows

This package imports the product. The product never imports it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloister.lessons.learn.kmeans import KMeans
    from cloister.lessons.learn.linear import LinearRegression, LinearSVC, LogisticRegression, Ridge
    from cloister.lessons.learn.naive_bayes import CategoricalNB, GaussianNB, MixedNB
    from cloister.lessons.learn.pca import PCA

__all__ = [
    "LogisticRegression",
    "LinearSVC",
    "LinearRegression",
    "Ridge",
    "GaussianNB",
    "CategoricalNB",
    "MixedNB",
    "KMeans",
    "PCA",
]

_HOMES = {
    **dict.fromkeys(("LogisticRegression", "LinearSVC", "LinearRegression", "Ridge"), "learn.linear"),
    **dict.fromkeys(("GaussianNB", "CategoricalNB", "MixedNB"), "learn.naive_bayes"),
    "KMeans": "learn.kmeans",
    "PCA": "learn.pca",
}


def __getattr__(name: str) -> object:
    """Import a textbook model on first access, so that other lessons do not load scikit-learn."""
    if name not in _HOMES:
        raise AttributeError(f"cloister.lessons has no {name!r}. Its models are: {', '.join(__all__)}.")
    try:
        home = import_module(f"cloister.lessons.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sklearn":
            raise
        from cloister.privacy.errors import MissingExtra

        raise MissingExtra("models need scikit-learn: pip install 'cloister[learn]'.") from None
    return getattr(home, name)


def __dir__() -> list[str]:
    return sorted(__all__)

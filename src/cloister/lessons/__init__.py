"""Lessons: textbook methods and exercises, each with the attack that defeats it. Not private; not for deployment.

    noise             the staircase, and spherical noise with a Gamma radius
    learn/            textbook methods of models: `lessons.LogisticRegression(…, method="objective")`
    compare/          the textbook's exercise: the cost of noise and the best place for it
    sql/              statistical-database protections before differential privacy, and the attacks on them
    controls/         classical rules in addition to noise; answers keep the guarantee of the dataset behind them
    tour              the terminal tour behind `cloister demo`
    local_accuracy    accuracy of local naive Bayes against epsilon
    synth_utility     utility of models trained on synthetic rows

This package imports the product. The product never imports it.
"""

from typing import TYPE_CHECKING

from cloister.lazy import door

if TYPE_CHECKING:
    from cloister.lessons.learn.kmeans import KMeans
    from cloister.lessons.learn.linear import LinearRegression, LinearSVC, LogisticRegression, Ridge
    from cloister.lessons.learn.naive_bayes import CategoricalNB, GaussianNB, MixedNB
    from cloister.lessons.learn.pca import PCA
    from cloister.lessons.noise import Staircase, Vector

__all__ = [
    "PCA",
    "CategoricalNB",
    "GaussianNB",
    "KMeans",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "MixedNB",
    "Ridge",
    "Staircase",
    "Vector",
]

__getattr__, __dir__ = door(__name__, extras={"sklearn": "models need scikit-learn: pip install 'cloister[learn]'."})

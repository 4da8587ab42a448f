"""What scikit-learn has for each private classifier."""

from collections.abc import Callable
from typing import Any

__all__ = ["TWINS"]


def _logistic(_seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000)


def _machine(_seed: int) -> Any:
    from sklearn.svm import LinearSVC

    return LinearSVC()


def _bayes(_seed: int) -> Any:
    from sklearn.naive_bayes import GaussianNB

    return GaussianNB(var_smoothing=1e-3)


def _tree(seed: int) -> Any:
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(max_depth=6, random_state=seed)


def _forest(seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(n_estimators=50, max_depth=10, random_state=seed)


def _boosting(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=seed)


TWINS: dict[str, Callable[[int], Any]] = {
    "LogisticRegression": _logistic,
    "RandomForestClassifier": _forest,
    "DecisionTreeClassifier": _tree,
    "GradientBoostingClassifier": _boosting,
    "GaussianNB": _bayes,
    "MixedNB": _bayes,
    "LinearSVC": _machine,
}

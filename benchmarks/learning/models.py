"""Our models and scikit-learn's on the same rows: what each scores, seed by seed."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from cloister import learn
from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import epsilon
from learning.data import People

DELTA = "1e-6"


def spend(amount: float) -> Any:
    return epsilon(str(amount), delta=DELTA)


class Classifiers:
    """Each gives [accuracy, AUC, seconds] on the test rows."""

    def __init__(self, data: People, book: Ledger) -> None:
        self.data, self.book = data, book
        mixed = {"bounds": data.numbers, "categories": data.categories}
        plain = {"bounds": (0, 1)}
        a, t, n, m = data.X, data.Xt, data.frame, data.frame_t
        self.kinds: dict[str, tuple[Any, dict[str, Any], Any, Any]] = {
            "LogisticRegression": (learn.LogisticRegression, plain, a, t),
            "LogisticRegression, bins": (
                learn.LogisticRegression, {"bounds": (0, 1), "data_norm": data.rich_norm}, data.rich, data.rich_t,
            ),
            "LinearSVC": (learn.LinearSVC, plain, a, t),
            "GaussianNB": (learn.GaussianNB, plain, a, t),
            "MixedNB": (learn.MixedNB, mixed, n, m),
            "DecisionTreeClassifier": (learn.DecisionTreeClassifier, mixed, n, m),
            "RandomForestClassifier": (learn.RandomForestClassifier, mixed, n, m),
            "GradientBoostingClassifier": (learn.GradientBoostingClassifier, mixed, n, m),
            "GradientBoostingClassifier, bins": (learn.GradientBoostingClassifier, {**mixed, "bins": data.cuts}, n, m),
        }  # fmt: skip

    def score(self, name: str, amount: float, seed: int) -> list[float]:
        kind, facts, rows, asked = self.kinds[name]
        model = kind(spend(amount), **facts, classes=[0, 1], ledger=self.book, random_state=f"{name} {amount} {seed}")
        start = time.perf_counter()
        model.fit(rows, self.data.y)
        return _scored(model, asked, self.data.yt, time.perf_counter() - start)

    def without_noise(self, name: str) -> list[float]:
        from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
        from sklearn.linear_model import LogisticRegression
        from sklearn.naive_bayes import GaussianNB
        from sklearn.svm import LinearSVC
        from sklearn.tree import DecisionTreeClassifier

        data = self.data
        twins: dict[str, tuple[Any, Any, Any]] = {
            "LogisticRegression": (LogisticRegression(max_iter=2000), data.X, data.Xt),
            "LogisticRegression, bins": (LogisticRegression(max_iter=2000), data.rich, data.rich_t),
            "LinearSVC": (LinearSVC(), data.X, data.Xt),
            "GaussianNB": (GaussianNB(), data.X, data.Xt),
            "MixedNB": (GaussianNB(), data.X, data.Xt),
            "DecisionTreeClassifier": (DecisionTreeClassifier(max_depth=6, random_state=0), data.X, data.Xt),
            "RandomForestClassifier": (RandomForestClassifier(max_depth=10, random_state=0), data.X, data.Xt),
            "GradientBoostingClassifier": (HistGradientBoostingClassifier(random_state=0), data.X, data.Xt),
            "GradientBoostingClassifier, bins": (
                HistGradientBoostingClassifier(random_state=0),
                data.rich,
                data.rich_t,
            ),
        }
        model, rows, asked = twins[name]
        start = time.perf_counter()
        model.fit(rows, data.y)
        return _scored(model, asked, data.yt, time.perf_counter() - start)


def _scored(model: Any, asked: Any, labels: Any, seconds: float) -> list[float]:
    told = model.predict_proba(asked)[:, 1] if hasattr(model, "predict_proba") else model.decision_function(asked)
    return [float((model.predict(asked) == labels).mean()), float(roc_auc_score(labels, told)), seconds]


def regression(data: People, book: Ledger) -> tuple[float, Callable[[float, int], list[float]]]:
    """R² of least squares on the test rows, and ours."""
    from sklearn.linear_model import LinearRegression

    best = float(LinearRegression().fit(data.Z, data.goal).score(data.Zt, data.goal_t))

    def score(amount: float, seed: int) -> list[float]:
        model = learn.LinearRegression(
            spend(amount), bounds=(0, 1), target_bounds=data.ends, ledger=book, random_state=f"hours {amount} {seed}"
        ).fit(data.Z, data.goal)
        return [float(model.score(data.Zt, data.goal_t))]

    return best, score


def coverage(book: Ledger, fits: int) -> float:
    """How often 95 % intervals of coefficients hold the truth: made-up rows, fresh for every fit."""
    truth, inside = np.array([1.0, -2.0, 0.5, 0.0, 3.0]), []
    for seed in range(fits):
        random = np.random.default_rng(seed)
        rows = random.random((20_000, 5))
        goal = rows @ truth + random.normal(0, 1, len(rows))
        model = learn.LinearRegression(
            spend(1), bounds=(0, 1), target_bounds=(-8, 10), ledger=book, random_state=f"coverage {seed}"
        ).fit(rows, goal)
        inside.append(np.abs(model.coef_ - truth) <= 1.96 * model.standard_errors_[:-1])
    return float(np.mean(inside))


def clusters(points: Any, length: float, book: Ledger) -> tuple[float, Callable[[float, int], list[float]]]:
    """The loss of Lloyd's algorithm, and ours as a multiple of it."""
    from sklearn.cluster import KMeans

    best = float(KMeans(10, n_init=5, random_state=0).fit(points).inertia_ / len(points))

    def score(amount: float, seed: int) -> list[float]:
        model = learn.KMeans(
            spend(amount), n_clusters=10, data_norm=length, ledger=book, random_state=f"means {amount} {seed}"
        ).fit(points)
        away = [((points - one) ** 2).sum(axis=1) for one in model.cluster_centers_]
        return [float(np.min(away, axis=0).mean() / best)]

    return best, score


def components(pictures: Any, book: Ledger) -> tuple[Any, float, Callable[[float, int], list[float]]]:
    """The scatter, what ten directions capture of it at best, and our share of that."""
    away = pictures - pictures.mean(axis=0)
    scatter = away.T @ away
    best = float(np.linalg.eigvalsh(scatter)[-10:].sum())

    def score(amount: float, seed: int) -> list[float]:
        model = learn.PCA(
            spend(amount), n_components=10, bounds=(0, 1), ledger=book, random_state=f"pca {amount} {seed}"
        ).fit(pictures)
        basis = np.linalg.qr(model.components_.T)[0]
        return [float(np.trace(basis.T @ scatter @ basis) / best)]

    return scatter, best, score

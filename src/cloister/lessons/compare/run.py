"""The loops of the exercise: every epsilon, every repetition, every place for the noise.

Nothing here is private: it shows the true value, measures accuracy on raw rows, and tries many epsilons. It sums the
cost that all of it would have had as private releases.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

import cloister.learn as learn
from cloister.learn.base.binned_estimator import BinnedEstimator
from cloister.lessons.compare.comparison import BOTH, DATA, MODEL, PLAIN, Comparison
from cloister.lessons.compare.scores import likelihoods, measures, per_group
from cloister.lessons.compare.table import ExerciseTable, read_lesson
from cloister.privacy import conversion
from cloister.privacy.errors import BadInput
from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import Loss, epsilon
from cloister.privacy.mechanisms import DiscreteLaplace, Laplace
from cloister.privacy.noise import SeededSource

__all__ = ["compare"]


# The scikit-learn counterpart of each private classifier.


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


_EPSILONS = ("0.1", "0.3", "1", "3", "10")
_USUAL = ("LogisticRegression", "RandomForestClassifier")


def compare(
    table: Any,
    target: str,
    *,
    schema: Any = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    categories: Mapping[str, Sequence[Any]] | None = None,
    classes: Sequence[Any] | None = None,
    group: str | None = None,
    statistic: str | None = None,
    estimators: Sequence[str] = _USUAL,
    epsilons: Sequence[Any] = _EPSILONS,
    delta: Any = "1e-6",
    repetitions: int = 100,
    fits: int = 5,
    seed: Any = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Run the textbook's exercise on a table.

    Args:
        table: columns by name: a dict, an Arrow table, a pandas or polars frame.
        target: the column to predict.
        schema, bounds, categories, classes: the public facts of the columns (see `read_lesson`).
        group: a column with categories whose groups are compared.
        statistic: a numeric column whose mean is released repeatedly; default the first one.
        estimators: names of classifiers in cloister.learn.
        epsilons, delta: the losses to try.
        repetitions: the number of releases of the mean at each epsilon.
        fits: the number of fits of each model at each epsilon.
        seed: makes the run reproducible.
        progress: called with (done, all).

    Privacy: none; the result states the cost it would have had. Seeded, so every release is marked `not private`.
    """
    tried = tuple(str(amount) for amount in epsilons)
    if not tried or min(repetitions, fits) < 1:
        raise BadInput("give at least one epsilon, one repetition and one fit.")
    lesson = read_lesson(
        table, target, schema=schema, bounds=bounds, categories=categories, classes=classes, group=group
    )
    run = _Run(lesson, tuple(estimators), tried, str(delta), fits, seed)
    name = statistic or next(iter(lesson.bounds), None)
    if name is not None and name not in lesson.bounds:
        raise BadInput(f"{name!r:.60} is no column with bounds; a mean needs one.")
    means = [] if name is None else list(_means(lesson, name, tried, repetitions, seed))
    jobs = list(run.jobs())
    for done, job in enumerate(jobs):
        job()
        if progress is not None:
            progress(done + 1, len(jobs))
    models = [epsilon(amount) for amount, _ in means] + run.models
    return Comparison(
        target=target,
        group=group,
        groups=tuple(str(category) for category in lesson.categories.get(group or "", ())),
        rows=(run.train.rows, run.test.rows),
        epsilons=tried,
        delta=str(delta),
        statistic=name,
        true_value=None if name is None else _true_mean(lesson, name),
        means=means,
        results=run.results,
        by_group=run.by_group,
        majority=float(np.bincount(run.test.labels).max() / max(run.test.rows, 1)),
        model_cost=_composed(models, str(delta)),
        table_cost=_composed(run.tables, str(delta)),
    )


class _Run:
    """Fits of every kind, and their scores."""

    def __init__(
        self, lesson: ExerciseTable, names: tuple[str, ...], epsilons: tuple[str, ...], delta: str, fits: int, seed: Any
    ) -> None:
        valid = [name for name in names if name in TWINS]
        if len(valid) < len(names) or not valid:
            raise BadInput(f"estimators are classifiers: {', '.join(TWINS)}.")
        order = np.argsort(SeededSource(f"split {seed}").floats(lesson.rows), kind="stable")
        cut = 3 * lesson.rows // 4
        self.train, self.test = lesson.take(order[:cut]), lesson.take(order[cut:])
        if not self.train.rows or not self.test.rows:
            raise BadInput("there are too few rows of the listed classes to compare anything.")
        self._names, self._epsilons, self._delta, self._fits, self._seed = names, epsilons, delta, fits, seed
        self._rows = self.train.matrix()
        self._asked, self._groups = self.test.matrix(), self.test.groups()
        self.results: list[dict[str, Any]] = []
        self.by_group: list[dict[str, Any]] = []
        self.models: list[Loss] = []
        self.tables: list[Loss] = []

    def jobs(self) -> Iterator[Callable[[], None]]:
        """Return one job for every plain fit, and for every epsilon and repetition."""
        for name in self._names:
            yield lambda name=name: self._plain(name)  # type: ignore[misc]
        for amount, time in product(self._epsilons, range(self._fits)):
            yield lambda amount=amount, time=time: self._noisy(amount, time)  # type: ignore[misc]

    def _plain(self, name: str) -> None:
        model = TWINS[name](0).fit(self._rows, self.train.labels)
        self._note(name, PLAIN, None, 0, model)

    def _noisy(self, amount: str, time: int) -> None:
        noisy = self.train.noisy(amount, SeededSource(f"table {self._seed} {amount} {time}"))
        self.tables.append(epsilon(amount, relation="replace-one"))
        rows = noisy.matrix()
        for name in self._names:
            self.models.append(epsilon(amount, delta=self._delta))
            self._note(name, MODEL, amount, time, self._private(name, amount, time, self._rows, self.train.labels))
            if len(np.unique(noisy.labels)) > 1:
                self._note(name, DATA, amount, time, TWINS[name](time).fit(rows, noisy.labels))
            # Post-processing of a release: it costs nothing more, and the model's own noise is wasted.
            self._note(name, BOTH, amount, time, self._private(name, amount, time, rows, noisy.labels))

    def _private(self, name: str, amount: str, time: int, rows: Any, labels: Any) -> Any:
        kind = getattr(learn, name)
        with tempfile.TemporaryDirectory() as folder, Ledger.in_folder(folder) as book:
            settings = {
                "bounds": (0, 1),
                "classes": range(len(self.train.classes)),
                "ledger": book,
                "random_state": f"{self._seed} {amount} {time} {name}",
            }
            model = kind(epsilon(amount, delta=self._delta), **settings)
            if isinstance(model, BinnedEstimator):  # an indicator has two cells
                model.bins = {i: 2 for i, flag in enumerate(self.train.indicators()) if flag}
            return model.fit(rows, labels)

    def _note(self, name: str, setting: str, amount: str | None, time: int, model: Any) -> None:
        on_test, on_train = (likelihoods(model, rows, len(self.train.classes)) for rows in (self._asked, self._rows))
        facts = {"estimator": name, "setting": setting, "epsilon": amount}
        scores = measures(on_test, self.test.labels, self._groups, on_train, self.train.labels)
        self.results.append({**facts, "repetition": time, **scores})
        if self._groups is not None and time == 0 and amount in (None, self._epsilons[-1]):
            self.by_group += [{**facts, **group} for group in per_group(on_test, self.test.labels, self._groups)]


def _means(
    lesson: ExerciseTable, name: str, epsilons: Sequence[str], times: int, seed: Any
) -> Iterator[tuple[str, float]]:
    """Release the mean of a column from a noisy sum around the middle of its bounds and a noisy count: half each."""
    low, high = lesson.bounds[name]
    middle, half = (low + high) / 2, (high - low) / 2
    away = lesson.numbers(name) - middle
    for amount in epsilons:
        share = epsilon(amount).split(2)
        law, counted = Laplace.for_bounds(-half, half, share), DiscreteLaplace.for_loss(1, share)
        total = law.grid.total(law.grid.encode(away, -half, half))
        source = SeededSource(f"means {seed} {amount}")
        for _ in range(times):
            rows = max(counted.release(lesson.rows, source), 1)
            yield amount, float(np.clip(middle + law.release(total, source) / rows, low, high))


def _true_mean(lesson: ExerciseTable, name: str) -> float:
    return float(np.clip(lesson.numbers(name), *lesson.bounds[name]).mean())


def _composed(spent: Sequence[Loss], delta: str) -> Loss:
    """Return the total cost: the smaller of the simple sum and of zero-concentrated composition."""
    simple = sum(spent[1:], start=spent[0])
    rhos = [
        Loss("rho", conversion.rho_within(loss.amount, loss.delta)) if loss.delta else loss.as_rho() for loss in spent
    ]
    both = Loss("rho", sum((rho.amount for rho in rhos), start=Fraction(0)), relation=simple.relation)
    return min(simple, both.as_epsilon(delta=delta), key=lambda cost: cost.amount)

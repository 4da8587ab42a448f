"""Naive Bayes without rows: devices report one perturbed fact each, and a collector learns from the reports."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.columns import Choices, Column, Cut, Span, equal_width
from cloister.local.base.counts import Counts, aggregate
from cloister.local.base.estimate import Estimate, estimate
from cloister.local.base.oracle import Floats, epsilon
from cloister.local.base.projection import norm_sub
from cloister.local.survey.form import Form, FormAnswer, Maker, answer, form_of
from cloister.privacy.errors import BadInput, MissingExtra, NotPrivate
from cloister.privacy.loss import Loss
from cloister.privacy.noise import SeededSource, Source
from cloister.privacy.number import Number

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
except ImportError:
    raise MissingExtra("naive Bayes is a scikit-learn estimator: pip install 'cloister[learn]'.") from None

__all__ = ["LocalNaiveBayes", "Beliefs", "conditional"]


# From noisy shares to class-conditional probabilities. Post-processing throughout.


# Standard deviations that a cell's evidence is compared with, and the smallest part of its expected share that is kept.
_DAMPING, _LEAST = 3.0, 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Beliefs:
    """The fitted parameters.

    Attributes:
        prior: the share of each class.
        tables: for each column of choices or bins: P(value | class), one row a class.
        means, variances: for each column of numbers: of each class, in numbers scaled to [-1, 1].
    """

    prior: Floats
    tables: Mapping[int, Floats] = field(default_factory=dict)
    means: Mapping[int, Floats] = field(default_factory=dict)
    variances: Mapping[int, Floats] = field(default_factory=dict)

    def scores(self, read: list[NDArray[Any]]) -> Floats:
        """Return ln P(class, row), one row a person. `read` holds columns as codes, or as numbers in [-1, 1]."""
        total = np.tile(np.log(self.prior), (len(read[0]), 1))
        for column, table in self.tables.items():
            total += np.log(table).T[read[column]]
        for column, mean in self.means.items():
            spread = self.variances[column]
            total -= 0.5 * (np.log(spread) + (read[column][:, None] - mean) ** 2 / spread)
        return total


def count(form: Form, answers: Iterable[FormAnswer]) -> tuple[list[Counts], int]:
    """Count each question's reports, and the answers to no question of the form."""
    counts = [aggregate(question.oracle, []) for question in form.questions]
    strange = 0
    for form_answer in answers:
        index = getattr(form_answer, "question", None)
        if isinstance(index, int) and not isinstance(index, bool) and 0 <= index < len(counts):
            counts[index] = counts[index] + aggregate(form.questions[index].oracle, form_answer.reports)
        else:
            strange += 1
    return counts, strange


def estimates(form: Form, counts: list[Counts]) -> tuple[Estimate | None, ...]:
    """Return the raw, unbiased estimate of every question; None for one without answers."""
    pairs = zip(form.questions, counts, strict=True)
    return tuple(estimate(question.oracle, tally) if tally.n else None for question, tally in pairs)


def beliefs(form: Form, found: tuple[Estimate | None, ...], floor: float, shared: bool) -> Beliefs:
    """Fit the model to the estimates.

    Args:
        form: the public facts.
        found: an estimate for every question.
        floor: the least variance of a number, as a share of the squared half-width of its bounds.
        shared: whether all classes have one variance.
    """
    if all(result is None for result in found):
        raise BadInput("no report was counted, so there is nothing to learn from.")
    k = form.classes.size
    prior = _prior(form, found)
    tables = {index: np.full((k, column.size), 1 / column.size) for index, column in _listed(form)}
    firsts: dict[int, tuple[Floats, float]] = {}
    seconds: dict[int, tuple[Floats, float]] = {}
    for question, result in zip(form.questions, found, strict=True):
        if result is None or question.about == "class":
            continue
        if question.about == "joint":
            index = question.columns[0]
            tables[index] = conditional(result.frequencies.reshape(-1, k), _noise(result), result.n, prior)
        else:
            moments = firsts if question.about == "numbers" else seconds
            for index, mean in zip(question.columns, result.frequencies.reshape(-1, k), strict=True):
                moments[index] = mean, _noise(result)
    means, variances = {}, {}
    for index in (index for index, column in enumerate(form.columns) if isinstance(column, Span)):
        if index in firsts and index in seconds:  # a column without answers carries no evidence
            means[index], variances[index] = _normal(firsts[index], seconds[index], prior, floor, shared)
    return Beliefs(prior, tables, means, variances)


def conditional(raw: Floats, noise: float, people: int, prior: Floats) -> Floats:
    """Return P(value | class), one row a class, from raw shares of (value, class).

    Noise on a rare value would look like strong evidence, and a projection to the simplex changes all shares to correct
    a few. So each cell keeps its share under independence of value and class, times one plus its raw distance from it,
    divided by it plus three standard deviations: evidence that noise explains is damped, and its sign kept, since many
    weak columns decide together. The textbook sets negative counts to 1 instead, which biases all totals (spec E-17),
    and was less accurate on generated tables.

    Args:
        raw: one row a value, one column a class.
        noise: the variance of a share.
        people: the number of respondents.
        prior: the share of each class.
    """
    values = norm_sub(raw.sum(axis=1)) + 1 / (people * len(raw))
    apart = np.outer(values / values.sum(), prior)
    doubt = _DAMPING * noise**0.5 + 1 / people  # without noise, one person in each cell
    joint = apart * np.maximum(1 + (raw - apart) / (apart + doubt), min(_LEAST, doubt / apart.max()))
    return np.asarray((joint / joint.sum(axis=0)).T)


def _prior(form: Form, results: tuple[Estimate | None, ...]) -> Floats:
    """Return class shares from all questions about the class, each weighted by the inverse of its variance.

    Sums of a joint question's shares over the values are class shares too: with many columns, they cover most people.
    """
    k, total, weights, people = form.classes.size, np.zeros(form.classes.size), 0.0, 0
    for question, result in zip(form.questions, results, strict=True):
        if result is not None and question.about in ("class", "joint"):
            cells = result.frequencies.reshape(-1, k)
            weight = 1 / (len(cells) * _noise(result) + 1 / (4 * result.n))
            total, weights, people = total + weight * cells.sum(axis=0), weights + weight, people + result.n
    if not people:
        return np.full(k, 1 / k)
    shares = norm_sub(total / weights) + 1 / (people * k)
    return np.asarray(shares / shares.sum())


def _normal(
    first: tuple[Floats, float], second: tuple[Floats, float], prior: Floats, floor: float, shared: bool
) -> tuple[Floats, Floats]:
    """Return class means and variances, from means of number · [class] and of (2·number² - 1) · [class]."""
    weight = np.maximum(prior, 1e-9)
    means = np.clip(_by_class(*first, weight), -1, 1)
    squares = np.clip((1 + _by_class(*second, weight)) / 2, 0, 1)
    spread = squares - means**2
    if shared:
        spread = np.full_like(spread, float(weight @ squares - weight @ means**2))
    # A variance reduced by noise would look like certainty: it is floored, higher for more noise.
    least = floor + 0.25 * (second[1] ** 0.5 / 2 / (1.0 if shared else weight) + first[1] ** 0.5)
    return means, np.clip(spread, np.minimum(least, 1.0), 1.0)


def _by_class(sums: Floats, noise: float, weight: Floats) -> Floats:
    """Return class means, shrunk towards the overall mean as far as noise explains their distance from it."""
    overall = float(sums.sum())
    gap = sums - weight * overall
    factor = max(0.0, 1 - (len(sums) - 1) * noise / max(float(np.square(gap).sum()), 1e-300))
    return np.asarray(overall + factor * gap / weight)


def _noise(result: Estimate) -> float:
    return float(np.square(result.standard_error).mean())


def _listed(form: Form) -> list[tuple[int, Any]]:
    return [(index, column) for index, column in enumerate(form.columns) if not isinstance(column, Span)]


class LocalNaiveBayes(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Naive Bayes from local reports: each person answers one question, once, with the whole epsilon.

    The device's half is `report`, the collector's `fit_reports`. `fit` simulates both, one device a row: for lessons,
    and for a curator who wants the result of a local collection.

    Args:
        epsilon: the loss of one person: `local.epsilon(2)`, or the number alone.
        classes: the public labels.
        categories: for each feature its public list of values, or None where it is a number. None if all are numbers.
        bounds: for each feature that is a number its public (low, high), None for the others.
        bins: the number of bins of equal width for a number; "gaussian" for a normal law instead.
        edges: for each feature public inner edges to cut it at (`equal_frequency` of a public sample), or None.
        oracle: the frequency oracle: "advised", "DE", "SHE", "THE", "SUE", "OUE", "OLH", "HR", "SS", or a function of a
            domain and a loss.
        split: of gaussian features, ask all at once at a share of the epsilon each, not one with all of it: worse.
        variance: of gaussian features, "shared" by all classes, or the "own" one of each.
        var_floor: the least variance, as a share of the squared half-width of the bounds.
        projection: a public matrix, features by directions: rows are multiplied with it first, and bounds are those of
            the directions. Learn it from public rows, or with a private PCA (spec E-11): one that was fitted on the
            people's own rows reveals them, and nothing here can prevent that.
        random_state: a seed for `fit`, for lessons and tests: the model is then marked `not private`.

    Attributes:
        classes_, class_prior_: labels, and their estimated shares.
        feature_prob_: for each feature of categories or bins P(value | class), one row a class.
        theta_, var_: for each gaussian feature the mean and variance of each class.
        estimates_: for each question its raw estimate with standard errors; None if it has no answers.
        form_: the public facts; `form_.certificates()` proves the loss of a report.
        loss_: the loss of each person. private_: False if randomness was seeded.
        n_reports_, refused_: the numbers of reports counted and refused.

    Privacy: epsilon for any row and class against any other (replace-one), against the collector and everyone after
        it. Classes, categories, bounds, edges, projection, the number of features and participation are public.
        Devices sample exactly (client/), learning is post-processing. Audited in
        tests/statistical/test_local_naive_bayes.py.

    >>> model = LocalNaiveBayes(4, classes=["no", "yes"], categories=[["a", "b"], ["x", "y", "z"]], random_state=1)
    >>> rows, labels = [["a", "x"], ["b", "z"]] * 2000, ["yes", "no"] * 2000
    >>> model.fit(rows, labels).predict([["a", "x"], ["b", "z"]]).tolist(), model.private_
    (['yes', 'no'], False)
    """

    def __init__(
        self,
        epsilon: Loss | Number | None = None,
        *,
        classes: Sequence[Any] | None = None,
        categories: Sequence[Sequence[Any] | None] | None = None,
        bounds: Sequence[tuple[float, float] | None] | None = None,
        bins: int | str = 4,
        edges: Sequence[Sequence[float] | None] | None = None,
        oracle: str | Maker = "advised",
        split: bool = False,
        variance: str = "shared",
        var_floor: float = 1e-3,
        projection: Any = None,
        random_state: int | str | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.classes = classes
        self.categories = categories
        self.bounds = bounds
        self.bins = bins
        self.edges = edges
        self.oracle = oracle
        self.split = split
        self.variance = variance
        self.var_floor = var_floor
        self.projection = projection
        self.random_state = random_state

    def form(self) -> Form:
        """Return the public facts that devices need. Distribute them unchanged."""
        if self.epsilon is None or self.classes is None:
            raise BadInput(
                "say what a person pays, and name the public classes: LocalNaiveBayes(1, classes=[0, 1], …)."
            )
        loss = self.epsilon if isinstance(self.epsilon, Loss) else epsilon(self.epsilon)
        return form_of(
            Choices(tuple(self.classes)), self._columns(), loss, self.oracle, self.split, _matrix(self.projection)
        )

    def report(self, x: Any, y: Any, source: Source | None = None) -> tuple[FormAnswer, ...]:
        """Return the reports of some people's devices: one report a person, grouped by question.

        Args:
            x: one person's features, or a table of several people's.
            y: the label, or labels.
            source: the source of random bits; default the operating system's.

        Privacy: costs each person epsilon, once. A second report on the same row costs it again.
        """
        return answer(self.form(), x, y, source)

    def fit_reports(self, answers: Iterable[FormAnswer]) -> Self:
        """Learn from received reports. Malformed ones are refused and counted.

        Args:
            answers: what `report` returned on all the devices, in any order; reports may be bytes.

        Privacy: post-processing, costs nothing.
        """
        if self.variance not in ("shared", "own") or not 0 < self.var_floor <= 1:
            raise BadInput("variance is 'shared' or 'own', and var_floor is above 0 and is at most 1.")
        form = self.form()
        counts, strange = count(form, answers)
        self.estimates_: tuple[Estimate | None, ...] = estimates(form, counts)
        learned = beliefs(form, self.estimates_, self.var_floor, self.variance == "shared")
        self.n_reports_ = sum(tally.n for tally in counts)
        self.refused_ = strange + sum(tally.refused for tally in counts)
        self.private_ = all(tally.private for tally in counts)
        self._keep(form, learned)
        return self

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Simulate all devices and the collector: each row is perturbed once by the device's half and then discarded.

        Privacy: costs each person epsilon. The caller sees the rows; users of the model do not.
        """
        source = None if self.random_state is None else SeededSource(self.random_state)
        return self.fit_reports(self.report(X, y, source))

    def predict_log_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the logarithm of the probability of each class."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "form_")
        scores = self._beliefs.scores(self.form_.read(X))
        return np.asarray(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each class."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the likeliest class of each row."""
        best = self.predict_log_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def require_private(self) -> Self:
        """Return this model, or raise if its reports were seeded and so not private."""
        if not self.private_:
            raise NotPrivate("these reports were drawn from a seeded source: for lessons and tests only.")
        return self

    def _keep(self, form: Form, learned: Beliefs) -> None:
        self.form_, self.loss_, self._beliefs = form, form.loss, learned
        self.classes_, self.class_prior_ = np.array(form.classes.values), learned.prior
        self.n_features_in_ = len(form.projection) or len(form.columns)
        self.feature_prob_ = learned.tables
        spans = {index: column for index, column in enumerate(form.columns) if isinstance(column, Span)}
        self.theta_ = {at: spans[at].low + (mean + 1) / 2 * spans[at].width for at, mean in learned.means.items()}
        self.var_ = {at: spread * (spans[at].width / 2) ** 2 for at, spread in learned.variances.items()}

    def _columns(self) -> list[Column]:
        settings = (self.categories, self.bounds, self.edges)
        size = {len(part) for part in settings if part is not None}
        if len(size) != 1 or not min(size):
            raise BadInput("categories, bounds and edges each have one entry a feature (or direction).")
        parts = zip(*(part if part is not None else [None] * min(size) for part in settings), strict=True)
        return [self._column(*facts) for facts in parts]

    def _column(self, values: Any, ends: Any, edges: Any) -> Column:
        if (values is None) == (ends is None and edges is None):
            raise BadInput(
                "each feature has either public categories, or public bounds or edges. They are never guessed."
            )
        if values is not None:
            if self.projection is not None:
                raise BadInput("a projection takes numbers alone: give bounds for its directions, and no categories.")
            return Choices(tuple(values))
        if edges is not None:
            return Cut(tuple(float(edge) for edge in edges))
        low, high = (float(end) for end in ends)
        return Span(low, high) if self.bins == "gaussian" else Cut(equal_width(low, high, self.bins))  # type: ignore[arg-type]


def _matrix(projection: Any) -> tuple[tuple[float, ...], ...]:
    """Return a public matrix unchanged. Refuse anything that could be fitted on the rows."""
    if projection is None:
        return ()
    refusal = (
        "projection is a public matrix of numbers, features by directions: not a name, a transformer or a function."
    )
    if not isinstance(projection, np.ndarray | list | tuple):
        raise BadInput(refusal)
    matrix = np.asarray(projection)
    if matrix.dtype.kind not in "iuf" or matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():
        raise BadInput(refusal)
    return tuple(tuple(row) for row in matrix.astype(np.float64).tolist())

"""PATE: a classifier that learns from noisy votes on public rows (Papernot et al. 2017, 2018).

    private rows ──► disjoint parts ──► a teacher for each ──► votes on public rows ──► noise ──► labels ──► student
                     partition.py       teachers.py                                    aggregation.py        student.py

Only labels and the student leave. Votes, teachers and parts live inside one step and are dropped when it ends.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from cloister.learn.base.binned_estimator import public_generator
from cloister.learn.base.estimator import PrivateEstimator
from cloister.learn.base.frame import Floats
from cloister.learn.base.inputs import Box, is_dataset, read_answers, read_table
from cloister.learn.base.integer_rows import Integers
from cloister.learn.base.row_source import InputRows, keep_input, read_input
from cloister.learn.pate.aggregation import (
    CHECKED,
    Labels,
    after_tests,
    agreement,
    confident_labels,
    counter,
    data_dependent,
    for_labels,
    labels_of,
    usual_queries,
)
from cloister.learn.pate.partition import Parts, keyed, of_persons
from cloister.learn.pate.student import check_student, learn_student, probabilities
from cloister.learn.pate.teachers import Teachers, check_learner, default_learner
from cloister.learn.preprocessing.encode_features import prepare
from cloister.privacy.errors import BadInput
from cloister.privacy.filter import BudgetShare, PrivacyFilter, budget_share
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.number import rational

__all__ = ["PATEClassifier"]

_MOST_TEACHERS, _MOST_QUERIES = 100_000, 10**7


class PATEClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Private classifier from any classifier without privacy, many disjoint teachers and unlabelled public rows.

    Args:
        spend: privacy budget of the fit: `epsilon(3, delta="1e-5")`, `rho("0.1")`, or a pure `epsilon(1)`.
        public: unlabelled public rows with the features of `X`: an array or frame. Their first rows are labelled. For
            a dataset, a frame or dict with its columns.
        estimator: classifier of each teacher, with `fit` and `predict`; it learns class codes 0, 1, … Logistic
            regression on standardised features unless given.
        teachers: number of disjoint parts.
        queries: largest number of public rows that get a label; by default a number at which teachers that mostly
            agree outvote the noise.
        confident: share of the teachers that must agree, above 0 and at most 1: twice `queries` rows are tested, and
            the first that pass are labelled. None (the default) labels the first `queries` rows untested.
        student: classifier that is released, trained on class codes; multinomial logistic regression unless given,
            the only one that `learn.save` keeps.
        pseudo_labels: True if the student also learns from public rows without a label, where it is sure of its own
            (self-training); needs `predict_proba`.
        check_teachers: True to spend a twentieth on `teacher_agreement_`.
        data_dependent: a delta, such as "1e-5", to spend a twentieth on `data_dependent_`: the loss at that delta which
            follows from the votes, sanitised. It is a report, not the claim. Needs a rho or an epsilon with delta.
        classes: the public list of labels; rows with other labels are left out.
        fill: replaces a missing number; without it a private row is left out.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        student_: the released student; it predicts class codes, positions in `classes_`.
        labels_: released labels; `labelled_` are the positions of their rows in `public`.
        teacher_agreement_: noisy number of teachers by the share of the released labels that they voted for, in ten
            equal bins; None unless bought. Teachers far from the others learned from rows of another law, or failed.
        data_dependent_: the data-dependent loss as text, also in `release_.parameters`; None unless bought.
        classes_, n_features_in_, feature_names_in_: as in scikit-learn.
        release_, loss_: the release with its receipt, and the loss charged.

    Privacy: the spend, for one row added or removed, or for one person of a dataset with all rows: a person's rows are
        in one part, so no group privacy is paid. The rows must all be public in `public`; classes, the number of
        teachers and queries, and all parameters are public. One unit changes one teacher, so one vote for each query
        (aggregation.py). The loss is data-independent. The noise is discrete Gaussian on counts for a rho, and
        report-noisy-max for a pure epsilon. Errors and warnings of teachers are swallowed (teachers.py). Rows are read
        into this process, whose operator is trusted with them. Not hidden: how long the teachers took. Audited in
        tests/statistical/test_learn_pate_audit.py.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        public: Any = None,
        estimator: Any = None,
        teachers: int = 100,
        queries: int | None = None,
        confident: float | None = None,
        student: Any = None,
        pseudo_labels: bool = True,
        check_teachers: bool = False,
        data_dependent: Any = None,
        classes: Sequence[Any] | None = None,
        fill: float | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        self.spend = spend
        self.public = public
        self.estimator = estimator
        self.teachers = teachers
        self.queries = queries
        self.confident = confident
        self.student = student
        self.pseudo_labels = pseudo_labels
        self.check_teachers = check_teachers
        self.data_dependent = data_dependent
        self.classes = classes
        self.fill = fill
        self.ledger = ledger
        self.account = account
        self.random_state = random_state

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        *,
        target: str | None = None,
        features: Sequence[str] | None = None,
        table: str | None = None,
    ) -> Self:
        """Fit to rows, or to those of a Cloister dataset.

        Args:
            X: an array or frame, or a dataset, whose rows are read into this process (learn/base/row_source.py).
            y: labels; None for a dataset.
            target, features, table: for a dataset: the column to predict (its public values are the classes), the
                columns to predict from (all others unless given), and the table if there are several.

        Privacy: the spend, charged before a row is read.
        """
        self._check()
        source = read_input(
            X, y, target=target, features=features, table=table, classes=self.classes, kind="classes", fill=self.fill
        )
        keep_input(self, source)
        pool = self._pool(source)
        self._box = Box(pool.min(axis=0), pool.max(axis=0))
        assert source.classes is not None
        parts = Parts(keyed(source), self.teachers, self._box)

        def steps(meter: PrivacyFilter, budget: BudgetShare) -> Labels:
            return self._label(meter, budget, parts, pool)

        self._public = f"{pool.shape} {sha256(np.ascontiguousarray(pool).tobytes()).hexdigest()}"
        try:
            # A person's rows are in one part: one vote changes, however many rows there are.
            if of_persons(source):
                released = self._train(steps, X, asked=parts.source.asked)  # type: ignore[union-attr]
            else:
                released = self._train_rows(steps, source)
        finally:
            del self._public
        self.classes_ = source.classes
        self.labels_, self.labelled_ = source.classes[released.codes], released.positions
        self.teacher_agreement_ = released.agreement
        self.data_dependent_ = None if released.data_dependent is None else str(released.data_dependent)
        if self.data_dependent_ is not None:
            told = {**self.release_.parameters, "data-dependent loss": self.data_dependent_}
            self.release_ = replace(self.release_, parameters=told)
        self.student_ = learn_student(
            self.student,
            pool,
            released.positions,
            released.codes,
            len(source.classes),
            pseudo_labels=bool(self.pseudo_labels),
        )
        return self

    def _label(self, meter: PrivacyFilter, budget: BudgetShare, parts: Parts, pool: Floats) -> Labels:
        """Return the released labels. Teachers are local to this call."""
        assert parts.source.classes is not None
        classes = len(parts.source.classes)
        report = self.data_dependent is not None
        labels = for_labels(budget, check=bool(self.check_teachers), report=report)
        queries = min(self.queries or usual_queries(labels, self.teachers, classes, len(pool)), len(pool))
        tests = queries if self.confident is None else min(CHECKED * queries, len(pool))
        kept: list[Integers] = []

        def votes() -> Integers:
            if not kept:
                public = public_generator(meter.source)
                learner = default_learner() if self.estimator is None else self.estimator
                kept.append(Teachers.fit(learner, parts.look(meter.source), classes, public).votes(pool[:tests]))
            return kept[0]

        counts = counter(votes, classes)
        if self.confident is None:
            positions, codes = np.arange(queries), labels_of(meter, labels, counts, queries)
        else:
            threshold = math.ceil(self.confident * self.teachers)
            positions, codes = confident_labels(meter, labels, counts, tests=tests, most=queries, threshold=threshold)
        agreed = told = None
        if self.check_teachers:
            agreed = agreement(meter, budget, lambda: votes()[:, positions], codes)
        if report:
            told = data_dependent(
                meter,
                budget,
                labels if self.confident is None else after_tests(labels),
                lambda: counts()[positions],
                queries=len(positions),
                teachers=self.teachers,
                delta=float(self.data_dependent),
            )
        return Labels(positions, codes, agreed, told)

    def _check(self) -> None:
        """Check the parameters that only this estimator has."""
        budget = budget_share(self.spend)
        if self.data_dependent is not None:
            if not 0 < rational(self.data_dependent, "data_dependent") < 1:
                raise BadInput("data_dependent is the delta at which that loss is stated: strictly between 0 and 1.")
            if budget.pure:
                raise BadInput("a data-dependent loss is published for Gaussian noise: give a rho, or a delta.")
        if self.public is None:
            raise BadInput(
                "PATE labels public rows: give unlabelled ones, public=rows. Without any, use another model."
            )
        for name, most, optional in (("teachers", _MOST_TEACHERS, False), ("queries", _MOST_QUERIES, True)):
            value = getattr(self, name)
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool) and 1 <= value <= most
            if not whole and not (optional and value is None):
                raise BadInput(f"{name} is a public whole number from 1 to {most}{', or None' if optional else ''}.")
        share = self.confident
        if share is not None and not (isinstance(share, int | float | np.number) and 0 < share <= 1):
            raise BadInput("confident is a share of the teachers, above 0 and at most 1, or None.")
        for name in ("pseudo_labels", "check_teachers"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise BadInput(f"{name} is True or False.")
        for name in ("estimator", "student"):
            if getattr(self, name) is not None:
                check_learner(getattr(self, name), name)
        check_student(self.student, pseudo_labels=bool(self.pseudo_labels))

    def _pool(self, source: InputRows) -> Floats:
        """Return the public rows as numbers: complete, finite and with the features of the private ones."""
        rows = self.public
        if is_dataset(rows):
            raise BadInput("public is an array or frame of public rows, not a dataset.")
        if source.dataset and (isinstance(rows, Mapping) or hasattr(rows, "columns")):
            rows = prepare(self, rows)
        table = read_table(rows, self.fill)
        if table.width != source.width:
            raise BadInput(f"public has {table.width} features, and X has {source.width}. Give the same, in one order.")
        if (
            not source.dataset
            and None not in (table.names, source.names)
            and list(table.names or ()) != list(source.names or ())
        ):
            raise BadInput("public and X are frames with other names or another order of columns. Give them alike.")
        if not table.length:
            raise BadInput("public has no rows. PATE labels public rows; without any, use another model.")
        numbers = np.clip(table.numbers(), -1e100, 1e100)
        known = ~np.isnan(numbers)
        middles = np.array(
            [column[seen].mean() if seen.any() else 0.0 for column, seen in zip(numbers.T, known.T, strict=True)]
        )
        return np.where(known, numbers, middles)

    def _request(self) -> str:
        """Describe the request; public rows by the hash of their numbers, which `fit` has taken."""
        shown = {**self.get_params(deep=False), "public": self._public}
        return _described(type(self).__name__, shown)

    def _answers(self, rows: Any) -> Floats:
        """Read rows to predict; a missing number is the middle of the public rows' range."""
        return self._box.settle(read_answers(self, rows, self.fill).numbers())

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Predict the class of each row, by the student."""
        numbers = self._answers(X)
        codes = np.asarray(self.student_.predict(numbers), dtype=np.int64) if len(numbers) else np.zeros(0, np.int64)
        return np.asarray(self.classes_[codes])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the probability of each class, by the student."""
        numbers = self._answers(X)
        if not hasattr(self.student_, "predict_proba"):
            raise AttributeError(f"the student, a {type(self.student_).__name__}, has no predict_proba.")
        if not len(numbers):
            return np.zeros((0, len(self.classes_)))
        return probabilities(self.student_, numbers, len(self.classes_))


_UNSAID = {"ledger", "account", "random_state", "spend"}


def _described(name: str, parameters: Mapping[str, Any]) -> str:
    shown = {key: value for key, value in sorted(parameters.items()) if key not in _UNSAID}
    return f"fit {name} {shown!r}"

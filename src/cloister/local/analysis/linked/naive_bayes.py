"""Naive Bayes from matched reports: several answers of each person, each perturbed separately."""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cloister.local.analysis.linked.cross_table import CrossTable, cross
from cloister.local.analysis.linked.pairs import matches
from cloister.local.analysis.naive_bayes import Beliefs, conditional
from cloister.local.base.columns import Choices, table_of
from cloister.local.base.oracle import Floats
from cloister.local.base.projection import norm_sub
from cloister.local.survey.collection import Collection
from cloister.local.survey.question import Question
from cloister.privacy.errors import BadInput, MissingExtra, NotPrivate

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
except ImportError:
    raise MissingExtra("naive Bayes is a scikit-learn estimator: pip install 'cloister[learn]'.") from None

__all__ = ["MatchedNaiveBayes", "bayes_from_matched"]

# A feature is informative if chance alone, over all features, would show as much less often than this.
_CHANCE = 0.01
# Up to this many different rows, the model's expected accuracy is summed.
_LISTED = 1 << 16

Submissions = Iterable[Mapping[str, tuple[str, bytes]]]


class MatchedNaiveBayes(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Naive Bayes whose tables are cross-tables of a survey's questions.

    Unlike `LocalNaiveBayes`, which asks each person one question designed for it, this learns from a survey made for
    other purposes: every pair of answers is estimated by multiplying scores, which costs accuracy and no privacy.

    Args:
        label: a single choice: the class to predict.
        features: single choices: the predictors.

    Attributes:
        classes_, class_prior_: the label's choices, and their shares.
        feature_prob_: for each feature P(value | class), one row a class.
        people_: for each feature, the number of people who answered it and the label.
        p_values_: for each feature, the p value of its independence from the label.
        telling_: the features whose relation to the label exceeds the noise, all tests together at 1 %.
        majority_: the accuracy of always predicting the most frequent class: the baseline.
        expected_accuracy_: the model's accuracy if it were true; None if there are too many rows to sum. It follows
            from the model itself and is not a measurement.
        verdict_: a summary in one sentence. If nothing exceeds the noise, it says so, and the model always predicts the
            most frequent class.
        private_: False if randomness was seeded.

    Privacy: post-processing of reports, costs nothing.
    """

    def __init__(self, label: Question, features: Sequence[Question]) -> None:
        self.label = label
        self.features = features

    def fit(self, submissions: Submissions, y: None = None, *, private: bool = True) -> Self:
        """Learn from submissions.

        Args:
            submissions: for each person (level, report) by the id of a question; a person who skipped a question counts
                for the others.
            y: not used: the label is one of the questions.
            private: False if the randomness of any report was seeded.
        """
        self._check()
        submitted = list(submissions)
        self.columns_ = [Choices(_values(question)) for question in self.features]
        self.classes_ = np.array(_values(self.label))
        self.n_features_in_ = len(self.features)
        self.class_prior_ = self._prior(submitted)
        self.private_ = private
        self.people_: dict[str, int] = {}
        self.p_values_: dict[str, float] = {}
        tables: dict[int, Floats] = {}
        for index, feature in enumerate(self.features):
            # Not kept: a cross-table of many values takes thirteen times the memory of the fitted parameters.
            table = cross(feature, self.label, matches(submitted, feature.id, self.label.id), private=private)
            assert isinstance(table, CrossTable)
            self.people_[feature.id], self.p_values_[feature.id] = table.n, table.independence.p
            tables[index] = self._table(table)
        self.telling_ = [name for name, p in self.p_values_.items() if p * len(self.p_values_) < _CHANCE]
        # Where nothing exceeds the noise, the tables are noise: only the class shares are used.
        self._beliefs = Beliefs(self.class_prior_, tables if self.telling_ else {})
        self.feature_prob_ = dict(zip(self.people_, tables.values(), strict=True))
        self.majority_ = float(self.class_prior_.max())
        self.expected_accuracy_ = self._expected()
        self.verdict_ = self._verdict()
        return self

    def predict_log_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the logarithm of the probability of each class."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "class_prior_")
        table = table_of(X)
        if table.shape[1] != len(self.features):
            raise BadInput(f"X has {table.shape[1]} features, but the model was fitted on {len(self.features)}.")
        scores = self._beliefs.scores([column.codes(table[:, index]) for index, column in enumerate(self.columns_)])
        return np.asarray(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each class."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the likeliest class of each row: a list of choices by name, in the order of the features."""
        return np.asarray(self.classes_[self.predict_log_proba(X).argmax(axis=1)])

    def require_private(self) -> Self:
        """Return this model, or raise if its reports were seeded and so not private."""
        if not self.private_:
            raise NotPrivate("these reports were drawn from a seeded source: for lessons and tests only.")
        return self

    def _check(self) -> None:
        if not self.features or any(question.kind != "choice" for question in (self.label, *self.features)):
            raise BadInput("naive Bayes tells a single choice from single choices. Ask numbers in ranges.")
        ids = [question.id for question in (self.label, *self.features)]
        if len(set(ids)) < len(ids):
            raise BadInput("label and features are different questions.")

    def _prior(self, submissions: list[Mapping[str, tuple[str, bytes]]]) -> Floats:
        """Return class shares among all who answered the label, whatever else they skipped."""
        name = self.label.id
        answered = ({name: submission[name]} for submission in submissions if name in submission)
        estimate = Collection([self.label]).count_stored(answered).estimate(name).raw
        shares = norm_sub(estimate.frequencies) + 1 / (estimate.n * len(estimate.frequencies))
        return np.asarray(shares / shares.sum())

    def _table(self, table: CrossTable) -> Floats:
        return conditional(table.raw, float(np.square(table.standard_error).mean()), table.n, self.class_prior_)

    def _expected(self) -> float | None:
        sizes = [column.size for column in self.columns_]
        if prod(sizes) > _LISTED:
            return None
        codes = [grid.ravel() for grid in np.indices(sizes)]
        return float(np.exp(self._beliefs.scores(codes)).max(axis=1).sum()) if self.telling_ else self.majority_

    def _verdict(self) -> str:
        line = f"Always naming the most frequent class is right in {100 * self.majority_:.0f} % of cases"
        if not self.telling_:
            return (
                f"Cannot tell {self.label.id} from these features: none is related to it by more than noise shows "
                f"anyway. {line}, and that is what this model does. Collect more reports, or at weaker levels."
            )
        hopes = (
            f"; the model expects {100 * self.expected_accuracy_:.0f} % of itself" if self.expected_accuracy_ else ""
        )
        return f"{line}{hopes}. Related to {self.label.id} beyond the noise: {', '.join(self.telling_)}."


def bayes_from_matched(
    label: Question, features: Sequence[Question], submissions: Submissions, private: bool = True
) -> MatchedNaiveBayes:
    """Return a fitted `MatchedNaiveBayes`."""
    return MatchedNaiveBayes(label, features).fit(submissions, private=private)


def _values(question: Question) -> tuple[Any, ...]:
    return tuple(question.choices) if question.choices is not None else tuple(range(question.levels[0].domain))

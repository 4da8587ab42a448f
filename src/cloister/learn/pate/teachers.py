"""Teachers: one classifier for each part of the private rows, and their votes.

Teachers are as secret as the rows. They live inside a step, or inside an ensemble that is asked for a charge
(learn/serving/private_votes.py), and are never stored on an estimator.

No part makes an error. A teacher votes for the same class everywhere by a public rule where it cannot learn:

    rows of one class only      that class
    no rows, or a failed fit    class number (teacher mod classes)

The same class stands for a single vote that fails or is not listed. Each is a function of one part, as the noise needs.
"""

import contextlib
import io
import random
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cloister.learn.base.estimator import PrivateEstimator
from cloister.learn.base.frame import Floats
from cloister.learn.base.integer_rows import Integers
from cloister.learn.pate.partition import Part
from cloister.privacy.errors import BadInput

__all__ = ["Teachers", "check_learner", "counted", "default_learner"]

_ONE = threading.RLock()


def default_learner() -> Any:
    """Return the classifier of each teacher unless one is given: logistic regression on standardised features."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))


def check_learner(estimator: Any, what: str = "estimator") -> None:
    """Refuse what cannot be a teacher or student, by its type and its public parameters."""
    if isinstance(estimator, type) or not (hasattr(estimator, "fit") and hasattr(estimator, "predict")):
        raise BadInput(
            f"{what} is a classifier with fit and predict, such as sklearn.linear_model.LogisticRegression()."
        )
    if not hasattr(estimator, "get_params"):
        raise BadInput(f"{what} needs get_params and set_params, so that every teacher can be a copy of it.")
    parameters = estimator.get_params(deep=True)
    if isinstance(estimator, PrivateEstimator) or any(
        isinstance(part, PrivateEstimator) for part in parameters.values()
    ):
        raise BadInput(
            f"{what} is a plain classifier: the votes pay, so that noise and a charge of its own would be wasted. "
            "Give one of scikit-learn, such as LogisticRegression()."
        )
    for name, value in parameters.items():
        last = name.rpartition("__")[2]
        if last == "verbose" and value:
            raise BadInput(f"{what} prints what it sees of private rows. Set {name}=False.")
        if last == "memory" and value is not None:
            raise BadInput(f"{what} keeps rows in files. Set {name}=None.")


@dataclass(frozen=True, slots=True, repr=False)
class Teachers:
    """Fitted teachers. Secret: never stored, shown or returned.

    Attributes:
        models: one for each part; None for one that votes for the same class everywhere.
        usual: the class of each teacher where its model has no answer.
        classes: number of public classes.
        seeds: public seeds, one for each teacher.
    """

    models: tuple[Any, ...]
    usual: Integers
    classes: int
    seeds: Integers

    @classmethod
    def fit(cls, estimator: Any, parts: Sequence[Part], classes: int, public: np.random.Generator) -> "Teachers":
        """Fit one copy of the estimator to each part. Call it inside a step.

        Args:
            estimator: an unfitted classifier.
            parts: rows and class codes.
            classes: number of public classes.
            public: draws the seed of each copy; carries nothing about rows.
        """
        models: list[Any] = []
        usual = np.arange(len(parts), dtype=np.int64) % classes
        seeds = public.integers(2**31, size=len(parts))
        for teacher, (rows, labels) in enumerate(parts):
            present = np.unique(labels)
            if len(present) == 1:
                usual[teacher] = present[0]
            models.append(_fitted(estimator, rows, labels, int(seeds[teacher])) if len(present) > 1 else None)
        return cls(tuple(models), usual, classes, seeds)

    def votes(self, rows: Floats) -> Integers:
        """Return the class code that each teacher gives to each public row: teachers × rows.

        Each is given a copy: `predict` may change its rows in place (`StandardScaler(copy=False)` does), and what one
        teacher leaves in them is as secret as its part, and would move the votes of all others.
        """
        votes = np.repeat(self.usual[:, None], len(rows), axis=1)
        for teacher, model in enumerate(self.models):
            if model is None or not len(rows):
                continue
            with _alone(int(self.seeds[teacher])):
                try:
                    told = np.asarray(model.predict(rows.copy()), dtype=np.float64).reshape(len(rows))
                except Exception:  # noqa: S112  # whether it fails depends on private rows
                    continue
            listed = (told >= 0) & (told < self.classes) & (told == np.floor(told))
            votes[teacher, listed] = told[listed].astype(np.int64)
        return votes


def _fitted(estimator: Any, rows: Floats, labels: Integers, seed: int) -> Any | None:
    """Return a fitted copy, or None if it cannot be fitted to this part."""
    from sklearn.base import clone

    with _alone(seed):
        try:
            copy = clone(estimator)
            unset = [
                name for name, value in copy.get_params().items() if name.endswith("random_state") and value is None
            ]
            copy.set_params(**dict.fromkeys(unset, seed))
            copy.fit(rows, labels)
        except Exception:
            return None
    return copy


@contextlib.contextmanager
def _alone(seed: int) -> Any:
    """Run one teacher without warnings and prints, which would speak of private rows, and with global randomness anew.

    A teacher may draw from the generators of the process, any number of times that its rows decide. The next teacher
    would go on from there, and so would the caller: each begins at its own public seed, and the state before returns.
    All are settings of the process, so one thread at a time changes and restores them.
    """
    sink = io.StringIO()
    with _ONE, warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        warnings.simplefilter("ignore")
        before = np.random.get_state(), random.getstate()
        np.random.seed(seed)
        random.seed(seed)
        try:
            with np.errstate(all="ignore"):
                yield
        finally:
            np.random.set_state(before[0])
            random.setstate(before[1])


def counted(votes: Integers, classes: int) -> Integers:
    """Return the number of votes for each class: rows × classes.

    Adding or removing one unit changes one teacher, so one vote for each row: in the counts of a row one number falls
    by one and another rises by one, a distance of 2 in L1 and sqrt(2) in L2.
    """
    return np.stack([(votes == code).sum(axis=0) for code in range(classes)], axis=1).astype(np.int64)

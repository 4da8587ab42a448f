"""Several fits under one charge: a selection or a cross-validation pays once and hands out shares.

    with paying(meter):
        model.fit(X, y)          # pays from the meter, not from an account of its own

And what is refused: wrappers of scikit-learn that pay for their fits and then tell scores of raw rows for nothing.
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from cloister.privacy.errors import NotPrivate, OverBudget
from cloister.privacy.filter import PrivacyFilter
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import Mechanism
from cloister.privacy.noise import SeededSource
from cloister.privacy.number import show

__all__ = ["BudgetPart", "DryRun", "part_of", "paying", "paying_now", "refuse_free_scores"]

_PAYING: ContextVar["PrivacyFilter | DryRun | None"] = ContextVar("paying", default=None)
_HELPERS = "sklearn.utils."  # they own no model, and are in every other module's way
# Modules of scikit-learn that may fit a private estimator, and the functions in which they do; empty for any. All of
# them only hand rows on and keep the models. What is not listed is refused: it may score raw rows, or choose by them.
_ONLY_FIT: dict[str, frozenset[str]] = {
    "sklearn.base": frozenset(),
    "sklearn.calibration": frozenset(),  # warned of
    "sklearn.compose._column_transformer": frozenset(),
    "sklearn.compose._target": frozenset(),
    "sklearn.ensemble._bagging": frozenset({"BaseBagging.fit", "BaseBagging._fit", "_parallel_build_estimators"}),
    "sklearn.ensemble._base": frozenset({"_fit_single_estimator"}),
    "sklearn.ensemble._voting": frozenset(),
    "sklearn.feature_selection._from_model": frozenset({"SelectFromModel.fit"}),
    "sklearn.feature_selection._rfe": frozenset({"RFE.fit", "RFE._fit"}),  # goes by coefficients; RFECV by scores
    "sklearn.impute._iterative": frozenset(),
    "sklearn.model_selection._classification_threshold": frozenset(
        {"BaseThresholdClassifier.fit", "FixedThresholdClassifier._fit"}
    ),
    "sklearn.multiclass": frozenset(),
    "sklearn.multioutput": frozenset(
        {"_fit_estimator", "_MultiOutputEstimator.fit", "MultiOutputClassifier.fit", "_BaseChain.fit",
         "ClassifierChain.fit", "RegressorChain.fit"}
    ),
    "sklearn.pipeline": frozenset(),
    "sklearn.semi_supervised._self_training": frozenset(),
}  # fmt: skip
# Functions that look at raw rows if a parameter of the estimator they work for says so: rows that a bag left out, links
# of a chain. In another process or thread that estimator is an argument, and not `self`.
_UNLESS = {
    ("sklearn.ensemble._bagging", "BaseBagging.fit"): "oob_score",
    ("sklearn.ensemble._bagging", "BaseBagging._fit"): "oob_score",
    ("sklearn.ensemble._bagging", "_parallel_build_estimators"): "oob_score",
    ("sklearn.multioutput", "_BaseChain.fit"): "cv",
    ("sklearn.multioutput", "ClassifierChain.fit"): "cv",
    ("sklearn.multioutput", "RegressorChain.fit"): "cv",
}


@dataclass(slots=True)
class BudgetPart(PrivacyFilter):
    """A share of what another meter has: a fit can use it up, and no more.

    Attributes:
        outer: the meter that holds the whole; it counts every step too.
    """

    outer: Any = None

    @classmethod
    def of(cls, outer: PrivacyFilter, share: Loss) -> "BudgetPart":
        """That much of a meter."""
        price = outer.account.price(share)
        return cls(outer.account, price, outer.source, Loss.nothing(price.measure, price.relation), outer=outer)

    def release(self, look: Any, mechanism: Mechanism) -> Any:
        """One step, within the share and within the whole.

        Privacy: the mechanism's loss, counted by both.
        """
        after = self.spent + self.account.rules.exact_price(mechanism)
        if after.amount > self.total.amount or after.delta > self.total.delta:
            raise OverBudget(
                f"this step goes beyond its share of {self.total.measure} {show(self.total.amount)}. Plan fewer steps."
            )
        self.spent = after
        return self.outer.release(look, mechanism)


class DryRun:
    """A meter for fits on no rows: it pays nothing, since there is nothing to read. Tells wrong parameters early."""

    def __init__(self) -> None:
        self.source = SeededSource("rehearsal")

    def release(self, look: Any, mechanism: Mechanism) -> Any:
        """One step on no rows."""
        return mechanism.release(look(), self.source)


def part_of(meter: Any, share: Loss) -> Any:
    """That much of a meter."""
    return meter if isinstance(meter, DryRun) else BudgetPart.of(meter, share)


@contextmanager
def paying(meter: PrivacyFilter | DryRun) -> Iterator[None]:
    """Fits inside pay from this meter."""
    token = _PAYING.set(meter)
    try:
        yield
    finally:
        _PAYING.reset(token)


def paying_now() -> PrivacyFilter | DryRun | None:
    """The meter that pays for the fit at hand; None if it opens an account of its own."""
    return _PAYING.get()


def refuse_free_scores() -> None:
    """Refuse a fit whose model scikit-learn is about to score on raw rows. Nothing is charged yet.

    Nothing in an estimator's contract says who calls `fit`, so this looks at the callers, in worker processes too.
    Every function of scikit-learn among them must be known to fit only. Which wrappers there are is checked against all
    that scikit-learn has in tests/unit/test_learn_wrappers.py, in one process and in two.
    """
    frame: Any = sys._getframe(1)
    calibrated = False
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("sklearn.") and not _only_fits(frame, module):
            raise NotPrivate(
                "scikit-learn's validation, searches, stacking and boosting show scores of raw rows that nobody "
                "paid for, and other wrappers of it may. Use cloister.learn.cross_val_score, which adds noise to "
                "them, or cloister.learn.select."
            )
        calibrated = calibrated or module == "sklearn.calibration"
        frame = frame.f_back
    if calibrated:
        warnings.warn(
            "CalibratedClassifierCV fits its curve to raw rows: what it adds to the private model is not private, and "
            "not charged. Naive Bayes models calibrate inside their spend: calibrate=True.",
            stacklevel=4,
        )


def _only_fits(frame: Any, module: str) -> bool:
    """Whether a function of scikit-learn is known to fit, and to look at nothing else."""
    name = frame.f_code.co_qualname
    if module.startswith(_HELPERS):
        return True
    if module not in _ONLY_FIT or (_ONLY_FIT[module] and name not in _ONLY_FIT[module]):
        return False
    asked = _UNLESS.get((module, name))
    if asked is None:
        return True
    from sklearn.base import BaseEstimator

    told = [
        getattr(one, asked) for one in frame.f_locals.values() if isinstance(one, BaseEstimator) and hasattr(one, asked)
    ]
    return bool(told) and not any(one is not None and one is not False for one in told)

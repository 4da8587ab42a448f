"""Parts of a budget for several fits under one charge, and the refusal of wrappers that would score without one.

fit_within(meter, model, X, y)    charged to the meter, not to an account of its own (model_selection/candidates.py)
refuse_free_scores()              first in every fit: no scores of raw rows by scikit-learn
"""

import sys
import warnings
from dataclasses import dataclass
from typing import Any

from cloister.privacy.errors import NotPrivate, OverBudget
from cloister.privacy.filter import PrivacyFilter
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import Mechanism
from cloister.privacy.noise import SeededSource
from cloister.privacy.number import show

__all__ = ["BudgetPart", "DryRun", "part_of", "refuse_free_scores"]

_HELPERS = "sklearn.utils."  # they hold no model, and every other module calls through them
# Modules of scikit-learn that may fit a private estimator, and the functions in which they do (empty for any). All of
# them only pass rows on and keep the models. Others are refused: they may score raw rows, or choose by them.
_ONLY_FIT: dict[str, frozenset[str]] = {
    "sklearn.base": frozenset(),
    "sklearn.calibration": frozenset(),  # with a warning
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
# Functions that read raw rows if a parameter of their estimator says so: out-of-bag rows, links of a chain. In another
# process or thread that estimator is an argument, not `self`.
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
    """Privacy filter for a share of another filter's budget, which a fit cannot exceed.

    Attributes:
        outer: the filter that holds the whole budget; it counts every step too.
    """

    outer: Any = None

    @classmethod
    def of(cls, outer: PrivacyFilter, share: Loss) -> "BudgetPart":
        """Return a filter for a share of another filter's budget."""
        price = outer.account.price(share)
        return cls(outer.account, price, outer.source, Loss.nothing(price.measure, price.relation), outer=outer)

    def release(self, look: Any, mechanism: Mechanism) -> Any:
        """Run one step, within the share and within the whole budget.

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
    """Filter for fits on no rows: charges nothing, and finds wrong parameters early."""

    def __init__(self) -> None:
        self.source = SeededSource("rehearsal")

    def release(self, look: Any, mechanism: Mechanism) -> Any:
        """Run one step on no rows."""
        return mechanism.release(look(), self.source)


def part_of(meter: Any, share: Loss) -> Any:
    """Return a filter for a share of another filter's budget."""
    return meter if isinstance(meter, DryRun) else BudgetPart.of(meter, share)


def refuse_free_scores() -> None:
    """Refuse a fit whose model scikit-learn would score on raw rows. Nothing is charged yet.

    This inspects the call stack, in worker processes too: every function of scikit-learn on it must be known to fit
    only. Nothing else that scikit-learn tells an estimator distinguishes a wrapper that scores from one that only fits:

        clone, get_params, set_params    both kinds copy the estimator and set its parameters before a fit
        fit's arguments, routing         both pass rows and labels; metadata routing passes only what a user requests
        tags, is_classifier              asked by both, and by users
        predict on the held-out rows     what a user may do with rows of their own; and the charge has happened by then

    Replacing the functions of scikit-learn instead would have to reach worker processes, and would not refuse a
    function that is not known. tests/unit/test_learn_wrappers.py checks the list against all wrappers of scikit-learn,
    in one process and in two.
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
    """Return True if a function of scikit-learn is known only to fit."""
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

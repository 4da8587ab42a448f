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
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import Mechanism
from cloister.privacy.meter import Meter
from cloister.privacy.noise import SeededSource
from cloister.privacy.number import show

__all__ = ["Part", "Rehearsal", "part_of", "paying", "paying_now", "refuse_free_scores"]

_PAYING: ContextVar["Meter | Rehearsal | None"] = ContextVar("paying", default=None)
_VALIDATION = "sklearn.model_selection."
_HARMLESS = ("BaseThresholdClassifier.fit", "FixedThresholdClassifier._fit")  # what validation's package fits unscored
# Other modules that score or choose by raw rows after a fit, and the function in which they fit; "" for any.
_RAW_LOOKS = {
    "sklearn.ensemble._stacking": "",
    "sklearn.ensemble._weight_boosting": "",
    "sklearn.feature_selection._rfe": "_rfe_single_fit",  # of RFECV; RFE goes by coefficients
    "sklearn.linear_model._ransac": "",
}
# And those that do so if a parameter of theirs says so: rows that a bag left out, links of a chain.
_RAW_LOOKS_IF = {"sklearn.ensemble._bagging": "oob_score", "sklearn.multioutput": "cv"}


@dataclass(slots=True)
class Part(Meter):
    """A share of what another meter has: a fit can use it up, and no more.

    Attributes:
        outer: the meter that holds the whole; it counts every step too.
    """

    outer: Any = None

    @classmethod
    def of(cls, outer: Meter, share: Loss) -> "Part":
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


class Rehearsal:
    """A meter for fits on no rows: it pays nothing, since there is nothing to read. Tells wrong parameters early."""

    def __init__(self) -> None:
        self.source = SeededSource("rehearsal")

    def release(self, look: Any, mechanism: Mechanism) -> Any:
        """One step on no rows."""
        return mechanism.release(look(), self.source)


def part_of(meter: Any, share: Loss) -> Any:
    """That much of a meter."""
    return meter if isinstance(meter, Rehearsal) else Part.of(meter, share)


@contextmanager
def paying(meter: Meter | Rehearsal) -> Iterator[None]:
    """Fits inside pay from this meter."""
    token = _PAYING.set(meter)
    try:
        yield
    finally:
        _PAYING.reset(token)


def paying_now() -> Meter | Rehearsal | None:
    """The meter that pays for the fit at hand; None if it opens an account of its own."""
    return _PAYING.get()


def refuse_free_scores() -> None:
    """Refuse a fit whose model scikit-learn is about to score on raw rows. Nothing is charged yet.

    Nothing in an estimator's contract says who calls `fit`, so this looks at the callers, in worker processes too.
    Which wrappers there are is checked against all that scikit-learn has in tests/unit/test_learn_wrappers.py.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("sklearn."):
            if _looks_at_raw_rows(frame, module):
                raise NotPrivate(
                    "scikit-learn's validation, searches, stacking and boosting show scores of raw rows that nobody "
                    "paid for. Use cloister.learn.cross_val_score, which adds noise to them, or cloister.learn.select."
                )
            if module == "sklearn.calibration":
                warnings.warn(
                    "CalibratedClassifierCV fits its curve to raw rows: what it adds to the private model is not "
                    "private, and not charged. Naive Bayes models calibrate inside their spend: calibrate=True.",
                    stacklevel=4,
                )
                return
        frame = frame.f_back


def _looks_at_raw_rows(frame: Any, module: str) -> bool:
    name = frame.f_code.co_qualname
    if module.startswith(_VALIDATION):
        return name not in _HARMLESS
    if module in _RAW_LOOKS_IF:
        return bool(getattr(frame.f_locals.get("self"), _RAW_LOOKS_IF[module], None))
    return module in _RAW_LOOKS and _RAW_LOOKS[module] in ("", name)

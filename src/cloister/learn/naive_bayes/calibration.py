"""Base class of naive Bayes classifiers, and the private calibration of their log-odds for a small part of the spend.

Naive Bayes counts correlated evidence more than once: it ranks well, but it is overconfident and its threshold is
biased. A noisy histogram of its own scores by class (each row in one cell, so sensitivity 1) is enough to fit the slope
and the intercept of a logistic curve (Platt 1999). Scores are integers, so that every engine assigns a row to the same
cell.

Scores must be those of rows that the model was not fitted to: a row's own contribution to the counts makes it look far
more like its class than new rows do. No row is held out for that. Instead a row is scored by the released sums less its
own contribution, noise included, which follows from the row and the release. So a row stays in one cell, and the score
is the one that a model of the other rows, with the same noise, gives to a new row.

The same histogram gives the accuracy: a row of class 1 is right if its score is above the curve's threshold t, a row of
class 0 if below, with scores taken as uniform within the cell that t cuts. With counts n(class, cell) and the part
u(cell) of a cell above t: accuracy = Σ n(1, cell) u(cell) + n(0, cell) (1 - u(cell)), of Σ n. It contains the noise of
at most 64 counts, and only the optimism of the curve's two parameters. Where noise and sampling error would move it by
more than 0.05 it is None.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from cloister.learn.base.estimator import PrivateEstimator
from cloister.privacy.filter import PrivacyFilter, noise_for
from cloister.privacy.loss import Loss

__all__ = ["BINS", "HALF", "SHARE", "BayesClassifier", "CalibrationCurve", "calibrate", "histogram"]

Floats = NDArray[np.float64]
SHARE = Fraction(1, 10)
BINS, HALF = 32, 16  # scores from -16 to 16, in steps of one
_UNSURE = 0.05  # largest error of an accuracy due to noise and sampling


@dataclass(frozen=True, slots=True)
class CalibrationCurve:
    """Calibration curve: calibrated log-odds are slope · score + shift.

    Attributes:
        accuracy: approximate rate at which they are on the right side of zero; None where it is unknown.
        likelihood: approximate mean log-likelihood of the rows in the histogram, and its standard error due to noise.
    """

    slope: float = 1.0
    shift: float = 0.0
    accuracy: float | None = None
    likelihood: tuple[float, float] = (0.0, 0.0)

    def __call__(self, scores: Floats) -> Floats:
        """Return calibrated log-odds."""
        return np.asarray(self.slope * scores + self.shift)


def calibrate(meter: PrivacyFilter, look: Callable[[], Any], most: int, whole: int, loss: Loss) -> CalibrationCurve:
    """Fit the calibration curve.

    Args:
        meter: the privacy filter to charge.
        look: returns the number of rows of each of two classes in each bin of scores.
        most: largest total contribution of one unit to all cells.
        whole: the count of one row.
        loss: the loss of this step.

    Privacy: the loss.
    """
    noise = noise_for(most, most, loss)
    counts = np.asarray(meter.release(look, noise), dtype=np.float64).reshape(2, BINS) / whole
    curve = _fit(counts, noise.standard_error / whole)
    return replace(curve, accuracy=_accuracy(counts, curve, noise.standard_error / whole))


def histogram(scores: NDArray[np.int64], bits: int, classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the rows of each of two classes in each bin of scores, which have `bits` fractional bits."""
    cell = np.clip((scores >> bits) + HALF, 0, BINS - 1)
    listed = classes >= 0
    flat = (classes * BINS + cell)[listed]
    return np.bincount(flat, minlength=2 * BINS).astype(np.int64)


def _accuracy(counts: Floats, curve: CalibrationCurve, noise: float) -> float | None:
    """Return the share of rows on the right side of the curve's threshold; None where noise or sampling hides it."""
    total = float(counts.sum())
    if total <= 0 or np.hypot(noise * np.sqrt(counts.size), np.sqrt(total)) / 2 > _UNSURE * total:
        return None
    above = np.clip(np.arange(BINS) - HALF + 1 + curve.shift / curve.slope, 0.0, 1.0)  # part of each cell above t
    return float(np.clip((counts[1] @ above + counts[0] @ (1 - above)) / total, 0.0, 1.0))


def _fit(counts: Floats, noise: float) -> CalibrationCurve:
    from scipy.optimize import minimize

    scores = np.arange(BINS) - HALF + 0.5
    # Where noise dominates, the slope stays near one half: naive Bayes tends to be overconfident.
    hold = 1e-3 * np.abs(counts).sum() + noise

    def cost(curve: Floats) -> tuple[float, Floats]:
        odds = curve[0] * scores + curve[1]
        # Linear in the counts: negative counts are harmless, and the noise leaves it unbiased.
        value = (counts[1] * np.logaddexp(0, -odds) + counts[0] * np.logaddexp(0, odds)).sum()
        slope = counts.sum(axis=0) / (1 + np.exp(-odds)) - counts[1]
        value += hold * ((curve[0] - 0.5) ** 2 + 0.01 * curve[1] ** 2)
        pull = hold * np.array([2 * (curve[0] - 0.5), 0.02 * curve[1]])
        return float(value), np.array([slope @ scores, slope.sum()]) + pull

    best = minimize(cost, np.array([0.5, 0.0]), jac=True, method="L-BFGS-B", bounds=[(0.05, 1.5), (-8.0, 8.0)]).x
    return CalibrationCurve(
        float(best[0]), float(best[1]), likelihood=_likelihood(counts, noise, best[0] * scores + best[1])
    )


def _likelihood(counts: Floats, noise: float, odds: Floats) -> tuple[float, float]:
    """Return the mean log-likelihood of rows in cells above the noise, and its standard error due to noise."""
    clear = counts[:, counts.sum(axis=0) > 3 * noise]
    logs = -np.logaddexp(0, np.stack([odds, -odds]))[:, counts.sum(axis=0) > 3 * noise]
    rows = max(float(clear.sum()), 1.0)
    return float((clear * logs).sum()) / rows, noise * float(np.sqrt((logs**2).sum())) / rows


class BayesClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Classifier that predicts from joint log-probabilities and, for two classes, a calibration curve."""

    classes_: NDArray[Any]
    curve_: CalibrationCurve

    def _joint(self, rows: Any) -> Floats:
        """Return ln P(class, row) for each row and class, up to a constant per row."""
        raise NotImplementedError

    def predict_log_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the logarithm of the probability of each class."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "classes_")
        joint = self._joint(X)
        if joint.shape[1] == 2:
            odds = self.curve_(joint[:, 1] - joint[:, 0])
            return np.column_stack([-np.logaddexp(0, odds), -np.logaddexp(0, -odds)])
        return np.asarray(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each class."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Predict the most likely class of each row."""
        best = self.predict_log_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

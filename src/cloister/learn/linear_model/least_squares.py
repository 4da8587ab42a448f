"""Regression coefficients with valid standard errors from noisy second moments. All of it is post-processing.

Let A = X'X, b = X'y, and Ã = A + E, b̃ = b + e the released values. With y = Xβ + ε,

    b̃ = Ãβ + u,    u = X'ε + e - Eβ,    Cov u = S = s²A + (σ_xy² + σ_xx² |β|²) I + σ_xx² (ββ' - diag β²),

where s² is the variance of ε; the last term is there because the noise E is symmetric: two rows of Eβ share an entry.
So sampling error and both noises have one covariance, and the estimate is that of generalised least squares with a
weak prior β ~ N(0, τ²), with τ estimated from the released numbers (the coefficients of a Bayesian linear regression
from noisy statistics; Bernstein & Sheldon 2019). The constant's prior is that of a mean within the target's bounds: a
part hidden by the noise is shrunk to their middle. Where an eigenvalue of A is far above the noise the prior has no
effect, and the estimate is unbiased up to terms of second order.

Eigenvalues of E reach 2 σ_xx √d (Wigner). An eigenvalue of Ã below half of that carries no information, and its
direction is left to the prior: this is the ridge that the noise makes necessary. Between half and the whole it improves
predictions, but it may be noise: intervals treat such directions as hidden. Let P project on the known directions, and
G be the inverse of Ã in them. Then Gb̃ = Pβ + Gu, so the error of an estimate β̂ is

    β̂ - β = (β̂ - Gb̃) + Gu - (I - P)β.

The first part, what the prior adds, is known; the second has the covariance GSG; the third is bounded by `unknown`, a
public guess of the largest coefficient: half the target's range over the whole range of a feature. So for a design with
too little information (one-hot columns beside an intercept, rare categories), intervals are wide, not wrong.

S has nuisance parameters, which are released with noise too: an interval must not take their estimates for the truth.
s² is the worst: y'y gets little of the spend, and its noise may exceed n s². At the true β the sum of squares
Q = ỹy - 2b̃'β + β'Ãβ has the mean n s² and, from the noise alone, a variance of at most σ_yy² + 4σ_xy² |β|² +
2σ_xx² |β|⁴. With Gb̃ for β it is lower by u'Gu: by as many degrees of freedom as there are directions, and by tr GN on
average, where N is the noise in S. The error probability of an interval is split (Bonferroni) between Q, n, A and the
coefficient itself; |β|² is taken with its own uncertainty and, in hidden directions, at its bound.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from cloister.learn.linear_model.moments import Floats, Moments

__all__ = ["CoefficientErrors", "ErrorModel", "Fit", "adaptive_ridge", "solve", "trimmed"]

_ROUNDS = 30
_UNKNOWN = 0.5
_CONSTANT = 1 / 12  # the variance of a uniform number in [-1/2, 1/2]
_LEAST_VARIANCE, _MOST_VARIANCE = 1e-6, 0.25  # of a target within [-1/2, 1/2]
# How the error probability of an interval is split (Bonferroni): the coefficient itself, the sum of squared residuals,
# the number of rows, and the design. What the noise hardly moves gets little.
_SPLIT = (0.8, 0.15, 0.025, 0.025)


@dataclass(frozen=True, slots=True)
class CoefficientErrors:
    """Parts of the error of each coefficient. All of them follow from released values.

    Attributes:
        bias: a bound on what shrinkage, hidden coefficients and rounding add.
        noise: variance due to the noise.
        sampling, design: variance due to sampling, for a residual variance of one; and the standard deviation of that.
        squares: the sum of squared residuals, with its standard deviation due to noise.
        rows: the number of rows, with its standard deviation due to noise.
        fitted: the degrees of freedom that the fit took.
        pure: True if the noise is Laplace noise.
    """

    bias: Floats
    noise: Floats
    sampling: Floats
    design: Floats
    squares: tuple[float, float]
    rows: tuple[float, float]
    fitted: float
    pure: bool

    def margins(self, confidence: float) -> Floats:
        """Return half the width of an interval for each coefficient.

        Squares and design are at most what is taken for them, and rows at least, each but for its part of the error
        probability. If so, an interval with the rest of it holds: Student's for the sampling error, since the squares
        are those of the same rows.
        """
        from scipy.special import stdtrit

        share, squares, rows, design = ((1 - confidence) * part for part in _SPLIT)
        freedom = max(self.rows[0] - self._beyond(rows) * self.rows[1] - self.fitted, 1.0)
        most = self.squares[0] + self._beyond(squares) * self.squares[1]
        residual = min(max(most / freedom, _LEAST_VARIANCE), _MOST_VARIANCE)
        sampling = float(stdtrit(freedom, 1 - share / 2)) ** 2 * residual
        noise = self._beyond(share / 2) ** 2 * self.noise
        margins = self.bias + np.sqrt(noise + sampling * (self.sampling + self._beyond(design) * self.design))
        return np.asarray(np.where(np.isnan(margins), np.inf, margins))  # beyond the range of floats

    def _beyond(self, probability: float) -> float:
        """Return what noise of deviation one exceeds with at most this probability.

        For a sum of several Laplace and normal errors, a single one of either kind is the worst case.
        """
        laplace = -math.log(2 * probability) / math.sqrt(2) if self.pure else 0.0
        return max(NormalDist().inv_cdf(1 - probability), laplace)


@dataclass(frozen=True, slots=True)
class ErrorModel:
    """Errors of the scaled coefficients, from which those of any linear functions of them follow.

    Attributes:
        moments: the released moments.
        inverse: that of X'X in the directions that are known.
        hidden: the projector on all others.
        unknown: the bound on a coefficient in them.
        shrunk: what the prior added to the estimate by `inverse`.
        noise: covariance of X'y - X'Xβ due to the noise.
        design: X'X.
        squares: see `CoefficientErrors`.
        rounding: the most by which rounding moves the residual of a row.
    """

    moments: Moments
    inverse: Floats
    hidden: Floats
    unknown: float
    shrunk: Floats
    noise: Floats
    design: Floats
    squares: tuple[float, float]
    rounding: float

    def of(self, back: Floats) -> CoefficientErrors:
        """Return the errors of `back` times the coefficients."""
        lever, moments = back @ self.inverse, self.moments
        sampling = _quadratic(lever, self.design)
        bias = np.abs(back @ self.shrunk) + self.unknown * np.abs(back @ self.hidden).sum(axis=1)
        bias += self.rounding * np.sqrt(moments.rows * sampling)  # Cauchy-Schwarz
        return CoefficientErrors(
            bias,
            _quadratic(lever, self.noise),
            sampling,
            math.sqrt(2) * moments.noise[0] * (lever**2).sum(axis=1),
            self.squares,
            (moments.rows, moments.noise[0]),
            float(np.trace(self.design @ self.inverse)),
            moments.pure,
        )


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients of scaled features and, last, the constant.

    Attributes:
        coefficients: the estimate.
        errors: those of the estimate; None where theory gives none.
        residual: the residual variance, as estimated.
    """

    coefficients: Floats
    errors: ErrorModel | None
    residual: float


def solve(moments: Moments, penalty: Floats, unknown: float = _UNKNOWN) -> Fit:
    """Solve for the estimate described in the module docstring.

    Args:
        moments: the released moments.
        penalty: a ridge on each coefficient, the constant last, in the units of X'X; the estimate is then of the
            coefficients of that ridge regression.
        unknown: largest scaled coefficient that the moments carry no information about.
    """
    matrix, b = moments.xx + np.diag(penalty), moments.xy
    d = len(b)
    values, vectors = np.linalg.eigh(matrix)
    edge = 2 * moments.noise[0] * np.sqrt(d)
    denoised = (vectors * np.where(values > edge / 2, values, 0.0)) @ vectors.T
    beta, tau = np.zeros(d), 0.05
    residual = _variance(moments, beta, moments.xy[-1] ** 2 / moments.rows)
    for _ in range(_ROUNDS):
        noise = residual * denoised + _noise(moments, np.outer(beta, beta)) + np.eye(d) * _LEAST_VARIANCE
        weighed = np.linalg.solve(noise, denoised)
        prior = np.diag(np.append(np.full(d - 1, 1 / tau), 1 / _CONSTANT))
        posterior = np.linalg.inv(denoised @ weighed + prior)
        beta = posterior @ weighed.T @ b
        tau = float(np.clip((beta[:-1] @ beta[:-1] + np.trace(posterior[:-1, :-1])) / max(d - 1, 1), 1e-6, 4.0))
        residual = _variance(moments, beta)
    known = vectors[:, values > max(edge, _LEAST_VARIANCE)]
    return Fit(beta, _errors(moments, matrix, beta, known, max(unknown, math.sqrt(tau))), residual)


def _errors(moments: Moments, matrix: Floats, beta: Floats, known: Floats, unknown: float) -> ErrorModel:
    """Return the errors of an estimate, as in the module docstring.

    Args:
        moments, beta: the released moments, and the estimate from them.
        matrix: X'X with the ridge.
        known: its eigenvectors with information, as columns.
        unknown: the bound on a coefficient without.
    """
    d, (noise_xx, noise_xy, noise_yy) = len(beta), moments.noise
    inverse = known @ np.diag(1 / np.diag(known.T @ matrix @ known)) @ known.T
    hidden, plain = np.eye(d) - known @ known.T, inverse @ moments.xy
    values, vectors = np.linalg.eigh(moments.xx)
    design = (vectors * np.maximum(values, 0.0)) @ vectors.T
    # ββ': in known directions with the noise on it, in hidden ones the most that it can be.
    second = np.outer(plain, plain) + noise_xy**2 * inverse @ inverse + unknown**2 * hidden
    size, noise = float(np.trace(second)), _noise(moments, second)
    lower = noise @ inverse
    variance = noise_yy**2 + 4 * noise_xy**2 * size + 2 * noise_xx**2 * size**2 + 2 * float(np.trace(lower @ lower))
    # Q at β is that at Gb̃ with what hidden coefficients may add: -2b̃'(I - P)β + β'(I - P)Ã(I - P)β.
    steepest = max(float(np.linalg.eigvalsh(hidden @ moments.xx @ hidden)[-1]), 0.0)
    added = 2 * unknown * float(np.abs(hidden @ moments.xy).sum()) + steepest * unknown**2 * d
    squares = _squares(moments, plain) + float(np.trace(lower)) + added
    rounding = moments.grid * (1 + float(np.abs(beta).sum()))
    return ErrorModel(
        moments, inverse, hidden, unknown, beta - plain, noise, design, (squares, math.sqrt(variance)), rounding
    )


def _noise(moments: Moments, second: Floats) -> Floats:
    """Return the covariance of the noise on X'y - X'Xβ, where `second` is ββ', or its mean."""
    first, vector, _ = moments.noise
    size = float(np.trace(second))
    return (vector**2 + first**2 * size) * np.eye(len(second)) + first**2 * (second - np.diag(np.diag(second)))


def _quadratic(rows: Floats, matrix: Floats) -> Floats:
    """Return the diagonal of rows · matrix · rows'."""
    return np.asarray(np.einsum("ij,jk,ik->i", rows, matrix, rows))


def adaptive_ridge(moments: Moments, penalty: Floats) -> Fit:
    """Fit AdaSSP (Wang 2018): a ridge as large as the noise may be, less the smallest eigenvalue.

    The paper releases that eigenvalue for a third of the spend; here it is computed from the noisy matrix at no cost.
    """
    d, noise = len(moments.xy), moments.noise[0]
    bound = noise * np.sqrt(d * np.log(6 * 2 * d**2 / 0.05))
    smallest = max(float(np.linalg.eigvalsh(moments.xx)[0]) - bound, 0.0)
    matrix = moments.xx + np.diag(penalty) + max(bound - smallest, 0.0) * np.eye(d)
    beta = np.linalg.lstsq(matrix, moments.xy, rcond=None)[0]
    return Fit(beta, None, _variance(moments, beta))


def trimmed(moments: Moments, penalty: Floats) -> Fit:
    """Fit the functional mechanism (Zhang et al. 2012): a ridge of four deviations, then only positive eigenvalues.

    Section 6 of the paper: regularisation first, spectral trimming where the noisy objective is still unbounded.
    """
    values, vectors = np.linalg.eigh(moments.xx + np.diag(penalty) + 4 * moments.noise[0] * np.eye(len(moments.xy)))
    positive = values > 1e-9 * max(float(values[-1]), 1.0)
    inverse = np.where(positive, 1 / np.where(positive, values, 1.0), 0.0)
    beta = vectors @ (inverse * (vectors.T @ moments.xy))
    return Fit(beta, None, _variance(moments, beta))


def _variance(moments: Moments, beta: Floats, explained: float | None = None) -> float:
    """Return the residual variance of the target, as estimated; at most 1/4 for a target within [-1/2, 1/2]."""
    left = moments.yy - explained if explained is not None else _squares(moments, beta)
    return float(np.clip(left / moments.rows, _LEAST_VARIANCE, _MOST_VARIANCE))


def _squares(moments: Moments, beta: Floats) -> float:
    """Return the sum of squared residuals, as released."""
    return float(moments.yy - 2 * moments.xy @ beta + beta @ moments.xx @ beta)

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
predictions, but it may be noise: intervals treat such directions as unknown. An unknown part of β widens the intervals
by `unknown`, a public guess of the largest coefficient: half the target's range over the whole range of a feature. So
for a design with too little information (one-hot columns beside an intercept, rare categories), intervals are wide,
not wrong.
"""

from dataclasses import dataclass

import numpy as np

from cloister.learn.linear_model.moments import Floats, Moments

__all__ = ["Fit", "adaptive_ridge", "solve", "trimmed"]

_ROUNDS = 30
_UNKNOWN = 0.5
_CONSTANT = 1 / 12  # the variance of a uniform number in [-1/2, 1/2]
_LEAST_VARIANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients of scaled features and, last, the constant.

    Attributes:
        coefficients: the estimate.
        covariance: that of its error; None where theory gives none.
        residual: the residual variance.
    """

    coefficients: Floats
    covariance: Floats | None
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
    d, (noise_xx, noise_xy, _) = len(b), moments.noise
    values, vectors = np.linalg.eigh(matrix)
    edge = 2 * noise_xx * np.sqrt(d)
    denoised, sure = ((vectors * np.where(values > part * edge, values, 0.0)) @ vectors.T for part in (0.5, 1.0))
    beta, tau = np.zeros(d), 0.05
    residual = _variance(moments, beta, moments.xy[-1] ** 2 / moments.rows)
    lever, noise = np.zeros((d, d)), np.eye(d)
    for _ in range(_ROUNDS):
        noise = residual * denoised + np.eye(d) * (noise_xy**2 + noise_xx**2 * (beta @ beta) + _LEAST_VARIANCE)
        noise += noise_xx**2 * (np.outer(beta, beta) - np.diag(beta**2))
        weighed = np.linalg.solve(noise, denoised)
        prior = np.diag(np.append(np.full(d - 1, 1 / tau), 1 / _CONSTANT))
        posterior = np.linalg.inv(denoised @ weighed + prior)
        lever = posterior @ weighed.T
        beta = lever @ b
        tau = float(np.clip((beta[:-1] @ beta[:-1] + np.trace(posterior[:-1, :-1])) / max(d - 1, 1), 1e-6, 4.0))
        residual = _variance(moments, beta)
    missing = lever @ sure - np.eye(d)
    covariance = lever @ noise @ lever.T + max(unknown**2, tau) * missing @ missing.T
    return Fit(beta, covariance, residual)


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
    """Return the residual variance of the target; at most 1/4 for a target within [-1/2, 1/2]."""
    left = (
        moments.yy - explained
        if explained is not None
        else (moments.yy - 2 * moments.xy @ beta + beta @ moments.xx @ beta)
    )
    return float(np.clip(left / moments.rows, _LEAST_VARIANCE, 0.25))

"""Linear discriminant from noisy class means and a common scatter matrix, in one pass.

Fisher's discriminant is the quadratic counterpart of logistic regression: for normal classes with a common scatter the
two have the same limit, and otherwise they are close (Adult: 84.6 % against 84.7 %). It needs only counts, sums and
products, so it runs inside any engine, over any number of rows, in one pass.
"""

import math

import numpy as np

from cloister.learn.base.frame import Floats
from cloister.learn.base.integer_rows import ROW_BITS, ExactRows, Integers
from cloister.learn.linear_model.classifier import PrivateRows
from cloister.learn.linear_model.moments import ClassMoments, Sensitivity, release_class_moments, whole_root
from cloister.privacy.filter import BudgetShare, PrivacyFilter

__all__ = ["discriminant", "moments_of_rows", "optimism", "taylor"]


def discriminant(found: ClassMoments) -> tuple[Floats, Floats]:
    """Return coefficients and intercepts: one row for two classes, otherwise one for each.

    Eigenvalues of the scatter below its own noise are raised to the noise.
    """
    means, inverse = _scatter(found)
    weights = found.counts.sum() * means @ inverse
    offsets = np.log(found.counts) - 0.5 * np.einsum("ij,ij->i", weights, means)
    if len(weights) == 2:
        return weights[1:] - weights[:1], offsets[1:] - offsets[:1]
    return weights, offsets


def optimism(found: ClassMoments) -> float:
    """Return the expected gap of two classes' mean scores due to noise and sampling of the means that were fitted.

    With weights n S⁻¹(μ₁ - μ₀) and noise of deviation e / n_k on a mean, the expectation is n e² (1/n₁² + 1/n₀²) times
    tr S⁻¹. Sampling gives a mean the covariance W / (n n_k), where W is the scatter within classes: (1/n₁ + 1/n₀)
    tr S⁻¹W. W is S less the floor that keeps S above the noise, and no direction counts for more than one.
    """
    _, inverse = _scatter(found)
    spread = found.line_noise**2 * float((1 / found.counts**2).sum())
    chance = float((1 / found.counts).sum()) * (len(inverse) - _floor(found) * float(np.trace(inverse)))
    return float(found.counts.sum()) * spread * float(np.trace(inverse)) + chance


def _scatter(moments: ClassMoments) -> tuple[Floats, Floats]:
    """Return the class means, and the inverse of the scatter within classes."""
    means = np.clip(moments.sums / moments.counts[:, None], -1.0, 1.0)
    within = moments.products - (means.T * moments.counts) @ means
    values, vectors = np.linalg.eigh(within)
    inverse = (vectors / (np.maximum(values, 0.0) + _floor(moments))) @ vectors.T
    return means, np.asarray(inverse)


def _floor(moments: ClassMoments) -> float:
    """Return the floor of the scatter's eigenvalues.

    The largest eigenvalue of the noise is about 2 sqrt(features) deviations, and a mean's error must not be amplified.
    """
    return moments.product_noise * math.sqrt(len(moments.products)) + moments.line_noise + 1.0


def taylor(found: ClassMoments) -> tuple[Floats, Floats]:
    """Minimise the second-order Taylor polynomial of the logistic loss at zero, for two classes.

    Zhang et al. 2012, the functional mechanism: sum of ln 2 - t w'x/2 + (w'x)²/8. With noise the quadratic form may
    have no minimum, so its eigenvalues are first raised to the noise.
    """
    size = found.products.shape[0] + 1
    gram, line = np.zeros((size, size)), np.zeros(size)
    gram[:-1, :-1], gram[-1, -1] = found.products, found.counts.sum()
    gram[:-1, -1] = gram[-1, :-1] = found.sums.sum(axis=0)
    line[:-1], line[-1] = found.sums[1] - found.sums[0], found.counts[1] - found.counts[0]
    values, vectors = np.linalg.eigh(gram / 4)
    floor = found.product_noise * math.sqrt(size) / 2 + 1.0
    weights = (vectors / (np.maximum(values, 0.0) + floor)) @ (vectors.T @ line) / 2
    return weights[None, :-1], weights[-1:]


def moments_of_rows(
    meter: PrivacyFilter, budget: BudgetShare, data: PrivateRows, *, laplace: bool = False
) -> ClassMoments:
    """Release moments of twice the scaled rows, which are within [-1, 1].

    Privacy: the budget. With rows of integers c of norm at most N = 2^ROW_BITS, a row adds c and N to its own class's
        line: sqrt(2) N in L2, (sqrt(features) + 1) N in L1. The upper triangle of cc' is sqrt((|c|⁴ + Σc⁴)/2) long,
        and its cells sum to (|c|₁² + |c|²)/2, in absolute value.
    """
    norm, d, k = 2**ROW_BITS, data.frame.features, len(data.classes)
    cell = norm if data.frame.round else math.ceil(norm / math.sqrt(d))
    reach = Sensitivity(
        lines=whole_root(2 * norm**2),
        lines_l1=whole_root(d * norm**2) + norm,
        products=whole_root(-(-(norm**4 + cell**2 * norm**2) // 2)),
        products_l1=(d + 1) * norm**2 // 2,
    )

    def look() -> tuple[Integers, Integers]:
        scaled, code = data.look()
        rows = ExactRows(data.frame.cells(scaled), 1.0, norm)
        of_class = (code[:, None] == np.arange(k)).astype(np.float64)
        lines = np.zeros((k, d + 1), dtype=np.int64)
        lines[:, :-1] = (of_class.T @ rows.cells).astype(np.int64)
        lines[:, -1] = np.bincount(code, minlength=k) * norm
        return lines.ravel(), rows.products()[np.triu_indices(d)]

    step = 2 * data.frame.reach / norm
    return release_class_moments(meter, budget, look, reach, (k, d), (1 / norm, step, step**2), laplace=laplace)

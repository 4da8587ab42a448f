"""Directions drawn by the exponential mechanism, for teaching (Chaudhuri, Sarwate & Sinha 2013, "PPCA").

A direction v has the score v'Av, which one row of norm at most r moves by at most r². Directions are drawn one after
the other, each in the remaining subspace: k directions for epsilon/k each. The density e^(c v'Av) on the sphere is
Bingham's; Kent, Ganeiber & Mardia 2013 sample it without a Markov chain, by rejection from an angular Gaussian. All of
it is in floats, so it is not a mechanism for real data.
"""

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.noise import Source

__all__ = ["sample_subspace"]

Floats = NDArray[np.float64]


def sample_subspace(scatter: Floats, length: float, epsilon: float, count: int, source: Source) -> Floats:
    """Draw `count` orthonormal directions, one in each row."""
    basis, found = np.eye(len(scatter)), []
    for _ in range(count):
        inside = basis.T @ scatter @ basis
        # The score only rises when a row is added, so e^(epsilon score / r²) is private without the usual half.
        chosen = basis @ _bingham(inside * (epsilon / count / length**2), source)
        found.append(chosen)
        left = basis - np.outer(chosen, chosen @ basis)
        vectors, sizes, _ = np.linalg.svd(left)
        basis = vectors[:, : len(sizes) - 1] if len(sizes) > 1 else vectors[:, :0]
    return np.array(found)


def _bingham(matrix: Floats, source: Source) -> Floats:
    """Draw a unit vector of density proportional to e^(v' matrix v)."""
    values, vectors = np.linalg.eigh(matrix)
    down = values[-1] - values  # e^(-x' down x): the same distribution
    q = len(values)
    if q == 1:
        return np.asarray(vectors[:, 0])
    b = _root(down, q)
    spread = 1 / np.sqrt(1 + 2 * down / b)
    top = -(q - b) / 2 + q / 2 * np.log(q / b)
    while True:
        radial, angle = source.floats((2, q))
        point = np.sqrt(-2 * np.log(radial)) * np.cos(2 * np.pi * angle) * spread
        point /= np.linalg.norm(point)
        height = point @ (down * point)
        # ln of e^(-h) over the envelope (1 + 2h/b)^(-q/2), at most `top`.
        if np.log(source.floats(1)[0]) < -height + q / 2 * np.log1p(2 * height / b) - top:
            return np.asarray(vectors @ point)


def _root(down: Floats, q: int) -> float:
    """Return the b in (0, q] that minimises rejection: Σ 1/(b + 2 down) = 1."""
    low, high = 1e-9, float(q)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 / (middle + 2 * down)).sum() > 1 else (low, middle)
    return high

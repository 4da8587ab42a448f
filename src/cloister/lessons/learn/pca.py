"""Principal components by textbook methods, for teaching; not private.

    sulq       noise on the second moments, in floats (Blum, Dwork, McSherry & Nissim 2005)
    input      noise on every cell of every row
    subspace   directions drawn by the exponential mechanism, the textbook's output perturbation (Chaudhuri, Sarwate &
               Sinha 2013, "PPCA")

Corrections: noise is symmetric, so that the matrix remains one of second moments; its scale includes the sensitivity,
which is often omitted. A centred scatter matrix moves by up to four times as much as an uncentred one, and its mean is
not public: so the second moments of rows with a constant are released, once, and the mean follows from them. Wishart
noise is refused: it is not private (privacy/mechanisms/wishart.py).

Falls to: `attack.mechanisms.floating.guess`: noise in floats shows what it was added to in its last bits (AT-17).
"""

import math
from typing import Any, ClassVar, Self

import numpy as np

from cloister.learn.base.frame import Floats, Frame
from cloister.learn.base.inputs import complete, keep_features, read_table
from cloister.learn.decomposition import pca
from cloister.learn.decomposition.pca import Components, signed
from cloister.learn.linear_model.moments import symmetric
from cloister.lessons.learn.method import TextbookFit, TextbookModel, noisy_cells, on_paper
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms.wishart import wishart
from cloister.privacy.noise import Source

__all__ = ["PCA", "directions", "sample_subspace"]


class PCA(TextbookModel, pca.PCA):
    """Principal component analysis by a textbook method.

    Args:
        method: "sulq", "input" or "subspace"; needs a `random_state`, and neither ledger nor account.
        spend, n_components, bounds, data_norm, fill, random_state: see `cloister.learn.PCA`.

    `explained_variance_` is None for "subspace".

    Privacy: none; see `TextbookModel`.
    """

    methods: ClassVar = ("sulq", "input", "subspace")

    def fit(self, X: Any, y: Any = None, **columns: Any) -> Self:  # noqa: N803
        """Fit to rows as arrays or frames; `y` is not used.

        Privacy: none; see `TextbookModel`.
        """
        if self.method == "wishart":
            wishart()
        self._check_rows(X)
        inputs = read_table(X, self.fill)
        count = self._count(inputs.width)

        def learn(lesson: TextbookFit) -> tuple[Components, Loss]:
            frame = self._frame(inputs.width, None)
            (rows,) = complete(inputs.numbers())
            vectors, middle, variance, loss = directions(self.method, frame.rows(rows), frame, count, lesson)
            variances = np.full(count, math.nan) if variance is None else variance / frame.scale[0] ** 2
            return Components(signed(vectors), variances, math.nan, frame.centre + middle / frame.scale, math.nan), loss

        self._keep(self._teach(learn), count)
        if self.method == "subspace":
            self.explained_variance_ = None
        keep_features(self, inputs.width, inputs.names)
        return self


def directions(
    method: str, scaled: Floats, frame: Frame, count: int, lesson: TextbookFit
) -> tuple[Floats, Floats, Floats | None, Loss]:
    """Return directions and mean in the frame, the scatter along the directions, and the nominal loss."""
    if method == "subspace":
        if not lesson.loss.is_pure:
            raise BadInput("the exponential mechanism is pure. Give spend=cl.epsilon(1).")
        drawn = sample_subspace(scaled.T @ scaled, frame.reach, lesson.epsilon, count, lesson.source)
        return drawn, np.zeros(frame.features), None, lesson.loss
    if method == "input":
        noisy, scale = noisy_cells(scaled, lesson.epsilon, lesson)
        rows = float(max(len(noisy), 1))
        middle = np.clip(noisy.sum(axis=0) / rows, -0.5, 0.5)
        scatter = noisy.T @ noisy / rows - 2 * scale**2 * np.eye(frame.features)
        loss = on_paper(lesson)
    else:
        moments = _second_moments(scaled, frame, lesson)
        rows = max(float(moments[-1, -1]) / frame.reach**2, 1.0)
        middle = np.clip(moments[-1, :-1] / (rows * frame.reach), -0.5, 0.5)
        scatter = moments[:-1, :-1] / rows
        loss = lesson.loss
    values, vectors = np.linalg.eigh(scatter - np.outer(middle, middle))
    order = np.argsort(values)[::-1][:count]
    return vectors[:, order].T, middle, np.maximum(values[order], 0.0), loss


def _second_moments(scaled: Floats, frame: Frame, lesson: TextbookFit) -> Floats:
    """Release Z'Z with noise, for rows z = (x, reach).

    The upper triangle moves by at most |z|² = 2 reach² in L2; by (|z|_1² + |z|²)/2 in L1.
    """
    rows = np.column_stack([scaled, np.full(len(scaled), frame.reach)])
    places = np.triu_indices(rows.shape[1])
    upper = (rows.T @ rows)[places]
    square = 2 * frame.reach**2
    if lesson.loss.is_pure:
        first = frame.reach * (math.sqrt(frame.features) + 1)
        return symmetric(upper + lesson.laplace(upper.shape, (first**2 + square) / 2 / lesson.epsilon))
    return symmetric(upper + lesson.normal(upper.shape, square / math.sqrt(2 * float(lesson.loss.amount))))


def sample_subspace(scatter: Floats, length: float, epsilon: float, count: int, source: Source) -> Floats:
    """Draw `count` orthonormal directions by the exponential mechanism, one in each row.

    A direction v has the score v'Av, which one row of norm at most r moves by at most r². Directions are drawn one
    after the other, each in the remaining subspace: k directions for epsilon/k each.
    """
    basis, directions = np.eye(len(scatter)), []
    for _ in range(count):
        inside = basis.T @ scatter @ basis
        # The score only rises when a row is added, so e^(epsilon score / r²) is private without the usual half.
        chosen = basis @ _bingham(inside * (epsilon / count / length**2), source)
        directions.append(chosen)
        left = basis - np.outer(chosen, chosen @ basis)
        vectors, sizes, _ = np.linalg.svd(left)
        basis = vectors[:, : len(sizes) - 1] if len(sizes) > 1 else vectors[:, :0]
    return np.array(directions)


def _bingham(matrix: Floats, source: Source) -> Floats:
    """Draw a unit vector of density proportional to e^(v' matrix v), which is Bingham's.

    By rejection from an angular Gaussian (Kent, Ganeiber & Mardia 2013), without a Markov chain.
    """
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

"""Eigenvectors of shared symmetric matrices, shared from end to end: power iteration, deflation, Cholesky.

Nothing is opened, and the number of iterations is public and fixed, so the course of the computation says nothing
about the matrix. The generalised problem A u = λ B u is reduced to a symmetric one by B = L Lᵀ, since B⁻¹A is not
symmetric: C = L⁻¹ A L⁻ᵀ, C z = λ z, u = L⁻ᵀ z.
"""

from dataclasses import dataclass

import numpy as np

from cloister.privacy.errors import BadNumber, OutOfRange
from cloister.privacy.number import rational
from cloister.vault.sharing.compare import clip
from cloister.vault.sharing.division import inverse_square_root
from cloister.vault.sharing.fixed import Shared, stack

__all__ = ["Eigenpairs", "cholesky", "generalised_eigenpairs", "power_iteration"]


@dataclass(frozen=True, slots=True)
class Eigenpairs:
    """Shared eigenvalues, largest first, and their eigenvectors as rows."""

    values: Shared
    vectors: Shared


def power_iteration(matrix: Shared, pairs: int, iterations: int = 30, at_least: object = "1/256") -> Eigenpairs:
    """Return the leading eigenpairs of a symmetric positive semi-definite matrix.

    Args:
        matrix: m × m. Scale it so that its entries are at most about 1.
        pairs: how many eigenpairs.
        iterations: the error falls as (λ₂/λ₁)^iterations; public.
        at_least: a squared norm ‖Av‖² below this counts as zero, and the pair is zero then.
    """
    size = _square(matrix)
    if isinstance(pairs, bool) or not isinstance(pairs, int) or not 1 <= pairs <= size:
        raise BadNumber(f"a matrix of {size} rows has 1 to {size} eigenpairs.")
    one, widest = 1 << matrix.party.fraction_bits, matrix.bound
    values, vectors = [], []
    for pair in range(pairs):
        # Public, of irregular signs and sizes, so that it is orthogonal to no eigenvector that anybody would choose.
        # Another one for each pair: where eigenvalues are equal, the first start has nothing left in their space.
        start = np.cos(np.arange(1 + pair * size, 1 + (pair + 1) * size) ** 2 * 0.7)
        vector = matrix.party.public(start / np.linalg.norm(start), bound=1)
        for _ in range(iterations):
            vector = _unit_vector(matrix @ vector, at_least)
        # ‖v‖² ≤ 2, as `_unit_vector` shows, so |vᵀAv| ≤ 2·‖A‖ and ‖A‖ is at most m times the largest entry.
        value = (vector * (matrix @ vector)).sum().within(2 * size * widest + size)
        values.append(value)
        vectors.append(vector)
        outer = (vector.reshape(size, 1) @ vector.reshape(1, size)).within(2 * one)
        # What is left of a positive semi-definite matrix has no larger entries. Of any other it is clipped.
        matrix = clip(matrix - outer * value, -widest / one, widest / one)
    return Eigenpairs(stack(values), stack(vectors))


def cholesky(matrix: Shared, at_least: object) -> tuple[Shared, Shared]:
    """Return L of a symmetric positive definite matrix B = L Lᵀ, and the reciprocals of its diagonal.

    Args:
        matrix: m × m, with no pivot below `at_least`: add a ridge to make sure.
        at_least: the smallest pivot, a public bound.
    """
    size = _square(matrix)
    party = matrix.party
    # Σ_k L_ik² = B_ii, so no entry of L is above the root of the bound.
    widest = int(np.ceil(np.sqrt(matrix.bound * float(_one(matrix))))) + 2
    columns: list[Shared] = []
    inverses = []
    for place in range(size):
        column = matrix[:, place]
        if columns:
            known = stack(columns)  # k × m
            column = column - known.T @ known[:, place]
        inverse = inverse_square_root(column[place], at_least)
        keep = np.arange(size) >= place
        scaled = (column * inverse) * keep.astype(float)
        limit = 2 * widest / float(_one(matrix))
        columns.append(clip(scaled, -limit, limit))
        inverses.append(inverse)
    return stack(columns).T, Shared(party, np.stack([part.words for part in inverses]), max(p.bound for p in inverses))


def generalised_eigenpairs(
    left: Shared, right: Shared, pairs: int, at_least: object, limit: float, iterations: int = 30
) -> Eigenpairs:
    """Return the leading solutions of A u = λ B u with uᵀ B u = 1.

    Args:
        left: A, symmetric positive semi-definite.
        right: B, symmetric positive definite.
        pairs: how many.
        at_least: the smallest pivot of B.
        limit: public bound of the entries of L⁻¹ A L⁻ᵀ, of L⁻¹ A and of u. Larger ones are clipped to it.
        iterations: of the power method; public.
    """
    lower, inverses = cholesky(right, at_least)
    half = _solve_lower(lower, inverses, left, limit)  # L⁻¹ A
    whole = _solve_lower(lower, inverses, half.T, limit)  # L⁻¹ (L⁻¹ A)ᵀ
    symmetric = (whole + whole.T).truncate(1)
    found = power_iteration(symmetric, pairs, iterations)
    return Eigenpairs(found.values, _solve_upper(lower, inverses, found.vectors.T, limit).T)


def _solve_lower(lower: Shared, inverses: Shared, right: Shared, limit: float) -> Shared:
    """Return L⁻¹ R, row by row."""
    rows: list[Shared] = []
    for place in range(len(right)):
        rest = right[place]
        if rows:
            rest = rest - lower[place, : len(rows)] @ stack(rows)
        rows.append(clip(rest * inverses[place], -limit, limit))
    return stack(rows)


def _solve_upper(lower: Shared, inverses: Shared, right: Shared, limit: float) -> Shared:
    """Return L⁻ᵀ R, from the last row up."""
    rows: list[Shared] = []
    for place in reversed(range(len(right))):
        rest = right[place]
        if rows:
            rest = rest - lower[place + 1 :, place] @ stack(rows)
        rows.insert(0, clip(rest * inverses[place], -limit, limit))
    return stack(rows)


def _unit_vector(vector: Shared, at_least: object) -> Shared:
    """Return v/‖v‖, or zero if ‖v‖² is below `at_least`.

    The m squares are truncated by less than 2^-f each, so with m ≤ at_least·2^f/8 the sum is off by a quarter at most.
    The inverse of the root is off by six units of 2^-f. Where ‖v‖ ≤ 2^f/64 it holds 64 or more, so that this is a tenth
    of it. The result has a squared norm of at most 2.
    """
    one = _one(vector)
    if len(vector) * 4 > rational(at_least, "at_least") * one / 2:
        raise BadNumber("a vector this long needs more fraction_bits or a larger at_least.")
    square = (vector * vector).sum()
    if square.bound << 12 > one**3:
        raise OutOfRange(
            "the inverse of a vector this long needs more fraction_bits. Scale the matrix so that its entries are at "
            "most about 1, or declare narrower bounds."
        )
    return (vector * inverse_square_root(square, at_least)).within(2 * one)


def _one(numbers: Shared) -> int:
    return 1 << numbers.party.fraction_bits


def _square(matrix: Shared) -> int:
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise BadNumber("this needs a square matrix.")
    return matrix.shape[0]

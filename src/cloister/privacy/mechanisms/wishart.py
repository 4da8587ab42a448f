"""Wishart noise on a covariance matrix, which is not private."""

from typing import NoReturn

from cloister.privacy.errors import NotPrivate

__all__ = ["wishart"]


def wishart(*_ignored: object, **_named: object) -> NoReturn:
    """Refuse every call.

    Positive semidefinite noise moves a matrix in some directions only, so a release A + W excludes some matrices
    A: outputs possible for one table are impossible for its neighbour, and no epsilon is finite.
    """
    raise NotPrivate(
        "Wishart noise is not differentially private: it is positive semidefinite, so outputs that one table can give "
        "are impossible for its neighbour, and no epsilon is finite. Add symmetric discrete Gaussian noise to the "
        "scatter matrix instead: DiscreteGaussian.for_loss(sensitivity, rho('0.1')).release_symmetric(matrix)."
    )

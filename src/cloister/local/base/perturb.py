"""From values to reports: check the input, then call the mechanism's own randomiser."""

from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.oracle import Oracle, Reports
from cloister.privacy.errors import BadInput
from cloister.privacy.mechanisms.randomised_response import answers_of
from cloister.privacy.noise.source import SYSTEM, Source

__all__ = ["PIECE", "checked", "perturb", "perturbed", "pieces"]

# Number of people perturbed at a time, to stay in the processor's cache.
PIECE = 1 << 13


@singledispatch
def perturbed(mechanism: Oracle, values: NDArray[np.int64], source: Source) -> NDArray[Any]:
    """Return the reports' data, one row a person. Each mechanism registers its own."""
    raise BadInput(f"no client is known for a {type(mechanism).__name__}.")


@singledispatch
def checked(mechanism: Oracle, values: Any) -> NDArray[np.int64]:
    """Return people's answers, one row each, or refuse without showing any. Sets and rankings register their own."""
    return np.atleast_1d(answers_of(values, mechanism.domain)).ravel()


def perturb(mechanism: Oracle, values: Any, source: Source | None = None) -> Reports:
    """Perturb one person's value or an array of people's values.

    Args:
        mechanism: the public facts.
        values: an integer in [0, domain), or an array of them, one a person.
        source: the source of random bits; default the operating system's.

    Privacy: costs each person the mechanism's loss, against every reader of the report. A refused value is not shown in
        the error, and nothing is sent.
    """
    drawn_from = source or SYSTEM
    return Reports(mechanism, perturbed(mechanism, checked(mechanism, values), drawn_from), drawn_from.private)


def pieces(count: int) -> list[slice]:
    """Yield people in groups that fit the cache."""
    return [slice(start, min(start + PIECE, count)) for start in range(0, count, PIECE)]

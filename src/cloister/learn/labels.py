"""A column of labels, as it came. Nothing is read off it but its type and shape."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.learn.inputs import codes
from cloister.privacy.errors import BadInput

__all__ = ["read_labels"]


def read_labels(y: Any, classes: NDArray[Any], length: int) -> NDArray[Any]:
    """A column of labels as long as the rows; checked by type and shape alone."""
    if y is None:
        raise BadInput("y is one column of labels, as long as X; requires y to be passed, but the target y is None.")
    from sklearn.utils.validation import column_or_1d

    given = np.asarray(y)
    if given.ndim not in (1, 2) or (given.ndim == 2 and given.shape[1] != 1) or len(given) != length:
        raise BadInput("y is one column of labels, as long as X.")
    given = np.asarray(column_or_1d(given, warn=True))
    codes(given[:0], list(classes))
    return given

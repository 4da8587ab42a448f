"""Directions for projecting rows before reporting, from public rows alone."""

from typing import Any

import numpy as np

from cloister.local.base.columns import Choices, numbers, table_of
from cloister.local.base.oracle import Floats
from cloister.privacy.errors import BadInput

__all__ = ["discriminant", "principal", "reach"]


def principal(public_rows: Any, count: int) -> Floats:
    """Return the directions of largest variance (PCA) of public rows: a matrix, features by directions.

    Fewer directions are fewer questions, so each is answered by more people (spec LDP-25). The rows must be public, or
    the scatter private: `learn.PCA(spend).components_.T` also works.

    Privacy: these rows get none. Directions fitted on the respondents' own rows void their guarantee.
    """
    rows = _rows(public_rows)
    _, directions = np.linalg.eigh(np.cov(rows, rowvar=False).reshape(rows.shape[1], -1))
    return np.asarray(directions[:, ::-1][:, : _count(count, rows.shape[1])])


def discriminant(public_rows: Any, public_labels: Any, count: int, ridge: float = 1e-3) -> Floats:
    """Return the directions that best separate public classes: discriminant component analysis (Kung 2014).

    They maximise the scatter between classes over that within them, plus a ridge; at most one less than the number of
    classes is useful. (The source describes detrended correspondence analysis by the same letters: spec E-11.)

    Args:
        public_rows, public_labels: rows and classes that need no protection.
        count: the number of directions.
        ridge: added to the scatter within, as a share of its mean variance: few rows need more.

    Privacy: these rows get none.
    """
    from scipy.linalg import eigh  # here, because scipy takes longer to import than this package

    rows, labels = _rows(public_rows), np.asarray(public_labels).ravel()
    classes = Choices(tuple(np.unique(labels).tolist()))
    if count >= classes.size:
        raise BadInput(f"{classes.size} classes are told apart by at most {classes.size - 1} directions.")
    codes, centre = classes.codes(labels), rows.mean(axis=0)
    between, within = (np.zeros((rows.shape[1], rows.shape[1])) for _ in range(2))
    for code in range(classes.size):
        members = rows[codes == code]
        step = members.mean(axis=0) - centre
        between += len(members) * np.outer(step, step)
        within += (members - members.mean(axis=0)).T @ (members - members.mean(axis=0))
    within += ridge * np.trace(within) / len(within) * np.eye(len(within))
    _, directions = eigh(between, within)
    chosen = directions[:, ::-1][:, : _count(count, rows.shape[1])]
    return np.asarray(chosen / np.linalg.norm(chosen, axis=0))


def reach(public_rows: Any, matrix: Floats) -> list[tuple[float, float]]:
    """Return bounds of each direction that hold all but the outermost hundredths of public rows."""
    ends = np.quantile(_rows(public_rows) @ matrix, [0.01, 0.99], axis=0)
    return [(float(low), float(high)) for low, high in ends.T]


def _rows(rows: Any) -> Floats:
    table = table_of(rows)
    if len(table) < 2:
        raise BadInput("directions need at least two public rows.")
    return numbers(table).reshape(table.shape)


def _count(count: int, features: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= features:
        raise BadInput(f"there are 1 to {features} directions.")
    return count

"""Labelled numbers, on the device: to the grid, to the place of the own class, and noise on every component."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.oracle import Reports
from cloister.local.mechanisms.labelled import STEPS, LabelledNumber
from cloister.privacy.errors import BadInput
from cloister.privacy.mechanisms.randomised_response import answers_of
from cloister.privacy.noise import discrete_laplace
from cloister.privacy.noise.source import SYSTEM, Source

__all__ = ["labelled", "perturb"]

_PEOPLE = 1 << 12


def perturb(mechanism: LabelledNumber, values: Any, source: Source | None = None) -> Reports:
    """Reports for a pair (classes, numbers), one row a person.

    Privacy: costs each person the mechanism's loss. A refused value is not shown in the error, and nothing is sent.
    """
    drawn_from = source or SYSTEM
    try:
        given, numbers = values
    except (TypeError, ValueError):
        raise BadInput("labelled numbers are a pair: people's classes, and their numbers.") from None
    classes = np.atleast_1d(answers_of(given, mechanism.classes)).ravel()
    rows = np.asarray(numbers)
    if rows.dtype.kind not in "biuf" or rows.size != classes.size * mechanism.numbers or np.isnan(rows).any():
        raise BadInput(f"each person has {mechanism.numbers} numbers in [-1, 1], none of them missing.")
    # Rounding is monotone and the ends are on the grid, so no step count is beyond ±STEPS.
    steps = np.floor(np.clip(rows.reshape(classes.size, -1), -1, 1) * STEPS + 0.5).astype(np.int64)
    return Reports(mechanism, labelled(mechanism, classes, steps, drawn_from), drawn_from.private)


def labelled(
    mechanism: LabelledNumber, classes: NDArray[np.int64], steps: NDArray[np.int64], source: Source
) -> NDArray[np.int32]:
    """One row of integers a person, number · classes + class, cut at the limit."""
    sent = np.empty((len(classes), mechanism.domain), dtype=np.int32)
    places = mechanism.classes * np.arange(mechanism.numbers)
    for start in range(0, len(classes), _PEOPLE):
        own, whole = classes[start : start + _PEOPLE], steps[start : start + _PEOPLE]
        noisy = discrete_laplace(mechanism.scale, (len(own), mechanism.domain), source)
        noisy[np.arange(len(own))[:, None], places + own[:, None]] += whole
        sent[start : start + _PEOPLE] = np.clip(noisy, -mechanism.limit, mechanism.limit)
    return sent

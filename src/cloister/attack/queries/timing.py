"""Timing: does the time of an answer tell two neighbouring inputs apart?

    found = timing(lambda data: data.run(plan), left, right)

Calls alternate, so that whatever else the machine does hits both sides alike. No room of Cloister promises equal
times; the attack shows how much they tell.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from cloister.attack.finding import Finding, Roc
from cloister.attack.models.rows import check_whole
from cloister.privacy.loss import Loss

__all__ = ["timing"]

_WARM = 3  # first calls, which fill caches, are not counted


def timing(
    ask: Callable[[Any], Any],
    left: Any,
    right: Any,
    *,
    runs: int = 200,
    claim: Loss | None = None,
    clock: Callable[[], float] = time.perf_counter,
    target: str = "a query",
    progress: Callable[[float, str], None] | None = None,
) -> Finding:
    """Measure how well the time of an answer tells two inputs apart.

    Args:
        ask: the call that an attacker times.
        left: an input.
        right: its neighbour.
        runs: calls on each input.
        claim: the loss of the answer; its time is not part of what was promised.
        clock: returns seconds.
        target: what was timed, in words.
        progress: called with a share and a sentence.

    Privacy: none, for the owner. Every call is one of `ask`, with whatever that charges.
    """
    check_whole(runs, "runs", 10, 1_000_000)
    seconds = np.zeros((runs, 2))
    for turn in range(-_WARM, runs):
        for side in (0, 1) if turn % 2 else (1, 0):
            start = clock()
            ask((left, right)[side])
            took = clock() - start
            if turn >= 0:
                seconds[turn, side] = took
        if progress is not None and turn >= 0 and turn % 10 == 0:
            progress((turn + 1) / runs, f"{turn + 1:,} of {runs:,} pairs of calls")
    medians = np.median(seconds, axis=0)
    scores = (seconds[:, 1], seconds[:, 0]) if medians[1] >= medians[0] else (seconds[:, 0], seconds[:, 1])
    roc = Roc.of(*scores)
    success, interval = roc.balanced_accuracy()
    return Finding(
        attack="timing",
        target=target,
        access="black box",
        knowledge="both inputs, and how long each answer took",
        measure="guesses which of the two inputs was used that are right",
        success=success,
        interval=interval,
        baseline=0.5,
        attempts=2 * runs,
        roc=roc,
        claim=claim,
        figures={"median on the left, ms": 1e3 * float(medians[0]), "on the right, ms": 1e3 * float(medians[1])},
        remedies=("Answer after a fixed time, or in batches, where people who ask can measure it.",),
        notes=("Times depend on the machine and on what else it does.",),
    )

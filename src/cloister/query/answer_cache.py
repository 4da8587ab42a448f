"""The record: what was already released, so that asking again, or for something that follows from it, is free.

The same statistic measured twice with fresh noise would cost twice, and let the noise be averaged away. What is kept
here is released already: keeping it costs nothing, and whoever changes it can spoil answers but reveal nothing.
"""

import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cloister.privacy.canonical import fingerprint
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace, Mechanism
from cloister.query.plan import Measurement

__all__ = ["AnswerCache", "release_id"]

_KINDS = {kind.name: kind for kind in (DiscreteLaplace, DiscreteGaussian)}
# Larger answers are remembered while the dataset is open, but not written down.
_MOST_NUMBERS = 100_000


class AnswerCache:
    """Noisy statistics by what they measured.

    Args:
        version: the owner's name for this state of the data: releases of another state do not answer for it.
        path: where releases are written down, one line each; None keeps them in memory only.
    """

    def __init__(self, version: str = "", path: str | os.PathLike[str] | None = None) -> None:
        self._version = version
        self._path = None if path is None else Path(path)
        self._kept: dict[str, tuple[tuple[Mechanism, ...], list[Any]]] = {}
        self._entered = 0
        self._read_to = 0
        self._reading = threading.Lock()  # plans are made at the same time
        self.refresh()

    def refresh(self) -> None:
        """Read what other processes have written down since."""
        with self._reading:
            self._refresh()

    def _refresh(self) -> None:
        if self._path is None or not self._path.exists() or self._path.stat().st_size <= self._read_to:
            return
        with self._path.open("rb") as file:
            file.seek(self._read_to)
            added = file.read()
        whole = added[: added.rfind(b"\n") + 1]  # the rest is still being written
        self._read_to += len(whole)
        for line in whole.decode("utf-8", "replace").splitlines():
            self._read(line)

    def mechanisms(self, one: Measurement) -> tuple[Mechanism, ...] | None:
        """The noise of an earlier release of this statistic, if there is one."""
        found = self._kept.get(one.fingerprint(self._version))
        return None if found is None else found[0]

    def values(self, one: Measurement) -> list[Any]:
        """The noisy numbers of that release."""
        return self._kept[one.fingerprint(self._version)][1]

    def release(self, one: Measurement) -> str:
        """Which release of it is kept."""
        name = one.fingerprint(self._version)
        return release_id(name, self._kept[name][1])

    def keep(self, one: Measurement, values: list[Any]) -> None:
        """Enter a release; a more precise one replaces it later."""
        name = one.fingerprint(self._version)
        self._kept[name] = (one.mechanisms, values)
        self._entered += 1
        numeric = all(mechanism.name in _KINDS for mechanism in one.mechanisms)
        if self._path is not None and numeric and sum(np.size(value) for value in values) <= _MOST_NUMBERS:
            line = json.dumps([name, _noise(one.mechanisms), [_plain(value) for value in values]]) + "\n"
            with self._path.open("ab", buffering=0) as file:  # one write, so that lines of two processes do not mix
                file.write(line.encode())

    def _read(self, line: str) -> None:
        try:
            name, noise, values = json.loads(line)
            made = tuple(_KINDS[kind].for_loss(sensitivity, Loss.from_json(loss)) for kind, sensitivity, loss in noise)
            numbers = [_array(value) for value in values]
        except Exception:  # whatever is wrong with one line must not keep the others from being read
            return  # it was cut off, or is of another version: ask again, and pay again
        self._kept[name] = (made, numbers)
        self._entered += 1

    def __len__(self) -> int:
        """How many releases were entered or read, replaced ones included: it grows with every change."""
        return self._entered


def release_id(fingerprint_: str, values: Sequence[Any]) -> str:
    """Which release of a statistic this is: one may be replaced by a more precise one, and that is news."""
    return fingerprint(repr((fingerprint_, [_plain(value) for value in values])))


def _array(value: Any) -> Any:
    try:
        return np.array(value, dtype=np.int64)
    except OverflowError:  # noise of a very small loss
        return np.array(value, dtype=object)


def _noise(mechanisms: Sequence[Any]) -> list[Any]:
    return [[one.name, str(one.sensitivity), one.loss.to_json()] for one in mechanisms]


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value

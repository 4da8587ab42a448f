"""The record: what was already released, so that asking again, or for something that follows from it, is free.

The same statistic measured twice with fresh noise would cost twice, and let the noise be averaged away. What is kept
here is released already: keeping it costs nothing, and whoever changes it can spoil answers but reveal nothing.
"""

import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cloister.privacy.errors import QueryRefused
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace
from cloister.query.plan import KeptRelease, Measurement

__all__ = ["AnswerCache", "Snapshot", "made_release"]

_KINDS = {kind.name: kind for kind in (DiscreteLaplace, DiscreteGaussian)}
# Larger answers are remembered while the dataset is open, but not written down.
_MOST_NUMBERS = 100_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The record as it was at one moment.

    A plan is priced, and its answer put together, from one snapshot: what is charged for is what is handed out, however
    many releases other threads enter meanwhile.

    Attributes:
        number: of the entries until then; the same for two snapshots only if they are equal.
    """

    number: int
    _version: str
    _kept: Mapping[str, KeptRelease] = field(repr=False)

    def release(self, one: Measurement) -> KeptRelease | None:
        """The release of this statistic, if there is one."""
        return self._kept.get(one.fingerprint(self._version))

    def values(self, one: Measurement) -> list[Any]:
        """The noisy numbers of the release that a plan names, and of no other.

        Raises:
            QueryRefused: another release, or none, is kept.
        """
        found = self.release(one)
        if found is None or found.id != one.release:
            raise QueryRefused("the record has changed since this plan was made. Plan the question again.")
        return list(found.values)


class AnswerCache:
    """Noisy statistics by what they measured. Any number of threads may use it.

    Args:
        version: the owner's name for this state of the data: releases of another state do not answer for it.
        path: where releases are written down, one line each; None keeps them in memory only.
    """

    def __init__(self, version: str = "", path: str | os.PathLike[str] | None = None) -> None:
        self._version = version
        self._path = None if path is None else Path(path)
        self._kept: dict[str, KeptRelease] = {}
        self._entered = 0
        self._read_to = 0
        self._lock = threading.Lock()  # plans are made and run at the same time
        self.refresh()

    def refresh(self) -> None:
        """Read what other processes have written down since."""
        with self._lock:
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

    def snapshot(self) -> Snapshot:
        """All that is kept now."""
        with self._lock:
            return Snapshot(self._entered, self._version, dict(self._kept))

    def keep(self, one: Measurement, values: list[Any]) -> None:
        """Enter a release; a more precise one replaces it later."""
        made = made_release(one, self._version, values)
        line = None
        numeric = all(mechanism.name in _KINDS for mechanism in one.mechanisms)
        if self._path is not None and numeric and sum(np.size(value) for value in values) <= _MOST_NUMBERS:
            written = [made.statistic, _noise(one.mechanisms), [_plain(value) for value in values]]
            line = json.dumps(written) + "\n"
        with self._lock:  # in the file in the same order
            self._kept[made.statistic] = made
            self._entered += 1
            if self._path is not None and line is not None:
                with self._path.open("ab", buffering=0) as file:  # one write: lines of two processes do not mix
                    file.write(line.encode())

    def _read(self, line: str) -> None:
        try:
            name, noise, values = json.loads(line)
            made = tuple(_KINDS[kind].for_loss(sensitivity, Loss.from_json(loss)) for kind, sensitivity, loss in noise)
            numbers = tuple(_array(value) for value in values)
            release = KeptRelease(str(name), json.dumps(noise), made, numbers)
        except Exception:  # whatever is wrong with one line must not keep the others from being read
            return  # it was cut off, or is of another version: ask again, and pay again
        self._kept[release.statistic] = release
        self._entered += 1

    def __len__(self) -> int:
        """How many releases were entered or read, replaced ones included: it grows with every change."""
        return self._entered


def made_release(one: Measurement, version: str, values: Sequence[Any]) -> KeptRelease:
    """What was measured just now, as the record keeps it. Its arrays can no longer be written to."""
    for value in values:
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
    return KeptRelease(one.fingerprint(version), json.dumps(_noise(one.mechanisms)), one.mechanisms, tuple(values))


def _array(value: Any) -> Any:
    try:
        made = np.array(value, dtype=np.int64)
    except OverflowError:  # noise of a very small loss
        made = np.array(value, dtype=object)
    made.setflags(write=False)
    return made


def _noise(mechanisms: Sequence[Any]) -> list[Any]:
    return [[one.name, str(one.sensitivity), one.loss.to_json()] for one in mechanisms]


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value

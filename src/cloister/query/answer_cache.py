"""The record of released statistics. Repeating a query, or asking one that follows from released statistics, is free.

Measuring a statistic twice with fresh noise would cost twice and let the noise be averaged out. The record holds
released values only: keeping it costs nothing, and tampering with it reveals nothing. It can falsify answers, unless
lines are authenticated with a key, as a hub does.
"""

import hashlib
import hmac
import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cloister.privacy.errors import QueryRefused
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace, Mechanism
from cloister.privacy.signing import fingerprint
from cloister.query.plan import Measurement

__all__ = ["AnswerCache", "KeptRelease", "Snapshot", "authenticated", "made_release"]

_KINDS = {kind.name: kind for kind in (DiscreteLaplace, DiscreteGaussian)}
# Larger answers are kept in memory while the dataset is open, but not written to the file.
_TAB = "\t"  # before the HMAC of a line; JSON has none
_MOST_NUMBERS = 100_000


@dataclass(frozen=True)
class KeptRelease:
    """A release in the record. It is immutable: its noise, which sets its price, and its numbers stay together.

    Attributes:
        statistic: the fingerprint of the measured statistic.
        noise: its mechanisms, as stored.
        mechanisms: the noise.
        values: the noisy numbers, one array or list for each mechanism.
    """

    statistic: str
    noise: str
    mechanisms: tuple[Mechanism, ...]
    values: tuple[Any, ...] = field(repr=False)

    @cached_property
    def id(self) -> str:
        """The identity of this release. A more precise one has another identity and is charged as new."""
        numbers = [value.tolist() if hasattr(value, "tolist") else value for value in self.values]
        return fingerprint(repr((self.statistic, self.noise, numbers)))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The record at one moment.

    A plan is priced and its answer computed from one snapshot, so that the releases charged for are those returned,
    even if other threads enter releases meanwhile.

    Attributes:
        number: the number of entries so far; two snapshots have the same number only if they are equal.
    """

    number: int
    _version: str
    _kept: Mapping[str, KeptRelease] = field(repr=False)

    def release(self, one: Measurement) -> KeptRelease | None:
        """Return the release of this statistic, if there is one."""
        return self._kept.get(one.fingerprint(self._version))

    def values(self, one: Measurement) -> list[Any]:
        """Return the noisy numbers of the release that a plan names.

        Raises:
            QueryRefused: the record holds another release, or none.
        """
        release = self.release(one)
        if release is None or release.id != one.release:
            raise QueryRefused("the record has changed since this plan was made. Plan the question again.")
        return list(release.values)


class AnswerCache:
    """Noisy statistics by fingerprint. Thread-safe.

    Args:
        version: the owner's name for this state of the data; releases of another state are not reused.
        path: the file that releases are written to, one line each; None keeps them in memory only.
        key: authenticates each line: one that was written without it is not read. None where whoever writes the file is
            trusted.
    """

    def __init__(self, version: str = "", path: str | os.PathLike[str] | None = None, key: bytes | None = None) -> None:
        self._version = version
        self._key = key
        self._path = None if path is None else Path(path)
        self._kept: dict[str, KeptRelease] = {}
        self._entered = 0
        self._read_to = 0
        self._lock = threading.Lock()  # plans are made and run at the same time
        self.refresh()

    def refresh(self) -> None:
        """Read the releases that other processes have written since."""
        with self._lock:
            self._refresh()

    def _refresh(self) -> None:
        if self._path is None or not self._path.exists() or self._path.stat().st_size <= self._read_to:
            return
        with self._path.open("rb") as file:
            file.seek(self._read_to)
            added = file.read()
        complete = added[: added.rfind(b"\n") + 1]  # the rest is still being written
        self._read_to += len(complete)
        for line in complete.decode("utf-8", "replace").splitlines():
            self._read(line)

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the record."""
        with self._lock:
            return Snapshot(self._entered, self._version, dict(self._kept))

    def keep(self, one: Measurement, values: list[Any]) -> None:
        """Enter a release. A more precise one replaces it later."""
        release = made_release(one, self._version, values)
        line = None
        numeric = all(mechanism.name in _KINDS for mechanism in one.mechanisms)
        if self._path is not None and numeric and sum(np.size(value) for value in values) <= _MOST_NUMBERS:
            written = [release.statistic, _noise(one.mechanisms), [_plain(value) for value in values]]
            line = authenticated(json.dumps(written), self._key) + "\n"
        with self._lock:  # same order as in the file
            self._kept[release.statistic] = release
            self._entered += 1
            if self._path is not None and line is not None:
                with self._path.open("ab", buffering=0) as file:  # one write, so that lines of two processes do not mix
                    file.write(line.encode())

    def _read(self, line: str) -> None:
        text = line if self._key is None else line.rpartition(_TAB)[0]
        if not hmac.compare_digest(line.encode(), authenticated(text, self._key).encode()):
            return  # changed, or written by somebody else: measure and pay again
        try:
            name, noise, values = json.loads(text)
            mechanisms = tuple(
                _KINDS[kind].for_loss(sensitivity, Loss.from_json(loss)) for kind, sensitivity, loss in noise
            )
            numbers = tuple(_array(value) for value in values)
            release = KeptRelease(str(name), json.dumps(noise), mechanisms, numbers)
        except Exception:  # a defect in one line must not prevent reading the others
            return  # truncated or of another version: measure and pay again
        self._kept[release.statistic] = release
        self._entered += 1

    def __len__(self) -> int:
        """Return the number of releases entered or read, replaced ones included. It grows with every change."""
        return self._entered


def authenticated(line: str, key: bytes | None) -> str:
    """Return a line of a record with its HMAC, if there is a key."""
    if key is None:
        return line
    return f"{line}{_TAB}{hmac.new(key, line.encode(), hashlib.sha256).hexdigest()}"


def made_release(one: Measurement, version: str, values: Sequence[Any]) -> KeptRelease:
    """Return a new measurement as the record keeps it. Its arrays are read-only."""
    for value in values:
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
    return KeptRelease(one.fingerprint(version), json.dumps(_noise(one.mechanisms)), one.mechanisms, tuple(values))


def _array(value: Any) -> Any:
    try:
        array = np.array(value, dtype=np.int64)
    except OverflowError:  # noise of a very small loss
        array = np.array(value, dtype=object)
    array.setflags(write=False)
    return array


def _noise(mechanisms: Sequence[Any]) -> list[Any]:
    return [[mechanism.name, str(mechanism.sensitivity), mechanism.loss.to_json()] for mechanism in mechanisms]


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value

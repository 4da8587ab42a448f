"""The life of a charge: reserved, looked, then committed; or reserved and voided."""

import os
import threading
from collections.abc import Callable
from typing import Literal

from cloister.privacy.errors import ChargeClosed, RowsWereRead
from cloister.privacy.ledger.entry import Entry

__all__ = ["Charge"]


class Charge:
    """A loss that is already counted. Only `void()` refunds it, and only before `look()`.

        charge = account.reserve(rho("0.1"), request)   # durable
        charge.look()                                   # rows may be read from here on
        ...
        charge.commit()                                 # the release exists

    A charge that is never finished, because of an error, a crash or a power failure, stays charged.

    Privacy: the loss is in the ledger before `look()` can be called, so no answer exists without a charge.
    """

    def __init__(self, entry: Entry, settle: Callable[[Entry, Literal["commit", "void"]], Entry]) -> None:
        self.entry = entry
        self._settle = settle
        self._state: Literal["reserved", "looked", "committed", "voided"] = "reserved"
        self._process = os.getpid()
        self._lock = threading.Lock()

    @property
    def state(self) -> str:
        """`reserved`, `looked`, `committed` or `voided`."""
        return self._state

    def look(self) -> None:
        """Mark that rows may be read; from now on the charge cannot be voided."""
        with self._lock:
            self._still_open()
            self._state = "looked"

    def commit(self) -> Entry:
        """Record that the charge led to a release."""
        with self._lock:
            self._still_open()
            entry = self._settle(self.entry, "commit")
            self._state = "committed"
            return entry

    def void(self) -> Entry:
        """Refund the loss: nothing was read."""
        with self._lock:
            self._still_open()
            if self._state == "looked":
                raise RowsWereRead(f"charge {self.entry.number} cannot be voided: rows may have been read. It stands.")
            # Closed first: if the store fails halfway, rows can no longer be read without a charge.
            self._state = "voided"
            return self._settle(self.entry, "void")

    def _still_open(self) -> None:
        if os.getpid() != self._process:
            # A forked copy cannot know whether the original has looked or voided.
            raise ChargeClosed(
                f"charge {self.entry.number} belongs to the process that reserved it. Reserve again here."
            )
        if self._state in ("committed", "voided"):
            raise ChargeClosed(f"charge {self.entry.number} was already {self._state}. Reserve again for another look.")

    def __repr__(self) -> str:
        losses = "; ".join(f"{line.account}: {line.loss}" for line in self.entry.lines)
        return f"<Charge {self.entry.number} {self._state} ({losses})>"

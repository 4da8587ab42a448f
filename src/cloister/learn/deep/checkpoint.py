"""Checkpoints: a run that was killed goes on without paying again and without using noise twice.

    run ──► every minute: write FILE.next ──► note its number in the ledger ──► rename to FILE
    again, same arguments ──► read FILE ──► is its number the newest noted? ──► note the next number ──► go on

A checkpoint holds the parameters, the optimiser's state, the step and the number of the charge: all of it made from
noisy sums that the charge paid for, so it is as private as the release. It holds no row, no lot, no gradient and no
randomness: later steps draw fresh samples and fresh noise.

Steps after an older checkpoint were released in a newer one. If a run went on from the older one too, two results of
the same steps would exist and only one was paid for. So every checkpoint has a number, the ledger knows the newest, and
an older one is refused; a run whose number was overtaken by another process stops. Whoever may read the rows could copy
files faster than that: a checkpoint protects against accidents, not against the curator.
"""

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import numpy as np

from cloister.learn.deep.dpsgd import TrainState
from cloister.privacy.errors import BadInput, ChargeClosed
from cloister.privacy.ledger import Account, Charge, Ledger
from cloister.privacy.signing import fingerprint

__all__ = ["CheckpointFile", "CheckpointWriter"]

_FORM = "cloister-training/1"


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """What a checkpoint says.

    Attributes:
        number: grows with every checkpoint of a run.
        charge: the charge's entry in the ledger.
        accounts: names and analysts of the accounts that paid.
        request: the hash of the request.
        owner: the ledger's public key.
        step, lot, clip: as in `TrainState`.
        leaves: the arrays of parameters, optimiser's state and average.
    """

    number: int
    charge: int
    accounts: tuple[tuple[str, str | None], ...]
    request: str
    owner: str
    step: int
    lot: float
    clip: float
    leaves: tuple[Any, ...] = field(repr=False)

    @classmethod
    def find(cls, path: Path) -> "list[CheckpointFile]":
        """Return the checkpoint at a path and the next one, if it was written but not yet renamed."""
        files = [cls._read(path)] if path.exists() else []
        if _next(path).exists():
            with suppress(BadInput):  # cut off while it was written: not noted, so the other one is the newest
                files.append(cls._read(_next(path)))
        return files

    @classmethod
    def _read(cls, path: Path) -> "CheckpointFile":
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                head = json.loads(str(file["head"]))
                leaves = tuple(file[f"leaf{i}"] for i in range(int(head.pop("leaves"))))
            if head.pop("form") != _FORM:
                raise ValueError
            head.pop("about")
            head["accounts"] = tuple((name, analyst) for name, analyst in head["accounts"])
            return cls(**head, leaves=leaves)
        except (OSError, ValueError, KeyError, TypeError, EOFError, RecursionError, BadZipFile):
            raise BadInput(
                "the checkpoint file is none of this version, or was cut off. Remove it to train anew, which is "
                "charged again."
            ) from None

    def write(self, path: Path, about: str) -> None:
        """Write the file durably."""
        head = {
            "form": _FORM,
            "about": about,
            **{name: getattr(self, name) for name in ("number", "charge", "accounts", "request", "owner")},
            **{name: getattr(self, name) for name in ("step", "lot", "clip")},
            "leaves": len(self.leaves),
        }
        arrays: Any = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(self.leaves)}
        with path.open("wb") as file:
            np.savez(file, head=np.array(json.dumps(head)), **arrays)
            file.flush()
            os.fsync(file.fileno())

    def state(self, start: TrainState) -> TrainState:
        """Return the state of the run; `start` gives the form of its trees."""
        tree = (start.params, start.optimizer, start.average)
        leaves, structure = jax.tree.flatten(tree)
        shapes = [(np.shape(leaf), np.asarray(leaf).dtype) for leaf in leaves]
        if shapes != [(leaf.shape, leaf.dtype) for leaf in self.leaves]:
            raise BadInput("the checkpoint belongs to other params or another optimiser. Use those it began with.")
        params, optimizer, average = jax.tree.unflatten(structure, list(self.leaves))
        return TrainState(self.step, params, optimizer, average, self.clip, self.lot)


@dataclass(slots=True)
class CheckpointWriter:
    """Writes checkpoints of one run, at most one in `seconds`.

    Attributes:
        path: the file.
        request: the text of the request.
        accounts: the accounts that paid.
        charge: the charge.
        number: that of the newest checkpoint.
    """

    path: Path
    request: str
    accounts: list[Account]
    charge: Charge
    about: str
    seconds: float
    number: int = 0
    _last: float = -1e9

    @classmethod
    def resume(
        cls, path: Path, request: str, book: Ledger, about: str, seconds: float
    ) -> "tuple[CheckpointWriter, CheckpointFile] | None":
        """Return the writer of a run that goes on, and its checkpoint; None if there is no file.

        Raises:
            BadInput: it is another run's.
            ChargeClosed: a newer checkpoint exists, so steps after this one were already released.
        """
        files = CheckpointFile.find(path)
        if not files:
            return None
        if any(file.request != fingerprint(request) or file.owner != str(book.key.public) for file in files):
            raise BadInput(
                "the checkpoint file belongs to another run: other arguments, or another ledger. Use the arguments it "
                "began with, or another file."
            )
        newest = book.noted(_subject(files[0].charge))
        valid = [file for file in files if file.number == newest]
        if not valid:
            raise ChargeClosed(
                "this checkpoint is an older copy: later steps of its run were released in a newer one. Use the newest "
                "file, or train anew."
            )
        file = valid[0]
        charge = book.reserved(file.charge, request)
        accounts = [book.account(name, analyst) for name, analyst in file.accounts]
        return cls(path, request, accounts, charge, about, seconds, file.number), file

    def keep(self, state: TrainState, *, last: bool = False, now: bool = False) -> None:
        """Write a checkpoint if it is time."""
        if not (last or now) and time.monotonic() - self._last < self.seconds:
            return
        book: Any = self.accounts[0].book
        subject = _subject(self.charge.entry.number)
        if book.noted(subject) != self.number:
            raise ChargeClosed("another process goes on with this run from its checkpoint. This one stops.")
        file = CheckpointFile(
            self.number + 1,
            self.charge.entry.number,
            tuple((account.rules.name, account.rules.analyst) for account in self.accounts),
            fingerprint(self.request),
            str(book.key.public),
            state.step,
            state.lot,
            state.clip,
            tuple(jax.tree.leaves((state.params, state.optimizer, state.average))),
        )
        file.write(_next(self.path), self.about)
        book.note(subject, self.number + 1)
        self.number += 1
        _next(self.path).replace(self.path)
        with suppress(OSError):  # some file systems cannot sync a folder
            folder = os.open(self.path.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        self._last = time.monotonic()


def _next(path: Path) -> Path:
    return path.with_name(path.name + ".next")


def _subject(charge: int) -> str:
    return f"training, charge {charge}"

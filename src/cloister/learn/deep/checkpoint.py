"""Checkpoints: a run that was killed goes on without paying again and without using noise twice.

    run ──► every minute: write FILE.next ──► note its number in the ledger ──► rename to FILE
    again, same arguments ──► read FILE ──► is its number the newest noted? ──► note the next number ──► go on

A checkpoint holds the parameters, the optimiser's state, the step and the number of the charge: all of it made from
noisy sums that the charge paid for, so it is as private as the release. It holds no row, no lot, no gradient and no
randomness: later steps draw fresh samples and fresh noise.

Steps after an older checkpoint were released in a newer one. If a run went on from the older one too, two results of
the same steps would exist and only one was paid for. So every checkpoint has a number, the ledger knows the newest, and
an older one is refused; a run whose number was overtaken by another process stops. A number is noted once, in one
transaction with the look at the newest, so that of two processes that begin at the same moment only one goes on.

A checkpoint belongs to one run: one plan, one unit, one form of rows, one version of the data, and the accounts that
paid. With any other it is refused, since another account's rows would be read under this one's charge. The ledger's key
signs the file: an edited step would repeat steps that were paid for once. Whoever holds the key and the rows could do
so all the same: a checkpoint does not protect against the curator.
"""

import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import numpy as np
from numpy.typing import NDArray

from cloister.learn.deep.dpsgd import TrainState
from cloister.privacy.errors import BadInput, ChargeClosed
from cloister.privacy.ledger import Account, Charge, Ledger
from cloister.privacy.signing import SigningKey, fingerprint

__all__ = ["CheckpointFile", "CheckpointWriter"]

_FORM = "cloister-training/2"


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """What a checkpoint says.

    Attributes:
        number: grows with every checkpoint of a run.
        charge: the charge's entry in the ledger.
        accounts: names and analysts of the accounts that paid.
        run: the hash of what makes it this run.
        owner: the ledger's public key.
        step, lot, clip: as in `TrainState`.
        leaves: the arrays of parameters, optimiser's state and average.
    """

    number: int
    charge: int
    accounts: tuple[tuple[str, str | None], ...]
    run: str
    owner: str
    step: int
    lot: float
    clip: float
    leaves: tuple[Any, ...] = field(repr=False)

    @classmethod
    def find(cls, path: Path, key: SigningKey) -> "list[CheckpointFile]":
        """Return the checkpoint at a path and the next one, if it was written but not yet renamed."""
        files = [cls._read(path, key)] if path.exists() else []
        if _next(path).exists():
            with suppress(BadInput):  # cut off while it was written: not noted, so the other one is the newest
                files.append(cls._read(_next(path), key))
        return files

    @classmethod
    def _read(cls, path: Path, key: SigningKey) -> "CheckpointFile":
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                text, signature = str(file["head"]), str(file["signature"])
                head = json.loads(text)
                leaves = tuple(file[f"leaf{i}"] for i in range(int(head.pop("leaves"))))
            if head.pop("form") != _FORM:
                raise ValueError
            head.pop("about")
            head["accounts"] = tuple((name, analyst) for name, analyst in head["accounts"])
            found = cls(**head, leaves=leaves)
        except (OSError, ValueError, KeyError, TypeError, EOFError, RecursionError, BadZipFile):
            raise BadInput(
                "the checkpoint file is none of this version, or was cut off. Remove it to train anew, which is "
                "charged again."
            ) from None
        if found.owner == str(key.public) and not key.public.verify(_message(text, leaves), signature):
            raise BadInput(
                "the checkpoint file was changed after it was written: its signature does not fit. Use an unchanged "
                "copy, or remove it to train anew, which is charged again."
            )
        return found

    def write(self, path: Path, about: str, key: SigningKey) -> None:
        """Write the file durably, signed."""
        head = {
            "form": _FORM,
            "about": about,
            **{name: getattr(self, name) for name in ("number", "charge", "accounts", "run", "owner")},
            **{name: getattr(self, name) for name in ("step", "lot", "clip")},
            "leaves": len(self.leaves),
        }
        leaves, text = [np.asarray(leaf) for leaf in self.leaves], json.dumps(head)
        arrays: Any = {f"leaf{i}": leaf for i, leaf in enumerate(leaves)}
        with path.open("wb") as file:
            np.savez(file, head=np.array(text), signature=np.array(key.sign(_message(text, leaves))), **arrays)
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
        run: what makes it this run, as text.
        accounts: the accounts that paid.
        charge: the charge.
        number: that of the newest checkpoint.
    """

    path: Path
    run: str
    accounts: list[Account]
    charge: Charge
    about: str
    seconds: float
    number: int = 0
    _last: float = -1e9

    @classmethod
    def resume(
        cls, path: Path, request: str, run: str, book: Ledger, about: str, seconds: float
    ) -> "tuple[CheckpointWriter, CheckpointFile] | None":
        """Return the writer of a run that goes on, and its checkpoint; None if there is no file.

        Args:
            path: the file.
            request: the text of the request, as it was charged.
            run: what makes it this run: the request, the unit, the form and version of the data, and who pays.
            book: the ledger.
            about: a sentence for the file.
            seconds: between two checkpoints, at least.

        Raises:
            BadInput: it is another run's.
            ChargeClosed: a newer checkpoint exists, so steps after this one were already released.
        """
        files = CheckpointFile.find(path, book.key)
        if not files:
            return None
        if any(file.run != fingerprint(run) or file.owner != str(book.key.public) for file in files):
            raise BadInput(
                "the checkpoint file belongs to another run: other arguments, other rows or units, or another account "
                "or ledger. Use the arguments it began with, or another file."
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
        return cls(path, run, accounts, charge, about, seconds, file.number), file

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
            fingerprint(self.run),
            str(book.key.public),
            state.step,
            state.lot,
            state.clip,
            tuple(jax.tree.leaves((state.params, state.optimizer, state.average))),
        )
        # Processes that write at the same moment may spoil the file; all but one of them stop at the note.
        file.write(_next(self.path), self.about, book.key)
        book.note(subject, self.number + 1, once=True)
        self.number += 1
        _next(self.path).replace(self.path)
        with suppress(OSError):  # some file systems cannot sync a folder
            folder = os.open(self.path.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        self._last = time.monotonic()


def _next(path: Path) -> Path:
    return path.with_name(path.name + ".next")


def _message(head: str, leaves: Sequence[NDArray[Any]]) -> bytes:
    """Return what is signed of a file: its form, and a hash of its head and its arrays."""
    whole = hashlib.sha256(json.dumps([head, *(f"{leaf.dtype.str} {leaf.shape}" for leaf in leaves)]).encode())
    for leaf in leaves:
        whole.update(leaf.tobytes())
    return f"{_FORM} {whole.hexdigest()}".encode()


def _subject(charge: int) -> str:
    return f"training, charge {charge}"

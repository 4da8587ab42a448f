"""A respondent's memory: earlier answers, their cost, and a lifetime cap.

    answer ──► asked before? ──yes──► the kept report again, or a fresh one of it: nothing is charged
                    │ no
                    └──► within the cap? charge, on disk ──► make the permanent report, keep it ──► send

Everything is on the respondent's own device, in one JSON file that only the respondent can read. The file holds the
answers, to detect a changed answer. Access to the file reveals more than any report.
"""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from cloister.local.base.oracle import Oracle, Reports, epsilon, read_loss
from cloister.local.mechanisms.memoised import Memoised
from cloister.local.survey.envelope import check_question
from cloister.privacy.errors import (
    AccountMismatch,
    BadInput,
    CloisterError,
    LedgerBroken,
    NotPrivate,
    OverBudget,
    StoreFailed,
)
from cloister.privacy.loss import Loss
from cloister.privacy.noise.source import SYSTEM, Source
from cloister.privacy.number import rational, show

__all__ = ["Wallet"]

_VERSION = 1
# A lock on a file beside the wallet excludes other processes; this one excludes threads of the same process.
_THREADS = threading.RLock()


@dataclass(frozen=True, slots=True)
class Wallet:
    """A person's lifetime cap over all collectors, and the reports given.

    Built with `Wallet.open`. A question is identified by its id: the same id means the same fact about the person.

    Privacy: for answers that do not change, all reports ever made through this wallet are together
        `cap`-locally private, against an observer of all of them: the losses of first answers add up as exact
        rationals, are written to disk before a report is made, and repeating an answer is post-processing. A crash
        between charge and report leaves the charge standing. Tested in tests/unit/local/test_memory.py.
    """

    path: Path
    cap: Loss

    @classmethod
    def open(cls, path: Path | str, cap: Loss | None = None) -> Self:
        """Open a wallet, or create one.

        Args:
            path: the JSON file.
            cap: required for a new wallet; for an existing one omitted, or equal to its cap.
        """
        file = Path(path).resolve()  # one path per wallet, or its lock and its replacement would miss it
        if not file.exists():
            if cap is None:
                raise BadInput("a new wallet needs a cap. Write Wallet.open(path, epsilon(4)).")
            read_loss(cap, "a wallet")
            with _locked(file):
                if not file.exists():
                    _write(file, {"version": _VERSION, "cap": str(cap.amount), "charges": [], "memos": {}})
        stored_cap = epsilon(_read(file)["cap"])
        if cap is not None and cap != stored_cap:
            raise AccountMismatch(
                f"this wallet's cap is {stored_cap}, not {cap}. A cap is for life: open it without one."
            )
        return cls(file, stored_cap)

    @property
    def spent(self) -> Fraction:
        """The epsilon charged so far."""
        return _spent(_read(self.path))

    @property
    def left(self) -> Fraction:
        """The epsilon that is left."""
        return self.cap.amount - self.spent

    def answer(self, question: str, mechanism: Oracle, value: Any, source: Source | None = None) -> Reports:
        """Return one report, new or repeated.

        Args:
            question: its id, the same every time it is asked; as in an envelope.
            mechanism: a `Memoised` one perturbs its permanent report afresh, any other repeats it unchanged.
            value: the answer.
            source: the source of random bits; default the operating system's.

        Privacy: the first time it charges the mechanism's loss (for a `Memoised` one the lifetime loss); the same
            answer again charges nothing. Another answer or mechanism is refused: see `answer_anew`. Refused beyond
            the cap.
        """
        return self._answer(question, mechanism, value, source, anew=False)

    def answer_anew(self, question: str, mechanism: Oracle, value: Any, source: Source | None = None) -> Reports:
        """Return one report on an answer that may have changed, or by another mechanism.

        Privacy: an answer not given before charges its loss again. This does not hide that an answer changed: a
            collector who sees different permanent reports knows it (Erlingsson et al. 2014, section 3). The summed
            losses bound what is learnt about each answer, for people whose answers changed at the same times.
        """
        return self._answer(question, mechanism, value, source, anew=True)

    def _answer(self, question: str, mechanism: Oracle, value: Any, source: Source | None, *, anew: bool) -> Reports:
        check_question(question)  # before any charge: an envelope with another id is refused
        facts, json_value = mechanism.describe(), _told(mechanism, value)
        drawn_from = source or SYSTEM
        with _locked(self.path):
            state = _read(self.path)
            memos: list[dict[str, Any]] = state["memos"].setdefault(question, [])
            memo = next(
                (entry for entry in memos if entry["mechanism"] == facts and entry["value"] == json_value), None
            )
            if memo is None:
                if memos and not anew:
                    raise NotPrivate(
                        f"{question!r:.60} was answered before with another answer or in another way. A second answer "
                        "costs again and shows that something changed. If you want that, call answer_anew()."
                    )
                permanent = mechanism.permanent if isinstance(mechanism, Memoised) else mechanism
                self._charge(state, question, permanent.loss)
                report = permanent.perturb(value, drawn_from)
                encoded = permanent.encode(report)[0].tobytes().hex()
                memo = {"mechanism": facts, "value": json_value, "report": encoded, "private": report.private}
                memos.append(memo)
                _write(self.path, state)
        return _sent(self.path, mechanism, memo, drawn_from)

    def _charge(self, state: dict[str, Any], question: str, loss: Loss) -> None:
        """Write the charge to disk before anything is drawn."""
        cap = rational(state["cap"])
        price, left = read_loss(loss, "a wallet"), cap - _spent(state)
        if price > left:
            raise OverBudget(
                f"{question!r:.60} needs epsilon {show(price)}, {show(left)} is left of {show(cap)}. "
                "Answer at a smaller epsilon, or not at all."
            )
        state["charges"].append({"question": question, "epsilon": str(price)})
        _write(self.path, state)


def _told(mechanism: Oracle, value: Any) -> Any:
    """Return one person's answer as JSON has it, checked."""
    from cloister.local.base.perturb import checked

    rows = checked(mechanism, value)
    if len(rows) != 1:
        raise BadInput("a wallet is one person's: give one answer.")
    return rows[0].tolist()


def _sent(path: Path, mechanism: Oracle, memo: dict[str, Any], source: Source) -> Reports:
    """Return the report to send: the kept one, or a fresh perturbation of it."""
    permanent = mechanism.permanent if isinstance(mechanism, Memoised) else mechanism
    kept, _ = permanent.decode([bytes.fromhex(memo["report"])])
    if not len(kept):
        raise _damaged(path)
    if not isinstance(mechanism, Memoised):
        return Reports(mechanism, kept.data, memo["private"])
    from cloister.local.mechanisms.memoised import again

    return Reports(mechanism, again(mechanism, kept.data, source), memo["private"] and source.private)


# The file.


def _spent(state: dict[str, Any]) -> Fraction:
    return sum((rational(charge["epsilon"]) for charge in state["charges"]), start=Fraction(0))


def _read(path: Path) -> dict[str, Any]:
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        if state["version"] != _VERSION or not isinstance(state["memos"], dict):
            raise ValueError
        if not isinstance(state["charges"], list) or not all(
            isinstance(memos, list) and all(map(_is_memo, memos)) for memos in state["memos"].values()
        ):
            raise ValueError
        if any(rational(charge["epsilon"]) <= 0 for charge in state["charges"]):
            raise ValueError
        if _spent(state) > rational(state["cap"]):
            raise ValueError
    except FileNotFoundError:
        raise StoreFailed(f"{path} is gone. A wallet that is lost is spent: what was told stays told.") from None
    except (OSError, ValueError, TypeError, KeyError, RecursionError, CloisterError):
        # Starting again at zero would understate the loss already incurred.
        raise _damaged(path) from None
    return dict(state)


def _is_memo(memo: Any) -> bool:
    """Return True if it has the fields of a kept report, or raise if that is no bytes."""
    if not isinstance(memo, dict) or not {"mechanism", "value", "report"} <= set(memo):
        return False
    bytes.fromhex(memo["report"])
    return isinstance(memo.get("private"), bool)


def _damaged(path: Path) -> LedgerBroken:
    return LedgerBroken(f"{path} is no wallet of version {_VERSION}, or was changed. Restore it.")


def _write(path: Path, state: dict[str, Any]) -> None:
    """Write atomically, and to disk before returning."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with suppress(FileNotFoundError):
            fresh.unlink()
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as problem:
        raise StoreFailed(f"the wallet could not be written ({problem.strerror}). No report was made.") from None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the wallet: one change at a time, on one device."""
    import fcntl

    with _THREADS:
        try:
            lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as problem:
            raise StoreFailed(f"the wallet could not be locked ({problem.strerror}). No report was made.") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

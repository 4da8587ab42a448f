"""Plans, jobs and results that a hub returns to its client."""

import base64
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from cloister.client.transport import error_of
from cloister.client.wire import PlanSummary, answer_from_json, check_label
from cloister.privacy.errors import BadForm, CloisterError, ReceiptRejected
from cloister.privacy.loss import Loss
from cloister.privacy.receipt import Receipt
from cloister.query.answer import Answer

if TYPE_CHECKING:
    from cloister.client.client import Client
    from cloister.synth.output.shared_table import HandedTable

__all__ = ["Finished", "RemoteJob", "RemotePlan", "Waiting", "of_form"]

_POLL_S = 20.0  # the hub answers at once when a job ends; this is the longest single request
_TOLD_S = 1.0
_UNDER_WAY = ("waiting", "queued", "running", "charged")
_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class RemotePlan(PlanSummary):
    """A plan from a hub. Print it; then `dataset.run(plan)`."""

    kind: str = "query"
    form: Mapping[str, Any] = field(default_factory=dict)
    purpose: str = ""

    def __str__(self) -> str:
        return PlanSummary.__str__(self)


class Waiting(CloisterError):
    """The job is not done yet: it waits for an approval or in the queue, or is still running.

    Attributes:
        job: the job; call `job.answer(wait_s=60)` later. Its `id` finds it again from another program.
    """

    def __init__(self, message: str, job: "RemoteJob") -> None:
        super().__init__(message)
        self.job = job


@dataclass(frozen=True, slots=True)
class Finished:
    """Result of a job of any kind.

    Attributes:
        kind: kind of job.
        result: its result.
        loss: its cost; None if nothing.
        receipts: the signed receipts.
    """

    kind: str
    result: Mapping[str, Any]
    loss: Loss | None
    receipts: tuple[Receipt, ...] = ()


class RemoteJob:
    """A job on the hub.

    With a pinned key its result is checked against the hub's signed label: the job's number, numbers, cost, receipts,
    and, if it was submitted by this object, dataset and question.
    """

    def __init__(
        self, client: "Client", number: int, record: Mapping[str, Any], dataset: str = "", question: str = ""
    ) -> None:
        self.client = client
        self._dataset, self._question = dataset, question
        self.id = number
        self.record = record

    @property
    def state(self) -> str:
        """Last known state: waiting, queued, running, charged, done, refused, failed, cancelled or interrupted."""
        return str(self.record.get("state", ""))

    def answer(self, *, wait_s: float = 60) -> Answer:
        """Wait for the answer of a query.

        Raises:
            Waiting: it is not ready in time, or needs an approval first.
        """
        done = self.finished(wait_s=wait_s)
        parsed = answer_from_json(done.result.get("answer", done.result))
        if parsed.receipt is not None:
            _fits(self.client.checked(parsed.receipt), parsed)
        elif parsed.loss.amount:
            raise ReceiptRejected("the answer states a cost and has no receipt for it. Ask for the job again.")
        return parsed

    def finished(self, *, wait_s: float = 60, progress: Callable[[float, str], None] | None = None) -> Finished:
        """Wait for the result of the job.

        Args:
            wait_s: how long to wait.
            progress: called with a share from 0 to 1 and a word, about every second while the hub is working.
        """
        self._wait(wait_s, progress)
        if self.state == "done":
            return self._finished()
        if self.state in _UNDER_WAY:
            raise Waiting(self._what_next(), self)
        problem = str(self.record.get("problem") or f"the job is {self.state}.")
        code = re.match(r"(CLO-\d+): ", problem)
        raise error_of(code[1] if code else "", problem.removeprefix(code[0] if code else ""), "")

    def model(self, *, wait_s: float = 600) -> Any:
        """Wait for the trained model: a fitted estimator, including `release_` and receipt.

        The file is checked against the pinned key, or without one against the key that the hub names, before anything
        in it is parsed. Needs scikit-learn.
        """
        done = self.finished(wait_s=wait_s)
        named = done.result.get("key")
        if not isinstance(named, str) or "model" not in done.result:
            raise BadForm(f"job {self.id} left no model.")
        from cloister import learn

        assert callable(learn.load)  # the import reports which package is missing, if one is
        from cloister.learn.persistence import unpack

        # From the result, whose label the hub has signed: the file of another job would be genuine, too.
        content = base64.b64decode(of_form(done.result["model"], str))
        fitted = unpack(content, self.client.owner_key or named, f"job {self.id}")
        if not done.receipts or fitted.release_.receipt.text() != done.receipts[0].text():
            raise ReceiptRejected("the model is genuine, but of another job.")
        return fitted

    def synthetic(self, *, wait_s: float = 600, progress: Callable[[float, str], None] | None = None) -> "HandedTable":
        """Wait for the synthetic table: rows with their metadata file.

        Both are checked against the pinned key, or without one against the key that the hub names.

        Args:
            wait_s: how long to wait.
            progress: called with a share from 0 to 1 and a word, about every second while the hub is working.
        """
        done = self.finished(wait_s=wait_s, progress=progress)
        named, side = done.result.get("key"), done.result.get("side")
        if not isinstance(named, str) or not isinstance(side, dict):
            raise BadForm(f"job {self.id} left no table.")
        from cloister.synth.output.shared_table import parse_table

        table = parse_table(self.client.transport.raw("GET", f"/api/jobs/{self.id}/table"), json.dumps(side).encode())
        table.verify(self.client.owner_key or named, rows=True)
        if not done.receipts or table.receipt is None or table.receipt.text() != done.receipts[0].text():
            raise ReceiptRejected("the table is genuine, but of another job.")
        return table

    def refresh(self) -> str:
        """Query its state now."""
        self.record = self.client.get(f"/api/jobs/{self.id}")
        return self.state

    def cancel(self) -> str:
        """Cancel it, if it is not done. Charges stand."""
        self.client.post(f"/api/jobs/{self.id}/cancel", {})
        return self.refresh()

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Return its signed receipts, one for each charge, checked against the pinned key if there is one."""
        raw = self.client.transport.raw("GET", f"/api/jobs/{self.id}/receipt")
        receipts = tuple(self.client.checked(Receipt.parse(line)) for line in raw.splitlines())
        if self.client.owner_key is not None and receipts != self._finished().receipts:
            raise ReceiptRejected("the receipts are genuine, but of another job. Ask for the job again.")
        return receipts

    @property
    def receipt(self) -> Receipt:
        """Return the first of them; nearly always the only one."""
        return self.receipts[0]

    def _wait(self, wait_s: float, progress: Callable[[float, str], None] | None = None) -> None:
        until = time.monotonic() + wait_s
        longest = _POLL_S if progress is None else _TOLD_S
        while self.state in _UNDER_WAY[1:] or not self.state:
            left = until - time.monotonic()
            if left <= 0:
                return
            self.record = self.client.get(f"/api/jobs/{self.id}?wait={max(0.0, min(left, longest)):.1f}")
            if progress is not None:
                progress(float(self.record.get("progress") or 0.0), str(self.record.get("stage") or self.state))

    def _finished(self) -> Finished:
        if self.record.get("result") is None:  # lists of jobs leave results out
            self.refresh()
        loss = None if self.record.get("loss") is None else Loss.from_json(self.record["loss"])
        receipts = tuple(self.client.checked(Receipt.parse(text)) for text in self.record.get("receipts", ()))
        result = dict(self.record.get("result") or {})
        if self.client.owner_key is not None:
            texts = [receipt.text() for receipt in receipts]
            check_label(result, loss, texts, self.client.owner_key, self.id, self._dataset, self._question)
            if loss is not None and loss.amount and not receipts:
                raise ReceiptRejected("the result states a cost and has no receipt for it. Ask for the job again.")
        return Finished(str(self.record.get("kind", "")), result, loss, receipts)

    def _what_next(self) -> str:
        page = f"{self.client.transport.address}/jobs/{self.id}"
        if self.state == "waiting":
            return (
                f"job {self.id} costs more than the policy lets pass by itself and waits for an approval. "
                f"Its owner sees it at {page}; then call job.answer()."
            )
        return f"job {self.id} is {self.state}. Call job.answer(wait_s=...) later, or look at {page}."

    def __repr__(self) -> str:
        return f"<RemoteJob {self.id} {self.state}>"


def _fits(receipt: Receipt, answer: Answer) -> None:
    """Refuse a genuine receipt that belongs to another answer."""
    stated = {"unit": str(answer.unit), "mechanism": answer.mechanism, "private": answer.private}
    if any(receipt.body[name] != value for name, value in stated.items()):
        raise ReceiptRejected("the receipt is genuine, but of another answer.")


def of_form(found: Any, kind: type[_Kind]) -> _Kind:
    """Return what the hub sent, if it is of that kind."""
    if not isinstance(found, kind):
        raise BadForm("the hub's answer is of another form. Check the hub's address and version.")
    return found

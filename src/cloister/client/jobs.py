"""Plans, jobs and results that a hub returns to its client."""

import base64
import csv
import hashlib
import io
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cloister.client.transport import error_of
from cloister.client.wire import PlanSummary, PredictionLabel, answer_from_json, check_label, costs
from cloister.privacy.errors import BadForm, CloisterError, ReceiptRejected
from cloister.privacy.loss import Loss
from cloister.privacy.receipt import Receipt
from cloister.query.answer import Answer

if TYPE_CHECKING:
    import pyarrow as pa

    from cloister.client.client import Client
    from cloister.synth.output.shared_table import HandedTable

__all__ = ["AnonymisedRows", "Finished", "RemoteJob", "RemotePlan", "Waiting", "of_form"]

_POLL_S = 20.0  # the hub answers at once when a job ends; this is the longest single request
_TOLD_S = 1.0
_PEOPLE = ("waiting", "checking")  # states that a person ends, so nobody waits for them here
_UNDER_WAY = ("queued", "running", "charged")
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
        kind: kind of job, as it was submitted; as the hub says, unsigned, of a job that is found by its number.
        result: its result.
        loss: its cost; None if nothing.
        receipts: the signed receipts.
    """

    kind: str
    result: Mapping[str, Any]
    loss: Loss | None
    receipts: tuple[Receipt, ...] = ()


@dataclass(frozen=True, slots=True)
class AnonymisedRows:
    """Anonymised table from a hub. Not differentially private.

    Attributes:
        rows: the released rows.
        label: the models that it satisfies, such as `k=5, l=3 (disease): not differentially private`.
        side: its facts: columns by role, method, utility, SHA-256 of the file.
        risk: the attacks that were tried on it, one line each.
    """

    rows: "pa.Table" = field(repr=False)
    label: str
    side: Mapping[str, Any] = field(repr=False)
    risk: tuple[Mapping[str, str], ...] = field(repr=False)

    def to_pandas(self) -> Any:
        """Return the rows as a pandas frame."""
        return self.rows.to_pandas()


class RemoteJob:
    """A job on the hub.

    With a pinned key its result is checked against the hub's signed label: the job's number, numbers, cost, receipts,
    and, if it was submitted by this object, dataset and question.
    """

    def __init__(
        self,
        client: "Client",
        number: int,
        record: Mapping[str, Any],
        dataset: str = "",
        kind: str = "",
        question: str = "",
    ) -> None:
        self.client = client
        self._dataset, self._kind, self._question = dataset, kind, question
        self.id = number
        self.record = record

    @property
    def state(self) -> str:
        """Last known state: waiting, queued, running, charged or checking; done, refused, failed or cancelled."""
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
        elif costs(parsed.loss):
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
        if self.state in (*_PEOPLE, *_UNDER_WAY):
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

    def predict(self, rows: Any, *, show: str = "") -> list[Any]:
        """Return the answers of the model to public rows, computed on the hub: nothing else is installed.

        The job is one that trained the model, or `dataset.ask_model(number)`.

        Args:
            rows: a dict from column to values, CSV text, the path of a CSV file, or a frame of pandas or polars.
            show: "label", "top 3", "rounded 2" or "full"; unless given labels, or numbers as far as the policy shows
                them.

        Returns:
            One answer for each row: a class, classes in order, probabilities or a number.

        Raises:
            ReceiptRejected: the hub has not signed them as the answers to these rows, and its key is pinned.
        """
        body = {"rows": _as_csv(rows), "show": show}
        told = self.client.post(f"/api/jobs/{self.id}/predictions", body)
        policy, classes = of_form(told.get("policy"), str), of_form(told.get("classes"), list)
        answers = of_form(told.get("answers"), list)
        if self.client.owner_key is not None:
            label = PredictionLabel(self.id, body["rows"], show, (policy, classes, answers))
            label.check(self.client.owner_key, told.get("signature"))
        return answers

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

    def anonymised(
        self, *, wait_s: float = 600, progress: Callable[[float, str], None] | None = None
    ) -> AnonymisedRows:
        """Wait for the anonymised table, once enough people have looked at it.

        Args:
            wait_s: how long to wait for the hub. It does not wait for people.
            progress: called with a share from 0 to 1 and a word, about every second while the hub is working.

        Raises:
            Waiting: people still look at it.
        """
        done = self.finished(wait_s=wait_s, progress=progress)
        side, content = done.result.get("side"), done.result.get("file")
        if not isinstance(side, dict) or not isinstance(content, str) or "protected" not in done.result:
            raise BadForm(f"job {self.id} left no anonymised table.")
        import pyarrow as pa
        import pyarrow.parquet as pq

        # From the result, whose label the hub has signed: the file of another job would be genuine, too.
        raw = base64.b64decode(content)
        if hashlib.sha256(raw).hexdigest() != side.get("sha256"):
            raise ReceiptRejected("the file is not the one that its facts name. Ask for the job again.")
        try:
            rows = pq.read_table(io.BytesIO(raw))
        except pa.ArrowInvalid:
            raise BadForm("the hub's table cannot be read. Check the hub's version.") from None
        risk = tuple(of_form(line, dict) for line in of_form(done.result.get("risk"), list))
        return AnonymisedRows(rows, of_form(done.result["protected"], str), side, risk)

    def wait(self, wait_s: float = 60) -> str:
        """Wait until the hub has run it, or a person must decide; return its state."""
        self._wait(wait_s)
        return self.state

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
        while self.state in _UNDER_WAY or not self.state:
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
            if costs(loss) and not receipts:
                raise ReceiptRejected("the result states a cost and has no receipt for it. Ask for the job again.")
        return Finished(self._kind or str(self.record.get("kind", "")), result, loss, receipts)

    def _what_next(self) -> str:
        page = f"{self.client.transport.address}/jobs/{self.id}"
        if self.state == "waiting":
            return (
                f"job {self.id} costs more than the policy lets pass by itself and waits for an approval. "
                f"Its owner sees it at {page}; then call job.answer()."
            )
        if self.state == "checking":
            return (
                f"job {self.id} has run, and people look at its output before you get it. Call job.anonymised() later, "
                f"or look at {page}."
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


def _as_csv(rows: Any) -> str:
    """Return rows as CSV text."""
    if isinstance(rows, str):
        return rows
    if isinstance(rows, Path):
        try:
            return rows.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError):
            raise BadForm(
                "the file of rows cannot be read as text in UTF-8. Check its path, and save it as CSV."
            ) from None
    if hasattr(rows, "to_csv"):  # pandas
        return str(rows.to_csv(index=False))
    if hasattr(rows, "write_csv"):  # polars
        return str(rows.write_csv())
    if not isinstance(rows, Mapping) or len({len(column) for column in rows.values()}) != 1:
        raise BadForm("rows are a dict of columns of one length, CSV text, the path of a CSV file, or a frame.")
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(rows)
    writer.writerows(zip(*rows.values(), strict=True))
    return text.getvalue()

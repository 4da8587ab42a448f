"""Wire format of losses, plans and answers between a hub and its clients, and the label that the hub signs.

JSON with lossless round trips; needs none of the server's packages. An answer's table is sent as an Arrow stream in
base64, so that types, NULLs and every bit of a number are preserved.
"""

import base64
import binascii
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import pyarrow as pa

from cloister.privacy.errors import BadForm, BadInput, CloisterError, ReceiptRejected
from cloister.privacy.loss import Loss, Relation, Unit
from cloister.privacy.receipt import Receipt
from cloister.privacy.signing import PublicKey, canonical, fingerprint
from cloister.query.answer import Answer

__all__ = [
    "LABEL_FORM",
    "LABEL_PURPOSE",
    "PlanSummary",
    "PredictionLabel",
    "answer_from_json",
    "answer_to_json",
    "check_label",
    "costs",
    "handed_request",
    "loss_to_text",
    "parse_loss",
    "plan_from_json",
    "plan_to_json",
    "question_digest",
    "receipts_digest",
    "result_bytes",
    "result_digest",
    "table_from_text",
    "table_to_text",
]

_FORM = "cloister-answer/1"


# Losses


def loss_to_text(loss: Loss) -> str:
    """Format a loss so that `parse_loss` reads it back exactly.

    >>> from cloister.privacy.loss import epsilon
    >>> loss_to_text(epsilon("0.5", delta="1e-8"))
    'epsilon 0.5 delta 1e-8'
    """
    text = f"{loss.measure} {_number(loss.amount)}"
    if loss.delta:
        text += f" delta {_number(loss.delta)}"
    return text if loss.relation is Relation.ADD_REMOVE else f"{text} {loss.relation}"


def costs(loss: Loss | None) -> bool:
    """Return True if a loss is more than nothing: an amount, or a delta alone."""
    return loss is not None and bool(loss.amount or loss.delta)


def parse_loss(text: str) -> Loss:
    """Parse a loss as a form states it; see `Loss.parse`."""
    return Loss.parse(text)


def _number(value: Fraction) -> str:
    """Return the shortest exact form: a decimal, a power of ten, or a fraction."""
    bottom, places = value.denominator, 0
    while bottom % 10 == 0:
        bottom, places = bottom // 10, places + 1
    for factor in (2, 5):
        while bottom % factor == 0:
            bottom, places = bottom // factor, places + 1
    if bottom != 1:
        return str(value)
    digits = str(value.numerator * 10**places // value.denominator)
    stripped = digits.rstrip("0") or "0"
    shift = len(digits) - len(stripped) - places
    if shift >= 0:
        return digits[: len(digits) - places] if places else digits
    if len(stripped) + 3 < -shift:  # 1e-8 reads better than 0.00000001
        return f"{stripped}e{shift}"
    padded = stripped.rjust(1 - shift, "0")
    return f"{padded[:shift]}.{padded[shift:]}"


# Plans


class Planlike(Protocol):
    """Attributes of a job before it runs: those of a `PlanSummary`."""

    @property
    def loss(self) -> Loss | None: ...
    @property
    def lines(self) -> Sequence[str]: ...
    @property
    def errors(self) -> Sequence[tuple[str, str]]: ...
    @property
    def statements(self) -> Sequence[str]: ...
    @property
    def notes(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """Cost and expected error of a job, as reported by the hub. The plan itself costs nothing.

    Attributes:
        loss: its cost; None if nothing.
        lines: the plan as text.
        errors: each answer, with its expected error.
        statements: the SQL that the engine will run.
        notes: caveats.
        blocked: why it cannot run now, such as a limit that it would exceed; empty if it can.
    """

    loss: Loss | None
    lines: tuple[str, ...] = ()
    errors: tuple[tuple[str, str], ...] = ()
    statements: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    blocked: str = ""

    def __str__(self) -> str:
        cost = "nothing: it is in the record" if self.loss is None or not self.loss.amount else str(self.loss)
        parts = list(self.lines) or [f"cost       {cost}"]
        if self.errors and not self.lines:
            parts += ["", "expected error of one answer", *(f"  {text:<40} {error}" for text, error in self.errors)]
        notes = (f"note: {note}" for note in self.notes if note not in self.lines and note != self.blocked)
        return "\n".join([*([f"This cannot run now: {self.blocked}"] if self.blocked else []), *parts, *notes])


def plan_to_json(plan: Planlike) -> dict[str, Any]:
    """Encode a plan for the wire."""
    return {
        "loss": None if plan.loss is None else plan.loss.to_json(),
        "lines": list(plan.lines),
        "errors": [list(pair) for pair in plan.errors],
        "statements": list(plan.statements),
        "notes": list(plan.notes),
    }


def plan_from_json(record: Mapping[str, Any]) -> PlanSummary:
    """Decode a plan. Unknown fields are ignored."""
    try:
        return PlanSummary(
            None if record.get("loss") is None else Loss.from_json(record["loss"]),
            _texts(record.get("lines", [])),
            tuple((str(text), str(error)) for text, error in record.get("errors", [])),
            _texts(record.get("statements", [])),
            _texts(record.get("notes", [])),
            str(record.get("blocked", "")),
        )
    except (TypeError, ValueError, AttributeError):
        raise BadForm("this is not a plan as a hub sends it. Check the hub's address and version.") from None


# Answers


def answer_to_json(answer: Answer) -> dict[str, Any]:
    """Encode an answer for the wire: everything but the code that computes margins, which intervals replace."""
    return {
        "form": _FORM,
        "table": table_to_text(answer.value),
        "loss": answer.loss.to_json(),
        "unit": {"name": answer.unit.name, "max_rows": answer.unit.max_rows},
        "mechanism": answer.mechanism,
        "parameters": dict(answer.parameters),
        "standard_error": answer.standard_error,
        "private": answer.private,
        "receipt": None if answer.receipt is None else answer.receipt.text(),
        "columns": list(answer.columns),
        "confidence": answer.confidence,
        "notes": list(answer.notes),
        "whole": list(answer.whole),
    }


def answer_from_json(record: Mapping[str, Any]) -> Answer:
    """Decode an answer: equal to the one sent, including its receipt.

    Raises:
        BadForm: not an answer.
        ReceiptRejected: its receipt was changed in transit.
    """
    if not isinstance(record, Mapping) or record.get("form") != _FORM:
        raise BadForm(f"only answers of the form {_FORM} are known to this version. Check the hub's version.")
    try:
        return Answer(
            value=table_from_text(record["table"]),
            loss=Loss.from_json(record["loss"]),
            unit=Unit(record["unit"]["name"], record["unit"]["max_rows"]),
            mechanism=str(record["mechanism"]),
            parameters={str(name): str(value) for name, value in record["parameters"].items()},
            standard_error=record["standard_error"],
            private=record["private"] is True,
            receipt=None if record["receipt"] is None else Receipt.parse(record["receipt"]),
            columns=_texts(record["columns"]),
            confidence=float(record["confidence"]),
            notes=_texts(record["notes"]),
            whole=_texts(record["whole"]),
        )
    except CloisterError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadForm("this is not an answer as a hub sends it. Check the hub's address and version.") from None


def table_to_text(table: pa.Table) -> str:
    """Encode an Arrow table as base64 of an Arrow stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue()).decode("ascii")


def table_from_text(text: str) -> pa.Table:
    """Decode the table."""
    try:
        with pa.ipc.open_stream(base64.b64decode(text, validate=True)) as reader:
            return reader.read_all()
    except (binascii.Error, pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, TypeError, ValueError):
        raise BadForm("this is not a table as a hub sends it. Check the hub's address and version.") from None


def _texts(raw: Any) -> tuple[str, ...]:
    if not isinstance(raw, list | tuple) or not all(isinstance(text, str) for text in raw):
        raise TypeError("a list of texts")
    return tuple(raw)


# Label of a result: the hub's signature over its bytes, its dataset, the question, the cost, and the receipts.
#
# The hub makes it (`cloister.hub.policy.signature`). A client with a pinned key checks it, so that nobody between the
# two can return other numbers, or a genuine result of another question.

LABEL_FORM = "cloister-label/4"
LABEL_PURPOSE = b"cloister label\n"  # a signature on one kind of text must not be valid for another


def result_bytes(result: Mapping[str, Any]) -> bytes:
    """Return the bytes for which a result's label is signed: the result as JSON, without the label."""
    plain = {name: value for name, value in result.items() if name != "label"}
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def result_digest(result: bytes) -> str:
    """Return the digest of these bytes, as the label states it."""
    return fingerprint(result.decode("latin-1"))


def question_digest(dataset: str, kind: str, form: Mapping[str, Any], purpose: str) -> str:
    """Return the digest of a request for a job, as it was sent: the client and the hub compute the same."""
    request = {"dataset": dataset, "kind": kind, "form": dict(form), "purpose": purpose}
    return fingerprint(json.dumps(request, sort_keys=True, separators=(",", ":")))


def handed_request(number: int, digest: str, part: str = "") -> str:
    """Return the request in the receipt of a table that its owner handed in: it names the job and the file."""
    return f"job {number}\nhand in{part} {digest} made outside this hub"


def receipts_digest(receipts: Sequence[str]) -> str:
    """Return the digest of a result's receipts, each a line of text."""
    return fingerprint("\n".join(receipts))


def check_label(
    result: Mapping[str, Any],
    loss: Loss | None,
    receipts: Sequence[str],
    key: PublicKey,
    job: int,
    dataset: str = "",
    question: str = "",
) -> None:
    """Raise unless the hub has signed this result as that of this job and question, at this cost, with these receipts.

    Args:
        result: the result, with its label.
        loss: its cost, as the hub stated it.
        receipts: the texts of its receipts.
        key: the pinned public key of the hub.
        job: the number of the job.
        dataset: the dataset that was asked about; empty if it is not known here.
        question: the digest of the request; empty if it is not known here.

    Raises:
        ReceiptRejected: there is no label, it was changed, or it belongs to something else.
    """
    try:
        record = json.loads(result.get("label") or "")
        body, signature = record["label"], record["signature"]
        genuine = isinstance(signature, str) and key.verify(LABEL_PURPOSE + canonical(body), signature)
        fields = ("form", "job", "result", "dataset", "question", "receipts", "loss")
        form, number, signed, about, digest, paid_by, cost = (body[field] for field in fields)
        paid = Loss.from_json(cost)
    except (ValueError, TypeError, KeyError, RecursionError, BadInput):
        raise ReceiptRejected(
            "the result carries no label that states what was asked: it was made by an older version of the hub. Ask "
            "again, which costs nothing; if that does not help, ask the hub's operator to update it."
        ) from None
    if not genuine or form != LABEL_FORM:
        raise ReceiptRejected("the label of the result was changed, or another hub made it. Check the key you pinned.")
    if signed != result_digest(result_bytes(result)):
        raise ReceiptRejected("the hub has not signed these numbers. Do not use them. Ask for the job again.")
    if number != job:
        raise ReceiptRejected("the result is genuine, but of another job. Ask again over a trusted network.")
    if (dataset and about != dataset) or (question and digest != question):
        raise ReceiptRejected("the result is genuine, but of another question. Ask again over a trusted network.")
    if (loss.to_json() if costs(loss) and loss is not None else None) != (paid.to_json() if costs(paid) else None):
        raise ReceiptRejected("the result is genuine, but its cost is not the stated one. Ask again.")
    if paid_by != receipts_digest(receipts):
        raise ReceiptRejected("the result is genuine, but its receipts are of another job. Ask for the job again.")


# Answers of a model, which no job keeps: signed by themselves, for the rows that were sent


_PREDICTIONS = b"cloister predictions\n"


@dataclass(frozen=True, slots=True)
class PredictionLabel:
    """Statement that a model gave these answers to these rows. The hub signs it, and a client with a pinned key checks.

    Attributes:
        job: the number of the job in the request.
        rows: the rows as they were sent.
        show: what was asked to be shown; empty for the usual.
        told: what is shown, the classes, and the answers.
    """

    job: int
    rows: str
    show: str
    told: tuple[str, Sequence[Any], Sequence[Any]]

    def statement(self) -> bytes:
        """Return the bytes that are signed."""
        answers = json.dumps(self.told, separators=(",", ":"))
        facts = {"form": "cloister-predictions/1", "job": self.job, "show": self.show}
        return _PREDICTIONS + canonical({**facts, "rows": fingerprint(self.rows), "answers": fingerprint(answers)})

    def check(self, key: PublicKey, signature: Any) -> None:
        """Raise unless the hub has signed it.

        Raises:
            ReceiptRejected: it has not.
        """
        if not isinstance(signature, str) or not key.verify(self.statement(), signature):
            raise ReceiptRejected(
                "the hub has not signed these answers to these rows. Do not use them. Ask again over a trusted network."
            )

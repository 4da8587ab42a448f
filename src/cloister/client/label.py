"""Label of a result: the hub's signature over its bytes, its dataset, the question, the cost, and the receipts.

The hub makes it (`cloister.hub.policy.signature`). A client with a pinned key checks it, so that nobody between the two
can return other numbers, or a genuine result of another question.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cloister.privacy.errors import BadInput, ReceiptRejected
from cloister.privacy.loss import Loss
from cloister.privacy.signing import PublicKey, canonical, fingerprint

__all__ = [
    "FORM",
    "PURPOSE",
    "check_label",
    "handed_request",
    "question_digest",
    "receipts_digest",
    "result_bytes",
    "result_digest",
]

FORM = "cloister-label/3"
PURPOSE = b"cloister label\n"  # a signature on one kind of text must not be valid for another


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
    dataset: str = "",
    question: str = "",
) -> None:
    """Raise unless the hub has signed this result as the answer to this question, at this cost, with these receipts.

    Args:
        result: the result, with its label.
        loss: its cost, as the hub stated it.
        receipts: the texts of its receipts.
        key: the pinned public key of the hub.
        dataset: the dataset that was asked about; empty if it is not known here.
        question: the digest of the request; empty if it is not known here.

    Raises:
        ReceiptRejected: there is no label, it was changed, or it belongs to something else.
    """
    try:
        record = json.loads(result.get("label") or "")
        body, signature = record["label"], record["signature"]
        genuine = isinstance(signature, str) and key.verify(PURPOSE + canonical(body), signature)
        fields = ("form", "result", "dataset", "question", "receipts", "loss")
        form, signed, about, digest, paid_by, cost = (body[field] for field in fields)
        paid = Loss.from_json(cost)
    except (ValueError, TypeError, KeyError, RecursionError, BadInput):
        raise ReceiptRejected(
            "the result carries no label that states what was asked: it was made by an older version of the hub. Ask "
            "again, which costs nothing; if that does not help, ask the hub's operator to update it."
        ) from None
    if not genuine or form != FORM:
        raise ReceiptRejected("the label of the result was changed, or another hub made it. Check the key you pinned.")
    if signed != result_digest(result_bytes(result)):
        raise ReceiptRejected("the hub has not signed these numbers. Do not use them. Ask for the job again.")
    if (dataset and about != dataset) or (question and digest != question):
        raise ReceiptRejected("the result is genuine, but of another question. Ask again over a trusted network.")
    if (loss.to_json() if loss is not None and loss.amount else None) != (paid.to_json() if paid.amount else None):
        raise ReceiptRejected("the result is genuine, but its cost is not the stated one. Ask again.")
    if paid_by != receipts_digest(receipts):
        raise ReceiptRejected("the result is genuine, but its receipts are of another job. Ask for the job again.")

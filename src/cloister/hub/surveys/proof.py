"""Signed receipts of a survey: for a respondent, of their reports; for a reader, of an analysis."""

import json
from datetime import UTC, datetime
from typing import Any

from cloister.privacy.errors import BadInput, ReceiptRejected
from cloister.privacy.signing import PublicKey, SigningKey, canonical

__all__ = ["ANALYSIS", "TAKEN", "issue", "verify"]

TAKEN = "cloister-survey-taken/1"
ANALYSIS = "cloister-survey-analysis/1"
_PURPOSE = b"cloister survey\n"  # a signature of one kind is never valid for another


def issue(form: str, facts: dict[str, Any], key: SigningKey) -> dict[str, Any]:
    """Sign facts; the form and the day are added. Not the time, which could identify a respondent."""
    body = {**facts, "form": form, "day": datetime.now(UTC).date().isoformat()}
    return {"receipt": body, "signature": key.sign(_PURPOSE + canonical(body))}


def verify(text: str | bytes, key: PublicKey | str) -> dict[str, Any]:
    """Return the facts of a receipt, if the holder of this key signed exactly them.

    Raises:
        ReceiptRejected: anything else.
    """
    owner = PublicKey.parse(key) if isinstance(key, str) else key
    try:
        record = json.loads(text)
        body, signature = record["receipt"], record["signature"]
        valid = isinstance(body, dict) and body["form"] in (TAKEN, ANALYSIS) and isinstance(signature, str)
    except (ValueError, TypeError, KeyError, RecursionError):
        valid = False
    if not valid:
        raise ReceiptRejected("this is no receipt of a survey. Ask for the file as it was issued.")
    try:
        signed = _PURPOSE + canonical(body)
    except BadInput:  # a number or a text that no receipt of ours holds
        signed = b""
    if not owner.verify(signed, signature):
        raise ReceiptRejected("the signature does not fit: the receipt was changed, or another key signed it.")
    return dict(body)

"""Signatures on policies, and the signed label of every result derived from the data.

A policy is signed together with its dataset's name and its number, so that no other text, and no older one, can replace
it. A label is signed together with its result: it states under which policy the result was made, for which purposes it
may be used, where it may be kept and until when. An import checks the label first; a result without a label, or with a
changed one, is refused.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from cloister.client.wire import LABEL_FORM, LABEL_PURPOSE, receipts_digest, result_digest
from cloister.hub.policy.policy import Policy
from cloister.hub.policy.purposes import covered_by
from cloister.privacy.errors import BadInput, BadPolicy, UploadRefused
from cloister.privacy.loss import Loss
from cloister.privacy.signing import PublicKey, SigningKey, canonical, fingerprint

__all__ = ["Label", "digest", "import_check", "label", "sign", "verify"]

# Signatures of different kinds of text must never be exchangeable.
_POLICY = b"cloister policy\n"
_FIRST_FIELDS = {"form", "dataset", "policy", "hash", "purposes", "residency", "made", "keep_until", "result"}
_SECOND_FIELDS = _FIRST_FIELDS | {"question", "loss"}
_FIELDS = {  # of each form: older labels are still read where terms of use are checked
    "cloister-label/1": _FIRST_FIELDS,
    "cloister-label/2": _SECOND_FIELDS,
    "cloister-label/3": _SECOND_FIELDS | {"receipts"},
    LABEL_FORM: _SECOND_FIELDS | {"receipts", "job"},
}


def sign(key: SigningKey, dataset: str, number: int, text: str) -> str:
    """Sign a policy's text as version `number` of a dataset's policy."""
    return key.sign(_POLICY + _signed(dataset, number, text))


def digest(key: SigningKey, dataset: str, number: int, text: str) -> str:
    """Return a digest of a policy's text that nobody without the key can compute.

    A policy holds hidden names and rules: a plain digest of it would let anybody try guesses. The signature, which only
    the hub and the policy's owner know, is hashed with it.
    """
    return fingerprint(f"{sign(key, dataset, number, text)}\n{text}")


def verify(key: PublicKey, dataset: str, number: int, text: str, signature: str) -> None:
    """Raise unless the text is what was signed as this version of this dataset's policy.

    Raises:
        BadPolicy: it is not.
    """
    if not key.verify(_POLICY + _signed(dataset, number, text), signature):
        raise BadPolicy(
            f"policy {number} of {dataset} is not what was published: its signature does not fit. "
            "Nothing is allowed until its owner publishes it again."
        )


@dataclass(frozen=True, slots=True)
class Label:
    """Label of a result. Made by `label`, read by `Label.parse`."""

    body: dict[str, Any]
    signature: str

    @classmethod
    def parse(cls, text: str | bytes | None) -> "Label":
        """Read a label; it must be byte for byte in canonical form.

        Raises:
            UploadRefused: there is none, or a part of it was cut off.
        """
        if not text:
            raise UploadRefused("this result comes without usage terms, so nobody knows what it may be used for.")
        try:
            raw = text.encode() if isinstance(text, str) else text
            record = json.loads(raw)
            terms = cls(record["label"], record["signature"])
            fields = _FIELDS.get(terms.body["form"], _FIELDS[LABEL_FORM])
            valid = terms.text().encode() == raw.rstrip(b"\n") and set(terms.body) == fields
        except (ValueError, TypeError, KeyError, RecursionError, BadInput):
            valid = False
        if not valid or not isinstance(terms.signature, str):
            raise UploadRefused("the usage terms are not whole. Ask for the result with the terms as they were made.")
        return terms

    def text(self) -> str:
        """Return one line of canonical JSON."""
        return canonical({"label": self.body, "signature": self.signature}).decode()


def label(
    key: SigningKey,
    policy: Policy,
    number: int,
    text: str,
    result: bytes,
    made: float,
    *,
    job: int,
    purposes: Sequence[str] | None = None,
    question: str = "",
    loss: Loss | None = None,
    receipts: Sequence[str] = (),
) -> Label:
    """Make the label of a result under a policy.

    Args:
        key: the hub's key.
        policy: the policy under which it was made.
        number: the version of the policy.
        text: the text of the policy.
        result: the bytes that are released.
        made: the time in seconds since 1970.
        job: the number of the job.
        purposes: those of the role that allowed it; all of the policy's unless given.
        question: the digest of the request (`client.label.question_digest`), by which a client knows its answer.
        loss: its cost.
        receipts: the texts of its receipts.
    """
    day = datetime.fromtimestamp(made, UTC).date()
    body = {
        "form": LABEL_FORM,
        "job": job,
        "dataset": policy.dataset,
        "policy": number,
        "hash": digest(key, policy.dataset, number, text),
        "purposes": list(policy.purposes if purposes is None else purposes),
        "residency": list(policy.residency),
        "made": day.isoformat(),
        "keep_until": "" if policy.retention_days is None else _later(day, policy.retention_days),
        "result": result_digest(result),
        "question": question,
        "loss": (loss if loss is not None else Loss.nothing("rho")).to_json(),
        "receipts": receipts_digest(receipts),
    }
    return Label(body, key.sign(LABEL_PURPOSE + canonical(body)))


def import_check(
    text: str | bytes | None, result: bytes, key: PublicKey, *, country: str, purpose: str, time: float
) -> Label:
    """Raise unless a result from elsewhere may be used here, for this purpose, today.

    Args:
        text: the label that came with it.
        result: its bytes.
        key: the public key of the hub that made it, from a trusted source.
        country: the country in which it would be stored, as two letters.
        purpose: the purpose of its use.
        time: the current time in seconds since 1970.

    Raises:
        UploadRefused: there is no label, it was changed or belongs to something else, or it forbids this.
    """
    terms = Label.parse(text)
    body = terms.body
    if body["form"] not in _FIELDS or not key.verify(LABEL_PURPOSE + canonical(body), terms.signature):
        raise UploadRefused("the usage terms were changed, or another hub made them. Check the key you pinned.")
    if body["result"] != result_digest(result):
        raise UploadRefused("the usage terms belong to another result. Ask for the two together.")
    if body["residency"] and country not in body["residency"]:
        places = ", ".join(body["residency"])
        raise UploadRefused(
            f"results from {body['dataset']} may be kept in {places}, not in {country or 'no country'}."
        )
    if covered_by(purpose, body["purposes"]) is None:
        raise UploadRefused(
            f"results from {body['dataset']} may be used for {', '.join(body['purposes'])}, not for {purpose!r:.60}."
        )
    if body["keep_until"] and datetime.fromtimestamp(time, UTC).date() > date.fromisoformat(body["keep_until"]):
        raise UploadRefused(f"this result was to be kept until {body['keep_until']}. Ask the question again.")
    return terms


def _signed(dataset: str, number: int, text: str) -> bytes:
    return canonical({"dataset": dataset, "number": number, "text": text})


def _later(day: date, days: int) -> str:
    try:
        return (day + timedelta(days=days)).isoformat()
    except OverflowError:
        return date.max.isoformat()

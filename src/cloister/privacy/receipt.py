"""Receipts: a signed proof of one release, for third parties.

A receipt is canonical JSON: one byte string for one content, so any change breaks the signature. It states the hash of
the request, the version of the data, the loss, the mechanism, and the position of the charge in the ledger; never a
row. It is checked offline against the owner's public key, which the reader must already have: a key inside a receipt
would prove nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cloister.privacy.errors import ReceiptRejected
from cloister.privacy.loss import Loss
from cloister.privacy.signing import PublicKey, SigningKey, canonical, fingerprint
from cloister.version import __version__

if TYPE_CHECKING:
    from cloister.privacy.ledger import Charge, Entry

__all__ = ["Receipt"]

FORM = "cloister-receipt/1"
# A signature on one kind of text must not be valid for another.
_PURPOSE = b"cloister receipt\n"
_FIELDS = {
    "form", "software", "time", "request", "data_version", "unit", "mechanism", "parameters", "loss", "answer",
    "private", "ledger", "accounts",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Receipt:
    """The facts of a release, and their signature.

    Attributes:
        body: the facts, all of them text, integers, booleans, lists or dictionaries.
        signature: the owner's signature of the canonical body.
    """

    body: dict[str, Any]
    signature: str

    @classmethod
    def issue(cls, facts: dict[str, Any], key: SigningKey) -> "Receipt":
        """Sign the facts of a release; form and time are added here."""
        body = {**facts, "form": FORM, "time": datetime.now(UTC).isoformat(timespec="seconds")}
        return cls(body, key.sign(_PURPOSE + canonical(body)))

    @classmethod
    def of_charge(
        cls,
        charge: "Charge",
        entry: "Entry",
        key: SigningKey,
        *,
        request: str,
        unit: object,
        parameters: Sequence[Mapping[str, str]],
        loss: Loss,
        answer: str,
        data_version: str = "",
        private: bool = True,
    ) -> "Receipt":
        """Sign the receipt of a committed charge.

        Args:
            charge: the charge, with its effect on each account.
            entry: its commit.
            key: the owner's key.
            request: the request, in words or SQL; only its hash is stated.
            unit: the unit of privacy.
            parameters: the public, exact parameters of each mechanism, with its name as `mechanism`.
            loss: the loss of the release.
            answer: the hash of what was released.
            data_version: the owner's name for the state of the data.
            private: False if noise or inputs were not private.
        """
        accounts = [
            {
                "account": line.account,
                "paid": line.loss.to_json(),
                "before": (line.spent - line.loss).to_json(),
                "after": line.spent.to_json(),
            }
            for line in charge.entry.lines
        ]
        facts = {
            "software": f"cloister {__version__}",
            "request": fingerprint(request),
            "data_version": data_version,
            "unit": str(unit),
            "mechanism": ", ".join(dict.fromkeys(mechanism["mechanism"] for mechanism in parameters)) or "none",
            "parameters": [dict(mechanism) for mechanism in parameters],
            "loss": loss.to_json(),
            "answer": answer,
            "private": private,
            "ledger": {"entry": charge.entry.number, "commit": entry.number, "head": str(entry.head)},
            "accounts": accounts,
        }
        return cls.issue(facts, key)

    @classmethod
    def parse(cls, text: str | bytes) -> "Receipt":
        """Read a receipt, which must be in canonical form, to the byte."""
        try:
            raw = text.encode() if isinstance(text, str) else text
            record = json.loads(raw)
            receipt = cls(record["receipt"], record["signature"])
            same = receipt.text().encode() == raw.rstrip(b"\n") and isinstance(receipt.body, dict)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ReceiptRejected("this is not a receipt. Ask for the file as it was issued.") from None
        if not same or set(receipt.body) != _FIELDS or not isinstance(receipt.signature, str):
            raise ReceiptRejected("the receipt is not in the form it was issued in. Ask for the file as it was issued.")
        return receipt

    def verify(self, owner_key: PublicKey | str) -> None:
        """Raise ReceiptRejected unless this receipt is what the holder of the owner's key signed.

        Args:
            owner_key: the owner's public key, from a place you trust. Nothing inside the receipt is trusted.
        """
        key = PublicKey.parse(owner_key) if isinstance(owner_key, str) else owner_key
        if self.body.get("form") != FORM:
            raise ReceiptRejected(f"only receipts of the form {FORM} are known to this version.")
        if not key.verify(_PURPOSE + canonical(self.body), self.signature):
            raise ReceiptRejected("the signature does not fit: the receipt was changed, or another key signed it.")

    def text(self) -> str:
        """Return one line of canonical JSON."""
        return canonical({"receipt": self.body, "signature": self.signature}).decode()

    def __str__(self) -> str:
        body = self.body
        lines = [
            ("asked", f"{body['request'][:16]}… (SHA-256)"),
            ("data", body["data_version"] or "no version given"),
            ("protects", f"{body['unit']}, {body['loss']['relation']} neighbours"),
            ("paid", Loss.from_json(body["loss"])),
            *(
                (f"{account['account']}", f"{_loss(account['before'])} → {_loss(account['after'])}")
                for account in body["accounts"]
            ),
            ("mechanism", body["mechanism"]),
            ("ledger", f"entries {body['ledger']['entry']} and {body['ledger']['commit']}"),
            ("time", body["time"]),
            ("software", body["software"]),
        ]
        if not body["private"]:
            lines.insert(0, ("WARNING", "not private: the noise came from a seeded source"))
        width = max(len(str(name)) for name, _ in lines)
        return "\n".join(f"{name:>{width}}  {value}" for name, value in lines)


def _loss(record: dict[str, str]) -> str:
    return str(Loss.from_json(record))

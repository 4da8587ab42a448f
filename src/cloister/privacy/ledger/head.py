"""The head: the signed number and hash of the newest entry. A stored head reveals an older copy of the ledger."""

from dataclasses import dataclass

from cloister.privacy.errors import HeadRejected
from cloister.privacy.signing import PublicKey

__all__ = ["Head", "statement"]


def statement(number: int, digest: str) -> bytes:
    """Return the bytes that the owner signs for an entry. A prefix separates them from other signed texts."""
    return f"cloister ledger entry {number} {digest}".encode("ascii", "backslashreplace")


@dataclass(frozen=True, slots=True)
class Head:
    """The newest entry of a ledger at one time. It prints as one line, `NUMBER:HASH:SIGNATURE`."""

    number: int
    hash: str
    signature: str

    @classmethod
    def parse(cls, text: str) -> "Head":
        """Return the head from its printed line, from a file or a receipt."""
        parts = text.strip().split(":")
        if (
            len(parts) != 3
            or not (parts[0].isascii() and parts[0].isdigit() and len(parts[0]) < 19)
            or len(parts[1]) != 64
        ):
            raise HeadRejected(
                f"a head is one line like NUMBER:HASH:SIGNATURE, got {text!r:.40}. Show it as it was printed."
            )
        return cls(int(parts[0]), parts[1], parts[2])

    def signed_by(self, key: PublicKey) -> bool:
        """Return True if the owner of the key signed this head."""
        return key.verify(statement(self.number, self.hash), self.signature)

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}:{self.signature}"

"""The head: number and hash of the newest entry, signed. Whoever kept one can tell a ledger from an older copy."""

from dataclasses import dataclass

from cloister.privacy.errors import HeadRejected
from cloister.privacy.signing import PublicKey

__all__ = ["Head", "statement"]


def statement(number: int, digest: str) -> bytes:
    """What the owner signs for an entry. The words keep it from being taken for a signature on anything else."""
    return f"cloister ledger entry {number} {digest}".encode("ascii", "backslashreplace")


@dataclass(frozen=True, slots=True)
class Head:
    """The newest entry of a ledger at some moment. It prints as one line, `NUMBER:HASH:SIGNATURE`."""

    number: int
    hash: str
    signature: str

    @classmethod
    def parse(cls, text: str) -> "Head":
        """The head that was printed, kept in a file or written in a receipt."""
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
        """Whether the owner of the key signed this head."""
        return key.verify(statement(self.number, self.hash), self.signature)

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}:{self.signature}"

"""Passwords: Argon2id, with a rule about length and none about characters.

A long password of plain words is better than a short one with a digit and a star in it (NIST SP 800-63B-4, 3.1.1.2).
Therefore only the length is checked, and that it is not the user's own name or address.
"""

import secrets
import threading
import unicodedata
from functools import cache

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError

from cloister.privacy.errors import BadForm

__all__ = ["LONGEST", "SHORTEST", "accept", "matches", "outdated", "seal"]

SHORTEST = 12
LONGEST = 200

# Above OWASP's floor (19 MiB, two passes): about a tenth of a second on one core.
_hasher = PasswordHasher(time_cost=2, memory_cost=46 * 1024, parallelism=1, type=Type.ID)
# A flood of sign-ins may cost time, but not memory: at most four times 46 MiB in one process.
_turns = threading.BoundedSemaphore(4)


def accept(password: str, *, email: str = "", name: str = "") -> None:
    """Check that a new password is acceptable.

    Raises:
        BadForm: too short, too long, or easily guessed from the account; the message never repeats it.
    """
    text = _plain(password)
    if not SHORTEST <= len(text) <= LONGEST:
        raise BadForm(f"password: give {SHORTEST} to {LONGEST} characters; several words in a row are good.")
    guesses = {email.casefold(), email.partition("@")[0].casefold(), name.casefold()} - {""}
    if text.casefold() in guesses or len(set(text)) < 4:
        raise BadForm("password: it is too easy to guess. Give several words that have nothing to do with you.")


def seal(password: str) -> str:
    """Return the hash to store, with its salt and parameters."""
    with _turns:
        return _hasher.hash(_plain(password))


def matches(kept: str | None, password: str) -> bool:
    """Return True if this is the password. Without a stored hash, return False after the same time.

    Args:
        kept: the user's hash; None or empty if there is no such user, or one without a password.
        password: the password as typed.
    """
    text = _plain(password)[: LONGEST + 1]  # longer ones never match; do not hash them
    with _turns:
        try:
            fits = _hasher.verify(kept or _nobodys(), text)
        except (VerificationError, InvalidHashError):
            return False
    return fits and bool(kept)


def outdated(kept: str) -> bool:
    """Return True if the hash was made with other parameters than the current ones."""
    return _hasher.check_needs_rehash(kept)


@cache
def _nobodys() -> str:
    # Hash of an unknown password: checking against it takes the same time.
    return _hasher.hash(secrets.token_urlsafe(32))


def _plain(password: str) -> str:
    # Normalise Unicode: an accent typed on another keyboard must still match.
    return unicodedata.normalize("NFKC", password).encode("utf-8", "replace").decode()

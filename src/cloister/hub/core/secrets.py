"""Long random words that open something, of which only a hash is kept."""

import hashlib
import secrets

__all__ = ["digest", "fresh"]


def fresh(prefix: str = "") -> str:
    """A new secret of 256 bits, in letters that fit into an address."""
    return prefix + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """What is kept of it. One round is enough: nobody can guess 256 bits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()

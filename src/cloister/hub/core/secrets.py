"""Long random secrets, of which only a hash is stored."""

import hashlib
import secrets

__all__ = ["digest", "fresh"]


def fresh(prefix: str = "") -> str:
    """Return a new secret of 256 bits, in characters that are valid in a URL."""
    return prefix + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """Return the digest that is stored. One round is enough for 256 random bits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()

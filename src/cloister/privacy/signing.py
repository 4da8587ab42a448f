"""Ed25519 signatures: the owner's private key signs ledgers and receipts; verifiers hold the public key.

What is signed is canonical JSON: one byte string for a record, so that all parties hash and sign the same bytes. Keys
are sorted, without spaces, in ASCII only. Numbers that are not whole are written as text ("1/10"), because a float has
no single spelling.
"""

import base64
import binascii
import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from cloister.privacy.errors import BadName, BadNumber, StoreFailed

__all__ = ["PublicKey", "SigningKey", "canonical", "fingerprint"]

_dump = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, check_circular=False).encode


def canonical(record: object) -> bytes:
    """Return the canonical bytes of a record.

    Args:
        record: text, whole numbers, booleans, None, and lists and dicts (with text keys) of these.

    >>> canonical({"b": [1, True, None], "a": "1/10"})
    b'{"a":"1/10","b":[1,true,null]}'
    """
    _check(record, 0)
    return _dump(record).encode("ascii")


def fingerprint(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal, as which a request appears in ledgers and receipts."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _check(value: object, depth: int) -> None:
    if value is None or isinstance(value, str | int):
        return
    if depth < 50:
        if isinstance(value, list):
            for item in value:
                _check(item, depth + 1)
            return
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            for item in value.values():
                _check(item, depth + 1)
            return
    raise BadNumber(
        "a signed record holds text, whole numbers, booleans, None, and shallow lists and dicts with text keys, "
        f"got a {type(value).__name__}. Write other numbers as text, such as '1/10'."
    )


_PREFIX = "ed25519:"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key, which checks signatures. It prints as one line, `ed25519:BASE64`, for verifiers to pin."""

    _key: Ed25519PublicKey

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """Return the key from its printed line."""
        try:
            prefix, raw = text.strip()[: len(_PREFIX)], text.strip()[len(_PREFIX) :]
            if prefix != _PREFIX:
                raise ValueError
            return cls(Ed25519PublicKey.from_public_bytes(base64.b64decode(raw, validate=True)))
        except (ValueError, binascii.Error):
            raise BadName(f"a public key is one line like {_PREFIX}BASE64, got {text!r:.40}.") from None

    @classmethod
    def load(cls, place: str | os.PathLike[str]) -> "PublicKey":
        """Return the key from a line of text, from a file that holds that line, or from a private key file."""
        if str(place).startswith(_PREFIX):
            return cls.parse(str(place))
        text = _read(place)
        return SigningKey.load(place).public if text.startswith("-----BEGIN") else cls.parse(text)

    def verify(self, message: bytes, signature: str) -> bool:
        """Return True if the owner signed exactly this message."""
        try:
            raw = base64.b64decode(signature, validate=True)
            self._key.verify(raw, message)
        except (InvalidSignature, ValueError, TypeError):
            return False
        # The last letter has four unused bits, so sixteen texts decode to one signature: accept only the canonical one.
        return base64.b64encode(raw).decode("ascii") == signature

    def __str__(self) -> str:
        return _PREFIX + base64.b64encode(self._key.public_bytes(Encoding.Raw, PublicFormat.Raw)).decode("ascii")


@dataclass(frozen=True, slots=True, repr=False)
class SigningKey:
    """The owner's private key. It never prints itself."""

    _key: Ed25519PrivateKey

    @classmethod
    def create(cls, path: str | os.PathLike[str] | None = None) -> "SigningKey":
        """Create a new key; with a path, store it in a file that only its owner can read (mode 0600)."""
        key = cls(Ed25519PrivateKey.generate())
        if path is not None:
            pem = key._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            try:
                # Never overwrite a key: the ledgers it signed could not be continued.
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(pem)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise StoreFailed(
                    f"no key was written to {os.fspath(path)} ({error.strerror}). Choose a new path."
                ) from None
        return key

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "SigningKey":
        """Return the key stored in a file."""
        text = _read(path)
        if stat.S_IMODE(Path(path).stat().st_mode) & 0o077:
            raise StoreFailed(
                f"the key in {os.fspath(path)} can be read by others. Run chmod 600 on it, or make a new key."
            )
        try:
            key = load_pem_private_key(text.encode(), password=None)
        except (ValueError, TypeError):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise BadName(f"{os.fspath(path)} does not hold an Ed25519 key. Make one with SigningKey.create(path).")
        return cls(key)

    @property
    def public(self) -> PublicKey:
        """Return the public key."""
        return PublicKey(self._key.public_key())

    def sign(self, message: bytes) -> str:
        """Return a signature of the message, in base64."""
        return base64.b64encode(self._key.sign(message)).decode("ascii")


def _read(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except UnicodeDecodeError:
        raise BadName(f"{os.fspath(path)} does not hold a key.") from None
    except OSError as error:
        raise StoreFailed(f"no key can be read from {os.fspath(path)} ({error.strerror}).") from None

"""Keys and secrets: one data key per dataset, wrapped by the master key, which is never stored in the database.

Sealed bytes are `version byte | nonce | AES-256-GCM ciphertext and tag`; the label is authenticated with them, so that
what was sealed for one thing cannot be passed off as another. Deleting a wrapped key makes everything sealed with it
unreadable, including every copy of the files: that is how a dataset is shredded.

Of the secret of a session, a token or a link only a hash is stored.
"""

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from cloister.privacy.errors import BadName, NotHere, SealBroken, StoreFailed

if TYPE_CHECKING:
    from cloister.hub.core.models import Dataset
    from cloister.hub.core.settings import Settings

__all__ = ["MasterKey", "OVERHEAD", "digest", "fresh", "seal", "subkey", "unseal"]

_FORM = b"\x01"
_NONCE = 12
OVERHEAD = len(_FORM) + _NONCE + 16  # overhead of sealing in bytes


def seal(key: bytes, data: bytes, label: str) -> bytes:
    """Encrypt and authenticate bytes under a label."""
    nonce = os.urandom(_NONCE)
    return _FORM + nonce + AESGCM(key).encrypt(nonce, data, label.encode())


def unseal(key: bytes, data: bytes, label: str) -> bytes:
    """Return the bytes that were sealed with this key under this label.

    Raises:
        SealBroken: they were changed, truncated, or sealed with another key or label.
    """
    nonce, rest = data[len(_FORM) : len(_FORM) + _NONCE], data[len(_FORM) + _NONCE :]
    try:
        if data[: len(_FORM)] != _FORM or len(data) < OVERHEAD:
            raise InvalidTag
        return AESGCM(key).decrypt(nonce, rest, label.encode())
    except InvalidTag:
        raise SealBroken("something that was sealed was changed, or was sealed with another key.") from None


def subkey(key: bytes, label: str) -> bytes:
    """Derive a key for one purpose: no two files are encrypted with the same one."""
    return HKDF(SHA256(), 32, salt=None, info=f"cloister {label}".encode()).derive(key)


def fresh(prefix: str = "") -> str:
    """Return a new secret of 256 bits, in characters that are valid in a URL."""
    return prefix + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """Return the digest of such a secret, which is stored. One round is enough for 256 random bits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class MasterKey:
    """The key that wraps all others. It never prints itself."""

    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise BadName("a master key has 64 hexadecimal digits. Make one with `cloister hub init`.")
        self._key = key

    @classmethod
    def load(cls, settings: "Settings") -> "MasterKey":
        """Load the key from the environment (CLOISTER_MASTER_KEY), or from the file that the settings name."""
        if settings.master_key:
            return cls(_from_hex(settings.master_key))
        path = Path(settings.master_key_file or settings.folder / "master.key")
        try:
            text = path.read_text(encoding="ascii")
            mode = stat.S_IMODE(path.stat().st_mode)
        except (OSError, UnicodeDecodeError):
            raise StoreFailed(f"no master key can be read from {path}. Restore it: without it nothing opens.") from None
        if mode & 0o077:
            raise StoreFailed(f"the master key in {path} can be read by others. Run chmod 600 on it.")
        return cls(_from_hex(text))

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> "MasterKey":
        """Create a key in a file that only its owner can read (mode 0600); never overwrite an existing one."""
        key = os.urandom(32)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(key.hex() + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreFailed(
                f"no key was written to {os.fspath(path)} ({error.strerror}). Choose a new path."
            ) from None
        return cls(key)

    def seal(self, data: bytes, label: str) -> bytes:
        """Seal a small secret, such as that of a second factor."""
        return seal(self._key, data, label)

    def open(self, data: bytes, label: str) -> bytes:
        """Open what was sealed under this label."""
        return unseal(self._key, data, label)

    def subkey(self, label: str) -> bytes:
        """Return a key for one purpose."""
        return subkey(self._key, label)

    def mac(self, data: bytes, label: str) -> str:
        """Return a digest that only this key can make: nobody else can try guesses of the data against it."""
        return hmac.new(subkey(self._key, label), data, hashlib.sha256).hexdigest()

    def new_data_key(self, name: str) -> bytes:
        """Create a data key for the dataset of this name, wrapped."""
        return self.seal(os.urandom(32), _label(name))

    def data_key(self, dataset: "Dataset") -> bytes:
        """Unwrap the data key of a dataset.

        Raises:
            NotHere: the dataset was shredded.
        """
        if dataset.wrapped_key is None:
            raise NotHere(f"the dataset {dataset.name} was deleted; its key no longer exists.")
        return self.open(dataset.wrapped_key, _label(dataset.name))

    def __repr__(self) -> str:
        return "<MasterKey>"


def _label(name: str) -> str:
    return f"data key of {name}"


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text.strip())
    except ValueError:
        raise BadName("a master key has 64 hexadecimal digits. Make one with `cloister hub init`.") from None

"""Keys and secrets: one data key per dataset, wrapped by the master key, which is never stored in the database.

Sealed bytes are `version byte | nonce | AES-256-GCM ciphertext and tag`; the label is authenticated with them, so that
what was sealed for one thing cannot be passed off as another.

    data key ── sealed under a key derived from ──┬─ the master key
       in the database, as `wrapped_key`          └─ 32 random bytes in a file of its own: <folder>/keys/<id>

Erasing that file makes everything sealed with the data key unreadable, including every copy of the tables: that is how
a dataset is shredded. A database keeps what was deleted in its files, its log and its backups for long; the wrapped
key there opens nothing by itself. Data keys of earlier versions are sealed under the master key alone.

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

__all__ = ["MasterKey", "OVERHEAD", "digest", "fresh", "mac", "part_of", "seal", "subkey", "unseal"]

_FORM = b"\x01"
_IN_PARTS = b"\x02"  # of a wrapped key that needs a file besides the master key: the file's id follows
_ID = 16
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


def mac(key: bytes, data: bytes, label: str) -> str:
    """Return a digest that only this key can make: nobody else can try guesses of the data against it."""
    return hmac.new(subkey(key, label), data, hashlib.sha256).hexdigest()


def fresh(prefix: str = "") -> str:
    """Return a new secret of 256 bits, in characters that are valid in a URL."""
    return prefix + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """Return the digest of such a secret, which is stored. One round is enough for 256 random bits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class MasterKey:
    """The key that wraps all others. It never prints itself.

    Args:
        key: its 32 bytes.
        parts: the folder of the files that data keys need besides it.
    """

    def __init__(self, key: bytes, parts: Path | None = None) -> None:
        if len(key) != 32:
            raise BadName("a master key has 64 hexadecimal digits. Make one with `cloister hub init`.")
        self._key, self._parts = key, parts

    @classmethod
    def load(cls, settings: "Settings") -> "MasterKey":
        """Load the key from the environment (CLOISTER_MASTER_KEY), or from the file that the settings name."""
        parts = settings.folder / "keys"
        if settings.master_key:
            return cls(_from_hex(settings.master_key), parts)
        path = Path(settings.master_key_file or settings.folder / "master.key")
        try:
            text = path.read_text(encoding="ascii")
            mode = stat.S_IMODE(path.stat().st_mode)
        except (OSError, UnicodeDecodeError):
            raise StoreFailed(f"no master key can be read from {path}. Restore it: without it nothing opens.") from None
        if mode & 0o077:
            raise StoreFailed(f"the master key in {path} can be read by others. Run chmod 600 on it.")
        return cls(_from_hex(text), parts)

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
        """Return a digest that only this key can make. See `mac`."""
        return mac(self._key, data, label)

    def new_data_key(self, name: str) -> bytes:
        """Create a data key for the dataset of this name, wrapped; its other part is written to a file of its own."""
        if self._parts is None:
            raise BadName("a master key without a folder makes no data keys. Load it with the hub's settings.")
        number, part = os.urandom(_ID), os.urandom(32)
        try:
            self._parts.mkdir(mode=0o700, exist_ok=True)
            _write(self._parts / number.hex(), part)
        except OSError as error:
            raise StoreFailed(f"no key was written ({error.strerror}). Free space in the hub's folder.") from None
        return _IN_PARTS + number + seal(self._wrapping(part), os.urandom(32), _label(name))

    def data_key(self, dataset: "Dataset") -> bytes:
        """Unwrap the data key of a dataset.

        Raises:
            NotHere: the dataset was shredded.
        """
        if dataset.wrapped_key is None:
            raise NotHere(f"the dataset {dataset.name} was deleted; its key no longer exists.")
        wrapped = dataset.wrapped_key
        number = part_of(wrapped)
        if number is None:
            return self.open(wrapped, _label(dataset.name))
        try:
            part = (self._parts or Path()).joinpath(number).read_bytes()
        except FileNotFoundError:
            raise NotHere(f"a part of the key of the dataset {dataset.name} was erased, or was not restored.") from None
        except OSError as error:
            raise StoreFailed(f"a part of the key of {dataset.name} cannot be read ({error.strerror}).") from None
        return unseal(self._wrapping(part), wrapped[len(_IN_PARTS) + _ID :], _label(dataset.name))

    def erase_part(self, number: str) -> None:
        """Overwrite and remove the file that a wrapped key needs. What was sealed with that key is lost for good."""
        path = (self._parts or Path()) / number
        try:
            with path.open("r+b") as file:
                file.write(os.urandom(32))
                file.flush()
                os.fsync(file.fileno())
            path.unlink()
        except FileNotFoundError:
            return
        _settle(path.parent)

    def _wrapping(self, part: bytes) -> bytes:
        return HKDF(SHA256(), 32, salt=part, info=b"cloister wrapping of a data key").derive(self._key)

    def __repr__(self) -> str:
        return "<MasterKey>"


def part_of(wrapped: bytes | None) -> str | None:
    """Return the name of the file that a wrapped key needs; None for one of an earlier version, which needs none."""
    if wrapped is None or wrapped[: len(_IN_PARTS)] != _IN_PARTS:
        return None
    return wrapped[len(_IN_PARTS) : len(_IN_PARTS) + _ID].hex()


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    _settle(path.parent)


def _settle(folder: Path) -> None:
    """Make changes of a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _label(name: str) -> str:
    return f"data key of {name}"


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text.strip())
    except ValueError:
        raise BadName("a master key has 64 hexadecimal digits. Make one with `cloister hub init`.") from None

"""Files with one secret key and its public id, which its owner alone can read (mode 0600).

    cloister key 1
    id 2026
    5f0c...                             # at least 64 hexadecimal digits

A file of hexadecimal digits only is read, too: it states no id.
"""

import os
import stat
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cloister.privacy.errors import BadName
from cloister.vault.secret import Secret

__all__ = ["KeyFile", "StoredSecret"]

_HEAD = "cloister key 1"
_LEAST = 32  # bytes of a key
_MOST = 8192  # bytes of a file


@dataclass(frozen=True, slots=True)
class KeyFile(Secret):
    """Content of a key file. It is not pickled and not copied.

    Attributes:
        key_id: the public name of the key; empty in a file that states none.
        secret: the key; never printed.
    """

    key_id: str
    secret: bytes = field(repr=False)

    def write(self, path: str | Path) -> None:
        """Write a new file; one that exists is never replaced, since its pseudonyms could not be made again.

        Raises:
            BadName: there is a file already, it cannot be written, or it could not be read again.
        """
        text = f"{_HEAD}\nid {self.key_id}\n{self.secret.hex()}\n"
        if not (self.key_id.isascii() and self.key_id.isprintable()):
            raise BadName("the id of a key is one line of ASCII letters, digits and signs. Give another id.")
        if len(self.secret) < _LEAST or len(text) > _MOST:
            raise BadName(f"a key has at least {_LEAST} bytes, and its file at most {_MOST}. Make another key.")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as failure:
            raise BadName(f"the key file cannot be created: {failure.strerror}. Give a path without a file.") from None
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as failure:
            # Half a key is no key, and would stand in the way of the next attempt.
            with suppress(OSError):
                Path(path).unlink()
            raise BadName(f"the key file cannot be written: {failure.strerror}. Nothing was kept.") from None

    @staticmethod
    def read(path: str | Path) -> "KeyFile":
        """Read a key file.

        Raises:
            BadName: the file is missing, readable by others, or holds no key.
        """
        try:
            with Path(path).open("rb") as file:
                mode, content = os.fstat(file.fileno()).st_mode, file.read(_MOST)
        except OSError as failure:
            raise BadName(f"the key file cannot be read: {failure.strerror}.") from None
        if stat.S_IMODE(mode) & 0o077:
            raise BadName(f"others can read the key file {path}. Run `chmod 600` on it, and consider a new key.")
        lines = content.decode("ascii", "replace").split("\n")
        key_id = ""
        if lines[0] == _HEAD and len(lines) > 2 and lines[1].startswith("id "):
            key_id, lines = lines[1].removeprefix("id "), lines[2:]
        try:
            secret = bytes.fromhex("".join(lines).strip())
        except ValueError:
            secret = b""
        if len(secret) < _LEAST:
            raise BadName("the key file does not hold at least 64 hexadecimal digits.")
        return KeyFile(key_id, secret)


class StoredSecret(Secret, ABC):
    """Base class of keys and shares that are stored in a file of their owner."""

    __slots__ = ()

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Return the secret as bytes, not encrypted."""

    @classmethod
    @abstractmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Return the secret written by `to_bytes`."""

    @abstractmethod
    def file_id(self) -> str:
        """Return the public line by which a person recognises the file."""

    def save(self, path: str | Path) -> None:
        """Store this in a new file that only its owner can read (mode 0600). It is not encrypted.

        Raises:
            BadName: there is a file already, or it cannot be written.
        """
        KeyFile(self.file_id(), self.to_bytes()).write(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return what `save` stored in a file.

        Raises:
            BadName: the file is missing, readable by others, or holds no key.
        """
        return cls.from_bytes(KeyFile.read(path).secret)

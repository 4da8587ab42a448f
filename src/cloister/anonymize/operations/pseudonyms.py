"""Keyed pseudonyms: HMAC-SHA-256 with a key derived for each purpose, or a permutation that keeps the format.

A pseudonym without a secret protects nothing where identifiers can be listed (phone numbers, taxi medallions): see
`dictionary_attack`. With a key, only the key's holder can make or compare pseudonyms. Two owners with different keys,
or one owner with two purposes, have pseudonyms that cannot be linked; the same key and purpose make them linkable.

Falls to: `attack.tables.linkage` and `attack.tables.sparse_linkage` on the other columns; without a secret, to
`dictionary_attack`.
"""

import base64
import hmac
import secrets
import string
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from cloister.anonymize.operations.format_preserving import permute
from cloister.anonymize.operations.operated import Operated, codes, read, with_column
from cloister.privacy.errors import BadName, BadSchema
from cloister.vault.key_file import KeyFile

__all__ = ["PseudonymKey", "pseudonymise", "reveal", "translation"]

_LENGTH = 32  # bytes of a key
_SHOWN = 16  # bytes of a pseudonym: a collision among a billion values has a chance of about 1e-21
_ALPHABETS = {"d": string.digits, "u": string.ascii_uppercase, "l": string.ascii_lowercase}
_NOTE = (
    "A pseudonym is the same wherever the value is the same, so rows of a person stay linkable within this purpose; "
    "the other columns may identify the person. Whoever has the key can test every candidate: pseudonymised rows are "
    "personal data."
)
_FORMAT = (
    " A format-preserving pseudonym can be reversed with the key, keeps length and separators, and looks like a true "
    "value; where few values are possible, a few known pairs leave few others."
)


class PseudonymKey:
    """A secret key with a public id. It never prints itself and cannot be pickled.

    Args:
        secret: at least 32 random bytes.
        key_id: a public name, such as `2026`; it stands before each pseudonym, so that keys can be rotated.

    >>> PseudonymKey(bytes(32), "2026")
    PseudonymKey(id='2026')
    """

    __slots__ = ("_secret", "id")

    def __init__(self, secret: bytes, key_id: str) -> None:
        if not isinstance(secret, bytes) or len(secret) < _LENGTH:
            raise BadName("a key for pseudonyms has at least 32 random bytes. Make one with PseudonymKey.create(path).")
        if not (isinstance(key_id, str) and 0 < len(key_id) <= 40 and key_id.replace("-", "").isalnum()):
            raise BadName("the id of a key has 1 to 40 letters, digits and hyphens.")
        self._secret, self.id = secret, key_id

    @classmethod
    def create(cls, path: str | Path, key_id: str) -> "PseudonymKey":
        """Write a new random key to a new key file of the vault, which its owner alone can read, and return it."""
        key = cls(secrets.token_bytes(_LENGTH), key_id)
        KeyFile(key_id, key._secret).write(path)
        return key

    @classmethod
    def from_file(cls, path: str | Path, key_id: str | None = None) -> "PseudonymKey":
        """Read a key from a file that its owner alone can read.

        Args:
            path: a key file of the vault, or an older file that holds hexadecimal digits only.
            key_id: the public name; needed for an older file, and must be that of the file for others.

        Raises:
            BadName: the file is missing, readable by others, no key, or has another id.
        """
        file = KeyFile.read(path)
        if file.key_id and key_id not in (None, file.key_id):
            raise BadName(f"the key in the file is called {file.key_id}. Leave key_id out, or give another file.")
        if not (file.key_id or key_id):
            raise BadName("the key file states no id. Give key_id, the name with which its pseudonyms begin.")
        return cls(file.secret, file.key_id or str(key_id))

    def derive(self, purpose: str, method: str = "hmac") -> bytes:
        """Return the 32 bytes for a purpose and a method (HKDF-SHA-256). Two of them tell nothing about each other."""
        if not isinstance(purpose, str) or not purpose.strip():
            raise BadName("name the purpose, such as `billing 2026`: pseudonyms of other purposes cannot be linked.")
        return HKDF(SHA256(), 32, salt=None, info=f"cloister pseudonym {method}\0{purpose}".encode()).derive(
            self._secret
        )

    def __repr__(self) -> str:
        return f"PseudonymKey(id={self.id!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is not pickled. Read it from its file where it is needed.")


def pseudonymise(
    rows: object, columns: str | Iterable[str], key: PseudonymKey, purpose: str, *, keep_format: bool = False
) -> Operated:
    """Replace identifiers by keyed pseudonyms. NULL stays NULL.

    A value is read as text in Unicode normal form C, so 42 and "42" have the same pseudonym, in every column and for
    every owner with the same key and purpose.

    Args:
        rows: the table.
        columns: columns of identifiers.
        key: the secret key.
        purpose: name of the use; another purpose gives pseudonyms that cannot be linked to these.
        keep_format: replace digits by digits and ASCII letters by letters of the same case, and keep everything else:
            FF1 of NIST SP 800-38G where it applies, see `format_preserving`. No key id is shown then.

    >>> result = pseudonymise({"phone": ["813-555-0142", None]}, "phone", PseudonymKey(bytes(32), "demo"), "lesson")
    >>> result.rows.to_pydict()
    {'phone': ['demo.c2unuy54tcmrskx2cbmzo3utay', None]}
    """
    table, names = read(rows, columns)
    derived = key.derive(purpose, "ff1" if keep_format else "hmac")
    make = _formatted(derived, inverse=False) if keep_format else _hashed(derived, key.id)
    how = "format-preserving pseudonyms" if keep_format else "pseudonyms (HMAC-SHA-256)"
    return _replace(
        table, names, make, f"{how} of key {key.id} for {purpose}", _NOTE + (_FORMAT if keep_format else "")
    )


def reveal(rows: object, columns: str | Iterable[str], key: PseudonymKey, purpose: str) -> Operated:
    """Turn format-preserving pseudonyms back into the identifiers. It needs the key and the purpose."""
    table, names = read(rows, columns)
    make = _formatted(key.derive(purpose, "ff1"), inverse=True)
    return _replace(table, names, make, f"identifiers revealed by key {key.id} for {purpose}", "These are identifiers.")


def translation(
    rows: object, column: str, old: PseudonymKey, new: PseudonymKey, purpose: str, *, keep_format: bool = False
) -> pa.Table:
    """Return the pseudonyms of each identifier under an old and a new key, for the rotation of keys.

    Only the owner, who has the identifiers, can make this table; whoever gets it can link both generations.
    """
    table, (name,) = read(rows, column)
    values = pa.table({name: _text(table, name).unique().drop_null()})
    generations = [pseudonymise(values, name, key, purpose, keep_format=keep_format).rows[name] for key in (old, new)]
    return pa.table({"old": generations[0], "new": generations[1]}).sort_by("old")


def _replace(
    table: pa.Table, names: tuple[str, ...], make: Callable[[list[str]], list[str]], what: str, note: str
) -> Operated:
    log = []
    for name in names:
        text = _text(table, name)
        positions, distinct = codes(pa.table({name: text}), name)
        values = distinct.to_pylist()
        known = [value for value in values if value is not None]
        made = dict(zip(known, make(known), strict=True))
        column = pa.array([made.get(value) for value in values], pa.string()).take(pa.array(positions))
        table = with_column(table, name, column)
        count = table.num_rows - column.null_count
        log.append(f"Column {name}: {what}, {count:,} of {table.num_rows:,} cells, {len(known):,} different values.")
    return Operated(table, tuple(log), note)


def _text(table: pa.Table, name: str) -> pa.ChunkedArray:
    column = table.column(name)
    if pa.types.is_floating(column.type):
        raise BadSchema(f"column {name} holds doubles, whose text is ambiguous. Cast identifiers to integers or text.")
    try:
        return pc.utf8_normalize(column.cast(pa.string()), form="NFC")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise BadSchema(f"column {name} is of type {column.type}, which has no text form. Convert it first.") from None


def _hashed(derived: bytes, key_id: str) -> Callable[[list[str]], list[str]]:
    def make(values: list[str]) -> list[str]:
        digests = (hmac.digest(derived, value.encode(), "sha256")[:_SHOWN] for value in values)
        return [f"{key_id}.{base64.b32encode(digest).decode().rstrip('=').lower()}" for digest in digests]

    return make


def _formatted(derived: bytes, *, inverse: bool) -> Callable[[list[str]], list[str]]:
    def make(values: list[str]) -> list[str]:
        shapes: dict[str, list[int]] = {}
        for position, value in enumerate(values):
            shapes.setdefault(_shape(value), []).append(position)
        made = list(values)
        for shape, members in shapes.items():
            texts = _permuted(derived, shape, [values[position] for position in members], inverse)
            for position, text in zip(members, texts, strict=True):
                made[position] = text
        return made

    return make


_CLASSES = str.maketrans({sign: name for name, alphabet in _ALPHABETS.items() for sign in alphabet})


def _shape(value: str) -> str:
    """Return the class of each character: d, u, l, or a dot for one that is kept."""
    # A mark that combines with a letter before it would make another letter of the pseudonym, outside ASCII.
    if any((sign.isalnum() and not sign.isascii()) or unicodedata.category(sign)[0] == "M" for sign in value):
        raise BadSchema(
            "an identifier has letters or marks outside ASCII, which have no alphabet to draw from. Use plain "
            "pseudonyms."
        )
    return "".join(sign if sign in _ALPHABETS else "." for sign in value.translate(_CLASSES))


def _permuted(derived: bytes, shape: str, values: list[str], inverse: bool) -> list[str]:
    places = [position for position, name in enumerate(shape) if name != "."]
    if not places:
        return values
    alphabets = [_ALPHABETS[shape[position]] for position in places]
    signs = np.array([list(value) for value in values])
    numerals = np.column_stack(
        [_indices(signs[:, position], alphabet) for position, alphabet in zip(places, alphabets, strict=True)]
    )
    classes = shape.replace(".", "")
    tweak = b"" if set(classes) == {"d"} else classes.encode()  # digits alone: FF1 as other tools compute it
    permuted = permute(derived, tweak, numerals, tuple(map(len, alphabets)), inverse=inverse)
    for position, alphabet, column in zip(places, alphabets, permuted.T, strict=True):
        signs[:, position] = np.array(list(alphabet))[column]
    return ["".join(row) for row in signs.tolist()]


def _indices(signs: Any, alphabet: str) -> Any:
    return np.searchsorted(np.array(list(alphabet)), signs)

"""Bytes of keys, vectors and partial decryptions: a version, a JSON head, numbers of fixed length, and their checks.

    4 bytes CLPA, 1 byte version, 4 bytes length of the head, the head as canonical JSON, then the numbers, big-endian

Lengths follow from the head, so truncated and prolonged bytes are both refused. Numbers outside the group are refused
on reading: an element with a common factor with n would reveal the key to whoever made it decrypt.
"""

import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from gmpy2 import mpz

from cloister.privacy.errors import BadInput, CiphertextRejected
from cloister.privacy.signing import canonical
from cloister.vault.paillier.keys import SIZES, PrivateKey, PublicKey
from cloister.vault.paillier.layout import Layout
from cloister.vault.paillier.proof import ROOTS

if TYPE_CHECKING:
    from cloister.vault.paillier.vector import EncryptedVector

__all__ = [
    "digest_of",
    "read_partial",
    "read_private_key",
    "read_public_key",
    "read_share",
    "read_vector",
    "write_partial",
    "write_private_key",
    "write_public_key",
    "write_share",
    "write_vector",
]

_Key = TypeVar("_Key", PublicKey, PrivateKey)

_MAGIC = b"CLPA"
_VERSION = 1
_MOST_HEAD = 1 << 14


def write_public_key(public: PublicKey) -> bytes:
    """Return a public key as bytes."""
    if not public.roots:
        raise BadInput("this copy of a public key has no proof of its modulus. Publish PrivateKey.public instead.")
    head = {"kind": "public key", "bits": public.bits, "roots": len(public.roots)}
    return _write(head, [public.n, public.h, *public.roots], public.bits // 8)


def read_public_key(raw: bytes) -> PublicKey:
    """Return the public key of its bytes. Compare its fingerprint with the holder's."""
    head, body = _read(raw, "public key", {"bits", "roots"})
    bits = _size(head["bits"])
    n, h, *roots = _numbers(body, 2 + ROOTS, bits // 8)
    if head["roots"] != ROOTS or n.bit_length() != bits:
        raise CiphertextRejected("these bytes are no public key of this version. Ask its holder for them again.")
    return _checked(PublicKey, n, h, tuple(roots))


def write_private_key(public: PublicKey, p: int, q: int) -> bytes:
    """Return a private key as bytes, not encrypted."""
    return _write({"kind": "private key", "bits": public.bits}, [p, q, public.h], public.bits // 8)


def read_private_key(raw: bytes) -> PrivateKey:
    """Return the private key of its bytes."""
    head, body = _read(raw, "private key", {"bits"})
    p, q, h = _numbers(body, 3, _size(head["bits"]) // 8)
    key = _checked(PrivateKey.from_primes, p, q, h)
    if key.public.bits != head["bits"]:
        raise CiphertextRejected("these bytes are no private key of this version. Restore them from a copy.")
    return key


def write_share(public: PublicKey, number: int, exponent: int) -> bytes:
    """Return a share of a private key as bytes, not encrypted."""
    head = {"kind": "key share", "bits": public.bits, "number": number, "negative": exponent < 0}
    return _write(head, [public.n, public.h, abs(exponent)], _share_size(public.bits))


def read_share(raw: bytes) -> tuple[PublicKey, int, int]:
    """Return the public key, the holder's number and the exponent of a share's bytes."""
    head, body = _read(raw, "key share", {"bits", "number", "negative"})
    n, h, exponent = _numbers(body, 3, _share_size(_size(head["bits"])))
    if head["number"] not in (1, 2) or not isinstance(head["negative"], bool):
        raise CiphertextRejected("these bytes are no key share of this version. Ask the dealer's copy again.")
    return _checked(PublicKey, n, h), int(head["number"]), -exponent if head["negative"] else exponent


def write_vector(vector: "EncryptedVector") -> bytes:
    """Return an encrypted vector as bytes."""
    head = {
        "kind": "vector",
        "key": vector.public.fingerprint,
        "layout": vector.layout.describe(),
        "summands": str(vector.summands),
        "net": str(vector.net),
        "noise": str(vector.noise),
        "masked": vector.masked,
    }
    return _write(head, [int(number) for number in vector.ciphertexts], vector.public.bits // 4)


def read_vector(raw: bytes, public: PublicKey, layout: Layout, expected: int | None) -> "EncryptedVector":
    """Return the vector of its bytes, if it has this key, layout and weight (None: any that the layout holds)."""
    from cloister.vault.paillier.vector import EncryptedVector

    head, body = _read(raw, "vector", {"key", "layout", "summands", "net", "noise", "masked"})
    if head["key"] != public.fingerprint:
        raise CiphertextRejected("this vector is encrypted under another key. Encrypt it under the key of this sum.")
    # A layout that a transform made differs in its length alone, so the reader states the one that it expects.
    if head["layout"] != layout.describe() or not isinstance(head["masked"], bool):
        raise CiphertextRejected("this vector has another layout than was declared. Encrypt it with the declared one.")
    summands, net, noise = (_integer(head[name]) for name in ("summands", "net", "noise"))
    if not (0 <= abs(net) <= summands <= layout.summands and 0 <= noise <= layout.noise_bound):
        raise CiphertextRejected("this vector states more than its layout holds, so it is not read. Encrypt it again.")
    if expected is not None and summands != expected:
        raise CiphertextRejected(f"a vector that weighs {expected} is due here, and this states {summands}. Ask again.")
    if expected == 1 and (net != 1 or noise or head["masked"]):
        raise CiphertextRejected(
            "an owner's vector is due here: weight 1, no noise, no mask, and this states something else. Ask the owner "
            "again, or give summands=None for a vector that a trusted sender computed."
        )
    numbers = _numbers(body, layout.ciphertexts(public.bits), public.bits // 4)
    ciphertexts = tuple(mpz(number) for number in numbers)
    public.check_group(ciphertexts)
    public.check_unmarked(ciphertexts)
    return EncryptedVector(public, layout, ciphertexts, summands, net, noise, head["masked"])


def digest_of(vector: "EncryptedVector") -> bytes:
    """Return the SHA-256 of a vector's bytes."""
    return hashlib.sha256(write_vector(vector)).digest()


def write_partial(public: PublicKey, number: int, digest: bytes, powers: tuple[mpz, ...]) -> bytes:
    """Return a half of a decryption as bytes."""
    head = {
        "kind": "partial decryption",
        "key": public.fingerprint,
        "number": number,
        "vector": digest.hex(),
        "count": len(powers),
    }
    return _write(head, [int(power) for power in powers], public.bits // 4)


def read_partial(raw: bytes, public: PublicKey) -> tuple[int, bytes, tuple[mpz, ...]]:
    """Return the holder's number, the vector's digest and the powers of a half of a decryption."""
    head, body = _read(raw, "partial decryption", {"key", "number", "vector", "count"})
    if head["key"] != public.fingerprint:
        raise CiphertextRejected("this half of a decryption is of another key. Ask the holders of this one.")
    count, digest = head["count"], head["vector"]
    sound = isinstance(count, int) and 0 < count <= 1 << 32 and isinstance(digest, str) and len(digest) == 64
    if not sound or head["number"] not in (1, 2) or set(digest) - set("0123456789abcdef"):
        raise CiphertextRejected("these bytes are no partial decryption of this version. Ask for it again.")
    powers = tuple(mpz(number) for number in _numbers(body, count, public.bits // 4))
    public.check_group(powers)
    return int(head["number"]), bytes.fromhex(digest), powers


def _write(head: dict[str, object], numbers: list[int], size: int) -> bytes:
    text = canonical(head)
    body = b"".join(number.to_bytes(size, "big") for number in numbers)
    return _MAGIC + bytes([_VERSION]) + len(text).to_bytes(4, "big") + text + body


def _read(raw: bytes, kind: str, names: set[str]) -> tuple[dict[str, Any], bytes]:
    if not isinstance(raw, bytes) or raw[:4] != _MAGIC or len(raw) < 9:
        raise CiphertextRejected(f"these bytes are no {kind}, or their beginning is missing. Ask for them again.")
    if raw[4] != _VERSION:
        raise CiphertextRejected(f"this {kind} has version {raw[4]}, and version {_VERSION} is read. Update Cloister.")
    length = int.from_bytes(raw[5:9], "big")
    text, body = raw[9 : 9 + length], raw[9 + length :]
    try:
        head = json.loads(text.decode("ascii")) if length <= _MOST_HEAD else None
    except (ValueError, RecursionError):
        head = None
    # Canonical, so that a vector has one spelling and one digest.
    if not isinstance(head, dict) or head.get("kind") != kind or set(head) != {"kind", *names}:
        raise CiphertextRejected(f"these bytes are no {kind}, or they were changed. Ask for them again.")
    if not _is_canonical(head, text):
        raise CiphertextRejected(f"these bytes are no {kind}, or they were changed. Ask for them again.")
    return head, body


def _is_canonical(head: dict[str, Any], text: bytes) -> bool:
    try:
        return canonical(head) == text
    except BadInput:  # a number that is not whole, or too deep
        return False


def _numbers(body: bytes, count: int, size: int) -> list[int]:
    if len(body) != count * size:
        raise CiphertextRejected(f"{count * size} bytes are due here, and {len(body)} came. Ask for them again.")
    return [int.from_bytes(body[at : at + size], "big") for at in range(0, len(body), size)]


def _size(bits: object) -> int:
    if isinstance(bits, bool) or not isinstance(bits, int) or bits not in SIZES:
        raise CiphertextRejected("these bytes name no key size that is used. Ask for them again.")
    return bits


def _share_size(bits: int) -> int:
    return bits // 4 + 16


def _integer(text: object) -> int:
    digits = text.removeprefix("-") if isinstance(text, str) else ""
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 200):
        raise CiphertextRejected("these bytes are no vector, or they were changed. Ask for them again.")
    return int(str(text))


def _checked(make: Callable[..., _Key], *numbers: int | tuple[int, ...]) -> _Key:
    """Return a key of numbers that were read, or refuse without showing them."""
    try:
        return make(*numbers)
    except BadInput:
        pass
    raise CiphertextRejected("these bytes hold no key that can be used. Ask for them again, or restore a copy.")

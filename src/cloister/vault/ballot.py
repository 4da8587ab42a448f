"""Blind signatures, the device's half: a ballot is blinded, signed, and unblinded. `ballot.mjs` does the same."""

import base64
import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import gcd

from cloister.privacy.errors import BadInput, Broken
from cloister.vault.blind import SALT_BYTES, key_fingerprint, public_numbers, unbase64url, unit, verify
from cloister.vault.secret import Secret
from cloister.vault.slip import NONCE_BYTES, PREFIX_BYTES, text_of

__all__ = ["Ballot"]

_HASH_BYTES = 48
_VERSION = 1


@dataclass(frozen=True, slots=True, repr=False)
class Ballot(Secret):
    """A ballot that waits for its signature. It holds the link between request and ballot, so it never prints itself.

    Attributes:
        public: the signer's key.
        message: the prepared message: 32 random bytes, then the text.
        blinded: the blinded number sent; it may be sent again if no answer came.
    """

    public: dict[str, object]
    message: bytes
    blinded: bytes
    _inverse: int

    @classmethod
    def begin(
        cls,
        public: Mapping[str, object],
        survey: str,
        wave: str,
        fingerprint: str,
        nonce: Callable[[int], bytes] = secrets.token_bytes,
    ) -> "tuple[bytes, Ballot]":
        """Make a ballot and blind it: the number to send to the signer, and the state to keep.

        **An attack that blinding does not stop:** a signer that shows every person a different key recognises each
        ballot by the key that signed it. So the device must use the key that everybody uses. Take `fingerprint` from
        the survey's public description, which others see too and which is printed in the invitation, never from the
        source of `public`; a key that does not match is refused.

        Args:
            public: the signer's key, as returned by `BlindKey.public`.
            survey: the survey's name.
            wave: the wave's name, such as "1".
            fingerprint: `key_fingerprint` of the key that everybody uses.
            nonce: source of the text's random bytes. The blinding factor always comes from the operating system.

        Privacy:
            The number sent is m·r^e for a secret, uniform unit r of the ring modulo n. For an observer of this number,
            its signature, and later all messages with their signatures, each pair is explained by exactly one r: the
            pairs are equally likely. This holds for any n and e, since only a verified signature is passed on. Not
            hidden: that a ballot was requested, when, and from which address.
        """
        if key_fingerprint(public) != fingerprint:
            raise BadInput(
                "this is not the key that the survey's description names, and a key of one's own makes a ballot known. "
                "Do not go on; show the invitation to the person who sent it."
            )
        n, e = public_numbers(public)
        message = secrets.token_bytes(PREFIX_BYTES) + text_of(survey, wave, nonce(NONCE_BYTES))
        factor = unit(n)
        blinded = blind(n, e, message, secrets.token_bytes(SALT_BYTES), factor)
        return blinded, cls(dict(public), message, blinded, pow(factor, -1, n))

    def finish(self, blind_signature: bytes) -> tuple[bytes, bytes]:
        """Return the ballot: its prepared message and its signature. Discard this object afterwards.

        Raises:
            Broken: the answer is no signature on this ballot. Nothing of the ballot is shown.
        """
        n, _ = public_numbers(self.public)
        size = (n.bit_length() + 7) // 8
        signature = (int.from_bytes(blind_signature, "big") * self._inverse % n).to_bytes(size, "big")
        if len(blind_signature) != size or not verify(self.public, self.message, signature):
            raise Broken("what came back is no signature on this ballot, so it is not used. Ask for it again.")
        return self.message, signature

    def to_state(self) -> dict[str, object]:
        """Return the state for JSON. It is a link: keep it only on the respondent's device until it is signed."""
        size = len(self.blinded)
        raw = {"message": self.message, "blinded": self.blinded, "inverse": self._inverse.to_bytes(size, "big")}
        written = {name: base64.urlsafe_b64encode(value).decode("ascii").rstrip("=") for name, value in raw.items()}
        return {"version": _VERSION, "key": dict(self.public), **written}

    @classmethod
    def from_state(cls, state: Mapping[str, object]) -> "Ballot":
        """Return the ballot saved by `to_state`, or by the browser's `begin`."""
        if not isinstance(state, Mapping) or set(state) != {"version", "key", "message", "blinded", "inverse"}:
            raise BadInput("this is no ballot that was kept. Begin it again.")
        key = state["key"]
        if state["version"] != _VERSION or not isinstance(key, Mapping):
            raise BadInput("this ballot was kept by another version. Begin it again.")
        message, blinded, inverse = (unbase64url(state[name]) for name in ("message", "blinded", "inverse"))
        return cls(dict(key), message, blinded, int.from_bytes(inverse, "big"))


def blind(n: int, e: int, message: bytes, salt: bytes, factor: int) -> bytes:
    """Compute Blind of RFC 9474, 4.2, for a given salt and factor: the published test vectors give both."""
    encoded = int.from_bytes(_encode(message, salt, n.bit_length() - 1), "big")
    if gcd(encoded, n) != 1:
        raise BadInput("the key's modulus has a small factor, so it is no proper key. Ask for another.")
    return (encoded * pow(factor, e, n) % n).to_bytes((n.bit_length() + 7) // 8, "big")


def _encode(message: bytes, salt: bytes, bits: int) -> bytes:
    """Compute EMSA-PSS-ENCODE of RFC 8017, 9.1.1, with SHA-384. `bits` is one less than the modulus has (8.1.1)."""
    size = (bits + 7) // 8
    digest = hashlib.sha384(bytes(8) + hashlib.sha384(message).digest() + salt).digest()
    block = (b"\x01" + salt).rjust(size - _HASH_BYTES - 1, b"\x00")
    mask = b"".join(
        hashlib.sha384(digest + part.to_bytes(4, "big")).digest() for part in range(size // _HASH_BYTES + 1)
    )
    masked = bytearray(byte ^ other for byte, other in zip(block, mask, strict=False))
    masked[0] &= 0xFF >> (8 * size - bits)
    return bytes(masked) + digest + b"\xbc"

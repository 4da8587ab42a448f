"""The text of a ballot, and its admission.

A ballot is 32 random bytes (the preparation of RFC 9474, 4.1) and the text `cloister ballot v1|SURVEY|WAVE|NONCE`. It
names no person and holds no answer: it is the right to submit one report to one wave of one survey.
"""

import base64
import re
from collections.abc import Mapping

from cloister.privacy.errors import BadInput, Broken
from cloister.vault.blind import verify

__all__ = ["NONCE_BYTES", "PREFIX_BYTES", "admit", "text_of"]

PREFIX_BYTES = 32
NONCE_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NONCE = re.compile(rb"[A-Za-z0-9_-]{43}")


def text_of(survey: str, wave: str, nonce: bytes) -> bytes:
    """Return the text of a ballot.

    >>> text_of("sleep", "1", bytes(32))
    b'cloister ballot v1|sleep|1|AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'
    """
    if len(nonce) != NONCE_BYTES:
        raise BadInput(f"a ballot's nonce has {NONCE_BYTES} bytes. Draw it with secrets.token_bytes.")
    return _begins(survey, wave) + base64.urlsafe_b64encode(nonce).rstrip(b"=")


def admit(public: Mapping[str, object], message: bytes, signature: bytes, survey: str, wave: str) -> str:
    """Return the nonce of a valid ballot for this wave of this survey. Accept no second report with the same nonce.

    Args:
        public: the key of this wave, from the hub's own store, never from the report.
        message: the message from `Ballot.finish`, with its 32 random bytes.
        signature: the signature on it.
        survey: the survey that the report is for.
        wave: its wave.

    Raises:
        Broken: it is for another survey or wave, or was not signed with this key. The error does not say which.
    """
    begins = _begins(survey, wave)
    text = message[PREFIX_BYTES:]
    nonce = text[len(begins) :]
    # Check the form as well as the signature: the signer has not seen what it signed (RFC 9474, 7.2).
    if not text.startswith(begins) or not _NONCE.fullmatch(nonce) or not verify(public, message, signature):
        raise Broken("this is no ballot for this wave of this survey. Open the invitation again on the same device.")
    return nonce.decode("ascii")


def _begins(survey: str, wave: str) -> bytes:
    for name in (survey, wave):
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BadInput(
                "a survey and a wave are named by up to 64 letters, digits, dots, dashes and underscores, "
                'as text: "1", not 1.'
            )
    return f"cloister ballot v1|{survey}|{wave}|".encode("ascii")

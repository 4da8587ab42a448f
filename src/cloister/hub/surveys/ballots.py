"""Invitations and ballots: each invited respondent answers once, and no answer can be linked to them.

    a link with a secret ──► the device makes a ballot, blinds it ──► the hub signs it unseen ──► the device
    unblinds it ──► reports are sent with the ballot, without the link

The hub knows that an invitation got a ballot, and that a ballot is one of its own; not which belongs to which (RFC
9474, see vault/blind.py). One key serves all respondents of a wave, and its fingerprint is in every link: a separate
key would identify a respondent. Every wave has its own key and links, or a ballot could be kept for the next.
"""

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.keys import digest, fresh
from cloister.hub.core.models import Invitation, Survey
from cloister.local.survey.envelope import unpack
from cloister.privacy.errors import BadForm, Broken, Denied, NotNow
from cloister.vault import BlindKey, admit, key_fingerprint
from cloister.vault.blind import public_numbers

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["accept", "give_key", "invitations", "invite", "sign"]

_MOST = 100_000


def give_key(hub: "Hub", survey: Survey) -> None:
    """Create the key of this wave; the master key seals its secret half."""
    key = BlindKey.create()
    survey.ballot_key = hub.keys.seal(key.to_bytes(), _label(survey.name))
    survey.ballot_public = key.public()


def invite(hub: "Hub", session: Session, survey: Survey, count: int) -> list[str]:
    """Create links, shown once: only their hashes are stored, and not for whom they are.

    The secret follows the `#`, which browsers do not send when they open a page.
    """
    if not survey.invited or survey.state != "open":
        raise NotNow("links are made for an open survey that asks for invitations.")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST:
        raise BadForm(f"make 1 to {_MOST:,} links at a time.")
    secrets = [fresh() for _ in range(count)]
    rows = sorted(digest(secret) for secret in secrets)  # not in the order of the links
    session.execute(
        sa.insert(Invitation), [{"id": row, "survey_id": survey.id, "wave": survey.wave, "blinded": ""} for row in rows]
    )
    hub.audit.write(session, survey.owner_id, "survey.invited", f"survey/{survey.name}", count=count)
    mark = key_fingerprint(survey.ballot_public or {})
    return [f"{hub.settings.address.rstrip('/')}/s/{survey.name}#{secret}.{mark}" for secret in secrets]


def invitations(session: Session, survey: Survey, step: int = 1) -> tuple[int, int]:
    """Return how many were invited to this wave, and how many got their ballot, rounded down to whole steps."""
    this_wave = (Invitation.survey_id == survey.id, Invitation.wave == survey.wave)
    mine = sa.select(sa.func.count()).select_from(Invitation).where(*this_wave)
    got = mine.where(Invitation.blinded != "")
    return session.scalar(mine) or 0, (session.scalar(got) or 0) // step * step


def sign(hub: "Hub", survey: Survey, secret: str, blinded: bytes) -> bytes:
    """Sign a blinded ballot; one for each invitation.

    A repeated request with the same blinded ballot gets the same signature: the connection may have failed.

    Raises:
        BadForm: this is no blinded ballot; the link stays valid.
        Denied: the link is not one of this wave's, or got another ballot already: the two are not distinguished.
    """
    modulus, _ = public_numbers(survey.ballot_public or {})
    if len(blinded) != (modulus.bit_length() + 7) // 8 or not 0 < int.from_bytes(blinded, "big") < modulus:
        raise BadForm("this is no ballot for the key of this wave. Load the page again.")
    mark = hashlib.sha256(blinded).hexdigest()
    mine = (Invitation.id == digest(secret), Invitation.survey_id == survey.id, Invitation.wave == survey.wave)
    first = sa.update(Invitation).where(*mine, Invitation.blinded.in_(("", mark))).values(blinded=mark)
    with hub.database.writing() as session:
        taken = session.connection().execute(first).rowcount  # of two concurrent requests, one finds it taken
    if taken != 1:
        raise Denied("this link is wrong, or was used on another device. Ask the person who invited you for a new one.")
    return _key(hub, survey.name, survey.ballot_key or b"").sign(blinded)


def accept(survey: Survey, told: Any) -> str | None:
    """Return the id of a submission with this ballot; None if the ballot was not signed for this wave."""
    if not isinstance(told, dict) or set(told) != {"message", "signature"} or survey.ballot_public is None:
        return None
    message, signature = unpack(told["message"]), unpack(told["signature"])
    if message is None or signature is None:
        return None
    try:
        admit(survey.ballot_public, message, signature, survey.name, str(survey.wave))
    except Broken:
        return None
    return hashlib.sha256(message).hexdigest()


@lru_cache(maxsize=16)
def _key(hub: "Hub", name: str, sealed: bytes) -> BlindKey:
    return BlindKey.from_bytes(hub.keys.open(sealed, _label(name)))


def _label(name: str) -> str:
    return f"ballot key of {name}"

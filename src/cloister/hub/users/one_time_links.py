"""One-time links: an invitation, a password reset, a verification of an e-mail address.

Only the SHA-256 of the secret is stored.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.database import now
from cloister.hub.core.keys import digest, fresh
from cloister.hub.core.models import OneTimeLink, Person
from cloister.privacy.errors import BadForm, NotHere

__all__ = ["INVITATION", "RESET", "VERIFY", "look", "make", "take", "withdraw"]

INVITATION = "invitation"
RESET = "reset"
VERIFY = "verify"
_LONGEST_DAYS = 30


def make(
    session: Session, by: Person | None, purpose: str, *, person: Person | None, days: float, detail: dict[str, Any]
) -> str:
    """Create a link; return its secret, which is shown once."""
    if not 0 < days <= _LONGEST_DAYS:
        raise BadForm(f"days: a link works for at most {_LONGEST_DAYS} days.")
    secret = fresh()
    session.add(
        OneTimeLink(
            id=digest(secret),
            purpose=purpose,
            person_id=person.id if person else None,
            detail=detail,
            made_by=by.id if by else None,
            ends=now() + days * 86_400,
        )
    )
    session.flush()
    return secret


def look(session: Session, purpose: str, secret: str) -> OneTimeLink:
    """Return the link, if it is still valid.

    Raises:
        NotHere: unknown, used, too old, or made by a former operator: these are not distinguished.
    """
    link = session.get(OneTimeLink, digest(secret))
    if link is None or link.purpose != purpose or link.used is not None or link.ends <= now():
        raise _gone()
    if link.made_by is not None:
        maker = session.get(Person, link.made_by)
        if maker is None or not maker.active or "operator" not in maker.roles:
            raise _gone()
    return link


def take(session: Session, purpose: str, secret: str) -> OneTimeLink:
    """Use the link up. Of two concurrent attempts, one finds it gone."""
    link = look(session, purpose, secret)
    mine = sa.update(OneTimeLink).where(OneTimeLink.id == link.id, OneTimeLink.used.is_(None)).values(used=now())
    if session.connection().execute(mine).rowcount != 1:
        raise _gone()
    return link


def withdraw(session: Session, purpose: str, *, person: Person) -> None:
    """Revoke this user's links of this purpose."""
    session.execute(
        sa.update(OneTimeLink)
        .where(OneTimeLink.purpose == purpose, OneTimeLink.person_id == person.id, OneTimeLink.used.is_(None))
        .values(used=now())
    )


def _gone() -> NotHere:
    return NotHere("this link is wrong, was used or is too old. Ask an operator for a new one.")

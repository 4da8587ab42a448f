"""Sessions of signed-in browsers. The cookie holds a secret; the hub stores its SHA-256 and can end it at any time.

A session is incomplete between the password and the second factor: it opens only the page that asks for the code.
Completing it makes a new secret, so that the first one is useless to others.
"""

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core import models
from cloister.hub.core.database import now
from cloister.hub.core.keys import digest, fresh
from cloister.hub.core.models import Person
from cloister.hub.core.settings import Settings

__all__ = ["begin", "complete", "end", "end_all", "find", "of"]

_INCOMPLETE_SECONDS = 15 * 60


def begin(session: Session, settings: Settings, person: Person, complete: bool) -> tuple[str, models.Session]:
    """Begin a session; return the secret for the cookie, and the stored session."""
    secret = fresh()
    lasts = settings.session_hours * 3600 if complete else _INCOMPLETE_SECONDS
    stored = models.Session(id=digest(secret), person_id=person.id, csrf=fresh(), complete=complete, ends=now() + lasts)
    session.execute(sa.delete(models.Session).where(models.Session.ends <= now()))
    session.add(stored)
    session.flush()
    return secret, stored


def find(session: Session, secret: str) -> tuple[Person, models.Session] | None:
    """Return the user and the session, complete or not; None if it ended or the account is closed."""
    wanted = (
        sa.select(Person, models.Session)
        .join(models.Session, models.Session.person_id == Person.id)
        .where(models.Session.id == digest(secret), models.Session.ends > now(), Person.active)
    )
    row = session.execute(wanted).one_or_none()
    return None if row is None else (row[0], row[1])


def complete(
    session: Session, settings: Settings, person: Person, before: models.Session
) -> tuple[str, models.Session]:
    """Replace the incomplete session by a complete one with another secret, after the second factor."""
    session.execute(sa.delete(models.Session).where(models.Session.id == before.id))
    return begin(session, settings, person, complete=True)


def end(session: Session, secret: str) -> None:
    """Sign out."""
    session.execute(sa.delete(models.Session).where(models.Session.id == digest(secret)))


def end_all(session: Session, person: Person, but: models.Session | None = None) -> int:
    """Sign out everywhere, except perhaps here; return the number of sessions."""
    wanted = sa.delete(models.Session).where(models.Session.person_id == person.id)
    if but is not None:
        wanted = wanted.where(models.Session.id != but.id)
    return session.connection().execute(wanted).rowcount


def of(session: Session, person: Person) -> list[models.Session]:
    """Return a user's open sessions, newest first."""
    wanted = sa.select(models.Session).where(models.Session.person_id == person.id, models.Session.ends > now())
    return list(session.scalars(wanted.order_by(models.Session.created.desc())))

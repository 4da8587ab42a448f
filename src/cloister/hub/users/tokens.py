"""API tokens: a program acts for a user, for a limited time, within scopes.

    read   see datasets, schemas, mock data and one's own jobs
    work   plan and run
    share  what an owner does: upload, policies, decisions

No scope covers an operator's actions or the account itself: a stolen token cannot make another one.
"""

from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.database import Database, now
from cloister.hub.core.keys import digest, fresh
from cloister.hub.core.models import Person, Token
from cloister.hub.users.roles import MOST
from cloister.privacy.errors import BadForm, NotHere, NotNow

__all__ = ["SCOPES", "find", "make", "note_use", "of", "revoke", "revoke_all"]

SCOPES = ("read", "work", "share")
_LONGEST_DAYS = 366
_MOST = 50
_NOTE_EVERY_S = 3600


def make(session: Session, person: Person, label: str, scopes: Iterable[str], days: int) -> str:
    """Create a token; return its secret, `clo_…`, which is shown once.

    Raises:
        BadForm: no label, an unknown scope, or a time that is too long.
        NotNow: the user has too many tokens already.
    """
    wanted, words = set(scopes), " ".join(label.split())
    if not words.isprintable() or not 1 <= len(words) <= 200:
        raise BadForm("label: say in a few words what the token is for.")
    if not wanted or not wanted <= set(SCOPES):
        raise BadForm(f"scopes: choose one or more of {', '.join(SCOPES)}.")
    if not 1 <= days <= _LONGEST_DAYS:
        raise BadForm(f"days: a token works for 1 to {_LONGEST_DAYS} days.")
    if len(of(session, person)) >= _MOST:
        raise NotNow(f"you have {_MOST} tokens. Revoke one first.")
    secret = fresh("clo_")
    ordered = [scope for scope in SCOPES if scope in wanted]
    session.add(
        Token(secret=digest(secret), person_id=person.id, label=words, scopes=ordered, ends=now() + days * 86_400)
    )
    session.flush()
    return secret


def find(session: Session, secret: str) -> tuple[Person, tuple[str, ...]] | None:
    """Return a token's user and scopes; None if it is unknown, revoked, too old, or the account is closed."""
    wanted = (
        sa.select(Person, Token.scopes)
        .join(Token, Token.person_id == Person.id)
        .where(Token.secret == digest(secret), _open(), Person.active)
    )
    row = session.execute(wanted).one_or_none()
    return None if row is None else (row[0], tuple(row[1]))


def note_use(database: Database, secret: str) -> None:
    """Record that a token was used, at most once an hour, so that frequent requests do not write each time."""
    hashed, stale = digest(secret), now() - _NOTE_EVERY_S
    due = (Token.secret == hashed) & (Token.used.is_(None) | (Token.used < stale))
    with database.reading() as session:
        if session.scalar(sa.select(Token.id).where(due)) is None:
            return
    with database.writing() as session:
        session.execute(sa.update(Token).where(due).values(used=now()))


def of(session: Session, person: Person) -> list[Token]:
    """Return a user's valid tokens, newest first."""
    return list(
        session.scalars(sa.select(Token).where(Token.person_id == person.id, _open()).order_by(Token.id.desc()))
    )


def revoke(session: Session, person: Person, number: int) -> Token:
    """Revoke one of the user's own tokens; raise NotHere if it is not theirs."""
    token = session.get(Token, number) if 0 < number <= MOST else None
    if token is None or token.person_id != person.id or token.revoked:
        raise NotHere("you have no such token.")
    token.revoked = True
    session.flush()
    return token


def revoke_all(session: Session, person: Person) -> None:
    """Revoke all of a user's tokens."""
    session.execute(sa.update(Token).where(Token.person_id == person.id).values(revoked=True))


def _open() -> sa.ColumnElement[bool]:
    return sa.and_(Token.ends > now(), sa.not_(Token.revoked))

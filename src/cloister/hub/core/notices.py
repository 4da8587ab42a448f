"""Notices: a sentence for one person, shown on their page and sent by e-mail if that is set up.

A notice says what happened and where to look. It never holds an answer, a comment's text or a value from a table: it
may travel through mail servers that nobody here controls.
"""

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.models import Notice, Person
from cloister.hub.core.trail import cleaned

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["mine", "read_all", "read_one", "tell"]


def tell(hub: "Hub", session: Session, person_id: int, text: str, link: str = "") -> Notice:
    """Leave a notice, in the caller's transaction.

    Args:
        hub: the hub.
        session: the transaction in which the thing happens.
        person_id: for whom.
        text: one sentence.
        link: a path of this hub.
    """
    del hub  # e-mails leave later, with mail.deliver: a slow mail server must not hold a transaction
    notice = Notice(person_id=person_id, text=cleaned(" ".join(text.split()), 500), link=link[:200])
    session.add(notice)
    return notice


def mine(session: Session, person: Person, most: int = 100, before: int | None = None) -> list[Notice]:
    """Somebody's notices, newest first."""
    wanted = sa.select(Notice).where(Notice.person_id == person.id).order_by(Notice.id.desc()).limit(most)
    return list(session.scalars(wanted if before is None else wanted.where(Notice.id < before)))


def read_one(session: Session, person: Person, number: int) -> Notice | None:
    """Mark one notice as read; None if it is not this person's."""
    found = session.get(Notice, number)
    if found is None or found.person_id != person.id:
        return None
    found.read = True
    return found


def read_all(session: Session, person: Person) -> int:
    """Mark all of somebody's notices as read; how many there were."""
    changed = session.execute(
        sa.update(Notice).where(Notice.person_id == person.id, ~Notice.read).values(read=True).returning(Notice.id)
    )
    return len(changed.all())

"""Notifications: a sentence for one user, shown on their page and sent by e-mail if that is set up.

A notification says what happened and links to the page. It never holds an answer, a comment's text or a value from a
table: it may pass through mail servers outside the hub's control.
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
    """Add a notification in the caller's transaction.

    Args:
        hub: the hub.
        session: the transaction of the event.
        person_id: the recipient.
        text: one sentence.
        link: a path of this hub.
    """
    del hub  # e-mails are sent later by mail.deliver: a slow mail server must not hold a transaction
    notice = Notice(person_id=person_id, text=cleaned(" ".join(text.split()), 500), link=link[:200])
    session.add(notice)
    return notice


def mine(session: Session, person: Person, most: int = 100, before: int | None = None) -> list[Notice]:
    """Return a user's notifications, newest first."""
    wanted = sa.select(Notice).where(Notice.person_id == person.id).order_by(Notice.id.desc()).limit(most)
    return list(session.scalars(wanted if before is None else wanted.where(Notice.id < before)))


def read_one(session: Session, person: Person, number: int) -> Notice | None:
    """Mark one notification as read; None if it is not this user's."""
    notice = session.get(Notice, number)
    if notice is None or notice.person_id != person.id:
        return None
    notice.read = True
    return notice


def read_all(session: Session, person: Person) -> int:
    """Mark all of a user's notifications as read; return how many there were."""
    changed = session.execute(
        sa.update(Notice).where(Notice.person_id == person.id, ~Notice.read).values(read=True).returning(Notice.id)
    )
    return len(changed.all())

"""Reviewers of a request: the dataset's owner and the users its policy names. Never the requester."""

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.models import Dataset, Person, Request
from cloister.hub.policy.policy import Policy
from cloister.hub.policy.versions import current

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["current_policy", "may_decide", "may_see", "reviewers"]


def current_policy(hub: "Hub", session: Session, dataset: Dataset) -> Policy:
    """Return the policy in force.

    Raises:
        NotHere: there is none, so nothing is allowed.
    """
    return current(hub, session, dataset)[0]


def reviewers(hub: "Hub", session: Session, dataset: Dataset) -> list[Person]:
    """Return every reviewer of this dataset's requests, the owner first.

    Users whose account is closed, whose address is not verified, or whom the newest policy no longer names are not
    included.
    """
    named = {address.lower() for address in current_policy(hub, session, dataset).reviewers}
    by_address = sa.and_(Person.email.in_(named), Person.verified.is_not(None))
    wanted = sa.select(Person).where(Person.active, sa.or_(Person.id == dataset.owner_id, by_address))
    return sorted(session.scalars(wanted), key=lambda one: (one.id != dataset.owner_id, one.id))


def may_decide(hub: "Hub", session: Session, person: Person, request: Request) -> bool:
    """Return True if this user may decide on this request: a reviewer other than the requester."""
    return person.id != request.person_id and any(
        one.id == person.id for one in reviewers(hub, session, request.dataset)
    )


def may_see(hub: "Hub", session: Session, person: Person, request: Request) -> bool:
    """Return True if this user may see the request: the requester and the reviewers."""
    return person.id == request.person_id or may_decide(hub, session, person, request)

"""Who may decide about a request: the dataset's owner and the people its policy names. Never oneself."""

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
    """The policy that decides now.

    Raises:
        NotHere: there is none, so nothing is allowed.
    """
    return current(hub, session, dataset)[0]


def reviewers(hub: "Hub", session: Session, dataset: Dataset) -> list[Person]:
    """Everybody who may decide about this dataset's requests, the owner first.

    Somebody whose account is closed, whose address was not verified, or whom the newest policy no longer names, is not
    among them.
    """
    named = {address.lower() for address in current_policy(hub, session, dataset).reviewers}
    by_address = sa.and_(Person.email.in_(named), Person.verified.is_not(None))
    wanted = sa.select(Person).where(Person.active, sa.or_(Person.id == dataset.owner_id, by_address))
    return sorted(session.scalars(wanted), key=lambda one: (one.id != dataset.owner_id, one.id))


def may_decide(hub: "Hub", session: Session, person: Person, request: Request) -> bool:
    """Whether this person may decide about this request: a reviewer, and not whoever asks."""
    return person.id != request.person_id and any(
        one.id == person.id for one in reviewers(hub, session, request.dataset)
    )


def may_see(hub: "Hub", session: Session, person: Person, request: Request) -> bool:
    """Whether this person may know of the request: whoever asks, and whoever decides."""
    return person.id == request.person_id or may_decide(hub, session, person, request)

"""Home page: for a stranger, what this hub is; for a user, what waits for them. And the trust models."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Request
from sqlalchemy.orm import Session
from starlette.responses import Response

from cloister.hub.core.models import Dataset, Job, Notice, Person
from cloister.hub.core.models import Request as Asked
from cloister.hub.jobs.trust_model import TRUST_MODELS
from cloister.hub.web.context import Visitor, page, visitor

__all__ = ["router"]

router = APIRouter()


@dataclass(frozen=True, slots=True)
class Door:
    """Possible action of a user, with its address."""

    title: str
    text: str
    path: str
    roles: tuple[str, ...] = ()


_DOORS = (
    Door("Ask a question", "Find a dataset, see what a question costs, then ask it.", "/datasets", ("data user",)),
    Door(
        "Share a dataset",
        "Upload or connect tables, write the policy, keep every key.",
        "/datasets/new",
        ("data owner", "data provider"),
    ),
    Door(
        "Run a survey",
        "Ask people whose answers nobody sees: noise is added on their own devices.",
        "/surveys",
        ("data user", "data owner"),
    ),
    Door("Decide about requests", "Access and large releases wait for your word.", "/requests", ("data owner",)),
    Door("People and invitations", "Invite colleagues, give roles, close accounts.", "/people", ("operator",)),
    Door("Read the audit log", "Every decision and every read, in a chain.", "/audit", ("auditor", "operator")),
    Door("My ledger", "What your answers cost, and what is left to you.", "/ledger", ("data user",)),
)


@router.get("/")
def home(request: Request, visitor: Annotated[Visitor, Depends(visitor)]) -> Response:
    """Show the home page."""
    if visitor.person is None:
        return page(request, "home.html", open_sign_up=visitor.hub.settings.open_sign_up)
    with visitor.hub.database.reading() as session:
        values = _waiting(session, visitor.person)
    doors = [door for door in _DOORS if visitor.has(*door.roles)]
    return page(request, "home.html", doors=doors, **values)


@router.get("/trust")
def trust(request: Request) -> Response:
    """Show who could see what, under each trust model."""
    return page(request, "trust.html", curator=TRUST_MODELS["curator"])


def _waiting(session: Session, person: Person) -> dict[str, Any]:
    """Return a user's own datasets and jobs, and what waits for them."""
    mine = sa.select(Dataset).where(Dataset.owner_id == person.id, Dataset.deleted.is_(None))
    owned: Sequence[Dataset] = session.scalars(mine.order_by(Dataset.title, Dataset.name)).all()
    open_requests = sa.select(Asked).where(Asked.state == "open", Asked.person_id == person.id)
    to_decide = (
        sa.select(Asked)
        .join(Dataset, Asked.dataset_id == Dataset.id)
        .where(Asked.state == "open", Dataset.owner_id == person.id, Asked.person_id != person.id)
    )
    jobs = sa.select(Job).where(Job.person_id == person.id).order_by(Job.id.desc()).limit(5)
    notices = sa.select(Notice).where(Notice.person_id == person.id, ~Notice.read).order_by(Notice.id.desc()).limit(5)
    return {
        "owned": owned,
        "asked": session.scalars(open_requests.order_by(Asked.id.desc()).limit(10)).all(),
        "to_decide": session.scalars(to_decide.order_by(Asked.id.desc()).limit(10)).all(),
        "jobs": session.scalars(jobs).all(),
        "notices": session.scalars(notices).all(),
    }

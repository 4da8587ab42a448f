"""Activity on a dataset, for its owner: users and how usual their requests are, a feed, and the pause switch."""

from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from cloister.hub.accounting import activity
from cloister.hub.core.models import AuditEntry, Job, Person
from cloister.hub.datasets.datasets import owned, pause
from cloister.hub.web.context import Visitor, form, go, page, signed_in
from cloister.hub.web.forms import Form

__all__ = ["router"]

router = APIRouter()
SignedIn = Annotated[Visitor, Depends(signed_in)]
_A_FEED = 100


@router.get("/datasets/{name}/activity")
def shown(request: Request, name: str, visitor: SignedIn) -> Response:
    """Show the users' activity, and how far it is from their past."""
    with visitor.hub.database.reading() as session:
        dataset = owned(session, name, visitor.who)
        profiles = activity.profiles(session, dataset)
        jobs = sa.select(Job.id).where(Job.dataset_id == dataset.id).order_by(Job.id.desc()).limit(_A_FEED)
        objects = [f"dataset/{dataset.name}", *(f"job/{number}" for number in session.scalars(jobs))]
        feed = sa.select(AuditEntry).where(AuditEntry.object.in_(objects)).order_by(AuditEntry.number.desc())
        entries = list(session.scalars(feed.limit(_A_FEED)))
        people = {person.id: person.name for person in session.scalars(sa.select(Person))}
    return page(
        request,
        "activity.html",
        dataset=dataset,
        profiles=profiles,
        entries=entries,
        people=people,
        alert_at=activity.ALERT_AT,
    )


@router.post("/datasets/{name}/activity/pause")
def switch(request: Request, name: str, visitor: SignedIn, sent: Annotated[Form, Depends(form)]) -> Response:
    """Pause all work on the dataset, or resume it."""
    stop = sent.ticked("paused")
    with visitor.hub.database.writing() as session:
        pause(visitor.hub, session, visitor.who, owned(session, name, visitor.who), stop)
    message = "Paused. Nothing runs on this dataset now." if stop else "Open again."
    return go(request, f"/datasets/{name}/activity", said=message)

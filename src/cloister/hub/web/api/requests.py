"""API of requests and notifications."""

from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Path
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from cloister.hub import approvals
from cloister.hub.approvals.decision import ACCESS_DAYS, comments, decisions
from cloister.hub.core import models, notices
from cloister.hub.jobs.authorise import plan_for
from cloister.hub.jobs.gateway import find_dataset
from cloister.hub.web.context import Visitor, scoped
from cloister.hub.web.pages.requests import to_decide

__all__ = ["router"]

router = APIRouter(tags=["requests"])
Reader = Annotated[Visitor, Depends(scoped("read"))]
Worker = Annotated[Visitor, Depends(scoped("work"))]
Sharer = Annotated[Visitor, Depends(scoped("share"))]
Number = Annotated[int, Path(ge=1, lt=2**31)]
_MOST = 200


class AccessRequestBody(BaseModel):
    """A request for access."""

    dataset: str = Field(max_length=200)
    role: str = Field(max_length=200)
    purpose: str = Field(max_length=200)
    text: str = Field(max_length=4000, description="what the data are needed for")


class CommentBody(BaseModel):
    """A reviewer's decision."""

    agreed: bool
    reason: str = Field(default="", max_length=4000, description="needed if it is denied")
    days: int = Field(default=ACCESS_DAYS, ge=1, le=3650, description="how long a granted access lasts")


class CommentFacts(BaseModel):
    """A sentence: a comment, or a reason."""

    text: str = Field(min_length=1, max_length=4000)


class DecisionBody(BaseModel):
    """Decision of a reviewer."""

    person: str
    agreed: bool
    reason: str
    time: float


class CommentedFacts(BaseModel):
    """A comment."""

    person: str
    text: str
    time: float


class RequestFacts(BaseModel):
    """A request."""

    id: int
    kind: Literal["access", "release"]
    dataset: str
    person: str
    role: str
    purpose: str
    text: str
    needs: int = Field(description="how many different people must agree")
    state: str
    job: int | None
    plan: dict[str, Any] | None = Field(description="of a release: its cost, expected error and engine SQL")
    created: float
    ends: float | None
    decisions: list[DecisionBody] = []
    comments: list[CommentedFacts] = []


class RequestList(BaseModel):
    """Requests that concern the caller."""

    mine: list[RequestFacts]
    waiting: list[RequestFacts] = Field(description="for my decision")


class NoticeList(BaseModel):
    """A notification."""

    id: int
    text: str
    link: str
    time: float
    read: bool


@router.get("/api/requests")
def listed(here: Reader) -> RequestList:
    """Return the caller's requests, and those that wait for their decision."""
    own = sa.select(models.Request).where(models.Request.person_id == here.who.id)
    with here.hub.database.reading() as session:
        mine = list(session.scalars(own.order_by(models.Request.id.desc()).limit(_MOST)))
        waiting = to_decide(here.hub, session, here.who)
        return RequestList(
            mine=[_shown(here, session, one) for one in mine], waiting=[_shown(here, session, one) for one in waiting]
        )


@router.post("/api/requests", status_code=201)
def ask(asked: AccessRequestBody, here: Worker) -> RequestFacts:
    """Ask for a role of a dataset's policy."""
    with here.hub.database.writing() as session:
        dataset = find_dataset(here.hub, session, here.who, asked.dataset, here.environment)
        made = approvals.ask_access(
            here.hub, session, here.who, dataset, asked.role, asked.purpose, asked.text.replace("\0", "")
        )
        return _whole(here, session, made)


@router.get("/api/requests/{number}")
def shown(number: Number, here: Reader) -> RequestFacts:
    """Return one request, with decisions and comments."""
    with here.hub.database.reading() as session:
        return _whole(here, session, approvals.find(here.hub, session, here.who, number))


@router.post("/api/requests/{number}/decision")
def decide(number: Number, word: CommentBody, here: Sharer) -> RequestFacts:
    """Agree to it, or deny it."""
    with here.hub.database.writing() as session:
        found = approvals.find(here.hub, session, here.who, number)
        reason = word.reason.replace("\0", "")
        return _whole(
            here, session, approvals.decide(here.hub, session, here.who, found, word.agreed, reason, word.days)
        )


@router.post("/api/requests/{number}/comments", status_code=201)
def comment(number: Number, said: CommentFacts, here: Worker) -> RequestFacts:
    """Add a comment."""
    with here.hub.database.writing() as session:
        found = approvals.find(here.hub, session, here.who, number)
        approvals.comment(here.hub, session, here.who, found, said.text.replace("\0", ""))
        session.flush()
        return _whole(here, session, found)


@router.post("/api/requests/{number}/withdraw")
def withdraw(number: Number, here: Worker) -> RequestFacts:
    """Withdraw one's own request."""
    with here.hub.database.writing() as session:
        found = approvals.find(here.hub, session, here.who, number)
        return _whole(here, session, approvals.withdraw(here.hub, session, here.who, found))


@router.post("/api/requests/{number}/revoke")
def revoke(number: Number, said: CommentFacts, here: Sharer) -> RequestFacts:
    """Revoke a grant."""
    with here.hub.database.writing() as session:
        found = approvals.find(here.hub, session, here.who, number)
        reason = said.text.replace("\0", "")
        return _whole(here, session, approvals.revoke(here.hub, session, here.who, found, reason))


@router.get("/api/notices")
def told(here: Reader) -> list[NoticeList]:
    """Return the caller's newest notifications."""
    with here.hub.database.reading() as session:
        found = notices.mine(session, here.who)
    return [NoticeList(id=one.id, text=one.text, link=one.link, time=one.created, read=one.read) for one in found]


def _shown(here: Visitor, session: Session, one: models.Request) -> RequestFacts:
    return RequestFacts(
        id=one.id,
        kind="access" if one.kind == "access" else "release",
        dataset=one.dataset.name,
        person=one.person.name,
        role=one.role,
        purpose=one.purpose,
        text=one.text,
        needs=one.needs,
        state=one.state,
        job=one.job_id,
        plan=plan_for(here.hub, session, here.who, one.job, here.environment) if one.job else None,
        created=one.created,
        ends=one.ends,
    )


def _whole(here: Visitor, session: Session, one: models.Request) -> RequestFacts:
    session.flush()
    session.refresh(one)
    shown = _shown(here, session, one)
    shown.decisions = [
        DecisionBody(person=said.person.name, agreed=said.agreed, reason=said.reason, time=said.created)
        for said in decisions(session, one)
    ]
    shown.comments = [
        CommentedFacts(person=said.person.name, text=said.text, time=said.created) for said in comments(session, one)
    ]
    return shown

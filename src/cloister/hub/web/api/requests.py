"""Requests and notices for programs."""

from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Path
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from cloister.hub import models, requests
from cloister.hub.requests import notices
from cloister.hub.requests.deciding import ACCESS_DAYS, comments, decisions
from cloister.hub.web.context import Visitor, scoped
from cloister.hub.web.pages.requests import to_decide
from cloister.hub.work.gateway import find_dataset

__all__ = ["router"]

router = APIRouter(tags=["requests"])
Reader = Annotated[Visitor, Depends(scoped("read"))]
Worker = Annotated[Visitor, Depends(scoped("work"))]
Sharer = Annotated[Visitor, Depends(scoped("share"))]
Number = Annotated[int, Path(ge=1, lt=2**31)]
_MOST = 200


class Asked(BaseModel):
    """A request for access."""

    dataset: str = Field(max_length=200)
    role: str = Field(max_length=200)
    purpose: str = Field(max_length=200)
    text: str = Field(max_length=4000, description="what the data are needed for")


class Word(BaseModel):
    """A reviewer's decision."""

    agreed: bool
    reason: str = Field(default="", max_length=4000, description="needed if it is denied")
    days: int = Field(default=ACCESS_DAYS, ge=1, le=3650, description="how long a granted access lasts")


class Said(BaseModel):
    """A sentence: a comment, or a reason."""

    text: str = Field(min_length=1, max_length=4000)


class Decided(BaseModel):
    """What a reviewer said."""

    person: str
    agreed: bool
    reason: str
    time: float


class Commented(BaseModel):
    """A comment."""

    person: str
    text: str
    time: float


class Shown(BaseModel):
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
    decisions: list[Decided] = []
    comments: list[Commented] = []


class Listed(BaseModel):
    """Requests that concern me."""

    mine: list[Shown]
    waiting: list[Shown] = Field(description="for my decision")


class Told(BaseModel):
    """A notice."""

    id: int
    text: str
    link: str
    time: float
    read: bool


@router.get("/api/requests")
def listed(here: Reader) -> Listed:
    """What I asked for, and what waits for my decision."""
    own = sa.select(models.Request).where(models.Request.person_id == here.who.id)
    with here.hub.database.reading() as session:
        mine = list(session.scalars(own.order_by(models.Request.id.desc()).limit(_MOST)))
        waiting = to_decide(here.hub, session, here.who)
    return Listed(mine=[*map(_shown, mine)], waiting=[*map(_shown, waiting)])


@router.post("/api/requests", status_code=201)
def ask(asked: Asked, here: Worker) -> Shown:
    """Ask for a role of a dataset's policy."""
    with here.hub.database.writing() as session:
        dataset = find_dataset(here.hub, session, here.who, asked.dataset, here.environment)
        made = requests.ask_access(
            here.hub, session, here.who, dataset, asked.role, asked.purpose, asked.text.replace("\0", "")
        )
        return _whole(session, made)


@router.get("/api/requests/{number}")
def shown(number: Number, here: Reader) -> Shown:
    """One request, with decisions and comments."""
    with here.hub.database.reading() as session:
        return _whole(session, requests.find(here.hub, session, here.who, number))


@router.post("/api/requests/{number}/decision")
def decide(number: Number, word: Word, here: Sharer) -> Shown:
    """Agree to it, or deny it."""
    with here.hub.database.writing() as session:
        found = requests.find(here.hub, session, here.who, number)
        reason = word.reason.replace("\0", "")
        return _whole(session, requests.decide(here.hub, session, here.who, found, word.agreed, reason, word.days))


@router.post("/api/requests/{number}/comments", status_code=201)
def comment(number: Number, said: Said, here: Worker) -> Shown:
    """Say something below it."""
    with here.hub.database.writing() as session:
        found = requests.find(here.hub, session, here.who, number)
        requests.comment(here.hub, session, here.who, found, said.text.replace("\0", ""))
        session.flush()
        return _whole(session, found)


@router.post("/api/requests/{number}/withdraw")
def withdraw(number: Number, here: Worker) -> Shown:
    """Take one's own request back."""
    with here.hub.database.writing() as session:
        found = requests.find(here.hub, session, here.who, number)
        return _whole(session, requests.withdraw(here.hub, session, here.who, found))


@router.post("/api/requests/{number}/revoke")
def revoke(number: Number, said: Said, here: Sharer) -> Shown:
    """Take back what was granted."""
    with here.hub.database.writing() as session:
        found = requests.find(here.hub, session, here.who, number)
        reason = said.text.replace("\0", "")
        return _whole(session, requests.revoke(here.hub, session, here.who, found, reason))


@router.get("/api/notices")
def told(here: Reader) -> list[Told]:
    """My newest notices."""
    with here.hub.database.reading() as session:
        found = notices.mine(session, here.who)
    return [Told(id=one.id, text=one.text, link=one.link, time=one.created, read=one.read) for one in found]


def _shown(one: models.Request) -> Shown:
    return Shown(
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
        plan=one.job.plan if one.job else None,
        created=one.created,
        ends=one.ends,
    )


def _whole(session: Session, one: models.Request) -> Shown:
    session.flush()
    session.refresh(one)
    shown = _shown(one)
    shown.decisions = [
        Decided(person=said.person.name, agreed=said.agreed, reason=said.reason, time=said.created)
        for said in decisions(session, one)
    ]
    shown.comments = [
        Commented(person=said.person.name, text=said.text, time=said.created) for said in comments(session, one)
    ]
    return shown

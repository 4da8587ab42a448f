"""API of requests and notifications."""

from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Path
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session
from starlette.responses import Response

from cloister.hub import approvals
from cloister.hub.approvals.decision import ACCESS_DAYS, comments, decisions_for
from cloister.hub.core import models, notices
from cloister.hub.jobs import output_check
from cloister.hub.jobs.authorise import plan_for
from cloister.hub.jobs.gateway import find_dataset
from cloister.hub.web.api.tables import download
from cloister.hub.web.context import Visitor, scoped
from cloister.hub.web.pages.requests import output_of, to_decide

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


class DecisionBody(BaseModel):
    """A reviewer's decision."""

    agreed: bool
    reason: str = Field(default="", max_length=4000, description="needed if it is denied")
    days: int = Field(default=ACCESS_DAYS, ge=1, le=3650, description="how long a granted access lasts")
    digest: str = Field(default="", max_length=64, description="of the output that you looked at, for an output")


class SentenceBody(BaseModel):
    """A sentence: a comment, or a reason."""

    text: str = Field(min_length=1, max_length=4000)


class DecisionFacts(BaseModel):
    """Decision of a reviewer."""

    person: str
    agreed: bool
    reason: str
    time: float


class OutputFacts(BaseModel):
    """Output that waits, for those who decide on it."""

    digest: str = Field(description="of the sealed bytes; a decision names it")
    failure: str = Field(description="why no table could be made; empty if one was")
    result: dict[str, Any] | None = Field(description="as it would be released, without the file")


class CommentFacts(BaseModel):
    """A comment."""

    person: str
    text: str
    time: float


class RequestFacts(BaseModel):
    """A request."""

    id: int
    kind: Literal["access", "release", "output"]
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
    decisions: list[DecisionFacts] = []
    comments: list[CommentFacts] = []


class RequestList(BaseModel):
    """Requests that concern the caller."""

    mine: list[RequestFacts]
    waiting: list[RequestFacts] = Field(description="for my decision")


class NoticeFacts(BaseModel):
    """A notification."""

    id: int
    text: str
    link: str
    time: float
    read: bool


@router.get("/api/requests")
def listed(visitor: Reader) -> RequestList:
    """Return the caller's requests, and those that wait for their decision."""
    query = sa.select(models.Request).where(models.Request.person_id == visitor.who.id)
    with visitor.hub.database.reading() as session:
        mine = list(session.scalars(query.order_by(models.Request.id.desc()).limit(_MOST)))
        waiting = to_decide(visitor.hub, session, visitor.who)
        return RequestList(
            mine=[_shown(visitor, session, request) for request in mine],
            waiting=[_shown(visitor, session, request) for request in waiting],
        )


@router.post("/api/requests", status_code=201)
def ask(asked: AccessRequestBody, visitor: Worker) -> RequestFacts:
    """Ask for a role of a dataset's policy."""
    with visitor.hub.database.writing() as session:
        dataset = find_dataset(visitor.hub, session, visitor.who, asked.dataset, visitor.environment)
        request = approvals.ask_access(
            visitor.hub, session, visitor.who, dataset, asked.role, asked.purpose, asked.text.replace("\0", "")
        )
        return _whole(visitor, session, request)


@router.get("/api/requests/{number}")
def shown(number: Number, visitor: Reader) -> RequestFacts:
    """Return one request, with decisions and comments."""
    with visitor.hub.database.reading() as session:
        return _whole(visitor, session, approvals.find(visitor.hub, session, visitor.who, number))


@router.post("/api/requests/{number}/decision")
def decide(number: Number, word: DecisionBody, visitor: Sharer) -> RequestFacts:
    """Agree to it, or deny it."""
    with visitor.hub.database.writing() as session:
        request = approvals.find(visitor.hub, session, visitor.who, number)
        reason = word.reason.replace("\0", "")
        if request.kind == "output":
            decided = output_check.decide(visitor.hub, session, visitor.who, request, word.agreed, reason, word.digest)
            return _whole(visitor, session, decided)
        return _whole(
            visitor,
            session,
            approvals.decide(visitor.hub, session, visitor.who, request, word.agreed, reason, word.days),
        )


@router.get("/api/requests/{number}/output")
def output(number: Number, visitor: Sharer) -> OutputFacts:
    """Return what an anonymised release would be: some rows, the verifier's values, its risks."""
    seen = output_of(visitor, number, "output.seen")
    result = None if seen.result is None else {name: part for name, part in seen.result.items() if name != "file"}
    return OutputFacts(digest=seen.digest, failure=seen.failure, result=result)


@router.get("/api/requests/{number}/output/file", response_class=Response)
def output_file(number: Number, visitor: Sharer) -> Response:
    """Return the whole file that would be released, as Parquet."""
    content = output_of(visitor, number, "output.downloaded", file=True).content
    return download(content, f"output-of-request-{number}.parquet", "application/vnd.apache.parquet")


@router.post("/api/requests/{number}/comments", status_code=201)
def comment(number: Number, said: SentenceBody, visitor: Worker) -> RequestFacts:
    """Add a comment."""
    with visitor.hub.database.writing() as session:
        request = approvals.find(visitor.hub, session, visitor.who, number)
        approvals.comment(visitor.hub, session, visitor.who, request, said.text.replace("\0", ""))
        session.flush()
        return _whole(visitor, session, request)


@router.post("/api/requests/{number}/withdraw")
def withdraw(number: Number, visitor: Worker) -> RequestFacts:
    """Withdraw one's own request."""
    with visitor.hub.database.writing() as session:
        request = approvals.find(visitor.hub, session, visitor.who, number)
        return _whole(visitor, session, approvals.withdraw(visitor.hub, session, visitor.who, request))


@router.post("/api/requests/{number}/revoke")
def revoke(number: Number, said: SentenceBody, visitor: Sharer) -> RequestFacts:
    """Revoke a grant."""
    with visitor.hub.database.writing() as session:
        request = approvals.find(visitor.hub, session, visitor.who, number)
        reason = said.text.replace("\0", "")
        return _whole(visitor, session, approvals.revoke(visitor.hub, session, visitor.who, request, reason))


@router.get("/api/notices")
def told(visitor: Reader) -> list[NoticeFacts]:
    """Return the caller's newest notifications."""
    with visitor.hub.database.reading() as session:
        rows = notices.mine(session, visitor.who)
    return [
        NoticeFacts(id=notice.id, text=notice.text, link=notice.link, time=notice.created, read=notice.read)
        for notice in rows
    ]


def _shown(visitor: Visitor, session: Session, request: models.Request) -> RequestFacts:
    return RequestFacts(
        id=request.id,
        kind=_kind(request),
        dataset=request.dataset.name,
        person=request.person.name,
        role=request.role,
        purpose=request.purpose,
        text=request.text,
        needs=request.needs,
        state=request.state,
        job=request.job_id,
        plan=plan_for(visitor.hub, session, visitor.who, request.job, visitor.environment) if request.job else None,
        created=request.created,
        ends=request.ends,
    )


def _kind(request: models.Request) -> Literal["access", "release", "output"]:
    if request.kind == "output":
        return "output"
    return "access" if request.kind == "access" else "release"


def _whole(visitor: Visitor, session: Session, request: models.Request) -> RequestFacts:
    session.flush()
    session.refresh(request)
    facts = _shown(visitor, session, request)
    facts.decisions = [
        DecisionFacts(
            person=decision.person.name, agreed=decision.agreed, reason=decision.reason, time=decision.created
        )
        for decision in decisions_for(session, visitor.who, request)
    ]
    facts.comments = [
        CommentFacts(person=comment.person.name, text=comment.text, time=comment.created)
        for comment in comments(session, request)
    ]
    return facts

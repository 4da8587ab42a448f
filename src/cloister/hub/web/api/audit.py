"""Audit log API for auditors and operators."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse

from cloister.hub.web.context import Visitor, scoped
from cloister.hub.web.pages.audit import export_lines
from cloister.privacy.errors import Broken, Denied

__all__ = ["router"]

router = APIRouter(tags=["audit"])


def _reader(visitor: Annotated[Visitor, Depends(scoped("read"))]) -> Visitor:
    if not visitor.has("auditor", "operator"):
        raise Denied("this is for the role auditor or operator.")
    return visitor


Reader = Annotated[Visitor, Depends(_reader)]
Text = Annotated[str, Query(max_length=200)]
_FUTURE = 10**11


class AuditEntryFacts(BaseModel):
    """One entry of the log."""

    number: int
    time: float
    person: int | None = Field(description="who; null for the hub itself")
    action: str
    object: str
    detail: dict[str, Any]
    previous: str
    hash: str


class AuditCheck(BaseModel):
    """Result of a check of the chain."""

    ok: bool
    entries: int
    reason: str
    head: str | None


@router.get("/api/audit")
def search(
    visitor: Reader,
    person: Annotated[int | None, Query(ge=0, lt=2**31)] = None,
    action: Text = "",
    object: Text = "",  # noqa: A002
    text: Text = "",
    since: Annotated[float | None, Query(ge=0, le=_FUTURE)] = None,
    until: Annotated[float | None, Query(ge=0, le=_FUTURE)] = None,
    before: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
    most: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[AuditEntryFacts]:
    """Return entries, newest first; `before` is for the next page."""
    action, object, text = (term.replace("\0", "") for term in (action, object, text))  # noqa: A001
    with visitor.hub.database.reading() as session:
        entries = visitor.hub.audit.search(
            session,
            person_id=person,
            action=action,
            object=object,
            text=text,
            since=since,
            until=until,
            before=before,
            most=most,
        )
    visitor.hub.audit.record(visitor.who.id, "audit.searched", "audit", action=action, object=object, text=text)
    return [
        AuditEntryFacts(
            number=entry.number,
            time=entry.time,
            person=entry.person_id,
            action=entry.action,
            object=entry.object,
            detail=entry.detail,
            previous=entry.previous,
            hash=entry.hash,
        )
        for entry in entries
    ]


@router.get("/api/audit/verify")
def verify(visitor: Reader) -> AuditCheck:
    """Recompute the chain."""
    with visitor.hub.database.reading() as session:
        try:
            count, reason = visitor.hub.audit.verify(session), ""
        except Broken as error:
            count, reason = 0, str(error)
        head = visitor.hub.audit.head(session)
    visitor.hub.audit.record(visitor.who.id, "audit.verified", "audit", ok=not reason, entries=count)
    return AuditCheck(ok=not reason, entries=count, reason=reason, head=str(head) if head else None)


@router.get("/api/audit/export", response_class=Response)
def export(visitor: Reader) -> Response:
    """Return the whole log as JSON lines with a signed head, for `verify_export`."""
    visitor.hub.audit.record(visitor.who.id, "audit.exported", "audit")
    return StreamingResponse(export_lines(visitor.hub), media_type="application/x-ndjson")

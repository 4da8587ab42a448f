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
    here: Reader,
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
    with here.hub.database.reading() as session:
        entries = here.hub.audit.search(
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
    here.hub.audit.record(here.who.id, "audit.searched", "audit", action=action, object=object, text=text)
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
def verify(here: Reader) -> AuditCheck:
    """Recompute the chain."""
    with here.hub.database.reading() as session:
        try:
            count, reason = here.hub.audit.verify(session), ""
        except Broken as error:
            count, reason = 0, str(error)
        head = here.hub.audit.head(session)
    here.hub.audit.record(here.who.id, "audit.verified", "audit", ok=not reason, entries=count)
    return AuditCheck(ok=not reason, entries=count, reason=reason, head=str(head) if head else None)


@router.get("/api/audit/export", response_class=Response)
def export(here: Reader) -> Response:
    """Return the whole log as JSON lines with a signed head, for `verify_export`."""
    here.hub.audit.record(here.who.id, "audit.exported", "audit")
    return StreamingResponse(export_lines(here.hub), media_type="application/x-ndjson")

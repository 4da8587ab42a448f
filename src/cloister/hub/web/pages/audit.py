"""Audit log: search, check, export. For auditors, and for operators, whose own actions are in it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response, StreamingResponse

from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Person
from cloister.hub.web.context import Visitor, page, with_role
from cloister.privacy.errors import BadForm, Broken

__all__ = ["export_lines", "moment", "router"]

router = APIRouter()
Reader = Annotated[Visitor, Depends(with_role("auditor", "operator"))]
_A_PAGE = 100


@router.get("/audit")
def search(
    request: Request,
    visitor: Reader,
    person: str = "",
    action: str = "",
    object: str = "",  # noqa: A002
    since: str = "",
    until: str = "",
    text: str = "",
    before: int = 0,
) -> Response:
    """Show entries, newest first."""
    filters = {"person": person, "action": action, "object": object, "since": since, "until": until, "text": text}
    return _page(request, visitor, filters, before)


@router.post("/audit/verify")
def verify(request: Request, visitor: Reader) -> Response:
    """Recompute the chain."""
    with visitor.hub.database.reading() as session:
        try:
            count, problem = visitor.hub.audit.verify(session), ""
        except Broken as error:
            count, problem = 0, str(error).partition(": ")[2]
    visitor.hub.audit.record(visitor.who.id, "audit.verified", "audit", ok=not problem, entries=count)
    checked = (problem, "bad") if problem else (f"All {count:,} entries hold: hashes, order, signed heads.", "good")
    return _page(request, visitor, {}, 0, checked)


@router.get("/audit/export")
def export(visitor: Reader) -> Response:
    """Return the whole log as JSON lines with a signed head."""
    visitor.hub.audit.record(visitor.who.id, "audit.exported", "audit")
    name = {"Content-Disposition": 'attachment; filename="cloister-audit.jsonl"'}
    return StreamingResponse(export_lines(visitor.hub), media_type="application/x-ndjson", headers=name)


def export_lines(hub: Hub) -> Iterator[bytes]:
    """Yield the export as it is read."""
    with hub.database.reading() as session:
        yield from hub.audit.export(session)


def _page(
    request: Request, visitor: Visitor, filters: dict[str, str], before: int, checked: tuple[str, str] = ("", "")
) -> Response:
    fields = dict.fromkeys(("person", "action", "object", "since", "until", "text"), "") | filters
    with visitor.hub.database.reading() as session:
        people = {person.id: person for person in session.scalars(sa.select(Person))}
        who = _who(fields["person"], list(people.values()))
        entries = (
            [] if who == -1 else visitor.hub.audit.search(session, **_wanted(fields, who, before), most=_A_PAGE + 1)
        )
    if any(filters.values()):  # a search is recorded too
        visitor.hub.audit.record(visitor.who.id, "audit.searched", "audit", **{k: v for k, v in filters.items() if v})
    return page(
        request,
        "audit.html",
        entries=entries[:_A_PAGE],
        people=people,
        asked=fields,
        before=entries[_A_PAGE - 1].number if len(entries) > _A_PAGE else 0,
        later=bool(before),
        checked=checked,
        key=str(visitor.hub.key.public),
    )


def _wanted(fields: dict[str, str], who: int | None, before: int) -> dict[str, Any]:
    until = moment(fields["until"], "Until", end=True)
    return {
        "person_id": who,
        "action": fields["action"].strip(),
        "object": fields["object"].strip(),
        "since": moment(fields["since"], "From"),
        "until": until,
        "text": fields["text"].strip(),
        "before": before if 0 < before < 2**31 else None,
    }


def _who(text: str, people: list[Person]) -> int | None:
    """Return a user's id by id, address or name; None for all, -1 for none."""
    word = text.strip().lower()
    if not word:
        return None
    same = (person.id for person in people if word in (str(person.id), person.email.lower(), person.name.lower()))
    return next(same, -1)


def moment(text: str, label: str, end: bool = False) -> float | None:
    """Return a day or a time as seconds since 1970; the end of the day if requested."""
    if not text.strip():
        return None
    try:
        instant = datetime.fromisoformat(text.strip())
        instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
        if end and len(text.strip()) == 10:
            instant += timedelta(days=1)
        return instant.timestamp()
    except (ValueError, OverflowError):
        raise BadForm(f"'{label}' must be a day such as 2026-03-01.") from None

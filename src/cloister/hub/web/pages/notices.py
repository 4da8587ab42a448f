"""Notification pages, newest first."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from cloister.hub.core import notices
from cloister.hub.web.context import Visitor, go, page, signed_in
from cloister.privacy.errors import NotHere

__all__ = ["router"]

router = APIRouter()
SignedIn = Annotated[Visitor, Depends(signed_in)]
_A_PAGE = 50


@router.get("/notices")
def shown(request: Request, visitor: SignedIn, before: int = 0) -> Response:
    """Show one's own notifications."""
    after = before if 0 < before < 2**31 else None
    with visitor.hub.database.reading() as session:
        rows = notices.mine(session, visitor.who, _A_PAGE + 1, after)
    older = rows[_A_PAGE - 1].id if len(rows) > _A_PAGE else 0
    return page(request, "notices.html", notices=rows[:_A_PAGE], before=older, later=bool(after))


@router.post("/notices/read")
def read_all(request: Request, visitor: SignedIn) -> Response:
    """Mark all as read."""
    with visitor.hub.database.writing() as session:
        notices.read_all(session, visitor.who)
    return go(request, "/notices")


@router.post("/notices/{number}")
def open_one(request: Request, number: int, visitor: SignedIn) -> Response:
    """Mark one as read and redirect to its link."""
    with visitor.hub.database.writing() as session:
        notice = notices.read_one(session, visitor.who, number) if 0 < number < 2**31 else None
    if notice is None:
        raise NotHere("there is no such notice of yours.")
    return go(request, notice.link or "/notices")

"""Pages of all users, for operators: invitations, roles, organisations, reset links, closing accounts."""

from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from cloister.hub.core.models import ROLES, Organisation, Person
from cloister.hub.users import user_actions
from cloister.hub.users.roles import person_here
from cloister.hub.web.context import Visitor, form, go, page, with_role
from cloister.hub.web.forms import Form
from cloister.hub.web.problems import status_of
from cloister.privacy.errors import BadForm, CloisterError, Denied, NotHere, NotNow

__all__ = ["router"]

router = APIRouter()
Operator = Annotated[Visitor, Depends(with_role("operator"))]
Sent = Annotated[Form, Depends(form)]
_MOST = 200
_REFUSALS = (BadForm, Denied, NotNow)


@router.get("/people")
def show(request: Request, visitor: Operator, search: str = "") -> Response:
    """Show all users, and the forms to invite one and to create an organisation."""
    return _everybody(request, visitor, search=search)


@router.post("/people/invite")
def invite(request: Request, visitor: Operator, sent: Sent) -> Response:
    """Create an invitation. Its link is shown once, on this page."""
    try:
        email = sent.text("email", "E-mail address")
        secret = user_actions.invite(
            visitor.hub,
            visitor.who,
            email=email,
            organisation=_organisation(sent),
            roles=sent.all("roles"),
            days=sent.number("days", "Days", low=1, high=30),
        )
    except _REFUSALS as problem:
        return _everybody(request, visitor, problem=problem)
    return _everybody(request, visitor, link=_address(visitor, "invitation", secret), link_for=email)


@router.post("/people/organisations")
def make_organisation(request: Request, visitor: Operator, sent: Sent) -> Response:
    """Create an organisation."""
    try:
        organisation = user_actions.make_organisation(
            visitor.hub, visitor.who, sent.get("organisation_name", ""), sent.get("country", "")
        )
    except _REFUSALS as problem:
        return _everybody(request, visitor, problem=problem)
    return go(request, "/people", said=f"{organisation.name} is added.")


@router.get("/people/{number}")
def show_one(request: Request, number: int, visitor: Operator) -> Response:
    """Show one user."""
    return _one(request, visitor, number)


@router.post("/people/{number}/roles")
def set_roles(request: Request, number: int, visitor: Operator, sent: Sent) -> Response:
    """Set a user's roles to exactly these."""
    try:
        user_actions.set_roles(visitor.hub, visitor.who, number, sent.all("roles"))
    except _REFUSALS as problem:
        return _one(request, visitor, number, problem=problem)
    # A user who gave up the last role that opens this page would be refused there.
    stays = number != visitor.who.id or "operator" in sent.all("roles")
    return go(request, f"/people/{number}" if stays else "/", said="The roles are set.")


@router.post("/people/{number}/organisation")
def set_organisation(request: Request, number: int, visitor: Operator, sent: Sent) -> Response:
    """Set a user's organisation."""
    try:
        user_actions.set_organisation(visitor.hub, visitor.who, number, _organisation(sent))
    except _REFUSALS as problem:
        return _one(request, visitor, number, problem=problem)
    return go(request, f"/people/{number}", said="The organisation is set.")


@router.post("/people/{number}/reset")
def make_reset_link(request: Request, number: int, visitor: Operator, sent: Sent) -> Response:
    """Create a link to set a new password. It is shown once, on this page."""
    try:
        secret = user_actions.make_reset_link(
            visitor.hub, visitor.who, number, second_factor=sent.ticked("second_factor")
        )
    except _REFUSALS as problem:
        return _one(request, visitor, number, problem=problem)
    return _one(request, visitor, number, link=_address(visitor, "reset", secret))


@router.post("/people/{number}/verify")
def make_verify_link(request: Request, number: int, visitor: Operator) -> Response:
    """Create a link that verifies the address, to be passed on. It is shown once, on this page."""
    try:
        secret = user_actions.make_verify_link(visitor.hub, visitor.who, number)
    except _REFUSALS as problem:
        return _one(request, visitor, number, problem=problem)
    return _one(request, visitor, number, verify_link=_address(visitor, "verify", secret))


@router.post("/people/{number}/close")
def close(request: Request, number: int, visitor: Operator) -> Response:
    """Close an account."""
    try:
        user_actions.set_active(visitor.hub, visitor.who, number, False)
    except _REFUSALS as problem:
        return _one(request, visitor, number, problem=problem)
    return go(request, f"/people/{number}", said="The account is closed.")


@router.post("/people/{number}/open")
def reopen(request: Request, number: int, visitor: Operator) -> Response:
    """Reopen a closed account."""
    user_actions.set_active(visitor.hub, visitor.who, number, True)
    return go(request, f"/people/{number}", said="The account is open again.")


def _everybody(
    request: Request,
    visitor: Visitor,
    *,
    search: str = "",
    problem: CloisterError | None = None,
    **values: Any,
) -> Response:
    wanted = sa.select(Person).order_by(Person.name, Person.id).limit(_MOST + 1)
    if search.strip():
        text = search.replace("\0", "").strip()[:200]
        wanted = wanted.where(
            Person.name.icontains(text, autoescape=True) | Person.email.icontains(text, autoescape=True)
        )
    with visitor.hub.database.reading() as session:
        people = list(session.scalars(wanted))
        organisations = _organisations(session)
    return page(
        request,
        "people.html",
        status_of(problem) if problem else 200,
        **{
            "people": people[:_MOST],
            "more": len(people) > _MOST,
            "organisations": organisations,
            "all_roles": ROLES,
            "search": search,
            "problem": _words(problem),
            "link": "",
            "link_for": "",
            **values,
        },
    )


def _one(
    request: Request,
    visitor: Visitor,
    number: int,
    *,
    problem: CloisterError | None = None,
    link: str = "",
    verify_link: str = "",
) -> Response:
    with visitor.hub.database.reading() as session:
        person, organisations = person_here(session, number), _organisations(session)
    return page(
        request,
        "person.html",
        status_of(problem) if problem else 200,
        one=person,
        me=person.id == visitor.who.id,
        organisations=organisations,
        all_roles=ROLES,
        problem=_words(problem),
        link=link,
        verify_link=verify_link,
    )


def _organisations(session: Any) -> list[tuple[str, str]]:
    wanted = sa.select(Organisation).order_by(Organisation.name)
    return [
        (
            str(organisation.id),
            f"{organisation.name}, {organisation.country}" if organisation.country else organisation.name,
        )
        for organisation in session.scalars(wanted)
    ]


def _organisation(sent: Form) -> int | None:
    text = sent.maybe("organisation", most=20)
    if text and not (text.isascii() and text.isdigit()):
        raise NotHere("there is no such organisation.")
    return int(text) if text else None


def _address(visitor: Visitor, purpose: str, secret: str) -> str:
    return f"{visitor.hub.settings.address.rstrip('/')}/{purpose}/{secret}"


def _words(problem: CloisterError | None) -> str:
    return str(problem).removeprefix(f"{problem.code}: ") if problem else ""

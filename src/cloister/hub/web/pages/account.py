"""One's own account: password, second factor, tokens, sessions."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from cloister.hub.core.models import Person
from cloister.hub.users import sessions, sign_in, tokens, totp, user_actions
from cloister.hub.users.passwords import SHORTEST
from cloister.hub.web.context import Visitor, form, go, page, signed_in
from cloister.hub.web.forms import Form
from cloister.hub.web.problems import status_of
from cloister.hub.web.security import cookie_name, set_cookie
from cloister.privacy.errors import BadForm, CloisterError, NotNow, SignInFailed, TooMany

__all__ = ["router"]

router = APIRouter()
Me = Annotated[Visitor, Depends(signed_in)]
Sent = Annotated[Form, Depends(form)]
_SCOPES = (
    ("read", "Read", "See datasets, schemas, mock data and your own jobs."),
    ("work", "Work", "Plan and run; this spends from your budgets."),
    ("share", "Share", "What an owner does: upload, change policies, decide about requests."),
)


@router.get("/account")
def show(request: Request, visitor: Me) -> Response:
    """Show one's own account."""
    return _page(request, visitor)


@router.post("/account/password")
def change_password(request: Request, visitor: Me, sent: Sent) -> Response:
    """Change the password; all sessions end."""
    try:
        if sent.get("new", "") != sent.get("again", ""):
            raise BadForm("the two new passwords differ. Type the same one twice.")
        old, new = sent.get("current", ""), sent.get("new", "")
        user_actions.change_password(
            visitor.hub, visitor.who, old, new, visitor.address, end_tokens=sent.ticked("end_tokens")
        )
    except (BadForm, SignInFailed, TooMany) as problem:
        return _page(request, visitor, problem=problem)
    return go(request, "/sign-in?after=password")


@router.post("/account/verify")
def ask_verify_link(request: Request, visitor: Me) -> Response:
    """Send a link to one's own address that verifies it."""
    try:
        user_actions.ask_verify_link(visitor.hub, visitor.who)
    except (NotNow, TooMany) as problem:
        return _page(request, visitor, problem=problem)
    return go(request, "/account", said="A link is on its way to your address. Open it in this browser.")


@router.post("/account/second-factor")
def begin_factor(request: Request, visitor: Me, sent: Sent) -> Response:
    """Show a secret for an app, after the password: an unattended browser must not lock its user out."""
    try:
        sign_in.prove(visitor.hub, visitor.who, sent.get("factor_password", ""), visitor.address)
        sign_in.enroll_factor(visitor.hub, visitor.who)
    except (SignInFailed, TooMany, NotNow) as problem:
        return _page(request, visitor, problem=problem)
    return go(request, "/account#second-factor")


@router.post("/account/second-factor/confirm")
def confirm_factor(request: Request, visitor: Me, sent: Sent) -> Response:
    """Confirm the app with its first code. The other sessions end, and this one has a new secret."""
    secret = request.cookies.get(cookie_name(visitor.hub.settings), "")
    try:
        entered = sign_in.confirm_factor(visitor.hub, secret, sent.get("code", ""), visitor.address)
    except (BadForm, NotNow) as problem:
        return _page(request, visitor, problem=problem)
    response = go(request, "/account")
    set_cookie(response, visitor.hub.settings, entered.secret, hours=visitor.hub.settings.session_hours)
    return response


@router.post("/account/second-factor/cancel")
def cancel_factor(request: Request, visitor: Me) -> Response:
    """Delete a secret that was not confirmed."""
    with visitor.hub.database.writing() as session:
        totp.cancel(session, visitor.who)
    return go(request, "/account")


@router.post("/account/second-factor/remove")
def remove_factor(request: Request, visitor: Me, sent: Sent) -> Response:
    """Remove the second factor, with one of its codes."""
    try:
        sign_in.remove_factor(visitor.hub, visitor.who, sent.get("code", ""), visitor.address)
    except (SignInFailed, TooMany, NotNow) as problem:
        return _page(request, visitor, problem=problem)
    return go(request, "/account", said="The second factor is removed.")


@router.post("/account/tokens")
def make_token(request: Request, visitor: Me, sent: Sent) -> Response:
    """Create a token, after the password: an unattended browser creates none. It is shown once, on this page."""
    try:
        days = sent.number("days", "Days", low=1, high=366)
        sign_in.prove(visitor.hub, visitor.who, sent.get("token_password", ""), visitor.address)
        secret = user_actions.make_token(visitor.hub, visitor.who, sent.get("label", ""), sent.all("scopes"), days)
    except (BadForm, NotNow, SignInFailed, TooMany) as problem:
        return _page(request, visitor, problem=problem)
    return _page(request, visitor, token=secret)


@router.post("/account/tokens/{number}/revoke")
def revoke_token(request: Request, number: int, visitor: Me) -> Response:
    """Revoke a token."""
    user_actions.revoke_token(visitor.hub, visitor.who, number)
    return go(request, "/account", said="The token is revoked.")


@router.post("/account/sessions/end")
def end_sessions(request: Request, visitor: Me) -> Response:
    """Sign out everywhere."""
    user_actions.end_sessions(visitor.hub, visitor.who)
    return go(request, "/sign-in?after=sessions")


def _page(request: Request, visitor: Visitor, *, problem: CloisterError | None = None, token: str = "") -> Response:
    with visitor.hub.database.reading() as session:
        me = session.get_one(Person, visitor.who.id)
        mine, open_sessions = tokens.of(session, me), sessions.of(session, me)
    return page(
        request,
        "account.html",
        status_of(problem) if problem else 200,
        me=me,
        tokens=mine,
        sessions=open_sessions,
        this=visitor.session,
        token=token,
        scopes=_SCOPES,
        shown=totp.pending(visitor.hub.keys, me, visitor.hub.settings.name),
        required=visitor.hub.settings.require_totp,
        mails=bool(visitor.hub.settings.mail_folder or visitor.hub.settings.smtp_url),
        shortest=SHORTEST,
        problem=str(problem).removeprefix(f"{problem.code}: ") if problem else "",
    )

"""Sign-in pages: password, second factor, new account, new password by a link, sign-out."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from cloister.hub.users import accounts, one_time_links, sign_in, totp, user_actions
from cloister.hub.users.passwords import SHORTEST
from cloister.hub.users.sign_in import Entered
from cloister.hub.web.context import Visitor, form, go, page, signed_in, visitor
from cloister.hub.web.forms import Form, inside
from cloister.hub.web.problems import status_of
from cloister.hub.web.security import cookie_name, drop_cookie, set_cookie
from cloister.privacy.errors import BadForm, CloisterError, Denied, NotNow, SignInFailed, TooMany

__all__ = ["router"]

router = APIRouter()
Anybody = Annotated[Visitor, Depends(visitor)]
Sent = Annotated[Form, Depends(form)]

# Messages for visitors from other pages; a word in the address, so that others cannot set their own text.
_AFTER = {
    "joined": "Your account is made. Sign in.",
    "out": "You are signed out.",
    "password": "Your password is set, and all sessions have ended. Sign in with the new one.",
    "sessions": "All your sessions have ended.",
}


@router.get("/sign-in")
def ask_password(request: Request, visitor: Anybody, next: str = "/", after: str = "") -> Response:  # noqa: A002
    """Show the form for address and password."""
    if visitor.person is not None:
        return go(request, inside(next))
    return _password_page(request, visitor, next, told=_AFTER.get(after, ""))


@router.post("/sign-in")
def check_password(request: Request, visitor: Anybody, sent: Sent) -> Response:
    """Sign in; redirect to the second factor if there is one."""
    wanted = inside(sent.get("next", "/"))
    try:
        entered = sign_in.sign_in(
            visitor.hub,
            email=sent.text("email", "E-mail address", most=300),
            password=sent.get("password", ""),
            address=visitor.address,
            before=_cookie(request, visitor),
        )
    except (SignInFailed, TooMany, BadForm) as problem:
        return _password_page(request, visitor, wanted, problem, email=sent.get("email", ""))
    step = wanted if entered.session.complete else f"/second-factor?next={quote(wanted)}"
    return _with_cookie(go(request, step), visitor, entered)


@router.get("/second-factor")
def ask_code(request: Request, visitor: Anybody, next: str = "/") -> Response:  # noqa: A002
    """Show the form for the code; for a user who must have a second factor and has none, its set-up."""
    if visitor.pending is None:
        return go(request, inside(next) if visitor.person is not None else "/sign-in")
    return _code_page(request, visitor, next)


@router.post("/second-factor")
def check_code(request: Request, visitor: Anybody, sent: Sent) -> Response:
    """Complete the session."""
    wanted = inside(sent.get("next", "/"))
    if visitor.pending is None:
        return go(request, "/sign-in")
    step = sign_in.confirm_factor if visitor.pending.totp_secret is None else sign_in.second_factor
    try:
        entered = step(visitor.hub, _cookie(request, visitor), sent.get("code", ""), visitor.address)
    except (SignInFailed, TooMany, BadForm, NotNow) as problem:
        return _code_page(request, visitor, wanted, problem)
    return _with_cookie(go(request, wanted), visitor, entered)


@router.post("/sign-out")
def leave(request: Request, visitor: Anybody) -> Response:
    """End this session."""
    sign_in.sign_out(visitor.hub, _cookie(request, visitor))
    response = go(request, "/sign-in?after=out")
    drop_cookie(response, visitor.hub.settings)
    return response


@router.get("/sign-up")
def ask_account(request: Request, visitor: Anybody) -> Response:
    """Show the form for a new account, where sign-up is open."""
    if not visitor.hub.settings.open_sign_up:
        raise Denied("this hub is joined by invitation. Ask an operator for one.")
    return page(request, "sign_up.html", shortest=SHORTEST, problem="", email="", name="")


@router.post("/sign-up")
def make_account(request: Request, visitor: Anybody, sent: Sent) -> Response:
    """Create an account."""
    try:
        user_actions.sign_up(
            visitor.hub,
            email=sent.get("email", ""),
            name=sent.get("name", ""),
            password=_twice(sent),
            address=visitor.address,
        )
    except (BadForm, NotNow, TooMany) as problem:
        values = {"shortest": SHORTEST, "email": sent.get("email", ""), "name": sent.get("name", "")}
        return page(request, "sign_up.html", status_of(problem), problem=_words(problem), **values)
    return go(request, "/sign-in?after=joined")


@router.get("/invitation/{secret}")
def show_invitation(request: Request, secret: str, visitor: Anybody) -> Response:
    """Show an invitation, and the form to accept it."""
    return _invitation_page(request, visitor, secret)


@router.post("/invitation/{secret}")
def accept_invitation(request: Request, secret: str, visitor: Anybody, sent: Sent) -> Response:
    """Create the account of an invitation."""
    with visitor.hub.database.reading() as session:
        link, _ = accounts.invitation(session, secret)
    try:
        user_actions.sign_up(
            visitor.hub,
            email=link.detail["email"],
            name=sent.get("name", ""),
            password=_twice(sent),
            address=visitor.address,
            invitation=secret,
        )
    except (BadForm, NotNow) as problem:
        return _invitation_page(request, visitor, secret, problem, sent.get("name", ""))
    return go(request, "/sign-in?after=joined")


@router.get("/verify/{secret}")
def show_verify(request: Request, secret: str, visitor: Annotated[Visitor, Depends(signed_in)]) -> Response:
    """Show the button that verifies one's address; opening the link has no effect."""
    with visitor.hub.database.reading() as session:
        link = one_time_links.look(session, one_time_links.VERIFY, secret)
    return page(request, "verify.html", mine=link.person_id == visitor.who.id, email=visitor.who.email)


@router.post("/verify/{secret}")
def verify(request: Request, secret: str, visitor: Annotated[Visitor, Depends(signed_in)]) -> Response:
    """Verify the address of the account that is signed in."""
    user_actions.verify(visitor.hub, visitor.who, secret)
    return go(request, "/account", said="Your e-mail address is verified.")


@router.get("/reset/{secret}")
def show_reset(request: Request, secret: str, visitor: Anybody) -> Response:
    """Show the form for a new password."""
    return _reset_page(request, visitor, secret)


@router.post("/reset/{secret}")
def set_password(request: Request, secret: str, visitor: Anybody, sent: Sent) -> Response:
    """Set the password. This does not sign in: the second factor is still required."""
    try:
        user_actions.reset_password(visitor.hub, secret, _twice(sent), visitor.address)
    except BadForm as problem:
        return _reset_page(request, visitor, secret, problem)
    return go(request, "/sign-in?after=password")


def _password_page(
    request: Request,
    visitor: Visitor,
    wanted: str,
    problem: CloisterError | None = None,
    email: str = "",
    told: str = "",
) -> Response:
    return page(
        request,
        "sign_in.html",
        status_of(problem) if problem else 200,
        problem=_words(problem),
        next=inside(wanted),
        email=email,
        told=told,
        open_sign_up=visitor.hub.settings.open_sign_up,
    )


def _code_page(request: Request, visitor: Visitor, wanted: str, problem: CloisterError | None = None) -> Response:
    assert visitor.pending is not None
    new = visitor.pending.totp_secret is None
    setup = totp.pending(visitor.hub.keys, visitor.pending, visitor.hub.settings.name) if new else None
    if new and setup is None:
        return go(request, "/sign-in")  # set up meanwhile in another window
    return page(
        request,
        "second_factor.html",
        status_of(problem) if problem else 200,
        problem=_words(problem),
        next=inside(wanted),
        shown=setup,
    )


def _invitation_page(
    request: Request, visitor: Visitor, secret: str, problem: CloisterError | None = None, name: str = ""
) -> Response:
    with visitor.hub.database.reading() as session:
        link, organisation = accounts.invitation(session, secret)
    return page(
        request,
        "invitation.html",
        status_of(problem) if problem else 200,
        problem=_words(problem),
        email=link.detail["email"],
        roles=link.detail["roles"],
        organisation=organisation,
        ends=link.ends,
        name=name,
        shortest=SHORTEST,
    )


def _reset_page(request: Request, visitor: Visitor, secret: str, problem: CloisterError | None = None) -> Response:
    with visitor.hub.database.reading() as session:
        link = one_time_links.look(session, one_time_links.RESET, secret)
    status = status_of(problem) if problem else 200
    factor = bool(link.detail["second_factor"])
    return page(request, "reset.html", status, problem=_words(problem), shortest=SHORTEST, factor=factor)


def _twice(sent: Form) -> str:
    password = sent.get("password", "")
    if password != sent.get("again", ""):
        raise BadForm("the two passwords differ. Type the same one twice.")
    return password


def _words(problem: CloisterError | None) -> str:
    return str(problem).removeprefix(f"{problem.code}: ") if problem else ""


def _cookie(request: Request, visitor: Visitor) -> str:
    return request.cookies.get(cookie_name(visitor.hub.settings), "")


def _with_cookie(response: Response, visitor: Visitor, entered: Entered) -> Response:
    set_cookie(response, visitor.hub.settings, entered.secret, hours=visitor.hub.settings.session_hours)
    return response

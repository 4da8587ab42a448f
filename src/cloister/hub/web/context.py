"""Visitor of a request, their rights, and the rendering of pages.

A page in a few lines (web/pages/example.py; found by `create_app` by itself):

    router = APIRouter()

    @router.get("/datasets/{name}/example")
    def show(request: Request, name: str, visitor: Annotated[Visitor, Depends(signed_in)]) -> Response:
        with visitor.hub.database.reading() as session:          # def, not async def: the database may wait
            dataset = find_dataset(session, name)                # raise NotHere(...) and the reader sees a 404 page
        return page(request, "example.html", dataset=dataset)    # `visitor`, `csrf`, `hub_name` are there already

    @router.post("/datasets/{name}/example")
    def change(request: Request, name: str, visitor: Annotated[Visitor, Depends(signed_in)],
               sent: Annotated[Form, Depends(form)]) -> Response:     # CSRF is checked before, for every post
        with visitor.hub.database.writing() as session:
            ...sent.text("title", "Title")...
        return go(request, f"/datasets/{name}", said="Saved.")    # 303; the sentence is shown on the next page

Its template:

    {% extends "base.html" %}{% import "parts.html" as parts %}
    {% block title %}Example{% endblock %}
    {% block content %}<h1>Example</h1>
    <form method="post">{{ parts.csrf(csrf) }}
      {{ parts.field("title", "Title", value=dataset.title, hint="Shown in lists.") }}
      {{ parts.button("Save") }}</form>{% endblock %}

Dependencies: `visitor` (all visitors), `signed_in`, `with_role("operator", …)` (any of these roles), and for /api
`scoped("work")`: signed in, and a token must have that scope. A token works under /api only; a GET with it needs
`read` at least. A rate limit applies to every visitor. A route that needs the database is `def` and runs in a thread;
one that does not is `async def`, which saves the thread.
"""

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qsl, quote, unquote

import sqlalchemy as sa
from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.responses import HTMLResponse, RedirectResponse, Response

from cloister.hub.core import models
from cloister.hub.core.database import now
from cloister.hub.core.models import Person
from cloister.hub.policy.conditions import Environment
from cloister.hub.users import sessions, tokens
from cloister.hub.users.rate_limits import Limiter
from cloister.hub.web.forms import Form, inside
from cloister.hub.web.refill import refilled
from cloister.hub.web.security import SMALLER, client_address, cookie_name, drop_cookie, set_cookie, take_turn
from cloister.privacy.errors import BadForm, Denied, SignInFailed

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["Visitor", "form", "go", "guard", "page", "scoped", "signed_in", "visitor", "with_role"]

SCOPES = frozenset({"read", "work", "share"})
# Expensive requests count as several: by the pattern of their route.
_WEIGHTS = {
    ("POST", "/api/surveys/advice"): 10,
    ("POST", "/api/surveys"): 10,
    ("PUT", "/api/surveys/{name}"): 5,
    ("POST", "/api/surveys/{name}/publish"): 20,
    ("POST", "/surveys/{name}/publish"): 20,
    ("GET", "/surveys/{name}/publish"): 20,
    ("POST", "/surveys/{name}/add"): 10,
    ("POST", "/surveys/{name}/questions/{question}"): 10,
    ("POST", "/datasets/{name}/policy"): 5,
    ("PUT", "/api/datasets/{name}/policy"): 5,
    ("GET", "/datasets/{name}/policy/{number}"): 3,
    ("GET", "/api/datasets/{name}/mock/{table}"): 5,
    ("GET", "/datasets/{name}/mock/{table}"): 5,
    ("GET", "/api/surveys/{name}/cross"): 10,
    ("GET", "/surveys/{name}/cross.svg"): 10,
    ("GET", "/surveys/{name}/model"): 10,
    ("GET", "/surveys/{name}/results"): 3,
    ("GET", "/surveys/{name}/beside"): 10,
    ("GET", "/surveys/{name}/beside.svg"): 10,
}
_SAFE = ("GET", "HEAD", "OPTIONS")
_URLENCODED = "application/x-www-form-urlencoded"
_MOST_FIELDS = 2000
_STRANGERS_FORM = 64 * 1024


@dataclass(frozen=True, slots=True)
class Visitor:
    """Sender of a request.

    Attributes:
        hub: the hub.
        person: the signed-in user, with the second factor if there is one; None for a stranger.
        session: the browser's session; None with a token.
        pending: the user whose password was checked but not yet the second factor.
        scopes: the scopes of a token; all of them for a browser.
        token: True if a token was sent instead of a cookie.
        csrf: the token that a form must send back.
        environment: time, country and network, for policies.
        address: the network address.
        unread: the number of unread notifications.
        limiter: counts the visitor's requests.
    """

    hub: "Hub"
    person: Person | None
    session: models.Session | None
    pending: Person | None
    scopes: frozenset[str]
    token: bool
    csrf: str
    environment: Environment
    address: str
    unread: int = 0
    limiter: Limiter | None = None

    def count(self, weight: int) -> None:
        """Count the request as this many more: for work whose size is known once its body is read.

        Raises:
            TooMany: the visitor has made their requests of this minute.
        """
        if self.limiter is not None and weight > 0:
            self.limiter.check(self.key, weight)

    @property
    def who(self) -> Person:
        """Return the user; raise for a stranger."""
        if self.person is None:
            raise SignInFailed("this page is for people who are signed in.")
        return self.person

    @property
    def key(self) -> str:
        """Return the key under which requests are counted: the user, or a stranger's address."""
        return f"person/{self.person.id}" if self.person else f"address/{self.address}"

    def has(self, *roles: str) -> bool:
        """Return True if the user has one of these roles."""
        return self.person is not None and any(role in self.person.roles for role in roles)


def visitor(request: Request) -> Visitor:
    """Return the visitor. Limits the rate of requests."""
    hub: Hub = request.app.state.hub
    address = client_address(request, hub.settings)
    secret = _bearer(request)
    cookie = request.cookies.get(cookie_name(hub.settings), "")
    person = pending = session = None
    scopes, unread = SCOPES, 0
    if secret:
        with hub.database.reading() as database:
            token_match = tokens.find(database, secret)
        if token_match is None:
            request.app.state.limiter.check(f"address/{address}")
            raise SignInFailed("the token is unknown, revoked or has ended.")
        person, scopes = token_match[0], frozenset(token_match[1])
        tokens.note_use(hub.database, secret)
    elif cookie:
        with hub.database.reading() as database:
            session_match = sessions.find(database, cookie)
            if session_match is not None:
                person, session = session_match
                if not session.complete:
                    person, pending = None, person
                elif not request.url.path.startswith("/api/"):
                    unread = _unread(database, person)
    route = getattr(request.scope.get("route"), "path", "")
    weight = _WEIGHTS.get((request.method, route), 1)
    request.app.state.limiter.check(f"person/{person.id}" if person else f"address/{address}", weight)
    csrf = session.csrf if session is not None else _stranger_csrf(request, hub)
    environment = Environment(time=now(), country=hub.settings.country, network=address)
    counted = request.app.state.limiter
    sender = Visitor(hub, person, session, pending, scopes, bool(secret), csrf, environment, address, unread, counted)
    request.state.visitor = sender
    return sender


async def signed_in(request: Request, visitor: Annotated[Visitor, Depends(visitor)]) -> Visitor:
    """Require a signed-in user."""
    if visitor.person is None:
        raise SignInFailed("this page is for people who are signed in.")
    lacks = visitor.hub.settings.require_totp and visitor.person.totp_secret is None
    if lacks and not request.url.path.startswith(("/account", "/sign-out")):
        raise Denied("this hub asks everybody for a second factor. Set yours up under Account first.")
    return visitor


def with_role(*roles: str) -> Callable[..., Awaitable[Visitor]]:
    """Return a dependency that requires one of these roles."""

    async def check(visitor: Annotated[Visitor, Depends(signed_in)]) -> Visitor:
        if not visitor.has(*roles):
            raise Denied(f"this is for the role {' or '.join(roles)}.")
        return visitor

    return check


def scoped(scope: str) -> Callable[..., Awaitable[Visitor]]:
    """Return a dependency for /api: signed in, and a token must have this scope."""

    async def check(visitor: Annotated[Visitor, Depends(signed_in)]) -> Visitor:
        if scope not in visitor.scopes:
            raise Denied(f"the token has no scope '{scope}'. Make one that has it under Account.")
        return visitor

    return check


async def form(request: Request) -> Form:
    """Return the submitted form. Its CSRF token was checked by `guard`, which runs before every route.

    A route that takes files does not depend on this: it checks the visitor's right first, and then awaits it.
    """
    if getattr(request, "_form", None) is None and _kind(request).startswith(_URLENCODED):
        body = await request.body()
        # Not on the event loop, and not by starlette, whose parser takes a step of Python for every empty field.
        fields: Any = await run_in_threadpool(_fields, body)
        request._form = FormData(fields)
    return Form(await request.form(max_files=20, max_fields=_MOST_FIELDS, max_part_size=2 * 1024 * 1024))


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").lower()


def _fields(body: bytes) -> list[tuple[str, str | UploadFile]]:
    """Return the fields of a form; their number is checked before they are read."""
    if body.count(b"&") >= _MOST_FIELDS:
        raise BadForm(f"a form has at most {_MOST_FIELDS:,} fields. Send fewer.")
    return [(name, value) for name, value in parse_qsl(body.decode("latin-1"), keep_blank_values=True)]


async def guard(request: Request, visitor: Annotated[Visitor, Depends(visitor)]) -> None:
    """Wait for a turn before every route: one person, or one address of strangers, holds a part of the threads at most.

    Then check that a request that changes something comes from our own page or carries a token.
    """
    await _receive_form(request, visitor)
    await take_turn(request, visitor.key)
    await _check_source(request, visitor)
    request.state.source_checked = True


async def _receive_form(request: Request, visitor: Visitor) -> None:
    """Receive a form before it is this visitor's turn, so that a slow sender holds none. It is not parsed here."""
    if request.method in _SAFE or not _kind(request).startswith(_URLENCODED):
        return
    if visitor.person is None:
        request.scope[SMALLER] = _STRANGERS_FORM
    await request.body()


async def _check_source(request: Request, visitor: Visitor) -> None:
    if visitor.token:
        wanted = {"read"} if request.method in _SAFE else {"work", "share"}
        if not wanted & visitor.scopes:
            raise Denied(f"the token has none of the scopes {', '.join(sorted(wanted))}.")
        return
    if request.method in _SAFE:
        return
    api = request.url.path.startswith("/api/")  # there the header is required: no body is read to find a token
    if visitor.person is None and visitor.pending is None and api:
        return  # without cookie and token: the route itself requires sign-in
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Denied("this was sent from another site's page.")
    csrf = request.headers.get("x-csrf", "")
    kind = _kind(request)
    if kind.startswith("multipart/form-data"):
        if visitor.person is None:
            raise SignInFailed("only people who are signed in send files.")  # before a stranger's file fills the memory
        # Beside the body: a file is not read before its sender's right to upload is known (see `form`).
        csrf = csrf or request.query_params.get("csrf", "")
    elif not csrf and not api and kind.startswith(_URLENCODED):
        csrf = (await form(request)).get("csrf", "")
    if not hmac.compare_digest(csrf.encode(), visitor.csrf.encode()):
        raise Denied("the page was too old, or the request did not come from it. Load the page again, then try again.")


def page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """Render a page. Every template also has `visitor`, `csrf`, `hub_name`, `path` and `said`.

    A page that answers a refused form shows that form as it was filled in, except for secrets.
    """
    visitor: Visitor | None = getattr(request.state, "visitor", None)
    hub: Hub = request.app.state.hub
    cookie = request.cookies.get(cookie_name(hub.settings, "said"), "")
    words = request.app.state.templates.get_template(template).render(
        {
            "request": request,
            "visitor": visitor,
            "csrf": visitor.csrf if visitor else "",
            "hub_name": hub.settings.name,
            "path": request.url.path,
            "said": _read_said(cookie, visitor),
            **values,
        }
    )
    # The error page has no form, and may be rendered on the event loop.
    if request.method == "POST" and status >= 400 and template != "error.html":
        words = refilled(request, words)
    response = HTMLResponse(words, status)
    stranger = getattr(request.state, "stranger", "")
    if stranger:
        set_cookie(response, hub.settings, stranger, "visit")
    if cookie:
        drop_cookie(response, hub.settings, "said")
    return response


def go(request: Request, path: str, said: str = "") -> Response:
    """Redirect to another page of the hub after a post; `said` is shown there once."""
    response = RedirectResponse(inside(path), 303)
    visitor: Visitor | None = getattr(request.state, "visitor", None)
    if said and visitor is not None:
        mark = hmac.new(visitor.csrf.encode(), said.encode(), hashlib.sha256).hexdigest()[:32]
        set_cookie(response, visitor.hub.settings, f"{mark}{quote(said)}", "said")
    return response


def _read_said(cookie: str, visitor: Visitor | None) -> str:
    # Signed with a secret of this session: no other site can set the sentence through a cookie.
    if visitor is None or len(cookie) <= 32:
        return ""
    message = unquote(cookie[32:])
    mark = hmac.new(visitor.csrf.encode(), message.encode(), hashlib.sha256).hexdigest()[:32]
    return message if hmac.compare_digest(mark.encode(), cookie[:32].encode()) else ""


def _bearer(request: Request) -> str:
    """Return the token of an API request; pages accept none."""
    word, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if word.lower() == "bearer" and request.url.path.startswith("/api/") else ""


def _stranger_csrf(request: Request, hub: "Hub") -> str:
    """Return the CSRF token for forms before sign-in: bound to a cookie of the visit."""
    visit = request.cookies.get(cookie_name(hub.settings, "visit"), "")
    if len(visit) < 32:
        visit = secrets.token_urlsafe(32)
        request.state.stranger = visit  # `page` sets it
    return hashlib.sha256(b"cloister csrf " + visit.encode()).hexdigest()


def _unread(database: Any, person: Person) -> int:
    mine = sa.select(sa.func.count()).select_from(models.Notice)
    return int(database.scalar(mine.where(models.Notice.person_id == person.id, ~models.Notice.read)) or 0)

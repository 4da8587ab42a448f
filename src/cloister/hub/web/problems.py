"""Errors as a page for a person or as JSON for a program. The message is the error's own.

A refused form is shown again on its page, with the message above it and everything that was typed.
"""

import logging
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DataError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import Message

from cloister.hub.core.logs import error_facts
from cloister.hub.web.context import Visitor, page
from cloister.hub.web.refill import Refill, page_of, referer, sent_by
from cloister.hub.web.security import INNER, has_turn
from cloister.privacy import errors
from cloister.privacy.errors import CloisterError

__all__ = ["install", "show", "status_of", "title_of", "unforeseen"]

_LOG = logging.getLogger("cloister.hub.web")
_BUSY_S = 5  # when to retry a hub that cannot serve now

# The first match counts, so the narrow ones come first.
_STATUS: tuple[tuple[type[CloisterError], int], ...] = (
    (errors.SignInFailed, 401),
    (errors.Denied, 403),
    (errors.NotHere, 404),
    (errors.TooMany, 429),
    (errors.NotNow, 409),
    (errors.OverBudget, 409),
    (errors.RolledBack, 503),
    (errors.Refused, 422),
    (errors.BadInput, 422),
    (errors.HubRefused, 422),
    (errors.Broken, 503),
    (errors.Unavailable, 503),
)
_TITLES = {
    400: "This request cannot be read",
    401: "Please sign in",
    403: "Not allowed",
    404: "Not here",
    405: "Not this way",
    409: "Not possible now",
    413: "Too large",
    422: "Something needs correcting",
    429: "Too many requests",
    500: "Something went wrong",
    503: "Not available",
}


def status_of(error: CloisterError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, errors.UploadRefused) and "longer than" in str(error):
        return 413
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def title_of(status: int) -> str:
    """Return the heading of a page with this status."""
    return _TITLES.get(status, "Something went wrong")


# What to do next, where the error's own text is for Python or for the command line.
_IN_BROWSER: dict[type[CloisterError], str] = {
    errors.BadLoss: "Write a loss in words: rho 0.01, epsilon 0.5, or epsilon 0.5 delta 1e-8.",
    errors.BadNumber: "Write a plain number, such as 1 or 0.1.",
    errors.BadSchema: "The dataset's page lists its tables and columns; its owner can change the schema there.",
    errors.QueryRefused: "Write it the way the message suggests.",
    errors.BadPolicy: "Correct the policy and check it again.",
}


def way_out(error: CloisterError) -> str:
    """Return what the reader of a page can do next."""
    return next((text for kind, text in _IN_BROWSER.items() if isinstance(error, kind)), error.way_out)


def install(app: FastAPI) -> None:
    """Install the handlers of every error."""
    app.add_exception_handler(CloisterError, _refused)
    app.add_exception_handler(RequestValidationError, _unreadable)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(DataError, _unstorable)
    for kind in (UnicodeError, OverflowError, RecursionError):  # the input fits into no number or text
        app.add_exception_handler(kind, _unstorable)
    app.add_exception_handler(OperationalError, _busy)
    app.add_exception_handler(PoolTimeout, _busy)


def unforeseen(request: Request, number: str) -> Response:
    """Return the response to an unexpected error. It holds only a number to quote."""
    message = f"Something went wrong on our side. Nothing more was done. Quote {number} when you report it."
    if _for_program(request):
        return JSONResponse({"code": "CLO-500", "message": message, "way_out": "Try again later."}, 500)
    return HTMLResponse(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Something went wrong</title>'
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/static/style.css"></head>'
        f'<body><main class="page narrow"><h1>Something went wrong</h1><p>{message}</p>'
        '<p><a href="/">Back to the first page</a></p></main></body></html>',
        500,
    )


def show(
    request: Request, status: int, message: str, way_out: str = "", code: str = "", why: str = "", **headers: str
) -> Response:
    """Return an error as a page or as JSON; `why` is the address of the page that explains it."""
    message = message.encode("utf-8", "replace").decode()  # it may quote a lone surrogate from the input
    if _for_program(request):
        body = {"code": code, "message": message, "way_out": way_out}
        return JSONResponse(body, status, headers)
    title = title_of(status)
    facts = {"message": message, "way_out": way_out, "code": code, "why": why, "back": referer(request) or "/"}
    response = page(request, "error.html", status, title=title, number=status, **facts)
    response.headers.update(headers)
    return response


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, CloisterError)
    status = status_of(error)
    if status >= 500:
        facts = error_facts(error)
        _LOG.warning("unavailable: %s at %s", *facts.values(), extra={"facts": facts})
    if status == 401 and not _for_program(request) and request.method == "GET":
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse("/sign-in" if path == "/" else f"/sign-in?next={quote(path)}", 303)
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 429:
        headers["Retry-After"] = str(int(getattr(error, "wait_s", 60)) or 1)
    if status == 503:
        headers["Retry-After"] = str(_BUSY_S)
    message = str(error).removeprefix(f"{error.code}: ")
    again = await _form_again(request, status, error)
    if again is not None:
        again.headers.update(headers)
        return again
    next_step = error.way_out if _for_program(request) else way_out(error)
    return show(request, status, message, next_step, error.code, _why(error), **headers)


def _why(error: CloisterError) -> str:
    """Return the page that explains a policy's refusal; empty if it is none."""
    if not isinstance(error, errors.Denied) or not error.decision:
        return ""
    return f"/datasets/{quote(error.dataset)}/why?decision={error.decision}"


_TOLD = 10  # problems of a body: a body may have thousands


async def _unreadable(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # The place, not the value: the value could be a password.
    details = error.errors()
    problems = [
        f"{_where(detail.get('loc', ()))[:200]}: {str(detail.get('msg', '')).lower()[:200]}"
        for detail in details[:_TOLD]
    ]
    if len(details) > _TOLD:
        problems.append(f"and {len(details) - _TOLD:,} more problems")
    return show(request, 422, "; ".join(problems) + ".", errors.BadForm.way_out, errors.BadForm.code)


async def _unstorable(request: Request, error: Exception) -> Response:
    # The hub's own database, which holds no rows of datasets: a NUL, a lone surrogate, a number or a text that is too
    # long for a column, lists nested without end.
    facts = error_facts(error)
    _LOG.info("unreadable: %s at %s", *facts.values(), extra={"facts": facts})
    problem = errors.BadForm("a text or a number is too long, or holds a sign that cannot be stored.")
    return await _refused(request, problem)


async def _busy(request: Request, error: Exception) -> Response:
    """Report that the hub's own database is locked or down. Nothing was done."""
    facts = error_facts(error)
    _LOG.warning("unavailable: %s at %s", *facts.values(), extra={"facts": facts})
    message = "the hub's database is busy. Nothing was done."
    busy = {"Retry-After": str(_BUSY_S)}
    again = await _form_again(request, 503, errors.StoreFailed(message))  # pages can often be read meanwhile
    if again is not None:
        again.headers.update(busy)
        return again
    return show(request, 503, message, errors.StoreFailed.way_out, errors.StoreFailed.code, **busy)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {
        404: ("there is no such page.", errors.NotHere.way_out, errors.NotHere.code),
        413: (
            "the body has too many fields or entries.",
            "Send fewer at once. The documentation says how many a list may have.",
            errors.UploadRefused.code,
        ),
        405: ("this address does not take that kind of request.", "Read /api/openapi.json.", errors.BadForm.code),
    }
    message, way_out, code = words.get(error.status_code, ("this request cannot be read.", "", errors.BadForm.code))
    return show(request, error.status_code, message, way_out, code, **dict(error.headers or {}))


def _where(location: Any) -> str:
    return ".".join(str(part) for part in location if part != "body") or "the body"


def _for_program(request: Request) -> bool:
    if request.url.path.startswith("/api/"):
        return True
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


# A refused form is shown again, as it was filled in.

_KEPT = (403, 409, 413, 422, 429, 503)  # errors after which a user corrects the input, or sends it again


async def _form_again(request: Request, status: int, error: CloisterError) -> Response | None:
    """Return the page of a refused form, with the input and the problem; None if there is no such page."""
    sent = sent_by(request)  # an unread body is not read here
    if request.method != "POST" or status not in _KEPT or sent is None or _for_program(request):
        return None
    page_path = page_of(request)
    if not page_path or not _may_show(request, unquote(urlsplit(page_path).path)):
        return None
    words, cookies = await _get(request, page_path)
    filled = await run_in_threadpool(_filled, request, sent, page_path, words, error, status) if words else None
    if filled is None:
        return None
    response = HTMLResponse(filled, status)
    response.raw_headers.extend((b"set-cookie", raw) for raw in cookies)  # its CSRF token may belong to a new visit
    return response


_NO_FORMS = ("/s/", "/api/", "/static/")  # no page there has a form that is sent to the hub's pages


def _may_show(request: Request, path: str) -> bool:
    """Return True if the page at this path may be rendered for a refused form: it costs as much as a visit to it.

    The request has its turn, and its sender has an account or a CSRF token of this hub.
    """
    visitor: Visitor | None = getattr(request.state, "visitor", None)
    if visitor is None or not has_turn(request) or path.startswith(_NO_FORMS):
        return False
    return visitor.session is not None or getattr(request.state, "source_checked", False)


def _filled(
    request: Request, sent: list[tuple[str, str]], page_path: str, words: str, error: CloisterError, status: int
) -> str | None:
    notice = request.app.state.templates.get_template("parts.html").module.refusal(error, title_of(status))
    return Refill(urlsplit(page_path).path, request.url.path, sent, page_path, notice).of(words)


_SAME = ("type", "asgi", "http_version", "scheme", "client", "server")  # of a request within the same visit


async def _get(request: Request, address: str) -> tuple[str, list[bytes]]:
    """Return the response to this visitor at an address of this hub, if that is a page, and its cookies.

    It is made under the turn of the refused request, and counted as one more.
    """
    parts = urlsplit(address)
    dropped = (b"content-length", b"content-type", b"transfer-encoding")
    scope = {
        **{key: value for key, value in request.scope.items() if key in _SAME},
        "method": "GET",
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        INNER: True,
        "headers": [(name, value) for name, value in request.scope["headers"] if name not in dropped],
    }
    body, status, kind, cookies = bytearray(), 0, b"", list[bytes]()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, kind
        if message["type"] == "http.response.start":
            status, kind = message["status"], dict(message["headers"]).get(b"content-type", b"")
            cookies.extend(value for name, value in message["headers"] if name == b"set-cookie")
        elif message["type"] == "http.response.body":
            body.extend(message.get("body", b""))

    await request.app(scope, receive, send)
    return (body.decode(), cookies) if status == 200 and kind.startswith(b"text/html") else ("", [])

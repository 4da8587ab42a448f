"""Protection of every request and response: headers, cookies, body sizes, unexpected errors, turns.

These wrap the whole application, so that no page can forget them.
"""

import asyncio
import ipaddress
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cloister.hub.core.logs import error_facts
from cloister.hub.core.settings import Settings
from cloister.hub.datasets.upload import LARGEST_PIECE
from cloister.privacy.errors import HubBusy, UploadRefused

__all__ = [
    "AT_ONCE",
    "INNER",
    "SMALLER",
    "WAIT_S",
    "BodyLimit",
    "KnownHosts",
    "NoSurprises",
    "SafeHeaders",
    "Turns",
    "client_address",
    "cookie_name",
    "drop_cookie",
    "give_turn",
    "has_turn",
    "is_proxy",
    "refuse_many_members",
    "set_cookie",
    "take_turn",
]

_LOG = logging.getLogger("cloister.hub.web")
_MB = 1024 * 1024
PAGE_BODY = 2 * _MB  # a form or a JSON body
SMALLER = "cloister.most"  # in the scope of a request: its largest body in bytes
_ONE_ADDRESS, _ALL_ADDRESSES = 256 * _MB, 1024 * _MB  # bytes of bodies under way in a process
_SLOWEST = 10_000  # bytes a second that a body has on average after the first minute
_SILENCE_S = 60.0  # a body without data for this long is given up
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
_MOST_MEMBERS = 5_000  # of a JSON body: what is between commas and brackets outside texts
_SURVEY_MEMBERS = 40_000  # sixty questions of four hundred options, their levels and texts
FILE_BODY = 64 * _MB  # a file sent with a form, by a browser without scripts
_TAKES_FILES = re.compile(r"/datasets/[^/]+/versions/files|(/api)?/datasets/[^/]+/tables|/jobs/[^/]+/predictions")

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


# Cookies.


def cookie_name(settings: Settings, word: str = "session") -> str:
    """Return a cookie's name; over TLS with the prefix that binds it to this host."""
    return f"__Host-cloister-{word}" if settings.secure else f"cloister-{word}"


def set_cookie(response: Response, settings: Settings, value: str, word: str = "session", hours: int = 0) -> None:
    """Set a cookie that no script can read and no other site can send along with a post."""
    response.set_cookie(
        cookie_name(settings, word),
        value,
        max_age=hours * 3600 or None,
        path="/",
        secure=settings.secure,
        httponly=True,
        samesite="lax",
    )


def drop_cookie(response: Response, settings: Settings, word: str = "session") -> None:
    """Delete a cookie."""
    response.delete_cookie(cookie_name(settings, word), path="/", secure=settings.secure, httponly=True, samesite="lax")


# Addresses.


def client_address(request: HTTPConnection, settings: Settings) -> str:
    """Return the client's address; X-Forwarded-For is accepted as far as trusted proxies wrote it."""
    address = request.client.host if request.client else ""
    trusted = _networks(settings.trusted_proxies.split(","))
    if not trusted:
        return address
    chain = [part.strip() for line in request.headers.getlist("x-forwarded-for") for part in line.split(",")]
    while chain and _within(address, trusted):
        address = chain.pop()  # from the right: entries further left may be invented by the sender
    return address


def is_proxy(address: str, settings: Settings) -> bool:
    """Return True if a trusted proxy has this address."""
    return _within(address, _networks(settings.trusted_proxies.split(",")))


def _networks(texts: Iterable[str]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    return [ipaddress.ip_network(text.strip(), strict=False) for text in texts if text.strip()]


def _within(address: str, networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    try:
        return any(ipaddress.ip_address(address) in network for network in networks)
    except ValueError:
        return False


# Around the application.


class SafeHeaders:
    """Headers on every response. Browsers and proxies do not store pages; they may store files under /static."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.fixed = dict(_HEADERS)
        if settings.secure:
            self.fixed["Strict-Transport-Security"] = "max-age=31536000; includeSubDomains"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        cache = "no-store"
        if scope["path"].startswith("/static/"):
            # An address with its content hash never changes its content.
            cache = "public, max-age=31536000, immutable" if scope["query_string"] else "no-cache"

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.fixed.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", cache)
            await send(message)

        await self.app(scope, receive, send_safely)


class KnownHosts:
    """Refuses requests for host names other than the hub's own: prevents DNS rebinding.

    A health check may come under any name: it reveals nothing. Wraps the application of a hub that is served.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        host = urlsplit(settings.address).hostname or ""
        self.known = {host, *(name.strip().lower() for name in settings.hosts.split(",") if name.strip())}
        if host in _LOOPBACK:
            self.known |= _LOOPBACK

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http" and scope["path"] not in ("/health", "/metrics"):
            try:
                name = urlsplit(f"//{Headers(scope=scope).get('host', '')}").hostname
            except ValueError:
                name = None
            if name not in self.known:
                words = (
                    "this hub is not reached under that name. Its operator sets CLOISTER_ADDRESS and CLOISTER_HOSTS."
                )
                await PlainTextResponse(words, 421)(scope, receive, send)
                return
        await self.app(scope, receive, send)


class BodyLimit:
    """Stops reading a body that is too long, whatever its Content-Length says, or that stalls or is very slow.

    Bodies are received before it is the turn of their sender, so that a slow one holds none. Their bytes are counted
    for each address, and for the process. A route that knows more about its visitor sets a smaller limit in the scope
    (`SMALLER`).

    JSON is parsed and checked on the event loop, for strangers too. One with too many members is refused before that.
    """

    def __init__(self, app: ASGIApp, settings: Settings | None = None) -> None:
        self.app = app
        self.settings = settings
        self.held: Counter[str] = Counter()  # bytes of bodies under way, by address

    def most(self, scope: Scope) -> int:
        """Return the largest allowed body of this request in bytes."""
        if scope["method"] == "PUT" and scope["path"].startswith("/api/uploads/"):
            return LARGEST_PIECE  # of a file; it is read after its sender's right is known
        return FILE_BODY if _TAKES_FILES.fullmatch(scope["path"]) else PAGE_BODY

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most, got = self.most(scope), 0
        words = f"the body is longer than {most // _MB:,} MB, the most this address takes."
        declared = Headers(scope=scope).get("content-length", "0")
        if not (declared.isascii() and declared.isdigit() and len(declared) < 20 and int(declared) <= most):
            from cloister.hub.web.problems import show

            response = show(Request(scope), 413, words, UploadRefused.way_out, UploadRefused.code)
            await response(scope, receive, send)
            return

        whole, json_body = False, bytearray() if most == PAGE_BODY and _may_be_json(scope) else None
        address = client_address(HTTPConnection(scope), self.settings) if self.settings is not None else ""
        begun = time.monotonic()

        async def receive_some() -> Message:
            nonlocal got, whole
            if whole:  # the next message is that the client has disconnected
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), _SILENCE_S)
            except TimeoutError:
                raise HTTPException(408) from None
            if message["type"] == "http.request":
                whole, size = not message.get("more_body", False), len(message.get("body", b""))
                got += size
                self.held[address] += size
                allowed = scope.get(SMALLER, most)
                if got > allowed:
                    raise UploadRefused(words if allowed == most else f"the body is longer than {allowed // 1024} KB.")
                if self.held[address] > _ONE_ADDRESS or self.held.total() > _ALL_ADDRESSES:
                    raise HTTPException(503)
                if time.monotonic() - begun > _SILENCE_S + got / _SLOWEST:
                    raise HTTPException(408)
                if json_body is not None:
                    json_body.extend(message.get("body", b""))
                    if whole:
                        refuse_many_members(scope, json_body)
            return message

        try:
            await self.app(scope, receive_some, send)
        finally:
            self.held[address] -= got
            if not self.held[address]:
                del self.held[address]


def refuse_many_members(scope: Scope, body: bytes | bytearray) -> None:
    """Refuse a JSON body that has too many members for its address, before it is parsed.

    A route that parses JSON itself calls this, since `BodyLimit` does not count what is sent as a form, or in part.

    Raises:
        HTTPException: 413.
    """
    if _members(body) > _most_members(scope):
        raise HTTPException(413)


def _may_be_json(scope: Scope) -> bool:
    kind = Headers(scope=scope).get("content-type", "").lower()
    return not kind.startswith(("multipart/form-data", "application/x-www-form-urlencoded"))


def _most_members(scope: Scope) -> int:
    return _SURVEY_MEMBERS if scope["path"].startswith(("/api/surveys", "/s/")) else _MOST_MEMBERS


def _members(body: bytes | bytearray) -> int:
    """Return an upper bound of the values in a JSON body; commas and brackets in texts do not count.

    In a time proportional to its length, whatever it holds: it comes from strangers.
    """
    signs = (b",", b"[", b"{")
    if sum(body.count(sign) for sign in signs) <= _MOST_MEMBERS:
        return 0  # few, wherever they are
    if b"\0" in body:  # UTF-16 or UTF-32: every sign of JSON has a zero byte there, and is half of another letter here
        return len(body)
    # Without escapes every second piece between quotation marks is a text.
    plain = b"".join(body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    return sum(plain.count(sign) for sign in signs)


class NoSurprises:
    """Turns an unexpected error into a plain page, and a log line without its message.

    The text of an unknown error may hold a value from a private table, so only its type and place are written.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request and write one log line."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        number = secrets.token_hex(6)
        scope.setdefault("state", {})["number"] = number
        status, begun = 0, time.perf_counter()

        async def send_noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).setdefault("X-Request", number)
            await send(message)

        try:
            await self.app(scope, receive, send_noting)
        except ClientDisconnect:
            status = 499  # disconnected while sending: there is no client to answer
        except Exception as error:
            facts = error_facts(error)
            _LOG.error("unforeseen %s at %s", *facts.values(), extra={"facts": {"request": number, **facts}})
            if not status:
                from cloister.hub.web.problems import unforeseen

                response = unforeseen(Request(scope), number)
                await response(scope, receive, send_noting)
        finally:
            _LOG.info("request", extra={"facts": _facts(scope, number, status, time.perf_counter() - begun)})


def _facts(scope: Scope, number: str, status: int, seconds: float) -> dict[str, object]:
    # The pattern of the route, not the path: a path may hold the secret of an invitation.
    route = getattr(scope.get("route"), "path", "") or ("/static" if scope["path"].startswith("/static/") else "none")
    return {
        "request": number,
        "method": scope["method"],
        "route": route,
        "status": status,
        "ms": round(seconds * 1000, 1),
    }


# Turns: how many requests of one person, or of one address of strangers, are under way in a web process.
#
# All routes that use the database share one pool of threads. Without turns, one person's slow requests would hold
# every thread. A request above the limit waits on the event loop, where it holds no thread, until one of the same
# person ends; one that has waited for WAIT_S is refused.
#
# A request keeps its turn until its answer has left the process: a body that nobody reads stays in memory. It goes out
# in pieces, and the server takes the next one when the last has left (see `web.connection`, which also gives up a
# client that does not read). No turn: files under /static, which are read piece by piece, and pages of errors.

AT_ONCE = 10  # a quarter of the threads
WAIT_S = 30.0  # less than proxies wait for an answer
PIECE = 64 * 1024  # bytes of a body that are handed to the server at once
INNER = "cloister.inner"  # in the scope of a request that is made within another one, under its turn


@dataclass(slots=True)
class _Line:
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    requests: int = 0  # under way or waiting


class Turns:
    """Gives the turn of every request back when its answer has left the process. Wraps the application."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.lines: dict[str, _Line] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope["cloister.turns"] = self.lines

        async def send_in_pieces(message: Message) -> None:
            body = message.get("body", b"")
            if message["type"] != "http.response.body" or not body:
                await send(message)
                return
            for start in range(0, len(body), PIECE):
                await send({"type": message["type"], "body": body[start : start + PIECE], "more_body": True})
            # Without data: the server accepts it when the last piece has left.
            await send({"type": message["type"], "body": b"", "more_body": message.get("more_body", False)})

        try:
            await self.app(scope, receive, send_in_pieces)
        finally:
            _give(scope)


async def take_turn(request: Request, key: str) -> None:
    """Wait until fewer than AT_ONCE requests of this key are under way; then count this one until it is answered.

    Raises:
        HubBusy: it has waited for WAIT_S.
    """
    if INNER in request.scope:
        return
    lines: dict[str, _Line] = request.scope["cloister.turns"]
    key = f"{id(asyncio.get_running_loop())}/{key}"  # a semaphore belongs to one loop; a served process has one
    line = lines.setdefault(key, _Line())
    line.requests += 1
    try:
        async with asyncio.timeout(WAIT_S):
            await line.turns.acquire()
    except TimeoutError:
        _leave(lines, key)
        raise HubBusy(
            f"{AT_ONCE} requests of yours, or of your address, are being answered, and this one has waited for "
            f"{WAIT_S:g} seconds. Nothing was done."
        ) from None
    except BaseException:
        _leave(lines, key)
        raise
    request.scope["cloister.turn"] = key


def give_turn(request: Request) -> None:
    """Give the turn back before the answer, to wait for something without a thread; take one again afterwards."""
    _give(request.scope)


def has_turn(request: Request) -> bool:
    """Return True if the request has its turn."""
    return "cloister.turn" in request.scope


def _give(scope: Scope) -> None:
    key = scope.pop("cloister.turn", None)
    if key is not None:
        lines: dict[str, _Line] = scope["cloister.turns"]
        lines[key].turns.release()
        _leave(lines, key)


def _leave(lines: dict[str, _Line], key: str) -> None:
    lines[key].requests -= 1
    if not lines[key].requests:
        del lines[key]

"""Turns: how many requests of one person, or of one address of strangers, are under way in a web process.

All routes that use the database share one pool of threads. Without turns, one person's slow requests would hold every
thread. A request above the limit waits on the event loop, where it holds no thread, until one of the same person ends;
one that has waited for WAIT_S is refused.
"""

import asyncio
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from cloister.privacy.errors import HubBusy

__all__ = ["AT_ONCE", "INNER", "WAIT_S", "Turns", "has_turn", "take_turn"]

AT_ONCE = 10  # a quarter of the threads
WAIT_S = 30.0  # less than proxies wait for an answer
INNER = "cloister.inner"  # in the scope of a request that is made within another one, under its turn


@dataclass(slots=True)
class _Line:
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    requests: int = 0  # under way or waiting


class Turns:
    """Gives the turn of every request back when it has been answered. Wraps the application."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.lines: dict[str, _Line] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope["cloister.turns"] = self.lines
        try:
            await self.app(scope, receive, send)
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

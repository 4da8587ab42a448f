"""Connection of a client to a web process: how many there are, and how long one may neither send nor read.

The server, uvicorn, limits none of this by itself. A client that does not read would keep its answer in memory, and one
that sends nothing, or half a header, its connection.
"""

import asyncio
import socket
from collections import Counter
from typing import Any, cast

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from cloister.hub.core.settings import Settings
from cloister.hub.web.security import is_proxy

__all__ = ["HEAD_S", "MOST", "READ_S", "Connection", "Connections"]

MOST = 1000  # connections of a web process
PART = 4  # one address has at most one in so many of them, unless it is a trusted proxy
HEAD_S = 30.0  # for the header of a request
READ_S = 60.0  # for a piece of an answer to leave: 64 KB (see `security.Turns`)
_BUFFER = 256 * 1024  # bytes of an answer that the kernel takes before the client does
_TOO_MANY = (
    "This hub has as many connections as it can serve, all together or from your address. Nothing was done. Try again "
    "in a minute."
)


class Connections:
    """All connections of a web process, by address.

    Args:
        settings: the hub's settings.
        most: how many there may be.
    """

    def __init__(self, settings: Settings, most: int = MOST) -> None:
        self.settings, self.most = settings, most
        self.by_address: Counter[str] = Counter()

    def __call__(self, **of_server: Any) -> "Connection":
        """Return the protocol of a new connection. The server calls this as if it were a class of protocols."""
        return Connection(self, **of_server)

    def add(self, address: str) -> str:
        """Count a connection; return "" if it is served, "refused" if it is answered with 503, else "dropped"."""
        self.by_address[address] += 1
        total, mine = self.by_address.total(), self.by_address[address]
        part = self.most if is_proxy(address, self.settings) else max(1, self.most // PART)
        if total <= self.most and mine <= part:
            return ""
        # Some more are told why. The others would take the descriptors that files and the database need.
        return "refused" if total <= self.most + self.most // PART and mine <= part + part // PART else "dropped"

    def remove(self, address: str) -> None:
        """Count a connection no longer."""
        self.by_address[address] -= 1
        if not self.by_address[address]:
            del self.by_address[address]


class Connection(H11Protocol):
    """Connection with limits of time; `send` of the application returns when its data has left this process."""

    def __init__(self, others: Connections, **of_server: Any) -> None:
        super().__init__(**of_server)
        self.others = others
        self.address = ""
        self._head: asyncio.TimerHandle | None = None
        self._read: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)
        peer = cast(socket.socket | None, transport.get_extra_info("socket"))
        if peer is not None and peer.family in (socket.AF_INET, socket.AF_INET6):
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # for what the kernel still holds when the connection is closed
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(READ_S * 1000))
        self.address = self.client[0] if self.client else ""
        outcome = self.others.add(self.address)
        if outcome == "dropped":
            transport.abort()
            return
        if outcome == "refused":
            self.app = _refuse
        self._head = self._later(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self.others.remove(self.address)
        self._head, self._read = self._later(None, self._head), self._later(None, self._read)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive some of a request; its header must be whole in time."""
        super().data_received(data)
        under_way = self.cycle is not None and not self.cycle.response_complete
        if under_way:
            self._head = self._later(None, self._head)
        elif self._head is None:
            self._head = self._later(HEAD_S)

    def pause_writing(self) -> None:
        """Wait until the client has taken what was written, but not for ever."""
        super().pause_writing()
        self._read = self._later(READ_S, self._read)

    def resume_writing(self) -> None:
        """Go on: the client has taken it."""
        self._read = self._later(None, self._read)
        super().resume_writing()

    def _later(self, seconds: float | None, before: asyncio.TimerHandle | None = None) -> asyncio.TimerHandle | None:
        """Cancel a timer; return one that ends the connection after so many seconds, if any."""
        if before is not None:
            before.cancel()
        if seconds is None:
            return None
        return self.loop.call_later(seconds, self.transport.abort)  # `close` would wait for a client that never reads


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request on a connection too many."""
    headers = {"Retry-After": "60", "Connection": "close", "Cache-Control": "no-store"}
    await PlainTextResponse(_TOO_MANY, 503, headers)(scope, receive, send)

"""Links between parties: named messages in an order that both ends know.

A link is anything with `send` and `receive` of `vault.circuits.channel.Channel`, which is the one for sockets: it
authenticates both ends and refuses replayed, reordered, altered and truncated messages. `local_links` joins parties in
one process through queues, for tests, lessons and parties that trust one machine.
"""

import queue
from itertools import combinations
from typing import Protocol

from cloister.privacy.errors import ChannelBroken, PeerLost
from cloister.vault.circuits.channel import ANOTHER_STEP, check_timeout

__all__ = ["Link", "LocalLink", "local_links"]

_AGAIN = "Run the protocol again from its beginning."


class Link(Protocol):
    """A channel to one peer."""

    @property
    def session(self) -> bytes:
        """Bytes that both ends know and that are new in each run."""

    def send(self, step: str, body: bytes | bytearray | memoryview) -> None:
        """Send one message under the name of its step."""

    def receive(self, step: str, *, size: int | None = None) -> bytes:
        """Return the next message; refuse one of another step or size."""

    def abort(self) -> None:
        """Close the link. The peer notices."""


class LocalLink:
    """One end of a pair of queues within a process."""

    __slots__ = ("_in", "_open", "_out", "session", "timeout_s")

    def __init__(
        self,
        outgoing: "queue.SimpleQueue[tuple[str, bytes] | None]",
        incoming: "queue.SimpleQueue[tuple[str, bytes] | None]",
        session: bytes,
        timeout_s: float,
    ) -> None:
        self._out, self._in, self._open = outgoing, incoming, True
        self.session, self.timeout_s = session, timeout_s

    def send(self, step: str, body: bytes | bytearray | memoryview) -> None:
        """Send one message under the name of its step."""
        if not self._open:
            raise ChannelBroken(f"this link is closed. {_AGAIN}")
        self._out.put((step, bytes(body)))

    def receive(self, step: str, *, size: int | None = None) -> bytes:
        """Return the next message; refuse one of another step or size."""
        if not self._open:
            raise ChannelBroken(f"this link is closed. {_AGAIN}")
        try:
            message = self._in.get(timeout=self.timeout_s)
        except queue.Empty:
            message = None
        if message is None:
            self.abort()
            raise PeerLost(f"the peer went away, or sent nothing in time, and nothing was output. {_AGAIN}")
        name, body = message
        if name != step or (size is not None and len(body) != size):
            self.abort()
            raise ChannelBroken(
                f"the peer is at another step than '{step}', and nothing was output. {ANOTHER_STEP}. {_AGAIN}"
            )
        return body

    def abort(self) -> None:
        """Close the link. The peer notices."""
        if self._open:
            self._open = False
            self._out.put(None)

    def __repr__(self) -> str:
        return f"<LocalLink {'open' if self._open else 'closed'}>"


def local_links(parties: int, timeout_s: float = 30, session: bytes = b"local") -> list[dict[int, Link]]:
    """Return for each party its links to the others, by their numbers."""
    check_timeout(timeout_s)
    links: list[dict[int, Link]] = [{} for _ in range(parties)]
    for left, right in combinations(range(parties), 2):
        there: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
        back: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
        links[left][right] = LocalLink(there, back, session, timeout_s)
        links[right][left] = LocalLink(back, there, session, timeout_s)
    return links

"""Parties on links that record, change or stop messages, and parties on sockets."""

import socket
import threading
from collections.abc import Callable
from typing import Any

from cloister.privacy.noise.source import SYSTEM
from cloister.privacy.signing import SigningKey
from cloister.vault.circuits.channel import Channel
from cloister.vault.sharing import DealtSupply, Party, local_links, serve_dealer


class Watched:
    """A link that keeps what was received, and may change what is sent."""

    def __init__(self, link, change: Callable[[int, str, bytes], bytes | None] | None = None) -> None:
        self.link, self.change = link, change
        self.received: list[tuple[str, bytes]] = []
        self.sent = 0
        self.session = link.session

    def send(self, step, body):
        self.sent += 1
        if self.change is not None:
            body = self.change(self.sent, step, bytes(body))
        self.link.send(step, body)

    def receive(self, step, *, size=None):
        body = self.link.receive(step, size=size)
        self.received.append((step, body))
        return body

    def abort(self):
        self.link.abort()


def run_watched(program, parties=2, change=None, sources=None, timeout_s=10.0):
    """Run a program; return each party's result or error, and its links to peers and dealer.

    `change(sender, receiver, number, step, body)` returns what is sent instead.
    """
    links = local_links(parties + 1, timeout_s)
    watched: list[dict[int, Watched]] = []
    for sender, ends in enumerate(links):

        def changer(receiver: int, sender: int = sender):
            return None if change is None else lambda *facts: change(sender, receiver, *facts)

        watched.append({peer: Watched(end, changer(peer)) for peer, end in ends.items()})
    drawn = sources or [SYSTEM] * (parties + 1)
    results: list[Any] = [None] * (parties + 1)

    def deal() -> None:
        try:
            serve_dealer(watched[parties], drawn[parties])
        except Exception as error:
            results[parties] = error
            for link in watched[parties].values():
                link.abort()

    def run(index: int) -> None:
        peers = dict(watched[index])
        dealer = peers.pop(parties)
        try:
            supply = DealtSupply(dealer, last=index == parties - 1)
            results[index] = program(Party(index, peers, supply, source=drawn[index]))
            supply.end()
        except Exception as error:
            results[index] = error
            for link in watched[index].values():
                link.abort()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(parties)]
    threads.append(threading.Thread(target=deal))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results[:parties], watched[:parties]


def run_two_on_sockets(one, other, timeout_s=10.0):
    """Give each of two functions its end of an authenticated channel; return what each returned or raised."""
    keys = [SigningKey.create(), SigningKey.create()]
    sockets = socket.socketpair()
    results: list[Any] = [None, None]

    def run(index: int, work) -> None:
        try:
            channel = Channel.open(
                sockets[index], keys[index], peer=keys[1 - index].public, first=index == 0, timeout_s=timeout_s
            )
            try:
                results[index] = work(channel)
            finally:
                channel.abort()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate((one, other))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results

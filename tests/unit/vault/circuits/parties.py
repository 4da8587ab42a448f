"""Two parties in one process: each in a thread of its own, at the ends of a socket."""

import socket
import threading

import pytest

from cloister.privacy.signing import SigningKey
from cloister.vault.circuits.channel import Channel

FIRST, SECOND = SigningKey.create(), SigningKey.create()


def run_both(first, second):
    """The results of two calls at the same time; an exception of either is raised, the first party's first."""
    results, errors = [None, None], [None, None]

    def run(place, call):
        try:
            results[place] = call()
        except BaseException as error:
            errors[place] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate((first, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        if error is not None:
            raise error
    return tuple(results)


def channels(timeout_s=20):
    left, right = socket.socketpair()
    return run_both(
        lambda: Channel.open(left, FIRST, peer=SECOND.public, first=True, timeout_s=timeout_s),
        lambda: Channel.open(right, SECOND, peer=FIRST.public, first=False, timeout_s=timeout_s),
    )


def failure_of(call, kind):
    """The sentence with which a call fails."""
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)

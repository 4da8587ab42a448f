"""A channel delivers the messages of one peer in order, or refuses."""

import os
import socket
import threading
import time
from random import Random

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from cloister.privacy.errors import BadInput, ChannelBroken, PeerLost
from cloister.privacy.signing import SigningKey
from cloister.vault.circuits.channel import FRAME_BYTES, Channel

from .parties import FIRST, SECOND, channels, failure_of, run_both

SECRET = b"planted-secret-0123456789"


class Wire:
    """A relay between two sockets: the frames of one direction, to be changed on their way."""

    def __init__(self, timeout_s=5):
        (left, self.left), (self.right, right) = socket.socketpair(), socket.socketpair()
        self.ends = [None, None]
        opened = threading.Thread(target=self._open, args=(left, right, timeout_s))
        opened.start()
        for read in (lambda end: self.exactly(end, 65), self.frame):  # the greetings, then the signatures
            for source, target in ((self.left, self.right), (self.right, self.left)):
                target.sendall(read(source))
        opened.join()
        self.first, self.second = self.ends

    def _open(self, left, right, timeout_s):
        self.ends[:] = run_both(
            lambda: Channel.open(left, FIRST, peer=SECOND.public, first=True, timeout_s=timeout_s),
            lambda: Channel.open(right, SECOND, peer=FIRST.public, first=False, timeout_s=timeout_s),
        )

    def exactly(self, source, count):
        raw = b""
        while len(raw) < count:
            raw += source.recv(count - len(raw))
        return raw

    def frame(self, source):
        head = self.exactly(source, 4)
        return head + self.exactly(source, int.from_bytes(head, "big"))

    def close(self):
        for end in (self.left, self.right):
            end.close()
        for channel in self.ends:
            channel.abort()


@pytest.fixture
def wire():
    made = Wire()
    yield made
    made.close()


def test_messages_arrive_in_order_and_both_ends_close():
    first, second = channels()
    assert first.session == second.session

    def talk(channel, name, other):
        with channel:
            channel.send("greeting", name * 1000)
            channel.send("again", b"")
            return channel.receive("greeting", size=5000) + channel.receive("again", most=10)

    got = run_both(lambda: talk(first, b"first", b"secon"), lambda: talk(second, b"secon", b"first"))
    assert got == (b"secon" * 1000, b"first" * 1000)


def test_each_run_has_a_number_and_keys_of_its_own():
    runs = [channels() for _ in range(3)]
    assert len({first.session for first, _ in runs}) == 3
    for pair in runs:
        for channel in pair:
            channel.abort()


def test_a_peer_with_another_key_is_refused():
    left, right = socket.socketpair()
    stranger = SigningKey.create()

    def meet(stream, key, peer, first):
        try:
            Channel.open(stream, key, peer=peer, first=first, timeout_s=5)
        except (ChannelBroken, PeerLost) as error:
            return str(error)
        return "open"

    told = run_both(lambda: meet(left, FIRST, SECOND.public, True), lambda: meet(right, stranger, FIRST.public, False))
    assert told[0].startswith("CLO-305: the peer does not hold the key that was pinned for it")


def test_a_peer_that_means_somebody_else_is_refused():
    left, right = socket.socketpair()
    other = SigningKey.create().public

    def meet(stream, key, peer, first):
        return failure_of(lambda: Channel.open(stream, key, peer=peer, first=first, timeout_s=5), ChannelBroken)

    told = run_both(lambda: meet(left, FIRST, SECOND.public, True), lambda: meet(right, SECOND, other, False))
    assert all("does not hold the key" in text for text in told)


def test_an_echo_is_no_peer():
    left, right = socket.socketpair()
    with right:
        right.sendall(bytes([1]) + bytes(64))
        told = failure_of(lambda: Channel.open(left, FIRST, peer=SECOND.public, first=True), ChannelBroken)
    assert "same place" in told


def test_a_greeting_without_a_proper_key_is_refused():
    left, right = socket.socketpair()
    with right:
        right.sendall(bytes(65))
        told = failure_of(lambda: Channel.open(left, FIRST, peer=SECOND.public, first=True), ChannelBroken)
    assert "no proper key" in told


@pytest.mark.parametrize("at", [4, 20, 40, -1])
def test_a_flipped_bit_is_refused(wire, at):
    wire.first.send("step", SECRET)
    frame = bytearray(wire.frame(wire.left))
    frame[at] ^= 1
    wire.right.sendall(frame)
    told = failure_of(lambda: wire.second.receive("step", size=len(SECRET)), ChannelBroken)
    assert "altered, repeated or moved" in told
    assert "planted" not in told


def test_a_repeated_message_is_refused(wire):
    wire.first.send("step", b"once")
    frame = wire.frame(wire.left)
    wire.right.sendall(frame + frame)
    assert wire.second.receive("step", size=4) == b"once"
    assert "repeated" in failure_of(lambda: wire.second.receive("step", size=4), ChannelBroken)


def test_messages_in_another_order_are_refused(wire):
    for body in (b"1", b"2"):
        wire.first.send("step", body)
    frames = [wire.frame(wire.left) for _ in range(2)]
    wire.right.sendall(frames[1] + frames[0])
    assert "moved" in failure_of(lambda: wire.second.receive("step", size=1), ChannelBroken)


def test_a_message_sent_back_to_its_sender_is_refused(wire):
    wire.first.send("step", b"1")
    wire.left.sendall(wire.frame(wire.left))
    assert "altered" in failure_of(lambda: wire.first.receive("step", size=1), ChannelBroken)


def test_a_message_of_another_run_is_refused(wire):
    other = Wire()
    other.first.send("step", b"1")
    wire.right.sendall(other.frame(other.left))
    assert "another run" in failure_of(lambda: wire.second.receive("step", size=1), ChannelBroken)
    other.close()


def test_a_message_cut_short_is_refused(wire):
    wire.first.send("step", bytes(100))
    wire.right.sendall(wire.frame(wire.left)[:50])
    wire.right.shutdown(socket.SHUT_WR)
    told = failure_of(lambda: wire.second.receive("step", size=100), PeerLost)
    assert "closed the connection before the run was over" in told


def test_another_step_or_size_is_refused():
    for step, size in (("another", 4), ("step", 3), ("step", 5)):
        first, second = channels()
        first.send("step", b"four")
        failure_of(lambda: second.receive(step, size=size), ChannelBroken)  # noqa: B023
        first.abort()


def test_an_oversized_message_is_refused_before_it_is_read():
    first, second = channels()
    first.send("step", bytes(100_000))
    assert "size" in failure_of(lambda: second.receive("step", most=10), ChannelBroken)
    assert second.received_bytes < 1000
    first.abort()


def test_a_silent_peer_is_given_up_on_in_time():
    first, second = channels(timeout_s=0.2)
    assert "within 0.2 s" in failure_of(lambda: first.receive("step", size=1), PeerLost)
    second.abort()


def test_a_peer_that_drips_is_given_up_on_in_time():
    first, second = channels(timeout_s=0.3)
    stop = threading.Event()
    stream = second._socket

    def drip():
        stream.sendall((1048).to_bytes(4, "big"))
        while not stop.wait(0.02):
            try:
                stream.sendall(b"x")
            except OSError:
                return

    dripping = threading.Thread(target=drip)
    dripping.start()
    began = time.monotonic()
    failure_of(lambda: first.receive("step", size=1000), PeerLost)
    assert time.monotonic() - began < 3
    stop.set()
    dripping.join()
    second.abort()


def test_a_peer_that_takes_nothing_is_given_up_on():
    first, second = channels(timeout_s=0.2)
    told = failure_of(lambda: first.send("step", bytes(20_000_000)), PeerLost)
    assert "took nothing" in told
    second.abort()


def test_a_peer_that_vanishes_is_noticed_by_both_calls():
    first, second = channels()
    second.abort()
    failure_of(lambda: first.receive("step", size=1), PeerLost)
    first, second = channels()
    second.abort()
    failure_of(lambda: [first.send("step", bytes(100_000)) for _ in range(100)], PeerLost)


def test_an_early_end_of_the_peer_is_noticed_at_the_close():
    first, second = channels()
    second.abort()
    failure_of(first.close, PeerLost)


def test_nothing_goes_on_after_a_failure():
    first, second = channels()
    first.send("step", b"1")
    failure_of(lambda: second.receive("another", size=1), ChannelBroken)
    for call in (lambda: second.receive("step", size=1), lambda: second.send("step", b""), lambda: second.session):
        assert "closed" in failure_of(call, ChannelBroken)
    first.abort()


def test_bad_calls_are_refused_and_the_channel_stays_open():
    first, second = channels()
    failure_of(lambda: first.send("s" * 33, b""), BadInput)
    failure_of(lambda: first.send("step", bytes(FRAME_BYTES + 1)), BadInput)
    with socket.socket() as stream:
        failure_of(lambda: Channel.open(stream, FIRST, peer=SECOND.public, first=True, timeout_s=0), BadInput)
    first.send("step", b"1")
    assert second.receive("step", size=1) == b"1"
    assert "planted" not in repr(first)
    first.abort()
    second.abort()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_does_not_use_the_channel():
    # Parent and child would seal two messages with one nonce, and their XOR would be on the wire.
    first, second = channels()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            first.send("x", SECRET)
        except ChannelBroken:
            code = 0
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    first.send("x", b"from the parent")
    assert second.receive("x", size=15) == b"from the parent"
    first.abort()
    second.abort()


@pytest.mark.parametrize("timeout_s", [-1, float("inf"), float("nan"), 1e12, "30", None, True])
def test_a_time_that_no_clock_counts_is_refused(timeout_s):
    left, right = socket.socketpair()
    with left, right:
        told = failure_of(
            lambda: Channel.open(left, FIRST, peer=SECOND.public, first=True, timeout_s=timeout_s), BadInput
        )
    assert "timeout_s is a number of seconds" in told


def test_names_and_bodies_that_are_no_bytes_are_refused_and_nothing_is_sent():
    first, second = channels()
    before = first.sent_bytes
    for call in (
        lambda: first.send("schritt ü", b""),
        lambda: first.send("step", "text"),
        lambda: first.send("s", None),
    ):
        failure_of(call, BadInput)
    assert first.sent_bytes == before
    first.send("step", memoryview(b"1"))
    assert second.receive("step", size=1) == b"1"
    first.abort()
    second.abort()


def test_threads_that_share_a_channel_never_use_one_number_twice():
    first, second = channels()
    inner, numbers = first._keys, []

    class Watching:
        def encrypt(self, nonce, body, extra):
            numbers.append(nonce)
            time.sleep(0.001)  # a thread that seals may be put aside for another one
            return inner.sending.encrypt(nonce, body, extra)

    first._keys = type(inner)(Watching(), inner.receiving, inner.session)
    threads = [threading.Thread(target=first.send, args=("step", bytes([place]))) for place in range(20)]
    for thread in threads:
        thread.start()
    got = {second.receive("step", size=1) for _ in threads}
    for thread in threads:
        thread.join()
    assert len(set(numbers)) == len(got) == 20
    first.abort()
    second.abort()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_during_a_message_is_refused_and_does_not_wait():
    first, second = channels(timeout_s=5)
    waiting = threading.Thread(target=lambda: first.receive("step", size=1))
    waiting.start()
    time.sleep(0.05)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            first.receive("step", size=1)
        except ChannelBroken:
            code = 0
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    second.send("step", b"1")
    waiting.join()
    first.abort()
    second.abort()


def test_strangers_who_send_anything_get_one_sentence_and_the_socket_is_closed():
    random = Random(1)
    keys = [bytes(32), b"\xff" * 32, X25519PrivateKey.generate().public_key().public_bytes_raw()]
    for _ in range(300):
        left, right = socket.socketpair()
        greeting = bytes([random.choice((0, 0, 0, 1, 255))]) + random.choice(keys) + random.randbytes(32)
        length = random.choice((0, 47, 48, 100, 148, 149, FRAME_BYTES, (1 << 32) - 1))
        frame = length.to_bytes(4, "big") + random.randbytes(min(length, random.choice((0, 10, 200))))
        with right:
            right.sendall(greeting[: random.choice((65, 65, 10))] + frame)
            right.shutdown(socket.SHUT_WR)
            told = failure_of(
                lambda: Channel.open(left, FIRST, peer=SECOND.public, first=True, timeout_s=1),  # noqa: B023
                (ChannelBroken, PeerLost),
            )
        assert "gave no output" in told
        assert left.fileno() == -1

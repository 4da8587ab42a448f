"""An authenticated, encrypted channel between the two parties of a protocol.

Parties: `first` and `second`. Each holds an Ed25519 key and pins the other's public key.
Learned by each: the messages that the other sends to it. A listener learns lengths and times only.
Collusion: none to consider; there are two parties.
An active attacker on the wire can end the run, and nothing else. A message that is altered, repeated, left out, put
in another place, taken from another run or sent back to its sender is refused, and so is a peer with another key.
Tests: tests/unit/vault/circuits/test_channel.py.

The handshake is a signed Diffie-Hellman exchange (SIGMA, Krawczyk 2003): new X25519 keys and random numbers, a key for
each direction by HKDF over the hash of both greetings, then a signature of that hash inside the encrypted channel.
Each frame is AES-256-GCM with the frame's number as its nonce, so that only the next frame of this run decrypts.
"""

import hashlib
import os
import socket
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import NoReturn, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from cloister.privacy.errors import BadInput, ChannelBroken, PeerLost
from cloister.privacy.noise.source import SYSTEM, Source
from cloister.privacy.signing import PublicKey, SigningKey
from cloister.vault.secret import Secret

__all__ = ["ANOTHER_STEP", "FRAME_BYTES", "Bytes", "Channel", "check_timeout"]

Bytes = bytes | bytearray | memoryview

FRAME_BYTES = 1 << 26  # the longest message; longer data are sent in parts
_MOST_TIMEOUT_S = 7 * 24 * 3600
_LABEL = b"cloister vault channel 1"
_STEP = 32
_TAG = 16
_HELLO = 1 + 32 + 32
_END = "end of the run"
ANOTHER_STEP = "Compare the two programs: both make the same calls, and declare each input alike"
_AGAIN = "Run the protocol again from its beginning."


@dataclass(frozen=True, slots=True, repr=False)
class _Keys:
    """The keys of both directions and the number of the run."""

    sending: AESGCM
    receiving: AESGCM
    session: bytes


class Channel(Secret):
    """Named messages to one peer, and from it, in an order that both parties know.

    After any failure the channel is closed for good: no later call can go on with half of a run. Threads may share it:
    each message has a number of its own, though only the protocol knows which thread comes first.
    """

    __slots__ = (
        "_keys",
        "_process",
        "_received",
        "_receiving",
        "_sending",
        "_sent",
        "_socket",
        "received_bytes",
        "sent_bytes",
        "timeout_s",
    )

    def __init__(self, stream: socket.socket, timeout_s: float) -> None:
        self._socket: socket.socket | None = stream
        self._keys: _Keys | None = None
        self._sent = self._received = 0
        # Two messages with one number would be sealed with one nonce, which reveals both and the key of tags.
        self._sending, self._receiving = threading.Lock(), threading.Lock()
        self._process = os.getpid()
        self.sent_bytes = self.received_bytes = 0
        self.timeout_s = timeout_s

    @classmethod
    def open(
        cls,
        stream: socket.socket,
        key: SigningKey,
        *,
        peer: PublicKey,
        first: bool,
        timeout_s: float = 30,
        source: Source = SYSTEM,
    ) -> "Channel":
        """Shake hands with the peer over a connected stream socket.

        Args:
            stream: the socket. The channel owns it from now on.
            key: this party's key.
            peer: the other party's public key, known in advance.
            first: True for one party and False for the other; by custom the garbler and the sender are first.
            timeout_s: how long a message of the peer may take.
            source: where the random numbers of the handshake come from.

        Raises:
            BadInput: an argument has another type; nothing was sent.
            ChannelBroken: the peer is not the one that was pinned, or claims the same place.
            PeerLost: the peer did not answer.
        """
        check_timeout(timeout_s)
        _check_ends(stream, key, peer, first)
        channel = cls(stream, timeout_s)
        try:
            channel._shake_hands(key, peer, first, source)
        except BaseException:
            channel.abort()
            raise
        return channel

    @property
    def session(self) -> bytes:
        """Return 32 bytes that both parties know and that are new in each run."""
        return self._open_keys().session

    def send(self, step: str, body: Bytes) -> None:
        """Send one message.

        Args:
            step: the name of this step of the protocol, up to 32 ASCII letters. The peer checks it.
            body: at most `FRAME_BYTES` bytes.
        """
        name = step.encode("ascii", "replace")
        if not step.isascii() or len(name) > _STEP or not isinstance(body, Bytes) or len(body) > FRAME_BYTES:
            raise BadInput(
                f"a message has a name of up to {_STEP} ASCII letters and up to {FRAME_BYTES} bytes. Send parts."
            )
        self._open_keys()  # before the lock, which a fork may have copied while it was held
        with self._sending:
            keys = self._open_keys()
            sealed = keys.sending.encrypt(self._sent.to_bytes(12, "big"), name.ljust(_STEP) + body, None)
            self._sent += 1
            self._write(len(sealed).to_bytes(4, "big") + sealed)

    def receive(self, step: str, *, size: int | None = None, most: int | None = None) -> bytes:
        """Return the body of the next message.

        Args:
            step: the name that the message must have.
            size: its exact size in bytes.
            most: instead, the largest size that is accepted.

        Raises:
            ChannelBroken: the message is not the next one of this run, or has another name or size.
            PeerLost: the peer went away or sent nothing in time.
        """
        self._open_keys()
        with self._receiving:
            return self._received_next(step, size, most)

    def _received_next(self, step: str, size: int | None, most: int | None) -> bytes:
        keys = self._open_keys()
        limit = size if size is not None else (FRAME_BYTES if most is None else most)
        deadline = time.monotonic() + self.timeout_s
        length = int.from_bytes(self._read(4, deadline), "big")
        if not _STEP + _TAG <= length <= max(limit, 0) + _STEP + _TAG:
            self._refuse(f"the message for step '{step}' has a size that this step does not allow")
        sealed = self._read(length, deadline)
        try:
            opened = keys.receiving.decrypt(self._received.to_bytes(12, "big"), sealed, None)
        except InvalidTag:
            self._refuse(f"message {self._received} was altered, repeated or moved, or is of another run")
        self._received += 1
        name = opened[:_STEP].rstrip()
        if name != step.encode("ascii"):
            self._refuse(f"the peer is at another step than '{step}'. {ANOTHER_STEP}")
        if size is not None and len(opened) - _STEP != size:
            self._refuse(f"the message for step '{step}' has a size that this step does not allow")
        return opened[_STEP:]

    def close(self) -> None:
        """End the run: tell the peer that nothing follows, and check that the peer ended too."""
        if self._socket is not None:
            self.send(_END, b"")
            self.receive(_END, size=0)
            self.abort()

    def abort(self) -> None:
        """Close the socket without a word. The peer notices."""
        stream, self._socket, self._keys = self._socket, None, None
        if stream is not None:
            stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abort()

    def __repr__(self) -> str:
        return f"<Channel {'open' if self._keys else 'closed'}, {self._sent} sent, {self._received} received>"

    def _shake_hands(self, key: SigningKey, peer: PublicKey, first: bool, source: Source) -> None:
        private = X25519PrivateKey.from_private_bytes(source.bytes(32))
        mine = bytes([first]) + private.public_key().public_bytes_raw() + source.bytes(32)
        self._write(mine)
        theirs = self._read(_HELLO, time.monotonic() + self.timeout_s)
        if theirs[0] != (not first):
            self._refuse("both parties took the same place, or the peer is no party. One opens with first=True")
        greetings = mine + theirs if first else theirs + mine
        transcript = hashlib.sha256(_LABEL + greetings).digest()
        try:
            shared = private.exchange(X25519PublicKey.from_public_bytes(theirs[1:33]))
        except ValueError:
            self._refuse("the peer's greeting holds no proper key")
        drawn = HKDF(hashes.SHA256(), 96, salt=transcript, info=_LABEL).derive(shared)
        of_first, of_second = AESGCM(drawn[:32]), AESGCM(drawn[32:64])
        sending, receiving = (of_first, of_second) if first else (of_second, of_first)
        self._keys = _Keys(sending, receiving, drawn[64:])
        self.send("signature", key.sign(_statement(transcript, first, peer)).encode("ascii"))
        signature = self.receive("signature", most=100).decode("ascii", "replace")
        if not peer.verify(_statement(transcript, not first, key.public), signature):
            self._refuse("the peer does not hold the key that was pinned for it")

    def _open_keys(self) -> _Keys:
        if self._keys is None or self._socket is None:
            raise ChannelBroken(f"this channel is closed. {_AGAIN}")
        if self._process != os.getpid():
            # Both processes would use the same nonces with one key, which reveals messages.
            raise ChannelBroken("this channel was opened by another process. Open one in each process, after the fork.")
        return self._keys

    def _open_stream(self) -> socket.socket:
        stream = self._socket
        if stream is None:
            raise ChannelBroken(f"this channel is closed. {_AGAIN}")
        return stream

    def _refuse(self, why: str) -> NoReturn:
        self.abort()
        raise ChannelBroken(f"{why}. The run is over and gave no output. {_AGAIN}") from None

    def _lost(self, what: str) -> NoReturn:
        self.abort()
        raise PeerLost(f"the peer {what}. The run is over and gave no output. {_AGAIN}") from None

    def _write(self, raw: bytes) -> None:
        stream = self._open_stream()
        try:
            stream.settimeout(self.timeout_s)
            stream.sendall(raw)
        except TimeoutError:
            self._lost(f"took nothing for {self.timeout_s:g} s")
        except OSError:
            self._lost("closed the connection")
        self.sent_bytes += len(raw)

    def _read(self, count: int, deadline: float) -> bytes:
        """Read exactly this many bytes before the deadline, however slowly they drip in."""
        stream = self._open_stream()
        raw = bytearray(count)
        at = 0
        try:
            while at < count:
                stream.settimeout(max(deadline - time.monotonic(), 1e-3))
                got = stream.recv_into(memoryview(raw)[at:])
                if got == 0:
                    self._lost("closed the connection before the run was over")
                at += got
                if at < count and time.monotonic() > deadline:
                    raise TimeoutError
        except TimeoutError:
            self._lost(f"sent no message within {self.timeout_s:g} s")
        except OSError:
            self._lost("closed the connection")
        self.received_bytes += count
        return bytes(raw)


def check_timeout(timeout_s: object) -> None:
    """Refuse a time that is no number of seconds, or longer than a clock counts."""
    whole = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
    if not whole or not 0 < timeout_s <= _MOST_TIMEOUT_S:  # type: ignore[operator]
        raise BadInput(
            f"timeout_s is a number of seconds above 0 and up to {_MOST_TIMEOUT_S}, got {timeout_s!r:.20}. 30 is usual."
        )


def _check_ends(stream: object, key: object, peer: object, first: object) -> None:
    if not isinstance(stream, socket.socket):
        kind = type(stream).__name__
        raise BadInput(f"stream is a connected socket, got {kind:.40}. Make one with socket.create_connection.")
    if not isinstance(key, SigningKey):
        raise BadInput(f"key is this party's SigningKey, got {type(key).__name__:.40}. Use SigningKey.load(path).")
    if not isinstance(peer, PublicKey):
        raise BadInput(
            f"peer is the other party's PublicKey of cloister.privacy.signing, got {type(peer).__name__:.40}. "
            "Read the line of the other party with PublicKey.parse."
        )
    if not isinstance(first, bool):
        raise BadInput(f"first is True for one party and False for the other, got {first!r:.20}.")


def _statement(transcript: bytes, first: bool, audience: PublicKey) -> bytes:
    """Return what a party signs: this run, its own place in it, and whom it means to speak to."""
    return b"\0".join((_LABEL, b"first" if first else b"second", transcript, str(audience).encode("ascii")))

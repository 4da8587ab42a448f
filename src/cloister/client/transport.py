"""HTTP between a client and a hub: persistent connections, refusals as Cloister errors, resumable uploads.

Standard library only. Idempotent requests are repeated when a kept connection is stale; a request that may cost
something is sent once, on a new connection.
"""

import http.client
import ipaddress
import json
import secrets
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cloister.privacy.errors import (
    BadForm,
    BadName,
    CloisterError,
    NotNow,
    SignInFailed,
    TooMany,
    Unavailable,
    UploadRefused,
    catalogue,
)
from cloister.version import __version__

__all__ = ["Transport", "drawn", "error_of", "form_data", "parse", "send_file", "shared_bar"]

_CHUNK = 8 * 1024 * 1024
_TRIES = 8
_LOST = (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError, OSError)
_KINDS = {kind.code: kind for kind in catalogue()}


class Transport:
    """Connections to one hub, one per thread."""

    def __init__(self, address: str, token: str, timeout_s: float = 60) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise BadName(f"a hub's address is like https://hub.example.org, got {address!r:.80}.")
        if parts.scheme == "http" and not _is_here(parts.hostname):
            raise BadName("over plain http a token could be read on its way. Use the hub's https:// address.")
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise SignInFailed("a token is one word like clo_…. Make one under Account on the hub.")
        self.address = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._token = token
        self._parts = parts
        self._timeout_s = timeout_s
        self._kept = threading.local()

    def json(self, method: str, path: str, body: Any = None) -> Any:
        """Send and receive JSON."""
        return parse(self.raw(method, path, None if body is None else json.dumps(body).encode(), "application/json"))

    def raw(self, method: str, path: str, body: bytes | None = None, kind: str = "application/octet-stream") -> bytes:
        """Send a request; return the answer's body, or raise the hub's refusal.

        Raises:
            CloisterError: by its code, as the hub raised it.
            Unavailable: the hub cannot be reached, or its answer is malformed.
        """
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json, */*"}
        headers["User-Agent"] = f"cloister/{__version__}"
        if body is not None:
            headers["Content-Type"] = kind
        for attempt in ("kept", "fresh"):
            fresh = attempt == "fresh" or method != "GET"  # a lost POST may have been processed: never send it twice
            connection, reused = self._connection(fresh)
            try:
                connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
                answer = connection.getresponse()
                content = answer.read()
            except _LOST as error:
                connection.close()
                if reused and not fresh:
                    continue
                raise Unavailable(
                    f"the hub at {self.address} cannot be reached ({type(error).__name__}). Check address and network."
                ) from None
            if answer.status >= 300:
                raise _refusal(answer.status, content, answer.headers.get("Retry-After", ""))
            return content
        raise AssertionError("a fresh connection answers or raises")

    def _connection(self, fresh: bool) -> tuple[http.client.HTTPConnection, bool]:
        existing: http.client.HTTPConnection | None = getattr(self._kept, "connection", None)
        if existing is not None and not fresh and existing.sock is not None:
            return existing, True
        if existing is not None:
            existing.close()
        host, port = self._parts.hostname or "", self._parts.port
        connection: http.client.HTTPConnection
        if self._parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                host, port, timeout=self._timeout_s, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        self._kept.connection = connection
        return connection, False

    def close(self) -> None:
        """Close this thread's connection; the next use opens another."""
        connection = getattr(self._kept, "connection", None)
        if connection is not None:
            connection.close()


def parse(raw: bytes) -> Any:
    """Return the values in a hub's answer."""
    try:
        return json.loads(raw) if raw else {}
    except (ValueError, RecursionError):
        raise BadForm("the hub's answer is not JSON. Check the hub's address.") from None


def error_of(code: str, message: str, way_out: str) -> CloisterError:
    """Return the error that the hub raised, by its code."""
    kind = _KINDS.get(code)
    return kind(message) if kind is not None else CloisterError(f"{code}: {message} {way_out}".strip(": "))


def _refusal(status: int, content: bytes, retry_after: str) -> CloisterError:
    try:
        record = json.loads(content)
        error = error_of(str(record["code"]), str(record["message"]), str(record.get("way_out", "")))
    except (ValueError, TypeError, KeyError, RecursionError):
        return Unavailable(f"the hub answered with the status {status} and no reason. Check the hub's address.")
    if isinstance(error, TooMany) and retry_after.isdigit():
        error.wait_s = int(retry_after)
    return error


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


# Uploads


def form_data(texts: Mapping[str, str], files: Mapping[str, bytes]) -> tuple[bytes, str]:
    """Encode a form with files as a browser does; return it with its content type."""
    boundary = secrets.token_hex(16)
    fields = [(f'name="{name}"', text.encode()) for name, text in texts.items()]
    fields += [(f'name="{name}"; filename="{name}"', content) for name, content in files.items()]
    head = f"--{boundary}\r\nContent-Disposition: form-data; "
    parts = [f"{head}{name}\r\n\r\n".encode() + content + b"\r\n" for name, content in fields]
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def send_file(
    transport: Transport, path: str, table: str, file: Path, progress: Callable[[str, int, int], None] | None
) -> str:
    """Send a file in pieces, resuming when the connection breaks; return the upload's id."""
    size = file.stat().st_size
    upload = transport.json("POST", path, {"table": table, "file": file.name, "size": size})
    address, sent, failures = f"/api/uploads/{upload['id']}", int(upload.get("received", 0)), 0
    with file.open("rb") as source:
        while sent < size:
            source.seek(sent)
            piece = source.read(_CHUNK)
            if not piece:
                raise UploadRefused(f"{file} became shorter while it was sent. Send it again.")
            try:
                transport.raw("PUT", f"{address}?offset={sent}", piece)
                sent, failures = sent + len(piece), 0
            except (Unavailable, NotNow, TooMany) as error:
                failures += 1
                if failures >= _TRIES:
                    raise
                time.sleep(min(30.0, getattr(error, "wait_s", 0.2 * 2**failures)))
                received = _received(transport, address)
                if isinstance(error, NotNow) and received in (None, sent):
                    raise  # the hub has all bytes, and refuses all the same
                sent = sent if received is None else received
            if progress is not None:
                progress(table, sent, size)
    return str(upload["id"])


def _received(transport: Transport, address: str) -> int | None:
    try:
        return int(transport.json("GET", address)["received"])
    except Unavailable:
        return None


@contextmanager
def drawn(progress: Callable[[str, int, int], None] | None) -> Iterator[Callable[[str, int, int], None] | None]:
    """Yield the caller's progress callback, or a bar in the terminal, or None without one."""
    if progress is not None or not sys.stderr.isatty():
        with nullcontext():
            yield progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}

        def draw(table: str, sent: int, size: int) -> None:
            if table not in tasks:
                tasks[table] = bars.add_task(table, total=size)
            bars.update(tasks[table], completed=sent)

        yield draw


@contextmanager
def shared_bar(
    progress: Callable[[float, str], None] | None, label: str
) -> Iterator[Callable[[float, str], None] | None]:
    """Yield the same for a job on the hub, called with a share and a word."""
    if progress is not None or not sys.stderr.isatty():
        yield progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(label, total=1.0)
        yield lambda share, word: bars.update(task, completed=share, description=word)

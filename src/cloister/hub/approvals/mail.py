"""E-mail: notifications, and links that verify an address; written to a folder or sent by SMTP with TLS.

A worker calls `deliver`.

A notification is marked as mailed before it is sent, so that two workers never send it twice. If sending fails, the
mark is removed and it is tried again. A process that dies in between loses the e-mail; the page still shows the
notification.
"""

import os
import smtplib
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import sqlalchemy as sa

from cloister.hub.core.database import now
from cloister.hub.core.models import Notice, Person
from cloister.privacy.errors import BadName, NotNow, StoreFailed

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub
    from cloister.hub.core.settings import Settings

__all__ = ["deliver"]

_DAYS = 7  # older notifications are not mailed when a mail server is set up
_LOCAL = ("localhost", "127.0.0.1", "::1")
_TIMEOUT_S = 20
_Send = Callable[[str, EmailMessage], None]  # file name, message


def deliver(hub: "Hub", most: int = 100) -> int:
    """Send waiting e-mails; return how many were sent. Does nothing if neither a folder nor a server is set.

    Raises:
        StoreFailed: the folder or the server cannot be used now; what was not sent is tried again the next time.
    """
    if not hub.settings.mail_folder and not hub.settings.smtp_url:
        return 0
    waiting, unverified = _waiting(hub, most), _unverified(hub, most)
    if not waiting and not unverified:
        return 0
    sent = 0
    with _sender(hub.settings) as send:
        for number in unverified:
            sent += _send_link(hub, number, send)
        for number in waiting:
            sent += _send_one(hub, number, send)
    return sent


def _unverified(hub: "Hub", most: int) -> list[int]:
    """Return the users who wait for a link that verifies their address."""
    wanted = sa.select(Person.id).where(
        Person.verify_asked > now() - _DAYS * 86400, Person.verified.is_(None), Person.active
    )
    with hub.database.reading() as session:
        return list(session.scalars(wanted.order_by(Person.id).limit(most)))


def _send_link(hub: "Hub", number: int, send: _Send) -> bool:
    """Create a link and send it. The secret is only in the e-mail: shown on a page it would prove no address."""
    from cloister.hub.users.accounts import make_verify_link  # accounts send notifications: not at the top

    with hub.database.writing() as session:
        mine = sa.update(Person).where(Person.id == number, Person.verify_asked.is_not(None)).values(verify_asked=None)
        if session.execute(mine.returning(Person.id)).first() is None:
            return False  # another worker has it
        person = session.get_one(Person, number)
        try:
            link = f"{hub.settings.address.rstrip('/')}/verify/{make_verify_link(session, None, person)}"
        except NotNow:
            return False
        message = _addressed(hub.settings, person, f"v{number}")
    if message is None:
        return False
    message["Subject"] = f"{hub.settings.name}: verify your e-mail address"
    message.set_content(
        f"An account at {hub.settings.name} was made with this address. If it is yours, sign in and open this link "
        f"within seven days:\n\n{link}\n\nIf it is not yours, do nothing: the address stays unverified, and nobody "
        f"gets a right by it.\n\n-- \n{hub.settings.name}\n"
    )
    again = sa.update(Person).where(Person.id == number).values(verify_asked=now())
    return _sent(hub, f"verify-{number:08d}", message, send, again)


def _waiting(hub: "Hub", most: int) -> list[int]:
    fresh = sa.select(Notice.id).where(~Notice.mailed, Notice.created > now() - _DAYS * 86400)
    with hub.database.reading() as session:
        return list(session.scalars(fresh.order_by(Notice.id).limit(most)))


def _send_one(hub: "Hub", number: int, send: _Send) -> bool:
    with hub.database.writing() as session:
        claim = sa.update(Notice).where(Notice.id == number, ~Notice.mailed).values(mailed=True).returning(Notice.id)
        if session.execute(claim).first() is None:
            return False  # another worker has it
        notice = session.get_one(Notice, number)
        person = session.get(Person, notice.person_id)
        # Nothing is sent to an unverified address: it may belong to another person.
        known = person is not None and person.active and person.verified is not None
        message = _message(hub.settings, person, notice) if person is not None and known else None
    if message is None:
        return False
    again = sa.update(Notice).where(Notice.id == number).values(mailed=False)
    return _sent(hub, f"notice-{number:08d}", message, send, again)


def _sent(hub: "Hub", name: str, message: EmailMessage, send: _Send, undo: sa.Update) -> bool:
    """Send an e-mail; if that fails, run `undo` so that it is tried again."""
    try:
        send(name, message)
    except smtplib.SMTPRecipientsRefused:
        return False  # that address accepts no mail: a retry would not help
    except (OSError, smtplib.SMTPException) as error:
        with hub.database.writing() as session:
            session.execute(undo)
        raise StoreFailed(f"e-mails cannot be sent now ({type(error).__name__}). They are tried again.") from None
    return True


def _addressed(settings: "Settings", person: Person, number: str, time: float | None = None) -> EmailMessage | None:
    """Return an e-mail without subject and text; None if nothing can be sent to the user's address."""
    message = EmailMessage()
    try:
        message["To"] = person.email
    except ValueError:
        return None  # not an address that mail could go to
    message["From"] = settings.mail_from
    message["Date"] = formatdate(time)
    message["Message-ID"] = make_msgid(number, settings.mail_from.rpartition("@")[2] or "localhost")
    message["Auto-Submitted"] = "auto-generated"
    return message


def _message(settings: "Settings", person: Person, notice: Notice) -> EmailMessage | None:
    message = _addressed(settings, person, str(notice.id), notice.created)
    if message is None:
        return None
    message["Subject"] = f"{settings.name}: {notice.text if len(notice.text) <= 90 else notice.text[:89] + '…'}"
    link = f"\n\n{settings.address.rstrip('/')}{notice.link}" if notice.link else ""
    message.set_content(f"{notice.text}{link}\n\n-- \n{settings.name}\n")
    return message


@contextmanager
def _sender(settings: "Settings") -> Iterator[_Send]:
    if settings.mail_folder:
        folder = Path(settings.mail_folder)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreFailed(f"e-mails cannot be written to {folder} ({error.strerror}).") from None
        yield lambda name, message: _write(folder / f"{name}.eml", message)
        return
    try:
        server = _connect(settings.smtp_url)
    except (OSError, smtplib.SMTPException) as error:
        raise StoreFailed(f"the mail server cannot be reached ({type(error).__name__}). It is tried again.") from None
    with server:
        yield lambda _, message: _discard(server.send_message(message))


def _discard(_: object) -> None:
    return None


def _write(path: Path, message: EmailMessage) -> None:
    # Write under another name first: a reader of the folder never finds a partial file.
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.write(message.as_bytes())
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _connect(address: str) -> smtplib.SMTP:
    """Return a signed-in connection. Without TLS only to this machine."""
    url = urlsplit(address)
    host = url.hostname or ""
    if url.scheme not in ("smtp", "smtps") or not host:
        raise BadName("CLOISTER_SMTP_URL must be like smtp://user:password@host:587 or smtps://host:465.")
    trusted = ssl.create_default_context()
    if url.scheme == "smtps":
        server: smtplib.SMTP = smtplib.SMTP_SSL(host, url.port or 465, timeout=_TIMEOUT_S, context=trusted)
    else:
        server = smtplib.SMTP(host, url.port or 587, timeout=_TIMEOUT_S)
    try:
        if url.scheme == "smtp":
            server.ehlo()
            if host not in _LOCAL or server.has_extn("starttls"):
                server.starttls(context=trusted)  # raises if the server has no TLS: no mail is sent unencrypted
        if url.username:
            server.login(unquote(url.username), unquote(url.password or ""))
    except BaseException:
        server.close()
        raise
    return server

"""E-mail: notifications, and links that verify an address; written to a folder or sent by SMTP with TLS.

A worker calls `deliver`.

A notification is marked as mailed before it is sent, so that two workers never send it twice. If the server cannot be
used now, the mark is removed and it is tried again. An e-mail that cannot be written, or that the server refuses for
good, keeps its mark, so it is given up; it never holds up the others. A process that dies in between loses the e-mail;
the page still shows the notification.
"""

import logging
import os
import smtplib
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import sqlalchemy as sa

from cloister.hub.core.database import now
from cloister.hub.core.logs import error_facts
from cloister.hub.core.models import Notice, Person
from cloister.privacy.errors import BadName, NotNow, StoreFailed

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub
    from cloister.hub.core.settings import Settings

__all__ = ["deliver"]

_LOG = logging.getLogger("cloister.hub.mail")
_DAYS = 7  # older notifications are not mailed when a mail server is set up
_LOCAL = ("localhost", "127.0.0.1", "::1")
_TIMEOUT_S = 20
_Send = Callable[[str, EmailMessage], None]  # file name, message
_DOWN = (smtplib.SMTPServerDisconnected, smtplib.SMTPConnectError, smtplib.SMTPHeloError)
_CLOSING = 421  # the server ends the connection


class _Later(Exception):
    """One e-mail is not accepted now; the others may be."""


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
    sent, later = 0, 0
    with _sender(hub.settings) as send:
        for send_mail, numbers in ((_send_link, unverified), (_send_one, waiting)):
            for number in numbers:
                try:
                    sent += send_mail(hub, number, send)
                except _Later:
                    later += 1
    if later:
        raise StoreFailed(f"the mail server did not accept {later:,} e-mails now. They are tried again.")
    return sent


def _unverified(hub: "Hub", most: int) -> list[int]:
    """Return the users who wait for a link that verifies their address."""
    wanted = sa.select(Person.id).where(
        Person.verify_asked > now() - _DAYS * 86400, Person.verified.is_(None), Person.active
    )
    with hub.database.reading() as session:
        # At random: those that fail each time are not always the first.
        return list(session.scalars(wanted.order_by(sa.func.random()).limit(most)))


def _send_link(hub: "Hub", number: int, send: _Send) -> bool:
    """Create a link and send it. The secret is only in the e-mail: shown on a page it would prove no address."""
    from cloister.hub.users.accounts import make_verify_link  # accounts send notifications: not at the top

    with hub.database.writing() as session:
        asked_at = session.scalar(sa.select(Person.verify_asked).where(Person.id == number))
        mine = sa.update(Person).where(Person.id == number, Person.verify_asked.is_not(None)).values(verify_asked=None)
        if session.execute(mine.returning(Person.id)).first() is None:
            return False  # another worker has it
        person = session.get_one(Person, number)
        try:
            link = f"{hub.settings.address.rstrip('/')}/verify/{make_verify_link(session, None, person)}"
        except NotNow:
            return False
        to = person.email
    name, at = f"verify-{number:08d}", hub.settings.name
    text = (
        f"An account at {at} was made with this address. If it is yours, sign in and open this link "
        f"within seven days:\n\n{link}\n\nIf it is not yours, do nothing: the address stays unverified, and nobody "
        f"gets a right by it.\n\n-- \n{at}\n"
    )
    # The time of the first attempt stays: one that fails each time ends after seven days.
    again = sa.update(Person).where(Person.id == number).values(verify_asked=asked_at)
    return _sent(
        hub, name, lambda: _message(hub.settings, to, f"v{number}", "verify your e-mail address", text), send, again
    )


def _waiting(hub: "Hub", most: int) -> list[int]:
    fresh = sa.select(Notice.id).where(~Notice.mailed, Notice.created > now() - _DAYS * 86400)
    with hub.database.reading() as session:
        return sorted(session.scalars(fresh.order_by(sa.func.random()).limit(most)))  # as above


def _send_one(hub: "Hub", number: int, send: _Send) -> bool:
    with hub.database.writing() as session:
        claim = sa.update(Notice).where(Notice.id == number, ~Notice.mailed).values(mailed=True).returning(Notice.id)
        if session.execute(claim).first() is None:
            return False  # another worker has it
        notice = session.get_one(Notice, number)
        person = session.get(Person, notice.person_id)
        # Nothing is sent to an unverified address: it may belong to another person.
        deliverable = person is not None and person.active and person.verified is not None
        to = person.email if person is not None and deliverable else None
        sentence, link, time = notice.text, notice.link, notice.created
    if to is None:
        return False
    at = f"\n\n{hub.settings.address.rstrip('/')}{link}" if link else ""
    text = f"{sentence}{at}\n\n-- \n{hub.settings.name}\n"
    again = sa.update(Notice).where(Notice.id == number).values(mailed=False)
    name = f"notice-{number:08d}"
    return _sent(hub, name, lambda: _message(hub.settings, to, str(number), sentence, text, time), send, again)


def _sent(hub: "Hub", name: str, write: Callable[[], EmailMessage], send: _Send, undo: sa.Update) -> bool:
    """Write and send an e-mail; if it may be accepted later, run `undo` so that it is tried again.

    Raises:
        StoreFailed: the folder or the server cannot be used now.
        _Later: the server does not accept this e-mail now.
    """
    try:
        send(name, write())
    except Exception as error:  # the e-mail package raises many kinds for an address or a text that it cannot write
        down, later = _is_down(error), _is_later(error)
        if not down and not later:  # a retry would not help
            _LOG.warning("an e-mail was given up", extra={"facts": {"name": name, **error_facts(error)}})
            return False
        with hub.database.writing() as session:
            session.execute(undo)
        if down:
            raise StoreFailed(f"e-mails cannot be sent now ({type(error).__name__}). They are tried again.") from None
        raise _Later from None
    return True


def _is_down(error: Exception) -> bool:
    """Return True if the folder or the server, not one e-mail, is the problem."""
    if isinstance(error, smtplib.SMTPException):
        return isinstance(error, _DOWN) or _CLOSING in _codes(error)
    return isinstance(error, OSError)


def _is_later(error: Exception) -> bool:
    """Return True if the server may accept the same e-mail later."""
    if isinstance(error, smtplib.SMTPSenderRefused):  # that is the setting CLOISTER_MAIL_FROM: the operator mends it
        return True
    codes = _codes(error)
    return bool(codes) and all(400 <= code < 500 for code in codes)


def _codes(error: Exception) -> list[int]:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return [code for code, _ in error.recipients.values()]
    return [int(error.smtp_code)] if isinstance(error, smtplib.SMTPResponseException) else []


def _message(
    settings: "Settings", to: str, number: str, subject: str, text: str, time: float | None = None
) -> EmailMessage:
    """Return an e-mail. Raises any kind of error for an address or a text that cannot be written."""
    message, line = EmailMessage(), " ".join(subject.split())
    message["To"] = Address(addr_spec=to)
    message["From"] = settings.mail_from
    message["Date"] = formatdate(time)
    message["Message-ID"] = make_msgid(number, settings.mail_from.rpartition("@")[2] or "localhost")
    message["Auto-Submitted"] = "auto-generated"
    message["Subject"] = f"{settings.name}: {line if len(line) <= 90 else line[:89] + '…'}"
    message.set_content(text)
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

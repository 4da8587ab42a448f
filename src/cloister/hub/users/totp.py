"""Second factor: six digits from an app, new every thirty seconds (RFC 6238). Each works once.

The app's secret is sealed by the hub's master key; codes cannot be made from the database alone. A user who loses the
app asks an operator, whose reset link removes the factor.
"""

import hmac
from typing import Protocol

import pyotp
import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.database import now
from cloister.hub.core.models import Person
from cloister.hub.users.roles import person_here
from cloister.privacy.errors import BadForm, NotNow

__all__ = ["Seals", "cancel", "check", "confirm", "enroll", "pending", "remove"]

_STEP = 30
_SLACK = 1  # a clock may be one step off, either way


class Seals(Protocol):
    """Protocol for sealing the secrets: the hub's master key."""

    def seal(self, data: bytes, label: str) -> bytes:
        """Encrypt, bound to the label."""
        ...

    def open(self, data: bytes, label: str) -> bytes:
        """Decrypt what was sealed under this label."""
        ...


def enroll(session: Session, keys: Seals, person: Person | int, issuer: str = "Cloister") -> tuple[str, str]:
    """Create a secret for the user's app; return it as text and as an otpauth address. Active after `confirm`.

    Raises:
        NotNow: there is a second factor already; it must be removed first, which needs one of its codes.
    """
    user = person_here(session, person)
    if user.totp_secret is not None:
        raise NotNow("you have a second factor already. Remove it first.")
    text = pyotp.random_base32()
    user.totp_pending = keys.seal(text.encode(), _label(user))
    session.flush()
    return text, _address(user, text, issuer)


def pending(keys: Seals, person: Person, issuer: str = "Cloister") -> tuple[str, str] | None:
    """Return the secret that waits for its first code, as `enroll` gave it; None if none does."""
    if person.totp_pending is None:
        return None
    text = keys.open(person.totp_pending, _label(person)).decode()
    return text, _address(person, text, issuer)


def confirm(session: Session, keys: Seals, person: Person | int, code: str) -> None:
    """Activate the second factor with the app's first code, which proves that the app has the secret.

    Raises:
        NotNow: no secret waits for this.
        BadForm: the code does not fit.
    """
    user = person_here(session, person)
    if user.totp_secret is not None or user.totp_pending is None:
        raise NotNow("no second factor waits to be confirmed. Begin again.")
    step = _fitting(keys.open(user.totp_pending, _label(user)).decode(), code, after=0)
    if step is None:
        raise BadForm("code: it does not fit. Check the clock of your device and give the newest code.")
    user.totp_secret, user.totp_pending, user.totp_last = user.totp_pending, None, step
    session.flush()


def check(session: Session, keys: Seals, person: Person | int, code: str) -> bool:
    """Return True if the code is right and has not been used. The caller limits the attempts."""
    user = person_here(session, person)
    if user.totp_secret is None:
        return False
    step = _fitting(keys.open(user.totp_secret, _label(user)).decode(), code, after=user.totp_last)
    if step is None:
        return False
    # Of two concurrent uses of the same code, the database accepts one.
    used = sa.update(Person).where(Person.id == user.id, Person.totp_last < step).values(totp_last=step)
    fresh = session.connection().execute(used).rowcount == 1
    session.refresh(user)
    return fresh


def cancel(session: Session, person: Person | int) -> None:
    """Delete a secret that was not confirmed."""
    person_here(session, person).totp_pending = None
    session.flush()


def remove(session: Session, person: Person | int) -> None:
    """Remove the second factor."""
    user = person_here(session, person)
    user.totp_secret = user.totp_pending = None
    session.flush()


def _fitting(secret: str, code: str, after: int) -> int | None:
    digits = "".join(code.split())
    if len(digits) != 6 or not (digits.isascii() and digits.isdigit()):
        return None
    maker, current = pyotp.TOTP(secret, interval=_STEP), int(now()) // _STEP
    # Every step is compared, in constant time; then those already used are left out.
    fits = [
        step
        for step in range(current - _SLACK, current + _SLACK + 1)
        if hmac.compare_digest(maker.at(step * _STEP), digits)
    ]
    return next((step for step in fits if step > after), None)


def _address(person: Person, secret: str, issuer: str) -> str:
    return pyotp.TOTP(secret, interval=_STEP).provisioning_uri(name=person.email, issuer_name=issuer)


def _label(person: Person) -> str:
    return f"totp/{person.id}"

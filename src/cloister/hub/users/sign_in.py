"""Sign-in: password, second factor, session. The audit log records each step, whether it succeeded or not.

    sign_in ─► a complete session
       └─────► an incomplete one ─► second_factor, or enrol and confirm where every user needs one ─► a complete one

A refusal reads the same for a wrong password, an unknown address and a closed account, and takes as long. A password
is checked outside of any transaction: it is slow on purpose, and others should not wait for it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloister.hub.core import models
from cloister.hub.core.models import Person
from cloister.hub.users import accounts, passwords, rate_limits, sessions, totp
from cloister.hub.users.roles import person_here
from cloister.privacy.errors import NotNow, SignInFailed

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from cloister.hub.core.hub import Hub

__all__ = [
    "Entered",
    "confirm_factor",
    "enroll_factor",
    "prove",
    "remove_factor",
    "second_factor",
    "sign_in",
    "sign_out",
]


@dataclass(frozen=True, slots=True)
class Entered:
    """Result of a sign-in step.

    Attributes:
        secret: the secret for the cookie; the previous one is no longer valid.
        session: the stored session; `complete` is False while the second factor is missing.
        person: the user.
    """

    secret: str
    session: models.Session
    person: Person


def sign_in(hub: "Hub", *, email: str, password: str, address: str, before: str = "") -> Entered:
    """Sign in with a password.

    Args:
        hub: the hub.
        email: the address as typed.
        password: the password as typed.
        address: the network address of the request.
        before: the secret of this browser's previous session, which ends.

    Raises:
        SignInFailed: address or password is wrong; which, is not reported.
        TooMany: too many failed attempts for this account or from this address.
    """
    person = _check(hub, email, password, address)
    renewed = passwords.seal(password) if passwords.outdated(person.password) else None
    with hub.database.writing() as session:
        found = session.get(Person, person.id)
        if found is None or not found.active or found.password != person.password:
            raise _failed()  # closed or changed while the password was checked
        if renewed is not None:
            found.password = renewed
        if before:
            sessions.end(session, before)
        complete = found.totp_secret is None and not hub.settings.require_totp
        secret, kept = sessions.begin(session, hub.settings, found, complete)
        if not complete and found.totp_secret is None:
            totp.enroll(session, hub.keys, found, hub.settings.name)
        action = "person.signed_in" if complete else "person.password_shown"
        hub.audit.write(session, found.id, action, f"person/{found.id}", address=address)
    return Entered(secret, kept, found)


def prove(hub: "Hub", person: Person, password: str, address: str) -> None:
    """Check the password of a signed-in user again, before an important change."""
    _check(hub, person.email, password, address)


def second_factor(hub: "Hub", secret: str, code: str, address: str) -> Entered:
    """Check a code after the password: the incomplete session ends and a complete one begins.

    Raises:
        SignInFailed: the code is wrong or was used, or the session is gone.
        TooMany: too many wrong codes for this user or from this address.
    """
    with hub.database.writing() as session:
        person, before = _waiting(session, secret)
        entered = None
        if _code_fits(hub, session, person, code, address):
            entered = Entered(*sessions.complete(session, hub.settings, person, before), person)
            hub.audit.write(session, person.id, "person.signed_in", f"person/{person.id}", address=address, factor=True)
    if entered is None:
        raise SignInFailed("the code does not fit, or was used already. Wait for the next one.")
    return entered


def enroll_factor(hub: "Hub", person: Person) -> tuple[str, str]:
    """Begin to set up a second factor; return the secret for the app, and its otpauth address."""
    with hub.database.writing() as session:
        shown = totp.enroll(session, hub.keys, person, hub.settings.name)
        hub.audit.write(session, person.id, "person.factor_begun", f"person/{person.id}")
    return shown


def confirm_factor(hub: "Hub", secret: str, code: str, address: str) -> Entered:
    """Finish the set-up with the app's first code. The session continues with a new secret, the others end.

    Raises:
        BadForm: the code does not fit.
        NotNow: nothing waits to be confirmed; an existing factor cannot be replaced this way.
    """
    with hub.database.writing() as session:
        person, before = _known(session, secret)
        totp.confirm(session, hub.keys, person, code)
        sessions.end_all(session, person)
        entered = Entered(*sessions.complete(session, hub.settings, person, before), person)
        hub.audit.write(session, person.id, "person.factor_added", f"person/{person.id}", address=address)
        if not before.complete:
            hub.audit.write(session, person.id, "person.signed_in", f"person/{person.id}", address=address, factor=True)
    return entered


def remove_factor(hub: "Hub", person: Person, code: str, address: str) -> None:
    """Remove the second factor, with one of its codes.

    Raises:
        NotNow: the hub requires one of every user.
        SignInFailed: the code is wrong.
        TooMany: too many wrong codes.
    """
    if hub.settings.require_totp:
        raise NotNow("this hub asks everybody for a second factor. If your device is lost, ask an operator.")
    with hub.database.writing() as session:
        found = person_here(session, person)
        if found.totp_secret is None:  # before an attempt is counted: there is nothing to guess
            raise NotNow("you have no second factor.")
        fits = _code_fits(hub, session, found, code, address)
        if fits:
            totp.remove(session, found)
            hub.audit.write(session, found.id, "person.factor_removed", f"person/{found.id}", address=address)
    if not fits:
        raise SignInFailed("the code does not fit, or was used already. Wait for the next one.")


def sign_out(hub: "Hub", secret: str) -> None:
    """End a session."""
    with hub.database.writing() as session:
        known = sessions.find(session, secret)
        sessions.end(session, secret)
        if known is not None:
            hub.audit.write(session, known[0].id, "person.signed_out", f"person/{known[0].id}")


def _check(hub: "Hub", email: str, password: str, address: str) -> Person:
    account, place = rate_limits.key("account", accounts.fold(email)), rate_limits.key("address", address)
    with hub.database.writing() as session:
        left = rate_limits.reserve(session, hub.settings, (account, place))
        person = accounts.find(session, email)
    kept = person.password if person is not None and person.active else None
    fits = passwords.matches(kept, password)
    with hub.database.writing() as session:
        if fits:
            rate_limits.forget(session, (account,))
            rate_limits.give_back(session, place)
        else:
            # Never the input: it may be a password in the wrong field.
            whom = f"person/{person.id}" if person is not None else "person/unknown"
            hub.audit.write(session, None, "person.sign_in_failed", whom, address=address, locked=left == 0)
    if not fits or person is None:
        raise _failed()
    return person


def _code_fits(hub: "Hub", session: "Session", person: Person, code: str, address: str) -> bool:
    factor, place = rate_limits.key("factor", str(person.id)), rate_limits.key("address", address)
    left = rate_limits.reserve(session, hub.settings, (factor, place))
    if totp.check(session, hub.keys, person, code):
        rate_limits.forget(session, (factor,))
        rate_limits.give_back(session, place)
        return True
    whom = f"person/{person.id}"
    hub.audit.write(session, None, "person.code_failed", whom, address=address, locked=left == 0)
    return False


def _known(session: "Session", secret: str) -> tuple[Person, models.Session]:
    known = sessions.find(session, secret)
    if known is None:
        raise SignInFailed("this took too long. Sign in again.")
    return known


def _waiting(session: "Session", secret: str) -> tuple[Person, models.Session]:
    person, kept = _known(session, secret)
    if kept.complete:
        raise NotNow("you are signed in already.")
    return person, kept


def _failed() -> SignInFailed:
    return SignInFailed("the e-mail address and the password do not fit together.")

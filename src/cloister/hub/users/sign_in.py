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
        user = session.get(Person, person.id)
        if user is None or not user.active or user.password != person.password:
            raise _failed()  # closed or changed while the password was checked
        if renewed is not None:
            user.password = renewed
        if before:
            sessions.end(session, before)
        complete = user.totp_secret is None and not hub.settings.require_totp
        secret, stored = sessions.begin(session, hub.settings, user, complete)
        if not complete and user.totp_secret is None:
            totp.enroll(session, hub.keys, user, hub.settings.name)
        action = "person.signed_in" if complete else "person.password_shown"
        hub.audit.write(session, user.id, action, f"person/{user.id}", address=address)
    return Entered(secret, stored, user)


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
        setup = totp.enroll(session, hub.keys, person, hub.settings.name)
        hub.audit.write(session, person.id, "person.factor_begun", f"person/{person.id}")
    return setup


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
        user = person_here(session, person)
        if user.totp_secret is None:  # before an attempt is counted: there is nothing to guess
            raise NotNow("you have no second factor.")
        fits = _code_fits(hub, session, user, code, address)
        if fits:
            totp.remove(session, user)
            hub.audit.write(session, user.id, "person.factor_removed", f"person/{user.id}", address=address)
    if not fits:
        raise SignInFailed("the code does not fit, or was used already. Wait for the next one.")


def sign_out(hub: "Hub", secret: str) -> None:
    """End a session."""
    with hub.database.writing() as session:
        match = sessions.find(session, secret)
        sessions.end(session, secret)
        if match is not None:
            hub.audit.write(session, match[0].id, "person.signed_out", f"person/{match[0].id}")


def _check(hub: "Hub", email: str, password: str, address: str) -> Person:
    account, origin = rate_limits.key("account", accounts.fold(email)), rate_limits.key("address", address)
    with hub.database.writing() as session:
        left = rate_limits.reserve(session, hub.settings, (account, origin))
        person = accounts.find(session, email)
    stored_hash = person.password if person is not None and person.active else None
    fits = passwords.matches(stored_hash, password)
    with hub.database.writing() as session:
        if fits:
            rate_limits.forget(session, (account,))
            rate_limits.give_back(session, origin)
        else:
            # Never the input: it may be a password in the wrong field.
            whom = f"person/{person.id}" if person is not None else "person/unknown"
            hub.audit.write(session, None, "person.sign_in_failed", whom, address=address, locked=left == 0)
    if not fits or person is None:
        raise _failed()
    return person


def _code_fits(hub: "Hub", session: "Session", person: Person, code: str, address: str) -> bool:
    factor, origin = rate_limits.key("factor", str(person.id)), rate_limits.key("address", address)
    left = rate_limits.reserve(session, hub.settings, (factor, origin))
    if totp.check(session, hub.keys, person, code):
        rate_limits.forget(session, (factor,))
        rate_limits.give_back(session, origin)
        return True
    whom = f"person/{person.id}"
    hub.audit.write(session, None, "person.code_failed", whom, address=address, locked=left == 0)
    return False


def _known(session: "Session", secret: str) -> tuple[Person, models.Session]:
    match = sessions.find(session, secret)
    if match is None:
        raise SignInFailed("this took too long. Sign in again.")
    return match


def _waiting(session: "Session", secret: str) -> tuple[Person, models.Session]:
    person, stored = _known(session, secret)
    if stored.complete:
        raise NotNow("you are signed in already.")
    return person, stored


def _failed() -> SignInFailed:
    return SignInFailed("the e-mail address and the password do not fit together.")

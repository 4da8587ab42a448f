"""Accounts, organisations and passwords.

These functions work inside the caller's transaction and write no audit entry: pages and commands call `user_actions`,
which does both. `by` is the acting operator; None is the command line on the hub's host.
"""

import re
import unicodedata

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from cloister.hub.core.database import now
from cloister.hub.core.models import OneTimeLink, Organisation, Person
from cloister.hub.core.settings import Settings
from cloister.hub.users import one_time_links, passwords, sessions, tokens
from cloister.hub.users.roles import (
    MOST,
    OPEN_ROLES,
    keep_an_operator,
    known_roles,
    person_here,
    require_operator,
    set_roles,
)
from cloister.privacy.errors import BadForm, Denied, NotHere, NotNow

__all__ = [
    "change_password",
    "check_email",
    "find",
    "fold",
    "invitation",
    "invite",
    "make_organisation",
    "make_reset_link",
    "organisation_here",
    "organisation_named",
    "reset_password",
    "set_active",
    "set_organisation",
    "set_roles",
    "sign_up",
    "make_verify_link",
    "verify",
]

_RESET_DAYS = 1
_VERIFY_DAYS = 7
_ATOM, _LABEL = r"[a-z0-9!#$%&'*+/=?^_`{|}~-]+", r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_LOCAL_PART = re.compile(rf"{_ATOM}(?:\.{_ATOM})*")  # RFC 5322 dot-atom
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


def fold(email: str) -> str:
    """Return an e-mail address as it is stored and compared."""
    return email.strip().lower()


def check_email(text: str) -> str:
    """Return an e-mail address as it is stored; raise BadForm if no mail server need accept it.

    ASCII only: a server need not support other letters. A domain with other letters is given in its encoded form.
    """
    email = fold(text)
    local, _, host = email.rpartition("@")
    if not email.isascii():
        raise BadForm(
            "email: give an address in the letters a to z. A domain with other letters has a form that starts with "
            "xn--; give that one."
        )
    if not (_LOCAL_PART.fullmatch(local) and _HOST.fullmatch(host) and len(local) <= 64 and len(email) <= 200):
        raise BadForm("email: give an e-mail address, such as name@example.org.")
    return email


def find(session: Session, email: str) -> Person | None:
    """Return the user with this address, active or not."""
    return session.scalars(sa.select(Person).where(Person.email == fold(email))).one_or_none()


# Sign-up.


def invite(
    session: Session,
    by: Person | None,
    *,
    email: str,
    organisation: Organisation | None,
    roles: list[str] | tuple[str, ...],
    days: float = 7,
) -> str:
    """Create an invitation for one address; return its secret. Its link is /invitation/SECRET.

    Raises:
        Denied: `by` is no operator.
        NotNow: the address has an account already.
    """
    require_operator(session, by)
    address, wanted = check_email(email), known_roles(roles)
    if find(session, address) is not None:
        raise NotNow("somebody with this e-mail address has an account already.")
    detail = {"email": address, "organisation": organisation.id if organisation else None, "roles": wanted}
    return one_time_links.make(session, by, one_time_links.INVITATION, person=None, days=days, detail=detail)


def invitation(session: Session, secret: str) -> tuple[OneTimeLink, Organisation | None]:
    """Return an open invitation and its organisation; raise NotHere otherwise."""
    link = one_time_links.look(session, one_time_links.INVITATION, secret)
    number = link.detail["organisation"]
    return link, session.get(Organisation, number) if number is not None else None


def sign_up(
    session: Session, settings: Settings, *, email: str, name: str, password: str, invitation: str | None = None
) -> Person:
    """Create an account: by an invitation, which sets the roles, or by open sign-up where that is enabled.

    An invitation is for one address, and verifies it. In an open sign-up the address is unverified: no policy accepts
    it until the user has opened the link that is sent there (`verify`).

    Raises:
        Denied: there is no invitation, and the hub is not open.
        NotHere: the invitation is not for this address, or is no longer valid.
        NotNow: the address has an account already.
        BadForm: the name, the address or the password is not acceptable.
    """
    address, called = check_email(email), _words("name", name)
    passwords.accept(password, email=address, name=called)
    roles, organisation = list(OPEN_ROLES), None
    if invitation is not None:
        detail = one_time_links.take(session, one_time_links.INVITATION, invitation).detail
        if detail["email"] != address:
            raise NotHere("this invitation is for another e-mail address.")
        roles, organisation = detail["roles"], detail["organisation"]
    elif not settings.open_sign_up:
        raise Denied("this hub is joined by invitation. Ask an operator for one.")
    person = Person(
        email=address,
        name=called,
        organisation_id=organisation,
        roles=roles,
        password=passwords.seal(password),
        verified=now() if invitation is not None else None,
        verify_asked=now() if invitation is None else None,
    )
    _add(session, person, "somebody with this e-mail address has an account already.")
    return person


def make_verify_link(session: Session, by: Person | None, person: Person | int) -> str:
    """Create a link that verifies a user's address; return its secret. /verify/SECRET. Earlier ones end.

    Args:
        session: a writing transaction.
        by: the operator who passes it on; None if it is sent to the address itself.
        person: the user with the address.
    """
    require_operator(session, by)
    user = person_here(session, person)
    if by is not None and by.id == user.id:
        raise Denied("nobody vouches for their own address. Another operator makes the link.")
    if not user.active or user.verified is not None:
        raise NotNow("this account is closed, or its address is verified already.")
    one_time_links.withdraw(session, one_time_links.VERIFY, person=user)
    return one_time_links.make(
        session, by, one_time_links.VERIFY, person=user, days=_VERIFY_DAYS, detail={"email": user.email}
    )


def verify(session: Session, person: Person | int, secret: str) -> Person:
    """Use a verification link. It is valid only for the signed-in user for whom it was made.

    A stranger who signed up with another person's address does not get its mail; and the recipient of the mail cannot
    confirm an account that is not theirs by following a link.
    """
    user = person_here(session, person)
    link = one_time_links.look(session, one_time_links.VERIFY, secret)
    if link.person_id != user.id or link.detail["email"] != user.email:
        raise NotHere("this link is for another account. Sign in to that one, or ask for a link of your own.")
    one_time_links.take(session, one_time_links.VERIFY, secret)
    user.verified, user.verify_asked = now(), None
    session.flush()
    return user


# Organisations.


def make_organisation(session: Session, by: Person | None, name: str, country: str = "") -> Organisation:
    """Create an organisation; its country is two letters, or empty."""
    require_operator(session, by)
    organisation = Organisation(name=_words("name", name), country=_country(country))
    for other in session.scalars(sa.select(Organisation.name)):
        if other != organisation.name and _folded(other) == _folded(organisation.name):
            raise NotNow(f"{other} is there already, and its name looks the same. Use it, or choose another name.")
    _add(session, organisation, "there is an organisation of this name already.")
    return organisation


def organisation_named(session: Session, by: Person | None, name: str, country: str = "") -> tuple[Organisation, str]:
    """Find or create the organisation of that name; also return the audit word for the change, or "".

    Raises:
        BadForm: the name or the country is not acceptable.
        NotNow: it exists with another country.
    """
    require_operator(session, by)
    called, land = _words("organisation", name), _country(country)
    organisation = session.scalars(sa.select(Organisation).where(Organisation.name == called)).one_or_none()
    if organisation is None:
        return make_organisation(session, by, called, land), "organisation.made"
    if not land or land == organisation.country:
        return organisation, ""
    if organisation.country:
        raise NotNow(
            f"{organisation.name} is there already, with the country {organisation.country}. Leave the country out."
        )
    organisation.country = land
    session.flush()
    return organisation, "organisation.country_set"


def organisation_here(session: Session, number: int) -> Organisation:
    """Return the organisation with that id; raise NotHere if there is none."""
    organisation = session.get(Organisation, number) if 0 < number <= MOST else None
    if organisation is None:
        raise NotHere("there is no such organisation.")
    return organisation


def set_organisation(session: Session, by: Person | None, person: Person | int, organisation: int | None) -> Person:
    """Set a user's organisation, or none."""
    require_operator(session, by)
    user = person_here(session, person)
    if by is not None and by.id == user.id:
        # Policies depend on the organisation: moving oneself would be granting oneself access.
        raise Denied("nobody moves themself to another organisation. Ask another operator.")
    user.organisation_id = organisation_here(session, organisation).id if organisation is not None else None
    session.flush()
    session.refresh(user)
    return user


def set_active(session: Session, by: Person | None, person: Person | int, active: bool) -> Person:
    """Close or reopen an account. Closing ends its sessions, tokens and links."""
    require_operator(session, by)
    user = person_here(session, person)
    if not active:
        keep_an_operator(session, without=user)
        _lock_out(session, user)
    user.active = active
    session.flush()
    return user


# Passwords.


def change_password(session: Session, person: Person | int, password: str) -> None:
    """Set a new password and end all sessions. The caller has checked the old one."""
    user = person_here(session, person)
    passwords.accept(password, email=user.email, name=user.name)
    user.password = passwords.seal(password)
    one_time_links.withdraw(session, one_time_links.RESET, person=user)
    sessions.end_all(session, user)


def make_reset_link(session: Session, by: Person | None, person: Person | int, *, second_factor: bool = False) -> str:
    """Create a link with which a user sets a new password; return its secret. /reset/SECRET. Earlier ones end.

    An operator who keeps the link could use it themself. Therefore the user's second factor stays unless
    `second_factor` says that it was lost; the audit log records the operator and the purpose, the user gets a
    notification, and no operator makes a link for themself.
    """
    require_operator(session, by)
    user = person_here(session, person)
    if by is not None and by.id == user.id:
        raise Denied("change your password under Account. If it is lost, another operator makes the link.")
    if not user.active:
        raise NotNow("this account is closed. Open it first.")
    one_time_links.withdraw(session, one_time_links.RESET, person=user)
    detail = {"second_factor": second_factor}
    return one_time_links.make(session, by, one_time_links.RESET, person=user, days=_RESET_DAYS, detail=detail)


def reset_password(session: Session, secret: str, password: str) -> Person:
    """Set a password with a reset link. Ends all sessions and tokens: a lost password may have been stolen."""
    link = one_time_links.take(session, one_time_links.RESET, secret)
    user = person_here(session, link.person_id or 0)
    if not user.active:
        raise NotHere("this link is wrong, was used or is too old. Ask an operator for a new one.")
    passwords.accept(password, email=user.email, name=user.name)
    user.password = passwords.seal(password)
    if link.detail["second_factor"]:
        user.totp_secret = user.totp_pending = None
    _lock_out(session, user)
    session.flush()
    return user


def _lock_out(session: Session, person: Person) -> None:
    sessions.end_all(session, person)
    tokens.revoke_all(session, person)
    one_time_links.withdraw(session, one_time_links.RESET, person=person)
    one_time_links.withdraw(session, one_time_links.VERIFY, person=person)


def _add(session: Session, row: Person | Organisation, taken: str) -> None:
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        raise NotNow(taken) from None


def _country(text: str) -> str:
    land = text.strip().upper()
    if land and not (len(land) == 2 and land.isascii() and land.isalpha()):
        raise BadForm("country: give two letters, such as DE, or nothing.")
    return land


def _folded(name: str) -> str:
    """Return a name without what readers overlook: case, accents' encoding, width, punctuation and spaces."""
    return "".join(sign for sign in unicodedata.normalize("NFKC", name).casefold() if sign.isalnum())


def _words(field: str, text: str) -> str:
    words = " ".join(text.split())
    if not words.isprintable() or not 1 <= len(words) <= 200:
        raise BadForm(f"{field}: give 1 to 200 printable characters.")
    return words

"""Actions on accounts: each is one transaction, with its entry in the audit log.

Pages and commands call these; `by` is the acting user, None the command line on the hub's host. The rules are in
`accounts` and `roles`. The log never holds a secret, and a user is notified when an operator changes their account.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.database import now
from cloister.hub.core.models import Dataset, Organisation, Person
from cloister.hub.core.notices import tell
from cloister.hub.policy import versions
from cloister.hub.users import accounts, rate_limits, sessions, tokens
from cloister.hub.users.roles import Change, person_here
from cloister.hub.users.sign_in import prove
from cloister.privacy.errors import BadForm, CloisterError, NotNow

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = [
    "ask_verify_link",
    "change_password",
    "end_sessions",
    "invite",
    "make_organisation",
    "make_reset_link",
    "make_token",
    "make_verify_link",
    "reset_password",
    "revoke_token",
    "set_active",
    "set_organisation",
    "set_roles",
    "sign_up",
    "verify",
]


# Actions of operators.


def invite(
    hub: "Hub",
    by: Person | None,
    *,
    email: str,
    organisation: int | str | None = None,
    country: str = "",
    roles: Sequence[str] = (),
    days: float = 7,
) -> str:
    """Create an invitation; return its secret, to be shown once. Its link is /invitation/SECRET.

    An organisation is given by its id, or by its name: then it is created in the same transaction if it is missing,
    with `country`, and a refused invitation creates none.
    """
    with hub.database.writing() as session:
        organisation_row = None
        if isinstance(organisation, str):
            organisation_row, changed = accounts.organisation_named(session, by, organisation, country)
            if changed:
                facts = {"name": organisation_row.name, "country": organisation_row.country}
                hub.audit.write(session, _id(by), changed, f"organisation/{organisation_row.id}", **facts)
        elif country:
            raise BadForm("country: name the organisation whose country this is.")
        elif organisation is not None:
            organisation_row = accounts.organisation_here(session, organisation)
        secret = accounts.invite(session, by, email=email, organisation=organisation_row, roles=list(roles), days=days)
        hub.audit.write(
            session, _id(by), "person.invited", "person/new", email=accounts.fold(email), roles=list(roles),
            organisation=organisation_row.id if organisation_row is not None else None,
        )  # fmt: skip
    return secret


def set_roles(hub: "Hub", by: Person | None, person: Person | int, roles: Sequence[str]) -> Change:
    """Set a user's roles to exactly these."""
    with hub.database.writing() as session:
        user = person_here(session, person)
        change = accounts.set_roles(session, by, user, roles)
        if change.added or change.removed:
            hub.audit.write(
                session, _id(by), "person.roles_set", f"person/{user.id}", added=change.added, removed=change.removed
            )
            tell(hub, session, user.id, f"Your roles in this hub are now: {', '.join(user.roles) or 'none'}.")
    return change


def make_organisation(hub: "Hub", by: Person | None, name: str, country: str = "") -> Organisation:
    """Create an organisation."""
    with hub.database.writing() as session:
        organisation = accounts.make_organisation(session, by, name, country)
        hub.audit.write(
            session,
            _id(by),
            "organisation.made",
            f"organisation/{organisation.id}",
            name=organisation.name,
            country=organisation.country,
        )
    return organisation


def set_organisation(hub: "Hub", by: Person | None, person: Person | int, organisation: int | None) -> None:
    """Set a user's organisation, or none."""
    with hub.database.writing() as session:
        user = accounts.set_organisation(session, by, person, organisation)
        hub.audit.write(session, _id(by), "person.moved", f"person/{user.id}", organisation=organisation)
        tell(hub, session, user.id, f"You now belong to: {user.organisation.name if user.organisation else 'nobody'}.")
        _tell_owners(hub, session, user)


def set_active(hub: "Hub", by: Person | None, person: Person | int, active: bool) -> None:
    """Close an account, or reopen it."""
    with hub.database.writing() as session:
        user = accounts.set_active(session, by, person, active)
        hub.audit.write(session, _id(by), "person.opened" if active else "person.closed", f"person/{user.id}")


def make_reset_link(hub: "Hub", by: Person | None, person: Person | int, *, second_factor: bool = False) -> str:
    """Create a reset link; return its secret, to be shown once. Its link is /reset/SECRET."""
    with hub.database.writing() as session:
        user = person_here(session, person)
        secret = accounts.make_reset_link(session, by, user, second_factor=second_factor)
        hub.audit.write(session, _id(by), "person.reset_made", f"person/{user.id}", second_factor=second_factor)
        subject = "password and second factor" if second_factor else "password"
        tell(hub, session, user.id, f"{by.name if by else 'An operator'} made a link to reset your {subject}.")
    return secret


def make_verify_link(hub: "Hub", by: Person | None, person: Person | int) -> str:
    """Create a link that verifies an address; return its secret, to be passed on. Its link is /verify/SECRET."""
    with hub.database.writing() as session:
        user = person_here(session, person)
        secret = accounts.make_verify_link(session, by, user)
        hub.audit.write(session, _id(by), "person.verify_made", f"person/{user.id}")
    return secret


def _tell_owners(hub: "Hub", session: Session, person: Person) -> None:
    """Notify the owners of datasets whose policy names this user's verified address, or their organisation."""
    session.refresh(person)
    organisation = person.organisation.name if person.organisation is not None else ""
    for dataset in session.scalars(sa.select(Dataset).where(Dataset.deleted.is_(None))):
        try:
            policy, _ = versions.current(hub, session, dataset)
        except CloisterError:  # an invalid policy grants nothing
            continue
        named = versions.addresses(policy)
        places = {name for role in policy.roles for name in role.who.organisations}
        if person.verified_email and person.verified_email in named:
            event = f"the account of {person.name} is verified now"
        elif organisation and organisation in places:
            event = f"{person.name} joined {organisation}"
        else:
            continue
        message = f"{event[0].upper()}{event[1:]}, and the policy of {dataset.name} names it."
        tell(hub, session, dataset.owner_id, message, f"/datasets/{dataset.name}/policy")


# Actions of users on their own account.


def sign_up(hub: "Hub", *, email: str, name: str, password: str, address: str, invitation: str | None = None) -> Person:
    """Create an account, by an invitation or openly. Open sign-ups are limited for each network address."""
    if invitation is None and hub.settings.open_sign_up:
        # In its own transaction, since a refusal counts too: it reveals that an account exists.
        with hub.database.writing() as session:
            rate_limits.reserve(session, hub.settings, (rate_limits.key("sign-up", address),))
    with hub.database.writing() as session:
        person = accounts.sign_up(
            session, hub.settings, email=email, name=name, password=password, invitation=invitation
        )
        whom = f"person/{person.id}"
        hub.audit.write(session, person.id, "person.joined", whom, roles=person.roles, invited=invitation is not None)
        _tell_owners(hub, session, person)
    return person


def ask_verify_link(hub: "Hub", person: Person) -> None:
    """Request a verification link to one's own address. A worker sends it.

    Raises:
        NotNow: the address is verified, or this hub sends no e-mail.
        TooMany: it was requested too often.
    """
    if not (hub.settings.mail_folder or hub.settings.smtp_url):
        raise NotNow("this hub sends no e-mail. Ask an operator for a link that verifies your address.")
    with hub.database.writing() as session:
        rate_limits.reserve(session, hub.settings, (rate_limits.key("verify", str(person.id)),))
        user = person_here(session, person)
        if user.verified is not None:
            raise NotNow("your e-mail address is verified already.")
        user.verify_asked = now()


def verify(hub: "Hub", person: Person, secret: str) -> None:
    """Verify one's address with the link that was sent to it. From now on policies accept it."""
    with hub.database.writing() as session:
        user = accounts.verify(session, person, secret)
        hub.audit.write(session, user.id, "person.verified", f"person/{user.id}")
        _tell_owners(hub, session, user)


def reset_password(hub: "Hub", secret: str, password: str, address: str) -> None:
    """Set a password with a reset link, which works once for its holder."""
    with hub.database.writing() as session:
        person = accounts.reset_password(session, secret, password)
        rate_limits.forget(
            session, (rate_limits.key("account", person.email), rate_limits.key("factor", str(person.id)))
        )
        hub.audit.write(session, None, "person.reset_used", f"person/{person.id}", address=address)
        tell(
            hub,
            session,
            person.id,
            "Your password was set anew through a reset link. Was it not you? Tell an operator.",
        )


def change_password(hub: "Hub", person: Person, old: str, new: str, address: str, *, end_tokens: bool = True) -> None:
    """Change one's password. Every session ends, this one too; and every token, unless they may stay."""
    prove(hub, person, old, address)
    with hub.database.writing() as session:
        accounts.change_password(session, person, new)
        if end_tokens:
            tokens.revoke_all(session, person)
        facts: dict[str, object] = {"address": address, "tokens_ended": end_tokens}
        hub.audit.write(session, person.id, "person.password_changed", f"person/{person.id}", **facts)


def make_token(hub: "Hub", person: Person, label: str, scopes: Iterable[str], days: int) -> str:
    """Create a token; return its secret, to be shown once."""
    wanted = list(scopes)
    with hub.database.writing() as session:
        secret = tokens.make(session, person, label, wanted, days)
        hub.audit.write(session, person.id, "token.made", f"person/{person.id}", label=label, scopes=wanted, days=days)
    return secret


def revoke_token(hub: "Hub", person: Person, number: int) -> None:
    """Revoke one of one's own tokens."""
    with hub.database.writing() as session:
        token = tokens.revoke(session, person, number)
        hub.audit.write(session, person.id, "token.revoked", f"person/{person.id}", label=token.label)


def end_sessions(hub: "Hub", person: Person) -> int:
    """Sign out everywhere; return the number of sessions."""
    with hub.database.writing() as session:
        ended = sessions.end_all(session, person)
        hub.audit.write(session, person.id, "person.sessions_ended", f"person/{person.id}", sessions=ended)
    return ended


def _id(by: Person | None) -> int | None:
    return by.id if by is not None else None

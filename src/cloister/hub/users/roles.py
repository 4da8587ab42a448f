"""Roles in the hub, and who grants them.

The rules, and why:

- Only operators grant and take roles, invite, and make organisations. The command line on the hub's host may, too
  (`by=None`): its user owns the files anyway, and the first operator must be created there.
- No user grants themself a role. An operator who wants to own data or to query it asks another operator, so that two
  people know. Giving up a role is always allowed.
- No user is operator and auditor at once: the auditor reads what operators did.
- The last active operator stays one: neither their role nor their account can be taken away.
- Being an operator opens no data: no page or endpoint reads rows or changes a ledger for that role.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.models import ROLES, Person
from cloister.privacy.errors import BadForm, Denied, NotHere, NotNow

__all__ = [
    "MOST",
    "OPEN_ROLES",
    "Change",
    "keep_an_operator",
    "known_roles",
    "person_here",
    "require_operator",
    "set_roles",
]

MOST = 2**31 - 1  # the largest number of a row; databases fail on larger ones
OPEN_ROLES = ("data user", "data provider")  # roles of an open sign-up: neither reads anything without a policy


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a user's roles."""

    added: tuple[str, ...]
    removed: tuple[str, ...]


def known_roles(roles: Iterable[str]) -> list[str]:
    """Return roles in the hub's order, each once.

    Raises:
        BadForm: a word is not a role, or two of them exclude each other.
    """
    wanted = set(roles)
    if not wanted <= set(ROLES):
        raise BadForm(f"roles: choose among {', '.join(ROLES)}.")
    if {"operator", "auditor"} <= wanted:
        raise BadForm("roles: nobody is operator and auditor at once, since an auditor reads what operators did.")
    return [role for role in ROLES if role in wanted]


def require_operator(session: Session, by: Person | None) -> None:
    """Raise Denied unless `by` is an active operator now, or None: the command line on the host."""
    if by is None:
        return
    operator = session.get(Person, by.id)
    if operator is None or not operator.active or "operator" not in operator.roles:
        raise Denied("this is for operators of the hub.")


def person_here(session: Session, person: Person | int) -> Person:
    """Return the user as this transaction sees them.

    Raises:
        NotHere: there is no user with that id.
    """
    number = person if isinstance(person, int) else person.id
    user = session.get(Person, number) if 0 < number <= MOST else None
    if user is None:
        raise NotHere("there is no such person.")
    return user


def set_roles(session: Session, by: Person | None, person: Person | int, roles: Sequence[str]) -> Change:
    """Set a user's roles to exactly these. See the rules at the top of this file.

    Raises:
        Denied: `by` is no operator, or grants themself a role.
        NotNow: the last operator would be gone.
    """
    require_operator(session, by)
    user, wanted = person_here(session, person), known_roles(roles)
    change = Change(
        tuple(role for role in wanted if role not in user.roles),
        tuple(role for role in user.roles if role not in wanted),
    )
    if by is not None and by.id == user.id and change.added:
        raise Denied("nobody grants themself a role. Ask another operator.")
    if "operator" in change.removed:
        keep_an_operator(session, without=user)
    user.roles = wanted
    session.flush()
    return change


def keep_an_operator(session: Session, without: Person) -> None:
    """Raise NotNow if `without` is the last operator. Locks the operators, so that two cannot leave at once."""
    people = session.scalars(
        sa.select(Person).where(Person.active).order_by(Person.id).with_for_update(of=Person, key_share=True)
    )
    if not any("operator" in person.roles for person in people if person.id != without.id):
        raise NotNow("a hub needs an operator, and there is no other. Make somebody else operator first.")

"""Roles: who may do what in the hub, and who says so.

The rules, and why:

- Only operators grant and take roles, invite, and make organisations. The command line on the hub's host may, too
  (`by=None`): whoever sits there owns the files anyway, and somebody must make the first operator.
- Nobody grants themself a role. An operator who wants to own data or to query it asks another operator, so that two
  people know. Laying a role down is always allowed.
- Nobody is operator and auditor at once: the auditor reads what operators did.
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
OPEN_ROLES = ("data user", "data provider")  # what an open sign-up gives: neither reads anything without a policy


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a person's roles."""

    added: tuple[str, ...]
    removed: tuple[str, ...]


def known_roles(roles: Iterable[str]) -> list[str]:
    """Roles in the hub's order, each once.

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
    """Denied unless `by` is an active operator now, or None: the command line on the host."""
    if by is None:
        return
    found = session.get(Person, by.id)
    if found is None or not found.active or "operator" not in found.roles:
        raise Denied("this is for operators of the hub.")


def person_here(session: Session, person: Person | int) -> Person:
    """The person as this transaction sees them.

    Raises:
        NotHere: there is nobody with that number.
    """
    number = person if isinstance(person, int) else person.id
    found = session.get(Person, number) if 0 < number <= MOST else None
    if found is None:
        raise NotHere("there is no such person.")
    return found


def set_roles(session: Session, by: Person | None, person: Person | int, roles: Sequence[str]) -> Change:
    """Give a person exactly these roles. See the rules at the top of this file.

    Raises:
        Denied: `by` is no operator, or grants themself a role.
        NotNow: the last operator would be gone.
    """
    require_operator(session, by)
    found, wanted = person_here(session, person), known_roles(roles)
    change = Change(
        tuple(role for role in wanted if role not in found.roles),
        tuple(role for role in found.roles if role not in wanted),
    )
    if by is not None and by.id == found.id and change.added:
        raise Denied("nobody grants themself a role. Ask another operator.")
    if "operator" in change.removed:
        keep_an_operator(session, without=found)
    found.roles = wanted
    session.flush()
    return change


def keep_an_operator(session: Session, without: Person) -> None:
    """NotNow if nobody but `without` runs the hub. Locks who counts, so that two cannot leave at once."""
    people = session.scalars(sa.select(Person).where(Person.active).order_by(Person.id).with_for_update(of=Person))
    if not any("operator" in one.roles for one in people if one.id != without.id):
        raise NotNow("a hub needs an operator, and there is no other. Make somebody else operator first.")

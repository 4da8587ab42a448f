"""Versions of a dataset's policy in the hub's database: the newest is in force, and every version stays.

The signature is checked at every read, and a policy with an invalid signature allows nothing. The ledger notes the
newest number, so that an older version allows nothing when a newer one was deleted from the database. No version can
change the lifetime budget: it was promised to the people in the data when the account was opened.
"""

import difflib
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import Session

from cloister.data.schema import Schema
from cloister.hub.core import models
from cloister.hub.core.signed_state import check_version
from cloister.hub.policy import signature as envelope
from cloister.hub.policy.policy import Policy
from cloister.hub.policy.text.reader import read
from cloister.privacy.errors import (
    BadPolicy,
    BadSchema,
    Denied,
    NotHere,
    NotNow,
    RolledBack,
    SealBroken,
    StoreFailed,
)
from cloister.privacy.loss import Loss

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = [
    "MOST_COMPARED",
    "addresses",
    "current",
    "difference",
    "history",
    "newest",
    "publish",
    "schema_of",
    "schema_text_of",
    "unverified_note",
    "version",
]


MOST_COMPARED = 500  # changed lines of two texts


def newest(session: Session, dataset: models.Dataset) -> models.PolicyVersion | None:
    """Return the newest version, as it is stored."""
    versions = sa.select(models.PolicyVersion).where(models.PolicyVersion.dataset_id == dataset.id)
    return session.scalars(versions.order_by(models.PolicyVersion.number.desc()).limit(1)).first()


def current(hub: "Hub", session: Session, dataset: models.Dataset) -> tuple[Policy, int]:
    """Return the policy in force, and its number.

    Raises:
        NotHere: the dataset has none, so nothing is allowed.
        BadPolicy: the stored one is not what was published, or not the newest, so nothing is allowed.
    """
    page = newest(session, dataset)
    if page is None:
        raise NotHere(f"{dataset.name} has no policy, so nothing is allowed.")
    policy = _checked(hub, dataset, page)
    noted = hub.ledger.noted(_subject(dataset.name))
    if page.number < noted:
        raise BadPolicy(
            f"policy {noted} of {dataset.name} was published and is missing. Nothing is allowed until its owner "
            "publishes it again."
        )
    if page.number > noted:  # an older version of Cloister published it, or the process ended before the note
        _note(hub, dataset.name, page.number)
    return policy, page.number


def _subject(name: str) -> str:
    """Return the subject under which the ledger notes the newest policy of a dataset."""
    return f"policy of {name}"


def _note(hub: "Hub", name: str, number: int) -> None:
    """Note the newest policy of a dataset in the ledger. One that was rolled back spends nothing, and notes nothing."""
    with suppress(RolledBack, StoreFailed):
        hub.ledger.note(_subject(name), number)


def version(hub: "Hub", session: Session, dataset: models.Dataset, number: int) -> tuple[Policy, models.PolicyVersion]:
    """Return an older version, with its text.

    Raises:
        NotHere: there is none of that number.
    """
    wanted = sa.select(models.PolicyVersion).where(
        models.PolicyVersion.dataset_id == dataset.id, models.PolicyVersion.number == number
    )
    page = session.scalars(wanted).first() if 0 < number < 2**31 else None
    if page is None:
        raise NotHere(f"{dataset.name} has no policy {number}.")
    return _checked(hub, dataset, page), page


def publish(
    hub: "Hub",
    session: Session,
    person: models.Person,
    dataset: models.Dataset,
    text: str,
    *,
    schema: Schema | None = None,
    after: int | None = None,
) -> int:
    """Publish a text as the dataset's policy, in force at once; return its number.

    Args:
        hub: the hub, which signs it.
        session: `database.writing()`.
        person: must be the dataset's owner.
        dataset: the dataset, with its lifetime budget.
        text: the text of the policy.
        schema: the schema for its checks; that of the newest version of the data unless given.
        after: the version the owner saw when editing, if it must still be the newest.

    Raises:
        Denied: only the owner publishes.
        BadPolicy: with every problem of the page.
        NotNow: it would change the lifetime budget, or another version was published meanwhile.
    """
    if person.id != dataset.owner_id:
        raise Denied(f"only the owner of {dataset.name} publishes its policy.")
    # One at a time, also in PostgreSQL: two versions must not both be the newest.
    session.execute(sa.select(models.Dataset.id).where(models.Dataset.id == dataset.id).with_for_update(key_share=True))
    before = newest(session, dataset)
    last = before.number if before is not None else 0
    if after is not None and after != last:
        raise NotNow(f"policy {last} of {dataset.name} was published meanwhile. Look at it and edit again.")
    policy = read(text, schema or schema_of(hub, session, dataset))
    if policy.dataset != dataset.name:
        raise BadPolicy(f"the page is for the dataset {policy.dataset}, not for {dataset.name}. Change its first line.")
    _keep_budget(dataset, policy)
    number = max(last, hub.ledger.noted(_subject(dataset.name))) + 1
    signature = envelope.sign(hub.key, dataset.name, number, text)
    session.add(
        models.PolicyVersion(dataset_id=dataset.id, number=number, text=text, signature=signature, made_by=person.id)
    )
    session.flush()
    name = dataset.name
    event.listen(session, "after_commit", lambda _: _note(hub, name, number), once=True)
    hub.audit.write(
        session,
        person.id,
        "policy.published",
        f"dataset/{name}",
        number=number,
        hash=envelope.digest(hub.key, dataset.name, number, text),
    )
    if note := unverified_note(session, policy):
        from cloister.hub.core.notices import tell  # requests are decided by policies: not at the top

        tell(hub, session, person.id, f"Policy {number} of {dataset.name}: {note}", f"/datasets/{dataset.name}/policy")
    return number


def addresses(policy: Policy) -> set[str]:
    """Return every e-mail address that a policy names, in lower case: reviewers, and members of its roles."""
    return {
        address.lower()
        for address in (*policy.reviewers, *(member for role in policy.roles for member in role.who.people))
    }


def unverified_note(session: Session, policy: Policy) -> str:
    """Return a note for the owner on unverified addresses, which get no access; empty if there are none."""
    named = addresses(policy)
    verified = sa.select(models.Person.email).where(
        models.Person.email.in_(named), models.Person.active, models.Person.verified.is_not(None)
    )
    missing = sorted(named - set(session.scalars(verified)))
    if not missing:
        return ""
    listing = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
    return (
        f"No verified account has the address {listing}. The policy gives nothing to such an address until somebody is "
        "invited with it or has verified it."
    )


def history(session: Session, dataset: models.Dataset) -> list[models.PolicyVersion]:
    """Return every version, newest first."""
    versions = sa.select(models.PolicyVersion).where(models.PolicyVersion.dataset_id == dataset.id)
    return list(session.scalars(versions.order_by(models.PolicyVersion.number.desc())))


def difference(old: str, new: str) -> list[tuple[str, str]]:
    """Return the difference of two texts, line by line: `+`, `-` or ` ` (unchanged), and the line.

    Lines are compared as wholes, and only between the equal lines at both ends. If more than MOST_COMPARED lines are
    left, all of them are shown as removed and added: comparing takes time quadratic in their number.
    """
    before, after = old.splitlines(), new.splitlines()
    shorter = min(len(before), len(after))
    start = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    rest = shorter - start
    end = next((at for at in range(rest) if before[-1 - at] != after[-1 - at]), rest)
    gone, come = before[start : len(before) - end], after[start : len(after) - end]
    return [
        *((" ", line) for line in before[:start]),
        *_changes(gone, come),
        *((" ", line) for line in before[len(before) - end :]),
    ]


def schema_of(hub: "Hub", session: Session, dataset: models.Dataset) -> Schema | None:
    """Return the schema of the newest version of the data, if there is one that can be read."""
    text = schema_text_of(hub, session, dataset)
    try:
        return Schema.parse(text, max_bytes=None) if text else None
    except BadSchema:
        return None


def schema_text_of(hub: "Hub", session: Session, dataset: models.Dataset) -> str | None:
    """Return the text of the schema of the newest version of the data, if there is one and its owner made it so."""
    wanted = sa.select(models.Version).where(models.Version.dataset_id == dataset.id, models.Version.state != "failed")
    version = session.scalars(wanted.order_by(models.Version.number.desc()).limit(1)).first()
    if version is None:
        return None
    try:
        check_version(hub, dataset, version)
    except SealBroken:
        return None
    return version.schema


def _checked(hub: "Hub", dataset: models.Dataset, page: models.PolicyVersion) -> Policy:
    envelope.verify(hub.key.public, dataset.name, page.number, page.text, page.signature)
    return read(page.text)


def _keep_budget(dataset: models.Dataset, policy: Policy) -> None:
    promised, stated = Loss.from_json(dataset.budget), policy.budget.lifetime
    if stated != promised:
        raise NotNow(
            f"the lifetime budget of {dataset.name} is {promised} and stays so: it is what the people in the data were "
            f"promised. The page says {stated}. Change the other limits, or share the data anew under another name."
        )


def _changes(old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    if max(len(old), len(new)) > MOST_COMPARED:
        yield from (("-", line) for line in old)
        yield from (("+", line) for line in new)
        return
    for _, from_old, to_old, from_new, to_new in difflib.SequenceMatcher(None, old, new).get_opcodes():
        if old[from_old:to_old] == new[from_new:to_new]:
            yield from ((" ", line) for line in old[from_old:to_old])
            continue
        yield from (("-", line) for line in old[from_old:to_old])
        yield from (("+", line) for line in new[from_new:to_new])

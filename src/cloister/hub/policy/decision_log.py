"""Decisions in the audit log: a refusal is recorded before its user learns of it, and 'why?' reads it there.

A refusal is raised here and nowhere else in the web process, so that no request is refused without a trace. A worker
refuses a job at its claim or in the transaction of its charge, and records that when the transaction is over. The
sentences of a verdict name tables, and operators read the log: they are sealed for the user who asked.
"""

import json
import zlib
from typing import TYPE_CHECKING, Any

from cloister.hub.core.models import AuditEntry, Person
from cloister.hub.policy.decide import Verdict
from cloister.privacy.errors import Denied

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["DENIED", "PLANNED", "STOPPED", "recalled", "record", "require"]

DENIED, PLANNED = "work.denied", "work.planned"
STOPPED = "job.denied"  # a job that was allowed when it was submitted, and no longer at its claim or its charge
_SEALED = "sealed"  # in an entry: what its user may read


def require(
    hub: "Hub", person: Person, dataset_name: str, verdict: Verdict, action: str = DENIED, **facts: Any
) -> None:
    """Raise unless the request was allowed, and record the refusal.

    Args:
        hub: the hub.
        person: the requesting user.
        dataset_name: the name of the dataset.
        verdict: the policy's verdict.
        action: the action of the entry.
        facts: further facts for the log, such as the cost.

    Raises:
        Denied: with the number of the entry, by which `recalled` finds it.
    """
    try:
        verdict.require()
    except Denied as error:
        error.dataset = dataset_name
        error.decision = record(hub, person, action, dataset_name, verdict, **facts)
        raise


def record(hub: "Hub", person: Person, action: str, dataset_name: str, verdict: Verdict, **facts: Any) -> int:
    """Record a decision; return the number of its entry."""
    packed = zlib.compress(json.dumps(verdict.reasons).encode())
    text = hub.keys.seal(packed, _label(person, dataset_name)).hex()
    pieces = [text[at : at + 2000] for at in range(0, len(text), 2000)]
    return hub.audit.record(
        person.id, action, f"dataset/{dataset_name}", **facts, **verdict.for_audit(), **{_SEALED: pieces}
    )


def recalled(hub: "Hub", person: Person, dataset_name: str, entry: AuditEntry) -> Verdict | None:
    """Return the verdict of an entry; None if it holds none for this user."""
    if (entry.person_id, entry.object) != (person.id, f"dataset/{dataset_name}") or entry.action not in (
        DENIED,
        PLANNED,
        STOPPED,
    ):
        return None
    if _SEALED not in entry.detail:  # written before refusals of tables from outside were sealed
        return None
    sealed = bytes.fromhex("".join(entry.detail[_SEALED]))
    reasons = json.loads(zlib.decompress(hub.keys.open(sealed, _label(person, dataset_name))))
    return Verdict.from_json({**entry.detail, "reasons": reasons})


def _label(person: Person, dataset_name: str) -> str:
    return f"a decision about person {person.id} and {dataset_name}"

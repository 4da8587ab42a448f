"""Authorise one job: user, dataset, purpose, tables, cost.

    require_open ─► decide without tables ─► tables that the user may see ─► tables of the job ─► decide

The gateway authorises a request before it is planned and once its cost is known; a worker authorises the job when it is
claimed and again in the transaction of the charge. Both use this module, so both apply the same rules.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from cloister.data.schema import Schema
from cloister.hub.core.models import Dataset, Person, Version
from cloister.hub.jobs.job_types import JobType
from cloister.hub.policy.decide import Environment, Subject, Verdict, decide, shown_tables
from cloister.hub.policy.policy import Policy
from cloister.privacy.canonical import fingerprint
from cloister.privacy.errors import NotHere, NotNow
from cloister.privacy.loss import Loss

__all__ = ["JobRequest", "authorise", "basis_of", "narrowed", "require_open"]


@dataclass(frozen=True, slots=True)
class JobRequest:
    """Input of a decision on a job.

    Attributes:
        policy: the dataset's current policy.
        number: the version of the policy.
        subject: the requesting user, as the policy sees them.
        kind: the job type.
        purpose: the stated purpose.
        environment: the time and place.
    """

    policy: Policy
    number: int
    subject: Subject
    kind: JobType
    purpose: str
    environment: Environment

    def decide(self, tables: Collection[str] = (), loss: Loss | None = None) -> Verdict:
        """Return the policy's verdict on these tables at this cost."""
        return decide(
            self.policy, self.number, self.subject, self.kind.operation, self.purpose, self.environment, tables, loss
        )


def authorise(
    request: JobRequest,
    schema: Schema,
    parameters: Mapping[str, Any],
    loss: Loss | None = None,
    require: Callable[[Verdict], None] = Verdict.require,
) -> tuple[tuple[str, ...], Verdict]:
    """Decide on a job; return its tables, and the verdict with the view that it gets of them.

    Args:
        request: the request.
        schema: the schema of the whole dataset.
        parameters: the job's parameters, as its type has read them.
        loss: the cost, if known.
        require: called with each verdict; raises if it is a refusal.

    Raises:
        Denied: the policy refuses.
    """
    # First without the tables: what is refused there must not name them.
    require(request.decide())
    shown = shown_tables(request.policy, request.subject, request.kind.operation, request.purpose, request.environment)
    tables = tuple(request.kind.tables(narrowed(schema, shown), parameters))
    verdict = request.decide(tables, loss)
    require(verdict)
    return tables, verdict


def require_open(dataset: Dataset, person: Person) -> None:
    """Refuse work on a deleted or paused dataset, or for a user whose account is closed.

    Raises:
        NotHere: the dataset was deleted.
        NotNow: it is paused, or the account is closed.
    """
    if dataset.deleted is not None:
        raise NotHere("there is no such dataset any more. Nothing was spent.")
    if dataset.paused:
        raise NotNow(
            f"the owner has paused {dataset.name}. Nothing was spent. Nothing runs on it until it is opened again."
        )
    if not person.active:
        raise NotNow("the account of the person who asked is closed. Nothing was spent.")


def narrowed(schema: Schema, shown: Collection[str] | None) -> Schema:
    """Return a schema with the tables that a user may see, named in lower case; None: all of them."""
    if shown is None:
        return schema
    return replace(schema, tables={name: one for name, one in schema.tables.items() if name.lower() in shown})


def basis_of(version: Version, tables: Collection[str], verdict: Verdict) -> str:
    """Return a digest of what a job reads: the version of the tables, their names, and their view.

    Reviewers approve a plan that was made on this basis. A job whose basis has changed is refused before the charge.
    """
    view = None if verdict.view is None else {name: asdict(one) for name, one in sorted(verdict.view.items())}
    facts = {"version": version.id, "tables": sorted(tables), "view": view}
    return fingerprint(json.dumps(facts, sort_keys=True, default=dict))

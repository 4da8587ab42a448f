"""Datasets and schemas that a user may see: the policy decides, by its operation `see schema`.

A user who could get a role, for instance on request, may see that the dataset exists and may ask for the role. They
see its schema when a role that they have shows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.data.schema import Schema
from cloister.hub.approvals.visibility import concerns, subject_of
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Dataset, Person, Version
from cloister.hub.datasets.datasets import find, newest
from cloister.hub.policy import decision_log
from cloister.hub.policy.conditions import Environment, Subject
from cloister.hub.policy.decide import Verdict, allowed_purposes, decide
from cloister.hub.policy.policy import SEE_SCHEMA, Policy
from cloister.hub.policy.versions import current
from cloister.hub.policy.views import TableView, visible_schema
from cloister.privacy.errors import BadPolicy, NotHere, NotNow, SealBroken

__all__ = ["DatasetView", "require_schema", "visible_dataset", "visible_datasets"]


@dataclass(frozen=True, slots=True)
class DatasetView:
    """Dataset as one user may see it.

    Attributes:
        dataset: the dataset.
        mine: True if the user owns it.
        policy: the policy in force; None if the stored one is not valid, which only the owner sees.
        verdict: the decision on seeing its schema; None for the owner, who always may.
        version: the newest one that is ready; None also if it is not what the hub signed.
        number: the policy's version.
        subject: the user as the policy sees them; None without a policy.
        environment: the time and place of the request.
        problem: why the stored version is not used, if it is not what the hub signed.
    """

    dataset: Dataset
    mine: bool
    policy: Policy | None
    verdict: Verdict | None
    version: Version | None
    number: int = 0
    subject: Subject | None = None
    environment: Environment | None = None
    problem: SealBroken | None = None

    @property
    def schema(self) -> Schema | None:
        """Return the visible part of its schema; None before there are tables, and while no role of theirs shows it.

        It is parsed when it is asked for: lists of datasets show none, and a long one takes a while.
        """
        if self.version is None or (self.verdict is None and not self.mine):
            return None
        if self.verdict is None:
            return Schema.parse(self.version.schema, max_bytes=None)
        return _shown(self.version.schema, self.verdict.view) if self.verdict.allowed else None

    def purposes(self, operation: str) -> tuple[str, ...]:
        """Return the purposes for which the user may do this now; none while the dataset is paused or has no policy."""
        if self.policy is None or self.subject is None or self.environment is None or self.dataset.paused:
            return ()
        return allowed_purposes(self.policy, self.number, self.subject, operation, self.environment)

    @property
    def askable(self) -> bool:
        """Return True if the user could ask for a role: the policy has one, and the dataset is not their own."""
        return not self.mine and self.policy is not None and any(role.by_request for role in self.policy.roles)


def visible_datasets(hub: Hub, session: Session, person: Person, environment: Environment) -> list[DatasetView]:
    """Return every dataset that the user may see, by title."""
    wanted = sa.select(Dataset).where(Dataset.deleted.is_(None)).order_by(Dataset.title, Dataset.name)
    views = [_sight(hub, session, person, dataset, environment) for dataset in session.scalars(wanted)]
    return [view for view in views if view is not None]


def visible_dataset(hub: Hub, session: Session, person: Person, name: str, environment: Environment) -> DatasetView:
    """Return one dataset.

    Raises:
        NotHere: there is none, or none that this user may see: the two are not distinguished.
    """
    sight = _sight(hub, session, person, find(session, name), environment)
    if sight is None:
        raise NotHere("there is no such dataset.")
    return sight


def require_schema(hub: Hub, person: Person, view: DatasetView, action: str, **facts: object) -> None:
    """Require that the user may see the schema; record the decision.

    Args:
        hub: the hub.
        person: the user.
        view: the dataset as they see it.
        action: what they do if they may, for the audit log.
        facts: further facts for the log.

    Raises:
        Denied: they may not.
        SealBroken: the stored schema is not what its owner made. The owner can still look at the page to edit it.
    """
    name, verdict = view.dataset.name, view.verdict
    if verdict is not None:
        decision_log.require(hub, person, name, verdict, kind="schema", cost=None)
    if view.problem is not None and not view.mine:
        raise view.problem
    hub.audit.record(person.id, action, f"dataset/{name}", **facts, **(verdict.for_audit() if verdict else {}))


def _shown(text: str, views: Mapping[str, TableView] | None) -> Schema:
    """Return the part of a schema that views show. It is cached: rules over many categories take a while."""
    rules = {name: (view.columns, view.rows, dict(view.transforms)) for name, view in (views or {}).items()}
    schema = _worked_out(text, _Views(repr(rules) if views is not None else "", views))
    return replace(
        schema, tables={name: replace(table, columns=dict(table.columns)) for name, table in schema.tables.items()}
    )


@dataclass(frozen=True, slots=True)
class _Views:
    """Hashable views: equal if they are written alike."""

    text: str
    views: Mapping[str, TableView] | None = field(compare=False)


@lru_cache(maxsize=128)
def _worked_out(text: str, shown_views: _Views) -> Schema:
    return visible_schema(Schema.parse(text, max_bytes=None), shown_views.views)


def _sight(
    hub: Hub, session: Session, person: Person, dataset: Dataset, environment: Environment
) -> DatasetView | None:
    mine = dataset.owner_id == person.id
    try:
        policy, number = current(hub, session, dataset)
    except (BadPolicy, NotHere):
        if not mine:
            return None
        ready, problem = _newest(hub, session, dataset)
        return DatasetView(dataset, mine, None, None, ready, problem=problem)
    subject = subject_of(session, dataset, person)
    if not mine and not concerns(policy, person, subject, environment):
        return None  # before its version is read and checked: a stranger's list does not depend on its size
    verdict = None if mine else decide(policy, number, subject, SEE_SCHEMA, "", environment)
    ready, problem = _newest(hub, session, dataset)
    return DatasetView(dataset, mine, policy, verdict, ready, number, subject, environment, problem)


def _newest(hub: Hub, session: Session, dataset: Dataset) -> tuple[Version | None, SealBroken | None]:
    """Return the newest version that is ready; or why the stored one is not used."""
    try:
        return newest(hub, session, dataset), None
    except NotNow:
        return None, None
    except SealBroken as error:
        return None, error

"""Access to synthetic tables that owners have submitted.

A user gets them if the policy lets them `synthesise` here, for a purpose that they state. A table is shown whole or not
at all: for a role that sees only some of its columns or rows, it does not exist.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, undefer

from cloister.hub.approvals.visibility import find_dataset, subject_of
from cloister.hub.core.models import Dataset, Job, Person
from cloister.hub.core.signed_state import require_unpaused
from cloister.hub.jobs.external_tables.submission import HANDED
from cloister.hub.jobs.job_types.synthesise import Synthesise
from cloister.hub.policy import decision_log, versions
from cloister.hub.policy.conditions import Environment, Subject
from cloister.hub.policy.decide import Verdict, decide
from cloister.hub.policy.policy import Policy
from cloister.hub.policy.purposes import Purpose, offered
from cloister.hub.policy.views import TableView
from cloister.privacy.errors import NotHere, NotNow

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["Shared", "Sheet", "look", "sheet_of", "take"]


@dataclass(frozen=True, slots=True)
class Sheet:
    """Entry of a table in a list."""

    number: int
    table: str
    method: str
    rows: int
    columns: tuple[str, ...]
    loss: dict[str, str]
    time: float
    sha256: str


@dataclass(frozen=True, slots=True)
class Shared:
    """Tables of a dataset that a user may download.

    Attributes:
        dataset: the dataset.
        mine: True if the user owns it.
        purpose: the purpose of the decision; "" for the owner, who needs none.
        purposes: the purposes that could be stated.
        sheets: the tables, newest first.
    """

    dataset: Dataset
    mine: bool
    purpose: str
    purposes: tuple[Purpose, ...]
    sheets: tuple[Sheet, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    policy: Policy
    number: int
    subject: Subject
    environment: Environment

    def decide(self, purpose: str, tables: Sequence[str] = ()) -> Verdict:
        request = (self.subject, Synthesise.operation, purpose, self.environment)
        return decide(self.policy, self.number, *request, tables=tuple(tables))


def look(hub: "Hub", person: Person, name: str, purpose: str, environment: Environment) -> Shared:
    """Return the tables that a user may download; for the first purpose that allows it, unless they state one.

    Raises:
        NotHere: there is no such dataset for this user.
        Denied: the policy does not let them synthesise; the audit log records it.
    """
    with hub.database.reading() as session:
        dataset, access = _asked(hub, session, person, name, environment)
        mine, purposes = dataset.owner_id == person.id, offered(access.policy.purposes)
        if not mine:
            purpose = _require(hub, person, dataset, access, purpose)
            purposes = tuple(offer for offer in purposes if access.decide(offer.name).allowed)
        sheets = _sheets(session, dataset)
    if not mine:
        sheets = [sheet for sheet in sheets if _whole(access, purpose, sheet.table, sheet.columns) is not None]
    hub.audit.record(person.id, "tables.seen", f"dataset/{name}", purpose=purpose)
    return Shared(dataset, mine, "" if mine else purpose, purposes, tuple(sheets))


def take(
    hub: "Hub", person: Person, name: str, number: int, purpose: str, environment: Environment, what: str
) -> tuple[Job, str]:
    """Return one table with its content, and the purpose of the decision.

    Args:
        what: the downloaded part: `sheet`, `parquet`, …; for the audit log.

    Raises:
        NotHere: there is none of that number for this user.
        Denied: the policy does not let them synthesise; the audit log records it.
    """
    with hub.database.reading() as session:
        dataset, access = _asked(hub, session, person, name, environment)
        mine = dataset.owner_id == person.id
        if not mine:
            purpose = _require(hub, person, dataset, access, purpose)
        job = session.get(Job, number, options=[undefer(Job.result)]) if 0 < number < 2**31 else None
    if job is None or job.dataset_id != dataset.id or not job.parameters.get(HANDED) or not job.result:
        raise NotHere("there is no such table.")
    verdict = None if mine else _whole(access, purpose, job.parameters["table"], job.parameters["names"])
    if not mine and verdict is None:
        raise NotHere("there is no such table.")
    facts = {"purpose": purpose} if verdict is None else verdict.for_audit()
    hub.audit.record(person.id, "table.taken", f"job/{number}", dataset=name, what=what, **facts)
    return job, "" if mine else purpose


def _asked(hub: "Hub", session: Session, person: Person, name: str, environment: Environment) -> tuple[Dataset, _Asked]:
    dataset = find_dataset(hub, session, person, name, environment)
    policy, number = versions.current(hub, session, dataset)
    return dataset, _Asked(policy, number, subject_of(session, dataset, person), environment)


def _require(hub: "Hub", person: Person, dataset: Dataset, access: _Asked, purpose: str) -> str:
    """Return the purpose that lets the user synthesise."""
    stated = [purpose] if purpose else [offer.name for offer in offered(access.policy.purposes)]
    verdicts = [access.decide(name) for name in stated]
    verdict = next(
        (candidate for candidate in verdicts if candidate.allowed), verdicts[0] if verdicts else access.decide("")
    )
    decision_log.require(hub, person, dataset.name, verdict, kind=Synthesise.name, cost=None)
    if dataset.paused:
        raise NotNow(f"the owner has paused {dataset.name}. Its tables are handed out when it is opened again.")
    require_unpaused(hub, dataset)
    return verdict.purpose


def _whole(access: _Asked, purpose: str, table: str, columns: Sequence[str]) -> Verdict | None:
    """Return the verdict, if it shows the table unchanged, in all of these columns."""
    verdict = access.decide(purpose, (table,))
    return verdict if verdict.allowed and _shows(verdict.view, table, columns) else None


def _shows(view: Mapping[str, TableView] | None, table: str, columns: Sequence[str]) -> bool:
    if view is None:
        return True
    table_view = next((entry for name, entry in view.items() if name.lower() == table.lower()), None)
    if table_view is None or table_view.rows is not None:
        return False
    wanted, changed = {name.lower() for name in columns}, {name.lower() for name in table_view.transforms}
    return not wanted & changed and (
        table_view.columns is None or wanted <= {name.lower() for name in table_view.columns}
    )


def _sheets(session: Session, dataset: Dataset) -> list[Sheet]:
    wanted = sa.select(Job.id, Job.parameters, Job.loss, Job.finished).where(
        Job.dataset_id == dataset.id, Job.kind == Synthesise.name, Job.state == "done", Job.result.is_not(None)
    )
    rows = [row for row in session.execute(wanted.order_by(Job.id.desc())) if row.parameters.get(HANDED)]
    return [sheet_of(row.id, row.parameters, row.loss, row.finished) for row in rows]


def sheet_of(number: int, parameters: Mapping[str, Any], loss: dict[str, str], time: float) -> Sheet:
    """Return a table's entry in a list, from the parameters of its job."""
    facts = (parameters["table"], parameters["method"], int(parameters["rows"]), tuple(parameters["names"]))
    return Sheet(number, *facts, loss, time, parameters["sha256"])

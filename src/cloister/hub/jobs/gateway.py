"""Gateway of every request for a job: policy, plan, limits, approval, queue.

    who and which dataset ─► the policy's verdict ─► a plan on tables without rows ─► limits ─► the queue
       not found, unless       written into the      its cost and                     or first an
       they may see it         audit log             expected error                   approval

Nothing here can read a row: plans are made on tables without rows, and nothing can be charged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.client.wire import question_digest
from cloister.hub.accounting.activity import TABLES
from cloister.hub.approvals.requests import require_checkers
from cloister.hub.approvals.visibility import concerns, find_dataset, find_job, hand_on, may_know, not_here, subject_of
from cloister.hub.core.database import now
from cloister.hub.core.models import AuditEntry, Dataset, Job, Person, analyst
from cloister.hub.jobs import limits, queue
from cloister.hub.jobs.authorise import (
    ASKED,
    BASIS,
    JobRequest,
    StoredRequest,
    authorise,
    basis_of,
    require_open,
    shows_all,
)
from cloister.hub.jobs.dataset_pool import ClosedBook, PersonReleases, dataset_for_person, twins
from cloister.hub.jobs.job_types import Planned, kind_of
from cloister.hub.jobs.job_types.anonymise import Anonymise
from cloister.hub.jobs.job_types.job_type import OfModel
from cloister.hub.jobs.trust_model import trust_model_of
from cloister.hub.policy import cost, decision_log, versions
from cloister.hub.policy.decide import Environment, Subject, Verdict, decide
from cloister.hub.policy.policy import SEE_SCHEMA, Policy
from cloister.privacy.errors import BadPolicy, CloisterError, NotHere, NotNow, OverBudget, QueryRefused
from cloister.privacy.loss import Loss

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = [
    "BASIS",
    "JobOrder",
    "Passed",
    "cancel",
    "explain",
    "find_dataset",
    "find_job",
    "forget",
    "may_know",
    "pass_gate",
    "plan",
    "recall",
    "submit",
]

_MOST_QUEUED = 1000  # of one user's jobs: the queue is no storage
_MOST_WAITING = 20  # of one user's jobs on one dataset that wait for a decision
_MOST_PLAN = 200_000  # characters of a plan that are kept with its job


@dataclass(frozen=True, slots=True)
class JobOrder:
    """Request for a job, as it arrives.

    Attributes:
        dataset: the name of the dataset.
        kind: the name of the job type.
        form: the fields, as they were sent.
        purpose: the stated purpose.
        environment: the time and place.
    """

    dataset: str
    kind: str
    form: Mapping[str, Any]
    purpose: str
    environment: Environment


@dataclass(frozen=True, slots=True)
class Passed:
    """Plan that was allowed, and the policy's verdict on it. Made in a child process where a hub is served.

    Attributes:
        number: the version of the policy that decided.
        parameters: the parameters, as the job type has read them.
        planned: the plan with its cost.
        verdict: the policy's verdict, without the view.
        basis: a digest of the basis of the plan (see `basis_of`).
        tables: the tables it reads.
    """

    number: int
    parameters: dict[str, Any]
    planned: Planned
    verdict: Verdict
    basis: str = ""
    tables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Known:
    """Dataset that a user may see, with its policy and the user as the policy sees them."""

    dataset: Dataset
    policy: Policy
    number: int
    subject: Subject

    def payer(self, hub: "Hub", person: Person) -> limits.Payer:
        """Return the user as the one who pays on this dataset."""
        return limits.Payer(self.dataset, person.id, self.policy, hub.ledger)


# The way through


def plan(hub: "Hub", person: Person, order: JobOrder, passed: Passed | None = None) -> Planned:
    """Return the cost of a job and the expected error of its answer. Costs nothing.

    Raises:
        NotHere: there is no such dataset for this user.
        Denied: the policy refuses; the audit log records it.
    """
    passed = passed or pass_gate(hub, person, order)
    planned, verdict = passed.planned, passed.verdict
    notes = list(planned.notes)
    if verdict.needs:
        who = "1 person" if verdict.needs == 1 else f"{verdict.needs} people"
        notes.append(f"{who} must agree before it runs")
    with hub.database.reading() as session:
        access = _known(hub, session, person, order.dataset, order.environment)
        over = _over(session, access.payer(hub, person), planned.loss, planned.own, verdict.needs)
        checkers = _checkers(hub, session, person, access.dataset, planned)
    blocked = checkers if over is None else sentence_of(over[1])
    if over is not None:
        verdict = verdict.over(over[0], blocked)
    if blocked:
        notes.append(blocked)
    elif planned.protection is not None:
        notes.append(f"{access.policy.anonymised.reviewers} people look at the file before you get it")
    number = decision_log.record(
        hub, person, decision_log.PLANNED, order.dataset, verdict, kind=order.kind, cost=planned.loss, own=planned.own
    )
    return replace(planned, notes=tuple(notes), blocked=blocked, decision=number)


def submit(hub: "Hub", person: Person, order: JobOrder, passed: Passed | None = None) -> Job:
    """Queue a job, or let it wait for an approval.

    Raises:
        NotHere: there is no such dataset for this user.
        Denied: the policy refuses; nothing is spent, and the audit log records it.
        OverBudget: it would exceed a limit at present.
        NotNow: the dataset is paused or has no tables, or the result might not find space.
    """
    passed = passed or pass_gate(hub, person, order)
    planned, verdict = passed.planned, passed.verdict
    with hub.database.reading() as session:
        access = _known(hub, session, person, order.dataset, order.environment)
    require_open(hub, access.dataset, person)
    with hub.database.writing() as session:
        over = _over(session, access.payer(hub, person), planned.loss, planned.own, verdict.needs)
        if over is None:
            _require_room(session, person, access.dataset, verdict.needs)
            if planned.protection is not None:
                require_checkers(hub, session, access.dataset, person)
                _require_few_outputs(session, person, access.dataset)
            if isinstance(kind_of(order.kind), OfModel):
                _require_one_request(session, person, access.dataset, order.kind, passed.parameters)
            most = queue.largest_result(hub.settings)
            largest = min(planned.largest or most, most)
            queue.require_space(session, hub.settings, person.id, largest)
            return _enter(hub, session, person, access.dataset, order, passed, largest)
    limit, error = over
    refused = verdict.over(limit, sentence_of(error))
    error.decision = decision_log.record(
        hub, person, decision_log.DENIED, order.dataset, refused, kind=order.kind, cost=planned.own
    )
    raise error


def _enter(
    hub: "Hub", session: Session, person: Person, dataset: Dataset, order: JobOrder, passed: Passed, largest: int
) -> Job:
    """Store a job, and request approvals if the policy requires them."""
    from cloister.hub.approvals.requests import ask_release

    planned, verdict = passed.planned, passed.verdict
    job = Job(
        kind=order.kind,
        dataset_id=dataset.id,
        person_id=person.id,
        purpose=order.purpose,
        parameters=passed.parameters,
        plan={**_kept(planned), BASIS: passed.basis, ASKED: _asked(order), TABLES: list(passed.tables)},
        environment={"country": order.environment.country, "network": order.environment.network},
        policy_number=passed.number,
        state="waiting" if verdict.needs else "queued",
        size=largest,
    )
    session.add(job)
    session.flush()
    hub.audit.write(
        session,
        person.id,
        "job.submitted",
        f"job/{job.id}",
        dataset=dataset.name,
        kind=order.kind,
        cost=planned.loss,
        own=planned.own,
        **verdict.for_audit(),
    )
    if verdict.needs:
        session.refresh(job)
        ask_release(hub, session, job)
    return job


def _require_room(session: Session, person: Person, dataset: Dataset, needs: int) -> None:
    """Refuse more than a user may have in the queue or before reviewers.

    Raises:
        NotNow: too many jobs wait.
    """
    mine = sa.select(sa.func.count()).select_from(Job).where(Job.person_id == person.id)
    if (session.scalar(mine.where(Job.state == "queued")) or 0) >= _MOST_QUEUED:
        raise NotNow(f"{_MOST_QUEUED:,} jobs of yours are in the queue. Wait until some are done.")
    if needs and len(limits.waiting(session, dataset, person.id)) >= _MOST_WAITING:
        raise NotNow(f"{_MOST_WAITING} jobs of yours wait for somebody to agree. Wait for a decision, or cancel some.")


def _checkers(hub: "Hub", session: Session, person: Person, dataset: Dataset, planned: Planned) -> str:
    """Return why nobody could check the output of a plan; empty if enough people can, or none need to."""
    try:
        if planned.protection is not None:
            require_checkers(hub, session, dataset, person)
    except NotNow as error:
        return sentence_of(error)
    return ""


def _require_few_outputs(session: Session, person: Person, dataset: Dataset) -> None:
    """Refuse more outputs than people can look at.

    Raises:
        NotNow: too many wait.
    """
    under_way = sa.select(sa.func.count()).select_from(Job).where(
        Job.person_id == person.id,
        Job.dataset_id == dataset.id,
        Job.kind == Anonymise.name,
        Job.state.in_(("waiting", "queued", *queue.ACTIVE, queue.CHECKING)),
    )  # fmt: skip
    if (session.scalar(under_way) or 0) >= _MOST_WAITING:
        raise NotNow(f"{_MOST_WAITING} anonymised tables of yours wait to be looked at. Wait, or withdraw some.")


def _require_one_request(
    session: Session, person: Person, dataset: Dataset, kind: str, parameters: Mapping[str, Any]
) -> None:
    """Refuse a second request about a model while one is under way: two at once would both be charged.

    Raises:
        NotNow: there is one.
    """
    under_way = sa.select(Job.id, Job.parameters).where(
        Job.person_id == person.id,
        Job.dataset_id == dataset.id,
        Job.kind == kind,
        Job.state.in_(("waiting", "queued", *queue.ACTIVE)),
    )
    for number, asked in session.execute(under_way):
        if asked["model"] == parameters["model"]:
            raise NotNow(f"job {number} of yours asks for this model already. Wait until it is done.")


def pass_gate(hub: "Hub", person: Person, order: JobOrder) -> Passed:
    """Decide by the policy, and plan on tables without rows.

    Raises:
        NotHere: there is no such dataset for this user.
        Denied: the policy refuses; the audit log records it.
        BadInput, Refused: the request cannot be planned.
    """
    work = kind_of(order.kind)
    parameters = work.parse(order.form)
    with hub.database.reading() as session:
        access = _known(hub, session, person, order.dataset, order.environment)
        dataset = access.dataset
        trust_model_of(dataset.trust)
        require_open(hub, dataset, person)
        from cloister.hub.datasets.datasets import newest

        version = newest(hub, session, dataset)
    opened = twins(hub).get(dataset, version, person)
    request = JobRequest(access.policy, access.number, access.subject, work, order.purpose, order.environment)

    def require(outcome: Verdict, loss: Loss | None = None) -> None:
        decision_log.require(hub, person, order.dataset, outcome, kind=order.kind, cost=loss)

    if isinstance(work, OfModel):
        require(request.decide())  # first without the model: what is refused here must not learn of it
        with hub.database.reading() as session:
            parameters = work.resolve(session, dataset.id, person.id, parameters)
    tables, verdict = authorise(request, opened.data.schema, parameters, require=require)
    if isinstance(work, OfModel):
        work.require_shown(opened.data.schema, verdict.view, parameters)
    user_rules = twins(hub).account(dataset, person)
    received = PersonReleases(hub, dataset.id, person.id)
    # No lock of the open version: an empty engine runs nothing and has no state, and the rest is copied.
    planned = work.plan(
        dataset_for_person(opened, user_rules, verdict.view, ClosedBook(hub.ledger), received), parameters
    )
    if dataset.owner_id != person.id:
        schema_verdict = decide(access.policy, access.number, access.subject, SEE_SCHEMA, "", order.environment)
        if not (
            schema_verdict.allowed
            and all(shows_all(decision.view, opened.data.schema, tables) for decision in (verdict, schema_verdict))
        ):
            planned = replace(planned, statements=())  # they name what the view hides, and its rules
    if planned.cells > hub.settings.result_cells:
        raise QueryRefused(
            f"the answer would have {planned.cells:,} cells, and {hub.settings.result_cells:,} are kept here. "
            "Group by less, or ask for fewer numbers at once."
        )
    if planned.own.amount:  # a stored release is judged like a new one: it is new to this user
        verdict = request.decide(tables, planned.own)
        require(verdict, planned.own)
    if planned.protection is not None:
        verdict = request.decide(tables, None, planned.protection)
        require(verdict)
    stored = StoredRequest(person.id, order.kind, order.purpose, parameters, _asked(order))
    basis = basis_of(hub, version, tables, verdict, stored)
    return Passed(access.number, parameters, planned, replace(verdict, view=None), basis, tables)


def _known(hub: "Hub", session: Session, person: Person, name: str, environment: Environment) -> _Known:
    """Return a dataset and its policy, for a user who may see it."""
    dataset = session.scalar(sa.select(Dataset).where(Dataset.name == name, Dataset.deleted.is_(None)))
    if dataset is None:
        raise not_here(name)
    try:
        policy, number = versions.current(hub, session, dataset)
    except (NotHere, BadPolicy):
        if dataset.owner_id == person.id:
            raise
        raise not_here(name) from None
    subject = subject_of(session, dataset, person)
    if dataset.owner_id != person.id and not concerns(policy, person, subject, environment):
        raise not_here(name)
    return _Known(dataset, policy, number, subject)


def _asked(order: JobOrder) -> str:
    """Return the digest of a request as it was sent, by which its client knows the answer."""
    return question_digest(order.dataset, order.kind, order.form, order.purpose)


def _kept(planned: Planned) -> dict[str, Any]:
    """Return a plan for storage with its job: without the engine's statements if they are very long."""
    record = planned.to_json()
    if sum(map(len, planned.statements)) > _MOST_PLAN:
        return {**record, "statements": ["-- left out: too long to be kept with the job"]}
    return record


def _over(
    session: Session, payer: limits.Payer, loss: Loss, user_loss: Loss, needs: int
) -> tuple[str, OverBudget] | None:
    """Return the limit that a request would exceed at present, and by how much; the charge checks again.

    Args:
        session: a session.
        payer: the user, the dataset and its policy.
        loss: the loss of the dataset's account.
        user_loss: the loss of the user's account.
        needs: the required approvals; if any, all waiting requests together must be within the limits.
    """
    over = limits.passed(session, payer, loss, user_loss)
    if over is not None:
        return over
    try:
        if loss.amount:
            payer.ledger.balance(payer.dataset.name).add(loss)
        if user_loss.amount:  # a user without earlier requests has no account of their own
            for mine in payer.ledger.balances(f"{payer.dataset.name}@{analyst(payer.person_id)}"):
                mine.add(user_loss)
    except OverBudget as error:
        return "lifetime", error
    if not needs:
        return None
    waiting_jobs = limits.waiting(session, payer.dataset, payer.person_id)
    none = Loss.nothing(user_loss.measure, user_loss.relation)
    return limits.passed(session, payer, none, user_loss, waiting_jobs)


def sentence_of(error: CloisterError) -> str:
    """Return the message of an error without its code."""
    return str(error).removeprefix(f"{error.code}: ")


# Looking


def explain(
    hub: "Hub",
    person: Person,
    dataset_name: str,
    operation: str,
    purpose: str,
    environment: Environment,
    spend: str = "",
) -> Verdict:
    """Explain the policy's verdict on an operation for a purpose, with every rule tried: the page behind 'why?'.

    Args:
        hub: the hub.
        person: the requesting user.
        dataset_name: the name of the dataset.
        operation: the operation, such as query.
        purpose: the stated purpose.
        environment: the time and place.
        spend: the cost, such as `rho 0.01`: then every current limit is checked too; empty: none is.

    Raises:
        BadInput, Refused: the spend cannot be read, or the dataset's account cannot express it.
    """
    loss = cost.parse(spend) if spend else None
    with hub.database.reading() as session:
        access = _known(hub, session, person, dataset_name, environment)
        loss = None if loss is None else cost.price(access.policy, loss)
        verdict = decide(access.policy, access.number, access.subject, operation, purpose, environment, loss=loss)
        if verdict.allowed and loss is not None:
            over = _over(session, access.payer(hub, person), loss, loss, verdict.needs)
            verdict = verdict if over is None else verdict.over(over[0], sentence_of(over[1]))
    hub.audit.record(person.id, "policy.explained", f"dataset/{dataset_name}", cost=loss, **verdict.for_audit())
    return verdict


def recall(
    hub: "Hub", person: Person, dataset_name: str, decision: int, environment: Environment
) -> tuple[Verdict, AuditEntry]:
    """Return an earlier decision on a request of this user, from the audit log: the page behind a refusal's 'why?'.

    Raises:
        NotHere: there is no such dataset for this user, or no such decision about them.
    """
    with hub.database.reading() as session:
        _known(hub, session, person, dataset_name, environment)
        entry = session.get(AuditEntry, decision) if 0 < decision < 2**31 else None
        verdict = None if entry is None else decision_log.recalled(hub, person, dataset_name, entry)
    if entry is None or verdict is None:
        raise NotHere("there is no such decision about a request of yours.")
    hub.audit.record(person.id, "policy.explained", f"dataset/{dataset_name}", decision=decision, **verdict.for_audit())
    return verdict, entry


# Stopping


def cancel(hub: "Hub", person: Person, job_id: int) -> Job:
    """Cancel a job before it is charged.

    Raises:
        NotHere: it is not this user's.
        NotNow: it has ended, or was charged: then the charge stands, and its result will come.
    """
    from cloister.hub.approvals.requests import close_for

    with hub.database.writing() as session:
        if find_job(session, person, job_id, result=False).person_id != person.id:
            raise NotHere(f"there is no job {job_id} of yours.")
        job = session.get_one(Job, job_id, with_for_update={"of": Job, "key_share": True})
        if job.state == "charged":
            raise NotNow(f"job {job_id} was charged already. The charge stands, and its result will come.")
        if job.state not in ("waiting", "queued", "running", queue.CHECKING):
            raise NotNow(f"job {job_id} has ended: it is {job.state}.")
        job.cancel = True
        if job.state != "running":  # a running one is stopped by its worker, right before the charge
            close_for(hub, session, job)
            job.state, job.finished, job.problem = "cancelled", now(), "Cancelled. Nothing was spent."
        hub.audit.write(session, person.id, "job.cancelled", f"job/{job_id}")
    return job


def forget(hub: "Hub", person: Person, job_id: int) -> None:
    """Delete the result of a user's own job. Receipt and charge stay; repeating the request costs nothing new.

    Raises:
        NotHere: it is not this user's, or has no result.
    """
    with hub.database.writing() as session:
        job = find_job(session, person, job_id)
        if job.person_id != person.id or job.result is None:
            raise NotHere(f"there is no result of a job {job_id} of yours.")
        if job.parameters.get("handed in"):
            raise NotNow("an uploaded table stays for those who may download it.")
        hand_on(session, job_id)
        gone: dict[str, Any] = {"result": None, "size": None, "stage": "you removed its result"}
        session.execute(sa.update(Job).where(Job.id == job_id).values(**gone))
        hub.audit.write(session, person.id, "result.removed", f"job/{job_id}", dataset=job.dataset.name)

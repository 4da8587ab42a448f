"""One job, from its claim to its result.

The error message for the user depends on the request and on public facts alone. The message of an engine or of an
unexpected error may quote a row: it is sealed with the dataset's key, for its owner.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from cloister.client.wire import result_bytes
from cloister.hub.approvals.visibility import SAME, subject_of
from cloister.hub.core.database import now
from cloister.hub.core.keys import seal, unseal
from cloister.hub.core.models import Dataset, Job
from cloister.hub.core.notices import tell
from cloister.hub.jobs import queue
from cloister.hub.jobs.authorise import ASKED, DECISION, JobContext, facts_of, open_job_context
from cloister.hub.jobs.dataset_pool import DatasetPool, PersonReleases, dataset_for_person
from cloister.hub.jobs.job_ledger import Cancelled, JobLedger, Lost
from cloister.hub.jobs.job_types import Done
from cloister.hub.jobs.job_types.job_type import Protecting
from cloister.hub.jobs.output_check import hold
from cloister.hub.policy import decision_log, versions
from cloister.hub.policy.decide import Verdict, covered_purposes
from cloister.hub.policy.signature import label
from cloister.privacy.errors import (
    BadForm,
    CloisterError,
    Denied,
    HubRefused,
    OverBudget,
    OwnerOnly,
    Refused,
    RolledBack,
    StoreFailed,
)
from cloister.privacy.loss import Loss

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["Step", "code_of", "owner_detail", "result_bytes", "run_job"]

Step = Callable[[str], None]
_LOG = logging.getLogger("cloister.hub.jobs")
_EVERY_S = 0.2  # how often progress is written at most
_ROLLED_BACK = (
    "CLO-206: the ledger may be an older copy and charges nothing until its operator has shown its newest head."
)
_UNFORESEEN = "something went wrong that nobody foresaw. The dataset's owner can read what; ask them."


class _Stages:
    """Writes a job's progress, at most five times a second; and detects its cancellation."""

    def __init__(self, hub: "Hub", job_id: int, worker: str) -> None:
        self._database, self._job_id, self._worker = hub.database, job_id, worker
        self._last = time.monotonic()  # a fast job writes nothing

    def __call__(self, share: float, words: str) -> None:
        """Record the progress and the current step."""
        if time.monotonic() - self._last < _EVERY_S:
            return
        changes: dict[str, Any] = {"heartbeat": now(), "progress": max(0.0, min(share, 1.0)), "stage": words[:200]}
        update = queue.mine(self._job_id, self._worker).values(**changes).returning(Job.cancel, Job.state)
        self._last = time.monotonic()
        try:
            with self._database.writing() as session:
                row = session.execute(update, execution_options={"synchronize_session": False}).first()
        except OperationalError:  # the database is locked: a charged job must not fail because of its progress
            return
        if row is None:
            raise Lost
        if row.cancel and row.state == "running":
            raise Cancelled


def run_job(hub: "Hub", job: Job, worker: str, pool: DatasetPool, step: Step = lambda _: None) -> str:
    """Run a claimed job; return the state it ended in, or "" if it was taken away.

    Args:
        hub: the hub.
        job: as `queue.claim` gave it.
        worker: the worker that has it.
        pool: the pool of open datasets, with rows.
        step: called with the name of each step that is reached: running, opened, aside, charged, released, done.
    """
    case: JobContext | None = None
    book: JobLedger | None = None
    try:
        step("running")
        case = open_job_context(hub, job)
        book = JobLedger(hub, job.id, worker, case.planned, case.again, step)
        received = PersonReleases(hub, job.dataset_id, job.person_id)
        step("opened")
        done = _run(case, worker, pool, book, received)
        step("released")
        held = done.held
        if held is not None:
            state = _patiently(lambda: hold(case, worker, held))
        else:
            state = _patiently(lambda: _finish(case, worker, book, received, done))
        step("done")
        return state
    except Lost:
        return ""
    except StoreFailed:
        # It is not known whether the ledger holds the charge: the lease will run out, and recovery looks it up.
        _LOG.warning("the ledger cannot be used", extra={"facts": {"job": job.id}})
        return ""
    except Cancelled:
        return _end(hub, job, worker, None, "cancelled", "Cancelled. Nothing was spent.")
    except Exception as error:
        charged = None if book is None else book.loss
        state, message, detail = _told(error)
        if detail:
            _LOG.error("a job failed", extra={"facts": {"job": job.id, "error": type(error).__name__}})
        return _end(hub, job, worker, charged, state, message, detail, _decided(case, book, error))


def _decided(case: JobContext | None, book: JobLedger | None, error: Exception) -> dict[str, int]:
    """Return the number of the decision that stopped a job, and the version of its policy; empty if none did.

    What was refused at the claim is on record. What was refused in the transaction of the charge is recorded here.
    """
    if isinstance(error, Denied) and error.decision:
        return {"decision": error.decision, "policy": error.policy}
    verdict: Verdict | None = None
    if case is not None and isinstance(error, Denied):
        verdict = case.refused
    elif case is not None and book is not None and book.limit and isinstance(error, OverBudget):
        verdict = case.verdict.over(book.limit, str(error).removeprefix(f"{error.code}: "))
    if case is None or verdict is None:
        return {}
    facts, name = facts_of(case.job, case.planned), case.dataset.name
    number = decision_log.record(case.hub, case.person, decision_log.STOPPED, name, verdict, **facts)
    return {"decision": number, "policy": verdict.policy_number}


def _told(error: Exception) -> tuple[str, str, str]:
    """Return the final state of a job, the message for the user, and the detail for the owner only."""
    if isinstance(error, OwnerOnly):
        return "failed", str(error), error.owner_detail
    if isinstance(error, RolledBack):  # its own message is for the operator
        return "failed", _ROLLED_BACK, ""
    if isinstance(error, Refused | HubRefused):
        return "refused", str(error), ""
    if isinstance(error, CloisterError):
        return "failed", str(error), ""
    return "failed", _UNFORESEEN, f"{type(error).__name__}: {error}"


def _run(case: JobContext, worker: str, pool: DatasetPool, book: JobLedger, received: PersonReleases) -> Done:
    opened = pool.get(case.dataset, case.version, case.person)
    user_rules = pool.account(case.dataset, case.person)
    with opened.lock, closing(opened.data.tables.again()) as tables:
        data = dataset_for_person(opened, user_rules, case.verdict.view, book, received, f"job {case.job.id}", tables)
        if isinstance(case.kind, Protecting):
            case.require_protection(case.kind.protection(data, case.job.parameters))
        return case.kind.run(data, case.job.parameters, _Stages(case.hub, case.job.id, worker))


def _patiently(write: Callable[[], str]) -> str:
    """Write a result, and wait for a locked database: a charged result must not be lost."""
    for wait_s in (1.0, 2.0, 4.0, 8.0, 16.0):
        try:
            return write()
        except OperationalError:
            _LOG.warning("the database is busy", extra={"facts": {"wait_s": wait_s}})
            time.sleep(wait_s)
    return write()


def _finish(case: JobContext, worker: str, book: JobLedger, received: PersonReleases, done: Done) -> str:
    """Write the result, the received releases, and the audit entry in one transaction."""
    hub, job, planned = case.hub, case.job, case.planned
    loss = book.loss or Loss.nothing(planned.loss.measure, planned.loss.relation)
    receipts = [receipt.text() for receipt in done.receipts]
    plain = result_bytes(done.result)
    most = queue.largest_result(hub.settings)  # space for it was set aside when the job was submitted
    if len(plain) > most:
        raise BadForm(f"the result has more than the {most // 10**6:,} MB that one may have. Ask for less.")
    digest = hashlib.sha256(plain).hexdigest()
    changes: dict[str, Any] = {"digest": digest}
    with hub.database.writing() as session:
        if book.loss is None:
            _decide_free(case, session, worker)
        signed = _terms(case, session, plain, loss, receipts)
        changes["policy_number"] = case.verdict.policy_number
        changes |= {"result": {**done.result, "label": signed}, "size": len(plain)}
        if (first := _same(session, job, digest)) is not None:  # a repeated query has the same answer: keep one
            changes |= {"result": {SAME: first, "label": signed}, "size": 0}
        changes["receipt"] = "\n".join(receipts) or None
        if not queue.finish(session, job.id, worker, "done", **changes, loss=loss.to_json(), problem=""):
            return ""
        received.write(session)
        _note(hub, session, job, "done", loss, policy=case.verdict.policy_number, rule=case.verdict.rule)
        if case.verdict.needs:  # a reviewer had to agree, so the user may be long gone
            tell(hub, session, job.person_id, f"Job {job.id} on {case.dataset.name} is done.", f"/jobs/{job.id}")
    return "done"


def _decide_free(case: JobContext, session: Session, worker: str) -> None:
    """Decide on a job that was never charged, as `JobLedger` does in the transaction of a charge."""
    job = session.get(Job, case.job.id, with_for_update={"of": Job, "key_share": True})
    if job is None or job.worker != worker or job.state not in queue.ACTIVE:
        raise Lost
    if job.cancel:
        raise Cancelled("the user cancelled the job, and nothing was charged")
    case.again(session, job)


def _terms(case: JobContext, session: Session, plain: bytes, loss: Loss, receipts: list[str]) -> str:
    """Return the signed label of a result, by the policy that was in force at the last decision."""
    policy, page = versions.version(case.hub, session, case.dataset, case.verdict.policy_number)
    subject = subject_of(session, case.dataset, case.person)
    return label(
        case.hub.key,
        policy,
        page.number,
        page.text,
        plain,
        now(),
        job=case.job.id,
        purposes=covered_purposes(policy, case.verdict, subject) or (case.job.purpose,),
        question=str(case.job.plan.get(ASKED, "")),
        loss=loss,
        receipts=receipts,
    ).text()


def _same(session: Session, job: Job, digest: str) -> int | None:
    """Return the first job of the same user on the same dataset with the same result; it keeps it until we commit."""
    same = sa.select(Job.id).where(
        Job.person_id == job.person_id, Job.dataset_id == job.dataset_id, Job.digest == digest, Job.size > 0
    )
    return session.scalar(same.order_by(Job.id).limit(1).with_for_update(key_share=True))


def _end(
    hub: "Hub",
    job: Job,
    worker: str,
    loss: Loss | None,
    state: str,
    message: str,
    detail: str = "",
    decided: Mapping[str, int] = MappingProxyType({}),
) -> str:
    """End a job without a result. A charge stays."""
    if loss is not None and "charge stands" not in message:  # a later charge of the same job was refused
        message = message.replace("Nothing was spent.", "Nothing more was spent.") + " The charge stands."
    with hub.database.writing() as session:
        dataset = session.get_one(Dataset, job.dataset_id)
        sealed = _sealed(hub, dataset, job.id, detail)
        changes: dict[str, Any] = {"problem": message, "owner_detail": sealed}
        changes["loss"] = None if loss is None else loss.to_json()
        if decided:
            changes |= {"policy_number": decided["policy"], "plan": {**job.plan, DECISION: decided["decision"]}}
        if not queue.finish(session, job.id, worker, state, **changes):
            return ""
        _note(hub, session, job, state, loss, **code_of(message), **decided)
    return state


def _note(hub: "Hub", session: Any, job: Job, state: str, loss: Loss | None, **more: Any) -> None:
    dataset, cost = job.dataset.name, loss if loss is not None else "nothing"
    hub.audit.write(
        session,
        job.person_id,
        f"job.{state}",
        f"job/{job.id}",
        dataset=dataset,
        kind=job.kind,
        purpose=job.purpose,
        cost=cost,
        **more,
    )


def code_of(said: str) -> dict[str, str]:
    """Return the code of a refusal, for the audit log: its message is for the user, and may name columns."""
    code, colon, _ = said.partition(":")
    return {"problem": code} if colon and code.startswith("CLO-") else {}


def owner_detail(hub: "Hub", job: Job) -> str:
    """Return the failure detail that only the dataset's owner may read; the caller has checked that they own it."""
    if not job.owner_detail:
        return ""
    return unseal(hub.keys.data_key(job.dataset), bytes.fromhex(job.owner_detail), _label(job.id)).decode()


def _sealed(hub: "Hub", dataset: Dataset, job_id: int, detail: str) -> str:
    if not detail or dataset.wrapped_key is None:
        return ""
    return seal(hub.keys.data_key(dataset), detail.encode("utf-8", "replace")[:20_000], _label(job_id)).hex()


def _label(job_id: int) -> str:
    return f"job {job_id}"

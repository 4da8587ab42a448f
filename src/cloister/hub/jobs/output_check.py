"""Output checking: people look at an anonymised release before the person who asked for it gets it.

    the job has run ─► sealed by the dataset's key ─► enough reviewers agree to these bytes ─► the job's result
                       `checking`                     one denial, a withdrawal or no decision: the file is erased

An anonymised release has no epsilon, so no budget limits what it reveals, and nobody but a person can judge it. The
requester reads nothing of it before: neither the file, nor its numbers, nor whether it could be made. Each agreement
holds for the digest of the sealed bytes, which is keyed: auditors and operators read it in the log, and nobody can try
guesses of a file against it. The newest policy decides again when the last of them agrees, and a file that was made
from tables that were replaced is not released: rows may have been withdrawn.

What other releases of the same table add to it, the owner alone reads: see `jobs/output_risk.py`.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, undefer

from cloister.client.wire import result_bytes
from cloister.hub.accounting.activity import TABLES
from cloister.hub.approvals import decision
from cloister.hub.approvals.requests import ask_output, may_decide
from cloister.hub.core.database import now
from cloister.hub.core.models import Dataset, Decision, Job, Output, Person, Request
from cloister.hub.datasets.datasets import newest
from cloister.hub.jobs import queue
from cloister.hub.jobs.authorise import ASKED, JobContext, job_request, require_open
from cloister.hub.jobs.job_ledger import Cancelled
from cloister.hub.jobs.job_types import Planned, kind_of
from cloister.hub.jobs.job_types.job_type import Held
from cloister.hub.jobs.output_risk import EarlierRelease, earlier_releases, risk_order
from cloister.hub.jobs.sealed_output import package_of, seal_output
from cloister.hub.policy import versions
from cloister.hub.policy.anonymised import Protection
from cloister.hub.policy.decide import Verdict, covered_purposes
from cloister.hub.policy.signature import label
from cloister.privacy.errors import CloisterError, NotHere, NotNow

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["CheckedOutput", "EarlierRelease", "added_risk", "decide", "earlier_releases", "hold", "look", "risk_order"]

_CHANGED = "the policy in force no longer allows this release as it was made. Deny it; the person may ask again."
_REPLACED = (
    "the tables were replaced after this file was made, and rows may have been withdrawn there. Deny it; the person "
    "may ask again."
)


@dataclass(frozen=True, slots=True)
class CheckedOutput:
    """Output as those who check it see it.

    Attributes:
        digest: of the sealed bytes, keyed; an agreement names it.
        result: as it would be released; None if no table could be made.
        failure: why there is none.
        content: the file, as Parquet; empty if there is none.
        current: False if the tables that it was made from were replaced since: then nobody can agree to it.
    """

    digest: str
    result: Mapping[str, Any] | None
    failure: str
    content: bytes
    current: bool


# Holding back


def hold(case: JobContext, worker: str, held: Held) -> str:
    """Seal the output of a job and ask people to look at it; return the state, or "" if the job was taken away.

    Raises:
        Cancelled: the requester has cancelled the job.
        Denied: the policy now refuses.
        NotNow: the tables were replaced meanwhile, or the view has changed.
    """
    hub, job, dataset = case.hub, case.job, case.dataset
    result, failure = held.result, held.failure
    most = queue.largest_result(hub.settings)
    if result is not None and len(result_bytes(result)) > most:
        result, failure = None, f"the file has more than the {most // 10**6:,} MB that a result may have."
    package = {
        "result": result,
        "failure": failure,
        "protection": held.protection.to_json(),
        "view": _view(case.verdict),
        "version": [case.version.id, case.version.signature],
    }
    facts = {"failure": failure} if result is None else _facts(result)
    output = seal_output(hub, dataset, job.id, package, facts)
    with hub.database.writing() as session:
        stored = session.get_one(Job, job.id, with_for_update={"of": Job, "key_share": True})
        if stored.cancel and stored.worker == worker:
            raise Cancelled
        if stored.worker == worker and stored.state in queue.ACTIVE:
            case.again(session, stored)
        if not queue.finish(session, job.id, worker, queue.CHECKING, problem="", progress=0.0, stage=""):
            return ""
        session.refresh(stored)
        session.add(output)
        session.flush()
        ask_output(hub, session, stored, output)
    return queue.CHECKING


def _facts(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of an output for the owner's list of releases."""
    return {"label": result["protected"], "rows": result["rows"], "names": result["names"], "failure": ""}


def _view(verdict: Verdict) -> Any:
    """Return the view that the rows were read through, as JSON."""
    views = None if verdict.view is None else {name: asdict(view) for name, view in sorted(verdict.view.items())}
    return json.loads(json.dumps(views, default=dict))


# Looking and deciding


def look(hub: "Hub", session: Session, person: Person, request: Request) -> CheckedOutput | None:
    """Return the output of a request, for those who decide on it; None if it is no longer there.

    Raises:
        NotHere: the request is for no output, or this user does not decide on it.
    """
    if request.kind != "output" or not may_decide(hub, session, person, request):
        raise NotHere("there is no such output.")
    output = _stored(session, request)
    waits = request.state == "open" or (request.state == "granted" and output is not None and output.released)
    if not waits or output is None or output.sealed is None or request.dataset.wrapped_key is None:
        return None
    package = package_of(hub, request.dataset, output)
    result = package["result"]
    content = b"" if result is None else base64.b64decode(result["file"])
    current = _is_current(hub, session, request.dataset, package)
    return CheckedOutput(output.digest, result, str(package["failure"]), content, current)


def _is_current(hub: "Hub", session: Session, dataset: Dataset, package: Mapping[str, Any]) -> bool:
    """Return True if an output was made from the newest tables."""
    try:
        version = newest(hub, session, dataset)
    except CloisterError:  # the newest version is missing, or is not what the hub signed
        return False
    return [version.id, version.signature] == package.get("version")


def added_risk(hub: "Hub", session: Session, person: Person, request: Request) -> tuple[Mapping[str, Any], ...]:
    """Return what other files add to an output, for the owner; nothing for others. It may take seconds."""
    order = risk_order(hub, session, person, request)
    return () if order is None else order.compute(hub)


def decide(
    hub: "Hub", session: Session, reviewer: Person, request: Request, agreed: bool, reason: str, digest: str
) -> Request:
    """Record a reviewer's agreement or denial; release the output once enough have agreed.

    Args:
        hub: the hub.
        session: a transaction.
        reviewer: the deciding user.
        request: an open request for an output.
        agreed: True to agree, False to deny.
        reason: for the requester; a denial needs one.
        digest: of the output that the reviewer saw.

    Raises:
        Denied: the user is no reviewer, or is the requester.
        NotNow: it is not open, the reviewer has decided already, saw another output, or the policy no longer allows it.
    """
    if agreed and request.state == "open" and may_decide(hub, session, reviewer, request):
        seen = look(hub, session, reviewer, request)
        if seen is not None and seen.result is None:
            raise NotNow("no table could be made, so there is nothing to agree to. Deny it, and say why.")
        if seen is not None and not seen.current:
            raise NotNow(_REPLACED)

    def release(granted: Request) -> None:
        _release(hub, session, reviewer, granted)

    return decision.decide(hub, session, reviewer, request, agreed, reason, digest=digest, release=release)


def _release(hub: "Hub", session: Session, reviewer: Person, request: Request) -> None:
    """Make the output the result of its job, signed, in the transaction of the last agreement."""
    job, output = (
        session.get_one(Job, request.job_id, with_for_update={"of": Job, "key_share": True}),
        _stored(session, request),
    )
    if job.state != queue.CHECKING or output is None or output.sealed is None:
        raise NotNow(f"the output of job {job.id} does not wait any more: the job is {job.state}.")
    package = package_of(hub, request.dataset, output)
    seen = sa.select(Decision.digest).where(Decision.request_id == request.id, Decision.agreed)
    if any(digest != output.digest for digest in session.scalars(seen)):
        raise NotNow("somebody agreed to another output. Deny this one; the person may ask again.")
    verdict, signed_result, size, result_digest = _signed(hub, session, job, package)
    loss = Planned.from_json(job.plan).loss
    changes: dict[str, Any] = {
        "state": "done",
        "result": signed_result,
        "size": size,
        "digest": result_digest,
        "policy_number": verdict.policy_number,
        "loss": loss.to_json(),
        "finished": now(),
        "progress": 1.0,
        "problem": "",
    }
    moved = sa.update(Job).where(Job.id == job.id, Job.state == queue.CHECKING).values(**changes).returning(Job.id)
    if session.execute(moved, execution_options={"synchronize_session": False}).first() is None:
        raise NotNow(f"the output of job {job.id} does not wait any more.")
    session.refresh(job, ["state"])
    output.released = now()
    facts = {"dataset": job.dataset.name, "kind": job.kind, "purpose": job.purpose, "cost": "nothing"}
    hub.audit.write(
        session, reviewer.id, "output.released", f"job/{job.id}", **facts, digest=output.digest, epsilon="none"
    )


def _signed(
    hub: "Hub", session: Session, job: Job, package: Mapping[str, Any]
) -> tuple[Verdict, dict[str, Any], int, str]:
    """Decide again by the newest policy, and return the result with its label, its size and its digest."""
    require_open(hub, job.dataset, job.person)
    if not _is_current(hub, session, job.dataset, package):
        raise NotNow(_REPLACED)
    request = job_request(hub, session, job, job.dataset, job.person, kind_of(job.kind))
    verdict = request.decide(job.plan[TABLES], None, Protection.from_json(package["protection"]))
    if not verdict.allowed or _view(verdict) != package["view"]:
        raise NotNow(_CHANGED)
    result = dict(package["result"])
    plain = result_bytes(result)
    policy, page = versions.version(hub, session, job.dataset, verdict.policy_number)
    terms = label(
        hub.key,
        policy,
        page.number,
        page.text,
        plain,
        now(),
        job=job.id,
        purposes=covered_purposes(policy, verdict, request.subject) or (job.purpose,),
        question=str(job.plan.get(ASKED, "")),
        loss=Planned.from_json(job.plan).loss,
    )
    return verdict, {**result, "label": terms.text()}, len(plain), hashlib.sha256(plain).hexdigest()


def _stored(session: Session, request: Request) -> Output | None:
    return session.scalar(
        sa.select(Output)
        .where(Output.job_id == request.job_id)
        .options(undefer(Output.sealed))
        .execution_options(populate_existing=True)
    )

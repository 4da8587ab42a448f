"""Requests for access to a role, for a release above the policy's cost threshold, and for a job's output.

A role is asked for with a purpose, and granted access ends by itself. A job above the threshold waits until enough
reviewers agree. An anonymised release has no cost: its file waits until enough reviewers have looked at it, one of the
owner's organisation among them. Reviewers are the dataset's owner and the users whom its policy names, never the
requester.
"""

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.database import now
from cloister.hub.core.models import Dataset, Job, Output, Person, Request
from cloister.hub.core.notices import tell
from cloister.hub.policy.cost import needs as needed_for
from cloister.hub.policy.policy import Policy, Role
from cloister.hub.policy.purposes import covered_by, offered
from cloister.hub.policy.versions import current, version
from cloister.privacy.errors import BadForm, NotNow, TooMany
from cloister.privacy.loss import Loss

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = [
    "OPEN_DAYS",
    "ask_access",
    "ask_output",
    "ask_release",
    "askable_purposes",
    "close_for",
    "current_policy",
    "drop_ended",
    "drop_output",
    "let_go",
    "may_decide",
    "may_see",
    "needs_now",
    "of_owner",
    "require_checkers",
    "reviewers",
    "turn_away",
]

OPEN_DAYS = 14  # how long a request waits for a decision
_A_DAY = 10  # requests of one user for one dataset


# Reviewers


def current_policy(hub: "Hub", session: Session, dataset: Dataset) -> Policy:
    """Return the policy in force.

    Raises:
        NotHere: there is none, so nothing is allowed.
    """
    return current(hub, session, dataset)[0]


def reviewers(hub: "Hub", session: Session, dataset: Dataset) -> list[Person]:
    """Return every reviewer of this dataset's requests, the owner first.

    Users whose account is closed, whose address is not verified, or whom the newest policy no longer names are not
    included.
    """
    named = {address.lower() for address in current_policy(hub, session, dataset).reviewers}
    by_address = sa.and_(Person.email.in_(named), Person.verified.is_not(None))
    wanted = sa.select(Person).where(Person.active, sa.or_(Person.id == dataset.owner_id, by_address))
    return sorted(session.scalars(wanted), key=lambda reviewer: (reviewer.id != dataset.owner_id, reviewer.id))


def may_decide(hub: "Hub", session: Session, person: Person, request: Request) -> bool:
    """Return True if this user may decide on this request: a reviewer other than the requester."""
    return person.id != request.person_id and any(
        reviewer.id == person.id for reviewer in reviewers(hub, session, request.dataset)
    )


def may_see(hub: "Hub", session: Session, person: Person, request: Request) -> bool:
    """Return True if this user may see the request: the requester and the reviewers."""
    return person.id == request.person_id or may_decide(hub, session, person, request)


# Access to a role


def ask_access(
    hub: "Hub", session: Session, person: Person, dataset: Dataset, role: str, purpose: str, text: str
) -> Request:
    """Ask the owner for a role of the policy.

    Args:
        hub: the hub.
        session: a transaction.
        person: the requesting user.
        dataset: the dataset.
        role: a role of the newest policy that is granted by request.
        purpose: a purpose that the role allows.
        text: the reason, in the user's own words; only the reviewers read it.

    Raises:
        BadForm: there is no such role or purpose to ask for.
        NotNow: the same was asked already, or granted, or there is no reviewer who could decide.
    """
    policy = current_policy(hub, session, dataset)
    open_roles = [entry.name for entry in policy.roles if entry.by_request]
    wanted = policy.role(role)
    if wanted is None or not wanted.by_request:
        listed = f"Choose among {', '.join(open_roles)}." if open_roles else "This policy gives no role by request."
        raise BadForm(f"the role {role!r:.60} cannot be asked for. {listed}")
    allowed = askable_purposes(policy, wanted)
    if purpose not in allowed:
        raise BadForm(f"the purpose {purpose!r:.60} is not allowed for this role. Choose among {', '.join(allowed)}.")
    if not text.strip():
        raise BadForm("say in a sentence what you need the data for.")
    deciding = [reviewer for reviewer in reviewers(hub, session, dataset) if reviewer.id != person.id]
    if not deciding:
        raise NotNow("there is nobody but you who may decide about this. Name a reviewer in the policy.")
    _refuse_twice(session, person, dataset, role, purpose)
    _refuse_many(session, person, dataset)
    request = Request(
        kind="access",
        dataset_id=dataset.id,
        person_id=person.id,
        role=role,
        purpose=purpose,
        text=text.strip()[:4000],
        ends=now() + OPEN_DAYS * 86400,
    )
    session.add(request)
    session.flush()
    hub.audit.write(
        session, person.id, "request.asked", f"request/{request.id}", dataset=dataset.name, role=role, purpose=purpose
    )
    for recipient in deciding:
        message = f"{person.name} asks for the role {role} of {dataset.name}, for {purpose}."
        tell(hub, session, recipient.id, message, f"/requests/{request.id}")
    return request


def askable_purposes(policy: Policy, role: Role) -> tuple[str, ...]:
    """Return every purpose that both the policy and the role allow."""
    narrower = role.purposes or policy.purposes
    return tuple(offer.name for offer in offered(policy.purposes) if covered_by(offer.name, narrower) is not None)


def _refuse_twice(session: Session, person: Person, dataset: Dataset, role: str, purpose: str) -> None:
    same = sa.select(Request).where(
        Request.kind == "access",
        Request.person_id == person.id,
        Request.dataset_id == dataset.id,
        Request.role == role,
        Request.purpose == purpose,
        Request.state.in_(("open", "granted")),
        sa.or_(Request.ends.is_(None), Request.ends > now()),
    )
    earlier = session.scalars(same.limit(1)).first()
    if earlier is not None:
        words = "is open" if earlier.state == "open" else "was granted"
        raise NotNow(f"request {earlier.id} for this role and purpose {words} already.")


def _refuse_many(session: Session, person: Person, dataset: Dataset) -> None:
    """Refuse too many requests of one user: each one sends e-mails to the reviewers."""
    today = sa.select(sa.func.count()).select_from(Request).where(
        Request.kind == "access",
        Request.person_id == person.id,
        Request.dataset_id == dataset.id,
        Request.created > now() - 86400,
    )  # fmt: skip
    if (session.scalar(today) or 0) >= _A_DAY:
        raise TooMany(f"you have asked for {_A_DAY} things of this dataset today. Ask again tomorrow.")


# Release of a job's answer


def ask_release(hub: "Hub", session: Session, job: Job) -> Request:
    """Ask for approval of a job that the gateway has stored as `waiting`, in the same transaction.

    Raises:
        NotNow: fewer reviewers than the policy requires may decide on it.
    """
    needs = max(1, needs_now(hub, session, job))
    deciding = [reviewer for reviewer in reviewers(hub, session, job.dataset) if reviewer.id != job.person_id]
    if len(deciding) < needs:
        raise NotNow(
            f"this release needs the agreement of {needs} besides you, and the policy names {len(deciding)} who may "
            "decide. Ask for less, or ask the owner to name reviewers."
        )
    request = Request(
        kind="release",
        dataset_id=job.dataset_id,
        person_id=job.person_id,
        job_id=job.id,
        purpose=job.purpose,
        needs=needs,
        ends=now() + OPEN_DAYS * 86400,
    )
    session.add(request)
    session.flush()
    # To the person who asks: to the dataset, what is on record costs nothing.
    cost = str(Loss.from_json(job.plan["own"]) if job.plan.get("own") else loss_of(job))
    hub.audit.write(
        session,
        job.person_id,
        "request.asked",
        f"request/{request.id}",
        dataset=job.dataset.name,
        job=job.id,
        cost=cost,
        needs=needs,
        purpose=job.purpose,
    )
    for recipient in deciding:
        message = f"{job.person.name} asks for a release from {job.dataset.name} that costs {cost}, for {job.purpose}."
        tell(hub, session, recipient.id, message, f"/requests/{request.id}")
    return request


def loss_of(job: Job) -> Loss | None:
    """Return the planned cost of the job to the dataset."""
    planned = job.plan.get("loss")
    return None if planned is None else Loss.from_json(planned)


# Output of a job


def of_owner(person: Person, dataset: Dataset) -> bool:
    """Return True for the dataset's owner, and for people of the same organisation."""
    same = dataset.organisation_id is not None and person.organisation_id == dataset.organisation_id
    return person.id == dataset.owner_id or same


def require_checkers(hub: "Hub", session: Session, dataset: Dataset, requester: Person) -> int:
    """Return how many people must look at an output; refuse if the policy does not name enough.

    Raises:
        NotNow: too few may look at it, or none of the owner's organisation.
    """
    needs = current_policy(hub, session, dataset).anonymised.reviewers
    checkers = [person for person in reviewers(hub, session, dataset) if person.id != requester.id]
    if len(checkers) < needs:
        raise NotNow(
            f"{needs} people besides you must look at an anonymised release, and the policy names {len(checkers)} who "
            "may. Ask the owner to name reviewers."
        )
    if not any(of_owner(person, dataset) for person in checkers):
        raise NotNow(
            "somebody of the owner's organisation besides you must look at an anonymised release. Ask the owner to "
            "name a reviewer there."
        )
    return needs


def ask_output(hub: "Hub", session: Session, job: Job, output: Output) -> Request:
    """Ask reviewers to look at the output of a job, in the transaction that stores it."""
    asked_under, _ = version(hub, session, job.dataset, job.policy_number)  # a newer policy never lowers it
    needs = max(asked_under.anonymised.reviewers, needs_now(hub, session, job))
    request = Request(
        kind="output",
        dataset_id=job.dataset_id,
        person_id=job.person_id,
        job_id=job.id,
        purpose=job.purpose,
        needs=needs,
        ends=now() + OPEN_DAYS * 86400,
    )
    session.add(request)
    session.flush()
    facts = {"dataset": job.dataset.name, "job": job.id, "needs": needs, "purpose": job.purpose}
    hub.audit.write(
        session, job.person_id, "request.asked", f"request/{request.id}", **facts, digest=output.digest, epsilon="none"
    )
    for recipient in reviewers(hub, session, job.dataset):
        if recipient.id != job.person_id:
            message = (
                f"{job.person.name} asks for an anonymised table of {job.dataset.name}. Look at it before it leaves."
            )
            tell(hub, session, recipient.id, message, f"/requests/{request.id}")
    return request


def drop_output(session: Session, job_id: int | None) -> None:
    """Erase the file of a job's output that is refused, withdrawn or expired; never one that was released."""
    unreleased = sa.update(Output).where(Output.job_id == job_id, Output.released.is_(None))
    session.execute(unreleased.values(sealed=None, facts=None), execution_options={"synchronize_session": False})


def drop_ended(hub: "Hub", session: Session) -> int:
    """End jobs whose output nobody can decide on any more, and erase each file that waits for no decision.

    Nothing should be left for this: a denial, a withdrawal, an expiry and a restore erase the file themselves.
    """
    open_for_job = sa.exists().where(Request.job_id == Job.id, Request.kind == "output", Request.state == "open")
    ended = list(session.scalars(sa.select(Job).where(Job.state == "checking", ~open_for_job).order_by(Job.id)))
    for job in ended:
        if turn_away(session, job, "its request has ended. Nothing was spent.", was="checking"):
            hub.audit.write(session, None, "output.erased", f"job/{job.id}", dataset=job.dataset.name)
    checked = sa.select(Job.id).where(Job.state == "checking")
    left = sa.update(Output).where(Output.released.is_(None), Output.sealed.is_not(None), Output.job_id.not_in(checked))
    session.execute(left.values(sealed=None, facts=None), execution_options={"synchronize_session": False})
    return len(ended)


def needs_now(hub: "Hub", session: Session, job: Job) -> int:
    """Return how many approvals the newest policy requires for this job, by its cost to the requester.

    That is never less than its cost to the dataset, and it is the cost on which the policy decides while the job runs.
    An output that is being checked has no cost: the policy states how many people must look at it.
    """
    if job.state == "checking":
        return current_policy(hub, session, job.dataset).anonymised.reviewers
    planned = job.plan.get("own") or job.plan.get("loss")
    loss = None if planned is None else Loss.from_json(planned)
    return needed_for(current_policy(hub, session, job.dataset), loss) if loss is not None and loss.amount else 0


def let_go(session: Session, job: Job) -> None:
    """Queue the job of a granted release.

    Raises:
        NotNow: it no longer waits.
    """
    if not _move(session, job, "waiting", "queued"):
        raise NotNow(f"job {job.id} does not wait for a decision any more: it is {job.state}.")


def turn_away(session: Session, job: Job, why: str, *, state: str = "refused", was: str = "waiting") -> bool:
    """End the job of a denied or expired release; nothing was spent. Return False if it does not wait."""
    if not _move(session, job, was, state):
        return False
    job.problem, job.finished = why, now()
    return True


def _move(session: Session, job: Job, old: str, new: str) -> bool:
    # Compared and changed in one statement: a worker or a cancellation may come first.
    moved = sa.update(Job).where(Job.id == job.id, Job.state == old).values(state=new).returning(Job.id)
    done = session.execute(moved, execution_options={"synchronize_session": False}).first() is not None
    session.refresh(job, ["state"])
    return done


def close_for(hub: "Hub", session: Session, job: Job) -> None:
    """Close the open request of a job that its requester cancelled, and erase its output. The job's row is locked."""
    drop_output(session, job.id)  # also where its request has ended
    wanted = sa.select(Request).where(Request.job_id == job.id, Request.state == "open")
    for request in session.scalars(wanted.with_for_update(of=Request, key_share=True)):
        request.state = "withdrawn"
        hub.audit.write(session, job.person_id, "request.withdrawn", f"request/{request.id}", job=job.id)

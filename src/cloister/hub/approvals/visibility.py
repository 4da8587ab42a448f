"""Find the datasets and jobs that a user may see, and the roles granted to them. All else is reported as not found."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.database import now
from cloister.hub.core.models import Dataset, Job, Person, Request
from cloister.hub.policy import versions
from cloister.hub.policy.conditions import Environment, Grant, Subject, belongs
from cloister.hub.policy.policy import Policy, Role
from cloister.privacy.errors import BadPolicy, NotHere

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = [
    "SAME",
    "concerns",
    "find_dataset",
    "find_job",
    "granted_roles",
    "hand_on",
    "may_know",
    "not_here",
    "result_of",
    "result_text",
    "subject_of",
]

SAME = "same_as"  # in place of a result: the id of the job that has it
_LONGEST_POINTER = 100_000  # characters of such a result: an id and a label


def subject_of(session: Session, dataset: Dataset, person: Person) -> Subject:
    """Return a user as a dataset's policy sees them, with the roles that granted requests give them now."""
    return Subject.of(person, granted_roles(session, person, dataset))


def granted_roles(session: Session, person: Person, dataset: Dataset) -> set[Grant]:
    """Return the roles of this dataset's policy that requests have given a user, each with its purpose.

    Pass them to `Subject.of(person, granted_roles(…))`. Revoked and ended roles are not included.
    """
    wanted = sa.select(Request.role, Request.purpose).where(
        Request.kind == "access",
        Request.person_id == person.id,
        Request.dataset_id == dataset.id,
        Request.state == "granted",
        sa.or_(Request.ends.is_(None), Request.ends > now()),
    )
    return {Grant(role, purpose) for role, purpose in session.execute(wanted)}


def find_dataset(hub: "Hub", session: Session, person: Person, name: str, environment: Environment) -> Dataset:
    """Return the dataset of that name, if this user may see it.

    Raises:
        NotHere: there is none, or none that they may see: the two are not distinguished.
    """
    dataset = session.scalar(sa.select(Dataset).where(Dataset.name == name, Dataset.deleted.is_(None)))
    if dataset is None or not may_know(hub, session, person, dataset, environment):
        raise not_here(name)
    return dataset


def not_here(name: str) -> NotHere:
    """Return one error for a dataset that does not exist and for one that this user may not see."""
    return NotHere(f"there is no dataset {name!r:.80} here.")


def may_know(hub: "Hub", session: Session, person: Person, dataset: Dataset, environment: Environment) -> bool:
    """Return True if a user may know that a dataset exists: owner, reviewers, and users with a possible role.

    A role that is given on request counts for every user who could ask for it. Hours, dates and networks do not matter
    here: outside of them the policy refuses with the reason.
    """
    if person.id == dataset.owner_id:
        return True
    try:
        policy, _ = versions.current(hub, session, dataset)
    except (NotHere, BadPolicy):
        return False
    return concerns(policy, person, subject_of(session, dataset, person), environment)


def concerns(policy: Policy, person: Person, subject: Subject, environment: Environment) -> bool:
    """Return True if a policy concerns a user: as a reviewer, or by a role that could be theirs."""
    if person.verified_email and person.verified_email in {address.lower() for address in policy.reviewers}:
        return True
    return any(_could_be(role, subject, environment) for role in policy.roles)


def _could_be(role: Role, subject: Subject, environment: Environment) -> bool:
    who = replace(role.who, start=None, until=None, hours=None, networks=())
    return all(reason.holds for reason in belongs(who, subject, environment))


def find_job(session: Session, person: Person, job_id: int, *, result: bool = True) -> Job:
    """Return a user's own job, or one on their dataset without its result, which only the requester may see.

    Args:
        session: a session.
        person: the user.
        job_id: the job.
        result: False to leave the result out, which may be megabytes.

    Raises:
        NotHere: there is none, or it is another user's.
    """
    job = session.get(Job, job_id) if 0 < job_id < 2**31 else None
    if job is None or person.id not in (job.person_id, job.dataset.owner_id):
        raise NotHere(f"there is no job {job_id} of yours.")
    mine = person.id == job.person_id
    loaded = result_of(session, job) if mine and result else None
    session.expunge(job)  # keeps changes made here out of the database
    job.result = loaded
    return job


def result_of(session: Session, job: Job, largest: int | None = None) -> dict[str, Any] | None:
    """Load a job's result. A result that repeats an earlier one of the same user points to it.

    Args:
        session: a session.
        job: the job.
        largest: the most bytes of a result; a larger one is not loaded, and None is returned.
    """
    small = [] if largest is None else [sa.func.coalesce(Job.size, 0) <= largest]
    result = session.scalar(sa.select(Job.result).where(Job.id == job.id, *small))
    if result is None or SAME not in result:
        return result
    first = sa.select(Job.result).where(Job.id == result[SAME], Job.person_id == job.person_id, *small)
    earlier = session.scalar(first)
    return None if earlier is None else {**earlier, "label": result["label"]}


def result_text(session: Session, job: Job) -> str | None:
    """Load a job's result as JSON: the stored text, not parsed unless it is short and may point to another one."""
    text: str | None = session.scalar(sa.select(sa.cast(Job.result, sa.Text)).where(Job.id == job.id))
    if text is None or len(text) > _LONGEST_POINTER or SAME not in json.loads(text):
        return text
    result = result_of(session, job)
    return None if result is None else json.dumps(result)


def hand_on(session: Session, job_id: int) -> None:
    """Give a result that is about to be removed to the oldest job that points to it, and point the others there.

    In a writing transaction: each job keeps its result until its own is removed.
    """
    wanted = sa.select(Job.result, Job.size, Job.person_id, Job.dataset_id, Job.digest).where(Job.id == job_id)
    first = session.execute(
        wanted.with_for_update(key_share=True)
    ).first()  # a job about to point here waits, and looks again
    if first is None or first.result is None or SAME in first.result:
        return
    # By columns: results may be large, and the database would parse each of them to look into it.
    repeats = sa.select(Job.id, Job.result).where(
        Job.person_id == first.person_id,
        Job.dataset_id == first.dataset_id,
        Job.digest == first.digest,
        Job.size == 0,
        Job.result.is_not(None),
    )
    heir = None
    for number, result in session.execute(repeats.order_by(Job.id)).all():
        if result.get(SAME) != job_id:
            continue
        columns: dict[str, Any] = {"result": {**first.result, "label": result["label"]}, "size": first.size}
        if heir is None:
            heir = number
        else:
            columns = {"result": {SAME: heir, "label": result["label"]}}
        session.execute(sa.update(Job).where(Job.id == number).values(**columns))

"""Requests for access to a role of a dataset's policy, for a purpose. Granted access ends by itself."""

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.approvals.reviewers import current_policy, reviewers
from cloister.hub.core.database import now
from cloister.hub.core.models import Dataset, Person, Request
from cloister.hub.core.notices import tell
from cloister.hub.policy.conditions import Grant
from cloister.hub.policy.policy import Policy, Role
from cloister.hub.policy.purposes import covered_by, offered
from cloister.privacy.errors import BadForm, NotNow, TooMany

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["OPEN_DAYS", "ask_access", "askable_purposes", "granted_roles"]

OPEN_DAYS = 14  # how long a request waits for a decision
_A_DAY = 10  # requests of one user for one dataset


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
    open_roles = [one.name for one in policy.roles if one.by_request]
    wanted = policy.role(role)
    if wanted is None or not wanted.by_request:
        listed = f"Choose among {', '.join(open_roles)}." if open_roles else "This policy gives no role by request."
        raise BadForm(f"the role {role!r:.60} cannot be asked for. {listed}")
    allowed = askable_purposes(policy, wanted)
    if purpose not in allowed:
        raise BadForm(f"the purpose {purpose!r:.60} is not allowed for this role. Choose among {', '.join(allowed)}.")
    if not text.strip():
        raise BadForm("say in a sentence what you need the data for.")
    deciding = [one for one in reviewers(hub, session, dataset) if one.id != person.id]
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
    for one in deciding:
        said = f"{person.name} asks for the role {role} of {dataset.name}, for {purpose}."
        tell(hub, session, one.id, said, f"/requests/{request.id}")
    return request


def askable_purposes(policy: Policy, role: Role) -> tuple[str, ...]:
    """Return every purpose that both the policy and the role allow."""
    narrower = role.purposes or policy.purposes
    return tuple(one.name for one in offered(policy.purposes) if covered_by(one.name, narrower) is not None)


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
    found = session.scalars(same.limit(1)).first()
    if found is not None:
        words = "is open" if found.state == "open" else "was granted"
        raise NotNow(f"request {found.id} for this role and purpose {words} already.")


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

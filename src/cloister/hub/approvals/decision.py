"""Decisions on a request: agree, grant, deny, comment, withdraw, revoke, expire.

One denial is enough to deny a request; the required number of different reviewers must agree to grant it. The newest
policy at that moment defines the reviewers: the agreement of a former reviewer does not count. An agreement to an
output counts for the bytes that the reviewer saw, and somebody of the owner's organisation must be among those who
agree.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.approvals.requests import (
    drop_output,
    let_go,
    may_decide,
    may_see,
    needs_now,
    of_owner,
    reviewers,
    turn_away,
)
from cloister.hub.core.database import now
from cloister.hub.core.models import Comment, Decision, Job, Output, Person, Request
from cloister.hub.core.notices import tell
from cloister.privacy.errors import BadForm, Denied, NotHere, NotNow, TooMany

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["ACCESS_DAYS", "comment", "comments", "decide", "decisions_for", "expire", "find", "revoke", "withdraw"]

ACCESS_DAYS = 365  # how long a granted access lasts unless the reviewer says otherwise
_LONGEST = 4000
_IN_A_ROW = 10  # comments of one user without an answer
_STATE = {"release": "waiting", "output": "checking"}  # of the job that a request is about
Release = Callable[[Request], None]


def find(hub: "Hub", session: Session, person: Person, number: int, *, to_change: bool = False) -> Request:
    """Return a request that this user may see.

    Args:
        hub: the hub.
        session: a session; a transaction, to change it.
        person: the user.
        number: the request.
        to_change: lock the request, and its job before it.

    Raises:
        NotHere: there is none, or this user may not see it.
    """
    wanted = sa.select(Request).where(Request.id == number)
    if to_change:
        # One order everywhere, or PostgreSQL ends one of two transactions: the job first, then its request.
        job = sa.select(Request.job_id).where(Request.id == number).scalar_subquery()
        session.execute(sa.select(Job.id).where(Job.id == job).with_for_update(key_share=True))
        wanted = wanted.with_for_update(of=Request, key_share=True).execution_options(populate_existing=True)
    request = session.scalars(wanted).first()
    if request is None or not may_see(hub, session, person, request):
        raise NotHere("there is no such request.")
    return request


def decide(
    hub: "Hub",
    session: Session,
    reviewer: Person,
    request: Request,
    agreed: bool,
    reason: str,
    days: int = ACCESS_DAYS,
    *,
    digest: str = "",
    release: Release | None = None,
) -> Request:
    """Record a reviewer's agreement or denial.

    Args:
        hub: the hub.
        session: a transaction.
        reviewer: the deciding user.
        request: an open request.
        agreed: True to agree, False to deny.
        reason: for the requester; a denial needs one.
        days: the duration of granted access.
        digest: of the output that the reviewer saw, for a request for an output.
        release: releases the output once enough have agreed; `jobs/output_check.py` hands it in.

    Raises:
        Denied: the user is no reviewer, or is the requester.
        NotNow: it is not open, has expired, or this reviewer has decided already; or the output is not the one seen.
    """
    request = find(hub, session, reviewer, request.id, to_change=True)
    if request.person_id == reviewer.id:
        raise Denied("nobody decides about their own request.")
    if not may_decide(hub, session, reviewer, request):
        raise Denied("requests are decided by the dataset's owner and the reviewers that its policy names.")
    _require_open(request)
    if not agreed and not reason.strip():
        raise BadForm("say why, when you deny a request.")
    if not 1 <= days <= 3650:
        raise BadForm("access lasts from 1 to 3,650 days.")
    earlier = decisions(session, request)
    if any(decision.person_id == reviewer.id for decision in earlier):
        raise NotNow("you have decided about this request already. It waits for somebody else.")
    word = Decision(request_id=request.id, person_id=reviewer.id, agreed=agreed, reason=reason.strip()[:_LONGEST])
    if request.kind == "output":
        if release is None:
            raise NotNow("an output is decided on after looking at it, on its page.")
        word.digest = _seen(session, request, digest)
    session.add(word)
    session.flush()
    if not agreed:
        return _deny(hub, session, reviewer, request, word.reason)
    return _agree(hub, session, reviewer, request, word.reason, days, release)


def _seen(session: Session, request: Request, digest: str) -> str:
    """Return the digest of the output that a reviewer saw, if it is the one that would be released."""
    stored = session.scalar(sa.select(Output.digest).where(Output.job_id == request.job_id))
    if stored is None or stored != digest:
        raise NotNow("this is not the output that waits here. Look at the page again, then decide.")
    return stored


def _deny(hub: "Hub", session: Session, reviewer: Person, request: Request, reason: str) -> Request:
    request.state, request.ends = "denied", None
    if request.job is not None:
        why = f"request {request.id} for this release was denied. Nothing was spent."
        turn_away(session, request.job, why, was=_STATE[request.kind])
    facts = _facts(session, request)
    drop_output(session, request.job_id)
    hub.audit.write(session, reviewer.id, "request.denied", f"request/{request.id}", **facts, reason=reason)
    tell(hub, session, request.person_id, f"Your request for {_what(request)} was denied.", f"/requests/{request.id}")
    return request


def _agree(
    hub: "Hub",
    session: Session,
    reviewer: Person,
    request: Request,
    reason: str,
    days: int,
    release: Release | None,
) -> Request:
    deciding = {person.id: person for person in reviewers(hub, session, request.dataset)}
    count = set(deciding) - {request.person_id}
    yes = {decision.person_id for decision in decisions(session, request) if decision.agreed} & count
    if request.job is not None:  # the policy may have become stricter since; for this request it never becomes laxer
        request.needs = max(request.needs, needs_now(hub, session, request.job))
    granted = len(yes) >= request.needs
    if request.kind == "output" and not any(of_owner(deciding[number], request.dataset) for number in yes):
        granted = False
    facts = _facts(session, request)
    if granted and request.kind == "output":
        assert release is not None
        release(request)
    elif granted and request.job is not None:
        let_go(session, request.job)
    if granted:
        request.state = "granted"
        request.ends = now() + days * 86400 if request.kind == "access" else None
        facts["days"] = days if request.kind == "access" else 0
    action = "request.granted" if granted else "request.agreed"
    hub.audit.write(session, reviewer.id, action, f"request/{request.id}", **facts, reason=reason, agreed=len(yes))
    link = f"/requests/{request.id}"
    if granted:
        tell(hub, session, request.person_id, f"Your request for {_what(request)} was granted.", link)
    else:
        left = max(1, request.needs - len(yes))
        if request.kind != "output":  # they would learn that there is one: see `decisions_for`
            tell(hub, session, request.person_id, f"One person agreed to your request for {_what(request)}.", link)
        for reviewer_id in sorted(count - yes):
            tell(
                hub,
                session,
                reviewer_id,
                f"Request {request.id} for {_what(request)} needs {left} more to agree.",
                link,
            )
    return request


def decisions(session: Session, request: Request) -> list[Decision]:
    """Return the reviewers' decisions, in order."""
    return list(session.scalars(sa.select(Decision).where(Decision.request_id == request.id).order_by(Decision.id)))


def decisions_for(session: Session, reader: Person, request: Request) -> list[Decision]:
    """Return the decisions that a reader of a request may see, in order.

    Privacy: nobody can agree where no table could be made. So an agreement tells the requester of an output that there
    is one, which depends on the rows; they see agreements once the output is theirs.
    """
    every = decisions(session, request)
    if request.kind == "output" and reader.id == request.person_id and request.state != "granted":
        return [decision for decision in every if not decision.agreed]
    return every


def comments(session: Session, request: Request) -> list[Comment]:
    """Return the comments on a request, in order."""
    return list(session.scalars(sa.select(Comment).where(Comment.request_id == request.id).order_by(Comment.id)))


def comment(hub: "Hub", session: Session, person: Person, request: Request, text: str) -> Comment:
    """Add a comment to a request, for the requester and the reviewers.

    Raises:
        NotHere: this user may not see the request.
        BadForm: the comment is empty.
        TooMany: the last comments were all this user's.
    """
    request = find(hub, session, person, request.id)
    if not text.strip() or len(text) > _LONGEST:
        raise BadForm(f"a comment has from 1 to {_LONGEST:,} characters.")
    last = sa.select(Comment.person_id).where(Comment.request_id == request.id).order_by(Comment.id.desc())
    if list(session.scalars(last.limit(_IN_A_ROW))) == [person.id] * _IN_A_ROW:
        raise TooMany(f"your last {_IN_A_ROW} comments have no answer yet. Each one sends e-mails. Wait for an answer.")
    added = Comment(request_id=request.id, person_id=person.id, text=text.strip())
    session.add(added)
    hub.audit.write(session, person.id, "request.commented", f"request/{request.id}", dataset=request.dataset.name)
    others = {reviewer.id for reviewer in reviewers(hub, session, request.dataset)} | {request.person_id}
    for person_id in sorted(others - {person.id}):
        tell(hub, session, person_id, f"{person.name} commented on request {request.id}.", f"/requests/{request.id}")
    return added


def withdraw(hub: "Hub", session: Session, person: Person, request: Request) -> Request:
    """Withdraw one's own open request; a job that waits for it is cancelled.

    Raises:
        Denied: it is another user's.
        NotNow: it is not open.
    """
    request = find(hub, session, person, request.id, to_change=True)
    if request.person_id != person.id:
        raise Denied("only the person who asked can withdraw a request.")
    _require_open(request)
    request.state, request.ends = "withdrawn", None
    if request.job is not None:
        why = "its request was withdrawn. Nothing was spent."
        turn_away(session, request.job, why, state="cancelled", was=_STATE[request.kind])
    drop_output(session, request.job_id)
    hub.audit.write(session, person.id, "request.withdrawn", f"request/{request.id}", **_facts(session, request))
    for reviewer in reviewers(hub, session, request.dataset):
        if reviewer.id != person.id:
            message = f"{person.name} withdrew request {request.id} for {_what(request)}."
            tell(hub, session, reviewer.id, message, f"/requests/{request.id}")
    return request


def revoke(hub: "Hub", session: Session, reviewer: Person, request: Request, reason: str) -> Request:
    """Revoke a grant: access at once, a release only while its job has not begun.

    Raises:
        Denied: the user is no reviewer of this dataset.
        NotNow: it is not granted, or the job has begun.
    """
    request = find(hub, session, reviewer, request.id, to_change=True)
    if not may_decide(hub, session, reviewer, request):
        raise Denied("only the dataset's owner and the reviewers that its policy names revoke what was granted.")
    if request.state != "granted":
        raise NotNow(f"request {request.id} is {request.state}; only what is granted can be revoked.")
    if not reason.strip():
        raise BadForm("say why, when you revoke what was granted.")
    if request.job is not None:
        why = f"request {request.id} for this release was revoked. Nothing was spent."
        if not turn_away(session, request.job, why, was="queued"):
            raise NotNow(f"job {request.job.id} has begun. What was released cannot be taken back.")
    request.state, request.ends = "revoked", None
    facts = _facts(session, request)
    hub.audit.write(session, reviewer.id, "request.revoked", f"request/{request.id}", **facts, reason=reason[:_LONGEST])
    tell(
        hub,
        session,
        request.person_id,
        f"What you were granted was revoked: {_what(request)}.",
        f"/requests/{request.id}",
    )
    return request


def expire(hub: "Hub", session: Session) -> int:
    """End open requests and granted access whose time is over; return how many ended. A worker calls this."""
    over = sa.select(Request).where(Request.state.in_(("open", "granted")), Request.ends <= now())
    ended = 0
    for request in session.scalars(over.order_by(Request.id).limit(500)).all():
        was, request.state = request.state, "expired"
        if request.job is not None:
            why = "nobody decided about its request in time. Nothing was spent."
            turn_away(session, request.job, why, was=_STATE[request.kind])
        drop_output(session, request.job_id)
        hub.audit.write(session, None, "request.expired", f"request/{request.id}", **_facts(session, request), was=was)
        message = (
            f"Nobody decided in time about your request for {_what(request)}."
            if was == "open"
            else f"Your access has ended: {_what(request)}."
        )
        tell(hub, session, request.person_id, message, f"/requests/{request.id}")
        ended += 1
    return ended


def _require_open(request: Request) -> None:
    if request.state != "open":
        raise NotNow(f"request {request.id} is {request.state}, not open.")
    if request.ends is not None and request.ends <= now():
        raise NotNow(f"request {request.id} has expired. The person who asked may ask again.")


def _what(request: Request) -> str:
    if request.kind == "access":
        return f"the role {request.role} of {request.dataset.name}"
    if request.kind == "output":
        return f"an anonymised table of {request.dataset.name}"
    return f"a release from {request.dataset.name}"


def _facts(session: Session, request: Request) -> dict[str, object]:
    facts: dict[str, object] = {"dataset": request.dataset.name, "asked_by": request.person_id}
    if request.kind == "access":
        return {**facts, "role": request.role}
    if request.kind == "output":
        digest = session.scalar(sa.select(Output.digest).where(Output.job_id == request.job_id))
        facts |= {"digest": digest or "", "epsilon": "none"}
    return {**facts, "job": request.job_id}

"""Request pages: ask for access, list open requests, decide, comment, withdraw, revoke."""

from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Request
from sqlalchemy.orm import Session
from starlette.responses import Response

from cloister.hub import approvals
from cloister.hub.approvals.decision import ACCESS_DAYS, comments, decisions
from cloister.hub.approvals.requests import askable_purposes, current_policy
from cloister.hub.core import models
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Dataset, Person
from cloister.hub.jobs.authorise import plan_for
from cloister.hub.jobs.gateway import find_dataset
from cloister.hub.jobs.job_types import KINDS, Planned
from cloister.hub.policy.purposes import PURPOSES
from cloister.hub.web.context import Visitor, form, go, page, signed_in
from cloister.hub.web.forms import Form
from cloister.privacy.errors import CloisterError, NotHere

__all__ = ["router", "to_decide"]

router = APIRouter()
SignedIn = Annotated[Visitor, Depends(signed_in)]
Sent = Annotated[Form, Depends(form)]
_MOST = 200


def to_decide(hub: Hub, session: Session, person: Person, state: str | None = "open") -> list[models.Request]:
    """Return the requests that this user may decide on, newest first."""
    mine = [one.id for one in _reviewed(hub, session, person)]
    wanted = sa.select(models.Request).where(models.Request.dataset_id.in_(mine), models.Request.person_id != person.id)
    if state is not None:
        wanted = wanted.where(models.Request.state == state)
    return list(session.scalars(wanted.order_by(models.Request.id.desc()).limit(_MOST)))


def _reviewed(hub: Hub, session: Session, person: Person) -> list[Dataset]:
    """Return the datasets whose requests this user decides on: their own, and those whose policy names them."""
    found = []
    for dataset in session.scalars(sa.select(Dataset).where(Dataset.deleted.is_(None))):
        if dataset.owner_id == person.id:
            found.append(dataset)
            continue
        try:
            named = current_policy(hub, session, dataset).reviewers
        except CloisterError:
            continue  # no valid policy: nothing can be decided there
        if person.verified_email and person.verified_email in {address.lower() for address in named}:
            found.append(dataset)
    return found


@router.get("/requests")
def listed(request: Request, here: SignedIn) -> Response:
    """List the requests that wait for the visitor, and their own."""
    own = sa.select(models.Request).where(models.Request.person_id == here.who.id)
    with here.hub.database.reading() as session:
        mine = list(session.scalars(own.order_by(models.Request.id.desc()).limit(_MOST)))
        waiting = to_decide(here.hub, session, here.who)
        over = [one for one in to_decide(here.hub, session, here.who, None) if one.state != "open"]
    return page(request, "requests.html", dataset=None, mine=mine, waiting=waiting, over=over[:50], roles=[])


@router.get("/datasets/{name}/requests")
def of_dataset(request: Request, name: str, here: SignedIn) -> Response:
    """List a dataset's requests: for reviewers, all; for others their own, and the form to ask."""
    with here.hub.database.reading() as session:
        dataset = find_dataset(here.hub, session, here.who, name, here.environment)
        policy = current_policy(here.hub, session, dataset)
        wanted = sa.select(models.Request).where(models.Request.dataset_id == dataset.id)
        own = wanted.where(models.Request.person_id == here.who.id)
        mine = list(session.scalars(own.order_by(models.Request.id.desc()).limit(_MOST)))
        every = to_decide(here.hub, session, here.who, None)
    every = [one for one in every if one.dataset_id == dataset.id]
    return page(
        request,
        "requests.html",
        dataset=dataset,
        mine=mine,
        waiting=[one for one in every if one.state == "open"],
        over=[one for one in every if one.state != "open"],
        roles=[
            (role, [(one, PURPOSES[one].title) for one in askable_purposes(policy, role)])
            for role in policy.roles
            if role.by_request
        ],
    )


@router.post("/datasets/{name}/requests")
def ask(request: Request, name: str, here: SignedIn, sent: Sent) -> Response:
    """Ask for a role of the policy."""
    role, purpose = sent.text("role", "Role", 200), sent.text("purpose", "Purpose", 200)
    with here.hub.database.writing() as session:
        dataset = find_dataset(here.hub, session, here.who, name, here.environment)
        text = sent.text("text", "What you need the data for", 4000)
        made = approvals.ask_access(here.hub, session, here.who, dataset, role, purpose, text)
    return go(request, f"/requests/{made.id}", said="Sent. You will be told when somebody decides.")


@router.get("/requests/{number}")
def shown(request: Request, number: int, here: SignedIn) -> Response:
    """Show one request, with everything needed to decide on it."""
    with here.hub.database.reading() as session:
        found = _find(here, session, number)
        said, below = decisions(session, found), comments(session, found)
        deciding = approvals.may_decide(here.hub, session, here.who, found)
        job = found.job
        plan = plan_for(here.hub, session, here.who, job, here.environment) if job is not None else None
    kind = KINDS.get(job.kind) if job is not None else None
    return page(
        request,
        "request.html",
        one=found,
        job=job,
        kind=kind,
        planned=Planned.from_json(plan) if plan else None,
        purpose=PURPOSES[found.purpose].title if found.purpose in PURPOSES else "",
        decisions=said,
        comments=below,
        deciding=deciding,
        decided=any(one.person_id == here.who.id for one in said),
        mine=found.person_id == here.who.id,
        days=ACCESS_DAYS,
    )


@router.post("/requests/{number}/decide")
def decide(request: Request, number: int, here: SignedIn, sent: Sent) -> Response:
    """Agree or deny."""
    agreed = sent.text("word", "Your decision") == "agree"
    days = sent.number("days", "Days", 1, 3650) if sent.maybe("days") else ACCESS_DAYS
    with here.hub.database.writing() as session:
        found = _find(here, session, number)
        made = approvals.decide(here.hub, session, here.who, found, agreed, sent.maybe("reason", 4000), days)
    said = {"granted": "Granted.", "denied": "Denied."}.get(made.state, "Your agreement counts. It needs another one.")
    return go(request, f"/requests/{number}", said=said)


@router.post("/requests/{number}/comment")
def comment(request: Request, number: int, here: SignedIn, sent: Sent) -> Response:
    """Add a comment."""
    with here.hub.database.writing() as session:
        approvals.comment(here.hub, session, here.who, _find(here, session, number), sent.text("text", "Comment", 4000))
    return go(request, f"/requests/{number}#comments")


@router.post("/requests/{number}/withdraw")
def withdraw(request: Request, number: int, here: SignedIn) -> Response:
    """Withdraw one's own request."""
    with here.hub.database.writing() as session:
        approvals.withdraw(here.hub, session, here.who, _find(here, session, number))
    return go(request, f"/requests/{number}", said="Withdrawn.")


@router.post("/requests/{number}/revoke")
def revoke(request: Request, number: int, here: SignedIn, sent: Sent) -> Response:
    """Revoke a grant."""
    with here.hub.database.writing() as session:
        found = _find(here, session, number)
        approvals.revoke(here.hub, session, here.who, found, sent.text("reason", "Reason", 4000))
    return go(request, f"/requests/{number}", said="Revoked.")


def _find(here: Visitor, session: Session, number: int) -> models.Request:
    if not 0 < number < 2**31:
        raise NotHere("there is no such request.")
    return approvals.find(here.hub, session, here.who, number)

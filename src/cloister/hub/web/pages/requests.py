"""Request pages: ask for access, list open requests, decide, comment, withdraw, revoke."""

from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Request
from sqlalchemy.orm import Session
from starlette.responses import Response

from cloister.hub import approvals
from cloister.hub.approvals.decision import ACCESS_DAYS, comments, decisions_for
from cloister.hub.approvals.requests import askable_purposes, current_policy
from cloister.hub.core import models
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Dataset, Person
from cloister.hub.jobs import output_check
from cloister.hub.jobs.authorise import plan_for
from cloister.hub.jobs.gateway import find_dataset
from cloister.hub.jobs.job_types import KINDS, Planned
from cloister.hub.policy.purposes import PURPOSES
from cloister.hub.web.api.tables import download
from cloister.hub.web.context import Visitor, form, go, page, signed_in
from cloister.hub.web.forms import Form
from cloister.hub.web.spreadsheets import csv_of_parquet
from cloister.privacy.errors import CloisterError, NotHere

__all__ = ["output_of", "router", "to_decide"]

router = APIRouter()
SignedIn = Annotated[Visitor, Depends(signed_in)]
Sent = Annotated[Form, Depends(form)]
_MOST = 200


def to_decide(hub: Hub, session: Session, person: Person, state: str | None = "open") -> list[models.Request]:
    """Return the requests that this user may decide on, newest first."""
    mine = [dataset.id for dataset in _reviewed(hub, session, person)]
    wanted = sa.select(models.Request).where(models.Request.dataset_id.in_(mine), models.Request.person_id != person.id)
    if state is not None:
        wanted = wanted.where(models.Request.state == state)
    return list(session.scalars(wanted.order_by(models.Request.id.desc()).limit(_MOST)))


def _reviewed(hub: Hub, session: Session, person: Person) -> list[Dataset]:
    """Return the datasets whose requests this user decides on: their own, and those whose policy names them."""
    datasets = []
    for dataset in session.scalars(sa.select(Dataset).where(Dataset.deleted.is_(None))):
        if dataset.owner_id == person.id:
            datasets.append(dataset)
            continue
        try:
            named = current_policy(hub, session, dataset).reviewers
        except CloisterError:
            continue  # no valid policy: nothing can be decided there
        if person.verified_email and person.verified_email in {address.lower() for address in named}:
            datasets.append(dataset)
    return datasets


@router.get("/requests")
def listed(request: Request, visitor: SignedIn) -> Response:
    """List the requests that wait for the visitor, and their own."""
    query = sa.select(models.Request).where(models.Request.person_id == visitor.who.id)
    with visitor.hub.database.reading() as session:
        mine = list(session.scalars(query.order_by(models.Request.id.desc()).limit(_MOST)))
        waiting = to_decide(visitor.hub, session, visitor.who)
        over = [entry for entry in to_decide(visitor.hub, session, visitor.who, None) if entry.state != "open"]
    return page(request, "requests.html", dataset=None, mine=mine, waiting=waiting, over=over[:50], roles=[])


@router.get("/datasets/{name}/requests")
def of_dataset(request: Request, name: str, visitor: SignedIn) -> Response:
    """List a dataset's requests: for reviewers, all; for others their own, and the form to ask."""
    with visitor.hub.database.reading() as session:
        dataset = find_dataset(visitor.hub, session, visitor.who, name, visitor.environment)
        policy = current_policy(visitor.hub, session, dataset)
        wanted = sa.select(models.Request).where(models.Request.dataset_id == dataset.id)
        query = wanted.where(models.Request.person_id == visitor.who.id)
        mine = list(session.scalars(query.order_by(models.Request.id.desc()).limit(_MOST)))
        every = to_decide(visitor.hub, session, visitor.who, None)
    every = [entry for entry in every if entry.dataset_id == dataset.id]
    return page(
        request,
        "requests.html",
        dataset=dataset,
        mine=mine,
        waiting=[entry for entry in every if entry.state == "open"],
        over=[entry for entry in every if entry.state != "open"],
        roles=[
            (role, [(purpose, PURPOSES[purpose].title) for purpose in askable_purposes(policy, role)])
            for role in policy.roles
            if role.by_request
        ],
    )


@router.post("/datasets/{name}/requests")
def ask(request: Request, name: str, visitor: SignedIn, sent: Sent) -> Response:
    """Ask for a role of the policy."""
    role, purpose = sent.text("role", "Role", 200), sent.text("purpose", "Purpose", 200)
    with visitor.hub.database.writing() as session:
        dataset = find_dataset(visitor.hub, session, visitor.who, name, visitor.environment)
        text = sent.text("text", "What you need the data for", 4000)
        entry = approvals.ask_access(visitor.hub, session, visitor.who, dataset, role, purpose, text)
    return go(request, f"/requests/{entry.id}", said="Sent. You will be told when somebody decides.")


@router.get("/requests/{number}")
def shown(request: Request, number: int, visitor: SignedIn) -> Response:
    """Show one request, with everything needed to decide on it."""
    with visitor.hub.database.reading() as session:
        entry = _find(visitor, session, number)
        decision_rows, below = decisions_for(session, visitor.who, entry), comments(session, entry)
        deciding = approvals.may_decide(visitor.hub, session, visitor.who, entry)
        job = entry.job
        output = (
            output_check.look(visitor.hub, session, visitor.who, entry) if entry.kind == "output" and deciding else None
        )
        order = output_check.risk_order(visitor.hub, session, visitor.who, entry)
        plan = plan_for(visitor.hub, session, visitor.who, job, visitor.environment) if job is not None else None
    added = order.compute(visitor.hub) if order is not None and output is not None else ()  # it may take seconds
    kind = KINDS.get(job.kind) if job is not None else None
    if output is not None:
        visitor.hub.audit.record(visitor.who.id, "output.seen", f"request/{number}", digest=output.digest)
    return page(
        request,
        "request.html",
        one=entry,
        job=job,
        kind=kind,
        planned=Planned.from_json(plan) if plan else None,
        purpose=PURPOSES[entry.purpose].title if entry.purpose in PURPOSES else "",
        decisions=decision_rows,
        comments=below,
        deciding=deciding,
        decided=any(decision.person_id == visitor.who.id for decision in decision_rows),
        mine=entry.person_id == visitor.who.id,
        days=ACCESS_DAYS,
        output=output,
        added=added,
    )


@router.get("/requests/{number}/output.parquet")
def output_file(number: int, visitor: SignedIn) -> Response:
    """Return the whole file that would be released, for those who decide on it."""
    content = output_of(visitor, number, "output.downloaded", file=True).content
    return download(content, f"output-of-request-{number}.parquet", "application/vnd.apache.parquet")


@router.get("/requests/{number}/output.csv")
def output_csv(number: int, visitor: SignedIn) -> Response:
    """Return the same file for a spreadsheet."""
    content = output_of(visitor, number, "output.downloaded", file=True).content
    text = csv_of_parquet(visitor.hub.settings, content, visitor.who.id)
    return download(text, f"output-of-request-{number}.csv", "text/csv; charset=utf-8")


def output_of(visitor: Visitor, number: int, action: str, *, file: bool = False) -> output_check.CheckedOutput:
    """Return the output of a request for one who decides on it, and record that they looked.

    Args:
        visitor: the visitor.
        number: the request.
        action: the word for the audit log.
        file: True if the file itself is wanted.

    Raises:
        NotHere: there is none, or the visitor does not decide on it.
    """
    with visitor.hub.database.reading() as session:
        seen = output_check.look(visitor.hub, session, visitor.who, _find(visitor, session, number))
    if seen is None or (file and not seen.content):
        raise NotHere("there is no such output any more.")
    visitor.hub.audit.record(visitor.who.id, action, f"request/{number}", digest=seen.digest)
    return seen


@router.post("/requests/{number}/decide")
def decide(request: Request, number: int, visitor: SignedIn, sent: Sent) -> Response:
    """Agree or deny."""
    agreed = sent.text("word", "Your decision") == "agree"
    days = sent.number("days", "Days", 1, 3650) if sent.maybe("days") else ACCESS_DAYS
    reason, digest = sent.maybe("reason", 4000), sent.maybe("digest", 64)
    with visitor.hub.database.writing() as session:
        entry = _find(visitor, session, number)
        if entry.kind == "output":
            updated = output_check.decide(visitor.hub, session, visitor.who, entry, agreed, reason, digest)
        else:
            updated = approvals.decide(visitor.hub, session, visitor.who, entry, agreed, reason, days)
    message = {"granted": "Granted.", "denied": "Denied."}.get(
        updated.state, "Your agreement counts. It needs another one."
    )
    return go(request, f"/requests/{number}", said=message)


@router.post("/requests/{number}/comment")
def comment(request: Request, number: int, visitor: SignedIn, sent: Sent) -> Response:
    """Add a comment."""
    with visitor.hub.database.writing() as session:
        approvals.comment(
            visitor.hub, session, visitor.who, _find(visitor, session, number), sent.text("text", "Comment", 4000)
        )
    return go(request, f"/requests/{number}#comments")


@router.post("/requests/{number}/withdraw")
def withdraw(request: Request, number: int, visitor: SignedIn) -> Response:
    """Withdraw one's own request."""
    with visitor.hub.database.writing() as session:
        approvals.withdraw(visitor.hub, session, visitor.who, _find(visitor, session, number))
    return go(request, f"/requests/{number}", said="Withdrawn.")


@router.post("/requests/{number}/revoke")
def revoke(request: Request, number: int, visitor: SignedIn, sent: Sent) -> Response:
    """Revoke a grant."""
    with visitor.hub.database.writing() as session:
        entry = _find(visitor, session, number)
        approvals.revoke(visitor.hub, session, visitor.who, entry, sent.text("reason", "Reason", 4000))
    return go(request, f"/requests/{number}", said="Revoked.")


def _find(visitor: Visitor, session: Session, number: int) -> models.Request:
    if not 0 < number < 2**31:
        raise NotHere("there is no such request.")
    return approvals.find(visitor.hub, session, visitor.who, number)

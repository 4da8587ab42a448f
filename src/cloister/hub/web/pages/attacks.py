"""Attack pages, for a dataset's owner: what can be attacked, what was found. For everybody else they are not here."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from sqlalchemy.orm import Session
from starlette.responses import Response

from cloister.hub.core.models import Dataset
from cloister.hub.datasets import datasets
from cloister.hub.jobs.attacks import store
from cloister.hub.web.api.tables import download
from cloister.hub.web.context import Visitor, form, go, page, signed_in
from cloister.hub.web.forms import Form
from cloister.hub.web.problems import status_of
from cloister.privacy.errors import CloisterError, NotHere

__all__ = ["router"]

router = APIRouter()
Here = Annotated[Visitor, Depends(signed_in)]
Sent = Annotated[Form, Depends(form)]


@router.get("/datasets/{name}/attacks")
def listed(request: Request, name: str, visitor: Here) -> Response:
    """Show what can be attacked, and the attacks so far."""
    return _draw(request, visitor, name)


@router.post("/datasets/{name}/attacks")
def start(request: Request, name: str, visitor: Here, sent: Sent) -> Response:
    """Start an attack."""
    with visitor.hub.database.reading() as session:
        datasets.owned(session, name, visitor.who)
    job = sent.get("job", "")
    try:
        number = store.start(visitor.hub, visitor.who, name, int(job) if job.isascii() and job.isdigit() else 0)
    except CloisterError as error:
        if status_of(error) not in (404, 409, 422):
            raise
        return _draw(request, visitor, name, error)
    return go(request, f"/datasets/{name}/attacks/{number}", said="The attack is started. Nobody else is told.")


@router.get("/datasets/{name}/attacks/{number}")
def show(request: Request, name: str, number: int, visitor: Here) -> Response:
    """Show one attack: its progress, its findings, or why it failed."""
    with visitor.hub.database.reading() as session:
        dataset = datasets.owned(session, name, visitor.who)
        known = store.find(visitor.hub, session, dataset, number)
        report = _opened(visitor, session, dataset, known)
        targets = store.targets(visitor.hub, session, dataset, visitor.who)
    return page(
        request,
        "attack.html",
        dataset=dataset,
        attack=known,
        findings=report.get("shown", []),
        target=next((one for one in targets if one.job_id == known.job_id), None),
    )


@router.post("/datasets/{name}/attacks/{number}/cancel")
def cancel(request: Request, name: str, number: int, visitor: Here) -> Response:
    """Stop an attack."""
    store.cancel(visitor.hub, visitor.who, name, number)
    return go(request, f"/datasets/{name}/attacks/{number}", said="The attack is cancelled.")


@router.post("/datasets/{name}/attacks/{number}/remove")
def remove(request: Request, name: str, number: int, visitor: Here) -> Response:
    """Delete an attack with its findings."""
    store.remove(visitor.hub, visitor.who, name, number)
    return go(request, f"/datasets/{name}/attacks", said="The attack and its findings are removed.")


@router.get("/datasets/{name}/attacks/{number}/report.html")
def as_html(name: str, number: int, visitor: Here) -> Response:
    """Return the report as one file that needs no network."""
    report = _report(visitor, name, number)
    return download(str(report["html"]).encode(), f"{_file(name, number)}.html", "text/html; charset=utf-8")


@router.get("/datasets/{name}/attacks/{number}/report.json")
def as_json(name: str, number: int, visitor: Here) -> Response:
    """Return figures and sentences of the findings."""
    text = json.dumps(_report(visitor, name, number)["json"], indent=2, ensure_ascii=False) + "\n"
    return download(text.encode(), f"{_file(name, number)}.json", "application/json")


def _opened(visitor: Visitor, session: Session, dataset: Dataset, known: store.AttackFacts) -> dict[str, Any]:
    """Return the findings of an attack; empty if it has none, or if they are not what was sealed."""
    if known.state != "done":
        return {}
    try:
        return store.report_of(visitor.hub, session, dataset, known.number)
    except CloisterError:
        return {}


def _report(visitor: Visitor, name: str, number: int) -> dict[str, object]:
    with visitor.hub.database.reading() as session:
        return store.report_of(visitor.hub, session, datasets.owned(session, name, visitor.who), number)


def _file(name: str, number: int) -> str:
    return f"cloister-{name}-attack-{number}-owner-only"


def _draw(request: Request, visitor: Visitor, name: str, problem: CloisterError | None = None) -> Response:
    with visitor.hub.database.reading() as session:
        dataset: Dataset = datasets.owned(session, name, visitor.who)
        known = store.attacks(visitor.hub, session, dataset)
        targets = store.targets(visitor.hub, session, dataset, visitor.who)
    status = 200 if problem is None else 409 if isinstance(problem, NotHere) else status_of(problem)
    under_way = next((one for one in known if one.under_way), None)
    return page(
        request, "attacks.html", status, dataset=dataset, attacks=known, targets=targets, problem=problem,
        under_way=under_way,
    )  # fmt: skip

"""Job pages: the list, one with its progress or its result, its charts, its receipt."""

from typing import Annotated, Any
from urllib.parse import quote

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Request
from sqlalchemy.orm import Session, defer
from starlette.responses import Response

from cloister.client import wire
from cloister.hub.approvals.visibility import find_job
from cloister.hub.core.models import Job
from cloister.hub.core.models import Request as Asked
from cloister.hub.jobs import gateway
from cloister.hub.jobs.authorise import DECISION, plan_for
from cloister.hub.jobs.external_tables.submission import HANDED
from cloister.hub.jobs.job_types import KINDS, Planned
from cloister.hub.jobs.queue import CHECKING, ENDED
from cloister.hub.jobs.runner import owner_detail
from cloister.hub.web import charts
from cloister.hub.web.api.jobs import model, model_name
from cloister.hub.web.api.tables import table_name
from cloister.hub.web.context import Visitor, go, page, signed_in
from cloister.hub.web.spreadsheets import csv_of_table
from cloister.hub.web.words import column_digits
from cloister.privacy.errors import CloisterError, NotHere

__all__ = ["chart_of", "draw", "router"]

router = APIRouter()
SignedIn = Annotated[Visitor, Depends(signed_in)]
_A_PAGE = 50

_STAGES = {
    "waiting": "waiting for somebody to agree",
    "queued": "waiting for a worker",
    "running": "at work",
    "charged": "charged, and looking",
    CHECKING: "others look at it before you get it",
}
_LEFT = {"train": "Model", "synthesise": "Synthetic table", "anonymise": "Anonymised table"}
_STOPPED = {
    "refused": ("Refused", "The policy or the budget did not allow this. Nothing was charged."),
    "failed": ("This did not work", "The work stopped."),
    "cancelled": ("Cancelled", "You cancelled this. Nothing was charged."),
    "interrupted": ("Interrupted", "The worker stopped after the charge. The charge stands; start a new one."),
}


@router.get("/jobs")
def listed(request: Request, visitor: SignedIn, before: int = 0) -> Response:
    """List one's own jobs, newest first."""
    mine = sa.select(Job).where(Job.person_id == visitor.who.id).options(defer(Job.plan))
    mine = mine.order_by(Job.id.desc()).limit(_A_PAGE + 1)
    if 0 < before < 2**31:
        mine = mine.where(Job.id < before)
    with visitor.hub.database.reading() as session:
        jobs = list(session.scalars(mine))
    older = jobs[_A_PAGE - 1].id if len(jobs) > _A_PAGE else 0
    titles = {kind.name: kind.title for kind in KINDS.values()}
    return page(request, "jobs.html", jobs=jobs[:_A_PAGE], before=older, later=bool(before), titles=titles)


@router.get("/jobs/{number}")
def shown(request: Request, number: int, visitor: SignedIn) -> Response:
    """Show one job."""
    with visitor.hub.database.reading() as session:
        job = find_job(session, visitor.who, number)
        request_id = session.scalar(
            sa.select(Asked.id).where(Asked.job_id == job.id).order_by(Asked.id.desc()).limit(1)
        )
    return draw(request, job, at=f"/jobs/{job.id}", asked=request_id, detail=_owner_detail(visitor, job))


def _title(job: Job) -> str:
    """Return the title of a job's type; its name if this hub no longer has the type."""
    kind = KINDS.get(job.kind)
    return job.kind if kind is None else kind.title


def draw(
    request: Request,
    job: Job,
    *,
    at: str,
    words: str = "",
    above: tuple[str, str] = ("/jobs", "Queries and jobs"),
    asked: int | None = None,
    detail: str = "",
) -> Response:
    """Render the page of a job.

    Args:
        request: the HTTP request.
        job: as the visitor may see it.
        at: the address of its files.
        words: the query string of these addresses.
        above: address and title of the parent page.
        asked: the approval request for it, if there is one.
        detail: what went wrong, for the owner only.
    """
    visitor: Visitor = request.state.visitor
    with visitor.hub.database.reading() as session:
        plan = plan_for(visitor.hub, session, visitor.who, job, visitor.environment)
        why = _why(visitor, session, job)
    kind = KINDS.get(job.kind)
    title, stopped = _STOPPED.get(job.state, ("", ""))
    result = job.result if job.state == "done" else None
    submitted, mine = bool(job.parameters.get(HANDED)), job.person_id == visitor.who.id
    name = job.dataset.title or job.dataset.name
    return page(
        request,
        kind.template if kind is not None and result is not None else "job.html",
        job=job,
        at=at,
        words=f"?{words}" if words else "",
        above=above,
        handed=submitted,
        title=f"{'Synthetic table' if submitted else _title(job)} {job.id}",
        heading=f"{_title(job)}: {name}" if result is None else f"{_LEFT.get(job.kind, 'Answer')} from {name}",
        sql=job.parameters.get("sql", ""),
        moving=job.state not in ENDED,
        stage=job.stage or _STAGES.get(job.state, ""),
        may_cancel=mine and job.state in ("waiting", "queued", "running", CHECKING) and not job.cancel,
        request_id=asked,
        planned=Planned.from_json(plan) if plan else None,
        stopped_title=title,
        stopped=stopped,
        why=why,
        mine=mine or submitted,
        owner_detail=detail,
        pictures=charts.pictures(result) if result is not None else [],
        places=_places(result),
        file=table_name(job) if job.kind in ("synthesise", "anonymise") else model_name(job),
        attacks=_attacks(visitor, job),
        again=f"/work/{job.kind}/{job.dataset.name}?job={job.id}" if mine and not submitted else "",
    )


@router.post("/jobs/{number}/cancel")
def cancel(request: Request, number: int, visitor: SignedIn) -> Response:
    """Cancel a job before it is charged."""
    job = gateway.cancel(visitor.hub, visitor.who, number)
    return go(request, f"/jobs/{job.id}", said="Cancelled." if job.state == "cancelled" else "It will stop soon.")


@router.post("/jobs/{number}/forget")
def forget(request: Request, number: int, visitor: SignedIn) -> Response:
    """Delete its result."""
    gateway.forget(visitor.hub, visitor.who, number)
    return go(request, f"/jobs/{number}", said="The result is removed. The receipt stays.")


@router.get("/jobs/{number}/chart.svg")
def chart(number: int, visitor: SignedIn, column: str = "", theme: str = "light", size: str = "wide") -> Response:
    """Return a chart of a result, drawn from what was released."""
    return chart_of(_result(visitor, number)[1], column, theme, size)


def chart_of(result: dict[str, Any], column: str, theme: str, size: str) -> Response:
    """Return a chart of one column of a result."""
    dark: charts.Theme = "dark" if theme == "dark" else "light"
    sizes: dict[str, charts.Size] = {"half": "half", "narrow": "narrow"}
    side = next((entry for entry in result.get("columns", []) if entry.get("name") == column and "bars" in entry), None)
    if side is not None:
        return _svg(charts.bars(side["bars"], dark, sizes.get(size, "half")))
    picture = next((candidate for candidate in charts.pictures(result) if column in ("", candidate.column)), None)
    if picture is None:
        raise NotHere("there is no picture of this.")
    return _svg(charts.svg(result, picture, dark, sizes.get(size, "wide")))


@router.get("/jobs/{number}/receipt")
def receipt(number: int, visitor: SignedIn) -> Response:
    """Return the signed receipt, as it was issued."""
    with visitor.hub.database.reading() as session:
        job = find_job(session, visitor.who, number, result=False)
    if not job.receipt:
        raise NotHere("there is no receipt: nothing was charged.")
    name = f"cloister-{job.dataset.name}-{job.id}.receipt.json"
    return _download(job.receipt.encode(), name, "application/json")


@router.get("/jobs/{number}/model")
def model_file(number: int, visitor: SignedIn) -> Response:
    """Return the trained model, signed."""
    return model(number, visitor)


@router.get("/jobs/{number}/label")
def label(number: int, visitor: SignedIn) -> Response:
    """Return the policy's label of the answer: what it may be used for, where and for how long."""
    job, result = _result(visitor, number)
    if "label" not in result:
        raise NotHere("this answer has no label.")
    return _download(result["label"].encode(), f"cloister-{job.dataset.name}-{job.id}.label.json", "application/json")


@router.get("/jobs/{number}/answer.csv")
def as_csv(number: int, visitor: SignedIn) -> Response:
    """Return the whole answer with its limits, for a spreadsheet."""
    job, result = _result(visitor, number)
    if "answer" not in result:
        raise NotHere("there is no table here.")
    text = csv_of_table(wire.answer_from_json(result["answer"]).value)
    return _download(text, f"cloister-{job.dataset.name}-{job.id}.csv", "text/csv; charset=utf-8")


def _result(visitor: Visitor, number: int) -> tuple[Job, dict[str, Any]]:
    with visitor.hub.database.reading() as session:
        job = find_job(session, visitor.who, number)
    if job.state != "done" or job.result is None:
        raise NotHere("there is no result here.")
    return job, job.result


def _why(visitor: Visitor, session: Session, job: Job) -> str:
    """Return the page of the decision that stopped a job, for its requester; empty if none did, or they see none."""
    decision, name = (job.plan or {}).get(DECISION), quote(job.dataset.name)
    if not decision or job.person_id != visitor.who.id or job.dataset.deleted is not None:
        return ""
    known = gateway.may_know(visitor.hub, session, visitor.who, job.dataset, visitor.environment)
    return f"/datasets/{name}/why?decision={decision}" if known else ""


def _attacks(visitor: Visitor, job: Job) -> str:
    """Return where the dataset's owner attacks what a job has left; empty for others, and where nothing is left."""
    owns = visitor.who.id == job.dataset.owner_id and job.dataset.deleted is None
    return (
        f"/datasets/{quote(job.dataset.name)}/attacks#job-{job.id}"
        if owns and job.kind in _LEFT and job.state == "done"
        else ""
    )


def _places(result: dict[str, Any] | None) -> list[int | None]:
    """Return the decimals for each column of a table of cells."""
    rows = result.get("rows") if result is not None else None
    if result is None or not isinstance(rows, list):
        return []
    return [column_digits(row[i] for row in rows) for i in range(len(result["columns"]))]


def _owner_detail(visitor: Visitor, job: Job) -> str:
    """Return what went wrong, decrypted for the owner alone: it may show rows."""
    if not job.owner_detail or job.dataset.owner_id != visitor.who.id:
        return ""
    try:
        return owner_detail(visitor.hub, job)
    except CloisterError:  # the dataset's key is erased, so the detail cannot be read
        return ""


def _svg(text: str) -> Response:
    return Response(text, media_type="image/svg+xml")


def _download(content: bytes, name: str, kind: str) -> Response:
    return Response(content, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})

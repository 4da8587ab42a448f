"""Pages to run a job on a dataset: the form of its type, its plan, then the run.

The plan is made from public facts and costs nothing. The job runs exactly as planned: the button below a plan sends the
planned values, not the current content of the form above.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.orm import Session
from starlette.responses import RedirectResponse, Response

from cloister.client.wire import loss_to_text
from cloister.data.schema import Column, Schema
from cloister.hub.core.models import Dataset, Job, SavedQuery
from cloister.hub.datasets.dataset_view import visible_dataset
from cloister.hub.jobs import limits
from cloister.hub.jobs.gateway import JobOrder
from cloister.hub.jobs.job_types import JobType, Planned, kind_of
from cloister.hub.policy import cost, decision_log
from cloister.hub.policy.anonymised import ANONYMISE
from cloister.hub.policy.decide import Verdict, decide
from cloister.hub.policy.policy import Policy
from cloister.hub.policy.purposes import offered
from cloister.hub.web.api.jobs import planned_by, submitted_by
from cloister.hub.web.context import Visitor, form, go, page, signed_in
from cloister.hub.web.forms import Form
from cloister.hub.web.problems import show, status_of, title_of, way_out
from cloister.privacy.errors import BadInput, CloisterError, Denied, HubRefused, NotHere, NotNow, Refused
from cloister.privacy.loss import Loss

__all__ = ["router"]

router = APIRouter()
_MOST_SAVED = 200


@dataclass(frozen=True, slots=True)
class Left:
    """Remaining budget: of all users, of the user where the policy limits that, and of one request now."""

    dataset: Loss
    mine: Loss | None
    now: Loss
    held: Loss | None = None  # of `mine`: the cost of jobs that wait for approval

    @property
    def affordable(self) -> str:
        """Return the largest spend of one request now, as a form takes it; empty if nothing is left."""
        return loss_to_text(self.now) if self.now.amount else ""


@dataclass(frozen=True, slots=True)
class Problem:
    """Error, shown above the form that led to it."""

    title: str
    text: str
    way_out: str
    why: str = ""


@router.get("/work/{kind}/{name}")
def begin(
    request: Request,
    kind: str,
    name: str,
    visitor: Annotated[Visitor, Depends(signed_in)],
    job: int = 0,
    saved: int = 0,
) -> Response:
    """Show the form; filled in from an earlier job or a saved query if one is named."""
    chosen = kind_of(kind)
    values = {field.name: field.default for field in chosen.fields} | {"purpose": ""}
    with visitor.hub.database.reading() as session:
        before = session.get(Job, job) if 0 < job < 2**31 else None
        if before is not None and before.person_id == visitor.who.id:
            values |= {key: str(value) for key, value in before.parameters.items() if key in values}
            values["purpose"] = before.purpose
            if "within" in before.parameters:
                values["spend"] = ""
        elif saved:
            values["sql"] = _saved(session, visitor, saved).sql
    return _draw(request, visitor, chosen, name, values, fresh=not job)


@router.post("/work/{kind}/{name}")
async def work(
    request: Request,
    kind: str,
    name: str,
    visitor: Annotated[Visitor, Depends(signed_in)],
    sent: Annotated[Form, Depends(form)],
) -> Response:
    """Plan, or run what was planned."""
    chosen = kind_of(kind)
    purpose = sent.get("purpose", "")
    values = {field.name: sent.get(field.name, "") for field in chosen.fields}
    form_values = {**values, "purpose": purpose}
    order = JobOrder(name, kind, values, purpose, visitor.environment)
    try:
        if sent.get("action") == "run":
            job = await submitted_by(request, visitor, order)
            return go(request, f"/jobs/{job.id}")
        planned = await planned_by(request, visitor, order)
    except NotHere:
        raise
    except (BadInput, Refused, HubRefused) as refusal:
        why = _decided(name, getattr(refusal, "decision", 0))
        return await run_in_threadpool(_draw, request, visitor, chosen, name, form_values, problem=refusal, why=why)
    return await run_in_threadpool(_draw, request, visitor, chosen, name, form_values, planned=planned)


@router.get("/datasets/{name}/query")
@router.get("/datasets/{name}/profile")
@router.get("/datasets/{name}/train")
@router.get("/datasets/{name}/predict")
@router.get("/datasets/{name}/synthesise")
@router.get("/datasets/{name}/anonymise")
def shorter(request: Request, name: str, visitor: Annotated[Visitor, Depends(signed_in)]) -> Response:
    """Redirect to the same pages from the dataset's address."""
    with visitor.hub.database.reading() as session:
        dataset = visible_dataset(visitor.hub, session, visitor.who, name, visitor.environment).dataset
    return RedirectResponse(f"/work/{request.url.path.rpartition('/')[2]}/{dataset.name}", 303)


# Saved queries.


@router.post("/work/query/{name}/saved")
def keep(
    request: Request,
    name: str,
    visitor: Annotated[Visitor, Depends(signed_in)],
    sent: Annotated[Form, Depends(form)],
) -> Response:
    """Save a query under a name."""
    title, sql = sent.text("name", "Its name", most=200), sent.text("sql", "Question", most=20_000)
    with visitor.hub.database.writing() as session:
        dataset = visible_dataset(visitor.hub, session, visitor.who, name, visitor.environment).dataset
        mine = sa.select(sa.func.count()).select_from(SavedQuery).where(SavedQuery.person_id == visitor.who.id)
        if (session.scalar(mine) or 0) >= _MOST_SAVED:
            raise NotNow(f"you keep {_MOST_SAVED} questions already. Forget one first.")
        query = SavedQuery(person_id=visitor.who.id, dataset_id=dataset.id, name=title, sql=sql)
        session.add(query)
        session.flush()
    return go(request, f"/work/query/{name}?saved={query.id}", said=f"Saved as “{title}”.")


@router.post("/work/query/{name}/saved/{number}/forget")
def forget(request: Request, name: str, number: int, visitor: Annotated[Visitor, Depends(signed_in)]) -> Response:
    """Delete a saved query."""
    with visitor.hub.database.writing() as session:
        session.delete(_saved(session, visitor, number))
    return go(request, f"/work/query/{name}", said="Forgotten.")


def _saved(session: Session, visitor: Visitor, number: int) -> SavedQuery:
    query = session.get(SavedQuery, number) if 0 < number < 2**31 else None
    if query is None or query.person_id != visitor.who.id:
        raise NotHere("you have kept no such question.")
    return query


# The page.


def _decided(name: str, decision: int) -> str:
    """Return the page that explains a decision; empty if none was made."""
    return f"/datasets/{name}/why?decision={decision}" if decision else ""


def _turned_away(request: Request, visitor: Visitor, kind: JobType, name: str, verdict: Verdict) -> Response:
    try:
        decision_log.require(visitor.hub, visitor.who, name, verdict, kind=kind.name, cost=None)
    except Denied as refusal:
        text, why = str(refusal).removeprefix(f"{refusal.code}: "), _decided(name, refusal.decision)
        return show(request, status_of(refusal), text, refusal.way_out, refusal.code, why=why)
    raise AssertionError("this verdict allows it")


def _draw(
    request: Request,
    visitor: Visitor,
    kind: JobType,
    name: str,
    values: Mapping[str, str],
    planned: Planned | None = None,
    problem: CloisterError | None = None,
    why: str = "",
    *,
    fresh: bool = False,
) -> Response:
    with visitor.hub.database.reading() as session:
        sight = visible_dataset(visitor.hub, session, visitor.who, name, visitor.environment)
    verdict = sight.verdict
    if verdict is not None and not verdict.allowed:
        return _turned_away(request, visitor, kind, sight.dataset.name, verdict)
    if sight.policy is None or sight.schema is None or sight.subject is None:
        raise NotNow("there are no tables here that you could work with yet.")
    stated = list(offered(sight.policy.purposes))
    allowed = sight.purposes(kind.operation)
    if allowed:  # only operations that would not be refused are offered
        stated = [purpose for purpose in stated if purpose.name in allowed]
    elif problem is None and not sight.dataset.paused:
        first = values.get("purpose") or stated[0].name
        verdict = decide(sight.policy, sight.number, sight.subject, kind.operation, first, visitor.environment)
        return _turned_away(request, visitor, kind, sight.dataset.name, verdict)
    if fresh and kind.operation == ANONYMISE:  # what the policy asks at least is what most people want
        values = {**values, "models": sight.policy.anonymised.models}
    with visitor.hub.database.reading() as session:
        left = _left(session, visitor, sight.dataset, sight.policy) if planned is not None else None
        saved, history = _earlier(session, visitor, sight.dataset, kind)
    return page(
        request,
        "work.html",
        200 if problem is None else status_of(problem),
        kind=kind,
        dataset=sight.dataset,
        words=_words(sight.schema),
        tables=[table.name for table in sight.schema.tables.values() if not table.public],
        purposes=[(purpose.name, purpose.title) for purpose in stated],
        values=values,
        planned=planned,
        needs=_needs(sight.policy, planned),
        asks=sight.policy.anonymised.sentence if kind.operation == ANONYMISE else "",
        left=left,
        affordable="" if left is None else left.affordable,
        problem=None if problem is None else _problem(problem, why),
        blocked_why=_decided(sight.dataset.name, planned.decision) if planned is not None else "",
        saved=saved,
        history=history,
    )


def _earlier(
    session: Session, visitor: Visitor, dataset: Dataset, kind: JobType
) -> tuple[Sequence[SavedQuery], Sequence[Job]]:
    """Return the saved queries of this user on this dataset, and their last jobs of this kind."""
    queries = sa.select(SavedQuery).where(SavedQuery.person_id == visitor.who.id, SavedQuery.dataset_id == dataset.id)
    before = sa.select(Job).where(Job.person_id == visitor.who.id, Job.dataset_id == dataset.id, Job.kind == kind.name)
    saved = session.scalars(queries.order_by(SavedQuery.name).limit(30)).all() if kind.name == "query" else []
    return saved, session.scalars(before.order_by(Job.id.desc()).limit(8)).all()


def _needs(policy: Policy, planned: Planned | None) -> int:
    """Return the number of approvals that the policy requires for a plan."""
    return cost.needs(policy, planned.loss) if planned is not None and planned.loss.amount else 0


def _problem(error: CloisterError, why: str) -> Problem:
    text = str(error).removeprefix(f"{error.code}: ")
    return Problem(title_of(status_of(error)), text, way_out(error), why)


def _left(session: Session, visitor: Visitor, dataset: Dataset, policy: Policy) -> Left:
    left = visitor.hub.ledger.balance(dataset.name).left
    now = limits.room(session, limits.Payer(dataset, visitor.who.id, policy, visitor.hub.ledger))
    if policy.budget.per_user is None:
        return Left(left, None, now)
    cap = cost.cap(policy.budget.per_user)
    spent = limits.spent_by(session, dataset, visitor.who.id, cap, visitor.hub.ledger)
    nothing = Loss.nothing(cap.measure, cap.relation)
    reserved = sum(limits.waiting(session, dataset, visitor.who.id).values(), start=nothing)
    return Left(left, cap - spent if spent <= cap else nothing, now, reserved if reserved.amount else None)


def _words(schema: Schema) -> dict[str, dict[str, Any]]:
    """Return the editor's suggestions and the page's list: tables, columns, and their public facts."""
    return {
        table.name: {column.name: _about(column) for column in table.columns.values()}
        for table in schema.tables.values()
    }


def _about(column: Column) -> str:
    if column.categories is not None:
        listed = ", ".join(str(category) for category in column.categories[:3])
        more = len(column.categories) - 3
        return f"{column.type}: {listed}" + (f" and {more} more" if more > 0 else "")
    if column.bounds is not None:
        low, high = column.bounds
        number = isinstance(low, int | float)
        return f"{column.type}, {low:,g} to {high:,g}" if number else f"{column.type}, {low} to {high}"
    return column.type

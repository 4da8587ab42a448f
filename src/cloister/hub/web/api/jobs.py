"""Job API: plan, submit, wait, cancel, fetch the receipt."""

import asyncio
import base64
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field, field_validator
from sqlalchemy.orm import defer
from starlette.responses import Response

from cloister.hub.approvals.visibility import result_text
from cloister.hub.core.models import Job
from cloister.hub.jobs import gateway
from cloister.hub.jobs.authorise import plan_for
from cloister.hub.jobs.job_types import Planned
from cloister.hub.jobs.planner import Planner, PlanRequest
from cloister.hub.jobs.queue import CHECKING, ENDED
from cloister.hub.web.context import Visitor, scoped
from cloister.hub.web.security import give_turn, take_turn
from cloister.privacy.errors import NotHere

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["router"]

router = APIRouter(tags=["work"])
MayRead = Annotated[Visitor, Depends(scoped("read"))]
MayWork = Annotated[Visitor, Depends(scoped("work"))]

_LONGEST_WAIT_S = 30.0
_POLL_S = 0.03
_A_PAGE = 100


class JobBody(BaseModel):
    """Job to plan or to run."""

    model_config = ConfigDict(extra="forbid")
    kind: str = Field(
        "query", max_length=40, description="query, profile, train, synthesise, anonymise, or another that is offered"
    )
    form: dict[str, Any] = Field(description="the fields of the kind, such as sql and spend")
    purpose: str = Field("", max_length=200, description="what the result is for, in the words of the policy")

    @field_validator("form")
    @classmethod
    def _flat(cls, form: dict[str, Any]) -> dict[str, Any]:
        """Refuse nested fields: every field is a word, a number, or a list of them."""
        plain = (str, int, float, bool, type(None))
        for value in form.values():
            if not all(isinstance(item, plain) for item in (value if isinstance(value, list) else [value])):
                raise ValueError("a field is text, a number or a list of these")
        return form

    def order(self, dataset: str, visitor: Visitor) -> gateway.JobOrder:
        """Return the request for the gateway."""
        return gateway.JobOrder(dataset, self.kind, self.form, self.purpose, visitor.environment)


class PlanFacts(BaseModel):
    """Cost of a job, and the expected error of its answer."""

    loss: dict[str, str] | None = Field(description="what the dataset's account pays")
    own: dict[str, str] = Field(description="what the person's account pays")
    lines: list[str]
    errors: list[tuple[str, str]] = Field(description="each answer, with the error to expect")
    statements: list[str] = Field(
        description="the SQL that the engine will run; empty unless one sees the tables whole"
    )
    notes: list[str]
    blocked: str = Field("", description="why it cannot run as things stand; empty if it can")


class JobFacts(BaseModel):
    """Facts of a job."""

    id: int
    kind: str
    dataset: str
    person: str = Field(description="who asked")
    purpose: str
    state: str = Field(
        description="waiting, queued, running, charged, checking; done, refused, failed, cancelled or interrupted"
    )
    progress: float
    stage: str
    problem: str
    created: float
    started: float | None
    finished: float | None
    policy: int = Field(description="the version of the policy that decided last")
    loss: dict[str, str] | None = Field(description="what it cost the dataset")
    plan: dict[str, Any] | None = None
    parameters: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    receipts: list[str] = []


class JobList(BaseModel):
    """Jobs, newest first, without their results."""

    jobs: list[JobFacts]
    before: int | None = Field(description="ask for this to see older ones")


# Asking


@router.post("/api/datasets/{name}/plan")
async def plan(request: Request, name: str, asked: JobBody, visitor: MayWork) -> PlanFacts:
    """Return the cost of a job. Planning costs nothing."""
    planned = await planned_by(request, visitor, asked.order(name, visitor))
    return PlanFacts(**planned.to_json())


@router.post("/api/datasets/{name}/jobs", status_code=202, response_model=JobFacts)
async def submit(request: Request, name: str, asked: JobBody, visitor: MayWork) -> Response:
    """Submit a job. It is queued, or waits for approval."""
    job = await submitted_by(request, visitor, asked.order(name, visitor))
    return await run_in_threadpool(_found, visitor, job.id, 202)


async def planned_by(request: Request, visitor: Visitor, order: gateway.JobOrder) -> Planned:
    """Return the plan of a job, made in a child process if the hub is served."""
    return await run_in_threadpool(
        gateway.plan, visitor.hub, visitor.who, order, await _passed(request, visitor, order)
    )


async def submitted_by(request: Request, visitor: Visitor, order: gateway.JobOrder) -> Job:
    """Queue a job, planned in a child process if the hub is served."""
    return await run_in_threadpool(
        gateway.submit, visitor.hub, visitor.who, order, await _passed(request, visitor, order)
    )


async def _passed(request: Request, visitor: Visitor, order: gateway.JobOrder) -> gateway.Passed | None:
    planner: Planner | None = getattr(request.app.state, "planner", None)
    if planner is None:  # an application without a server plans by itself
        return None
    plan_request = PlanRequest(visitor.who.id, replace(order, form=dict(order.form)))
    return await planner.ask(plan_request, request.is_disconnected)


@router.post("/api/jobs/{number}/cancel", response_model=JobFacts)
def cancel(number: int, visitor: MayWork) -> Response:
    """Cancel a job before it is charged. After the charge it is too late: the charge stands."""
    gateway.cancel(visitor.hub, visitor.who, number)
    return _found(visitor, number)


# Looking


@router.get("/api/jobs/{number}", response_model=JobFacts)
async def show(
    request: Request,
    number: int,
    visitor: MayRead,
    wait: Annotated[float, Query(ge=0, le=_LONGEST_WAIT_S, description="how many seconds to wait for its end")] = 0.0,
) -> Response:
    """Return a job: one's own with its result, or one on one's own dataset without."""
    if wait and await run_in_threadpool(_state, visitor, number) not in (*ENDED, "waiting", CHECKING):
        give_turn(request)  # waiting takes no thread and no memory; the result is loaded under a turn
        await _waiters(request, visitor.hub).ended(number, wait)
        await take_turn(request, visitor.key)
    return await run_in_threadpool(_found, visitor, number)


@router.get("/api/jobs")
def mine(visitor: MayRead, before: Annotated[int | None, Query(ge=1, lt=2**31)] = None) -> JobList:
    """Return one's own jobs."""
    return _listed(visitor, sa.select(Job).where(Job.person_id == visitor.who.id), before)


@router.get("/api/datasets/{name}/jobs")
def on_dataset(name: str, visitor: MayRead, before: Annotated[int | None, Query(ge=1, lt=2**31)] = None) -> JobList:
    """Return the jobs on a dataset: all of them for its owner, one's own for others."""
    with visitor.hub.database.reading() as session:
        dataset = gateway.find_dataset(visitor.hub, session, visitor.who, name, visitor.environment)
    wanted = sa.select(Job).where(Job.dataset_id == dataset.id)
    if dataset.owner_id != visitor.who.id:
        wanted = wanted.where(Job.person_id == visitor.who.id)
    return _listed(visitor, wanted, before)


@router.delete("/api/jobs/{number}/result", status_code=204)
def forget(number: int, visitor: MayWork) -> None:
    """Delete the result of one's own job. Receipt and charge stay."""
    gateway.forget(visitor.hub, visitor.who, number)


@router.get("/api/jobs/{number}/receipt", response_class=Response)
def receipt(number: int, visitor: MayRead) -> Response:
    """Return the signed receipt of a charge, as it was issued; one line for each, if there were several."""
    with visitor.hub.database.reading() as session:
        job = gateway.find_job(session, visitor.who, number, result=False)
    if not job.receipt:
        raise NotHere(f"job {number} has no receipt: nothing was charged to the dataset, or it is not done.")
    name = f"cloister-{job.dataset.name}-{number}.receipt.json"
    disposition = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(job.receipt, media_type="application/json", headers=disposition)


@router.get("/api/jobs/{number}/model", response_class=Response)
def model(number: int, visitor: MayRead) -> Response:
    """Return the trained model: JSON and arrays under the hub's signature, for `cloister.learn.load`."""
    with visitor.hub.database.reading() as session:
        job = gateway.find_job(session, visitor.who, number)
    mine = job.result if job.person_id == visitor.who.id and job.state == "done" else None
    if not mine or "model" not in mine:
        raise NotHere(f"job {number} has no model of yours.")
    disposition = {"Content-Disposition": f'attachment; filename="{model_name(job)}"'}
    content = base64.b64decode(mine["model"])
    return Response(content, media_type="application/octet-stream", headers=disposition)


def model_name(job: Job) -> str:
    """Return the file name of a model: letters and digits that every system accepts."""
    words = f"{job.dataset.name}-{job.parameters.get('target') or 'model'}-{job.id}"
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign in "-_") else "-" for sign in words) + ".model"


def _state(visitor: Visitor, number: int) -> str:
    with visitor.hub.database.reading() as session:
        return gateway.find_job(session, visitor.who, number, result=False).state


def _found(visitor: Visitor, number: int, status: int = 200) -> Response:
    """Return a job with its result, whose stored text is copied: parsing megabytes would stop all other threads."""
    with visitor.hub.database.reading() as session:
        job = gateway.find_job(session, visitor.who, number, result=False)
        mine = job.person_id == visitor.who.id
        facts = _facts(job, plan_for(visitor.hub, session, visitor.who, job, visitor.environment) if mine else None)
        result = result_text(session, job) if mine else None
    head = facts.model_dump_json(exclude={"result"}).removesuffix("}")
    return Response(f'{head},"result":{result or "null"}}}', status, media_type="application/json")


def _listed(visitor: Visitor, wanted: sa.Select[Job], before: int | None) -> JobList:
    if before is not None:
        wanted = wanted.where(Job.id < before)
    with visitor.hub.database.reading() as session:
        jobs = list(session.scalars(wanted.options(defer(Job.plan)).order_by(Job.id.desc()).limit(_A_PAGE)))
    return JobList(jobs=[_facts(job) for job in jobs], before=jobs[-1].id if len(jobs) == _A_PAGE else None)


def _facts(job: Job, plan: dict[str, Any] | None = None) -> JobFacts:
    """Return the facts of a job, without its result; with its plan and parameters if there is a plan."""
    has_plan = plan is not None
    return JobFacts(
        id=job.id,
        kind=job.kind,
        dataset=job.dataset.name,
        person=job.person.email,
        purpose=job.purpose,
        state=job.state,
        progress=job.progress,
        stage=job.stage,
        problem=job.problem,
        created=job.created,
        started=job.started,
        finished=job.finished,
        policy=job.policy_number,
        loss=job.loss,
        plan=plan,
        parameters=job.parameters if has_plan else None,
        receipts=job.receipt.splitlines() if has_plan and job.receipt else [],
    )


# Waiting


class Waiters:
    """All requests of this process that wait for a job: one database query for all of them, and no thread each.

    Args:
        hub: the hub.
    """

    def __init__(self, hub: "Hub") -> None:
        self._database = hub.database
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._pool = ThreadPoolExecutor(1, "waiters")

    async def ended(self, number: int, seconds: float) -> None:
        """Return when the job has ended, or needs an approval, or the time is over."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(number, set()).add(future)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            self._waiting.get(number, set()).discard(future)
            if not self._waiting.get(number):
                self._waiting.pop(number, None)

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            try:
                ended = await loop.run_in_executor(self._pool, self._ended, list(self._waiting))
            except sa.exc.SQLAlchemyError:  # a busy database: try again
                ended = []
            for number in ended:
                for future in self._waiting.get(number, ()):
                    if not future.done():
                        future.set_result(None)
            await asyncio.sleep(_POLL_S)

    def _ended(self, numbers: list[int]) -> list[int]:
        wanted = sa.select(Job.id).where(Job.id.in_(numbers), Job.state.in_((*ENDED, "waiting", CHECKING)))
        with self._database.reading() as session:
            return list(session.scalars(wanted))


def _waiters(request: Request, hub: "Hub") -> Waiters:
    state = request.app.state
    if not hasattr(state, "waiters"):
        state.waiters = Waiters(hub)
    waiters: Waiters = state.waiters
    return waiters

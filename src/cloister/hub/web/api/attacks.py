"""API of attacks: a dataset's owner attacks what was made from it. For everybody else there is nothing here."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from pydantic import BaseModel, ConfigDict, Field

from cloister.hub.datasets import datasets
from cloister.hub.jobs.attacks import store
from cloister.hub.web.context import Visitor, scoped

__all__ = ["router"]

router = APIRouter(tags=["datasets"])
Reader = Annotated[Visitor, Depends(scoped("read"))]
Sharer = Annotated[Visitor, Depends(scoped("share"))]
Name = Annotated[str, Path(max_length=200)]


class NewAttack(BaseModel):
    """Attack on the result of a job."""

    model_config = ConfigDict(extra="forbid")
    job: int = Field(ge=1, lt=2**31, description="the job that made it")


class TargetFacts(BaseModel):
    """Result of a job that can be attacked."""

    job: int
    kind: str = Field(description="train, synthesise or anonymise")
    title: str
    held: bool = Field(description="whether others still look at it")
    problem: str = Field(description="why it cannot be attacked; empty if it can")


class AttackState(BaseModel):
    """Attack, without its findings."""

    number: int
    job: int
    title: str
    state: str = Field(description="queued, running, done, failed, cancelled")
    progress: float
    stage: str
    created: float
    finished: float | None
    verdict: str = Field(description="what it found, in a sentence; empty until it is done")
    broken: bool = Field(description="whether a claim is refuted")
    problem: str = Field(description="why it failed, and what to do; empty if it did not")


class AttackList(BaseModel):
    """Attacks of a dataset, and what can be attacked; the newest first."""

    attacks: list[AttackState]
    targets: list[TargetFacts]


class AttackReport(BaseModel):
    """Attack with its findings, which are as secret as the rows."""

    attack: AttackState
    report: dict[str, Any] | None = Field(description="the findings; null until it is done")


@router.get("/api/datasets/{name}/attacks")
def list_attacks(visitor: Reader, name: Name) -> AttackList:
    """Return the attacks of a dataset; for its owner."""
    with visitor.hub.database.reading() as session:
        dataset = datasets.owned(session, name, visitor.who)
        known = store.attacks(visitor.hub, session, dataset)
        targets = store.targets(visitor.hub, session, dataset, visitor.who)
    return AttackList(
        attacks=[_state(one) for one in known],
        targets=[
            TargetFacts(job=one.job_id, kind=one.kind, title=one.title, held=one.held, problem=one.problem)
            for one in targets
        ],
    )


@router.post("/api/datasets/{name}/attacks", status_code=202)
def start_attack(visitor: Sharer, name: Name, given: NewAttack) -> AttackState:
    """Attack the result of a job; a worker does it. Nobody but the owner learns of it, and nothing is charged."""
    number = store.start(visitor.hub, visitor.who, name, given.job)
    return _state(_found(visitor, name, number))


@router.get("/api/datasets/{name}/attacks/{number}")
def show_attack(visitor: Reader, name: Name, number: int) -> AttackReport:
    """Return one attack, with its findings once it is done; for the owner."""
    known = _found(visitor, name, number)
    report = None
    if known.state == "done":
        with visitor.hub.database.reading() as session:
            dataset = datasets.owned(session, name, visitor.who)
            report = store.report_of(visitor.hub, session, dataset, number)["json"]
    return AttackReport(attack=_state(known), report=report)


@router.delete("/api/datasets/{name}/attacks/{number}", status_code=204)
def remove_attack(visitor: Sharer, name: Name, number: int) -> None:
    """Delete an attack with its findings; one under way is stopped."""
    store.remove(visitor.hub, visitor.who, name, number)


def _found(visitor: Visitor, name: str, number: int) -> store.AttackFacts:
    with visitor.hub.database.reading() as session:
        return store.find(visitor.hub, session, datasets.owned(session, name, visitor.who), number)


def _state(known: store.AttackFacts) -> AttackState:
    return AttackState(
        number=known.number,
        job=known.job_id,
        title=known.title,
        state=known.state,
        progress=known.progress,
        stage=known.stage,
        created=known.created,
        finished=known.finished,
        verdict=known.facts.get("verdict", ""),
        broken=known.facts.get("broken", False),
        problem=known.facts.get("problem", ""),
    )

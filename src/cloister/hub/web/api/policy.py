"""Policy API: read, publish, explain."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from cloister.hub.datasets.dataset_view import visible_dataset
from cloister.hub.datasets.datasets import owned
from cloister.hub.jobs import gateway
from cloister.hub.jobs.job_types import KINDS
from cloister.hub.policy import versions
from cloister.hub.policy.text import words
from cloister.hub.policy.text.reader import look
from cloister.hub.web.context import Visitor, scoped
from cloister.privacy.errors import NotHere

__all__ = ["router"]

router = APIRouter(tags=["policy"])


class Sentence(BaseModel):
    """Role, as far as the reader may know it."""

    name: str
    who: str
    may: str
    purposes: str
    sees: str
    by_request: bool


class PolicyAnswer(BaseModel):
    """Content of a policy."""

    dataset: str
    number: int
    purposes: list[str]
    roles: list[Sentence]
    residency: list[str]
    retention_days: int | None
    text: str | None = Field(description="the page itself; for its owner only")


class PolicyBody(BaseModel):
    """Policy text to publish."""

    text: str = Field(max_length=100_000)
    after: int | None = Field(None, ge=0, description="the version that was edited; refused if it is not the newest")
    publish: bool = Field(True, description="false: only check it")


class PublishedPolicy(BaseModel):
    """Result of publishing a policy."""

    number: int | None = Field(description="its number, if it was published")
    notes: list[str]


class Why(BaseModel):
    """Verdict with its reasons."""

    allowed: bool
    operation: str
    purpose: str
    rule: str
    policy: int
    reasons: list[str]


@router.get("/api/datasets/{name}/policy")
def read_policy(name: str, visitor: Annotated[Visitor, Depends(scoped("read"))]) -> PolicyAnswer:
    """Return the policy; its text only to its owner."""
    with visitor.hub.database.reading() as session:
        sight = visible_dataset(visitor.hub, session, visitor.who, name, visitor.environment)
        if sight.policy is None:
            raise NotHere("there is no policy that holds.")
        policy, newest = sight.policy, versions.newest(session, sight.dataset)
    reader = None if sight.mine else visitor.who.verified_email
    return PolicyAnswer(
        dataset=policy.dataset,
        number=newest.number if newest is not None else 0,
        purposes=list(policy.purposes),
        roles=[
            Sentence(name=role.name, by_request=role.by_request, **words.role_in_words(policy, role, reader))
            for role in policy.roles
        ],
        residency=list(policy.residency),
        retention_days=policy.retention_days,
        text=newest.text if sight.mine and newest is not None else None,
    )


@router.put("/api/datasets/{name}/policy")
def publish_policy(
    name: str, body: PolicyBody, visitor: Annotated[Visitor, Depends(scoped("share"))]
) -> PublishedPolicy:
    """Publish a text as the dataset's policy, or only check it."""
    operations = [kind.operation for kind in KINDS.values()]
    with visitor.hub.database.reading() as session:
        schema = versions.schema_of(visitor.hub, session, owned(session, name, visitor.who))
    reading = look(body.text, schema, operations)  # before the transaction: there is one writer at a time
    with visitor.hub.database.writing() as session:
        dataset = owned(session, name, visitor.who)
        note = versions.unverified_note(session, reading.policy)
        number = None
        if body.publish:
            number = versions.publish(visitor.hub, session, visitor.who, dataset, body.text, after=body.after)
    return PublishedPolicy(number=number, notes=[*reading.notes, *([note] if note else [])])


@router.get("/api/datasets/{name}/why")
def why(
    name: str,
    visitor: Annotated[Visitor, Depends(scoped("read"))],
    operation: Annotated[str, Query(min_length=1, max_length=80)] = "query",
    purpose: Annotated[str, Query(max_length=80)] = "",
    spend: Annotated[str, Query(max_length=80, description="what it would cost, such as rho 0.01")] = "",
) -> Why:
    """Return the policy's verdict for the caller, with every rule that was tried; with a cost, its limits too."""
    verdict = gateway.explain(visitor.hub, visitor.who, name, operation, purpose, visitor.environment, spend)
    return Why(**verdict.to_json())

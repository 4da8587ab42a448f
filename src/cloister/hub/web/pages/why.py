"""Explanation of the policy's verdict on an operation for a purpose, with every rule tried. For oneself only."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from cloister.hub.jobs import gateway
from cloister.hub.jobs.job_types import KINDS
from cloister.hub.policy import versions
from cloister.hub.policy.decide import Verdict
from cloister.hub.policy.policy import OPERATIONS
from cloister.hub.policy.purposes import PURPOSES, offered
from cloister.hub.policy.text import words
from cloister.hub.web.context import Visitor, page, signed_in
from cloister.privacy.errors import BadInput, Refused

__all__ = ["router"]

router = APIRouter()


@router.get("/datasets/{name}/why")
def why(
    request: Request,
    name: str,
    visitor: Annotated[Visitor, Depends(signed_in)],
    operation: str = "",
    purpose: str = "",
    spend: str = "",
    decision: int = 0,
) -> Response:
    """Show the verdict for the visitor: on an earlier request of theirs, or at present."""
    operation, purpose, spend = operation.strip()[:80], purpose.strip()[:80], spend.strip()[:80]
    verdict, entry, problem = None, None, None
    if decision:
        verdict, entry = gateway.recall(visitor.hub, visitor.who, name, decision, visitor.environment)
        operation, purpose = verdict.operation, verdict.purpose
    elif operation:
        try:
            verdict = gateway.explain(visitor.hub, visitor.who, name, operation, purpose, visitor.environment, spend)
        except (BadInput, Refused) as error:
            problem = error
    with visitor.hub.database.reading() as session:
        dataset = gateway.find_dataset(visitor.hub, session, visitor.who, name, visitor.environment)
        policy, number = versions.current(visitor.hub, session, dataset)
    askable = [role.name for role in policy.roles if role.by_request and operation in role.may]
    return page(
        request,
        "why.html",
        dataset=dataset,
        number=number,
        verdict=verdict,
        decided=entry,
        problem=problem,
        spend=spend,
        operation=operation or "query",
        purpose=purpose,
        operations=_operations(operation),
        purposes=_purposes(policy.purposes, purpose),
        views=_views(verdict),
        askable=askable,
    )


def _operations(chosen: str) -> list[str]:
    names = [*OPERATIONS, *(kind.operation for kind in KINDS.values()), *([chosen] if chosen else [])]
    return list(dict.fromkeys(names))


def _purposes(allowed: tuple[str, ...], chosen: str) -> list[tuple[str, str]]:
    """Return purposes, the allowed ones first; the others can be chosen to see a refusal explained."""
    first = [purpose.name for purpose in offered(allowed)]
    names = dict.fromkeys([*first, *PURPOSES, *([chosen] if chosen else [])])
    return [(name, f"{name}: {words.purpose_title(name)}" if name in PURPOSES else name) for name in names]


def _views(verdict: Verdict | None) -> list[tuple[str, str]]:
    if verdict is None or not verdict.allowed or not verdict.tried:
        return []
    if verdict.view is None:
        return [("every table", "as it is")]
    return [(name, words.view_in_words(view)) for name, view in verdict.view.items()]

"""Policy pages: for its owner an editor, a form and every version; for others its content, without names."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from sqlalchemy.orm import Session
from starlette.responses import Response

from cloister.hub.core.hub import Hub
from cloister.hub.core.models import ROLES, Dataset, Person, PolicyVersion
from cloister.hub.datasets.bounded import run_bounded
from cloister.hub.datasets.dataset_view import visible_dataset
from cloister.hub.datasets.datasets import owned
from cloister.hub.jobs.job_types import KINDS
from cloister.hub.policy import versions as published
from cloister.hub.policy.decide import Verdict
from cloister.hub.policy.policy import Policy
from cloister.hub.policy.purposes import PURPOSES
from cloister.hub.policy.text import check, form, words
from cloister.hub.policy.text.reader import look, read
from cloister.hub.web.context import Visitor, go, page, signed_in
from cloister.hub.web.context import form as sent_form
from cloister.hub.web.forms import Form
from cloister.privacy.errors import BadForm, BadInput, BadPolicy, HubRefused, NotHere, NotNow

__all__ = ["router"]

router = APIRouter()
Here = Annotated[Visitor, Depends(signed_in)]
Sent = Annotated[Form, Depends(sent_form)]
_MOST = 100_000
_TEST_S = 20.0


@dataclass(frozen=True, slots=True)
class Draft:
    """Text that an owner has typed, and the messages about it."""

    text: str
    after: int
    problem: str = ""
    notes: tuple[str, ...] = ()
    fine: bool = False
    tests: str = ""
    report: str = ""
    passed: bool = False


@router.get("/datasets/{name}/policy")
def show(request: Request, name: str, visitor: Here) -> Response:
    """Show the policy; for the owner, in an editor."""
    with visitor.hub.database.reading() as session:
        sight = visible_dataset(visitor.hub, session, visitor.who, name, visitor.environment)
        if sight.mine:
            return _draw(request, visitor, session, sight.dataset, None)
        if sight.policy is None:
            raise NotHere("there is no such dataset.")
        number = published.current(visitor.hub, session, sight.dataset)[1]
    return page(
        request,
        "policy.html",
        dataset=sight.dataset,
        owner=False,
        policy=sight.policy,
        number=number,
        roles=_roles(sight.policy, visitor.who.verified_email),
        purposes=_purposes(sight.policy),
        joins=_joins(sight.policy, sight.verdict),
    )


@router.post("/datasets/{name}/policy")
def edit(request: Request, name: str, visitor: Here, sent: Sent) -> Response:
    """Check the text as typed, run its tests, or publish it."""
    draft = Draft(sent.text("text", "Policy", _MOST), sent.number("after"), tests=sent.maybe("tests", _MOST))
    action = sent.get("action", "")
    if action == "publish":
        return _publish(request, visitor, name, draft)
    if action not in ("check", "test"):
        raise BadForm("press one of the buttons.")
    if action == "test":
        draft = _tested(visitor, name, draft)
    with visitor.hub.database.reading() as session:
        dataset = owned(session, name, visitor.who)
        return _draw(
            request,
            visitor,
            session,
            dataset,
            draft if action == "test" else _checked(visitor.hub, session, dataset, draft),
        )


@router.post("/datasets/{name}/policy/form")
def fill_in(request: Request, name: str, visitor: Here, sent: Sent) -> Response:
    """Publish the policy in the form."""
    with visitor.hub.database.reading() as session:
        dataset = owned(session, name, visitor.who)
        policy, number = published.current(visitor.hub, session, dataset)
        if sent.number("after") != number:
            raise NotNow(f"policy {number} was published meanwhile. Load the page again and edit that.")
    return _publish(request, visitor, name, Draft(form.edited(policy, sent), number))


@router.get("/datasets/{name}/policy/{number}")
def older(request: Request, name: str, number: int, visitor: Here) -> Response:
    """Show a version, and its changes."""
    with visitor.hub.database.reading() as session:
        dataset = owned(session, name, visitor.who)
        version = _version(visitor, session, dataset, number)
        before = _version(visitor, session, dataset, number - 1).text if number > 1 else ""
        maker = session.get(Person, version.made_by)
        newest = published.newest(session, dataset)
    return page(
        request,
        "policy_version.html",
        dataset=dataset,
        version=version,
        maker=maker.name if maker else "",
        newest=newest is not None and newest.number == number,
        lines=published.difference(before, version.text) if before else [],
    )


def _publish(request: Request, visitor: Visitor, name: str, draft: Draft) -> Response:
    try:
        with visitor.hub.database.reading() as session:
            schema = published.schema_of(visitor.hub, session, owned(session, name, visitor.who))
        read(draft.text, schema)  # before the transaction: there is one writer at a time
        with visitor.hub.database.writing() as session:
            dataset = owned(session, name, visitor.who)
            number = published.publish(visitor.hub, session, visitor.who, dataset, draft.text, after=draft.after)
            note = published.unverified_note(session, published.current(visitor.hub, session, dataset)[0])
    except (BadPolicy, NotNow) as error:
        refused = Draft(draft.text, draft.after, _sentence(error), tests=draft.tests)
        with visitor.hub.database.reading() as session:
            return _draw(request, visitor, session, owned(session, name, visitor.who), refused)
    message = f"Policy {number} is published and decides from now on."
    return go(request, f"/datasets/{name}/policy", said=f"{message} {note}".strip())


def _checked(hub: Hub, session: Session, dataset: Dataset, draft: Draft) -> Draft:
    try:
        reading = look(draft.text, published.schema_of(hub, session, dataset), _operations())
    except BadPolicy as error:
        return Draft(draft.text, draft.after, _sentence(error), tests=draft.tests)
    note = published.unverified_note(session, reading.policy)
    notes = (*reading.notes, note) if note else reading.notes
    return Draft(draft.text, draft.after, "", notes, True, draft.tests)


def _tested(visitor: Visitor, name: str, draft: Draft) -> Draft:
    with visitor.hub.database.reading() as session:
        schema = published.schema_text_of(visitor.hub, session, owned(session, name, visitor.who))
    if not draft.tests:
        return Draft(draft.text, draft.after, "write some tests first, in the box below the policy.")
    try:
        outcome = run_bounded(
            visitor.hub.settings, check.told, draft.text, draft.tests, schema, seconds=_TEST_S, caller=visitor.who.id
        )
    except BadPolicy as error:
        return Draft(draft.text, draft.after, _sentence(error), tests=draft.tests)
    return Draft(draft.text, draft.after, tests=draft.tests, report=outcome["report"], passed=outcome["passed"])


def _draw(request: Request, visitor: Visitor, session: Session, dataset: Dataset, draft: Draft | None) -> Response:
    newest = published.newest(session, dataset)
    policy, broken = None, ""
    try:
        policy, _ = published.current(visitor.hub, session, dataset)
    except (BadPolicy, NotHere) as error:
        broken = _sentence(error)
    number = newest.number if newest is not None else 0
    versions = [(version, session.get(Person, version.made_by)) for version in published.history(session, dataset)]
    return page(
        request,
        "policy.html",
        422 if draft is not None and draft.problem else 200,
        dataset=dataset,
        owner=True,
        policy=policy,
        broken=broken,
        number=number,
        draft=draft or Draft(newest.text if newest is not None else "", number),
        versions=versions,
        **_form_values(policy),
    )


def _form_values(policy: Policy | None) -> dict[str, Any]:
    if policy is None:
        return {
            "limits": {},
            "roles": [],
            "purposes": [],
            "joins": (),
            "vocabulary": [],
            "hub_roles": ROLES,
            "operations": (),
        }
    return {
        "limits": form.limits(policy),
        "roles": _roles(policy, None),
        "purposes": _purposes(policy),
        "joins": policy.joins,
        "vocabulary": [(purpose.name, purpose.name, purpose.title) for purpose in PURPOSES.values()],
        "hub_roles": ROLES,
        "operations": _operations(),
    }


def _roles(policy: Policy, reader: str | None) -> list[tuple[Any, dict[str, str]]]:
    return [(role, words.role_in_words(policy, role, reader)) for role in policy.roles]


def _purposes(policy: Policy) -> list[tuple[str, str]]:
    return [(name, words.purpose_title(name)) for name in policy.purposes]


def _joins(policy: Policy, verdict: Verdict | None) -> tuple[tuple[str, ...], ...] | None:
    """Return the tables that may be used together, among those that the reader sees."""
    if policy.joins is None or verdict is None or verdict.view is None:
        return policy.joins
    visible = {name.lower() for name in verdict.view}
    return tuple(line for line in policy.joins if {name.lower() for name in line} <= visible)


def _operations() -> tuple[str, ...]:
    return tuple(kind.operation for kind in KINDS.values())


def _version(visitor: Visitor, session: Session, dataset: Dataset, number: int) -> PolicyVersion:
    return published.version(visitor.hub, session, dataset, number)[1]


def _sentence(error: HubRefused | BadInput) -> str:
    text = str(error).removeprefix(f"{error.code}: ")
    return f"{text[:1].upper()}{text[1:]}"

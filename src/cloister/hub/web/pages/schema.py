"""Schema pages: public facts for every user who may see them, and the owner's editor.

Privacy: values are shown by one button only, to the owner only, and nothing is stored until every mark is confirmed.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from cloister.data.schema import ROLES, TYPES
from cloister.hub.datasets import datasets, schema_draft
from cloister.hub.datasets.dataset_view import require_schema, visible_dataset
from cloister.hub.datasets.schema_form import SchemaForm
from cloister.hub.web.context import Visitor, form, go, page, signed_in
from cloister.hub.web.forms import Form
from cloister.hub.web.problems import status_of
from cloister.privacy.errors import BadForm, BadSchema, CloisterError, SealBroken

__all__ = ["router"]

router = APIRouter()
Here = Annotated[Visitor, Depends(signed_in)]
Sent = Annotated[Form, Depends(form)]


@router.get("/datasets/{name}/schema")
def show(request: Request, name: str, visitor: Here) -> Response:
    """Show the public facts; for the owner, the editor."""
    with visitor.hub.database.reading() as session:
        sight = visible_dataset(visitor.hub, session, visitor.who, name, visitor.environment)
        text, problem = "", sight.problem
        try:
            text = datasets.latest_schema(visitor.hub, session, sight.dataset) if sight.mine else ""
        except SealBroken as error:
            problem = error
    require_schema(visitor.hub, visitor.who, sight, "schema.seen")
    if sight.mine:
        return _edit(request, visitor, name, text, problem)
    public_text = "" if sight.schema is None else sight.schema.dump()
    return page(
        request, "schema.html", dataset=sight.dataset, owns=False, schema=sight.schema, text=public_text, editor=None,
        problem=None, drafted=False, types=TYPES, roles=ROLES,
    )  # fmt: skip


@router.post("/datasets/{name}/schema")
def change(request: Request, name: str, visitor: Here, sent: Sent) -> Response:
    """Save the form or the text, or draft a schema from the files."""
    action = sent.get("action", "")
    with visitor.hub.database.reading() as session:
        dataset = datasets.owned(session, name, visitor.who)
    text = sent.get("text", "") if action == "text" else ""
    try:
        if action in ("draft", "look"):
            text = schema_draft.draft_schema(visitor.hub, visitor.who, dataset, from_values=action == "look")
            return _edit(request, visitor, name, text, drafted=True)
        if action not in ("form", "text"):
            raise BadForm("this form has no such button.")
        if action == "form":
            text = SchemaForm.of_fields(sent).text()
        datasets.examine(visitor.hub, visitor.who, schema_text=text)
        with visitor.hub.database.writing() as session:
            datasets.save_draft(visitor.hub, session, visitor.who, datasets.owned(session, name, visitor.who), text)
    except CloisterError as error:
        if status_of(error) not in (409, 413, 422):
            raise
        return _edit(request, visitor, name, text, error)
    return go(request, f"/datasets/{name}/versions", said="The schema is saved.")


def _edit(
    request: Request,
    visitor: Visitor,
    name: str,
    text: str,
    problem: CloisterError | None = None,
    drafted: bool = False,
) -> Response:
    with visitor.hub.database.reading() as session:
        dataset = datasets.owned(session, name, visitor.who)
    try:
        editor = SchemaForm.of_text(text) if text.strip() else None
    except BadSchema:  # not valid YAML: only the text can be corrected
        editor = None
    return page(
        request, "schema.html", 200 if problem is None else status_of(problem), dataset=dataset, owns=True, schema=None,
        text=text, editor=editor, problem=problem, drafted=drafted, types=TYPES, roles=ROLES,
    )  # fmt: skip

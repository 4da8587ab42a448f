"""Dataset pages: the list, a new one, one of them, and its owner's actions."""

from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from cloister.hub.core import models
from cloister.hub.datasets import datasets, ingest
from cloister.hub.datasets.dataset_view import require_schema, visible_dataset, visible_datasets
from cloister.hub.datasets.mock import mock_table
from cloister.hub.jobs import output_check
from cloister.hub.jobs.job_types import KINDS
from cloister.hub.jobs.trust_model import trust_model_of
from cloister.hub.policy.purposes import offered
from cloister.hub.web.context import Visitor, form, go, page, signed_in, with_role
from cloister.hub.web.forms import Form
from cloister.hub.web.problems import status_of
from cloister.hub.web.spreadsheets import csv_of_table
from cloister.privacy.errors import BadForm, CloisterError, NotHere

__all__ = ["POLICY", "router"]

router = APIRouter()
Here = Annotated[Visitor, Depends(signed_in)]
Owner = Annotated[Visitor, Depends(with_role("data owner"))]
Sent = Annotated[Form, Depends(form)]

# Initial policy of a new dataset: cautious, and complete.
POLICY = """dataset: visits
purposes: [health-research]
budget:
  lifetime: {epsilon: 2, delta: 1e-7}     # by everybody together, for good
  per_user: {rho: 0.02}
  per_request: {rho: 0.01}
  approvals: [{above: {rho: 0.005}, needs: 1}]
roles:
  visitors:
    who: anyone
    may: [see schema]
  analysts:
    who: {roles: [data user]}
    by_request: true
    may: [see schema, query, profile]
"""


@router.get("/datasets")
def listed(request: Request, visitor: Here) -> Response:
    """List the datasets that the visitor may see."""
    with visitor.hub.database.reading() as session:
        views = visible_datasets(visitor.hub, session, visitor.who, visitor.environment)
    return page(request, "datasets.html", sights=views)


@router.get("/datasets/new")
def begin(request: Request, visitor: Owner) -> Response:
    """Show the form for a new dataset."""
    return page(request, "dataset_new.html", values={"policy": POLICY}, problem=None)


@router.post("/datasets/new")
def create(request: Request, visitor: Owner, sent: Sent) -> Response:
    """Create a dataset; its tables come next."""
    values = {name: sent.get(name, "") for name in ("name", "title", "about", "policy")}
    try:
        datasets.examine(visitor.hub, visitor.who, policy_text=values["policy"])
        with visitor.hub.database.writing() as session:
            dataset = datasets.create(
                visitor.hub,
                session,
                visitor.who,
                name=values["name"].strip(),
                title=values["title"].strip(),
                about=values["about"].strip(),
                policy_text=values["policy"],
                schema_text="",
            )
    except CloisterError as error:
        if status_of(error) >= 500:
            raise
        return page(request, "dataset_new.html", status_of(error), values=values, problem=error)
    return go(request, f"/datasets/{dataset.name}/versions", said="The dataset is made. Now send its tables.")


@router.get("/datasets/{name}")
def show(request: Request, name: str, visitor: Here) -> Response:
    """Show a dataset: its public facts, its trust model, the possible actions."""
    with visitor.hub.database.reading() as session:
        sight = visible_dataset(visitor.hub, session, visitor.who, name, visitor.environment)
        versions = datasets.versions(session, sight.dataset) if sight.mine else []
        releases = output_check.earlier_releases(visitor.hub, session, sight.dataset) if sight.mine else []
        open_request = sa.select(models.Request).where(
            models.Request.kind == "access",
            models.Request.state == "open",
            models.Request.dataset_id == sight.dataset.id,
            models.Request.person_id == visitor.who.id,
        )
        waiting = session.scalars(open_request.order_by(models.Request.id).limit(1)).first()
    newest = sight.version if sight.mine else None  # only the owner may know which rows do not fit
    fit = None if newest is None else ingest.fit_of_version(visitor.hub, sight.dataset, newest)
    visitor.hub.audit.record(visitor.who.id, "dataset.seen", f"dataset/{name}")
    account = visitor.hub.ledger.account(name)
    cap, left = account.rules.cap, account.left
    return page(
        request,
        "dataset.html",
        fit=fit,
        sight=sight,
        dataset=sight.dataset,
        schema=sight.schema,
        versions=versions,
        releases=releases,
        kinds=[kind for kind in KINDS.values() if sight.purposes(kind.operation)],
        refused=[kind for kind in KINDS.values() if not sight.purposes(kind.operation)],
        waiting=waiting,
        place=trust_model_of(sight.dataset.trust),
        purposes=offered(sight.policy.purposes) if sight.policy else (),
        left=left,
        gone=float(1 - left.amount / cap.amount) if cap.amount else 1.0,
    )


@router.get("/datasets/{name}/mock/{table}")
def mock(name: str, table: str, visitor: Here, rows: int = 1000) -> Response:
    """Return mock rows as a CSV file."""
    with visitor.hub.database.reading() as session:
        sight = visible_dataset(visitor.hub, session, visitor.who, name, visitor.environment)
    require_schema(visitor.hub, visitor.who, sight, "mock.made")
    schema = sight.schema
    if schema is None or table not in schema.tables:
        raise NotHere("there is no such table.")
    if not 1 <= rows <= 100_000:
        raise BadForm("rows: between 1 and 100,000.")
    safe = "".join(sign for sign in table if sign.isascii() and (sign.isalnum() or sign in "-_")) or "table"
    named = {"Content-Disposition": f'attachment; filename="{safe}-invented.csv"'}
    return Response(csv_of_table(mock_table(schema, table, rows)), media_type="text/csv", headers=named)


@router.post("/datasets/{name}/pause")
def pause(request: Request, name: str, visitor: Here, sent: Sent) -> Response:
    """Pause or resume a dataset."""
    paused = sent.ticked("paused")
    with visitor.hub.database.writing() as session:
        datasets.pause(visitor.hub, session, visitor.who, datasets.owned(session, name, visitor.who), paused)
    return go(request, f"/datasets/{name}", said="No job on it begins now." if paused else "Work may begin again.")


@router.post("/datasets/{name}/delete")
def delete(request: Request, name: str, visitor: Here, sent: Sent) -> Response:
    """Shred a dataset, if its name was typed."""
    with visitor.hub.database.writing() as session:
        dataset = datasets.owned(session, name, visitor.who)
        if sent.text("confirm", "Its name, to confirm") != dataset.name:
            raise BadForm("Type the dataset's name to confirm that it is to be deleted for good.")
        datasets.delete(visitor.hub, session, visitor.who, dataset)
    return go(request, "/datasets", said=f"{name} is shredded: its key is erased and its files are gone.")

"""Version pages of a dataset, for its owner: uploads, connections, preparation.

With scripts a file is sent in pieces, with a progress bar, and resumed after an interruption (upload.js). Without them
a small file is sent with the form, kept in memory, and sealed before it is written to a disk.
"""

from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.orm import Session
from starlette.responses import Response

from cloister.hub.core.models import Dataset, Upload
from cloister.hub.datasets import datasets, ingest, schema_draft, upload
from cloister.hub.web.context import Visitor, form, go, page, signed_in
from cloister.hub.web.forms import Form
from cloister.hub.web.problems import status_of
from cloister.privacy.errors import BadForm, CloisterError, NotHere, SealBroken

__all__ = ["router"]

router = APIRouter()
Here = Annotated[Visitor, Depends(signed_in)]
Sent = Annotated[Form, Depends(form)]


@router.get("/datasets/{name}/versions")
def show(request: Request, name: str, visitor: Here) -> Response:
    """Show versions, uploads, and how to send more."""
    return _draw(request, visitor, name)


@router.post("/datasets/{name}/versions")
def make(request: Request, name: str, visitor: Here, sent: Sent) -> Response:
    """Create a version, from the waiting files or from an address."""
    address = sent.maybe("address")
    try:
        link = datasets.examine_version(visitor.hub, visitor.who, name, address=address)
        with visitor.hub.database.writing() as session:
            dataset = datasets.owned(session, name, visitor.who)
            sent_in = (
                {}
                if link
                else {table: upload_row.id for table, upload_row in schema_draft.waiting(session, dataset).items()}
            )
            datasets.new_version(visitor.hub, session, visitor.who, dataset, uploads=sent_in, link=link)
    except CloisterError as error:
        return _again(request, visitor, name, error)
    return go(request, f"/datasets/{name}/versions", said="The version is being prepared.")


@router.post("/datasets/{name}/versions/files")
async def send(request: Request, name: str, visitor: Here) -> Response:
    """Store a small file sent with the form. It is read only after its sender's right is checked."""
    await run_in_threadpool(_require_providable, visitor, name)
    try:
        return await run_in_threadpool(_taken, request, visitor, name, await form(request))
    finally:
        await request.close()  # a file that was refused unread, too


def _require_providable(visitor: Visitor, name: str) -> None:
    with visitor.hub.database.reading() as session:
        _providable(session, name, visitor)


def _taken(request: Request, visitor: Visitor, name: str, sent: Form) -> Response:
    try:
        with visitor.hub.database.writing() as session:
            dataset = _providable(session, name, visitor)
            file = sent.file("file")
            if file is None or not file.filename:
                raise BadForm("'File' is missing.")
            with file.file as opened:
                data = opened.read()
            table = sent.maybe("table") or file.filename.rpartition("/")[2].partition(".")[0]
            upload_row = upload.begin(
                visitor.hub, session, visitor.who, dataset, table=table, file=file.filename, size=len(data)
            )
        for at in range(0, len(data), upload.LARGEST_PIECE):
            upload.receive(visitor.hub, visitor.who, upload_row.id, at, data[at : at + upload.LARGEST_PIECE])
    except CloisterError as error:
        return _again(request, visitor, name, error)
    return go(request, f"/datasets/{name}/versions", said=f"{upload_row.file} is here, sealed.")


@router.post("/datasets/{name}/versions/files/{upload_id}/cancel")
def cancel(request: Request, name: str, upload_id: str, visitor: Here) -> Response:
    """Cancel an upload."""
    with visitor.hub.database.writing() as session:
        upload.cancel(visitor.hub, session, visitor.who, upload_id)
    return go(request, f"/datasets/{name}/versions", said="The file is deleted.")


@router.post("/datasets/{name}/versions/{number}/retry")
def retry(request: Request, name: str, number: int, visitor: Here) -> Response:
    """Prepare a failed version again."""
    with visitor.hub.database.writing() as session:
        datasets.retry(visitor.hub, session, visitor.who, datasets.owned(session, name, visitor.who), number)
    return go(request, f"/datasets/{name}/versions", said="The version is being prepared.")


def _providable(session: Session, name: str, visitor: Visitor) -> Dataset:
    dataset = datasets.find(session, name)
    if not upload.may_provide(visitor.who, dataset):
        raise NotHere("there is no such dataset.")
    return dataset


def _again(request: Request, visitor: Visitor, name: str, error: CloisterError) -> Response:
    if status_of(error) not in (409, 413, 422):
        raise error
    return _draw(request, visitor, name, error)


def _draw(request: Request, visitor: Visitor, name: str, problem: CloisterError | None = None) -> Response:
    with visitor.hub.database.reading() as session:
        dataset = _providable(session, name, visitor)
        mine = dataset.owner_id == visitor.who.id
        wanted = sa.select(Upload).where(Upload.dataset_id == dataset.id, Upload.state.in_(("open", "complete")))
        if not mine:
            wanted = wanted.where(Upload.person_id == visitor.who.id)
        files = list(session.scalars(wanted.order_by(Upload.created)))
        versions = datasets.versions(session, dataset) if mine else []
        try:
            schema = datasets.latest_schema(visitor.hub, session, dataset) if mine else ""
        except SealBroken as error:
            schema, problem = "", problem or error
    fits = {
        version.number: ingest.fit_of_version(visitor.hub, dataset, version)
        for version in versions
        if version.state == "ready"
    }
    organisation = dataset.organisation.name if dataset.organisation else ""
    return page(
        request,
        "versions.html",
        200 if problem is None else status_of(problem),
        dataset=dataset,
        owns=mine,
        versions=versions,
        fits=fits,
        files=files,
        has_schema=bool(schema),
        problem=problem,
        endings=",".join(upload.ENDINGS),
        hosts=visitor.hub.settings.hosts_of(organisation) if mine else [],
        folders=visitor.hub.settings.folders_of(organisation) if mine else [],
        limit_gb=visitor.hub.settings.upload_gb,
    )

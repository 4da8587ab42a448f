"""Upload API, for programs and for upload.js: announce, send piece by piece, resume, cancel."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from cloister.hub.core.models import Upload
from cloister.hub.datasets import datasets, upload
from cloister.hub.web.context import Visitor, scoped
from cloister.privacy.errors import UploadRefused

__all__ = ["router"]

router = APIRouter(tags=["uploads"])
Reader = Annotated[Visitor, Depends(scoped("read"))]
Sharer = Annotated[Visitor, Depends(scoped("share"))]
Id = Annotated[str, Path(max_length=64)]


class NewUpload(BaseModel):
    """File to be uploaded."""

    table: str = Field(max_length=200, description="which table it holds")
    file: str = Field(max_length=200, description="its name; the ending tells its form")
    size: int = Field(ge=0, le=2**50, description="in bytes")


class UploadFacts(BaseModel):
    """Progress of an upload."""

    id: str
    table: str
    file: str
    size: int
    received: int = Field(description="where to go on")
    state: str = Field(description="open, complete, used, cancelled")
    piece: int = Field(description="the most bytes one piece may have")


@router.post("/api/datasets/{name}/uploads", status_code=201)
def begin(visitor: Sharer, name: Annotated[str, Path(max_length=200)], given: NewUpload) -> UploadFacts:
    """Announce a file."""
    with visitor.hub.database.writing() as session:
        dataset = datasets.find(session, name)
        upload_row = upload.begin(
            visitor.hub, session, visitor.who, dataset, table=given.table, file=given.file, size=given.size
        )
        return _facts(upload_row)


@router.get("/api/uploads/{upload_id}")
def show(visitor: Reader, upload_id: Id) -> UploadFacts:
    """Return the progress of an upload."""
    with visitor.hub.database.reading() as session:
        return _facts(upload.find(session, visitor.who, upload_id)[0])


@router.put(
    "/api/uploads/{upload_id}",
    openapi_extra={"requestBody": {"content": {"application/octet-stream": {"schema": {"format": "binary"}}}}},
)
async def receive(
    request: Request, visitor: Sharer, upload_id: Id, offset: Annotated[int, Query(ge=0, le=2**50)]
) -> UploadFacts:
    """Store the next piece: the bytes from `offset` on. A wrong offset is answered with the right one (409)."""
    await run_in_threadpool(_require_mine, visitor, upload_id)  # before a piece is held in memory
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > upload.LARGEST_PIECE:
            raise UploadRefused(f"the piece is longer than {upload.LARGEST_PIECE} bytes.")
        pieces.append(piece)
    return _facts(
        await run_in_threadpool(upload.receive, visitor.hub, visitor.who, upload_id, offset, b"".join(pieces))
    )


def _require_mine(visitor: Visitor, upload_id: str) -> None:
    with visitor.hub.database.reading() as session:
        upload.find(session, visitor.who, upload_id)


@router.delete("/api/uploads/{upload_id}")
def cancel(visitor: Sharer, upload_id: Id) -> UploadFacts:
    """Cancel an upload."""
    with visitor.hub.database.writing() as session:
        return _facts(upload.cancel(visitor.hub, session, visitor.who, upload_id))


def _facts(upload_row: Upload) -> UploadFacts:
    return UploadFacts(
        id=upload_row.id,
        table=upload_row.table,
        file=upload_row.file,
        size=upload_row.size,
        received=upload_row.received,
        state=upload_row.state,
        piece=upload.LARGEST_PIECE,
    )

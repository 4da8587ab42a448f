"""API of synthetic and anonymised tables: their rows, for the user who requested them."""

import base64
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.responses import Response

from cloister.hub.core.models import Job
from cloister.hub.jobs import gateway
from cloister.hub.web.context import Visitor, scoped
from cloister.privacy.errors import NotHere

__all__ = ["download", "made", "router", "table_name"]

router = APIRouter(tags=["work"])
MayRead = Annotated[Visitor, Depends(scoped("read"))]


@router.get("/api/jobs/{number}/table", response_class=Response)
def table(number: int, visitor: MayRead) -> Response:
    """Return the synthetic or anonymised table as Parquet. Its metadata file is `result.side` of the job."""
    job, result = made(visitor, number)
    content = base64.b64decode(result["file"])
    return download(content, f"{table_name(job)}.parquet", "application/vnd.apache.parquet")


def made(visitor: Visitor, number: int) -> tuple[Job, dict[str, Any]]:
    """Return one's own job that made a table, and its result."""
    with visitor.hub.database.reading() as session:
        job = gateway.find_job(session, visitor.who, number)
    mine = job.result if job.person_id == visitor.who.id and job.state == "done" else None
    if not mine or "file" not in mine:
        raise NotHere(f"job {number} has no table of yours.")
    return job, mine


def table_name(job: Job) -> str:
    """Return the file name of a table: letters and digits that every system accepts."""
    words = f"{job.dataset.name}-{'anonymised' if job.kind == 'anonymise' else 'synthetic'}-{job.id}"
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign in "-_") else "-" for sign in words)


def download(content: bytes, name: str, kind: str) -> Response:
    """Return a file as a download."""
    return Response(content, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})

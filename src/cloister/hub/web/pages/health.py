"""Whether the hub works: for a load balancer, a compose file, or a worried operator. It names no person and no data."""

from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import JSONResponse, Response

from cloister.hub.database import now
from cloister.hub.hub import Hub
from cloister.hub.models import Job
from cloister.hub.operate import metrics
from cloister.hub.web.context import Visitor, visitor
from cloister.privacy.errors import CloisterError
from cloister.version import __version__

__all__ = ["router"]

router = APIRouter()
_PATIENCE_S = 120  # how long a job may wait before we say that nobody works


@router.get("/health")
def health(here: Annotated[Visitor, Depends(visitor)]) -> JSONResponse:
    """The state of database, ledger and workers; 503 if one of the first two fails."""
    database, jobs = _database(here.hub)
    parts = {"database": database, "ledger": _ledger(here.hub), "workers": jobs}
    well = parts["database"] == "ok" and parts["ledger"] == "ok"
    return JSONResponse({"state": "ok" if well else "failing", "version": __version__, **parts}, 200 if well else 503)


@router.get("/metrics")
def numbers(request: Request, here: Annotated[Visitor, Depends(visitor)]) -> Response:
    """Numbers for Prometheus, for whoever shows the token of the settings."""
    return Response(metrics.read(here.hub, request.headers.get("authorization", "")), media_type=metrics.TYPE)


def _database(hub: Hub) -> tuple[str, str]:
    try:
        with hub.database.reading() as session:
            oldest: Any = session.scalar(sa.select(sa.func.min(Job.created)).where(Job.state == "queued"))
            beat: Any = session.scalar(sa.select(sa.func.max(Job.heartbeat)))
    except SQLAlchemyError:
        return "failing", "unknown"
    stuck = oldest is not None and max(oldest, beat or 0.0) < now() - _PATIENCE_S
    return "ok", "not seen: work has waited for minutes" if stuck else "ok"


def _ledger(hub: Hub) -> str:
    try:
        str(hub.ledger.head)
    except CloisterError as problem:
        return f"failing: {problem.code}"
    return "ok"

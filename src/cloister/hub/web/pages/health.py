"""Health check for a load balancer, a compose file, or an operator. It names no person and no data."""

from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import JSONResponse, Response

from cloister.hub.core import heartbeats, metrics
from cloister.hub.core.database import now
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Job
from cloister.hub.web.context import Visitor, visitor
from cloister.privacy.errors import CloisterError, RolledBack
from cloister.version import __version__

__all__ = ["router"]

router = APIRouter()
_PATIENCE_S = 120  # a job may wait this long before the workers count as failed
_FAILURES = 3  # in the last minute; fewer may be an accident
_NONE_YET = "none yet"  # the workers of this hub have never run, and no job waits


@router.get("/health")
def health(visitor: Annotated[Visitor, Depends(visitor)]) -> JSONResponse:
    """Return the state of database, ledger and workers; 503 if one of them fails."""
    database, workers = _database(visitor.hub)
    parts = {"database": database, "ledger": _ledger(visitor.hub), "workers": workers}
    well = all(state in ("ok", _NONE_YET) for state in parts.values())
    return JSONResponse({"state": "ok" if well else "failing", "version": __version__, **parts}, 200 if well else 503)


@router.get("/metrics")
def numbers(request: Request, visitor: Annotated[Visitor, Depends(visitor)]) -> Response:
    """Return metrics for Prometheus, with the token of the settings."""
    return Response(metrics.read(visitor.hub, request.headers.get("authorization", "")), media_type=metrics.TYPE)


def _database(hub: Hub) -> tuple[str, str]:
    try:
        with hub.database.reading() as session:
            oldest: Any = session.scalar(sa.select(sa.func.min(Job.created)).where(Job.state == "queued"))
    except SQLAlchemyError:
        return "failing", "unknown"
    return "ok", _workers(hub, oldest)


def _workers(hub: Hub, oldest: float | None) -> str:
    """Check by heartbeats that a worker lives and does not keep failing; a hanging one is ended by its supervisor."""
    failed = heartbeats.failures(hub.folder)
    if failed >= _FAILURES:
        return f"failing: {failed:,} times in the last minute. The log says where"
    if heartbeats.living(hub.folder):
        return "ok"
    last_beat = heartbeats.last(hub.folder)
    if last_beat is None and (oldest is None or oldest > now() - _PATIENCE_S):
        return _NONE_YET
    return "none was ever seen" if last_beat is None else f"none was seen for {now() - last_beat:.0f} seconds"


def _ledger(hub: Hub) -> str:
    try:
        hub.ledger.check_newest()
    except RolledBack as problem:
        return f"refuses to spend: {problem.code}"
    except CloisterError as problem:
        return f"failing: {problem.code}"
    return "ok"

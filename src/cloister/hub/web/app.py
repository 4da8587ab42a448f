"""Web application of one hub: every page and API call, with their protection."""

import hashlib
import importlib
import pkgutil
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, FastAPI, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartParser
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles

from cloister import local
from cloister.hub.core.cache import Cache
from cloister.hub.surveys.intake import Intake
from cloister.hub.users.rate_limits import Limiter
from cloister.hub.web import api, pages, problems, respondent
from cloister.hub.web.context import guard
from cloister.hub.web.security import FILE_BODY, BodyLimit, NoSurprises, SafeHeaders, Turns
from cloister.hub.web.words import FILTERS
from cloister.version import __version__

if TYPE_CHECKING:
    from types import ModuleType

    from starlette.types import Scope

    from cloister.hub.core.hub import Hub

__all__ = ["create_app"]

_HERE = Path(__file__).parent
_SURVEY_PAGES = 32 * 1024 * 1024  # bytes of respondents' pages in memory; the largest page has 2 MB

# A file in a form stays in memory, so that no row is written to a disk unsealed.
MultiPartParser.spool_max_size = FILE_BODY


def create_app(hub: "Hub") -> FastAPI:
    """Create the web application of a hub.

    Args:
        hub: the hub; its database must be migrated.
    """
    app = FastAPI(
        title="Cloister hub",
        version=__version__,
        docs_url=None,  # they load external scripts
        redoc_url=None,
        openapi_url=None,  # `_description` below: rendered once, and under a turn
        redirect_slashes=False,  # it would redirect to whatever host the request names
        # Paths and query strings hold secrets: of invitations, of resets, of subject cards. No span gets them.
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )
    app.state.hub = hub
    app.state.limiter = Limiter(_share(hub.settings.requests_per_minute, hub), 60)
    app.state.templates = _templates()
    app.state.intake = Intake(hub)
    app.state.answers = Limiter(_share(hub.settings.answers_per_minute, hub), 60)
    app.state.survey_pages = Cache(_SURVEY_PAGES)
    problems.install(app)
    app.mount("/static/local", Modules(directory=Path(local.__file__).parent / "client"), "local")
    app.mount("/static", StaticFiles(directory=_HERE / "static"), "static")
    # First, since routes are tried in order and most requests may be these. No `guard`: a respondent has no account,
    # gets no cookie, and sends none. Their rate and turns are in `respondent.answers.slowed`.
    for router in _routers(respondent):
        app.include_router(router, include_in_schema=False)
    app.add_api_route("/api/openapi.json", _description, include_in_schema=False, dependencies=[Depends(guard)])
    for router in _routers(api):
        app.include_router(router, dependencies=[Depends(guard)])
    for router in _routers(pages):
        app.include_router(router, dependencies=[Depends(guard)], include_in_schema=False)
    app.add_middleware(BodyLimit, settings=hub.settings)
    app.add_middleware(Turns)
    app.add_middleware(NoSurprises)
    app.add_middleware(SafeHeaders, settings=hub.settings)  # the outermost: error pages carry them too
    return app


def _description(request: Request) -> Response:
    """Return the description of the API."""
    state = request.app.state
    if not hasattr(state, "description"):
        state.description = JSONResponse(request.app.openapi()).body
    return Response(state.description, media_type="application/json")


def _share(most: int, hub: "Hub") -> int:
    """Return one web process's part of a limit: each counts by itself, and their sum must not exceed the limit."""
    return -(-most // max(1, hub.settings.web_processes))


class Modules(StaticFiles):
    """Static files of the JavaScript client, and no other file of that folder."""

    async def get_response(self, path: str, scope: "Scope") -> Response:
        """Return a module, or 404."""
        if not path.endswith(".mjs"):
            raise HTTPException(404)
        response = await super().get_response(path, scope)
        response.headers["content-type"] = "text/javascript"  # independent of the machine's own table
        return response


def _routers(package: "ModuleType") -> list[APIRouter]:
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}").router for name in names]


def _templates() -> Environment:
    words = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=_Missing,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    words.globals["static"] = _static
    words.filters.update(FILTERS)
    words.filters["way_out"] = problems.way_out
    return words


class _Missing(StrictUndefined):
    """Undefined name in a template: it fails, but `{{ word if so }}` without an else is empty."""

    __slots__ = ()

    def __str__(self) -> str:  # type: ignore[override]
        if "inline if" in (self._undefined_hint or ""):
            return ""
        return super().__str__()


@lru_cache(maxsize=100)
def _static(name: str) -> str:
    """Return a file's address with its content hash, so that browsers may cache it."""
    content = (_HERE / "static" / name).read_bytes()
    return f"/static/{name}?{hashlib.sha256(content).hexdigest()[:10]}"

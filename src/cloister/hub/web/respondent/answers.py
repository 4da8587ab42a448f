"""Requests of a respondent's device: the questions, a ballot, and the reports.

Only the reports of a request are stored: the address is counted in memory, for a minute, to limit the rate.
"""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from cloister.hub.core.cache import Cache
from cloister.hub.surveys import ballots, survey
from cloister.hub.surveys.intake import MOST_BYTES, BadSubmission, Intake
from cloister.hub.web.security import client_address, refuse_many_members, take_turn
from cloister.local.survey.envelope import pack, unpack
from cloister.privacy.errors import BadForm, NotNow, UploadRefused

__all__ = ["router"]

router = APIRouter()


async def slowed(request: Request) -> Intake:
    """Return the intake, within the rate limit, and when it is this address's turn among all its strangers."""
    address = client_address(request, request.app.state.hub.settings)
    request.app.state.answers.check(address)
    request.state.body = await _body(request)  # before the turn: a slow sender holds none
    refuse_many_members(request.scope, request.state.body)  # it is parsed as JSON whatever its header says
    await take_turn(request, f"address/{address}")
    intake: Intake = request.app.state.intake
    return intake


@router.get("/s/{name}/survey.json")
async def questions(request: Request, name: str, intake: Annotated[Intake, Depends(slowed)]) -> Response:
    """Return the questions, and how a device makes its reports: public facts alone."""
    known = await intake.known(name)
    pages: Cache = request.app.state.survey_pages
    key = "survey.json", known.digest, survey.is_open(known.survey)
    body = await run_in_threadpool(pages.get, key, lambda: JSONResponse(survey.public(known.survey)).body)
    return Response(body, media_type="application/json")


@router.post("/s/{name}/ballot")
async def ballot(request: Request, name: str, intake: Annotated[Intake, Depends(slowed)]) -> Response:
    """Sign a ballot blindly for an invitation: {"secret": …, "blinded": …} to {"signature": …}."""
    body = _json(request.state.body)
    secret, blinded = body.get("secret"), unpack(body.get("blinded"))
    if not isinstance(secret, str) or len(secret) > 200 or blinded is None:
        raise BadForm("a ballot needs the secret of an invitation and a blinded message.")
    survey_row = await intake.survey(name)
    if not survey.is_open(survey_row) or not survey_row.invited:
        raise NotNow("this survey gives no ballots.")
    signature = await run_in_threadpool(ballots.sign, request.app.state.hub, survey_row, secret, blinded)
    return JSONResponse({"signature": pack(signature)})


@router.post("/s/{name}/answers")
async def answers(request: Request, name: str, intake: Annotated[Intake, Depends(slowed)]) -> Response:
    """Store a submission; return a signed receipt."""
    try:
        return JSONResponse(await intake.take(name, request.state.body))
    except BadSubmission as bad:
        return JSONResponse({"refused": bad.reason, "message": str(bad)}, 422)


async def _body(request: Request) -> bytes:
    raw = b""
    async for piece in request.stream():
        raw += piece
        if len(raw) > MOST_BYTES:
            break  # one byte too many is enough to refuse
    return raw


def _json(raw: bytes) -> dict[str, Any]:
    if len(raw) > MOST_BYTES:
        raise UploadRefused(f"the body is longer than {MOST_BYTES // 1024} KB.")
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise BadForm("this address takes a JSON object.")
    return body

"""Requests of a respondent's device: the questions, a ballot, and the reports.

Only the reports of a request are stored: the address is counted in memory, for a minute, to limit the rate.
"""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from cloister.hub.surveys import ballots, survey
from cloister.hub.surveys.intake import MOST_BYTES, BadSubmission, Intake
from cloister.hub.web.security import client_address
from cloister.local.survey.envelope import pack, unpack
from cloister.privacy.errors import BadForm, NotNow

__all__ = ["router"]

router = APIRouter()


async def slowed(request: Request) -> Intake:
    """Return the intake, within the rate limit."""
    settings = request.app.state.hub.settings
    request.app.state.answers.check(client_address(request, settings))
    intake: Intake = request.app.state.intake
    return intake


@router.get("/s/{name}/survey.json")
async def questions(name: str, intake: Annotated[Intake, Depends(slowed)]) -> Response:
    """Return the questions, and how a device makes its reports: public facts alone."""
    return JSONResponse(survey.public(await intake.survey(name)))


@router.post("/s/{name}/ballot")
async def ballot(request: Request, name: str, intake: Annotated[Intake, Depends(slowed)]) -> Response:
    """Sign a ballot blindly for an invitation: {"secret": …, "blinded": …} to {"signature": …}."""
    body = await _json(request)
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
    raw = await _body(request)
    try:
        return JSONResponse(await intake.take(name, raw))
    except BadSubmission as bad:
        return JSONResponse({"refused": bad.reason, "message": str(bad)}, 422)


async def _body(request: Request) -> bytes:
    raw = b""
    async for piece in request.stream():
        raw += piece
        if len(raw) > MOST_BYTES:
            break  # one byte too many is enough to refuse
    return raw


async def _json(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await _body(request))
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise BadForm("this address takes a JSON object.")
    return body

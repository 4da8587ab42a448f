"""Page of a respondent: the questions, their author and purpose. Its inputs are for scripts alone.

No visitor is identified: no cookie is read and none is set, and the page is the same for all visitors, so that it is
rendered once and cached. The secret of an invitation follows the `#` of a link and is never sent to the hub with the
page request.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, Response

from cloister.hub.core.cache import Cache
from cloister.hub.core.models import Survey
from cloister.hub.surveys import explain_level, i18n, survey
from cloister.hub.surveys.intake import Intake
from cloister.hub.surveys.question import SurveyQuestion
from cloister.hub.web.respondent.answers import slowed
from cloister.local import Question

__all__ = ["router"]

router = APIRouter()

# Stricter than other pages: the browser itself may send no form from here, and no image comes from a data URL.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex",
    "Vary": "Accept-Language",
}
CAPS = (4, 8, 16)  # of a new wallet


@router.get("/s/{name}")
async def respond(request: Request, name: str, intake: Annotated[Intake, Depends(slowed)], lang: str = "") -> Response:
    """Show the page, in the requested language or the browser's preferred one."""
    known = await intake.known(name)
    language = i18n.choose(lang, request.headers.get("accept-language", ""), known.survey.language)
    pages: Cache = request.app.state.survey_pages

    def render() -> bytes:
        template = request.app.state.templates.get_template("respond.html")
        values = {"hub_name": request.app.state.hub.settings.name, **_values(known.survey, language)}
        return bytes(template.render(values), "utf-8")

    # The key has everything that the page depends on: nothing of a visitor but the language.
    key = "page", known.digest, survey.is_open(known.survey), language
    html = await run_in_threadpool(pages.get, key, render)
    return HTMLResponse(html, headers={**_HEADERS, "Content-Language": language})


def _values(survey_row: Survey, language: str) -> dict[str, Any]:
    spoken = i18n.words_in(language)
    by = survey_row.owner.organisation.name if survey_row.owner.organisation else survey_row.owner.name
    return {
        "words": spoken,
        "say": spoken.say,
        "languages": i18n.NAMES,
        "survey": survey_row,
        "by": by,
        "open": survey.is_open(survey_row),
        "questions": _shown(json.dumps(survey_row.asked), json.dumps(survey_row.questions), language),
        "caps": CAPS,
        "device": spoken.for_device(),
    }


@dataclass(frozen=True, slots=True)
class RespondentPage:
    """Question as the page shows it: as it was composed, its levels in words, and a number's bounds."""

    asked: SurveyQuestion
    levels: tuple[explain_level.LevelExplanation, ...]
    bounds: tuple[float, float] | None


@lru_cache(maxsize=256)  # certifying every question again takes long
def _shown(composed_json: str, questions: str, language: str) -> tuple[RespondentPage, ...]:
    composed = [SurveyQuestion.read(entry, certify=False) for entry in json.loads(composed_json)]
    local_questions = [Question.read(entry) for entry in json.loads(questions)]
    spoken = i18n.words_in(language)
    return tuple(
        RespondentPage(source, explain_level.told(source, question, spoken), _ends(source))
        for source, question in zip(composed, local_questions, strict=True)
    )


def _ends(question: SurveyQuestion) -> tuple[float, float] | None:
    if question.type != "number":
        return None
    low, high = question.bounds
    return float(low), float(high)

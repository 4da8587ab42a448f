"""Survey pages for owners: the list, a new one, its facts, its states."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from cloister.hub.core.database import now
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Survey
from cloister.hub.surveys import ballots, survey
from cloister.hub.surveys import draft as composing
from cloister.hub.surveys.question import TYPES, SurveyQuestion
from cloister.hub.surveys.survey import asked_of
from cloister.hub.web.context import Visitor, form, go, page, signed_in, with_role
from cloister.hub.web.forms import Form
from cloister.hub.web.problems import status_of
from cloister.hub.web.spreadsheets import csv_of
from cloister.privacy.errors import BadForm, CloisterError, NotNow, TooMany, UploadRefused
from cloister.privacy.number import show as show_number

__all__ = ["CONSENT", "LANGUAGES", "facts_of", "router", "values_of"]

router = APIRouter()
Here = Annotated[Visitor, Depends(signed_in)]
Composer = Annotated[Visitor, Depends(with_role("data user", "data owner"))]
Sent = Annotated[Form, Depends(form)]

LANGUAGES = (("en", "English"), ("de", "German"), ("es", "Spanish"), ("fr", "French"))
# Default texts: what the page of a respondent does, in words that hold for every survey.
CONSENT = """Taking part is voluntary. Your answers are blurred by chance on your own device before they are sent: \
nobody, not even we, receives what you really answered. You choose for each question how strongly, or skip it. \
We learn that somebody took part, which questions were skipped and which levels were chosen. What was sent cannot \
be taken back, because your reports carry no name."""
_TEXTS = ("title", "about", "purpose", "consent", "language")


@router.get("/surveys")
def listed(request: Request, visitor: Here) -> Response:
    """List one's own surveys."""
    survey.reveal_all(visitor.hub, visitor.who)
    with visitor.hub.database.reading() as session:
        rows = [
            (survey_row, survey.shown_sizes(visitor.hub, session, survey_row)[0])
            for survey_row in survey.mine(session, visitor.who)
        ]
    return page(request, "surveys.html", surveys=rows)


@router.get("/surveys/new")
def begin(request: Request, visitor: Composer) -> Response:
    """Show the form for a new survey."""
    values = {"consent": CONSENT, "language": "en", "target": "500"}
    return page(request, "survey_new.html", values=values, languages=LANGUAGES, problem=None)


@router.post("/surveys/new")
def create(request: Request, visitor: Composer, sent: Sent) -> Response:
    """Create a draft; its questions come next."""
    try:
        with visitor.hub.database.writing() as session:
            name = sent.get("name", "").strip() or composing.address_of(sent.get("title", ""))
            draft = composing.begin(visitor.hub, session, visitor.who, name, facts_of(sent))
    except CloisterError as error:
        if status_of(error) >= 500:
            raise
        return page(request, "survey_new.html", status_of(error), values=dict(sent), languages=LANGUAGES, problem=error)
    return go(request, f"/surveys/{draft.name}", said="The draft is made. Now add its questions.")


@router.get("/surveys/{name}")
def show(request: Request, name: str, visitor: Here) -> Response:
    """Show a survey: as a draft to compose, or open to manage."""
    return _draw(request, visitor, name)


@router.post("/surveys/{name}")
def change(request: Request, name: str, visitor: Here, sent: Sent) -> Response:
    """Change the facts of a draft."""
    try:
        with visitor.hub.database.writing() as session:
            survey.change(visitor.hub, session, survey.find_own(session, name, visitor.who), facts_of(sent))
    except BadForm as error:
        return _draw(request, visitor, name, problem=error, values=dict(sent))
    return go(request, f"/surveys/{name}", said="Saved.")


@router.get("/surveys/{name}/publish")
def confirm(request: Request, name: str, visitor: Here) -> Response:
    """Show what becomes fixed, before it does."""
    with visitor.hub.database.reading() as session:
        survey_row = survey.find_own(session, name, visitor.who)
    if survey_row.state != "draft":
        raise NotNow(f"the survey is {survey_row.state} already.")
    questions = asked_of(survey_row)
    expected = list(zip(questions, composing.expected_all(visitor.hub, survey_row, questions), strict=True))
    most = show_number(sum((Fraction(question.levels[-1].epsilon) for question in questions), start=Fraction(0)))
    return page(request, "survey_publish.html", survey=survey_row, asked=expected, most=most)


@router.post("/surveys/{name}/publish")
def publish(request: Request, name: str, visitor: Here, sent: Sent) -> Response:
    """Open a survey."""
    if not sent.ticked("sure"):
        raise BadForm("tick the box to say that the questions are final.")
    with visitor.hub.database.reading() as session:
        draft = survey.find_own(session, name, visitor.who)
    survey.prepare(visitor.hub, draft)
    with visitor.hub.database.writing() as session:
        survey_row = survey.find_own(session, name, visitor.who)
        survey.publish(visitor.hub, session, survey_row)
    return go(request, f"/surveys/{name}", said="The survey is open. Share its link.")


@router.post("/surveys/{name}/close")
def close(request: Request, name: str, visitor: Here) -> Response:
    """Close a survey."""
    with visitor.hub.database.writing() as session:
        survey.close(visitor.hub, session, survey.find_own(session, name, visitor.who))
    return go(request, f"/surveys/{name}/results", said="The survey is closed. Its results stay here.")


@router.post("/surveys/{name}/wave")
def wave(request: Request, name: str, visitor: Here) -> Response:
    """Begin the next wave with the same respondents."""
    with visitor.hub.database.writing() as session:
        survey_row = survey.find_own(session, name, visitor.who)
        survey.next_wave(visitor.hub, session, survey_row)
        number = survey_row.wave
    return go(request, f"/surveys/{name}", said=f"Wave {number} is open: the same people can answer again.")


@router.post("/surveys/{name}/invitations")
def invite(name: str, visitor: Here, sent: Sent) -> Response:
    """Create links and return them as a file, once: only their hashes are stored."""
    count = sent.number("count", "How many", low=1, high=100_000)
    with visitor.hub.database.writing() as session:
        links = ballots.invite(visitor.hub, session, survey.find_own(session, name, visitor.who), count)
    file = {"Content-Disposition": f'attachment; filename="{name}-links.csv"', "Cache-Control": "no-store"}
    return Response(csv_of(["link"], [[link] for link in links]), media_type="text/csv; charset=utf-8", headers=file)


# The page


def facts_of(sent: Form) -> dict[str, Any]:
    """Return the input of `survey.change`, from the fields of a form."""
    facts: dict[str, Any] = {name: sent.get(name, "") for name in _TEXTS if name in sent}
    facts["target"] = sent.number("target", "People hoped for", low=1, high=10**7)
    facts["ends"] = _end(sent.maybe("ends", most=10))
    return facts | {"invited": sent.ticked("invited"), "lasting": sent.ticked("lasting")}


def _end(text: str) -> float | None:
    """Return the moment after the last day."""
    if not text:
        return None
    try:
        last = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise BadForm("'Last day' is a day like 2026-12-31.") from None
    if last.year >= 9999:
        raise BadForm("'Last day' is at most ten years away.")
    return (last + timedelta(days=1)).timestamp()


def values_of(found: Survey) -> dict[str, str]:
    """Return the facts as the form shows them."""
    last = datetime.fromtimestamp(found.ends, UTC) - timedelta(days=1) if found.ends is not None else None
    values = {name: str(getattr(found, name)) for name in _TEXTS}
    values |= {"target": str(found.target), "ends": last.strftime("%Y-%m-%d") if last else ""}
    return values | {name: "yes" if getattr(found, name) else "" for name in ("invited", "lasting")}


def _draw(
    request: Request,
    visitor: Visitor,
    name: str,
    problem: CloisterError | None = None,
    values: Mapping[str, str] | None = None,
) -> Response:
    survey.reveal_all(visitor.hub, visitor.who, name)
    with visitor.hub.database.reading() as session:
        survey_row = survey.find_own(session, name, visitor.who)
        people, refused = survey.shown_sizes(visitor.hub, session, survey_row)
        step = max(1, visitor.hub.settings.survey_batch)
        invited = (
            ballots.invitations(session, survey_row, step)
            if survey_row.invited and survey_row.state != "draft"
            else (0, 0)
        )
    return page(
        request,
        "survey.html",
        200 if problem is None else status_of(problem),
        survey=survey_row,
        values=values if values is not None else values_of(survey_row),
        languages=LANGUAGES,
        language=dict(LANGUAGES)[survey_row.language],
        types=TYPES,
        asked=_with_errors(visitor.hub, survey_row),
        problem=problem,
        people=people,
        refused=sum(refused.values()),
        invited=invited,
        open=survey.is_open(survey_row),
        over=survey_row.state == "open" and survey_row.ends is not None and survey_row.ends <= now(),
        link=f"{visitor.hub.settings.address.rstrip('/')}/s/{survey_row.name}",
    )


def _with_errors(hub: Hub, survey_row: Survey) -> list[tuple[SurveyQuestion, list[dict[str, Any]]]]:
    """Return the questions; those of a draft with their expected errors, unless these cannot be computed now."""
    questions = asked_of(survey_row)
    errors: list[list[dict[str, Any]]] = [[] for _ in questions]
    if survey_row.state == "draft":
        with suppress(TooMany, UploadRefused):  # the draft can be edited all the same
            errors = composing.expected_all(hub, survey_row, questions)
    return list(zip(questions, errors, strict=True))

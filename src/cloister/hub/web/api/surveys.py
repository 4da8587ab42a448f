"""Survey API for owners: create, open, read the results. Surveys of others are not found."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field, model_validator
from sqlalchemy.orm import Session
from starlette.responses import Response

from cloister.hub.core.models import Survey
from cloister.hub.surveys import ballots, export, results, survey
from cloister.hub.surveys import draft as composing
from cloister.hub.surveys.question import SurveyQuestion
from cloister.hub.web.context import Visitor, scoped
from cloister.hub.web.spreadsheets import csv_of
from cloister.privacy.errors import BadForm

__all__ = ["router"]

router = APIRouter(tags=["surveys"])
MayRead = Annotated[Visitor, Depends(scoped("read"))]
MayWork = Annotated[Visitor, Depends(scoped("work"))]
Wave = Annotated[int, Query(ge=0, lt=2**31, description="which wave; 0 is the newest")]
_People = Annotated[int, Field(ge=10, le=10_000_000)]


class Facts(BaseModel):
    """Facts of a draft that can be set; omitted ones stay."""

    model_config = ConfigDict(extra="forbid")
    title: str | None = Field(None, max_length=200)
    about: str | None = Field(None, max_length=4000)
    purpose: str | None = Field(None, max_length=1000, description="what the answers are for")
    consent: str | None = Field(None, max_length=8000, description="what people agree to")
    language: Literal["en", "de", "es", "fr"] | None = None
    target: _People | None = Field(None, description="how many people are hoped for")
    ends: float | None = Field(None, ge=0, le=10**11, description="seconds since 1970; null: when it is closed")
    invited: bool | None = Field(None, description="only people with an invitation answer, once a wave")
    lasting: bool | None = Field(None, description="the same people will be asked again")
    asked: list[dict[str, Any]] | None = Field(
        None, max_length=60, description="the questions, as SurveyQuestion.read takes them"
    )

    @model_validator(mode="before")
    @classmethod
    def _few(cls, sent: Any) -> Any:
        # One problem, not one for each of thousands of unknown fields.
        if isinstance(sent, dict) and len(sent) > len(cls.model_fields):
            raise ValueError(f"a survey has at most {len(cls.model_fields)} fields")
        return sent


class NewSurvey(Facts):
    """A new survey."""

    name: str = Field(min_length=3, max_length=40, description="in the address of its page, for good")


class SurveyFacts(BaseModel):
    """A survey."""

    name: str
    title: str
    about: str
    purpose: str
    consent: str
    language: str
    target: int
    ends: float | None
    invited: bool
    lasting: bool
    state: str = Field(description="draft, open or closed")
    open: bool = Field(description="whether answers are taken now")
    wave: int
    people: int = Field(description="how many have answered in this wave, in steps of a batch")
    refused: dict[str, int] = Field(description="submissions refused in this wave, by reason")
    link: str
    created: float
    opened: float | None
    closed: float | None
    asked: list[dict[str, Any]]


class SurveyList(BaseModel):
    """One's own surveys, the newest first."""

    surveys: list[SurveyFacts]


class Wanted(BaseModel):
    """Question for which advice is requested."""

    model_config = ConfigDict(extra="forbid")
    question: dict[str, Any]
    people: _People = 500
    lasting: bool = False


class Advised(BaseModel):
    """Expected error of a question, level by level; or its problems so far."""

    levels: list[dict[str, Any]]
    problem: str | None = None


class Count(BaseModel):
    """Number of links to create."""

    model_config = ConfigDict(extra="forbid")
    count: int = Field(ge=1, le=100_000)


class Links(BaseModel):
    """Links, shown once: only their hashes are stored."""

    links: list[str]


@router.get("/api/surveys")
def mine(visitor: MayRead) -> SurveyList:
    """Return one's own surveys."""
    survey.reveal_all(visitor.hub, visitor.who)
    with visitor.hub.database.reading() as session:
        return SurveyList(
            surveys=[_facts(visitor, session, survey_row) for survey_row in survey.mine(session, visitor.who)]
        )


@router.post("/api/surveys", status_code=201)
def create(body: NewSurvey, visitor: MayWork) -> SurveyFacts:
    """Create a draft."""
    with visitor.hub.database.reading() as session:  # what is cheap is checked before questions are certified
        survey.require_free(session, visitor.who, body.name)
    facts = _named(visitor, body.model_dump(exclude_unset=True, exclude={"name"}))
    with visitor.hub.database.writing() as session:
        draft = composing.begin(visitor.hub, session, visitor.who, body.name, facts)
        return _facts(visitor, session, draft)


@router.post("/api/surveys/advice")
def advice(body: Wanted, visitor: MayWork) -> Advised:
    """Return the expected error of a question, and its possible mechanisms. Uses public facts alone."""
    try:
        question = SurveyQuestion.read({**body.question, "id": body.question.get("id") or "q"})
        return Advised(levels=composing.expected(question, body.people, body.lasting))
    except BadForm as error:  # the question is still incomplete
        return Advised(levels=[], problem=str(error).removeprefix(f"{error.code}: "))


@router.get("/api/surveys/{name}")
def show(name: str, visitor: MayRead) -> SurveyFacts:
    """Return a survey."""
    survey.reveal_all(visitor.hub, visitor.who, name)
    with visitor.hub.database.reading() as session:
        return _facts(visitor, session, survey.find_own(session, name, visitor.who))


@router.put("/api/surveys/{name}")
def change(name: str, body: Facts, visitor: MayWork) -> SurveyFacts:
    """Change a draft; omitted facts stay."""
    with visitor.hub.database.reading() as session:
        draft = survey.find_own(session, name, visitor.who)
    survey.require_draft(draft)
    facts = _named(visitor, body.model_dump(exclude_unset=True), survey.asked_of(draft))
    with visitor.hub.database.writing() as session:
        survey_row = survey.find_own(session, name, visitor.who)
        survey.change(visitor.hub, session, survey_row, facts)
        return _facts(visitor, session, survey_row)


@router.post("/api/surveys/{name}/publish")
def publish(name: str, visitor: MayWork) -> SurveyFacts:
    """Open a survey: questions and mechanisms are fixed from now on."""
    with visitor.hub.database.reading() as session:
        draft = survey.find_own(session, name, visitor.who)
    survey.prepare(visitor.hub, draft)
    with visitor.hub.database.writing() as session:
        survey_row = survey.find_own(session, name, visitor.who)
        survey.publish(visitor.hub, session, survey_row)
        return _facts(visitor, session, survey_row)


@router.post("/api/surveys/{name}/close")
def close(name: str, visitor: MayWork) -> SurveyFacts:
    """Close a survey: it takes no more answers."""
    with visitor.hub.database.writing() as session:
        survey_row = survey.find_own(session, name, visitor.who)
        survey.close(visitor.hub, session, survey_row)
        return _facts(visitor, session, survey_row)


@router.post("/api/surveys/{name}/wave")
def wave(name: str, visitor: MayWork) -> SurveyFacts:
    """Begin the next wave with the same respondents."""
    with visitor.hub.database.writing() as session:
        survey_row = survey.find_own(session, name, visitor.who)
        survey.next_wave(visitor.hub, session, survey_row)
        return _facts(visitor, session, survey_row)


@router.post("/api/surveys/{name}/invitations")
def invite(name: str, body: Count, visitor: MayWork) -> Links:
    """Create links, one for each person to be invited."""
    with visitor.hub.database.writing() as session:
        links = ballots.invite(visitor.hub, session, survey.find_own(session, name, visitor.who), body.count)
    return Links(links=links)


# Results


@router.get("/api/surveys/{name}/results")
def found(name: str, visitor: MayRead, wave: Wave = 0) -> dict[str, Any]:
    """Return estimates of every question with their errors, and their limits."""
    return _read(visitor, name, wave)[1].to_json()


@router.get("/api/surveys/{name}/cross")
def cross(
    name: str,
    visitor: MayRead,
    first: Annotated[str, Query(max_length=40)],
    second: Annotated[str, Query(max_length=40)],
    wave: Wave = 0,
) -> dict[str, Any]:
    """Return the cross-table of two questions, from matched reports."""
    return _read(visitor, name, wave)[1].cross(first, second).to_json()


@router.get("/api/surveys/{name}/reports", response_class=Response)
def reports(name: str, visitor: MayRead, wave: Wave = 0, kind: Literal["json", "csv"] = "json") -> Response:
    """Return every report of a wave, without names, in the order of a hash."""
    survey_row, read = _read(visitor, name, wave)
    visitor.hub.audit.record(
        visitor.who.id, "survey.reports.exported", f"survey/{name}", wave=read.wave, people=read.n, kind=kind
    )
    if kind == "csv":
        return Response(csv_of(*export.reports_table(survey_row, read)), media_type="text/csv; charset=utf-8")
    return Response(export.text_of(export.reports_json(survey_row, read)), media_type="application/json")


@router.get("/api/surveys/{name}/receipt", response_class=Response)
def receipt(name: str, visitor: MayRead, wave: Wave = 0) -> Response:
    """Return the analysis, signed by the hub."""
    survey_row, read = _read(visitor, name, wave)
    visitor.hub.audit.record(visitor.who.id, "survey.receipt", f"survey/{name}", wave=read.wave, people=read.n)
    return Response(export.text_of(export.analysis(visitor.hub, survey_row, read)), media_type="application/json")


def _read(visitor: Visitor, name: str, wave: int) -> tuple[Survey, results.Results]:
    with visitor.hub.database.reading() as session:
        survey_row = survey.find_own(session, name, visitor.who)
        return survey_row, results.read(visitor.hub, session, survey_row, wave or None)


def _named(visitor: Visitor, facts: dict[str, Any], certified: tuple[SurveyQuestion, ...] = ()) -> dict[str, Any]:
    """Return the facts that were set; null is ignored, except for the end, where it means none.

    Questions are read and certified here, before a transaction begins; those in `certified` were certified before.
    """
    changes = {name: value for name, value in facts.items() if value is not None or name == "ends"}
    if "asked" not in changes:
        return changes
    # In proportion to the work: a draft of sixty questions counts more than one of one.
    visitor.count(len(changes["asked"]) // 3)
    return {**changes, "asked": survey.read_bounded(visitor.hub, visitor.who, changes["asked"], certified)}


def _facts(visitor: Visitor, session: Session, survey_row: Survey) -> SurveyFacts:
    people, refused = (0, {}) if survey_row.state == "draft" else survey.shown_sizes(visitor.hub, session, survey_row)
    fields = {name: getattr(survey_row, name) for name in SurveyFacts.model_fields if hasattr(survey_row, name)}
    link = f"{visitor.hub.settings.address.rstrip('/')}/s/{survey_row.name}"
    return SurveyFacts(**fields, open=survey.is_open(survey_row), people=people, refused=refused, link=link)

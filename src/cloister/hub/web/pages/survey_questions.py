"""Pages of a draft's questions, one at a time; and the preview for its owner."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from cloister.hub.surveys import draft, survey
from cloister.hub.surveys.question import LEVELS, MECHANISMS, PERIODS, TYPES, PrivacyLevel, SurveyQuestion
from cloister.hub.surveys.survey import asked_of
from cloister.hub.web.context import Visitor, form, go, page, signed_in
from cloister.hub.web.forms import Form
from cloister.hub.web.problems import status_of
from cloister.privacy.errors import BadForm, CloisterError, NotHere, NotNow
from cloister.privacy.number import show

__all__ = ["TITLES", "router"]

router = APIRouter()
Here = Annotated[Visitor, Depends(signed_in)]
Sent = Annotated[Form, Depends(form)]

TITLES = {
    "yes_no": "Yes or no",
    "choice": "One choice",
    "choices": "Several choices",
    "scale": "Scale",
    "date": "Date",
    "number": "Number",
}
_FIELDS = {
    "yes_no": (),
    "choice": ("options",),
    "choices": ("options", "most"),
    "scale": ("low", "high", "ends"),
    "date": ("low", "high", "step"),
    "number": ("low", "high", "unit"),
}
# Mechanisms of each type; empty means the best one at every level.
_SERVES = {
    "number": ("hybrid", "piecewise"),
    "choices": ("one-of-set", "set-bits"),
}
_CHOICES = tuple(one for one in MECHANISMS if one not in (*_SERVES["number"], *_SERVES["choices"]))
_FRESH = {"scale": {"low": "1", "high": "5"}, "choices": {"most": "3"}, "date": {"step": "month"}}


@router.get("/surveys/{name}/add")
def begin(request: Request, name: str, visitor: Here, type: str = "yes_no") -> Response:  # noqa: A002
    """Show the form for a question of a type."""
    if type not in TYPES:
        raise NotHere("there is no such type of question.")
    return _draw(request, visitor, name, {"type": type, "levels": _lines(LEVELS), **_FRESH.get(type, {})})


@router.post("/surveys/{name}/add")
def add(request: Request, name: str, visitor: Here, sent: Sent) -> Response:
    """Add a question, or only show its expected error."""
    return _put(request, visitor, name, sent)


@router.get("/surveys/{name}/questions/{question}")
def edit(request: Request, name: str, question: str, visitor: Here) -> Response:
    """Show the form for an existing question."""
    with visitor.hub.database.reading() as session:
        questions = {entry.id: entry for entry in asked_of(survey.find_own(session, name, visitor.who))}
    if question not in questions:
        raise NotHere("the survey has no such question.")
    return _draw(request, visitor, name, _values(questions[question]), question)


@router.post("/surveys/{name}/questions/{question}")
def change(request: Request, name: str, question: str, visitor: Here, sent: Sent) -> Response:
    """Change a question."""
    return _put(request, visitor, name, sent, question)


@router.post("/surveys/{name}/questions/{question}/move")
def move(request: Request, name: str, question: str, visitor: Here, sent: Sent) -> Response:
    """Move a question up or down by one."""
    _read_before(visitor, name)
    with visitor.hub.database.writing() as session:
        draft.move(
            visitor.hub, session, survey.find_own(session, name, visitor.who), question, sent.text("where", "Where")
        )
    return go(request, f"/surveys/{name}#q-{question}")


@router.post("/surveys/{name}/questions/{question}/delete")
def delete(request: Request, name: str, question: str, visitor: Here) -> Response:
    """Remove a question."""
    _read_before(visitor, name)
    with visitor.hub.database.writing() as session:
        draft.remove(visitor.hub, session, survey.find_own(session, name, visitor.who), question)
    return go(request, f"/surveys/{name}", said="The question is taken out.")


@router.get("/surveys/{name}/preview")
def preview(request: Request, name: str, visitor: Here) -> Response:
    """Show the survey as a respondent will see it; nothing can be sent from here."""
    with visitor.hub.database.reading() as session:
        survey_row = survey.find_own(session, name, visitor.who)
    return page(request, "survey_preview.html", survey=survey_row, asked=asked_of(survey_row))


def _put(request: Request, visitor: Visitor, name: str, sent: Form, instead_of: str = "") -> Response:
    fields = _told(sent)
    try:
        SurveyQuestion.read({**fields, "id": fields.get("id") or "q"})
        if sent.get("action") == "look":
            return _draw(request, visitor, name, {**dict(sent), **_shown(fields)}, instead_of)
        _read_before(visitor, name)
        with visitor.hub.database.writing() as session:
            survey_row = survey.find_own(session, name, visitor.who)
            read = draft.put(visitor.hub, session, survey_row, fields, instead_of)
    except BadForm as error:
        return _draw(request, visitor, name, {**dict(sent), **_shown(fields)}, instead_of, problem=error)
    return go(request, f"/surveys/{name}#q-{read.id}", said="The question is saved.")


def _read_before(visitor: Visitor, name: str) -> None:
    """Read the existing questions before a transaction begins: the first time takes up to seconds."""
    with visitor.hub.database.reading() as session:
        survey_row = survey.find_own(session, name, visitor.who)
    asked_of(survey_row)


def _told(sent: Form) -> dict[str, Any]:
    """Return the input of `SurveyQuestion.read`: the fields of this type, and no others."""
    kind = sent.get("type", "")
    wanted = ("id", "text", "help", "levels", "mechanism", *_FIELDS.get(kind, ()))
    fields: dict[str, Any] = {"type": kind}
    fields |= {
        field: sent.get(field, "").strip() for field in wanted if field != "ends" and sent.get(field, "").strip()
    }
    if "ends" in wanted and (sent.maybe("first") or sent.maybe("last")):
        fields["options"] = [sent.maybe("first", most=120), sent.maybe("last", most=120)]
    return fields


def _shown(fields: Mapping[str, Any]) -> dict[str, str]:
    return {key: value for key, value in fields.items() if isinstance(value, str)}


def _values(question: SurveyQuestion) -> dict[str, str]:
    """Return a question as its form shows it."""
    fields = {name: str(value) for name, value in question.to_json().items() if isinstance(value, str | int)}
    if question.type == "scale" and question.options:
        fields |= {"first": question.options[0], "last": question.options[1]}
    else:
        fields["options"] = "\n".join(question.options)
    return fields | {"levels": _lines(question.levels)}


def _lines(levels: Sequence[PrivacyLevel]) -> str:
    """Return levels as people write them: 0.5 for 1/2, if it is exact."""
    pairs = [(level, show(Fraction(level.epsilon))) for level in levels]
    exact = [text if text.replace(".", "", 1).isdigit() and Fraction(text) == Fraction(level.epsilon) else level.epsilon
             for level, text in pairs]  # fmt: skip
    return "\n".join(f"{level.name} {text}" for level, text in zip(levels, exact, strict=True))


def _draw(
    request: Request,
    visitor: Visitor,
    name: str,
    values: Mapping[str, str],
    question: str = "",
    problem: CloisterError | None = None,
) -> Response:
    with visitor.hub.database.reading() as session:
        survey_row = survey.find_own(session, name, visitor.who)
    if survey_row.state != "draft":
        raise NotNow("a survey that was published cannot be changed: people have answered exactly this.")
    kind = values.get("type", "")
    return page(
        request,
        "survey_question.html",
        200 if problem is None else status_of(problem),
        survey=survey_row,
        question=question,
        kind=kind,
        kind_title=TITLES.get(kind, "Question"),
        fields=_FIELDS.get(kind, ()),
        values=values,
        periods=PERIODS,
        mechanisms=[
            ("", "The best at every level"),
            *((mechanism, mechanism.replace("-", " ")) for mechanism in _SERVES.get(kind, _CHOICES)),
        ],
        expected=_expected(values, survey_row.target, survey_row.lasting) if problem is None else [],
        problem=problem,
    )


def _expected(values: Mapping[str, str], people: int, lasting: bool) -> list[dict[str, Any]]:
    """Return the expected errors for the first rendering; while the user types, the page calls the API."""
    fields = {key: value for key, value in values.items() if key in SurveyQuestion.__dataclass_fields__ and value}
    if fields.get("type") == "scale":
        fields.pop("options", None)
    try:
        return draft.expected(
            SurveyQuestion.read({**fields, "id": fields.get("id", "q"), "text": fields.get("text", "?")}),
            people,
            lasting,
        )
    except BadForm:  # not complete yet
        return []

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
def begin(request: Request, name: str, here: Here, type: str = "yes_no") -> Response:  # noqa: A002
    """Show the form for a question of a type."""
    if type not in TYPES:
        raise NotHere("there is no such type of question.")
    return _draw(request, here, name, {"type": type, "levels": _lines(LEVELS), **_FRESH.get(type, {})})


@router.post("/surveys/{name}/add")
def add(request: Request, name: str, here: Here, sent: Sent) -> Response:
    """Add a question, or only show its expected error."""
    return _put(request, here, name, sent)


@router.get("/surveys/{name}/questions/{question}")
def edit(request: Request, name: str, question: str, here: Here) -> Response:
    """Show the form for an existing question."""
    with here.hub.database.reading() as session:
        asked = {one.id: one for one in asked_of(survey.find_own(session, name, here.who))}
    if question not in asked:
        raise NotHere("the survey has no such question.")
    return _draw(request, here, name, _values(asked[question]), question)


@router.post("/surveys/{name}/questions/{question}")
def change(request: Request, name: str, question: str, here: Here, sent: Sent) -> Response:
    """Change a question."""
    return _put(request, here, name, sent, question)


@router.post("/surveys/{name}/questions/{question}/move")
def move(request: Request, name: str, question: str, here: Here, sent: Sent) -> Response:
    """Move a question up or down by one."""
    _read_before(here, name)
    with here.hub.database.writing() as session:
        draft.move(here.hub, session, survey.find_own(session, name, here.who), question, sent.text("where", "Where"))
    return go(request, f"/surveys/{name}#q-{question}")


@router.post("/surveys/{name}/questions/{question}/delete")
def delete(request: Request, name: str, question: str, here: Here) -> Response:
    """Remove a question."""
    _read_before(here, name)
    with here.hub.database.writing() as session:
        draft.remove(here.hub, session, survey.find_own(session, name, here.who), question)
    return go(request, f"/surveys/{name}", said="The question is taken out.")


@router.get("/surveys/{name}/preview")
def preview(request: Request, name: str, here: Here) -> Response:
    """Show the survey as a respondent will see it; nothing can be sent from here."""
    with here.hub.database.reading() as session:
        found = survey.find_own(session, name, here.who)
    return page(request, "survey_preview.html", survey=found, asked=asked_of(found))


def _put(request: Request, here: Visitor, name: str, sent: Form, instead_of: str = "") -> Response:
    told = _told(sent)
    try:
        SurveyQuestion.read({**told, "id": told.get("id") or "q"})
        if sent.get("action") == "look":
            return _draw(request, here, name, {**dict(sent), **_shown(told)}, instead_of)
        _read_before(here, name)
        with here.hub.database.writing() as session:
            found = survey.find_own(session, name, here.who)
            read = draft.put(here.hub, session, found, told, instead_of)
    except BadForm as error:
        return _draw(request, here, name, {**dict(sent), **_shown(told)}, instead_of, problem=error)
    return go(request, f"/surveys/{name}#q-{read.id}", said="The question is saved.")


def _read_before(here: Visitor, name: str) -> None:
    """Read the existing questions before a transaction begins: the first time takes up to seconds."""
    with here.hub.database.reading() as session:
        found = survey.find_own(session, name, here.who)
    asked_of(found)


def _told(sent: Form) -> dict[str, Any]:
    """Return the input of `Asked.read`: the fields of this type, and no others."""
    kind = sent.get("type", "")
    wanted = ("id", "text", "help", "levels", "mechanism", *_FIELDS.get(kind, ()))
    told: dict[str, Any] = {"type": kind}
    told |= {one: sent.get(one, "").strip() for one in wanted if one != "ends" and sent.get(one, "").strip()}
    if "ends" in wanted and (sent.maybe("first") or sent.maybe("last")):
        told["options"] = [sent.maybe("first", most=120), sent.maybe("last", most=120)]
    return told


def _shown(told: Mapping[str, Any]) -> dict[str, str]:
    return {key: value for key, value in told.items() if isinstance(value, str)}


def _values(asked: SurveyQuestion) -> dict[str, str]:
    """Return a question as its form shows it."""
    told = {name: str(value) for name, value in asked.to_json().items() if isinstance(value, str | int)}
    if asked.type == "scale" and asked.options:
        told |= {"first": asked.options[0], "last": asked.options[1]}
    else:
        told["options"] = "\n".join(asked.options)
    return told | {"levels": _lines(asked.levels)}


def _lines(levels: Sequence[PrivacyLevel]) -> str:
    """Return levels as people write them: 0.5 for 1/2, if it is exact."""
    shown = [(one, show(Fraction(one.epsilon))) for one in levels]
    exact = [text if text.replace(".", "", 1).isdigit() and Fraction(text) == Fraction(one.epsilon) else one.epsilon
             for one, text in shown]  # fmt: skip
    return "\n".join(f"{one.name} {text}" for one, text in zip(levels, exact, strict=True))


def _draw(
    request: Request,
    here: Visitor,
    name: str,
    values: Mapping[str, str],
    question: str = "",
    problem: CloisterError | None = None,
) -> Response:
    with here.hub.database.reading() as session:
        found = survey.find_own(session, name, here.who)
    if found.state != "draft":
        raise NotNow("a survey that was published cannot be changed: people have answered exactly this.")
    kind = values.get("type", "")
    return page(
        request,
        "survey_question.html",
        200 if problem is None else status_of(problem),
        survey=found,
        question=question,
        kind=kind,
        kind_title=TITLES.get(kind, "Question"),
        fields=_FIELDS.get(kind, ()),
        values=values,
        periods=PERIODS,
        mechanisms=[
            ("", "The best at every level"),
            *((one, one.replace("-", " ")) for one in _SERVES.get(kind, _CHOICES)),
        ],
        expected=_expected(values, found.target, found.lasting) if problem is None else [],
        problem=problem,
    )


def _expected(values: Mapping[str, str], people: int, lasting: bool) -> list[dict[str, Any]]:
    """Return the expected errors for the first rendering; while the user types, the page calls the API."""
    kept = {key: value for key, value in values.items() if key in SurveyQuestion.__dataclass_fields__ and value}
    if kept.get("type") == "scale":
        kept.pop("options", None)
    try:
        return draft.expected(
            SurveyQuestion.read({**kept, "id": kept.get("id", "q"), "text": kept.get("text", "?")}), people, lasting
        )
    except BadForm:  # not complete yet
        return []

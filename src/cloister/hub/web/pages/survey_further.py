"""Further analyses of a survey: predict one answer from others, and compare with a central release."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from cloister.hub.surveys import comparison, sentences
from cloister.hub.surveys.results import Results
from cloister.hub.web import survey_charts
from cloister.hub.web.context import Visitor, page, signed_in
from cloister.hub.web.pages.survey_results import found_for, size_of, svg, theme_of
from cloister.hub.web.words import loss_text
from cloister.privacy.errors import BadForm, NotHere, NotNow

__all__ = ["router"]

router = APIRouter()
Here = Annotated[Visitor, Depends(signed_in)]


@router.get("/surveys/{name}/model")
def model(
    request: Request,
    name: str,
    here: Here,
    wave: int = 0,
    label: str = "",
    feature: Annotated[Sequence[str], Query(max_length=60)] = (),
) -> Response:
    """Show naive Bayes from matched reports: its card, and its prediction."""
    with here.hub.database.reading() as session:
        found, read = found_for(here, session, name, wave)
    made, problem, likely = None, None, None
    if label:
        try:
            made = read.model(label, list(feature))
            likely = _likely(request, read, made, list(made.feature_prob_))
        except (BadForm, NotHere, NotNow) as error:
            made, problem = None, error
    return page(
        request,
        "survey_model.html",
        survey=found,
        results=read,
        choosable=[(key, one.asked.text) for key, one in read.found.items() if one.question.kind == "choice"],
        label=label,
        chosen=list(feature),
        model=made,
        features=list(made.feature_prob_) if made is not None else [],
        likely=likely,
        answers={key: value for key, value in request.query_params.items() if key.startswith("a-")},
        problem=problem,
        share=sentences.share,
    )


def _likely(request: Request, read: Results, made: Any, features: Sequence[str]) -> list[tuple[str, float]] | None:
    """Return the probability of each class for the answers in the address, if all are there."""
    answers = [request.query_params.get(f"a-{name}", "") for name in features]
    if not all(answers):
        return None
    for name, answer in zip(features, answers, strict=True):
        if answer not in read.about(name).asked.choices:
            raise BadForm(f"{name} has no such choice.")
    found = made.predict_proba([answers])[0]
    return sorted(zip(map(str, made.classes_), map(float, found), strict=True), key=lambda pair: -pair[1])


@router.get("/surveys/{name}/beside")
def side_by_side(request: Request, name: str, here: Here, wave: int = 0, question: str = "", job: int = 0) -> Response:
    """Show a question beside a finished query of the same user."""
    sides, problem, chosen = None, None, None
    with here.hub.database.reading() as session:
        found, read = found_for(here, session, name, wave)
        fits = [
            (key, one.asked.text, comparison.fitting(session, here.who, one))
            for key, one in read.found.items()
            if one.finding is not None
        ]
        if question and job:
            try:
                chosen, *sides = comparison.both(session, here.who, read.about(question), job)
            except NotHere as error:
                problem = error
    return page(
        request,
        "survey_beside.html",
        survey=found,
        results=read,
        fits=[one for one in fits if one[2]],
        question=question,
        asked=read.about(question) if sides else None,
        job=chosen,
        sides=sides,
        cost=loss_text(chosen.loss) if chosen is not None and chosen.loss else "nothing new",
        problem=problem,
        share=sentences.share,
    )


@router.get("/surveys/{name}/beside.svg")
def side_by_side_chart(
    name: str, here: Here, wave: int = 0, question: str = "", job: int = 0, theme: str = "light", size: str = "wide"
) -> Response:
    """Return a chart of both."""
    with here.hub.database.reading() as session:
        _, read = found_for(here, session, name, wave)
        if not question or not job:
            raise BadForm("name a question of the survey, and one of your answers.")
        _, *sides = comparison.both(session, here.who, read.about(question), job)
    points = [
        {"group": choice, "source": side.source, "value": value, "low": low, "high": high}
        for choice in sides[0].shares
        for side in sides
        for value, low, high in [side.shares[choice]]
    ]
    return svg(survey_charts.both(points, theme_of(theme), size_of(size)))

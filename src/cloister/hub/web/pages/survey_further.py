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
    visitor: Here,
    wave: int = 0,
    label: str = "",
    feature: Annotated[Sequence[str], Query(max_length=60)] = (),
) -> Response:
    """Show naive Bayes from matched reports: its card, and its prediction."""
    with visitor.hub.database.reading() as session:
        survey, read = found_for(visitor, session, name, wave)
    fitted, problem, likely = None, None, None
    if label:
        try:
            fitted = read.model(label, list(feature))
            likely = _likely(request, read, fitted, list(fitted.feature_prob_))
        except (BadForm, NotHere, NotNow) as error:
            fitted, problem = None, error
    return page(
        request,
        "survey_model.html",
        survey=survey,
        results=read,
        choosable=[(key, result.asked.text) for key, result in read.found.items() if result.question.kind == "choice"],
        label=label,
        chosen=list(feature),
        model=fitted,
        features=list(fitted.feature_prob_) if fitted is not None else [],
        likely=likely,
        answers={key: value for key, value in request.query_params.items() if key.startswith("a-")},
        problem=problem,
        share=sentences.share,
    )


def _likely(request: Request, read: Results, fitted: Any, features: Sequence[str]) -> list[tuple[str, float]] | None:
    """Return the probability of each class for the answers in the address, if all are there."""
    answers = [request.query_params.get(f"a-{name}", "") for name in features]
    if not all(answers):
        return None
    for name, answer in zip(features, answers, strict=True):
        if answer not in read.about(name).asked.choices:
            raise BadForm(f"{name} has no such choice.")
    probabilities = fitted.predict_proba([answers])[0]
    return sorted(zip(map(str, fitted.classes_), map(float, probabilities), strict=True), key=lambda pair: -pair[1])


@router.get("/surveys/{name}/beside")
def side_by_side(
    request: Request, name: str, visitor: Here, wave: int = 0, question: str = "", job: int = 0
) -> Response:
    """Show a question beside a finished query of the same user."""
    sides, problem, chosen = None, None, None
    with visitor.hub.database.reading() as session:
        survey, read = found_for(visitor, session, name, wave)
        counts = comparison.counted(session, visitor.who)
        fits = [
            (key, result.asked.text, comparison.fitting(counts, result))
            for key, result in read.found.items()
            if result.finding is not None
        ]
        if question and job:
            try:
                chosen, *sides = comparison.both(session, visitor.who, read.about(question), job)
            except NotHere as error:
                problem = error
    return page(
        request,
        "survey_beside.html",
        survey=survey,
        results=read,
        fits=[fit for fit in fits if fit[2]],
        question=question,
        asked=read.about(question) if sides else None,
        job=chosen,
        sides=sides,
        cost=loss_text(chosen.loss) if chosen is not None and chosen.loss else "nothing new",
        problem=problem,
        share=sentences.share,
        share_limits=sentences.share_limits,
        most=comparison.MOST_JOBS,
        longest=comparison.LONGEST_TEXT,
    )


@router.get("/surveys/{name}/beside.svg")
def side_by_side_chart(
    name: str, visitor: Here, wave: int = 0, question: str = "", job: int = 0, theme: str = "light", size: str = "wide"
) -> Response:
    """Return a chart of both."""
    with visitor.hub.database.reading() as session:
        _, read = found_for(visitor, session, name, wave)
        if not question or not job:
            raise BadForm("name a question of the survey, and one of your answers.")
        _, *sides = comparison.both(session, visitor.who, read.about(question), job)
    points = [
        {"group": choice, "source": side.source, "value": value, "low": low, "high": high}
        for choice in sides[0].shares
        for side in sides
        for value, low, high in [side.shares[choice]]
    ]
    return svg(survey_charts.both(points, theme_of(theme), size_of(size)))

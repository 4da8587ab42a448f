"""Page of a trained model's predictions on public rows."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response

from cloister.hub.jobs.predictions import (
    LARGEST_FILE,
    MOST_ROWS,
    AskedModel,
    Predictions,
    find_model,
    predict,
    read_file,
)
from cloister.hub.policy.predictions import shows
from cloister.hub.web.context import Visitor, form, page, signed_in
from cloister.hub.web.forms import Form
from cloister.hub.web.problems import status_of
from cloister.privacy.errors import CloisterError, Denied, NotHere

__all__ = ["router"]

router = APIRouter()
SignedIn = Annotated[Visitor, Depends(signed_in)]

_SHOWN = 1000  # rows of an answer on the page; a program gets all
_CLASSES = [
    ("label", "The class"),
    ("top 3", "The three likeliest classes"),
    ("rounded 2", "Probabilities, two decimals"),
]
_NUMBERS = [("rounded 2", "Two significant digits")]
_FULL = ("full", "All that the model computes")


@router.get("/jobs/{number}/predictions")
def ask(request: Request, number: int, visitor: SignedIn) -> Response:
    """Show the form for rows."""
    return _page(request, find_model(visitor.hub, visitor.who, number))


@router.post("/jobs/{number}/predictions")
async def answer(request: Request, number: int, visitor: SignedIn) -> Response:
    """Show the answers to rows, or what is wrong with them. A file is read only after the visitor's right is known."""
    model = await run_in_threadpool(find_model, visitor.hub, visitor.who, number)
    try:
        return await run_in_threadpool(_answered, request, visitor, model, await form(request))
    finally:
        await request.close()  # a file that was refused unread, too


def _answered(request: Request, visitor: Visitor, model: AskedModel, sent: Form) -> Response:
    file = sent.file("file")
    try:
        rows: str | dict[str, list[str]] = sent.get("rows", "")
        if file is not None:
            with file.file as opened:
                rows = read_file(visitor.hub, visitor.who, opened.read(LARGEST_FILE + 1))
        told = predict(visitor.hub, visitor.who, model.job.id, rows, sent.get("show", ""), visitor.environment)
    except (NotHere, Denied):
        raise
    except CloisterError as error:
        return _page(request, model, problem=error, typed=sent)
    return _page(request, model, told=told, typed=sent)


def _page(
    request: Request,
    model: AskedModel,
    *,
    told: Predictions | None = None,
    typed: Form | None = None,
    problem: CloisterError | None = None,
) -> Response:
    every = [*(_CLASSES if model.card["classes"] else _NUMBERS), _FULL]
    choices = [(show, label) for show, label in every if shows(model.granted, show)]
    if model.granted not in [show for show, _ in every]:  # such as top 2 or rounded 1
        choices.append((model.granted, f"All that the policy shows: {model.granted}"))
    return page(
        request,
        "predictions.html",
        200 if problem is None else status_of(problem),
        model=model,
        job=model.job,
        result=model.card,
        choices=choices,
        rows="" if typed is None else typed.get("rows", ""),
        show=model.usual() if typed is None else typed.get("show", ""),
        problem=problem,
        heads=_heads(told),
        answers=[] if told is None else [_cells(cells) for cells in told.answers[:_SHOWN]],
        total=0 if told is None else len(told.answers),
        most=MOST_ROWS,
        largest=LARGEST_FILE // 2**20,
    )


def _heads(told: Predictions | None) -> list[str]:
    """Return the heads of the columns of answers."""
    if told is None or not told.answers:
        return []
    cells = _cells(told.answers[0])
    if told.policy.startswith("top"):
        return [f"Likeliest {rank + 1}" for rank in range(len(cells))]
    return [f"Probability of {name}" for name in told.classes] if isinstance(told.answers[0], list) else ["Answer"]


def _cells(answer: Any) -> list[str]:
    """Return an answer as texts of a row."""
    return [
        f"{cell:.6g}" if isinstance(cell, float) else str(cell)
        for cell in (answer if isinstance(answer, list) else [answer])
    ]

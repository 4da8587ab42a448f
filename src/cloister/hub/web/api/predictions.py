"""Prediction API: the answers of a trained model to public rows."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from cloister.client.wire import PredictionLabel
from cloister.hub.jobs.predictions import MOST_ROWS, predict
from cloister.hub.web.context import Visitor, scoped

__all__ = ["router"]

router = APIRouter(tags=["work"])
MayWork = Annotated[Visitor, Depends(scoped("work"))]


class PublicRows(BaseModel):
    """Public rows to predict."""

    model_config = ConfigDict(extra="forbid")
    rows: str = Field(max_length=900_000, description=f"CSV with a header, at most {MOST_ROWS:,} rows")
    show: str = Field(
        "",
        max_length=20,
        description="label, top 3, rounded 2 or full; empty: labels, or numbers as far as the policy shows them",
    )


class PredictionFacts(BaseModel):
    """Answers of a model."""

    policy: str = Field(description="what is shown")
    classes: list[Any] = Field(description="the classes, in the order of probabilities; empty for numbers")
    answers: list[Any] = Field(description="a class, classes in order, probabilities or a number for each row")
    signature: str = Field(description="of the hub, over the job, the rows as they were sent, and the answers")


@router.post("/api/jobs/{number}/predictions")
def predictions(number: int, given: PublicRows, visitor: MayWork) -> PredictionFacts:
    """Return the answers of a model to public rows. They are counted and logged, not kept.

    The job is your own: one that trained the model, or one of type predict about somebody else's model. For that one
    the policy decides anew how much is shown, and of how many rows.
    """
    told = predict(visitor.hub, visitor.who, number, given.rows, given.show, visitor.environment)
    label = PredictionLabel(number, given.rows, given.show, (told.policy, told.classes, told.answers))
    signature = visitor.hub.key.sign(label.statement())
    return PredictionFacts(policy=told.policy, classes=told.classes, answers=told.answers, signature=signature)

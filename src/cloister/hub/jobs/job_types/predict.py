"""The right to ask a trained model about public rows: paid for once by who asks, for good.

    number of its job ──► its facts ──► its loss, charged to the user's own account ──► jobs/predictions.py
                                        once; the dataset has paid already

A model is a stored release. A user who receives its answers for the first time is charged for the whole of it, as they
are for an answer from the record (query/analyst.py), so that their account bounds everything they have learned.

A model is shown whole or not at all: for a role that sees only some rows of its table, or not each of its columns as it
is, there is no such model.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.data.schema import Schema
from cloister.dataset import Dataset
from cloister.hub.core.models import Job
from cloister.hub.jobs.job_types.job_type import Done, Field, Planned, Progress, Whole, read_form
from cloister.hub.jobs.job_types.train import Train
from cloister.hub.policy import views
from cloister.hub.policy.predictions import PREDICT
from cloister.hub.policy.views import TableView
from cloister.privacy.errors import BadForm
from cloister.privacy.loss import Loss
from cloister.privacy.signing import fingerprint

__all__ = ["Predict"]

_CARD = ("estimator", "table", "target", "features", "classes")  # of a model card, for who may ask the model


class Predict:
    """Predictions of a model that somebody has trained."""

    name: ClassVar[str] = "predict"
    title: ClassVar[str] = "Ask a trained model"
    operation: ClassVar[str] = PREDICT
    template: ClassVar[str] = "result_predict.html"
    fields: ClassVar[tuple[Field, ...]] = (
        Field(
            "model",
            "Model",
            "number",
            "The number of the job that trained it. Whoever trained it can tell you.",
            most=13,
            missing="'Model' is missing. Write the number of the job that trained it.",
            rule=Whole(1, 2**31 - 1),
        ),
    )

    def parse(self, form: Mapping[str, Any]) -> dict[str, Any]:
        """Read the number of the job."""
        return read_form(self.fields, form)

    def resolve(
        self, session: Session, dataset_id: int, person_id: int, parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the number with the facts of the model: its card, its loss, the digest of its file's job.

        Raises:
            BadForm: no job of that number has left a model of this dataset that predicts.
        """
        number = int(parameters["model"])
        wanted = sa.select(Job.result, Job.loss, Job.digest, Job.person_id).where(
            Job.id == number, Job.dataset_id == dataset_id, Job.kind == Train.name, Job.state == "done"
        )
        found = session.execute(wanted).first()
        if found is None or not found.result or not found.result.get("target") or "model" not in found.result:
            raise _none(number)
        card = {name: found.result[name] for name in _CARD}
        mine = found.person_id == person_id
        return {"model": str(number), **card, "loss": found.loss, "digest": found.digest, "mine": mine}

    def require_shown(
        self, schema: Schema, view: Mapping[str, TableView] | None, parameters: Mapping[str, Any]
    ) -> None:
        """Refuse a view that does not show every row, and each column of the model as it is."""
        shown = views.visible(schema, view).get(parameters["table"])
        columns = (*parameters["features"], parameters["target"])
        if shown is None or not views.shows_columns(shown, schema.tables[parameters["table"]], columns):
            raise _none(int(parameters["model"]))

    def tables(self, schema: Schema, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the table that the model has learned from."""
        if parameters["table"] not in schema.tables:
            raise _none(int(parameters["model"]))
        return (parameters["table"],)

    def plan(self, data: Dataset, parameters: Mapping[str, Any]) -> Planned:
        """Return the cost: nothing to the dataset; the model's loss to a user who has not paid for it yet."""
        nothing = Loss.nothing(data.account.cap.measure, data.account.cap.relation)
        owed = _owed(data, parameters)
        lines = (
            f"{'model':<11}{parameters['estimator']}, trained by job {parameters['model']}",
            f"{'predicts':<11}{parameters['target']} from {', '.join(parameters['features'])}",
        )
        note = (
            "The model's loss is charged to your account once. Then you may ask it as often as the policy allows."
            if owed.amount
            else "Your account has paid for this model already."
        )
        return Planned(nothing, owed, lines, notes=(note,))

    def run(self, data: Dataset, parameters: Mapping[str, Any], progress: Progress) -> Done:
        """Charge the user's account, unless it has paid. No row is read, and the dataset is charged nothing."""
        owed = _owed(data, parameters)
        reader = data.reader
        assert reader is not None  # on a hub every job is somebody's
        if owed.amount:
            reader.account.charge_all([owed], reader.request(f"ask the model of job {parameters['model']}"))
        if not parameters["mine"]:
            reader.received.add([_release(parameters)])
        facts = {name: parameters[name] for name in ("model", "digest", *_CARD)}
        return Done({"asked": facts})


def _owed(data: Dataset, parameters: Mapping[str, Any]) -> Loss:
    """Return what the user's account still has to pay for the model."""
    reader = data.reader
    assert reader is not None
    if parameters["mine"] or reader.received.has(_release(parameters)):
        return Loss.nothing(reader.account.cap.measure, reader.account.cap.relation)
    return reader.account.price(Loss.from_json(parameters["loss"]))


def _release(parameters: Mapping[str, Any]) -> str:
    """Return the model's name among the releases that a user has received."""
    return fingerprint(f"model of job {parameters['model']}: {parameters['digest']}")


def _none(number: int) -> BadForm:
    """Return one error for a model that does not exist and for one that this user may not ask."""
    return BadForm(f"this dataset has no model of a job {number} that you may ask.")

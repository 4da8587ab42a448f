"""Training of a model: from an estimator, a target, features and a budget to a model card and a signed file.

    form.py         the estimators, and a form read against what is public of the user's tables
    training.py     the rehearsal on empty tables, and the fit: one charge, evaluation included
    model_card.py   a fitted model as numbers for its page

Rows are read only inside the fit, after the charge. Every problem with a request is found before that, by running it on
empty tables.
"""

import base64
from collections.abc import Mapping
from typing import Any, ClassVar

from cloister.data.schema import Schema
from cloister.dataset import Dataset
from cloister.hub.jobs.job_types.job_type import (
    Done,
    Field,
    Names,
    Planned,
    Progress,
    Share,
    Whole,
    read_form,
    table_named,
)
from cloister.hub.jobs.job_types.train.form import OFFERS, TrainingRequest, read
from cloister.privacy.errors import BadForm

__all__ = ["Train"]


class Train:
    """Private learning."""

    name: ClassVar[str] = "train"
    title: ClassVar[str] = "Train a model"
    operation: ClassVar[str] = "train"
    template: ClassVar[str] = "result_train.html"
    fields: ClassVar[tuple[Field, ...]] = (
        Field(
            "estimator",
            "Estimator",
            "choice",
            "Most are scikit-learn's.",
            "LogisticRegression",
            choices=tuple(OFFERS),
        ),
        Field("table", "Table", "table", "What it learns from."),
        Field("target", "Target", "column", "The column to predict. None for KMeans and PCA.", required=False),
        Field(
            "features",
            "Features",
            "column",
            "Columns with commas between; all that fit if empty.",
            required=False,
            most=4000,
            rule=Names(),
        ),
        Field(
            "spend",
            "Privacy budget",
            "loss",
            "All of it is charged: for the model, and for its evaluation.",
            "rho 0.02",
            missing="'Privacy budget' is missing. Write what the model may cost, such as rho 0.02.",
        ),
        Field(
            "evaluate",
            "Share to evaluate",
            "number",
            "Share of the spend, such as 0.2.",
            required=False,
            most=20,
            rule=Share("0.2"),
        ),
        Field("group", "Compare groups of", "column", "A column; needs a share to evaluate.", required=False),
        Field(
            "parts",
            "Clusters or components",
            "number",
            "Their number, for KMeans and PCA.",
            required=False,
            most=10,
            rule=Whole(1, 100),
        ),
    )

    def parse(self, form: Mapping[str, Any]) -> dict[str, Any]:
        """Read the estimator, its target and features, and the cost."""
        read = read_form(self.fields, form)
        estimator = read["estimator"]
        if bool(read["target"]) != bool(OFFERS[estimator].predicts):
            word = "needs a target: the column to predict" if OFFERS[estimator].predicts else "has no target"
            raise BadForm(f"{estimator} {word}.")
        if read["group"] and not read["evaluate"]:
            raise BadForm("groups are compared in an evaluation. Give a share of the spend for it, such as 0.2.")
        if read["evaluate"] and not read["target"]:
            raise BadForm(f"{estimator} predicts nothing that could be right or wrong. Leave the evaluation out.")
        return read

    def tables(self, schema: Schema, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the one table, as the schema spells it."""
        return (table_named(schema, parameters["table"], "learn from"),)

    def plan(self, data: Dataset, parameters: Mapping[str, Any]) -> Planned:
        """Return the cost, and the errors expected in theory."""
        from cloister.hub.jobs.job_types.train.training import expected, rehearse

        request = self._asked(data, parameters)
        laws = rehearse(data, request)
        loss = data.account.price(request.budget.loss)
        user_loss = loss if data.reader is None else data.reader.account.price(request.budget.loss)
        errors, notes = expected(data, request, laws)
        return Planned(loss, user_loss, (*request.lines(data.unit), *_noise(laws)), tuple(errors), (), tuple(notes))

    def run(self, data: Dataset, parameters: Mapping[str, Any], progress: Progress) -> Done:
        """Fit, evaluate on request, and sign the result."""
        from cloister.hub.jobs.job_types.train.model_card import card
        from cloister.hub.jobs.job_types.train.training import carry_out, rehearse, steps_of
        from cloister.learn.persistence import pack

        request = self._asked(data, parameters)
        progress(0.02, "rehearsing on nobody")
        steps = steps_of(rehearse(data, request))
        progress(0.05, "training")
        model, evaluation, receipt = carry_out(data, request, steps, progress)
        progress(0.97, "signing the model")
        file = pack(model, data.account.book.key)
        result = {
            **card(model, request),
            "unit": str(data.unit),
            "evaluation": None if evaluation is None else evaluation.to_json(),
            "key": str(data.account.book.key.public),
            "model": base64.b64encode(file).decode("ascii"),
        }
        return Done(result, (receipt,))

    def _asked(self, data: Dataset, parameters: Mapping[str, Any]) -> TrainingRequest:
        (table,) = self.tables(data.schema, parameters)
        return read(data, table, parameters)


def _noise(laws: list[Any]) -> list[str]:
    from cloister.hub.jobs.job_types.train.training import steps_of

    names, count = ", ".join(dict.fromkeys(law.name for law in laws)), steps_of(laws)
    steps = f"{count} step{'' if count == 1 else 's'}"
    return [f"{'noise':<11}{names}, in {steps} under one charge"]

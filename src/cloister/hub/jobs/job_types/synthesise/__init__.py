"""Synthetic table: from a generator, columns and a budget to rows and their expected errors.

    form.py      the form, the charge, the table and its score
    result.py    a table as numbers and charts for its page

Tables that an owner made elsewhere are checked in `jobs/external_tables/check.py`.

Rows are read only inside the synthesis, after the charge. A plan runs the generator on empty tables, so every problem
with a request is found before that.
"""

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
from cloister.hub.jobs.job_types.synthesise.form import MOST_CELLS, MOST_ROWS, SynthesisRequest, read

__all__ = ["Synthesise"]

# Generators that measure marginals: their plans are fast, and give the expected errors.
_OFFERED = ("aim", "mixture", "mst", "privbayes", "independent")


class Synthesise:
    """Private synthetic data."""

    name: ClassVar[str] = "synthesise"
    title: ClassVar[str] = "Make a synthetic table"
    operation: ClassVar[str] = "synthesise"
    template: ClassVar[str] = "result_synth.html"
    fields: ClassVar[tuple[Field, ...]] = (
        Field(
            "method",
            "Method",
            "choice",
            "aim for most tables; mixture for many columns of few values.",
            "aim",
            choices=_OFFERED,
        ),
        Field("table", "Table", "table", "What it is made from."),
        Field(
            "columns",
            "Columns",
            "column",
            "With commas between; all that can be used if empty.",
            required=False,
            most=4000,
            rule=Names(),
        ),
        Field(
            "spend",
            "Privacy budget",
            "loss",
            "All of it is charged: for the table, and for its score.",
            "rho 0.05",
            missing="'Privacy budget' is missing. Write what the table may cost, such as rho 0.05.",
        ),
        Field(
            "rows",
            "Rows",
            "number",
            f"At most {MOST_ROWS:,}; about as many as there are if empty.",
            required=False,
            most=12,
            rule=Whole(1, MOST_ROWS),
        ),
        Field(
            "bins",
            "Bins",
            "number",
            "For numbers and dates; as the method likes if empty.",
            required=False,
            most=12,
            rule=Whole(1, 256),
        ),
        Field(
            "score",
            "Share to score",
            "number",
            "Share of the spend that pays for errors you may publish, such as 0.1.",
            required=False,
            most=20,
            rule=Share("0.1"),
        ),
    )

    def parse(self, form: Mapping[str, Any]) -> dict[str, Any]:
        """Read the method, the columns, the number of rows, and the cost."""
        return read_form(self.fields, form)

    def tables(self, schema: Schema, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the one table, as the schema spells it."""
        return (table_named(schema, parameters["table"], "make it from"),)

    def plan(self, data: Dataset, parameters: Mapping[str, Any]) -> Planned:
        """Return the cost, the planned measurements, and the error expected from their noise."""
        from cloister.synth.planning import plan

        request = self._asked(data, parameters)
        planned = plan(data, request.method, spend=request.making, rows=request.rows, **request.public)
        request.check_size(planned.domain.names)
        loss = data.account.price(request.budget.loss)
        user_loss = loss if data.reader is None else data.reader.account.price(request.budget.loss)
        lines, notes = planned.lines(), planned.notes()
        if request.share:
            lines += [f"{'score':<12}{request.scoring} beside that buys errors that may be told"]
        notes.append(f"A table here has at most {MOST_ROWS:,} rows and {MOST_CELLS:,} values.")
        return Planned(loss, user_loss, tuple(lines), tuple(planned.errors()), (), tuple(notes))

    def run(self, data: Dataset, parameters: Mapping[str, Any], progress: Progress) -> Done:
        """Make the table, score it on request, and sign the result."""
        from cloister.hub.jobs.job_types.synthesise.form import carry_out
        from cloister.hub.jobs.job_types.synthesise.result import shown

        request = self._asked(data, parameters)
        table, score, receipts = carry_out(data, request, progress)
        progress(0.97, "signing the table")
        return Done(shown(table, score, request, data.account.book.key), receipts)

    def _asked(self, data: Dataset, parameters: Mapping[str, Any]) -> SynthesisRequest:
        (table,) = self.tables(data.schema, parameters)
        return read(data, table, parameters)

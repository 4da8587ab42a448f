"""Synthetic table: from a generator, columns and a budget to rows and their expected errors.

    form.py      the form, the charge, the table and its score
    result.py    a table as numbers and charts for its page

Tables that an owner made elsewhere are checked in `jobs/external_tables/check.py`.

Rows are read only inside the synthesis, after the charge. A plan runs the generator on empty tables, so every problem
with a request is found before that.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from cloister.client import wire
from cloister.data.schema import Schema
from cloister.dataset import Dataset
from cloister.hub.jobs.job_types.job_type import Done, Field, Planned, Progress, share_text, text_of
from cloister.hub.jobs.job_types.synthesise.form import MOST_CELLS, MOST_ROWS, SynthesisRequest, read
from cloister.privacy.errors import BadForm, BadSchema
from cloister.privacy.number import rational

__all__ = ["Synthesise"]

_LONGEST = 4000
_MOST_BINS = 256
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
        Field("columns", "Columns", "column", "With commas between; all that can be used if empty.", required=False),
        Field("spend", "Spend", "loss", "All of it is charged: for the table, and for its score.", "rho 0.05"),
        Field("rows", "Rows", "number", f"At most {MOST_ROWS:,}; about as many as there are if empty.", required=False),
        Field("bins", "Bins", "number", "For numbers and dates; as the method likes if empty.", required=False),
        Field("score", "Share to score", "number", "Such as 0.1: that part buys errors you may tell.", required=False),
    )

    def parse(self, form: Mapping[str, Any]) -> dict[str, Any]:
        """Read the method, the columns, the number of rows, and the cost."""
        method = text_of(form, "method", "Method", default="aim")
        if method not in _OFFERED:
            raise BadForm(f"'Method' is one of {', '.join(_OFFERED)}.")
        spend = text_of(form, "spend", "Spend")
        if not spend:
            raise BadForm("'Spend' is missing. Write what the table may cost, such as rho 0.05.")
        listed = form.get("columns")
        if isinstance(listed, list | tuple):
            if not all(isinstance(one, str) and "," not in one for one in listed):
                raise BadForm("'Columns' is a list of names of columns.")
            form = {**form, "columns": ", ".join(listed)}
        names = [one.strip() for one in text_of(form, "columns", "Columns", most=_LONGEST).split(",")]
        return {
            "method": method,
            "table": text_of(form, "table", "Table"),
            "columns": ", ".join(dict.fromkeys(one for one in names if one)),
            "spend": wire.loss_to_text(wire.parse_loss(spend)),
            "rows": _whole(text_of(form, "rows", "Rows", most=12), "Rows", MOST_ROWS),
            "bins": _whole(text_of(form, "bins", "Bins", most=12), "Bins", _MOST_BINS),
            "score": _share(text_of(form, "score", "Share to score", most=20)),
        }

    def tables(self, schema: Schema, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the one table, as the schema spells it."""
        private = [table.name for table in schema.tables.values() if not table.public]
        asked = parameters["table"] or (private[0] if len(private) == 1 else "")
        found = [name for name in private if name.lower() == asked.lower()]
        if not found:
            raise BadSchema(f"say which table to make it from: {', '.join(private)}.")
        return (found[0],)

    def plan(self, data: Dataset, parameters: Mapping[str, Any]) -> Planned:
        """Return the cost, the planned measurements, and the error expected from their noise."""
        from cloister.synth.planning import plan

        asked = self._asked(data, parameters)
        made = plan(data, asked.method, spend=asked.making, rows=asked.rows, **asked.public)
        asked.check_size(made.domain.names)
        loss = data.account.price(asked.budget.loss)
        own = loss if data.reader is None else data.reader.account.price(asked.budget.loss)
        lines, notes = made.lines(), made.notes()
        if asked.share:
            lines += [f"{'score':<12}{asked.scoring} beside that buys errors that may be told"]
        notes.append(f"A table here has at most {MOST_ROWS:,} rows and {MOST_CELLS:,} values.")
        return Planned(loss, own, tuple(lines), tuple(made.errors()), (), tuple(notes))

    def run(self, data: Dataset, parameters: Mapping[str, Any], progress: Progress) -> Done:
        """Make the table, score it on request, and sign the result."""
        from cloister.hub.jobs.job_types.synthesise.form import carry_out
        from cloister.hub.jobs.job_types.synthesise.result import shown

        asked = self._asked(data, parameters)
        made, score, receipts = carry_out(data, asked, progress)
        progress(0.97, "signing the table")
        return Done(shown(made, score, asked, data.account.book.key), receipts)

    def _asked(self, data: Dataset, parameters: Mapping[str, Any]) -> SynthesisRequest:
        (table,) = self.tables(data.schema, parameters)
        return read(data, table, parameters)


def _whole(given: str, label: str, most: int) -> str:
    text = given.replace(",", "") if re.fullmatch(r"\d{1,3}(,\d{3})+", given) else given  # as pages write it: 200,000
    if text and not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
        raise BadForm(f"'{label}' is a whole number from 1 to {most:,}.")
    return text


def _share(given: str) -> str:
    text = share_text(given)
    if not text or not text.strip("0."):
        return ""
    if not 0 < rational(text, "'Share to score'") < 1:
        raise BadForm("'Share to score' is a part of the spend: above 0 and below 1, such as 0.1.")
    return text

"""Anonymised table: generalised rows of people that satisfy k-anonymity and other models, verified independently.

It is not differentially private, has no epsilon and charges nothing. So the policy says which models it satisfies at
least (`policy/anonymised.py`), and people look at every file before the requester gets it (`jobs/output_check.py`).

Of each person one row is used, so that k rows of a class are k people. Direct identifiers, and the column that names
the unit, are never released. Whether a table can be made at all depends on the rows: only the checkers learn it.

Privacy: none in the sense of a loss. The rows pass the policy's view, and its bounds and categories, first.
"""

import base64
import hashlib
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from cloister.data.schema import Schema
from cloister.dataset import Dataset
from cloister.hub.jobs.job_types.job_type import (
    Done,
    Field,
    Held,
    Names,
    Planned,
    Progress,
    Stopped,
    column_named,
    read_form,
    table_named,
)
from cloister.hub.policy.anonymised import Protection, parse_share, percent_text, share_text
from cloister.privacy.errors import BadForm, BadInput, BadSchema, NotPrivate
from cloister.privacy.loss import Loss

if TYPE_CHECKING:
    from cloister.anonymize.table import AnonymizedTable

__all__ = ["Anonymise", "people_rows"]

MOST_ROWS = 1_000_000
MOST_CELLS = 10_000_000
_SECONDS = 60.0  # of the search for the best recoding; the best one found until then is used
_SHOWN_ROWS = 20
_MOST_TEXT = 20_000  # characters of the verifier's values
_COUNTED = "n"
_FAILED = "something went wrong while it was made, that nobody foresaw"
_STAGE = "making the table, and looking at its risk"


@dataclass(frozen=True, slots=True)
class RowShare:
    """Rule: a share of the rows, at least 0 and below 1, kept as text."""

    def read(self, text: str, label: str) -> str:
        """Return the share. Percentages are accepted."""
        return share_text(parse_share(text))


class Anonymise:
    """Anonymised release of rows."""

    name: ClassVar[str] = "anonymise"
    title: ClassVar[str] = "Make an anonymised table"
    operation: ClassVar[str] = "anonymise"
    template: ClassVar[str] = "result_anonymise.html"
    fields: ClassVar[tuple[Field, ...]] = (
        Field("table", "Table", "table", "What it is made from: one row of each person."),
        Field(
            "quasi",
            "Quasi-identifiers",
            "column",
            "What others may know of a person, such as age and postcode: it is generalised. With commas between; "
            "those of the schema if empty.",
            required=False,
            most=4000,
            rule=Names(),
        ),
        Field(
            "sensitive",
            "Sensitive columns",
            "column",
            "What nobody may learn of a person, such as a diagnosis. With commas between; those of the schema if "
            "empty.",
            required=False,
            most=4000,
            rule=Names(),
        ),
        Field(
            "plain",
            "Other columns",
            "column",
            "Released as they are, so only what others cannot know. None if empty.",
            required=False,
            most=4000,
            rule=Names(),
        ),
        Field(
            "models",
            "Models",
            "text",
            "What every class of rows that look alike satisfies, such as k=5, l=3 (diagnosis), t=0.2 (diagnosis).",
            "k=5",
            most=1000,
        ),
        Field(
            "method",
            "Method",
            "choice",
            "recode: every value of a column at one level, the proven optimum. mondrian: finer classes, leaves no row "
            "out.",
            "recode",
            choices=("recode", "mondrian"),
        ),
        Field(
            "suppression",
            "Rows left out",
            "number",
            "The share of rows that may be left out where they stand out, such as 5%.",
            "5%",
            required=False,
            most=20,
            rule=RowShare(),
        ),
    )

    def parse(self, form: Mapping[str, Any]) -> dict[str, Any]:
        """Read the columns by role, the models and the method."""
        return read_form(self.fields, form)

    def tables(self, schema: Schema, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the one table, as the schema spells it."""
        return (table_named(schema, parameters["table"], "make it from"),)

    def protection(self, data: Dataset, parameters: Mapping[str, Any]) -> Protection:
        """Return the models and the columns by role, from the form, or from the schema where the form is empty.

        Raises:
            BadSchema: a column is not there, has two roles, another role in the schema, or is never released.
            BadInput: the models cannot be read.
        """
        from cloister.anonymize.planning.request import parse_models

        (table,) = self.tables(data.schema, parameters)
        terms, facts = data.columns(table), data.schema.tables[table].columns
        stated = {name: _role(facts.get(name)) for name, term in terms.items() if not term.unit}
        columns = {
            role: _columns(parameters[field], role, stated, table)
            for field, role in (("quasi", "quasi-identifier"), ("sensitive", "sensitive"), ("plain", "plain"))
        }
        every = [name for names in columns.values() for name in names]
        doubled = [name for name in every if every.count(name) > 1]
        if doubled:
            raise BadForm(f"{doubled[0]} has two roles. List it once.")
        if not columns["quasi-identifier"]:
            raise BadForm("name the quasi-identifiers: the columns that others may know of a person.")
        models = parse_models(parameters["models"], columns["sensitive"])
        if any(type(model).__name__ in ("KMap", "DeltaPresence") for model in models):
            raise BadForm("k-map and delta-presence need a table of the population. Ask for k=5, or another k.")
        unnamed = [model.label for model in models if model.column and model.column not in columns["sensitive"]]
        if unnamed:
            raise BadForm(f"{unnamed[0]} is about a column that is not listed as sensitive. List it there.")
        roles = (columns["quasi-identifier"], columns["sensitive"], columns["plain"])
        share = Fraction(0) if parameters["method"] == "mondrian" else parse_share(parameters["suppression"])
        return Protection(models, *roles, share)

    def plan(self, data: Dataset, parameters: Mapping[str, Any]) -> Planned:
        """Return the plan: no cost, the columns, and what happens to the file."""
        asked = self.protection(data, parameters)
        nothing = Loss.nothing(data.account.cap.measure, data.account.cap.relation)
        (table,), unit = self.tables(data.schema, parameters), data.schema.unit.name
        lines = (
            f"{'table':<20}{table}, {'every row' if unit == 'row' else f'one row of each {unit}'}",
            f"{'models':<20}{asked.label}",
            f"{'generalised':<20}{', '.join(asked.quasi)}",
            f"{'sensitive, as is':<20}{', '.join(asked.sensitive) or 'none'}",
            f"{'other, as is':<20}{', '.join(asked.plain) or 'none'}",
            f"{'method':<20}{parameters['method']}, at most {percent_text(asked.suppression)} of the rows left out",
            f"{'cost':<20}no epsilon: not differentially private, and nothing is charged",
        )
        notes = [
            "It has no epsilon: it is not differentially private, and no budget limits it.",
            "Neither the table nor whether it can be made is told before others have looked at it.",
        ]
        if unit == "row":
            notes.append("Rows are protected here, not people: a class of k rows may be fewer than k people.")
        if asked.plain:
            notes.append(f"{', '.join(asked.plain)}: released as they are. Others must not know them of a person.")
        return Planned(nothing, nothing, lines, (), (), tuple(notes), protection=asked)

    def run(self, data: Dataset, parameters: Mapping[str, Any], progress: Progress) -> Done:
        """Make and verify the table, and measure its risk. People look at it before it is released."""
        asked = self.protection(data, parameters)
        (table,) = self.tables(data.schema, parameters)

        def alive(_share: float = 0.0, _words: str = "") -> None:
            """Say that the work goes on. How far it got depends on the rows, and the requester reads this."""
            progress(0.5, _STAGE)

        alive()
        try:
            original = people_rows(data, table, (*asked.quasi, *asked.sensitive, *asked.plain))
            made = _make(data, table, asked, parameters["method"], original, alive)
            made.verify()
            result = _described(made, table)
        except Stopped:
            raise
        except (BadInput, NotPrivate) as error:  # depends on the rows: a matter for the checkers
            return Done({}, held=Held(None, str(error).removeprefix(f"{error.code}: "), asked))
        except Exception as error:  # so may any other, and its message may quote one
            return Done({}, held=Held(None, f"{_FAILED} ({type(error).__name__}).", asked))
        return Done({}, held=Held(result, "", asked))


# Columns by role


def _role(column: Any) -> str:
    """Return the role that the schema states for a column; empty if none."""
    return str(getattr(column, "role", None) or "")


def _columns(typed: str, role: str, stated: Mapping[str, str], table: str) -> tuple[str, ...]:
    """Return the columns of a role: those of the form, or those of the schema if the form names none."""
    wanted = [part.strip() for part in typed.split(",") if part.strip()]
    if not wanted:
        return tuple(name for name, word in stated.items() if word == role and role != "plain")
    names = tuple(column_named(stated, name, table) for name in wanted)
    for name in names:
        if stated[name] == "identifier":
            raise BadSchema(f"{name} identifies a person directly and is never released. Leave it out.")
        if stated[name] in ("quasi-identifier", "sensitive") and stated[name] != role:
            raise BadSchema(f"{name} is a {stated[name]} column by the schema. List it there, or leave it out.")
    return names


# The table


def people_rows(data: Dataset, table: str, names: Sequence[str]) -> pa.Table:
    """Return one row of each person, through the policy's view; each row where the unit is the row.

    Raises:
        BadInput: there are too many rows, or none.
    """
    relation = data.relation(table, names)
    chosen = replace(relation, max_rows=None if relation.max_rows is None else 1).chosen(names)
    counted = f'SELECT COUNT(*) AS "{_COUNTED}" FROM ({chosen.sql(relation.engine.dialect)}) AS counted'  # noqa: S608
    rows = int(relation.engine.run(counted).column(_COUNTED)[0].as_py())
    most = min(MOST_ROWS, MOST_CELLS // len(names))
    if not rows:
        raise BadInput("there is no row that could be released.")
    if rows > most:
        raise BadInput(f"there are {rows:,} rows, and {most:,} of {len(names)} columns can be anonymised here.")
    return chosen.run(relation.engine).select(names)


def _make(
    data: Dataset, table: str, asked: Protection, method: str, rows: pa.Table, progress: Progress
) -> "AnonymizedTable":
    from cloister.anonymize.release import mondrian, recode

    roles: dict[str, Any] = {"quasi": asked.quasi, "sensitive": asked.sensitive, "plain": asked.plain}
    if method == "mondrian":
        return mondrian(rows, require=asked.models, **roles, progress=progress)
    facts = data.schema.tables[table]
    public = replace(facts, columns={name: facts.columns[name] for name in rows.column_names if name in facts.columns})
    return recode(
        rows,
        require=asked.models,
        **roles,
        schema=public,
        suppression=float(asked.suppression),
        seconds=_SECONDS,
        progress=progress,
    )


def _described(made: "AnonymizedTable", table: str) -> dict[str, Any]:
    """Return what a page shows and a client fetches; plain JSON.

    All of it follows from the released file, except the number of rows left out and the utility.
    """
    from cloister.anonymize.risks.attackers import risk

    rows = _in_order(made.rows)
    sink = io.BytesIO()
    pq.write_table(rows, sink, compression="zstd")
    report = risk(rows, quasi=made.roles.quasi, sensitive=made.roles.sensitive)
    facts = _finite(made.describe())
    side = {**facts, "table": table, "sha256": hashlib.sha256(sink.getvalue()).hexdigest()}
    return {
        "table": table,
        "protected": made.label,
        "method": made.method,
        "rows": rows.num_rows,
        "suppressed": made.suppressed,
        "names": rows.column_names,
        "roles": {"quasi": made.roles.quasi, "sensitive": made.roles.sensitive, "plain": made.roles.plain},
        "first": [[_word(value) for value in row.values()] for row in _spread(rows).to_pylist()],
        "utility": _finite(made.utility.as_dict()),
        "checked": str(made.checked)[:_MOST_TEXT],
        "risk": [*report.table()],
        "report": _finite(report.to_json()),
        "side": side,
        "file": base64.b64encode(sink.getvalue()).decode("ascii"),
    }


def _in_order(rows: pa.Table) -> pa.Table:
    """Return the rows sorted by value: their order says nothing about the order of the people."""
    return rows.sort_by([(name, "ascending") for name in rows.column_names])


def _spread(rows: pa.Table) -> pa.Table:
    """Return some rows, evenly spaced: the first of a sorted table all look alike."""
    step = max(1, -(-rows.num_rows // _SHOWN_ROWS))
    return rows.take(list(range(0, rows.num_rows, step)))


def _finite(value: Any) -> Any:
    """Return plain JSON: numbers that are infinite or undefined become None, tuples become lists."""
    if isinstance(value, Mapping):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(entry) for entry in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | bool | int) else str(value)


def _word(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return value.isoformat() if isinstance(value, date | datetime) else str(value)

"""Interface of a job type. The rest of a request is the same for every type.

    form  ──parse──►  parameters  ──plan──►  Planned  ──run──►  Done  ──►  its result page
    (Field, …)        (plain JSON)          (over an empty twin)  (over the rows, after the charge)

A job type is one file: a class with these members, registered in `KINDS`. It never sees a user, a policy, a limit or
the hub's database: it gets a `Dataset` that is already restricted to what the user may see, and whose accounts charge
the ledger for this job and nothing else. So no row can be read without a charge.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Literal, Protocol

from cloister.client import wire
from cloister.data.schema import Schema
from cloister.dataset import Dataset
from cloister.privacy.errors import BadForm
from cloister.privacy.loss import Loss
from cloister.privacy.receipt import Receipt

__all__ = ["Done", "Field", "JobType", "Planned", "Progress", "share_text", "text_of"]

Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Field:
    """Field of a job type's form, as data: pages draw it, the client fills it in.

    Attributes:
        name: the name in the form and in JSON.
        label: the label on a page.
        kind: the input type; `sql` is a large editor, `loss` a text such as 'rho 0.01', `table` one of the tables,
            `column` the names of columns.
        hint: a sentence below it.
        default: the initial value.
        required: True if it must be filled in.
        choices: the values of a choice.
    """

    name: str
    label: str
    kind: Literal["text", "sql", "number", "loss", "choice", "table", "column"] = "text"
    hint: str = ""
    default: str = ""
    required: bool = True
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """Cost of a job and expected error of its answer. Planning costs nothing and reads no row.

    Attributes:
        loss: the loss of the dataset, in the measure of its account; an amount of 0 if none.
        own: the loss of the user's account: the same, and stored releases that are new to them.
        lines: the plan in words.
        errors: each answer, with its expected error.
        statements: the SQL that the engine will run. The gateway removes it unless the user sees the whole tables.
        notes: notes for the user.
        blocked: the reason why it cannot run at present, such as a limit that it would exceed; empty if it can.
        decision: the number of the hub's decision on it in the audit log; 0 while there is none.
    """

    loss: Loss
    own: Loss
    lines: tuple[str, ...] = ()
    errors: tuple[tuple[str, str], ...] = ()
    statements: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    blocked: str = ""
    cells: int = field(default=0, compare=False)  # size of the answer; not stored
    decision: int = field(default=0, compare=False)  # not stored either

    def to_json(self) -> dict[str, Any]:
        """Return JSON for the job's row and for the client."""
        return {**wire.plan_to_json(self), "own": self.own.to_json(), "blocked": self.blocked}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Planned":
        """Return the plan in a job's row."""
        plan = wire.plan_from_json(record)
        own = Loss.from_json(record["own"])
        loss = plan.loss or Loss.nothing(own.measure, own.relation)
        return cls(loss, own, plan.lines, plan.errors, plan.statements, plan.notes)


@dataclass(frozen=True, slots=True)
class Done:
    """Result of a job.

    Attributes:
        result: the result for its page and the client; plain JSON, with released data only.
        receipts: the signed receipts, one for each charge.
    """

    result: dict[str, Any]
    receipts: tuple[Receipt, ...] = field(default=())


class JobType(Protocol):
    """Job type."""

    name: ClassVar[str]  # in addresses and in the database
    title: ClassVar[str]  # on pages
    operation: ClassVar[str]  # the word for it in policies
    fields: ClassVar[tuple[Field, ...]]
    template: ClassVar[str]  # the result page

    def parse(self, form: Mapping[str, Any]) -> dict[str, Any]:
        """Read a form or a JSON body; raises BadForm, or another BadInput, with the field that is wrong."""
        ...

    def tables(self, schema: Schema, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the schema's tables that it reads together: the policy decides on these and on joining them."""
        ...

    def plan(self, data: Dataset, parameters: Mapping[str, Any]) -> Planned:
        """Return the cost. `data` has no rows."""
        ...

    def run(self, data: Dataset, parameters: Mapping[str, Any], progress: Progress) -> Done:
        """Run it. It must not cost more than planned: the job's ledger refuses that."""
        ...


def text_of(form: Mapping[str, Any], name: str, label: str = "", *, most: int = 200, default: str = "") -> str:
    """Return a field as text, trimmed; numbers are converted."""
    value = form.get(name)
    if value is None or value == "":
        return default
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadForm(f"'{label or name}' must be text or a number.")
    text = str(value).strip()
    if "\0" in text or text.encode("utf-8", "replace").decode() != text:
        raise BadForm(f"'{label or name}' holds a sign that is no text.")
    if len(text) > most:
        raise BadForm(f"'{label or name}' may have {most:,} characters, and has {len(text):,}.")
    return text or default


def share_text(text: str) -> str:
    """Return a share as text; percentages are accepted.

    >>> share_text("20%"), share_text("0.2")
    ('0.2', '0.2')
    """
    found = re.fullmatch(r"(\d{1,3}(?:\.\d{1,9})?)\s*%", text)
    return text if found is None else f"{(Decimal(found[1]) / 100).normalize():f}"

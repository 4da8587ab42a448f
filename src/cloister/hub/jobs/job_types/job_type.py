"""Interface of a job type, with its form as data. The rest of a request is the same for every type.

    form  ──parse──►  parameters  ──plan──►  Planned  ──run──►  Done  ──►  its result page
    (Field, …)        (plain JSON)          (over an empty twin)  (over the rows, after the charge)

A job type is one file: a class with these members, registered in `KINDS`. It never sees a user, a policy, a limit or
the hub's database: it gets a `Dataset` that is already restricted to what the user may see, and whose accounts charge
the ledger for this job and nothing else. So no row can be read without a charge.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from sqlalchemy.orm import Session

from cloister.client import wire
from cloister.data.schema import Schema
from cloister.dataset import Dataset
from cloister.hub.policy.anonymised import Protection
from cloister.hub.policy.views import TableView
from cloister.privacy.errors import BadForm, BadProbability, BadSchema, NotHere
from cloister.privacy.loss import Loss
from cloister.privacy.number import rational
from cloister.privacy.receipt import Receipt

if TYPE_CHECKING:
    pass

__all__ = [
    "KINDS",
    "OfModel",
    "Confidence",
    "Done",
    "Field",
    "Held",
    "JobType",
    "Names",
    "Planned",
    "Progress",
    "Protecting",
    "Rule",
    "Share",
    "Stopped",
    "Whole",
    "column_named",
    "kind_of",
    "read_form",
    "register",
    "share_text",
    "table_named",
    "text_of",
]

Progress = Callable[[float, str], None]


class Stopped(Exception):
    """Raised by the progress of a job that must not go on: a job type lets it pass."""


class Rule(Protocol):
    """Rule for the text of a field."""

    def read(self, text: str, label: str) -> Any:
        """Return the parameter; raises BadInput with the label if the text is wrong."""
        ...


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
        most: the largest number of characters.
        missing: the message if it is empty; without one the default is used.
        rule: how its text is read; the text itself unless given. A loss is always read as one.
    """

    name: str
    label: str
    kind: Literal["text", "sql", "number", "loss", "choice", "table", "column"] = "text"
    hint: str = ""
    default: str = ""
    required: bool = True
    choices: tuple[str, ...] = ()
    most: int = 200
    missing: str = ""
    rule: Rule | None = None


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
    largest: int = field(default=0, compare=False)  # the most bytes of its result, if known; not stored either
    decision: int = field(default=0, compare=False)  # not stored either
    protection: Protection | None = field(default=None, compare=False)  # of an anonymised release; not stored either

    def to_json(self) -> dict[str, Any]:
        """Return JSON for the job's row and for the client."""
        return {**wire.plan_to_json(self), "own": self.own.to_json(), "blocked": self.blocked}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Planned":
        """Return the plan in a job's row."""
        plan = wire.plan_from_json(record)
        user_loss = Loss.from_json(record["own"])
        loss = plan.loss or Loss.nothing(user_loss.measure, user_loss.relation)
        return cls(loss, user_loss, plan.lines, plan.errors, plan.statements, plan.notes)


@dataclass(frozen=True, slots=True)
class Held:
    """Result that people must look at before the requester gets it: see `jobs/output_check.py`.

    Attributes:
        result: the result; None if none could be made.
        failure: why there is none, for the checkers. It depends on the rows, so the requester must not learn it.
        protection: the models that it satisfies, and its columns.
    """

    result: dict[str, Any] | None
    failure: str
    protection: Protection


@dataclass(frozen=True, slots=True)
class Done:
    """Result of a job.

    Attributes:
        result: the result for its page and the client; plain JSON, with released data only.
        receipts: the signed receipts, one for each charge.
        held: a result that must be checked first; then `result` is empty.
    """

    result: dict[str, Any]
    receipts: tuple[Receipt, ...] = field(default=())
    held: Held | None = None


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


@runtime_checkable
class Protecting(Protocol):
    """Job type whose release has no epsilon: the policy decides on its protection, and people check its output."""

    def protection(self, data: Dataset, parameters: Mapping[str, Any]) -> Protection:
        """Return the models and columns of a request, from public facts alone."""
        ...


@runtime_checkable
class OfModel(Protocol):
    """Job type about the model of an earlier job, which it finds in the hub's database."""

    def resolve(
        self, session: Session, dataset_id: int, person_id: int, parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the parameters with the facts of the model; raises BadForm if the dataset has no such model."""
        ...

    def require_shown(
        self, schema: Schema, view: Mapping[str, TableView] | None, parameters: Mapping[str, Any]
    ) -> None:
        """Raise BadForm, as if there was no such model, unless the view shows what the model has learned from."""
        ...


# Forms: each field states its rule, and `read_form` applies them


def read_form(fields: Iterable[Field], form: Mapping[str, Any]) -> dict[str, Any]:
    """Read the fields of a form or a JSON body, each by its rule.

    An empty field has its default, except a loss: what is spent is always stated.

    Raises:
        BadInput: with the first field that is wrong.
    """
    return {field.name: _read_field(field, form) for field in fields}


def _read_field(field: Field, form: Mapping[str, Any]) -> Any:
    listed = form.get(field.name)
    if field.kind == "column" and isinstance(listed, list | tuple):
        if not all(isinstance(name, str) and "," not in name for name in listed):
            raise BadForm(f"'{field.label}' is a list of names of columns.")
        form = {field.name: ", ".join(listed)}
    text = text_of(form, field.name, field.label, most=field.most)
    if not text and field.missing:
        raise BadForm(field.missing)
    text = text or field.default
    if field.choices and text not in field.choices:
        raise BadForm(f"'{field.label}' is one of {', '.join(field.choices)}.")
    if field.kind == "loss":
        return wire.loss_to_text(wire.parse_loss(text))
    return text if field.rule is None else field.rule.read(text, field.label)


@dataclass(frozen=True, slots=True)
class Whole:
    """Rule: a whole number within limits, kept as text; empty if there is none."""

    low: int
    high: int

    def read(self, text: str, label: str) -> str:
        """Return the number. Thousands may be separated, as pages write them: 200,000."""
        plain = text.replace(",", "") if re.fullmatch(r"\d{1,3}(,\d{3})+", text) else text
        if plain and not (plain.isascii() and plain.isdigit() and self.low <= int(plain) <= self.high):
            raise BadForm(f"'{label}' must be a whole number from {self.low:,} to {self.high:,}.")
        return plain


@dataclass(frozen=True, slots=True)
class Share:
    """Rule: a part of the spend, above 0 and below 1, kept as text; empty for none."""

    example: str

    def read(self, text: str, label: str) -> str:
        """Return the share. Percentages are accepted."""
        share = share_text(text)
        part = rational(share or "0", f"'{label}'")
        if not part:
            return ""
        if not 0 < part < 1:
            raise BadForm(f"'{label}' is a part of the spend: above 0 and below 1, such as {self.example}.")
        return share


@dataclass(frozen=True, slots=True)
class Confidence:
    """Rule: the confidence level of intervals, strictly between 0 and 1, kept as text."""

    def read(self, text: str, label: str) -> str:
        """Return the level. Percentages are accepted."""
        level = share_text(text)
        if not 0 < rational(level, label.lower()) < 1:
            raise BadProbability(f"{label.lower()} must lie strictly between 0 and 1, got {level:.40}. Write '0.95'.")
        return level


@dataclass(frozen=True, slots=True)
class Names:
    """Rule: names with commas between, each once."""

    def read(self, text: str, label: str) -> str:
        """Return the names, without repetitions."""
        return ", ".join(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def text_of(form: Mapping[str, Any], name: str, label: str = "", *, most: int = 200) -> str:
    """Return a field as text, trimmed; numbers are converted."""
    value = form.get(name)
    if value is None or value == "":
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadForm(f"'{label or name}' must be text or a number.")
    text = str(value).strip()
    if "\0" in text or text.encode("utf-8", "replace").decode() != text:
        raise BadForm(f"'{label or name}' holds a sign that is no text.")
    if len(text) > most:
        raise BadForm(f"'{label or name}' may have {most:,} characters, and has {len(text):,}.")
    return text


def share_text(text: str) -> str:
    """Return a share as text; percentages are accepted.

    >>> share_text("20%"), share_text("0.2")
    ('0.2', '0.2')
    """
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,9})?)\s*%", text)
    return text if match is None else f"{(Decimal(match[1]) / 100).normalize():f}"


# Names in a schema


def table_named(schema: Schema, word: str, task: str) -> str:
    """Return a table that is not public, as the schema spells it; the only one if no word is given.

    Args:
        schema: the schema that the user may see.
        word: the name in the form.
        task: what the table is for, for the message, such as `learn from`.
    """
    private = [table.name for table in schema.tables.values() if not table.public]
    wanted = word or (private[0] if len(private) == 1 else "")
    matches = [name for name in private if name.lower() == wanted.lower()]
    if not matches:
        raise BadSchema(f"say which table to {task}: {', '.join(private)}.")
    return matches[0]


def column_named(columns: Mapping[str, Any], word: str, table: str) -> str:
    """Return a column as the schema spells it."""
    if word in columns:
        return word
    matches = [name for name in columns if name.lower() == word.lower()]
    if len(matches) != 1:
        raise BadSchema(f"there is no column {word!r:.60} in {table}. There are: {', '.join(columns)}.")
    return matches[0]


_KINDS: dict[str, JobType] = {}
KINDS: Mapping[str, JobType] = MappingProxyType(_KINDS)


def register(*job_types: JobType) -> None:
    """Add job types to `KINDS`; the package does it once, in the order of the pages."""
    _KINDS.update({job_type.name: job_type for job_type in job_types})


def kind_of(name: str) -> JobType:
    """Return the job type of that name."""
    if name not in KINDS:
        raise NotHere(f"there is no kind of work called {name!r:.40}. There are: {', '.join(KINDS)}.")
    return KINDS[name]

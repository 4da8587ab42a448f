"""Predictions of a trained model on public rows, under an output policy, within limits, with a log.

    CSV ──► columns ──► the job's model, verified ──► rows counted and logged ──► what the policy shows
              │               └── who trained it asks in full; everybody else by the dataset's policy, decided anew each
              │                   time, after a job of type predict has charged their account
              └── an uploaded file in a child process with limits

The rows are the user's own and public. They are counted, and not kept.
"""

import base64
import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.client.wire import check_label
from cloister.hub.approvals.visibility import find_job, result_of, subject_of
from cloister.hub.core.database import now
from cloister.hub.core.models import AuditEntry, Job, Person
from cloister.hub.datasets.bounded import run_bounded
from cloister.hub.datasets.datasets import newest
from cloister.hub.jobs.authorise import JobRequest, authorise, require_open
from cloister.hub.jobs.dataset_pool import twins
from cloister.hub.jobs.job_types.predict import Predict
from cloister.hub.policy import decision_log, versions
from cloister.hub.policy.conditions import Environment
from cloister.hub.policy.decide import Verdict
from cloister.hub.policy.predictions import read_show, shows
from cloister.privacy.errors import BadForm, NotHere, ReceiptRejected, TooMany
from cloister.privacy.loss import Loss

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub
    from cloister.learn.serving.policies import OutputPolicy

__all__ = [
    "LARGEST_FILE",
    "MOST_ROWS",
    "AskedModel",
    "Predictions",
    "find_model",
    "predict",
    "read_columns",
    "read_file",
]

MOST_ROWS, MOST_COLUMNS, LONGEST_CELL = 10_000, 1_000, 1_000
LARGEST_FILE = 16 * 2**20
_DAY_S = 86_400.0
_ACTION = "model.asked"
_PREDICT = Predict()


@dataclass(frozen=True, slots=True)
class AskedModel:
    """Model of which a user may ask predictions, if the policy still lets them.

    Attributes:
        job: the user's own job: the one that trained the model, or the one that charged them for it.
        number: the job that trained the model.
        card: estimator, table, target, features and classes.
        file: the signed file of the model.
        mine: True if the user has trained it.
        granted: the most that is shown of an answer.
        rows_per_day: the number of rows of a day.
    """

    job: Job
    number: int
    card: Mapping[str, Any]
    file: str = field(repr=False)
    mine: bool
    granted: str
    rows_per_day: int

    def usual(self) -> str:
        """Return what is shown unless more is asked for: the class; of numbers, as much as is granted."""
        if self.card["classes"]:
            return "label"
        return self.granted if self.granted.startswith("rounded") else "full"


@dataclass(frozen=True, slots=True)
class Predictions:
    """Answers to rows.

    Attributes:
        policy: the output policy, in words.
        classes: the public classes; empty for numbers.
        answers: one for each row: a class, classes in order, probabilities of the classes, or a number.
    """

    policy: str
    classes: list[Any]
    answers: list[Any]


def predict(
    hub: "Hub",
    person: Person,
    number: int,
    rows: str | Mapping[str, Sequence[str]],
    show: str,
    environment: Environment,
) -> Predictions:
    """Return the answers of a trained model to public rows.

    Args:
        hub: the hub.
        person: the user.
        number: the user's job that trained the model, or that charged them for one which somebody else has trained.
        rows: CSV with a header, or columns of texts; columns that the model does not need are ignored.
        show: the output policy: "label", "top 3", "rounded 2" or "full"; "" for labels, of numbers what is granted.
        environment: the time and place.

    Privacy: no cost: post-processing of a release that the dataset's account and the user's own have paid for.

    Raises:
        NotHere: the job has no model of this user.
        Denied: the policy does not let them predict now, or show that much; the audit log records it.
        TooMany: more rows in a day than the policy or the hub allows.
    """
    from cloister import learn
    from cloister.learn.persistence import unpack
    from cloister.learn.serving import OutputPolicy

    wanted = read_show(show) if show else ""
    columns = read_columns(rows) if isinstance(rows, str) else rows
    model = find_model(hub, person, number)
    shown = wanted or model.usual()
    verdict = None if model.mine else _decide(hub, person, model, shown, environment)
    fitted = unpack(base64.b64decode(model.file), hub.key.public, f"job {model.number}")
    chosen = OutputPolicy.parse(shown)
    chosen.check(fitted)
    service = learn.serve(fitted, OutputPolicy.parse(model.granted))
    prepared = learn.prepare(fitted, columns)
    _count(hub, person, model, len(prepared), shown, verdict)
    classes = [] if service.classes is None else service.classes.tolist()
    return Predictions(shown, classes, _reduced(service, prepared, chosen).tolist())


def find_model(hub: "Hub", person: Person, number: int) -> AskedModel:
    """Return the model that a user's own job is about.

    Raises:
        NotHere: the job is not theirs, is not done, or its model is no longer kept.
    """
    with hub.database.reading() as session:
        job = find_job(session, person, number)
        result = job.result if job.person_id == person.id and job.state == "done" else None
        most = hub.settings.predictions_per_day
        if result and result.get("target") and "model" in result:
            return AskedModel(job, job.id, result, result["model"], True, "full", most)
        if not result or job.kind != Predict.name:
            raise NotHere(f"job {number} has no model of yours that predicts.")
        card = _charged_for(hub, job, result)
        trained = session.get(Job, int(card["model"]))
        left = None if trained is None else result_of(session, trained)
        if trained is None or not left or (trained.dataset_id, trained.digest) != (job.dataset_id, card["digest"]):
            raise NotHere(f"the model of job {card['model']} is no longer kept.")
        mine = trained.person_id == person.id
        rule = versions.current(hub, session, job.dataset)[0].predictions
    granted = "full" if mine else rule.show
    most = most if mine else min(most, rule.rows_per_day or most)
    return AskedModel(job, int(card["model"]), card, left["model"], mine, granted, most)


def _charged_for(hub: "Hub", job: Job, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the model of a job of type predict, as the hub has signed it: the database may name another."""
    loss = None if job.loss is None else Loss.from_json(job.loss)
    receipts = (job.receipt or "").splitlines()
    try:
        check_label(result, loss, receipts, hub.key.public, job.id, job.dataset.name)
    except ReceiptRejected:
        raise NotHere(f"the result of job {job.id} is not what the hub has signed. Tell its operator.") from None
    card: Mapping[str, Any] = result["asked"]
    return card


def _decide(hub: "Hub", person: Person, model: AskedModel, shown: str, environment: Environment) -> Verdict:
    """Return the policy's verdict on a question to somebody else's model; refused ones are recorded and raised."""
    job, dataset = model.job, model.job.dataset
    require_open(hub, dataset, person)
    with hub.database.reading() as session:
        schema = twins(hub).get(dataset, newest(hub, session, dataset), person).data.schema
        policy, number = versions.current(hub, session, dataset)
        subject = subject_of(session, dataset, person)
    request = JobRequest(policy, number, subject, _PREDICT, job.purpose, environment)

    def require(verdict: Verdict) -> None:
        decision_log.require(hub, person, dataset.name, verdict, kind=Predict.name, job=job.id, cost=None)

    parameters = {**model.card, "model": str(model.number)}
    tables, verdict = authorise(request, schema, parameters, require=require)
    _PREDICT.require_shown(schema, verdict.view, parameters)
    if not shows(policy.predictions.show, shown):
        verdict = request.decide(tables, show=shown)
        require(verdict)
    return verdict


def _reduced(service: Any, rows: Any, shown: "OutputPolicy") -> np.ndarray[Any, Any]:
    """Return what is asked for, computed from what is granted: the answer reveals no more than that."""
    from cloister.learn.serving.policies import significant

    numbers = service.classes is None
    match shown.kind:
        case "label":
            return np.asarray(service.predict(rows))
        case "top":
            return np.asarray(service.top(rows))[:, : shown.amount]
        case "rounded" if numbers:
            return significant(np.asarray(service.predict(rows)), max(shown.amount, 1))
        case "rounded":
            return np.asarray(np.round(service.predict_proba(rows), shown.amount))
        case _:
            return np.asarray(service.predict(rows) if numbers else service.predict_proba(rows))


# Rows


def read_file(hub: "Hub", person: Person, content: bytes) -> dict[str, list[str]]:
    """Return the columns of an uploaded CSV file, read in a child process with limits of time and memory.

    Raises:
        BadForm: it is no small table.
        UploadRefused: it is too long, or takes too long or too much memory to read.
    """
    if len(content) > LARGEST_FILE:
        raise BadForm(f"a file of rows has at most {LARGEST_FILE // 2**20} MB.")
    columns: dict[str, list[str]] = run_bounded(hub.settings, _columns_of, content, caller=person.id)
    return columns


def _columns_of(content: bytes) -> dict[str, list[str]]:
    try:
        return read_columns(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise BadForm("the file is not text in UTF-8. Save it as CSV in UTF-8.") from None


def read_columns(text: str) -> dict[str, list[str]]:
    """Return the columns of a CSV text; refuse one that is too large, or whose rows differ in length."""
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        header = next(reader, [])
        if not header or len(header) > MOST_COLUMNS or not all(header) or max(Counter(header).values()) > 1:
            raise BadForm(f"rows are CSV with a header: up to {MOST_COLUMNS:,} names, none empty, none twice.")
        rows: list[list[str]] = []
        for row in reader:
            if not row:
                continue
            if len(row) != len(header) or max(map(len, row)) > LONGEST_CELL:
                raise BadForm(f"row {len(rows) + 1} has not {len(header)} cells of up to {LONGEST_CELL:,} characters.")
            rows.append(row)
            if len(rows) > MOST_ROWS:
                raise BadForm(f"at most {MOST_ROWS:,} rows at once.")
    except csv.Error:
        raise BadForm("the rows are not CSV: commas between cells, double quotes around a cell with commas.") from None
    if not rows:
        raise BadForm("there are no rows below the header.")
    return {name: [row[column] for row in rows] for column, name in enumerate(header)}


def _count(hub: "Hub", person: Person, model: AskedModel, rows: int, shown: str, verdict: Verdict | None) -> None:
    """Log a question to a model before it is answered; refuse one beyond the day's limit."""
    with hub.database.writing() as session:  # one writer at a time: two requests cannot both be the last
        asked = _asked_today(session, person, model.number)
        if asked + rows > model.rows_per_day:
            raise TooMany(
                f"this model answers {model.rows_per_day:,} rows a day, {asked:,} were asked about in the last 24 "
                f"hours, and these are {rows:,}.",
                wait_s=_DAY_S,
            )
        facts = {} if verdict is None else {"decision": verdict.for_audit(), "by": f"job/{model.job.id}"}
        hub.audit.write(session, person.id, _ACTION, f"job/{model.number}", rows=rows, policy=shown, **facts)


def _asked_today(session: Session, person: Person, number: int) -> int:
    """Return how many rows a user has asked a model about in the last 24 hours."""
    entries = session.scalars(
        sa.select(AuditEntry.detail).where(
            AuditEntry.action == _ACTION,
            AuditEntry.object == f"job/{number}",
            AuditEntry.person_id == person.id,
            AuditEntry.time > now() - _DAY_S,
        )
    )
    return sum(int(detail["rows"]) for detail in entries)

"""Submission of a synthetic table that an owner made elsewhere: checked, charged, then shared.

    both files ─► checked against the public schema ─► a job ─► the ledger is charged ─► done: others may see it
                  nothing is kept if it does not fit            refused: it is never shown

It is stored like a table that this hub made: as the result of a finished job, whose requester is the owner. A release
about the people in the data counts against their budget wherever it was made. The hub vouches for the charge and for
the bytes; it cannot know how the rows were made, and says so.
"""

import json
import secrets
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.client.wire import handed_request
from cloister.data.schema import Schema
from cloister.hub.core.database import now
from cloister.hub.core.models import Dataset, Job, Person
from cloister.hub.core.signed_state import require_unpaused
from cloister.hub.datasets.datasets import newest, owned
from cloister.hub.jobs import limits, queue
from cloister.hub.jobs.authorise import require_same_tables
from cloister.hub.jobs.external_tables.check import Described, receive
from cloister.hub.jobs.job_ledger import Cancelled, JobLedger, Lost
from cloister.hub.jobs.job_types import Planned
from cloister.hub.jobs.job_types.synthesise import Synthesise
from cloister.hub.jobs.runner import code_of, result_bytes
from cloister.hub.policy import versions
from cloister.hub.policy.policy import Policy
from cloister.hub.policy.signature import label
from cloister.privacy.errors import HubRefused, NotNow, Refused, RolledBack
from cloister.privacy.ledger import Account
from cloister.privacy.loss import Loss
from cloister.privacy.receipt import Receipt

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["HANDED", "VOUCHES", "hand_in"]

HANDED = "handed in"  # in a job's parameters
PURPOSE = "handed in by the owner"
_SIGNATURES = 100_000  # bytes of what the hub adds to a table: receipts, signatures, its label
VOUCHES = (
    "Made outside this hub: the hub vouches for the charge and that the file is unchanged, not for how it was made."
)
# Its own message is for the operator, and names a path of the machine.
_ROLLED_BACK = "the ledger may be an older copy and charges nothing until its operator has shown its newest head."


def hand_in(hub: "Hub", person: Person, name: str, content: bytes, side: bytes, key: str = "") -> Job:
    """Store a table and charge the dataset for it; return the job that holds it.

    Args:
        hub: the hub.
        person: must own the dataset.
        name: the name of the dataset.
        content: the table, as Parquet.
        side: its metadata file.
        key: the public key that signed its receipt, if it has one.

    Privacy: the loss that the metadata file states (and that of its score), for the dataset's unit: in the ledger,
        durably, before any other user can see the table. It is the owner's statement; a receipt proves that a ledger
        was charged for it, and not that these rows follow from what was measured.

    Raises:
        NotHere: the user does not own such a dataset.
        BadForm: the files are not what they must be.
        OverBudget: the budget does not suffice; nothing is charged, and the table is not shared.
        NotNow: the dataset is paused, its tables have changed meanwhile, or there is no space for it.
    """
    with hub.database.reading() as session:
        dataset = owned(session, name, person)
        policy, number = _open(hub, session, dataset)
        version = newest(hub, session, dataset)
        schema = Schema.parse(version.schema, max_bytes=None)
    submission = receive(hub.settings, content, side, key, schema, caller=person.id)
    page = {**submission.page, HANDED: {"key": submission.key, "vouches": VOUCHES}}
    rules = hub.ledger.open_account(name, Loss.from_json(dataset.budget)).rules
    parts = [rules.price(loss) for loss in (submission.loss, submission.scoring) if loss is not None]
    total = sum(parts[1:], start=parts[0])
    planned = Planned(total, Loss.nothing(total.measure, total.relation))
    job = _begin(hub, person, dataset, policy, number, submission, planned)

    def decide(session: Session, job: Job) -> Policy:
        nonlocal number
        current, decided = _open(hub, session, job.dataset)
        require_same_tables(hub, session, job.dataset, version)  # it was checked against their schema
        number = decided  # the label states the terms under which the charge was made
        return current

    book = JobLedger(hub, job.id, str(job.worker), planned, decide)
    try:
        receipts = [_pay(book, Account(rules, book), parts[0], submission, job, "")]
        unscored = ""
        if submission.scoring is not None:
            try:
                receipts.append(_pay(book, Account(rules, book), parts[1], submission, job, " score"))
            except (Refused, HubRefused) as error:  # the table is charged: release it without its score
                unscored = str(error)
    except Cancelled:
        _end(hub, job, "cancelled", problem="Cancelled. Nothing was spent.")
        raise NotNow("it was cancelled. Nothing was spent.") from None
    except (Refused, HubRefused) as error:
        refusal = NotNow(_ROLLED_BACK) if isinstance(error, RolledBack) else error
        _end(hub, job, "refused", problem=str(refusal))
        raise refusal from None
    except Lost:
        raise NotNow("this took too long and was given up. Look at the ledger, then hand it in again.") from None
    result = {**page, "unscored": unscored, **_signed(hub, submission, person, parts[0], receipts[0], bool(unscored))}
    if unscored:
        result |= {"score": None, "scoring": None}
    with hub.database.reading() as session:
        policy, text = versions.version(hub, session, dataset, number)
    plain = result_bytes(result)
    lines = [receipt.text() for receipt in receipts]
    signed = label(hub.key, policy, text.number, text.text, plain, now(), job=job.id, loss=book.loss, receipts=lines)
    result["label"] = signed.text()
    if not _end(
        hub,
        job,
        "done",
        book.loss,
        result=result,
        size=len(plain),
        receipt="\n".join(lines),
        problem="",
        policy_number=number,
    ):
        raise NotNow("this took too long and was given up. The charge stands.")
    with hub.database.reading() as session:
        return session.get_one(Job, job.id)  # as it ended: with its loss and its time


def _open(hub: "Hub", session: Session, dataset: Dataset) -> tuple[Policy, int]:
    """Return the policy in force, if the dataset is open."""
    if dataset.deleted is not None or dataset.paused:
        raise NotNow(f"{dataset.name} is paused. Let work begin again, then hand the table in.")
    require_unpaused(hub, dataset)
    return versions.current(hub, session, dataset)


def _begin(
    hub: "Hub", person: Person, dataset: Dataset, policy: Policy, number: int, submission: Described, planned: Planned
) -> Job:
    """Create a job that no worker takes; if this process dies before the charge, it has failed."""
    side = submission.side
    names = submission.names
    parameters = {"method": side["method"], "table": side["table"], "columns": ", ".join(names)}
    told = len(result_bytes({**submission.page, "side": [side, side]}))  # a receipt in it is stored twice
    largest = len(submission.content) * 4 // 3 + told + _SIGNATURES  # the file is stored in base64
    parameters |= {"rows": str(submission.rows), "names": names, "sha256": submission.digest, HANDED: True}
    with hub.database.writing() as session:
        limits.lock(session, dataset.id)
        _refuse_same(session, dataset, submission.digest)
        queue.require_space(session, hub.settings, person.id, largest)
        limits.check(session, limits.Payer(dataset, person.id, policy, hub.ledger), planned.loss, planned.own)
        hub.ledger.balance(dataset.name).add(planned.loss)
        job = Job(
            kind=Synthesise.name,
            dataset_id=dataset.id,
            person_id=person.id,
            purpose=PURPOSE,
            parameters=parameters,
            plan=planned.to_json(),
            policy_number=number,
            state="running",
            attempts=queue.MOST_ATTEMPTS,
            worker=f"hand-in:{secrets.token_hex(8)}",
            heartbeat=now(),
            started=now(),
            size=largest,
        )
        session.add(job)
        session.flush()
        facts = {"method": side["method"], "sha256": submission.digest, "cost": planned.loss}
        hub.audit.write(session, person.id, "table.handed_in", f"job/{job.id}", dataset=dataset.name, **facts)
        session.refresh(job)
    return job


def _refuse_same(session: Session, dataset: Dataset, digest: str) -> None:
    """Refuse a file that was submitted before: one file, one charge."""
    before = sa.select(Job.id, Job.parameters).where(
        Job.dataset_id == dataset.id, Job.kind == Synthesise.name, Job.state.in_(("running", "charged", "done"))
    )
    for number, parameters in session.execute(before):
        if parameters.get(HANDED) and parameters.get("sha256") == digest:
            raise NotNow(f"this very table was uploaded before, as job {number}. It is charged once.")


def _pay(book: JobLedger, account: Account, loss: Loss, submission: Described, job: Job, suffix: str) -> Receipt:
    request = handed_request(job.id, submission.digest, suffix)
    charge = book.reserve([(account, loss)], request)
    charge.look()  # from here on it may be seen
    entry = charge.commit()
    mechanism = {
        "mechanism": "handed in",
        "made": "outside this hub",
        "of": "score" if suffix else "table",  # verified: the price of one must not be shown as that of the other
        "table": str(submission.side["table"]),
        "method": str(submission.side["method"]),
    }
    claimed = submission.scoring if suffix else submission.loss
    if (
        claimed is not None and claimed.is_pure
    ):  # an account in rho is charged its rho, which does not show that it was pure
        mechanism["epsilon"] = str(claimed.amount)
    unit = submission.side["unit"]
    return Receipt.of_charge(
        charge, entry, book.key, request=request, unit=unit, parameters=[mechanism], loss=loss, answer=submission.digest
    )


def _signed(
    hub: "Hub", submission: Described, person: Person, paid: Loss, receipt: Receipt, without_score: bool
) -> dict[str, Any]:
    """Return the file unchanged, and its metadata file with the hub's own receipt and signature; the owner's stay."""
    from cloister.hub.jobs.job_types.synthesise.result import signed
    from cloister.synth.output.shared_table import sign_side

    before = {name: value for name, value in submission.side.items() if name not in ("signature", "sha256")}
    claimed = submission.loss.as_rho() if submission.loss.is_pure and paid.measure == "rho" else submission.loss
    origin = {"by": person.name, "vouches": VOUCHES, "receipt": before["receipt"], "key": submission.key or None}
    side = {
        **before,
        "loss": (submission.loss if claimed == paid else paid).to_json(),
        "score": None if without_score else before.get("score"),
        "receipt": json.loads(receipt.text()),
        HANDED: origin,
    }
    return signed(sign_side(side, submission.content, hub.key), submission.content, hub.key)


def _end(hub: "Hub", job: Job, state: str, loss: Loss | None = None, **changes: Any) -> bool:
    paid = None if loss is None else loss.to_json()
    with hub.database.writing() as session:
        if not queue.finish(session, job.id, str(job.worker), state, loss=paid, **changes):
            return False
        facts = {"dataset": job.dataset.name, "kind": job.kind, "purpose": job.purpose, **code_of(changes["problem"])}
        cost = "nothing" if loss is None else loss
        hub.audit.write(session, job.person_id, f"job.{state}", f"job/{job.id}", cost=cost, **facts)
    return True

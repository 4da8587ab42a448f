"""Limits per user, period and request: reserved exactly, before the ledger is charged.

The ledger holds the dataset's lifetime cap, which cannot be exceeded. The limits here belong to the policy and may
change with it, so they are stored separately: `Spent` has a row per job, with the totals so far. A transaction that
adds a row locks the dataset's rows until it ends, so concurrent jobs cannot spend the same remainder twice.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.database import now
from cloister.hub.core.models import Dataset, Job, Spent, analyst
from cloister.hub.policy import cost
from cloister.hub.policy.policy import Policy
from cloister.privacy.errors import OverBudget
from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.number import show

__all__ = ["Payer", "check", "give_back", "passed", "room", "set_aside", "spent_by", "spent_since", "waiting"]

_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Payer:
    """User whose requests on a dataset count against the limits of its policy.

    Attributes:
        dataset: the dataset.
        person_id: the user.
        policy: the policy with the limits.
        ledger: for charges that a restored hub's database no longer has.
    """

    dataset: Dataset
    person_id: int
    policy: Policy
    ledger: Ledger


def set_aside(session: Session, job: Job, policy: Policy, loss: Loss, own: Loss, ledger: Ledger) -> None:
    """Reserve a loss under every limit, or refuse it. Call it in `database.writing()`.

    Args:
        session: the transaction; it must also mark the job as charged.
        job: the job; a second charge of the same job adds to the first.
        policy: the policy with the limits.
        loss: the loss of the dataset's account.
        own: the loss of the user's account.
        ledger: for charges that a restored hub's database no longer has.

    Raises:
        OverBudget: a limit would be exceeded; nothing was written.
    """
    lock(session, job.dataset_id)
    charged = _charged(ledger, job.dataset.name, job.person_id, loss)
    if job.charge:  # a second charge of one job: one request, so one row
        mine = session.scalars(sa.select(Spent).where(Spent.job_id == job.id)).one()
        loss, own = Loss.from_json(mine.loss) + loss, Loss.from_json(mine.own) + own
        charged = charged[0] - Loss.from_json(mine.loss), charged[1] - Loss.from_json(mine.own)
        give_back(session, job.id)
        session.flush()
    total, own_total = _totals(session, job.dataset_id, job.person_id, loss, charged)
    over = _passed(session, job.dataset_id, policy, (loss, own), (total, own_total))
    if over is not None:
        raise over[1]
    session.add(
        Spent(
            dataset_id=job.dataset_id,
            person_id=job.person_id,
            job_id=job.id,
            loss=loss.to_json(),
            own=own.to_json(),
            total=(total + loss).to_json(),
            own_total=(own_total + own).to_json(),
            purpose=job.purpose,
            time=now(),
        )
    )


def give_back(session: Session, job_id: int, part: tuple[Loss, Loss] | None = None) -> None:
    """Remove a job's row, or a part of it, that the ledger did not charge. Totals are corrected.

    Args:
        session: a transaction.
        job_id: the job of the row.
        part: the part of it, for the dataset's and for the user's account; None: all, and the row is deleted.
    """
    mine = session.scalar(sa.select(Spent).where(Spent.job_id == job_id))
    if mine is None:
        return
    lock(session, mine.dataset_id)
    loss, user_loss = part or (Loss.from_json(mine.loss), Loss.from_json(mine.own))
    later = sa.select(Spent).where(Spent.dataset_id == mine.dataset_id, Spent.id >= mine.id)
    for row in list(session.scalars(later)):
        row.total = (Loss.from_json(row.total) - loss).to_json()
        if row.person_id == mine.person_id:
            row.own_total = (Loss.from_json(row.own_total) - user_loss).to_json()
    if part is None:
        session.delete(mine)
    else:
        mine.loss, mine.own = (
            (Loss.from_json(mine.loss) - loss).to_json(),
            (Loss.from_json(mine.own) - user_loss).to_json(),
        )


def check(session: Session, payer: Payer, loss: Loss, own: Loss) -> None:
    """Refuse a loss above the current limit of a request, of the user or of the period.

    Raises:
        OverBudget: with what was asked, what is left and what is missing.
    """
    over = passed(session, payer, loss, own)
    if over is not None:
        raise over[1]


def passed(
    session: Session, payer: Payer, loss: Loss, own: Loss, held: Mapping[int, Loss] = MappingProxyType({})
) -> tuple[str, OverBudget] | None:
    """Return the first limit that would be exceeded now, by its word in the policy, and by how much; None if none is.

    Args:
        session: a session.
        payer: the user, the dataset and its policy.
        loss: the loss of the dataset's account.
        own: the loss of the user's account.
        held: the cost of the user's jobs that wait for approval, by id; counted in the user's limit.
    """
    charged = _charged(payer.ledger, payer.dataset.name, payer.person_id, loss)
    totals = _totals(session, payer.dataset.id, payer.person_id, loss, charged)
    return _passed(session, payer.dataset.id, payer.policy, (loss, own), totals, held)


def _passed(
    session: Session,
    dataset_id: int,
    policy: Policy,
    losses: tuple[Loss, Loss],
    totals: tuple[Loss, Loss],
    waiting_jobs: Mapping[int, Loss] = MappingProxyType({}),
) -> tuple[str, OverBudget] | None:
    """Compare a loss with the limits. Losses and totals are those of the dataset's account and of the user's own."""
    (loss, user_loss), (total, own_total) = losses, totals
    budget, word = policy.budget, "per_request"
    try:
        # Never less than the dataset pays: a stored release counts for the user who receives it now.
        if user_loss.amount:
            cost.refuse_above(policy, user_loss)
        word = "per_user"
        if budget.per_user is not None and user_loss.amount:
            _refuse_over("your limit on this dataset", cost.cap(budget.per_user), own_total, user_loss, waiting_jobs)
        word = "period"
        if budget.period is not None and loss.amount:
            then = _spent_until(session, dataset_id, now() - budget.period.days * _DAY, loss)
            _refuse_over(f"the limit of {budget.period.days} days", cost.cap(budget.period.loss), total - then, loss)
    except OverBudget as error:
        error.limit = word
        return word, error
    return None


def waiting(session: Session, dataset: Dataset, person_id: int) -> dict[int, Loss]:
    """Return the cost of the user's jobs on a dataset that wait for approval, by id."""
    jobs = sa.select(Job.id, Job.plan).where(
        Job.person_id == person_id, Job.dataset_id == dataset.id, Job.state == "waiting"
    )
    return {number: Loss.from_json(plan["own"]) for number, plan in session.execute(jobs)}


def room(session: Session, payer: Payer) -> Loss:
    """Return the largest loss within every limit at present, rounded down to two digits; without a delta.

    The cost of the user's waiting jobs counts as spent by them: the next one may have to wait too.
    """
    dataset, person_id, ledger = payer.dataset, payer.person_id, payer.ledger
    left = ledger.balance(dataset.name).left
    budget = payer.policy.budget
    rooms = [left.amount]
    if budget.per_request is not None:
        rooms.append(cost.cap(budget.per_request).amount)
    if budget.per_user is not None:
        reserved = sum(loss.amount for loss in waiting(session, dataset, person_id).values())
        spent = spent_by(session, dataset, person_id, left, ledger).amount
        rooms.append(cost.cap(budget.per_user).amount - spent - reserved)
    if budget.period is not None:
        since = spent_since(session, dataset.id, now() - budget.period.days * _DAY, left)
        rooms.append(cost.cap(budget.period.loss).amount - since.amount)
    return replace(left, amount=_two_digits(min(rooms)), delta=Fraction(0))


def _two_digits(amount: Fraction) -> Fraction:
    """Round down, so that a displayed loss is possible."""
    if amount <= 0:
        return Fraction(0)
    unit = Fraction(10) ** (math.floor(math.log10(amount)) - 1)
    return amount // unit * unit


def spent_by(session: Session, dataset: Dataset, person_id: int, like: Loss, ledger: Ledger) -> Loss:
    """Return the sum that a user's jobs on a dataset have reserved, in the measure of `like`."""
    return _totals(session, dataset.id, person_id, like, _charged(ledger, dataset.name, person_id, like))[1]


def spent_since(session: Session, dataset_id: int, start: float, like: Loss) -> Loss:
    """Return the sum that all jobs on a dataset have reserved since a time: the total now, less the total then."""
    return _totals(session, dataset_id, 0, like)[0] - _spent_until(session, dataset_id, start, like)


def _charged(ledger: Ledger, dataset: str, person_id: int, like: Loss) -> tuple[Loss, Loss]:
    """Return the charges in the ledger: to the dataset, and to the user on it."""
    nothing = Loss.nothing(like.measure, like.relation)
    spent = {
        balance.rules.key: balance.spent for balance in ledger.balances(dataset, f"{dataset}@{analyst(person_id)}")
    }
    return spent.get(dataset, nothing), spent.get(f"{dataset}@{analyst(person_id)}", nothing)


def _totals(
    session: Session, dataset_id: int, person_id: int, like: Loss, charged: tuple[Loss, Loss] | None = None
) -> tuple[Loss, Loss]:
    """Return the sums reserved on a dataset: by all users, and by one; never less than the ledger's charges."""
    total, user_total = _written(session, dataset_id, person_id, like)
    return (total, user_total) if charged is None else (_larger(total, charged[0]), _larger(user_total, charged[1]))


def _larger(loss: Loss, other: Loss) -> Loss:
    return replace(loss, amount=max(loss.amount, other.amount), delta=max(loss.delta, other.delta))


def _written(session: Session, dataset_id: int, person_id: int, like: Loss) -> tuple[Loss, Loss]:
    rows = sa.select(Spent).where(Spent.dataset_id == dataset_id).order_by(Spent.id.desc()).limit(1)
    newest = rows.with_only_columns(Spent.total, Spent.own_total, Spent.person_id)
    row = session.execute(newest).first()
    if row is None:
        return _loss(None, like), _loss(None, like)
    if row.person_id == person_id:
        return _loss(row.total, like), _loss(row.own_total, like)
    user_total = session.scalar(rows.with_only_columns(Spent.own_total).where(Spent.person_id == person_id))
    return _loss(row.total, like), _loss(user_total, like)


def _spent_until(session: Session, dataset_id: int, moment: float, like: Loss) -> Loss:
    before = sa.select(Spent.total).where(Spent.dataset_id == dataset_id, Spent.time <= moment)
    return _loss(session.scalar(before.order_by(Spent.time.desc(), Spent.id.desc()).limit(1)), like)


def lock(session: Session, dataset_id: int) -> None:
    """Lock a dataset's reservations until the transaction ends. SQLite has one writer anyway."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(sa.select(Dataset.id).where(Dataset.id == dataset_id).with_for_update(key_share=True))


def _loss(record: dict[str, str] | None, like: Loss) -> Loss:
    return Loss.nothing(like.measure, like.relation) if record is None else Loss.from_json(record)


def _refuse_over(
    name: str, cap: Loss, before: Loss, loss: Loss, waiting_jobs: Mapping[int, Loss] = MappingProxyType({})
) -> None:
    waits = sum(waiting_jobs.values(), start=Loss.nothing(loss.measure, loss.relation))
    total = before + waits + loss
    if total <= cap:
        return
    word = cap.measure if total.amount > cap.amount else "delta"
    limit, used, waiting, needed = (
        (part.delta if word == "delta" else part.amount) for part in (cap, before, waits, loss)
    )
    left = max(limit - used, Fraction(0))
    note, advice = "", "Lower the spend, wait, or ask the owner."
    if waiting:
        numbers = [str(number) for number in sorted(waiting_jobs)]
        jobs = f"job {numbers[0]} waits" if len(numbers) == 1 else f"jobs {', '.join(numbers)} wait"
        note = f" of which {show(waiting)} is held while your {jobs} for somebody to agree,"
        advice = "Lower the spend, cancel what waits, or ask the owner."
    short = needed + waiting - left
    raise OverBudget(
        f"{name} is {cap}: this needs {word} {show(needed)}, {show(left)} is left,{note} {show(short)} short. {advice}"
    )

"""Usual activity of each user on a dataset, and a score with reasons for how far the last day differs from it.

Insiders misuse rights that they have. Therefore the last day of each user is compared with the eight weeks before it:
number of requests, amount spent, refusals by the policy, hours, tables, and number of datasets. Each signal gives
points and a sentence; the owner is notified when the points reach ALERT_AT. A score blocks nothing: the owner decides
whether to pause the dataset.

Only requests are read, never rows or answers.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.database import now
from cloister.hub.core.models import AuditEntry, Dataset, Job, Person, Spent
from cloister.hub.core.notices import tell
from cloister.privacy.ledger.account import Rules
from cloister.privacy.loss import Loss

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["ALERT_AT", "TABLES", "ActivityEvent", "ActivityProfile", "Signal", "profile", "profiles", "watch"]

ALERT_AT = 6.0
TABLES = "tables"  # in a job's plan: the tables it reads
_DAY = 86_400.0
_LOOK_BACK_DAYS = 56
_ENOUGH = 10  # requests before a user has a usual pattern
_MOST = 5.0  # points of one signal: none alone raises an alert


@dataclass(frozen=True, slots=True)
class ActivityEvent:
    """One request.

    Attributes:
        time: the time of the request.
        refused: True if the policy, a limit or a reviewer refused it.
        spent: the loss as a share of the dataset's cap.
        tables: the tables of the request, if known.
        elsewhere: True for another dataset: only its number counts.
    """

    time: float
    refused: bool = False
    spent: float = 0.0
    tables: frozenset[str] = frozenset()
    elsewhere: int = 0


@dataclass(frozen=True, slots=True)
class Signal:
    """One difference of the last day, with its points."""

    name: str
    points: float
    sentence: str


@dataclass(frozen=True, slots=True)
class ActivityProfile:
    """Activity of a user on a dataset.

    Attributes:
        requests: the requests of the last day.
        usual: the usual number of requests per day before.
        refused: the refused requests of the last day.
        spent: the share of the cap spent in the last day.
        hours: the requests in each hour of the day (UTC), over the whole time.
        tables: the tables requested, over the whole time.
        score: the sum of the signals' points.
        signals: the signals with points.
    """

    requests: int
    usual: float
    refused: int
    spent: float
    hours: tuple[int, ...]
    tables: tuple[str, ...]
    score: float
    signals: tuple[Signal, ...]

    @property
    def alert(self) -> bool:
        """Return True if the owner should look."""
        return self.score >= ALERT_AT


def profile(events: Iterable[ActivityEvent], at: float) -> ActivityProfile:
    """Compute the profile of one user's requests. Pure: the same events give the same score."""
    every = [event for event in events if at - (_LOOK_BACK_DAYS + 1) * _DAY < event.time <= at]
    local = [event for event in every if not event.elsewhere]
    last = [event for event in local if event.time > at - _DAY]
    before = [event for event in local if event.time <= at - _DAY]
    first = min((event.time for event in before), default=at - _DAY)
    days = max(1.0, (at - _DAY - first) / _DAY)
    signals = _signals(last, before, days) + _positive(_datasets([event for event in every if event.elsewhere], at))
    hours = Counter(_hour(event) for event in local)
    return ActivityProfile(
        len(last),
        len(before) / days,
        sum(event.refused for event in last),
        sum(event.spent for event in last),
        tuple(hours[hour] for hour in range(24)),
        tuple(sorted(frozenset[str]().union(*(event.tables for event in local)))),
        round(sum(signal.points for signal in signals), 1),
        signals,
    )


def _signals(last: list[ActivityEvent], before: list[ActivityEvent], days: float) -> tuple[Signal, ...]:
    return _positive(
        _requests(last, before, days),
        _spending(last, before, days),
        _refusals(last, before, days),
        _hours(last, before),
        _tables(last, before),
    )


def _positive(*signals: Signal | None) -> tuple[Signal, ...]:
    return tuple(signal for signal in signals if signal is not None and signal.points > 0)


def _requests(last: list[ActivityEvent], before: list[ActivityEvent], days: float) -> Signal | None:
    if len(before) < _ENOUGH:
        return None
    usual = len(before) / days
    # In standard deviations of a count with that mean: the variance of random arrivals is the mean.
    points = _limited((len(last) - usual) / math.sqrt(usual + 1) - 1)
    return Signal("requests", points, f"{len(last)} requests in a day; usual are {usual:.1f}.")


def _spending(last: list[ActivityEvent], before: list[ActivityEvent], days: float) -> Signal | None:
    spent = sum(event.spent for event in last)
    if len(before) < _ENOUGH:
        points = _limited(12 * spent)  # a quarter of the whole budget on a new user's first day: three points
        return Signal("spending", points, f"{spent:.1%} of the budget in a day, by somebody with no past here.")
    usual = sum(event.spent for event in before) / days
    points = _limited(math.log2((spent + 0.001) / (usual + 0.001)) - 1)
    return Signal("spending", points, f"{spent:.1%} of the budget in a day; usual are {usual:.1%}.")


def _refusals(last: list[ActivityEvent], before: list[ActivityEvent], days: float) -> Signal | None:
    refused, usual = sum(event.refused for event in last), sum(event.refused for event in before) / days
    if refused < 3:
        return None
    points = _limited((refused - usual) / math.sqrt(usual + 1) / 2)
    return Signal("refusals", points, f"{refused} requests were refused in a day; usual are {usual:.1f}.")


def _hours(last: list[ActivityEvent], before: list[ActivityEvent]) -> Signal | None:
    if len(before) < _ENOUGH or len(last) < 3:
        return None
    usual_hours = {(_hour(event) + step) % 24 for event in before for step in (-1, 0, 1)}
    odd = sum(_hour(event) not in usual_hours for event in last)
    return Signal("hours", 3.0 * odd / len(last), f"{odd} of {len(last)} requests came at hours of the day never used.")


def _tables(last: list[ActivityEvent], before: list[ActivityEvent]) -> Signal | None:
    if len(before) < _ENOUGH:
        return None
    past_tables = frozenset[str]().union(*(event.tables for event in before))
    new = sorted(frozenset[str]().union(*(event.tables for event in last)) - past_tables)
    return Signal("tables", min(len(new), 2.0), f"{len(new)} tables were asked about for the first time.")


def _datasets(elsewhere: list[ActivityEvent], at: float) -> Signal | None:
    past_datasets = {event.elsewhere for event in elsewhere if event.time <= at - _DAY}
    new = {event.elsewhere for event in elsewhere if event.time > at - _DAY} - past_datasets
    # The number only: other owners' datasets must not be named to this owner.
    points = min(max(len(new) - 1.0, 0.0), 3.0)
    return Signal("datasets", points, f"{len(new)} other datasets were asked for the first time on the same day.")


def _limited(points: float) -> float:
    return max(0.0, min(points, _MOST))


def _hour(event: ActivityEvent) -> int:
    return datetime.fromtimestamp(event.time, UTC).hour


# From the hub's tables


def profiles(session: Session, dataset: Dataset, at: float | None = None) -> list[tuple[Person, ActivityProfile]]:
    """Return the profile of every user who sent a request on a dataset in the last eight weeks, most unusual first."""
    moment = now() if at is None else at
    events = _events(session, dataset, moment - (_LOOK_BACK_DAYS + 1) * _DAY)
    people = session.scalars(sa.select(Person).where(Person.id.in_(events)))
    pairs = [(person, profile(events[person.id], moment)) for person in people]
    return sorted(pairs, key=lambda pair: (-pair[1].score, -pair[1].requests, pair[0].name))


def watch(hub: "Hub", at: float | None = None) -> int:
    """Notify owners of unusual activity; return the number of alerts. A worker calls this periodically.

    At most one alert a day for each user and dataset. The owner's own requests raise none. Scores are computed outside
    of the writing transaction, which would block all other writers.
    """
    moment = now() if at is None else at
    with hub.database.reading() as session:
        unusual = [*_unusual(session, moment)]
    alerts = 0
    for dataset, person, activity in unusual:
        with hub.database.writing() as session:
            if not _told(session, dataset, person, moment):
                _alert(hub, session, dataset, person, activity)
                alerts += 1
    return alerts


def _unusual(session: Session, moment: float) -> Iterable[tuple[Dataset, Person, ActivityProfile]]:
    recent = sa.select(Job.dataset_id).where(Job.created > moment - _DAY).distinct()
    denied = sa.select(AuditEntry.object).where(AuditEntry.action == "work.denied", AuditEntry.time > moment - _DAY)
    names = {name.removeprefix("dataset/") for name in session.scalars(denied.distinct())}
    wanted = sa.select(Dataset).where(
        Dataset.deleted.is_(None), sa.or_(Dataset.id.in_(recent), Dataset.name.in_(names))
    )
    for dataset in session.scalars(wanted.order_by(Dataset.id)).all():
        for person, activity in profiles(session, dataset, moment):
            if activity.alert and person.id != dataset.owner_id and not _told(session, dataset, person, moment):
                yield dataset, person, activity


def _alert(hub: "Hub", session: Session, dataset: Dataset, person: Person, activity: ActivityProfile) -> None:
    why = " ".join(signal.sentence for signal in activity.signals)
    hub.audit.write(
        session, None, "activity.alert", f"dataset/{dataset.name}", person=person.id, score=activity.score, why=why
    )
    message = (
        f"{person.name} uses {dataset.name} in an unusual way (score {activity.score:g} of {ALERT_AT:g}). Have a look."
    )
    tell(hub, session, dataset.owner_id, message, f"/datasets/{dataset.name}/activity")


def _told(session: Session, dataset: Dataset, person: Person, moment: float) -> bool:
    alerts = sa.select(AuditEntry.detail).where(
        AuditEntry.action == "activity.alert",
        AuditEntry.object == f"dataset/{dataset.name}",
        AuditEntry.time > moment - _DAY,
    )
    return any(detail.get("person") == person.id for detail in session.scalars(alerts))


def _events(session: Session, dataset: Dataset, since: float) -> dict[int, list[ActivityEvent]]:
    events: dict[int, list[ActivityEvent]] = {}
    cap = Loss.from_json(dataset.budget)
    # The tables were recorded when the job was planned: no SQL is parsed here.
    columns = (Job.person_id, Job.created, Job.state, Job.plan[TABLES].label("tables"), Spent.loss)
    jobs = sa.select(*columns).outerjoin(Spent, Spent.job_id == Job.id)
    for job in session.execute(jobs.where(Job.dataset_id == dataset.id, Job.created > since)):
        spent = _share(Loss.from_json(job.loss), cap) if job.loss else 0.0
        event = ActivityEvent(job.created, job.state == "refused", spent, frozenset(job.tables or ()))
        events.setdefault(job.person_id, []).append(event)
    denied = sa.select(AuditEntry.person_id, AuditEntry.time).where(
        AuditEntry.action == "work.denied", AuditEntry.object == f"dataset/{dataset.name}", AuditEntry.time > since
    )
    for person_id, time in session.execute(denied):
        if person_id is not None:
            events.setdefault(person_id, []).append(ActivityEvent(time, refused=True))
    others = sa.select(Job.person_id, Job.created, Job.dataset_id).where(
        Job.person_id.in_(list(events)), Job.dataset_id != dataset.id, Job.created > since
    )
    for person_id, time, other in session.execute(others):
        events[person_id].append(ActivityEvent(time, elsewhere=other))
    return events


def _share(loss: Loss, budget: Loss) -> float:
    """Return a rough share; an epsilon budget is compared through its rho. For display only."""
    if not loss.amount:
        return 0.0
    cap = Rules.of("budget", budget).cap
    return float(loss.amount / cap.amount) if cap.measure == loss.measure else 0.0

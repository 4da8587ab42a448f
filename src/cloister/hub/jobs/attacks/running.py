"""One attack in a worker: tried a few times if the worker dies, with progress; its findings are sealed.

Attacks take turns with jobs: a worker runs one when no job waits, or when it has waited for a minute. A lock on a file
says that a living worker has it, so that one whose worker was killed is found at once, by whichever worker looks next.
"""

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.orm import undefer

from cloister.hub.core.database import now
from cloister.hub.core.models import Attack, Dataset, Job
from cloister.hub.jobs.attacks.package import packed
from cloister.hub.jobs.attacks.store import UNDER_WAY, seal_facts, seal_report, title_of
from cloister.hub.jobs.dataset_pool import DatasetPool
from cloister.hub.jobs.job_types.job_type import Stopped
from cloister.privacy.errors import CloisterError, NotNow

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["MOST_TRIES", "forgive", "give_up", "run_next"]

MOST_TRIES = 3
_EVERY_S = 0.3  # how often progress is written at most
_LOG = logging.getLogger("cloister.hub.jobs")
_DIED = (
    "the worker ended several times while this attack ran, perhaps for lack of memory. Attack something smaller, or "
    "ask the operator what happened, then start it again."
)
_LESS = "Attack something smaller, or ask the operator to raise the limit of jobs, then start it again."
_AGAIN = "Start it again; if it fails again, tell the operator."


def run_next(
    hub: "Hub",
    pool: DatasetPool,
    *,
    waited: float = 0.0,
    watched: Callable[[int], AbstractContextManager[object]] = nullcontext,
) -> bool:
    """Run the next attack, if there is one that no living worker has; return True if there was.

    Args:
        hub: the hub.
        pool: the worker's pool of open datasets.
        waited: only attacks that were started so many seconds ago.
        watched: entered with the attack's number while it runs.
    """
    wanted = sa.select(Attack.id).where(Attack.state.in_(UNDER_WAY), Attack.created <= now() - waited)
    with hub.database.reading() as session:
        numbers = list(session.scalars(wanted.order_by(Attack.created, Attack.id)))
    for number in numbers:
        with _alone(hub, number) as mine:
            if mine and _claimed(hub, number):
                with watched(number):
                    _run(hub, pool, number)
                return True
    return False


def give_up(hub: "Hub", number: int, why: str) -> None:
    """Fail an attack that exceeded a limit: it would do so again."""
    _end(hub, number, {"problem": f"The attack was stopped: {why}. {_LESS}"})


def forgive(hub: "Hub", number: int) -> None:
    """Queue an attack again that was interrupted because the hub stops: this was no attempt."""
    again = sa.update(Attack).where(Attack.id == number, Attack.state == "running")
    with hub.database.writing() as session:
        session.execute(again.values(state="queued", attempts=Attack.attempts - 1, stage="", progress=0.0))


def _claimed(hub: "Hub", number: int) -> bool:
    """Count an attempt before it begins; return False if the attack has ended, or was tried too often."""
    with hub.database.writing() as session:
        attack = session.get(Attack, number)
        if attack is None or attack.state not in UNDER_WAY:
            return False
        if attack.attempts < MOST_TRIES:
            attack.state, attack.attempts, attack.progress = "running", attack.attempts + 1, 0.0
            attack.stage = "opening the tables"
            return True
    _end(hub, number, {"problem": _DIED})
    return False


def _run(hub: "Hub", pool: DatasetPool, number: int) -> None:
    with hub.database.reading() as session:
        attack = session.get(Attack, number)
        job = None if attack is None else session.get(Job, attack.job_id, options=[undefer(Job.plan)])
    if attack is None or job is None:
        return
    title = title_of(job)
    try:
        findings, skipped = _ATTACKS[job.kind](hub, pool, job, title, _Stages(hub, number))
        if not findings:
            reasons = " ".join(f"{name}: {reason}" for name, reason in skipped.items())
            raise NotNow(f"no attack could be run on {title}. {reasons} Attack something else.")
        facts, report = packed(findings, skipped, title)
    except Stopped:  # cancelled or removed meanwhile
        return
    except CloisterError as error:
        _end(hub, number, {"problem": str(error).removeprefix(f"{error.code}: ")})
    except sa.exc.SQLAlchemyError:  # tried again: the database cannot be used now
        raise
    except Exception as error:  # its message may quote a row
        _LOG.error("an attack failed", extra={"facts": {"attack": number, "error": type(error).__name__}})
        _end(hub, number, {"problem": f"something went wrong that nobody foresaw ({type(error).__name__}). {_AGAIN}"})
    else:
        _end(hub, number, facts, report)


def _model(*arguments: Any) -> Any:
    from cloister.hub.jobs.attacks.models import attack_model

    return attack_model(*arguments)


def _synthetic(*arguments: Any) -> Any:
    from cloister.hub.jobs.attacks.synthetic import attack_table

    return attack_table(*arguments)


def _release(*arguments: Any) -> Any:
    from cloister.hub.jobs.attacks.releases import attack_release

    return attack_release(*arguments)


# Each loads what it needs when it is run: a worker that attacks nothing has none of it in memory.
_ATTACKS: Mapping[str, Callable[..., Any]] = {"train": _model, "synthesise": _synthetic, "anonymise": _release}


def _end(hub: "Hub", number: int, facts: Mapping[str, Any], report: Mapping[str, Any] | None = None) -> None:
    """Seal what an attack found, or what went wrong, unless it was cancelled or removed meanwhile."""
    with hub.database.writing() as session:
        attack = session.get(Attack, number)
        dataset = None if attack is None else session.get(Dataset, attack.dataset_id)
        if attack is None or attack.state not in UNDER_WAY or dataset is None or dataset.wrapped_key is None:
            return
        attack.facts = seal_facts(hub, dataset, attack, facts)
        attack.report = None if report is None else seal_report(hub, dataset, attack, report)
        attack.state, attack.stage, attack.finished = ("failed" if report is None else "done"), "", now()
        attack.progress = attack.progress if report is None else 1.0


class _Stages:
    """Writes an attack's progress, a few times a second at most; notices that it was cancelled."""

    def __init__(self, hub: "Hub", number: int) -> None:
        self._database, self._number, self._last = hub.database, number, 0.0

    def __call__(self, share: float, words: str) -> None:
        """Record the progress and the current step.

        Raises:
            Stopped: the attack was cancelled or removed.
        """
        if time.monotonic() - self._last < _EVERY_S:
            return
        self._last = time.monotonic()
        mine = sa.update(Attack).where(Attack.id == self._number, Attack.state == "running")
        changes = {"progress": max(0.0, min(share, 1.0)), "stage": words[:200]}
        with self._database.writing() as session:
            if session.execute(mine.values(**changes).returning(Attack.id)).first() is None:
                raise Stopped


@contextmanager
def _alone(hub: "Hub", number: int) -> Iterator[bool]:
    """Return True unless a living worker has this attack. The system gives the lock back when a process ends."""
    path = hub.folder / "sealed" / f".attack-{number}"
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
        path.unlink(missing_ok=True)
    finally:
        os.close(file)

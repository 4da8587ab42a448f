"""Ledger for one job: every charge is decided again, reserved and recorded first.

    reserve ─► one transaction in the hub's database: still ours? not cancelled? still allowed? within the
               plan and every limit? then `charged`, with the digest of the request
            ─► the ledger: dataset and person in one entry, all or none
            ─► refused there: the reservation is released

A job type gets accounts of this ledger. It cannot bypass it, since the ledger accepts no account of another ledger, and
it cannot read a row without a charge.
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from cloister.hub.core.database import now
from cloister.hub.core.models import Job
from cloister.hub.jobs import limits
from cloister.hub.jobs.dataset_pool import Charges, ClosedBook
from cloister.hub.jobs.job_types.job_type import Planned, Stopped
from cloister.hub.jobs.queue import ACTIVE, LEASE_S
from cloister.hub.policy.policy import Policy
from cloister.privacy.errors import NotNow, OverBudget, Refused
from cloister.privacy.ledger import Account, Charge, Entry
from cloister.privacy.loss import Loss
from cloister.privacy.signing import fingerprint

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["Cancelled", "JobLedger", "Lost"]


class Cancelled(Stopped):
    """Raised when the user has cancelled the job before its charge."""


class Lost(Stopped):
    """Raised when the job is no longer this worker's."""


class JobLedger(ClosedBook):
    """Ledger for one job.

    Args:
        hub: the hub.
        job_id: the job.
        worker: the worker that has it.
        planned: the largest allowed cost.
        decide: decides again by the policy; raises on a refusal, and returns the policy whose limits apply.
        step: called with the name of each step that is reached: aside, charged.

    Attributes:
        loss: the loss charged to the dataset; None while nothing was charged.
        limit: the limit that refused a charge, by its word in the policy; empty if none did.
    """

    def __init__(
        self,
        hub: "Hub",
        job_id: int,
        worker: str,
        planned: Planned,
        decide: Callable[[Session, Job], Policy],
        step: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(hub.ledger)
        self._database, self._step = hub.database, step
        self._job_id, self._worker, self._planned, self._decide = job_id, worker, planned, decide
        self.loss: Loss | None = None
        self.limit = ""
        self._own = Loss.nothing(planned.own.measure, planned.own.relation)

    def reserve(self, charges: Charges, request: str) -> Charge:
        """Reserve losses, all or none. See `Ledger.reserve`."""
        priced = [(account, account.price(item)) for account, item in charges]
        begun = self._set_aside(priced, request)
        try:
            charge = self._ledger.reserve(self._at_home(priced), request)
        except Refused as error:
            self._give_back(priced)
            self._remember(error)
            raise
        self._step("charged")
        if time.monotonic() - begun > LEASE_S / 2 and not self._still_ours():
            charge.void()  # another worker assumed us dead and has queued the job again: nothing was read
            raise Lost
        return charge

    def charge_all(self, charges: Charges, request: str) -> list[Entry]:
        """Spend losses at once, all or none. See `Ledger.charge_all`."""
        priced = [(account, account.price(item)) for account, item in charges]
        self._set_aside(priced, request)
        try:
            entries = self._ledger.charge_all(self._at_home(priced), request)
        except Refused as error:
            self._give_back(priced)
            self._remember(error)
            raise
        self._step("charged")
        return entries

    def _at_home(self, priced: Sequence[tuple[Account, Loss]]) -> list[tuple[Account, Loss]]:
        return [(Account(account.rules, self._ledger), loss) for account, loss in priced]

    def _set_aside(self, priced: Sequence[tuple[Account, Loss]], request: str) -> float:
        loss, user_loss = self._parts(priced)
        begun = time.monotonic()
        with self._database.writing() as session:
            job = session.get(Job, self._job_id, with_for_update={"of": Job, "key_share": True})
            if job is None or job.worker != self._worker or job.state not in ACTIVE:
                raise Lost
            if job.state == "running" and job.cancel:
                raise Cancelled
            policy = self._decide(session, job)
            self._refuse_more(loss, user_loss)
            try:
                limits.set_aside(session, job, policy, loss, user_loss, self._ledger)
            except OverBudget as error:
                self._remember(error)
                raise
            job.charge = job.charge or fingerprint(request)
            job.state, job.heartbeat, job.stage = "charged", now(), "charged"
        self.loss = loss if self.loss is None else self.loss + loss
        self._own = self._own + user_loss
        self._step("aside")
        return begun

    def _remember(self, error: Refused) -> None:
        if isinstance(error, OverBudget):
            self.limit = error.limit

    def _refuse_more(self, loss: Loss, user_loss: Loss) -> None:
        total = loss if self.loss is None else self.loss + loss
        for needed, planned in ((total, self._planned.loss), (self._own + user_loss, self._planned.own)):
            if not needed <= planned:
                raise NotNow(
                    f"this would cost {needed} by now, and was planned at {planned}: what is on record has changed "
                    "since. Nothing more was charged. Plan it again."
                )

    def _give_back(self, priced: Sequence[tuple[Account, Loss]]) -> None:
        """Release the reservation: the ledger refused, and nothing changed there."""
        loss, user_loss = self._parts(priced)
        assert self.loss is not None
        before, self._own = self.loss - loss, self._own - user_loss
        first = not before.amount and not self._own.amount
        with self._database.writing() as session:
            job = session.get(Job, self._job_id)
            if job is None or job.worker != self._worker or job.state != "charged":
                raise Lost
            limits.give_back(session, job.id, None if first else (loss, user_loss))
            if first:
                job.state, job.charge = "running", ""
        self.loss = None if first else before

    def _still_ours(self) -> bool:
        with self._database.reading() as session:
            job = session.get(Job, self._job_id)
        return job is not None and job.worker == self._worker and job.state == "charged"

    def _parts(self, priced: Sequence[tuple[Account, Loss]]) -> tuple[Loss, Loss]:
        """Return the dataset's loss and the user's loss."""
        none = Loss.nothing(self._planned.loss.measure, self._planned.loss.relation)
        dataset_loss = sum((loss for account, loss in priced if account.rules.analyst is None), start=none)
        user_loss = sum((loss for account, loss in priced if account.rules.analyst is not None), start=none)
        return dataset_loss, user_loss

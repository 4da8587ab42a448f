"""Rollback checks of the ledger: against the hub's own receipts at start, and by a head after a restore."""

import json
from collections.abc import Iterable
from pathlib import Path

import sqlalchemy as sa

from cloister.hub.core.hub import Hub
from cloister.hub.core.models import AuditEntry, Job
from cloister.hub.core.signed_state import catch_up
from cloister.privacy.errors import CloisterError, HeadRejected, NotHere, RolledBack
from cloister.privacy.ledger import Head
from cloister.privacy.loss import Loss
from cloister.privacy.receipt import Receipt

__all__ = ["check_receipts", "newest_head", "show_head", "write_off"]

_RECEIPTS = 200  # jobs may end in another order than they are charged in; one of the last is the newest
_WRITTEN_OFF = "ledger.written_off"


def newest_head(hub: Hub) -> Head:
    """Return the ledger's newest entry, signed: to print, and to keep elsewhere."""
    return hub.ledger.head


def check_receipts(hub: Hub) -> None:
    """Check the ledger against the newest receipts in the database; if it lacks their entries, stop all spending.

    An older ledger that was restored together with its kept head is consistent by itself. But the hub's jobs hold
    receipts, and each names an entry that was in the ledger when it was signed.

    Raises:
        RolledBack: the ledger is older than a receipt. From now on every process refuses to spend.
    """
    with hub.database.reading() as session:
        lost = sa.select(AuditEntry.time, AuditEntry.detail).where(AuditEntry.action == _WRITTEN_OFF)
        # The lost entries' losses were written off: receipts from before then prove nothing more.
        since = max((time for time, detail in session.execute(lost) if detail.get("lost")), default=0.0)
        newest = sa.select(Job.receipt).where(Job.receipt.is_not(None), Job.finished > since)
        texts = list(session.scalars(newest.order_by(Job.finished.desc()).limit(_RECEIPTS)))
    heads = [head for text in texts for line in str(text).splitlines() if (head := _head_of(line, hub)) is not None]
    for head in sorted(heads, key=lambda candidate: candidate.number, reverse=True)[:1]:
        if not hub.ledger.contains(head):
            hub.ledger.show_head(head)  # stores it, and refuses


def _head_of(text: str, hub: Hub) -> Head | None:
    """Return the head in one of our receipts; None if it has none, or is not ours."""
    try:
        return _head(text, hub)
    except CloisterError:
        return None


def show_head(hub: Hub, shown: str) -> Head:
    """Show the newest head, so that a restored hub spends again if its ledger contains it.

    Args:
        hub: the hub.
        shown: the head in one line, a file that holds it, or a receipt, which holds one.

    Raises:
        RolledBack: the ledger does not contain it: it is an older copy, and still refuses to spend.
        HeadRejected: this is no head of this ledger.
    """
    entry = hub.ledger.show_head(_head(shown, hub))
    with hub.database.writing() as session:
        hub.audit.write(session, None, "ledger.head_shown", "ledger", entry=entry.number)
    catch_up(hub)
    return entry.head


def require_accounts(hub: Hub, datasets: Iterable[str]) -> None:
    """Refuse datasets that have no account in the ledger."""
    accounts = {account.name for account in hub.ledger.accounts()}
    for dataset in datasets:
        if dataset not in accounts:
            names = ", ".join(sorted(accounts)) or "none"
            raise NotHere(f"the ledger has no account of a dataset {dataset!r:.80}. It has: {names}.")


def write_off(hub: Hub, dataset: str) -> list[tuple[str, Loss]]:
    """Write off what is left of a dataset's account and of every user's on it; return the accounts and amounts.

    A ledger that may be an older copy can spend again once every account is written off.
    """
    require_accounts(hub, (dataset,))
    mine = [account for account in hub.ledger.accounts() if account.name == dataset]
    try:
        hub.ledger.check_newest()
        older = False
    except RolledBack:
        older = True
    lost = [(account.rules.key, hub.ledger.write_off(account).lines[0].loss) for account in mine]
    facts = {"accounts": [key for key, _ in lost], "lost": older}
    with hub.database.writing() as session:
        hub.audit.write(session, None, _WRITTEN_OFF, f"dataset/{dataset}", **facts)
    catch_up(hub)
    return lost


def _head(source: str, hub: Hub) -> Head:
    text = source.strip()
    if len(text) < 500 and "\n" not in text and Path(text).is_file():
        text = Path(text).read_text(encoding="utf-8", errors="replace").strip()
    if not text.startswith("{"):
        return Head.parse(text)
    receipt = Receipt.parse(text)
    receipt.verify(hub.key.public)
    try:
        return Head.parse(str(receipt.body["ledger"]["head"]))
    except (KeyError, TypeError, json.JSONDecodeError):
        raise HeadRejected("the receipt holds no head. Show the head itself.") from None

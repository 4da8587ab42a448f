"""After a restore: prove that the ledger is the newest one, or give up what is left."""

import json
from pathlib import Path

from cloister.hub.hub import Hub
from cloister.privacy.errors import HeadRejected, NotHere
from cloister.privacy.ledger import Head
from cloister.privacy.loss import Loss
from cloister.privacy.receipt import Receipt

__all__ = ["newest_head", "show_head", "write_off"]


def newest_head(hub: Hub) -> Head:
    """The ledger's newest entry, signed: to print, and to keep elsewhere."""
    return hub.ledger.head


def show_head(hub: Hub, shown: str) -> Head:
    """Show the newest head, so that a restored hub spends again if its ledger contains it.

    Args:
        hub: the hub.
        shown: the head in one line, a file that keeps it, or a receipt, which holds one.

    Raises:
        RolledBack: the ledger does not contain it: it is an older copy, and stays shut.
        HeadRejected: this is no head of this ledger.
    """
    entry = hub.ledger.show_head(_head(shown, hub))
    with hub.database.writing() as session:
        hub.audit.write(session, None, "ledger.head_shown", "ledger", entry=entry.number)
    return entry.head


def write_off(hub: Hub, dataset: str) -> list[tuple[str, Loss]]:
    """Give up what is left of a dataset's account and of every person's on it; which, and how much.

    A ledger that may be an older copy goes on once every account is written off.
    """
    mine = [account for account in hub.ledger.accounts() if account.name == dataset]
    if not mine:
        names = ", ".join(sorted({account.name for account in hub.ledger.accounts()})) or "none"
        raise NotHere(f"the ledger has no account of a dataset {dataset!r:.80}. It has: {names}.")
    lost = [(account.rules.key, hub.ledger.write_off(account).lines[0].loss) for account in mine]
    with hub.database.writing() as session:
        hub.audit.write(session, None, "ledger.written_off", f"dataset/{dataset}", accounts=[key for key, _ in lost])
    return lost


def _head(shown: str, hub: Hub) -> Head:
    text = shown.strip()
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

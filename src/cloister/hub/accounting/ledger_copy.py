"""Copies of the ledger for an auditor, and the check that `cloister ledger verify` does offline.

A copy is an SQLite file with exactly the signed entries, wherever the ledger itself is stored. It holds accounts,
losses, times and hashes of requests: no question, no answer, no row.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from cloister.privacy.ledger import Head, Report, verify
from cloister.privacy.ledger.chain import Entry
from cloister.privacy.ledger.store import HeadFile, open_store

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["check_ledger", "copy_ledger", "kept_head"]


def kept_head(hub: "Hub") -> Head | None:
    """Return the newest head that is kept outside the ledger."""
    return HeadFile(hub.settings.head).read()


def check_ledger(hub: "Hub") -> Report:
    """Recompute every hash, signature and total; check that the ledger contains the head kept outside it."""
    return verify(hub.settings.ledger, hub.key.public, kept_head(hub))


def copy_ledger(hub: "Hub", path: Path) -> Head | None:
    """Write every entry, as it was signed, into a new file; return the last head."""
    source, copy, head = open_store(hub.settings.ledger, "read"), open_store(path, "create"), None
    try:
        with source.reading() as original, copy.writing() as tables:
            tables.create()
            for rows in original.pages():
                for row in rows:
                    entry = Entry.parse(*row)
                    tables.append(entry)
                    head = entry.head
    finally:
        source.close()
        copy.close()
    return head

"""One hub: settings, database, ledger, keys and audit log.

All other parts are functions that take a Hub.
"""

import stat
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cloister.hub.core.database import Database
from cloister.hub.core.restored import finish_restore
from cloister.hub.core.settings import Settings
from cloister.hub.core.signed_state import ALL_SIGNED, catch_up
from cloister.privacy.errors import CloisterError, NotNow, StoreFailed
from cloister.privacy.ledger import Ledger
from cloister.privacy.signing import SigningKey

if TYPE_CHECKING:
    from cloister.hub.core.audit import Audit
    from cloister.hub.core.keys import MasterKey

__all__ = ["Hub"]


class Hub:
    """Shared state of every layer. Nothing is opened before it is used."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.folder: Path = settings.folder
        self.database = Database(settings.database)

    @classmethod
    def create(cls, settings: Settings) -> "Hub":
        """Create a hub in an empty or missing folder: master key, signing key, ledger, tables."""
        from cloister.hub.core.keys import MasterKey

        settings.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _tighten(settings.folder)
        if (settings.folder / "signing.key").exists():
            raise NotNow(f"there is a hub in {settings.folder} already. Use `cloister hub serve`, or another folder.")
        hub = cls(settings)
        for name in ("sealed", "records", "uploads"):
            (settings.folder / name).mkdir(mode=0o700, exist_ok=True)
        if settings.master_key:
            MasterKey.load(settings)  # an unreadable one is refused before anything is created
        elif not hub.master_key_file.exists():
            MasterKey.create(hub.master_key_file)
        hub.database.migrate()  # before the signing key, which marks a folder as a hub
        key = SigningKey.create(hub.signing_key_file)
        try:
            with Ledger.create(settings.ledger, key=key, head=settings.head) as ledger:
                ledger.note(ALL_SIGNED, 1)
        except CloisterError:
            hub.signing_key_file.unlink()
            raise
        return hub

    @classmethod
    def open(cls, settings: Settings) -> "Hub":
        """Open an existing hub, migrate it to this version, and sign the versions of its tables if none ever was."""
        hub = cls(settings)
        if not hub.signing_key_file.exists():
            raise NotNow(f"there is no hub in {settings.folder}. Make one with `cloister hub init`.")
        _tighten(settings.folder)
        hub.database.migrate()
        finish_restore(hub)
        catch_up(hub)
        return hub

    @property
    def master_key_file(self) -> Path:
        """Path of the key that wraps all others; keep a copy elsewhere, never in a backup."""
        return Path(self.settings.master_key_file or self.folder / "master.key")

    @property
    def signing_key_file(self) -> Path:
        """Path of the key that signs ledger entries, receipts, policies, versions of tables and the audit log."""
        return self.folder / "signing.key"

    @cached_property
    def key(self) -> SigningKey:
        """Key that signs ledger entries, receipts, policies, versions of tables and the audit log."""
        return SigningKey.load(self.signing_key_file)

    @cached_property
    def ledger(self) -> Ledger:
        """Accounts of every dataset and of every user on it."""
        return Ledger.open(self.settings.ledger, key=self.key, head=self.settings.head)

    @cached_property
    def keys(self) -> "MasterKey":
        """Master key, which wraps the data keys."""
        from cloister.hub.core.keys import MasterKey

        return MasterKey.load(self.settings)

    @cached_property
    def audit(self) -> "Audit":
        """Log of every decision and every read."""
        from cloister.hub.core.audit import Audit

        return Audit(self.database, self.key, self.folder / "audit.head")

    def close(self) -> None:
        """Close what was opened."""
        if "ledger" in self.__dict__:
            self.ledger.close()
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _tighten(folder: Path) -> None:
    """Restrict the hub's folder to its user: it holds addresses, password hashes, questions and answers."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o077:
        try:
            folder.chmod(mode & 0o700)
        except OSError:
            raise StoreFailed(
                f"others can look into {folder}, and its mode cannot be changed. Run chmod 700 on it."
            ) from None

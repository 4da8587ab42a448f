"""Signed state of a dataset: the versions of its tables, which of them is the newest, and its pause switch.

The schema of a version decides what is protected, and the hub's database may be on another machine. So whoever writes
there must not be able to change a version, to go back to an older one, or to open a paused dataset:

- The hub signs every version when its owner saves or orders it, and when its tables are ready: name of the dataset,
  number, stage, schema, declared types and source. The signature is checked whenever a version is used.
- The ledger notes the number of the newest version that is ready, as it does for policies.
- The ledger notes how often a dataset was paused or opened again: it is paused while that number is odd.

A hub of version 0.1.0 has versions without a signature. They are signed once, when it is opened for the first time, and
the ledger notes that they were.
"""

import hashlib
import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from cloister.hub.core.models import Dataset, Version
from cloister.privacy.errors import BadInput, CloisterError, NotNow, RolledBack, SealBroken, StoreFailed
from cloister.privacy.signing import canonical, fingerprint

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = [
    "ALL_SIGNED",
    "catch_up",
    "check_version",
    "keyed_digest",
    "newest_number",
    "note_pause",
    "note_ready",
    "record_file",
    "record_key",
    "require_newest",
    "require_unpaused",
    "sign_version",
]

ALL_SIGNED = "versions are signed"  # subject of a note in the ledger: a version without a signature is not signed later
_VERSION = b"cloister version of tables\n"  # a signature of one kind of text is never valid for another
# A failed version is prepared again as it was ordered.
_STAGES = {"preparing": "ordered", "failed": "ordered"}
_MOST_KEPT = 10_000
_valid: set[bytes] = set()  # digests of statements whose signatures were checked in this process
_LOG = logging.getLogger("cloister.hub.core")


# Signatures


def sign_version(hub: "Hub", dataset: Dataset, version: Version) -> None:
    """Sign a version as it is now: its owner has just saved or ordered it, or its tables have become ready."""
    version.signature = hub.key.sign(_statement(dataset, version))


def check_version(hub: "Hub", dataset: Dataset, version: Version) -> None:
    """Check that a version is what the hub signed. A version that was checked before in this process costs a hash.

    Raises:
        SealBroken: it is not.
    """
    signature = version.signature or ""
    try:
        statement = _statement(dataset, version)
    except BadInput:  # such as a float, which the hub never writes
        raise _changed(dataset, version) from None
    digest = hashlib.sha256(f"{hub.key.public} {signature}\n".encode("utf-8", "replace") + statement).digest()
    if digest in _valid:
        return
    if not hub.key.public.verify(statement, signature):
        raise _changed(dataset, version)
    if len(_valid) >= _MOST_KEPT:
        _valid.clear()
    _valid.add(digest)


def keyed_digest(hub: "Hub", dataset: Dataset, version: Version) -> str:
    """Return a digest of a version for the audit log. It is keyed: nobody can try guesses of a schema against it."""
    return fingerprint(hub.key.sign(_statement(dataset, version)))


def record_file(hub: "Hub", dataset: Dataset, version: Version) -> Path:
    """Return the file with the released statistics of a version. No other version has it, whatever numbers rows get.

    The numbers of rows are given again after a restore. A signature covers the dataset's name, which never is.
    """
    digest = hashlib.sha256((version.signature or "").encode("utf-8", "replace")).hexdigest()
    return hub.folder / "records" / f"{dataset.name}-{version.number}-{digest[:32]}.record"


def record_key(hub: "Hub", dataset: Dataset, version: Version) -> bytes:
    """Return the key that authenticates the lines of that file."""
    return hub.keys.subkey(f"record of {dataset.name} {version.number} {version.signature}")


def _adopt_record(hub: "Hub", dataset: Dataset, version: Version) -> None:
    """Take over the record of a hub of 0.1.0, which was named by the row's number and was not authenticated."""
    from cloister.query.answer_cache import authenticated

    earlier = hub.folder / "records" / f"{dataset.id}-{version.number}.record"
    if earlier.exists():
        key = record_key(hub, dataset, version)
        lines = earlier.read_text("utf-8", "replace").splitlines()
        record_file(hub, dataset, version).write_text("".join(f"{authenticated(line, key)}\n" for line in lines))
        earlier.unlink()


def _statement(dataset: Dataset, version: Version) -> bytes:
    facts = {
        "dataset": dataset.name,
        "number": version.number,
        "stage": _STAGES.get(version.state, version.state),
        "schema": version.schema,
        "declared": version.declared,
        "source": version.source,
    }
    return _VERSION + canonical(facts)


def _changed(dataset: Dataset, version: Version) -> SealBroken:
    if not version.signature:
        return SealBroken(
            f"version {version.number} of {dataset.name} has no signature, so nothing runs on it. In a hub that was "
            "restored from a copy of version 0.1.0 the operator shows the ledger's newest head first."
        )
    return SealBroken(
        f"version {version.number} of {dataset.name} is not what its owner made: its signature does not fit. Nothing "
        "runs on it. The operator restores the hub's database, or its owner shares the data anew under another name."
    )


# The newest version


def newest_number(hub: "Hub", dataset: Dataset) -> int:
    """Return the number of the newest version that was ever ready, by the ledger; 0 if there is none."""
    return hub.ledger.noted(_newest(dataset.name))


def note_ready(hub: "Hub", name: str, number: int) -> None:
    """Note in the ledger that a version is ready. A ledger that was rolled back spends nothing, and notes nothing."""
    with suppress(RolledBack, StoreFailed):
        if number > hub.ledger.noted(_newest(name)):
            hub.ledger.note(_newest(name), number)


def require_newest(hub: "Hub", dataset: Dataset, version: Version | None) -> None:
    """Require that a version is what the hub signed, and the newest one that was ever ready.

    Args:
        hub: the hub.
        dataset: its dataset.
        version: the newest ready version in the database; None if it has none.

    Raises:
        SealBroken: it is not.
    """
    number = 0
    if version is not None:
        check_version(hub, dataset, version)
        number = version.number
    noted = newest_number(hub, dataset)
    if number < noted:
        raise SealBroken(
            f"version {noted} of {dataset.name} was ready and is missing, and nothing runs on older tables. The "
            "operator restores the hub's database, or its owner makes a new version."
        )
    if number > noted:  # the process ended before the note, or the ledger could not be written
        note_ready(hub, dataset.name, number)


def _newest(name: str) -> str:
    return f"tables of {name}"


# The pause switch


def note_pause(hub: "Hub", name: str, paused: bool) -> None:
    """Note in the ledger that a dataset is paused, or open again. Call it in the transaction that says so too.

    Raises:
        NotNow: it cannot be opened while the ledger may be an older copy. It can always be paused.
    """
    try:
        noted = hub.ledger.noted(_pauses(name))
        if bool(noted % 2) != paused:
            hub.ledger.note(_pauses(name), noted + 1)
    except RolledBack:
        if not paused:
            raise NotNow(
                f"the ledger may be an older copy, so {name} stays paused. Open it again when the operator has shown "
                "the ledger's newest head."
            ) from None
    except CloisterError:  # nothing is charged without the ledger; `catch_up` notes it later
        if not paused:
            raise


def require_unpaused(hub: "Hub", dataset: Dataset) -> None:
    """Refuse work on a paused dataset; the ledger decides too.

    Raises:
        NotNow: it is paused.
    """
    if dataset.paused:
        raise NotNow(
            f"the owner has paused {dataset.name}. Nothing was spent. Nothing runs on it until it is opened again."
        )
    if hub.ledger.noted(_pauses(dataset.name)) % 2:
        raise NotNow(
            f"the owner has paused {dataset.name}, or pauses it at this moment. If its page still says that it is "
            "open, the hub's database was changed so that it seems open. Nothing was spent. Nothing runs on it until "
            "its owner pauses it and opens it again."
        )


def _pauses(name: str) -> str:
    return f"pauses of {name}"


# When a hub is opened


def catch_up(hub: "Hub") -> None:
    """Sign the versions of a hub of 0.1.0, once; and note the paused datasets that the ledger does not know of.

    Nothing is done while the ledger may be an older copy, since its notes may be missing: it is called again when its
    head has been shown.
    """
    try:
        hub.ledger.check_newest()  # first: a ledger that is exchanged after it is detected by the next read
        if not hub.ledger.noted(ALL_SIGNED):
            _sign_all(hub)
            hub.ledger.note(ALL_SIGNED, 1)
        _note_pauses(hub)
    except CloisterError as error:  # pages are served all the same, and refuse what is not signed
        level = logging.INFO if isinstance(error, RolledBack) else logging.WARNING  # a restored hub is told otherwise
        _LOG.log(level, "the ledger takes no notes about datasets now", extra={"facts": {"code": error.code}})
    finally:
        if "ledger" in hub.__dict__:
            hub.ledger.close()


def _sign_all(hub: "Hub") -> None:
    from cloister.hub.core.notices import tell

    wanted = sa.select(Version, Dataset).join(Dataset, Dataset.id == Version.dataset_id)
    with hub.database.writing() as session:
        unsigned = (
            wanted.where(Version.signature.is_(None)).order_by(Version.id).with_for_update(of=Version, key_share=True)
        )
        owners: dict[str, int] = {}
        for version, dataset in session.execute(unsigned).all():
            sign_version(hub, dataset, version)
            _adopt_record(hub, dataset, version)
            facts = {"version": version.number, "state": version.state, "hash": keyed_digest(hub, dataset, version)}
            hub.audit.write(session, None, "version.signed", f"dataset/{dataset.name}", **facts)
            if dataset.deleted is None:
                owners[dataset.name] = dataset.owner_id
        for name, owner in owners.items():
            text = f"The hub signs the versions of {name} from now on. Check once that its schema is the one you wrote."
            tell(hub, session, owner, text, f"/datasets/{name}/schema")


def _note_pauses(hub: "Hub") -> None:
    paused = sa.select(Dataset.name).where(Dataset.paused, Dataset.deleted.is_(None))
    with hub.database.reading() as session:
        names = [name for name in session.scalars(paused) if not hub.ledger.noted(_pauses(name)) % 2]
    if not names:
        return
    with hub.database.writing() as session:  # nobody opens one meanwhile
        for name in session.scalars(paused.where(Dataset.name.in_(names)).with_for_update(key_share=True)).all():
            note_pause(hub, name, True)

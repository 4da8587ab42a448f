"""Datasets: create with a policy, version, pause, delete.

Every function that changes something takes the user and checks that they own the dataset.
"""

import os
import re
import shutil
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.data.schema import Schema
from cloister.hub.core.copies import remove_orphaned_copies
from cloister.hub.core.database import now
from cloister.hub.core.hub import Hub
from cloister.hub.core.keys import part_of, seal
from cloister.hub.core.models import Attack, Dataset, Person, Upload, Version
from cloister.hub.core.signed_state import (
    check_version,
    keyed_digest,
    newest_number,
    note_pause,
    require_newest,
    sign_version,
)
from cloister.hub.datasets.connect import Link, read_address
from cloister.hub.datasets.tables import open_for_work, open_twin
from cloister.hub.datasets.upload import afterwards
from cloister.hub.policy.text.reader import read
from cloister.hub.policy.versions import newest as current_page
from cloister.hub.policy.versions import publish
from cloister.privacy.errors import AccountMismatch, BadForm, BadPolicy, BadSchema, Denied, NotHere, NotNow, SealBroken

__all__ = [
    "create",
    "delete",
    "draft_version",
    "examine",
    "examine_version",
    "find",
    "finish_erasing",
    "latest_schema",
    "new_version",
    "newest",
    "open_for_work",
    "open_twin",
    "owned",
    "pause",
    "reach",
    "retry",
    "save_draft",
    "versions",
]

_NAME = re.compile(r"[a-z][a-z0-9_-]{1,59}")  # no @: the ledger writes dataset@person
_ERASING = "erase-pending-"  # files: each says that a key was erased, and may still be in the write-ahead log
_COMMITTED_S = 60  # a transaction that made such a file is committed by then
_TAKEN = ("new",)  # /datasets/new is a page


# Making and finding


def create(
    hub: Hub, session: Session, owner: Person, *, name: str, title: str, about: str, policy_text: str, schema_text: str
) -> Dataset:
    """Create a dataset, with its policy and its account in the ledger. It holds no rows yet.

    Args:
        name: the name in addresses, in the policy and in the ledger; it never changes.
        policy_text: the policy; everything that it does not allow is refused. Its lifetime budget never changes.
        schema_text: the public schema; may be empty until there are tables.
    """
    if "data owner" not in owner.roles:
        raise Denied("this is for the role data owner.")
    if not _NAME.fullmatch(name) or name in _TAKEN:
        raise BadForm("name: 2 to 60 small letters, digits, _ and -, beginning with a letter.")
    if len(title) > 200:
        raise BadForm("title: at most 200 characters.")
    own = sa.select(sa.func.count()).where(Dataset.owner_id == owner.id, Dataset.deleted.is_(None))
    if (session.scalar(own) or 0) >= hub.settings.datasets_per_owner:
        raise NotNow(
            f"you have {hub.settings.datasets_per_owner:,} datasets, the most that one data owner may have. Delete "
            "one, or ask the operator for more (CLOISTER_DATASETS_PER_OWNER)."
        )
    if session.scalar(sa.select(Dataset.id).where(Dataset.name == name)) is not None:
        raise BadForm("name: it is taken, or was once. Choose another: the ledger never forgets one.")
    schema = _checked(hub, schema_text) if schema_text.strip() else None
    policy = read(policy_text, schema)
    if policy.dataset != name:
        raise BadPolicy(f"the policy is for {policy.dataset:.60}, the dataset is called {name}. Make them agree.")
    try:
        hub.ledger.open_account(name, policy.budget.lifetime)
    except AccountMismatch:
        raise BadForm("name: it was used before, with another budget. Choose another.") from None
    dataset = Dataset(
        name=name,
        title=title.strip() or name,
        about=about[:20_000],
        organisation_id=owner.organisation_id,
        owner_id=owner.id,
        budget=policy.budget.lifetime.to_json(),
        wrapped_key=hub.keys.new_data_key(name),
        trust="curator",
        paused=False,
        created=now(),
    )
    session.add(dataset)
    session.flush()
    session.refresh(dataset)
    publish(hub, session, owner, dataset, policy_text, schema=schema)
    if schema is not None:
        _draft(hub, session, dataset, schema_text)
    hub.audit.write(session, owner.id, "dataset.created", f"dataset/{name}", budget=dataset.budget)
    return dataset


def find(session: Session, name: str) -> Dataset:
    """Return the dataset of that name.

    Raises:
        NotHere: there is none, or it was deleted.
    """
    dataset = session.scalar(sa.select(Dataset).where(Dataset.name == name, Dataset.deleted.is_(None)))
    if dataset is None:
        raise NotHere("there is no such dataset.")
    return dataset


def owned(session: Session, name: str, person: Person) -> Dataset:
    """Return the dataset of that name, if this user owns it; for all others raise NotHere."""
    dataset = find(session, name)
    if dataset.owner_id != person.id:
        raise NotHere("there is no such dataset.")
    return dataset


def versions(session: Session, dataset: Dataset) -> list[Version]:
    """Return all versions, the newest first."""
    wanted = sa.select(Version).where(Version.dataset_id == dataset.id).order_by(Version.number.desc())
    return list(session.scalars(wanted))


def newest(hub: Hub, session: Session, dataset: Dataset) -> Version:
    """Return the newest version that is ready, checked.

    Raises:
        NotNow: there is none yet.
        SealBroken: it is not what the hub signed, or a newer one was ready.
    """
    wanted = sa.select(Version).where(Version.dataset_id == dataset.id, Version.state == "ready")
    ready = session.scalar(wanted.order_by(Version.number.desc()).limit(1))
    require_newest(hub, dataset, ready)
    if ready is None:
        raise NotNow(f"the dataset {dataset.name} has no tables yet.")
    return ready


# Versions


def draft_version(session: Session, dataset: Dataset) -> Version | None:
    """Return the schema that waits for tables, if there is one."""
    return next((version for version in versions(session, dataset) if version.state == "draft"), None)


def latest_schema(hub: Hub, session: Session, dataset: Dataset) -> str:
    """Return the schema that was saved last, as text; empty if there is none.

    Raises:
        SealBroken: it is not what the owner saved.
    """
    for version in versions(session, dataset):
        check_version(hub, dataset, version)
        return version.schema
    return ""


def save_draft(hub: Hub, session: Session, person: Person, dataset: Dataset, schema_text: str) -> Version:
    """Save a schema until its tables are uploaded.

    Privacy: a schema with marks to confirm is not saved, since its entries may come from values.
    """
    _own(person, dataset)
    _same_unit(hub, session, dataset, _checked(hub, schema_text))
    hub.audit.write(session, person.id, "schema.saved", f"dataset/{dataset.name}")
    return _draft(hub, session, dataset, schema_text)


def _draft(hub: Hub, session: Session, dataset: Dataset, schema_text: str) -> Version:
    draft = draft_version(session, dataset)
    others = [version.number for version in versions(session, dataset) if version is not draft]
    # Above all others and above what the ledger knows of, or it would never be the newest.
    number = max([newest_number(hub, dataset), *others]) + 1
    if draft is None:
        draft = Version(dataset_id=dataset.id, state="draft", problem="", created=now())
        session.add(draft)
    draft.number, draft.schema, draft.source, draft.declared = number, schema_text, {}, {}
    sign_version(hub, dataset, draft)
    session.flush()
    return draft


def new_version(
    hub: Hub,
    session: Session,
    person: Person,
    dataset: Dataset,
    *,
    schema_text: str = "",
    uploads: Mapping[str, str] | None = None,
    link: Link | None = None,
) -> Version:
    """Create a version of the tables, charged to the same account as all before it. A worker prepares it.

    Args:
        schema_text: the public schema; the one saved last, or that of the newest version, unless given.
        uploads: for each table the id of a complete upload; tables without one are taken from the newest version.
        link: instead, the connection to the tables, as `reach` has checked it.

    Raises:
        BadPolicy: the policy names a table or column that this schema does not have.
    """
    _own(person, dataset)
    schema_text = schema_text if schema_text.strip() else latest_schema(hub, session, dataset)
    schema = _checked(hub, schema_text)
    _same_unit(hub, session, dataset, schema)
    policy = current_page(session, dataset)
    if policy is not None:
        read(policy.text, schema)  # a role that shows a removed column would show nothing at all
    if any(version.state == "preparing" for version in versions(session, dataset)):
        raise NotNow("a version is being prepared. Wait until it is ready.")
    if link is not None:
        secret = seal(hub.keys.data_key(dataset), link.to_bytes(), f"address of {dataset.name}")
        source: dict[str, Any] = {"kind": link.kind, "place": link.place, "sealed": secret.hex()}
    else:
        source = {"kind": "sealed", "from": _origins(hub, session, dataset, schema, uploads or {})}
    version = _draft(hub, session, dataset, schema_text)
    version.source, version.state, version.created = source, "preparing", now()
    sign_version(hub, dataset, version)
    facts = {"version": version.number, "kind": source["kind"], "hash": keyed_digest(hub, dataset, version)}
    hub.audit.write(session, person.id, "version.begun", f"dataset/{dataset.name}", **facts)
    return version


def reach(hub: Hub, person: Person, dataset: Dataset, address: str) -> Link:
    """Check an address where a dataset's tables stay: PostgreSQL, a folder of Parquet, Spark.

    Resolves the host's name, which may take seconds: call it before the transaction that creates the version.

    Raises:
        BadForm: the operator has not listed it for the organisation that both the dataset and its owner belong to.
    """
    _own(person, dataset)
    if person.organisation_id != dataset.organisation_id:
        raise BadForm(f"address: {dataset.name} belongs to another organisation than you do. Send files instead.")
    return read_address(hub.settings, dataset, address)


def examine(hub: Hub, person: Person, *, policy_text: str = "", schema_text: str = "") -> None:
    """Parse a policy and a schema before the transaction that saves them, since there is one writer at a time.

    The result is cached, so parsing it again inside the transaction takes no time.

    Raises:
        BadSchema, BadPolicy: as that transaction would.
    """
    if "data owner" not in person.roles:
        raise Denied("this is for the role data owner.")
    schema = _checked(hub, schema_text) if schema_text.strip() else None
    if policy_text:
        read(policy_text, schema)


def examine_version(hub: Hub, person: Person, name: str, schema_text: str = "", address: str = "") -> Link | None:
    """Do the slow part of a new version before its transaction; return the link of connected tables.

    Args:
        name: the name of the dataset.
        schema_text, address: as for the version.
    """
    with hub.database.reading() as session:
        dataset = owned(session, name, person)
        schema_text = schema_text if schema_text.strip() else latest_schema(hub, session, dataset)
        policy = current_page(session, dataset)
    schema = _checked(hub, schema_text)
    if policy is not None:
        read(policy.text, schema)
    return reach(hub, person, dataset, address) if address else None


def _origins(
    hub: Hub, session: Session, dataset: Dataset, schema: Schema, uploads: Mapping[str, str]
) -> dict[str, dict[str, str | int]]:
    before = next((version for version in versions(session, dataset) if version.state == "ready"), None)
    if before is not None and any(table not in uploads for table in schema.tables):
        require_newest(hub, dataset, before)
    files = {} if before is None else before.source.get("files", {})
    unknown = [table for table in uploads if table not in schema.tables]
    missing = [table for table in schema.tables if table not in uploads and table not in files]
    if unknown or missing:
        words = [f"the schema has no table {name}" for name in unknown] + [f"{name} has no file" for name in missing]
        raise BadForm(f"uploads: {'; '.join(words)}.")
    origins: dict[str, dict[str, str | int]] = {}
    for table in schema.tables:
        if table not in uploads:
            assert before is not None
            origins[table] = {"version": before.number}
            continue
        upload = session.get(Upload, uploads[table], with_for_update={"key_share": True})
        if upload is None or upload.dataset_id != dataset.id:
            raise NotHere("there is no such upload.")
        if upload.state != "complete":
            raise NotNow(f"the upload for {table} is {upload.state}, not complete.")
        upload.state = "used"
        origins[table] = {"upload": upload.id}
    return origins


def retry(hub: Hub, session: Session, person: Person, dataset: Dataset, number: int) -> Version:
    """Prepare a failed version again, for instance after a server could not be reached."""
    _own(person, dataset)
    version = next((version for version in versions(session, dataset) if version.number == number), None)
    if version is None:
        raise NotHere("there is no such version.")
    if version.state != "failed" or any(version.state == "preparing" for version in versions(session, dataset)):
        raise NotNow("only a failed version is prepared again, and one at a time.")
    check_version(hub, dataset, version)
    current = newest_number(hub, dataset)
    for origin in version.source.get("from", {}).values():
        if "version" in origin and origin["version"] != current:  # rows may have been withdrawn since
            raise NotNow("it was to take tables from a version that was replaced since. Make a new version instead.")
        upload = session.get(Upload, origin["upload"]) if "upload" in origin else None
        if upload is not None and upload.state != "complete":
            raise NotNow("its files are no longer here. Send them again.")
        if upload is not None:
            upload.state = "used"
    version.state, version.problem = "preparing", ""
    hub.audit.write(session, person.id, "version.retried", f"dataset/{dataset.name}", version=number)
    return version


def _checked(hub: Hub, text: str) -> Schema:
    if not text.strip():
        raise BadSchema("there is no schema yet. Write one, or let the hub draft it.")
    most = 1000 * hub.settings.schema_kb
    if len(text.encode("utf-8", "replace")) > most:
        raise BadSchema(f"a schema has at most {most:,} bytes here. Shorten it, or ask the operator to allow more.")
    schema = Schema.parse(text, max_bytes=None)
    schema.check()
    return schema


def _same_unit(hub: Hub, session: Session, dataset: Dataset, schema: Schema) -> None:
    """Refuse a change of the unit: a promise to patients is not kept by protecting visits from the same account."""
    ready = [version for version in versions(session, dataset) if version.state == "ready"]
    if not ready:
        require_newest(hub, dataset, None)  # if there ever was one, it says what is protected
    for version in ready:
        check_version(hub, dataset, version)
        before = Schema.parse(version.schema, max_bytes=None)
        if before.unit.name != schema.unit.name:
            raise BadSchema(f"this dataset protects {before.unit}. A new version cannot protect {schema.unit} instead.")
        for name, table in schema.tables.items():
            prior = before.tables.get(name)
            if prior is not None and prior.unit is not None and prior.unit != table.unit:
                raise BadSchema(
                    f"in {name} the column {prior.unit} names the {schema.unit.name}. A new version cannot name it by "
                    "another column: what was spent protects whom that column names."
                )


# Pausing and deleting


def pause(hub: Hub, session: Session, person: Person, dataset: Dataset, paused: bool) -> None:
    """Pause or resume a dataset; while it is paused, no work on it begins.

    Raises:
        NotNow: it cannot be resumed while the ledger may be an older copy.
    """
    _own(person, dataset)
    # One at a time, also in PostgreSQL: the ledger counts how often it was paused and resumed.
    session.execute(sa.select(Dataset.id).where(Dataset.id == dataset.id).with_for_update(key_share=True))
    dataset.paused = paused
    session.add(dataset)
    note_pause(hub, dataset.name, paused)
    hub.audit.write(session, person.id, "dataset.paused" if paused else "dataset.resumed", f"dataset/{dataset.name}")


def delete(hub: Hub, session: Session, person: Person, dataset: Dataset) -> None:
    """Shred a dataset: erase its key, remove its files. Its name, its account and its history stay.

    Copies of the files, in backups for instance, cannot be read without the key. A backup of the hub still holds it,
    sealed under the master key: see docs/decisions/0007-sealed-tables.md. So do the files of PostgreSQL for a dataset
    of an earlier version, whose key is in no file of its own: the audit log says so.
    """
    _own(person, dataset)
    part = part_of(dataset.wrapped_key)
    in_database = part is None and not hub.database.url.startswith("sqlite")
    if session.get_bind().dialect.name == "sqlite":
        session.connection().exec_driver_sql("PRAGMA secure_delete = ON")  # overwrite, not just unlink
    dataset.wrapped_key, dataset.deleted, dataset.paused = None, now(), True
    session.add(dataset)
    session.execute(sa.delete(Attack).where(Attack.dataset_id == dataset.id))
    waiting = list(session.scalars(sa.select(Upload).where(Upload.dataset_id == dataset.id)))
    for upload in waiting:
        upload.state = "cancelled" if upload.state in ("open", "complete") else upload.state
    for version in versions(session, dataset):
        valid = _is_valid(hub, dataset, version)
        version.source = {"kind": version.source.get("kind", "")}
        version.state, version.signature = "deleted", None
        if valid:
            sign_version(hub, dataset, version)
    left = {"key": "in the files of PostgreSQL until VACUUM FULL, and in its archive"} if in_database else {}
    hub.audit.write(session, person.id, "dataset.deleted", f"dataset/{dataset.name}", **left)
    session.flush()
    folders = [hub.folder / "sealed" / str(dataset.id), *(hub.folder / "uploads" / upload.id for upload in waiting)]
    mark = hub.folder / f"{_ERASING}{uuid.uuid4().hex}"
    with mark.open("x") as file:  # before the commit: a process that is killed after it leaves word
        file.write(part or "")
        file.flush()
        os.fsync(file.fileno())
    afterwards(session, lambda: _erase(hub, folders, mark))


def _erase(hub: Hub, folders: list[Path], mark: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    finish_erasing(hub, mark)


def finish_erasing(hub: Hub, committed: Path | None = None) -> bool:
    """Erase the files of deleted keys, and keys in the write-ahead log; remove copies that a killed backup left.

    While a process reads the database, SQLite keeps the pages that it sees. Workers try again until it is done. What
    PostgreSQL keeps of a deleted row is not erased, and opens nothing without the file.

    Args:
        hub: the hub.
        committed: the mark of a deletion that is committed. Other marks are removed when they are old enough.

    Returns:
        False if a reader is in the way.
    """
    remove_orphaned_copies(hub.folder)
    marks = list(hub.folder.glob(f"{_ERASING}*"))
    if not marks:
        return True
    old = time.time() - _COMMITTED_S
    done = [mark for mark in marks if mark == committed or _made_before(mark, old)]
    _erase_parts(hub, done)
    if hub.database.url.startswith("sqlite"):
        connection = hub.database.engine.raw_connection()
        try:
            cursor = connection.cursor()
            (patience,) = cursor.execute("PRAGMA busy_timeout").fetchone()
            cursor.execute("PRAGMA busy_timeout = 100")  # while it waits for a reader, nobody can write
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            busy, *_ = cursor.fetchone() or (True,)
            cursor.execute(f"PRAGMA busy_timeout = {int(patience)}")
        finally:
            connection.close()
        if busy:
            return False
    for mark in done:
        mark.unlink(missing_ok=True)
    return True


def _erase_parts(hub: Hub, marks: list[Path]) -> None:
    """Erase the files of keys that no dataset has any more; a deletion may have been rolled back after its mark."""
    named = set()
    for mark in marks:
        with suppress(FileNotFoundError):  # another worker was quicker
            named.add(mark.read_text())
    with hub.database.reading() as session:
        used = {part_of(key) for key in session.scalars(sa.select(Dataset.wrapped_key))}
    for part in named - used - {""}:
        hub.keys.erase_part(part)


def _made_before(mark: Path, moment: float) -> bool:
    try:
        return mark.stat().st_mtime < moment
    except FileNotFoundError:  # another worker was quicker
        return False


def _is_valid(hub: Hub, dataset: Dataset, version: Version) -> bool:
    try:
        check_version(hub, dataset, version)
    except SealBroken:
        return False
    return True


def _own(person: Person, dataset: Dataset) -> None:
    if dataset.owner_id != person.id:
        raise NotHere("there is no such dataset.")

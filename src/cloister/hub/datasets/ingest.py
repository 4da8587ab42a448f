"""Preparation of a version from uploads or a connection: check, seal, record.

Runs in a worker. It may be killed at any moment and run again: nothing takes effect before the last transaction.
"""

import json
import logging
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.data.schema import Schema
from cloister.data.schema_fit import fit_lines, fit_of
from cloister.data.tables import open_tables
from cloister.hub.core.hub import Hub
from cloister.hub.core.keys import seal, unseal
from cloister.hub.core.models import Dataset, Upload, Version
from cloister.hub.core.notices import tell
from cloister.hub.core.settings import Settings
from cloister.hub.core.signed_state import check_version, keyed_digest, note_ready, sign_version
from cloister.hub.datasets.connect import open_source
from cloister.hub.datasets.tables import link_of, open_files, sealed_name, sealed_tables, write_table
from cloister.hub.datasets.unpack import GROWTH, Unpacked, unpack
from cloister.hub.datasets.upload import chunks
from cloister.privacy.errors import BadSchema, CloisterError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["fit_of_version", "give_up", "prepare", "unpacked"]

Progress = Callable[[float, str], None]
_MOST_COUNTED = 500_000_000  # number of values of a version that are checked against the schema
_REACH_S = 30  # timeout for a server to list the columns of its tables
_LOG = logging.getLogger("cloister.hub.datasets")


def prepare(hub: Hub, version_id: int, progress: Progress | None = None) -> str:
    """Prepare a version, if it still waits for it; return its state afterwards.

    Args:
        progress: called with the share done and a short text.

    Privacy: errors are reported without values. The owner finds them under `problem`.
    """
    say = progress or (lambda share, words: None)
    with hub.database.reading() as session:
        version = session.get(Version, version_id)
        dataset = None if version is None else session.get(Dataset, version.dataset_id)
    if version is None or dataset is None or dataset.deleted is not None:
        return "failed"
    if version.state != "preparing":
        return version.state
    folder = hub.folder / "sealed" / str(dataset.id) / f"{version.number}-{secrets.token_hex(6)}"
    try:
        check_version(hub, dataset, version)  # it is what the owner ordered: the hub signs what it makes of it
        schema = Schema.parse(version.schema, max_bytes=None)
        schema.check()
        key = hub.keys.data_key(dataset)
        make = _seal if version.source.get("kind") == "sealed" else _reach
        done = make(hub, dataset, version, schema, key, folder, say)
    except CloisterError as error:
        return _failed(hub, dataset, version, folder, str(error))
    except Exception as error:
        # The message of an unknown error could quote a row; its type cannot.
        _LOG.warning("version %s of %s: %s", version.number, dataset.name, type(error).__name__)
        return _failed(hub, dataset, version, folder, f"the tables could not be prepared ({type(error).__name__}).")
    return _ready(hub, dataset, version, folder, done)


@dataclass(frozen=True, slots=True)
class _Done:
    source: dict[str, Any]
    declared: dict[str, dict[str, str]]


# Sealing


def unpacked(hub: Hub, upload: Upload, key: bytes) -> tuple[Unpacked, Any]:
    """Open an upload; return it and its reader, which knows its position."""
    reader = chunks(hub, upload, key).open(upload.size)
    return unpack(reader, upload.file, GROWTH * hub.settings.upload_gb * 10**9), reader


def _seal(
    hub: Hub, dataset: Dataset, version: Version, schema: Schema, key: bytes, folder: Path, say: Progress
) -> _Done:
    opened = {name: _origin(hub, dataset, origin, name, key) for name, origin in version.source["from"].items()}
    needed_columns = {
        name: [*(() if table.unit is None else (table.unit,)), *table.columns] for name, table in schema.tables.items()
    }
    _check_columns(schema, needed_columns, opened)
    shapes = {name: source.kept(needed_columns[name]) for name, source in opened.items()}
    from pyarrow.dataset import dataset as files_of

    # As datasets, like sealed tables: a table is read in the schema's types instead of its own.
    empty = {name: files_of(shape.empty_table()) for name, shape in shapes.items()}
    declared = _declared(hub.settings, empty, schema)
    folder.mkdir(parents=True, mode=0o700)
    files: dict[str, Any] = {}
    for number, (name, source) in enumerate(opened.items()):
        path = folder / f"{number}.parquet"
        begun, words = number / len(opened), f"sealing {name}"

        def step(share: float, begun: float = begun, words: str = words) -> None:
            say(begun + share / len(opened), words)

        rows = _watched(source.tables(needed_columns[name]), source.share, step)
        facts = write_table(path, rows, shapes[name], key, sealed_name(dataset, version.number, name))
        files[name] = {"path": str(path.relative_to(hub.folder / "sealed")), **facts}
    say(1.0, "counting what fits the schema")
    fit = _counted(hub, dataset, version, schema, key, files)
    return _Done({"kind": "sealed", "files": files, "from": version.source["from"], "fit": fit}, declared)


def _counted(hub: Hub, dataset: Dataset, version: Version, schema: Schema, key: bytes, files: Mapping[str, Any]) -> str:
    """Count the rows that the schema leaves out, sealed with the dataset's key; empty if that takes too much."""
    sealed = open_files(hub, dataset, version.number, files, key)
    if sum(sealed[name].count_rows() * len(table.columns) for name, table in schema.tables.items()) > _MOST_COUNTED:
        return ""
    try:
        fits = fit_of(sealed, schema, memory_limit=hub.settings.job_memory, timeout_s=_REACH_S, spill=False)
    except CloisterError:  # a version is valid without its counts
        return ""
    lost, rows = sum(table_fit.rows - table_fit.read for table_fit in fits), sum(table_fit.rows for table_fit in fits)
    counts = {"rows": rows, "lost": lost, "lines": fit_lines(fits, values=False)}
    return seal(key, json.dumps(counts).encode(), _fit_label(dataset, version)).hex()


def fit_of_version(hub: Hub, dataset: Dataset, version: Version) -> dict[str, Any] | None:
    """Return how the rows of a version fit its schema: `rows`, `lost` and `lines`; None if not counted.

    Privacy: exact counts. For the owner only.
    """
    sealed = version.source.get("fit")
    if not sealed:
        return None
    fit: dict[str, Any] = json.loads(
        unseal(hub.keys.data_key(dataset), bytes.fromhex(sealed), _fit_label(dataset, version))
    )
    return fit


def _fit_label(dataset: Dataset, version: Version) -> str:
    return f"fit of {dataset.name}/{version.number}"


@dataclass(frozen=True, slots=True)
class _Origin:
    """Origin of a table's rows: an uploaded file, or the same table of an earlier version."""

    names: list[str]
    kept: "Callable[[list[str]], pa.Schema]"
    tables: "Callable[[list[str]], Iterable[pa.Table]]"
    share: Callable[[], float]


def _origin(hub: Hub, dataset: Dataset, origin: Mapping[str, Any], table: str, key: bytes) -> _Origin:
    with hub.database.reading() as session:
        if "upload" in origin:
            upload = session.get_one(Upload, origin["upload"])
            file, reader = unpacked(hub, upload, key)
            return _Origin(file.schema.names, file.kept, file.tables, lambda: reader.tell() / upload.size)
        wanted = sa.select(Version).where(Version.dataset_id == dataset.id, Version.number == origin["version"])
        earlier = session.scalars(wanted).one()
    check_version(hub, dataset, earlier)
    earlier_table = sealed_tables(hub, dataset, earlier, key)[table]
    import pyarrow as pa

    def kept(names: list[str]) -> "pa.Schema":
        return pa.schema([field for field in earlier_table.schema if field.name in names])

    def tables(names: list[str]) -> "Iterator[pa.Table]":
        for batch in earlier_table.to_batches(columns=kept(names).names):
            yield pa.table(batch)

    return _Origin(earlier_table.schema.names, kept, tables, lambda: 0.5)


def _check_columns(schema: Schema, needed_columns: Mapping[str, list[str]], opened: Mapping[str, _Origin]) -> None:
    missing = [
        f"there is no column {name}.{column} in the file"
        for name in schema.tables
        for column in needed_columns[name]
        if column not in opened[name].names
    ]
    if missing:
        listed = "".join(f"\n  {number}. {problem}." for number, problem in enumerate(missing, 1))
        raise BadSchema(f"the schema does not fit the files:{listed}")


def _declared(settings: Settings, source: object, schema: Schema) -> dict[str, dict[str, str]]:
    """Return the declared types as the engine names them; refuse a schema that cannot be read from them."""
    tables = open_tables(source, schema, memory_limit=settings.job_memory, timeout_s=_REACH_S, spill=False)
    try:
        return {name: _wanted(schema, name, tables.engine.columns(name)) for name in schema.tables}
    finally:
        tables.close()


def _wanted(schema: Schema, name: str, types: Mapping[str, str]) -> dict[str, str]:
    table = schema.tables[name]
    return {column: kind for column, kind in types.items() if column in table.columns or column == table.unit}


def _watched(
    rows: "Iterable[pa.Table]", share: Callable[[], float], step: Callable[[float], None]
) -> "Iterator[pa.Table]":
    for table in rows:
        yield table
        step(share())


# Connections


def _reach(
    hub: Hub, dataset: Dataset, version: Version, schema: Schema, key: bytes, folder: Path, say: Progress
) -> _Done:
    say(0.1, "opening the connection")
    source = open_source(hub.settings, dataset, link_of(dataset, version, key), schema)
    return _Done(version.source, _declared(hub.settings, source, schema))


# The end of it


def _ready(hub: Hub, dataset: Dataset, version: Version, folder: Path, done: _Done) -> str:
    with hub.database.writing() as session:
        current = session.get_one(Version, version.id, with_for_update={"key_share": True}, populate_existing=True)
        alive = session.get_one(Dataset, dataset.id, populate_existing=True).deleted is None
        same = (current.number, current.schema, current.source) == (version.number, version.schema, version.source)
        ours = current.state == "preparing" and alive and same
        if ours:
            current.source, current.declared, current.state, current.problem = done.source, done.declared, "ready", ""
            sign_version(hub, dataset, current)
            facts = {"version": version.number, "hash": keyed_digest(hub, dataset, current)}
            hub.audit.write(session, None, "version.ready", f"dataset/{dataset.name}", **facts)
            _tell_owner(
                hub,
                session,
                dataset,
                f"Version {version.number} of {dataset.name} is ready. Its page says how many rows fit its schema.",
            )
    if not ours:  # another worker was faster, or the dataset was deleted meanwhile
        shutil.rmtree(folder, ignore_errors=True)
        return current.state
    note_ready(hub, dataset.name, version.number)
    for origin in done.source.get("from", {}).values():
        if "upload" in origin:
            shutil.rmtree(hub.folder / "uploads" / origin["upload"], ignore_errors=True)
    for other in folder.parent.glob(f"{version.number}-*"):  # left by an interrupted attempt
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    return "ready"


def give_up(hub: Hub, version_id: int, problem: str) -> None:
    """Mark a version in preparation as failed, and remove the files of its attempts."""
    with hub.database.reading() as session:
        version = session.get(Version, version_id)
        dataset = None if version is None else session.get(Dataset, version.dataset_id)
    if version is None or dataset is None or version.state != "preparing":
        return
    for left in (hub.folder / "sealed" / str(dataset.id)).glob(f"{version.number}-*"):
        shutil.rmtree(left, ignore_errors=True)
    _failed(hub, dataset, version, hub.folder / "sealed" / str(dataset.id) / f"{version.number}-none", problem)


def _failed(hub: Hub, dataset: Dataset, version: Version, folder: Path, problem: str) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    with hub.database.writing() as session:
        current = session.get_one(Version, version.id, with_for_update={"key_share": True}, populate_existing=True)
        if current.state != "preparing":
            return current.state
        current.state, current.problem = "failed", problem[:4000]
        sent = [origin["upload"] for origin in version.source.get("from", {}).values() if "upload" in origin]
        # The uploads can be used again, with a corrected schema.
        session.execute(sa.update(Upload).where(Upload.id.in_(sent), Upload.state == "used").values(state="complete"))
        hub.audit.write(session, None, "version.failed", f"dataset/{dataset.name}", version=version.number)
        _tell_owner(hub, session, dataset, f"Version {version.number} of {dataset.name} could not be made.")
    return "failed"


def _tell_owner(hub: Hub, session: Session, dataset: Dataset, text: str) -> None:
    tell(hub, session, dataset.owner_id, text, f"/datasets/{dataset.name}/versions")

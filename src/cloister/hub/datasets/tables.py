"""Tables of a version: sealed files, and how a version is opened, with its rows for a worker, without for a plan.

A sealed table is one Parquet file, encrypted and authenticated by Parquet's modular encryption (AES-256-GCM). The key
of each file is derived from the dataset's data key and from the name of dataset, version and table, which is also
authenticated with every page: a file of another table, or of an older version, does not open in its place. Size and
SHA-256 are recorded when a table is sealed, and checked before it is opened; every page is checked as it is read.

A plan depends only on the schema, the declared types and the engine's dialect. All of that was recorded when the
version was prepared, so the web processes plan without access to any row.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloister.data.dialect import dialect_of, family, is_text
from cloister.data.engines.engine import DialectName
from cloister.data.schema import Schema
from cloister.data.tables import Tables, open_tables
from cloister.hub.core.hub import Hub
from cloister.hub.core.keys import subkey, unseal
from cloister.hub.core.models import Dataset, Person, Version
from cloister.hub.core.signed_state import check_version, require_unpaused
from cloister.hub.datasets.connect import Link, open_source
from cloister.privacy.errors import EngineFailed, NotHere, NotNow, SealBroken

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset

__all__ = [
    "EmptyEngine",
    "check",
    "link_of",
    "open_files",
    "open_for_work",
    "open_table",
    "open_twin",
    "sealed_name",
    "sealed_tables",
    "twin_of",
    "write_table",
]

_ROW_GROUP = 131_072
_checked: dict[tuple[str, int, int, int, int], str] = {}  # path, inode, size, times -> SHA-256, in this process
_DIALECTS: dict[str, DialectName] = {"sealed": "duckdb", "folder": "duckdb", "postgres": "postgres", "spark": "spark"}


# With rows, for a worker


def open_for_work(hub: Hub, dataset: Dataset, version: Version, person: Person | None) -> Tables:
    """Open the tables with their rows, for a worker only. The audit log records it first.

    Raises:
        SealBroken: the version is not what the hub signed, or a sealed table is not what was sealed.
    """
    with hub.database.reading() as session:  # read again: the owner may have paused or deleted it
        current = session.get(Dataset, dataset.id)
    if current is None or current.deleted is not None:
        raise NotHere("there is no such dataset.")
    require_unpaused(hub, current)
    if version.state != "ready" or version.dataset_id != current.id:
        raise NotNow("this version has no tables yet.")
    check_version(hub, current, version)
    hub.audit.record(
        None if person is None else person.id, "tables.opened", f"dataset/{current.name}", version=version.number
    )
    return _open(hub, current, version)


def _open(hub: Hub, dataset: Dataset, version: Version) -> Tables:
    key, schema, settings = hub.keys.data_key(dataset), Schema.parse(version.schema, max_bytes=None), hub.settings
    if version.source["kind"] == "sealed":
        source: object = sealed_tables(hub, dataset, version, key)
    else:
        source = open_source(settings, dataset, link_of(dataset, version, key), schema)
    # Without spilling: what does not fit into memory fails, rather than being written to a disk in clear.
    return open_tables(source, schema, memory_limit=settings.job_memory, timeout_s=settings.job_seconds, spill=False)


def sealed_name(dataset: Dataset, number: int, table: str) -> str:
    """Return the name to which a sealed file is bound."""
    return f"{dataset.name}/{number}/{table}"


def sealed_tables(hub: Hub, dataset: Dataset, version: Version, key: bytes) -> "dict[str, Any]":
    """Open a version's sealed tables, after checking them."""
    return open_files(hub, dataset, version.number, version.source["files"], key)


def open_files(hub: Hub, dataset: Dataset, number: int, files: Mapping[str, Any], key: bytes) -> "dict[str, Any]":
    """Open sealed tables by the facts recorded about their files."""
    return {
        table: open_table(hub.folder / "sealed" / file["path"], file, key, sealed_name(dataset, number, table))
        for table, file in files.items()
    }


def link_of(dataset: Dataset, version: Version, key: bytes) -> Link:
    """Return the sealed address of a connected version."""
    return Link.from_bytes(unseal(key, bytes.fromhex(version.source["sealed"]), f"address of {dataset.name}"))


# One sealed file


def write_table(
    path: Path, batches: "Iterable[pa.Table]", schema: "pa.Schema", key: bytes, name: str
) -> dict[str, Any]:
    """Seal a table into a file, durably.

    Args:
        path: the file; it must not exist.
        batches: the rows, all of this `schema`.
        key: the dataset's data key.
        name: the names of dataset, version and table; bound to the file.

    Returns:
        the size and SHA-256 of the file, to be recorded.
    """
    import pyarrow.parquet as pq
    from pyarrow.parquet.encryption import create_encryption_properties

    seal = create_encryption_properties(
        footer_key=subkey(key, name), aad_prefix=name.encode(), store_aad_prefix=False, plaintext_footer=False
    )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        with pq.ParquetWriter(file, schema, encryption_properties=seal, compression="zstd") as writer:
            for batch in batches:
                if batch.num_rows:
                    writer.write_table(batch, row_group_size=_ROW_GROUP)
        file.flush()
        os.fsync(file.fileno())
    return {"size": path.stat().st_size, "sha256": _digest(path)}


def open_table(path: Path, recorded: dict[str, Any], key: bytes, name: str) -> "pyarrow.dataset.Dataset":
    """Open a sealed table, after checking that it is unchanged. Its rows are read on demand.

    Raises:
        SealBroken: it was changed, exchanged or removed, or belongs to another dataset, version or table.
    """
    import pyarrow.dataset
    from pyarrow.parquet.encryption import create_decryption_properties

    check(path, recorded, name)
    opened = create_decryption_properties(footer_key=subkey(key, name), aad_prefix=name.encode())
    options = pyarrow.dataset.ParquetFragmentScanOptions(decryption_properties=opened)
    form = pyarrow.dataset.ParquetFileFormat(default_fragment_scan_options=options)
    try:
        return pyarrow.dataset.dataset(path, format=form)
    except (OSError, ValueError):
        raise _broken(name) from None


def check(path: Path, recorded: dict[str, Any], name: str) -> None:
    """Return True if a file has the recorded size and SHA-256; cached while the file stays untouched."""
    try:
        facts = path.stat(follow_symlinks=False)
        mark = (str(path), facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        if mark not in _checked:
            if facts.st_size != recorded["size"]:
                raise _broken(name)
            _checked[mark] = _digest(path)
    except OSError:
        raise _broken(name) from None
    if _checked[mark] != recorded["sha256"]:
        raise _broken(name)


def _broken(name: str) -> SealBroken:
    return SealBroken(f"the sealed table {name} is not what was sealed, or is missing.")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Without rows, for plans


def open_twin(hub: Hub, dataset: Dataset, version: Version) -> Tables:
    """Open the tables without rows, for plans: needs no key of the dataset, reads nothing, runs nothing.

    Raises:
        SealBroken: the version is not what the hub signed.
    """
    if version.state != "ready":
        raise NotNow("this version has no tables yet.")
    check_version(hub, dataset, version)
    return twin_of(Schema.parse(version.schema, max_bytes=None), _DIALECTS[version.source["kind"]], version.declared)


class EmptyEngine:
    """Engine that knows names and declared types, and runs nothing."""

    def __init__(self, dialect: DialectName, declared: Mapping[str, Mapping[str, str]]) -> None:
        self._dialect = dialect
        self._declared = declared

    @property
    def dialect(self) -> DialectName:
        """SQL dialect of the real engine."""
        return self._dialect

    def tables(self) -> list[str]:
        """Return the names of the tables."""
        return list(self._declared)

    def columns(self, table: str) -> dict[str, str]:
        """Return names and declared types, as the real engine gave them."""
        return dict(self._declared.get(table, {}))

    def place(self, table: str) -> str:
        """Return the quoted name."""
        return dialect_of(self._dialect).name(table)

    def failing(self, table: str, readers: Mapping[str, Callable[[str], str]]) -> list[str]:
        """Return none: there is no engine."""
        return []

    def prepare(self, sql: str) -> None:
        """Do nothing: there is no engine."""

    def run(self, sql: str) -> "pa.Table":
        """Refuse: there is nothing to run it on."""
        raise EngineFailed("this copy of the tables is for plans and has no rows. Work runs in a worker.")

    def again(self) -> "EmptyEngine":
        """Return itself: it has no state."""
        return self

    def close(self) -> None:
        """Do nothing: nothing is open."""


def twin_of(schema: Schema, dialect: DialectName, declared: Mapping[str, Mapping[str, str]]) -> Tables:
    """Return tables without rows, whose views are the same text as those of the real ones."""
    say = dialect_of(dialect)
    families = {
        table: {name: kind_family for name, kind in columns.items() if (kind_family := family(kind, say)) is not None}
        for table, columns in declared.items()
    }
    named = [(table.name, table.unit) for table in schema.tables.values() if table.unit is not None]
    return Tables(
        EmptyEngine(dialect, declared), schema, any(is_text(families[name][unit]) for name, unit in named), families
    )

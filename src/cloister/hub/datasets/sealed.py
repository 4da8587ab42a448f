"""Sealed table: one Parquet file, encrypted and authenticated by Parquet's modular encryption (AES-256-GCM).

The key of each file is derived from the dataset's data key and from the name of dataset, version and table, which is
also authenticated with every page: a file of another table, or of an older version, does not open in its place. Size
and SHA-256 are recorded when a table is sealed, and checked before it is opened; every page is checked as it is read.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloister.hub.core.keys import subkey
from cloister.privacy.errors import SealBroken

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset

__all__ = ["check", "open_table", "write_table"]

_ROW_GROUP = 131_072
_checked: dict[tuple[str, int, int, int, int], str] = {}  # path, inode, size, times -> SHA-256, in this process


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

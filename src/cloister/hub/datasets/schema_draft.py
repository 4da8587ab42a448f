"""First schema for uploaded files: from names and declared types, or, for the owner alone, from values.

Uploaded files are read in a process with limits, never in the one that serves the page. A draft from values is shown
to the owner and not stored until every mark is confirmed.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.data.draft import draft, draft_as_owner
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Dataset, Person, Upload
from cloister.hub.core.settings import Settings
from cloister.hub.core.signed_state import check_version
from cloister.hub.datasets import ingest
from cloister.hub.datasets.bounded import run_bounded
from cloister.hub.datasets.datasets import versions
from cloister.hub.datasets.tables import sealed_tables
from cloister.privacy.errors import NotHere, NotNow

if TYPE_CHECKING:
    import pyarrow as pa

    from cloister.hub.datasets.unpack import Unpacked

__all__ = ["draft_schema", "waiting"]

_ROWS = 100_000
_BYTES = 16 * 2**20  # of them, at about which reading ends: a small file may stand for gigabytes


def waiting(session: Session, dataset: Dataset) -> dict[str, Upload]:
    """Return for each table the newest upload that is complete and not used yet."""
    wanted = sa.select(Upload).where(Upload.dataset_id == dataset.id, Upload.state == "complete")
    return {upload.table: upload for upload in session.scalars(wanted.order_by(Upload.created))}


def draft_schema(hub: Hub, person: Person, dataset: Dataset, *, from_values: bool) -> str:
    """Draft a schema.yaml with blanks, for the waiting files, or else for the newest sealed tables.

    Args:
        from_values: read the first 100,000 rows and suggest bounds and categories, each marked to be confirmed.

    Privacy: for the owner only. With `from_values` the text holds values from the rows.
    """
    if person.id != dataset.owner_id:
        raise NotHere("there is no such dataset.")
    hub.audit.record(person.id, "schema.drafted", f"dataset/{dataset.name}", from_values=from_values)
    return str(run_bounded(hub.settings, _drafted, hub.settings, dataset.id, from_values, caller=person.id))


def _drafted(settings: Settings, dataset_id: int, from_values: bool) -> str:
    """Return the draft; runs in a process with limits."""
    with Hub(settings) as hub:
        tables = _tables(hub, dataset_id, _ROWS if from_values else 0)
    return draft_as_owner(tables) if from_values else draft(tables)


def _tables(hub: Hub, dataset_id: int, rows: int) -> "dict[str, pa.Table]":
    import pyarrow as pa

    with hub.database.reading() as session:
        dataset = session.get_one(Dataset, dataset_id)
        key = hub.keys.data_key(dataset)
        sent = waiting(session, dataset)
        ready = next((version for version in versions(session, dataset) if version.source.get("files")), None)
    tables: dict[str, pa.Table] = {}
    for table, upload in sent.items():
        file, _ = ingest.unpacked(hub, upload, key)
        tables[table] = pa.concat_tables([file.schema.empty_table(), *_first(file, rows)]).slice(0, rows)
    if not tables and ready is not None:
        check_version(hub, dataset, ready)
        for table, sealed_table in sealed_tables(hub, dataset, ready, key).items():
            tables[table] = sealed_table.head(rows) if rows else sealed_table.schema.empty_table()
    if not tables:
        raise NotNow("there is no complete file to draft from. Send one first.")
    return tables


def _first(file: "Unpacked", rows: int) -> "Iterator[pa.Table]":
    """Yield parts of a file until they have this many rows, or enough bytes: a part may be of a single line."""
    read = size = 0
    for part in file.tables(file.schema.names) if rows else ():
        yield part
        read, size = read + part.num_rows, size + part.nbytes
        if read >= rows or size >= _BYTES:
            return

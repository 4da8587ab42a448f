"""Sealed output of a job: its bytes and its facts for the owner, under the dataset's key.

The digest is keyed too, and by the dataset: it is in the audit log, where auditors and operators read it, and nobody
can try guesses of a file against it. It ends with the dataset's key.
"""

import base64
import hmac
import io
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from cloister.client.wire import result_bytes
from cloister.hub.core.keys import mac, seal, unseal
from cloister.hub.core.models import Dataset, Output
from cloister.privacy.errors import NotNow

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["facts_of", "package_of", "rows_of", "seal_facts", "seal_output"]


def seal_output(
    hub: "Hub", dataset: Dataset, job_id: int, package: Mapping[str, Any], facts: Mapping[str, Any]
) -> Output:
    """Return an output to be stored."""
    key, content = hub.keys.data_key(dataset), result_bytes(package)
    return Output(
        job_id=job_id,
        dataset_id=dataset.id,
        digest=_digest(key, job_id, content),
        sealed=seal(key, content, _label(job_id)),
        facts=seal_facts(hub, dataset, job_id, facts),
    )


def package_of(hub: "Hub", dataset: Dataset, output: Output) -> dict[str, Any]:
    """Return what was sealed.

    Raises:
        SealBroken, NotNow: it is not the output that was made.
    """
    key = hub.keys.data_key(dataset)
    content = unseal(key, output.sealed or b"", _label(output.job_id))
    if not hmac.compare_digest(_digest(key, output.job_id, content), output.digest):
        raise NotNow("the output is not the one that was made. Deny it; the person may ask again.")
    package: dict[str, Any] = json.loads(content)
    return package


def rows_of(result: Mapping[str, Any]) -> pa.Table:
    """Return the rows of a result."""
    return pq.read_table(io.BytesIO(base64.b64decode(result["file"])))


def seal_facts(hub: "Hub", dataset: Dataset, job_id: int, facts: Mapping[str, Any]) -> bytes:
    """Seal the facts of an output for the owner."""
    key = hub.keys.data_key(dataset)
    return seal(key, json.dumps(facts, allow_nan=False).encode(), _facts_label(job_id))


def facts_of(hub: "Hub", dataset: Dataset, output: Output) -> dict[str, Any]:
    """Return the facts of an output for the owner."""
    facts: dict[str, Any] = json.loads(
        unseal(hub.keys.data_key(dataset), output.facts or b"", _facts_label(output.job_id))
    )
    return facts


def _digest(key: bytes, job_id: int, content: bytes) -> str:
    """Return the keyed digest of an output: equal files of two jobs have different ones."""
    return mac(key, content, f"digest of the output of job {job_id}")


def _label(job_id: int) -> str:
    return f"output of job {job_id}"


def _facts_label(job_id: int) -> str:
    return f"facts of the output of job {job_id}"

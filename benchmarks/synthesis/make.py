"""One synthetic table of ours in a process of its own, so that its seconds and its memory are its own.

python make.py TABLE METHOD EPSILON SEED OUT

OUT is a parquet file; a line of JSON tells seconds and the most memory in MB.
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import pyarrow as pa

import cloister as cl
from cloister import synth
from synthesis.data import TABLES, schema_of

DELTA = "1e-9"


def main(table: str, method: str, amount: str, seed: str, out: str) -> dict[str, Any]:
    real = TABLES[table]()
    rows = pa.Table.from_pandas(real.rows, preserve_index=False)
    with tempfile.TemporaryDirectory() as folder:
        ds = cl.open(rows, schema=schema_of(real), budget=cl.rho(10**6), ledger=folder)
        start, worked = time.perf_counter(), time.process_time()
        made = getattr(synth, method)(
            ds,
            spend=cl.epsilon(amount, delta=DELTA),
            rows=len(real.rows),
            bins=32,
            random_state=f"{table} {method} {amount} {seed}",
        )
        seconds, processor = time.perf_counter() - start, time.process_time() - worked
        made.to_parquet(out)
        ds.close()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "processor": processor, "memory": memory, "measured": len(made.made.measured)}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))

"""SmartNoise SQL on pandas, in its own environment: milliseconds a question on a Parquet file, printed as JSON.

    python ask_smartnoise.py visits.parquet ROUNDS

The frame is in memory and the reader is made beforehand.
"""

import json
import statistics
import sys
import time
import warnings

import pandas as pd
from snsql import Privacy, from_connection

BY_WARD = "SELECT ward, region, COUNT(*) AS n, SUM(cost) AS s FROM dbo.visits GROUP BY ward, region"
QUESTIONS = {
    "row count": "SELECT COUNT(*) AS n FROM dbo.visits",
    "row mean": "SELECT AVG(cost) AS mean FROM dbo.visits",
    "row histogram": "SELECT FLOOR(cost / 1000) AS bin, COUNT(*) AS n FROM dbo.visits GROUP BY FLOOR(cost / 1000)",
    "row groups": BY_WARD,
    "person groups": BY_WARD,
}
COLUMNS = {
    "ward": {"type": "string"},
    "region": {"type": "int", "lower": 0, "upper": 7},
    "cost": {"type": "float", "lower": 0.0, "upper": 20000.0},
}
PERSON = {"max_ids": 8, "sample_max_ids": True, "person": {"type": "int", "private_id": True}}


def main(path: str, rounds: int) -> dict[str, float]:
    frame = pd.read_parquet(path)
    units = {"row": {"row_privacy": True}, "person": PERSON}
    readers = {name: reader(frame, {**unit, "rows": len(frame), **COLUMNS}) for name, unit in units.items()}
    return {name: answer_time(readers[name.split()[0]], sql, rounds) for name, sql in QUESTIONS.items()}


def reader(frame: pd.DataFrame, facts: dict[str, object]) -> object:
    metadata = {"": {"dbo": {"visits": facts}}}
    return from_connection(frame, privacy=Privacy(epsilon=0.1, delta=1e-7), metadata=metadata)


def answer_time(one: object, sql: str, rounds: int) -> float:
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        one.execute(sql)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:]) * 1000


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))

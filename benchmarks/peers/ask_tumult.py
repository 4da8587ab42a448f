"""Tumult Analytics on Spark (local, two cores), in its own environment: milliseconds of a count, printed as JSON.

python ask_tumult.py visits.parquet ROUNDS
"""

import json
import os
import statistics
import sys
import time

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark's workers do not find the library

from pyspark.sql import SparkSession
from tmlt.analytics import AddOneRow, PureDPBudget, QueryBuilder, Session


def main(path: str, rounds: int) -> dict[str, float]:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", 2)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    visits = spark.read.parquet(path).select("ward").cache()
    visits.count()
    session = Session.from_dataframe(PureDPBudget(rounds + 1), "visits", visits, protected_change=AddOneRow())
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        session.evaluate(QueryBuilder("visits").count(), PureDPBudget(1)).collect()
        times.append(time.perf_counter() - start)
    return {"row count": statistics.median(times[1:]) * 1000}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))

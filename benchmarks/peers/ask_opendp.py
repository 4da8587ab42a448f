"""OpenDP on Polars, in its own environment: milliseconds a question on a Parquet file, printed as JSON.

    python ask_opendp.py visits.parquet ROUNDS

The frame is in memory, the budget context is made beforehand, and every answer is collected.
"""

import json
import statistics
import sys
import time
import warnings

import opendp.prelude as dp
import polars as pl

WARDS = [f"ward {letter}" for letter in "ABCD"]
EDGES = [1000.0 * i for i in range(1, 20)]
COST = pl.col("cost").fill_null(0.0).fill_nan(0.0)


def main(path: str, rounds: int) -> dict[str, float]:
    dp.enable_features("contrib")
    frame = pl.read_parquet(path)
    whole = dp.polars.Margin(max_length=frame.height)
    by_ward = dp.polars.Margin(by=["ward", "region"], max_length=frame.height)
    row, person = dp.unit_of(contributions=1), dp.unit_of(contributions=1, identifier="person")
    regions = pl.LazyFrame({"region": range(8)}, schema={"region": pl.Int32})
    groups = pl.LazyFrame({"ward": WARDS}).join(regions, how="cross")
    bins = pl.LazyFrame({"bin": [str(i) for i in range(20)]})
    cut = pl.col("cost").cut(EDGES, labels=[str(i) for i in range(20)]).cast(pl.String).alias("bin")
    sums = [dp.len(signed=True), COST.dp.sum((0.0, 20000.0))]

    def context(unit: object, margin: object) -> dp.Context:
        loss = dp.loss_of(rho=0.01 * (rounds + 1))
        return dp.Context.compositor(
            data=frame.lazy(), privacy_unit=unit, privacy_loss=loss, split_evenly_over=rounds + 1, margins=[margin]
        )

    questions = {
        "row count": (row, whole, lambda q: q.select(dp.len(signed=True))),
        "row mean": (row, whole, lambda q: q.select(COST.dp.mean((0.0, 20000.0)))),
        "row histogram": (
            row,
            whole,
            lambda q: q.with_columns(cut).group_by("bin").agg(dp.len(signed=True)).with_keys(bins),
        ),
        "row groups": (row, by_ward, lambda q: q.group_by("ward", "region").agg(*sums).with_keys(groups)),
        "row median": (row, whole, lambda q: q.select(COST.dp.median([200.0 * i for i in range(101)]))),
        "person groups": (
            person,
            by_ward,
            lambda q: q.truncate_per_group(8).group_by("ward", "region").agg(*sums).with_keys(groups),
        ),
    }
    return {name: answer_time(context(unit, margin), ask, rounds) for name, (unit, margin, ask) in questions.items()}


def answer_time(context: dp.Context, ask: object, rounds: int) -> float | str:
    times = []
    try:
        for _ in range(rounds + 1):
            start = time.perf_counter()
            ask(context.query()).release().collect()
            times.append(time.perf_counter() - start)
    except BaseException as error:  # OpenDP panics are no Exceptions
        return str(error).strip().splitlines()[0][:120]
    return statistics.median(times[1:]) * 1000


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))

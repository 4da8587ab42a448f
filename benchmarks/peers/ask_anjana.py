"""anjana's k-anonymity with l-diversity and with t-closeness on a table, and pycanon's report of it.

python ask_anjana.py TABLE.csv HIERARCHIES_FOLDER OUT.csv
"""

import csv
import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from anjana.anonymity import l_diversity, t_closeness
from pycanon import anonymity

ROUNDS = 3  # the quickest counts, as for Cloister
QUASI = ["age", "education", "marital-status", "occupation", "sex", "native-country"]


def hierarchy(folder: Path, name: str, values: np.ndarray) -> dict[int, np.ndarray]:
    """The levels of each value, one entry for each value as in anjana's own examples: it searches them row by row."""
    rows = {line[0]: line[1:] for line in csv.reader((folder / f"{name}.csv").open(), delimiter=";")}
    levels = len(next(iter(rows.values())))
    return {0: values, **{level + 1: np.array([rows[str(v)][level] for v in values]) for level in range(levels)}}


def main() -> None:
    table, folder, out = sys.argv[1:]
    data = pd.read_csv(table)
    levels = {name: hierarchy(Path(folder), name, np.unique(data[name].to_numpy())) for name in QUASI}
    answer = {}
    for name, call, limit in (("k + l", l_diversity, 2), ("k + t", t_closeness, 0.2)):
        seconds = []
        for _ in range(ROUNDS):
            rows, steps = data.copy(), {column: dict(each) for column, each in levels.items()}  # it changes both
            start = time.perf_counter()
            released = call(rows, [], QUASI, "salary-class", 5, limit, 5, steps)
            seconds.append(time.perf_counter() - start)
        answer[name] = {"seconds": min(seconds), "rows": len(released)}
    released.to_csv(out, index=False)
    start = time.perf_counter()
    answer["check"] = {
        "k": int(anonymity.k_anonymity(released, QUASI)),
        "l": int(anonymity.l_diversity(released, QUASI, ["salary-class"])),
        "t": float(anonymity.t_closeness(released, QUASI, ["salary-class"])),
    }
    answer["check"]["seconds"] = time.perf_counter() - start
    print(json.dumps(answer))


main()

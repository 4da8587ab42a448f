"""MPyC's products, comparisons and quotients of shared fixed-point numbers: three parties, Shamir's shares.

python ask_mpyc.py -M3 TABLE.npz OUT.json
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
from mpyc.runtime import mpc

TABLE, OUT = sys.argv[-2:]
NUMBER = mpc.SecFxp(40, 20)  # its quotients need twice as many bits as there are after the point


async def timed(compute, rounds=3):
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        result = await mpc.output(compute())
        best = min(best, time.perf_counter() - start)
    return np.asarray(result, dtype=float).tolist(), best


async def main():
    async with mpc:
        with np.load(TABLE) as file:
            given = {name: mpc.input(NUMBER.array(file[name]), senders=0) for name in file}
        found = {
            "product": await timed(lambda: given["matrix"] @ given["vector"]),
            "comparisons": await timed(lambda: given["left"] < given["right"]),
            "quotients": await timed(lambda: given["left"][:20] / given["right"][:20]),
        }
    if mpc.pid == 0:
        Path(OUT).write_text(json.dumps(found), encoding="utf-8")


mpc.run(main())

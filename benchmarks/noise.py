"""How long does one draw of exact noise take, beside OpenDP's exact samplers?

Both draw integer noise of the same law and scale in the same run. OpenDP is called at its best: one vector call for
many draws (through a numpy array), one scalar call on a measurement built beforehand for a single draw.
"""

import time
from collections.abc import Callable

import numpy as np
import opendp.prelude as dp
from report import write

from cloister.privacy.noise import discrete_gaussian, discrete_laplace

MANY, PEER_MANY, SINGLES, ROUNDS = 1_000_000, 200_000, 300, 5
SCALES = ("0.3", "10", "1e6")
BARS = {"Laplace": 0.5, "Gaussian": 1.0}
OURS = {"Laplace": discrete_laplace, "Gaussian": discrete_gaussian}


def best(call: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Seconds of the quickest of several rounds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def repeat(call: Callable[[], object], times: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(times):
            call()

    return run


def peer(law: str, scale: float) -> tuple[Callable[[], object], Callable[[], object]]:
    """OpenDP's measurement of a vector and of a scalar."""
    make = dp.m.make_laplace if law == "Laplace" else dp.m.make_gaussian
    distance = dp.l1_distance(T="i64") if law == "Laplace" else dp.l2_distance(T="i64")
    vector = make(dp.vector_domain(dp.atom_domain(T="i64")), distance, scale=scale)
    scalar = make(dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"), scale=scale)
    zeros = np.zeros(PEER_MANY, dtype=np.int64)
    return lambda: vector(zeros), lambda: scalar(0)


def run() -> dict[str, object]:
    dp.enable_features("contrib")
    rows, bars = [], []
    for law, draw in OURS.items():
        slowest, least_ratio, slowest_single = 0.0, float("inf"), 0.0
        for scale in SCALES:
            many, single = peer(law, float(scale))
            ours = best(lambda draw=draw, scale=scale: draw(scale, MANY)) / MANY * 1e6
            theirs = best(many, 2) / PEER_MANY * 1e6
            ours_single = best(repeat(lambda draw=draw, scale=scale: draw(scale), SINGLES)) / SINGLES * 1e6
            theirs_single = best(repeat(single, SINGLES)) / SINGLES * 1e6
            ratio = theirs / ours
            rows.append(
                [
                    law,
                    scale,
                    f"{ours:.2f}",
                    f"{theirs:.1f}",
                    f"{ratio:.0f}×",
                    f"{ours_single:.0f}",
                    f"{theirs_single:.0f}",
                ]
            )
            slowest, least_ratio = max(slowest, ours), min(least_ratio, ratio)
            slowest_single = max(slowest_single, ours_single)
        bars += [
            bar(f"{law}, a million draws: at most {BARS[law]} µs each", f"{slowest:.2f} µs", slowest <= BARS[law]),
            bar(f"{law}: at least 20 times faster than OpenDP", f"{least_ratio:.0f} times", least_ratio >= 20),
            bar(f"{law}, a single draw: at most 100 µs", f"{slowest_single:.0f} µs", slowest_single <= 100),
        ]
    return {
        "title": "Exact noise",
        "question": "How long does one draw of exact integer noise take?",
        "tables": [
            {
                "caption": f"Microseconds a draw: {MANY:,} in one call (OpenDP: {PEER_MANY:,}), and a single call.",
                "columns": ["law", "scale", "Cloister", "OpenDP", "ratio", "Cloister, single", "OpenDP, single"],
                "rows": rows,
            }
        ],
        "bars": bars,
        "notes": [
            f"Quickest of {ROUNDS} rounds (OpenDP's vectors: of 2), one thread each.",
            "At a scale of 0.3 almost half of our draws are the zero with the wrong sign, and are drawn again.",
        ],
    }


def bar(text: str, measured: str, met: bool) -> dict[str, object]:
    return {"bar": text, "measured": measured, "met": met}


if __name__ == "__main__":
    write("noise", run())

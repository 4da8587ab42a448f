"""How fast do a million people answer privately, and how well is their answer estimated?

python benchmarks/local.py            # all of it: some minutes
python benchmarks/local.py --quick    # few people, two runs: prints every bar, writes no result
"""

import argparse
import gzip
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from peers.place import python_of
from published.square_wave import waves
from report import write

from cloister import local
from cloister.privacy.loss import Loss

PEOPLE, DOMAIN, AMOUNTS, RUNS = 1_000_000, 1024, ("0.5", "1", "2", "4"), 20
FEW = 100_000  # people in each of the 20 runs that measure the error
ADULT = Path(__file__).parents[2] / "shared" / "data" / "adult" / "adult.data.gz"
PEERS = Path(__file__).parent / "peers" / "ask_local.py"

ORACLES: dict[str, Callable[[int, Loss], local.Oracle]] = {
    "DE": local.DirectEncoding.for_loss,
    "SUE": local.UnaryEncoding.symmetric,
    "OUE": local.UnaryEncoding.optimised,
    "THE": local.ThresholdEncoding.for_loss,
    "OLH": local.LocalHashing.for_loss,
    "HR": local.HadamardResponse.for_loss,
    "SS": local.SubsetSelection.for_loss,
    "CMS": local.CountMeanSketch.for_loss,
}


def zipf(domain: int, power: float, people: int) -> NDArray[np.int64]:
    weights = 1.0 / np.arange(1, domain + 1) ** power
    counts = np.floor(people * weights / weights.sum()).astype(int)
    counts[0] += people - counts.sum()
    return np.random.default_rng(1).permutation(np.repeat(np.arange(domain), counts))


def timed(mechanism: local.Oracle, values: NDArray[np.int64], rounds: int = 3) -> tuple[float, float]:
    """Seconds on the clock and of one processor for perturb + aggregate + estimate, the best of a few rounds."""
    best = (np.inf, np.inf)
    for _ in range(rounds):
        clock, processor = time.perf_counter(), time.process_time()
        mechanism.estimate(mechanism.aggregate(mechanism.perturb(values)))
        best = min(best, (time.perf_counter() - clock, time.process_time() - processor))
    return best


def memory_mb() -> float:
    """The most memory of a process of its own that makes, counts and estimates a million optimised-bits reports."""
    code = (
        "import resource, numpy as np\nfrom cloister import local\n"
        f"m = local.UnaryEncoding.optimised({DOMAIN}, local.epsilon(1))\n"
        f"m.estimate(m.aggregate(m.perturb(np.arange({PEOPLE}) % {DOMAIN})))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def speed(values: NDArray[np.int64]) -> tuple[list[list[str]], float]:
    rows, worst = [], 0.0
    for label, maker in ORACLES.items():
        seconds = []
        for amount in AMOUNTS:
            mechanism = maker(DOMAIN, local.epsilon(amount))
            seconds.append(timed(mechanism, values))
        worst = max(worst, max(clock for clock, _ in seconds))
        rows.append([label, f"{mechanism.bits:,}", *(f"{clock:.2f} ({cpu:.2f})" for clock, cpu in seconds)])
        print(rows[-1], flush=True)
    return rows, worst


def histogram_seconds(values: NDArray[np.int64]) -> float:
    """SHE makes a billion draws; a fiftieth of the people is timed, in pieces, and scaled."""
    she, some = local.HistogramEncoding.for_loss(DOMAIN, local.epsilon(1)), values[: PEOPLE // 50]
    start = time.perf_counter()
    sum((she.aggregate(she.perturb(some[at : at + 2000])) for at in range(0, len(some), 2000)), start=0)
    return 50 * (time.perf_counter() - start)


def errors() -> tuple[list[list[str]], float, float]:
    """Measured over closed-form error, and how far the advised mechanism's error is from the least."""
    values = zipf(DOMAIN, 1.1, FEW)
    truth = np.bincount(values, minlength=DOMAIN) / FEW
    table: dict[str, list[str]] = {label: [label] for label in ORACLES}
    worst, advice = 0.0, 0.0
    for amount in AMOUNTS:
        loss = local.epsilon(amount)
        measured: dict[str, float] = {}
        for label, maker in ORACLES.items():
            total = 0.0
            for run in range(RUNS):
                mechanism = (
                    local.CountMeanSketch.for_loss(DOMAIN, loss, salt=str(run))
                    if label == "CMS"
                    else maker(DOMAIN, loss)
                )
                estimate = mechanism.estimate(mechanism.aggregate(mechanism.perturb(values)))
                total += float(np.square(estimate.frequencies - truth).mean())
            measured[label] = total / RUNS
            closed = float(mechanism.variance(truth, FEW).mean())
            worst = max(worst, abs(measured[label] / closed - 1))
            table[label].append(f"{measured[label]:.3g} ({measured[label] / closed:.3f})")
        advised = local.advise(DOMAIN, loss, FEW)
        closed_forms = [line.mse for line in advised.table]
        advice = max(advice, advised.best.mse(FEW) / min(closed_forms) - 1)
        print(amount, measured, flush=True)
    return list(table.values()), worst, advice


def gain(values: NDArray[np.int64], runs: int) -> dict[str, float]:
    """How many times lower the squared error of each projection is than that of raw local hashing at epsilon 1."""
    domain = int(values.max()) + 1
    truth = np.bincount(values, minlength=domain) / values.size
    olh, raw_error = local.LocalHashing.for_loss(domain, local.epsilon(1)), 0.0
    better = dict.fromkeys(("norm-sub", "simplex", "em"), 0.0)
    for _ in range(runs):
        raw = olh.estimate(olh.aggregate(olh.perturb(values)))
        raw_error += float(np.square(raw.frequencies - truth).sum())
        for method in better:
            better[method] += float(np.square(raw.projected(method).frequencies - truth).sum())  # type: ignore[arg-type]
    return {method: raw_error / error for method, error in better.items()}


def heavy_hitters(runs: int = 5) -> tuple[float, float]:
    """The least F1 of the top 10 and the most seconds: Zipf(1.5) over 2^32 values, epsilon 2."""
    worst, slowest = 1.0, 0.0
    heavy = local.HeavyHitters.for_loss(local.epsilon(2))
    for run in range(runs):
        ranks = np.random.default_rng(run).zipf(1.5, PEOPLE).astype(np.uint64)
        values = ((ranks * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)).astype(np.int64)
        found, counts = np.unique(values, return_counts=True)
        top = set(found[np.argsort(-counts)[:10]].tolist())
        start = time.perf_counter()
        estimate = heavy.estimate(heavy.aggregate(heavy.perturb(values)))
        slowest = max(slowest, time.perf_counter() - start)
        assert estimate.values is not None
        named = set(estimate.values[:10].tolist())
        worst = min(worst, 2 * len(named & top) / (len(named) + len(top)))
    return worst, slowest


def country() -> NDArray[np.int64] | None:
    return np.unique(column(13), return_inverse=True)[1].astype(np.int64) if ADULT.exists() else None


def column(place: int) -> list[str]:
    """A column of Adult's training file."""
    with gzip.open(ADULT, "rt") as lines:
        return [line.split(",")[place].strip() for line in lines if line.strip()]


def shuffles() -> tuple[float, float]:
    """The largest gap between the bounds of the shuffled epsilon, and the most seconds for both."""
    from cloister.local.privacy.shuffle import shuffled

    gap, slowest = 0.0, 0.0
    for amount in AMOUNTS:
        for domain in (3, 16, DOMAIN):
            start = time.perf_counter()
            found = shuffled(local.DirectEncoding.for_loss(domain, local.epsilon(amount)), PEOPLE, "1e-6")
            slowest = max(slowest, time.perf_counter() - start)
            assert found.gap is not None
            gap = max(gap, found.gap)
    return gap, slowest


def peers() -> list[str]:
    """A line for each oracle of multi-freq-ldpy and pure-ldp, or a sentence on what failed."""
    try:
        asked = [python_of("local"), PEERS, "2000"]
        out = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True, timeout=900)
        return out.stdout.splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        return [f"multi-freq-ldpy and pure-ldp could not be run here: {type(error).__name__}."]


def run() -> dict[str, object]:
    values = zipf(DOMAIN, 1.1, PEOPLE)
    times, slowest = speed(values)
    she = histogram_seconds(values)
    measured, off, advice = errors()
    on_zipf = gain(values, 5)
    countries = country()
    on_adult = gain(countries, RUNS) if countries is not None else None
    f1, seconds = heavy_hitters()
    memory = memory_mb()
    gap, shuffling = shuffles()
    notes = [f"SHE draws a billion noises; scaled from a fiftieth of the people it takes {she:,.0f} s."]
    notes += peers()
    if on_adult is None:
        notes.append("Adult was not on this machine, so its native-country and ages were not measured.")
    bars = [
        {"bar": "Every oracle but SHE in 3 s", "measured": f"slowest {slowest:.2f} s", "met": slowest <= 3},
        {"bar": "Memory at most 1 GB", "measured": f"{memory:.0f} MB", "met": memory <= 1024},
        {"bar": "Squared error within 3 % of its closed form", "measured": f"{100 * off:.1f} %", "met": off <= 0.03},
        {"bar": "Advice within 2 % of the best", "measured": f"{100 * advice:.1f} %", "met": advice <= 0.02},
        {
            "bar": "Projected at least 3 times better than raw OLH, Zipf(1.1)",
            "measured": ", ".join(f"{method} {times_:.1f}" for method, times_ in on_zipf.items()),
            "met": min(on_zipf.values()) >= 3,
        },
        {
            "bar": "Heavy hitters: F1 of the top 10 at least 0.9 in 60 s",
            "measured": f"worst of 5 runs {f1:.2f}, slowest {seconds:.1f} s",
            "met": f1 >= 0.9 and seconds <= 60,
        },
        {
            "bar": "Shuffle bounds for 1,000,000 people within 2 % in 2 s",
            "measured": f"direct encoding of 3, 16 and 1,024 values: {100 * gap:.2f} % apart, {shuffling:.2f} s",
            "met": gap <= 0.02 and shuffling <= 2,
        },
    ]
    if on_adult is not None:
        text = ", ".join(f"{method} {times_:.1f}" for method, times_ in on_adult.items())
        bar = "Projected at least 3 times better than raw OLH, Adult's native-country"
        bars.insert(5, {"bar": bar, "measured": text, "met": min(on_adult.values()) >= 3})
        ours, theirs, doubt = waves(np.array(column(0), dtype=np.int64), 3 * RUNS)
        text = f"{ours:.3f} years, published {theirs:.3f} (± {doubt:.3f})"
        bar = "Square wave on Adult's age at epsilon 1 no worse than the published SW+EMS"
        bars.append({"bar": bar, "measured": text, "met": ours <= theirs + doubt})
    heads = [f"epsilon {amount}" for amount in AMOUNTS]
    return {
        "title": "Local privacy",
        "question": "How fast do a million people answer privately, and how well is it estimated?",
        "tables": [
            {
                "caption": "Perturb + aggregate + estimate, 1,000,000 people, 1,024 values, every report really made: "
                "seconds on the clock (of one processor), the best of three.",
                "columns": ["oracle", "bits an answer", *heads],
                "rows": times,
            },
            {
                "caption": f"Mean squared error of a share over {RUNS} runs of {FEW:,} people, Zipf(1.1) "
                "(and its ratio to the closed form).",
                "columns": ["oracle", *heads],
                "rows": measured,
            },
        ],
        "bars": bars,
        "notes": notes,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few people and runs; writes no result")
    if parser.parse_args().quick:
        PEOPLE, FEW, RUNS, AMOUNTS = 50_000, 5_000, 2, ("1", "4")
        for bar in run()["bars"]:  # type: ignore[attr-defined]
            print(f"{bar['bar']}: {bar['measured']}")
    else:
        write("local", run())
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB at most")

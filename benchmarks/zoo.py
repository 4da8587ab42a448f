"""How many broken mechanisms does the audit catch, and does it accuse an honest one?

Every mechanism of `cloister.attack.zoo` is audited, and its honest twin twenty times, each with samples of its own.
jax-privacy's auditor sees the same samples as scores: an output that is one number as it is, a vector projected on the
difference of the means of both sides.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from report import write

from cloister.attack.intervals import curve
from cloister.attack.zoo import ZOO, run

sys.path.insert(0, str(Path(__file__).parent))
from peers.place import HERE, python_of

SAMPLES, REPEATS, RISK = 50_000, 20, 1e-6
LEAST, SECONDS = 22, 300


def scores(twins, which):
    """Scores of both sides for an auditor that takes one number a sample."""
    mechanism = twins.mechanism(which, 0)
    sides = [
        np.asarray(mechanism.sample(data, SAMPLES), dtype=float).reshape(SAMPLES, -1)
        for data in (twins.left, twins.right)
    ]
    direction = sides[1].mean(axis=0) - sides[0].mean(axis=0) if sides[0].shape[1] > 1 else np.ones(1)
    return [side @ direction for side in sides]


def peer():
    """What jax-privacy's auditor refutes, of the broken mechanisms and of their twins; None if it cannot run here."""
    try:
        python = python_of("jax_privacy")
    except (OSError, subprocess.SubprocessError):
        return None
    verdicts = {}
    for which in ("broken", "honest"):
        arrays, tested = {}, []
        for twins in ZOO:
            allowed = curve(twins.claim)
            sides = scores(twins, which)
            for delta, epsilon in zip(allowed.deltas, allowed.epsilons, strict=True):
                number = len(tested)
                arrays |= {f"left_{number}": sides[0], f"right_{number}": sides[1], f"delta_{number}": delta}
                tested.append((twins.name, epsilon))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "scores.npz"
            np.savez(file, **arrays)
            call = [python, HERE / "ask_jax_privacy_audit.py", file, str(RISK)]
            answer = subprocess.run(call, check=True, capture_output=True, text=True, timeout=1800)
        bounds = json.loads(answer.stdout.splitlines()[-1])
        verdicts[which] = {name for (name, epsilon), bound in zip(tested, bounds, strict=True) if bound > epsilon}
    return verdicts


def main():
    start, results = time.perf_counter(), []
    for result in run(samples=SAMPLES, repeats=REPEATS, confidence=1 - RISK):
        print(result, flush=True)
        results.append(result)
    seconds = time.perf_counter() - start
    found = peer()
    caught, alarms = sum(r.caught for r in results), sum(r.false_alarms for r in results)
    columns = ["kind", "fault", "epsilon at least", "allowed", "caught", f"twin accused, of {REPEATS}"]
    rows = [
        [
            r.twins.kind,
            r.twins.name,
            f"{r.broken.lower_bound:.2f}",
            f"{r.broken.allowed:.2f}",
            "yes" if r.caught else "**no**",
            r.false_alarms,
            *([] if found is None else ["yes" if r.twins.name in found["broken"] else "no"]),
        ]
        for r in results
    ]
    summary = [["Cloister", f"{caught} of {len(ZOO)}", f"{alarms} of {REPEATS * len(ZOO)}"]]
    if found is not None:
        columns.append("jax-privacy catches it")
        summary.append(
            ["jax-privacy", f"{len(found['broken'])} of {len(ZOO)}", f"{len(found['honest'])} of {len(ZOO)}"]
        )
    write(
        "zoo",
        {
            "title": "A zoo of broken mechanisms",
            "question": "How many broken mechanisms does the audit catch, and does it accuse an honest one?",
            "tables": [
                {
                    "caption": f"{SAMPLES:,} samples a side; an honest mechanism is accused with a chance of {RISK:g}.",
                    "columns": ["auditor", "broken ones caught", "honest ones accused"],
                    "rows": summary,
                },
                {"caption": "Each fault.", "columns": columns, "rows": rows},
            ],
            "bars": [
                {
                    "bar": f"at least {LEAST} of at least 24 caught",
                    "measured": f"{caught} of {len(ZOO)}",
                    "met": caught >= LEAST and len(ZOO) >= 24,
                },
                {
                    "bar": f"no false alarm on {REPEATS} repeats of each twin",
                    "measured": f"{alarms} of {REPEATS * len(ZOO)}",
                    "met": alarms == 0,
                },
                {"bar": "the whole zoo in 5 minutes", "measured": f"{seconds:.0f} s", "met": seconds <= SECONDS},
            ],
            "notes": [
                "The faults are described in docs/zoo.md; the code is cloister.attack.zoo.",
                "jax-privacy's auditor takes one score a sample: outputs of one number as they are, vectors projected "
                "on the difference of the means of both sides. It chooses thresholds on half of the scores. Faults "
                "that show in the last bits, in single outputs or in several coordinates need other scores, which its "
                "user would have to write.",
            ],
        },
    )


if __name__ == "__main__":
    main()

"""What do the attacks reach, how sharp are their bounds, and how long do they take?

    python benchmarks/attack.py [audit] [one_run] [membership] [models] [updates] [tables]

Without words every part runs. Each part leaves what it measured under build/attack; the result shows the parts that are
there. Adult and MNIST come from ../shared/data where they are; a part that needs them is otherwise left out.
"""

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attacks import audits, membership, models, updates
from report import write

PARTS = Path(__file__).parents[1] / "build" / "attack"
SAMPLES, REPEATS, FEW = 1_000_000, 1000, 5000  # a side; repeats, and samples a side of each
RATE = 0.05  # of false alarms, stated by a confidence of 95 %
CANARIES, RUNS = 1000, 41
AUDITS = 9  # of each kind; the middle one is shown
LEAST = {1: 0.4, 4: 2.0, 8: 3.5}
PEOPLE, SHADOWS = 1000, 32
TIES = 1e-4  # the authors' RMIA gives the same score to records between two of the population; ours orders them


def measure_audit() -> Any:
    """Bounds on epsilons that are known, and false alarms."""
    return [audits.gaussian(epsilon, delta, SAMPLES, REPEATS, FEW, AUDITS)
            for delta in ("1e-5", "1e-3") for epsilon in (0.1, 1, 4)]  # fmt: skip


def measure_one_run() -> Any:
    """Bounds of several runs each; one run is one audit."""
    return [
        [audits.one_run(what, epsilon, CANARIES) for _ in range(RUNS)] for what in audits.TRAINED for epsilon in LEAST
    ]


def measure_membership() -> Any:
    """Attacks on an over-fitted network and on its private twin."""
    return membership.membership(PEOPLE, SHADOWS, (1, 8))


def measure_models() -> Any:
    """Errors of stolen models."""
    return models.stolen()


def measure_updates() -> Any:
    """Records behind gradients."""
    return {
        "closed form": updates.closed_form(32),
        "digits": updates.digits(2, 1500),
        "rows": updates.rows(4, 16, 1000),
    }


def measure_tables() -> Any:
    """A block of seven people."""
    return models.block(10, 200)


def bar(text: str, measured: str, met: bool) -> dict[str, Any]:
    return {"bar": text, "measured": measured, "met": bool(met)}


def audit_table(found: Any) -> tuple[list[Any], list[Any]]:
    rows, bars = [], []
    for one in found:
        epsilon, delta = one["epsilon"], one["delta"]
        row = [f"{epsilon:g}", delta]
        for name, least in (("known", 0.9), ("unknown", 0.75)):
            bound, seconds = one[name]
            alarms = one[f"{name} alarms"]
            row += [f"{bound:.3g}", f"{alarms} of {REPEATS:,}"]
            text = f"epsilon {epsilon:g} at delta {delta}, family {name}: at least {least} of it in at most 5 s"
            bars.append(
                bar(text, f"{bound / epsilon:.2f} in {seconds:.1f} s", bound >= least * epsilon and seconds <= 5)
            )
            bars.append(bar(f"epsilon {epsilon:g} at delta {delta}, family {name}: false alarms at most {RATE:.0%}",
                            f"{alarms} of {REPEATS:,}", alarms <= RATE * REPEATS))  # fmt: skip
        rows.append(row)
    columns = ["epsilon", "delta", "family known: at least", "false alarms", "family unknown: at least", "false alarms"]
    caption = (
        f"Gaussian mechanism at its true epsilon. Bounds from {SAMPLES:,} samples a side; alarms in repeats of {FEW:,}."
    )
    return [{"caption": caption, "columns": columns, "rows": rows}], bars


def one_run_table(found: Any) -> tuple[list[Any], list[Any]]:
    rows, bars = [], []
    for runs in found:
        what, epsilon = runs[0]["what"], runs[0]["epsilon"]
        middle = {name: statistics.median(run["bounds"][name] for run in runs) for name in runs[0]["bounds"]}
        above = {name: sum(run["bounds"][name] > epsilon for run in runs) for name in middle}
        seconds = max(run["seconds"] for run in runs)
        rows.append([what, str(epsilon), *(f"{middle[name]:.2f}" for name in middle), str(max(above.values())),
                     f"{seconds:.1f}"])  # fmt: skip
        best, name = max((value, name) for name, value in middle.items())
        text = f"{what} at epsilon {epsilon} in one run with {CANARIES:,} canaries: at least {LEAST[epsilon]} in 60 s"
        bars.append(bar(text, f"{best:.2f} ({name}) in {seconds:.1f} s", best >= LEAST[epsilon] and seconds <= 60))
    columns = ["training", "epsilon", "guesses, any law", "guesses, Gaussian", "normal scores", "runs above", "s"]
    caption = f"One run, {CANARIES:,} canaries, 95 %, delta {audits.DELTA}; medians of {RUNS} runs."
    return [{"caption": caption, "columns": columns, "rows": rows}], bars


def membership_table(found: Any) -> tuple[list[Any], list[Any]]:
    columns = ["network", "attack", "area under the curve", "95 % interval", "true positives at 1 % false", "epsilon ≥"]
    shown = [("over-fitted", one) for one in found["suite"]]
    shown += [(f"private, epsilon {one['epsilon']}", one) for one in found["private"]]
    rows = [[name, one["attack"], f"{one['auc']:.3f}", f"{one['low']:.3f} to {one['high']:.3f}", f"{one['tpr']:.1%}",
             f"{one['epsilon at least']:.2f}"] for name, one in shown]  # fmt: skip
    formulas = [[name, f"{ours:.4f}", f"{theirs:.4f}"] for name, (ours, theirs) in found["formulas"].items()]
    tables = [
        {"caption": f"Adult, {PEOPLE:,} members and as many others; of the private network the strongest attack.",
         "columns": columns, "rows": rows},
        {"caption": "Areas under the curve from the same losses, means over three targets.",
         "columns": ["attack", "ours", "the authors'"], "rows": formulas},
    ]  # fmt: skip
    best = max(one["auc"] for one in found["suite"])
    bars = [
        bar(f"the suite with {SHADOWS} shadow models in at most 3 minutes", f"{found['seconds']:.0f} s",
            found["seconds"] <= 180),
        bar("area under the curve above 0.6", f"{best:.3f}", best > 0.6),
        *(bar(f"{name}: no worse than the authors' formula, but for ties (0.0001)", f"{ours:.4f} and {theirs:.4f}",
              ours >= theirs - TIES)
          for name, (ours, theirs) in found["formulas"].items()),
        *(bar(f"private twin at epsilon {one['epsilon']}: within its bound", f"{one['auc']:.3f} of {one['most']:.3f}",
              one["low"] <= one["most"] and not one["refuted"]) for one in found["private"]),
    ]  # fmt: skip
    return tables, bars


def models_table(found: Any) -> tuple[list[Any], list[Any]]:
    rows = [[one["name"], f"{one['weights']:,}", f"{one['queries']:,}", f"{one['error']:.1e}",
             f"{one['agreement']:.1%}"] for one in found]  # fmt: skip
    worst = max(one["error"] for one in found)
    columns = ["logistic regression", "weights", "answers", "largest error of a coefficient", "agreement"]
    caption = "Stolen from answers with all digits."
    return [{"caption": caption, "columns": columns, "rows": rows}], [
        bar("linear models are stolen exactly", f"largest error {worst:.1e}", worst <= 1e-6)
    ]


def updates_table(found: Any) -> tuple[list[Any], list[Any]]:
    closed, tables, notes = found["closed form"], [], []
    bars = [bar("one record from one gradient, relative error at most 1e-6", f"{closed['plain']['error']:.1e}",
                closed["plain"]["share"] == 1)]  # fmt: skip
    digits, rows = found["digits"], found["rows"]
    if isinstance(digits, str):
        notes.append(digits)
    else:
        shown = [[one["activation"], *(f"{one[name]:.1f}" for name in ("plain", "private", "blind"))] for one in digits]
        tables.append({"caption": "Eight MNIST digits from one gradient of a perceptron: mean PSNR in dB.",
                       "columns": ["activation", "undefended", "clipped, with noise", "no gradient"],
                       "rows": shown})  # fmt: skip
        worst, best = min(one["plain"] for one in digits), max(one["private"] for one in digits)
        bars += [bar("eight digits undefended: at least 25 dB", f"{worst:.1f} dB", worst >= 25),
                 bar("under clipping and noise: at most 12 dB", f"{best:.1f} dB", best <= 12)]  # fmt: skip
    if isinstance(rows, str):
        notes.append(rows)
    else:
        shown = [[one["name"], f"{one['right']:.1%}", f"{one['blind']:.1%}", *(f"{x:.0%}" for x in one["quarters"])]
                 for one in rows]  # fmt: skip
        tables.append({"caption": "Cells of eight of Adult's rows from one gradient, by quarter of entropy.",
                       "columns": ["defence", "right", "guessed", "lowest", "second", "third", "highest"],
                       "rows": shown})  # fmt: skip
        sure = rows[0]["quarters"][0]
        bars.append(bar("cells in the lowest quarter of entropy: at least 90 % right", f"{sure:.1%}", sure >= 0.9))
    return tables, bars + [bar(note, "left out", False) for note in notes]


def tables_table(found: Any) -> tuple[list[Any], list[Any]]:
    fit, most = found["noisy fit"], found["most"]
    rows = [[str(number + 1), f"{most}, and there are more" if blocks == most else str(blocks), str(certain)]
            for number, (blocks, certain) in enumerate(zip(fit, found["noisy certain"], strict=True))]  # fmt: skip
    caption = f"Seven people from noisy means at epsilon 1: blocks that fit, of which at most {most} are looked for."
    table = {"caption": caption, "columns": ["try", "blocks that fit", "people in all of them"], "rows": rows}
    return [table], [
        bar("a block of 7 people is reconstructed in at most 10 s",
            f"{found['certain']} people in all blocks, {found['tables']} block, {found['seconds']:.1f} s",
            found["certain"] == 7 and found["seconds"] <= 10),
        bar("and not from answers at epsilon 1", f"{max(found['noisy certain'])} people in all blocks",
            max(found["noisy certain"]) == 0),
    ]  # fmt: skip


MEASURED: dict[str, Callable[[], Any]] = {
    "audit": measure_audit, "one_run": measure_one_run, "membership": measure_membership, "models": measure_models,
    "updates": measure_updates, "tables": measure_tables,
}  # fmt: skip
SHOWN: dict[str, Callable[[Any], tuple[list[Any], list[Any]]]] = {
    "audit": audit_table, "one_run": one_run_table, "membership": membership_table, "models": models_table,
    "updates": updates_table, "tables": tables_table,
}  # fmt: skip


def run(asked: list[str]) -> dict[str, Any]:
    PARTS.mkdir(parents=True, exist_ok=True)
    for part in asked or MEASURED:
        (PARTS / f"{part}.json").write_text(json.dumps(MEASURED[part]()), encoding="utf-8")
    tables, bars, notes = [], [], list(NOTES)
    for part, show in SHOWN.items():
        if not (PARTS / f"{part}.json").exists():
            continue
        found = json.loads((PARTS / f"{part}.json").read_text(encoding="utf-8"))
        if isinstance(found, str):  # why it was left out
            notes.append(found)
            continue
        more, own = show(found)
        tables += more
        bars += own
    return {
        "title": "Attacks",
        "question": "What do the attacks reach, how sharp are their bounds, and how long do they take?",
        "tables": tables,
        "bars": bars,
        "notes": notes,
    }


NOTES = (
    "An audit that does not know the family counts samples in an event, and at delta 1e-5 the events that show epsilon "
    "are rare. Were the best event known beforehand and all samples counted, a million a side would prove on average "
    "0.60 of 0.1, 0.81 of 1 and 0.78 of 4; a part of them has to find the event.",
    "One run: the bound from guesses holds for any training (Steinke, Nasr & Jagielski 2023), that along the Gaussian "
    "curve for training that is as private as Gaussian noise (Mahloujifar, Melis & Chaudhuri 2024), that of normal "
    "scores where besides canaries have coordinates and noise of their own, as here.",
    "The authors' formulas are in benchmarks/published/membership.py; of LiRA the better of two variances counts.",
    "A private step's noise is as large as its clipping norm (rho 0.5).",
)

if __name__ == "__main__":
    write("attack", run(sys.argv[1:]))

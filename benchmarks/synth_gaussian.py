"""Is what one learns from Gaussian synthetic rows as good as from real ones, by epsilon and by rows of a group?

The textbook's case study of `mggm`: models trained on synthetic rows and tested on real ones, and
the reverse; a support vector machine, logistic and linear regression, k-means. Beside `mggm` stand `ron_gauss`, real
rows, and the textbook's own pipeline, which is not private (synthesis/textbook.py).

    python benchmarks/synth_gaussian.py            # some minutes on one core
    python benchmarks/synth_gaussian.py --quick    # one small table, two repeats; prints, writes no result
"""

import argparse
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import numpy as np
from report import write
from synthesis.labelled import bent, german
from synthesis.textbook import textbook

import cloister as cl
from cloister import synth
from cloister.lessons.public_data import PublicData, bundled
from cloister.lessons.synth_utility import UtilityCurve, compare, evaluate
from cloister.synth.generators import mggm as noise_tradeoff

EPSILONS, FEWER, WIDE = (0.1, 0.2, 0.4, 0.7, 1.0), (0.1, 0.4, 1.0), (1.0, 10.0, 1000.0)
SIZES, WIDE_SIZES = (25, 50, 75, 100), (25, 100, 1000, 4000)
RULES, BINS, DELTA = (150, 10, 3), 16, "1e-6"
TASKS = {"svm": "SVM, accuracy", "logistic": "logistic regression, accuracy", "linear": "linear regression, MSE"}
CLUSTERS = {"kmeans": "k-means, adjusted Rand index"}


class Bench:
    """Figures by data set, method, task, scenario, epsilon and k."""

    def __init__(self, quick: bool) -> None:
        self.repeats = 2 if quick else 5
        self.small = [bundled(name) for name in (("breast cancer",) if quick else ("breast cancer", "diabetes"))]
        self.large = [] if quick else [bent()]
        self.notes: list[str] = []
        self.curves: dict[tuple[str, str, str, int, float, int], UtilityCurve] = {}
        self.groups: dict[tuple[str, float, int], list[int]] = {}
        self.shapes: dict[str, tuple[int, int]] = {}
        self.alike: dict[str, bool] = {}

    def run(self) -> None:
        for data in self.small:
            self._keep(data, synth.mggm, epsilons=EPSILONS, sizes=(100,))
            self._keep(data, synth.ron_gauss, epsilons=FEWER, sizes=(0,))
            self._textbook(data)
            self.alike[data.name] = self._same_for_every_size(data)
        for data in self.large:
            self._keep(data, synth.mggm, epsilons=FEWER, sizes=(100,))
            self._sizes(data)
            self.rules(data)

    def optional(self) -> None:
        try:
            data = german()
        except OSError:
            self.notes.append("German credit was not on this machine (../shared/data), so it was not measured.")
            return
        self._keep(data, synth.mggm, epsilons=FEWER, sizes=(100,))

    def _keep(self, data: PublicData, generator: Callable[..., Any], **asked: Any) -> None:
        start = time.process_time()
        asked = {"delta": DELTA, "label": "label", "bins": BINS, "repeats": self.repeats, **asked}
        self._hold(data, evaluate(data, generator, open_dataset=cl.open, **asked), start)

    def _hold(self, data: PublicData, found: Sequence[UtilityCurve], start: float) -> None:
        self.shapes[data.name] = data.rows.shape
        for one in found:
            self.curves[one.data, one.method, one.task, one.scenario, one.epsilon, one.size] = one
        print(f"{data.name}, {found[0].method}: {time.process_time() - start:.0f} s", flush=True)

    def _textbook(self, data: PublicData) -> None:
        start = time.process_time()
        asked = {"epsilons": (*FEWER, 10.0, inf), "sizes": SIZES, "repeats": self.repeats}
        self._hold(data, compare(data, textbook, method="textbook", **asked), start)

    def _same_for_every_size(self, data: PublicData) -> bool:
        """Whether k from 25 to 100 leads to the very same table, at the largest epsilon."""
        made: list[Any] = []

        def mggm(ds: Any, **options: Any) -> Any:
            made.append(synth.mggm(ds, **options))
            return made[-1]

        own = {"epsilons": EPSILONS[-1:], "sizes": SIZES, "repeats": 1, "tasks": ("kmeans",), "scenarios": (2,)}
        evaluate(data, mggm, open_dataset=cl.open, delta=DELTA, label="label", bins=BINS, reviewed=False, **own)
        return all(one.to_arrow().equals(made[0].to_arrow()) for one in made)

    def _sizes(self, data: PublicData) -> None:
        """Where there are rows for groups: their number, and what k changes."""
        for epsilon in WIDE:
            for size in WIDE_SIZES:
                self._grouped(data, "as shipped", epsilon, size)

    def rules(self, data: PublicData) -> None:
        """What the rule changes by which groups are too small: a public constant, so the loss is the same."""
        shipped = noise_tradeoff._CLEAR
        try:
            for noise_tradeoff._CLEAR in RULES:
                for epsilon in FEWER[1:]:
                    self._grouped(data, f"rule {noise_tradeoff._CLEAR}", epsilon, 100)
        finally:
            noise_tradeoff._CLEAR = shipped

    def _grouped(self, data: PublicData, name: str, epsilon: float, size: int) -> None:
        held = self.groups.setdefault((name, epsilon, size), [])

        def grouped(ds: Any, **options: Any) -> Any:
            made = synth.mggm(ds, **options)
            held.append(max(int(words.rpartition(" in ")[2].split()[0]) for words in made.made.chosen))
            return made

        grouped.__name__ = name
        asked = {"epsilons": (epsilon,), "sizes": (size,), "scenarios": (2,), "tasks": ("svm",)}
        self._keep(data, grouped, reviewed=False, **asked)

    def pair(self, name: str, epsilon: float, size: int) -> list[str]:
        """How many groups a class has, and what an SVM learns."""
        held = self.groups[name, epsilon, size]
        count = f"{min(held)}" if min(held) == max(held) else f"{min(held)} to {max(held)}"
        return [count, self.cell(self.large[0].name, name, "svm", 2, epsilon, size)]

    def cell(self, data: str, method: str, task: str, scenario: int, epsilon: float, size: int) -> str:
        """A mean with half of its 95 % interval, where it was measured."""
        one = self.curves.get((data, method, task, scenario, epsilon, size))
        if one is None:
            return "–"
        return f"{_number(task, one.value)} ± {_number(task, one.margin or 0.0)}"

    def mean(self, method: str, tasks: Sequence[str], scenario: int, epsilon: float, size: int) -> float:
        """Over the small data sets and some tasks."""
        held = [self.curves[data.name, method, task, scenario, epsilon, size] for data in self.small for task in tasks]
        return float(np.mean([one.value for one in held]))

    def table(self, caption: str, tasks: dict[str, str], scenario: int) -> dict[str, Any]:
        rows = []
        for data in self.shapes:
            for task, words in tasks.items():
                for method, size in (("mggm", 100), ("ron_gauss", 0)):
                    cells = [self.cell(data, method, task, scenario, epsilon, size) for epsilon in EPSILONS]
                    real = self.curves[data, "mggm", task, scenario, FEWER[0], 100].real
                    if set(cells) != {"–"}:
                        rows.append([data, words, method, *cells, _number(task, real)])
        heads = [f"epsilon {epsilon:g}" for epsilon in EPSILONS]
        return {"caption": caption, "columns": ["data", "task", "method", *heads, "real rows"], "rows": rows}


def _number(task: str, value: float) -> str:
    return f"{value:.2g}" if task == "linear" else f"{value:.2f}"


def by_size(bench: Bench) -> dict[str, Any]:
    """What k does in the textbook's pipeline."""
    rows = [
        [
            data.name,
            words,
            size,
            *(bench.cell(data.name, "textbook", task, 2, one, size) for one in (*FEWER, 10.0, inf)),
        ]
        for data in bench.small
        for task, words in (TASKS | CLUSTERS).items()
        for size in SIZES
    ]
    heads = [f"epsilon {epsilon:g}" for epsilon in (*FEWER, 10.0)]
    return {
        "caption": "The textbook's own pipeline, NOT PRIVATE whatever its epsilon (MDAV on raw rows; noise as if one "
        "row moved one group of k): synthetic rows train, real ones test; k-means on all rows.",
        "columns": ["data", "task", "k", *heads, "no noise"],
        "rows": rows,
    }


def by_group(bench: Bench) -> list[dict[str, Any]]:
    """What k does in ours, where there are rows enough, and what the rule does that k gives way to."""
    real = bench.curves[bench.large[0].name, "as shipped", "svm", 2, WIDE[0], WIDE_SIZES[0]].real
    what = f"an SVM trained on synthetic rows and tested on real ones; {real:.2f} with real rows"
    sizes = [[size, *(cell for one in WIDE for cell in bench.pair("as shipped", one, size))] for size in WIDE_SIZES]
    rules = [[rule, *(cell for one in FEWER[1:] for cell in bench.pair(f"rule {rule}", one, 100))] for rule in RULES]

    def heads(epsilons: Sequence[float]) -> list[str]:
        return [head for one in epsilons for head in (f"groups of a class, epsilon {one:g}", f"SVM, epsilon {one:g}")]

    return [
        {
            "caption": f"`mggm` by k on 16,000 of the 20,000 generated rows: groups, and the accuracy of {what}.",
            "columns": ["k", *heads(WIDE)],
            "rows": sizes,
        },
        {
            "caption": "The same at k 100, by the rule that keeps groups large: a group has so many times more rows "
            "than the noise on a product (synth/generators/mggm.py; 150 is shipped).",
            "columns": ["rule", *heads(FEWER[1:])],
            "rows": rules,
        },
    ]


def claims(bench: Bench) -> dict[str, Any]:
    """What the case study reports, beside means over breast cancer and diabetes."""
    kinds, rows = ("svm", "logistic"), []

    def said(claim: str, ours: str, theirs: str) -> None:
        rows.append([claim, ours, theirs])

    def path(method: str, size: int, tasks: Sequence[str], scenario: int) -> str:
        return " → ".join(f"{bench.mean(method, tasks, scenario, one, size):.2f}" for one in FEWER)

    for words, tasks, scenario in (
        ("SVM and logistic regression trained on synthetic rows", kinds, 2),
        ("SVM and logistic regression tested on synthetic rows", kinds, 1),
        ("k-means", ("kmeans",), 2),
    ):
        claim = f"Fast gain from epsilon 0.1 to 0.4, then a plateau: {words}, at 0.1 → 0.4 → 1"
        said(claim, path("mggm", 100, tasks, scenario), path("textbook", 100, tasks, scenario))
    for words, tasks in (("SVM and logistic regression trained on synthetic rows", kinds), ("k-means", ("kmeans",))):
        for epsilon in (1.0, 10.0):
            each = ", ".join(f"{bench.mean('textbook', tasks, 2, epsilon, size):.2f}" for size in SIZES)
            same = "the same table for every k" if all(bench.alike.values()) else "tables differ"
            ours = same if epsilon == EPSILONS[-1] else "–"
            said(f"k 100 is best and k 25 worst: {words}, epsilon {epsilon:g}, k 25, 50, 75, 100", ours, each)
    for data in bench.small:
        for epsilon in (0.1, 1.0):
            pair = [
                " against ".join(bench.cell(data.name, method, "linear", one, epsilon, 100) for one in (2, 1))
                for method in ("mggm", "textbook")
            ]
            said(f"Regression errs far less in scenario 2 than in scenario 1: {data.name}, epsilon {epsilon:g}", *pair)
    columns = ["what the case study reports", "`mggm`", "the textbook's pipeline, not private"]
    caption = "What the case study reports, and what was seen here: means over breast cancer and diabetes."
    return {"caption": caption, "columns": columns, "rows": rows}


NOTES = [
    "Means of five tables, each from a split of its own, ± half of the 95 % interval (Student's t). Delta 1e-6, "
    "numbers in 16 bins, the class handed over as `label`, k 100 unless said. An SVM is chosen by F1 in three folds "
    "and learns from 1,000 rows at most; linear regression predicts the last feature from the others; k-means has 50 "
    "restarts. Logistic regression is not in the source's figures. How clusters were compared it does not say: the "
    "Rand index is ours.",
    "Levels cannot be compared: the source's figures are curves, and its data (Australian credit, Pima diabetes, the "
    "original Wisconsin breast cancer) are not on this machine. Breast cancer (its ten means) and diabetes are those "
    "of scikit-learn, German credit is the sibling of the Australian. So directions are what is compared.",
    "Reproduced with `mggm`: more epsilon brings models and clusters nearer to those of real rows, and for models "
    "trained on synthetic rows and for clusters the gain is, on average, steepest below 0.4. Regression errs less in "
    "scenario 2 than in scenario 1, where noise is in the test: on breast cancer by far, with intervals apart from "
    "epsilon 0.7 on; on diabetes and German credit not at 0.1, and elsewhere within the intervals.",
    "Not reproduced: a plateau from epsilon 0.4. Scenario 2 goes on gaining until 0.7 on breast cancer and diabetes; "
    "with 130 to 170 rows as a source scenario 1 is noise below that, with intervals of up to ± 0.5. There an "
    "accuracy above that of real rows is no merit: noise has moved the classes apart. On German credit no mean of a "
    "model trained on synthetic rows reaches the 70 % of its larger class (breast cancer 63 %, diabetes and the "
    "generated rows 50 %).",
    "Not reproduced: any effect of k from 25 to 100. On breast cancer and diabetes all four lead to the same table at "
    "epsilon 1, row by row, since all rows of a class are one group. With 16,000 rows it is the same at epsilon 1. "
    "What decides is our own rule that a group has 150 times more rows than the noise on a product, which was chosen "
    "on Adult: at epsilon 1 that is more than half of a class's 8,000 rows. k decides where it asks for larger groups "
    "than the rule does: 4,000 at epsilon 10. Between 25 and 100 the number of groups differs at epsilon 1000 alone, "
    "and the accuracy hardly does.",
    "On the generated rows the rule is too careful: one group misses their bend, and an SVM is near chance until "
    "epsilon 10 pays for four groups, while a rule of 10 would have had most of it at epsilon 0.4 and 1. It was not "
    "changed for one generated table: on Adult at epsilon 1 rules of 30 and 10 score 0.30 and 0.29 where 150 scores "
    "0.33 (one seed). (Logistic regression cannot tell these classes from real rows either.)",
    "Where the source's k may come from is seen in its own pipeline, in which noise is divided by k as if one row "
    "moved one group. On breast cancer larger groups are better there, most clearly at epsilon 10; on diabetes no "
    "order of k is seen. Without noise k makes hardly any difference, so here k 25 is worst by its noise, not by the "
    "bias that the source names. The source states no noise: with this one classifiers trained at epsilon 0.1 to 1 are "
    "below those of `mggm` on average, although it protects nobody. Nor does it state a rule for sets of columns: both "
    "use average linkage, cut at 0.95.",
]


def result(bench: Bench) -> dict[str, Any]:
    sizes = "; ".join(f"{name} {rows:,} × {columns}" for name, (rows, columns) in bench.shapes.items())
    return {
        "title": "Learning from Gaussian synthetic rows",
        "question": "Is what one learns from synthetic rows of `mggm` as good as from real ones, by epsilon and k?",
        "tables": [
            bench.table(
                "Scenario 2: 80 % of the rows are the source of synthetic ones, which train; 20 % test.", TASKS, 2
            ),
            bench.table("Scenario 1: 70 % of the rows train; synthetic ones from the other 30 % test.", TASKS, 1),
            bench.table(
                "K-means, two clusters, all rows are the source: agreement with clusters of real rows.", CLUSTERS, 2
            ),
            by_size(bench),
            *by_group(bench),
            claims(bench),
        ],
        "notes": [*bench.notes, *NOTES, f"Rows and features: {sizes}."],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute; prints, writes no result")
    quick = parser.parse_args().quick
    start, worked = time.perf_counter(), time.process_time()
    bench = Bench(quick)
    bench.run()
    if quick:
        for row in claims(bench)["rows"]:
            print(*row, sep=" | ")
    else:
        bench.optional()
        took = f"All of it took {time.process_time() - worked:.0f} s of one core's work."
        bench.notes.append(took)
        write("synth_gaussian", result(bench))
    print(f"{time.process_time() - worked:.0f} s of work, {time.perf_counter() - start:.0f} s on the clock")

"""The case study's question: are models trained on synthetic rows as good as those trained on real ones?

    curves = evaluate(bundled("breast cancer"), synth.mggm, epsilons=(0.1, 1), sizes=(25, 100), open_dataset=cl.open)

    scenario 1   30 % of the rows are the source of the synthetic ones, on which models are tested; the other 70 % train
    scenario 2   80 % of the rows are the source of the synthetic ones, which train models; the other 20 % test
    tasks        a support vector machine and logistic regression (accuracy), linear regression (mean squared error),
                 k-means with two clusters and 50 restarts (adjusted Rand index against clusters found in the real rows)

K-means has nothing to test and so no scenario: all rows are the source, and its result is the same under either. The
measurements, beside those the case study reports: docs/benchmarks.md, from `benchmarks/synth_gaussian.py`.

Every result has a baseline with real rows in the place of synthetic ones. Data are public or generated: scores against
real rows read them, so this is for lessons and benchmarks, never for a private table.
"""

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

from cloister.lessons.public_data import PublicData, sklearn_part
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import epsilon, rho

__all__ = ["UtilityCurve", "Maker", "compare", "evaluate"]

Floats = NDArray[np.float64]
_TASKS = ("svm", "logistic", "linear", "kmeans")
_SHARES = {1: 0.3, 2: 0.8}  # share of the rows that synthetic ones are made from, by scenario
_MOST = 1000  # most training rows of a support vector machine: its time grows with their square


Maker = Callable[[PublicData, float, int, int], PublicData]
"""Synthetic rows from real ones, an epsilon, the rows of a group, and a seed."""


@dataclass(frozen=True, slots=True)
class UtilityCurve:
    """One point of the figures.

    Attributes:
        data, method, task: identify the point.
        scenario: 1, synthetic rows test; 2, synthetic rows train.
        epsilon: the cost of the synthetic rows.
        size: rows of a group; 0 for generators that have none.
        value: the mean over repeats: accuracy, mean squared error, or adjusted Rand index.
        real: the same with real rows in the place of synthetic ones.
        repeats: the number of tables made, each from its own split.
        margin: half of the 95 % interval of the value (Student's t); None for one table.
    """

    data: str
    method: str
    task: str
    scenario: int
    epsilon: float
    size: int
    value: float
    real: float
    repeats: int
    margin: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def evaluate(
    data: PublicData,
    generator: Callable[..., Any],
    *,
    epsilons: Sequence[float] = (0.1, 0.2, 0.4, 0.7, 1.0),
    sizes: Sequence[int] = (25, 50, 75, 100),
    delta: str | None = "1e-6",
    repeats: int = 3,
    scenarios: Sequence[int] = (1, 2),
    tasks: Sequence[str] = _TASKS,
    folder: str | Path | None = None,
    seed: int = 0,
    open_dataset: Callable[..., Any],
    **options: Any,
) -> list[UtilityCurve]:
    """Compute the figures of the case study: every epsilon and size, both scenarios, all tasks.

    Args:
        data: public rows.
        generator: `synth.mggm`, `synth.ron_gauss` or any other.
        epsilons: the loss of a synthetic table.
        sizes: group sizes, for a generator that has them; (0,) leaves the option out.
        delta: beside each epsilon; None for pure epsilons.
        repeats: tables for each point, each with its own split.
        scenarios: 1, 2 or both.
        tasks: some of "svm", "logistic", "linear", "kmeans".
        folder: for ledgers; default a temporary one.
        seed: of splits and tables, so that figures repeat; tables are marked `not private`, and the data are public.
        open_dataset: `cl.open`.
        options: passed to the generator.
    """
    options |= {"reviewed": False} if "reviewed" in signature(generator).parameters else {}  # no errors requested
    with tempfile.TemporaryDirectory() as home:

        def make(source: PublicData, budget: float, size: int, number: int) -> PublicData:
            spend = epsilon(str(budget), delta=delta) if delta else epsilon(str(budget))
            settings = {**options, **({"group_size": size} if size else {})}
            directory = Path(tempfile.mkdtemp(dir=folder or home))
            return _synthetic(source, generator, spend, directory, number, open_dataset, settings)

        return compare(
            data,
            make,
            method=getattr(generator, "__name__", "generator"),
            epsilons=epsilons,
            sizes=sizes,
            repeats=repeats,
            scenarios=scenarios,
            tasks=tasks,
            seed=seed,
        )


def compare(
    data: PublicData,
    make: Maker,
    *,
    method: str,
    epsilons: Sequence[float],
    sizes: Sequence[int] = (0,),
    repeats: int = 3,
    scenarios: Sequence[int] = (1, 2),
    tasks: Sequence[str] = _TASKS,
    seed: int = 0,
) -> list[UtilityCurve]:
    """Compute the figures for rows from any source, such as a reference without privacy.

    Args:
        data, epsilons, sizes, repeats, scenarios, tasks, seed: as in `evaluate`.
        make: synthetic rows from real ones.
        method: its name.
    """
    unknown = [task for task in tasks if task not in _TASKS]
    if unknown or not set(scenarios) <= set(_SHARES):
        raise BadInput(f"tasks are {', '.join(_TASKS)}; scenarios are 1 and 2.")
    points: dict[tuple[str, int, float, int], list[tuple[float, float]]] = {}
    for repeat in range(repeats):
        for trial in _trials(data, scenarios, tasks, seed + repeat):
            real = {task: trial.score(task, trial.source) for task in trial.tasks}
            for budget, size in product(epsilons, sizes):
                synthetic = make(trial.source, budget, size, seed + repeat)
                for task in trial.tasks:
                    scores = trial.score(task, synthetic), real[task]
                    for scenario in trial.scenarios:
                        points.setdefault((task, scenario, budget, size), []).append(scores)
    return [_curve(data.name, method, key, np.array(scores)) for key, scores in points.items()]


def _curve(data: str, method: str, key: tuple[str, int, float, int], scores: Floats) -> UtilityCurve:
    value, real = scores.mean(axis=0)
    repeats = len(scores)
    margin = None
    if repeats > 1:
        margin = float(t.ppf(0.975, repeats - 1) * scores[:, 0].std(ddof=1) / np.sqrt(repeats))
    return UtilityCurve(data, method, *key, value=float(value), real=float(real), repeats=repeats, margin=margin)


@dataclass(frozen=True, slots=True)
class _Trial:
    """The source of synthetic rows, and the tasks to score.

    Attributes:
        source: the rows.
        scenarios: the scenarios of the figures.
        tasks: the tasks.
        score: returns the score of synthetic rows for a task.
    """

    source: PublicData
    scenarios: Sequence[int]
    tasks: Sequence[str]
    score: Callable[[str, PublicData], float]


def _trials(data: PublicData, scenarios: Sequence[int], tasks: Sequence[str], seed: int) -> Iterator[_Trial]:
    tested = [task for task in tasks if task != "kmeans"]
    for scenario in scenarios if tested else ():
        source, other = _split(data, _SHARES[scenario], seed)
        score = _tests(other, tested, seed) if scenario == 1 else _trains(other, seed)
        yield _Trial(source, [scenario], tested, score)
    if "kmeans" in tasks:
        yield _Trial(data, scenarios, ["kmeans"], _clusters(data, seed))


def _tests(other: PublicData, tasks: Sequence[str], seed: int) -> Callable[[str, PublicData], float]:
    """Train on real rows once; test on synthetic ones."""
    models = {task: _fitted(task, other, seed) for task in tasks}
    return lambda task, synthetic: _judged(task, models[task], synthetic)


def _trains(other: PublicData, seed: int) -> Callable[[str, PublicData], float]:
    """Train on synthetic rows; test on real ones."""
    return lambda task, synthetic: _judged(task, _fitted(task, synthetic, seed), other)


def _clusters(data: PublicData, seed: int) -> Callable[[str, PublicData], float]:
    """Compare the clusters found from real and from synthetic rows, both judged on the real rows."""
    labels = _fitted("kmeans", data, seed).predict(data.rows)
    alike = sklearn_part("metrics").adjusted_rand_score
    return lambda task, synthetic: float(alike(labels, _fitted(task, synthetic, seed).predict(data.rows)))


def _split(data: PublicData, share: float, seed: int) -> tuple[PublicData, PublicData]:
    order = np.random.default_rng([seed, 30]).permutation(len(data.rows))
    cut = int(share * len(order))
    first, second = order[:cut], order[cut:]
    return (
        PublicData(data.name, data.rows[first], data.label[first]),
        PublicData(data.name, data.rows[second], data.label[second]),
    )


def _synthetic(
    source: PublicData,
    generator: Callable[..., Any],
    spend: Any,
    folder: Path,
    seed: int,
    open_dataset: Callable[..., Any],
    options: dict[str, Any],
) -> PublicData:
    import pyarrow as pa

    names = [f"x{i}" for i in range(source.rows.shape[1])]
    columns: dict[str, Any] = {name: {"type": "real", "bounds": [-1, 1], "nullable": False} for name in names}
    columns["label"] = {"type": "integer", "categories": [0, 1], "nullable": False}
    table = pa.table({**{name: source.rows[:, i] for i, name in enumerate(names)}, "label": source.label})
    ds = open_dataset(
        table, schema={"unit": "row", "tables": {"rows": {"columns": columns}}}, budget=rho(10**6), ledger=folder
    )
    synthetic = generator(ds, spend=spend, rows=len(source.rows), random_state=seed, **options).to_arrow()
    drawn = np.column_stack([synthetic[name].to_numpy() for name in names])
    return PublicData(source.name, drawn, synthetic["label"].to_numpy().astype(np.int64))


def _fitted(task: str, train: PublicData, seed: int) -> Any:
    """Fit a model to some rows; with one class only, it predicts that class."""
    rows, label = train.rows, train.label
    if task == "kmeans":
        return sklearn_part("cluster").KMeans(2, n_init=50, random_state=seed).fit(rows)
    if task == "linear":
        # The last feature is the target, as in a table of measurements without another number to predict.
        return sklearn_part("linear_model").LinearRegression().fit(rows[:, :-1], rows[:, -1])
    if task == "svm" and len(rows) > _MOST:
        some = np.random.default_rng(seed).choice(len(rows), _MOST, replace=False)
        rows, label = rows[some], label[some]
    least = int(np.bincount(label, minlength=2).min())
    model: Any = sklearn_part("dummy").DummyClassifier()
    if least and task == "logistic":
        model = sklearn_part("linear_model").LogisticRegression(max_iter=500)
    elif least:
        model = sklearn_part("svm").SVC()
        if least >= 3:
            grid = {"C": [0.3, 3.0, 30.0], "gamma": ["scale", 0.1]}
            model = sklearn_part("model_selection").GridSearchCV(model, grid, scoring="f1", cv=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a noisy fold without a class must not stop the run
        return model.fit(rows, label)


def _judged(task: str, model: Any, test: PublicData) -> float:
    """Return the mean squared error of a regression, or the accuracy of a classifier."""
    if task == "linear":
        return float(np.mean((model.predict(test.rows[:, :-1]) - test.rows[:, -1]) ** 2))
    return float(np.mean(model.predict(test.rows) == test.label))

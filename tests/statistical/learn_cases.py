"""Every estimator of `cloister.learn` on tables of anything: public facts, rows, containers, and one unit more.

Whatever is drawn comes from a `random.Random`: a seed is a case.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import cloister as cl
from cloister import learn
from cloister.privacy.loss import Loss

__all__ = [
    "CASES",
    "FRAMES",
    "LABELLED",
    "NOTHING_TO_REPLAY",
    "ODD_NUMBERS",
    "ODD_THINGS",
    "SECRET",
    "Case",
    "Facts",
    "Table",
    "draw_case",
    "draw_dataset_case",
]

SECRET = "secret@diagnosis"
MEGABYTE = SECRET + "x" * 2**20

USUAL_BOUNDS = [(0.0, 1.0), (0, 1), (-5.0, 10.0), (-1e6, 1e6), (0.0, 1e-3)]
ODD_BOUNDS = [
    (0.0, 1e-310), (-1e308, 1e308), (0.0, 5e-324), (1e16, 1e16 + 2), (1e300, 1.0000001e300), (-1e155, 1e155),
    (1.0, 1.0 + 2**-52), (-1e-160, 1e-160), (0, 2**63), (-1.7976931348623157e308, 1.7976931348623157e308), (0.0, 1e200),
]  # fmt: skip
ODD_NORMS = [1e-310, 5e-324, 1e308, 1e155, 1e-160, 1e-20, 1.7976931348623157e308]
ODD_NUMBERS: list[Any] = [
    math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -5e-324, 2.2e-308, 1e300, -1e300, 1.7976931348623157e308, 1e155,
    float(2**63), -float(2**63), float(2**53 + 2), 1e16, 0.5, 1.0, -1.0, 1e-160,
]  # fmt: skip
ODD_THINGS: list[Any] = [
    None, SECRET, "", "1", "nan", "inf", "-", " 1 ", "0x10", "1e400", True, False, 2**53 + 1, 2**63 - 1, -(2**63),
    2**64, 10**400, Decimal("NaN"), Decimal("sNaN"), Decimal("1E+500"), Decimal("0.5"), b"secret@bytes", 1j, pd.NA,
    pd.NaT, pd.Timestamp("2025-01-01"), np.float32(0.5), np.int8(-1), (1, SECRET), frozenset([SECRET]), "e\u0301", "é",
    "\0", "a\0b", np.datetime64("NaT"), MEGABYTE,
]  # fmt: skip
CATEGORIES: list[list[Any]] = [
    ["1", "2", "3"], [1, 2, 3], ["a", "b"], ["é", "e\u0301", "x"], [True, False], [0.0, 1.0], [10**16, 10**16 + 1, 3],
    ["10000000000000000", "2"], ["nan", "None", ""], [-1, 0, 1],
]  # fmt: skip
LABELS: list[list[Any]] = [[0, 1], [0, 1, 2], ["no", "yes"], ["0", "1"], [False, True], [-1.0, 1.0], [1, 10**16]]
LOSSES = [cl.rho("0.1"), cl.epsilon(1), cl.epsilon(1, delta="1e-6"), cl.rho("0.000001"), cl.epsilon(50)]


@dataclass(frozen=True)
class Facts:
    """What is public of a table.

    Attributes:
        names: of the features; those that have categories, and their lists.
        bounds: of the numbers.
        norm: the public length of a row, in the place of bounds.
        classes: of the labels.
        goal: bounds of a number to predict.
        fill: what stands for a missing number.
        by_place: whether columns are named by their place.
    """

    names: tuple[str, ...]
    categories: dict[str, list[Any]]
    bounds: tuple[float, float]
    norm: float | None
    classes: list[Any]
    goal: tuple[float, float]
    fill: float | None
    by_place: bool


@dataclass(frozen=True)
class Case:
    """An estimator.

    Attributes:
        make: it, from a spend, public facts and an account.
        target: what it predicts: "classes", "number", or "none".
        columns: what it learns from: "numbers", "words", or "mixed".
        pure: whether it takes a pure epsilon.
        datasets: whether it learns from a dataset.
    """

    make: Callable[[Loss, Facts], Any]
    target: str = "classes"
    columns: str = "numbers"
    pure: bool = True
    datasets: bool = True


def _scale(facts: Facts) -> dict[str, Any]:
    return {"bounds": facts.bounds} if facts.norm is None else {"data_norm": facts.norm}


def _linear(kind: str, **more: Any) -> Callable[[Loss, Facts], Any]:
    return lambda spend, facts: getattr(learn, kind)(
        spend, **_scale(facts), classes=facts.classes, fill=facts.fill, **more
    )


def _regression(kind: str, **more: Any) -> Callable[[Loss, Facts], Any]:
    return lambda spend, facts: getattr(learn, kind)(
        spend, **_scale(facts), target_bounds=facts.goal, fill=facts.fill, **more
    )


def _tabled(facts: Facts) -> dict[str, Any]:
    """Bounds of the numbers and lists of the categories, by name or by place."""
    bounds = {name: facts.bounds for name in facts.names if name not in facts.categories}
    keys = {name: i if facts.by_place else name for i, name in enumerate(facts.names)}
    return {
        "bounds": {keys[name]: one for name, one in bounds.items()},
        "categories": {keys[name]: list(one) for name, one in facts.categories.items()},
    }


def _trees(kind: str, **more: Any) -> Callable[[Loss, Facts], Any]:
    return lambda spend, facts: getattr(learn, kind)(
        spend, **_tabled(facts), classes=facts.classes, bins=4, fill=facts.fill, **more
    )


def _plain(kind: str, **more: Any) -> Callable[[Loss, Facts], Any]:
    return lambda spend, facts: getattr(learn, kind)(spend, bounds=facts.bounds, fill=facts.fill, **more)


class _Selected:
    """`select` as an estimator."""

    def __init__(self, spend: Loss, facts: Facts, refit: bool) -> None:
        self.spend, self.facts, self.refit = spend, facts, refit

    def fit(self, rows: Any, labels: Any, account: Any = None) -> Any:
        facts = _tabled(self.facts)
        models = [
            learn.MixedNB(**facts, classes=self.facts.classes, bins=2, calibrate=False),
            learn.DecisionTreeClassifier(**facts, classes=self.facts.classes, bins=2, max_depth=1),
        ]
        return learn.select(models, rows, labels, spend=self.spend, refit=self.refit, account=self.account)

    account: Any = None


class _Scored:
    """`cross_val_score` as an estimator."""

    def __init__(self, spend: Loss, facts: Facts, scoring: str | None = None) -> None:
        self.spend, self.facts, self.scoring = spend, facts, scoring

    def fit(self, rows: Any, labels: Any) -> Any:
        if self.scoring == "neg_mean_squared_error":
            model: Any = _regression("LinearRegression")(self.spend, self.facts)
        else:
            facts = _tabled(self.facts)
            model = learn.MixedNB(self.spend, **facts, classes=self.facts.classes, bins=2, calibrate=False)
        return learn.cross_val_score(model, rows, labels, cv=2, scoring=self.scoring, account=self.account)

    account: Any = None


def _mixed(spend: Loss, facts: Facts, **more: Any) -> Any:
    return learn.MixedNB(spend, **_tabled(facts), classes=facts.classes, bins=3, **more)


def _words(spend: Loss, facts: Facts) -> Any:
    lists = [facts.categories[name] for name in facts.names]
    return learn.CategoricalNB(spend, categories=lists, classes=facts.classes)


def _network(spend: Loss, facts: Facts, kind: str = "NeuralNetworkClassifier", **more: Any) -> Any:
    """A network without sampling: which rows a lot has is chance of its own, and neighbours differ in it.

    Sampled lots are audited in test_deep_audit.py.
    """
    told = {"target_bounds": facts.goal} if kind == "NeuralNetworkRegressor" else {"classes": facts.classes}
    paid = spend if spend.measure == "rho" else cl.rho("0.1")
    return getattr(learn, kind)(paid, bounds=facts.bounds, max_iter=2, fill=facts.fill, **told, **more)


def _found(kind: str) -> Callable[[Loss, Facts], Any]:
    """Bounds that are bought."""
    if kind in ("LinearRegression", "Ridge"):
        return lambda spend, facts: getattr(learn, kind)(spend, bounds="find", target_bounds="find", fill=facts.fill)
    return lambda spend, facts: getattr(learn, kind)(spend, bounds="find", classes=facts.classes, fill=facts.fill)


CASES: dict[str, Case] = {
    "LogisticRegression": Case(_linear("LogisticRegression")),
    "LogisticRegression, gradient": Case(_linear("LogisticRegression", method="gradient")),
    "LogisticRegression, newton": Case(_linear("LogisticRegression", method="newton"), pure=False),
    "LogisticRegression, quadratic": Case(_linear("LogisticRegression", method="quadratic")),
    "LogisticRegression, functional": Case(_linear("LogisticRegression", method="functional")),
    "LogisticRegression, rows declared": Case(_linear("LogisticRegression", rows=8)),
    "LogisticRegression, bounds found": Case(_found("LogisticRegression")),
    "LinearSVC": Case(_linear("LinearSVC")),
    "GaussianNB": Case(
        lambda spend, facts: learn.GaussianNB(spend, bounds=facts.bounds, classes=facts.classes, fill=facts.fill)
    ),
    "GaussianNB, own variances": Case(
        lambda spend, facts: learn.GaussianNB(
            spend, bounds=facts.bounds, classes=facts.classes, fill=facts.fill, variance="own"
        )
    ),
    "GaussianNB, bounds found": Case(_found("GaussianNB")),
    "CategoricalNB": Case(_words, columns="words"),
    "MixedNB": Case(_mixed, columns="mixed"),
    "DecisionTreeClassifier": Case(_trees("DecisionTreeClassifier", max_depth=2), columns="mixed"),
    "RandomForestClassifier": Case(
        _trees("RandomForestClassifier", max_depth=1, n_estimators=2, method="greedy"), columns="mixed"
    ),
    "RandomForestClassifier, auto": Case(
        _trees("RandomForestClassifier", max_depth=1, n_estimators=2, method="auto"), columns="mixed"
    ),
    "RandomForestClassifier, random": Case(
        _trees("RandomForestClassifier", max_depth=2, n_estimators=2, method="random"), columns="mixed"
    ),
    "GradientBoostingClassifier": Case(_trees("GradientBoostingClassifier", rounds=2), columns="mixed"),
    "LinearRegression": Case(_regression("LinearRegression"), "number"),
    "LinearRegression, adassp": Case(_regression("LinearRegression", method="adassp"), "number"),
    "LinearRegression, functional": Case(_regression("LinearRegression", method="functional"), "number"),
    "LinearRegression, bounds found": Case(_found("LinearRegression"), "number"),
    "Ridge": Case(_regression("Ridge", alpha=2.0), "number"),
    "Ridge, adassp": Case(_regression("Ridge", method="adassp"), "number"),
    "Ridge, functional": Case(_regression("Ridge", method="functional"), "number"),
    "GradientBoostingRegressor": Case(
        lambda spend, facts: learn.GradientBoostingRegressor(
            spend, **_tabled(facts), target_bounds=facts.goal, bins=3, rounds=2, fill=facts.fill
        ),
        "number",
        "mixed",
    ),
    "NeuralNetworkClassifier": Case(_network),
    "NeuralNetworkClassifier, linear": Case(
        lambda spend, facts: _network(spend, facts, hidden_layer_sizes=(), rows=8), datasets=False
    ),
    "NeuralNetworkRegressor": Case(
        lambda spend, facts: _network(spend, facts, "NeuralNetworkRegressor", hidden_layer_sizes=(3,)), "number"
    ),
    "KMeans": Case(
        lambda spend, facts: learn.KMeans(spend, **_scale(facts), n_clusters=2, max_iter=2, fill=facts.fill), "none"
    ),
    "PCA": Case(lambda spend, facts: learn.PCA(spend, 1, **_scale(facts), fill=facts.fill), "none"),
    "PCA, power": Case(
        lambda spend, facts: learn.PCA(spend, 1, **_scale(facts), fill=facts.fill, method="power"), "none"
    ),
    "StandardScaler": Case(_plain("StandardScaler"), "none"),
    "QuantileTransformer": Case(_plain("QuantileTransformer"), "none"),
    "MinMaxScaler": Case(lambda spend, facts: learn.MinMaxScaler(bounds=facts.bounds), "none", datasets=False),
    "OneHotEncoder": Case(
        lambda spend, facts: learn.OneHotEncoder(categories=[facts.categories[name] for name in facts.names]),
        "none",
        "words",
        datasets=False,
    ),
    "select": Case(lambda spend, facts: _Selected(spend, facts, True), columns="mixed", datasets=False),
    "select, trials kept": Case(lambda spend, facts: _Selected(spend, facts, False), columns="mixed", datasets=False),
    "cross_val_score": Case(_Scored, columns="mixed", datasets=False),
    "cross_val_score, surprise": Case(
        lambda spend, facts: _Scored(spend, facts, "neg_log_loss"), columns="mixed", datasets=False
    ),
    "cross_val_score, squares": Case(
        lambda spend, facts: _Scored(spend, facts, "neg_mean_squared_error"), "number", datasets=False
    ),
}
# They are handed what was released before, or are lessons that show true values.
# deep: tests/statistical/test_deep_audit.py
NOTHING_TO_REPLAY = {"save", "load", "prepare", "compare", "deep", "serve"}


# Containers: from a table of cells to what a caller holds. Cells that a container cannot hold are missing in it.


@dataclass(frozen=True)
class Table:
    """Cells by row, and a label for each row.

    Attributes:
        names: of the columns.
        rows: cells.
        labels: one a row.
        words: which columns whoever made a typed frame meant for words: what is no word is then missing in them, and
            what is no number in the others.
    """

    names: tuple[str, ...]
    rows: list[list[Any]]
    labels: list[Any]
    words: tuple[bool, ...]

    def with_row(self, place: int, row: list[Any], label: Any) -> "Table":
        rows, labels = list(self.rows), list(self.labels)
        rows.insert(place, row)
        labels.insert(place, label)
        return replace(self, rows=rows, labels=labels)

    def column(self, place: int) -> list[Any]:
        return [row[place] for row in self.rows]


def _number(cell: Any) -> float:
    if isinstance(cell, bool | int | float | np.number) and not isinstance(cell, complex):
        try:
            return float(cell)
        except OverflowError:
            return math.inf
    return math.nan


def _integral(cell: Any) -> bool:
    return isinstance(cell, int) and not isinstance(cell, bool) and -(2**63) <= cell < 2**63


def _objects(cells: Sequence[Any]) -> np.ndarray:
    made = np.empty(len(cells), dtype=object)
    for i, cell in enumerate(cells):
        made[i] = cell
    return made


def _array(table: Table) -> Any:
    return np.array([[_number(cell) for cell in row] for row in table.rows], dtype=float).reshape(
        len(table.rows), len(table.names)
    )


def _object_array(table: Table) -> Any:
    made = np.empty((len(table.rows), len(table.names)), dtype=object)
    for i, row in enumerate(table.rows):
        for j, cell in enumerate(row):
            made[i, j] = cell
    return made


def _frame(column: Callable[[list[Any]], Any]) -> Callable[[Table], Any]:
    return _typed_frame(lambda cells, _words: column(cells))


def _typed_frame(column: Callable[[list[Any], bool], Any]) -> Callable[[Table], Any]:
    return lambda table: pd.DataFrame(
        {name: column(table.column(i), table.words[i]) for i, name in enumerate(table.names)},
        index=range(len(table.rows)),
    )


def _inferred(cells: list[Any]) -> Any:
    """What pandas makes of cells: an integer column becomes floats as soon as one cell is missing."""
    found = pd.Series(cells, dtype=None if cells else object)
    # A type is public: columns of dates or complex numbers are refused, whatever is in them.
    return pd.Series(_objects(cells), dtype=object) if found.dtype.kind in "cmM" else found


def _read_by_pandas(cells: list[Any]) -> Any:
    """What a column becomes that was concatenated, or read from a file: integers, floats, or objects."""
    known = [cell for cell in cells if not (cell is None or (isinstance(cell, float) and math.isnan(cell)))]
    if known and all(_integral(cell) for cell in known):
        if len(known) == len(cells):
            return pd.Series(cells, dtype="int64")
        return pd.Series([math.nan if cell is None else cell for cell in cells], dtype="float64")
    return _inferred(cells)


def _nullable(cells: list[Any], words: bool) -> Any:
    if words:
        return pd.Series([cell if isinstance(cell, str) else None for cell in cells], dtype="string")
    if all(cell is None or cell is pd.NA or _integral(cell) for cell in cells):
        return pd.Series([pd.NA if cell is None else cell for cell in cells], dtype="Int64")
    return pd.Series([None if math.isnan(_number(cell)) else _number(cell) for cell in cells], dtype="Float64")


def _arrow_kind(cells: list[Any], words: bool) -> Any:
    if words:
        return pa.array([cell if isinstance(cell, str) else None for cell in cells], pa.string())
    if all(cell is None or _integral(cell) for cell in cells):
        return pa.array(cells, pa.int64())
    return pa.array([_number(cell) for cell in cells], pa.float64())


def _hashable(cells: list[Any]) -> Any:
    """Categories: pandas makes one of 1, 1.0 and True, so those are not put beside each other."""
    plain = [cell if cell is None or type(cell) in (str, int) else repr(cell) for cell in cells]
    return pd.Series(_objects(plain)).astype("category")


def _polars(table: Table) -> Any:
    return pl.DataFrame(
        {name: pl.from_arrow(_arrow_kind(table.column(i), table.words[i])) for i, name in enumerate(table.names)}
    )


def _row_of_any_type(place: int, row: list[Any]) -> Any:
    """A row as callers hold them; which type it has follows from its place."""
    if place % 4 == 2 and all(isinstance(cell, float | int) and not isinstance(cell, bool) for cell in row):
        return np.array([_number(cell) for cell in row])
    return [pd.Series(_objects(row), dtype=object), tuple(row), _objects(row), list(row)][place % 4]


def _masked(table: Table) -> Any:
    """What is no number is masked, and what lies behind the mask is another number each time."""
    held = _array(table)
    return np.ma.MaskedArray(np.where(np.isnan(held), np.arange(held.size).reshape(held.shape), held), np.isnan(held))


def _arrow(table: Table, dictionary: bool) -> Any:
    columns = [_arrow_kind(table.column(i), table.words[i]) for i in range(len(table.names))]
    encoded = [column.dictionary_encode() for column in columns] if dictionary else columns
    halves = [pa.chunked_array([one[: len(one) // 2], one[len(one) // 2 :]]) for one in encoded]
    return pa.table(halves, names=list(table.names))


def _polars_categories(table: Table) -> Any:
    found = _polars(table)
    return found.with_columns(
        pl.col(name).cast(pl.Categorical) for name, kind in found.schema.items() if kind == pl.String
    )


FRAMES: dict[str, Callable[[Table], Any]] = {
    "array": _array,
    "object array": _object_array,
    "masked array": _masked,
    "lists": lambda table: [list(row) for row in table.rows],
    "rows of any type": lambda table: [_row_of_any_type(place, row) for place, row in enumerate(table.rows)],
    "pandas objects": _frame(lambda cells: pd.Series(_objects(cells), dtype=object)),
    "pandas inferred": _frame(_inferred),
    "pandas read": _frame(_read_by_pandas),
    "pandas floats": _frame(lambda cells: np.array([_number(cell) for cell in cells], dtype=float)),
    "pandas nullable": _typed_frame(_nullable),
    "pandas arrow": _typed_frame(
        lambda cells, words: pd.Series(pd.arrays.ArrowExtensionArray(_arrow_kind(cells, words)))
    ),
    "pandas category": _frame(_hashable),
    "polars": _polars,
    "polars categories": _polars_categories,
    "arrow": lambda table: _arrow(table, dictionary=False),
    "arrow dictionaries": lambda table: _arrow(table, dictionary=True),
}
NAMELESS = ("array", "object array", "masked array", "lists", "rows of any type")


def _labels(cells: list[Any]) -> Any:
    """An array whose type its caller chose: words beside numbers are objects, not all of them words."""
    kinds = {type(cell) for cell in cells}
    if kinds and kinds <= {int, float} and all(isinstance(cell, float) or _integral(cell) for cell in cells):
        return np.array(cells, dtype=float if float in kinds else np.int64)
    return np.array(cells) if len(kinds) == 1 and kinds <= {str, bool} else _objects(cells)


LABELLED: dict[str, Callable[[list[Any]], Any]] = {
    "array": _labels,
    "list": list,
    "objects": _objects,
    "series": _inferred,
    "object series": lambda cells: pd.Series(_objects(cells), dtype=object),
    "category": _hashable,
    "masked array": lambda cells: np.ma.MaskedArray(
        [0.0 if math.isnan(_number(cell)) else _number(cell) for cell in cells],
        mask=[math.isnan(_number(cell)) for cell in cells],
        dtype=float,
    ),
    "nullable": lambda cells: _nullable(cells, False),
    "polars": lambda cells: pl.from_arrow(pa.chunked_array([_arrow_kind(cells, False)])),
    "arrow dictionary": lambda cells: pa.chunked_array([_arrow_kind(cells, False).dictionary_encode()]),
    "column of an array": lambda cells: _labels(cells).reshape(-1, 1),
    "column of objects": lambda cells: _objects(cells).reshape(-1, 1),
    "column of a masked array": lambda cells: LABELLED["masked array"](cells).reshape(-1, 1),
    "pandas frame": lambda cells: pd.DataFrame({"label": _inferred(cells)}),
    "polars frame": lambda cells: LABELLED["polars"](cells).to_frame("label"),
    "arrow table": lambda cells: pa.table({"label": LABELLED["arrow dictionary"](cells)}),
}
NAMES = [
    ("a", "b", "c"),
    ("x", "y", "Z"),
    ("_cell", "_code", "_place"),
    ("0", "1", "2"),
    ("é", "e\u0301", " a"),
    ("n", "k0", "_unit"),
]


def draw_facts(r: Random, case: Case) -> Facts:
    """Public facts: most are usual, some are as odd as a caller can write them."""
    names = r.choice(NAMES)[: r.randint(1, 3)]
    listed = {
        name: r.choice(CATEGORIES)
        for name in names
        if case.columns == "words" or (case.columns == "mixed" and r.random() < 0.6)
    }
    odd = r.random() < 0.15
    return Facts(
        names,
        listed,
        r.choice(ODD_BOUNDS) if odd and r.random() < 0.6 else r.choice(USUAL_BOUNDS),
        (r.choice(ODD_NORMS) if odd else r.choice([1.0, 3.0])) if r.random() < 0.3 else None,
        r.choice(LABELS),
        r.choice(ODD_BOUNDS) if odd and r.random() < 0.4 else r.choice(USUAL_BOUNDS),
        r.choice([None, 0.0, 0.5, -1]),
        r.random() < 0.5,
    )


def draw_cell(r: Random, facts: Facts, name: str, odd: float) -> Any:
    """A cell: as it should be, or anything."""
    if r.random() < odd:
        return r.choice(ODD_NUMBERS) if r.random() < 0.5 else r.choice(ODD_THINGS)
    if name in facts.categories:
        return r.choice(facts.categories[name])
    low, high = facts.bounds
    if r.random() < 0.5:
        return r.choice([low, high, 0, 1, 2])
    return low + (high / 4 - low / 4) * r.randint(0, 4)


def draw_label(r: Random, case: Case, facts: Facts, odd: float) -> Any:
    if case.target == "classes":
        return r.choice(ODD_THINGS + ODD_NUMBERS[:4]) if r.random() < odd else r.choice(facts.classes)
    low, high = facts.goal
    return r.choice(ODD_NUMBERS + ODD_THINGS) if r.random() < odd else r.choice([low, high, 0, 1, low / 2 + high / 2])


@dataclass
class Drawn:
    """A fit on a table and on its neighbour with one unit more.

    Attributes:
        about: it, in words, for the reader of a failure.
        fit: on rows and labels, or on a dataset.
        left, right: what is fitted on.
    """

    about: str
    fit: Callable[[Any, Any], Any]
    left: tuple[Any, Any]
    right: tuple[Any, Any]


def draw_case(r: Random, name: str, accounts: dict[str, Any], frame: str | None = None) -> Drawn:
    """A fit of an estimator on a table in any container, and on the same with one row more."""
    case = CASES[name]
    facts = draw_facts(r, case)
    spend = r.choice([one for one in LOSSES if case.pure or not one.is_pure])
    kind = frame or r.choice(list(FRAMES))
    if kind in NAMELESS:
        facts = replace(facts, by_place=True)
    odd = r.choice([0.0, 0.0, 0.3])
    n = r.randint(
        1 if kind in ("lists", "rows of any type") else 0, 8
    )  # no list at all does not say how many columns it has
    table = Table(
        facts.names,
        [[draw_cell(r, facts, one, odd) for one in facts.names] for _ in range(n)],
        [draw_label(r, case, facts, odd) for _ in range(n)],
        tuple(isinstance(facts.categories.get(one, [0])[0], str) for one in facts.names),
    )
    row = [draw_cell(r, facts, one, 0.6) for one in facts.names]
    label = draw_label(r, case, facts, 0.3)
    # Where rows are thrown into parts, a row at the end shifts nobody's throw.
    place = n if name.startswith(("select", "cross", "RandomForest")) else r.randint(0, n)
    more = table.with_row(place, row, label)
    # Numbers where the classes are words are refused, by their type: here every label is an object.
    labelled = r.choice(["objects", "column of objects"] if isinstance(facts.classes[0], str) else list(LABELLED))
    account = accounts["epsilon" if spend.is_pure else "rho"]

    def fit(rows: Any, labels: Any) -> Any:
        model = case.make(spend, facts)
        if hasattr(model, "account"):
            model.account = account
        return model.fit(rows) if case.target == "none" else model.fit(rows, labels)

    sides = []
    for one in (table, more):
        sides.append((FRAMES[kind](one), LABELLED[labelled](one.labels)))
    return Drawn(f"{name}, {spend}, {kind}, labels as {labelled}: {facts}, row {row!r:.300} {label!r:.80}", fit, *sides)


# Datasets: the same estimators on rows in an engine, where a unit has several of them.

STORED: dict[str, list[Any]] = {
    "real": [pa.float64(), pa.float64(), pa.string(), pa.float32()],
    "integer": [pa.int64(), pa.float64(), pa.string(), pa.int8()],
    "text": [pa.string(), pa.string(), pa.int64()],
    "boolean": [pa.bool_(), pa.string(), pa.int64()],
}
WORDS: list[Any] = [None, SECRET, "", "1", "nan", "-inf", "1e999", "a", "b", "true", "e\u0301", "é", "no", "yes", "0.5"]
WHOLE: list[Any] = [None, 0, 1, 2, -1, 2**63 - 1, -(2**63), 2**53 + 1, 100]


def stored_cell(r: Random, kind: Any) -> Any:
    """Anything that a column of this Arrow type can hold."""
    if pa.types.is_string(kind):
        return r.choice(WORDS)
    if pa.types.is_boolean(kind):
        return r.choice([None, True, False])
    if pa.types.is_int8(kind):
        return r.choice([None, 0, 1, 2, -128, 127])
    if pa.types.is_integer(kind):
        return r.choice(WHOLE)
    cell = r.choice([None, 0.25, 0.75, *ODD_NUMBERS])
    return cell if kind == pa.float64() or cell is None else float(np.clip(np.float64(cell), -3e38, 3e38))


def draw_column(r: Random, role: str) -> dict[str, Any]:
    """A column of a schema that a model can use."""
    if role == "number":
        low, high = r.choice([(0, 1), (-5, 10), (0, 100), (-1000, 7)])
        real = r.random() < 0.6
        column = {"type": "real" if real else "integer", "bounds": [float(low), float(high)] if real else [low, high]}
    else:
        column = r.choice(
            [
                {"type": "text", "categories": ["a", "b", "é"]},
                {"type": "text", "categories": ["no", "yes"]},
                {"type": "integer", "categories": [0, 1, 2]},
                {"type": "boolean"},
            ]
        )
    return {**column, "nullable": r.random() < 0.4}


def draw_dataset_case(r: Random, name: str, accounts: dict[str, Any], open_tables: Callable[..., Any]) -> Drawn:
    """A fit of an estimator on a dataset, and on the same with one unit more, which has several rows.

    Args:
        r: draws.
        name: of a case.
        accounts: pay, by measure.
        open_tables: from an Arrow table and a schema to tables in an engine.
    """
    case = CASES[name]
    facts = draw_facts(r, case)
    roles = {
        one: "category" if case.columns == "words" or (case.target != "none" and r.random() < 0.4) else "number"
        for one in facts.names
    }
    if name.startswith("GaussianNB") or "found" in name:
        roles = dict.fromkeys(facts.names, "number")
    columns = {one: draw_column(r, role) for one, role in roles.items()}
    if case.target != "none":
        columns["target"] = draw_column(r, "number" if case.target == "number" else "category")
        columns["target"]["nullable"] = case.target == "classes" and r.random() < 0.5
    most = r.choice([None, 1, 2, 3])
    table: dict[str, Any] = {"columns": columns} if most is None else {"unit": "person", "columns": columns}
    schema = {"unit": "row" if most is None else {"name": "person", "max_rows": most}, "tables": {"t": table}}
    kinds = {"person": pa.string(), **{one: r.choice(STORED[facts["type"]]) for one, facts in columns.items()}}

    def drawn_row(person: str) -> dict[str, Any]:
        return {"person": person, **{one: stored_cell(r, kinds[one]) for one in columns}}

    rows = [drawn_row(r.choice(["p", "q", "é", ""])) for _ in range(r.randint(0, 8))]
    unit = [drawn_row("z") for _ in range(1 if most is None else r.randint(1, 6))]
    spend = r.choice([one for one in LOSSES if case.pure or not one.is_pure])
    account = accounts["epsilon" if spend.is_pure else "rho"]
    places = sorted(r.randint(0, len(rows)) for _ in unit)
    more = list(rows)
    for place, row in zip(reversed(places), unit, strict=True):
        more.insert(place, row)

    def fit(found: Any, _labels: Any) -> Any:
        from cloister.data.schema import Schema
        from cloister.dataset import Dataset

        model = case.make(spend, facts)
        told = {"bounds": None, "categories": None, "classes": None, "target_bounds": None}
        known = model.get_params()
        model.set_params(**{one: value for one, value in told.items() if one in known and known[one] != "find"})
        with Dataset(open_tables(found, Schema.load(schema)), account) as data:
            if case.target == "none":
                return model.fit(data, features=list(facts.names))
            return model.fit(data, target="target", features=list(facts.names))

    sides = [(pa.Table.from_pylist(one, schema=pa.schema(list(kinds.items()))), None) for one in (rows, more)]
    return Drawn(f"{name}, {spend}, {schema}, stored as {kinds}: {unit!r:.600}", fit, *sides)

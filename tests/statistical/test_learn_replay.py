"""Every estimator on neighbouring tables of anything, under the same releases: `replay` says what may differ."""

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.utils.validation import check_array

import cloister as cl
from cloister import learn
from cloister.data.schema import Schema
from cloister.data.tables import open_tables
from cloister.dataset import Dataset
from cloister.learn.naive_bayes.calibration import BINS
from cloister.learn.trees.splits import Apart
from cloister.privacy.errors import BadInput
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace, Exponential, PermuteAndFlip
from cloister.query.discovery import Thresholded
from cloister.query.plan import EachGroup

from ..soak import few, randoms, soak, soaked
from .learn_cases import CASES, FRAMES, NOTHING_TO_REPLAY, Drawn, Facts, Table, draw_case, draw_dataset_case
from .replay import Run, Step, differences, record, replay, used

pytestmark = pytest.mark.statistical


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with cl.Ledger.in_folder(tmp_path_factory.mktemp("replay")) as book:
        yield {
            "rho": book.open_account("rho", cl.epsilon(10**6, delta="0.1")),
            "epsilon": book.open_account("epsilon", cl.epsilon(10**6)),
        }


def rows_of_a_unit(run: Run) -> int:
    """How many rows a fit was paid for, where its mechanisms protect one of them."""
    told = run.result[1].get("release_") if isinstance(run.result, tuple) and isinstance(run.result[1], dict) else None
    return int(dict(told[1]["parameters"]).get("rows of a unit", 1)) if told else 1


def compared(drawn: Drawn, seed: int, *, hostile: bool) -> tuple[Run, Run]:
    first = record(lambda: drawn.fit(*drawn.left), seed, hostile=hostile)
    return first, replay(first, lambda: drawn.fit(*drawn.right))


def check(drawn: Drawn, seed: int, hostile: bool) -> None:
    first, second = compared(drawn, seed, hostile=hostile)
    assert not differences(first, second, rows_of_a_unit(first)), drawn.about
    assert "secret@" not in second.text, drawn.about


def of_rows(name: str, accounts: Any, r: Random) -> None:
    check(draw_case(r, name, accounts), r.randint(0, 10**6), r.random() < 0.3)


def of_a_dataset(name: str, accounts: Any, r: Random) -> None:
    drawn = draw_dataset_case(r, name, accounts, lambda table, schema: open_tables(table, schema, threads=1))
    check(drawn, r.randint(0, 10**6), r.random() < 0.3)


FROM_DATASETS = [name for name, case in CASES.items() if case.datasets]


@pytest.mark.parametrize("name", CASES)
def test_one_row_more_in_any_container_moves_no_more_than_is_paid_for(name: str, accounts: Any) -> None:
    few(25, randoms)(lambda r: of_rows(name, accounts, r))()


@pytest.mark.parametrize("name", FROM_DATASETS)
def test_one_unit_more_in_a_dataset_moves_no_more_than_is_paid_for(name: str, accounts: Any) -> None:
    few(4, randoms)(lambda r: of_a_dataset(name, accounts, r))()


# What fits do only where rows are many for the spend, and the histograms of scores that they release then.
MANY: dict[str, tuple[Callable[..., Any], int]] = {
    "GaussianNB, both variances": (lambda spend, **facts: learn.GaussianNB(spend, variance="auto", **facts), 2),
    "RandomForestClassifier, calibrated": (
        lambda spend, **facts: learn.RandomForestClassifier(
            spend, method="auto", max_depth=2, n_estimators=2, bins=4, **facts
        ),
        1,
    ),
}


def many_rows(people: bool) -> tuple[pa.Table, pa.Table, dict[str, Any]]:
    """Classes of different spread, with and without one person of several odd rows (or one such row); a schema."""
    rng = np.random.default_rng(1)
    classes = rng.integers(0, 2, 6000)
    cells = 0.5 + rng.normal(0, 0.05 + 0.1 * classes[:, None], (6000, 2))
    rows = pa.table({"person": rng.integers(0, 4000, 6000), "a": cells[:, 0], "b": cells[:, 1], "back": classes})
    odd = {"person": [5000] * 3, "a": [1e300, 0.0, 1.0], "b": [-1.0, 1.0, 0.0], "back": [1, 1, 0]}
    unit = pa.table(odd, schema=rows.schema).slice(0, 3 if people else 1)
    number = {"type": "real", "bounds": [0.0, 1.0], "nullable": False}
    columns = {"a": number, "b": number, "back": {"type": "integer", "categories": [0, 1], "nullable": False}}
    if people:
        table: dict[str, Any] = {"unit": "person", "columns": columns}
        return rows, pa.concat_tables([rows, unit]), {"unit": {"name": "person", "max_rows": 2}, "tables": {"t": table}}
    return rows, pa.concat_tables([rows, unit]), {"unit": "row", "tables": {"t": {"columns": columns}}}


@pytest.mark.parametrize("measure", ["rho", "epsilon"])
@pytest.mark.parametrize("held", ["array", "rows", "people"])
@pytest.mark.parametrize("name", MANY)
def test_one_unit_more_among_many_moves_no_more_than_is_paid_for(
    name: str, held: str, measure: str, accounts: Any
) -> None:
    (make, histograms), account = MANY[name], accounts[measure]
    spend = cl.rho(2) if measure == "rho" else cl.epsilon(20)
    left, right, schema = many_rows(held == "people")

    def fit(table: pa.Table) -> Any:
        if held == "array":
            cells = np.column_stack([table["a"], table["b"]])
            return make(spend, bounds=(0, 1), classes=[0, 1], account=account).fit(cells, table["back"].to_numpy())
        with Dataset(open_tables(table, Schema.load(schema), threads=1), account) as data:
            return make(spend).fit(data, target="back", features=["a", "b"])

    first = record(lambda: fit(left))
    assert first.error is None
    assert [np.size(one.seen) == 2 * BINS for one in first.steps].count(True) == histograms
    assert not differences(first, replay(first, lambda: fit(right)), rows_of_a_unit(first))


@soaked
@pytest.mark.parametrize("name", CASES)
def test_one_row_more_soaked(name: str, accounts: Any) -> None:
    soak(lambda r: of_rows(name, accounts, r), randoms)


@soaked
@pytest.mark.parametrize("name", FROM_DATASETS)
def test_one_unit_more_soaked(name: str, accounts: Any) -> None:
    soak(lambda r: of_a_dataset(name, accounts, r), randoms)


# The table is complete.


def test_everything_that_is_offered_is_replayed() -> None:
    assert {name.partition(",")[0] for name in CASES} == set(learn.__all__) - NOTHING_TO_REPLAY


@pytest.mark.parametrize("name", sorted({name.partition(",")[0] for name in CASES if name[0].isupper()}))
def test_every_method_is_replayed(name: str) -> None:
    kind = getattr(learn, name)
    if "method" not in kind().get_params():
        return
    words = {"a": [0, 1]} if name == "CategoricalNB" else {}
    facts = Facts(("a",), words, (0.0, 1.0), None, [0, 1], (0.0, 1.0), None, True)
    model = next(case for one, case in CASES.items() if one.partition(",")[0] == name).make(cl.rho(1), facts)
    with pytest.raises(BadInput) as refused:
        model.set_params(method="?", random_state=1).fit(np.zeros((2, 1)), [0, 1])
    offered = set(re.findall(r"[a-z]+", str(refused.value).partition("one of")[2]))
    replayed = {model.get_params()["method"] for model in every_model(name, facts)}
    assert offered == replayed


def every_model(name: str, facts: Facts) -> list[Any]:
    return [case.make(cl.rho(1), facts) for one, case in CASES.items() if one.partition(",")[0] == name]


# The comparison has power: it finds what fits have done wrong.

Fit = Callable[[Any, Any], Any]


def refused_by_a_cell(fit: Fit, rows: Any, labels: Any) -> Any:
    """As scikit-learn reads rows: what is no finite number is an error, and shown."""
    check_array(rows, dtype=np.float64, ensure_min_samples=0)
    return fit(rows, labels)


def read_by_the_columns_type(fit: Fit, rows: Any, labels: Any) -> Any:
    """A column of floats is read in another way than one of integers: for all rows at once."""
    if isinstance(rows, pd.DataFrame):
        rows = rows.assign(**{name: None for name in rows if rows[name].dtype == np.float64})
    return fit(rows, labels)


def warned_of_a_cell(fit: Fit, rows: Any, labels: Any) -> Any:
    np.log(np.nan_to_num(np.asarray(FRAMES["array"](cells_of(rows)), dtype=float)).sum())
    return fit(rows, labels)


def logged(fit: Fit, rows: Any, labels: Any) -> Any:
    logging.getLogger("cloister").debug("%d rows", len(rows))
    return fit(rows, labels)


def bounds_of_the_rows(fit: Fit, rows: Any, labels: Any) -> Any:
    numbers = FRAMES["array"](cells_of(rows))
    known = numbers[np.isfinite(numbers)]
    high = min(float(known.max(initial=1.0)), 1e90)
    return learn.StandardScaler(cl.rho(1), bounds=(0.0, high), account=fit.__self__).fit(rows)  # type: ignore[attr-defined]


def cells_of(rows: Any) -> Table:
    found = rows.to_numpy().tolist() if hasattr(rows, "to_numpy") else np.asarray(rows, dtype=object).tolist()
    return Table(tuple(map(str, range(len(found[0]) if found else 1))), found, [], ())


class Paying:
    """A fit whose account can be asked for."""

    def __init__(self, fit: Fit, account: Any) -> None:
        self.fit, self.account = fit, account

    def __call__(self, rows: Any, labels: Any) -> Any:
        return self.fit(rows, labels)

    @property
    def __self__(self) -> Any:
        return self.account


FAULTS: dict[str, tuple[str, Callable[[Fit, Any, Any], Any]]] = {
    "a cell is refused": ("GaussianNB", refused_by_a_cell),
    "a column's type says how cells are read": ("GradientBoostingClassifier", read_by_the_columns_type),
    "a warning depends on a cell": ("KMeans", warned_of_a_cell),
    "a log record has the number of rows": ("PCA", logged),
    "bounds are those of the rows": ("StandardScaler", bounds_of_the_rows),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_fits_have_done_wrong_is_found(fault: str, accounts: Any) -> None:
    name, twin = FAULTS[fault]
    for seed in range(80):
        drawn = draw_case(Random(f"{fault} {seed}"), name, accounts)
        fit = Paying(drawn.fit, accounts["rho"])
        broken = replace(drawn, fit=lambda rows, labels, fit=fit: twin(fit, rows, labels))
        if differences(*compared(broken, seed, hostile=False)):
            return
    raise AssertionError("the twin was not told from the right one")


def test_a_statistic_that_moves_too_far_is_found_in_every_norm() -> None:
    """Half the sensitivity in the mechanism's place, for every norm that there is."""
    loss = cl.epsilon(1)
    for mechanism, left, right in [
        (DiscreteLaplace.for_loss(2, loss), np.array([1, 5]), np.array([2, 6])),
        (DiscreteGaussian.for_loss(5, cl.rho(1)), np.array([0, 0]), np.array([3, 4])),
        (Exponential.for_loss(3, loss), np.array([1, 5]), np.array([4, 2])),
        (PermuteAndFlip.for_loss(3, loss, monotone=True), np.array([1, 5]), np.array([4, 5])),
        (EachGroup(PermuteAndFlip.for_loss(3, loss)), np.array([[1, 5], [0, 0]]), np.array([[2, 5], [2, 0]])),
        (Apart(PermuteAndFlip.for_loss(3, loss)), [np.array([1, 5]), np.array([0])], [np.array([4, 5]), np.array([0])]),
        (
            Thresholded(DiscreteGaussian.for_loss(1, cl.rho(1)), 1, Fraction(1, 100)),
            [("a", 3)],
            [("a", 3), ("b", 1)],
        ),
    ]:
        assert used(Step(mechanism, left, None), Step(mechanism, right, None)) == 1, mechanism
    monotone = PermuteAndFlip.for_loss(3, loss, monotone=True)
    assert used(Step(monotone, np.array([1, 5]), None), Step(monotone, np.array([2, 4]), None)) > 1
    apart = Apart(PermuteAndFlip.for_loss(3, loss))
    assert used(Step(apart, [[1], [1]], None), Step(apart, [[2], [2]], None)) > 1
    finder = Thresholded(DiscreteGaussian.for_loss(2, cl.rho(1)), 1, Fraction(1, 100))
    assert used(Step(finder, [], None), Step(finder, [("a", 1), ("b", 1)], None)) > 1
    assert used(Step(finder, [], None), Step(finder, [("a", 2)], None)) > 1

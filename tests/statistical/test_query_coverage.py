"""Answers against the truth: counts and sums are right on average, and 95 % intervals hold the truth that often.

The truth is computed here, row by row, from the clipped and capped rows. Twenty thousand repetitions are laid out as
groups: the noise is drawn on a stack of the same exact integers, and the estimators see that many groups.
"""

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from sqlglot import exp

from cloister.data.schema import Schema
from cloister.data.statistics import WEIGHT
from cloister.data.tables import open_tables
from cloister.dataset import Dataset
from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import epsilon, rho
from cloister.privacy.noise import SeededSource
from cloister.query import aggregate as need
from cloister.query.estimate import Estimate
from cloister.query.expression import Expression
from cloister.query.plan import Plan
from cloister.query.postprocess import _least_squares
from cloister.query.run import _estimate, _look

pytestmark = pytest.mark.statistical

REPETITIONS = 20_000
MAX_ROWS = 4
GROUPS = ("a", "b", "c")
LOSSES = {"laplace": epsilon("0.8"), "gaussian": rho("0.1")}
SCHEMA = Schema.load({
    "unit": {"name": "person", "max_rows": MAX_ROWS},
    "tables": {"t": {"unit": "person", "columns": {
        "g": {"type": "text", "categories": list(GROUPS), "nullable": False},
        "x": {"type": "integer", "bounds": [0, 40]},
        "y": {"type": "real", "bounds": [-1.0, 3.0], "nullable": False},
    }}},
})  # fmt: skip


def people() -> dict[str, list[Any]]:
    """Some hundred people, some with many more rows than count; values beyond the bounds, and unknown ones."""
    rows: dict[str, list[Any]] = {"person": [], "g": [], "x": [], "y": []}
    for person in range(240):
        for visit in range(1 + (person * 7) % 3 if person % 10 else 11):
            rows["person"].append(person)
            rows["g"].append(GROUPS[(person + visit * visit) % 3 if person % 4 else 0])
            rows["x"].append(None if (person + visit) % 9 == 0 else (person * 13 + visit * 5) % 47 - 3)
            rows["y"].append(math.sin(person * 1.7 + visit) * 2.5 + 1)
    return rows


ROWS = people()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    account = Ledger.in_folder(tmp_path_factory.mktemp("coverage")).open_account("t", epsilon(100, delta="1e-6"))
    kinds = {"person": pa.int64(), "g": pa.string(), "x": pa.int64(), "y": pa.float64()}
    table = pa.table({name: pa.array(ROWS[name], kind) for name, kind in kinds.items()})
    with Dataset(open_tables({"t": table}, SCHEMA, threads=1), account) as opened:
        yield opened


# The truth, from the rows


def capped(column: str, group: str | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values and weights of the rows of a group where the column is known."""
    owned = {person: ROWS["person"].count(person) for person in set(ROWS["person"])}
    low, high = {"x": (0, 40), "y": (-1.0, 3.0), "g": (0, 0)}[column]
    chosen = [
        (0.0 if column == "g" else min(max(value, low), high), min(WEIGHT, MAX_ROWS * WEIGHT // owned[person]) / WEIGHT)
        for person, g, value in zip(ROWS["person"], ROWS["g"], ROWS[column], strict=True)
        if value is not None and group in (None, g)
    ]
    values, weights = np.array(chosen).T
    return values, weights


def true_mean(values: Any, weights: Any) -> float:
    return float((weights * values).sum() / weights.sum())


def true_variance(values: Any, weights: Any) -> float:
    n = weights.sum()
    return float((weights * (values - true_mean(values, weights)) ** 2).sum() / n * n / (n - 1))


def true_quantile(q: float) -> Callable[[Any, Any], float]:
    def lowest(values: Any, weights: Any) -> float:
        order = np.argsort(values, kind="stable")
        below = np.cumsum(weights[order])
        return float(values[order][np.searchsorted(below, q * below[-1] - 1e-9)])

    return lowest


def people_in(group: str | None) -> float:
    """Each person once, or a third in each of three groups and so on: no more than four groups, so once in each."""
    pairs = {
        (person, g if group else None)
        for person, g in zip(ROWS["person"], ROWS["g"], strict=True)
        if group in (None, g)
    }
    return float(len(pairs))


AGGREGATES: dict[str, tuple[str, Callable[[Any, Any], float]]] = {
    "COUNT(*)": ("g", lambda values, weights: float(weights.sum())),
    "COUNT(x)": ("x", lambda values, weights: float(weights.sum())),
    "SUM(x)": ("x", lambda values, weights: float((weights * values).sum())),
    "SUM(y)": ("y", lambda values, weights: float((weights * values).sum())),
    "AVG(x)": ("x", true_mean),
    "AVG(y)": ("y", true_mean),
    "VARIANCE(y)": ("y", true_variance),
    "STDDEV(x)": ("x", lambda values, weights: math.sqrt(true_variance(values, weights))),
    "MEDIAN(x)": ("x", true_quantile(0.5)),
    "QUANTILE(x, 0.05)": ("x", true_quantile(0.05)),
    "QUANTILE(x, 0.9)": ("x", true_quantile(0.9)),
    "MEDIAN(y)": ("y", true_quantile(0.5)),
    "MIN(x)": ("x", lambda values, weights: float(values.min())),
    "MAX(x)": ("x", lambda values, weights: float(values.max())),
    "MIN(y)": ("y", lambda values, weights: float(values.min())),
    "MAX(y)": ("y", lambda values, weights: float(values.max())),
}


def truths(aggregate: str, groups: tuple[str | None, ...]) -> NDArray[np.float64]:
    if aggregate == "COUNT(DISTINCT person)":
        return np.array([people_in(group) for group in groups])
    column, formula = AGGREGATES[aggregate]
    return np.array([formula(*capped(column, group)) for group in groups])


# Answers, many at once


def stacked(plan: Plan, dataset: Dataset, seed: str, repetitions: int = REPETITIONS) -> list[list[Any]]:
    """Noisy values of every measurement, `repetitions` times over, as if each time were a group of its own."""
    source, exact = SeededSource(seed), iter(_look(plan, dataset.tables.engine))
    values = []
    for one in plan.measurements:
        parts = [(mechanism, next(exact)) for mechanism in one.mechanisms]
        values.append([
            mechanism.release(np.tile(statistic, (repetitions, *(1,) * (statistic.ndim - 1))), source)
            for mechanism, statistic in parts
        ])  # fmt: skip
    return values


def answers(dataset: Dataset, aggregate: str, law: str, by_group: bool) -> tuple[Estimate, NDArray[np.float64]]:
    """Estimates and truths of one aggregate, repetition after repetition."""
    sql = f"SELECT g, {aggregate} FROM t GROUP BY g" if by_group else f"SELECT {aggregate} FROM t"
    plan = dataset.plan(sql, spend=LOSSES[law])
    made = _estimate(plan, stacked(plan, dataset, f"{aggregate} {law}"), 0, plan.question.aggregates[0], 0.95)
    return made, np.tile(truths(aggregate, GROUPS if by_group else (None,)), REPETITIONS)


def coverage(made: Estimate, truth: NDArray[np.float64], cells: int) -> NDArray[np.float64]:
    """How often the limits hold the truth, for each group."""
    assert made.low is not None
    assert made.high is not None
    slack = 1e-6 * np.maximum(np.abs(truth), 1)
    held = (made.low - slack <= truth) & (truth <= made.high + slack)
    return held.reshape(-1, cells).mean(axis=0)


@pytest.fixture(autouse=True)
def fewer_leaves(monkeypatch):
    """A real column is cut into 64 leaves instead of 4096: the same tree, and twenty thousand of it fit in memory."""
    monkeypatch.setattr(need, "_LEAVES", 64)


@pytest.mark.parametrize("by_group", [False, True], ids=["total", "by group"])
@pytest.mark.parametrize("law", LOSSES)
@pytest.mark.parametrize("aggregate", [*AGGREGATES, "COUNT(DISTINCT person)"])
def test_intervals_hold_the_truth_as_often_as_they_say(
    dataset: Dataset, aggregate: str, law: str, by_group: bool
) -> None:
    made, truth = answers(dataset, aggregate, law, by_group)
    held = coverage(made, truth, 3 if by_group else 1)
    assert (held >= 0.94).all(), held


@pytest.mark.parametrize("by_group", [False, True], ids=["total", "by group"])
@pytest.mark.parametrize("law", LOSSES)
@pytest.mark.parametrize("aggregate", ["COUNT(*)", "COUNT(x)", "SUM(x)", "SUM(y)", "COUNT(DISTINCT person)"])
def test_counts_and_sums_are_right_on_average(dataset: Dataset, aggregate: str, law: str, by_group: bool) -> None:
    made, truth = answers(dataset, aggregate, law, by_group)
    off = (np.asarray(made.value, dtype=np.float64) - truth).reshape(REPETITIONS, -1)
    deviations = off.mean(axis=0) / off.std(axis=0) * math.sqrt(REPETITIONS)
    # The mean of so many has a deviation of 0.007 of one: a bias of a thirtieth of a deviation would fail.
    assert (np.abs(deviations) < 5).all(), deviations


@pytest.mark.parametrize("law", LOSSES)
@pytest.mark.parametrize("aggregate", ["COUNT(*)", "SUM(x)"])
def test_an_interval_is_no_wider_than_it_must_be(dataset: Dataset, aggregate: str, law: str) -> None:
    """Counts and sums have exact quantiles, so their intervals miss about one time in twenty, not never."""
    made, truth = answers(dataset, aggregate, law, by_group=False)
    assert coverage(made, truth, 1)[0] < 0.956


@pytest.mark.parametrize("aggregate", ["COUNT(*)", "AVG(x)", "MEDIAN(x)"])
def test_half_the_noise_in_the_books_would_be_noticed(dataset: Dataset, aggregate: str) -> None:
    """The check has power: intervals made for half the true noise hold the truth too seldom."""
    plan = dataset.plan(f"SELECT {aggregate} FROM t", spend=rho("0.1"))
    braver = dataset.plan(f"SELECT {aggregate} FROM t", spend=rho("0.9"))
    values = stacked(plan, dataset, "braver")
    made = _estimate(braver, values, 0, braver.question.aggregates[0], 0.95)
    held = coverage(made, np.tile(truths(aggregate, (None,)), REPETITIONS), 1)[0]
    assert held < 0.93, held


def agreed_intervals(
    plan: Plan, dataset: Dataset, sums: list[NDArray[np.float64]], confidence: float, repetitions: int
) -> list[NDArray[np.float64]]:
    """How often intervals of numbers that were made to add up hold these true ones, for each level, coarse first."""
    values = stacked(plan, dataset, "rollup", repetitions)
    measured = [list(one) for one in values]
    order = sorted(range(len(values)), key=lambda i: plan.measurements[i].sums.cells)
    sizes = [repetitions * plan.measurements[i].sums.cells for i in order]
    levels = [np.asarray(values[i][0], dtype=np.float64) for i in order]
    agreed = _least_squares(levels, [plan.measurements[i].variance for i in order], sizes)
    np.testing.assert_allclose(agreed[0], agreed[1].reshape(len(agreed[0]), -1).sum(axis=1))
    found = []
    for i, level, truth in zip(order, agreed, sums, strict=True):
        values[i][0] = level
        one, (aggregate,) = plan.measurements[i], plan.question.aggregates
        made = _estimate(plan, values, one.group_set, aggregate, confidence, measured)  # type: ignore[arg-type]
        assert made.low is not None
        assert made.high is not None
        assert (made.low <= made.value).all()
        assert (made.value <= made.high).all()
        found.append(coverage(made, np.tile(truth, repetitions), len(truth)))
    return found


@pytest.mark.parametrize("confidence", [0.05, 0.2, 0.5, 0.95, 0.999])
@pytest.mark.parametrize("law", LOSSES)
@pytest.mark.parametrize("aggregate", ["COUNT(*)", "SUM(x)"])
def test_totals_that_were_made_to_add_up_keep_their_intervals(
    dataset: Dataset, aggregate: str, law: str, confidence: float
) -> None:
    plan = dataset.plan(f"SELECT g, {aggregate} FROM t GROUP BY ROLLUP (g)", spend=LOSSES[law])
    sums = [truths(aggregate, groups) for groups in ((None,), GROUPS)]
    off = 5 * math.sqrt(confidence * (1 - confidence) / REPETITIONS)
    for held in agreed_intervals(plan, dataset, sums, confidence, REPETITIONS):
        assert (held >= confidence - off).all(), held


SQUARE = Schema.load({
    "unit": "row",
    "tables": {"t": {"columns": {
        name: {"type": "integer", "bounds": [0, 7], "nullable": False} for name in ("a", "b")
    }}},
})  # fmt: skip


@pytest.mark.parametrize("spend", [epsilon("0.3"), epsilon(12), epsilon(20), rho("0.1"), rho(20)], ids=str)
def test_many_totals_that_were_made_to_add_up_keep_their_intervals(tmp_path, spend) -> None:
    """Also where one noise is mostly none: of 64 together some seldom is."""
    account = Ledger.in_folder(tmp_path).open_account("t", epsilon(10**4, delta="1e-6"))
    cells = [(a, b) for a in range(8) for b in range(8)] * 3
    table = pa.table({"a": [a for a, _ in cells], "b": [b for _, b in cells]})
    with Dataset(open_tables({"t": table}, SQUARE, threads=1), account) as dataset:
        plan = dataset.plan("SELECT a, b, COUNT(*) FROM t GROUP BY ROLLUP (a, b)", spend=spend)
        sums = [np.full(n, 192.0 / n) for n in (1, 8, 64)]
        for confidence in (0.2, 0.3, 0.5, 0.8, 0.95):
            for held in agreed_intervals(plan, dataset, sums, confidence, 2000):
                off = 5 * math.sqrt(confidence * (1 - confidence) / 2000 / len(held))
                assert held.mean() >= confidence - off, (confidence, len(held), held.mean())


BY_ROW = Schema.load({
    "unit": "row",
    "tables": {"t": {"columns": {"x": {"type": "integer", "bounds": [0, 5], "nullable": False}}}},
})  # fmt: skip


@pytest.mark.parametrize("spend", [epsilon("3.5"), rho(2), rho(4)], ids=str)
@pytest.mark.parametrize("rows", [[0, 1], [1, 2, 3, 4], [0] + [5] * 99], ids=["two", "four", "hundred"])
def test_quantiles_of_few_rows_keep_their_intervals_where_noise_is_a_step_or_none(tmp_path, rows, spend) -> None:
    """Noise of less than a step is no normal law: limits made for one would hold the truth nine times in ten."""
    account = Ledger.in_folder(tmp_path).open_account("t", epsilon(10**4, delta="1e-6"))
    with Dataset(open_tables({"t": pa.table({"x": rows})}, BY_ROW, threads=1), account) as dataset:
        for q in (0.01, 0.05, 0.5, 0.9):
            plan = dataset.plan(f"SELECT QUANTILE(x, {q}) FROM t", spend=spend)
            made = _estimate(plan, stacked(plan, dataset, f"{q}"), 0, plan.question.aggregates[0], 0.95)
            truth = sorted(rows)[max(0, math.ceil(q * len(rows) - 1e-9) - 1)]
            assert coverage(made, np.full(REPETITIONS, float(truth)), 1)[0] >= 0.94


QUANTILES = {  # with the definition of each
    "QUANTILE(x, {q})": "inverted_cdf",
    "PERCENTILE_DISC({q}) WITHIN GROUP (ORDER BY x)": "inverted_cdf",
    "PERCENTILE_CONT({q}) WITHIN GROUP (ORDER BY x)": "linear",
    "MEDIAN(x)": "linear",
}
FEW = {
    "two": [0, 5], "three": [0, 2, 5], "four": [0, 1, 4, 5], "a gap": [0] * 25 + [5] * 74, "even": [0] * 4 + [5] * 4,
    "one": [3], "odd": [0] * 5 + [1, 5] + [5] * 4,
}  # fmt: skip


@pytest.mark.parametrize("by", ["row", "person"])
@pytest.mark.parametrize("form", QUANTILES)
def test_quantiles_are_those_of_sql_where_there_is_no_noise(tmp_path, form, by) -> None:
    """At this epsilon noise has a probability of e^-90. Intervals hold SQL's value, and for rows are its two rows."""
    unit, facts = ("row", {}) if by == "row" else ({"name": "p", "max_rows": 1}, {"unit": "p"})
    columns = {"x": {"type": "integer", "bounds": [0, 5], "nullable": False}}
    schema = Schema.load({"unit": unit, "tables": {"t": {"columns": columns, **facts}}})
    engine = duckdb.connect()
    for name, rows in FEW.items():
        account = Ledger.in_folder(tmp_path / name).open_account("t", epsilon(10**5))
        table = pa.table({"x": rows, "p": list(range(len(rows)))})
        engine.register("t", table)
        with Dataset(open_tables({"t": table}, schema, threads=1), account) as dataset:
            for q in (0, 0.01, 0.1, 0.25, 0.3, 0.5, 2 / 3, 0.75, 0.9, 0.99, 1) if "q" in form else (0.5,):
                aggregate = form.format(q=q)
                truth = float(np.quantile(rows, q, method=QUANTILES[form]))
                sql = "QUANTILE_DISC" + aggregate.removeprefix("QUANTILE") if aggregate[0] == "Q" else aggregate
                assert engine.sql(f"SELECT {sql} FROM t").fetchall()[0][0] == pytest.approx(truth)
                (row,) = dataset.sql(f"SELECT {aggregate} AS m FROM t", spend=epsilon(100)).rows()
                assert row["m_low"] - 1e-9 <= truth <= row["m_high"] + 1e-9, (name, q, row)
                if by == "row" and 0 < q < 1 and form.startswith("PERCENTILE_CONT"):
                    ends = [float(np.quantile(rows, q, method=method)) for method in ("lower", "higher")]
                    if q * len(rows) % 1 and q != 2 / 3:  # between two rows: nothing more than the hull of them
                        assert [row["m_low"], row["m_high"]] == ends, (name, q, row)


@pytest.mark.parametrize(
    ("low", "high", "value"),
    [
        (-0.2, 0.2, 0.1),
        (-0.6, 0.6, 0.3),
        (-0.2, 0.2, 0.0),
        (-0.2, 0.2, -1e-18),
        (0.1, 0.7, 0.7),
        (-1e15, 1e15 + 1, 0.5),
    ],
)
def test_rows_at_the_edge_of_a_bin_are_inside_the_limits(tmp_path, low, high, value) -> None:
    """All rows are equal: without noise every limit is that of their bin, as the engine has it, to the last digit."""
    columns = {"x": {"type": "real", "bounds": [low, high], "nullable": False}}
    schema = Schema.load({"unit": "row", "tables": {"t": {"columns": columns}}})
    account = Ledger.in_folder(tmp_path).open_account("t", epsilon(10**6))
    with Dataset(open_tables({"t": pa.table({"x": [value] * 5})}, schema, threads=1), account) as dataset:
        sql = "SELECT MEDIAN(x) AS m, QUANTILE(x, 0.3) AS q, MIN(x) AS lo, MAX(x) AS hi FROM t"
        (row,) = dataset.sql(sql, spend=epsilon(4000)).rows()
        assert row["m_low"] <= value <= row["m_high"]
        assert row["q_low"] <= value <= row["q_high"]
        assert row["hi"] <= value <= row["lo"]
        assert low <= row["m_low"]
        assert row["m_high"] <= high


def test_every_edge_of_a_bin_is_where_the_engine_puts_it() -> None:
    for low, high in ((-0.2, 0.2), (0.1, 0.7), (-1.0, 3.0), (0.0, 1e-3), (-5e3, 7.7e9), (1e15, 1e15 + 9)):
        leaves = need.leaves_of(Expression(exp.column("x"), "real", low, high), "x")
        index = np.arange(leaves.count)
        edges = np.concatenate([leaves.lower(index), leaves.upper(index)])
        for each in (np.nextafter(edges, -np.inf), edges, np.nextafter(edges, np.inf)):
            inside = each[(each >= low) & (each <= high)]
            leaf = np.floor((inside - low) * leaves.factor).astype(int)
            assert ((leaf >= 0) & (leaf < leaves.count)).all()
            assert (leaves.lower(leaf) <= inside).all()
            assert (inside <= leaves.upper(leaf)).all()


def test_percentile_cont_holds_its_two_rows_where_rows_count_less_than_once(tmp_path) -> None:
    """Without noise, for every place of the one step in the values: weight before a rank is nearly the rank."""
    columns = {"x": {"type": "integer", "bounds": [0, 5], "nullable": False}}
    unit = {"name": "p", "max_rows": 1}
    schema = Schema.load({"unit": unit, "tables": {"t": {"columns": columns, "unit": "p"}}})
    people, each = 4, 5  # rows count 1/5
    for step in range(1, people * each):
        rows = [0] * step + [5] * (people * each - step)
        table = pa.table({"x": rows, "p": [str(row % people) for row in range(len(rows))]})
        account = Ledger.in_folder(tmp_path / str(step)).open_account("t", epsilon(10**5))
        with Dataset(open_tables({"t": table}, schema, threads=1), account) as dataset:
            for q in (Fraction(1, 10), Fraction(1, 2), Fraction(3, 4), Fraction(9, 10)):
                h = q * (people - 1)
                low, high = (rows[math.ceil(rank * each) - 1] for rank in (1 + math.floor(h), 1 + math.ceil(h)))
                aggregate = f"PERCENTILE_CONT({float(q)}) WITHIN GROUP (ORDER BY x)"
                (row,) = dataset.sql(f"SELECT {aggregate} AS m FROM t", spend=epsilon(200)).rows()
                assert row["m_low"] <= low, (step, q, row)
                assert high <= row["m_high"], (step, q, row)


@pytest.mark.parametrize("spend", [epsilon("3.5"), epsilon(8), rho(4)], ids=str)
@pytest.mark.parametrize("rows", FEW)
def test_values_between_two_rows_keep_their_intervals(tmp_path, rows, spend) -> None:
    """SQL's median of two rows is between them, and its PERCENTILE_CONT looks at another rank than QUANTILE."""
    account = Ledger.in_folder(tmp_path).open_account("t", epsilon(10**4, delta="1e-6"))
    with Dataset(open_tables({"t": pa.table({"x": FEW[rows]})}, BY_ROW, threads=1), account) as dataset:
        for q in (0.05, 0.25, 0.5, 0.9):
            aggregate = f"PERCENTILE_CONT({q}) WITHIN GROUP (ORDER BY x)" if q != 0.5 else "MEDIAN(x)"
            plan = dataset.plan(f"SELECT {aggregate} FROM t", spend=spend)
            made = _estimate(plan, stacked(plan, dataset, f"{q}"), 0, plan.question.aggregates[0], 0.95)
            assert coverage(made, np.full(REPETITIONS, float(np.quantile(FEW[rows], q))), 1)[0] >= 0.94


ROUNDED = 10**6


@pytest.mark.parametrize("person", [False, True], ids=["rows", "people"])
@pytest.mark.parametrize("aggregate", ["SUM(x)", "AVG(x)", "VAR_POP(x)", "SUM(x * x)"])
def test_intervals_of_sums_allow_for_the_rounding_of_rows(tmp_path, aggregate, person) -> None:
    """Equal rows are all rounded in the same direction, and so many of them by more than a very small noise."""
    unit = {"name": "person", "max_rows": 1} if person else "row"
    table = {"columns": {"x": {"type": "real", "bounds": [0.0, 128.0], "nullable": False}}, "rows": ROUNDED}
    schema = Schema.load({"unit": unit, "tables": {"t": table | ({"unit": "p"} if person else {})}})
    account = Ledger.in_folder(tmp_path).open_account("t", epsilon(10**6))
    rows = pa.table({"x": np.full(ROUNDED, 0.3), "p": np.arange(ROUNDED)})
    truth = {"SUM(x)": 0.3 * ROUNDED, "AVG(x)": 0.3, "VAR_POP(x)": 0.0, "SUM(x * x)": 0.3 * 0.3 * ROUNDED}[aggregate]
    with Dataset(open_tables({"t": rows}, schema, threads=1), account) as dataset:
        for spend in (1000, 10_000, 10**6):
            plan = dataset.plan(f"SELECT {aggregate} FROM t", spend=epsilon(spend))
            values = stacked(plan, dataset, f"{aggregate} {spend}", 2000)
            made = _estimate(plan, values, 0, plan.question.aggregates[0], Fraction("0.95"))
            off = 1e-12 * abs(truth)  # of the truth itself, in doubles
            assert ((made.low <= truth + off) & (truth - off <= made.high)).mean() >= 0.94, spend


SMALL = {
    "MAX, epsilon 4.3": ([0] * 100, [0, 1], "MAX(x)", epsilon("4.3"), "0.999", 0),
    "MAX, rho 6.4": ([0] * 100, [0, 15], "MAX(x)", rho("6.4"), "0.99", 0),
    "MAX, rho 6.4, two levels": ([0] * 100, [0, 99], "MAX(x)", rho("6.4"), "0.999", 0),
    "MIN, rho 6.4": ([15] * 100, [0, 15], "MIN(x)", rho("6.4"), "0.999", 15),
    "QUANTILE, rho 5.56": ([0] * 10 + [1] * 91, [0, 15], "QUANTILE(x, 0.1)", rho("5.56"), "0.999", 1),
    "QUANTILE, epsilon 6": ([0] * 10 + [1] * 91, [0, 99], "QUANTILE(x, 0.1)", epsilon(6), "0.999", 1),
    "MEDIAN, rho 12": ([0] * 50 + [1] * 51, [0, 15], "MEDIAN(x)", rho(12), "0.999", 1),
}


@pytest.mark.parametrize("case", SMALL)
def test_min_max_and_quantiles_keep_a_high_confidence_where_noise_is_mostly_none(tmp_path, case) -> None:
    """The deviation of such noise is small and its tail is not: no margin can be made of it."""
    rows, bounds, aggregate, spend, confidence, truth = SMALL[case]
    schema = Schema.load({"unit": "row", "tables": {"t": {"columns": {
        "x": {"type": "integer", "bounds": bounds, "nullable": False},
    }}}})  # fmt: skip
    account = Ledger.in_folder(tmp_path).open_account("t", epsilon(10**4, delta="1e-6"))
    with Dataset(open_tables({"t": pa.table({"x": rows})}, schema, threads=1), account) as dataset:
        plan = dataset.plan(f"SELECT {aggregate} FROM t", spend=spend, confidence=confidence)
        stated = Fraction(confidence)
        made = _estimate(plan, stacked(plan, dataset, case), 0, plan.question.aggregates[0], stated)
    wrong = float(1 - stated)
    most = wrong + 4 * math.sqrt(wrong / REPETITIONS)
    assert 1 - coverage(made, np.full(REPETITIONS, float(truth)), 1)[0] <= most
    if "Q" not in aggregate and "MED" not in aggregate:  # a value that no row reaches
        reached = made.value <= truth if aggregate.startswith("MAX") else made.value >= truth
        assert (~reached & ~np.isnan(made.value)).mean() <= most


EXTREMES = {
    "uniform": ([20 + i % 61 for i in range(6000)], 20, 80),
    "one value": ([50] * 3000, 50, 50),
    "at the bounds": ([0] * 2000 + [100] * 2000, 0, 100),
    "a tail of single rows": ([40] * 4000 + list(range(41, 71)), 40, 70),
}


@pytest.mark.parametrize("spend", [rho("0.1"), epsilon("0.5")], ids=str)
@pytest.mark.parametrize("case", EXTREMES)
def test_min_and_max_name_values_that_are_reached(tmp_path, case: str, spend) -> None:
    """In a column with many empty bins on both sides, noise must not be taken for rows, nor a bound for a value."""
    rows, least, most = EXTREMES[case]
    bounds = {"type": "integer", "bounds": [0, 100], "nullable": False}
    wide = {"type": "real", "bounds": [-900.0, 1900.0], "nullable": False}
    schema = Schema.load({"unit": "row", "tables": {"t": {"columns": {"x": bounds, "y": wide}}}})
    account = Ledger.in_folder(tmp_path).open_account("t", epsilon(10**4, delta="1e-6"))
    table = pa.table({"x": rows, "y": [float(one) for one in rows]})
    with Dataset(open_tables({"t": table}, schema, threads=1), account) as dataset:
        for column, least_width in (("x", 1.0), ("y", 2800 / 64)):
            for name, true in (("MIN", least), ("MAX", most)):
                plan = dataset.plan(f"SELECT {name}({column}) FROM t", spend=spend)
                made = _estimate(plan, stacked(plan, dataset, case, 2000), 0, plan.question.aggregates[0], 0.95)
                assert coverage(made, np.full(2000, float(true)), 1)[0] >= 0.95
                assert made.low is not None
                assert made.high is not None
                inner = made.high if name == "MIN" else -made.low
                assert (inner >= (true if name == "MIN" else -true) - 1e-9).mean() >= 0.97
                if case != "a tail of single rows":  # whose ends no noise of this size shows
                    assert (np.abs(made.value - true) <= least_width).mean() >= 0.9


def test_min_and_max_of_rows_that_noise_hides_are_null(tmp_path) -> None:
    for rows in ([], [7] * 3):
        account = Ledger.in_folder(tmp_path / str(len(rows))).open_account("t", epsilon(10**4, delta="1e-6"))
        table = pa.table({"x": pa.array(rows, pa.int64())})
        with Dataset(open_tables({"t": table}, BY_ROW, threads=1), account) as dataset:
            sql = "SELECT MIN(x) AS a, MAX(x) AS b FROM t"
            answer = dataset.sql(sql, spend=epsilon("0.001"), source=SeededSource("hidden"))
            assert answer.rows() == [{"a": None, "a_low": 0, "a_high": 5, "b": None, "b_low": 0, "b_high": 5}]
            assert "NULL [0, 5]" in str(answer).replace(".0", "")


def test_a_mode_is_as_near_to_the_most_frequent_as_its_probability_says(tmp_path):
    schema = {"unit": "row", "tables": {"t": {"columns": {"x": {"type": "text", "categories": list("abcdefgh")}}}}}
    # Many that are just too far behind: the hardest case for the bound.
    account = Ledger.in_folder(tmp_path).open_account("t", rho(1))
    tables = open_tables(pa.table({"x": ["a"]}), Schema.load(schema))
    plan = Dataset(tables, account, "1").plan("SELECT MODE(x) FROM t", spend=rho("0.02"))
    (vote,) = plan.measurements
    far = float(re.search(r"at most ([\d.]+) rows", plan.closeness(vote))[1])
    assert vote.need.extra is not None
    behind = np.array([0, 0.2 * far, *[far + 1] * (len(vote.need.extra.values) - 2)])
    votes = np.rint((2 * far + 100 - behind) / vote.unit).astype(np.int64)
    chosen = vote.mechanisms[0].release([votes] * 4000, SeededSource("mode"))
    assert np.mean(behind[chosen] <= far) >= 0.95
    assert np.mean(behind[chosen] <= far / 10) < 0.95


MANY = Schema.load({
    "unit": "row",
    "tables": {"t": {"columns": {"g": {"type": "integer", "bounds": [1, 200], "nullable": False}}}},
})  # fmt: skip


@pytest.mark.parametrize(
    "ending", ["ORDER BY n DESC LIMIT 1", "HAVING COUNT(*) > 3", "ORDER BY COUNT(*) + 1 LIMIT 3", "ORDER BY 2 LIMIT 2"]
)
def test_intervals_of_rows_that_were_chosen_by_their_noise_hold(tmp_path, ending: str) -> None:
    """The largest of many noisy numbers is the one with the largest noise."""
    account = Ledger.in_folder(tmp_path).open_account("t", epsilon(10**4, delta="1e-6"))
    with Dataset(open_tables({"t": pa.table({"g": list(range(1, 201))})}, MANY, threads=1), account) as dataset:
        plan = dataset.plan(f"SELECT g, COUNT(*) AS n FROM t GROUP BY g {ending}", spend=rho("0.1"))
        assert "chosen by noisy numbers" in str(plan)
        runs = [dataset.run(plan, source=SeededSource(f"run {i}")).rows() for i in range(30)]
        held = [all(row["n_low"] <= 1 <= row["n_high"] for row in rows) for rows in runs]
        assert np.mean(held) >= 0.9
        assert any(abs(row["n"] - 1) > 3 for rows in runs for row in rows)
        public = dataset.plan("SELECT g, COUNT(*) AS n FROM t GROUP BY g HAVING g > 3 ORDER BY g LIMIT 2", spend=rho(1))
        whole = dataset.plan("SELECT g, COUNT(*) AS n FROM t GROUP BY g ORDER BY n", spend=rho(1))
        assert public.interval_confidence == whole.interval_confidence == 0.95


CHOSEN = Schema.load({
    "unit": "row",
    "tables": {"t": {"columns": {
        "g": {"type": "integer", "bounds": [1, 1000], "nullable": False},
        "x": {"type": "integer", "bounds": [-9, 9], "nullable": False},
        "w": {"type": "text", "categories": ["a", "b"], "nullable": False},
    }}},
})  # fmt: skip
CLAIMS = {
    "MAX, HAVING": ("MAX(x)", "HAVING MAX(x) > 0", "0.5"),
    "MAX, LIMIT": ("MAX(x)", "ORDER BY m DESC LIMIT 5", "0.5"),
    "MIN, HAVING": ("MIN(x)", "HAVING MIN(x) < 0", "0.5"),
    "MIN, LIMIT": ("MIN(x)", "ORDER BY MIN(x) LIMIT 5", "0.5"),
    "MODE, HAVING": ("MODE(w)", "HAVING MODE(w) = 'b'", "0.062"),
    "MODE, LIMIT": ("MODE(w)", "ORDER BY m DESC LIMIT 5", "0.062"),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_an_answer_names_holds_where_rows_were_chosen_by_it(tmp_path, claim: str) -> None:
    """Every row has x = 0 and w = 'a'. A choice by the named value picks exactly the groups where it is wrong."""
    aggregate, ending, spend = CLAIMS[claim]
    rows = 60
    table = pa.table({
        "g": np.repeat(np.arange(1, 1001), rows),
        "x": np.zeros(1000 * rows, dtype=np.int64),
        "w": ["a"] * 1000 * rows,
    })  # fmt: skip
    account = Ledger.in_folder(tmp_path).open_account("t", epsilon(10**4))
    with Dataset(open_tables({"t": table}, CHOSEN, threads=1), account) as dataset:
        plan = dataset.plan(f"SELECT g, {aggregate} AS m FROM t GROUP BY g {ending}", spend=epsilon(spend))
        right = []
        for i in range(20):
            answer = dataset.run(plan, source=SeededSource(f"{claim} {i}"))
            named = [value for value in answer.column("m") if value is not None]
            if aggregate == "MODE(w)":
                (note,) = (note for note in answer.notes if note.startswith("MODE"))
                behind = re.search(r"with probability 0.95 in all groups together, at most ([\d.,]+) rows", note)
                assert note.removeprefix("MODE(w): ") in str(plan)
                right.append("b" not in named or float(behind[1].replace(",", "")) >= rows)
            else:
                right.append(max(named, default=0) <= 0 if aggregate == "MAX(x)" else min(named, default=0) >= 0)
        assert np.mean(right) >= 0.6  # with 0.95 each, fewer have a probability of 3e-7

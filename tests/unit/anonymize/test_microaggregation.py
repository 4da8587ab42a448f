import datetime as dt
import itertools
import time
from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.anonymize.operations.microaggregation import mdav, microaggregate, microaggregate_column, optimal_runs
from cloister.privacy.errors import BadNumber


def plain_mdav(points, k):
    """MDAV as it is written in the paper, for comparison."""
    left, groups = list(range(len(points))), []

    def farthest(point):
        return max(left, key=lambda row: ((points[row] - point) ** 2).sum())

    def take(row):
        nearest = sorted(left, key=lambda other: ((points[other] - points[row]) ** 2).sum())[:k]
        groups.append(nearest)
        for other in nearest:
            left.remove(other)

    while len(left) >= 3 * k:
        first = farthest(points[left].mean(axis=0))
        second = farthest(points[first])
        take(first)
        take(second)
    if len(left) >= 2 * k:
        take(farthest(points[left].mean(axis=0)))
    return {frozenset(group) for group in [*groups, left]}


@pytest.mark.parametrize(("count", "k"), [(2, 2), (9, 5), (10, 5), (14, 5), (15, 5), (101, 3), (60, 7)])
def test_the_groups_are_those_of_mdav(count, k):
    points = np.random.default_rng(count).normal(size=(count, 3))
    groups = mdav(points, k)
    assert {frozenset(np.flatnonzero(groups == group)) for group in set(groups)} == plain_mdav(points, k)


@settings(deadline=None, max_examples=60)
@given(
    cells=st.lists(st.tuples(st.none() | st.integers(-3, 3), st.none() | st.integers(0, 2)), min_size=2, max_size=40),
    k=st.integers(2, 6),
)
def test_every_combination_occurs_k_times_whatever_the_nulls_and_ties(cells, k):
    rows = pa.table(
        {"a": pa.array([a for a, _ in cells], pa.int64()), "b": pa.array([b for _, b in cells], pa.int64())}
    )
    if k > len(cells):
        with pytest.raises(BadNumber, match="greater than the number of rows"):
            microaggregate(rows, ["a", "b"], k)
        return
    result = microaggregate(rows, ["a", "b"], k)
    counts = Counter(zip(*result.rows.to_pydict().values(), strict=True))
    assert all(count >= k for count in counts.values())
    assert len(result.groups) == result.rows.num_rows
    assert 0 <= result.loss <= 1


def test_the_last_group_has_k_to_2k_minus_1_rows():
    for count in range(5, 40):
        sizes = np.bincount(mdav(np.random.default_rng(1).normal(size=(count, 2)), 5))
        assert (sizes[:-1] == 5).all()
        assert 5 <= sizes[-1] <= 9


@settings(deadline=None, max_examples=40)
@given(values=st.lists(st.integers(-50, 50), min_size=2, max_size=11), k=st.integers(2, 3))
def test_the_optimum_of_one_column_is_the_least_error_of_all_groupings(values, k):
    if len(values) < k:
        return
    numbers = np.array(values, dtype=float)
    ordered = np.sort(numbers)

    def error(parts):
        return sum(((part - part.mean()) ** 2).sum() for part in parts)

    best = min(
        error(parts)
        for number in range(len(values) // k)
        for cuts in itertools.combinations(range(1, len(values)), number)
        for parts in [np.split(ordered, cuts)]
        if all(len(part) >= k for part in parts)
    )
    groups = optimal_runs(numbers, k)
    assert np.bincount(groups).min() >= k
    assert np.bincount(groups).max() < 2 * k
    assert error([numbers[groups == group] for group in set(groups)]) == pytest.approx(best, abs=1e-6)


def test_columns_are_standardised_before_distances():
    rng = np.random.default_rng(1)
    small, large = rng.normal(size=200), rng.normal(size=200) * 1e6
    groups = microaggregate({"a": small, "b": large}, ["a", "b"], 5).groups
    assert (groups == microaggregate({"a": small * 1e6, "b": large}, ["a", "b"], 5).groups).all()


def test_means_are_kept_and_types_too():
    rows = {
        "d": [Decimal("1.00"), Decimal("2.00"), Decimal("90.00"), Decimal("91.00")],
        "day": [dt.date(2020, 1, 1), dt.date(2020, 1, 3), dt.date(2021, 1, 1), dt.date(2021, 1, 3)],
        "x": [1.5, 2.5, 100.0, 101.0],
    }
    result = microaggregate(rows, list(rows), 2).rows
    assert result["d"].to_pylist() == [Decimal("1.50")] * 2 + [Decimal("90.50")] * 2
    assert result["day"].to_pylist() == [dt.date(2020, 1, 2)] * 2 + [dt.date(2021, 1, 2)] * 2
    assert result["x"].to_pylist() == [2.0, 2.0, 100.5, 100.5]


def test_rare_patterns_of_null_are_suppressed_and_logged():
    rows = {"a": [1, 2, 3, 4, None], "b": [1, 2, 3, 4, 5], "other": list("vwxyz")}
    result = microaggregate(rows, ["a", "b"], 2)
    assert result.rows["other"].to_pylist() == list("vwxy")
    assert "1 rows suppressed" in result.log[2]


def test_the_optimum_is_never_worse_than_mdav():
    rows = {"x": np.random.default_rng(3).lognormal(size=500)}
    assert microaggregate_column(rows, "x", 4).loss < microaggregate(rows, "x", 4).loss


@pytest.mark.parametrize("k", [0, 1, True, 2.5])
def test_k_is_a_whole_number_above_one(k):
    with pytest.raises(BadNumber):
        microaggregate({"x": [1, 2, 3]}, "x", k)


def test_ten_thousand_rows_take_seconds():
    rows = {name: np.random.default_rng(1).normal(size=10_000) for name in "abcd"}
    start = time.perf_counter()
    microaggregate(rows, list(rows), 5)
    assert time.perf_counter() - start < 5

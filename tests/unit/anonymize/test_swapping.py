import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.anonymize.operations.swapping import swap_nearest, swap_ranks
from cloister.privacy.errors import BadNumber, BadProbability, BadSchema


def test_no_value_moves_further_than_the_reach():
    values = np.random.default_rng(1).permutation(1000)
    swapped = swap_ranks({"x": values}, "x", reach=0.05, random_state=2).rows["x"].to_numpy()
    moved = np.abs(swapped - values)  # values are their own ranks
    assert sorted(swapped) == sorted(values)
    assert moved.max() <= 50
    assert moved.max() > 30
    assert (moved > 0).mean() > 0.95


@settings(deadline=None, max_examples=40)
@given(
    cells=st.lists(st.none() | st.integers(0, 5), max_size=30), reach=st.floats(0.01, 1), rate=st.floats(0.01, 1),
    seed=st.integers(0, 9),
)  # fmt: skip
def test_values_are_permuted_and_null_stays_in_its_row(cells, reach, rate, seed):
    rows = pa.table({"x": pa.array(cells, pa.int64())})
    swapped = swap_ranks(rows, "x", reach=reach, rate=rate, random_state=seed).rows["x"].to_pylist()
    assert [cell is None for cell in swapped] == [cell is None for cell in cells]
    assert sorted(cell for cell in swapped if cell is not None) == sorted(cell for cell in cells if cell is not None)


def test_the_rate_is_the_share_of_swapped_values():
    result = swap_ranks({"x": np.arange(10_000)}, "x", rate=0.3, random_state=1)
    changed = (result.rows["x"].to_numpy() != np.arange(10_000)).mean()
    assert changed == pytest.approx(0.3, abs=0.03)
    assert f"{round(changed * 10_000):,} cells have another value" in result.log[0]


def test_the_log_counts_swaps_of_equal_values_as_no_change():
    assert "0 cells have another value" in swap_ranks({"x": ["a"] * 100}, "x", random_state=1).log[0]


def test_columns_are_swapped_apart_and_of_any_ordered_type():
    days = [dt.date(2020, 1, 1) + dt.timedelta(day) for day in range(50)]
    rows = {"day": days, "word": [f"{i:02d}" for i in range(50)], "other": list(range(50))}
    result = swap_ranks(rows, ["day", "word"], reach=0.2, random_state=1).rows
    assert result["day"].to_pylist() != days
    assert [days.index(day) for day in result["day"].to_pylist()] != [int(word) for word in result["word"].to_pylist()]
    assert result["other"].to_pylist() == rows["other"]
    with pytest.raises(BadSchema, match="no order"):
        swap_ranks({"x": [[1], [2]]}, "x")


def test_a_share_is_above_zero_and_at_most_one():
    for options in ({"reach": 0}, {"rate": 1.5}):
        with pytest.raises(BadProbability):
            swap_ranks({"x": [1, 2]}, "x", **options)


def test_nearest_neighbours_exchange_sensitive_values_together():
    rng = np.random.default_rng(1)
    rows = {"age": rng.uniform(0, 100, 2000), "city": rng.integers(0, 2, 2000).astype(str), "id": np.arange(2000)}
    rows["twin"] = rows["id"]
    result = swap_nearest(rows, ["id", "twin"], ["age", "city"], rate=0.2, random_state=3)
    partner = result.rows["id"].to_numpy()
    changed = np.flatnonzero(partner != np.arange(2000))
    assert len(changed) == 400
    assert (partner[partner[changed]] == changed).all()
    assert (result.rows["twin"].to_numpy() == partner).all()
    assert np.abs(rows["age"][partner] - rows["age"])[changed].max() < 5
    assert (rows["city"][partner] == rows["city"])[changed].mean() > 0.99
    assert result.rows["age"].to_numpy().tolist() == rows["age"].tolist()


def test_equal_rows_and_nulls_are_swapped_too():
    rows = {"age": [30.0, None] * 500, "s": list(range(1000))}
    partner = swap_nearest(rows, "s", "age", rate=1, random_state=1).rows["s"].to_numpy()
    assert sorted(partner) == list(range(1000))
    assert (partner != np.arange(1000)).all()
    assert (partner % 2 == np.arange(1000) % 2).mean() > 0.9


def test_nearest_swapping_refuses_what_it_cannot_do():
    with pytest.raises(BadSchema, match="at once"):
        swap_nearest({"a": [1, 2], "b": [1, 2]}, ["a"], ["a", "b"])
    with pytest.raises(BadNumber, match="two rows"):
        swap_nearest({"a": [1], "b": [1]}, "a", "b")
    with pytest.raises(BadSchema, match="generalise"):
        swap_nearest({"a": list(range(300)), "b": [f"{i}" for i in range(300)]}, "a", "b")

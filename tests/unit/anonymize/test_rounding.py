import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from cloister.anonymize.operations.rounding import bottom_code, recode, round_to, top_code, truncate_dates
from cloister.privacy.errors import BadNumber, BadProbability, BadSchema


def test_numbers_are_rounded_in_their_own_type():
    rows = {"i": [26, -26, None], "f": [0.26, -0.26, None], "d": [Decimal("0.26"), Decimal("-0.26"), None]}
    assert round_to(rows, "i", 10).rows["i"].to_pylist() == [30, -30, None]
    assert round_to(rows, "i", 10, method="down").rows["i"].to_pylist() == [20, -30, None]
    assert round_to(rows, "i", 10, method="up").rows["i"].to_pylist() == [30, -20, None]
    assert round_to(rows, "f", 0.1).rows["f"].to_pylist() == [0.3, -0.3, None]
    assert round_to(rows, "d", 0.1).rows["d"].to_pylist() == [Decimal("0.30"), Decimal("-0.30"), None]


def test_a_multiple_of_the_base_stays_although_doubles_miss_it():
    values = [0.3, 0.7, 1.1, 2.3]
    for method in ("down", "up", "random"):
        assert round_to({"x": values}, "x", 0.1, method=method).rows["x"].to_pylist() == values


def test_random_rounding_is_unbiased_and_goes_to_a_neighbour():
    result = round_to({"x": [13] * 40_000}, "x", 10, method="random", random_state=3).rows["x"].to_numpy()
    assert set(result) == {10, 20}
    assert abs(result.mean() - 13) < 5 * 10 * np.sqrt(0.21 / 40_000)


def test_fresh_random_rounding_differs_between_calls():
    rows = {"x": [5] * 200}
    first, second = (round_to(rows, "x", 10, method="random").rows["x"].to_pylist() for _ in range(2))
    assert first != second


def test_dates_are_rounded_by_days():
    rows = {"day": [dt.date(1970, 1, 9), None]}
    assert round_to(rows, "day", 7).rows["day"].to_pylist() == [dt.date(1970, 1, 8), None]


@pytest.mark.parametrize(("base", "method"), [(0, "nearest"), (float("nan"), "nearest"), (0.5, "nearest"), (1, "half")])
def test_a_wrong_base_or_method_is_refused(base, method):
    with pytest.raises(BadNumber):
        round_to({"x": [1]}, "x", base, method=method)


def test_top_and_bottom_coding_change_the_tails_only():
    rows = {"age": [3, 40, 90, 104, None]}
    top = top_code(rows, "age", 90)
    assert top.rows["age"].to_pylist() == [3, 40, 90, 90, None]
    assert top.log == ("Column age top-coded above 90 by the limit: 1 of 5 cells changed.",)
    assert bottom_code(rows, "age", 18).rows["age"].to_pylist() == [18, 40, 90, 104, None]


def test_coding_by_the_mean_of_the_tail_keeps_the_total():
    values = np.arange(100.0)
    coded = top_code({"x": values}, "x", share=0.05, by="mean")
    assert coded.rows["x"].to_numpy().sum() == pytest.approx(values.sum())
    assert "5 of 100 cells" in coded.log[0]
    assert "5 of 100 cells" in bottom_code({"x": values}, "x", share=0.05).log[0]


def test_dates_are_coded_at_a_date():
    rows = {"birth": [dt.date(1900, 5, 1), dt.date(1990, 5, 1), None]}
    result = bottom_code(rows, "birth", dt.date(1930, 1, 1))
    assert result.rows["birth"].to_pylist() == [dt.date(1930, 1, 1), dt.date(1990, 5, 1), None]
    assert "below 1930-01-01" in result.log[0]
    zone = pa.table({"t": pa.array([dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))})
    limit = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    assert top_code(zone, "t", limit).rows["t"].to_pylist() == [limit]
    for column, wrong in ((rows, 5), ({"birth": [5]}, dt.date(2020, 1, 1))):
        with pytest.raises(BadNumber):
            top_code(column, "birth", wrong)


def test_no_integer_is_beyond_a_limit_between_two():
    assert top_code({"x": [89, 90]}, "x", 89.5).rows["x"].to_pylist() == [89, 89]
    assert bottom_code({"x": [89, 90]}, "x", 89.5).rows["x"].to_pylist() == [90, 90]


def test_integers_that_doubles_cannot_tell_apart_are_not_rounded():
    with pytest.raises(BadNumber, match="beyond 2"):
        round_to({"x": [2**60 + 1]}, "x", 10)


def test_cells_that_are_not_coded_keep_every_digit():
    big = 2**60 + 1
    assert top_code({"x": [big, 5]}, "x", 2**61).rows["x"].to_pylist() == [big, 5]


@pytest.mark.parametrize("options", [{}, {"at": 1, "share": 0.1}, {"at": float("inf")}, {"at": 1, "by": "median"}])
def test_coding_needs_one_finite_limit(options):
    with pytest.raises(BadNumber):
        top_code({"x": [1]}, "x", **options)
    with pytest.raises(BadProbability):
        top_code({"x": [1]}, "x", share=1)


def test_global_recoding_gives_every_row_the_interval_of_its_value():
    ages = [20, 23, 35, 42, 26, None, -1]
    result = recode({"age": ages}, "age", 10)
    assert result.rows["age"].to_pylist() == ["20-30", "20-30", "30-40", "40-50", "20-30", None, "-10-0"]
    assert "6 of 7 cells" in result.log[0]
    labelled = recode({"age": [26.5]}, "age", 5, origin=1, label="[{low}, {high})")
    assert labelled.rows["age"].to_pylist() == ["[26, 31)"]


def test_dates_are_truncated_to_the_beginning_of_a_unit():
    rows = pa.table({"t": pa.array([dt.datetime(2020, 5, 17, 13, 4), None], pa.timestamp("s"))})
    assert truncate_dates(rows, "t", "hour").rows["t"].to_pylist() == [dt.datetime(2020, 5, 17, 13), None]
    assert truncate_dates(rows, "t", "quarter").rows["t"].to_pylist() == [dt.datetime(2020, 4, 1), None]
    with pytest.raises(BadSchema):
        truncate_dates({"x": [1]}, "x")
    with pytest.raises(BadSchema):
        recode(rows, "t", 1)
    with pytest.raises(BadNumber):
        truncate_dates(rows, "t", "century")

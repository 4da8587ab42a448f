import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cloister.anonymize.operations.masking import truncate
from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadSource

ROWS = {"age": [31, None], "zip": ["33617", None], "day": [dt.date(2020, 1, 2), None], "pay": [1.5, None]}


def test_every_kind_of_frame_gives_the_same_rows():
    expected = pa.table(ROWS).to_pydict()
    pandas = pd.DataFrame(ROWS).astype({"age": "Int64"})
    for frame in (ROWS, pa.table(ROWS), pa.table(ROWS).to_batches()[0], pandas, pl.DataFrame(ROWS)):
        assert to_arrow(frame).to_pydict() == expected


def test_nan_is_null_and_negative_zero_is_zero():
    column = to_arrow(pa.table({"x": [float("nan"), -0.0, 1.0]}))["x"]
    assert column.to_pylist() == [None, 0.0, 1.0]
    assert not np.signbit(column[1].as_py())


def test_mixed_cells_become_text():
    frame = pd.DataFrame({"x": [1, "NaT", None, float("nan"), pd.NaT, pd.NA, Decimal("1.5")]})
    assert to_arrow(frame)["x"].to_pylist() == ["1", "NaT", None, None, None, None, "1.5"]


def test_categories_periods_and_columns_without_values_become_text():
    frame = pd.DataFrame({"c": pd.Categorical(["b", None]), "p": pd.period_range("2020-01", periods=2, freq="M")})
    frame["e"] = [None, None]
    assert to_arrow(frame).to_pydict() == {"c": ["b", None], "p": ["2020-01", "2020-02"], "e": [None, None]}
    assert {str(column.type) for column in to_arrow(frame).columns} == {"string"}


def test_decimals_truth_values_and_zones_keep_their_type():
    moment = dt.datetime(2020, 1, 2, tzinfo=dt.UTC)
    table = to_arrow({"d": [Decimal("1.50")], "b": [True], "t": [moment]})
    assert table.to_pydict() == {"d": [Decimal("1.50")], "b": [True], "t": [moment]}


def test_the_result_of_an_operation_is_rows_again():
    assert to_arrow(truncate({"zip": ["33617"]}, "zip", 2)).to_pydict() == {"zip": ["33"]}


@pytest.mark.parametrize(
    "rows",
    [
        "people.csv",
        pd.Series([1, 2]),
        pl.Series([1, 2]),
        [1, 2],
        {"a": [1], "b": [1, 2]},
        {"a": "text"},
        pa.table([[1], [2]], names=["a", "a"]),
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
    ],
)
def test_something_else_is_refused(rows):
    with pytest.raises(BadSource):
        to_arrow(rows)

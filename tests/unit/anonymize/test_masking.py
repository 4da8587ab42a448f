import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.anonymize.operations.masking import mask, suppress_cells, suppress_columns, suppress_rows, truncate
from cloister.privacy.errors import BadName, BadNumber, BadSchema


def test_suppressed_columns_are_logged_each():
    result = suppress_columns({"a": [1, 2], "b": [3, 4], "c": [5, 6]}, ["a", "c"])
    assert result.rows.column_names == ["b"]
    assert result.log == ("Column a suppressed: 2 cells.", "Column c suppressed: 2 cells.")


def test_suppressed_rows_are_counted():
    result = suppress_rows({"a": [1, 2, 3]}, np.array([True, False, True]))
    assert result.rows.to_pydict() == {"a": [2]}
    assert result.log == ("2 of 3 rows suppressed.",)


def test_a_suppressed_cell_is_missing_and_no_other_value():
    for cells in ([20, 23, 35], [True, False, True], [dt.date(2020, 1, 1)] * 3, ["x", "y", "z"]):
        result = suppress_cells({"a": cells}, "a", pa.array([False, True, False]))
        assert result.rows["a"].to_pylist() == [cells[0], None, cells[2]]
        assert "1 of 3 cells suppressed by the marker NULL" in result.log[0]


def test_a_marker_that_is_a_value_of_the_column_is_refused():
    assert suppress_cells({"a": ["x", "y"]}, "a", [True, False], marker="*").rows["a"].to_pylist() == ["*", "y"]
    with pytest.raises(BadSchema, match="no value"):
        suppress_cells({"a": ["x", "*"]}, "a", [True, False], marker="*")
    with pytest.raises(BadSchema, match="only text"):
        suppress_cells({"a": [20, 26]}, "a", [True, False], marker="33")


@pytest.mark.parametrize("where", [[True], [1, 0, 1], [None, True, False], [[True, False, True]]])
def test_a_selection_is_a_truth_value_for_each_row(where):
    with pytest.raises(BadSchema):
        suppress_rows({"a": [1, 2, 3]}, where)


@settings(deadline=None, max_examples=40)
@given(
    cells=st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=8), min_size=1, max_size=6),
    first=st.integers(0, 4),
    last=st.integers(0, 4),
)
def test_a_mask_keeps_the_ends_and_hides_at_least_one_character(cells, first, last):
    masked = mask(pa.table({"x": pa.array(cells, pa.string())}), "x", keep_first=first, keep_last=last).rows["x"]
    for cell, shown in zip(cells, masked.to_pylist(), strict=True):
        if cell is None:
            expected = None
        elif len(cell) <= first + last:
            expected = "*" * len(cell)
        else:
            expected = cell[:first] + "*" * (len(cell) - first - last) + cell[len(cell) - last :]
        assert shown == expected


def test_a_mask_can_hide_the_length():
    rows = {"x": ["Al", "Alexandra", None, ""]}
    assert mask(rows, "x", keep_first=1, hide_length=True).rows["x"].to_pylist() == ["A***", "A***", None, "***"]


def test_numbers_and_dates_are_masked_as_text():
    rows = {"zip": [33617, None], "day": [dt.date(2020, 5, 17), None]}
    result = mask(rows, ["zip", "day"], keep_first=4)
    assert result.rows.to_pydict() == {"zip": ["3361*", None], "day": ["2020******", None]}


def test_a_pattern_masks_its_matches_only():
    result = mask({"x": ["a1-b22", "none"]}, "x", pattern="[0-9]", sign="#")
    assert result.rows["x"].to_pylist() == ["a#-b##", "none"]
    assert "1 of 2 cells changed" in result.log[0]
    with pytest.raises(BadName, match="regular expression"):
        mask({"x": ["a"]}, "x", pattern="(")


@pytest.mark.parametrize(
    "options", [{"keep_first": -1}, {"pattern": "a", "keep_last": 1}, {"sign": "**"}, {"sign": "\\"}]
)
def test_wrong_options_of_a_mask_are_refused(options):
    with pytest.raises((BadNumber, BadName)):
        mask({"x": ["a"]}, "x", **options)


def test_truncation_keeps_the_first_characters():
    result = truncate({"zip": ["33617", "336", None]}, "zip", 3)
    assert result.rows["zip"].to_pylist() == ["336", "336", None]
    assert "1 of 3 cells changed" in result.log[0]
    with pytest.raises(BadNumber):
        truncate({"zip": ["33617"]}, "zip", 0)
    with pytest.raises(BadSchema, match="no text form"):
        truncate({"x": [[1, 2]]}, "x", 1)

"""Generalised values are read as sets of original values."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.attack.tables.columns import classes, encode, to_arrow
from cloister.attack.tables.generalised import Domain, containment, parse_interval
from cloister.privacy.errors import BadSource

AGES = [17, 20, 29, 30, 35, 36, 39, 40, 90, None]


def _members(values, label, hierarchy=None):
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return [array[int(i)].as_py() for i in Domain(array, hierarchy).members(label)]


@pytest.mark.parametrize(
    ("label", "ages"),
    [
        ("20-29", [20, 29]),
        ("20 – 29", [20, 29]),
        ("[20, 30)", [20, 29]),
        ("(20, 30]", [29, 30]),
        ("[40, inf)", [40, 90]),
        ("<30", [17, 20, 29]),
        ("<=30", [17, 20, 29, 30]),
        (">35", [36, 39, 40, 90]),
        ("≥40", [40, 90]),
        ("40+", [40, 90]),
        ("3*", [30, 35, 36, 39]),
        ("{17, 90}", [17, 90]),
        ("{17, 35-39}", [17, 35, 36, 39]),
        ("36", [36]),
        ("36.0", [36]),
        (36.0, [36]),
        ("*", AGES),
        (None, [None]),
        ("100-109", []),
        ("no age", AGES),
        ("39-30", AGES),
    ],
)
def test_a_label_in_a_column_of_numbers_is_the_set_it_denotes(label, ages):
    assert _members(AGES, label) == ages


@pytest.mark.parametrize("kind", [pa.int8(), pa.float64(), pa.decimal128(20, 1), pa.string()])
def test_numbers_of_every_type_are_in_intervals(kind):
    assert [float(x) for x in _members(pa.array([17, 25, 31]).cast(kind), "20-29")] == [25.0]


def test_each_star_is_one_character_of_a_postcode():
    assert _members(["23601", "23699", "2379", "23701"], "236**") == ["23601", "23699"]
    assert _members([13053, 13068, 1405], "130**") == [13053, 13068]
    assert _members(["ab1", "ac1", "ab2"], "a*1") == ["ab1", "ac1"]


def test_stars_at_the_end_of_a_mask_fill_short_codes_and_cut_long_ones():
    assert _members(["B1", "B12", "B123456", "B2"], "B1***") == ["B1", "B12", "B123456"]
    assert _members(["13-0142", "813-555-0142", "13-0143"], "***0142") == ["13-0142", "813-555-0142"]


def test_periods_of_dates_and_times_are_read_as_a_release_prints_them():
    for days in ([dt.date(2001, 4, 1), dt.date(2001, 12, 31), dt.date(2011, 1, 1)],
                 [dt.datetime(2001, 4, 1), dt.datetime(2001, 12, 31, 23, 59, 59, 999_999), dt.datetime(2011, 1, 1)],
                 ["2001-04-01", "2001-12-31 23:59:59", "2011-01-01T00:00:00"]):  # fmt: skip
        assert _members(days, "2001-04") == _members(days, "2001-Q2") == days[:1]
        assert _members(days, "2001") == _members(days, "2000-2009") == days[:2]
        assert _members(days, "2000-2099") == days
        assert days[2] in _members(days, "[2001-12-31 23:59:59, 2011-01-01 00:00:00]")
        assert days[0] not in _members(days, "[2001-12-31 23:59:59, 2011-01-01 00:00:00]")


def test_a_label_that_is_not_understood_excludes_nobody():
    pairs = containment(pa.array(["Europe", "Asia"]), pa.array(["France", "Japan"]))
    assert (pairs.unknown, pairs.absent, len(pairs.known)) == (2, 0, 4)
    tree = {"France": ("Europe",), "Japan": ("Asia",), "Spain": ("Europe",)}
    assert containment(pa.array(["Europe", "Asia"]), pa.array(["France", "Japan"]), tree).unknown == 0
    assert containment(pa.array(["Spain", "Asia"]), pa.array(["France", "Japan"]), tree).released.tolist() == [1]
    assert containment(pa.array(["Atlantis"]), pa.array(["France"]), tree).unknown == 1


def test_a_raw_value_that_nobody_on_the_list_has_fits_nobody_and_is_told():
    pairs = containment(pa.array(["Rome", "Paris"]), pa.array(["Paris", "Oslo"]))
    assert (pairs.unknown, pairs.absent, pairs.released.tolist()) == (0, 1, [1])


def test_an_old_set_without_quotes_contains_values_with_commas():
    assert _members(["a, b", "c", "b", "d"], "{a, b, c}") == ["a, b", "c", "b"]
    assert _members(["a, b", "c", "b", "d"], '{"a, b", c}') == ["a, b", "c"]
    assert _members(["missing", None, "c"], "{c, missing}") == [None, "c"]
    assert _members(["missing", None, "c"], '{c, "missing"}') == ["missing", "c"]


def test_a_label_that_the_attacker_has_too_means_itself():
    assert _members(["20-29", "25"], "20-29") == ["20-29"]


def test_an_ancestor_stands_for_the_values_below_it():
    tree = {"flu": ("lung", "any"), "ulcer": ("stomach", "any"), "TB": ("lung", "any")}
    assert _members(["flu", "ulcer", "TB", None], "lung", tree) == ["flu", "TB"]
    assert _members(["flu", "ulcer", "TB", None], "any", tree) == ["flu", "ulcer", "TB"]


def test_dates_are_in_intervals_months_and_years():
    days = [dt.date(2000, 12, 31), dt.date(2001, 1, 1), dt.date(2001, 5, 9), None]
    assert _members(days, "2001-01-01 - 2001-12-31") == days[1:3]
    assert _members(days, "2001") == days[1:3]
    assert _members(days, "2001-05") == days[2:3]
    assert _members(days, "2001-05-**") == days[2:3]
    assert _members(days, dt.date(2001, 1, 1)) == days[1:2]
    assert _members(days, "2001-05-09") == days[2:3]


def test_booleans_match_their_text():
    assert _members([True, False], "True") == [True]
    assert _members(["true"], True) == ["true"]


@given(st.integers(-50, 50), st.integers(0, 40), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_printed_intervals_are_read_back(low, width, closed_low, closed_high):
    label = f"{'[' if closed_low else '('}{low}, {low + width}{']' if closed_high else ')'}"
    interval = parse_interval(label)
    inside = [
        x for x in range(-60, 100)
        if (x >= low if closed_low else x > low) and (x <= low + width if closed_high else x < low + width)
    ]  # fmt: skip
    start, end = interval.range_in(np.arange(-60.0, 100.0))
    assert list(range(-60, 100))[start:end] == inside
    assert parse_interval(f"{low}-{low + width}").high == low + width


def test_pairs_of_sets_and_values_are_a_function_only_if_sets_are_disjoint():
    known = pa.array([1, 2, 3])
    assert containment(pa.array(["1-2", "3"]), known).as_function().tolist() == [0, 0, 1]
    assert containment(pa.array(["1-2", "2-3"]), known).as_function() is None
    assert containment(pa.array(["1"]), known).as_function().tolist() == [0, -1, -1]


@pytest.mark.parametrize(
    "cells",
    [
        [1, None, 1, 2],
        [0.0, -0.0, float("nan"), None],
        [Decimal("1.0"), Decimal("2.0"), None],
        [dt.datetime(2020, 1, 1), None],
        [True, False, None],
        pa.array(["a", "b", None]).dictionary_encode(),
        [None, None],
        [],
    ],
)
def test_codes_are_equal_exactly_for_equal_cells(cells):
    array = cells if isinstance(cells, pa.Array) else pa.array(cells)
    codes, values = encode(array)
    text = ["NULL" if x is None or x != x else repr(x + 0.0 if isinstance(x, float) else x) for x in array.to_pylist()]
    assert len(values) == len({*text})
    for i, a in enumerate(text):
        assert [codes[i] == codes[j] for j in range(len(text))] == [a == b for b in text]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from(["a", None])), min_size=1, max_size=40))
@settings(max_examples=50, deadline=None)
def test_classes_are_those_of_a_dict_of_rows(rows):
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate("xyz")})
    group = classes(table, ["x", "y", "z"])
    assert sorted(group.sizes.tolist()) == sorted(rows.count(row) for row in {*rows})
    for row, number in zip(rows, group.of, strict=True):
        assert group.describe(int(number)) == {
            n: "NULL" if v is None else str(v) for n, v in zip("xyz", row, strict=True)
        }


def test_classes_of_many_wide_columns_do_not_overflow():
    rng = np.random.default_rng(1)
    table = pa.table({f"c{i}": rng.integers(0, 500, 600) for i in range(12)})
    assert classes(table, table.column_names).sizes.tolist() == [1] * 600


def test_frames_dicts_and_arrow_become_the_same_table():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    columns = {"age": [1, 2], "zip": ["a", None]}
    tables = [to_arrow(x) for x in (columns, pa.table(columns), pandas.DataFrame(columns), polars.DataFrame(columns))]
    assert all(table.to_pydict() == columns for table in tables)
    assert to_arrow(pandas.DataFrame({"m": [1, "a", None]})).to_pydict() == {"m": ["1", "a", None]}


@pytest.mark.parametrize("wrong", [3, "rows", {"a": [1], "b": [1, 2]}, {"a": 5}])
def test_other_objects_are_refused(wrong):
    with pytest.raises(BadSource):
        to_arrow(wrong)

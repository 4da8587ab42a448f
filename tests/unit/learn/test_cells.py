"""A cell is read on its own: what it says depends neither on its neighbours nor on the type of its column."""

import warnings
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cloister as cl
from cloister import learn
from cloister.learn.base.bins import BinnedFeature, read_columns
from cloister.learn.base.cells import Categories, category, number, numbers_in
from cloister.learn.base.inputs import codes, complete, read_classes, read_goal, read_labels, read_table
from cloister.learn.naive_bayes.count_features import CountFeature
from cloister.privacy.errors import BadInput, BadSchema

LONG = 10**16 + 2  # a float, but beyond 2^53


@pytest.mark.parametrize(
    ("cells", "name"),
    [
        ((1, 1.0, True, "1", "1.0", np.int8(1), np.float32(1), np.bool_(True), Decimal("1.0"), pa.scalar(1)), 1.0),
        ((0.5, "0.5", b"0.5", Decimal("0.5"), Fraction(1, 2), np.float16(0.5)), 0.5),
        ((LONG, float(LONG), np.int64(LONG), "1.0000000000000002e+16"), float(LONG)),
        (("True", True), 1.0),
        (("01",), "01"),
        (("v1.0",), "v1.0"),
        (("", b""), ""),
        ((None, float("nan"), np.nan, pd.NA, pd.NaT, np.datetime64("NaT"), Decimal("sNaN"), pa.scalar(None)), None),
        ((date(2020, 1, 2), datetime(2020, 1, 2), pd.Timestamp("2020-01-02"), np.datetime64("2020-01-02T00:00:00.000")),
         "2020-01-02"),
        ((datetime(2020, 1, 2, 5), np.datetime64("2020-01-02T05"), pd.Timestamp("2020-01-02 05:00")),
         "2020-01-02T05:00:00"),
        (([1], np.array([1])), "[1]"),
    ],
)  # fmt: skip
def test_a_category_has_one_name_in_every_type(cells, name):
    assert [category(cell) for cell in cells] == [name] * len(cells)


@pytest.mark.parametrize(
    ("cell", "value"),
    [("1.5", 1.5), (True, 1.0), (Decimal("2.5"), 2.5), (10**400, np.inf), (-(10**400), -np.inf), (pa.scalar(3), 3.0),
     (np.float32(0.5), 0.5), ("inf", np.inf), (b"2", 2.0)],
)  # fmt: skip
def test_a_number_is_read_in_every_type(cell, value):
    assert number(cell) == value
    assert numbers_in(np.array([cell, None], dtype=object))[0] == value


class Hostile:
    """A cell that fails, or lies, whatever it is asked."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return hash("a")

    def __str__(self):
        raise RuntimeError("secret")

    def __float__(self):
        raise RuntimeError("secret")


def repr_of(cell):
    return type(cell).__name__


@pytest.mark.parametrize("cell", [None, pd.NA, "many", "", [], {}, object(), 1j, date(2020, 1, 1), Hostile(), int])
def test_what_is_no_number_is_missing(cell):
    assert np.isnan(number(cell))
    column = np.empty(2, dtype=object)
    column[:] = [cell, 1]
    assert np.isnan(numbers_in(column)).tolist() == [True, False]


def test_a_cell_that_equals_everything_takes_nobody_along():
    column = np.array([Hostile(), "a", "b"], dtype=object)
    assert Categories(["a", "b"]).codes(column).tolist() == [-1, 0, 1]


# What a frame may make of a column as soon as one cell is missing, or no number.

numbers = st.integers(-3, 3) | st.integers(10**16, 10**16 + 9) | st.integers(-(10**20), 10**20)
things = st.one_of(
    numbers, st.booleans(), st.none(), st.floats(), st.sampled_from(["a", "1", "1.0", "01", "True", "nan", str(LONG)]),
    st.decimals(), st.dates(), st.binary(max_size=3), st.lists(st.integers(), max_size=2), st.text(max_size=3),
)  # fmt: skip
LISTED = (["a", "b", "1"], [1, 2, 3], ["1", "01", "2"], [True, False], [LONG, LONG + 10], [0.5, "x", None])


def arrays(cells):
    """A column as several libraries hold it; those that cannot are left out."""
    makers = [
        lambda: np.array([*cells, None], dtype=object)[:-1],
        lambda: np.asarray(pd.Series(cells, dtype=object)),
        lambda: np.asarray(pd.Series(cells)),
        lambda: np.asarray(pd.Series([*cells, None]))[:-1],
        lambda: np.asarray(pd.Series([*cells, "secret"]))[:-1],
        lambda: np.asarray(pd.Series(cells).astype("category")),
        lambda: np.asarray(pd.Series([*cells, None]).astype("category"))[:-1],
        lambda: np.asarray(pd.Series(cells, dtype="Int64")),
        lambda: np.asarray(pd.Series([*cells, None], dtype="Int64"))[:-1],
        lambda: np.asarray(pd.Series(cells, dtype="boolean")),
        lambda: np.asarray(pd.Series([*cells, None], dtype="boolean"))[:-1],
        lambda: np.asarray(pd.Series(cells, dtype="int64[pyarrow]")),
        lambda: np.asarray(pd.Series([*cells, None], dtype="int64[pyarrow]"))[:-1],
        lambda: np.asarray(pl.Series([*cells, None]))[:-1],
        lambda: np.asarray(pa.chunked_array([pa.array([*cells, None])]))[:-1],
        lambda: np.asarray(pa.chunked_array([pa.array(cells)])),
    ]
    for make in makers:
        try:
            found = make()
        except (TypeError, ValueError, OverflowError, pa.ArrowException, pl.exceptions.PolarsError):
            continue
        if found.shape == (len(cells),):
            yield found


@settings(deadline=None)
@given(st.lists(numbers, min_size=1, max_size=6) | st.lists(st.booleans(), min_size=1, max_size=6))
def test_rows_are_read_alike_whatever_the_type_of_their_column(cells):
    for column in arrays(cells):
        for listed in LISTED:
            known = Categories(listed)
            assert known.codes(column).tolist() == [known.code(cell) for cell in cells], (column.dtype, listed)
        assert numbers_in(column).tolist() == [number(cell) for cell in cells], column.dtype


@settings(deadline=None)
@given(st.lists(things, max_size=8))
def test_rows_are_placed_one_by_one_as_all_together(cells):
    column = np.empty(len(cells), dtype=object)
    column[:] = cells
    one_by_one = [column[i : i + 1] for i in range(len(cells))]
    readers = [
        BinnedFeature("x", np.array([-1.0, 0.5, 2.0])).place,
        BinnedFeature("x", np.zeros(0), ("a", "1", "01")).place,
        BinnedFeature("x", np.zeros(0), (1, 2, LONG)).place,
        CountFeature("x", ("a", 1, None)).codes,
        CountFeature("x", None, -2.0, 2.0, 4).codes,
        lambda some: codes(some, ["a", "b"]),
        lambda some: codes(some, [0, 1]),
        numbers_in,
    ]
    for read in readers:
        alone = [read(one)[0] for one in one_by_one]
        np.testing.assert_array_equal(read(column), alone)


@settings(deadline=None)
@given(st.lists(st.lists(things, min_size=2, max_size=2), min_size=1, max_size=6))
def test_a_frame_is_read_row_by_row(rows):
    frame = pd.DataFrame([*rows, [None, "secret"]], columns=["a", "b"], dtype=object)
    whole = read_columns(frame, {"b": ["a", "1"]}, None).cells(
        [BinnedFeature("a", np.zeros(1)), BinnedFeature("b", np.zeros(0), ("a", "1"))]
    )
    for i in range(len(rows)):
        alone = read_columns(frame[i : i + 1], {"b": ["a", "1"]}, None)
        cells, known = alone.cells([BinnedFeature("a", np.zeros(1)), BinnedFeature("b", np.zeros(0), ("a", "1"))])
        assert cells[0].tolist() == whole[0][i].tolist()
        assert known[0] == whole[1][i]


def test_long_codes_are_told_apart_as_words_and_rounded_as_numbers():
    words = Categories([str(LONG), str(LONG + 1)])
    assert words.codes(np.array([str(LONG), str(LONG + 1)])).tolist() == [0, 1]
    assert words.codes(np.array([str(LONG + 3)])).tolist() == [-1]
    one = Categories([str(LONG)])
    assert one.codes(np.array([LONG])).tolist() == one.codes(np.array([float(LONG)])).tolist() == [0]
    shared = Categories([str(10**17), str(10**17 + 1)])  # one float
    assert shared.codes(np.array([10**17, 10**17 + 1])).tolist() == [-1, -1]
    with pytest.raises(BadSchema, match="long codes as words"):
        Categories([10**17, 10**17 + 1])
    exact = Categories([10**17, 10**17 + 1], exact=True)
    assert exact.codes(np.array([10**17, 10**17 + 1, 10**17 + 2])).tolist() == [0, 1, -1]


@pytest.mark.parametrize("listed", [[1, "1"], ["1", "1.0"], ["True", 1], [None, float("nan")]])
def test_categories_that_are_read_alike_are_refused(listed):
    with pytest.raises(BadSchema, match="different values"):
        Categories(listed)


# Shapes and types


def test_a_table_is_refused_by_shape_and_type_and_never_by_a_value():
    for wrong in (np.zeros(3), np.zeros((2, 2, 2)), np.zeros((3, 0)), [[1, 2], [3]], np.zeros((2, 2), dtype=complex),
                  np.zeros((2, 2), dtype="datetime64[D]"), pd.DataFrame([[1, 2]], columns=["a", "a"])):  # fmt: skip
        with pytest.raises(BadInput):
            read_table(wrong)
    for right in (
        [[1, "a"], [2, None]],
        [[1, [2]], [3, 4]],
        pl.DataFrame({"a": ["x", None]}),
        pa.table({"a": [1, None]}),
    ):
        assert read_table(right).numbers().shape[0] == 2
    assert read_table(pa.table({"a": [1], "b": [2]})).names == ("a", "b")


@pytest.mark.parametrize("fill", [np.nan, np.inf, "0", True])
def test_what_stands_for_missing_numbers_is_a_number(fill):
    with pytest.raises(BadInput, match="fill"):
        read_table(np.zeros((1, 1)), fill)


def test_incomplete_rows_are_left_out_together():
    rows, labels = complete(np.array([[1.0, 2.0], [np.nan, 1.0], [np.inf, 0.0]]), np.array([0, 1, -1]))
    assert rows.tolist() == [[1.0, 2.0], [np.inf, 0.0]]
    assert labels.tolist() == [0, -1]


def test_labels_and_classes_may_be_of_another_type_if_they_can_be_alike():
    for classes, labels in (([0, 1], ["0", "1"]), (["0", "1"], [0, 1]), ([0, 1], [False, True]), ([0, 1], [0.0, 1.0])):
        assert codes(read_labels(labels, read_classes(classes), 2), classes).tolist() == [0, 1]
    with pytest.raises(BadInput, match="Write them alike"):
        read_labels(np.array([0, 1]), read_classes(["no", "yes"]), 2)
    for odd in ([0, "secret"], [None, 1]):  # an object column is read cell by cell
        assert read_labels(np.array(odd, dtype=object), read_classes(["no", "yes"]), 2).tolist() == odd


ODD = [1j, 1 + 0j, np.complex64(1j), np.ma.masked, (1, 2), [1], [], np.array(1), np.array([1]), np.array([1, 2]), None,
       "a", b"a", np.datetime64("2020-01-01"), np.timedelta64(1, "D"), np.void(b"a"), 2**70, {}, Hostile(),
       [[1], [1, 2]], pd.NA, pa.scalar(1), Decimal(1), np.longdouble(1)]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=repr_of)
def test_no_cell_of_a_list_re_reads_the_others(odd):
    for plain in ([0, 1], [False, True], [0.0, 1.0], ["0", "1"], [[0], [1]], [(0,), (1,)], [np.array(0), np.array(1)]):
        for listed in ([0, 1], ["no", "yes"]):
            classes = read_classes(listed)
            alone = codes(read_labels(plain, classes, 2), listed).tolist()
            assert codes(read_labels([*plain, odd], classes, 3), listed).tolist()[:2] == alone
        goal = numbers_in(read_goal([*plain, odd], 3))
        assert goal[:2].tolist() == numbers_in(read_goal(plain, 2)).tolist() == [0.0, 1.0]
    for rows in ([[0, 0.5], [1, 2]], [[(0, 1), (1, 2)], [(0, 3), (1, 4)]], [[0j, 1j], [1, 2]], [["a", 1], ["b", 2]]):
        alone = read_table(rows, numbers=False)
        for more in ([odd, 1], [odd, odd]):
            beside = read_table([*rows, more], numbers=False)
            np.testing.assert_array_equal(beside.numbers()[:2], alone.numbers())


def test_a_list_of_labels_is_refused_neither_with_nor_without_a_missing_one():
    for y in ([0, 1, 1], [0, 1, None], [(0, 1), (1, 0), (1, 1)], [(0, 1), (1, 0), 1]):
        assert (codes(read_labels(y, read_classes(["no", "yes"]), 3), ["no", "yes"]) == -1).all()


# Containers


def holding(make, cells):
    """What is read of a column that a library holds: as numbers, and as categories."""
    column = read_table(make(cells), numbers=False).columns[0]
    return column.dtype.kind, numbers_in(column).tolist(), Categories(["a", "b", 1, 99]).codes(column).tolist()


def arrow(kind, dictionary=False):
    def make(cells):
        column = pa.array(cells, kind)
        column = column.dictionary_encode() if dictionary else column
        return pa.table({"x": pa.chunked_array([column[:2], column[2:]])})

    return make


COLUMNS = {
    "arrow words": (arrow(pa.string()), ["a", None, "b", None], ["a\0", None, "zz"]),
    "arrow views": (arrow(pa.string_view()), ["a", None], ["a\0", None, "zz"]),
    "arrow dictionary of words": (arrow(pa.string(), True), ["a", None, None, "b"], ["new", None, "a"]),
    "arrow dictionary of numbers": (arrow(pa.float64(), True), [1.0, None, None], [99.0, None]),
    "arrow truths": (arrow(pa.bool_()), [True, False], [None, True]),
    "arrow numbers": (arrow(pa.int64()), [1, 99, 2**53 + 1], [None, 2**62]),
    "arrow decimals": (arrow(pa.decimal128(30, 2)), [Decimal(1), None], [Decimal("0.1"), None]),
    "arrow times": (arrow(pa.time64("ns")), [1, 2], [3, None]),
    "polars words": (lambda cells: pl.DataFrame({"x": pl.Series(cells, dtype=pl.String)}), ["a\0", "b"], [None, "c"]),
    "polars categories": (
        lambda cells: pl.DataFrame({"x": pl.Series(cells, dtype=pl.Categorical)}), ["b", None, "a"], ["new", None],
    ),
    "polars truths": (lambda cells: pl.DataFrame({"x": pl.Series(cells, dtype=pl.Boolean)}), [True, False], [None]),
    "polars numbers": (lambda cells: pl.DataFrame({"x": pl.Series(cells, dtype=pl.Int64)}), [1, 2**60 + 1], [None, 1]),
    "pandas truths": (lambda cells: pd.DataFrame({"x": pd.Series(cells, dtype="boolean")}), [True, False], [None]),
    "pandas whole numbers": (lambda cells: pd.DataFrame({"x": pd.Series(cells, dtype="Int64")}), [1, 2**60], [None]),
    "pandas text": (lambda cells: pd.DataFrame({"x": pd.Series(cells, dtype="str")}), ["a\0", "1"], [None, "zz"]),
    "pandas categories": (
        lambda cells: pd.DataFrame({"x": pd.Series(cells, dtype="category")}), [1, None, 99], [None, "zz", 1.5, True],
    ),
    "pandas in Arrow": (
        lambda cells: pd.DataFrame({"x": pd.Series(cells, dtype="bool[pyarrow]")}), [True, False], [None],
    ),
    "text of numpy": (lambda cells: np.array(cells)[:, None], ["a", "b", "1"], ["a\0", "True", "longer"]),
    "masked numbers": (
        lambda cells: np.ma.masked_invalid(np.array(cells, dtype=float))[:, None], [1, np.nan, 99], [np.nan, np.inf],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_a_declared_type_decides_how_a_column_is_read(name):
    make, cells, more = COLUMNS[name]
    alone = holding(make, cells)
    for cell in more:
        for place in (0, len(cells)):
            beside = holding(make, [*cells[:place], cell, *cells[place:]])
            assert beside[0] == alone[0]
            for left, right in zip(alone[1:], beside[1:], strict=True):
                np.testing.assert_array_equal(np.delete(right, place), left)
    # Labels and targets are read in the same way.
    held = make(cells)
    column = held[:, 0] if isinstance(held, np.ndarray) else held["x"]
    np.testing.assert_array_equal(numbers_in(read_goal(column, len(cells))), alone[1])


def test_a_missing_word_of_an_arrow_dictionary_is_missing():
    """numpy takes the last word of the dictionary for it."""
    column = pa.chunked_array([pa.array(["a", None, "b"]).dictionary_encode()])
    assert read_table(pa.table({"x": column}), numbers=False).columns[0].tolist() == ["a", None, "b"]
    assert read_labels(column, read_classes(["a", "b"]), 3).tolist() == ["a", None, "b"]
    assert learn.prepare(Named(), pa.table({"x": column}))[:, 0].tolist() == ["a", None, "b"]


class Named:
    feature_names_in_ = ("x",)


def test_a_cell_of_arrow_text_that_is_no_text_stops_nobody():
    cells = pa.array([b"\xff", b"a"]).view(pa.string())
    column = read_table(pa.table({"x": cells}), numbers=False).columns[0]
    assert Categories(["a"]).codes(column).tolist() == [-1, 0]


@pytest.mark.parametrize("missing", [None, "?", np.nan])
def test_a_list_of_rows_of_any_type_has_the_shape_that_its_rows_have(missing):
    rows = [
        [range(2), range(2, 4)], [pd.Series([1, 2]), pd.Series([3, 4])], [(1, 2), [3, 4]],
        [np.array([1, 2]), np.array([3, 4])], [pl.Series([1, 2]), pl.Series([3, 4])],
        [pa.array([1, 2]), pa.array([3, 4])],
    ]  # fmt: skip
    for some in rows:
        alone = read_table(some).numbers()
        for odd in ([missing, 1], (missing, 1), pd.Series([missing, 1], dtype=object), pl.Series([None, 1])):
            beside = read_table([*some, odd]).numbers()
            assert beside.shape == (3, 2)
            np.testing.assert_array_equal(beside[:2], alone)


def test_what_is_no_table_is_refused_by_its_type():
    class Foreign:
        """A container whose own way to become an array could look at cells."""

        def __array__(self, dtype=None, copy=None):
            raise AssertionError("nobody may ask")

    for wrong in (Foreign(), {"a": [1]}, "text", 7, None, iter([[1]]), {(1, 2)}, pl.DataFrame({"a": [1]}).lazy(),
                  np.array([(1, 2)], dtype=[("a", int), ("b", int)]), np.rec.array([(1, 2)]), [{"a": 1}], ["ab", "cd"],
                  [[1, 2], "ab"], [np.zeros((1, 2))], [], [[1], None]):  # fmt: skip
        with pytest.raises(BadInput):
            read_table(wrong)
    with pytest.raises(BadInput):
        read_goal(Foreign(), 1)


def test_a_frame_is_known_by_its_type_and_not_by_the_names_of_its_columns():
    for make in (pd.DataFrame, pl.DataFrame, pa.table):
        table = read_table(make({"tables": [1], "account": [2], "tocsr": [3], "itercolumns": [4], "columns": [5]}))
        assert table.numbers().tolist() == [[1, 2, 3, 4, 5]]
        frame = make({"tables": [0.1, 0.2], "account": [0.3, 0.4]})
        assert learn.MinMaxScaler(bounds=(0, 1)).fit(frame).transform(frame).tolist() == [[0.1, 0.3], [0.2, 0.4]]


def test_what_is_masked_is_missing_and_arrays_are_of_the_plain_class():
    held = np.ma.MaskedArray([[1.0, 2.0], [3.0, 4.0]], mask=[[False, True], [False, False]])
    for kind in (float, int, object):
        table = read_table(held.astype(kind), 7.0)
        assert type(table.numbers()) is np.ndarray
        assert table.numbers().tolist() == [[1.0, 7.0], [3.0, 4.0]]
    labels = np.ma.MaskedArray(["a", "b"], mask=[True, False])
    assert codes(read_labels(labels, read_classes(["a", "b"]), 2), ["a", "b"]).tolist() == [-1, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = read_table(np.matrix([[1, 2], [3, 4]]))
    assert type(table.numbers()) is np.ndarray
    assert [column.shape for column in table.columns] == [(2,), (2,)]


@pytest.mark.parametrize("cell", [True, False, 1, 1.5, -0.0, np.True_, np.float32(0.5), 10**400, Decimal("2.5")])
def test_a_number_in_words_is_that_number(cell):
    """A word beside them makes words of a column of truths or numbers."""
    for text in (str(cell), str(cell).encode(), np.str_(str(cell)), f"{cell}\0"):
        assert number(text) == number(cell)
        assert numbers_in(np.array([text, "secret"], dtype=object))[0] == number(cell)
        if not isinstance(cell, int) or abs(cell) < 2**53:
            assert category(text) == category(cell)


def test_a_complex_number_is_its_real_part_or_nothing():
    for kind in (complex, np.complex64, np.complex128):
        assert category(kind(1)) == number(kind(1)) == 1.0
        assert category(kind(1j)) is None
        column = np.array([1, 0, 1j, np.nan], dtype=kind)
        assert Categories([0, 1]).codes(column).tolist() == [1, 0, -1, -1]
        np.testing.assert_array_equal(numbers_in(column), [1, 0, np.nan, np.nan])
    with pytest.raises(BadSchema):
        read_classes([1j, 2j])


def test_a_complex_label_leaves_class_counts_as_they_were(tmp_path):
    rows, labels = [[i / 200] for i in range(200)], [int(i >= 100) for i in range(200)]
    told = {"bounds": (0, 1), "classes": [0, 1], "ledger": tmp_path}
    for model in (learn.GaussianNB(cl.rho(50), **told), learn.MixedNB(cl.rho(50), **told)):
        for more in ([], [1j], [None]):
            model.fit(rows + [[0.5]] * len(more), labels + more)
            assert np.abs(model.class_count_ - 100).max() < 10  # fifty deviations of the noise


def test_a_target_of_dates_is_refused_by_its_type():
    with pytest.raises(BadInput, match="numbers"):
        read_goal(np.zeros(2, dtype="datetime64[D]"), 2)


def test_long_codes_are_read_alone_also_beside_equal_floats():
    listed = Categories([2**53 + 2, 2**60 + 512, 2**60 + 513], exact=True)
    cells = [2**60 + 512, float(2**60 + 512), 2**53 + 2, float(2**53 + 2), 1]
    for order in (cells, cells[::-1]):
        column = np.empty(len(order), dtype=object)
        column[:] = order
        assert listed.codes(column).tolist() == [listed.code(cell) for cell in order]


@pytest.mark.parametrize("span", [timedelta(1), timedelta(-2, 5, 7), timedelta(0), timedelta(hours=30)], ids=str)
def test_a_duration_is_one_category_in_every_type_and_unit(span):
    micros = span // timedelta(microseconds=1)
    cells = [span, pd.Timedelta(span), np.timedelta64(micros, "us"), np.timedelta64(micros * 1000, "ns"), str(span)]
    assert {category(cell) for cell in cells} == {str(span)}
    assert category(np.timedelta64(1, "ns")) == category(pd.Timedelta(1, "ns")) == "0:00:00.000000001"
    assert category(np.timedelta64(2**62, "W")) == f"{7 * 2**62} days, 0:00:00"
    assert category(np.timedelta64(3, "M")) == "3 months"
    assert category(np.timedelta64("NaT")) is None

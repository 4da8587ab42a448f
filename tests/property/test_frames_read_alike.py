"""A cell of a frame reads the same whatever stands beside it, and no cell makes the reading of a column fail.

pandas infers a column's type from all cells, and whole-column conversions of pandas, polars and pyarrow raise on one.
"""

import datetime as dt
import enum
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cloister.data.frames import from_pandas
from cloister.data.schema import TYPES, Schema
from cloister.data.tables import open_tables
from cloister.learn.base.cells import category, number
from cloister.learn.base.containers import read_column, read_rows
from cloister.privacy.errors import BadInput, BadSchema, BadSource


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    TRUE = "true"


class Hostile:
    """A cell that answers no question."""

    def _refuse(self, *_args):
        raise ArithmeticError("a cell decides")

    __eq__ = __ne__ = __lt__ = __bool__ = __float__ = __int__ = __index__ = __len__ = __str__ = __repr__ = _refuse
    __iter__ = __array__ = __getattr__ = __complex__ = __hash__ = _refuse


class Leaving(Hostile):
    """A cell that ends the process, if it is asked what it is."""

    def __str__(self):
        raise SystemExit


class OddFloat(float):
    def __float__(self):
        raise ArithmeticError

    def __eq__(self, other):
        raise ArithmeticError

    __ne__, __hash__ = __eq__, float.__hash__


class OddText(str):
    __slots__ = ()

    def encode(self, *_args):
        raise ArithmeticError

    def __str__(self):
        raise ArithmeticError


HOSTILE = {
    "a signalling NaN": Decimal("sNaN"),
    "a negative signalling NaN": Decimal("-sNaN123"),
    "an object": Hostile(),
    "an object that leaves": Leaving(),
    "a kind of float": OddFloat(1.5),
    "a kind of float, missing": OddFloat("nan"),
    "a kind of text": OddText("1"),
    "an array": np.array([1, 2]),
    "an array of objects": np.array([Decimal("sNaN"), None], dtype=object),
    "no moment": np.datetime64("NaT"),
    "no span": np.timedelta64("NaT"),
    "half a complex number": complex(1, float("nan")),
    "a frame": pd.DataFrame({"a": [1]}),
}
SURROGATE = "\ud800"  # no text: pandas may refuse it
DAY = dt.datetime(2025, 2, 1)
LATE = dt.datetime(2025, 2, 1, 23, 30, 59, 999999)
PARIS, UTC = ZoneInfo("Europe/Paris"), dt.UTC
VALUES = [
    None, np.nan, pd.NA, pd.NaT, True, False, np.True_, 0, 1, 2, -7, 300, 2**31, 2**53 - 1, 2**53, 2**53 + 1,
    -(2**53) - 1, 2**62 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 2**70, -(2**70), 10**400, np.int8(1),
    np.uint64(2**63 + 5), 0.0, -0.0, 1.0, 1.5, -2.5, 0.1, 1e16, 1e300, -1e300, 1e-310, 5e-324, float("inf"),
    -float("inf"), 2.0**53, 2.0**63, np.float32(0.1), np.float32(1), np.float16(1.5), np.longdouble("1.5"),
    np.longdouble(2**53), 1j, 1 + 0j, 2.5 + 0j, "1", "0", "1.5", "2.50", "true", "True", "unknown", "", " ",
    "9007199254740993", "1e3", "inf", "nan", "2025-02-01", "2025-02-01 00:00:00", "2025-02-01T10:00:00Z",
    SURROGATE, "\0", Word.TRUE, Level.LOW, b"1", [1], (1,), {"a": 1}, Decimal("1"), Decimal("1.5"),
    Decimal("1e3"), Decimal("NaN"), Fraction(1, 2), DAY, LATE, dt.datetime.min, dt.datetime.max,
    dt.datetime(999, 12, 31), pd.Timestamp(DAY), pd.Timestamp(LATE),
    pd.Timestamp("2025-02-01 00:00:00.123456789"), pd.Timestamp(DAY, tz="UTC"),
    pd.Timestamp(DAY, tz="Europe/Paris"), DAY.replace(tzinfo=UTC), DAY.replace(tzinfo=PARIS), dt.datetime(1, 1, 1,
    tzinfo=dt.timezone(dt.timedelta(hours=14))), dt.datetime(9999, 12, 31, 23, tzinfo=PARIS),
    pd.Timestamp(np.datetime64("200000-01-01", "s")), np.datetime64("2025-02-01"),
    np.datetime64("2025-02-01T01:02:03.5"), dt.date(2025, 2, 1), dt.date(1, 1, 1), dt.time(1, 2), dt.timedelta(1),
    np.timedelta64(1, "D"), pd.Period("2025-02", "M"), pd.Interval(0, 1),
]  # fmt: skip
TOGETHER = {
    "a list": lambda one, other: pd.Series([one, other]),
    "a list, backwards": lambda one, other: pd.Series([other, one])[::-1],
    "two tables": lambda one, other: pd.concat([pd.Series([one]), pd.Series([other])]),
    "two tables of categories": lambda one, other: pd.concat(
        [pd.Series([one], dtype="category"), pd.Series([other], dtype="category")]
    ),
    "a category": lambda one, other: pd.Series([one, other], dtype="category"),
}


def made(make, *cells):
    """A column, if pandas makes one of these cells: whatever it refuses never gets as far as a frame."""
    try:
        return make(*cells).reset_index(drop=True)
    except Exception:
        return None


def read(kind, columns):
    """What the view of a table says of columns of cells. Those of one Arrow type are read together."""
    facts = {"n": {"type": "integer"}} | ({} if kind == "unit" else {"v": {"type": kind}})
    table = {"columns": facts} | ({"unit": "v"} if kind == "unit" else {})
    schema = Schema.load({"unit": {"name": "p", "max_rows": 1} if kind == "unit" else "row", "tables": {"t": table}})
    arrays = (from_pandas(one, kind) for one in columns)
    passed = [one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one for one in arrays]
    found = {}
    for kept in {one.type for one in passed}:
        some = [i for i, one in enumerate(passed) if one.type == kept]
        cells = pa.concat_arrays([passed[i] for i in some])
        tables = open_tables(pa.table({"v": cells, "n": range(len(cells))}), schema)
        rows = tables.engine.run(tables.view("t").sql("duckdb"))
        tables.close()
        said = dict(zip(rows.column("n").to_pylist(), rows.column("v").to_pylist(), strict=True))
        start = 0
        for i in some:
            found[i] = [None if said.get(start + k) is None else str(said[start + k]) for k in range(len(passed[i]))]
            start += len(passed[i])
    return [found[i] for i in range(len(columns))]


def shown(frame, kind):
    """What the view of a frame of one column says of it, in the order of its rows."""
    facts = {} if kind == "unit" else {"v": {"type": kind}}
    table = {"columns": {**facts, "n": {"type": "integer", "bounds": [0, 9]}}} | (
        {"unit": "v"} if kind == "unit" else {}
    )
    schema = Schema.load({"unit": {"name": "p", "max_rows": 1} if kind == "unit" else "row", "tables": {"t": table}})
    if isinstance(frame, pl.DataFrame):
        frame = frame.with_columns(n=pl.Series(range(len(frame))))
    elif isinstance(frame, pa.Table):
        frame = frame.append_column("n", pa.array(range(len(frame))))
    else:
        frame = frame.assign(n=range(len(frame)))
    tables = open_tables(frame, schema)
    try:
        rows = tables.engine.run(tables.view("t").sql("duckdb"))
        cells = rows.column("v").cast(pa.string()) if pa.types.is_temporal(rows.column("v").type) else rows.column("v")
        said = dict(zip(rows.column("n").to_pylist(), cells.to_pylist(), strict=True))
    finally:
        tables.close()
    return [None if said.get(at) is None else str(said[at]) for at in range(len(frame))]


# Each stands for a type that pandas may infer, or for a limit; all pairs of all values take a minute.
FEW = [
    None, True, 0, 1, 2**53 + 1, -(2**70), 2**63, 1.0, 1.5, 1e300, 1e-310, -float("inf"), np.float32(0.1), 1j, "1",
    "true", "unknown", "2025-02-01", [1], Decimal("1.5"), DAY, dt.datetime.max,
    pd.Timestamp("2025-02-01 00:00:00.123456789"), pd.Timestamp(DAY, tz="Europe/Paris"), DAY.replace(tzinfo=UTC),
    pd.Timestamp(np.datetime64("200000-01-01", "s")),
    dt.date(2025, 2, 1), dt.timedelta(1), pd.Period("2025-02", "M"), pd.Interval(0, 1),
]  # fmt: skip


def differing(kind, make, firsts, seconds):
    """Pairs of cells of which one reads otherwise than alone."""
    alone = [(one, made(lambda one: pd.Series([one]), one)) for one in (*firsts, *seconds)]
    alone = [(one, column) for one, column in alone if column is not None]
    said = {
        id(one): cells[0] for (one, _), cells in zip(alone, read(kind, [column for _, column in alone]), strict=True)
    }
    pairs = [(one, other, made(make, one, other)) for one in firsts for other in seconds]
    pairs = [pair for pair in pairs if pair[2] is not None and id(pair[0]) in said]
    assert len(pairs) > len(firsts) * len(seconds) / 2
    found = zip(pairs, read(kind, [column for *_, column in pairs]), strict=True)
    return [
        (one, other, column.dtype, cells)
        for (one, other, column), cells in found
        if cells != [said[id(one)], said[id(other)]]
    ]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("together", TOGETHER)
def test_a_cell_reads_the_same_alone_and_beside_any_other(kind, together):
    # Within one column of categories pandas itself holds True, 1 and 1.0 for one value.
    some = [one for one in FEW if one is not True] if (kind, together) == ("text", "a category") else FEW
    assert differing(kind, TOGETHER[together], some, some) == []


@pytest.mark.parametrize("kind", TYPES)
def test_a_cell_of_any_value_reads_the_same_beside_a_missing_one_a_number_a_word_and_a_moment(kind):
    assert differing(kind, TOGETHER["a list"], VALUES, [None, 1, 1.5, True, "unknown", DAY, [1]]) == []


IDS = [None, True, 1, 2**53 + 1, 2**60, 2**63, 1.0, 1.5, 2.0**60, float("inf"), "1", "x", "", DAY, Decimal(1), 1j, [1]]


@pytest.mark.parametrize("together", ["a list", "two tables"])
def test_an_id_names_the_same_person_alone_and_beside_any_other(together):
    assert differing("unit", TOGETHER[together], IDS, IDS) == []


def column_of(*cells):
    """A column of objects, with which pandas does nothing."""
    array = np.empty(len(cells), dtype=object)
    for i, cell in enumerate(cells):
        array[i] = cell
    return pd.Series(array)


@pytest.mark.parametrize("kind", [*TYPES, "unit", None])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_cell_decides_whether_a_frame_opens_or_how_others_read(kind, hostile):
    common = ["1", 1.5, Decimal("2"), None, DAY]
    beside = from_pandas(column_of(*common, HOSTILE[hostile], "1"), kind).to_pylist()
    assert beside[:5] == from_pandas(column_of(*common), kind).to_pylist()
    assert beside[6] == "1"


def test_what_pandas_takes_for_missing_is_missing():
    gone = [None, np.nan, pd.NA, pd.NaT, Decimal("NaN"), Decimal("sNaN"), np.datetime64("NaT"), np.timedelta64("NaT")]
    for kind in (*TYPES, "unit", None):
        assert from_pandas(column_of(*gone, OddFloat("nan"), np.float32("nan")), kind).null_count == len(gone) + 2


# Columns of declared types. Each is made of raw integers or bytes, as a file or another program would: the last is
# one that Python, the library or the standard itself has no value for.
FAR, LATEST = 2**62, 2**31 - 1


def arrow_of(raw, kind, cell):
    return pa.array(raw, kind).view(cell)


def polars_of(raw, kind, cell):
    return pl.Series(raw, dtype=kind, strict=False).cast(cell)


def in_pandas(array):
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([array])))


def zoned(raw):
    return pd.Series(np.array(raw, dtype="M8[s]")).dt.tz_localize("UTC")


def coded(codes, words=("a", "b")):
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(words), safe=False)


def lists_of(values):
    return pa.ListArray.from_arrays(list(range(len(values) + 1)), values)


DAYS, STEPS, ZONED = pl.Date, pl.Duration("ms"), pl.Datetime("us", "Europe/Paris")
DECLARED = {
    "polars days": lambda last: polars_of([0, 1, *last(LATEST)], pl.Int32, DAYS),
    "polars moments": lambda last: polars_of([0, 1, *last(FAR)], pl.Int64, pl.Datetime("ms")),
    "polars moments in a zone": lambda last: polars_of([0, 1, *last(FAR)], pl.Int64, ZONED),
    "polars durations": lambda last: polars_of([0, 1, *last(FAR)], pl.Int64, STEPS),
    "polars times": lambda last: pl.from_arrow(arrow_of([0, 1, *last(FAR)], pa.int64(), pa.time64("ns"))),
    "polars decimals": lambda last: polars_of([0, 1, *last(2**120)], pl.Int128, pl.Decimal(38, 0)),
    "polars long integers": lambda last: pl.Series([0, 1, *last(2**120)], dtype=pl.Int128),
    "polars bytes": lambda last: pl.Series([b"a", b"b", *last(b"\xff")]),
    "polars objects": lambda last: pl.Series([b"a", b"b", *last(Leaving())], dtype=pl.Object),
    "polars categories": lambda last: pl.Series(["a", "b", *last("\0")], dtype=pl.Categorical),
    "polars lists of days": lambda last: polars_of([[0], [1], *last([LATEST])], pl.List(pl.Int32), pl.List(DAYS)),
    "polars lists of moments": lambda last: polars_of([[0], [1], *last([FAR])], pl.List(pl.Int64), pl.List(ZONED)),
    "polars lists of durations": lambda last: polars_of([[0], [1], *last([FAR])], pl.List(pl.Int64), pl.List(STEPS)),
    "polars arrays": lambda last: polars_of([[0], [1], *last([LATEST])], pl.Array(pl.Int32, 1), pl.Array(DAYS, 1)),
    "polars lists of lists": lambda last: polars_of(
        [[[0]], [[1]], *last([[LATEST]])], pl.List(pl.List(pl.Int32)), pl.List(pl.List(DAYS))
    ),
    "polars records": lambda last: polars_of(
        [{"a": 0}, {"a": 1}, *last({"a": LATEST})], pl.Struct({"a": pl.Int32}), pl.Struct({"a": DAYS})
    ),
    "polars records with long integers": lambda last: polars_of(
        [{"a": 0, "b": 1}, *last({"a": LATEST, "b": 1})],
        pl.Struct({"a": pl.Int32, "b": pl.Int128}),
        pl.Struct({"a": DAYS, "b": pl.Int128}),
    ),
    "polars lists of categories": lambda last: pl.Series([["a"], ["b"], *last([None])], dtype=pl.List(pl.Categorical)),
    "arrow days": lambda last: arrow_of([0, 1, *last(LATEST)], pa.int32(), pa.date32()),
    "arrow days in milliseconds": lambda last: arrow_of([0, 86400000, *last(FAR)], pa.int64(), pa.date64()),
    "arrow moments": lambda last: arrow_of([0, 1, *last(FAR)], pa.int64(), pa.timestamp("s", "Europe/Paris")),
    "arrow moments nowhere": lambda last: arrow_of([0, 1, *last(FAR)], pa.int64(), pa.timestamp("s", "Nowhere/Land")),
    "arrow times": lambda last: arrow_of([0, 1, *last(FAR)], pa.int64(), pa.time64("ns")),
    "arrow durations": lambda last: arrow_of([0, 1, *last(FAR)], pa.int64(), pa.duration("s")),
    "arrow decimals": lambda last: pa.array([Decimal(0), *last(Decimal(10**75))], pa.decimal256(76, 0)),
    "arrow text": lambda last: arrow_of([b"a", b"b", *last(b"\xff")], pa.binary(), pa.string()),
    "arrow codes": lambda last: coded([0, 1, *last(7)]),
    "arrow codes below": lambda last: coded([0, 1, *last(-7)]),
    "arrow codes of moments": lambda last: coded(
        [0, 1, *last(2)], arrow_of([0, 1, FAR], pa.int64(), pa.timestamp("s", "UTC"))
    ),
    "arrow runs": lambda last: pa.RunEndEncodedArray.from_arrays(
        range(1, 2 + len(last(0))), arrow_of([0, *last(FAR)], pa.int64(), pa.timestamp("s", "UTC"))
    ),
    "arrow lists of moments": lambda last: lists_of(arrow_of([0, 1, *last(FAR)], pa.int64(), pa.timestamp("s"))),
    "arrow lists of text": lambda last: lists_of(arrow_of([b"a", b"b", *last(b"\xff")], pa.binary(), pa.string())),
    "arrow lists of codes": lambda last: lists_of(coded([0, 1, *last(7)])),
    "pandas durations": lambda last: pd.Series(np.array([0, 1, *last(FAR)], dtype="m8[s]")),
    "pandas moments": lambda last: pd.Series(np.array([0, 1, *last(FAR)], dtype="M8[s]")),
    "pandas moments in a zone": lambda last: zoned([0, 1, *last(FAR)]),
    "pandas moments long ago": lambda last: zoned([0, 1, *last(-FAR)]).dt.tz_convert("Europe/Paris"),
    "pandas periods": lambda last: pd.Series(pd.arrays.PeriodArray(np.array([0, 1, *last(FAR)]), dtype="period[D]")),
    "pandas intervals": lambda last: pd.Series(
        pd.arrays.IntervalArray.from_arrays(*(zoned([start, start + 1, *last(FAR + start)]) for start in (0, 1)))
    ),
    "pandas categories": lambda last: zoned([0, 1, *last(FAR)]).astype("category"),
    "pandas text of arrow": lambda last: pd.Series(
        pd.arrays.ArrowStringArray(
            pa.chunked_array([arrow_of([b"a", *last(b"\xff")], pa.large_binary(), pa.large_string())])
        )
    ),
    "pandas lists of arrow": lambda last: in_pandas(
        lists_of(arrow_of([0, 1, *last(FAR)], pa.int64(), pa.timestamp("s")))
    ),
    "pandas sparse": lambda last: pd.Series(pd.arrays.SparseArray([0.0, 1.0, *last(np.nan)])),
    "numpy durations": lambda last: np.array([0, 1, *last(FAR)], dtype="m8[W]"),
    "numpy moments": lambda last: np.array([0, 1, *last(FAR)], dtype="M8[Y]"),
}


def in_frame(column):
    if isinstance(column, np.ndarray):
        return column.reshape(-1, 1)
    if isinstance(column, pl.Series):
        return pl.DataFrame({"v": column})
    return pa.table({"v": column}) if isinstance(column, pa.Array) else pd.DataFrame({"v": column})


def words(cells):
    return [(category(cell), str(number(cell))) for cell in (list(cells) if cells.dtype.kind in "mM" else cells)]


READERS = {
    "labels": lambda column: words(read_column(column)),
    "a frame": lambda column: words(read_rows(in_frame(column))[0][0]),
    "rows of a list": lambda column: [
        words(cells)[0] for cells in read_rows([column[at : at + 1] for at in range(len(column))])[0][0].reshape(-1, 1)
    ],
}


def unlike(read):
    """The columns of which an extreme cell changes whether they are read, or what is read of the others."""
    names = []
    for name, make in DECLARED.items():
        results = []
        for last in (lambda _: [], lambda extreme: [extreme]):
            column = make(last)
            try:
                results.append(read(column))
            except (BadInput, BadSource, BadSchema) as error:
                results.append(str(error))
            except BaseException as error:  # polars panics with what is no Exception
                results.append(("fails", type(error), str(error)))
        without, beside = results
        if isinstance(without, tuple) or (without != (beside if isinstance(without, str) else beside[: len(without)])):
            names.append((name, without, beside))
    return names


@pytest.mark.parametrize("reader", READERS)
def test_no_cell_of_a_declared_type_decides_whether_a_column_is_learned_from_or_how_others_read(reader):
    assert unlike(READERS[reader]) == []


@pytest.mark.parametrize("kind", ["text", *(kind for kind in TYPES if kind != "text"), "unit"])
def test_no_cell_of_a_declared_type_decides_whether_a_column_opens_or_how_others_read(kind):
    assert unlike(lambda column: "no frame" if isinstance(column, np.ndarray) else shown(in_frame(column), kind)) == []

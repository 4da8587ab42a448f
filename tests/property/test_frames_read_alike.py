"""A cell of a pandas frame reads the same whatever stands beside it: pandas infers a column's type from all cells."""

import datetime as dt
import enum
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from cloister.data.frames import from_pandas
from cloister.data.schema import TYPES, Schema
from cloister.data.tables import open_tables


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

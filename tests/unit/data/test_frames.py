"""Frames infer types from values; plans, errors and what opens do not depend on them."""

import datetime as dt
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import cloister as cl
from cloister.data.schema import Schema
from cloister.data.tables import open_tables
from cloister.privacy.errors import BadSchema, BadSource
from cloister.query.run import _look

SCHEMA = """
unit: {name: person, max_rows: 1}
tables:
  t:
    unit: p
    columns:
      n: {type: integer, bounds: [0, 100]}
      x: {type: real, bounds: [0, 100]}
      g: {type: text, categories: ["1", "2"]}
      b: {type: boolean}
      d: {type: date, bounds: [2020-01-01, 2030-01-01]}
"""
BASE = {"p": list(range(1, 301)), "n": [7] * 300, "x": [2] * 300, "g": [1] * 300, "b": [1] * 300, "d": [None] * 300}
SQL = "SELECT COUNT(n) AS n, SUM(x) AS x, COUNT(g) AS g, COUNT(d) AS d FROM t WHERE b"
ODD = {
    "a missing number": {"p": 301, "n": None, "x": None, "g": None, "b": None},
    "a fraction": {"p": 301, "n": 3.5, "x": 3.5, "g": 1.5, "b": 0.5},
    "a word": {"p": 301, "n": "word", "x": "word", "g": "word", "b": "word"},
    "a large number": {"p": 301, "n": 2**63, "x": 2**63, "g": 2**63, "b": 2**63},
    "a missing id": {"p": None, "n": 1, "x": 1, "g": 1, "b": 1},
    "a list": {"p": 301, "n": [1], "x": [1], "g": [1], "b": [1]},
    "bytes": {"p": 301, "n": b"\0", "x": b"\0", "g": b"\0", "b": b"\0"},
    "half a character": {"p": 301, "n": "\ud800", "x": "\ud800", "g": "\ud800", "b": "\ud800"},
    "a word for an id": {"p": "somebody", "n": 1, "x": 1, "g": 1, "b": 1},
    "a fraction for an id": {"p": 1.5, "n": 1, "x": 1, "g": 1, "b": 1},
    "a list for an id": {"p": [1], "n": 1, "x": 1, "g": 1, "b": 1},
    "long text": {"p": 301, "n": "9" * 10**6, "x": "9" * 10**6, "g": "9" * 10**6, "b": "9" * 10**6},
}


def asked(frame, folder):
    with cl.open(frame, schema=SCHEMA, budget=cl.rho(10**6), ledger=folder) as dataset:
        plan = dataset.plan(SQL, spend=cl.rho(10**5))
        return str(plan), dataset.run(plan).rows()[0]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("column", ["p", "n", "x", "g", "b"])
def test_one_person_changes_neither_the_plan_nor_what_opens(tmp_path, odd, column):
    more = {"p": 301, "n": 7, "x": 2, "g": 1, "b": 1, "d": None} | {"p": ODD[odd]["p"], column: ODD[odd][column]}
    before, first = asked(pd.DataFrame(BASE), tmp_path / "a")
    after, second = asked(pd.DataFrame({name: [*BASE[name], more[name]] for name in BASE}), tmp_path / "b")
    assert before == after
    assert first["n"] == pytest.approx(300, abs=1)
    assert second["n"] == pytest.approx(first["n"], abs=1.1)
    assert second["x"] == pytest.approx(first["x"], abs=110)  # one person adds at most 100; noise below 1


def test_ids_of_every_pandas_type_name_the_same_people(tmp_path):
    """Two rows a person, one of them with the id as another type would hold it."""
    plans = set()
    whole = [1, 1, 2, 2]
    for number, ids in enumerate(
        (
            pd.Series(whole),
            pd.Series(whole, dtype=float),
            pd.Series(whole, dtype=object),
            pd.Series([1, 1.0, 2, "2"], dtype=object),
            pd.Series([np.int64(1), np.float64(1), "2", 2], dtype=object),
            pd.Series(whole, dtype="Int64"),
            pd.Series(whole, dtype="category"),
            pd.Series(["1", "1", "2", "2"]),
        )
    ):
        frame = pd.DataFrame({name: BASE[name][:4] for name in BASE if name != "p"} | {"p": ids})
        plan, found = asked(frame, tmp_path / str(number))
        plans.add(plan)
        assert round(found["n"]) == 2
    assert len(plans) == 1


def test_categories_that_are_words_and_numbers_open_like_others(tmp_path):
    plans = set()
    for number, values in enumerate(([1, 2] * 150, [1, "secret"] * 150, [1.0, None] * 150)):
        frame = pd.DataFrame(BASE | {"g": pd.Categorical(values)})
        plan, found = asked(frame, tmp_path / str(number))
        plans.add(plan)
        assert round(found["g"]) == (300 if number == 0 else 150)
    assert len(plans) == 1


@pytest.mark.parametrize("make", [pa.table, pl.DataFrame, pd.DataFrame])
def test_frames_of_every_kind_read_the_same(tmp_path, make):
    _, found = asked(make(BASE), tmp_path)
    assert [round(found[name]) for name in ("n", "g", "d")] == [300, 300, 0]
    assert found["x"] == pytest.approx(600, abs=10)


def test_ids_that_a_double_cannot_tell_apart_name_nobody(tmp_path):
    ids = np.array([2.0**53, 2.0**53 + 2, 5.0, np.nan])
    _, found = asked(pd.DataFrame({name: BASE[name][:4] for name in BASE} | {"p": ids}), tmp_path)
    assert round(found["n"]) == 1


DAY = dt.datetime(2025, 2, 1)


@pytest.mark.parametrize(
    ("facts", "common", "odd"),
    [
        ({"type": "date"}, pd.Timestamp(DAY), "unknown"),
        ({"type": "timestamp"}, pd.Timestamp(DAY, tz="UTC"), "unknown"),
        ({"type": "timestamp"}, pd.Timestamp(DAY, tz="Europe/Paris"), pd.Timestamp(DAY, tz="UTC")),
        ({"type": "integer", "bounds": [0, 1]}, True, None),
        ({"type": "real", "bounds": [0, 1]}, True, None),
        ({"type": "text", "categories": ["true", "false"]}, True, None),
        ({"type": "text", "categories": ["1.5", "2"]}, 1.5, "n/a"),
        ({"type": "integer", "bounds": [0, 10]}, 2**53 + 1, None),
        ({"type": "boolean"}, 1.0, "n/a"),
        ({"type": "text"}, pd.Timestamp(DAY), "word"),
        ({"type": "integer"}, pd.Timestamp(DAY), 5),
        ({"type": "date"}, 5, "2025-02-01"),
    ],
)
@pytest.mark.parametrize("sql", ["SELECT COUNT(v) AS n FROM t", "SELECT COUNT(DISTINCT v) AS n FROM t"])
def test_one_odd_cell_moves_an_exact_count_by_no_more_than_its_sensitivity(tmp_path, facts, common, odd, sql):
    schema = {"unit": {"name": "p", "max_rows": 1}, "tables": {"t": {"unit": "p", "columns": {"v": facts}}}}
    found = []
    for more in ([], [odd]):
        values = [common] * 40 + more
        frame = pd.DataFrame({"p": [f"p{k}" for k in range(len(values))], "v": values})
        with cl.open(frame, schema=schema, budget=cl.rho(1), ledger=tmp_path / str(len(values))) as dataset:
            plan = dataset.plan(sql, spend=cl.rho("0.1"))
            found.append(int(_look(plan, dataset.tables.engine)[0][0]))
    assert abs(found[0] - found[1]) <= plan.measurements[0].sensitivity


def test_a_missing_id_does_not_decide_whom_long_ids_name(tmp_path):
    """Of 60 bits: as integers they would name people, as the doubles that one missing id makes of them nobody."""
    long = [2**60 + k for k in range(50)]
    schema = {
        "unit": {"name": "p", "max_rows": 1},
        "tables": {"t": {"unit": "p", "columns": {"n": {"type": "integer"}}}},
    }

    def people(ids, folder):
        frame = pd.DataFrame({"p": ids, "n": 1})
        with cl.open(frame, schema=schema, budget=cl.rho(1), ledger=tmp_path / folder) as dataset:
            plan = dataset.plan("SELECT COUNT(*) AS n FROM t", spend=cl.rho("0.1"))
            return int(_look(plan, dataset.tables.engine)[0][0]) // 2**20

    assert people(long, "a") == people([*long, None], "b") == people([*long, "x"], "c") - 1 == 0
    assert people(pd.array([*long, None], dtype="Int64"), "d") == 50
    assert people([*map(str, long), None], "e") == 50


@pytest.mark.parametrize("facts", [{"categories": [2**53]}, {"categories": [1, -(2**60)]}, {"bounds": [0, 2**53 + 1]}])
def test_integers_that_a_double_cannot_hold_are_refused_by_the_type_of_the_column(tmp_path, facts):
    schema = {"unit": "row", "tables": {"t": {"columns": {"v": {"type": "integer", **facts}}}}}
    whole = [1, 2]
    inferred = (whole, [1, None], [True, False], ["1", "2"], [1, "x"], pd.Categorical(whole), [DAY, DAY], [])
    for number, values in enumerate(inferred):
        with pytest.raises(BadSchema, match="2\\^53"):
            cl.open(pd.DataFrame({"v": values}), schema=schema, budget=cl.rho(1), ledger=tmp_path / str(number))
    declared = (pd.array(whole, dtype="Int64"), pd.array(["1", None], dtype="string"))
    for source in (*(pd.DataFrame({"v": one}) for one in declared), pa.table({"v": whole}), pl.DataFrame({"v": whole})):
        cl.open(source, schema=schema, budget=cl.rho(1), ledger=tmp_path / "open").close()


# What a cell says depends on that cell and on the schema, not on the type that pandas gave its column.


def moments(kind, *days):
    return pd.Series(np.array(days, dtype=f"M8[{kind}]"))


TYPED = {
    "truths": pd.Series([True, False]),
    "whole numbers": pd.Series([0, 1, -7, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 - 1, -(2**63)]),
    "short whole numbers": pd.Series([0, 1, -7], dtype="int8"),
    "counts": pd.Series([0, 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1], dtype="uint64"),
    "numbers": pd.Series(
        [0.0, -0.0, 1.0, 1.5, -2.5, 1e15, 1e16, 2.0**53, 1e60, 1e61, 1e300, 5e-324, 1e-301, 1e-299, np.inf, -np.inf]
    ),
    "short numbers": pd.Series([0.0, 1.0, 0.1, 3e38, 1e-45, np.inf], dtype="float32"),
    "tiny numbers": pd.Series([1.0, 0.5, 6e4], dtype="float16"),
    "long numbers": pd.Series(np.array([1, 1.5, "1e400"], dtype=np.longdouble)),
    "complex numbers": pd.Series([1 + 0j, 2.5 + 0j]),
    "days": moments("s", "2020-01-01", "1000-01-01", "0999-12-31", "9999-12-31", "12000-01-01"),
    "micro moments": moments("us", "2020-02-03T04:05:06.123456", "1969-12-31T23:59:59.999999", "0500-01-01"),
    "nano moments": moments("ns", "2020-02-03T04:05:06.123456789", "1969-12-31T23:59:59.999999999", "1700-01-01"),
    "moments of a zone": moments("us", "2020-02-03T00:30:00", "2020-07-01T12:00:00.5").dt.tz_localize("Europe/Berlin"),
    "nano moments of a zone": moments("ns", "2020-02-03T23:30:00.123456789").dt.tz_localize("America/New_York"),
    "durations": pd.Series(np.array([1, 10**15], dtype="m8[us]")),
    "periods": pd.Series(pd.period_range("2020-01-01", periods=2)),
    "ranges": pd.Series(pd.interval_range(0, 2)),
    "words": pd.Series(["1", "1.0", "true", "True", "2020-01-01", "2020-01-01 10:00", "1e16", "x", ""]),
    "categories of truths": pd.Series([True, False], dtype="category"),
    "categories of numbers": pd.Series([1.5, 2.0, 1e16], dtype="category"),
    "categories of moments": moments("us", "2020-01-01", "2020-01-01T05:00").astype("category"),
    "few numbers": pd.Series([0.0, 1.5], dtype="Sparse[float64]"),
    "nullable truths": pd.Series([True, False], dtype="boolean"),
    "nullable whole numbers": pd.Series([0, 1, 2**53 - 1], dtype="Int64"),
}
KINDS = {
    "integer": {"type": "integer"},
    "bounded": {"type": "integer", "bounds": [0, 10**15]},
    "real": {"type": "real"},
    "boolean": {"type": "boolean"},
    "text": {"type": "text"},
    "date": {"type": "date"},
    "timestamp": {"type": "timestamp"},
    "id": "unit",
}
MORE = {"nothing": None, "a missing number": np.nan, "a word": "secret", "a fraction": 0.5, "a truth": True, "i": 1j}


def seen(column, kinds):
    """Every cell of a column as its views have it, by kind; None for a row that is left out."""
    known = {name: kind for name, kind in kinds.items() if kind != "unit"}
    table = {"columns": {"place": {"type": "integer"}, **known}, **({} if known == kinds else {"unit": "id"})}
    unit = "row" if known == kinds else {"name": "person", "max_rows": 1}
    frame = pd.DataFrame({"place": range(len(column)), **dict.fromkeys(kinds, column)})
    tables = open_tables({"t": frame}, Schema.load({"unit": unit, "tables": {"t": table}}), threads=1)
    found = tables.engine.run(tables.view("t").sql("duckdb")).to_pydict()
    tables.close()
    places = {place: i for i, place in enumerate(found["place"])}
    every = range(len(column))
    return {name: [repr(found[name][places[one]]) if one in places else None for one in every] for name in kinds}


def all_seen(column, kinds):
    """Ids apart, since a row without one is left out."""
    values = {name: kind for name, kind in kinds.items() if kind != "unit"}
    return {**seen(column, values), **({} if values == kinds else seen(column, {"id": "unit"}))}


@pytest.mark.parametrize("name", TYPED)
def test_a_cell_of_a_frame_is_read_alike_whatever_type_pandas_gave_its_column(name):
    column, kinds = TYPED[name].reset_index(drop=True), dict(KINDS)
    if name.startswith("nullable"):  # refused by a type that was declared, which no cell changes
        kinds = {name: kind for name, kind in kinds.items() if name not in ("date", "timestamp", "id")}
    typed = all_seen(column, kinds)
    assert all_seen(column.astype(object), kinds) == typed
    for odd in MORE.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pandas warns of types that it will infer otherwise
            beside = pd.concat([column, pd.Series([odd])], ignore_index=True)
        assert {kind: cells[:-1] for kind, cells in all_seen(beside, kinds).items()} == typed, (odd, beside.dtype)


def test_long_codes_in_a_frame_are_refused_by_schema_and_type():
    codes = [2**53 + 1, 2**53 + 2]
    kind = {"x": {"type": "integer", "categories": codes}}
    for column in (pd.Series(codes), pd.Series([*codes, None]), pd.Series([*codes, "x"]), pd.Series(["x"])):
        with pytest.raises(BadSchema, match="Int64"):
            seen(column, kind)
    assert seen(pd.Series([*codes, None], dtype="Int64"), kind) == {"x": [*map(str, codes), "None"]}


def test_long_ids_of_a_frame_name_nobody_unless_they_are_declared():
    ids = [2**60, 2**60 + 1, 5]
    for column in (pd.Series(ids), pd.Series([*ids, None]), pd.Series([*ids, "x"])):
        assert seen(column, {"id": "unit"})["id"][:3] == [None, None, "'5'"]
    for column in (pd.Series([*ids, None], dtype="Int64"), pd.Series([*map(str, ids), None])):
        assert seen(column, {"id": "unit"})["id"][:3] == [repr(str(one)) for one in ids]


@pytest.mark.parametrize("codes", [[0, 1, 0], [0, 1, 5], [0, 1, -3]])
def test_a_dictionary_code_without_a_value_is_missing_in_an_arrow_dataset_too(codes, tmp_path):
    import pyarrow.dataset as datasets
    from pyarrow import feather

    words = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), pa.array(["a", "b"]), safe=False)
    table = pa.table({"id": [1, 2, 3], "x": words})
    facts = {"unit": {"name": "p", "max_rows": 1}, "tables": {"t": {"unit": "id", "columns": {"x": {"type": "text"}}}}}
    tables = open_tables(datasets.dataset(table), Schema.load(facts))
    try:
        read = tables.engine.run(tables.view("t").sql(tables.engine.dialect)).column("x").to_pylist()
    finally:
        tables.close()
    assert read == [["a", "b"][code] if code in (0, 1) else None for code in codes]
    feather.write_feather(table, str(tmp_path / "t.feather"), compression="uncompressed")
    with pytest.raises(BadSource, match="dictionary-encoded"):
        open_tables(datasets.dataset(tmp_path, format="feather"), Schema.load(facts))


def long_words(kind):
    """Twelve rows of one person with one text of 200 MB, in a table of this kind: decoded, 2.4 GB."""
    word = "y" * (2 * 10**8)
    if kind == "pandas":
        return pd.DataFrame({"id": [1] * 13, "x": pd.Categorical.from_codes([0] * 12 + [1], [word, "a"])})
    codes = pa.array([0] * 12 + [1], pa.int32())
    words = {
        "codes": lambda: pa.DictionaryArray.from_arrays(codes, pa.array([word, "a"])),
        "runs": lambda: pa.RunEndEncodedArray.from_arrays(pa.array([12, 13], pa.int32()), pa.array([word, "a"])),
    }
    return pa.table({"id": [1] * 13, "x": words[kind]()})


@pytest.mark.parametrize("kind", ["pandas", "codes", "runs", "dataset", "parquet"])
def test_one_long_text_of_many_rows_does_not_decide_what_opens(kind, tmp_path):
    import pyarrow.dataset as datasets
    from pyarrow import parquet

    facts = {"unit": {"name": "p", "max_rows": 1}, "tables": {"t": {"unit": "id", "columns": {"x": {"type": "text"}}}}}
    source = long_words(kind if kind in ("pandas", "runs") else "codes")
    if kind == "dataset":
        source = datasets.dataset(source)
    elif kind == "parquet":
        parquet.write_table(source, str(tmp_path / "t.parquet"))
        source = str(tmp_path / "t.parquet")
    tables = open_tables(source, Schema.load(facts))
    try:
        read = tables.engine.run(tables.view("t").sql(tables.engine.dialect)).column("x").to_pylist()
    finally:
        tables.close()
    assert read == [None] * 12 + ["a"]


@pytest.mark.parametrize("make", [
    lambda bits: pd.DataFrame({"id": [1, 2], "x": pd.arrays.FloatingArray(bits, np.zeros(2, dtype=bool))}),
    lambda bits: pd.DataFrame({"id": pd.array(pa.array(bits), pd.ArrowDtype(pa.from_numpy_dtype(bits.dtype))), "x": 1}),
])  # fmt: skip
@pytest.mark.parametrize("width", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["integer", "real", "text", "boolean"])
def test_a_signalling_nan_gives_no_warning(make, width, kind):
    bits = {"float32": ("u4", 0x7F800001), "float64": ("u8", 0x7FF0000000000001)}[width]
    frame = make(np.array([bits[1], 0], bits[0]).view(width))
    facts = {"unit": {"name": "p", "max_rows": 1}, "tables": {"t": {"unit": "id", "columns": {"x": {"type": kind}}}}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_tables(frame, Schema.load(facts)).close()

"""A synthetic table: rows of the schema's kind, a metadata file, answers with error bars, samples under a condition."""

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cloister as cl
from cloister.data.schema import Schema
from cloister.privacy.errors import BadBounds, BadInput
from cloister.privacy.receipt import Receipt
from cloister.synth.domain import domain
from cloister.synth.measure.error_estimate import ErrorEstimate
from cloister.synth.model.inference import Model
from cloister.synth.output.expected_errors import ExpectedError, expected_error

ROWS = 3000
_g = np.random.default_rng(31)
WARD = _g.integers(0, 3, ROWS)
AGE = np.clip(20 * WARD + _g.integers(0, 40, ROWS), 0, 89)
TABLE = pa.table(
    {
        "ward": np.array(["a", "b", "c"])[WARD],
        "age": AGE,
        "cost": pa.array(AGE * 1.5 + _g.random(ROWS), mask=_g.random(ROWS) < 0.1),
        "badge": [f"badge-{i}" for i in range(ROWS)],
        "wing": np.array(["north", "south", "north"])[WARD],
    }
)
SCHEMA = Schema.load(
    {
        "unit": "row",
        "tables": {
            "visits": {
                "columns": {
                    "ward": {"type": "text", "categories": ["a", "b", "c"], "nullable": False},
                    "age": {"type": "integer", "bounds": [0, 89], "nullable": False},
                    "cost": {"type": "real", "bounds": [0, 150]},
                    "badge": {"type": "text", "nullable": False},
                    "wing": {"type": "text", "categories": ["north", "south"], "nullable": False},
                },
                "determines": ["ward -> wing"],
            }
        },
    }
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    with cl.open(TABLE, schema=SCHEMA, budget=cl.rho(100), ledger=tmp_path_factory.mktemp("table")) as opened:
        yield opened


@pytest.fixture(scope="module")
def table(data):
    return cl.synth.mst(data, spend=cl.rho(2), rows=ROWS, bins=18)


def test_rows_have_the_columns_and_types_of_the_schema(table):
    made = table.to_arrow()
    assert made.column_names == ["ward", "age", "cost", "badge", "wing"]
    assert [str(field.type) for field in made.schema] == ["string", "int64", "double", "string", "string"]
    assert made.num_rows == len(table) == ROWS
    assert set(made["ward"].to_pylist()) <= {"a", "b", "c"}
    assert 0 <= min(made["age"].to_pylist()) <= max(made["age"].to_pylist()) <= 89


def test_missing_values_are_about_as_frequent(table):
    assert table.to_arrow()["cost"].null_count / ROWS == pytest.approx(0.1, abs=0.03)


def test_pseudonyms_are_nobody_s(table):
    made = table.to_arrow()["badge"].to_pylist()
    assert len(set(made)) == ROWS
    assert not set(made) & set(TABLE["badge"].to_pylist())


def test_what_is_decided_is_decided_in_every_row_and_in_later_samples(table):
    for rows in (table.to_arrow(), table.sample(2000)):
        pairs = set(zip(rows["ward"].to_pylist(), rows["wing"].to_pylist(), strict=True))
        assert pairs == {("a", "north"), ("b", "south"), ("c", "north")}


def test_what_is_decided_somewhere_in_a_bin_is_decided_once(tmp_path):
    columns = {
        "ward": {"type": "text", "categories": ["a", "b"], "nullable": False},
        "price": {"type": "real", "bounds": [0, 100], "nullable": False},
        "since": {"type": "date", "bounds": ["2000-01-01", "2025-12-31"]},
    }
    schema = {"unit": "row", "tables": {"t": {"columns": columns, "determines": ["ward -> price", "ward -> since"]}}}
    rows = pa.table({"ward": ["a", "b"] * 50, "price": [10.0, 60.0] * 50, "since": ["2001-05-05", None] * 50})
    with cl.open(rows, schema=schema, budget=cl.rho(100), ledger=tmp_path) as opened:
        made = cl.synth.mst(opened, spend=cl.rho(50), bins=8, rows=40)
    more = [made.to_arrow(), made.sample(40), made.sample(9, given={"ward": "a"}), made.sample(40)]
    assert len({tuple(row.values()) for part in more for row in part.to_pylist()}) == 2


def test_rows_come_as_dicts_and_as_a_frame(table):
    assert table.rows()[0].keys() == {"ward", "age", "cost", "badge", "wing"}
    assert list(table.to_pandas().columns) == ["ward", "age", "cost", "badge", "wing"]


def test_a_sample_under_a_condition_meets_it(table):
    some = table.sample(500, given={"ward": ["a", "b"], "age": {"from": 30, "below": 50}}).to_pandas()
    assert len(some) == 500
    assert set(some["ward"]) == {"a", "b"}
    assert some["age"].between(30, 49).all()


def test_conditions_on_what_is_not_modelled_are_refused(table):
    for wrong in ({"badge": "x"}, {"wing": "north"}, {"nothing": 1}):
        with pytest.raises(BadInput):
            table.sample(5, given=wrong)
    with pytest.raises(BadBounds, match="no public value"):
        table.sample(5, given={"ward": "z"})
    with pytest.raises(BadInput, match="whole number"):
        table.sample(0)


def test_counts_come_with_error_bars_that_hold(table):
    asked = {"ward": "b", "age": {"from": 40}}
    answer = table.count(asked)
    true = int(((WARD == 1) & (AGE >= 40)).sum())
    assert answer.error > 0
    assert abs(answer.value - true) <= 3 * answer.error + 10
    assert table.count().value == pytest.approx(ROWS, rel=0.02)


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("mst", {"bins": 6}),
        ("aim", {"bins": 6, "rounds": 2}),
        ("mwem", {"columns": ["ward", "age"], "bins": 4, "rounds": 2}),
        ("m_way", {"columns": ["ward", "age"], "bins": 4}),
        ("mggm", {"bins": 6, "reviewed": False}),
        ("ron_gauss", {"bins": 6, "reviewed": False}),
    ],
)
def test_the_number_of_rows_has_the_standard_error_of_its_noise_in_rows(data, method, told):
    make = getattr(cl.synth, method)
    found = [make(data, spend=cl.rho("0.005"), rows=10, random_state=seed, **told).count() for seed in range(12)]
    far = math.sqrt(np.mean([((one.value - ROWS) / one.error) ** 2 for one in found]))
    assert found[0].known_from == "noise"
    assert 1 < found[0].error < ROWS
    assert far < 1.7  # a chi of 12 degrees goes beyond it once in 10,000 times
    assert far > 0.45 or method == "mggm", "its moments tell the number of rows too, and are in no marginal"


def test_the_standard_error_of_one_count_is_that_of_its_noise(data):
    made = cl.synth.one_column(data, column="ward", spend=cl.rho("0.5"), rows=10)
    assert made.count().error == pytest.approx(math.sqrt(3), rel=0.01)  # three cells with a sigma of 1
    assert made.side["standard error of the estimated rows"] == pytest.approx(math.sqrt(3), rel=0.01)


def test_what_the_unit_s_limit_takes_away_is_said_to_be_in_no_error(data, tmp_path):
    assert "no error" not in cl.synth.one_column(data, column="ward", spend=cl.rho(1)).side["expected error"]["meaning"]
    schema = {
        "unit": {"name": "patient", "max_rows": 2},
        "tables": {"visits": {"unit": "patient", "columns": {"back": {"type": "boolean", "nullable": False}}}},
    }
    rows = pa.table({"patient": [1] * 5 + [2], "back": [True] * 6})
    with cl.open(rows, schema=schema, budget=cl.rho(10**4), ledger=tmp_path) as few:
        made = cl.synth.independent(few, spend=cl.rho(5000), rows=4)
    assert made.count().value == pytest.approx(3, abs=0.3)  # five rows of the first count as two
    assert "where one patient has more rows than may count, each counts less" in made.side["expected error"]["meaning"]


def test_the_expected_error_is_near_the_real_one(table):
    cells, real = table.cells(), table.domain.encode(TABLE)
    for names in (("ward",), ("ward", "age"), ("age", "cost")):
        positions = [table.domain.names.index(name) for name in names]
        shape = [table.domain.axes[position].size for position in positions]
        found, true = np.zeros(shape), np.zeros(shape)
        np.add.at(found, tuple(cells[:, position] for position in positions), 1 / ROWS)
        np.add.at(true, tuple(real[:, position] for position in positions), 1 / ROWS)
        off = 0.5 * np.abs(found - true).sum()
        assert off < 2 * table.error(names).error + 0.01


def test_the_side_file_tells_loss_measurements_errors_and_receipt(table, data, tmp_path):
    position = table.to_parquet(tmp_path / "made.parquet")
    side = json.loads(position.read_text(encoding="utf-8"))
    assert position.name == "made.parquet.side.json"
    assert pq.read_table(tmp_path / "made.parquet").num_rows == ROWS
    assert side["method"] == "mst"
    assert side["loss"] == table.loss.to_json()
    assert {"columns", "cells", "standard error", "why"} <= side["measured"][0].keys()
    assert len(side["expected error"]["marginals"]) == 3 + 3
    assert side["determines"] == ["ward -> wing"]
    Receipt.parse(json.dumps(side["receipt"], separators=(",", ":"), sort_keys=True, ensure_ascii=False)).verify(
        data.account.book.key.public
    )


def test_csv_has_a_side_file_too(table, tmp_path):
    assert table.to_csv(tmp_path / "made.csv").name == "made.csv.side.json"
    assert (tmp_path / "made.csv").read_text().startswith('"ward","age"')


def test_a_sample_costs_nothing(table, data):
    before = data.account.spent
    table.sample(100)
    table.count({"ward": "a"})
    assert data.account.spent == before


def test_a_review_that_happens_to_be_small_does_not_make_errors_small(table):
    position, size = table.domain.positions["age"], table.domain.axis("age").size
    (measured,) = (one for one in table.made.measured if one.positions == (position,))
    noise = math.sqrt(2 / math.pi) * float(measured.sigma) * size
    apart = np.abs(
        table.made.model.asked().marginal((position,)) - measured.counts
    ).sum()  # more than noise, now and then
    bound = 0.5 * max(noise, apart) / table.made.model.total

    def error(margin, *names, ways=(0.0, 0.0, 0.0)):
        review = ErrorEstimate(ways, (0.0,) * len(table.domain.modelled), margin, margin)
        positions = tuple(sorted(table.domain.positions[name] for name in names))
        return expected_error(replace(table.made, review=review), positions, None)

    assert error(1.0, "age") == ExpectedError(pytest.approx(bound), pytest.approx(bound), "noise")
    assert error(bound / 2, "age") == ExpectedError(pytest.approx(bound / 2), pytest.approx(bound / 2), "review")
    assert error(1.0, "age", "cost", "ward").error >= bound  # what three columns show is no less than what one does
    assert error(0.0, "age", "cost", "ward", ways=(0.0, 0.0, 0.4)).error == pytest.approx(0.4)
    assert error(0.98, "age", "cost", "ward").error == pytest.approx(0.5)  # nor less than the review's own noise


def test_what_the_caller_named_is_in_the_side_file_however_many_columns_there_are(tmp_path, monkeypatch):
    monkeypatch.setattr("cloister.synth.output.expected_errors._MOST_LISTED", 8)  # as 1000 are for 46 columns
    columns = {f"c{i}": {"type": "boolean", "nullable": False} for i in range(6)}
    schema = {"unit": "row", "tables": {"t": {"columns": columns}}}
    rows = pa.table({name: [True, False] * 20 for name in columns})
    named = [("c0", "c1", "c2"), ("c3", "c4", "c5")]
    with cl.open(rows, schema=schema, budget=cl.rho(10), ledger=tmp_path) as wide:
        made = cl.synth.aim(wide, spend=cl.rho(1), workload=named, rounds=2, rows=40)
    told = [tuple(one["columns"]) for one in made.side["expected error"]["marginals"]]
    assert told[:2] == named
    assert {(name,) for name in columns} <= set(told)
    assert len(told) == len(set(told)) == 10


def test_every_count_that_was_asked_for_has_an_expected_error_of_its_own(data, tmp_path):
    asked = [{"ward": "b", "age": {"from": 40}}, ("ward",), {"age": {"below": 20}}, {"ward": ["a", "c"]}]
    told = {"columns": ["ward", "age"], "bins": 9, "workload": asked, "rows": ROWS}
    made = cl.synth.mwem(data, spend=cl.rho("0.05"), rounds=8, **told)
    errors = made.side["expected error"]
    assert [one["query"] for one in errors["queries"]] == [asked[0], asked[2], asked[3]]
    assert errors["marginals"][0]["columns"] == ["ward"]
    made.to_parquet(tmp_path / "made.parquet")
    again = cl.synth.read_table(tmp_path / "made.parquet")
    truth = [((WARD == 1) & (AGE >= 40)).sum(), (AGE < 20).sum(), (WARD != 1).sum()]
    for where, true, one in zip((asked[0], asked[2], asked[3]), truth, errors["queries"], strict=True):
        assert one["count"] == pytest.approx(made.count(where).value, abs=0.1)
        assert abs(one["count"] - true) <= 5 * one["error"]
        assert made.count(where).error <= made.error(list(where)).error * made.made.model.total
        assert again.count(where).error == one["error"]
    loud = cl.synth.mwem(data, spend=cl.rho(5), rounds=8, **told).side["expected error"]["queries"]
    assert all(one["error"] < other["error"] for one, other in zip(loud, errors["queries"], strict=True))


def test_the_side_file_tells_the_error_of_every_marginal_that_was_measured(data):
    names = ["ward", "age", "cost"]
    made = cl.synth.m_way(data, spend=cl.rho(1), columns=names, bins=6, rows=50)
    told = {tuple(one["columns"]): one["error"] for one in made.side["expected error"]["marginals"]}
    assert told[tuple(names)] == pytest.approx(made.error(names).error, abs=1e-6)


def even(folder, rows=20_000):
    """Ages and costs that lie evenly, and next to no noise on them."""
    random = np.random.default_rng(3)
    table = pa.table({"age": random.integers(0, 101, rows), "cost": random.random(rows) * 150})
    columns = {"age": ("integer", 100), "cost": ("real", 150)}
    facts = {name: {"type": kind, "bounds": [0, top], "nullable": False} for name, (kind, top) in columns.items()}
    schema = {"unit": "row", "tables": {"visits": {"columns": facts}}}
    with cl.open(table, schema=schema, budget=cl.rho(10**6), ledger=folder) as opened:
        return table, cl.synth.independent(opened, spend=cl.rho(10**5), rows=rows, bins=16)


CUT = [
    {"age": 65},
    {"age": {"from": 65}},
    {"age": {"from": 64, "below": 65}},
    {"age": [3, 65, 99]},
    {"cost": {"from": 100.0, "below": 101.0}},
    {"age": {"below": 18}, "cost": {"from": 33.0}},
]


def test_a_count_that_ends_inside_a_bin_takes_a_part_of_it_and_says_how_far_that_may_be_off(tmp_path):
    rows, made = even(tmp_path)
    made.to_parquet(tmp_path / "made.parquet")
    handed = cl.synth.read_table(tmp_path / "made.parquet")
    for where in CUT:
        met = np.ones(len(rows), dtype=bool)
        for name, wanted in where.items():
            values = rows[name].to_numpy()
            if isinstance(wanted, dict):
                met &= (values >= wanted.get("from", -1)) & (values < wanted.get("below", 1e9))
            else:
                met &= np.isin(values, wanted)
        for table in (made, handed):  # one question has one answer
            found = table.count(where)
            assert found.value == pytest.approx(met.sum(), rel=0.25), where
            assert abs(found.value - met.sum()) < found.error
        whole = made.count({"cost": {"below": 75.0}})  # eight bins of sixteen
        assert made.count(where).error > 5 * whole.error


def test_a_skewed_column_is_within_its_error_though_its_bins_are_wide(tmp_path):
    random = np.random.default_rng(4)
    rows = np.minimum(np.exp(random.normal(1, 1, 20_000)), 1000.0)
    facts = {"price": {"type": "real", "bounds": [0, 1000], "nullable": False}}
    schema = {"unit": "row", "tables": {"sales": {"columns": facts}}}
    with cl.open(pa.table({"price": rows}), schema=schema, budget=cl.rho(9), ledger=tmp_path) as data:
        made = cl.synth.independent(data, spend=cl.rho(1), rows=5_000)
    made.to_parquet(tmp_path / "sales.parquet")
    for table in (made, cl.synth.read_table(tmp_path / "sales.parquet")):
        found = table.count({"price": {"below": 2}})
        assert abs(found.value - (rows < 2).sum()) <= found.error
    assert "over whole bins" in made.side["expected error"]["meaning"]


@pytest.mark.parametrize(
    ("given", "meets"),
    [
        ({"age": {"from": 65}}, lambda row: row["age"] >= 65),
        ({"age": 65}, lambda row: row["age"] == 65),
        ({"age": [64, 3]}, lambda row: row["age"] in (3, 64)),
        ({"cost": {"from": 100.0, "below": 100.5}}, lambda row: 100 <= row["cost"] < 100.5),
        ({"cost": [20.25, 100.0]}, lambda row: row["cost"] in (20.25, 100.0)),
    ],
)
def test_every_sampled_row_meets_its_condition_also_inside_a_bin(tmp_path, given, meets):
    made = even(tmp_path, 2_000)[1]
    assert all(meets(row) for row in made.sample(300, given=given).to_pylist())


def test_a_condition_that_no_value_meets_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no row"):
        even(tmp_path, 500)[1].sample(3, given={"age": {"from": 3.2, "below": 3.9}})


@pytest.mark.parametrize(
    ("most", "error", "kept", "word"),
    [
        (30, MemoryError(), 25, "more than memory holds"),
        (0, ValueError("no cells"), 0, "not possible: ValueError: no cells"),
    ],
)
def test_rows_that_cannot_be_drawn_lose_no_release(data, tmp_path, monkeypatch, most, error, kept, word):
    draw = Model.draw

    def failing(self, rows, generator, given=None):
        if rows > most:
            raise error
        return draw(self, rows, generator, given)

    monkeypatch.setattr(Model, "draw", failing)
    made = cl.synth.mst(data, spend=cl.rho(2), rows=100)
    monkeypatch.setattr(Model, "draw", draw)
    assert len(made) == kept
    assert made.side["rows left out"] == f"{kept} of 100 rows were drawn: {word}. Use .sample() for more."
    assert made.left_out in str(made)
    assert made.sample(70).num_rows == 70
    assert made.count().value > 0
    made.to_parquet(tmp_path / "made.parquet")
    again = cl.synth.read_table(tmp_path / "made.parquet")
    again.verify(data.account.book.key.public)
    assert again.side["rows left out"] == made.left_out


def test_an_estimated_number_of_rows_that_noise_made_large_is_cut_and_said(data, monkeypatch):
    monkeypatch.setattr(domain, "_MOST_UNASKED", 100)
    made = cl.synth.mst(data, spend=cl.rho(2))
    assert len(made) == 100 // len(made.domain.axes)
    assert "rows were estimated" in made.side["rows left out"]
    assert "rows left out" not in cl.synth.mst(data, spend=cl.rho(2), rows=500).side

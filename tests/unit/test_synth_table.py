"""A synthetic table: rows of the schema's kind, a side file, answers with error bars, samples under a condition."""

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
from cloister.synth.errors_expected import Expected, expected_error
from cloister.synth.review import Review

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


def test_the_expected_error_is_near_the_real_one(table):
    cells, real = table.cells(), table.domain.encode(TABLE)
    for names in (("ward",), ("ward", "age"), ("age", "cost")):
        places = [table.domain.names.index(name) for name in names]
        shape = [table.domain.axes[place].size for place in places]
        found, true = np.zeros(shape), np.zeros(shape)
        np.add.at(found, tuple(cells[:, place] for place in places), 1 / ROWS)
        np.add.at(true, tuple(real[:, place] for place in places), 1 / ROWS)
        off = 0.5 * np.abs(found - true).sum()
        assert off < 2 * table.error(names).error + 0.01


def test_the_side_file_tells_loss_measurements_errors_and_receipt(table, data, tmp_path):
    place = table.to_parquet(tmp_path / "made.parquet")
    side = json.loads(place.read_text(encoding="utf-8"))
    assert place.name == "made.parquet.side.json"
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
    place, size = table.domain.places["age"], table.domain.axis("age").size
    noise = min(float(one.sigma) for one in table.made.measured if one.places == (place,))
    bound = 0.5 * math.sqrt(2 / math.pi) * noise * size / table.made.model.total

    def error(margin, *names, ways=(0.0, 0.0, 0.0)):
        review = Review(ways, (0.0,) * len(table.domain.modelled), margin, margin)
        places = tuple(sorted(table.domain.places[name] for name in names))
        return expected_error(replace(table.made, review=review), table.domain, places, None)

    assert error(1.0, "age") == Expected(pytest.approx(bound), pytest.approx(bound), "noise")
    assert error(bound / 2, "age") == Expected(pytest.approx(bound / 2), pytest.approx(bound / 2), "review")
    assert error(1.0, "age", "cost", "ward").error >= bound  # what three columns show is no less than what one does
    assert error(0.0, "age", "cost", "ward", ways=(0.0, 0.0, 0.4)).error == pytest.approx(0.4)
    assert error(0.98, "age", "cost", "ward").error == pytest.approx(0.5)  # nor less than the review's own noise


def test_the_side_file_tells_the_error_of_every_marginal_that_was_measured(data):
    names = ["ward", "age", "cost"]
    made = cl.synth.m_way(data, spend=cl.rho(1), columns=names, bins=6, rows=50)
    told = {tuple(one["columns"]): one["error"] for one in made.side["expected error"]["marginals"]}
    assert told[tuple(names)] == pytest.approx(made.error(names).error, abs=1e-6)

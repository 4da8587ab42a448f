"""The textbook's synthetic tables, corrected: a draw for each cell, the whole domain, and prices that add up."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.data.schema import Schema
from cloister.privacy.errors import BadBounds, BadInput
from cloister.privacy.filter import noise_for

from ..synth.people import BY_PERSON, opened, people

STATES = ["divorced", "af-spouse", "civ-spouse", "absent", "never", "separated", "widowed"]
CENSUS = Schema.load(
    {
        "unit": "row",
        "tables": {
            "census": {
                "columns": {
                    "age": {"type": "integer", "bounds": [0, 99], "nullable": False},
                    "marital": {"type": "text", "categories": STATES, "nullable": False},
                    "occupation": {"type": "text", "categories": ["sales", "craft"]},
                }
            }
        },
    }
)
SHARES = np.array([4443, 23, 14976, 418, 10683, 1025, 993]) / 32561


def census(rows: int = 32561) -> pa.Table:
    generator = np.random.default_rng(6)
    age = np.clip(generator.gamma(6, 6.5, rows).astype(np.int64), 17, 90)
    job = np.array(["sales", "craft", "?"])[generator.integers(0, 3, rows)]
    return pa.table({"age": age, "marital": generator.choice(STATES, rows, p=SHARES), "occupation": job})


@pytest.fixture(scope="module")
def rows() -> Any:
    return census()


@pytest.fixture
def ds(tmp_path, rows):
    return cl.open(rows, schema=CENSUS, budget=cl.epsilon(1000), ledger=tmp_path)


def test_the_range_query_has_the_error_of_the_textbook(ds, rows):
    ages = synth.histogram(ds, column="age", spend=cl.epsilon(1))
    asked = ages.range(44, 55)
    exact = int(np.sum((rows["age"].to_numpy() >= 44) & (rows["age"].to_numpy() < 55)))
    # Eleven bins; whole-number Laplace noise at epsilon 1 has the variance 1.84, the textbook's real-valued one 2.
    assert asked.error == pytest.approx(math.sqrt(11 * 2 * math.exp(-1) / (1 - math.exp(-1)) ** 2))
    assert asked.error < math.sqrt(22)
    assert abs(asked.value - exact) < 8 * asked.error
    assert ages.counts.shape == (100,)
    assert len(ages.labels) == 100
    assert ages.domain.table == "census"
    assert ages.parameters["method"] == "histogram"


def test_people_with_one_row_get_the_square_root_of_22(tmp_path):
    facts = {"unit": "person", "columns": {"age": {"type": "integer", "bounds": [0, 99], "nullable": False}}}
    schema = Schema.load({"unit": {"name": "person", "max_rows": 1}, "tables": {"census": facts}})
    table = pa.table({"person": np.arange(900), "age": np.arange(900) % 100})
    ages = synth.histogram(
        cl.open(table, schema=schema, budget=cl.epsilon(9), ledger=tmp_path), column="age", spend=cl.epsilon(1)
    )
    assert ages.range(44, 55).error == pytest.approx(math.sqrt(22), rel=1e-6)


def test_every_range_comes_from_one_charge_and_every_bin_has_noise_of_its_own(ds, rows):
    ages = synth.histogram(ds, column="age", spend=cl.epsilon(1), random_state=3)
    before = ds.left
    exact = np.bincount(rows["age"].to_numpy(), minlength=100)
    assert [ages.range(i, i + 1).value for i in range(100)] == list(ages.counts)
    assert ages.range(0, 100).value == pytest.approx(ages.counts.sum())
    assert ds.left == before
    noise = ages.counts - exact
    assert len(np.unique(noise)) > 4, "one draw was added to every cell"
    assert np.any(noise[exact == 0] != 0), "empty cells have no noise"
    assert noise.std() == pytest.approx(ages.standard_error, rel=0.5)


def test_a_range_is_closed_below_and_open_above(ds):
    ages = synth.histogram(ds, column="age", spend=cl.epsilon(1))
    assert ages.range(20, 30).value + ages.range(30, 40).value == pytest.approx(ages.range(20, 40).value)
    with pytest.raises(BadBounds, match="low <= value < high"):
        ages.range(30, 30)


def test_a_bin_that_is_cut_counts_by_its_part(tmp_path):
    costs = synth.histogram(opened(tmp_path), column="cost", spend=cl.rho(10), bins=10)
    half, whole = costs.range(0, 5), costs.range(0, 10)
    assert half.value == pytest.approx(whole.value / 2)
    assert half.error == pytest.approx(whole.error / 2)
    assert costs.range(0, 1e9).value == pytest.approx(costs.counts[:-1].sum()), "missing values are in no range"
    assert costs.labels[-1] == "missing"
    with pytest.raises(BadInput, match="has no order"):
        synth.histogram(opened(tmp_path), column="ward", spend=cl.rho(10)).range(0, 1)


def test_one_column_is_drawn_from_its_public_domain(ds, rows):
    table = synth.one_column(ds, column="age", spend=cl.epsilon(1), rows=10)
    assert len(table) == 10
    assert table.to_arrow().column_names == ["age"]
    large = synth.one_column(ds, column="age", spend=cl.epsilon(1), rows=32561).to_arrow()["age"].to_numpy()
    shares = [np.bincount(one, minlength=100) / len(one) for one in (large, rows["age"].to_numpy())]
    assert np.abs(shares[0] - shares[1]).sum() / 2 < 0.02
    assert set(large) <= set(range(100))


def test_two_columns_are_counted_over_the_whole_cross_product(ds, rows):
    table = synth.two_way(ds, columns=["age", "marital"], spend=cl.epsilon(1))
    counts = table.made.measured[0].counts
    assert counts.shape == (100, 7), "the domain is public: 700 cells, occupied or not"
    assert len(np.unique(counts[:15])) > 1, "ages that nobody has need noise too"
    # The number of rows is the total of 700 noisy cells, and costs nothing more.
    assert abs(table.made.model.total - rows.num_rows) < 8 * math.sqrt(700 * 2)
    assert ds.left == cl.epsilon(999)
    drawn = table.to_pandas()["marital"].value_counts(normalize=True).reindex(STATES).fillna(0).to_numpy()
    assert np.abs(drawn - SHARES).sum() / 2 < 0.02
    assert list(table.to_arrow().column_names) == ["age", "marital"]


def test_three_columns_have_a_cell_for_what_is_missing(ds):
    table = synth.m_way(ds, columns=["age", "occupation", "marital"], spend=cl.epsilon(1), bins=100)
    assert table.made.measured[0].counts.shape == (100, 3, 7)
    share = table.to_arrow()["occupation"].null_count / len(table)
    assert share == pytest.approx(1 / 3, abs=0.05)


def test_a_domain_that_is_too_large_is_refused_in_words_and_for_nothing(ds):
    before = ds.left
    with pytest.raises(BadInput, match=r"100 age × 7 marital are 700 cells, and 500 are the most. Name fewer columns"):
        synth.m_way(ds, columns=["age", "marital"], spend=cl.epsilon(1), bins=100, most_cells=500)
    for wrong in ("age", ["age"], ["age", "age"]):
        with pytest.raises(BadInput):
            synth.two_way(ds, columns=wrong, spend=cl.epsilon(1))
    assert ds.left == before


def test_noise_is_of_the_stated_scale_for_people_with_several_rows(tmp_path):
    ds = opened(tmp_path, people(), BY_PERSON)
    noise = noise_for(2 * 2**20, 2 * 2**20, cl.rho("0.5")).standard_error / 2**20
    assert synth.histogram(ds, column="age", spend=cl.rho("0.5")).standard_error == pytest.approx(noise)
    assert noise == pytest.approx(2.0, rel=1e-3)

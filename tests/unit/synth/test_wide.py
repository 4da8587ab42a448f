"""Many columns and large categories: what cannot be carried out is refused before the charge, and the rest is made."""

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.privacy.errors import BadInput, BadSchema
from cloister.privacy.ledger import Ledger
from cloister.synth.domain.coarsening import most_grains
from cloister.synth.domain.domain import read_domain
from cloister.synth.generators.aim import _weights
from cloister.synth.measure import error_estimate
from cloister.synth.measure.marginals import NoisyMarginal
from cloister.synth.model import marginal_oracle
from cloister.synth.model.inference import fit

SPEND = cl.rho(10)


def opened(folder, table, columns, **facts):
    schema = {"unit": "row", "tables": {"t": {"columns": columns, **facts}}}
    return cl.open(table, schema=schema, budget=cl.rho(10**6), ledger=Ledger.in_folder(folder))


def binary(folder, columns, rows=80):
    random = np.random.default_rng(0)
    base = random.integers(0, 2, rows)
    drawn = [np.where(random.random(rows) < 0.8, base, random.integers(0, 2, rows)) for _ in range(columns)]
    facts = {f"c{i}": {"type": "integer", "categories": [0, 1], "nullable": False} for i in range(columns)}
    return opened(folder, pa.table({f"c{i}": one for i, one in enumerate(drawn)}), facts)


def coded(folder, sizes, rows=150, **facts):
    """Columns of text categories, a few of which are common and most of which nobody has."""
    random = np.random.default_rng(1)
    columns, table = {}, {}
    for name, size in sizes.items():
        listed = [f"{name}{i}" for i in range(size)]
        columns[name] = {"type": "text", "categories": listed, "nullable": False}
        table[name] = [listed[i] for i in np.minimum(random.geometric(0.05, rows), size) - 1]
    return opened(folder, pa.table(table), columns, **facts)


@pytest.fixture(autouse=True)
def few_looks(monkeypatch):
    monkeypatch.setattr(error_estimate, "_MOST_SETS", 60)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("independent", {}),
        ("mst", {}),
        ("aim", {"rounds": 1}),
        ("privbayes", {"degree": 1}),
        ("mixture", {"fits": 1}),
        ("mggm", {"reviewed": False}),
        ("ron_gauss", {"reviewed": False}),
    ],
)
def test_a_table_of_53_columns_is_made(tmp_path, monkeypatch, name, own):
    monkeypatch.setattr("cloister.synth.generators.privbayes._LOOKED_AT", 60)
    monkeypatch.setattr("cloister.synth.generators.aim._LOOKED_AT", 10)
    made = getattr(synth, name)(binary(tmp_path, 53), spend=SPEND, rows=40, **own)
    assert made.to_arrow().shape == (40, 53)
    assert made.side["expected error"]["marginals"]
    assert made.count({"c0": 1, "c52": 1}).value >= 0


def test_a_plan_of_53_columns_says_what_it_would_measure(tmp_path):
    ds = binary(tmp_path, 53, rows=5)
    assert "53 columns by themselves" in str(synth.plan(ds, "mst", spend=SPEND, rows=1000))


@pytest.mark.parametrize("name", ["mwem", "m_way"])
def test_what_keeps_all_combinations_refuses_many_columns_before_the_charge(tmp_path, name):
    ds = binary(tmp_path, 53, rows=5)
    before = ds.left
    with pytest.raises(BadInput, match="at most"):
        getattr(synth, name)(ds, spend=SPEND)
    one = {f"c{i}": {"type": "integer", "categories": [1], "nullable": False} for i in range(70)}
    alone = opened(tmp_path / "one", pa.table({name: [1, 1] for name in one}), one)
    with pytest.raises(BadInput, match="at most"):
        getattr(synth, name)(alone, spend=SPEND)
    assert ds.left == alone.left == before


def chained(columns):
    """A model in which each column tells of the next, and of the one after it."""
    random = np.random.default_rng(2)
    pairs = [NoisyMarginal((i, i + 1), random.random((2, 2)) + 0.1, 0.01) for i in range(columns - 1)]
    return fit((2,) * columns, pairs, total=1.0, steps=20)


@pytest.mark.parametrize("columns", [53, 130])
def test_a_model_of_many_columns_answers_as_multiplied_matrices_do(columns):
    asked = marginal_oracle.MarginalOracle(model := chained(columns))
    joint = asked.joint((0, 1))
    for position in range(1, columns - 1):
        pair = asked.joint((position, position + 1))
        joint = joint @ (pair / pair.sum(axis=1, keepdims=True))
    assert asked.joint((0, columns - 1)) == pytest.approx(joint, abs=1e-12)
    ends = asked.joint((0, 60 % columns, columns - 1))
    assert ends.sum(axis=1) == pytest.approx(joint, abs=1e-12)
    cells = tuple(np.array(one) for one in ([0, 1, 1], [1, 0, 1]))
    assert asked.at((0, columns - 1), cells) == pytest.approx(joint[cells] * model.total)
    weights = [np.array([0.25, 1.0]), np.array([0.5, 0.0])]
    assert asked.weighed((0, columns - 1), weights) == pytest.approx(float(weights[0] @ joint @ weights[1]))


def test_candidates_are_worth_what_the_workload_shares_of_their_columns(tmp_path):
    domain = read_domain(binary(tmp_path, 7, rows=2))[0]
    asked = {("c0", "c1", "c2", "c3"): 2.0, ("c1", "c5"): 0.5, ("c6",): 1.0}
    found = _weights(domain, asked)
    by_hand = {
        part: sum(worth * len({f"c{i}" for i in part} & set(names)) for names, worth in asked.items()) for part in found
    }
    assert found == pytest.approx({part: worth / max(by_hand.values()) for part, worth in by_hand.items()})
    assert len(_weights(read_domain(binary(tmp_path / "w", 120, rows=2))[0], None)) == 280_840 + 7_140


@pytest.mark.parametrize("name", ["independent", "mst", "aim", "privbayes"])
@pytest.mark.parametrize("sizes", [{"icd": 8_000, "postcode": 8_000}, {"a": 600, "b": 600, "c": 600}], ids=str)
def test_large_categories_are_made_without_a_table_of_all_combinations(tmp_path, monkeypatch, name, sizes):
    # A pair of the first has 64 million cells, a triple of the second 216 million: neither is ever listed.
    zeros, largest = np.zeros, []

    def small(shape, *told, **more):
        largest.append(int(np.prod(shape)))
        assert largest[-1] < 30_000_000, "a table of all combinations was asked for"
        return zeros(shape, *told, **more)

    monkeypatch.setattr(np, "zeros", small)
    own = {"rounds": 2} if name == "aim" else {}
    made = getattr(synth, name)(coded(tmp_path, sizes), spend=SPEND, rows=200, **own)
    first, second = list(sizes)[:2]
    common = made.count({first: f"{first}0", second: [f"{second}{i}" for i in range(50)]})
    assert 0 <= common.value < 150  # about seven rows have the first value: noise may leave none
    assert len(made.made.review.columns) == len(sizes)
    assert made.side["expected error"]["marginals"]
    assert made.sample(20, given={first: f"{first}0"}).column(first).to_pylist() == [f"{first}0"] * 20


def test_no_column_of_a_model_has_more_cells_than_pairs_have_room_for():
    for columns in (1, 2, 3, 60, 1000):
        assert (columns - 1) * most_grains(columns) ** 2 <= 8_000_000 or most_grains(columns) == 16


def test_a_score_of_large_categories_needs_no_table_of_all_combinations(tmp_path):
    ds = coded(tmp_path, {"icd": 8_000, "postcode": 8_000})
    made = synth.mst(ds, spend=SPEND, rows=200)
    told = synth.publishable_score(ds, made, spend=SPEND)
    assert 0 < told.two_way.value <= 1


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"determines": ["icd -> postcode"]}, "decide of postcode"),
        ({"never": [{"icd": "icd0"}]}, "never speaks of icd"),
    ],
)
def test_rules_over_large_categories_are_refused_before_the_charge(tmp_path, facts, words):
    ds = coded(tmp_path, {"icd": 8_000, "postcode": 8_000}, rows=5, **facts)
    before = ds.left
    with pytest.raises(BadSchema, match=words):
        synth.mst(ds, spend=SPEND)
    assert ds.left == before


def test_more_rows_than_memory_holds_are_refused_before_the_charge(tmp_path):
    ds = binary(tmp_path, 3)
    before = ds.left
    with pytest.raises(BadInput, match="draw more with"):
        synth.independent(ds, spend=SPEND, rows=10**12)
    assert ds.left == before


@pytest.mark.parametrize("name", ["independent", "mst", "aim", "privbayes", "mixture", "mwem"])
def test_odd_columns_are_made(tmp_path, name):
    columns = {
        "one": {"type": "text", "categories": ["x"], "nullable": False},
        "gone": {"type": "integer", "bounds": [0, 10**15]},
        "flat": {"type": "real", "bounds": [-1e300, 1e300]},
        "day": {"type": "date", "bounds": ["2020-01-01", "2020-01-02"]},
        "yes": {"type": "boolean"},
    }
    table = pa.table(
        {
            "one": ["x"] * 6,
            "gone": pa.array([None] * 6, pa.int64()),
            "flat": [0.0, float("nan"), float("inf"), -1e308, 1.0, None],
            "day": pa.array([18262] * 6, pa.int32()).cast(pa.date32()),
            "yes": [True, None, False, True, True, None],
        }
    )
    own = {"aim": {"rounds": 2}, "mixture": {"fits": 1}, "mwem": {"rounds": 2}}.get(name, {})
    made = getattr(synth, name)(opened(tmp_path, table, columns), spend=SPEND, rows=30, bins=4, **own)
    assert made.to_arrow().num_rows == 30
    assert made.side["expected error"]["marginals"]

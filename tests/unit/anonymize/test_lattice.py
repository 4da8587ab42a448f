"""The search finds the cheapest node, proves it, and says how far off it may be when it is stopped."""

import itertools

import numpy as np
import pytest

from cloister.anonymize.algorithms import lattice as lattices
from cloister.anonymize.algorithms.lattice import Lattice, search
from cloister.anonymize.classes import group
from cloister.anonymize.coded import CodedTable
from cloister.anonymize.hierarchy import Hierarchy, automatic
from cloister.anonymize.models import (
    BetaLikeness,
    DistinctDiversity,
    EntropyDiversity,
    KAnonymity,
    Requirement,
    TCloseness,
)
from tests.unit.anonymize.tables import QUASI, people

MODELS = [
    [KAnonymity(5)],
    [KAnonymity(3), DistinctDiversity(2, "disease")],
    [KAnonymity(3), TCloseness(0.3, "disease")],
    [EntropyDiversity(2, "disease")],
    [KAnonymity(2), BetaLikeness(2, "disease")],
]


def build(rows, seed, models, suppression, weights=None):
    table = people(rows, seed, missing=0.05)
    coded = CodedTable.of(table, [*QUASI, "disease"])
    hierarchies = [automatic(coded.columns[name]).over(coded.columns[name]) for name in QUASI]
    sensitive = {"disease": coded.columns["disease"]}
    return Lattice(hierarchies, sensitive, Requirement.of(models), suppression, weights)


def cheapest(lattice):
    nodes = itertools.product(*(range(height + 1) for height in lattice.heights))
    return min(lattice.evaluate(node).loss for node in nodes)


@pytest.mark.parametrize("suppression", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("models", MODELS, ids=lambda models: ", ".join(model.label for model in models))
def test_the_search_finds_the_cheapest_node(models, suppression):
    for seed in range(6):
        lattice = build(60 + 40 * seed, seed, models, suppression)
        found = search(lattice)
        visited = found.visited
        best = cheapest(lattice)
        if not np.isfinite(best):
            assert found.best is None
            continue
        assert found.best.loss == pytest.approx(best)
        assert found.bound <= best + 1e-6
        if not (suppression and lattice.requirement.relative):  # else which classes to suppress is a problem of its own
            assert found.optimal
            assert found.bound == pytest.approx(best)
        assert visited <= lattice.size


@pytest.mark.parametrize("models", MODELS[:3], ids=lambda models: ", ".join(model.label for model in models))
def test_rows_that_boxes_do_not_keep_are_read_again(models, monkeypatch):
    monkeypatch.setattr(lattices, "_MOST_HELD", 0)
    for seed in range(3):
        lattice = build(80, seed, models, 0.1)
        found = search(lattice)
        assert found.best.loss == pytest.approx(cheapest(lattice))
        assert found.optimal or lattice.requirement.relative
        assert found.bound <= found.best.loss


@pytest.mark.parametrize("models", MODELS, ids=lambda models: ", ".join(model.label for model in models))
def test_a_node_costs_the_same_in_a_box_and_by_itself(models, monkeypatch):
    monkeypatch.setattr(lattices, "_WALK", 1)
    monkeypatch.setattr(lattices, "_RISE", 1)
    for seed in range(4):
        found = search(build(120, seed, models, 0.2))
        alone = build(120, seed, models, 0.2)
        for node, evaluated in found.seen.items():
            assert evaluated.loss == pytest.approx(alone.evaluate(node).loss)
            assert evaluated.least == pytest.approx(alone.evaluate(node).least)


def test_the_optimum_of_a_billion_nodes_is_proven():
    """Only three of thirty columns differ between rows, so no other one is generalised."""
    draw = np.random.default_rng(1)
    table = {f"q{place}": draw.choice(["a", "b"], 60).tolist() for place in range(3)}
    table |= {f"q{place}": ["a"] * 60 for place in range(3, 30)}

    def lattice_of(names):
        coded = CodedTable.of(table, names)
        flat = [Hierarchy.flat().over(coded.columns[name]) for name in names]
        return Lattice(flat, {}, Requirement.of(KAnonymity(5)), 0)

    lattice = lattice_of(list(table))
    found = search(lattice)
    assert lattice.size == 2**30
    assert found.optimal
    assert found.best.node[:3] == search(lattice_of(["q0", "q1", "q2"])).best.node
    assert found.best.node[3:] == (0,) * 27


def test_the_optimum_of_twelve_columns_with_five_levels_is_proven_with_few_looks():
    draw = np.random.default_rng(2)
    common = draw.normal(size=(400, 1))
    values = np.clip(np.round(40 + 10 * (0.8 * common + 0.6 * draw.normal(size=(400, 12)))), 0, 79).astype(int)
    coded = CodedTable.of({f"q{place}": values[:, place].tolist() for place in range(12)}, [f"q{p}" for p in range(12)])
    ladder = Hierarchy.intervals(0, 80, [10, 20, 40])
    lattice = Lattice(
        [ladder.over(column) for column in coded.columns.values()], {}, Requirement.of(KAnonymity(5)), 0.05
    )
    found = search(lattice, seconds=60)
    assert lattice.size == 5**12
    assert found.optimal
    assert found.visited < 20_000


def stopped_after(monkeypatch, looks):
    """Let the clock run by one second each time it is read."""
    monkeypatch.setattr(lattices.time, "monotonic", itertools.count().__next__)
    return float(looks)


@pytest.mark.parametrize("models", [MODELS[0], MODELS[1], MODELS[3]], ids=lambda m: ", ".join(x.label for x in m))
def test_wherever_a_search_is_stopped_its_bound_holds(models, monkeypatch):
    best = cheapest(build(300, 1, models, 0.05))
    bounds = []
    for looks in range(2, 200, 9):
        found = search(build(300, 1, models, 0.05), seconds=stopped_after(monkeypatch, looks))
        bounds.append(found.bound)
        assert found.bound <= best + 1e-12
        if found.best is not None:
            assert best <= found.best.loss + 1e-12
            assert found.best.loss <= (1 + found.gap) * best + 1e-12
            assert found.optimal == ("proven" in found.describe())
    assert bounds == sorted(bounds)
    assert bounds[-1] > bounds[0]


def test_the_gap_is_the_share_of_the_optimum_that_may_be_lost():
    found = lattices.Search(best=lattices.Evaluated((0,), 0.548, 0, 1, 0.548), bound=0.5)
    assert found.gap == pytest.approx(0.096)
    assert "at most 9.6 % above the optimum" in found.describe()
    found.bound = 0.548 / 31
    assert found.gap == pytest.approx(30)
    assert "at most 3,000.0 % above" in found.describe()
    found.bound = 0.0
    assert "not known" in found.describe()


def test_a_search_that_is_stopped_states_a_bound_that_holds():
    lattice = build(300, 1, [KAnonymity(5)], 0.05)
    stopped = search(lattice, seconds=0.0)
    best = cheapest(lattice)
    assert stopped.bound <= best + 1e-12 <= stopped.best.loss + 1e-12
    assert stopped.best.loss <= (1 + stopped.gap) * best
    loose = search(build(300, 1, [KAnonymity(5)], 0.05), gap=0.5)
    assert loose.gap <= 0.5


def test_weights_decide_which_column_is_kept():
    dear = search(build(400, 2, [KAnonymity(5)], 0.0, {"age": 20.0, "zip": 1.0, "sex": 1.0})).best
    cheap = search(build(400, 2, [KAnonymity(5)], 0.0, {"age": 0.05, "zip": 1.0, "sex": 1.0})).best
    assert dear.node[0] < cheap.node[0]


def test_no_more_rows_are_suppressed_than_allowed():
    for allowed in (0.0, 0.01, 0.1):
        lattice = build(500, 3, [KAnonymity(10)], allowed)
        assert search(lattice).best.suppressed <= allowed * 500


def test_rows_that_no_node_tells_apart_are_counted():
    rows = {"age": [30] * 50 + [31] * 50, "zip": ["33617"] * 100, "sex": ["f"] * 100, "disease": ["flu"] * 100}
    coded = CodedTable.of(rows, [*QUASI, "disease"])
    hierarchies = [Hierarchy.flat().over(coded.columns[name]) for name in QUASI]
    lattice = Lattice(hierarchies, {}, Requirement.of(KAnonymity(50)), 0.0)
    assert search(lattice).best.node == (0, 0, 0)
    assert lattice.rows == 100


def test_progress_is_reported_up_to_the_proof():
    told = []
    search(build(200, 4, [KAnonymity(5)], 0.05), progress=lambda share, text: told.append((share, text)))
    assert told[-1][0] == pytest.approx(1.0)
    assert "proven optimum" in told[-1][1]


def test_keys_beyond_64_bits_are_grouped_right():
    draw = np.random.default_rng(0)
    columns = [draw.integers(0, 3, 200) * (2**31 // 3) for _ in range(4)]
    of_row, number = group(columns, [2**31] * 4)
    tuples = list(zip(*columns, strict=True))
    assert number == len(set(tuples))
    assert all((of_row[i] == of_row[j]) == (tuples[i] == tuples[j]) for i in range(40) for j in range(40))

"""The search finds the cheapest node, proves it, and says how far off it may be when it is stopped."""

import itertools

import numpy as np
import pytest
import scipy.optimize

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
def test_the_integer_program_finds_the_same_node(models, monkeypatch):
    monkeypatch.setattr(lattices, "_MOST_NODES", 0)
    for seed in range(3):
        lattice = build(80, seed, models, 0.1)
        found = search(lattice)
        assert found.best.loss == pytest.approx(cheapest(lattice))
        assert found.optimal or lattice.requirement.relative
        assert found.bound <= found.best.loss


def test_flat_columns_that_do_not_fit_into_memory_are_searched(monkeypatch):
    monkeypatch.setattr(lattices, "_MOST_NODES", 0)
    draw = np.random.default_rng(1)
    table = {f"q{place}": draw.choice(["a", "b"], 60).tolist() for place in range(6)}
    coded = CodedTable.of(table, list(table))
    lattice = Lattice(
        [Hierarchy.flat().over(coded.columns[name]) for name in table], {}, Requirement.of(KAnonymity(5)), 0
    )
    found = search(lattice)
    assert found.optimal
    assert found.best.loss == pytest.approx(cheapest(lattice))


def solver_with(monkeypatch, seconds):
    """Let each run of the integer program end after some seconds; return the limits that were asked for."""
    real, asked = scipy.optimize.milp, []

    def slow(*args, **options):
        asked.append(options["options"].get("time_limit"))
        return real(*args, **{**options, "options": {**options["options"], "time_limit": seconds}})

    monkeypatch.setattr(scipy.optimize, "milp", slow)
    monkeypatch.setattr(lattices, "_MOST_NODES", 0)
    return asked


def test_a_solver_that_runs_out_of_time_proves_nothing(monkeypatch):
    solver_with(monkeypatch, 0.0)
    lattice = build(200, 1, [KAnonymity(5)], 0.05)
    found = search(lattice)
    assert not found.optimal
    assert found.bound <= cheapest(lattice)
    assert "proven" not in found.describe()


def test_the_solver_has_the_time_that_is_left_and_no_other_limit(monkeypatch):
    asked = solver_with(monkeypatch, 20.0)
    search(build(120, 1, [KAnonymity(5)], 0.05), seconds=5.0)
    assert asked
    assert all(0 < limit <= 5.0 for limit in asked)
    asked.clear()
    search(build(60, 1, [KAnonymity(5)], 0.05))
    assert set(asked) == {None}


def test_the_gap_is_the_share_of_the_optimum_that_may_be_lost():
    found = lattices.Search(best=lattices.Evaluated((0,), 0.548, 0, 1, 0.0, 0.548), bound=0.5)
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

"""The model, against brute force over all cells of small domains."""

from itertools import combinations, permutations

import numpy as np
import pytest

from cloister.privacy.errors import BadInput
from cloister.synth.domain.coarsening import grain_marginal, nonnegative
from cloister.synth.domain.domain import Zero
from cloister.synth.measure.marginals import NoisyMarginal, merged_counts
from cloister.synth.model.inference import Grain, Model, clique_weights, fit, propagate, total_of
from cloister.synth.model.junction_tree import junction_tree, tree_cells, tree_cliques
from cloister.synth.model.marginal_oracle import MarginalOracle
from cloister.synth.model.sampling import draw

SHAPE = (3, 2, 4, 2, 3)
SETS = [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4)]
generator = np.random.default_rng(3)
JOINT = generator.dirichlet(np.full(int(np.prod(SHAPE)), 0.4)).reshape(SHAPE) * 5000


def over(joint, positions):
    return joint.sum(axis=tuple(i for i in range(joint.ndim) if i not in positions))


def exact(sets, sigma=1.0):
    return [NoisyMarginal(positions, over(JOINT, positions), sigma) for positions in sets]


def brute(model):
    """The product of all factors over all cells."""
    joint = np.zeros(model.shape)
    for positions, factor in model.factors.items():
        joint = joint + factor.reshape([model.shape[p] if p in positions else 1 for p in range(len(model.shape))])
    for zero in model.zeros:
        sides = [model.shape[p] if p in zero.positions else 1 for p in range(len(model.shape))]
        joint = joint + np.where(zero.allowed, 0.0, -np.inf).reshape(sides)
    joint = np.exp(joint - joint.max())
    return joint / joint.sum() * model.total


def test_every_set_lies_in_a_clique_and_cliques_run_together():
    tree = junction_tree(SHAPE, SETS)
    assert all(tree.home(positions, SHAPE) >= 0 for positions in SETS)
    for i, (clique, parent, shared) in enumerate(zip(tree.cliques, tree.parents, tree.separators, strict=True)):
        before = {position for other in tree.cliques[:i] for position in other}
        # What a clique has in common with all before it, it has in common with its parent.
        assert set(clique) & before == set(shared)
        assert parent < i
    assert tree_cells(tree_cliques(SHAPE, SETS), SHAPE) == sum(
        int(np.prod([SHAPE[p] for p in c])) for c in tree.cliques
    )


@pytest.mark.parametrize("zeros", [(), (Zero((1, 3), np.array([[True, False], [True, True]])),)])
def test_marginals_of_any_columns_agree_with_brute_force(zeros):
    model = fit(SHAPE, exact(SETS), zeros=zeros, steps=40, enough=0)
    joint, asked = brute(model), MarginalOracle(model)
    for size in range(1, len(SHAPE) + 1):
        for positions in combinations(range(len(SHAPE)), size):
            assert np.allclose(asked.marginal(positions), over(joint, positions), atol=1e-6), positions


def test_the_fit_meets_what_was_measured_exactly():
    model = fit(SHAPE, exact(SETS), steps=3000, enough=0)
    for positions in SETS:
        assert np.abs(model.marginal(positions) - over(JOINT, positions)).sum() < 5


def test_of_all_tables_that_fit_the_model_has_the_greatest_entropy():
    model = fit(SHAPE, exact([(0, 1), (1, 2)]), steps=3000, enough=0)
    a, b = over(JOINT, (0, 1)), over(JOINT, (1, 2))
    expected = np.einsum("ij,jk->ijk", a, b / b.sum(axis=1, keepdims=True))
    assert np.abs(model.marginal((0, 1, 2)) - expected).sum() < 10


def test_columns_that_nothing_joins_are_independent():
    model = fit(SHAPE, exact([(0,), (4,)]), steps=500, enough=0)
    assert np.allclose(model.marginal((0, 4)), np.outer(model.marginal((0,)), model.marginal((4,))) / model.total)


def test_a_warm_start_begins_where_the_last_fit_ended():
    model = fit(SHAPE, exact(SETS[:3]), steps=300, enough=0)
    again = fit(SHAPE, exact(SETS), start=model, steps=0)
    for positions in SETS[:3]:
        assert np.allclose(again.marginal(positions), model.marginal(positions))


def test_a_fit_ends_where_the_noise_begins():
    sigma, positions = 30.0, (0, 2)
    noisy = [
        NoisyMarginal(one.positions, one.counts + generator.normal(0, sigma, one.counts.shape), sigma)
        for one in exact([positions])
    ]
    losses = []
    fit(SHAPE, noisy, steps=2000, enough=0.9, watch=lambda step, loss: losses.append(loss))
    assert losses[-1] <= 0.9 * 0.5 * 12 < losses[-2]


def test_measurements_in_coarser_cells_are_met_in_those_cells():
    merge = np.array([0, 0, 1, 1])
    coarse = merged_counts(over(JOINT, (1, 2)), (None, merge))
    measured = [*exact([(1,), (2,)]), NoisyMarginal((1, 2), coarse, 1.0, (None, merge))]
    model = fit(SHAPE, measured, steps=3000, enough=0)
    assert np.abs(merged_counts(model.marginal((1, 2)), (None, merge)) - coarse).sum() < 5


def test_cells_that_are_taken_together_are_shared_out_again():
    grain = Grain(np.array([0, 1, 1, 2]), np.array([1.0, 0.25, 0.75, 1.0]))
    single = grain_marginal(exact([(2,)])[0], [*(Grain.whole(size) for size in SHAPE[:2]), grain])
    assert single.counts.shape == (3,)
    assert np.allclose(single.sigma, [1.0, np.sqrt(2), 1.0])
    grains = [grain if i == 2 else Grain.whole(size) for i, size in enumerate(SHAPE)]
    shape = [one.size for one in grains]
    model = fit(shape, [single, *exact([(0,)])], grains=grains, steps=500, enough=0)
    held = model.marginal((2,))
    assert held.shape == (4,)
    assert held[1] * 3 == pytest.approx(held[2])
    assert model.marginal((0, 2)).sum() == pytest.approx(model.total)


def test_the_total_comes_from_all_marginals():
    assert (
        total_of([NoisyMarginal((0,), np.array([10.0, 20.0]), 1.0), NoisyMarginal((1,), np.array([36.0]), 1.0)]) == 34.0
    )


def test_the_projection_keeps_the_total_and_no_count_is_negative():
    counts = nonnegative(np.array([50.0, -20.0, 3.0, 70.0]), 100.0)
    assert counts.sum() == pytest.approx(100)
    assert (counts >= 0).all()


def test_rows_follow_the_model():
    model = fit(SHAPE, exact(SETS), steps=300, enough=0)
    cells = draw(model, 200_000, np.random.default_rng(1))
    for positions in (*SETS, (0, 4)):
        found = np.zeros([SHAPE[position] for position in positions])
        np.add.at(found, tuple(cells[:, position] for position in positions), 1)
        assert np.abs(found / 200_000 - model.marginal(positions) / model.total).sum() < 0.02


def test_rows_never_are_what_never_occurs():
    allowed = np.array([[True, False], [True, True]])
    model = fit(SHAPE, exact(SETS), zeros=[Zero((1, 3), allowed)], steps=100, enough=0)
    cells = draw(model, 50_000, np.random.default_rng(1))
    assert allowed[cells[:, 1], cells[:, 3]].all()


def test_rows_under_a_condition_meet_it_and_follow_the_rest():
    model = fit(SHAPE, exact(SETS), steps=300, enough=0)
    cells = draw(model, 100_000, np.random.default_rng(1), {2: np.array([False, True, True, False])})
    assert set(np.unique(cells[:, 2])) == {1, 2}
    joint = model.marginal((0, 2))[:, 1:3].sum(axis=1)
    assert np.abs(np.bincount(cells[:, 0], minlength=3) / 100_000 - joint / joint.sum()).sum() < 0.02


def test_a_condition_that_nothing_meets_is_refused():
    model = fit(SHAPE, exact(SETS), zeros=[Zero((1,), np.array([True, False]))], steps=50, enough=0)
    with pytest.raises(BadInput, match="no row of the model"):
        draw(model, 10, np.random.default_rng(1), {1: np.array([False, True])})


def test_weights_of_cliques_are_the_sum_of_what_they_hold():
    model = fit(SHAPE, exact(SETS), steps=20, enough=0)
    weights = clique_weights(model)
    assert sum(float(one.sum()) for one in weights) != 0
    assert [one.shape for one in weights] == [tuple(SHAPE[p] for p in clique) for clique in model.tree.cliques]


def test_the_size_of_a_question_is_that_of_the_largest_table_it_needs(monkeypatch):
    from cloister.synth.model import marginal_oracle

    model = fit(SHAPE, exact(SETS), steps=20)
    for positions in [*combinations(range(5), 2), *combinations(range(5), 3), (0, 1, 2, 4)]:
        asked, sizes = MarginalOracle(model), []

        def watched(*given, real=marginal_oracle.einsum, kept=sizes, **how):
            table = real(*given, **how)
            kept.append(table.size)
            return table

        monkeypatch.setattr(marginal_oracle, "einsum", watched)
        told = asked.cells(positions)
        answer = asked.joint(positions)
        monkeypatch.undo()
        assert max([answer.size, *sizes]) <= told <= 4 * max([answer.size, *sizes])


def agrees_with_brute_force(model, sets):
    with np.errstate(all="raise", under="ignore"):
        model.beliefs = propagate(model)
    for positions in sets:
        np.testing.assert_allclose(model.marginal(positions), over(brute(model), positions), atol=1e-9)


def bare(shape, sets):
    return Model(shape, junction_tree(shape, sets), {}, (), 1.0, tuple(map(Grain.whole, shape)))


@pytest.mark.parametrize("scale", [1, 100, 300, 1000])
def test_factors_that_no_float_can_multiply_still_make_a_model(scale):
    """Columns that insist on different values: products of what is left would be below the smallest float."""
    for seed in range(60):
        factors, model = np.random.default_rng(seed), bare(SHAPE, SETS)
        for positions in SETS:
            model.factors[positions] = factors.normal(0, scale, [SHAPE[position] for position in positions])
        agrees_with_brute_force(model, SETS)


def test_messages_that_vanish_in_a_part_of_the_tree_still_make_a_model():
    """Two leaves insist on different values, so all messages from there are tiny; of these the least likely wins."""
    leaning = {(0, 1): [-500, 0], (1, 2): [0, -300], (2, 3): [0, -437], (2, 4): [-437, 0]}  # by the middle column
    for order in permutations(range(5)):
        sets = [tuple(sorted(order[position] for position in pair)) for pair in leaning]
        model = bare((2,) * 5, sets)
        for (pair, weights), positions in zip(leaning.items(), sets, strict=True):
            middle = order[pair[1] if pair[0] == 0 else pair[0]]
            table = np.zeros((2, 2)) + np.reshape(weights, (2, 1) if positions[0] == middle else (1, 2))
            model.factors[positions] = table.astype(float)
        agrees_with_brute_force(model, sets)

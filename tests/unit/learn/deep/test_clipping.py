"""Sums of clipped gradients: exact sensitivity, whatever the rows, the lot and the place are."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister import epsilon, rho
from cloister.learn.deep import clipping as clipping_module
from cloister.learn.deep import private_gradient
from cloister.learn.deep.clipping import GRID
from cloister.privacy.errors import BadInput, BadNumber, CloisterError
from cloister.privacy.noise import SeededSource

SOURCE = SeededSource("deep clipping")
X = (SOURCE.floats((40, 6)).astype(np.float32) - 0.5) * 4
Y = (SOURCE.floats(40) * 3).astype(np.int32)
PARAMS = {
    "hidden": (SOURCE.floats((6, 5)).astype(np.float32) - 0.5) * 2,
    "out": (SOURCE.floats((5, 3)).astype(np.float32) - 0.5) * 2,
    "bias": np.zeros(3, np.float32),
}
FORM = (((6,), np.dtype(np.float32)), ((), np.dtype(np.int32)))
CLIPPINGS = ["fixed", "per-layer", "automatic", "adaptive"]


def network(params, x, y):
    logits = jnp.tanh(x @ params["hidden"]) @ params["out"] + params["bias"]
    return jax.nn.logsumexp(logits) - logits[y]


def norm_squared(integers):
    return sum(int(number) ** 2 for number in integers)


@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("clip", [1e-6, 0.3, 1.0, 1e6])
def test_one_example_has_at_most_the_stated_norm_in_exact_integers(clipping, clip):
    gradient = private_gradient(network, clip=clip, clipping=clipping, micro=40)
    each = gradient.each(PARAMS, (X * 10.0 ** np.arange(-20, 20)[:, None].astype(np.float32), Y))
    assert max(map(norm_squared, each)) <= gradient.sensitivity**2
    weights = each[:, :-1] if clipping == "adaptive" else each
    assert max(map(norm_squared, weights)) <= GRID**2
    if clip < 1 or clipping == "automatic":  # the bound is reached to a millionth, so nothing is given away
        assert max(map(norm_squared, weights)) > 0.95 * GRID**2


@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("place", [0, 7, 40])
def test_one_row_more_moves_the_sum_by_exactly_its_own_integers(clipping, place):
    gradient = private_gradient(network, clipping=clipping, micro=16)
    more = tuple(np.insert(part, place, part[3] * 2, axis=0) for part in (X, Y % 2))
    less = (X, Y % 2)
    moved = gradient.sums(PARAMS, more) - gradient.sums(PARAMS, less)
    own = gradient.sums(PARAMS, tuple(part[place : place + 1] for part in more))
    assert np.array_equal(moved, own)
    assert norm_squared(moved) <= gradient.sensitivity**2


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(width=32), min_size=6, max_size=6),
    st.sampled_from(CLIPPINGS),
    st.integers(0, 15),
)
def test_no_row_whatever_its_cells_moves_the_sum_further(row, clipping, place):
    gradient = private_gradient(network, clip=0.7, clipping=clipping, micro=16)
    rows = (np.insert(X[:15], place, np.array(row, np.float32), axis=0), np.insert(Y[:15], place, 1))
    moved = gradient.sums(PARAMS, rows) - gradient.sums(PARAMS, (X[:15], Y[:15]))
    assert norm_squared(moved) <= gradient.sensitivity**2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_a_gradient_that_is_no_number_counts_as_zeros_and_changes_no_other(bad):
    gradient = private_gradient(lambda params, x: jnp.sum(params["w"] * x * x), micro=8)
    params, rows = {"w": np.ones(6, np.float32)}, X[:5].copy()
    before = gradient.sums(params, (rows[1:],))
    rows[0, 2] = bad
    assert np.array_equal(gradient.sums(params, (rows,)), before)


def test_the_grid_moves_each_number_of_a_gradient_by_less_than_one_step():
    gradient = private_gradient(network, clip=1e3, micro=40)
    plain = clipping_module._gradients(
        gradient._one, False, PARAMS, (X, Y), jax.random.key(0), np.zeros((40, 2), np.uint32)
    )
    flat = np.concatenate([np.asarray(leaf, np.float64).reshape(40, -1) for leaf in plain], axis=1)
    steps = flat / gradient.worth()
    each = gradient.each(PARAMS, (X, Y))
    slack = (flat.shape[1] + 64) * 2.0**-50
    assert np.all(np.abs(each) <= np.abs(steps))
    assert np.all(np.abs(each - steps) <= 1 + slack * np.abs(steps))


@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_clipping_does_what_its_name_says(clipping):
    gradient = private_gradient(network, clip=0.8, clipping=clipping, micro=40)
    plain = jax.tree.leaves(jax.vmap(jax.grad(network), in_axes=(None, 0, 0))(PARAMS, X, Y))
    leaves = [np.asarray(leaf, np.float64).reshape(40, -1) for leaf in plain]
    norm = np.sqrt(sum((leaf**2).sum(axis=1) for leaf in leaves))
    if clipping == "per-layer":
        scaled = [leaf * np.minimum(1, 0.8 / math.sqrt(3) / np.linalg.norm(leaf, axis=1))[:, None] for leaf in leaves]
    elif clipping == "automatic":
        scaled = [leaf / (norm + 0.01)[:, None] for leaf in leaves]
    else:
        scaled = [leaf * np.minimum(1, 0.8 / norm)[:, None] for leaf in leaves]
    each = gradient.each(PARAMS, (X, Y))
    if clipping == "adaptive":
        assert np.array_equal(each[:, -1] > 0, norm <= 0.8)
        each = each[:, :-1]
    assert np.allclose(each * gradient.worth(), np.concatenate(scaled, axis=1), rtol=1e-4, atol=1e-6)


def test_micro_lots_change_memory_and_nothing_else():
    sums = [private_gradient(network, micro=micro).sums(PARAMS, (X, Y)) for micro in (1, 7, 16, 64)]
    if all(np.array_equal(sums[0], other) for other in sums[1:]):
        return
    # Another size is another program, whose floats may differ in the last bit; then within the float's precision.
    assert all(np.abs(sums[0] - other).max() < 2000 for other in sums[1:])


def test_an_empty_lot_is_a_sum_of_zeros():
    assert not private_gradient(network).sums(PARAMS, (X[:0], Y[:0])).any()


def test_a_micro_lot_gives_equal_integers_in_all_places_or_examples_go_one_at_a_time():
    gradient = private_gradient(network, micro=16)
    assert not gradient.checked(PARAMS, FORM).one_at_a_time
    one = gradient.checked(PARAMS, FORM)
    together = one.each(PARAMS, (X[:16], Y[:16]))
    for place in range(16):
        order = np.roll(np.arange(16), place)
        assert np.array_equal(one.each(PARAMS, (X[order], Y[order])), together[order])


def test_a_program_whose_results_depend_on_the_place_is_run_one_example_at_a_time(monkeypatch):
    gradient = private_gradient(network, micro=8)
    real = type(gradient).each

    def uneven(self, params, rows, key=None, clip=None):
        found = real(self, params, rows, key, clip).copy()
        if not self.one_at_a_time:
            found[-1, 0] += 1  # the last place of a lot goes through another loop of the processor
        return found

    monkeypatch.setattr(type(gradient), "each", uneven)
    assert gradient.checked(PARAMS, FORM).one_at_a_time


def test_one_example_at_a_time_gives_the_same_gradients():
    many = private_gradient(network, micro=16).sums(PARAMS, (X, Y))
    one = replace(private_gradient(network, micro=16), one_at_a_time=True)
    assert np.abs(many - one.sums(PARAMS, (X, Y))).max() < 2000  # of 2^30, times forty rows
    moved = one.sums(PARAMS, (X, Y)) - one.sums(PARAMS, (X[1:], Y[1:]))
    assert norm_squared(moved) <= GRID**2


def test_augmented_copies_share_one_clipping_norm():
    gradient = private_gradient(
        network, clip=0.01, augment=lambda key, x, y: (x + jax.random.normal(key, x.shape), y), copies=5, micro=8
    )
    each = gradient.each(PARAMS, (X[:8], Y[:8]), jax.random.key(3))
    assert max(map(norm_squared, each)) <= GRID**2
    again = gradient.each(PARAMS, (X[:8], Y[:8]), jax.random.key(4))
    assert not np.array_equal(each, again)
    turned = private_gradient(network, augment=lambda key, x, y: x, micro=8).each(PARAMS, (X[:8], Y[:8]))
    assert np.array_equal(turned, private_gradient(network, micro=8).each(PARAMS, (X[:8], Y[:8])))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("place", [0, 5, 8, 20])
def test_one_row_more_leaves_the_augmentation_of_all_others(place, grouped):
    def noisy(key, x, y):
        return x + jax.random.normal(key, x.shape), y

    form = FORM
    rows = (X[:20], Y[:20] % 2)
    gradient = private_gradient(network, clip=0.3, augment=noisy, copies=3, micro=8)
    if grouped:
        rows = (np.ones((10, 2), np.float32), X[:20].reshape(10, 2, 6), (Y[:20] % 2).reshape(10, 2))
        gradient, place = replace(gradient, grouped=True), min(place, 10)
    gradient = gradient.checked(PARAMS, form, 2 if grouped else 1)
    more = tuple(np.insert(part, place, part[3], axis=0) for part in rows)
    more[-2][place] *= 2
    for key in (None, jax.random.key(11)):
        moved = gradient.sums(PARAMS, more, key) - gradient.sums(PARAMS, rows, key)
        own = gradient.sums(PARAMS, tuple(part[place : place + 1] for part in more), key)
        assert np.array_equal(moved, own)
        assert 0 < norm_squared(moved) <= gradient.sensitivity**2


@pytest.mark.parametrize("augment", [lambda key, x, y: (x[:2], y), lambda key, x: x, lambda key, x, y: (x, y, y)])
def test_an_augmentation_that_does_not_fit_is_refused_on_made_up_rows(augment):
    with pytest.raises(BadInput, match="augment"):
        private_gradient(network, augment=augment).checked(PARAMS, FORM)


def test_a_unit_with_many_rows_has_one_clipping_norm_for_all_of_them():
    gradient = private_gradient(network, clip=0.5, micro=4)
    units = replace(gradient, grouped=True)
    mask = np.ones((4, 10), np.float32)
    mask[1, 3:] = 0
    rows = (mask, X.reshape(4, 10, 6), Y.reshape(4, 10))
    each = units.each(PARAMS, rows)
    assert max(map(norm_squared, each)) <= GRID**2
    alone = replace(gradient, clip=100.0)
    summed = sum(alone.sums(PARAMS, (X[10:13], Y[10:13]))) * alone.worth()
    long = replace(units, clip=100.0)
    assert np.isclose(sum(long.each(PARAMS, rows)[1]) * long.worth(), summed, rtol=1e-3)


def test_a_loop_of_ones_own_releases_a_sum_with_exact_noise():
    gradient = private_gradient(network, micro=16)
    mechanism = gradient.mechanism(rho("0.1"))
    noisy = mechanism.release(gradient.sums(PARAMS, (X, Y)), SeededSource(1))
    tree = gradient.tree(noisy, PARAMS)
    assert {name: leaf.shape for name, leaf in tree.items()} == {"hidden": (6, 5), "out": (5, 3), "bias": (3,)}
    assert mechanism.sensitivity == GRID
    assert mechanism.loss == rho("0.1")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"clip": 0}, "clip is the norm"),
        ({"clip": math.nan}, "clip is the norm"),
        ({"clipping": "none"}, "Without clipping one example could"),
        ({"micro": 0}, "micro is a whole number"),
        ({"copies": 3}, "copies are made by augment"),
    ],
)
def test_wrong_arguments_are_refused(changed, words):
    with pytest.raises((BadInput, BadNumber), match=words):
        private_gradient(network, **changed)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda params, x, y: (x @ params["hidden"]) ** 2, "not per-example"),
        (lambda params, x, y: jnp.array(3), "not per-example"),
        (lambda params, x, y: (0.0, 1.0), "not per-example"),
        (lambda params, x, y: jnp.sum(x @ params["nowhere"]), "loss fails .* KeyError"),
        (lambda params, x, y: jnp.mean(x.mean(axis=1)), "without a batch axis"),
        (lambda params, x: jnp.sum(x), "TypeError"),
    ],
)
def test_a_loss_that_is_not_per_example_is_refused_in_one_sentence(loss, words):
    with pytest.raises(CloisterError, match=words):
        private_gradient(loss).checked(PARAMS, FORM)


def test_the_traceback_of_a_loss_that_fails_is_shown():
    with pytest.raises(CloisterError) as refused:
        private_gradient(lambda params, x, y: jnp.sum(x @ params["nowhere"])).checked(PARAMS, FORM)
    assert repr(refused.value.__cause__) == "KeyError('nowhere')"


def test_a_pure_epsilon_is_refused_by_gaussian_noise():
    with pytest.raises(CloisterError):
        private_gradient(network).mechanism(epsilon(1))

"""Dense networks by integer products: exact sums, one bound for every row, and the gradients of the general way."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.learn.deep import dense as dense_module
from cloister.learn.deep import private_gradient
from cloister.learn.deep.dense import UNIT, DenseGradient, encoded, forward, start_layers
from cloister.privacy.errors import BadInput, BadNumber
from cloister.privacy.noise import SeededSource

SOURCE = SeededSource("dense networks")
REACH = 4.0
ROWS = (SOURCE.floats((300, 12)) - 0.5) * 2
LABELS = (SOURCE.floats(300) * 3).astype(np.int32)
FORM = (((13,), np.dtype(np.int16)), ((), np.dtype(np.int32)))
LINEAR, HIDDEN, DEEP = [12, 3], [12, 7, 3], [12, 6, 5, 3]
WIDE, WIDE_END, WIDER = [12, 70, 3], [12, 5, 65], [12, 80, 66, 3]
ALL = [LINEAR, HIDDEN, DEEP, WIDE, WIDE_END, WIDER]


def layers(widths):
    pairs = pairwise(widths)
    return [((SOURCE.floats((inputs + 1, outputs)) - 0.5) * 2).astype(np.float32) for inputs, outputs in pairs]


def loss(params, x, y):
    for place, layer in enumerate(params):
        x = x @ layer[:-1] + layer[-1]
        x = jnp.tanh(x) if place < len(params) - 1 else x
    return jax.nn.logsumexp(x) - x[y]


def norm_squared(integers):
    return sum(int(number) ** 2 for number in integers)


@pytest.mark.parametrize("widths", ALL, ids=str)
@pytest.mark.parametrize("clip", [0.01, 1.0, 1e3])
def test_sums_are_those_of_the_general_way(widths, clip):
    params = layers(widths)
    own, general = DenseGradient(clip=clip), private_gradient(loss, clip=clip)
    found = own.tree(own.sums(params, (encoded(ROWS, REACH), LABELS)), params)
    wanted = general.tree(general.sums(params, (ROWS.astype(np.float32), LABELS)), params)
    # Rounding: towards zero in narrow layers; by up to a hundredth of the norm, up or down, in wide ones.
    wide = max(widths[1:]) > 64
    rounded = clip * (0.01 * len(ROWS) ** 0.5 if wide else 2.0**-16 * len(ROWS))
    tight = 0.015 if wide else 3e-3
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, two, atol=tight * np.abs(two).max() + rounded)


@pytest.mark.parametrize("widths", ALL, ids=str)
def test_a_sum_is_exactly_the_sum_of_each_rows_integers(widths):
    params, inputs = layers(widths), encoded(ROWS, REACH)
    gradient = DenseGradient(clip=0.3)
    whole = gradient.sums(params, (inputs, LABELS))
    each = [gradient.sums(params, (inputs[at : at + 1], LABELS[at : at + 1])) for at in range(len(inputs))]
    assert whole.tolist() == [sum(map(int, column)) for column in zip(*each, strict=True)]
    backwards = gradient.sums(params, (inputs[::-1], LABELS[::-1]))
    assert np.array_equal(whole, backwards)
    norms = [norm_squared(one) for one in each]
    assert max(norms) <= UNIT**2
    assert max(norms) > 0.97 * UNIT**2  # the bound is reached, so little is given away


def test_more_rows_than_one_call_takes_are_all_summed():
    params = layers(HIDDEN)
    inputs, targets = np.tile(encoded(ROWS, REACH), (15, 1)), np.tile(LABELS, 15)
    gradient = DenseGradient()
    once = gradient.sums(params, (encoded(ROWS, REACH), LABELS))
    assert len(inputs) > 2 * dense_module._CALL
    assert np.array_equal(gradient.sums(params, (inputs, targets)), 15 * once)


def worst(widths, count=128):
    """Rows and derivatives as long and as much alike as the bounds allow: all partial sums are as large as can be."""
    cells = np.zeros((count, widths[0] + 1), dtype=np.float32)
    cells[:, -1] = 2**11
    many = widths[1]
    integers = np.zeros((count, many), dtype=np.float32)
    integers[:, 0] = 2**16 if many <= 64 else 2**7
    return cells, integers


@pytest.mark.parametrize("widths", [[12, 3], [784, 10], [12, 70], [784, 128]], ids=str)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_products_are_exact(widths, sign):
    cells, integers = worst(widths)
    cells[1::2, -1] -= 1  # odd numbers, of which single floats above 2^24 hold none
    integers[::3, 0] -= 1
    integers *= sign
    narrow = widths[1] <= 64
    start = jnp.zeros((2 * widths[1], widths[0] + 1) if narrow else (widths[0] + 1, widths[1]), jnp.int32)
    with jax.enable_x64(True):
        total = dense_module._added(start, jnp.asarray(cells), jnp.asarray(integers))
        found = np.asarray(dense_module._joined(total, widths[1])).reshape(widths[0] + 1, widths[1])
    exact = cells.astype(np.int64).T @ integers.astype(np.int64)
    assert np.array_equal(found, exact if narrow else exact * 512)


@pytest.mark.parametrize("many", [3, 128])
def test_thirty_two_bits_hold_the_sums_of_one_call(many):
    # |limb| <= 2^8 and |â| <= 2^11 in narrow layers, |â ê| <= 2^18 in wide ones.
    most = 2**8 * 2**11 if many <= 64 else 2**18
    assert most * dense_module._CALL < 2**31


@pytest.mark.parametrize("widths", ALL, ids=str)
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_products_of_weights_and_inputs_are_exact(widths, size):
    params, inputs = [layer * np.float32(size) for layer in layers(widths)], encoded(ROWS, REACH)
    assert max(norm_squared(row) for row in inputs) <= 2**22
    for layer in params:
        made = dense_module._IntegerWeights.of(jnp.asarray(layer))
        down, up = np.asarray(made.down), np.asarray(made.up)
        assert np.array_equal(down, np.rint(down))
        assert max(norm_squared(column) for column in down.T) <= 2**26
        assert max(norm_squared(column) for column in up.T) <= 2**24
        np.testing.assert_allclose(down * np.asarray(made.down_scale), layer, atol=2e-3 * np.abs(layer).max())
    made = dense_module._IntegerWeights.of(jnp.asarray(params[0]))
    found = np.asarray(jnp.matmul(inputs.astype(np.float32), made.down))
    exact = inputs.astype(np.int64) @ np.asarray(made.down).astype(np.int64)
    assert np.array_equal(found, exact)


def test_rounding_of_wide_layers_has_no_direction():
    """Gradients far below the grid still count: their mean is right, though each is rounded."""
    values = np.full((40_000, 128), 0.3) + np.arange(128) * 0.001
    norms = SOURCE.floats((40_000, 1))
    with jax.enable_x64(True):
        rounded = np.asarray(dense_module._rounded(jnp.asarray(values), jnp.asarray(norms)))
    assert set(np.unique(rounded)) == {0.0, 1.0}
    assert np.abs(rounded.mean(axis=0) - values[0]).max() < 0.015


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(width=64), min_size=12, max_size=12),
    st.sampled_from([LINEAR, HIDDEN, WIDE]),
    st.sampled_from([1e-6, 1.0, 1e6]),
    st.floats(-1e30, 1e30),
)
def test_no_row_whatever_its_cells_and_weights_are_exceeds_the_bound(row, widths, clip, scale):
    params = [np.asarray(layer * np.float32(scale)) for layer in layers(widths)]
    own = DenseGradient(clip=clip).sums(params, (encoded(np.array([row]), REACH), np.array([1])))
    assert norm_squared(own) <= UNIT**2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_give_zeros_for_every_row(bad):
    params = layers(HIDDEN)
    params[0][2, 1] = bad
    assert not DenseGradient().sums(params, (encoded(ROWS, REACH), LABELS)).any()


def test_an_empty_lot_sums_to_zeros():
    params = layers(HIDDEN)
    assert not DenseGradient().sums(params, (encoded(ROWS[:0], REACH), LABELS[:0])).any()


def test_places_do_not_matter_here_and_rows_go_one_at_a_time_where_they_do(monkeypatch):
    params = layers(HIDDEN)
    assert not DenseGradient().checked(params, FORM).alone
    plain = dense_module.jnp.tanh

    def slanted(values):
        return plain(values) + jnp.arange(len(values))[:, None] * 1e-3

    dense_module._program.clear_cache()
    monkeypatch.setattr(dense_module.jnp, "tanh", slanted)
    found = DenseGradient().checked(params, FORM)
    assert found.alone
    inputs = encoded(ROWS[:5], REACH)
    each = [found.sums(params, (inputs[at : at + 1], LABELS[at : at + 1])) for at in range(5)]
    assert np.array_equal(found.sums(params, (inputs, LABELS[:5])), sum(each))
    dense_module._program.clear_cache()


def test_rows_of_an_earlier_lot_leave_nothing_behind():
    params, inputs = layers(WIDE), encoded(ROWS, REACH)
    gradient = DenseGradient()
    first = gradient.sums(params, (inputs[:20], LABELS[:20]))
    gradient.sums(params, (inputs, LABELS))
    assert np.array_equal(gradient.sums(params, (inputs[:20], LABELS[:20])), first)


def test_two_threads_do_not_share_their_rows():
    params, inputs = layers(HIDDEN), encoded(ROWS, REACH)
    gradient = DenseGradient()
    parts = [slice(0, 100), slice(100, 300)]
    wanted = [gradient.sums(params, (inputs[part], LABELS[part])) for part in parts]
    with ThreadPoolExecutor(2) as threads:
        found = threads.map(lambda n: gradient.sums(params, (inputs[parts[n % 2]], LABELS[parts[n % 2]])), range(200))
        assert all(np.array_equal(one, wanted[n % 2]) for n, one in enumerate(found))


def test_a_number_is_fitted_by_half_its_squared_error():
    params, inputs = layers([12, 1]), encoded(ROWS, REACH)
    targets = ROWS[:, 0].astype(np.float32)
    gradient = DenseGradient("number", clip=100)
    found = gradient.tree(gradient.sums(params, (inputs, targets)), params)[0][:, 0]
    errors = forward(params, ROWS)[:, 0] - targets
    np.testing.assert_allclose(found[:-1], ROWS.T @ errors, rtol=1e-3, atol=0.1)
    np.testing.assert_allclose(found[-1], errors.sum(), rtol=1e-3, atol=0.1)


def test_rows_longer_than_the_stated_reach_are_shortened_and_others_kept():
    rows = np.array([[3.0, 0.0], [300.0, 400.0], [np.nan, np.inf], [1e308, -1e308]])
    cells = encoded(rows, 4.0).astype(np.int64)
    assert [norm_squared(row) <= 2**22 for row in cells] == [True] * 4
    lengths = np.linalg.norm(cells[:, :-1] / cells[:, -1:], axis=1)
    np.testing.assert_allclose(lengths, [3, 4, 4, 4], rtol=2e-3)
    assert cells[0, 0] == 3 * cells[0, 2]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(width=64), min_size=1, max_size=40), st.floats(1e-3, 1024))
def test_no_encoded_row_is_longer_than_its_bound(row, reach):
    cells = encoded(np.array([row]), reach)
    assert norm_squared(cells[0]) <= 2**22
    assert cells[0, -1] >= 1


def test_a_row_is_encoded_by_itself():
    whole = encoded(ROWS, REACH)
    assert all(np.array_equal(encoded(ROWS[at : at + 1], REACH)[0], whole[at]) for at in range(0, 300, 17))


@pytest.mark.parametrize("reach", [0, -1.0, 1025, np.nan])
def test_a_reach_out_of_range_is_refused(reach):
    with pytest.raises(BadNumber, match="Scale the features"):
        encoded(ROWS, reach)


def test_a_start_is_the_same_each_time_and_ends_in_zeros():
    first, again = start_layers([12, 7, 3]), start_layers([12, 7, 3])
    assert all(np.array_equal(one, two) for one, two in zip(first, again, strict=True))
    assert first[0][:-1].std() > 0.1
    assert not first[1].any()


@pytest.mark.parametrize("clip", [0, -1, np.nan, True, "1"])
def test_a_norm_that_is_no_positive_number_is_refused(clip):
    with pytest.raises(BadNumber, match="clip is the norm"):
        DenseGradient(clip=clip)


def test_rows_that_were_not_encoded_are_refused():
    with pytest.raises(BadInput, match=r"integers from encoded\(\)"):
        DenseGradient().checked(layers(LINEAR), (((12,), np.dtype(np.float32)), FORM[1]))

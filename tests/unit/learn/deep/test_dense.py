"""Dense networks by integer products: exact sums, one bound for every row, and the gradients of the general way."""

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


@pytest.mark.parametrize("widths", [LINEAR, HIDDEN, DEEP], ids=str)
@pytest.mark.parametrize("clip", [0.01, 1.0, 1e3])
def test_sums_are_those_of_the_general_way_to_a_thousandth(widths, clip):
    params = layers(widths)
    own, general = DenseGradient(REACH, clip=clip), private_gradient(loss, clip=clip)
    found = own.tree(own.sums(params, (encoded(ROWS, REACH), LABELS)), params)
    wanted = general.tree(general.sums(params, (ROWS.astype(np.float32), LABELS)), params)
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, two, atol=2e-3 * np.abs(two).max())


@pytest.mark.parametrize("widths", [LINEAR, HIDDEN, DEEP], ids=str)
def test_a_sum_is_exactly_the_sum_of_each_rows_integers(widths):
    params, inputs = layers(widths), encoded(ROWS, REACH)
    gradient = DenseGradient(REACH, clip=0.3)
    whole = gradient.sums(params, (inputs, LABELS))
    each = [gradient.sums(params, (inputs[at : at + 1], LABELS[at : at + 1])) for at in range(len(inputs))]
    assert whole.tolist() == [sum(map(int, column)) for column in zip(*each, strict=True)]
    backwards = gradient.sums(params, (inputs[::-1], LABELS[::-1]))
    assert np.array_equal(whole, backwards)
    norms = [norm_squared(one) for one in each]
    assert max(norms) <= UNIT**2
    assert max(norms) > 0.99 * UNIT**2  # the bound is reached, so nothing is given away


@pytest.mark.parametrize("widths", [LINEAR, HIDDEN], ids=str)
def test_integer_products_are_those_of_python_integers(widths):
    params, inputs = layers(widths), encoded(ROWS[:9] * 10.0 ** np.arange(-4, 5)[:, None], REACH)
    derived = DenseGradient(REACH, clip=1e-3)._derivatives(
        dense_module._integer_weights(params), inputs, LABELS[:9], 1e-3
    )
    for entering, leaving in derived:
        for left, right in zip(entering, leaving, strict=True):
            assert norm_squared(left) <= 2**30
            assert norm_squared(left) * norm_squared(right) <= UNIT**2
        exact = [
            [sum(int(a) * int(b) for a, b in zip(one, two, strict=True)) for two in leaving.T] for one in entering.T
        ]
        assert (entering.T @ leaving).tolist() == exact


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(width=64), min_size=12, max_size=12),
    st.sampled_from([LINEAR, HIDDEN]),
    st.sampled_from([1e-6, 1.0, 1e6]),
    st.floats(-1e30, 1e30),
)
def test_no_row_whatever_its_cells_and_weights_are_exceeds_the_bound(row, widths, clip, scale):
    params = [np.asarray(layer * np.float32(scale)) for layer in layers(widths)]
    own = DenseGradient(REACH, clip=clip).sums(params, (encoded(np.array([row]), REACH), np.array([1])))
    assert norm_squared(own) <= UNIT**2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_give_zeros_for_every_row(bad):
    params = layers(HIDDEN)
    params[0][2, 1] = bad
    assert not DenseGradient(REACH).sums(params, (encoded(ROWS, REACH), LABELS)).any()


def test_an_empty_lot_sums_to_zeros():
    params = layers(HIDDEN)
    assert not DenseGradient(REACH).sums(params, (encoded(ROWS[:0], REACH), LABELS[:0])).any()


def test_places_do_not_matter_here_and_rows_go_one_at_a_time_where_they_do(monkeypatch):
    params = layers(HIDDEN)
    assert DenseGradient(REACH).checked(params, FORM).micro > 1
    plain = np.tanh

    def slanted(values):
        return plain(values) + np.arange(len(values))[:, None] * 1e-3

    monkeypatch.setattr(dense_module.np, "tanh", slanted)
    assert DenseGradient(REACH).checked(params, FORM).micro == 1


def test_a_number_is_fitted_by_half_its_squared_error():
    params, inputs = layers([12, 1]), encoded(ROWS, REACH)
    targets = ROWS[:, 0].astype(np.float32)
    gradient = DenseGradient(REACH, "number", clip=1e3)
    found = gradient.tree(gradient.sums(params, (inputs, targets)), params)[0][:, 0]
    errors = forward(params, inputs, REACH)[:, 0] - targets
    np.testing.assert_allclose(found[:-1], ROWS.T @ errors, rtol=1e-3, atol=0.1)
    np.testing.assert_allclose(found[-1], errors.sum(), rtol=1e-3, atol=0.1)


def test_rows_longer_than_the_stated_reach_are_shortened_and_others_kept():
    rows = np.array([[3.0, 0.0], [300.0, 400.0], [np.nan, np.inf], [1e308, -1e308]])
    cells = encoded(rows, 4.0)
    assert [norm_squared(row) <= 2**30 for row in cells] == [True] * 4
    assert cells[0].tolist() == [3 * 2**12, 0, 2**12]


def test_a_start_is_the_same_each_time_and_ends_in_zeros():
    first, again = start_layers([12, 7, 3]), start_layers([12, 7, 3])
    assert all(np.array_equal(one, two) for one, two in zip(first, again, strict=True))
    assert first[0][:-1].std() > 0.1
    assert not first[1].any()


@pytest.mark.parametrize("clip", [0, -1, np.nan, True, "1"])
def test_a_norm_that_is_no_positive_number_is_refused(clip):
    with pytest.raises(BadNumber, match="clip is the norm"):
        DenseGradient(REACH, clip=clip)


def test_rows_that_were_not_encoded_are_refused():
    with pytest.raises(BadInput, match=r"integers from encoded\(\)"):
        DenseGradient(REACH).checked(layers(LINEAR), (((12,), np.dtype(np.float32)), FORM[1]))

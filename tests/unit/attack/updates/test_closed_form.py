"""Closed-form leak: exact without a defence, through clipping too, and gone under noise or in a sum."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from cloister.attack.updates import (
    Defence,
    GradientStep,
    Number,
    compare_defences,
    dense_network,
    image_leak,
    lone_records,
    record_from_layer,
    record_leak,
    table_leak,
)
from cloister.attack.updates.closed_form import first_dense_layer
from cloister.learn.deep import private_gradient
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import rho
from cloister.privacy.noise import SeededSource

DIGITS = load_digits()
IMAGES, LABELS = DIGITS.data / 16, DIGITS.target
NETWORK = dense_network([64, 32, 10])


def victims(count: int) -> list[GradientStep]:
    others = IMAGES[500:600], LABELS[500:600]
    return [GradientStep(NETWORK.loss, NETWORK.params, (IMAGES[[one]], LABELS[[one]]), others) for one in range(count)]


def test_a_record_is_exact_without_a_defence():
    found = compare_defences(victims(20), record_leak)[0]
    assert found.success == 1.0
    assert found.figures["median relative error"] <= 1e-6
    assert found.interval[0] > 0.8


def test_clipping_alone_hides_nothing():
    clipping = Defence.clipping(private_gradient(NETWORK.loss, clip=0.5))
    found = compare_defences(victims(20), record_leak, [clipping])[1]
    assert found.figures["median relative error"] <= 1e-5  # the grid of the clipped sum is 2^-30 of the norm
    assert "Clipping alone" in found.notes[0]
    assert found.success == 1.0
    assert found.learned


@pytest.mark.parametrize("amount", ["100000", "10000000"])
def test_noise_that_hides_no_digit_of_a_record_is_not_called_a_defence(amount):
    draw = np.random.default_rng(0)
    network = dense_network([4, 3])
    rows = [(draw.random((1, 4)), np.array([number % 3])) for number in range(20)]
    clients = [GradientStep(network.loss, network.params, one) for one in rows]
    found = compare_defences(clients, record_leak, [Defence.noise(1.0, rho(amount))], source=SeededSource(5))[1]
    assert found.figures["median relative error"] < 0.01
    assert found.success > 0.9
    assert found.learned


def test_records_that_are_alike_are_guessed_without_an_update():
    network = dense_network([4, 3])
    rows = [(np.array([[1.0, 2.0, 3.0, 4.0 + number / 1000]]), np.array([0])) for number in range(20)]
    found = compare_defences([GradientStep(network.loss, network.params, one) for one in rows], record_leak)[0]
    assert found.success == found.baseline == 1.0
    assert not found.learned
    assert found.figures["median relative error without the update"] < 0.01


@pytest.mark.parametrize(
    "defence",
    [
        Defence.noise(private_gradient(NETWORK.loss, clip=1.0), rho("0.5")),
        Defence.noise(1.0, rho("0.5")),
        Defence.secure_sum(10),
        Defence.larger_lot(10),
    ],
    ids=lambda defence: defence.name,
)
def test_noise_sums_and_lots_stop_it(defence):
    found = compare_defences(victims(10), record_leak, [defence], source=SeededSource(4))[1]
    assert found.success == 0.0
    assert not found.learned
    assert found.figures["smallest relative error"] > 0.1
    assert found.claim == defence.spend


def test_what_one_record_does_not_explain_shows_a_lot():
    one, four = (
        GradientStep(NETWORK.loss, NETWORK.params, (IMAGES[:size], LABELS[:size])).observe(Defence.none())
        for size in (1, 4)
    )
    assert record_from_layer(*first_dense_layer(one.values)).unexplained < 1e-6
    assert record_from_layer(*first_dense_layer(four.values)).unexplained > 0.05


def test_units_that_saw_a_record_alone_leak_it_from_a_lot():
    network = dense_network([64, 400, 10], activation="relu", seed=3)
    shifted = [network.params[0].copy(), network.params[1]]
    shifted[0][-1] = -0.6  # rarely active units, as an attacker who sends the weights may choose them
    update = GradientStep(network.loss, shifted, (IMAGES[:4], LABELS[:4])).observe(Defence.none())
    leaked = lone_records(*first_dense_layer(update.values))
    apart = np.linalg.norm(leaked[:, None] - IMAGES[:4][None], axis=2).min(axis=0) / np.linalg.norm(IMAGES[:4], axis=1)
    assert (apart < 1e-6).all()
    assert len(leaked) == 4  # mixtures of records are left out


def test_layers_are_found_in_other_layouts():
    matrix, vector = np.ones((5, 3)), np.ones(3)
    for tree in ([matrix, vector], {"b": vector, "w": matrix}, [matrix.T, vector]):
        weights, bias = first_dense_layer(tree)
        assert (weights.shape, bias.shape) == ((5, 3), (3,))
    with pytest.raises(BadInput, match="Pass layer="):
        first_dense_layer([np.ones(3)])


def test_bad_layers_are_refused_in_words():
    with pytest.raises(BadInput, match="Transpose"):
        record_from_layer(np.ones((3, 5)), np.ones(3))
    with pytest.raises(BadInput, match="gradient of the bias is 0"):
        record_from_layer(np.ones((3, 2)), np.zeros(2))
    with pytest.raises(BadInput, match="not finite"):
        record_from_layer(np.full((3, 2), np.nan), np.ones(2))


def test_a_victim_is_a_step_or_a_training():
    with pytest.raises(BadInput, match="a victim is a GradientStep or a LocalTraining, not ndarray"):
        compare_defences([np.ones(3)], record_leak)


def test_one_update_and_its_victim_need_no_lists():
    victim = victims(1)[0]
    update = victim.observe(Defence.none())
    assert record_leak(update, victim).attempts == record_leak([update], [victim]).attempts == 1
    with pytest.raises(BadInput, match=r"one victim for each update, and at least one: got 1 and 2"):
        record_leak(update, [victim, victim])
    with pytest.raises(BadInput, match=r"an update is what `observe` of a victim returns, not GradientStep"):
        record_leak(victim, victim)
    with pytest.raises(BadInput, match=r"a victim is a GradientStep or a LocalTraining, not Update"):
        record_leak(update, update)


def test_shapes_and_columns_are_those_of_the_victims_rows():
    victim = victims(1)[0]
    update = victim.observe(Defence.none())
    with pytest.raises(BadInput, match=r"shape has 81 pixels, and a record of the victim 64 numbers"):
        image_leak(update, victim, shape=(9, 9))
    with pytest.raises(BadInput, match=r"columns are Category"):
        table_leak(update, victim, columns=["age"])
    with pytest.raises(BadInput, match=r"the columns take 1 inputs of the network, and a row of the victim has 64"):
        table_leak(update, victim, columns=[Number("age", 0, 1)])

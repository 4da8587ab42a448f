"""Inversion of federated averaging: several local epochs leak too, and noise on the whole update stops it."""

from functools import partial

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

from cloister.attack.updates import (
    Defence,
    GradientStep,
    LocalTraining,
    compare_defences,
    dense_network,
    invert_training,
    training_leak,
)
from cloister.attack.updates.fedavg import _disagreement
from cloister.attack.updates.matching import distance_between
from cloister.learn.deep import private_gradient
from cloister.privacy.errors import BadInput, BadNumber
from cloister.privacy.loss import rho
from cloister.privacy.noise import SeededSource

DIGITS = load_digits()
IMAGES, LABELS = DIGITS.images / 16, DIGITS.target
NETWORK = dense_network([64, 48, 10])
ROWS, OTHERS = (IMAGES[:4], LABELS[:4]), (IMAGES[500:], LABELS[500:])
SHAPE = (8, 8)


def client(epochs: int = 3, batch: int = 2) -> LocalTraining:
    return LocalTraining(NETWORK.loss, NETWORK.params, ROWS, epochs, batch, 0.1, OTHERS)


def test_one_epoch_of_one_batch_is_a_gradient_step():
    update = client(1, 4).observe(Defence.none())
    step = GradientStep(NETWORK.loss, NETWORK.params, ROWS).observe(Defence.none())
    assert float(distance_between(update.values, step.values, "l2")) < 1e-8


def test_local_training_is_plain_gradient_descent_over_shuffled_batches():
    update = client(2, 2).observe(Defence.none())
    draw, params = np.random.default_rng(0), NETWORK.params
    images, labels = ROWS[0].reshape(4, 64).astype(np.float32), ROWS[1]
    slope = jax.grad(lambda at, x, y: jax.vmap(NETWORK.loss, in_axes=(None, 0, 0))(at, x, y).mean())
    for order in [draw.permutation(4) for _ in range(2)]:
        for part in order.reshape(2, 2):
            params = [
                one - 0.1 * down for one, down in zip(params, slope(params, images[part], labels[part]), strict=True)
            ]
    change = [(old - new) / (0.1 * 4) for old, new in zip(NETWORK.params, params, strict=True)]
    assert float(distance_between(update.values, change, "l2")) < 1e-6


def test_images_leak_through_several_epochs_and_not_through_noise():
    attack = partial(training_leak, shape=SHAPE, public=IMAGES[200:400], steps=500, starts=1, labels_known=True)
    plain, private = compare_defences(client(), attack, [Defence.noise(1.0, rho("0.5"))], source=SeededSource(5))
    assert plain.figures["mean PSNR in dB"] >= 20
    assert plain.figures["mean PSNR in dB"] > plain.figures["mean PSNR in dB without the update"] + 8
    assert "3 epochs" in plain.target
    assert private.figures["mean PSNR in dB"] <= 12
    assert private.success == 0


def test_a_secure_sum_hides_the_client():
    attack = partial(training_leak, shape=SHAPE, steps=200, starts=1, labels_known=True)
    alone, summed = compare_defences(client(2, 4), attack, [Defence.secure_sum(8)])
    assert summed.figures["mean PSNR in dB"] < alone.figures["mean PSNR in dB"] - 5


@pytest.mark.parametrize("invariant", ["mean", "extremes"])
def test_the_prior_ignores_the_order_of_records(invariant):
    one = IMAGES[:6].reshape(1, 6, 8, 8)
    shuffled = np.concatenate((one, one[:, ::-1], one[:, [3, 1, 0, 5, 4, 2]]))
    assert float(_disagreement(shuffled, invariant)) < 1e-10
    other = np.concatenate((one, IMAGES[6:12].reshape(1, 6, 8, 8)))
    assert float(_disagreement(other, invariant)) > 1e-3


def test_bad_trainings_are_refused_in_words():
    with pytest.raises(BadNumber, match="epochs"):
        client(0)
    with pytest.raises(BadInput, match="whole number of batches"):
        client(1, 3).observe(Defence.none())
    with pytest.raises(BadInput, match="clips its whole update"):
        client().observe(Defence.clipping(private_gradient(NETWORK.loss)))
    step = GradientStep(NETWORK.loss, NETWORK.params, ROWS).observe(Defence.none())
    with pytest.raises(BadInput, match=r"use invert\(\)"):
        invert_training(step, SHAPE)
    with pytest.raises(BadInput, match="invariant"):
        invert_training(client().observe(Defence.none()), SHAPE, invariant="sum")
    with pytest.raises(BadNumber, match="same"):
        invert_training(client().observe(Defence.none()), SHAPE, same=-1)

"""Gradient inversion of images: readable without a defence, noise under ours."""

import gzip
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from cloister.attack.updates import Defence, GradientStep, compare_defences, dense_network, image_leak, invert, psnr
from cloister.learn.deep import private_gradient
from cloister.privacy.errors import BadBounds, BadInput, BadNumber
from cloister.privacy.loss import rho
from cloister.privacy.noise import SeededSource

DIGITS = load_digits()
IMAGES, LABELS = DIGITS.images / 16, DIGITS.target
SMALL = dense_network([64, 48, 10])
SHAPE = (8, 8)


def victim(size: int = 4, start: int = 0) -> GradientStep:
    chosen = slice(start, start + size)
    others = IMAGES[900:], LABELS[900:]
    return GradientStep(SMALL.loss, SMALL.params, (IMAGES[chosen], LABELS[chosen]), others)


@pytest.mark.parametrize("distance", ["l2", "cosine", "layers"])
def test_images_are_recovered_without_a_defence(distance):
    attack = partial(image_leak, shape=SHAPE, public=IMAGES[600:900], distance=distance, steps=500)
    found = compare_defences(victim(), attack)[0]
    assert found.figures["mean PSNR in dB"] >= 25
    assert found.figures["share of labels recovered"] == 1.0
    assert found.success == 1.0
    assert found.baseline == 0.0
    assert found.learned


def test_clipping_and_noise_hide_them():
    attack = partial(image_leak, shape=SHAPE, public=IMAGES[600:900], steps=200)
    defences = [Defence.noise(private_gradient(SMALL.loss, clip=1.0), rho("0.5")), Defence.noise(1.0, rho("0.5"))]
    for found in compare_defences(victim(), attack, defences, source=SeededSource(2))[1:]:
        assert found.figures["mean PSNR in dB"] <= 12
        assert found.figures["mean PSNR in dB"] <= found.figures["mean PSNR in dB without the update"]
        assert found.success == 0
        assert found.claim == rho("0.5")


def test_a_larger_lot_weakens_the_attack():
    attack = partial(image_leak, shape=SHAPE, steps=300, starts=1)
    alone, sums = compare_defences(victim(), attack, [Defence.secure_sum(12)])
    assert sums.figures["mean PSNR in dB"] < alone.figures["mean PSNR in dB"] - 8


def test_priors_help():
    update, truth = victim(6, 40).observe(Defence.none()), IMAGES[40:46]
    found = {
        span: invert(update, SHAPE, labels=LABELS[40:46], steps=300, starts=1, span=span, smooth=0.0)
        for span in (0.0, 10.0)
    }
    assert psnr(found[10.0].images, truth).mean() > psnr(found[0.0].images, truth).mean() + 1.5


def test_more_starts_end_no_farther():
    update = victim().observe(Defence.none())
    two = invert(update, SHAPE, steps=100, starts=3, seed=5)
    assert two.distance.shape == (3,)
    assert two.images.shape == (4, 8, 8)
    assert (two.images >= 0).all()
    assert (two.images <= 1).all()
    assert two.labels.tolist() == [0, 1, 2, 3]


def test_progress_is_reported_to_the_end():
    heard = []
    invert(victim().observe(Defence.none()), SHAPE, steps=60, starts=1, progress=lambda *said: heard.append(said))
    assert heard[-1][0] == 1.0
    assert "distance" in heard[0][1]
    assert [share for share, _ in heard] == sorted(share for share, _ in heard)


def test_bad_settings_are_refused_in_words():
    update = victim().observe(Defence.none())
    for match, more in {
        "distance is one of": {"distance": "l1"},
        "labels are 4": {"labels": [1, 2]},
    }.items():
        with pytest.raises(BadInput, match=match):
            invert(update, SHAPE, **more)
    for match, more in {"starts": {"starts": 0}, "steps": {"steps": True}, "smooth": {"smooth": -1.0}}.items():
        with pytest.raises(BadNumber, match=match):
            invert(update, SHAPE, **more)
    with pytest.raises(BadInput, match="public is"):
        invert(update, SHAPE, public=np.zeros((2, 9)))
    with pytest.raises(BadInput, match="shape is"):
        invert(update, (64,))
    with pytest.raises(BadBounds, match="pixel"):
        invert(update, SHAPE, bounds=(1.0, 0.0))
    with pytest.raises(BadInput, match="same shape"):
        psnr(np.zeros((2, 3)), np.zeros((3, 3)))


def mnist() -> tuple[np.ndarray, np.ndarray]:
    """MNIST's test images where they are, else scikit-learn's digits, which everybody has."""
    folder = Path(__file__).parents[5] / "shared" / "data" / "mnist"
    if not folder.exists():
        return IMAGES, LABELS
    cells = np.frombuffer(gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes())[16:], np.uint8)
    labels = np.frombuffer(gzip.decompress((folder / "t10k-labels-idx1-ubyte.gz").read_bytes())[8:], np.uint8)
    return cells.reshape(-1, 28, 28) / 255, labels


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_eight_digits_leak_from_a_perceptron_and_not_through_clipping_and_noise(activation):
    images, labels = mnist()
    shape = images.shape[1:]
    network = dense_network([images[0].size, 128, 10], activation=activation)
    for seed in range(2):
        chosen = 500 + np.random.default_rng(seed).choice(len(images) - 500, 8, replace=False)
        client = GradientStep(network.loss, network.params, (images[chosen], labels[chosen]))
        defence = Defence.noise(private_gradient(network.loss, clip=1.0), rho("0.5"))
        attack = partial(image_leak, shape=shape, public=images[:500])
        plain, private = compare_defences(client, attack, [defence], source=SeededSource(seed))
        assert plain.figures["mean PSNR in dB"] >= 25
        assert private.figures["mean PSNR in dB"] <= 12

"""What an attacker sees of an update is what training releases, and the attacker's simulation agrees with it."""

import subprocess
import sys

import jax
import numpy as np
import pytest

from cloister import attack
from cloister.attack import updates
from cloister.attack.updates import Defence, GradientStep, compare_defences, dense_network, label_counts, record_leak
from cloister.attack.updates.matching import best_order, descend, distance_between, input_span
from cloister.lazy import homes
from cloister.learn.deep import private_gradient
from cloister.privacy.errors import BadInput, BadLoss, BadNumber
from cloister.privacy.loss import epsilon, rho
from cloister.privacy.noise import SeededSource

NETWORK = dense_network([12, 16, 4])
DRAW = np.random.default_rng(8)
ROWS, LABELS = DRAW.uniform(0, 1, (40, 12)), DRAW.integers(0, 4, 40)


def victim(size: int = 5) -> GradientStep:
    return GradientStep(
        NETWORK.loss, NETWORK.params, (ROWS[:size], LABELS[:size]), (ROWS[size:], LABELS[size:]), name="clinic"
    )


def length(tree) -> float:
    return float(np.sqrt(sum((np.asarray(leaf) ** 2).sum() for leaf in jax.tree.leaves(tree))))


@pytest.mark.parametrize("clipping", ["fixed", "per-layer", "automatic", "adaptive"])
def test_the_attackers_simulation_of_clipping_is_what_training_does(clipping):
    gradient = private_gradient(NETWORK.loss, clip=0.3, clipping=clipping)
    update = victim().observe(Defence.clipping(gradient))
    simulated = update.expected(*victim().rows)
    for one, two in zip(jax.tree.leaves(simulated), jax.tree.leaves(update.values), strict=True):
        assert np.allclose(one, two, atol=1e-6)


@pytest.mark.parametrize("defence", [Defence.none(), Defence("clipped", clip=0.2)], ids=["none", "whole"])
def test_the_true_records_explain_an_update_exactly(defence):
    update = victim().observe(defence)
    assert float(distance_between(update.expected(*victim().rows), update.values, "l2")) < 1e-10
    if defence.clip:
        assert length(update.values) == pytest.approx(0.2, rel=1e-5)


def test_noise_has_the_deviation_that_the_loss_asks_for():
    for defence in (
        Defence.noise(private_gradient(NETWORK.loss, clip=1.0), rho("0.5")),
        Defence.noise(1.0, rho("0.5")),
    ):
        update, source = victim(), SeededSource(3)
        seen = [update.observe(defence, source=source).values for _ in range(6)]
        own = 5 if defence.gradient is not None else 1
        flat = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(one)]) for one in seen]
        assert np.concatenate(flat).std() * own == pytest.approx(1.0, rel=0.1)
        assert np.abs(np.mean(flat, axis=0)).max() < 2.5 / own


@pytest.mark.parametrize(("defence", "records"), [(Defence.secure_sum(3), 15), (Defence.larger_lot(12), 12)])
def test_sums_and_lots_are_means_over_all_records(defence, records):
    update = victim().observe(defence)
    assert update.records == records
    whole = GradientStep(NETWORK.loss, NETWORK.params, (ROWS[:records], LABELS[:records])).observe(Defence.none())
    assert float(distance_between(update.values, whole.values, "l2")) < 1e-10


def test_labels_are_read_off_the_last_bias():
    right = 0
    for seed in range(10):
        chosen = np.random.default_rng(seed).permutation(40)[:6]
        update = GradientStep(NETWORK.loss, NETWORK.params, (ROWS[chosen], LABELS[chosen])).observe(Defence.none())
        right += label_counts(update, ROWS[:20], 4).tolist() == sorted(LABELS[chosen].tolist())
    assert right >= 9
    with pytest.raises(BadInput, match="3 numbers"):
        label_counts(update, ROWS[:20], 3)


def test_all_records_lie_in_the_span_of_the_first_layers_gradient():
    basis = input_span(victim().observe(Defence.none()))
    assert basis is not None
    assert np.abs(ROWS[:5] - ROWS[:5] @ basis @ basis.T).max() < 1e-4
    assert input_span(victim().observe(Defence.noise(1.0, rho("0.5")))) is None
    assert input_span(victim(13).observe(Defence.none())) is None  # more records than inputs span the whole space


def test_a_comparison_runs_without_and_with_each_defence():
    heard = []
    defences = [Defence.secure_sum(2), Defence.noise(1.0, epsilon(1, delta="1e-5"))]
    found = compare_defences(
        victim(1), record_leak, defences, progress=lambda share, words: heard.append((share, words))
    )
    assert [one.success for one in found] == [1.0, 0.0, 0.0]
    assert [one.target for one in found] == [
        "clinic of 1 record, undefended",
        "clinic of 1 record, sum over 2 clients",
        f"clinic of 1 record, clipped to norm 1, noise for {epsilon(1, delta='1e-5')}",
    ]
    assert heard[0] == (0.0, "undefended")
    assert heard[-1] == (1.0, "done")
    assert any("noise" in sentence for sentence in found[0].remedies)
    assert not found[2].learned


def test_bad_defences_and_victims_are_refused_in_words():
    with pytest.raises(BadNumber, match="clients"):
        Defence.secure_sum(0)
    with pytest.raises(BadNumber, match="lot"):
        Defence.larger_lot(-1)
    with pytest.raises(BadNumber, match="clip"):
        Defence.clipping(0.0)
    with pytest.raises(BadInput, match="not str"):
        Defence.clipping("hard")
    with pytest.raises(BadInput, match="noise needs clipping"):
        Defence("noise", spend=rho(1))
    with pytest.raises(BadLoss, match="Gaussian"):
        Defence.noise(1.0, epsilon(1))
    with pytest.raises(BadInput, match="at least as many"):
        GradientStep(NETWORK.loss, NETWORK.params, (ROWS, LABELS)).observe(Defence.secure_sum(2))
    with pytest.raises(BadInput, match="same number"):
        GradientStep(NETWORK.loss, NETWORK.params, (ROWS, LABELS[:3]))
    with pytest.raises(BadInput, match="at least one victim"):
        compare_defences([], record_leak)
    with pytest.raises(BadInput, match="another loss"):
        victim().observe(Defence.clipping(private_gradient(dense_network([12, 4], activation="relu").loss)))
    with pytest.raises(BadInput, match="sizes are"):
        dense_network([3])


def test_a_search_that_ends_in_nan_is_never_the_best():
    starts = np.array([[1.0], [-1.0]], dtype=np.float32)
    _, values = descend(lambda point: jax.numpy.sqrt(point[0]), starts, steps=20, step_size=0.01)
    assert values[0] < 1
    assert values[1] == np.inf
    assert best_order(np.eye(3)[::-1]).tolist() != [2, 1, 0]


def test_a_missing_extra_is_one_sentence():
    code = """
import sys
sys.modules["jax"] = None
from cloister import attack
from cloister.attack import updates
from cloister.privacy.errors import MissingExtra
for door, name in ((attack, "record_leak"), (updates, "invert")):
    try:
        getattr(door, name)
    except MissingExtra as error:
        print(error)
"""
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert answer.count("pip install 'cloister[jax]'") == 2


@pytest.mark.parametrize("door", [attack, updates])
def test_every_name_of_the_doors_opens(door):
    assert set(homes(door.__name__)) == set(door.__all__)
    assert all(getattr(door, name) is not None for name in door.__all__)

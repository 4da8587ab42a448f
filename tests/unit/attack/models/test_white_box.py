"""Membership from parameters: a model that was fitted too closely shows its rows, one of other rows does not."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

from cloister import epsilon, rho
from cloister.attack import membership, membership_suite
from cloister.attack.models.white_box import disturbance_scores, gradient_scores, open_model
from cloister.privacy.errors import BadInput, BadNumber

N = 250
DRAW = np.random.default_rng(4)
X, Y = DRAW.normal(size=(2 * N, 8)), DRAW.integers(0, 4, 2 * N)  # labels are dice, so that only memory predicts them
MEMBERS, OTHERS = (X[:N], Y[:N]), (X[N:], Y[N:])


def fitted(rows, labels, sizes=(48,), rounds=400, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is stopped before it converges
        return MLPClassifier(sizes, max_iter=rounds, learning_rate_init=0.01, random_state=0, **more).fit(rows, labels)


CLOSE = fitted(*MEMBERS)


def found(method, model=CLOSE, **more):
    return membership(model, members=MEMBERS, others=OTHERS, access="white box", method=method, random_state=1, **more)


@pytest.mark.parametrize("method", ["gradient", "disturbance"])
def test_a_network_that_memorises_is_told_from_its_parameters(method):
    one = found(method, claim=rho("0.001"))
    assert one.roc.auc > 0.75
    assert one.learned
    assert one.broken
    assert one.access == "white box"
    assert "parameters" in one.knowledge
    assert one.figures["parameters"] == 8 * 48 + 48 + 48 * 4 + 4
    assert one.remedies


@pytest.mark.parametrize("method", ["gradient", "disturbance"])
def test_a_network_of_other_rows_tells_nothing(method):
    elsewhere = fitted(DRAW.normal(size=(N, 8)), DRAW.integers(0, 4, N))
    one = found(method, elsewhere, claim=epsilon(1))
    assert not one.learned
    assert not one.broken
    assert abs(one.roc.auc - 0.5) < 0.1


@pytest.mark.parametrize(
    ("activation", "labels"), [("relu", Y), ("tanh", Y > 1), ("logistic", Y.astype(str)), ("identity", Y)]
)
def test_the_loss_of_an_opened_network_is_that_of_its_probabilities(activation, labels):
    model = fitted(X, labels, (6, 5), 3, activation=activation)
    opened = open_model(model)
    codes = opened.codes(labels)
    losses = jax.vmap(opened.loss, in_axes=(None, 0, 0))(opened.params, jnp.asarray(X, jnp.float32), codes)
    shares = model.predict_proba(X)[np.arange(2 * N), codes]
    assert np.allclose(np.exp(-np.asarray(losses)), shares, atol=1e-5)


def test_the_gradient_of_a_logistic_regression_is_its_residual_times_its_row():
    model = LogisticRegression().fit(X, Y > 1)
    scores = gradient_scores(open_model(model), X, (Y > 1).astype(np.int32))
    residual = np.abs(model.predict_proba(X)[:, 1] - (Y > 1))
    assert np.allclose(np.exp(-scores), residual * np.sqrt(1 + (X**2).sum(axis=1)), rtol=1e-4)


def test_noise_that_changes_nothing_leaves_the_loss():
    opened = open_model(
        (lambda params, row, label: jnp.where(label > 0, 2.0, 0.5) + 0 * params["w"].sum(), {"w": np.ones(3)})
    )
    scores = disturbance_scores(opened, X, (Y > 1).astype(np.int32), np.random.default_rng(0), copies=3)
    assert np.allclose(np.exp(-scores), np.where(Y > 1, 2.0, 0.5))


def test_a_loss_and_its_parameters_are_attacked():
    weights = np.zeros((8, 4), np.float32)

    def loss(params, row, label):
        return -jax.nn.log_softmax(row @ params)[label]

    rows, labels = jnp.asarray(MEMBERS[0], jnp.float32), jnp.asarray(MEMBERS[1])
    slope = jax.jit(jax.grad(lambda at: jax.vmap(loss, in_axes=(None, 0, 0))(at, rows, labels).mean()))
    for _ in range(300):
        weights = weights - np.asarray(slope(weights))
    both = membership_suite((loss, weights), members=MEMBERS, others=OTHERS, access="white box", random_state=1)
    assert [one.target for one in both] == ["a loss and its parameters"] * 2
    assert both[0].roc.auc >= both[1].roc.auc > 0.5


def test_frames_are_attacked_as_they_are():
    frames = [(pd.DataFrame(rows), labels) for rows, labels in (MEMBERS, OTHERS)]
    one = membership(CLOSE, members=frames[0], others=frames[1], access="white box", method="gradient", random_state=1)
    assert one.roc.auc == pytest.approx(found("gradient").roc.auc)


def test_false_alarms_are_as_rare_as_stated():
    learned = 0
    for seed in range(60):
        draw = np.random.default_rng(seed)
        rows, labels = draw.normal(size=(240, 3)), draw.integers(0, 2, 240)
        model = LogisticRegression().fit(rows[:80], labels[:80])
        learned += membership(
            model, members=(rows[80:160], labels[80:160]), others=(rows[160:], labels[160:]), access="white box",
            method="gradient", random_state=seed,
        ).learned  # fmt: skip
    assert learned <= stats.binom.isf(1e-4, 60, 0.025)


def test_what_does_not_fit_is_refused_with_a_sentence():
    with pytest.raises(BadInput, match="parameters of a DecisionTreeClassifier"):
        found("gradient", DecisionTreeClassifier().fit(*MEMBERS))
    with pytest.raises(BadInput, match="'gradient' or 'disturbance'"):
        found("lira")
    with pytest.raises(BadInput, match="needs access='white box'"):
        membership(CLOSE, members=MEMBERS, others=OTHERS, method="gradient")
    with pytest.raises(BadNumber, match="perturbations"):
        found("disturbance", perturbations=1)
    with pytest.raises(BadInput, match="one number"):
        found("disturbance", (lambda params, row, label: row * params, np.ones(8)))
    with pytest.raises(BadInput, match="whole numbers"):
        membership(
            (lambda params, row, label: row.sum() * params, 1.0), members=(X[:N], Y[:N] + 0.5), others=OTHERS,
            access="white box", method="gradient",
        )  # fmt: skip
    with pytest.raises(BadInput, match="none of the classes"):
        membership(CLOSE, members=(X[:N], Y[:N] + 9), others=OTHERS, access="white box", method="gradient")
    with pytest.raises(BadInput, match="not a finite number"):
        found("disturbance", (lambda params, row, label: jnp.log(-1.0 * params), np.float32(1)))

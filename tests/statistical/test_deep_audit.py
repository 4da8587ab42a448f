"""DP-SGD keeps its claim in every audit, and each of its classical faults breaks one.

Two audits: one run with many canaries, and many runs on two neighbouring tables. Claims are those of the plan.
"""

import jax
import numpy as np
import pytest

from cloister import epsilon
from cloister.attack import OutputFeature, audit, audit_one_run
from cloister.privacy.noise import SeededSource

from .deep_faults import Setting, linear, network, trained, twice

CANARIES = 1_000
WIDE = {"w": np.zeros(CANARIES, np.float32)}
ONE_RUN = {
    "no clipping": Setting(linear, WIDE, epsilon(1, delta="1e-5"), "1/2", 8),
    "noise once per epoch": Setting(linear, WIDE, epsilon(1, delta="1e-5"), "1/20", 40),
    "fixed lots accounted as Poisson": Setting(linear, WIDE, epsilon("0.5", delta="1e-5"), "1/40", 40),
    "reused key": Setting(
        twice, {"v": np.zeros(CANARIES, np.float32), "w": np.zeros(CANARIES, np.float32)}, epsilon(1, delta="1e-5"),
        "1/2", 4,
    ),
}  # fmt: skip
LARGE = {"no clipping": 60.0}


def one_run(name, fault, seed):
    setting = ONE_RUN[name]
    rows = np.eye(CANARIES, dtype=np.float32) * LARGE.get(name, 1.0)
    source = SeededSource(f"{name} {fault} {seed}")

    def score(found):
        params, _, path = found
        if name == "fixed lots accounted as Poisson":  # what the step changed in which the canary's turn would be
            steps = np.diff(np.array([np.zeros(CANARIES), *path]), axis=0)
            return steps[np.arange(CANARIES) * setting.steps // CANARIES, np.arange(CANARIES)]
        if name == "noise once per epoch":  # what all but the first steps of epochs changed
            steps = np.diff(np.array([np.zeros(CANARIES), *path]), axis=0)
            return np.delete(steps, np.s_[::20], axis=0).sum(axis=0)
        return params["w"] - params.get("v", 0.0)

    def train(inside):
        return trained(rows * inside[:, None], setting, source, fault)

    return audit_one_run(train, score, CANARIES, setting.spend, source=source, guesses=CANARIES // 4)


@pytest.mark.parametrize("fault", list(ONE_RUN))
def test_a_fault_breaks_the_claim_in_one_run_with_many_canaries(fault):
    result = one_run(fault, fault, 1)
    assert result.broken, f"{fault}: {result}"


@pytest.mark.parametrize("name", list(ONE_RUN))
def test_training_as_it_is_keeps_the_same_claim(name):
    assert not one_run(name, None, 1).broken


# Two neighbouring tables.

SMALL = {"w": np.zeros(2, np.float32)}
CROWD = np.tile(np.array([[0.6, 0.8]], np.float32), (15, 1))
NEW = np.array([[-0.8, 0.6]], np.float32)
TWO_TABLES = {
    "clipping after the mean": (Setting(linear, SMALL, epsilon(1, delta="1e-5"), "1", 1), CROWD * 0, NEW * 500),
    "batch norm": (Setting(linear, SMALL, epsilon(1, delta="1e-5"), "1", 1), CROWD, NEW * 1000),
    "last partial lot dropped": (Setting(linear, SMALL, epsilon(1, delta="1e-5"), "1", 1), CROWD, NEW),
    "lot size read from the data": (Setting(linear, SMALL, epsilon("0.3", delta="1e-5"), "1", 1), CROWD[:1], NEW),
    "loss history released unpaid": (Setting(linear, SMALL, epsilon(1, delta="1e-5"), "1", 2), CROWD, NEW * 1e4),
    "early stopping on training accuracy": (Setting(linear, SMALL, epsilon(1, delta="1e-5"), "1", 4), CROWD, NEW * 1e4),
}


def two_tables(name, fault, n):
    setting, rows, new = TWO_TABLES[name]
    source = SeededSource(f"{name} {fault}")

    def released(table):
        params, more, _ = trained(table, setting, source, fault)
        return np.array([*params["w"], np.hypot(*params["w"]), abs(more)])

    features = [OutputFeature("a coordinate", lambda out, at=at: out[:, at]) for at in range(4)]
    return audit(released, rows, np.concatenate([rows, new]), setting.spend, n=n, features=features)


@pytest.mark.parametrize("fault", list(TWO_TABLES))
def test_a_fault_breaks_the_claim_on_two_neighbouring_tables(fault):
    result = two_tables(fault, fault, 240)
    assert result.broken, f"{fault}: {result}"


@pytest.mark.parametrize("name", list(TWO_TABLES))
def test_training_as_it_is_keeps_the_same_claim_on_two_tables(name):
    assert not two_tables(name, None, 240).broken


def test_a_tiny_network_keeps_its_claim_against_canaries_in_one_run():
    canaries = CANARIES
    source = SeededSource("tiny network")
    rows = (source.floats((canaries, 12)) * 6 - 3).astype(np.float32)
    start = {
        "in": (source.floats((12, 6)) - 0.5).astype(np.float32),
        "out": (source.floats((6, 12)) - 0.5).astype(np.float32),
    }
    setting = Setting(network, start, epsilon(2, delta="1e-5"), "1/4", 40)

    def score(params):
        after = np.asarray(jax.vmap(lambda x: network(params, x))(rows))
        before = np.asarray(jax.vmap(lambda x: network(start, x))(rows))
        return before - after

    result = audit_one_run(
        lambda inside: trained(rows[inside], setting, source)[0], score, canaries, setting.spend, source=source
    )
    assert not result.broken

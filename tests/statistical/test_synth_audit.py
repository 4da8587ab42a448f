"""Generators on neighbouring tables of a small domain: what they release tells no more about a person than they say.

Two tables differ by one person, who has more rows than count, all alike. See synth_runs.py for what the attacker knows.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cloister.privacy.filter import noise_for
from cloister.privacy.loss import Loss, epsilon, rho
from cloister.synth.generators import aim, independent, m_way, mixture, mst
from cloister.synth.measure import marginals
from cloister.synth.model import latent

from .synth_runs import Generator, Tables, certified, evidence

pytestmark = pytest.mark.statistical

N, FEW, SURE = 100, 50, 1 - 1e-7
LOUD, PURE = rho(1), epsilon(2)
MST, AIM = Generator(mst, "mst"), Generator(aim, "aim", {"rounds": 3})
MIXTURE = Generator(mixture, "mixture", {"fits": 1})


@pytest.fixture(autouse=True)
def _short_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latent, "_STEPS", 10)  # post-processing: what is released does not depend on it


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    made = Tables.opened(tmp_path_factory.mktemp("audit"))
    yield made
    made.close()


def bounds(ratios: Any, loss: Loss) -> tuple[float, float]:
    """What was seen of the loss, and a bound that the loss is certainly not below (but for one time in ten million).

    Pure: a transcript whose likelihoods are known is e^epsilon times likelier on one side; the largest ratio is a
    certificate. zCDP: the mean ratio is the divergence of order 1, which is at most rho; less its margin it is a bound.
    """
    if loss.measure == "epsilon":
        return float(np.abs(ratios).max()), float(np.abs(ratios).max()) - 1e-9
    likelier = np.minimum([-ratios[0], ratios[1]], 50.0)
    best = likelier[likelier.mean(axis=1).argmax()]
    return float(best.mean()), float(best.mean() - 5.5 * best.std() / np.sqrt(len(best)))


# The last number: how much of the loss the attacker must at least see, so that the audit is known to have power.
CASES = [
    (MST, LOUD, 0.6),
    (MST, PURE, 0.5),
    (AIM, LOUD, 0.6),
    (AIM, PURE, 0.5),
    (MIXTURE, LOUD, 0.6),
    (MIXTURE, PURE, 0.5),
    (Generator(independent, "independent"), LOUD, 0.6),
    (Generator(m_way, "m_way"), PURE, 0.9),
]


@pytest.mark.parametrize(("generator", "loss", "least"), CASES, ids=[f"{one.name}, {loss}" for one, loss, _ in CASES])
def test_a_table_tells_no_more_about_a_person_than_it_says(
    tables: Tables, generator: Generator, loss: Loss, least: float
) -> None:
    ratios = evidence(generator, tables, loss, N)
    amount, bound = bounds(ratios, loss)
    assert least * float(loss.amount) <= amount
    assert bound <= float(loss.amount)
    found = certified(ratios, loss, SURE)
    assert found.verdict == "holds", str(found)


def half_the_noise(l2: Any, l1: int, loss: Loss) -> Any:
    """Of what the loss needs: four times a rho, or twice an epsilon."""
    return noise_for(l2, l1, Loss(loss.measure, loss.amount * (4 if loss.measure == "rho" else 2)))


TWINS = [(one, loss) for one in (MST, AIM, MIXTURE) for loss in (LOUD, PURE)]


@pytest.mark.parametrize(("generator", "loss"), TWINS, ids=[f"{one.name}, {loss}" for one, loss in TWINS])
def test_a_twin_with_half_the_noise_is_caught(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, generator: Generator, loss: Loss
) -> None:
    monkeypatch.setattr(marginals, "noise_for", half_the_noise)
    _, bound = bounds(evidence(generator, tables, loss, FEW), loss)
    assert bound > float(loss.amount)

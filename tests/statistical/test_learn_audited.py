"""What model cards say about attacks is what the attacks find."""

import importlib.util
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from cloister.hub.jobs.job_types.train.form import OFFERS
from cloister.learn.audited import audited

pytestmark = pytest.mark.statistical

FILE = Path(__file__).parents[2] / "benchmarks" / "learning" / "audited.py"


@pytest.fixture(scope="module")
def attacks():
    spec = importlib.util.spec_from_file_location("learning_audited", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["learning_audited"] = module
    spec.loader.exec_module(module)
    return module


def test_every_estimator_that_a_hub_offers_was_attacked_and_held():
    for name in OFFERS:
        found = audited(name)
        assert found["verdict"] == "holds"
        assert 0 <= found["lower_bound"] <= found["allowed"]
        assert found["samples"] >= 400


@pytest.mark.long
def test_an_attack_can_be_repeated_to_the_last_digit(attacks):
    said = audited("CategoricalNB")
    again = attacks.attack("CategoricalNB", said["samples"])
    assert again == {name: said[name] for name in again}
    assert again["lower_bound"] > 0.1, "the attack has power"


@pytest.mark.long
def test_an_attack_sees_much_more_of_an_estimator_that_takes_a_tenth_of_the_noise(attacks, monkeypatch):
    """So many samples cannot prove more than an epsilon of about 4.4; nearly that much they do prove."""
    from cloister.learn.naive_bayes import mixed

    law = mixed.noise_for
    monkeypatch.setattr(mixed, "noise_for", lambda l2, l1, loss: law(Fraction(l2) / 10, l1, loss))
    assert attacks.attack("CategoricalNB", 800)["lower_bound"] > 2 * audited("CategoricalNB")["lower_bound"]

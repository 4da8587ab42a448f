"""Networks trained in a hub: progress of every step, one charge, a card with the audited bound."""

import base64

import pytest

from cloister.hub.jobs import runner
from cloister.learn import persistence
from cloister.privacy.loss import rho

GOALS = {
    "NeuralNetworkClassifier": {"target": "readmitted"},
    "NeuralNetworkRegressor": {"target": "cost", "features": "age, stay_days"},
}


@pytest.fixture
def world(hospital_hub):
    hospital_hub.publish(change=[("researchers:\n    who: {organisations: [University]}\n    may: [see schema, query, "
                                  "profile]", "researchers:\n    who: {organisations: [University]}\n    may: [see "
                                  "schema, query, profile, train]")])  # fmt: skip
    return hospital_hub


@pytest.mark.parametrize("name", GOALS)
def test_a_network_is_trained_with_progress_and_leaves_a_card_with_the_audited_bound(world, name, monkeypatch):
    seen, plain = [], runner._Stages.__call__

    def watched(stages, share, words):
        plain(stages, share, words)
        seen.append((world.job(job.id).progress, world.job(job.id).stage))

    monkeypatch.setattr(runner._Stages, "__call__", watched)
    monkeypatch.setattr(runner, "_EVERY_S", 0.0)
    job = world.submit("ada", kind="train", spend="rho 0.02", estimator=name, **GOALS[name])
    assert world.work() == ["done"]
    done = world.job(job.id)
    assert world.spent() == rho("0.02")
    card = done.result
    assert card["audited"]["verdict"] == "holds"
    assert 0 < card["audited"]["lower_bound"] <= card["audited"]["allowed"]
    model = persistence.unpack(base64.b64decode(card["model"]), card["key"])
    assert type(model).__name__ == name
    assert model.loss_ == rho("0.02")
    assert len(model.coefs_) == 2
    steps = [(share, stage) for share, stage in seen if "steps done" in stage]
    assert [share for share, _ in steps] == sorted(share for share, _ in steps)
    assert len({share for share, _ in steps}) >= model.n_iter_  # not only when the run ends
    assert f"training: 1 of about {model.n_iter_ + 1} " in steps[0][1]  # the number of rows is bought in a step

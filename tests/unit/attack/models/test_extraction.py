"""Canaries that a model memorised are exposed; rows that a model stores are found, through pipelines too."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KernelDensity, KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from cloister import epsilon
from cloister.attack.models.extraction import canary_exposure, exposures, stored_rows
from cloister.privacy.errors import BadInput, BadLoss

DRAW = np.random.default_rng(1)
X, Y = DRAW.normal(size=(300, 5)), DRAW.integers(0, 8, 300)
CANARIES = DRAW.uniform(5, 50, (64, 5)), DRAW.integers(0, 8, 64)
CANDIDATES = DRAW.uniform(5, 50, (1023, 5)), DRAW.integers(0, 8, 1023)
ROWS, LABELS = np.concatenate((X, CANARIES[0])), np.concatenate((Y, CANARIES[1]))
OTHERS = DRAW.normal(size=(100, 5))


def test_the_exposure_of_a_rank_is_its_bits():
    losses = np.arange(1023.0)
    assert exposures([-1.0], losses).tolist() == [10.0]
    assert exposures([510.5], losses).tolist() == [1.0]
    assert exposures([1e9], losses).tolist() == [0.0]
    assert exposures([0.0], np.zeros(1022)) == pytest.approx(1, abs=0.01)  # all the same: no better than the middle


def test_a_model_that_ignores_canaries_exposes_a_bit_and_a_half():
    draw = np.random.default_rng(2)
    found = exposures(draw.random(20_000), draw.random(1023))
    assert found.mean() == pytest.approx(1.44, abs=0.05)


def test_a_canary_below_all_candidates_is_continued_by_a_normal_tail():
    draw = np.random.default_rng(3)
    losses = draw.normal(10, 1, 255)
    assert exposures([3.0], losses).tolist() == [8.0]
    assert exposures([3.0], losses, extrapolate=True).tolist() == [12.0]  # 39 bits by the tail: four more are believed
    assert exposures([9.0], losses, extrapolate=True) == exposures([9.0], losses)


def test_canaries_that_were_memorised_are_exposed_and_refute_a_claim():
    model = KNeighborsClassifier(1).fit(ROWS, LABELS)
    found = canary_exposure(model, canaries=CANARIES, candidates=CANDIDATES, claim=epsilon("0.1"))
    assert found.figures["average exposure in bits"] > 2.5  # an eighth of the candidates has the right label by chance
    assert found.roc.auc > 0.9
    assert found.broken
    assert found.remedies


def test_a_model_without_the_canaries_exposes_nothing():
    found = canary_exposure(GaussianNB().fit(X, Y), canaries=CANARIES, candidates=CANDIDATES, claim=epsilon(1))
    assert not found.learned
    assert not found.broken
    ignored = found.figures["exposure of a model that ignores canaries"]
    assert abs(found.figures["average exposure in bits"] - ignored) < 0.8
    assert found.remedies == ()


def test_losses_of_any_kind_are_measured():
    known = {row.tobytes() for row in CANARIES[0]}

    def perplexity(rows, labels):
        return [0.0 if row.tobytes() in known else 5.0 + abs(row[0]) for row in rows]

    found = canary_exposure("a language model", canaries=CANARIES, candidates=CANDIDATES, losses=perplexity)
    assert found.success == 1
    assert found.learned
    assert found.figures["average exposure in bits"] == 10
    assert found.target == "a language model"


@pytest.mark.parametrize(
    "model",
    [
        KNeighborsClassifier(3),
        KNeighborsClassifier(3, algorithm="kd_tree"),
        make_pipeline(StandardScaler(), KNeighborsClassifier(3)),
        BaggingClassifier(KNeighborsClassifier(1), n_estimators=20, random_state=0),
        KernelDensity(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_model_that_stores_rows_gives_them_back(model):
    found = stored_rows(model.fit(X, Y), rows=X, others=OTHERS)
    assert found.success > 0.99
    assert found.baseline == 0
    assert found.risk.sum() == round(found.success * 300)
    assert any("check_export" in sentence for sentence in found.remedies)


def test_support_vectors_are_training_rows():
    model = SVC(C=0.5).fit(X, Y > 3)
    found = stored_rows(model, rows=X, others=OTHERS)
    assert found.success == len(model.support_) / 300
    assert any("support_vectors_" in name for name in found.figures)


def test_floats_of_half_the_width_are_recognised():
    class Kept:
        __slots__ = ("table",)

    model = Kept()
    model.table = {"rows": [X.astype(np.float32)]}
    assert stored_rows(model, rows=X).success == 1


def test_a_function_that_closes_over_rows_and_a_frame_inside_a_model_are_found():
    kept = X.copy()
    assert stored_rows(lambda rows: rows @ kept.T, rows=X).success == 1

    class Model:
        frame = None

    model = Model()
    model.frame = pd.DataFrame(X)
    model.again = model  # a model that refers to itself is looked at once
    assert stored_rows(model, rows=pd.DataFrame(X)).success == 1


@pytest.mark.parametrize(
    "model", [LogisticRegression(), GaussianNB(), DecisionTreeClassifier(), RandomForestClassifier(5)]
)
def test_parameters_are_no_rows(model):
    found = stored_rows(model.fit(X, Y), rows=X, others=OTHERS)
    assert found.success == 0
    assert not found.learned
    assert found.interval[0] == 0
    assert any("another form" in note for note in found.notes)


def test_rows_that_repeat_elsewhere_are_no_memory():
    tens = np.tile(np.eye(5), (20, 1))
    found = stored_rows(KNeighborsClassifier(1).fit(tens, np.arange(100) % 2), rows=tens, others=np.eye(5))
    assert found.baseline == 1
    assert not found.learned


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: exposures([], [1]), "at least one canary"),
        (lambda: exposures([np.nan], [1]), "no NaN"),
        (lambda: exposures(["a"], [1]), "losses are numbers"),
        (lambda: stored_rows("model.pkl", rows=X), "that is loaded"),
        (lambda: stored_rows(b"", rows=X), "that is loaded"),
        (lambda: stored_rows(SVC(), rows=[1, 2]), "a matrix or a frame"),
        (lambda: canary_exposure(None, canaries=X, candidates=CANDIDATES), "canaries is a pair"),
        (lambda: canary_exposure(None, canaries=CANARIES, candidates=CANDIDATES, losses=3), "losses is a function"),
        (
            lambda: canary_exposure(None, canaries=CANARIES, candidates=CANDIDATES, losses=lambda rows, labels: [1]),
            "one number for each row",
        ),
        (lambda: canary_exposure(None, canaries=CANARIES, candidates=CANDIDATES), "a target is an estimator"),
    ],
)
def test_input_that_does_not_fit_is_refused_with_a_sentence(call, sentence):
    with pytest.raises(BadInput, match=sentence):
        call()


def test_a_claim_is_a_loss():
    with pytest.raises(BadLoss, match="a claim must be a loss"):
        stored_rows(SVC().fit(X, Y), rows=X, claim=1)

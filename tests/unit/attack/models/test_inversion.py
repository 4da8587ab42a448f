"""Inputs found by inversion resemble their class where the model tells it, and do not under labels alone."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsRegressor

from cloister import learn
from cloister.attack.models.inversion import ascend, hill_climb, inversion
from cloister.attack.models.target import Target
from cloister.learn import serving
from cloister.privacy.errors import BadBounds, BadInput, BadNumber, OutputRefused

PEOPLE, FEATURES = 10, 24
FACES = np.random.default_rng(1).random((PEOPLE, FEATURES))
DRAW = np.random.default_rng(2)
X = np.clip(np.repeat(FACES, 8, axis=0) + DRAW.normal(0, 0.05, (8 * PEOPLE, FEATURES)), 0, 1)
Y = np.repeat(np.arange(PEOPLE), 8)
MODEL = LogisticRegression(C=10, max_iter=500).fit(X, Y)


def softmax(rows):
    import jax

    return jax.nn.softmax(rows @ MODEL.coef_.T + MODEL.intercept_)


def test_hill_climbing_finds_the_face_of_each_person():
    found = inversion(MODEL, victims=(X, Y), box=(0, 1), rounds=150, random_state=0)
    assert found.success >= 0.9
    assert found.baseline == 0.1
    assert found.learned
    assert found.figures["confidence reached"] > 0.95
    assert found.figures["resemblance to the own one"] > 0.3 > found.figures["resemblance to others"]
    assert any("label_only" in sentence for sentence in found.remedies)


def test_gradients_of_a_jax_function_find_it_too():
    found = inversion(softmax, victims=(X, Y), box=(0, 1), method="gradient", rounds=100, starts=2, random_state=0)
    assert found.success >= 0.9
    assert found.access == "white box"


def test_scores_that_were_overheard_often_name_the_person():
    seen = X + DRAW.normal(0, 0.02, (5, *X.shape))
    scores = np.stack([MODEL.predict_proba(once) for once in seen], axis=1)[::8]
    found = inversion(
        MODEL,
        victims=(X[::8], Y[::8]),
        box=(0, 1),
        method="intercepted",
        intercepted=scores,
        rounds=150,
        random_state=0,
    )
    assert found.success >= 0.9
    assert "overheard" in found.knowledge


def test_a_model_of_noise_names_nobody():
    noise = LogisticRegression(C=10).fit(np.random.default_rng(3).random(X.shape), Y)
    found = inversion(noise, victims=(X, Y), box=(0, 1), rounds=60, random_state=0)
    assert not found.learned
    assert found.remedies == ()


def test_a_service_that_shows_labels_only_gives_no_score_to_climb_on():
    with pytest.raises(OutputRefused, match="predict_proba is not shown"):
        inversion(learn.serve(MODEL, policy=serving.label_only()), victims=(X, Y), box=(0, 1))
    with pytest.raises(BadInput, match="labels only"):
        inversion(Target.of(MODEL, labels_only=True), victims=(X, Y), box=(0, 1))


def test_one_class_is_inverted_by_itself():
    row, reached = hill_climb(MODEL, 3, box=(0, 1), width=FEATURES, rounds=200, random_state=0)
    assert row.shape == (FEATURES,)
    assert ((row >= 0) & (row <= 1)).all()
    assert MODEL.predict(row[None])[0] == 3
    assert reached > 2


def test_a_gradient_climbs_to_the_best_corner_of_the_box():
    slope = np.array([1.0, -2.0, 0.5])
    found = ascend(lambda row: row @ slope, np.full((2, 3), 0.5), box=([0, 0, -1], [1, 1, 1]), rounds=200)
    assert np.allclose(found, [[1, 0, 1], [1, 0, 1]], atol=1e-3)


def test_images_keep_their_shape():
    shapes = []

    def model(images):
        shapes.append(images.shape[1:])
        return MODEL.predict_proba(images.reshape(len(images), -1))

    found = inversion(model, victims=(X.reshape(-1, 4, 6), Y), box=(0, 1), rounds=60, random_state=0)
    assert set(shapes) == {(4, 6)}
    assert found.success > 0.5


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"method": "magic"}, "method is one of"),
        ({"method": "intercepted"}, "give both"),
        ({"intercepted": [[1]]}, "give both"),
        ({"method": "intercepted", "intercepted": [[1, 2]]}, "10 scores of at least 0"),
        ({"method": "intercepted", "intercepted": "abc"}, "scores are numbers"),
        ({"method": "gradient"}, "needs a JAX function"),
        ({"victims": (X[:8], Y[:8])}, "one class"),
        ({"victims": X}, "victims is a pair"),
        ({"victims": (pd.DataFrame(X), Y)}, "arrays of numbers"),
    ],
)
def test_input_that_does_not_fit_is_refused_with_a_sentence(more, sentence):
    with pytest.raises(BadInput, match=sentence):
        inversion(MODEL, **{"victims": (X, Y), "box": (0, 1), "rounds": 2} | more)


@pytest.mark.parametrize("box", [3, (1, 0), (0, 0), (0, float("inf")), ("a", "b"), ([0, 1], [1, 2]), (0,)])
def test_a_box_is_a_pair_of_bounds(box):
    with pytest.raises(BadBounds, match="box is a pair"):
        inversion(MODEL, victims=(X, Y), box=box)


@pytest.mark.parametrize("more", [{"rounds": 0}, {"starts": 0}, {"rounds": 1.5}, {"starts": True}])
def test_rounds_and_starts_are_whole_numbers(more):
    with pytest.raises(BadNumber, match="whole number"):
        inversion(MODEL, victims=(X, Y), box=(0, 1), **more)


def test_models_of_numbers_have_no_classes_to_invert():
    with pytest.raises(BadInput, match="predicts numbers"):
        inversion(KNeighborsRegressor(1).fit(X, Y), victims=(X, Y), box=(0, 1))


def test_a_function_that_jax_cannot_differentiate_is_named():
    with pytest.raises(BadInput, match="hill climbing"):
        inversion(lambda rows: MODEL.predict_proba(np.asarray(rows)), victims=(X, Y), box=(0, 1), method="gradient")

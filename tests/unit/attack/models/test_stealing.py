"""Linear models are copied exactly from d + 1 answers; rounding, labels and watermarks do what is said of them."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

from cloister import learn
from cloister.attack.models.stealing import copy_by_learning, copy_linear, steal, watermark
from cloister.attack.models.target import Target
from cloister.learn import serving
from cloister.privacy.errors import BadBounds, BadInput, BadNumber, OutputRefused

D = 12
DRAW = np.random.default_rng(1)
X = DRAW.uniform(0, 1, (600, D))
WEIGHTS = DRAW.normal(size=(D, 3))
THREE = ((X - 0.5) @ WEIGHTS + DRAW.gumbel(size=(600, 3)) / 3).argmax(axis=1)
TWO = ((X - 0.5) @ WEIGHTS[:, 0] + DRAW.logistic(size=600) / 5 > 0).astype(int)
TEST = DRAW.uniform(0, 1, (500, D))


def test_a_logistic_model_is_copied_from_d_and_1_confidences():
    model = LogisticRegression(C=10, max_iter=1000).fit(X, TWO)
    copy = copy_linear(model, box=(0, 1), width=D, random_state=0)
    assert copy.queries == D + 1
    assert copy.exact
    assert np.allclose(copy.coef, model.coef_, rtol=1e-8)
    assert np.allclose(copy.intercept, model.intercept_, rtol=1e-8)
    assert (copy.predict(TEST) == model.predict(TEST)).all()
    assert np.allclose(copy.predict_proba(TEST), model.predict_proba(TEST), atol=1e-10)


def test_a_model_of_several_classes_is_copied_up_to_what_all_classes_share():
    model = LogisticRegression(C=10, max_iter=1000).fit(X, THREE)
    copy = copy_linear(model, box=(0, 1), width=D, random_state=0)
    assert copy.queries == D + 1
    assert np.allclose(copy.coef, model.coef_[1:] - model.coef_[0], rtol=1e-7)
    assert (copy.predict(TEST) == model.predict(TEST)).all()


@pytest.mark.parametrize("model", [LinearRegression(), Ridge(3.0)])
def test_a_linear_regression_is_copied_from_d_and_1_answers(model):
    model.fit(X, X @ WEIGHTS[:, 0] + 7)
    copy = copy_linear(model, box=(0, 1), width=D, random_state=0)
    assert copy.classes is None
    assert np.allclose(copy.coef[0], model.coef_, rtol=1e-8)
    assert copy.intercept[0] == pytest.approx(model.intercept_, rel=1e-8)
    assert np.allclose(copy.predict(TEST), model.predict(TEST))


def test_a_model_that_is_nearly_sure_everywhere_is_asked_near_the_middle():
    slope = np.zeros(D)
    slope[0] = 900.0

    def model(rows):
        second = 1 / (1 + np.exp(-np.clip((rows - 0.5) @ slope, -700, 700)))
        return np.column_stack((1 - second, second))

    copy = copy_linear(model, box=(0, 1), width=D, random_state=0)
    assert np.allclose(copy.coef[0], slope, rtol=1e-4, atol=1e-2)


def test_columns_of_very_different_sizes_are_copied_as_well():
    low, high = np.zeros(D), 10.0 ** np.arange(-3, D - 3)
    model = LinearRegression().fit(X * high, X @ WEIGHTS[:, 0])
    copy = copy_linear(model, box=(low, high), width=D, random_state=0)
    assert np.allclose(copy.coef[0] * high, model.coef_ * high, rtol=1e-6)


def test_a_model_that_is_not_linear_shows_in_answers_that_were_not_used():
    model = MLPClassifier((16,), max_iter=30, random_state=0)
    with pytest.warns(UserWarning, match="hasn't converged"):
        model.fit(X, TWO)
    copy = copy_linear(model, box=(0, 1), width=D, random_state=0)
    assert not copy.exact
    assert copy.error > 1e-3


def test_the_finding_says_what_rounding_and_more_queries_do():
    model = LogisticRegression(C=10, max_iter=1000).fit(X, TWO)
    found = steal(model, test=TEST, box=(0, 1), random_state=0)
    assert found.attack == "model stealing by solving equations"
    assert found.success == 1
    assert found.learned
    assert found.figures["queries"] == D + 1
    coarse = found.figures["agreement from 1 decimals"]
    fine = found.figures["agreement from 3 decimals"]
    assert coarse < fine
    assert found.figures[f"agreement from 1 decimals and {10 * (D + 1)} queries"] > coarse
    assert any("label_only" in sentence for sentence in found.remedies)


def test_answers_of_single_precision_are_solved_too():
    model = LogisticRegression(C=10, max_iter=1000).fit(X, TWO)

    def network(rows):
        return model.predict_proba(rows).astype(np.float32)

    found = steal(network, test=TEST, box=(0, 1), random_state=0)
    assert found.attack == "model stealing by solving equations"
    assert found.success > 0.99
    learned = steal(network, test=TEST, box=(0, 1), method="learning", queries=300, random_state=0)
    assert learned.figures["agreement with labels only"] > 0.7


def test_a_served_model_is_copied_as_far_as_its_policy_shows():
    model = LogisticRegression(C=10, max_iter=1000).fit(X, TWO)
    full = learn.serve(model, policy=serving.full())
    assert copy_linear(full, box=(0, 1), width=D, random_state=0).exact
    rounded = copy_linear(learn.serve(model, policy=serving.rounded(2)), box=(0, 1), width=D, random_state=0)
    assert not rounded.exact
    with pytest.raises(OutputRefused):
        copy_linear(learn.serve(model, policy=serving.label_only()), box=(0, 1), width=D, random_state=0)
    limited = learn.serve(model, policy=serving.full(), queries=D)
    with pytest.raises(OutputRefused):
        copy_linear(limited, box=(0, 1), width=D, random_state=0)


def test_any_other_model_is_learned_and_agrees_more_with_more_queries():
    model = RandomForestClassifier(30, max_depth=4, random_state=0).fit(X, TWO)
    found = steal(model, test=TEST, rows=X, box=(0, 1), queries=600, fit=DecisionTreeClassifier(max_depth=5),
                  random_state=0)  # fmt: skip
    assert found.attack == "model stealing by learning"
    curve = [value for name, value in found.figures.items() if name.startswith("agreement after")]
    assert len(curve) == 3
    assert curve[-1] > curve[0]
    assert found.success > found.baseline
    assert found.figures["agreement with labels only"] > found.baseline - 0.1


def test_labels_alone_teach_a_copy_more_slowly_than_probabilities():
    model = LogisticRegression(C=10, max_iter=1000).fit(X, TWO)
    found = steal(model, test=TEST, rows=X, method="learning", queries=400, random_state=0)
    hidden = steal(model, test=TEST, rows=X, queries=400, labels_only=True, random_state=0)
    assert hidden.access == "labels only"
    assert found.success >= hidden.success - 0.01
    assert found.success > 0.9


def test_the_attackers_own_rows_are_the_baseline():
    model = GaussianNB().fit(X, TWO)
    poor = steal(model, test=TEST, rows=X, queries=200, fit=GaussianNB(), random_state=0)
    rich = steal(model, test=TEST, rows=X, queries=200, fit=GaussianNB(), reference=(X, TWO), random_state=0)
    assert rich.baseline == 1
    assert not rich.learned
    assert poor.baseline < 0.9


def test_a_model_of_numbers_is_stolen_by_its_numbers():
    model = LinearRegression().fit(X, X @ WEIGHTS[:, 0])
    found = steal(model, test=TEST, box=(0, 1), random_state=0)
    assert found.success == 1
    assert found.baseline < 0.1


def test_classes_that_are_words_are_copied_as_words():
    words = np.array(["north", "east", "south"])[THREE]
    model = LogisticRegression(C=10, max_iter=1000).fit(X, words)
    found = steal(model, test=TEST, box=(0, 1), random_state=0)
    assert found.success == 1
    assert set(copy_linear(model, box=(0, 1), width=D).predict(TEST)) <= {"north", "east", "south"}
    learned = steal(model, test=TEST, rows=X, method="learning", queries=300, random_state=0)
    assert learned.success > learned.baseline


def test_images_are_flattened_for_the_equations_and_asked_in_their_shape():
    model = LogisticRegression(C=10, max_iter=1000).fit(X, TWO)

    def images(rows):
        assert rows.shape[1:] == (3, 4)
        return model.predict_proba(rows.reshape(len(rows), -1))

    found = steal(images, test=TEST.reshape(-1, 3, 4), box=(0, 1), random_state=0)
    assert found.success == 1
    assert found.figures["queries"] == D + 1


def test_rows_are_changed_where_there_are_too_few():
    model = LogisticRegression(C=10, max_iter=1000).fit(X, TWO)
    found = steal(model, test=TEST, rows=X[:40], method="learning", queries=300, random_state=0)
    assert found.figures["queries"] == 300
    assert found.success > found.baseline


@pytest.mark.parametrize("n", [10, 60, 199, 200])
def test_few_answers_of_rare_classes_are_learned(n):
    rare = np.where(np.arange(600) == 0, 2, TWO)
    model = DecisionTreeClassifier(random_state=0).fit(X, rare)
    found = steal(model, test=TEST, rows=X[:n], queries=n, random_state=0)
    assert found.figures["queries"] == n
    assert copy_by_learning(model, rows=X[:n], labels_only=True, random_state=0).predict(TEST).shape == (500,)


def test_a_model_of_one_class_is_copied_by_no_weights_at_all():
    model = DecisionTreeClassifier().fit(X, TWO * 0 + 4)
    found = steal(model, test=TEST, box=(0, 1), random_state=0)
    assert found.success == 1
    assert not found.learned  # its only answer was the best guess before


def test_rows_with_gaps_need_a_model_that_takes_them():
    gaps = X.copy()
    gaps[::5, 0] = np.nan
    model = HistGradientBoostingClassifier(max_iter=10).fit(gaps, TWO)
    with pytest.raises(BadInput, match=r"finite numbers.*Pass fit="):
        steal(model, test=TEST, rows=gaps, queries=300, random_state=0)
    with pytest.raises(BadInput, match=r"cannot answer the rows of test.*Pass fit="):
        steal(model, test=gaps, box=(0, 1), queries=300, random_state=0)
    again = HistGradientBoostingClassifier(max_iter=10)
    assert steal(model, test=TEST, rows=gaps, queries=300, fit=again, random_state=0).success > 0.8


def test_a_copy_of_a_model_of_one_answer_gives_that_answer():
    copy = copy_by_learning(lambda rows: np.tile([0.9, 0.1], (len(rows), 1)), rows=X)
    assert set(copy.predict(TEST)) == {0}


def test_a_watermark_names_the_model_that_learned_it():
    draw = np.random.default_rng(3)
    triggers = draw.uniform(2, 3, (40, D)), draw.integers(0, 3, 40)
    marked = KNeighborsClassifier(1).fit(np.vstack((X, triggers[0])), np.concatenate((THREE, triggers[1])))
    found = watermark(marked, triggers=triggers)
    assert found.success == 1
    assert found.baseline == pytest.approx(1 / 3)
    assert found.learned
    assert float(found.figures["p-value that this is chance"]) < 1e-15
    innocent = watermark(KNeighborsClassifier(1).fit(X, THREE), triggers=triggers)
    assert not innocent.learned
    assert float(innocent.figures["p-value that this is chance"]) > 0.01
    assert watermark(marked, triggers=triggers, chance=0.9).baseline == 0.9


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"method": "magic"}, "method is one of"),
        ({"method": "equations", "box": None}, "pass box="),
        ({"box": None}, "pass rows="),
        ({"rows": X[:, :3], "method": "learning"}, "same columns"),
        ({"test": TEST[:3]}, "at least 8 rows"),
        ({"labels_only": True, "method": "equations"}, "pass box="),
    ],
)
def test_input_that_does_not_fit_is_refused_with_a_sentence(more, sentence):
    model = LogisticRegression(max_iter=1000).fit(X, TWO)
    with pytest.raises(BadInput, match=sentence):
        steal(model, **{"test": TEST, "box": (0, 1)} | more)


def test_numbers_and_boxes_are_checked():
    model = LogisticRegression(max_iter=1000).fit(X, TWO)
    for wrong in (0, D, 2.5, True):
        with pytest.raises(BadNumber, match="queries is a whole number"):
            copy_linear(model, box=(0, 1), width=D, queries=wrong)
    with pytest.raises(BadNumber, match="width"):
        copy_linear(model, box=(0, 1), width=0)
    with pytest.raises(BadBounds, match="box is a pair"):
        copy_linear(model, box=(1, 0), width=D)
    with pytest.raises(BadInput, match="labels only"):
        copy_linear(Target.of(model, labels_only=True), box=(0, 1), width=D)
    for wrong in (0, 1, "x", True):
        with pytest.raises(BadInput, match="chance is a probability"):
            watermark(model, triggers=(X, TWO), chance=wrong)
        with pytest.raises(BadInput, match="confidence lies between"):
            watermark(model, triggers=(X, TWO), confidence=wrong)
    with pytest.raises(BadInput, match="triggers is a pair"):
        watermark(model, triggers=X)


def test_a_box_in_which_all_answers_are_the_same_is_not_taken_for_a_copy():
    far = lambda rows: np.tile([0.0, 1.0], (len(rows), 1))  # noqa: E731
    assert copy_linear(far, box=(0, 5_000), width=D).error == np.inf
    found = steal(far, test=X[:50], box=(0, 5_000), queries=50, random_state=0)
    assert found.attack == "model stealing by learning"

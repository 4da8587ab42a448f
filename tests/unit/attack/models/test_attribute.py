"""A hidden column is guessed beyond imputation where the model memorised it, and not where it did not."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from cloister.attack.models.attribute import attribute
from cloister.privacy.errors import BadInput

N = 400


def table(seed, n=N):
    """Return rows whose last column is a coin, and labels that add another column's sign to the coin."""
    draw = np.random.default_rng(seed)
    rows = np.column_stack((draw.normal(size=(n, 3)), draw.integers(0, 2, n)))
    return rows, (rows[:, 3] + (rows[:, 0] > 0)).astype(int)


def test_a_column_on_which_the_label_hangs_is_read_off_the_model():
    members = table(1)
    model = DecisionTreeClassifier(random_state=0).fit(*members)
    found = attribute(model, members=members, column=3, random_state=0)
    assert found.success > 0.95
    assert 0.45 < found.baseline < 0.6
    assert found.learned
    assert found.risk.mean() > 0.95
    assert found.figures["queries"] == 2 * N
    assert any("spend" in sentence for sentence in found.remedies)


def test_imputation_that_is_as_good_leaves_nothing_to_the_model():
    members, reference = table(1), table(2, 3000)
    model = DecisionTreeClassifier(random_state=0).fit(*members)
    found = attribute(model, members=members, column=3, reference=reference, random_state=0)
    assert found.baseline > 0.97  # the label and the sign give the coin away, whether or not the model exists
    assert not found.learned
    assert found.remedies == ()


def test_memory_is_told_apart_from_what_the_population_shows():
    draw = np.random.default_rng(3)
    rows = np.column_stack((draw.normal(size=(2 * N, 3)), draw.integers(0, 2, 2 * N)))
    labels = draw.integers(0, 5, 2 * N)
    members, others = (rows[:N], labels[:N]), (rows[N:], labels[N:])
    model = DecisionTreeClassifier(random_state=0, max_features=1).fit(rows[:N] * [1, 1, 1, 50], labels[:N])

    def answer(asked):
        return model.predict_proba(asked * [1, 1, 1, 50])

    found = attribute(answer, members=members, others=others, column=3, random_state=0)
    assert found.learned
    assert found.success > 0.6
    assert found.figures["of records that are no members"] < 0.58


def test_a_model_of_independent_rows_tells_nothing_of_a_coin():
    draw = np.random.default_rng(4)
    rows, labels = np.column_stack((draw.normal(size=(N, 3)), draw.integers(0, 2, N))), draw.integers(0, 2, N)
    found = attribute(GaussianNB().fit(rows[::-1], labels), members=(rows, labels), column=3, random_state=0)
    assert not found.learned


def test_labels_alone_are_enough_where_the_label_changes():
    members = table(1)
    model = DecisionTreeClassifier(random_state=0).fit(*members)
    found = attribute(model, members=members, column=3, labels_only=True, random_state=0)
    assert found.success > 0.95
    assert found.access == "labels only"


def test_a_column_of_text_in_a_frame_is_hidden_by_name():
    draw = np.random.default_rng(5)
    frame = pd.DataFrame({"ward": draw.choice(["a", "b", "c"], N), "sex": draw.choice(["f", "m"], N)})
    labels = np.where(frame.ward == "a", "ill", "well")
    model = make_pipeline(OneHotEncoder(), LogisticRegression(C=100)).fit(frame, labels)
    found = attribute(model, members=(frame, labels), column="ward", random_state=0)
    assert found.success > 0.6  # a, or one of the two others
    assert found.figures["candidate values"] == 3
    assert list(frame.columns) == ["ward", "sex"]
    assert set(frame.ward) == {"a", "b", "c"}  # the caller's frame is not changed


def test_a_model_of_numbers_gives_its_column_away_by_its_errors():
    draw = np.random.default_rng(6)
    rows = np.column_stack((draw.normal(size=N), draw.integers(0, 3, N) * 10.0))
    goal = rows[:, 1] + draw.normal(0, 0.1, N)
    model = KNeighborsRegressor(3).fit(rows, goal)
    found = attribute(model, members=(rows, goal), column=1, random_state=0)
    assert found.success > 0.97


def test_numbers_are_guessed_as_the_nearest_candidate():
    draw = np.random.default_rng(7)
    rows = np.column_stack((draw.normal(size=N), draw.random(N)))
    model = DecisionTreeClassifier(random_state=0, max_depth=3).fit(rows, rows[:, 1] > 0.5)
    found = attribute(model, members=(rows, rows[:, 1] > 0.5), column=1, values=[0.25, 0.75], random_state=0)
    assert found.success > 0.97


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"column": 9}, "one of 4 columns"),
        ({"column": "ward"}, "one of 4 columns"),
        ({"column": True}, "one of 4 columns"),
        ({"column": 0}, "2 to 100 candidate values"),
        ({"values": [1]}, "2 to 100 candidate values"),
        ({"values": ["a", "b"]}, "none of the candidates"),
        ({"members": (np.zeros((9, 2, 2)), np.zeros(9))}, "a matrix or a frame"),
        ({"members": None}, "members is a pair"),
        ({"others": table(1)[0]}, "others is a pair"),
    ],
)
def test_input_that_does_not_fit_is_refused_with_a_sentence(more, sentence):
    members = table(1)
    model = DecisionTreeClassifier(random_state=0).fit(*members)
    with pytest.raises(BadInput, match=sentence):
        attribute(model, **{"members": members, "column": 3} | more)

"""Records with which membership cannot be told are refused; findings name what was asked."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from cloister.attack.models.membership import membership
from cloister.privacy.errors import BadInput

DRAW = np.random.default_rng(2)
X, Y = DRAW.normal(size=(400, 3)), DRAW.integers(0, 2, 400)
MEMBERS, OTHERS = (X[:200], Y[:200]), (X[200:], Y[200:])
MODEL = DecisionTreeClassifier(random_state=0).fit(*MEMBERS)


def test_members_that_are_passed_as_others_are_refused():
    with pytest.raises(BadInput, match="100% of the rows of others are rows of members too"):
        membership(MODEL, members=MEMBERS, others=MEMBERS)
    half = np.concatenate((X[:120], X[200:280])), np.concatenate((Y[:120], Y[200:280]))
    with pytest.raises(BadInput, match="60% of the rows of others"):
        membership(MODEL, members=MEMBERS, others=half)


def test_rows_of_few_values_may_occur_on_both_sides():
    rows, labels = DRAW.integers(0, 2, (400, 3)).astype(float), DRAW.integers(0, 2, 400)
    model = LogisticRegression().fit(rows[:200], labels[:200])
    membership(model, members=(rows[:200], labels[:200]), others=(rows[200:], labels[200:]))


@pytest.mark.parametrize("method", ["loss", "quantile", "labels", "lira"])
def test_members_whose_label_the_model_does_not_know_are_refused(method):
    with pytest.raises(BadInput, match="the labels of 200 of 200 members are none of the classes"):
        membership(MODEL, members=(X[:200], Y[:200] + 5), others=OTHERS, method=method, shadows=4)


def test_a_few_labels_that_the_model_does_not_know_are_noted():
    labels = np.where(np.arange(200) < 20, 7, Y[:200])
    found = membership(MODEL, members=(X[:200], labels), others=OTHERS)
    assert any("the labels of 20 of 200 members" in note for note in found.notes)


def test_a_model_of_numbers_is_said_to_answer_numbers():
    model = DecisionTreeRegressor(random_state=0).fit(X[:200], X[:200, 0])
    pairs = {"members": (X[:200], X[:200, 0]), "others": (X[200:], X[200:, 0])}
    for method in ("loss", "quantile"):
        assert "probabilit" not in membership(model, method=method, **pairs).knowledge


def test_an_estimator_that_cannot_learn_the_rows_is_refused_in_a_sentence():
    with pytest.raises(BadInput, match=r"broken could not fit [0-9]+ rows .ValueError"):
        membership(MODEL, members=MEMBERS, others=OTHERS, method="lira", shadows=4, fit=broken)


def broken(rows, labels):
    raise ValueError("could not convert")

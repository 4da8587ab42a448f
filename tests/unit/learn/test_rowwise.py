"""What a model says of a row does not depend on which rows stand beside it, to the last bit.

Otherwise one person's row could move another's prediction across an edge, and a noisy count of predictions by more than
its sensitivity.
"""

import numpy as np
import pytest

import cloister as cl
from cloister import learn

SPEND = cl.epsilon(1, delta="1e-6")
ROWS, FEATURES = 1003, 37
TWO = {"bounds": (0, 1), "classes": [0, 1]}
MODELS = {
    "LogisticRegression": TWO,
    "LinearSVC": TWO,
    "GaussianNB": TWO,
    "MixedNB": TWO,
    "CategoricalNB": {"categories": 10, "classes": [0, 1]},
    "DecisionTreeClassifier": TWO,
    "RandomForestClassifier": TWO,
    "GradientBoostingClassifier": TWO,
    "LinearRegression": {"bounds": (0, 1), "target_bounds": (0, 1)},
    "Ridge": {"bounds": (0, 1), "target_bounds": (0, 1)},
    "GradientBoostingRegressor": {"bounds": (0, 1), "target_bounds": (0, 1)},
    "KMeans": {"bounds": (0, 1), "n_clusters": 3},
    "PCA": {"bounds": (0, 1), "n_components": 3},
}


@pytest.fixture(scope="module")
def table():
    drawn = np.random.default_rng(5)
    rows = drawn.uniform(0, 1, (ROWS, FEATURES))
    return rows, rows @ drawn.normal(size=FEATURES)


@pytest.mark.parametrize("name", MODELS)
def test_predictions_are_the_same_in_any_company(name, table, tmp_path):
    rows, line = table
    if name == "CategoricalNB":
        rows = np.floor(rows * 10).astype(int)
    target = np.clip(line / 10 + 0.5, 0, 1) if "target_bounds" in MODELS[name] else (line > np.median(line)).astype(int)
    model = getattr(learn, name)(SPEND, ledger=tmp_path, **MODELS[name]).fit(rows, target)
    asked = [one for one in ("predict", "decision_function", "predict_proba", "transform") if hasattr(model, one)]
    assert asked
    order = np.random.default_rng(6)
    for ask in (getattr(model, one) for one in asked):
        every = np.asarray(ask(rows))
        for size in (1, 2, 3, 5, 8, 100, 777):
            some = order.permutation(ROWS)[:size]
            assert (np.asarray(ask(rows[some])) == every[some]).all()

import numpy as np
import pyarrow as pa
import pytest

from cloister.anonymize.operations.learning_from_noise import ByClassTree, NoisyNaiveBayes, correct_by_class
from cloister.anonymize.operations.noise import Noise, perturb
from cloister.privacy.errors import BadSchema

NOISE = {"age": Noise("normal", 25), "pay": Noise("uniform", 60)}
BOUNDS = {"age": (0, 100), "pay": (0, 200)}


def people(count, seed):
    """Class B is between two ages: noise moves A into B and back, and the raw noisy values mislead."""
    rng = np.random.default_rng(seed)
    age, pay = rng.uniform(0, 100, count), rng.uniform(0, 200, count)
    label = np.where((age > 35) & (age < 65), "B", "A")
    return pa.table({"age": age, "pay": pay, "class": label})


def noisy_people(count, seed):
    rows = people(count, seed)
    for name, law in NOISE.items():
        rows = perturb(rows, name, law, random_state=seed).rows
    return rows


def accuracy(model, rows, **options):
    return np.mean(np.array(model.predict(rows, **options).to_pylist()) == np.array(rows["class"].to_pylist()))


def test_naive_bayes_learns_the_distributions_before_noise():
    rows, fresh = noisy_people(20_000, 1), people(4000, 2)
    model = NoisyNaiveBayes(NOISE, BOUNDS).fit(rows, "class")
    assert accuracy(model, fresh) > 0.93
    assert model.probabilities(fresh).sum(axis=1) == pytest.approx(1)
    assert 0.7 < accuracy(model, noisy_people(4000, 3), noisy=True) < 0.93


def test_a_tree_by_class_beats_a_tree_on_noisy_values():
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'cloister[learn]'")
    from sklearn.tree import DecisionTreeClassifier

    rows, fresh = noisy_people(20_000, 1), people(4000, 2)
    corrected = accuracy(ByClassTree(NOISE, BOUNDS).fit(rows, "class"), fresh)

    def features(table):
        return np.column_stack([table["age"].to_numpy(), table["pay"].to_numpy()])

    raw = DecisionTreeClassifier(max_depth=6, min_samples_leaf=20, random_state=0)
    raw.fit(features(rows), rows["class"].to_pylist())
    plain = np.mean(raw.predict(features(fresh)) == np.array(fresh["class"].to_pylist()))
    assert corrected > 0.93
    assert corrected > plain + 0.02


def test_corrected_values_keep_their_order_within_a_class_and_null_stays():
    rows = pa.table({"x": [5.0, None, 9.0, 1.0, 4.0], "class": ["A", "A", "A", "A", None]})
    rows = pa.concat_tables([rows, pa.table({"x": [3.0, 8.0], "class": ["B", "B"]})])
    result = correct_by_class(rows, "class", {"x": Noise("normal", 1)}, {"x": (0, 10)}, bins=5).rows["x"].to_pylist()
    assert result[1] is None
    assert result[4] == 4.0
    assert result[3] <= result[0] <= result[2]
    assert {value % 2 for value in result if value is not None and value != 4.0} == {1.0}  # middles of the cells


def test_a_class_without_two_values_or_a_feature_without_bounds_is_refused():
    rows = {"x": [1.0, 2.0], "class": ["A", None]}
    with pytest.raises(BadSchema, match="two classes"):
        NoisyNaiveBayes({"x": Noise("normal", 1)}, {"x": (0, 5)}).fit(rows, "class")
    with pytest.raises(BadSchema, match="bounds"):
        NoisyNaiveBayes({"x": Noise("normal", 1)}, {}).fit(rows, "class")

"""Network estimators: tables, images and datasets; what they cost, and what they refuse."""

import secrets

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.datasets import load_digits

import cloister as cl
from cloister import learn
from cloister.learn.deep import networks
from cloister.privacy.errors import BadBounds, BadInput, BadLoss, BadNumber, BadSchema

SPEND = cl.epsilon(3, delta="1e-5")
RANDOM = np.random.default_rng(0)
ROWS = RANDOM.random((4000, 4))
LABELS = (ROWS[:, 0] + ROWS[:, 1] > 1).astype(int)
PUBLIC = {"bounds": (0, 1), "classes": [0, 1]}
QUICK = {"max_iter": 8}


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    with cl.Ledger.in_folder(tmp_path_factory.mktemp("ledger")) as ledger:
        yield ledger


def made(book, **more):
    return learn.NeuralNetworkClassifier(**{"spend": SPEND, "ledger": book, **PUBLIC, **QUICK, **more})


@pytest.mark.parametrize("spend", [SPEND, cl.rho("0.2")], ids=["epsilon", "rho"])
@pytest.mark.parametrize("hidden", [None, (), 8, [8, 4]], ids=str)
def test_rows_of_a_table_are_learned(book, spend, hidden):
    model = made(book, spend=spend, hidden_layer_sizes=hidden, max_iter=30).fit(ROWS, LABELS)
    assert model.score(ROWS, LABELS) > 0.9
    assert model.release_.private
    assert model.loss_ == model.release_.loss == spend
    np.testing.assert_allclose(model.predict_proba(ROWS).sum(axis=1), 1)
    assert len(model.coefs_) == len(model.intercepts_) == model.n_layers_ - 1


def test_an_account_pays_once_what_the_loss_implies_and_nothing_for_a_refused_fit(book):
    account = book.open_account("networks", cl.rho(20, delta="1e-4"))
    made(None, account=account, ledger=None).fit(ROWS, LABELS)
    assert account.spent == SPEND.as_rho()
    with pytest.raises(BadBounds):
        made(None, account=account, ledger=None, bounds=None).fit(ROWS, LABELS)
    assert account.spent == SPEND.as_rho()


def test_images_go_through_the_public_transform(book):
    rows, labels = load_digits(return_X_y=True)
    digits = {"bounds": (0, 16), "classes": range(10), "max_iter": 20, "spend": cl.epsilon(8, delta="1e-5")}
    cube = made(book, **digits).fit(rows.reshape(-1, 8, 8), labels)
    flat = made(book, **digits, image_shape=(8, 8)).fit(rows, labels)
    for model in (cube, flat):
        assert model.coefs_[0].shape == (81 * 4, 10)
        assert model.n_features_in_ == 64
        assert model.score(rows, labels) > 0.85
    assert np.array_equal(cube.predict(rows), cube.predict(rows.reshape(-1, 8, 8)))
    pixels = made(book, **digits, image_shape=(8, 8), image_features="pixels").fit(rows, labels)
    assert pixels.coefs_[0].shape == (64, 32)


def test_sides_that_are_no_multiples_of_four_are_padded(book):
    model = made(book, max_iter=2).fit(RANDOM.random((50, 9, 11)), np.arange(50) % 2)
    assert model.coefs_[0].shape[0] == 81 * 3 * 3


def test_what_no_row_may_decide_fails_for_no_row(book):
    odd = ROWS.copy()
    odd[:5] = [np.nan, np.inf, -np.inf, 1e300]
    model = made(book).fit(odd, np.where(np.arange(4000) < 9, 7, LABELS))
    assert model.score(ROWS, LABELS) > 0.8
    images = RANDOM.random((40, 8, 8))
    images[0] = np.nan
    made(book, max_iter=1).fit(images, np.arange(40) % 2)
    made(book, max_iter=1).fit(ROWS[:0], LABELS[:0])


def test_numbers_are_predicted_within_their_bounds(book):
    goal = ROWS @ [10, 5, 0, 0]
    model = learn.NeuralNetworkRegressor(SPEND, bounds=(0, 1), target_bounds=(0, 15), ledger=book).fit(ROWS, goal)
    assert model.score(ROWS, goal) > 0.8
    assert 0 <= model.predict(ROWS * 100).min() <= model.predict(ROWS * 100).max() <= 15
    with pytest.raises(BadBounds, match="target_bounds"):
        learn.NeuralNetworkRegressor(SPEND, bounds=(0, 1), ledger=book).fit(ROWS, goal)


def opened(folder, unit, people=4000):
    table = pa.table(
        {"who": RANDOM.integers(0, people, 4000), "a": ROWS[:, 0], "b": ROWS[:, 1], "over": LABELS}
    )  # fmt: skip
    number = {"type": "real", "bounds": [0, 1], "nullable": False}
    label = {"type": "integer", "categories": [0, 1], "nullable": False}
    columns = {"a": number, "b": number, "over": label}
    facts = {"columns": columns} if unit == "row" else {"unit": "who", "columns": columns}
    return cl.open(table, schema={"unit": unit, "tables": {"t": facts}}, budget=cl.rho(20, delta="1e-4"), ledger=folder)


@pytest.mark.parametrize("unit", ["row", {"name": "who", "max_rows": 2}], ids=["rows", "people"])
def test_a_dataset_is_learned_from_lots_of_its_engine_and_pays(tmp_path, unit):
    with opened(tmp_path, unit) as data:
        model = learn.NeuralNetworkClassifier(SPEND, max_iter=12).fit(data, target="over")
        assert data.account.spent == SPEND.as_rho()
        assert model.release_.unit == data.unit
        assert list(model.feature_names_in_) == ["a", "b"]
        answers = learn.prepare(model, pd.DataFrame({"a": ROWS[:, 0], "b": ROWS[:, 1]}))
        assert np.mean(model.predict(answers) == LABELS) > 0.85
        goal = learn.NeuralNetworkRegressor(SPEND, max_iter=12).fit(data, target="b", features=["a", "over"])
        assert goal.predict(np.array([[0.5, 0.0, 1.0]])).shape == (1,)


def test_accuracy_is_expected_from_public_rows_alone(book):
    model = made(book).fit(ROWS, LABELS)
    assert model.expected_accuracy_ is None
    model.expect_accuracy(ROWS[:100], LABELS[:100])
    assert model.expected_accuracy_ == model.score(ROWS[:100], LABELS[:100])


def test_a_seed_makes_the_fit_repeatable_and_not_private(book):
    first, again = (made(book, random_state=3, max_iter=2).fit(ROWS, LABELS) for _ in range(2))
    assert all(np.array_equal(one, two) for one, two in zip(first.coefs_, again.coefs_, strict=True))
    assert not first.release_.private


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"spend": cl.epsilon(1)}, BadLoss, "Gaussian noise"),
        ({"spend": None}, BadLoss, "Gaussian noise"),
        ({"classes": None}, BadSchema, "classes are public"),
        ({"bounds": None}, BadBounds, "bounds are public"),
        ({"hidden_layer_sizes": (0,)}, BadNumber, "whole number from 1"),
        ({"hidden_layer_sizes": "100"}, BadInput, "tuple of at most"),
        ({"batch_size": 64}, BadInput, "give rows="),
        ({"learning_rate_init": -1}, BadNumber, "above 0"),
        ({"clip": 0}, BadNumber, "above 0"),
        ({"image_features": "conv"}, BadInput, "'scattering' or 'pixels'"),
        ({"image_shape": (3, 3)}, BadInput, "9 features"),
        ({"image_shape": "big"}, BadInput, "height, width"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_charge(book, wrong, error, words):
    account = book.open_account(f"refused-{secrets.token_hex(4)}", cl.rho(20))
    with pytest.raises(error, match=words):
        made(None, ledger=None, account=account, **wrong).fit(ROWS, LABELS)
    assert not account.spent.amount


def test_declared_rows_set_the_lot(book):
    model = made(book, rows=4000, batch_size=1000, max_iter=3).fit(ROWS, LABELS)
    assert model.n_iter_ == 12


def test_a_large_loss_is_spent_as_the_rho_that_implies_it(book):
    model = made(book, spend=cl.epsilon(networks._MOST_EPSILON * 2, delta="1e-5"), max_iter=20).fit(ROWS, LABELS)
    assert model.loss_.measure == "rho"
    assert model.score(ROWS, LABELS) > 0.8


@pytest.mark.parametrize("kind", [learn.NeuralNetworkClassifier, learn.NeuralNetworkRegressor])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("solver", "the private one"),
        ("activation", "tanh.*learn.deep.train"),
        ("alpha", "follows from the noise"),
        ("early_stopping", "max_iter"),
        ("tol", "max_iter"),
        ("learning_rate", "learning_rate_init"),
        ("warm_start", "each fit is charged"),
        ("verbose", "progress=True"),
    ],
)
def test_settings_of_mlpclassifier_that_are_not_here_say_why(kind, name, why):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}': .*{why}"):
        kind(SPEND, **{name: "adam"})


def test_a_setting_that_an_estimator_has_is_not_explained_away():
    assert learn.Ridge(SPEND, bounds=(0, 1), target_bounds=(0, 1), alpha=2.0).alpha == 2.0


def test_a_choice_among_settings_is_counted_in_one_spend(book):
    account = book.open_account(f"chosen-{secrets.token_hex(4)}", cl.rho(1))
    model = learn.NeuralNetworkClassifier(None, max_iter=3, **PUBLIC)
    found = learn.select(model, ROWS, LABELS, spend=cl.rho("0.5"), grid={"clip": [0.5, 1.0]}, account=account)
    assert account.spent == cl.rho("0.5")
    assert found.best.clip in (0.5, 1.0)
    assert found.best.spend.amount < account.spent.amount  # the trials and the choice have the rest


def test_a_cross_validation_pays_for_a_network_as_for_any_model(book):
    # Before, an epsilon with a delta was charged, and then no fold could be paid for.
    account = book.open_account(f"folds-{secrets.token_hex(4)}", cl.rho(1))
    model = learn.NeuralNetworkClassifier(SPEND, max_iter=30, account=account, **PUBLIC)
    scores = learn.cross_val_score(model, ROWS, LABELS, cv=2)
    assert scores.value.shape == (2,)
    assert scores.value.min() > 0.7
    assert scores.loss.measure == "rho"
    assert float(account.spent.amount) == pytest.approx(float(scores.loss.amount))


@pytest.mark.parametrize("spend", [cl.epsilon(1, delta="1e-6"), cl.rho("0.02")], ids=["epsilon", "rho"])
@pytest.mark.parametrize("hidden", [(), (32,)], ids=str)
def test_a_regressor_of_three_thousand_rows_is_better_than_the_mean(book, spend, hidden):
    # Before, the steps of descent were so long that noise threw the predictions from one end to the other.
    random = np.random.default_rng(5)
    rows = random.normal(size=(3000, 8))
    goal = rows @ np.linspace(-1, 1, 8) + random.normal(size=3000)
    public = {"bounds": (-3, 3), "target_bounds": (-10, 10), "hidden_layer_sizes": hidden}
    model = learn.NeuralNetworkRegressor(spend, **public, ledger=book, random_state=0)
    assert model.fit(rows, goal).score(rows, goal) > 0.4


def test_a_regressor_of_images_is_better_than_the_mean(book):
    rows, labels = load_digits(return_X_y=True)
    goal = labels % 2 * 6.0
    model = learn.NeuralNetworkRegressor(
        cl.epsilon(1, delta="1e-6"), bounds=(0, 16), target_bounds=(0, 6), ledger=book, random_state=0
    )
    cube = rows.reshape(-1, 8, 8)
    assert model.fit(cube, goal).score(cube, goal) > 0.2

"""Cross-validation that charges its fits and puts noise on its scores."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.pipeline import make_pipeline

import cloister as cl
from cloister import learn
from cloister.lazy import homes
from cloister.learn.base.cells import Categories, numbers_in
from cloister.learn.model_selection.scoring import read_scoring
from cloister.privacy.errors import BadInput, BadLoss, BadSchema, NotPrivate, OverBudget
from cloister.privacy.filter import budget_share
from cloister.privacy.release import Release

SPEND = cl.epsilon(1, delta="1e-6")
PUBLIC = {"bounds": (0, 1), "classes": [0, 1]}


def made(n=4_000, d=3, seed=0):
    random = np.random.default_rng(seed)
    rows = random.random((n, d))
    labels = (random.random(n) < 1 / (1 + np.exp(-(rows - 0.5) @ np.full(d, 6.0)))).astype(int)
    return rows, labels


@pytest.mark.parametrize("spend", [SPEND, cl.epsilon(2), cl.rho("0.05")], ids=["delta", "pure", "rho"])
def test_scores_are_near_the_truth(tmp_path, spend):
    rows, labels = made()
    truth = Plain().fit(rows, labels).score(rows, labels)
    model = learn.LogisticRegression(spend, **PUBLIC)
    scores = learn.cross_val_score(model, rows, labels, cv=3, ledger=tmp_path, random_state=0)
    assert isinstance(scores, Release)
    assert scores.value.shape == scores.standard_error.shape == (3,)
    assert abs(scores.value.mean() - truth) < 0.04
    assert ((scores.standard_error > 0) & (scores.standard_error < 0.05)).all()


def test_the_fits_and_the_scores_are_charged_together(tmp_path):
    rows, labels = made(300)
    book = cl.Ledger.in_folder(tmp_path)
    account = book.open_account("rows", cl.rho("0.2"))
    model = learn.LogisticRegression(cl.rho("0.02"), **PUBLIC)
    scores = learn.cross_val_score(model, rows, labels, cv=4, score_spend=cl.rho("0.01"), account=account)
    assert scores.loss == cl.rho("0.09")
    assert account.spent == cl.rho("0.09")
    assert scores.private
    scores.receipt.verify(book.key.public)
    with pytest.raises(OverBudget):
        learn.cross_val_score(model, rows, labels, cv=8, account=account)
    assert account.spent == cl.rho("0.09")


def test_the_noise_on_the_scores_is_what_it_says(tmp_path):
    rows, labels = made(400)
    model = learn.LinearSVC(cl.rho(100), **PUBLIC)
    told = {"cv": 2, "ledger": cl.Ledger.in_folder(tmp_path)}
    exact = [
        learn.cross_val_score(model, rows, labels, score_spend=cl.rho(1000), random_state=i, **told).value
        for i in range(30)
    ]
    noisy = [
        learn.cross_val_score(model, rows, labels, score_spend=cl.rho("0.01"), random_state=i, **told)
        for i in range(30)
    ]
    # The seed throws the same folds, and the fits come first: only the noise on the scores differs.
    errors = np.array([one.value - other for one, other in zip(noisy, exact, strict=True)]).ravel()
    stated = np.array([one.standard_error for one in noisy]).ravel()
    assert 0.7 < np.sqrt((errors**2).mean()) / np.sqrt((stated**2).mean()) < 1.4


@pytest.mark.parametrize(
    ("model", "scoring", "low", "high"),
    [
        (learn.LogisticRegression(SPEND, **PUBLIC), "neg_log_loss", -0.7, -0.3),
        (learn.LinearRegression(SPEND, bounds=(0, 1), target_bounds=(0, 1)), None, -0.25, -0.1),
    ],
    ids=["log loss", "squared error"],
)
def test_other_scores_are_in_the_units_people_know(tmp_path, model, scoring, low, high):
    rows, labels = made()
    several = [
        learn.cross_val_score(model, rows, labels, scoring=scoring, ledger=tmp_path, random_state=seed)
        for seed in range(4)  # one fold's noise can reach the end of the scale
    ]
    assert low < np.mean([scores.value for scores in several]) < high


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, list], ids=["pandas", "polars", "lists"])
def test_frames_and_lists_are_taken(tmp_path, frame):
    rows, labels = made(300)
    table = frame({"a": rows[:, 0], "b": rows[:, 1]}) if frame is not list else rows[:, :2].tolist()
    model = learn.LogisticRegression(SPEND, **PUBLIC)
    scores = learn.cross_val_score(model, table, list(labels), cv=2, ledger=tmp_path, random_state=0)
    assert ((scores.value >= 0) & (scores.value <= 1)).all()


COLUMNS = {
    "array": lambda y: y.reshape(-1, 1),
    "floats": lambda y: y.reshape(-1, 1).astype(float),
    "objects": lambda y: y.astype(object).reshape(-1, 1),
    "matrix": lambda y: np.asmatrix(y).T,
    "masked": lambda y: np.ma.MaskedArray(y, mask=False).reshape(-1, 1),
    "memory": lambda y: np.asfortranarray(np.column_stack([y, y]))[:, :1],
    "list": lambda y: [[one] for one in y.tolist()],
    "arrays in a list": lambda y: list(y.reshape(-1, 1)),
    "pandas": lambda y: pd.DataFrame({"y": y}),
    "nullable pandas": lambda y: pd.DataFrame({"y": pd.Series(y, dtype="Int64")}),
    "polars": lambda y: pl.DataFrame({"y": y}),
    "arrow": lambda y: pa.table({"y": y}),
    "arrow batch": lambda y: pa.RecordBatch.from_pydict({"y": pa.array(y)}),
}
SCORED = {
    "accuracy": learn.LogisticRegression(SPEND, **PUBLIC),
    "neg_log_loss": learn.LogisticRegression(SPEND, **PUBLIC),
    "neg_mean_squared_error": learn.LinearRegression(SPEND, bounds=(0, 1), target_bounds=(0, 1)),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("scoring", SCORED)
@pytest.mark.parametrize("kind", COLUMNS)
def test_labels_in_a_table_of_one_column_are_that_column(tmp_path, kind, scoring):
    """(n, 1) labels beside (n,) answers would be compared as (n, n), so that one row would move a score by about n."""
    rows, labels = made(60)
    told = {"scoring": scoring, "random_state": 0, "ledger": tmp_path}
    flat = learn.cross_val_score(SCORED[scoring], rows, labels, cv=2, **told)
    tall = learn.cross_val_score(SCORED[scoring], rows, COLUMNS[kind](labels), cv=2, **told)
    np.testing.assert_array_equal(flat.value, tall.value)
    chosen = [
        learn.select([SCORED[scoring]] * 3, rows, given, spend=SPEND, refit=False, **told)
        for given in (labels, COLUMNS[kind](labels))
    ]
    assert chosen[0].index == chosen[1].index
    model, score = chosen[0].best, read_scoring(scoring, chosen[0].best)
    for given in (labels, COLUMNS[kind](labels)):
        # With one row less: every row moves the points by at most what it is said to.
        least = score.points(model, rows[:-1], given[:-1])
        assert 0 <= score.points(model, rows, given) - least <= score.most


@pytest.mark.parametrize("shape", [(), (60, 2), (60, 0), (1, 60), (60, 1, 1), (30,)])
def test_labels_of_another_shape_are_refused_before_the_charge(tmp_path, shape):
    rows, _ = made(60)
    for work in (
        lambda y: learn.cross_val_score(SCORED["accuracy"], rows, y, ledger=tmp_path / "unused"),
        lambda y: learn.select([SCORED["accuracy"]] * 2, rows, y, spend=SPEND, ledger=tmp_path / "unused"),
        lambda y: learn.LogisticRegression(SPEND, **PUBLIC, ledger=tmp_path / "unused").fit(rows, y),
        lambda y: learn.Ridge(SPEND, bounds=(0, 1), target_bounds=(0, 1), ledger=tmp_path / "unused").fit(rows, y),
    ):
        with pytest.raises(BadInput, match="y is one column"):
            work(np.zeros(shape, dtype=int))
    with pytest.raises(BadInput, match="X is a table"):
        learn.cross_val_score(SCORED["accuracy"], np.zeros(60), np.zeros(60), ledger=tmp_path / "unused")
    assert not (tmp_path / "unused").exists()


def test_a_table_is_never_read_as_a_column():
    for read in (numbers_in, Categories([0, 1]).codes):
        for shape in ((), (3, 1), (1, 3), (3, 1, 1)):
            with pytest.raises(BadInput, match="one dimension"):
                read(np.zeros(shape))


def test_answers_of_another_shape_are_refused_before_the_charge(tmp_path, monkeypatch):
    class Tall(learn.LinearRegression):
        def predict(self, rows):
            return super().predict(rows).reshape(-1, 1)

    class Wide(learn.LinearRegression):
        def predict(self, rows):
            return np.zeros((len(rows), 2))

    class More(learn.LogisticRegression):
        def predict(self, rows):
            return np.zeros(len(rows) + 1)

    for kind in (Tall, Wide, More):  # as if they were estimators of cloister.learn
        monkeypatch.setattr(learn, kind.__name__, kind, raising=False)
        monkeypatch.setitem(homes("cloister.learn"), kind.__name__, "")
    rows, labels = made(60)
    told = {"cv": 2, "ledger": tmp_path / "told", "random_state": 0}
    public = {"bounds": (0, 1), "target_bounds": (0, 1)}
    flat = learn.cross_val_score(learn.LinearRegression(SPEND, **public), rows, labels, **told)
    np.testing.assert_array_equal(flat.value, learn.cross_val_score(Tall(SPEND, **public), rows, labels, **told).value)
    for model in (Wide(SPEND, **public), More(SPEND, **PUBLIC)):
        with pytest.raises(BadInput):
            learn.cross_val_score(model, rows, labels, ledger=tmp_path / "unused")
    assert not (tmp_path / "unused").exists()


def test_pipelines_pay_for_every_part(tmp_path):
    rows, labels = made(300)
    line = make_pipeline(
        learn.StandardScaler(cl.rho("0.01"), bounds=(0, 1)),
        learn.LogisticRegression(cl.rho("0.02"), bounds=(-4, 4), classes=[0, 1]),
    )
    scores = learn.cross_val_score(line, rows, labels, cv=2, ledger=tmp_path, random_state=0)
    assert scores.loss == cl.rho("0.063")
    with pytest.raises(NotPrivate, match="learns from rows without paying"):
        learn.cross_val_score(Plain(), rows, labels)


def test_neither_no_rows_nor_one_class_makes_it_fail(tmp_path):
    model = learn.LogisticRegression(SPEND, **PUBLIC)
    for rows, labels in ((np.zeros((0, 2)), np.zeros(0, dtype=int)), (np.zeros((3, 2)), np.ones(3, dtype=int))):
        scores = learn.cross_val_score(model, rows, labels, ledger=tmp_path)
        assert np.isfinite(scores.value).all()


def test_what_is_wrong_is_told_before_anything_is_charged(tmp_path):
    rows, labels = made(50)
    model = learn.LogisticRegression(SPEND, **PUBLIC)
    for change, error in (
        ({"cv": 1}, BadInput),
        ({"cv": True}, BadInput),
        ({"score_spend": cl.epsilon(1)}, BadLoss),
        ({"scoring": "roc_auc"}, BadInput),
        ({"scoring": ["accuracy"]}, BadInput),
        ({"scoring": "neg_mean_squared_error"}, BadInput),
    ):
        with pytest.raises(error):
            learn.cross_val_score(model, rows, labels, ledger=tmp_path / "unused", **change)
    with pytest.raises(BadInput):
        learn.cross_val_score(model, rows, labels[:-1], ledger=tmp_path / "unused")
    with pytest.raises(BadSchema):
        learn.cross_val_score(learn.LogisticRegression(SPEND, bounds=(0, 1)), rows, labels, ledger=tmp_path / "unused")
    assert not (tmp_path / "unused").exists()
    assert budget_share(SPEND).loss.measure == "rho"


CLASSIFIERS = {
    "LogisticRegression": {"bounds": (0, 1)},
    "LinearSVC": {"bounds": (0, 1)},
    "GaussianNB": {"bounds": (0, 1)},
    "MixedNB": {"bounds": (0, 1)},
    "CategoricalNB": {"categories": [[0, 1]] * 3},
    "DecisionTreeClassifier": {"bounds": (0, 1), "max_depth": 2},
    "RandomForestClassifier": {"bounds": (0, 1), "max_depth": 2, "n_estimators": 2},
    "GradientBoostingClassifier": {"bounds": (0, 1), "rounds": 2},
}
REGRESSORS = {
    "LinearRegression": {"bounds": (0, 1)},
    "Ridge": {"bounds": (0, 1)},
    "GradientBoostingRegressor": {"bounds": (0, 1), "rounds": 2},
}
OTHERS = {"KMeans": {"bounds": (0, 1), "n_clusters": 2, "max_iter": 2}, "PCA": {"bounds": (0, 1)}}


def every_model():
    for name, told in CLASSIFIERS.items():
        yield getattr(learn, name)(cl.rho(1), classes=[0, 1], **told)
    for name, told in REGRESSORS.items():
        yield getattr(learn, name)(cl.rho(1), target_bounds=(0, 1), **told)
    for name, told in OTHERS.items():
        yield getattr(learn, name)(cl.rho(1), **told)


def told_by(work, rows, labels):
    """What a work raises, in full."""
    try:
        work(rows, labels)
    except Exception as error:
        return type(error), str(error)
    return None


@pytest.mark.parametrize("behind", [False, True], ids=["alone", "in a pipeline"])
@pytest.mark.parametrize("model", list(every_model()), ids=lambda model: type(model).__name__)
def test_whether_a_model_can_be_scored_does_not_depend_on_rows(tmp_path, model, behind):
    """A score that a model cannot give was told after the charge, and only if there was a row to give it to."""
    line = make_pipeline(learn.MinMaxScaler(bounds=(0, 1)), model) if behind else model
    first = learn.LogisticRegression(cl.rho(1), **PUBLIC)
    with cl.Ledger.in_folder(tmp_path) as book:
        account = book.open_account("rows", cl.rho(10**6))
        for scoring in (None, "accuracy", "neg_log_loss", "neg_mean_squared_error"):
            works = (
                lambda x, y, name=scoring: learn.cross_val_score(line, x, y, cv=2, scoring=name, account=account),
                lambda x, y, name=scoring: learn.select(
                    [first, line], x, y, spend=cl.rho(1), scoring=name, account=account
                ),
                lambda x, y, name=scoring: learn.select(
                    [line, line], x, y, spend=cl.rho(1), scoring=name, refit=False, account=account
                ),
            )
            for work in works:
                seen = []
                for n in (0, 1, 12):
                    before = account.spent.amount
                    seen.append((told_by(work, *made(n)), account.spent.amount - before))
                assert seen[0] == seen[1] == seen[2]
                error, charged = seen[0]
                assert (charged == 0) if error else (charged > 0)
                assert error is None or issubclass(error[0], BadInput)


def test_a_part_that_is_wrong_is_told_before_the_charge(tmp_path):
    rows, labels = made(20)
    line = make_pipeline(learn.MinMaxScaler(bounds=(0, 1)), learn.LogisticRegression(SPEND, bounds=(0, 1)))
    with pytest.raises(BadSchema, match="classes"):
        learn.cross_val_score(line, rows, labels, ledger=tmp_path / "unused")
    with pytest.raises(BadSchema, match="classes"):
        learn.select([line, line], rows, labels, spend=SPEND, ledger=tmp_path / "unused")
    assert not (tmp_path / "unused").exists()


def test_the_widest_target_bounds_decide_how_near_an_answer_is():
    models = [learn.Ridge(SPEND, bounds=(0, 1), target_bounds=(0, top)) for top in (1, 4, 2)]
    assert read_scoring(None, *models).slope == 16


# Who pays.


def both_works(model, account=None, ledger=None):
    rows, labels = made(40)
    told = {"account": account, "ledger": ledger}
    yield lambda: learn.cross_val_score(model, rows, labels, cv=2, score_spend=cl.rho("0.01"), **told)
    yield lambda: learn.select([model, model], rows, labels, spend=cl.rho("0.03"), **told)
    yield lambda: learn.select(
        make_pipeline(learn.MinMaxScaler(bounds=(0, 1)), model),
        rows,
        labels,
        spend=cl.rho("0.03"),
        grid={"logisticregression__method": ["gradient", "newton"]},
        **told,
    )


def test_the_account_of_a_model_pays_and_limits(tmp_path, monkeypatch):
    """It was left aside: a new account in .cloister paid, and an account that was used up limited nothing."""
    monkeypatch.chdir(tmp_path)
    with cl.Ledger.in_folder("book") as book:
        account = book.open_account("rows", cl.rho("0.09"))
        model = learn.LogisticRegression(cl.rho("0.01"), **PUBLIC, account=account)
        for times, work in enumerate(both_works(model), 1):
            work()
            assert account.spent == cl.rho("0.03") * times
        for again in (model, clone(model), pickle.loads(pickle.dumps(model))):
            for work in (*both_works(again), *both_works(again, account=account)):
                with pytest.raises(OverBudget):
                    work()
        assert account.spent == cl.rho("0.09")
        assert len(book.accounts()) == 1
    assert not (tmp_path / ".cloister").exists()


def test_the_ledger_of_a_model_pays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with cl.Ledger.in_folder("book") as book:
        for ledger in (book, "book", tmp_path / "book"):
            before = len(book.accounts())
            model = learn.LogisticRegression(cl.rho("0.01"), **PUBLIC, ledger=ledger)
            for work in (*both_works(model), *both_works(model, ledger=tmp_path / "." / "book")):
                work()
            assert len(book.accounts()) == before + 6
        # An account is more than the place for one.
        account = book.open_account("rows", cl.rho(1))
        for work in both_works(model, account=account):
            work()
        assert account.spent == cl.rho("0.09")
    assert not (tmp_path / ".cloister").exists()


def test_different_payers_are_refused_before_the_charge(tmp_path):
    rows, labels = made(20)
    with cl.Ledger.in_folder(tmp_path / "a") as book, cl.Ledger.in_folder(tmp_path / "b") as other:
        first, second = (book.open_account(name, cl.rho(1)) for name in ("first", "second"))
        third = other.open_account("first", cl.rho(1))
        by_first = learn.LogisticRegression(cl.rho("0.01"), **PUBLIC, account=first)
        by_book = learn.LogisticRegression(cl.rho("0.01"), **PUBLIC, ledger=book)
        works = [
            *both_works(by_first, account=second),
            *both_works(by_first, account=third),
            *both_works(by_first, ledger=book),
            *both_works(by_book, ledger=other),
            *both_works(by_book, ledger=tmp_path / "c"),
            lambda: learn.select([by_first, clone(by_first).set_params(account=third)], rows, labels, spend=cl.rho(1)),
            lambda: learn.select(by_first, rows, labels, spend=cl.rho(1), grid={"account": [first, second]}),
        ]
        for work in works:
            with pytest.raises(BadInput, match="name different"):
                work()
        assert not any(one.spent.amount for one in (first, second, third))
        assert len(book.accounts()) == 2
        assert len(other.accounts()) == 1
    assert not (tmp_path / "c").exists()

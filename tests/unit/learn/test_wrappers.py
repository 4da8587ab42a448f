"""What scikit-learn wraps around an estimator: refused where it shows scores of raw rows, paid for elsewhere."""

import copy
import inspect
import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn.model_selection
from sklearn import calibration, ensemble, feature_selection, linear_model, multioutput, semi_supervised
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.experimental import enable_halving_search_cv, enable_iterative_imputer  # noqa: F401
from sklearn.frozen import FrozenEstimator
from sklearn.impute import IterativeImputer
from sklearn.model_selection import HalvingGridSearchCV, HalvingRandomSearchCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.utils import all_estimators

import cloister as cl
from cloister import learn
from cloister.learn.base.payer import Payer
from cloister.privacy.errors import BadInput, BadSchema, NotPrivate

SPEND = cl.rho("0.5")
X = np.random.default_rng(1).random((90, 3))
Y = (X[:, 0] > 0.5).astype(int)
BOTH = np.column_stack([Y, 1 - Y])


def classifier(account=None, **more):
    return learn.LogisticRegression(SPEND, bounds=(0, 1), classes=[0, 1], account=account, **more)


def regressor(account=None):
    return learn.LinearRegression(SPEND, bounds=(0, 1), target_bounds=(0, 1), account=account)


GRID = {"method": ["gradient", "newton"]}
SELECTION = sklearn.model_selection
REFUSED = {
    "GridSearchCV": lambda a: SELECTION.GridSearchCV(classifier(a), GRID, error_score="raise").fit(X, Y),
    "RandomizedSearchCV": lambda a: SELECTION.RandomizedSearchCV(
        classifier(a), GRID, n_iter=1, error_score="raise"
    ).fit(X, Y),
    "HalvingGridSearchCV": lambda a: HalvingGridSearchCV(classifier(a), GRID, error_score="raise").fit(X, Y),
    "HalvingRandomSearchCV": lambda a: HalvingRandomSearchCV(
        classifier(a), GRID, n_candidates=2, error_score="raise"
    ).fit(X, Y),
    "TunedThresholdClassifierCV": lambda a: SELECTION.TunedThresholdClassifierCV(classifier(a)).fit(X, Y),
    "TunedThresholdClassifierCV on two processes": lambda a: SELECTION.TunedThresholdClassifierCV(
        classifier(a), n_jobs=2
    ).fit(X, Y),
    "TunedThresholdClassifierCV refitted": lambda a: SELECTION.TunedThresholdClassifierCV(
        classifier(a), cv=0.5, refit=True
    ).fit(X, Y),
    "cross_val_predict": lambda a: SELECTION.cross_val_predict(classifier(a), X, Y),
    "cross_val_score": lambda a: SELECTION.cross_val_score(classifier(a), X, Y, error_score="raise"),
    "cross_validate": lambda a: SELECTION.cross_validate(classifier(a), X, Y, error_score="raise"),
    "learning_curve": lambda a: SELECTION.learning_curve(classifier(a), X, Y, error_score="raise"),
    "permutation_test_score": lambda a: SELECTION.permutation_test_score(classifier(a), X, Y),
    "validation_curve": lambda a: SELECTION.validation_curve(
        classifier(a), X, Y, param_name="rows", param_range=[50, 90], error_score="raise"
    ),
    "RFECV": lambda a: feature_selection.RFECV(classifier(a)).fit(X, Y),
    "SequentialFeatureSelector": lambda a: feature_selection.SequentialFeatureSelector(classifier(a)).fit(X, Y),
    "StackingClassifier": lambda a: ensemble.StackingClassifier([("a", classifier(a))]).fit(X, Y),
    "StackingRegressor": lambda a: ensemble.StackingRegressor([("a", regressor(a))]).fit(X, Y),
    "AdaBoostRegressor": lambda a: ensemble.AdaBoostRegressor(regressor(a)).fit(X, Y),
    "RANSACRegressor": lambda a: linear_model.RANSACRegressor(regressor(a), min_samples=9).fit(X, Y),
    "BaggingClassifier of rows left out": lambda a: ensemble.BaggingClassifier(classifier(a), oob_score=True).fit(X, Y),
    "ClassifierChain of validated links": lambda a: multioutput.ClassifierChain(classifier(a), cv=3).fit(X, BOTH),
    "RegressorChain of validated links": lambda a: multioutput.RegressorChain(regressor(a), cv=3).fit(X, BOTH),
    "BaggingRegressor of rows left out": lambda a: ensemble.BaggingRegressor(regressor(a), oob_score=True).fit(X, Y),
    "GridSearchCV of a calibrated model": lambda a: SELECTION.GridSearchCV(
        calibration.CalibratedClassifierCV(classifier(a), cv=2), {"method": ["sigmoid"]}, error_score="raise"
    ).fit(X, Y),
    "GradientBoostingClassifier from a private start": lambda a: ensemble.GradientBoostingClassifier(
        init=classifier(a), n_estimators=2
    ).fit(X, Y),
    "CalibratedClassifierCV without an ensemble": lambda a: calibration.CalibratedClassifierCV(
        classifier(a), ensemble=False
    ).fit(X, Y),
}
# Each fit is charged. What these do beside it with raw rows is theirs (docs/promises/learn.md).
PAID = {
    "FixedThresholdClassifier": (1, lambda a: SELECTION.FixedThresholdClassifier(classifier(a)).fit(X, Y)),
    "BaggingClassifier": (2, lambda a: ensemble.BaggingClassifier(classifier(a), 2).fit(X, Y)),
    "BaggingRegressor": (2, lambda a: ensemble.BaggingRegressor(regressor(a), 2).fit(X, Y)),
    "ClassifierChain": (2, lambda a: multioutput.ClassifierChain(classifier(a)).fit(X, BOTH)),
    "RegressorChain": (2, lambda a: multioutput.RegressorChain(regressor(a)).fit(X, BOTH)),
    "MultiOutputClassifier": (2, lambda a: multioutput.MultiOutputClassifier(classifier(a)).fit(X, BOTH)),
    "MultiOutputRegressor": (2, lambda a: multioutput.MultiOutputRegressor(regressor(a)).fit(X, BOTH)),
    "OneVsOneClassifier": (1, lambda a: OneVsOneClassifier(classifier(a)).fit(X, Y)),
    "OneVsRestClassifier": (1, lambda a: OneVsRestClassifier(classifier(a)).fit(X, Y)),
    "OutputCodeClassifier": (2, lambda a: OutputCodeClassifier(classifier(a), code_size=2, random_state=0).fit(X, Y)),
    "RFE": (3, lambda a: feature_selection.RFE(classifier(a), n_features_to_select=1).fit(X, Y)),
    "SelectFromModel": (1, lambda a: feature_selection.SelectFromModel(classifier(a)).fit(X, Y)),
    "SelfTrainingClassifier": (1, lambda a: semi_supervised.SelfTrainingClassifier(classifier(a)).fit(X, Y)),
    "TransformedTargetRegressor": (1, lambda a: TransformedTargetRegressor(regressor(a)).fit(X, Y)),
    "VotingClassifier": (1, lambda a: ensemble.VotingClassifier([("a", classifier(a))]).fit(X, Y)),
    "VotingRegressor": (1, lambda a: ensemble.VotingRegressor([("a", regressor(a))]).fit(X, Y)),
    "FeatureUnion": (1, lambda a: FeatureUnion([("a", learn.PCA(SPEND, bounds=(0, 1), account=a))]).fit(X)),
    "IterativeImputer": (3, lambda a: IterativeImputer(regressor(a), max_iter=1, skip_complete=False).fit(X)),
}
# Never fit, need weights (which private estimators do not take), or warn.
OTHERS = {"FrozenEstimator", "AdaBoostClassifier", "CalibratedClassifierCV"}


@pytest.fixture
def account(tmp_path):
    with cl.Ledger.in_folder(tmp_path / "ledger") as book:
        yield book.open_account("a", cl.rho(100))


def test_every_wrapper_that_scikit_learn_has_is_known():
    public = [getattr(SELECTION, name) for name in dir(SELECTION) if not name.startswith("_")]
    named = {one.__name__ for one in public if callable(one) and "estimator" in inspect.signature(one).parameters}
    words = {"estimator", "estimators", "regressor", "classifier", "transformer_list"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        named |= {name for name, kind in all_estimators() if words & set(inspect.signature(kind).parameters)}
    assert {"TunedThresholdClassifierCV", "RFECV", "GridSearchCV"} <= named
    assert named <= {name.partition(" ")[0] for name in REFUSED} | set(PAID) | OTHERS


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_show_scores_of_raw_rows_is_refused_before_the_charge(name, account):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # A selector puts the sentence into an error of its own.
        with pytest.raises((NotPrivate, ValueError), match=r"NotPrivate|Use cloister\.learn\.cross_val_score"):
            REFUSED[name](account)
    assert not account.spent.amount


@pytest.mark.parametrize("name", PAID)
def test_what_only_fits_works_and_every_fit_is_charged(name, account):
    fits, fit = PAID[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(account)
    assert account.spent == SPEND * fits


SEVERAL = ["threading", "loky"]


@pytest.mark.parametrize("backend", SEVERAL)
@pytest.mark.parametrize("name", REFUSED)
def test_what_would_show_scores_of_raw_rows_is_refused_in_other_threads_and_processes(name, backend, account):
    with warnings.catch_warnings(), joblib.parallel_config(backend, n_jobs=2):
        warnings.simplefilter("ignore")
        with pytest.raises((NotPrivate, ValueError), match=r"NotPrivate|Use cloister\.learn\.cross_val_score"):
            REFUSED[name](account)


@pytest.mark.parametrize("backend", SEVERAL)
@pytest.mark.parametrize("name", PAID)
def test_what_only_fits_works_in_other_threads_and_processes(name, backend, account):
    fits, fit = PAID[name]
    with warnings.catch_warnings(), joblib.parallel_config(backend, n_jobs=2):
        warnings.simplefilter("ignore")
        fit(account)
    assert account.spent == SPEND * fits


def test_a_function_of_scikit_learn_that_is_not_known_is_refused(account):
    unknown = {"__name__": "sklearn.ensemble._new", "model": classifier(account), "X": X, "Y": Y}
    with pytest.raises(NotPrivate):
        exec("model.fit(X, Y)", unknown)
    for known in ("sklearn.ensemble._bagging", "sklearn.multioutput"):  # but no such function of theirs
        with pytest.raises(NotPrivate):
            exec("model.fit(X, Y)", unknown | {"__name__": known})
    assert not account.spent.amount


def test_calibration_by_scikit_learn_says_that_it_looks_at_raw_rows(account):
    with pytest.warns(UserWarning, match="fits its curve to raw rows"):
        calibration.CalibratedClassifierCV(classifier(account), cv=2).fit(X, Y)


def test_a_frozen_model_is_not_fitted_again(account):
    model = classifier(account).fit(X, Y)
    assert (FrozenEstimator(model).fit(X, Y).predict(X) == model.predict(X)).all()
    assert account.spent == SPEND


# Pickles


@pytest.mark.parametrize("way", ["ledger", "account", "folder"])
def test_a_pickled_model_finds_its_payer_again_and_holds_no_key(way, tmp_path):
    with cl.Ledger.in_folder(tmp_path / "ledger") as book:
        payers = {"ledger": {"ledger": book}, "folder": {"ledger": str(tmp_path / "ledger")}}
        payers["account"] = {"account": book.open_account("a", cl.rho(10), "ann")}
        model = learn.GaussianNB(SPEND, bounds=(0, 1), classes=[0, 1], **payers[way]).fit(X, Y)
        written = pickle.dumps(model)
        assert (tmp_path / "ledger" / "owner.key").read_bytes().strip() not in written
        joblib.dump(model, tmp_path / "model.joblib")
        for again in (pickle.loads(written), joblib.load(tmp_path / "model.joblib"), copy.deepcopy(model)):
            assert (again.predict(X) == model.predict(X)).all()
            before = sum(float(one.spent.amount) for one in book.accounts())
            again.fit(X, Y)
            assert sum(float(one.spent.amount) for one in book.accounts()) == before + 0.5
            assert learn.save(again, tmp_path / "model").exists()


def test_a_pickled_model_without_its_ledger_answers_and_is_not_fitted(tmp_path):
    with cl.Ledger.in_folder(tmp_path / "ledger") as book:
        model = classifier(book.open_account("a", cl.rho(10))).fit(X, Y)
        written = pickle.dumps(model)
    (tmp_path / "ledger").rename(tmp_path / "gone")
    again = pickle.loads(written)
    assert (again.predict(X) == model.predict(X)).all()
    with pytest.raises(BadInput, match="not here"):
        again.fit(X, Y)
    with cl.Ledger.in_folder(tmp_path / "ledger"), pytest.raises(BadInput, match="another ledger"):
        again.fit(X, Y)
    key = cl.SigningKey.load(tmp_path / "gone" / "owner.key")
    with cl.Ledger.open(tmp_path / "gone" / "ledger.db", key=key, head=tmp_path / "gone" / "head") as book:
        assert Payer.of(book).folder is None


def test_several_processes_pay_from_one_account(account):
    three = np.minimum((X[:, 0] * 3).astype(int), 2)
    OneVsRestClassifier(classifier(account), n_jobs=2).fit(X, three)
    assert account.spent == SPEND * 3


# Names


FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
NAMED = {
    "LogisticRegression": {"classes": [0, 1]},
    "LinearSVC": {"classes": [0, 1]},
    "GaussianNB": {"classes": [0, 1]},
    "MixedNB": {"classes": [0, 1]},
    "CategoricalNB": {"classes": [0, 1], "categories": [[0, 1]] * 3},
    "DecisionTreeClassifier": {"classes": [0, 1]},
    "RandomForestClassifier": {"classes": [0, 1], "n_estimators": 2},
    "GradientBoostingClassifier": {"classes": [0, 1], "rounds": 2},
    "LinearRegression": {"target_bounds": (0, 1)},
    "Ridge": {"target_bounds": (0, 1)},
    "GradientBoostingRegressor": {"target_bounds": (0, 1), "rounds": 2},
    "NeuralNetworkClassifier": {"classes": [0, 1], "max_iter": 2},
    "NeuralNetworkRegressor": {"target_bounds": (0, 1), "max_iter": 2},
    "KMeans": {"n_clusters": 2},
    "PCA": {"n_components": 2},
    "MinMaxScaler": {},
    "StandardScaler": {},
    "QuantileTransformer": {},
    "OneHotEncoder": {"categories": [[0, 1]] * 3},
}
OUT = {
    "KMeans": ["kmeans0", "kmeans1"],
    "PCA": ["pca0", "pca1"],
    "MinMaxScaler": ["a", "b", "c"],
    "StandardScaler": ["a", "b", "c"],
    "QuantileTransformer": ["a", "b", "c"],
    "OneHotEncoder": ["a_0", "a_1", "b_0", "b_1", "c_0", "c_1"],
}


def named(name, account):
    kind = getattr(learn, name)
    public = {"bounds": (0, 1), "spend": SPEND, "account": account} | NAMED[name]
    return kind(**{key: value for key, value in public.items() if key in inspect.signature(kind).parameters})


@pytest.mark.parametrize("name", NAMED)
def test_features_keep_their_names_and_are_asked_for_by_them(name, account):
    model = named(name, account).fit(FRAME, Y)
    ask = model.predict if hasattr(model, "predict") else model.transform
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    ask(FRAME)
    with pytest.raises(ValueError, match="same order as they were in fit"):
        ask(FRAME[["b", "a", "c"]])
    with pytest.raises(ValueError, match="unseen at fit time"):
        ask(FRAME.rename(columns={"a": "z"}))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        ask(X)
    assert not hasattr(model.fit(X, Y), "feature_names_in_")
    with pytest.warns(UserWarning, match="was fitted without feature names"):
        ask(FRAME)
    for odd in (1, None, 0.5, ("a", 1), pd.Timestamp(0)):
        before = account.spent
        with pytest.raises(BadInput, match="string names"):
            named(name, account).fit(FRAME.rename(columns={"a": odd}), Y)
        assert account.spent == before


def swapped(frame):
    """The same frame with its first two columns the other way round."""
    one, two, *rest = frame.columns if isinstance(frame, pd.DataFrame | pl.DataFrame) else frame.schema.names
    return frame[[two, one, *rest]] if isinstance(frame, pd.DataFrame) else frame.select([two, one, *rest])


FRAMES = {
    "pandas": lambda: FRAME,
    "polars": lambda: pl.from_pandas(FRAME),
    "table": lambda: pa.Table.from_pandas(FRAME, preserve_index=False),
    "batch": lambda: pa.RecordBatch.from_pandas(FRAME, preserve_index=False),
    "numbers": lambda: FRAME.set_axis([2019, 2018, 2020], axis=1),
}


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("name", NAMED)
def test_columns_in_another_order_are_refused_in_every_kind_of_frame(name, frame, account):
    rows = FRAMES[frame]()
    model = named(name, account).fit(rows, Y)
    ask = model.predict if hasattr(model, "predict") else model.transform
    assert list(model.feature_names_in_) == ([2019, 2018, 2020] if frame == "numbers" else ["a", "b", "c"])
    ask(rows)
    with pytest.raises(BadInput, match="same order as they were in fit"):
        ask(swapped(rows))
    again = pickle.loads(pickle.dumps(model))
    with pytest.raises(BadInput, match="same order as they were in fit"):
        (again.predict if hasattr(model, "predict") else again.transform)(swapped(rows))


@pytest.mark.parametrize("name", NAMED)
def test_columns_that_are_numbered_in_order_have_no_names(name, account):
    """As an array's: a frame that was given no names. Its columns in another order are refused all the same."""
    rows = FRAME.set_axis(range(3), axis=1)
    model = named(name, account).fit(rows, Y)
    ask = model.predict if hasattr(model, "predict") else model.transform
    assert not hasattr(model, "feature_names_in_")
    np.testing.assert_array_equal(ask(rows), ask(rows.to_numpy()))
    with pytest.raises(BadInput, match="numbered columns in another order"):
        ask(swapped(rows))


def test_bounds_by_name_are_found_in_every_kind_of_frame(account):
    for frame, make in FRAMES.items():
        names = [2019, 2018, 2020] if frame == "numbers" else ["a", "b", "c"]
        bounds = {name: (0, place + 1) for place, name in enumerate(names)}
        told = {"bounds": bounds, "classes": [0, 1], "account": account}
        tree = learn.DecisionTreeClassifier(cl.rho(1), **told).fit(make(), Y)
        assert [axis.name for axis in tree._axes] == names
        assert [round(axis.cuts[-1] / (1 - 1 / 16)) for axis in tree._axes] == [1, 2, 3]
        learn.MixedNB(cl.rho(1), **told).fit(make(), Y)
    with pytest.raises(BadSchema, match="no feature 0"):  # a number is a name there, not a place
        learn.DecisionTreeClassifier(
            cl.rho(1), bounds={0: (0, 1), 1: (0, 1), 2: (0, 1)}, classes=[0, 1], account=account
        ).fit(FRAMES["numbers"](), Y)


def test_a_selection_and_scores_take_every_kind_of_frame(account):
    models = [kind(cl.rho(1), bounds=(0, 1), classes=[0, 1]) for kind in (learn.LogisticRegression, learn.LinearSVC)]
    for make in FRAMES.values():
        found = learn.select(models, make(), Y, spend=cl.rho(1), account=account)
        found.best.predict(make())
        with pytest.raises(BadInput, match="same order as they were in fit"):
            found.best.predict(swapped(make()))
        learn.cross_val_score(models[0], make(), Y, cv=2, account=account)


def test_every_estimator_is_asked_by_name():
    assert set(NAMED) == {name for name in learn.__all__ if name[0].isupper()}


@pytest.mark.parametrize("name", OUT)
def test_frames_come_out_with_names(name, account):
    model = named(name, account).set_output(transform="pandas")
    assert list(model.fit(FRAME, Y).transform(FRAME).columns) == OUT[name]
    assert list(model.get_feature_names_out()) == OUT[name]
    chosen = make_column_transformer((named(name, account), ["a", "b", "c"])).fit(FRAME, Y)
    assert len(chosen.get_feature_names_out()) == len(OUT[name])


def test_names_go_through_a_pipeline(account):
    line = make_pipeline(learn.MinMaxScaler(bounds=(0, 1)), classifier(account)).set_output(transform="pandas")
    assert list(line.fit(FRAME, Y)[-1].feature_names_in_) == ["a", "b", "c"]


# What other libraries have


@pytest.mark.parametrize(
    ("more", "sentence"),
    [({"epsilon": 1.0}, r"spend=epsilon\(1\)"), ({"accountant": None}, "account="), ({"C": 2.0}, "from the noise"),
     ({"class_weight": "balanced"}, "class sizes are private")],
)  # fmt: skip
@pytest.mark.parametrize("name", ["LogisticRegression", "LinearSVC", "GaussianNB", "CategoricalNB", "KMeans"])
def test_an_argument_of_another_library_is_answered_with_what_to_write(name, more, sentence):
    with pytest.raises(TypeError, match=sentence):
        getattr(learn, name)(**more)
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        getattr(learn, name)(nonsense=1)


def test_weights_and_parts_of_a_table_are_answered_with_the_reason(account):
    with pytest.raises(TypeError, match="every row counts once"):
        classifier(account).fit(X, Y, sample_weight=np.ones(90))
    with pytest.raises(AttributeError, match="every look at rows is paid for"):
        classifier(account).partial_fit(X, Y)
    assert not hasattr(classifier(account), "partial_fit")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        classifier(account).nonsense  # noqa: B018
    assert "sample_weight" not in inspect.signature(learn.LogisticRegression.fit).parameters
    assert next(iter(inspect.signature(learn.LogisticRegression).parameters)) == "spend"
    assert not account.spent.amount

"""Whatever one more row holds, a fit neither fails nor warns, costs the same, and moves by no more than its price."""

import inspect
import warnings

import numpy as np
import pandas as pd
import pytest

import cloister as cl
from cloister import learn
from cloister.learn.base.cells import Categories, numbers_in
from cloister.learn.base.inputs import codes, read_goal, read_table
from cloister.learn.base.payer import DryRun
from cloister.learn.model_selection.candidates import fit_within
from cloister.privacy.errors import BadBounds, BadSchema
from cloister.privacy.mechanisms import DiscreteGaussian
from cloister.privacy.noise import SeededSource

from ..statistical.learn_cases import FRAMES, LABELLED, ODD_NUMBERS, ODD_THINGS, Table

RHO = 0.5
SPEND = cl.rho("0.5")
LABELS, TARGET = {"classes": [0, 1]}, {"target_bounds": (0, 1)}
FITS = {
    "LogisticRegression": ({"bounds": (0, 1)}, LABELS),
    "LogisticRegression quadratic": ({"bounds": (0, 1), "method": "quadratic"}, LABELS),
    "LogisticRegression newton": ({"bounds": (0, 1), "method": "newton"}, LABELS),
    "LogisticRegression norm": ({"data_norm": 2.0, "method": "gradient"}, LABELS),
    "LinearSVC": ({"bounds": (0, 1)}, LABELS),
    "GaussianNB": ({"bounds": (0, 1)}, LABELS),
    "GaussianNB find": ({"bounds": "find"}, LABELS),
    "MixedNB": ({"bounds": (0, 1)}, LABELS),
    "CategoricalNB": ({"categories": [["0", "1"], [0, 1]]}, LABELS),
    "DecisionTreeClassifier": ({"bounds": (0, 1), "max_depth": 2}, LABELS),
    "RandomForestClassifier": ({"bounds": (0, 1), "max_depth": 2, "n_estimators": 2}, LABELS),
    "GradientBoostingClassifier": ({"bounds": (0, 1), "rounds": 2}, LABELS),
    "LinearRegression": ({"bounds": (0, 1)}, TARGET),
    "LinearRegression find": ({"bounds": "find"}, TARGET),
    "Ridge": ({"data_norm": 2.0}, TARGET),
    "GradientBoostingRegressor": ({"bounds": (0, 1), "rounds": 2}, TARGET),
    "KMeans": ({"bounds": (0, 1), "n_clusters": 2, "max_iter": 2}, {}),
    "KMeans norm": ({"data_norm": 2.0, "n_clusters": 2, "max_iter": 2}, {}),
    "PCA": ({"bounds": (0, 1)}, {}),
    "PCA power": ({"bounds": (0, 1), "method": "power", "n_components": 1}, {}),
    "StandardScaler": ({"bounds": (0, 1)}, {}),
    "QuantileTransformer": ({"bounds": (0, 1)}, {}),
}
# A row of two features and its label or target, and what pandas makes of the columns it comes into.
ODD = {
    "missing": (None, 0.5, 1),
    "nan": (float("nan"), float("nan"), 0),
    "infinite": (float("inf"), float("-inf"), 1),
    "huge": (1e308, -1e308, 0),
    "beyond floats": (10**400, 0.5, 1),
    "a word": ("secret@diagnosis", 0.5, 1),
    "no label": (1, 0.5, None),
    "a word as label": (1, 0.5, "secret-label"),
    "an infinite label": (0, 0.0, float("inf")),
    "a list": ([1, 2], 0.5, 1),
}


class Meter(DryRun):
    """Keep what every step saw and released; or release again what another fit released."""

    def __init__(self, released=None):
        super().__init__()
        self.source = SeededSource("public")
        self._noise, self._replay = SeededSource("noise"), iter(released or ())
        self.steps, self.released = [], []

    def release(self, look, mechanism):
        self.steps.append((mechanism, look()))
        value = next(self._replay, None)
        if value is None:
            value = mechanism.release(self.steps[-1][1], self._noise)
        self.released.append(value)
        return value


def rows(n=40):
    random = np.random.default_rng(7)
    frame = pd.DataFrame({"code": random.integers(0, 2, n), "level": random.random(n)})
    return frame, pd.Series((frame.level > 0.4).astype(int))


def with_row(frame, labels, row):
    """One more row; pandas chooses the types of the columns."""
    code, level, label = row
    columns = {"code": pd.Series([*frame.code.tolist(), code]), "level": pd.Series([*frame.level.tolist(), level])}
    return pd.DataFrame(columns), pd.Series([*labels.tolist(), label])


def made(name, **more):
    given, own = FITS[name]
    return getattr(learn, name.partition(" ")[0])(SPEND, **{**given, **own, **more})


def fitted(model, frame, labels, meter=None):
    supervised = "y" in inspect.signature(model.fit).parameters and hasattr(model, "predict")
    rows = (frame, labels) if supervised else (frame,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return model.fit(*rows) if meter is None else fit_within(meter, model, *rows)


def divergence(without, beside):
    """What the releases of one fit tell of the other, in rho: choices aside, which are compared elsewhere."""
    total = 0.0
    for (mechanism, left), (_, right) in zip(without.steps, beside.steps, strict=True):
        if isinstance(mechanism, DiscreteGaussian):
            apart = np.asarray(left, dtype=np.float64) - np.asarray(right, dtype=np.float64)
            total += float((apart**2).sum()) / (2 * float(mechanism.sigma) ** 2)
    return total


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", FITS)
def test_an_odd_row_moves_a_fit_by_its_price_at_most(name, odd):
    frame, labels = rows()
    without = Meter()
    fitted(made(name), frame, labels, without)
    beside = Meter(without.released)
    fitted(made(name), *with_row(frame, labels, ODD[odd]), beside)
    assert len(without.steps) == len(beside.steps)
    assert divergence(without, beside) <= RHO * (1 + 1e-9)


@pytest.mark.parametrize("name", FITS)
def test_odd_rows_cost_what_others_cost_and_predictions_of_them_do_not_fail(name, tmp_path):
    frame, labels = rows()
    every = frame, labels
    for odd in ODD.values():
        every = with_row(*every, odd)
    with cl.Ledger.in_folder(tmp_path) as book:
        spent = []
        for i, (x, y) in enumerate(((frame, labels), every)):
            account = book.open_account(f"a{i}", cl.rho(10))
            model = fitted(made(name, account=account), x, y)
            spent.append(account.spent)
            if hasattr(model, "predict"):
                said = model.predict(every[0])
                assert len(said) == len(every[0])
                if said.dtype.kind == "f":
                    assert np.isfinite(said).all()
        assert spent[0] == spent[1] == SPEND


@pytest.mark.parametrize("scoring", [None, "neg_log_loss"])
def test_odd_rows_do_not_make_a_selection_or_a_validation_fail(scoring, tmp_path):
    every = rows(200)
    for odd in ODD.values():
        every = with_row(*every, odd)
    models = [made("LogisticRegression"), made("GaussianNB")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("select", "cross_val_score"):
            work = {"spend": SPEND, "refit": False} if name == "select" else {"cv": 2}
            first = models if name == "select" else models[0]
            found = getattr(learn, name)(first, *every, scoring=scoring, ledger=tmp_path / name, **work)
            assert found.loss
        learn.cross_val_score(made("LinearRegression"), *every, cv=2, ledger=tmp_path / "numbers")


@pytest.mark.parametrize(
    ("name", "key"),
    [("GradientBoostingClassifier", "shapes_"), ("DecisionTreeClassifier", "tree_"), ("MixedNB", "feature_log_prob_")],
)
@pytest.mark.parametrize("codes", [[1, 2, 3], [10**16, 2 * 10**16, 3 * 10**16]], ids=["short", "long"])
def test_a_missing_code_does_not_change_how_other_codes_are_read(name, key, codes):
    """pandas turns the column into floats: "1" would become "1.0", and 10^16 "1e+16"."""
    random = np.random.default_rng(3)
    frame = pd.DataFrame({"ward": random.choice(codes, 300)})
    labels = pd.Series((frame.ward == codes[0]).astype(int))
    more = pd.DataFrame({"ward": pd.Series([*frame.ward.tolist(), None])})
    assert more.ward.dtype == np.float64
    meters = []
    for x, y in ((frame, labels), (more, pd.Series([*labels, 1]))):
        meters.append(Meter(meters[0].released if meters else None))
        listed = {"categories": {"ward": [str(code) for code in codes]}, "classes": [0, 1]}
        model = fitted(getattr(learn, name)(SPEND, **listed), x, y, meters[-1])
        assert hasattr(model, key)
    assert divergence(*meters) <= RHO
    seen = np.asarray(meters[0].steps[0][1])
    assert seen.sum() > 0


# Containers: one more row, whatever it holds, and all others are read as before.


HOSTILE = [*ODD_THINGS, *ODD_NUMBERS]
USUAL = [[1, 0.5, "a"], [2, 0.25, None], [0, None, "b"], [1, 0.75, "a"]]


def read(frame):
    """Every cell as a number and as a category, and the kind of each column."""
    table = read_table(frame, numbers=False)
    cells = [(numbers_in(one), Categories(["a", "b", 1, 0.5]).codes(one)) for one in table.columns]
    return table.width, np.column_stack([part for pair in cells for part in pair])


@pytest.mark.parametrize("container", FRAMES)
def test_one_odd_row_leaves_the_reading_of_all_others(container):
    plain = Table(("code", "level", "word"), USUAL, [0, 1, 0, 1], (False, False, True))
    width, alone = read(FRAMES[container](plain))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i, cell in enumerate(HOSTILE):
            place = i % (len(USUAL) + 1)
            more = FRAMES[container](plain.with_row(place, [cell] * 3, 1))
            wide, beside = read(more)
            assert wide == width
            np.testing.assert_array_equal(np.delete(beside, place, axis=0), alone, err_msg=f"{cell!r:.80}")


@pytest.mark.filterwarnings("ignore:A column-vector y")
@pytest.mark.parametrize("container", LABELLED)
def test_one_odd_label_leaves_the_reading_of_all_others(container):
    labels = [0, 1, 1, None, 0]
    alone = codes(LABELLED[container](labels), [0, 1])
    goal = numbers_in(read_goal(LABELLED[container](labels), 5))
    for i, cell in enumerate(HOSTILE):
        place = i % 6
        more = LABELLED[container]([*labels[:place], cell, *labels[place:]])
        assert np.delete(codes(more, [0, 1]), place).tolist() == alone.tolist()
        np.testing.assert_array_equal(np.delete(numbers_in(read_goal(more, 6)), place), goal)


# Public numbers that would break the scale


EXTREME = [(-1e308, 1e308), (0, 1e-310), (0, 1e101), (1e90, 1e90 + 1e70), (1, 1 + 2**-45), (-1e-320, 1e-320)]


@pytest.mark.parametrize("bounds", EXTREME)
@pytest.mark.parametrize("name", [name for name in FITS if "bounds" in FITS[name][0] and "find" not in name])
def test_bounds_that_arithmetic_cannot_bear_are_refused_before_the_charge(name, bounds, tmp_path):
    with cl.Ledger.in_folder(tmp_path) as book:
        account = book.open_account("a", cl.rho(10))
        with pytest.raises(BadBounds):
            fitted(made(name, bounds=bounds, account=account), *rows())
        assert not account.spent.amount


@pytest.mark.parametrize("norm", [1e-310, 1e-101, 1e101, 1e308, float("inf"), float("nan"), 0])
@pytest.mark.parametrize("name", ["LogisticRegression", "LinearSVC", "Ridge", "KMeans", "PCA"])
def test_norms_that_arithmetic_cannot_bear_are_refused_before_the_charge(name, norm, tmp_path):
    with cl.Ledger.in_folder(tmp_path) as book:
        account = book.open_account("a", cl.rho(10))
        with pytest.raises(BadBounds):
            fitted(made(name, data_norm=norm, account=account), *rows())
        assert not account.spent.amount


@pytest.mark.parametrize("bounds", [(-1e100, 1e100), (0, 1e-99), (1e90, 1e90 * (1 + 2**-39)), (-1e100, -1e99)])
@pytest.mark.parametrize("name", [name for name in FITS if FITS[name][0].get("bounds") == (0, 1)])
def test_the_widest_and_narrowest_bounds_keep_the_price(name, bounds):
    low, high = bounds
    random = np.random.default_rng(5)
    x = low + (high / 2 - low / 2) * random.random((30, 2)) * 2
    y = (random.random(30) > 0.5).astype(int)
    for extra in ([low, high], [high, high], [np.inf, -np.inf], [0.0, 1e308], [np.nan, low]):
        meters = []
        for rows_, labels in ((x, y), (np.vstack([x, extra]), np.append(y, 1))):
            meters.append(Meter(meters[0].released if meters else None))
            with np.errstate(all="ignore"):
                model = made(name, bounds=bounds)
                fit_within(meters[-1], model, *((rows_, labels) if hasattr(model, "predict") else (rows_,)))
        assert divergence(*meters) <= RHO * (1 + 1e-9)


def test_classes_that_read_alike_are_refused():
    with pytest.raises(BadSchema):
        made("GaussianNB", classes=["1", "1.0", "2"], random_state=1).fit(*rows())

"""A search that pays for its choice."""

import datetime as dt
import pickle
import warnings
from contextlib import nullcontext

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_transformer
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer, PolynomialFeatures, StandardScaler
from sklearn.utils import all_estimators

import cloister as cl
from cloister import learn
from cloister.attack import Batched, audit
from cloister.lazy import homes
from cloister.learn.base.cells import category
from cloister.learn.base.payer import BudgetPart, DryRun
from cloister.learn.model_selection.candidates import fit_within, settled
from cloister.learn.model_selection.scoring import read_scoring
from cloister.learn.model_selection.search import choose
from cloister.learn.preprocessing.stateless import EachRow
from cloister.privacy.errors import (
    BadBounds,
    BadCandidates,
    BadInput,
    BadSchema,
    CloisterError,
    LookFailed,
    NotPrivate,
    OverBudget,
)
from cloister.privacy.filter import PrivacyFilter, budget_share
from cloister.privacy.mechanisms import DiscreteGaussian
from cloister.privacy.noise import SeededSource

SPEND = cl.epsilon(1, delta="1e-6")
PUBLIC = {"bounds": (0, 1), "classes": [0, 1]}


def made(n=4_000, d=3, seed=0):
    random = np.random.default_rng(seed)
    rows = random.random((n, d))
    labels = (random.random(n) < 1 / (1 + np.exp(-(rows - 0.5) @ np.full(d, 6.0)))).astype(int)
    return rows, labels


class Constant(learn.LogisticRegression):
    """A private model that always says one class, for a score that is known."""

    def __init__(self, spend=None, *, says=0, bounds=None, classes=None):
        self.says = says
        super().__init__(spend, bounds=bounds, classes=classes)
        self.classes_ = np.array([0, 1])

    def predict(self, rows):
        return np.full(len(rows), self.says)


@pytest.fixture(autouse=True)
def _the_door_knows_constant(monkeypatch):
    """A class of a test stands in for an estimator of cloister.learn: all others are refused."""
    monkeypatch.setattr(learn, "Constant", Constant, raising=False)
    monkeypatch.setitem(homes("cloister.learn"), "Constant", "")


class Own(Pipeline):
    """A pipeline that could do anything."""


def beside(*more, remainder="drop", spend=None, **told):
    """A model behind a scaler of the first column, and what becomes of the others."""
    columns = ColumnTransformer([("a", learn.MinMaxScaler(bounds=(0, 1)), [0]), *more], remainder=remainder, **told)
    return make_pipeline(columns, learn.LogisticRegression(spend, **PUBLIC))


# What is chosen.


@pytest.mark.parametrize("spend", [SPEND, cl.epsilon(2)], ids=["delta", "pure"])
@pytest.mark.parametrize("refit", [True, False])
def test_the_better_candidate_is_chosen(tmp_path, spend, refit):
    rows, labels = made()
    candidates = [Constant(says=0, **PUBLIC), learn.LogisticRegression(**PUBLIC), Constant(says=1, **PUBLIC)]
    found = learn.select(candidates, rows, labels, spend=spend, refit=refit, ledger=tmp_path, random_state=1)
    assert found.index == 1
    assert found.best.score(rows, labels) > 0.75


def test_a_grid_is_searched(tmp_path):
    rows, labels = made()
    grid = {"says": [0, 1]}
    found = learn.select(
        Constant(**PUBLIC), rows, np.ones_like(labels), spend=SPEND, grid=grid, ledger=tmp_path, random_state=0
    )
    assert found.params == {"says": 1}
    assert found.best.says == 1
    assert found.candidates == 2


def test_regressors_are_compared_by_their_squared_error(tmp_path):
    rows, _ = made()
    goal = rows @ [1, 2, 3]
    model = learn.Ridge(bounds=(0, 1), target_bounds=(0, 6))
    found = learn.select(model, rows, goal, spend=SPEND, grid={"alpha": [1e6, 1.0]}, ledger=tmp_path, random_state=0)
    assert found.params == {"alpha": 1.0}
    assert found.best.score(rows, goal) > 0.9


def test_pipelines_are_candidates(tmp_path):
    rows, labels = made()
    line = make_pipeline(FunctionTransformer(np.sqrt), learn.MinMaxScaler(bounds=(0, 1)), learn.LinearSVC(**PUBLIC))
    found = learn.select([line, Constant(says=0, **PUBLIC)], rows, labels, spend=SPEND, ledger=tmp_path, random_state=0)
    assert found.index == 0
    assert found.best[-1].release_.receipt is found.release.receipt


# What it costs.


@pytest.mark.parametrize("refit", [True, False])
def test_the_total_is_the_spend_in_one_charge_with_one_receipt(tmp_path, refit):
    rows, labels = made(500)
    book = cl.Ledger.in_folder(tmp_path)
    found = learn.select(
        learn.LogisticRegression(**PUBLIC), rows, labels, spend=SPEND, grid={"method": ["gradient", "newton"]},
        refit=refit, ledger=book,
    )  # fmt: skip
    assert found.loss == budget_share(SPEND).loss
    assert sum(found.parts.values()) == found.loss
    assert len(book.accounts()) == 1
    assert book.accounts()[0].left.amount == 0
    found.release.receipt.verify(book.key.public)
    assert found.release.private
    assert found.best.release_.receipt is found.release.receipt
    assert found.best.loss_ == found.loss
    steps = {one["mechanism"] for one in found.release.receipt.body["parameters"]}
    assert "exponential" in steps


def test_it_says_what_every_part_cost(tmp_path):
    rows, labels = made(300)
    found = learn.select(
        Constant(**PUBLIC), rows, labels, spend=cl.rho("0.1"), grid={"says": [0, 1]}, ledger=tmp_path, random_state=0
    )
    text = str(found)
    assert text.startswith("NOT PRIVATE")
    for line in ("trials    rho 0.03", "choice    rho 0.005", "final fit rho 0.065", "total     rho 0.1"):
        assert line in text


def test_an_account_with_too_little_refuses_before_a_row_is_read(tmp_path):
    rows, labels = made(100)
    account = cl.Ledger.in_folder(tmp_path).open_account("rows", cl.rho("0.001"))
    with pytest.raises(OverBudget):
        learn.select(Constant(**PUBLIC), rows, labels, spend=SPEND, grid={"says": [0, 1]}, account=account)
    assert account.spent.amount == 0


def test_a_wrong_parameter_is_told_before_anything_is_charged(tmp_path):
    rows, labels = made(100)
    account = cl.Ledger.in_folder(tmp_path).open_account("rows", cl.rho("1"))
    models = [learn.LogisticRegression(**PUBLIC), learn.LogisticRegression(bounds=(0, 1))]
    with pytest.raises(BadSchema, match="classes"):
        learn.select(models, rows, labels, spend=SPEND, account=account)
    assert account.spent.amount == 0


@pytest.mark.parametrize(
    ("models", "more", "error"),
    [
        ([learn.LogisticRegression(**PUBLIC)], {}, BadCandidates),
        ([Plain(), learn.LogisticRegression(**PUBLIC)], {}, NotPrivate),
        ([make_pipeline(StandardScaler(), learn.LogisticRegression(**PUBLIC))] * 2, {}, NotPrivate),
        ([make_pipeline(FunctionTransformer())] * 2, {}, BadCandidates),
        ([beside(remainder=StandardScaler())] * 2, {}, NotPrivate),
        ([beside(remainder=make_pipeline(StandardScaler()))] * 2, {}, NotPrivate),
        ([beside(("b", StandardScaler(), [1]))] * 2, {}, NotPrivate),
        ([beside(remainder="drop", transformer_weights={"a": 2.0})] * 2, {}, BadInput),
        ([beside(("b", learn.MinMaxScaler(bounds=(0, 1)), lambda rows: [1]))] * 2, {}, BadInput),
        ([make_pipeline(FeatureUnion([("a", StandardScaler())]), learn.LinearSVC(**PUBLIC))] * 2, {}, NotPrivate),
        ([make_pipeline(PolynomialFeatures(), learn.LinearSVC(**PUBLIC))] * 2, {}, NotPrivate),
        ([make_pipeline(learn.LinearSVC(**PUBLIC), memory="somewhere")] * 2, {}, BadInput),
        ([Own([("a", learn.LinearSVC(**PUBLIC))])] * 2, {}, NotPrivate),
        ([TransformedTargetRegressor(learn.Ridge(bounds=(0, 1), target_bounds=(0, 1)))] * 2, {}, NotPrivate),
        ([learn.LogisticRegression(**PUBLIC), "words", 3], {}, CloisterError),
        ([learn.KMeans(bounds=(0, 1))] * 2, {}, BadInput),
        ([learn.Ridge(bounds=(0, 1))] * 2, {}, BadBounds),
        ([learn.LogisticRegression(**PUBLIC)] * 2, {"scoring": "f1"}, BadInput),
    ],
    ids=[
        "one",
        "not private",
        "scaler that peeks",
        "no model",
        "scaler of the remainder",
        "pipeline of the remainder",
        "scaler of a column",
        "weights",
        "columns by a function",
        "scaler in a union",
        "not known",
        "memory",
        "a pipeline of one's own",
        "a scaled target",
        "no estimator",
        "no score",
        "no bounds",
        "no such",
    ],
)
def test_what_cannot_be_chosen_from_is_refused(tmp_path, models, more, error):
    rows, labels = made(50)
    with pytest.raises((error, TypeError)):
        learn.select(models, rows, labels, spend=SPEND, ledger=tmp_path / "unused", **more)
    assert not (tmp_path / "unused").exists()


# Parts of pipelines.


def subclasses():
    """A class of one's own below every estimator, with a `fit` that sees the rows; also one of the same name."""
    for name in learn.__all__:
        kind = getattr(learn, name)
        if isinstance(kind, type):
            for called in ("Peek", name):
                body = {"__init__": kind.__init__, "__module__": kind.__module__}
                body["fit"] = lambda self, X, y=None: setattr(self, "largest_", X.max()) or self  # noqa: N803
                yield type(called, (kind,), body)


@pytest.mark.parametrize("kind", list(subclasses()), ids=lambda kind: f"{kind.__name__} of {kind.__base__.__name__}")
def test_a_subclass_of_an_estimator_is_refused_before_the_charge(kind, tmp_path):
    """It could keep rows beside the private steps, or read them in a transformation that pays nothing."""
    rows, labels = made(50)
    own = [kind(), make_pipeline(kind(), learn.LinearSVC(**PUBLIC)), beside(remainder=kind())]
    for model in own:
        with pytest.raises(NotPrivate):
            settled(model)
        with pytest.raises(NotPrivate):
            learn.select([model] * 2, rows, labels, spend=SPEND, ledger=tmp_path / "unused")
        with pytest.raises(NotPrivate):
            learn.cross_val_score(model, rows, labels, ledger=tmp_path / "unused")
    assert not (tmp_path / "unused").exists()


def test_a_transformer_that_learns_is_refused_behind_the_reader_of_single_rows():
    with pytest.raises(NotPrivate):
        settled(make_pipeline(EachRow(StandardScaler()), learn.LinearSVC(**PUBLIC)))
    once = settled(make_pipeline(Normalizer(), learn.LinearSVC(**PUBLIC)))
    assert type(settled(once)[0]) is EachRow


def every_transformer():
    """Everything that scikit-learn can put in front of a model, where it needs no more arguments."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, kind in all_estimators("transformer"):
            try:
                yield name, kind()
            except TypeError:
                continue


@pytest.mark.parametrize("place", ["step", "remainder", "column", "union"])
def test_no_transformer_of_scikit_learn_learns_from_rows_for_nothing(place):
    let_in = set()
    for name, one in every_transformer():
        lines = {
            "step": lambda one=one: make_pipeline(one, learn.LinearSVC(**PUBLIC)),
            "remainder": lambda one=one: beside(remainder=one),
            "column": lambda one=one: beside(("b", one, [1, 2])),
            "union": lambda one=one: make_pipeline(FeatureUnion([("a", one)]), learn.LinearSVC(**PUBLIC)),
        }
        try:
            settled(lines[place]())
        except NotPrivate:
            continue
        let_in.add(name)
    assert let_in == {"Binarizer", "FunctionTransformer", "Normalizer"}


def test_a_private_part_of_the_remainder_pays(tmp_path):
    rows, labels = made(300)
    line = beside(remainder=learn.StandardScaler(cl.rho("0.01"), bounds=(0, 1)), spend=cl.rho("0.02"))
    assert learn.cross_val_score(line, rows, labels, cv=2, ledger=tmp_path).loss == cl.rho("0.063")
    account = cl.Ledger.in_folder(tmp_path).open_account("rows", cl.rho(1))
    found = learn.select([line, line], rows, labels, spend=cl.rho("0.1"), account=account)
    assert account.spent == found.loss == cl.rho("0.1")
    scaler = found.best[0].named_transformers_["remainder"]
    assert scaler.release_.receipt is found.best[-1].release_.receipt is found.release.receipt


@pytest.mark.parametrize("config", [{}, {"n_jobs": 2, "backend": "threading"}])
def test_parts_pay_in_this_process_whatever_the_number_of_jobs(tmp_path, config):
    rows, labels = made(100)
    scaler = learn.StandardScaler(cl.rho("0.01"), bounds=(0, 1), ledger=tmp_path)
    line = make_pipeline(
        ColumnTransformer([("a", scaler, [0]), ("b", scaler, [1, 2])], n_jobs=2),
        FeatureUnion([("a", clone(scaler)), ("b", learn.MinMaxScaler(bounds=(-3, 3)))], n_jobs=2),
        learn.LogisticRegression(cl.rho("0.01"), bounds=(-4, 4), classes=[0, 1]),
    )
    with joblib.parallel_config(**config) if config else nullcontext():
        learn.cross_val_score(line, rows, labels, cv=2, ledger=tmp_path)
    with cl.Ledger.in_folder(tmp_path) as book:
        assert len(book.accounts()) == 1
        assert not book.accounts()[0].left.amount


ROWWISE = {
    "Normalizer": Normalizer,
    "Binarizer": lambda: Binarizer(threshold=0.5),
    "a square root": lambda: FunctionTransformer(np.sqrt, validate=True),
    "a function that looks around": lambda: FunctionTransformer(lambda rows: rows - rows.mean(axis=0)),
    "a function that drops": lambda: FunctionTransformer(lambda rows: rows[:, ~np.isnan(rows).any(axis=0)]),
    "a function that counts": lambda: FunctionTransformer(lambda rows: np.full((1, 3), float(len(rows)))),
    "nothing": FunctionTransformer,
}
HOSTILE = [[np.nan, 0, 0], [np.inf, 1.7e308, -np.inf], [1.7e308] * 3, [None, "secret", 1j], [-1.0, 5e-324, 0.0]]


@pytest.mark.parametrize("name", ROWWISE)
def test_a_transformer_without_memory_sees_one_row_at_a_time(name):
    rows, _ = made(20)
    alone = EachRow(ROWWISE[name]()).fit(rows)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for odd in HOSTILE:
            more = [*rows.tolist(), odd]
            beside_it = EachRow(ROWWISE[name]()).fit(more)
            np.testing.assert_array_equal(beside_it.transform(more)[:20], alone.transform(rows))
            np.testing.assert_array_equal(beside_it.transform([odd])[0], beside_it.transform(more)[20])
    for i in range(20):
        np.testing.assert_array_equal(alone.transform(rows[i : i + 1])[0], alone.transform(rows)[i])


@pytest.mark.parametrize("name", ROWWISE)
@pytest.mark.parametrize("odd", HOSTILE, ids=["missing", "infinite", "huge", "words", "small"])
def test_no_row_decides_whether_a_pipeline_can_be_scored(name, odd, tmp_path):
    rows, labels = made(60)
    line = make_pipeline(
        ROWWISE[name](), learn.StandardScaler(bounds=(0, 1)), learn.LogisticRegression(SPEND, **PUBLIC)
    )
    account = cl.Ledger.in_folder(tmp_path).open_account("rows", cl.rho(10))
    spent = []
    for some, told in ((rows, labels), ([*rows.tolist(), odd], [*labels.tolist(), 0])):
        with warnings.catch_warnings(), np.errstate(all="raise"):
            warnings.simplefilter("error")
            before = account.spent.amount
            learn.cross_val_score(line, some, told, cv=2, account=account)
            spent.append(account.spent.amount - before)
    assert spent[0] == spent[1]


def test_a_function_that_fails_on_every_row_is_refused_by_name():
    with pytest.raises(BadInput, match="FunctionTransformer fails on a made-up row"):
        EachRow(FunctionTransformer(lambda rows: rows["age"])).fit(np.zeros((3, 2)))


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_what_passes_through_is_read_by_its_declared_type(kind):
    """numpy would make texts of the numbers beside words as soon as no word is missing, and words of missing ones."""
    makers = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}
    line = ColumnTransformer([("a", learn.MinMaxScaler(bounds=(0, 1)), ["x"])], remainder="passthrough")
    line = make_pipeline(line, learn.MixedNB(categories={1: ["a", "b"], 2: [1, 2]}, bounds=(0, 1), classes=[0, 1]))
    seen = []
    for more in ([], [None]):
        frame = {"x": [0.5, None, 0.25, *more], "w": ["a", "b", "a", *more], "n": [1, 2, 1, *more]}
        made_of = settled(line)[0].fit_transform(makers[kind](frame))
        seen.append([[category(cell) for cell in row] for row in made_of[:3].tolist()])
    assert seen[0] == seen[1] == [[0.5, "a", 1.0], [None, "b", 2.0], [0.25, "a", 1.0]]


# What protects.


class Free:
    """A meter without a ledger."""

    def __init__(self, source):
        self.source = source

    def release(self, look, mechanism):
        return mechanism.release(look(), self.source)


@pytest.mark.parametrize("loss", [cl.epsilon("0.5"), cl.rho("0.05")], ids=["pure", "rho"])
def test_the_choice_is_as_private_as_it_says(loss):
    score = read_scoring("accuracy", learn.LogisticRegression())
    models = [Constant(says=0), Constant(says=1), Constant(says=1)]
    source = SeededSource("choice")

    def draw(labels, n):
        rows = np.zeros((len(labels), 1))
        return np.array([choose(Free(source), score, models, lambda: (rows, labels), loss) for _ in range(n)])

    without, with_one = np.array([0, 1, 1]), np.array([0, 1, 1, 1])
    found = audit(Batched(draw), without, with_one, loss, n=4_000, confidence=1 - 1e-9)
    assert found.verdict == "holds"
    # The audit can tell: the same choice at ten times the price breaks the claim.
    ten = cl.epsilon(5) if loss.is_pure else cl.rho(5)

    def louder(labels, n):
        rows = np.zeros((len(labels), 1))
        return np.array([choose(Free(source), score, models, lambda: (rows, labels), ten) for _ in range(n)])

    assert audit(Batched(louder), without, np.append(without, [0] * 1), loss, n=4_000, confidence=1 - 1e-9).broken


def test_a_row_adds_at_most_the_stated_points_to_every_score(tmp_path):
    rows, labels = made(200)
    model = learn.LogisticRegression(SPEND, **PUBLIC, ledger=tmp_path, random_state=0).fit(rows, labels)
    for name in ("accuracy", "neg_log_loss"):
        score = read_scoring(name, model)
        before = score.points(model, rows, labels)
        for label in (0, 1, 7):
            moved = score.points(model, np.vstack([rows, [[9.0, -9.0, 0.5]]]), np.append(labels, label)) - before
            assert 0 <= moved <= score.most


def test_a_fit_cannot_go_beyond_its_share(tmp_path):
    account = cl.Ledger.in_folder(tmp_path).open_account("rows", cl.rho(1))
    outer = PrivacyFilter(account, cl.rho(1), SeededSource(0), cl.Loss.nothing("rho"))
    part = BudgetPart.of(outer, cl.rho("0.1"))
    noise = DiscreteGaussian.for_loss(1, cl.rho("0.1"))
    part.release(lambda: 3, noise)
    assert outer.spent == cl.rho("0.1")
    with pytest.raises(OverBudget, match="beyond its share"):
        part.release(lambda: 3, noise)
    assert outer.spent == cl.rho("0.1")


def test_a_failing_step_says_nothing_about_rows(tmp_path, monkeypatch):
    class Constant(learn.Constant):  # the name of a class that the door knows
        def predict(self, rows):
            if len(rows):
                raise ValueError(f"secret {rows[0, 0]}")
            return super().predict(rows)

    monkeypatch.setattr(learn, "Constant", Constant)
    rows, labels = made(50)
    with pytest.raises(LookFailed) as failed:
        learn.select([Constant(**PUBLIC)] * 2, rows, labels, spend=SPEND, ledger=tmp_path)
    assert "secret" not in str(failed.value)


def test_a_dataset_cannot_be_selected_on():
    class Data:
        tables = account = None

        def relation(self):
            raise AssertionError

    model = learn.LogisticRegression(SPEND, **PUBLIC)
    model._meter = DryRun()
    with pytest.raises(BadInput, match="arrays or frames"):
        model._train(lambda meter, budget: None, Data())


def test_a_part_of_a_selection_pays_from_it_and_forgets_it_afterwards(tmp_path):
    """Copies that a ColumnTransformer makes of its parts pay from the same charge."""
    rows, labels = made(60)
    with cl.Ledger.in_folder(tmp_path / "book") as book:
        account = book.open_account("rows", cl.rho(9))
        own = book.open_account("own", cl.rho(9))
        meter = PrivacyFilter(account, cl.rho(9), SeededSource(0), cl.Loss.nothing("rho"))
        columns = make_column_transformer((learn.QuantileTransformer(cl.rho(1), bounds=(0, 1)), [0, 1]))
        model = settled(make_pipeline(columns, learn.LogisticRegression(cl.rho(1), **PUBLIC)))
        assert fit_within(meter, model, rows, labels) is model
        assert meter.spent == cl.rho(1) * 2
        parts = [model[-1], model[0].transformers_[0][1], model[0].transformers[0][1]]
        assert not [part for part in parts if part._meter is not None]
        assert "_meter" not in vars(model[-1])
        model[-1].set_params(account=own).fit(rows, labels)
        assert (own.spent, meter.spent) == (cl.rho(1), cl.rho(1) * 2)
    assert not (tmp_path / ".cloister").exists()


def test_a_failed_fit_forgets_who_would_have_paid_and_no_copy_takes_it_along(tmp_path):
    rows, labels = made(60)
    model = learn.LogisticRegression(SPEND, **PUBLIC)
    model._meter = DryRun()
    assert clone(model)._meter is model._meter
    assert pickle.loads(pickle.dumps(model))._meter is None
    with pytest.raises(BadInput):
        fit_within(DryRun(), model, rows, labels[:-1])
    assert model._meter is None


# scikit-learn's own.


@pytest.mark.parametrize("jobs", [1, 2])
def test_scikit_learns_own_validation_is_refused_with_the_reason(tmp_path, jobs):
    rows, labels = made(60)
    model = learn.LogisticRegression(SPEND, **PUBLIC, ledger=tmp_path / "unused")
    with pytest.raises(NotPrivate, match=r"cloister\.learn\.cross_val_score"):
        cross_val_score(model, rows, labels, error_score="raise", n_jobs=jobs)
    line = make_pipeline(learn.MinMaxScaler(bounds=(0, 1)), model)
    search = GridSearchCV(line, {"logisticregression__method": ["gradient", "newton"]}, error_score="raise")
    with pytest.raises(NotPrivate, match=r"cloister\.learn\.select"):
        search.fit(rows, labels)
    assert not (tmp_path / "unused").exists()


def test_no_part_keeps_the_filter_after_a_fit_however_deep_it_is_nested(tmp_path):
    rows, labels = np.random.default_rng(3).uniform(0, 1, (60, 2)), np.arange(60) % 2
    scaler = learn.StandardScaler(cl.rho("0.01"), bounds=(0, 1))
    inner = ColumnTransformer([("s", scaler, [0])], remainder=learn.StandardScaler(cl.rho("0.01"), bounds=(0, 1)))

    def model(method):
        last = learn.LogisticRegression(cl.rho("0.05"), bounds=(-3, 3), classes=[0, 1], method=method)
        return Pipeline([("c", ColumnTransformer([("a", inner, [0, 1])])), ("m", last)])

    best = learn.select(
        [model("newton"), model("gradient")], rows, labels, spend=cl.rho("0.5"), ledger=tmp_path / "book"
    ).best

    def filters(thing, seen):
        if id(thing) in seen or isinstance(thing, str | int | float | np.ndarray | type(None)):
            return 0
        seen.add(id(thing))
        held = [*thing] if isinstance(thing, list | tuple) else [*getattr(thing, "__dict__", {}).values()]
        return ("_meter" in getattr(thing, "__dict__", {})) + sum(filters(one, seen) for one in held)

    assert filters(best, set()) == 0


@pytest.mark.parametrize("everywhere", [False, True], ids=["this transformer", "every transformer"])
@pytest.mark.parametrize("given", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
@pytest.mark.parametrize(
    "cells", [[dt.timedelta(1)] * 3, [dt.datetime(2020, 1, 1)] * 3, [1, 2, 3], [True] * 3], ids=str
)
def test_pandas_does_not_choose_types_by_cells(everywhere, given, cells):
    # pandas infers that objects are dates or durations, unless one cell is a word: it would re-read all others.
    def passed(column):
        rows = pd.DataFrame({"c": pd.Series(column, dtype=object), "x": 0.5, "z": 0.5})
        rows.index = pd.Index([7] * len(column))
        if given is pl.DataFrame:
            rows = pl.DataFrame({"c": pl.Series(column, dtype=pl.Object), "x": [0.5] * len(column)})
            rows = rows.with_columns(z=pl.col("x"))
        kept = [("passthrough", ["c"]), (make_union("passthrough"), ["c"])]
        parts = make_column_transformer((learn.MinMaxScaler(bounds=(0, 1)), ["x"]), *kept)
        parts.remainder = Binarizer().set_output(transform="default")
        if not everywhere:
            parts.set_output(transform="pandas")
            parts.remainder.set_output(transform="default")
        with sklearn.config_context(transform_output="pandas" if everywhere else "default"):
            output = settled(make_pipeline(parts, learn.MixedNB(cl.rho(1))))[0].fit(rows).transform(rows)
        assert isinstance(output, pd.DataFrame)
        return output

    without, beside = passed(cells), passed([*cells, "word"])
    assert without.dtypes.tolist() == beside.dtypes.tolist() == [float, object, object, float]
    assert without.iloc[:, 1].tolist() == without.iloc[:, 2].tolist() == cells


@pytest.mark.parametrize("everywhere", [False, True], ids=["of the part", "of the process"])
def test_polars_does_not_choose_types_by_cells(tmp_path, everywhere):
    # polars fails on a column of text with one missing cell, where pandas and arrays of objects do not.
    account = cl.Ledger.in_folder(tmp_path).open_account("rows", cl.rho("9"))
    rows = pd.DataFrame({"ward": pd.Series(["a", "b"] * 30, dtype=object), "x": np.linspace(0, 1, 60)})
    labels = np.arange(60) % 2

    def answer(output, rows):
        parts = make_column_transformer((learn.MinMaxScaler(bounds=(0, 1)), ["x"]), remainder="passthrough")
        facts = {"bounds": (0, 1), "categories": {1: ["a", "b"]}, "classes": [0, 1]}
        pipeline = make_pipeline(parts, learn.DecisionTreeClassifier(cl.rho("0.1"), max_depth=1, **facts))
        if not everywhere:
            parts.set_output(transform=output)
        with sklearn.config_context(transform_output=output if everywhere else "default"):
            return learn.cross_val_score(pipeline, rows, labels, cv=2, account=account)

    with pytest.raises(BadInput, match="polars frames"):
        answer("polars", rows)
    assert account.spent.amount == 0
    for cell in ("b", np.nan, None, 7):
        rows.loc[59, "ward"] = cell
        answer("default", rows)

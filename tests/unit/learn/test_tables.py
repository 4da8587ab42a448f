"""Every estimator takes a Cloister table: through its views, for its unit, in the engine or on rows it may read."""

import inspect
import math
from collections import deque
from copy import copy
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import cloister as cl
from cloister import learn
from cloister.data.hospital import SCHEMA, hospital
from cloister.data.schema import Schema
from cloister.learn.base.private_data import read_relation, scaled_cell
from cloister.learn.base.row_source import FetchedTable, fetch
from cloister.learn.linear_model.engine_moments import class_design
from cloister.privacy.errors import BadBounds, BadInput, BadSchema, CloisterError, LookFailed, TextbookOnly
from cloister.privacy.filter import BudgetShare
from cloister.privacy.noise import SeededSource

N = 1200
_source = SeededSource("tables for models")
WARD = np.array(["a", "b", "c"])[(_source.floats(N) * 3).astype(int)]
AGE = (_source.floats(N) * 90).astype(np.int64)
COST = np.round(0.4 * AGE + 20 * (WARD == "b") + _source.floats(N) * 30, 3)
OLD = AGE > 45
BACK = _source.floats(N) < 0.1 + 0.8 * OLD
PERSON = (_source.floats(N) * 300).astype(np.int64)
PERSON[:60] = 1000  # one with many rows
COLUMNS: dict[str, Any] = {
    "ward": {"type": "text", "categories": ["a", "b", "c"]},
    "age": {"type": "integer", "bounds": [0, 90], "nullable": False},
    "cost": {"type": "real", "bounds": [0, 90], "nullable": False},
    "back": {"type": "boolean", "nullable": False},
}
BY_ROW = Schema.load({"unit": "row", "tables": {"visits": {"columns": COLUMNS}}})
BY_PERSON = Schema.load(
    {"unit": {"name": "person", "max_rows": 4}, "tables": {"visits": {"unit": "person", "columns": COLUMNS}}}
)
FEATURES = ["age", "ward", "cost"]
FRAME = pd.DataFrame({"age": AGE, "ward": WARD, "cost": COST})
ENCODED = np.column_stack([AGE, *(one == WARD for one in "abc"), COST]).astype(float)
NAMES = ["age", "ward=a", "ward=b", "ward=c", "cost"]

TO_CLASSES = {
    "LogisticRegression": {},
    "gradient": {"method": "gradient"},
    "newton": {"method": "newton"},
    "functional": {"method": "functional"},
    "LinearSVC": {},
    "GaussianNB": {},
    "MixedNB": {},
    "CategoricalNB": {},
    "DecisionTreeClassifier": {"max_depth": 3},
    "RandomForestClassifier": {"max_depth": 3, "n_estimators": 4},
    "GradientBoostingClassifier": {"rounds": 10},
}
TO_NUMBERS = {"LinearRegression": {}, "Ridge": {}, "GradientBoostingRegressor": {"rounds": 10}}
NO_TARGET = {"KMeans": {"n_clusters": 3}, "PCA": {}, "power": {"method": "power"}, "QuantileTransformer": {}}
SCALERS = {"MinMaxScaler": {}, "StandardScaler": {}}


def kind_of(name: str) -> Any:
    if name == "power":
        return learn.PCA
    return getattr(learn, name) if name[0].isupper() else learn.LogisticRegression


def table(keep: Any = slice(None)) -> pa.Table:
    every = {"person": PERSON, "ward": WARD, "age": AGE, "cost": COST, "back": BACK}
    return pa.table({name: column[keep] for name, column in every.items()})


def opened(folder: Path, schema: Schema = BY_ROW, rows: Any = None, budget: Any = None) -> Any:
    return cl.open(table() if rows is None else rows, schema=schema, budget=budget or cl.rho(10**6), ledger=folder)


def fitted(name: str, data: Any, **more: Any) -> Any:
    kind = kind_of(name)
    told = {**TO_CLASSES, **TO_NUMBERS, **NO_TARGET}[name]
    model = kind(**{"spend": cl.rho(2000), "random_state": 1, **told, **more})
    features = {"CategoricalNB": ["ward"], "GaussianNB": ["age", "cost"]}.get(name, FEATURES)
    if name in TO_CLASSES:
        return model.fit(data, target="back", features=features)
    if name in TO_NUMBERS:
        return model.fit(data, target="cost", features=["age", "ward"])
    return model.fit(data, features=["age", "cost"])


# What is learned.


@pytest.mark.parametrize("schema", [BY_ROW, BY_PERSON], ids=["by row", "by person"])
@pytest.mark.parametrize("name", TO_CLASSES)
def test_classes_are_learned_from_a_table(tmp_path: Path, name: str, schema: Schema) -> None:
    with opened(tmp_path, schema) as ds:
        model = fitted(name, ds)
        assert ds.account.spent == cl.rho(2000)
        assert model.release_.unit == ds.unit
    assert model.classes_.tolist() == [False, True]
    columns = {"CategoricalNB": ["ward"], "GaussianNB": ["age", "cost"]}.get(name, FEATURES)
    encoded = list(model.feature_names_in_) == NAMES
    assert encoded or list(model.feature_names_in_) == columns
    right = (model.predict(ENCODED if encoded else FRAME[columns]) == BACK).mean()
    best = ((AGE > 45) == BACK).mean()
    assert right > (0.45 if name == "CategoricalNB" else best - 0.06)


@pytest.mark.parametrize("name", TO_NUMBERS)
def test_numbers_are_learned_from_a_table(tmp_path: Path, name: str) -> None:
    with opened(tmp_path, BY_PERSON) as ds:
        model = fitted(name, ds)
    rows = FRAME[["age", "ward"]] if name.startswith("Gradient") else ENCODED[:, :4]
    assert model.score(rows, COST) > 0.55


@pytest.mark.parametrize("name", NO_TARGET)
def test_structure_is_learned_from_a_table(tmp_path: Path, name: str) -> None:
    with opened(tmp_path, BY_PERSON) as ds:
        model = fitted(name, ds)
        assert ds.account.spent == cl.rho(2000)
    assert model.n_features_in_ == 2
    assert list(model.feature_names_in_) == ["age", "cost"]
    assert np.isfinite(model.transform(ENCODED[:, [0, 4]])).all()


def test_public_facts_of_a_table_are_enough_for_scalers(tmp_path: Path) -> None:
    with opened(tmp_path) as ds:
        scaled = learn.MinMaxScaler().fit(ds, features=["age", "cost"])
        assert scaled.data_max_.tolist() == [90, 90]
        assert learn.StandardScaler().fit(ds, features=["age"]).mean_.tolist() == [45]
        assert learn.OneHotEncoder().fit(ds, features=["ward"]).categories_[0].tolist() == ["a", "b", "c"]
        assert ds.account.spent.amount == 0
        paid = learn.StandardScaler(cl.rho(1000), random_state=0).fit(ds, features=["age", "cost"])
        assert paid.mean_ == pytest.approx([AGE.mean(), COST.mean()], abs=0.5)
        assert paid.scale_ == pytest.approx([AGE.std(), COST.std()], abs=0.5)


def test_every_other_column_that_can_be_used_is_a_feature_unless_some_are_named(tmp_path: Path) -> None:
    with cl.open(pa.table(hospital(300)), schema=SCHEMA, budget=cl.rho(100), ledger=tmp_path) as ds:
        tree = learn.DecisionTreeClassifier(cl.rho(1)).fit(ds, target="readmitted")
        assert tree.feature_names_in_.tolist() == ["ward", "age", "stay_days", "cost"]
        line = learn.LinearSVC(cl.rho(1)).fit(ds, target="readmitted")
        assert line.feature_names_in_[-3:].tolist() == ["age", "stay_days", "cost"]
        assert learn.KMeans(cl.rho(1), n_clusters=2).fit(ds, features=["age", "ward"]).n_features_in_ == 7


# Whom it protects.


def test_a_person_with_many_rows_keeps_so_many_whatever_others_do(tmp_path: Path) -> None:
    def seen(data: Any) -> list[tuple[Any, ...]]:
        found = data.relation("visits", ["age", "cost"]).chosen(["age", "cost"]).run(data.tables.engine)
        return sorted(zip(*(found.column(i).to_pylist() for i in (0, 1)), strict=True))

    with opened(tmp_path, BY_PERSON) as ds:
        left = seen(ds)
    assert len(left) == np.minimum(np.bincount(PERSON), 4).sum()
    with opened(tmp_path, BY_PERSON, table(PERSON != 1000)) as without:  # the same ledger, and so the same secret
        for row in seen(without):
            left.remove(row)
    own = set(zip(AGE[:60].tolist(), COST[:60].tolist(), strict=True))
    assert len(left) == 4
    assert set(left) <= own


def test_a_choice_is_the_owners_secret_and_stays_the_same(tmp_path: Path) -> None:
    def chosen(folder: Path) -> list[Any]:
        with opened(folder, BY_PERSON, table(slice(60))) as ds:
            return sorted(ds.relation(None, ["cost"]).chosen(["cost"]).run(ds.tables.engine).column(0).to_pylist())

    assert chosen(tmp_path / "a") == chosen(tmp_path / "a")
    assert len({tuple(chosen(tmp_path / str(i))) for i in range(4)}) > 1


@pytest.mark.parametrize(
    ("spend", "each"),
    [(cl.rho("0.16"), cl.rho("0.01")), (cl.epsilon(1), cl.epsilon("0.25"))],
    ids=["rho", "pure"],
)
def test_a_row_costs_what_the_rows_of_a_person_can_pay_for_together(tmp_path: Path, spend: Any, each: Any) -> None:
    budget = cl.epsilon(2) if spend.is_pure else cl.rho(1)
    with opened(tmp_path, BY_PERSON, budget=budget) as ds:
        model = learn.DecisionTreeClassifier(spend, max_depth=2).fit(ds, target="back", features=["age"])
        assert ds.account.spent == spend
    assert model.loss_ == spend
    assert model.release_.parameters == {"rows of a unit": "4", "a row": str(each)}
    steps = model.release_.receipt.body["parameters"]
    counts = [one for one in steps if "discrete" in one["mechanism"]]
    word = "scale" if spend.is_pure else "sigma"
    for one in counts:  # what is released is noisy enough for one row at its own price, and no more is spent
        amount = Fraction(one[word])
        loss = 1 / amount if spend.is_pure else 1 / (2 * amount**2)
        assert loss <= each.amount
    assert model.release_.private


def test_the_purse_of_a_row_is_group_privacy() -> None:
    assert BudgetShare(cl.rho(9)).of_a_row(3).loss == cl.rho(1)
    assert BudgetShare(cl.epsilon(9)).of_a_row(3).loss == cl.epsilon(3)
    assert BudgetShare(cl.rho(9)).of_a_row(1).loss == cl.rho(9)


# Through views.

VIEWS = {
    "rows": ("SELECT age, ward, cost, back FROM visits WHERE age < 60", AGE < 60),
    "words": ("SELECT age, ward, cost, back FROM visits WHERE ward = 'a' OR cost > 40", (WARD == "a") | (COST > 40)),
}


@pytest.mark.parametrize("schema", [BY_ROW, BY_PERSON], ids=["by row", "by person"])
@pytest.mark.parametrize("view", VIEWS)
def test_rows_outside_a_view_never_move_an_exact_statistic(tmp_path: Path, view: str, schema: Schema) -> None:
    sql, keep = VIEWS[view]
    with opened(tmp_path, schema) as ds, opened(tmp_path, schema, table(keep)) as restricted:
        found = [exact(one) for one in (ds.through({"visits": sql}), restricted, ds)]
    for name, seen in found[0].items():
        np.testing.assert_array_equal(seen, found[1][name], err_msg=name)
        assert np.shape(seen) != np.shape(found[2][name]) or not np.array_equal(seen, found[2][name])


def exact(data: Any) -> dict[str, Any]:
    """What models read before noise: second moments, moments by class, sums by class, rows."""
    from cloister.learn.linear_model.engine_moments import EngineDesign
    from cloister.learn.naive_bayes.class_sums import EngineClassSums

    relation = read_relation(data, None, [*FEATURES, "back"])
    matrix = EngineDesign(relation, ("age", "ward"), "cost").matrix()
    design = class_design(relation, ("age", "ward"), "back", [False, True], None)
    sums = EngineClassSums(relation, "back", np.array([False, True]), ("age", "cost"), None).sums()
    source = fetch(data, "back", FEATURES, None)
    rows = np.column_stack([source.numbers(), source.labels()])
    return {
        "matrix": matrix,
        "by class": design.matrix(),
        "sums": sums,
        "rows": rows[np.lexsort(rows.T)],
    }


@pytest.mark.parametrize("name", [*TO_CLASSES, *TO_NUMBERS, *NO_TARGET])
def test_a_fit_through_a_view_is_the_fit_on_the_restricted_table(tmp_path: Path, name: str) -> None:
    sql, keep = VIEWS["rows"]
    with opened(tmp_path, BY_PERSON) as ds, opened(tmp_path, BY_PERSON, table(keep)) as restricted:
        seen = fitted(name, ds.through({"visits": sql}))
        other = fitted(name, restricted)
    for part in ("coef_", "intercept_", "class_count_", "cluster_centers_", "components_", "ranks_"):
        if hasattr(seen, part):
            np.testing.assert_array_equal(getattr(seen, part), getattr(other, part))
    if name in TO_CLASSES:
        encoded = list(seen.feature_names_in_) == NAMES
        rows = ENCODED if encoded else FRAME[list(seen.feature_names_in_)]
        np.testing.assert_array_equal(seen.predict(rows), other.predict(rows))


@pytest.mark.parametrize("name", [*TO_CLASSES, *TO_NUMBERS, *NO_TARGET])
def test_a_column_that_a_policy_hides_cannot_be_learned_from(tmp_path: Path, name: str) -> None:
    with opened(tmp_path) as ds:
        seen = ds.through({"visits": "SELECT ward FROM visits"})
        with pytest.raises(BadSchema, match="no column"):
            fitted(name, seen)
        assert ds.account.spent.amount == 0
        tree = learn.DecisionTreeClassifier(cl.rho(1)).fit(
            ds.through({"visits": "SELECT ward, back FROM visits"}), target="back"
        )
        assert tree.feature_names_in_.tolist() == ["ward"]


def test_a_transformed_column_has_the_bounds_that_its_rule_gives(tmp_path: Path) -> None:
    rule = "SELECT LEAST(age, 30) AS age, CASE WHEN cost > 40 THEN 'dear' ELSE 'cheap' END AS cost, back FROM visits"
    with opened(tmp_path) as ds:
        seen = ds.through({"visits": rule})
        relation = seen.relation("visits", ["age", "cost"])
        assert relation.columns["age"].bounds == (0, 30)
        assert set(relation.columns["cost"].categories or ()) == {"dear", "cheap"}
        model = learn.LogisticRegression(cl.rho(1000), random_state=0).fit(seen, target="back")
        assert set(model.feature_names_in_) == {"age", "cost=dear", "cost=cheap"}
        rows = learn.LinearSVC(cl.rho(1000), random_state=0).fit(seen, target="back", features=["age"])
        assert rows._seen.box.high.tolist() == [30]


# Bounds, NULL, refusals.


@pytest.mark.parametrize("name", ["gradient", "LinearSVC", "KMeans", "power", "QuantileTransformer"])
def test_bounds_that_the_schema_lacks_are_found_inside_the_spend(tmp_path: Path, name: str) -> None:
    columns = {**COLUMNS, "cost": {"type": "real", "nullable": False}}
    schema = Schema.load({"unit": "row", "tables": {"visits": {"columns": columns}}})
    with opened(tmp_path, schema) as ds:
        with pytest.raises(BadSchema, match="bounds"):
            fitted(name, ds)
        model = fitted(name, ds, bounds="find")
        assert ds.account.spent == cl.rho(2000)
    if name == "LinearSVC":
        assert model._seen.box.high[-1] == 128
        assert (model.predict(ENCODED) == BACK).mean() > 0.7


@pytest.mark.parametrize("name", ["LogisticRegression", "LinearSVC", "MixedNB", "KMeans"])
def test_bounds_of_arrays_are_found_too(tmp_path: Path, name: str) -> None:
    rows = np.column_stack([AGE * 10.0, COST])
    told: dict[str, Any] = {"bounds": "find", "ledger": tmp_path, "random_state": 0}
    if name == "KMeans":
        model = learn.KMeans(cl.rho(100), n_clusters=2, **told).fit(rows)
        assert (np.abs(model.cluster_centers_) < 1024).all()
        return
    model = kind_of(name)(cl.rho(100), classes=[False, True], **told).fit(rows, BACK)
    assert (model.predict(rows) == BACK).mean() > 0.75
    assert model.loss_ == cl.rho(100)


def test_missing_numbers_need_a_fill_and_missing_words_none(tmp_path: Path) -> None:
    columns = {**COLUMNS, "age": {"type": "integer", "bounds": [0, 90]}}
    schema = Schema.load({"unit": "row", "tables": {"visits": {"columns": columns}}})
    gaps = [None if i % 5 == 0 else one for i, one in enumerate(AGE.tolist())]
    holes = table().set_column(2, "age", pa.array(gaps))
    holes = holes.set_column(1, "ward", pa.array([None if i % 7 == 0 else one for i, one in enumerate(WARD.tolist())]))
    with opened(tmp_path, schema, holes) as ds:
        for kind in (learn.LinearSVC, learn.DecisionTreeClassifier, learn.LogisticRegression):
            with pytest.raises(BadInput, match="may be NULL"):
                kind(cl.rho(1)).fit(ds, target="back", features=["age", "ward"])
            assert kind(cl.rho(1), fill=45.0).fit(ds, target="back", features=["age", "ward"]).release_.private
        source = fetch(ds, "back", ["age", "ward"], None, fill=45.0)
        assert (source.numbers()[::5, 0] == 45).all()
        assert (source.numbers()[::7, 1:] == 0).all()
        cells, known = source.columns().cells(source.axes(4, 4))
        assert known.all()
        assert (cells[::7, 1] == 3).all()  # the cell of all others


def test_a_label_that_is_not_listed_is_left_out(tmp_path: Path) -> None:
    with opened(tmp_path) as ds:
        source = fetch(ds, "ward", ["age"], None, classes=["c", "a"])
        assert source.classes is not None
        assert source.classes.tolist() == ["a", "c"]
        assert sorted(source.labels().tolist()) == sorted(np.array([0, -1, 1])["abc".index(one)] for one in WARD)
        model = learn.GradientBoostingClassifier(cl.rho(100), classes=["c", "a"], rounds=3)
        assert model.fit(ds, target="ward", features=["age", "cost"]).classes_.tolist() == ["a", "c"]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda ds: learn.LogisticRegression(cl.rho(1), method="output").fit(ds, target="back"), TextbookOnly),
        (lambda ds: learn.PCA(cl.rho(1), method="subspace").fit(ds, features=["age"]), TextbookOnly),
        (lambda ds: learn.PCA(cl.rho(1)).fit(ds, features=["age", "age"]), BadInput),
        (lambda ds: learn.LinearRegression(cl.rho(1)).fit(ds, target="cost", features=["age", "age"]), BadInput),
        (lambda ds: learn.LinearRegression(cl.rho(1)).fit(ds, target="cost", features=["cost"]), BadInput),
        (lambda ds: learn.LinearSVC(cl.rho(1)).fit(ds), BadInput),
        (lambda ds: learn.LinearSVC(cl.rho(1)).fit(ds, target="cost"), BadSchema),
        (lambda ds: learn.LinearSVC(cl.rho(1)).fit(ds, target="back", features=["back"]), BadInput),
        (lambda ds: learn.LinearSVC(cl.rho(1)).fit(ds, target="back", features=[]), BadInput),
        (lambda ds: learn.LinearSVC(cl.rho(1)).fit(ds, target="back", table="wards"), BadSchema),
        (lambda ds: learn.LinearSVC(cl.rho(1)).fit(ds, target="person"), BadSchema),
        (lambda ds: learn.QuantileTransformer(cl.rho(1)).fit(ds, features=["ward"]), BadInput),
        (lambda ds: learn.QuantileTransformer(cl.rho(1)).fit(ds), BadInput),
        (lambda ds: learn.OneHotEncoder().fit(ds), BadInput),
        (lambda ds: learn.OneHotEncoder().fit(ds, features=["age"]), BadSchema),
        (lambda ds: learn.GradientBoostingRegressor(cl.rho(1)).fit(ds, target="ward"), BadSchema),
        (lambda ds: learn.RandomForestClassifier(cl.rho(1)).fit(ds, target="age", features=["cost"]), BadSchema),
    ],
)
def test_what_a_table_does_not_allow_is_refused_and_costs_nothing(tmp_path: Path, make: Any, error: type) -> None:
    with opened(tmp_path, BY_PERSON) as ds:
        with pytest.raises(error):
            make(ds)
        assert ds.account.spent.amount == 0


EVERY = [*TO_CLASSES, *TO_NUMBERS, *NO_TARGET, "StandardScaler"]
NO_NUMBER: list[Any] = [[0.5] * 7, (1, 2), np.array([0.5]), {"age": 1}, "x", b"x", np.inf, np.nan, 10**400, 1e101, True]
WRONG: dict[str, list[Any]] = {
    "fill": NO_NUMBER,
    "alpha": [*NO_NUMBER, None, -1],
    "var_smoothing": [*NO_NUMBER, None, 0.0, 1e-320],
    "max_features": [*NO_NUMBER, None, 0.0],
    "calibrate": [np.array([True, False]), [], "x", None, 1],
    **{name: [*NO_NUMBER, 0, -1, 1.5] for name in ("rows", "rounds", "max_iter", "n_clusters", "max_depth")},
    **{name: [*NO_NUMBER, 0, -1, 1.5] for name in ("n_estimators", "n_components")},
    **{name: [*NO_NUMBER, None] for name in ("method", "variance", "output_distribution")},
}
FAR: dict[str, list[Any]] = {
    "fill": [1e100, -(10**100), np.float32(0.5), np.int64(3)],
    "alpha": [0, 1e100, 10**100, np.float32(0.5)],
    "var_smoothing": [1e-100, 0.25, np.float32(0.25)],
    "max_features": [1e-300, 1],
    "calibrate": [np.bool_(False)],
    "rows": [1, 2**53],
}


def with_gaps(folder: Path, gaps: int) -> Any:
    """A short table with so many NULLs among the ages."""
    columns = {**COLUMNS, "age": {"type": "integer", "bounds": [0, 90]}}
    rows = table(slice(0, 200))
    ages = pa.array([None] * gaps + AGE[gaps:200].tolist())
    schema = Schema.load({"unit": "row", "tables": {"visits": {"columns": columns}}})
    return opened(folder, schema, rows.set_column(2, "age", ages))


def fitted_over_gaps(name: str, ds: Any, **more: Any) -> Any:
    if name != "StandardScaler":
        return fitted(name, ds, **{"spend": cl.rho("0.1"), "random_state": None, **more})
    return learn.StandardScaler(cl.rho("0.1"), **more).fit(ds, features=["age", "cost"])


def parameters(name: str) -> Any:
    return kind_of(name)().get_params()


@pytest.mark.parametrize("name", EVERY)
def test_wrong_parameters_are_refused_before_the_charge(tmp_path: Path, name: str) -> None:
    with with_gaps(tmp_path, 7) as ds:
        usual = {"fill": 0.5} if "fill" in parameters(name) else {}
        for one in parameters(name).keys() & WRONG.keys():
            for value in WRONG[one]:
                with pytest.raises(BadInput, match=one):
                    fitted_over_gaps(name, ds, **{**usual, one: value})
        assert ds.account.spent.amount == 0


def test_every_parameter_of_an_estimator_is_known_to_the_test_above() -> None:
    read_with_the_input = {"spend", "bounds", "data_norm", "classes", "categories", "bins", "target_bounds"}
    told = {one for name in EVERY for one in parameters(name)}
    assert told - {"ledger", "account", "random_state"} - read_with_the_input == set(WRONG)


@pytest.mark.parametrize("name", EVERY)
def test_parameters_at_the_ends_of_their_ranges_are_fitted(tmp_path: Path, name: str) -> None:
    with with_gaps(tmp_path, 7) as ds:
        usual = {"fill": 0.5} if "fill" in parameters(name) else {}
        for one in parameters(name).keys() & FAR.keys():
            for value in FAR[one]:
                assert fitted_over_gaps(name, ds, **{**usual, one: value}).release_.private


TRIED = {
    **{name: {"bounds": (-10, 10), "classes": [0, 1]} for name in ("LogisticRegression", "LinearSVC", "GaussianNB")},
    "MixedNB": {"bounds": (-10, 10), "classes": [0, 1], "bins": 4},
    "CategoricalNB": {"categories": 4, "classes": [0, 1]},
    "DecisionTreeClassifier": {"bounds": (-10, 10), "classes": [0, 1], "max_depth": 2},
    "RandomForestClassifier": {"bounds": (-10, 10), "classes": [0, 1], "max_depth": 2, "n_estimators": 2},
    "GradientBoostingClassifier": {"bounds": (-10, 10), "classes": [0, 1], "rounds": 2},
    **{name: {"bounds": (-10, 10), "target_bounds": (-50, 50)} for name in ("LinearRegression", "Ridge")},
    "GradientBoostingRegressor": {"bounds": (-10, 10), "target_bounds": (-50, 50), "rounds": 2},
    "NeuralNetworkClassifier": {"bounds": (-10, 10), "classes": [0, 1], "max_iter": 2},
    "NeuralNetworkRegressor": {"bounds": (-10, 10), "target_bounds": (-50, 50), "max_iter": 2},
    "KMeans": {"bounds": (-10, 10), "n_clusters": 3},
    **{name: {"bounds": (-10, 10)} for name in ("PCA", "MinMaxScaler", "StandardScaler", "QuantileTransformer")},
    "OneHotEncoder": {"categories": 4},
}
NETWORKS = {"NeuralNetworkClassifier", "NeuralNetworkRegressor"}
METHODS = {"LogisticRegression": ["gradient", "newton", "functional"], "PCA": ["power"]}
FROM_SCHEMA = {"bounds", "classes", "categories", "target_bounds", "account"}  # a dataset has its own
HOSTILE: list[Any] = [
    None, True, 0, -1, 2.5, math.nan, math.inf, 10**30, 10**400, 5e-324, "", "nobody", "find", b"x", 1j, object(),
    [], {}, [None], [1, 0], [math.nan, 1], [[0, 1], [2]], ["nobody"], ["age", "age"], (0, 0), (0, math.nan),
    (0, 10**400), ([0], [1, 1]), {"nobody": 3}, {0: []}, {0: 3}, {0: [0, 10**400]}, {0: math.nan}, {9: [1, 2]},
    {None: None}, np.float64("nan"), np.int64(3), np.zeros((2, 2)), cl.epsilon("1e-300"), cl.rho("1e-39"),
    cl.epsilon("1e-39"), cl.rho(10**4), cl.epsilon(1, delta="1e-300"), pa.table({"a": [1]}), range(0),
    "09", ("0", "9"), (False, True), {0, 1}, {0: 1, 1: 2}, {0: (0, 1), 1: (0, 1), 2: (0, 1)}, {"age", "cost"},
    {0: {0, 1}}, pd.DataFrame({0: [1], 1: [2]}),
]  # fmt: skip


def read_once() -> list[Any]:
    """What a first reading uses up, made anew: a reading before the charge leaves nothing for one after it."""
    pairs = [(0, 100), (0, 60), (0, 60)]
    return [
        iter(["age"]), iter((0, 1)), zip(*pairs, strict=True), (iter([0] * 3), iter([1] * 3)), {0: iter((0, 1))},
        [iter([0, 1])] * 3,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def payers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A short table, and an account for arrays."""
    folder = tmp_path_factory.mktemp("hostile")
    with (
        opened(folder / "table", BY_PERSON, table(slice(0, 60))) as ds,
        cl.Ledger.in_folder(folder / "arrays") as book,
    ):
        yield ds, book.open_account("arrays", cl.rho(10**6))


def asked_of(name: str, ds: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `fit` is given: rows as an array, or a dataset."""
    source = SeededSource("hostile values")
    rows, labels = np.floor(source.floats(150) * 3).reshape(50, 3), np.floor(source.floats(50) * 2)
    array = {"X": rows, "y": labels}
    numbers = ["LinearRegression", "Ridge", "GradientBoostingRegressor", "NeuralNetworkRegressor"]
    words = name in ("CategoricalNB", "OneHotEncoder")
    columns = ["ward"] if words else ["age"] if name in numbers else ["age", "cost"]
    told = {"X": ds, "features": columns}
    if "target" in inspect.signature(getattr(learn, name).fit).parameters:
        told["target"] = "cost" if name in numbers else "back"
    return array, told


def test_every_estimator_is_tried_with_hostile_values() -> None:
    assert set(TRIED) == {name for name in learn.__all__ if inspect.isclass(getattr(learn, name))}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in NETWORKS else name for name in TRIED]
)
def test_a_hostile_value_works_or_is_refused_before_the_charge(
    payers: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with a parameter depends on no row: noticed by a step, it would be paid for."""
    ds, account = payers
    monkeypatch.chdir(tmp_path)  # without an account the usual ledger pays, in a folder where it is run
    kind = getattr(learn, name)
    known = kind().get_params()
    paid = {"spend": cl.rho("0.1"), "account": account}
    for method in [None, *METHODS.get(name, [])]:
        usual = {**TRIED[name], **{one: paid[one] for one in paid if one in known}}
        usual |= {} if method is None else {"method": method}
        for place, told in enumerate(asked_of(name, ds)):
            own = {one: value for one, value in usual.items() if place == 0 or one not in FROM_SCHEMA}
            kind(**own).fit(**told)
            for one in [*known, *(one for one in inspect.signature(kind.fit).parameters if one != "self")]:
                if one in ("random_state", "ledger") or (one == "account" and place):
                    continue
                values = [*HOSTILE, *read_once()]
                # A network reads a dataset in portions, in every step: there one value in six will do.
                for value in values[::6] if place and name in NETWORKS else values:
                    made = own | ({one: value} if one in known else {})
                    given = told | ({} if one in known else {one: value})
                    before, refused = (ds.account.spent, account.spent), None
                    try:
                        kind(**made).fit(**given)
                    except CloisterError as error:
                        refused = error
                    words = f"{name}({one}={value!r:.60}): {getattr(refused, 'owner_detail', refused)}"
                    assert not isinstance(refused, LookFailed), words
                    assert refused is None or (ds.account.spent, account.spent) == before, words


def misread(given: tuple[Any, Any]) -> list[Any]:
    """Two public values in containers that have no order, that are read once, or whose reading gives something else."""
    one, two = given
    return [
        iter(given), (part for part in given), map(copy, given), {one, two}, frozenset(given),
        {one: 1, two: 2}, {one: 1, two: 2}.keys(), {1: one, 2: two}.values(), deque(given), "09", b"09",
        pd.DataFrame({one: [1], two: [2]}), pl.DataFrame({"a": [1], "b": [2]}), pa.table({"a": [1], "b": [2]}),
        np.array(given, dtype=object).reshape(1, 2), [given, given, given], [iter(given), iter(given)],
    ]  # fmt: skip


PAIRS: list[Any] = [
    ("0", "9"), (b"0", b"9"), (False, True), np.array([False, True]), np.array(["0", "9"]), ({0}, {9}),
    np.ma.array([0, 9], mask=[0, 1]), (0, 1, 2), ([0, 0, 0], "999"), ([0, 0, 0], {7, 8, 9}), (0, 1j), range(2),
]  # fmt: skip
NAMED = {  # a dict from feature to its bounds
    "MixedNB", "DecisionTreeClassifier", "RandomForestClassifier", "GradientBoostingClassifier",
    "GradientBoostingRegressor",
}  # fmt: skip


@pytest.mark.parametrize("name", TRIED)
def test_a_container_without_order_or_read_once_is_refused_before_the_charge(payers: Any, name: str) -> None:
    """Bounds, ranges, classes, categories and names: what would be read as something else, or as nothing later on."""
    ds, account = payers
    kind = getattr(learn, name)
    known = kind().get_params()
    paid = {one: value for one, value in {"spend": cl.rho("0.1"), "account": account}.items() if one in known}
    array, table = asked_of(name, ds)
    by_name = [{"bounds": dict.fromkeys(range(3), (0, 1))}] if "bounds" in known and name not in NAMED else []
    wrong = [
        *by_name,
        *({one: value} for one in known.keys() & {"bounds", "target_bounds"} for value in [*misread((0, 9)), *PAIRS]),
        *({"feature_range": value} for value in [*misread((0, 9)), *PAIRS] if "feature_range" in known),
        *({"classes": value} for value in misread((0, 1)) if "classes" in known),
        *({"categories": {0: value}} for value in misread((0, 1)) if "categories" in known),
        *({"bins": {0: value}} for value in [*misread((0, 1)), ["0", "1"]] if name in NAMED - {"MixedNB"}),
    ]
    before = account.spent
    for told in wrong:
        with pytest.raises((BadBounds, BadSchema, BadInput)):
            kind(**{**TRIED[name], **paid, **told}).fit(**array)
        assert account.spent == before
    before, free = ds.account.spent, {one: value for one, value in paid.items() if one != "account"}
    own = {one: value for one, value in TRIED[name].items() if one not in FROM_SCHEMA}
    for value in misread(tuple((table["features"] * 2)[:2])):  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="features is a list of names"):
            kind(**{**own, **free}).fit(**{**table, "features": value})
    for value in misread((False, True)) if "classes" in known else []:
        with pytest.raises((BadSchema, BadInput)):
            kind(**{**own, **free, "classes": value}).fit(**table)
    assert ds.account.spent == before


@pytest.mark.parametrize("name", [name for name in TRIED if "bounds" in TRIED[name]])
def test_bounds_are_a_list_a_tuple_or_an_array_of_two(payers: Any, name: str) -> None:
    _, account = payers
    kind, array = getattr(learn, name), asked_of(name, payers[0])[0]
    paid = {
        one: value for one, value in {"spend": cl.rho("0.1"), "account": account}.items() if one in kind().get_params()
    }
    low, high = [-10.0] * 3, [10] * 3
    each = [
        (low, high), [tuple(low), np.array(high)], np.array([low, high]), (pd.Series(low), pl.Series(high)),
        (-10, high), (pa.array(low), np.array(10)),
    ]  # fmt: skip
    for bounds in [[-10, 10], np.array([-10, 10]), (Decimal(-10), Fraction(10)), *(each if name != "MixedNB" else [])]:
        kind(**{**TRIED[name], **paid, "bounds": bounds}).fit(**array)


@pytest.mark.parametrize("wrong", [{"ledger": 5}, {"account": "visits"}, {"account": True}])
def test_a_payer_that_is_none_is_refused_in_words(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=f"^{next(iter(wrong))} is"):
        learn.PCA(cl.rho(1), bounds=(0, 1), **wrong).fit(np.zeros((5, 2)))


def test_how_many_numbers_are_missing_decides_no_refusal(tmp_path: Path) -> None:
    for gaps in (6, 7, 8):
        with with_gaps(tmp_path / str(gaps), gaps) as ds:
            with pytest.raises(BadInput, match="fill is one public number"):
                fitted_over_gaps("DecisionTreeClassifier", ds, fill=[0.5] * 7)
            with pytest.raises(BadInput, match="fill is one public number"):
                fetch(ds, "back", ["age"], None, fill=[0.5] * 7)  # type: ignore[arg-type]
            with pytest.raises(BadInput, match="fill is one public number"):
                class_design(read_relation(ds, None, ["age", "back"]), ("age",), "back", [False, True], np.inf)
            assert ds.account.spent.amount == 0


@pytest.mark.parametrize(
    "name", ["LinearSVC", "DecisionTreeClassifier", "GradientBoostingRegressor", "KMeans", "power"]
)
def test_a_table_without_rows_is_learned_from_like_any_other(tmp_path: Path, name: str) -> None:
    with opened(tmp_path, BY_PERSON, table(slice(0))) as ds:
        assert fitted(name, ds, spend=cl.rho("0.1")).release_ is not None


def test_rows_are_read_after_the_charge_once_and_only_the_columns_that_are_needed(tmp_path: Path) -> None:
    with opened(tmp_path, BY_PERSON) as ds:
        asked: list[str] = []
        run = ds.tables.engine.run

        def watched(sql: str) -> Any:
            asked.append(sql)
            assert ds.account.spent == cl.rho(2)
            return run(sql)

        ds.tables.engine.run = watched
        learn.GradientBoostingClassifier(cl.rho(2), rounds=3).fit(ds, target="back", features=["age"])
    assert len(asked) == 1
    assert "cost" not in asked[0]


def test_what_a_fit_read_does_not_stay_in_the_model(tmp_path: Path) -> None:
    with opened(tmp_path) as ds:
        for name in ("LinearSVC", "DecisionTreeClassifier", "KMeans", "gradient"):
            model = fitted(name, ds)
            held = [type(one) for one in vars(model).values()]
            assert FetchedTable not in held
            learn.save(model, tmp_path / name, key=ds.account.book.key)


def test_a_cell_is_clipped_once_where_its_view_has_done_so(tmp_path: Path) -> None:
    with opened(tmp_path) as ds:
        inside = scaled_cell(ds.relation(None, ["cost"]), "cost", 15)
        seen = ds.through({"visits": "SELECT cost * 2 AS cost FROM visits"})
        again = scaled_cell(seen.relation(None, ["cost"]), "cost", 15)
    assert "CASE" not in inside.sql.sql()
    assert "CASE" in again.sql.sql()
    assert (inside.low, inside.high) == (again.low, again.high) == (-(2**14), 2**14)


def test_moments_by_class_are_what_numpy_says(tmp_path: Path) -> None:
    one = 2**15
    with opened(tmp_path) as ds:
        relation = read_relation(ds, None, ["age", "ward", "back"])
        design = class_design(relation, ("age", "ward"), "back", [False, True], None)
        cells = np.floor((AGE - 45.0) * (1 / 90) * 2**16 + 0.5).astype(np.int64)
        every = np.column_stack([cells, *((word == WARD) * one for word in "abc"), np.full(N, one)]).astype(object)
        assert (design.matrix() == every.T @ every).all()
        assert design.names == ["age", "ward=a", "ward=b", "ward=c"]
        assert design.scale.tolist() == [2 / 90, 1, 1, 1]


@pytest.mark.parametrize("keep", [slice(None), slice(0)], ids=["rows", "no rows"])
def test_several_choices_of_groups_at_once_are_the_same_as_one_after_the_other(tmp_path: Path, keep: Any) -> None:
    with opened(tmp_path, BY_PERSON, table(keep)) as ds:
        rows = ds.relation(None, ["ward", "back", "age"])
        ward, back, value = rows.key("ward"), rows.key("back"), scaled_cell(rows, "age", 15)
        sets = [(), (ward,), (back,), (back, ward)]
        together = rows.tables(sets, [value])
        for keys, found in zip(sets, together, strict=True):
            for mine, other in zip(found, rows.sums(keys, [value]).run(rows.engine), strict=True):
                np.testing.assert_array_equal(mine, other)


def test_a_number_too_small_to_divide_is_no_error_where_engines_make_one_of_it(tmp_path: Path) -> None:
    columns = {"x": {"type": "real", "bounds": [-50, 50], "nullable": False}}
    schema = Schema.load({"unit": "row", "tables": {"visits": {"columns": columns}}})
    with opened(tmp_path, schema, pa.table({"x": [5e-324, -5e-324, 1e-310]})) as ds:
        value = scaled_cell(ds.relation(None, ["x"]), "x", 15)
        assert "1e-84" in value.sql.sql()
        assert ds.relation(None, ["x"]).sums((), [value]).run(ds.tables.engine)[1].tolist() == [0]


LONG = 2**53


def wide(tmp_path: Path, most: float, rows: int) -> Any:
    """A number with public bounds of any size, and whole numbers that only exact reading tells apart."""
    columns = {
        "far": {"type": "real", "bounds": [-most, most], "nullable": False},
        "near": {"type": "real", "bounds": [-1, 1], "nullable": False},
        "code": {"type": "integer", "categories": [LONG, LONG + 1], "nullable": False},
    }
    places = np.arange(rows)
    near = np.sin(places)
    table = pa.table({"far": most * near, "near": near, "code": pa.array(LONG + (near > 0), pa.int64())})
    schema = {"unit": "row", "tables": {"t": {"columns": columns}}}
    return cl.open(table, schema=schema, budget=cl.rho(10**6), ledger=tmp_path)


@pytest.mark.parametrize("name", sorted(TO_CLASSES.keys() - {"CategoricalNB"}))  # it learns from categories alone
def test_whole_numbers_of_any_length_are_classes(tmp_path: Path, name: str) -> None:
    with wide(tmp_path, 1.0, 200) as data:
        model = kind_of(name)(cl.rho(1000), **TO_CLASSES[name]).fit(data, target="code", features=["near"])
    assert model.classes_.tolist() == [LONG, LONG + 1]
    assert set(model.predict(np.array([[-0.9], [0.9]])).tolist()) == {LONG, LONG + 1}


@pytest.mark.parametrize("method", ["covariance", "power"])
@pytest.mark.parametrize("most", [1e-90, 1e-60, 1.0, 1e80, 1e100])
def test_components_of_a_table_bear_bounds_of_any_size(tmp_path: Path, method: str, most: float) -> None:
    for rows in (0, 200):
        with wide(tmp_path / str(rows), most, rows) as data:
            before = data.account.spent.amount
            model = learn.PCA(cl.rho(1000), 1, method=method).fit(data, features=["far"])
            assert data.account.spent.amount - before == 1000
        assert np.isfinite(model.explained_variance_).all()
    true = (most * np.sin(np.arange(200))).var(ddof=1)
    # Rows far from the middle are shortened where rows are read.
    assert model.explained_variance_[0] == pytest.approx(true, rel=0.1 if method == "covariance" else 0.3)

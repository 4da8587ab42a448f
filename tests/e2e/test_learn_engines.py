"""Models learn where the rows are: DuckDB, PostgreSQL and Spark give the same integers, to the last digit."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister.data.schema import Schema
from cloister.data.statistics import WEIGHT
from cloister.hub.jobs.attacks.halves import Half, one_row_each
from cloister.learn.base.private_data import read_relation
from cloister.learn.base.row_source import fetch
from cloister.learn.cluster.kmeans import KMeans
from cloister.learn.decomposition.pca import PCA
from cloister.learn.linear_model.engine_moments import ONE, EngineDesign, class_design
from cloister.learn.linear_model.regression import LinearRegression, Ridge
from cloister.learn.linear_model.svm import LinearSVC
from cloister.learn.naive_bayes.class_counts import EngineClassCounts
from cloister.learn.naive_bayes.class_sums import EngineClassSums, Weights
from cloister.learn.naive_bayes.gaussian import GaussianNB
from cloister.learn.naive_bayes.mixed import CategoricalNB, MixedNB
from cloister.learn.trees.boosting import GradientBoostingClassifier
from cloister.learn.trees.tree import DecisionTreeClassifier
from cloister.privacy.errors import BadInput, BadSchema, TextbookOnly
from cloister.privacy.noise import SeededSource

pytestmark = pytest.mark.e2e

N = 400
_source = SeededSource("learn in engines")
WARD = np.array(["a", "b", "c"])[(_source.floats(N) * 3).astype(int)]
AGE = (_source.floats(N) * 90).astype(np.int64)
COST = np.round(0.4 * AGE + 20 * (WARD == "b") + _source.floats(N) * 30, 3)
BACK = _source.floats(N) < 0.2 + 0.5 * (AGE > 45)
PERSON = (_source.floats(N) * 80).astype(np.int64)
PERSON[:50] = 7  # one with many rows
TABLE = pa.table({"person": PERSON, "ward": WARD, "age": AGE, "cost": COST, "back": BACK})
COLUMNS = {
    "ward": {"type": "text", "categories": ["a", "b", "c"]},
    "age": {"type": "integer", "bounds": [0, 90], "nullable": False},
    "cost": {"type": "real", "bounds": [0, 90], "nullable": False},
    "back": {"type": "boolean", "nullable": False},
}
BY_ROW = Schema.load({"unit": "row", "tables": {"visits": {"columns": COLUMNS}}})
BY_PERSON = Schema.load(
    {"unit": {"name": "person", "max_rows": 6}, "tables": {"visits": {"unit": "person", "columns": COLUMNS}}}
)
FEATURES = ("age", "ward")


@pytest.fixture(params=["duckdb", "postgres", "spark"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Schema], Any]:
    """The same rows in each engine."""

    def open_it(schema: Schema) -> Any:
        source: Any = TABLE
        if request.param == "spark":
            source = {"visits": request.getfixturevalue("spark").createDataFrame(TABLE.to_pylist())}
        if request.param == "postgres":
            import psycopg

            source = request.getfixturevalue("postgres_address")
            with psycopg.connect(source, autocommit=True) as server:
                kinds = "person bigint, ward text, age bigint, cost double precision, back boolean"
                server.execute(f"CREATE TABLE visits ({kinds})")
                with server.cursor().copy("COPY visits FROM STDIN") as copy:
                    for row in TABLE.to_pylist():
                        copy.write_row(list(row.values()))
        return cl.open(source, schema=schema, budget=cl.rho(10**6), ledger=tmp_path / "book")

    return open_it


def weights(schema: Schema) -> np.ndarray:
    rows = np.bincount(PERSON)[PERSON]
    return np.ones(N, dtype=np.int64) if schema is BY_ROW else np.where(rows > 6, WEIGHT * 6 // rows, WEIGHT)


def cells(values: np.ndarray, high: float) -> np.ndarray:
    return np.floor((values.astype(np.float64) - high / 2) * (1 / high) * ONE + 0.5).astype(np.int64)


def design() -> np.ndarray:
    ones = [(one == WARD) * ONE for one in "abc"]
    return np.column_stack([cells(AGE, 90.0), *ones, np.full(N, ONE), cells(COST, 90.0)]).astype(object)


SCHEMAS = pytest.mark.parametrize("schema", [BY_ROW, BY_PERSON], ids=["by row", "by person"])


@SCHEMAS
def test_second_moments_are_what_numpy_says(opened: Callable[[Schema], Any], schema: Schema) -> None:
    with opened(schema) as ds:
        made = EngineDesign(read_relation(ds, None, [*FEATURES, "cost"]), FEATURES, "cost")
        every, weight = design(), weights(schema).astype(object)
        assert (made.matrix() == every.T @ (every * weight[:, None])).all()
        assert made.names == ["age", "ward=a", "ward=b", "ward=c"]
        assert made.reach.weight == (1 if schema is BY_ROW else 6 * WEIGHT)


@SCHEMAS
def test_sums_and_scores_by_class_are_what_numpy_says(opened: Callable[[Schema], Any], schema: Schema) -> None:
    with opened(schema) as ds:
        classes, weight = np.array([False, True]), weights(schema)
        rows = EngineClassSums(read_relation(ds, None, ["age", "cost", "back"]), "back", classes, ("age", "cost"), None)
        both = np.column_stack([np.full(N, ONE), cells(AGE, 90.0), cells(COST, 90.0)])
        expected = np.array([(both * weight[:, None])[one == BACK].sum(axis=0) for one in classes])
        assert (rows.sums() == expected).all()
        squares = np.array([(both[:, 1:] ** 2 * weight[:, None])[one == BACK].sum(axis=0) for one in classes])
        assert (rows.squares() == squares).all()
        fourth = np.arange(-10, 10).reshape(2, 2, 5) * 2**10
        steep = Weights(
            np.array([-(2**39), 2**41]),
            np.array([[2**28, 3 * 2**26], [2**27, 5]]),
            np.array([[5 * 2**12, -7], [3, 2**11]]),
            fourth,
        )
        every, own = both[:, 1:], np.asarray(BACK).astype(int)
        scores = steep.constant[own] + (every * steep.linear[own] + every**2 * steep.square[own]).sum(axis=1)
        powers = (every // 2**7)[:, :, None] ** np.arange(5)
        scores = scores + (powers * fourth[own]).sum(axis=(1, 2))
        place = np.clip(scores >> 40, -16, 15) + 16
        assert (rows.histogram(steep) == np.bincount(BACK * 32 + place, weight, 64)).all()


@SCHEMAS
def test_counts_by_class_are_what_numpy_says(opened: Callable[[Schema], Any], schema: Schema) -> None:
    with opened(schema) as ds:
        from cloister.learn.naive_bayes.count_features import features_of_schema

        names, weight = ("age", "ward", "cost"), weights(schema)
        relation = read_relation(ds, None, [*names, "back"])
        parts = features_of_schema([relation.columns[name] for name in names], 8)
        pairs = tuple(read_relation(ds, None, [name, "back"]) for name in names)
        rows = EngineClassCounts(relation, pairs, "back", np.array([False, True]), parts)
        given = {"age": AGE, "ward": WARD, "cost": COST}
        codes = [part.codes(given[part.name]) for part in parts]
        expected = [np.bincount(BACK, weight, 2)]
        expected += [
            np.bincount(BACK * part.size + code, weight, 2 * part.size) for part, code in zip(parts, codes, strict=True)
        ]
        assert (rows.counts() == np.concatenate(expected)).all()
        steps = np.array([[2**19 + 77], [-(2**18) + 5]])
        odds = [np.arange(part.size, dtype=np.int64) * steps - 2**20 for part in parts]
        own, constants = np.asarray(BACK).astype(int), np.array([-12345, 2**21])
        scores = constants[own] + sum(one[own, code] for one, code in zip(odds, codes, strict=True))
        place = np.clip(scores >> 20, -16, 15) + 16
        assert (rows.histogram(constants, odds) == np.bincount(BACK * 32 + place, weight, 64)).all()


def test_every_model_that_can_learns_in_the_engine(opened: Callable[[Schema], Any]) -> None:
    import pandas as pd

    frame = pd.DataFrame({"age": AGE, "ward": WARD, "cost": COST})
    generous = {"spend": cl.rho(1000), "random_state": 1}
    with opened(BY_ROW) as ds:
        line = LinearRegression(**generous).fit(ds, target="cost", features=["age", "ward"])
        assert line.feature_names_in_.tolist() == ["age", "ward=a", "ward=b", "ward=c"]
        assert line.coef_[0] == pytest.approx(0.4, abs=0.05)
        assert line.coef_[2] - line.coef_[1] == pytest.approx(20, abs=3)
        assert line.n_rows_ == pytest.approx(N, abs=2)
        encoded = np.column_stack([AGE, *(one == WARD for one in "abc")])
        assert line.score(encoded, COST) > 0.7
        assert Ridge(alpha=1e9, **generous).fit(ds, target="cost", features=["age"]).coef_ == pytest.approx(0, abs=0.01)
        axes = PCA(**generous).fit(ds, features=["age", "cost"])
        assert axes.mean_ == pytest.approx([AGE.mean(), COST.mean()], abs=0.5)
        assert axes.explained_variance_.sum() == pytest.approx(AGE.var() + COST.var(), rel=0.05)
        for kind, features, least in (
            (MixedNB, ["age", "ward", "cost"], 0.68),
            (CategoricalNB, ["ward"], 0.5),
            (GaussianNB, ["age", "cost"], 0.65),
        ):
            fitted = kind(**generous).fit(ds, target="back", features=features)
            assert fitted.class_prior_ == pytest.approx([1 - BACK.mean(), BACK.mean()], abs=0.01)
            assert fitted.score(frame[features], BACK) >= least
        assert ds.account.spent.amount == 6000


@SCHEMAS
def test_moments_by_class_are_what_numpy_says(opened: Callable[[Schema], Any], schema: Schema) -> None:
    with opened(schema) as ds:
        relation = read_relation(ds, None, ["age", "ward", "back"])
        made = class_design(relation, ("age", "ward"), "back", [False, True], None)
        cell = np.floor((AGE - 45.0) * (1 / 90) * 2**16 + 0.5).astype(np.int64)
        words, sides = [(one == WARD) * ONE for one in "abc"], [(one == BACK) * ONE for one in (False, True)]
        every = np.column_stack([cell, *words, *sides, np.full(N, ONE)]).astype(object)
        weight = weights(schema).astype(object)
        seen = replace(made, features=("age", "ward", "back"))
        assert (seen.matrix() == every.T @ (every * weight[:, None])).all()


@SCHEMAS
def test_rows_that_leave_an_engine_are_the_same_whichever_it_is(
    opened: Callable[[Schema], Any], schema: Schema
) -> None:
    with opened(schema) as ds:
        source = fetch(ds, "back", ["age", "ward", "cost"], None)
        rows = np.column_stack([source.numbers(), source.labels()])
    every = np.column_stack([AGE, *(one == WARD for one in "abc"), COST, BACK]).astype(np.float64)
    if schema is BY_ROW:
        assert (rows[np.lexsort(rows.T)] == every[np.lexsort(every.T)]).all()
        return
    assert len(rows) == np.minimum(np.bincount(PERSON), 6).sum()
    left = Counter(map(tuple, every.tolist()))
    left.subtract(Counter(map(tuple, rows.tolist())))
    assert min(left.values()) >= 0  # rows of the table, none of them twice
    mine = Counter(map(tuple, every[PERSON == 7].tolist()))
    assert sum(min(mine[row], count) for row, count in Counter(map(tuple, rows.tolist())).items() if row in mine) >= 6


def test_a_fit_on_rows_through_a_view_is_the_same_in_every_engine(
    opened: Callable[[Schema], Any], tmp_path: Path
) -> None:
    told: Any = {"spend": cl.rho(10), "random_state": 1}
    asked: Any = {"target": "back", "features": ["age", "ward"]}
    view = {"visits": "SELECT age, ward, back FROM visits WHERE age < 60"}
    kept = TABLE.filter(pa.array(AGE < 60))
    with opened(BY_ROW) as ds, cl.open(kept, schema=BY_ROW, budget=cl.rho(10**6), ledger=tmp_path / "here") as here:
        there = ds.through(view)
        for kind in (LinearSVC, GradientBoostingClassifier):
            one, other = kind(**told).fit(there, **asked), kind(**told).fit(here, **asked)
            assert (np.asarray(one.intercept_) == np.asarray(other.intercept_)).all()
        tree, twin = (DecisionTreeClassifier(max_depth=3, **told).fit(data, **asked) for data in (there, here))
        assert tree.tree_.rules() == twin.tree_.rules()
        centres = [KMeans(n_clusters=2, **told).fit(data, features=["age"]).cluster_centers_ for data in (there, here)]
        assert (centres[0] == centres[1]).all()


def test_the_dataset_s_account_pays_and_its_unit_is_written_down(tmp_path: Path) -> None:
    with cl.open(TABLE, schema=BY_PERSON, budget=cl.rho("0.3"), ledger=tmp_path) as ds:
        fitted = MixedNB(cl.rho("0.2")).fit(ds, target="back", features=["age", "ward"])
        assert ds.left.amount == cl.rho("0.1").amount
        assert fitted.release_.receipt.body["unit"] == str(ds.unit)
        assert fitted.release_.private
        from cloister.privacy.errors import OverBudget

        with pytest.raises(OverBudget):
            MixedNB(cl.rho("0.2")).fit(ds, target="back", features=["age", "ward"])


def test_a_model_sees_a_table_through_its_policy(tmp_path: Path) -> None:
    with cl.open(TABLE, schema=BY_ROW, budget=cl.rho(10**6), ledger=tmp_path) as ds:
        seen = ds.through({"visits": "SELECT age, cost FROM visits WHERE age < 30"})
        fitted = LinearRegression(cl.rho(1000), random_state=1).fit(seen, target="cost", features=["age"])
        assert fitted.n_rows_ == pytest.approx((AGE < 30).sum(), abs=2)
        with pytest.raises(BadSchema, match="no column"):
            LinearRegression(cl.rho(1)).fit(seen, target="cost", features=["ward"])


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda ds: LinearRegression(cl.rho(1)).fit(ds, target="cost"), BadInput),
        (lambda ds: LinearRegression(cl.rho(1)).fit(ds, target="ward", features=["age"]), BadSchema),
        (lambda ds: LinearRegression(cl.rho(1)).fit(ds, target="cost", features=["nothing"]), BadSchema),
        (lambda ds: GaussianNB(cl.rho(1)).fit(ds, target="back", features=["ward"]), BadInput),
        (lambda ds: GaussianNB(cl.rho(1)).fit(ds, target="age", features=["cost"]), BadSchema),
        (lambda ds: PCA(cl.rho(1)).fit(ds, features=["ward"]), BadInput),
        (lambda ds: PCA(cl.rho(1), method="subspace").fit(ds, features=["age"]), TextbookOnly),
        (lambda ds: MixedNB(cl.rho(1)).fit(ds, target="back", features=[]), BadInput),
        (lambda ds: MixedNB(cl.rho(1)).fit(ds, target="back", features=["age"], table="other"), BadSchema),
    ],
)
def test_what_the_schema_does_not_allow_is_refused_and_costs_nothing(tmp_path: Path, make: Any, error: type) -> None:
    with cl.open(TABLE, schema=BY_ROW, budget=cl.rho(2), ledger=tmp_path) as ds:
        with pytest.raises(error):
            make(ds)
        assert ds.account.spent.amount == 0


def test_a_column_that_may_be_null_needs_a_fill_where_numbers_are_summed(tmp_path: Path) -> None:
    columns = {**COLUMNS, "age": {"type": "integer", "bounds": [0, 90]}}
    schema = Schema.load({"unit": "row", "tables": {"visits": {"columns": columns}}})
    holes = TABLE.set_column(2, "age", pa.array([None if i % 5 == 0 else int(one) for i, one in enumerate(AGE)]))
    with cl.open(holes, schema=schema, budget=cl.rho(10**6), ledger=tmp_path) as ds:
        with pytest.raises(BadInput, match="may be NULL"):
            LinearRegression(cl.rho(1)).fit(ds, target="cost", features=["age"])
        filled = LinearRegression(cl.rho(1000), fill=45.0).fit(ds, target="cost", features=["age"])
        assert filled.n_rows_ == pytest.approx(N, abs=2)
        counted = MixedNB(cl.rho(1000)).fit(ds, target="back", features=["age", "ward"])
        assert counted.class_count_.sum() == pytest.approx(N, abs=2)


@pytest.mark.parametrize("salt", ["|attack 1", "|attack 2"])
def test_halves_for_attacks_are_of_people_and_know_who_is_in_them(opened: Callable[[Schema], Any], salt: str) -> None:
    with opened(BY_PERSON) as ds:
        draw = np.random.default_rng(1)
        rows, units = one_row_each(ds, "visits", ["ward", "age"], 1_000, draw)
        assert rows.column_names == ["ward", "age"]
        assert sorted(map(int, units.to_pylist())) == sorted(set(PERSON.tolist()))
        first, second = Half(ds, salt), Half(ds, salt, second=True)
        within = first.has("visits", "age", units)
        assert (second.has("visits", "age", units) == ~within).all()
        assert 0.3 < within.mean() < 0.7
        members = {int(one) for one in units.filter(pa.array(within)).to_pylist()}
        relation = first.relation("visits", ["age"])
        assert len(relation.chosen(["age"]).run(relation.engine)) == sum(
            min(count, 6) for person, count in Counter(PERSON.tolist()).items() if person in members
        )
        assert len(one_row_each(ds, "visits", ["ward", "age"], 20, draw)[0]) == 20

"""Opening, planning, asking, asking again."""

import pickle
import time
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister.data.hospital import SCHEMA, WARDS, hospital
from cloister.dataset import Dataset
from cloister.privacy.errors import (
    BadLoss,
    BadNumber,
    BadProbability,
    BadSchema,
    EngineFailed,
    OverBudget,
    QueryRefused,
    RelationMismatch,
    WrongMeasure,
)
from cloister.privacy.noise import SeededSource
from cloister.query.plan import make_plan

VISITS = pa.table(hospital(400))
BY_WARD = "SELECT ward, COUNT(*) AS n, AVG(stay_days) AS stay FROM visits GROUP BY ward"


def opened(folder, budget=None, **more):
    more = {"schema": SCHEMA, "ledger": folder, **more}
    return cl.open(more.pop("source", VISITS), budget=budget or cl.rho(1000), **more)


@pytest.fixture
def visits(tmp_path):
    with opened(tmp_path) as dataset:
        yield dataset


class Spy:
    """An engine that counts what it is asked to run."""

    def __init__(self, engine):
        self._engine = engine
        self.asked = []

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def run(self, sql):
        self.asked.append(sql)
        return self._engine.run(sql)


@pytest.fixture
def spy(visits):
    engine = Spy(visits.tables.engine)
    visits.tables = replace(visits.tables, engine=engine)
    return engine


# Plans


def test_opening_and_planning_read_no_row(visits, spy):
    print(visits.plan(BY_WARD, spend=cl.rho("0.1")))
    visits.plan("SELECT COUNT(*) FROM visits", within=10)
    with pytest.raises(QueryRefused):
        visits.plan("SELECT age FROM visits", spend=cl.rho("0.1"))
    assert spy.asked == []
    assert visits.account.spent.amount == 0


def test_a_plan_says_cost_noise_error_caps_and_sql(visits):
    text = str(visits.plan(BY_WARD, spend=cl.rho("0.1")))
    for words in (
        "cost       rho 0.1",
        "Gaussian",
        "± ",
        "at most 8 per person",
        "one patient counts for at most 8 rows",
        "stay_days is read within 0 and 60",
        "GROUP BY",
    ):
        assert words in text


def test_all_counts_and_sums_come_from_one_statement(visits, spy):
    visits.sql("SELECT ward, COUNT(*), SUM(cost), AVG(age), VARIANCE(age) FROM visits GROUP BY ward", spend=cl.rho(1))
    assert len(spy.asked) == 1


def test_one_noisy_count_serves_every_aggregate_that_needs_it(visits):
    plan = visits.plan("SELECT COUNT(*), AVG(age), VARIANCE(age), COUNT(age) FROM visits", spend=cl.rho(1))
    assert [one.need.kind for one in plan.measurements].count("rows") == 1
    assert len(plan.measurements) == 3


def test_several_quantiles_come_from_one_tree(visits):
    plan = visits.plan("SELECT MEDIAN(age), QUANTILE(age, 0.1), MAX(age), MIN(age) FROM visits", spend=cl.rho(1))
    assert len(plan.measurements) == 1


def test_the_shares_of_a_spend_add_up_to_it_exactly(visits):
    for spend in (cl.rho("0.1"), cl.epsilon("0.3")):
        plan = visits.plan("SELECT COUNT(*), AVG(age), MEDIAN(cost), MODE(ward) FROM visits", spend=spend)
        assert sum(mechanism.loss for mechanism in plan.mechanisms) == spend


def test_accuracy_first_finds_the_cheapest_loss(visits):
    plan = visits.plan("SELECT COUNT(*) FROM visits", within=20)
    answer = visits.run(plan)
    half = (answer.column("count(*)_high")[0] - answer.column("count(*)_low")[0]) / 2
    assert 19.8 <= half <= 20
    with pytest.raises(QueryRefused, match="is not known before the answer"):
        visits.plan("SELECT MEDIAN(age) FROM visits", within=20)
    with pytest.raises(BadNumber):
        visits.plan("SELECT COUNT(*) FROM visits", within=-1)
    with pytest.raises(QueryRefused, match="no sensible loss"):
        visits.plan("SELECT SUM(cost) FROM visits", within="1e-9")


SIZED = {
    "unit": {"name": "patient", "max_rows": 2},
    "tables": {
        "visits": {
            "unit": "patient",
            "rows": 20_000,
            "columns": {
                "ward": {"type": "text", "categories": ["a", "b"]},
                "stay": {"type": "integer", "bounds": [0, 60]},
            },
        },
        "people": {"unit": "patient", "rows": 300, "columns": {"age": {"type": "integer", "bounds": [0, 100]}}},
    },
}


@pytest.fixture
def sized(tmp_path):
    names = [str(i) for i in range(10_000) for _ in range(2)]
    wards = ["a" if i % 10 else "b" for i in range(20_000)]
    visits = pa.table({"patient": names, "ward": wards, "stay": [i % 61 for i in range(20_000)]})
    people = pa.table({"patient": names[:600:2], "age": [i % 101 for i in range(300)]})
    with opened(tmp_path, schema=SIZED, source={"visits": visits, "people": people}) as dataset:
        yield dataset


def errors_of(dataset, sql, spend="0.01"):
    from cloister.query.explain import expected_errors

    return [error for _, error in expected_errors(dataset.plan(sql, spend=cl.rho(spend)))]


def test_the_error_of_an_average_says_that_it_takes_all_rows_to_meet_the_where(sized):
    """How many do is private. A count has the same error whatever they are."""
    few = "SELECT COUNT(*), AVG(stay), VARIANCE(stay), SUM(stay) FROM visits WHERE ward = 'b'"
    count, mean, variance, total = errors_of(sized, few)
    assert mean.endswith("if all 20,000 rows meet the WHERE")
    assert variance.endswith("if all 20,000 rows meet the WHERE")
    assert "WHERE" not in count + total
    assert "If only a tenth of them do, the error of an average is about ten times as large." in str(
        sized.plan(few, spend=cl.rho("0.01"))
    )
    assert "meet the WHERE" not in str(sized.plan("SELECT AVG(stay) FROM visits", spend=cl.rho("0.01")))
    joined = "SELECT AVG(stay) FROM visits JOIN people ON visits.patient = people.patient"
    inner = "SELECT AVG(stay) FROM (SELECT stay FROM visits WHERE ward = 'b') AS few"
    for sql, size in ((joined, 300), (inner, 20_000)):
        assert errors_of(sized, sql)[0].endswith(f"if all {size:,} rows meet the WHERE")


def test_the_error_of_an_average_is_of_the_tables_that_are_asked(sized):
    """People are few, and visits many; a row for each person is as many as there are people, which is not public."""
    assert float(errors_of(sized, "SELECT AVG(age) FROM people")[0].removeprefix("± ")) > 10
    people = "SELECT AVG(x) FROM (SELECT patient, MAX(stay) AS x FROM visits GROUP BY patient) AS each_one"
    assert errors_of(sized, people) == ["depends on the number of rows: give `rows` in the schema"]


@pytest.mark.parametrize("spend", ["0.000001", "0.00001", "0.0001", "0.001", "0.01", "1"])
def test_the_expected_error_of_an_average_is_that_of_its_interval(spend, sized):
    """With little noise and with much: an interval of hardly any row is as wide as the bounds."""
    plan = sized.plan("SELECT AVG(stay) AS x FROM visits", spend=cl.rho(spend))
    expected = float(errors_of(sized, plan.question.text, spend)[0].removeprefix("± "))
    answer = sized.run(plan, source=SeededSource(3))
    half = (answer.column("x_high")[0] - answer.column("x_low")[0]) / 2
    assert half <= 1.2 * expected


def test_spend_or_within_but_one_of_them(visits):
    for nonsense in ({}, {"spend": cl.rho(1), "within": 3}):
        with pytest.raises(BadLoss):
            visits.plan("SELECT COUNT(*) FROM visits", **nonsense)


def test_a_pure_account_pays_in_pure_epsilon_only(tmp_path):
    with opened(tmp_path, cl.epsilon(5)) as visits:
        assert visits.sql("SELECT COUNT(*) AS n FROM visits", spend=cl.epsilon(1)).loss == cl.epsilon(1)
        for spend in (cl.rho("0.1"), cl.epsilon(1, delta="1e-6")):
            with pytest.raises(WrongMeasure):
                visits.plan("SELECT AVG(age) FROM visits", spend=spend)
        assert visits.account.spent == cl.epsilon(1)


# Answers


def test_an_answer_is_a_table_with_intervals_in_arrow_pandas_and_polars(visits):
    answer = visits.sql(BY_WARD, spend=cl.rho(50))
    assert answer.to_arrow().column_names == ["ward", "n", "n_low", "n_high", "stay", "stay_low", "stay_high"]
    assert list(answer.to_pandas()["ward"]) == list(WARDS)
    assert answer.to_polars().height == len(answer) == len(WARDS)
    assert answer.rows()[0]["n_low"] <= answer.rows()[0]["n"] <= answer.rows()[0]["n_high"]
    assert "[" in str(answer)
    assert "<table>" in answer._repr_html_()
    assert visits.sql("SELECT COUNT(*) FROM visits", spend=cl.rho(500)).item() > 0
    with pytest.raises(ValueError, match="not one number"):
        answer.item()


def test_a_receipt_binds_the_answer(visits):
    answer = visits.sql(BY_WARD, spend=cl.rho("0.1"))
    answer.receipt.verify(visits.account.book.key.public)
    assert answer.receipt.body["loss"]["amount"] == "1/10"


def test_asking_again_is_free_and_gives_the_same(visits, spy):
    first = visits.sql(BY_WARD, spend=cl.rho("0.1"))
    spent = visits.account.spent
    again = visits.sql(BY_WARD, spend=cl.rho("0.1"))
    assert again.rows() == first.rows()
    assert visits.account.spent == spent
    assert len(spy.asked) == 1
    assert "record" in str(again)


def test_what_follows_from_earlier_answers_is_free_too(visits):
    visits.sql("SELECT ward, AVG(age) AS a FROM visits GROUP BY ward", spend=cl.rho("0.3"))
    spent = visits.account.spent
    visits.sql("SELECT ward, COUNT(age) AS n FROM visits GROUP BY ward ORDER BY n LIMIT 2", spend=cl.rho("0.1"))
    assert visits.account.spent == spent


def test_a_better_answer_is_paid_for(visits):
    rough = visits.sql("SELECT COUNT(*) AS n FROM visits", spend=cl.rho("0.01"))
    fine = visits.sql("SELECT COUNT(*) AS n FROM visits", spend=cl.rho(1))
    assert fine.loss == cl.rho(1)
    assert fine.rows()[0]["n_high"] - fine.rows()[0]["n_low"] < rough.rows()[0]["n_high"] - rough.rows()[0]["n_low"]


def test_the_record_outlives_the_process_but_not_the_version_of_the_data(tmp_path):
    with opened(tmp_path, version="1") as visits:
        first = visits.sql(BY_WARD, spend=cl.rho("0.1"))
    with opened(tmp_path, version="1") as visits:
        assert visits.sql(BY_WARD, spend=cl.rho("0.1")).rows() == first.rows()
        assert visits.account.spent == cl.rho("0.1")
    with opened(tmp_path, version="2") as visits:
        assert visits.sql(BY_WARD, spend=cl.rho("0.1")).rows() != first.rows()


def test_a_refused_question_costs_nothing(tmp_path):
    with opened(tmp_path, cl.rho("0.1")) as visits:
        with pytest.raises(OverBudget):
            visits.sql("SELECT COUNT(*) FROM visits", spend=cl.rho(1))
        assert visits.left == cl.rho("0.1")


def test_totals_and_variances_without_noise_are_exact_and_inside_their_intervals(tmp_path):
    """From about epsilon 750 on the variance of the noise is 0 as a double."""
    columns = {"g": {"type": "text", "categories": ["a", "b"]}, "x": {"type": "integer", "bounds": [0, 9]}}
    schema = {"unit": "row", "tables": {"t": {"columns": columns}}}
    table = pa.table({"g": ["a"] * 3 + ["b"], "x": [1, 2, 6, 5]})
    with cl.open({"t": table}, schema=schema, budget=cl.epsilon(10**6), ledger=tmp_path) as dataset:
        rows = dataset.sql("SELECT g, COUNT(*) AS n FROM t GROUP BY ROLLUP (g)", spend=cl.epsilon(3000)).rows()
        assert {row["g"]: row["n"] for row in rows if row["n"]} == {"a": 3, "b": 1, None: 4}
        sql = "SELECT g, VAR_POP(x) AS v, VAR_SAMP(x) AS s FROM t GROUP BY g"
        for row in dataset.sql(sql, spend=cl.epsilon(10**5)).rows():
            for name in ("v", "s"):
                assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]
            if row["g"] is not None:
                assert row["v"] == pytest.approx({"a": 14 / 3, "b": 0}[row["g"]], abs=1e-3)


def test_totals_of_a_rollup_add_up(visits):
    sql = "SELECT ward, FLOOR(age / 25) AS part, COUNT(*) AS n, SUM(cost) AS c FROM visits GROUP BY ROLLUP (ward, part)"
    rows = visits.sql(sql, spend=cl.rho("0.5")).rows()
    for name in ("n", "c"):
        whole = next(row[name] for row in rows if row["ward"] is None)
        wards = {row["ward"]: row[name] for row in rows if row["ward"] and row["part"] is None}
        assert sum(wards.values()) == pytest.approx(whole)
        for ward, total in wards.items():
            parts = [row[name] for row in rows if row["ward"] == ward and row["part"] is not None]
            assert sum(parts) == pytest.approx(total)


def test_tidy_counts_are_whole_and_never_negative(visits):
    answer = visits.sql("SELECT age, COUNT(*) AS n, AVG(cost) AS c FROM visits GROUP BY age", spend=cl.rho("0.01"))
    assert min(answer.column("n")) < 0
    tidy = answer.tidy()
    assert all(isinstance(n, int) and n >= 0 for n in tidy.column("n"))
    assert tidy.column("c") == answer.column("c")
    assert all(
        low <= n <= high
        for low, n, high in zip(tidy.column("n_low"), tidy.column("n"), tidy.column("n_high"), strict=True)
    )


def test_tidy_limits_beyond_64_bits_still_hold_every_count(tmp_path):
    facts = {
        "unit": {"name": "p", "max_rows": 10**9},
        "tables": {"t": {"unit": "id", "columns": {"x": {"type": "real"}}}},
    }
    with cl.open(pa.table({"id": [1, 2], "x": [1.0, 2.0]}), schema=facts, budget=cl.rho(1), ledger=tmp_path) as data:
        plan = data.plan("SELECT COUNT(*) AS n FROM t", spend=cl.rho("1e-24"))
        (row,) = data.run(plan, source=SeededSource("limits")).tidy().rows()
    assert row["n_low"] <= 2 <= row["n_high"]
    assert row["n_low"] <= row["n"] <= row["n_high"]


def test_a_statement_that_many_sums_share_is_written_once(tmp_path):
    facts = {"unit": "row", "tables": {"t": {"columns": {"x": {"type": "integer", "bounds": [0, 9]}}}}}
    with cl.open(pa.table({"x": [1, 2]}), schema=facts, budget=cl.rho(1), ledger=tmp_path) as data:
        plan = data.plan(f"SELECT {', '.join(f'SUM(x + {i})' for i in range(200))} FROM t", spend=cl.rho("0.1"))
        started = time.process_time()
        assert len(plan.statements()) == 1
        assert time.process_time() - started < 3  # 200 times: a minute


def test_arithmetic_over_answers_has_limits_too(visits):
    answer = visits.sql("SELECT SUM(readmitted) / COUNT(*) AS share FROM visits", spend=cl.rho(50))
    low, value, high = (answer.column(name)[0] for name in ("share_low", "share", "share_high"))
    assert 0 < low < value < high < 1


# The builder


def test_a_built_question_is_the_same_question(visits):
    built = visits.where("age >= 18").where("cost < 9000").group_by("ward").agg(cl.count().named("n"), cl.mean("age"))
    sql = (
        'SELECT ward, COUNT(*) AS "n", AVG(age) AS "mean_age" FROM visits '
        "WHERE (age >= 18) AND (cost < 9000) GROUP BY ward"
    )
    assert str(built) == sql
    first = visits.sql(sql, spend=cl.rho("0.1"))
    assert built.run(spend=cl.rho("0.1")).rows() == first.rows()


def test_every_aggregate_can_be_built(visits):
    asked = [
        cl.count(),
        cl.count("age"),
        cl.count_people("patient"),
        cl.total("cost"),
        cl.mean("cost"),
        cl.var("age"),
        cl.std("age"),
        cl.median("age"),
        cl.quantile("age", 0.9),
        cl.minimum("age"),
        cl.maximum("age"),
        cl.mode("ward"),
    ]
    answer = visits.table("visits").agg(*asked).run(spend=cl.rho(5))
    assert len(answer.columns) == len(asked)


def test_an_injected_condition_is_refused_like_any_other_sql(visits):
    for condition in (
        "1=1) UNION SELECT * FROM visits --",
        "age > (SELECT MAX(age) FROM visits)",
        "1; DROP TABLE visits",
    ):
        with pytest.raises(QueryRefused):
            visits.where(condition).agg(cl.count()).plan(spend=cl.rho(1))


# What is not public is paid for


COLUMNS = {"ward": {"type": "text"}, "cost": {"type": "real"}, "age": {"type": "integer"}}
HIDDEN = {
    "unit": {"name": "patient", "max_rows": 8},
    "tables": {"visits": {"unit": "patient", "columns": COLUMNS}},
}


def test_groups_and_bounds_are_found_and_used_from_then_on(tmp_path):
    with opened(tmp_path, cl.epsilon(50, delta="1e-4"), schema=HIDDEN) as visits:
        with pytest.raises(QueryRefused, match="with a delta"):
            visits.plan("SELECT ward, COUNT(*) FROM visits GROUP BY ward", spend=cl.rho("0.1"))
        keys = visits.find_keys("ward", spend=cl.epsilon(2, delta="1e-6"))
        assert keys.value == sorted(WARDS)
        assert int(keys.parameters["threshold"]) > 1
        low, high = visits.find_bounds("visits.cost", spend=cl.rho("0.5")).value
        assert 128 <= low < high <= 65536
        visits.find_bounds("age", spend=cl.rho("0.5"))
        answer = visits.sql("SELECT ward, AVG(cost) AS c, AVG(age) AS a FROM visits GROUP BY ward", spend=cl.rho(2))
        assert answer.column("ward") == [*sorted(WARDS), None]  # whoever is in none of them
        spent = visits.account.spent
        assert spent.delta > 0
        assert spent.amount > 3


def test_finding_groups_needs_a_delta_and_a_column_that_exists(visits):
    with pytest.raises(BadLoss, match="delta"):
        visits.find_keys("ward", spend=cl.rho("0.1"))
    with pytest.raises(BadSchema):
        visits.find_bounds("nothing", spend=cl.rho("0.1"))
    assert visits.account.spent.amount == 0


def test_a_dataset_shows_what_it_is_and_keeps_its_secret(visits):
    assert "one patient" in repr(visits)
    with pytest.raises(TypeError):
        pickle.dumps(visits)
    assert len({visits.catalog.secret, opened_secret(visits)}) == 1


def opened_secret(visits):
    from cloister.dataset import Dataset

    return Dataset(visits.tables, visits.account).catalog.secret


def test_values_of_negative_zero_and_huge_counts_survive():
    from cloister.data.statistics import integers

    column = pa.chunked_array([pa.array([None, 2**70, -(2**70)], pa.decimal128(38, 0))])
    assert integers(column).tolist() == [0, 2**70, -(2**70)]
    assert integers(pa.chunked_array([pa.array([5, -3, None], pa.decimal128(38, 0))])).dtype == np.int64


@pytest.mark.parametrize("spend", [0.1, 1, "rho 1", None, cl.rho])
def test_a_spend_that_is_no_loss_is_refused_with_what_to_write(visits, spend):
    sql = "SELECT COUNT(*) AS n FROM visits"
    calls = [
        lambda: visits.sql(sql, spend=spend),
        lambda: visits.plan(sql, spend=spend),
        lambda: visits.find_keys("ward", spend=spend),
        lambda: visits.find_bounds("cost", spend=spend),
        lambda: visits.where("age > 3").agg(cl.count()).run(spend=spend),
    ]
    for call in calls:
        with pytest.raises(BadLoss, match="spend="):
            call()
    assert not visits.account.spent.amount


def test_run_takes_a_plan_of_the_same_dataset_seen_through_the_same_views(visits, tmp_path):
    sql = "SELECT COUNT(*) AS n FROM visits"
    with pytest.raises(QueryRefused, match=r"ds\.sql"):
        visits.run(sql)
    plan = visits.plan(sql, spend=cl.rho(1))
    narrow = visits.through({"visits": "SELECT ward, age FROM visits WHERE ward = 'surgery'"})
    with opened(tmp_path / "other") as other:
        for ds, made in ((other, plan), (narrow, plan), (visits, narrow.plan(sql, spend=cl.rho(1)))):
            with pytest.raises(QueryRefused, match="another"):
                ds.run(made)
            assert not ds.account.spent.amount
    assert visits.run(plan).loss == cl.rho(1)


PUBLIC_JOIN = {
    "unit": "row",
    "tables": {
        "t": {"columns": {"g": {"type": "text", "categories": ["a", "b"]}}},
        "w": {
            "public": True,
            "columns": {
                "g": {"type": "text", "categories": ["a", "b"]},
                "k": {"type": "integer", "bounds": [0, 9], "nullable": False},
            },
        },
    },
}


def joined(folder, most=None, keys=()):
    tables = PUBLIC_JOIN["tables"]
    w = tables["w"] if most is None else {**tables["w"], "max_rows": most}
    schema = {**PUBLIC_JOIN, "tables": {"t": tables["t"], "w": w}, "foreign_keys": list(keys)}
    source = {"t": pa.table({"g": ["a"] * 100 + ["b"] * 50}), "w": pa.table({"g": list("aaab"), "k": [1, 2, 3, 4]})}
    return cl.open(source, schema=schema, budget=cl.rho(10**6), ledger=folder)


def test_a_row_that_is_joined_to_several_public_rows_counts_as_often(tmp_path):
    sql = "SELECT COUNT(*) AS n FROM t JOIN w ON t.g = w.g"
    with joined(tmp_path / "unknown") as ds, pytest.raises(QueryRefused, match="max_rows of the public table"):
        ds.plan(sql, spend=cl.rho(1))
    with joined(tmp_path / "three", most=3) as ds:
        plan = ds.plan(sql, spend=cl.rho(10**4))
        assert plan.measurements[0].sensitivity == 3
        assert "at most 3 of w" in str(plan)
        assert round(ds.run(plan).item()) == 350
        assert round(ds.sql(f"{sql} AND w.k > 1", spend=cl.rho(10**4)).item()) == 250
        assert round(ds.sql(sql.replace("JOIN", "LEFT JOIN"), spend=cl.rho(10**4)).item()) == 350
        with pytest.raises(QueryRefused, match="several rows"):
            ds.plan(sql.replace("JOIN w", "JOIN (SELECT a.g FROM w AS a CROSS JOIN w AS b) AS w"), spend=cl.rho(1))


def test_a_foreign_key_to_the_joined_column_says_that_there_is_one_row(tmp_path):
    with joined(tmp_path, keys=["t.g -> w.g"]) as ds:
        answer = ds.sql("SELECT COUNT(*) AS n FROM t JOIN w USING (g)", spend=cl.rho(10**4))
        assert round(answer.item()) == 150  # enforced, whatever the table holds
        assert any("at most 1 of w" in note for note in answer.notes)
        with pytest.raises(QueryRefused, match="several rows"):
            ds.plan("SELECT COUNT(*) AS n FROM t JOIN w ON LENGTH(t.g) = w.k", spend=cl.rho(1))


PRICES = {
    "unit": "row",
    "tables": {
        "t": {"columns": {"net": {"type": "real", "bounds": [0.0, 1000.0]}}},
        "w": {
            "public": True,
            "max_rows": 1,
            "columns": {name: {"type": "real", "bounds": [0.0, 2e11]} for name in ("gross", "tax")},
        },
    },
}


def prices(folder, nets):
    """A file of prices, and public pairs that differ by 0.1: one decimal, and many doubles."""
    with duckdb.connect(folder / "prices.duckdb") as file:
        file.execute("CREATE TABLE t (net DECIMAL(14, 1))")
        file.executemany("INSERT INTO t VALUES (?)", [[net] for net in nets])
        file.execute("CREATE TABLE w (gross DECIMAL(14, 1), tax DECIMAL(14, 1))")
        file.executemany("INSERT INTO w VALUES (?, ?)", [[f"{2**k}.4", f"{2**k}.3"] for k in range(37)])
    return cl.open(folder / "prices.duckdb", schema=PRICES, budget=cl.epsilon(10**6), ledger=folder)


@pytest.mark.parametrize(
    "join",
    ["q ON t.net = q.net", "q ON q.net = t.net + 0", "q USING (net)", "q ON q.net = 0.1"],
)
def test_public_rows_are_numbered_by_what_a_join_compares(tmp_path, join):
    with prices(tmp_path, ["0.1"]) as ds:
        sql = f"SELECT COUNT(*) AS n FROM t JOIN (SELECT gross - tax AS net FROM w) AS {join}"
        plan = ds.plan(sql, spend=cl.epsilon(10**4))
        assert "at most 1 of q for each net" in str(plan)
        assert plan.measurements[0].sums.run(ds.tables.engine)[0][0] == 1 == plan.measurements[0].sensitivity


def test_decimals_that_are_equal_are_one_value_to_distinct(tmp_path):
    with prices(tmp_path, ["0.1", "0.2", "0.3", "0.6"]) as ds:
        sql = "SELECT COUNT(DISTINCT net + 0.1 + net - net) AS n FROM t WHERE net + 0.1 = 0.3 OR net = 0.2"
        assert round(ds.sql(sql, spend=cl.epsilon(10**4)).item()) == 1
        sql = "SELECT COUNT(DISTINCT CASE WHEN net < 0.15 THEN net * 3 ELSE net END) AS n FROM t WHERE net < 0.5"
        assert round(ds.sql(sql, spend=cl.epsilon(10**4)).item()) == 2  # 0.1 · 3 is 0.3


PEOPLE = pa.table({"p": [str(i) for i in range(2000)], "name": ["x"] * 2000, "age": [10] * 1000 + [40] * 1000})
OPEN_AGE = {
    "unit": {"name": "person", "max_rows": 1},
    "tables": {"t": {"unit": "p", "columns": {"name": {"type": "text"}, "age": {"type": "integer"}}}},
}


def test_bounds_found_through_a_view_do_not_let_other_rows_into_it(tmp_path):
    with cl.open({"t": PEOPLE}, schema=OPEN_AGE, budget=cl.rho(10**6), ledger=tmp_path) as whole:
        adults = whole.through({"t": "SELECT age FROM t WHERE age >= 18"})
        moved = whole.through({"t": "SELECT age + 1000 AS age FROM t WHERE age >= 18"})
        assert adults.find_bounds("T.age", spend=cl.rho(1)).value == (32, 64)
        assert moved.find_bounds("age", spend=cl.rho(1)).value == (1024, 2048)
        assert whole.find_bounds("age", spend=cl.rho(1)).value == (8, 64)
        for seen, rows, mean in ((adults, 1000, 40), (moved, 1000, 1040), (whole, 2000, 25)):
            (row,) = seen.sql("SELECT COUNT(*) AS n, AVG(age) AS a FROM t", spend=cl.rho(1000)).rows()
            assert row["n"] == pytest.approx(rows, abs=2)
            assert row["a"] == pytest.approx(mean, abs=2)
        later = whole.through({"t": "SELECT age FROM t WHERE age < 18"})
        (found,) = later.plan("SELECT COUNT(*) AS n FROM t", spend=cl.rho(1)).measurements
        assert found.sums.run(later.tables.engine)[0][0] == 1000 * found.sums.unit_weight


def test_accounts_whose_names_look_alike_in_a_folder_share_no_answers(tmp_path):
    few = PEOPLE.slice(0, 10)
    for name, table, rows in (("clinic/2020", PEOPLE, 2000), ("clinic_2020", few, 10), ("clinic:2020", few, 10)):
        with cl.open({"t": table}, schema=OPEN_AGE, budget=cl.rho(10**6), ledger=tmp_path, name=name) as dataset:
            assert dataset.sql("SELECT COUNT(*) AS n FROM t", spend=cl.rho(1000)).item() == pytest.approx(rows, abs=2)


# Neighbours


REPLACED = {"relation": "replace-one"}


def test_a_budget_for_other_neighbours_opens_nothing(tmp_path):
    with pytest.raises(BadLoss, match="budget is rho 1 \\(replace-one\\)"):
        opened(tmp_path / "books", cl.rho(1, **REPLACED), source="no such file.parquet")
    assert not (tmp_path / "books").exists()


def test_an_account_for_other_neighbours_pays_for_no_question(visits):
    account = visits.account.book.open_account("replaced", cl.rho(1, **REPLACED))
    with pytest.raises(BadLoss, match="add/remove"):
        Dataset(visits.tables, account)


@pytest.mark.parametrize(
    "ask",
    [
        lambda visits, spend: visits.plan("SELECT SUM(stay_days) FROM visits", spend=spend),
        lambda visits, spend: visits.sql("SELECT MEDIAN(stay_days) FROM visits", spend=spend),
        lambda visits, spend: visits.where("age > 3").agg(cl.count()).run(spend=spend),
        lambda visits, spend: visits.find_bounds("age", spend=spend),
        lambda visits, spend: visits.find_keys("ward", spend=cl.rho("0.1", delta="1e-6", **REPLACED)),
    ],
)
def test_a_spend_for_other_neighbours_is_refused_before_a_row_is_read(visits, spy, ask):
    with pytest.raises(BadLoss, match="add/remove neighbours"):
        ask(visits, cl.rho("0.1", **REPLACED))
    assert not spy.asked
    assert visits.account.spent.amount == 0


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM visits",
        "SELECT COUNT(DISTINCT ward) FROM visits",
        "SELECT COUNT(DISTINCT patient) FROM visits",
        "SELECT MODE(ward) FROM visits",
        "SELECT MEDIAN(age) FROM visits",
    ],
)
@pytest.mark.parametrize("spend", [cl.rho("0.1", **REPLACED), cl.epsilon("0.1", **REPLACED)])
def test_no_layer_below_takes_a_loss_for_other_neighbours_either(visits, sql, spend):
    """The statistic states its neighbours, so that a room which forgets to ask is refused by the noise."""
    question = visits.plan(sql, spend=cl.rho("0.1")).question
    with pytest.raises(RelationMismatch):
        make_plan(question, spend, visits.unit, dialect="duckdb")


# Nothing that can be known before the charge is found out after it


@pytest.mark.parametrize(
    "ending",
    ["ORDER BY 7", "ORDER BY 'n'", "ORDER BY NULL", "ORDER BY -1", "ORDER BY TRUE", "ORDER BY 0", "ORDER BY 1 + 1"],
)
def test_a_constant_to_order_by_is_refused_before_the_charge(visits, ending):
    with pytest.raises(QueryRefused, match="ORDER BY takes"):
        visits.plan(f"SELECT 3 AS three, COUNT(*) AS n FROM visits {ending}", spend=cl.rho("0.1"))
    with pytest.raises(QueryRefused, match="ORDER BY takes"):
        visits.plan("SELECT 3 AS three, COUNT(*) AS n FROM visits ORDER BY three", spend=cl.rho("0.1"))


@pytest.mark.parametrize("confidence", ["0.9999999999999999", "1e-300", "0.99999999999", "1e-10", 0, 1, 2, -1])
def test_a_confidence_that_doubles_cannot_halve_is_refused_before_the_charge(visits, confidence):
    with pytest.raises(BadProbability, match="between 1e-9 and 1 - 1e-9"):
        visits.plan("SELECT AVG(age) FROM visits", spend=cl.rho("0.1"), confidence=confidence)


@pytest.mark.parametrize("confidence", ["1e-9", "0.999999999"])
@pytest.mark.parametrize("spend", [cl.rho("0.1"), cl.epsilon("0.1")])
def test_the_ends_of_confidence_are_answered_also_for_very_many_groups(tmp_path, confidence, spend):
    columns = {"k": {"type": "integer", "bounds": [0, 10**5]}, "x": {"type": "real", "bounds": [0, 1]}}
    schema = {
        "unit": "row",
        "tables": {"t": {"columns": {name: {**one, "nullable": False} for name, one in columns.items()}}},
    }
    table = pa.table({"k": [1], "x": [0.5]})
    with cl.open(table, schema=schema, budget=cl.rho(10**3), ledger=tmp_path) as dataset:
        sql = (
            "SELECT k, COUNT(*) / (SUM(x) + AVG(x)) AS r, VARIANCE(x) FROM t GROUP BY k HAVING COUNT(*) > 5 ORDER BY r"
        )
        plan = dataset.plan(sql, spend=spend, confidence=confidence)
        assert 0 < plan.interval_confidence < 1
        dataset.run(plan)
        few = "SELECT MAX(x), MIN(k), MEDIAN(x), MODE(k) FROM t WHERE k BETWEEN 0 AND 9"
        dataset.sql(few, spend=spend, confidence=confidence)


def test_what_an_answer_cannot_be_arranged_with_is_refused_before_the_charge(visits, spy, monkeypatch):
    """Whatever makes the engine for released numbers fail: it is tried on made-up ones."""

    def fails(self, base, sql):
        raise ArithmeticError("of the engine")

    sql = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward ORDER BY n"
    plan = visits.plan(sql, spend=cl.rho("0.1"))
    monkeypatch.setattr("cloister.query.postprocess._Arithmetic.run", fails)
    for ask in (lambda: visits.plan(sql, spend=cl.rho("0.1")), lambda: visits.run(plan)):
        with pytest.raises(QueryRefused, match="could not be arranged") as refused:
            ask()
        assert "of the engine" not in str(refused.value)
    assert not spy.asked
    assert visits.account.spent.amount == 0


def test_groups_at_the_end_of_64_bits_are_answered(tmp_path):
    facts = {"type": "integer", "bounds": [2**63 - 2, 2**63 - 1], "nullable": False}
    schema = {"unit": "row", "tables": {"t": {"columns": {"v": facts}}}}
    with cl.open(pa.table({"v": [2**63 - 1]}), schema=schema, budget=cl.rho(1), ledger=tmp_path) as dataset:
        answer = dataset.sql("SELECT v, COUNT(*) AS n FROM t GROUP BY v", spend=cl.rho("0.1"))
        assert answer.column("v") == [2**63 - 2, 2**63 - 1]


@pytest.mark.parametrize(("values", "least", "most"), [([0.0] * 99, 1.0, 0.0), ([4096.0] * 99, 4096.0, 4095.0)])
def test_min_and_max_of_reals_are_at_the_inner_edge_of_what_is_sure(tmp_path, values, least, most):
    """Some row lies at the answer or beyond: of a row in a leaf, no more is known than its inner edge."""
    facts = {"type": "real", "bounds": [0, 4096], "nullable": False}
    schema = {"unit": "row", "tables": {"t": {"columns": {"x": facts}}}}
    with cl.open(pa.table({"x": values}), schema=schema, budget=cl.epsilon(10**5), ledger=tmp_path) as dataset:
        row = dataset.sql("SELECT MIN(x) AS low, MAX(x) AS high FROM t", spend=cl.epsilon(10**4)).rows()[0]
    assert (row["low"], row["high"]) == pytest.approx((least, most), abs=1e-9)
    assert any(x >= row["high"] for x in values)
    assert any(x <= row["low"] for x in values)


class Picky:
    """An engine that takes no statement."""

    def __init__(self, engine):
        self._engine = engine

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def prepare(self, sql):
        raise EngineFailed("it does not take this.")


@pytest.mark.parametrize(
    "ask",
    [
        lambda visits: visits.sql(BY_WARD, spend=cl.rho("0.1")),
        lambda visits: visits.sql("SELECT patient % 7, COUNT(*) FROM visits GROUP BY 1", spend=cl.rho(1, delta="1e-6")),
        lambda visits: visits.find_bounds("age", spend=cl.rho("0.1")),
        lambda visits: visits.find_keys("ward", spend=cl.rho("0.1", delta="1e-6")),
    ],
)
def test_what_an_engine_does_not_take_is_not_paid_for(visits, ask):
    visits.tables = replace(visits.tables, engine=Picky(visits.tables.engine))
    with pytest.raises((EngineFailed, QueryRefused)):
        ask(visits)
    assert visits.account.spent.amount == 0


@pytest.mark.parametrize(
    "sql",
    [
        'SELECT "_cl_n" FROM visits',
        "SELECT SUM(age * ward) FROM visits",
        "SELECT COUNT(*) FROM visits GROUP BY 2",
    ],
)
def test_duckdb_prepares_statements_on_empty_tables(visits, spy, sql):
    for engine in (visits.tables.engine, visits.tables.engine.again()):
        engine.prepare("SELECT COUNT(*), SUM(age), MAX(ward) FROM visits")
        with pytest.raises(EngineFailed):
            engine.prepare(sql)
    assert not spy.asked


def test_without_a_schema_or_a_budget_the_sentence_says_what_to_write(tmp_path):
    with pytest.raises(BadSchema, match=r"CLO-111: a schema says .*cloister schema draft"):
        cl.open(VISITS)
    with pytest.raises(BadLoss, match=r"CLO-102: say what all answers .*budget=epsilon"):
        cl.open(VISITS, schema=SCHEMA, ledger=tmp_path)


def test_a_pure_epsilon_that_a_rho_account_cannot_pay_is_explained(tmp_path):
    with opened(tmp_path, cl.epsilon(3, delta="1e-7")) as data:
        with pytest.raises(OverBudget) as caught:
            data.sql("SELECT COUNT(*) FROM visits", spend=cl.epsilon(1))
        assert str(caught.value).startswith("CLO-204: account visits needs rho 0.5")
        assert "write 'epsilon 1, delta 1e-9'" in str(caught.value)
        answer = data.sql("SELECT COUNT(*) FROM visits", spend=cl.epsilon(1, delta="1e-9"))
        costs = str(caught.value).partition("With a delta it costs ")[2].partition(":")[0]
        assert costs == str(data.account.spent)
        assert answer.receipt is not None
    with opened(tmp_path / "rho", cl.rho("0.1")) as data, pytest.raises(OverBudget) as caught:
        data.sql("SELECT COUNT(*) FROM visits", spend=cl.epsilon(1))
    assert "delta 1e-9" not in str(caught.value)

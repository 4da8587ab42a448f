"""Kinds of work: their forms as data, what they read, plan and leave; on local data, without a hub."""

import json
from datetime import datetime

import pyarrow as pa
import pytest

import cloister as cl
from cloister.client import wire
from cloister.hub.jobs.job_types import KINDS, Planned, kind_of
from cloister.privacy.errors import (
    BadForm,
    BadLoss,
    BadNumber,
    BadProbability,
    BadSchema,
    NotHere,
    OverBudget,
    QueryRefused,
)
from cloister.privacy.loss import Loss, rho

SCHEMA = {
    "unit": {"name": "person", "max_rows": 2},
    "tables": {
        "stays": {
            "unit": "person",
            "rows": 100,
            "columns": {
                "ward": {"type": "text", "categories": ["a", "b"]},
                "age": {"type": "integer", "bounds": [0, 99], "nullable": False},
                "children": {"type": "integer", "bounds": [0, 3], "nullable": False},
                "cost": {"type": "real", "bounds": [-5.5, 4.5]},
                "came": {"type": "timestamp", "bounds": [datetime(2024, 1, 1), datetime(2024, 12, 31)]},
                "insured": {"type": "boolean"},
                "remark": {"type": "text"},
                'odd "name': {"type": "integer", "categories": [1, 7]},
            },
        },
        "wards": {"public": True, "columns": {"ward": {"type": "text", "categories": ["a", "b"]}}},
    },
}


@pytest.fixture
def data(tmp_path):
    stays = pa.table(
        {
            "person": [f"p{i}" for i in range(200)],
            "ward": ["a"] * 150 + [None] * 50,
            "age": [i % 100 for i in range(200)],
            "children": [3] * 200,
            "cost": [4.5] * 100 + [0.0] * 100,
            "came": [datetime(2024, 2, 3)] * 120 + [None] * 80,
            "insured": [True] * 200,
            "remark": ["secret"] * 200,
            'odd "name': [7] * 200,
        }
    )
    tables = {"stays": stays, "wards": pa.table({"ward": ["a", "b"]})}
    with cl.open(tables, schema=SCHEMA, budget=rho(100_000), ledger=tmp_path) as opened:
        yield opened


def quiet(_share, _words):
    pass


def test_every_kind_says_all_that_a_page_needs():
    for name, kind in KINDS.items():
        assert kind.name == name
        assert kind.title
        assert kind.operation
        assert kind.template.endswith(".html")
        assert [field.name for field in kind.fields if field.required]
        assert len({field.name for field in kind.fields}) == len(kind.fields)
    with pytest.raises(NotHere, match="query, profile, train"):
        kind_of("magic")


def test_a_question_is_read_with_its_spend_or_its_error():
    query = KINDS["query"]
    sql = "SELECT COUNT(*) FROM stays"
    assert query.parse({"sql": f" {sql} ", "spend": "epsilon 0.5, delta 1e-8"}) == {
        "sql": sql,
        "spend": "epsilon 0.5 delta 1e-8",
        "confidence": "0.95",
    }
    both = query.parse({"sql": sql, "spend": "rho 0.01", "within": 5, "confidence": 0.9})
    assert both == {"sql": sql, "spend": "rho 0.01", "within": "5", "confidence": "0.9"}
    alone = query.parse({"sql": sql, "spend": "", "within": 5})
    assert alone == {"sql": sql, "within": "5", "confidence": "0.95"}


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"spend": "rho 1"}, BadForm),
        ({"sql": "x"}, BadForm),
        ({"sql": "x", "spend": "much"}, BadLoss),
        ({"sql": "x", "spend": "rho -1"}, BadLoss),
        ({"sql": "x", "within": "-1"}, BadForm),
        ({"sql": "x", "within": "wide"}, BadNumber),
        ({"sql": "x", "spend": "rho 1", "confidence": "1"}, BadProbability),
        ({"sql": ["x"], "spend": "rho 1"}, BadForm),
        ({"sql": "a\0b", "spend": "rho 1"}, BadForm),
        ({"sql": "x" * 20_001, "spend": "rho 1"}, BadForm),
    ],
)
def test_a_form_that_cannot_be_read_is_refused(form, error):
    with pytest.raises(error):
        KINDS["query"].parse(form)


def test_a_question_names_every_table_it_reads(data):
    query = KINDS["query"]
    for sql, tables in (
        ('SELECT COUNT(*) FROM "STAYS" s JOIN wards USING (ward)', ("stays", "wards")),
        ("WITH s AS (SELECT * FROM stays) SELECT COUNT(*) FROM s", ("stays",)),
        ("SELECT COUNT(*) FROM stays WHERE ward IN (SELECT ward FROM wards)", ("stays", "wards")),
        ("not sql at all (", ()),
    ):
        assert query.tables(data.schema, {"sql": sql}) == tables


def test_a_plan_survives_its_way_through_the_database(data):
    query = KINDS["query"]
    parameters = query.parse({"sql": "SELECT ward, AVG(age) AS a FROM stays GROUP BY ward", "spend": "epsilon 0.5"})
    planned = query.plan(data, parameters)
    assert planned.loss == rho("1/16")  # two pure shares of 0.25: what the ledger will be charged, not 0.5²/2
    assert Planned.from_json(json.loads(json.dumps(planned.to_json()))) == planned
    query.run(data, parameters, quiet)
    assert data.account.spent == planned.loss


def test_an_answer_is_shown_with_its_limits_and_sent_whole(data):
    query = KINDS["query"]
    parameters = query.parse({"sql": "SELECT ward, COUNT(*) AS n FROM stays GROUP BY ward", "spend": "rho 1000"})
    done = query.run(data, parameters, quiet)
    shown = json.loads(json.dumps(done.result))
    assert shown["columns"] == [{"name": "ward", "number": False}, {"name": "n", "number": True}]
    assert [row[0]["value"] for row in shown["rows"]] == ["a", "b", None]
    assert abs(shown["rows"][0][1]["value"] - 150) < 2
    assert shown["rows"][0][1]["low"] <= shown["rows"][0][1]["value"] <= shown["rows"][0][1]["high"]
    assert wire.answer_from_json(shown["answer"]).receipt == done.receipts[0]


def test_within_finds_the_spend(data):
    query = KINDS["query"]
    planned = query.plan(data, query.parse({"sql": "SELECT COUNT(*) AS n FROM stays", "within": "10"}))
    assert float(planned.errors[0][1].removeprefix("± ")) <= 10
    assert planned.loss.amount > 0


def test_the_spend_beside_an_error_is_the_most_that_it_may_cost(data):
    query = KINDS["query"]
    form = {"sql": "SELECT COUNT(*) AS n FROM stays", "within": "10"}
    assert query.plan(data, query.parse({**form, "spend": "rho 1"})).loss == query.plan(data, query.parse(form)).loss
    with pytest.raises(OverBudget, match="an error within 10 costs"):
        query.plan(data, query.parse({**form, "spend": "rho 0.00001"}))


def test_a_profile_counts_every_column_for_one_charge(data):
    profile = KINDS["profile"]
    parameters = profile.parse({"spend": "rho 80000", "bins": 5})
    assert profile.tables(data.schema, parameters) == ("stays",)
    planned = profile.plan(data, parameters)
    done = profile.run(data, parameters, quiet)
    assert planned.loss == rho(80_000) == data.account.spent
    assert len(done.receipts) == 1
    result = json.loads(json.dumps(done.result))
    assert round(result["rows"]["value"]) == 200
    bars = {one["name"]: {bar["label"]: round(bar["value"]) for bar in one["bars"]} for one in result["columns"]}
    assert bars["ward"] == {"a": 150, "b": 0, "missing": 50}
    assert bars["children"] == {"0": 0, "1": 0, "2": 0, "3": 200}
    assert bars["age"]["0 to 19.8"] == 40
    assert bars["cost"]["-1.5 to 0.5"] == 100
    assert bars["cost"]["4.5 or more"] == 100
    assert bars["came"]["missing"] == 80
    assert bars["came"]["2024-01-01 to 2024-03-14"] == 120
    assert bars["insured"]["True"] == 200
    assert bars["remark"] == {"present": 200, "missing": 0}
    assert bars['odd "name']["7"] == 200
    assert "secret" not in json.dumps(result)


def test_a_profile_sees_what_its_reader_sees(data):
    profile = KINDS["profile"]
    narrow = data.through({"stays": "SELECT ward, FLOOR(age / 50) * 50 AS age FROM stays WHERE ward = 'a'"})
    done = profile.run(narrow, profile.parse({"spend": "rho 50000", "table": "STAYS"}), quiet)
    assert [one["name"] for one in done.result["columns"]] == ["ward", "age"]
    assert [bar["label"] for bar in done.result["columns"][1]["bars"]] == ["0", "50"]
    assert round(done.result["rows"]["value"]) == 150


def test_a_profile_of_a_wide_table_is_not_refused_for_the_product_of_its_columns(tmp_path):
    columns = {f"c{i}": {"type": "integer", "bounds": [0, 999], "nullable": False} for i in range(30)}
    schema = {"unit": "row", "tables": {"wide": {"columns": columns}}}
    table = pa.table({name: [1, 2, 3] for name in columns})
    with cl.open(table, schema=schema, budget=rho(10), ledger=tmp_path) as wide:
        profile = KINDS["profile"]
        done = profile.run(wide, profile.parse({"spend": "rho 1", "bins": 10}), quiet)
        assert len(done.result["columns"]) == 30
        with pytest.raises(QueryRefused, match="groups are more than"):
            wide.plan(f"SELECT {', '.join(columns)}, COUNT(*) FROM wide GROUP BY {', '.join(columns)}", spend=rho(1))


def test_a_profile_needs_a_private_table_and_a_spend(data):
    profile = KINDS["profile"]
    with pytest.raises(BadSchema, match="stays"):
        profile.tables(data.schema, {"table": "wards"})
    for form in ({}, {"spend": "rho 1", "bins": "1"}, {"spend": "rho 1", "bins": "²"}):
        with pytest.raises(BadForm):
            profile.parse(form)


def test_nothing_planned_is_nothing_paid(data):
    assert Planned(Loss.nothing("rho"), rho(1)).to_json()["own"]["amount"] == "1"

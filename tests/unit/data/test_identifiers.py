"""A column with the role identifier is read by no query, model, generator or user of a hub."""

import pyarrow as pa
import pytest

import cloister as cl
from cloister import learn, synth
from cloister.data.schema import Schema
from cloister.data.schema_fit import fit_of
from cloister.data.tables import open_tables
from cloister.hub.datasets.mock import mock_table
from cloister.hub.datasets.schema_form import SchemaForm
from cloister.hub.policy.views import TableView, problems, shows_all, visible_schema
from cloister.privacy.errors import BadSchema, CloisterError, QueryRefused

MARK = "ZZMARKZZ"
SCHEMA = """
unit: {name: patient, max_rows: 1}
tables:
  visits:
    unit: patient
    columns:
      email: {type: text, role: identifier, tags: [gdpr, hipaa]}
      room: {type: integer, bounds: [0, 9], role: identifier}
      age: {type: integer, bounds: [0, 100], nullable: false, role: quasi-identifier, hierarchy: age.csv}
      ward: {type: text, categories: [a, b], nullable: false, role: sensitive}
"""
PLAIN = SCHEMA.replace("role: identifier", "role: plain")
ROWS = pa.table(
    {
        "patient": [f"p{i}" for i in range(300)],
        "email": [f"{MARK}{i}" for i in range(300)],
        "room": [i % 10 for i in range(300)],
        "age": [i % 90 for i in range(300)],
        "ward": ["ab"[i % 2] for i in range(300)],
    }
)


@pytest.fixture
def visits(tmp_path):
    with cl.open(ROWS, schema=SCHEMA, budget=cl.rho(1000), ledger=tmp_path / "ledger") as dataset:
        yield dataset


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT email, COUNT(*) FROM visits GROUP BY email",
        "SELECT COUNT(DISTINCT email) FROM visits",
        "SELECT COUNT(*) FROM visits WHERE \"Email\" LIKE 'Z%'",
        "SELECT SUM(room) FROM visits",
        "SELECT AVG(v.room) FROM visits v",
        "SELECT COUNT(*) FROM (SELECT room AS r FROM visits) AS s WHERE r > 3",
        "SELECT MAX(age) FROM visits GROUP BY room",
        "SELECT COUNT(*) FROM visits v JOIN visits w ON v.patient = w.patient AND v.email = w.email",
    ],
)
def test_no_query_reads_an_identifier_even_where_the_source_has_the_column(visits, sql):
    with pytest.raises(QueryRefused) as refused:
        visits.plan(sql, spend=cl.rho("0.1"))
    assert "there is no column" in str(refused.value)


def test_a_star_and_the_list_of_columns_leave_identifiers_out(visits):
    assert list(visits.columns("visits")) == ["patient", "age", "ward"]
    plan = visits.plan("SELECT COUNT(*) FROM (SELECT * FROM visits) AS s", spend=cl.rho("0.1"))
    assert "email" not in str(plan)
    with pytest.raises(CloisterError):
        visits.relation("visits", ["email"])


def test_an_identifier_is_not_copied_from_a_frame_and_need_not_be_in_the_source():
    tables = open_tables(ROWS, Schema.load(SCHEMA))
    try:
        assert set(tables.engine.columns("visits")) == {"patient", "age", "ward"}
    finally:
        tables.close()
    open_tables(ROWS.drop_columns(["email", "room"]), Schema.load(SCHEMA)).close()
    with pytest.raises(BadSchema, match=r"no column visits\.email"):
        open_tables(ROWS.drop_columns(["email"]), Schema.load(PLAIN))
    (fit,) = fit_of(ROWS, Schema.load(SCHEMA))
    assert [column.column.name for column in fit.columns] == ["age", "ward"]


def test_models_and_generators_do_not_take_identifiers(visits):
    for features in (["room"], ["age", "room"]):
        with pytest.raises(CloisterError, match="room"):
            learn.GaussianNB(spend=cl.rho(1)).fit(visits, target="ward", features=features)
    tree = learn.DecisionTreeClassifier(spend=cl.rho(1)).fit(visits, target="ward")
    assert list(tree.feature_names_in_) == ["age"]
    made = synth.independent(visits, spend=cl.rho(1), rows=20)
    assert set(made.to_arrow().column_names) == {"age", "ward"}
    with pytest.raises(CloisterError, match="room"):
        synth.independent(visits, spend=cl.rho(1), columns=["age", "room"])


def test_users_of_a_hub_do_not_see_the_names_of_identifiers():
    schema = Schema.load(SCHEMA)
    for views in (None, {"visits": TableView()}, {"visits": TableView(("age",))}):
        text = visible_schema(schema, views).dump()
        assert "email" not in text
        assert "room" not in text
        assert "role: quasi-identifier" in text
    coarse = visible_schema(schema, {"visits": TableView(transforms={"age": "FLOOR(age / 10) * 10"})})
    assert coarse.tables["visits"].columns["age"].role is None  # another column, under its name
    assert shows_all(TableView(("patient", "age", "ward")), schema.tables["visits"])


@pytest.mark.parametrize(
    "view", [TableView(("email",)), TableView(rows="room = 3"), TableView(transforms={"age": "room + 1"})]
)
def test_a_policy_cannot_name_an_identifier(view):
    ((_, message),) = problems({"visits": view}, Schema.load(SCHEMA))
    assert "there is no column" in message
    assert not list(problems({"visits": view}, Schema.load(PLAIN)))


def test_mock_rows_have_no_identifiers():
    assert mock_table(Schema.load(SCHEMA), "visits", 5).column_names == ["patient", "age", "ward"]


def test_the_form_of_a_schema_keeps_roles_tags_and_hierarchies():
    schema = Schema.load(SCHEMA)
    form = SchemaForm.of_text(SCHEMA)
    assert [(column.name, column.role) for column in form.tables[0].columns] == [
        ("patient", ""),
        ("email", "identifier"),
        ("room", "identifier"),
        ("age", "quasi-identifier"),
        ("ward", "sensitive"),
    ]
    assert Schema.load(form.text()) == schema
    form.tables[0].columns[1].role, form.tables[0].columns[1].tags = "plain", "gdpr ccpa"
    changed = Schema.load(form.text()).tables["visits"]
    assert changed.columns["email"].tags == ("gdpr", "ccpa")


def test_an_answer_from_before_is_not_reused_for_a_column_that_became_an_identifier(tmp_path):
    sql = "SELECT COUNT(*) FROM visits WHERE room > 3"
    ledger = tmp_path / "ledger"
    with cl.open(ROWS, schema=PLAIN, budget=cl.rho(1000), ledger=ledger, name="v") as data:
        data.sql(sql, spend=cl.rho("0.1"))
    with (
        cl.open(ROWS, schema=SCHEMA, budget=cl.rho(1000), ledger=ledger, name="v") as data,
        pytest.raises(QueryRefused),
    ):
        data.sql(sql, spend=cl.rho("0.1"))

"""What a role sees of a table, asked of a real engine."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import cloister as cl
from cloister.data.schema import Schema
from cloister.hub.policy.views import (
    TableView,
    select,
    tables_in,
    visible,
    visible_columns,
    visible_schema,
)
from cloister.privacy.errors import QueryRefused

SCHEMA = Schema.load(Path(__file__).parent / "policies" / "payroll.schema.yaml")
MUCH = cl.rho(10**5)  # so that the noise is next to nothing

SALARIES = pa.table(
    {
        "employee": ["a", "b", "c", "d", "e"],
        "branch": ["North", "North", "South", "South", "South"],
        "salary": [1000, 2600, 3100, 3900, 5200],
        "illness_days": [1, 2, 3, 4, 5],
    }
)
BRANCHES = pa.table({"branch": ["North", "South"], "region": ["city", "country"]})


def seen(data, view):
    """A dataset as one person sees it: the tables their view names, through what it shows of them."""
    shown = visible(data.schema, view)
    tables = {name: data.schema.tables[name] for name in shown}
    twin = data.through({name: select(one, tables[name]) for name, one in shown.items()})
    twin.tables = replace(data.tables, schema=replace(data.schema, tables=tables))
    return twin


@pytest.fixture
def ask(tmp_path):
    source = {"salaries": SALARIES, "branches": BRANCHES}
    with cl.open(source, schema=SCHEMA, budget=cl.rho(10**6), ledger=tmp_path) as whole:

        def answer(view, sql):
            answer = seen(whole, view).sql(sql, spend=MUCH)
            return [round(float(list(row.values())[-1])) for row in answer.rows()]

        yield answer


SOUTH = {
    "salaries": TableView(
        ("employee", "branch", "salary"), "branch = 'South'", {"salary": "FLOOR(salary / 500) * 500"}
    ),
    "branches": TableView(),
}


def test_without_a_view_every_row_counts(ask):
    assert ask(None, "SELECT COUNT(*) FROM salaries") == [5]


def test_a_row_rule_leaves_only_its_rows(ask):
    assert ask(SOUTH, "SELECT COUNT(*) FROM salaries") == [3]
    assert ask(SOUTH, "SELECT branch, COUNT(*) FROM salaries GROUP BY branch") == [0, 3, 0]


def test_two_views_of_a_table_do_not_share_their_answers(ask):
    north = {"salaries": TableView(rows="branch = 'North'")}
    asked = "SELECT COUNT(*) FROM salaries"
    assert [ask(SOUTH, asked), ask(north, asked), ask(None, asked)] == [[3], [2], [5]]


def test_a_transform_stands_in_place_of_the_column(ask):
    # The noise has a standard deviation of 22, the two sums differ by 700.
    assert ask(SOUTH, "SELECT SUM(salary) FROM salaries") == [pytest.approx(3000 + 3500 + 5000, abs=300)]
    whole = "SELECT SUM(salary) FROM salaries WHERE branch = 'South'"
    assert ask(None, whole) == [pytest.approx(3100 + 3900 + 5200, abs=300)]


def test_a_row_rule_sees_the_column_before_its_transform(ask):
    view = {"salaries": TableView(rows="salary > 3000", transforms={"salary": "0 * salary"})}
    assert ask(view, "SELECT COUNT(*) FROM salaries") == [3]


def test_a_hidden_column_is_not_there(ask):
    with pytest.raises(QueryRefused, match="there is no column illness_days"):
        ask(SOUTH, "SELECT AVG(illness_days) FROM salaries")
    with pytest.raises(QueryRefused, match="there is no column illness_days"):
        ask(SOUTH, "SELECT COUNT(*) FROM salaries WHERE illness_days > 3")


def test_a_hidden_columns_name_is_not_told(ask):
    with pytest.raises(QueryRefused) as refused:
        ask(SOUTH, "SELECT AVG(nothing) FROM salaries")
    assert "illness" not in str(refused.value)


def test_a_row_rule_may_use_a_hidden_column(ask):
    view = {"salaries": TableView(("branch",), "illness_days >= 3")}
    assert ask(view, "SELECT COUNT(*) FROM salaries") == [3]


def test_a_hidden_table_is_not_there(ask):
    view = {"salaries": SOUTH["salaries"]}
    with pytest.raises(QueryRefused, match="there is no table branches"):
        ask(view, "SELECT COUNT(*) FROM salaries JOIN branches USING (branch)")
    assert ask(SOUTH, "SELECT COUNT(*) FROM salaries JOIN branches USING (branch) WHERE region = 'city'") == [0]


def test_a_view_holds_inside_subqueries_and_with_too(ask):
    inner = "SELECT COUNT(*) FROM (SELECT salary FROM salaries) AS s"
    assert ask(SOUTH, inner) == [3]
    shadow = "WITH salaries AS (SELECT branch FROM salaries) SELECT COUNT(*) FROM salaries"
    assert ask(SOUTH, shadow) == [3]


def test_people_are_counted_only_where_their_column_is_seen(ask):
    assert ask(SOUTH, "SELECT COUNT(DISTINCT employee) FROM salaries") == [3]
    with pytest.raises(QueryRefused):
        ask({"salaries": TableView(("branch",))}, "SELECT COUNT(DISTINCT employee) FROM salaries")


def test_nobody_asks_about_nothing(ask):
    with pytest.raises(QueryRefused):
        ask({}, "SELECT COUNT(*) FROM salaries")


# Text and facts


def test_a_view_is_a_select():
    assert select(SOUTH["salaries"], SCHEMA.tables["salaries"]) == (
        'SELECT "employee", "branch", FLOOR(salary / 500) * 500 AS "salary" FROM "salaries" WHERE branch = \'South\''
    )
    assert select(TableView(), SCHEMA.tables["branches"]) == 'SELECT "branch", "region" FROM "branches"'


def test_a_comment_in_a_rule_does_not_reach_the_text():
    text = select(TableView(rows="branch = 'South' /* secret */ -- all of it"), SCHEMA.tables["salaries"])
    assert text.endswith("WHERE branch = 'South'")


def test_names_are_found_whatever_their_case():
    assert visible_columns(TableView(("SALARY",)), SCHEMA.tables["salaries"]) == ("salary",)
    assert list(visible(SCHEMA, {"SALARIES": TableView()})) == ["salaries"]


def test_the_schema_as_a_person_sees_it():
    seen = visible_schema(SCHEMA, {"salaries": SOUTH["salaries"]})
    assert list(seen.tables) == ["salaries"]
    assert list(seen.tables["salaries"].columns) == ["branch", "salary"]
    assert seen.tables["salaries"].unit == "employee"
    assert seen.tables["salaries"].columns["salary"].bounds == (0, 10000)
    assert seen.problems() == []
    assert visible_schema(SCHEMA, None) is SCHEMA


def test_what_is_public_of_a_transform_is_worked_out():
    transforms = {"branch": "CASE WHEN branch = 'North' THEN 'here' ELSE 'there' END", "salary": "salary > 2000"}
    seen = visible_schema(SCHEMA, {"salaries": TableView(transforms=transforms)}).tables["salaries"]
    assert seen.columns["branch"].categories == ("here", "there")
    assert seen.columns["salary"].type == "boolean"


def test_the_tables_a_question_uses_are_found_even_behind_a_with():
    asked = "WITH branches AS (SELECT branch FROM Salaries) SELECT COUNT(*) FROM branches"
    assert tables_in(asked, SCHEMA) == {"salaries", "branches"}
    with pytest.raises(QueryRefused):
        tables_in("SELECT ((", SCHEMA)

"""SQL that a person sends is read within limits, however it is written: the parser has texts that never end."""

import re
import signal
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import cloister
from cloister.hub.policy.views import expression, tables_in
from cloister.hub.surveys.comparison import _counting
from cloister.hub.users import tokens
from cloister.hub.web.app import create_app
from cloister.privacy.errors import QueryRefused
from cloister.query.question import ask

SOURCE = Path(cloister.__file__).parent

BOMBS = {
    "decimal": "DECIMAL(" * 60 + "age" + ")" * 60,
    "short": "DECIMAL(" * 20 + "age" + ")" * 20,
    "timestamp": "TIMESTAMP(" * 24 + "age" + ")" * 24,
    "mixed": "DATE(ARRAY[" * 12 + "age" + "])" * 12,
    "beside": ", ".join(["VARCHAR(INT(" * 6 + "age" + "))" * 6] * 40),
    "angles": "STRUCT<" * 300 + "INT" + ">" * 300,
    "methods": "a(1)." * 700 + "b",
    "slices": "a" + "[1:2]" * 790,
    "indices": "1" + " IS NULL[1]" * 360,
    "calls": "f" + "(1)" * 1200,
    "brackets": "(" * 1500,
    "cases": "CASE WHEN " * 390,
}


class TooSlow(BaseException):
    """No reader catches it."""


@pytest.fixture(autouse=True)
def _in_time():
    """Stop a test whose text is read for ever."""

    def stop(*_):
        raise TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 20)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", BOMBS)
def test_a_rule_that_would_be_read_for_ever_is_refused(name):
    with pytest.raises(QueryRefused):
        expression(BOMBS[name])


@pytest.mark.parametrize("name", BOMBS)
def test_a_question_that_would_be_read_for_ever_is_refused(name, hospital_hub):
    sql = f"SELECT COUNT(*) FROM visits WHERE {BOMBS[name]} > 1"
    with pytest.raises(QueryRefused):
        ask(sql, lambda *_: None)
    with pytest.raises(QueryRefused):
        hospital_hub.plan("ada", sql)
    assert not _counting(sql).by_one_column
    assert not _counting(sql).is_count("n", True)


def test_tables_of_a_question_are_looked_for_within_the_same_limits():
    with pytest.raises(QueryRefused):
        tables_in(f"SELECT {BOMBS['decimal']}", None)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM visits WHERE " + "(" * 30 + "age" + ")" * 30 + " > 3",
        "SELECT COUNT(*) FROM visits WHERE " + " OR ".join(f"age < {i}" for i in range(100)),
        f"SELECT COUNT(*) FROM visits WHERE age IN ({', '.join(map(str, range(3000)))})",
        "SELECT COUNT(*) FROM visits WHERE CAST(CAST(CAST(age AS DOUBLE) AS INTEGER) AS DOUBLE) < 3",
    ],
)
def test_what_people_ask_is_within_the_limits(sql, hospital_hub):
    assert hospital_hub.plan("ada", sql).loss.amount


@pytest.mark.parametrize("name", ["decimal", "methods"])
def test_a_policy_with_such_a_rule_is_refused_at_once(name, hospital_hub):
    with hospital_hub.hub.database.writing() as session:
        secret = tokens.make(session, hospital_hub.people["owner"], "t", ["read", "share"], 3)
    web = TestClient(create_app(hospital_hub.hub), headers={"Authorization": f"Bearer {secret}"})
    text = f"""
dataset: visits
purposes: [health-research]
budget: {{lifetime: {{epsilon: 4, delta: 1e-6}}}}
roles:
  guests:
    who: anyone
    may: [see schema, query]
    tables: {{visits: {{rows: "{BOMBS[name]} > 1", transforms: {{age: "{BOMBS[name]}"}}}}}}
"""
    answer = web.put("/api/datasets/visits/policy", json={"text": text, "publish": False})
    assert answer.status_code == 422
    assert "nested too deeply" in answer.text


def test_sql_of_others_is_parsed_in_one_place():
    """`sqlglot.parse*` reads our own SQL elsewhere, or a question that was read here before."""
    own = {
        "query/sql_text.py",
        "query/explain.py",  # statements that we wrote
        "query/prompt.py",  # tokens alone, in the analyst's own terminal
        "lessons/controls/requests.py",  # a question that `ask` has read
        "lessons/controls/cells.py",
        "data/views.py",
        "learn/model_selection/holdout.py",
    }
    call = re.compile(r"sqlglot\.(parse|parse_one|transpile|tokenize)\(|exp\.(maybe_parse|condition)\(")
    found = {str(one.relative_to(SOURCE)) for one in SOURCE.rglob("*.py") if call.search(one.read_text("utf-8"))}
    assert found == own

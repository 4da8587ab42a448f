"""No name that our statements make up can be written in a schema or a question, and any other name is only a name."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister.data.schema import RESERVED, Schema, internal
from cloister.privacy.errors import BadSchema, QueryRefused
from cloister.query.run import _look

SOURCE = Path(cl.__file__).parent
ROOMS = ("data", "query", "learn", "synth", "lessons")
# These name columns of released numbers, in an engine that holds nothing else.
RELEASED = ("query/postprocess.py", "query/question.py", "lessons/controls/cells.py")


def written(node: ast.expr) -> str | None:
    """A name as the source writes it, with 0 for what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else "0" for one in node.values)
    return None


def dotted(function: ast.expr) -> str:
    """`exp.column` as the source writes it; ten times quicker than ast.unparse."""
    if isinstance(function, ast.Attribute):
        return f"{dotted(function.value)}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def calls() -> Iterator[tuple[str, str, list[ast.expr]]]:
    """Every call in the rooms that write SQL: the file, the function, the arguments."""
    files = [SOURCE / "dataset.py", *(path for room in ROOMS for path in sorted((SOURCE / room).rglob("*.py")))]
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = dotted(node.func)
                given = [*node.args, *(one.value for one in node.keywords if one.arg in ("table", "alias"))]
                yield path.relative_to(SOURCE).as_posix(), called, given


INTERNAL = sorted({name for _, called, given in calls() if called == "internal" and (name := written(given[0]))})
NAMES = sorted({*(f"_{name}" for name in INTERNAL), "k0", "n", "x0", "s0", "v0", "_place0", "base", "_CL", "cl_unit"})


def test_every_name_in_a_statement_is_made_in_one_place() -> None:
    makers = {"exp.column": (0, 1), "exp.alias_": (1,), "exp.to_identifier": (0,), "_named": (1,), "_aliased": (1,)}
    makers |= {"say.name": (0,), "self._say.name": (0,)}
    loose = [
        (path, called, name)
        for path, called, given in calls()
        if called in makers and path not in RELEASED
        for place in makers[called]
        if place < len(given)
        and (name := written(given[place])) is not None
        and not name.startswith("0")  # a name that was made before
    ]
    assert loose == []
    assert len(INTERNAL) > 25


@pytest.mark.parametrize("name", [internal("unit"), internal("match").upper(), internal("")])
def test_a_reserved_name_is_refused_in_a_schema(name: str) -> None:
    for table, column, unit in ((name, "x", "p"), ("t", name, "p"), ("t", "x", name)):
        text = {
            "unit": {"name": "person", "max_rows": 1},
            "tables": {table: {"unit": unit, "columns": {column: {"type": "text"}}}},
        }
        with pytest.raises(BadSchema, match=RESERVED):
            Schema.load(text)


# One name at a time.
POSITIONS = {
    "column": 'SELECT g, COUNT(DISTINCT "{}") FROM t GROUP BY g',
    "alias of a group": 'SELECT x AS "{0}", COUNT(*) FROM t GROUP BY "{0}"',
    "name in WITH": 'WITH "{0}" AS (SELECT x FROM t) SELECT SUM(x) FROM "{0}"',
    "name of a table": 'SELECT SUM("{0}".x) FROM t AS "{0}"',
    "name of a public table": 'SELECT COUNT(*) FROM t JOIN w AS "{0}" ON t.g = "{0}".g',
    "name of a subquery": 'SELECT COUNT(*) FROM (SELECT x FROM t WHERE x > 2) AS "{0}"',
}
# All names at once: what is listed for each, and where.
LISTS = {
    "columns in a condition": ('t."{}" >= 0', " AND ", "SELECT COUNT(*), SUM(x) FROM t WHERE {}"),
    "aliases in a subquery": ('x AS "{}"', ", ", "SELECT COUNT(*) FROM (SELECT {}, g FROM t) AS s"),
    "aliases in a public subquery": (
        '1 AS "{}"', ", ", "SELECT COUNT(*) FROM t JOIN (SELECT a.g, {} FROM w AS a) AS s ON t.g = s.g",
    ),
    "aliases over a cross join": (
        '1 AS "{}"', ", ",
        "SELECT COUNT(*) FROM t JOIN (SELECT a.g, {} FROM w AS a CROSS JOIN w AS b CROSS JOIN w AS c) s ON t.g = s.g",
    ),
    "aliases of answers": ('COUNT(*) AS "{}"', ", ", "SELECT {} FROM t HAVING COUNT(*) > 3"),
    "columns in USING": ('"{}"', ", ", "SELECT COUNT(*) FROM t JOIN w USING ({})"),
    "aliases per person": (
        'COUNT(*) AS "{}"', ", ", "SELECT COUNT(*) FROM (SELECT p, g, {} FROM t GROUP BY p, g) AS s",
    ),
    "aliases in a union": (
        'x AS "{}"', ", ", "SELECT COUNT(*) FROM (SELECT {0} FROM t UNION ALL SELECT {0} FROM t) AS s",
    ),
}  # fmt: skip


def listed(where: str, names: list[str]) -> str:
    each, joint, sql = LISTS[where]
    return sql.format(joint.join(map(each.format, names)))


def rows(people: int, heavy: int) -> dict[str, list[Any]]:
    """A row of each person, and some of one more."""
    ids = [f"u{i}" for i in range(people)] + ["one more"] * heavy
    return {"p": ids, "g": ["ab"[i % 2] for i in range(len(ids))], "x": [i % 10 for i in range(len(ids))]} | {
        name: [i % 7 for i in range(len(ids))] for name in NAMES
    }


PUBLIC = {"g": ["a", "b", "a"], **{name: [1, 2, 1] for name in NAMES}}


def schema(by_row: bool) -> dict[str, Any]:
    whole = {"type": "integer", "bounds": [0, 9], "nullable": False}
    columns = {"g": {"type": "text", "categories": ["a", "b"]}, "x": whole, **dict.fromkeys(NAMES, whole)}
    public = {key: value for key, value in columns.items() if key != "x"}
    private = {"columns": columns} if by_row else {"unit": "p", "columns": columns}
    return {
        "unit": "row" if by_row else {"name": "person", "max_rows": 2},
        "tables": {"t": private, "w": {"public": True, "max_rows": 3, "columns": public}},
    }


def in_postgres(address: str, sides: list[dict[str, list[Any]]]) -> list[str]:
    import psycopg

    addresses = []
    with psycopg.connect(address, autocommit=True) as connection:
        for i, side in enumerate(sides):
            connection.execute(f"CREATE SCHEMA side{i}")
            connection.execute(f"SET search_path TO side{i}")
            for name, table in (("t", side), ("w", PUBLIC)):
                kinds = {key: "text" if isinstance(column[0], str) else "bigint" for key, column in table.items()}
                columns = ", ".join(f'"{key}" {kind}' for key, kind in kinds.items())
                connection.execute(f"CREATE TABLE {name} ({columns})")
                with connection.cursor().copy(f"COPY {name} FROM STDIN") as copy:
                    for row in zip(*table.values(), strict=True):
                        copy.write_row(row)
            joint = "&" if "?" in address else "?"
            addresses.append(f"{address}{joint}options=-csearch_path%3Dside{i}")
    return addresses


@pytest.fixture(params=["person", "row"])
def duckdb_pair(request, tmp_path):
    by_row = request.param == "row"
    sides = [rows(30, 0), rows(30, 1 if by_row else 40)]
    return [
        cl.open(
            {"t": pa.table(side), "w": pa.table(PUBLIC)},
            schema=schema(by_row),
            budget=cl.epsilon(1000),
            ledger=tmp_path / str(i),
            threads=1,
        )
        for i, side in enumerate(sides)
    ]


@pytest.fixture(params=["person", "row"])
def postgres_pair(request, tmp_path, postgres_address):
    by_row = request.param == "row"
    places = in_postgres(postgres_address, [rows(30, 0), rows(30, 1 if by_row else 40)])
    made = [
        cl.open(place, schema=schema(by_row), budget=cl.epsilon(1000), ledger=tmp_path / str(i))
        for i, place in enumerate(places)
    ]
    yield made
    for one in made:
        one.close()


def moves(pair: Any, sql: str) -> bool:
    """Whether a question is answered; then one unit moves no statistic further than its sensitivity."""
    try:
        plan, same = (one.plan(sql, spend=cl.epsilon(1)) for one in pair)
    except QueryRefused:
        return False
    left, right = _look(plan, pair[0].tables.engine), _look(same, pair[1].tables.engine)
    most = [one.sensitivity for one in plan.new for _ in one.mechanisms]
    moved = [int(np.abs(np.asarray(a) - np.asarray(b)).sum()) for a, b in zip(left, right, strict=True)]
    assert all(one <= limit for one, limit in zip(moved, most, strict=True)), (sql, moved, most)
    return True


def test_a_name_like_ours_changes_no_sensitivity(duckdb_pair) -> None:
    for sql in POSITIONS.values():
        answered = [moves(duckdb_pair, sql.format(name)) for name in NAMES]
        assert len(set(answered)) == 1, sql
    assert sum(moves(duckdb_pair, listed(where, NAMES)) for where in LISTS) >= 5


def test_a_name_like_ours_changes_no_sensitivity_in_postgresql(postgres_pair) -> None:
    for where in ("column", "alias of a group", "name of a public table"):
        for name in NAMES:
            moves(postgres_pair, POSITIONS[where].format(name))
    assert sum(moves(postgres_pair, listed(where, NAMES)) for where in LISTS) >= 5


def test_a_reserved_name_is_refused_everywhere_in_a_question(duckdb_pair) -> None:
    for name in (internal("match"), internal("unit").upper(), internal("k0")):
        for sql in (*(one.format(name) for one in POSITIONS.values()), *(listed(one, [name]) for one in LISTS)):
            with pytest.raises(QueryRefused, match=RESERVED):
                duckdb_pair[0].plan(sql, spend=cl.epsilon(1))
    with pytest.raises(QueryRefused, match=RESERVED):
        duckdb_pair[0].through({"t": f'SELECT x AS "{internal("unit")}", g FROM t'})

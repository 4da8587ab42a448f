"""Random questions about random databases, beside the same with one unit more: nothing but noise tells them apart.

Every statistic moves by at most its mechanism's sensitivity, in exact arithmetic. Plans, statements, errors, Arrow
schemas, groups, notes, warnings, log records and charges are equal. See `statistical/replay.py` and `query_cases.py`.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume

from cloister.data.schema import Schema
from cloister.data.statistics import Sums
from cloister.data.tables import open_tables
from cloister.dataset import Dataset
from cloister.privacy.errors import QueryRefused
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import epsilon, rho
from cloister.query.aggregate import _RULES
from cloister.query.run import _look

from ..soak import few, randoms, soak, soaked
from ..statistical.replay import Run, Step, differences, reach, record, replay, used
from .query_cases import (
    AGGREGATES,
    INTERNALS,
    Database,
    draw_database,
    draw_question,
    draw_unit,
    learn_internals,
)

LOSSES = [rho("0.1"), epsilon(1), epsilon(1, delta="0.01")]
Opener = Callable[[Database], Any]


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with Ledger.in_folder(tmp_path_factory.mktemp("neighbours")) as ledger:
        found = ledger.open_account("all", epsilon(10**6, delta="0.5"))
        learn_internals(own_words(found))
        yield found


def own_words(account: Account) -> Iterator[str]:
    """Statements of every kind, for the words that they use for themselves."""
    for unit in ("row", {"name": "person", "max_rows": 2}):
        table = {"columns": {"a": {"type": "text", "categories": ["a", "b"]}, "x": {"type": "real", "bounds": [0, 1]}}}
        private = table if unit == "row" else {"unit": "person", **table}
        kinds = {"a": pa.string(), "x": pa.float64()}
        database = Database(
            {"unit": unit, "tables": {"t": private, "w": {"public": True, "max_rows": 2, **table}}},
            {"t": kinds if unit == "row" else {"person": pa.string(), **kinds}, "w": kinds},
            {"t": [], "w": []},
        )
        with opened(database, account) as data:
            for asked in ("COUNT(*)", "COUNT(DISTINCT t.x)", "MEDIAN(t.x)", "AVG(t.x)", "MODE(t.a)"):
                for source in ("t", "t JOIN w ON t.a = w.a", "t JOIN (SELECT q.a FROM w AS q) AS w ON t.a = w.a"):
                    for grouped in ("", " GROUP BY t.a"):
                        yield from data.plan(f"SELECT {asked} AS m FROM {source}{grouped}", spend=rho(1)).statements()


def in_duckdb(database: Database) -> Any:
    return open_tables(database.arrow(), Schema.load(database.schema), threads=1)


IN_POSTGRES = {
    "int64": "bigint", "int8": "smallint", "double": "float8", "float": "float4", "string": "text", "bool": "boolean",
    "date32[day]": "date", "timestamp[us]": "timestamp",
}  # fmt: skip


def in_postgres(address: str) -> Opener:
    """Keep every database in a schema of its own, each with the types that it stores."""
    import psycopg
    from psycopg import sql

    numbers = itertools.count()

    def opener(database: Database) -> Any:
        place = f"side{next(numbers)}"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {place}; SET search_path TO {place}")
            for name, table in database.arrow().items():
                assume("ctid" not in table.schema.names)  # PostgreSQL's own: no table can have it
                columns = [
                    sql.Identifier(field.name) + sql.SQL(f" {IN_POSTGRES[str(field.type)]}") for field in table.schema
                ]
                named = sql.Identifier(name)
                connection.execute(sql.SQL("CREATE TABLE {} ({})").format(named, sql.SQL(", ").join(columns)))
                with connection.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(named)) as copy:
                    for row in zip(*table.to_pydict().values(), strict=True):
                        copy.write_row(row)
        joint = "&" if "?" in address else "?"
        return open_tables(f"{address}{joint}options=-csearch_path%3D{place}", Schema.load(database.schema))

    return opener


def in_spark(session: Any) -> Opener:
    """Hand the rows to a Spark session as frames."""

    def opener(database: Database) -> Any:
        frames = {name: session.createDataFrame(table) for name, table in database.arrow().items()}
        return open_tables(frames, Schema.load(database.schema))

    return opener


@contextlib.contextmanager
def opened(database: Database, account: Account, opener: Opener = in_duckdb) -> Iterator[Dataset]:
    with Dataset(opener(database), account) as data:
        yield data


def shown(plan: Any, *, whole: bool) -> Any:
    """What a caller can read of a plan; the whole text takes as long as everything else together."""
    return (
        str(plan)
        if whole
        else (plan.statements(), plan.notes, plan.loss, [one.parameters() for one in plan.mechanisms])
    )


class Look:
    """A question, or a search for groups or bounds with a question behind it."""

    def __init__(self, r: Random, database: Database) -> None:
        self.spend, self.whole, self.sql = r.choice(LOSSES), r.random() < 0.05, draw_question(r, database)
        table = r.choice(database.private)
        self.column = f"{table}.{r.choice(list(database.schema['tables'][table]['columns']))}"
        self.search = r.choice(["find_keys", "find_bounds"]) if r.random() < 0.08 else ""
        self.plan: Any = None

    def __call__(self, data: Dataset) -> Any:
        found = self.search and getattr(data, self.search)(self.column, spend=epsilon(1, delta="0.01"))
        plan = data.plan(self.sql, spend=self.spend)
        self.plan = self.plan or plan
        return found, shown(plan, whole=self.whole), data.run(plan)

    def __str__(self) -> str:
        return f"{self.search and f'{self.search} {self.column}, then '}{self.sql} -- {self.spend}"

    def apart(self, first: Run, other: Dataset) -> float:
        """How far its exact statistics are apart on a further neighbour, as a share of their sensitivities."""
        if first.error or self.plan.finds or len(first.steps) != len(self.plan.mechanisms):
            return 0.0
        seen = _look(self.plan, other.tables.engine)
        steps = zip(first.steps, seen, strict=True)
        return float(max((used(one, Step(one.mechanism, two, None)) for one, two in steps), default=0))


def check(
    r: Random, account: Account, opener: Opener = in_duckdb, questions: int = 5, units: int = 3
) -> Mapping[str, float]:
    """Ask a database and its neighbours the same questions. Returns how far they were told apart, by question."""
    database = draw_database(r)
    neighbours = [database.joined_by(draw_unit(r, database), r) for _ in range(units)]
    neighbours.append(database.joined_by({}, r))  # the same rows in another order
    found = {}
    with contextlib.ExitStack() as stack:
        data, beside, *others, reordered = [
            stack.enter_context(opened(one, account, opener)) for one in (database, *neighbours)
        ]
        for i in range(questions):
            look = Look(r, database)
            first = record(lambda look=look: look(data), f"{look} {i}", hostile=r.random() < 0.3)
            second = replay(first, lambda look=look: look(beside))
            wrong = differences(first, second)
            assert not wrong, f"{look}\n{database}\n{neighbours[0].rows}"
            shares = [look.apart(first, other) for other in others]
            assert max(shares, default=0) <= 1, f"{look}\n{database}\n{[one.rows for one in neighbours]}"
            assert look.apart(first, reordered) == 0, f"in another order\n{look}\n{database}"
            found[str(look)] = max(reach(first, second), *shares)
    return found


# Where questions have gone wrong before: each once on its own, since chance meets them seldom.


def rows_of(table: str, **columns: list[Any]) -> dict[str, list[dict[str, Any]]]:
    return {table: [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]}


LISTED = {"type": "text", "categories": ["a", "b"]}
BY_ROW = Database(
    {
        "unit": "row",
        "tables": {"t": {"columns": {"g": LISTED}}, "w": {"public": True, "max_rows": 2, "columns": {"g": LISTED}}},
    },
    {"t": {"g": pa.string()}, "w": {"g": pa.string()}},
    {**rows_of("t", g=["a", "b"]), **rows_of("w", g=["a", "b"])},
)
ZEROS = Database(
    {
        "unit": {"name": "person", "max_rows": 1},
        "tables": {"t": {"unit": "person", "columns": {"x": {"type": "real", "bounds": [-10.0, 10.0]}}}},
    },
    {"t": {"person": pa.string(), "x": pa.float64()}},
    rows_of("t", person=[f"{i // 3}" for i in range(36)], x=[[0.0, -0.0, 1.0 + i // 3][i % 3] for i in range(36)]),
)
TRAPS: dict[str, tuple[Database, dict[str, list[dict[str, Any]]], list[str]]] = {
    "a name that statements use": (
        BY_ROW,
        rows_of("t", g=["a"]),
        [
            f'SELECT COUNT(*) AS n FROM t JOIN (SELECT a.g, 1 AS "{name}" FROM w AS a CROSS JOIN w AS b) AS x '
            "ON t.g = x.g"
            for name in ("_match", "_cl_match", "{internal}")
        ],
    ),
    "zeros of both signs": (
        ZEROS,
        rows_of("t", person=["z"], x=[5.0]),
        ["SELECT COUNT(DISTINCT x) AS n FROM t", "SELECT COUNT(DISTINCT x + 0) AS n FROM t"],
    ),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_where_questions_have_gone_wrong_nothing_but_noise_differs(trap: str, account: Account) -> None:
    database, unit, questions = TRAPS[trap]
    for sql in (one.replace("{internal}", name) for one in questions for name in (INTERNALS if "{" in one else [""])):
        assert not told_apart(database, unit, sql, account, seeds=1), sql


# A cap that rests on equality: rows are numbered by what is compared, also where doubles differ and decimals do not.

NETS = [
    "a - b", "a + b", "a * 0.1 - b * 0.1", "(a - b) / 10", "COALESCE(a, b) - b", "-(b - a)", "ABS(b - a)", "a - b + 0",
    "CASE WHEN a > b THEN a - b ELSE b END", "LEAST(a - b, a)", "GREATEST(a - b, 0.0)", "(a - b) * 3", "a",
    "NULLIF(a - b, 0.5)", "a * c - b * c", "LEAST(GREATEST(a - b, -1), 0.35)", "CAST(a - b AS DOUBLE)", "0.1 + 0.2",
]  # fmt: skip
JOINS = [
    "t {join} (SELECT {net} AS net, c FROM w) AS q ON t.k = q.net",
    "t {join} (SELECT {net} AS net, c FROM w) AS q ON q.net = t.k + 0",
    "t {join} (SELECT {net} AS net, c FROM w) AS q ON t.k - 0.1 = q.net AND q.c = t.n",
    "t {join} (SELECT {net} AS net, c FROM w) AS q ON t.k * 1 = q.net AND (t.n > q.c OR t.n <= q.c)",
    "(SELECT k AS net, n FROM t) AS t {join} (SELECT {net} AS net, c FROM w) AS q USING (net)",
    "(SELECT k * 1 AS net, n FROM t) AS t {join} (SELECT {net} AS net, c FROM w) AS q USING (net)",
    "t {join} (SELECT {net} AS net, c FROM w) AS q ON q.net = 0.1",
    "t {join} (SELECT net, c FROM (SELECT {net} AS net, c FROM w) AS i UNION ALL SELECT {net}, c FROM w) AS q "
    "ON t.k = q.net",
]


def draw_prices(r: Random) -> Database:
    """Rows with a price, and a public table of pairs of prices of which many have one difference, as decimals."""
    scale, most = r.choice([1, 1, 2, 3]), r.choice([1, 1, 2])
    price, reach = pa.decimal128(15, scale), 10 ** r.choice([2, 5, 9])
    step = Decimal(1).scaleb(-scale)
    nets = [step * r.choice([1, 3, 7, 10]) for _ in range(2)]
    pairs = [(net, step * r.randrange(reach * 10**scale // 2)) for net in nets for _ in range(8)]
    listed = [{"a": base + net, "b": base, "c": r.choice([1, 1, 2, 10])} for net, base in pairs]
    rows = [{"k": r.choice([*nets, nets[0] + step]), "n": r.choice([1, 2])} for _ in range(3)]
    bounds = {"type": "real", "bounds": [-float(reach), float(reach)]}
    whole = {"type": "integer", "bounds": [0, 10]}
    schema = {
        "unit": "row",
        "tables": {
            "t": {"columns": {"k": bounds, "n": whole}},
            "w": {"public": True, "max_rows": most, "columns": {"a": bounds, "b": bounds, "c": whole}},
        },
    }
    stored = {"t": {"k": price, "n": pa.int64()}, "w": {"a": price, "b": price, "c": pa.int64()}}
    return Database(schema, stored, {"t": rows, "w": listed})


def in_parquet(folder: Path) -> Opener:
    """Keep every table in a file, which declares decimals."""
    numbers = itertools.count()

    def opener(database: Database) -> Any:
        files = {}
        for name, table in database.arrow().items():
            files[name] = folder / f"{name}{next(numbers)}.parquet"
            pq.write_table(table, files[name])
        return open_tables(files, Schema.load(database.schema), threads=1)

    return opener


def joined_by_a_price(r: Random, account: Account, opener: Opener) -> dict[str, float]:
    """How far one row moves a question about a join by prices, as a share of what is allowed."""
    database = draw_prices(r)
    unit = {"t": [{"k": r.choice(database.rows["t"])["k"], "n": r.choice([1, 2])}]}
    found = {}
    with contextlib.ExitStack() as stack:
        sides = [database, database.joined_by(unit, r)]
        data, beside = [stack.enter_context(opened(one, account, opener)) for one in sides]
        for _ in range(6):
            source = r.choice(JOINS).format(net=r.choice(NETS), join=r.choice(["JOIN", "LEFT JOIN"]))
            sql = f"SELECT COUNT(*) AS n, SUM(t.n) AS s, COUNT(DISTINCT t.n) AS d FROM {source}"
            try:
                plan, same = [one.plan(sql, spend=epsilon(1)) for one in (data, beside)]
            except QueryRefused:
                continue
            assert str(plan) == str(same)
            looks = zip(plan.mechanisms, *(_look(plan, one.tables.engine) for one in (data, beside)), strict=True)
            moved = max(float(used(Step(noise, one, None), Step(noise, two, None))) for noise, one, two in looks)
            assert moved <= 1, f"{sql}\n{database}\n{unit}"
            found[sql] = moved
    return found


@pytest.mark.parametrize("cases", [6, 12])
def test_a_row_joined_by_computed_prices_moves_no_more_than_is_planned(
    cases: int, account: Account, tmp_path: Path
) -> None:
    opener, reached = in_parquet(tmp_path), dict[str, float]()
    few(cases, randoms)(lambda r: reached.update(joined_by_a_price(r, account, opener)))()
    assert len(reached) > 2.5 * cases
    assert sum(share == 1 for share in reached.values()) > len(reached) / 10, "the row is hardly seen"


@soaked
def test_a_row_joined_by_computed_prices_soaked(account: Account, tmp_path: Path) -> None:
    opener, reached = in_parquet(tmp_path), dict[str, float]()
    soak(lambda r: reached.update(joined_by_a_price(r, account, opener)), randoms)


def told_apart(database: Database, unit: Any, sql: str, account: Account, seeds: int = 2) -> list[str]:
    """What differs between a database, the same in another order, and the same with one unit more."""
    found = []
    for seed in range(seeds):
        r = Random(seed)
        others = [database.joined_by({}, r), database.joined_by(unit, r)]
        with contextlib.ExitStack() as stack:
            data, *beside = [stack.enter_context(opened(one, account)) for one in (database, *others)]
            for one in (data, *beside):
                one.catalog.secret = f"{seed:032d}"
            first = record(lambda data=data: data.sql(sql, spend=rho(1)), seed)
            again, more = [replay(first, lambda one=one: one.sql(sql, spend=rho(1))) for one in beside]
            found += differences(first, again) + differences(first, more)
            found += ["the order of rows is seen"] if reach(first, again) else []
    return found


# The comparison has power: faults that planners have had, each put into the real code.


def test_a_cap_that_is_forgotten_is_found(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Sums._weight
    monkeypatch.setattr(Sums, "_weight", lambda self, say: (str(Sums.unit_weight.fget(self)), right(self, say)[1]))
    unit = rows_of("t", person=["z"] * 5, x=[5.0] * 5)
    assert told_apart(ZEROS, unit, "SELECT COUNT(*) AS n FROM t", account)


def test_a_plan_that_shows_a_row_is_found(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Dataset.plan

    def told(self: Dataset, sql: Any, **more: Any) -> Any:
        plan = right(self, sql, **more)
        size = self.tables.engine.run("SELECT COUNT(*) AS n FROM t").column("n")[0].as_py()
        return replace(plan, notes=(*plan.notes, f"{size} rows"))

    monkeypatch.setattr(Dataset, "plan", told)
    assert told_apart(ZEROS, rows_of("t", person=["z"], x=[5.0]), "SELECT COUNT(*) AS n FROM t", account)


def test_every_aggregate_that_is_offered_is_asked_for() -> None:
    assert set(AGGREGATES) == set(_RULES)


REACHED: dict[str, float] = {}


@pytest.mark.parametrize("cases", [6, 30])
def test_neighbours_in_duckdb_differ_in_noise_alone(cases: int, account: Account) -> None:
    REACHED.clear()
    few(cases, randoms)(lambda r: REACHED.update(check(r, account)))()
    assert len(REACHED) > 2.5 * cases
    assert sum(share == 1 for share in REACHED.values()) > len(REACHED) / 10, "the units are hardly seen"


@pytest.mark.e2e
def test_neighbours_in_postgres_differ_in_noise_alone(account: Account, postgres_address: str) -> None:
    opener, reached = in_postgres(postgres_address), dict[str, float]()
    few(6, randoms)(lambda r: reached.update(check(r, account, opener)))()
    assert len(reached) > 15
    assert sum(share == 1 for share in reached.values()) > len(reached) / 10, "the units are hardly seen"


@soaked  # minutes on two cores
@pytest.mark.e2e
def test_neighbours_in_spark_differ_in_noise_alone(account: Account, spark: Any) -> None:
    opener, reached = in_spark(spark), dict[str, float]()
    few(1, randoms)(lambda r: reached.update(check(r, account, opener, questions=4, units=1)))()
    assert len(reached) > 2


@soaked
@pytest.mark.e2e
def test_neighbours_in_postgres_soaked(account: Account, postgres_address: str) -> None:
    opener = in_postgres(postgres_address)
    soak(lambda r: check(r, account, opener), randoms)


@soaked
def test_neighbours_in_duckdb_soaked(account: Account) -> None:
    soak(lambda r: check(r, account), randoms)

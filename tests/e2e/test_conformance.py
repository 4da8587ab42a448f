"""The same questions of the same rows in DuckDB, PostgreSQL and Spark: the exact integers agree to the last digit."""

import datetime as dt
import math
import random

import numpy as np
import pyarrow as pa
import pytest
import sqlglot

import cloister.query.aggregate
import cloister.query.expression
from cloister.data.statistics import WEIGHT
from cloister.dataset import open as open_dataset
from cloister.privacy.loss import rho
from cloister.query.run import _look

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("spark")]

WARDS = ("cardio", "Surgery", "o'neil", "élan", "x%y_z")
CAP = 8
BIG = 10**12
COLUMNS = {
    "ward": {"type": "text", "categories": list(WARDS)},
    "age": {"type": "integer", "bounds": [0, 100]},
    "balance": {"type": "integer", "bounds": [-BIG, BIG]},
    "stay": {"type": "real", "bounds": [0, 60]},
    "score": {"type": "real", "bounds": [-1000, 1000]},
    "huge": {"type": "real", "bounds": [-1e30, 1e30]},
    "smoker": {"type": "boolean"},
    "admitted": {"type": "date", "bounds": ["2024-01-01", "2026-12-31"]},
    "seen": {"type": "timestamp", "bounds": ["2025-01-01T00:00:00", "2025-12-31T23:59:59"]},
    "note": {"type": "text"},
    "code": {"type": "integer", "categories": [1, 2, 3]},
    "free": {"type": "real"},
    "n": {"type": "integer"},
}
LABS = {"test": {"type": "text", "categories": ["hb", "crp"], "nullable": False},
        "result": {"type": "real", "bounds": [0, 200]}}  # fmt: skip
PUBLIC = {
    "public": True,
    "columns": {
        "ward": {"type": "text", "categories": list(WARDS)},
        "level": {"type": "integer", "bounds": [0, 9]},
        "beds": {"type": "real", "bounds": [0, 50]},
    },
}
BY_PERSON = {
    "unit": {"name": "patient", "max_rows": CAP},
    "tables": {
        "visits": {"unit": "patient", "columns": COLUMNS},
        "labs": {"unit": "patient", "columns": LABS},
        "wards": PUBLIC,
    },
}
BY_ROW = {"unit": "row", "tables": {"visits": {"columns": COLUMNS}, "wards": {**PUBLIC, "max_rows": 1}}}

# Numbers at which engines part: PostgreSQL makes errors of overflow and underflow, Spark of a FLOOR beyond 64 bits.
ODD = (math.nan, math.inf, -math.inf, 5e-324, -5e-324, 1e-310, 1e-200, -1e-200, 0.0, -0.0, 0.5, -0.5, 2.5, -2.5, 49.0,
       1e308, -1.7976931348623157e308, 0.1, 0.30000000000000004, 1e40, -1e29, 2.0**53 + 2, 9.3e18, None)  # fmt: skip
NOTES = (None, "", "Äpfel", "apple", "APPLE", "a\\b", "a%b", "😀smile", "line\nbreak", "ß", "İ", "zzz", "a'b", '"q',
         "-- x")  # fmt: skip


def visits():
    chance = random.Random(11)
    days, moments = dt.date(2025, 1, 1), dt.datetime(2025, 1, 1)
    rows = []
    for i in range(900):
        ordinary = chance.randrange(3, 150)
        rows.append(
            {
                "patient": None if i % 97 == 0 else 1 if i % 7 == 0 else 2 if i % 11 == 0 else ordinary,
                "ward": chance.choice((*WARDS, None, "other", "")),
                "age": chance.choice((None, -9, 0, 101, 49, *range(18, 95))),
                "balance": chance.choice((None, BIG, -BIG, 10**15, -(10**15), chance.randrange(-BIG, BIG))),
                "stay": chance.choice((None, chance.uniform(0, 60), chance.random() / 1000, 61.0, -1.0)),
                "score": chance.choice(ODD) if i % 2 else chance.gauss(0, 300),
                "huge": chance.choice(ODD),
                "smoker": chance.choice((True, False, None)),
                "admitted": chance.choice((None, dt.date(2024, 2, 29), dt.date(1999, 1, 1), dt.date(2031, 1, 1),
                                           days + dt.timedelta(chance.randrange(365)))),
                "seen": chance.choice((None, dt.datetime(2025, 3, 9, 2, 30), dt.datetime(2026, 1, 1),
                                       moments + dt.timedelta(seconds=chance.randrange(365 * 86400)))),
                "note": chance.choice(NOTES),
                "code": chance.choice((None, 1, 2, 3, 4)),
                "free": chance.choice(ODD),
                "n": chance.choice((None, 2**63 - 1, -(2**63) + 1, 0, 1, -1, 2**53 + 1, 7)),
            }
        )  # fmt: skip
    kinds = {"text": pa.string(), "integer": pa.int64(), "real": pa.float64(), "boolean": pa.bool_(),
             "date": pa.date32(), "timestamp": pa.timestamp("us")}  # fmt: skip
    fields = [("patient", pa.int64()), *((name, kinds[column["type"]]) for name, column in COLUMNS.items())]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


def labs():
    chance = random.Random(12)
    people = [chance.choice((1, 2, chance.randrange(3, 150))) for _ in range(200)]
    tests, results = [chance.choice(("hb", "crp")) for _ in people], [chance.uniform(0, 210) for _ in people]
    return pa.table({"patient": people, "test": tests, "result": results})


TABLES = {
    "visits": visits(),
    "labs": labs(),
    "wards": pa.table(
        {
            "ward": ["cardio", "cardio", "Surgery", "élan", None],
            "level": [2, 1, 2, 3, 4],
            "beds": [20.0, None, 10.5, 7.25, 1.0],
        }
    ),
}


def questions(text):
    """Questions by name: each begins with its name in a comment."""
    blocks = [block.removeprefix("-- ").partition("\n") for block in text.strip().split("\n\n")]
    return {name: sql for name, _, sql in blocks}


QUESTIONS = questions(r"""
-- aggregates of an integer
SELECT COUNT(*), COUNT(age), SUM(age), AVG(age), VARIANCE(age), STDDEV(age), VAR_POP(age), STDDEV_POP(age),
  STDDEV_SAMP(age), MIN(age), MAX(age), MEDIAN(age), QUANTILE(age, 0.9) FROM visits

-- aggregates of a real with tiny values
SELECT SUM(score), AVG(score), VARIANCE(score), PERCENTILE_CONT(0.1) WITHIN GROUP (ORDER BY score) FROM visits

-- aggregates of numbers near their bounds
SELECT SUM(huge), AVG(huge), VARIANCE(huge), MEDIAN(huge), SUM(balance), AVG(balance), VARIANCE(balance) FROM visits

-- groups by text
SELECT ward, COUNT(*), SUM(stay), MODE(code) FROM visits GROUP BY ward

-- people by group
SELECT ward, smoker, COUNT(DISTINCT patient) FROM visits GROUP BY ward, smoker

-- different values
SELECT ward, COUNT(DISTINCT age), COUNT(DISTINCT note), COUNT(DISTINCT admitted) FROM visits GROUP BY ward

-- groups by integers, listed and not
SELECT code, age, COUNT(*) FROM visits GROUP BY code, age

-- groups by parts of a date
SELECT EXTRACT(YEAR FROM admitted), EXTRACT(QUARTER FROM admitted), MONTH(admitted), DAY(admitted), COUNT(*)
FROM visits GROUP BY 1, 2, 3, 4

-- groups by parts of a moment
SELECT YEAR(seen), EXTRACT(HOUR FROM seen), COUNT(*) FROM visits GROUP BY 1, 2

-- groups by truth values and CASE
SELECT smoker, age >= 65 AS old, CASE WHEN age < 18 THEN 'child' WHEN age < 65 THEN 'adult' END AS g,
  CASE ward WHEN 'élan' THEN 1 WHEN 'cardio' THEN 2 ELSE 0 END AS w, SUM(balance) FROM visits GROUP BY 1, 2, 3, 4

-- groups by expressions
SELECT FLOOR(age / 10) * 10 AS decade, CEIL(stay / 30), ROUND(stay / 7), CAST(stay / 20 AS INTEGER), COUNT(*)
FROM visits GROUP BY 1, 2, 3, 4

-- groups by remainders of negative numbers and by buckets
SELECT (age - 50) % 7, n % 5, WIDTH_BUCKET(age, 0, 98, 2), WIDTH_BUCKET(score, -5, 60, 13), COUNT(*)
FROM visits GROUP BY 1, 2, 3, 4

-- groups by text functions
SELECT UPPER(ward), SUBSTRING(LOWER(ward), 1, 2), LENGTH(ward), COUNT(*) FROM visits GROUP BY 1, 2, 3

-- groups that the question lists
SELECT note, COUNT(*) FROM visits WHERE note IN ('apple', 'a''b', '😀smile', 'a\b', '"q', '-- x') GROUP BY note

-- conditions on numbers
SELECT COUNT(*), SUM(age = 49), SUM(age <> 49), SUM(stay > 0.30000000000000004), SUM(stay >= 60), SUM(score < 0.3),
  SUM(score <= 1e-200), SUM(age BETWEEN 20 AND 30.5), SUM(age IN (0, 100)), SUM(n = 9007199254740993),
  SUM(n > 9007199254740992.5), SUM(free > 1e99), SUM(patient % 3 = 1), SUM(score = 0.1), SUM(huge = -1e29)
FROM visits WHERE balance > -100000 * 100000 OR balance IS NULL

-- conditions on text
SELECT SUM(note LIKE '_smile'), SUM(note LIKE 'a%b'), SUM(note LIKE 'line_break'), SUM(note NOT LIKE 'a%'),
  SUM(note = 'a\b'), SUM(note < 'a'), SUM(note >= 'z'), SUM(LOWER(note) = 'apple'), COUNT(NULLIF(UPPER(note), 'SS')),
  SUM(LOWER(note) <> 'äpfel'), SUM(SUBSTRING(note, 2, 3) = 'smi'), SUM(LENGTH(note) = 1), SUM(ward LIKE 'x_y%'),
  SUM(ward > 'o') FROM visits WHERE note <> 'zzz'

-- conditions on dates and moments
SELECT SUM(admitted BETWEEN '2024-06-01' AND DATE '2025-06-30'), SUM(seen >= '2025-03-09'), SUM(seen > admitted),
  SUM(admitted IN ('2024-02-29', '2026-12-31')) FROM visits WHERE seen < '2025-12-01'

-- conditions with NULL
SELECT SUM(smoker), AVG(smoker), SUM(smoker AND age > 50), SUM(smoker OR age > 50), SUM(NOT smoker),
  SUM(smoker = TRUE), SUM(IF(smoker, NULL, 3)), COUNT(NULLIF(code, 2)), SUM(COALESCE(smoker, age > 50, FALSE))
FROM visits WHERE NOT (smoker AND ward = 'cardio') OR ward IS NOT NULL

-- arithmetic with bounds
SELECT SUM(score * score), SUM(score * 0.1), SUM(score * stay), SUM(score / 7), SUM(-score), SUM(ABS(score)),
  SUM(ABS(balance) - balance), SUM((score - 0.1) * (score - 0.1) * 1e-50), SUM(score / 3 / 9 + age * 2),
  SUM(CAST(age AS DOUBLE) / 8) FROM visits

-- arithmetic without bounds
SELECT SUM(stay / age > 1), SUM(score / huge > 1e-300), SUM(free / n < 1e-50), SUM(1 / score > 5),
  SUM(free * free > 0.2), SUM(free + free < 1), SUM(free - n < -1e99), SUM(n * n * n > 0)
FROM visits WHERE free * free * free < 1e99

-- whole parts of large numbers
SELECT SUM(FLOOR(free) >= 9.2e18), SUM(CEIL(huge) = 1), SUM(ROUND(huge) = 9007199254740994) FROM visits

-- functions
SELECT SUM(SQRT(age)), SUM(SQRT(score)), COUNT(SQRT(score)), SUM(LN(stay)), COUNT(LN(score)), SUM(LN(1 + age)),
  SUM(LEAST(age, 50)), SUM(GREATEST(score, stay, 0)), SUM(LEAST(age, stay)), SUM(COALESCE(age, 40)),
  SUM(COALESCE(age, stay, 0)), SUM(NULLIF(age, 0)), SUM(NULLIF(stay, 60)), SUM(LEAST(LENGTH(note), 20)) FROM visits

-- integers beyond 32 bits
SELECT SUM((CASE WHEN smoker THEN 2000000000 ELSE 0 END) * 2), SUM((smoker + 1) * 3000000000),
  SUM(2000000000 + 2000000000) FROM visits

-- a join with a public table
SELECT level, COUNT(*), SUM(beds) FROM visits JOIN wards ON visits.ward = wards.ward GROUP BY level

-- a left join with a public table
SELECT level, COUNT(*), COUNT(DISTINCT patient) FROM visits LEFT JOIN wards USING (ward) GROUP BY level

-- a join of private tables
SELECT test, COUNT(*), SUM(result), AVG(stay) FROM visits JOIN labs ON visits.patient = labs.patient GROUP BY test

-- a left join of private tables
SELECT COUNT(*), SUM(age) FROM visits AS v LEFT JOIN labs AS l ON v.patient = l.patient AND l.result > 100
WHERE l.test IS NULL

-- a cross join
SELECT COUNT(*), SUM(beds) FROM visits CROSS JOIN wards WHERE beds > 8

-- UNION ALL
SELECT COUNT(*), SUM(x) FROM (SELECT stay AS x FROM visits UNION ALL SELECT result AS x FROM labs) AS u

-- WITH
WITH recent AS (SELECT * FROM visits WHERE admitted >= '2025-01-01'),
  old AS (SELECT ward, stay, age + 1 AS a FROM recent WHERE age > 60)
SELECT ward, COUNT(*), AVG(stay), SUM(a) FROM old GROUP BY ward

-- one row per person
SELECT SUM(LEAST(c, 50)), SUM(LEAST(GREATEST(s, -500), 500)), SUM(a), SUM(lo), SUM(hi),
  SUM(s / c > 1)
FROM (SELECT patient, COUNT(*) AS c, SUM(score) AS s, AVG(huge) AS a, MIN(score) AS lo, MAX(age) AS hi
      FROM visits GROUP BY patient) AS p WHERE c > 1

-- one row per person and ward
SELECT ward, COUNT(*), SUM(LEAST(GREATEST(s, 0), 1e13))
FROM (SELECT patient, ward, SUM(balance) AS s FROM visits GROUP BY patient, ward) AS p GROUP BY ward

-- ROLLUP
SELECT ward, smoker, COUNT(*), SUM(age) FROM visits GROUP BY ROLLUP (ward, smoker)

-- GROUPING SETS
SELECT ward, smoker, COUNT(*) FROM visits GROUP BY GROUPING SETS ((ward), (smoker))

-- HAVING, ORDER BY and LIMIT
SELECT ward, SUM(stay) / COUNT(*) AS mean FROM visits GROUP BY ward HAVING COUNT(*) > 10 ORDER BY mean DESC LIMIT 2
""")

ROW_QUESTIONS = questions("""
-- the number of rows
SELECT COUNT(*) FROM visits

-- sums
SELECT ward, COUNT(*), SUM(balance), SUM(score), VARIANCE(huge) FROM visits GROUP BY ward

-- a join that copies no row
SELECT level, COUNT(*), SUM(beds) FROM visits LEFT JOIN wards ON visits.ward = wards.ward GROUP BY level

-- every row twice
SELECT COUNT(*), SUM(x) FROM (SELECT age AS x FROM visits UNION ALL SELECT code + 0 AS x FROM visits) AS u
""")

CAPPED = questions("""
-- rows
SELECT COUNT(*) FROM visits WHERE patient = 1

-- groups and sums
SELECT ward, smoker, COUNT(*), SUM(balance), SUM(score), AVG(huge), VARIANCE(age) FROM visits WHERE patient = 1
GROUP BY ward, smoker

-- a join
SELECT test, COUNT(*), SUM(result), SUM(balance) FROM visits JOIN labs ON visits.patient = labs.patient
WHERE visits.patient = 1 GROUP BY test

-- people in groups
SELECT age, COUNT(DISTINCT patient) FROM visits WHERE patient = 1 GROUP BY age

-- different values
SELECT ward, COUNT(DISTINCT score) FROM visits WHERE patient = 1 GROUP BY ward

-- a quantile
SELECT MEDIAN(balance) FROM visits WHERE patient = 1
""")


def in_postgres(address):
    """The tables in a schema of their own."""
    psycopg = pytest.importorskip("psycopg")
    kinds = {"int64": "bigint", "string": "text", "double": "float8", "bool": "boolean", "date32[day]": "date",
             "timestamp[us]": "timestamp"}  # fmt: skip
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS conformance CASCADE; CREATE SCHEMA conformance")
        connection.execute("SET search_path TO conformance")
        for name, table in TABLES.items():
            columns = ", ".join(f"{field.name} {kinds[str(field.type)]}" for field in table.schema)
            connection.execute(f"CREATE TABLE {name} ({columns})")
            with connection.cursor().copy(f"COPY {name} FROM STDIN") as copy:
                for row in zip(*table.to_pydict().values(), strict=True):
                    copy.write_row(row)
    return address + ("&" if "?" in address else "?") + "options=-csearch_path%3Dconformance"


SETTINGS = {
    "spark.sql.timestampType": "TIMESTAMP_NTZ",  # an Arrow timestamp without a zone is no moment in New York
    "spark.sql.adaptive.enabled": "false",  # these only make small statements faster
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="module")
def sources(postgres_server, spark):
    """The tables where each engine finds them."""
    before = {name: spark.conf.get(name) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    frames = {name: spark.createDataFrame(table) for name, table in TABLES.items()}
    yield {"duckdb": TABLES, "postgres": in_postgres(postgres_server), "spark": frames}
    for name, value in before.items():
        spark.conf.set(name, value)


def opened(sources, schema, folder):
    """A dataset in each engine, on one ledger, whose key chooses where a person has too many different values."""
    found = {}
    for engine, source in sources.items():
        given = source if isinstance(source, str) else {name: source[name] for name in schema["tables"]}
        found[engine] = open_dataset(given, schema=schema, budget=rho(1000), ledger=folder)
    return found


@pytest.fixture(scope="module")
def by_person(sources, tmp_path_factory):
    found = opened(sources, BY_PERSON, tmp_path_factory.mktemp("person"))
    yield found
    for dataset in found.values():
        dataset.close()


@pytest.fixture(scope="module")
def by_row(sources, tmp_path_factory):
    found = opened(sources, BY_ROW, tmp_path_factory.mktemp("row"))
    yield found
    for dataset in found.values():
        dataset.close()


def exact(dataset, sql):
    """The integers to which noise would be added, with the plan."""
    plan = dataset.plan(sql, spend=rho(1))
    return plan, _look(plan, dataset.tables.engine)


def same_everywhere(datasets, sql):
    numbers = {engine: [part.tolist() for part in exact(dataset, sql)[1]] for engine, dataset in datasets.items()}
    assert numbers["postgres"] == numbers["duckdb"]
    assert numbers["spark"] == numbers["duckdb"]
    assert all(np.any(part) for part in numbers["duckdb"]), "a statistic that is zero everywhere compares nothing"


@pytest.mark.parametrize("sql", QUESTIONS.values(), ids=QUESTIONS)
def test_the_exact_integers_are_the_same_in_every_engine(sql, by_person):
    same_everywhere(by_person, sql)


@pytest.mark.parametrize("sql", ROW_QUESTIONS.values(), ids=ROW_QUESTIONS)
def test_they_are_the_same_where_the_unit_is_the_row(sql, by_row):
    same_everywhere(by_row, sql)


def test_every_construct_of_the_language_is_asked():
    asked = {type(node) for sql in QUESTIONS.values() for node in sqlglot.parse_one(sql, read="duckdb").walk()}
    offered = {*cloister.query.expression.RULES, *cloister.query.aggregate._RULES}
    assert not offered - asked


# The cap

ROWS_OF_ONE = sum(patient == 1 for patient in TABLES["visits"].column("patient").to_pylist())


@pytest.mark.parametrize("sql", CAPPED.values(), ids=CAPPED)
def test_one_person_never_adds_more_than_the_stated_sensitivity(sql, by_person):
    for dataset in by_person.values():
        plan, parts = exact(dataset, sql)
        limits = [one.sensitivity for one in plan.measurements for _ in range(one.parts)]
        assert [limit for limit, part in zip(limits, parts, strict=True) if not 0 < np.abs(part).sum() <= limit] == []


def test_the_rows_of_a_person_with_many_share_the_cap_evenly(by_person):
    assert ROWS_OF_ONE > 10 * CAP
    for dataset in by_person.values():
        assert exact(dataset, CAPPED["rows"])[1][0].tolist() == [ROWS_OF_ONE * (WEIGHT * CAP // ROWS_OF_ONE)]

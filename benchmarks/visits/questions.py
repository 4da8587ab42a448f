"""Visits of patients, made by DuckDB, and the questions: in the analyst's SQL and in SQL written by hand."""

from pathlib import Path

import duckdb

# Everything is a hash of the row's number. A person has five rows on average; one in ten has more than eight.
_VISITS = """CREATE TABLE visits AS SELECT
  CAST(FLOOR({people} * POW(hash(i * 8 + 1) / 18446744073709551616.0, 1.5)) AS BIGINT) AS person,
  'ward ' || CHR(CAST(65 + hash(i * 8 + 2) % 4 AS INTEGER)) AS ward,
  CAST(hash(i * 8 + 3) % 8 AS INTEGER) AS region,
  -3000 * LN((hash(i * 8 + 4) + 1.0) / 18446744073709551617.0) AS cost,
  CAST(hash(i * 8 + 5) % 1000000 AS INTEGER) AS code
FROM range({rows}) AS numbers(i)"""
_WARDS = """CREATE TABLE wards AS SELECT
  'ward ' || CHR(CAST(65 + i AS INTEGER)) AS ward, CAST(i % 2 AS INTEGER) AS floor FROM range(4) AS numbers(i)"""
_PATIENTS = """CREATE TABLE patients AS SELECT
  i AS person, CAST(hash(i) % 2 AS INTEGER) AS smoker FROM range({people}) AS numbers(i)"""

_COLUMNS = {
    "ward": {"type": "text", "categories": [f"ward {letter}" for letter in "ABCD"]},
    "region": {"type": "integer", "bounds": [0, 7]},
    "cost": {"type": "real", "bounds": [0, 20000]},
    "code": {"type": "integer", "bounds": [0, 999_999], "nullable": False},
}
_PUBLIC = {"public": True, "columns": {"ward": _COLUMNS["ward"], "floor": {"type": "integer", "bounds": [0, 1]}}}
_PATIENT = {"unit": "person", "columns": {"smoker": {"type": "integer", "bounds": [0, 1]}}}
SCHEMAS = {
    "row": {"unit": "row", "tables": {"visits": {"columns": _COLUMNS}, "wards": _PUBLIC}},
    "person": {
        "unit": {"name": "person", "max_rows": 8},
        "tables": {"visits": {"unit": "person", "columns": _COLUMNS}, "patients": _PATIENT, "wards": _PUBLIC},
    },
}

# Each beside the fastest SQL we found for the same clipped statistic. DuckDB clips quicker with CASE than with LEAST.
_COST = "CASE WHEN cost < 0 THEN 0 WHEN cost > 20000 THEN 20000 ELSE cost END"
_REGION = "CASE WHEN region < 0 THEN 0 WHEN region > 7 THEN 7 ELSE region END AS region"
QUESTIONS = {
    "count": ("SELECT COUNT(*) FROM visits", "SELECT COUNT(*) FROM visits"),
    "mean": ("SELECT AVG(cost) FROM visits", f"SELECT SUM({_COST}), COUNT(cost) FROM visits"),
    "histogram": (
        "SELECT WIDTH_BUCKET(cost, 0, 20000, 20) AS bin, COUNT(*) FROM visits GROUP BY bin",
        f"SELECT CAST(FLOOR({_COST} * 0.001) AS UTINYINT) AS bin, COUNT(*) FROM visits GROUP BY bin",
    ),
    "groups": (
        "SELECT ward, region, COUNT(*), SUM(cost) FROM visits GROUP BY ward, region",
        f"SELECT ward, {_REGION}, COUNT(*), SUM({_COST}) FROM visits GROUP BY ALL",
    ),
    "median": (
        "SELECT MEDIAN(cost) FROM visits",
        f"SELECT CAST(FLOOR({_COST} * 0.2048) AS USMALLINT) AS leaf, COUNT(*) FROM visits GROUP BY leaf",
    ),
    "join": (
        "SELECT floor, COUNT(*) FROM visits JOIN wards ON visits.ward = wards.ward GROUP BY floor",
        "SELECT floor, COUNT(*) FROM visits JOIN wards USING (ward) GROUP BY floor",
    ),
}
PRIVATE_JOIN = "SELECT smoker, COUNT(*) FROM visits JOIN patients ON visits.person = patients.person GROUP BY smoker"
GROUP_BY_PERSON = "SELECT person, COUNT(*) FROM visits GROUP BY person"
MILLION = "SELECT code, COUNT(*) FROM visits GROUP BY code"


def database(folder: Path, rows: int) -> Path:
    """The file of that many visits, made if it is not there."""
    path = folder / f"visits{short(rows)}.duckdb"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        half_made = path.with_suffix(".part")
        half_made.unlink(missing_ok=True)
        with duckdb.connect(half_made, config={"preserve_insertion_order": "false"}) as made:
            for statement in (_VISITS, _WARDS, _PATIENTS):
                made.execute(statement.format(rows=rows, people=rows // 5))
        half_made.rename(path)
    return path


def parquet(folder: Path, rows: int) -> Path:
    """The same for libraries that read no DuckDB file."""
    path = database(folder, rows).with_suffix(".parquet")
    if not path.exists():
        with duckdb.connect(database(folder, rows), read_only=True) as source:
            source.execute(f"COPY (SELECT person, ward, region, cost FROM visits) TO '{path}' (FORMAT parquet)")
    return path


def short(rows: int) -> str:
    """1e5 for 100,000."""
    return f"{rows:.0e}".replace("+0", "")

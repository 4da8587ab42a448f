"""A schema is read strictly, written back the same, and scolded for everything at once."""

import subprocess
import sys
from datetime import date, datetime

import pytest
from click.testing import CliRunner

from cloister.cli import main
from cloister.data import Column, ForeignKey, Schema, Table
from cloister.privacy.errors import BadSchema
from cloister.privacy.unit import ROW, Unit

GOOD = """
unit: {name: patient, max_rows: 8}
tables:
  visits:
    unit: patient_id
    rows: 100000
    max_rows: 5
    columns:
      ward: {type: text, categories: [cardiology, "no", ö'"]}
      stay_days: {type: integer, bounds: [0, 60]}
      cost: {type: real, bounds: [0, 1e5]}
      code: {type: integer, categories: [1, 2, 3]}
      admitted: {type: date, bounds: [2020-01-01, 2026-12-31], nullable: false}
      seen: {type: timestamp, bounds: [2020-01-01T02:00:00+02:00, "2026-12-31"]}
      urgent: {type: boolean}
      note: {type: text}
  wards:
    public: true
    columns:
      ward: {type: text}
foreign_keys: [visits.ward -> wards.ward]
"""


def problems(text, **changes):
    with pytest.raises(BadSchema) as caught:
        Schema.load(text, **changes).check()
    return [line.partition(". ")[2].rstrip(".") for line in str(caught.value).splitlines()[1:-1]]


def test_a_schema_is_read_as_it_is_written():
    schema = Schema.load(GOOD)
    schema.check()
    visits = schema.tables["visits"]
    assert schema.unit == Unit("patient", 8)
    assert (visits.unit, visits.rows, visits.max_rows, visits.public) == ("patient_id", 100_000, 5, False)
    assert visits.columns["ward"].categories == ("cardiology", "no", "ö'\"")
    assert visits.columns["cost"] == Column("cost", "real", (0.0, 1e5))
    assert visits.columns["admitted"] == Column("admitted", "date", (date(2020, 1, 1), date(2026, 12, 31)), None, False)
    assert visits.columns["seen"].bounds == (datetime(2020, 1, 1), datetime(2026, 12, 31))
    assert schema.foreign_keys == (ForeignKey("visits", "ward", "wards", "ward"),)


def test_a_schema_is_written_as_it_is_read(tmp_path):
    schema = Schema.load(GOOD)
    assert Schema.load(schema.dump()) == schema
    (tmp_path / "s.yaml").write_text(schema.dump(), encoding="utf-8")
    assert Schema.load(tmp_path / "s.yaml") == Schema.load(str(tmp_path / "s.yaml")) == schema
    waiting = Schema({"t": Table("t", {"n": Column("n", "integer", (0, 1), confirmed=False)})}, ROW)
    assert Schema.load(waiting.dump()) == waiting


def test_limits_are_the_bounds_or_the_widest_of_the_type():
    columns = Schema.load(GOOD).tables["visits"].columns
    assert columns["stay_days"].limits == (0, 60)
    assert columns["note"].limits is columns["urgent"].limits is None
    assert columns["code"].limits == (-(2**63 - 1), 2**63 - 1)
    assert Column("x", "real").limits == (-sys.float_info.max, sys.float_info.max)


def test_every_problem_is_listed_in_order_with_its_place():
    text = """
unit: {name: patient, max_rows: 8, color: red}
tables:
  visits:
    columns:
      a: {type: number}
      b: {type: integer, bounds: [60, 0]}
      c: {type: integer, bounds: [0, 1.5]}
      d: {type: text, categories: [yes, no]}
      e: {type: text, categories: [x, x]}
      f: {type: boolean, bounds: [0, 1]}
      g: {type: integer, bounds: [0, 1], categories: [1]}
      h: {type: real, bounds: [0, .inf]}
      i: {type: integer, bound: [0, 1]}
      j: {type: text, nullable: maybe}
      k: {type: date, bounds: [yesterday, today]}
      l: {type: integer, bounds: [0, 9223372036854775808]}
      m: {type: text, categories: ["", a]}
      n: {type: real, bounds: fill in}
      _unit: {type: text}
      A: {type: text}
  wards:
    public: true
    unit: ward
    rows: -1
    columns: {ward: {type: text}}
foreign_keys: [visits.a -> wards.nothing, garbage]
extra: 1
"""
    found = problems(text)
    expected = [
        ("schema", "the word 'extra' is unknown"),
        ("unit", "the word 'color' is unknown"),
        ("visits.i", "the word 'bound' is unknown. Words here are type, bounds"),
        ("visits.j", "nullable: write true or false"),
        ("visits.n", "fill in bounds, or remove it"),
        ("foreign_keys", "write 'garbage' like visits.ward -> wards.ward"),
        ("visits", "needs unit: the column that names a patient; or public: true"),
        ("visits", "the names a and A differ in case only"),
        ("visits.a", "has the type 'number'. Types are integer, real"),
        ("visits.b", "needs a lower bound below the upper one"),
        ("visits.c", "needs bounds: [lower, upper], each a finite integer"),
        ("visits.d", "needs categories: [...], a list of texts (quote words like 'yes'"),
        ("visits.e", "lists a category twice"),
        ("visits.f", "is boolean and takes no bounds"),
        ("visits.g", "has bounds and categories"),
        ("visits.h", "needs bounds: [lower, upper], each a finite real"),
        ("visits.k", "each a finite date"),
        ("visits.l", "needs a lower bound below the upper one, between -9223372036854775807"),
        ("visits.m", "needs categories"),
        ("visits._unit", "needs a printable name other than _unit"),
        ("wards", "names a unit column, but is public"),
        ("wards", "needs a whole number above 0 for rows"),
        ("foreign key visits.a -> wards.nothing", "there is no column wards.nothing"),
    ]
    assert [line.partition(": ")[0] for line in found] == [place for place, _ in expected]
    for line, (_, words) in zip(found, expected, strict=True):
        assert words in line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("unit: row\nunit: row\ntables: {}", "says twice: unit (line 2)"),
        ("unit: row\ntables: {t: {columns: {a: {type: text, type: real}}}}", "says twice: type"),
        ("unit: [\n", "not YAML near line"),
        ("unit: row\nnothing else", "not YAML"),
        ("just words\n", "needs names with something under each"),
        ("unit: row\ntables: {}", "there is no schema file"),
    ],
)
def test_what_is_no_schema_is_refused_in_words(text, words):
    with pytest.raises(BadSchema) as caught:
        Schema.load(text if "no schema file" not in words else "missing.yaml")
    assert words in str(caught.value)


def test_the_unit_column_is_not_among_the_columns():
    text = GOOD.replace("note: {type: text}", "patient_id: {type: integer}")
    assert problems(text) == [
        "visits: lists its unit column patient_id among the columns. Remove it there: it names people"
    ]


def test_a_unit_given_beside_the_schema_fills_in_or_agrees():
    open_unit = GOOD.replace("unit: {name: patient, max_rows: 8}\n", "")
    assert problems(open_unit) == ["unit: say whom to protect: row, or {name: patient, max_rows: 8}"]
    assert Schema.load(open_unit, unit=Unit("patient", 8)) == Schema.load(GOOD)
    assert Schema.load(GOOD, unit=Unit("patient", 8)) == Schema.load(GOOD)
    assert "but one patient (at most 9 rows) was asked for" in problems(GOOD, unit=Unit("patient", 9))[0]


def test_a_schema_protects_rows_only_if_it_says_so():
    text = "unit: row\ntables: {t: {columns: {n: {type: integer}}}}\n"
    assert Schema.load(text).unit == ROW
    assert "Remove its unit" in problems(text.replace("{columns", "{unit: id, columns"))[0]


def test_marks_to_confirm_are_read_but_not_let_through():
    text = GOOD.replace("bounds: [0, 60]", "bounds: [0, 60], confirm: confirm that this is public")
    assert not Schema.load(text).tables["visits"].columns["stay_days"].confirmed
    assert problems(text) == [
        "visits.stay_days: confirm that its bounds or categories are public, and remove the mark",
    ]
    Schema.load(text.replace("confirm: confirm that this is public", "confirm: confirmed")).check()


def test_reading_a_schema_loads_no_engine():
    heavy = "{'duckdb', 'pyspark', 'psycopg', 'pandas', 'polars', 'pyarrow', 'sqlglot'}"
    code = f"import sys, cloister.data; cloister.data.Schema; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    engines = "{'duckdb', 'pyspark', 'psycopg', 'pandas', 'polars'}"
    code = f"import sys, cloister.data.tables, cloister.data.draft; assert not {engines} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# The commands

CSV = "patient_id,ward,stay,cost,admitted,note\n1,surgery,3,10.5,2024-03-01,a b\n2,cardiology,57,NaN,2023-12-31,\n"


def run(*arguments):
    done = CliRunner().invoke(main, ["schema", *map(str, arguments)])
    return done.exit_code, done.output


def test_a_draft_holds_names_and_blanks_and_no_value(tmp_path):
    (tmp_path / "visits.csv").write_text(CSV)
    code, text = run("draft", tmp_path / "visits.csv")
    assert code == 0
    assert "no value was read" in text
    assert text.count("{type: text, categories: fill in}") == 6
    assert not any(value in text for value in ("surgery", "57", "10.5", "2024"))
    (tmp_path / "s.yaml").write_text(text)
    code, text = run("check", tmp_path / "s.yaml")
    assert code == 1
    assert "1. unit: " in text
    assert "visits.ward: fill in categories, or remove it" in text


def test_a_draft_does_not_depend_on_the_rows(tmp_path):
    drafts = []
    for rows in (CSV, CSV.partition("\n")[0] + "\n"):
        (tmp_path / "visits.csv").write_text(rows)
        drafts.append(run("draft", tmp_path / "visits.csv"))
    assert drafts[0] == drafts[1]


def test_an_owners_draft_is_refused_until_every_mark_is_gone(tmp_path):
    (tmp_path / "visits.csv").write_text(CSV)
    code, text = run("draft-as-owner", tmp_path / "visits.csv")
    assert code == 0
    text = text.replace("unit: fill in\ntables", "unit: {name: patient, max_rows: 3}\ntables")
    text = text.replace("unit: fill in", "unit: patient")
    (tmp_path / "s.yaml").write_text(text)
    assert run("check", tmp_path / "s.yaml")[1].count("remove the mark") == 6
    columns = Schema.load(text).tables["visits"].columns
    assert columns["stay"].bounds == (0, 60)
    assert columns["cost"].bounds == (10.0, 20.0)
    assert columns["ward"].categories == ("cardiology", "surgery")
    assert columns["admitted"].bounds == (date(2023, 1, 1), date(2024, 12, 31))
    (tmp_path / "s.yaml").write_text(text.replace("confirm: confirm that this is public", "confirm: confirmed"))
    code, text = run("check", tmp_path / "s.yaml")
    assert (code, "1 tables, 6 columns, protects one patient (at most 3 rows)" in text) == (0, True)

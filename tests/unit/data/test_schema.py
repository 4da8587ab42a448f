"""A schema is read strictly, written back the same, and scolded for everything at once."""

import subprocess
import sys
import time
from dataclasses import replace
from datetime import date, datetime

import pytest
from click.testing import CliRunner

from cloister.cli import main
from cloister.data import Column, ForeignKey, Schema, Table
from cloister.data.tables import Tables
from cloister.privacy.errors import BadSchema
from cloister.privacy.loss import ROW, Unit
from cloister.privacy.signing import fingerprint

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
      _CL_x: {type: text}
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
        ("visits._CL_x", "needs a printable name that does not begin with _cl_"),
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


# Text that somebody else wrote

ONE = "unit: row\ntables: {t: {columns: {n: {type: integer, bounds: [0, 9]}}}}\n"


def test_a_schema_in_one_line_is_text_and_never_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = "{unit: row, tables: {t: {columns: {n: {type: integer, bounds: [0, 9]}}}}}"
    assert Schema.parse(line) == Schema.parse(ONE)
    (tmp_path / "s.yaml").write_text(ONE)
    with pytest.raises(BadSchema, match="needs names with something under each"):
        Schema.parse("s.yaml")
    with pytest.raises(BadSchema, match="needs names with something under each"):
        Schema.parse("/etc/passwd")


def test_the_same_text_is_read_once_and_what_one_caller_changes_reaches_no_other(monkeypatch):
    from cloister.data import schema_file

    text, calls = ONE.replace("[0, 9]", "[0, 4711]"), []
    parse = schema_file._parsed
    monkeypatch.setattr(schema_file, "_parsed", lambda *given: calls.append(given) or parse(*given))
    first = Schema.parse(text)
    first.tables["t"].columns.clear()
    first.tables.clear()
    assert list(Schema.parse(text).tables["t"].columns) == ["n"]
    assert len(calls) == 1
    assert Schema.parse(text.replace("{t:", "{T:")).tables.keys() == {"T"}
    assert len(calls) == 2


def test_a_long_schema_is_refused_unread_unless_its_length_is_allowed():
    listed = ", ".join(f"code{i}" for i in range(20_000))
    text = f"unit: row\ntables: {{t: {{columns: {{c: {{type: text, categories: [{listed}]}}}}}}}}\n"
    with pytest.raises(BadSchema, match=r"has 208,9\d\d bytes, and at most 200,000 are read"):
        Schema.parse(text)
    start = time.process_time()
    assert len(Schema.parse(text, max_bytes=None).tables["t"].columns["c"].categories) == 20_000
    assert time.process_time() - start < 5  # a pure Python parser takes 8 s


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ONE.replace("9", "9" * 6000), "a number of more than 30 digits in line 2"),
        (ONE.replace("columns", f"rows: {'9' * 30}, columns"), "needs a whole number above 0 for rows, of at most"),
        (ONE.replace("columns", "rows: 0x" + "f" * 6000 + ", columns"), "needs a whole number above 0 for rows"),
        (ONE.replace("columns", f"never: [{{n: {'9' * 25}}}], columns"), "writes values in never as"),
        (ONE.replace("columns", f"never: [{{n: {{from: {'9' * 25}}}}}], columns"), "writes values in never as"),
        (ONE.replace("columns", f"never: [{{n: [1, {'9' * 25}]}}], columns"), "writes values in never as"),
        (ONE.replace("unit: row", f"unit: {{name: p, max_rows: {'9' * 30}}}"), "at most 1,000,000,000"),
        (ONE.replace("unit: row", "unit: {name: p, max_rows: 1:30}"), "must be a whole number of at least 1"),
        (ONE.replace("[0, 9]", "[0, 0x10]"), "each a finite integer"),
        (ONE.replace("[0, 9]", "[0, 0b11]"), "each a finite integer"),
        (ONE.replace("[0, 9]", "[0, 1:30]"), "each a finite integer"),
        (ONE.replace("type: integer, bounds: [0, 9]", 'type: text, categories: ["\\ud800"]'), "not YAML near line 2"),
        (ONE.replace("type: integer", "type: \ud800"), "not YAML"),
        (ONE.replace("type: integer", "type: !!python/name:os.system x"), "a tag (!) in line 2"),
        (ONE + "---\n" + ONE, "another document"),
        (ONE.replace("n:", "? [a]\n:"), "that is not a word"),
        ("[" * 100_000, "nested too deeply"),
        ("unit: &a row\nx: *a\n", "has an alias"),
    ],
)
def test_hostile_text_is_refused_in_words(text, words):
    with pytest.raises(BadSchema) as caught:
        Schema.parse(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "bounds", ["[0001-01-01T00:00:00+23:59, 2020-01-01]", "[2020-01-01, 9999-12-31T23:59:59-23:59]"]
)
def test_a_timestamp_that_does_not_exist_in_utc_is_refused_in_words(bounds):
    text = ONE.replace("type: integer, bounds: [0, 9]", f"type: timestamp, bounds: {bounds}")
    assert problems(text) == ["t.n: needs bounds: [lower, upper], each a finite timestamp"]


def test_numbers_that_no_column_can_have_are_refused_in_a_dict_too():
    raw = {"unit": "row", "tables": {"t": {"rows": 10**6000, "columns": {"n": {"type": 10**6000}}}}}
    assert problems(raw) == [
        "t: needs a whole number above 0 for rows, of at most 63 bits",
        "t.n: has the type a number too long to print. Types are integer, real, text, boolean, date, timestamp",
    ]


def test_names_and_codes_are_read_as_they_are_written():
    text = "unit: row\ntables: {t: {columns: {on: {type: text, categories: [010, 0x1F, 1:30, <<]}}}}\n"
    assert Schema.parse(text).tables["t"].columns["on"].categories == ("010", "0x1F", "1:30", "<<")


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
    assert text.count("{type: text, categories: fill in}") == 4
    assert text.count("categories: fill in") == 5  # an identifier needs none
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
    assert run("check", tmp_path / "s.yaml")[1].count("remove the mark") == 5
    assert "patient_id" in Schema.load(text).tables["visits"].identifiers
    columns = Schema.load(text).tables["visits"].columns
    assert columns["stay"].bounds == (0, 60)
    assert columns["cost"].bounds == (10.0, 20.0)
    assert columns["ward"].categories == ("cardiology", "surgery")
    assert columns["admitted"].bounds == (date(2023, 1, 1), date(2024, 12, 31))
    (tmp_path / "s.yaml").write_text(text.replace("confirm: confirm that this is public", "confirm: confirmed"))
    code, text = run("check", tmp_path / "s.yaml")
    assert (code, "1 tables, 5 columns, protects one patient (at most 3 rows)" in text) == (0, True)
    assert "Identifiers, which no query, model or synthetic table uses: visits.patient_id." in text


def test_an_owners_draft_suggests_that_a_column_is_never_missing_where_nothing_is(tmp_path):
    (tmp_path / "visits.csv").write_text("ward,stay,cost\na,1,\nb,2,3.5\n")
    text = run("draft-as-owner", tmp_path / "visits.csv")[1]
    columns = Schema.load(text.replace("unit: fill in", "unit: row", 1).replace("    unit: fill in\n", "")).tables[
        "visits"
    ]
    assert {name: column.nullable for name, column in columns.columns.items()} == {
        "ward": False,
        "stay": False,
        "cost": True,
    }
    assert not any(column.confirmed for column in columns.columns.values())
    (tmp_path / "empty.csv").write_text("ward,stay\n")
    assert "nullable" not in run("draft-as-owner", tmp_path / "empty.csv")[1]


def test_a_draft_proposes_roles_by_name_and_says_so(tmp_path):
    (tmp_path / "people.csv").write_text("email,zip,diagnosis,colour\nann@example.org,12345,flu,red\n")
    text = run("draft", tmp_path / "people.csv")[1]
    assert "# Roles and tags are proposals by name" in text
    text = text.replace("unit: fill in\ntables", "unit: row\ntables").replace("    unit: fill in\n", "")
    table = Schema.load(text.replace("categories: fill in", "nullable: true")).tables["people"]
    assert {name: column.role for name, column in table.listed.items()} == {
        "email": "identifier", "zip": "quasi-identifier", "diagnosis": "sensitive", "colour": None,
    }  # fmt: skip
    assert table.columns["diagnosis"].tags == ("gdpr",)


def test_an_owners_draft_marks_text_that_is_nearly_unique_and_shows_no_value_of_an_identifier(tmp_path):
    lines = [f"ann{i}@example.org,zz{i},{'ab'[i % 2]},{i}" for i in range(40)]
    (tmp_path / "people.csv").write_text("email,handle_of,letter,amount\n" + "\n".join(lines) + "\n")
    text = run("draft-as-owner", tmp_path / "people.csv")[1]
    table = Schema.load(text.replace("unit: fill in", "unit: row", 1).replace("    unit: fill in\n", "")).tables[
        "people"
    ]
    assert list(table.identifiers) == ["email", "handle_of"]
    assert table.identifiers["email"].confirmed  # by its name
    assert not table.identifiers["handle_of"].confirmed  # by its values
    assert "example.org" not in text
    assert "zz1" not in text
    assert table.columns["letter"].categories == ("a", "b")
    assert table.columns["amount"].role is None


# Roles, tags and hierarchies

ROLES = """
unit: row
tables:
  people:
    columns:
      zip: {type: text, role: quasi-identifier, tags: [gdpr, hipaa], hierarchy: hierarchies/zip.csv}
      email: {type: text, role: identifier, tags: [internal-only]}
      wage: {type: integer, bounds: [0, 9], role: sensitive}
      colour: {type: text, role: plain}
      shoe: {type: text}
"""


def test_roles_tags_and_hierarchies_are_read_and_written_back_in_the_order_of_the_file():
    schema = Schema.load(ROLES)
    schema.check()
    table = schema.tables["people"]
    assert list(table.listed) == ["zip", "email", "wage", "colour", "shoe"]
    assert table.listed["zip"] == Column("zip", "text", None, None, True, True, "quasi-identifier", ("gdpr", "hipaa"),
                                         "hierarchies/zip.csv")  # fmt: skip
    assert [column.role for column in table.listed.values()] == [
        "quasi-identifier", "identifier", "sensitive", "plain", None,
    ]  # fmt: skip
    assert Schema.load(schema.dump()) == schema
    assert schema.dump() == Schema.load(schema.dump()).dump()
    assert list(Schema.load(schema.dump()).tables["people"].listed) == list(table.listed)


def test_an_identifier_is_not_among_the_columns_however_the_table_is_made():
    email = Column("email", "text", role="identifier")
    made = Table("t", {"email": email, "n": Column("n", "integer")})
    read = Schema.load(ROLES).tables["people"]
    for table in (made, read, replace(made, max_rows=3), replace(made, columns={"email": email})):
        assert "email" not in table.columns
        assert "email" in table.identifiers
        assert "email" in table.listed
    assert "email" not in replace(read, columns={"zip": read.columns["zip"]}).columns
    assert list(read.without_identifiers().listed) == ["zip", "wage", "colour", "shoe"]


def test_a_change_of_a_role_changes_a_schema():
    schema = Schema.load(ROLES)
    for old, new in (("role: plain", "role: sensitive"), ("role: identifier", "role: plain"), ("gdpr, ", "")):
        assert Schema.load(ROLES.replace(old, new)) != schema
    tables = [Tables(None, Schema.load(text), True, {}) for text in (ROLES, ROLES.replace("role: identifier, ", ""))]
    assert tables[0].identity("people") != tables[1].identity("people")


def test_schemas_without_roles_keep_their_text_and_their_digest():
    schema = Schema.load(GOOD)
    assert fingerprint(schema.dump()) == "cd9e71f7744162b43004b91c868ffb627962b9430efac7e2a868df1f11bf62eb"
    digest = "27bf4b12877ae91f40bd7bf5278687916d0625a666c72fb07c738cef7750e435"
    assert Tables(None, schema, True, {}).identity("visits") == digest
    assert schema.without_identifiers() is schema


def test_problems_of_roles_tags_and_hierarchies_come_in_the_order_of_the_file():
    text = """
unit: row
tables:
  t:
    columns:
      a: {type: text, role: Identifier}
      b: {type: number, role: identifier}
      c: {type: text, role: true}
      d: {type: text, tags: gdpr}
      e: {type: text, role: identifier, tags: [GDPR]}
      f: {type: text, tags: [gdpr, gdpr]}
      g: {type: text, hierarchy: ../secret.csv}
      h: {type: text, hierarchy: /etc/passwd}
      i: {type: text, hierarchy: 'C:\\x.csv'}
      j: {type: text, hierarchy: [a, b]}
      k: {type: text, hierarchy: ""}
      l: {type: text, tags: [[gdpr]]}
      m: {type: text, hierarchy: a/../../b.csv}
      n: {type: text, roles: identifier}
      o: {type: text, tags: [MANY]}
      p: {type: text, role: fill in}
      z: {type: text, role: sensitive, tags: [], hierarchy: ./z.csv}
""".replace("MANY", ", ".join(f"w{i}" for i in range(21)))
    found = problems(text)
    expected = [
        ("t.n", "the word 'roles' is unknown"),
        ("t.p", "fill in role, or remove it"),
        ("t.a", "has the role 'Identifier'. Roles are identifier, quasi-identifier, sensitive, plain"),
        ("t.b", "has the type 'number'"),
        ("t.c", "has the role True"),
        ("t.d", "needs tags: [...], at most 20 of gdpr, hipaa"),
        ("t.e", "needs tags"),
        ("t.f", "lists a tag twice"),
        *((f"t.{name}", "needs hierarchy: file.csv") for name in "ghijk"),
        ("t.l", "needs tags"),
        ("t.m", "needs hierarchy"),
        ("t.o", "needs tags"),
    ]
    assert [line.partition(": ")[0] for line in found] == [place for place, _ in expected]
    for line, (_, words) in zip(found, expected, strict=True):
        assert words in line
    with pytest.raises(BadSchema, match="says twice: role"):
        Schema.load(ROLES.replace("role: plain", "role: plain, role: identifier"))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("      zip:", "      Email: {type: text}\n      zip:", "the names Email and email differ in case only"),
        ("unit: row", "unit: {name: p, max_rows: 1}", "needs unit"),
        ("      shoe", "    never: [{email: x}]\n    columns2:\n      shoe", "needs columns of its own in never"),
        ("      shoe", "    determines: [email -> zip]\n    columns2:\n      shoe", "its own in determines"),
    ],
)
def test_rules_treat_an_identifier_as_if_it_were_not_listed(old, new, words):
    text = ROLES.replace(old, new, 1).replace("    columns2:\n      shoe: {type: text}\n", "")
    assert any(words in line for line in problems(text))


def test_an_identifier_is_no_key_no_unit_column_and_not_the_only_column():
    keyed = ROLES + "foreign_keys: [people.email -> people.zip]\n"
    assert "people.email is an identifier, and nothing reads it" in problems(keyed)[0]
    named = ROLES.replace("unit: row", "unit: {name: p, max_rows: 1}").replace(
        "    columns:", "    unit: email\n    columns:"
    )
    assert "lists its unit column email among the columns" in problems(named)[0]
    alone = "unit: row\ntables: {t: {columns: {email: {type: text, role: identifier}}}}\n"
    assert problems(alone) == ["t: needs columns that are not identifiers"]


def test_a_mark_on_an_identifier_is_not_let_through():
    marked = ROLES.replace("[internal-only]", "[internal-only], confirm: confirm that this is public")
    assert problems(marked) == [
        "people.email: confirm that its bounds, categories and role are public, and remove the mark"
    ]

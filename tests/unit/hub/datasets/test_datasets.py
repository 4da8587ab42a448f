"""Datasets: made with a policy, prepared from files, opened for work and as a twin, paused, shredded."""

import io
import shutil
import sqlite3
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from cloister import rho
from cloister.data.schema import Schema
from cloister.dataset import Dataset as Data
from cloister.hub.core.database import now
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import AuditEntry, Organisation, Person, PolicyVersion, Upload, Version
from cloister.hub.core.settings import Settings
from cloister.hub.datasets import dataset_view, datasets, ingest
from cloister.hub.datasets import upload as uploads
from cloister.hub.policy.conditions import Environment
from cloister.privacy.errors import (
    BadForm,
    BadPolicy,
    BadSchema,
    Denied,
    EngineFailed,
    NotHere,
    NotNow,
    SealBroken,
)

SCHEMA = """
unit: {name: patient, max_rows: 4}
tables:
  visits:
    unit: patient
    columns:
      ward: {type: text, categories: [cardiology, surgery]}
      age: {type: integer, bounds: [0, 100]}
  wards:
    public: true
    columns:
      ward: {type: text, categories: [cardiology, surgery]}
      beds: {type: integer, bounds: [0, 99]}
foreign_keys: [visits.ward -> wards.ward]
"""
POLICY = """
dataset: visits
purposes: [health-research]
budget: {lifetime: {epsilon: 2, delta: 1e-7}}
joins: any
roles:
  analysts:
    who: {roles: [data user]}
    may: [see schema, query]
    tables: {visits: {columns: [ward]}, wards: all}
"""
VISITS = b"patient,name,ward,age\n" + b"".join(b"P%d,ZZMARKZZ,surgery,%d\n" % (i, i % 90) for i in range(300))
WARDS = b"ward,beds\ncardiology,20\nsurgery,30\n"
SQL = "SELECT w.ward, COUNT(*), SUM(age) FROM visits v JOIN wards w ON v.ward = w.ward GROUP BY w.ward"


@pytest.fixture
def hub(tmp_path):
    with Hub.create(Settings(folder=tmp_path / "hub", upload_gb=1)) as made:
        yield made


@pytest.fixture
def people(hub):
    with hub.database.writing() as session:
        hospital = Organisation(name="Hospital")
        session.add(hospital)
        session.flush()
        made = {
            name: Person(email=f"{name}@x.example", name=name, roles=roles, organisation_id=hospital.id)
            for name, roles in (("owner", ["data owner"]), ("user", ["data user"]), ("other", ["data owner"]))
        }
        session.add_all(made.values())
        session.flush()
        for one in made.values():
            session.refresh(one)
    return made


@pytest.fixture
def dataset(hub, people):
    return create(hub, people["owner"])


def create(hub, owner, **changes):
    given = {"name": "visits", "title": "Visits", "about": "", "policy_text": POLICY, "schema_text": SCHEMA, **changes}
    with hub.database.writing() as session:
        return datasets.create(hub, session, owner, **given)


def send(hub, person, dataset, table, data, file="t.csv"):
    with hub.database.writing() as session:
        upload = uploads.begin(hub, session, person, dataset, table=table, file=file, size=len(data))
    return uploads.receive(hub, person, upload.id, 0, data).id


def version(hub, person, dataset, schema=SCHEMA, **given):
    with hub.database.writing() as session:
        return datasets.new_version(hub, session, person, dataset, schema_text=schema, **given)


def ready(hub, people, dataset, schema=SCHEMA, visits=VISITS):
    owner = people["owner"]
    sent = {"visits": send(hub, owner, dataset, "visits", visits), "wards": send(hub, owner, dataset, "wards", WARDS)}
    made = version(hub, owner, dataset, schema, uploads=sent)
    assert ingest.prepare(hub, made.id) == "ready", problem(hub, made)
    return held(hub, made)


def held(hub, made):
    with hub.database.reading() as session:
        return session.get_one(Version, made.id)


def problem(hub, made):
    return held(hub, made).problem


# Making


def test_a_dataset_comes_with_a_policy_an_account_and_a_key(hub, people, dataset):

    assert hub.ledger.account("visits").left.amount > 0
    assert len(hub.keys.data_key(dataset)) == 32
    with hub.database.reading() as session:
        policy = session.scalars(sa.select(PolicyVersion)).one()
        actions = list(session.scalars(sa.select(AuditEntry.action)))
        assert datasets.draft_version(session, dataset).number == 1
    assert (policy.number, policy.text) == (1, POLICY)
    assert "dataset.created" in actions


@pytest.mark.parametrize("name", ["Visits", "a", "new", "a@b", "../x", "x" * 61, "1a", ""])
def test_a_name_that_could_be_taken_for_something_else_is_refused(hub, people, name):
    with pytest.raises(BadForm, match="name"):
        create(hub, people["owner"], name=name, policy_text=POLICY.replace("visits", "v"))


def test_no_policy_no_dataset(hub, people):
    with pytest.raises(BadPolicy):
        create(hub, people["owner"], policy_text="")
    with pytest.raises(BadPolicy, match="called other"):
        create(hub, people["owner"], name="other")
    with hub.database.reading() as session, pytest.raises(NotHere):
        datasets.find(session, "visits")


def test_only_an_owner_makes_one_and_no_name_is_used_twice(hub, people, dataset):
    with pytest.raises(Denied):
        create(hub, people["user"], name="other")
    with pytest.raises(BadForm, match="taken"):
        create(hub, people["other"])


def test_an_owner_has_a_limited_number_of_datasets(hub, people, dataset):
    hub.settings = replace(hub.settings, datasets_per_owner=1)
    with pytest.raises(NotNow, match="you have 1 datasets, the most"):
        create(hub, people["owner"], name="further", policy_text=POLICY.replace("dataset: visits", "dataset: further"))


def test_a_name_that_had_another_budget_is_refused(hub, people):
    hub.ledger.open_account("visits", rho("0.5"))
    with pytest.raises(BadForm, match="used before"):
        create(hub, people["owner"])


def test_a_schema_that_waits_for_confirmation_is_not_kept(hub, people, dataset):
    marked = SCHEMA.replace("bounds: [0, 100]}", "bounds: [17, 99], confirm: confirm that this is public}")
    with hub.database.writing() as session, pytest.raises(BadSchema, match="confirm"):
        datasets.save_draft(hub, session, people["owner"], dataset, marked)


# Preparing


def test_sealed_tables_hold_what_the_schema_names_and_nothing_else(hub, people, dataset):
    made = ready(hub, people, dataset)
    tables = datasets.open_for_work(hub, dataset, made, people["user"])
    assert tables.engine.columns("visits") == {"patient": "VARCHAR", "ward": "VARCHAR", "age": "VARCHAR"}
    assert made.declared["visits"] == tables.engine.columns("visits")
    assert tables.engine.run("SELECT COUNT(*) AS n, SUM(CAST(age AS INT)) AS s FROM visits").to_pylist() == [
        {"n": 300, "s": sum(i % 90 for i in range(300))}
    ]
    tables.close()


def test_an_identifier_is_not_sealed_and_its_name_is_shown_to_the_owner_alone(hub, people, dataset):
    schema = SCHEMA.replace("      age:", "      name: {type: text, role: identifier, tags: [gdpr]}\n      age:", 1)
    made = ready(hub, people, dataset, schema)
    tables = datasets.open_for_work(hub, dataset, made, people["user"])
    assert set(tables.engine.columns("visits")) == set(made.declared["visits"]) == {"patient", "ward", "age"}
    tables.close()
    with hub.database.reading() as session:
        seen = {
            who: dataset_view.visible_dataset(hub, session, people[who], "visits", Environment(now())).schema
            for who in ("owner", "user")
        }
    assert "name" in seen["owner"].tables["visits"].identifiers
    assert "name" not in seen["user"].tables["visits"].listed
    assert "identifier" not in seen["user"].dump()
    # A later version without a file cannot bring the column back.
    made = version(hub, people["owner"], dataset, schema.replace("role: identifier, ", ""))
    assert ingest.prepare(hub, made.id) == "failed"
    assert "there is no column visits.name in the file" in problem(hub, made)


def test_a_csv_and_a_parquet_of_the_same_rows_answer_alike(hub, people, dataset):
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"patient": range(300), "ward": ["surgery"] * 300, "age": [i % 90 for i in range(300)]}), sink
    )
    owner = people["owner"]
    sent = {
        "visits": send(hub, owner, dataset, "visits", sink.getvalue(), "v.parquet"),
        "wards": send(hub, owner, dataset, "wards", WARDS),
    }
    made = version(hub, owner, dataset, uploads=sent)
    assert ingest.prepare(hub, made.id) == "ready"
    made = held(hub, made)
    assert made.declared["visits"] == {"patient": "BIGINT", "ward": "VARCHAR", "age": "BIGINT"}
    tables = datasets.open_for_work(hub, dataset, made, None)
    view = tables.view("visits").sql("duckdb")
    assert tables.engine.run(f"SELECT COUNT(*) AS n, SUM(age) AS s FROM ({view})").to_pylist() == [
        {"n": 300, "s": sum(i % 90 for i in range(300))}
    ]
    tables.close()


def test_nothing_of_the_rows_lies_readable_in_the_hubs_folder(hub, people, dataset):
    ready(hub, people, dataset)
    for path in hub.folder.rglob("*"):
        if path.is_file():
            assert b"ZZMARKZZ" not in path.read_bytes()
            assert not (path.suffix == ".parquet" and b"surgery" in path.read_bytes())
    assert list((hub.folder / "uploads").iterdir()) == []


def test_progress_goes_forward_to_the_end(hub, people, dataset):
    owner, told = people["owner"], []
    sent = {"visits": send(hub, owner, dataset, "visits", VISITS), "wards": send(hub, owner, dataset, "wards", WARDS)}
    made = version(hub, owner, dataset, uploads=sent)
    ingest.prepare(hub, made.id, lambda share, words: told.append((share, words)))
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert {words for _, words in told} == {"sealing visits", "sealing wards", "counting what fits the schema"}


def test_preparing_again_after_a_crash_ends_well_and_leaves_nothing_over(hub, people, dataset):
    owner = people["owner"]
    sent = {"visits": send(hub, owner, dataset, "visits", VISITS), "wards": send(hub, owner, dataset, "wards", WARDS)}
    made = version(hub, owner, dataset, uploads=sent)

    def crash(share, words):
        if words == "sealing wards":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest.prepare(hub, made.id, crash)
    assert held(hub, made).state == "preparing"
    uploads.tidy(hub)
    assert ingest.prepare(hub, made.id) == "ready"
    assert ingest.prepare(hub, made.id) == "ready"
    assert len(list((hub.folder / "sealed" / str(dataset.id)).iterdir())) == 1
    datasets.open_for_work(hub, dataset, held(hub, made), None).close()


def test_a_file_that_does_not_fit_fails_with_a_sentence_and_can_be_used_again(hub, people, dataset):
    owner = people["owner"]
    sent = {
        "visits": send(hub, owner, dataset, "visits", VISITS.replace(b"age", b"years", 1)),
        "wards": send(hub, owner, dataset, "wards", WARDS),
    }
    made = version(hub, owner, dataset, uploads=sent)
    assert ingest.prepare(hub, made.id) == "failed"
    assert "no column visits.age" in problem(hub, made)
    assert "ZZMARK" not in problem(hub, made)
    with hub.database.reading() as session:
        assert {one.state for one in session.scalars(sa.select(Upload))} == {"complete"}
        with pytest.raises(NotNow):
            datasets.newest(hub, session, dataset)
    better = version(hub, owner, dataset, SCHEMA.replace("age:", "years:"), uploads=sent)
    assert ingest.prepare(hub, better.id) == "ready", problem(hub, better)


def test_what_is_no_parquet_fails_without_a_value_in_its_problem(hub, people, dataset):
    owner = people["owner"]
    sent = {
        "visits": send(hub, owner, dataset, "visits", VISITS, "visits.parquet"),
        "wards": send(hub, owner, dataset, "wards", WARDS),
    }
    made = version(hub, owner, dataset, uploads=sent)
    assert ingest.prepare(hub, made.id) == "failed"
    assert "not whole Parquet" in problem(hub, made)
    with hub.database.writing() as session:
        datasets.retry(hub, session, owner, dataset, made.number)
    assert held(hub, made).state == "preparing"


def test_every_table_needs_a_file_and_no_other_has_one(hub, people, dataset):
    owner = people["owner"]
    sent = send(hub, owner, dataset, "visits", VISITS)
    with pytest.raises(BadForm, match="wards has no file"):
        version(hub, owner, dataset, uploads={"visits": sent})
    with pytest.raises(BadForm, match="no table x"):
        version(hub, owner, dataset, uploads={"visits": sent, "wards": sent, "x": sent})
    with pytest.raises(NotHere):
        version(hub, owner, dataset, uploads={"visits": sent, "wards": "0" * 32})


# Versions


def test_a_new_version_takes_over_the_tables_it_has_no_file_for_and_the_account(hub, people, dataset):
    first = ready(hub, people, dataset)
    before = hub.ledger.account("visits").left
    sent = send(hub, people["owner"], dataset, "visits", VISITS + b"P999,x,surgery,50\n")
    made = version(hub, people["owner"], dataset, uploads={"visits": sent})
    assert ingest.prepare(hub, made.id) == "ready", problem(hub, made)
    made = held(hub, made)
    assert (first.number, made.number) == (1, 2)
    assert hub.ledger.account("visits").left == before
    with hub.database.reading() as session:
        assert datasets.newest(hub, session, dataset).number == 2
    tables = datasets.open_for_work(hub, dataset, made, None)
    assert tables.engine.run("SELECT COUNT(*) AS n FROM visits").to_pylist() == [{"n": 301}]
    assert tables.engine.run("SELECT COUNT(*) AS n FROM wards").to_pylist() == [{"n": 2}]
    tables.close()


def test_a_version_cannot_protect_something_else(hub, people, dataset):
    ready(hub, people, dataset)
    with pytest.raises(BadSchema, match="protects"):
        version(hub, people["owner"], dataset, SCHEMA.replace("name: patient", "name: visit"))


def test_one_version_is_prepared_at_a_time(hub, people, dataset):
    owner = people["owner"]
    sent = {"visits": send(hub, owner, dataset, "visits", VISITS), "wards": send(hub, owner, dataset, "wards", WARDS)}
    version(hub, owner, dataset, uploads=sent)
    with pytest.raises(NotNow, match="being prepared"):
        version(hub, owner, dataset, uploads=sent)


def test_an_older_file_in_the_place_of_a_newer_one_does_not_open(hub, people, dataset):
    first = ready(hub, people, dataset)
    second = ready(hub, people, dataset, visits=VISITS.replace(b",surgery,", b",cardiology,"))
    places = [hub.folder / "sealed" / one.source["files"]["visits"]["path"] for one in (first, second)]
    shutil.copy(places[0], places[1])
    with pytest.raises(SealBroken, match="visits/2/visits"):
        datasets.open_for_work(hub, dataset, second, None)
    # Even if whoever did it wrote the old size and sum into the database as well:
    second.source["files"]["visits"] |= {key: first.source["files"]["visits"][key] for key in ("size", "sha256")}
    with pytest.raises(SealBroken):
        datasets.open_for_work(hub, dataset, second, None)


# The twin


def test_the_twin_plans_the_same_text_and_the_same_sql_without_key_or_rows(hub, people, dataset):
    made = ready(hub, people, dataset)
    real, twin = datasets.open_for_work(hub, dataset, made, None), datasets.open_twin(hub, dataset, made)
    account = hub.ledger.account("visits")
    for sql in (
        SQL,
        "SELECT AVG(age) FROM visits WHERE ward = 'surgery'",
        "SELECT COUNT(DISTINCT patient) FROM visits",
    ):
        plans = [Data(tables, account, "1").plan(sql, spend=rho("0.01")) for tables in (real, twin)]
        assert str(plans[0]) == str(plans[1])
        assert plans[0].statements() == plans[1].statements() != []
    assert twin.engine.columns("visits") == real.engine.columns("visits")
    assert twin.view("visits").sql("duckdb") == real.view("visits").sql("duckdb")
    with pytest.raises(EngineFailed, match="for plans"):
        twin.engine.run("SELECT 1")
    real.close()


def test_a_private_answer_comes_out_of_a_sealed_table(hub, people, dataset):
    made = ready(hub, people, dataset)
    with Data(datasets.open_for_work(hub, dataset, made, people["user"]), hub.ledger.account("visits"), "1") as data:
        answer = data.sql("SELECT COUNT(*) FROM visits", spend=rho("0.05"))
        assert abs(answer.item() - 300) < 100


# Opening, pausing, shredding


def test_opening_is_written_down(hub, people, dataset):
    made = ready(hub, people, dataset)
    datasets.open_for_work(hub, dataset, made, people["user"]).close()
    with hub.database.reading() as session:
        entry = session.scalars(sa.select(AuditEntry).where(AuditEntry.action == "tables.opened")).one()
    assert (entry.person_id, entry.object, entry.detail) == (people["user"].id, "dataset/visits", {"version": 1})


def test_while_it_is_paused_nothing_opens(hub, people, dataset):
    made = ready(hub, people, dataset)
    with hub.database.writing() as session:
        datasets.pause(hub, session, people["owner"], datasets.find(session, "visits"), True)
    with pytest.raises(NotNow, match="paused"):
        datasets.open_for_work(hub, dataset, made, None)
    with hub.database.writing() as session:
        datasets.pause(hub, session, people["owner"], datasets.find(session, "visits"), False)
    datasets.open_for_work(hub, dataset, made, None).close()


def test_a_deleted_dataset_is_shredded_key_files_and_all(hub, people, dataset):
    made = ready(hub, people, dataset)
    send(hub, people["owner"], dataset, "visits", VISITS)
    wrapped = dataset.wrapped_key
    copy = hub.folder.parent / "stolen.parquet"
    shutil.copy(hub.folder / "sealed" / made.source["files"]["visits"]["path"], copy)
    with hub.database.writing() as session:
        datasets.delete(hub, session, people["owner"], datasets.find(session, "visits"))
    assert list((hub.folder / "sealed").rglob("*.parquet")) == []
    assert list((hub.folder / "uploads").iterdir()) == []
    for path in hub.folder.glob("hub.db*"):
        assert wrapped not in path.read_bytes()
    with pytest.raises(NotHere):
        datasets.open_for_work(hub, dataset, made, None)
    with hub.database.reading() as session:
        with pytest.raises(NotHere):
            datasets.find(session, "visits")
        gone = session.get_one(type(dataset), dataset.id)
        with pytest.raises(NotHere):
            hub.keys.data_key(gone)
    assert sqlite3.connect(hub.folder / "hub.db").execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with pytest.raises(BadForm, match="taken"):
        create(hub, people["owner"])


def test_a_delete_that_is_rolled_back_deletes_nothing(hub, people, dataset):
    made = ready(hub, people, dataset)
    with suppress(RuntimeError), hub.database.writing() as session:
        datasets.delete(hub, session, people["owner"], datasets.find(session, "visits"))
        raise RuntimeError
    datasets.open_for_work(hub, dataset, made, None).close()


@pytest.mark.parametrize("who", ["user", "other"])
def test_only_the_owner_changes_a_dataset(hub, people, dataset, who):
    person = people[who]
    for change in (
        lambda session: datasets.pause(hub, session, person, dataset, True),
        lambda session: datasets.delete(hub, session, person, dataset),
        lambda session: datasets.save_draft(hub, session, person, dataset, SCHEMA),
        lambda session: datasets.new_version(hub, session, person, dataset, schema_text=SCHEMA),
        lambda session: datasets.owned(session, "visits", person),
    ):
        with pytest.raises(NotHere), hub.database.writing() as session:
            change(session)


# Who may know of it


def test_the_policy_decides_who_knows_of_a_dataset_and_what_they_see_of_it(hub, people, dataset):
    ready(hub, people, dataset)
    here = Environment(now())
    with hub.database.reading() as session:
        mine = dataset_view.visible_dataset(hub, session, people["owner"], "visits", here)
        assert mine.mine
        assert set(mine.schema.tables["visits"].columns) == {"ward", "age"}
        theirs = dataset_view.visible_dataset(hub, session, people["user"], "visits", here)
        assert not theirs.mine
        assert set(theirs.schema.tables["visits"].columns) == {"ward"}
        assert theirs.verdict.rule == "analysts"
        with pytest.raises(NotHere):
            dataset_view.visible_dataset(hub, session, people["other"], "visits", here)
        assert [
            len(dataset_view.visible_datasets(hub, session, people[who], here)) for who in ("owner", "user", "other")
        ] == [
            1,
            1,
            0,
        ]


def test_a_list_of_datasets_parses_no_schema(hub, people, dataset, monkeypatch):
    ready(hub, people, dataset)
    here, read, checked = Environment(now()), [], dataset_view.newest
    monkeypatch.setattr(dataset_view.Schema, "parse", lambda *_, **__: pytest.fail("a schema was parsed"))
    monkeypatch.setattr(dataset_view, "newest", lambda *asked: read.append(asked) or checked(*asked))
    with hub.database.reading() as session:
        counts = [
            len(dataset_view.visible_datasets(hub, session, people[who], here)) for who in ("owner", "user", "other")
        ]
    assert counts == [1, 1, 0]
    assert len(read) == 2  # nor is a version read of which somebody may not know


def test_a_policy_that_was_changed_behind_our_back_shows_nothing_to_anybody_else(hub, people, dataset):
    ready(hub, people, dataset)
    with hub.database.writing() as session:
        session.execute(sa.update(PolicyVersion).values(text=POLICY.replace("columns: [ward]", "columns: [ward, age]")))
    with hub.database.reading() as session:
        assert dataset_view.visible_datasets(hub, session, people["user"], Environment(now())) == []
        assert dataset_view.visible_dataset(hub, session, people["owner"], "visits", Environment(now())).policy is None


def test_schema_text_on_one_line_is_text_and_not_a_path(hub, people, dataset, tmp_path):
    (tmp_path / "s.yaml").write_text(SCHEMA)
    with hub.database.writing() as session, pytest.raises(BadSchema):
        datasets.save_draft(hub, session, people["owner"], dataset, str(tmp_path / "s.yaml"))
    assert Schema.load(SCHEMA).unit.name == "patient"

"""Connections: listed hosts and folders only, addresses pinned, secrets sealed; and mock data."""

import contextlib
import os
import socket
import sys
import threading
import time
import tracemalloc
from dataclasses import replace
from datetime import date

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloister import rho
from cloister.data.engines import postgres
from cloister.data.schema import Schema
from cloister.data.tables import open_tables
from cloister.dataset import Dataset as Data
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Dataset, Organisation, Person, Version
from cloister.hub.core.settings import Settings
from cloister.hub.datasets import connect, datasets, ingest, schema_draft
from cloister.hub.datasets import upload as uploads
from cloister.hub.datasets.connect import Link
from cloister.hub.datasets.mock import INVENTED, mock_table, mock_tables
from cloister.hub.datasets.tables import link_of
from cloister.hub.web.spreadsheets import csv_of_table
from cloister.privacy.errors import BadForm, MissingExtra, NotHere, NotNow, SealBroken

SCHEMA = """
unit: {name: patient, max_rows: 4}
tables:
  visits:
    unit: patient
    columns:
      ward: {type: text, categories: [cardiology, surgery]}
      age: {type: integer, bounds: [0, 100]}
"""
POLICY = """
dataset: visits
purposes: [health-research]
budget: {lifetime: {rho: 1}}
roles:
  everybody: {who: anyone, may: [see schema]}
"""


HOSTS = "Hospital=db.example:5432, Hospital=db.example:5433, Hospital=db.example:15002"
DATASET = Dataset(name="visits", organisation=Organisation(name="Hospital"))
ANOTHER = Dataset(name="lakeside", organisation=Organisation(name="Clinic"))
NOBODYS = Dataset(name="stray", organisation=None)


def settings(hosts=HOSTS, folders=""):
    return Settings(connect_hosts=hosts, connect_folders=folders)


@pytest.fixture
def names(monkeypatch):
    """What hosts stand for, without asking the network."""
    table = {"db.example": ["10.1.2.3"], "localhost": ["127.0.0.1", "::1"]}

    def look_up(host, port, *rest, **more):
        if host not in table:
            raise socket.gaierror
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in table[host]]

    monkeypatch.setattr(connect.socket, "getaddrinfo", look_up)
    return table


def test_a_listed_host_is_pinned_to_its_address_and_its_secret_is_not_shown(names):
    link = connect.read_address(settings(), DATASET, "postgresql://ana:s%40cret@DB.example:5433/clinic?sslmode=require")
    assert link.kind == "postgres"
    assert link.place == "PostgreSQL clinic on db.example:5433"
    assert "hostaddr=10.1.2.3" in link.address
    assert "ana:s%40cret@db.example:5433/clinic" in link.address
    assert psycopg.conninfo.conninfo_to_dict(link.address)["password"] == "s@cret"
    assert psycopg.conninfo.conninfo_to_dict(link.address)["passfile"] == "/dev/null"


def test_a_host_that_points_elsewhere_later_is_still_called_at_the_address_it_had(names):
    link = connect.read_address(settings(), DATASET, "postgresql://u:p@db.example/x")
    names["db.example"] = ["127.0.0.1"]
    assert "hostaddr=10.1.2.3" in connect.open_source(settings(), DATASET, link, Schema.load(SCHEMA))


def test_a_host_that_was_taken_off_the_list_is_not_called_any_more(names):
    link = connect.read_address(settings(), DATASET, "postgresql://u:p@db.example/x")
    with pytest.raises(BadForm, match="not on this hub's list"):
        connect.open_source(settings(hosts="Hospital=other.example:5432"), DATASET, link, Schema.load(SCHEMA))


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",  # where clouds keep credentials
        "127.0.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "fe80::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
    ],
)
def test_a_listed_name_that_points_at_ourselves_or_at_the_cloud_is_refused(names, address):
    for found in ([address], ["10.1.2.3", address]):
        names["db.example"] = found
        with pytest.raises(BadForm, match="never called"):
            connect.read_address(settings(), DATASET, "postgresql://u:p@db.example/x")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:p@evil.example/x",
        "postgresql://u:p@db.example.evil.example/x",
        "postgresql://u:p@db.example@evil.example/x",
        "postgresql://u:p@db.example,evil.example/x",
        "postgresql://u:p@%2Fvar%2Frun/x",
        "postgresql:///x",
        "postgresql:///x?host=evil.example",
        "postgresql://u:p@db.example/x?host=evil.example",
        "postgresql://u:p@db.example/x?hostaddr=127.0.0.1",
        "postgresql://u:p@db.example/x?service=other",
        "postgresql://u:p@db.example/x?sslkey=/etc/passwd",
        "postgresql://u:p@db.example/x?passfile=/etc/passwd",
        "postgresql://u:p@db.example/x?sslrootcert=/etc/passwd",
        "postgresql://u:p@db.example/x?options=-c%20default_transaction_read_only=off",
        "postgresql://u:p@db.example/x?options=-csearch_path%3Da%20-cfoo%3D1",
        "postgresql://u:p@db.example/host=evil.example",
        "postgresql://u:p@db.example/",
        "postgresql://u:p@db.example:99999/x",
        "http://db.example/",
        "file:///etc/passwd",
        "mysql://db.example/x",
        "sc://evil.example:15002",
        "sc://db.example/;host=evil.example",
        "",
        "x" * 3000,
        "postgresql://u:p@db.example/x\n",
        "visits.parquet",
        "../x",
    ],
)
def test_what_could_lead_elsewhere_is_refused_and_not_repeated_in_full(names, address):
    if address.endswith("\n"):
        address = "postgresql://u:p@db.example/\nx"
    with pytest.raises(BadForm) as caught:
        connect.read_address(settings(), DATASET, address)
    assert "u:p@" not in str(caught.value)


def test_no_host_is_listed_unless_the_operator_lists_it(names):
    with pytest.raises(BadForm, match="not on this hub's list"):
        connect.read_address(Settings(), DATASET, "postgresql://u:p@db.example/x")


def test_a_search_path_may_be_chosen_and_a_port_may_be_listed(names):
    address = "postgresql://u@db.example:6000/x?options=-csearch_path%3Dclinic"
    assert "search_path" in connect.read_address(settings(hosts="Hospital=db.example:6000"), DATASET, address).address
    with pytest.raises(BadForm):
        connect.read_address(settings(hosts="Hospital=db.example:6000"), DATASET, address.replace("6000", "6001"))


def test_rows_never_travel_in_clear_from_another_machine(names):
    address = "postgresql://u@db.example/x"
    assert "sslmode=require" in connect.read_address(settings(), DATASET, address).address
    assert "sslmode=verify-full" in connect.read_address(settings(), DATASET, f"{address}?sslmode=verify-full").address
    for weak in ("disable", "allow", "prefer"):
        with pytest.raises(BadForm, match=r"in clear.*require"):
            connect.read_address(settings(), DATASET, f"{address}?sslmode={weak}")
    # An address that was sealed before this was asked is held to it, too.
    old = Link("postgres", "", "postgresql://u@db.example:5432/x?hostaddr=10.1.2.3&passfile=%2Fdev%2Fnull")
    assert connect.open_source(settings(), DATASET, old, Schema.load(SCHEMA)).endswith("&sslmode=require")
    weak = Link("postgres", "", f"{old.address}&sslmode=prefer")
    with pytest.raises(BadForm, match="in clear"):
        connect.open_source(settings(), DATASET, weak, Schema.load(SCHEMA))
    with pytest.raises(BadForm, match="in clear"):
        connect.read_address(settings(), DATASET, "sc://db.example:15002/;use_ssl=false")
    here = settings("Hospital=localhost:5432")
    assert "sslmode" not in connect.read_address(here, DATASET, "postgresql://u@localhost/x").address


def test_a_host_is_for_the_organisation_it_is_listed_for(names):
    said = set()
    given = settings("Hospital=db.example:5432; Clinic=db.example:9999")
    link = connect.read_address(given, DATASET, "postgresql://u:p@db.example/x")
    for dataset in (ANOTHER, NOBODYS):
        with pytest.raises(BadForm, match="for your organisation") as caught:
            connect.read_address(given, dataset, "postgresql://u:p@db.example/x")
        said.add(str(caught.value))
        with pytest.raises(BadForm, match="for your organisation"):
            connect.open_source(given, dataset, link, Schema.load(SCHEMA))
        with pytest.raises(BadForm):  # listed for nobody: the same sentence
            connect.read_address(settings("Clinic=other.example:1"), dataset, "postgresql://u:p@db.example/x")
    assert len(said) == 1
    # An entry opens one port, and no other on the same machine.
    with pytest.raises(BadForm):
        connect.read_address(given, DATASET, "postgresql://u:p@db.example:9999/x")


def test_a_folder_is_for_the_organisation_it_is_listed_for(folder, tmp_path):
    other = tmp_path / "shared" / "clinic"
    other.mkdir()
    given = settings(folders=f"Hospital={folder}, Clinic={other}")
    link = connect.read_address(given, DATASET, str(folder))
    for dataset in (ANOTHER, NOBODYS):
        with pytest.raises(BadForm, match="no folder in one") as caught:
            connect.read_address(given, dataset, str(folder))
        with pytest.raises(BadForm) as missing:
            connect.read_address(given, dataset, "/does/not/exist")
        assert str(caught.value) == str(missing.value)
        with pytest.raises(BadForm, match="no folder in one"):
            connect.open_source(given, dataset, link, Schema.load(SCHEMA))
    # Taken off the list, it is not opened any more.
    with pytest.raises(BadForm):
        connect.open_source(settings(folders=f"Clinic={other}"), DATASET, link, Schema.load(SCHEMA))


def test_a_listed_folder_that_becomes_a_link_opens_no_other(folder, tmp_path):
    mine, theirs = tmp_path / "college" / "share", folder
    mine.mkdir(parents=True)
    given = settings(folders=f"Clinic={mine}, Hospital={theirs}")
    assert given.folders_of("Clinic") == [mine]
    mine.rmdir()
    mine.symlink_to(theirs)
    assert given.folders_of("Clinic") == []
    for path in (mine, theirs):
        with pytest.raises(BadForm, match="no folder in one"):
            connect.read_address(given, ANOTHER, str(path))
    # Started anew, the hub serves everybody else.
    again = settings(folders=f"Clinic={mine}, Hospital={theirs}")
    assert again.folders_of("Hospital") == [theirs]


def test_an_owner_who_left_the_organisation_connects_nothing_of_it(hub, owner, dataset, folder):
    assert datasets.reach(hub, owner, dataset, str(folder)).kind == "folder"
    with hub.database.writing() as session:
        place = Organisation(name="Clinic")
        session.add(place)
        session.flush()
        moved = session.get(Person, owner.id)
        moved.organisation_id = place.id
    with pytest.raises(BadForm, match="another organisation"):
        datasets.reach(hub, moved, dataset, str(folder))


def test_spark_by_address_says_what_it_needs(names, monkeypatch):
    link = connect.read_address(settings(), DATASET, "sc://db.example:15002/;token=s3cret")
    assert (link.kind, link.place) == ("spark", "Spark on db.example:15002")
    assert link.address == "sc://10.1.2.3:15002/;token=s3cret;use_ssl=true"
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(MissingExtra, match="pip install"):
        connect.open_source(settings(), DATASET, link, Schema.load(SCHEMA))


# Folders


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "shared" / "hospital"
    place.mkdir(parents=True)
    rows = {"patient": ["a", "b"], "ward": ["surgery"] * 2, "age": [1, 2]}
    pq.write_table(pa.table(rows), place / "visits.parquet")
    return place


def test_a_folder_in_a_listed_one_is_opened(folder):
    given = settings(folders=f"Hospital=/nowhere, Hospital={folder.parent}")
    link = connect.read_address(given, DATASET, str(folder))
    assert str(folder.parent) not in link.place
    tables = open_tables(connect.open_source(given, DATASET, link, Schema.load(SCHEMA)), Schema.load(SCHEMA))
    assert tables.engine.run("SELECT COUNT(*) AS n FROM visits").to_pylist() == [{"n": 2}]
    tables.close()


def test_a_folder_outside_is_refused_like_one_that_does_not_exist(folder, tmp_path):
    given, said = settings(folders=f"Hospital={folder}"), set()
    (tmp_path / "shared" / "hospital-other").mkdir()
    for path in ("/etc", "/does/not/exist", str(folder / ".."), str(folder) + "-other", str(folder / "visits.parquet")):
        with pytest.raises(BadForm) as caught:
            connect.read_address(given, DATASET, path)
        said.add(str(caught.value))
    assert len(said) == 1


def test_links_do_not_lead_out_of_a_folder(folder, tmp_path):
    given = settings(folders=f"Hospital={folder.parent}")
    (folder.parent / "way-out").symlink_to("/etc")
    with pytest.raises(BadForm):
        connect.read_address(given, DATASET, str(folder.parent / "way-out"))
    link = connect.read_address(given, DATASET, str(folder))
    pq.write_table(pa.table({"x": [1]}), tmp_path / "secret.parquet")
    (folder / "more").mkdir()
    (folder / "more" / "x.parquet").symlink_to(tmp_path / "secret.parquet")
    with pytest.raises(BadForm, match="holds a link"):
        connect.open_source(given, DATASET, link, Schema.load(SCHEMA))


def test_a_table_without_a_file_is_named(folder):
    given = settings(folders=f"Hospital={folder}")
    schema = Schema.load(SCHEMA + "  wards: {public: true, columns: {ward: {type: text}}}\n")
    with pytest.raises(BadForm, match=r"neither wards\.parquet"):
        connect.open_source(given, DATASET, connect.read_address(given, DATASET, str(folder)), schema)


# In a hub, against a real PostgreSQL


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@pytest.fixture
def hub(tmp_path, folder, port):
    given = Settings(
        folder=tmp_path / "hub",
        connect_hosts=f"Hospital=127.0.0.1:{port}",
        connect_folders=f"Hospital={folder.parent}",
    )
    with Hub.create(given) as made:
        yield made


@pytest.fixture
def owner(hub):
    with hub.database.writing() as session:
        place = Organisation(name="Hospital")
        session.add(place)
        session.flush()
        person = Person(verified=1.0, email="o@x.example", name="o", roles=["data owner"], organisation_id=place.id)
        session.add(person)
        session.flush()
        session.refresh(person)
    return person


@pytest.fixture
def dataset(hub, owner):
    with hub.database.writing() as session:
        return datasets.create(
            hub, session, owner, name="visits", title="V", about="", policy_text=POLICY, schema_text=""
        )


@pytest.fixture
def over_tcp(postgres_address, port):
    """The test server listens on a Unix socket only: a small bridge from a TCP port to it."""
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("CREATE TABLE visits (patient text, ward varchar(20), age int, name text)")
        connection.execute("INSERT INTO visits SELECT 'p' || i, 'surgery', i, 'ZZMARKZZ' FROM generate_series(1, 50) i")
        facts = connection.info
        place = os.path.join(facts.host, f".s.PGSQL.{facts.port}")  # noqa: PTH118
        user, database = facts.user, facts.dbname
    server = socket.create_server(("127.0.0.1", port))

    def pump(one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                inner = socket.socket(socket.AF_UNIX)
                inner.connect(place)
                for pair in ((client, inner), (inner, client)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield f"postgresql://{user}:s3cret@127.0.0.1:{port}/{database}?sslmode=disable"
    server.close()


def prepared(hub, owner, dataset, address):
    link = datasets.reach(hub, owner, dataset, address)
    with hub.database.writing() as session:
        made = datasets.new_version(hub, session, owner, dataset, schema_text=SCHEMA, link=link)
    state = ingest.prepare(hub, made.id)
    with hub.database.reading() as session:
        return state, session.get_one(Version, made.id)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_connected_postgres_is_planned_on_its_twin_and_worked_on_in_place(hub, owner, dataset, over_tcp):
    state, made = prepared(hub, owner, dataset, over_tcp)
    assert state == "ready", made.problem
    assert "s3cret" not in str(made.source)
    assert made.declared["visits"] == {"patient": "text", "ward": "character varying(20)", "age": "integer"}
    real, twin = datasets.open_for_work(hub, dataset, made, owner), datasets.open_twin(hub, dataset, made)
    account = hub.ledger.account("visits")
    plans = [
        Data(tables, account, "1").plan("SELECT ward, AVG(age) FROM visits GROUP BY ward", spend=rho("0.1"))
        for tables in (real, twin)
    ]
    assert str(plans[0]) == str(plans[1])
    assert plans[0].statements() == plans[1].statements() != []
    assert abs(Data(real, account, "1").sql("SELECT COUNT(*) FROM visits", spend=rho("0.1")).item() - 50) < 60
    real.close()
    for path in hub.folder.rglob("*"):
        assert not path.is_file() or b"s3cret" not in path.read_bytes()


def test_a_sealed_address_of_another_dataset_does_not_open(hub, owner, dataset, folder):
    state, made = prepared(hub, owner, dataset, str(folder))
    assert state == "ready", made.problem
    key = hub.keys.data_key(dataset)
    assert link_of(dataset, made, key).kind == "folder"
    made.source = {**made.source, "sealed": made.source["sealed"][:-2] + "00"}
    with pytest.raises(SealBroken):
        link_of(dataset, made, key)


def test_a_server_that_cannot_be_reached_fails_without_its_words_and_is_tried_again(hub, owner, dataset, port):
    state, made = prepared(hub, owner, dataset, f"postgresql://u:s3cret@127.0.0.1:{port}/x")
    assert state == "failed"
    assert "PostgreSQL could not do" in made.problem
    assert "s3cret" not in made.problem
    with hub.database.writing() as session:
        assert datasets.retry(hub, session, owner, dataset, made.number).state == "preparing"
    assert ingest.prepare(hub, made.id) == "failed"


@pytest.fixture
def silent(port):
    """A server that lets everybody in and then says nothing more."""
    server, held = socket.create_server(("127.0.0.1", port)), []

    def serve():
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                held.append(client)
                client.recv(1000)
                client.sendall(b"R\0\0\0\x08\0\0\0\0" + b"Z\0\0\0\x05I")  # you are in; ready for a question

    threading.Thread(target=serve, daemon=True).start()
    yield f"postgresql://u:s3cret@127.0.0.1:{port}/x?sslmode=disable"
    server.close()
    for one in held:
        one.close()


def test_a_server_that_accepts_and_never_answers_is_hung_up_on(hub, owner, dataset, silent, monkeypatch):
    monkeypatch.setattr(postgres, "_GRACE_S", 0.2)
    monkeypatch.setattr(ingest, "_REACH_S", 0.5)
    begun = time.monotonic()
    state, made = prepared(hub, owner, dataset, silent)
    assert state == "failed"
    assert "PostgreSQL could not do" in made.problem
    assert time.monotonic() - begun < 20


# Drafts


def test_a_draft_from_values_is_for_the_owner_alone_and_waits_for_confirmation(hub, owner, dataset):
    with pytest.raises(NotNow, match="no complete file"):
        schema_draft.draft_schema(hub, owner, dataset, from_values=False)
    data = b"patient,ward,age\n" + b"a,surgery,17\n" * 20
    with hub.database.writing() as session:
        sent = uploads.begin(hub, session, owner, dataset, table="visits", file="v.csv", size=len(data))
    uploads.receive(hub, owner, sent.id, 0, data)
    names_only = schema_draft.draft_schema(hub, owner, dataset, from_values=False)
    assert "no value was read" in names_only
    assert "surgery" not in names_only
    seen = schema_draft.draft_schema(hub, owner, dataset, from_values=True)
    assert "surgery" in seen
    assert seen.count("confirm that this is public") >= 2
    with pytest.raises(NotHere):
        schema_draft.draft_schema(
            hub, Person(id=99, email="x", name="x", roles=["operator"]), dataset, from_values=True
        )
    for path in hub.folder.rglob("*"):
        assert not path.is_file() or b"surgery" not in path.read_bytes()


# Mock data


def test_mock_rows_keep_to_the_schema_and_are_the_same_for_the_same_seed():
    schema = Schema.load(
        SCHEMA + "      day: {type: date, bounds: [2024-01-01, 2024-12-31], nullable: false}\n"
        "      cost: {type: real}\n      well: {type: boolean}\n      note: {type: text}\n"
        "      at: {type: timestamp}\n"
        "      huge: {type: integer, bounds: [-9223372036854775807, 9223372036854775807]}\n"
    )
    table = mock_table(schema, "visits", 500, seed=3)
    assert table.equals(mock_table(schema, "visits", 500, seed=3))
    assert not table.equals(mock_table(schema, "visits", 500, seed=4))
    assert table.num_rows == 500
    found = table.to_pydict()
    assert set(found["ward"]) == {"cardiology", "surgery", None}
    assert all(0 <= age <= 100 for age in found["age"] if age is not None)
    assert None not in found["day"]
    assert all(date(2024, 1, 1) <= day <= date(2024, 12, 31) for day in found["day"])
    assert 1 < max(found["patient"].count(one) for one in set(found["patient"])) <= 4
    assert table.schema.metadata[b"cloister"].decode() == INVENTED


@pytest.mark.parametrize("letters", ["x", "ä", "𝕏"])
@pytest.mark.parametrize("where", ["category", "categories"])
def test_mock_rows_are_bounded_in_bytes_however_long_a_value_is(where, letters):
    long, columns = letters * (40_000 // len(letters.encode())), SCHEMA + "      "
    facts = {
        "category": f"note: {{type: text, categories: [{long}, b]}}",
        "categories": "\n      ".join(f"note{i}: {{type: text, categories: [{long}]}}" for i in range(4)),
    }
    schema = Schema.parse(columns + facts[where] + "\n", max_bytes=None)
    tracemalloc.start()
    table = mock_table(schema, "visits", 2000)
    made = tracemalloc.get_traced_memory()[1]
    text = csv_of_table(table)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0 < table.num_rows < 2000
    assert table.nbytes <= 17_000_000
    assert len(text) <= 17_000_000
    assert made <= 60_000_000
    assert peak <= 100_000_000
    assert table.schema.metadata[b"cloister"].decode() == (
        f"{INVENTED} They are fewer than asked for: at most 1,000,000 cells or 16 MB."
    )


def test_mock_rows_of_which_one_is_too_long_are_refused_with_what_to_do():
    schema = Schema.load(SCHEMA + "      note: {type: text, categories: [b]}\n")
    visits = schema.tables["visits"]
    long = replace(visits.columns["note"], categories=("x" * 16_000_001,))
    schema = replace(schema, tables={"visits": replace(visits, columns={**visits.columns, "note": long})})
    with pytest.raises(NotNow, match=r"more than 16 MB\. Ask the owner for shorter categories"):
        mock_table(schema, "visits", 1)


def test_questions_can_be_tried_on_mock_rows(tmp_path):
    import cloister as cl

    schema = Schema.load(
        SCHEMA + "  wards:\n    public: true\n    columns: {ward: {type: text, categories: [cardiology, surgery]}}\n"
        "foreign_keys: [visits.ward -> wards.ward]\n"
    )
    with cl.open(mock_tables(schema, 200), schema=schema, budget=rho(1), ledger=tmp_path / "l") as data:
        answer = data.sql(
            "SELECT w.ward, COUNT(*) FROM visits v JOIN wards w ON v.ward = w.ward GROUP BY w.ward", spend=rho("0.5")
        )
        assert len(answer) == 3  # the two wards, and NULL

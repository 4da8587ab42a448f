"""The datasets' pages and calls: from a new dataset to a version, and what strangers do not get to know."""

import re
import socket
import sqlite3
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest
import sqlalchemy as sa
import yaml
from fastapi.testclient import TestClient

from cloister.data import schema as schema_module
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Organisation, Person, Version
from cloister.hub.core.settings import Settings
from cloister.hub.datasets import connect, ingest, upload
from cloister.hub.datasets.schema_form import SchemaForm
from cloister.hub.policy.text import reader
from cloister.hub.users import sessions, tokens
from cloister.hub.web.app import create_app
from cloister.hub.web.security import cookie_name

SCHEMA = """
unit: {name: patient, max_rows: 4}
tables:
  visits:
    unit: patient
    columns:
      ward: {type: text, categories: [cardiology, surgery]}
      age: {type: integer, bounds: [0, 100], nullable: false}
"""
POLICY = """
dataset: visits
purposes: [health-research]
budget: {lifetime: {rho: 1}}
roles:
  analysts: {who: {roles: [data user]}, may: [see schema, query], tables: {visits: {columns: [ward]}}}
"""
VISITS = b"patient,ward,age,name\n" + b"P1,surgery,44,ZZMARKZZ\n" * 50


@pytest.fixture
def hub(tmp_path):
    with Hub.create(Settings(folder=tmp_path / "hub", requests_per_minute=100_000)) as made:
        yield made


@pytest.fixture
def people(hub):
    with hub.database.writing() as session:
        place = Organisation(name="Hospital")
        session.add(place)
        session.flush()
        made = {
            name: Person(verified=1.0, email=f"{name}@x.example", name=name, roles=roles, organisation_id=place.id)
            for name, roles in (
                ("owner", ["data owner"]),
                ("user", ["data user"]),
                ("provider", ["data provider"]),
                ("other", ["data owner", "operator", "auditor"]),
            )
        }
        session.add_all(made.values())
    return made


class Browser:
    """Somebody with a signed-in browser."""

    def __init__(self, hub, app, person):
        with hub.database.writing() as session:
            cookie, held = sessions.begin(session, hub.settings, session.get_one(Person, person.id), True)
            self.csrf = held.csrf
        self.client = TestClient(app, follow_redirects=False)
        self.client.cookies.set(cookie_name(hub.settings), cookie)

    def get(self, path):
        return self.client.get(path, headers={"accept": "text/html"})

    def post(self, path, files=None, **fields):
        fields = {name.replace("__", "-"): value for name, value in fields.items()}
        sent = {"data": fields, "files": files, "params": {"csrf": self.csrf}} if files else {"data": fields}
        sent["data"]["csrf"] = self.csrf
        return self.client.post(path, headers={"accept": "text/html"}, **sent)

    def api(self, method, path, **given):
        return self.client.request(method, path, headers={"x-csrf": self.csrf}, **given)


@pytest.fixture
def browsers(hub, people):
    app = create_app(hub)
    return {name: Browser(hub, app, person) for name, person in people.items()}


@pytest.fixture
def made(browsers):
    answer = browsers["owner"].api(
        "POST", "/api/datasets", json={"name": "visits", "title": "Visits", "policy": POLICY, "schema": SCHEMA}
    )
    assert answer.status_code == 201, answer.text
    return answer.json()


def sent(browser, data=VISITS, table="visits", file="visits.csv"):
    begun = browser.api("POST", "/api/datasets/visits/uploads", json={"table": table, "file": file, "size": len(data)})
    assert begun.status_code == 201, begun.text
    answer = browser.api("PUT", f"/api/uploads/{begun.json()['id']}?offset=0", content=data)
    assert answer.status_code == 200, answer.text
    assert answer.json()["state"] == "complete"
    return answer.json()["id"]


@pytest.fixture
def ready(hub, browsers, made):
    given = {"uploads": {"visits": sent(browsers["owner"])}}
    answer = browsers["owner"].api("POST", "/api/datasets/visits/versions", json=given)
    assert answer.status_code == 202, answer.text
    with hub.database.reading() as session:
        version = session.query(Version).one()
    assert ingest.prepare(hub, version.id) == "ready"
    return answer.json()["number"]


def test_from_an_empty_page_to_a_version_without_any_script(hub, browsers):
    owner = browsers["owner"]
    assert "Share a dataset" in owner.get("/datasets").text
    assert "lifetime" in owner.get("/datasets/new").text
    answer = owner.post("/datasets/new", name="visits", title="Visits", about="All of 2025.", policy=POLICY)
    assert (answer.status_code, answer.headers["location"]) == (303, "/datasets/visits/versions")
    assert owner.get("/datasets/visits/versions").status_code == 200
    answer = owner.post("/datasets/visits/versions/files", files={"file": ("visits.csv", VISITS, "text/csv")})
    assert answer.status_code == 303, answer.text
    drafted = owner.post("/datasets/visits/schema", action="look")
    assert drafted.status_code == 200
    assert "These bounds or categories are public" in drafted.text
    fields = form_of(drafted.text)
    assert fields["t0-name"] == "visits"
    fields |= {"unit": "patient", "max_rows": "4", "t0-unit": "patient", "action": "form"}
    refused = owner.post("/datasets/visits/schema", **fields)
    assert refused.status_code == 422
    assert "confirm that its bounds" in refused.text
    fields |= {name.replace("-name", "-confirmed"): "yes" for name in fields if re.fullmatch(r"t0-c\d+-name", name)}
    fields = {name: value for name, value in fields.items() if name != "t0-c3-used"}  # not the column `name`
    answer = owner.post("/datasets/visits/schema", **fields)
    assert answer.status_code == 303, answer.text
    assert owner.post("/datasets/visits/versions").status_code == 303
    with hub.database.reading() as session:
        version = session.query(Version).one()
    assert "ZZMARKZZ" not in version.schema
    assert ingest.prepare(hub, version.id) == "ready"
    page = owner.get("/datasets/visits").text
    assert "What is public" in page
    assert "surgery" in page
    assert "For the owner" in page


def form_of(text):
    """What a browser would send for the schema's editor, as it is."""
    text = text[text.index('id="editor"') : text.index("</form>", text.index('id="editor"'))]
    found = {}
    for tag in re.findall(r"<input [^>]*>", text):
        name, value = (re.search(rf'{word}="([^"]*)"', tag) for word in ("name", "value"))
        if name and ('type="checkbox"' not in tag or " checked" in tag):
            found[name[1]] = value[1] if value else ""
    for name, inside in re.findall(r'<textarea [^>]*name="([^"]*)"[^>]*>\n?(.*?)</textarea>', text, re.S):
        found[name] = inside
    for name, inside in re.findall(r'<select [^>]*name="([^"]*)"[^>]*>(.*?)</select>', text, re.S):
        chosen = re.search(r'value="([^"]*)" selected', inside)
        found[name] = chosen[1] if chosen else ""
    return found


def test_the_user_sees_their_view_and_nothing_else(browsers, ready):
    user = browsers["user"]
    assert "Visits" in user.get("/datasets").text
    page = user.get("/datasets/visits").text
    assert "cardiology" in page
    assert "Ask for access" not in page  # no role of this policy can be asked for
    assert "For the owner" not in page
    schema = user.get("/datasets/visits/schema").text
    assert ">age<" not in page + schema
    assert "ZZMARK" not in page + schema
    told = user.api("GET", "/api/datasets/visits/schema").json()
    assert set(yaml.safe_load(told["schema"])["tables"]["visits"]["columns"]) == {"ward"}
    assert user.api("GET", "/api/datasets").json()["datasets"][0]["mine"] is False


def test_for_whom_the_policy_has_no_role_it_is_not_there_and_nobody_but_the_owner_changes_it(browsers, ready):
    begun = browsers["owner"].api(
        "POST", "/api/datasets/visits/uploads", json={"table": "v", "file": "v.csv", "size": 9}
    )
    upload_id = begun.json()["id"]
    everything = [
        ("GET", "/datasets/visits", None), ("GET", "/datasets/visits/schema", None),
        ("GET", "/datasets/visits/mock/visits", None), ("GET", "/datasets/visits/versions", None),
        ("POST", "/datasets/visits/pause", {}), ("POST", "/datasets/visits/delete", {"confirm": "visits"}),
        ("POST", "/datasets/visits/schema", {"action": "look"}), ("POST", "/datasets/visits/versions", {}),
        ("POST", "/datasets/visits/versions/files", {}), ("POST", "/datasets/visits/versions/1/retry", {}),
        ("POST", f"/datasets/visits/versions/files/{upload_id}/cancel", {}),
    ]  # fmt: skip
    calls = [
        ("GET", "/api/datasets/visits", None), ("GET", "/api/datasets/visits/schema", None),
        ("GET", "/api/datasets/visits/mock/visits", None), ("GET", "/api/datasets/visits/versions", None),
        ("GET", "/api/datasets/visits/versions/1", None), ("DELETE", "/api/datasets/visits", None),
        ("POST", "/api/datasets/visits/pause", {"paused": True}), ("POST", "/api/datasets/visits/versions", {}),
        ("POST", "/api/datasets/visits/uploads", {"table": "v", "file": "v.csv", "size": 9}),
        ("GET", f"/api/uploads/{upload_id}", None), ("PUT", f"/api/uploads/{upload_id}?offset=0", None),
        ("DELETE", f"/api/uploads/{upload_id}", None),
    ]  # fmt: skip
    other, user = browsers["other"], browsers["user"]
    for method, path, fields in everything:
        answer = other.get(path) if method == "GET" else other.post(path, **fields)
        assert answer.status_code == 404, (path, answer.status_code)
        missing = path.replace("visits", "nothing", 1)
        same = other.get(missing) if method == "GET" else other.post(missing, **fields)
        assert clean(same.text, "nothing") == clean(answer.text, "visits"), path
        if method == "POST":
            assert user.post(path, **fields).status_code == 404, path
    for method, path, body in calls:
        assert other.api(method, path, json=body).status_code == 404, path
        if method != "GET":
            assert user.api(method, path, json=body).status_code == 404, path
    assert browsers["owner"].get("/datasets/visits").status_code == 200


def clean(text, name):
    return re.sub(r'(content|value)="[^"]{20,}"', "", text).replace(name, "NAME")


def test_strangers_are_asked_to_sign_in(hub):
    client = TestClient(create_app(hub), follow_redirects=False)
    assert client.get("/datasets", headers={"accept": "text/html"}).status_code == 303
    for path in ("/api/datasets", "/api/datasets/visits", "/api/datasets/visits/mock/visits", "/api/uploads/x"):
        assert client.get(path).status_code == 401


def test_mock_rows_come_as_arrow_and_as_csv(browsers, ready):
    user = browsers["user"]
    raw = user.api("GET", "/api/datasets/visits/mock/visits?rows=77").content
    table = pa.ipc.open_stream(raw).read_all()
    assert table.num_rows == 77
    assert set(table.column_names) == {"patient", "ward"}
    answer = user.get("/datasets/visits/mock/visits")
    assert answer.headers["content-disposition"] == 'attachment; filename="visits-invented.csv"'
    assert answer.text.count("\n") == 1001
    assert user.get("/datasets/visits/mock/visits?rows=0").status_code == 422
    assert user.get("/datasets/visits/mock/other").status_code == 404
    assert user.api("GET", "/api/datasets/visits/mock/visits?rows=999999999").status_code == 422


def test_a_wrong_offset_is_a_409_that_names_the_right_one(browsers, made):
    owner, size = browsers["owner"], 3 * upload.SMALLEST_PIECE
    begun = owner.api("POST", "/api/datasets/visits/uploads", json={"table": "v", "file": "v.csv", "size": size}).json()
    path = f"/api/uploads/{begun['id']}"
    assert owner.api("PUT", f"{path}?offset=0", content=bytes(upload.SMALLEST_PIECE)).status_code == 200
    answer = owner.api("PUT", f"{path}?offset=0", content=bytes(upload.SMALLEST_PIECE))
    assert answer.status_code == 409
    assert str(upload.SMALLEST_PIECE) in answer.json()["message"]
    assert owner.api("GET", path).json()["received"] == upload.SMALLEST_PIECE
    assert owner.api("PUT", f"{path}?offset=65536", content=bytes(17 * 2**20)).status_code == 413
    assert owner.api("DELETE", path).json()["state"] == "cancelled"


def test_too_large_a_file_is_a_413(browsers, made):
    answer = browsers["owner"].api(
        "POST", "/api/datasets/visits/uploads", json={"table": "v", "file": "v.csv", "size": 11 * 10**9}
    )
    assert answer.status_code == 413


def test_a_provider_of_the_organisation_sends_files_and_sees_their_own_only(browsers, made):
    sent(browsers["owner"])
    sent(browsers["provider"], table="mine")
    page = browsers["provider"].get("/datasets/visits/versions")
    assert page.status_code == 200
    assert "<code>mine</code>" in page.text
    assert "<code>visits</code>" not in page.text
    assert "Make a version" not in page.text
    assert browsers["provider"].post("/datasets/visits/versions").status_code == 404


def test_a_token_needs_the_scope_to_share(hub, people, made):
    client = TestClient(create_app(hub))
    for scopes, status in ((["read", "work"], 403), (["read", "share"], 201)):
        with hub.database.writing() as session:
            secret = tokens.make(session, session.get_one(Person, people["owner"].id), "t", scopes, 1)
        answer = client.post(
            "/api/datasets/visits/uploads",
            json={"table": "v", "file": "v.csv", "size": 9},
            headers={"authorization": f"Bearer {secret}"},
        )
        assert answer.status_code == status, answer.text


def test_what_is_wrong_with_a_new_dataset_is_shown_above_the_form_which_keeps_its_words(browsers):
    answer = browsers["owner"].post("/datasets/new", name="Wrong Name", title="My <b>title", about="", policy=POLICY)
    assert answer.status_code == 422
    assert "small letters" in answer.text
    assert "My &lt;b&gt;title" in answer.text
    assert browsers["user"].post("/datasets/new", name="x1").status_code == 403


def test_pausing_and_deleting_on_the_page(hub, browsers, ready):
    owner = browsers["owner"]
    assert owner.post("/datasets/visits/pause", paused="yes").status_code == 303
    assert "has paused this dataset" in browsers["user"].get("/datasets/visits").text
    assert owner.post("/datasets/visits/delete", confirm="other").status_code == 422
    assert owner.post("/datasets/visits/delete", confirm="visits").status_code == 303
    assert owner.get("/datasets/visits").status_code == 404
    assert list((hub.folder / "sealed").rglob("*.parquet")) == []


def test_no_page_shows_a_value_except_the_owners_own_look(browsers, ready):
    sent(
        browsers["owner"], VISITS.replace(b"age,name", b"age,word")
    )  # of a name, an identifier, even the owner sees none
    for who in ("owner", "user"):
        for path in ("/datasets", "/datasets/visits", "/datasets/visits/schema", "/datasets/visits/versions"):
            assert "ZZMARKZZ" not in browsers[who].get(path).text
    assert "ZZMARKZZ" not in browsers["owner"].post("/datasets/visits/schema", action="draft").text
    assert "ZZMARKZZ" in browsers["owner"].post("/datasets/visits/schema", action="look").text
    assert "ZZMARKZZ" not in browsers["user"].post("/datasets/visits/schema", action="look").text
    sent(browsers["owner"])
    assert "ZZMARKZZ" not in browsers["owner"].post("/datasets/visits/schema", action="look").text


def test_the_owner_alone_sees_how_many_rows_a_version_leaves_out(hub, browsers, made):
    data = VISITS + b"P2,Graz,50,x\n" * 5 + b"P3,surgery,,x\n" * 7 + b"P4,surgery,120,x\n" * 3
    given = {"uploads": {"visits": sent(browsers["owner"], data)}}
    browsers["owner"].api("POST", "/api/datasets/visits/versions", json=given)
    with hub.database.reading() as session:
        version = session.query(Version).one()
    assert ingest.prepare(hub, version.id) == "ready"
    owner = browsers["owner"]
    page = owner.get("/datasets/visits/versions").text
    assert "7 of 65 rows are left out" in page
    assert "age: 7 rows left out, since it is not nullable; 7 missing; 3 clipped, 0 below 0 and 3 above 100" in page
    assert "ward: 5 outside the categories" in page
    assert "Graz" not in page
    assert "7 of 65 rows of version 1 are left out" in owner.get("/datasets/visits").text
    for path in ("/datasets/visits", "/datasets/visits/versions", "/datasets/visits/schema"):
        assert "left out" not in browsers["user"].get(path).text
    with hub.database.reading() as session:
        assert "left out" not in str(session.query(Version).one().source)


def test_a_schema_goes_through_the_form_and_comes_back_the_same():
    from cloister.data.schema import Schema

    text = """
unit: {name: patient, max_rows: 8}
tables:
  visits:
    unit: id
    rows: 100
    columns:
      ward: {type: text, categories: [a, b c, 'yes']}
      code: {type: integer, categories: [1, 2], nullable: false}
      cost: {type: real, bounds: [0, 1.5]}
      day: {type: date, bounds: [2020-01-01, 2021-01-01]}
      at: {type: timestamp, bounds: ['2020-01-01 00:00:00', '2021-01-01 12:30:00']}
      well: {type: boolean}
  wards: {public: true, columns: {ward: {type: text}}}
foreign_keys: [visits.ward -> wards.ward]
"""
    schema = Schema.load(text)
    assert Schema.load(SchemaForm.of(schema).text()) == schema
    assert Schema.load(SchemaForm.of_text(schema.dump()).text()) == schema


def test_a_schema_that_is_no_yaml_is_shown_again_to_be_corrected(browsers, made):
    answer = browsers["owner"].post("/datasets/visits/schema", action="text", text="unit: [\n")
    assert answer.status_code == 422
    assert "not YAML" in answer.text
    assert "unit: [" in answer.text
    assert browsers["owner"].post("/datasets/visits/schema", action="nonsense").status_code == 422


def test_nothing_slow_is_done_while_nobody_else_can_write(hub, browsers, ready, monkeypatch):
    """Reading YAML and asking for names takes seconds; in SQLite one transaction writes at a time."""
    owner, seen = browsers["owner"], []

    def outside(name, work):
        def wrapped(*asked, **more):
            with closing(sqlite3.connect(hub.folder / "hub.db", timeout=0, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")  # fails if somebody else writes
                other.execute("ROLLBACK")
            seen.append(name)
            return work(*asked, **more)

        return wrapped

    def names(host, port, *_, **__):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.2.3", port))]

    hub.settings = replace(hub.settings, connect_hosts="Hospital=db.example:5432")
    monkeypatch.setattr(schema_module, "_read", outside("schema", schema_module._read))
    monkeypatch.setattr(reader, "parse", outside("policy", reader.parse))
    monkeypatch.setattr(connect.socket, "getaddrinfo", outside("name", names))

    new = {"name": "second", "policy": POLICY.replace("visits", "second", 1) + "# 1\n", "schema": SCHEMA + "# 1\n"}
    assert owner.api("POST", "/api/datasets", json=new).status_code == 201
    page = {"name": "third", "title": "", "about": "", "policy": POLICY.replace("visits", "third", 1) + "# 2\n"}
    assert owner.post("/datasets/new", **page).status_code == 303
    assert owner.post("/datasets/visits/schema", action="text", text=SCHEMA + "# 3\n").status_code == 303
    assert seen == ["schema", "policy", "policy", "schema"]
    sent_policy = {"text": POLICY + "# 4\n", "publish": True}
    assert owner.api("PUT", "/api/datasets/visits/policy", json=sent_policy).status_code == 200
    answer = owner.post("/datasets/visits/policy", action="publish", text=POLICY + "# 5\n", after="2")
    assert answer.status_code == 303, answer.text
    assert seen[4:] == ["policy", "policy"]
    body = {"schema": SCHEMA + "# 6\n", "address": "postgresql://u:p@db.example/x"}
    answer = owner.api("POST", "/api/datasets/visits/versions", json=body)
    assert answer.status_code == 202, answer.text
    assert seen[6:] == ["schema", "name"]


def test_how_long_a_schema_may_be_is_a_setting(hub, browsers, made):
    owner = browsers["owner"]
    hub.settings = replace(hub.settings, schema_kb=1)
    answer = owner.post("/datasets/visits/schema", action="text", text=SCHEMA + "#" * 1000)
    assert answer.status_code == 422
    assert "at most 1,000 bytes" in answer.text
    hub.settings = replace(hub.settings, schema_kb=400)
    assert owner.post("/datasets/visits/schema", action="text", text=SCHEMA + "#" * 300_000).status_code == 303


def test_a_schema_in_one_line_is_prepared(hub, browsers, made):
    owner = browsers["owner"]
    text = yaml.safe_dump(yaml.safe_load(SCHEMA), default_flow_style=True, width=10_000).strip()
    assert "\n" not in text
    assert owner.post("/datasets/visits/schema", action="text", text=text).status_code == 303
    given = {"uploads": {"visits": sent(owner)}}
    assert owner.api("POST", "/api/datasets/visits/versions", json=given).status_code == 202
    with hub.database.reading() as session:
        (found,) = session.scalars(sa.select(Version).where(Version.state == "preparing"))
    assert found.schema == text
    assert ingest.prepare(hub, found.id) == "ready"

"""Only releases leave: marked values are planted in an owner's rows, everything is driven by everybody else, and then
every answer, cookie, log line, table, file, e-mail, export, number and copy is searched. No mark may be found.

The owner's own look at values is the exception; it also shows that the search would find a mark.
"""

import io
import logging
import re
import struct
import tempfile
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from cloister.hub.approvals import mail
from cloister.hub.core import metrics
from cloister.hub.core.logs import JsonLines
from cloister.hub.core.models import Job, Version
from cloister.hub.datasets import datasets, ingest, upload
from cloister.hub.jobs import job_types
from cloister.hub.jobs.attacks import running, store
from cloister.hub.jobs.dataset_pool import DatasetPool
from cloister.hub.jobs.job_types.query import planned
from cloister.hub.jobs.runner import owner_detail
from cloister.hub.ops.backup import backup, opened
from cloister.privacy.errors import EngineFailed
from cloister.privacy.loss import rho

from . import hub_world
from . import test_hub_matrix as matrix

pytestmark = pytest.mark.e2e


SECRETS = {  # of a connection that fails
    "password": "pw-Vbn-66120",
    "user": "user-Tgb-41093",
}
MARKS = {**hub_world.MARKS, **SECRETS}
QUESTIONS = (
    hub_world.COUNT,
    "SELECT comment, COUNT(*) AS n FROM visits GROUP BY comment",
    "SELECT staff, COUNT(*) AS n FROM salaries GROUP BY staff",
    "SELECT COUNT(*) AS n FROM visits WHERE age > 200",
    "SELECT MIN(age) AS low, MAX(age) AS high, MEDIAN(cost) AS middle FROM visits",
    "SELECT SUM(cost) AS c, AVG(age) AS a, COUNT(DISTINCT comment) AS k, COUNT(DISTINCT patient) AS p FROM visits",
    "SELECT LENGTH(comment) AS l, COUNT(*) AS n FROM visits GROUP BY l",
    "SELECT COUNT(*) AS n FROM visits JOIN salaries USING (patient)",
    "SELECT CAST(comment AS INTEGER) FROM visits",
    "SELECT comment FROM visits",
    "SELECT MODE(comment) FROM visits",
    "SELECT comment || patient AS c, COUNT(*) FROM visits GROUP BY c",
    "SELECT SUM(1 / (age - 918)) FROM visits",
    "SELECT * FROM visits WHERE comment LIKE '%marked%'",
)


TRAINED = (
    {"estimator": "MixedNB", "table": "visits", "target": "ward", "evaluate": "0.3", "group": "ward"},
    {"estimator": "MixedNB", "table": "visits", "target": "comment"},
    {"estimator": "CategoricalNB", "table": "salaries", "target": "staff"},
    {"estimator": "LinearRegression", "table": "visits", "target": "cost"},
    {"estimator": "PCA", "table": "visits", "features": "patient, age"},
)
SYNTHESISED = (
    {"method": "mst", "table": "visits", "rows": "80", "score": "0.2"},
    {"method": "independent", "table": "salaries", "rows": "30"},
    {"method": "aim", "table": "visits", "columns": "patient, age"},
)


def found_in(content):
    """Which marks are in it: as text, as numbers in binary, as UTF-16, and in hexadecimal."""
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    found = []
    for name, mark in MARKS.items():
        forms = [mark.encode(), mark.encode("utf-16-le"), mark.encode().hex().encode()]
        if name == "number":
            forms += [struct.pack("<q", int(mark)), struct.pack("<d", float(mark)), b"918,273,645"]
        if name == "cost":
            forms += [struct.pack("<d", float(mark)), b"73,310.9771", b"73310.98", b"73,310.98"]
        if any(form in raw for form in forms):
            found.append(name)
    return found


class Searched(logging.Handler):
    """Every log line, as it is written and as it was meant."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.lines, self._form = [], JsonLines()

    def emit(self, record):
        self.lines += [self._form.format(record), record.getMessage(), repr(getattr(record, "facts", ""))]
        if record.exc_info:
            self.lines.append(repr(record.exc_info[1]))


@pytest.fixture(scope="module")
def logs():
    handler, root = Searched(), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    for name in ("cloister", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield handler.lines
    root.removeHandler(handler)
    root.setLevel(before)


@pytest.fixture(scope="module", params=["three visitors", "every visitor"])
def town(tmp_path_factory, logs, request):
    place = tmp_path_factory.mktemp("marks")
    made = hub_world.build(
        place / "hub", mail_folder=str(place / "mail"), metrics_token="numbers", connect_hosts="Hospital=localhost:9"
    )
    everybody = (*sorted(set(hub_world.VISITORS) - {"owner"}), *matrix.STRANGERS)
    made.visitors = ("ada", "ben", "stranger") if request.param == "three visitors" else everybody
    yield made
    made.hub.close()


@pytest.fixture(scope="module")
def driven(town):
    """Everything that can be asked, asked by everybody but the owner; the answers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_types.job_type, "KINDS", {**job_types.KINDS, "careless": Careless()})
        return _drive(town)


def _drive(town):
    answers = []
    for question in QUESTIONS:
        for spend in ("rho 0.01", "rho 0.01 delta 1e-9"):
            for who in ("ada", "cleo"):
                body = {"form": {"sql": question, "spend": spend}, "purpose": "health-research"}
                answers.append(town.call(who, "POST", "/api/datasets/visits/plan", body=body))
                answers.append(town.call(who, "POST", "/api/datasets/visits/jobs", body=body))
    for who in ("ada", "cleo"):
        for table in ("visits", "salaries", ""):
            body = {"kind": "profile", "form": {"table": table, "spend": "rho 0.01"}, "purpose": "health-research"}
            answers.append(town.call(who, "POST", "/api/datasets/visits/jobs", body=body))
    for who in ("ada", "cleo"):
        for form in TRAINED:
            body = {"kind": "train", "form": {"spend": "rho 0.05", **form}, "purpose": "health-research"}
            answers.append(town.call(who, "POST", "/api/datasets/visits/plan", body=body))
            answers.append(town.call(who, "POST", "/api/datasets/visits/jobs", body=body))
        for form in SYNTHESISED:
            body = {"kind": "synthesise", "form": {"spend": "rho 0.05", **form}, "purpose": "health-research"}
            answers.append(town.call(who, "POST", "/api/datasets/visits/plan", body=body))
            answers.append(town.call(who, "POST", "/api/datasets/visits/jobs", body=body))
    _break_things(town)
    for how in Careless.WAYS:
        body = {"kind": "careless", "form": {"way": how, "spend": "rho 0.01"}, "purpose": "health-research"}
        answers.append(town.call("ada", "POST", "/api/datasets/visits/jobs", body=body))
        assert answers[-1].status_code == 202, answers[-1].text
    ended = town.work()
    assert ended.count("failed") == len(Careless.WAYS)
    _attack_things(town)
    for job in town.rows(sa.select(Job)):
        for who in ("ada", "cleo", "operator"):
            if who != job.person.name.lower():
                answers += [town.ask(who, "GET", f"/jobs/{job.id}"), town.call(who, "GET", f"/api/jobs/{job.id}")]
                continue
            for after in (
                "",
                "/receipt",
                "/label",
                "/answer.csv",
                "/model",
                "/table.parquet",
                "/table.csv",
                "/table.side.json",
                "/chart.svg",
                "/chart.svg?theme=dark&column=comment",
            ):
                answers.append(town.ask(who, "GET", f"/jobs/{job.id}{after}"))
            for after in ("", "?wait=1", "/receipt", "/model", "/table"):
                answers.append(town.call(who, "GET", f"/api/jobs/{job.id}{after}"))
    town.remember()
    for key in matrix.TABLE:
        for who in town.visitors:
            answers.append(matrix.request(town, who, key, "visits"))
        town.restore()
    return answers


class Careless:
    """A kind of work whose author let errors speak of rows: after the charge, and in every way that there is."""

    name, title, operation, template = "careless", "Careless", "query", "result_query.html"
    fields = ()
    WAYS = ("unforeseen", "engine", "assertion", "value", "unicode")

    def parse(self, form):
        return {"way": str(form["way"]), "spend": str(form["spend"])}

    def tables(self, schema, parameters):
        return ("visits",)

    def _plan(self, data, parameters):
        return data.plan(f"SELECT COUNT(*) AS {parameters['way']} FROM visits", spend=rho("0.01"))

    def plan(self, data, parameters):
        return planned(data, self._plan(data, parameters))

    def run(self, data, parameters, progress):
        data.run(self._plan(data, parameters))
        mark = MARKS["text"]
        raise {
            "unforeseen": RuntimeError(f"the row was {MARKS}"),
            "engine": EngineFailed("the engine failed.", owner_detail=f"could not convert {mark}"),
            "assertion": AssertionError(mark),
            "value": ValueError(mark, MARKS["number"]),
            "unicode": UnicodeDecodeError("utf-8", mark.encode(), 0, 1, mark),
        }[parameters["way"]]


def _break_things(town):
    """Ways for the owner's data to go wrong: files, connections, and a table that fails while it is read."""
    hub = town.hub
    marked = {name: [MARKS[name]] for name in ("person", "group", "text")}
    sink = io.BytesIO()
    pq.write_table(pa.table({"patient": marked["person"], "ward": marked["group"], "age": marked["text"]}), sink)
    parquet = sink.getvalue()
    rows = hub_world.rows_of_visits(1, 5)
    for file, raw in (
        ("visits.parquet", parquet),  # columns are missing
        ("visits.parquet", parquet[: len(parquet) // 2]),
        ("visits.parquet", rows),
        ("visits.csv", ",".join(MARKS.values()).encode() + b"\n1,2,3\n"),  # no header: a row is taken for one
        ("visits.csv", rows.replace(b"patient,", b"\xff\xfe,")),
        ("visits.csv.gz", rows),
    ):
        with hub.database.reading() as session:
            dataset = datasets.find(session, "visits")
        sent = hub_world.send(town, "owner", dataset, "visits", raw, file)
        _version(town, uploads={"visits": sent})
        town.ask("owner", "POST", f"/datasets/visits/versions/files/{sent}/cancel")
    secret = f"postgresql://{MARKS['user']}:{MARKS['password']}@localhost:9/visits"
    _version(town, address=secret)
    for bad in (
        f"{secret}?sslkey=/x",
        secret.replace("localhost", "elsewhere"),
        f"sc://localhost:9/;x={MARKS['password']}",
    ):
        answer = town.ask("owner", "POST", "/datasets/visits/versions", data={"address": bad})
        assert answer.status_code == 422
        assert not found_in(answer.text)


def _version(town, address="", **origin):
    with town.hub.database.reading() as session:
        dataset = datasets.find(session, "visits")
    if address:
        origin["link"] = datasets.reach(town.hub, town.people["owner"], dataset, address)
    with town.hub.database.writing() as session:
        dataset = datasets.find(session, "visits")
        version = datasets.new_version(town.hub, session, town.people["owner"], dataset, **origin)
    assert ingest.prepare(town.hub, version.id) == "failed"


def _attack_things(town):
    """The owner attacks a model and a synthetic table: what is found is sealed, and looked for like the rest."""
    hub, owner = town.hub, town.people["owner"]
    with hub.database.reading() as session:
        targets = store.targets(hub, session, datasets.find(session, "visits"), owner)
    chosen = {one.kind: one.job_id for one in targets if not one.problem}
    pool = DatasetPool(hub, lambda *asked: datasets.open_for_work(hub, *asked))
    for kind in ("train", "synthesise"):
        number = store.start(hub, owner, "visits", chosen[kind])
        assert running.run_next(hub, pool)
        with hub.database.reading() as session:
            told = store.find(hub, session, datasets.find(session, "visits"), number)
        assert told.state == "done", told.facts
    pool.close()


def test_no_answer_shows_a_marked_value_to_anybody_but_the_owner(driven):
    assert len(driven) > 1500
    assert {200, 202, 303, 401, 403, 404, 409, 422} <= {one.status_code for one in driven}
    for one in driven:
        assert one.status_code < 500, one.text
        shown = one.content + repr(one.headers.multi_items()).encode()
        assert not found_in(shown), (one.request.method, one.request.url, found_in(shown))


def test_no_log_line_holds_one(driven, logs):
    assert len(logs) > 3 * len(driven) / 2
    assert any("a job failed" in line for line in logs)
    for line in logs:
        assert not found_in(line), line
        assert not re.search("SELECT|FROM visits", line), line  # what others ask is nobody's business either


def test_no_table_of_the_hub_holds_one(town, driven):
    text = hub_world.dump(town.hub)
    assert "a paper about age" in text.lower()  # so the dump is a dump
    assert not found_in(text)


def test_no_file_of_the_hub_holds_one_sealed_or_not(town, driven):
    count = 0
    for path in town.hub.folder.rglob("*"):
        if path.is_file():
            count += 1
            assert not found_in(path.read_bytes()), path
    assert count > 8


def test_no_mail_no_export_no_number_and_no_copy_holds_one(town, driven, tmp_path):
    assert mail.deliver(town.hub, 10_000) > 3
    for path in Path(town.hub.settings.mail_folder).iterdir():
        assert not found_in(path.read_bytes()), path
    with town.hub.database.reading() as session:
        assert not found_in(b"".join(town.hub.audit.export(session)))
    page = town.send("GET", "/metrics", {"authorization": "Bearer numbers"})
    assert page.status_code == 200
    assert not found_in(page.content)
    assert not found_in(metrics.read(town.hub, "Bearer numbers"))
    backup(town.hub, tmp_path / "copy.tar")
    assert not found_in((tmp_path / "copy.tar").read_bytes())
    with opened(tmp_path / "copy.tar", town.hub.keys) as archive:
        assert len(archive.getnames()) > 5
        for member in archive.getmembers():
            assert not found_in(archive.extractfile(member).read()), member.name


def test_the_owner_and_nobody_else_reads_what_went_wrong(town, driven):
    failed = list(town.rows(sa.select(Job).where(Job.kind == "careless")))
    assert len(failed) == len(Careless.WAYS)
    for job in failed:
        assert found_in(owner_detail(town.hub, job)), job.parameters
        shown = town.ask("owner", "GET", f"/jobs/{job.id}")
        assert "text" in found_in(shown.text), job.parameters
        assert not found_in(job.problem)
        assert "The charge stands." in job.problem
    problems = [one.problem for one in town.rows(sa.select(Version).where(Version.state == "failed"))]
    assert len(problems) == 7
    assert all(problems)


def test_the_owners_look_at_values_finds_what_the_search_did_not(town, driven):
    answer = town.ask("owner", "POST", "/datasets/visits/schema", data={"action": "look"})
    assert {"number", "group"} <= set(found_in(answer.text))
    for who in ("other", "reviewer", "ada", "operator", "auditor", "provider"):
        answer = town.ask(who, "POST", "/datasets/visits/schema", data={"action": "look"})
        assert answer.status_code == 404


def test_what_does_not_fit_into_memory_fails_and_reaches_no_disk(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setenv("TMPDIR", str(scratch))
    made = hub_world.build(tmp_path / "hub", job_memory="40MB")
    try:
        lines = (f"p{i},surgery,{i % 90},1.5,{MARKS['text']}-{i:040d}-{'x' * 80}" for i in range(300_000))
        raw = "\n".join(["patient,ward,age,cost,comment", *lines, ""]).encode()
        with made.hub.database.reading() as session:
            dataset = datasets.find(session, "visits")
        with made.hub.database.writing() as session:
            sent = upload.begin(
                made.hub, session, made.people["owner"], dataset, table="visits", file="visits.csv", size=len(raw)
            )
        for at in range(0, len(raw), upload.LARGEST_PIECE):
            upload.receive(made.hub, made.people["owner"], sent.id, at, raw[at : at + upload.LARGEST_PIECE])
        with made.hub.database.writing() as session:
            version = datasets.new_version(
                made.hub, session, made.people["owner"], datasets.find(session, "visits"), uploads={"visits": sent.id}
            )
        seen, end = [], threading.Event()

        def look():  # what is spilled may be gone when the statement ends
            while not end.wait(0.002):
                seen.extend(path for path in scratch.rglob("*") if path.is_file())

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            assert ingest.prepare(made.hub, version.id) == "ready"
            job = made.submit("ada", sql="SELECT COUNT(DISTINCT comment) AS n FROM visits")
            assert made.work() == ["failed"]  # so it did not fit
        finally:
            end.set()
            watcher.join()
        assert seen == []
        assert list(scratch.iterdir()) == []
        (ended,) = made.rows(sa.select(Job).where(Job.id == job.id))
        assert "could not be computed" in ended.problem
        assert "memory" in owner_detail(made.hub, ended).lower()
        for path in tmp_path.rglob("*"):
            assert not path.is_file() or not found_in(path.read_bytes()), path
    finally:
        made.hub.close()

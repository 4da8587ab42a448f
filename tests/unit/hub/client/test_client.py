"""The Python client against a real hub: served by uvicorn, worked by a worker, over a socket."""

import copy
import socket
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uvicorn

import cloister as cl
from cloister import learn, synth
from cloister.client import Client
from cloister.client.client import Waiting
from cloister.client.wire import table_to_text
from cloister.data.hospital import SCHEMA, hospital
from cloister.data.schema import Schema
from cloister.data.schema_file import to_yaml
from cloister.hub.core.hub import Hub
from cloister.hub.core.settings import Settings
from cloister.hub.jobs.worker import work
from cloister.hub.ops.setup import invitation_link
from cloister.hub.users import accounts, user_actions
from cloister.hub.web.app import create_app
from cloister.privacy.errors import (
    BadForm,
    BadLoss,
    BadPolicy,
    BadSchema,
    Denied,
    NotHere,
    NotNow,
    OverBudget,
    QueryRefused,
    ReceiptRejected,
    SealBroken,
    SignInFailed,
)
from cloister.privacy.signing import SigningKey
from cloister.query.answer import Answer

POLICY = """
dataset: visits
purposes: [health-research]
budget:
  lifetime: {epsilon: 5, delta: 1e-6}
  approvals: [{above: {rho: 0.02}, needs: 1}]
roles:
  analysts:
    who: {roles: [data user]}
    may: [see schema, query, profile, train, predict, synthesise]
  guests:
    who: {roles: [auditor]}
    may: [see schema, query]
    by_request: true
"""
WARDS = "SELECT ward, COUNT(*) AS n, AVG(age) AS age FROM visits GROUP BY ward"
PURPOSE = "health-research"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A hub with an owner and a user; its address, and a token of each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("hub") / "hub"
    settings = Settings(folder=folder, address=f"http://127.0.0.1:{port}", requests_per_minute=100_000)
    hub = Hub.create(settings)
    tokens = {}
    for name, role in (("owner", "data owner"), ("user", "data user"), ("auditor", "auditor"), ("nobody", "operator")):
        email = f"{name}@x.org"
        secret = invitation_link(hub, email, [role], "X").rpartition("/")[2]
        user_actions.sign_up(hub, email=email, name=name, password="nine quiet herons", address="", invitation=secret)
        with hub.database.reading() as session:
            person = accounts.find(session, email)
        tokens[name] = user_actions.make_token(hub, person, "t", ("read", "work", "share"), 1)
    server = uvicorn.Server(uvicorn.Config(create_app(hub), port=port, log_config=None, lifespan="off"))
    stop = threading.Event()
    threads = [
        threading.Thread(target=server.run, daemon=True),
        threading.Thread(target=work, args=(hub, "test", stop), daemon=True),
    ]
    for thread in threads:
        thread.start()
    while not server.started:
        time.sleep(0.02)
    yield hub, settings.address, tokens
    stop.set()
    server.should_exit = True
    for thread in threads:
        thread.join(20)
    hub.close()


@pytest.fixture(scope="module")
def owner(served):
    with Client(served[1], served[2]["owner"]) as client:
        yield client


@pytest.fixture(scope="module")
def shared(owner, tmp_path_factory):
    """The dataset, sent by its owner through the client; what was seen of its progress."""
    path = tmp_path_factory.mktemp("data") / "visits.parquet"
    pq.write_table(pa.table(hospital(600)), path)
    seen = []
    owner.create_dataset(
        "visits", policy=POLICY, schema=SCHEMA, tables={"visits": path}, progress=lambda *step: seen.append(step)
    )
    return path, seen


@pytest.fixture(scope="module")
def client(served, shared):
    hub, address, tokens = served
    with Client(address, tokens["user"], owner_key=str(hub.key.public)) as made:
        yield made


@pytest.fixture(scope="module")
def visits(client):
    return client.dataset("visits", purpose=PURPOSE)


def test_it_knows_who_it_is(client):
    assert client.me()["email"] == "user@x.org"


def test_a_dataset_is_shared_with_its_progress_shown(shared, owner):
    path, seen = shared
    assert seen[-1] == ("visits", path.stat().st_size, path.stat().st_size)
    assert [one["name"] for one in owner.datasets()] == ["visits"]


def test_the_schema_is_the_one_that_was_shared(visits):
    assert visits.schema == Schema.load(SCHEMA)


def test_an_answer_is_the_same_object_as_from_a_local_dataset(visits, served):
    answer = visits.sql(WARDS, spend=cl.rho("0.01"))
    assert isinstance(answer, Answer)
    assert answer.columns == ("ward", "n", "age")
    assert len(answer) == 6
    assert sum(answer.column("n")) == pytest.approx(1000, abs=1100)  # the standard error of the sum is 181
    answer.receipt.verify(served[0].key.public)
    assert answer.loss == cl.rho("0.01")


def test_a_plan_costs_nothing_and_can_be_run(visits):
    before = visits.facts["left"]
    plan = visits.plan("SELECT COUNT(*) AS n FROM visits WHERE age > 50", spend=cl.rho("0.001"))
    assert plan.loss == cl.rho("0.001")
    assert plan.errors
    assert "COUNT" in str(plan)
    assert visits.facts["left"] == before
    assert visits.run(plan).item() > 0


def test_the_error_may_be_named_instead_of_the_cost(visits):
    plan = visits.plan("SELECT COUNT(*) AS n FROM visits WHERE age > 60", within=200)
    assert plan.loss is not None
    assert plan.loss < cl.rho("0.02")
    answer = visits.run(plan)
    assert answer.column("n_high")[0] - answer.column("n_low")[0] <= 400


def test_questions_are_built_in_python_too(visits):
    answer = visits.where("age >= 18").group_by("ward").agg(cl.count()).run(spend=cl.rho("0.002"))
    assert answer.columns == ("ward", "count")


def test_another_kind_of_work_leaves_what_it_found(visits):
    done = visits.run("profile", table="visits", spend=cl.rho("0.01"))
    assert done.kind == "profile"
    assert done.result
    assert done.loss == cl.rho("0.01")
    assert done.receipts


def test_a_model_is_trained_on_the_hub_and_loaded_here_with_its_receipt(visits, served, tmp_path):
    spend = cl.rho("0.015")
    model = visits.train("MixedNB", target="readmitted", features=["age", "ward"], spend=spend, evaluate="0.5")
    assert type(model).__name__ == "MixedNB"
    assert model.release_.loss == spend
    model.release_.receipt.verify(served[0].key.public)
    rows = visits.mock().to_pandas()
    assert set(model.predict(learn.prepare(model, rows))) <= {0, 1}
    job = visits.client.job(visits.client.jobs()[0]["id"])
    assert job.finished().result["evaluation"]["measure"] == "accuracy"
    assert job.model().release_.receipt == model.release_.receipt
    rows = {"age": [30, 70], "ward": ["surgery", "maternity"]}
    assert job.predict(rows) == model.predict(learn.prepare(model, rows)).tolist()
    assert job.predict(rows, show="top 1") == [[answer] for answer in job.predict(rows)]
    file = tmp_path / "rows.csv"
    file.write_text("age,ward\n30,surgery\n70,maternity\n", encoding="utf-8-sig")
    asked = visits.ask_model(job.id)  # one's own: it costs nothing
    assert asked.finished().result["asked"]["model"] == str(job.id)
    assert asked.predict(file) == job.predict(rows)
    with pytest.raises(BadForm, match="no model of a job"):
        visits.ask_model(10**6)
    for wrong, content in (("missing.csv", None), ("wrong.csv", b"\xff\xff")):
        if content is not None:
            (tmp_path / wrong).write_bytes(content)
        with pytest.raises(BadForm, match="cannot be read"):
            asked.predict(tmp_path / wrong)


def test_answers_of_a_model_are_those_that_the_hub_signed_for_these_rows(visits, served, monkeypatch):
    spend = cl.rho("0.004")
    for target, name in (("readmitted", "MixedNB"), ("cost", "LinearRegression")):
        visits.train(name, target=target, features=["age", "ward"], spend=spend)
    numbers, classes = (visits.client.job(visits.client.jobs()[place]["id"]) for place in (0, 1))
    rows, others = {"age": [30, 70], "ward": ["surgery", "surgery"]}, {"age": [70, 30], "ward": ["surgery", "surgery"]}
    for job in (numbers, classes):  # floats and classes arrive as they were signed
        for show in ("", "full"):
            assert len(job.predict(rows, show=show)) == 2
    post = visits.client.transport.json
    body = {"rows": "age,ward\r\n30,surgery\r\n70,surgery\r\n", "show": "full"}
    told = {job.id: post("POST", f"/api/jobs/{job.id}/predictions", body) for job in (numbers, classes)}
    mine = told[classes.id]
    forgeries = [
        (rows, "full", {**mine, "answers": mine["answers"][::-1]}),
        (rows, "full", {**mine, "answers": mine["answers"][:1]}),
        (rows, "full", {**mine, "classes": mine["classes"][::-1]}),
        (rows, "full", {**mine, "policy": "label"}),
        (rows, "full", {name: value for name, value in mine.items() if name != "signature"}),
        (rows, "full", told[numbers.id]),  # genuine, of another model
        (rows, "", mine),  # genuine, of another question
        (others, "full", mine),  # genuine, of other rows
    ]
    with monkeypatch.context() as patch:
        patch.setattr(visits.client.transport, "json", lambda *_: mine)
        assert classes.predict(rows, show="full") == mine["answers"]
        for asked, show, forged in forgeries:
            patch.setattr(visits.client.transport, "json", lambda *_, forged=forged: forged)
            with pytest.raises(ReceiptRejected, match="has not signed these answers"):
                classes.predict(asked, show=show)
    with Client(served[1], served[2]["user"]) as trusting:  # nothing is pinned, so nothing is compared
        patched = trusting.job(classes.id)
        monkeypatch.setattr(trusting.transport, "json", lambda *_: forgeries[0][2])
        assert patched.predict(rows, show="full") == mine["answers"][::-1]


def test_a_table_is_made_on_the_hub_and_arrives_with_its_side_file_and_progress(visits, served):
    spend, told = cl.rho("0.01"), []
    form = {"spend": spend, "rows": 150, "columns": ["ward", "age"], "score": "0.2"}
    planned = visits.plan_work("synthesise", {"method": "mst", **form})
    assert planned.loss == spend
    assert "2 columns by themselves" in str(planned)
    table = visits.synthesise(method="mst", **form, progress=lambda share, word: told.append((share, word)))
    assert (len(table), table.to_arrow().column_names) == (150, ["ward", "age"])
    assert table.loss == cl.rho("0.008")
    assert table.side["score"]["publishable"]
    table.verify(served[0].key.public)
    assert told
    assert all(0 <= share <= 1 for share, _ in told)
    job = visits.client.job(visits.client.jobs()[0]["id"])
    assert job.finished().loss == spend
    assert len(job.receipts) == 2
    assert job.synthetic().to_arrow() == table.to_arrow()
    with pytest.raises(BadForm, match="left no model"):
        job.model()


def test_an_owner_hands_a_table_in_and_a_user_takes_it(visits, served, owner, tmp_path):
    path = tmp_path / "mine.parquet"
    with cl.open(pa.table(hospital(300)), schema=SCHEMA, budget=cl.rho(1), ledger=tmp_path, name="mine") as data:
        made = synth.independent(data, spend=cl.rho("0.004"), rows=80, columns=["ward", "age"])
        key = data.account.book.key.public
    made.to_parquet(path)
    hub, mine = served[0], owner.dataset("visits")
    before = hub.ledger.balance("visits").spent
    with pytest.raises(BadForm, match="give the public key"):
        mine.hand_in(path)
    with pytest.raises(NotHere):
        visits.hand_in(path, key=key)
    number = mine.hand_in(path, key=key)
    assert hub.ledger.balance("visits").spent == before + cl.rho("0.004")
    (sheet,) = visits.handed_in()
    assert (sheet["number"], sheet["method"], sheet["rows"], sheet["columns"]) == (
        number, "independent", 80, ["ward", "age"]
    )  # fmt: skip
    table = visits.take(number)
    assert table.to_arrow() == made.to_arrow()
    assert table.loss == cl.rho("0.004")
    assert table.side["handed in"]["key"] == str(key)
    assert owner.job(number).synthetic().to_arrow() == table.to_arrow()
    with pytest.raises(NotNow, match="uploaded before"):
        mine.hand_in(path, key=key)
    with Client(served[1], served[2]["auditor"]) as other, pytest.raises(Denied):
        other.dataset("visits").take(number)
    with Client(served[1], served[2]["user"], owner_key=SigningKey.create().public) as other, pytest.raises(SealBroken):
        other.dataset("visits", purpose=PURPOSE).take(number)


def test_a_genuine_table_of_another_job_or_number_is_not_taken(visits, served, owner, tmp_path):
    """Somebody between the two answers with other tables that the hub signed."""
    path, numbers = tmp_path / "mine.parquet", []
    with cl.open(pa.table(hospital(300)), schema=SCHEMA, budget=cl.rho(1), ledger=tmp_path, name="mine") as data:
        key = data.account.book.key.public
        for rows in (60, 61):
            synth.independent(data, spend=cl.rho("0.001"), rows=rows, columns=["ward"]).to_parquet(path)
            numbers.append(owner.dataset("visits").hand_in(path, key=key))
    form = {"method": "independent", "table": "visits", "columns": ["ward"], "rows": 20, "spend": cl.rho("0.001")}
    job = visits.submit("synthesise", form)
    job.synthetic(wait_s=120)
    record = visits.client.get(f"/api/jobs/{job.id}")
    of_a_job = {"side": record["result"]["side"], "key": record["result"]["key"]}
    content_of_a_job = visits.client.transport.raw("GET", f"/api/jobs/{job.id}/table")
    with Client(served[1], served[2]["user"], owner_key=served[0].key.public) as between:
        json_of, raw_of = between.transport.json, between.transport.raw
        mine = between.dataset("visits", purpose=PURPOSE)
        assert mine.take(numbers[0]).to_arrow().num_rows == 60

        def swapped(path):
            return path.replace(f"/tables/{numbers[0]}", f"/tables/{numbers[1]}")

        between.transport.json = lambda method, path, body=None: json_of(method, swapped(path), body)
        between.transport.raw = lambda method, path, *more, **named: raw_of(method, swapped(path), *more, **named)
        with pytest.raises(ReceiptRejected, match=f"not as table {numbers[0]}"):
            mine.take(numbers[0])
        between.transport.json = lambda *_: of_a_job
        between.transport.raw = lambda *_, **__: content_of_a_job
        with pytest.raises(ReceiptRejected, match="not as table"):
            mine.take(job.id)


def test_a_table_signed_by_another_key_is_not_taken(served, shared):
    other = SigningKey.create().public
    form = {"method": "independent", "columns": ["ward"], "rows": 20, "spend": cl.rho("0.001")}
    with Client(served[1], served[2]["user"], owner_key=other) as client, pytest.raises(ReceiptRejected):
        client.dataset("visits", purpose=PURPOSE).synthesise(**form)


def test_a_model_signed_by_another_key_is_not_loaded(served, shared):
    other = SigningKey.create().public
    with Client(served[1], served[2]["user"], owner_key=other) as client, pytest.raises(ReceiptRejected):
        client.dataset("visits", purpose=PURPOSE).train("Ridge", target="cost", spend=cl.rho("0.001"))


@pytest.mark.parametrize("spend", [cl.epsilon("0.05"), cl.epsilon("0.05", delta="1e-9"), cl.rho("0.001")])
def test_an_answer_is_taken_whatever_its_cost_is_written_in(served, shared, spend):
    """The receipt states the account's own kind of loss, the answer the one that was asked for."""
    with Client(served[1], served[2]["user"], owner_key=served[0].key.public) as client:
        answer = client.dataset("visits", purpose=PURPOSE).sql(
            f"SELECT COUNT(*) AS n FROM visits WHERE age > {20 + spend.delta.denominator % 7}", spend=spend
        )
        assert answer.loss.amount
        assert answer.receipt is not None


def test_a_free_answer_with_a_cost_that_the_hub_did_not_sign_is_refused(served, shared):
    form = {"sql": "SELECT COUNT(*) AS n FROM visits WHERE age > 33", "spend": "rho 0.001"}
    with Client(served[1], served[2]["user"], owner_key=served[0].key.public) as client:
        data = client.dataset("visits", purpose=PURPOSE)
        data.submit("query", form).finished()
        again = data.submit("query", form)
        free = again.finished()
        assert free.kind == "query"
        assert free.loss is None or not free.loss.amount
        nothing = {"measure": "rho", "amount": "0", "delta": "0", "relation": "add/remove"}
        again.record["loss"] = {**nothing, **(again.record["loss"] or {}), "delta": "1/2"}
        again.record["kind"] = "train"
        with pytest.raises(ReceiptRejected, match="cost"):
            again.finished()
        again.record["loss"]["delta"] = "0"
        assert again.finished().kind == "query"


def test_the_genuine_model_of_another_job_is_refused(served, shared):
    with Client(served[1], served[2]["user"], owner_key=served[0].key.public) as client:
        data = client.dataset("visits", purpose=PURPOSE)
        for spend in ("0.001", "0.002"):
            data.train("Ridge", target="cost", features=["age"], spend=cl.rho(spend))
        dear, cheap = (client.job(one["id"]) for one in client.jobs()[:2])
        for job in (dear, cheap):
            assert job.model().release_.receipt == job.finished().receipts[0]
        dear.record["receipts"] = cheap.record["receipts"]
        with pytest.raises(ReceiptRejected, match="another job"):
            dear.model()
        dear.record["result"] = {**dear.record["result"], "model": cheap.record["result"]["model"]}
        with pytest.raises(ReceiptRejected, match="has not signed"):
            dear.model()


def test_a_question_leaves_no_model(visits):
    visits.sql("SELECT COUNT(*) AS n FROM visits", spend=cl.rho("0.001"))
    job = visits.client.job(visits.client.jobs()[0]["id"])
    with pytest.raises(BadForm, match="left no model"):
        job.model()
    with pytest.raises(BadForm, match="left no table"):
        job.synthetic()
    for file in ("model", "table"):
        with pytest.raises(NotHere):
            visits.client.transport.raw("GET", f"/api/jobs/{job.id}/{file}")


def test_a_question_is_tried_on_mock_rows_with_nobody_in_them(visits, tmp_path):
    mock = visits.mock()
    assert mock.num_rows > 0
    assert not set(mock.column("patient").to_pylist()) & set(hospital(600)["patient"].tolist())
    with cl.open({"visits": mock}, schema=visits.schema, budget=cl.rho(1), ledger=tmp_path) as local:
        assert local.sql(WARDS, spend=cl.rho("0.1")).columns == ("ward", "n", "age")


@pytest.mark.parametrize(
    ("sql", "spend", "error"),
    [
        ("SELECT * FROM visits", cl.rho("0.001"), QueryRefused),
        ("SELECT COUNT(*) FROM nothing", cl.rho("0.001"), QueryRefused),
        ("SELECT COUNT(*) FROM visits WHERE age = 3", cl.rho(50), OverBudget),
    ],
)
def test_a_refusal_is_the_same_exception_as_locally(visits, sql, spend, error):
    with pytest.raises(error) as caught:
        visits.sql(sql, spend=spend)
    assert str(caught.value).startswith(f"{error.code}: ")
    assert str(caught.value).count(error.code) == 1


def test_a_purpose_that_is_not_allowed_is_denied(client):
    with pytest.raises(Denied):
        client.dataset("visits", purpose="marketing").sql(WARDS, spend=cl.rho("0.001"))


def test_one_must_say_what_it_may_cost_or_how_wrong_it_may_be(visits):
    with pytest.raises(BadLoss):
        visits.plan(WARDS)
    with pytest.raises(BadForm):
        visits.run(visits.plan(WARDS, spend=cl.rho("0.001")), source=object())


@pytest.mark.parametrize("spend", [0.1, "rho 0.1", None, cl.rho("0.01", relation="replace-one")])
def test_a_spend_that_is_no_loss_is_refused_as_it_is_locally(visits, spend):
    asks = [
        lambda: visits.sql(WARDS, spend=spend),
        lambda: visits.train("MixedNB", target="readmitted", spend=spend),
        lambda: visits.synthesise(spend=spend),
    ]
    asks += [] if spend is None else [lambda: visits.plan(WARDS, spend=spend), lambda: visits.why(spend=spend)]
    for ask in asks:
        with pytest.raises(BadLoss, match=r"Give an add/remove spend|Write spend=epsilon\('0.1'\)"):
            ask()


def test_work_that_needs_an_approval_says_so_and_goes_on_when_it_comes(visits, owner):
    with pytest.raises(Waiting, match="approval") as caught:
        visits.sql("SELECT SUM(cost) AS cost FROM visits", spend=cl.rho("0.03"))
    job = caught.value.job
    assert job.state == "waiting"
    (waiting,) = owner.requests()["waiting"]
    assert waiting["job"] == job.id
    assert owner.decide(waiting["id"], True)["state"] == "granted"
    job.refresh()
    answer = job.answer(wait_s=30)
    assert isinstance(answer.item(), float)
    assert job.receipt == answer.receipt


def test_a_job_is_found_again_by_its_number_and_can_be_cancelled(visits, client):
    job = visits.submit("query", {"sql": "SELECT SUM(age) AS a FROM visits", "spend": cl.rho("0.03")})
    again = client.job(job.id)
    assert again.state == "waiting"
    assert again.cancel() == "cancelled"
    with pytest.raises(cl.privacy.errors.CloisterError):
        again.answer(wait_s=1)
    assert job.id in [one["id"] for one in client.jobs()]


def test_an_answer_signed_by_another_key_is_not_returned(served, shared):
    _, address, tokens = served
    other = SigningKey.create().public
    with Client(address, tokens["user"], owner_key=other) as client:
        visits = client.dataset("visits", purpose=PURPOSE)
        with pytest.raises(ReceiptRejected):
            visits.sql("SELECT COUNT(*) AS n FROM visits WHERE age > 33", spend=cl.rho("0.001"))


def forgeries(job, other):
    """What somebody between the hub and its client could send without the hub's key: name, and the job's record."""
    wrong = copy.deepcopy(job)
    wrong["result"]["answer"]["table"] = table_to_text(pa.table({"n": [666.0], "n_low": [665.0], "n_high": [667.0]}))
    yield "other numbers", wrong
    wrong = copy.deepcopy(job)
    wrong["result"]["answer"]["loss"] = cl.rho("0.0001").to_json()
    yield "another loss of the answer", wrong
    wrong = copy.deepcopy(job)
    wrong["loss"] = cl.rho("0.0001").to_json()
    yield "another loss of the job", wrong
    wrong = copy.deepcopy(job)
    wrong["result"]["answer"]["receipt"], wrong["receipts"] = None, []
    yield "no receipt", wrong
    wrong = copy.deepcopy(job)
    wrong["receipts"] = []
    yield "no receipt beside the answer", wrong
    wrong = copy.deepcopy(job)
    wrong["receipts"] = other["receipts"]
    yield "the receipt of another answer beside the answer", wrong
    wrong = copy.deepcopy(job)
    del wrong["result"]["label"]
    yield "no label", wrong
    wrong = copy.deepcopy(job)
    wrong["result"]["label"] = other["result"]["label"]
    yield "the label of another answer", wrong
    yield "another genuine answer", {**copy.deepcopy(other), "id": job["id"]}


def test_a_result_that_the_hub_did_not_sign_for_this_question_is_not_returned(client, visits, monkeypatch):
    asked = {"sql": "SELECT COUNT(*) AS n FROM visits WHERE age > 41", "spend": cl.rho("0.001")}
    first = visits.submit("query", asked)
    first.answer()
    second = visits.submit("query", {**asked, "sql": asked["sql"].replace("41", "42")})
    second.answer()
    job, other = (client.get(f"/api/jobs/{one.id}") for one in (first, second))
    real = client.transport.json
    for name, record in forgeries(job, other):

        def forged(method, path, body=None, record=record):
            return record if "/jobs" in path else real(method, path, body)

        monkeypatch.setattr(client.transport, "json", forged)
        with pytest.raises(ReceiptRejected):
            print(name, visits.submit("query", asked).answer())
        monkeypatch.setattr(client.transport, "json", real)
    monkeypatch.setattr(client.transport, "json", lambda method, path, body=None: copy.deepcopy(job))
    assert visits.submit("query", asked).answer().loss.amount
    with pytest.raises(ReceiptRejected, match="another question"):
        client.dataset("another", purpose=PURPOSE).submit("query", asked).answer()
    with pytest.raises(ReceiptRejected, match="another question"):
        visits.submit("query", asked, purpose="quality-assurance").answer()


def test_an_answer_from_the_record_and_other_work_are_checked_too(client, visits, monkeypatch):
    asked = {"sql": "SELECT COUNT(*) AS n FROM visits WHERE age > 43", "spend": cl.rho("0.001")}
    assert visits.submit("query", asked).answer().loss.amount
    assert not visits.submit("query", asked).answer().loss.amount
    job = visits.submit("profile", {"table": "visits", "spend": cl.rho("0.001")})
    assert job.finished().result
    record = copy.deepcopy(client.get(f"/api/jobs/{job.id}"))
    record["result"]["extra"] = 1
    monkeypatch.setattr(client.transport, "json", lambda *_: record)
    with pytest.raises(ReceiptRejected, match="not signed these numbers"):
        client.job(job.id).finished()


def test_receipts_of_another_job_are_refused(client, visits, monkeypatch):
    sql = "SELECT COUNT(*) AS n FROM visits WHERE age > "
    cheap = visits.submit("query", {"sql": sql + "44", "spend": cl.rho("0.001")})
    dear = visits.submit("query", {"sql": sql + "45", "spend": cl.rho("0.002")})
    assert cheap.finished().receipts == cheap.receipts != dear.finished().receipts
    raw = client.transport.raw

    def swapped(method, path, *rest):
        return raw(method, f"/api/jobs/{cheap.id}/receipt" if path.endswith("/receipt") else path, *rest)

    monkeypatch.setattr(client.transport, "raw", swapped)
    with pytest.raises(ReceiptRejected, match="another job"):
        assert dear.receipts
    record = copy.deepcopy(
        {**client.get(f"/api/jobs/{dear.id}"), "receipts": client.get(f"/api/jobs/{cheap.id}")["receipts"]}
    )
    monkeypatch.setattr(client.transport, "json", lambda *_: record)
    with pytest.raises(ReceiptRejected, match="another job"):
        client.job(dear.id).finished()


def test_the_genuine_record_of_another_job_is_refused_for_a_job_found_by_its_number(client, visits, monkeypatch):
    sql = "SELECT COUNT(*) AS n FROM visits WHERE age > "
    first, second = (visits.submit("query", {"sql": f"{sql}{age}", "spend": cl.rho("0.001")}) for age in (51, 52))
    assert client.job(first.id).answer().value == first.answer().value
    record = {**client.get(f"/api/jobs/{second.id}?wait=30"), "id": first.id}
    monkeypatch.setattr(client.transport, "json", lambda *_: record)
    with pytest.raises(ReceiptRejected, match="genuine, but of another job"):
        client.job(first.id).answer()


def test_a_new_version_pays_from_the_same_account(owner, shared, visits):
    before = visits.facts["left"]
    assert owner.dataset("visits").upload({"visits": shared[0]}) == 2
    assert visits.facts["left"] == before
    assert visits.facts["version"] == 2


def test_what_one_may_not_know_of_is_not_here(served, shared):
    _, address, tokens = served
    with Client(address, tokens["nobody"]) as stranger:
        for ask in (lambda: stranger.dataset("visits").facts, lambda: stranger.dataset("nothing").facts):
            with pytest.raises(NotHere):
                ask()


def test_a_wrong_token_is_refused(served):
    with Client(served[1], "clo_wrong") as client, pytest.raises(SignInFailed):
        client.me()


def test_a_dataset_without_a_good_policy_is_not_made(owner, shared):
    with pytest.raises(BadPolicy):
        owner.create_dataset("more", policy="dataset: more\n", schema=SCHEMA, tables={"visits": shared[0]})
    with pytest.raises(BadSchema):
        owner.create_dataset("more", policy=POLICY, schema=SCHEMA, tables={"others": shared[0]})


def test_policy_and_schema_may_be_files(owner, shared, tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY.replace("dataset: visits", "dataset: files"))
    (tmp_path / "schema.yaml").write_text(to_yaml(SCHEMA))
    made = owner.create_dataset(
        "files", policy=tmp_path / "policy.yaml", schema=tmp_path / "schema.yaml", tables={"visits": shared[0]}
    )
    assert made.facts["version"] == 1


def test_access_is_asked_for_and_given(served, shared, owner):
    with Client(served[1], served[2]["auditor"]) as auditor:
        visits = auditor.dataset("visits", purpose=PURPOSE)
        assert visits.why()["allowed"] is False
        asked = visits.ask_access("guests", "To check the numbers in a paper.")
        owner.decide(asked["id"], True, "welcome")
        assert visits.why()["allowed"] is True
        assert visits.why(spend=cl.rho("1000"))["rule"] in ("per_request", "per_user", "lifetime")
        assert auditor.requests()["mine"][0]["state"] == "granted"
        assert visits.ledger()


def test_an_owner_attacks_a_model_and_nobody_else_does(visits, owner):
    job = visits.submit("train", {"estimator": "MixedNB", "target": "ward", "features": "age", "spend": cl.rho("0.01")})
    job.finished(wait_s=120)
    report = owner.dataset("visits").attack(job.id, wait_s=120)
    assert report["findings"]
    assert report["verdict"]
    with pytest.raises(NotHere):
        visits.attack(job.id)
    with pytest.raises(NotHere, match="nothing here that can be attacked"):
        owner.dataset("visits").attack(10**6)

"""A table that its owner made elsewhere, handed in: what is refused, what is charged when, who may have it."""

import base64
import functools
import hashlib
import io
import json
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from sqlalchemy.orm import undefer

import cloister as cl
from cloister import synth
from cloister.data.hospital import SCHEMA, hospital
from cloister.data.schema import Schema
from cloister.hub.accounting import statements
from cloister.hub.core.models import AuditEntry, Job, Person, Spent
from cloister.hub.jobs import queue
from cloister.hub.jobs.external_tables import access, submission
from cloister.hub.jobs.external_tables.check import check_rows, read_given
from cloister.hub.jobs.external_tables.submission import VOUCHES, hand_in
from cloister.hub.jobs.maintenance import remove_old_results
from cloister.hub.users import sessions
from cloister.hub.web.app import create_app
from cloister.privacy.errors import (
    BadForm,
    BadInput,
    CloisterError,
    Denied,
    NotHere,
    NotNow,
    NotPrivate,
    OverBudget,
    ReceiptRejected,
    RelationMismatch,
    StoreFailed,
)
from cloister.privacy.loss import rho
from cloister.privacy.signing import SigningKey
from cloister.synth.output.shared_table import parse_table, read_table, side_path

COLUMNS = ["ward", "age", "admitted"]
PURPOSE = "health-research"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Both files as an owner has them, and the key of the ledger that paid."""
    folder = tmp_path_factory.mktemp("owner")
    with cl.open(pa.table(hospital(1_500)), schema=SCHEMA, budget=rho(1), ledger=folder, name="mine") as data:
        table = synth.mst(data, spend=rho("0.02"), rows=300, columns=COLUMNS)
        score = synth.publishable_score(data, table, spend=rho("0.005"), columns=COLUMNS).to_json()
        table.to_parquet(folder / "table.parquet")
        key = str(data.account.book.key.public)
    return folder / "table.parquet", key, score


@pytest.fixture
def files(made):
    path, key, _ = made
    return path.read_bytes(), json.loads(side_path(path).read_bytes()), key


@pytest.fixture
def world(hospital_hub):
    may = "may: [see schema, query, profile]"
    hospital_hub.publish(change=[(may, may.replace("profile", "profile, synthesise"))])
    return hospital_hub


def give(world, files, who="owner", **changes):
    content, side, key = files
    side = {name: one for name, one in {**side, **changes}.items() if one is not ...}
    return hand_in(world.hub, world.people[who], "visits", content, json.dumps(side).encode(), key)


def look(world, who, purpose=""):
    return access.look(world.hub, world.people[who], "visits", purpose, world.here)


def take(world, who, number, purpose=""):
    return access.take(world.hub, world.people[who], "visits", number, purpose, world.here, "parquet")


def rewritten(content, change):
    sink = io.BytesIO()
    pq.write_table(change(pq.read_table(io.BytesIO(content))), sink)
    return sink.getvalue()


def checked(files, **changes):
    content, side, key = files
    side = {name: one for name, one in {**side, **changes}.items() if one is not ...}
    return read_given(content, json.dumps(side).encode(), key, Schema.load(SCHEMA))


# The files


def test_files_as_they_were_written_are_taken(files):
    given = checked(files)
    assert (given.loss, given.scoring, given.facts.name, len(given.handed)) == (rho("0.02"), None, "visits", 300)


def test_a_side_file_names_the_bytes_of_its_table_and_a_changed_table_is_refused(made, tmp_path, files):
    content, side, key = files
    assert read_table(made[0]).side["sha256"] == side["sha256"]
    other = rewritten(content, lambda rows: rows.set_column(1, "age", pc.subtract(100, rows["age"])))
    with pytest.raises(BadForm, match="of another table, or the table was changed"):
        checked((other, side, key))
    copy = read_table(made[0])
    copy.to_parquet(tmp_path / "copy.parquet")
    read_table(tmp_path / "copy.parquet").verify(key)
    (tmp_path / "copy.parquet").write_bytes(other)
    with pytest.raises(CloisterError, match="the table was changed"):
        read_table(tmp_path / "copy.parquet").verify(key)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"private": False}, NotPrivate, "seed"),
        ({"private": "yes"}, NotPrivate, "seed"),
        ({"measured": ...}, BadForm, "not complete: measured is missing"),
        ({"receipt": ...}, BadForm, "not complete: receipt is missing"),
        ({"gate": "pass"}, BadForm, "'gate', which belongs into none"),
        ({"cloister": "model"}, BadForm, "no metadata file"),
        ({"table": "salaries"}, BadForm, "this dataset has visits"),
        ({"unit": "one patient (at most 4 rows)"}, BadForm, "at most 8 rows"),
        ({"rows": 299}, BadForm, "another number of rows"),
        ({"method": "<b>"}, BadForm, "a word such as aim"),
        ({"method": ["aim"]}, BadForm, "a word such as aim"),
        ({"chosen": ["\ud800"]}, BadForm, "cannot be read"),
        ({"chosen": float("1e308") * 10}, BadForm, "cannot be read"),
        ({"never": 2**70}, BadForm, "cannot be read"),
        ({"determines": functools.reduce(lambda inner, _: [inner], range(900), [])}, BadForm, "cannot be read"),
        ({"chosen": "x" * 20_000}, BadForm, "cannot be read"),
        ({"columns": []}, BadForm, "other columns"),
        ({"columns": 5}, BadForm, "cannot be read"),
        ({"sha256": "0" * 64}, BadForm, "of another table"),
        ({"loss": {}}, BadInput, "a recorded loss"),
        ({"loss": {**rho(1).to_json(), "amount": "1e999999999"}}, BadInput, "amount"),
        ({"loss": {**rho(1).to_json(), "amount": ["1"]}}, BadInput, "amount"),
        ({"loss": {**rho(1).to_json(), "delta": "1"}}, BadForm, "none that a table could have cost"),
        ({"loss": rho("0.01").to_json()}, BadForm, "says something else"),
        ({"loss": {**rho(1).to_json(), "amount": "0"}}, BadForm, "none that a table could have cost"),
        ({"neighbours": "replace-one"}, BadForm, "other neighbours"),
        ({"signature": "AAAA"}, BadForm, "signature does not fit"),
        ({"receipt": {"receipt": {}, "signature": ""}}, BadForm, "receipt does not hold"),
        ({"score": {"one-way error": 0.1}}, BadForm, "none that may be told"),
    ],
)
def test_a_side_file_that_does_not_fit_is_refused(files, changes, error, words):
    with pytest.raises(error, match=words):
        checked(files, **changes)


def test_a_receipt_is_held_against_the_key_that_is_given(files):
    content, side, _ = files
    with pytest.raises(BadForm, match="give the public key"):
        checked((content, side, ""))
    with pytest.raises(BadForm, match="does not hold"):
        checked((content, side, str(SigningKey.create().public)))
    with pytest.raises(BadInput, match="a public key is one line"):
        checked((content, side, "mine"))
    assert checked((content, {**side, "receipt": None}, "")).key == ""


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"ward,age\n", "not Parquet"), (b"PAR1 and no more", "not whole Parquet"), (b"", "not Parquet")],
)
def test_a_table_that_is_no_parquet_is_refused(files, content, words):
    with pytest.raises(CloisterError, match=words):
        checked((content, files[1], files[2]))
    for side in (b"{", b"[" * 100_000, b'{"a": NaN}', b"\xff", b"7"):
        with pytest.raises(BadForm):
            read_given(files[0], side, files[2], Schema.load(SCHEMA))


def test_a_table_of_too_many_rows_is_refused(files, monkeypatch):
    monkeypatch.setattr("cloister.hub.jobs.external_tables.check.MOST_CELLS", 899)
    with pytest.raises(BadForm, match="at most"):
        checked(files)


# The rows

FACTS = Schema.load(
    {
        "unit": "row",
        "tables": {
            "stays": {
                "never": [{"ward": "maternity", "age": {"from": 60}}],
                "determines": ["ward -> house"],
                "columns": {
                    "ward": {"type": "text", "categories": ["surgery", "maternity"], "nullable": False},
                    "house": {"type": "integer", "categories": [1, 2]},
                    "age": {"type": "integer", "bounds": [0, 100]},
                    "cost": {"type": "real", "bounds": [0, 10]},
                    "day": {"type": "date", "bounds": ["2025-01-01", "2025-12-31"]},
                    "at": {"type": "timestamp", "bounds": ["2025-01-01 08:00:00", "2025-12-31 08:00:00"]},
                    "name": {"type": "text"},
                    "open": {"type": "integer"},
                },
            }
        },
    }
).tables["stays"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"ward": ["surgery", "Surgery"]}, "1 row have a ward that is not among its categories"),
        ({"ward": ["surgery", None]}, "have no ward"),
        ({"house": [1, 3]}, "categories"),
        ({"age": [101, -1]}, "2 rows have a age that is not within 0 and 100"),
        ({"age": ["1", "2"]}, "holds string, and is integer"),
        ({"age": [1.5, 2.0]}, "holds double, and is integer"),
        ({"cost": [float("nan"), 1.0]}, "1 row have a cost"),
        ({"cost": [float("inf"), 1.0]}, "1 row have a cost"),
        ({"name": ["Ada Brandt", "0123456789abcdef"]}, "1 row have a name that is no fresh pseudonym"),
        ({"open": [1, 2]}, "no bounds and no categories"),
        ({"ward": ["maternity"] * 2, "age": [59, 60]}, "1 row are what never occurs"),
        ({"ward": ["maternity"] * 3, "house": [1, 1, 2]}, "1 row have another house"),
        ({"ward": ["maternity"] * 3, "house": [1, 1, None]}, "1 row have another house"),
    ],
)
def test_rows_that_the_schema_does_not_allow_are_refused(rows, words):
    with pytest.raises(BadForm, match=words):
        check_rows(pa.table(rows), FACTS)


def test_rows_that_the_schema_allows_are_taken():
    from datetime import date, datetime

    rows = {
        "ward": ["surgery", "maternity", "surgery"],
        "house": [1, 2, 1],
        "age": pa.array([100, 59, None], pa.int16()),
        "cost": [0, 10, None],
        "day": [date(2025, 1, 1), date(2025, 12, 31), None],
        "at": [datetime(2025, 1, 1, 8), datetime(2025, 12, 31, 8), None],
        "name": ["0123456789abcdef"] * 3,
    }
    check_rows(pa.table(rows), FACTS)
    with pytest.raises(BadForm, match="day that is not within"):
        check_rows(pa.table({"day": [date(2026, 1, 1)]}), FACTS)
    with pytest.raises(BadForm, match="at that is not within"):
        check_rows(pa.table({"at": [datetime(2025, 12, 31, 8, 0, 0, 1)]}), FACTS)


def test_rules_and_bounds_of_large_whole_numbers_are_checked_to_the_single_one():
    far = 2**53
    facts = Schema.load(
        {
            "unit": "row",
            "tables": {
                "t": {
                    "columns": {"a": {"type": "integer", "bounds": [far, far + 99]}},
                    "never": [{"a": far + 5}, {"a": {"from": far + 90, "below": far + 92}}],
                }
            },
        }
    ).tables["t"]
    check_rows(pa.table({"a": [far, far + 4, far + 6, far + 89, far + 92, far + 99]}), facts)
    for wrong in (far - 1, far + 5, far + 90, far + 91, far + 100):
        with pytest.raises(BadForm, match="1 row"):
            check_rows(pa.table({"a": [wrong]}), facts)


# In a hub


def test_only_the_owner_hands_in(world, files):
    for who in ("ada", "reviewer", "stranger"):
        with pytest.raises(NotHere):
            give(world, files, who)
    assert world.rows(sa.select(Job)) == []


def test_a_table_counts_among_the_results_that_are_kept_for_its_owner(world_maker, tmp_path, files):
    world = world_maker(tmp_path / "hub", results_mb=1)
    assert len(files[0]) < world.job(give(world, files).id).size < 10**6
    content = pq.read_table(io.BytesIO(files[0])).replace_schema_metadata({"large": "x" * 10**6})
    sink = io.BytesIO()
    pq.write_table(content, sink)
    side = {name: value for name, value in files[1].items() if name not in ("sha256", "signature")}
    before = world.spent()
    with pytest.raises(NotNow, match="1 MB of results are kept for one person"):
        give(world, (sink.getvalue(), side, files[2]))
    assert world.spent() == before
    world.hub.close()


def test_a_table_is_charged_kept_signed_and_written_down(world, files):
    job = give(world, files)
    done = world.job(job.id)
    assert (done.state, done.loss, world.spent()) == ("done", rho("0.02").to_json(), rho("0.02"))
    assert done.person_id == world.owner.id
    result = json.loads(json.dumps(done.result, allow_nan=False))
    content = base64.b64decode(result["file"])
    assert content == files[0]
    table = parse_table(content, json.dumps(result["side"]).encode())
    table.verify(world.hub.key.public)
    told = table.side["handed in"]
    assert (told["vouches"], told["key"], told["receipt"]) == (VOUCHES, files[2], files[1]["receipt"])
    assert table.receipt.body["mechanism"] == "handed in"
    assert table.receipt.text() == done.receipt
    assert sum(bar["value"] for bar in result["columns"][0]["bars"]) == pytest.approx(result["real"])
    actions = world.rows(sa.select(AuditEntry.action).order_by(AuditEntry.number))
    assert actions[-2:] == ["table.handed_in", "job.done"]
    with world.hub.database.reading() as session:
        statement = statements.for_owner(world.hub, session, world.dataset())
    assert statement.problems == ()
    assert [(one.person, one.loss, one.state) for one in statement.lines] == [("Owner", rho("0.02"), "released")]


def test_it_is_charged_before_anybody_sees_it(world, files, monkeypatch):
    seen, sign = [], submission._signed

    def signing(*asked):
        seen.append((world.spent(), look(world, "ada").sheets))
        return sign(*asked)

    monkeypatch.setattr(submission, "_signed", signing)
    give(world, files)
    assert seen == [(rho("0.02"), ())]
    assert len(look(world, "ada").sheets) == 1


def test_what_the_budget_does_not_have_is_refused_and_nobody_sees_it(world, files):
    with pytest.raises(OverBudget):
        give(world, (*files[:2], ""), receipt=None, loss=rho(100).to_json())
    assert not world.spent().amount
    assert world.rows(sa.select(Job)) == []
    assert look(world, "ada").sheets == ()


def test_a_budget_that_is_spent_meanwhile_refuses_it_too(world, files, monkeypatch):
    monkeypatch.setattr("cloister.hub.jobs.limits.check", lambda *_: None)
    account = world.hub.ledger.account("visits")
    reserve = type(world.hub.ledger).reserve

    def late(ledger, charges, request):
        monkeypatch.setattr(type(ledger), "reserve", reserve)
        account.reserve(account.left, "somebody was faster")
        return reserve(ledger, charges, request)

    monkeypatch.setattr(type(world.hub.ledger), "reserve", late)
    with pytest.raises(OverBudget):
        give(world, files)
    (job,) = world.rows(sa.select(Job).options(undefer(Job.result)))
    assert (job.state, job.loss, job.result) == ("refused", None, None)
    assert world.rows(sa.select(Spent)) == []
    assert look(world, "ada").sheets == ()


def test_a_ledger_that_may_be_an_older_copy_takes_none_and_names_no_place(world, files):
    world.hub.settings.head.unlink()
    with pytest.raises(NotNow, match="may be an older copy") as refused:
        give(world, files)
    assert str(world.hub.folder) not in str(refused.value)
    (job,) = world.rows(sa.select(Job).options(undefer(Job.result)))
    assert (job.state, str(refused.value)) == ("refused", job.problem)
    assert look(world, "ada").sheets == ()


def meanwhile(monkeypatch, change):
    """Do something when a table was checked, and nothing was charged for it yet."""
    begin = submission._begin

    def begins(*asked):
        job = begin(*asked)
        change()
        return job

    monkeypatch.setattr(submission, "_begin", begins)


def test_its_terms_are_those_of_the_policy_under_which_it_was_charged(world, files, monkeypatch):
    changed = ("joins: any", "joins: any\nretention: {days: 1}")
    meanwhile(monkeypatch, lambda: world.publish(change=[changed]))
    done = world.job(give(world, files).id)
    terms = json.loads(done.result["label"])["label"]
    assert (done.policy_number, terms["policy"]) == (3, 3)
    assert terms["keep_until"] is not None


def test_a_table_for_an_older_version_of_the_tables_is_refused_before_its_charge(world, files, monkeypatch):
    meanwhile(monkeypatch, world.another_version)
    with pytest.raises(NotNow, match=r"a newer version of the tables of visits .* Nothing was spent"):
        give(world, files)
    assert not world.spent().amount
    assert look(world, "ada").sheets == ()


def test_the_limit_of_a_period_counts_it(world, files):
    world.publish(
        change=[
            ("per_user:", "period: {days: 30, rho: 0.03}\n  per_user:"),
            ("may: [see schema, query, profile]", "may: [see schema, query, profile, synthesise]"),
        ]
    )
    give(world, files)
    with pytest.raises(OverBudget, match="30 days"):
        world.submit("ada", spend="rho 0.02")


def test_the_same_file_is_charged_once_and_another_one_again(world, files):
    job = give(world, files)
    with pytest.raises(NotNow, match=f"uploaded before, as job {job.id}"):
        give(world, files)
    with pytest.raises(NotNow, match="uploaded before"):
        give(world, (*files[:2], ""), receipt=None, loss=rho("0.001").to_json())
    assert world.spent() == rho("0.02")
    other = rewritten(files[0], lambda rows: rows.take(list(range(300))[::-1]))
    give(world, (other, *files[1:]), sha256=...)
    assert world.spent() == rho("0.04")


def test_a_loss_in_another_measure_is_priced_and_one_for_other_neighbours_refused(world, files):
    unsigned = (*files[:2], "")
    job = give(world, unsigned, receipt=None, loss=cl.epsilon("0.2").to_json())
    assert world.spent() == rho("0.02")
    result = world.job(job.id).result
    table = parse_table(files[0], json.dumps(result["side"]).encode())
    table.verify(world.hub.key.public)
    assert table.loss == cl.epsilon("0.2")
    loss = cl.epsilon("0.2", relation="replace-one").to_json()
    other = rewritten(files[0], lambda rows: rows.take(list(range(300))[::-1]))
    with pytest.raises(RelationMismatch):
        give(world, (other, files[1], ""), receipt=None, sha256=..., loss=loss, neighbours="replace-one")


def test_a_score_is_charged_too_or_left_out(world, files, made):
    give(world, files, score=made[2])
    (job,) = world.rows(sa.select(Job).options(undefer(Job.result)))
    assert world.spent() == rho("0.025")
    assert job.result["score"]["publishable"]
    assert job.result["side"]["score"] == made[2]
    assert len(job.receipt.splitlines()) == 2
    other = rewritten(files[0], lambda rows: rows.take(list(range(300))[::-1]))
    with pytest.raises(BadForm, match="not in the form"):
        give(world, (other, *files[1:]), sha256=..., score={**made[2], "columns": [{"column": "ward"}]})
    assert world.spent() == rho("0.025")


def test_a_score_that_cannot_be_paid_any_more_is_left_out_and_the_table_stays(world, files, made, monkeypatch):
    pay = submission._pay

    def late(book, account, loss, given, job, what):
        if what:
            whole = world.hub.ledger.account("visits")
            whole.reserve(whole.left, "somebody was faster")
        return pay(book, account, loss, given, job, what)

    monkeypatch.setattr(submission, "_pay", late)
    job = world.job(give(world, files, score=made[2]).id)
    assert (job.state, job.loss, len(job.receipt.splitlines())) == ("done", rho("0.02").to_json(), 1)
    assert (job.result["score"], job.result["side"]["score"]) == (None, None)
    assert "0 is left" in job.result["unscored"]
    parse_table(files[0], json.dumps(job.result["side"]).encode()).verify(world.hub.key.public)


def test_a_hub_that_stops_after_the_charge_shows_nothing_and_the_charge_stands(world, files, monkeypatch):
    def stops(*_args, **_more):
        raise StoreFailed("the power is out.")

    with monkeypatch.context() as broken:
        broken.setattr(submission, "_signed", stops)
        with pytest.raises(StoreFailed):
            give(world, files)
    (job,) = world.rows(sa.select(Job).options(undefer(Job.result)))
    assert (job.state, job.result, world.spent()) == ("charged", None, rho("0.02"))
    assert look(world, "ada").sheets == ()
    assert queue.recover(world.hub, job.worker) == 1
    assert world.job(job.id).state == "interrupted"
    assert give(world, files).state
    assert world.spent() == rho("0.04")


def test_a_hub_that_stops_before_the_charge_leaves_nothing_to_run(world, files, monkeypatch):
    def stops(*_args, **_more):
        raise StoreFailed("the power is out.")

    with monkeypatch.context() as broken:
        broken.setattr(submission, "_pay", stops)
        with pytest.raises(StoreFailed):
            give(world, files)
    (job,) = world.rows(sa.select(Job).options(undefer(Job.result)))
    assert queue.recover(world.hub, job.worker) == 1
    assert world.job(job.id).state == "failed"
    assert queue.claim(world.hub.database, "tester") is None
    assert not world.spent().amount


def test_a_paused_dataset_takes_none_in_and_hands_none_out(world, files):
    job = give(world, files)
    with world.hub.database.writing() as session:
        session.get_one(type(world.dataset()), world.dataset().id).paused = True
    with pytest.raises(NotNow, match="paused"):
        give(world, files)
    with pytest.raises(NotNow, match="paused"):
        take(world, "ada", job.id)


def test_only_purposes_that_the_policy_allows_are_offered(world):
    may = "may: [see schema, query, profile]"
    world.publish(
        change=[
            (may, may.replace("profile", "profile, synthesise") + "\n    purposes: [health-research]"),
            ("purposes: [health-research]\nbudget", "purposes: [health-research, quality-assurance]\nbudget"),
        ]
    )
    offered = [one.name for one in look(world, "ada").purposes]
    assert PURPOSE in offered
    assert "quality-assurance" not in offered
    assert "quality-assurance" in [one.name for one in look(world, "owner").purposes]


def test_those_may_have_it_whom_the_policy_lets_synthesise_all_of_it(world, files):
    number = give(world, files).id
    for who in ("owner", "ada", "ben"):
        assert [one.number for one in look(world, who).sheets] == [number]
        assert take(world, who, number)[0].id == number
    assert look(world, "ada").purpose == PURPOSE
    assert look(world, "cleo").sheets == ()  # sees no admitted, and not every ward
    for who in ("cleo", "stranger"):
        with pytest.raises(NotHere):
            take(world, who, number)
    with pytest.raises(Denied):
        take(world, "reviewer", number)
    with pytest.raises(Denied):
        take(world, "ada", number, "marketing")
    (taken,) = [one for one in world.rows(sa.select(AuditEntry)) if one.action == "table.taken"][-1:]
    assert (taken.detail["purpose"], taken.detail["what"], taken.detail["rule"]) == (PURPOSE, "parquet", "researchers")


def test_whoever_may_only_query_gets_none(hospital_hub, files):
    number = give(hospital_hub, files).id
    with pytest.raises(Denied):
        look(hospital_hub, "ada")
    with pytest.raises(Denied):
        take(hospital_hub, "ada", number)


def test_a_job_that_was_not_handed_in_is_no_table_for_others(world, files):
    mine = world.submit("ada", kind="synthesise", method="independent", rows="20", columns="ward")
    assert world.work() == ["done"]
    with pytest.raises(NotHere):
        take(world, "ben", mine.id)
    with pytest.raises(NotHere):
        take(world, "owner", mine.id)
    assert look(world, "ben").sheets == ()


def test_a_table_goes_when_the_policy_lets_it_be_kept_no_longer(world, files):
    number = give(world, files).id
    may = ("may: [see schema, query, profile]", "may: [see schema, query, profile, synthesise]")
    world.publish(change=[("joins: any", "joins: any\nretention: {days: 1}"), may])
    with world.hub.database.writing() as session:
        session.get_one(Job, number).finished -= 2 * 86_400
    assert [remove_old_results(world.hub), remove_old_results(world.hub)] == [1, 0]
    assert look(world, "ada").sheets == ()
    with pytest.raises(NotHere):
        take(world, "ada", number)


# Over HTTP


def browser(world, who):
    with world.hub.database.writing() as session:
        person = session.get_one(Person, world.people[who].id)
        secret, kept = sessions.begin(session, world.hub.settings, person, complete=True)
    web = TestClient(create_app(world.hub), follow_redirects=False)
    web.headers |= {"cookie": f"cloister-session={secret}", "x-csrf": kept.csrf}
    return web


def test_the_way_from_the_owners_form_to_somebody_elses_disk(world, files):
    content, side, key = files
    owner, ada = browser(world, "owner"), browser(world, "ada")
    at = "/datasets/visits/tables"
    assert "Upload a synthetic table that you made" in owner.get(at).text
    sent = {"table": ("t.parquet", content), "side": ("t.side.json", json.dumps(side).encode())}
    refused = owner.post(at, files=sent, data={"key": ""})
    assert refused.status_code == 422
    assert "give the public key" in refused.text.lower()
    assert owner.post(at, files={"table": sent["table"]}, data={"key": key}).status_code == 422
    went = owner.post(at, files=sent, data={"key": key})
    assert went.status_code == 303
    place = went.headers["location"]
    for who in (owner, ada):
        page = who.get(place)
        assert page.status_code == 200
        for words in (VOUCHES, "300 <span", "Uploaded by", "one patient (at most 8 rows)", "0.02", key):
            assert words in page.text
    page = ada.get(at)
    assert "Upload a synthetic table" not in page.text
    assert f'href="{place}?purpose={PURPOSE}"' in page.text
    assert f'href="{place}/table.parquet?purpose={PURPOSE}"' in ada.get(place).text
    got = {one: ada.get(f"{place}/{one}?purpose={PURPOSE}") for one in ("table.parquet", "table.side.json", "label")}
    assert got["table.parquet"].content == content
    table = parse_table(content, got["table.side.json"].content)
    table.verify(world.hub.key.public)
    assert len(ada.get(f"{place}/table.csv").text.splitlines()) == 301
    assert ada.get(f"{place}/receipt").text == world.job(int(place.rpartition("/")[2])).receipt
    assert ada.get(f"{place}/chart.svg?column=age").text.startswith("<svg")
    assert ada.get(f"{place}/else").status_code == 404
    assert ada.get(f"{place}/table.parquet?purpose=marketing").status_code == 403
    assert owner.get(f"/jobs/{place.rpartition('/')[2]}").status_code == 200
    assert ada.get(f"/jobs/{place.rpartition('/')[2]}").status_code == 404
    assert "Synthetic tables" in ada.get("/datasets/visits").text


def test_the_hubs_receipt_of_a_score_vouches_for_no_table_and_that_of_a_table_for_no_score(tmp_path):
    """Both are of one file; what was paid for is in the receipt, and compared also where the signature is removed."""
    rows = {"person": [f"p{i}" for i in range(400)], "ward": ["a", "b"] * 200, "sex": ["f", "m", "m", "f"] * 100}
    column = {"type": "text", "nullable": False}
    columns = {"ward": {**column, "categories": ["a", "b"]}, "sex": {**column, "categories": ["f", "m"]}}
    schema = {"unit": {"name": "person", "max_rows": 1}, "tables": {"t": {"unit": "person", "columns": columns}}}
    with cl.open({"t": pa.table(rows)}, schema=schema, budget=rho(10), ledger=tmp_path / "own") as data:
        made = synth.mst(data, spend=rho(5), rows=50)
        made.to_parquet(tmp_path / "t.parquet")
        score = synth.publishable_score(data, made, spend=rho("0.001")).to_json()
    content = (tmp_path / "t.parquet").read_bytes()
    side = {**json.loads(side_path(tmp_path / "t.parquet").read_text()), "score": json.loads(json.dumps(score))}
    described = SimpleNamespace(
        digest=hashlib.sha256(content).hexdigest(), side=side, loss=rho(5), scoring=rho("0.001")
    )
    with cl.Ledger.in_folder(tmp_path / "hub") as book:
        account = book.open_account("visits", rho(20))
        pay = functools.partial(submission._pay, book, account)
        of_table = pay(rho(5), described, SimpleNamespace(id=1), "")
        of_score = pay(rho("0.001"), described, SimpleNamespace(id=1), " score")
        key = str(book.key.public)
    genuine = {**side, "score": None, "receipt": json.loads(of_table.text()), "handed in": {}}
    genuine.pop("signature", None)
    parse_table(content, json.dumps(genuine).encode()).verify(key)
    cheap = {**genuine, "loss": rho("0.001").to_json(), "receipt": json.loads(of_score.text())}
    invented = {**side["score"], "loss": rho(5).to_json(), "receipt": json.loads(of_table.text())}
    for forged in (cheap, {**genuine, "score": invented}, {**genuine, "table": "other"}, {**genuine, "method": "aim"}):
        with pytest.raises(ReceiptRejected):
            parse_table(content, json.dumps(forged).encode()).verify(key)

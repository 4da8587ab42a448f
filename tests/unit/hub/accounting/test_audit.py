"""The audit log can be added to, searched, exported and checked, and not changed."""

import json
import threading
from fractions import Fraction

import pytest
import sqlalchemy as sa

from cloister.hub.core.audit import Audit
from cloister.hub.core.audit_triggers import protect, unprotect
from cloister.hub.core.database import Base, Database
from cloister.hub.core.models import AuditEntry
from cloister.hub.core.trail import Entry, verify_export
from cloister.privacy.errors import BadNumber, HeadRejected, LedgerBroken
from cloister.privacy.ledger.chain import Head
from cloister.privacy.loss import rho
from cloister.privacy.signing import SigningKey


@pytest.fixture(params=["sqlite", "postgres"])
def database(request, tmp_path):
    if request.param == "sqlite":
        found = Database(f"sqlite:///{tmp_path / 'hub.db'}")
    else:
        address = request.getfixturevalue("postgres_address")
        found = Database(address.replace("postgresql://", "postgresql+psycopg://", 1))
    Base.metadata.create_all(found.engine)
    yield found
    found.close()


@pytest.fixture
def key():
    return SigningKey.create()


@pytest.fixture
def audit(database, key):
    return Audit(database, key)


def fill(audit, count=5):
    with audit.database.writing() as session:
        for number in range(count):
            audit.write(session, number % 3, "dataset.read", f"dataset/d{number}", asked=f"question {number}")


def exported(audit, path):
    with audit.database.reading() as session:
        path.write_bytes(b"".join(audit.export(session)))
    return path


def change(database, statement):
    """As somebody would who owns the database: the triggers go first."""
    with database.engine.begin() as connection:
        unprotect(connection)
        connection.exec_driver_sql(statement)
        protect(connection)


def test_entries_are_numbered_chained_and_hold(audit):
    fill(audit, 5)
    with audit.database.reading() as session:
        assert audit.verify(session) == 5
        rows = session.scalars(sa.select(AuditEntry).order_by(AuditEntry.number)).all()
    assert [row.number for row in rows] == [1, 2, 3, 4, 5]
    assert [row.previous for row in rows[1:]] == [row.hash for row in rows[:-1]]


def test_an_entry_happens_with_its_transaction_or_not_at_all(audit):
    fill(audit, 2)

    def interrupted():
        with audit.database.writing() as session:
            audit.write(session, 1, "never", "nothing")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    fill(audit, 1)
    with audit.database.reading() as session:
        assert audit.verify(session) == 3
        assert audit.search(session, action="never") == []


def test_the_database_refuses_to_change_or_remove_an_entry(audit):
    fill(audit)
    commands = ["UPDATE audit SET person_id = 9", "DELETE FROM audit WHERE number = 5"]
    if audit.database.engine.dialect.name == "sqlite":
        commands.append("REPLACE INTO audit SELECT 5, time, 9, action, object, detail, previous, hash FROM audit")
    else:
        commands.append("TRUNCATE audit")
    for command in commands:
        with pytest.raises(sa.exc.DBAPIError, match="never changed"), audit.database.engine.begin() as connection:
            connection.exec_driver_sql(command)
    with audit.database.reading() as session:
        assert audit.verify(session) == 5


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE audit SET person_id = 9 WHERE number = 3", "entry 3 was changed"),
        ("UPDATE audit SET time = time + 1 WHERE number = 3", "entry 3 was changed"),
        ("UPDATE audit SET detail = '{}' WHERE number = 4", "entry 4 was changed"),
        ("DELETE FROM audit WHERE number = 2", "entry 2 is missing"),
        ("UPDATE audit SET number = number + 10 WHERE number = 5", "entry 5 is missing"),
    ],
)
def test_whoever_gets_around_the_triggers_is_found(audit, statement, problem):
    fill(audit)
    change(audit.database, statement)
    with audit.database.reading() as session, pytest.raises(LedgerBroken, match=problem):
        audit.verify(session)


def test_a_log_whose_end_was_cut_off_is_found_by_the_kept_head(database, key, tmp_path):
    audit = Audit(database, key, tmp_path / "audit.head")
    fill(audit)
    assert audit.keep().number == 5
    change(database, "DELETE FROM audit WHERE number >= 4")
    with database.reading() as session, pytest.raises(LedgerBroken, match=r"entry 4 is missing.*entry 5"):
        audit.verify(session)
    fill(audit, 3)  # written anew, as if nothing had happened
    with database.reading() as session, pytest.raises(LedgerBroken, match="entry 5 is not the one"):
        audit.verify(session)


def test_a_head_of_another_key_proves_nothing(audit):
    fill(audit)
    with audit.database.reading() as session:
        head = audit.head(session)
        forged = Head(head.number, head.hash, SigningKey.create().sign(b"cloister audit entry"))
        assert audit.verify(session, head) == 5
        with pytest.raises(HeadRejected):
            audit.verify(session, forged)


def test_every_256th_entry_signs_the_one_before(audit):
    fill(audit, 600)
    with audit.database.reading() as session:
        signed = audit.search(session, action="audit.signed")
        assert [entry.number for entry in signed] == [512, 256]
        assert audit.verify(session) == 602
        other = Audit(audit.database, SigningKey.create())
        with pytest.raises(LedgerBroken, match="entry 256"):
            other.verify(session)


def test_many_writers_never_fork_the_chain(audit):
    def work(me):
        for _ in range(10):
            with audit.database.writing() as session:
                audit.write(session, me, "job.asked", "job/1")

    threads = [threading.Thread(target=work, args=(me,)) for me in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    with audit.database.reading() as session:
        assert audit.verify(session) == 60


def test_reads_of_many_threads_are_all_recorded_in_fewer_transactions(audit):
    commits = []
    sa.event.listen(audit.database.engine, "commit", commits.append)
    start = threading.Barrier(16)

    def work(me):
        start.wait()
        for _ in range(5):
            audit.record(me, "dataset.read", f"dataset/{me}")

    threads = [threading.Thread(target=work, args=(me,)) for me in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    with audit.database.reading() as session:
        assert audit.verify(session) == 80
        assert len(audit.search(session, person_id=7)) == 5
    assert len(commits) < 80


def test_a_record_that_cannot_be_written_raises_for_its_caller(audit):
    with pytest.raises(BadNumber):
        audit.record(1, "dataset.read", "dataset/d", odd=object())
    audit.record(1, "dataset.read", "dataset/d")
    with audit.database.reading() as session:
        assert audit.verify(session) == 1


def test_details_of_many_kinds_are_kept_as_text(audit):
    odd = {
        "share": 0.5,
        "of": (1, None, True),
        "loss": rho("0.1"),
        "third": Fraction(1, 3),
        "text": "nul \0 and \ud800",
    }
    with audit.database.writing() as session:
        audit.write(session, None, "odd", "thing/\0\ud800" + "x" * 500, long="y" * 9000, **odd)
    with audit.database.reading() as session:
        assert audit.verify(session) == 1
        (entry,) = audit.search(session)
    assert entry.detail["share"] == "0.5"
    assert entry.detail["third"] == "1/3"
    assert entry.detail["loss"] == "rho 0.1"
    assert len(entry.detail["long"]) == 4000
    assert len(entry.object) == 200


def test_search_finds_by_person_action_object_time_and_text(audit):
    fill(audit, 9)
    with audit.database.writing() as session:
        audit.write(session, 1, "request.granted", "request/1", reason="100%_sure")
    with audit.database.reading() as session:
        assert [entry.person_id for entry in audit.search(session, person_id=2)] == [2, 2, 2]
        assert [entry.number for entry in audit.search(session, action="request.")] == [10]
        assert [entry.number for entry in audit.search(session, object="dataset/d4")] == [5]
        assert [entry.number for entry in audit.search(session, text="QUESTION 3")] == [4]
        assert [entry.number for entry in audit.search(session, text="100%_s")] == [10]
        assert audit.search(session, text="100x_s") == []
        middle = audit.search(session, object="dataset/d4")[0].time
        later = audit.search(session, since=middle)
        assert {entry.number for entry in later} >= {5, 10}
        assert {entry.number for entry in audit.search(session, until=middle)} >= {1, 5}
        page = audit.search(session, most=4)
        assert [entry.number for entry in page] == [10, 9, 8, 7]
        assert [entry.number for entry in audit.search(session, most=4, before=7)] == [6, 5, 4, 3]


def test_an_export_is_checked_offline(audit, key, tmp_path):
    fill(audit, 300)
    path = exported(audit, tmp_path / "audit.jsonl")
    assert verify_export(path, key.public) == 301
    assert verify_export(path, str(key.public)) == 301
    with pytest.raises((LedgerBroken, HeadRejected)):
        verify_export(path, SigningKey.create().public)


def test_an_empty_log_exports_and_holds(audit, key, tmp_path):
    assert verify_export(exported(audit, tmp_path / "audit.jsonl"), key.public) == 0


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda lines: lines[:-1], "cut off"),
        (lambda lines: [*lines[:3], *lines[-1:]], "ends with another"),
        (lambda lines: [*lines[:2], *lines[3:]], "entry 2 is missing"),
        (lambda lines: [lines[0], lines[1].replace(b"question 0", b"question 9"), *lines[2:]], "entry 1 was changed"),
        (lambda lines: [lines[0], b"{}\n", *lines[2:]], "not as it was exported"),
        (lambda lines: [lines[0], b"not json\n", *lines[2:]], "not as it was exported"),
        (lambda lines: [*lines, lines[-1]], "not as it was exported"),
        (lambda lines: lines[1:], "not as it was exported"),
    ],
)
def test_a_changed_export_is_found(audit, key, tmp_path, edit, problem):
    fill(audit)
    path = exported(audit, tmp_path / "audit.jsonl")
    path.write_bytes(b"".join(edit(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(LedgerBroken, match=problem):
        verify_export(path, key.public)


def test_a_forged_log_that_hangs_together_still_needs_the_key(audit, key, tmp_path):
    fill(audit)
    with audit.database.reading() as session:
        real = audit.head(session)
    forged, previous = [], "0" * 64
    for number in (1, 2):
        entry = Entry.make(number, 1.0, 1, "dataset.read", "dataset/x", {}, previous)
        forged.append(json.dumps({**entry.record(), "hash": entry.hash}))
        previous = entry.hash
    path = tmp_path / "forged.jsonl"
    path.write_text("\n".join(['{"form":"cloister-audit/1"}', *forged, f'{{"head":"2:{previous}:abcd"}}']))
    with pytest.raises(HeadRejected):
        verify_export(path, key.public)
    with pytest.raises(LedgerBroken, match="entry 3 is missing"):
        verify_export(path, key.public, real)


def test_exchanging_two_exports_heads_is_found_by_the_head_of_the_first(audit, key, tmp_path):
    fill(audit, 2)
    with audit.database.reading() as session:
        early = audit.head(session)
    fill(audit, 2)
    path = exported(audit, tmp_path / "audit.jsonl")
    assert verify_export(path, key.public, early) == 4
    assert verify_export(path, key.public, str(early)) == 4


def test_a_write_is_cheap(database, key):
    if database.engine.dialect.name != "sqlite":
        pytest.skip("measured on SQLite")
    audit, statements = Audit(database, key), []
    fill(audit, 3)
    sa.event.listen(database.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    with database.writing() as session:
        audit.write(session, 1, "dataset.read", "dataset/d")
    assert [one.split()[0] for one in statements if not one.startswith("BEGIN")] == ["SELECT", "INSERT"]

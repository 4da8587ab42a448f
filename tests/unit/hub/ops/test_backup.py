"""A copy of a hub brings everything back but the right to spend what may be spent already."""

import io
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from cloister.hub.core import models
from cloister.hub.core.database import now
from cloister.hub.core.hub import Hub
from cloister.hub.core.keys import OVERHEAD
from cloister.hub.core.settings import Settings
from cloister.hub.ops import backup as backup_file
from cloister.hub.ops.backup import backup, opened, restore
from cloister.hub.ops.ledger_heads import check_receipts, newest_head, show_head, write_off
from cloister.hub.surveys import survey as surveys
from cloister.hub.users import tokens
from cloister.privacy.errors import CloisterError, HeadRejected, NotHere, NotNow, OverBudget, RolledBack, StoreFailed
from cloister.privacy.loss import rho
from cloister.privacy.measure import measure
from cloister.privacy.mechanisms import DiscreteGaussian


@pytest.fixture
def settings(tmp_path):
    return Settings(folder=tmp_path / "hub")


@pytest.fixture
def hub(settings):
    with Hub.create(settings) as made:
        with made.database.writing() as session:
            owner = models.Person(email="o@x.org", name="O", roles=["data owner"])
            session.add(owner)
            session.flush()
            session.add(models.Dataset(name="visits", owner_id=owner.id, budget=rho(1).to_json()))
            made.audit.write(session, owner.id, "dataset.made", "dataset/visits")
            session.add(models.Session(id="s", person_id=owner.id, csrf="c", ends=now() + 1000))
            made.token = tokens.make(session, owner, "mine", ["read"], 10)
        (made.folder / "sealed" / "visits").mkdir()
        (made.folder / "sealed" / "visits" / "1.parquet").write_bytes(os.urandom(100_000))
        (made.folder / "records" / "visits.record").write_text("a line\n")
        made.ledger.open_account("visits", rho(1))
        made.ledger.open_account("visits", rho("0.5"), "person-1")
        made.ledger.account("visits").reserve(rho("0.1"), "before the copy").look()
        yield made


def restored(tmp_path, file, name="again"):
    settings = Settings(folder=tmp_path / name)
    restore(file, settings, tmp_path / "hub" / "master.key")
    return Hub.open(settings)


def spend(hub, amount="0.01"):
    return hub.ledger.account("visits").reserve(rho(amount), "a question")


def test_everything_comes_back(hub, tmp_path):
    backup(hub, tmp_path / "copy")
    with restored(tmp_path, tmp_path / "copy") as again:
        with again.database.reading() as session:
            assert session.scalars(sa.select(models.Dataset.name)).all() == ["visits"]
            assert again.audit.verify(session) >= 2
        sealed = "sealed/visits/1.parquet"
        assert (again.folder / sealed).read_bytes() == (hub.folder / sealed).read_bytes()
        assert (again.folder / "records/visits.record").read_text() == "a line\n"
        assert again.key.public == hub.key.public or str(again.key.public) == str(hub.key.public)
        assert again.ledger.account("visits").spent == rho("0.1")
        assert stat.S_IMODE((again.folder / "signing.key").stat().st_mode) == 0o600


def test_neither_the_master_key_nor_the_head_nor_the_signing_key_is_in_the_file(hub, tmp_path):
    backup(hub, tmp_path / "copy")
    content = (tmp_path / "copy").read_bytes()
    with opened(tmp_path / "copy", hub.keys) as archive:
        names = archive.getnames()
    assert not {"master.key", "head", "signing.key"} & set(names)
    assert hub.master_key_file.read_bytes().strip() not in content
    assert bytes.fromhex(hub.master_key_file.read_text().strip()) not in content
    assert hub.signing_key_file.read_bytes().splitlines()[1] not in content
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600


def test_a_restored_hub_refuses_to_spend(hub, tmp_path):
    backup(hub, tmp_path / "copy")
    with restored(tmp_path, tmp_path / "copy") as again, pytest.raises(RolledBack):
        spend(again)


def test_it_spends_again_when_the_newest_head_is_shown(hub, tmp_path):
    backup(hub, tmp_path / "copy")
    with restored(tmp_path, tmp_path / "copy") as again:
        show_head(again, str(newest_head(hub)))
        spend(again)
        assert again.ledger.account("visits").spent == rho("0.11")


def test_a_copy_that_does_not_contain_the_newest_head_stays_shut(hub, tmp_path):
    backup(hub, tmp_path / "copy")
    spend(hub, "0.3").look()
    with restored(tmp_path, tmp_path / "copy") as again:
        old = str(again.ledger.head)
        with pytest.raises(RolledBack):
            show_head(again, str(newest_head(hub)))
        with pytest.raises(RolledBack):  # and showing an older one afterwards does not help
            show_head(again, old)
        with pytest.raises(RolledBack):
            spend(again)


def test_a_head_file_and_a_receipt_can_be_shown_too(hub, tmp_path):
    release = measure(
        lambda: 7, DiscreteGaussian.for_loss(1, rho("0.1")), account=hub.ledger.account("visits"), request="q"
    )
    backup(hub, tmp_path / "copy")
    (tmp_path / "receipt.json").write_text(release.receipt.text() + "\n")
    for name, shown in (("one", tmp_path / "receipt.json"), ("two", hub.settings.head)):
        with restored(tmp_path, tmp_path / "copy", name) as again:
            show_head(again, str(shown))
            spend(again)


@pytest.mark.parametrize("shown", ["", "nonsense", "{}", "1:00:AA"])
def test_what_is_no_head_is_refused(hub, shown):
    with pytest.raises(CloisterError):
        show_head(hub, shown)


def test_a_head_of_another_hub_is_refused(hub, tmp_path):
    with Hub.create(Settings(folder=tmp_path / "other")) as other, pytest.raises(HeadRejected):
        show_head(hub, str(newest_head(other)))


def test_it_goes_on_without_budgets_once_all_are_written_off(hub, tmp_path):
    backup(hub, tmp_path / "copy")
    spend(hub, "0.3").look()
    with restored(tmp_path, tmp_path / "copy") as again:
        lost = write_off(again, "visits")
        assert sorted(key for key, _ in lost) == ["visits", "visits@person-1"]
        assert again.ledger.account("visits").left.amount == 0
        with pytest.raises(OverBudget):
            spend(again)
        again.ledger.open_account("new", rho(1)).reserve(rho("0.1"), "a new dataset is not concerned")
        with again.database.reading() as session:
            assert [entry.action for entry in again.audit.search(session, most=1)] == ["ledger.written_off"]


def test_writing_off_something_unknown_names_what_there_is(hub):
    with pytest.raises(NotHere, match="It has: visits"):
        write_off(hub, "nothing")


def test_everybody_is_signed_out_and_owners_are_told(hub, tmp_path):
    backup(hub, tmp_path / "copy")
    with restored(tmp_path, tmp_path / "copy") as again, again.database.reading() as session:
        assert tokens.find(session, hub.token) is None
        assert session.scalars(sa.select(models.Session)).all() == []
        assert "policy of visits" in session.scalar(sa.select(models.Notice.text))
        assert again.audit.search(session, most=1)[0].action == "hub.restored"
    with hub.database.reading() as session:
        assert tokens.find(session, hub.token) is not None


def test_a_restore_that_was_killed_before_its_end_is_a_restore_all_the_same(hub, tmp_path, monkeypatch):
    backup(hub, tmp_path / "copy")

    def die(_settings):
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(Hub, "open", die)
        with pytest.raises(KeyboardInterrupt):
            restore(tmp_path / "copy", Settings(folder=tmp_path / "again"), tmp_path / "hub" / "master.key")
    mark, database = ((tmp_path / "again" / name).stat().st_mtime_ns for name in ("restored.json", "hub.db"))
    assert mark <= database
    with Hub.open(Settings(folder=tmp_path / "again")) as again, again.database.reading() as session:
        assert tokens.find(session, hub.token) is None


def test_a_job_that_ran_when_the_copy_was_made_does_not_run_again(hub, tmp_path):
    with hub.database.writing() as session:
        owner = session.scalars(sa.select(models.Person.id)).one()
        dataset = session.scalars(sa.select(models.Dataset.id)).one()
        for state in ("waiting", "queued", "running", "charged", "done"):
            facts = {
                "kind": "query",
                "purpose": "p",
                "parameters": {},
                "plan": {},
                "environment": {},
                "policy_number": 1,
            }
            session.add(models.Job(dataset_id=dataset, person_id=owner, state=state, **facts))
    backup(hub, tmp_path / "copy")
    with restored(tmp_path, tmp_path / "copy") as again, again.database.reading() as session:
        states = session.scalars(sa.select(models.Job.state).order_by(models.Job.id)).all()
        assert states == ["cancelled", "cancelled", "interrupted", "interrupted", "done"]


def test_a_database_that_is_loaded_after_the_folder_was_restored_is_treated_like_a_copy(hub, tmp_path):
    """So it is with PostgreSQL: the folder is restored first, then pg_restore brings back tokens and sessions."""
    backup(hub, tmp_path / "copy")
    restored(tmp_path, tmp_path / "copy").close()
    with closing(sqlite3.connect(hub.folder / "hub.db")) as before:
        before.execute(f"VACUUM INTO '{tmp_path / 'loaded.db'}'")
    database = Settings(folder=tmp_path / "again").folder / "hub.db"
    for name in database.parent.glob("hub.db*"):
        name.unlink()
    shutil.copy(tmp_path / "loaded.db", database)
    for _ in range(2):
        with Hub.open(Settings(folder=tmp_path / "again")) as again, again.database.reading() as session:
            assert tokens.find(session, hub.token) is None
            assert session.scalars(sa.select(models.Session)).all() == []
            entries = sa.select(models.AuditEntry).where(models.AuditEntry.action == "hub.restored")
            assert len(session.scalars(entries).all()) == 1


def test_open_surveys_are_closed_and_answers_that_were_not_shown_are_gone(hub, tmp_path):
    """Some of them may have been shown since the copy: beside them a single new answer could be told apart."""
    with hub.database.writing() as session:
        owner = session.scalars(sa.select(models.Person)).one()
        facts = {"title": "S", "purpose": "p", "consent": "c", "asked": [{"id": "q", "type": "yes_no", "text": "?"}]}
        for name in ("open-one", "draft-one"):
            made = surveys.create(hub, session, owner, name, facts)
            if name == "open-one":
                surveys.publish(hub, session, made)
                for number, batch in enumerate([1, 1, None]):
                    key = {"survey_id": made.id, "wave": 1, "id": str(number)}
                    session.add(models.Submission(**key, reports="{}", batch=batch))
    backup(hub, tmp_path / "copy")
    with restored(tmp_path, tmp_path / "copy") as again, again.database.reading() as session:
        states = {survey.name: survey.state for survey in session.scalars(sa.select(models.Survey))}
        assert states == {"open-one": "closed", "draft-one": "draft"}
        assert session.scalars(sa.select(models.Submission.batch)).all() == [1, 1]
        assert any("survey S is closed" in text for text in session.scalars(sa.select(models.Notice.text)))


def test_a_copy_can_be_made_while_others_write(hub, tmp_path):
    writer = sqlite3.connect(hub.folder / "hub.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO tries (who, time) VALUES ('x', 1.0)")
    backup(hub, tmp_path / "copy")
    writer.execute("COMMIT")
    writer.close()
    with restored(tmp_path, tmp_path / "copy") as again, again.database.reading() as session:
        assert session.scalars(sa.select(models.Try)).all() == []


def test_without_the_right_master_key_nothing_is_restored(hub, tmp_path):
    backup(hub, tmp_path / "copy")
    (tmp_path / "wrong.key").write_text("00" * 32)
    with pytest.raises(CloisterError):
        restore(tmp_path / "copy", Settings(folder=tmp_path / "again"), tmp_path / "wrong.key")
    with pytest.raises(StoreFailed):
        restore(tmp_path / "copy", Settings(folder=tmp_path / "none"))


def test_a_hub_is_never_restored_over_another(hub, tmp_path):
    backup(hub, tmp_path / "copy")
    with pytest.raises(NotNow):
        restore(tmp_path / "copy", hub.settings)
    with pytest.raises(NotNow):
        backup(hub, tmp_path / "copy")


def rewritten(path, keys, change):
    """The same archive with some content replaced, in the form that version 0.1.0 wrote: not sealed as a whole."""
    with opened(path, keys) as archive:
        parts = {one.name: archive.extractfile(one).read() for one in archive.getmembers()}
    parts = change(parts)
    with tarfile.open(path, "w") as archive:
        for name, content in parts.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


@pytest.mark.parametrize(
    "change",
    [
        lambda parts: parts | {"hub.db": parts["hub.db"][:-1] + b"x"},
        lambda parts: parts | {"sealed/visits/1.parquet": b"other"},
        lambda parts: {name: content for name, content in parts.items() if name != "ledger.db"},
        lambda parts: parts | {"manifest.sealed": json.dumps({"form": "cloister-backup/1", "files": {}}).encode()},
        lambda parts: {name: content for name, content in parts.items() if name != "manifest.sealed"},
        lambda parts: parts | {"signing.key.sealed": parts["manifest.sealed"]},
    ],
)
def test_a_copy_that_was_changed_is_not_restored(hub, tmp_path, change):
    backup(hub, tmp_path / "copy")
    rewritten(tmp_path / "copy", hub.keys, change)
    with pytest.raises(CloisterError):
        restored(tmp_path, tmp_path / "copy")


def test_a_copy_without_the_master_key_shows_nothing(hub, tmp_path):
    backup(hub, tmp_path / "copy")
    content = (tmp_path / "copy").read_bytes()
    for word in (b"o@x.org", b"data owner", b"visits", b"SQLite format", b"hub.db", b"dataset.made", b"a line"):
        assert word not in content, word
    assert not tarfile.is_tarfile(tmp_path / "copy")
    rewritten(tmp_path / "copy", hub.keys, lambda parts: parts)
    assert b"o@x.org" in (tmp_path / "copy").read_bytes()  # so the search would have found it
    with restored(tmp_path, tmp_path / "copy") as again:  # and a copy in the older form is restored all the same
        assert again.ledger.account("visits").spent == rho("0.1")


SEALED = backup_file._PIECE + OVERHEAD
BEGIN = len(backup_file._MAGIC) + 32 + OVERHEAD


def piece(raw, number):
    return raw[BEGIN + number * SEALED : BEGIN + (number + 1) * SEALED]


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw[: len(raw) // 2],
        lambda raw: raw[: BEGIN + SEALED],  # at the end of a piece
        lambda raw: raw[: BEGIN + 2 * SEALED],
        lambda raw: raw[:BEGIN],
        lambda raw: raw[:-1],
        lambda raw: raw + b"x",
        lambda raw: raw[: BEGIN + 100] + bytes([raw[BEGIN + 100] ^ 1]) + raw[BEGIN + 101 :],
        lambda raw: (
            raw[:BEGIN]
            + raw[BEGIN + SEALED : BEGIN + 2 * SEALED]
            + raw[BEGIN : BEGIN + SEALED]
            + raw[BEGIN + 2 * SEALED :]
        ),
        lambda raw: raw[:BEGIN] + raw[BEGIN + SEALED :],
        lambda raw: raw[:30] + bytes([raw[30] ^ 1]) + raw[31:],
    ],
)
def test_a_sealed_copy_that_was_changed_or_cut_off_is_not_restored(hub, tmp_path, change):
    (hub.folder / "sealed" / "visits" / "2.parquet").write_bytes(os.urandom(3_000_000))
    backup(hub, tmp_path / "copy")
    whole = (tmp_path / "copy").read_bytes()
    assert len(whole) > BEGIN + 3 * SEALED
    (tmp_path / "copy").write_bytes(change(whole))
    with pytest.raises(CloisterError):
        restored(tmp_path, tmp_path / "copy")


@pytest.mark.parametrize(
    "size", [0, 1, backup_file._PIECE - 1, backup_file._PIECE, backup_file._PIECE + 1, 3 * backup_file._PIECE]
)
def test_what_was_sealed_comes_back_whatever_its_length(hub, size):
    raw, data = io.BytesIO(), os.urandom(size)
    with backup_file._Sealing(raw, hub.keys) as sealing:
        for at in range(0, size, 700_001):
            sealing.write(data[at : at + 700_001])
    assert backup_file._Unsealing(raw, hub.keys).read() == data


def test_a_file_that_is_in_the_archive_but_not_in_the_manifest_is_not_written(hub, tmp_path):
    backup(hub, tmp_path / "copy")
    rewritten(tmp_path / "copy", hub.keys, lambda parts: parts | {"../outside": b"x", "extra": b"x"})
    with restored(tmp_path, tmp_path / "copy") as again:
        assert not (again.folder / "extra").exists()
        assert not (tmp_path / "outside").exists()


def test_what_is_in_postgresql_is_left_to_pg_dump_and_said(hub, tmp_path, monkeypatch):
    from dataclasses import replace

    hub.settings = replace(hub.settings, database_url="postgresql://h/d", ledger_url="postgresql://h/l")
    done = backup(hub, tmp_path / "copy")
    assert sum("pg_dump" in note for note in done.notes) == 2
    with opened(tmp_path / "copy", hub.keys) as archive:
        assert not {"hub.db", "ledger.db"} & set(archive.getnames())


# A ledger that was put back with its head


def asked(hub, number):
    """A job that was charged and holds its receipt, as a worker leaves it."""
    release = measure(
        lambda: 7,
        DiscreteGaussian.for_loss(1, rho("0.01")),
        account=hub.ledger.account("visits"),
        request=f"question {number}",
    )
    with hub.database.writing() as session:
        made = models.Job(
            kind="query", dataset_id=1, person_id=1, purpose="x", parameters={}, policy_number=1, state="done"
        )
        made.receipt, made.finished = release.receipt.text(), now()
        session.add(made)


def put_back(hub, kept):
    hub.ledger.close()
    del hub.__dict__["ledger"]
    for name in ("ledger.db-wal", "ledger.db-shm"):
        (hub.folder / name).unlink(missing_ok=True)
    for name, content in kept.items():
        (hub.folder / name).write_bytes(content)


def whole(hub):
    hub.ledger.close()
    return {name: (hub.folder / name).read_bytes() for name in ("ledger.db", "head")}


def test_a_ledger_put_back_with_its_head_is_noticed_by_the_hubs_own_receipts(hub):
    asked(hub, 1)
    check_receipts(hub)
    entries, kept = hub.ledger.head.number, whole(hub)
    asked(hub, 2)
    check_receipts(hub)
    assert hub.ledger.head.number > entries
    put_back(hub, kept)
    hub.ledger.check_newest()  # by itself it looks whole
    with pytest.raises(RolledBack):
        check_receipts(hub)
    with pytest.raises(RolledBack):
        hub.ledger.check_newest()
    with pytest.raises(RolledBack):
        spend(hub)


def test_a_check_of_receipts_writes_nothing_into_a_ledger_that_is_whole(hub):
    check_receipts(hub)
    asked(hub, 1)
    before = str(hub.ledger.head)
    check_receipts(hub)
    assert str(hub.ledger.head) == before


def test_receipts_of_what_was_given_up_for_shut_the_ledger_no_more(hub):
    kept = whole(hub)
    asked(hub, 1)
    put_back(hub, kept)
    with pytest.raises(RolledBack):
        check_receipts(hub)
    write_off(hub, "visits")
    hub.ledger.open_account("new", rho(1)).reserve(rho("0.1"), "a new dataset is not concerned")
    check_receipts(hub)
    hub.ledger.check_newest()


def test_receipts_of_others_do_not_shut_the_ledger(hub, tmp_path):
    with Hub.create(Settings(folder=tmp_path / "other")) as other:
        other.ledger.open_account("visits", rho(1))
        foreign = measure(
            lambda: 7, DiscreteGaussian.for_loss(1, rho("0.1")), account=other.ledger.account("visits"), request="q"
        ).receipt.text()
    asked(hub, 1)
    with hub.database.writing() as session:
        session.execute(sa.update(models.Job).values(receipt=f"{foreign}\nno receipt\n{{}}"))
    check_receipts(hub)
    hub.ledger.check_newest()


# For the hub's own user alone


def test_nobody_else_can_look_into_the_folder_of_a_hub(tmp_path):
    folder = tmp_path / "hub"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    Hub.create(Settings(folder=folder)).close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    Hub.open(Settings(folder=folder)).close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_every_command_writes_for_the_hubs_own_user_alone(tmp_path):
    command = "umask 022; mkdir -m 755 hub; exec cloister hub init --folder hub --operator o@x.example"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, check=True, capture_output=True, env={**os.environ, "PATH": path}
    )
    for one in (tmp_path / "hub", *(tmp_path / "hub").rglob("*")):
        assert not stat.S_IMODE(one.stat().st_mode) & 0o077, one

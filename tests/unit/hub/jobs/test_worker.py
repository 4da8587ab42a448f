"""What a worker does besides answering: failures told to the right people, chores, limits, places."""

import os
import tempfile
import threading
import time

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from cloister.hub.core import heartbeats
from cloister.hub.core.child_process import memory_of
from cloister.hub.core.models import AuditEntry, Dataset, Job, Person, Request, Spent, Version
from cloister.hub.datasets import datasets, ingest
from cloister.hub.jobs import gateway, maintenance, queue, worker
from cloister.hub.jobs.maintenance import Chores, prepare_versions, remove_old_results
from cloister.hub.jobs.runner import owner_detail, run_job
from cloister.hub.jobs.trust_model import TRUST_MODELS, trust_model_of
from cloister.hub.jobs.worker import work
from cloister.hub.web.app import create_app
from cloister.privacy.errors import BadName, NotHere, NotNow
from cloister.privacy.loss import Loss, rho


def test_a_failure_while_looking_is_told_to_the_owner_alone(hospital_hub):
    job = hospital_hub.submit("ada")
    (sealed,) = (hospital_hub.hub.folder / "sealed").rglob("*.parquet")

    def spoil(step):
        if step == "charged":  # the tables are open; what is read now cannot be decrypted
            sealed.write_bytes(b"ZZSECRETZZ" * 10_000)

    assert hospital_hub.work(step=spoil) == ["failed"]
    found = hospital_hub.job(job.id)
    assert found.problem.startswith("CLO-404: the statistic could not be computed. The charge stands")
    assert Loss.from_json(found.loss) == rho("0.01") == hospital_hub.spent()
    detail = owner_detail(hospital_hub.hub, found)
    assert detail
    assert detail not in found.owner_detail
    told = [str(one.detail) for one in hospital_hub.rows(sa.select(AuditEntry))]
    assert not any(detail in one or "ZZSECRETZZ" in one for one in told)


def test_a_sealed_table_that_was_changed_spends_nothing(hospital_hub):
    job = hospital_hub.submit("ada")
    (sealed,) = (hospital_hub.hub.folder / "sealed").rglob("*.parquet")
    sealed.write_bytes(sealed.read_bytes()[:-1] + b"x")
    assert hospital_hub.work() == ["failed"]
    assert "not what was sealed" in hospital_hub.job(job.id).problem
    assert not hospital_hub.spent().amount


def test_an_unforeseen_error_is_told_without_its_words(hospital_hub):
    job = hospital_hub.submit("ada")

    def surprise(step):
        if step == "released":
            raise RuntimeError("ZZSECRETZZ")

    assert hospital_hub.work(step=surprise) == ["failed"]
    found = hospital_hub.job(job.id)
    assert "ZZSECRETZZ" not in found.problem + found.owner_detail
    assert found.problem.endswith("The charge stands.")
    assert owner_detail(hospital_hub.hub, found) == "RuntimeError: ZZSECRETZZ"


def test_a_running_job_that_costs_nothing_can_be_cancelled_until_its_result_is_written(hospital_hub):
    hospital_hub.submit("ada")
    hospital_hub.work()
    again = hospital_hub.submit("ada")  # on record, so it is free

    def cancel(step):
        if step == "released":
            gateway.cancel(hospital_hub.hub, hospital_hub.ada, again.id)

    assert hospital_hub.work(step=cancel) == ["cancelled"]
    found = hospital_hub.job(again.id)
    assert found.state == "cancelled"
    assert not found.result


def test_a_worker_works_until_it_is_told_to_stop(hospital_hub):
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(hospital_hub.hub, "thread", stop))
    thread.start()
    try:
        job = hospital_hub.submit("ada")
        end = time.monotonic() + 30
        while hospital_hub.job(job.id).state != "done" and time.monotonic() < end:
            time.sleep(0.02)
        assert hospital_hub.job(job.id).state == "done"
        assert hospital_hub.job(job.id).worker is None
    finally:
        stop.set()
        thread.join()


def test_progress_is_written_and_a_heartbeat_keeps_a_job(hospital_hub):
    hospital_hub.submit("ada")
    job = queue.claim(hospital_hub.hub.database, "me")
    assert queue.heartbeat(hospital_hub.hub.database, job.id, "me", 0.4, "looking")
    assert (hospital_hub.job(job.id).progress, hospital_hub.job(job.id).stage) == (0.4, "looking")
    assert not queue.heartbeat(hospital_hub.hub.database, job.id, "another")
    with hospital_hub.hub.database.writing() as session:
        session.execute(sa.update(Job).values(heartbeat=0.0))
    queue.heartbeat(hospital_hub.hub.database, job.id, "me")
    assert queue.recover(hospital_hub.hub) == 0


def test_a_dataset_that_is_deleted_or_paused_is_closed(hospital_hub):
    pool = hospital_hub.pool()
    hospital_hub.submit("ada")
    run_job(hospital_hub.hub, queue.claim(hospital_hub.hub.database, "me"), "me", pool)
    assert pool.datasets() == {hospital_hub.dataset().id}
    waiting = hospital_hub.submit("ada", "SELECT AVG(age) AS a FROM visits")
    with hospital_hub.hub.database.writing() as session:
        datasets.delete(hospital_hub.hub, session, hospital_hub.owner, datasets.find(session, "visits"))
    Chores(hospital_hub.hub, pool).do()
    assert pool.datasets() == set()
    assert hospital_hub.work() == ["refused"]
    assert "no such dataset" in hospital_hub.job(waiting.id).problem
    assert hospital_hub.spent() == rho("0.01")


def test_old_results_are_removed_as_the_policy_says(hospital_hub):
    hospital_hub.publish(change=[("joins: any", "joins: any\nretention: {days: 30}")])
    old, new = hospital_hub.submit("ada"), hospital_hub.submit("ben")
    hospital_hub.work()
    with hospital_hub.hub.database.writing() as session:
        session.execute(sa.update(Job).where(Job.id == old.id).values(finished=Job.finished - 31 * 86400))
    assert remove_old_results(hospital_hub.hub) == 1
    assert hospital_hub.job(old.id).result is None
    assert hospital_hub.job(old.id).receipt
    assert hospital_hub.job(new.id).result


def test_a_request_that_nobody_decides_ends_with_its_job(hospital_hub):
    job = hospital_hub.submit("ada", spend="rho 0.04")
    with hospital_hub.hub.database.writing() as session:
        session.execute(sa.update(Request).values(ends=1.0))
    Chores(hospital_hub.hub, hospital_hub.pool()).do()
    assert hospital_hub.job(job.id).state == "refused"
    assert not hospital_hub.spent().amount


def test_a_cancelled_job_takes_its_request_along(hospital_hub):
    job = hospital_hub.submit("ada", spend="rho 0.04")
    gateway.cancel(hospital_hub.hub, hospital_hub.ada, job.id)
    assert [one.state for one in hospital_hub.rows(sa.select(Request))] == ["withdrawn"]
    assert hospital_hub.job(job.id).state == "cancelled"


def test_a_new_version_is_prepared_and_its_answers_are_new(hospital_hub):
    hospital_hub.submit("ada")
    hospital_hub.work()
    with hospital_hub.hub.database.writing() as session:
        dataset = datasets.find(session, "visits")
        before = datasets.newest(hospital_hub.hub, session, dataset)
        datasets.new_version(
            hospital_hub.hub, session, hospital_hub.owner, dataset, schema_text=before.schema, uploads={}
        )
    assert prepare_versions(hospital_hub.hub) == 1
    assert prepare_versions(hospital_hub.hub) == 0
    assert [one.state for one in hospital_hub.rows(sa.select(Version))] == ["ready", "ready"]
    assert hospital_hub.plan("ada").loss == rho("0.01")  # of another state of the data: nothing on record
    hospital_hub.submit("ada")
    assert hospital_hub.work() == ["done"]
    assert hospital_hub.spent() == rho("0.02")  # from the same account


def test_a_closed_account_runs_nothing(hospital_hub):
    hospital_hub.submit("ada")
    with hospital_hub.hub.database.writing() as session:
        session.execute(sa.update(Person).where(Person.id == hospital_hub.ada.id).values(active=False))
    assert hospital_hub.work() == ["refused"]
    assert not hospital_hub.spent().amount


def test_an_unknown_trust_model_is_refused(hospital_hub):
    with hospital_hub.hub.database.writing() as session:
        session.execute(sa.update(Dataset).values(trust="crypto service provider"))
    with pytest.raises(NotNow, match="no place for the trust model"):
        hospital_hub.submit("ada")
    with pytest.raises(NotNow):
        trust_model_of("")


def test_a_place_says_who_could_see_rows():
    sights = {one.who: one.rows for one in TRUST_MODELS["curator"].sights}
    assert sights["data users"] is False
    assert sights["the hub's workers"] is True
    assert sights["anyone who is root on the hub's machine"] is True


def test_a_dataset_whose_policy_does_not_hold_is_not_here_for_others(hospital_hub):
    from cloister.hub.core import models

    with hospital_hub.hub.database.writing() as session:
        session.execute(sa.update(models.PolicyVersion).values(text=models.PolicyVersion.text + "\n# changed"))
    with pytest.raises(NotHere):
        hospital_hub.plan("ada")


def test_sizes_are_read():
    assert memory_of("2GB") == 2 * 10**9
    assert memory_of("512 MiB") == 512 * 2**20
    assert memory_of("1.5GB") == 1_500_000_000
    for text in ("2", "lots", "GB", "-1GB"):
        with pytest.raises(BadName):
            memory_of(text)


@pytest.fixture
def postgres_hub(postgres_address, tmp_path, world_maker):
    world = world_maker(tmp_path / "hub", database_url=postgres_address)
    yield world
    world.hub.close()


def test_in_postgresql_racing_jobs_cannot_pass_a_limit_either(postgres_hub):
    world = postgres_hub
    for age in range(16):
        world.submit("ada", f"SELECT COUNT(*) AS n FROM visits WHERE age > {age}", "rho 0.02")
    pool, ended, ready = world.pool(), [], threading.Barrier(4)

    def take(name):
        ready.wait()
        while (job := queue.claim(world.hub.database, name)) is not None:
            ended.append(run_job(world.hub, job, name, pool))

    threads = [threading.Thread(target=take, args=(f"w{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == ["done"] * 5 + ["refused"] * 11
    assert world.spent("ada") == rho("0.1") == world.spent()
    assert len(world.rows(sa.select(Spent))) == 5
    job = world.submit("ben", spend="rho 0.04")
    gateway.cancel(world.hub, world.ben, job.id)
    job = world.submit("ben", "SELECT AVG(age) AS a FROM visits")
    queue.claim(world.hub.database, "gone")
    assert queue.recover(world.hub, "gone") == 1
    assert world.work() == ["done"]
    assert world.job(job.id).attempts == 2


def test_a_ledger_that_may_be_an_older_copy_stops_work_without_telling_where_it_lies(hospital_hub):
    job = hospital_hub.submit("ada")
    hospital_hub.hub.settings.head.unlink()
    assert hospital_hub.work() == ["failed"]
    assert "CLO-206" in hospital_hub.job(job.id).problem
    assert str(hospital_hub.hub.folder) not in hospital_hub.job(job.id).problem
    assert not hospital_hub.rows(sa.select(Spent))


# Versions that do harm, databases that are locked, files that were left


def another_version(world):
    with world.hub.database.writing() as session:
        dataset = datasets.find(session, "visits")
        before = datasets.newest(world.hub, session, dataset)
        made = datasets.new_version(world.hub, session, world.owner, dataset, schema_text=before.schema, uploads={})
    return made.id


def version(world, number):
    with world.hub.database.reading() as session:
        return session.get_one(Version, number)


def test_a_version_that_kills_its_worker_is_given_up_after_three_tries(hospital_hub, monkeypatch):
    number, real = another_version(hospital_hub), ingest.prepare

    def dies(*_):
        raise SystemExit(137)

    monkeypatch.setattr(ingest, "prepare", dies)
    for _ in range(3):
        with pytest.raises(SystemExit):
            prepare_versions(hospital_hub.hub)
        assert version(hospital_hub, number).state == "preparing"
    monkeypatch.setattr(ingest, "prepare", lambda *_: pytest.fail("it was tried once more"))
    assert prepare_versions(hospital_hub.hub) == 1
    found = version(hospital_hub, number)
    assert found.state == "failed"
    assert "ended several times" in found.problem
    assert "ask the operator" in found.problem
    monkeypatch.setattr(ingest, "prepare", real)
    with hospital_hub.hub.database.writing() as session:
        datasets.retry(hospital_hub.hub, session, hospital_hub.owner, datasets.find(session, "visits"), found.number)
    assert prepare_versions(hospital_hub.hub) == 1  # the owner's own try counts anew
    assert version(hospital_hub, number).state == "ready"


def test_a_try_that_the_hub_itself_interrupted_does_not_count(hospital_hub, monkeypatch):
    number, real = another_version(hospital_hub), ingest.prepare

    def dies(*_):
        raise SystemExit(0)

    monkeypatch.setattr(ingest, "prepare", dies)
    for _ in range(7):
        with pytest.raises(SystemExit):
            prepare_versions(hospital_hub.hub)
        worker._settle(hospital_hub.hub, "gone", worker._VERSION, number, "", stopping=True)
    monkeypatch.setattr(ingest, "prepare", real)
    prepare_versions(hospital_hub.hub)
    assert version(hospital_hub, number).state == "ready"


def test_a_version_that_was_stopped_at_a_limit_fails_with_what_to_do(hospital_hub):
    number = another_version(hospital_hub)
    left = (
        hospital_hub.hub.folder
        / "sealed"
        / str(hospital_hub.dataset().id)
        / f"{version(hospital_hub, number).number}-x"
    )
    left.mkdir()
    worker._settle(hospital_hub.hub, "gone", worker._VERSION, number, "it took longer than 5 seconds", stopping=False)
    found = version(hospital_hub, number)
    assert found.state == "failed"
    assert found.problem.startswith("the tables could not be prepared: it took longer than 5 seconds. Send shorter")
    assert not left.exists()
    assert [one.state for one in hospital_hub.rows(sa.select(Version))] == ["ready", "failed"]


def test_where_there_are_several_workers_one_is_left_for_jobs(hospital_hub):
    another_version(hospital_hub)
    folder = hospital_hub.hub.folder
    for number in range(3):
        heartbeats.beat(folder, f"w{number}")
    with maintenance._a_place(hospital_hub.hub) as first, maintenance._a_place(hospital_hub.hub) as second:
        assert (first, second) == (True, True)
        assert prepare_versions(hospital_hub.hub) == 0
    assert prepare_versions(hospital_hub.hub) == 1


def test_a_worker_goes_on_after_the_database_was_locked(hospital_hub, monkeypatch):
    job, stop, real, failed = hospital_hub.submit("ada"), threading.Event(), queue.claim, []

    def locked(*asked, **more):
        if len(failed) < 3:
            failed.append(asked)
            raise sa.exc.OperationalError("UPDATE jobs", {"secret": 1}, Exception("database is locked"))
        return real(*asked, **more)

    def broken():
        raise sa.exc.OperationalError("UPDATE jobs", {}, Exception("database is locked"))

    monkeypatch.setattr(queue, "claim", locked)
    monkeypatch.setattr(queue, "recover", lambda *_: broken())  # a chore
    monkeypatch.setattr(worker, "_SLOWEST_S", 0.05)
    thread = threading.Thread(target=work, args=(hospital_hub.hub, "thread", stop))
    thread.start()
    try:
        end = time.monotonic() + 30
        while hospital_hub.job(job.id).state != "done" and time.monotonic() < end:
            time.sleep(0.02)
    finally:
        stop.set()
        thread.join()
    assert len(failed) == 3
    assert hospital_hub.job(job.id).state == "done"


def test_a_worker_goes_on_after_any_error_of_its_housekeeping(hospital_hub, monkeypatch):
    job, stop, failed = hospital_hub.submit("ada"), threading.Event(), []

    def broken(*_, **__):
        failed.append(1)
        raise AttributeError("ZZSECRETZZ")

    real = queue.claim
    monkeypatch.setattr(maintenance.mail, "deliver", broken)
    monkeypatch.setattr(worker, "prepare_versions", broken)
    monkeypatch.setattr(worker, "_VERSIONS_EVERY_S", 0.2)
    monkeypatch.setattr(worker, "_SLOWEST_S", 0.05)
    monkeypatch.setattr(queue, "claim", lambda *a, **k: broken() if len(failed) < 4 else real(*a, **k))
    thread = threading.Thread(target=work, args=(hospital_hub.hub, "thread", stop))
    thread.start()
    try:
        end = time.monotonic() + 30
        while hospital_hub.job(job.id).state != "done" and time.monotonic() < end:
            time.sleep(0.02)
    finally:
        stop.set()
        thread.join()
    assert hospital_hub.job(job.id).state == "done"


def test_a_worker_that_keeps_dying_is_told_by_the_health_check(hospital_hub, monkeypatch):
    hub, stop = hospital_hub.hub, threading.Event()
    web = TestClient(create_app(hub))
    heartbeats.beat(hub.folder, "another")
    assert web.get("/health").json()["workers"] == "ok"
    died = []

    class Child:
        pid = 0

        def __init__(self, **_):
            pass

        def start(self):
            died.append(1)
            if len(died) == 5:
                stop.set()

        def is_alive(self):
            return False

    context = worker.multiprocessing.get_context("spawn")
    monkeypatch.setattr(context, "Process", Child)
    monkeypatch.setattr(worker.multiprocessing, "get_context", lambda _: context)
    monkeypatch.setattr(worker, "_RESTART_S", 0.0)
    worker.run(hub, stop)
    said = web.get("/health")
    assert said.status_code == 503
    assert said.json()["workers"].startswith("failing: 4 times in the last minute")
    monkeypatch.setattr(heartbeats, "now", lambda: time.time() + 120)
    assert heartbeats.failures(hub.folder) == 0


def test_a_worker_says_that_it_lives_while_the_database_is_locked(hospital_hub):
    stop, folder = threading.Event(), hospital_hub.hub.folder
    assert heartbeats.last(folder) is None
    with hospital_hub.hub.database.writing():
        thread = threading.Thread(target=work, args=(hospital_hub.hub, "a name", stop))
        thread.start()
        try:
            end = time.monotonic() + 20
            while heartbeats.living(folder) != ["a name"] and time.monotonic() < end:
                time.sleep(0.02)
            assert heartbeats.living(folder) == ["a name"]
        finally:
            stop.set()
    thread.join()
    assert heartbeats.last(folder) == pytest.approx(time.time(), abs=60)


def test_rows_that_an_older_version_spilled_are_removed_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    day = time.time() - 2 * 86_400
    for name, file in (
        ("cloister-abcd1234", "duckdb_temp_storage_DEFAULT-0.tmp"),
        ("cloister-efgh5678", "notes.txt"),
        ("cloister-ledger-x", "duckdb_temp_x"),
        ("cloister-new12345", "duckdb_temp_storage_DEFAULT-0.tmp"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_bytes(b"a row")
        if "new" not in name:
            os.utime(tmp_path / name, (day, day))
    assert worker.remove_spilled_rows() == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "cloister-efgh5678",
        "cloister-ledger-x",
        "cloister-new12345",
    ]


def test_a_heartbeat_that_cannot_be_read_hides_no_other(tmp_path, monkeypatch):
    for name in ("a", "m", "z"):
        heartbeats.beat(tmp_path, name)
    workers = tmp_path / "workers"
    (workers / "b").write_bytes(b"\xff half")
    (workers / "c").write_text("")
    (workers / "d").mkdir()
    (workers / "e").write_text("nan")
    (workers / "f").write_text("inf")
    for order in (sorted, lambda paths: sorted(paths, reverse=True)):
        with monkeypatch.context() as patch:
            listed = order(workers.iterdir())
            patch.setattr(type(tmp_path), "iterdir", lambda _, listed=listed: iter(listed))
            assert heartbeats.living(tmp_path) == ["a", "m", "z"]
            assert heartbeats.last(tmp_path) == pytest.approx(time.time(), abs=60)
    heartbeats.tidy(tmp_path)
    assert heartbeats.living(tmp_path) == ["a", "m", "z"]


def test_a_failure_that_was_half_written_hides_no_other(tmp_path):
    for _ in range(3):
        heartbeats.note_failure(tmp_path)
    with (tmp_path / "workers" / ".failures").open("ab") as file:
        file.write(b"17\xff\n")
    assert heartbeats.failures(tmp_path) == 3

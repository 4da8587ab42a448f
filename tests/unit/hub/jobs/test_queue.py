"""The queue: fair, taken once, recovered; never two runs for one charge."""

import threading

import pytest
import sqlalchemy as sa

from cloister.hub.core.models import AuditEntry, Job, Spent
from cloister.hub.jobs import limits, queue
from cloister.hub.jobs.job_ledger import JobLedger
from cloister.hub.jobs.runner import run_job
from cloister.privacy.loss import Loss, rho
from cloister.privacy.signing import fingerprint


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


def killed_at(word):
    def step(name):
        if name == word:
            raise Killed

    return step


def die_at(world, word, worker="gone"):
    """Take a job and die at a step of it, as kill -9 does."""
    job = queue.claim(world.hub.database, worker)
    with pytest.raises(Killed):
        run_job(world.hub, job, worker, world.pool(), killed_at(word))
    return job.id


def question(age):
    return f"SELECT COUNT(*) AS n FROM visits WHERE age > {age}"


def test_the_queue_is_fair_between_people(hospital_hub):
    hog = [hospital_hub.submit("ada", question(age), "rho 0.001").id for age in range(5)]
    late = [hospital_hub.submit("ben", question(age), "rho 0.001").id for age in range(2)]
    order = []
    for number in range(4):
        order.append(queue.claim(hospital_hub.hub.database, f"w{number}").id)
    assert order == [hog[0], late[0], hog[1], late[1]]  # as many running for each


def test_whoever_was_served_last_waits_even_if_nothing_runs(hospital_hub):
    hog = [hospital_hub.submit("ada", question(age), "rho 0.001").id for age in range(4)]
    late = [hospital_hub.submit("ben", question(age), "rho 0.001").id for age in range(2)]
    order = []
    while (job := queue.claim(hospital_hub.hub.database, "one")) is not None:
        order.append(job.id)
        with hospital_hub.hub.database.writing() as session:
            assert queue.finish(session, job.id, "one", "done")
    assert order == [hog[0], late[0], hog[1], late[1], hog[2], hog[3]]


def test_two_workers_never_take_one_job(hospital_hub):
    wanted = {hospital_hub.submit("ada", question(age % 90), "rho 0.0001").id for age in range(30)}
    taken, ready = [], threading.Barrier(4)

    def take(name):
        ready.wait()
        while (job := queue.claim(hospital_hub.hub.database, name)) is not None:
            taken.append(job.id)

    threads = [threading.Thread(target=take, args=(f"w{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(wanted)


@pytest.mark.parametrize("step", ["running", "opened", "aside"])
def test_a_job_that_was_not_charged_runs_again_and_is_charged_once(hospital_hub, step):
    job = hospital_hub.submit("ada")
    assert die_at(hospital_hub, step) == job.id
    assert queue.recover(hospital_hub.hub) == 0  # its lease has not run out
    assert queue.recover(hospital_hub.hub, "gone") == 1
    assert hospital_hub.job(job.id).state == "queued"
    assert not hospital_hub.rows(sa.select(Spent))
    assert hospital_hub.work() == ["done"]
    assert hospital_hub.spent() == rho("0.01") == hospital_hub.spent("ada")
    assert len(hospital_hub.rows(sa.select(Spent))) == 1


@pytest.mark.parametrize("step", ["charged", "released"])
def test_a_job_that_was_charged_never_runs_again(hospital_hub, step):
    job = hospital_hub.submit("ada")
    die_at(hospital_hub, step)
    assert queue.recover(hospital_hub.hub, "gone") == 1
    found = hospital_hub.job(job.id)
    assert found.state == "interrupted"
    assert "The charge stands" in found.problem
    assert hospital_hub.work() == []
    assert hospital_hub.spent() == rho("0.01")
    assert Loss.from_json(hospital_hub.rows(sa.select(Spent))[0].loss) == rho("0.01")


def test_a_job_that_is_done_stays_done(hospital_hub):
    job = hospital_hub.submit("ada")
    die_at(hospital_hub, "done")
    assert queue.recover(hospital_hub.hub, "gone") == 0
    assert hospital_hub.job(job.id).state == "done"


def test_a_lease_that_ran_out_is_noticed_by_any_worker(hospital_hub):
    job = hospital_hub.submit("ada")
    die_at(hospital_hub, "aside")
    with hospital_hub.hub.database.writing() as session:
        session.execute(sa.update(Job).values(heartbeat=Job.heartbeat - queue.LEASE_S - 1))
    assert queue.recover(hospital_hub.hub) == 1
    assert hospital_hub.job(job.id).state == "queued"
    (entry,) = hospital_hub.rows(sa.select(AuditEntry).where(AuditEntry.action == "job.recovered"))
    assert entry.detail == {"was": "charged", "now": "queued"}


def test_a_job_that_kills_its_workers_is_given_up(hospital_hub):
    job = hospital_hub.submit("ada")
    for _ in range(queue.MOST_ATTEMPTS):
        die_at(hospital_hub, "opened")
        queue.recover(hospital_hub.hub, "gone")
    assert hospital_hub.job(job.id).state == "failed"
    assert hospital_hub.work() == []
    assert not hospital_hub.spent().amount


def test_a_job_that_was_taken_away_changes_nothing_more(hospital_hub):
    job = hospital_hub.submit("ada")
    slow = queue.claim(hospital_hub.hub.database, "slow")

    def overtaken(step):
        if step == "opened":
            queue.recover(hospital_hub.hub, "slow")

    assert run_job(hospital_hub.hub, slow, "slow", hospital_hub.pool(), overtaken) == ""
    assert not hospital_hub.spent().amount
    assert hospital_hub.work() == ["done"]
    assert hospital_hub.job(job.id).state == "done"
    assert hospital_hub.spent() == rho("0.01")


def test_a_worker_that_wakes_up_too_late_voids_its_charge(hospital_hub, monkeypatch):
    hospital_hub.submit("ada")
    slow = queue.claim(hospital_hub.hub.database, "slow")
    monkeypatch.setattr("cloister.hub.jobs.job_ledger.LEASE_S", 0.0)

    def overtaken(step):
        if step == "aside":  # asleep between setting aside and charging: somebody takes the job
            queue.recover(hospital_hub.hub, "slow")

    assert run_job(hospital_hub.hub, slow, "slow", hospital_hub.pool(), overtaken) == ""
    assert not hospital_hub.spent().amount
    monkeypatch.undo()
    assert hospital_hub.work() == ["done"]
    assert hospital_hub.spent() == rho("0.01")


def test_the_ledger_knows_whether_a_request_was_charged(hospital_hub):
    ledger = hospital_hub.hub.ledger
    account = ledger.account("visits")
    assert not ledger.charged(fingerprint("job 1"))
    account.reserve(rho("0.01"), "job 1")
    assert ledger.charged(fingerprint("job 1"))
    charge = account.reserve(rho("0.01"), "job 2")
    charge.void()
    assert not ledger.charged(fingerprint("job 2"))
    account.charge_all([rho("0.01")], "job 3")
    assert ledger.charged(fingerprint("job 3"))
    charge = account.reserve(rho("0.01"), "job 4")
    charge.look()
    charge.commit()
    assert ledger.charged(fingerprint("job 4"))
    assert not ledger.charged("")


def test_thirty_two_jobs_racing_for_the_last_of_a_limit_cannot_pass_it(hospital_hub):
    for age in range(32):
        hospital_hub.submit("ada", question(age), "rho 0.02")
    pool, ended, ready = hospital_hub.pool(), [], threading.Barrier(8)

    def take(name):
        ready.wait()
        while (job := queue.claim(hospital_hub.hub.database, name)) is not None:
            ended.append(run_job(hospital_hub.hub, job, name, pool))

    threads = [threading.Thread(target=take, args=(f"w{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == ["done"] * 5 + ["refused"] * 27
    assert hospital_hub.spent("ada") == rho("0.1") == hospital_hub.spent()
    rows = hospital_hub.rows(sa.select(Spent).order_by(Spent.id))
    assert Loss.from_json(rows[-1].own_total) == Loss.from_json(rows[-1].total) == rho("0.1")


def test_what_is_given_back_leaves_no_trace_in_later_totals(hospital_hub):
    jobs = [hospital_hub.submit(who, question(1), "rho 0.01") for who in ("ada", "ben", "ada")]
    from cloister.hub.policy.versions import current

    with hospital_hub.hub.database.writing() as session:
        policy, _ = current(hospital_hub.hub, session, hospital_hub.dataset())
        for job, amount in zip(jobs, ("0.01", "0.02", "0.03"), strict=True):
            limits.set_aside(
                session, session.get(Job, job.id), policy, rho(amount), rho(amount), hospital_hub.hub.ledger
            )
            session.flush()
        limits.give_back(session, jobs[0].id)
    first, last = hospital_hub.rows(sa.select(Spent).order_by(Spent.id))
    assert Loss.from_json(first.total) == Loss.from_json(first.own_total) == rho("0.02")
    assert Loss.from_json(last.total) == rho("0.05")
    assert Loss.from_json(last.own_total) == rho("0.03")


def test_a_job_cannot_charge_around_its_book(hospital_hub):
    from cloister.hub.jobs.job_types import Planned
    from cloister.privacy.errors import AccountMismatch, NotNow
    from cloister.privacy.ledger import Account

    nothing = Loss.nothing("rho")
    book = JobLedger(hospital_hub.hub, 1, "me", Planned(nothing, nothing), lambda *_: None)
    account = Account(hospital_hub.hub.ledger.account("visits").rules, book)
    with pytest.raises(AccountMismatch):
        hospital_hub.hub.ledger.reserve([(account, rho("0.01"))], "around")
    from cloister.hub.jobs.dataset_pool import ClosedBook

    with pytest.raises(NotNow, match="a plan charges nothing"):
        Account(account.rules, ClosedBook(hospital_hub.hub.ledger)).reserve(rho("0.01"), "plan")


def test_one_persons_jobs_leave_workers_for_others(hospital_hub):
    first, second = hospital_hub.submit("ada"), hospital_hub.submit("ada", "SELECT COUNT(*) AS n FROM visits")
    database = hospital_hub.hub.database
    assert queue.claim(database, "w1", most_each=1).id == first.id
    assert queue.claim(database, "w2", most_each=1) is None
    other = hospital_hub.submit("ben")
    assert queue.claim(database, "w2", most_each=1).id == other.id
    assert queue.claim(database, "w3", most_each=2).id == second.id

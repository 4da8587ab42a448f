"""An owner attacks what was made from their dataset: what is found, who learns of it, and what becomes of it."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from sqlalchemy.orm import undefer

import cloister as cl
from cloister import synth
from cloister.data.hospital import SCHEMA, hospital
from cloister.data.schema import Column
from cloister.hub.approvals.visibility import result_of
from cloister.hub.core.database import now
from cloister.hub.core.models import Attack, AuditEntry, Job, Output, Person, Request, Version
from cloister.hub.datasets import datasets
from cloister.hub.jobs import gateway, maintenance, output_check
from cloister.hub.jobs.attacks import models, running, store
from cloister.hub.jobs.attacks.models import Known, membership_in_twins
from cloister.hub.jobs.attacks.synthetic import _Sides, hidden_values, membership_in_a_twin
from cloister.hub.jobs.external_tables.submission import hand_in
from cloister.privacy.errors import NotHere, NotNow, SealBroken
from cloister.privacy.loss import epsilon, rho
from cloister.synth.output.shared_table import side_path

FORM = {"quasi": "age, ward", "sensitive": "stay_days", "models": "k=5, l=2 (stay_days)", "suppression": "10%"}
MAY = "may: [see schema, query, profile]"
MORE = MAY.replace("profile", "profile, train, synthesise, anonymise")
BLOCK = 'anonymised: {at_least: "k=5", suppression_at_most: 10%}\nroles:'


@pytest.fixture
def world(hospital_hub):
    hospital_hub.publish(change=[(MAY, MORE), ("roles:", BLOCK)])
    return hospital_hub


def checking(world, who="ada", **form):
    order = gateway.JobOrder("visits", "anonymise", {**FORM, **form}, "health-research", world.here)
    job = gateway.submit(world.hub, world.people[who], order).id
    assert world.work() == ["checking"]
    return job, world.rows(sa.select(Request.id).where(Request.job_id == job))[0]


def vote(world, number, *people, agreed=True):
    for who in people:
        with world.hub.database.writing() as session:
            person, request = session.get_one(Person, world.people[who].id), session.get_one(Request, number)
            digest = session.scalar(sa.select(Output.digest).where(Output.job_id == request.job_id))
            output_check.decide(world.hub, session, person, request, agreed, "Fine.", digest)


def released(world, who="ada", **form):
    job, request = checking(world, who, **form)
    vote(world, request, "owner", "reviewer")
    return job


def start(world, job, who="owner"):
    return store.start(world.hub, world.people[who], "visits", job)


def attack(world, job, who="owner"):
    """Start an attack and be its worker; its number."""
    number, pool = start(world, job, who), world.pool()
    assert running.run_next(world.hub, pool)
    pool.close()
    return number


def found(world, number):
    with world.hub.database.reading() as session:
        return store.find(world.hub, session, datasets.find(session, "visits"), number)


def report(world, number):
    with world.hub.database.reading() as session:
        return store.report_of(world.hub, session, datasets.find(session, "visits"), number)


def listed(world, who="owner"):
    with world.hub.database.reading() as session:
        return store.targets(world.hub, session, datasets.find(session, "visits"), world.people[who])


# An anonymised release


def test_an_anonymised_release_is_attacked_end_to_end(world):
    job = released(world)
    assert [(one.job_id, one.kind, one.held, one.problem) for one in listed(world)] == [(job, "anonymise", False, "")]
    number = attack(world, job)
    told = found(world, number)
    assert (told.state, told.progress, told.stage, told.job_id) == ("done", 1.0, "", job)
    assert told.finished >= told.created
    findings = {one["attack"]: one for one in report(world, number)["json"]["findings"]}
    assert told.facts["attacks"] == len(findings) > 4
    prosecutor = findings["re-identification by a prosecutor"]
    assert 0 < prosecutor["success"] <= 1 / 5  # k = 5 is what the release claims
    assert prosecutor["figures"]["people in the smallest class"] >= 5
    assert findings["linkage"]["figures"]["people at risk"].startswith("0 of ")
    assert {"homogeneity of stay_days", "identification by stay_days"} <= set(findings)
    page = report(world, number)["html"]
    assert "OWNER&#x27;S VIEW" in page
    assert all(one["charts"] and one["tiles"] for one in report(world, number)["shown"])


def test_a_release_whose_classes_hold_one_value_is_found_out(world):
    """k-anonymity without l-diversity: everybody of a class has the same value, and the attack says so."""
    with_ward = released(world, quasi="age", sensitive="ward", models="k=5", method="mondrian")
    findings = {one["attack"]: one for one in report(world, attack(world, with_ward))["json"]["findings"]}
    assert findings["homogeneity of ward"]["success"] > findings["homogeneity of ward"]["baseline"]


def test_a_held_release_is_attacked_by_an_owner_who_looks_at_it_and_not_by_one_who_asked_for_it(world):
    job, request = checking(world)
    assert [(one.job_id, one.held, one.request_id) for one in listed(world)] == [(job, True, request)]
    assert found(world, attack(world, job)).state == "done"
    vote(world, request, "owner", agreed=False)
    assert listed(world) == []
    with pytest.raises(NotHere, match="nothing here that can be attacked"):
        start(world, job)


def test_an_owner_does_not_attack_their_own_held_release(hospital_hub):
    block = BLOCK + "\n  self: {who: {people: [owner@hospital.example]}, may: [anonymise]}"
    hospital_hub.publish(change=[("roles:", block), ("reviewers: [", "reviewers: [ada@university.example, ")])
    job, request = checking(hospital_hub, "owner")
    assert listed(hospital_hub) == []
    with pytest.raises(NotHere):
        start(hospital_hub, job)
    vote(hospital_hub, request, "ada", "reviewer")
    assert [(one.job_id, one.held) for one in listed(hospital_hub)] == [(job, False)]
    assert found(hospital_hub, attack(hospital_hub, job)).state == "done"


def test_a_release_from_tables_that_were_replaced_is_not_attacked_with_others_rows(world):
    job = released(world)
    world.another_version()
    told = found(world, attack(world, job))
    assert told.state == "failed"
    assert "have changed since Anonymised release" in told.facts["problem"]
    assert "Have it made again" in told.facts["problem"]


# Who learns of it


def text_of(answer):
    """The body of an answer without what every page has anew: tokens."""
    assert answer.status_code in (200, 303), answer.text
    return answer.text.replace(answer.request.headers.get("cookie", "-"), "")


REQUESTERS = ["/jobs", "/jobs/{job}", "/datasets/visits", "/requests", "/notices", "/datasets/visits/ledger", "/ledger"]
PROGRAMS = ["/api/jobs", "/api/jobs/{job}", "/api/datasets/visits", "/api/datasets/visits/ledger", "/api/notices"]


def seen(visit, job):
    return {
        **{path: text_of(visit.get(path.format(job=job))) for path in REQUESTERS},
        **{path: text_of(visit.api.get(path.format(job=job))) for path in PROGRAMS},
    }


def test_the_requester_and_others_see_the_same_before_during_and_after(world, visits_of):
    job, visit = released(world), visits_of(world)
    everybody = {name: visit(name) for name in ("ada", "ben", "reviewer")}
    before = {name: seen(one, job) for name, one in everybody.items() if name == "ada"}
    before |= {name: text_of(one.get("/datasets/visits")) for name, one in everybody.items() if name != "ada"}
    number = start(world, job)
    during = seen(everybody["ada"], job)
    pool = world.pool()
    assert running.run_next(world.hub, pool)
    pool.close()
    assert found(world, number).state == "done"
    assert during == seen(everybody["ada"], job) == before["ada"]
    assert {name: text_of(everybody[name].get("/datasets/visits")) for name in ("ben", "reviewer")} == {
        name: before[name] for name in ("ben", "reviewer")
    }


@pytest.mark.parametrize("who", ["ada", "ben", "cleo", "stranger", "reviewer"])
def test_for_everybody_but_the_owner_there_is_no_attack(world, visits_of, who):
    job = released(world)
    number = attack(world, job)
    visit, at = visits_of(world)(who), "/datasets/visits/attacks"
    for path in (at, f"{at}/{number}", f"{at}/{number}/report.html", f"{at}/{number}/report.json"):
        missing = visit.get(path.replace("visits", "nothing"))
        answer = visit.get(path)
        assert answer.status_code == missing.status_code == 404, path
        assert "attack" not in answer.text.replace(path, "").lower(), path
    for path in (at, f"{at}/{number}/cancel", f"{at}/{number}/remove"):
        assert visit.post(path, job=str(job)).status_code == 404, path
    for method, path in (("GET", at), ("POST", at), ("GET", f"{at}/{number}"), ("DELETE", f"{at}/{number}")):
        answer = visit.api.request(method, f"/api{path}", json={"job": job} if method == "POST" else None)
        assert answer.status_code == 404, (method, path)
        assert (
            answer.json()
            == visit.api.request(
                method, f"/api{path.replace('visits', 'nothing')}", json={"job": job} if method == "POST" else None
            ).json()
        )
    assert len(world.rows(sa.select(Attack))) == 1
    with pytest.raises(NotHere):
        start(world, job, who)


def test_the_owner_starts_reads_and_removes_one_on_the_pages(world, visits_of):
    job, owner, at = released(world), visits_of(world)("owner"), "/datasets/visits/attacks"
    assert f'href="{at}#job-{job}"' in owner.get(f"/jobs/{job}").text
    assert f'href="{at}#job-{job}"' in owner.get("/datasets/visits").text
    assert f"Attack {job}" in owner.get(at).text
    answer = owner.post(at, job=str(job))
    assert answer.status_code == 303
    here = answer.headers["location"].partition("?")[0]
    assert "waiting for a worker" in owner.get(here).text
    assert owner.get(f"{here}/report.html").status_code == 404
    refused = owner.post(at, job=str(job))
    assert refused.status_code == 409
    assert "is under way. Wait until it is done, or cancel it" in refused.text
    pool = world.pool()
    assert maintenance.run_attacks(world.hub, pool)
    pool.close()
    page = owner.get(here).text
    assert "Re-identification by a prosecutor" in page
    assert "What would have stopped it" in page
    assert page.count("<svg") > 4
    assert " style=" not in page  # the hub's pages allow no inline styles
    files = [owner.get(f"{here}/report.{ending}") for ending in ("html", "json")]
    assert all("attachment" in file.headers["content-disposition"] for file in files)
    assert "OWNER&#x27;S VIEW" in files[0].text
    assert files[1].json()["findings"]
    assert owner.post(f"{here}/cancel").status_code == 409
    assert owner.post(f"{here}/remove").status_code == 303
    assert owner.get(here).status_code == 404
    assert world.rows(sa.select(Attack)) == []


def test_a_program_of_the_owner_starts_and_reads_one(world, visits_of):
    job, api, at = released(world), visits_of(world)("owner").api, "/api/datasets/visits/attacks"
    assert [one["job"] for one in api.get(at).json()["targets"]] == [job]
    begun = api.post(at, json={"job": job})
    assert (begun.status_code, begun.json()["state"]) == (202, "queued")
    number = begun.json()["number"]
    assert api.get(f"{at}/{number}").json()["report"] is None
    pool = world.pool()
    assert running.run_next(world.hub, pool)
    pool.close()
    told = api.get(f"{at}/{number}").json()
    assert told["attack"]["verdict"] == told["report"]["verdict"] != ""
    assert api.get(at).json()["attacks"] == [told["attack"]]
    assert api.post(at, json={"job": 10**6}).status_code == 404
    assert api.delete(f"{at}/{number}").status_code == 204
    assert api.get(f"{at}/{number}").status_code == 404


def test_nothing_is_charged_and_the_log_says_only_that_it_was_attacked(world):
    job = released(world)
    head, stored = world.hub.ledger.head, world.job(job)
    with world.hub.database.reading() as session:
        before = result_of(session, session.get_one(Job, job))
        last = session.scalar(sa.select(sa.func.max(AuditEntry.number)))
    attack(world, job)
    assert world.hub.ledger.head == head
    with world.hub.database.reading() as session:
        assert result_of(session, session.get_one(Job, job)) == before
    after = world.job(job)
    assert {name: getattr(after, name) for name in Job.__table__.columns.keys()} == {  # noqa: SIM118
        name: getattr(stored, name)
        for name in Job.__table__.columns.keys()  # noqa: SIM118
    }
    entries = world.rows(sa.select(AuditEntry).where(AuditEntry.number > last))
    told = {one.action: (one.object, one.detail) for one in entries}
    assert told.pop("attack.begun") == (f"job/{job}", {"dataset": "visits"})
    assert set(told) <= {"tables.opened"}


# What is kept


def test_findings_are_sealed_in_the_database_and_its_log(world):
    number = attack(world, released(world))
    canaries = [found(world, number).facts["verdict"], "re-identification by a prosecutor", "people at risk"]
    assert all(word in json.dumps(report(world, number), ensure_ascii=False) for word in canaries)
    files = [file.read_bytes() for file in world.hub.folder.glob("hub.db*")]
    assert any(b"attack.begun" in file for file in files)  # these are the files that hold it
    for word in canaries:
        assert not any(word.encode() in file for file in files)


def test_findings_go_with_the_dataset(world):
    attack(world, released(world))
    with world.hub.database.writing() as session:
        datasets.delete(world.hub, session, session.get_one(Person, world.owner.id), datasets.find(session, "visits"))
    assert world.rows(sa.select(Attack)) == []


def test_findings_of_one_attack_do_not_open_as_those_of_another(world, visits_of):
    job = released(world)
    first, second = attack(world, job), attack(world, job)
    with world.hub.database.writing() as session:
        other = session.get_one(Attack, first, options=[undefer(Attack.report)])
        session.get_one(Attack, second).facts, session.get_one(Attack, second).report = other.facts, other.report
    assert "cannot be opened" in found(world, second).facts["problem"]
    page = visits_of(world)("owner").get(f"/datasets/visits/attacks/{second}")
    assert (page.status_code, "cannot be opened" in page.text) == (200, True)
    with pytest.raises(SealBroken):
        report(world, second)
    assert found(world, first).facts["verdict"]


# How it runs


def test_one_is_under_way_at_a_time_and_it_can_be_cancelled(world):
    job = released(world)
    number = start(world, job)
    with pytest.raises(NotNow, match=f"attack {number} on this dataset is under way"):
        start(world, job)
    store.cancel(world.hub, world.owner, "visits", number)
    assert found(world, number).state == "cancelled"
    pool = world.pool()
    assert not running.run_next(world.hub, pool)
    pool.close()
    with pytest.raises(NotNow, match="has ended"):
        store.cancel(world.hub, world.owner, "visits", number)
    assert start(world, job) != number


def test_one_that_is_cancelled_or_removed_while_it_runs_keeps_nothing(world, monkeypatch):
    job = released(world)
    for stop in (store.cancel, store.remove):
        number = start(world, job)

        def stopped(*asked, stop=stop, number=number):
            stop(world.hub, world.owner, "visits", number)
            asked[-1](0.5, "the next step")

        monkeypatch.setitem(running._ATTACKS, "anonymise", stopped)
        assert running.run_next(world.hub, None)
    assert world.rows(sa.select(Attack.state)) == ["cancelled"]
    assert world.rows(sa.select(Attack.facts)) == world.rows(sa.select(Attack.report)) == [None]


def test_one_whose_worker_is_killed_is_tried_again_a_few_times(world, monkeypatch):
    number = start(world, released(world))

    def killed(*_):
        raise KeyboardInterrupt  # nothing after it runs, as in a process that is killed

    monkeypatch.setitem(running._ATTACKS, "anonymise", killed)
    for attempt in range(running.MOST_TRIES):
        with pytest.raises(KeyboardInterrupt):
            running.run_next(world.hub, None)
        (left,) = world.rows(sa.select(Attack))
        assert (left.state, left.attempts) == ("running", attempt + 1)
    assert not running.run_next(world.hub, None)
    told = found(world, number)
    assert told.state == "failed"
    assert "ended several times" in told.facts["problem"]
    assert "start it again" in told.facts["problem"]


KILLED = """
import sys, time
from pathlib import Path
from cloister.hub.core.hub import Hub
from cloister.hub.core.settings import Settings
from cloister.hub.jobs.attacks import running
running._ATTACKS = {"anonymise": lambda *_: (print("running", flush=True), time.sleep(600))}
with Hub.open(Settings(folder=Path(sys.argv[1]), country="DE")) as hub:
    running.run_next(hub, None)
"""


def test_one_whose_process_is_killed_is_run_by_the_next_worker(world):
    number, pool = start(world, released(world)), world.pool()
    worker = subprocess.Popen([sys.executable, "-c", KILLED, world.hub.folder], stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout.readline() == "running\n"
        assert found(world, number).state == "running"
        assert not running.run_next(world.hub, pool)  # it is alive
    finally:
        worker.kill()
        worker.communicate()
    assert running.run_next(world.hub, pool)
    pool.close()
    assert found(world, number).state == "done"
    assert world.rows(sa.select(Attack.attempts)) == [2]


def test_one_that_a_living_worker_has_is_left_alone(world, monkeypatch):
    start(world, released(world))
    others = []
    monkeypatch.setitem(
        running._ATTACKS, "anonymise", lambda *_: others.append(running.run_next(world.hub, None)) or 1 / 0
    )
    assert running.run_next(world.hub, None)
    assert others == [False]


def test_an_unforeseen_error_is_told_without_its_words(world, monkeypatch):
    number = start(world, released(world))

    def fail(*_):
        raise RuntimeError("ZZSECRETZZ")

    monkeypatch.setitem(running._ATTACKS, "anonymise", fail)
    assert running.run_next(world.hub, None)
    told = found(world, number)
    assert told.state == "failed"
    assert "RuntimeError" in told.facts["problem"]
    assert "ZZSECRETZZ" not in told.facts["problem"]


def test_one_that_finds_nothing_to_do_says_why(world, monkeypatch):
    number = start(world, released(world))
    monkeypatch.setitem(running._ATTACKS, "anonymise", lambda *_: ([], {"stealing": "it takes no numbers."}))
    assert running.run_next(world.hub, None)
    told = found(world, number)
    assert (told.state, "stealing: it takes no numbers." in told.facts["problem"]) == ("failed", True)
    assert told.facts["problem"].endswith("Attack something else.")


def test_a_model_whose_twins_cannot_be_trained_is_asked_still(world, monkeypatch):
    job = trained(world)

    def refuse(*_):
        raise NotNow("no twin today.")

    monkeypatch.setattr(models, "_twin", refuse)
    told = found(world, attack(world, job))
    assert (told.state, told.facts["skipped"]["membership"]) == ("done", "no twin today.")
    assert told.facts["attacks"] >= 2


def test_a_limit_and_a_stop_of_the_hub_are_told_apart(world):
    number = start(world, released(world))
    assert running._claimed(world.hub, number)
    running.forgive(world.hub, number)
    (left,) = world.rows(sa.select(Attack))
    assert (left.state, left.attempts) == ("queued", 0)
    assert running._claimed(world.hub, number)
    running.give_up(world.hub, number, "it took longer than 600 seconds")
    told = found(world, number)
    assert told.state == "failed"
    assert told.facts["problem"].startswith("The attack was stopped: it took longer than 600 seconds. ")


def test_jobs_go_first_unless_they_keep_an_attack_waiting(world):
    start(world, released(world))
    pool = world.pool()
    assert not maintenance.run_attacks(world.hub, pool, 60.0)
    with world.hub.database.writing() as session:
        session.execute(sa.update(Attack).values(created=now() - 61))
    assert maintenance.run_attacks(world.hub, pool, 60.0)
    pool.close()


def test_a_paused_dataset_is_not_attacked(world):
    job = released(world)
    with world.hub.database.writing() as session:
        datasets.pause(
            world.hub, session, session.get_one(Person, world.owner.id), datasets.find(session, "visits"), True
        )
    with pytest.raises(NotNow, match="paused"):
        start(world, job)


def test_a_dataset_that_is_paused_meanwhile_is_not_read(world):
    number, pool = start(world, released(world)), world.pool()
    pool.get(world.dataset(), world.rows(sa.select(Version))[-1], world.owner)  # open from before
    with world.hub.database.writing() as session:
        owner = session.get_one(Person, world.owner.id)
        datasets.pause(world.hub, session, owner, datasets.find(session, "visits"), True)
    assert running.run_next(world.hub, pool)
    pool.close()
    assert "has paused visits" in found(world, number).facts["problem"]


def test_the_number_of_an_attack_does_not_tell_how_many_others_there_were(world):
    job, numbers = released(world), []
    for _ in range(4):
        numbers.append(start(world, job))
        store.cancel(world.hub, world.people["owner"], "visits", numbers[-1])
    assert len(set(numbers)) == 4
    assert max(numbers) - min(numbers) > 1_000  # by chance, once in 10^13
    with world.hub.database.reading() as session:
        known = store.attacks(world.hub, session, datasets.find(session, "visits"))
    assert [one.number for one in known] == numbers[::-1]  # the newest first


def test_attacks_that_are_kept_are_limited(world, monkeypatch):
    job = released(world)
    monkeypatch.setattr(store, "MOST_KEPT", 1)
    number = attack(world, job)
    with pytest.raises(NotNow, match="Remove some"):
        start(world, job)
    store.remove(world.hub, world.owner, "visits", number)
    assert start(world, job)


# A model


def trained(world, estimator="LogisticRegression", target="readmitted", spend="rho 0.02", **form):
    job = world.submit("ada", kind="train", spend=spend, estimator=estimator, target=target, **form)
    assert world.work() == ["done"]
    return job.id


def test_a_model_is_attacked_end_to_end(world):
    job = trained(world)
    head, spent = world.hub.ledger.head, (world.spent(), world.spent("ada"))
    assert [(one.job_id, one.kind, one.problem) for one in listed(world)] == [(job, "train", "")]
    number = attack(world, job)
    told = found(world, number)
    assert told.state == "done", told.facts
    assert (world.hub.ledger.head, (world.spent(), world.spent("ada"))) == (head, spent)
    findings = {one["attack"]: one for one in report(world, number)["json"]["findings"]}
    assert {"membership by LiRA", "membership by loss threshold"} <= set(findings)
    assert any(name.startswith("hidden values of") for name in findings)
    assert any(name.startswith("model stealing") for name in findings)
    member = findings["membership by LiRA"]
    assert member["claim"] == "rho 0.02"
    assert member["epsilon_lower"] <= member["epsilon_allowed"]  # it is private, and the attack does not refute that
    assert any("twins of the model" in note for note in member["notes"])
    assert "a twin of Model" in member["target"]


def people(n=600, seed=1):
    """Made-up people whose labels follow from nothing, so that only memory predicts them."""
    draw = np.random.default_rng(seed)
    rows, labels = draw.normal(size=(n, 4)), draw.integers(0, 2, n)
    return Known({}, {}, rows, labels, None)


def halves_of(known, fit, seed):
    """What trains twins of those people: each salt draws a half of its own, and `fit` gets its rows."""

    def train(salt, second):
        draw = np.random.default_rng([seed, *salt.encode()])
        within = (draw.random(len(known.labels)) < 0.5) != second
        return fit(known.rows[within], known.labels[within]), within

    return train


def asked_of_twins(known, fit, seed=1, until=1e9, claim=None):
    return membership_in_twins(
        halves_of(known, fit, seed), known, claim or epsilon("0.5"), "Model 1", np.random.default_rng(seed),
        until=until, progress=lambda *_: None,
    )  # fmt: skip


def test_twins_that_remember_their_people_are_found_out():
    """An unprotected tree, said to cost epsilon 0.5: the attack must refute that."""
    for finding in asked_of_twins(people(), DecisionTreeClassifier().fit):
        assert finding.broken
        assert finding.roc.auc > 0.7  # labels are coins: a stranger's is right by chance, too
        assert finding.figures["accuracy gap"] > 0.3


def test_twins_that_say_nothing_of_their_people_are_not_accused():
    """Models that depend on chance alone, many times: the intervals hold what they should."""
    rng, missed, refuted = np.random.default_rng(5), 0, 0

    def blind(rows, labels):
        model = LogisticRegression()
        return model.fit(rng.normal(size=rows.shape), rng.integers(0, 2, len(labels)))

    for seed in range(40):
        for finding in asked_of_twins(people(300, seed), blind, seed):
            low, high = finding.roc.auc_interval()
            missed += not low <= 0.5 <= high
            refuted += finding.broken
    assert refuted <= 2
    assert missed <= 12  # of 80 at 95 %: more has a chance of one in a thousand


def test_without_time_one_twin_is_asked_and_the_finding_says_so():
    (finding,) = asked_of_twins(people(), DecisionTreeClassifier().fit, until=0.0)
    assert finding.attack == "membership by loss threshold"
    assert finding.figures["twins"] == 1
    assert any("no time for further twins" in note for note in finding.notes)


def test_a_models_view_is_that_of_its_requester(world):
    """Cleo sees two columns and not maternity, so no one of maternity is among the members of what she trained."""
    change = [(MAY, MORE), ("roles:", BLOCK), ("may: [see schema, query, profile]\n    tables", MORE + "\n    tables")]
    world.publish(change=change[1:])
    order = gateway.JobOrder(
        "visits", "train", {"estimator": "MixedNB", "target": "ward", "features": "age", "spend": "rho 0.01"},
        "health-research", world.here,
    )  # fmt: skip
    job = gateway.submit(world.hub, world.cleo, order).id
    assert world.work() == ["done"]
    found_of = []
    number = start(world, job)
    pool = world.pool()
    with pytest.MonkeyPatch.context() as patch:
        whole = models._known

        def kept(*asked):
            found_of.append(whole(*asked))
            return found_of[0]

        patch.setattr(models, "_known", kept)
        assert running.run_next(world.hub, pool)
    pool.close()
    assert found(world, number).state == "done", found(world, number).facts
    assert set(found_of[0].columns) == {"age"}
    assert "maternity" not in set(found_of[0].labels.tolist())


def test_a_model_from_tables_that_were_replaced_is_not_attacked_with_others_rows(world):
    job = trained(world)
    world.another_version()
    told = found(world, attack(world, job))
    assert told.state == "failed"
    assert "have changed since Model" in told.facts["problem"]


def test_a_model_whose_requester_lost_their_role_is_attacked_still(world):
    """The policy of the time says what it has learned from."""
    job = trained(world)
    world.publish(change=[("University", "Nowhere")])
    assert found(world, attack(world, job)).state == "done"


def test_a_model_that_predicts_nothing_is_not_attacked(world):
    job = trained(world, "KMeans", "", features="age, stay_days", parts="3")
    assert [bool(one.problem) for one in listed(world)] == [True]
    with pytest.raises(NotNow, match="predicts nothing"):
        start(world, job)


def test_a_model_whose_result_was_removed_is_not_attacked(world):
    job = trained(world)
    gateway.forget(world.hub, world.ada, job)
    assert listed(world) == []
    with pytest.raises(NotHere):
        start(world, job)


@pytest.mark.parametrize("name", ["MixedNB", "LinearRegression", "RandomForestClassifier"])
def test_other_kinds_of_models_are_attacked(world, name):
    """One of them was evaluated: its members are the people that it was not tried on."""
    target = {"MixedNB": "ward", "LinearRegression": "cost"}.get(name, "readmitted")
    features = "age, stay_days, ward" if target == "cost" else ""
    evaluate = "0.3" if name == "MixedNB" else ""
    number = attack(world, trained(world, name, target, "rho 0.01", features=features, evaluate=evaluate))
    told = found(world, number)
    assert told.state == "done", told.facts
    assert told.facts["attacks"] >= 3
    (member, *_) = report(world, number)["json"]["findings"]
    assert (member["attack"], member["claim"]) == ("membership by LiRA", "rho 0.007" if evaluate else "rho 0.01")
    assert (member["attempts"] < 1_300) == bool(evaluate)


def test_a_restored_hub_runs_no_attack_of_its_copy(world):
    from cloister.hub.core import restored

    number = start(world, released(world))
    restored.mark(world.hub.folder, "2026-01-01")
    restored.finish_restore(world.hub)
    assert found(world, number).state == "cancelled"


# A synthetic table


def made(world, method="mst", rows="300", **form):
    job = world.submit("ada", kind="synthesise", spend="rho 0.02", method=method, rows=rows, **form)
    assert world.work() == ["done"]
    return job.id


def test_a_synthetic_table_is_attacked_end_to_end(world):
    job = made(world)
    head, spent = world.hub.ledger.head, (world.spent(), world.spent("ada"))
    assert [(one.job_id, one.kind) for one in listed(world)] == [(job, "synthesise")]
    number = attack(world, job)
    told = found(world, number)
    assert told.state == "done", told.facts
    assert (world.hub.ledger.head, (world.spent(), world.spent("ada"))) == (head, spent)
    findings = {one["attack"]: one for one in report(world, number)["json"]["findings"]}
    assert {"exact copies", "closest rows", "singling out"} <= set(findings)
    (member,) = (one for name, one in findings.items() if name.startswith("membership by"))
    assert member["claim"] == "rho 0.02"
    assert member["epsilon_lower"] <= member["epsilon_allowed"]
    assert any("attacks a twin of the table" in note for note in member["notes"])
    hidden = [one for name, one in findings.items() if name.startswith("hidden values")]
    assert hidden
    assert not any(one["interval"][0] > one["baseline"] + 0.05 for one in hidden)


COLUMNS = {
    "ward": Column("ward", "text", categories=("a", "b", "c", "d", "e")),
    "sex": Column("sex", "text", categories=("m", "f")),
    "age": Column("age", "integer", bounds=(0, 100)),
    "cost": Column("cost", "real", bounds=(0.0, 1000.0)),
}


def rows_drawn(n, seed):
    """People whose ward follows from nothing else."""
    draw = np.random.default_rng(seed)
    table = pa.table({
        "ward": draw.choice(list("abcde"), n), "sex": draw.choice(["m", "f"], n),
        "age": draw.integers(0, 101, n), "cost": draw.uniform(0, 1000, n),
    })  # fmt: skip
    return _Sides("visits", COLUMNS).read(table)


def asked_of_a_twin(members, others, made):
    found = membership_in_a_twin(
        members, others, made, epsilon("0.5"), "Table 1", np.random.default_rng(1), lambda *_: None
    )
    return {one.attack: one for one in found}


def test_a_twin_that_copies_its_people_is_found_out():
    members, others = rows_drawn(600, 1), rows_drawn(600, 2)
    findings = asked_of_a_twin(members, others, members)
    assert findings["exact copies"].success == 1.0
    assert findings["membership by closest row"].broken  # it was said to cost epsilon 0.5
    assert all(one.learned for one in findings.values())
    blind = asked_of_a_twin(members, others, rows_drawn(600, 3))
    assert not any(one.broken for one in blind.values())


def test_hidden_values_are_found_in_a_copy_and_not_in_rows_of_others():
    real, draw = rows_drawn(1_200, 1), np.random.default_rng(1)
    for made, learns in ((real, True), (rows_drawn(1_200, 2), False)):
        findings = hidden_values(real, made, COLUMNS, "Table 1", None, draw)
        assert [one.attack for one in findings] == ["hidden values of ward", "hidden values of sex"]
        assert [one.learned for one in findings] == [learns, learns]
        assert all(one.remedies for one in findings) is learns
    assert all(one.success == 1.0 for one in hidden_values(real, real, COLUMNS, "Table 1", None, draw))


def test_an_uploaded_table_is_attacked_without_a_twin(world, tmp_path):
    path = tmp_path / "visits.parquet"
    with cl.open(pa.table(hospital(400)), schema=SCHEMA, budget=rho(1), ledger=tmp_path, name="visits") as data:
        synth.independent(data, spend=rho("0.001"), rows=200).to_parquet(path)
        key = str(data.account.book.key.public)
    job = hand_in(world.hub, world.owner, "visits", path.read_bytes(), side_path(path).read_bytes(), key).id
    told = found(world, attack(world, job))
    assert told.state == "done", told.facts
    assert "made outside this hub" in told.facts["skipped"]["membership"]
    world.another_version()
    assert "have changed since Synthetic table" in found(world, attack(world, job)).facts["problem"]


def test_a_table_that_took_long_to_make_has_no_twin(world):
    job = made(world)
    with world.hub.database.writing() as session:
        session.execute(sa.update(Job).where(Job.id == job).values(started=Job.finished - 400))
    told = found(world, attack(world, job))
    assert "400 seconds, which leaves no time for a twin" in told.facts["skipped"]["membership"]


def test_a_table_through_a_view_is_compared_with_what_the_view_shows(world):
    juniors = ("may: [see schema, query, profile]\n    tables", MORE + "\n    tables")
    world.publish(change=[("roles:", BLOCK), juniors, ("columns: [ward, age]", "columns: [ward, age, readmitted]")])
    form = {"method": "independent", "rows": "200", "spend": "rho 0.01"}
    order = gateway.JobOrder("visits", "synthesise", form, "health-research", world.here)
    job = gateway.submit(world.hub, world.cleo, order).id
    assert world.work() == ["done"]
    number = attack(world, job)
    told = found(world, number)
    assert told.state == "done", told.facts
    hidden = {one["attack"] for one in report(world, number)["json"]["findings"] if "hidden" in one["attack"]}
    assert hidden == {"hidden values of ward", "hidden values of readmitted"}

"""The gateway: who may, what it would cost, who has to agree; and what a job leaves behind."""

import html
import itertools
import json
import re
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from cloister.client import wire
from cloister.hub.approvals import decision
from cloister.hub.core.database import now
from cloister.hub.core.models import AuditEntry, Dataset, Job, Request, Seen, Spent
from cloister.hub.datasets import datasets
from cloister.hub.jobs import gateway
from cloister.hub.jobs.maintenance import remove_old_results
from cloister.hub.jobs.runner import result_bytes
from cloister.hub.policy import versions
from cloister.hub.policy.conditions import Environment, Grant, Subject
from cloister.hub.policy.decide import covered_purposes, decide
from cloister.hub.policy.signature import import_check
from cloister.hub.policy.text.reader import read
from cloister.privacy.errors import BadForm, Denied, NotHere, NotNow, OverBudget, QueryRefused, UploadRefused
from cloister.privacy.loss import Loss, rho
from cloister.privacy.receipt import Receipt

AVERAGE = "SELECT AVG(age) AS a FROM visits"


def actions(world, word):
    return world.rows(sa.select(AuditEntry).where(AuditEntry.action == word))


def test_a_question_goes_from_the_gateway_to_an_answer_with_a_receipt(hospital_hub):
    job = hospital_hub.submit("ada")
    assert job.state == "queued"
    assert hospital_hub.work() == ["done"]
    job = hospital_hub.job(job.id)
    answer = wire.answer_from_json(job.result["answer"])
    assert answer.columns == ("ward", "n")
    assert len(answer) == 6
    assert {"value", "low", "high"} == set(job.result["rows"][0][1])
    receipt = Receipt.parse(job.receipt)
    receipt.verify(hospital_hub.hub.key.public)
    assert [one["account"] for one in receipt.body["accounts"]] == ["visits", f"visits@person-{hospital_hub.ada.id}"]
    assert Loss.from_json(job.loss) == rho("0.01") == hospital_hub.spent() == hospital_hub.spent("ada")
    assert job.progress == 1.0
    (spent,) = hospital_hub.rows(sa.select(Spent))
    assert Loss.from_json(spent.loss) == Loss.from_json(spent.own_total) == rho("0.01")


def test_a_result_carries_the_policys_label(hospital_hub):
    job = hospital_hub.submit("ada")
    hospital_hub.work()
    result = hospital_hub.job(job.id).result
    facts = {"country": "DE", "purpose": "health-research", "time": hospital_hub.here.time}
    found = import_check(result["label"], result_bytes(result), hospital_hub.hub.key.public, **facts)
    assert found.body["dataset"] == "visits"


def test_a_plan_costs_nothing_and_says_what_a_run_would(hospital_hub):
    planned = hospital_hub.plan("ada", AVERAGE)
    assert planned.loss == planned.own == rho("0.01")
    assert planned.errors[0][0] == "AVG(age)"
    assert planned.statements
    assert not hospital_hub.spent().amount
    assert not hospital_hub.rows(sa.select(Job))
    assert len(actions(hospital_hub, "work.planned")) == 1


def test_a_denied_request_spends_nothing_and_is_written_down(hospital_hub):
    with pytest.raises(Denied, match="purpose"):
        hospital_hub.submit("ada", purpose="marketing")
    (entry,) = actions(hospital_hub, "work.denied")
    assert entry.person_id == hospital_hub.ada.id
    assert entry.detail["purpose"] == "marketing"
    assert not hospital_hub.rows(sa.select(Job))
    assert not hospital_hub.rows(sa.select(Spent))
    assert not hospital_hub.spent().amount


def test_a_dataset_that_somebody_may_not_know_of_is_not_here(hospital_hub):
    with pytest.raises(NotHere) as hidden:
        hospital_hub.plan("stranger")
    with pytest.raises(NotHere) as missing:
        gateway.plan(
            hospital_hub.hub,
            hospital_hub.stranger,
            gateway.JobOrder("nothing", "query", {"sql": "x", "spend": "rho 1"}, "", hospital_hub.here),
        )
    assert str(hidden.value).replace("visits", "") == str(missing.value).replace("nothing", "")


def test_a_person_sees_only_what_the_policy_shows_them(hospital_hub):
    with pytest.raises(QueryRefused, match="cost"):
        hospital_hub.plan("cleo", "SELECT AVG(cost) AS c FROM visits")
    job = hospital_hub.submit("cleo", spend="rho 0.03")
    assert hospital_hub.work() == ["done"]
    rows = {row[0]["value"]: row[1] for row in hospital_hub.job(job.id).result["rows"]}
    assert rows["maternity"]["value"] < 250  # nobody: its standard error is 33
    assert rows["emergency"]["value"] > 400


def test_views_do_not_share_answers_with_those_who_see_more(hospital_hub):
    hospital_hub.submit("ada", spend="rho 0.03")
    assert hospital_hub.work() == ["done"]
    assert hospital_hub.plan("cleo").loss == rho("0.01")  # of other rows: nothing in the record answers it


def test_an_answer_from_the_record_debits_the_other_reader_alone(hospital_hub):
    hospital_hub.submit("ada")
    hospital_hub.work()
    planned = hospital_hub.plan("ben")
    assert not planned.loss.amount
    assert planned.own == rho("0.01")
    second = hospital_hub.submit("ben")
    assert hospital_hub.work() == ["done"]
    assert hospital_hub.spent() == rho("0.01")
    assert hospital_hub.spent("ben") == rho("0.01")
    assert not Loss.from_json(hospital_hub.job(second.id).loss).amount
    assert hospital_hub.job(second.id).receipt is None
    third = hospital_hub.submit("ben")
    assert hospital_hub.work() == ["done"]
    assert hospital_hub.spent("ben") == rho("0.01")  # received already
    assert hospital_hub.job(third.id).result["rows"] == hospital_hub.job(second.id).result["rows"]
    assert {one.person_id for one in hospital_hub.rows(sa.select(Seen))} == {hospital_hub.ada.id, hospital_hub.ben.id}


def test_one_request_may_not_cost_more_than_the_policy_says(hospital_hub):
    with pytest.raises(Denied, match="one request may cost"):
        hospital_hub.submit("ada", spend="rho 0.06")
    assert not hospital_hub.rows(sa.select(Job))


def test_a_persons_limit_counts_all_their_requests(hospital_hub):
    for spend in ("rho 0.03", "rho 0.03", "rho 0.03"):
        hospital_hub.submit("ada", f"{AVERAGE} WHERE age > {spend[-2:]}{hospital_hub.here.time % 1:.6f}", spend)
        assert hospital_hub.work() == ["done"]
    with pytest.raises(OverBudget, match=r"your limit on this dataset is rho 0\.1: .* 0\.01 is left, 0\.01 short"):
        hospital_hub.submit("ada", AVERAGE, "rho 0.02")
    hospital_hub.submit("ben", AVERAGE, "rho 0.02")  # has their own
    assert hospital_hub.work() == ["done"]


def test_a_limit_holds_for_jobs_that_were_queued_together(hospital_hub):
    jobs = [hospital_hub.submit("ada", f"{AVERAGE} WHERE age > {age}", "rho 0.03") for age in range(20, 26)]
    assert sorted(hospital_hub.work()) == ["done"] * 3 + ["refused"] * 3
    assert hospital_hub.spent("ada") == rho("0.09")
    refused = [one for one in map(hospital_hub.job, [job.id for job in jobs]) if one.state == "refused"]
    assert all("your limit" in one.problem and one.loss is None for one in refused)


def test_a_period_limits_the_rate_of_everybody_together(hospital_hub):
    hospital_hub.publish(change=[("per_request: {rho: 0.05}", "period: {days: 30, rho: 0.05}")])
    hospital_hub.submit("ada", AVERAGE, "rho 0.03")
    hospital_hub.submit("ben", COUNT_OLD, "rho 0.03")
    assert sorted(hospital_hub.work()) == ["done", "refused"]
    with hospital_hub.hub.database.writing() as session:
        session.execute(sa.update(Spent).values(time=Spent.time - 31 * 86400))
    hospital_hub.submit("ben", COUNT_OLD, "rho 0.03")
    assert hospital_hub.work() == ["done"]


COUNT_OLD = "SELECT COUNT(*) AS n FROM visits WHERE age > 80"


def test_what_the_ledger_refuses_is_given_back(hospital_hub):
    account = hospital_hub.hub.ledger.account("visits")
    job = hospital_hub.submit("ada")
    account.reserve(account.left, "something else")
    assert hospital_hub.work() == ["refused"]
    assert "CLO-204" in hospital_hub.job(job.id).problem
    assert not hospital_hub.rows(sa.select(Spent))
    assert not hospital_hub.spent("ada").amount
    with pytest.raises(OverBudget):
        hospital_hub.submit("ben")


def test_a_costly_release_waits_until_a_reviewer_agrees(hospital_hub):
    job = hospital_hub.submit("ada", spend="rho 0.04")
    assert job.state == "waiting"
    assert hospital_hub.work() == []
    (request,) = hospital_hub.rows(sa.select(Request))
    with hospital_hub.hub.database.writing() as session:
        decision.decide(hospital_hub.hub, session, hospital_hub.reviewer, request, True, "fine")
    assert hospital_hub.work() == ["done"]
    assert hospital_hub.spent() == rho("0.04")


def test_plan_and_run_count_what_waits_and_say_so(hospital_hub):
    first = hospital_hub.submit("ada", spend="rho 0.04").id
    second = hospital_hub.submit("ada", "SELECT AVG(age) AS n FROM visits", spend="rho 0.04").id
    third = "SELECT SUM(cost) AS n FROM visits"
    planned = hospital_hub.plan("ada", third, spend="rho 0.035")
    with pytest.raises(OverBudget) as caught:
        hospital_hub.submit("ada", third, spend="rho 0.035")
    assert planned.blocked == gateway.sentence_of(caught.value)
    assert planned.blocked == (
        "your limit on this dataset is rho 0.1: this needs rho 0.035, 0.1 is left, of which 0.08 is held while your "
        f"jobs {first}, {second} wait for somebody to agree, 0.015 short. Lower the spend, cancel what waits, or ask "
        "the owner."
    )
    told = wire.plan_from_json(planned.to_json())
    assert told.blocked == planned.blocked
    assert str(told).startswith("This cannot run now: your limit")


def test_a_release_that_needed_an_agreement_needs_one_for_the_next_reader_too(hospital_hub):
    hospital_hub.submit("ada", spend="rho 0.04")
    (request,) = hospital_hub.rows(sa.select(Request))
    with hospital_hub.hub.database.writing() as session:
        decision.decide(hospital_hub.hub, session, hospital_hub.reviewer, request, True, "fine")
    assert hospital_hub.work() == ["done"]
    assert hospital_hub.submit("ben", spend="rho 0.0001").state == "waiting"
    assert hospital_hub.rows(sa.select(Job).where(Job.state == "queued")) == []


def test_a_job_that_would_read_something_else_than_people_agreed_to_is_refused(hospital_hub):
    job = hospital_hub.submit("cleo", "SELECT COUNT(*) AS n FROM visits", spend="rho 0.04")
    (request,) = hospital_hub.rows(sa.select(Request))
    hospital_hub.publish(change=[("ward <> 'maternity'", "age >= 0")])  # the reviewer has read the plan of the old one
    with hospital_hub.hub.database.writing() as session:
        decision.decide(hospital_hub.hub, session, hospital_hub.reviewer, request, True, "fine")
    assert hospital_hub.work() == ["refused"]
    assert "have changed since this was planned" in hospital_hub.job(job.id).problem
    assert not hospital_hub.spent().amount


def test_a_job_runs_after_a_change_of_the_policy_that_shows_the_same(hospital_hub):
    job = hospital_hub.submit("cleo", "SELECT COUNT(*) AS n FROM visits")
    hospital_hub.publish(change=[("per_user: {rho: 0.1}", "per_user: {rho: 0.2}")])
    assert hospital_hub.work() == ["done"]
    assert hospital_hub.job(job.id).policy_number == 2


def test_the_label_states_the_terms_of_the_policy_under_which_the_charge_was_made(hospital_hub):
    job = hospital_hub.submit("cleo", "SELECT COUNT(*) AS n FROM visits")

    def publish(step):
        if step == "opened":
            hospital_hub.publish(change=[("joins: any", "joins: any\nretention: {days: 1}")])

    assert hospital_hub.work(step=publish) == ["done"]
    done = hospital_hub.job(job.id)
    assert done.policy_number == 2
    terms = json.loads(done.result["label"])["label"]
    assert terms["policy"] == 2
    assert terms["keep_until"] is not None


def test_the_audit_log_quotes_no_sentence_that_names_tables_or_columns(hospital_hub):
    hospital_hub.submit("cleo", "SELECT AVG(age) AS a FROM visits")
    hospital_hub.publish(change=[("columns: [ward, age]", "columns: [ward]")])
    assert hospital_hub.work() == ["refused"]
    for entry in hospital_hub.rows(sa.select(AuditEntry).where(AuditEntry.action.like("job.%"))):
        told = str(entry.detail)
        assert "reasons" not in entry.detail
        assert "age" not in told.replace("message", "")
        assert "it sees" not in told
    (ended,) = actions(hospital_hub, "job.refused")
    assert ended.detail["problem"].startswith("CLO-")
    assert len(ended.detail["problem"]) == 7


def test_what_is_left_is_told_only_to_those_who_may_know_of_the_dataset(hospital_hub):
    from cloister.hub.accounting import statements

    hospital_hub.submit("ada")
    hospital_hub.work()
    with hospital_hub.hub.database.reading() as session:
        (mine,) = statements.for_user(hospital_hub.hub, session, hospital_hub.ada, hospital_hub.here)
    assert mine.left == hospital_hub.hub.ledger.account("visits").left
    hospital_hub.publish(change=[("organisations: [University]", "organisations: [Elsewhere]")])
    with hospital_hub.hub.database.reading() as session:
        (mine,) = statements.for_user(hospital_hub.hub, session, hospital_hub.ada, hospital_hub.here)
    assert mine.left is None
    assert mine.spent == rho("0.01")


def test_a_limit_remembers_what_only_the_ledger_knows(hospital_hub):
    hospital_hub.submit("ada", spend="rho 0.03")
    hospital_hub.work()
    with hospital_hub.hub.database.writing() as session:  # as after a restore of an older database
        session.execute(sa.delete(Spent))
    hospital_hub.submit("ada", "SELECT COUNT(*) AS n FROM visits WHERE age > 1", spend="rho 0.03")
    hospital_hub.submit("ada", "SELECT COUNT(*) AS n FROM visits WHERE age > 2", spend="rho 0.03")
    assert hospital_hub.work() == ["done", "done"]
    with pytest.raises(OverBudget, match="your limit"):
        hospital_hub.submit("ada", "SELECT COUNT(*) AS n FROM visits WHERE age > 3", spend="rho 0.03")


def test_a_policy_that_asks_for_an_agreement_by_now_stops_a_queued_job(hospital_hub):
    job = hospital_hub.submit("ada")
    hospital_hub.publish(change=[("above: {rho: 0.03}", "above: {rho: 0.001}")])
    assert hospital_hub.work() == ["refused"]
    assert "asks 1 people to agree" in hospital_hub.job(job.id).problem
    assert not hospital_hub.spent().amount


def test_a_policy_that_says_no_by_now_stops_a_queued_job(hospital_hub):
    job = hospital_hub.submit("ada")
    hospital_hub.publish(change=[("organisations: [University]", "organisations: [Academy]")])
    assert hospital_hub.work() == ["refused"]
    assert "CLO-502" in hospital_hub.job(job.id).problem
    assert not hospital_hub.spent().amount


def test_a_policy_changed_between_opening_and_charging_is_noticed(hospital_hub):
    job = hospital_hub.submit("cleo")

    def narrower(step):
        if step == "opened":
            hospital_hub.publish(change=[("ward <> 'maternity'", "ward = 'surgery'")])

    assert hospital_hub.work(step=narrower) == ["refused"]
    assert "the policy was changed" in hospital_hub.job(job.id).problem
    assert not hospital_hub.spent().amount


def test_a_job_is_not_charged_for_tables_of_which_a_newer_version_is_ready(hospital_hub):
    job = hospital_hub.submit("ada")

    def another(step):
        if step == "opened":
            hospital_hub.another_version()

    assert hospital_hub.work(step=another) == ["refused"]
    problem = hospital_hub.job(job.id).problem
    assert "a newer version of the tables of visits became ready" in problem
    assert "Nothing was spent. Plan it again." in problem
    assert not hospital_hub.spent().amount
    assert hospital_hub.rows(sa.select(Spent)) == []


@pytest.mark.parametrize("change", ["version", "policy", "pause"])
def test_what_stops_a_charge_stops_an_answer_that_costs_nothing_too(hospital_hub, change):
    hospital_hub.submit("ada")
    hospital_hub.work()
    job = hospital_hub.submit("ada")  # on record, so it is free

    def changed(step):
        if step != "released":
            return
        if change == "version":
            hospital_hub.another_version()
        elif change == "policy":
            hospital_hub.publish(change=[("organisations: [University]", "organisations: [Academy]")])
        else:
            with hospital_hub.hub.database.writing() as session:
                datasets.pause(hospital_hub.hub, session, hospital_hub.owner, datasets.find(session, "visits"), True)

    assert hospital_hub.work(step=changed) == ["refused"]
    refused = hospital_hub.job(job.id)
    assert not refused.result
    assert refused.problem
    assert hospital_hub.spent() == rho("0.01")


def test_the_terms_of_an_answer_that_costs_nothing_are_those_of_the_policy_when_it_is_written(hospital_hub):
    hospital_hub.submit("ada")
    hospital_hub.work()
    job = hospital_hub.submit("ada")

    def publish(step):
        if step == "released":
            hospital_hub.publish(change=[("joins: any", "joins: any\nretention: {days: 1}")])

    assert hospital_hub.work(step=publish) == ["done"]
    done = hospital_hub.job(job.id)
    assert done.policy_number == json.loads(done.result["label"])["label"]["policy"] == 2


def test_a_paused_dataset_runs_nothing(hospital_hub):
    job = hospital_hub.submit("ada")
    with hospital_hub.hub.database.writing() as session:
        datasets.pause(hospital_hub.hub, session, hospital_hub.owner, datasets.find(session, "visits"), True)
    assert hospital_hub.work() == ["refused"]
    assert "paused" in hospital_hub.job(job.id).problem
    with pytest.raises(NotNow, match="paused"):
        hospital_hub.submit("ada")
    assert not hospital_hub.spent().amount


def test_a_run_never_costs_more_than_was_planned(hospital_hub):
    hospital_hub.submit("ada")
    hospital_hub.work()
    job = hospital_hub.submit("ada")  # free: it is in the record
    for record in (hospital_hub.hub.folder / "records").iterdir():
        record.unlink()
    gateway.twins(hospital_hub.hub).close()
    assert hospital_hub.work() == ["refused"]
    assert "was planned at" in hospital_hub.job(job.id).problem
    assert hospital_hub.spent() == rho("0.01")


def test_a_job_is_cancelled_before_its_charge_and_not_after(hospital_hub):
    first, second, third = (hospital_hub.submit("ada", f"{AVERAGE} WHERE age > {age}") for age in (20, 21, 22))
    gateway.cancel(hospital_hub.hub, hospital_hub.ada, first.id)
    said = {}

    def cancelling(step):
        at_work = sa.select(Job.id).where(Job.state.in_(("running", "charged")))
        number = max(hospital_hub.rows(at_work), default=0)
        if (number, step) in ((second.id, "running"), (third.id, "charged")):
            try:
                gateway.cancel(hospital_hub.hub, hospital_hub.ada, number)
            except NotNow as error:
                said[number] = str(error)

    assert hospital_hub.work(step=cancelling) == ["cancelled", "done"]
    assert [hospital_hub.job(one.id).state for one in (first, second, third)] == ["cancelled", "cancelled", "done"]
    assert "The charge stands" in said[third.id]
    assert second.id not in said
    assert hospital_hub.spent() == rho("0.01")
    with pytest.raises(NotNow, match="has ended"):
        gateway.cancel(hospital_hub.hub, hospital_hub.ada, first.id)
    with pytest.raises(NotHere):
        gateway.cancel(hospital_hub.hub, hospital_hub.ben, third.id)


def test_the_owner_sees_that_a_job_ran_but_not_its_result(hospital_hub):
    job = hospital_hub.submit("ada")
    hospital_hub.work()
    with hospital_hub.hub.database.reading() as session:
        assert gateway.find_job(session, hospital_hub.owner, job.id).result is None
        with pytest.raises(NotHere):
            gateway.find_job(session, hospital_hub.ben, job.id)
    assert hospital_hub.job(job.id).result is not None


def test_a_verdict_is_explained_and_written_down(hospital_hub):
    verdict = gateway.explain(
        hospital_hub.hub, hospital_hub.ada, "visits", "query", "health-research", hospital_hub.here
    )
    assert verdict.allowed
    assert verdict.rule == "researchers"
    assert len(actions(hospital_hub, "policy.explained")) == 1


MAY = "    may: [see schema, query, profile]"
ONE_THING = [(f"{who}\n{MAY}", f"{who}\n    may: [{operation}]") for who, operation in (
    ("who: {organisations: [University]}", "query"), ("who: {people: [cleo@college.example]}", "see schema"),
)]  # fmt: skip
ROUTES = [
    ("ada", "/api/datasets/visits/schema"), ("ada", "/api/datasets/visits/mock/visits"),
    ("ada", "/datasets/visits/schema"), ("ada", "/datasets/visits/mock/visits"), ("ada", "/work/query/visits"),
    ("cleo", "/api/datasets/visits/schema"), ("cleo", "/api/datasets/visits/mock/visits"),
    ("cleo", "/datasets/visits/schema"), ("cleo", "/datasets/visits/mock/visits"), ("cleo", "/work/query/visits"),
    ("cleo", "/work/train/visits"), ("cleo", "/api/datasets/visits/tables"), ("cleo", "/datasets/visits/tables"),
]  # fmt: skip


@pytest.mark.parametrize(("who", "path"), ROUTES)
def test_every_decision_is_written_down_and_why_shows_that_decision(hospital_hub, visits_of, who, path):
    hospital_hub.publish(change=ONE_THING)
    visit = visits_of(hospital_hub)(who)
    before = len(hospital_hub.rows(sa.select(AuditEntry)))
    answer = (visit.api if path.startswith("/api") else visit.web).get(path)
    entries = hospital_hub.rows(sa.select(AuditEntry).order_by(AuditEntry.number))[before:]
    decisions = [entry for entry in entries if "allowed" in entry.detail]
    assert len(decisions) == 1
    decided = decisions[0]
    assert (decided.person_id, decided.object) == (hospital_hub.people[who].id, "dataset/visits")
    assert decided.detail["allowed"] is (answer.status_code == 200)
    assert decided.detail["policy"] == 2
    assert "ward" not in json.dumps({**decided.detail, "sealed": None})
    if answer.status_code == 200:
        return
    assert answer.status_code == 403
    assert decided.action == "work.denied"
    if not path.startswith("/api"):
        link = html.unescape(re.search(r'href="([^"]*/why[^"]*)"', answer.text)[1])
        assert link == f"/datasets/visits/why?decision={decided.number}"
    why = visit.web.get(f"/datasets/visits/why?decision={decided.number}")
    assert why.status_code == 200
    assert decided.detail["operation"] in why.text


def test_no_module_of_the_web_refuses_without_writing_it_down():
    """`Verdict.require` is called by `policy.decision_log`, and by workers, whose jobs end with an entry."""
    root = Path(gateway.__file__).parents[1]
    callers = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(r"\w*verdict\w*\.require\(\)|Verdict\.require\b", path.read_text(encoding="utf-8"))
    }
    assert callers == {"policy/decision_log.py", "jobs/authorise.py"}


amounts = st.sampled_from(["0.001", "0.004", "0.01", "0.02", "0.05", "0.1", "0.3"])
spends = st.builds("rho {}".format, amounts) | st.sampled_from(
    ["epsilon 0.2", "epsilon 3", "rho 5", "rho 0.01, delta 1e-8"]
)


@st.composite
def budgets(draw):
    limit = st.builds("{{rho: {}}}".format, amounts)
    lines = ["lifetime: {epsilon: 4, delta: 1e-6}"]  # the account's, which no policy changes
    lines += [f"{word}: {draw(limit)}" for word in ("per_user", "per_request") if draw(st.booleans())]
    if draw(st.booleans()):
        lines.append(f"period: {{days: {draw(st.sampled_from([1, 30]))}, rho: {draw(amounts)}}}")
    if draw(st.booleans()):
        lines.append(f"approvals: [{{above: {draw(limit)}, needs: 1}}]")
    return "".join(f"\n  {line}" for line in lines)


@given(
    budgets(),
    spends,
    st.sampled_from(["ada", "ben", "cleo"]),
    st.sampled_from(["health-research", "health-research", "epidemiology", "marketing"]),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_why_says_what_the_request_was_told_whatever_the_policy_and_the_amount(world, budget, spend, who, purpose):
    sql = f"SELECT COUNT(*) AS n FROM visits WHERE age > {next(AGES)}"  # nobody has paid for it yet
    world.publish(change=[(BUDGET, "\n  lifetime: {epsilon: 4, delta: 1e-6}")])
    # What it costs, which is not always what was offered: a delta that a question does not use is not paid.
    price = wire.loss_to_text(world.plan(who, sql, spend).own)
    world.publish(change=[(BUDGET, budget)])
    asked = world.hub, world.people[who], "visits"
    now_told = gateway.explain(*asked, "query", purpose, world.here, price)
    try:
        job, refusal = world.submit(who, sql, spend, purpose=purpose), None
    except (Denied, OverBudget) as error:
        job, refusal = None, error
    assert now_told.allowed is (refusal is None)
    if refusal is None:
        waiting = world.rows(sa.select(Job.id).where(Job.state == "waiting"))
        if job.id not in waiting or len(waiting) > 6:  # some wait on: together they pass a person's limit, too
            gateway.cancel(world.hub, world.people[who], job.id)
        return
    told, entry = gateway.recall(*asked, refusal.decision, world.here)
    assert (told.allowed, told.rule) == (False, now_told.rule)
    if entry.detail["cost"] is not None:  # a purpose is refused before there is a cost
        assert told.reasons[0] == now_told.reasons[0]  # what decided; the others may name the tables
    assert entry.detail["rule"] == told.rule
    event(told.rule)
    # The same question planned: its note, and the decision behind its "Why?", say the same.
    if isinstance(refusal, OverBudget):
        planned = world.plan(who, sql, spend, purpose=purpose)
        assert planned.blocked == str(refusal).removeprefix("CLO-204: ")
        assert gateway.recall(*asked, planned.decision, world.here)[0] == told


AGES = itertools.cycle(range(110))
BUDGET = """
  lifetime: {epsilon: 4, delta: 1e-6}
  per_user: {rho: 0.1}
  per_request: {rho: 0.05}
  approvals: [{above: {rho: 0.03}, needs: 1}]"""


@pytest.fixture
def world(hospital_hub):
    """Ada and Ben have spent something, so that every limit has a past."""
    for who, age in (("ada", 40), ("ben", 50)):
        hospital_hub.submit(who, f"{AVERAGE} WHERE age < {age}", "rho 0.012")
    assert hospital_hub.work() == ["done", "done"]
    return hospital_hub


NO_QUERIES = ("[see schema, query, profile]", "[see schema, profile]")
LESS_EACH = ("per_request: {rho: 0.05}", "per_request: {rho: 0.005}")
LESS_IN_ALL = ("per_user: {rho: 0.1}", "per_user: {rho: 0.005}")


def late(world, moment, change):
    """Submit a job of Ada's, and publish another policy before its claim or right before its charge; the job."""
    job, reached = world.submit("ada"), {"claim": "running", "charge": "opened"}[moment]
    assert world.work(step=lambda word: world.publish(change=[change]) if word == reached else None) == ["refused"]
    return world.job(job.id)


@pytest.mark.parametrize("moment", ["claim", "charge"])
@pytest.mark.parametrize(
    ("change", "rule"), [(NO_QUERIES, "default"), (LESS_EACH, "per_request"), (LESS_IN_ALL, "per_user")]
)
def test_a_decision_at_the_claim_or_the_charge_is_written_down_and_why_shows_it(
    hospital_hub, visits_of, moment, change, rule
):
    job = late(hospital_hub, moment, change)
    (entry,) = actions(hospital_hub, "job.denied")
    assert (entry.object, entry.person_id) == ("dataset/visits", hospital_hub.ada.id)
    facts = {name: entry.detail[name] for name in ("job", "rule", "policy", "allowed", "cost")}
    assert facts == {"job": job.id, "rule": rule, "policy": 2, "allowed": False, "cost": "rho 0.01"}
    (ended,) = actions(hospital_hub, "job.refused")
    assert (ended.detail["decision"], ended.detail["policy"]) == (entry.number, 2)
    assert job.policy_number == 2
    verdict, _ = gateway.recall(hospital_hub.hub, hospital_hub.ada, "visits", entry.number, hospital_hub.here)
    assert (verdict.allowed, verdict.rule, verdict.policy_number) == (False, rule, 2)
    assert verdict.reasons
    why = f"/datasets/visits/why?decision={entry.number}"
    page = visits_of(hospital_hub)("ada").get(f"/jobs/{job.id}")
    assert page.text.count(f'href="{why}"') == 2
    assert "version 2" in page.text
    assert visits_of(hospital_hub)("ada").get(why).status_code == 200
    seen = visits_of(hospital_hub)("owner").get(f"/jobs/{job.id}")
    assert seen.status_code == 200
    assert why not in seen.text  # the sentences are for the person who asked


def test_a_refused_job_whose_dataset_is_not_here_any_more_links_no_page(hospital_hub, visits_of):
    job = late(hospital_hub, "charge", ("organisations: [University]", "organisations: [Academy]"))
    (entry,) = actions(hospital_hub, "job.denied")
    page = visits_of(hospital_hub)("ada").get(f"/jobs/{job.id}")
    assert page.status_code == 200
    assert f"decision={entry.number}" not in page.text


def test_the_audit_log_says_by_which_policy_and_role_a_job_was_charged(hospital_hub):
    hospital_hub.submit("ada")
    hospital_hub.work(step=lambda word: hospital_hub.publish() if word == "opened" else None)
    (entry,) = actions(hospital_hub, "job.done")
    assert (entry.detail["policy"], entry.detail["rule"]) == (2, "researchers")


def test_a_decision_is_recalled_as_it_was_made(hospital_hub):
    with pytest.raises(Denied, match="per_request") as refused:
        hospital_hub.submit("ada", spend="rho 0.06")
    number = refused.value.decision
    hospital_hub.publish(change=[("per_request: {rho: 0.05}", "per_request: {rho: 0.09}")])
    hub, here = hospital_hub.hub, hospital_hub.here
    verdict, entry = gateway.recall(hub, hospital_hub.ada, "visits", number, here)
    assert (verdict.allowed, verdict.rule, verdict.policy_number) == (False, "per_request", 1)
    assert "one request may cost rho 0.05 here, this one needs rho 0.06" in verdict.reasons[0]
    assert entry.detail["cost"] == "rho 0.06"
    assert gateway.explain(hub, hospital_hub.ada, "visits", "query", "health-research", here, "rho 0.06").allowed
    for who, name, wanted in (("ben", "visits", number), ("ada", "visits", number + 1), ("ada", "wages", number)):
        with pytest.raises(NotHere):
            gateway.recall(hub, hospital_hub.people[who], name, wanted, here)


def test_what_a_limit_refuses_is_written_down(hospital_hub):
    hospital_hub.publish(change=[("per_user: {rho: 0.1}", "per_user: {rho: 0.02}")])
    with pytest.raises(OverBudget, match="your limit") as refused:
        hospital_hub.submit("ada", spend="rho 0.025")
    (entry,) = actions(hospital_hub, "work.denied")
    assert entry.number == refused.value.decision
    assert (entry.detail["rule"], entry.detail["cost"]) == ("per_user", "rho 0.025")


def test_a_profile_is_the_same_way_for_another_kind_of_work(hospital_hub):
    planned = hospital_hub.plan("ada", kind="profile", spend="rho 0.02")
    job = hospital_hub.submit("ada", kind="profile", spend="rho 0.02")
    assert hospital_hub.work() == ["done"]
    result = hospital_hub.job(job.id).result
    assert planned.loss == rho("0.02") == hospital_hub.spent() == hospital_hub.spent("ada")
    assert [one["name"] for one in result["columns"]] == [
        "ward", "age", "stay_days", "cost", "admitted", "readmitted",
    ]  # fmt: skip
    assert result["rows"]["low"] < 2_400 < result["rows"]["high"] + 1_000
    Receipt.parse(hospital_hub.job(job.id).receipt).verify(hospital_hub.hub.key.public)
    job = hospital_hub.submit("cleo", kind="profile", spend="rho 0.02")
    assert hospital_hub.work() == ["done"]
    assert [one["name"] for one in hospital_hub.job(job.id).result["columns"]] == ["ward", "age"]


def test_an_unknown_kind_or_a_bad_form_is_refused(hospital_hub):
    with pytest.raises(NotHere, match="no kind of work"):
        hospital_hub.submit("ada", kind="magic")
    with pytest.raises(BadForm, match="Question"):
        hospital_hub.submit("ada", "")
    with pytest.raises(BadForm, match="Bins"):
        hospital_hub.submit("ada", kind="profile", bins="many")


def test_a_label_allows_the_purposes_of_the_role_that_allowed_it(hospital_hub):
    with hospital_hub.hub.database.writing() as session:
        dataset = session.scalars(sa.select(Dataset).where(Dataset.name == "visits")).one()
        text = versions.newest(session, dataset).text
        text = text.replace("purposes: [health-research]", "purposes: [health-research, quality-assurance]")
        text = text.replace(
            "  researchers:\n    who: {organisations: [University]}\n",
            "  researchers:\n    who: {organisations: [University]}\n    purposes: [health-research]\n",
        )
        versions.publish(hospital_hub.hub, session, hospital_hub.owner, dataset, text)
    job = hospital_hub.submit("ada")
    assert hospital_hub.work() == ["done"]
    with hospital_hub.hub.database.reading() as session:
        result = gateway.find_job(session, hospital_hub.ada, job.id).result
    assert json.loads(result["label"])["label"]["purposes"] == ["health-research"]
    facts = {"country": "DE", "time": now()}
    import_check(result["label"], result_bytes(result), hospital_hub.hub.key.public, purpose="health-research", **facts)
    with pytest.raises(UploadRefused, match="not for 'quality-assurance'"):
        import_check(
            result["label"], result_bytes(result), hospital_hub.hub.key.public, purpose="quality-assurance", **facts
        )


@pytest.mark.parametrize(
    ("grants", "covered"),
    [
        ([Grant("g", "epidemiology")], ("epidemiology",)),
        ([Grant("g", "")], ("health-research",)),
        ([Grant("g", "marketing"), Grant("g", "epidemiology")], ("epidemiology",)),
    ],
)
def test_a_role_given_on_request_covers_the_granted_purposes(grants, covered):
    text = (
        "dataset: d\npurposes: [health-research, quality-assurance]\nbudget: {lifetime: {rho: 1}}\nroles:\n"
        "  g: {who: {roles: [data user]}, may: [query], by_request: true, purposes: [health-research]}\n"
    )
    policy = read(text)
    subject = Subject("a@b.org", roles=("data user",), granted=tuple(grants))
    verdict = decide(policy, 1, subject, "query", "epidemiology", Environment(now(), "DE", "127.0.0.1"))
    assert verdict.allowed, verdict.reasons
    assert covered_purposes(policy, verdict, subject) == covered


def test_removing_a_result_leaves_those_of_jobs_that_repeat_it(hospital_hub):
    numbers = []
    for _ in range(5):
        numbers.append(hospital_hub.submit("ada").id)
        assert hospital_hub.work() == ["done"]

    def kept():
        with hospital_hub.hub.database.reading() as session:
            return {one: gateway.find_job(session, hospital_hub.ada, one).result for one in numbers}

    before = kept()
    assert all(before.values())
    for gone in (1, 2):  # the second is the first from the record; the third was pointing to it
        gateway.forget(hospital_hub.hub, hospital_hub.ada, numbers[gone])
        after = kept()
        assert [one for one in numbers if after[one] is None] == numbers[1 : gone + 1]
        assert all(after[one] == before[one] for one in numbers if after[one] is not None)
    sizes = hospital_hub.rows(sa.select(Job.size).where(Job.id == numbers[3]))
    assert sizes[0] > 0


def test_a_result_that_is_removed_while_a_job_that_repeats_it_ends_is_kept_for_that_job(hospital_hub):
    numbers = []
    for _ in range(2):
        numbers.append(hospital_hub.submit("ada").id)
        assert hospital_hub.work() == ["done"]
    last = hospital_hub.submit("ada").id

    def forget(step):
        if step == "released":  # after the job has run, and before it writes
            gateway.forget(hospital_hub.hub, hospital_hub.ada, numbers[1])

    assert hospital_hub.work(step=forget) == ["done"]
    with hospital_hub.hub.database.reading() as session:
        assert gateway.find_job(session, hospital_hub.ada, last).result["answer"]


def test_retention_ends_for_each_job_by_itself(hospital_hub):
    numbers = []
    for _ in range(4):
        numbers.append(hospital_hub.submit("ada").id)
        assert hospital_hub.work() == ["done"]
    with hospital_hub.hub.database.writing() as session:
        dataset = session.scalars(sa.select(Dataset).where(Dataset.name == "visits")).one()
        text = versions.newest(session, dataset).text + "retention: {days: 30}\n"
        versions.publish(hospital_hub.hub, session, hospital_hub.owner, dataset, text)
        session.execute(sa.update(Job).where(Job.id.in_(numbers[:3])).values(finished=now() - 31 * 86400))
    assert remove_old_results(hospital_hub.hub) == 3
    with hospital_hub.hub.database.reading() as session:
        found = [gateway.find_job(session, hospital_hub.ada, one).result for one in numbers]
    assert found[:3] == [None] * 3
    assert found[3]["rows"]

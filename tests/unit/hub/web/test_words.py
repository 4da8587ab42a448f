"""What pages say about a refusal: the next step of somebody at a page, and nothing that is not so."""

import pytest
from fastapi.testclient import TestClient

from cloister.hub.jobs.job_types import kind_of
from cloister.hub.policy.decide import Verdict
from cloister.hub.surveys import sentences
from cloister.hub.users import sessions
from cloister.hub.web.app import create_app
from cloister.hub.web.problems import way_out
from cloister.privacy import errors


class Somebody:
    """A browser of one person."""

    def __init__(self, world, who):
        with world.hub.database.writing() as session:
            secret, kept = sessions.begin(session, world.hub.settings, world.people[who], True)
        self.csrf = kept.csrf
        self.client = TestClient(create_app(world.hub), follow_redirects=False, headers={"accept": "text/html"})
        self.client.cookies.set("cloister-session", secret)

    def plan(self, kind="query", **form):
        asked = {"purpose": "health-research", "action": "plan", "csrf": self.csrf, **form}
        return self.client.post(f"/work/{kind}/visits", data=asked).text


@pytest.fixture
def ada(hospital_hub):
    return Somebody(hospital_hub, "ada")


@pytest.mark.parametrize("spend", ["abc", "0.01", "rho('0.01')"])
def test_a_bad_spend_says_what_to_write_in_the_field(ada, spend):
    said = ada.plan(sql="SELECT COUNT(*) FROM visits", spend=spend)
    assert "Write a loss in words: rho 0.01" in said
    assert "epsilon(1" not in said


def test_a_mistyped_column_does_not_send_a_user_to_the_command_line(ada):
    said = ada.plan("profile", table="visits", columns="agee", spend="rho 0.01", bins="10")
    assert "schema check" not in said


def test_a_spend_above_a_limit_is_to_be_lowered(ada):
    said = ada.plan(sql="SELECT COUNT(*) FROM visits", spend="rho 0.06")
    assert "Lower the spend if a limit says no" in said
    assert "policy 1. the policy" not in said
    assert "policy 1. The policy" in said or "policy 1. Limit" in said


def test_reasons_are_sentences():
    verdict = Verdict(False, "default", 1, ("role a does not fit: x", "role b does not fit: y"), {}, 0, (), "query", "")
    with pytest.raises(errors.Denied, match=r"Query is denied: .* allows it\. Role a does not fit: x\. Role b"):
        verdict.require()


@pytest.mark.parametrize("kind", [errors.BadLoss, errors.BadNumber, errors.BadSchema, errors.QueryRefused])
def test_no_page_speaks_of_python_or_of_files_of_the_source(kind):
    said = way_out(kind("x"))
    assert said
    assert not any(word in said for word in ("docs/", "`", "(", "Fraction"))


@pytest.mark.parametrize(("given", "read"), [("20%", "0.2"), ("2.5 %", "0.025"), ("0.2", "0.2")])
def test_shares_may_be_percents(given, read):
    train = {"estimator": "LogisticRegression", "table": "t", "target": "a", "spend": "rho 0.1", "evaluate": given}
    assert kind_of("train").parse(train)["evaluate"] == read
    assert kind_of("synthesise").parse({"table": "t", "spend": "rho 0.1", "score": given})["score"] == read
    assert kind_of("query").parse({"sql": "x", "spend": "rho 1", "confidence": given})["confidence"] == read


def test_a_share_that_is_none_is_refused_by_the_name_on_the_page():
    train = {"estimator": "LogisticRegression", "table": "t", "target": "a", "spend": "rho 0.1", "evaluate": "a fifth"}
    with pytest.raises(errors.BadInput, match="'Share to evaluate'"):
        kind_of("train").parse(train)


def test_rows_may_be_written_as_pages_write_them():
    kind = kind_of("synthesise")
    assert kind.parse({"table": "t", "spend": "rho 0.1", "rows": "200,000"})["rows"] == "200000"
    with pytest.raises(errors.BadForm):
        kind.parse({"table": "t", "spend": "rho 0.1", "rows": "20,00"})


def test_held_answers_are_not_said_to_be_none():
    class Few:
        n, target = 0, 200

    said = sentences.participation(Few(), 20)
    assert said.startswith("Fewer than 20 people have answered so far, of 200 hoped for.")

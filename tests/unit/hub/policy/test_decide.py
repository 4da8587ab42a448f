"""Decisions: no by default, first fitting role, every reason told."""

from datetime import UTC, date, datetime, time
from ipaddress import ip_network

import pytest

from cloister.hub.core.models import Organisation, Person
from cloister.hub.policy.conditions import Environment, Grant, Hours, Subject, Who
from cloister.hub.policy.decide import decide
from cloister.hub.policy.policy import Approval, Budget, Policy, Role, allowed_join
from cloister.hub.policy.purposes import PURPOSES, ancestors, covers, offered
from cloister.hub.policy.views import TableView
from cloister.privacy.errors import Denied
from cloister.privacy.loss import epsilon, rho

ANN = Subject("ann@uni.example", "University", "AT", ("data user",))


def at(text="2026-03-02T10:00", country="AT", network="10.1.2.3"):
    return Environment(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp(), country, network)


def policy(*roles, **more):
    budget = more.pop("budget", Budget(epsilon(2, delta="1e-7")))
    return Policy("visits", more.pop("purposes", ("research",)), budget, roles, **more)


def role(name="analysts", who=None, may=("see schema", "query"), **more):
    return Role(name, who or Who(anyone=True), may, **more)


def ask(page, subject=ANN, operation="query", purpose="research", environment=None, tables=(), loss=None):
    return decide(page, 3, subject, operation, purpose, environment or at(), tables=tables, loss=loss)


def test_without_a_role_nothing_is_allowed():
    verdict = ask(policy())
    assert not verdict.allowed
    assert verdict.rule == "default"
    assert verdict.view == {}
    with pytest.raises(Denied, match="no role of policy 3 allows it"):
        verdict.require()


def test_an_operation_that_is_not_listed_is_denied():
    assert not ask(policy(role(may=("query",))), operation="profile").allowed
    assert ask(policy(role(may=("query",)))).allowed


def test_the_first_role_that_fits_decides_and_all_are_explained():
    narrow = role("narrow", tables={"visits": TableView(("ward",))})
    wide = role("wide")
    verdict = ask(policy(role("closed", Who(people=("bob@uni.example",))), narrow, wide))
    assert (verdict.allowed, verdict.rule) == (True, "narrow")
    assert verdict.view == {"visits": TableView(("ward",))}
    assert [str(one).split(":")[0] for one in verdict.tried] == [
        "the policy fits",
        "role closed does not fit",
        "role narrow fits",
        "role wide fits",
    ]
    assert len(verdict.reasons) == 4


def test_a_role_without_tables_shows_them_as_they_are():
    assert ask(policy(role())).view is None


@pytest.mark.parametrize(
    ("who", "fits"),
    [
        (Who(people=("ann@uni.example",)), True),
        (Who(people=("bob@uni.example",)), False),
        (Who(organisations=("UNIVERSITY",)), False),
        (Who(organisations=("Clinic",)), False),
        (Who(roles=("auditor", "data user")), True),
        (Who(roles=("auditor",)), False),
        (Who(countries=("DE", "AT")), True),
        (Who(countries=("DE",)), False),
        (Who(networks=(ip_network("10.0.0.0/8"),)), True),
        (Who(networks=(ip_network("192.0.2.0/24"),)), False),
        (Who(start=date(2026, 3, 2)), True),
        (Who(start=date(2026, 3, 3)), False),
        (Who(until=date(2026, 3, 2)), True),
        (Who(until=date(2026, 3, 1)), False),
        (Who(hours=Hours(time(8), time(18))), True),
        (Who(hours=Hours(time(18), time(8))), False),
        (Who(people=("ann@uni.example",), organisations=("Clinic",)), False),
        (Who(people=("ann@uni.example",), organisations=("University",), countries=("AT",)), True),
    ],
)
def test_every_condition_must_hold(who, fits):
    assert ask(policy(role(who=who))).allowed is fits


def test_hours_may_run_past_midnight():
    night = Hours(time(22), time(6))
    assert [night.holds(time(hour)) for hour in (21, 22, 23, 0, 5, 6)] == [False, True, True, True, True, False]


def test_an_ipv4_address_in_ipv6_clothes_is_the_same_address():
    page = policy(role(who=Who(networks=(ip_network("10.0.0.0/8"),))))
    assert ask(page, environment=at(network="::ffff:10.1.2.3")).allowed
    assert not ask(page, environment=at(network="")).allowed
    assert not ask(page, environment=at(network="not an address")).allowed


def test_whoever_has_no_organisation_belongs_to_none():
    page = policy(role(who=Who(organisations=("University",))))
    assert not ask(page, Subject("ann@uni.example")).allowed


def test_a_role_by_request_is_for_those_whose_request_was_granted():
    page = policy(role(by_request=True))
    assert not ask(page).allowed
    granted = Subject("ann@uni.example", granted=(Grant("analysts"),))
    assert ask(page, granted).allowed
    assert not ask(page, Subject("ann@uni.example", granted=(Grant("others"),))).allowed


def test_a_grant_does_not_open_a_role_that_is_not_given_by_request():
    page = policy(role(who=Who(people=("bob@uni.example",))))
    assert not ask(page, Subject("ann@uni.example", granted=(Grant("analysts"),))).allowed


def test_a_grant_holds_for_its_purpose_only():
    page = policy(role(by_request=True))
    granted = Subject("ann@uni.example", granted=(Grant("analysts", "health-research"),))
    assert ask(page, granted, purpose="epidemiology").allowed
    denied = ask(page, granted, purpose="social-research")
    assert not denied.allowed
    assert "was granted for health-research, not for social-research" in denied.reasons[1]


def test_conditions_hold_for_granted_roles_too():
    page = policy(role(who=Who(roles=("auditor",)), by_request=True))
    assert not ask(page, Subject("ann@uni.example", granted=(Grant("analysts"),))).allowed


# Purposes


def test_a_wider_purpose_covers_a_narrower_one_and_not_the_reverse():
    assert ask(policy(role()), purpose="epidemiology").allowed
    narrow = policy(role(), purposes=("epidemiology",))
    assert not ask(narrow, purpose="research").allowed


@pytest.mark.parametrize("purpose", ["", "marketing", "world domination"])
def test_a_purpose_must_be_stated_known_and_allowed(purpose):
    verdict = ask(policy(role()), purpose=purpose)
    assert (verdict.allowed, verdict.rule) == (False, "purposes")


def test_a_role_may_narrow_the_purposes():
    page = policy(role(purposes=("epidemiology",)))
    assert not ask(page, purpose="research").allowed
    assert ask(page, purpose="epidemiology").allowed


def test_the_schema_may_be_seen_without_a_purpose():
    page = policy(role(purposes=("epidemiology",)))
    assert ask(page, operation="see schema", purpose="").allowed
    assert not ask(page, operation="see schema", purpose="marketing").allowed


def test_the_vocabulary_is_a_tree():
    for name in PURPOSES:
        path = list(ancestors(name))
        assert path[0] == name
        assert len(path) == len(set(path))
        assert PURPOSES[path[-1]].parent is None
    assert not covers("research", "unknown")
    assert {one.name for one in offered(["human-resources"])} == {"human-resources", "payroll"}


# The whole policy


def test_data_stay_where_they_may_be():
    page = policy(role(), residency=("DE", "AT"))
    assert ask(page).allowed
    for country in ("US", ""):
        verdict = ask(page, environment=at(country=country))
        assert (verdict.allowed, verdict.rule) == (False, "residency")


def test_tables_are_joined_only_where_the_policy_says_so():
    page = policy(role(), joins=(("visits", "wards"), ("wards", "streets")))
    assert ask(page, tables=["visits"]).allowed
    assert ask(page, tables=["Visits", "WARDS"]).allowed
    verdict = ask(page, tables=["visits", "streets"])
    assert (verdict.allowed, verdict.rule) == (False, "joins")
    assert not allowed_join(page, ("visits", "wards", "streets"))
    assert not allowed_join(policy(), ("visits", "wards"))
    assert allowed_join(policy(joins=None), ("visits", "wards"))


def test_a_table_that_a_role_does_not_list_is_not_there():
    page = policy(role("narrow", tables={"visits": TableView()}), role("wide", Who(people=("bob@uni.example",))))
    assert ask(page, tables=["VISITS"]).allowed
    assert not ask(page, tables=["wards"]).allowed
    assert ask(page, Subject("bob@uni.example"), tables=["wards"]).rule == "wide"


def test_a_request_above_the_limit_is_denied_and_one_above_a_threshold_needs_people():
    budget = Budget(epsilon(2, delta="1e-7"), per_request=rho("0.02"), approvals=(Approval(rho("0.01"), 2),))
    page = policy(role(), budget=budget)
    assert ask(page, loss=rho("0.01")).needs == 0
    assert ask(page, loss=rho("0.015")).needs == 2
    verdict = ask(page, loss=rho("0.03"))
    assert (verdict.allowed, verdict.rule, verdict.needs) == (False, "per_request", 0)


# The person in a rule


def test_a_row_rule_speaks_of_the_person_who_asks():
    page = policy(role(tables={"visits": TableView(rows="hospital = :organisation AND doctor = :person")}))
    assert ask(page).view["visits"].rows == "hospital = 'University' AND doctor = 'ann@uni.example'"


def test_a_name_with_quotes_stays_a_name():
    page = policy(role(tables={"visits": TableView(rows="hospital = :organisation")}))
    bad = Subject("ann@uni.example", "x' OR '1' = '1")
    assert ask(page, bad).view["visits"].rows == "hospital = 'x'' OR ''1'' = ''1'"


def test_a_rule_about_something_unknown_of_a_person_does_not_fit_them():
    page = policy(role(tables={"visits": TableView(rows="hospital = :organisation")}))
    verdict = ask(page, Subject("ann@uni.example"))
    assert not verdict.allowed
    assert "its rows depend on your organisation, which is not known" in verdict.reasons[1]


# What a verdict tells


def test_no_reason_names_other_people():
    page = policy(role(who=Who(people=("bob@uni.example",), organisations=("Secret Clinic",))))
    told = " ".join(ask(page).reasons)
    assert "bob" not in told
    assert "Secret" not in told


def test_the_same_question_has_the_same_answer():
    page = policy(role(), role("other"))
    assert ask(page) == ask(page)


def test_a_verdict_goes_into_the_audit_log():
    record = ask(policy(role())).to_json()
    assert (record["allowed"], record["rule"], record["policy"]) == (True, "analysts", 3)
    assert record["operation"] == "query"


def test_a_person_of_the_hub_becomes_a_subject():
    person = Person(verified=1.0, email="Ann@Uni.example", name="Ann", roles=["data user"])
    person.organisation = Organisation(name="University", country="at")
    assert Subject.of(person, ["analysts"]) == Subject(
        "ann@uni.example", "University", "AT", ("data user",), (Grant("analysts"),)
    )
    alone = Person(verified=1.0, email="eve@example.org", name="Eve", roles=[])
    assert Subject.of(alone).facts == {"person": "eve@example.org"}

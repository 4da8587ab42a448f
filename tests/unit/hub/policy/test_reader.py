"""Reading a policy: exact, strict, and every problem at once."""

from datetime import date, time
from fractions import Fraction
from ipaddress import ip_network
from pathlib import Path

import pytest

from cloister.data.schema import Schema
from cloister.hub.policy.conditions import Hours, Who
from cloister.hub.policy.policy import Approval, Period
from cloister.hub.policy.text import reader
from cloister.hub.policy.text.reader import look, read, write
from cloister.hub.policy.views import TableView
from cloister.privacy.errors import BadPolicy
from cloister.privacy.loss import Loss, epsilon, rho

HERE = Path(__file__).parent / "policies"

WHOLE = """
dataset: visits
purposes: [health-research, quality-assurance]
budget:
  lifetime: {epsilon: 2, delta: 1e-7}
  per_user: {rho: 0.05}
  per_request: {rho: 0.02}
  period: {days: 30, rho: 0.1}
  approvals: [{above: {rho: 0.01}, needs: 1}, {above: {rho: 0.05}, needs: 2}]
reviewers: [Steward@hospital.example]
retention: {days: 365}
residency: [DE, AT, NO]
joins: [[visits, wards]]
roles:
  analysts:
    who:
      people: [Ann@uni.example]
      organisations: [University of Somewhere]
      roles: [data user]
      countries: [no]
      networks: [10.0.0.0/8, "2001:db8::/32"]
      from: 2026-01-01
      until: 2027-01-01
      hours: "08:00-18:00"
    may: [see schema, query, profile, run algorithm A1]
    purposes: [epidemiology]
    tables:
      visits: {columns: [ward, age], rows: "ward = 'cardiology'", transforms: {age: "FLOOR(age / 10) * 10"}}
      wards: all
  others: {by_request: true, may: [query]}
"""


def with_line(old, new):
    assert old in WHOLE
    return WHOLE.replace(old, new)


def test_every_word_of_the_page_becomes_a_value():
    policy = read(WHOLE)
    assert policy.dataset == "visits"
    assert policy.purposes == ("health-research", "quality-assurance")
    assert policy.budget.lifetime == epsilon(2, delta="1e-7")
    assert policy.budget.per_user == rho("0.05")
    assert policy.budget.period == Period(30, rho("0.1"))
    assert policy.budget.approvals == (Approval(rho("0.01"), 1), Approval(rho("0.05"), 2))
    assert policy.reviewers == ("steward@hospital.example",)
    assert policy.retention_days == 365
    assert policy.residency == ("DE", "AT", "NO")
    assert policy.joins == (("visits", "wards"),)
    analysts, others = policy.roles
    assert analysts.who == Who(
        False,
        ("ann@uni.example",),
        ("University of Somewhere",),
        ("data user",),
        ("NO",),
        (ip_network("10.0.0.0/8"), ip_network("2001:db8::/32")),
        date(2026, 1, 1),
        date(2027, 1, 1),
        Hours(time(8), time(18)),
    )
    assert analysts.tables == {
        "visits": TableView(("ward", "age"), "ward = 'cardiology'", {"age": "FLOOR(age / 10) * 10"}),
        "wards": TableView(),
    }
    assert others.by_request
    assert others.who.anyone
    assert others.tables is None


def test_numbers_are_read_exactly():
    policy = read(with_line("per_user: {rho: 0.05}", "per_user: {rho: 1/3}").replace("1e-7", "0.0000001"))
    assert policy.budget.per_user.amount == Fraction(1, 3)
    assert policy.budget.lifetime.delta == Fraction(1, 10**7)
    assert read(WHOLE).budget.per_request.amount == Fraction(1, 50)


def test_norway_is_a_country():
    assert "NO" in read(WHOLE).residency


@pytest.mark.parametrize("name", ["one-dataset.yaml", "payroll.yaml"])
def test_writing_and_reading_gives_the_same_policy(name):
    policy = read((HERE / name).read_text())
    assert read(write(policy)) == policy
    assert read(write(read(WHOLE))) == read(WHOLE)


def test_a_policy_without_a_role_or_a_purpose_is_refused():
    with pytest.raises(BadPolicy, match=r"2 problems[\s\S]*such as research[\s\S]*allows nothing"):
        read("dataset: d\npurposes: []\nbudget: {lifetime: {epsilon: 1}}\nroles: {}\n")


def test_every_problem_is_told_with_its_line():
    with pytest.raises(BadPolicy) as refused:
        read(
            "dataset: two words\n"
            "purpose: [research]\n"
            "purposes: [reserch]\n"
            "budget: {lifetime: {epsilon: -1}, period: {rho: 0.1}}\n"
            "roles:\n"
            "  a: {may: [query]}\n"
            "  b: {who: {people: [nobody]}, may: []}\n"
        )
    told = str(refused.value)
    for place in (
        "line 2, purpose: the word purpose is unknown. Did you mean purposes",
        "line 1, dataset: a dataset's name",
        "line 3, purposes: reserch is not a purpose. Did you mean research",
        "line 4, budget.lifetime: epsilon must be positive",
        "line 4, budget.period: days is missing",
        "line 6, roles.a: say who",
        "line 7, roles.b.who.people: nobody is not an e-mail address",
        "line 7, roles.b.may: list what they may do",
    ):
        assert place in told
    assert "the policy has 8 problems" in told


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("retention: {days: 365}", "retention: {day: 365}", "the word day is unknown"),
        ("retention: {days: 365}", "retention: {days: 1.5}", "a whole number"),
        ("retention: {days: 365}", "keep: {days: 365}", "the word keep is unknown"),
        ("residency: [DE, AT, NO]", "residency: [Germany]", "two letters"),
        ("joins: [[visits, wards]]", "joins: [[visits]]", "two or more tables"),
        ("joins: [[visits, wards]]", "joins: all", "write a list"),
        ("needs: 2}]", "needs: 3}]", "from 1 to 2"),
        ("{above: {rho: 0.05}, needs: 2}", "{above: {rho: 0.01}, needs: 2}", "the same loss"),
        ("per_user: {rho: 0.05}", "per_user: {rho: 0.05, epsilon: 1}", "write one of"),
        ("per_user: {rho: 0.05}", "per_user: {rho: nan}", "finite number"),
        ("per_user: {rho: 0.05}", "per_user: 0.05", "with something under each"),
        ("networks: [10.0.0.0/8,", "networks: [10.0.0.1/8,", "zeros behind the prefix"),
        ("roles: [data user]", "roles: [king]", "king is not known here"),
        ("  others: {by_request: true, may: [query]}", "  others: {who: all, may: [query]}", "write who: anyone"),
        ("roles: [data user]", "roles: []", "nobody fits"),
        ("from: 2026-01-01", "from: 2028-01-01", "until is before from"),
        ("until: 2027-01-01", "until: next year", "a day like"),
        ('hours: "08:00-18:00"', 'hours: "8-18"', "write hours like"),
        ('hours: "08:00-18:00"', 'hours: "25:00-26:00"', "write hours like"),
        ('hours: "08:00-18:00"', 'hours: "08:00-08:00"', "begin and end at once"),
        ("purposes: [epidemiology]", "purposes: [marketing]", "not covered by the policy's purposes"),
        ("run algorithm A1]", '"; drop"]', "is not an operation"),
        ("columns: [ward, age]", "columns: [ward]", "age is not among the columns"),
        ("columns: [ward, age]", "columns: []", "no column is listed"),
        ("\"ward = 'cardiology'\"", '"ward = 1; DROP TABLE x"', "not an expression"),
        ("\"ward = 'cardiology'\"", '"ward = :password"', "a rule may name :person"),
        ("\"ward = 'cardiology'\"", '"1 = 1) UNION (SELECT 1"', "not an expression"),
        ("wards: all", "Visits: all", "only in case"),
        ("by_request: true", "by_request: perhaps", "true or false"),
        ("reviewers: [Steward@hospital.example]", "reviewers: []", "Name reviewers"),
        ("  others: {by_request: true, may: [query]}", "  others: {may: [query]}", "say who"),
        ("  others: {by_request: true, may: [query]}", "  analysts: {who: anyone, may: [query]}", "written twice"),
        ("  others: {by_request: true, may: [query]}", "  others:", "with something under each"),
    ],
)
def test_what_is_not_understood_is_refused(old, new, told):
    with pytest.raises(BadPolicy, match=told):
        read(with_line(old, new))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("just words", "with something under each"),
        ("a: [1", "not YAML near line"),
        ("a: &x {b: 1}\nc: *x", "anchors"),
        ("a: &x [*x]", "anchors"),
        ("a: !!python/object/apply:os.system [ls]", "tags"),
        ("a: !!int 5", "tags"),
        ("{" * 5000, "not YAML"),
        ("a" * 200_000, "at most 100,000"),
        ("a: 1\n---\nb: 2", "not YAML"),
    ],
)
def test_only_a_plain_page_is_read(text, told):
    with pytest.raises(BadPolicy, match=told):
        read(text)


def test_a_page_that_is_far_too_long_is_refused_in_no_time():
    with pytest.raises(BadPolicy, match="more than 1,000 entries"):
        read(WHOLE.replace("[health-research, quality-assurance]", "[" + "x, " * 2000 + "x]"))
    with pytest.raises(BadPolicy, match="and 400 more"):
        read("\n".join(f"word{i}: 1" for i in range(496)))


@pytest.mark.parametrize(
    ("lifetime", "limit", "told"),
    [
        ("{epsilon: 2, delta: 1e-7}", "{epsilon: 0.1}", r"no exact place there. Write \{rho: 0.005\}"),
        ("{rho: 0.5}", "{epsilon: 0.1}", "no exact place there"),
        ("{epsilon: 2}", "{rho: 0.1}", "pure epsilon, so limits are too"),
        ("{epsilon: 2}", "{epsilon: 1, delta: 1e-6}", "pure epsilon, so limits are too"),
    ],
)
@pytest.mark.parametrize("place", ["per_user: %s", "per_request: %s", "approvals: [{above: %s, needs: 1}]"])
def test_a_limit_that_cannot_be_compared_exactly_is_refused(lifetime, limit, told, place):
    page = (
        f"dataset: d\npurposes: [research]\nbudget: {{lifetime: {lifetime}, {place % limit}}}\n"
        "roles: {r: {who: anyone, may: [query]}}\n"
    )
    with pytest.raises(BadPolicy, match=told):
        read(page)


def test_a_limit_in_epsilon_and_delta_is_as_good_as_a_rho():
    page = with_line("per_user: {rho: 0.05}", "per_user: {epsilon: 1, delta: 1e-7}")
    assert read(page).budget.per_user == epsilon(1, delta="1e-7")


def test_every_release_may_need_an_approval():
    policy = read(with_line("{above: {rho: 0.01}, needs: 1}", "{above: nothing, needs: 1}"))
    assert policy.budget.approvals[0] == Approval(Loss.nothing("epsilon"), 1)
    assert read(write(policy)) == policy


# With the schema


def schema():
    return Schema.load(HERE / "payroll.schema.yaml")


def payroll(old, new):
    text = (HERE / "payroll.yaml").read_text()
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[employee, branch, salary]", "[employee, branch, salary, wage]", "there is no column wage"),
        ("rows: branch = :organisation", "rows: department = 1", "there is no column department"),
        ("rows: branch = :organisation", "rows: branch", "WHERE needs a condition"),
        ("rows: branch = :organisation", "rows: salary = :organisation", "cannot be compared"),
        ("rows: branch = :organisation", "rows: salary > (SELECT 1)", "a subquery stands in FROM"),
        ("rows: branch = :organisation", "rows: COUNT(*) > 1", "stands where a row's value is needed"),
        ("rows: branch = :organisation", "rows: pg_sleep(9) = 1", "is not offered"),
        ("FLOOR(salary / 500) * 500", "SUM(salary)", "stands where a row's value is needed"),
        ("FLOOR(salary / 500) * 500", "'MAX(salary, 3)'", "is not offered with"),
        ("branches: all", "clinics: all", "there is no table clinics"),
        ("[[salaries, branches]]", "[[salaries, clinics]]", "there is no table clinics"),
    ],
)
def test_a_rule_the_schema_does_not_bear_is_refused_when_it_is_written(old, new, told):
    read(payroll(old, new))  # the page alone is well formed
    with pytest.raises(BadPolicy, match=told):
        read(payroll(old, new), schema())


def test_a_column_that_only_a_row_rule_uses_need_not_be_visible():
    page = payroll("[employee, branch, salary]", "[employee, salary]")
    assert read(page, schema()).role("human resources").tables["salaries"].columns == ("employee", "salary")


def test_the_unit_column_may_be_listed():
    assert read((HERE / "payroll.yaml").read_text(), schema())


# Notes


def test_an_operation_that_no_kind_knows_is_allowed_and_noted():
    notes = look(WHOLE).notes
    assert any("no operation called run algorithm A1" in note for note in notes)
    known = look(WHOLE, operations=("run algorithm A1",)).notes
    assert not any("run algorithm A1" in note for note in known)


def test_a_likely_slip_is_noted():
    notes = look(with_line("may: [query]", "may: [qeury]")).notes
    assert any("Did you mean query?" in note for note in notes)


def test_a_role_for_everybody_is_noted():
    notes = look(with_line("{by_request: true, may: [query]}", "{who: anyone, may: [query]}")).notes
    assert any("everybody with an account" in note for note in notes)


def test_policies_of_many_datasets_are_parsed_once(monkeypatch):
    """Every list of datasets reads all of them, in the same order: a cache of fewer places would never be hit."""
    page = "dataset: {}\npurposes: [research]\nbudget: {{lifetime: {{rho: 1}}}}\n"
    page += "roles: {{a: {{who: anyone, may: [query]}}}}\n"
    parsed = []
    inner = reader._parsed
    monkeypatch.setattr(reader, "_parsed", lambda text: [parsed.append(text), inner(text)][1])
    for _ in range(3):
        for number in range(600):
            assert reader.read(page.format(f"many-{number}")).dataset == f"many-{number}"
    assert len(parsed) == 600

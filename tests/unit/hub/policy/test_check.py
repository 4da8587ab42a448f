"""Policies have unit tests, which pass, fail and explain."""

import time
from pathlib import Path

import pytest

from cloister.data.schema import Schema
from cloister.hub.policy.text.check import run
from cloister.privacy.errors import BadPolicy

HERE = Path(__file__).parent / "policies"


def page(name):
    return (HERE / name).read_text()


def test_two_may_query_a_third_may_run_the_algorithm():
    report = run(page("one-dataset.yaml"), page("one-dataset.tests.yaml"))
    assert report.passed, report
    assert len(report.outcomes) == 9


def test_the_payroll_shows_each_what_is_theirs():
    report = run(page("payroll.yaml"), page("payroll.tests.yaml"), Schema.load(HERE / "payroll.schema.yaml"))
    assert report.passed, report
    assert "19 cases, all as expected" in str(report)


def test_a_policy_that_lets_too_much_through_fails_its_tests_and_says_why():
    loose = page("one-dataset.yaml").replace("may: [see schema, query]", "may: [see schema, query, run algorithm A1]")
    report = run(loose, page("one-dataset.tests.yaml"))
    assert not report.passed
    told = str(report)
    assert "FAIL  U1: run algorithm A1 for research is denied" in told
    assert "expected denied, but it is allowed" in told
    assert "role r1 fits: you are among its people" in told
    assert "9 cases, 1 not as expected" in told


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("by: managers", "by: human resources", "expected it by human resources, but managers decided"),
        (
            "a larger one, given: {who: Mona, loss: {rho: 0.002",
            "x, given: {who: Mona, loss: {rho: 0.006",
            "but it is 2",
        ),
        ("[employee, branch, salary, illness_days]", "[employee]", "expected of salaries the columns"),
        ("WHERE branch = 'South'", "WHERE branch = 'North'", "but it is SELECT"),
    ],
)
def test_every_expectation_can_fail(old, new, told):
    tests = page("payroll.tests.yaml")
    assert old in tests
    report = run(page("payroll.yaml"), tests.replace(old, new), Schema.load(HERE / "payroll.schema.yaml"))
    assert not report.passed
    assert told in str(report)


@pytest.mark.parametrize(
    ("tests", "told"),
    [
        ("cases: []", "there is no case"),
        ("cases: [{operation: query}]", "expect is missing"),
        ("cases: [{operation: query, expect: perhaps}]", "allowed or denied"),
        (
            "cases: [{operation: query, expect: denied, given: {whom: me}}]",
            "the word whom is unknown. Did you mean who",
        ),
        ("cases: [{operation: query, expect: denied, given: {who: me}}]", "me is not known here"),
        ("cases: [{operation: query, expect: denied, given: {time: noon}}]", "a time like"),
        ("given: {loss: {rho: x}}\ncases: [{operation: query, expect: denied}]", "finite number"),
    ],
)
def test_a_page_of_tests_is_read_as_strictly(tests, told):
    with pytest.raises(BadPolicy, match=f"page of tests has.*\n.*{told}"):
        run(page("one-dataset.yaml"), tests)


BASE = "dataset: dif\npurposes: [education]\nbudget: {lifetime: {rho: 0.2}}\nroles:\n"


def many_roles(count):
    return BASE + "".join(f"  r{at}: {{who: {{roles: [operator]}}, may: [query]}}\n" for at in range(count))


def test_roles_times_cases_are_bounded_before_they_are_tried():
    tests = "cases:\n" + "- {operation: x, expect: allowed}\n" * 1000
    with pytest.raises(BadPolicy, match="1,000 roles times 1,000 cases are more than 20,000"):
        run(many_roles(1000), tests)


def test_reasons_are_told_for_the_first_failed_cases_only():
    tests = "cases:\n" + "- {operation: x, expect: allowed}\n" * 1000
    report = str(run(many_roles(20), tests))
    assert "1000 cases, 1000 not as expected" in report
    assert len(report) < 200_000


def test_expected_views_are_bounded():
    sees = ", ".join(f"t{at}: x" for at in range(600))
    tests = "cases:\n" + f"- {{operation: x, expect: allowed, sees: {{{sees}}}}}\n" * 2
    with pytest.raises(BadPolicy, match="1,000 views and columns"):
        run(many_roles(1), tests)


def test_a_page_of_mistakes_is_refused_before_each_is_described():
    people = "".join(f"  person number {at}: {{person: a@b.org}}\n" for at in range(1000))
    cases = "".join(f"- {{given: {{who: persom numbef {at}}}, operation: x, expect: allowed}}\n" for at in range(900))
    began = time.process_time()
    with pytest.raises(BadPolicy, match="900 problems") as caught:
        run(many_roles(1), f"people:\n{people}cases:\n{cases}")
    assert time.process_time() - began < 10
    assert len(str(caught.value)) < 100_000


def test_reading_ends_after_a_thousand_problems():
    with pytest.raises(BadPolicy, match="more than 1,000 problems"):
        run(many_roles(1), "cases:\n" + "- {a: 1, b: 2, c: 3, operation: x, expect: allowed}\n" * 1000)

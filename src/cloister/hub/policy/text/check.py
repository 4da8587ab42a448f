"""Unit tests for a policy, as YAML.

given: {purpose: payroll, time: 2026-03-02 10:00}       # holds for every case unless the case says otherwise
people:
  Mona: {person: mona@firm.example, organisation: North, roles: [data user]}
cases:
  - {given: {who: Mona}, operation: query, expect: allowed, by: managers}
  - {given: {who: Mona, purpose: marketing}, operation: query, expect: denied, by: purposes}
  - given: {who: Mona, tables: [payroll]}
    operation: query
    expect: allowed
    sees: {payroll: "SELECT …"}        # the view, if the schema is given
    columns: {payroll: [name, salary]}
    needs: 1                           # with given: {loss: {rho: 0.02}}
  - {given: {who: Mona, show: top 3}, operation: predict, expect: denied, by: predictions}
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from cloister.data.schema import Schema
from cloister.hub.policy import views
from cloister.hub.policy.conditions import Environment, Grant, Subject
from cloister.hub.policy.decide import Verdict, decide
from cloister.hub.policy.policy import Policy
from cloister.hub.policy.predictions import read_show
from cloister.hub.policy.text.reader import read, read_loss, refuse
from cloister.hub.policy.text.yaml_page import YamlNode, parse, read_word
from cloister.privacy.errors import BadInput, BadPolicy, BadSchema, Refused
from cloister.privacy.loss import Loss

__all__ = ["PolicyTestCase", "Outcome", "PolicyTestReport", "read_cases", "run", "told"]

_PERSON = ("person", "organisation", "country", "roles", "granted")
_GIVEN = ("who", *_PERSON, "purpose", "time", "network", "hub", "tables", "loss", "show")
_CASE = ("name", "given", "operation", "expect", "by", "sees", "columns", "needs")
_DECISIONS = ("allowed", "denied")
_MOST_TRIED = 20_000  # roles times cases
_MOST_SEEN = 1_000  # views and lists of columns that all cases expect
_EXPLAINED = 20  # failed cases that are shown with every reason


@dataclass(frozen=True, slots=True)
class PolicyTestCase:
    """Request to the policy, and the expected verdict; parts that are None or missing are not checked."""

    name: str
    subject: Subject
    operation: str
    purpose: str
    environment: Environment
    tables: tuple[str, ...]
    loss: Loss | None
    show: str
    allowed: bool
    by: str | None
    sees: Mapping[str, str]
    columns: Mapping[str, tuple[str, ...]]
    needs: int | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Case, its verdict, and the differences from what was expected."""

    case: PolicyTestCase
    verdict: Verdict
    differs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PolicyTestReport:
    """Results of all cases of one run."""

    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        """Return True if every case came out as expected."""
        return not any(outcome.differs for outcome in self.outcomes)

    def __str__(self) -> str:
        lines, failed = [], 0
        for outcome in self.outcomes:
            lines.append(f"{'FAIL' if outcome.differs else 'ok':>4}  {outcome.case.name}")
            if outcome.differs:
                failed += 1
                lines += [f"      {difference}" for difference in outcome.differs]
                if failed <= _EXPLAINED:
                    lines += [f"        {reason}" for reason in outcome.verdict.reasons]
                elif failed == _EXPLAINED + 1:
                    lines.append(f"        (reasons are told for the first {_EXPLAINED} such cases)")
        count = len(self.outcomes)
        total = f"{count} case{'' if count == 1 else 's'}"
        return "\n".join([*lines, f"{total}, all as expected" if not failed else f"{total}, {failed} not as expected"])


def run(policy_text: str, tests_text: str, schema: Schema | None = None) -> PolicyTestReport:
    """Run every test of a page on a policy.

    Args:
        policy_text: the policy.
        tests_text: the tests.
        schema: the schema of the dataset, for cases about views.

    Raises:
        BadPolicy: one of the pages cannot be read, with every problem; or there are too many roles and cases.
    """
    policy, cases = read(policy_text, schema), read_cases(tests_text)
    if len(policy.roles) * len(cases) > _MOST_TRIED:
        raise BadPolicy(
            f"{len(policy.roles):,} roles times {len(cases):,} cases are more than {_MOST_TRIED:,}. "
            "Test with fewer cases at once."
        )
    if sum(len(case.sees) + len(case.columns) for case in cases) > _MOST_SEEN:
        raise BadPolicy(f"the cases expect more than {_MOST_SEEN:,} views and columns. Test with fewer cases at once.")
    return PolicyTestReport(tuple(_outcome(policy, case, schema) for case in cases))


def told(policy_text: str, tests_text: str, schema_text: str | None) -> dict[str, Any]:
    """Run every test of a page on a policy; return the report as text, and whether it passed. For a child process."""
    try:
        schema = Schema.parse(schema_text, max_bytes=None) if schema_text else None
    except BadSchema:
        schema = None
    report = run(policy_text, tests_text, schema)
    return {"report": str(report), "passed": report.passed}


def _outcome(policy: Policy, case: PolicyTestCase, schema: Schema | None) -> Outcome:
    request = (case.subject, case.operation, case.purpose, case.environment)
    verdict = decide(policy, 0, *request, tables=case.tables, loss=case.loss, show=case.show)
    differs = []
    if verdict.allowed != case.allowed:
        differs.append(f"expected {_word(case.allowed)}, but it is {_word(verdict.allowed)}")
    if case.by is not None and verdict.rule != case.by:
        differs.append(f"expected it by {case.by}, but {verdict.rule} decided")
    if case.needs is not None and verdict.needs != case.needs:
        differs.append(f"expected that {case.needs} must agree, but it is {verdict.needs}")
    for table, columns in case.columns.items():
        visible = _columns(verdict, table, schema)
        if visible != columns:
            differs.append(f"expected of {table} the columns {list(columns)}, but it is {list(visible)}")
    for table, text in case.sees.items():
        selected = _select(verdict, table, schema)
        if selected != text:
            differs.append(f"expected {table} as {text}, but it is {selected}")
    return Outcome(case, verdict, tuple(differs))


def _columns(verdict: Verdict, table: str, schema: Schema | None) -> tuple[str, ...]:
    if schema is not None:
        table_view = views.visible(schema, verdict.view).get(table)
        return () if table_view is None else views.visible_columns(table_view, schema.tables[table])
    view = None if verdict.view is None else verdict.view.get(table)
    return () if view is None or view.columns is None else view.columns


def _select(verdict: Verdict, table: str, schema: Schema | None) -> str:
    if schema is None or table not in schema.tables:
        return "a table that only a schema can describe: give one"
    view = views.visible(schema, verdict.view).get(table)
    try:
        return "nothing at all" if view is None else views.select(view, schema.tables[table])
    except Refused as error:
        return str(error)


def _word(allowed: bool) -> str:
    return _DECISIONS[0 if allowed else 1]


# Reading


def read_cases(text: str) -> list[PolicyTestCase]:
    """Read the cases on a page of tests.

    Raises:
        BadPolicy: with every problem.
    """
    page = parse(text)
    words = page.words(("given", "people", "cases"), ("cases",))
    shared = words["given"].words(_GIVEN) if "given" in words else {}
    people = {
        name: node.words(_PERSON) for name, node in (words["people"].names() if "people" in words else {}).items()
    }
    cases = [_case(node, shared, people) for node in (words["cases"].items() if "cases" in words else [])]
    if "cases" in words and words["cases"].empty:
        words["cases"].say("there is no case. Write one")
    refuse(page.problems, "page of tests")
    return [case for case in cases if case is not None]


def _case(
    part: YamlNode, shared: Mapping[str, YamlNode], people: Mapping[str, Mapping[str, YamlNode]]
) -> PolicyTestCase | None:
    words = part.words(_CASE, ("operation", "expect"))
    case_facts = words["given"].words(_GIVEN) if "given" in words else {}
    who = case_facts.get("who") or shared.get("who")
    person_facts = people.get(who.one_of(tuple(people)), {}) if who is not None else {}
    given = {**shared, **person_facts, **case_facts}
    if "operation" not in words or "expect" not in words:
        return None
    subject = _subject(given)
    operation, purpose = words["operation"].line(), read_word(given, "purpose", YamlNode.line, "")
    environment = Environment(
        read_word(given, "time", _moment, 0.0),
        read_word(given, "hub", YamlNode.line, ""),
        read_word(given, "network", YamlNode.line, ""),
    )
    expect = words["expect"].one_of(_DECISIONS)
    name = read_word(words, "name", YamlNode.line, "")
    return PolicyTestCase(
        name or _told(who.line() if who is not None else subject.person, operation, purpose, expect),
        subject,
        operation,
        purpose,
        environment,
        read_word(given, "tables", YamlNode.lines, ()),
        read_word(given, "loss", read_loss, None),
        read_word(given, "show", _show, ""),
        expect == "allowed",
        read_word(words, "by", YamlNode.line, None),
        read_word(words, "sees", lambda part: {name: node.text().strip() for name, node in part.names().items()}, {}),
        read_word(words, "columns", lambda part: {name: node.lines() for name, node in part.names().items()}, {}),
        read_word(words, "needs", lambda part: part.whole(0, 2), None),
    )


def _subject(given: Mapping[str, YamlNode]) -> Subject:
    def line(name: str) -> str:
        return given[name].line() if name in given else ""

    subject = Subject(line("person").lower(), line("organisation"), line("country").upper())
    roles = given["roles"].lines() if "roles" in given else ()
    granted = tuple(Grant(name) for name in given["granted"].lines()) if "granted" in given else ()
    return replace(subject, roles=roles, granted=granted)


def _show(part: YamlNode) -> str:
    text = part.text()
    try:
        return read_show(text) if text else ""
    except BadInput as error:
        part.say(str(error).removeprefix(f"{error.code}: ").rstrip("."))
        return ""


def _moment(part: YamlNode) -> float:
    text = part.line()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        if text:
            part.say("write a time like 2026-03-02 10:00 (UTC)")
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _told(who: str, operation: str, purpose: str, expect: str) -> str:
    return f"{who or 'somebody'}: {operation}{f' for {purpose}' if purpose else ''} is {expect}"

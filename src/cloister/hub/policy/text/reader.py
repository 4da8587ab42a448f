"""Reader of a policy's text. Strict: every problem is reported, with its line and a way out."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice

from cloister.data.schema import Schema
from cloister.hub.core.cache import Cache
from cloister.hub.policy import cost, views
from cloister.hub.policy.anonymised import ANONYMISE, Anonymised, named_columns, parse_share, problem_of
from cloister.hub.policy.policy import OPERATIONS, SEE_SCHEMA, Approval, Budget, Period, Policy, allowed_join
from cloister.hub.policy.predictions import PREDICT, PredictionRule, read_show
from cloister.hub.policy.text.roles import read_countries, read_emails, read_purposes, read_roles
from cloister.hub.policy.text.writer import write
from cloister.hub.policy.text.yaml_page import YamlNode, parse, read_word
from cloister.privacy.errors import BadInput, BadPolicy
from cloister.privacy.loss import Loss, epsilon, rho

__all__ = ["Reading", "look", "read", "read_loss", "refuse", "write"]

_NAME = re.compile(r"[A-Za-z0-9._:/-]{1,200}")
_POLICY = (
    "dataset",
    "purposes",
    "budget",
    "reviewers",
    "retention",
    "residency",
    "joins",
    "anonymised",
    "predictions",
    "roles",
)
_BUDGET = ("lifetime", "per_user", "per_request", "period", "approvals")
_DAYS = 36_500
_CHECKERS = (2, 9)
_MOST_ROWS = 10**8
_MOST_LISTED = 100
_NOTHING = "nothing"
_NO_LOSS = epsilon(1)  # placeholder for a loss that could not be read: that problem is already recorded


@dataclass(frozen=True, slots=True)
class Reading:
    """Policy, and notes for its owner."""

    policy: Policy
    notes: tuple[str, ...]


def read(text: str, schema: Schema | None = None) -> Policy:
    """Read the policy in a text.

    Args:
        text: the YAML; docs/guides/write-a-policy.md shows all keywords.
        schema: the schema of the dataset, if known: then columns and rules are checked against it.

    Raises:
        BadPolicy: with every problem.
    """
    policy, problems = _read(text)
    refuse([*problems, *_schema_problems(policy, schema)] if not problems and schema else problems)
    return policy


def look(text: str, schema: Schema | None = None, operations: Iterable[str] = OPERATIONS) -> Reading:
    """Read a policy, with notes on what is allowed but may be a mistake.

    Args:
        operations: those of this hub's job types.
    """
    policy = read(text, schema)
    notes = _notes(policy, tuple(dict.fromkeys((*OPERATIONS, *operations))), schema)
    return Reading(policy, tuple(islice(notes, _MOST_LISTED)))


def refuse(problems: Sequence[str], what: str = "policy") -> None:
    """Raise with every problem, if there is any."""
    if problems:
        listed = "".join(f"\n  {number}. {problem}." for number, problem in enumerate(problems[:_MOST_LISTED], 1))
        listed += f"\n  … and {len(problems) - _MOST_LISTED} more." if len(problems) > _MOST_LISTED else ""
        count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise BadPolicy(f"the {what} has {count}:{listed}")


_POLICIES = Cache(256 * 2**20)  # every list of datasets reads all policies, and their texts rarely change


def _read(text: str) -> tuple[Policy, tuple[str, ...]]:
    result: tuple[Policy, tuple[str, ...]] = _POLICIES.get(text, lambda: _parsed(text))
    return result


def _parsed(text: str) -> tuple[Policy, tuple[str, ...]]:
    page = parse(text)
    words = page.words(_POLICY, ("dataset", "purposes", "budget", "roles"))
    dataset = words["dataset"].line() if "dataset" in words else ""
    if dataset and not _NAME.fullmatch(dataset):
        words["dataset"].say("a dataset's name has letters, digits or . _ - : /")
    purposes = read_word(words, "purposes", read_purposes, ())
    reviewers = read_word(words, "reviewers", read_emails, ())
    policy = Policy(
        dataset,
        purposes,
        read_word(words, "budget", lambda part: _budget(part, reviewers), Budget(_NO_LOSS)),
        read_word(words, "roles", lambda part: read_roles(part, purposes), ()),
        reviewers,
        read_word(words, "joins", _joins, ()),
        read_word(words, "residency", read_countries, ()),
        read_word(words, "retention", _days, None),
        read_word(words, "anonymised", lambda part: _anonymised(part, reviewers), Anonymised()),
        read_word(words, "predictions", _predictions, PredictionRule()),
    )
    return policy, tuple(page.problems)


# Places and days


def _days(part: YamlNode) -> int | None:
    words = part.words(("days",), ("days",))
    return words["days"].whole(1, _DAYS) if "days" in words else None


def _joins(part: YamlNode) -> tuple[tuple[str, ...], ...] | None:
    if part.node.value == "any":
        return None
    lines = []
    for entry in part.items():
        lines.append(entry.lines())
        if len(lines[-1]) < 2:
            entry.say("each line lists two or more tables, such as [visits, wards]; or write joins: any")
    return tuple(lines)


# Anonymised releases


def _anonymised(part: YamlNode, reviewers: tuple[str, ...]) -> Anonymised:
    words = part.words(("at_least", "suppression_at_most", "reviewers"))
    usual = Anonymised()
    if part.node.kind == "map" and not words:
        part.say('state a rule, such as {at_least: "k=5, l=3", suppression_at_most: 10%, reviewers: 2}')
    at_least = words["at_least"].line() if "at_least" in words else usual.at_least
    if at_least and (problem := problem_of(at_least)):
        words["at_least"].say(problem)
    share = usual.suppression_at_most
    if "suppression_at_most" in words:
        try:
            share = parse_share(words["suppression_at_most"].text())
        except BadInput as error:
            words["suppression_at_most"].say(str(error).removeprefix(f"{error.code}: ").rstrip("."))
    needs = words["reviewers"].whole(*_CHECKERS) if "reviewers" in words else usual.reviewers
    if "reviewers" in words and needs > 1 + len(reviewers):
        words["reviewers"].say(f"{needs} people must look at a release, and {1 + len(reviewers)} may. Name reviewers")
    return Anonymised(at_least or usual.at_least, share, needs)


# Predictions of models


def _predictions(part: YamlNode) -> PredictionRule:
    words = part.words(("show", "rows_per_day"))
    if part.node.kind == "map" and not words:
        part.say("state a rule, such as {show: rounded 2, rows_per_day: 1000}")
    show = PredictionRule().show
    if "show" in words:
        text = words["show"].text()
        try:
            show = read_show(text) if text else show
        except BadInput as error:
            words["show"].say(str(error).removeprefix(f"{error.code}: ").rstrip("."))
    rows = words["rows_per_day"].whole(1, _MOST_ROWS) if "rows_per_day" in words else None
    return PredictionRule(show, rows)


# Losses


def read_loss(part: YamlNode, words: Mapping[str, YamlNode] | None = None) -> Loss | None:
    """Read a loss such as {rho: 0.05} or {epsilon: 2, delta: 1e-7}, exactly as it is written."""
    stated = part.words(("epsilon", "rho", "delta")) if words is None else words
    if ("epsilon" in stated) == ("rho" in stated):
        part.say("write one of {epsilon: 1}, {epsilon: 1, delta: 1e-6} and {rho: 0.1}")
        return None
    make, amount = (epsilon, stated["epsilon"]) if "epsilon" in stated else (rho, stated["rho"])
    try:
        return make(amount.text().strip(), delta=stated["delta"].text().strip() if "delta" in stated else None)
    except BadInput as error:
        part.say(str(error).partition(": ")[2].rstrip("."))
        return None


def _budget(part: YamlNode, reviewers: tuple[str, ...]) -> Budget:
    words = part.words(_BUDGET, ("lifetime",))
    names = ("lifetime", "per_user", "per_request")
    lifetime, per_user, per_request = (read_word(words, name, read_loss, None) for name in names)
    period = read_word(words, "period", _period, None)
    measure = "rho" if lifetime is None else lifetime.measure
    approvals = _approvals(words["approvals"], Loss.nothing(measure)) if "approvals" in words else ()
    budget = Budget(lifetime or _NO_LOSS, per_user, per_request, period, approvals)
    if lifetime is not None:
        problem = cost.incomparable(lifetime, lifetime)
        if problem:
            words["lifetime"].say(problem)
        for path, limit in cost.limits(budget) if not problem else []:
            why = cost.incomparable(lifetime, limit)
            if why:
                word, _, rest = path.partition("[")
                words[word].say(f"line {rest.rstrip(']')}: {why}" if rest else why)
    if any(approval.needs > 1 + len(reviewers) for approval in approvals):
        words["approvals"].say("two people must agree, and only the owner may. Name reviewers")
    return budget


def _period(part: YamlNode) -> Period | None:
    words = part.words(("days", "epsilon", "rho", "delta"), ("days",))
    loss = read_loss(part, {name: node for name, node in words.items() if name != "days"})
    days = words["days"].whole(1, _DAYS) if "days" in words else 1
    return None if loss is None else Period(days, loss)


def _approvals(part: YamlNode, nothing: Loss) -> tuple[Approval, ...]:
    approvals: list[Approval] = []
    for entry in part.items():
        words = entry.words(("above", "needs"), ("above", "needs"))
        if set(words) != {"above", "needs"}:
            continue
        always = words["above"].node.value == _NOTHING
        above = nothing if always else read_loss(words["above"])
        needs = words["needs"].whole(1, 2)
        if above is not None and any(above == approval.above for approval in approvals):
            entry.say("two lines speak of the same loss. Keep one")
        elif above is not None:
            approvals.append(Approval(above, needs))
    return tuple(approvals)


# Checks against the schema, and notes


def _schema_problems(policy: Policy, schema: Schema | None) -> list[str]:
    if schema is None:
        return []
    named = {name.lower(): table for name, table in schema.tables.items()}
    pairs = [(named.get(name.lower()), view) for role in policy.roles for name, view in (role.tables or {}).items()]
    if sum(views.work_of(view, table) for table, view in pairs if table is not None) > 4 * views.MOST_WORK:
        return ["roles: all rules together name columns with many categories too often. Write fewer rules"]
    problems = [
        f"roles.{role.name}.tables.{table}: {problem}"
        for role in policy.roles
        for table, problem in views.problems(role.tables or {}, schema)
    ]
    existing = {name.lower() for name in schema.tables}
    for line in policy.joins or ():
        problems += [
            f"joins: there is no table {name:.60} in the schema. There are: {views.short_list(schema.tables)}"
            for name in line
            if name.lower() not in existing
        ]
    columns = {name for table in schema.tables.values() for name in table.columns}
    problems += [
        f"anonymised.at_least: there is no column {name:.60} in the schema. Write it as the schema does"
        for name in named_columns(policy.anonymised.at_least)
        if name not in columns
    ]
    return problems


def _notes(policy: Policy, operations: tuple[str, ...], schema: Schema | None) -> Iterable[str]:
    for role in policy.roles:
        for word in role.may:
            if word not in operations:
                close = get_close_matches(word, operations, n=1, cutoff=0.75)
                hint = f"Did you mean {close[0]}?" if close else "It allows nothing until a kind of work brings it."
                yield f"roles.{role.name}: this hub has no operation called {word}. {hint}"
        if SEE_SCHEMA not in role.may:
            yield f"roles.{role.name}: they may not see schema, so they will not know what they can ask about."
        if role.who.anyone and not role.by_request:
            yield f"roles.{role.name}: everybody with an account on this hub belongs to it."
    allowed = any(ANONYMISE in role.may for role in policy.roles)
    if allowed and policy.anonymised.reviewers > 1 + len(policy.reviewers):
        yield (
            f"anonymised: {policy.anonymised.reviewers} people must look at a release, and only the owner may. "
            "Name reviewers, or nobody can make one."
        )
    if policy.predictions != PredictionRule() and not any(PREDICT in role.may for role in policy.roles):
        yield f"predictions: no role may {PREDICT}, so the rule concerns nobody."
    if schema is not None and len(schema.tables) > 1 and not allowed_join(policy, tuple(schema.tables)):
        yield "joins: not all tables may be used together; list those that may."
    if not policy.residency:
        yield "residency: the data may be used on a hub in any country."

"""Decisions of a policy on a request: a pure function that gives its reasons.

Nothing is allowed unless a role allows it. First the rules for all roles are checked (purpose, residency, joins, the
largest request); then the roles, in the order in which they are written. The first role that fits decides, and its view
of the tables applies; all others are tried too, so that the verdict can say why they do not fit.

A sentence in a verdict is for the requesting user: it is about them and the request, never about other people.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cloister.hub.policy import cost
from cloister.hub.policy.anonymised import ANONYMISE, Protection, unmet
from cloister.hub.policy.conditions import Environment, Grant, Reason, Subject, belongs
from cloister.hub.policy.policy import SEE_SCHEMA, Policy, Role, allowed_join
from cloister.hub.policy.predictions import PREDICT, shows
from cloister.hub.policy.purposes import PURPOSES, covered_by, nearest, offered
from cloister.hub.policy.views import TableView
from cloister.privacy.errors import BadInput, Denied, Refused
from cloister.privacy.loss import Loss

__all__ = [
    "Environment",
    "Grant",
    "Subject",
    "Tried",
    "Verdict",
    "allowed_purposes",
    "covered_purposes",
    "decide",
    "shown_tables",
]


@dataclass(frozen=True, slots=True)
class Tried:
    """Rule that was tried: `the policy` itself or a role, its result, and the reasons."""

    rule: str
    fits: bool
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        sentences = [reason.sentence for reason in self.reasons if self.fits or not reason.holds]
        return f"{self.rule} {'fits' if self.fits else 'does not fit'}: {'; '.join(sentences)}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Decision of a policy.

    Attributes:
        allowed: True if the request is allowed.
        rule: the rule that decided: a role; `purposes`, `residency`, `joins`, `anonymised`, `predictions` or a limit of
            the policy (`per_request`, `per_user`, `period`, `lifetime`); or `default`, since nothing is allowed that no
            role allows.
        policy_number: the version of the policy.
        reasons: every rule that was tried, as sentences.
        view: the visible part of each table. A table that is not in it does not exist for the user; None: every table
            unchanged. Empty if it was denied.
        needs: the required approvals, if the loss is known.
        tried: the parts of `reasons`.
        operation, purpose: the request.
    """

    allowed: bool
    rule: str
    policy_number: int
    reasons: tuple[str, ...]
    view: Mapping[str, TableView] | None
    needs: int
    tried: tuple[Tried, ...]
    operation: str
    purpose: str

    @property
    def sentence(self) -> str:
        """Return the decision in one line."""
        request = f"{self.operation} for {self.purpose}" if self.purpose else self.operation
        if self.allowed:
            return f"{request} is allowed by role {self.rule} of policy {self.policy_number}"
        if self.rule == "default":
            return f"{request} is denied: no role of policy {self.policy_number} allows it"
        return f"{request} is denied by {self.rule} of policy {self.policy_number}"

    def over(self, limit: str, sentence: str) -> "Verdict":
        """Return the refusal of a request that a role allows, by a limit that depends on earlier charges."""
        reason = Reason(False, sentence.rstrip("."))
        tried = (Tried(f"limit {limit}", False, (reason,)), *self.tried)
        reasons = tuple(str(attempt) for attempt in tried)
        return replace(self, allowed=False, rule=limit, reasons=reasons, view={}, needs=0, tried=tried)

    def require(self) -> None:
        """Raise unless the request was allowed.

        Raises:
            Denied: with the rule and the first reasons.
        """
        if not self.allowed:
            sentences = (self.sentence, *self.reasons[:3])
            error = Denied(" ".join(f"{sentence[:1].upper()}{sentence[1:]}." for sentence in sentences))
            error.policy = self.policy_number
            raise error

    def to_json(self) -> dict[str, Any]:
        """Return JSON for the requesting user: with the reasons, which name tables."""
        return {**self.for_audit(), "reasons": list(self.reasons)}

    def for_audit(self) -> dict[str, Any]:
        """Return JSON for the audit log, which operators read: without the sentences, which name tables."""
        return {
            "allowed": self.allowed,
            "operation": self.operation,
            "purpose": self.purpose,
            "rule": self.rule,
            "policy": self.policy_number,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Verdict":
        """Return a verdict from the audit log: its sentences, without the view."""
        reasons = tuple(str(reason) for reason in record["reasons"])
        number, request = int(record["policy"]), (str(record["operation"]), str(record["purpose"]))
        return cls(bool(record["allowed"]), str(record["rule"]), number, reasons, {}, 0, (), *request)


def decide(
    policy: Policy,
    number: int,
    subject: Subject,
    operation: str,
    purpose: str,
    environment: Environment,
    *,
    tables: Collection[str] = (),
    loss: Loss | None = None,
    protection: Protection | None = None,
    show: str = "",
) -> Verdict:
    """Decide on a request. No database, no clock: the same input has the same result.

    Args:
        policy: the dataset's policy.
        number: the version of the policy.
        subject: the requesting user.
        operation: the operation, such as query.
        purpose: the stated purpose; only `see schema`, which reads no row, needs none.
        environment: the time and place.
        tables: the tables of the request, if known.
        loss: the cost, if known.
        protection: the models of an anonymised release, if known.
        show: what is to be shown of a model's predictions, if known.
    """
    policy_rules = [*_whole(policy, operation, purpose, environment, tables, loss, protection, show)]
    refusal = next((rule for rule, reason in policy_rules if not reason.holds), None)
    tried = [_try(role, policy, subject, operation, purpose, environment, tables) for role in policy.roles]
    fitting = next((role for role, attempt in zip(policy.roles, tried, strict=True) if attempt.fits), None)
    allowed = refusal is None and fitting is not None
    general = (
        [Tried("the policy", refusal is None, tuple(reason for _, reason in policy_rules))] if policy_rules else []
    )
    every = (*general, *tried)
    view: Mapping[str, TableView] | None = {}
    if allowed and fitting is not None:
        view = _bound(fitting, subject)
    return Verdict(
        allowed,
        refusal or (fitting.name if fitting is not None else "default"),
        number,
        tuple(str(attempt) for attempt in every),
        view,
        cost.needs(policy, loss) if allowed and loss is not None else 0,
        every,
        operation,
        purpose,
    )


def allowed_purposes(
    policy: Policy, number: int, subject: Subject, operation: str, environment: Environment
) -> tuple[str, ...]:
    """Return every purpose for which this user may do this now, in the vocabulary's order, for a form."""
    stated = (purpose.name for purpose in offered(policy.purposes))
    return tuple(
        purpose for purpose in stated if decide(policy, number, subject, operation, purpose, environment).allowed
    )


def shown_tables(
    policy: Policy, subject: Subject, operation: str, purpose: str, environment: Environment
) -> frozenset[str] | None:
    """Return the tables, in lower case, that any fitting role shows; None: every one.

    Privacy: a message may name only these tables. Other tables do not exist for the user, not even in a refusal.
    """
    names: set[str] = set()
    for role in policy.roles:
        if _try(role, policy, subject, operation, purpose, environment, ()).fits:
            if role.tables is None:
                return None
            names |= {name.lower() for name in role.tables}
    return frozenset(names)


def covered_purposes(policy: Policy, verdict: Verdict, subject: Subject) -> tuple[str, ...]:
    """Return the purposes for which the role that allowed a request allows it: those of its label.

    A role may narrow the policy's purposes, and a role given on request holds for the granted purposes.
    """
    role = next((role for role in policy.roles if role.name == verdict.rule), None)
    if role is None or not verdict.allowed:
        return ()
    wide = role.purposes or policy.purposes
    granted = [grant.purpose for grant in subject.granted if grant.role == role.name]
    if not role.by_request or not all(granted):
        return wide
    return tuple(dict.fromkeys(purpose for purpose in granted if covered_by(purpose, wide) is not None))


def _whole(
    policy: Policy,
    operation: str,
    purpose: str,
    environment: Environment,
    tables: Collection[str],
    loss: Loss | None,
    protection: Protection | None,
    show: str,
) -> Iterator[tuple[str, Reason]]:
    """Check the rules for all roles; return the part of the policy, and the reason."""
    if purpose or operation != SEE_SCHEMA:
        yield "purposes", _purpose(purpose, policy.purposes)
    if policy.residency:
        country = environment.country or "a country it does not state"
        allowed = ", ".join(policy.residency)
        yield (
            "residency",
            Reason(
                environment.country in policy.residency, f"this hub stands in {country}, the data may be in {allowed}"
            ),
        )
    if len({name.lower() for name in tables}) > 1:
        together = allowed_join(policy, tuple(tables))
        listed = ", ".join(sorted(tables))
        yield "joins", Reason(together, f"{listed} may {'' if together else 'not '}be used together")
    if loss is not None and policy.budget.per_request is not None:
        yield "per_request", _affordable(policy, loss)
    if operation == ANONYMISE:
        lacks = () if protection is None else unmet(policy.anonymised, protection)
        yield "anonymised", Reason(not lacks, "; ".join(lacks) or policy.anonymised.sentence)
    if operation == PREDICT:
        rule = policy.predictions
        less = not show or shows(rule.show, show)
        yield "predictions", Reason(less, rule.sentence if less else f"{rule.sentence}, and {show} is more")


def _purpose(purpose: str, allowed: tuple[str, ...]) -> Reason:
    if not purpose:
        return Reason(False, f"no purpose is stated; state one of {', '.join(allowed)}")
    if purpose not in PURPOSES:
        return Reason(False, f"{purpose:.60} is not a purpose. {nearest(purpose)}")
    wide = covered_by(purpose, allowed)
    if wide is None:
        return Reason(False, f"{purpose} is not among the purposes {', '.join(allowed)}")
    return Reason(True, f"{purpose} is allowed" if wide == purpose else f"{purpose} is part of {wide}")


def _affordable(policy: Policy, loss: Loss) -> Reason:
    try:
        cost.refuse_above(policy, loss)
    except (BadInput, Refused) as error:
        return Reason(False, str(error).partition(": ")[2].rstrip("."))
    return Reason(True, f"{loss} is within what one request may cost")


def _try(
    role: Role,
    policy: Policy,
    subject: Subject,
    operation: str,
    purpose: str,
    environment: Environment,
    tables: Collection[str],
) -> Tried:
    reasons = [*_membership(role, subject, purpose), *belongs(role.who, subject, environment)]
    may = operation in role.may
    reasons.append(Reason(may, f"it may {operation}" if may else f"it may not {operation:.80}"))
    if role.purposes and (purpose or operation != SEE_SCHEMA):
        reasons.append(_purpose(purpose, role.purposes))
    reasons += _tables(role, subject, tables)
    return Tried(f"role {role.name}", all(reason.holds for reason in reasons), tuple(reasons))


def _membership(role: Role, subject: Subject, purpose: str) -> Iterator[Reason]:
    if role.by_request:
        grants = [grant for grant in subject.granted if grant.role == role.name]
        fitting = [
            grant for grant in grants if not grant.purpose or not purpose or covered_by(purpose, (grant.purpose,))
        ]
        if fitting:
            yield Reason(True, "your request for it was granted")
        elif grants:
            yield Reason(False, f"your request for it was granted for {grants[0].purpose}, not for {purpose:.60}")
        else:
            yield Reason(False, "it is given on request, and you have no granted request")
    elif role.who.anyone:
        yield Reason(True, "it is for everybody")


def _tables(role: Role, subject: Subject, tables: Collection[str]) -> Iterator[Reason]:
    if role.tables is None:
        return
    visible = {name.lower() for name in role.tables}
    hidden = sorted(name for name in tables if name.lower() not in visible)
    if hidden:
        yield Reason(False, f"it does not see {', '.join(hidden)[:200]}")
    elif tables:
        yield Reason(True, f"it sees {', '.join(sorted(tables))[:200]}")
    missing = {fact for view in role.tables.values() for fact in view.facts()} - set(subject.facts)
    if missing:
        yield Reason(False, f"its rows depend on your {' and '.join(sorted(missing))}, which is not known")


def _bound(role: Role, subject: Subject) -> Mapping[str, TableView] | None:
    if role.tables is None:
        return None
    return {name: view.bound(subject.facts) for name, view in role.tables.items()}

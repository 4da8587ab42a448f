"""Policy as frozen values.

    dataset: visits
    purposes: [health-research, quality-assurance]
    budget:
      lifetime: {epsilon: 2, delta: 1e-7}
      per_user: {rho: 0.05}
      per_request: {rho: 0.02}
      period: {days: 30, rho: 0.1}
      approvals: [{above: {rho: 0.01}, needs: 1}, {above: {rho: 0.05}, needs: 2}]
    reviewers: [steward@hospital.example]
    retention: {days: 365}
    residency: [DE, AT]
    joins: [[visits, wards]]
    anonymised: {at_least: "k=5, l=3", suppression_at_most: 10%, reviewers: 2}
    predictions: {show: rounded 2, rows_per_day: 1000}
    roles:
      analysts:
        who: {roles: [data user], organisations: [University]}
        may: [see schema, query]
        purposes: [health-research]
        tables: {visits: {columns: [ward, age], rows: "ward = 'cardiology'"}}

`reader.read` makes these values from text, `reader.write` the text from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cloister.hub.policy.anonymised import ANONYMISE, Anonymised
from cloister.hub.policy.conditions import Who
from cloister.hub.policy.predictions import PREDICT, PredictionRule
from cloister.hub.policy.views import TableView
from cloister.privacy.loss import Loss

__all__ = ["OPERATIONS", "SEE_SCHEMA", "Approval", "Budget", "Period", "Policy", "Role", "allowed_join"]

SEE_SCHEMA = "see schema"
# Operations of every hub; job types add their own.
OPERATIONS = (SEE_SCHEMA, "query", "profile", "train", "synthesise", ANONYMISE, PREDICT)


@dataclass(frozen=True, slots=True)
class Period:
    """Limit within any period of this many days. It limits the rate, never the total."""

    days: int
    loss: Loss


@dataclass(frozen=True, slots=True)
class Approval:
    """Number of reviewers who must agree to a release above this loss. A loss of zero: to every release."""

    above: Loss
    needs: int


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on what may be spent.

    Attributes:
        lifetime: the limit of all users together, for as long as the data exist; it never changes.
        per_user: the total limit of one user.
        per_request: the limit of one request.
        period: the limit of all users together within some days.
        approvals: the number of required approvals, by loss.
    """

    lifetime: Loss
    per_user: Loss | None = None
    per_request: Loss | None = None
    period: Period | None = None
    approvals: tuple[Approval, ...] = ()


@dataclass(frozen=True, slots=True)
class Role:
    """Role: its members, and what they may do.

    Attributes:
        name: the name of the role, in this policy.
        who: the conditions that must all hold.
        may: the allowed operations.
        purposes: a narrower list than the policy's; empty: the policy's.
        tables: the view of each table; None: every table unchanged.
        by_request: True if only users with a granted request are members.
    """

    name: str
    who: Who
    may: tuple[str, ...]
    purposes: tuple[str, ...] = ()
    tables: Mapping[str, TableView] | None = None
    by_request: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules of a dataset's owner. Everything that they do not allow is refused.

    Attributes:
        dataset: the name of the dataset.
        purposes: the allowed purposes.
        budget: the limits on the loss.
        roles: the roles, tried in this order.
        reviewers: the e-mail addresses of users who may decide on requests, besides the owner.
        joins: the tables that may be used together; None: any.
        residency: the countries in which the data and derived results may be stored; empty: anywhere.
        retention_days: the time for which derived results may be kept; None: unlimited.
        anonymised: the rule for anonymised releases, for roles that may make them.
        predictions: the rule for the predictions of trained models, for roles that may ask them.
    """

    dataset: str
    purposes: tuple[str, ...]
    budget: Budget
    roles: tuple[Role, ...]
    reviewers: tuple[str, ...] = ()
    joins: tuple[tuple[str, ...], ...] | None = ()
    residency: tuple[str, ...] = ()
    retention_days: int | None = None
    anonymised: Anonymised = field(default_factory=Anonymised)
    predictions: PredictionRule = field(default_factory=PredictionRule)

    def role(self, name: str) -> Role | None:
        """Return the role of that name."""
        return next((role for role in self.roles if role.name == name), None)


def allowed_join(policy: Policy, tables: "frozenset[str] | set[str] | tuple[str, ...] | list[str]") -> bool:
    """Return True if these tables may be used together in one request: some line of `joins` lists them all.

    Privacy: a line [visits, wards] and a line [wards, streets] do not allow all three: two links together
    reveal more than each of them (ACC-10; the correlation attack of a hospital's and a pharmacy's data).
    """
    used = {name.lower() for name in tables}
    if len(used) < 2 or policy.joins is None:
        return True
    return any(used <= {name.lower() for name in line} for line in policy.joins)

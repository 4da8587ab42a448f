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
    roles:
      analysts:
        who: {roles: [data user], organisations: [University]}
        may: [see schema, query]
        purposes: [health-research]
        tables: {visits: {columns: [ward, age], rows: "ward = 'cardiology'"}}

`reader.read` makes these values from text, `reader.write` the text from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cloister.hub.policy.conditions import Who
from cloister.hub.policy.views import TableView
from cloister.privacy.loss import Loss

__all__ = ["OPERATIONS", "SEE_SCHEMA", "Approval", "Budget", "Period", "Policy", "Role", "allowed_join"]

SEE_SCHEMA = "see schema"
# Operations that every hub knows; kinds of work bring their own words.
OPERATIONS = (SEE_SCHEMA, "query", "profile", "train", "synthesise")


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
        lifetime: by everybody together, for as long as the data exist; it never changes.
        per_user: by one person in all.
        per_request: at once.
        period: by everybody together within some days.
        approvals: from which loss on how many people must agree.
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
        name: of the role, in this policy.
        who: the conditions that must all hold.
        may: operations, as plain words.
        purposes: a narrower list than the policy's; empty: the policy's.
        tables: what they see of which table; None: every table as it is.
        by_request: whether only those belong whose request for access was granted.
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
        dataset: its name.
        purposes: what the data may be used for.
        budget: what it may cost.
        roles: tried in this order.
        reviewers: e-mail addresses of those who may decide about requests, besides the owner.
        joins: which tables may be used together; None: any.
        residency: in which countries the data and what is derived from them may be; empty: anywhere.
        retention_days: for how long what is derived from the data may be kept; None: for good.
    """

    dataset: str
    purposes: tuple[str, ...]
    budget: Budget
    roles: tuple[Role, ...]
    reviewers: tuple[str, ...] = ()
    joins: tuple[tuple[str, ...], ...] | None = ()
    residency: tuple[str, ...] = ()
    retention_days: int | None = None

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

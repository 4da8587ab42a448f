"""Writer of a policy's text. `reader.read` reads the same values back."""

from typing import Any

from cloister.hub.policy.anonymised import Anonymised, share_text
from cloister.hub.policy.conditions import Who
from cloister.hub.policy.cost import exact
from cloister.hub.policy.policy import Budget, Policy, Role
from cloister.hub.policy.predictions import PredictionRule
from cloister.hub.policy.text.yaml_page import to_yaml
from cloister.hub.policy.views import TableView
from cloister.privacy.errors import BadPolicy
from cloister.privacy.loss import Loss, Relation

__all__ = ["plain", "plain_loss", "plain_predictions", "write"]


def write(policy: Policy) -> str:
    """Return the policy as YAML, exactly."""
    return to_yaml(plain(policy))


def plain(policy: Policy) -> dict[str, Any]:
    """Return the policy's text as strings, lists and mappings."""
    page: dict[str, Any] = {
        "dataset": policy.dataset,
        "purposes": list(policy.purposes),
        "budget": _budget(policy.budget),
    }
    if policy.reviewers:
        page["reviewers"] = list(policy.reviewers)
    if policy.retention_days is not None:
        page["retention"] = {"days": str(policy.retention_days)}
    if policy.residency:
        page["residency"] = list(policy.residency)
    if policy.joins is None:
        page["joins"] = "any"
    elif policy.joins:
        page["joins"] = [list(line) for line in policy.joins]
    if policy.anonymised != Anonymised():
        page["anonymised"] = {
            "at_least": policy.anonymised.at_least,
            "suppression_at_most": share_text(policy.anonymised.suppression_at_most),
            "reviewers": str(policy.anonymised.reviewers),
        }
    if policy.predictions != PredictionRule():
        page["predictions"] = plain_predictions(policy.predictions)
    page["roles"] = {role.name: _role(role) for role in policy.roles}
    return page


def plain_predictions(rule: PredictionRule) -> dict[str, str]:
    """Return the rule for predictions as the text states it."""
    rows = {} if rule.rows_per_day is None else {"rows_per_day": str(rule.rows_per_day)}
    return {"show": rule.show, **rows}


def plain_loss(loss: Loss) -> dict[str, str]:
    """Return a loss as the text states it."""
    if loss.relation is not Relation.ADD_REMOVE:
        raise BadPolicy(f"a policy speaks of {Relation.ADD_REMOVE} losses, this one is {loss.relation}.")
    stated: dict[str, str] = {loss.measure: exact(loss.amount)}
    return stated | {"delta": exact(loss.delta)} if loss.delta else stated


def _budget(budget: Budget) -> dict[str, Any]:
    stated: dict[str, Any] = {"lifetime": plain_loss(budget.lifetime)}
    if budget.per_user is not None:
        stated["per_user"] = plain_loss(budget.per_user)
    if budget.per_request is not None:
        stated["per_request"] = plain_loss(budget.per_request)
    if budget.period is not None:
        stated["period"] = {"days": str(budget.period.days), **plain_loss(budget.period.loss)}
    if budget.approvals:
        stated["approvals"] = [
            {"above": plain_loss(approval.above) if approval.above.amount else "nothing", "needs": str(approval.needs)}
            for approval in budget.approvals
        ]
    return stated


def _role(role: Role) -> dict[str, Any]:
    stated: dict[str, Any] = {}
    if not (role.by_request and role.who == Who(anyone=True)):
        stated["who"] = "anyone" if role.who.anyone else _who(role.who)
    if role.by_request:
        stated["by_request"] = "true"
    stated["may"] = list(role.may)
    if role.purposes:
        stated["purposes"] = list(role.purposes)
    if role.tables is not None:
        stated["tables"] = {name: _view(view) for name, view in role.tables.items()}
    return stated


def _who(who: Who) -> dict[str, Any]:
    lists = {
        "people": who.people,
        "organisations": who.organisations,
        "roles": who.roles,
        "countries": who.countries,
        "networks": tuple(str(network) for network in who.networks),
    }
    stated: dict[str, Any] = {name: list(values) for name, values in lists.items() if values}
    words = {"from": who.start, "until": who.until, "hours": who.hours}
    return stated | {name: str(value) for name, value in words.items() if value is not None}


def _view(view: TableView) -> Any:
    stated: dict[str, Any] = {}
    if view.columns is not None:
        stated["columns"] = list(view.columns)
    if view.rows is not None:
        stated["rows"] = view.rows
    if view.transforms:
        stated["transforms"] = dict(view.transforms)
    return stated or "all"

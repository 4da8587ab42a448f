"""Common fields of a policy as a form over its text.

Parts that the form does not show (networks, times, columns, rows, joins, further thresholds of approvals) stay
unchanged. The result is the policy's text, which is then read, checked and published like any other.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cloister.hub.policy.cost import described, parse
from cloister.hub.policy.policy import Policy
from cloister.hub.policy.predictions import PredictionRule
from cloister.hub.policy.text.writer import plain, plain_loss, plain_predictions
from cloister.hub.policy.text.yaml_page import to_yaml
from cloister.privacy.errors import BadForm, BadInput
from cloister.privacy.loss import Loss

__all__ = ["SentForm", "edited", "limits"]

_LISTS = ("people", "organisations", "roles", "countries")


class SentForm(Protocol):
    """Submitted form."""

    def get(self, name: str, otherwise: str, /) -> str:
        """Return a field, or a default."""

    def all(self, name: str) -> list[str]:
        """Return every value of a field that may be repeated."""


def limits(policy: Policy) -> dict[str, str]:
    """Return the limits as the form shows them."""
    budget = policy.budget
    thresholds: dict[int, str] = {}
    for approval in budget.approvals:
        thresholds.setdefault(approval.needs, _shown(approval.above))  # the first; others stay (see `_approvals`)
    return {
        "per_user": "" if budget.per_user is None else described(budget.per_user),
        "per_request": "" if budget.per_request is None else described(budget.per_request),
        "period_days": "" if budget.period is None else str(budget.period.days),
        "period": "" if budget.period is None else described(budget.period.loss),
        "one_above": thresholds.get(1, ""),
        "two_above": thresholds.get(2, ""),
    }


def edited(policy: Policy, sent: SentForm) -> str:
    """Return the policy's text after the form's changes.

    Raises:
        BadForm: a field cannot be read; the reader of the text reports everything else.
    """
    page = plain(policy)
    page["purposes"] = sent.all("purposes")
    page["budget"] = {"lifetime": page["budget"]["lifetime"], **_limits(page["budget"], sent)}
    _put(page, "reviewers", _words(sent.get("reviewers", "")))
    _put(page, "residency", _words(sent.get("residency", "")))
    days = sent.get("retention", "").strip()
    _put(page, "retention", {"days": days} if days else {})
    _put(page, "predictions", _predictions(sent))
    page["roles"] = _roles(page.pop("roles"), sent)  # last, as `write` has it
    return to_yaml(page)


def _predictions(sent: SentForm) -> dict[str, str]:
    """Return the rule for predictions, or nothing if it is the usual one; the reader of the text checks it."""
    show, rows = sent.get("predictions_show", "").strip(), sent.get("predictions_rows", "").strip()
    stated = {"show": show or PredictionRule().show, **({"rows_per_day": rows} if rows else {})}
    return {} if stated == plain_predictions(PredictionRule()) else stated


def _limits(before: Mapping[str, Any], sent: SentForm) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for name, label in (("per_user", "Each person in all"), ("per_request", "One request")):
        loss = _loss(sent, name, label)
        if loss:
            limits[name] = loss
    period, days = _loss(sent, "period", "Everybody within some days"), sent.get("period_days", "").strip()
    if period or days:
        if not (period and days):
            raise BadForm("'Everybody within some days' needs both a loss and a number of days.")
        limits["period"] = {"days": days, **period}
    approvals = _approvals(before.get("approvals", ()), sent)
    if approvals:
        limits["approvals"] = approvals
    return limits


def _approvals(before: Sequence[Mapping[str, Any]], sent: SentForm) -> list[Mapping[str, Any]]:
    """Return the thresholds of approvals: the form shows the first one of each number of people, the others stay."""
    boxes: dict[str, Any] = {}
    for needs, name in (("1", "one_above"), ("2", "two_above")):
        text = sent.get(name, "").strip()
        boxes[needs] = text if text == "nothing" else _loss(sent, name, "Somebody must agree above")
    after: list[Mapping[str, Any]] = []
    for line in before:
        edited_line = {"above": boxes.pop(line["needs"]), "needs": line["needs"]} if line["needs"] in boxes else line
        if edited_line["above"] and edited_line not in after:
            after.append(edited_line)
    return after + [{"above": above, "needs": needs} for needs, above in boxes.items() if above]


def _roles(before: Mapping[str, Any], sent: SentForm) -> dict[str, Any]:
    """Return roles by their position in the form: `role-1-name` …; without those that have no name or are removed."""
    after: dict[str, Any] = {}
    for number in sent.all("role"):
        field = f"role-{number}"
        name = sent.get(f"{field}-name", "").strip()
        if not name or sent.get(f"{field}-gone", ""):
            continue
        if name in after:
            raise BadForm(f"two roles are called {name:.60}. Give one another name.")
        after[name] = _role(before.get(sent.get(f"{field}-was", ""), {}), sent, field)
    return after


def _role(before: Mapping[str, Any], sent: SentForm, field: str) -> dict[str, Any]:
    who = before.get("who", {})
    conditions: dict[str, Any] = dict(who) if isinstance(who, Mapping) else {}
    for name in _LISTS:
        text = sent.get(f"{field}-{name}", "")
        lines = [line.strip() for line in text.splitlines() if line.strip()]  # an organisation's name may have commas
        values = {"roles": sent.all(f"{field}-{name}"), "organisations": lines}.get(name, _words(text))
        _put(conditions, name, values)
    role: dict[str, Any] = {}
    if sent.get(f"{field}-by_request", ""):
        role["by_request"] = "true"
    if conditions:
        role["who"] = conditions
    elif sent.get(f"{field}-anyone", ""):
        role["who"] = "anyone"
    role["may"] = _words(sent.get(f"{field}-may", ""))
    purposes = _words(sent.get(f"{field}-purposes", ""))
    if purposes:
        role["purposes"] = purposes
    if "tables" in before:
        role["tables"] = before["tables"]
    return role


def _put(page: dict[str, Any], name: str, value: Any) -> None:
    if value:
        page[name] = value
    else:
        page.pop(name, None)


def _loss(sent: SentForm, name: str, label: str) -> dict[str, str]:
    text = sent.get(name, "").strip()
    try:
        return plain_loss(parse(text)) if text else {}
    except BadInput as error:
        raise BadForm(f"'{label}': {str(error).partition(': ')[2]}") from None


def _shown(above: Loss) -> str:
    return described(above) if above.amount else "nothing"


def _words(text: str) -> list[str]:
    return [word.strip() for line in text.splitlines() for word in line.split(",") if word.strip()]

"""The form writes the same page."""

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.datastructures import FormData

from cloister.hub.policy.policy import Approval
from cloister.hub.policy.text.form import edited, limits
from cloister.hub.policy.text.reader import read
from cloister.hub.web.forms import Form
from cloister.privacy.errors import BadForm, BadPolicy
from cloister.privacy.loss import rho

PAGE = (Path(__file__).parent / "policies" / "payroll.yaml").read_text()


def browser_sends(fields):
    """What a browser would send."""
    return Form(FormData([(name, one) for name, value in fields.items() for one in _several(value)]))


def _several(value):
    return value if isinstance(value, list) else [value]


def as_shown(policy):
    """The form as the page draws it, sent back untouched."""
    sent = {"purposes": list(policy.purposes), **limits(policy)}
    sent["reviewers"], sent["residency"] = "\n".join(policy.reviewers), ", ".join(policy.residency)
    sent["retention"] = str(policy.retention_days or "")
    sent["role"] = [str(i) for i in range(1, len(policy.roles) + 2)]
    for i, role in enumerate(policy.roles, 1):
        at = f"role-{i}"
        sent |= {f"{at}-name": role.name, f"{at}-was": role.name, f"{at}-may": ", ".join(role.may)}
        sent |= {f"{at}-people": "\n".join(role.who.people), f"{at}-organisations": "\n".join(role.who.organisations)}
        sent |= {f"{at}-roles": list(role.who.roles), f"{at}-countries": ", ".join(role.who.countries)}
        sent |= {f"{at}-purposes": ", ".join(role.purposes)}
        if role.by_request:
            sent[f"{at}-by_request"] = "yes"
        if role.who.anyone:
            sent[f"{at}-anyone"] = "yes"
    return sent


def test_a_form_sent_back_untouched_changes_nothing():
    policy = read(PAGE)
    assert read(edited(policy, browser_sends(as_shown(policy)))) == policy


def test_limits_are_edited_in_their_boxes():
    policy = read(PAGE)
    sent = as_shown(policy) | {"per_user": "rho 0.02", "per_request": "", "period": "rho 0.01", "period_days": "7"}
    budget = read(edited(policy, browser_sends(sent))).budget
    assert (budget.per_user, budget.per_request) == (rho("0.02"), None)
    assert (budget.period.days, budget.period.loss) == (7, rho("0.01"))


def test_every_release_can_be_made_to_need_an_approval():
    policy = read(PAGE)
    budget = read(edited(policy, browser_sends(as_shown(policy) | {"one_above": "nothing", "two_above": ""}))).budget
    assert [(one.above.amount, one.needs) for one in budget.approvals] == [(0, 1)]


SEVERAL = [("0.001", 1), ("0.1", 1), ("0.02", 2), ("0.2", 2), ("0.01", 1)]


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"retention": "90"}, [("0.001", 1), ("0.02", 2)]),
        ({"one_above": "rho 0.005"}, [("0.005", 1), ("0.02", 2)]),
        ({"one_above": "rho 0.1", "two_above": ""}, [("0.1", 1)]),
        ({"one_above": "", "two_above": ""}, []),
    ],
)
def test_thresholds_of_approvals_that_the_form_does_not_show_stay(changes, first):
    policy = read(PAGE)
    thresholds = tuple(Approval(rho(above), needs) for above, needs in SEVERAL)
    policy = replace(policy, budget=replace(policy.budget, approvals=thresholds))
    assert read(edited(policy, browser_sends(as_shown(policy)))) == policy
    after = read(edited(policy, browser_sends(as_shown(policy) | changes))).budget.approvals
    hidden = [SEVERAL[1], SEVERAL[3], SEVERAL[4]]
    wanted = {(rho(above), needs) for above, needs in first + hidden}
    assert {(approval.above, approval.needs) for approval in after} == wanted
    assert len(after) == len(wanted)


def test_the_lifetime_is_not_in_the_form():
    policy = read(PAGE)
    sent = browser_sends(as_shown(policy) | {"lifetime": "epsilon 100"})
    assert read(edited(policy, sent)).budget.lifetime == policy.budget.lifetime


def test_a_role_is_added_renamed_and_removed():
    policy = read(PAGE)
    sent = as_shown(policy)
    sent |= {"role-4-name": "guests", "role-4-may": "query", "role-4-organisations": "Smith, Jones & Co"}
    sent |= {"role-2-name": "staff", "role-1-gone": "yes"}
    after = read(edited(policy, browser_sends(sent)))
    assert [role.name for role in after.roles] == ["staff", "auditors", "guests"]
    assert after.role("staff").tables == policy.role("human resources").tables
    assert after.role("staff").who.networks == policy.role("human resources").who.networks
    assert after.role("guests").who.organisations == ("Smith, Jones & Co",)


def test_a_role_for_nobody_in_particular_is_refused_unless_everybody_is_ticked():
    policy = read(PAGE)
    sent = as_shown(policy) | {"role-4-name": "guests", "role-4-may": "query"}
    with pytest.raises(BadPolicy, match=r"roles\.guests: say who"):
        read(edited(policy, browser_sends(sent)))
    assert read(edited(policy, browser_sends(sent | {"role-4-anyone": "yes"}))).role("guests").who.anyone


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ({"per_user": "a lot"}, "'Each person in all': write a loss like"),
        ({"period": "rho 1"}, "needs both"),
        ({"role-2-name": "managers"}, "two roles are called managers"),
    ],
)
def test_a_box_that_cannot_be_read_is_named(field, told):
    policy = read(PAGE)
    with pytest.raises(BadForm, match=told):
        edited(policy, browser_sends(as_shown(policy) | field))

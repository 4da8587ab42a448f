"""Approvals: requests for a role or for a release above a threshold, and decisions on them.

reviewers.py  who may decide: the owner and the reviewers in the policy; never the requester
access.py     requests for a role of the policy; granted roles
release.py    requests for a release whose cost needs approval; the effect of a decision on its job
decision.py   agree, deny, comment, withdraw, revoke, expire
mail.py       notifications by e-mail
visibility.py datasets and jobs that a user may see
"""

from cloister.hub.approvals.access import ask_access, granted_roles
from cloister.hub.approvals.decision import comment, decide, expire, find, revoke, withdraw
from cloister.hub.approvals.release import ask_release, close_for
from cloister.hub.approvals.reviewers import may_decide, reviewers
from cloister.hub.core.notices import tell

__all__ = [
    "ask_access",
    "ask_release",
    "close_for",
    "comment",
    "decide",
    "expire",
    "find",
    "granted_roles",
    "may_decide",
    "reviewers",
    "revoke",
    "tell",
    "withdraw",
]

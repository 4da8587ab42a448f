"""Asking, and deciding about it: for access to a role, or for a release above a threshold.

reviewers.py  who may decide: the owner and whom the policy names; never oneself
access.py     ask for a role of the policy; which roles somebody was granted
release.py    ask for a release whose cost needs approval; what a decision does to its job
decision.py   agree, deny, comment, withdraw, revoke, expire
notices.py    tell people, on the page
mail.py       and by e-mail
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

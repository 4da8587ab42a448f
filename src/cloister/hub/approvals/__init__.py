"""Approvals: requests for a role or for a release above a threshold, and decisions on them.

requests.py    requests for a role or for a release; who may decide; the effect of a decision on a waiting job
decision.py    agree, deny, comment, withdraw, revoke, expire
mail.py        notifications by e-mail
visibility.py  datasets and jobs that a user may see; roles that were granted to them
"""

from cloister.hub.approvals.decision import comment, decide, expire, find, revoke, withdraw
from cloister.hub.approvals.requests import ask_access, ask_release, close_for, may_decide, reviewers
from cloister.hub.approvals.visibility import granted_roles
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

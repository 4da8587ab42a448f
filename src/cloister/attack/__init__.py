"""Attacks that test privacy claims.

    mechanisms/  audits of mechanisms and training functions: epsilon from samples, exactly, or from one run
    queries/     differencing, averaging, trackers, reconstruction
    tables/      linkage, disclosure, intersection and minimality of released tables
      finding.py    result of an attack: knowledge, success beside guessing, curve, bound on epsilon, remedies
      intervals.py  bounds that a claim allows and that sample counts prove

Nothing here charges a ledger: an attack runs on synthetic inputs, or on releases that were charged.
"""

import warnings

from cloister.attack.finding import Finding
from cloister.attack.mechanisms.audit import Audit, Batched, audit
from cloister.attack.mechanisms.audit_one_run import OneRunAudit, audit_one_run
from cloister.attack.mechanisms.events import OutputFeature
from cloister.attack.mechanisms.exact import audit_exact

__all__ = ["Audit", "Batched", "Finding", "OneRunAudit", "OutputFeature", "audit", "audit_exact", "audit_one_run"]


def __getattr__(name: str) -> object:
    if name == "Feature":
        warnings.warn("attack.Feature is called attack.OutputFeature now.", DeprecationWarning, stacklevel=2)
        return OutputFeature
    raise AttributeError(f"cloister.attack has no {name!r}.")

"""Attacks that test privacy claims.

    audit.py         lower bound on the epsilon of a mechanism from samples, with a verdict and a picture
    exact.py         exact epsilon where the output distributions are known
      outputs.py       outputs of a mechanism as a matrix of numbers
      events.py        sets of outputs that distinguish two inputs
      intervals.py     bounds that a claim allows and that sample counts prove
      chart.py         picture of an audit
    audit_one_run.py lower bound on the epsilon of a training function from one run with many canaries
    floating.py      the doubles that textbook noise can reach, and the order in which floats were summed
    differencing.py  two exact averages reveal the person between them
    averaging.py     repeating a query averages the noise away
    tracker.py       refused answers, computed from allowed ones
    reconstruction.py  tables consistent with published statistics

Nothing here charges a ledger: an attack runs on synthetic inputs, or on releases that were charged.
"""

import warnings

from cloister.attack.audit import Audit, Batched, audit
from cloister.attack.audit_one_run import OneRunAudit, audit_one_run
from cloister.attack.events import OutputFeature
from cloister.attack.exact import audit_exact

__all__ = ["Audit", "Batched", "OneRunAudit", "OutputFeature", "audit", "audit_exact", "audit_one_run"]


def __getattr__(name: str) -> object:
    if name == "Feature":
        warnings.warn("attack.Feature is called attack.OutputFeature now.", DeprecationWarning, stacklevel=2)
        return OutputFeature
    raise AttributeError(f"cloister.attack has no {name!r}.")

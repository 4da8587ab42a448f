"""Attacks on claims: what a doubter runs before believing an epsilon.

    audit.py         is this mechanism as private as it says? a lower bound on epsilon, a verdict, a picture
    exact.py         the same where the laws of the output are known
      outputs.py       whatever a mechanism returned, as a matrix of numbers
      events.py        which sets of outputs tell two inputs apart
      intervals.py     what a claim allows, and what counts of samples prove
      chart.py         the audit drawn
    floating.py      the doubles that textbook noise can reach, and the order in which floats were summed
    differencing.py  two honest averages give away the person between them
    averaging.py     the same question asked again and again wears the noise off
    tracker.py       refused answers, put together from those that are given
    reconstruction.py  the tables that fit what was published

Nothing here pays a ledger: an attack runs on made-up inputs, or on releases that were paid for.
"""

import warnings

from cloister.attack.audit import Audit, Batched, audit
from cloister.attack.events import OutputFeature
from cloister.attack.exact import audit_exact

__all__ = ["Audit", "Batched", "OutputFeature", "audit", "audit_exact"]


def __getattr__(name: str) -> object:
    if name == "Feature":
        warnings.warn("attack.Feature is called attack.OutputFeature now.", DeprecationWarning, stacklevel=2)
        return OutputFeature
    raise AttributeError(f"cloister.attack has no {name!r}.")

"""Attacks that test privacy claims.

    mechanisms/  audits of mechanisms and training functions: epsilon from samples, exactly, or from one run
    queries/     differencing, averaging, trackers, reconstruction
    models/      membership, attributes, inversion, extraction and stealing of models
    tables/      linkage, disclosure, intersection and minimality of released tables
      finding.py    result of an attack: knowledge, success beside guessing, curve, bound on epsilon, remedies
      intervals.py  bounds that a claim allows and that sample counts prove

Nothing here charges a ledger: an attack runs on synthetic inputs, or on releases that were charged.

Names are imported on first use.
"""

from typing import TYPE_CHECKING

from cloister.lazy import door

if TYPE_CHECKING:
    from cloister.attack.finding import Finding
    from cloister.attack.mechanisms.audit import Audit, Batched, audit
    from cloister.attack.mechanisms.audit_one_run import OneRunAudit, audit_one_run
    from cloister.attack.mechanisms.events import OutputFeature
    from cloister.attack.mechanisms.exact import audit_exact
    from cloister.attack.models.attribute import attribute
    from cloister.attack.models.extraction import canary_exposure, stored_rows
    from cloister.attack.models.inversion import inversion
    from cloister.attack.models.membership import membership, membership_suite
    from cloister.attack.models.membership_finding import membership_of_scores
    from cloister.attack.models.stealing import steal, watermark
    from cloister.attack.models.target import Target

__all__ = [
    "Audit",
    "Batched",
    "Finding",
    "OneRunAudit",
    "OutputFeature",
    "Target",
    "attribute",
    "audit",
    "audit_exact",
    "audit_one_run",
    "canary_exposure",
    "inversion",
    "membership",
    "membership_of_scores",
    "membership_suite",
    "steal",
    "stored_rows",
    "watermark",
]

# No file may share a name exported here: importing the module would shadow that name.
__getattr__, __dir__ = door(__name__, renamed={"Feature": "attack.OutputFeature"})

"""Attacks that test privacy claims.

    mechanisms/  audits of mechanisms and training functions: epsilon from samples, exactly, or from one run
    queries/     differencing, averaging, trackers, reconstruction
    models/      membership, attributes, inversion, extraction and stealing of models; poisoning, evasion
    updates/     records behind gradients and federated updates, with and without defences
    tables/      linkage, disclosure, intersection and minimality of released tables; synthetic tables
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
    from cloister.attack.mechanisms.worst_case import audit_worst, neighbour_patterns
    from cloister.attack.models.attribute import attribute
    from cloister.attack.models.evasion import evasion
    from cloister.attack.models.extraction import canary_exposure, stored_rows
    from cloister.attack.models.inversion import inversion
    from cloister.attack.models.membership import membership, membership_suite
    from cloister.attack.models.membership_finding import membership_of_scores
    from cloister.attack.models.poisoning import back_door, poison_round, poison_survey, poison_training
    from cloister.attack.models.stealing import steal, watermark
    from cloister.attack.models.target import Target
    from cloister.attack.updates.closed_form import record_leak
    from cloister.attack.updates.defences import Defence, compare_defences
    from cloister.attack.updates.fedavg import LocalTraining, training_leak
    from cloister.attack.updates.inversion import image_leak
    from cloister.attack.updates.tabular import table_leak
    from cloister.attack.updates.update import GradientStep

__all__ = [
    "Audit",
    "Batched",
    "Defence",
    "Finding",
    "GradientStep",
    "LocalTraining",
    "OneRunAudit",
    "OutputFeature",
    "Target",
    "attribute",
    "audit",
    "audit_exact",
    "audit_one_run",
    "audit_worst",
    "back_door",
    "canary_exposure",
    "compare_defences",
    "evasion",
    "image_leak",
    "inversion",
    "membership",
    "membership_of_scores",
    "membership_suite",
    "neighbour_patterns",
    "poison_round",
    "poison_survey",
    "poison_training",
    "record_leak",
    "steal",
    "stored_rows",
    "table_leak",
    "training_leak",
    "watermark",
]

# No file may share a name exported here: importing the module would shadow that name.
_EXTRA = "attacks on updates need jax and optax. Run pip install 'cloister[jax]'."
__getattr__, __dir__ = door(
    __name__, renamed={"Feature": "attack.OutputFeature"}, extras={"jax": _EXTRA, "optax": _EXTRA}
)

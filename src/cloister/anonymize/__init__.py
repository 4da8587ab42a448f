"""Anonymised releases of rows: classical models and operations, checked independently, with the attacks that remain.

    from cloister import anonymize as an
    release = an.recode(frame, quasi=["age", "zip"], sensitive=["disease"], require=an.KAnonymity(5), suppression=0.05)
    release.to_csv("visits-k5.csv")                                           # verified, then written
    print(an.risk(release.rows, quasi=["age", "zip"], sensitive=["disease"]))   # who is found, what is learned

    what it must satisfy   models.py: KAnonymity, DistinctDiversity … TCloseness, BetaLikeness, KMap, DeltaPresence
    what values become     hierarchy.py: Hierarchy.read_csv, intervals, dates, masking, tree
    what is removed        suppression.py
    how                    release.py: recode, mondrian; algorithms/: lattice.py (the proven optimum), partition.py
                           (Mondrian), clustering.py (cluster), specialisation.py (top_down), local_suppression.py
                           (suppress_cells), repeated.py (republish: several releases), item_sets.py (anonymise_sets)
    what was lost          utility.py
    is it true             checking/: check gives every model's value for any table; shares no code with the algorithms
    what is left           risks/: attackers.py (risk), population.py (uniqueness); attack.tables
    in words and files     planning/: models and hierarchies as text, the plan; report/: one page
    on columns and rows    operations/: masking, rounding, noise, swapping, micro-aggregation, anatomy, pseudonyms …
    rules                  mining/: frequent itemsets, association rules, rule hiding

None of this is differential privacy, and every release says so.
"""

from typing import TYPE_CHECKING

from cloister.lazy import door

if TYPE_CHECKING:
    from cloister.anonymize import mining, operations
    from cloister.anonymize.algorithms.clustering import cluster
    from cloister.anonymize.algorithms.item_sets import AnonymizedSets, anonymise_sets
    from cloister.anonymize.algorithms.local_suppression import suppress_cells
    from cloister.anonymize.algorithms.repeated import InvariantRelease, republish
    from cloister.anonymize.algorithms.specialisation import top_down
    from cloister.anonymize.checking.verifier import Checked, check
    from cloister.anonymize.hierarchy import Hierarchy
    from cloister.anonymize.models import (
        AlphaK,
        BetaLikeness,
        DeltaPresence,
        DistinctDiversity,
        EntropyDiversity,
        FrequencyDiversity,
        JointDiversity,
        KAnonymity,
        KMap,
        RecursiveDiversity,
        TCloseness,
    )
    from cloister.anonymize.planning.plan import plan_release
    from cloister.anonymize.planning.request import parse_models
    from cloister.anonymize.protect import Protect
    from cloister.anonymize.release import mondrian, recode
    from cloister.anonymize.risks.attackers import RiskReport, risk
    from cloister.anonymize.table import AnonymizedTable
    from cloister.anonymize.transformer import Anonymizer
    from cloister.anonymize.utility import Utility

__all__ = [
    "recode",
    "mondrian",
    "cluster",
    "top_down",
    "suppress_cells",
    "republish",
    "InvariantRelease",
    "anonymise_sets",
    "AnonymizedSets",
    "AnonymizedTable",
    "Hierarchy",
    "KAnonymity",
    "DistinctDiversity",
    "FrequencyDiversity",
    "EntropyDiversity",
    "RecursiveDiversity",
    "JointDiversity",
    "TCloseness",
    "AlphaK",
    "BetaLikeness",
    "KMap",
    "DeltaPresence",
    "Utility",
    "plan_release",
    "parse_models",
    "Protect",
    "Anonymizer",
    "check",
    "Checked",
    "risk",
    "RiskReport",
    "operations",
    "mining",
]

__getattr__, __dir__ = door(__name__)

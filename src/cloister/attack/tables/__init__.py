"""Attacks on released tables: each is a function that returns the risk of every record, and remedies.

    matching.py     join with a list of known people: linkage, identification, correlation
    scoring.py      linkage in spite of errors, by scores
    sparse.py       linkage of ratings, purchases, visits by rare items
    disclosure.py   attribute disclosure from one release: homogeneity, background knowledge, skewness, similarity
    releases.py     intersection of several releases; minimality of the algorithm
    unique_rows.py  few columns that make rows unique
    synthetic/      copies, closest rows, membership and singling out in synthetic tables
      result.py       result of an attack
      labels.py       generalised labels such as 20-29, 2001-Q2, 236**, read as intervals, periods, masks and sets
      generalised.py  the values that a label stands for
      columns.py      columns as codes, equivalence classes

Privacy: none. Attacks read tables without noise; their results are for the owner.
"""

from typing import TYPE_CHECKING

from cloister.lazy import door

if TYPE_CHECKING:
    from cloister.attack.tables.disclosure import background_knowledge, homogeneity, similarity, skewness
    from cloister.attack.tables.matching import Linkage, correlation, identification, linkage
    from cloister.attack.tables.releases import Intersection, Minimality, intersection, minimality
    from cloister.attack.tables.result import TableAttack
    from cloister.attack.tables.scoring import ScoredLinkage, scored_linkage
    from cloister.attack.tables.sparse import SparseLinkage, sparse_linkage
    from cloister.attack.tables.unique_rows import Uniqueness, uniqueness

__all__ = [
    "Intersection",
    "Linkage",
    "Minimality",
    "ScoredLinkage",
    "SparseLinkage",
    "TableAttack",
    "Uniqueness",
    "background_knowledge",
    "correlation",
    "homogeneity",
    "identification",
    "intersection",
    "linkage",
    "minimality",
    "scored_linkage",
    "similarity",
    "skewness",
    "sparse_linkage",
    "uniqueness",
]

__getattr__, __dir__ = door(__name__)

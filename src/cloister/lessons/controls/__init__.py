"""Controls of statistical databases, in addition to noise and never instead of it.

    guarded = Controls([MinimumSize(20), Rounded(5)]).wrap(ds)
    guarded.sql("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward", spend=rho("0.01"), analyst="ada")

Every control here decides from the request, from public facts, or from noisy answers. So no refusal leaks anything, and
no control changes the loss of an answer: controls claim no epsilon, and the guarantee is the dataset's. They prevent
misreading: tables of tiny counts, digits that are all noise. The textbook versions, applied to true sizes, are in
`cloister.lessons.sql`, each with the attack that defeats it.
"""

from cloister.lessons.controls.answers import MinimumSize, RangeAnswers, Rounded, SmallCells
from cloister.lessons.controls.control import Control, History
from cloister.lessons.controls.guarded import Controls, Guarded
from cloister.lessons.controls.requests import Audit, OnlyAggregates, Overlap, RandomSample

__all__ = [
    "Controls",
    "Guarded",
    "Control",
    "History",
    "OnlyAggregates",
    "Overlap",
    "Audit",
    "RandomSample",
    "MinimumSize",
    "SmallCells",
    "Rounded",
    "RangeAnswers",
]

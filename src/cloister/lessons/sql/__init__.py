"""Lessons: how statistical databases were protected before noise was calibrated, and how each protection falls.

    lesson.py        a small table in memory, and what every lesson offers
    restriction.py   exact answer or refusal: size, overlap, auditing of sums, auditing of maxima
    perturbation.py  a perturbed copy, noise on the output, a random sample per question
    coarsening.py    rounding, ranges, global recoding, an absent value, suppressed cells

These look at true sizes and values and answer with plain numbers. They take no ledger, know no loss, and claim no
epsilon: for data that matters use `cloister.open`. The attacks are in `cloister.attack`.
"""

from cloister.lessons.sql.coarsening import AbsentValue, Ranges, Recoded, RoundedAnswers, SuppressedTable
from cloister.lessons.sql.lesson import Exact, SmallTable
from cloister.lessons.sql.perturbation import NoisyOutput, PerturbedCopy, SampledAnswers
from cloister.lessons.sql.restriction import MaxAudit, OverlapControl, SizeControl, SumAudit

__all__ = [
    "SmallTable",
    "Exact",
    "SizeControl",
    "OverlapControl",
    "SumAudit",
    "MaxAudit",
    "PerturbedCopy",
    "NoisyOutput",
    "SampledAnswers",
    "RoundedAnswers",
    "Ranges",
    "Recoded",
    "AbsentValue",
    "SuppressedTable",
]

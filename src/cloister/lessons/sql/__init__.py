"""Lessons: protections of statistical databases before calibrated noise, and the attack that defeats each.

    lesson.py        a small table in memory, and the interface of every lesson
    restriction.py   exact answer or refusal: size, overlap, auditing of sums, auditing of maxima
    perturbation.py  a perturbed copy, noise on the output, a random sample per query
    coarsening.py    rounding, ranges, global recoding, an absent value, suppressed cells

These read true sizes and values and answer with plain numbers. They have no ledger and no loss, and claim no
epsilon: for real data use `cloister.open`. The attacks are in `cloister.attack`.
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

"""How good a synthetic table is, and what attackers get out of it.

    rows.py            real, held-back and synthetic rows, read alike through the schema
    interval.py          a number with its interval
    score.py           everything below, as one Score: the owner's view
      marginal_error.py, shapes.py, numbers.py, dependence.py, marginal_error.py     what the tables say
      learning.py, propensity.py                                 what models make of them
      copies.py, closeness.py, closeness.py, membership.py, singling_out.py     attacks
      attack_sample.py     whom they are tried on, always with the whole synthetic table
    check.py, verdict.py, utility_checks.py, verdict.py, gate.py     what a score amounts to: checks, limits, reasons
    text.py; charts.py, charts.py, page.py     a score for a terminal; for a board
    workload.py        distances that one unit moves by little, under one charge
    publishable.py     the part of a score that may be told, paid for
    selection.py        a choice among tables, paid for

Privacy: score and gate look at real rows and add no noise: they are the owner's. What may leave the house is paid for.
"""

"""Utility of a synthetic table, and its risk under attack.

    rows.py            real, held-out and synthetic rows, all read through the schema
    interval.py          a number with its interval
    score.py           everything below, as one Score: the owner's view
      marginal_error.py, shapes.py, numbers.py, dependence.py    comparison of the tables
      learning.py, propensity.py                                 comparison by models
      copies.py, closeness.py, membership.py, singling_out.py    attacks
      attack_sample.py     the rows that are attacked, always with the whole synthetic table
    check.py, verdict.py, utility_checks.py, gate.py    verdict on a score: checks, limits, reasons
    text.py; charts.py, page.py     a score for a terminal; as a report page
    workload.py        distances of low sensitivity, under one charge
    publishable.py     the publishable part of a score, with its own charge
    selection.py       private selection among tables, with its own charge

Privacy: score and gate read real rows and add no noise: they are for the owner. Any result to be published is charged.
"""

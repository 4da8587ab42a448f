"""Attacks on models: membership, inversion, extraction, stealing, evasion, poisoning.

    target.py      what an attacker reaches of a model
    membership.py  was a record among the training rows?

Privacy: none. Findings are for the owner; `risk` is as sensitive as rows.
"""

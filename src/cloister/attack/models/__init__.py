"""Attacks on models: membership, inversion, extraction, stealing, evasion, poisoning.

    target.py      what an attacker reaches of a model
    rows.py        rows that are asked about: read, joined, perturbed, drawn from marginals
    membership.py  was a record among the training rows? Seven methods, one set of shadow models
    shadows.py     models whose training rows the attacker knows, of real or made-up rows
    calibrated.py  LiRA, RMIA and quantile regression from logits that were computed before
    membership_finding.py   scores as a finding: curve, bound, risk of each record, guess without the target
    attribute.py   a hidden column of known records
    inversion.py   inputs that a model takes for a class or a person
    extraction.py  exposure of canaries, rows that a model stores
    stealing.py    copies by equations and by learning, watermark test
    poisoning.py   false training rows, updates and survey reports, and their damage
    evasion.py     small changes of a row that change the answer
    remedies.py    what would have stopped an attack

Privacy: none. Findings are for the owner; `risk` is as sensitive as rows.
"""

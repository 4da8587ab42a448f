"""Accounting: statements of the ledger, activity of users, and the card for a data subject.

    statements.py    the ledger's signed entries by account, for owners, users and auditors, compared with the jobs
    ledger_copy.py   a copy of the ledger for the offline verifier
    subject_card.py  a card in plain words for a person in the data
    activity.py      the usual activity of each user, and how far the last day differs from it

The audit log is in `hub/core`: `audit.py`, `trail.py` and `audit_triggers.py`.

Figures come from signed entries; the hub's own tables add only the user and the purpose.
"""

"""The books: what was spent, what was done, and what that means for one person in the data.

    trail.py       the audit log's chain, without a database: entries, hashes, an offline check
    audit_triggers.py     the database itself refuses to change the log
    audit.py       the audit log: write, search, verify, export
    statements.py     the ledger's signed entries, account by account
    statements.py  the ledger for the owner, the user and the auditor; what was charged against what was booked
    ledger_copy.py      a copy of the ledger for the offline verifier
    subject_card.py     a card in plain words for a person in the data
    activity.py    what each person usually does, and how far today is from that

Figures come from signed entries; the hub's own tables only say who and what for.
"""

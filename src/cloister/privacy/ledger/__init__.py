"""The ledger: an append-only, signed record of all charges.

Read it in this order: `account` (the rules of a budget, charges, spent and left), `chain` (signed entries and the head,
reading and appending), `store` (databases, and the head outside), `ledger` (the interface), `verify` (the auditor).
"""

from cloister.privacy.ledger.account import Account, Balance, Charge, Priced, Rules
from cloister.privacy.ledger.chain import Entry, Head, Line
from cloister.privacy.ledger.ledger import Ledger
from cloister.privacy.ledger.verify import Report, verify

__all__ = ["Account", "Balance", "Charge", "Entry", "Head", "Ledger", "Line", "Priced", "Report", "Rules", "verify"]

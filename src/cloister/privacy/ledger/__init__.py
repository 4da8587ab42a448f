"""The ledger: an append-only, signed record of all charges.

Read it in this order: `head` (a signed number and hash), `entry` (one signed entry), `rules` (the limits of a budget),
`charge` (reserve, look, commit), `account` (spent and left), `store` with `sqlite` and `postgres` (storage of entries),
`head_file` (the head outside), `chain` (reading and appending), `ledger` (the interface), `verify` (the auditor).
"""

from cloister.privacy.ledger.account import Account, Balance
from cloister.privacy.ledger.charge import Charge
from cloister.privacy.ledger.entry import Entry, Line
from cloister.privacy.ledger.head import Head
from cloister.privacy.ledger.ledger import Ledger
from cloister.privacy.ledger.rules import Priced, Rules
from cloister.privacy.ledger.verify import Report, verify

__all__ = ["Account", "Balance", "Charge", "Entry", "Head", "Ledger", "Line", "Priced", "Report", "Rules", "verify"]

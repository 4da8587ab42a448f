"""The ledger: what was spent, by whom, for what, in a book that can be added to and never changed.

Read it in this order: `head` (a signed number and hash), `entry` (one line of the book), `rules` (what a budget
allows), `charge` (reserve, look, commit), `account` (spent and left), `store` with `sqlite` and `postgres` (where
entries live), `kept` (the head outside), `page` (the next entry), `ledger` (all together), `verify` (the auditor).
"""

from cloister.privacy.ledger.account import Account, Balance
from cloister.privacy.ledger.charge import Charge
from cloister.privacy.ledger.entry import Entry, Line
from cloister.privacy.ledger.head import Head
from cloister.privacy.ledger.ledger import Ledger
from cloister.privacy.ledger.rules import Priced, Rules
from cloister.privacy.ledger.verify import Report, verify

__all__ = ["Account", "Balance", "Charge", "Entry", "Head", "Ledger", "Line", "Priced", "Report", "Rules", "verify"]

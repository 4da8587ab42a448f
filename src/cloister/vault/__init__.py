"""Keys, sealing, signatures: what must stay secret, and what proves something without telling more.

Read in the order of the work:

    blind    the signer: a key that signs what it cannot see, and the check of such a signature (RFC 9474)
    ballot   the device: hides a message before it is signed, and unveils the signature afterwards
    slip     what a ballot says, and whether one is admitted

One invitation, one report, and nobody knows whose. The signer sees who is invited and a number that hides the message;
whoever counts sees the message and its signature. Every number fits every message equally well, so not even both
together can tell who sent what (tests/unit/test_vault_blind.py computes this for all pairs). What still could: a key of
one's own for each person (`Ballot.begin` compares the key's fingerprint with what everybody sees), and the clock: a
ballot that is fetched and cast in the same minute from the same address is known by its minute and its address.
"""

from cloister.vault.ballot import Ballot
from cloister.vault.blind import SCHEME, BlindKey, key_fingerprint, verify
from cloister.vault.slip import admit

__all__ = ["Ballot", "BlindKey", "SCHEME", "admit", "key_fingerprint", "verify"]

"""Blind signatures: anonymous ballots that prove an invitation and reveal nothing else.

Read in the order of the work:

    blind    the signer: a key that signs blinded messages, and the check of such a signature (RFC 9474)
    ballot   the device: blinds a message before it is signed, and unblinds the signature afterwards
    slip     the text of a ballot, and its admission

One invitation gives one anonymous report. The signer sees who is invited and a blinded number; the collector sees the
message and its signature. Every number fits every message equally well, so not even both together can link a person to
a report (tests/unit/vault/test_blind.py computes this for all pairs). Two links remain possible: a different key for
each person (`Ballot.begin` compares the key's fingerprint with the published one), and timing: a ballot that is fetched
and cast in the same minute from the same address is identified by its minute and its address.
"""

from cloister.vault.ballot import Ballot
from cloister.vault.blind import SCHEME, BlindKey, key_fingerprint, verify
from cloister.vault.slip import admit

__all__ = ["Ballot", "BlindKey", "SCHEME", "admit", "key_fingerprint", "verify"]

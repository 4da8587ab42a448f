"""Cryptography: blind signatures, sums under encryption, shared secrets, garbled circuits.

Read in the order of the work:

    blind       the signer: a key that signs blinded messages, and the check of such a signature (RFC 9474)
    ballot      the device: blinds a message before it is signed, and unblinds the signature afterwards
    slip        the text of a ballot, and its admission
    paillier/   sums of encrypted vectors, which an aggregator adds without reading them
    sharing/    computing on values that are cut into shares, none of which says anything alone
    circuits/   any function of two parties' inputs as a garbled circuit; oblivious transfer; the channel on sockets
    secret      objects that are not printed and not pickled

**Ballots.** One invitation gives one anonymous report. The signer sees who is invited and a blinded number; the
collector sees the message and its signature. Every number fits every message equally well, so not even both together
can link a person to a report (tests/unit/vault/test_blind.py computes this for all pairs). Two links remain possible: a
different key for each person (`Ballot.begin` compares the key's fingerprint with the published one), and timing: a
ballot that is fetched and cast in the same minute from the same address is identified by its minute and its address.

**Protocols.** Every package of a protocol begins with a statement: parties, what each learns, who must not collude,
what an active attacker can do, the test that holds it. They need `pip install 'cloister[crypto]'`.
"""

from typing import TYPE_CHECKING

from cloister.lazy import door

if TYPE_CHECKING:
    from cloister.vault import circuits, paillier, sharing
    from cloister.vault.ballot import Ballot
    from cloister.vault.blind import SCHEME, BlindKey, key_fingerprint, verify
    from cloister.vault.slip import admit

__all__ = ["Ballot", "BlindKey", "SCHEME", "admit", "key_fingerprint", "verify", "paillier", "sharing", "circuits"]

__getattr__, __dir__ = door(__name__)

"""Computing on shared secrets: values are cut into shares, and two or three parties compute without seeing them.

Read in the order of the work:

    ring           arithmetic modulo 2^64, additive shares, packed bits
    link           messages between parties: in one process, or over sockets (`vault.circuits.channel`)
    supply         correlated randomness: what it is, and the dealer who hands it out
    transfer       the same without a dealer, for two parties, from oblivious transfer
    party          a party, and the products of shares
    fixed          shared fixed-point numbers with proven bounds; truncation
    compare        signs, comparisons, selection, clipping
    division       reciprocals, quotients, roots
    eigen          power iteration and the generalised eigenproblem
    field          arithmetic modulo the prime 2^61 - 1
    authenticated  shares with a MAC: a wrong share is noticed before anything is opened
    shamir         a secret for n holders of whom any t recover it, with shares that can be checked

**Statement.**

*Parties.* Two or three, each with a number, and a dealer or oblivious transfer for correlated randomness.

*What each learns.* The program, shapes, declared bounds, and what is opened to all by `open`. Every other message that
a party receives is uniform: a fresh share, or a value under a one-time mask. What is opened is exact; it is not
differentially private unless the program adds noise.

*Who must not collude.* All the parties together hold every secret. Any proper subset learns nothing more than what its
members put in and what is opened. The dealer must not collude with any of them.

*An active attacker.* Shares modulo 2^64 (`party`, `fixed`, `compare`, `division`, `eigen`) are for parties who follow
the protocol: one who sends a wrong share changes results unnoticed, unless the result leaves its proven range.
`authenticated` notices a wrong share except with probability 2^-60, and then opens nothing. Neither gives fairness: a
party may end the run after it has seen an output. Replayed, reordered, altered and foreign messages end the run on a
socket's channel; so does a peer that disappears.

*Time.* The sequence of operations depends on the public program alone. numpy's arithmetic on words is constant-time on
usual processors, which is not verified here.

*Tests.* tests/unit/vault/sharing: numpy as the oracle, test_transcripts.py (what each party receives is uniform),
test_authenticated.py (every single wrong share is noticed), test_shamir.py.

Falls to: what is opened is exact, so two sums that differ by one person to `attack.queries.differencing.between`; a sum
of gradients without noise to `attack.image_leak`.
"""

from typing import TYPE_CHECKING

from cloister.lazy import door

if TYPE_CHECKING:
    from cloister.vault.sharing.authenticated import Authenticated, AuthenticatedParty
    from cloister.vault.sharing.compare import Condition, clip, is_negative, is_zero, less_than, maximum, select
    from cloister.vault.sharing.division import divide, inverse_square_root, reciprocal, square_root
    from cloister.vault.sharing.eigen import Eigenpairs, cholesky, generalised_eigenpairs, power_iteration
    from cloister.vault.sharing.fixed import Shared, concatenate, stack
    from cloister.vault.sharing.link import Link, local_links
    from cloister.vault.sharing.party import Party, run_parties
    from cloister.vault.sharing.shamir import Commitments, HeldShare, recover, split
    from cloister.vault.sharing.supply import DealtSupply, Supply, serve_dealer
    from cloister.vault.sharing.transfer import TransferSupply

__all__ = [
    "Party",
    "run_parties",
    "Link",
    "local_links",
    "Supply",
    "DealtSupply",
    "serve_dealer",
    "TransferSupply",
    "Shared",
    "concatenate",
    "stack",
    "Condition",
    "less_than",
    "is_negative",
    "is_zero",
    "select",
    "maximum",
    "clip",
    "divide",
    "reciprocal",
    "square_root",
    "inverse_square_root",
    "Eigenpairs",
    "power_iteration",
    "cholesky",
    "generalised_eigenpairs",
    "AuthenticatedParty",
    "Authenticated",
    "split",
    "recover",
    "HeldShare",
    "Commitments",
]

__getattr__, __dir__ = door(
    __name__,
    extras={
        "gmpy2": "shared secrets need gmpy2 and PyNaCl: pip install 'cloister[crypto]'.",
        "nacl": "shared secrets need gmpy2 and PyNaCl: pip install 'cloister[crypto]'.",
    },
)

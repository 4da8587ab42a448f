"""Sums under encryption: the cryptosystem of Paillier (1999), with many values in one ciphertext.

Read in the order of the work:

    encoding    numbers to integers with declared bounds: fixed point, and levels between public bounds
    layout      how many values share one ciphertext, for a declared number of summands, noise and mask
    proof       that a modulus has no common factor with φ(n), without which ciphertexts could be marked
    keys        key pairs, encryption from a precomputed table, decryption by the Chinese remainder theorem
    vector      encrypted vectors: sums, products with plain numbers, fresh randomness, masks
    threshold   two shares of a key, neither of which decrypts
    wire        bytes with a version, and their checks

**Statement.**

*Parties.* A key holder; any number of owners who encrypt under its public key; an aggregator who computes on
ciphertexts.

*What each learns.* An aggregator learns the layout, the number of summands, and nothing about the values. The key
holder learns what it decrypts, exactly: sums are not differentially private unless noise was added. It can also
recover the random number of each ciphertext that it sees, so what an aggregator computed must be given fresh randomness
(`EncryptedVector.rerandomise`) before it is sent; otherwise the key holder may test guesses of the aggregator's
weights. By default this randomness is uniform, whatever the key holder made of n and h: a public key that is read from
bytes proves that n has no common factor with φ(n). The bytes of a vector state the sums of its weights. A masked vector
tells the key holder nothing more than 2^-mask_bits in statistical distance, and nothing of the weights.

*Who must not collude.* The key holder with anyone who sees the owners' single ciphertexts: it decrypts them. Whoever
sees an owner's messages on the wire counts, so owners send over an encrypted channel. With a threshold key
(`threshold`), the two share holders with each other.

*An active attacker* can change a plaintext without knowing it, because ciphertexts are malleable: nothing here
proves who made a ciphertext or what is in it. An owner who encrypts outside the declared range by hand may
disturb the sum; slots that decrypt outside the declared range are refused, others are not noticed. A mask covers the
declared range: a number outside it that a key holder encrypts by hand shows in the masked vector, times its weight, to
this key holder. Where weights are secret from it, owners other than the key holder encrypt. The key holder must not
answer decryption queries for strangers.

*Assumptions.* Decisional composite residuosity. With `randomness="fixed-base"` (the default), h^(n r) for a random
exponent r of half the modulus' length must also be indistinguishable from a random n-th residue of Jacobi symbol 1
(Damgård, Jurik, Nielsen 2010, 4.2; for half-length exponents Goldreich, Rosen 2003 reduce it to factoring when the
primes are safe; ours have no small factors in p - 1, which is weaker). `randomness="textbook"` needs residuosity alone.

*Time.* Decryption raises to secret exponents with `gmpy2.powmod_sec`, whose time and memory accesses do not depend on
them; the arithmetic around it, the packing of values and the table of powers in encryption are not constant-time. Who
shares the processor's caches with an encrypting process is outside what is promised.

*Tests.* tests/unit/vault/paillier (known answers; lightphe as a second implementation), tests/property/test_paillier.py
(the whole declared range), tests/unit/vault/test_secrets_stay_inside.py (no key in logs, errors or reprs).

Falls to: what is decrypted is exact, so two sums that differ by one person to `attack.queries.differencing.between`.
"""

from typing import TYPE_CHECKING

from cloister.lazy import door

if TYPE_CHECKING:
    from cloister.vault.paillier.encoding import FixedPoint, Levels
    from cloister.vault.paillier.keys import PrivateKey, PublicKey
    from cloister.vault.paillier.layout import Layout
    from cloister.vault.paillier.threshold import KeyShare, PartialDecryption, combine_partials, deal_key
    from cloister.vault.paillier.vector import EncryptedVector, Mask, linear_combination

__all__ = [
    "PrivateKey",
    "PublicKey",
    "FixedPoint",
    "Levels",
    "Layout",
    "EncryptedVector",
    "Mask",
    "linear_combination",
    "deal_key",
    "KeyShare",
    "PartialDecryption",
    "combine_partials",
]

__getattr__, __dir__ = door(__name__, extras={"gmpy2": "encrypted sums need gmpy2: pip install 'cloister[crypto]'."})

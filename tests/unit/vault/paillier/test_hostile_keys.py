"""A key holder who makes n and h on purpose learns no more by it, and a key that anybody could break is refused."""

import secrets

import gmpy2
import pytest
from gmpy2 import mpz

from cloister.privacy.errors import BadInput, BadNumber, CiphertextRejected, OutOfRange
from cloister.privacy.signing import canonical
from cloister.vault.paillier import EncryptedVector, FixedPoint, Layout, Levels, PrivateKey, PublicKey, combine_partials
from cloister.vault.paillier.keys import _prime
from cloister.vault.paillier.proof import ROOTS, _challenges
from cloister.vault.paillier.threshold import cut

from .paillier_key import fixed_key

ORDER = 65_537  # above the small factors that are looked for


def prime_with(order: int, bits: int = 1024) -> mpz:
    """A prime whose predecessor this number divides."""
    while True:
        found = (((3 << (bits - 2)) + secrets.randbits(bits - 2)) // (2 * order)) * 2 * order + 1
        if found.bit_length() == bits and gmpy2.is_prime(found):
            return mpz(found)


def h_of(order: int) -> tuple[mpz, mpz, int]:
    """Two primes, and an h that has this order modulo the first and is 1 modulo the second."""
    p, q = prime_with(order), _prime(1024)
    root = mpz(1)
    while root == 1:
        root = gmpy2.powmod(secrets.randbits(900), (p - 1) // order, p)
    return p, q, int((q * gmpy2.invert(q, p) * root + p * gmpy2.invert(p, q)) % (p * q))


@pytest.fixture(scope="module")
def hostile():
    # 1 modulo q and of a larger order modulo p would be refused, so the second half is of this order as well.
    p, q = prime_with(ORDER), prime_with(ORDER)
    roots = []
    for prime in (p, q):
        root = mpz(1)
        while root == 1:
            root = gmpy2.powmod(secrets.randbits(900), (prime - 1) // ORDER, prime)
        roots.append(root)
    h = (q * gmpy2.invert(q, p) * roots[0] + p * gmpy2.invert(p, q) * roots[1]) % (p * q)
    return PublicKey(int(p * q), int(h))


def random_part(vector, plaintext):
    """What is left of a ciphertext when its plaintext, which the key holder knows, is taken away."""
    public = vector.public
    return vector.ciphertexts[0] * (1 - public.n * plaintext) % public.squared


def test_the_key_holder_cannot_test_guesses_of_the_weights_whatever_h_is(hostile):
    layout = Layout(FixedPoint(0, 1), 1, summands=20)
    first, second = (EncryptedVector.encrypt([1], hostile, layout, randomness="textbook") for _ in range(2))
    total = (first * 3 + second * 5).rerandomise()
    parts = [random_part(vector, value) for vector, value in ((first, 1), (second, 1), (total, 8))]
    guess = gmpy2.powmod(parts[0], 3, hostile.squared) * gmpy2.powmod(parts[1], 5, hostile.squared)
    fresh = parts[2] * gmpy2.invert(guess, hostile.squared) % hostile.squared
    # Before, what was multiplied in was a power of h^n, so that the right guess gave 1 here.
    assert gmpy2.powmod(fresh, ORDER, hostile.squared) != 1


def test_a_mask_hides_the_weights_whatever_h_is(hostile):
    layout = Layout(FixedPoint(0, 1), 1, summands=20, mask_bits=40)
    first = EncryptedVector.encrypt([1], hostile, layout, randomness="textbook")
    masked, mask = (first * 7).mask()
    guess = gmpy2.powmod(random_part(first, 1), 7, hostile.squared)
    fresh = random_part(masked, 7 + mask.numbers[0]) * gmpy2.invert(guess, hostile.squared) % hostile.squared
    assert gmpy2.powmod(fresh, ORDER, hostile.squared) != 1


@pytest.mark.parametrize("order", [3, 31, 4093])
def test_an_h_of_small_order_is_refused(order):
    p, q, h = h_of(order)
    with pytest.raises(BadNumber, match="small order"):
        PublicKey(int(p * q), h)


@pytest.mark.parametrize(("order", "prime"), [(8, 2), (1 << 14, 2), (9, 3), (3**12, 3), (4093**2, 4093)])
def test_an_h_whose_order_is_a_power_of_a_small_prime_is_refused(order, prime):
    # Modulo both primes: otherwise the part of it that is 1 would show by itself.
    p, q = prime_with(order), prime_with(order)
    roots = []
    for modulus in (p, q):
        root = mpz(1)
        while gmpy2.powmod(root, order // prime, modulus) == 1:
            root = gmpy2.powmod(secrets.randbits(900), (modulus - 1) // order, modulus)
        roots.append(root)
    h = (q * gmpy2.invert(q, p) * roots[0] + p * gmpy2.invert(p, q) * roots[1]) % (p * q)
    with pytest.raises(BadNumber, match="small order"):
        PublicKey(int(p * q), int(h))


def without_a_proof(kind: str) -> PublicKey:
    """A key of a modulus that has a factor in common with φ(n)."""
    while True:
        # 10,007 = 2·5,003 + 1 is above the small factors that are looked for, in n and in orders.
        n = int(10_007 * prime_with(10_007, 1018) * _prime(1017) if kind == "divides" else _prime(1024) ** 2)
        if n.bit_length() == 2048:
            return PublicKey(n, pow(secrets.randbits(2000), 2, n))


@pytest.mark.parametrize("kind", ["divides", "square"])
def test_a_modulus_whose_ciphertexts_could_be_marked_is_not_published(kind):
    """A number of order f modulo n² that is no n-th residue would survive a mask, raised to the weight."""
    public = without_a_proof(kind)
    with pytest.raises(BadInput, match="no proof"):
        public.to_bytes()
    numbers = _challenges(public.n)
    for roots in (fixed_key().public.roots, (1,) * ROOTS, (0,) * ROOTS, tuple(numbers), (2**2047,) * ROOTS):
        with pytest.raises(BadNumber, match="wrong proof"):
            PublicKey(public.n, public.h, roots)


def test_few_numbers_have_a_root_modulo_such_a_modulus():
    public = without_a_proof("square")
    p = int(gmpy2.isqrt(public.n))
    # An n-th power modulo p² is a p-th power, so its order divides p - 1.
    assert not any(pow(number, p - 1, public.n) == 1 for number in _challenges(public.n))


def test_a_proof_belongs_to_one_modulus_and_has_one_order_and_length():
    public = fixed_key().public
    assert PublicKey(public.n, public.h, public.roots).to_bytes() == public.to_bytes()
    assert all(
        pow(root, public.n, public.n) == number
        for root, number in zip(public.roots, _challenges(public.n), strict=True)
    )
    raw = public.to_bytes()
    size = public.bits // 8
    for number in range(ROOTS):
        at = len(raw) - size * (number + 1)
        with pytest.raises(CiphertextRejected):
            PublicKey.from_bytes(raw[: at + 9] + bytes([raw[at + 9] ^ 1]) + raw[at + 10 :])
    for roots in (public.roots[::-1], public.roots[:-1], (*public.roots, 1), tuple(-root for root in public.roots)):
        with pytest.raises(BadNumber, match="wrong proof"):
            PublicKey(public.n, public.h, roots)
    assert len({fixed_key().public, PublicKey(public.n, public.h)}) == 1


def test_a_key_of_another_length_than_it_states_is_refused():
    public = fixed_key().public
    head = canonical({"kind": "public key", "bits": 4096, "roots": ROOTS})
    body = b"".join(number.to_bytes(512, "big") for number in (public.n, public.h, *public.roots))
    with pytest.raises(CiphertextRejected, match="no public key"):
        PublicKey.from_bytes(public.to_bytes()[:5] + len(head).to_bytes(4, "big") + head + body)


def test_a_key_of_a_short_prime_or_of_close_primes_is_refused():
    short = gmpy2.next_prime(1 << 20)
    while short % 4 != 3:
        short = gmpy2.next_prime(short)
    long = _prime(2048 - 20)
    close = gmpy2.next_prime(first := _prime(1024))
    while close % 4 != 3:
        close = gmpy2.next_prime(close)
    for pair in ((short, long), (first, close), (first, first)):
        with pytest.raises(BadNumber, match="far apart"):
            PrivateKey.from_primes(*map(int, pair))
    for pair in (("7", "11"), (True, 7), (7.0, 11), (first, None)):
        with pytest.raises(BadNumber, match="different primes"):
            PrivateKey.from_primes(*pair)


def test_halves_of_two_dealings_of_one_key_are_noticed():
    key = fixed_key()
    layout = Layout(FixedPoint(0, 9), 2)
    vector = EncryptedVector.encrypt([4, 5], key.public, layout)
    one, other = cut(key), cut(key)
    for mixed in ((one[0], other[1]), (other[0], one[1])):
        with pytest.raises(CiphertextRejected, match="is wrong"):
            combine_partials(vector, [share.decrypt_partially(vector) for share in mixed])


def test_a_product_that_no_mask_would_fit_is_refused_when_it_is_computed():
    key = fixed_key().public
    layout = Layout(FixedPoint(0, 1 << 1_787), 1, mask_bits=256, packed=False)  # 2046 of 2047 bits
    vector = EncryptedVector.encrypt([3], key, layout)
    assert vector.transform([[1]] * 2).layout.length == 2
    with pytest.raises(OutOfRange, match="one value of this layout needs"):
        vector.transform([[1]] * (1 << 10))


def test_a_masked_vector_states_nothing_of_the_weights():
    key = fixed_key()
    layout = Layout(Levels(-1, 1, 8), 2, summands=20, noise_bound=9, mask_bits=40)
    first = EncryptedVector.encrypt([0.5, -1], key.public, layout)
    heads, values = set(), []
    for vector in (first, first * 3, first - first, (first * -7).add_noise([1, -1], 9)):
        masked, mask = vector.mask()
        heads.add(masked.to_bytes()[: -masked.public.bits // 4 * len(masked.ciphertexts)])
        back = EncryptedVector.from_bytes(masked.to_bytes(), key.public, layout, summands=None)
        values.append(mask.remove(key.decrypt(back)).tolist())
    assert len(heads) == 1
    assert values[:3] == [key.decrypt(vector).tolist() for vector in (first, first * 3, first - first)]

"""Paillier: known answers, a second implementation, sums and products, and what is refused."""

import warnings

import numpy as np
import pytest

from cloister.privacy.errors import BadBounds, BadInput, BadNumber, CiphertextRejected, OutOfRange
from cloister.privacy.noise import SeededSource
from cloister.vault.paillier import (
    EncryptedVector,
    FixedPoint,
    Layout,
    Levels,
    PrivateKey,
    PublicKey,
    linear_combination,
)
from cloister.vault.paillier.keys import SIZES, _fixed_base_power

from .paillier_key import VECTORS, fixed_key, other_key

KEY = fixed_key()
PUBLIC = KEY.public
COUNTS = Layout(FixedPoint(0, 1_000), length=3, summands=10)
SINGLE = Layout(FixedPoint(-100, 100, 4), length=3, summands=50, packed=False)


def encrypt(values, layout=COUNTS):
    return EncryptedVector.encrypt(values, PUBLIC, layout)


# One number.


@pytest.mark.parametrize("case", VECTORS["cases"], ids=["0", "1", "n-1", "n/2", "2^1000"])
def test_encryption_gives_the_known_answers(case):
    plaintext, exponent, unit = (int(case[name], 16) for name in ("plaintext", "exponent", "unit"))
    shifted = 1 + PUBLIC.n * plaintext
    assert shifted * _fixed_base_power(PUBLIC, exponent) % PUBLIC.squared == int(case["fixed_base"], 16)
    assert shifted * pow(unit, PUBLIC.n, int(PUBLIC.squared)) % PUBLIC.squared == int(case["textbook"], 16)
    for name in ("fixed_base", "textbook"):
        assert KEY.decrypt_number(int(case[name], 16)) == plaintext


@pytest.fixture(scope="module")
def lightphe():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its sympy uses names that mpmath is about to drop
        from lightphe.cryptosystems.Paillier import Paillier
    p, q = (int(VECTORS[name], 16) for name in "pq")
    return Paillier(keys={"public_key": {"g": 1 + p * q, "n": p * q}, "private_key": {"phi": (p - 1) * (q - 1)}})


@pytest.mark.parametrize("randomness", ["fixed-base", "textbook"])
def test_lightphe_decrypts_what_we_encrypt_and_we_what_lightphe_does(lightphe, randomness):
    for plaintext in (0, 1, 12345, PUBLIC.n - 1):
        assert lightphe.decrypt(int(PUBLIC.encrypt_number(plaintext, randomness))) == plaintext
        assert KEY.decrypt_number(lightphe.encrypt(plaintext)) == plaintext
    both = lightphe.add(int(PUBLIC.encrypt_number(20, randomness)), lightphe.encrypt(22))
    assert KEY.decrypt_number(lightphe.multiply_by_constant(both, 3)) == 126


def test_lightphe_sums_our_packed_vectors(lightphe):
    left, right = encrypt([1, 2, 3]), encrypt([10, 20, 1_000])
    [total] = [lightphe.add(int(a), int(b)) for a, b in zip(left.ciphertexts, right.ciphertexts, strict=True)]
    packed = lightphe.decrypt(total)
    found = [packed >> (COUNTS.width * place) & ((1 << COUNTS.width) - 1) for place in range(3)]
    assert found == [11, 22, 1_003]


@pytest.mark.parametrize("bits", SIZES[:2])
def test_a_new_key_has_its_size_and_sound_primes(bits):
    key = PrivateKey.create(bits)
    p, q = map(int, key.secret_primes())
    assert key.public.bits == bits == (p * q).bit_length()
    assert p % 4 == q % 4 == 3
    assert all((prime - 1) % small for prime in (p, q) for small in (3, 5, 7, 4093))
    assert key.decrypt_number(key.public.encrypt_number(7)) == 7


def test_two_encryptions_of_one_value_are_different():
    assert len({int(PUBLIC.encrypt_number(5)) for _ in range(20)}) == 20


# Vectors.


def test_a_sum_of_vectors_is_the_vector_of_sums():
    vectors = [encrypt([place, 2 * place, 1_000]) for place in range(10)]
    assert KEY.decrypt(EncryptedVector.sum(vectors)).tolist() == [45, 90, 10_000]
    assert KEY.decrypt(vectors[1] + vectors[2] - vectors[4]).tolist() == [-1, -2, 1_000]


def test_scalars_plain_summands_and_noise():
    assert KEY.decrypt(-3 * encrypt([1, 0, 1_000])).tolist() == [-3, 0, -3_000]
    assert KEY.decrypt(encrypt([1, 2, 3]).add_plain([4, 5, 6])).tolist() == [5, 7, 9]
    layout = Layout(FixedPoint(0, 10), length=3, noise_bound=100)
    assert KEY.decrypt(encrypt([1, 2, 3], layout).add_noise([-100, 0, 100], bound=100)).tolist() == [-99, 2, 103]


def test_products_with_plain_vectors_and_matrices_agree_with_numpy():
    values, weights = np.array([-1.5, 0.25, 100]), np.array([2, -7, 3])
    vector = encrypt(values, SINGLE)
    assert KEY.decrypt(vector.times(weights)).tolist() == (values * weights).tolist()
    assert KEY.decrypt(vector.dot(weights)).tolist() == [values @ weights]
    matrix = np.array([[1, 2, 3], [-1, 0, 40], [0, 0, 0]])
    assert KEY.decrypt(vector.transform(matrix)).tolist() == (matrix @ values).tolist()


def test_a_plain_row_times_an_encrypted_matrix():
    rows = [encrypt([1, 2, 3]), encrypt([4, 5, 6]), encrypt([7, 8, 9])]
    assert KEY.decrypt(linear_combination([2, -3, 0], rows)).tolist() == [-10, -11, -12]


def test_levels_come_back_within_a_step_a_summand():
    layout = Layout(Levels("-1", "3", 16), length=4, summands=5)
    values = np.array([[-1, 0.1, 2.99, 3], [3, -0.5, 0, 1]])
    total = KEY.decrypt(encrypt(values[0], layout) + encrypt(values[1], layout))
    error = values.sum(axis=0) - total
    assert (error >= -1e-12).all()
    assert (error < 2 * float(Levels("-1", "3", 16).step)).all()


def test_fresh_randomness_changes_every_ciphertext_and_no_value():
    before = encrypt([1, 2, 3])
    after = before.rerandomise()
    assert set(before.ciphertexts).isdisjoint(after.ciphertexts)
    assert KEY.decrypt(after).tolist() == [1, 2, 3]


def test_the_textbook_exponent_is_a_setting():
    assert KEY.decrypt(EncryptedVector.encrypt([1, 2, 3], PUBLIC, COUNTS, randomness="textbook")).tolist() == [1, 2, 3]
    with pytest.raises(BadInput, match="fixed-base"):
        PUBLIC.random_part("none")


# Masks.


def test_a_mask_hides_and_is_removed():
    layout = Layout(FixedPoint(-10, 10, 8), length=3, summands=5, mask_bits=40)
    masked, mask = encrypt([-10, 0.5, 10], layout).mask()
    seen = KEY.decrypt(masked)
    assert mask.remove(seen).tolist() == [-10, 0.5, 10]
    assert all(abs(value) > layout.magnitude for value in seen)  # fails once in 2^39 runs
    with pytest.raises(CiphertextRejected):
        mask.remove(seen + (1 << 60))


def test_the_key_holder_cannot_link_a_masked_or_renewed_vector_to_what_it_was_made_of():
    def residues(vector):
        # What the key holder can compute: the random part of each ciphertext, without the plaintext.
        shifts = [1 + PUBLIC.n * KEY.decrypt_number(number) for number in vector.ciphertexts]
        pairs = zip(vector.ciphertexts, shifts, strict=True)
        return {int(number * pow(shift, -1, int(PUBLIC.squared)) % PUBLIC.squared) for number, shift in pairs}

    vector = encrypt([1, 2, 3], Layout(FixedPoint(-10, 10), length=3, summands=5, mask_bits=40))
    assert residues(vector) == residues(vector.add_plain([1, 1, 1]))  # not renewed, and linked
    assert residues(vector).isdisjoint(residues(vector.rerandomise()))
    assert residues(vector).isdisjoint(residues(vector.mask()[0]))


def test_masks_of_far_values_have_nearly_one_distribution():
    # Exact: with uniform masks of 2^k values, two values that differ by d give distributions at distance d / 2^k.
    layout = Layout(FixedPoint(-8, 7), length=10_000, summands=1_000, mask_bits=40)
    furthest = 2 * layout.magnitude
    assert furthest + (1 << layout.mask_size) - 1 < 1 << layout.width  # the largest value under the largest mask
    assert layout.length * furthest * 2**40 <= 1 << layout.mask_size


def test_a_masked_vector_is_only_decrypted():
    layout = Layout(FixedPoint(-10, 10), length=3, summands=5, mask_bits=40)
    masked, _ = encrypt([1, 2, 3], layout).mask()
    for misuse in (lambda: masked + masked, lambda: masked.mask(), lambda: masked.add_plain([1, 2, 3])):
        with pytest.raises(BadInput):
            misuse()


# Ranges.


@pytest.mark.parametrize("values", [[0, 0, 1_001], [-1, 0, 0], [0.0, 0.0, 1000.6], [0, 0, 2**70]])
def test_a_value_outside_its_bounds_is_refused_without_being_shown(values):
    with pytest.raises(OutOfRange, match="outside the bounds") as caught:
        encrypt(values)
    assert "1001" not in str(caught.value)


@pytest.mark.parametrize("values", [[1, 2], [1, 2, float("nan")], [1, 2, float("inf")], ["1", "2", "3"], [[1, 2, 3]]])
def test_what_is_no_vector_of_numbers_is_refused(values):
    with pytest.raises(BadNumber):
        encrypt(values)


def test_a_sum_that_could_overflow_is_refused_before_anything_is_added():
    ten = EncryptedVector.sum([encrypt([1, 1, 1])] * 10)
    for misuse in (
        lambda: ten + encrypt([0, 0, 0]),
        lambda: encrypt([0, 0, 0]) * 11,
        lambda: linear_combination([5, -6], [encrypt([0, 0, 0])] * 2),
        lambda: ten.add_plain([0, 0, 0]),
        lambda: encrypt([1, 2, 3], SINGLE).dot([50, 1, 0]),
        lambda: encrypt([1, 2, 3], SINGLE).times([0, 0, 51]),
    ):
        with pytest.raises(OutOfRange, match="declared for"):
            misuse()
    with pytest.raises(OutOfRange, match="noise"):
        encrypt([0, 0, 0]).add_noise([1, 1, 1], bound=1)
    with pytest.raises(OutOfRange):
        encrypt([0, 0, 0], Layout(FixedPoint(0, 1), 3, noise_bound=5)).add_noise([6, 0, 0], bound=5)


def test_a_layout_that_does_not_fit_the_key_is_refused_when_it_is_declared():
    with pytest.raises(OutOfRange, match="2048"):
        Layout(FixedPoint(0, 2**1000, 512), length=1, summands=1 << 512, mask_bits=256).slots(2048)


@pytest.mark.parametrize(
    "wrong",
    [{"length": 0}, {"length": True}, {"summands": 0}, {"summands": 1.5}, {"noise_bound": -1}, {"mask_bits": 257}],
)
def test_a_layout_of_wrong_numbers_is_refused(wrong):
    with pytest.raises(BadNumber):
        Layout(FixedPoint(0, 1), **({"length": 1} | wrong))


def test_encodings_of_wrong_bounds_are_refused():
    for misuse in (lambda: FixedPoint(1, 1), lambda: Levels(2, 1, 3)):
        with pytest.raises(BadBounds):
            misuse()
    for misuse in (lambda: FixedPoint(0, 1, -1), lambda: Levels(0, 1, 0), lambda: FixedPoint("x", 1)):
        with pytest.raises(BadNumber):
            misuse()


def test_packed_values_share_one_weight():
    with pytest.raises(BadInput, match="packed=False"):
        encrypt([1, 2, 3]).dot([1, 2, 3])
    with pytest.raises(BadNumber, match="whole number"):
        encrypt([1, 2, 3]) * 0.5


def test_levels_with_different_weights_are_refused():
    vector = encrypt([0.5, 0.5], Layout(Levels(0, 1, 8), 2, summands=9, packed=False))
    with pytest.raises(BadInput, match="FixedPoint"):
        vector.times([1, 2])
    assert KEY.decrypt(vector.dot([1, 1])).tolist() == pytest.approx([1], abs=0.01)


def test_only_vectors_of_one_key_and_one_layout_are_added():
    other = EncryptedVector.encrypt([1, 2, 3], other_key().public, COUNTS)
    with pytest.raises(CiphertextRejected, match="different keys"):
        encrypt([1, 2, 3]) + other
    with pytest.raises(CiphertextRejected, match="another key"):
        KEY.decrypt(other)
    with pytest.raises(BadInput, match="layout"):
        encrypt([1, 2, 3]) + encrypt([1, 2, 3], Layout(FixedPoint(0, 1_000), 3, summands=11))
    with pytest.raises(BadInput, match="add_plain"):
        encrypt([1, 2, 3]) + 4


def test_a_slot_that_was_encrypted_by_hand_outside_its_range_is_noticed():
    for plaintext in (1 << (3 * COUNTS.width), 10 * 1_000 + 1, -10 * 1_000 - 1):
        forged = EncryptedVector(PUBLIC, COUNTS, (PUBLIC.encrypt_number(plaintext),))
        with pytest.raises(CiphertextRejected, match="not within the declared layout"):
            KEY.decrypt(forged)


@pytest.mark.parametrize("number", [0, PUBLIC.squared, int(VECTORS["p"], 16), 5 * PUBLIC.n], ids=["0", "n²", "p", "5n"])
def test_a_number_outside_the_group_is_not_decrypted(number):
    with pytest.raises(CiphertextRejected):
        KEY.decrypt_number(number)


@pytest.mark.parametrize(
    ("n", "h"),
    [(PUBLIC.n + 1, PUBLIC.h), (PUBLIC.n, 1), (PUBLIC.n, PUBLIC.n - 1), (PUBLIC.n >> 1, PUBLIC.h), (3, 2)],
    ids=["even", "h is 1", "h is -1", "short", "tiny"],
)
def test_a_malformed_public_key_is_refused(n, h):
    with pytest.raises(BadNumber):
        PublicKey(n, h)


def test_wrong_sizes_and_primes_are_refused():
    with pytest.raises(BadNumber, match="3072"):
        PrivateKey.create(1024)
    with pytest.raises(BadNumber, match="primes"):
        PrivateKey.from_primes(int(VECTORS["p"], 16), int(VECTORS["p"], 16))


def test_a_seeded_source_repeats_a_ciphertext():
    first, second = (
        EncryptedVector.encrypt([1, 2, 3], PUBLIC, COUNTS, source=SeededSource(7)).ciphertexts for _ in range(2)
    )
    assert first == second

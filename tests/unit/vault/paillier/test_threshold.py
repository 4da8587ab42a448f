"""Two-of-two decryption: both halves give the vector, one gives nothing, and a wrong one is noticed."""

from dataclasses import replace

import pytest

from cloister.privacy.errors import CiphertextRejected
from cloister.vault.paillier import (
    EncryptedVector,
    FixedPoint,
    KeyShare,
    Layout,
    PartialDecryption,
    combine_partials,
    deal_key,
)

from .paillier_key import fixed_key, other_key

PUBLIC, FIRST, SECOND = deal_key(2048)
LAYOUT = Layout(FixedPoint(-1_000, 1_000), length=2, summands=3, mask_bits=40)
VECTOR = EncryptedVector.encrypt([-1_000, 7], PUBLIC, LAYOUT)


def halves(vector=VECTOR):
    return [share.decrypt_partially(vector) for share in (FIRST, SECOND)]


def test_two_halves_decrypt_in_either_order():
    total = VECTOR + VECTOR
    for order in (1, -1):
        assert combine_partials(total, halves(total)[::order]).tolist() == [-2_000, 14]


def test_shares_and_halves_travel_as_bytes():
    shares = [KeyShare.from_bytes(share.to_bytes()) for share in (FIRST, SECOND)]
    sent = [PartialDecryption.from_bytes(share.decrypt_partially(VECTOR).to_bytes(), PUBLIC) for share in shares]
    assert combine_partials(VECTOR, sent).tolist() == [-1_000, 7]


def test_a_masked_vector_is_decrypted_together_too():
    masked, mask = VECTOR.mask()
    assert mask.remove(combine_partials(masked, halves(masked))).tolist() == [-1_000, 7]


def test_one_half_alone_or_twice_is_refused():
    first, second = halves()
    for wrong in ([first], [first, first], [second], [first, second, first], []):
        with pytest.raises(CiphertextRejected, match="each of the two"):
            combine_partials(VECTOR, wrong)


def test_a_wrong_half_is_noticed_and_nothing_is_returned():
    first, second = halves()
    with pytest.raises(CiphertextRejected, match="is wrong"):
        combine_partials(VECTOR, [first, replace(second, powers=(second.powers[0] + 1, *second.powers[1:]))])
    with pytest.raises(CiphertextRejected, match="another vector"):
        combine_partials(VECTOR, [first, SECOND.decrypt_partially(VECTOR + VECTOR)])
    with pytest.raises(CiphertextRejected, match="another vector"):
        combine_partials(VECTOR, [first, replace(second, powers=second.powers * 2)])


def test_another_key_is_refused():
    elsewhere = EncryptedVector.encrypt([1, 2], fixed_key().public, LAYOUT)
    with pytest.raises(CiphertextRejected, match="another key"):
        FIRST.decrypt_partially(elsewhere)


def test_the_shares_of_two_keys_look_alike():
    # The first share is drawn without the key, and the second is 80 bits longer than what it is subtracted from.
    from cloister.vault.paillier.threshold import cut

    for key in (fixed_key(), other_key()):
        first, second = cut(key)
        assert first._exponent.bit_length() > 2 * key.public.bits + 40  # fails once in 2^39 runs
        assert abs(abs(second._exponent) - first._exponent) < 1 << 2 * key.public.bits

"""Fresh randomness links nothing, values are exact and within their bounds, an owner's bytes state its own vector."""

import json
import secrets
from decimal import Decimal
from fractions import Fraction

import gmpy2
import numpy as np
import pytest

from cloister.privacy.errors import BadInput, BadNumber, CiphertextRejected, OutOfRange
from cloister.privacy.signing import canonical
from cloister.vault import sharing
from cloister.vault.circuits import GARBLER, CircuitBuilder
from cloister.vault.paillier import EncryptedVector, FixedPoint, Layout, Levels, linear_combination

from .paillier_key import fixed_key

KEY = fixed_key()
PUBLIC = KEY.public


def symbols(vector):
    return {gmpy2.jacobi(number, PUBLIC.n) for number in vector.ciphertexts}


@pytest.mark.parametrize("randomness", ["fixed-base", "textbook"])
def test_no_ciphertext_and_no_sum_shows_a_symbol(randomness):
    layout = Layout(FixedPoint(0, 1), 12, summands=20, packed=False)
    owners = [EncryptedVector.encrypt([1, 0] * 6, PUBLIC, layout, randomness="textbook") for _ in range(3)]
    total = linear_combination([1, 2, 3], owners).rerandomise(randomness)
    # Before, each of these 48 symbols was -1 about half the time.
    assert [symbols(vector) for vector in (*owners, total)] == [{1}] * 4


def test_a_mask_shows_no_symbol():
    layout = Layout(FixedPoint(0, 1), 12, mask_bits=40, packed=False)
    vector = EncryptedVector.encrypt([1, 0] * 6, PUBLIC, layout, randomness="textbook")
    assert symbols(vector.mask()[0]) == {1}


def test_a_ciphertext_marked_by_hand_is_neither_read_nor_given_fresh_randomness():
    layout = Layout(FixedPoint(0, 1), 1)
    unit = next(number for number in range(2, 99) if gmpy2.jacobi(number, PUBLIC.n) == -1)
    marked = EncryptedVector(PUBLIC, layout, (gmpy2.powmod(unit, PUBLIC.n, PUBLIC.squared),))
    with pytest.raises(CiphertextRejected, match="symbol"):
        EncryptedVector.from_bytes(marked.to_bytes(), PUBLIC, layout)
    with pytest.raises(CiphertextRejected, match="symbol"):
        marked.rerandomise()
    assert KEY.decrypt(marked).tolist() == [0]  # the holder of the key still reads it


LONG = [2**63 + 1, -1]


def test_integers_of_mixed_length_are_encoded_exactly():
    assert FixedPoint(-(2**65), 2**65).encode(LONG) == LONG
    assert FixedPoint(-1, 2**64 - 1).encode([2**64 - 1, -1]) == [2**64 - 1, -1]
    assert FixedPoint(-(2**65), 2**65, 1).encode([2**53 + 1, 0.5]) == [2**54 + 2, 1]
    assert Levels(-(2**64), 2**64 - 1, 65).encode(LONG) == [2**64 + 2**63 + 1, 2**64 - 1]
    layout = Layout(FixedPoint(-(2**64), 2**64), 2, summands=2)
    vector = EncryptedVector.encrypt(LONG, PUBLIC, layout).add_plain(LONG)
    assert KEY.decrypt(vector).tolist() == [2**64 + 2, -2]


def test_long_public_integers_are_exact_under_sharing():
    def program(party):
        number = party.share(0, (2,), -(1 << 60), (1 << 60) + 1, [(1 << 60) + 1, -1] if party.index == 0 else None)
        return (number - [(1 << 60) + 1, -1]).open().tolist()

    assert sharing.run_parties(program, fraction_bits=0) == [[0, 0]] * 2


@pytest.mark.parametrize("values", [[10.5], [-0.5], [-0.001], [Fraction(1001, 100)], np.array([10.25])])
@pytest.mark.parametrize("fraction_bits", [0, 1])
def test_a_value_less_than_half_a_unit_outside_is_refused(values, fraction_bits):
    with pytest.raises(OutOfRange):
        FixedPoint(0, 10, fraction_bits).encode(values)


@pytest.mark.parametrize("values", [[0.4], [Fraction(1, 2)], np.array([3.0, 1.25])])
def test_a_fraction_is_refused_where_whole_numbers_were_declared(values):
    with pytest.raises(BadNumber, match="fraction"):
        FixedPoint(0, 10).encode(values)


@pytest.mark.parametrize("noise", [[0.9], ["1"], [float("nan")], [float("inf")], [True], [None], [1.0]])
def test_noise_is_whole_numbers(noise):
    layout = Layout(FixedPoint(0, 10), 1, noise_bound=8)
    vector = EncryptedVector.encrypt([1], PUBLIC, layout)
    with pytest.raises(BadNumber, match="whole numbers"):
        vector.add_noise(noise, 3)
    assert KEY.decrypt(vector.add_noise(np.array([-3]), 3)).tolist() == [-2]


@pytest.mark.parametrize("stated", [{"net": "-1"}, {"net": "0"}, {"noise": "50"}, {"masked": True}])
def test_an_owner_cannot_state_what_only_a_sum_has(stated):
    layout = Layout(Levels(1000, 1001, 8), 2, summands=3, noise_bound=50)
    raw = EncryptedVector.encrypt([1000, 1001], PUBLIC, layout).to_bytes()
    length = int.from_bytes(raw[5:9], "big")
    head = canonical(json.loads(raw[9 : 9 + length]) | stated)
    changed = raw[:5] + len(head).to_bytes(4, "big") + head + raw[9 + length :]
    with pytest.raises(CiphertextRejected, match="owner's vector"):
        EncryptedVector.from_bytes(changed, PUBLIC, layout)
    assert EncryptedVector.from_bytes(changed, PUBLIC, layout, summands=None).layout == layout


@pytest.mark.parametrize(
    "values",
    [
        [[1, 2], [3]],
        ["5"],
        np.array(["5"], dtype=object),
        np.array([Decimal("1e999999999")], dtype=object),
        [Decimal("-1e-999999999"), 1 << 60],
        [None],
        [1j],
    ],
)
def test_what_is_no_list_of_numbers_is_refused_in_one_sentence(values):
    with pytest.raises(BadNumber):
        FixedPoint(0, 10, 2).encode(values)


@pytest.mark.parametrize("numbers", [5, None, ["a"], [float("inf")], [0.5], [True], [None], [1, 2], b"1"])
def test_a_mask_is_removed_from_whole_numbers_only(numbers):
    vector = EncryptedVector.encrypt([1], PUBLIC, Layout(FixedPoint(0, 10), 1, mask_bits=40))
    masked, mask = vector.mask()
    with pytest.raises((BadNumber, CiphertextRejected)):
        mask.remove(numbers)
    with pytest.raises(BadNumber):
        EncryptedVector.encrypt([1], PUBLIC, Layout(FixedPoint(0, 10), 1, noise_bound=9)).add_noise(5, 1)
    assert mask.remove(KEY.decrypt(masked)).tolist() == [1]


def test_a_vector_of_fewer_or_more_ciphertexts_than_its_layout_is_not_decrypted():
    layout = Layout(FixedPoint(0, 10), 3, packed=False)
    whole = EncryptedVector.encrypt([1, 2, 3], PUBLIC, layout).ciphertexts
    for some in ((), whole[:2], whole + whole[:1]):
        with pytest.raises(CiphertextRejected, match="more or fewer"):
            KEY.decrypt(EncryptedVector(PUBLIC, layout, some))


@pytest.mark.parametrize("encoding", [FixedPoint(0, 10**400, 1), Levels(0, 10**400, 8)])
def test_a_sum_beyond_the_range_of_floats_is_refused_in_one_sentence(encoding):
    vector = EncryptedVector.encrypt([10**400], PUBLIC, Layout(encoding, 1))
    with pytest.raises(OutOfRange, match="range of floats"):
        KEY.decrypt(vector)


def test_numbers_under_a_mask_are_not_encoded():
    hidden = np.ma.masked_array([1.0, 7.0], mask=[False, True])
    with pytest.raises(BadNumber, match="masked places"):
        FixedPoint(0, 10, 2).encode(hidden)
    with pytest.raises(BadNumber, match="masked places"):
        sharing.run_parties(lambda party: party.share(0, (2,), 0, 10, None if party.index else hidden))
    whole = hidden.astype(int)
    with pytest.raises(BadNumber, match="masked places"):
        sharing.run_parties(
            lambda party: sharing.AuthenticatedParty(party).share(0, (2,), 10, None if party.index else whole)
        )
    build = CircuitBuilder()
    build.output("same", build.input("x", GARBLER, width=8, shape=(2,)), to=GARBLER)
    with pytest.raises(BadInput, match="masked places"):
        build.circuit().evaluate({"x": whole})
    assert FixedPoint(0, 10).encode(np.ma.masked_array([1, 2], mask=False)) == [1, 2]


def test_a_float_too_large_for_its_fraction_bits_is_refused_without_a_warning():
    with pytest.raises(BadNumber, match="finite"):
        FixedPoint(0, 10, 500).encode([1e300])


class Scripted:
    """A source that gives these numbers, then random bytes."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def bytes(self, count):
        return self.numbers.pop(0).to_bytes(count, "little") if self.numbers else secrets.token_bytes(count)


def test_a_random_part_is_exactly_uniform():
    """A number above n is drawn again: reduced, small numbers would come twice as often as others, or a bit oftener."""
    public = fixed_key().public
    small = next(number for number in range(2, 100) if gmpy2.jacobi(number, public.n) == 1)
    reduced = gmpy2.powmod(small, public.n, public.squared)
    assert public.random_part("textbook", Scripted(small)) == reduced
    assert public.random_part("textbook", Scripted(public.n + small)) != reduced

"""Correlated randomness from oblivious transfer: what two parties prepare without a dealer is what a dealer deals."""

import numpy as np
import pytest

from cloister.privacy.errors import BadInput
from cloister.vault import sharing
from cloister.vault.sharing import ring
from cloister.vault.sharing.supply import LOW

from .joined import run_two_on_sockets


def prepared(ask):
    """What both parties get for one request."""

    def run(index):
        return lambda channel: ask(sharing.TransferSupply(channel, index))

    results = run_two_on_sockets(run(0), run(1), timeout_s=30)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def added(parts):
    return [left + right for left, right in zip(*parts, strict=True)]


@pytest.mark.parametrize(("left", "right"), [((5,), (5,)), ((3, 4), (4,)), ((2, 2), ()), ((1,), (3, 1)), ((0,), (1,))])
def test_products_of_words(left, right):
    first, second, product = added(prepared(lambda supply: supply.triple(left, right, False)))
    assert (product == first * second).all()


MATRICES = [
    ((3, 4), (4, 2)), ((3, 4), (4,)), ((4,), (4, 2)), ((4,), (4,)), ((2, 3, 4), (2, 4, 2)), ((5, 1, 2, 3), (2, 3, 1)),
    ((3,), (2, 3, 2)), ((2, 3, 2), (2,)), ((3, 0), (0, 2)), ((0, 2), (2, 3)), ((0, 2, 2), (2, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), MATRICES)
def test_products_of_matrices(left, right):
    first, second, product = added(prepared(lambda supply: supply.triple(left, right, True)))
    assert np.array_equal(product, first @ second)


def test_arrays_without_numbers_need_nothing():
    def ask(supply):
        bits, masked, coins = supply.bit_triple(0), supply.masked_bits(0), supply.coins(0)
        return [part.size for part in (*bits, *masked, *supply.truncation(0, 9), *coins)]

    assert prepared(ask) == [[0] * 10] * 2


def test_bits_words_and_truncations():
    def ask(supply):
        return supply.bit_triple(40), supply.masked_bits(20), supply.truncation(20, 9), supply.coins(37)

    (bits, masked, cut, coins), (bits2, masked2, cut2, coins2) = prepared(ask)
    first, second, both = (left ^ right for left, right in zip(bits, bits2, strict=True))
    assert (both == first & second).all()
    assert (masked[0] + masked2[0] == masked[1] ^ masked2[1]).all()
    mask, shifted, top = added((cut, cut2))
    assert (shifted == (mask & LOW) >> np.uint64(9)).all()
    assert (top == mask >> np.uint64(63)).all()
    assert (coins[1] + coins2[1] == ring.unpack_bits(coins[0] ^ coins2[0], 37)).all()


def test_three_parties_need_a_dealer():
    with pytest.raises(BadInput, match="dealer"):
        sharing.TransferSupply(None, 2)


def test_a_comparison_and_a_quotient_without_a_dealer():
    values = np.array([0.5, -2.0, 3.0])

    def program(party):
        numbers = party.share(0, (3,), -4, 4, values if party.index == 0 else None)
        return [sharing.maximum(numbers, 1.0).open(), sharing.reciprocal(numbers, 0.25).open()]

    def run(index):
        return lambda channel: program(
            sharing.Party(index, {1 - index: channel}, sharing.TransferSupply(channel, index))
        )

    largest, inverse = run_two_on_sockets(run(0), run(1), timeout_s=30)[0]
    assert np.abs(largest - np.maximum(values, 1)).max() < 1e-5
    assert np.abs(inverse - 1 / values).max() < 1e-4

"""The last party alone speaks to the dealer: a lie to it opens no mask of the others, and a bad order deals nothing."""

import json
import threading
from contextlib import suppress

import numpy as np
import pytest

from cloister.privacy.errors import ChannelBroken, CloisterError
from cloister.privacy.signing import canonical
from cloister.vault.sharing import AuthenticatedParty, DealtSupply, Party, field, local_links, serve_dealer

SECRET = [123_456_789, -42, 7]


def run_with_liar(honest, liar, supply):
    """Run party 0 and a lying last party with a dealer; return what each returned or raised."""
    links, results = local_links(3, 5), [None, None]

    def run(index, program, kind):
        try:
            peers = {1 - index: links[index][1 - index]}
            results[index] = program(Party(index, peers, kind(links[index][2], last=index == 1)))
        except CloisterError as error:
            results[index] = error
        finally:
            links[index][2].abort()

    def deal():
        with suppress(CloisterError):  # the run ends before its end, as it should
            serve_dealer(links[2])

    work = [(run, (0, honest, DealtSupply)), (run, (1, liar, supply)), (deal, ())]
    threads = [threading.Thread(target=target, args=given) for target, given in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class WrongTriple(DealtSupply):
    """Order masks for a truncation where the program multiplies: the dealt words were minus the honest party's b."""

    __slots__ = ("stolen",)

    def field_triple(self, count):
        self._number += 1
        self._link.send("ask", canonical([self._number, "truncation", [count, 61]]))
        dealt = np.frombuffer(self._link.receive("dealt", size=24 * count), dtype="<u8").astype(np.uint64)
        # place 1 is ((r mod 2^63) >> 61) - w, and its first term is 0, 1, 2 or 3
        self.stolen = [field.from_words(np.uint64(guess) - dealt[count : 2 * count]) for guess in range(4)]
        return (np.zeros(count, np.uint64),) * 6


def test_a_lie_about_a_product_does_not_reveal_its_operand():
    def honest(party):
        checked = AuthenticatedParty(party)
        mine = checked.share(0, (3,), 1 << 29, SECRET)
        return checked.reveal((checked.share(1, (3,), 1 << 29) * mine).sum())

    def liar(party):
        checked = AuthenticatedParty(party)
        theirs = checked.share(0, (3,), 1 << 29)
        checked.share(1, (3,), 1 << 29, [0, 0, 0])
        party.supply.field_triple(3)
        masked = np.frombuffer(party.link(0).receive("open field", size=48), dtype="<u8").astype(np.uint64)[3:]
        found = [field.signed(field.add(field.add(masked, word), theirs.value)) for word in party.supply.stolen]
        return np.stack(found).tolist()

    with np.errstate(over="ignore"):
        result, stolen = run_with_liar(honest, liar, WrongTriple)
    assert isinstance(result, CloisterError)
    assert not any(row[place] == value for row in stolen for place, value in enumerate(SECRET))


class WrongOwner(DealtSupply):
    __slots__ = ()

    def field_input(self, count, owner):
        return super().field_input(count, 1)


def test_a_lie_about_the_owner_of_an_input_ends_the_run():
    def program(party):
        checked = AuthenticatedParty(party)
        number = checked.share(0, (1,), (1 << 60) - 1, [1_000] if party.index == 0 else None)
        return checked.reveal(number).tolist()

    # Before, about half of these runs returned a uniform number with a valid MAC.
    for _ in range(12):
        result, _ = run_with_liar(program, program, WrongOwner)
        assert isinstance(result, CloisterError)


class KeyForInput(DealtSupply):
    __slots__ = ()

    def field_input(self, count, owner):
        key = self._ask("mac key")[0]
        return key, key, key


def test_the_key_ordered_for_two_inputs_does_not_reveal_their_difference():
    def honest(party):
        checked = AuthenticatedParty(party)
        checked.share(0, (1,), 1 << 30, [123_456])
        checked.share(0, (1,), 1 << 30, [777])

    def liar(party):
        checked, unmasked = AuthenticatedParty(party), []
        for _ in range(2):
            key = checked._supply.field_input(1, 0)[0]
            offset = np.frombuffer(party.link(0).receive("input", size=8), dtype="<u8").astype(np.uint64)
            unmasked.append(field.add(offset, field.negative(key)))
        return int(field.signed(field.add(unmasked[0], field.negative(unmasked[1])))[0])

    _, difference = run_with_liar(honest, liar, KeyForInput)
    assert difference != 123_456 - 777


class OtherCut(DealtSupply):
    __slots__ = ("dealt",)

    def truncation(self, count, cut):
        self.dealt = super().truncation(count, 61)
        return self.dealt


def test_a_lie_about_a_truncation_does_not_reveal_the_mask():
    # The highest part of the mask is 0 to 3 after a cut of 61, so its dealt share was minus the other's share.
    def honest(party):
        return party.supply.truncation(1, 20)

    def liar(party):
        return party.supply.truncation(1, 20)

    (_, shifted, _), (_, dealt, _) = run_with_liar(honest, liar, OtherCut)
    with np.errstate(over="ignore"):
        assert int((shifted + dealt)[0]) > 3


BAD_ORDERS = [
    [1, "truncation", [4, "x"]],
    [1, "truncation", [4, 63]],
    [1, "truncation", [4, -3]],
    [1, "truncation", [4, 0]],
    [1, "field input", [3, -5]],
    [1, "field input", [3, 2]],
    [1, "field input", [3, True]],
    [1, "triple", [[2, 3], [4, 5], True]],
    [1, "triple", [[2, 3], [4, 5], False]],
    [1, "triple", [[70_000, 1], [1, 70_000], False]],
    [1, "triple", [[1 << 20, 1], [1, 1 << 20], True]],
    [1, "triple", [[-1], [-1], False]],
    [1, "triple", [3, 3, False]],
    [1, "triple", [[3], [3], 0]],
    [1, "coins", [-5]],
    [1, "coins", [1.5]],
    [1, "coins", [10**30]],
    [1, "masked bits", ["a"]],
    [1, "bit triple", [None]],
    [1, "field triple", [-1]],
    [1, "field triple", [0]],
    [1, ["a"], []],
    [2, "mac key", []],
    [True, "mac key", []],
    [1.0, "mac key", []],
    {"a": 1},
    [],
    7,
]


@pytest.mark.parametrize("order", BAD_ORDERS, ids=str)
def test_a_bad_order_is_refused_before_anything_is_made(order, monkeypatch):
    monkeypatch.setattr(np, "empty", lambda *given: pytest.fail("memory was taken for an order that was not checked"))
    links = local_links(3, 2)
    links[1][2].send("ask", json.dumps(order, sort_keys=True, separators=(",", ":")).encode())
    with pytest.raises(ChannelBroken, match="dealt nothing"):
        serve_dealer(links[2])


def test_an_order_has_one_spelling():
    links = local_links(3, 2)
    links[1][2].send("ask", b'[1, "mac key", []]')
    with pytest.raises(ChannelBroken, match="dealt nothing"):
        serve_dealer(links[2])


def test_parties_of_different_fraction_bits_stop_at_the_first_input():
    first, second = (ends[1 - index] for index, ends in enumerate(local_links(2, 5)))
    links = local_links(2, 2)
    other = Party(1, {0: second}, DealtSupply(links[1][0], last=True), 16)
    Party(0, {1: first}, DealtSupply(links[0][1], last=True), 20).share(0, (1,), 0, 10, [3])
    with pytest.raises(ChannelBroken, match="fraction bits"):
        other.share(0, (1,), 0, 10)

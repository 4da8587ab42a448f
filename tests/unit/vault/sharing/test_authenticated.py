"""Shares with a MAC: sums and products are right, and every single wrong message ends the run with no output."""

import numpy as np
import pytest

from cloister.privacy.errors import BadInput, BadNumber, ChannelBroken, CloisterError, OutOfRange
from cloister.privacy.noise import SeededSource
from cloister.vault import sharing
from cloister.vault.sharing import field, local_links

from .joined import run_watched

LEFT, RIGHT = np.array([1, -2, 30, 0]), np.array([10, 20, -1_000, 7])


def dot_product(party):
    checked = sharing.AuthenticatedParty(party)
    left = checked.share(0, (4,), 1_000, LEFT if party.index == 0 else None)
    right = checked.share(party.count - 1, (4,), 1_000, RIGHT if party.index == party.count - 1 else None)
    return checked.reveal((left * right + 5 - left * 3).sum()).tolist()


@pytest.mark.parametrize("parties", [2, 3])
def test_sums_and_products_are_exact(parties):
    truth = int((LEFT * RIGHT + 5 - LEFT * 3).sum())
    assert sharing.run_parties(dot_product, parties) == [[truth]] * parties


@pytest.mark.parametrize("parties", [2, 3])
def test_after_any_single_wrong_message_no_honest_party_returns_a_wrong_result(parties):
    truth = [int((LEFT * RIGHT + 5 - LEFT * 3).sum())]
    _, watched = run_watched(dot_product, parties)
    tried = 0
    for liar in range(parties):
        for peer in (number for number in range(parties) if number != liar):
            for number in range(1, watched[liar][peer].sent + 1):

                def change(sender, receiver, at, step, body, wrong=(liar, peer, number)):
                    return bytes([body[0] ^ 1]) + body[1:] if (sender, receiver, at) == wrong else body

                results, _ = run_watched(dot_product, parties, change)
                tried += 1
                honest = [result for index, result in enumerate(results) if index != liar]
                assert all(result == truth or isinstance(result, CloisterError) for result in honest)
                # The one who got the wrong message stops. Another honest party may have ended before, rightly.
                assert isinstance(results[peer], CloisterError), (liar, peer, number)
    assert tried == sum(link.sent for ends in watched for peer, link in ends.items() if peer < parties)


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("place", ["input", "factor", "result", "mac"])
def test_a_liar_who_shows_all_the_same_wrong_share_is_noticed(parties, place):
    # All parties see the same, so that only the MAC can tell.
    def shifted(number, party, here):
        if party.index or place != here:
            return number
        three = np.full(number.value.shape, 3, dtype=np.uint64)
        if here == "mac":
            return sharing.Authenticated(number.owner, number.value, field.add(number.mac, three), number.bound)
        return sharing.Authenticated(number.owner, field.add(number.value, three), number.mac, number.bound)

    def program(party):
        checked = sharing.AuthenticatedParty(party)
        left = shifted(checked.share(0, (4,), 1_000, LEFT if party.index == 0 else None), party, "input")
        right = checked.share(1, (4,), 1_000, RIGHT if party.index == 1 else None)
        product = left * shifted(right, party, "factor")
        return checked.reveal(shifted(shifted(product + 1, party, "result"), party, "mac")).tolist()

    results, _ = run_watched(program, parties)
    assert all(isinstance(result, CloisterError) for result in results)
    assert any("authentication code" in str(result) for result in results)


def test_numbers_outside_the_field_are_refused():
    def change(sender, receiver, at, step, body):
        return b"\xff" * len(body) if sender == 0 and step == "open field" else body

    results, _ = run_watched(dot_product, 2, change)
    assert isinstance(results[1], ChannelBroken)
    assert "outside the field" in str(results[1])


def test_inputs_and_bounds_are_checked():
    def program(party):
        checked = sharing.AuthenticatedParty(party)
        number = checked.share(0, (1,), 1 << 40, [5] if party.index == 0 else None)
        for misuse, kind in (
            (lambda: number * number, OutOfRange),
            (lambda: number * (1 << 20), OutOfRange),
            (lambda: checked.share(0, (1,), 1 << 60, [5]), (OutOfRange, BadInput)),
            (lambda: checked.share(7, (1,), 3, None), BadInput),
            (lambda: checked.share(party.index, (1,), 3, None), BadInput),
            (lambda: sharing.AuthenticatedParty(party).reveal(number), BadInput),
            (lambda: checked.reveal(5), BadInput),
        ):
            with pytest.raises(kind):
                misuse()
        return checked.reveal(number + 1).tolist()

    assert sharing.run_parties(program) == [[6]] * 2


@pytest.mark.parametrize(("values", "kind"), [([4], OutOfRange), ([0.5], BadNumber), ([1, 2], BadNumber)])
def test_an_input_that_was_not_declared_so_is_refused(values, kind):
    def program(party):
        return sharing.AuthenticatedParty(party).share(0, (1,), 3, values if party.index == 0 else None)

    with pytest.raises(kind):
        sharing.run_parties(program)


def test_parties_that_declared_another_shape_stop_at_the_input():
    def program(party):
        checked = sharing.AuthenticatedParty(party)
        shape = (2, 3) if party.index == 0 else (3, 2)
        checked.share(0, shape, 10, np.arange(6).reshape(shape) if party.index == 0 else None)
        return "went on" if party.index else None

    with pytest.raises(CloisterError):
        sharing.run_parties(program)


def test_a_liar_who_learned_the_key_when_it_was_caught_cannot_use_it_again_on_the_same_supply():
    """A failed check shows -key·coefficient·error. So the next run on this supply needs another key."""
    error, learned = np.uint64(3), {}

    def run(party, link, guess):
        checked = sharing.AuthenticatedParty(sharing.Party(party.index, {1 - party.index: link}, party.supply))
        number = checked.share(0, (1,), 100, [7] if party.index == 0 else None)
        if party.index == 1:
            wrong = field.add(number.value, error)
            mac = field.add(number.mac, field.multiply(np.array([error]), np.array([guess], dtype=np.uint64)))
            number = sharing.Authenticated(checked, wrong, mac, 100)
        learned[party.index] = [*learned.get(party.index, []), int(checked._key[0])]
        return checked.reveal(number).tolist()

    first, second = local_links(2), local_links(2)

    def program(party):
        with pytest.raises(ChannelBroken):
            run(party, first[party.index][1 - party.index], 0)
        # What the liar computes from the opened shares of the check:
        known = sum(learned[index][0] for index in (0, 1)) % field.PRIME if party.index == 1 else None
        try:
            return run(party, second[party.index][1 - party.index], known)
        except ChannelBroken:
            return "noticed"

    assert sharing.run_parties(program) == ["noticed"] * 2


def test_after_a_second_authenticated_party_the_first_is_refused():
    def program(party):
        first = sharing.AuthenticatedParty(party)
        number = first.share(0, (1,), 10, [3] if party.index == 0 else None)
        second = sharing.AuthenticatedParty(party)
        with pytest.raises(BadInput, match="another AuthenticatedParty"):
            number * number
        again = second.share(0, (1,), 10, [3] if party.index == 0 else None)
        return second.reveal(again * again).tolist()

    assert sharing.run_parties(program) == [[9]] * 2


# The field.


def test_the_field_agrees_with_python_integers():
    rng = np.random.default_rng(3)
    edges = [0, 1, 2, field.PRIME - 1, field.PRIME - 2, 1 << 60, (1 << 32) - 1, 1 << 32]
    values = np.array([*edges, *rng.integers(0, field.PRIME, 300)], dtype=np.uint64)
    left, right = (part.reshape(-1) for part in np.meshgrid(values, values))
    pairs = [(int(a), int(b)) for a, b in zip(left, right, strict=True)]
    assert field.multiply(left, right).tolist() == [a * b % field.PRIME for a, b in pairs]
    assert field.add(left, right).tolist() == [(a + b) % field.PRIME for a, b in pairs]
    assert field.negative(values).tolist() == [-int(a) % field.PRIME for a in values]
    assert int(field.total(left)) == sum(map(int, left)) % field.PRIME


def test_shares_modulo_the_prime_add_up_and_are_uniform():
    secret = np.full(4_000, field.PRIME - 5, dtype=np.uint64)
    parts = field.share(secret, 3, SeededSource(1))
    assert (field.reconstruct(parts) == secret).all()
    for part in parts:
        assert abs(part.mean() / field.PRIME - 0.5) < 0.03  # 6.5 standard errors

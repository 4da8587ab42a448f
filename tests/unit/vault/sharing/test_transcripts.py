"""What each party receives is uniform, whatever the secrets are; and a link that misbehaves ends the run."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations

import numpy as np
import pytest

from cloister.privacy.errors import ChannelBroken, CloisterError, PeerLost
from cloister.privacy.noise import SeededSource
from cloister.privacy.signing import SigningKey
from cloister.vault import sharing
from cloister.vault.circuits.channel import Channel

from .joined import run_two_on_sockets, run_watched

COUNT = 1_500
ZEROS, LARGE = np.zeros(COUNT), np.full(COUNT, 7.999)


def program_on(values):
    """Every kind of step on shared numbers; nothing is opened on purpose."""

    def program(party):
        left = party.share(0, (COUNT,), -8, 8, values if party.index == 0 else None)
        right = party.share(party.count - 1, (COUNT,), -8, 8, values if party.index == party.count - 1 else None)
        sharing.less_than(left * right, right)
        sharing.divide(left[:64], right[:64], 0.125)
        sharing.square_root(left[:64], 0.125)

    return program


def bits_opened(watched, parties):
    """All bits that the parties learn by joining their messages: each opened word or byte, by step."""
    sent = [
        [(step, body) for step, body in watched[(sender + 1) % parties][sender].received if step.startswith("open")]
        for sender in range(parties)
    ]
    joined = []
    for messages in zip(*sent, strict=True):
        assert len({step for step, _ in messages}) == 1
        if messages[0][0] == "open":
            words = [np.frombuffer(body, dtype="<u8") for _, body in messages]
            joined.append(np.sum(words, axis=0, dtype=np.uint64).view(np.uint8))
        else:
            joined.append(np.bitwise_xor.reduce([np.frombuffer(body, dtype=np.uint8) for _, body in messages]))
    return joined


def bits_received(watched, party, parties):
    """All bits that a party received from its peers, as rows of 64 (whole words) or of 8."""
    bodies = [body for peer in range(parties) if peer != party for _, body in watched[party][peer].received]
    return np.unpackbits(np.frombuffer(b"".join(bodies), dtype=np.uint8)).reshape(-1, 8)


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("values", [ZEROS, LARGE], ids=["zeros", "large"])
def test_every_bit_that_a_party_receives_is_a_fair_coin(values, parties):
    sources = [SeededSource(f"{parties} parties, source {index}") for index in range(parties + 1)]
    _, watched = run_watched(program_on(values), parties, sources=sources)
    for party in range(parties):
        bits = bits_received(watched, party, parties)
        count = len(bits)
        assert count > 50_000
        # Each of eight places is fair, and neighbouring bits and bytes are uncorrelated, within 5 standard errors.
        assert np.abs(bits.mean(axis=0) - 0.5).max() < 2.5 / np.sqrt(count)
        flat = bits.reshape(-1) * 2.0 - 1
        for lag in (1, 8, 64):
            assert abs((flat[:-lag] * flat[lag:]).mean()) < 5 / np.sqrt(flat.size)


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("values", [ZEROS, LARGE], ids=["zeros", "large"])
def test_every_bit_that_is_opened_on_the_way_is_a_fair_coin(values, parties):
    sources = [SeededSource(f"{parties} parties, opening, source {index}") for index in range(parties + 1)]
    _, watched = run_watched(program_on(values), parties, sources=sources)
    joined = bits_opened(watched, parties)
    assert len(joined) > 90
    for opened in joined:
        # Each of the 64 places of a word, in each single opening: one leaking place would be lost in a mean of all.
        width = 8 if opened.size % 8 == 0 else 1
        bits = np.unpackbits(opened.reshape(-1, width), axis=1)
        assert np.abs(bits.mean(axis=0) - 0.5).max() < 2.75 / np.sqrt(len(bits))


def test_a_value_that_is_opened_on_purpose_is_seen_by_this_test():
    # The same count finds a message that is not uniform: the power of the test above.
    def leaky(party):
        party.open_words(np.arange(60_000, dtype=np.uint64))

    _, watched = run_watched(leaky)
    assert np.abs(bits_received(watched, 0, 2).mean(axis=0) - 0.5).max() > 0.3


@pytest.mark.parametrize("parties", [2, 3])
def test_a_party_receives_only_from_its_links(parties):
    _, watched = run_watched(program_on(ZEROS), parties)
    steps = {step for ends in watched for peer, link in ends.items() if peer < parties for step, _ in link.received}
    assert {step[:23] for step in steps} == {"input, 20 fraction bits", "open", "open bits"}
    from_dealer = [{step for step, _ in ends[parties].received} for ends in watched]
    assert from_dealer == [*([{"seed"}] * (parties - 1)), {"dealt"}]


# Links that misbehave.


def simple(party):
    number = party.share(0, (2,), -8, 8, [1.0, 2.0] if party.index == 0 else None)
    return (number * number).open().tolist()


@pytest.mark.parametrize("parties", [2, 3])
def test_a_peer_that_disappears_ends_the_run_of_all(parties):
    def leaves(party):
        if party.index == 1:
            party.abort()
            return None
        return simple(party)

    results, _ = run_watched(leaves, parties, timeout_s=2)
    assert results[1] is None
    for result in (results[0], *results[2:]):
        assert isinstance(result, PeerLost)


def test_a_message_of_another_length_or_step_is_refused():
    def longer(sender, receiver, at, step, body):
        return body + b"\0" if step == "open" else body

    results, _ = run_watched(simple, 2, longer)
    assert any(isinstance(result, ChannelBroken) for result in results)
    left, right = sharing.local_links(2)[0][1], sharing.local_links(2)[1][0]
    left.abort()
    with pytest.raises(ChannelBroken, match="closed"):
        left.send("step", b"")
    right.timeout_s = 0.05
    with pytest.raises(PeerLost):
        right.receive("step")
    with pytest.raises(ChannelBroken, match="closed"):
        right.receive("step")


def test_reordered_messages_are_refused():
    ends = sharing.local_links(2)
    ends[0][1].send("second", b"2")
    with pytest.raises(ChannelBroken, match="another step than 'first'"):
        ends[1][0].receive("first")


@pytest.mark.parametrize("ask", [b"x", b"[" * 5_000, b'[1,"other",[]]', b'[2,"coins",[5]]', b'[1,"coins",[0]]', b"5"])
def test_a_dealer_that_is_asked_for_nonsense_deals_nothing(ask):
    links = sharing.local_links(3, timeout_s=5)
    links[1][2].send("ask", ask)
    with pytest.raises(ChannelBroken, match="dealt nothing"):
        sharing.serve_dealer(links[2])
    began = time.monotonic()
    links[0][2].receive("seed", size=32)
    for party in (0, 1):  # nobody waits for what is not dealt
        with pytest.raises(PeerLost):
            links[party][2].receive("dealt")
    assert time.monotonic() - began < 2


def test_the_same_program_runs_over_sockets_without_a_dealer():
    def run(index):
        def work(channel: Channel):
            party = sharing.Party(index, {1 - index: channel}, sharing.TransferSupply(channel, index))
            return simple(party)

        return work

    first, second = run_two_on_sockets(run(0), run(1))
    assert first == second
    assert np.abs(np.array(first) - [1, 4]).max() < 1e-5


def test_a_party_on_a_socket_that_vanishes_is_noticed():
    def stays(channel):
        return simple(sharing.Party(0, {1: channel}, sharing.TransferSupply(channel, 0)))

    first, second = run_two_on_sockets(stays, lambda channel: None, timeout_s=5)
    assert second is None
    assert isinstance(first, CloisterError)
    assert str(first).count(".") <= 3


def test_three_parties_and_a_dealer_on_sockets():
    keys = [SigningKey.create() for _ in range(4)]
    ends: list[dict[int, socket.socket]] = [{} for _ in range(4)]
    for left, right in combinations(range(4), 2):
        ends[left][right], ends[right][left] = socket.socketpair()

    def joined(index):
        links = {}
        for peer in sorted(ends[index]):  # pairs shake hands in one order everywhere
            first = index < peer
            links[peer] = Channel.open(ends[index][peer], keys[index], peer=keys[peer].public, first=first)
        return links

    def run(index):
        links = joined(index)
        try:
            if index == 3:
                return sharing.serve_dealer(links)
            supply = sharing.DealtSupply(links[3], last=index == 2)
            party = sharing.Party(index, {peer: link for peer, link in links.items() if peer != 3}, supply)
            found = simple(party), sharing.AuthenticatedParty(party).index
            supply.end()
            return found
        finally:
            for link in links.values():
                link.abort()

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(run, range(4)))
    assert results[3] is None
    assert [place for _, place in results[:3]] == [0, 1, 2]
    for numbers, _ in results[:3]:
        assert np.abs(np.array(numbers) - [1, 4]).max() < 1e-5

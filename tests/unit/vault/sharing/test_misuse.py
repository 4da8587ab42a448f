"""Programs that ask for what shares cannot do get one sentence, and two threads never get one mask twice."""

import re
import threading
import time

import numpy as np
import pytest

from cloister.privacy.errors import BadInput, BadNumber, ChannelBroken, OutOfRange
from cloister.vault import sharing
from cloister.vault.sharing import AuthenticatedParty, DealtSupply, local_links, run_parties, serve_dealer, supply
from cloister.vault.sharing.fixed import concatenate, stack

REFUSED = re.compile("have no value here|unhashable")


def on_shares(work, parties=2, **options):
    """What a piece of work on the shared numbers 1 and -2 returns."""

    def program(party):
        return work(party, party.share(0, (2,), -8, 8, [1, -2] if party.index == 0 else None))

    return run_parties(program, parties, **options)[0]


@pytest.mark.parametrize(
    "question",
    [
        lambda x: x == x,
        lambda x: x != 0,
        lambda x: x < 0,
        lambda x: x >= x,
        lambda x: 3 if x else 4,
        lambda x: x in [x + 1],
        lambda x: {x: 1},
    ],
)
def test_shared_numbers_have_no_value_to_branch_on(question):
    # Before, == was False and a condition True, whatever the numbers were.
    with pytest.raises((BadInput, TypeError), match=REFUSED):
        on_shares(lambda party, x: question(x))
    with pytest.raises((BadInput, TypeError), match=REFUSED):
        on_shares(
            lambda party, x: question(AuthenticatedParty(party).share(0, (1,), 5, [2] if not party.index else None))
        )


@pytest.mark.parametrize(
    ("work", "kind", "sentence"),
    [
        (lambda party, x: x + np.ones(3), BadNumber, "have no product of this kind"),
        (lambda party, x: x * np.ones(3), BadNumber, "have no product of this kind"),
        (lambda party, x: x @ 2, BadNumber, "have no product of this kind"),
        (lambda party, x: x @ [1, 2, 3], BadNumber, "have no product of this kind"),
        (lambda party, x: x / 2, BadInput, "are divided by divide"),
        (lambda party, x: sharing.select(sharing.less_than(x, 0), party.public([1, 2, 3]), 0), BadNumber, "no product"),
        (lambda party, x: party.share("0", (1,), 0, 1, [1]), BadInput, "only the owner"),
        (lambda party, x: party.share(True, (1,), 0, 1, [1]), BadInput, "only the owner"),
        (lambda party, x: party.share(party.index, 3, 0, 1, [1, 1, 1]), BadNumber, "tuple of whole numbers"),
        (lambda party, x: party.share(party.index, (-1,), 0, 1, [1]), BadNumber, "tuple of whole numbers"),
        (lambda party, x: party.share(party.index, (1.0,), 0, 1, [1]), BadNumber, "tuple of whole numbers"),
        (lambda party, x: party.share(1 - party.index, (1 << 40,), 0, 1), OutOfRange, "in parts"),
        (lambda party, x: AuthenticatedParty(party).share(1 - party.index, (1 << 40,), 1), OutOfRange, "in parts"),
        (lambda party, x: party.supply.coins(1 << 23), OutOfRange, "in parts"),
        (lambda party, x: party.supply.triple((1 << 12, 1), (1, 1 << 12), False), OutOfRange, "in parts"),
    ],
)
def test_a_call_that_cannot_be_computed_is_refused_before_anything_is_sent(work, kind, sentence):
    with pytest.raises(kind, match=sentence):
        on_shares(work)


def test_arrays_without_numbers_are_computed_without_the_dealer():
    def work(party, x):
        none = x[:0]
        return (none * none).open().size + sharing.divide(none, none, 0.5).open().size + (x * x).open().tolist()[1]

    assert on_shares(work) == 4


@pytest.mark.parametrize("timeout_s", [0, -1, float("inf"), float("nan"), 1e12, "30", None, True])
def test_a_time_that_no_clock_counts_is_refused(timeout_s):
    with pytest.raises(BadInput, match="timeout_s is a number of seconds"):
        local_links(2, timeout_s)


@pytest.mark.parametrize("parties", [True, 1, 4, 2.0, "2", None])
def test_two_or_three_parties_are_run(parties):
    with pytest.raises(BadInput, match="two or three"):
        run_parties(lambda party: None, parties)


def test_two_threads_never_get_one_mask_twice(monkeypatch):
    inner = supply._RECIPES["masked bits"]

    def slowly(count):
        time.sleep(0.0005)  # a thread may be put aside for another one here
        return inner(count)

    monkeypatch.setitem(supply._RECIPES, "masked bits", slowly)
    links = local_links(3, 20)
    dealer = threading.Thread(target=serve_dealer, args=(links[2],))
    dealer.start()
    first, last = DealtSupply(links[0][2], last=False), DealtSupply(links[1][2], last=True)
    drawn, threads = [], []
    barrier = threading.Barrier(4)

    def draw(end):
        barrier.wait()
        for _ in range(100):
            drawn.append(end.masked_bits(1)[0].tobytes())

    for end in (first, first, first, last):
        threads.append(threading.Thread(target=draw, args=(end,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    last.end()
    dealer.join()
    assert len(set(drawn)) == 400


@pytest.mark.parametrize(
    "declared",
    [
        lambda place: {"upper": 8 + place},
        lambda place: {"lower": -8 - place},
        lambda place: {"shape": ((2, 1), (1, 2))[place]},
    ],
)
def test_parties_that_declared_an_input_differently_stop_there(declared):
    def program(party):
        facts = {"shape": (2, 1), "lower": -8, "upper": 8} | declared(party.index)
        mine = np.ones(facts["shape"]) if party.index == 0 else None
        return party.share(0, facts["shape"], facts["lower"], facts["upper"], mine).open()

    with pytest.raises(ChannelBroken, match=r"another step than .*input.*declare each input alike"):
        run_parties(program)


def test_parties_that_declared_another_bound_of_whole_numbers_stop_there():
    def program(party):
        checked = AuthenticatedParty(party)
        return checked.reveal(checked.share(0, (1,), 5 + party.index, None if party.index else [5])).tolist()

    with pytest.raises(ChannelBroken, match=r"another step than .*input.*declare each input alike"):
        run_parties(program)


@pytest.mark.parametrize("join", [stack, concatenate])
def test_shares_of_two_parties_are_not_joined(join):
    shares = [
        sharing.Shared(sharing.Party(0, {1: local_links(2)[0][1]}, None), np.zeros(2, dtype=np.uint64), 1)
        for _ in range(2)
    ]
    assert join([shares[0]] * 2).shape[0] in (2, 4)
    with pytest.raises(BadInput, match="different parties"):
        join(shares)

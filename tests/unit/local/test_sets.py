"""Multiple choice: every pair of sets is protected, reports survive the wire, and the better strategy is advised."""

import dataclasses
import json
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cloister import local
from cloister.local.mechanisms.sets import sets_of
from cloister.local.privacy.certificate import verify
from cloister.privacy.errors import BadCandidates, BadInput, BadLoss, BadProbability, NotPrivate
from cloister.privacy.noise import SeededSource

LOSS = local.epsilon("1.5")
MECHANISMS: dict[str, local.Oracle] = {
    "one": local.OneOfSet.for_loss(13, 3, LOSS),
    "bits": local.SetBits.for_loss(13, 3, LOSS),
    "padded OLH": local.PaddedSample.for_loss(13, 3, LOSS),
    "padded OUE": local.PaddedSample(13, 3, local.UnaryEncoding.optimised(14, LOSS)),
}
every = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
PEOPLE = [{0, 2, 12}, {2}, set(), {5, 2}] * 150


def small(amount: str) -> Iterator[local.Oracle]:
    loss = local.epsilon(amount)
    for domain, most in ((2, 1), (3, 1), (3, 2), (4, 2), (5, 3), (3, 3), (4, 4)):
        yield local.OneOfSet.for_loss(domain, most, loss)
        yield local.SetBits.for_loss(domain, most, loss)
        yield local.PaddedSample(domain, most, local.DirectEncoding.for_loss(domain + 1, loss))
        yield local.PaddedSample(domain, most, local.UnaryEncoding.optimised(domain + 1, loss))
        yield local.PaddedSample(domain, most, local.LocalHashing.for_loss(domain + 1, loss, buckets=3))


@pytest.mark.parametrize("amount", ["0.01", "0.5", "1", "2", "4", "8"])
def test_all_pairs_of_sets_are_listed_and_hold_and_agree_with_the_closed_form(amount: str) -> None:
    for mechanism in small(amount):
        certificate = verify(mechanism)
        assert (certificate.method, certificate.holds) == ("listed", True), (mechanism, str(certificate))
        assert certificate.ratio is not None
        assert certificate.ratio <= mechanism.largest_ratio(), mechanism
        # Few buckets and a small domain: no set of four options avoids the bucket that says nothing.
        if not isinstance(getattr(mechanism, "inner", None), local.LocalHashing):
            assert certificate.ratio == mechanism.largest_ratio(), mechanism


@pytest.mark.parametrize("amount", ["0.01", "1", "8", "20"])
def test_large_questions_are_certified_by_exact_arithmetic(amount: str) -> None:
    loss = local.epsilon(amount)
    for mechanism in (
        local.OneOfSet.for_loss(1000, 50, loss),
        local.SetBits.for_loss(1000, 50, loss),
        local.PaddedSample.for_loss(10**6, 50, loss),
    ):
        certificate = verify(mechanism)
        assert (certificate.holds, certificate.method) == (True, "exact"), mechanism


def test_the_budget_is_used_up_and_not_wasted() -> None:
    for amount in ("0.1", "1", "4"):
        for mechanism in small(amount):
            used = verify(mechanism).epsilon
            # With most = domain no set is both full and without a given option, so a little is left over by design.
            if mechanism.most < mechanism.domain:  # type: ignore[attr-defined]
                assert used is not None
                assert 0.998 * float(amount) < float(used) <= float(amount) * (1 + 1e-11), mechanism


def test_bits_that_spend_the_whole_epsilon_on_every_option_break_the_promise() -> None:
    p, q = local.UnaryEncoding.optimised(4, local.epsilon(1)).p, local.UnaryEncoding.optimised(4, local.epsilon(1)).q

    class Naive:
        domain, outputs, answers, loss = 4, 16, 11, local.epsilon(1)
        inputs = sets_of(4, 2)

        def law(self, value: int) -> list[Fraction]:
            ones = [p if value >> option & 1 else q for option in range(4)]
            return [
                Fraction(math.prod(one if report >> option & 1 else 1 - one for option, one in enumerate(ones)))
                for report in range(16)
            ]

    broken = verify(Naive())
    assert not broken.holds
    assert broken.epsilon is not None
    assert float(broken.epsilon) == pytest.approx(2, abs=1e-3)


def test_one_choice_of_one_is_direct_or_unary_encoding() -> None:
    one, direct = local.OneOfSet.for_loss(6, 1, LOSS), local.DirectEncoding.for_loss(7, LOSS)
    assert float(one.q) == pytest.approx(float(direct.q), rel=1e-15)  # the seventh value says nothing
    bits = local.SetBits.for_loss(6, 1, LOSS)
    assert bits.law(1 << 2) == local.UnaryEncoding(6, bits.p, bits.q, LOSS).law(2)


def test_sharing_one_budget_beats_a_budget_for_every_bit_and_grows_with_most_not_its_square() -> None:
    loss = local.epsilon(1)
    for most in (2, 5, 10):
        alone = local.UnaryEncoding.symmetric(200, loss.split(most)).mse(1)
        assert local.SetBits.for_loss(200, most, loss).mse(1) < alone / (0.6 * most)
    five, fifty = (local.SetBits.for_loss(10_000, most, local.epsilon("0.1")).mse(1) for most in (5, 50))
    assert fifty / five == pytest.approx(10, rel=0.1)


def test_the_advice_is_the_least_of_the_closed_forms() -> None:
    assert local.ChooseUpTo(10, 3).advise(local.epsilon(1), 1000).best == local.OneOfSet.for_loss(
        10, 3, local.epsilon(1)
    )
    for options, most, amount in ((10, 3, "1"), (60, 3, "1"), (500, 2, "0.5"), (30, 10, "4")):
        advice = local.ChooseUpTo(options, most).advise(local.epsilon(amount), 1000)
        assert advice.best.mse(1000) <= 1.02 * min(line.mse for line in advice.table)
        assert len(advice.table) == 3
        assert "→" in str(advice)
    short = local.ChooseUpTo(500, 3).advise(local.epsilon(1), 1000, most_bits=16)
    assert short.best.name == "padded-sample"
    with pytest.raises(BadInput):
        local.ChooseUpTo(500, 3).advise(local.epsilon(1), 1000, most_bits=2)
    with pytest.raises(BadInput):
        local.ChooseUpTo(10**9, 3).advise(local.epsilon(1), 10)


@every
def test_reports_survive_the_wire_and_counts_add_up(mechanism: Any) -> None:
    reports = mechanism.perturb(PEOPLE, SeededSource(1))
    wire = mechanism.encode(reports)
    assert wire.shape == (600, mechanism.width)
    back, refused = mechanism.decode([row.tobytes() for row in wire])
    assert refused == 0
    assert np.array_equal(back.data, reports.data)
    halves = mechanism.aggregate(wire[:300]) + mechanism.aggregate(wire[300:])
    assert np.array_equal(halves.table, mechanism.aggregate(reports).table)
    spoiled = mechanism.aggregate([wire[0].tobytes(), b"", None, wire[0].tobytes() + b"x", b"\xff" * mechanism.width])
    assert (spoiled.n, spoiled.refused) == (1, 4)


@every
def test_a_mechanism_is_a_frozen_value_that_describes_itself(mechanism: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.most = 4
    assert dataclasses.replace(mechanism) == mechanism
    assert json.loads(json.dumps(mechanism.describe()))["most"] == 3


@every
def test_sets_may_be_given_as_sets_lists_or_a_matrix(mechanism: Any) -> None:
    matrix = np.zeros((600, 13), dtype=bool)
    for person, chosen in enumerate(PEOPLE):
        matrix[person, list(chosen)] = True
    ways = [PEOPLE, [sorted(one, reverse=True) for one in PEOPLE], [tuple(one) for one in PEOPLE], matrix]
    data = [mechanism.perturb(way, SeededSource(4)).data for way in ways]
    assert all(np.array_equal(data[0], other) for other in data[1:])
    assert len(mechanism.perturb({3, 1})) == len(mechanism.perturb(set())) == 1
    assert len(mechanism.perturb([])) == 0


@every
@pytest.mark.parametrize(
    "wrong",
    [
        {123456},
        {-1},
        {0, 1, 2, 3},
        [[1, 1]],
        3,
        [1, 2],
        None,
        "ab",
        [{0.5}],
        [{True}],
        [{2**70}],
        np.zeros((2, 5), bool),
    ],
    ids=str,
)
def test_what_is_no_set_of_options_is_refused_without_being_shown(mechanism: Any, wrong: Any) -> None:
    with pytest.raises(BadCandidates) as caught:
        mechanism.perturb(wrong)
    assert "123456" not in str(caught.value)


@every
def test_shares_of_sets_have_errors_and_are_projected_to_what_sets_can_be(mechanism: Any) -> None:
    estimate = mechanism.estimate(mechanism.aggregate(mechanism.perturb(PEOPLE, SeededSource(2))), "0.9")
    low, high = estimate.interval
    assert estimate.raw
    normal = 2 * 1.6449 * estimate.standard_error
    usual = estimate.frequencies > 0  # below, only shares that can be are tested
    assert (high - low > 0.9 * normal)[usual].all()
    assert (high - low < 1.15 * normal + 1.1 * estimate.spread.step)[usual].all()
    projected = estimate.projected()
    assert not projected.raw
    assert projected.frequencies.min() >= 0
    assert projected.frequencies.max() <= 1
    assert projected.frequencies.sum() <= 3 + 1e-9
    truth = np.array([sum(option in one for one in PEOPLE) for option in range(13)]) / 600
    assert np.square(projected.frequencies - truth).sum() <= np.square(estimate.frequencies - truth).sum()
    with pytest.raises(BadInput):
        estimate.projected("em")
    with pytest.raises(NotPrivate):
        estimate.require_private()


def test_levels_of_a_choice_are_combined_and_stay_shares_of_sets() -> None:
    groups = []
    for seed, amount in enumerate(("1", "3")):
        bits = local.SetBits.for_loss(13, 3, local.epsilon(amount))
        groups.append(bits.estimate(bits.aggregate(bits.perturb(PEOPLE * 5, SeededSource(seed)))))
    both = local.combine(groups)
    assert both.most == 3
    assert both.standard_error.max() < groups[1].standard_error.max()
    assert both.projected().frequencies.sum() <= 3 + 1e-9
    assert both.projected().frequencies.sum() > 1.2


class Script:
    """A source that reads from a given string of bytes, as a client in another language does."""

    private = False

    def __init__(self, text: bytes) -> None:
        self.text = text

    def bytes(self, count: int) -> bytes:
        taken, self.text = self.text[:count], self.text[count:]
        assert len(taken) == count
        return taken


def word(number: int) -> bytes:
    return number.to_bytes(8, "little")


def test_one_of_a_set_follows_from_one_little_endian_word() -> None:
    mechanism = local.OneOfSet.for_loss(6, 3, LOSS)
    own, run = mechanism.thresholds
    end = 3 * own
    said = {
        number: int(mechanism.perturb({4, 1}, Script(word(number))).data[0])  # type: ignore[arg-type]
        for number in (0, own - 1, own, 2 * own, end - 1, end, end + run, end + 3 * run, end + 4 * run, 2**64 - 1)
    }
    assert list(said.values()) == [1, 1, 4, 6, 6, 0, 2, 5, 6, 6]


def test_bits_of_a_set_follow_from_one_word_and_a_chain_of_ands_and_ors() -> None:
    mechanism = local.SetBits(8, 3, Fraction(3, 8), Fraction(5, 16), local.epsilon(1))
    ends = mechanism.thresholds
    assert ends == tuple(sum(3 * 11**j * 2 ** (61 - 4 * j) for j in range(i + 1)) for i in range(3))
    # 5/16 = 0.0101 in binary, from the last digit: r1, AND r2, OR r3, AND r4: the coins are 10100001 here.
    coins = bytes([0b11110000, 0b10101010, 0b00000001, 0b11111111])

    def said(number: int) -> int:
        return int(mechanism.perturb({7, 5, 1}, Script(word(number) + coins)).data[0, 0])  # type: ignore[arg-type]

    assert said(0) == 0b10100011  # the first chosen option, 1, is set; the rest as the coins fell
    assert said(ends[0]) == 0b10100001  # 1 cleared, 5 set, 7 as it fell
    assert said(ends[1]) == 0b10000001  # 1 and 5 cleared, 7 set
    assert said(ends[2]) == 0b00000001  # none of them


def test_parameters_that_break_the_promise_or_tell_nothing_are_refused() -> None:
    bits, one = local.SetBits.for_loss(6, 2, LOSS), local.OneOfSet.for_loss(6, 2, LOSS)
    with pytest.raises(BadLoss):
        dataclasses.replace(bits, p=bits.p + Fraction(1, 1 << 40))
    with pytest.raises(BadLoss):
        dataclasses.replace(one, q=one.q - Fraction(1, 1 << 40))
    with pytest.raises(BadProbability):
        dataclasses.replace(bits, p=bits.q)
    with pytest.raises(BadProbability):
        dataclasses.replace(one, q=Fraction(1, 8))
    for most in (0, 7, True, 1.5):
        with pytest.raises(BadCandidates):
            local.ChooseUpTo(6, most)  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        local.PaddedSample(6, 2, local.LocalHashing.for_loss(6, LOSS))
    with pytest.raises(BadInput):
        local.PaddedSample(6, 2, local.HadamardResponse.for_loss(7, LOSS))  # type: ignore[arg-type]


def test_liars_are_bounded_for_sets_too() -> None:
    one, bits = MECHANISMS["one"], MECHANISMS["bits"]
    assert local.poisoning(one, 10, 1000, targets=5).together < local.poisoning(bits, 10, 1000, targets=5).together * 5
    assert local.poisoning(bits, 10, 1000).up > 0.01


@pytest.mark.parametrize(
    ("q", "above"), [("3/8", 1), ("1/2", 1), (f"1/{2**62}", 1), (f"5/{2**61}", 3), (f"{2**20 + 1}/{2**64}", 9)]
)
@pytest.mark.parametrize(("domain", "most"), [(2, 1), (2, 2), (4, 3), (4, 4), (5, 2)])
def test_the_ratio_of_set_bits_is_that_of_its_law_also_where_words_are_rounded_down(
    q: str, above: int, domain: int, most: int
) -> None:
    coin = Fraction(q)
    topics = local.SetBits(domain, most, coin + above * Fraction(1, 2**64), coin, local.epsilon(3))
    laws = [topics.law(value) for value in topics.inputs]
    worst = max(one / other for law in laws for beside in laws for one, other in zip(law, beside, strict=True))
    assert topics.largest_ratio() == worst


def test_set_bits_are_refused_if_a_word_is_rounded_to_nothing_or_to_less_than_its_coin() -> None:
    coin = Fraction(3, 8)
    with pytest.raises(BadLoss, match="cost more"):
        local.SetBits(100, 90, coin + Fraction(1, 2**64), coin, local.epsilon("0.001"))
    with pytest.raises(BadProbability, match="able to show"):
        local.SetBits(1020, 100, coin + Fraction(1, 2**64), coin, local.epsilon("0.001"))

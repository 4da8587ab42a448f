"""Numbers: one contract, exact laws, and the textbook's flawed twins that do not pass."""

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from cloister import local
from cloister.local.analysis.combine import combine, selection
from cloister.local.base.dyadic import WORD
from cloister.local.privacy.certificate import verify
from cloister.privacy.errors import BadInput, BadLoss, BadNumber, BadProbability, NotPrivate
from cloister.privacy.loss import Loss
from cloister.privacy.noise import SeededSource
from cloister.privacy.number import exp_up, rational

LOSS = local.epsilon("1.5")
ONE = {
    "Laplace": local.LaplaceNumber.for_loss((17, 90), LOSS),
    "Duchi": local.Duchi.for_loss((17, 90), LOSS),
    "Piecewise": local.Piecewise.for_loss((17, 90), LOSS),
    "Hybrid": local.Hybrid.for_loss((17, 90), LOSS),
}
PAIRS = [(0, 10), (17, 90), (-1, 1)]
MANY = {
    "signs": local.DuchiVector.for_loss(PAIRS, LOSS),
    "even signs": local.DuchiVector.for_loss([*PAIRS, (0, 1)], LOSS),
    "one of three": local.SampledNumbers.for_loss(PAIRS, LOSS),
    "two of three": local.SampledNumbers.for_loss(PAIRS, LOSS, local.Piecewise.for_loss, picked=2),
    "all with Laplace": local.SampledNumbers.for_loss(PAIRS, LOSS, local.LaplaceNumber.for_loss, picked=3),
}
WAVE = local.SquareWave.for_loss((17, 90), LOSS)
MECHANISMS: dict[str, Any] = {**ONE, **MANY, "wave": WAVE}
every = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
AMOUNTS = ("0.01", "0.5", "1", "2", "4", "8")


def drawn(mechanism: Any, n: int = 400, seed: int = 1) -> local.Reports:
    sides = len(mechanism.ends)
    values = np.arange(n) % 50 + 20 if sides == 1 else np.tile([1.0, 30.0, 0.2, 0.5][:sides], (n, 1))
    return mechanism.perturb(values, SeededSource(seed))


# The contract.


@every
def test_a_mechanism_is_a_frozen_value_with_exact_public_parameters(mechanism: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.loss = None
    assert dataclasses.replace(mechanism) == mechanism
    assert hash(mechanism) == hash(dataclasses.replace(mechanism))
    assert json.loads(json.dumps(mechanism.describe()))["bits"] == mechanism.bits
    assert isinstance(mechanism, local.NumberMechanism)


@every
def test_reports_survive_the_wire_to_the_bit(mechanism: Any) -> None:
    reports = drawn(mechanism)
    wire = mechanism.encode(reports)
    assert wire.shape == (400, mechanism.width)
    for arrived in (wire, wire.tobytes(), [row.tobytes() for row in wire]):
        back, refused = mechanism.decode(arrived)
        assert refused == 0
        assert np.array_equal(back.data, reports.data)


@every
def test_counts_of_parts_add_up_to_the_counts_of_all(mechanism: Any) -> None:
    wire = [row.tobytes() for row in mechanism.encode(drawn(mechanism))]
    whole = mechanism.aggregate(drawn(mechanism))
    parts = sum((mechanism.aggregate(wire[start : start + 77]) for start in range(0, 400, 77)), start=0)
    streamed = mechanism.aggregate(iter(wire))
    assert whole.n == parts.n == streamed.n == 400
    assert np.array_equal(whole.table, parts.table)
    assert np.array_equal(whole.table, streamed.table)


@every
def test_malformed_reports_are_refused_and_counted(mechanism: Any) -> None:
    good = [row.tobytes() for row in mechanism.encode(drawn(mechanism, 20))]
    garbage: list[Any] = [None, 7, "text", b"", good[0] + b"\x00", good[0][:-1], {}, float("nan"), [good[0]]]
    if mechanism.bits != 8 * mechanism.width or mechanism.outputs != 1 << mechanism.bits:
        garbage.append(b"\xff" * mechanism.width)
    counts = mechanism.aggregate(good + garbage)
    assert (counts.n, counts.refused) == (20, len(garbage))
    assert np.array_equal(counts.table, mechanism.aggregate(good).table)
    for nonsense in (None, 3, "abc", object(), np.zeros((4, 99)), np.array(5)):
        assert mechanism.aggregate(nonsense).n == 0


def test_a_coordinate_told_twice_or_out_of_order_is_refused() -> None:
    mechanism = MECHANISMS["two of three"]
    row = mechanism.encode(drawn(mechanism, 1))[0].tobytes()
    first, second = row[: len(row) // 2], row[len(row) // 2 :]
    counts = mechanism.aggregate([row, second + first, first + first])
    assert (counts.n, counts.refused) == (1, 2)


@every
def test_what_is_no_number_is_refused_and_not_shown(mechanism: Any) -> None:
    sides = len(mechanism.ends)
    for value in ("123456", None, float("nan"), [[123456, "x"]], 1j):
        with pytest.raises(BadNumber) as caught:
            mechanism.perturb(value if sides == 1 else [value] * sides)
        assert "123456" not in str(caught.value)
    if sides > 1:
        for shape in (3.0, [1.0, 2.0], [[[1.0] * sides]]):
            with pytest.raises(BadInput):
                mechanism.perturb(shape)


@every
def test_values_beyond_the_bounds_are_clipped_to_them(mechanism: Any) -> None:
    sides = len(mechanism.ends)
    ends = np.array([[float(low), float(high)] for low, high in mechanism.ends])
    for wild, bound in ((np.inf, 1), (1e300, 1), (-np.inf, 0), (-1e300, 0)):
        given = wild if sides == 1 else np.full(sides, wild)
        expected = ends[0, bound] if sides == 1 else ends[:, bound]
        assert np.array_equal(mechanism.points(given), mechanism.points(expected))
    assert mechanism.points(ends[:, 1] if sides > 1 else ends[0, 1]).max() == mechanism.steps


def test_whole_numbers_lie_on_the_grid() -> None:
    for mechanism in (*ONE.values(), WAVE):
        ages = np.arange(17, 91)
        assert np.array_equal(mechanism.points(ages) * 73 // mechanism.steps, ages - 17)
        assert np.array_equal(mechanism.points(ages) * 73 % mechanism.steps, np.zeros(74))


@every
def test_seeded_reports_are_marked_not_private_all_the_way(mechanism: Any) -> None:
    seeded = mechanism.aggregate(drawn(mechanism))
    assert not seeded.private
    with pytest.raises(NotPrivate):
        mechanism.estimate(seeded).require_private()
    value: Any = 30 if len(mechanism.ends) == 1 else np.ones((5, len(mechanism.ends)))
    secret = mechanism.aggregate(mechanism.perturb(value))
    assert mechanism.estimate(secret).require_private().private
    assert not (secret + seeded).private


@pytest.mark.parametrize("name", [*ONE, *MANY])
def test_a_mean_has_an_error_and_an_interval_and_can_be_cut_to_its_bounds(name: str) -> None:
    mechanism = MECHANISMS[name]
    found = mechanism.estimate(mechanism.aggregate(drawn(mechanism)), "0.9")
    low, high = found.interval
    assert (found.raw, found.n, found.refused, found.confidence) == (True, 400, 0, 0.9)
    assert np.allclose(np.subtract(high, low), 2 * 1.6449 * np.asarray(found.standard_error), rtol=1e-4)
    assert (np.asarray(found.population_error) >= 0.9 * np.asarray(found.standard_error)).all()
    truth = np.mean(np.arange(400) % 50 + 20) if name in ONE else np.array([1.0, 30.0, 0.2, 0.5][: len(mechanism.ends)])
    assert (np.abs(found.mean - truth) < 5 * np.asarray(found.standard_error)).all()
    cut = dataclasses.replace(found, mean=found.mean * 0 + 1e9).projected()
    assert not cut.raw
    assert np.array_equal(np.atleast_1d(cut.mean), [float(high) for _, high in mechanism.ends])
    with pytest.raises(BadInput):
        cut.projected()


@every
def test_no_person_and_the_wrong_counts_are_refused(mechanism: Any) -> None:
    with pytest.raises(BadInput):
        mechanism.estimate(mechanism.aggregate([]))
    other = ONE["Duchi"] if mechanism is not ONE["Duchi"] else ONE["Laplace"]
    with pytest.raises(BadInput):
        mechanism.estimate(other.aggregate(drawn(other)))


@every
def test_the_same_random_bytes_make_the_same_report(mechanism: Any) -> None:
    assert np.array_equal(drawn(mechanism).data, drawn(mechanism).data)
    assert not np.array_equal(drawn(mechanism, seed=1).data, drawn(mechanism, seed=2).data)


@dataclass
class Script:
    """A source that reads from a given string of bytes, as a client in another language does."""

    text: bytes
    private: bool = False

    def bytes(self, count: int) -> bytes:
        taken, self.text = self.text[:count], self.text[count:]
        assert len(taken) == count
        return taken


def said(mechanism: Any, value: Any, *words: int) -> Any:
    script = Script(b"".join(word.to_bytes(8, "little") for word in words))
    data = mechanism.perturb(value, script).data[0]
    assert script.text == b""
    return data if np.ndim(data) else int(data)


def test_a_piecewise_report_follows_from_one_little_endian_word() -> None:
    mechanism = local.Piecewise.for_loss((0, 10), LOSS, steps=10, shift=2, window=9)
    p, q = (int(chance * WORD) for chance in (mechanism.p, mechanism.q))
    assert 9 * p + 20 * q == WORD
    near = 9 * p
    words = (0, p - 1, p, near - 1, near, near + 6 * q - 1, near + 6 * q, WORD - 1)
    # The number 3 has the window 6 … 14 among 0 … 28.
    assert [said(mechanism, 3, word) for word in words] == [6, 6, 7, 14, 0, 5, 15, 28]
    assert [said(mechanism, 10, word) for word in (0, near, WORD - 1)] == [20, 0, 19]
    assert [said(mechanism, 0, word) for word in (0, near, WORD - 1)] == [0, 9, 28]


def test_the_other_reports_follow_from_their_words_too() -> None:
    duchi = local.Duchi.for_loss((0, 4), LOSS, steps=4)
    base = int(duchi.q * WORD)
    assert [said(duchi, 0, word) for word in (base - 1, base)] == [1, 0]
    assert [said(duchi, 4, word) for word in (WORD - base - 1, WORD - base)] == [1, 0]
    hybrid = local.Hybrid.for_loss((0, 10), LOSS, steps=10)
    share = int(hybrid.share * WORD)
    assert said(hybrid, 3, share - 1, 0) == 3 * hybrid.shift
    assert said(hybrid, 3, share, 0) == hybrid.outputs - 1
    assert said(hybrid, 3, share, WORD - 1) == hybrid.outputs - 2
    signs = local.DuchiVector.for_loss([(0, 1), (0, 1)], LOSS)
    # Rounded to (1, 0); full agreement is sent as it is, none as its opposite.
    assert said(signs, [1, 0], 0, WORD - 1, 0).tolist() == [0b01]
    assert said(signs, [1, 0], 0, WORD - 1, WORD - 1).tolist() == [0b10]


def test_random_bytes_do_not_depend_on_the_value() -> None:
    for name in ("Duchi", "Piecewise", "Hybrid", "signs", "wave"):
        mechanism = MECHANISMS[name]
        taken = []
        for place in (0, 1):
            script = Script(b"\x5a" * 800)
            ends = [float(pair[place]) for pair in mechanism.ends]
            mechanism.perturb(ends[0] if len(ends) == 1 else ends, script)
            taken.append(len(script.text))
        assert taken[0] == taken[1] < 800


@pytest.mark.parametrize("name", [*ONE, "signs", "wave"])
def test_a_description_is_enough_to_make_the_mechanism_again(name: str) -> None:
    told = json.loads(json.dumps(MECHANISMS[name].describe()))
    assert local.from_description(told) == MECHANISMS[name]
    with pytest.raises(BadInput):
        local.from_description({**told, "loss": "1"})


# Laws.


def small(amount: str) -> Iterator[Any]:
    loss = local.epsilon(amount)
    for steps in (1, 2, 5, 12):
        yield local.Duchi.for_loss((0, 1), loss, steps)
        yield local.Piecewise.for_loss((-1, 1), loss, steps, shift=3)
        yield local.Piecewise.for_loss((-1, 1), loss, steps, shift=1)
        yield local.SquareWave.for_loss((0, 1), loss, steps, shift=4)
    for size in (2, 3, 4, 5):
        yield local.DuchiVector.for_loss([(0, 1)] * size, loss, steps=1)
    yield local.DuchiVector.for_loss([(0, 1), (2, 3)], loss, steps=3)

    def few(bounds: Any, loss: Loss) -> local.NumberMechanism:
        return local.Piecewise.for_loss(bounds, loss, 2, shift=1)

    yield local.SampledNumbers.for_loss([(0, 1)] * 3, loss, few, picked=1)
    yield local.SampledNumbers.for_loss([(0, 1)] * 3, loss, few, picked=2)


def small_hybrid(amount: str) -> local.Hybrid:
    near = local.Piecewise.for_loss((0, 1), local.epsilon(amount), 6, shift=2)
    bit = local.Duchi.for_loss((0, 1), local.epsilon(amount), 6)
    return local.Hybrid(near.low, near.high, 6, 2, near.window, near.q, bit.q, Fraction(1, 4), near.loss)


@pytest.mark.parametrize("amount", AMOUNTS)
def test_every_law_is_listed_and_holds_and_agrees_with_its_closed_form(amount: str) -> None:
    for mechanism in (*small(amount), small_hybrid(amount)):
        certificate = verify(mechanism)
        assert (certificate.method, certificate.holds) == ("listed", True), (mechanism, str(certificate))
        assert certificate.ratio == mechanism.largest_ratio(), mechanism
        assert certificate.epsilon is not None
        assert 0.999 * float(amount) < float(certificate.epsilon) <= float(amount) * (1 + 1e-11), mechanism


@pytest.mark.parametrize("amount", [*AMOUNTS, "0.001", "30"])
def test_large_mechanisms_are_certified_by_exact_arithmetic(amount: str) -> None:
    loss, bounds = local.epsilon(amount), (0, 100)
    for mechanism in (
        local.LaplaceNumber.for_loss(bounds, loss),
        local.LaplaceNumber.for_loss(bounds, loss, steps=1),
        local.Duchi.for_loss(bounds, loss, steps=1 << 20),
        local.Piecewise.for_loss(bounds, loss),
        local.Hybrid.for_loss(bounds, loss),
        local.SquareWave.for_loss(bounds, loss, 1024),
        local.DuchiVector.for_loss([bounds] * 9, loss),
        local.DuchiVector.for_loss([bounds] * 10, loss),
        local.SampledNumbers.for_loss([bounds] * 10, loss),
    ):
        certificate = verify(mechanism)
        assert (certificate.holds, certificate.method) == (True, "exact"), (mechanism.name, str(certificate))


@pytest.mark.parametrize("amount", ["0.5", "2"])
def test_stated_moments_are_those_of_the_listed_law(amount: str) -> None:
    loss = local.epsilon(amount)
    for mechanism in (
        local.Duchi.for_loss((0, 1), loss, 4),
        local.Piecewise.for_loss((0, 1), loss, 4, shift=3),
        local.SquareWave.for_loss((0, 1), loss, 4, shift=3),
        small_hybrid(amount),
    ):
        for point in range(mechanism.steps + 1):
            law, t = mechanism.law(point), Fraction(2 * point, mechanism.steps) - 1
            for part in mechanism.parts:
                chances = law[part.start : part.start + part.outputs]
                assert sum(chances) == part.share
                first, second = (
                    sum(place**power * chance for place, chance in enumerate(chances)) / part.share for power in (1, 2)
                )
                assert first == part.mean[0] + part.mean[1] * t
                assert second == part.square[0] + part.square[1] * t + part.square[2] * t * t


@pytest.mark.parametrize("size", [2, 3, 4])
def test_signs_of_even_and_odd_dimension_lean_exactly_as_stated(size: int) -> None:
    mechanism = local.DuchiVector.for_loss([(0, 1)] * size, local.epsilon(1), steps=2)
    for corner in product(range(3), repeat=size):
        law = mechanism.law(sum(point * 3**place for place, point in enumerate(corner)))
        for place, point in enumerate(corner):
            one = sum(chance for said, chance in enumerate(law) if said >> place & 1)
            assert one == mechanism.parts[0].mean[0] + mechanism.parts[0].mean[1] * (point - 1)


def scale(mechanism: Any) -> float:
    """The textbook's B: what a sign is multiplied with."""
    return 0.5 / float(mechanism.parts[0].mean[1])


def test_textbook_constants_are_reached_or_beaten() -> None:
    e = math.e
    assert scale(local.DuchiVector.for_loss([(-1, 1)] * 3, local.epsilon(1))) == pytest.approx(4.328, abs=1e-3)
    # Spec LDP-12 mends even d with ties among the likely vectors; among the unlikely ones they cost less.
    for size, repaired in ((2, 5.328), (4, 6.771), (6, 7.925)):
        ties = math.comb(size, size // 2)
        assert (e * (2**size + ties) + 2**size - ties) / (ties * (e - 1)) == pytest.approx(repaired, abs=1e-3)
        assert scale(local.DuchiVector.for_loss([(-1, 1)] * size, local.epsilon(1))) == pytest.approx(
            repaired - 2, abs=1e-3
        )
    for amount in ("0.5", "1", "2", "5"):
        loss, h = local.epsilon(amount), math.exp(float(amount) / 2)
        near = local.Piecewise.for_loss((-1, 1), loss)
        assert near.worst_variance == pytest.approx(4 * h / (3 * (h - 1) ** 2), rel=1e-3)
        assert float(near.variance(0)) == pytest.approx((h + 3) / (3 * (h - 1) ** 2), rel=1e-3)
        assert float(near.variance(0.5)) - float(near.variance(0)) == pytest.approx(0.25 / (h - 1), rel=2e-3)
        bit = local.Duchi.for_loss((-1, 1), loss)
        b = ((h * h + 1) / (h * h - 1)) ** 2
        assert [float(bit.variance(t)) for t in (0, 0.5, 1)] == pytest.approx([b, b - 0.25, b - 1])
        assert local.LaplaceNumber.for_loss((-1, 1), loss).worst_variance == pytest.approx(
            8 / float(amount) ** 2, rel=1e-6
        )
        mixed = local.Hybrid.for_loss((-1, 1), loss)
        assert mixed.worst_variance <= min(near.worst_variance, bit.worst_variance) * (1 + 1e-9)
        if amount != "0.5":
            flat = (h + 3) / (3 * h * (h - 1)) + b / h
            assert mixed.worst_variance == pytest.approx(flat, rel=1e-3)
    crossing = [
        local.Piecewise.for_loss((-1, 1), local.epsilon(a)).worst_variance
        < local.Duchi.for_loss((-1, 1), local.epsilon(a)).worst_variance
        for a in ("1.28", "1.30")
    ]
    assert crossing == [False, True]


def test_variance_is_in_the_units_of_the_values() -> None:
    small_, large = (local.Piecewise.for_loss(bounds, LOSS) for bounds in ((-1, 1), (0, 200)))
    assert large.worst_variance == pytest.approx(1e4 * small_.worst_variance, rel=1e-3)
    assert float(large.variance(100, 50)) == pytest.approx(1e4 * float(small_.variance(0)) / 50, rel=1e-3)
    assert large.mse(10) == pytest.approx(large.worst_variance / 10)


# The flawed twins.


@dataclass(frozen=True)
class Listing54:
    """Piecewise as printed (spec E-04): left or right piece by a fair coin, whatever their lengths."""

    domain: int
    window: int
    loss: Loss

    def law(self, value: int) -> list[Fraction]:
        half = exp_up(self.loss.amount / 2)
        near, reach = half / (half + 1), self.domain - 1
        chances = [near / self.window] * (reach + self.window)
        left, right = range(value), range(value + self.window, reach + self.window)
        for piece, other in ((left, right), (right, left)):
            for report in piece:
                chances[report] = (1 - near) / (2 if len(other) else 1) / len(piece)
        return chances


@dataclass(frozen=True)
class Listing53:
    """Duchi for an even number of coordinates: ties on both sides (the text), or uncounted in T- (the listing)."""

    size: int
    loss: Loss
    ties_in_both: bool

    @property
    def domain(self) -> int:
        return 2**self.size

    def law(self, value: int) -> list[Fraction]:
        power = exp_up(self.loss.amount)
        agreeing = [self.size - (value ^ said).bit_count() for said in range(2**self.size)]
        above = [2 * count >= self.size if self.ties_in_both else 2 * count > self.size for count in agreeing]
        below = [2 * count <= self.size for count in agreeing]
        likely, other = power / (power + 1) / sum(above), 1 / (power + 1) / sum(below)
        return [likely * up + other * down for up, down in zip(above, below, strict=True)]


def test_a_piecewise_listing_without_length_weights_has_no_finite_epsilon() -> None:
    spent = []
    for reach in (8, 32, 128):
        broken = verify(Listing54(reach + 1, round(reach * math.exp(-0.5)), local.epsilon(1)))
        assert not broken.holds
        assert broken.epsilon is not None
        spent.append(float(broken.epsilon))
        assert verify(local.Piecewise.for_loss((0, 1), local.epsilon(1), reach, shift=1)).holds
    # The finer the numbers, the larger: near an end a whole piece shrinks to one report.
    assert spent[0] > 1.5
    assert spent[2] > spent[1] + 1 > spent[0] + 2


@pytest.mark.parametrize(("size", "listed"), [(2, 2.10), (4, 1.79), (6, 1.65)])
def test_signs_of_even_dimension_as_in_the_text_and_the_listing_cost_more_than_they_say(
    size: int, listed: float
) -> None:
    text, listing = (verify(Listing53(size, local.epsilon(1), both)) for both in (True, False))
    assert not text.holds
    assert not listing.holds
    assert text.epsilon is not None
    assert listing.epsilon is not None
    assert float(text.epsilon) == pytest.approx(math.log(math.e + 1), abs=1e-9)
    assert float(listing.epsilon) == pytest.approx(listed, abs=0.005)
    ours = verify(local.DuchiVector.for_loss([(-1, 1)] * size, local.epsilon(1), steps=1))
    assert (ours.holds, ours.method) == (True, "listed")


def test_signs_of_odd_dimension_as_in_the_text_hold() -> None:
    assert float(verify(Listing53(3, local.epsilon(1), True)).epsilon or 0) == pytest.approx(1, abs=1e-9)


# What is refused.


def test_parameters_that_cost_more_than_they_say_are_refused() -> None:
    near = local.Piecewise.for_loss((0, 1), LOSS, 10, shift=2, window=8)
    with pytest.raises(BadLoss):
        dataclasses.replace(near, loss=local.epsilon("1.4"))
    with pytest.raises(BadLoss):
        dataclasses.replace(ONE["Duchi"], loss=local.epsilon("1.4"))
    with pytest.raises(BadLoss):
        dataclasses.replace(MANY["signs"], loss=local.epsilon("1.4"))
    with pytest.raises(BadLoss):
        dataclasses.replace(MANY["two of three"], picked=3)
    with pytest.raises(BadLoss):
        dataclasses.replace(ONE["Hybrid"], loss=local.epsilon("1.4"))
    with pytest.raises(BadProbability):
        dataclasses.replace(near, q=near.q + Fraction(1, WORD))  # no longer shares out all words
    with pytest.raises(BadProbability):
        dataclasses.replace(ONE["Duchi"], q=Fraction(2, 3))
    with pytest.raises(BadLoss):
        local.LaplaceNumber.for_loss((0, 1), local.epsilon("0.0001"))


@pytest.mark.parametrize("maker", [type(one).for_loss for one in (*ONE.values(), WAVE)])  # type: ignore[attr-defined]
def test_bounds_and_grids_that_cannot_be_are_refused(maker: Callable[..., Any]) -> None:
    for bounds in ((1, 1), (2, 1), (0, "1e400")):
        with pytest.raises(BadInput):
            maker(bounds, LOSS)
    for steps in (0, -1, True, 2.5, 1 << 25):
        with pytest.raises(BadInput):
            maker((0, 1), LOSS, steps)
    for shift in (0, -1, True, 2.5, "2", 1 << 40):
        with pytest.raises(BadInput):
            local.Piecewise.for_loss((0, 1), LOSS, 8, shift)  # type: ignore[arg-type]
        with pytest.raises(BadInput):
            local.SquareWave.for_loss((0, 1), LOSS, 8, shift)  # type: ignore[arg-type]
    for value in (rational("0.1"), "0.1", 0.1):
        assert maker((value, 1), LOSS).low == Fraction(1, 10)


def test_several_numbers_need_several_bounds() -> None:
    for wrong in ([(0, 1)], [], (0, 1), [(1, 0), (0, 1)]):
        with pytest.raises(BadInput):
            local.DuchiVector.for_loss(wrong, LOSS)  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        local.DuchiVector.for_loss([(0, 1)] * 21, LOSS)
    for picked in (0, 4, True):
        with pytest.raises(BadInput):
            local.SampledNumbers.for_loss(PAIRS, LOSS, picked=picked)
    with pytest.raises(BadInput):
        local.SampledNumbers(MANY["signs"].pairs, MANY["signs"], 1, LOSS)  # type: ignore[attr-defined]


# Advice, levels, liars.


@pytest.mark.parametrize("amount", ["0.1", "0.5", "1", "2", "5"])
def test_advice_for_a_number_is_within_two_percent_of_the_least_worst_case(amount: str) -> None:
    advice = local.advise_number((0, 120), local.epsilon(amount), 1000)
    assert advice.best.mse(1000) <= 1.02 * min(line.mse for line in advice.table)
    assert {line.label for line in advice.table} == {"Lap", "SR", "PM", "HM"}
    assert local.advise_number((0, 120), local.epsilon(amount), 1000, most_bits=1).best.name == "duchi"
    assert "→" in str(advice)


def test_advice_for_several_numbers_compares_signs_with_samples() -> None:
    table = local.advise_number([(-1, 1)] * 12, local.epsilon(1), 1000).table
    assert {line.label for line in table} == {"SR+", "Lap/k", "SR/k", "PM/k", "HM/k"}
    many = local.advise_number([(-1, 1)] * 30, local.epsilon(4), 1000)
    assert "SR+" not in {line.label for line in many.table}
    for wrong in ((3, 1), ((0, 1), (0, 1)), [(0, 1)], 5, [(1, 0), (0, 1)]):
        with pytest.raises(BadInput):
            local.advise_number(wrong, local.epsilon(1), 10)  # type: ignore[arg-type]


def groups(amounts: list[str], sizes: list[int], seed: int) -> list[local.MeanEstimate]:
    found = []
    for number, (amount, size) in enumerate(zip(amounts, sizes, strict=True)):
        mechanism = local.Hybrid.for_loss((0, 100), local.epsilon(amount))
        reports = mechanism.perturb(np.arange(size) % 61, SeededSource(f"{seed}-{number}"))
        found.append(mechanism.estimate(mechanism.aggregate(reports)))
    return found


def test_levels_combined_err_less_than_each_alone_and_stay_unbiased() -> None:
    runs = [groups(["0.5", "1", "3"], [610, 1220, 610], seed) for seed in range(60)]
    both = [combine(run) for run in runs]
    assert all(both[0].standard_error < one.standard_error for one in runs[0])
    error = np.mean([one.standard_error for one in both])
    assert abs(np.mean([one.mean for one in both]) - 30) < 4 * error / 60**0.5
    assert np.std([one.mean for one in both]) == pytest.approx(error, rel=0.35)
    chances = [selection(run) for run in runs]
    assert min(chances) > 1e-4
    assert np.mean(np.array(chances) < 0.5) == pytest.approx(0.5, abs=0.25)
    people = combine(runs[0], "people")
    assert people.mean == pytest.approx(np.average([one.mean for one in runs[0]], weights=[1, 2, 1]))
    assert people.standard_error > both[0].standard_error


def test_levels_that_follow_the_numbers_are_noticed() -> None:
    mechanism = local.Hybrid.for_loss((0, 100), local.epsilon(2))
    apart = [
        mechanism.estimate(mechanism.aggregate(mechanism.perturb(np.full(2000, value), SeededSource(value))))
        for value in (20, 80)
    ]
    assert selection(apart) < 1e-6


def test_means_that_do_not_belong_together_are_not_combined() -> None:
    one = groups(["1"], [61], 1)[0]
    other = ONE["Duchi"].estimate(ONE["Duchi"].aggregate(drawn(ONE["Duchi"])))
    for wrong in ([one, other], [one.projected(), one], [combine([one]), one]):
        with pytest.raises(BadInput):
            combine(wrong)
    with pytest.raises(BadInput):
        combine([one], "loudness")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["Duchi", "Piecewise", "Hybrid", "signs", "one of three"])
def test_crafted_reports_reach_the_poisoning_bound_and_never_pass_it(name: str) -> None:
    mechanism, n, fakes = MECHANISMS[name], 2000, 200
    sides = len(mechanism.ends)
    lowest = [float(low) for low, _ in mechanism.ends]
    honest = np.full(n - fakes, lowest[0]) if sides == 1 else np.tile(lowest, (n - fakes, 1))
    clean = mechanism.aggregate(mechanism.perturb(honest, SeededSource(3)))
    place = 0 if sides == 1 else int(np.argmax([high - low for low, high in mechanism.ends]))
    if sides == 1:
        top = {"Hybrid": mechanism.outputs - 3}.get(name, mechanism.outputs - 1)
        data: Any = np.full(fakes, top, dtype=np.uint64)
    elif name == "signs":
        data = np.full((fakes, 1), mechanism.outputs - 1, dtype=np.uint8)
    else:
        top = mechanism.inner.piecewise.outputs - 1
        data = np.tile(np.frombuffer(place.to_bytes(2, "little") + top.to_bytes(2, "little"), np.uint8), (fakes, 1))
    dirty = clean + mechanism.aggregate(local.Reports(mechanism, data))
    assert dirty.refused == 0
    bound = local.poisoning(mechanism, fakes, n)
    moved = np.atleast_1d(mechanism.estimate(dirty).mean)[place] - np.atleast_1d(mechanism.estimate(clean).mean)[place]
    noise = (
        6 * float(np.atleast_1d(mechanism.estimate(clean).standard_error)[place]) * bound.up / bound.honest * fakes / n
    )
    assert 0.9 * bound.up - noise < moved < bound.up + noise
    assert bound.up > bound.honest
    assert "mean" in str(bound)


def test_few_liars_on_one_of_several_numbers_stay_within_the_bound_among_few_people_too() -> None:
    mechanism = MECHANISMS["one of three"]
    chance = mechanism.picked / mechanism.size
    for n in (2, 5, 10, 30, 1000):
        for fakes in {1, 2, n // 2}:
            reported = np.arange(n - fakes + 1)  # by so many honest devices
            share = float((binom.pmf(reported, n - fakes, chance) * fakes / (reported + fakes)).sum())
            whole = local.poisoning(mechanism, n, n).up
            assert whole * share <= local.poisoning(mechanism, fakes, n).up * (1 + 1e-9), (n, fakes)


def test_no_bound_is_invented_for_a_rebuilt_distribution() -> None:
    with pytest.raises(BadInput):
        local.poisoning(WAVE, 1, 10)


# The square wave.


@pytest.mark.parametrize("method", ["ems", "em"])
def test_a_distribution_has_shares_errors_and_quantiles(method: Any) -> None:
    counts = WAVE.aggregate(drawn(WAVE, 2000))
    found = WAVE.estimate(counts, "0.9", method)
    low, high = found.interval
    assert (found.raw, found.method, found.n) == (False, method, 2000)
    assert found.frequencies.sum() == pytest.approx(1)
    assert found.frequencies.min() >= 0
    assert np.array_equal(found.points, np.arange(17, 91))
    assert ((low <= found.frequencies) & (found.frequencies <= high)).all()
    assert (found.standard_error > 0).any()
    assert found.quantile(0) == 17
    assert found.quantile(1) <= 90
    assert found.quantile(0.25) <= found.quantile(0.75)
    assert 30 < found.mean < 60
    with pytest.raises(BadInput):
        found.quantile(1.5)
    with pytest.raises(BadInput):
        WAVE.estimate(counts, method="smooth")  # type: ignore[arg-type]


def test_running_sums_are_the_listed_channel() -> None:
    from cloister.local.mechanisms.square_wave import _Channel

    wave = local.SquareWave.for_loss((0, 1), LOSS, 7, shift=3)
    matrix = np.array([[float(chance) for chance in wave.law(point)] for point in range(8)])
    shares, weights = np.linspace(0, 2 / 8, 8)[None], np.linspace(1, 5, wave.outputs)[None]
    assert np.allclose(_Channel(wave).expected(shares), shares @ matrix)
    assert np.allclose(_Channel(wave).back(weights), weights @ matrix.T)


def test_the_window_of_a_square_wave_is_the_papers() -> None:
    for amount in (0.1, 1, 2, 4):
        e = math.exp(amount)
        b = (amount * e - e + 1) / (2 * e * (e - 1 - amount))
        wave = local.SquareWave.for_loss((0, 1), local.epsilon(amount), 1024)
        assert wave.window / wave.reach == pytest.approx(2 * b, abs=1 / wave.reach)

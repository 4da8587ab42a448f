"""One contract, every mechanism: what a device sends, a collector can count, and nothing that arrives breaks it."""

import dataclasses
import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cloister import local
from cloister.local.base.counts import Counts
from cloister.privacy.errors import BadCandidates, BadInput, BadLoss, NotPrivate, RelationMismatch
from cloister.privacy.loss import epsilon as any_epsilon
from cloister.privacy.noise import SeededSource

LOSS = local.epsilon("1.5")
MECHANISMS = {
    "RR": local.RandomisedResponse.for_loss(LOSS),
    "coins": local.RandomisedResponse.coins("0.6", "0.3"),
    "DE": local.DirectEncoding.for_loss(13, LOSS),
    "SUE": local.UnaryEncoding.symmetric(13, LOSS),
    "OUE": local.UnaryEncoding.optimised(13, LOSS),
    "THE": local.ThresholdEncoding.for_loss(13, LOSS),
    "SHE": local.HistogramEncoding.for_loss(13, LOSS),
    "OLH": local.LocalHashing.for_loss(13, LOSS),
    "HR": local.HadamardResponse.for_loss(13, LOSS),
    "HR in blocks": local.HadamardResponse.for_loss(13, LOSS, blocks=4),
    "SS": local.SubsetSelection.for_loss(13, LOSS),
    "CMS": local.CountMeanSketch.for_loss(13, LOSS, buckets=11, rows=4),
    "HH": local.HeavyHitters.for_loss(LOSS, length=8, chunk=4),
}
every = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


def drawn(mechanism: local.Oracle, n: int = 600, seed: int = 1) -> local.Reports:
    return mechanism.perturb(np.arange(n) % min(mechanism.domain, 5), SeededSource(seed))


@every
def test_a_mechanism_is_a_frozen_value_with_exact_public_parameters(mechanism: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.loss = None
    assert dataclasses.replace(mechanism) == mechanism
    assert hash(mechanism) == hash(dataclasses.replace(mechanism))
    assert json.loads(json.dumps(mechanism.describe()))["bits"] == mechanism.bits
    if mechanism.kind != "vector":
        assert isinstance(mechanism.p, Fraction)
        assert 0 < mechanism.q < mechanism.p < 1


@every
def test_reports_survive_the_wire_to_the_bit(mechanism: Any) -> None:
    reports = drawn(mechanism)
    wire = mechanism.encode(reports)
    assert wire.shape == (600, mechanism.width)
    assert wire.dtype == np.uint8
    for arrived in (wire, wire.tobytes(), [row.tobytes() for row in wire]):
        back, refused = mechanism.decode(arrived)
        assert refused == 0
        assert np.array_equal(back.data, reports.data)


@every
def test_counts_of_parts_add_up_to_the_counts_of_all(mechanism: Any) -> None:
    reports = drawn(mechanism)
    whole = mechanism.aggregate(reports)
    wire = [row.tobytes() for row in mechanism.encode(reports)]
    parts = sum((mechanism.aggregate(wire[start : start + 77]) for start in range(0, 600, 77)), start=0)
    streamed = mechanism.aggregate(iter(wire))
    assert whole.n == parts.n == streamed.n == 600
    assert np.array_equal(whole.table, parts.table)
    assert np.array_equal(whole.table, streamed.table)


@every
def test_malformed_reports_are_refused_and_counted_and_never_crash_a_collection(mechanism: Any) -> None:
    good = [row.tobytes() for row in mechanism.encode(drawn(mechanism, 20))]
    garbage: list[Any] = [None, 7, "text", b"", good[0] + b"\x00", good[0][:-1], {}, float("nan"), [good[0]]]
    counts = mechanism.aggregate(good + garbage)
    assert (counts.n, counts.refused) == (20, len(garbage))
    for nonsense in (None, 3, "abc", object(), {"a": 1}, np.float64(2), np.zeros((4, 99)), np.array(5)):
        refused = mechanism.aggregate(nonsense)
        assert refused.n == 0
        assert refused.refused >= 1
    assert np.array_equal(counts.table, mechanism.aggregate(good).table)


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name not in ("RR", "coins")])
def test_a_report_no_honest_device_can_send_is_refused(name: str) -> None:
    mechanism: Any = MECHANISMS[name]
    counts = mechanism.aggregate([b"\xff" * mechanism.width] if name != "SHE" else [b"\xff\xff\xff\x7f" * 13])
    assert (counts.n, counts.refused) == (0, 1)


def test_a_report_of_another_mechanism_is_refused() -> None:
    counts = MECHANISMS["DE"].aggregate(drawn(MECHANISMS["HR"], 9))
    assert (counts.n, counts.refused) == (0, 9)
    with pytest.raises(BadInput):
        MECHANISMS["DE"].aggregate([]) + MECHANISMS["HR"].aggregate([])
    with pytest.raises(BadInput):
        MECHANISMS["DE"].estimate(MECHANISMS["HR"].aggregate(drawn(MECHANISMS["HR"])))


@every
def test_a_value_outside_the_domain_is_refused_without_being_shown(mechanism: Any) -> None:
    for value in (mechanism.domain + 123456, -1, 0.5, "3", None, [0, mechanism.domain + 123456]):
        with pytest.raises(BadCandidates) as caught:
            mechanism.perturb(value)
        assert "123456" not in str(caught.value)


@every
def test_seeded_reports_are_marked_not_private_all_the_way(mechanism: Any) -> None:
    seeded = mechanism.aggregate(drawn(mechanism))
    assert not seeded.private
    assert not mechanism.estimate(seeded).private
    with pytest.raises(NotPrivate):
        mechanism.estimate(seeded).require_private()
    secret = mechanism.aggregate(mechanism.perturb(np.zeros(40, dtype=int)))
    assert secret.private
    assert not (secret + seeded).private


@every
def test_an_estimate_has_an_error_and_an_interval_for_every_share(mechanism: Any) -> None:
    estimate = mechanism.estimate(mechanism.aggregate(drawn(mechanism)), "0.9")
    low, high = estimate.interval
    assert estimate.raw
    assert (low < estimate.frequencies).all()
    assert (estimate.frequencies < high).all()
    # About as wide as normal ones: for 600 reports, half a step on each side and a little for few supports.
    normal = 2 * 1.6449 * estimate.standard_error
    usual = estimate.frequencies > 0  # below, only shares that can be are tested
    assert (high - low > 0.9 * normal)[usual].all()
    assert (high - low < 1.15 * normal + 1.1 * estimate.spread.step)[usual].all()
    assert estimate.n == 600


@pytest.mark.parametrize("method", ["norm-sub", "simplex", "em"])
@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "HH"])
def test_a_projection_is_a_point_of_the_simplex_and_says_so(name: str, method: Any) -> None:
    mechanism: Any = MECHANISMS[name]
    raw = mechanism.estimate(mechanism.aggregate(drawn(mechanism, 4000)))
    if method == "em" and name in ("SHE", "CMS"):
        with pytest.raises(BadInput):
            raw.projected("em")
        return
    projected = raw.projected(method)
    assert (projected.raw, projected.projection) == (False, method)
    assert projected.frequencies.min() >= 0
    assert projected.frequencies.sum() == pytest.approx(1)
    truth = np.bincount(np.arange(4000) % min(mechanism.domain, 5), minlength=mechanism.domain) / 4000
    assert np.square(projected.frequencies - truth).sum() <= 1.05 * np.square(raw.frequencies - truth).sum()
    with pytest.raises(BadInput):
        projected.projected("norm-sub")


@every
def test_one_person_and_no_person_work_too(mechanism: Any) -> None:
    assert len(mechanism.perturb(1)) == 1
    assert len(mechanism.perturb(np.zeros(0, dtype=int))) == 0
    with pytest.raises(BadInput):
        mechanism.estimate(mechanism.aggregate([]))


@every
def test_the_same_random_bytes_make_the_same_report(mechanism: Any) -> None:
    assert np.array_equal(drawn(mechanism).data, drawn(mechanism).data)
    assert not np.array_equal(drawn(mechanism, seed=1).data, drawn(mechanism, seed=2).data)


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


def test_a_direct_report_follows_from_one_little_endian_word() -> None:
    mechanism = local.DirectEncoding.for_loss(13, LOSS)
    keep, run = mechanism.thresholds
    said = [
        int(mechanism.perturb(5, Script(word(number))).data[0])  # type: ignore[arg-type]
        for number in (0, keep - 1, keep, keep + run - 1, keep + run, 2**64 - 1)
    ]
    assert said == [5, 5, 6, 6, 7, 4]


def test_unary_bits_follow_from_a_chain_of_ands_and_ors() -> None:
    mechanism = local.UnaryEncoding(8, Fraction(1, 2), Fraction(5, 16), local.epsilon(1))
    # 5/16 = 0.0101 in binary, from the last digit: r1, AND r2, OR r3, AND r4.
    text = word(2**63) + bytes([0b11110000, 0b10101010, 0b00000001, 0b11111111])
    report = mechanism.perturb(7, Script(text)).data  # type: ignore[arg-type]
    assert report.tolist() == [[0b00100001]]  # bit 7 is the true one: the word was not below 2^63


def test_estimates_of_named_values_agree_with_those_of_the_domain() -> None:
    for name in ("DE", "OUE", "OLH", "HR", "CMS", "SHE"):
        mechanism: Any = MECHANISMS[name]
        counts: Counts = mechanism.aggregate(drawn(mechanism))
        whole = mechanism.estimate(counts)
        some = mechanism.estimate(counts, values=[3, 1])
        assert some.frequencies.tolist() == whole.frequencies[[3, 1]].tolist()
        with pytest.raises(BadInput):
            some.projected()
        with pytest.raises(BadInput):
            mechanism.estimate(counts, values=[13])


def test_losses_that_a_report_cannot_state_are_refused() -> None:
    with pytest.raises(RelationMismatch):
        local.DirectEncoding.for_loss(4, any_epsilon(1))
    with pytest.raises(BadLoss):
        local.DirectEncoding.for_loss(4, local.epsilon(31))
    with pytest.raises(BadLoss):  # p and q that cost more than they say
        local.UnaryEncoding(4, Fraction(3, 4), Fraction(1, 4), local.epsilon(1))
    with pytest.raises(BadLoss):
        local.DirectEncoding(4, Fraction(1, 8), local.epsilon(1))
    for domain in (1, 0, -3, True, 2.5, 2**33):
        with pytest.raises(BadCandidates):
            local.DirectEncoding.for_loss(domain, LOSS)  # type: ignore[arg-type]
    for wrong in (4, 9, 1):
        with pytest.raises(BadInput):
            local.LocalHashing.for_loss(16, LOSS, buckets=wrong)


def test_textbook_constants_are_reached() -> None:
    jobs = local.DirectEncoding.for_loss(14, local.epsilon("0.1"))
    assert (round(float(jobs.p), 4), round(float(jobs.q), 4)) == (0.0784, 0.0709)
    expected = {"0.5": (0.562, 17.83), "1": (0.619, 4.81), "2": (0.710, 1.28), "5": (0.846, 0.158)}
    for amount, (theta, variance) in expected.items():
        the = local.ThresholdEncoding.for_loss(1 << 16, local.epsilon(amount))
        assert float(the.theta) == pytest.approx(theta, abs=1e-3)
        assert the.mse(1) == pytest.approx(variance, rel=5e-3)
    cut_at_one = local.ThresholdEncoding.for_loss(91, local.epsilon(5), theta=1)
    assert (float(cut_at_one.p), round(float(cut_at_one.q), 3)) == (0.5, 0.041)
    assert float(local.UnaryEncoding.symmetric(5, local.epsilon(5)).p) == pytest.approx(0.924, abs=1e-3)

"""Signs of made-up reports: honest crowds raise none, crude attackers do."""

from collections import Counter
from itertools import product
from math import comb
from typing import Any

import numpy as np
import pytest

from cloister import local
from cloister.local.fraud.bounds import at_least, at_most, bernstein, chernoff, copies, copies_of_bits, laplace_mgf
from cloister.local.fraud.report import suspicions
from cloister.local.mechanisms.padded import PaddedSample
from cloister.local.mechanisms.sets import OneOfSet, SetBits
from cloister.privacy.errors import BadInput, BadProbability
from cloister.privacy.noise import SeededSource

LOSS = local.epsilon(1)
MECHANISMS: dict[str, Any] = {
    "RR": local.RandomisedResponse.coins("0.6", "0.3"),
    "DE": local.DirectEncoding.for_loss(5, LOSS),
    "OUE": local.UnaryEncoding.optimised(16, LOSS),
    "THE": local.ThresholdEncoding.for_loss(16, LOSS),
    "SHE": local.HistogramEncoding.for_loss(6, LOSS),
    "OLH": local.LocalHashing.for_loss(100, LOSS),
    "HR": local.HadamardResponse.for_loss(100, LOSS),
    "HR in blocks": local.HadamardResponse.for_loss(13, local.epsilon(2), blocks=4),
    "SS": local.SubsetSelection.for_loss(16, LOSS),
    "memoised": local.Memoised.direct(5, lifetime=local.epsilon(2), report=LOSS),
    "memoised bits": local.Memoised.unary(24, lifetime=local.epsilon(2), report=LOSS),
    "one of a set": OneOfSet.for_loss(10, 3, LOSS),
    "bits of a set": SetBits.for_loss(20, 3, LOSS),
    "padded": PaddedSample.for_loss(60, 3, LOSS),
    "piecewise": local.Piecewise.for_loss((0, 5), LOSS),
    "square wave": local.SquareWave.for_loss((0, 50), LOSS),
    "Duchi": local.Duchi.for_loss((0, 5), LOSS),
    "hybrid": local.Hybrid.for_loss((0, 5), LOSS),
    "Laplace": local.LaplaceNumber.for_loss((0, 5), LOSS),
    "CMS": local.CountMeanSketch.for_loss(13, LOSS, buckets=11, rows=4),
    "HH": local.HeavyHitters.for_loss(LOSS, length=8, chunk=4),
    "order": local.PairOrder.for_loss(4, LOSS),
}
every = pytest.mark.parametrize("name", MECHANISMS)


def answers(mechanism: Any, n: int, extreme: bool, seed: int) -> Any:
    """Everybody answers the same, at an end, which is the hardest for a test; or answers are mixed."""
    rng = np.random.default_rng(seed)
    if isinstance(mechanism, local.PairOrder):
        return [list(range(4))] * n
    if isinstance(mechanism, local.NumberMechanism):
        low, high = (float(end) for end in mechanism.ends[0])
        return np.full(n, high if seed % 2 else low) if extreme else rng.uniform(low, high, n)
    if hasattr(mechanism, "most"):
        return [set(range(3)) if extreme else set(range(place % 4)) for place in range(n)]
    return np.zeros(n, dtype=np.int64) if extreme else rng.integers(0, mechanism.domain, n)


def sent(mechanism: Any, values: Any, seed: int) -> list[Any]:
    wire = mechanism.encode(mechanism.perturb(values, SeededSource(seed)))
    return [{"q": (str(mechanism.epsilon), row.tobytes())} for row in wire]


def raised(mechanism: Any, submissions: list[Any]) -> list[str]:
    return [one.name for one in suspicions([local.Question("q", [mechanism])], submissions)]


# Honest crowds.


@every
def test_an_honest_crowd_raises_no_alarm_whatever_it_answered(name: str) -> None:
    for run, (n, extreme) in enumerate(product((1, 2, 7, 60, 800), (True, False))):
        for seed in (run, 100 + run):
            mechanism = MECHANISMS[name]
            assert raised(mechanism, sent(mechanism, answers(mechanism, n, extreme, seed), seed)) == []


def test_honest_surveys_are_suspected_no_more_often_than_stated() -> None:
    """At an alarm of one in ten, so that a test can see it; p values are bounds, so it is rarer still."""
    asked = [local.Question(name, [MECHANISMS[name]]) for name in ("RR", "DE", "OUE", "HR", "Duchi", "piecewise")]
    alarms = 0
    for run in range(150):
        columns = [
            [one["q"] for one in sent(question.levels[0], answers(question.levels[0], 100, run % 2 == 0, run), run)]
            for question in asked
        ]
        ids = [question.id for question in asked]
        submissions = [dict(zip(ids, row, strict=True)) for row in zip(*columns, strict=True)]
        alarms += bool(suspicions(asked, submissions, alarm="0.1"))
    assert alarms <= 25  # 15 are allowed; 26 and more would come once in 200


# Attackers.


@pytest.mark.parametrize("name", ["OUE", "THE", "SHE", "OLH", "HR", "SS", "memoised bits", "bits of a set", "padded"])
def test_one_report_sent_again_and_again_is_noticed(name: str) -> None:
    mechanism = MECHANISMS[name]
    crowd = sent(mechanism, answers(mechanism, 2_000, False, 1), 1)
    crafted = crowd[0]
    found = raised(mechanism, crowd[200:] + [crafted] * 200)
    assert "copies" in found


@pytest.mark.parametrize("name", ["RR", "DE", "OUE", "THE", "SS", "memoised", "memoised bits", "one of a set", "HR"])
def test_a_value_that_more_reports_support_than_people_exist_is_noticed(name: str) -> None:
    mechanism = MECHANISMS[name]
    crowd = sent(mechanism, answers(mechanism, 1_500, True, 2), 2)
    which = local.scores(mechanism, [one["q"][1] for one in crowd])[:, 1 if name == "RR" else 0] > 0
    supporting = [one for one, yes in zip(crowd, which, strict=True) if yes]
    assert "share" in raised(mechanism, (supporting * 10)[:1_500])
    against = [one for one, yes in zip(crowd, which, strict=True) if not yes]
    assert "share" in raised(mechanism, (against * 50)[:1_500])


def test_reports_of_all_ones_and_of_none_are_noticed() -> None:
    for name in ("OUE", "memoised bits", "bits of a set"):
        mechanism = MECHANISMS[name]
        crowd = sent(mechanism, answers(mechanism, 500, False, 3), 3)
        full = bytes(int("1" * mechanism.domain, 2).to_bytes(mechanism.width, "little"))
        assert "crowded" in raised(mechanism, crowd + [{"q": (crowd[0]["q"][0], full)}] * 3)
    wide = local.UnaryEncoding.optimised(200, local.epsilon(1))
    crowd = sent(wide, answers(wide, 500, False, 3), 3)
    empty = {"q": ("1", bytes(25))}
    assert "crowded" in raised(wide, [*crowd, empty])
    assert "ones" in raised(wide, crowd + [{"q": ("1", bytes([1] + [0] * 24))}] * 100)


@pytest.mark.parametrize("name", ["piecewise", "square wave", "hybrid", "Laplace"])
def test_numbers_at_the_very_end_are_noticed(name: str) -> None:
    mechanism = MECHANISMS[name]
    crowd = sent(mechanism, answers(mechanism, 1_000, False, 4), 4)
    level = str(mechanism.epsilon)
    last = mechanism.outputs - 1 - (2 if name == "hybrid" else 0)
    for place in (0, last):
        crafted = {"q": (level, place.to_bytes(mechanism.width, "little"))}
        assert "ends" in raised(mechanism, crowd[:950] + [crafted] * 50)


def test_a_mean_beyond_what_bits_can_say_and_a_loaded_coin_are_noticed() -> None:
    duchi, hybrid = MECHANISMS["Duchi"], MECHANISMS["hybrid"]
    assert raised(duchi, [{"q": ("1", b"\x01")}] * 400) == ["copies", "ends"]
    bit = (hybrid.outputs - 1).to_bytes(hybrid.width, "little")
    crowd = sent(hybrid, answers(hybrid, 1_000, False, 5), 5)
    assert "coin" in raised(hybrid, crowd[:600] + [{"q": ("1", bit)}] * 400)


def test_sums_that_noise_does_not_give_are_noticed() -> None:
    she = MECHANISMS["SHE"]
    crowd = sent(she, answers(she, 300, False, 6), 6)
    loud = np.array([she.limit] * 3 + [0] * 3, dtype="<i4").tobytes()
    found = suspicions([local.Question("q", [she])], crowd + [{"q": ("1", loud)}] * 20)
    assert {one.name for one in found} == {"copies", "share", "ones"}


# What it says.


def test_refused_envelopes_are_signs_by_their_reason() -> None:
    found = suspicions([local.Question("q", [MECHANISMS["DE"]])], [], Counter({"malformed": 3, "replayed": 2}))
    assert [(one.name, one.count, one.p) for one in found] == [("refused", 3, None), ("refused", 2, None)]
    assert "3 envelopes were refused as malformed" in found[0].sentence
    assert "counted once" in found[1].sentence
    assert suspicions([], [], {}) == []


def test_a_suspicion_says_where_how_many_and_how_sure() -> None:
    mechanism = MECHANISMS["OUE"]
    crowd = sent(mechanism, answers(mechanism, 900, False, 7), 7)
    found = suspicions([local.Question("q", [mechanism])], crowd + [crowd[5]] * 99)
    first = found[0]
    assert (first.name, first.question, first.level, first.count) == ("copies", "q", "1", 100)
    assert first.p is not None
    assert first.p < 1e-9
    assert first.sentence.startswith("q at level 1: 100 of 999 reports are the very same")
    assert first.to_json()["count"] == 100
    with pytest.raises(BadInput, match="malformed"):
        raised(mechanism, [{"q": ("1", b"\xff" * 9)}])
    with pytest.raises(BadProbability):
        suspicions([], [], alarm=0)
    strange = [{"other": ("1", b"\0")}]
    assert raised(mechanism, strange) == []


# The bounds themselves.


@pytest.mark.parametrize(
    "mechanism",
    [
        local.RandomisedResponse.coins("0.6", "0.3"),
        local.DirectEncoding.for_loss(4, LOSS),
        local.UnaryEncoding.optimised(4, LOSS),
        local.LocalHashing.for_loss(5, LOSS),
        local.HadamardResponse.for_loss(5, LOSS, blocks=2),
        local.SubsetSelection.for_loss(5, LOSS, size=2),
        local.Memoised.direct(4, lifetime=local.epsilon(2), report=LOSS),
        local.Memoised.unary(4, lifetime=local.epsilon(2), report=LOSS),
        OneOfSet.for_loss(4, 2, LOSS),
        SetBits.for_loss(4, 2, LOSS),
        PaddedSample(4, 2, local.DirectEncoding.for_loss(5, LOSS)),
        local.Piecewise.for_loss((0, 5), LOSS, steps=5, shift=1),
        local.Duchi.for_loss((0, 5), LOSS, steps=5),
    ],
    ids=lambda one: one.name,
)
def test_copies_are_no_likelier_than_said_by_exact_laws(mechanism: Any) -> None:
    inputs = list(getattr(mechanism, "inputs", range(mechanism.domain)))
    laws = np.array([[float(chance) for chance in mechanism.law(value)] for value in inputs])
    for k in (2, 3):
        for people in product(range(len(inputs)), repeat=k):
            exact = np.prod(laws[list(people)], axis=0).sum()
            assert exact <= copies(mechanism, k, k) * (1 + 1e-9)
    assert copies(mechanism, 2, 40) <= min(1.0, comb(40, 2) * copies(mechanism, 2, 2)) * (1 + 1e-9)
    assert copies(mechanism, 1, 9) == 1


@pytest.mark.parametrize(
    "mechanism", [local.UnaryEncoding.optimised(3, LOSS), SetBits.for_loss(3, 2, LOSS)], ids=lambda one: one.name
)
def test_copies_of_an_unlikely_report_are_no_likelier_than_said(mechanism: Any) -> None:
    """By enumeration: for every level, all reports that would be suspected at it come together no more often."""
    inputs = list(getattr(mechanism, "inputs", range(mechanism.domain)))
    laws = np.array([[float(chance) for chance in mechanism.law(value)] for value in inputs])
    ones = np.array([report.bit_count() for report in range(8)], dtype=np.float64)
    n, p, q = 5, float(mechanism.p), float(mechanism.q)
    counts = np.arange(n + 1)
    said = np.array([copies_of_bits(ones, np.full(8, float(k)), n, 3, p, q) for k in counts])
    for law in laws:  # all five people answer alike
        exact = np.array([[at_least(int(k), n, chance) for chance in law] for k in counts])
        for level in (0.5, 0.1, 0.01, 1e-4):
            suspected = [exact[said[:, y] <= level, y].max(initial=0.0) for y in range(8)]
            assert sum(suspected) <= level


def test_bounds_hold_and_are_not_idle() -> None:
    assert at_least(0, 9, 0.5) == 1
    assert at_least(9, 9, 0.5) == pytest.approx(2**-9)
    assert at_most(0, 9, 0.5) == pytest.approx(2**-9)
    assert at_most(9, 9, 0.5) == 1
    assert bernstein(-1, 10, 1, 1) == 1
    rng = np.random.default_rng(1)
    draws = rng.uniform(-1, 1, (20_000, 30)).sum(axis=1)
    for far in (4.0, 8.0):
        assert (draws >= far).mean() <= bernstein(far, 30, 1 / 3, 1) <= 60 * (draws >= far).mean() + 1e-3
    noise = rng.geometric(1 - np.exp(-0.5), (20_000, 40)) - rng.geometric(1 - np.exp(-0.5), (20_000, 40))
    total = noise.sum(axis=1)
    for reached in (40, 55):
        bound = chernoff(reached, laplace_mgf(2.0, 40), 0.999 / 2)
        assert (total >= reached).mean() <= bound <= 30 * (total >= reached).mean()

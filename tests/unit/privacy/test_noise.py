"""What callers may give to the samplers, and what they get back."""

import multiprocessing
import os
import sys
import threading
from decimal import Decimal
from fractions import Fraction
from types import FrameType

import numpy as np
import pytest

from cloister.privacy.errors import BadBounds, BadCandidates, BadInput, BadNumber, BadScale
from cloister.privacy.loss import Relation
from cloister.privacy.noise import (
    SYSTEM,
    Grid,
    SeededSource,
    bernoulli,
    bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
    exponential_choice,
    geometric,
    noisy_max,
    permute_and_flip,
    uniform,
)
from cloister.privacy.noise.source import SystemSource, _Stream

SCALED = [geometric, discrete_laplace, discrete_gaussian]


@pytest.mark.parametrize("sampler", SCALED)
@pytest.mark.parametrize("scale", [3, "2.5", "1/3", Fraction(7, 3), Decimal("0.25"), 0.1, np.int64(4), np.float64(0.5)])
def test_a_scale_may_be_any_exact_number(sampler, scale):
    assert isinstance(sampler(scale, source=SeededSource(1)), int)
    assert sampler(scale, 1000, SeededSource(1)).dtype == np.int64


@pytest.mark.parametrize("sampler", SCALED)
@pytest.mark.parametrize(
    "scale",
    [0, -1, "nan", float("nan"), float("inf"), "-inf", "ten", "", None, [], {}, True, "1/0", 10**2000, "1e-2000"],
)
def test_a_scale_that_makes_no_sense_is_refused_with_a_sentence(sampler, scale):
    if scale == []:
        assert sampler(scale).size == 0
        return
    with pytest.raises(BadInput, match=r"^CLO-10\d: .+\.$"):
        sampler(scale, 10)


@pytest.mark.parametrize("size", [-1, 2.5, "3", True, (2, -1)])
def test_a_size_that_makes_no_sense_is_refused(size):
    with pytest.raises(BadNumber):
        discrete_laplace(1, size)


@pytest.mark.parametrize("sampler", SCALED)
def test_sizes_and_shapes_are_kept(sampler):
    assert sampler(3, 0).shape == (0,)
    assert sampler(3, (2, 5)).shape == (2, 5)
    assert sampler([1, 2, 3]).shape == (3,)
    assert sampler([[1], [2]], (2, 50)).shape == (2, 50)
    with pytest.raises(BadInput, match="does not fit"):
        sampler([1, 2, 3], 5)


@pytest.mark.parametrize("sampler", SCALED)
def test_each_draw_may_have_its_own_scale(sampler):
    scales = np.repeat([1, 1000, 10**6], 3000)
    spread = [np.abs(part).mean() for part in np.split(sampler(scales, source=SeededSource(2)), 3)]
    assert 0.3 < spread[0] < 3
    assert 300 < spread[1] < 3000
    assert 3e5 < spread[2] < 3e6


@pytest.mark.parametrize("sampler", SCALED)
@pytest.mark.parametrize("scale", [2**56, 2**60, 2**80, 10**40])
def test_magnitudes_beyond_int64_are_python_integers_and_never_wrap(sampler, scale):
    drawn = sampler(scale, 400, SeededSource(3))
    assert all(isinstance(value, int) or drawn.dtype == np.int64 for value in drawn)
    mean = sum(abs(int(value)) for value in drawn) / 400
    assert 0.6 * scale < mean < 1.4 * scale


def test_uniform_reaches_every_value_and_no_other():
    assert set(uniform(6, 1000, SeededSource(1)).tolist()) == set(range(6))
    assert uniform(1, 5).tolist() == [0] * 5
    big = uniform(2**100, 50, SeededSource(1))
    assert all(0 <= value < 2**100 for value in big)
    assert max(big) > 2**95
    with pytest.raises(BadScale, match="whole"):
        uniform("2.5", 3)


def test_coins_of_probability_zero_and_one_are_certain():
    assert not bernoulli(0, 1000).any()
    assert bernoulli(1, 1000).all()
    assert bernoulli_exp(0, 1000).all()
    assert not bernoulli_exp(10**9, 1000).any()
    with pytest.raises(BadScale, match="between 0 and 1"):
        bernoulli("1.5")


def test_a_seed_repeats_and_the_system_does_not():
    assert (discrete_laplace(9, 100, SeededSource("a")) == discrete_laplace(9, 100, SeededSource("a"))).all()
    assert (discrete_laplace(9, 100, SeededSource("a")) != discrete_laplace(9, 100, SeededSource("b"))).any()
    assert (discrete_laplace(10**6, 100) != discrete_laplace(10**6, 100)).any()
    assert SYSTEM.private
    assert not SeededSource(1).private


def _bytes_in_child(queue: "multiprocessing.SimpleQueue[bytes]") -> None:
    queue.put(SYSTEM.bytes(32))


def test_a_forked_process_draws_other_bits_than_its_parent():
    SYSTEM.bytes(8)  # so that the parent has a stream to inherit
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    children = [context.Process(target=_bytes_in_child, args=(queue,)) for _ in range(4)]
    for child in children:
        child.start()
    seen = {queue.get() for _ in children} | {SYSTEM.bytes(32)}
    for child in children:
        child.join()
    assert len(seen) == 5


def test_a_draw_in_the_middle_of_another_one_gets_other_bits():
    drawn: list[bytes] = []
    watched = {SystemSource.bytes.__code__, _Stream.take.__code__}
    busy = False

    def interrupt(frame: FrameType, event: str, _: object) -> object:
        """Draw before every instruction of a draw, as a signal handler or a finaliser may."""
        nonlocal busy
        if busy or frame.f_code not in watched:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            busy = True
            drawn.append(SYSTEM.bytes(16))
            busy = False
        return interrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        outer = [SYSTEM.bytes(16) for _ in range(3)]
    finally:
        sys.settrace(before)
    assert len(drawn) > 100
    assert len({*outer, *drawn}) == len(outer) + len(drawn)


def test_a_process_forked_in_the_middle_of_a_draw_returns_other_bits_than_its_parent():
    SYSTEM.bytes(8)
    receiving, sending = os.pipe()
    children: list[int] = []

    def fork(frame: FrameType, event: str, _: object) -> object:
        if not children and frame.f_code is _Stream.take.__code__:
            children.append(os.fork())
        return None

    before = sys.gettrace()
    sys.settrace(fork)
    try:
        drawn = SYSTEM.bytes(32)
    finally:
        sys.settrace(before)
    if children == [0]:
        os.write(sending, drawn)
        os._exit(0)
    os.waitpid(children[0], 0)
    assert os.read(receiving, 32) != drawn
    for end in (receiving, sending):
        os.close(end)


def test_threads_never_draw_the_same_bits():
    seen: list[bytes] = []
    threads = [threading.Thread(target=lambda: seen.extend(SYSTEM.bytes(16) for _ in range(500))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 4000


def test_a_long_stream_is_rekeyed():
    from cloister.privacy.noise import source

    fresh = source.SystemSource()
    fresh.bytes(8)
    first = fresh._local.stream
    first.left = 4
    fresh.bytes(8)
    assert fresh._local.stream is not first


# Choices


@pytest.mark.parametrize("choose", [exponential_choice, permute_and_flip])
def test_an_overwhelming_score_wins_without_overflow(choose):
    assert choose([0, 10**30, 5], 1) == 1
    assert choose([Fraction(1, 3), Fraction(10**6, 7), 0], "0.5") == 1
    assert choose(np.array([22379, 16117, 6633]), 1) == 0
    assert choose([4], 1) == 0


@pytest.mark.parametrize("choose", [exponential_choice, permute_and_flip])
def test_a_long_rate_fails_for_no_scores(choose):
    """An error for some scores only, such as all zero, would tell that they are."""
    for scores in ([0, 0, 0], np.zeros(3, dtype=np.int64), [0, 1, 0], [10**1100, 0, 0]):
        assert choose(scores, Fraction(10**20 + 1, 10**20)) in (0, 1, 2)


def test_noisy_max_of_far_scores_is_the_maximum():
    assert noisy_max([0, 10**6, 5], 2) == 1
    assert noisy_max([0, 2**70, 5], 2, "geometric") == 1
    assert noisy_max(np.array([-(2**62), 2**62]), 2) == 1


@pytest.mark.parametrize("choose", [exponential_choice, permute_and_flip, noisy_max])
@pytest.mark.parametrize("scores", [[], [0.5, 1.5], np.array([1.0]), [[1, 2], [3, 4]]])
def test_a_choice_without_whole_scores_or_candidates_is_refused(choose, scores):
    with pytest.raises(BadCandidates):
        choose(scores, 1)


def test_a_choice_needs_a_positive_rate_and_known_noise():
    with pytest.raises(BadInput):
        exponential_choice([1, 2], 0)
    with pytest.raises(BadInput):
        noisy_max([1, 2], 1, "normal")
    with pytest.raises(BadCandidates):
        noisy_max([Fraction(1, 2)], 1)


# The grid


def test_a_row_lands_within_the_bounds_whatever_it_holds():
    grid = Grid(10)
    encoded = grid.encode([np.nan, np.inf, -np.inf, 1e308, -1e308, 0.5], -2, 3)
    assert encoded.tolist() == [-2048, 3072, -2048, 3072, -2048, 512]
    assert np.abs(encoded).max() == grid.sensitivity(-2, 3)
    assert grid.sensitivity(-2, 3, Relation.REPLACE_ONE) == 5 * 1024


def test_a_row_that_numpy_cannot_hold_is_clipped_like_any_other():
    """An error would tell that it is there."""
    assert Grid(2).encode([1, 2**70, -(10**400), None], -1, 5).tolist() == [4, 20, -4, -4]


def test_a_total_is_exact_where_floats_and_int64_are_not():
    grid = Grid(0)
    rows = np.full(4000, 2**52, dtype=np.int64)
    assert grid.total(rows) == 4000 * 2**52 > 2**63
    assert grid.total(np.array([[1, 2], [3, -4]])).tolist() == [4, -2]
    assert grid.total(-rows) == -4000 * 2**52


def test_a_total_does_not_depend_on_the_order_of_rows():
    values = np.array([1e16, 1.0, -1e16, 1.0] * 50)
    grid = Grid.for_scale(1, -(10**16), 10**16)
    totals = {grid.total(grid.encode(np.roll(values, shift), -(10**16), 10**16)) for shift in range(4)}
    assert len(totals) == 1
    # The float sum, for comparison, does: this is what gives a row away.
    assert len({float(sum(np.roll(values, shift))) for shift in range(4)}) > 1


def test_the_grid_is_a_billion_steps_unless_the_bounds_need_room():
    assert Grid.for_scale(1, 0, 100).exponent == 30
    assert Grid.for_scale(1000, 0, 1).exponent == 30
    assert Grid.for_scale("0.001", 0, 1).step <= Fraction(1, 10**9)
    wide = Grid.for_scale(1, 0, 10**14)
    assert wide.sensitivity(0, 10**14) <= 2**52
    assert wide.decode(wide.encode([123456.0], 0, 10**14)[0]) == 123456.0


@pytest.mark.parametrize("bounds", [(1, 0), (2, 2), ("nan", 1), (0, float("inf")), (None, 1)])
def test_bounds_the_wrong_way_round_or_not_finite_are_refused(bounds):
    with pytest.raises(BadInput):
        Grid(4).encode([1.0], *bounds)


def test_a_grid_refuses_text_without_repeating_it():
    with pytest.raises(BadNumber) as refusal:
        Grid(4).encode(["secret"], 0, 1)
    assert "secret" not in str(refusal.value)


def test_bounds_too_wide_for_the_grid_are_refused():
    with pytest.raises(BadBounds, match="coarser"):
        Grid(30).encode([1.0], 0, 10**9)

"""Discrete Gaussian noise by tiles: every tile is where it should be, every test of a cut tile is exact."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, norm

from cloister.privacy.noise import SeededSource, discrete_gaussian
from cloister.privacy.noise.gaussian_tiles import _tail_bits, tiles_for
from cloister.privacy.noise.source import Source

SCALES = [(1024, 1), (10**7, 3), (2**30 + 7, 1), (2**31 - 1, 1), (2**38, 1)]


class Words(Source):
    """Gives these bytes, then says that more were wanted."""

    private = False

    def __init__(self, *words: bytes) -> None:
        self._left = b"".join(words)

    def bytes(self, count: int) -> bytes:
        if count > len(self._left):
            raise EOFError
        taken, self._left = self._left[:count], self._left[count:]
        return taken


def curve(k, p, q):
    """e^(-k²/(2 sigma²)) to 2^-200, by mpmath."""
    from mpmath import mp, mpf

    mp.prec = 260
    return mp.exp(-(mpf(k * q) ** 2) / (2 * mpf(p) ** 2))


@pytest.mark.parametrize(("p", "q"), SCALES)
def test_each_column_has_all_tiles_that_reach_below_the_curve_once(p, q):
    tiles = tiles_for(p, q)
    whole = Counter(tiles.codes[tiles.codes < 2**10].tolist())
    cut = {}
    for column, level in zip(tiles.cut_columns.tolist(), tiles.cut_levels.tolist(), strict=True):
        cut.setdefault(column, []).append(level)
    for column in range(-tiles.ends, tiles.ends):
        first = column << tiles.bits
        sizes = sorted((abs(first), abs(first + (1 << tiles.bits) - 1)))
        below, levels = whole[column], cut[column]
        assert levels == list(range(below, below + len(levels)))
        assert below <= tiles.levels * curve(sizes[1], p, q)
        assert below + len(levels) >= tiles.levels * curve(sizes[0], p, q)


@pytest.mark.parametrize(("p", "q"), SCALES)
def test_every_code_is_used_once_for_each_tile_and_few_are_left(p, q):
    tiles = tiles_for(p, q)
    cut = Counter((tiles.codes[tiles.codes >= 2**10] - 2**10).tolist())
    many = len(tiles.cut_columns)
    assert len(tiles.codes) == 2**16
    assert all(cut[which] == 1 for which in range(many + 1))  # the last of them stands for the tails
    assert set(cut) <= set(range(many + 2))
    assert cut[many + 1] < 2**10
    assert many < 2**11


@pytest.mark.parametrize(("p", "q"), SCALES)
def test_the_steps_of_the_tails_are_above_the_curve(p, q):
    tiles = tiles_for(p, q)
    wide = _tail_bits(tiles.p, tiles.q, tiles.bits, tiles.ends)
    for segment in range(40):
        height = Fraction(1 << tiles.bits, tiles.levels << (segment + 2 + wide))
        assert float(height) >= curve((tiles.ends << tiles.bits) + (segment << wide), p, q)


@given(st.sampled_from(SCALES), st.integers(0, 2000), st.floats(0, 1, exclude_max=True), st.integers(0, 2**31 - 1))
@settings(max_examples=300, deadline=None)
def test_a_point_of_a_cut_tile_is_compared_with_the_curve_exactly(scale, which, share, drawn):
    tiles = tiles_for(*scale)
    which %= len(tiles.cut_columns)
    k = int((tiles.cut_columns[which] << tiles.bits) + int(share * (1 << tiles.bits)))
    level = int(tiles.cut_levels[which])
    # Around the place where the curve crosses the tile, and anywhere.
    middle = int(curve(k, *scale) * tiles.levels * 2**31) - (level << 31)
    near = [min(max(middle + step, 0), 2**31 - 1) for step in (-5000, -4201, -1, 0, 1, 10, 11)]
    for first in (*near, drawn):
        for more, rest in ((bytes(8), 0), (b"\xff" * 8, 2**64 - 1)):
            source = Words((first << 1).to_bytes(4, "little"), more)
            low = (level * 2**31 + first) * 2**64 + rest
            truth = curve(k, *scale) * tiles.levels * 2**95
            try:
                found = bool(tiles._below(np.array([k]), np.array([level]), source)[0])
            except EOFError:  # it asked for more bits: U and the curve are nearer than 95 bits tell
                assert abs(low - truth) < 10 * tiles.levels
                continue
            assert found == (low < truth)


@pytest.mark.parametrize(("p", "q"), SCALES[:3])
def test_the_law_is_right_column_by_column_and_ten_percent_off_is_noticed(p, q):
    count, sigma = 2_000_000, p / q
    drawn = tiles_for(p, q).draw(count, SeededSource(f"tiles {p}"))
    edges = np.linspace(-3.5, 3.5, 200)

    def fit(scale):
        cells = np.diff(np.r_[0, np.searchsorted(np.sort(drawn), np.ceil(edges * sigma)), count])
        expected = np.diff(np.r_[0, norm.cdf((np.ceil(edges * sigma) - 0.5) / scale), 1]) * count
        return chisquare(cells, expected).pvalue

    assert fit(sigma) > 1e-9
    assert fit(sigma * 1.01) < 1e-9
    assert fit(sigma * 0.99) < 1e-9


@pytest.mark.parametrize(("p", "q"), SCALES[:3])
def test_the_tails_have_their_share_and_their_shape(p, q):
    tiles, source, sigma = tiles_for(p, q), SeededSource("tails"), p / q
    points = [tiles._tail(source) for _ in range(40_000)]
    kept = np.array([k for k, accepted in points if accepted])
    start = tiles.ends << tiles.bits
    assert np.where(kept < 0, -kept - 1, kept).min() >= start
    # A tile's worth of area is one code: the share that is accepted is the tails' area in tiles.
    area = 2 * norm.sf((start - 0.5) / sigma) * sigma * math.sqrt(2 * math.pi) * tiles.levels / (1 << tiles.bits)
    assert abs(len(kept) - area * len(points)) < 6.2 * math.sqrt(area * len(points))
    assert abs((kept > 0).sum() - len(kept) / 2) < 6.2 * math.sqrt(len(kept)) / 2
    edges = (start + np.array([0.02, 0.05, 0.1, 0.2, 0.4]) * sigma) // 1
    cells = np.diff(np.r_[0, [(np.abs(kept) < edge).sum() for edge in edges], len(kept)])
    above = norm.sf((np.r_[start, edges] - 0.5) / sigma)
    expected = -np.diff(np.r_[above, 0]) / above[0] * len(kept)
    assert chisquare(cells, expected).pvalue > 1e-9


@pytest.mark.parametrize("count", [1, 2, 100, 2**14, 2**15 + 3, 2**18 + 1])
def test_as_many_are_drawn_as_were_asked_for(count):
    tiles = tiles_for(2**30, 1)
    assert tiles.draw(count, SeededSource(count)).shape == (count,)


def test_no_rejected_point_is_ever_returned(monkeypatch):
    tiles, bad = tiles_for(1024, 1), []
    plain = type(tiles)._propose

    def mostly_rejected(self, count, source):
        values, accepted = plain(self, count, source)
        accepted &= np.arange(count) % 7 == 0
        values[~accepted] = 10**15
        bad.append((~accepted).sum())
        return values, accepted

    monkeypatch.setattr(type(tiles), "_propose", mostly_rejected)
    drawn = tiles.draw(5000, SeededSource(1))
    assert len(bad) > 2
    assert np.abs(drawn).max() < 10**15


@pytest.mark.parametrize(("p", "q"), [(1023, 1), (2**38 + 1, 1), (1, 3)])
def test_scales_out_of_reach_have_no_tiles(p, q):
    assert tiles_for(p, q) is None
    assert len(discrete_gaussian(Fraction(p, q), 2**14, SeededSource(1))) == 2**14


def test_many_draws_of_a_large_scale_are_made_by_tiles():
    many = discrete_gaussian(2**30, 2**14, SeededSource(5))
    assert np.array_equal(many, tiles_for(2**30, 1).draw(2**14, SeededSource(5)))

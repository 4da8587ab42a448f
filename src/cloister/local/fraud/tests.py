"""The tests behind suspicions: for each mechanism, patterns its reports cannot have whatever the answers."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloister.local.analysis.linked.influence import reach
from cloister.local.analysis.scores import scores, supports_of
from cloister.local.base.number import NumberMechanism
from cloister.local.base.oracle import Floats, Oracle, Reports
from cloister.local.base.wire import decode
from cloister.local.fraud.bounds import at_least, at_most, bernstein, chernoff, copies, copies_of_bits, laplace_mgf
from cloister.local.mechanisms.direct import RandomisedResponse
from cloister.local.mechanisms.duchi import Duchi
from cloister.local.mechanisms.hadamard import HadamardResponse
from cloister.local.mechanisms.histogram import HistogramEncoding
from cloister.local.mechanisms.hybrid import Hybrid
from cloister.local.mechanisms.laplace import LaplaceNumber
from cloister.local.mechanisms.memoised import Memoised
from cloister.local.mechanisms.sets import SetBits
from cloister.local.mechanisms.unary import ThresholdEncoding, UnaryEncoding
from cloister.local.mechanisms.window import Windowed
from cloister.privacy.errors import BadInput

__all__ = ["Sign", "signs"]


class Sign(NamedTuple):
    """One test, or several alike.

    Attributes:
        name: of the test.
        number: the number of reports concerned.
        p: the least p value of `tests` tests; not yet multiplied by their number.
        tests: the number of tests.
        words: the observation.
    """

    name: str
    number: int
    p: float
    tests: int
    words: str


def signs(mechanism: Oracle, reports: Sequence[bytes]) -> Iterator[Sign]:
    """Run all tests on the reports of one mechanism."""
    decoded, refused = decode(mechanism, list(reports))
    if refused:
        raise BadInput(f"{refused:,} of these reports are malformed. Keep only those that Collection.check passes.")
    n, most = len(reports), max(Counter(reports).values())
    words = f"{most:,} of {n:,} reports are the very same, which chance does not repeat so often"
    yield Sign("copies", most, copies(mechanism, most, n), 1, words)
    yield from _own(mechanism, decoded.data)


@singledispatch
def _own(mechanism: Oracle, data: NDArray[Any]) -> Iterator[Sign]:
    """Return the tests of a mechanism with p and q: a value is supported with a probability between them."""
    if isinstance(mechanism, HadamardResponse):
        supported: NDArray[Any] = scores(mechanism, Reports(mechanism, data)) > 0
    elif isinstance(mechanism, RandomisedResponse):
        supported = data[:, None] == 1
    else:
        try:
            supported = supports_of(getattr(mechanism, "inner", mechanism), data)[:, : mechanism.domain]
        except BadInput:  # sketches, rankings and others, whose reports concern no single value
            return
    yield from _shares(
        np.asarray(supported).sum(axis=0, dtype=np.int64), len(data), float(mechanism.p), float(mechanism.q)
    )


def _shares(counts: NDArray[np.int64], n: int, p: float, q: float) -> Iterator[Sign]:
    top, bottom = int(counts.max()), int(counts.min())
    words = f"{top:,} of {n:,} reports support one value, more than if all people had it"
    yield Sign("share", top, at_least(top, n, p), len(counts), words)
    words = f"{bottom:,} of {n:,} reports support one value, fewer than if nobody had it"
    yield Sign("share", bottom, at_most(bottom, n, q), len(counts), words)


@_own.register
def _bits(mechanism: UnaryEncoding | ThresholdEncoding | Memoised, data: NDArray[Any]) -> Iterator[Sign]:
    p, q, d, n = float(mechanism.p), float(mechanism.q), mechanism.domain, len(data)
    supported = supports_of(mechanism, data)
    yield from _shares(supported.sum(axis=0, dtype=np.int64), n, p, q)
    if mechanism.kind == "number":  # a memoised value, not bits
        return
    yield _copied(data, supported, p, q)
    ones = supported.sum(axis=1, dtype=np.int64)
    total = int(ones.sum())

    def log_mgf(x: Floats) -> Floats:
        return np.asarray(n * (np.log1p(p * np.expm1(x)) + (d - 1) * np.log1p(q * np.expm1(x))))

    words = f"{total:,} bits of {n:,} reports are 1, which their coins do not give whatever is true"
    yield Sign("ones", n, chernoff(total, log_mgf), 1, words)
    yield Sign("ones", n, chernoff(-total, lambda x: log_mgf(-x)), 1, words)
    full, empty = int(ones.max()), int(ones.min())
    chance = p * at_least(full - 1, d - 1, q) + (1 - p) * at_least(full, d - 1, q)
    yield _crowded(int((ones == full).sum()), full, d, n * chance)
    chance = p * (at_most(empty - 1, d - 1, q) if empty else 0.0) + (1 - p) * at_most(empty, d - 1, q)
    yield _crowded(int((ones == empty).sum()), empty, d, n * chance)


@_own.register
def _set_bits(mechanism: SetBits, data: NDArray[Any]) -> Iterator[Sign]:
    """Test set bits: at most `most` bits are likelier than their coins, and no fewer are 1 than coins give.

    The law is one of coins, tilted towards reports in which some chosen bit is 1; more ones never undo the tilt.
    """
    supported = supports_of(mechanism, data)
    p, q, d, n = float(mechanism.p), float(mechanism.q), mechanism.domain, len(data)
    yield from _shares(supported.sum(axis=0, dtype=np.int64), n, p, q)
    yield _copied(data, supported, p, q)
    ones = supported.sum(axis=1, dtype=np.int64)
    full, empty = int(ones.max()), int(ones.min())
    yield _crowded(int((ones == full).sum()), full, d, n * at_least(full - mechanism.most, d, q))
    yield _crowded(int((ones == empty).sum()), empty, d, n * at_most(empty, d, q))


def _copied(data: NDArray[Any], supported: NDArray[Any], p: float, q: float) -> Sign:
    """Test copies: those of an unlikely report stand out sooner than those of a likely one."""
    _, first, counts = np.unique(data, axis=0, return_index=True, return_counts=True)
    ones = supported[first].sum(axis=1, dtype=np.float64)
    chances = copies_of_bits(ones, counts.astype(np.float64), len(data), supported.shape[1], p, q)
    at = int(chances.argmin())
    words = f"{counts[at]:,} of {len(data):,} reports are the very same, though it is an unlikely one"
    return Sign("copies", int(counts[at]), float(chances[at]), 1, words)


def _crowded(count: int, ones: int, bits: int, p: float) -> Sign:
    return Sign("crowded", count, p, 1, f"a report has {ones:,} ones among {bits:,} bits, which coins do not give")


@_own.register
def _sums(mechanism: HistogramEncoding, data: NDArray[Any]) -> Iterator[Sign]:
    n, d, scale = len(data), mechanism.domain, float(mechanism.scale)
    totals, limit = data.sum(axis=0, dtype=np.int64), 0.999 / scale
    mgf = laplace_mgf(scale, n)
    words = "the sum for one value is larger than if all people had it"
    yield Sign("share", n, chernoff(float(totals.max()) - n, mgf, limit), d, words)
    words = "the sum for one value is smaller than if nobody had it"
    yield Sign("share", n, chernoff(-float(totals.min()), mgf, limit), d, words)
    total_mgf = laplace_mgf(scale, n * d)
    words = "all components together are not what their noise gives"
    for sign in (1, -1):
        yield Sign("ones", n, chernoff(sign * float(totals.sum() - n), total_mgf, limit), 1, words)


@_own.register
def _number(mechanism: NumberMechanism, data: NDArray[Any]) -> Iterator[Sign]:
    if len(mechanism.ends) > 1:
        return
    n, low, high = len(data), *(float(end) for end in mechanism.ends[0])
    if isinstance(mechanism, Duchi):
        yield from _bit(data, n, float(mechanism.p))
        return
    total = float(scores(mechanism, Reports(mechanism, data)).sum())
    farthest, spread = reach(mechanism)[1] + (high - low) / 2, mechanism.worst_variance
    words = "the mean is farther beyond the bounds than noise explains"
    yield Sign("ends", n, bernstein(total - n * high, n, spread, farthest), 1, words)
    yield Sign("ends", n, bernstein(n * low - total, n, spread, farthest), 1, words)
    if isinstance(mechanism, LaplaceNumber):
        yield from _far(mechanism, data)
    elif isinstance(mechanism, Windowed):
        yield from _last(data, n, mechanism.outputs, mechanism.window, float(mechanism.p))
    elif isinstance(mechanism, Hybrid):
        yield from _both(mechanism, data)


def _both(mechanism: Hybrid, data: NDArray[Any]) -> Iterator[Sign]:
    n, near, share = len(data), mechanism.outputs - 2, float(mechanism.share)
    yield from _last(data[data < near], n, near, mechanism.window, share * float(mechanism.piecewise.p))
    bits = data[data >= near] - np.uint64(near)
    yield from _bit(bits, n, (1 - share) * float(1 - mechanism.flip))
    words = f"{len(bits):,} of {n:,} reports are single bits, which a coin that no answer changes decides"
    yield Sign("coin", len(bits), at_least(len(bits), n, 1 - share), 1, words)
    yield Sign("coin", len(bits), at_most(len(bits), n, 1 - share), 1, words)


def _bit(bits: NDArray[Any], n: int, p: float) -> Iterator[Sign]:
    ones = int(bits.sum())
    yield from _ends("a single bit", (ones, len(bits) - ones), n, p)


def _last(data: NDArray[Any], n: int, outputs: int, window: int, p: float) -> Iterator[Sign]:
    """Test the last positions at either end, and a 64th of a window: none is likelier than p, whatever the number."""
    for width in (1, max(1, window // 64)):
        counts = int((data < width).sum()), int((data >= outputs - width).sum())
        yield from _ends(f"the last {width:,} of {outputs:,} values", counts, n, width * p)


def _far(mechanism: LaplaceNumber, data: NDArray[Any]) -> Iterator[Sign]:
    """Test reports that are several scales beyond the bounds: no more probable than such noise, whatever the number."""
    n, t = len(data), float(np.exp(-1 / float(mechanism.scale)))
    for scales in (4, 12):
        far = int(scales * mechanism.scale)
        above = int((data >= mechanism.limit + mechanism.steps + far).sum())
        below = int((data <= mechanism.limit - far).sum())
        yield from _ends(f"{scales} scales beyond a bound", (above, below), n, t**far / (1 + t))


def _ends(where: str, counts: tuple[int, int], n: int, p: float) -> Iterator[Sign]:
    top = max(counts)
    words = f"{top:,} of {n:,} reports are at one end ({where}), more than any answers make"
    yield Sign("ends", top, at_least(top, n, p), 2, words)

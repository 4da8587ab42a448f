"""The score of one report: an unbiased estimate of the indicator of every value, or of a number.

    report ──► score[a] with E[score[a] | truth x] = 1 if x is a (for sets: if a is in x), else 0

The mean of the scores of all reports is the raw estimate. A single score carries almost no information, and may be far
outside [0, 1]; but scores of two reports of one person can be multiplied, which counts cannot: cross-tables need that.
"""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.number import NumberMechanism
from cloister.local.base.oracle import Floats, Oracle, Reports
from cloister.local.base.wire import decode
from cloister.local.mechanisms.direct import DirectEncoding, RandomisedResponse
from cloister.local.mechanisms.duchi_vector import DuchiVector
from cloister.local.mechanisms.hadamard import HadamardResponse
from cloister.local.mechanisms.hashing import LocalHashing
from cloister.local.mechanisms.histogram import HistogramEncoding
from cloister.local.mechanisms.labelled import STEPS, LabelledNumber
from cloister.local.mechanisms.memoised import Memoised
from cloister.local.mechanisms.padded import PaddedSample
from cloister.local.mechanisms.sampled import SampledNumbers
from cloister.local.mechanisms.sets import OneOfSet, SetBits
from cloister.local.mechanisms.sketch import CountMeanSketch
from cloister.local.mechanisms.subset import SubsetSelection
from cloister.local.mechanisms.unary import ThresholdEncoding, UnaryEncoding
from cloister.privacy.errors import BadInput

__all__ = ["scores", "supports_of"]

# Half a gigabyte of scores: a table over more values would be unreadable anyway.
_LARGEST = 1 << 26


def scores(mechanism: Oracle, reports: Reports | Sequence[bytes] | NDArray[np.uint8]) -> Floats:
    r"""Return the unbiased estimate from each report alone, one row a report.

    Args:
        mechanism: the mechanism of the reports.
        reports: as `perturb` returned them, or their bytes. All must be well formed (`Collection.check` tests it), so
            that rows stay matched with other answers of the same people.

    Returns:
        One column for each value; for numbers one column a coordinate, in the units of the values.

    A square wave's window also moves along a straight line, so its reports have an unbiased mean, although `estimate`
    reconstructs the whole distribution instead, which is not unbiased.

    Privacy: post-processing of reports.

    >>> from cloister import local
    >>> coins = local.RandomisedResponse.coins()
    >>> scores(coins, [b"\x01", b"\x00"]).tolist()
    [[-0.5, 1.5], [1.5, -0.5]]
    """
    if not isinstance(reports, Reports):
        decoded, refused = decode(mechanism, reports if isinstance(reports, np.ndarray) else list(reports))
        if refused:
            raise BadInput(f"{refused:,} of these reports are malformed. Keep only those that Collection.check passes.")
        reports = decoded
    elif reports.mechanism != mechanism:
        raise BadInput("these are reports of another mechanism.")
    wide = 1 if isinstance(mechanism, NumberMechanism) else mechanism.domain
    if len(reports) * wide > _LARGEST:
        raise BadInput(f"{len(reports):,} reports on {wide:,} values are too many for scores. Group the values first.")
    return _scores(mechanism, reports.data)


@singledispatch
def _scores(mechanism: Oracle, data: NDArray[Any]) -> Floats:
    """Return (support - q) / (p - q), for mechanisms that support a true value with probability p and others with q."""
    return np.asarray((supports_of(mechanism, data) - float(mechanism.q)) / float(mechanism.p - mechanism.q))


@_scores.register
def _response(mechanism: RandomisedResponse, data: NDArray[Any]) -> Floats:
    yes = (data.astype(np.float64) - float(mechanism.q)) / float(mechanism.p - mechanism.q)
    return np.stack((1 - yes, yes), axis=1)


@_scores.register
def _summed(mechanism: HistogramEncoding, data: NDArray[Any]) -> Floats:
    return data.astype(np.float64)


@_scores.register
def _labelled(mechanism: LabelledNumber, data: NDArray[Any]) -> Floats:
    return np.asarray(data / STEPS)


@_scores.register
def _codeword(mechanism: HadamardResponse, data: NDArray[Any]) -> Floats:
    """Return +1 or -1 within the value's block, as its row has it at the reported column; 0 elsewhere."""
    different, back = np.unique(data.astype(np.int64), return_inverse=True)
    block, column = different // mechanism.order, different % mechanism.order
    values = np.arange(mechanism.domain)
    home, row = values % mechanism.blocks, 1 + values // mechanism.blocks
    sign = 1.0 - 2.0 * (np.bitwise_count(column[:, None] & row) & 1)
    gain = float((mechanism.inside - mechanism.outside) * (mechanism.order // 2))
    return np.asarray((np.where(block[:, None] == home, sign, 0.0) / gain)[back])


@_scores.register
def _padded(mechanism: PaddedSample, data: NDArray[Any]) -> Floats:
    return np.asarray(mechanism.most * _scores(mechanism.inner, data)[:, : mechanism.domain])


@_scores.register
def _number(mechanism: NumberMechanism, data: NDArray[Any]) -> Floats:
    """Return numbers, each run of reports inverted along its own straight line."""
    low, high = (float(end) for end in mechanism.ends[0])
    t = np.zeros(len(data))
    for part in mechanism.parts:
        mask = (data >= part.start) & (data < part.start + part.outputs)
        a, b = (float(coefficient) for coefficient in part.mean)
        t[mask] = (data[mask] - np.float64(part.start) - a) / b
    return np.asarray((low + high) / 2 + (high - low) / 2 * t)[:, None]


@_scores.register
def _signs(mechanism: DuchiVector, data: NDArray[Any]) -> Floats:
    a, b = (float(coefficient) for coefficient in mechanism.parts[0].mean)
    low, high = (np.array([float(pair[side]) for pair in mechanism.ends]) for side in (0, 1))
    t = (np.unpackbits(data, axis=1, bitorder="little")[:, : mechanism.size] - a) / b
    return np.asarray((low + high) / 2 + (high - low) / 2 * t)


@_scores.register
def _sketched(mechanism: CountMeanSketch | SampledNumbers, data: NDArray[Any]) -> Floats:
    raise BadInput(
        f"a report of {mechanism.name} says nothing about most values by itself, so it has no scores. Ask with direct "
        "encoding, local hashing or Hadamard response, or one number at a time."
    )


@singledispatch
def supports_of(mechanism: Oracle, data: NDArray[Any]) -> NDArray[Any]:
    """Return the values each report supports: ones and zeros, one row a report. For mechanisms with a p and a q."""
    raise BadInput(f"a report of {mechanism.name} has no scores.")


@supports_of.register
def _named(mechanism: DirectEncoding | RandomisedResponse | OneOfSet, data: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(data.astype(np.int64)[:, None] == np.arange(mechanism.domain))


@supports_of.register
def _bits(mechanism: UnaryEncoding | ThresholdEncoding | SubsetSelection | SetBits, data: NDArray[Any]) -> NDArray[Any]:
    return np.unpackbits(data, axis=1, bitorder="little")[:, : mechanism.domain]


@supports_of.register
def _memoised(mechanism: Memoised, data: NDArray[Any]) -> NDArray[Any]:
    if mechanism.encoding == "direct":
        return np.asarray(data.astype(np.int64)[:, None] == np.arange(mechanism.domain))
    return np.unpackbits(data, axis=1, bitorder="little")[:, : mechanism.domain]


@supports_of.register
def _hashed(mechanism: LocalHashing, data: NDArray[Any]) -> NDArray[Any]:
    """Return support by hash: a value is supported if the reported hash maps it to the reported bucket."""
    g = mechanism.buckets
    different, back = np.unique(data.astype(np.int64), return_inverse=True)
    seeds, values = different // g, np.arange(mechanism.domain)
    hashes = np.zeros((len(different), mechanism.domain), dtype=np.int64)
    for _ in range(mechanism.digits):
        hashes += (seeds % g)[:, None] * (values % g)
        seeds, values = seeds // g, values // g
    return np.asarray((hashes % g == (different % g)[:, None])[back])

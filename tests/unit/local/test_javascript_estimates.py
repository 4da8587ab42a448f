"""No estimator tells the browser's reports from Python's; both tests here would tell another law, or other answers."""

import importlib.util
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2_contingency, norm

from cloister import local
from cloister.privacy.noise import SeededSource

found = importlib.util.spec_from_file_location(
    "vectors_node", Path(__file__).parents[3] / "tests" / "vectors" / "node.py"
)
assert found is not None
assert found.loader is not None
served = importlib.util.module_from_spec(found)
found.loader.exec_module(served)

pytestmark = [
    pytest.mark.statistical,
    pytest.mark.skipif(served.NODE is None, reason="no Node here: on Debian, apt-get install nodejs"),
]
# Alike is told from alike once in ten thousand (the seeds are fixed), and a wrong twin is missed hardly ever.
ALIKE, TOLD = 1e-4, 1e-9
PEOPLE = 2_000


@pytest.fixture(scope="module", autouse=True)
def _node_ends() -> Iterator[None]:
    yield
    served.Node.end()


def hybrid(loss: Any) -> local.Hybrid:
    near, bit = local.Piecewise.for_loss((0, 6), loss, 6, 1, 5), local.Duchi.for_loss((0, 6), loss, 6)
    return local.Hybrid(near.low, near.high, 6, 1, 5, near.q, bit.q, Fraction(1, 2), loss)


def prefixes(loss: Any) -> local.HeavyHitters:
    return local.HeavyHitters(4, 2, 3, local.LocalHashing.for_loss(4, loss, buckets=3).lie, loss)


def memoised(maker: Callable[..., local.Memoised]) -> Callable[[Any], local.Memoised]:
    return lambda loss: maker(4, lifetime=local.epsilon(2 * loss.amount), report=loss)


MADE: dict[str, Callable[[Any], Any]] = {
    "RR": local.RandomisedResponse.for_loss,
    "DE": lambda loss: local.DirectEncoding.for_loss(4, loss),
    "SUE": lambda loss: local.UnaryEncoding.symmetric(4, loss),
    "OUE": lambda loss: local.UnaryEncoding.optimised(4, loss),
    "THE": lambda loss: local.ThresholdEncoding.for_loss(4, loss),
    "SHE": lambda loss: local.HistogramEncoding.for_loss(4, loss),
    "OLH": lambda loss: local.LocalHashing.for_loss(4, loss, buckets=3),
    "HR": lambda loss: local.HadamardResponse.for_loss(4, loss, blocks=1),
    "SS": lambda loss: local.SubsetSelection.for_loss(4, loss, size=1),
    "CMS": lambda loss: local.CountMeanSketch.for_loss(4, loss, buckets=31, rows=64),
    "HH": prefixes,
    "memoised": memoised(local.Memoised.direct),
    "memoised bits": memoised(local.Memoised.unary),
    "one of a set": lambda loss: local.OneOfSet.for_loss(4, 2, loss),
    "bits of a set": lambda loss: local.SetBits.for_loss(4, 2, loss),
    "padded sample": lambda loss: local.PaddedSample(4, 2, local.DirectEncoding.for_loss(5, loss)),
    "Laplace": lambda loss: local.LaplaceNumber.for_loss((0, 6), loss, 6),
    "Duchi": lambda loss: local.Duchi.for_loss((0, 6), loss, 6),
    "piecewise": lambda loss: local.Piecewise.for_loss((0, 6), loss, 6, 1, 5),
    "hybrid": hybrid,
    "square wave": lambda loss: local.SquareWave.for_loss((0, 6), loss, 6),
}


def answers(mechanism: Any, share: float) -> list[Any]:
    """People of whom this share gives one answer, and the others another."""
    few, many = ([2, 3], [1]) if hasattr(mechanism, "most") else (0, 1)
    if isinstance(mechanism, local.NumberMechanism):
        many = 6
    count = round(share * PEOPLE)
    return [many] * count + [few] * (PEOPLE - count)


def in_python(mechanism: Any, values: list[Any], seed: str) -> list[bytes]:
    reports = mechanism.perturb(values, SeededSource(f"python {seed}"))
    return [row.tobytes() for row in mechanism.encode(reports)]


def in_javascript(mechanism: Any, values: list[Any], seed: str) -> list[bytes]:
    text = SeededSource(f"javascript {seed}").bytes(len(values) * min(64 + 40 * mechanism.width, 200)).hex()
    (answer,) = served.node([{"verb": "reports", "mechanism": mechanism.describe(), "values": values, "bytes": text}])
    return [bytes.fromhex(report) for report in answer["reports"]]


# Reports themselves.


def seen(mechanism: Any, reports: list[bytes], values: list[Any]) -> NDArray[np.int64]:
    """A number for each report, in which its law shows: how far hashed ones are from their answer's bucket, or it."""
    numbers = [int.from_bytes(report, "little") for report in reports]
    if isinstance(mechanism, local.LocalHashing):
        g = mechanism.buckets
        return np.array([(n - mechanism.hashed(n // g, v)) % g for n, v in zip(numbers, values, strict=True)])
    if isinstance(mechanism, local.HeavyHitters):
        g, levels = mechanism.buckets, mechanism.levels
        pairs = [(divmod(n, levels), v) for n, v in zip(numbers, values, strict=True)]
        return np.array([g * level + (n - mechanism.hashed(level, n // g, v)) % g for (n, level), v in pairs])
    if isinstance(mechanism, local.CountMeanSketch):
        rows = [int.from_bytes(report[:2], "little") for report in reports]
        own = mechanism.hashed(rows, values)
        return np.array([32 * (n >> 16 + at & 1) + (n >> 16).bit_count() for n, at in zip(numbers, own, strict=True)])
    if mechanism.kind == "vector":
        return np.array([int.from_bytes(report[:4], "little", signed=True) for report in reports])
    return np.array(numbers)


def apart(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """How likely two samples of one law differ as much: a chi-square test over at most 16 runs of numbers."""
    both = np.concatenate((one, other))
    edges = np.unique(np.quantile(both, np.linspace(0, 1, 17)[1:-1], method="inverted_cdf"))
    table = np.array([np.bincount(np.searchsorted(edges, part), minlength=len(edges) + 1) for part in (one, other)])
    return float(chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)


@pytest.mark.parametrize("name", MADE)
def test_reports_of_both_languages_follow_one_law_and_those_of_a_wrong_twin_another(name: str) -> None:
    mechanism, twin = (MADE[name](local.epsilon(amount)) for amount in (2, "1/2"))
    values = answers(mechanism, 0.75)
    here = seen(mechanism, in_python(mechanism, values, name), values)
    assert apart(here, seen(mechanism, in_javascript(mechanism, values, name), values)) > ALIKE
    assert apart(here, seen(twin, in_javascript(twin, values, f"twin {name}"), values)) < TOLD


# Estimates.


def estimated(mechanism: Any, reports: list[bytes]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What is estimated, and its standard errors."""
    counts = mechanism.aggregate(reports)
    assert counts.refused == 0
    if isinstance(mechanism, local.SquareWave):
        made = mechanism.estimate(counts, method="em")
        return made.frequencies, made.standard_error
    if isinstance(mechanism, local.NumberMechanism):
        mean = mechanism.estimate(counts)
        return np.atleast_1d(mean.mean), np.atleast_1d(mean.standard_error)
    made = mechanism.estimate(counts, values=np.arange(min(mechanism.domain, 4)))
    return made.frequencies, made.standard_error


def surprise(one: Any, other: Any) -> float:
    """How likely two estimates of one thing differ as much in any place: the largest, as often as there are places."""
    (first, error), (second, also) = one, other
    z = np.abs(first - second) / np.hypot(error, also)
    return float(min(1, 2 * len(z) * norm.sf(z.max())))


@pytest.mark.parametrize("name", MADE)
def test_estimates_from_both_languages_agree_and_those_from_other_answers_do_not(name: str) -> None:
    mechanism = MADE[name](local.epsilon(2))
    values, others = answers(mechanism, 0.75), answers(mechanism, 0.25)
    here = estimated(mechanism, in_python(mechanism, values, name))
    assert surprise(here, estimated(mechanism, in_javascript(mechanism, values, f"estimated {name}"))) > ALIKE
    assert surprise(here, estimated(mechanism, in_javascript(mechanism, others, f"others {name}"))) < TOLD


def test_no_mechanism_of_the_client_is_left_out() -> None:
    (answer,) = served.node([{"verb": "known"}])
    assert {made(local.epsilon(1)).name for made in MADE.values()} == set(answer["mechanisms"])

"""The choice of mechanism: least expected error; among equals, the shortest reports.

A report that is a hundred times shorter may have 5 % more error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from cloister.local.base.number import Bounds, NumberMechanism, read_pair
from cloister.local.base.oracle import Oracle, read_domain, read_loss
from cloister.local.mechanisms.direct import DirectEncoding, RandomisedResponse
from cloister.local.mechanisms.duchi import Duchi
from cloister.local.mechanisms.duchi_vector import DuchiVector, read_pairs
from cloister.local.mechanisms.hadamard import HadamardResponse
from cloister.local.mechanisms.hashing import LocalHashing
from cloister.local.mechanisms.histogram import HistogramEncoding
from cloister.local.mechanisms.hybrid import Hybrid
from cloister.local.mechanisms.laplace import LaplaceNumber
from cloister.local.mechanisms.piecewise import Piecewise
from cloister.local.mechanisms.sampled import SampledNumbers
from cloister.local.mechanisms.sketch import CountMeanSketch
from cloister.local.mechanisms.subset import SubsetSelection
from cloister.local.mechanisms.unary import ThresholdEncoding, UnaryEncoding
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms.checks import count

__all__ = ["Advice", "Candidate", "advise", "advise_number"]

# Mechanisms within this factor of the least error count as equal, and the shortest report wins.
_EQUAL = 1.015
# A report shorter by the first factor may have a standard error larger by the second.
_SHORTER, _LITTLE = 100, 1.05

_MAKERS: dict[str, Callable[[int, Loss], Oracle]] = {
    "DE": DirectEncoding.for_loss,
    "SUE": UnaryEncoding.symmetric,
    "OUE": UnaryEncoding.optimised,
    "SHE": HistogramEncoding.for_loss,
    "THE": ThresholdEncoding.for_loss,
    "OLH": LocalHashing.for_loss,
    "HR": HadamardResponse.for_loss,
    "SS": SubsetSelection.for_loss,
    "CMS": CountMeanSketch.for_loss,
}

_ONE_NUMBER: dict[str, Callable[[Bounds, Loss], NumberMechanism]] = {
    "Lap": LaplaceNumber.for_loss,
    "SR": Duchi.for_loss,
    "PM": Piecewise.for_loss,
    "HM": Hybrid.for_loss,
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One row of the table.

    Attributes:
        label: the mechanism's usual abbreviation.
        mechanism: ready to use.
        mse: the expected squared error of a share, averaged over the domain, for n people.
        bits: per report.
        formula: the closed form.
    """

    label: str
    mechanism: Oracle
    mse: float
    bits: int
    formula: str


@dataclass(frozen=True, slots=True)
class Advice:
    """All candidates, best first, and the advised one.

    Attributes:
        best: the mechanism advised.
        table: every candidate in the order of its error.
        n: the number of people.
    """

    best: Oracle
    table: tuple[Candidate, ...]
    n: int

    def __str__(self) -> str:
        lines = [f"{'':2}{'':4} {'standard error':>14} {'bits':>9}  variance"]
        for line in self.table:
            mark = "→" if line.mechanism is self.best else " "
            lines.append(f"{mark} {line.label:4} {line.mse**0.5:>14.3g} {line.bits:>9,}  {line.formula}")
        return "\n".join(lines)


def advise(domain: int, epsilon: Loss, n: int, most_bits: int | None = None) -> Advice:
    """Return the mechanism of least expected error for a domain, a loss and a number of people.

    The error of most mechanisms, averaged over the domain, does not depend on the distribution of the answers, so none
    has to be assumed. Mechanisms that do not support a domain of this size are left out.

    Args:
        domain: the number of public values.
        epsilon: the loss of one report, replace-one.
        n: the number of respondents.
        most_bits: mechanisms with longer reports are not advised, if given; the table still shows them.

    Privacy: reads public facts alone.

    >>> from cloister import local
    >>> local.advise(5, local.epsilon(2), 1000).best.name, local.advise(1024, local.epsilon("0.5"), 1000).best.name
    ('direct-encoding', 'local-hashing')
    """
    read_domain(domain, "advise")
    read_loss(epsilon, "advise")
    count(n, "n")
    return _best(_candidates(domain, epsilon, n), n, most_bits)


def advise_number(bounds: Bounds | list[Bounds], epsilon: Loss, n: int, most_bits: int | None = None) -> Advice:
    """Return the mechanism of least worst-case error for the mean of a number, or of several numbers.

    Args:
        bounds: low and high, public; a list of such pairs for several numbers in one report.
        epsilon: the loss of one report, replace-one.
        n: the number of respondents.
        most_bits: mechanisms with longer reports are not advised, if given; the table still shows them.

    Privacy: reads public facts alone.

    >>> from cloister import local
    >>> [local.advise_number((0, 100), local.epsilon(e), 1000).best.name for e in ("0.5", "2")]
    ['duchi', 'hybrid']
    """
    read_loss(epsilon, "advise")
    count(n, "n")
    makers: dict[str, Callable[[], NumberMechanism]]
    if isinstance(bounds, list):
        read_pairs(bounds)
        makers = {"SR+": lambda: DuchiVector.for_loss(bounds, epsilon)}
        for label, factory in _ONE_NUMBER.items():
            makers[f"{label}/k"] = partial(SampledNumbers.for_loss, bounds, epsilon, factory)
    else:
        read_pair(bounds)
        makers = {label: partial(factory, bounds, epsilon) for label, factory in _ONE_NUMBER.items()}
    candidates = []
    for label, maker in makers.items():
        try:
            mechanism = maker()
        except BadInput:
            continue  # an unsupported epsilon or number of coordinates
        candidates.append(Candidate(label, mechanism, mechanism.mse(n), mechanism.bits, mechanism.formula))
    return _best(candidates, n, most_bits)


def _best(candidates: list[Candidate], n: int, most_bits: int | None) -> Advice:
    table = sorted(candidates, key=lambda line: line.mse)
    short = [line for line in table if most_bits is None or line.bits <= most_bits]
    if not short:
        raise BadInput(f"no mechanism answers such a question in {most_bits} bits. Allow more.")
    near = [line for line in short if line.mse <= _EQUAL * short[0].mse]
    best = min(near, key=lambda line: line.bits)
    shorter = [line for line in short if line.mse <= _LITTLE**2 * short[0].mse and _SHORTER * line.bits <= best.bits]
    return Advice(min(shorter or [best], key=lambda line: line.mse).mechanism, tuple(table), n)


def _candidates(domain: int, loss: Loss, n: int) -> list[Candidate]:
    candidates = []
    if domain == 2:
        response = RandomisedResponse.for_loss(loss)
        candidates.append(Candidate("RR", response, response.mse(n), response.bits, response.formula))
    for label, maker in _MAKERS.items():
        if label == "CMS" and domain <= 1 << 20:
            continue  # for domains that the others cannot list; depends on the distribution of the answers
        try:
            mechanism = maker(domain, loss)
        except BadInput:
            continue
        candidates.append(Candidate(label, mechanism, mechanism.mse(n), mechanism.bits, mechanism.formula))
    return candidates

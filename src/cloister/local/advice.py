"""Which mechanism? The one of least expected error; among equals, the one with the shortest reports."""

from collections.abc import Callable
from dataclasses import dataclass

from cloister.local.oracle import Oracle, read_domain, read_loss
from cloister.local.oracles.direct import DirectEncoding
from cloister.local.oracles.hadamard import HadamardResponse
from cloister.local.oracles.hashing import LocalHashing
from cloister.local.oracles.histogram import HistogramEncoding
from cloister.local.oracles.response import RandomisedResponse
from cloister.local.oracles.sketch import CountMeanSketch
from cloister.local.oracles.subset import SubsetSelection
from cloister.local.oracles.threshold import ThresholdEncoding
from cloister.local.oracles.unary import UnaryEncoding
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms.checks import count

__all__ = ["Advice", "Candidate", "advise"]

# Mechanisms within this factor of the least error count as equal, and the shortest report wins.
_EQUAL = 1.015

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


@dataclass(frozen=True, slots=True)
class Candidate:
    """One line of the table.

    Attributes:
        label: the mechanism's usual abbreviation.
        mechanism: ready to use.
        mse: the expected squared error of a share, averaged over the domain, for the n asked about.
        bits: per answer.
        formula: the closed form.
    """

    label: str
    mechanism: Oracle
    mse: float
    bits: int
    formula: str


@dataclass(frozen=True, slots=True)
class Advice:
    """All candidates, best first, and the one to take.

    Attributes:
        best: the mechanism advised.
        table: every candidate in the order of its error.
        n: for how many people.
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
    """The mechanism of least expected error for so many values, such a loss and so many people.

    The error of most mechanisms, averaged over the domain, does not depend on how the answers are spread, so nothing
    about them has to be known. Mechanisms that cannot serve a domain of this size are left out.

    Args:
        domain: how many public values there are.
        epsilon: what one report may cost, replace-one.
        n: how many people will answer.
        most_bits: mechanisms with longer answers are not advised, if given; the table still shows them.

    Privacy: looks at public facts alone.

    >>> from cloister import local
    >>> local.advise(5, local.epsilon(2), 1000).best.name, local.advise(1024, local.epsilon("0.5"), 1000).best.name
    ('direct-encoding', 'local-hashing')
    """
    read_domain(domain, "advise")
    read_loss(epsilon, "advise")
    count(n, "n")
    table = sorted(_candidates(domain, epsilon, n), key=lambda line: line.mse)
    short = [line for line in table if most_bits is None or line.bits <= most_bits]
    if not short:
        raise BadInput(f"no mechanism for {domain:,} values answers in {most_bits} bits. Allow more.")
    near = [line for line in short if line.mse <= _EQUAL * short[0].mse]
    return Advice(min(near, key=lambda line: line.bits).mechanism, tuple(table), n)


def _candidates(domain: int, loss: Loss, n: int) -> list[Candidate]:
    found = []
    if domain == 2:
        response = RandomisedResponse.for_loss(loss)
        found.append(Candidate("RR", response, response.mse(n), response.bits, response.formula))
    for label, maker in _MAKERS.items():
        if label == "CMS" and domain <= 1 << 20:
            continue  # it is for domains that the others cannot list, and depends on how answers are spread
        try:
            made = maker(domain, loss)
        except BadInput:
            continue
        found.append(Candidate(label, made, made.mse(n), made.bits, made.formula))
    return found

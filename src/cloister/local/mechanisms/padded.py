"""Multiple choice over any frequency oracle: pad the set, draw one of its places, report that value."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.coins import uniform
from cloister.local.base.counts import chosen, frequencies, tally, valid
from cloister.local.base.oracle import Floats, Kind, Oracle, read_domain
from cloister.local.base.perturb import checked, perturbed
from cloister.local.mechanisms.direct import DirectEncoding
from cloister.local.mechanisms.hashing import LocalHashing
from cloister.local.mechanisms.sets import count_sets, read_most, read_sets, sets_of
from cloister.local.mechanisms.subset import SubsetSelection
from cloister.local.mechanisms.unary import UnaryEncoding
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.privacy.noise.source import Source

__all__ = ["PaddedSample"]

_INNER = (DirectEncoding, LocalHashing, SubsetSelection, UnaryEncoding)


@dataclass(frozen=True, slots=True)
class PaddedSample(Oracle):
    """One chosen option, drawn from `most` places of which the unused are empty, through an inner mechanism.

    Padding and sampling of Qin et al. 2016 and Wang, Li & Jha 2018. Its variance grows like the square of `most`, but
    local hashing inside keeps reports short over a large number of options.

    Privacy: pure over all pairs of sets of at most `most` options: the inner mechanism's loss, for any drawn place.
        The number of chosen options is hidden too.
    """

    name: ClassVar[str] = "padded-sample"
    formula: ClassVar[str] = "m² × the inner mechanism's variance, for a rare option"

    domain: int
    most: int
    inner: DirectEncoding | LocalHashing | SubsetSelection | UnaryEncoding

    def __post_init__(self) -> None:
        read_domain(self.domain, self.name)
        read_most(self.most, self.domain, self.name)
        if not isinstance(self.inner, _INNER):
            raise BadInput("inside is a DirectEncoding, UnaryEncoding, LocalHashing or SubsetSelection.")
        if self.inner.domain != self.domain + 1:
            raise BadInput("the inner mechanism needs one value more than there are options: the last says nothing.")

    @classmethod
    def for_loss(cls, domain: int, most: int, loss: Loss) -> Self:
        """Build the mechanism around local hashing."""
        options = read_domain(domain, cls.name, (1 << 32) - 1)
        return cls(domain, most, LocalHashing.for_loss(options + 1, loss))

    @property
    def loss(self) -> Loss:  # type: ignore[override]  # follows from what is inside
        """The loss of a report."""
        return self.inner.loss

    @property
    def kind(self) -> Kind:  # type: ignore[override]  # as what is inside
        """The form of a report."""
        return self.inner.kind

    @property
    def p(self) -> Fraction:  # type: ignore[override]  # follows from what is inside
        """The probability that a report supports a chosen option."""
        return self.q + (self.inner.p - self.inner.q) / self.most

    @property
    def q(self) -> Fraction:  # type: ignore[override]  # as inside
        """The probability that a report supports another option."""
        return self.inner.q

    @property
    def bits(self) -> int:
        """The number of bits per report."""
        return self.inner.bits

    @property
    def outputs(self) -> int:
        """The number of different reports."""
        return self.inner.outputs

    @property
    def answers(self) -> int:
        """The number of sets."""
        return count_sets(self.domain, self.most)

    @property
    def inputs(self) -> tuple[int, ...]:
        """All sets, as numbers whose bits are the chosen options."""
        return sets_of(self.domain, self.most)

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on this set: the mean over its places."""
        chosen = [option for option in range(self.domain) if value >> option & 1]
        laws = [self.inner.law(option) for option in (*chosen, *[self.domain] * (self.most - len(chosen)))]
        return tuple(sum(chances, start=Fraction(0)) / self.most for chances in zip(*laws, strict=True))

    def mse(self, people: int) -> float:
        """Return the expected squared error of a share, averaged over the options, if every person chooses `most`."""
        return float(self.variance(np.array([self.most / self.domain]), people)[0])

    def largest_ratio(self) -> Fraction:
        """Return the inner mechanism's bound: all places empty against all places used."""
        return self.inner.largest_ratio()

    def describe(self) -> dict[str, str | int]:
        """Return the public, exact facts, the inner mechanism's under `inner.`."""
        inside = {f"inner.{key}": fact for key, fact in self.inner.describe().items()}
        outside: dict[str, str | int] = {"mechanism": self.name, "bits": self.bits, "width": self.width}
        return {**outside, "domain": self.domain, "most": self.most, "loss": str(self.epsilon), **inside}


@perturbed.register
def _perturb(mechanism: PaddedSample, values: NDArray[np.int64], source: Source) -> NDArray[Any]:
    """Draw one of `most` places uniformly (a word each, redrawn in the last incomplete run); then the inner bytes.

    The place's chosen option, in ascending order, or `domain` if fewer were chosen, is the inner mechanism's value.
    """
    place = uniform(mechanism.most, len(values), source).astype(np.int64)
    named = values[np.arange(len(values)), place]
    return perturbed(mechanism.inner, np.where(named < 0, mechanism.domain, named), source)


@checked.register
def _checked(mechanism: PaddedSample, values: Any) -> NDArray[np.int64]:
    return read_sets(mechanism.domain, mechanism.most, values)


@valid.register
def _valid_inside(mechanism: PaddedSample, data: NDArray[Any]) -> NDArray[np.bool_]:
    return valid(mechanism.inner, data)


@tally.register
def _inside(mechanism: PaddedSample, data: NDArray[Any]) -> NDArray[Any]:
    return tally(mechanism.inner, data)


@frequencies.register
def _sampled(
    mechanism: PaddedSample, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    _, shares = frequencies(mechanism.inner, table, people, None)
    return chosen(mechanism.most * shares[: mechanism.domain], values)

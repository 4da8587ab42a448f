"""Questions whose answer is a set or an order, and their mechanisms."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cloister.local.base.oracle import Oracle, read_domain, read_loss
from cloister.local.mechanisms.padded import PaddedSample
from cloister.local.mechanisms.rankings import ItemAtPlace, PairOrder
from cloister.local.mechanisms.sets import OneOfSet, SetBits, read_most
from cloister.local.privacy.advice import Advice, Candidate
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms.checks import count

__all__ = ["ChooseUpTo", "Ranking"]

# As in advice.py: within this factor of the least error, the shortest report wins.
_EQUAL = 1.015


@dataclass(frozen=True, slots=True)
class ChooseUpTo:
    """Choose up to `most` of `options`.

    Three strategies, each a mechanism with the usual verbs; people's answers are sets of option numbers:
        one_of: one option is reported. Shortest; best when there are few options for each that may be chosen.
        bits: a bit for each option, sharing one budget. Best when there are many options.
        padded: one option, drawn and then sent through local hashing. Short reports over very many options.

    >>> from cloister.local import epsilon
    >>> question = ChooseUpTo(options=10, most=3)
    >>> question.best(epsilon(1), 1000).name, ChooseUpTo(500, 3).best(epsilon(1), 1000).name
    ('one-of-set', 'set-bits')
    """

    options: int
    most: int

    def __post_init__(self) -> None:
        read_domain(self.options, "ChooseUpTo")
        read_most(self.most, self.options, "ChooseUpTo")

    def one_of(self, loss: Loss) -> OneOfSet:
        """Return the mechanism that reports one option, or none."""
        return OneOfSet.for_loss(self.options, self.most, loss)

    def bits(self, loss: Loss) -> SetBits:
        """Return the mechanism with a bit for each option."""
        return SetBits.for_loss(self.options, self.most, loss)

    def padded(self, loss: Loss) -> PaddedSample:
        """Return the mechanism that reports one drawn option through local hashing."""
        return PaddedSample.for_loss(self.options, self.most, loss)

    def advise(self, loss: Loss, n: int, most_bits: int | None = None) -> Advice:
        """Return the strategy of least expected error for n people, and the table of all.

        Args:
            loss: of one report, replace-one.
            n: the number of respondents.
            most_bits: strategies with longer reports are not advised, if given; the table still shows them.

        Privacy: reads public facts alone.
        """
        return _advice({"one": self.one_of, "bits": self.bits, "PS": self.padded}, loss, n, most_bits)

    def best(self, loss: Loss, n: int) -> Oracle:
        """Return the mechanism that `advise` selects."""
        return self.advise(loss, n).best


@dataclass(frozen=True, slots=True)
class Ranking:
    """Put `items` in order, the best first.

    Two strategies, each a mechanism with the usual verbs; people's answers are lists of all items:
        pairs: the order of one pair. Preferences between any two items, and the best Borda scores.
        places: the item at one place. The shares of first, second, …; Borda scores too.

    >>> from cloister.local import epsilon
    >>> Ranking(6).best(epsilon(1), 1000).name
    'pair-order'
    """

    items: int

    def __post_init__(self) -> None:
        read_domain(self.items, "Ranking", 1 << 10)

    def pairs(self, loss: Loss) -> PairOrder:
        """Return the mechanism that reports the order of one pair."""
        return PairOrder.for_loss(self.items, loss)

    def places(self, loss: Loss) -> ItemAtPlace:
        """Return the mechanism that reports the item at one place."""
        return ItemAtPlace.for_loss(self.items, loss)

    def advise(self, loss: Loss, n: int, most_bits: int | None = None) -> Advice:
        """Return the strategy with the least error of Borda scores for n people, and the table of both.

        Args:
            loss: of one report, replace-one.
            n: the number of respondents.
            most_bits: strategies with longer reports are not advised, if given; the table still shows them.

        Privacy: reads public facts alone.
        """
        return _advice({"pair": self.pairs, "item": self.places}, loss, n, most_bits)

    def best(self, loss: Loss, n: int) -> Oracle:
        """Return the mechanism that `advise` selects."""
        return self.advise(loss, n).best


def _advice(makers: Mapping[str, Callable[[Loss], Oracle]], loss: Loss, n: int, most_bits: int | None) -> Advice:
    read_loss(loss, "advise")
    count(n, "n")
    candidates = []
    for label, maker in makers.items():
        try:
            mechanism = maker(loss)
        except BadInput:  # too many options for it
            continue
        candidates.append(Candidate(label, mechanism, mechanism.mse(n), mechanism.bits, mechanism.formula))
    if not candidates:
        raise BadInput("there are too many options for every strategy. Ask about groups of them first.")
    table = sorted(candidates, key=lambda line: line.mse)
    short = [line for line in table if most_bits is None or line.bits <= most_bits]
    if not short:
        raise BadInput(f"no strategy answers in {most_bits} bits. Allow more.")
    near = [line for line in short if line.mse <= _EQUAL * short[0].mse]
    return Advice(min(near, key=lambda line: line.bits).mechanism, tuple(table), n)

"""Several questions to one person: split the budget, or ask each person only some. The best choice is computed.

A person's answers belong together, so the loss is stated per person: one person's whole record of answers costs `loss`,
whatever is asked. With `asked` questions out of k, drawn on the device, each is answered at epsilon/asked by about
n·asked/k people. Asking all is the textbook's split, asking one its sampling (spec LDP-16; Wang et al. 2019).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.oracle import Oracle, Reports, read_loss
from cloister.local.privacy.advice import advise, advise_number
from cloister.local.privacy.certificate import verify
from cloister.local.survey.choose import ChooseUpTo
from cloister.privacy.errors import BadCandidates, BadInput
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms.checks import count
from cloister.privacy.number import Number, show

if TYPE_CHECKING:
    from cloister.local.base.counts import Counts
    from cloister.privacy.noise import Source
from dataclasses import replace

from cloister.local.base.coins import uniform
from cloister.local.base.mean import mean_interval
from cloister.local.base.number import NumberMechanism
from cloister.privacy.noise.source import Source

__all__ = ["AttributeReports", "Attributes", "Choice", "Strategy"]


# Collector: estimates for all people, from those who were asked.


def widened(estimate: Any, share: float, confidence: Number) -> Any:
    """Return an estimate with the error of asking a share of the people: n of n/share, without replacement."""
    if share >= 1:
        return estimate
    if isinstance(estimate.mechanism, NumberMechanism):
        noise, total = np.square(estimate.standard_error), np.square(estimate.population_error)
        error = np.sqrt(noise + np.maximum(total - noise, 0) * (1 - share))
        return replace(estimate, standard_error=error, interval=mean_interval(estimate.mean, error, confidence))
    spread = estimate.spread.asking(share)
    shares = estimate.frequencies
    return replace(
        estimate, spread=spread, standard_error=spread.error(shares), interval=spread.interval(shares, confidence)
    )


# Device: the choice of questions.


def drawn(people: int, size: int, asked: int, source: Source) -> NDArray[np.bool_]:
    """Draw `asked` of `size` questions, all sets equally likely, one row a person: partial Fisher-Yates shuffle.

    For each step a word, modulo the number of questions left (redrawn in the last, incomplete run): the distance from
    the step's position to the question it is exchanged with.
    """
    rows, order = np.arange(people), np.tile(np.arange(size), (people, 1))
    for step in range(asked):
        other = step + uniform(size - step, people, source).astype(np.int64)
        order[rows, step], order[rows, other] = order[rows, other], order[rows, step]
    mask = np.zeros((people, size), dtype=np.bool_)
    mask[rows[:, None], order[:, :asked]] = True
    return mask


def column(answers: Any) -> Any:
    """Return all answers to one question: an array, or a list of sets."""
    if isinstance(answers, list) and any(isinstance(answer, set | frozenset | list | tuple) for answer in answers):
        return answers
    return np.asarray(answers)


def some(answers: Any, told: NDArray[np.bool_]) -> Any:
    """Return the answers of the people who report."""
    if isinstance(answers, np.ndarray):
        return answers[told]
    return [answer for answer, asked in zip(answers, told, strict=True) if asked]


Strategy = Literal["best", "split", "sample"]
# The size of a domain, the bounds of a number, or a choice of several.
Attribute = int | tuple[Number, Number] | ChooseUpTo


@dataclass(frozen=True, slots=True)
class Choice:
    """One row of the table: the result if each person answers this many questions.

    Attributes:
        asked: the number of questions each person answers.
        loss: of each of those answers.
        mechanisms: the best one for each question at that loss.
        mse: for each question, the expected squared error of its estimates, sampling of respondents included.
        error: the geometric mean of the standard errors, which does not depend on units. The smallest is best.
    """

    asked: int
    loss: Loss
    mechanisms: tuple[Oracle, ...]
    mse: tuple[float, ...]
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class AttributeReports:
    """Reports of many people on some questions each.

    Attributes:
        parts: the reports on each question, by the people asked, in their order.
        told: the questions each person answered, one row a person; drawn by devices, independent of the answers.
    """

    parts: dict[str, Reports]
    told: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.told)


@dataclass(frozen=True, slots=True)
class Attributes:
    """Several questions and the way they are asked. Built with `for_loss`.

    Attributes:
        names: of the questions.
        chosen: the number of questions each person answers, and the mechanisms.
        loss: of a PERSON, all answers together.
        table: every possible number of questions, best first.

    Privacy: pure, for one person's whole record against any other. The questions to answer are drawn on the device
        by chance alone. `verify(attributes)` adds up the exact losses of the `asked` most expensive answers.
    """

    names: tuple[str, ...]
    chosen: Choice
    loss: Loss
    table: tuple[Choice, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.chosen.asked <= len(self.names) == len(self.chosen.mechanisms):
            raise BadInput("each question has a mechanism, and each person answers at least one and at most all.")
        dearest = sorted((mechanism.epsilon for mechanism in self.chosen.mechanisms), reverse=True)[: self.chosen.asked]
        if sum(dearest, start=Fraction(0)) > read_loss(self.loss, "several questions"):
            raise BadInput(f"the answers of one person would cost more than {self.loss}. Use Attributes.for_loss().")

    @classmethod
    def for_loss(
        cls, attributes: Mapping[str, Attribute], loss: Loss, n: int, strategy: Strategy | int = "best"
    ) -> "Attributes":
        """Choose the number of questions per person and their mechanisms.

        Args:
            attributes: for each name a number of values, public bounds of a number, or a `ChooseUpTo`.
            loss: of one person by all answers together, replace-one.
            n: the number of respondents.
            strategy: `"split"` asks everyone everything, `"sample"` one question each, an integer that many;
                `"best"` takes the number of least error.

        Privacy: reads public facts alone.

        >>> from cloister import local
        >>> asked = Attributes.for_loss({"job": 14, "sex": 2, "smoker": 2}, local.epsilon(1), 10_000)
        >>> asked.chosen.asked, print(asked.loss)
        epsilon 1 (replace-one)
        (1, None)
        """
        read_loss(loss, "several questions")
        count(n, "n")
        if not attributes:
            raise BadInput("name at least one question.")
        size = len(attributes)
        table = sorted((_choice(attributes, loss, n, asked) for asked in range(1, size + 1)), key=lambda c: c.error)
        fixed = {"best": table[0].asked, "split": size, "sample": 1}
        asked = fixed.get(strategy) if isinstance(strategy, str) else strategy
        if isinstance(asked, bool) or asked not in range(1, size + 1):
            raise BadInput(f"strategy is 'best', 'split', 'sample' or a number from 1 to {size}, got {strategy!r:.40}.")
        chosen = next(line for line in table if line.asked == asked)
        return cls(tuple(attributes), chosen, loss, tuple(table))

    @property
    def mechanisms(self) -> dict[str, Oracle]:
        """The mechanism of each question."""
        return dict(zip(self.names, self.chosen.mechanisms, strict=True))

    def log_ratio(self) -> Fraction:
        """Return an upper bound on the log of the largest likelihood ratio over all pairs of records: for `verify`."""
        losses = []
        for mechanism in self.chosen.mechanisms:
            certificate = verify(mechanism)
            amount = certificate.epsilon
            if amount is None:
                raise BadInput(f"{mechanism.name} has no finite loss: {certificate.reason}")
            # A log is rounded up; a ratio found within the claim costs at most the claim.
            losses.append(min(amount, mechanism.epsilon) if certificate.holds else amount)
        return sum(sorted(losses, reverse=True)[: self.chosen.asked], start=Fraction(0))

    def __str__(self) -> str:
        lines = [
            f"{self.loss} for each person, all answers together",
            f"{'asked':>7} {'epsilon each':>13} {'error':>9}",
        ]
        for line in sorted(self.table, key=lambda choice: choice.asked):
            mark = "→" if line.asked == self.chosen.asked else " "
            names = ", ".join(mechanism.name for mechanism in line.mechanisms)
            lines.append(f"{mark} {line.asked:>5} {show(line.loss.amount):>13} {line.error:>9.3g}  {names}")
        return "\n".join(lines)

    # The device's verb.

    def draw(self, people: int, source: "Source | None" = None) -> NDArray[np.bool_]:
        """Draw the questions each person answers: `asked` of them, all sets equally likely, one row a person."""
        from cloister.privacy.noise.source import SYSTEM

        return drawn(people, len(self.names), self.chosen.asked, source or SYSTEM)

    def perturb(self, answers: Mapping[str, Any], source: "Source | None" = None) -> AttributeReports:
        """Perturb the answers of many people.

        Args:
            answers: for each question, each person's answer (as its mechanism takes it), one column each.
            source: the source of random bits; default the operating system's.

        Privacy: costs each person `loss`, once, for all their answers together.
        """
        from cloister.local.base.perturb import checked

        if set(answers) != set(self.names):
            raise BadCandidates(f"give a column for each of these questions: {', '.join(self.names)}.")
        # All columns are checked before anything is drawn: a refused answer costs nothing.
        columns = {name: column(answers[name]) for name in self.names}
        sizes = {len(checked(mechanism, columns[name])) for name, mechanism in self.mechanisms.items()}
        if len(sizes) != 1:
            raise BadCandidates("all columns have one answer for each person; these differ in length.")
        told = self.draw(sizes.pop(), source)
        parts = {
            name: self.mechanisms[name].perturb(some(columns[name], told[:, index]), source)
            for index, name in enumerate(self.names)
        }
        return AttributeReports(parts, told)

    # The collector's verbs.

    def aggregate(self, reports: AttributeReports | Mapping[str, Any]) -> dict[str, "Counts"]:
        """Count, for each question, reports or received bytes."""
        parts: Mapping[str, Any] = reports.parts if isinstance(reports, AttributeReports) else reports
        return {name: mechanism.aggregate(parts.get(name, [])) for name, mechanism in self.mechanisms.items()}

    def estimate(self, counts: Mapping[str, "Counts"], confidence: Number = "0.95") -> dict[str, Any]:
        """Estimate each question for all people, not only for those who were asked.

        Standard errors and intervals include the random choice of questions.

        Args:
            counts: a result of `aggregate`, for each question.
            confidence: of each interval individually.
        """
        people = sum(part.n for part in counts.values()) / self.chosen.asked
        return {
            name: widened(mechanism.estimate(counts[name], confidence), counts[name].n / people, confidence)
            for name, mechanism in self.mechanisms.items()
        }


def _choice(attributes: Mapping[str, Attribute], loss: Loss, n: int, asked: int) -> Choice:
    """Return the result of asking each person this many questions."""
    share, each = asked / len(attributes), loss.split(asked)
    people = max(1, round(n * share))
    pairs = [(_best(attribute, each, people), _spread(attribute)) for attribute in attributes.values()]
    mse = tuple(mechanism.mse(people) + spread * (1 - share) / people for mechanism, spread in pairs)
    error = math.exp(sum(math.log(square) for square in mse) / (2 * len(mse)))
    return Choice(asked, each, tuple(mechanism for mechanism, _ in pairs), mse, error)


def _best(attribute: Attribute, loss: Loss, people: int) -> Oracle:
    if isinstance(attribute, ChooseUpTo):
        return attribute.best(loss, people)
    if isinstance(attribute, tuple):
        return advise_number(attribute, loss, people).best
    return advise(attribute, loss, people).best


def _spread(attribute: Attribute) -> float:
    """Return the variance of one person's contribution before any noise, if answers are spread evenly."""
    if isinstance(attribute, tuple):
        return (float(attribute[1]) - float(attribute[0])) ** 2 / 12
    share = attribute.most / attribute.options if isinstance(attribute, ChooseUpTo) else 1 / attribute
    return share * (1 - share)

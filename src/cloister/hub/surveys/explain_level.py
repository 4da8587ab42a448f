"""Explanation of a level in plain words, computed from its mechanism.

Two sentences for every level: how a report is made, with the mechanism's own probabilities; and a bound that holds
whatever is sent. A reader who held a fact about an answer for as likely as not can, after a report of epsilon, be
sure of it to at most e^epsilon / (1 + e^epsilon): Bayes' rule, with a likelihood ratio of at most e^epsilon.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, exp, log10, sqrt
from typing import Any, Final

from cloister.hub.surveys.i18n import Words
from cloister.hub.surveys.question import SurveyQuestion
from cloister.local import Question
from cloister.local.base.number import NumberMechanism
from cloister.local.base.oracle import Oracle

__all__ = ["LevelExplanation", "sure", "told"]


@dataclass(frozen=True, slots=True)
class LevelExplanation:
    """Level as the page shows it.

    Attributes:
        level: as envelopes name it: the epsilon of one report, exact.
        name: the name in words.
        price: the exact charge to the wallet: for life where answers are memoised.
        cost: the price as readable text.
        way: how a report is made.
        bound: the bound on what can be learned.
    """

    level: str
    name: str
    price: str
    cost: str
    way: str
    bound: str


def told(asked: SurveyQuestion, question: Question, words: Words) -> tuple[LevelExplanation, ...]:
    """Explain every level of a question, the most private first.

    Args:
        asked: the question as it was composed.
        question: its mechanisms, as they were fixed when the survey opened.
        words: the texts of a language.
    """
    explanations = []
    for level, mechanism in zip(asked.levels, question.levels, strict=True):
        price = lifetime(mechanism)
        memoised = mechanism.name == "memoised"
        bound = words.say("tells.bound_for_life" if memoised else "tells.bound", sure=sure(price))
        explanations.append(
            LevelExplanation(
                str(mechanism.epsilon),
                words.level(level.name),
                str(price),
                words.number(float(price), 4),
                _way(asked, mechanism, words),
                bound,
            )
        )
    return tuple(explanations)


def lifetime(mechanism: Oracle) -> Fraction:
    """Return the cost of all reports ever made from one answer; without memoisation, the cost of one."""
    loss = getattr(mechanism, "lifetime", None)
    return Fraction(loss.amount) if loss is not None else mechanism.epsilon


def sure(epsilon: Fraction) -> int:
    """Return the certainty in per cent that a reader who began with 50 can reach: rounded up to stay a bound."""
    odds = exp(epsilon)
    return min(ceil(100 * odds / (1 + odds)), 100)


def _way(definition: SurveyQuestion, mechanism: Oracle, words: Words) -> str:
    name = mechanism.name
    if name == "memoised":
        name = f"memoised-{mechanism.encoding}"  # type: ignore[attr-defined]
    if isinstance(mechanism, NumberMechanism):
        off = words.number(*_rounded(sqrt(mechanism.worst_variance)))
        return words.say("tells.number", off=f"{off}\N{NO-BREAK SPACE}{definition.unit}" if definition.unit else off)
    if name == "subset-selection" and mechanism.size == 1:  # type: ignore[attr-defined]
        name = "direct-encoding"  # a list of one
    two = mechanism.domain == 2 and name in _OF_TWO
    key = f"tells.{name}{'.two' if two else ''}"
    if key not in words.texts:
        return words.say("tells.other")
    facts = {fact: find(mechanism) for fact, find in _FACTS.items()}
    return words.say(key, **{fact: words.number(*value) if value else "" for fact, value in facts.items()})


_OF_TWO: Final = frozenset({"randomised-response", "direct-encoding", "memoised-direct"})


def _of_hundred(chance: Fraction) -> tuple[float, int]:
    many = float(100 * chance)
    return many, 0 if many >= 10 else 1


def _whole(mechanism: Oracle, name: str) -> tuple[float, int] | None:
    value: Any = getattr(mechanism, name, None)
    return (float(value), 0) if isinstance(value, int) else None


_FACTS: Final[Mapping[str, Callable[[Oracle], tuple[float, int] | None]]] = {
    "own": lambda mechanism: _of_hundred(mechanism.p),
    "other": lambda mechanism: _of_hundred(mechanism.q),
    "size": lambda mechanism: _whole(mechanism, "size"),
    "groups": lambda mechanism: _whole(mechanism, "buckets"),
}


def _rounded(value: float) -> tuple[float, int]:
    """Round to two digits: an error of an error means little."""
    places = 1 - int(log10(value) // 1) if value > 0 else 0
    return round(value, places), max(places, 0)

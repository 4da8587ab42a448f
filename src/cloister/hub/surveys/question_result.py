"""Result of one question: estimates from all levels, the mean of a scale, the privacy cost of publishing it."""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cloister.hub.surveys.question import SurveyQuestion
from cloister.local import Finding, Question, ScaleMean, Shuffled, shuffled_levels
from cloister.local.base.oracle import Oracle

__all__ = ["CONFIDENCE", "DELTA", "LINKED", "QuestionResult"]

CONFIDENCE = "0.95"
DELTA = "1e-6"
LINKED = 0.01  # below this, levels and answers may be linked


@dataclass(frozen=True, eq=False)
class QuestionResult:
    """Result of one question.

    Attributes:
        asked: the question as it was composed.
        question: its mechanisms.
        people: the number of respondents in the wave.
        finding: estimates; None without answers.
        by_people: the same with every level weighted by its respondents, where levels and answers may be correlated.
        mean: the mean of a scale.
    """

    asked: SurveyQuestion
    question: Question
    people: int
    finding: Finding | None
    by_people: Finding | None = None
    mean: ScaleMean | None = None

    @property
    def n(self) -> int:
        """Return how many answered."""
        return self.finding.raw.n if self.finding else 0

    @property
    def level_names(self) -> dict[str, str]:
        """Return each level's name, by the epsilon of a report: less than the level's, if answers are memoised."""
        return {epsilon: level.name for epsilon, level in zip(self.question.offered, self.asked.levels, strict=True)}

    @property
    def chosen(self) -> dict[str, int]:
        """Return how many chose each level, by its name; and how many skipped the question."""
        levels = self.finding.levels if self.finding else {}
        named = {name: levels[epsilon].n if epsilon in levels else 0 for epsilon, name in self.level_names.items()}
        return {**named, "skipped": self.people - self.n}

    @property
    def linked(self) -> bool:
        """Return True if the choice of a level and the answer may be correlated."""
        return self.by_people is not None

    @property
    def shuffled(self) -> Shuffled | None:
        """Return the loss to readers of this question's estimates at the weakest level, with the hub as shuffler.

        It holds for one question, published once: a cross-table matches the reports of a respondent, and a reader of
        the estimates of two moments can subtract them. Then only the levels hold.
        """
        return self.shuffling().result() if self.finding is not None else None

    def shuffling(self) -> Future[Shuffled]:
        """Return the loss as `shuffled`, computed in the background: it takes some tenths of a second, once."""
        assert self.finding is not None
        return _shuffling(tuple((level.mechanism, _at_least(level.n)) for level in self.finding.levels.values()))

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per value: raw share, error, interval, projected share; for a number one row, the mean."""
        rows = self.finding.rows() if self.finding else []
        if self.by_people is not None:
            for row, other in zip(rows, self.by_people.rows(), strict=True):
                row |= {"by people": other["raw"], "by people low": other["low"], "by people high": other["high"]}
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return JSON for programs and receipts. Levels appear in aggregate alone."""
        record: dict[str, Any] = {
            "question": self.asked.id,
            "text": self.asked.text,
            "type": self.asked.type,
            "unit": self.asked.unit,
            "reports": self.n,
            "chosen": self.chosen,
            "estimates": self.rows(),
            "confidence": float(CONFIDENCE),
        }
        if self.finding is None or self.shuffled is None:
            return record
        bound, published = self.finding.poisoning, self.shuffled
        return record | {
            "mean": self.mean.to_json() if self.mean else None,
            "mechanisms": {level: estimate.mechanism.name for level, estimate in self.finding.levels.items()},
            "weights": dict(self.finding.weights),
            "effective": self.finding.effective,
            "selection": self.finding.selection,
            "poisoning": {"fakes": bound.fakes, "up": bound.up, "down": bound.down, "false_answers": bound.honest},
            "published": {
                "epsilon": float(published.loss.amount),
                "delta": float(published.loss.delta),
                "local": self.asked.levels[-1].epsilon,
                "trusted": "the operator of this hub, who shuffles the reports",
                "against": "readers of what is published, not the hub itself nor anyone who downloads the reports",
                "of": "the estimates of this question, published once; estimates of two moments or waves can be "
                "subtracted, cross-tables and models match the reports of one person, and there only what people chose "
                "on their devices holds",
            },
        }


# The shuffler

_STEPS = (80, 60, 50, 40, 30, 25, 20, 15, 12, 10)
_pool = ThreadPoolExecutor(1, "shuffled")


def _at_least(n: int) -> int:
    """Return one of a few numbers up to n: a bound for fewer respondents holds for n too.

    The bound is costly, and would otherwise be computed again for every new report.
    """
    if n < _STEPS[-1]:
        return n
    scale: int = 10 ** (len(str(n)) - 2)
    return next(step for step in _STEPS if step * scale <= n) * scale


@lru_cache(maxsize=2048)
def _shuffling(levels: tuple[tuple[Oracle, int], ...]) -> Future[Shuffled]:
    return _pool.submit(shuffled_levels, levels, DELTA)

"""Noise that is not calibrated to one person's contribution, or not charged."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from cloister.attack.queries.tracker import TrackerCondition
from cloister.lessons.sql.lesson import SmallTable
from cloister.privacy.noise import SeededSource

__all__ = ["NoisyOutput", "PerturbedCopy", "SampledAnswers"]


def _noise(source: SeededSource, spread: float) -> float:
    return float((2 * source.floats(1)[0] - 1) * spread)


class PerturbedCopy(SmallTable):
    """Run queries on a copy in which every value was moved once, by at most `spread`.

    Prevents: averaging, since the copy stays the same. Falls to: differencing
    (`attack.queries.differencing.between`), which leaves the noise of one row only, however large the groups: the
    target's value to within `spread`.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], column: str, spread: float, seed: str = "copy") -> None:
        super().__init__(rows)
        source = SeededSource(seed)
        self._noise = [_noise(source, spread) for _ in self._rows]
        self.column = column

    def total(self, column: str | None, condition: TrackerCondition) -> float:
        """Return the sum over the copy."""
        moved = sum(self._noise[i] for i in self._members(condition)) if column == self.column else 0.0
        return self._exact(column, condition) + moved


class NoisyOutput(SmallTable):
    """Add fresh, uncalibrated noise of at most `spread` to every answer, for any number of queries.

    Prevents: an exact answer from one query. Falls to: `attack.queries.averaging.average`.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], spread: float, seed: str = "output") -> None:
        super().__init__(rows)
        self.spread = spread
        self._source = SeededSource(seed)

    def total(self, column: str | None, condition: TrackerCondition) -> float:
        """Return the sum plus noise."""
        return self._exact(column, condition) + _noise(self._source, self.spread)


class SampledAnswers(SmallTable):
    """Answer each query from its own sample, drawn by a keyed hash of its text and the row (Denning 1980).

    Prevents: differencing, since two queries draw different samples. Falls to: rewording the same query
    (`TrackerCondition.reworded`) and averaging (`attack.queries.averaging.average`).
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], rate: float, key: bytes) -> None:
        super().__init__(rows)
        self.rate, self._key = rate, key

    def total(self, column: str | None, condition: TrackerCondition) -> float:
        """Return the sum over the sample, scaled up."""
        drawn = [i for i in self._members(condition) if self._draw(f"{i} {condition.sql}") < self.rate]
        return float(sum(1 if column is None else self._rows[i][column] for i in drawn)) / self.rate

    def _draw(self, text: str) -> float:
        return int.from_bytes(blake2b(text.encode(), key=self._key, digest_size=6).digest()) / 2**48

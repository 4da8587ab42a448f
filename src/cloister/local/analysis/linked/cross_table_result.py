"""A cross-table: shares of pairs of answers, shares within rows and columns, and a test against noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any, Literal

from cloister.local.analysis.linked.independence import Independence
from cloister.local.analysis.ratio import Ratio
from cloister.local.base.oracle import Floats
from cloister.local.fraud.poisoning import Poisoning
from cloister.privacy.number import percent_limits, upper_text

__all__ = ["CrossTable"]

_HOW = {
    "matched": "from matched reports: each answer was perturbed by itself",
    "joint": "from jointly perturbed reports: both answers were perturbed as one",
}


@dataclass(frozen=True, slots=True, eq=False)
class CrossTable:
    """The joint distribution of two answers, among respondents who gave both.

    Attributes:
        ids: of the two questions.
        names: of the values of the first, which are rows, and of the second, which are columns.
        how: `"matched"` or `"joint"`: whether the answers were perturbed separately or jointly.
        raw: unbiased shares of each pair of values; they may be negative, and need not add up to 1.
        standard_error: of each raw share, from noise and sampling.
        interval: lower and upper ends, each with `confidence` individually: of a table of 25 at 95 %, about one misses.
        projected: the nearest shares that are non-negative and add up to 1; of sets, each cut to [0, 1].
        of_row: the shares of the second answer among those who gave the first. NaN where these are too few.
        of_column: the shares of the first answer among those who gave the second.
        rows_raw, columns_raw: raw shares of either answer alone, among those who gave both.
        independence: a test of independence of the two.
        selection: the p value of the difference between groups of equal levels if answers did not affect the choice;
            None if only one group is large enough. A small value is a warning: compare with `weights="people"`.
        poisoning: bounds how far made-up submissions could have moved a raw share.
        people: the number of people at each pair of levels. Publish it only in aggregate (ERR-17).
        weights: the weight of each pair; they depend on public facts alone.
        effective: the number of people at the least private of these levels that would give the same error.
        confidence: of each interval.
        private: False if randomness was seeded.
    """

    ids: tuple[str, str]
    names: tuple[Sequence[str], Sequence[str]]
    how: Literal["matched", "joint"]
    raw: Floats
    standard_error: Floats
    interval: tuple[Floats, Floats]
    projected: Floats
    of_row: Ratio
    of_column: Ratio
    rows_raw: Floats
    columns_raw: Floats
    independence: Independence
    selection: float | None
    poisoning: Poisoning
    people: Mapping[tuple[str, ...], int]
    weights: Mapping[tuple[str, ...], float]
    effective: float
    confidence: float
    private: bool = True

    @property
    def n(self) -> int:
        """The number of people who answered both."""
        return sum(self.people.values())

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per pair of values; None where there are too few people.

        The values are under the names of the questions; of one that is called like a number, under `answer to raw`.
        """
        cells = self._cells()
        taken = set(cells[0][2]) if cells else set()
        one, two = (f"answer to {name}" if name in taken else name for name in self.ids)
        return [{one: first, two: second, **cell} for first, second, cell in cells]

    def _cells(self) -> list[tuple[str, str, dict[str, float | None]]]:
        tables = {
            "raw": self.raw,
            "standard error": self.standard_error,
            "low": self.interval[0],
            "high": self.interval[1],
            "projected": self.projected,
            "of row": self.of_row.value,
            "of row low": self.of_row.low,
            "of row high": self.of_row.high,
            "of column": self.of_column.value,
            "of column low": self.of_column.low,
            "of column high": self.of_column.high,
        }
        return [
            (first, second, {key: _number(part[a, b]) for key, part in tables.items()})
            for a, first in enumerate(self.names[0])
            for b, second in enumerate(self.names[1])
        ]

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON, without the number of people at each level."""
        return {
            "first": self.ids[0],
            "second": self.ids[1],
            "how": self.how,
            "stated": _HOW[self.how],
            "n": self.n,
            "effective": self.effective,
            "confidence": self.confidence,
            "private": self.private,
            "cells": [{**cell, "first": first, "second": second} for first, second, cell in self._cells()],
            "independence": {
                "statistic": self.independence.statistic,
                "freedom": self.independence.freedom,
                "p": self.independence.p,
                "sentence": self.independence.sentence,
            },
            "selection": self.selection,
            "poisoning": {"fakes": self.poisoning.fakes, "up": self.poisoning.up, "down": self.poisoning.down},
        }

    def __str__(self) -> str:
        sure = f"{100 * self.confidence:g} %"
        lines = [f"{self.ids[0]} by {self.ids[1]}: {self.n:,} answered both, {_HOW[self.how]}"]
        cells = [
            [f"{share:.3f} ±{error:.3f}" for share, error in zip(*pair, strict=True)]
            for pair in zip(self.raw, self.standard_error, strict=True)
        ]
        lines += ["  raw shares, ± standard error", *_grid(self.names, cells)]
        of_row = self.of_row
        cells = [
            [_percent(*numbers) for numbers in zip(*part, strict=True)]
            for part in zip(of_row.value, of_row.low, of_row.high, strict=True)
        ]
        lines += [f"  of each row, with its {sure} interval", *_grid(self.names, cells)]
        lines.append(f"  {self.independence.sentence}")
        lines.append(f"  each interval holds with {sure} by itself, not all of them together.")
        if len(self.people) > 1:
            lines.append(f"  as exact as {self.effective:,.0f} people at the least private levels would be")
        if self.selection is not None and self.selection < 0.01:
            lines.append(f"  self-selection p = {self.selection:.3g}: choice of level and answers may be linked.")
        bound = self.poisoning
        up, down, honest = (upper_text(share) for share in (bound.up, bound.down, bound.honest))
        lines.append(
            f"  {bound.fakes:,} made-up submissions could move a raw share up by at most {up} or down by {down}; by "
            f"false answers alone, {honest}."
        )
        if not self.private:
            lines.append("  not private: some randomness was seeded.")
        return "\n".join(lines)


def _number(value: float) -> float | None:
    return None if isnan(value) else float(value)


def _percent(value: float, low: float, high: float) -> str:
    if isnan(value):
        return "too few"
    return f"{100 * value:.0f} % ({' … '.join(percent_limits(low, high, 0))})"


def _grid(names: tuple[Sequence[str], Sequence[str]], cells: list[list[str]]) -> list[str]:
    wide = max(len(name) for name in names[0])
    each = max(*(len(name) for name in names[1]), *(len(cell) for row in cells for cell in row))
    lines = [f"    {'':{wide}}  " + "  ".join(f"{name:>{each}}" for name in names[1])]
    for name, row in zip(names[0], cells, strict=True):
        lines.append(f"    {name:{wide}}  " + "  ".join(f"{cell:>{each}}" for cell in row))
    return lines

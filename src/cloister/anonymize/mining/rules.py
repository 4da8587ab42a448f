"""Association rules A -> B of frequent itemsets, with support, confidence, lift, leverage and conviction.

    support     share of baskets with A and B
    confidence  support / share of baskets with A
    lift        confidence / share of baskets with B; 1 if A and B are independent
    leverage    support - share with A · share with B; 0 if independent
    conviction  (1 - share with B) / (1 - confidence); infinite if the rule always holds

A and B are disjoint, and neither is empty.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cloister.anonymize.mining.itemsets import Itemsets, frequent_itemsets
from cloister.anonymize.mining.transactions import Codes, Transactions, Words, read_baskets
from cloister.privacy.errors import BadInput

__all__ = ["Rule", "Rules", "association_rules", "check_confidence", "recount", "rules_of"]

Floats = NDArray[np.float64]
_WORDS = 1 << 22  # words of one vectorised intersection: 32 MB
METRICS = ("support", "confidence", "lift", "leverage", "conviction")


class Rule(NamedTuple):
    """One rule by the names of its items."""

    antecedent: tuple[str, ...]
    consequent: tuple[str, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.antecedent)} -> {', '.join(self.consequent)}"


@dataclass(frozen=True)
class Rules:
    """Association rules, ordered by falling confidence, then falling support, then items.

    Attributes:
        items: names of the items.
        baskets: number of baskets.
        antecedents, consequents: item codes of each rule, ascending, filled with -1.
        counts: number of baskets with both sides.
        antecedent_counts, consequent_counts: number of baskets with one side.
    """

    items: tuple[str, ...]
    baskets: int
    antecedents: Codes
    consequents: Codes
    counts: Codes
    antecedent_counts: Codes
    consequent_counts: Codes

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[Rule]:
        for left, right in zip(self.antecedents.tolist(), self.consequents.tolist(), strict=True):
            yield Rule(self._names(left), self._names(right))

    def __getitem__(self, index: int) -> Rule:
        return Rule(self._names(self.antecedents[index].tolist()), self._names(self.consequents[index].tolist()))

    def _names(self, codes: list[int]) -> tuple[str, ...]:
        return tuple(self.items[code] for code in codes if code >= 0)

    def take(self, index: Any) -> "Rules":
        """Return the rules at these positions, or where a mask is True."""
        return Rules(
            self.items,
            self.baskets,
            self.antecedents[index],
            self.consequents[index],
            self.counts[index],
            self.antecedent_counts[index],
            self.consequent_counts[index],
        )

    @cached_property
    def support(self) -> Floats:
        """Share of the baskets with both sides."""
        return self.counts / max(self.baskets, 1)

    @cached_property
    def confidence(self) -> Floats:
        """Share of the baskets with the antecedent that have the consequent too."""
        return self.counts / self.antecedent_counts

    @cached_property
    def lift(self) -> Floats:
        """Confidence over the share of the baskets with the consequent."""
        return self.confidence * self.baskets / self.consequent_counts

    @cached_property
    def leverage(self) -> Floats:
        """Support above that of independent sides."""
        return self.support - self.antecedent_counts / self.baskets * (self.consequent_counts / self.baskets)

    @cached_property
    def conviction(self) -> Floats:
        """Expected over observed share of baskets in which the rule fails."""
        failed = 1 - self.confidence
        expected = 1 - self.consequent_counts / max(self.baskets, 1)
        return np.asarray(np.divide(expected, failed, out=np.full(len(self), np.inf), where=failed > 0))

    def keys(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Return each rule as a pair of code tuples, to compare two sets of rules over the same items."""
        sides = (
            [tuple(code for code in row if code >= 0) for row in side.tolist()]
            for side in (self.antecedents, self.consequents)
        )
        return list(zip(*sides, strict=True))

    def membership(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return tables with a row per rule and a column per item: in the antecedent, and in the consequent."""
        tables = []
        for side in (self.antecedents, self.consequents):
            table = np.zeros((len(self), len(self.items) + 1), bool)
            table[np.arange(len(self))[:, None], side] = True  # the filling -1 falls into the last column
            tables.append(table[:, :-1])
        return tables[0], tables[1]

    def to_arrow(self) -> pa.Table:
        """Return a table with both sides as lists, the count and all measures."""
        rules = list(self)
        measures = {name: pa.array(getattr(self, name)) for name in METRICS}
        return pa.table(
            {
                "antecedent": pa.array([rule.antecedent for rule in rules], pa.list_(pa.string())),
                "consequent": pa.array([rule.consequent for rule in rules], pa.list_(pa.string())),
                "count": pa.array(self.counts),
                **measures,
            }
        )

    def to_pandas(self) -> Any:
        """Return the table as a pandas frame."""
        return self.to_arrow().to_pandas()


def check_confidence(min_confidence: float) -> float:
    """Return a confidence; refuse anything but a share above 0 and at most 1."""
    plain = isinstance(min_confidence, int | float) and not isinstance(min_confidence, bool)
    if not plain or not 0 < min_confidence <= 1:
        raise BadInput("min_confidence is a share of the baskets with the antecedent, above 0 and at most 1.")
    return float(min_confidence)


def association_rules(
    rows: Any,
    min_support: float | None = None,
    min_confidence: float = 0.5,
    *,
    consequents: Literal["any", "one"] = "any",
    max_size: int | None = None,
    **form: Any,
) -> Rules:
    """Return all rules of at least this support and confidence.

    Args:
        rows: baskets in any form that `read_baskets` takes, or `Itemsets` mined before.
        min_support: least share of the baskets with both sides; not needed for `Itemsets`.
        min_confidence: least confidence.
        consequents: "any" for right sides of any size, "one" for right sides of one item (as the R package arules).
        max_size: largest number of items of both sides together.

    >>> rules = association_rules([["a", "b"], ["a", "b", "c"], ["a"], ["c"]], 0.5, 0.6)
    >>> [(str(rule), round(float(share), 2)) for rule, share in zip(rules, rules.confidence)]
    [('b -> a', 1.0), ('a -> b', 0.67)]
    """
    least = check_confidence(min_confidence)
    if consequents not in ("any", "one"):
        raise BadInput("consequents is 'any' or 'one'.")
    if isinstance(rows, Itemsets):
        sets = rows
    elif min_support is None:
        raise BadInput("rules need a least support: association_rules(baskets, min_support=0.01).")
    else:
        sets = frequent_itemsets(rows, min_support, max_size=max_size, **form)
    return _sorted(sets, [*_splits(sets, least, consequents == "one")])


_Part = tuple[Codes, Codes, Codes, Codes, Codes]


def _splits(sets: Itemsets, least: float, single: bool) -> Iterator[_Part]:
    """Yield the rules of every size and split, as columns."""
    for size, (level, counts) in enumerate(zip(sets.levels, sets.counts, strict=True), start=1):
        for width in range(1, size):
            if single and size - width > 1:
                continue
            for left in combinations(range(size), width):
                right = [column for column in range(size) if column not in left]
                whole = sets.counts_of(level[:, left])
                kept = counts / whole >= least
                if kept.any():
                    antecedents, consequents = level[kept][:, left], level[kept][:, right]
                    yield antecedents, consequents, counts[kept], whole[kept], sets.counts_of(consequents)


def _sorted(sets: Itemsets, parts: Sequence[_Part]) -> Rules:
    widest = max((len(sets.levels) - 1, 1))
    empty = np.zeros(0, np.int64)
    sides = [
        np.concatenate([np.zeros((0, widest), np.int64), *(_filled(part[side], widest) for part in parts)])
        for side in (0, 1)
    ]
    counts, left, right = (np.concatenate([empty, *(part[column] for part in parts)]) for column in (2, 3, 4))
    keys = (*sides[1].T[::-1], *sides[0].T[::-1], -counts, -(counts / left))
    return Rules(sets.items, sets.baskets, sides[0], sides[1], counts, left, right).take(np.lexsort(keys))


def _filled(codes: Codes, width: int) -> Codes:
    return np.pad(codes, ((0, 0), (0, width - codes.shape[1])), constant_values=-1)


def rules_of(rows: Any, pairs: Iterable[tuple[Iterable[str], Iterable[str]]], **form: Any) -> Rules:
    """Return rules given by name, with their counts in these baskets.

    Args:
        rows: baskets in any form that `read_baskets` takes.
        pairs: (antecedent, consequent) by the names of the items.
    """
    baskets = read_baskets(rows, **form)
    sides = [(baskets.encode(left), baskets.encode(right)) for left, right in pairs]
    if any(not left or not right or set(left) & set(right) for left, right in sides):
        raise BadInput("a rule has items on both sides, and none on both: (['beer'], ['crisps']).")
    widest = max((len(side) for pair in sides for side in pair), default=1)
    tables = [
        np.array([(*pair[side], *[-1] * (widest - len(pair[side]))) for pair in sides], np.int64).reshape(-1, widest)
        for side in (0, 1)
    ]
    return recount(Rules(baskets.items, len(baskets), *tables, *[np.zeros(len(sides), np.int64)] * 3), baskets)


def recount(rules: Rules, baskets: Transactions) -> Rules:
    """Return the same rules with their counts in other baskets over the same items."""
    left, right = (count_common((side, baskets.bits)) for side in (rules.antecedents, rules.consequents))
    both = count_common((rules.antecedents, baskets.bits), (rules.consequents, baskets.bits))
    return Rules(rules.items, len(baskets), rules.antecedents, rules.consequents, both, left, right)


def count_common(*parts: tuple[Codes, Words]) -> Codes:
    """Return, per row of codes, the number of baskets that have all its items; -1 stands for no item.

    Args:
        parts: codes with the bits to look them up in; a basket must have the items of all parts.
    """
    size, words = len(parts[0][0]), max(parts[0][1].shape[1], 1)
    counts, block = np.zeros(size, np.int64), max(_WORDS // words, 1)
    for first in range(0, size, block):
        common = np.full((min(block, size - first), parts[0][1].shape[1]), ~np.uint64(0))
        for codes, bits in parts:
            for column in codes[first : first + block].T:
                given = column >= 0
                common[given] &= bits[column[given]]
        counts[first : first + block] = np.bitwise_count(common).sum(axis=1, dtype=np.int64)
    return counts

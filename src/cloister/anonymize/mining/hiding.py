"""Hide sensitive association rules in baskets that are to be published, with few side effects on other rules.

    result = hide_rules(baskets, [(["beer"], ["crisps"])], min_support=0.01, min_confidence=0.2)
    print(result.report)

A rule is hidden if its support or its confidence is below the miner's thresholds. `distortion` removes items from
baskets (and adds some, to lower a confidence); `blocking` replaces cells by unknown values, so that supports and
confidences become intervals (Saygin, Verykios & Elmagarmid 2001; Verykios et al. 2004).

The search for the changes is in `hiding_search.py`.

Hidden means hidden at these thresholds. Whoever mines with lower ones finds the rule again; this is not differential
privacy, and says nothing about the people behind the baskets.

Falls to: thresholds lower than those it was hidden at; the baskets themselves to `attack.tables.sparse_linkage`.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from cloister.anonymize.mining.hiding_search import Hider, Way, best_search
from cloister.anonymize.mining.itemsets import least_count
from cloister.anonymize.mining.rules import (
    Floats,
    Rule,
    Rules,
    association_rules,
    check_confidence,
    count_common,
    recount,
    rules_of,
)
from cloister.anonymize.mining.transactions import Transactions, read_baskets
from cloister.anonymize.release_file import write_files
from cloister.privacy.errors import BadInput, NotPrivate

__all__ = ["BlockedTransactions", "HiddenRules", "RuleIntervals", "SideEffects", "hide_rules"]

Key = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class SideEffects:
    """Rules and cells that a hiding has changed, found by mining both versions again.

    Attributes:
        sensitive: number of sensitive rules that were valid.
        hidden: sensitive rules that are no longer valid.
        failures: sensitive rules that are still valid.
        others: number of other rules that were valid.
        lost: other rules that are no longer valid.
        ghosts: rules that were not valid and are now. With unknown values: rules whose upper limits are now above the
            thresholds; none becomes certain.
        removed, added: cells of items that were in the basket, and of items that were not.
        changed_baskets: number of baskets with a changed cell.
    """

    sensitive: int
    hidden: tuple[Rule, ...]
    failures: tuple[Rule, ...]
    others: int
    lost: tuple[Rule, ...]
    ghosts: tuple[Rule, ...]
    removed: int
    added: int
    changed_baskets: int

    @property
    def changed_items(self) -> int:
        """Number of changed cells."""
        return self.removed + self.added

    @property
    def lost_share(self) -> float:
        """Lost rules as a share of the other rules."""
        return len(self.lost) / self.others if self.others else 0.0

    def __str__(self) -> str:
        return "\n".join(
            (
                f"hidden           {len(self.hidden)} of {self.sensitive} sensitive rules",
                f"hiding failures  {len(self.failures)}",
                f"lost rules       {len(self.lost)} of {self.others} others ({100 * self.lost_share:.1f} %)",
                f"ghost rules      {len(self.ghosts)}",
                f"changed items    {self.changed_items} ({self.removed} removed, {self.added} added)",
                f"changed baskets  {self.changed_baskets}",
                "Not differentially private: lower thresholds find hidden rules again.",
            )
        )


@dataclass(frozen=True)
class RuleIntervals:
    """Limits of support and confidence of rules in baskets with unknown values.

    Attributes:
        rules: the rules, in order.
        support: (lower, upper) per rule.
        confidence: (lower, upper) per rule. The limits hold for every way to fill the unknown values.
    """

    rules: tuple[Rule, ...]
    support: Floats
    confidence: Floats

    def to_arrow(self) -> pa.Table:
        """Return a table with a row per rule."""
        return pa.table(
            {
                "rule": pa.array([str(rule) for rule in self.rules], pa.string()),
                **{
                    f"{name}_{limit}": pa.array(values[:, column])
                    for name, values in (("support", self.support), ("confidence", self.confidence))
                    for column, limit in enumerate(("low", "high"))
                },
            }
        )

    def to_pandas(self) -> Any:
        """Return the table as a pandas frame."""
        return self.to_arrow().to_pandas()


@dataclass(frozen=True)
class BlockedTransactions:
    """Baskets with unknown values.

    Attributes:
        certain: the items that are known to be in each basket.
        possible: these, and the unknown ones.
    """

    certain: Transactions
    possible: Transactions

    def __len__(self) -> int:
        return len(self.certain)

    @property
    def unknown(self) -> int:
        """Number of unknown cells."""
        return len(self.possible.codes) - len(self.certain.codes)

    def intervals(self, rules: Rules | Iterable[tuple[Iterable[str], Iterable[str]]]) -> RuleIntervals:
        """Return the limits of support and confidence of rules.

        The lowest confidence is z/(z + g): z baskets have both sides for certain, and g may have the antecedent without
        being certain to have the consequent. The highest is Z/(Z + f): Z baskets may have both sides, and f have the
        antecedent for certain and cannot have the consequent. (z over all baskets that may have the antecedent, as
        often stated, is lower than any filling gives, and would take rules for hidden that are still certain.)
        """
        if not isinstance(rules, Rules):
            rules = rules_of(self.certain, rules)
        low, high = recount(rules, self.certain), recount(rules, self.possible)
        certain, possible = self.certain.bits, self.possible.bits
        settled = count_common((rules.antecedents, possible), (rules.consequents, certain))
        open_ = count_common((rules.antecedents, certain), (rules.consequents, possible))
        most = low.counts + high.antecedent_counts - settled
        least = high.counts + low.antecedent_counts - open_
        confidence = np.column_stack([low.counts / np.maximum(most, 1), high.counts / np.maximum(least, 1)])
        support = np.column_stack([low.counts, high.counts]) / max(len(self), 1)
        return RuleIntervals(tuple(rules), support, confidence)

    def to_pandas(self) -> Any:
        """Return a pandas frame with a column per item: `1`, `0`, or `?` where the value is unknown."""
        known, maybe = self.certain.dense(), self.possible.dense()
        cells = np.where(known, "1", np.where(maybe, "?", "0"))
        return pa.table(dict(zip(self.certain.items, map(pa.array, cells.T), strict=True))).to_pandas()


@dataclass(frozen=True)
class HiddenRules:
    """Baskets in which sensitive rules are hidden.

    Attributes:
        baskets: the baskets to publish: `Transactions`, or `BlockedTransactions` with unknown values.
        report: the side effects.
        label: what the release protects.
        sensitive: the rules to hide.
        min_support, min_confidence: the thresholds at which they must not be found.
    """

    baskets: Transactions | BlockedTransactions
    report: SideEffects
    label: str
    sensitive: tuple[Rule, ...] = ()
    min_support: float = 1.0
    min_confidence: float = 1.0

    def to_pandas(self) -> Any:
        """Return the baskets to publish as a pandas frame."""
        return self.baskets.to_pandas()

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the baskets to a new .csv or .parquet file that `read_baskets` reads, or nothing.

        A basket file has a line for each basket; with unknown cells, a column for each item with 1, 0 or ?. The file is
        read back and mined before it takes its name.

        Raises:
            NotPrivate: a sensitive rule is found at the thresholds.
            BadInput: the file cannot be written, or an item has a line break or outer spaces, which a file would lose.
        """
        target = Path(path)
        parquet = target.suffix.lower() == ".parquet"
        if isinstance(self.baskets, BlockedTransactions):
            content: pa.Table | str = pa.Table.from_pandas(self.to_pandas())
        else:
            content = self.baskets.content(parquet=parquet)
        write_files({target: content}, self._confirm, parquet=parquet)

    def _confirm(self, written: Path) -> None:
        found = [str(rule) for rule in self.report.failures]
        if isinstance(self.baskets, Transactions):
            baskets = read_baskets(written)
            if baskets.to_lists() != self.baskets.to_lists():
                raise BadInput("an item has a line break or outer spaces, which a file of baskets loses. Rename it.")
            mined = {str(rule) for rule in association_rules(baskets, self.min_support, self.min_confidence)}
            found = [str(rule) for rule in self.sensitive if str(rule) in mined]
        if found:
            raise NotPrivate(
                f"the baskets were not written: {'; '.join(found[:5])} is still found at support {self.min_support:g} "
                f"and confidence {self.min_confidence:g}. Name fewer rules, or choose the other method."
            )


def hide_rules(
    rows: Any,
    sensitive: Rules | Iterable[tuple[Iterable[str], Iterable[str]]],
    *,
    min_support: float,
    min_confidence: float,
    method: Literal["distortion", "blocking"] = "distortion",
    lower: Way = "either",
    margin: float = 0.0,
    **form: Any,
) -> HiddenRules:
    """Change baskets until the sensitive rules are no longer found at these thresholds.

    Args:
        rows: baskets in any form that `read_baskets` takes.
        sensitive: the rules to hide, as `Rules` or as (antecedent, consequent) by name.
        min_support, min_confidence: the thresholds of the miner.
        method: "distortion" removes and adds items, "blocking" makes cells unknown.
        lower: the measure that is lowered below its threshold, "support" or "confidence", or "either", whichever has
            fewer side effects.
        margin: share of a threshold by which a sensitive rule must be below it, from 0 to less than 1. Other rules
            are reported at the thresholds themselves.

    The same call gives the same baskets: no chance is involved. With blocking and `lower="support"` every unknown cell
    was an item of its basket, which a reader may guess; the report says how many unknown cells were not (`added`).
    """
    if method not in ("distortion", "blocking") or lower not in ("support", "confidence", "either"):
        raise BadInput("method is 'distortion' or 'blocking', and lower is 'support', 'confidence' or 'either'.")
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not 0 <= margin < 1:
        raise BadInput("margin is a share of the thresholds, from 0 to less than 1.")
    baskets = read_baskets(rows, **form)
    check_confidence(min_confidence)
    names = list(sensitive)
    targets = rules_of(baskets, names)
    if not len(targets):
        raise BadInput("no rule is to be hidden. Name at least one: [(['beer'], ['crisps'])].")
    least = least_count(min_support, len(baskets))
    hider = best_search(baskets, targets, least, min_confidence, margin, method == "blocking", lower)
    before = association_rules(baskets, min_support, min_confidence)
    certain = Transactions.of_dense(baskets.items, hider.certain)
    if method == "distortion":
        published: Transactions | BlockedTransactions = certain
        after = set(association_rules(certain, min_support, min_confidence).keys())
        ghosts = after
    else:
        published = BlockedTransactions(certain, Transactions.of_dense(baskets.items, hider.possible))
        after, ghosts = _certain_and_possible(published, before, least, min_support, min_confidence)
    report = _compare(baskets, targets, before.keys(), after, ghosts, hider)
    rules = "1 rule" if len(report.hidden) == 1 else f"{len(report.hidden)} rules"
    label = f"{rules} hidden at support {min_support:g}, confidence {min_confidence:g}"
    return HiddenRules(
        published, report, f"{label}: not differentially private", tuple(targets), min_support, min_confidence
    )


def _certain_and_possible(
    blocked: BlockedTransactions, before: Rules, least: int, min_support: float, min_confidence: float
) -> tuple[set[Key], set[Key]]:
    """Return the rules that are valid however unknown values are filled, and those that may be."""
    limits = blocked.intervals(before)
    certain = (limits.support[:, 0] * len(blocked) > least - 0.5) & (limits.confidence[:, 0] >= min_confidence)
    # Every itemset that may be frequent, in every split; then those whose highest confidence is enough.
    splits = association_rules(blocked.possible, min_support, 1e-12)
    maybe = splits.take(blocked.intervals(splits).confidence[:, 1] >= min_confidence)
    return {key for key, valid in zip(before.keys(), certain, strict=True) if valid}, set(maybe.keys())


def _compare(
    baskets: Transactions, targets: Rules, before: list[Key], after: set[Key], ghosts: set[Key], hider: Hider
) -> SideEffects:

    def rules(keys: Iterable[Key]) -> tuple[Rule, ...]:
        return tuple(Rule(*(tuple(baskets.items[code] for code in side) for side in key)) for key in sorted(keys))

    valid, wanted = set(before), set(targets.keys())
    removed = int((hider.changed & hider.original).sum())
    return SideEffects(
        sensitive=len(valid & wanted),
        hidden=rules((valid & wanted) - after),
        failures=rules(wanted & after),
        others=len(valid - wanted),
        lost=rules(valid - wanted - after),
        ghosts=rules(ghosts - valid - wanted),
        removed=removed,
        added=int(hider.changed.sum()) - removed,
        changed_baskets=int(hider.changed.any(axis=1).sum()),
    )

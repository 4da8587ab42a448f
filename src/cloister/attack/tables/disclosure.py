"""Attribute disclosure from the classes of one release: homogeneity, background knowledge, skewness, similarity.

The attacker knows that a person is in the release and knows the person's class. No row needs to be identified.
Each function takes the quasi-identifiers as they were released; rows with equal values are a class.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from cloister.attack.tables.columns import (
    Classes,
    Contingency,
    Floats,
    Integers,
    as_text,
    classes,
    contingency,
    encode,
    require,
    to_arrow,
)
from cloister.attack.tables.result import TableAttack
from cloister.privacy.errors import BadInput

__all__ = ["background_knowledge", "homogeneity", "similarity", "skewness"]


class _Release:
    """A released table, its classes, and the counts of a sensitive column in them."""

    def __init__(self, released: object, quasi: Sequence[str], sensitive: str, groups: Mapping[Any, Any] | None = None):
        table = to_arrow(released)
        self.quasi = require(table, quasi, "a quasi-identifier")
        require(table, [sensitive], "the sensitive column")
        if sensitive in self.quasi:
            raise BadInput(f"{sensitive!r} is a quasi-identifier and the sensitive column. Give it one role.")
        if not table.num_rows:
            raise BadInput("the release has no rows. Attack a table with at least one.")
        self.sensitive = sensitive
        self.column = table.column(sensitive)
        self.classes: Classes = classes(table, self.quasi)
        codes, domain = encode(self.column)
        cells = domain.to_pylist()
        if groups is not None:
            group_codes, group_domain = encode(pa.array([_group(groups, cell) for cell in cells], pa.string()))
            codes, cells = group_codes[codes], group_domain.to_pylist()
        self.codes: Integers = codes
        self.cells: list[Any] = cells
        self.counts: Contingency = contingency(self.classes.of, codes)
        self.totals = np.bincount(codes, minlength=len(cells))

    @property
    def rows(self) -> int:
        return len(self.codes)

    @property
    def usual(self) -> float:
        """Share of the most frequent value in the whole table."""
        return float(self.totals.max() / self.rows)

    def worst(self, scores: Floats, **facts: Floats) -> dict[str, str]:
        """Return class, value and shares of the pair with the highest score; the largest class among equals."""
        pair = int(np.lexsort((-self.classes.sizes[self.counts.group], -scores))[0])
        number = int(self.counts.group[pair])
        return {
            **self.classes.describe(number),
            self.sensitive: as_text(self.cells[int(self.counts.value[pair])]),
            "rows": str(self.classes.sizes[number]),
            **{name.replace("_", " "): f"{fact[pair]:.0%}" for name, fact in facts.items()},
        }


def _group(groups: Mapping[Any, Any], cell: Any) -> str:
    """Return the group of a value: its label, or the nearest of its ancestors; a value without one is its own group."""
    label = groups.get(cell)
    if label is None or isinstance(label, str):
        return as_text(cell) if label is None else label
    return str(label[0]) if isinstance(label, Sequence) and len(label) else str(label)


def homogeneity(released: object, *, quasi: Sequence[str], sensitive: str, threshold: float = 1.0) -> TableAttack:
    """Guess the most frequent sensitive value of a person's class.

    The risk of a record is the share of that value in its class; 1 means that everyone in the class has it.

    Args:
        released: the published table.
        quasi: the quasi-identifiers.
        sensitive: the sensitive column; NULL is a value of its own.
        threshold: the share from which on the records of a class are at risk.

    >>> table = {"age": ["<30", "<30", ">=30", ">=30"], "ill": ["flu", "TB", "flu", "flu"]}
    >>> homogeneity(table, quasi=["age"], sensitive="ill").risk.tolist()
    [0.5, 0.5, 1.0, 1.0]
    """
    release = _Release(released, quasi, sensitive)
    most, _ = release.counts.largest()
    shares = most / release.classes.sizes
    risk = shares[release.classes.of]
    own = release.counts.count / release.classes.sizes[release.counts.group]
    return TableAttack(
        name=f"homogeneity of {sensitive}",
        attacker="knows that a person is in the release, and the person's class",
        criterion=f"at least {threshold:.0%} of the class have the same {sensitive}",
        risk=risk,
        at_risk=int(np.sum(risk >= threshold)),
        baseline=release.usual,
        worst=release.worst(own, share=own),
        remedies=(
            f"Require at least l values of {sensitive} in every class, none of them frequent (l-diversity).",
            "Merge the classes named here with their neighbours, or suppress their rows.",
        ),
    )


def background_knowledge(
    released: object,
    *,
    quasi: Sequence[str],
    sensitive: str,
    excluded: Sequence[Any] | None = None,
    rules_out: int = 1,
    acquaintances: int = 0,
    threshold: float = 1.0,
) -> TableAttack:
    """Rule sensitive values out by knowledge from elsewhere, and guess among the rest of the class.

    The risk of a record is the posterior probability of its own value v: n(v) / (n - what was ruled out).

    Args:
        released: the published table.
        quasi: the quasi-identifiers.
        sensitive: the sensitive column.
        excluded: values that the attacker knows the person not to have. For a record that has one of them the fact is
            false, and the attacker keeps the class's share. None: the worst case for each record, see `rules_out`.
        rules_out: number of values that the attacker can rule out; the most frequent others in the class.
        acquaintances: number of others in the class whose value the attacker knows; in the worst case none has v.
        threshold: the posterior from which on a record is at risk.

    >>> table = {"age": ["<30"] * 4, "ill": ["heart", "heart", "viral", "viral"]}
    >>> background_knowledge(table, quasi=["age"], sensitive="ill", excluded=["viral"]).risk.tolist()
    [1.0, 1.0, 0.5, 0.5]
    """
    if rules_out < 0 or acquaintances < 0:
        raise BadInput("the attacker rules out, and knows, zero or more; give numbers that are not negative.")
    release = _Release(released, quasi, sensitive)
    counts, sizes = release.counts, release.classes.sizes[release.counts.group]
    if excluded is None:
        removed, knowledge = (
            _largest_others(counts, rules_out),
            f"can rule out {rules_out} of the values of {sensitive}",
        )
    else:
        named = np.isin(counts.value, [i for i, cell in enumerate(release.cells) if cell in {*excluded}])
        sums = np.add.reduceat(np.where(named, counts.count, 0), counts.starts)
        removed = np.where(named, 0, sums[counts.group])
        knowledge = f"knows that the person's {sensitive} is none of {len({*excluded})} values"
    rest = sizes - removed
    if acquaintances:
        knowledge += f", and knows the value of {acquaintances} others in the class"
        rest = np.maximum(rest - acquaintances, counts.count)
    before, after = counts.count / sizes, counts.count / rest
    risk = after[counts.of]
    return TableAttack(
        name=f"background knowledge of {sensitive}",
        attacker=f"knows the person's class, and {knowledge}",
        criterion=f"the posterior probability of the record's own {sensitive} is at least {threshold:.0%}",
        risk=risk,
        at_risk=int(np.sum(risk >= threshold)),
        baseline=float(np.mean(before[counts.of])),
        worst=release.worst(after - before, before=before, after=after),
        remedies=(
            f"Require l values of {sensitive} in every class with l at least {rules_out + 2} (recursive l-diversity).",
            "Merge small classes; each value that can be ruled out then removes a smaller part of the class.",
        ),
    )


def _largest_others(counts: Contingency, number: int) -> Integers:
    """Return for each pair the sum of the `number` largest counts of other values in its class."""
    order = np.lexsort((-counts.count, counts.group))
    starts = counts.starts[counts.group]
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - starts[order]
    running = np.concatenate([[0], np.cumsum(counts.count[order])])
    lengths = np.diff(np.append(counts.starts, len(counts.count)))[counts.group]
    top = running[starts + np.minimum(number, lengths)] - running[starts]
    with_next = running[starts + np.minimum(number + 1, lengths)] - running[starts]
    others: Integers = np.where(rank < number, with_next - counts.count, top).astype(np.int64)
    return others


def skewness(
    released: object,
    *,
    quasi: Sequence[str],
    sensitive: str,
    population: object | None = None,
    ratio: float = 2.0,
    values: Sequence[Any] | None = None,
) -> TableAttack:
    """Compare the share of each sensitive value in a class with its share outside.

    The risk of a record is the share of its own value in its class. It is at risk if that is at least `ratio` times the
    value's share in the whole table, or in a population.

    Args:
        released: the published table.
        quasi: the quasi-identifiers.
        sensitive: the sensitive column.
        population: a table with the sensitive column, or a dict from values to shares. None for the release itself.
        ratio: the smallest ratio of the two shares that counts.
        values: the values whose disclosure harms; None for all.

    >>> table = {"zip": ["a"] * 4 + ["b"] * 4, "ill": ["HIV", "HIV", "flu", "flu"] + ["flu"] * 4}
    >>> skewness(table, quasi=["zip"], sensitive="ill").at_risk
    2
    """
    if ratio <= 1:
        raise BadInput(f"the ratio of posterior and prior is above 1, got {ratio}. Give 2 for twice as likely.")
    release = _Release(released, quasi, sensitive)
    counts = release.counts
    prior = release.totals / release.rows if population is None else _shares(population, sensitive, release.cells)
    posterior = counts.count / release.classes.sizes[counts.group]
    with np.errstate(divide="ignore"):
        lift = posterior / prior[counts.value]
    harms = np.isin(counts.value, [i for i, cell in enumerate(release.cells) if values is None or cell in {*values}])
    risky = harms & (lift >= ratio)
    reference = "whole table" if population is None else "population"
    return TableAttack(
        name=f"skewness of {sensitive}",
        attacker=f"knows the person's class, and the distribution of {sensitive} in the {reference}",
        criterion=f"the record's {sensitive} is {ratio:g} times as frequent in its class as in the {reference}",
        risk=posterior[counts.of],
        at_risk=int(np.sum(risky[counts.of])),
        baseline=float(np.mean(prior[release.codes])),
        worst=release.worst(np.where(harms, lift, 0.0), share=posterior, prior=prior[counts.value]),
        remedies=(
            f"Bound the distance of every class's distribution of {sensitive} from the whole table's (t-closeness).",
            "Bound the ratio for each value (beta-likeness).",
        ),
    )


def _shares(population: object, sensitive: str, cells: Sequence[Any]) -> Floats:
    """Return the share of each value in a population; zero for values that it does not have."""
    if isinstance(population, Mapping) and all(isinstance(share, (int, float)) for share in population.values()):
        total = float(sum(population.values()))
        if total <= 0:
            raise BadInput("the shares of the population add up to zero. Give a positive share for each value.")
        return np.array([float(population.get(cell, 0)) / total for cell in cells])
    table = to_arrow(population)
    require(table, [sensitive], "the sensitive column of the population")
    codes, domain = encode(table.column(sensitive))
    counts = dict(zip(domain.to_pylist(), np.bincount(codes, minlength=len(domain)).tolist(), strict=True))
    return np.array([counts.get(cell, 0) / max(table.num_rows, 1) for cell in cells])


def similarity(
    released: object,
    *,
    quasi: Sequence[str],
    sensitive: str,
    groups: Mapping[Any, Any] | None = None,
    within: float | None = None,
    threshold: float = 1.0,
) -> TableAttack:
    """Conclude from a class with different but similar sensitive values: all cancers, or all low incomes.

    Args:
        released: the published table.
        quasi: the quasi-identifiers.
        sensitive: the sensitive column.
        groups: for each value its group, or the tuple of its ancestors, of which the nearest counts.
        within: for numbers, the width of an interval that counts as one group, as a share of the table's range.
            0.1 unless given.
        threshold: the share of a class in one group from which on its records are at risk.

    >>> table = {"zip": ["a", "a", "b", "b"], "ill": ["melanoma", "basal cell", "flu", "melanoma"]}
    >>> cancers = {"melanoma": "cancer", "basal cell": "cancer"}
    >>> similarity(table, quasi=["zip"], sensitive="ill", groups=cancers).risk.tolist()
    [1.0, 1.0, 0.5, 0.5]
    """
    release = _Release(released, quasi, sensitive, groups)
    remedies = (
        f"Use t-closeness with an ordered or hierarchical distance between values of {sensitive}.",
        "Merge the classes named here with classes of other values.",
    )
    if groups is not None:
        most, _ = release.counts.largest()
        shares = most / release.classes.sizes
        own = release.counts.count / release.classes.sizes[release.counts.group]
        knowledge, criterion = f"groups of {sensitive}", f"belong to one group of {sensitive}"
        usual, worst = release.usual, release.worst(own, share=own)
    else:
        width = 0.1 if within is None else within
        shares, usual, worst = _dense(release, width)
        knowledge, criterion = "the person's class", f"have a {sensitive} within {width:.0%} of the table's range"
    risk = shares[release.classes.of]
    return TableAttack(
        name=f"similarity of {sensitive}",
        attacker=f"knows the person's class, and {knowledge}" if groups is not None else "knows the person's class",
        criterion=f"at least {threshold:.0%} of the class {criterion}",
        risk=risk,
        at_risk=int(np.sum(risk >= threshold)),
        baseline=usual,
        worst=worst,
        remedies=remedies,
    )


def _dense(release: _Release, width: float) -> tuple[Floats, float, dict[str, str]]:
    """Return for each class, and for the table, the largest share in an interval of a width; and the worst class."""
    kind = release.column.type
    if not (pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)):
        raise BadInput(f"{release.sensitive!r} is not a column of numbers. Give `groups`: a group for each value.")
    if not 0 <= width < 1:
        raise BadInput(f"`within` is a share of the range, from 0 to below 1, got {width}.")
    numbers = np.array([np.nan if cell is None else float(cell) for cell in release.cells])[release.codes]
    known = np.flatnonzero(~np.isnan(numbers))
    shares = np.zeros(len(release.classes.sizes))
    if not len(known):
        return shares, 0.0, {}
    low, high = float(numbers[known].min()), float(numbers[known].max())
    scaled = (numbers[known] - low) / ((high - low) or 1.0)
    owner = release.classes.of[known]
    order = np.lexsort((scaled, owner))
    counted, where = _windows(owner[order], scaled[order], width)
    np.maximum.at(shares, owner[order], counted / release.classes.sizes[owner[order]])
    everything, _ = _windows(np.zeros(len(known)), np.sort(scaled), width)
    best = int(np.lexsort((-counted, -(counted / release.classes.sizes[owner[order]])))[0])
    ordered = numbers[known][order]
    worst = {
        **release.classes.describe(int(owner[order][best])),
        release.sensitive: f"{ordered[best]:g} to {ordered[where[best] - 1]:g}",
        "rows": str(release.classes.sizes[owner[order][best]]),
    }
    return shares, float(everything.max() / release.rows), worst


def _windows(owner: Any, scaled: Floats, width: float) -> tuple[Integers, Integers]:
    """Return for each ascending number how many of its class are at most `width` above it, and where they end."""
    position = owner * 3.0 + scaled  # classes are more than a width apart
    ends = np.searchsorted(position, position + width * (1 + 1e-12) + 1e-9, side="right")
    return (ends - np.arange(len(scaled))).astype(np.int64), ends.astype(np.int64)

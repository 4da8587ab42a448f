"""Linkage of a release with a table of known people, on quasi-identifiers.

    print(linkage(release, voters, on=["zip", "birth", "sex"], names="name"))

Values of the release may be generalised (see generalised.py): a person and a row are compatible if every value of the
person is in the set that the row's value stands for. A NULL matches only NULL and `*`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cloister.attack.tables.columns import (
    Classes,
    Floats,
    Integers,
    as_text,
    classes,
    contingency,
    encode,
    require,
    to_arrow,
)
from cloister.attack.tables.generalised import Containment, Hierarchies, containment, unread
from cloister.attack.tables.result import TableAttack, clopper_pearson
from cloister.privacy.errors import BadInput
from cloister.privacy.noise import SYSTEM

__all__ = ["Linkage", "Pairs", "compatible", "correlation", "identification", "linkage"]

_CELLS = 1 << 26  # cells of the compatibility table that are in memory at a time


class Pairs(NamedTuple):
    """Compatible pairs of a class of people and a class of released rows, in the order of the people."""

    people: Integers
    rows: Integers
    notes: tuple[str, ...] = ()  # what could not be read

    def candidates(self, people: Classes, rows: Classes) -> Integers:
        """Return the number of released rows that each class of people may own."""
        return np.bincount(self.people, weights=rows.sizes[self.rows], minlength=len(people.sizes)).astype(np.int64)

    def owners(self, people: Classes, rows: Classes) -> Integers:
        """Return the number of people that each class of rows may belong to."""
        return np.bincount(self.rows, weights=people.sizes[self.people], minlength=len(rows.sizes)).astype(np.int64)


def compatible(rows: Classes, people: Classes, hierarchies: Hierarchies | None = None) -> Pairs:
    """Return the compatible pairs of released classes and classes of people with exact values.

    If each value of a person is in at most one released value of its column (raw values, global recoding), it is a join
    of codes. Else each person is compared with each released class by bits: people * classes * columns / 8 bytes.
    """
    sets = [
        containment(released, known, (hierarchies or {}).get(name))
        for name, released, known in zip(rows.names, rows.values, people.values, strict=True)
    ]
    functions = [columns.as_function() for columns in sets]
    if all(function is not None for function in functions):
        pairs = _joined(rows, people, [function for function in functions if function is not None])
    else:
        pairs = _compared(rows, people, sets)
    return pairs._replace(notes=tuple(unread(rows.names, sets)))


def _joined(rows: Classes, people: Classes, functions: Sequence[Integers]) -> Pairs:
    """Join on the codes of the released values; classes of rows are distinct, so a class of people has one partner."""
    translated = [function[people.codes[:, i]] for i, function in enumerate(functions)]
    fits = np.flatnonzero(np.all([codes >= 0 for codes in translated], axis=0))
    both = np.concatenate([rows.codes, np.column_stack([codes[fits] for codes in translated])])
    names = [str(i) for i in range(both.shape[1])]
    shared = classes(pa.table([pa.array(column) for column in both.T], names=names), names)
    partner = np.full(len(shared.sizes), -1, dtype=np.int64)
    partner[shared.of[: len(rows.sizes)]] = np.arange(len(rows.sizes))
    partners = partner[shared.of[len(rows.sizes) :]]
    return Pairs(fits[partners >= 0], partners[partners >= 0])


def _compared(rows: Classes, people: Classes, sets: Sequence[Containment]) -> Pairs:
    count, step = len(rows.sizes), max(1, _CELLS // max(len(rows.sizes), 1))
    left, right = [], []
    for start in range(0, len(people.sizes), step):
        chunk = people.codes[start : start + step]
        bits: NDArray[np.uint8] | None = None
        for i, column in enumerate(sets):
            chosen, position = np.unique(chunk[:, i], return_inverse=True)
            table = column.matrix(chosen, len(rows.values[i]))[:, rows.codes[:, i]]
            packed = np.packbits(table, axis=1)[position]
            bits = packed if bits is None else bits & packed
        if bits is None:
            break
        person, byte = np.nonzero(bits)
        pair, bit = np.nonzero(np.unpackbits(bits[person, byte][:, None], axis=1))
        left.append(person[pair] + start)
        right.append(np.minimum(byte[pair] * 8 + bit, count - 1))
    empty = np.empty(0, dtype=np.int64)
    return Pairs(np.concatenate([empty, *left]), np.concatenate([empty, *right]))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Linkage(TableAttack):
    """Result of a linkage.

    Attributes:
        on: the columns joined on.
        rows: number of rows of the release.
        candidates: for each person, the number of compatible rows.
        rivals: for each person, the number of people on the list who are compatible with the same rows.
        matched: for each person the released row of a unique match; -1 otherwise. As sensitive as the rows.
        right: number of unique matches that are true; None without the truth.
        names: the names of the people, where given. Neither printed nor part of `to_json()`.
        learned: for each person the sensitive value that all candidates share; None if they differ or were not asked
            for. Neither printed nor part of `to_json()`.
    """

    on: tuple[str, ...]
    rows: int
    candidates: Integers = field(repr=False)
    rivals: Integers = field(repr=False)
    matched: Integers = field(repr=False)
    right: int | None = None
    names: tuple[Any, ...] = field(default=(), repr=False)
    learned: tuple[Any, ...] = field(default=(), repr=False)

    @property
    def unique(self) -> int:
        """Number of people with one compatible row that is compatible with no one else on the list."""
        return int(np.sum(self.matched >= 0))

    @property
    def present(self) -> int:
        """Number of people with at least one compatible row."""
        return int(np.sum(self.candidates > 0))

    def counts(self) -> dict[str, Any]:
        """Return the counts of matches, without names."""
        figures = {"on": ", ".join(self.on), "present": self.present, "unique": self.unique}
        return figures if self.right is None else {**figures, "right": self.right}


class _Joint(NamedTuple):
    """A release and the attacked people, their compatible pairs, and the people on the list for each class of rows."""

    release: pa.Table
    known: pa.Table
    rows: Classes
    people: Classes
    pairs: Pairs
    owners: Integers


def linkage(
    released: object,
    auxiliary: object,
    *,
    on: Sequence[str],
    names: str | None = None,
    truth: str | None = None,
    members: bool = False,
    hierarchies: Hierarchies | None = None,
    sample: int | None = None,
    random_state: int | None = None,
) -> Linkage:
    """Join a release with a table of known people on quasi-identifiers.

    The risk of a person is 1 / max(candidates, rivals): the probability that a compatible row, chosen at random, is the
    person's, if all people on the list are equally likely to own it.

    Args:
        released: the published table; its values may be generalised.
        auxiliary: the identified table, with exact values.
        on: the quasi-identifiers, in both tables.
        names: the column of `auxiliary` with names; kept in the result, not printed.
        truth: a column of both tables with the same id for the same person, by which matches are judged.
        members: True if the attacker knows that the people on the list are in the release; the risk is 1 / candidates.
        hierarchies: for a column, the ancestors of each value.
        sample: attack only that many people of the list, drawn at random; the share at risk then has an interval.
        random_state: seed of that draw; None for the operating system's randomness.

    Raises:
        BadInput: a column is missing.

    >>> voters = {"name": ["Ann", "Bob", "Cem"], "zip": ["13053", "13068", "14850"], "age": [28, 29, 50]}
    >>> release = {"zip": ["130**", "130**", "14850"], "age": ["20-29", "20-29", ">=40"], "ill": ["flu", "flu", "TB"]}
    >>> found = linkage(release, voters, on=["zip", "age"], names="name")
    >>> found.candidates.tolist(), found.matched.tolist(), found.risk.tolist()
    ([2, 2, 1], [-1, -1, 2], [0.5, 0.5, 1.0])
    """
    joint = _joint(released, auxiliary, on, hierarchies, sample, random_state)
    per_class = joint.pairs.candidates(joint.people, joint.rows)
    candidates = per_class[joint.people.of]
    rivals = _rivals(joint)[joint.people.of]
    matched = _matches(joint, per_class, rivals, members=members)
    divisor = candidates if members else np.maximum(candidates, rivals)
    risk = np.where(candidates > 0, 1 / np.maximum(divisor, 1), 0.0)
    unique, right = int(np.sum(matched >= 0)), None
    if truth is not None:
        require(joint.release, [truth], "the truth")
        require(joint.known, [truth], "the truth")
        hits = np.flatnonzero(matched >= 0)
        ids = (
            joint.known.column(truth).take(hits).to_pylist(),
            joint.release.column(truth).take(matched[hits]).to_pylist(),
        )
        right = sum(a == b for a, b in zip(*ids, strict=True))
    return Linkage(
        name="linkage",
        attacker=f"has a list of {len(risk):,} people with {_listed(joint.rows.names)}"
        + (" and knows that they are in the release" if members else ""),
        criterion="one row fits the person, and no one else on the list",
        subject="people",
        risk=risk,
        at_risk=unique,
        baseline=1 / joint.release.num_rows if joint.release.num_rows else 0.0,
        worst=_worst_match(joint, matched),
        remedies=_remedies(joint.rows),
        notes=joint.pairs.notes,
        interval=None if sample is None else clopper_pearson(unique, len(risk)),
        on=joint.rows.names,
        rows=joint.release.num_rows,
        candidates=candidates,
        rivals=rivals,
        matched=matched,
        right=right,
        names=tuple(joint.known.column(*require(joint.known, [names], "names")).to_pylist()) if names else (),
    )


def identification(
    released: object,
    people: object,
    *,
    on: Sequence[str],
    sensitive: str,
    names: str | None = None,
    threshold: float = 1.0,
    hierarchies: Hierarchies | None = None,
) -> Linkage:
    """Look known people up in a release to learn a sensitive value, as an employer does with a medical table.

    The attacker knows that each person is in the release. The risk is the share of the most frequent sensitive value
    among the person's candidates; it can be 1 though no row is identified.

    Args:
        released: the published table; its values may be generalised.
        people: the people looked up, with exact values.
        on: the quasi-identifiers, in both tables.
        sensitive: the column to be learned.
        names: the column of `people` with names; kept in the result, not printed.
        threshold: the risk from which on a person counts as at risk.
        hierarchies: for a column, the ancestors of each value.

    >>> release = {"zip": ["130**"] * 3, "ill": ["flu", "flu", "flu"]}
    >>> print(identification(release, {"zip": ["13053"]}, on=["zip"], sensitive="ill").learned)
    ('flu',)
    """
    joint = _joint(released, people, on, hierarchies)
    require(joint.release, [sensitive], "the sensitive column")
    shares, values = _guesses(joint, sensitive)
    per_class = joint.pairs.candidates(joint.people, joint.rows)
    candidates, risk = per_class[joint.people.of], shares[joint.people.of]
    rivals = _rivals(joint)[joint.people.of]
    codes, domain = encode(joint.release.column(sensitive))
    cells = domain.to_pylist()
    certain = risk >= 1.0
    at_risk = int(np.sum(risk >= threshold))
    usual = np.bincount(codes).max() / len(codes) if len(codes) else 0.0
    return Linkage(
        name=f"identification by {sensitive}",
        attacker=f"knows {len(risk):,} people in the release by {_listed(joint.rows.names)}, and looks them up",
        criterion=f"at least {threshold:.0%} of the rows that fit the person have the same {sensitive}",
        subject="people",
        risk=risk,
        at_risk=at_risk,
        baseline=float(usual),
        worst=_worst_guess(joint, shares, values, cells, sensitive),
        remedies=(
            f"Require several well-represented values of {sensitive} in every class (l-diversity or t-closeness).",
            *_remedies(joint.rows),
        ),
        notes=joint.pairs.notes,
        on=joint.rows.names,
        rows=joint.release.num_rows,
        candidates=candidates,
        rivals=rivals,
        matched=_matches(joint, per_class, rivals, members=True),
        names=tuple(joint.known.column(*require(joint.known, [names], "names")).to_pylist()) if names else (),
        learned=tuple(cells[values[c]] if sure else None for c, sure in zip(joint.people.of, certain, strict=True)),
    )


def correlation(
    first: object,
    second: object,
    *,
    on: Sequence[str],
    learns: str,
    threshold: float = 0.5,
    hierarchies: Hierarchies | None = None,
) -> Linkage:
    """Link two tables without names on common columns, and add a column of the second to the rows of the first.

    Medication and pharmacy visits with a common card number, for instance, yield the district in which most of a
    patient's pharmacies are. The risk of a row is the share of the most frequent value among the linked rows.

    Args:
        first: the table whose rows are enriched; exact values.
        second: the table with the further column; its values may be generalised.
        on: the common columns.
        learns: the column of the second table.
        threshold: the share from which on a row of the first table counts as at risk.
        hierarchies: for a column, the ancestors of each value.
    """
    joint = _joint(second, first, on, hierarchies)
    require(joint.release, [learns], "the learned column")
    shares, values = _guesses(joint, learns)
    per_class = joint.pairs.candidates(joint.people, joint.rows)
    candidates, risk = per_class[joint.people.of], shares[joint.people.of]
    rivals = _rivals(joint)[joint.people.of]
    codes, domain = encode(joint.release.column(learns))
    cells, usual = domain.to_pylist(), (np.bincount(codes).max() / len(codes) if len(codes) else 0.0)
    learned = risk >= threshold
    return Linkage(
        name=f"correlation with {learns}",
        attacker=f"has two tables without names and joins them on {_listed(joint.rows.names)}",
        criterion=f"at least {threshold:.0%} of the linked rows have the same {learns}",
        risk=risk,
        at_risk=int(np.sum(learned)),
        baseline=float(usual),
        worst=_worst_guess(joint, shares, values, cells, learns),
        remedies=(
            "Use different pseudonyms in the two tables, so that their rows cannot be joined.",
            f"Generalise {_listed(joint.rows.names)} in one of the tables.",
        ),
        notes=joint.pairs.notes,
        on=joint.rows.names,
        rows=joint.release.num_rows,
        candidates=candidates,
        rivals=rivals,
        matched=_matches(joint, per_class, rivals, members=False),
        learned=tuple(cells[values[c]] if sure else None for c, sure in zip(joint.people.of, learned, strict=True)),
    )


def _joint(
    released: object,
    auxiliary: object,
    on: Sequence[str],
    hierarchies: Hierarchies | None,
    sample: int | None = None,
    random_state: int | None = None,
) -> _Joint:
    release, known = to_arrow(released), to_arrow(auxiliary)
    columns = require(release, on, "a quasi-identifier")
    require(known, columns, "a quasi-identifier")
    rows, everyone = classes(release, columns), classes(known, columns)
    if sample is None:
        pairs = compatible(rows, everyone, hierarchies)
        return _Joint(release, known, rows, everyone, pairs, pairs.owners(everyone, rows))
    if sample < 1:
        raise BadInput("the sample has at least one person. Leave it out to attack everyone on the list.")
    seed = int.from_bytes(SYSTEM.bytes(32), "little") if random_state is None else random_state
    chosen = np.sort(np.random.default_rng(seed).permutation(known.num_rows)[:sample])
    drawn = known.take(chosen)
    people = classes(drawn, columns)
    pairs = compatible(rows, people, hierarchies)
    reached, owners = np.unique(pairs.rows), np.zeros(len(rows.sizes), dtype=np.int64)
    part = replace(rows, codes=rows.codes[reached], sizes=rows.sizes[reached])
    owners[reached] = compatible(part, everyone, hierarchies).owners(everyone, part)
    return _Joint(release, drawn, rows, people, pairs, owners)


def _rivals(joint: _Joint) -> Integers:
    """Return for each class of people the fewest people on the list who share one of its classes of rows."""
    fewest = np.full(len(joint.people.sizes), np.iinfo(np.int64).max)
    np.minimum.at(fewest, joint.pairs.people, joint.owners[joint.pairs.rows])
    fewest[fewest == np.iinfo(np.int64).max] = 0
    return fewest


def _matches(joint: _Joint, candidates: Integers, rivals: Integers, *, members: bool) -> Integers:
    """Return for each person the only row that fits, if it fits no one else on the list; -1 otherwise."""
    row = np.full(len(joint.rows.sizes), -1, dtype=np.int64)
    row[joint.rows.of] = np.arange(joint.release.num_rows)
    only = np.full(len(joint.people.sizes), -1, dtype=np.int64)
    single = candidates[joint.pairs.people] == 1
    only[joint.pairs.people[single]] = row[joint.pairs.rows[single]]
    matched = only[joint.people.of]
    return matched if members else np.where(rivals == 1, matched, -1)


def _guesses(joint: _Joint, column: str) -> tuple[Floats, Integers]:
    """Return for each class of people the share and the code of the most frequent value among its candidates."""
    codes, domain = encode(joint.release.column(column))
    cells = contingency(joint.rows.of, codes)
    count, width = len(joint.people.sizes), max(len(domain), 1)
    lengths = np.diff(np.append(cells.starts, len(cells.count)))
    repeats = lengths[joint.pairs.rows]
    ends = np.cumsum(repeats)
    cell = np.arange(int(repeats.sum())) - np.repeat(ends - repeats, repeats)
    cell += np.repeat(cells.starts[joint.pairs.rows], repeats)
    person = np.repeat(joint.pairs.people, repeats)
    key, position = np.unique(person * width + cells.value[cell], return_inverse=True)
    totals = np.bincount(position, weights=cells.count[cell], minlength=len(key))
    order = np.lexsort((-totals, key // width))
    owners, first = np.unique(key[order] // width, return_index=True)
    shares, values = np.zeros(count), np.full(count, -1, dtype=np.int64)
    values[owners] = key[order][first] % width
    shares[owners] = totals[order][first] / np.maximum(joint.pairs.candidates(joint.people, joint.rows)[owners], 1)
    return shares, values


def _worst_match(joint: _Joint, matched: Integers) -> dict[str, str]:
    """Return the released values of a unique match; of the smallest class if there is none."""
    hits = matched[matched >= 0]
    if not len(joint.rows.sizes):
        return {}
    number = int(joint.rows.of[hits[0]]) if len(hits) else int(np.argmin(joint.rows.sizes))
    return {**joint.rows.describe(number), "rows": str(joint.rows.sizes[number])}


def _worst_guess(joint: _Joint, shares: Floats, values: Integers, cells: Sequence[Any], column: str) -> dict[str, str]:
    """Return the released class of the surest guess (the largest class among equals), and the guess."""
    if not len(joint.pairs.people):
        return {}
    surest = np.lexsort((-joint.rows.sizes[joint.pairs.rows], -shares[joint.pairs.people]))[0]
    person, number = int(joint.pairs.people[surest]), int(joint.pairs.rows[surest])
    return {**joint.rows.describe(number), column: as_text(cells[values[person]]), "share": f"{shares[person]:.0%}"}


def _remedies(rows: Classes) -> tuple[str, ...]:
    return (
        f"Generalise {_listed(rows.names)}, or suppress the rows of small classes (k-anonymity).",
        "Release fewer of these columns, or a sample of the rows.",
    )


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

"""Values that need more than one table: delta-presence, k-map and m-invariance; and k^m-anonymity of sets.

delta-presence   for each class of the population, the share of its rows that are in the release. A population class
                 without a row in the release has share 0 (Nergiz et al. 2007).
k-map            the smallest number of population rows with the quasi-identifiers of a released class.
m-invariance     every class of every release has at least m rows, all with different sensitive values, and whoever
                 is in several releases is in classes with the same set of values (Xiao and Tao 2007).
k^m              the smallest number of sets that contain a combination of at most m items, over all combinations
                 that occur (Terrovitis et al. 2008).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloister.anonymize.checking.classes import Classes, cells_of, combine, group, without_gaps
from cloister.anonymize.checking.columns import Column, Integers, encode, share_codes
from cloister.anonymize.checking.source import Rows
from cloister.privacy.errors import BadNumber, BadSource

__all__ = ["Invariance", "Presence", "SetSupport", "invariance", "presence", "support_of_sets"]

_MOST_SETS = 50_000_000


@dataclass(frozen=True, slots=True)
class Presence:
    """Shares of population classes in a release.

    Attributes:
        delta_min, delta_max: the smallest and the largest share.
        k_map: the smallest number of population rows with a released combination of quasi-identifiers.
        outside: released rows beyond those of the population with the same values; 0 if it contains the release.
        least, most, rarest: an entry of the population or release that has these values, as values by column.
    """

    delta_min: float
    delta_max: float
    k_map: int
    outside: int
    least: dict[str, str | None]
    most: dict[str, str | None]
    rarest: dict[str, str | None]


def presence(release: Rows, classes: Classes, population: Rows, quasi: Sequence[str]) -> Presence:
    """Compare a release with the population that it was drawn from, generalised in the same way.

    Args:
        release: the rows.
        classes: of the release, exact.
        population: its rows.
        quasi: the quasi-identifiers.
    """
    shared = {name: share_codes([release.columns[name], population.columns[name]]) for name in quasi}
    people = group([pair[1] for pair in shared.values()], population.entries, population.weights)
    # Each class of either table is one entry.
    chosen = classes.an_entry(), people.an_entry()
    both = [
        Column(np.concatenate([c.codes[some] for c, some in zip(pair, chosen, strict=True)]), pair[0].texts, None)
        for pair in shared.values()
    ]
    ids = combine(both, len(classes.sizes) + len(people.sizes))
    count = int(ids.max()) + 1
    released = _sums(ids[: len(classes.sizes)], classes.sizes, count)
    present = _sums(ids[len(classes.sizes) :], people.sizes, count)
    with np.errstate(divide="ignore"):
        share = released / present  # a class that is in neither does not exist
    in_release = np.where(released > 0, present, np.iinfo(np.int64).max)
    deciding = int(np.argmin(share)), int(np.argmax(share)), int(np.argmin(in_release))

    def values(number: int) -> dict[str, str | None]:
        at = int(np.argmax(ids == number))
        return {name: column.text(int(column.codes[at])) for name, column in zip(quasi, both, strict=True)}

    return Presence(
        float(share.min()),
        float(share.max()),
        int(in_release.min()),
        int(np.maximum(released - present, 0).sum()),
        *map(values, deciding),
    )


def _sums(ids: Integers, weights: Integers, count: int) -> Integers:
    sums: Integers = np.bincount(ids, weights=weights, minlength=count).astype(np.int64)
    return sums


@dataclass(frozen=True, slots=True)
class Invariance:
    """m-invariance of a series of releases, for one sensitive column.

    Attributes:
        m: the largest m for which the series is m-invariant; 0 if there is none.
        repeated: classes in which a sensitive value occurs twice.
        smallest: the smallest class of all releases.
        changed: ids in several releases whose classes have different sets of sensitive values.
        fewest_left: the fewest values that remain for an id when the sets of its classes are intersected.
    """

    m: int
    repeated: int
    smallest: int
    changed: int
    fewest_left: int


def invariance(
    releases: Sequence[Rows],
    grouped: Sequence[Classes],
    sensitive: str,
    people: Sequence[Integers],
    null: int | None,
) -> Invariance:
    """Check a series of releases in which people are known by an id. A row without an id is a counterfeit.

    Args:
        releases: in their order.
        grouped: the classes of each release.
        sensitive: the column.
        people: for each release, the ids of its rows as numbers, the same in all releases.
        null: the number of a missing id; None if there is none.
    """
    values = share_codes([release.columns[sensitive] for release in releases])
    class_values: list[tuple[Integers, Integers]] = []
    memberships: list[tuple[Integers, Integers]] = []
    repeated, smallest, classes_before = 0, np.iinfo(np.int64).max, 0
    width = len(values[0].texts)
    for column, person, classes in zip(values, people, grouped, strict=True):
        cells = cells_of(classes, column, None)
        repeated += len(_distinct(cells.classes[cells.counts > 1])[0])
        smallest = min(smallest, int(classes.sizes.min()))
        real = slice(None) if null is None else person != null
        pairs, _ = _distinct(person[real] * len(classes.sizes) + classes.ids[real])
        memberships.append((pairs // len(classes.sizes), pairs % len(classes.sizes) + classes_before))
        class_values.append((cells.classes + classes_before, cells.values))
        classes_before += len(classes.sizes)
    changed, left = _intersections(class_values, memberships, width)
    m = 0 if repeated or changed else smallest
    return Invariance(m, repeated, smallest, changed, left)


def _intersections(
    class_values: Sequence[tuple[Integers, Integers]], memberships: Sequence[tuple[Integers, Integers]], width: int
) -> tuple[int, int]:
    """Return the number of people whose sets of values differ, and the fewest values common to somebody's sets."""
    classes, values = (np.concatenate(some) for some in zip(*class_values, strict=True))
    starts = np.flatnonzero(np.concatenate(([True], classes[1:] != classes[:-1])))
    lengths = np.diff(np.append(starts, len(classes)))
    person, number = (np.concatenate(some) for some in zip(*memberships, strict=True))
    if not len(person):
        return 0, 0
    person, number = _distinct_histories(person, number)
    repeats = lengths[number]
    if repeats.sum() > _MOST_SETS:
        raise BadSource("the classes hold too many values to be intersected. Check fewer releases at a time.")
    owner = np.repeat(person[:, 0], repeats)
    offsets = np.arange(len(owner)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    keys, counts = _distinct(owner * width + values[np.repeat(starts[number], repeats) + offsets])
    owners = keys // width
    histories = int(person[:, 0].max()) + 1
    seen = np.bincount(person[:, 0], minlength=histories)
    union = np.bincount(owners, minlength=histories)
    common = np.bincount(owners[counts == seen[owners]], minlength=histories)
    people = np.zeros(histories, dtype=np.int64)
    people[person[:, 0]] = person[:, 1]
    return int(people[common < union].sum()), int(common.min())


def _distinct_histories(person: Integers, number: Integers) -> tuple[Integers, Integers]:
    """Return one entry for each different list of classes that people are in: (list, people with it), class."""
    span = int(number.max()) + 1
    pairs = np.sort(person * span + number)
    person, number = pairs // span, pairs % span
    starts = np.flatnonzero(np.concatenate(([True], person[1:] != person[:-1])))
    lengths = np.diff(np.append(starts, len(person)))
    lists, count = without_gaps(number[starts], span)
    for place in range(1, int(lengths.max())):
        longer = lengths > place
        following = np.zeros(len(starts), dtype=np.int64)  # 0: the list has ended
        following[longer] = number[starts[longer] + place] + 1
        lists, count = without_gaps(lists * (span + 1) + following, count * (span + 1))
    people = np.bincount(lists)
    first = np.zeros(len(people), dtype=np.int64)
    first[lists[::-1]] = np.arange(len(lists))[::-1]
    repeats = lengths[first]
    owner = np.repeat(np.arange(len(people)), repeats)
    offsets = np.arange(len(owner)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    return np.column_stack((owner, people[owner])), number[np.repeat(starts[first], repeats) + offsets]


def _distinct(keys: Integers) -> tuple[Integers, Integers]:
    """Return the different keys in order, and how often each occurs. Sorting is faster than hashing here."""
    keys = np.sort(keys)
    firsts = np.flatnonzero(np.concatenate((np.ones(min(1, len(keys)), dtype=bool), keys[1:] != keys[:-1])))
    return keys[firsts], np.diff(np.append(firsts, len(keys)))


@dataclass(frozen=True, slots=True)
class SetSupport:
    """k^m-anonymity of a column of sets.

    Attributes:
        k: the smallest number of sets that contain a combination of at most m items that occurs.
        m: the number of items that somebody may know.
        items: the combination that decides, as printed.
        combinations: different combinations that occur.
    """

    k: int
    m: int
    items: tuple[str | None, ...]
    combinations: int


def support_of_sets(name: str, cells: pa.ChunkedArray, m: int) -> SetSupport:
    """Return the smallest support of a combination of at most m items. An item counts once in each set.

    Raises:
        BadSource: the column holds no lists, no item, or too many combinations.
        BadNumber: m is not a positive integer.
    """
    if not (pa.types.is_list(cells.type) or pa.types.is_large_list(cells.type)):
        raise BadSource(f"the column {name:.60} is {cells.type!s:.60}, and items= needs lists. Give lists of items.")
    if isinstance(m, bool) or not isinstance(m, int) or m < 1:
        raise BadNumber("m, the number of items that somebody may know, is a positive integer such as 2.")
    sets = pa.concat_arrays(cells.chunks) if cells.num_chunks else pa.array([], cells.type)
    flat, parents = pa.chunked_array([pc.list_flatten(sets)]), pc.list_parent_indices(sets)
    if not len(flat):
        raise BadSource(f"every set of the column {name:.60} is empty, so there is nothing to check.")
    column = encode(name, flat)
    width = len(column.texts)
    keys, _ = _distinct(parents.to_numpy().astype(np.int64) * width + column.codes)
    baskets, items = keys // width, keys % width
    starts = np.flatnonzero(np.concatenate(([True], baskets[1:] != baskets[:-1])))
    lengths = np.diff(np.append(starts, len(baskets)))
    sizes = zip(*_distinct(lengths), strict=True)
    if sum(int(count) * comb(int(length), size) for length, count in sizes for size in range(1, m + 1)) > _MOST_SETS:
        raise BadSource(f"the sets of {name:.60} have too many combinations of {m} items. Give a smaller m.")
    fewest, deciding, total = np.iinfo(np.int64).max, np.zeros(0, dtype=np.int64), 0
    for size in range(1, m + 1):
        subsets = _subsets(items, starts, lengths, size)
        if not len(subsets):
            break
        ids = combine([Column(subsets[:, i], column.texts, None) for i in range(size)], len(subsets))
        counts = np.bincount(ids)
        total += len(counts)
        if counts.min() < fewest:
            fewest, deciding = int(counts.min()), subsets[int(np.argmax(ids == counts.argmin()))]
    return SetSupport(fewest, m, tuple(column.text(int(item)) for item in deciding), total)


def _subsets(items: Integers, starts: Integers, lengths: Integers, size: int) -> Integers:
    """Return all subsets of a size of all sets, one in each line, in the order of codes."""
    parts = []
    for length in _distinct(lengths[lengths >= size])[0]:
        chosen = np.array(list(combinations(range(int(length)), size)), dtype=np.int64)
        some = starts[lengths == length]
        parts.append(items[some[:, None, None] + chosen[None, :, :]].reshape(-1, size))
    return np.concatenate(parts) if parts else np.zeros((0, size), dtype=np.int64)

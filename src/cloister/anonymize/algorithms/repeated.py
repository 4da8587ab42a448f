"""m-invariance: release a table again and again, so that comparing releases narrows nobody down.

Xiao and Tao (2007). Every class has at least m rows, all with different sensitive values (m-unique). The set of values
of a person's class is the person's signature, and it is the same in every release that the person is in. Whoever
intersects the classes of a person in several releases therefore always has at least m values left.

    first = republish(june, ids="patient", quasi=["age", "zip"], sensitive="disease", m=3)
    second = republish(july, [first], ids="patient", quasi=["age", "zip"], sensitive="disease", m=3)
    second.to_csv("july.csv")            # without ids

Rows with a signature go into the bucket of that signature, buckets are filled up with new rows until every value occurs
equally often, other new rows make buckets of their own, and buckets are split into classes of similar rows. Where no
new row has the value that a bucket lacks, a counterfeit row is added; their number in each class is stated.

Falls to: `attack.tables.background_knowledge`, by whoever can rule values of a signature out.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cloister.anonymize.algorithms.boxes import boxed
from cloister.anonymize.checking.verifier import Checked, check
from cloister.anonymize.coded import Array, CodedColumn, CodedTable
from cloister.anonymize.hierarchy import value_text
from cloister.anonymize.release_file import Claims, readings, refuse_csv, write_files
from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadInput, NotPrivate

__all__ = ["InvariantRelease", "republish"]

Progress = Callable[[float, str], None]
GROUP = "group"


@dataclass(frozen=True)
class InvariantRelease:
    """A release of a series that is m-invariant. Not differentially private.

    Attributes:
        rows: what may be published: quasi-identifiers as intervals and sets, the sensitive column, and the class.
        held_back: the same rows with ids, to be kept for the next release. A counterfeit has no id.
        quasi, sensitive, ids: the roles of columns.
        m: the fewest values of a class.
        counterfeits: number of rows that belong to nobody.
        counterfeits_of: their number by class, for classes that have any; to be published with the rows.
        checked: what the independent verifier says of this and the earlier releases.
    """

    rows: pa.Table
    held_back: pa.Table = field(repr=False)
    quasi: tuple[str, ...]
    sensitive: str
    ids: str
    m: int
    counterfeits: int
    counterfeits_of: dict[int, int]
    checked: Checked = field(repr=False)

    @property
    def label(self) -> str:
        """Return what the series satisfies."""
        return f"m={self.m} ({self.sensitive}, invariant): not differentially private"

    def to_pandas(self) -> Any:
        """Return the rows that may be published as a pandas frame."""
        return self.rows.to_pandas()

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the rows that may be published, or nothing if a reader of the file would take two values for one.

        The series was verified when this was made; the file is verified as it is read.

        Raises:
            NotPrivate: a class of the file, as it is read, has fewer than m different values.
            BadInput: the rows cannot be written as CSV.
        """
        target, claims = Path(path), Claims(self.rows, (), (*self.quasi, GROUP), (self.sensitive,))
        refuse_csv(self.rows, [*self.quasi, self.sensitive])

        def confirm(content: Path) -> None:
            for reading, rows in readings(content, claims, parquet=False):
                if rows.num_rows != self.rows.num_rows or self._fewest(rows) < self.m:
                    raise NotPrivate(
                        f"{target.name} was not written: {reading}, a class has fewer than {self.m} different values "
                        f"of {self.sensitive}. Write these values in another way."
                    )

        write_files({target: self.rows}, confirm)

    def _fewest(self, rows: pa.Table) -> int:
        """Return the fewest values of a class, as the verifier finds them; 0 if a class has a value twice."""
        one_each = rows.append_column(self.ids, pa.array(range(rows.num_rows)))
        quasi, sensitive = [*self.quasi, GROUP], [self.sensitive]
        checked = check(one_each, quasi=quasi, sensitive=sensitive, earlier=[one_each], ids=self.ids)
        return checked.invariance[self.sensitive].m

    def __str__(self) -> str:
        share = self.counterfeits / max(1, self.rows.num_rows)
        return (
            f"{self.label}\n{self.rows.num_rows:,} rows, {self.counterfeits:,} of them counterfeits ({share:.1%})\n"
            "Keep held_back for the next release, and do not publish it."
        )


def republish(
    rows: object,
    previous: Sequence[InvariantRelease] = (),
    *,
    ids: str,
    sensitive: str,
    m: int,
    quasi: Sequence[str],
    progress: Progress | None = None,
) -> InvariantRelease:
    """Release a table so that it is m-invariant together with the earlier releases.

    People may come, go and come back; their quasi-identifiers may change, their sensitive value may not. A NULL is a
    value of its own.

    Args:
        rows: the table as it is now: a pandas or polars frame, an Arrow table, or a dict of lists. One row per id.
        previous: the earlier releases, all of them.
        ids: the column that identifies people. It is not published.
        sensitive: the sensitive column.
        m: the fewest values of a class.
        quasi: the quasi-identifiers.
        progress: called with a share and a sentence.

    Raises:
        BadInput: a column is wrong, an id is missing or twice, a sensitive value changed, or there are fewer than m
            different values.

    >>> june = {"id": [1, 2, 3, 4], "age": [21, 24, 51, 58], "ill": ["flu", "cold", "flu", "cold"]}
    >>> first = republish(june, ids="id", sensitive="ill", m=2, quasi=["age"])
    >>> july = {"id": [1, 3, 4], "age": [21, 51, 58], "ill": ["flu", "flu", "cold"]}
    >>> second = republish(july, [first], ids="id", sensitive="ill", m=2, quasi=["age"])
    >>> second.counterfeits, second.checked.invariance["ill"].m
    (1, 2)
    """
    table = _checked_input(rows, previous, ids, sensitive, m, quasi)
    coded = CodedTable.of(table, quasi)
    values = [_cell(cell) for cell in table.column(sensitive).to_pylist()]
    people = table.column(ids).to_pylist()
    signatures, domain = _history(previous, ids, sensitive)
    domain |= set(values)
    if len(domain) < m:
        raise BadInput(f"{sensitive} has {len(domain)} different values, so m is at most that. Ask for a smaller m.")
    buckets, fresh = _divided(people, values, signatures, sensitive)
    _balanced(buckets, fresh)
    if progress is not None:
        progress(0.3, f"{len(buckets):,} signatures of earlier releases")
    buckets += _assigned(fresh, domain, m)
    places = _positions(list(coded.columns.values()))
    groups = [group for bucket in buckets for group in _split(bucket, places)]
    if progress is not None:
        progress(0.7, f"{len(groups):,} classes")
    return _released(table, coded, groups, previous, ids=ids, sensitive=sensitive, m=m, quasi=tuple(quasi))


def _checked_input(
    rows: object, previous: Sequence[InvariantRelease], ids: str, sensitive: str, m: int, quasi: Sequence[str]
) -> pa.Table:
    if not isinstance(m, int) or isinstance(m, bool) or m < 2:
        raise BadInput("m is a whole number of at least 2.")
    if isinstance(previous, InvariantRelease) or not all(isinstance(earlier, InvariantRelease) for earlier in previous):
        raise BadInput("previous is a list of earlier results of republish. Write previous=[first, second].")
    table = to_arrow(rows)
    names = [*quasi, sensitive, ids]
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise BadInput(f"there is no column {missing[0]}. Columns are: {', '.join(table.column_names)}.")
    if len(set(names)) < len(names) or not quasi or GROUP in names:
        raise BadInput(f"name quasi-identifiers, a sensitive column and ids, each once; none is called {GROUP}.")
    if not table.num_rows:
        raise BadInput("the table has no rows, so there is nothing to release.")
    column = table.column(ids)
    if column.null_count or len(column.unique()) < len(column):
        raise BadInput(f"{ids} must identify every row: no missing ids, and none twice. Keep one row per person.")
    for earlier in previous:
        if (earlier.quasi, earlier.sensitive, earlier.ids) != (tuple(quasi), sensitive, ids) or earlier.m < m:
            raise BadInput("an earlier release has other columns or a smaller m. Use the same ones in a series.")
    return table.select(names)


def _cell(value: Any) -> str | None:
    return None if value is None else value_text(value)


def _history(
    previous: Sequence[InvariantRelease], ids: str, sensitive: str
) -> tuple[dict[Any, frozenset[str | None]], set[str | None]]:
    """Return the signature of everybody in earlier releases, and all sensitive values of these."""
    signatures: dict[Any, frozenset[str | None]] = {}
    domain: set[str | None] = set()
    for earlier in previous:
        members: dict[int, list[str | None]] = defaultdict(list)
        values = [_cell(value) for value in earlier.held_back.column(sensitive).to_pylist()]
        numbers = earlier.held_back.column(GROUP).to_pylist()
        for number, value in zip(numbers, values, strict=True):
            members[number].append(value)
        sets = {number: frozenset(some) for number, some in members.items()}
        people = earlier.held_back.column(ids).to_pylist()
        signatures |= {p: sets[number] for p, number in zip(people, numbers, strict=True) if p is not None}
        domain |= set(values)
    return signatures, domain


Bucket = dict[str | None, list[int]]  # rows by sensitive value; a counterfeit is -1


def _divided(
    people: Sequence[Any],
    values: Sequence[str | None],
    signatures: dict[Any, frozenset[str | None]],
    sensitive: str,
) -> tuple[list[Bucket], Bucket]:
    """Return a bucket for each signature that somebody present has, and the rows of people without one."""
    buckets: dict[frozenset[str | None], Bucket] = {}
    fresh: Bucket = defaultdict(list)
    for row, (person, value) in enumerate(zip(people, values, strict=True)):
        signature = signatures.get(person)
        if signature is None:
            fresh[value].append(row)
        elif value not in signature:
            raise BadInput(
                f"the value of {sensitive} of somebody in an earlier release has changed. m-invariance covers people "
                "who come and go; give a person with a new value a new id only if nobody can link the two."
            )
        else:
            bucket = buckets.setdefault(signature, {name: [] for name in sorted(signature, key=str)})
            bucket[value].append(row)
    return list(buckets.values()), fresh


def _balanced(buckets: Sequence[Bucket], fresh: Bucket) -> None:
    """Fill buckets up until every value occurs equally often: with new rows, else with counterfeits."""
    for bucket in buckets:
        most = max(map(len, bucket.values()))
        for value, members in bucket.items():
            while len(members) < most and fresh.get(value):
                members.append(fresh[value].pop())
            members += [-1] * (most - len(members))


def _assigned(fresh: Bucket, domain: set[str | None], m: int) -> list[Bucket]:
    """Return buckets of at least m values each for all new rows, with counterfeits if one value is too frequent.

    A bucket takes the same number of rows of the most frequent values, as many as leave no value in more than 1/m of
    the rest.
    """
    rest = {value: list(members) for value, members in fresh.items() if members}
    total = sum(map(len, rest.values()))
    most = max(map(len, rest.values()), default=0)
    for _ in range(m * most - total):  # the rarest value each time
        value = min(sorted(domain, key=str), key=lambda name: len(rest.get(name, ())))
        rest.setdefault(value, []).append(-1)
    buckets: list[Bucket] = []
    while rest:
        order = sorted(rest, key=lambda name: (-len(rest[name]), str(name)))
        counts = [*(len(rest[name]) for name in order), 0]
        total = sum(counts)
        width, depth = next(
            (width, depth) for width in range(m, len(order) + 1) if (depth := _depth(counts, total, width, m)) > 0
        )
        buckets.append({name: rest[name][:depth] for name in order[:width]})
        rest = {name: rest[name][depth if name in order[:width] else 0 :] for name in order}
        rest = {name: members for name, members in rest.items() if members}
    return buckets


def _depth(counts: Sequence[int], total: int, width: int, m: int) -> int:
    """Return how many rows of each of the `width` most frequent values can be taken; counts are in falling order."""
    depth = min(counts[width - 1], (total - m * counts[width]) // width)
    return min(depth, (total - m * counts[0]) // (width - m)) if width > m else depth


def _positions(columns: Sequence[CodedColumn]) -> Array:
    """Return the quasi-identifiers as positions relative to their span, one row each."""
    lines = []
    for column in columns:
        places = column.positions
        lines.append((places / ((places[-1] - places[0]) or 1.0))[column.codes])
    return np.stack(lines, axis=1)


def _split(bucket: Bucket, places: Array) -> list[dict[str | None, int]]:
    """Return classes of similar rows with each value of a bucket once.

    The rows of every value are cut at the same rank along the widest quasi-identifier. A counterfeit fits anywhere.
    """
    done, pending = [], [{value: np.array(sorted(members), np.int64) for value, members in bucket.items()}]
    while pending:
        part = pending.pop()
        depth = len(next(iter(part.values())))
        if depth == 1:
            done.append({value: int(members[0]) for value, members in part.items()})
            continue
        real = np.concatenate(list(part.values()))
        real = real[real >= 0]
        axis = int(np.argmax(np.ptp(places[real], axis=0)))
        middle = float(np.median(places[real, axis]))
        ranked = {}
        for value, members in part.items():
            position = np.where(members >= 0, places[members, axis], middle)
            ranked[value] = members[np.argsort(position, kind="stable")]
        pending.append({value: members[: depth // 2] for value, members in ranked.items()})
        pending.append({value: members[depth // 2 :] for value, members in ranked.items()})
    return done


def _released(
    table: pa.Table,
    coded: CodedTable,
    groups: Sequence[dict[str | None, int]],
    previous: Sequence[InvariantRelease],
    *,
    ids: str,
    sensitive: str,
    m: int,
    quasi: tuple[str, ...],
) -> InvariantRelease:
    rows = np.array([row for group in groups for row in group.values()], np.int64)
    words = [value for group in groups for value in group]
    lengths = np.array([len(group) for group in groups])
    real, number = rows >= 0, np.repeat(np.arange(len(groups)), lengths)
    # Classes are numbered in the order of their labels, which does not tell their buckets.
    cells: dict[str, Any] = {}
    for name in quasi:
        column = coded.columns[name]
        box = boxed(CodedColumn(name, column.values, column.codes[rows[real]]), number[real])
        label_of = np.empty(len(groups), np.int64)
        label_of[number[real]] = box.labels
        texts = pa.array([_cell(word) for word in box.words], pa.string())
        cells[name] = texts.take(pa.array(label_of[number]))
    cells[sensitive] = pa.array(words, pa.string())
    owners = pa.array(np.where(real, rows, 0), mask=~real)
    shuffled = pa.table(cells | {"_number": number, ids: table.column(ids).combine_chunks().take(owners)})
    keys = [(name, "ascending") for name in (*quasi, "_number", sensitive)]
    ordered = shuffled.sort_by(keys)
    names = ordered.column("_number").to_numpy()
    group = np.cumsum(np.concatenate([[True], names[1:] != names[:-1]])) - 1
    ordered = ordered.drop_columns(["_number"]).append_column(GROUP, pa.array(group))
    fakes = ordered.column(ids).is_null().to_numpy()
    counts = Counter(group[fakes].tolist())
    earlier = [release.held_back for release in previous]
    checked = check(ordered, quasi=[*quasi, GROUP], sensitive=[sensitive], earlier=earlier or [ordered], ids=ids)
    if checked.invariance[sensitive].m < m:
        raise NotPrivate(
            "the verifier does not confirm m-invariance, and nothing is released. Report this as a defect."
        )
    return InvariantRelease(
        ordered.drop_columns([ids]), ordered, quasi, sensitive, ids, m, int(fakes.sum()), dict(counts), checked
    )

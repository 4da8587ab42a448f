"""Linkage: join names with a release on common columns, as was done with the GIC records in 1997.

    found = link(release, voters, on=["zip", "birth", "sex"], name="name", learns="diagnosis")
    print(found)

The join is `attack.tables.linkage`. A match is unique if one row of the release and one person on the list have the
same values. In a table of real rows that identifies a person. In a synthetic table it is a coincidence: its rows are
not real people, and the learned value is as right as a guess. A demonstration therefore needs the truth: `learns` may
be on the list too, and is then compared.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloister.attack.finding import Finding
from cloister.attack.report.interval import Interval, share
from cloister.attack.tables.matching import Linkage as Joined
from cloister.attack.tables.matching import linkage
from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadInput
from cloister.synth.scoring.rows import source_of

__all__ = ["Linkage", "link"]


@dataclass(frozen=True, slots=True)
class Linkage:
    """Result of a join.

    Attributes:
        on: the columns that were joined on.
        people: number of people on the identified list.
        rows: number of rows in the release.
        found: number of people with at least one row with their values.
        unique: number of people with exactly one, shared with no one else on the list.
        right: number of those unique matches that are true; None if the list does not contain the truth.
        guessed: how often the most frequent value of the release would be right for the same people.
        matches: for each unique match the name and the learned value. As sensitive as the rows.
        joined: the join itself, with the risk of each person.
    """

    on: tuple[str, ...]
    people: int
    rows: int
    found: int
    unique: int
    right: int | None
    guessed: int | None
    matches: tuple[tuple[Any, Any], ...]
    joined: Joined = field(repr=False)

    @property
    def share(self) -> Interval:
        """Return the share of people matched uniquely, with Clopper and Pearson's interval."""
        return share(self.unique, self.people)

    def finding(self, target: str) -> Finding:
        """Return the join as a finding about a table, for a report."""
        found = self.joined.finding(target)
        if self.right is None:
            return found
        told = {"unique matches that tell the truth": self.right, "that a guess would": self.guessed or 0}
        return replace(found, figures={**found.figures, **told})

    def to_json(self) -> dict[str, Any]:
        """Return counts, without names."""
        counts = {name: getattr(self, name) for name in ("people", "rows", "found", "unique", "right", "guessed")}
        return {"on": list(self.on), **counts, "share": self.share.to_json()}

    def __str__(self) -> str:
        lines = [
            f"{self.unique:,} of {self.people:,} people match one row only: {self.share.text(1, percent=True)}",
            f"  joined on     {', '.join(self.on)}",
            f"  found at all  {self.found:,}",
        ]
        if self.right is not None:
            lines.append(f"  of the unique matches {self.right:,} tell the truth; a guess would for {self.guessed:,}")
        return "\n".join(lines)


def link(
    release: Any, identified: Any, on: Sequence[str], *, name: str | None = None, learns: str | None = None
) -> Linkage:
    """Join a release with a list of people.

    Args:
        release: the published table, as Arrow, a frame or a dict of columns.
        identified: the list of people, with the same columns to join on.
        on: the quasi-identifiers. Rows in which one is missing match no one.
        name: the column of the list that names people; their position on the list unless given.
        learns: a column of the release that an attacker wants to know; if the list has it too, it is compared.

    Privacy: none. It reads both tables without noise; the results are for the owner.
    """
    published, people = _table(release), _table(identified)
    wanted = {*on} if learns is None else {*on, learns}
    missing = wanted - {*published.column_names} | ({*on, name} if name else {*on}) - {*people.column_names}
    if not on or missing:
        raise BadInput("name columns that the tables have: `on` in both, `learns` in the release, `name` in the list.")
    kept = published
    for column in on:  # in `attack.tables` a missing value equals a missing one
        kept = kept.filter(pc.is_valid(kept.column(column)))
    joined = linkage(kept, people, on=on)
    unique = np.flatnonzero(joined.matched >= 0)
    learned = kept.column(learns).take(joined.matched[unique]).to_pylist() if learns else [None] * len(unique)
    names = people.column(name).take(unique).to_pylist() if name else unique.tolist()
    right, guessed = None, None
    if learns is not None and learns in people.column_names:
        truth = people.column(learns).take(unique).to_pylist()
        right, guessed = _judged(truth, learned, published.column(learns).to_pylist())
    return Linkage(
        tuple(on),
        people.num_rows,
        published.num_rows,
        joined.present,
        joined.unique,
        right,
        guessed,
        tuple(zip(names, learned, strict=True)),
        joined,
    )


def _judged(truth: Sequence[Any], learned: Sequence[Any], published: Sequence[Any]) -> tuple[int, int]:
    """Count what was learned rightly, and what a guess of the commonest published value gets right."""
    usual = Counter(published).most_common(1)[0][0] if published else None
    right = sum(true == value for true, value in zip(truth, learned, strict=True))
    return right, sum(true == usual for true in truth)


def _table(table: Any) -> pa.Table:
    source = source_of(table)
    if not (isinstance(source, pa.Table) or hasattr(source, "columns")):
        raise BadInput("give tables as Arrow, as frames or as dicts of columns.")
    return to_arrow(source)

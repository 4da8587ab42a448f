"""Anatomy: quasi-identifiers and sensitive values in two tables that share a group number (Xiao and Tao 2006).

Within a group the sensitive values are all different, so that a person whose group is known has each of them with the
same probability, at most 1/l. The values themselves are exact.

Falls to: `attack.tables.background_knowledge`, which rules values of a group out; `attack.tables.linkage` on the exact
quasi-identifiers; `attack.tables.intersection` of two releases.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloister.anonymize.operations.operated import Operated, codes, columns_of, generator
from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadNumber, BadSchema

__all__ = ["Anatomised", "anatomise"]

_NOTE = (
    "The quasi-identifiers are exact, so it is visible that a person is in the table, and in which group. Somebody who "
    "knows that some values of the group are not the person's, or who has another release of the same people, learns "
    "more than 1/l; so does somebody who knows how the sensitive value depends on the quasi-identifiers."
)


@dataclass(frozen=True)
class Anatomised(Operated):
    """Two tables made from rows. `rows` is the table of quasi-identifiers.

    Attributes:
        sensitive_table: group, sensitive value, and count, sorted by group and value.
    """

    sensitive_table: pa.Table

    def join(self) -> pa.Table:
        """Return every pairing that the two tables allow: quasi-identifiers, value, and its probability."""
        group = self.rows.column_names[-1]
        sizes = self.rows.group_by(group).aggregate([([], "count_all")])
        pairs = self.rows.join(self.sensitive_table, group, join_type="inner").join(sizes, group, join_type="inner")
        shares = pc.divide(pairs["count"].cast(pa.float64()), pairs["count_all"].cast(pa.float64()))
        return pairs.drop_columns(["count", "count_all"]).append_column("probability", shares)

    def sensitive_to_pandas(self) -> Any:
        """Return the table of sensitive values as a pandas frame."""
        return self.sensitive_table.to_pandas()


def anatomise(
    rows: object,
    quasi: str | Iterable[str],
    sensitive: str,
    l: int,  # noqa: E741
    *,
    group: str = "group",
    random_state: int | None = None,
) -> Anatomised:
    """Split rows into a table of quasi-identifiers and a table of sensitive values with l-diverse groups.

    Identifiers, and all columns that are neither quasi-identifiers nor sensitive, are dropped. Rows come in random
    order. NULL is a sensitive value of its own.

    With g = ⌊n/l⌋ groups and no value more often than g, rows sorted by value are dealt to the groups in turn: a group
    gets at least l rows, and never the same value twice.

    Args:
        rows: the table.
        quasi: the quasi-identifiers.
        sensitive: the sensitive column.
        l: smallest number of different sensitive values in a group.
        group: name of the new column.
        random_state: a seed for tests and lessons.

    Raises:
        BadNumber: l is below 2, or a value is so frequent that no such groups exist.

    >>> table = {"name": ["John", "Emily"], "zip": ["33617", "33613"], "disease": ["flu", "cold"]}
    >>> result = anatomise(table, "zip", "disease", 2)
    >>> result.rows.column_names, result.sensitive_table.to_pydict()
    (['zip', 'group'], {'group': [0, 0], 'disease': ['cold', 'flu'], 'count': [1, 1]})
    """
    table = to_arrow(rows)
    names = columns_of(table, quasi)
    columns_of(table, sensitive)
    _check(table, names, sensitive, l, group)
    count, rng = table.num_rows, generator(random_state)
    positions, values = codes(table, sensitive)
    # Compared as integers: a value is at most n/l if l times its frequency is at most n.
    if np.bincount(positions).max(initial=0) * l > count:
        raise BadNumber(
            f"the most frequent value of {sensitive} is in more than 1/{l} of the rows, so no groups with l = {l} "
            "exist. Choose a smaller l, or suppress or generalise rows with that value."
        )
    number = count // l
    order = np.lexsort((rng.random(count), rng.permutation(len(values))[positions]))
    groups = np.empty(count, dtype=np.int64)
    groups[order] = rng.permutation(number)[np.arange(count) % number]
    shuffled = pa.array(rng.permutation(count))
    labelled = table.select(list(names)).append_column(group, pa.array(groups)).take(shuffled)
    return Anatomised(
        labelled, _log(table, names, sensitive, number, l), _NOTE, _counts(groups, table, sensitive, group)
    )


def _check(table: pa.Table, names: tuple[str, ...], sensitive: str, least: int, group: str) -> None:
    if isinstance(least, bool) or not isinstance(least, int) or least < 2:
        raise BadNumber("l is a whole number, 2 or more.")
    if sensitive in names:
        raise BadSchema(f"column {sensitive} is either a quasi-identifier or sensitive, not both.")
    added = [group, "count", "count_all", "probability"]
    if len({*added, *names, sensitive}) < len(added) + len(names) + 1:
        raise BadSchema(f"the names {', '.join(added)} are for new columns. Rename the column or the group.")
    if table.num_rows < least:
        raise BadNumber(f"there are fewer than l = {least} rows, so no group can have {least} different values.")


def _log(table: pa.Table, names: tuple[str, ...], sensitive: str, number: int, least: int) -> tuple[str, ...]:
    dropped = [name for name in table.column_names if name not in names and name != sensitive]
    log = [f"Column {name} dropped: {table.num_rows:,} cells." for name in dropped]
    log.append(
        f"Column {sensitive} moved to a table of its own: {table.num_rows:,} cells in {number:,} groups of at least "
        f"{least} different values; quasi-identifiers {', '.join(names)} unchanged."
    )
    return tuple(log)


def _counts(groups: Any, table: pa.Table, sensitive: str, group: str) -> pa.Table:
    pairs = pa.table({group: pa.array(groups), sensitive: table.column(sensitive)})
    counts = (
        pairs.group_by([group, sensitive]).aggregate([([], "count_all")]).rename_columns([group, sensitive, "count"])
    )
    return counts.sort_by([(group, "ascending"), (sensitive, "ascending")])

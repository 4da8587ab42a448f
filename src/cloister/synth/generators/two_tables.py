"""Two tables of the same people, such as patients and visits, with matching keys, under one unit and one charge.

    both = synth.two_tables(ds, parent="patients", child="visits", spend=…)
    both.parents, both.children          # Arrow tables; every child's key is a parent's

    1  a model of the parents' columns and of the number of children of each
    2  a model of the children's columns together with those of their parent, over the join by the unit
    3  parents from the first; for each its number of children, from the second given the parent's columns

Both models are trees of pairs (mst.py), each with half of the spend. Keys are new pseudonyms.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cloister.data.private_data import PrivateData
from cloister.privacy.errors import BadInput
from cloister.privacy.filter import BudgetShare, PrivacyFilter, budget_share, release_steps
from cloister.privacy.loss import Loss
from cloister.privacy.noise import SYSTEM, SeededSource, Source
from cloister.privacy.receipt import Receipt
from cloister.privacy.release import Release
from cloister.synth.domain.axis import Axis, Cells
from cloister.synth.domain.cuts import PrivateCuts
from cloister.synth.domain.dependencies import DependentColumn, learn_decided
from cloister.synth.domain.domain import Domain, check_rows, most_rows
from cloister.synth.generators.mst import tree_steps
from cloister.synth.generators.table_join import NUMBER, read_two
from cloister.synth.measure.marginals import Floats, Measurer, check_noise
from cloister.synth.options import check_progress
from cloister.synth.output.cost import written_epsilon
from cloister.synth.output.request import settings_digest, table_request
from cloister.synth.output.shared_table import PRICE, side_path
from cloister.synth.output.table import SyntheticTable, as_many_as_fit, decoded, unasked_rows
from cloister.synth.run import GeneratorResult, Progress

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TwoTables", "two_tables"]


@dataclass(frozen=True, slots=True)
class TwoTables:
    """Synthetic parents and children.

    Attributes:
        parents, children: rows, each with the key column of its table.
        release: loss, unit, receipt.
        parent_table, joined_table: the two models as synthetic tables: of parents with the number of their children,
            and of children with the columns of their parents.
    """

    parents: "pa.Table"
    children: "pa.Table"
    release: Release
    parent_table: SyntheticTable
    joined_table: SyntheticTable

    @property
    def loss(self) -> Loss:
        """Return the total cost of both tables."""
        return self.release.loss

    @property
    def receipt(self) -> Receipt | None:
        """Return the signed receipt."""
        return self.release.receipt

    @property
    def private(self) -> bool:
        """Return False if the noise came from a seed, which gives no protection."""
        return self.release.private

    @property
    def side(self) -> dict[str, Any]:
        """Return the measurements for both tables, and their total cost."""
        parts = {"parents": self.parent_table.side, "children with their parents": self.joined_table.side}
        measurements = {
            name: {k: v for k, v in part.items() if k not in ("receipt", "settings", *PRICE)}
            for name, part in parts.items()
        }
        return {
            "cloister": "two synthetic tables",
            "private": self.private,
            "loss": self.loss.to_json(),
            **written_epsilon(self.parent_table.asked),
            "unit": str(self.release.unit),
            "neighbours": str(self.loss.relation),
            "rows": {"parents": self.parents.num_rows, "children": self.children.num_rows},
            **measurements,
            "settings": self.release.parameters["settings"],
            "receipt": None if self.receipt is None else json.loads(self.receipt.text()),
        }

    def to_parquet(self, folder: str | os.PathLike[str]) -> Path:
        """Write both tables to a folder, each with a metadata file; return the path of the common metadata file.

        `synth.read_table` reads each of the tables. The stated cost is that of both together.
        """
        import pyarrow.parquet as pq

        directory = Path(folder)
        directory.mkdir(parents=True, exist_ok=True)
        digests = {}
        for synthetic, rows in ((self.parent_table, self.parents), (self.joined_table, self.children)):
            path = directory / f"{synthetic.domain.table}.parquet"
            pq.write_table(rows, path)
            digests[synthetic.domain.table] = hashlib.sha256(path.read_bytes()).hexdigest()
            _write(side_path(path), {**_side_of(synthetic, rows), "sha256": digests[synthetic.domain.table]})
        return _write(directory / f"{'-'.join(digests)}.side.json", {**self.side, "sha256": digests})


def _side_of(synthetic: SyntheticTable, rows: "pa.Table") -> dict[str, Any]:
    """Return the metadata file of one table, restricted to its columns. The first column is the key."""
    side, names = synthetic.side, set(rows.column_names)
    key = {"name": rows.column_names[0], "type": "text", "cells": 1, "pseudonym": True}
    errors = side["expected error"]
    return {
        **side,
        "rows": rows.num_rows,
        "columns": [key, *(column for column in side["columns"] if column["name"] in names)],
        "never": [rule for rule in side["never"] if set(rule) <= names],
        "determines": [
            text
            for text, (left, right) in zip(side["determines"], synthetic.domain.determines, strict=True)
            if {*left, right} <= names
        ],
        "expected error": {
            **errors,
            "marginals": [marginal for marginal in errors["marginals"] if set(marginal["columns"]) <= names],
        },
    }


def _write(path: Path, metadata: Mapping[str, Any]) -> Path:
    path.write_text(json.dumps(metadata, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
    return path


def two_tables(
    ds: PrivateData,
    *,
    parent: str,
    child: str,
    spend: Loss,
    rows: int | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    bins: int | Mapping[str, Any] = 16,
    progress: Progress | None = None,
    random_state: Any = None,
) -> TwoTables:
    """Generate synthetic parents and children with matching keys.

    Args:
        ds: a Cloister dataset whose unit has a column in both tables: the key by which they are joined.
        parent: a table with one row for each unit (`max_rows: 1` in the schema).
        child: a table with several.
        spend: maximum total cost.
        rows: number of parents: a public number; None to estimate it within the spend.
        columns: {table: columns}, for tables of which only some columns are needed.
        bins: equal bins for numbers and dates; or {column: bins or ends of bins}, each for the tables that have it.
        progress, random_state: as in `synth.independent`.

    Privacy: the spend, for the dataset's unit (add/remove), in one charge. A unit has one parent row, so it moves
        marginals of parents and of their numbers of children by 1. It has at most m child rows (`max_rows` of the
        child; the rows of units with more are weighted down), so it moves marginals over the join by m. Children are
        counted by unit in the engine, and never beyond m. Half of the spend goes to each model.
    """
    budget = budget_share(spend, "the synthetic tables", "generators")
    check_progress(progress)
    if isinstance(bins, PrivateCuts):
        raise BadInput("two tables buy no cuts. Give bins as a number, or as {column: bins or ends of bins}.")
    above, beside = read_two(ds, parent, child, {} if columns is None else columns, bins)
    check_rows(above[0], rows)
    _check_children(
        beside[0], child, rows or ds.tables.schema.tables[parent].rows or 1, ds.relation(child, []).rows_each
    )
    for _, relation in (above, beside):
        check_noise(relation, budget.loss)
    source: Source = SYSTEM if random_state is None else SeededSource(str(random_state))
    tell = progress or (lambda share, word: None)
    reader = getattr(ds, "reader", None)
    settings = {parent: list(above[0].names), child: list(beside[0].names), "bins": bins}

    def whole(meter: PrivacyFilter) -> list[tuple[Domain, GeneratorResult, tuple[DependentColumn, ...]]]:
        results = []
        for number, (domain, relation) in enumerate((above, beside)):
            half = BudgetShare(budget.part(Fraction(1, 2)))
            inside, decided = learn_decided(Measurer(domain, relation, meter, half))

            def part(share: float, word: str, start: float = 0.45 * number) -> None:
                tell(start + 0.45 * share, word)

            results.append((domain, tree_steps(inside, part), decided))
        return results

    digest = settings_digest(settings, reader)
    (first, second), receipt = release_steps(
        whole,
        accounts=[ds.account, *([] if reader is None else [reader.account])],
        spend=budget.loss,
        request=table_request("", "two_tables", (), digest),
        unit=ds.tables.schema.unit,
        data_version=ds.version,
        source=source,
    )
    release = Release(
        value=(first[1].model, second[1].model),
        loss=budget.loss,
        unit=ds.tables.schema.unit,
        mechanism=receipt.body["mechanism"],
        parameters={"method": "two_tables", "settings": digest},
        private=source.private,
        receipt=receipt,
    )
    generator = np.random.default_rng(int.from_bytes(source.bytes(32), "little"))
    keys = tuple(str(ds.tables.schema.tables[name].unit) for name in (parent, child))
    tables = _drawn(first, second, release, rows, keys, parent, generator, spend)
    tell(1.0, "done")
    return tables


def _drawn(
    first: tuple[Domain, GeneratorResult, tuple[DependentColumn, ...]],
    second: tuple[Domain, GeneratorResult, tuple[DependentColumn, ...]],
    release: Release,
    rows: int | None,
    keys: tuple[str, ...],
    parent: str,
    generator: np.random.Generator,
    spend: Loss,
) -> TwoTables:
    """Sample rows of both tables. Post-processing: the models are paid for, so as many rows as possible are sampled."""
    import pyarrow as pa

    domain, result, decided = second[0], second[1], tuple(column.settled(generator) for column in second[2])

    def draw(many: int) -> TwoTables:
        above = replace(SyntheticTable.draw_from(*first, release, many, generator), asked=spend)
        above, owners = _with_room(above, most_rows(domain, asked=rows is not None))
        names = pa.array([secrets.token_hex(8) for _ in range(len(above))], pa.string())
        cells = _children(domain, result, first[0], above.cells(), owners, parent, generator)
        joined_rows = decoded(domain, decided, cells, generator)
        child_columns = [name for name in joined_rows.column_names if not name.startswith(f"{parent}.")]
        children = joined_rows.select(child_columns).add_column(0, keys[1], names.take(pa.array(owners)))
        parents = above.to_arrow().drop_columns([NUMBER]).add_column(0, keys[0], names)
        joined = SyntheticTable.draw_from(domain, result, decided, release, len(owners), generator)
        return TwoTables(parents, children, release, above, replace(joined, asked=spend))

    size, cut = unasked_rows(first[0], first[1].model.total) if rows is None else (rows, "")
    both, short = as_many_as_fit(draw, size)
    above = both.parent_table
    return replace(both, parent_table=replace(above, left_out=" ".join(filter(None, [cut, short, above.left_out]))))


def _check_children(domain: Domain, child: str, parents: int, each: int) -> None:
    """Refuse more children than can be sampled at once, before the charge. From public facts only."""
    if parents * each > most_rows(domain):
        raise BadInput(
            f"{parents:,} parents with up to {each:,} rows of {child} each may be {parents * each:,} rows of "
            f"{len(domain.axes)} columns, more than memory holds: {most_rows(domain):,} at most. Ask for fewer rows, "
            f"or lower max_rows of {child} in the schema."
        )


def _with_room(above: SyntheticTable, most: int) -> tuple[SyntheticTable, Cells]:
    """Return the parents whose children can be sampled at once, normally all, and the parent of each child."""
    import pyarrow as pa

    numbers = above.to_arrow()[NUMBER].to_numpy()
    if int(numbers.sum()) > most:
        order = above.generator.permutation(len(above))  # parents are left out at random
        selected = np.sort(order[np.cumsum(numbers[order]) <= most])
        short = (
            f"{len(selected):,} of {len(above):,} parents were kept: all children of all would be more than memory "
            "holds."
        )
        above = replace(above, value=above.to_arrow().take(pa.array(selected)), left_out=short)
        numbers = numbers[selected]
    return above, np.repeat(np.arange(len(above)), numbers)


def _children(
    domain: Domain,
    result: GeneratorResult,
    above: Domain,
    parents: Cells,
    owners: Cells,
    prefix: str,
    generator: np.random.Generator,
) -> Cells:
    """Sample children given their parents: parents equal in what children depend on are handled together."""
    cells = np.zeros((len(owners), len(domain.shape)), dtype=np.int64)
    of_parent = {column: above.names.index(axis.name[len(prefix) + 1 :]) for column, axis in _parental(domain, prefix)}
    # Given a parent, a child depends only on those of its columns that were measured with a child's.
    near = sorted(
        {p for marginal in result.measured if set(marginal.positions) - set(of_parent) for p in marginal.positions}
        & set(of_parent)
    )
    parent_cells = parents[owners][:, [of_parent[column] for column in near]]
    kinds, member = np.unique(parent_cells, axis=0, return_inverse=True)
    for number, kind in enumerate(kinds):
        inside = np.flatnonzero(member.ravel() == number)
        cells[inside] = _alike(domain, result, near, kind, len(inside), generator)
    return cells


def _parental(domain: Domain, prefix: str) -> list[tuple[int, Axis]]:
    return [(column, axis) for column, axis in enumerate(domain.modelled) if axis.name.startswith(f"{prefix}.")]


def _alike(
    domain: Domain, result: GeneratorResult, near: Sequence[int], kind: Cells, rows: int, generator: np.random.Generator
) -> Cells:
    """Sample children of equal parents; relax the condition where the model has no such children."""
    for count in range(len(near), -1, -1):
        given: dict[int, Floats] = {
            column: (np.arange(domain.shape[column]) == cell).astype(np.float64)
            for column, cell in zip(near[:count], kind[:count].tolist(), strict=True)
        }
        try:
            return result.model.draw(rows, generator, given)
        except BadInput:
            continue
    raise BadInput("the model of the children has no rows. Look at never in the schema.")

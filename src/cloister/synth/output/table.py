"""A synthetic table: a Release of synthetic rows, with a metadata file that describes their quality.

table = synth.aim(ds, spend=…)
table.to_pandas()                                # rows; also to_arrow(), rows(), to_parquet(path), to_csv(path)
table.sample(500, given={"ward": "surgery"})     # more rows, under a condition, at no cost
table.count({"ward": "surgery", "age": {"from": 65}})        # a count with an error bar
table.loss, table.receipt                        # as for every release
table.side                                       # measurements with reasons, expected errors
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.privacy.number import Number
from cloister.privacy.release import Release
from cloister.synth.domain.axis import Axis, Cells
from cloister.synth.domain.dependencies import DependentColumn
from cloister.synth.domain.domain import Domain, most_rows
from cloister.synth.measure.marginals import Floats
from cloister.synth.output.cost import cost_text, written_epsilon
from cloister.synth.output.expected_errors import (
    ExpectedError,
    RangeCondition,
    expected_error,
    query_error,
    total_error,
    workload_errors,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from cloister.synth.run import GeneratorResult

__all__ = ["SyntheticTable", "as_many_as_fit", "decoded", "told_by", "unasked_rows"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SyntheticTable(Release):
    """Rows sampled from a released model: `value` is an Arrow table.

    Attributes:
        domain: the public cells of its columns.
        made: the model and its measurements.
        decided: columns determined by others.
        generator: random generator for sampling rows.
        asked: the spend as the caller gave it; the loss is in the measure of the noise.
        left_out: why there are fewer rows than requested or estimated; empty if there are not.

    Privacy: the release's loss. Rows, samples and answers are post-processing of the model and cost nothing more; no
        protection depends on their randomness (numpy's generator, seeded from the operating system).
    """

    domain: Domain
    made: "GeneratorResult"
    decided: tuple[DependentColumn, ...]
    generator: np.random.Generator = field(compare=False)
    asked: Loss | None = None
    left_out: str = ""

    @classmethod
    def draw_from(
        cls,
        domain: Domain,
        made: "GeneratorResult",
        decided: tuple[DependentColumn, ...],
        release: Release,
        rows: int | None,
        generator: np.random.Generator,
    ) -> "SyntheticTable":
        """Sample the rows of a new table from a released model: the given number, or the noisy total.

        The release is already charged: if not all rows can be sampled there are fewer, or none; `left_out` says why.
        """
        settled = tuple(column.settled(generator) for column in decided)
        attributes = {**told_by(release), "value": None}
        return cls(**attributes, domain=domain, made=made, decided=settled, generator=generator).redraw(rows)

    def redraw(self, rows: int | None = None) -> Self:
        """Return the release with newly sampled rows: the given number, or the noisy total. Costs nothing.

        It never fails, as the release is charged: if not all rows can be sampled there are fewer, or none, and
        `left_out` says why.
        """
        size, cut = unasked_rows(self.domain, self.made.model.total) if rows is None else (rows, "")

        def draw(many: int) -> "pa.Table":
            none = np.zeros((0, len(self.domain.shape)), dtype=np.int64)
            cells = self.made.model.draw(many, self.generator) if many else none
            return decoded(self.domain, self.decided, cells, self.generator)

        value, short = as_many_as_fit(draw, size)
        return replace(self, value=value, left_out=" ".join(filter(None, [cut, short])))

    def __len__(self) -> int:
        return int(self.value.num_rows)

    def margin(self, confidence: Number = "0.95") -> Any:
        """Refuse: a table has many numbers, each with its own error."""
        raise TypeError("a table has no one margin: ask .count({…}) or .error([…]), or read the metadata file.")

    def to_arrow(self) -> "pa.Table":
        """Return the rows as an Arrow table."""
        return self.value

    def to_pandas(self) -> Any:
        """Return the rows as a pandas frame."""
        return self.value.to_pandas()

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as dicts."""
        return list(self.value.to_pylist())

    def cells(self) -> Cells:
        """Return the cell of each row and column, as `Domain.encode` does for any table of this domain."""
        return self.domain.encode(self.value)

    def sample(self, rows: int, *, given: Mapping[str, Any] | None = None) -> "pa.Table":
        """Sample more rows, at no cost.

        Args:
            rows: number of rows.
            given: a condition on some modelled columns: a value, a list of values, or {"from": 65, "below": 80}. Rows
                come from the model under that condition, and each of them meets it. A bin that the condition cuts
                counts by the width of its share: the model has no information inside a bin.
        """
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise BadInput("rows is a whole number of at least 1.")
        weights = {
            self._position(name): _likely(self.domain.axis(name), wanted) for name, wanted in (given or {}).items()
        }
        cells = self.made.model.draw(rows, self.generator, weights)
        return decoded(self.domain, self.decided, cells, self.generator, given)

    def count(self, where: Mapping[str, Any] | None = None) -> ExpectedError:
        """Estimate the number of rows of the real table that meet a condition, with its error in rows.

        Without a condition the error is the standard error of the noisy number of rows. Rows are counted as the unit
        allows: where a person has more than `max_rows`, each of theirs counts less, and no error includes this. A bin
        that the condition cuts counts by the width of its share, and the possible error of this is included.

        Args:
            where: as `given` in `sample`.
        """
        conditions = {self._position(name): (self.domain.axis(name), wanted) for name, wanted in (where or {}).items()}
        if not conditions:
            return ExpectedError(self.made.model.total, total_error(self.made))
        positions = tuple(sorted(conditions))
        return query_error(self.made, positions, [RangeCondition.of(*conditions[column]) for column in positions], None)

    def error(self, columns: Sequence[str]) -> ExpectedError:
        """Return the expected distance (half L1, a share of the rows) of these columns from the real table."""
        positions = tuple(sorted(self._position(name) for name in columns))
        return expected_error(self.made, positions, len(self))

    @property
    def side(self) -> dict[str, Any]:
        """Return the metadata: loss, measurements with reasons, expected errors, receipt. Plain values for JSON."""
        return {
            "cloister": "synthetic table",
            "method": self.parameters["method"],
            "table": self.domain.table,
            "rows": len(self),
            **({"rows left out": self.left_out} if self.left_out else {}),
            "private": self.private,
            "loss": self.loss.to_json(),
            **written_epsilon(self.asked),
            "unit": str(self.unit),
            "neighbours": str(self.loss.relation),
            "columns": [
                {"name": axis.name, "type": axis.type, "cells": axis.size, "pseudonym": axis.pseudonym}
                | ({} if axis.ends is None else {"bins end at": list(axis.ends), "nullable": axis.nullable})
                | ({"bins count from": axis.origin} if axis.origin else {})
                for axis in self.domain.axes
            ],
            "never": [{name: _plain(wanted) for name, wanted in rule.items()} for rule in self.domain.never],
            "determines": [f"{', '.join(left)} -> {right}" for left, right in self.domain.determines],
            "estimated rows of the real table": round(self.made.model.total, 1),
            "standard error of the estimated rows": round(total_error(self.made), 3),
            "measured": [
                {
                    "columns": list(self.domain.words(marginal.positions)),
                    "cells": int(marginal.counts.size),
                    "standard error": float(np.mean(marginal.sigma)),
                    "why": marginal.why,
                }
                for marginal in self.made.measured
            ],
            "chosen": list(self.made.chosen),
            "expected error": workload_errors(self.made, self.domain, len(self), self.unit),
            "settings": self.parameters["settings"],
            "receipt": None if self.receipt is None else json.loads(self.receipt.text()),
        }

    def to_parquet(self, path: str | os.PathLike[str]) -> Path:
        """Write the rows and the metadata file (`….side.json`) beside them; return the path of the latter."""
        import pyarrow.parquet as pq

        pq.write_table(self.value, Path(path))
        return self._write_side(Path(path))

    def to_csv(self, path: str | os.PathLike[str]) -> Path:
        """Write the rows as CSV and the metadata file (`….side.json`) beside them; return the path of the latter."""
        import pyarrow.csv

        pyarrow.csv.write_csv(self.value, Path(path))
        return self._write_side(Path(path))

    def _write_side(self, path: Path) -> Path:
        side_file = path.with_name(f"{path.name}.side.json")
        # The hash shows if files were mixed up.
        metadata = {**self.side, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        side_file.write_text(json.dumps(metadata, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
        return side_file

    def _position(self, name: str) -> int:
        self.domain.axis(name)
        if name not in self.domain.positions:
            raise BadInput(f"{name} is a pseudonym, or decided by other columns: ask about those that are modelled.")
        return self.domain.positions[name]

    def _value_text(self, confidence: Number = "0.95") -> str:
        names, method = ", ".join(self.domain.names), self.parameters["method"]
        return f"{len(self):,} synthetic rows of {self.domain.table} by {method}: {names}"

    def _cost_text(self) -> str:
        return cost_text(self.loss, self.asked)

    def __repr__(self) -> str:
        return f"<{self._value_text()}; {self.loss}>"

    def __str__(self) -> str:
        many = len(self.made.measured)
        fewer = f"\n  rows      {self.left_out}" if self.left_out else ""
        return f"{Release.__str__(self)}\n  measured  {many} marginal{'' if many == 1 else 's'}{fewer}"


def unasked_rows(domain: Domain, total: float) -> tuple[int, str]:
    """Return the default number of rows, from a noisy total; and why there are fewer, if so."""
    estimated, most = max(1, round(total)), most_rows(domain, asked=False)
    if estimated <= most:
        return estimated, ""
    return most, f"About {estimated:,} rows were estimated; {most:,} are drawn unless rows is given."


def as_many_as_fit(draw: Callable[[int], T], rows: int) -> tuple[T, str]:
    """Sample the given number of rows, or as many as possible; and return why there are fewer, if so.

    The model is already charged, so no failure here may lose it: the number is halved when memory runs out, and no
    rows are sampled on any other failure.

    Args:
        draw: samples a given number of rows; zero must always be possible.
        rows: requested number.
    """
    many = rows
    while True:
        try:
            drawn = draw(many)
        except MemoryError:
            if not many:
                raise
            many, why = many // 2, "more than memory holds"
        except Exception as error:  # of the model, which is released: reveals nothing about rows
            if not many:
                raise
            many, why = 0, f"not possible: {type(error).__name__}: {error}"
        else:
            return (
                drawn,
                "" if many == rows else f"{many:,} of {rows:,} rows were drawn: {why}. Use .sample() for more.",
            )


def decoded(
    domain: Domain,
    decided: Sequence[DependentColumn],
    cells: Cells,
    generator: np.random.Generator,
    given: Mapping[str, Any] | None = None,
) -> "pa.Table":
    """Convert cells of modelled columns to rows: determined columns are filled in, pseudonyms are new.

    Values match `given`, also inside a bin.
    """
    import pyarrow as pa

    follows = {column.axis.name: column for column in decided}
    columns = {}
    for axis in domain.axes:
        if axis.name in follows:
            columns[axis.name] = follows[axis.name].fill(cells)
        elif axis.pseudonym:
            columns[axis.name] = axis.draw(np.zeros(len(cells), dtype=np.int64), generator)
        else:
            wanted = [given[axis.name]] if given and axis.name in given else None
            columns[axis.name] = axis.draw(cells[:, domain.positions[axis.name]], generator, wanted)
    return pa.table(columns)


def _likely(axis: Axis, wanted: Any) -> Floats:
    """Return relative probabilities of the cells under a condition; single real numbers have no width."""
    weights = axis.weights_of(wanted)
    if axis.type == "real" and not weights.any() and not isinstance(wanted, Mapping):
        weights = axis.cells_of(wanted).astype(np.float64)
    return weights / max(float(weights.max()), 1e-300)


def told_by(release: Release) -> dict[str, Any]:
    """Return all attributes of a release by name, to build an extended one."""
    return {field.name: getattr(release, field.name) for field in fields(release)}


def _plain(wanted: Any) -> Any:
    return list(wanted) if isinstance(wanted, tuple | set | frozenset) else wanted

"""Dry run of a synthesis: what it would measure, its cost and its errors, before any charge or read.

    print(plan(ds, "aim", spend=epsilon(1, delta="1e-9"), rows=30_000))

The generator runs on an empty dataset with a temporary ledger: the steps, their noise and their number are its own,
and every error in a request is reported before a charge. Some generators split their spend by the number of rows. For
these, the dry run assumes the schema's number of rows (else the requested number), with equal counts in every cell.
A generator that selects marginals from what it has measured selects others in a dry run than in the real run, and
fewer: a uniform table has nothing to find.

The unit's id column is in no synthetic table: the rows of one person are not generated together.

Privacy: no row is read: the relation of a dry run has none, and has no reference to any. A plan depends on
    the schema and the request only, and is the same every time.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import pairwise
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from cloister.data.private_data import ColumnFacts, PrivateData
from cloister.privacy.errors import BadInput, LookFailed
from cloister.privacy.filter import budget_share
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import ROW, Loss, Unit
from cloister.synth.domain.domain import Domain, check_rows, read_domain
from cloister.synth.output.cost import cost_text

if TYPE_CHECKING:
    from cloister.synth.measure.marginals import NoisyMarginal
from dataclasses import fields, replace

from numpy.typing import NDArray

from cloister.data.private_table import PrivateTable
from cloister.data.statistics import Sums

__all__ = ["METHODS", "Synthesis", "method_of", "plan", "usual_bins"]


# A dataset without rows, for plans: the same columns, and a public number of rows, equal in every cell.
#
# Privacy: no row can be read through it. It has the columns of the real one, no engine, and a temporary account. The
#     assumed number of rows is given by the caller.


class Rehearsed:
    """Dataset without rows, with a temporary account."""

    def __init__(self, data: PrivateData, account: Account, rows: int) -> None:
        self.account, self.reader, self.version = account, None, ""
        self.schema, self.tables = data.tables.schema, data.tables
        self._data, self._rows = data, rows

    def columns(self, table: str) -> Mapping[str, ColumnFacts]:
        """Return the columns of the dataset."""
        return self._data.columns(table)

    def relation(self, table: str | None, columns: Sequence[str]) -> PrivateTable:
        """Return a relation with the same columns and no rows."""
        source = self._data.relation(table, columns)
        attributes = {field.name: getattr(source, field.name) for field in fields(source)}
        return _NoRows(**{**attributes, "engine": _NoEngine(source.engine.dialect)}, pretended=self._rows)


class _NoEngine:
    """Engine that refuses to run: a dry run that reaches it would read rows."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect

    def run(self, sql: str) -> Any:
        """Refuse to run."""
        raise BadInput("this method reads rows themselves, so there is no plan of it.")


@dataclass(frozen=True, slots=True)
class _NoRows(PrivateTable):
    """Relation without rows. Its counts are made up."""

    pretended: int = 0

    def sums(self, keys: Sequence[Any] = (), values: Sequence[Any] = ()) -> Sums:
        """Return a statement that needs no engine."""
        return _NoSums(self.rows, tuple(keys), tuple(values), self.max_rows, self.copies, self.pretended)


@dataclass(frozen=True, slots=True)
class _NoSums(Sums):
    """Assumed number of rows, spread uniformly over all groups; sums of values are zero."""

    pretended: int = 0

    def run(self, engine: Any) -> list[NDArray[Any]]:
        """Return the number of rows, and the sums."""
        total = self.pretended * self.unit_weight
        counts = np.diff(np.arange(self.cells + 1) * total // self.cells)
        return [counts, *(np.broadcast_to(np.int64(0), (self.cells,)) for _ in self.values)]

    def run_sets(self, engine: Any, sets: Sequence[Sequence[int]]) -> list[list[NDArray[Any]]]:
        """Return the same for each choice of keys."""
        return [replace(self, keys=tuple(self.keys[i] for i in chosen)).run(engine) for chosen in sets]

    def run_occupied(self, engine: Any, sets: Sequence[Sequence[int]]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """Return the groups assumed to be occupied, for each choice of keys."""
        return [self._occupied(math.prod(len(self.keys[i].values) for i in chosen)) for chosen in sets]

    def _occupied(self, cells: int) -> tuple[NDArray[Any], NDArray[Any]]:
        total = self.pretended * self.unit_weight
        if total >= cells:
            return np.arange(cells), np.diff(np.arange(cells + 1) * total // cells)
        return np.arange(self.pretended) * (cells // max(self.pretended, 1)), np.full(self.pretended, self.unit_weight)


# Generators with the common signature, with a description of each.
METHODS: Mapping[str, str] = MappingProxyType(
    {
        "aim": "marginals chosen one after the other, where the model is worst",
        "mst": "a tree of the strongest pairs of columns",
        "privbayes": "a network of columns, each with its parents",
        "mixture": "hidden classes of rows, from all pairs; for many columns of few values",
        "mwem": "one table of all cells, corrected where it is worst; for few columns",
        "mggm": "Gaussians of groups of rows, for numbers",
        "ron_gauss": "a Gaussian of random projections, for numbers",
        "independent": "every column by itself: a floor to compare with",
    }
)
_HALF_MEAN = 0.5 * math.sqrt(2 / math.pi)  # relative to normal noise
_SURE = 1.96
_MOST_LISTED = 200
# These split their spend by the number of rows they find: the stated number is assumed.
_BY_SIZE = ("aim",)
# Where the number of rows is not public. With more rows, parts of the spend are smaller: no run has more noise.
_MANY_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class Synthesis:
    """A planned synthesis.

    Attributes:
        method: the generator.
        domain: the public cells of the columns.
        unit: the privacy unit.
        loss: the cost in the measure of the noise: a pure epsilon or a rho.
        rows: number of rows requested; None: a noisy count determines it.
        size: assumed number of rows of the real table, for errors: from the schema, or `rows`; None: unknown.
        measured: the marginals of the dry run, with their noise.
        chosen: number of these that were selected from the data (in the real run: privately).
        noise: names of the mechanisms.
        steps: number of steps.
        asked: the spend as given.
    """

    method: str
    domain: Domain
    unit: Unit
    loss: Loss
    rows: int | None
    size: int | None
    measured: tuple["NoisyMarginal", ...]
    chosen: int
    noise: tuple[str, ...]
    steps: int
    asked: Loss | None = None

    def errors(self) -> list[tuple[str, str]]:
        """Return each column and each selected marginal with the error that noise alone gives its counts.

        For a column this is half the L1 distance to the real table: no count over its cells has a larger expected
        error. Cells too light to be distinguished from noise are merged, so a run can do better than this.
        """
        rows = []
        single, several = self._parts()
        for column, axis in enumerate(self.domain.modelled if single else ()):
            size = min(_largest(marginal) for marginal in single if marginal.positions == (column,))
            rows.append((f"{axis.name}, {axis.size} cells", self._share(size, axis.size)))
        if several:
            worst = max(map(_largest, several))
            share = "" if self.size is None else f", {100 * _SURE * worst / self.size:.2g} % of them all"
            word = "chosen marginal" if self.chosen else "marginal of several columns"
            rows.append((f"one cell of a {word}", f"± {_SURE * worst:,.3g} rows{share}"))
        return rows[:_MOST_LISTED]

    def notes(self) -> list[str]:
        """Return caveats."""
        caveats = []
        if self.size is None:
            caveats.append("How large errors are as a share depends on the number of rows, which is not public here.")
        else:
            caveats.append(f"Errors are those of the noise alone, if the table has {self.size:,} rows.")
        if not self.measured:
            caveats = ["It measures means and products, not counts: what that does to counts is told with the table."]
        elif self.chosen:
            caveats.append(
                "What is measured beside single columns is chosen privately as it goes; a rehearsal cannot say."
            )
        elif len(self.domain.modelled) > 1 and not self._parts()[1]:
            caveats.append("No relation between columns is measured, and none will be in the table.")
        if self.domain.determines:
            caveats.append("Columns that others decide are learnt for a small part of the spend, and then always hold.")
        if self.unit != ROW:
            caveats.append(
                f"No column will say which {self.unit.name} a row is of: rows of the same one are not made together. "
                "Who has more rows than may count has each counted less, which is in no error."
            )
        return caveats

    def lines(self) -> list[str]:
        """Return the plan as lines of text."""
        cells = ", ".join(
            f"{axis.name} ({'fresh pseudonyms' if axis.pseudonym else f'{axis.size} cells'})"
            for axis in self.domain.axes
        )
        many = f"{self.rows:,}" if self.rows is not None else "as many as a noisy count says"
        single, several = self._parts()
        rows = [
            ("synthesise", f"{self.domain.table} by {self.method}: {METHODS[self.method]}"),
            ("columns", cells),
            ("rows", many),
            ("protects", str(self.unit)),
            ("cost", cost_text(self.loss, self.asked)),
        ]
        if single:
            rows.append(("measures", f"{len(self.domain.modelled)} columns by themselves, {_noise(single)}"))
        if several:
            least = "at least " if self.method in _BY_SIZE else ""
            word = "chosen marginals" if self.chosen else "marginals of several columns"
            rows.append(("" if single else "measures", f"{least}{len(several)} {word}, {_noise(several)}"))
        rows.append(("noise", f"{', '.join(self.noise)}, in {self.steps} steps under one charge"))
        return [f"{word:<12}{text}".rstrip() for word, text in rows]

    def __str__(self) -> str:
        width = max((len(text) for text, _ in self.errors()), default=0)
        errors = [f"  {text:<{width}}  {error}" for text, error in self.errors()]
        section = ["expected error of counts", *errors, ""] if errors else []
        return "\n".join([*self.lines(), "", *section, *self.notes()])

    def _parts(self) -> tuple[list["NoisyMarginal"], list["NoisyMarginal"]]:
        """Return the one-way marginals, if they are measured, and the rest."""
        single = [marginal for marginal in self.measured if len(marginal.positions) == 1]
        if {marginal.positions for marginal in single} != {(column,) for column in range(len(self.domain.modelled))}:
            return [], list(self.measured)
        return single, [marginal for marginal in self.measured if len(marginal.positions) > 1]

    def _share(self, sigma: float, cells: int) -> str:
        rows = _HALF_MEAN * sigma * cells
        if self.size is None:
            return f"up to {rows:,.3g} rows"
        return f"up to {100 * min(1.0, rows / self.size):.2g} % of the rows"


def plan(
    data: PrivateData,
    method: str,
    *,
    spend: Loss,
    rows: int | None = None,
    columns: Sequence[str] | None = None,
    table: str | None = None,
    bins: Any = None,
    **own: Any,
) -> Synthesis:
    """Plan a synthesis: its cost and its measurements. Costs nothing and reads nothing.

    Args:
        data: a Cloister dataset.
        method: a generator, one of `METHODS`.
        spend, rows, columns, table, bins: as for the generator; its defaults unless given.
        own: options of that generator only, such as a workload or a label.

    Privacy: no loss; see the module docstring.
    """
    make = method_of(method)
    budget = budget_share(spend, "the synthetic table", "generators")
    bins = usual_bins(method) if bins is None else bins
    domain, _ = read_domain(data, table=table, columns=columns, bins=bins)
    check_rows(domain, rows)
    data.account.price(budget.loss)  # a pure account cannot pay in rho: report this before anything else is checked
    size = data.tables.schema.tables[domain.table].rows or rows
    pretended = (size or _MANY_ROWS) if method in _BY_SIZE else 0
    # Numbers may overflow where there is nothing to find: a dry run is about steps, not about its model.
    quiet = np.errstate(all="ignore")
    with quiet, TemporaryDirectory(prefix="cloister-plan-") as folder, Ledger.in_folder(folder) as book:
        empty = Rehearsed(data, book.open_account("rehearsal", budget.loss), pretended)
        try:
            synthetic = make(
                empty,
                spend=budget.loss,
                rows=1,
                columns=list(domain.names),
                table=domain.table,
                bins=bins,
                random_state="rehearsal",
                **{**_shorter(method, domain), **own},
            )
        except LookFailed as failure:  # without rows there is nothing to protect
            raise BadInput(f"this synthesis cannot be carried out: {failure.owner_detail}") from None
    steps = synthetic.receipt.body["parameters"]
    return Synthesis(
        method,
        domain,
        data.tables.schema.unit,
        budget.loss,
        rows,
        size,
        tuple(synthetic.made.measured),
        len(synthetic.made.chosen),
        tuple(dict.fromkeys(step["mechanism"] for step in steps)),
        sum(int(step["times"]) for step in steps),
        spend,
    )


def method_of(name: str) -> Any:
    """Return a generator by its name."""
    from cloister import synth

    if not isinstance(name, str) or name not in METHODS:
        raise BadInput(f"there is no method {name!r:.40}. There are: {', '.join(METHODS)}.")
    return getattr(synth, name)


def usual_bins(name: str) -> int:
    """Return a generator's default number of bins for numbers and dates."""
    return int(signature(method_of(name)).parameters["bins"].default)


def _shorter(method: str, domain: Domain) -> dict[str, Any]:
    """Reduce work that does not change the steps or their noise: fewer candidates, fewer fits."""
    if method == "mixture":
        return {"fits": 1}
    names = [axis.name for axis in domain.modelled]
    return {"workload": list(pairwise(names))} if method == "aim" and len(names) > 1 else {}


def _largest(marginal: "NoisyMarginal") -> float:
    return float(np.max(marginal.sigma))


def _noise(measured: Sequence["NoisyMarginal"]) -> str:
    sizes = sorted(map(_largest, measured))
    low, high = f"{sizes[0]:,.3g}", f"{sizes[-1]:,.3g}"
    return f"noise of {low} rows a cell" if low == high else f"noise of {low} to {high} rows a cell"

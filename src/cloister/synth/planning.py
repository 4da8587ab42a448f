"""What a synthesis would measure, cost and get wrong, before anything is charged or read.

    print(plan(ds, "aim", spend=epsilon(1, delta="1e-9"), rows=30_000))

The generator is carried out on nobody, with a ledger that is thrown away: so the steps, their noise and their number
are its own, and whatever is wrong with a request is told before a charge. For a generator that shares out its spend by
the number of rows, as many are pretended as the schema says there are (else as are asked for), the same in every cell.
Where a generator chooses what to measure by what it has seen, a rehearsal chooses otherwise than the real run will, and
less: in an even table there is nothing to find.

The column that says whose a row is (the unit's id) is in no synthetic table: rows of one person are not made together.

Privacy: no row is read: the relation behind a rehearsal has none, and does not know where any are. A plan depends on
    the schema and the request alone, and is the same every time.
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

from cloister.privacy.budget_split import budget_share
from cloister.privacy.errors import BadInput, LookFailed
from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.unit import ROW, Unit
from cloister.synth.domain.domain import Domain, check_rows, read_domain
from cloister.synth.output.cost import cost_text

if TYPE_CHECKING:
    from cloister.synth.measure.marginals import NoisyMarginal
from dataclasses import fields, replace

from numpy.typing import NDArray

from cloister.data.private_table import PrivateTable
from cloister.data.statistics import Sums

__all__ = ["METHODS", "Synthesis", "method_of", "plan", "usual_bins"]


# A dataset without anybody in it, for plans: the same columns, and a public number of rows, the same in every cell.
#
# Privacy: no row can be read through it. It knows the columns of the real one, has no engine, and pays from an account
#     that is thrown away. How many rows it pretends to have is the caller's word.


class Rehearsed:
    """A dataset without anybody in it, whose account is thrown away."""

    def __init__(self, data: Any, account: Any, rows: int) -> None:
        self.account, self.reader, self.version = account, None, ""
        self.schema, self.tables = data.schema, data.tables
        self._data, self._rows = data, rows

    def columns(self, table: str) -> Any:
        """As the dataset has them."""
        return self._data.columns(table)

    def relation(self, table: str | None, columns: Sequence[str]) -> PrivateTable:
        """The same columns, and nobody's rows."""
        found = self._data.relation(table, columns)
        known = {one.name: getattr(found, one.name) for one in fields(found)}
        return _NoRows(**{**known, "engine": _NoEngine(found.engine.dialect)}, pretended=self._rows)


class _NoEngine:
    """Runs nothing: a rehearsal that gets this far would read rows."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect

    def run(self, sql: str) -> Any:
        """Never."""
        raise BadInput("this method reads rows themselves, so there is no plan of it.")


@dataclass(frozen=True, slots=True)
class _NoRows(PrivateTable):
    """A relation that nobody is in. Its counts are made up."""

    pretended: int = 0

    def sums(self, keys: Sequence[Any] = (), values: Sequence[Any] = ()) -> Sums:
        """A statement that needs no engine."""
        return _NoSums(self.rows, tuple(keys), tuple(values), self.max_rows, self.copies, self.pretended)


@dataclass(frozen=True, slots=True)
class _NoSums(Sums):
    """As many rows as are pretended, spread alike over all groups; sums of values are nought."""

    pretended: int = 0

    def run(self, engine: Any) -> list[NDArray[Any]]:
        """The number of rows, and the sums."""
        total = self.pretended * self.unit_weight
        counts = np.diff(np.arange(self.cells + 1) * total // self.cells)
        return [counts, *(np.broadcast_to(np.int64(0), (self.cells,)) for _ in self.values)]

    def run_sets(self, engine: Any, sets: Sequence[Sequence[int]]) -> list[list[NDArray[Any]]]:
        """The same for each choice of keys."""
        return [replace(self, keys=tuple(self.keys[i] for i in one)).run(engine) for one in sets]

    def run_occupied(self, engine: Any, sets: Sequence[Sequence[int]]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """The groups that somebody is pretended to be in, for each choice of keys."""
        return [self._occupied(math.prod(len(self.keys[i].values) for i in one)) for one in sets]

    def _occupied(self, cells: int) -> tuple[NDArray[Any], NDArray[Any]]:
        total = self.pretended * self.unit_weight
        if total >= cells:
            return np.arange(cells), np.diff(np.arange(cells + 1) * total // cells)
        return np.arange(self.pretended) * (cells // max(self.pretended, 1)), np.full(self.pretended, self.unit_weight)


# Generators with the one signature, and what each does.
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
_HALF_MEAN = 0.5 * math.sqrt(2 / math.pi)  # of the size of normal noise
_SURE = 1.96
_MOST_LISTED = 200
# These share out their spend by the number of rows that they find: as many are pretended as there are said to be.
_BY_SIZE = ("aim",)
# Where the number of rows is not public. The more rows, the smaller the parts of the spend: no run has more noise.
_MANY_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class Synthesis:
    """A planned synthesis.

    Attributes:
        method: the generator.
        domain: the public cells of the columns.
        unit: whom it protects.
        loss: what it costs, as the noise needs it: a pure epsilon or a rho.
        rows: how many are asked for; None: as many as a noisy count says.
        size: how many rows the real table is taken to have, for errors: the schema's word, or `rows`; None: unknown.
        measured: the marginals of the rehearsal, with the noise they get.
        chosen: how many of these were chosen by looking (in the real run: privately).
        noise: the mechanisms, by name.
        steps: how many steps there were.
        asked: the spend as it was given.
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
        """Each column, and marginals that are chosen, with the error that noise alone gives their counts.

        For a column it is half the L1 distance to the real table: no count over its cells is expected to be further
        off. Cells too light to be told from noise are taken together, so a run can do better than this.
        """
        found = []
        single, several = self._parts()
        for place, axis in enumerate(self.domain.modelled if single else ()):
            size = min(_largest(one) for one in single if one.places == (place,))
            found.append((f"{axis.name}, {axis.size} cells", self._share(size, axis.size)))
        if several:
            worst = max(map(_largest, several))
            share = "" if self.size is None else f", {100 * _SURE * worst / self.size:.2g} % of them all"
            word = "chosen marginal" if self.chosen else "marginal of several columns"
            found.append((f"one cell of a {word}", f"± {_SURE * worst:,.3g} rows{share}"))
        return found[:_MOST_LISTED]

    def notes(self) -> list[str]:
        """What to keep in mind."""
        said = []
        if self.size is None:
            said.append("How large errors are as a share depends on the number of rows, which is not public here.")
        else:
            said.append(f"Errors are those of the noise alone, if the table has {self.size:,} rows.")
        if not self.measured:
            said = ["It measures means and products, not counts: what that does to counts is told with the table."]
        elif self.chosen:
            said.append(
                "What is measured beside single columns is chosen privately as it goes; a rehearsal cannot say."
            )
        elif len(self.domain.modelled) > 1 and not self._parts()[1]:
            said.append("No relation between columns is measured, and none will be in the table.")
        if self.domain.determines:
            said.append("Columns that others decide are learnt for a small part of the spend, and then always hold.")
        if self.unit != ROW:
            said.append(
                f"No column will say which {self.unit.name} a row is of: rows of the same one are not made together. "
                "Who has more rows than may count has each counted less, which is in no error."
            )
        return said

    def lines(self) -> list[str]:
        """The plan in words."""
        cells = ", ".join(
            f"{axis.name} ({'fresh pseudonyms' if axis.pseudonym else f'{axis.size} cells'})"
            for axis in self.domain.axes
        )
        many = f"{self.rows:,}" if self.rows is not None else "as many as a noisy count says"
        single, several = self._parts()
        found = [
            ("synthesise", f"{self.domain.table} by {self.method}: {METHODS[self.method]}"),
            ("columns", cells),
            ("rows", many),
            ("protects", str(self.unit)),
            ("cost", cost_text(self.loss, self.asked)),
        ]
        if single:
            found.append(("measures", f"{len(self.domain.modelled)} columns by themselves, {_noise(single)}"))
        if several:
            least = "at least " if self.method in _BY_SIZE else ""
            word = "chosen marginals" if self.chosen else "marginals of several columns"
            found.append(("" if single else "measures", f"{least}{len(several)} {word}, {_noise(several)}"))
        found.append(("noise", f"{', '.join(self.noise)}, in {self.steps} steps under one charge"))
        return [f"{word:<12}{text}".rstrip() for word, text in found]

    def __str__(self) -> str:
        width = max((len(text) for text, _ in self.errors()), default=0)
        errors = [f"  {text:<{width}}  {error}" for text, error in self.errors()]
        told = ["expected error of counts", *errors, ""] if errors else []
        return "\n".join([*self.lines(), "", *told, *self.notes()])

    def _parts(self) -> tuple[list["NoisyMarginal"], list["NoisyMarginal"]]:
        """Every column by itself, if that is measured; and the rest."""
        single = [one for one in self.measured if len(one.places) == 1]
        if {one.places for one in single} != {(place,) for place in range(len(self.domain.modelled))}:
            return [], list(self.measured)
        return single, [one for one in self.measured if len(one.places) > 1]

    def _share(self, sigma: float, cells: int) -> str:
        rows = _HALF_MEAN * sigma * cells
        if self.size is None:
            return f"up to {rows:,.3g} rows"
        return f"up to {100 * min(1.0, rows / self.size):.2g} % of the rows"


def plan(
    data: Any,
    method: str,
    *,
    spend: Loss,
    rows: int | None = None,
    columns: Sequence[str] | None = None,
    table: str | None = None,
    bins: Any = None,
    **own: Any,
) -> Synthesis:
    """What a synthesis would cost and measure. Costs nothing and reads nothing.

    Args:
        data: a Cloister dataset.
        method: a generator, one of `METHODS`.
        spend, rows, columns, table, bins: as for the generator, and as it likes them unless given.
        own: options of that generator alone, such as a workload or a label.

    Privacy: no loss: see the top of this file.
    """
    make = method_of(method)
    budget = budget_share(spend, "the synthetic table", "generators")
    bins = usual_bins(method) if bins is None else bins
    domain, _ = read_domain(data, table=table, columns=columns, bins=bins)
    check_rows(domain, rows)
    data.account.price(budget.loss)  # a pure account cannot pay in rho: say so before anything is asked
    size = data.schema.tables[domain.table].rows or rows
    pretended = (size or _MANY_ROWS) if method in _BY_SIZE else 0
    # Numbers may run out of range where nothing is to be found: a rehearsal is about steps, not about its model.
    quiet = np.errstate(all="ignore")
    with quiet, TemporaryDirectory(prefix="cloister-plan-") as folder, Ledger.in_folder(folder) as book:
        empty = Rehearsed(data, book.open_account("rehearsal", budget.loss), pretended)
        try:
            made = make(
                empty,
                spend=budget.loss,
                rows=1,
                columns=list(domain.names),
                table=domain.table,
                bins=bins,
                random_state="rehearsal",
                **{**_shorter(method, domain), **own},
            )
        except LookFailed as failure:  # on nobody there is nothing to hide
            raise BadInput(f"this synthesis cannot be carried out: {failure.owner_detail}") from None
    steps = made.receipt.body["parameters"]
    return Synthesis(
        method,
        domain,
        data.schema.unit,
        budget.loss,
        rows,
        size,
        tuple(made.made.measured),
        len(made.made.chosen),
        tuple(dict.fromkeys(one["mechanism"] for one in steps)),
        sum(int(one["times"]) for one in steps),
        spend,
    )


def method_of(name: str) -> Any:
    """A generator by its name."""
    from cloister import synth

    if not isinstance(name, str) or name not in METHODS:
        raise BadInput(f"there is no method {name!r:.40}. There are: {', '.join(METHODS)}.")
    return getattr(synth, name)


def usual_bins(name: str) -> int:
    """Into how many bins a generator cuts numbers and dates unless told otherwise."""
    return int(signature(method_of(name)).parameters["bins"].default)


def _shorter(method: str, domain: Domain) -> dict[str, Any]:
    """Less work where it changes nothing about the steps and their noise: fewer candidates, fewer fits."""
    if method == "mixture":
        return {"fits": 1}
    names = [axis.name for axis in domain.modelled]
    return {"workload": list(pairwise(names))} if method == "aim" and len(names) > 1 else {}


def _largest(one: "NoisyMarginal") -> float:
    return float(np.max(one.sigma))


def _noise(measured: Sequence["NoisyMarginal"]) -> str:
    sizes = sorted(map(_largest, measured))
    low, high = f"{sizes[0]:,.3g}", f"{sizes[-1]:,.3g}"
    return f"noise of {low} rows a cell" if low == high else f"noise of {low} to {high} rows a cell"

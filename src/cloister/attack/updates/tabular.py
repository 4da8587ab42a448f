"""Gradient inversion of table rows, with the attacker's own confidence in each cell (Vero et al. 2023).

    start 1 ─┐
    start 2 ─┼─► rows, matched to those of the best start ──► pooled cells ──► value and entropy of each cell
    …       ─┘

A category is searched as a softmax over its values, a number between its bounds. Every start gives a table; rows of
different starts are matched at the least total cost. Where most starts agree on a cell its entropy is low, and the
attacker knows, without the truth, that the cell is probably right.

    columns = [Category("ward", 5), Number("age", 0, 100)]
    victim = GradientStep(loss, params, (encode(table, columns), labels))
    guess = invert_table(update, columns)            guess.cells, guess.entropy
    table_leak([update], [victim], columns=columns)  a finding with the accuracy by quarter of entropy
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.attack.finding import Finding
from cloister.attack.updates.closed_form import remedies_for
from cloister.attack.updates.defences import Progress
from cloister.attack.updates.inversion import read_labels
from cloister.attack.updates.matching import (
    Distance,
    best_order,
    check_search,
    descend,
    distance_between,
    input_span,
)
from cloister.attack.updates.update import GradientStep, Update, labels_of, paired
from cloister.privacy.errors import BadBounds, BadInput, BadNumber

__all__ = ["Category", "InvertedTable", "Number", "decode", "encode", "invert_table", "mean_over_records", "table_leak"]

Floats = NDArray[np.float64]
_BINS = 20  # of a number, for its entropy
_PUBLIC = 256
_TINY = 1e-12
_QUARTERS = 4
_BLIND = 50  # tables guessed without an update


@dataclass(frozen=True, slots=True)
class Category:
    """A column with a fixed list of values, 0 to size - 1, encoded one-hot."""

    name: str
    size: int

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 2:
            raise BadNumber(f"a category has at least 2 values, got {self.size!r:.40}.")

    @property
    def width(self) -> int:
        """Number of inputs of the network."""
        return self.size


@dataclass(frozen=True, slots=True)
class Number:
    """A column of numbers between public bounds, encoded as a share of the range."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise BadBounds(f"the bounds of {self.name} are a lower and a higher number.")

    @property
    def width(self) -> int:
        """Number of inputs of the network."""
        return 1


Columns = Sequence[Category | Number]


def encode(table: ArrayLike, columns: Columns) -> NDArray[np.float32]:
    """Return inputs of a network: one-hot categories, and numbers scaled to [0, 1].

    >>> encode([[2, 30.0]], [Category("ward", 3), Number("age", 0, 120)]).tolist()
    [[0.0, 0.0, 1.0, 0.25]]
    """
    values = np.asarray(table, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != len(columns):
        raise BadInput(f"a table has one row for each record and {len(columns)} columns, got shape {values.shape}.")
    parts = []
    for column, cells in zip(columns, values.T, strict=True):
        if isinstance(column, Category):
            if not np.isin(cells, np.arange(column.size)).all():
                raise BadInput(f"values of {column.name} are whole numbers from 0 to {column.size - 1}.")
            parts.append(np.eye(column.size)[cells.astype(np.intp)])
        else:
            parts.append(np.clip((cells - column.low) / (column.high - column.low), 0, 1)[:, None])
    return np.hstack(parts).astype(np.float32)


def decode(inputs: ArrayLike, columns: Columns) -> Floats:
    """Return the table behind inputs of a network: the most likely value of a category, and numbers in their range."""
    return np.column_stack(
        [
            part.argmax(axis=1)
            if isinstance(column, Category)
            else column.low + part[:, 0] * (column.high - column.low)
            for column, part in zip(columns, _parts(np.asarray(inputs, dtype=np.float64), columns), strict=True)
        ]
    ).astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class InvertedTable:
    """A table that an attacker recovered.

    Attributes:
        cells: the pooled guess, one row for each record of the update: whole numbers for categories.
        entropy: of each cell over the starts, from 0 (all agree) to 1.
        labels: of the rows.
        distance: the search's last value, for each start.
    """

    cells: Floats = field(repr=False)
    entropy: Floats = field(repr=False)
    labels: NDArray[np.intp]
    distance: Floats


def invert_table(
    update: Update,
    columns: Columns,
    *,
    labels: ArrayLike | None = None,
    classes: int = 2,
    public: ArrayLike | None = None,
    distance: Distance = "cosine",
    span: float = 30.0,
    starts: int = 30,
    keep: float = 1.0,
    steps: int = 1500,
    step_size: float = 0.2,
    seed: int = 0,
    progress: Progress | None = None,
) -> InvertedTable:
    """Search the rows behind a gradient from many starts, and pool them.

    Args:
        update: what was seen; inputs of the network are those of `encode`.
        columns: of the table, in order; they are public.
        labels: of the records, in any order, if the attacker knows them; else they are read off the update.
        classes: the number of classes.
        public: a table like the records, with which labels are read more surely; random rows unless given.
        distance: "l2", "cosine" or "layers".
        span: weight of the distance from the space that the first layer's gradient spans; 0 for none.
        starts: random starts that vote on each cell.
        keep: the share of starts that are pooled, those with the smallest distance.
        steps, step_size: of the search.
        seed: of the starts.
        progress: called with the share done and the distance.
    """
    check_search(distance=distance, starts=starts, steps=steps, step_size=step_size)
    if not columns or not all(isinstance(column, Category | Number) for column in columns):
        raise BadInput("columns is a list of Category(name, size) and Number(name, low, high).")
    if isinstance(keep, bool) or not isinstance(keep, int | float) or not 0 < keep <= 1:
        raise BadNumber(f"keep is a share of the starts, above 0 and at most 1, got {keep!r:.40}.")
    draw, width = np.random.default_rng(seed), sum(column.width for column in columns)
    like = _soft(jnp.asarray(draw.normal(0, 3, (_PUBLIC, width)), dtype=jnp.float32), columns)
    if public is not None:
        like = encode(np.asarray(public)[:_PUBLIC], columns)
    known = read_labels(update, labels, classes, np.asarray(like, dtype=np.float64))
    seen = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=jnp.float32), update.values)
    basis = input_span(update) if span else None
    if basis is not None and len(basis) != width:
        basis = None

    def objective(point: Any) -> Any:
        rows = _soft(point, columns)
        far = distance_between(update.expected(rows, known), seen, distance)
        return far if basis is None else far + span * jnp.mean((rows - rows @ basis @ basis.T) ** 2)

    first = jnp.asarray(draw.normal(0, 1, (starts, update.records, width)), dtype=jnp.float32)
    points, values = descend(objective, first, steps=steps, step_size=step_size, progress=progress)
    order = np.argsort(values, kind="stable")[: max(1, round(keep * starts))]
    tables = np.asarray(jax.vmap(lambda point: _soft(point, columns))(points), dtype=np.float64)
    tables = np.nan_to_num(tables[order], nan=0.5)
    cells, entropy = _pooled(_aligned(tables, known), columns)
    return InvertedTable(cells, entropy, known.astype(np.intp), values)


def table_leak(
    updates: Sequence[Update],
    victims: Sequence[GradientStep],
    *,
    columns: Columns,
    within: float = 0.05,
    public: ArrayLike | None = None,
    labels_known: bool = False,
    **search: Any,
) -> Finding:
    """Invert updates, and compare with the victims' rows.

    Args:
        updates: what was seen, one for each victim.
        victims: the clients, whose first array of rows are inputs from `encode` and whose second are labels.
        columns: of the table.
        within: a number counts as right within this share of its range.
        public: a table that an attacker knows without the update: its rows and its most frequent values are guesses
            without it, and labels are read more surely. Uniform unless given.
        labels_known: True if the attacker knows the labels.
        search: further arguments of `invert_table`.
    """
    right, entropy, blind = [], [], []
    pairs = paired(updates, victims)
    _check_columns(columns, pairs[0][1].rows[0])
    for update, victim in pairs:
        truth = decode(victim.rows[0], columns)
        labels = None if not labels_known else labels_of(victim, update.records)
        guess = invert_table(update, columns, labels=labels, public=public, **search)
        order = best_order(_apart(victim.rows[0], encode(guess.cells, columns), columns))
        right.append(_right(guess.cells[order], truth, columns, within))
        entropy.append(guess.entropy[order])
        blind.append(_blind(truth, update.records, columns, public, within))
    hits, sure = np.concatenate(right), np.concatenate(entropy)
    success, interval = mean_over_records(hits.mean(axis=1))
    quarters = _by_quarter(hits.ravel(), sure.ravel())
    first = pairs[0][0]
    defence = first.defence
    return Finding(
        attack="gradient inversion of table rows",
        target=first.name,
        access="white box",
        knowledge=f"{first.knowledge}, and the columns of the table",
        measure=f"cells recovered (numbers within {within:.0%} of their range)",
        success=success,
        interval=interval,
        baseline=float(np.mean(blind)),
        attempts=int(hits.size),
        claim=defence.spend,
        figures={
            **{f"right in entropy quarter {place + 1}": share for place, share in enumerate(quarters)},
            "mean entropy of a cell": float(sure.mean()),
        },
        remedies=remedies_for(defence),
        notes=(
            "Entropy is computed without the truth: an attacker knows which cells to trust."
            if defence.spend is None
            else "With noise all starts fit the same noise, so cells of low entropy need not be right.",
            "Rows are matched to the truth at the least distance, those of the guess without the update too.",
        ),
    )


def mean_over_records(shares: ArrayLike, confidence: float = 0.95) -> tuple[float, tuple[float, float]]:
    """Return the mean of one share for each record, and Student's interval: cells of one record are dependent.

    >>> mean_over_records([1.0])
    (1.0, (0.0, 1.0))
    """
    from scipy.special import stdtrit

    values = np.asarray(shares, dtype=np.float64)
    mean, n = float(values.mean()), len(values)
    if n < 2:
        return mean, (0.0, 1.0)
    wide = float(stdtrit(n - 1, (1 + confidence) / 2) * values.std(ddof=1) / np.sqrt(n))
    return mean, (max(0.0, mean - wide), min(1.0, mean + wide))


def _soft(point: Any, columns: Columns) -> Any:
    """Return inputs of the network from unbounded numbers: softmax for a category, sigmoid for a number."""
    parts = [
        jax.nn.softmax(part, axis=-1) if isinstance(column, Category) else jax.nn.sigmoid(part)
        for column, part in zip(columns, _parts(point, columns), strict=True)
    ]
    return jnp.concatenate(parts, axis=-1)


def _parts(inputs: Any, columns: Columns) -> list[Any]:
    """Return the inputs of each column."""
    ends = np.cumsum([column.width for column in columns])
    return [inputs[..., end - column.width : end] for column, end in zip(columns, ends, strict=True)]


def _check_columns(columns: Columns, rows: Any) -> None:
    if any(not isinstance(column, Category | Number) for column in columns):
        raise BadInput(
            "columns are Category(name, size) and Number(name, low, high), one for each column of the table."
        )
    width, given = sum(column.width for column in columns), np.asarray(rows).shape[-1]
    if width != given:
        raise BadInput(f"the columns take {width:,} inputs of the network, and a row of the victim has {given:,}.")


def _apart(rows: Any, others: Any, columns: Columns) -> Floats:
    """Return distances of rows: the total variation of categories and the difference of numbers, added up."""
    total = np.zeros((len(rows), len(others)))
    pairs = zip(columns, _parts(np.asarray(rows), columns), _parts(np.asarray(others), columns), strict=True)
    for column, one, two in pairs:
        total += np.abs(one[:, None] - two[None]).sum(axis=2) / (2 if isinstance(column, Category) else 1)
    return total


def _aligned(tables: Floats, labels: NDArray[Any]) -> Floats:
    """Return tables whose rows are in the order of the first one; rows with different labels are never matched."""
    other = (labels[:, None] != labels[None]) * 1e9
    aligned = [tables[0]]
    for table in tables[1:]:
        apart = np.abs(tables[0][:, None] - table[None]).sum(axis=2)
        aligned.append(table[best_order(apart + other)])
    return np.array(aligned)


def _pooled(tables: Floats, columns: Columns) -> tuple[Floats, Floats]:
    """Return the value of each cell over all starts, and its entropy as a share of the largest."""
    cells, entropy = [], []
    for column, part in zip(columns, _parts(tables, columns), strict=True):
        if isinstance(column, Category):
            shares = part.mean(axis=0)
            cells.append(shares.argmax(axis=1).astype(np.float64))
        else:
            places = np.clip((part[..., 0] * _BINS).astype(np.intp), 0, _BINS - 1)
            shares = np.eye(_BINS)[places].mean(axis=0)
            cells.append(column.low + np.median(part[..., 0], axis=0) * (column.high - column.low))
        entropy.append(-(shares * np.log(np.maximum(shares, _TINY))).sum(axis=1) / np.log(shares.shape[1]))
    return np.column_stack(cells), np.column_stack(entropy)


def _right(guess: Floats, truth: Floats, columns: Columns, within: float) -> NDArray[np.bool_]:
    far = [0.5 if isinstance(column, Category) else within * (column.high - column.low) for column in columns]
    return np.asarray(np.abs(guess - truth) <= np.array(far))


def _usual(columns: Columns, public: ArrayLike | None) -> Floats:
    """Return the best guess without an update: the most frequent value of a category, the median of a number."""
    if public is None:
        return np.array([0.0 if isinstance(column, Category) else (column.low + column.high) / 2 for column in columns])
    table = np.asarray(public, dtype=np.float64)
    return np.array(
        [
            np.bincount(cells.astype(np.intp), minlength=column.size).argmax()
            if isinstance(column, Category)
            else np.median(cells)
            for column, cells in zip(columns, table.T, strict=True)
        ]
    )


def _blind(truth: Floats, records: int, columns: Columns, public: ArrayLike | None, within: float) -> float:
    """Return the share of cells that are right without an update: usual rows, or a public table's rows if better.

    Rows drawn at random are matched to the truth as an attack's are, which makes some of their cells right.
    """
    usual = float(_right(np.broadcast_to(_usual(columns, public), truth.shape), truth, columns, within).mean())
    draw, rows, found = np.random.default_rng(0), encode(truth, columns), []
    for _ in range(_BLIND):
        if public is None:
            guess = np.column_stack([
                draw.integers(0, column.size, records)
                if isinstance(column, Category)
                else draw.uniform(column.low, column.high, records)
                for column in columns
            ])  # fmt: skip
        else:
            table = np.asarray(public, dtype=np.float64)
            guess = table[draw.choice(len(table), records, replace=len(table) < records)]
        order = best_order(_apart(rows, encode(guess, columns), columns))
        found.append(float(_right(guess[order].astype(np.float64), truth, columns, within).mean()))
    return max(usual, float(np.mean(found)))


def _by_quarter(right: NDArray[np.bool_], entropy: Floats) -> list[float]:
    """Return the share of right cells in each quarter of cells by entropy, the lowest first."""
    order = np.argsort(entropy, kind="stable")
    return [float(right[part].mean()) for part in np.array_split(order, _QUARTERS) if len(part)]

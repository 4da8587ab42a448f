"""Rows that attackers ask a model about: read, join, encode, perturb, or drawn from published marginals.

Arrays, pandas frames and sparse matrices stay what they are, so that the model sees the type it knows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.attack.intervals import Floats
from cloister.privacy.errors import BadBounds, BadInput, BadNumber
from cloister.privacy.noise import SYSTEM

__all__ = [
    "Marginals", "check_whole", "encode", "generator", "join", "joined_labels", "perturb", "read_box", "read_pair",
    "read_rows",
]  # fmt: skip

_FEW = 12  # a column with at most this many values is drawn again when it is perturbed; another gets normal noise
_MOST_CELLS = 1 << 28


def generator(random_state: int | None) -> np.random.Generator:
    """Return a generator from a seed, or from the operating system's randomness."""
    if random_state is None:
        return np.random.default_rng(int.from_bytes(SYSTEM.bytes(32), "little"))
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer) or random_state < 0:
        raise BadNumber(f"random_state is a whole number of at least 0 or None, got {random_state!r:.40}.")
    return np.random.default_rng(int(random_state))


def check_whole(value: Any, name: str, least: int, most: int) -> int:
    """Return a whole number within limits, or refuse."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise BadNumber(f"{name} is a whole number from {least:,} to {most:,}, got {value!r:.40}.")
    return int(value)


def read_rows(rows: Any, name: str, *, least: int = 1) -> Any:
    """Return rows as an array, a frame or a sparse matrix; refuse what has no rows."""
    if not (hasattr(rows, "iloc") or hasattr(rows, "tocsr")):
        try:
            rows = np.asarray(rows)
        except ValueError:
            raise BadInput(f"the rows of {name} must have the same length.") from None
        if rows.ndim < 2 or (rows.dtype == object and any(isinstance(cell, list | tuple) for cell in rows.flat)):
            raise BadInput(f"the rows of {name} are a matrix or a frame: one row for each record.")
    elif hasattr(rows, "tocsr"):
        rows = rows.tocsr()
    if rows.shape[0] < least:
        raise BadInput(f"{name} needs at least {least:,} rows, got {rows.shape[0]:,}.")
    if rows.shape[0] * int(np.prod(rows.shape[1:])) > _MOST_CELLS:
        raise BadInput(f"{name} has more cells than an attack takes ({_MOST_CELLS:,}). Pass a sample of its rows.")
    return rows


def read_pair(pair: Any, name: str, *, least: int = 8) -> tuple[Any, NDArray[Any]]:
    """Return rows and labels of a pair (X, y)."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise BadInput(f"{name} is a pair (X, y) of rows and their labels, got a {type(pair).__name__}.")
    rows, labels = read_rows(pair[0], name, least=least), np.asarray(pair[1])
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or len(labels) != rows.shape[0]:
        raise BadInput(f"{name} has {rows.shape[0]:,} rows and labels of the shape {labels.shape}: one for each row.")
    return rows, labels


def read_box(box: Any, width: int) -> tuple[Floats, Floats]:
    """Return the least and the largest value of each feature, from two numbers or two lists."""
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64).ravel(), (width,)).copy() for end in box)
    except (TypeError, ValueError):
        raise BadBounds(f"box is a pair (low, high): two numbers, or two lists of {width} numbers.") from None
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all() and (low < high).any()):
        raise BadBounds("box is a pair (low, high) of finite numbers with low below high.")
    return low, high


def join(parts: Sequence[Any]) -> Any:
    """Return the rows of several parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if len({tuple(part.shape[1:]) for part in parts}) > 1:
        shapes = " and ".join(str(part.shape[1:]) for part in parts)
        raise BadInput(f"the rows of members, others and reference have the same columns, got shapes {shapes}.")
    if all(hasattr(part, "iloc") for part in parts):
        import pandas as pd  # type: ignore[import-untyped]

        if any(list(part.columns) != list(parts[0].columns) for part in parts):
            raise BadInput("the frames of members, others and reference have the same columns in the same order.")
        return pd.concat(parts, ignore_index=True)
    if any(hasattr(part, "iloc") for part in parts):
        raise BadInput("members, others and reference are all frames or all arrays.")
    if any(hasattr(part, "tocsr") for part in parts):
        from scipy.sparse import vstack

        return vstack(parts).tocsr()
    return np.concatenate(parts)


def joined_labels(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the labels of several parts. Numbers and text are not mixed: numpy would make text of numbers."""
    if len({part.dtype.kind in "biuf" for part in parts}) > 1:
        raise BadInput("the labels of members, others and reference are all numbers or all text.")
    return np.concatenate(parts)


def encode(rows: Any) -> Floats:
    """Return rows as numbers: columns of numbers as they are, others by the place of their value among all values."""
    if hasattr(rows, "tocsr"):
        return np.asarray(rows.todense(), dtype=np.float64)
    if not hasattr(rows, "iloc"):
        flat = rows.reshape(len(rows), -1)
        if flat.dtype.kind in "biuf":
            return np.asarray(flat, dtype=np.float64)
        return np.column_stack([_coded(flat[:, place]) for place in range(flat.shape[1])])
    return np.column_stack([_coded(rows.iloc[:, place].to_numpy()) for place in range(rows.shape[1])])


def _coded(column: NDArray[Any]) -> Floats:
    if column.dtype.kind in "biuf":
        return np.asarray(column, dtype=np.float64)
    try:
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        return np.asarray(np.unique([str(cell) for cell in column], return_inverse=True)[1], dtype=np.float64)


def perturb(rows: Any, draw: np.random.Generator, size: float, *, like: Any = None) -> Any:
    """Return rows with noise: numbers move by `size` standard deviations, few-valued columns are drawn again.

    Args:
        rows: the rows to change.
        draw: the generator.
        size: standard deviations of the noise, and the share of cells of a column with few values that is drawn again.
        like: rows whose columns say what is usual; the rows themselves unless given.
    """
    usual = rows if like is None else like
    if hasattr(rows, "iloc"):
        import pandas as pd

        changed = rows.copy()
        for place, name in enumerate(rows.columns):
            column = _moved(rows.iloc[:, [place]].to_numpy(), usual.iloc[:, [place]].to_numpy(), draw, size)[:, 0]
            series = pd.Series(column, index=changed.index)
            few = column.dtype.kind != "f"  # values of other rows, which have the column's own type
            changed[name] = series.astype(rows.dtypes.iloc[place]) if few else series
        return changed
    if hasattr(rows, "tocsr"):
        rows, usual = np.asarray(rows.todense()), np.asarray(usual.todense())
    flat = _moved(rows.reshape(len(rows), -1), usual.reshape(len(usual), -1), draw, size)
    return flat.reshape(rows.shape)


def _moved(cells: NDArray[Any], usual: NDArray[Any], draw: np.random.Generator, size: float) -> NDArray[Any]:
    """Return a matrix with noise. Few-valued columns take the value of another row in some cells."""
    n = len(cells)
    few = _few_valued(usual)
    numbers = cells.dtype.kind in "biuf"
    moved = cells.astype(np.float64) if numbers and not few.all() else cells.copy()
    if few.any():
        places = np.flatnonzero(few)
        again = draw.random((n, len(places))) < min(size, 1.0)
        other = usual[draw.integers(0, len(usual), (n, len(places))), places]
        moved[:, places] = np.where(again, other, cells[:, places])
    if not few.all():
        if not numbers:
            raise BadInput("a column of text with many values cannot be perturbed. Leave it out or encode it.")
        places = np.flatnonzero(~few)
        spread = np.nanstd(usual[:, places].astype(np.float64), axis=0)
        moved[:, places] = cells[:, places] + draw.normal(0, 1, (n, len(places))) * spread * size
    return moved


def _few_valued(cells: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which columns have few values; text counts as such if each value occurs twice on average."""
    if cells.dtype.kind in "biuf":
        ordered = np.sort(cells[:2_000], axis=0)
        return np.asarray((np.diff(ordered, axis=0) != 0).sum(axis=0) < _FEW)
    found = [len(set(map(str, column))) for column in cells.T]
    return np.array([count <= max(_FEW, len(cells) // 2) for count in found], dtype=bool)


@dataclass(frozen=True, slots=True, eq=False)
class Marginals:
    """Statistics of single columns, as a publication has them: values and how often each occurs.

    Attributes:
        columns: for each column its values and their shares.
        smooth: for each column True if numbers between two values are drawn too.
    """

    columns: tuple[tuple[NDArray[Any], Floats], ...]
    smooth: tuple[bool, ...]

    @classmethod
    def of(cls, rows: Any, *, cells: int = 32) -> "Marginals":
        """Count the values of each column; a column of many numbers becomes its quantiles.

        >>> Marginals.of(np.array([[0, 5], [1, 5], [1, 5], [1, 5]])).columns[0][1].tolist()
        [0.25, 0.75]
        """
        table = read_rows(rows, "the rows of marginals")
        flat = table if hasattr(table, "iloc") else np.asarray(
            table.todense() if hasattr(table, "tocsr") else table
        ).reshape(table.shape[0], -1)  # fmt: skip
        columns, smooth = [], []
        for place in range(flat.shape[1]):
            column = flat.iloc[:, place].to_numpy() if hasattr(flat, "iloc") else flat[:, place]
            values, counts = np.unique(column, return_counts=True)
            many = len(values) > cells and column.dtype.kind in "iuf"
            shares = np.full(cells + 1, 1 / (cells + 1)) if many else counts / counts.sum()
            columns.append((np.quantile(column, np.linspace(0, 1, cells + 1)) if many else values, shares))
            smooth.append(bool(many))
        return cls(tuple(columns), tuple(smooth))

    @classmethod
    def published(cls, columns: Sequence[tuple[Sequence[Any], Sequence[float]]]) -> "Marginals":
        """Read published marginals: for each column a pair of values and shares."""
        read = []
        for place, column in enumerate(columns):
            if not isinstance(column, tuple | list) or len(column) != 2 or len(column[0]) != len(column[1]):
                raise BadInput(f"the marginal of column {place} is a pair of values and as many shares.")
            shares = np.asarray(column[1], dtype=np.float64)
            if not len(shares) or not np.isfinite(shares).all() or (shares < 0).any() or shares.sum() <= 0:
                raise BadInput(f"the shares of column {place} are numbers of at least 0, and one is above 0.")
            read.append((np.asarray(column[0]), shares / shares.sum()))
        if not read:
            raise BadInput("marginals need at least one column: a pair of values and shares.")
        return cls(tuple(read), (False,) * len(read))

    @property
    def box(self) -> tuple[Floats, Floats]:
        """Least and largest value of each column of numbers."""
        if any(values.dtype.kind not in "biuf" for values, _ in self.columns):
            raise BadInput("a column of text has no least value. Encode the rows as numbers.")
        low, high = ([float(end(values)) for values, _ in self.columns] for end in (np.min, np.max))
        return np.array(low), np.array(high)

    def draw(self, n: int, draw: np.random.Generator, *, like: Any = None) -> Any:
        """Return rows whose columns are independent.

        Args:
            n: number of rows.
            draw: the generator.
            like: rows whose type and columns are copied; a matrix unless given.
        """
        drawn = [self._column(place, n, draw) for place in range(len(self.columns))]
        if like is not None and hasattr(like, "iloc"):
            import pandas as pd

            frame = pd.DataFrame(dict(zip(like.columns, drawn, strict=True)))
            plain = [name for name, smooth in zip(like.columns, self.smooth, strict=True) if not smooth]
            return frame.astype({name: like.dtypes[name] for name in plain})
        table = np.column_stack(drawn)
        if like is not None and not hasattr(like, "tocsr"):
            return table.reshape(n, *like.shape[1:])
        return table

    def _column(self, place: int, n: int, draw: np.random.Generator) -> NDArray[Any]:
        values, shares = self.columns[place]
        if not self.smooth[place]:
            return np.asarray(values[draw.choice(len(values), n, p=shares)])
        return np.asarray(np.interp(draw.random(n), np.linspace(0, 1, len(values)), values))

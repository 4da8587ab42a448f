"""The tables of the sources' figures: real where they are on this machine, else generated with the same schema."""

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SHARED = Path(__file__).parents[3] / "shared" / "data"


@dataclass(frozen=True)
class Table:
    """Rows with labels, and what is public about them: a list of categories for each column, or bounds."""

    name: str
    rows: Any
    labels: Any
    categories: list[list[Any]] | None = None
    bounds: list[tuple[float, float]] | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """For LocalNaiveBayes."""
        classes = np.unique(self.labels).tolist()
        return {"classes": classes, "categories": self.categories, "bounds": self.bounds}

    def some(self, rows: int | None) -> "Table":
        if rows is None or rows >= len(self.rows):
            return self
        chosen = np.random.default_rng(3).permutation(len(self.rows))[:rows]
        name = f"{self.name}, {rows:,} rows"
        return Table(name, self.rows[chosen], self.labels[chosen], self.categories, self.bounds)


def discrete(quick: bool) -> list[Table]:
    """Figure 5.3: Car, Chess, Mushroom, Connect-4."""
    chess = generated("Chess", 3_196, [2] * 35 + [3], [0.52, 0.48], 0.5, 12)
    connect = generated("Connect-4", 67_557, [3] * 42, [0.658, 0.246, 0.096], 0.2, 13)
    return [car(), mushroom()] if quick else [car(), chess, mushroom(), connect]


def continuous(quick: bool) -> list[Table]:
    """Figures 5.4 and 5.5: Australian credit and Diabetes, and larger real ones beside them."""
    small = [normal("Australian", 690, 14, 0.56, 0.6, 21), normal("Diabetes", 768, 8, 0.65, 0.55, 22)]
    larger = [cancer(), normal("Australian, 100 times as many people", 69_000, 14, 0.56, 0.6, 21)]
    default = credit_default()
    return [small[1], larger[0]] if quick else [*small, *larger, *([default] if default else [])]


def car() -> Table:
    """All 1,728 cars of UCI's schema, judged by a rule of ours: 4 classes of about 70, 22, 4 and 4 %."""
    sizes = [4, 4, 4, 3, 3, 3]
    cells = np.array(np.unravel_index(np.arange(1728), sizes)).T
    price, seats, boot, safe = cells[:, 0] + cells[:, 1], cells[:, 3], cells[:, 4], cells[:, 5]
    worth = price + seats + boot + 2 * safe + cells[:, 2] / 2
    good = np.searchsorted(np.quantile(worth[(seats > 0) & (safe > 0)], [0.33, 0.82, 0.91]), worth, side="right")
    labels = np.where((seats > 0) & (safe > 0), good, 0)
    return Table("Car (generated)", cells, labels, [list(range(size)) for size in sizes])


def mushroom() -> Table:
    path = SHARED / "mushroom" / "agaricus-lepiota.data"
    if not path.exists():
        sizes = [6, 4, 10, 2, 9, 2, 2, 2, 12, 2, 5, 4, 4, 9, 9, 2, 4, 3, 5, 9, 6, 7]
        return generated("Mushroom", 8_124, sizes, [0.52, 0.48], 0.6, 14)
    cells = np.array([line.split(",") for line in path.read_text().split()])
    # The values that the set's description lists are public. One column has a single value there, and is left out.
    listed = [np.unique(column).tolist() for column in cells[:, 1:].T]
    wide = [place for place, values in enumerate(listed) if len(values) > 1]
    return Table("Mushroom", cells[:, 1:][:, wide], cells[:, 0], [listed[place] for place in wide])


def generated(name: str, rows: int, sizes: list[int], shares: list[float], strength: float, seed: int) -> Table:
    """Columns that each class draws from its own law; the laws differ the more, the larger the strength."""
    random = np.random.default_rng(seed)
    labels = random.choice(len(shares), rows, p=shares)
    columns = []
    for size in sizes:
        base = random.dirichlet(np.full(size, 2.0))
        tilt = base * np.exp(strength * random.normal(0, 1, (len(shares), size)))
        law = np.cumsum(tilt / tilt.sum(axis=1, keepdims=True), axis=1)[:, :-1]
        columns.append((random.random(rows)[:, None] > law[labels]).sum(axis=1))
    return Table(f"{name} (generated)", np.column_stack(columns), labels, [list(range(size)) for size in sizes])


def normal(name: str, rows: int, columns: int, majority: float, strength: float, seed: int) -> Table:
    """Correlated normal columns whose means depend on the class, in [0, 1]."""
    random = np.random.default_rng(seed)
    labels = (random.random(rows) > majority).astype(int)
    mixing = random.normal(0, 0.35, (columns, columns)) + np.eye(columns)
    steps = strength * random.normal(0, 1, columns) * (random.random(columns) < 0.6)
    cells = random.normal(0, 1, (rows, columns)) @ mixing + labels[:, None] * steps * 2
    return Table(f"{name} (generated)", np.clip(cells / 8 + 0.5, 0, 1), labels, None, [(0.0, 1.0)] * columns)


def cancer() -> Table:
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    # Physical measures: round public bounds that hold them.
    highs = np.array([10.0 ** np.ceil(np.log10(top)) for top in data.data.max(axis=0)])
    return Table("Breast cancer (bundled)", data.data / highs, data.target, None, [(0.0, 0.5)] * 30)


def credit_default() -> Table | None:
    path = SHARED / "credit-default" / "UCI_Credit_Card.csv.gz"
    if not path.exists():
        return None
    with gzip.open(path, "rt") as file:
        cells = np.loadtxt(file, delimiter=",", skiprows=1)
    months = [(-2.0, 4.0)] * 6
    bounds = [(0.0, 500_000.0), (1.0, 2.0), (0.0, 6.0), (0.0, 3.0), (20.0, 70.0), *months]
    bounds += [(0.0, 200_000.0)] * 6 + [(0.0, 20_000.0)] * 6
    return Table("Credit default", cells[:, 1:-1], cells[:, -1].astype(int), None, bounds)

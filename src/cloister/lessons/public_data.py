"""Public rows for the case study: datasets that come with scikit-learn, and generated ones."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput, MissingExtra

__all__ = ["PublicData", "bundled", "generated", "sklearn_part"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PublicData:
    """Public rows, scaled to [-1, 1], with a label of two classes.

    Attributes:
        name: of the data.
        rows: features.
        label: 0 or 1 for each row.
    """

    name: str
    rows: Floats
    label: NDArray[np.int64]


def bundled(name: str = "breast cancer") -> PublicData:
    """Return a dataset that comes with scikit-learn, scaled to [-1, 1] by its own range: it is public."""
    datasets = sklearn_part("datasets")
    if name == "breast cancer":
        dataset = datasets.load_breast_cancer()
        # The ten mean measurements, as many as the Wisconsin data of the case study have.
        return PublicData(name, _scaled(dataset.data[:, :10]), dataset.target.astype(np.int64))
    if name == "diabetes":
        dataset = datasets.load_diabetes()
        return PublicData(name, _scaled(dataset.data), (dataset.target > np.median(dataset.target)).astype(np.int64))
    if name == "wine":
        dataset = datasets.load_wine()
        return PublicData(name, _scaled(dataset.data), (dataset.target > 0).astype(np.int64))
    raise BadInput("bundled data are 'breast cancer', 'diabetes' and 'wine'.")


def generated(rows: int, columns: int = 8, seed: int = 0) -> PublicData:
    """Generate two classes of correlated Gaussian features, when the textbook's data have too few rows."""
    generator = np.random.default_rng(seed)
    label = generator.integers(0, 2, rows)
    mixing = generator.normal(size=(columns, columns)) * 0.3 + np.eye(columns)
    apart = generator.normal(size=columns)
    features = generator.normal(size=(rows, columns)) @ mixing + np.outer(label - 0.5, 1.5 * apart)
    return PublicData(f"{rows} generated rows", np.clip(features / 5, -1, 1), label)


def _scaled(rows: Floats) -> Floats:
    low, high = rows.min(axis=0), rows.max(axis=0)
    return np.asarray(2 * (rows - low) / np.where(high > low, high - low, 1.0) - 1)


def sklearn_part(name: str) -> Any:
    """Import a module of scikit-learn, or raise an error that says how to install it."""
    from importlib import import_module

    try:
        return import_module(f"sklearn.{name}")
    except ImportError:
        raise MissingExtra("the case study needs scikit-learn: pip install 'cloister[learn]'.") from None

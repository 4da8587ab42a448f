"""Tables of numbers with a label of two classes, for the case study of Gaussians. All are public or generated."""

import numpy as np
import pandas as pd

from cloister.lessons.public_data import PublicData
from synthesis.data import SHARED

__all__ = ["bent", "german"]


def german() -> PublicData:
    """Statlog's German credit, from the shared folder: categories as numbers, everything scaled to [-1, 1]."""
    found = pd.read_csv(SHARED / "german-credit" / "german.data", sep=" ", header=None)
    label = (found.pop(20) == 2).to_numpy(np.int64)
    codes = [
        found[name] if found[name].dtype.kind == "i" else pd.factorize(found[name], sort=True)[0] for name in found
    ]
    rows = np.column_stack(codes).astype(float)
    low, high = rows.min(axis=0), rows.max(axis=0)
    return PublicData("German credit", 2 * (rows - low) / (high - low) - 1, label)


def bent(rows: int = 20_000, seed: int = 0) -> PublicData:
    """Two classes on two parabolas that cross, and four more numbers: one Gaussian for each class misses the bend."""
    random = np.random.default_rng(seed)
    label, along = random.integers(0, 2, rows), random.uniform(-1, 1, rows)
    up = np.where(label == 1, 1, -1) * (along**2 - 1 / 3) + random.normal(0, 0.12, rows)
    slopes = ((0.6, 0.2, 0.0), (-0.3, 0.5, 0.2), (0.2, -0.4, 0.4), (0.5, 0.1, -0.3))
    more = [a * along + b * up + c * np.abs(along) + random.normal(0, 0.2, rows) for a, b, c in slopes]
    return PublicData("generated", np.clip(np.column_stack([along, up, *more]) / 1.4, -1, 1), label)

"""Synthetic hospital visits for the demo, the documentation and the tests.

Generated from a fixed seed: the table is always the same and describes no real person.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.noise import SeededSource

__all__ = ["SCHEMA", "WARDS", "hospital"]

WARDS = ("cardiology", "emergency", "geriatrics", "maternity", "neurology", "surgery")

# The schema of the table that `hospital()` returns, as its owner would write it.
SCHEMA: dict[str, Any] = {
    "unit": {"name": "patient", "max_rows": 8},
    "tables": {
        "visits": {
            "unit": "patient",
            "rows": 6000,
            "columns": {
                "ward": {"type": "text", "categories": list(WARDS), "nullable": False},
                "age": {"type": "integer", "bounds": [0, 100], "nullable": False},
                "stay_days": {"type": "integer", "bounds": [0, 60], "nullable": False},
                "cost": {"type": "real", "bounds": [0, 50000], "nullable": False},
                "admitted": {"type": "date", "bounds": ["2025-01-01", "2025-12-31"], "nullable": False},
                "readmitted": {"type": "integer", "bounds": [0, 1], "nullable": False},
            },
        }
    },
}

_SHARE = (0.16, 0.34, 0.14, 0.09, 0.11, 0.16)
_MEAN_STAY = (5.0, 1.5, 9.0, 3.0, 6.0, 4.0)


def hospital(patients: int = 4_000, seed: str = "hospital") -> dict[str, NDArray[Any]]:
    """Return synthetic hospital visits: one to three for most patients, many for a few.

    Columns: patient (text), ward, age (0-100), stay_days (0-60), cost (0-50,000), admitted (a date), readmitted (0/1).
    """
    source = SeededSource(seed)
    visits = 1 + np.minimum((-np.log(source.floats(patients)) * 0.9).astype(int), 20)
    person = np.repeat(np.arange(patients), visits)
    n = len(person)
    ward = np.searchsorted(np.cumsum(_SHARE[:-1]), source.floats(n))
    age_at_first = np.clip(20 + 75 * source.floats(patients) ** 0.8, 0, 100)[person]
    age = np.where(ward == 3, 18 + 27 * source.floats(n), np.where(ward == 2, 65 + 0.35 * age_at_first, age_at_first))
    stay = np.minimum((-np.log(source.floats(n)) * np.take(_MEAN_STAY, ward)).astype(int), 60)
    cost = np.minimum(250 + 620 * stay + 900 * -np.log(source.floats(n)) * (1 + (ward == 5)), 50_000)
    risk = 0.06 + 0.10 * (age > 70) + 0.08 * (stay > 10)
    return {
        "patient": np.char.add("P", np.char.zfill(person.astype(str), 5)),
        "ward": np.take(WARDS, ward),
        "age": np.clip(age, 0, 100).astype(np.int64),
        "stay_days": stay.astype(np.int64),
        "cost": np.round(cost, 2),
        "admitted": np.datetime64("2025-01-01") + (365 * source.floats(n)).astype("timedelta64[D]"),
        "readmitted": (source.floats(n) < risk).astype(np.int64),
    }

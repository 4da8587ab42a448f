"""Random tables for the tests of this room."""

import datetime as dt

import numpy as np


def people(rows, seed=0, *, missing=0.0):
    """Return a table of people with numbers, texts, dates and codes, some of them missing."""
    draw = np.random.default_rng(seed)
    table = {
        "age": draw.integers(18, 90, rows).tolist(),
        "zip": [f"{code:05d}" for code in draw.choice([33617, 33620, 33613, 32005, 32102], rows)],
        "sex": draw.choice(["f", "m"], rows).tolist(),
        "born": [dt.date(1930, 1, 1) + dt.timedelta(days=int(days)) for days in draw.integers(0, 25_000, rows)],
        "income": np.round(draw.lognormal(10, 0.5, rows), 2).tolist(),
        "disease": draw.choice(["flu", "cancer", "ulcer", "asthma"], rows, p=[0.5, 0.2, 0.2, 0.1]).tolist(),
    }
    if missing:
        for name in ("age", "zip", "born", "disease"):
            table[name] = [None if draw.random() < missing else cell for cell in table[name]]
    return table


QUASI = ["age", "zip", "sex"]

"""Stealing of linear models, and reconstruction of a block of people from published statistics."""

import time
from collections import Counter
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
from learning.data import SHARED, adult, images
from sklearn.linear_model import LogisticRegression

import cloister as cl
from cloister.attack import steal
from cloister.attack.models.stealing import copy_linear
from cloister.attack.queries.reconstruction import Published, reconstruct
from cloister.privacy.mechanisms import DiscreteLaplace
from cloister.privacy.noise import SYSTEM

__all__ = ["block", "stolen"]

# Garfinkel, Abowd & Martindale 2018, "Understanding database reconstruction attacks on public data", table 1.
BLOCK = {"sex": ("F", "M"), "race": ("B", "W"), "married": ("M", "S")}
PRINTED = [
    Published({}, 7, 30, 38), Published({"sex": "F"}, 4, 30, "33.5"), Published({"sex": "M"}, 3, 30, 44),
    Published({"race": "B"}, 4, 51, "48.5"), Published({"race": "W"}, 3, 24, 24),
    Published({"married": "M"}, 4, 51, 54), Published({"sex": "F", "race": "B"}, 3, 36, "36.7"),
]  # fmt: skip


def stolen() -> list[dict[str, Any]]:
    """Steal logistic regressions of two and of ten classes from as few answers as they have weights."""
    made = []
    if (SHARED / "adult").exists():
        table = adult()
        made.append(("Adult, 2 classes", table.X[:5000], table.y[:5000], table.Xt[:2000]))
    draw = np.random.default_rng(0)
    name, pictures = images(4000)
    rows, labels = pictures[:2000], (pictures[:2000] @ draw.normal(size=(pictures.shape[1], 10))).argmax(axis=1)
    made.append((f"{name}, 10 classes", rows, labels, pictures[2000:]))
    found = []
    for name, rows, labels, test in made:
        model = LogisticRegression(max_iter=200).fit(rows, labels)
        copy = copy_linear(model, box=(0, 1), width=rows.shape[1], random_state=1)
        # Softmax weights mean the same up to a shift of all classes: compare with the first class at 0.
        coef = model.coef_ if len(model.coef_) == 1 else model.coef_[1:] - model.coef_[0]
        seen = steal(model, test=test, box=(0, 1), random_state=1)
        found.append({"name": name, "weights": int(copy.coef.size + copy.intercept.size), "queries": copy.queries,
                      "error": float(np.abs(copy.coef - coef).max()), "agreement": seen.success})  # fmt: skip
    return found


def block(tries: int, most: int) -> dict[str, Any]:
    """Reconstruct the published block, and the same from answers that cost epsilon 1 together.

    Against noise the attacker even gets all counts exactly, and the 99 % margin of each noise.
    """
    start = time.perf_counter()
    exact = reconstruct(PRINTED, BLOCK)
    seconds = time.perf_counter() - start
    noise = DiscreteLaplace.for_loss(125, cl.epsilon(1).split(len(PRINTED)))
    reach, certain, fit = noise.margin("0.99"), [], []
    for _ in range(tries):
        noisy = []
        for one in PRINTED:
            mean = int(noise.release(round(float(one.mean) * one.count), SYSTEM)) / one.count
            noisy.append(Published(one.who, one.count, None, mean, within=reach / one.count))
        found = reconstruct(noisy, BLOCK, most=most)
        # A list that was cut bounds from above who is in all blocks: those in all that were found.
        shared = reduce(and_, map(Counter, found.tables)) if found.tables else Counter()
        certain.append(shared.total())
        fit.append(len(found.tables))
    return {"seconds": seconds, "tables": len(exact.tables), "certain": len(exact.certain()),
            "noisy certain": certain, "noisy fit": fit, "most": most}  # fmt: skip

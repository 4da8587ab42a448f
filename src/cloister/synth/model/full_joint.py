"""The full joint distribution as one table of cells, for small domains.

check_cells(ds, table, columns, bins, most)      # refuses with a message, before any charge
model = full_joint(domain, counts, total)        # from noisy counts of every cell
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cloister.data.private_data import PrivateData
from cloister.privacy.errors import BadInput
from cloister.synth.domain.coarsening import nonnegative
from cloister.synth.domain.domain import Domain, Zero, read_domain
from cloister.synth.measure.marginals import Floats
from cloister.synth.model.inference import Grain, Model
from cloister.synth.model.junction_tree import junction_tree
from cloister.synth.options import MOST_ALLOWED, check_whole

__all__ = ["MOST_CELLS", "allowed_cells", "check_cells", "full_joint"]

MOST_CELLS = 1_000_000
_MOST_COLUMNS = 50


def check_cells(
    data: PrivateData, table: str | None, columns: Sequence[str] | None, bins: Any, most: int, method: str
) -> Domain:
    """Refuse a domain whose cross product is too large. From public facts only; nothing is charged or read."""
    check_whole("most_cells", most, most=MOST_ALLOWED)
    domain, _ = read_domain(data, table=table, columns=columns, bins=bins)
    cells = math.prod(domain.shape)
    if len(domain.shape) > _MOST_COLUMNS:  # of one value each, or there would be too many cells
        raise BadInput(f"{method} takes at most {_MOST_COLUMNS} columns. Name fewer, or use synth.mst or synth.aim.")
    if cells > most:
        sides = " × ".join(f"{size} {axis.name}" for size, axis in zip(domain.shape, domain.modelled, strict=True))
        raise BadInput(
            f"{method} keeps every combination of values, also those that nobody has: {sides:.300} are {cells:,} "
            f"cells, and {most:,} are the most. Name fewer columns or give fewer bins; or use synth.mst or synth.aim, "
            "which keep marginals instead."
        )
    return domain


def allowed_cells(domain: Domain) -> Floats:
    """Return one for each combination that can occur, zero for structural zeros."""
    allowed = np.ones(domain.shape)
    for zero in domain.zeros:
        sides = [size if column in zero.positions else 1 for column, size in enumerate(domain.shape)]
        allowed *= zero.allowed.reshape(sides)
    if not allowed.any():
        raise BadInput("never leaves no combination that could occur. Look at the schema.")
    return allowed


def full_joint(domain: Domain, counts: Floats, total: float | None = None) -> Model:
    """Return the joint distribution closest to noisy counts: nonnegative, and zero at structural zeros.

    The projection keeps the total. Setting negative counts to zero instead would add rows, and normalising afterwards
    would take them from the heaviest cells.

    Args:
        domain: the domain.
        counts: the count of every cell.
        total: number of rows; the sum of the counts unless given.
    """
    allowed = allowed_cells(domain).ravel() > 0
    noisy = counts.ravel()[allowed]
    rows = max(1.0, float(noisy.sum()) if total is None else total)
    shares = np.zeros(counts.size)
    shares[allowed] = nonnegative(noisy, rows) / rows
    joint = (shares / shares.sum()).reshape(domain.shape)
    positions = tuple(range(len(domain.shape)))
    model = Model(
        domain.shape,
        junction_tree(domain.shape, [positions]),
        {positions: np.log(np.where(joint > 0, joint, 1.0))},
        (Zero(positions, joint > 0),),
        rows,
        tuple(Grain.whole(size) for size in domain.shape),
    )
    model.beliefs = [joint]
    return model

"""Numbers, on the device: to the grid, before any mechanism tosses."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.number import NumberMechanism
from cloister.local.client.perturb import checked

__all__: list[str] = []


@checked.register
def _points(mechanism: NumberMechanism, values: Any) -> NDArray[np.int64]:
    return mechanism.points(values)

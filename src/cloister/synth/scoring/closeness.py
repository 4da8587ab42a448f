"""The distance to the closest record: are synthetic rows closer to the rows they were made from than to strangers?"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cloister.synth.scoring.figure import Figure
from cloister.synth.scoring.membership import area
from cloister.synth.scoring.rows import Floats

__all__ = ["Closeness", "compare_closeness"]

_QUANTILES = (0.001, 0.01, *(i / 20 for i in range(1, 20)), 0.99)


@dataclass(frozen=True, slots=True)
class Closeness:
    """Distances between 0 and 1, of real rows against as many that were held back.

    Attributes:
        closer: the share of synthetic rows that are closer to a real row than to a held-back one, ties half; 1/2 is
            chance. Its interval takes synthetic rows as independent, which they nearly are.
        nearer: how often a real row has a closer synthetic row than a held-back one has (DeLong's interval).
        real, fresh: quantiles of the distances of synthetic rows to the closest real and held-back row.
        zero: the shares of synthetic rows at distance 0 of a real, and of a held-back row.
    """

    closer: Figure
    nearer: Figure
    real: dict[float, float]
    fresh: dict[float, float]
    zero: tuple[float, float]

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        quantiles = [{"share": q, "real": self.real[q], "fresh": self.fresh[q]} for q in self.real]
        told = {"closer to real": self.closer.to_json(), "real rows are nearer": self.nearer.to_json()}
        return {**told, "quantiles": quantiles, "distance 0": {"real": self.zero[0], "fresh": self.zero[1]}}


def compare_closeness(to_real: tuple[Floats, Floats], to_fresh: tuple[Floats, Floats]) -> Closeness:
    """Compare what `closest` found, for each synthetic row and for each real or held-back one."""
    wins = np.where(to_real[0] == to_fresh[0], 0.5, to_real[0] < to_fresh[0])
    error = float(wins.std(ddof=1) / np.sqrt(len(wins))) if len(wins) > 1 else 0.5
    return Closeness(
        Figure.of(float(wins.mean()), error, 0.0, 1.0),
        area(-to_real[1], -to_fresh[1]),
        {q: float(np.quantile(to_real[0], q)) for q in _QUANTILES},
        {q: float(np.quantile(to_fresh[0], q)) for q in _QUANTILES},
        (float((to_real[0] == 0).mean()), float((to_fresh[0] == 0).mean())),
    )

"""Ridge regression from second moments with noise."""

import os
from typing import Any

import numpy as np

from cloister.learn.linear import LinearRegression
from cloister.learn.moments import Floats
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss

__all__ = ["Ridge"]

_HEAVIEST = 1e15  # in rows: coefficients are zero from there on, and a heavier penalty leaves a matrix singular


class Ridge(LinearRegression):
    """Least squares with a penalty alpha · |coefficients|², as in scikit-learn.

    Args:
        alpha: the penalty, public; the noise adds what it makes necessary.
        spend, bounds, data_norm, target_bounds, method, fill, ledger, account, random_state: see `LinearRegression`.

    Standard errors speak of the ridge solution of the population, which is what is estimated.

    Privacy: as `LinearRegression`.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        alpha: float = 1.0,
        bounds: Any = None,
        data_norm: float | None = None,
        target_bounds: Any = None,
        method: str = "moments",
        fill: float | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            spend,
            bounds=bounds,
            data_norm=data_norm,
            target_bounds=target_bounds,
            method=method,
            fill=fill,
            ledger=ledger,
            account=account,
            random_state=random_state,
        )
        self.alpha = alpha

    def _penalty(self, scale: Floats) -> Floats:
        # A coefficient of the data is height · scale times a scaled one; the height goes out of the whole objective.
        return np.append(np.minimum(float(self.alpha) * scale**2, _HEAVIEST), 0.0)

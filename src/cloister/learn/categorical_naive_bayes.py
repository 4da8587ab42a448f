"""Naive Bayes by counting, where every column is one of categories."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from cloister.learn.mixed_naive_bayes import MixedNB
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss

__all__ = ["CategoricalNB"]


class CategoricalNB(MixedNB):
    """Naive Bayes for columns of categories.

    Args:
        spend: what the fit may cost.
        categories: one list of public values for each column, or a number k for values 0 … k-1 in every column.
        classes, alpha, method, calibrate, ledger, account, random_state: see `MixedNB`.

    Privacy: as `MixedNB`.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        categories: Sequence[Sequence[Any]] | Mapping[Any, Sequence[Any]] | int | None = None,
        classes: Sequence[Any] | None = None,
        alpha: float = 1.0,
        method: str = "counts",
        calibrate: bool = True,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        self.spend = spend
        self.categories = categories
        self.classes = classes
        self.alpha = alpha
        self.method = method
        self.calibrate = calibrate
        self.ledger = ledger
        self.account = account
        self.random_state = random_state

    bins = 16

    def _bounds(self) -> Any:
        return None

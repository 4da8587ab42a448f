"""What every estimator shares: who pays, what is written down, what a fit leaves behind.

An estimator is a scikit-learn estimator: its constructor stores, `fit` learns, `clone` and pipelines work. Beside the
model's own parameters it has

    spend         what the fit may cost: epsilon(1, delta="1e-6"), rho("0.02"), or a pure epsilon(1)
    bounds        public (low, high) of the features; classes: the public list of labels
    ledger        a Ledger or a folder; a new account of exactly this spend is opened in it for each fit
    account       an account that pays instead, such as a dataset's
    random_state  a seed, for teaching and tests: the fit is then marked `not private`

and after `fit`: `release_` (loss, receipt, whether it is private), `loss_`, and `n_features_in_`.
"""

import os
import secrets
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sklearn.base import BaseEstimator, clone

from cloister.learn.inputs import is_dataset
from cloister.learn.purse import Purse, purse
from cloister.learn.shared import Rehearsal, part_of, paying_now, refuse_free_scores
from cloister.privacy.errors import BadInput
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.meter import Meter, measure_steps
from cloister.privacy.noise import SYSTEM, SeededSource, Source
from cloister.privacy.release import Release
from cloister.privacy.unit import ROW, Unit

if TYPE_CHECKING:
    from cloister.learn.fetched import Fetched

__all__ = ["PrivateEstimator"]

T = TypeVar("T")


class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """Charges once, trains in steps that the meter counts down, and keeps the receipt.

    Privacy: the spend, for one row added or removed (or for the unit of the dataset it is fitted on). Bounds, classes,
        the number of features and all parameters are taken to be public; the number of rows is not.
    """

    spend: Loss | None
    ledger: Ledger | str | os.PathLike[str] | None
    account: Account | None
    random_state: Any

    def _train(self, steps: Callable[[Meter, Purse], T], data: Any = None, asked: str = "") -> T:
        """Charge the spend, carry the steps out, keep what proves it.

        Args:
            steps: reads rows only inside `meter.release`; returns what follows from released values.
            data: the Cloister dataset the rows are in, if they are in one.
            asked: what of it is read, for the ledger.
        """
        refuse_free_scores()
        budget = purse(self.spend)
        meter = paying_now()
        if meter is not None:
            return self._train_within(meter, steps, budget, data)
        source = self._source()
        accounts, unit, version, label = self._payers(budget.loss, data)
        model, receipt = measure_steps(
            lambda meter: steps(meter, budget),
            accounts=accounts,
            spend=budget.loss,
            request=f"{label}{self._request()}{asked and f' on {asked}'}",
            unit=unit,
            data_version=version,
            source=source,
        )
        self.loss_ = budget.loss
        self.release_ = Release(
            value=model,
            loss=budget.loss,
            unit=unit,
            mechanism=receipt.body["mechanism"],
            parameters={},
            private=source.private,
            receipt=receipt,
        )
        return model

    def _train_rows(self, steps: Callable[[Meter, Purse], T], source: "Fetched") -> T:
        """The same for a method that protects one row, on the rows of a dataset (learn/fetched.py).

        Privacy: the spend, for the dataset's unit: the steps get what one of its rows may cost (`Purse.of_a_row`).
        """
        most = source.relation.rows_each

        def of_rows(meter: Meter, budget: Purse) -> T:
            each = budget.of_a_row(most)
            return steps(part_of(meter, each.loss), each)

        model = self._train(of_rows, source.data, asked=source.asked)
        told = {"rows of a unit": str(most), "a row": str(purse(self.spend).of_a_row(most).loss)}
        self.release_ = replace(self.release_, parameters=told)
        return model

    def _train_within(
        self, meter: Meter | Rehearsal, steps: Callable[[Meter, Purse], T], budget: Purse, data: Any
    ) -> T:
        """Train as one of several fits under one charge; the receipt is that of the whole (learn/shared.py)."""
        unit = ROW
        if is_dataset(data):
            # The rows of a dataset are paid for by its own account, or are none at all.
            free = isinstance(meter, Rehearsal)
            if not (getattr(data, "empty", False) if free else _same(data.account, meter)):
                raise BadInput("a selection or cross-validation needs rows as arrays or frames.")
            unit = data.tables.schema.unit
        model = steps(part_of(meter, budget.loss), budget)
        self.loss_ = budget.loss
        self.release_ = Release(model, budget.loss, unit, "a part of a larger work", {}, private=meter.source.private)
        return model

    def __sklearn_clone__(self) -> Self:
        """A copy that is not fitted. Ledger and account are shared: a copy of a book would be another book."""
        told = {
            name: value if name in ("ledger", "account") else clone(value, safe=False)
            for name, value in self.get_params(deep=False).items()
        }
        copy = type(self)(**told)
        for name in ("_metadata_request", "_sklearn_output_config"):  # what set_output and routing left behind
            if hasattr(self, name):
                setattr(copy, name, deepcopy(getattr(self, name)))
        return copy

    def _request(self) -> str:
        """What was asked, from public parameters alone."""
        named = {name: value for name, value in sorted(self.get_params(deep=False).items()) if name not in _NOT_ASKED}
        return f"fit {type(self).__name__} {named!r}"

    def _source(self) -> Source:
        return SYSTEM if self.random_state is None else SeededSource(str(self.random_state))

    def _payers(self, loss: Loss, data: Any) -> tuple[list[Account], Unit, str, str]:
        """Whose accounts pay, for whom the rows stand, which version of the data they are, and the work's label."""
        if data is not None and is_dataset(data):
            reader = getattr(data, "reader", None)
            accounts = [data.account, *([] if reader is None else [reader.account])]
            label = f"{reader.label}\n" if reader is not None and reader.label else ""
            return accounts, data.tables.schema.unit, data.version, label
        if self.account is not None:
            return [self.account], ROW, "", ""
        book = self.ledger if isinstance(self.ledger, Ledger) else Ledger.in_folder(self.ledger or ".cloister")
        name = f"{type(self).__name__}-{secrets.token_hex(6)}"
        return [book.open_account(name, loss)], ROW, "", ""


def _same(account: Any, meter: Any) -> bool:
    """Whether a meter counts down what this very account has paid."""
    return isinstance(account, Account) and account.rules == meter.account.rules


_NOT_ASKED = {"ledger", "account", "random_state", "spend"}

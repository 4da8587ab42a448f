"""The only path from rows to a release: charge the ledger, look, add noise, release.

    request ──► reserve (durable) ──► look ──► exact noise ──► commit ──► Release with receipt
                     │ refused: nothing changed, nothing read

`look` is the only place where rows are read, and it is called only after the charge is on disk.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np

from cloister.privacy.errors import BadInput, LookFailed
from cloister.privacy.ledger import Account, Charge
from cloister.privacy.loss import ROW, Loss, Unit
from cloister.privacy.mechanisms import Mechanism, Numeric
from cloister.privacy.noise import SYSTEM, Source
from cloister.privacy.receipt import Receipt
from cloister.privacy.release import Release
from cloister.privacy.signing import fingerprint

__all__ = ["measure", "measure_all", "released_text"]


def measure(
    look: Callable[[], Any],
    mechanism: Mechanism,
    *,
    account: Account,
    besides: Sequence[Account] = (),
    request: str,
    unit: Unit = ROW,
    data_version: str = "",
    source: Source | None = None,
) -> Release:
    """Release one bounded statistic.

    Args:
        look: computes the statistic from private rows; called once, after the charge.
        mechanism: states sensitivity and loss, and adds the noise (or makes the choice).
        account: the account charged.
        besides: accounts of the same ledger that are charged equally in the same entry (for example an analyst's).
        request: the request, in words or SQL; its hash enters ledger and receipt.
        unit: the unit of privacy of the sensitivity.
        data_version: the owner's name for this state of the data.
        source: the source of random bits; a seeded one marks the release `not private`.

    Privacy: the mechanism's loss, for the unit and relation stated, provided neighbouring tables move what `look`
        returns by at most the mechanism's sensitivity. If `look` fails the charge stands, and the error reveals nothing
        else. Audited in tests/statistical/test_mechanism_audits.py.
    """
    values, receipt = measure_all(
        lambda: [look()],
        [mechanism],
        accounts=[account, *besides],
        request=request,
        unit=unit,
        data_version=data_version,
        source=source,
    )
    numeric = isinstance(mechanism, Numeric)
    return Release(
        value=values[0],
        loss=account.price(mechanism),
        unit=unit,
        mechanism=mechanism.name,
        parameters=mechanism.parameters(),
        standard_error=mechanism.standard_error if isinstance(mechanism, Numeric) else None,
        private=(source or SYSTEM).private,
        receipt=receipt,
        _margin=mechanism.margin if numeric else None,  # type: ignore[attr-defined]
    )


def measure_all(
    look: Callable[[], Sequence[Any]],
    mechanisms: Sequence[Mechanism],
    *,
    accounts: Sequence[Account],
    extra: Mapping[str, Loss] | None = None,
    request: str,
    unit: Unit = ROW,
    data_version: str = "",
    source: Source | None = None,
) -> tuple[list[Any], Receipt]:
    """Release several statistics of one look: one charge, one receipt.

    Args:
        look: computes one statistic for each mechanism.
        mechanisms: composed sequentially.
        accounts: each is charged the whole, all or none (for example a dataset's and an analyst's).
        extra: the additional charge in the same entry, by account key.
        request, unit, data_version, source: as in `measure`.

    Privacy: the sum of the mechanisms' losses.
    """
    if not mechanisms or not accounts:
        raise BadInput("a release needs at least one mechanism and one account.")
    source = source or SYSTEM
    prices = [sum((account.price(mechanism) for mechanism in mechanisms), start=_zero(account)) for account in accounts]
    more = [(extra or {}).get(account.rules.key, _zero(account)) for account in accounts]
    prices = [price + beyond for price, beyond in zip(prices, more, strict=True)]
    charge = accounts[0].book.reserve(list(zip(accounts, prices, strict=True)), request)
    values = _perform(charge, look, mechanisms, source)
    entry = charge.commit()
    receipt = Receipt.of_charge(
        charge,
        entry,
        accounts[0].book.key,
        request=request,
        unit=unit,
        data_version=data_version,
        parameters=[{"mechanism": mechanism.name, **mechanism.parameters()} for mechanism in mechanisms],
        loss=prices[0],
        answer=fingerprint("\n".join(map(released_text, values))),
        private=source.private,
    )
    return values, receipt


def _perform(
    charge: Charge, look: Callable[[], Sequence[Any]], mechanisms: Sequence[Mechanism], source: Source
) -> list[Any]:
    charge.look()
    try:
        statistics = look()
        return [
            mechanism.release(statistic, source) for mechanism, statistic in zip(mechanisms, statistics, strict=True)
        ]
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # polars panics with an error that is no Exception
        # The error and its kind may depend on rows: they must not reach the caller.
        raise LookFailed(
            "the statistic could not be computed. The charge stands; ask the owner to look into it.",
            owner_detail=getattr(error, "owner_detail", "") or f"{type(error).__name__}: {error}",
        ) from None


def _zero(account: Account) -> Loss:
    return Loss.nothing(account.cap.measure, account.cap.relation)


def released_text(value: Any) -> str:
    """Return a released value as exact text."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return f"{value.dtype.str} {value.shape} {sha256(np.ascontiguousarray(value).data).hexdigest()}"
    return repr(value.tolist() if isinstance(value, np.ndarray | np.generic) else value)

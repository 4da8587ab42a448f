"""Differentially private frequent itemsets: the k most frequent itemsets with noisy counts, under one charge.

    found = private_itemsets(baskets, items, k=20, spend=cl.epsilon(1), account=account)

Steps, each paid from the charge (after Bhaskar et al. 2010 and PrivBasis, Li et al. 2012):

    1  choose the base items, by rounds of the exponential mechanism over the public items
    2  choose k itemsets of base items, by rounds of the exponential mechanism over all of them up to `max_size`
    3  count the chosen itemsets and all baskets, with discrete noise

Why it is private: a basket that is added moves every count up by 0 or 1, however many items it has. So each round of
the exponential mechanism has scores of sensitivity 1 that move in the same direction (steps 1 and 2), and the k + 1
counts of step 3 move by at most k + 1 in sum and sqrt(k + 1) in length. Candidates of a step follow from public items
and earlier releases. Where a person has several baskets, the first `max_baskets` of each are kept, a choice that
depends on that person's rows only, and all sensitivities are `max_baskets` times as large.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cloister.anonymize.mining.transactions import Codes, Transactions, read_baskets
from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadInput
from cloister.privacy.filter import BudgetShare, PrivacyFilter, budget_share, noise_for, release_steps
from cloister.privacy.ledger import Account
from cloister.privacy.loss import Loss, Unit
from cloister.privacy.mechanisms import TopK, root_above
from cloister.privacy.noise import SYSTEM, SeededSource, Source
from cloister.privacy.release import Release
from cloister.privacy.signing import fingerprint

__all__ = ["PrivateItemsets", "private_itemsets"]

_BASE, _CHOICE, _COUNT = Fraction(1, 5), Fraction(2, 5), Fraction(2, 5)
_MOST = 500_000  # candidates of one choice
_WORDS = 1 << 22  # words of one vectorised intersection: 32 MB


@dataclass(frozen=True)
class PrivateItemsets:
    """Itemsets chosen privately, the most frequent first, by noisy count.

    Attributes:
        itemsets: the chosen itemsets, by name.
        counts: noisy number of baskets of each; may be negative.
        baskets: noisy number of baskets.
        margin: bound on the noise of each count that holds with probability 0.95, per count.
        release: loss, unit, receipt, and whether the noise protects.
    """

    itemsets: tuple[tuple[str, ...], ...]
    counts: Codes
    baskets: int
    margin: float
    release: Release

    def __len__(self) -> int:
        return len(self.itemsets)

    @property
    def support(self) -> NDArray[np.float64]:
        """Estimated shares of the baskets, within 0 and 1."""
        return np.asarray(np.clip(self.counts / max(self.baskets, 1), 0.0, 1.0))

    def to_arrow(self) -> pa.Table:
        """Return a table with the columns `itemset`, `count`, `margin` and `support`."""
        return pa.table(
            {
                "itemset": pa.array(self.itemsets, pa.list_(pa.string())),
                "count": pa.array(self.counts),
                "margin": pa.array(np.full(len(self), self.margin)),
                "support": pa.array(self.support),
            }
        )

    def to_pandas(self) -> Any:
        """Return the table as a pandas frame."""
        return self.to_arrow().to_pandas()


def private_itemsets(
    rows: Any,
    items: Sequence[str],
    *,
    k: int,
    spend: Loss | None,
    account: Account,
    max_size: int = 2,
    base_items: int | None = None,
    basket: str | None = None,
    item: str | None = None,
    person: str | None = None,
    max_baskets: int = 1,
    data_version: str = "",
    random_state: int | None = None,
) -> PrivateItemsets:
    """Release the k most frequent itemsets with noisy counts.

    Args:
        rows: baskets in any form that `read_baskets` takes. In a frame with one column per item every number above 0
            is an item of the basket: no number may stop a release, since that would show it.
        items: the public list of all items. It must not come from the baskets; other items are ignored.
        k: number of itemsets.
        spend: a pure epsilon, an (epsilon, delta) or a rho; all of it is charged.
        account: the account charged.
        max_size: largest number of items of an itemset.
        base_items: number of items that itemsets are built from; k of them suffice, and fewer leave less noise.
        basket, item: columns, for rows with one item each.
        person: column of the person, for rows with one item each; then one person is the unit. A person without a name
            (NULL) is left out.
        max_baskets: number of baskets that a person keeps.
        data_version: the owner's name for this state of the data.
        random_state: a seed, for teaching and tests: the release is then marked `not private`.

    Privacy: the spend, for one basket added or removed (for one person with up to `max_baskets` baskets, if `person` is
        given). The list of items and all options are public; the number of baskets is not. Rows are read after the
        charge. Attacked in tests/unit/anonymize/test_mining_private_itemsets.py.

    Raises:
        BadInput: an option is wrong; nothing is charged.
        OverBudget: the account cannot pay; nothing is read.
    """
    names = _check_items(items)
    bases = _check_sizes(len(names), k, max_size, base_items, max_baskets)
    if person is None and max_baskets != 1:
        raise BadInput("max_baskets needs the column of the person: person='customer'.")
    if person is not None and (basket is None or item is None):
        raise BadInput("a person's baskets are read from rows with one item each: give basket= and item= too.")
    if not isinstance(account, Account):
        raise BadInput("an account pays: account=ledger.open_account('baskets', epsilon(2)).")
    for name in _lacking(rows, basket, item, person):
        raise BadInput(f"the rows have no column {name!r:.60}. Name the columns of basket, item and person.")
    budget = budget_share(spend, "the itemsets", "itemsets")

    @lru_cache(maxsize=1)
    def look() -> Transactions:
        if person is None:
            return read_baskets(rows, basket=basket, item=item, items=names, amounts=True)
        return _bounded(rows, str(basket), str(item), person, max_baskets, names)

    unit = Unit("basket") if person is None else Unit(person, max_rows=max_baskets)
    settings = (fingerprint("\n".join(names)), k, bases, max_size, basket, item, person, max_baskets)
    source: Source = SYSTEM if random_state is None else SeededSource(str(random_state))
    (itemsets, noisy, margin), receipt = release_steps(
        itemset_steps(look, len(names), budget, k=k, bases=bases, max_size=max_size, weight=max_baskets),
        accounts=[account],
        spend=budget.loss,
        request=f"private itemsets {settings!r}",
        unit=unit,
        data_version=data_version,
        source=source,
    )
    order = np.argsort(-noisy[:-1], kind="stable")
    chosen = tuple(tuple(names[code] for code in itemsets[rank]) for rank in order)
    release = Release(
        value=chosen,
        loss=budget.loss,
        unit=unit,
        mechanism=receipt.body["mechanism"],
        parameters={"k": str(k), "base items": str(bases), "max size": str(max_size)},
        private=source.private,
        receipt=receipt,
    )
    return PrivateItemsets(chosen, noisy[:-1][order], int(noisy[-1]), margin, release)


_Chosen = tuple[list[tuple[int, ...]], NDArray[np.int64], float]


def itemset_steps(
    look: Callable[[], Transactions],
    items: int,
    budget: BudgetShare,
    *,
    k: int,
    bases: int,
    max_size: int,
    weight: int = 1,
) -> Callable[[PrivacyFilter], _Chosen]:
    """Return the steps of a release: chosen itemsets, their noisy counts and that of all baskets, and the margin.

    Args:
        look: reads the baskets; called inside `meter.release` only.
        items: number of public items.
        budget: the spend to split.
        k, bases, max_size: see `private_itemsets`.
        weight: most baskets of one unit, so the sensitivity of every count.
    """

    def steps(meter: PrivacyFilter) -> _Chosen:
        shares = {"base": _BASE, "choice": _CHOICE, "count": _COUNT}
        base = list(range(items))
        if bases < items:
            chooser = TopK.for_loss(weight, budget.part(shares["base"]), k=bases, monotone=True)
            base = sorted(meter.release(lambda: look().counts, chooser))
        else:  # nothing to choose: its share goes to the counts
            shares["count"] += shares["base"]
        candidates = [
            np.array(list(combinations(base, size)), np.int64).reshape(-1, size)
            for size in range(1, min(max_size, bases) + 1)
        ]
        chooser = TopK.for_loss(weight, budget.part(shares["choice"]), k=k, monotone=True)
        picked = meter.release(lambda: np.concatenate([counts_of(look(), part) for part in candidates]), chooser)
        every = [tuple(map(int, row)) for part in candidates for row in part]
        chosen = [every[index] for index in picked]
        noise = noise_for(root_above(weight**2 * (k + 1)), weight * (k + 1), budget.part(shares["count"]))
        noisy = meter.release(lambda: _final_counts(look(), chosen), noise)
        return chosen, np.asarray(noisy), float(noise.margin("0.95"))

    return steps


def counts_of(baskets: Transactions, itemsets: Codes) -> Codes:
    """Return the number of baskets with each itemset of one size, in blocks of bounded memory."""
    bits = baskets.bits
    block = max(_WORDS // max(bits.shape[1], 1), 1)
    counts = np.zeros(len(itemsets), np.int64)
    for first in range(0, len(itemsets), block):
        part = itemsets[first : first + block]
        words = bits[part[:, 0]]
        for column in range(1, part.shape[1]):
            words &= bits[part[:, column]]
        counts[first : first + block] = np.bitwise_count(words).sum(axis=1, dtype=np.int64)
    return counts


def _final_counts(baskets: Transactions, chosen: Sequence[tuple[int, ...]]) -> Codes:
    """Return the counts of the chosen itemsets, and the number of baskets at the end."""
    counts = [int(counts_of(baskets, np.array([itemset], np.int64))[0]) for itemset in chosen]
    return np.array([*counts, len(baskets)], np.int64)


def _bounded(rows: Any, basket: str, item: str, person: str, most: int, items: Sequence[str]) -> Transactions:
    """Read the first baskets of every person. A basket id that two people share is two baskets."""
    table = to_arrow(rows)
    table = table.filter(pc.and_(pc.is_valid(table.column(basket)), pc.is_valid(table.column(person))))
    people, ids = (
        table.column(name).combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
        for name in (person, basket)
    )
    _, first, number = np.unique(people * (len(ids) + 1) + ids, return_index=True, return_inverse=True)
    owner = people[first]
    order = np.lexsort((first, owner))  # within a person, baskets in the order of their first rows
    starts = np.searchsorted(owner[order], owner[order])
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - starts
    kept = rank[number] < most
    inside = {"basket": pa.array(number[kept]), "item": table.column(item).filter(pa.array(kept))}
    return read_baskets(pa.table(inside), basket="basket", item="item", items=items)


def _lacking(rows: Any, *names: str | None) -> list[str]:
    """Return the columns that a frame or table lacks. Reads no cell."""
    known = getattr(rows, "column_names", None) or (
        rows if isinstance(rows, Mapping) else getattr(rows, "columns", None)
    )
    return [] if known is None else [name for name in names if name is not None and name not in list(known)]


def _check_items(items: Sequence[str]) -> tuple[str, ...]:
    listed = isinstance(items, Sequence) and not isinstance(items, str | bytes)
    if not listed or not items or not all(isinstance(name, str) for name in items):
        raise BadInput("items is the public list of all items, by name. It must not come from the baskets.")
    if len(set(items)) < len(items):
        raise BadInput("an item is listed twice. List each item once.")
    return tuple(items)


def _check_sizes(items: int, k: int, max_size: int, base_items: int | None, max_baskets: int) -> int:
    """Return the number of base items; refuse sizes that do not fit together."""
    bases = min(items, k if isinstance(k, int) else 1) if base_items is None else base_items
    for name, value in (("k", k), ("max_size", max_size), ("base_items", bases), ("max_baskets", max_baskets)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise BadInput(f"{name} is a whole number of at least 1.")
    if bases > items:
        raise BadInput(f"base_items is at most the number of items, {items}.")
    candidates = sum(comb(bases, size) for size in range(1, min(max_size, bases) + 1))
    if candidates > _MOST:
        raise BadInput(f"there are {candidates:,} candidates, and at most {_MOST:,} fit. Lower base_items or max_size.")
    if candidates < k:
        raise BadInput(f"{k} itemsets are to be chosen among {candidates}. Lower k, or raise base_items or max_size.")
    return bases

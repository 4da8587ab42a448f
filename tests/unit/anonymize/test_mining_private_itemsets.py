"""Private itemsets: charged once, right, and attacked on neighbouring baskets."""

from math import sqrt

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.anonymize.mining.private_itemsets import itemset_steps, private_itemsets
from cloister.anonymize.mining.transactions import Transactions, read_baskets
from cloister.privacy.errors import BadInput, BadLoss, LookFailed, OverBudget
from cloister.privacy.filter import budget_share
from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import epsilon, rho
from cloister.privacy.mechanisms import TopK
from cloister.privacy.noise import SeededSource

ITEMS = tuple("abcdefgh")


@pytest.fixture
def ledger(tmp_path):
    with Ledger.in_folder(tmp_path) as ledger:
        yield ledger


@pytest.fixture
def account(ledger):
    return ledger.open_account("baskets", epsilon(1000))


def baskets(size=2000):
    table = np.random.default_rng(1).random((size, 8)) < np.array([0.9, 0.8, 0.7, 0.3, 0.2, 0.15, 0.1, 0.05])
    return Transactions.of_dense(ITEMS, table)


class Recorder:
    """A filter that records every statistic with its mechanism, and draws the outputs or repeats given ones."""

    def __init__(self, outputs=None):
        self.outputs, self.repeat, self.steps = list(outputs or ()), outputs is not None, []

    def release(self, look, mechanism):
        statistic = np.asarray(look())
        self.steps.append((statistic, mechanism))
        if self.repeat:
            return self.outputs[len(self.steps) - 1]
        self.outputs.append(mechanism.release(statistic, SeededSource(len(self.steps))))
        return self.outputs[-1]


def replay(look, other, weight=1, k=4, bases=4, spend=None):
    """Run the steps on one table, and on its neighbour with the same released values."""
    public = {"k": k, "bases": bases, "max_size": 2, "weight": weight}
    budget = budget_share(spend or rho("0.5"))
    first = Recorder()
    itemset_steps(look, len(ITEMS), budget, **public)(first)
    second = Recorder(first.outputs)
    itemset_steps(other, len(ITEMS), budget, **public)(second)
    return list(zip(first.steps, second.steps, strict=True))


def check_moves(steps):
    """Fail if a statistic moved by more than its mechanism states."""
    for (one, mechanism), (other, same) in steps:
        assert mechanism == same
        moved = (one - other).astype(float)
        if isinstance(mechanism, TopK):
            assert np.abs(moved).max() <= mechanism.sensitivity
            assert mechanism.monotone
            assert (moved >= 0).all() or (moved <= 0).all()
        else:
            norm = np.abs(moved).sum() if mechanism.name == "discrete-laplace" else sqrt((moved**2).sum())
            assert norm <= float(mechanism.sensitivity) * (1 + 1e-12)


BASKET = st.sets(st.sampled_from([*ITEMS, "not listed"]))


@settings(deadline=None, max_examples=40)
@given(st.lists(BASKET, max_size=12), BASKET, st.sampled_from([rho("0.5"), epsilon(2)]), st.sampled_from([4, 8]))
def test_one_basket_moves_no_statistic_by_more_than_its_sensitivity(others, added, spend, bases):
    tables = [[sorted(basket) for basket in rows] for rows in (others, [*others, added])]
    looks = [lambda rows=rows: read_baskets(rows, items=ITEMS) for rows in tables]
    check_moves(replay(*looks, bases=bases, spend=spend))


def test_the_basket_with_all_items_reaches_the_sensitivity():
    rows = baskets(50).to_lists()
    looks = [lambda rows=rows: read_baskets(rows, items=ITEMS) for rows in (rows, [*rows, list(ITEMS)])]
    steps = replay(*looks)
    check_moves(steps)
    (before, noise), (after, _) = steps[-1]
    assert np.sqrt(((after - before) ** 2).sum()) == pytest.approx(float(noise.sensitivity))


def test_the_attack_catches_a_person_who_is_not_bounded():
    rows = baskets(50).to_lists()
    looks = [lambda rows=rows: read_baskets(rows, items=ITEMS) for rows in (rows, [*rows, list(ITEMS), list(ITEMS)])]
    with pytest.raises(AssertionError):
        check_moves(replay(*looks))
    check_moves(replay(*looks, weight=2))


def people(seed, persons=6, rows=60):
    generator = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "customer": generator.integers(0, persons, rows),
            "receipt": generator.integers(0, 12, rows),
            "article": generator.choice(list(ITEMS), rows),
        }
    )


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_person_with_many_baskets_moves_statistics_by_the_bound(most):
    from cloister.anonymize.mining.private_itemsets import _bounded

    for seed in range(15):
        frame = people(seed)
        for gone in frame.customer.unique():
            fewer = frame[frame.customer != gone]
            looks = [
                lambda rows=rows: _bounded(rows, "receipt", "article", "customer", most, ITEMS)
                for rows in (frame, fewer)
            ]
            check_moves(replay(*looks, weight=most))


def test_a_receipt_that_two_people_share_is_two_baskets():
    from cloister.anonymize.mining.private_itemsets import _bounded

    frame = pd.DataFrame({"customer": [1, 2, 1, 1], "receipt": [5, 5, 5, 6], "article": list("abcd")})
    assert _bounded(frame, "receipt", "article", "customer", 1, ITEMS).to_lists() == [["a", "c"], ["b"]]


def test_a_large_spend_finds_the_most_frequent_itemsets(account):
    result = private_itemsets(baskets(), ITEMS, k=6, spend=epsilon(200), account=account)
    assert result.itemsets[:3] == (("a",), ("b",), ("a", "b"))
    truth = [baskets().count(itemset) for itemset in result.itemsets]
    assert np.abs(result.counts - truth).max() <= 10
    assert abs(result.baskets - 2000) <= 10
    assert result.release.private
    assert result.to_pandas().columns.tolist() == ["itemset", "count", "margin", "support"]
    assert str(result.release.unit) == "one basket (at most 1 row)"


def test_the_spend_is_charged_once_before_the_rows_are_read(account):
    class Watched(list):
        seen = None

        def __iter__(self):
            Watched.seen = account.spent.amount
            return super().__iter__()

    private_itemsets(Watched([["a"], ["b"]]), ITEMS, k=2, spend=epsilon(3), account=account)
    assert Watched.seen == 3
    assert account.spent.amount == 3


def test_a_refused_spend_reads_nothing(ledger):
    account = ledger.open_account("small", epsilon(1))
    with pytest.raises(OverBudget):
        private_itemsets(object(), ITEMS, k=2, spend=epsilon(2), account=account)
    assert account.spent.amount == 0


def test_rows_that_cannot_be_read_tell_nothing_and_stay_charged(account):
    with pytest.raises(LookFailed):
        private_itemsets(["secret"], ITEMS, k=2, spend=epsilon(1), account=account)
    assert account.spent.amount == 1


@pytest.mark.parametrize("number", [2, -1, 0.5, float("nan"), float("inf"), 10**18])
def test_no_number_of_a_basket_stops_a_release(ledger, number):
    """A refusal would show that the basket is there, with certainty: a number above 0 is an item of the basket."""
    rows = pd.DataFrame({"a": [1, 1, number], "b": [0, 1, 1]})
    account = ledger.open_account("numbers", epsilon(1_000_000))
    found = private_itemsets(rows, ("a", "b"), k=2, spend=epsilon(900_000), max_size=1, account=account)
    assert dict(zip(found.itemsets, found.counts.tolist(), strict=True)) == {("a",): 2 + (number > 0), ("b",): 2}


def test_items_outside_the_public_list_are_never_released(account):
    rows = [["secret", "a"]] * 100
    result = private_itemsets(rows, ITEMS, k=3, spend=epsilon(1), account=account)
    assert "secret" not in {name for itemset in result.itemsets for name in itemset}


def test_no_baskets_at_all_still_give_k_itemsets(account):
    assert len(private_itemsets([], ITEMS, k=3, spend=epsilon(1), account=account)) == 3


@pytest.mark.parametrize("spend", [epsilon(2), epsilon(2, delta="1e-6"), rho("0.1")])
def test_every_form_of_a_spend_works_and_a_seed_is_marked(ledger, spend):
    account = ledger.open_account("zcdp", epsilon(20, delta="1e-3") if not spend.is_pure else epsilon(20))
    results = [
        private_itemsets(baskets(), ITEMS, k=4, spend=spend, account=account, random_state=5, base_items=8)
        for _ in range(2)
    ]
    assert results[0].counts.tolist() == results[1].counts.tolist()
    assert not results[0].release.private
    assert results[0].release.receipt is not None


def test_persons_are_the_unit_of_the_release(account):
    columns = {"basket": "receipt", "item": "article", "person": "customer"}
    result = private_itemsets(people(1), ITEMS, k=2, spend=epsilon(1), account=account, max_baskets=3, **columns)
    assert str(result.release.unit) == "one customer (at most 3 rows)"


@pytest.mark.parametrize(
    "more",
    [
        {"k": 0},
        {"k": True},
        {"k": 100},
        {"max_size": 0},
        {"base_items": 9},
        {"items": ()},
        {"items": "abc"},
        {"items": ("a", "a")},
        {"max_baskets": 2},
        {"person": "customer"},
        {"account": None},
    ],
)
def test_wrong_options_are_refused_before_the_charge(account, more):
    options = {"items": ITEMS, "k": 2, "spend": epsilon(1), "account": account, **more}
    with pytest.raises(BadInput):
        private_itemsets(baskets(10), **options)
    assert account.spent.amount == 0


@pytest.mark.parametrize("form", [dict, pd.DataFrame])
def test_a_column_that_is_not_there_is_refused_before_the_charge(account, form):
    rows = form({"receipt": [1], "article": ["a"]})
    with pytest.raises(BadInput):
        private_itemsets(rows, ITEMS, k=2, spend=epsilon(1), account=account, basket="receipt", item="thing")
    assert account.spent.amount == 0


def test_a_spend_is_required(account):
    with pytest.raises(BadLoss):
        private_itemsets(baskets(10), ITEMS, k=2, spend=None, account=account)

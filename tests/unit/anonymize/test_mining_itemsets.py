"""Baskets, frequent itemsets and association rules."""

from itertools import combinations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.anonymize.mining.itemsets import frequent_itemsets, least_count
from cloister.anonymize.mining.rules import association_rules, recount, rules_of
from cloister.anonymize.mining.transactions import Transactions, read_baskets
from cloister.privacy.errors import BadInput, BadSource

BASKETS = [["milk", "bread"], ["milk", "bread", "beer"], ["beer"], [], ["milk", "milk", None]]
LISTS = [["bread", "milk"], ["beer", "bread", "milk"], ["beer"], [], ["milk"]]


def brute(baskets, least, largest=None):
    """Count every itemset by looking at every basket."""
    held = [set(basket) for basket in baskets]
    items = sorted(set().union(*held))
    counts = {}
    for size in range(1, (largest or len(items)) + 1):
        for itemset in combinations(items, size):
            count = sum(set(itemset) <= basket for basket in held)
            if count >= least:
                counts[itemset] = count
    return counts


def draw(seed, baskets=200, items=12, share=0.35):
    table = np.random.default_rng(seed).random((baskets, items)) < share
    return Transactions.of_dense([f"i{n:02}" for n in range(items)], table)


def test_lists_are_read_without_missing_and_repeated_items():
    baskets = read_baskets(BASKETS)
    assert baskets.items == ("beer", "bread", "milk")
    assert [sorted(basket) for basket in baskets.to_lists()] == LISTS


@pytest.mark.parametrize("form", ["pandas", "floats", "polars", "arrow", "lists"])
def test_every_form_of_a_table_gives_the_same_baskets(form):
    frame = read_baskets(BASKETS).to_pandas()
    rows = {
        "pandas": frame,
        "floats": frame.astype(float).replace(0.0, np.nan),
        "polars": pl.from_pandas(frame.astype(int)),
        "arrow": pa.Table.from_pandas(frame),
        "lists": read_baskets(BASKETS).to_arrow(),
    }[form]
    assert [sorted(basket) for basket in read_baskets(rows).to_lists()] == LISTS


def test_rows_of_one_item_are_grouped_by_their_basket_wherever_they_stand():
    frame = pd.DataFrame({"receipt": [7, 3, 7, None, 3], "article": ["a", "b", "c", "d", None]})
    assert read_baskets(frame, basket="receipt", item="article").to_lists() == [["a", "c"], ["b"]]


def test_a_basket_file_is_read_and_names_are_stripped(tmp_path):
    (tmp_path / "b.csv").write_text('milk,cream cheese ,\nbread\n"oil, olive",milk\n', encoding="utf-8")
    lists = read_baskets(tmp_path / "b.csv").to_lists()
    assert lists == [["cream cheese", "milk"], ["bread"], ["milk", "oil, olive"]]


def test_a_list_of_items_keeps_its_order_and_drops_others():
    baskets = read_baskets(BASKETS, items=["milk", "tea", "beer"])
    assert baskets.items == ("milk", "tea", "beer")
    assert baskets.counts.tolist() == [3, 0, 2]
    assert read_baskets(read_baskets(BASKETS), items=["milk"]).to_lists() == [["milk"], ["milk"], [], [], ["milk"]]


@pytest.mark.parametrize(
    ("rows", "more"),
    [
        (["milk", "bread"], {}),
        ({"a": [1, 2]}, {}),
        ({"a": ["x"]}, {}),
        ({"a": [1]}, {"basket": "a"}),
        ({"a": [1]}, {"basket": "a", "item": "b"}),
        ([["a"]], {"items": ["a", "a"]}),
        (7, {}),
    ],
)
def test_what_holds_no_baskets_is_refused(rows, more):
    with pytest.raises(BadInput):
        read_baskets(rows, **more)


def test_a_missing_file_is_named():
    with pytest.raises(BadSource, match=r"none\.csv"):
        read_baskets("/nowhere/none.csv")


@pytest.mark.parametrize("size", [1, 63, 64, 65, 70_000])
def test_packed_bits_count_what_lists_count(size):
    baskets = draw(size, baskets=size, items=3, share=0.5)
    assert np.bitwise_count(baskets.bits).sum(axis=1).tolist() == baskets.counts.tolist()
    assert baskets.count(["i00", "i02"]) == int(baskets.dense()[:, [0, 2]].all(axis=1).sum())
    assert baskets.count([]) == size


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sets(st.sampled_from("abcdefg")), min_size=1, max_size=30),
    st.integers(1, 6),
    st.sampled_from([None, 1, 2, 3]),
)
def test_mined_itemsets_are_those_of_a_search_of_all_itemsets(baskets, least, largest):
    if not any(baskets):
        return
    support = min(least / len(baskets), 1)
    least = least_count(support, len(baskets))
    mined = dict(frequent_itemsets([sorted(basket) for basket in baskets], support, max_size=largest))
    assert mined == brute(baskets, least, largest)


def test_small_blocks_give_the_same_itemsets(monkeypatch):
    baskets = draw(3)
    whole = list(frequent_itemsets(baskets, 0.02))
    monkeypatch.setattr("cloister.anonymize.mining.itemsets._WORDS", 16)
    assert list(frequent_itemsets(baskets, 0.02)) == whole
    assert max(len(names) for names, _ in whole) >= 4


def test_the_least_count_is_exact_at_the_threshold():
    for baskets in range(1, 300):
        for count in range(1, baskets + 1):
            assert least_count(count / baskets, baskets) == count


def test_no_baskets_and_no_frequent_item_give_no_itemset():
    assert len(frequent_itemsets([], 0.5)) == 0
    assert len(frequent_itemsets([["a"], ["b"], ["c"]], 0.5)) == 0
    assert len(association_rules([["a"], ["b"], ["c"]], 0.5)) == 0
    assert frequent_itemsets([[], []], 0.5).to_arrow().num_rows == 0


@pytest.mark.parametrize("support", [0, -1, 1.5, True, "a", None])
def test_a_support_that_is_no_share_is_refused(support):
    with pytest.raises(BadInput):
        frequent_itemsets([["a"]], support)


def test_rules_are_those_of_a_search_of_all_splits():
    baskets = draw(5, baskets=120, items=7)
    lists = baskets.to_lists()
    counts = brute(lists, 1)
    expected = {}
    for itemset, count in counts.items():
        for width in range(1, len(itemset)):
            for left in combinations(itemset, width):
                right = tuple(item for item in itemset if item not in left)
                if count / 120 >= 0.05 and count / counts[left] >= 0.4:
                    expected[left, right] = (count, counts[left], counts[right])
    rules = association_rules(baskets, 0.05, 0.4)
    columns = zip(rules.counts, rules.antecedent_counts, rules.consequent_counts, strict=True)
    assert dict(zip(((r.antecedent, r.consequent) for r in rules), map(tuple, columns), strict=True)) == expected
    single = association_rules(baskets, 0.05, 0.4, consequents="one")
    assert {tuple(rule) for rule in single} == {key for key in expected if len(key[1]) == 1}


def test_the_measures_follow_their_definitions():
    rules = association_rules([["a", "b"], ["a", "b", "c"], ["a"], ["c"]], 0.25, 0.1)
    row = {str(rule): n for n, rule in enumerate(rules)}["a -> b"]
    assert rules.support[row] == 0.5
    assert rules.confidence[row] == pytest.approx(2 / 3)
    assert rules.lift[row] == pytest.approx(4 / 3)
    assert rules.leverage[row] == pytest.approx(0.5 - 0.75 * 0.5)
    assert rules.conviction[row] == pytest.approx(0.5 / (1 / 3))
    always = {str(rule): n for n, rule in enumerate(rules)}["b -> a"]
    assert rules.conviction[always] == np.inf
    assert rules.confidence.tolist() == sorted(rules.confidence, reverse=True)
    assert rules.to_pandas().columns.tolist()[:3] == ["antecedent", "consequent", "count"]


def test_a_rule_exactly_at_both_thresholds_is_found():
    baskets = [["a", "b"]] + [["a"]] * 4 + [["c"]] * 5
    assert [str(rule) for rule in association_rules(baskets, 0.1, 0.2)][-1] == "a -> b"


def test_rules_by_name_are_counted_and_unknown_items_refused():
    baskets = draw(6)
    rules = association_rules(baskets, 0.05, 0.3)
    again = recount(rules, baskets)
    for column in ("counts", "antecedent_counts", "consequent_counts"):
        assert getattr(again, column).tolist() == getattr(rules, column).tolist()
    assert rules_of(baskets, [(["i01"], ["i02", "i03"])]).counts[0] == baskets.count(["i01", "i02", "i03"])
    for wrong in [(["i01"], []), (["i01"], ["i01"]), (["nothing"], ["i01"])]:
        with pytest.raises(BadInput):
            rules_of(baskets, [wrong])

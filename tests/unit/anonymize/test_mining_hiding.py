"""Rule hiding by distortion and blocking."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from cloister.anonymize.mining.hiding import BlockedTransactions, hide_rules
from cloister.anonymize.mining.hiding_search import Hider
from cloister.anonymize.mining.rules import association_rules, rules_of
from cloister.anonymize.mining.transactions import Transactions, read_baskets
from cloister.privacy.errors import BadInput, NotPrivate

SUPPORT, CONFIDENCE = 0.05, 0.5


@pytest.fixture(scope="module")
def baskets():
    """Baskets of a few mixed tastes, so that there are rules of every size."""
    generator = np.random.default_rng(2)
    tastes = generator.random((5, 11)) ** 2
    return Transactions.of_dense(
        [f"i{n:02}" for n in range(11)], generator.random((500, 11)) < tastes[generator.integers(0, 5, 500)]
    )


@pytest.fixture(scope="module")
def sensitive(baskets):
    rules = association_rules(baskets, SUPPORT, CONFIDENCE, max_size=3)
    return rules.take(np.sort(np.random.default_rng(0).choice(len(rules), 5, replace=False)))


@pytest.fixture(scope="module")
def distorted(baskets, sensitive):
    """Results of each way, computed once."""
    return {lower: hide(baskets, sensitive, lower=lower) for lower in ("support", "confidence", "either")}


def hide(baskets, sensitive, **more):
    return hide_rules(baskets, sensitive, min_support=SUPPORT, min_confidence=CONFIDENCE, **more)


def valid(baskets):
    return {(rule.antecedent, rule.consequent) for rule in association_rules(baskets, SUPPORT, CONFIDENCE)}


@pytest.mark.parametrize("lower", ["support", "confidence", "either"])
def test_distortion_hides_every_rule_and_reports_what_mining_finds(baskets, sensitive, distorted, lower):
    result = distorted[lower]
    before, after = valid(baskets), valid(result.baskets)
    wanted = {(rule.antecedent, rule.consequent) for rule in sensitive}
    assert not wanted & after
    report = result.report
    assert report.failures == ()
    assert {tuple(rule) for rule in report.hidden} == wanted
    assert {tuple(rule) for rule in report.lost} == before - wanted - after
    assert {tuple(rule) for rule in report.ghosts} == after - before
    assert report.others == len(before - wanted)
    changed = baskets.dense() != result.baskets.dense()
    assert report.changed_items == int(changed.sum())
    assert report.changed_baskets == int(changed.any(axis=1).sum())
    assert report.removed == int((changed & baskets.dense()).sum())


def test_each_way_lowers_its_own_measure(sensitive, distorted):
    by_support = rules_of(distorted["support"].baskets, sensitive)
    assert (by_support.support < SUPPORT).all()
    by_confidence = rules_of(distorted["confidence"].baskets, sensitive)
    assert (by_confidence.confidence < CONFIDENCE).all()


def test_the_choice_between_ways_loses_no_more_rules_than_support_alone(distorted):
    either, support = (len(distorted[lower].report.lost) for lower in ("either", "support"))
    assert either <= support
    assert either <= 0.05 * distorted["either"].report.others


def test_a_naive_hider_loses_more_rules(baskets, sensitive, distorted):
    """Remove the consequent from every basket that contains the rule: what the search must beat."""
    table = baskets.dense()
    for rule in sensitive:
        whole = table[:, [*baskets.encode(rule.antecedent), *baskets.encode(rule.consequent)]].all(axis=1)
        table[np.ix_(whole, list(baskets.encode(rule.consequent)))] = False
    naive = valid(Transactions.of_dense(baskets.items, table))
    wanted = {(rule.antecedent, rule.consequent) for rule in sensitive}
    assert len(valid(baskets) - wanted - naive) > 3 * max(len(distorted["either"].report.lost), 1)


def test_a_margin_pushes_rules_further_down(baskets, sensitive):
    rules = rules_of(hide(baskets, sensitive, lower="confidence", margin=0.2).baskets, sensitive)
    assert (rules.confidence < 0.8 * CONFIDENCE).all()


def test_the_same_call_gives_the_same_baskets(baskets, sensitive, distorted):
    assert hide(baskets, sensitive).baskets.to_lists() == distorted["either"].baskets.to_lists()


def test_the_counts_of_the_search_are_those_of_the_baskets(baskets, sensitive):
    for blocking in (False, True):
        targets = rules_of(baskets, sensitive)
        hider = Hider(baskets, targets, 25, CONFIDENCE, 0.0, blocking, "either")
        hider.run()
        contained = [hider._contained(basket) for basket in range(len(baskets))]
        assert hider.counts.both.tolist() == sum(both for both, _ in contained).tolist()
        assert hider.counts.left.tolist() == sum(left for _, left in contained).tolist()


def test_a_rule_that_is_not_valid_changes_nothing(baskets):
    rare = next(
        pair
        for pair in product(baskets.items, baskets.items)
        if pair[0] != pair[1] and baskets.count(pair) < 0.3 * baskets.count([pair[0]])
    )
    result = hide(baskets, [([rare[0]], [rare[1]])])
    assert result.report.changed_items == 0
    assert result.report.sensitive == 0


def test_a_rule_that_always_holds_is_hidden():
    result = hide_rules([["a", "b"]] * 8 + [["c"]] * 8, [(["a"], ["b"])], min_support=0.2, min_confidence=0.5)
    assert result.report.failures == ()
    assert "not differentially private" in result.label


def limits_by_hand(blocked, antecedent, consequent):
    """Fill the unknown cells in every way and return the extremes of support and confidence."""
    table = blocked.to_pandas()
    cells = [(row, name) for name in table.columns for row in range(len(table)) if table.loc[row, name] == "?"]
    supports, confidences = [], []
    for filling in product("01", repeat=len(cells)):
        filled = table.copy()
        for (row, name), value in zip(cells, filling, strict=True):
            filled.loc[row, name] = value
        left = (filled[list(antecedent)] == "1").all(axis=1)
        both = left & (filled[list(consequent)] == "1").all(axis=1)
        supports.append(both.mean())
        confidences.append(both.sum() / left.sum() if left.sum() else 0.0)
    return min(supports), max(supports), min(confidences), max(confidences)


def test_limits_with_unknown_values_are_reached_by_some_filling():
    generator = np.random.default_rng(4)
    for _ in range(12):
        certain = generator.random((6, 3)) < 0.6
        certain[0] = True
        maybe = certain.copy()
        holes = generator.integers(0, [6, 3], (5, 2))
        maybe[tuple(holes[:3].T)] = True
        lowered = certain.copy()
        lowered[tuple(holes[3:].T)] = False
        lowered[0] = True
        blocked = BlockedTransactions(*(Transactions.of_dense("abc", part) for part in (lowered, maybe | certain)))
        for antecedent, consequent in ((("a",), ("b",)), (("a", "c"), ("b",)), (("a",), ("b", "c"))):
            limits = blocked.intervals([(antecedent, consequent)])
            by_hand = limits_by_hand(blocked, antecedent, consequent)
            assert [*limits.support[0], *limits.confidence[0]] == pytest.approx(by_hand)


@pytest.mark.parametrize("lower", ["support", "confidence", "either"])
def test_blocking_leaves_no_sensitive_rule_certain(baskets, sensitive, lower):
    result = hide(baskets, sensitive, method="blocking", lower=lower)
    blocked = result.baskets
    limits = blocked.intervals(sensitive)
    assert ((limits.support[:, 0] < SUPPORT) | (limits.confidence[:, 0] < CONFIDENCE)).all()
    assert result.report.failures == ()
    assert blocked.unknown == result.report.changed_items
    # Blocking says nothing false: the original baskets are one of the fillings.
    original = baskets.dense()
    assert (blocked.certain.dense() <= original).all()
    assert (original <= blocked.possible.dense()).all()
    truth = rules_of(baskets, sensitive)
    assert (limits.confidence[:, 0] <= truth.confidence).all()
    assert (truth.confidence <= limits.confidence[:, 1]).all()
    certain = blocked.intervals(association_rules(baskets, SUPPORT, CONFIDENCE))
    kept = (certain.support[:, 0] >= SUPPORT) & (certain.confidence[:, 0] >= CONFIDENCE)
    assert len(result.report.lost) == int((~kept).sum()) - len(result.report.hidden)


def test_blocked_baskets_show_question_marks(baskets, sensitive):
    result = hide(baskets, sensitive, method="blocking")
    assert int((result.to_pandas() == "?").to_numpy().sum()) == result.report.changed_items > 0
    assert result.baskets.intervals(sensitive).to_pandas().shape == (5, 5)


@pytest.mark.parametrize(
    "more", [{"method": "none"}, {"lower": "lift"}, {"margin": 1}, {"margin": True}, {"min_confidence": 0}]
)
def test_wrong_options_are_refused(baskets, sensitive, more):
    with pytest.raises(BadInput):
        hide_rules(baskets, sensitive, **{"min_support": SUPPORT, "min_confidence": CONFIDENCE, **more})


def test_no_rule_and_an_unknown_item_are_refused(baskets):
    for rules in ([], [(["tea"], ["i01"])]):
        with pytest.raises(BadInput):
            hide(baskets, rules)
    assert read_baskets(baskets) is baskets


def test_baskets_in_which_a_rule_is_still_found_are_not_written(tmp_path):
    baskets = [["beer", "crisps"]] * 4 + [["milk"], []]
    hidden = hide_rules(baskets, [(["beer"], ["crisps"])], min_support=0.3, min_confidence=0.5)
    hidden.write(tmp_path / "ok.csv")
    assert read_baskets(tmp_path / "ok.csv").to_lists() == hidden.baskets.to_lists()
    undone = replace(hidden, baskets=read_baskets(baskets))
    for name in ("bad.csv", "bad.parquet"):
        with pytest.raises(NotPrivate, match="beer -> crisps is still found"):
            undone.write(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["ok.csv"]


def test_items_that_a_file_of_baskets_loses_are_refused(tmp_path):
    hidden = hide_rules([["a ", "b"]] * 3 + [["c"]], [(["a "], ["b"])], min_support=0.3, min_confidence=0.5)
    with pytest.raises(BadInput, match="outer spaces"):
        hidden.write(tmp_path / "r.csv")
    assert list(tmp_path.iterdir()) == []

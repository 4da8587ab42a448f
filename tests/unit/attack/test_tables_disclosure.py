"""Sensitive values are learned from classes, without any identified row."""

from fractions import Fraction
from itertools import combinations
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.attack.tables import (
    background_knowledge,
    homogeneity,
    intersection,
    linkage,
    minimality,
    similarity,
    skewness,
)
from cloister.attack.tables.releases import _Part, _posterior
from cloister.privacy.errors import BadInput

# AN-06: the same twelve people, twice.
FIRST = {
    "zip": ["130**"] * 12,
    "age": ["<30"] * 4 + [">=40"] * 4 + ["3*"] * 4,
    "ill": ["AIDS", "Heart", "Viral", "Viral", "Cancer", "Heart", "Viral", "Viral", *["Cancer"] * 4],
}
SECOND = {
    "zip": ["130**"] * 12,
    "age": ["<35"] * 6 + [">35"] * 6,
    "ill": ["AIDS", "TB", "Flu", "TB", "Cancer", "Cancer", "Cancer", "Cancer", "Cancer", "TB", "Viral", "Viral"],
}
# Table 7.2
INCOMES = {
    "age": ["21-40", "21-40", "31-40", "31-40"],
    "zip": ["336**", "336**", "34***", "34***"],
    "race": ["Black", "Black", "Asian", "White"],
    "income": [65, 130, 80, 85],
}
# Figure 8.7
STOMACH = ["ulcer", "gastritis", "stomach cancer"]
GROUPS = {**dict.fromkeys(STOMACH, "stomach"), **dict.fromkeys(["flu", "bronchitis", "pneumonia"], "lung")}
FIGURE_8_7 = {
    "class": [1, 1, 1, 2, 2, 2, 3, 3, 3],
    "ill": [*STOMACH, "gastritis", "flu", "bronchitis", "bronchitis", "pneumonia", "stomach cancer"],
}
TABLES = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abcd")), min_size=1, max_size=25)


def test_the_thirties_of_the_first_release_are_homogeneous():
    found = homogeneity(FIRST, quasi=["zip", "age"], sensitive="ill")
    assert found.at_risk == 4
    assert found.risk.tolist() == [0.5] * 8 + [1.0] * 4
    assert found.worst == {"zip": "130**", "age": "3*", "ill": "Cancer", "rows": "4", "share": "100%"}
    assert found.baseline == pytest.approx(5 / 12)
    assert found.gain == pytest.approx(8 / 12 - 5 / 12)
    assert "4 of 12 records at risk (33.3%)" in str(found)


def test_race_is_disclosed_in_the_first_class_of_table_7_2():
    assert homogeneity(INCOMES, quasi=["age", "zip"], sensitive="race").risk.tolist() == [1, 1, 0.5, 0.5]


def test_close_incomes_of_the_second_class_of_table_7_2_are_similar():
    found = similarity(INCOMES, quasi=["age", "zip"], sensitive="income", within=0.1)
    assert found.risk.tolist() == [0.5, 0.5, 1, 1]
    assert found.worst["income"] == "80 to 85"


def test_ruling_one_value_out_leaves_one():
    table = {"age": ["<30"] * 4, "ill": ["Heart", "Heart", "Viral", "Viral"]}  # figure 7.17
    assert homogeneity(table, quasi=["age"], sensitive="ill").at_risk == 0
    found = background_knowledge(table, quasi=["age"], sensitive="ill")
    assert found.at_risk == 4
    assert found.risk.tolist() == [1.0] * 4
    assert found.worst["before"] == "50%"
    assert found.worst["after"] == "100%"


def test_figure_8_7_leaks_by_similarity_and_not_by_counts():
    assert homogeneity(FIGURE_8_7, quasi=["class"], sensitive="ill").at_risk == 0
    found = similarity(FIGURE_8_7, quasi=["class"], sensitive="ill", groups=GROUPS)
    assert found.at_risk == 3
    assert found.risk.tolist() == pytest.approx([1, 1, 1, *[2 / 3] * 6])
    nested = {value: (group, "any") for value, group in GROUPS.items()}
    assert similarity(FIGURE_8_7, quasi=["class"], sensitive="ill", groups=nested).at_risk == 3


def test_figure_8_6_is_skewed_against_an_outside_population_only():
    table = {"zip": ["345**"] * 2 + ["33***"] * 8, "ill": ["Heart", "Viral", *["Heart"] * 7, "Viral"]}
    own = skewness(table, quasi=["zip"], sensitive="ill", values=["Heart"])
    assert own.at_risk == 0
    outside = skewness(table, quasi=["zip"], sensitive="ill", values=["Heart"], population={"Heart": 1, "Viral": 9})
    assert outside.at_risk == 8
    assert outside.worst["zip"] == "33***"
    people = {"ill": ["Heart"] + ["Viral"] * 9}
    assert skewness(table, quasi=["zip"], sensitive="ill", values=["Heart"], population=people).at_risk == 8


def test_a_value_that_the_population_does_not_have_is_at_risk():
    found = skewness({"zip": ["a", "a"], "ill": ["rare", "flu"]}, quasi=["zip"], sensitive="ill", population={"flu": 1})
    assert found.at_risk == 1
    assert found.worst["ill"] == "rare"


@given(TABLES, st.integers(0, 3), st.integers(0, 2))
@settings(max_examples=60, deadline=None)
def test_worst_background_knowledge_is_that_of_all_choices(rows, rules_out, known):
    table = {"c": [row[0] for row in rows], "s": [row[1] for row in rows]}
    found = background_knowledge(table, quasi=["c"], sensitive="s", rules_out=rules_out, acquaintances=known)
    for (number, value), risk in zip(rows, found.risk, strict=True):
        members = [s for c, s in rows if c == number]
        best = 0.0
        others = sorted({*members} - {value})
        for ruled in combinations(others, min(rules_out, len(others))):
            rest = [s for s in members if s not in ruled]
            strangers = sum(s != value for s in rest)
            best = max(best, rest.count(value) / (len(rest) - min(known, strangers)))
        assert risk == pytest.approx(best)


@given(TABLES)
@settings(max_examples=40, deadline=None)
def test_homogeneity_and_skewness_are_shares_of_the_class(rows):
    table = {"c": [row[0] for row in rows], "s": [row[1] for row in rows]}
    same, skew = (attack(table, quasi=["c"], sensitive="s") for attack in (homogeneity, skewness))
    at_risk = 0
    for i, (number, value) in enumerate(rows):
        members = [s for c, s in rows if c == number]
        assert same.risk[i] == pytest.approx(max(members.count(s) for s in members) / len(members))
        posterior = Fraction(members.count(value), len(members))
        assert skew.risk[i] == pytest.approx(float(posterior))
        at_risk += posterior >= 2 * Fraction(sum(s == value for _, s in rows), len(rows))
    assert skew.at_risk == at_risk


@given(st.lists(st.tuples(st.integers(0, 2), st.none() | st.integers(-20, 20)), min_size=1, max_size=25))
@settings(max_examples=50, deadline=None)
def test_similar_numbers_are_those_of_a_sliding_interval(rows):
    numbers = [x for _, x in rows if x is not None]
    table = {"c": [row[0] for row in rows], "x": np.array([np.nan if x is None else x for _, x in rows], dtype=float)}
    found = similarity(table, quasi=["c"], sensitive="x", within=0.25)
    width = (max(numbers) - min(numbers)) * 0.25 if numbers else 0
    for (number, _), risk in zip(rows, found.risk, strict=True):
        members = [x for c, x in rows if c == number]
        present = [x for x in members if x is not None]
        best = max((sum(a <= x <= a + width for x in present) for a in present), default=0)
        assert risk == pytest.approx(best / len(members))


@pytest.mark.parametrize("attack", [homogeneity, background_knowledge, skewness, similarity])
def test_wrong_roles_and_empty_tables_are_refused(attack):
    with pytest.raises(BadInput, match="one role"):
        attack({"a": [1]}, quasi=["a"], sensitive="a")
    with pytest.raises(BadInput, match="no rows"):
        attack({"a": [], "s": []}, quasi=["a"], sensitive="s")
    with pytest.raises(BadInput, match="no column 'x'"):
        attack({"a": [1]}, quasi=["a"], sensitive="x")


def test_similarity_of_texts_needs_groups():
    with pytest.raises(BadInput, match="groups"):
        similarity({"a": [1], "s": ["x"]}, quasi=["a"], sensitive="s")


# Several releases


def test_two_releases_of_the_same_people_disclose_what_each_hides():
    people = {"zip": ["13053", "13068", "13053", "13068"], "age": [28, 33, 36, 47]}
    found = intersection([FIRST, SECOND], people, on=["zip", "age"], sensitive="ill")
    assert found.possible == (("AIDS",), ("Cancer",), ("Cancer",), ("Cancer", "Viral"))
    assert found.at_risk == 3
    assert found.single == 2
    assert found.contradictions == 0
    assert found.risk.tolist() == [1, 1, 1, 0.5]
    assert found.worst["release 1"] == "zip 130**, age <30"
    assert found.worst["release 2"] == "zip 130**, age <35"
    assert found.worst["ill"] == "AIDS"


def test_a_person_in_one_release_only_is_a_contradiction():
    found = intersection([{"a": ["x"], "s": ["flu"]}, {"a": ["x"], "s": ["TB"]}], {"a": ["x"]}, on=["a"], sensitive="s")
    assert found.possible == ((),)
    assert found.contradictions == 1
    assert found.risk.tolist() == [0.0]


def test_a_release_without_a_quasi_identifier_still_narrows():
    first = {"a": ["x", "y"], "b": [1, 1], "s": ["flu", "TB"]}
    second = {"a": ["x", "x"], "s": ["flu", "AIDS"]}
    assert intersection([first, second], {"a": ["x"], "b": [1]}, on=["a", "b"], sensitive="s").possible == (("flu",),)


def test_one_release_is_refused():
    with pytest.raises(BadInput, match="two releases"):
        intersection([FIRST], {"zip": ["13053"], "age": [28]}, on=["zip", "age"], sensitive="ill")


# The algorithm


@pytest.mark.parametrize("local", [True, False])
def test_the_example_of_wong_et_al_discloses_both_people(local):
    release = {"q": ["*"] * 4 + (["q2"] * 3 if local else ["*"] * 3), "ill": ["HIV", "HIV"] + ["none"] * 5}
    people = {"q": ["q1"] * 2 + ["q2"] * 5}
    shown = homogeneity(release, quasi=["q"], sensitive="ill", threshold=1.0)
    found = minimality(release, people, on=["q"], sensitive="ill", values=["HIV"], l=2)
    assert shown.risk[0] <= 5 / 7
    assert found.risk.tolist() == pytest.approx([1, 1, 0, 0, 0, 0, 0])
    assert found.at_risk == 2
    assert found.claimed == 0.5
    assert found.undecided == 0


def test_small_groups_explain_a_class_by_themselves():
    release = {"q": ["*"] * 4, "ill": ["HIV", "HIV", "none", "none"]}
    people = {"q": ["a", "a", "b", "b"]}
    found = minimality(release, people, on=["q"], sensitive="ill", values=["HIV"], l=2, k=3)
    assert found.risk.tolist() == [0.5] * 4
    assert found.at_risk == 0


def test_a_class_that_cannot_be_split_by_group_is_undecided():
    release = {"q": ["*", "{a, b}"], "ill": ["HIV", "none"]}
    found = minimality(release, {"q": ["a", "b", "c"]}, on=["q"], sensitive="ill", values=["HIV"], l=2)
    assert found.undecided == 2


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=2, max_size=3),
    st.integers(1, 5),
    st.integers(2, 3),
)
@settings(max_examples=50, deadline=None)
def test_the_posterior_is_that_of_all_worlds(shapes, n, l):  # noqa: E741
    groups = [_Part(size, outside, 0) for size, outside in shapes]
    owners = [j for j, part in enumerate(groups) for _ in range(part.people)]
    worlds, hits = 0, np.zeros(len(groups))
    for chosen in combinations(range(len(owners)), n):
        per_group = [sum(owners[i] == j for i in chosen) for j in range(len(groups))]
        if any(count * l > part.people + part.outside for count, part in zip(per_group, groups, strict=True)):
            worlds += 1
            hits += [count / part.people for count, part in zip(per_group, groups, strict=True)]
    found = _posterior(groups, n, l)
    if not worlds:
        assert found is None
    else:
        assert found == pytest.approx((hits / worlds).tolist(), abs=1e-6)


def test_a_class_of_thousands_of_people_who_are_alike_takes_no_longer_than_one_of_them():
    """Everybody is a group of one, whom a sensitive value makes a violation: every world has one."""
    start = process_time()
    assert _posterior([_Part(1, 0, 0)] * 3_000, 12, 2) == pytest.approx([12 / 3_000] * 3_000)
    assert process_time() - start < 10  # 27 million convolutions took minutes


def test_the_worst_example_of_minimality_is_of_the_person_with_the_highest_risk():
    """The class b has its values in the open, the class * hides them better than it seems; b is worse all the same."""
    release = {"q": ["*"] * 6 + ["b"] * 4, "ill": ["HIV"] + ["none"] * 5 + ["HIV"] * 3 + ["none"]}
    people = {"q": ["a"] * 2 + ["c"] * 4 + ["b"] * 4}
    found = minimality(release, people, on=["q"], sensitive="ill", values=["HIV"], l=2)
    assert found.risk.max() == pytest.approx(0.75)
    assert found.worst == {"q": "b", "probability": "75%"}


def test_figures_of_an_attack_are_printed_for_people():
    release = {"q": ["*"] * 4_000, "ill": ["HIV"] * 10 + ["none"] * 3_990}
    text = str(minimality(release, {"q": [*map(str, range(4_000))]}, on=["q"], sensitive="ill", values=["HIV"], l=3))
    assert "claimed  0.3333\n" in text
    assert "  undecided  0" in text
    assert "present  4,000" in str(linkage(release, {"q": ["*"] * 4_000}, on=["q"]))


@pytest.mark.parametrize("wrong", [(1, 1, ["x"]), (2, 0, ["x"]), (2, 1, [])])
def test_minimality_without_a_claim_is_refused(wrong):
    level, k, values = wrong
    with pytest.raises(BadInput, match="minimality"):
        minimality({"q": ["a"], "s": ["x"]}, {"q": ["a"]}, on=["q"], sensitive="s", values=values, l=level, k=k)

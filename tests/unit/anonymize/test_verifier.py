"""The independent verifier: toy tables, brute force on random tables, engines, and cells that look alike."""

import ast
import datetime as dt
import json
import math
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

import cloister.anonymize.checking.verifier as check_module
from cloister.anonymize.checking.verifier import check
from cloister.data.tables import open_engine
from cloister.privacy.errors import BadInput, BadSchema, BadSource, CloisterError

from . import brute_force, toy_tables
from .toy_tables import AN_06_FIRST, AN_06_SECOND, DISEASES, FIGURE_8_7, FIGURE_8_8_CLAIMED

_NAMES = ("distinct_l", "frequency_l", "entropy_l", "t_equal", "kl", "kl_reverse", "beta", "beta_enhanced")


def close(value):
    return pytest.approx(value, abs=1e-9)


# Toy tables of the sources


@pytest.mark.parametrize(
    ("table", "quasi", "k"),
    [
        ("TABLE_6_1", ["zip", "age"], 2),
        ("TABLE_6_2", ["zip", "age"], 1),
        ("TABLE_6_3", ["zip", "age"], 2),
        ("TABLE_6_4", ["zip", "age"], 1),
        ("TABLE_6_4_GENERALISED", ["zip", "age"], 1),
        ("TABLE_6_5", ["zip", "age"], 2),
        ("TABLE_6_6_CLAIMED", ["zip", "age"], 2),
        ("TABLE_7_1", ["gender", "zip"], 1),
        ("TABLE_7_2", ["age", "zip"], 2),
        ("FIGURE_7_13", ["zip", "age", "gender"], 1),
        ("FIGURE_7_14_CLAIMED", ["zip", "age", "gender"], 1),
        ("FIGURE_7_16", ["zip", "age"], 4),
        ("FIGURE_7_17", ["zip", "age"], 4),
        ("FIGURE_8_3", ["zip", "age"], 2),
        ("FIGURE_8_4", ["zip", "age"], 2),
        ("FIGURE_8_5", ["zip", "age"], 2),
        ("FIGURE_8_6_CLAIMED", ["zip"], 2),
        ("FIGURE_8_7", ["group"], 3),
        ("AN_06_FIRST", ["zip", "age"], 4),
        ("AN_06_SECOND", ["zip", "age"], 6),
    ],
)
def test_k_of_a_toy_table_is_the_true_one_and_not_the_claimed_one(table, quasi, k):
    assert check(getattr(toy_tables, table), quasi=quasi).k == k


@pytest.mark.parametrize(
    ("table", "quasi", "sensitive", "least"),
    [
        ("TABLE_6_5", ["zip", "age"], "disease", 1),
        ("TABLE_6_6_CLAIMED", ["zip", "age"], "disease", 1),
        ("TABLE_6_6_CLAIMED", ["zip"], "disease", 3),
        ("TABLE_6_6_REPAIRED", ["zip", "age"], "disease", 3),
        ("TABLE_7_2", ["age", "zip"], "race", 1),
        ("TABLE_7_2", ["age", "zip"], "income", 2),
        ("FIGURE_7_14_CLAIMED", ["zip", "age", "gender"], "disease", 1),
        ("FIGURE_7_16", ["zip", "age"], "disease", 1),
        ("FIGURE_7_17", ["zip", "age"], "disease", 2),
        ("FIGURE_8_3", ["zip", "age"], "disease", 1),
        ("FIGURE_8_4", ["zip", "age"], "disease", 2),
        ("FIGURE_8_5", ["zip", "age"], "disease", 2),
        ("AN_06_FIRST", ["zip", "age"], "disease", 1),
        ("AN_06_SECOND", ["zip", "age"], "disease", 3),
    ],
)
def test_distinct_l_of_a_toy_table_is_the_true_one_and_not_the_claimed_one(table, quasi, sensitive, least):
    checked = check(getattr(toy_tables, table), quasi=quasi, sensitive=[sensitive])
    assert checked.diversity[sensitive].distinct_l == least


def test_figure_7_14_has_three_unique_rows_and_each_can_be_found():
    checked = check(toy_tables.FIGURE_7_14_CLAIMED, quasi=["zip", "age", "gender"])
    assert checked.unique_rows == 3
    (row,) = checked.deciding["k"].rows
    shown = {name: toy_tables.FIGURE_7_14_CLAIMED[name][row] for name in ("zip", "age", "gender")}
    assert shown == dict(checked.deciding["k"].values)


def test_figure_8_6_is_skewed_in_the_other_class_and_needs_an_outside_population():
    table = toy_tables.FIGURE_8_6_CLAIMED
    found = check(table, quasi=["zip"], sensitive=["disease"]).diversity["disease"]
    assert found.t_equal == close(0.30)
    assert found.deciding["t_equal"].values == {"zip": "345**"}
    rare = {"disease": {"Heart": 1, "Viral": 9}}
    outside = check(table, quasi=["zip"], sensitive=["disease"], reference=rare).diversity["disease"]
    assert outside.deciding["t_equal"].values == {"zip": "33***"}
    assert outside.t_equal == close(7 / 8 - 1 / 10)


def _class_distances(table, **options):
    """t of each class: the class beside a reference that is the distribution of the whole table."""
    shares = {value: table["disease"].count(value) for value in table["disease"]}
    for group in ("1", "2", "3"):
        members = [i for i, name in enumerate(table["group"]) if name == group]
        part = {name: [table[name][i] for i in members] for name in table}
        found = check(part, quasi=["group"], sensitive=["disease"], reference={"disease": shares}, **options)
        yield found.diversity["disease"]


def test_distances_of_figures_8_7_and_8_8_are_those_computed_by_hand():
    tree = {"hierarchies": {"disease": DISEASES}}
    before, after = list(_class_distances(FIGURE_8_7, **tree)), list(_class_distances(FIGURE_8_8_CLAIMED, **tree))
    assert [found.t_equal for found in before] == close([4 / 9, 4 / 9, 4 / 9])
    assert [found.t_equal for found in after] == close([5 / 9, 4 / 9, 1 / 3])
    assert [found.t_hierarchical for found in before] == close([4 / 9, 1 / 3, 1 / 3])
    assert [found.t_hierarchical for found in after] == close([1 / 3, 1 / 3, 2 / 9])


def test_the_swap_of_figure_8_8_helps_only_with_a_hierarchy():
    tree = {"disease": DISEASES}
    before = check(FIGURE_8_7, quasi=["group"], sensitive=["disease"], hierarchies=tree)
    after = check(FIGURE_8_8_CLAIMED, quasi=["group"], sensitive=["disease"], hierarchies=tree)
    assert before.meets(t=0.4, distance="hierarchical")
    assert not after.meets(t=0.4, distance="hierarchical")
    assert not before.meets(t=4 / 9, distance="equal")
    assert after.meets(t=4 / 9, distance="equal")


def test_classes_printed_by_listings_8_5_and_8_6_have_two_values_and_a_sup_distance_below_emd_never():
    for counts in (toy_tables.ANON_34_COUNTS, toy_tables.ANON_35_COUNTS):
        rows = {"class": [], "income": []}
        for name, shares in counts.items():
            for income, count in shares.items():
                rows["class"] += [" ".join(name)] * count
                rows["income"] += [income] * count
        checked = check(rows, quasi=["class"], sensitive=["income"])
        found = checked.diversity["income"]
        assert found.distinct_l == 2
        assert checked.rows == sum(sum(shares.values()) for shares in counts.values())
        # E-21: for two values that both occur, the largest difference of the listing is the earth mover's distance.
        q = rows["income"].count(">50k") / checked.rows
        assert found.t_equal == close(max(abs(s[">50k"] / sum(s.values()) - q) for s in counts.values()))


def test_the_largest_difference_of_listing_8_7_is_smaller_than_the_distance_for_three_values():
    """E-21: for one class of {a} beside {b}, {c} the listing sees 2/3 or less, never more than EMD."""
    rows = {"class": ["1", "1", "2", "2"], "s": ["a", "b", "c", "d"]}
    assert check(rows, quasi=["class"], sensitive=["s"]).diversity["s"].t_equal == close(0.5)  # the listing: 0.25


# Brute force on random tables

_CELLS = st.sampled_from(["a", "b", "*", None])


@st.composite
def tables(draw, sensitive=("s", "u")):
    count = draw(st.integers(1, 14))
    lists = {name: st.lists(_CELLS, min_size=count, max_size=count) for name in ("x", "y")}
    numbers = st.lists(st.sampled_from([0, 1, 2, 5, 9]), min_size=count, max_size=count)
    return {name: draw(cells) for name, cells in lists.items()} | {name: draw(numbers) for name in sensitive}


def assert_same(found, expected):
    for name in _NAMES:
        assert getattr(found, name) == close(expected[name]), name
    for size in (1, 2, 3):
        assert found.recursive_c(size) == close(expected["recursive", size])
    for value, alpha in found.alphas.items():
        assert alpha == close(expected["alpha", int(value)])
    assert found.alpha == close(max(found.alphas.values()))


@settings(deadline=None, max_examples=60)
@given(tables())
def test_every_value_equals_brute_force(rows):
    checked = check(rows, quasi=["x", "y"], sensitive=["s", "u"])
    groups = brute_force.classes(rows, ["x", "y"])
    sizes = sorted(map(len, groups.values()))
    assert (checked.k, checked.classes, checked.sizes.max) == (sizes[0], len(sizes), sizes[-1])
    assert checked.sizes.median == float(np.median(sizes))
    assert checked.sizes.mean == close(np.mean(sizes))
    assert checked.unique_rows == sizes.count(1)
    assert list(checked.deciding["k"].rows) == groups[tuple(checked.deciding["k"].values.values())]
    for name, other in (("s", "u"), ("u", "s")):
        domain = sorted(set(rows[name]))
        assert_same(checked.diversity[name], brute_force.diversity(groups.values(), rows[name], domain))
        joint = brute_force.classes(rows, ["x", "y", other])
        assert_same(checked.joint[name], brute_force.diversity(joint.values(), rows[name], domain))


@settings(deadline=None, max_examples=40)
@given(tables())
def test_every_value_equals_brute_force_where_suppressed_cells_match_anything(rows):
    checked = check(rows, quasi=["x", "y"], sensitive=["s", "u"], matching="overlap")
    groups = brute_force.overlapping(rows, ["x", "y"])
    assert checked.k == min(map(len, groups.values()))
    assert list(checked.deciding["k"].rows) == groups[tuple(checked.deciding["k"].values.values())]
    for name, other in (("s", "u"), ("u", "s")):
        domain = sorted(set(rows[name]))
        assert_same(checked.diversity[name], brute_force.diversity(groups.values(), rows[name], domain))
        joint = brute_force.overlapping(rows, ["x", "y", other])
        assert_same(checked.joint[name], brute_force.diversity(joint.values(), rows[name], domain))
    assert checked.suppressed_cells == sum(rows[name].count("*") for name in ("x", "y"))
    assert checked.suppressed_rows == sum(pair == ("*", "*") for pair in zip(rows["x"], rows["y"], strict=True))


@settings(deadline=None, max_examples=40)
@given(tables(("s",)))
def test_ordered_distance_equals_the_transport_problem_and_scipy(rows):
    found = check(rows, quasi=["x", "y"], sensitive=["s"]).diversity["s"]
    groups, domain = brute_force.classes(rows, ["x", "y"]), sorted(set(rows["s"]))
    steps = max(len(domain) - 1, 1)
    expected = brute_force.diversity(groups.values(), rows["s"], domain, lambda i, j: abs(i - j) / steps)
    assert found.t_ordered == close(expected["transport"])
    ranks = [domain.index(value) for value in rows["s"]]
    farthest = max(wasserstein_distance([ranks[i] for i in members], ranks) for members in groups.values())
    assert found.t_ordered == close(farthest / steps)


@settings(deadline=None, max_examples=30)
@given(tables(("s",)))
def test_equal_and_hierarchical_distances_equal_the_transport_problem(rows):
    tree = {0: ["low", "small", "any"], 1: ["low", "small", "any"], 2: ["mid", "small", "any"],
            5: ["high", "large", "any"], 9: ["high", "large", "any"]}  # fmt: skip
    found = check(rows, quasi=["x", "y"], sensitive=["s"], hierarchies={"s": tree}).diversity["s"]
    groups, domain = brute_force.classes(rows, ["x", "y"]), sorted(set(rows["s"]))

    def height(i, j):
        paths = [[value, *tree[value]] for value in (domain[i], domain[j])]
        return next(level for level, (a, b) in enumerate(zip(*paths, strict=True)) if a == b) / 3

    assert found.t_hierarchical == close(brute_force.diversity(groups.values(), rows["s"], domain, height)["transport"])
    equal = brute_force.diversity(groups.values(), rows["s"], domain, lambda i, j: float(i != j))
    assert found.t_equal == close(equal["transport"])


@settings(deadline=None, max_examples=40)
@given(tables(("s",)), st.lists(st.integers(0, 5), min_size=5, max_size=5).filter(any))
def test_values_against_a_reference_equal_brute_force(rows, weights):
    domain = [0, 1, 2, 5, 9]
    reference = {"s": dict(zip(domain, weights, strict=True))}
    found = check(rows, quasi=["x"], sensitive=["s"], reference=reference).diversity["s"]
    q = {value: weight / sum(weights) for value, weight in reference["s"].items()}
    groups = brute_force.classes(rows, ["x"])
    expected = brute_force.diversity(groups.values(), rows["s"], domain, lambda i, j: abs(i - j) / 4, q)
    assert_same(found, expected)
    assert found.t_ordered == close(expected["transport"])


@settings(deadline=None, max_examples=40)
@given(tables(("s",)), tables(("s",)))
def test_presence_and_k_map_equal_brute_force(release, others):
    population = {name: release[name] + others[name] for name in release}
    found = check(release, quasi=["x", "y"], population=population).presence
    inside, every = brute_force.classes(release, ["x", "y"]), brute_force.classes(population, ["x", "y"])
    shares = [len(inside.get(values, ())) / len(members) for values, members in every.items()]
    assert (found.delta_min, found.delta_max) == (close(min(shares)), close(max(shares)))
    assert found.k_map == min(len(every[values]) for values in inside)
    assert found.outside == 0


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.sampled_from("abcde"), max_size=5), min_size=1, max_size=8).filter(any), st.integers(1, 3))
def test_k_of_sets_equals_brute_force(baskets, m):
    rows = {"x": ["1"] * len(baskets), "basket": pa.array(baskets, pa.list_(pa.string()))}
    found = check(rows, quasi=["x"], items="basket", m=m).sets
    assert found.k == brute_force.set_support(baskets, m)
    assert sum(set(found.items) <= set(basket) for basket in baskets) == found.k


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_m_invariance_equals_brute_force(data):
    releases = []
    for _ in range(data.draw(st.integers(2, 3))):
        people = data.draw(st.permutations([0, 1, 2, 3, None]))
        releases.append({
            "id": people,
            "x": data.draw(st.lists(st.sampled_from("ab"), min_size=5, max_size=5)),
            "s": data.draw(st.lists(st.sampled_from("uvw"), min_size=5, max_size=5)),
        })  # fmt: skip
    checked = check(releases[-1], quasi=["x"], sensitive=["s"], earlier=releases[:-1], ids="id")
    found = checked.invariance["s"]
    assert (found.m, found.changed, found.fewest_left) == brute_force.largest_invariant(releases, ["x"], "s", "id")


def test_a_series_that_is_two_invariant_is_reported_as_such():
    first = {"id": [1, 2, 3, 4], "age": ["20-29", "20-29", "30-39", "30-39"], "s": ["flu", "TB", "flu", "cancer"]}
    second = {"id": [2, 1, 3, None], "age": ["<25", "<25", ">25", ">25"], "s": ["TB", "flu", "flu", "cancer"]}
    checked = check(second, quasi=["age"], sensitive=["s"], earlier=[first], ids="id")
    assert checked.invariance["s"].m == 2
    assert checked.meets(m_invariance=2) == []
    broken = second | {"s": ["TB", "cancer", "flu", "cancer"]}
    found = check(broken, quasi=["age"], sensitive=["s"], earlier=[first], ids="id")
    assert found.invariance["s"].m == 0
    assert found.invariance["s"].changed == 2
    assert len(found.meets(m_invariance=2)) == 1


def test_ids_are_compared_as_they_are_printed():
    first = {"id": [1, 2, None, 4], "x": ["a", "a", "b", "b"], "s": ["u", "v", "u", "v"]}
    second = {"x": ["a", "a", "b", "b"], "s": ["v", "u", "v", "w"]}
    forms = [
        [1, 2, 3, 4],
        ["1", "2", "3", "4"],
        [1.0, 2.0, 3.0, 4.0],
        pa.array(["1", "2", "3", "4"]).dictionary_encode(),
    ]
    for ids in forms:
        found = check(second | {"id": ids}, quasi=["x"], sensitive=["s"], earlier=[first], ids="id").invariance["s"]
        assert (found.changed, found.fewest_left) == (1, 1), ids
    missing = pa.array([None, "2", None, None])
    found = check(second | {"id": missing}, quasi=["x"], sensitive=["s"], earlier=[first], ids="id").invariance["s"]
    assert (found.changed, found.fewest_left) == (0, 2)
    with pytest.raises(BadSource, match="no column id"):
        check(second, quasi=["x"], sensitive=["s"], earlier=[first], ids="id")


def test_the_intersection_of_both_releases_of_an_06_leaves_one_value_for_somebody():
    """CK-11: a person in both, aged 28, can only have AIDS."""
    people = [f"p{i}" for i in range(12)]
    second = AN_06_SECOND | {"id": people}
    checked = check(
        second, quasi=["zip", "age"], sensitive=["disease"], earlier=[AN_06_FIRST | {"id": people}], ids="id"
    )
    assert checked.invariance["disease"].fewest_left == 1


# Equality of cells

_ALIKE = {
    "case": ["a", "A"],
    "spaces": ["a", "a ", " a"],
    "unicode": ["\u00e9", "e\u0301"],
    "nul": ["a", "a\0", "a\0b"],
    "empty": ["", None, " "],
    "words": ["NULL", "nan", None],
}


@pytest.mark.parametrize("cells", _ALIKE.values(), ids=_ALIKE)
def test_cells_that_look_alike_are_different_classes(cells):
    checked = check({"q": cells * 2}, quasi=["q"])
    assert (checked.classes, checked.k) == (len(cells), 2)


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([0.0, -0.0]),
        pa.array([math.nan, None, -math.nan], pa.float64()),
        pa.array([0.0, -0.0], pa.float16()),
        pa.array([Decimal("1.50"), Decimal("1.5")]),
        pa.array(["a", "a"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", "a"])),
        pa.DictionaryArray.from_arrays(pa.array([0, None, 1]), pa.array([None, None], pa.string())),
        pa.chunked_array([pa.array(["a"]).dictionary_encode(), pa.array(["a"]).dictionary_encode()]),
        pa.nulls(3),
        pa.array([b"a", b"a"]),
        pa.array(["a", "a"], pa.string_view()),
    ],
    ids=str,
)
def test_cells_that_are_equal_are_one_class(cells):
    assert check(pa.table({"q": cells}), quasi=["q"]).classes == 1


@pytest.mark.parametrize(
    ("cells", "texts"),
    [
        ([1.0, 2.5, None], ["1", "2.5", None]),
        ([Decimal("10.00"), Decimal("2.50")], ["10", "2.5"]),
        ([True, False, None], ["true", "false", None]),
        ([dt.date(2024, 2, 29)], ["2024-02-29"]),
        ([dt.datetime(2024, 2, 29, 13)], ["2024-02-29 13:00:00"]),
        ([dt.datetime(2024, 2, 29, 13, tzinfo=dt.UTC)], ["2024-02-29 13:00:00Z"]),
        (pa.chunked_array([[1, None], [None, 2]]), ["1", None, None, "2"]),
        ([2**63 - 1, 2**63 - 2], ["9223372036854775807", "9223372036854775806"]),
    ],
)
def test_values_are_compared_as_they_are_printed(cells, texts):
    """A release in text is compared with a population in types of its own."""
    found = check({"q": pa.array(texts, pa.string())}, quasi=["q"], population={"q": cells}).presence
    assert (found.delta_min, found.delta_max, found.outside) == (1.0, 1.0, 0)


def test_unused_categories_and_frames_do_not_change_a_value():
    import pandas as pd
    import polars as pl

    rows = {"q": ["a", "b", None] * 4, "s": [1, 2, 3, 4] * 3}
    expected = _values(check(rows, quasi=["q"], sensitive=["s"]))
    frame = pd.DataFrame(rows)
    frame["s"] = pd.Categorical(frame["s"], categories=[9, 4, 3, 2, 1])
    assert _values(check(frame, quasi=["q"], sensitive=["s"])) == expected
    assert _values(check(pl.DataFrame(rows), quasi=["q"], sensitive=["s"])) == expected
    assert _values(check(pa.table(rows).slice(0), quasi=["q"], sensitive=["s"])) == expected
    mixed = pd.DataFrame({"q": [1, "1", 2.5, None], "s": [1, 2, 3, 4]})
    assert check(mixed, quasi=["q"]).classes == 3


def test_dates_and_decimals_are_ordered_and_null_comes_first():
    days = [dt.date(2020, 1, 1), dt.date(2021, 1, 1), dt.date(2022, 1, 1), None]
    for cells in (days, [Decimal("1.5"), Decimal("20"), Decimal("100"), None], [1.5, 20.0, 100.0, math.nan]):
        found = check({"q": list("abcd"), "s": cells}, quasi=["q"], sensitive=["s"]).diversity["s"]
        # The farthest class is at an end: (1/4 + 2/4 + 3/4) / 3.
        assert found.t_ordered == close(0.5)
        assert found.deciding["t_ordered"].values in ({"q": "c"}, {"q": "d"})


def test_an_order_counts_values_that_do_not_occur():
    rows = {"q": ["1", "2"], "s": ["low", "high"]}
    near = check(rows, quasi=["q"], sensitive=["s"], order={"s": ["low", "high"]})
    far = check(rows, quasi=["q"], sensitive=["s"], order={"s": ["low", "high", "higher", "highest"]})
    assert near.diversity["s"].t_ordered == close(1 / 2)
    assert far.diversity["s"].t_ordered == close(1 / 6)
    numbers = check(rows | {"s": ["10", "9"]}, quasi=["q"], sensitive=["s"], order={"s": "number"})
    assert numbers.diversity["s"].t_ordered == close(1 / 2)
    assert check(rows, quasi=["q"], sensitive=["s"]).diversity["s"].t_ordered is None


def test_a_hierarchy_may_be_a_table_and_null_is_a_child_of_its_root():
    ladder = {"value": list(DISEASES), "kind": [path[0] for path in DISEASES.values()], "top": ["any"] * 6}
    options = {"quasi": ["group"], "sensitive": ["disease"]}
    given_as_dict = check(FIGURE_8_7, hierarchies={"disease": DISEASES}, **options)
    assert check(FIGURE_8_7, hierarchies={"disease": pa.table(ladder)}, **options) == given_as_dict
    rows = {"q": ["1", "2"], "s": ["a", None]}
    found = check(rows, quasi=["q"], sensitive=["s"], hierarchies={"s": {"a": ["A", "*"]}}).diversity["s"]
    assert found.t_hierarchical == close(0.5)


# Results


def test_requirements_that_fail_are_listed_with_the_class_that_decides():
    checked = check(AN_06_FIRST, quasi=["zip", "age"], sensitive=["disease"])
    assert checked.meets(k=4, l=1) == []
    failures = checked.meets(k=5, l=3, t=0.2, recursive=(3, 2), alpha=0.5, beta=1, entropy_l=2, kl=0.1)
    assert len(failures) == 8
    assert sum("age=3*" in failure for failure in failures) >= 5
    assert checked.meets(l={"disease": 2})
    assert checked.meets(l={"another": 2}) == []


def test_recursive_diversity_is_strict():
    rows = {"q": ["1"] * 4, "s": ["a", "a", "b", "c"]}
    checked = check(rows, quasi=["q"], sensitive=["s"])
    assert checked.diversity["s"].recursive_c(2) == 1
    assert checked.meets(recursive=(1, 2))
    assert checked.meets(recursive=(1.01, 2)) == []
    assert checked.diversity["s"].recursive_c(4) == math.inf


def test_a_requirement_on_what_was_not_checked_is_refused():
    checked = check(AN_06_FIRST, quasi=["zip"])
    for requirement in ({"l": 2}, {"t": 0.1}, {"delta": (0, 1)}, {"k_map": 2}, {"km": 2}, {"m_invariance": 2}):
        with pytest.raises(BadInput):
            checked.meets(**requirement)


def test_a_result_prints_and_is_json_for_any_parser():
    rows = AN_06_FIRST | {"n": [None, *range(11)]}
    checked = check(rows, quasi=["zip", "age"], sensitive=["disease", "n"], population=rows)
    text = str(checked)
    assert "zip=130**, age=3* (4 rows)" in text
    assert "not differential privacy" in text
    assert max(map(len, text.splitlines())) < 200
    plain = json.loads(checked.to_json())
    assert plain["k"] == 4
    assert plain["diversity"]["disease"]["kl_reverse"] == "inf"
    assert {"value": None, "alpha": 0.25} in plain["diversity"]["n"]["alphas"]


def test_sensitive_values_that_differ_only_in_form_are_noted():
    rows = {"q": ["1"] * 3, "s": ["Flu", "flu ", "TB"]}
    notes = check(rows, quasi=["q"], sensitive=["s"]).notes
    assert any("2 values of s differ" in note for note in notes)
    assert len(check(AN_06_FIRST, quasi=["zip"], sensitive=["disease"]).notes) == 1


def test_a_population_that_lacks_released_rows_is_noted():
    checked = check({"q": ["a", "a", "b"]}, quasi=["q"], population={"q": ["a", "c"]})
    assert checked.presence.outside == 2
    assert checked.presence.delta_max == math.inf
    assert checked.presence.k_map == 0
    assert any("does not contain" in note for note in checked.notes)


@pytest.mark.parametrize(
    "options",
    [
        {"quasi": ["nowhere"]},
        {"quasi": "zip"},
        {"quasi": ["zip"], "sensitive": ["zip"]},
        {"quasi": ["zip"], "sensitive": ["disease"], "order": {"disease": ["AIDS"]}},
        {"quasi": ["zip"], "sensitive": ["disease"], "order": {"disease": ["AIDS", "AIDS"]}},
        {"quasi": ["zip"], "sensitive": ["disease"], "order": {"disease": "number"}},
        {"quasi": ["zip"], "sensitive": ["disease"], "hierarchies": {"disease": {"AIDS": ["any"]}}},
        {"quasi": ["zip"], "sensitive": ["disease"], "hierarchies": {"disease": {"AIDS": ["a"], "TB": ["a", "b"]}}},
        {"quasi": ["zip"], "sensitive": ["disease"], "hierarchies": {"age": {}}},
        {"quasi": ["zip"], "sensitive": ["disease"], "reference": {"disease": {"AIDS": -1}}},
        {"quasi": ["zip"], "matching": "fuzzy"},
        {"quasi": ["zip"], "items": "disease"},
        {"quasi": ["zip"], "earlier": [AN_06_FIRST]},
    ],
)
def test_a_call_that_makes_no_sense_is_refused_with_a_code(options):
    with pytest.raises(CloisterError) as caught:
        check(AN_06_FIRST, **options)
    assert isinstance(caught.value, BadSchema | BadSource)


def test_a_hierarchy_that_is_no_tree_is_refused():
    broken = {"a": ["x", "u"], "b": ["x", "v"]}
    with pytest.raises(BadSchema, match="no tree"):
        check({"q": ["1", "1"], "s": ["a", "b"]}, quasi=["q"], sensitive=["s"], hierarchies={"s": broken})


def test_a_table_without_rows_is_refused():
    with pytest.raises(BadSource, match="no rows"):
        check(pa.table({"q": pa.array([], pa.string())}), quasi=["q"])


def test_without_quasi_identifiers_all_rows_are_one_class():
    checked = check(AN_06_FIRST, quasi=[], sensitive=["disease"])
    assert (checked.k, checked.classes, checked.diversity["disease"].t_equal) == (12, 1, 0.0)


def test_the_verifier_imports_no_algorithm():
    """An error in an algorithm must not hide itself in the check."""
    allowed = ("cloister.data.rows", "cloister.anonymize.checking.")
    room = Path(check_module.__file__).parent
    files = sorted(room.glob("*.py"))
    assert "verifier.py" in [file.name for file in files]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                assert not name.startswith("cloister.anonymize") or name.startswith(allowed), (file.name, name)


# Engines

_HOSTILE = {
    "q": ["a", "A", "a ", "\u00e9", "e\u0301", "", None] * 2,
    "x": [0.0, -0.0, 0.0, 1.5, 1.5, math.nan, None, -0.0, 0.0, 0.0, 1.5, 1.5, None, math.nan],
    "d": [dt.date(2020, 1, 1)] * 3 + [None] * 4 + [dt.date(2020, 1, 1)] * 3 + [None] * 4,
    "s": [1, 2, 3, 4, 5, None, 7, 2, 2, 2, 2, 2, 2, 2],
    "b": [True, False, None, True, True, True, True] * 2,
}


def _values(checked):
    """All values, without row numbers and names of classes that are equally bad."""

    def plain(thing):
        if isinstance(thing, dict):
            return {k: plain(v) for k, v in thing.items() if k not in ("deciding", "engine", "rarest", "least", "most")}
        if isinstance(thing, list):
            return sorted((plain(item) for item in thing), key=str) if thing and isinstance(thing[0], dict) else thing
        return round(thing, 9) if isinstance(thing, float) else thing

    return plain(checked.to_dict())


_ROLES = {"quasi": ["q", "x", "d"], "sensitive": ["s", "b"]}


def test_duckdb_counts_the_same_classes_as_memory(tmp_path):
    import duckdb
    import pyarrow.parquet as pq

    rows = pa.table(_HOSTILE)
    expected = _values(check(rows, **_ROLES))
    assert (expected["classes"], expected["k"]) == (7, 2)
    pq.write_table(rows, tmp_path / "people.parquet")
    assert _values(check(tmp_path / "people.parquet", **_ROLES)) == expected
    assert _values(check({"people": rows}, table="people", **_ROLES)) == expected
    with duckdb.connect(str(tmp_path / "people.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE people (q VARCHAR COLLATE NOCASE, x DOUBLE, d DATE, s HUGEINT, b BOOLEAN); "
            "CREATE TABLE other (q VARCHAR)"
        )
        connection.register("arrow", rows)
        connection.execute("INSERT INTO people SELECT q, x, d, s, b FROM arrow")
        merged = connection.execute("SELECT COUNT(DISTINCT q) FROM people").fetchone()[0]
    assert merged == 5  # the collation merges a and A: a plain GROUP BY would be wrong
    assert _values(check(tmp_path / "people.duckdb", table="people", **_ROLES)) == expected
    assert (
        check(tmp_path / "people.duckdb", table="people", quasi=["q"]).classes == 7
    )  # no other column keeps them apart
    with pytest.raises(BadSource, match="table="):
        check(tmp_path / "people.duckdb", **_ROLES)
    engine = open_engine({"people": rows})
    try:
        checked = check(engine, table="people", population=rows, **_ROLES)
    finally:
        engine.close()
    assert checked.engine == "duckdb"
    assert checked.deciding["k"].rows == ()
    assert (checked.presence.delta_min, checked.presence.delta_max) == (1.0, 1.0)


def test_text_with_nul_is_counted_apart_in_duckdb():
    rows = pa.table({"q": ["a", "a\0", "a\0b", "a"]})
    assert check({"t": rows}, table="t", quasi=["q"]).classes == 3


def test_only_counts_leave_the_engine():
    engine = open_engine({"people": pa.table({"q": ["a"] * 1000 + ["b"] * 500, "s": [1, 2] * 750})})
    answers = []

    class Listening:
        dialect, place, tables, columns = engine.dialect, engine.place, engine.tables, engine.columns

        def run(self, sql):
            answers.append(engine.run(sql))
            return answers[-1]

    checked = check(Listening(), table="people", quasi=["q"], sensitive=["s"])
    engine.close()
    assert checked.rows == 1500
    assert [answer.num_rows for answer in answers] == [4]


def test_postgresql_counts_the_same_classes_as_memory(postgres_address):
    import psycopg

    with psycopg.connect(postgres_address, autocommit=True) as connection:
        if connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'citext'").fetchone():
            connection.execute("CREATE EXTENSION citext")
            kind, different = "citext", 5
        else:
            kind, different = "text", 6
        connection.execute(f"CREATE TABLE people (q {kind}, x DOUBLE PRECISION, d DATE, s NUMERIC, b BOOLEAN)")
        for i, values in enumerate(zip(*_HOSTILE.values(), strict=True)):
            scale = "::numeric(9, 2)" if i % 2 else "::numeric"
            connection.execute(f"INSERT INTO people VALUES (%s, %s, %s, %s{scale}, %s)", values)
        merged = connection.execute("SELECT COUNT(DISTINCT q) FROM people").fetchone()[0]
    assert merged == different  # citext merges a and A: a plain GROUP BY would be wrong
    assert _values(check(postgres_address, table="people", **_ROLES)) == _values(check(_HOSTILE, **_ROLES))
    assert check(postgres_address, table="people", quasi=["q"]).classes == 7


def test_spark_counts_the_same_classes_as_memory(spark):
    rows = [tuple(None if cell is None else cell for cell in row) for row in zip(*_HOSTILE.values(), strict=True)]
    frame = spark.createDataFrame(rows, "q string collate UTF8_LCASE, x double, d date, s bigint, b boolean")
    assert _values(check(frame, **_ROLES)) == _values(check(_HOSTILE, **_ROLES))
    assert frame.select("q").distinct().count() == 6  # the collation merges a and A, and NULL counts here
    assert check(frame, quasi=["q"]).classes == 7


def test_all_models_on_a_hundred_thousand_rows_take_a_fraction_of_a_second(within):
    """The bar is 2 s for a million rows."""
    generator = np.random.default_rng(5)
    cards = [10, 6, 2, 5, 7, 3, 4, 8]
    columns = {f"q{i}": generator.integers(0, card, 100_000).astype(str) for i, card in enumerate(cards)}
    columns |= {"s": generator.integers(0, 20, 100_000).astype(str), "u": generator.integers(0, 1000, 100_000)}
    rows = pa.table(columns)
    within(1, lambda: check(rows, quasi=[f"q{i}" for i in range(8)], sensitive=["s", "u"], population=rows))

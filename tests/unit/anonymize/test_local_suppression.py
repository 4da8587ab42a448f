"""Local suppression: any requirement, few cells beside brute force, weights, levels, and the toy tables."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.anonymize.algorithms.local_suppression import suppress_cells
from cloister.anonymize.checking.verifier import check
from cloister.anonymize.hierarchy import Hierarchy
from cloister.anonymize.models import DistinctDiversity, KAnonymity
from cloister.privacy.errors import BadInput

from . import brute_force, toy_tables
from .random_tables import QUASI, assert_sound, released_or_refused, requirements, tables


@settings(deadline=None, max_examples=60)
@given(tables(), requirements())
def test_every_release_satisfies_its_requirement_or_there_is_none(table, require):
    release = released_or_refused(suppress_cells, table, require)
    if release is None:
        return
    assert_sound(table, release)
    changed = [
        label
        for name in QUASI
        for label, value in zip(release.rows.column(name).to_pylist(), table[name], strict=True)
        if label != value and not isinstance(value, bool) and str(label) != str(value)
    ]
    assert set(changed) <= {"*"}


def _stars(release, quasi):
    return sum(release.rows.column(name).to_pylist().count("*") for name in quasi)


def _fewest(rows, k):
    """The fewest cells to suppress, by trying all of them."""
    count, width = len(rows), len(rows[0])
    for number in range(count * width + 1):
        for cells in itertools.combinations(range(count * width), number):
            hidden = set(cells)
            shown = Counter(
                tuple("*" if i * width + j in hidden else rows[i][j] for j in range(width)) for i in range(count)
            )
            if min(shown.values()) >= k:
                return number
    raise AssertionError("suppressing everything makes all rows equal")


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("cde")), min_size=2, max_size=6))
def test_few_more_cells_are_suppressed_than_by_brute_force(rows):
    table = {"first": [row[0] for row in rows], "second": [row[1] for row in rows]}
    release = suppress_cells(table, require=KAnonymity(2), quasi=["first", "second"])
    fewest, number = _fewest(rows, 2), _stars(release, ["first", "second"])
    assert fewest <= number <= fewest + 2


def test_a_table_that_is_anonymous_already_keeps_its_cells_and_types():
    table = toy_tables.TABLE_6_1
    release = suppress_cells(table, require=KAnonymity(2), quasi=["zip", "age"])
    assert release.rows.to_pydict() == table
    assert "0.00%" in release.method


def test_the_outlier_of_table_6_4_loses_both_cells_and_another_row_joins_it():
    generalised = toy_tables.TABLE_6_4_GENERALISED
    release = suppress_cells(generalised, require=KAnonymity(2), quasi=["zip", "age"])
    rows = release.rows.to_pydict()
    assert (rows["zip"][4], rows["age"][4]) == ("*", "*")
    assert min(map(len, brute_force.classes(rows, ["zip", "age"]).values())) >= 2
    assert _stars(release, ["zip", "age"]) == 6  # one class of two rows joins the outlier


def test_levels_come_first_and_leave_fewer_cells_to_suppress():
    table = toy_tables.FIGURE_7_13
    quasi = ["zip", "age", "gender"]
    options = {"require": KAnonymity(2), "quasi": quasi, "identifiers": ["name"]}
    plain = suppress_cells(table, **options)
    levelled = suppress_cells(
        table,
        **options,
        hierarchies={"zip": Hierarchy.masking(5), "age": Hierarchy.intervals(0, 100, [10, 50])},
        levels={"zip": 3, "age": 2},
    )
    assert check(levelled.rows, quasi=quasi).meets(k=2) == []
    assert _stars(levelled, quasi) < _stars(plain, quasi)
    assert set(levelled.rows.column("zip").to_pylist()) <= {"33***", "32***", "*"}
    assert levelled.levels == {"zip": 3, "age": 2}


def _people(rows, columns=4, seed=0):
    generator = np.random.default_rng(seed)
    table = {f"c{i}": generator.integers(0, 4 + i % 3, rows).tolist() for i in range(columns)}
    return table | {"ill": generator.choice(["flu", "cold", "ulcer"], rows).tolist()}


def test_weights_say_which_cells_are_kept():
    table, quasi = _people(200), ["c0", "c1", "c2", "c3"]
    equal = suppress_cells(table, require=KAnonymity(5), quasi=quasi)
    kept = {name: suppress_cells(table, require=KAnonymity(5), quasi=quasi, weights={name: 50.0}) for name in quasi}
    assert sum(_stars(kept[name], [name]) for name in quasi) < _stars(equal, quasi) / 2


def test_the_method_states_the_share_of_suppressed_cells():
    table, quasi = _people(200), ["c0", "c1", "c2", "c3"]
    release = suppress_cells(table, require=[KAnonymity(5), DistinctDiversity(2, "ill")], quasi=quasi)
    release.verify()
    assert f"{_stars(release, quasi) / 800:.2%} of the cells" in release.method
    assert release.checked.suppressed_cells == _stars(release, quasi)


def test_many_columns_are_handled_without_all_patterns():
    table = _people(400, columns=16)
    quasi = [name for name in table if name != "ill"]
    release = suppress_cells(table, require=KAnonymity(3), quasi=quasi)
    release.verify()
    assert release.utility.certainty_penalty < 1


def test_k_above_the_number_of_rows_is_refused_with_a_way_out():
    with pytest.raises(BadInput, match=r"there are 3 rows\. Ask for less.*Nothing was written"):
        suppress_cells({"age": [1, 2, 3]}, require=KAnonymity(4), quasi=["age"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": {"age": 9}}, "the level of age is a whole number"),
        ({"levels": {"ill": 1}}, "no quasi-identifier"),
        ({"weights": {"age": 0.0}}, "weights"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        suppress_cells({"age": [1, 2, 3], "ill": ["a", "b", "c"]}, require=KAnonymity(2), quasi=["age"], **options)

"""k^m-anonymity of sets: random sets, the best cut by brute force, and what is refused."""

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.anonymize.algorithms.item_sets import anonymise_sets
from cloister.anonymize.checking.verifier import check
from cloister.anonymize.hierarchy import Hierarchy
from cloister.privacy.errors import BadInput

from . import brute_force

# The example of the source: a1, a2 below A and b1, b2 below B.
_TREE = Hierarchy.tree({"A": ["a1", "a2"], "B": ["b1", "b2"]})
_EXAMPLE = [["a1", "b1", "b2"], ["a2", "b1"], ["a2", "b1", "b2"], ["a1", "a2", "b2"]]


def test_the_example_of_the_source_becomes_2_2_anonymous_by_one_step():
    sets = anonymise_sets(_EXAMPLE, k=2, m=2, hierarchy=_TREE)
    assert sets.labels == {"a1": "A", "a2": "A", "b1": "b1", "b2": "b2"}
    assert sets.rows.column("items").to_pylist() == [["A", "b1", "b2"], ["A", "b1"], ["A", "b1", "b2"], ["A", "b2"]]
    assert sets.checked.sets.k == 2


_ITEMS = st.sampled_from(["a1", "a2", "b1", "b2", None])


@settings(deadline=None, max_examples=80)
@given(st.lists(st.one_of(st.none(), st.lists(_ITEMS, max_size=4)), max_size=12), st.integers(1, 4), st.integers(1, 3))
def test_random_sets_become_anonymous_or_are_refused(baskets, k, m):
    filled = [basket for basket in baskets if basket]
    if not filled:
        assert anonymise_sets(baskets, k=k, m=m, hierarchy=_TREE).checked is None
        return
    if len(filled) < k:
        with pytest.raises(BadInput, match="Nothing was written"):
            anonymise_sets(baskets, k=k, m=m, hierarchy=_TREE)
        return
    sets = anonymise_sets(baskets, k=k, m=m, hierarchy=_TREE)
    released = sets.rows.column("items").to_pylist()
    assert brute_force.set_support(released, m) >= k
    for before, after in zip(baskets, released, strict=True):
        assert (before is None) == (after is None)
        assert {sets.labels[item] for item in before or ()} == set(after or ())
        assert len(after or ()) == len(set(after or ()))


def _all_cuts():
    """Labels of the four items for every cut."""
    halves = {"a": [("a1", "a2"), ("A", "A")], "b": [("b1", "b2"), ("B", "B")]}
    cuts = [(*left, *right) for left, right in itertools.product(halves["a"], halves["b"])]
    return [dict(zip(("a1", "a2", "b1", "b2"), cut, strict=True)) for cut in [*cuts, ("*",) * 4]]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sets(st.sampled_from(["a1", "a2", "b1", "b2"]), min_size=1), min_size=4, max_size=10),
    st.integers(2, 3),
    st.integers(1, 3),
)
def test_no_cut_below_the_released_one_is_anonymous(baskets, k, m):
    sets = anonymise_sets([sorted(basket) for basket in baskets], k=k, m=m, hierarchy=_TREE)
    general = {"A": 1, "B": 1, "*": 2}
    valid = [
        cut for cut in _all_cuts() if brute_force.set_support([{cut[i] for i in basket} for basket in baskets], m) >= k
    ]
    items = {item for basket in baskets for item in basket}
    levels = [{item: general.get(cut[item], 0) for item in items} for cut in valid]
    released = {item: general.get(sets.labels[item], 0) for item in items}
    assert released in levels
    assert all(some == released for some in levels if all(some[i] <= released[i] for i in items))


def _shop(baskets, items=40, seed=0):
    generator = np.random.default_rng(seed)
    popularity = 1 / np.arange(1, items + 1)
    return [
        generator.choice(items, size=generator.integers(1, 6), replace=False, p=popularity / popularity.sum()).tolist()
        for _ in range(baskets)
    ]


def test_detail_falls_as_more_items_may_be_known():
    tree = Hierarchy.table({str(i): (f"p{i // 2}", f"q{i // 4}", f"r{i // 8}") for i in range(40)})
    baskets = _shop(2_000)
    penalties = []
    for m in (1, 2, 3):
        sets = anonymise_sets(baskets, k=5, m=m, hierarchy=tree)
        assert check(sets.rows, quasi=[], items="items", m=m).sets.k >= 5
        penalties.append(sets.penalty)
    assert penalties == sorted(penalties)
    assert penalties[0] < penalties[1] < 1


def test_sets_that_are_anonymous_already_are_not_changed():
    baskets = [["a1", "b1"]] * 3 + [["a2"]] * 3
    sets = anonymise_sets(baskets, k=3, m=2, hierarchy=_TREE)
    assert sets.rows.column("items").to_pylist() == baskets
    assert sets.penalty == 0


def test_without_a_hierarchy_all_items_become_a_star():
    sets = anonymise_sets([["x", "y"], ["x"]], k=2, m=1)
    assert sets.rows.column("items").to_pylist() == [["*"], ["*"]]
    assert sets.penalty == 1


@pytest.mark.parametrize(
    "baskets",
    [
        pa.array(_EXAMPLE),
        pa.chunked_array([_EXAMPLE[:2], _EXAMPLE[2:]]),
        pa.table({"items": _EXAMPLE}),
        {"items": _EXAMPLE},
        [set(basket) for basket in _EXAMPLE],
    ],
)
def test_lists_columns_and_tables_of_lists_give_the_same(baskets):
    expected = anonymise_sets(_EXAMPLE, k=2, m=2, hierarchy=_TREE)
    assert anonymise_sets(baskets, k=2, m=2, hierarchy=_TREE).rows.equals(expected.rows)


def test_a_pandas_frame_with_a_column_of_lists_is_read():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"basket": _EXAMPLE})
    sets = anonymise_sets(frame, k=2, m=2, hierarchy=_TREE, column="basket")
    assert sets.rows.column_names == ["basket"]


def test_a_written_file_is_anonymous_and_keeps_no_order(tmp_path):
    sets = anonymise_sets(_EXAMPLE, k=2, m=2, hierarchy=_TREE)
    sets.to_parquet(tmp_path / "sets.parquet")
    written = pq.read_table(tmp_path / "sets.parquet")
    assert check(written, quasi=[], items="items", m=2).meets(km=2) == []
    assert written.column("items").to_pylist() == sorted(sets.rows.column("items").to_pylist(), key=str)


@pytest.mark.parametrize(
    ("baskets", "options", "message"),
    [
        (_EXAMPLE, {"k": 5}, "only 4 sets have an item"),
        (_EXAMPLE, {"k": 0}, "k must be"),
        (_EXAMPLE, {"m": 0}, "m must be"),
        (["milk", "bread"], {}, "lists of items"),
        ([1, 2], {}, "lists of items"),
        ({"basket": _EXAMPLE}, {}, "no column items"),
        ([["a1"], ["z9"]], {}, "lacks 1 of its"),
    ],
)
def test_wrong_sets_and_options_are_refused(baskets, options, message):
    with pytest.raises(BadInput, match=message):
        anonymise_sets(baskets, **({"k": 2, "m": 2, "hierarchy": _TREE} | options))


def test_a_file_that_cannot_be_written_leaves_the_older_one(tmp_path, monkeypatch):
    target = tmp_path / "sets.parquet"
    target.write_bytes(b"an older release")
    sets = anonymise_sets([["a", "b"], ["a", "b"]], k=2, m=2)

    def full(rows, place):
        Path(place).write_bytes(b"PAR1")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(BadInput, match="No space left"):
        sets.to_parquet(target)
    assert [path.name for path in tmp_path.iterdir()] == ["sets.parquet"]
    assert target.read_bytes() == b"an older release"

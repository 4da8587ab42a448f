from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.anonymize.operations.anatomy import anatomise
from cloister.privacy.errors import BadNumber, BadSchema

PEOPLE = {
    "name": ["John", "Alex", "Kishor", "Emily", "Ahmed"],
    "sex": ["M", "M", "M", "F", "M"],
    "zip": ["33617", "32113", "33613", "33617", "33620"],
    "salary": [78, 90, 65, 68, 75],
}


def test_names_are_dropped_and_salaries_are_in_a_table_of_their_own():
    result = anatomise(PEOPLE, ["sex", "zip"], "salary", 2)
    assert result.rows.column_names == ["sex", "zip", "group"]
    assert result.sensitive_table.column_names == ["group", "salary", "count"]
    assert sorted(result.sensitive_table["salary"].to_pylist()) == sorted(PEOPLE["salary"])
    assert Counter(zip(*result.rows.select(["sex", "zip"]).to_pydict().values(), strict=True)) == Counter(
        zip(PEOPLE["sex"], PEOPLE["zip"], strict=True)
    )
    assert result.log[0] == "Column name dropped: 5 cells."
    assert "probability" in result.join().column_names


@settings(deadline=None, max_examples=60)
@given(cells=st.lists(st.none() | st.sampled_from("abcdef"), min_size=2, max_size=40), least=st.integers(2, 5))
def test_every_group_is_l_diverse_or_the_rows_are_refused(cells, least):
    rows = pa.table({"q": list(range(len(cells))), "s": pa.array(cells, pa.string())})
    if Counter(cells).most_common(1)[0][1] * least > len(cells):
        with pytest.raises(BadNumber, match=r"smaller l|fewer than l"):
            anatomise(rows, "q", "s", least)
        return
    result = anatomise(rows, "q", "s", least)
    assert sorted(result.rows["q"].to_pylist()) == list(range(len(cells)))
    groups = Counter(result.rows["group"].to_pylist())
    table = result.sensitive_table.to_pylist()
    assert Counter({cell: sum(row["count"] for row in table if row["s"] == cell) for cell in set(cells)}) == Counter(
        cells
    )
    for group, size in groups.items():
        counts = [row["count"] for row in table if row["group"] == group]
        assert sum(counts) == size
        assert max(counts) * least <= size
        true = Counter(cells[q] for q, g in zip(*result.rows.to_pydict().values(), strict=True) if g == group)
        assert true == Counter({row["s"]: row["count"] for row in table if row["group"] == group})


def test_the_join_gives_no_value_more_than_one_in_l():
    rows = {"q": list(range(300)), "s": [f"d{i % 7}" for i in range(300)]}
    joined = anatomise(rows, "q", "s", 4).join()
    assert max(joined["probability"].to_pylist()) <= 1 / 4
    assert joined.num_rows >= 300 * 4


def test_rows_come_in_random_order():
    rows = {"q": list(range(100)), "s": [str(i) for i in range(100)]}
    assert anatomise(rows, "q", "s", 2).rows["q"].to_pylist() != list(range(100))


def test_a_frequent_value_is_refused_with_a_way_out():
    with pytest.raises(BadNumber, match=r"more than 1/3 of the rows.*smaller l"):
        anatomise({"q": [1, 2, 3, 4], "s": ["flu", "flu", "cold", "cough"]}, "q", "s", 3)


def test_roles_and_names_must_not_clash():
    for options in (
        {"quasi": ["zip", "salary"], "sensitive": "salary", "l": 2},
        {"quasi": "zip", "sensitive": "salary", "l": 2, "group": "zip"},
        {"quasi": "zip", "sensitive": "salary", "l": 2, "group": "count"},
    ):
        with pytest.raises(BadSchema):
            anatomise(PEOPLE, **options)
    with pytest.raises(BadNumber):
        anatomise(PEOPLE, "zip", "salary", 1)
    with pytest.raises(BadNumber):
        anatomise(PEOPLE, "zip", "salary", 6)

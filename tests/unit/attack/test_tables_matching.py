"""People are linked with the rows that may be theirs."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.attack.tables import correlation, identification, linkage, scored_linkage, uniqueness
from cloister.attack.tables.columns import classes
from cloister.attack.tables.matching import compatible
from cloister.privacy.errors import BadInput

# Figure 7.13: nine patients; figure 7.16: 337**, >35, four times Cancer.
PATIENTS = {
    "name": ["Alex", "Emily", "Fathima", "Jeremy", "John", "Kishor", "Nataliya", "Ryan", "Samantha"],
    "zip": ["33620", "33617", "33620", "32005", "33617", "33613", "32102", "32026", "33625"],
    "age": [17, 45, 28, 29, 24, 31, 46, 32, 56],
    "gender": list("MFFMMMMMF"),
    "disease": ["TB", "Viral", "Cancer", "Viral", "Viral", "Cancer", "TB", "Cancer", "Heart"],
}
INTERVALS = {"<=20": (-99, 20), "21-40": (21, 40), ">40": (41, 999), "*": (-99, 999), "[20, 30)": (20, 29)}


def test_raw_rows_with_unique_values_are_all_linked():
    release = {name: cells for name, cells in PATIENTS.items() if name != "name"}
    found = linkage(release, PATIENTS, on=["zip", "age", "gender"], names="name", truth="disease")
    assert found.unique == found.at_risk == found.right == 9
    assert found.matched.tolist() == list(range(9))
    assert found.names[0] == "Alex"
    assert "Alex" not in str(found)
    assert "Alex" not in str(found.to_json())


def test_two_people_with_the_same_values_share_the_risk():
    found = linkage({"zip": ["a"]}, {"zip": ["a", "a"]}, on=["zip"])
    assert found.candidates.tolist() == [1, 1]
    assert found.rivals.tolist() == [2, 2]
    assert found.risk.tolist() == [0.5, 0.5]
    assert found.unique == 0
    assert linkage({"zip": ["a"]}, {"zip": ["a", "a"]}, on=["zip"], members=True).risk.tolist() == [1, 1]


def test_null_matches_null_and_the_star_only():
    found = linkage({"zip": [None, "*", "a"]}, {"zip": [None, "a", "b"]}, on=["zip"])
    assert found.candidates.tolist() == [2, 2, 1]


def test_wrong_links_are_counted_as_wrong():
    found = linkage({"zip": ["a", "b"], "id": [1, 2]}, {"zip": ["a", "b"], "id": [1, 3]}, on=["zip"], truth="id")
    assert (found.unique, found.right) == (2, 1)


def test_a_missing_column_is_refused_with_those_that_exist():
    with pytest.raises(BadInput, match="'city' as a quasi-identifier"):
        linkage({"zip": ["a"]}, {"zip": ["a"]}, on=["city"])
    with pytest.raises(BadInput, match="no column is named"):
        linkage({"zip": ["a"]}, {"zip": ["a"]}, on=[])


def _fits(label, value):
    if label in INTERVALS:
        return INTERVALS[label][0] <= value <= INTERVALS[label][1]
    return label == str(value)


@given(
    st.lists(
        st.tuples(st.sampled_from([*INTERVALS, "25", "45"]), st.sampled_from([*INTERVALS, "7"])),
        min_size=1,
        max_size=30,
    ),
    st.lists(st.tuples(st.sampled_from([7, 20, 25, 45]), st.sampled_from([7, 21, 40, 41])), min_size=1, max_size=20),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_candidates_and_rivals_are_those_of_a_double_loop(rows, people):
    release = {"a": [row[0] for row in rows], "b": [row[1] for row in rows]}
    known = {"a": [person[0] for person in people], "b": [person[1] for person in people]}
    found = linkage(release, known, on=["a", "b"])
    fits = [[all(map(_fits, row, person)) for row in rows] for person in people]
    assert found.candidates.tolist() == [sum(line) for line in fits]
    owners = np.sum(fits, axis=0)
    for i, line in enumerate(fits):
        assert found.rivals[i] == min((owners[j] for j in range(len(rows)) if line[j]), default=0)
        alone = [j for j in range(len(rows)) if line[j]]
        assert found.matched[i] == (alone[0] if len(alone) == 1 and owners[alone[0]] == 1 else -1)


@pytest.mark.parametrize("cells", [1, 40, 1 << 26])
def test_comparison_in_parts_gives_all_pairs(cells, monkeypatch):
    monkeypatch.setattr("cloister.attack.tables.matching._CELLS", cells)
    rows = classes(pa.table({"a": ["1-3", "2-9", "3", "*", "1", "8-9", "5", "6", "7", "4"]}), ["a"])
    people = classes(pa.table({"a": list(range(12))}), ["a"])
    pairs = compatible(rows, people)
    expected = {(v, r) for v in range(12) for r in range(len(rows.sizes))
                if _inside(rows.describe(r)["a"], v)}  # fmt: skip
    assert {(people_value(people, p), int(r)) for p, r in zip(pairs.people, pairs.rows, strict=True)} == expected


def people_value(people, number):
    return int(people.describe(int(number))["a"])


def _inside(label, value):
    low, _, high = label.partition("-")
    return label == "*" or int(low) <= value <= int(high or low)


def test_a_sample_of_people_has_an_interval_that_contains_the_share_of_all():
    rng = np.random.default_rng(3)
    table = {"a": rng.integers(0, 60, 2000), "b": rng.integers(0, 60, 2000)}
    everyone = linkage(table, table, on=["a", "b"])
    part = linkage(table, table, on=["a", "b"], sample=400, random_state=5)
    assert everyone.interval is None
    assert part.attacked == 400
    assert part.interval[0] < everyone.share < part.interval[1]
    again = linkage(table, table, on=["a", "b"], sample=2000, random_state=1)
    assert again.at_risk == everyone.at_risk
    assert sorted(again.risk) == sorted(everyone.risk)


def test_an_employer_learns_the_disease_of_a_homogeneous_class_without_a_unique_row():
    release = {"zip": ["337**"] * 4 + ["336**"] * 4, "age": [">35"] * 4 + ["<30"] * 4,
               "disease": ["Cancer"] * 4 + ["Heart", "Heart", "Viral", "Viral"]}  # fmt: skip
    people = {"name": ["Bob", "Eve", "Kim"], "zip": ["33718", "33601", "99999"], "age": [36, 21, 50]}
    found = identification(release, people, on=["zip", "age"], sensitive="disease", names="name")
    assert found.risk.tolist() == [1.0, 0.5, 0.0]
    assert found.learned == ("Cancer", None, None)
    assert found.unique == 0
    assert found.at_risk == 1
    assert found.worst == {"zip": "337**", "age": ">35", "disease": "Cancer", "share": "100%"}


def test_guesses_over_overlapping_classes_count_all_candidates():
    release = {"age": ["20-30", "25-35", "25-35"], "ill": ["flu", "TB", "TB"]}
    found = identification(release, {"age": [22, 27, 33]}, on=["age"], sensitive="ill")
    assert found.risk.tolist() == pytest.approx([1.0, 2 / 3, 1.0])
    assert found.learned == ("flu", None, "TB")


def test_two_pseudonymous_tables_yield_the_district_of_most_pharmacies():
    medication = {"card": [1, 2, 3], "drug": ["insulin", "statin", "none"]}
    visits = {"card": [1, 1, 1, 2, 2], "district": ["North", "North", "South", "East", "West"]}
    found = correlation(medication, visits, on=["card"], learns="district", threshold=0.6)
    assert found.risk.tolist() == pytest.approx([2 / 3, 0.5, 0.0])
    assert found.learned == ("North", None, None)
    assert found.at_risk == 1


def test_scores_find_people_in_spite_of_wrong_values():
    rng = np.random.default_rng(11)
    people = {f"c{i}": rng.integers(0, 40, 300) for i in range(6)}
    noisy = {name: np.where(rng.random(300) < 0.2, rng.integers(0, 40, 300), cells) for name, cells in people.items()}
    people["id"] = noisy["id"] = np.arange(300)
    names = [f"c{i}" for i in range(6)]
    exact = linkage(people, noisy, on=names)
    scored = scored_linkage(people, noisy, on=names, truth="id")
    assert exact.unique < 150
    assert scored.right > 270
    assert scored.right >= 0.98 * scored.at_risk


def test_scores_do_not_match_people_who_are_not_in_the_table():
    rng = np.random.default_rng(12)
    rows = {f"c{i}": rng.integers(0, 5, 500) for i in range(6)}
    strangers = {f"c{i}": rng.integers(0, 5, 200) for i in range(6)}
    assert scored_linkage(rows, strangers, on=list(rows)).at_risk < 20


def test_a_tolerance_needs_numbers():
    with pytest.raises(BadInput, match="numbers"):
        scored_linkage({"a": ["x"]}, {"a": ["x"]}, on=["a"], tolerance={"a": 1})


def test_uniqueness_counts_sets_of_columns():
    table = {"zip": PATIENTS["zip"], "age": PATIENTS["age"], "gender": PATIENTS["gender"]}
    found = uniqueness(table, columns=["zip", "age", "gender"], up_to=2)
    counted = {entry.columns: entry.unique for entry in found.sets}
    assert counted[("age",)] == 9
    assert counted[("gender",)] == 0
    assert counted[("zip",)] == 5
    assert counted[("zip", "gender")] == 9
    assert found.fewest.tolist() == [1] * 9
    coarse = uniqueness({"zip": PATIENTS["zip"], "gender": PATIENTS["gender"]}, columns=["zip", "gender"], up_to=1)
    assert coarse.fewest.tolist() == [2, 2, 2, 1, 2, 1, 1, 1, 1]
    assert coarse.at_risk == 5


def test_too_many_sets_of_columns_are_refused():
    with pytest.raises(BadInput, match="Lower"):
        uniqueness({f"c{i}": [1] for i in range(60)}, columns=[f"c{i}" for i in range(60)], up_to=4)


def test_a_tolerance_of_a_column_that_is_not_compared_is_refused():
    with pytest.raises(BadInput, match=r"tolerance names 'agee', which is not compared. Choose among: age"):
        scored_linkage({"age": [1]}, {"age": [1]}, on=["age"], tolerance={"agee": 2})
    with pytest.raises(BadInput, match="hierarchies names 'b'"):
        scored_linkage({"a": ["x"]}, {"a": ["x"]}, on=["a"], hierarchies={"b": {"x": ["*"]}})


def test_an_attacker_knows_no_more_columns_than_there_are():
    people = {"zip": ["a", "b"], "age": [1, 2], "sex": ["f", "m"], "job": ["x", "y"]}
    known = [uniqueness(people, columns=list(people)[:n]) for n in (1, 2, 4)]
    assert [found.attacker.removeprefix("knows ").partition(" of a ")[0] for found in known] == [
        "the column zip", "all 2 columns", "up to 3 of 4 columns"
    ]  # fmt: skip
    assert [found.criterion for found in known] == [
        "one column makes the row unique", "at most 2 columns make the row unique",
        "at most 3 columns make the row unique",
    ]  # fmt: skip

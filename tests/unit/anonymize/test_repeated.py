"""m-invariance: series of releases in which people come and go, beside brute force and the intersection attack."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.anonymize.algorithms.repeated import republish
from cloister.anonymize.checking.verifier import check
from cloister.anonymize.models import DistinctDiversity, KAnonymity
from cloister.anonymize.release import mondrian
from cloister.privacy.errors import BadInput, NotPrivate

from . import brute_force
from .random_tables import covers

_VALUES = ["flu", "cold", "ulcer", None, "asthma"]
_ROLES = {"ids": "id", "sensitive": "ill", "quasi": ["age", "zip"]}


def _table(people, ids):
    return {
        "id": list(ids),
        "age": [people[i][0] for i in ids],
        "zip": [people[i][1] for i in ids],
        "ill": [people[i][2] for i in ids],
    }


@st.composite
def _series(draw):
    size = draw(st.integers(1, 16))
    age, place = st.one_of(st.none(), st.integers(0, 90)), st.one_of(st.none(), st.sampled_from(["north", "south"]))
    people = [(draw(age), draw(place), draw(st.sampled_from(_VALUES))) for _ in range(size)]
    present = st.lists(st.sampled_from(range(size)), min_size=1, unique=True)
    return people, draw(st.lists(present, min_size=1, max_size=4))


@settings(deadline=None, max_examples=60)
@given(_series(), st.integers(2, 3))
def test_a_series_is_m_invariant_by_brute_force(series, m):
    people, times = series
    releases, known = [], set()
    for ids in times:
        known |= {people[i][2] for i in ids}
        if len(known) < m:
            with pytest.raises(BadInput, match="different values"):
                republish(_table(people, ids), releases, m=m, **_ROLES)
            return
        release = republish(_table(people, ids), releases, m=m, **_ROLES)
        releases.append(release)
        held = release.held_back.to_pydict()
        shown = {i: row for row, i in enumerate(held["id"]) if i is not None}
        assert set(shown) == set(ids)  # everybody is released, once
        for i, row in shown.items():
            assert held["ill"][row] == people[i][2]
            assert covers(held["age"][row], people[i][0])
            assert covers(held["zip"][row], people[i][1])
        assert release.counterfeits == len(held["id"]) - len(ids) == sum(release.counterfeits_of.values())
        everything = [earlier.held_back.to_pydict() for earlier in releases]
        largest, changed, left = brute_force.largest_invariant(everything, ["age", "zip", "group"], "ill", "id")
        assert (largest >= m, changed) == (True, 0)
        assert left >= m


def _people(size, seed=0):
    generator = np.random.default_rng(seed)
    ill = generator.choice(["flu", "cold", "ulcer", "asthma", "cancer"], size)
    ages, zips = generator.integers(0, 90, size).tolist(), map(str, generator.integers(0, 50, size))
    return list(zip(ages, zips, ill.tolist(), strict=True))


def test_no_counterfeit_is_needed_at_first_if_no_value_is_too_frequent():
    people = _people(500)
    release = republish(_table(people, range(500)), m=3, **_ROLES)
    assert release.counterfeits == 0
    assert release.checked.invariance["ill"].m >= 3


def test_few_counterfeits_are_needed_while_people_come_and_go():
    people, generator = _people(600), np.random.default_rng(1)
    releases = []
    for _ in range(4):
        ids = np.flatnonzero(generator.random(600) < 0.7).tolist()
        releases.append(republish(_table(people, ids), releases, m=2, **_ROLES))
    checked = releases[-1].checked.invariance["ill"]
    assert (checked.m >= 2, checked.changed, checked.repeated) == (True, 0, 0)
    assert max(release.counterfeits for release in releases) < 60


def test_independent_releases_of_the_same_people_fail_where_a_series_does_not():
    people, ids = _people(60), [list(range(40)), list(range(20, 60))]
    options = {"require": [KAnonymity(2), DistinctDiversity(2, "ill")], "quasi": ["age", "zip"], "plain": ["id"]}
    alone = [mondrian(_table(people, some), **options).rows for some in ids]
    plain = check(alone[1], quasi=["age", "zip"], sensitive=["ill"], earlier=alone[:1], ids="id")
    assert plain.invariance["ill"].fewest_left == 1
    first = republish(_table(people, ids[0]), m=2, **_ROLES)
    second = republish(_table(people, ids[1]), [first], m=2, **_ROLES)
    assert second.checked.invariance["ill"].fewest_left >= 2


def test_the_last_person_of_a_class_is_released_with_counterfeits():
    first = republish({"id": [1, 2], "age": [30, 40], "zip": ["a", "a"], "ill": ["flu", "cold"]}, m=2, **_ROLES)
    second = republish({"id": [1], "age": [30], "zip": ["a"], "ill": ["flu"]}, [first], m=2, **_ROLES)
    assert second.counterfeits == 1
    assert sorted(second.rows.column("ill").to_pylist()) == ["cold", "flu"]
    assert second.rows.column("age").to_pylist() == ["30", "30"]
    assert second.counterfeits_of == {0: 1}


def test_a_person_who_comes_back_has_the_old_signature():
    people = [(20, "a", "flu"), (30, "a", "cold"), (40, "b", "ulcer"), (50, "b", "asthma")]
    releases = []
    for ids in ((0, 1), (2, 3), (0, 2)):
        releases = [*releases, republish(_table(people, ids), releases, m=2, **_ROLES)]
    assert releases[2].counterfeits == 2
    assert releases[2].checked.invariance["ill"].changed == 0


def test_what_is_published_has_no_ids(tmp_path):
    release = republish(_table(_people(50), range(50)), m=2, **_ROLES)
    assert release.rows.column_names == ["age", "zip", "ill", "group"]
    release.to_csv(tmp_path / "june.csv")
    assert pyarrow.csv.read_csv(tmp_path / "june.csv").num_rows == release.rows.num_rows
    assert "not differentially private" in str(release)


def test_a_changed_sensitive_value_is_refused():
    first = republish({"id": [1, 2], "age": [30, 40], "zip": ["a", "a"], "ill": ["flu", "cold"]}, m=2, **_ROLES)
    with pytest.raises(BadInput, match="has changed"):
        republish({"id": [1], "age": [30], "zip": ["a"], "ill": ["ulcer"]}, [first], m=2, **_ROLES)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"id": [1, 1]}, {}, "none twice"),
        ({"id": [1, None]}, {}, "no missing ids"),
        ({}, {"m": 3}, "2 different values"),
        ({}, {"m": 1}, "at least 2"),
        ({}, {"quasi": []}, "name quasi-identifiers"),
        ({}, {"quasi": ["weight"]}, "no column weight"),
        ({}, {"previous": [{"id": [1]}]}, "earlier results"),
    ],
)
def test_wrong_tables_and_options_are_refused(changes, options, message):
    table = {"id": [1, 2], "age": [30, 40], "zip": ["a", "a"], "ill": ["flu", "cold"]} | changes
    with pytest.raises(BadInput, match=message):
        republish(table, **(_ROLES | {"m": 2} | options))


@pytest.mark.parametrize(
    ("alike", "error"),
    [([None, "None"], NotPrivate), (["1", "1.0"], NotPrivate), (["", None], BadInput), (["NA", None], NotPrivate)],
)
def test_values_that_a_reader_takes_for_one_leave_an_older_file_as_it_was(tmp_path, alike, error):
    target = tmp_path / "july.csv"
    target.write_text("an older release\n", encoding="utf-8")
    ill = [*alike, *alike] if alike[0] == "1" else [*alike, "flu", "flu"]
    rows = pa.table({"id": [1, 2, 3, 4], "age": [21, 21, 51, 58], "ill": pa.array(ill, pa.string())})
    release = republish(rows, ids="id", sensitive="ill", m=2 if alike[0] == "1" else 3, quasi=["age"])
    with pytest.raises(error):
        release.to_csv(target)
    assert [path.name for path in tmp_path.iterdir()] == ["july.csv"]
    assert target.read_text(encoding="utf-8") == "an older release\n"

"""Linkage of sparse records: a few rare entries single out a record; nothing in common singles out none."""

import numpy as np
import pytest

from cloister.attack.tables import sparse_linkage
from cloister.privacy.errors import BadInput


def ratings(seed=0, people=600, items=3_000, each=40):
    """Entries of people, whose items have a long tail: user, film, stars, day."""
    draw = np.random.default_rng(seed)
    popular = 1 / np.arange(1, items + 1)
    rows = {"user": [], "film": [], "stars": [], "day": []}
    for user in range(people):
        films = draw.choice(items, size=each, replace=False, p=popular / popular.sum())
        rows["user"] += [user] * each
        rows["film"] += [f"film {film}" for film in films]
        rows["stars"] += draw.integers(1, 6, each).tolist()
        rows["day"] += draw.integers(0, 2_000, each).tolist()
    return rows


def known_of(rows, users, entries, draw, *, day_error=10, wrong=0):
    """What somebody knows of some users: some of their entries, days off by a little, some of them of other films."""
    table, users = {name: [] for name in rows}, set(users)
    owners = np.array(rows["user"])
    for user in users:
        chosen = draw.choice(np.flatnonzero(owners == user), size=entries, replace=False)
        for number, place in enumerate(chosen.tolist()):
            table["user"].append(f"person {user}")
            table["film"].append("film never seen" if number < wrong else rows["film"][place])
            table["stars"].append(rows["stars"][place])
            table["day"].append(rows["day"][place] + int(draw.integers(-day_error, day_error + 1)))
    return table


NEAR = {"stars": 1.5, "day": 30}


def test_eight_entries_with_two_wrong_identify_nearly_everybody():
    rows, draw = ratings(), np.random.default_rng(1)
    users = range(0, 600, 12)
    known = known_of(rows, users, 8, draw, wrong=2)
    truth = {f"person {user}": user for user in users}
    found = sparse_linkage(rows, known, person="user", item="film", values=NEAR, truth=truth)
    assert found.attacked == 50
    assert found.right == found.at_risk >= 48
    assert found.average > 0.9
    assert found.baseline == 1 / 600


def test_people_who_are_not_in_the_release_stand_out_less_than_any_who_are():
    rows, draw = ratings(), np.random.default_rng(2)
    absent, present = known_of(ratings(seed=9), range(50), 8, draw), known_of(rows, range(50), 8, draw, wrong=2)
    gaps = [
        sparse_linkage(rows, known, person="user", item="film", values=NEAR).eccentricity for known in (absent, present)
    ]
    assert gaps[0].max() < gaps[1].min()
    assert np.median(gaps[0]) < np.median(gaps[1]) / 5


def test_rare_items_count_more_than_popular_ones():
    rows = {"user": [1, 1, 2, 2, 3, 3, 4], "film": ["hit", "odd", "hit", "flop", "hit", "flop", "hit"]}
    found = sparse_linkage(rows, {"user": ["x"] * 2, "film": ["hit", "odd"]}, person="user", item="film")
    assert found.matched == (1,)
    tied = sparse_linkage(rows, {"user": ["x"] * 2, "film": ["hit", "flop"]}, person="user", item="film")
    assert tied.matched == (None,)
    assert tied.risk.tolist() == [0.5]


def test_an_item_twice_in_a_record_counts_once():
    rows = {"user": [1, 1, 2, 3], "film": ["a", "a", "a", "b"]}
    found = sparse_linkage(rows, {"user": ["x"], "film": ["a"]}, person="user", item="film")
    assert found.risk.tolist() == [0.5]


def test_missing_values_agree_with_nothing():
    rows = {"user": [1, 2, 3], "film": ["a", "a", "b"], "stars": [None, 4, 4]}
    found = sparse_linkage(
        rows, {"user": ["x"], "film": ["a"], "stars": [4]}, person="user", item="film", values={"stars": 1}
    )
    assert found.matched == (2,)


def test_it_becomes_a_finding_with_the_counts():
    rows, draw = ratings(people=60), np.random.default_rng(3)
    known = known_of(rows, range(10), 8, draw)
    finding = sparse_linkage(rows, known, person="user", item="film").finding("ratings")
    assert finding.attack == "linkage of sparse records"
    assert finding.learned
    assert "10" in finding.figures["people at risk"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"values": {"stars": 0}}, "a positive number"),
        ({"values": {"film": 1}}, "must hold numbers"),
        ({"values": {"nothing": 1}}, "no column"),
        ({"eccentricity": -1}, "eccentricity"),
        ({"item": "nothing"}, "no column"),
    ],
)
def test_wrong_arguments_are_refused_in_a_sentence(changes, sentence):
    rows = {"user": [1], "film": ["a"], "stars": [3]}
    with pytest.raises(BadInput, match=sentence):
        sparse_linkage(rows, rows, **{"person": "user", "item": "film"} | changes)


def test_a_table_without_entries_is_refused():
    empty = {"user": np.array([], dtype=int), "film": np.array([], dtype=str)}
    with pytest.raises(BadInput, match="both tables need entries"):
        sparse_linkage(empty, {"user": [1], "film": ["a"]}, person="user", item="film")

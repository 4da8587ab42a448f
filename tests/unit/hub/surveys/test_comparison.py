"""A survey beside a central release: which queries fit, and that both become shares with honest intervals."""

from types import SimpleNamespace

import pytest

from cloister.hub.surveys import comparison, results
from cloister.privacy.errors import NotHere

WARDS = ["cardiology", "oncology", "surgery", "maternity", "emergency", "geriatrics"]
ASKED = [
    {"id": "ward", "type": "choice", "text": "Which ward were you in?", "options": WARDS},
    {"id": "back", "type": "yes_no", "text": "Did you come back?"},
    {"id": "hours", "type": "number", "text": "How long?", "low": 0, "high": 24},
    {"id": "other", "type": "choice", "text": "Colour?", "options": ["red", "blue"]},
]


def job(rows, sql="SELECT g, COUNT(*) AS n FROM t GROUP BY g", columns=None, confidence=0.95):
    columns = columns or [{"name": "g", "number": False}, {"name": "n", "number": True}]
    cells = [[{"value": name}, {"value": n, "low": n - half, "high": n + half}] for name, n, half in rows]
    return SimpleNamespace(
        result={"columns": columns, "rows": cells, "confidence": confidence}, parameters={"sql": sql}
    )


def without_limits():
    made = job([("no", 30, 2), ("yes", 10, 2)])
    made.result["rows"][0][1] = {"value": 30}
    return made


def test_counts_become_shares_whose_intervals_hold_the_noise_of_the_total():
    shares = comparison.share_of(job([("no", 300, 20), ("yes", 100, 20)]), ("no", "yes"))
    value, low, high = shares["yes"]
    assert value == 0.25
    # d(a/(a+b)) for independent errors of 20 each: sqrt((0.75 * 20)² + (0.25 * 20)²) / 400.
    assert high - value == pytest.approx((15**2 + 5**2) ** 0.5 / 400)
    assert value - low == pytest.approx(high - value)


@pytest.mark.parametrize("words", [("false", "true"), ("0", "1"), ("No", "YES"), (False, True), (0, 1)])
def test_yes_and_no_are_known_by_their_other_names(words):
    shares = comparison.share_of(job([(words[0], 30, 2), (words[1], 10, 2)]), ("no", "yes"))
    assert (shares["no"][0], shares["yes"][0]) == (0.75, 0.25)


@pytest.mark.parametrize(
    "one",
    [
        job([("no", 30, 2)]),
        job([("no", 30, 2), ("maybe", 10, 2)]),
        job([("no", 30, 2), ("yes", 10, 2)], sql="SELECT g, SUM(x) AS n FROM t GROUP BY g"),
        job([("no", 30, 2), ("yes", 10, 2)], sql="not SQL ((("),
        job([("no", -30, 2), ("yes", 10, 2)]),
        job([("no", 30, 2), ("yes", 10, 2)], columns=[{"name": "g", "number": True}, {"name": "n", "number": True}]),
        SimpleNamespace(result=None, parameters={}),
        SimpleNamespace(result={"columns": [], "rows": "sealed"}, parameters={}),
        without_limits(),
    ],
)
def test_what_does_not_count_people_by_the_choices_does_not_fit(one):
    assert comparison.share_of(one, ("no", "yes")) is None


def test_a_count_is_found_among_other_numbers():
    columns = [{"name": name, "number": name != "g"} for name in ("g", "mean", "n")]
    one = job([("no", 30, 2), ("yes", 10, 2)], "SELECT g, AVG(x) AS mean, COUNT(*) AS n FROM t GROUP BY g", columns)
    for row in one.result["rows"]:
        row.insert(1, {"value": 7.0, "low": 6.0, "high": 8.0})
    assert comparison.share_of(one, ("no", "yes"))["yes"][0] == 0.25


def test_groups_that_are_no_choice_are_left_out():
    shares = comparison.share_of(job([("no", 30, 2), ("yes", 10, 2), (None, 100, 2), ("maybe", 5, 1)]), ("no", "yes"))
    assert shares["no"][0] == 0.75


def test_groups_that_mean_the_same_choice_are_added_and_so_is_their_noise():
    rows = [("no", 300, 20), ("yes", 60, 12), ("TRUE", 30, 12), ("Yes", 10, 8), ("1", 0, 6)]
    shares = comparison.share_of(job(rows), ("no", "yes"))
    one = comparison.share_of(job([("no", 300, 20), ("yes", 100, (12**2 + 12**2 + 8**2 + 6**2) ** 0.5)]), ("no", "yes"))
    assert [*shares] == [*one]
    for name in ("no", "yes"):
        assert shares[name] == pytest.approx(one[name])
    assert comparison.share_of(job(rows[::-1]), ("no", "yes"))["yes"] == pytest.approx(shares["yes"])


def test_a_choice_is_known_by_its_own_spelling_first():
    shares = comparison.share_of(job([("a", 30, 2), ("A", 10, 2)]), ("A", "a"))
    assert (shares["A"][0], shares["a"][0]) == (0.25, 0.75)
    assert comparison.share_of(job([("a", 30, 2), ("A", 10, 2), ("b", 1, 1)]), ("A", "a", "B"))["B"][0] == 1 / 41
    shares = comparison.share_of(job([("true", 30, 2), ("yes", 10, 2)]), ("true", "yes"))
    assert shares["yes"][0] == 0.25


def test_people_without_a_value_are_not_those_who_chose_none():
    shares = comparison.share_of(job([("none", 30, 2), ("some", 10, 2), (None, 60, 2)]), ("none", "some"))
    assert shares["none"][0] == 0.75
    assert comparison.share_of(job([("some", 10, 2), (None, 60, 2)]), ("None", "some")) is None


@pytest.fixture
def town(answered, hospital_hub):
    world = hospital_hub
    counted = world.submit("ada", spend="rho 0.02")
    world.submit("ada", sql="SELECT COUNT(*) AS n FROM visits", spend="rho 0.01")
    world.submit("ben", sql="SELECT ward, COUNT(*) AS n FROM visits WHERE age > 30 GROUP BY ward")
    assert world.work() == ["done"] * 3
    wards = [cell[0]["value"] for cell in world.job(counted.id).result["rows"]]
    asked = [{**ASKED[0], "options": wards}, *ASKED[1:]]
    people = [{"ward": (wards[at % len(wards)], "light"), "back": ("no", "light")} for at in range(200)]
    return world, answered(asked, people), counted


def test_a_finished_count_by_the_same_choices_is_offered_and_laid_beside(town):
    world, survey, counted = town
    with world.hub.database.reading() as session:
        read = results.read(world.hub, session, survey)
        assert [one.id for one in comparison.fitting(session, world.ada, read.found["ward"])] == [counted.id]
        assert comparison.fitting(session, world.ada, read.found["back"]) == []
        assert comparison.fitting(session, world.ada, read.found["hours"]) == []
        assert comparison.fitting(session, world.cleo, read.found["ward"]) == []
        found, here, central = comparison.both(session, world.ada, read.found["ward"], counted.id)
    assert found.id == counted.id
    assert list(here.shares) == list(central.shares)
    assert sum(value for value, _, _ in central.shares.values()) == pytest.approx(1)
    assert all(low < value < high for side in (here, central) for value, low, high in side.shares.values())


def test_somebody_elses_answer_cannot_be_laid_beside(town):
    world, survey, _ = town
    with world.hub.database.reading() as session:
        read = results.read(world.hub, session, survey)
        for number in (0, -1, 3, 2, 10**12):  # Ben's, one without groups, and none
            with pytest.raises(NotHere):
                comparison.both(session, world.ada, read.found["ward"], number)

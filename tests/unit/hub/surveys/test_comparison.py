"""A survey beside a central release: which queries fit, and that both become shares with honest intervals."""

from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient

from cloister.hub.approvals.visibility import result_of
from cloister.hub.core.models import Job
from cloister.hub.surveys import comparison, results
from cloister.hub.users import sessions
from cloister.hub.web.app import create_app
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
        counts = comparison.counted(session, world.ada)
        assert [job.id for job in comparison.fitting(counts, read.found["ward"])] == [counted.id]
        assert comparison.fitting(counts, read.found["back"]) == []
        assert comparison.fitting(counts, read.found["hours"]) == []
        assert comparison.counted(session, world.cleo) == []
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


def finished(world, texts, rows=None, size=100):
    """Put finished queries of Ada's into the store, without asking them."""
    cells = rows or [[{"value": name}, {"value": 10, "low": 8, "high": 12}] for name in ("no", "yes")]
    columns = [{"name": "g", "number": False}, {"name": "n", "number": True}]
    dataset = world.dataset()
    with world.hub.database.writing() as session:
        for sql in texts:
            session.add(
                Job(kind="query", dataset_id=dataset.id, person_id=world.ada.id, purpose="x", parameters={"sql": sql},
                    policy_number=1, state="done", result={"columns": columns, "rows": cells}, size=size)
            )  # fmt: skip


def asked_page(world, survey):
    with world.hub.database.writing() as session:
        secret, _ = sessions.begin(session, world.hub.settings, world.ada, complete=True)
    web = TestClient(create_app(world.hub), headers={"cookie": f"cloister-session={secret}"})
    return web.get(f"/surveys/{survey.name}/beside")


def test_a_page_parses_each_text_once_and_loads_each_result_once(answered, hospital_hub, monkeypatch):
    asked = [{"id": f"q{number}", "type": "yes_no", "text": f"Number {number}?"} for number in range(12)]
    survey = answered(asked, [{f"q{number}": ("no", "light") for number in range(12)} for _ in range(30)])
    texts = [f"SELECT g, COUNT(*) AS n FROM t WHERE x > {number} GROUP BY g" for number in range(5)]
    finished(hospital_hub, texts * 4)
    parsed, loaded = [], []
    parse, load = comparison.parse, comparison.result_of
    monkeypatch.setattr(comparison, "parse", lambda sql: [parsed.append(sql), parse(sql)][1])
    monkeypatch.setattr(
        comparison, "result_of", lambda session, job, **more: [loaded.append(job.id), load(session, job, **more)][1]
    )
    comparison._counting.cache_clear()
    page = asked_page(hospital_hub, survey)
    assert page.status_code == 200
    assert page.text.count("Number") >= 12
    assert sorted(parsed) == sorted(texts)
    assert len(loaded) == len(set(loaded)) == 20


def test_texts_and_results_that_a_comparison_looks_at_have_limits(hospital_hub, monkeypatch):
    short = [f"SELECT g, COUNT(*) AS n FROM t WHERE x > {number} GROUP BY g" for number in range(5)]
    dense = [f"SELECT g, COUNT(*) AS n FROM t WHERE x IN ({','.join(['1'] * length)},{length}) GROUP BY g"
             for length in range(900, 960)]  # fmt: skip
    long = f"SELECT g, COUNT(*) AS n FROM t WHERE x IN ({','.join(['1'] * 3000)}) GROUP BY g"
    finished(hospital_hub, short[:1], size=10**6)
    finished(hospital_hub, [*dense, *short[1:], long])
    parsed, parse = [], comparison.parse
    monkeypatch.setattr(comparison, "parse", lambda sql: [parsed.append(sql), parse(sql)][1])
    comparison._counting.cache_clear()
    with hospital_hub.hub.database.reading() as session:
        offered = [job.parameters["sql"] for job, _ in comparison.counted(session, hospital_hub.ada)]
    assert set(short[1:]) <= set(offered)
    assert short[0] not in offered  # its result is large
    assert long not in parsed
    assert sum(map(len, parsed)) <= 40_000


def test_a_repeated_result_is_looked_at_by_the_size_of_the_first(hospital_hub):
    world = hospital_hub
    numbers = [world.submit("ada").id, world.submit("ada").id]
    assert world.work() == ["done"] * 2
    with world.hub.database.reading() as session:
        job = session.get(Job, numbers[1])
        assert result_of(session, job, largest=10**6) == result_of(session, job)
        assert result_of(session, job, largest=10) is None

"""Groups that are not public, found inside one question."""

import pyarrow as pa
import pytest

from cloister.dataset import open as open_dataset
from cloister.privacy.errors import CloisterError, OverBudget, QueryRefused, WrongMeasure
from cloister.privacy.loss import epsilon, rho
from cloister.privacy.noise import SeededSource
from cloister.query.analyst import Analyst

SCHEMA = {
    "unit": {"name": "person", "max_rows": 2},
    "tables": {
        "trips": {
            "unit": "person",
            "columns": {
                "city": {"type": "text"},
                "year": {"type": "integer"},
                "km": {"type": "integer", "bounds": [0, 100]},
            },
        }
    },
}
SPEND = epsilon(2, delta="1e-6")
BY_CITY = "SELECT city, COUNT(*) AS trips, SUM(km) AS km FROM trips GROUP BY city"


@pytest.fixture
def trips(tmp_path):
    cities = ["Ulm"] * 500 + ["Graz"] * 400 + ["Nowhere"]
    table = pa.table(
        {
            "person": list(range(len(cities))),
            "city": cities,
            "year": [2024 + i % 2 for i in range(len(cities))],
            "km": [10] * len(cities),
        }
    )
    with open_dataset(table, schema=SCHEMA, budget=epsilon(20, delta="1e-4"), ledger=tmp_path) as trips:
        yield trips


def test_frequent_groups_are_found_and_a_rare_one_is_not(trips):
    answer = trips.sql(BY_CITY, spend=SPEND)
    assert answer.column("city") == ["Graz", "Ulm"]
    assert answer.column("trips") == pytest.approx([400, 500], abs=60)


def test_the_plan_states_the_threshold_and_costs_nothing(trips):
    plan = trips.plan(BY_CITY, spend=SPEND)
    text = str(plan)
    assert str(plan.finds[0].mechanism.threshold) in text
    assert "found first" in text
    assert trips.account.spent.amount == 0


def test_what_is_charged_is_what_the_plan_said(trips):
    plan = trips.plan(BY_CITY, spend=SPEND)
    answer = trips.run(plan)
    assert trips.account.spent == plan.loss
    assert answer.loss == plan.loss
    assert plan.loss.delta > 0


def test_the_groups_are_paid_for_once(trips):
    trips.sql(BY_CITY, spend=SPEND)
    spent = trips.account.spent
    assert trips.sql(BY_CITY, spend=SPEND).loss.amount == 0
    assert trips.account.spent == spent
    again = trips.plan("SELECT city, AVG(km) FROM trips GROUP BY city", spend=rho("0.1"))
    assert not again.finds


def test_two_groupings_share_the_search(trips):
    plan = trips.plan("SELECT city, year, COUNT(*) AS n FROM trips GROUP BY city, year", spend=SPEND)
    assert [one.name for one in plan.finds] == ["city", "year"]
    answer = trips.run(plan)
    assert set(zip(answer.column("city"), answer.column("year"), strict=True)) == {
        (city, year) for city in ("Graz", "Ulm") for year in (2024, 2025)
    }


def test_no_group_with_enough_people_gives_an_empty_answer_and_keeps_the_rest_of_the_spend(trips):
    plan = trips.plan(f"{BY_CITY.replace('GROUP', 'WHERE km > 90 GROUP')}", spend=SPEND)
    answer = trips.run(plan)
    assert len(answer) == 0
    assert answer.columns == ("city", "trips", "km")
    assert trips.account.spent == plan.finds[0].mechanism.loss


def test_without_a_delta_the_way_out_is_said(trips):
    with pytest.raises(QueryRefused, match="with a delta"):
        trips.plan(BY_CITY, spend=rho("0.1"))


def test_a_pure_account_cannot_find_groups(tmp_path):
    table = pa.table({"person": [1], "city": ["Ulm"], "year": [2024], "km": [1]})
    with open_dataset(table, schema=SCHEMA, budget=epsilon(20), ledger=tmp_path) as pure, pytest.raises(WrongMeasure):
        pure.plan(BY_CITY, spend=SPEND)


def test_a_search_over_budget_reads_nothing(trips):
    plan = trips.plan(BY_CITY, spend=epsilon(40, delta="1e-5"))
    with pytest.raises(OverBudget):
        trips.run(plan)
    assert trips.account.spent.amount == 0


def test_a_total_over_groups_that_were_found_is_not_forced_onto_their_sum(tmp_path):
    """Rows of groups that were not found are in the total and in none of its parts."""
    cities = ["Ulm"] * 2000 + [f"village {i}" for i in range(2000)]
    table = pa.table(
        {"person": list(range(4000)), "city": cities, "year": [1] * 4000, "km": [i % 3 for i in range(4000)]}
    )
    with open_dataset(table, schema=SCHEMA, budget=rho(10**5, delta="0.1"), ledger=tmp_path) as trips:
        answer = trips.sql(
            "SELECT city, COUNT(*) AS n FROM trips GROUP BY ROLLUP (city)", spend=rho(10**4, delta="1e-6")
        )
        assert {row["city"]: round(row["n"]) for row in answer.rows()} == {"Ulm": 2000, None: 4000}
        # Below a group that was found, the parts of a public key do add up to it.
        answer = trips.sql(
            "SELECT city, km, COUNT(*) AS n FROM trips GROUP BY ROLLUP (city, km)", spend=rho("0.1", delta="1e-6")
        )
        counts = [row["n"] for row in answer.rows()]
        [of_ulm] = counts[102:-1]
        assert sum(counts[:102]) == pytest.approx(of_ulm)
        assert counts[-1] == pytest.approx(4000, abs=100)


def test_a_bounded_number_whose_values_were_found_has_the_others_as_null(tmp_path):
    table = pa.table(
        {"person": list(range(600)), "city": ["a"] * 600, "year": [1] * 600, "km": [10] * 400 + list(range(200))}
    )
    with open_dataset(table, schema=SCHEMA, budget=rho(10**5, delta="0.1"), ledger=tmp_path) as trips:
        assert 10 in trips.find_keys("km", spend=rho(1, delta="1e-6")).value
        answer = trips.sql("SELECT km, COUNT(*) AS n FROM trips GROUP BY ROLLUP (km)", spend=rho(10**4))
        found = [row["n"] for row in answer.rows()]
        assert sum(found[:-1]) == pytest.approx(600, abs=3)
        assert found[-2] > 50  # NULL: whatever was not found
        assert found[-1] == pytest.approx(600, abs=1)


def test_what_seeded_noise_found_is_used_by_no_later_answer(tmp_path):
    table = pa.table({"person": list(range(600)), "city": ["a"] * 600, "year": [1] * 600, "km": [10] * 600})
    columns = {"km": {"type": "integer"}, "city": {"type": "text"}}
    schema = {"unit": {"name": "person", "max_rows": 1}, "tables": {"trips": {"unit": "person", "columns": columns}}}
    with open_dataset({"trips": table}, schema=schema, budget=rho(10**5, delta="0.1"), ledger=tmp_path) as trips:
        keys = trips.find_keys("city", spend=rho(1, delta="1e-6"), source=SeededSource(7))
        bounds = trips.find_bounds("km", spend=rho(1), source=SeededSource(7))
        assert keys.value == ["a"]
        assert not keys.private
        assert not bounds.private
        with pytest.raises(CloisterError):  # as if nothing had been found
            trips.plan("SELECT SUM(km) AS s FROM trips", spend=rho(1))
        with pytest.raises(CloisterError):
            trips.plan("SELECT city, COUNT(*) AS n FROM trips GROUP BY city", spend=rho(1))


def test_a_delta_that_no_search_needs_is_not_spent(trips):
    answer = trips.sql("SELECT COUNT(*) AS n FROM trips", spend=rho("0.1", delta="1e-6"))
    assert answer.loss == rho("0.1")


@pytest.mark.parametrize(("column", "way"), [("day", "EXTRACT"), ("price", "FLOOR")])
def test_groups_that_cannot_be_found_are_refused_with_a_way_that_works(tmp_path, column, way):
    columns = {"day": {"type": "date", "bounds": ["2026-01-01", "2026-12-31"]}, "price": {"type": "real"}}
    schema = {"unit": "row", "tables": {"t": {"columns": columns}}}
    table = pa.table({"day": pa.array([None], pa.date32()), "price": [1.0]})
    with open_dataset(table, schema=schema, budget=rho(1), ledger=tmp_path) as found:
        with pytest.raises(QueryRefused, match=way) as refused:
            found.plan(f"SELECT {column}, COUNT(*) AS n FROM t GROUP BY {column}", spend=rho(1))
        written = str(refused.value).split(": ")[-1].split(",")[0].rstrip(".")
        if column == "day":
            found.plan(f"SELECT COUNT(*) AS n FROM t GROUP BY {written}", spend=rho(1))


# Groups that do not fit, and groups of somebody else


def crowded(folder, groups=30, each=200):
    """Found groups beside so many public ones that not all fit into one question; the first are the most frequent."""
    names = [f"g{i:02}" for i in range(groups) for _ in range(each + 10 * (groups - i))]
    facts = {"k": {"type": "integer", "bounds": [0, 900_000], "nullable": False}, "s": {"type": "text"}}
    schema = {"unit": {"name": "p", "max_rows": 1}, "tables": {"t": {"unit": "p", "columns": facts}}}
    table = pa.table({"p": range(len(names)), "k": [0] * len(names), "s": names})
    return open_dataset(table, schema=schema, budget=epsilon(1000, delta="0.01"), ledger=folder)


def test_groups_that_were_paid_for_are_answered_as_far_as_they_fit(tmp_path, monkeypatch):
    monkeypatch.setattr("cloister.query.discovery.MOST_CELLS", 2_000_000)
    sql = "SELECT s, k, COUNT(*) AS n FROM t GROUP BY s, k HAVING k = 0 ORDER BY s"
    with crowded(tmp_path) as dataset:
        plan = dataset.plan(sql, spend=epsilon(40, delta="1e-6"))
        assert "groups that are found: the 2 most frequent are answered, as many as fit" in plan.notes
        answer = dataset.run(plan)
        assert answer.loss == plan.loss == dataset.account.spent
        assert answer.column("s") == ["g00", "g01"]
        assert answer.column("n") == pytest.approx([500, 490], abs=30)
        assert any("the 2 most frequent of 30 that were found" in note for note in answer.notes)
        again = dataset.sql(sql, spend=epsilon(40, delta="1e-6"))  # from the record, and the same groups
        assert again.loss.amount == 0
        assert again.column("s") == ["g00", "g01"]
        whole = dataset.sql("SELECT s, SUM(k) AS n FROM t GROUP BY s", spend=rho("0.1"))
        assert len(whole) == 30  # what was found is all there for a question that has room


def test_cells_of_a_quantile_count_for_what_fits(tmp_path, monkeypatch):
    monkeypatch.setattr("cloister.query.discovery.MOST_CELLS", 20_000)
    with crowded(tmp_path) as dataset:
        answer = dataset.sql("SELECT s, MEDIAN(k) AS m FROM t GROUP BY s", spend=epsilon(40, delta="1e-6"))
        assert answer.column("s") == ["g00", "g01", "g02", "g03"]  # 4096 leaves each


def test_a_question_that_is_too_large_with_a_single_group_is_refused_before_the_search(tmp_path, monkeypatch):
    monkeypatch.setattr("cloister.query.discovery.MOST_CELLS", 900_000)
    with crowded(tmp_path, groups=2, each=5) as dataset:
        with pytest.raises(QueryRefused, match="900,001 groups"):
            dataset.plan("SELECT s, k, COUNT(*) AS n FROM t GROUP BY s, k", spend=epsilon(40, delta="1e-6"))
        assert dataset.account.spent.amount == 0


def test_groups_that_one_reader_paid_for_are_not_told_to_another_by_a_plan(trips):
    class Told(set):
        has = set.__contains__
        add = set.update

    one, two = (Analyst(trips.account.book.open_account(who, epsilon(20, delta="1e-4")), Told()) for who in "ab")
    trips.asked_by(one).sql(BY_CITY, spend=SPEND)
    plan = trips.asked_by(one).plan(BY_CITY, spend=SPEND)
    assert not plan.finds
    for other in (trips.asked_by(two), trips):
        with pytest.raises(QueryRefused, match="another reader"):
            other.run(plan)
    assert two.account.spent.amount == 0
    assert trips.asked_by(two).plan(BY_CITY, spend=SPEND).finds
    trips.asked_by(one).run(plan)


@pytest.mark.parametrize("ends", [(2**63 - 1,), (-(2**63),), (-(2**63), 2**63 - 1, 7)])
def test_bounds_that_are_found_for_integers_have_64_bits(ends, tmp_path):
    table = pa.table({"person": list(range(900)), "city": ["Ulm"] * 900, "year": (ends * 900)[:900], "km": [1] * 900})
    with open_dataset(table, schema=SCHEMA, budget=rho(1000), ledger=tmp_path) as trips:
        low, high = trips.find_bounds("year", spend=rho(1)).value
        assert -(2**63) < low < high < 2**63
        sql = "SELECT MEDIAN(year) AS m, MAX(year) AS h, AVG(year) AS a FROM trips"
        (row,) = trips.sql(sql, spend=rho(100), confidence="0.9999999").rows()
    middle = sorted((ends * 900)[:900])[449]
    assert row["m_low"] <= middle + 1
    assert row["m_high"] >= middle - 1
    assert row["h_low"] <= max(ends) <= row["h_high"]
    assert row["a_low"] <= sum((ends * 900)[:900]) / 900 <= row["a_high"]

"""Groups that are not public, found inside one question."""

import pyarrow as pa
import pytest

from cloister.dataset import open as open_dataset
from cloister.privacy.errors import OverBudget, QueryRefused, WrongMeasure
from cloister.privacy.loss import epsilon, rho

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

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

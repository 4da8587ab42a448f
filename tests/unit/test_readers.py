"""Somebody's own account beside the dataset's, and tables seen through a view."""

import pyarrow as pa
import pytest

from cloister.data.hospital import SCHEMA, hospital
from cloister.dataset import Dataset
from cloister.dataset import open as open_dataset
from cloister.learn import LogisticRegression
from cloister.privacy.errors import BadSchema, OverBudget, QueryRefused
from cloister.privacy.ledger import Ledger, verify
from cloister.privacy.loss import Loss, rho
from cloister.privacy.noise import SeededSource
from cloister.query.analyst import Analyst
from cloister.query.answer_cache import AnswerCache

WARDS = "SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward"


class Memory:
    def __init__(self):
        self.known = set()

    def has(self, fingerprint):
        return fingerprint in self.known

    def add(self, fingerprints):
        self.known.update(fingerprints)


@pytest.fixture
def ledger(tmp_path):
    with Ledger.in_folder(tmp_path) as ledger:
        yield ledger


@pytest.fixture
def visits(ledger):
    with open_dataset(pa.table(hospital()), schema=SCHEMA, budget=rho(1), ledger=ledger) as visits:
        yield visits


def reader(visits: Dataset, name: str, budget: Loss | None = None, label: str = "") -> Analyst:
    return Analyst(visits.account.book.open_account(visits.account.name, budget or rho(1), name), Memory(), label)


def test_a_question_debits_the_dataset_and_the_reader_in_one_entry(visits, ledger):
    ada = reader(visits, "ada")
    before = ledger.head.number
    answer = visits.asked_by(ada).sql(WARDS, spend=rho("0.1"))
    assert visits.account.spent.amount == ada.account.spent.amount == rho("0.1").amount
    assert ledger.head.number == before + 2  # reserve and commit
    assert [one["account"] for one in answer.receipt.body["accounts"]] == ["visits", "visits@ada"]


def test_an_answer_from_the_record_debits_the_next_reader_alone(visits):
    ada, bob = reader(visits, "ada"), reader(visits, "bob")
    first = visits.asked_by(ada).sql(WARDS, spend=rho("0.1"))
    second = visits.asked_by(bob).sql(WARDS, spend=rho("0.1"))
    assert second.column("visits") == first.column("visits")
    assert second.loss.amount == 0
    assert visits.account.spent.amount == bob.account.spent.amount == rho("0.1").amount


def test_the_same_answer_again_debits_nobody(visits):
    ada = reader(visits, "ada")
    for _ in range(3):
        visits.asked_by(ada).sql(WARDS, spend=rho("0.1"))
    assert ada.account.spent.amount == rho("0.1").amount


def test_a_reader_who_cannot_pay_is_not_told_what_others_know(visits):
    ada, bob = reader(visits, "ada"), reader(visits, "bob", budget=rho("0.05"))
    visits.asked_by(ada).sql(WARDS, spend=rho("0.1"))
    with pytest.raises(OverBudget):
        visits.asked_by(bob).sql(WARDS, spend=rho("0.1"))
    assert bob.account.spent.amount == 0
    assert not bob.received.known


def test_a_reader_over_budget_costs_the_dataset_nothing(visits):
    bob = reader(visits, "bob", budget=rho("0.05"))
    with pytest.raises(OverBudget):
        visits.asked_by(bob).sql(WARDS, spend=rho("0.1"))
    assert visits.account.spent.amount == 0


def test_what_is_new_and_what_is_only_news_are_paid_together(visits, tmp_path, ledger):
    ada, bob = reader(visits, "ada"), reader(visits, "bob")
    visits.asked_by(ada).sql("SELECT COUNT(*) FROM visits WHERE stay_days > 1", spend=rho("0.1"))
    spent = visits.account.spent.amount
    visits.asked_by(bob).sql("SELECT COUNT(*), SUM(stay_days) FROM visits WHERE stay_days > 1", spend=rho("0.1"))
    assert bob.account.spent.amount == visits.account.spent.amount  # what ada paid for is news to bob
    assert visits.account.spent.amount > spent
    verify(tmp_path / "ledger.db", ledger.key.public, head=ledger.head)


def test_a_more_precise_release_is_news_to_whoever_knows_the_coarse_one(visits):
    ada, bob = reader(visits, "ada"), reader(visits, "bob")
    visits.asked_by(ada).sql(WARDS, spend=rho("0.001"))
    precise = visits.asked_by(bob).sql(WARDS, spend=rho("0.5"))
    again = visits.asked_by(ada).sql(WARDS, spend=rho("0.001"))
    assert again.column("visits") == precise.column("visits")
    assert ada.account.spent.amount == rho("0.501").amount


def test_what_a_seed_made_enters_no_record(visits):
    visits.sql(WARDS, spend=rho("0.1"), source=SeededSource("teaching"))
    answer = visits.sql(WARDS, spend=rho("0.1"))
    assert answer.loss.amount == rho("0.1").amount
    assert answer.private


def test_the_label_enters_the_hash_of_the_request(visits):
    one = visits.asked_by(reader(visits, "ada", label="job 1")).sql(WARDS, spend=rho("0.1"))
    two = visits.asked_by(reader(visits, "ada", label="job 2")).sql(WARDS, spend=rho("0.2"))
    assert one.receipt.body["request"] != two.receipt.body["request"]


def test_finding_bounds_debits_both(visits):
    ada = reader(visits, "ada")
    visits.asked_by(ada).find_bounds("age", spend=rho("0.1"))
    assert visits.account.spent.amount == ada.account.spent.amount == rho("0.1").amount


def test_the_record_is_shared_between_processes(visits, tmp_path):
    path = tmp_path / "visits.record"
    first = Dataset(visits.tables, visits.account, record=path)
    second = Dataset(visits.tables, visits.account, record=AnswerCache("", path))
    first.sql(WARDS, spend=rho("0.1"))
    assert second.sql(WARDS, spend=rho("0.1")).loss.amount == 0


# Views


def test_a_view_hides_columns(visits):
    seen = visits.through({"visits": "SELECT ward, stay_days FROM visits"})
    assert len(seen.sql(WARDS, spend=rho("0.1"))) > 0
    with pytest.raises(QueryRefused, match=r"there is no column age. There are: stay_days, ward"):
        seen.plan("SELECT AVG(age) FROM visits", spend=rho("0.1"))


def test_a_view_hides_rows_by_a_column_that_it_hides_too(visits):
    seen = visits.through({"visits": "SELECT ward FROM visits WHERE age >= 65"})
    old = visits.sql("SELECT COUNT(*) AS n FROM visits WHERE age >= 65", spend=rho("0.4")).item()
    shown = seen.sql("SELECT COUNT(*) AS n FROM visits", spend=rho("0.4")).item()
    everybody = visits.sql("SELECT COUNT(*) AS n FROM visits", spend=rho("0.15")).item()
    assert abs(old - shown) < 200 < everybody - shown


def test_a_view_transforms_a_column(visits):
    seen = visits.through({"visits": "SELECT ward, FLOOR(age / 10) * 10 AS age FROM visits"})
    plan = seen.plan("SELECT AVG(age) FROM visits", spend=rho("0.1"))
    assert "FLOOR" in plan.statements()[0].upper()


def test_a_question_cannot_step_around_its_view(visits):
    seen = visits.through({"visits": "SELECT ward FROM visits"})
    for sql in (
        "WITH v AS (SELECT age FROM visits) SELECT AVG(age) FROM v",
        "SELECT AVG(v.age) FROM (SELECT * FROM VISITS) AS v",
        'SELECT AVG(age) FROM "Visits"',
        "SELECT COUNT(*) FROM visits AS a JOIN visits AS b ON a.ward = b.ward WHERE b.age > 3",
    ):
        with pytest.raises(QueryRefused):
            seen.plan(sql, spend=rho("0.1"))


def test_a_view_of_a_table_that_is_not_there_is_refused(visits):
    with pytest.raises((BadSchema, QueryRefused)):
        visits.through({"labs": "SELECT x FROM labs"})


def test_a_model_does_not_learn_from_a_column_that_a_view_hides_and_spends_nothing(visits):
    seen = visits.through({"visits": "SELECT ward, readmitted FROM visits WHERE age >= 65"})
    model = LogisticRegression(rho("0.1"), classes=[0, 1], method="quadratic")
    with pytest.raises(BadSchema, match=r"there is no column visits\.age"):
        model.fit(seen, target="readmitted", features=["age"])
    assert visits.account.spent.amount == 0

"""Somebody's own account beside the dataset's, and tables seen through a view."""

import threading

import numpy as np
import pyarrow as pa
import pytest

from cloister.data.hospital import SCHEMA, hospital
from cloister.dataset import Dataset
from cloister.dataset import open as open_dataset
from cloister.learn import LogisticRegression
from cloister.privacy.errors import BadSchema, OverBudget, QueryRefused
from cloister.privacy.ledger import Ledger, verify
from cloister.privacy.loss import Loss, epsilon, rho
from cloister.privacy.noise import SeededSource
from cloister.query.analyst import Analyst
from cloister.query.answer_cache import AnswerCache, made_release

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


ALL = "SELECT COUNT(*) AS n FROM visits WHERE age + {} >= 0"


def test_what_is_handed_out_is_what_was_paid_for_though_it_is_replaced_meanwhile(visits, ledger, monkeypatch):
    """Another thread enters a precise release between the reader's charge and the answer."""
    bob, question = reader(visits, "bob", rho("0.01")), ALL.format(0)
    coarse = visits.sql(question, spend=rho("0.001")).rows()
    plan = visits.asked_by(bob).plan(question, spend=rho("0.001"))
    charge = ledger.charge_all

    def charge_then_enter(*args, **more):
        charged = charge(*args, **more)
        monkeypatch.setattr(ledger, "charge_all", charge)
        visits.sql(question, spend=rho("0.5"))
        return charged

    monkeypatch.setattr(ledger, "charge_all", charge_then_enter)
    assert visits.asked_by(bob).run(plan).rows() == coarse
    assert bob.account.spent == rho("0.001")
    assert len(bob.received.known) == 1
    again = visits.asked_by(reader(visits, "carl")).sql(question, spend=rho("0.001")).rows()
    assert again != coarse  # the precise one is kept, and costs its own price
    with pytest.raises(OverBudget):
        visits.asked_by(bob).sql(question, spend=rho("0.001"))


def test_threads_pay_for_what_they_are_told(ledger):
    """A thread enters releases that are ever more precise while readers ask. Each answer belongs to what it cost."""
    with open_dataset(pa.table(hospital()), schema=SCHEMA, budget=rho(10**6), ledger=ledger, name="many") as visits:
        question, prices = ALL.format(1), [rho(f"0.00{k}") for k in range(1, 9)]
        told, made, wrong = [], {}, []

        def whole(answer):
            return tuple(answer.rows()[0].values())  # with limits: they tell how precise it is

        def enter():
            for price in prices:
                made[whole(visits.sql(question, spend=price))] = price

        def ask(name):
            try:
                for turn in range(6):
                    who = reader(visits, f"{name}-{turn}", rho(1))
                    answer = visits.asked_by(who).sql(question, spend=prices[0])
                    told.append((whole(answer), who.account.spent, len(who.received.known)))
            except Exception as error:
                wrong.append(error)

        made[whole(visits.sql(question, spend=rho("0.001")))] = rho("0.001")
        threads = [threading.Thread(target=ask, args=(name,)) for name in ("ada", "bob", "carl")]
        threads.append(threading.Thread(target=enter))
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert not wrong
        assert len(told) == 18
        assert all(spent == made[answer] and known == 1 for answer, spent, known in told)


def test_two_releases_of_the_same_numbers_are_two(visits):
    """The more precise one tells more, also where its noisy number happens to be the same."""
    (one,) = visits.plan(ALL.format(2), spend=rho("0.001")).measurements
    (precise,) = visits.plan(ALL.format(2), spend=rho("0.5")).measurements
    assert made_release(one, "", [np.array([7])]).id != made_release(precise, "", [np.array([7])]).id
    assert made_release(one, "", [np.array([7])]).id == made_release(one, "", [np.array([7])]).id


def test_a_release_is_the_same_one_in_every_process(visits, tmp_path):
    path = tmp_path / "visits.record"
    first = Dataset(visits.tables, visits.account, record=path)
    ada = reader(visits, "ada")
    first.asked_by(ada).sql(WARDS, spend=rho("0.1"))
    Dataset(visits.tables, visits.account, record=path).asked_by(ada).sql(WARDS, spend=rho("0.1"))
    assert ada.account.spent == rho("0.1")
    assert len(ada.received.known) == 1


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


# What was found


FREE = {
    "unit": {"name": "p", "max_rows": 1},
    "tables": {"t": {"unit": "p", "columns": {"w": {"type": "text"}, "x": {"type": "real"}}}},
}


@pytest.fixture
def free(ledger):
    """Two words and numbers without bounds, which must be found."""
    rows = {
        "p": list(range(2000)),
        "w": ["club" if i % 2 else "other" for i in range(2000)],
        "x": [100.0 + i % 50 for i in range(2000)],
    }
    budget = epsilon(90, delta="1e-5")
    with open_dataset(pa.table(rows), schema=FREE, budget=budget, ledger=ledger) as free:
        yield free


def find_both(dataset: Dataset) -> None:
    dataset.find_keys("t.w", spend=epsilon(1, delta="1e-8"))
    dataset.find_bounds("t.x", spend=rho("0.05"))


def known(dataset: Dataset) -> tuple[object, object]:
    columns = dataset.columns("t")
    return columns["w"].values, columns["x"].low


@pytest.mark.parametrize("finder", ["the owner", "another reader"])
def test_what_others_found_is_unknown_to_a_reader_until_paid_for(free, finder):
    ada, bob = reader(free, "ada", epsilon(20, delta="1e-6")), reader(free, "bob", epsilon(20, delta="1e-6"))
    before = free if finder == "the owner" else free.asked_by(ada)
    find_both(before)
    assert known(before)[0] == ("club", "other")
    of_bob = before.asked_by(bob)
    for twin in (of_bob, of_bob.through({}), before.through({}).asked_by(bob)):
        assert known(twin) == (None, None)
        with pytest.raises(QueryRefused):
            twin.sql("SELECT w, SUM(x) FROM t GROUP BY w", spend=rho("0.001"))
    assert bob.account.spent.amount == 0
    find_both(of_bob)
    assert bob.account.spent.amount > rho("0.05").amount
    assert known(of_bob)[0] == ("club", "other")
    assert of_bob.sql("SELECT w, SUM(x) FROM t GROUP BY w", spend=rho("0.001")).column("w") == ["club", "other", None]


def test_what_a_reader_found_stays_known_to_that_reader_alone(free):
    ada, bob = reader(free, "ada", epsilon(20, delta="1e-6")), reader(free, "bob", epsilon(20, delta="1e-6"))
    of_ada = free.asked_by(ada)
    find_both(of_ada)
    assert known(of_ada.asked_by(ada)) == known(of_ada.through({})) == known(of_ada) != (None, None)
    for twin in (free, free.asked_by(bob), of_ada.asked_by(None), of_ada.asked_by(bob).asked_by(None)):
        assert known(twin) == (None, None)

"""PATE on neighbouring tables: what one unit moves before noise, and broken variants that move more."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

import cloister as cl
from cloister import learn
from cloister.attack.mechanisms.audit import Batched, audit
from cloister.learn import serving
from cloister.learn.pate import PATEClassifier, aggregation, partition, teachers
from cloister.learn.pate.aggregation import labels_of
from cloister.privacy.filter import BudgetShare
from cloister.privacy.mechanisms import DiscreteGaussian, NoisyMax, root_above
from cloister.privacy.noise import SeededSource

from .replay import differences, reach, record, replay

pytestmark = pytest.mark.statistical

RANDOM = np.random.default_rng(5)
ROWS, POOL = RANDOM.normal(size=(60, 2)), RANDOM.normal(size=(40, 2))
LABELS = RANDOM.integers(3, size=60)
SPENDS = {"rho": cl.rho(2), "epsilon": cl.epsilon(20)}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "confident": {"confident": 0.5},
    "checked": {"check_teachers": True, "confident": 0.3},
    "neighbours": {"estimator": KNeighborsClassifier(1)},
    "reported": {"data_dependent": "1e-5", "confident": 0.3},
}
PAIRS = [
    (variant, measure) for variant in VARIANTS for measure in SPENDS if (variant, measure) != ("reported", "epsilon")
]
NUMBER = {"type": "real", "bounds": [-4, 4], "nullable": False}
COLUMNS = {"a": NUMBER, "b": NUMBER, "c": {"type": "integer", "categories": [0, 1, 2], "nullable": False}}


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with cl.Ledger.in_folder(tmp_path_factory.mktemp("pate")) as book:
        yield {
            "rho": book.open_account("rho", cl.rho(10**6)),
            "epsilon": book.open_account("epsilon", cl.epsilon(10**6)),
        }


def on_arrays(accounts: Any, measure: str, **more: Any) -> Callable[[Any, Any], Any]:
    told = {"estimator": GaussianNB(), "teachers": 7, "queries": 15, "classes": [0, 1, 2], "public": POOL, **more}
    return lambda rows, labels: PATEClassifier(SPENDS[measure], account=accounts[measure], **told).fit(rows, labels)


def neighbours(seed: int) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """A table without and with one odd row at its end."""
    random = np.random.default_rng(seed)
    odd = random.choice([random.normal(size=2) * 100, np.full(2, np.inf), np.full(2, np.nan), ROWS[0]])
    label = random.integers(4)
    return (ROWS, LABELS), (np.vstack([ROWS, odd]), np.append(LABELS, label))


@pytest.mark.parametrize(("variant", "measure"), PAIRS)
def test_one_row_more_moves_no_more_than_is_paid_for(accounts: Any, variant: str, measure: str) -> None:
    fit = on_arrays(accounts, measure, **VARIANTS[variant])
    for seed in range(12):
        left, right = neighbours(seed)
        first = record(lambda left=left: fit(*left), seed)
        assert first.error is None
        assert not differences(first, replay(first, lambda right=right: fit(*right)))


def person_tables(seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Persons of several rows, without and with one whose rows would reach every teacher."""
    random = np.random.default_rng(seed)
    rows = pd.DataFrame(
        {"who": random.integers(40, size=120), "a": random.normal(size=120), "b": random.normal(size=120)}
    )
    rows["c"] = random.integers(3, size=120)
    one = pd.DataFrame(
        {"who": [99] * 12, "a": random.normal(size=12) * 3, "b": [3.9] * 12, "c": random.integers(3, size=12)}
    )
    return rows, pd.concat([one.iloc[:5], rows, one.iloc[5:]], ignore_index=True)


def on_persons(tmp_path: Any, **more: Any) -> Callable[[pd.DataFrame], Any]:
    schema = {"unit": {"name": "who", "max_rows": 20}, "tables": {"t": {"unit": "who", "columns": COLUMNS}}}
    told = {"estimator": GaussianNB(), "teachers": 7, "queries": 15, "public": POOL, **more}
    book = cl.Ledger.in_folder(tmp_path)
    account = book.open_account("persons", cl.rho(10**6))

    def fit(rows: pd.DataFrame) -> Any:
        from cloister.data.schema import Schema
        from cloister.data.tables import open_tables
        from cloister.dataset import Dataset

        with Dataset(open_tables(rows, Schema.load(schema), threads=1), account) as data:
            return PATEClassifier(SPENDS["rho"], **told).fit(data, target="c", features=["a", "b"])

    return fit


def compared_persons(tmp_path: Any, seeds: int = 6) -> list[str]:
    fit, found = on_persons(tmp_path), []
    for seed in range(seeds):
        left, right = person_tables(seed)
        first = record(lambda left=left: fit(left), seed)
        assert first.error is None, first.detail
        found += differences(first, replay(first, lambda right=right: fit(right)))
    return found


def test_one_person_more_with_many_rows_moves_one_teacher(tmp_path: Any) -> None:
    assert not compared_persons(tmp_path)


def turned(accounts: Any) -> tuple[Any, Any]:
    """One teacher without rows, and with one row that turns its vote everywhere."""
    fit = on_arrays(accounts, "rho", teachers=1)
    first = record(lambda: fit(np.ones((0, 2)), np.ones(0)), 0)
    return first, replay(first, lambda: fit(np.ones((1, 2)), [1]))


def test_the_stated_sensitivity_is_reached(accounts: Any) -> None:
    """A teacher that changes its vote everywhere moves the votes by exactly what the noise is made for."""

    votes = np.zeros((5, 15), dtype=np.int64)
    other = votes.copy()
    other[2] = 1
    gap = teachers.counted(votes, 3) - teachers.counted(other, 3)
    assert (gap**2).sum() == 2 * 15
    assert abs(gap).sum() == 2 * 15
    assert reach(*turned(accounts)) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("measure", SPENDS)
def test_private_prediction_moves_no_more_than_each_answer_pays_for(accounts: Any, measure: str) -> None:
    each = SPENDS[measure]

    def answers(rows: Any, labels: Any) -> Any:
        ensemble = serving.TeacherEnsemble(KNeighborsClassifier(1), teachers=7, bounds=(-4, 4), classes=[0, 1, 2])
        service = learn.serve(ensemble.fit(rows, labels), serving.private(each, accounts[measure]))
        return [service.predict(POOL[:5]), service.predict(POOL[3:9])]

    for seed in range(6):
        left, right = neighbours(seed)
        first = record(lambda left=left: answers(*left), seed)
        assert first.error is None, first.detail
        # Five new rows, then four: the two that were answered before are neither charged nor computed.
        assert [np.size(step.seen) // 3 for step in first.steps] == ([5, 4] if measure == "rho" else [1] * 9)
        assert not differences(first, replay(first, lambda right=right: answers(*right)))


# Broken variants. Each is caught by the comparison above.


def caught(accounts: Any, **more: Any) -> bool:
    fit = on_arrays(accounts, "rho", **more)
    for seed in range(12):
        left, right = neighbours(seed)
        first = record(lambda left=left: fit(*left), seed)
        if differences(first, replay(first, lambda right=right: fit(*right))):
            return True
    return False


def test_parts_that_depend_on_the_number_of_rows_are_caught(accounts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        partition.Parts, "_keys", lambda self, rows, coins: np.random.default_rng(rows).integers(self.count, size=rows)
    )
    assert caught(accounts, estimator=KNeighborsClassifier(1))


def test_parts_by_rank_are_caught(accounts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_rank(self: Any, rows: int, coins: Any) -> Any:
        ranks = np.argsort(np.argsort(-self.source.numbers()[:, 0]))
        return np.random.default_rng(0).integers(self.count, size=100)[ranks]

    monkeypatch.setattr(partition.Parts, "_keys", by_rank)
    assert caught(accounts, estimator=KNeighborsClassifier(1))


def test_noise_for_one_query_on_many_is_caught(accounts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation, "root_above", lambda _square: root_above(2))
    assert caught(accounts, teachers=1)


def test_a_vote_that_is_counted_twice_is_caught(accounts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation, "counted", lambda votes, classes: 2 * teachers.counted(votes, classes))
    first, second = turned(accounts)
    assert differences(first, second)


def test_a_failure_that_stops_the_fit_is_caught(accounts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fitted(estimator: Any, rows: Any, labels: Any, seed: int) -> Any:
        if len(rows) > len(ROWS):
            raise ValueError("many rows")
        return estimator.fit(rows, labels)

    monkeypatch.setattr(teachers, "_fitted", fitted)
    assert caught(accounts, teachers=1)


def test_a_person_whose_rows_reach_several_teachers_is_caught(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_row(self: Any, rows: int, coins: Any) -> Any:
        return np.abs((self.source.numbers()[:, 0] * 1e6).astype(np.int64)) % self.count

    monkeypatch.setattr(partition.Parts, "_keys", by_row)
    assert compared_persons(tmp_path)


# Samples: what leaves, on votes that differ as much as one teacher can make them.


class Whole:
    """A meter that adds the noise and counts nothing."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def release(self, look: Any, mechanism: Any) -> Any:
        assert isinstance(mechanism, DiscreteGaussian | NoisyMax)
        return mechanism.release(look(), self.source)


@pytest.mark.parametrize("spend", [cl.epsilon(1), cl.rho("0.5")], ids=str)
def test_the_labels_of_neighbouring_votes_are_as_alike_as_claimed(spend: cl.Loss) -> None:
    votes = [np.array([[5, 5], [4, 6]]), np.array([[4, 6], [3, 7]])]
    meter: Any = Whole(SeededSource(f"votes {spend}"))

    def drawn(side: int, n: int) -> Any:
        told = [labels_of(meter, BudgetShare(spend), lambda: votes[side], 2) for _ in range(n)]
        return np.array([one @ [1, 2] for one in told])

    assert not audit(Batched(drawn), 0, 1, spend, n=4000, confidence=0.999).broken

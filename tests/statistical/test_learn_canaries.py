"""Every estimator, and what is built on them, attacked by a membership canary: a row unlike all others, in or out.

White box: the attacker sees every number that a fit releases on its way. Black box: it asks the model, about the
canary and about another row. Neither may tell more than the claim allows; and a twin that spends a hundred thousand
times what it claims is caught, so that the attack is known to see the canary. A coarse net, over everything: a hundred
fits a side prove little about a slight excess, which is what the other audits of this room are for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import pytest

import cloister as cl
from cloister import learn
from cloister.attack import Audit, Batched, audit
from cloister.privacy.loss import Loss
from cloister.privacy.noise import SeededSource

from .learn_fits import quick_noise, without_a_ledger

pytestmark = pytest.mark.statistical

CLAIM = cl.rho("0.002")
LOUD = cl.rho(200)
SURE = 0.999
NUMBERS = {"bounds": (0, 1)}
CLASSES = {**NUMBERS, "classes": [0, 1]}
TARGET = {**NUMBERS, "target_bounds": (0, 1)}

FEW = np.random.default_rng(0).random((6, 2)) * 0.2
LABELS = np.array([0, 1, 0, 0, 1, 0])
WORDS = np.array([[0, 0], [1, 0], [0, 1], [0, 0], [1, 1], [0, 1]])
ASKED = np.array([[1.0, 1.0], [0.1, 0.1]])


@dataclass(frozen=True)
class Case:
    """An estimator: how it is made, on which rows, and what it answers."""

    make: Callable[[Loss], Any]
    answer: Callable[[Any], Any]
    rows: Any = None  # the few, unless given
    canary: Any = (1.0, 1.0)
    label: int = 1
    n: int = 100  # fits a side

    def tables(self) -> tuple[Any, Any]:
        rows = FEW if self.rows is None else self.rows
        return (rows, LABELS), (np.vstack([rows, [self.canary]]), np.append(LABELS, self.label))


def probabilities(model: Any) -> Any:
    return model.predict_proba(ASKED)[:, 1]


def predictions(model: Any) -> Any:
    return model.predict(ASKED)


def images(model: Any) -> Any:
    return model.transform(ASKED)


class Chosen:
    """`select` as an estimator."""

    def __init__(self, spend: Loss) -> None:
        self.spend = spend

    def fit(self, rows: Any, labels: Any) -> Any:
        models = [learn.MixedNB(**CLASSES, bins=2, alpha=alpha, calibrate=False) for alpha in (1.0, 100.0)]
        return learn.select(models, rows, labels, spend=self.spend)


class Scored:
    """`cross_val_score` as an estimator: two fits and the scores, each for a third."""

    def __init__(self, spend: Loss) -> None:
        self.spend = spend.split(3)

    def fit(self, rows: Any, labels: Any) -> Any:
        model = learn.MixedNB(self.spend, **CLASSES, bins=2, calibrate=False)
        return learn.cross_val_score(model, rows, labels, cv=2, score_spend=self.spend)


CASES = {
    "LogisticRegression": Case(lambda spend: learn.LogisticRegression(spend, **CLASSES), probabilities),
    "LinearSVC": Case(lambda spend: learn.LinearSVC(spend, **CLASSES), lambda model: model.decision_function(ASKED)),
    "GaussianNB": Case(lambda spend: learn.GaussianNB(spend, **CLASSES), probabilities),
    "CategoricalNB": Case(
        lambda spend: learn.CategoricalNB(spend, categories=3, classes=[0, 1]),
        lambda model: model.predict_proba(np.array([[2, 2], [0, 0]]))[:, 1],
        WORDS,
        (2, 2),
    ),
    "MixedNB": Case(lambda spend: learn.MixedNB(spend, **CLASSES, bins=4), probabilities),
    "DecisionTreeClassifier": Case(
        lambda spend: learn.DecisionTreeClassifier(spend, **CLASSES, bins=4, max_depth=2), probabilities
    ),
    "RandomForestClassifier": Case(
        lambda spend: learn.RandomForestClassifier(spend, **CLASSES, bins=4, max_depth=1, n_estimators=2), probabilities
    ),
    "RandomForestClassifier, greedy": Case(
        lambda spend: learn.RandomForestClassifier(
            spend, **CLASSES, bins=4, max_depth=1, n_estimators=2, method="greedy"
        ),
        probabilities,
    ),
    "RandomForestClassifier, random": Case(
        lambda spend: learn.RandomForestClassifier(
            spend, **CLASSES, bins=2, max_depth=2, n_estimators=1, method="random"
        ),
        probabilities,
        n=300,
    ),
    "GradientBoostingClassifier": Case(
        lambda spend: learn.GradientBoostingClassifier(spend, **CLASSES, bins=4, rounds=2), probabilities
    ),
    "LinearRegression": Case(lambda spend: learn.LinearRegression(spend, **TARGET), predictions),
    "Ridge": Case(lambda spend: learn.Ridge(spend, **TARGET), predictions),
    "GradientBoostingRegressor": Case(
        lambda spend: learn.GradientBoostingRegressor(spend, **TARGET, bins=4, rounds=2), predictions
    ),
    "KMeans": Case(lambda spend: learn.KMeans(spend, n_clusters=2, max_iter=3, **NUMBERS), images),
    "PCA": Case(lambda spend: learn.PCA(spend, 1, **NUMBERS), images),
    "StandardScaler": Case(lambda spend: learn.StandardScaler(spend, **NUMBERS), images),
    "QuantileTransformer": Case(lambda spend: learn.QuantileTransformer(spend, **NUMBERS), images),
    "select": Case(Chosen, lambda found: [found.index, *probabilities(found.best)]),
    "cross_val_score": Case(Scored, lambda release: release.value),
}
# Made of public facts alone, or of what was released before; networks are attacked in test_deep_audit.py.
NETWORKS = {"deep", "NeuralNetworkClassifier", "NeuralNetworkRegressor"}
NOTHING_TO_ATTACK = {"MinMaxScaler", "OneHotEncoder", "save", "load", "compare", "prepare", "serve"} | NETWORKS


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return cl.Ledger.in_folder(tmp_path_factory.mktemp("audit")).open_account("canaries", CLAIM)


def attacked(name: str, spend: Loss, account: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Audit, Audit]:
    """What fits on both tables prove, seen from inside and from outside."""
    case, source = CASES[name], SeededSource(f"{name} {spend}")
    meters = without_a_ledger(monkeypatch, account, source, spend)
    quick_noise(monkeypatch, 7)
    monkeypatch.setattr("cloister.learn.model_selection.search.rehearse", lambda *_: None)
    monkeypatch.setattr("cloister.learn.model_selection.cross_val.rehearse", lambda *_: None)
    steps: list[list[Any]] = []
    outside = []
    for table in case.tables():
        answers = []
        for _ in range(case.n):
            meters.clear()
            answers.append(np.ravel(case.answer(case.make(spend).fit(*table))).astype(np.float64))
            steps.append(meters[-1].kept)
        outside.append(np.array(answers))
    found = [
        audit(Batched(lambda side, n, kept=kept: kept[side][:n]), 0, 1, CLAIM, n=case.n, confidence=SURE)
        for kept in (np.split(in_columns(steps), 2), outside)
    ]
    return found[0], found[1]


def in_columns(transcripts: list[list[Any]]) -> np.ndarray:
    """Transcripts as rows of one table. How many releases there are, and how long they are, may follow from releases
    before: every release has columns of its own, one of which says how long it is, and what is absent is zero there.
    """
    blocks = []
    for releases in zip_longest(*transcripts, fillvalue=np.empty(0)):
        block = np.zeros((len(transcripts), 1 + max(map(len, releases))))
        for row, one in zip(block, releases, strict=True):
            row[: 1 + len(one)] = [len(one), *one]
        blocks.append(block)
    return np.hstack(blocks)


def test_a_table_of_transcripts_tells_them_apart_whatever_their_lengths() -> None:
    told = [[[1.0, 2.0], [3.0]], [[1.0, 2.0]], [[1.0], [2.0, 3.0]], [[1.0, 2.0], [3.0, 0.0]], [[1.0, 2.0], [0.0]]]
    table = in_columns([[np.array(one) for one in releases] for releases in told])
    assert table.tolist() == [
        [2, 1, 2, 1, 3, 0],
        [2, 1, 2, 0, 0, 0],
        [1, 1, 0, 2, 2, 3],
        [2, 1, 2, 2, 3, 0],
        [2, 1, 2, 1, 0, 0],
    ]


def test_everything_that_is_offered_is_attacked() -> None:
    assert {name.partition(",")[0] for name in CASES} == set(learn.__all__) - NOTHING_TO_ATTACK


@pytest.mark.parametrize("name", CASES)
def test_neither_from_inside_nor_from_outside_is_a_canary_seen_better_than_claimed(
    name: str, account: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for found in attacked(name, CLAIM, account, monkeypatch):
        assert found.verdict == "holds", str(found)


@pytest.mark.parametrize("name", CASES)
def test_a_twin_that_spends_a_hundred_thousand_times_its_claim_is_caught(
    name: str, account: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = attacked(name, LOUD, account, monkeypatch)
    assert any(one.broken for one in found), "\n".join(map(str, found))


def test_scalers_from_public_facts_learn_nothing() -> None:
    rows, more = FEW, np.vstack([FEW, [[1.0, 1.0]]])
    one, other = (learn.MinMaxScaler(**NUMBERS).fit(table).transform(ASKED) for table in (rows, more))
    assert np.array_equal(one, other)
    coders = [learn.OneHotEncoder(categories=[[0, 1, 2], [0, 1, 2]]).fit(table) for table in (WORDS, [*WORDS, (2, 2)])]
    assert np.array_equal(*(coder.transform([[2, 2]]) for coder in coders))

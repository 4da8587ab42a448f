"""A search that pays for its choice."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import cloister as cl
from cloister import learn
from cloister.attack import Batched, audit
from cloister.learn.purse import purse
from cloister.learn.scoring import read_scoring
from cloister.learn.selection import choose
from cloister.learn.shared import Part, Rehearsal, paying
from cloister.privacy.errors import (
    BadBounds,
    BadCandidates,
    BadInput,
    BadSchema,
    CloisterError,
    LookFailed,
    NotPrivate,
    OverBudget,
)
from cloister.privacy.mechanisms import DiscreteGaussian
from cloister.privacy.meter import Meter
from cloister.privacy.noise import SeededSource

SPEND = cl.epsilon(1, delta="1e-6")
PUBLIC = {"bounds": (0, 1), "classes": [0, 1]}


def made(n=4_000, d=3, seed=0):
    random = np.random.default_rng(seed)
    rows = random.random((n, d))
    labels = (random.random(n) < 1 / (1 + np.exp(-(rows - 0.5) @ np.full(d, 6.0)))).astype(int)
    return rows, labels


class Constant(learn.LogisticRegression):
    """A private model that always says one class, for a score that is known."""

    def __init__(self, spend=None, *, says=0, bounds=None, classes=None):
        self.says = says
        super().__init__(spend, bounds=bounds, classes=classes)
        self.classes_ = np.array([0, 1])

    def predict(self, rows):
        return np.full(len(rows), self.says)


# What is chosen.


@pytest.mark.parametrize("spend", [SPEND, cl.epsilon(2)], ids=["delta", "pure"])
@pytest.mark.parametrize("refit", [True, False])
def test_the_better_candidate_is_chosen(tmp_path, spend, refit):
    rows, labels = made()
    candidates = [Constant(says=0, **PUBLIC), learn.LogisticRegression(**PUBLIC), Constant(says=1, **PUBLIC)]
    found = learn.select(candidates, rows, labels, spend=spend, refit=refit, ledger=tmp_path, random_state=1)
    assert found.index == 1
    assert found.best.score(rows, labels) > 0.75


def test_a_grid_is_searched(tmp_path):
    rows, labels = made()
    grid = {"says": [0, 1]}
    found = learn.select(
        Constant(**PUBLIC), rows, np.ones_like(labels), spend=SPEND, grid=grid, ledger=tmp_path, random_state=0
    )
    assert found.params == {"says": 1}
    assert found.best.says == 1
    assert found.candidates == 2


def test_regressors_are_compared_by_their_squared_error(tmp_path):
    rows, _ = made()
    goal = rows @ [1, 2, 3]
    model = learn.Ridge(bounds=(0, 1), target_bounds=(0, 6))
    found = learn.select(model, rows, goal, spend=SPEND, grid={"alpha": [1e6, 1.0]}, ledger=tmp_path, random_state=0)
    assert found.params == {"alpha": 1.0}
    assert found.best.score(rows, goal) > 0.9


def test_pipelines_are_candidates(tmp_path):
    rows, labels = made()
    line = make_pipeline(FunctionTransformer(np.sqrt), learn.MinMaxScaler(bounds=(0, 1)), learn.LinearSVC(**PUBLIC))
    found = learn.select([line, Constant(says=0, **PUBLIC)], rows, labels, spend=SPEND, ledger=tmp_path, random_state=0)
    assert found.index == 0
    assert found.best[-1].release_.receipt is found.release.receipt


# What it costs.


@pytest.mark.parametrize("refit", [True, False])
def test_the_total_is_the_spend_in_one_charge_with_one_receipt(tmp_path, refit):
    rows, labels = made(500)
    book = cl.Ledger.in_folder(tmp_path)
    found = learn.select(
        learn.LogisticRegression(**PUBLIC), rows, labels, spend=SPEND, grid={"method": ["gradient", "newton"]},
        refit=refit, ledger=book,
    )  # fmt: skip
    assert found.loss == purse(SPEND).loss
    assert sum(found.parts.values()) == found.loss
    assert len(book.accounts()) == 1
    assert book.accounts()[0].left.amount == 0
    found.release.receipt.verify(book.key.public)
    assert found.release.private
    assert found.best.release_.receipt is found.release.receipt
    assert found.best.loss_ == found.loss
    steps = {one["mechanism"] for one in found.release.receipt.body["parameters"]}
    assert "exponential" in steps


def test_it_says_what_every_part_cost(tmp_path):
    rows, labels = made(300)
    found = learn.select(
        Constant(**PUBLIC), rows, labels, spend=cl.rho("0.1"), grid={"says": [0, 1]}, ledger=tmp_path, random_state=0
    )
    text = str(found)
    assert text.startswith("NOT PRIVATE")
    for line in ("trials    rho 0.03", "choice    rho 0.005", "final fit rho 0.065", "total     rho 0.1"):
        assert line in text


def test_an_account_with_too_little_refuses_before_a_row_is_read(tmp_path):
    rows, labels = made(100)
    account = cl.Ledger.in_folder(tmp_path).open_account("rows", cl.rho("0.001"))
    with pytest.raises(OverBudget):
        learn.select(Constant(**PUBLIC), rows, labels, spend=SPEND, grid={"says": [0, 1]}, account=account)
    assert account.spent.amount == 0


def test_a_wrong_parameter_is_told_before_anything_is_charged(tmp_path):
    rows, labels = made(100)
    account = cl.Ledger.in_folder(tmp_path).open_account("rows", cl.rho("1"))
    models = [learn.LogisticRegression(**PUBLIC), learn.LogisticRegression(bounds=(0, 1))]
    with pytest.raises(BadSchema, match="classes"):
        learn.select(models, rows, labels, spend=SPEND, account=account)
    assert account.spent.amount == 0


@pytest.mark.parametrize(
    ("models", "more", "error"),
    [
        ([learn.LogisticRegression(**PUBLIC)], {}, BadCandidates),
        ([Plain(), learn.LogisticRegression(**PUBLIC)], {}, NotPrivate),
        ([make_pipeline(StandardScaler(), learn.LogisticRegression(**PUBLIC))] * 2, {}, NotPrivate),
        ([make_pipeline(FunctionTransformer())] * 2, {}, BadCandidates),
        ([learn.LogisticRegression(**PUBLIC), "words", 3], {}, CloisterError),
        ([learn.KMeans(bounds=(0, 1))] * 2, {}, BadInput),
        ([learn.Ridge(bounds=(0, 1))] * 2, {}, BadBounds),
        ([learn.LogisticRegression(**PUBLIC)] * 2, {"scoring": "f1"}, BadInput),
    ],
    ids=["one", "not private", "scaler that peeks", "no model", "no estimator", "no score", "no bounds", "no such"],
)
def test_what_cannot_be_chosen_from_is_refused(tmp_path, models, more, error):
    rows, labels = made(50)
    with pytest.raises((error, TypeError)):
        learn.select(models, rows, labels, spend=SPEND, ledger=tmp_path / "unused", **more)
    assert not (tmp_path / "unused").exists()


# What protects.


class Free:
    """A meter without a ledger."""

    def __init__(self, source):
        self.source = source

    def release(self, look, mechanism):
        return mechanism.release(look(), self.source)


@pytest.mark.parametrize("loss", [cl.epsilon("0.5"), cl.rho("0.05")], ids=["pure", "rho"])
def test_the_choice_is_as_private_as_it_says(loss):
    score = read_scoring("accuracy", learn.LogisticRegression())
    models = [Constant(says=0), Constant(says=1), Constant(says=1)]
    source = SeededSource("choice")

    def draw(labels, n):
        rows = np.zeros((len(labels), 1))
        return np.array([choose(Free(source), score, models, lambda: (rows, labels), loss) for _ in range(n)])

    without, with_one = np.array([0, 1, 1]), np.array([0, 1, 1, 1])
    found = audit(Batched(draw), without, with_one, loss, n=4_000, confidence=1 - 1e-9)
    assert found.verdict == "holds"
    # The audit can tell: the same choice at ten times the price breaks the claim.
    ten = cl.epsilon(5) if loss.is_pure else cl.rho(5)

    def louder(labels, n):
        rows = np.zeros((len(labels), 1))
        return np.array([choose(Free(source), score, models, lambda: (rows, labels), ten) for _ in range(n)])

    assert audit(Batched(louder), without, np.append(without, [0] * 1), loss, n=4_000, confidence=1 - 1e-9).broken


def test_a_row_adds_at_most_the_stated_points_to_every_score(tmp_path):
    rows, labels = made(200)
    model = learn.LogisticRegression(SPEND, **PUBLIC, ledger=tmp_path, random_state=0).fit(rows, labels)
    for name in ("accuracy", "neg_log_loss"):
        score = read_scoring(name, model)
        before = score.points(model, rows, labels)
        for label in (0, 1, 7):
            moved = score.points(model, np.vstack([rows, [[9.0, -9.0, 0.5]]]), np.append(labels, label)) - before
            assert 0 <= moved <= score.most


def test_a_fit_cannot_go_beyond_its_share(tmp_path):
    account = cl.Ledger.in_folder(tmp_path).open_account("rows", cl.rho(1))
    outer = Meter(account, cl.rho(1), SeededSource(0), cl.Loss.nothing("rho"))
    part = Part.of(outer, cl.rho("0.1"))
    noise = DiscreteGaussian.for_loss(1, cl.rho("0.1"))
    part.release(lambda: 3, noise)
    assert outer.spent == cl.rho("0.1")
    with pytest.raises(OverBudget, match="beyond its share"):
        part.release(lambda: 3, noise)
    assert outer.spent == cl.rho("0.1")


def test_a_failing_step_says_nothing_about_rows(tmp_path):
    class Broken(Constant):
        def predict(self, rows):
            raise ValueError(f"secret {rows[0, 0]}")

    rows, labels = made(50)
    with pytest.raises(LookFailed) as failed:
        learn.select([Broken(**PUBLIC)] * 2, rows, labels, spend=SPEND, ledger=tmp_path)
    assert "secret" not in str(failed.value)


def test_a_dataset_cannot_be_selected_on():
    class Data:
        tables = account = None

    with paying(Rehearsal()), pytest.raises(BadInput, match="arrays or frames"):
        learn.LogisticRegression(SPEND, **PUBLIC)._train(lambda meter, budget: None, Data())


# scikit-learn's own.


@pytest.mark.parametrize("jobs", [1, 2])
def test_scikit_learns_own_validation_is_refused_with_the_reason(tmp_path, jobs):
    rows, labels = made(60)
    model = learn.LogisticRegression(SPEND, **PUBLIC, ledger=tmp_path / "unused")
    with pytest.raises(NotPrivate, match=r"cloister\.learn\.cross_val_score"):
        cross_val_score(model, rows, labels, error_score="raise", n_jobs=jobs)
    line = make_pipeline(learn.MinMaxScaler(bounds=(0, 1)), model)
    search = GridSearchCV(line, {"logisticregression__method": ["gradient", "newton"]}, error_score="raise")
    with pytest.raises(NotPrivate, match=r"cloister\.learn\.select"):
        search.fit(rows, labels)
    assert not (tmp_path / "unused").exists()

"""Models from counts, sums and products, attacked on tables that differ in one row.

Two attacks. The exact one replays a fit on a neighbour: whatever was released before, the integers of every step may
differ by no more than the sensitivity that its noise was made for. The other samples whole fits and tries to refute the
claim from the models that come out.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cloister as cl
from cloister.attack import audit
from cloister.learn.base.estimator import PrivateEstimator
from cloister.learn.decomposition.pca import PCA
from cloister.learn.linear_model.regression import LinearRegression
from cloister.learn.naive_bayes.gaussian import GaussianNB
from cloister.learn.naive_bayes.mixed import CategoricalNB, MixedNB
from cloister.learn.preprocessing.quantiles import QuantileTransformer
from cloister.learn.preprocessing.scalers import StandardScaler
from cloister.privacy.filter import PrivacyFilter, budget_share
from cloister.privacy.loss import Loss
from cloister.privacy.noise import SeededSource

from .replay import face

pytestmark = pytest.mark.statistical

LOSSES = {"gaussian": cl.rho("0.1"), "laplace": cl.epsilon(1)}
BOX = {"bounds": (0, 1)}
WORDS = {"categories": {0: [0, 1, 2], 1: [0, 1]}}
MODELS: dict[str, Callable[[Loss], Any]] = {
    "regression": lambda loss: LinearRegression(loss, target_bounds=(0, 1), **BOX),
    "regression by length": lambda loss: LinearRegression(loss, target_bounds=(0, 1), data_norm=1.0),
    "regression, bounds found": lambda loss: LinearRegression(loss, target_bounds="find", bounds="find"),
    "functional mechanism": lambda loss: LinearRegression(loss, target_bounds=(0, 1), method="functional", **BOX),
    "components": lambda loss: PCA(loss, 2, **BOX),
    "components by length": lambda loss: PCA(loss, 2, data_norm=1.0),
    "power method": lambda loss: PCA(loss, 2, method="power", **BOX),
    "gaussian bayes": lambda loss: GaussianNB(loss, classes=[0, 1], **BOX),
    "gaussian bayes, both variances": lambda loss: GaussianNB(loss, classes=[0, 1], variance="auto", **BOX),
    "gaussian bayes, own variances": lambda loss: GaussianNB(loss, classes=[0, 1, 2], variance="own", **BOX),
    "mixed bayes": lambda loss: MixedNB(loss, classes=[0, 1], bins=4, categories={0: [0, 1, 2]}, **BOX),
    "categorical bayes": lambda loss: CategoricalNB(loss, classes=[0, 1], categories=3),
    "scaler": lambda loss: StandardScaler(loss, **BOX),
    "ranks": lambda loss: QuantileTransformer(loss, **BOX),
}
# Models that do more on many rows: how often a table is repeated, and how many steps there are then. Both variances:
# sums, squares, and a histogram of scores for each of them.
MANY = {"gaussian bayes, both variances": (500, 4)}


class Replay(PrivacyFilter):
    """Keeps what each step looked at; on the neighbour it answers what was answered before."""

    __slots__ = ("answers", "looks")

    def keep(self, answers: list[Any] | None) -> "Replay":
        self.answers, self.looks = answers, []
        return self

    def release(self, look: Callable[[], Any], mechanism: Any) -> Any:
        exact = look()
        self.spent = self.spent + self.account.price(mechanism)
        place = len(self.looks)
        answer = mechanism.release(exact, self.source) if self.answers is None else self.answers[place]
        self.looks.append((np.asarray(exact).astype(object), mechanism, answer))
        return answer


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    book = cl.Ledger.in_folder(tmp_path_factory.mktemp("audit"))
    return {name: book.open_account(name, loss) for name, loss in LOSSES.items()}


def under(monkeypatch: pytest.MonkeyPatch, make: Callable[[Any], PrivacyFilter]) -> None:
    """Fits without a ledger: thousands of them."""
    monkeypatch.setattr(
        PrivateEstimator, "_train", lambda self, steps, data=None: steps(make(self), budget_share(self.spend))
    )


def meter(kind: type, account: Any, source: Any) -> Any:
    return kind(account, account.cap, source, Loss.nothing(account.cap.measure))


def sides(seed: int, times: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A table, and it with one row more, at its front: near, at a corner, or far beyond every bound."""
    rng = np.random.default_rng(seed)
    rows, y = rng.random((40, 2)), rng.integers(0, 2, 40)
    if seed % 2:
        rows = np.floor(rows * 3)
    rows, y = np.tile(rows, (times, 1)), np.tile(y, times)
    extra = [rng.random((1, 2)), np.ones((1, 2)), np.zeros((1, 2)), np.array([[1.0, 0.0]]), np.full((1, 2), -1e9)]
    return rows, y, np.vstack([extra[seed % 5], rows]), np.append(seed % 2, y)


@pytest.mark.parametrize("law", LOSSES)
@pytest.mark.parametrize("name", MODELS)
def test_one_row_moves_no_step_further_than_its_sensitivity(
    name: str, law: str, accounts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    nearest, (times, steps) = 0.0, MANY.get(name, (1, None))
    for seed in range(40):
        rows, y, more, longer = sides(seed, times)
        first = meter(Replay, accounts[law], SeededSource(seed)).keep(None)
        under(monkeypatch, lambda _, first=first: first)
        fitted = MODELS[name](LOSSES[law]).fit(rows, y)
        assert first.spent.amount == LOSSES[law].amount, "all of the spend is used, and no more"
        assert steps in (None, len(first.looks))
        second = meter(Replay, accounts[law], SeededSource(seed)).keep([one[2] for one in first.looks])
        under(monkeypatch, lambda _, second=second: second)
        again = MODELS[name](LOSSES[law]).fit(more, longer)
        assert face(again) == face(fitted), "the model follows from the releases"
        assert len(first.looks) == len(second.looks)
        for (left, mechanism, _), (right, other, _) in zip(first.looks, second.looks, strict=True):
            assert mechanism.parameters() == other.parameters(), "the noise follows from public facts"
            assert left.shape == right.shape
            apart = (right - left).ravel()
            square = mechanism.name == "discrete-gaussian"
            distance = sum(one**2 for one in apart) if square else sum(abs(one) for one in apart)
            limit = mechanism.sensitivity**2 if square else mechanism.sensitivity
            assert distance <= limit
            nearest = max(nearest, float(distance / limit))
    assert nearest > 0.5, "the sensitivity is not wasted"


def outcome(model: Any) -> np.ndarray:
    """What a fit shows, in few numbers."""
    shown = {
        "coef_": lambda: [*model.coef_, model.intercept_, model.n_rows_],
        "components_": lambda: [*model.components_[0], *model.mean_, model.n_rows_],
        "theta_": lambda: [*model.theta_.ravel(), *model.class_count_, model.curve_.shift],
        "feature_log_prob_": lambda: [*model.feature_log_prob_[0].ravel(), *model.class_count_],
        "ranks_": lambda: [*model.ranks_[0, ::256]],
        "mean_": lambda: [*model.mean_, *model.var_],
    }
    return np.array(next(make() for name, make in shown.items() if hasattr(model, name)), dtype=np.float64)


@pytest.mark.parametrize("law", LOSSES)
@pytest.mark.parametrize(
    "name", ["regression", "components", "power method", "gaussian bayes", "mixed bayes", "ranks", "scaler"]
)
def test_samples_of_models_do_not_refute_the_claim(
    name: str, law: str, accounts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SeededSource(f"{name} {law}")
    under(monkeypatch, lambda _: meter(PrivacyFilter, accounts[law], source))
    few = np.random.default_rng(0).random((6, 2)) * 0.2
    label = np.array([0, 1, 0, 0, 1, 0])
    left = few, label
    right = np.vstack([few, [[1.0, 1.0]]]), np.append(label, 1)
    found = audit(lambda side: outcome(MODELS[name](LOSSES[law]).fit(*side)), left, right, LOSSES[law], n=1200,
                  confidence=1 - 1e-9)  # fmt: skip
    assert found.verdict == "holds", str(found)


@pytest.mark.long
@pytest.mark.parametrize("law", LOSSES)
def test_a_fit_with_a_twentieth_of_the_noise_is_caught(
    law: str, accounts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack has power: a model with a twentieth of the noise is found out from its class sizes."""
    spend = LOSSES[law]
    loud = Loss(spend.measure, spend.amount * (400 if law == "gaussian" else 20))
    source = SeededSource(f"fault {law}")

    def make(_: Any) -> PrivacyFilter:
        return PrivacyFilter(accounts[law], loud, source, Loss.nothing(loud.measure))

    under(monkeypatch, make)
    label = np.array([0, 1, 0, 0, 1, 0])
    rows = np.zeros((6, 2))
    left, right = (rows, label), (np.vstack([rows, [[1.0, 1.0]]]), np.append(label, 1))
    found = audit(lambda side: outcome(MODELS["mixed bayes"](loud).fit(*side)), left, right, spend, n=1200,
                  confidence=0.999)  # fmt: skip
    assert found.verdict == "broken", str(found)

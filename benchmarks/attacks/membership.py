"""Membership of Adult's rows in an over-fitted network and in its private twin, beside the authors' formulas."""

import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from learning.data import SHARED, adult
from published import membership as published
from sklearn.neural_network import MLPClassifier

import cloister as cl
from cloister import attack, learn
from cloister.attack.finding import Roc
from cloister.attack.models.calibrated import lira_scores, rmia_offline_a, rmia_scores
from cloister.attack.models.membership_finding import largest_auc
from cloister.attack.models.shadows import Signals, train_shadows
from cloister.attack.models.target import Target

__all__ = ["membership"]

NETWORK = {
    "hidden_layer_sizes": (64,), "max_iter": 50, "batch_size": 64, "learning_rate_init": 0.003, "alpha": 0, "tol": 0,
    "n_iter_no_change": 99, "random_state": 0,
}  # fmt: skip
PRIVATE_SHADOWS, TARGETS = 8, 3


def fit_network(rows: Any, labels: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is stopped before it converges, as over-fitted networks are
        return MLPClassifier(**NETWORK).fit(rows, labels)


def membership(people: int, shadows: int, epsilons: tuple[int, ...]) -> dict[str, Any] | str:
    """Attack both networks, and score the same losses by our formulas and by the authors'."""
    if not (SHARED / "adult").exists():
        return "Adult is not on this machine, so membership in a network was not measured."
    table = adult()
    chosen = np.random.default_rng(0).permutation(len(table.y))[: 3 * people]
    x, y = table.rich[chosen], table.y[chosen]
    members, others = (x[:people], y[:people]), (x[people : 2 * people], y[people : 2 * people])
    network = fit_network(*members)
    start = time.perf_counter()
    found = attack.membership_suite(network, members=members, others=others, fit=fit_network, shadows=shadows,
                                    random_state=1)  # fmt: skip
    seconds = time.perf_counter() - start
    opened = attack.membership_suite(network, members=members, others=others, access="white box", random_state=1)
    return {
        "seconds": seconds,
        "suite": [_shown(one) for one in (*found, *opened)],
        "formulas": beside_authors(x, y, people, shadows),
        "private": [_private(epsilon, members, others) for epsilon in epsilons],
    }


def beside_authors(x: Any, y: Any, people: int, shadows: int) -> dict[str, tuple[float, float]]:
    """Return areas under the curve from the same losses: ours, and the best of the authors' variants.

    Means over targets that are trained on different halves of the same rows.
    """
    asked = slice(0, 2 * people)
    trained = train_shadows(
        fit_network, x, y, shadows=shadows, draw=np.random.default_rng(2),
        eligible=np.arange(3 * people) < 2 * people, classes=[0, 1],
    )  # fmt: skip
    known, more = trained.part(asked), trained.part(slice(2 * people, None))
    a, found = rmia_offline_a(known.probabilities, known.inside), []
    for seed in range(TARGETS):
        places = np.random.default_rng(seed).permutation(2 * people)[:people]
        seen = Signals.of(Target.of(fit_network(x[places], y[places])), x, y)
        truth = np.isin(np.arange(2 * people), places)
        normal = seen.logit[asked], known.logits, known.inside
        shares = seen.probability[asked], known.probabilities, known.inside
        beside = seen.probability[2 * people :], more.probabilities
        found.append(_areas(truth, normal, shares, beside, a))
    return {name: tuple(np.mean([one[name] for one in found], axis=0).tolist()) for name in found[0]}


def _areas(truth: Any, normal: Any, shares: Any, beside: Any, a: float) -> dict[str, tuple[float, float]]:
    def auc(scores: Any) -> float:
        return Roc.of(scores[truth], scores[~truth]).auc

    def best(formula: Any) -> float:
        return max(auc(formula(*normal, fixed=fixed)) for fixed in (True, False))

    return {
        "LiRA": (auc(lira_scores(*normal)), best(published.lira)),
        "LiRA, offline": (auc(lira_scores(*normal, offline=True)), best(published.lira_offline)),
        "RMIA": (
            auc(rmia_scores(*shares, population=beside, offline=False)), auc(published.rmia_online(*shares, *beside)),
        ),
        "RMIA, offline": (
            auc(rmia_scores(*shares, population=beside, offline_a=a)), auc(published.rmia(*shares, *beside, a=a)),
        ),
    }  # fmt: skip


def _private(epsilon: int, members: Any, others: Any) -> dict[str, Any]:
    """Attack the same network trained with a loss, with shadow models that are trained so too."""
    claim = cl.epsilon(epsilon, delta="1e-5")
    with tempfile.TemporaryDirectory() as folder:

        def fit(rows: Any, labels: Any) -> Any:
            return learn.NeuralNetworkClassifier(
                claim, bounds=(0, 1), classes=[0, 1], hidden_layer_sizes=(64,), max_iter=10, ledger=Path(folder)
            ).fit(rows, labels)

        found = attack.membership_suite(
            fit(*members), members=members, others=others, fit=fit, shadows=PRIVATE_SHADOWS, random_state=1
        )
    best = found[0]
    return {"epsilon": epsilon, "most": largest_auc(claim), "refuted": sum(one.broken for one in found),
            **_shown(best)}  # fmt: skip


def _shown(found: Any) -> dict[str, Any]:
    low, high = found.roc.auc_interval()
    return {"attack": found.attack.removeprefix("membership by "), "auc": found.roc.auc, "low": low, "high": high,
            "tpr": found.roc.tpr_at(0.01), "epsilon at least": found.epsilon.lower}  # fmt: skip

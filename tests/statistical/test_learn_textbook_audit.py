"""The textbook's methods keep their claims on paper; as they are often printed, they do not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cloister as cl
from cloister import lessons
from cloister.attack import Audit, Batched, audit
from cloister.lessons.learn import naive_bayes
from cloister.lessons.learn.method import TextbookFit
from cloister.lessons.noise import Vector
from cloister.privacy.noise import SeededSource

pytestmark = pytest.mark.statistical

CLAIM, LOUD = cl.epsilon("0.5"), cl.epsilon(1)
SURE = 0.999
BOX: dict[str, Any] = {"bounds": (0, 1)}
TWO: dict[str, Any] = {**BOX, "classes": [0, 1]}
FEW = np.random.default_rng(0).random((6, 2)) * 0.2
LABELS = np.array([0, 1, 0, 0, 1, 0])


def line(model: Any) -> Any:
    return np.append(model.coef_, model.intercept_)


MODELS: dict[str, tuple[tuple[str, ...], Callable[..., Any], Callable[[Any], Any]]] = {
    "logistic": (("output", "objective", "input"), lambda **more: lessons.LogisticRegression(**TWO, **more), line),
    "machine": (("output", "objective", "input"), lambda **more: lessons.LinearSVC(**TWO, **more), line),
    "regression": (
        ("output", "objective", "input"),
        lambda **more: lessons.LinearRegression(**BOX, target_bounds=(0, 1), **more),
        line,
    ),
    "normal laws": (
        ("output", "input"),
        lambda **more: lessons.GaussianNB(**TWO, **more),
        lambda model: [*(model.theta_ * model.class_count_[:, None]).ravel(), *model.class_count_],
    ),
    "counts": (
        ("output", "input"),
        lambda **more: lessons.MixedNB(**TWO, bins=2, **more),
        lambda model: np.concatenate([*(one.ravel() for one in model.feature_log_prob_), model.class_count_]),
    ),
    "centres": (
        ("lloyd",),
        lambda **more: lessons.KMeans(n_clusters=1, **BOX, **more),
        lambda model: [*model.cluster_centers_.ravel(), *model.cluster_sizes_],
    ),
    "components": (
        ("sulq", "input", "subspace"),
        lambda **more: lessons.PCA(n_components=1, **BOX, **more),
        lambda model: [*model.components_[0], *model.mean_],
    ),
}
CASES = [(name, method) for name, (methods, _, _) in MODELS.items() for method in methods]


def attacked(name: str, method: str, claim: cl.Loss, n: int, patch: pytest.MonkeyPatch, copies: int = 1) -> Audit:
    """Samples of a lesson on a table, and with a canary added; for noisy rows, in another row's place."""
    _, make, shown = MODELS[name]
    source = SeededSource(f"{name} {method}")
    patch.setattr("cloister.lessons.learn.method.SeededSource", lambda _: source)  # one stream for all fits
    if method == "input":
        far, labels = np.vstack([FEW[:-1], [[1.0, 1.0]]]), np.append(LABELS[:-1], 1)
    else:
        far, labels = np.vstack([FEW, [[1.0, 1.0]]]), np.append(LABELS, 1)
    tables = (np.tile(FEW, copies), LABELS), (np.tile(far, copies), labels)

    def draw(side: int, n: int) -> Any:
        fits = (make(spend=claim, method=method, random_state=0).fit(*tables[side]) for _ in range(n))
        return np.array([np.ravel(shown(one)) for one in fits], dtype=np.float64)

    return audit(Batched(draw), 0, 1, claim, n=n, confidence=SURE)


@pytest.mark.parametrize(("name", "method"), CASES)
def test_on_paper_a_lesson_keeps_its_claim(name: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = attacked(name, method, CLAIM, 240, monkeypatch)
    assert found.verdict == "holds", str(found)


def less_noise(times: float) -> Callable[[pytest.MonkeyPatch], None]:
    def patched(patch: pytest.MonkeyPatch) -> None:
        laplace = TextbookFit.laplace
        patch.setattr(TextbookFit, "laplace", lambda self, shape, scale: laplace(self, shape, scale / times))

    return patched


def bare_labels(module: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(module, "noisy_codes", lambda codes, *_: (codes, 1.0))


def unit_noise(patch: pytest.MonkeyPatch) -> None:
    """Noise whose scale lacks the sensitivity."""
    made = Vector.for_loss
    patch.setattr(Vector, "for_loss", lambda sensitivity, loss, **more: made(sensitivity / 20, loss, **more))


# Tables of 20 features, two of them ten times.
PRINTED = [
    ("normal laws", "output", "all of epsilon for each of 2d + 1 numbers", less_noise(41)),
    ("counts", "output", "all of epsilon for each feature", less_noise(21)),
    ("centres", "lloyd", "all of epsilon for each number in each of five rounds", less_noise(55)),
    ("normal laws", "input", "labels without noise", bare_labels(naive_bayes)),
    ("logistic", "output", "a twentieth of the sensitivity", unit_noise),
]


@pytest.mark.parametrize(
    ("name", "method", "breaks"), [(a, b, d) for a, b, _, d in PRINTED], ids=[c for _, _, c, _ in PRINTED]
)
def test_as_it_is_often_printed_it_is_caught(
    name: str, method: str, breaks: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch)
    found = attacked(name, method, LOUD, 400, monkeypatch, copies=10)
    assert found.verdict == "broken", str(found)

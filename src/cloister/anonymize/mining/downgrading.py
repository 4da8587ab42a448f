"""Output downgrading for classifiers, with membership attacks before and after.

    released = Downgraded(model, "round", digits=1)
    report = downgrading_report(model, members=(X, y), others=(X2, y2), controls=[...], shadow=(X3, y3))

A membership attack asks whether a record was among the training rows (not whether a model was misused). Controls:

    label        only the predicted class
    top          the largest `classes` scores, the rest shared evenly
    round        scores rounded to `digits`
    temperature  scores flattened by `temperature` above 1
    noise        Laplace noise of `scale` on scores; the same scores always get the same noise, so that repeated
                 questions cannot average it away

Nothing here is differentially private: a control lowers what one kind of attack gains, and none removes the gap between
a model's accuracy on its training rows and on others, which the label alone shows. To bound every attack, train with
`cloister.learn`.

Falls to: `attack.membership` with labels only, and `attack.steal` with more questions.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cloister.attack.intervals import at_least, at_most
from cloister.privacy.errors import BadInput, MissingExtra
from cloister.privacy.noise import SYSTEM

__all__ = [
    "AttackResult",
    "DowngradingReport",
    "Downgraded",
    "downgrading_report",
    "shadow_attack",
    "threshold_attack",
]

Floats = NDArray[np.float64]
Control = Literal["none", "label", "top", "round", "temperature", "noise"]
Labelled = tuple[Any, Any]
_CONTROLS = ("none", "label", "top", "round", "temperature", "noise")
_TINY = 1e-12  # the least score that a loss is computed from


@dataclass(frozen=True)
class Downgraded:
    """A fitted classifier whose scores are coarsened before anybody sees them.

    Args:
        model: a fitted classifier with `predict_proba` and `classes_`.
        control: one of the module's controls, or "none".
        classes: for "top", the number of scores that are kept.
        digits: for "round", decimal digits.
        temperature: for "temperature", at least 1.
        scale: for "noise", the scale of the Laplace noise.
        key: for "noise", the secret that the noise depends on; drawn unless given.

    `predict` is the class of the highest released score, so that label and scores agree. Under "label", "top", "round"
    (as long as no tie arises) and "temperature" it is the model's own class.
    """

    model: Any
    control: Control = "none"
    classes: int = 1
    digits: int = 1
    temperature: float = 4.0
    scale: float = 0.1
    key: int = field(default_factory=lambda: secrets.randbits(64), repr=False)

    def __post_init__(self) -> None:
        if self.control not in _CONTROLS:
            raise BadInput(f"control is one of {', '.join(_CONTROLS)}.")
        if not (hasattr(self.model, "predict_proba") and hasattr(self.model, "classes_")):
            raise BadInput("give a fitted classifier with predict_proba.")
        whole = isinstance(self.classes, int) and isinstance(self.digits, int)
        if not whole or self.classes < 1 or not 0 <= self.digits <= 12:
            raise BadInput("classes is a whole number of at least 1, and digits one from 0 to 12.")
        if not (np.isfinite(self.temperature) and self.temperature >= 1 and np.isfinite(self.scale) and self.scale > 0):
            raise BadInput("temperature is a number of at least 1, and scale one above 0.")

    @property
    def classes_(self) -> Any:
        """The classes, in the order of the scores."""
        return self.model.classes_

    @property
    def name(self) -> str:
        """The control with its parameter."""
        details = {
            "top": f" {self.classes}",
            "round": f" to {self.digits} digits",
            "temperature": f" {self.temperature:g}",
            "noise": f" {self.scale:g}",
        }
        return self.control + details.get(self.control, "")

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the class of the highest released score."""
        return np.asarray(self.classes_)[np.argmax(self.predict_proba(X), axis=1)]

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return coarsened scores that sum to 1."""
        scores = np.asarray(self.model.predict_proba(X), np.float64)
        return scores if self.control == "none" else _normalised(getattr(self, f"_{self.control}")(scores))

    def _label(self, scores: Floats) -> Floats:
        return np.asarray(np.eye(scores.shape[1])[np.argmax(scores, axis=1)])

    def _top(self, scores: Floats) -> Floats:
        kept = min(self.classes, scores.shape[1])
        order = np.argsort(-scores, axis=1, kind="stable")
        rest = order[:, kept:]
        coarse = scores.copy()
        if rest.shape[1]:
            others = np.take_along_axis(scores, rest, axis=1).mean(axis=1, keepdims=True)
            np.put_along_axis(coarse, rest, others, axis=1)
        return coarse

    def _round(self, scores: Floats) -> Floats:
        return np.round(scores, self.digits)

    def _temperature(self, scores: Floats) -> Floats:
        logs = np.log(np.maximum(scores, _TINY)) / self.temperature
        return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))

    def _noise(self, scores: Floats) -> Floats:
        uniform = _keyed_uniform(scores, self.key)
        noise = -self.scale * np.sign(uniform - 0.5) * np.log1p(-2 * np.abs(uniform - 0.5))
        return np.asarray(np.clip(scores + noise, 0.0, 1.0))

    def of(self, model: Any) -> "Downgraded":
        """Return another model under the same control, as an attacker who knows the control trains one."""
        return Downgraded(model, self.control, self.classes, self.digits, self.temperature, self.scale)


def _normalised(scores: Floats) -> Floats:
    totals = scores.sum(axis=1, keepdims=True)
    return np.where(totals > 0, scores / np.where(totals > 0, totals, 1), 1 / scores.shape[1])


def _keyed_uniform(scores: Floats, key: int) -> Floats:
    """Return a number in (0, 1) per cell that depends on the row's scores to 6 digits and on the key (splitmix64)."""
    cells = np.round(scores * 1e6).astype(np.int64).view(np.uint64)
    state = np.full(len(scores), key, np.uint64)
    for column in range(cells.shape[1]):
        state = _mix(state ^ cells[:, column])
    columns = np.arange(1, cells.shape[1] + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(((_mix(state[:, None] + columns) >> np.uint64(12)) + np.float64(0.5)) * 2.0**-52)


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


# Attacks


@dataclass(frozen=True)
class AttackResult:
    """A membership attack's success on records that it was not tuned on.

    Attributes:
        true_positives, false_positives: shares of members and of others that the attack takes for members.
        interval: limits of the advantage, each rate bounded by Clopper-Pearson, so that both hold with the confidence.
        members, others: number of records judged.
    """

    true_positives: float
    false_positives: float
    interval: tuple[float, float]
    members: int
    others: int

    @property
    def advantage(self) -> float:
        """Share of members minus share of others that are taken for members; 0 for guessing."""
        return self.true_positives - self.false_positives

    @staticmethod
    def of(members: NDArray[np.bool_], others: NDArray[np.bool_], confidence: float = 0.95) -> "AttackResult":
        """Return the result of two lists of verdicts."""
        level = (1 - confidence) / 4
        hits, alarms, sizes = int(members.sum()), int(others.sum()), (len(members), len(others))
        low = float(at_least(hits, sizes[0], level)) - float(at_most(alarms, sizes[1], level))
        high = float(at_most(hits, sizes[0], level)) - float(at_least(alarms, sizes[1], level))
        return AttackResult(hits / sizes[0], alarms / sizes[1], (low, high), *sizes)

    def __str__(self) -> str:
        return f"advantage {self.advantage:.3f} ({self.interval[0]:.3f} to {self.interval[1]:.3f})"


def threshold_attack(model: Any, members: Labelled, others: Labelled, *, confidence: float = 0.95) -> AttackResult:
    """Take a record for a member if the model's loss on it is low (Yeom et al. 2018).

    The threshold is the best one on every second record, and the result is measured on the rest.

    Args:
        model: a fitted classifier with `predict_proba`, downgraded or not.
        members: (X, y) of training rows. others: (X, y) of rows that were not trained on, drawn alike.
        confidence: of the interval.
    """
    inside, outside = (_scores_of_label(model, *part) for part in (members, others))
    _enough(len(inside), len(outside))
    threshold = _best_threshold(inside[::2], outside[::2])
    return AttackResult.of(inside[1::2] >= threshold, outside[1::2] >= threshold, confidence)


def _best_threshold(inside: Floats, outside: Floats) -> float:
    """Return the score above which records are taken for members, so that the difference of both rates is largest."""
    cuts = np.unique(np.concatenate([inside, outside]))
    rates = [1 - np.searchsorted(np.sort(part), cuts, side="left") / len(part) for part in (inside, outside)]
    return float(cuts[np.argmax(rates[0] - rates[1])])


def shadow_attack(
    target: Any,
    train: Callable[[Any, Any], Any],
    members: Labelled,
    others: Labelled,
    shadow: Labelled,
    *,
    shadows: int = 8,
    confidence: float = 0.95,
    random_state: int | None = None,
) -> AttackResult:
    """Train shadow models on an attacker's own rows, and learn from their scores what members look like.

    Shokri et al. 2017, with one attack model for all classes. If the target is `Downgraded`, so are the shadows.

    Args:
        target: the attacked classifier.
        train: returns a fitted classifier for (X, y), as the target was trained.
        members, others: (X, y) of the target's training rows, and of others.
        shadow: (X, y) of the attacker's rows, drawn alike. Each shadow model trains on a random half.
        shadows: number of shadow models.
        confidence: of the interval.
        random_state: a seed for the halves.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
    except ImportError:
        raise MissingExtra("a shadow attack needs scikit-learn: pip install 'cloister[learn]'.") from None
    rows, labels = np.asarray(shadow[0]), np.asarray(shadow[1])
    _enough(len(members[1]), len(others[1]), len(labels))
    generator = np.random.default_rng(
        int.from_bytes(SYSTEM.bytes(32), "little") if random_state is None else random_state
    )
    features, member = [], []
    for _ in range(shadows):
        inside = generator.permutation(len(labels)) < len(labels) // 2
        model = train(rows[inside], labels[inside])
        released = target.of(model) if isinstance(target, Downgraded) else model
        features.append(_attack_features(released, rows, labels))
        member.append(inside)
    attacker = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=8, random_state=0)
    attacker.fit(np.concatenate(features), np.concatenate(member))
    inside, outside = (attacker.predict(_attack_features(target, *part)) == 1 for part in (members, others))
    return AttackResult.of(inside, outside, confidence)


def _attack_features(model: Any, rows: Any, labels: Any) -> Floats:
    """Return the score of the true class, the three highest scores, and whether the predicted class is right."""
    scores = np.asarray(model.predict_proba(rows), np.float64)
    own = _own_scores(model, scores, labels)
    highest = -np.sort(-scores, axis=1)[:, :3]
    right = np.asarray(model.classes_)[np.argmax(scores, axis=1)] == np.asarray(labels)
    return np.column_stack([own, highest, right])


def _scores_of_label(model: Any, rows: Any, labels: Any) -> Floats:
    return _own_scores(model, np.asarray(model.predict_proba(rows), np.float64), labels)


def _own_scores(model: Any, scores: Floats, labels: Any) -> Floats:
    """Return the score of each record's true class; 0 if the model does not know the class."""
    same = np.asarray(model.classes_)[None, :] == np.asarray(labels)[:, None]
    return np.asarray((scores * same).sum(axis=1))


def _enough(*sizes: int) -> None:
    if min(sizes) < 20:
        raise BadInput("a membership attack needs at least 20 records of each kind.")


# Report


@dataclass(frozen=True)
class DowngradingReport:
    """Accuracy and membership advantage of a classifier under several controls."""

    controls: tuple[str, ...]
    accuracy: tuple[float, ...]
    threshold: tuple[AttackResult, ...]
    shadow: tuple[AttackResult, ...]

    def to_arrow(self) -> pa.Table:
        """Return a table with a row per control."""
        columns: dict[str, Any] = {"control": pa.array(self.controls), "accuracy": pa.array(self.accuracy)}
        for name, results in (("threshold", self.threshold), ("shadow", self.shadow)):
            if results:
                columns[f"{name}_advantage"] = pa.array([result.advantage for result in results])
                columns[f"{name}_low"] = pa.array([result.interval[0] for result in results])
                columns[f"{name}_high"] = pa.array([result.interval[1] for result in results])
        return pa.table(columns)

    def to_pandas(self) -> Any:
        """Return the table as a pandas frame."""
        return self.to_arrow().to_pandas()


def downgrading_report(
    model: Any,
    controls: Sequence[Downgraded],
    members: Labelled,
    others: Labelled,
    *,
    train: Callable[[Any, Any], Any] | None = None,
    shadow: Labelled | None = None,
    shadows: int = 8,
    random_state: int | None = None,
) -> DowngradingReport:
    """Attack a classifier without and with each control.

    Args:
        model: the fitted classifier.
        controls: `Downgraded` forms of it; the undefended model comes first in the report.
        members, others: (X, y) of its training rows, and of others drawn alike.
        train, shadow, shadows, random_state: see `shadow_attack`; without them only the threshold attack is run.
    """
    released = [Downgraded(model), *controls]
    accuracy = [float(np.mean(each.predict(others[0]) == np.asarray(others[1]))) for each in released]
    by_threshold = [threshold_attack(each, members, others) for each in released]
    by_shadow = []
    if train is not None and shadow is not None:
        by_shadow = [
            shadow_attack(each, train, members, others, shadow, shadows=shadows, random_state=random_state)
            for each in released
        ]
    return DowngradingReport(
        tuple(each.name for each in released), tuple(accuracy), tuple(by_threshold), tuple(by_shadow)
    )

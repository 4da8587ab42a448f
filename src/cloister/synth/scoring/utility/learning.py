"""Train on synthetic rows, test on real ones; and the reverse.

Two models that read every column: logistic regression and a decision tree, with the settings below for all tables. The
same models trained on the real rows are the upper reference, the most frequent class the lower one.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.attack.report.interval import Interval, share
from cloister.attack.tables.synthetic.membership import area
from cloister.privacy.errors import BadSchema, MissingExtra
from cloister.synth.scoring.rows import EncodedRows, Floats, Integers, ScoreRows

__all__ = ["Learning", "Trained", "features", "learning", "sklearn_or_refuse", "target_place"]

_MOST_CLASSES, _MOST_FEATURES = 65, 128
MODELS = ("logistic regression", "decision tree")


@dataclass(frozen=True, slots=True)
class Trained:
    """Test results of a model.

    Attributes:
        accuracy: the share of right answers, with Clopper and Pearson's interval.
        auc: the probability that a row of the second class scores above one of the first (DeLong's interval); the mean
            over classes, each against the rest, if there are more than two. None if the test rows are of one class.
    """

    accuracy: Interval
    auc: Interval | None

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for a file."""
        return {"accuracy": self.accuracy.to_json(), "auc": None if self.auc is None else self.auc.to_json()}


@dataclass(frozen=True, slots=True)
class Learning:
    """Results of models trained on synthetic rows.

    Attributes:
        target: the column they predict.
        synthetic: trained on synthetic rows, tested on real ones.
        real: trained on real rows, tested on the same ones.
        reverse: trained on real rows, tested on synthetic ones.
        floor: the accuracy of the more frequent class.
        held_back: whether the test rows were held out from the generator; if not, every figure is too good.
    """

    target: str
    synthetic: Mapping[str, Trained]
    real: Mapping[str, Trained]
    reverse: Mapping[str, Trained]
    floor: float
    held_back: bool

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for a file."""
        results = {
            kind: {name: result.to_json() for name, result in getattr(self, kind).items()}
            for kind in ("synthetic", "real", "reverse")
        }
        return {"target": self.target, "floor": self.floor, "test rows were held back": self.held_back, **results}


def sklearn_or_refuse() -> None:
    """Refuse if scikit-learn is not installed."""
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise MissingExtra("models for scores need scikit-learn: pip install 'cloister[learn]'.") from None


def target_place(sides: Sequence[EncodedRows], target: str) -> int:
    """Return the index of the target; refuse, before anything is computed, a target that models cannot predict."""
    sklearn_or_refuse()
    names = [side.name for side in sides]
    if target not in names:
        raise BadSchema(f"the target {target!r:.60} is no column with public values in the schema.")
    labels = sides[names.index(target)].labels
    if len(labels) > _MOST_CLASSES or isinstance(labels[0], tuple):
        raise BadSchema(f"{target} has no short list of public values to predict. Give it categories in the schema.")
    return names.index(target)


def learning(real: ScoreRows, synthetic: ScoreRows, holdout: ScoreRows | None, target: str) -> Learning:
    """Train both models on both tables."""
    index = target_place(real.sides, target)
    tested = real if holdout is None else holdout
    sets = [_known(rows, index) for rows in (real, synthetic, tested)]
    (x, y), (made_x, made_y), (test_x, test_y) = sets
    most = int(np.bincount(y).argmax()) if len(y) else 0
    from_real = {name: _fitted(name, x, y) for name in MODELS}
    return Learning(
        target,
        {name: _tested(_fitted(name, made_x, made_y), test_x, test_y) for name in MODELS},
        {name: _tested(model, test_x, test_y) for name, model in from_real.items()},
        {name: _tested(model, made_x, made_y) for name, model in from_real.items()},
        float((test_y == most).mean()) if len(test_y) else math.nan,
        holdout is not None,
    )


def features(rows: ScoreRows, without: int | None = None, *, first: bool = True) -> NDArray[np.float64]:
    """Encode columns for models: positions of ordered ones (and whether they are missing), one-hot codes of others.

    Args:
        without: a column to leave out.
        first: whether the first code of each column has its own feature; without it the features are independent.
    """
    parts: list[Any] = []
    for j, side in enumerate(rows.sides):
        if j == without:
            continue
        if side.ordered:
            gone = np.isnan(rows.points[:, j])
            parts.append(np.where(gone, 0.5, rows.points[:, j]))
            if side.column.nullable:
                parts.append(gone.astype(np.float64))
        else:
            # With very many categories some share a feature: it is for a score, and memory is finite.
            size = min(side.size if side.column.nullable else side.size - 1, _MOST_FEATURES)
            shared = rows.codes[:, j] % size
            parts += [(shared == code).astype(np.float64) for code in range(0 if first else 1, size)]
    return np.stack(parts, axis=1) if parts else np.zeros((len(rows), 0))


def _known(rows: ScoreRows, target: int) -> tuple[Floats, Integers]:
    present = rows.codes[:, target] < len(rows.sides[target].labels)
    return features(rows, target)[present], rows.codes[present, target]


def _fitted(name: str, x: Floats, y: Integers) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.tree import DecisionTreeClassifier

    if len(np.unique(y)) < 2:
        return int(y[0]) if len(y) else 0  # it can only predict known classes
    if name == "decision tree":
        return DecisionTreeClassifier(max_depth=8, min_samples_leaf=20, random_state=0).fit(x, y)
    with warnings.catch_warnings():  # incomplete convergence is close enough for a score
        warnings.simplefilter("ignore")
        return LogisticRegression(solver="newton-cholesky", max_iter=100).fit(x, y)


def _tested(model: Any, x: Floats, y: Integers) -> Trained:
    if isinstance(model, int) or not len(y):
        even = Interval(0.5) if len(np.unique(y)) > 1 else None
        return Trained(share(int((y == model).sum()), len(y)), even)
    chances, classes = model.predict_proba(x), list(model.classes_)
    right = int((np.asarray(classes)[chances.argmax(axis=1)] == y).sum())
    present = [c for c in np.unique(y).tolist() if (y != c).any()]
    compared = present[-1:] if len(present) == 2 else present
    areas = []
    for c in compared:
        chance = chances[:, classes.index(c)] if c in classes else np.zeros(len(y))
        areas.append(area(chance[y == c], chance[y != c]))
    auc = (
        areas[0]
        if len(areas) == 1
        else Interval(float(np.mean([interval.value for interval in areas])))
        if areas
        else None
    )
    return Trained(share(right, len(y)), auc)

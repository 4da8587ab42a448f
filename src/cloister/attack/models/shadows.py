"""Shadow models: models like the target whose training rows the attacker knows (Shokri et al. 2017).

    rows ──► each shadow model is fitted to a random half ──► its outputs on all rows, beside what it was fitted to

The rows are those the attacker asks about, rows of the same population, or made up: real rows with noise, rows drawn
from published marginals, or inputs found by hill climbing on the target's confidences, each labelled by the target.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.attack.finding import FOREIGN_ERRORS
from cloister.attack.intervals import Floats
from cloister.attack.models.rows import Marginals, perturb
from cloister.attack.models.target import LEAST_SCORE, Target, named, rows_of
from cloister.privacy.errors import BadInput, CloisterError, MissingExtra

__all__ = ["Fit", "Progress", "Shadows", "Signals", "as_fit", "made_up_rows", "score_by_classifier", "train_shadows"]

Fit = Callable[[Any, NDArray[Any]], Any]
Progress = Callable[[float, str], None]
_TOP = 3  # largest probabilities that the attack's classifier sees
_MOST_FITTED = 100_000  # pairs of model and record that the classifier is fitted to
_CLIMB_ROUNDS = 60
_SURE = 0.8  # confidence at which a found input is taken as a row of its class


@dataclass(frozen=True, slots=True, eq=False)
class Signals:
    """Outputs of a model on records, as attackers use them.

    Attributes:
        logit: log(p / (1 - p)) of the record's own label; -log of the squared error for a model of numbers.
        probability: p; for a model of numbers the likelihood, up to a factor.
        details: largest probabilities in order, and 1 if the label is right.
    """

    logit: Floats
    probability: Floats
    details: Floats

    @classmethod
    def of(cls, target: Target, rows: Any, labels: NDArray[Any], *, scale: float | None = None) -> "Signals":
        """Ask a model about each row once.

        Args:
            target: the model.
            rows: the records.
            labels: the label of each record. One that the model does not know has probability 0.
            scale: mean squared error that likelihoods are relative to, for a model of numbers.
        """
        if target.answers_numbers:
            error = np.asarray(target.losses(rows, labels), dtype=np.float64)
            usual = max(float(error.mean()) if scale is None else scale, LEAST_SCORE)
            logit = -np.log(error / usual + 1e-9)
            return cls(logit, np.exp(-np.minimum(error / (2 * usual), 700)), logit[:, None])
        found = target.probabilities(rows)
        assert target.classes is not None
        known = {value: place for place, value in enumerate(np.asarray(target.classes).tolist())}
        codes = np.array([known.get(label, -1) for label in labels.tolist()], dtype=np.intp)
        own = np.where(codes >= 0, found[np.arange(len(found)), codes], 0.0)
        rest = np.where(codes >= 0, found.sum(axis=1) - own, found.sum(axis=1))
        logit = np.log(np.maximum(own, LEAST_SCORE)) - np.log(np.maximum(rest, LEAST_SCORE))
        top = -np.sort(-found, axis=1)[:, :_TOP]
        if top.shape[1] < _TOP:
            top = np.pad(top, ((0, 0), (0, _TOP - top.shape[1])))
        right = (found.argmax(axis=1) == codes).astype(np.float64)
        return cls(np.asarray(logit), np.clip(own, 0, 1), np.column_stack((top, right)))


@dataclass(frozen=True, slots=True, eq=False)
class Shadows:
    """Outputs of shadow models on records: one row for each model, one column for each record.

    Attributes:
        inside: True where a model was fitted to a record.
        logits, probabilities: of each record's own label.
        details: further outputs of each record, as in `Signals`.
    """

    inside: NDArray[np.bool_]
    logits: Floats
    probabilities: Floats
    details: Floats

    def __len__(self) -> int:
        return len(self.inside)

    def part(self, places: Any) -> "Shadows":
        """Return the outputs on some of the records."""
        return Shadows(
            self.inside[:, places], self.logits[:, places], self.probabilities[:, places], self.details[:, places]
        )


def as_fit(fit: Any, target: Target) -> Fit:
    """Return what fits a shadow model to rows and labels.

    Args:
        fit: a function of rows and labels that returns a model, or an estimator that is not fitted; None to fit a copy
            of the target, if that is a scikit-learn estimator.
        target: the model under attack.
    """
    given = target.model if fit is None else fit
    if hasattr(given, "fit") and hasattr(given, "get_params"):
        settings = given.get_params()
        has = {
            name: any(value is not None and key.rpartition("__")[2] == name for key, value in settings.items())
            for name in ("spend", "ledger", "account")
        }
        if has["spend"] and (fit is None or has["ledger"] or has["account"]):
            raise BadInput(
                f"each fit of a {type(given).__name__} is charged to an account, so it is not refitted for shadow "
                "models. Pass fit=, such as the same kind of model without privacy."
            )
        return partial(_fitted, partial(_refit, given), type(given).__name__)
    if fit is None:
        raise BadInput(
            f"shadow models are fitted like the target, and {target.name} cannot be fitted again. Pass fit=, a "
            "function of rows and labels that returns a model, or an estimator."
        )
    if not callable(fit):
        raise BadInput(f"fit is a function of rows and labels, or an estimator, not {type(fit).__name__}.")
    return partial(_fitted, fit, getattr(fit, "__name__", type(fit).__name__))


def _fitted(fit: Fit, name: str, rows: Any, labels: NDArray[Any]) -> Any:
    """Return a fitted model, or refuse in a sentence rows that it cannot learn."""
    try:
        return fit(rows, labels)
    except CloisterError:
        raise
    except FOREIGN_ERRORS as error:
        raise BadInput(
            f"{name} could not fit {len(labels):,} rows ({type(error).__name__}). Encode text as numbers, fill in "
            "what is missing, or pass an estimator that takes such rows."
        ) from error


def _refit(estimator: Any, rows: Any, labels: NDArray[Any]) -> Any:
    try:
        from sklearn.base import clone
    except ModuleNotFoundError:
        raise MissingExtra("copies of an estimator need scikit-learn: pip install 'cloister[learn]'.") from None
    names = getattr(estimator, "feature_names_in_", ())
    same = isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.shape[1] == len(names)
    return clone(estimator).fit(named(estimator, rows) if same else rows, labels)


def train_shadows(
    fit: Fit,
    rows: Any,
    labels: NDArray[Any],
    *,
    shadows: int,
    draw: np.random.Generator,
    eligible: NDArray[np.bool_] | None = None,
    classes: ArrayLike | None = None,
    scale: float | None = None,
    progress: Progress | None = None,
) -> Shadows:
    """Fit shadow models to random halves of the rows, and ask each about all of them.

    Every row is in half of the models, so that both sides of a likelihood ratio have as many.

    Args:
        fit: fits a model to rows and labels.
        rows: the records.
        labels: the label of each.
        shadows: number of models.
        draw: the generator of the halves.
        eligible: the records that models are fitted to; all unless given.
        classes: the classes of a function that returns probabilities.
        scale: see `Signals.of`.
        progress: called with a share and a sentence.
    """
    n = rows.shape[0]
    usable = np.arange(n) if eligible is None else np.flatnonzero(eligible)
    inside = np.zeros((shadows, n), dtype=np.bool_)
    inside[:, usable] = draw.random((shadows, len(usable))).argsort(axis=0, kind="stable") < shadows / 2
    kept: list[Signals] = []
    for number in range(shadows):
        places = np.flatnonzero(inside[number])
        if len(np.unique(labels[places])) < 2 and len(np.unique(labels)) > 1:
            raise BadInput("half of the rows hold one class only, so a shadow model cannot be fitted. Pass more rows.")
        shadow = Target.of(fit(rows_of(rows, places), labels[places]))
        if shadow.classes is None and classes is not None and not shadow.answers_numbers:
            shadow.classes = np.asarray(classes)
        kept.append(Signals.of(shadow, rows, labels, scale=scale))
        if progress is not None:
            progress((number + 1) / shadows, f"shadow model {number + 1} of {shadows}")
    return Shadows(
        inside,
        np.array([signals.logit for signals in kept]),
        np.array([signals.probability for signals in kept]),
        np.array([signals.details for signals in kept]),
    )


def score_by_classifier(
    asked: Signals, labels: NDArray[np.intp], shadows: Shadows, shadow_labels: NDArray[np.intp]
) -> Floats:
    """Return the probability of membership by a classifier of shadow outputs (Shokri et al. 2017).

    It sees the logit, the largest probabilities in order, whether the label is right, and the label.

    Args:
        asked: outputs of the target.
        labels: the label of each record that is asked about, as a number.
        shadows: outputs of shadow models on their own rows.
        shadow_labels: the labels of those rows.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
    except ModuleNotFoundError:
        raise MissingExtra(
            "the classifier of shadow outputs needs scikit-learn: pip install 'cloister[learn]'."
        ) from None
    models, n = shadows.inside.shape
    used = np.linspace(0, models * n - 1, min(models * n, _MOST_FITTED)).astype(np.int64)
    model, record = np.divmod(used, n)
    learned = np.column_stack(
        (shadows.logits[model, record], shadows.details[model, record], shadow_labels[record].astype(np.float64))
    )
    classifier = HistGradientBoostingClassifier(
        max_iter=60, max_leaf_nodes=15, min_samples_leaf=40, early_stopping=False, random_state=0
    ).fit(learned, shadows.inside[model, record])
    table = np.column_stack((asked.logit, asked.details, labels.astype(np.float64)))
    # Trees give many records the same score; the logit orders those.
    return np.asarray(classifier.predict_proba(table)[:, 1] + 1e-9 * np.tanh(asked.logit / 10))


def made_up_rows(
    kind: str,
    target: Target,
    n: int,
    draw: np.random.Generator,
    *,
    real: tuple[Any, NDArray[Any]] | None = None,
    marginals: Marginals | None = None,
    noise: float = 0.2,
) -> tuple[Any, NDArray[Any]]:
    """Return rows for shadow models that the attacker makes up, with labels.

    Args:
        kind: "noise" for real rows with noise, "statistics" for rows from marginals, "inversion" for inputs of which
            the target is sure, found by hill climbing from random inputs.
        target: the model under attack; it labels what has no label.
        n: number of rows.
        draw: the generator.
        real: rows of the population, for "noise".
        marginals: statistics of the columns; those of the real rows unless given.
        noise: for "noise": size in standard deviations, and the share of changed cells of few-valued columns.
    """
    if kind not in _MAKERS:
        raise BadInput(f"shadow_data is a pair (X, y), {', '.join(repr(name) for name in _MAKERS)}, got {kind!r:.40}.")
    if kind == "noise":
        if real is None:
            raise BadInput("shadow_data='noise' changes real rows of the population: pass reference=(X, y).")
        places = draw.integers(0, real[0].shape[0], n)
        return perturb(rows_of(real[0], places), draw, noise, like=real[0]), real[1][places]
    if marginals is None and real is None:
        raise BadInput(
            f"shadow_data={kind!r} needs statistics of the columns: pass marginals=, or reference=(X, y) to count them."
        )
    known = Marginals.of(real[0]) if marginals is None and real is not None else marginals
    assert known is not None
    like = None if real is None else real[0]
    return _MAKERS[kind](target, n, draw, known, like)


def _of_statistics(
    target: Target, n: int, draw: np.random.Generator, marginals: Marginals, like: Any
) -> tuple[Any, NDArray[Any]]:
    rows = marginals.draw(n, draw, like=like)
    return rows, target.labels(rows)


def _of_inversion(
    target: Target, n: int, draw: np.random.Generator, marginals: Marginals, like: Any
) -> tuple[Any, NDArray[Any]]:
    """Climb from random inputs to those of which the target is sure (Shokri et al. 2017, Algorithm 1)."""
    start = rows = marginals.draw(n, draw, like=like)
    goal = target.probabilities(rows).argmax(axis=1)
    places = np.arange(n)
    # Classes that random inputs do not reach are goals too.
    width = target.probabilities(rows_of(rows, places[:1])).shape[1]
    goal[: n // 2] = np.arange(n // 2) % width
    best = target.probabilities(rows)[places, goal]
    share = 0.5
    for _ in range(_CLIMB_ROUNDS):
        todo = np.flatnonzero(best < _SURE)
        if not len(todo):
            break
        trial = perturb(rows_of(rows, todo), draw, share, like=start)
        found = target.probabilities(trial)[np.arange(len(todo)), goal[todo]]
        better = found > best[todo]
        rows = _replaced(rows, todo[better], rows_of(trial, np.flatnonzero(better)))
        best[todo[better]] = found[better]
        share = max(0.05, share * (1.1 if better.mean() > 0.2 else 0.9))
    return rows, target.labels(rows)


_MAKERS: Mapping[str, Callable[..., tuple[Any, NDArray[Any]]]] = {
    "noise": _of_statistics,  # never called: it changes real rows
    "statistics": _of_statistics,
    "inversion": _of_inversion,
}


def _replaced(rows: Any, places: NDArray[np.intp], new: Any) -> Any:
    if not len(places):
        return rows
    if hasattr(rows, "iloc"):
        changed = rows.copy()
        changed.iloc[places] = new.to_numpy()
        return changed
    changed = np.array(rows, dtype=np.result_type(rows, new))
    changed[places] = new
    return changed

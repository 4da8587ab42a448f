"""Stealing: a copy of a model from its answers.

    copy_linear          exact from d + 1 answers of a linear or logistic model; more answers where they are rounded
    copy_by_learning     a model of the attacker's that is fitted to the answers, for any other target
    steal                either, with agreement against queries, under rounding and with labels only
    watermark            does a suspect know the labels of secret trigger rows?

    found = attack.steal(model, box=(0, 1), width=20, test=X)

An answer log(p_k / p_0) of a logistic model is linear in the row, so d + 1 rows give d + 1 linear equations for each
class (Tramèr et al. 2016). The best guess without the target is its most frequent answer, or a model of the attacker's
own labelled rows.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.attack.finding import Finding, clopper_pearson
from cloister.attack.intervals import Floats
from cloister.attack.models import remedies
from cloister.attack.models.rows import check_whole, generator, join, perturb, read_box, read_pair, read_rows
from cloister.attack.models.shadows import Progress, as_fit
from cloister.attack.models.target import LEAST_SCORE, Target, rows_of
from cloister.privacy.errors import BadInput, CloisterError, MissingExtra

__all__ = ["LinearCopy", "copy_by_learning", "copy_linear", "steal", "watermark"]

METHODS = ("auto", "equations", "learning")
_MOST = 23.0  # log odds beyond which a probability has lost its digits: such rows are asked again nearer to the middle
_CLOSE = 1e-6  # largest error in log odds of a copy that counts as exact
_EXPLAINED = 0.05  # largest error of a copy that is kept: single precision and fine rounding stay below
_HELD_OUT = 200  # answers from which on a tenth is held out to stop the attacker's network early
_EXTRA = 8  # answers beyond those of the equations, which test whether the target is linear


@dataclass(frozen=True, slots=True, eq=False)
class LinearCopy:
    """A linear model that was solved for.

    Attributes:
        coef: one row of weights for each class but the first, relative to it; one row for a model of numbers.
        intercept: one for each row of weights.
        classes: the classes; None for a model of numbers.
        error: largest error in log odds, or in the number, on answers that were not used.
        queries: answers that were asked.
    """

    coef: Floats
    intercept: Floats
    classes: NDArray[Any] | None
    error: float
    queries: int

    @property
    def exact(self) -> bool:
        """Return True if the copy explains the answers that were not used."""
        return self.error < _CLOSE

    def predict_proba(self, rows: ArrayLike) -> Floats:
        """Return the probability of each class."""
        scores = self._scores(rows)
        odds = np.column_stack((np.zeros(len(scores)), scores))
        shares = np.exp(odds - odds.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def predict(self, rows: ArrayLike) -> NDArray[Any]:
        """Return the class or the number of each row."""
        if self.classes is None:
            return np.asarray(self._scores(rows)[:, 0])
        return np.asarray(self.classes[self.predict_proba(rows).argmax(axis=1)])

    def _scores(self, rows: ArrayLike) -> Floats:
        table = np.asarray(rows, dtype=np.float64)
        return np.asarray(table.reshape(len(table), -1) @ self.coef.T + self.intercept)


def copy_linear(
    model: Any,
    *,
    box: tuple[ArrayLike, ArrayLike],
    width: int,
    queries: int | None = None,
    classes: Sequence[Any] | None = None,
    random_state: int | None = None,
) -> LinearCopy:
    """Solve for the weights of a linear or logistic model from its answers.

    Args:
        model: anything that `Target.of` takes that answers probabilities or numbers.
        box: the least and the largest value of each feature, or of all.
        width: number of features.
        queries: answers to solve from: `width` + 1 unless given; more average the rounding away.
        classes: the classes of a function or an endpoint, in the order of its columns.
        random_state: a seed; None for the operating system's randomness.

    Returns:
        The copy, with the error on a few further answers: a target that is not linear shows there.
    """
    target = Target.of(model, classes=classes)
    d = check_whole(width, "width", 1, 20_000)
    n = d + 1 if queries is None else check_whole(queries, "queries", d + 1, 10_000_000)
    low, high = read_box(box, d)
    draw = generator(random_state)
    before = target.queries
    middle, wide = (low + high) / 2, np.maximum((high - low) / 2, LEAST_SCORE)
    # Rows far apart condition the equations well; rows near the middle keep probabilities away from 0 and 1.
    near = 1.0
    asked, odds = _answers(target, middle, wide, n, near, draw)
    for _ in range(12):
        if target.answers_numbers or not (np.abs(odds) > _MOST).any():
            break
        near /= 4
        asked, odds = _answers(target, middle, wide, n, near, draw)
    flat = not target.answers_numbers and bool((np.abs(odds) > _MOST).all())  # no answer tells a slope
    # In coordinates where the rows are about one apart, so that no column swamps another.
    table = np.column_stack(((asked - middle) / (wide * near), np.ones(len(asked))))
    solved = np.linalg.lstsq(table, odds, rcond=None)[0].T
    coef = solved[:, :-1] / (wide * near)
    intercept = solved[:, -1] - coef @ middle
    used = target.queries - before
    error = 0.0
    for spread in (near, 1.0):  # near the middle alone, a model of constant answers would look linear
        more, truth = _answers(target, middle, wide, _EXTRA + d // 4, spread, draw)
        given = more @ coef.T + intercept
        if target.answers_numbers:
            gap = np.abs(given - truth).max() / max(1.0, float(np.abs(truth).max()))
        else:
            gap = np.abs(np.clip(given, -_MOST, _MOST) - np.clip(truth, -_MOST, _MOST)).max(initial=0.0)
        error = max(error, float(gap))
    return LinearCopy(coef, intercept, target.classes, float("inf") if flat else error, used)


def _answers(
    target: Target, middle: Floats, wide: Floats, n: int, near: float, draw: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return rows and log odds relative to the first class, or numbers."""
    rows = middle + wide * near * draw.uniform(-1, 1, (n, len(middle)))
    if target.answers_numbers:
        return rows, np.asarray(target.labels(rows), dtype=np.float64).reshape(len(rows), -1)
    logs = np.log(np.maximum(target.probabilities(rows), 1e-300))
    return rows, np.asarray(np.clip(logs[:, 1:] - logs[:, :1], -700, 700))


def copy_by_learning(
    model: Any,
    *,
    rows: Any,
    fit: Any = None,
    labels_only: bool = False,
    classes: Sequence[Any] | None = None,
    random_state: int | None = None,
) -> Any:
    """Return a model that is fitted to the target's answers about rows.

    The attacker's own network learns the probabilities; a model of another kind (`fit`) learns the likeliest labels.

    Args:
        model: anything that `Target.of` takes.
        rows: the rows to ask about.
        fit: a function of rows and labels, or an estimator; a small neural network unless given.
        labels_only: hide the probabilities.
        classes: the classes of a function or an endpoint, in the order of its columns.
        random_state: a seed; None for the operating system's randomness.
    """
    target = Target.of(model, classes=classes, labels_only=labels_only)
    table = read_rows(rows, "rows", least=2)
    draw = generator(random_state)
    return _learned(target, table, fit, draw)


def _learned(target: Target, rows: Any, fit: Any, draw: np.random.Generator) -> Any:
    if target.answers_numbers:
        values = np.asarray(target.labels(rows), dtype=np.float64)
        return _fitter(fit, rows, numbers=True, seed=draw)(rows, values)
    if target.access == "labels only":
        labels = np.asarray(target.labels(rows))
        return _constant(labels) or _fitter(fit, rows, numbers=False, seed=draw)(rows, labels)
    chance = target.probabilities(rows)
    assert target.classes is not None
    chance = chance / np.maximum(chance.sum(axis=1, keepdims=True), LEAST_SCORE)
    best = target.classes[chance.argmax(axis=1)]
    if (found := _constant(best)) is not None:
        return found
    if fit is None and not hasattr(rows, "tocsr") and not hasattr(rows, "iloc"):
        return _SoftCopy(rows, chance, target.classes, int(draw.integers(1 << 31)))
    return _fitter(fit, rows, numbers=False, seed=draw)(rows, best)


def _constant(labels: NDArray[Any]) -> Any:
    """Return a model of one answer if all are the same: most estimators refuse to learn that."""
    return _Constant(labels[0]) if len(np.unique(labels)) == 1 else None


@dataclass(frozen=True, slots=True)
class _Constant:
    value: Any

    def predict(self, rows: Any) -> NDArray[Any]:
        """Return the one answer for each row."""
        return np.full(rows.shape[0], self.value)


class _SoftCopy:
    """A network that is fitted to log odds, which hold more than labels do."""

    def __init__(self, rows: Floats, chance: Floats, classes: NDArray[Any], seed: int) -> None:
        logs = np.log(np.maximum(chance, 1e-6))
        odds = logs - logs.mean(axis=1, keepdims=True)
        self.classes_ = classes
        self._network = _trained(_network(seed, odds, numbers=True), rows.reshape(len(rows), -1), odds)

    def predict(self, rows: Any) -> NDArray[Any]:
        """Return the class of each row."""
        found = np.asarray(self._network.predict(rows.reshape(len(rows), -1)))
        return np.asarray(self.classes_[found.argmax(axis=1)])


def _fitter(fit: Any, rows: Any, *, numbers: bool, seed: np.random.Generator) -> Any:
    if fit is not None:
        return as_fit(fit, Target.of(lambda asked: asked))
    if hasattr(rows, "iloc"):
        raise BadInput("the attacker's own model of a frame is given: fit=, an estimator that takes such rows.")
    return lambda asked, labels: _trained(_network(int(seed.integers(1 << 31)), labels, numbers=numbers), asked, labels)


def _trained(network: Any, rows: Any, goal: Any) -> Any:
    """Fit the attacker's own network. That its last steps still improved it is no news to anybody."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            return network.fit(rows, goal)
        except (TypeError, ValueError) as error:
            raise BadInput(
                f"the attacker's network takes finite numbers, and cannot learn these rows ({type(error).__name__}). "
                "Pass fit=, an estimator that takes such rows."
            ) from error


def _network(seed: int, goal: NDArray[Any], *, numbers: bool) -> Any:
    """Return the attacker's own network. With few answers none is held out to stop early."""
    try:
        from sklearn.neural_network import MLPClassifier, MLPRegressor
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
    except ModuleNotFoundError:
        raise MissingExtra("the attacker's own model needs scikit-learn: pip install 'cloister[learn]'.") from None
    held_out = len(goal) >= _HELD_OUT and (numbers or np.unique(goal, return_counts=True)[1].min() >= 2)
    settings = {"hidden_layer_sizes": (64, 32), "max_iter": 200, "early_stopping": held_out, "n_iter_no_change": 15}
    kind = MLPRegressor if numbers else MLPClassifier
    return make_pipeline(StandardScaler(with_mean=False), kind(**settings, random_state=seed))


def steal(
    model: Any,
    *,
    test: Any,
    box: tuple[ArrayLike, ArrayLike] | None = None,
    rows: Any = None,
    method: str = "auto",
    queries: int | None = None,
    reference: tuple[Any, Any] | None = None,
    fit: Any = None,
    labels_only: bool = False,
    classes: Sequence[Any] | None = None,
    random_state: int | None = None,
    progress: Progress | None = None,
) -> Finding:
    """Copy a model by asking it, and measure how often the copy agrees with it.

    Args:
        model: anything that `Target.of` takes.
        test: rows on which the copy and the target are compared; the attacker does not see them.
        box: the least and the largest value of each feature, or of all; those of `rows` unless given.
        rows: rows of the population to ask about; without them, rows are drawn from the box.
        method: "equations" solves for a linear model, "learning" fits a model; "auto" solves if that explains further
            answers, and else learns.
        queries: most answers of the copy; 1,000 unless given, or as many as equations need.
        reference: the attacker's own rows and labels: a model of them is the best guess without the target.
        fit: the attacker's model for "learning": a function of rows and labels, or an estimator.
        labels_only: hide the probabilities.
        classes: the classes of a function or an endpoint, in the order of its columns.
        random_state: a seed; None for the operating system's randomness.
        progress: called with a share and a sentence.

    Privacy: none is lost but the model's: what it reveals of its rows, the copy reveals too.
    """
    if method not in METHODS:
        raise BadInput(f"method is one of {', '.join(map(repr, METHODS))}, got {method!r:.40}.")
    target = Target.of(model, classes=classes, labels_only=labels_only)
    table = read_rows(test, "test", least=8)
    draw = generator(random_state)
    truth = np.asarray(target.labels(table))
    solvable = box is not None and target.access != "labels only" and not hasattr(table, "iloc")
    if method == "equations" and not solvable:
        raise BadInput("method='equations' solves for weights from probabilities of rows in a box: pass box=.")
    width = int(np.prod(table.shape[1:]))
    copy: Any = None
    if method in ("auto", "equations") and solvable and box is not None:
        copy = copy_linear(_flat(target, table), box=box, width=width, queries=queries, random_state=_seed(draw))
        if method == "auto" and copy.error > _EXPLAINED:
            copy = None
    figures: dict[str, float | int | str]
    if copy is not None:
        asked, how = copy.queries, "solving equations"
        figures = {"queries": asked, "equations needed": width + 1, "error of log odds" if copy.classes is not None else
                   "relative error": f"{copy.error:.2g}"}  # fmt: skip
        agreed = _agreement(copy, table, truth, target.answers_numbers)
        figures |= _rounded(target, table, truth, box, width, asked, draw)
    else:
        asked = check_whole(1_000 if queries is None else queries, "queries", 10, 10_000_000)
        pool = _pool(rows, table, box, asked, draw)
        how, curve = "learning", {}
        for part in sorted({max(10, asked // 16), max(10, asked // 4), asked}):
            copy = _learned(target, rows_of(pool, slice(0, part)), fit, draw)
            curve[part] = float(_agreement(copy, table, truth, target.answers_numbers).mean())
            if progress is not None:
                progress(part / asked, f"{part:,} of {asked:,} queries")
        figures = {"queries": asked}
        figures |= {f"agreement after {n:,} queries": round(share, 4) for n, share in curve.items()}
        agreed = _agreement(copy, table, truth, target.answers_numbers)
        if not target.answers_numbers and target.access != "labels only":
            hidden = replace(target, access="labels only", queries=0)
            weak = _learned(hidden, pool, fit, draw)
            figures["agreement with labels only"] = round(float(_agreement(weak, table, truth, False).mean()), 4)
    return _found(target, agreed, truth, table, how, figures, reference, fit, draw, box)


def watermark(
    suspect: Any,
    *,
    triggers: tuple[Any, Any],
    chance: float | None = None,
    classes: Sequence[Any] | None = None,
    confidence: float = 0.95,
) -> Finding:
    """Test whether a suspect model is a copy of one that was trained on secret trigger rows (Adi et al. 2018).

    Args:
        suspect: anything that `Target.of` takes; labels are enough.
        triggers: rows that nobody else has, with labels that were drawn at random and trained on.
        chance: probability that a model that never saw the triggers gives such a label: 1 / classes unless given. Take
            the largest agreement among models of your own without triggers if their labels were not drawn evenly.
        classes: the classes of a function or an endpoint, in the order of its columns.
        confidence: the level of the interval.

    Privacy: none is involved: triggers are made up. Asking reveals them, so each set serves for one test.
    """
    rows, labels = read_pair(triggers, "triggers", least=8)
    target = Target.of(suspect, classes=classes)
    answers = np.asarray(target.labels(rows))
    known = len(np.unique(labels)) if target.classes is None else max(len(target.classes), len(np.unique(labels)))
    level = 1 / max(known, 2) if chance is None else chance
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise BadInput(f"chance is a probability between 0 and 1, got {chance!r:.40}.")
    if not isinstance(confidence, int | float) or isinstance(confidence, bool) or not 0 < confidence < 1:
        raise BadInput(f"confidence lies between 0 and 1, got {confidence!r:.40}.")
    from scipy.stats import binom

    n, hits = len(labels), int((answers == labels).sum())
    p_value = float(binom.sf(hits - 1, n, level))
    return Finding(
        attack="watermark test",
        target=target.name,
        access="labels only",
        knowledge=f"{n:,} secret rows with the labels that the owner's model was trained to give",
        measure="trigger rows that get their secret label",
        success=hits / n,
        interval=clopper_pearson(hits, n, confidence),
        baseline=float(level),
        attempts=n,
        figures={"p-value that this is chance": f"{p_value:.2g}", "queries": n},
        notes=(
            "an innocent model agrees by chance at the baseline only if the labels of triggers were drawn at random",
            "a copy that was trained on answers about other rows may have lost the triggers, so this clears nobody",
        ),
    )


def _found(
    target: Target, agreed: NDArray[np.bool_], truth: NDArray[Any], test: Any, how: str, figures: dict[str, Any],
    reference: Any, fit: Any, draw: np.random.Generator, box: Any,
) -> Finding:  # fmt: skip
    n, hits = len(agreed), int(agreed.sum())
    interval = clopper_pearson(hits, n)
    if target.answers_numbers:
        blind = np.full(n, np.median(truth))
        baseline = float(_agrees(blind, truth, numbers=True).mean())
    else:
        baseline = float(np.unique(truth, return_counts=True)[1].max() / n)
    if reference is not None:
        own_rows, own_labels = read_pair(reference, "reference")
        own = _constant(own_labels) or _fitter(fit, own_rows, numbers=target.answers_numbers, seed=draw)(
            own_rows, own_labels
        )
        baseline = max(baseline, float(_agreement(own, test, truth, target.answers_numbers).mean()))
    where = "rows of a box" if box is not None else "rows of the population"
    shown = "labels" if target.access == "labels only" else "numbers" if target.answers_numbers else "probabilities"
    return Finding(
        attack=f"model stealing by {how}",
        target=target.name,
        access=target.access,
        knowledge=f"{where}, and the model's {shown} of them",
        measure="answers of the copy that agree with the model",
        success=hits / n,
        interval=interval,
        baseline=baseline,
        attempts=n,
        figures=figures,
        remedies=remedies.for_stealing() if interval[0] > baseline else (),
        notes=("numbers agree if they differ by less than a hundredth of the standard deviation",)
        if target.answers_numbers
        else (),
    )


def _agreement(copy: Any, rows: Any, truth: NDArray[Any], numbers: bool) -> NDArray[np.bool_]:
    table = rows
    if isinstance(copy, LinearCopy) and hasattr(rows, "tocsr"):
        table = np.asarray(rows.todense())
    try:
        found = copy.predict(table) if hasattr(copy, "predict") else Target.of(copy).labels(table)
    except (TypeError, ValueError) as error:
        if isinstance(error, CloisterError):
            raise
        raise BadInput(
            f"the copy cannot answer the rows of test ({type(error).__name__}). Pass fit=, a model that takes them."
        ) from error
    return _agrees(np.asarray(found), truth, numbers=numbers)


def _agrees(found: NDArray[Any], truth: NDArray[Any], *, numbers: bool) -> NDArray[np.bool_]:
    if not numbers:
        return np.asarray(found == truth)
    spread = max(float(np.std(truth)), LEAST_SCORE)
    return np.asarray(np.abs(found.astype(np.float64).ravel() - truth.astype(np.float64).ravel()) < spread / 100)


def _rounded(
    target: Target, test: Any, truth: NDArray[Any], box: Any, width: int, asked: int, draw: np.random.Generator
) -> dict[str, float | int | str]:
    """Return how well the equations do from rounded probabilities, and with ten times as many answers."""
    if target.answers_numbers:
        return {}
    found: dict[str, float | int | str] = {}
    base = _flat(target, test)
    for digits in (3, 2, 1):
        for times in (1, 10):

            def rounded(rows: Any, digits: int = digits) -> Floats:
                return np.asarray(np.clip(np.round(base.probabilities(rows), digits), 10.0**-digits / 4, 1))

            copy = copy_linear(
                Target.of(rounded, classes=_listed(target)), box=box, width=width, queries=asked * times,
                random_state=_seed(draw),
            )  # fmt: skip
            more = "" if times == 1 else f" and {asked * times:,} queries"
            share = float(_agreement(copy, test, truth, False).mean())
            found[f"agreement from {digits} decimals{more}"] = round(share, 4)
    return found


def _flat(target: Target, test: Any) -> Target:
    """Return a target that takes flat rows of the shape of the test rows; queries are counted by the target too."""
    shape = test.shape[1:]

    def shaped(flat: Any) -> Any:
        return np.asarray(flat).reshape(-1, *shape)

    if target.answers_numbers:
        return Target(
            name=target.name, access=target.access, classes=None, _labels=lambda flat: target.labels(shaped(flat))
        )
    return Target(
        name=target.name,
        access=target.access,
        classes=target.classes,
        _scores=lambda flat: target.probabilities(shaped(flat)),
    )


def _pool(rows: Any, test: Any, box: Any, n: int, draw: np.random.Generator) -> Any:
    """Return rows to ask about: those given, then changed copies of them; or rows of the box."""
    if rows is None:
        if box is None or hasattr(test, "iloc"):
            raise BadInput("the attacker asks about rows: pass rows= of the population, or box= for arrays.")
        low, high = read_box(box, int(np.prod(test.shape[1:])))
        return draw.uniform(low, high, (n, len(low))).reshape(n, *test.shape[1:])
    known = read_rows(rows, "rows", least=2)
    if tuple(known.shape[1:]) != tuple(test.shape[1:]):
        raise BadInput(f"rows and test have the same columns, got shapes {known.shape[1:]} and {test.shape[1:]}.")
    order = draw.permutation(known.shape[0])[:n]
    if len(order) == n:
        return rows_of(known, order)
    again = rows_of(known, draw.integers(0, known.shape[0], n - len(order)))
    changed = perturb(again, draw, 0.3, like=known)
    first = rows_of(known, order)
    if hasattr(first, "tocsr"):
        first = np.asarray(first.todense())
    return join([first, changed])


def _listed(target: Target) -> Any:
    return None if target.classes is None else target.classes.tolist()


def _seed(draw: np.random.Generator) -> int:
    return int(draw.integers(1 << 31))

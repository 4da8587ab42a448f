"""Attribute inference: a hidden value of a known record, from what a model says about each candidate.

    found = attack.attribute(model, members=(X, y), column=3, reference=(X2, y2))

The attacker knows the other columns and the label of a record, tries each candidate value in the hidden column, and
takes the one that makes the label most likely, times how frequent it is (Fredrikson et al. 2014). Much of what such an
attacker learns is correlation that any data set of the population shows (Jayaraman & Evans 2022): the best guess
without the target imputes the column from the others, and only what goes beyond it is the model's doing.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.attack.finding import Finding, clopper_pearson
from cloister.attack.intervals import Floats
from cloister.attack.models import remedies
from cloister.attack.models.membership_finding import claimed
from cloister.attack.models.rows import encode, generator, join, joined_labels, read_pair
from cloister.attack.models.shadows import Progress
from cloister.attack.models.target import LEAST_SCORE, Target
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss

__all__ = ["attribute"]

_MOST_VALUES = 100
_MEASURE = "hidden values that are guessed"


def attribute(
    model: Any,
    *,
    members: tuple[Any, Any],
    column: int | str,
    values: Sequence[Any] | None = None,
    others: tuple[Any, Any] | None = None,
    reference: tuple[Any, Any] | None = None,
    classes: Sequence[Any] | None = None,
    labels_only: bool = False,
    claim: Loss | None = None,
    random_state: int | None = None,
    progress: Progress | None = None,
) -> Finding:
    """Infer a hidden column of records that a model was trained with.

    Args:
        model: anything that `Target.of` takes.
        members: rows with the true column, and labels, that the model was trained with.
        column: the hidden column: its place, or its name in a frame.
        values: the candidates; those of the records unless given, at most 100.
        others: rows and labels that it was not trained with: what is guessed there is what the model learned of the
            population, and not of members.
        reference: rows and labels of the population whose column is known: the attacker's prior, and the baseline.
        classes: the classes of a function or an endpoint, in the order of its columns.
        labels_only: hide the probabilities.
        claim: the loss that the model states; that of a private model of Cloister is read from it.
        random_state: a seed for ties; None for the operating system's randomness.
        progress: called with a share and a sentence.

    Privacy: none, for the owner. `risk` has for each member the probability that the attacker gives the true value.
    """
    target = Target.of(model, classes=classes, labels_only=labels_only)
    draw = generator(random_state)
    sides = [read_pair(members, "members")] + ([] if others is None else [read_pair(others, "others")])
    counts = [len(labels) for _, labels in sides]
    rows, labels = join([side[0] for side in sides]), joined_labels([side[1] for side in sides])
    place = _place(rows, column)
    truth = _column(rows, place)
    candidates = _candidates(truth, values)
    code = _codes(truth, candidates)
    prior = _prior(rows, labels, place, candidates, reference, counts[0], code)
    before = target.queries
    likelihood = _likelihoods(target, rows, labels, place, candidates, progress)
    guessed, chance = _guess(likelihood * prior, draw)
    blind, _ = _guess(prior, draw)
    right, right_blind = guessed == code, blind == code
    known = slice(0, counts[0])
    hits = int(right[known].sum())
    baseline = max(float(right_blind[known].mean()), 1 / len(candidates))
    figures: dict[str, float | int | str] = {
        "queries": target.queries - before,
        "candidate values": len(candidates),
        "by imputation without the model": round(float(right_blind[known].mean()), 4),
    }
    if others is not None:
        figures["of records that are no members"] = round(float(right[counts[0] :].mean()), 4)
        figures["by imputation, of these"] = round(float(right_blind[counts[0] :].mean()), 4)
    interval = clopper_pearson(hits, counts[0])
    stated = claimed(target.model, claim)
    notes = [
        "the prior is imputed from the other columns and the label, by trees on the reference rows"
        if reference is not None
        else "the prior is the share of each value: pass reference= to see what imputation alone reaches"
    ]
    if others is None:
        notes.append("pass others= to see whether members are worse off than people whose rows were not used")
    return Finding(
        attack="attribute inference",
        target=target.name,
        access=target.access if target.access == "labels only" else "black box",
        knowledge=f"each record with its label but without column {column!r}, and the candidate values",
        measure=_MEASURE,
        success=hits / counts[0],
        interval=interval,
        baseline=baseline,
        attempts=counts[0],
        claim=stated,
        risk=np.asarray(chance[known][np.arange(counts[0]), code[known]]),
        figures=figures,
        remedies=remedies.for_attribute(stated) if interval[0] > baseline else (),
        notes=tuple(notes),
    )


def _place(rows: Any, column: int | str) -> int:
    if hasattr(rows, "iloc") and not isinstance(column, bool) and column in list(rows.columns):
        return list(rows.columns).index(column)
    if hasattr(rows, "tocsr") or len(rows.shape) != 2:
        raise BadInput(
            "attribute inference takes a matrix or a frame: one column is hidden. Densify sparse rows first."
        )
    if isinstance(column, bool) or not isinstance(column, int | np.integer) or not 0 <= column < rows.shape[1]:
        raise BadInput(f"column is the place or the name of one of {rows.shape[1]} columns, got {column!r:.40}.")
    return int(column)


def _column(rows: Any, place: int) -> NDArray[Any]:
    return np.asarray(rows.iloc[:, place].to_numpy() if hasattr(rows, "iloc") else rows[:, place])


def _candidates(truth: NDArray[Any], values: Sequence[Any] | None) -> list[Any]:
    found = list(dict.fromkeys(truth.tolist() if values is None else np.asarray(values).tolist()))
    if values is None and len(found) <= _MOST_VALUES:
        found = sorted(found, key=lambda value: (str(type(value)), value))
    if not 2 <= len(found) <= _MOST_VALUES:
        raise BadInput(
            f"the hidden column needs 2 to {_MOST_VALUES} candidate values, got {len(found):,}. Cut numbers into "
            "bins and pass values=."
        )
    return found


def _codes(truth: NDArray[Any], candidates: list[Any]) -> NDArray[np.intp]:
    """Return the place of each value among the candidates; of numbers that are none, the nearest."""
    places = {value: number for number, value in enumerate(candidates)}
    if all(value in places for value in truth.tolist()):
        return np.array([places[value] for value in truth.tolist()], dtype=np.intp)
    try:
        numbers = np.asarray(candidates, dtype=np.float64)
        return np.asarray(np.abs(truth.astype(np.float64)[:, None] - numbers).argmin(axis=1), dtype=np.intp)
    except (TypeError, ValueError):
        raise BadInput("a record's hidden value is none of the candidates in values=. List them all.") from None


def _prior(
    rows: Any, labels: NDArray[Any], place: int, candidates: list[Any], reference: Any, members: int, code: Any
) -> Floats:
    """Return the probability of each candidate for each record, without the target."""
    width = len(candidates)
    if reference is None:
        shares = np.bincount(code[:members], minlength=width) + 0.5
        return np.tile(shares / shares.sum(), (len(labels), 1))
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
    except ModuleNotFoundError:
        from cloister.privacy.errors import MissingExtra

        raise MissingExtra("imputation needs scikit-learn: pip install 'cloister[learn]'.") from None
    known, known_labels = read_pair(reference, "reference")
    every = join([rows, known])
    every_labels = joined_labels([labels, known_labels])
    text = np.unique([str(label) for label in every_labels], return_inverse=True)[1].astype(np.float64)
    table = np.column_stack((np.delete(encode(every), place, axis=1), text))
    codes = _codes(_column(known, place), candidates)
    shares = np.bincount(codes, minlength=width) + 0.5
    prior = np.tile(0.01 * shares / shares.sum(), (len(labels), 1))
    if len(np.unique(codes)) == 1:
        prior[:, codes[0]] += 0.99
        return prior
    trees = HistGradientBoostingClassifier(
        max_iter=60, max_leaf_nodes=8, min_samples_leaf=max(5, len(codes) // 100), early_stopping=False, random_state=0
    ).fit(table[len(labels) :], codes)
    prior[:, trees.classes_] += 0.99 * trees.predict_proba(table[: len(labels)])
    return prior


def _likelihoods(
    target: Target, rows: Any, labels: NDArray[Any], place: int, candidates: list[Any], progress: Progress | None
) -> Floats:
    """Return how likely each record's label is under the model with each candidate."""
    found = np.empty((len(labels), len(candidates)))
    for number, value in enumerate(candidates):
        trial = _filled(rows, place, value)
        if target.answers_numbers:
            found[:, number] = target.losses(trial, labels)
        elif target.access == "labels only":
            found[:, number] = 0.05 + 0.9 * (np.asarray(target.labels(trial)) == labels)
        else:
            found[:, number] = np.maximum(target.confidences(trial, labels), LEAST_SCORE)
        if progress is not None:
            progress((number + 1) / len(candidates), f"value {number + 1} of {len(candidates)}")
    if target.answers_numbers:  # squared errors: normal errors as large as those of the best candidates
        scale = max(float(found.min(axis=1).mean()), LEAST_SCORE)
        return np.asarray(np.exp(-np.minimum((found - found.min(axis=1, keepdims=True)) / (2 * scale), 600)))
    return found


def _filled(rows: Any, place: int, value: Any) -> Any:
    """Return the rows with one value in the hidden column."""
    if hasattr(rows, "iloc"):
        changed = rows.copy()
        kind = rows.dtypes.iloc[place]
        changed[rows.columns[place]] = value
        return changed.astype({rows.columns[place]: kind}) if isinstance(kind, np.dtype) else changed
    changed = rows.copy()
    changed[:, place] = value
    return changed


def _guess(weights: Floats, draw: np.random.Generator) -> tuple[NDArray[np.intp], Floats]:
    """Return the likeliest candidate of each record, ties by chance, and the probability of each."""
    total = weights.sum(axis=1, keepdims=True)
    chance = weights / np.maximum(total, 1e-300)
    best = chance >= chance.max(axis=1, keepdims=True) * (1 - 1e-12)
    return np.asarray((best * draw.random(best.shape)).argmax(axis=1)), chance

"""Extraction: training rows that a model gives back.

    canary_exposure   how surely a model prefers rows that were planted to others that were as likely
    stored_rows       training rows that lie in a model as they are

    found = attack.canary_exposure(model, canaries=(X, y), candidates=(X2, y2))
    found = attack.stored_rows(model, rows=X, others=X2)

Exposure (Carlini et al. 2019) is log2 of the number of candidates divided by the canary's rank among them: a model
that ignores the canary gives 1.44 bits on average, and the best rank gives as many bits as the candidates have.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.attack.finding import Finding, Roc, clopper_pearson
from cloister.attack.intervals import Floats
from cloister.attack.models import remedies
from cloister.attack.models.membership_finding import claimed
from cloister.attack.models.rows import encode, read_pair, read_rows
from cloister.attack.models.target import Target
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss

__all__ = ["canary_exposure", "exposures", "stored_rows"]

_DEPTH, _PARTS = 12, 200_000  # how far into a model is looked, and how many of its parts
_DIGITS = 6  # significant digits in which a row of floats is compared
_EXTRAPOLATED = 4  # bits that a normal tail may add to what counting shows


def exposures(canaries: ArrayLike, candidates: ArrayLike, *, extrapolate: bool = False) -> Floats:
    """Return the exposure of each canary in bits, from losses that were computed before.

    Args:
        canaries: the loss of each canary that was planted.
        candidates: losses of rows from which the canaries were drawn at random.
        extrapolate: continue the candidates' losses by a normal tail, for canaries below all of them.

    >>> exposures([0.0, 5.0], [1.0, 2.0, 3.0]).tolist()
    [2.0, 0.0]
    """
    try:
        planted, others = (np.asarray(side, dtype=np.float64).ravel() for side in (canaries, candidates))
    except (TypeError, ValueError):
        raise BadInput("losses are numbers: one for each canary, one for each candidate.") from None
    if not len(planted) or not len(others) or np.isnan(planted).any() or np.isnan(others).any():
        raise BadInput("exposure needs losses of at least one canary and of at least one candidate, and no NaN.")
    ordered = np.sort(others)
    # Ties count half: a model that gives all rows the same loss exposes none.
    below = np.searchsorted(ordered, planted, side="left")
    ties = np.searchsorted(ordered, planted, side="right") - below
    bits = np.log2(len(ordered) + 1) - np.log2(below + ties / 2 + 1)
    if extrapolate and len(ordered) >= 30:
        from scipy.special import log_ndtr

        spread = max(float(ordered.std()), 1e-12)
        tail = -log_ndtr((planted - ordered.mean()) / spread) / np.log(2)
        bits = np.where(below + ties == 0, np.clip(tail, bits, bits + _EXTRAPOLATED), bits)
    return np.asarray(bits)


def canary_exposure(
    model: Any,
    *,
    canaries: tuple[Any, Any],
    candidates: tuple[Any, Any],
    losses: Callable[[Any, NDArray[Any]], ArrayLike] | None = None,
    classes: Any = None,
    claim: Loss | None = None,
    confidence: float = 0.95,
) -> Finding:
    """Measure how much a model prefers rows that were planted to rows that could have been.

    Args:
        model: anything that `Target.of` takes.
        canaries: rows and labels that were drawn at random from the same place as the candidates, and trained on.
        candidates: rows and labels that were not trained on.
        losses: a function of rows and labels that returns the loss of each, such as the perplexity of a text; the
            target's own loss unless given.
        classes: the classes of a function or an endpoint, in the order of its columns.
        claim: the loss that the model states; that of a private model of Cloister is read from it.
        confidence: the chance that the bound on epsilon is not above the truth.

    Privacy: none, for the owner. Canaries are made up, so nobody's row is named.
    """
    sides = [read_pair(pair, name, least=2) for pair, name in ((canaries, "canaries"), (candidates, "candidates"))]
    if losses is None:
        target = Target.of(model, classes=classes)
        name, found = target.name, [np.asarray(target.losses(*side), dtype=np.float64) for side in sides]
    else:
        if not callable(losses):
            raise BadInput("losses is a function of rows and labels that returns one number for each row.")
        target, name = None, type(model).__name__ if not isinstance(model, str) else model
        found = [np.asarray(losses(*side), dtype=np.float64).ravel() for side in sides]
        if any(len(values) != len(side[1]) for values, side in zip(found, sides, strict=True)):
            raise BadInput("losses returns one number for each row.")
    planted, others = found
    bits = exposures(planted, others)
    stated = claimed(model if target is None else target.model, claim)
    roc = Roc.of(-planted, -others)
    n, worst = len(planted), np.log2(len(others) + 1)
    half = bits >= worst - 1e-9
    hits = int(half.sum())
    interval = clopper_pearson(hits, n)
    baseline = 1 / (len(others) + 1)
    learned = interval[0] > baseline
    return Finding(
        attack="canary exposure",
        target=name,
        access="black box",
        knowledge=f"{len(others):,} candidates as likely as a canary, and the model's loss of each",
        measure="canaries that the model prefers to every candidate",
        success=hits / n,
        interval=interval,
        baseline=baseline,
        attempts=n,
        roc=roc,
        epsilon=roc.epsilon_bound(claim=stated, confidence=confidence),
        claim=stated,
        figures={
            "average exposure in bits": round(float(bits.mean()), 3),
            "largest exposure in bits": round(float(bits.max()), 3),
            "exposure of a model that ignores canaries": round(_ignored(len(others)), 3),
            "largest possible exposure": round(float(worst), 3),
        },
        remedies=remedies.for_extraction(stated, stored=False) if learned or _shown(roc) else (),
        notes=("rows of people as rare as the canaries are as exposed as they are",),
    )


def _shown(roc: Roc) -> bool:
    return roc.auc_interval()[0] > 0.5


def _ignored(candidates: int) -> float:
    """Return the average exposure of a rank that is drawn at random."""
    ranks = np.arange(1, candidates + 2)
    return float(np.log2(candidates + 1) - np.log2(ranks).mean())


def stored_rows(model: Any, *, rows: Any, others: Any = None, claim: Loss | None = None) -> Finding:
    """Look for training rows that a model stores as they are, as nearest neighbours and support vectors do.

    Arrays inside the model are compared with the rows as they were given, and as every earlier step of a pipeline
    passes them on. Numbers are compared in six significant digits.

    Args:
        model: the fitted model: an object, not a file.
        rows: the training rows, without labels.
        others: rows that it was not trained with: found only where rows repeat. Without them the baseline is 0.
        claim: the loss that the model states; that of a private model of Cloister is read from it.

    Privacy: none, for the owner. `risk` is 1 for each row that was found.
    """
    if isinstance(model, str | bytes | bytearray | memoryview):
        raise BadInput("stored rows are looked for in a model that is loaded, not in a file or an address.")
    known = read_rows(rows, "rows")
    rest = None if others is None else read_rows(others, "others")
    pieces = list(_arrays(model))
    found = np.zeros(known.shape[0], dtype=np.bool_)
    found_rest = np.zeros(0 if rest is None else rest.shape[0], dtype=np.bool_)
    homes: dict[str, int] = {}
    for step, (table, other) in _forms(model, known, rest).items():
        marks = _marks(table)
        for home, piece in pieces:
            if piece.shape[1] != table.shape[1]:
                continue
            held = set(_marks(piece))
            hit = np.array([mark in held for mark in marks])
            if hit.any():
                found |= hit
                homes[f"{home}{step}"] = int(hit.sum())
            if other is not None:
                found_rest |= np.array([mark in held for mark in _marks(other)], dtype=np.bool_)
    n = len(found)
    interval = clopper_pearson(int(found.sum()), n)
    baseline = float(found_rest.mean()) if len(found_rest) else 0.0
    stated = claimed(model, claim)
    figures: dict[str, float | int | str] = {"arrays looked at": len(pieces)}
    figures |= {f"in {home}": count for home, count in sorted(homes.items(), key=lambda item: -item[1])[:5]}
    return Finding(
        attack="stored training rows",
        target=type(model).__name__,
        access="white box",
        knowledge="the fitted model itself",
        measure="training rows that lie in the model as they are",
        success=float(found.mean()),
        interval=(interval[0] if found.any() else 0.0, interval[1]),
        baseline=baseline,
        attempts=n,
        claim=stated,
        risk=found.astype(np.float64),
        figures=figures,
        remedies=remedies.for_extraction(stated, stored=True) if interval[0] > baseline else (),
        notes=(
            "a row that is not found may still be there in another form: thresholds of trees lie between rows, and "
            "sums of few rows are as telling",
        ),
    )


def _forms(model: Any, rows: Any, others: Any) -> Mapping[str, tuple[Floats, Floats | None]]:
    """Return the rows as given, and as each earlier step of a pipeline passes them on."""
    forms = {"": (encode(rows), None if others is None else encode(others))}
    steps = getattr(model, "steps", None)
    if not isinstance(steps, list):
        return forms
    now, rest = rows, others
    for number, (name, step) in enumerate(steps[:-1], start=1):
        if step is None or isinstance(step, str):
            continue
        now = step.transform(now)
        rest = None if rest is None else step.transform(rest)
        forms[f" (after step {number}, {name})"] = (encode(now), None if rest is None else encode(rest))
    return forms


def _marks(table: Floats) -> list[bytes]:
    """Return a mark of each row: its numbers in six significant digits, so that float32 and float64 agree."""
    rounded = np.zeros_like(table, dtype=np.float64)
    some = np.isfinite(table) & (table != 0)
    size = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.abs(table[some]))))
    rounded[some] = np.rint(table[some].astype(np.float32).astype(np.float64) * size) / size
    return [row.tobytes() for row in np.ascontiguousarray(rounded.astype(np.float32) + 0)]


def _arrays(model: Any) -> Iterator[tuple[str, Floats]]:
    """Yield every matrix of numbers inside a model, with where it lies."""
    seen: set[int] = set()
    queue: list[tuple[str, Any, int]] = [(type(model).__name__, model, 0)]
    while queue and len(seen) < _PARTS:
        home, part, depth = queue.pop()
        if id(part) in seen or isinstance(part, str | bytes | int | float | bool | type(None)):
            continue
        seen.add(id(part))
        if hasattr(part, "tocsr") and getattr(part, "ndim", 2) == 2:
            yield home, np.asarray(part.todense(), dtype=np.float64)
        elif isinstance(part, np.ndarray):
            if part.dtype.kind in "biuf" and part.ndim == 2:
                yield home, part.astype(np.float64)
            elif part.dtype.kind in "biuf" and part.ndim > 2:
                yield home, part.reshape(len(part), -1).astype(np.float64)
            elif part.dtype == object and part.size < _PARTS:
                queue += [(home, item, depth + 1) for item in part.ravel()]
        elif hasattr(part, "iloc"):
            yield home, encode(part) if len(getattr(part, "shape", ())) == 2 else np.zeros((0, 0))
        elif depth < _DEPTH:
            queue += [(name, item, depth + 1) for name, item in _parts(home, part)]


def _parts(home: str, part: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(part, Mapping):
        yield from ((f"{home}[{key!r:.40}]", value) for key, value in list(part.items()))
    elif isinstance(part, list | tuple | set | frozenset):
        yield from ((home, value) for value in part)
    elif hasattr(part, "get_arrays"):  # scikit-learn's trees of neighbours
        yield from ((home, np.asarray(array)) for array in part.get_arrays() if np.asarray(array).dtype.names is None)
    elif callable(part) and getattr(part, "__closure__", None):
        yield from ((f"{home}'s closure", cell.cell_contents) for cell in part.__closure__ if _filled(cell))
    elif hasattr(part, "__dict__"):
        yield from ((f"{home}.{name}", value) for name, value in list(vars(part).items()))
    slots = getattr(type(part), "__slots__", ())
    for name in (slots,) if isinstance(slots, str) else slots:
        if hasattr(part, name):
            yield f"{home}.{name}", getattr(part, name)


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True

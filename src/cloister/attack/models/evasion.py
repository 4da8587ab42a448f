"""Evasion: small changes of a row that change a model's answer, and how the accuracy falls with their size.

    fgsm(probabilities, rows, codes, size=0.1)     one step along the sign of the gradient (Goodfellow et al. 2015)
    pgd(probabilities, rows, codes, size=0.1)      many steps, projected into the ball (Madry et al. 2018)
    boundary(target, rows, labels)                 labels only: a walk along the boundary (Brendel et al. 2018)
    evasion(model, rows, labels, sizes=…)          a finding with the robust accuracy at each size

FGSM and PGD need a JAX function of rows that returns probabilities; `differentiable` makes one of a linear model or a
multilayer perceptron of scikit-learn. They need the extra `jax`; the boundary attack needs nothing but answers.
"""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.attack.finding import Finding, clopper_pearson
from cloister.attack.intervals import Floats
from cloister.attack.models.target import Target
from cloister.privacy.errors import BadBounds, BadInput, BadNumber, MissingExtra

__all__ = ["Norm", "boundary", "differentiable", "evasion", "fgsm", "pgd", "robust_accuracy"]

Norm = Literal["linf", "l2"]
Method = Literal["fgsm", "pgd", "boundary"]
Bounds = tuple[float, float] | None
_TINY = 1e-12
_SEARCHES = 12  # halvings of the way to the boundary
_LEAST_SCORE = 1e-12


def fgsm(
    probabilities: Callable[[Any], Any],
    rows: ArrayLike,
    codes: ArrayLike,
    *,
    size: float,
    norm: Norm = "linf",
    bounds: Bounds = (0.0, 1.0),
) -> Floats:
    """Return rows moved once along the gradient of their loss.

    Args:
        probabilities: a JAX function of rows that returns one probability for each class.
        rows: the rows, numbers.
        codes: the column of each row's true class.
        size: of the change, in the norm.
        norm: "linf", the largest change of a number, or "l2", the Euclidean length.
        bounds: the smallest and the largest number that a row may have; None for none.
    """
    start, places = _read_rows(rows, codes)
    _read_size(size)
    return _clipped(start + size * _direction(_slopes(probabilities, places)(start), norm), bounds)


def pgd(
    probabilities: Callable[[Any], Any],
    rows: ArrayLike,
    codes: ArrayLike,
    *,
    size: float,
    norm: Norm = "linf",
    bounds: Bounds = (0.0, 1.0),
    steps: int = 20,
    starts: int = 2,
    seed: int = 0,
) -> Floats:
    """Return rows moved by projected gradient ascent on their loss, the best of several random starts.

    Args:
        probabilities, rows, codes, size, norm, bounds: as for `fgsm`.
        steps: of 2.5 · size / steps each.
        starts: the first at the row itself, the others at random inside the ball.
        seed: of the starts.
    """
    start, places = _read_rows(rows, codes)
    _read_size(size)
    for value, name in ((steps, "steps"), (starts, "starts")):
        _read_count(value, name)
    slopes, draw = _slopes(probabilities, places), np.random.default_rng(seed)
    best, least = start.copy(), np.full(len(start), np.inf)
    for number in range(starts):
        moved = start if number == 0 else _clipped(start + _random_change(draw, start.shape, size, norm), bounds)
        for _ in range(steps):
            moved = moved + 2.5 * size / steps * _direction(slopes(moved), norm)
            moved = _clipped(start + _projected(moved - start, size, norm), bounds)
        own = np.asarray(probabilities(moved.astype(np.float32)), dtype=np.float64)
        margin = _margins(own, places)
        better = margin < least
        best[better], least[better] = moved[better], margin[better]
    return best


def boundary(
    target: Any,
    rows: ArrayLike,
    labels: ArrayLike,
    *,
    steps: int = 200,
    bounds: tuple[float, float] = (0.0, 1.0),
    tries: int = 50,
    seed: int = 0,
    progress: Callable[[float, str], object] | None = None,
) -> Floats:
    """Return rows with another label than their own, as near as a walk on labels alone finds them.

    A walk starts at random rows that the model answers otherwise, goes back to the boundary by halving, and then takes
    steps along it and towards the row. Both step sizes follow the share of steps that succeed.

    Args:
        target: the model, as for `Target.of`; only its labels are asked.
        rows, labels: the rows and their true labels.
        steps: of the walk; each asks the target twice for every row.
        bounds: the smallest and the largest number that a row may have; starts are drawn between them.
        tries: random rows that are tried as a start, before those of other labels among `rows`.
        seed: of the walk.
        progress: called with the share done and the median distance.

    Returns:
        One row for each row. A row that was wrong from the start is returned as it is, and NaN where no start is found.
    """
    model, true = Target.of(target), np.asarray(labels)
    real, _ = _read_rows(rows, np.zeros(len(true), dtype=np.intp))
    low, high = _read_bounds(bounds)
    _read_count(steps, "steps")
    draw = np.random.default_rng(seed)
    found = _other_rows(model, real, true, (low, high), tries, draw)
    walks = np.flatnonzero(~np.isnan(found).any(axis=1) & ~(found == real).all(axis=1))
    if not len(walks):
        return found
    at, goal, own = _back(model, found[walks], real[walks], true[walks]), real[walks], true[walks]
    around, towards = np.full(len(walks), 0.1), np.full(len(walks), 0.1)
    for number in range(steps):
        aside = _aside(at, goal, around, draw, (low, high))
        kept = model.labels(aside) != own
        near = _clipped(aside + towards[:, None] * (goal - aside), (low, high))
        closer = kept & (model.labels(near) != own)
        better = closer & (np.linalg.norm(near - goal, axis=1) < np.linalg.norm(at - goal, axis=1))
        at[better] = near[better]
        around = np.clip(around * np.where(kept, 1.05, 0.9), 1e-4, 1.0)
        towards = np.clip(towards * np.where(closer, 1.05, 0.9), 1e-4, 0.9)
        if progress is not None and (number + 1) % max(1, steps // 20) == 0:
            far = float(np.median(np.linalg.norm(at - goal, axis=1)))
            progress((number + 1) / steps, f"step {number + 1}, median distance {far:.3g}")
    found[walks] = _back(model, at, goal, own)
    return found


def robust_accuracy(
    target: Any,
    rows: ArrayLike,
    labels: ArrayLike,
    sizes: Sequence[float],
    *,
    method: Method = "pgd",
    norm: Norm = "linf",
    bounds: tuple[float, float] = (0.0, 1.0),
    seed: int = 0,
    **settings: Any,
) -> tuple[Floats, Floats]:
    """Return the accuracy under changes of each size: by the attack, and by random changes of the same size.

    Args:
        target: as for `Target.of`; FGSM and PGD need a JAX function or a model that `differentiable` reads.
        rows, labels: rows to attack and their true labels.
        sizes: of the changes; 0 is the accuracy without an attack.
        method: "fgsm", "pgd" or "boundary".
        norm: "linf" or "l2".
        bounds: the smallest and the largest number of a row.
        seed: of random starts and random changes.
        settings: further arguments of the method.
    """
    if norm not in ("linf", "l2"):
        raise BadInput(f"norm is 'linf' or 'l2', got {norm!r:.40}.")
    if method not in ("fgsm", "pgd", "boundary"):
        raise BadInput(f"method is 'fgsm', 'pgd' or 'boundary', got {method!r:.40}.")
    model, true = Target.of(target), np.asarray(labels)
    real, _ = _read_rows(rows, np.zeros(len(true), dtype=np.intp))
    draw = np.random.default_rng(seed)
    listed = [_read_size(size) for size in sizes]
    clean = model.labels(real) == true
    if method == "boundary":
        moved = boundary(model, real, true, bounds=bounds, seed=seed, **settings)
        apart = np.where(np.isnan(moved).any(axis=1), np.inf, _lengths(np.nan_to_num(moved) - real, norm))
        attacked = [float((clean & ((apart > size) | (size == 0))).mean()) for size in listed]
    else:
        attacked = [float((clean & _survives(model, real, true, size, method, norm, bounds, seed, settings)).mean())
                    for size in listed]  # fmt: skip
    random = []
    for size in listed:
        noisy = _clipped(real + _random_change(draw, real.shape, size, norm, edge=True), bounds)
        random.append(float((model.labels(noisy) == true).mean()))
    # A change of a smaller size is one of a larger size too.
    return np.minimum.accumulate(np.array(attacked)[np.argsort(listed)])[np.argsort(np.argsort(listed))], np.array(
        random
    )


def evasion(
    target: Any,
    rows: ArrayLike,
    labels: ArrayLike,
    *,
    size: float,
    sizes: Sequence[float] = (),
    method: Method = "pgd",
    norm: Norm = "linf",
    bounds: tuple[float, float] = (0.0, 1.0),
    seed: int = 0,
    **settings: Any,
) -> Finding:
    """Measure how many right answers of a model small changes turn wrong.

    Args:
        target, rows, labels, method, norm, bounds, seed, settings: as for `robust_accuracy`.
        size: of the change that the finding is about.
        sizes: further sizes for the curve of robust accuracy.
    """
    model = Target.of(target)
    start, asked = model.queries, sorted({0.0, _read_size(size), *(_read_size(one) for one in sizes)})
    attacked, random = robust_accuracy(
        model, rows, labels, asked, method=method, norm=norm, bounds=bounds, seed=seed, **settings
    )
    place, n = asked.index(float(size)), len(np.asarray(labels))
    right = round(attacked[0] * n)
    if not right:
        raise BadInput("the model answers none of these rows rightly, so there is nothing to turn wrong.")
    turned = right - round(attacked[place] * n)
    blind = max(0.0, (right - round(random[place] * n)) / right)
    white = method != "boundary"
    return Finding(
        attack=f"evasion by {'the boundary attack' if method == 'boundary' else method.upper()}",
        target=model.name,
        access="white box" if white else "labels only",
        knowledge="the gradient of the model" if white else "the label of any row that is asked",
        measure=f"right answers turned wrong by a change of {norm} size {size:g}",
        success=turned / right,
        interval=clopper_pearson(turned, right),
        baseline=blind,
        attempts=right,
        figures={
            "accuracy without an attack": float(attacked[0]),
            **{f"accuracy at size {one:g}": float(share) for one, share in zip(asked[1:], attacked[1:], strict=True)},
            "rows asked": model.queries - start,
        },
        pictures={"Accuracy by the size of the change; dashed: random changes.": _curve(asked, attacked, random)},
        remedies=(
            "Train on attacked rows (adversarial training).",
            "Answer by a vote over noisy copies of a row (randomised smoothing), which certifies a size.",
        ),
        notes=("Guessing is a random change of the same size.",),
    )


def differentiable(model: Any) -> Callable[[Any], Any]:
    """Return a JAX function of rows that returns a model's probabilities.

    Args:
        model: a JAX function already, or a fitted linear classifier or MLPClassifier of scikit-learn (`coef_` or
            `coefs_`).
    """
    if isinstance(model, Target):
        model = model.model
    jax = _jax()
    bends = {"relu": jax.nn.relu, "tanh": jax.numpy.tanh, "logistic": jax.nn.sigmoid, "identity": lambda x: x}
    if hasattr(model, "coefs_") and getattr(model, "activation", None) in bends:
        layers = list(zip(model.coefs_, model.intercepts_, strict=True))
        bend = bends[model.activation]
    elif hasattr(model, "coef_") and hasattr(model, "classes_"):
        layers, bend = [(np.asarray(model.coef_).T, np.asarray(model.intercept_))], bends["identity"]
    elif callable(model) and not hasattr(model, "predict"):
        return model  # type: ignore[no-any-return]
    else:
        raise BadInput(
            f"no gradient of a {type(model).__name__} is known. Pass a JAX function of rows that returns "
            "probabilities, or take method='boundary', which needs labels alone."
        )

    def probabilities(rows: Any) -> Any:
        for place, (weights, bias) in enumerate(layers):
            rows = rows @ weights + bias
            rows = bend(rows) if place < len(layers) - 1 else rows
        if rows.shape[1] == 1:
            second = jax.nn.sigmoid(rows[:, 0])
            return jax.numpy.stack((1 - second, second), axis=1)
        return jax.nn.softmax(rows)

    return probabilities


def _survives(
    model: Target,
    rows: Floats,
    labels: NDArray[Any],
    size: float,
    method: Method,
    norm: Norm,
    bounds: tuple[float, float],
    seed: int,
    settings: dict[str, Any],
) -> NDArray[np.bool_]:
    """Return for each row whether its label holds after the attack at this size."""
    if size == 0:
        return np.ones(len(rows), dtype=bool)
    function = differentiable(model)
    if model.classes is None:
        model.probabilities(rows[:1])
    codes = model.codes(labels)
    if method == "fgsm":
        moved = fgsm(function, rows, codes, size=size, norm=norm, bounds=bounds, **settings)
    else:
        moved = pgd(function, rows, codes, size=size, norm=norm, bounds=bounds, seed=seed, **settings)
    return np.asarray(model.labels(moved) == labels)


def _slopes(probabilities: Callable[[Any], Any], codes: NDArray[np.intp]) -> Callable[[Floats], Floats]:
    """Return the gradient of each row's loss by the row."""
    jax = _jax()

    def loss(rows: Any) -> Any:
        own = probabilities(rows)[np.arange(len(codes)), codes]
        return -jax.numpy.log(jax.numpy.maximum(own, _LEAST_SCORE)).sum()

    slope = jax.jit(jax.grad(loss))
    return lambda rows: np.asarray(slope(rows.astype(np.float32)), dtype=np.float64)


def _margins(found: Floats, codes: NDArray[np.intp]) -> Floats:
    """Return the probability of the true class minus the largest other."""
    places = np.arange(len(found)), codes
    own = found[places]
    rest = found.copy()
    rest[places] = -np.inf
    return np.asarray(own - rest.max(axis=1))


def _other_rows(
    model: Target, rows: Floats, labels: NDArray[Any], bounds: tuple[float, float], tries: int, draw: Any
) -> Floats:
    """Return for each row one that the model answers otherwise; the row itself if it is answered wrongly; else NaN."""
    found = np.full(rows.shape, np.nan)
    answers = model.labels(rows)
    found[answers != labels] = rows[answers != labels]
    pool = np.vstack((rows, draw.uniform(*bounds, (tries, rows.shape[1]))))
    given = np.concatenate((answers, model.labels(pool[len(rows) :])))
    for place in np.flatnonzero(answers == labels):
        others = np.flatnonzero(given != labels[place])
        if len(others):  # the nearest of them: the walk starts at a short distance
            found[place] = pool[others[np.argmin(((pool[others] - rows[place]) ** 2).sum(axis=1))]]
    return found


def _back(model: Target, away: Floats, rows: Floats, labels: NDArray[Any]) -> Floats:
    """Return points between rows and points of another label, next to the boundary and on its far side."""
    inside, outside = np.zeros(len(rows)), np.ones(len(rows))
    for _ in range(_SEARCHES):
        middle = (inside + outside) / 2
        other = model.labels(rows + middle[:, None] * (away - rows)) != labels
        outside, inside = np.where(other, middle, outside), np.where(other, inside, middle)
    return np.asarray(rows + outside[:, None] * (away - rows))


def _aside(at: Floats, goal: Floats, size: Floats, draw: Any, bounds: tuple[float, float]) -> Floats:
    """Return points at about the same distance from the goal, moved sideways by a share of it."""
    back = goal - at
    far = np.linalg.norm(back, axis=1, keepdims=True)
    step = draw.normal(size=at.shape)
    step -= (step * back).sum(axis=1, keepdims=True) / np.maximum(far**2, _TINY) * back
    step *= size[:, None] * far / np.maximum(np.linalg.norm(step, axis=1, keepdims=True), _TINY)
    moved = at + step - goal
    moved *= far / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), _TINY)
    return _clipped(goal + moved, bounds)


def _direction(slope: Floats, norm: Norm) -> Floats:
    if norm == "linf":
        return np.sign(slope)
    return np.asarray(slope / np.maximum(np.linalg.norm(slope, axis=1, keepdims=True), _TINY))


def _projected(change: Floats, size: float, norm: Norm) -> Floats:
    if norm == "linf":
        return np.clip(change, -size, size)
    return np.asarray(change * np.minimum(1.0, size / np.maximum(np.linalg.norm(change, axis=1, keepdims=True), _TINY)))


def _random_change(draw: Any, shape: tuple[int, ...], size: float, norm: Norm, *, edge: bool = False) -> Floats:
    """Return random changes inside the ball, or on its corners or surface."""
    if norm == "linf":
        return np.asarray(size * (draw.choice((-1.0, 1.0), shape) if edge else draw.uniform(-1, 1, shape)))
    step = _direction(draw.normal(size=shape), "l2")
    return np.asarray(size * step * (1.0 if edge else draw.uniform(size=(shape[0], 1)) ** (1 / shape[1])))


def _lengths(change: Floats, norm: Norm) -> Floats:
    return np.asarray(np.abs(change).max(axis=1) if norm == "linf" else np.linalg.norm(change, axis=1))


def _clipped(rows: Floats, bounds: Bounds) -> Floats:
    return rows if bounds is None else np.clip(rows, *bounds)


def _read_rows(rows: ArrayLike, codes: ArrayLike) -> tuple[Floats, NDArray[np.intp]]:
    table, places = np.array(rows, dtype=np.float64), np.asarray(codes)
    if table.ndim != 2 or not len(table) or not np.isfinite(table).all():
        raise BadInput("rows are a matrix of finite numbers with at least one row. Flatten images.")
    if places.shape != (len(table),) or places.dtype.kind not in "iu":
        raise BadInput("codes are whole numbers, one for each row: the column of its class. Labels: target.codes().")
    return table, places.astype(np.intp)


def _read_size(size: Any) -> float:
    if isinstance(size, bool) or not isinstance(size, int | float) or not 0 <= size < 1e12:
        raise BadNumber(f"the size of a change is a number of at least 0, got {size!r:.40}.")
    return float(size)


def _read_count(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**6:
        raise BadNumber(f"{name} is a whole number of at least 1, got {value!r:.40}.")


def _read_bounds(bounds: Any) -> tuple[float, float]:
    if not isinstance(bounds, tuple | list) or len(bounds) != 2 or not float(bounds[0]) < float(bounds[1]):
        raise BadBounds(f"bounds are the smallest and the largest number of a row, got {bounds!r:.60}.")
    return float(bounds[0]), float(bounds[1])


def _curve(sizes: Sequence[float], attacked: Floats, random: Floats) -> str:
    """Draw accuracy against size: the attack as a line, random changes dashed."""
    wide, tall, most = 360, 180, max(max(sizes), _TINY)

    def line(shares: Floats, more: str) -> str:
        points = " ".join(
            f"{50 + wide * size / most:.1f},{10 + tall * (1 - share):.1f}"
            for size, share in zip(sizes, shares, strict=True)
        )
        return f'<polyline points="{points}" fill="none" stroke-width="2" {more}/>'

    marks = "".join(
        f'<text x="44" y="{14 + tall * (1 - share):.0f}" font-size="12" text-anchor="end" fill="var(--soft)">'
        f"{share:.0%}</text>"
        for share in (0.0, 0.5, 1.0)
    )
    marks += "".join(
        f'<text x="{50 + wide * size / most:.0f}" y="{tall + 28}" font-size="12" text-anchor="middle" '
        f'fill="var(--soft)">{escape(f"{size:g}")}</text>'
        for size in (0.0, most)
    )
    lines = line(random, 'stroke="var(--real)" stroke-dasharray="6 4"') + line(attacked, 'stroke="var(--other)"')
    return (
        f'<svg viewBox="0 0 {wide + 70} {tall + 36}" role="img" aria-label="accuracy by size of the change">'
        f'<path d="M50 10V{tall + 10}H{wide + 50}" fill="none" stroke="var(--line)"/>{marks}'
        f"{lines}</svg>"
    )


def _jax() -> Any:
    try:
        import jax
    except ModuleNotFoundError:
        raise MissingExtra("gradients of a model need jax. Run pip install 'cloister[jax]'.") from None
    return jax

"""Model inversion: inputs that a model takes for a class or a person.

    hill climbing     change random features, keep what raises the confidence of a class     probabilities
    intercepted       the same towards the average of scores that were overheard             probabilities
    gradient          ascend the gradient of the confidence                                   a JAX function

    found = attack.inversion(model, box=(0, 1), victims=(X, y))                       # an input for each class
    found = attack.inversion(model, box=(0, 1), victims=(X, y), method="intercepted", intercepted=scores)

An inversion succeeds if its input is nearer to the average row of its own class (or to the row of the person whose
scores were intercepted) than to any other: where a class is one person, as in face recognition, that names them
(Fredrikson et al. 2015). `hill_climb` and `ascend` return the inputs themselves.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.attack.finding import Access, Finding, clopper_pearson
from cloister.attack.intervals import Floats
from cloister.attack.models import remedies
from cloister.attack.models.membership_finding import claimed
from cloister.attack.models.rows import check_whole, encode, generator, read_box, read_pair
from cloister.attack.models.shadows import Progress
from cloister.attack.models.target import LEAST_SCORE, Target
from cloister.privacy.errors import BadInput, MissingExtra
from cloister.privacy.loss import Loss

__all__ = ["ascend", "hill_climb", "inversion"]

METHODS = ("hill climbing", "intercepted", "gradient")
_TRIALS = 16  # changed copies of an input in each round
_GROW, _SHRINK = 1.5, 0.85  # of the step after a success and a failure: one success in five keeps it
_PULL = 1e-3  # weight of the prior: inputs stay near the middle of the box unless the model gains by leaving


def inversion(
    model: Any,
    *,
    victims: tuple[Any, Any],
    box: tuple[ArrayLike, ArrayLike],
    method: str = "hill climbing",
    intercepted: ArrayLike | None = None,
    rounds: int = 400,
    starts: int = 4,
    classes: Sequence[Any] | None = None,
    claim: Loss | None = None,
    random_state: int | None = None,
    progress: Progress | None = None,
) -> Finding:
    """Search for inputs that a model takes for its classes, and compare them with the true rows.

    Args:
        model: anything that `Target.of` takes; for "gradient" a JAX function of one matrix that returns probabilities.
        victims: rows and labels to compare with, which the attacker does not see. For "intercepted", one row for each
            person whose scores were overheard.
        box: the least and the largest value of each feature, or of all.
        method: "hill climbing", "intercepted" or "gradient".
        intercepted: for "intercepted": scores of each victim, (victims, classes), or several times each, (victims,
            times, classes), which are averaged.
        rounds: rounds of the search.
        starts: random starts for each class or person; the best is kept.
        classes: the classes of a function or an endpoint, in the order of its columns.
        claim: the loss that the model states; that of a private model of Cloister is read from it.
        random_state: a seed; None for the operating system's randomness.
        progress: called with a share and a sentence.

    Privacy: none, for the owner.
    """
    if method not in METHODS:
        raise BadInput(f"method is one of {', '.join(map(repr, METHODS))}, got {method!r:.40}.")
    target = Target.of(model, classes=classes)
    rows, labels = read_pair(victims, "victims", least=2)
    true = encode(rows)
    low, high = read_box(box, true.shape[1])
    draw = generator(random_state)
    check_whole(rounds, "rounds", 1, 1_000_000)
    check_whole(starts, "starts", 1, 1_000)
    if target.answers_numbers:
        raise BadInput(f"{target.name} predicts numbers: inversion needs classes. Use attack.attribute for one column.")
    if (method == "intercepted") != (intercepted is not None):
        raise BadInput("intercepted= holds the overheard scores, and method='intercepted' uses them: give both.")
    width = target.probabilities(_like(rows, (low + high)[None, :] / 2)).shape[1]
    codes = target.codes(labels)
    shape = rows.shape[1:] if not hasattr(rows, "iloc") else None
    if shape is None:
        raise BadInput("inversion takes arrays of numbers. Put the encoding of a frame into the model's function.")
    ask = _asker(target, shape)
    if method == "intercepted":
        overheard = _overheard(intercepted, len(true), width)
        found, reached = _search(ask, _nearness(overheard), (low, high), len(true), draw, rounds, starts, progress)
        goal, names = true, "person"
    else:
        present = np.unique(codes)
        if len(present) < 2:
            raise BadInput(
                "victims hold one class: an input is right if it is nearer to its own class than to another."
            )
        goal = np.array([true[codes == place].mean(axis=0) for place in present])
        if method == "gradient":
            found, reached = _ascended(target, present, (low, high), shape, draw, rounds, starts)
        else:
            found, reached = _search(
                ask, _confidence(present), (low, high), len(present), draw, rounds, starts, progress
            )  # fmt: skip
        names = "class"
    return _judge(target, found, reached, goal, (low, high), draw, names, method, claim, rounds, starts)


def hill_climb(
    model: Any,
    label: Any,
    *,
    box: tuple[ArrayLike, ArrayLike],
    width: int,
    rounds: int = 400,
    starts: int = 4,
    classes: Sequence[Any] | None = None,
    random_state: int | None = None,
) -> tuple[Floats, float]:
    """Return an input that a model takes for a label, and the confidence that it reached.

    Args:
        model: anything that `Target.of` takes.
        label: the label.
        box: the least and the largest value of each feature, or of all.
        width: number of features.
        rounds, starts, classes, random_state: as for `inversion`.
    """
    target = Target.of(model, classes=classes)
    low, high = read_box(box, check_whole(width, "width", 1, 1_000_000))
    ask = _asker(target, (width,))
    ask((low + high)[None, :] / 2)
    codes = target.codes([label])
    found, reached = _search(
        ask, _confidence(codes), (low, high), 1, generator(random_state), check_whole(rounds, "rounds", 1, 1_000_000),
        check_whole(starts, "starts", 1, 1_000), None,
    )  # fmt: skip
    return found[0], float(reached[0])


def ascend(
    score: Callable[[Any], Any],
    start: ArrayLike,
    *,
    box: tuple[ArrayLike, ArrayLike],
    rounds: int = 400,
    step: float = 0.05,
) -> Floats:
    """Return inputs that raise a score by its gradient, within a box (white box).

    Args:
        score: a JAX function of one input that returns a number, such as the logarithm of a probability.
        start: inputs to begin at, one for each row.
        box: the least and the largest value of each feature, or of all.
        rounds: steps of Adam.
        step: the size of a step, as a share of the box.
    """
    begun = np.asarray(start, dtype=np.float64)
    return _ascend(lambda row, _: score(row), begun, np.zeros(len(begun), dtype=np.intp), box, rounds, step)


def _ascend(
    score: Callable[[Any, Any], Any], begun: Floats, codes: NDArray[np.intp], box: Any, rounds: int, step: float
) -> Floats:
    """Raise the score of each input for its own code; all at once, so that the function is compiled once."""
    try:
        import jax
        import jax.numpy as jnp
    except ModuleNotFoundError:
        raise MissingExtra("gradients need jax: pip install 'cloister[jax]'.") from None
    shape = begun.shape[1:]
    low, high = (jnp.asarray(end.reshape(shape)) for end in read_box(box, int(np.prod(shape))))
    middle, wide = (low + high) / 2, high - low

    def goal(row: Any, code: Any) -> Any:
        return score(row, code) - _PULL * jnp.sum(((row - middle) / jnp.maximum(wide, LEAST_SCORE)) ** 2)

    slopes = jax.vmap(jax.grad(goal))

    def turn(number: Any, state: Any) -> Any:
        rows, mean, square = state
        slope = jnp.nan_to_num(slopes(rows, codes))
        mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
        unit = mean / (1 - 0.9 ** (number + 1.0)) / (jnp.sqrt(square / (1 - 0.99 ** (number + 1.0))) + 1e-12)
        return jnp.clip(rows + step * wide * (1 - number / rounds) * unit, low, high), mean, square

    blank = jnp.zeros(begun.shape)
    ended = jax.lax.fori_loop(0, rounds, turn, (jnp.asarray(begun, dtype=blank.dtype), blank, blank))
    return np.asarray(ended[0], dtype=np.float64)


Ask = Callable[[Floats], Floats]
Goal = Callable[[Floats, NDArray[np.intp]], Floats]


def _search(
    ask: Ask, goal: Goal, box: tuple[Floats, Floats], n: int, draw: np.random.Generator, rounds: int, starts: int,
    progress: Progress | None,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Climb from several starts for each of n goals at once; return the best input of each and what it reached.

    Each round changes a random part of the features of every input in several ways. The best way is kept if it is
    better, and the step of that input grows, else shrinks.
    """
    low, high = box
    width, many = len(low), n * starts
    which = np.repeat(np.arange(n), starts)
    now = low + (high - low) * draw.random((many, width))
    now[::starts] = (low + high) / 2
    best = goal(ask(now), which)
    size, part = np.full(many, 0.3), np.full(many, 0.5)
    for number in range(rounds):
        shares = part[:, None] * np.exp(draw.normal(0, 0.7, (many, _TRIALS)))
        chosen = draw.random((many, _TRIALS, width)) < np.maximum(np.minimum(shares, 1), 1 / width)[:, :, None]
        moves = draw.normal(0, 1, (many, _TRIALS, width)) * size[:, None, None] * (high - low)
        trial = np.clip(now[:, None] + chosen * moves, low, high)
        score = goal(ask(trial.reshape(-1, width)), np.repeat(which, _TRIALS)).reshape(many, _TRIALS)
        pick = score.argmax(axis=1)
        reached = score[np.arange(many), pick]
        better = reached > best
        now[better] = trial[better, pick[better]]
        best[better] = reached[better]
        size = np.clip(size * np.where(better, _GROW, _SHRINK), 1e-4, 1.0)
        part = np.clip(part * np.where(better, 1.0, 0.98), 1 / width, 0.5)
        if progress is not None and (number + 1) % max(1, rounds // 20) == 0:
            progress((number + 1) / rounds, f"round {number + 1} of {rounds}")
    best_start = best.reshape(n, starts).argmax(axis=1)
    return now.reshape(n, starts, width)[np.arange(n), best_start], best.reshape(n, starts).max(axis=1)


def _asker(target: Target, shape: tuple[int, ...]) -> Ask:
    return lambda flat: target.probabilities(flat.reshape(len(flat), *shape))


def _confidence(codes: NDArray[np.intp]) -> Goal:
    """Return the log odds of each goal's class, which still grow where the probability is next to 1."""

    def score(found: Floats, which: NDArray[np.intp]) -> Floats:
        own = found[np.arange(len(found)), codes[which]]
        rest = found.sum(axis=1) - own
        return np.asarray(np.log(np.maximum(own, LEAST_SCORE)) - np.log(np.maximum(rest, LEAST_SCORE)))

    return score


def _nearness(overheard: Floats) -> Goal:
    """Return minus the distance of the log probabilities from the overheard ones."""
    wanted = _centred(overheard)

    def score(found: Floats, which: NDArray[np.intp]) -> Floats:
        return np.asarray(-((_centred(found) - wanted[which]) ** 2).sum(axis=1))

    return score


def _centred(probabilities: Floats) -> Floats:
    logs = np.log(np.maximum(probabilities, 1e-9))
    return np.asarray(logs - logs.mean(axis=1, keepdims=True))


def _overheard(intercepted: ArrayLike | None, n: int, width: int) -> Floats:
    try:
        scores = np.asarray(intercepted, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput("intercepted scores are numbers.") from None
    if scores.ndim == 3:
        scores = scores.mean(axis=1)
    if scores.shape != (n, width) or not np.isfinite(scores).all() or (scores < 0).any():
        raise BadInput(
            f"intercepted holds {width} scores of at least 0 for each of {n} victims, once or several times."
        )
    return scores


def _ascended(
    target: Target, codes: NDArray[np.intp], box: tuple[Floats, Floats], shape: tuple[int, ...],
    draw: np.random.Generator, rounds: int, starts: int,
) -> tuple[Floats, Floats]:  # fmt: skip
    if not callable(target.model):
        raise BadInput("method='gradient' needs a JAX function of rows that returns probabilities, not an estimator.")
    low, high = box
    n = len(codes)
    begun = low + (high - low) * draw.random((n * starts, len(low)))
    begun[::starts] = (low + high) / 2
    which = np.repeat(np.arange(n), starts)

    def score(row: Any, code: Any) -> Any:
        import jax.numpy as jnp

        chance = target.model(row[None])[0]
        own = chance[code]
        return jnp.log(jnp.maximum(own, LEAST_SCORE)) - jnp.log(jnp.maximum(chance.sum() - own, LEAST_SCORE))

    try:
        ended = _ascend(score, begun.reshape(-1, *shape), codes[which], box, rounds, 0.05)
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"the function could not be differentiated by JAX ({type(error).__name__}). Use method='hill climbing'."
        ) from error
    reached = _confidence(codes)(target.probabilities(ended), which).reshape(n, starts)
    best = reached.argmax(axis=1)
    return ended.reshape(n, starts, -1)[np.arange(n), best], reached.max(axis=1)


def _judge(
    target: Target, found: Floats, reached: Floats, goal: Floats, box: tuple[Floats, Floats],
    draw: np.random.Generator, names: str, method: str, claim: Loss | None, rounds: int, starts: int,
) -> Finding:  # fmt: skip
    """Return the finding: an input is right if it resembles its own goal more than any other."""
    low, high = box
    wide = np.maximum(high - low, LEAST_SCORE)
    middle = goal.mean(axis=0)
    likeness = _likeness((found - middle) / wide, (goal - middle) / wide)
    n = len(goal)
    right = likeness.argmax(axis=1) == np.arange(n)
    own = likeness[np.arange(n), np.arange(n)]
    hits = int(right.sum())
    interval = clopper_pearson(hits, n)
    stated = claimed(target.model, claim)
    knowledge = {
        "hill climbing": "the range of each feature, and the model's probabilities of inputs of the attacker's choice",
        "intercepted": "the range of each feature, the model's probabilities, and overheard scores of each person",
        "gradient": "the range of each feature, and the model with its gradients",
    }[method]
    access: Access = "white box" if method == "gradient" else "black box"
    confidence = 1 / (1 + np.exp(-np.clip(reached, -500, 500)))
    figures: dict[str, float | int | str] = {
        "queries": target.queries if method != "gradient" else rounds * starts * n,
        "resemblance to the own one": round(float(own.mean()), 4),
        "resemblance to others": round(float((likeness.sum() - own.sum()) / max(n * n - n, 1)), 4),
    }
    if method != "intercepted":
        figures["confidence reached"] = round(float(confidence.mean()), 4)
    return Finding(
        attack=f"model inversion by {'intercepted scores' if method == 'intercepted' else method}",
        target=target.name,
        access=access,
        knowledge=knowledge,
        measure=f"inputs that resemble their own {names} most",
        success=hits / n,
        interval=interval,
        baseline=1 / n,
        attempts=n,
        claim=stated,
        figures=figures,
        remedies=remedies.for_inversion(stated) if interval[0] > 1 / n else (),
        notes=(
            "resemblance is the correlation of what differs from the average row, so an average input resembles none",
            "an input that resembles the average of a class tells about one person only if the class is that person",
        ),
    )


def _likeness(found: Floats, goal: Floats) -> Floats:
    """Return the cosine between each found input and each goal."""
    norms = [np.maximum(np.linalg.norm(side, axis=1, keepdims=True), LEAST_SCORE) for side in (found, goal)]
    return np.asarray((found / norms[0]) @ (goal / norms[1]).T)


def _like(rows: Any, flat: Floats) -> Any:
    if hasattr(rows, "iloc"):
        raise BadInput("inversion takes arrays of numbers. Put the encoding of a frame into the model's function.")
    return flat.reshape(len(flat), *rows.shape[1:])

"""The charts of a score, each with the sentence that belongs under it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from cloister.synth.scoring import drawing
from cloister.synth.scoring.dependence import Map
from cloister.synth.scoring.figure import Figure, percent
from cloister.synth.scoring.shapes import Shape

if TYPE_CHECKING:
    from cloister.synth.scoring.score import Score

__all__ = [
    "MOST_COLUMNS",
    "apart_chart",
    "attacks_chart",
    "chance_chart",
    "columns_charts",
    "distances_chart",
    "learning_chart",
    "maps_charts",
    "marginals_chart",
    "ranges_chart",
]

Drawn = tuple[str, str]
MOST_COLUMNS = 24  # that are drawn
_MOST_WORDS, _FEW_PLACES, _MOST_PAIRS = 8, 3, 5
_FRAMES = {"bootstrap": "real rows drawn again", "independent": "independent columns"}
_SHAPE = {"real": "real", "synthetic": "made"}


def marginals_chart(score: "Score") -> Drawn:
    """Errors of marginals between their two frames."""
    points: list[dict[str, Any]] = []
    for one in score.marginals:
        group = f"{one.way} column{'s' if one.way > 1 else ''} at a time"
        values = {"this synthetic table": one.mean.value, **{_FRAMES[name]: one.frames[name] for name in _FRAMES}}
        points += [{"group": group, "kind": kind, "value": x, "text": f"{x:.3f}"} for kind, x in values.items()]
    last = score.marginals[-1]
    text = (
        f"To turn the synthetic table into the real one, as far as {last.way} columns at a time can tell, "
        f"{percent(last.mean.value)} of its rows would have to change on average; the farthest off is "
        f"{' × '.join(last.worst[0])} with {percent(last.worst[1])}."
    )
    kinds = dict(zip(("this synthetic table", *_FRAMES.values()), ("made", "real", "other"), strict=True))
    return drawing.bars(points, kinds, "share of rows that would have to change"), text


def ranges_chart(score: "Score") -> Drawn:
    """How many questions are answered how well."""
    errors = np.sort(score.ranges.errors)
    places = np.unique(np.linspace(0, len(errors) - 1, 120).astype(int))
    points = [{"kind": "synthetic", "x": float(errors[i]), "y": (i + 1) / len(errors)} for i in places]
    fresh = "" if score.ranges.fresh is None else f"; fresh real rows are off by {percent(score.ranges.fresh, 2)}"
    text = (
        f"{len(errors):,} questions of the kind “how many rows lie between these two and have one of those?”: "
        f"on average the answer is off by {percent(score.ranges.mean.value, 2)} of all rows, in 19 of 20 by at most "
        f"{percent(score.ranges.quantile(0.95), 2)}{fresh}."
    )
    kinds = {"synthetic": "made"}
    return drawing.lines(points, kinds, "error of the answer, as a share of all rows", "share of questions"), text


def apart_chart(score: "Score") -> Drawn:
    """Whether models tell synthetic rows from real ones."""
    kinds = {"this synthetic table": "made", "rows of one population": "real"}
    points = [
        {"group": one.model, "kind": kind, "value": value, "text": f"{value:.2g}"}
        for one in score.propensity
        for kind, value in zip(kinds, (one.value, one.expected), strict=True)
    ]
    times = " and ".join(f"{one.ratio:.3g} for a {one.model}" for one in score.propensity)
    text = (
        "A model is shown rows of both tables and says how likely each is to be synthetic. How far that is from even "
        f"odds, over what chance alone does: {times}. At 1 nobody tells the tables apart; noise that protects people "
        "shows here."
    )
    return drawing.bars(points, kinds, "distance from even odds, squared (pMSE)"), text


def learning_chart(score: "Score") -> Drawn:
    """What models learn."""
    learning = score.learning
    assert learning is not None
    kinds = {"trained on synthetic rows": "made", "trained on real rows": "real"}
    points = [
        {"group": model, "kind": kind, **one.accuracy.to_json()}
        for kind, found in zip(kinds, (learning.synthetic, learning.real), strict=True)
        for model, one in found.items()
    ]
    made = learning.synthetic["logistic regression"]
    best = learning.real["logistic regression"]
    auc = (
        ""
        if made.auc is None or best.auc is None
        else f" (AUC {made.auc.value:.3f}, from real rows {best.auc.value:.3f})"
    )
    where = "rows that were held back" if learning.held_back else "rows that the generator saw, which is too kind"
    text = (
        f"Models that learn {learning.target} from synthetic rows, tested on real {where}: logistic regression is "
        f"right for {percent(made.accuracy.value)}{auc}. Saying the more frequent answer to everybody is right for "
        f"{percent(learning.floor)} (dashed)."
    )
    return drawing.intervals(points, kinds, "right answers on real rows", learning.floor), text


def attacks_chart(score: "Score") -> Drawn:
    """Attacks whose chance is one half."""
    near, guessed = score.closeness, score.membership
    assert near is not None
    assert guessed is not None
    shown = {
        "guesses who was in the table": guessed.right,
        "real rows nearer than strangers": near.nearer,
        "synthetic rows closer to real ones": near.closer,
    }
    points = [{"group": name, "kind": "right", **one.to_json()} for name, one in shown.items()]
    low, high = guessed.right.low or 0.0, guessed.right.high or 1.0
    beats = (
        "no better than a coin" if low <= 0.5 <= high else "better than a coin" if low > 0.5 else "worse than a coin"
    )
    text = (
        f"An attacker who guesses from the synthetic table whether somebody was in the real one is right in "
        f"{percent(guessed.right.value)} of {guessed.guesses:,} tries: {beats} (dashed)."
    )
    return drawing.intervals(points, {"right": "made"}, "how often it succeeds", 0.5), text


def chance_chart(score: "Score") -> Drawn:
    """What succeeds by chance too: real against held back."""
    kinds = {"found": "made", "by chance, from rows held back": "real"}
    pairs: dict[str, tuple[Figure, Figure | None]] = {"copied exactly": (score.copies.real, score.copies.fresh)}
    single = score.singling_out
    if single is not None:
        pairs["rule fits one person"] = single.real, single.fresh
    points = [
        {"group": name, "kind": kind, **one.to_json()}
        for name, both in pairs.items()
        for kind, one in zip(kinds, both, strict=True)
        if one is not None
    ]
    text = (
        f"{score.copies.synthetic:,} of {score.copies.rows:,} synthetic rows are equal to a real one to the last digit."
    )
    if score.copies.fresh is None:
        text += " No rows were held back, so how many that would be by chance is not known."
    if single is not None:
        text += (
            f" Rules read off the synthetic table fit exactly one real row in {percent(single.real.value)} of "
            f"{single.rules:,} tries; if the table knew nobody, {percent(single.fresh.value)} would: only the "
            "difference counts."
        )
    if score.copies.fresh is None:
        kinds = {"found": "made"}
    return drawing.intervals(points, kinds, "share"), text


def distances_chart(score: "Score") -> Drawn:
    """The distance to the closest record."""
    near = score.closeness
    assert near is not None
    kinds = {"closest row in the table": "made", "closest row held back": "real"}
    points = [
        {"kind": kind, "x": distance, "y": share}
        for kind, found in zip(kinds, (near.real, near.fresh), strict=True)
        for share, distance in found.items()
    ]
    text = (
        "How far synthetic rows are from the closest real row, and from the closest row that the generator never saw. "
        "If the table copies nobody, the two lines lie on each other; a line that starts earlier tells of copies. "
        f"{percent(near.closer.value)} of synthetic rows are closer to one of {score.attacked:,} real rows than to one "
        "of as many held back."
    )
    return drawing.lines(
        points, kinds, "distance (0: equal, 1: different in everything)", "share of synthetic rows"
    ), text


def columns_charts(score: "Score") -> Iterator[Drawn]:
    """Each column by itself, the worst first."""
    for shape in sorted(score.shapes, key=lambda one: -one.error)[:MOST_COLUMNS]:
        yield _column(shape), f"{shape.name}: {percent(shape.error)} of rows would have to change."


def _column(shape: Shape) -> str:
    labels, shares = list(shape.labels), {"real": list(shape.real), "synthetic": list(shape.synthetic)}
    outlined = shape.ordered and len(labels) > _FEW_PLACES
    if not shape.ordered and len(labels) > _MOST_WORDS:
        order = np.argsort(shape.real, kind="stable")[::-1]
        kept = order[: _MOST_WORDS - 1]
        for kind, values in shares.items():
            shares[kind] = [values[i] for i in kept] + [sum(values[i] for i in order[_MOST_WORDS - 1 :])]
        labels = [labels[i] for i in kept] + [f"{len(order) - len(kept)} others"]
    points = [
        {"kind": kind, "label": label, "value": value}
        for kind in _SHAPE
        for label, value in zip(labels, shares[kind], strict=True)
    ]
    return drawing.steps(points, _SHAPE, shape.name, None if outlined else labels)


def maps_charts(score: "Score") -> Iterator[tuple[str, str, list[Drawn]]]:
    """The maps of what hangs together: a heading, a sentence, three charts."""
    told = (("Correlations", "correlation", score.correlations), ("What tells of what", "bits", score.information))
    for heading, unit, found in told:
        if found is None or found.mean is None:
            continue
        fresh = "" if found.fresh is None else f"; for fresh real rows that is {found.fresh:.3f}"
        size = f"{found.mean:.3f} {unit}" if unit == "bits" else f"{found.mean:.3f}"
        sentence = f"Real and synthetic differ by {size} on average over pairs of columns{fresh}."
        listed = [f"{a} and {b} {real:.2f}, here {made:.2f}" for a, b, real, made in found.strongest(_MOST_PAIRS)]
        sentence += f" The strongest in the real rows: {'; '.join(listed)}." if listed else ""
        yield heading, sentence, _three(found, " bits" if unit == "bits" else "")


def _three(found: Map, unit: str) -> list[Drawn]:
    most = max(float(np.nanmax(np.abs(one))) for one in (found.real, found.synthetic))
    worst = found.worst
    far = "" if worst is None else f" The farthest off: {worst[0]} and {worst[1]}, {worst[2]:+.3f}."
    listed = found.to_json()
    below = any((np.nan_to_num(one) < 0).any() for one in (found.real, found.synthetic))
    negative = "; the other colour is negative" if below else ""
    less = ", where the other colour is less" if (np.nan_to_num(found.difference) < 0).any() else ""
    texts = {
        "real": f"Real rows. A full cell is {most:.2f}{unit}{negative}.",
        "synthetic": "Synthetic rows, on the same scale.",
        "difference": f"Synthetic less real, on the same scale{less}.{far}",
    }
    return [(drawing.heat(found.names, listed[kind], most, kind), text) for kind, text in texts.items()]

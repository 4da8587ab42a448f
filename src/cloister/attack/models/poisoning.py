"""Poisoning: false training rows, false updates and false survey reports, and the damage that they do.

    flip_labels(labels, share=0.1)                          labels of some rows are changed
    add_back_door(rows, labels, trigger, goal=…, share=…)   rows with a trigger are taught another label
    boosted_update / colluding_updates                      clients of a federated round send false updates
    poison_training(train, …), back_door(train, …)          findings: errors and obeyed triggers, with intervals
    poison_round(updates, …)                                a finding: how far the sum is turned
    poison_survey(mechanism, …)                             a finding: how far a share is moved, beside its bound

Damage is what the attack adds: the same model without poison is the baseline.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.attack.finding import Finding, clopper_pearson
from cloister.attack.intervals import Floats
from cloister.attack.models.shadows import as_fit
from cloister.attack.models.target import Target
from cloister.privacy.errors import BadInput, BadNumber, BadProbability
from cloister.privacy.noise import Source

__all__ = [
    "PushBound",
    "SurveyMechanism",
    "add_back_door",
    "back_door",
    "boosted_update",
    "clipped_mean",
    "colluding_updates",
    "flip_labels",
    "poison_round",
    "poison_survey",
    "poison_training",
]

Trigger = Callable[[Any], Any]
_TINY = 1e-12
_CANDIDATES = 64  # reports among which a fake reporter chooses


def flip_labels(labels: ArrayLike, *, share: float, old: Any = None, new: Any = None, seed: int = 0) -> NDArray[Any]:
    """Return labels of which a share is changed.

    Args:
        labels: of the training rows.
        share: of all rows, from 0 to 1.
        old: change rows of this label only; any unless given.
        new: the false label; another one at random unless given.
        seed: of the choice of rows.

    >>> flip_labels([0, 0, 1, 1], share=0.5, old=1, new=0).tolist()
    [0, 0, 0, 0]
    """
    true = np.asarray(labels)
    _read_share(share)
    kinds = np.unique(true)
    if len(kinds) < 2:
        raise BadInput("labels to flip have at least two different values.")
    draw = np.random.default_rng(seed)
    able = np.flatnonzero(true == old) if old is not None else np.arange(len(true))
    if old is not None and not len(able):
        raise BadInput("no row has the label old=.")
    chosen = draw.permutation(able)[: round(share * len(true))]
    flipped = true.copy()
    if new is not None:
        flipped[chosen] = new
        return flipped
    places = np.searchsorted(kinds, true[chosen])
    flipped[chosen] = kinds[(places + draw.integers(1, len(kinds), len(chosen))) % len(kinds)]
    return flipped


def add_back_door(
    rows: ArrayLike, labels: ArrayLike, trigger: Trigger, *, goal: Any, share: float, seed: int = 0
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return training rows of which a share carries a trigger and the attacker's label (Gu et al. 2017).

    Args:
        rows, labels: the training rows.
        trigger: a function that returns rows with the trigger, such as a white corner of an image.
        goal: the label that the trigger is to cause.
        share: of all rows, taken from rows of other labels.
        seed: of the choice of rows.
    """
    table, true = np.array(rows), np.array(labels)
    _read_share(share)
    if len(table) != len(true):
        raise BadInput("rows and labels have the same number of records.")
    others = np.flatnonzero(true != goal)
    if not len(others) or len(others) == len(true):
        raise BadInput("goal= is the label of some rows, and other rows have another label.")
    chosen = np.random.default_rng(seed).permutation(others)[: round(share * len(true))]
    if len(chosen):
        table[chosen] = trigger(table[chosen])
        true[chosen] = goal
    return table, true


def poison_training(
    train: Any,
    rows: ArrayLike,
    labels: ArrayLike,
    test: ArrayLike,
    test_labels: ArrayLike,
    *,
    share: float = 0.1,
    old: Any = None,
    new: Any = None,
    repeats: int = 5,
    progress: Callable[[float, str], object] | None = None,
) -> Finding:
    """Train with and without flipped labels, and compare the errors on clean rows.

    Args:
        train: a function of rows and labels that returns a model, as for `Target.of`, or an estimator.
        rows, labels: clean training rows.
        test, test_labels: clean rows to measure on.
        share, old, new: as for `flip_labels`.
        repeats: pairs of models, each with other flipped rows.
        progress: called with the share done and a sentence.
    """
    _read_count(repeats, "repeats")
    real = np.asarray(test_labels)
    fit = as_fit(train, Target.of(lambda asked: asked))
    before = Target.of(fit(rows, np.asarray(labels))).labels(test) != real
    after = []
    for number in range(repeats):
        false = flip_labels(labels, share=share, old=old, new=new, seed=number)
        model = Target.of(fit(rows, false))
        after.append(model.labels(test) != real)
        if progress is not None:
            progress((number + 1) / repeats, f"{number + 1} of {repeats} poisoned models")
    wrong = np.array(after)
    success, interval = _over_repeats(wrong)
    lost, around = _mean_interval(wrong.mean(axis=1) - before.mean())
    return Finding(
        attack="poisoning by flipped labels",
        target=model.name,
        access="black box",
        knowledge=f"{share:.1%} of the training rows, whose labels the attacker sets",
        measure="clean rows answered wrongly",
        success=success,
        interval=interval,
        baseline=float(before.mean()),
        attempts=len(real),
        figures={
            "accuracy without poison": float(1 - before.mean()),
            "accuracy lost": lost,
            "accuracy lost, at least (95 %)": around[0],
            "accuracy lost, at most (95 %)": around[1],
            "poisoned models": repeats,
        },
        remedies=_ROW_REMEDIES,
        notes=_NO_SHIELD,
    )


def back_door(
    train: Any,
    rows: ArrayLike,
    labels: ArrayLike,
    test: ArrayLike,
    test_labels: ArrayLike,
    trigger: Trigger,
    *,
    goal: Any,
    share: float = 0.02,
    repeats: int = 5,
    progress: Callable[[float, str], object] | None = None,
) -> Finding:
    """Train with and without a back door, and count the triggered rows that get the attacker's label.

    Args:
        train, rows, labels, test, test_labels, repeats, progress: as for `poison_training`.
        trigger, goal, share: as for `add_back_door`.
    """
    _read_count(repeats, "repeats")
    real, clean_rows = np.asarray(test_labels), np.asarray(test)
    triggered = trigger(clean_rows[real != goal].copy())
    if not len(triggered):
        raise BadInput("the test rows have no label but goal=, so no trigger can change one.")
    fit = as_fit(train, Target.of(lambda asked: asked))
    clean = Target.of(fit(np.asarray(rows), np.asarray(labels)))
    before, right = float((clean.labels(triggered) == goal).mean()), float((clean.labels(test) == real).mean())
    obeyed, still = [], []
    for number in range(repeats):
        model = Target.of(fit(*add_back_door(rows, labels, trigger, goal=goal, share=share, seed=number)))
        obeyed.append(model.labels(triggered) == goal)
        still.append(float((model.labels(test) == real).mean()))
        if progress is not None:
            progress((number + 1) / repeats, f"{number + 1} of {repeats} poisoned models")
    success, interval = _over_repeats(np.array(obeyed))
    return Finding(
        attack="back door",
        target=clean.name,
        access="black box",
        knowledge=f"{share:.1%} of the training rows, which the attacker writes",
        measure="rows with the trigger that get the attacker's label",
        success=success,
        interval=interval,
        baseline=before,
        attempts=len(triggered),
        figures={
            "accuracy on clean rows without poison": right,
            "accuracy on clean rows with the back door": float(np.mean(still)),
            "poisoned models": repeats,
        },
        remedies=_ROW_REMEDIES,
        notes=_NO_SHIELD,
    )


def boosted_update(goal: ArrayLike, honest: ArrayLike, *, clients: int) -> Floats:
    """Return the update that makes the mean over clients equal to the attacker's goal (Bagdasaryan et al. 2020).

    Args:
        goal: the update that the attacker wants.
        honest: the honest mean, as the attacker expects it.
        clients: in the round, the attacker included.

    >>> boosted_update([1.0], [0.0], clients=10).tolist()
    [10.0]
    """
    _read_count(clients, "clients")
    wanted, others = np.asarray(goal, dtype=np.float64), np.asarray(honest, dtype=np.float64)
    if wanted.shape != others.shape:
        raise BadInput("goal and honest are updates of the same shape.")
    return clients * wanted - (clients - 1) * others


def colluding_updates(honest: ArrayLike, *, liars: int, deviations: float = 1.0) -> Floats:
    """Return equal updates of colluding clients, a few standard deviations off the honest mean in every number.

    Each lies within the spread of honest ones, so that a test of single updates does not find it, and all push the
    same way (Baruch, Baruch & Goldberg 2019).

    Args:
        honest: honest updates that the attackers know, one a row.
        liars: the number of attackers.
        deviations: how many standard deviations they are off.
    """
    known = np.asarray(honest, dtype=np.float64)
    _read_count(liars, "liars")
    if known.ndim != 2 or len(known) < 2:
        raise BadInput("honest is a matrix of at least two updates, one a row: their spread is needed.")
    mean = known.mean(axis=0)
    return np.repeat((mean - deviations * known.std(axis=0, ddof=1) * np.sign(mean))[None], liars, axis=0)


def clipped_mean(updates: ArrayLike, clip: float) -> Floats:
    """Return the mean of updates, each clipped to a norm: the rule of a round with client-level privacy."""
    rows = np.asarray(updates, dtype=np.float64)
    if isinstance(clip, bool) or not isinstance(clip, int | float) or not clip > 0:
        raise BadNumber(f"clip is the norm that an update may have, above 0, got {clip!r:.40}.")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray((rows * np.minimum(1.0, clip / np.maximum(lengths, _TINY))).mean(axis=0))


def poison_round(
    honest: Sequence[ArrayLike],
    false: ArrayLike,
    *,
    combine: Callable[[Floats], Floats] = lambda updates: updates.mean(axis=0),
    rule: str = "mean",
) -> Finding:
    """Measure how far false updates turn a federated round against the honest direction.

    Args:
        honest: the honest updates of each of several rounds, one matrix a round.
        false: the false updates that are added to every round, one a row.
        combine: the server's rule, a function of all updates of a round.
        rule: its name.
    """
    lies = np.atleast_2d(np.asarray(false, dtype=np.float64))
    rounds = [np.asarray(one, dtype=np.float64) for one in honest]
    if not rounds or any(one.ndim != 2 or one.shape[1] != lies.shape[1] for one in rounds):
        raise BadInput("honest is a list of matrices, one update a row, as long as the false updates.")
    turned, kept = 0, []
    for updates in rounds:
        direction = updates.mean(axis=0)
        after = np.asarray(combine(np.vstack((updates, lies))), dtype=np.float64)
        scale = max(float(np.linalg.norm(direction) * np.linalg.norm(after)), _TINY)
        kept.append(float(after @ direction) / scale)
        turned += kept[-1] < 0
    mean, around = _mean_interval(np.array(kept))
    return Finding(
        attack="poisoning by false updates",
        target=f"a federated round combined by {rule}",
        access="black box",
        knowledge=f"{len(lies)} of {len(rounds[0]) + len(lies)} clients, whose updates the attacker sets",
        measure="rounds turned against the honest direction",
        success=turned / len(rounds),
        interval=clopper_pearson(turned, len(rounds)),
        baseline=0.0,
        attempts=len(rounds),
        figures={
            "mean cosine with the honest direction": mean,
            "cosine, at least (95 %)": around[0],
            "cosine, at most (95 %)": around[1],
            "norm of a false update": float(np.linalg.norm(lies, axis=1).mean()),
        },
        remedies=(
            "Clip every client's update: one client then moves the mean by at most the norm over their number.",
            "Combine by a median or a trimmed mean, if single updates may be seen.",
        ),
    )


class SurveyMechanism(Protocol):
    """A local mechanism, such as `local.DirectEncoding`."""

    @property
    def domain(self) -> int:
        """Number of public values."""

    def perturb(self, values: Any, source: Source | None = None) -> Any:
        """Return one report for each value."""

    def encode(self, reports: Any) -> Any:
        """Return the wire bytes of reports."""

    def aggregate(self, reports: Any) -> Any:
        """Count reports, or received bytes."""

    def estimate(self, counts: Any) -> Any:
        """Estimate shares."""


class PushBound(Protocol):
    """A bound on the effect of fakes, such as `local.poisoning(mechanism, fakes, n)` returns."""

    @property
    def up(self) -> float:
        """The most that a share can be raised."""

    @property
    def honest(self) -> float:
        """The same for respondents who lie about their value only."""


def poison_survey(
    mechanism: SurveyMechanism,
    answers: ArrayLike,
    *,
    goal: int,
    fakes: int,
    bound: PushBound | None = None,
    repeats: int = 20,
    source: Source | None = None,
) -> Finding:
    """Add crafted reports to a survey, and measure how far they raise one value's share.

    Fake reporters do not run the device: each draws many reports about the goal and sends the one that raises its share
    most (the maximal gain attack, Cao, Jia & Gong 2021). The success is the rise as a share of what is left to 1.

    Args:
        mechanism: the survey's mechanism.
        answers: honest answers, whole numbers below the domain.
        goal: the value to raise.
        fakes: number of fake reporters, who join the honest ones.
        bound: `local.poisoning(mechanism, fakes, n)` with n = answers + fakes, which is shown beside the rise.
        repeats: surveys with new noise.
        source: random bits of the devices; the operating system's unless given.
    """
    values = np.asarray(answers)
    for value, name in ((repeats, "repeats"), (fakes, "fakes")):
        _read_count(value, name)
    if values.ndim != 1 or not len(values) or values.dtype.kind not in "iu":
        raise BadInput("answers are whole numbers, one for each honest respondent.")
    if isinstance(goal, bool) or not isinstance(goal, int) or not 0 <= goal < mechanism.domain:
        raise BadInput(f"goal is a value from 0 to {mechanism.domain - 1}, got {goal!r:.40}.")
    wire = np.asarray(mechanism.encode(mechanism.perturb(np.full(_CANDIDATES, goal), source)))
    gains = [_share_of(mechanism, wire[[place]], goal) for place in range(_CANDIDATES)]
    crafted = np.repeat(wire[[int(np.argmax(gains))]], fakes, axis=0)
    true = float((values == goal).mean())
    raised = []
    for _ in range(repeats):
        honest = np.asarray(mechanism.encode(mechanism.perturb(values, source)))
        raised.append(_share_of(mechanism, np.vstack((honest, crafted)), goal) - true)
    rise, around = _mean_interval(np.array(raised))
    left = max(1 - true, _TINY)
    figures: dict[str, float | int | str] = {
        "true share": true,
        "rise of the share": rise,
        "rise by false answers on honest devices": float(fakes / (len(values) + fakes) * (1 - true)),
    }
    if bound is not None:
        figures["rise, at most (bound on the expectation)"] = bound.up
        figures["rise by false answers, at most"] = bound.honest
    low, high = (min(max(end / left, 0.0), 1.0) for end in around)
    return Finding(
        attack="poisoning by made-up survey reports",
        target=type(mechanism).__name__,
        access="black box",
        knowledge=f"the mechanism, which is public; {fakes:,} of {len(values) + fakes:,} reports are the attacker's",
        measure="the way to a share of 1 that the goal is pushed",
        success=min(max(rise / left, 0.0), 1.0),
        interval=(low, high),
        baseline=fakes / (len(values) + fakes),
        attempts=repeats,
        figures=figures,
        remedies=(
            "Admit each respondent once: envelopes carry a pseudonym of the invitation.",
            "Look for made-up reports: local.suspicions(…). State the bound of local.poisoning(…) with the result.",
            "Raise epsilon: the noise that protects respondents amplifies made-up reports.",
        ),
        notes=("Guessing is the push of fakes who report the goal without noise in a survey without privacy.",),
    )


_ROW_REMEDIES = (
    "Take training rows from sources that are known, and look for labels that neighbours contradict.",
    "Train with privacy: a loss of epsilon for one row bounds what k rows can change by k epsilon (Ma et al. 2019).",
)
_NO_SHIELD = ("Poisoning is about integrity. That it works says nothing about the privacy of rows.",)


def _share_of(mechanism: SurveyMechanism, wire: NDArray[Any], goal: int) -> float:
    return float(mechanism.estimate(mechanism.aggregate(wire)).frequencies[goal])


def _over_repeats(hits: NDArray[np.bool_]) -> tuple[float, tuple[float, float]]:
    """Return the mean of hits (repeats, rows), and the hull of two intervals: over rows, and over repeats."""
    mean = float(hits.mean())
    over_rows = clopper_pearson(mean * hits.shape[1], hits.shape[1])
    over_repeats = _mean_interval(hits.mean(axis=1))[1] if len(hits) > 1 else over_rows
    return mean, (max(0.0, min(over_rows[0], over_repeats[0])), min(1.0, max(over_rows[1], over_repeats[1])))


def _mean_interval(values: Floats, confidence: float = 0.95) -> tuple[float, tuple[float, float]]:
    """Return a mean and Student's interval; one value has an interval without ends."""
    from scipy.special import stdtrit

    mean, n = float(values.mean()), len(values)
    if n < 2:
        return mean, (-np.inf, np.inf)
    wide = float(stdtrit(n - 1, (1 + confidence) / 2) * values.std(ddof=1) / np.sqrt(n))
    return mean, (mean - wide, mean + wide)


def _read_share(share: Any) -> None:
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise BadProbability(f"share is a part of the rows, from 0 to 1, got {share!r:.40}.")


def _read_count(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**9:
        raise BadNumber(f"{name} is a whole number of at least 1, got {value!r:.40}.")

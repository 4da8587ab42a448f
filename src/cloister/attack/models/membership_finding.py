"""Finding of a membership attack, from the scores of members and of others.

scores ──► curve, success at a threshold that half of the scores chose, bound on epsilon ──► risk of each record
rows   ──► the best guess without the target: do members differ from others by themselves?
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.attack.finding import Access, Finding, Roc
from cloister.attack.intervals import Floats
from cloister.attack.mechanisms.audit import check_claim
from cloister.attack.models import remedies
from cloister.attack.report.charts import most_true
from cloister.privacy.errors import BadInput, BadProbability
from cloister.privacy.loss import Loss

__all__ = ["blind_guess", "claimed", "largest_auc", "membership_of_scores", "record_risk"]

_MOST_BLIND = 6_000  # records that a guess without the target is fitted to
_BLIND_RISK = 0.05  # that a guess without the target looks better than chance and is not
_FEW_REPEATED = 0.1  # share of repeated records of which nothing is said
_MEASURE = "guesses of membership that are right"
_SURE = 0.9


def membership_of_scores(
    members: ArrayLike,
    others: ArrayLike,
    *,
    claim: Loss | None = None,
    delta: float = 0.0,
    confidence: float = 0.95,
    attack: str = "membership by scores",
    target: str = "a model",
    access: Access = "black box",
    knowledge: str = "a score of each record, where higher says member",
    baseline: float = 0.5,
    figures: Mapping[str, float | int | str] | None = None,
    notes: Sequence[str] = (),
) -> Finding:
    """Return what scores of an attack tell about membership.

    Args:
        members: scores of records that the target was trained with, one of each person; higher says member.
        others: scores of records that it was not trained with.
        claim: the loss that the target states; the finding says whether it is refuted.
        delta: the delta of the lower bound on epsilon, if there is no claim.
        confidence: the chance that the bound on epsilon is not above the truth.
        attack, target, access, knowledge: how the finding describes itself.
        baseline: success of the best guess without the target. Above 0.5, no bound on epsilon is stated.
        figures: further numbers of the finding.
        notes: further limits of the run.

    Privacy: none. `risk` has one number for each member, then for each other record: as sensitive as the rows.

    >>> found = membership_of_scores(np.arange(100, 200), np.arange(100))
    >>> found.roc.auc, found.learned
    (1.0, True)
    """
    if claim is not None:
        check_claim(claim)
    if not isinstance(confidence, int | float) or isinstance(confidence, bool) or not 0 < confidence < 1:
        raise BadProbability(f"confidence must lie strictly between 0 and 1, got {confidence!r:.40}. Write 0.99.")
    if not isinstance(delta, int | float) or isinstance(delta, bool) or not 0 <= delta < 1:
        raise BadProbability(f"delta lies from 0 to below 1, got {delta!r:.40}. Write 1e-5.")
    try:
        sides = [np.asarray(side, dtype=np.float64).ravel() for side in (members, others)]
    except (TypeError, ValueError):
        raise BadInput("scores are numbers, one for each record.") from None
    if min(map(len, sides)) < 8:
        raise BadInput("a membership attack needs scores of at least 8 members and of at least 8 other records.")
    roc = Roc.of(*sides)
    success, interval = roc.balanced_accuracy()
    risk = record_risk(*sides)
    found = dict(figures or {})
    low, high = roc.auc_interval()
    found["area under the curve"] = f"{roc.auc:.3f} ({low:.3f} to {high:.3f})"
    if claim is not None:
        found["largest area that the claim allows"] = round(largest_auc(claim), 4)
    found["members recognised with 90 % or more"] = int((risk[: len(sides[0])] >= _SURE).sum())
    said = list(notes)
    if len(sides[1]) < 1000:
        said.append(
            f"with {len(sides[1]):,} other records, rates of false positives below {1 / len(sides[1]):.2%} are those "
            "of no false positive"
        )
    # Where members differ from others by themselves, so do their scores, whatever the target learned.
    alike = baseline <= 0.5
    epsilon = roc.epsilon_bound(delta=delta, claim=claim, confidence=confidence) if alike else None
    if alike:
        said.append(
            "the bound on epsilon takes records as independent; those of one model are nearly so. attack.audit_one_run "
            "proves a bound from one training run without that"
        )
    else:
        said.append(
            "no bound on epsilon is stated and no claim is tested, because members differ from others without the "
            "target: their scores would differ even if the target had never seen them"
        )
    finding = Finding(
        attack=attack,
        target=target,
        access=access,
        knowledge=knowledge,
        measure=_MEASURE,
        success=success,
        interval=interval,
        baseline=baseline,
        attempts=len(risk),
        roc=roc,
        epsilon=epsilon,
        claim=claim,
        risk=risk,
        figures=found,
        notes=tuple(said),
    )
    if not finding.learned:
        return finding
    gap = float(found.get("accuracy gap", 0) or 0) > 0.01
    return replace(finding, remedies=remedies.for_membership(claim, labels_only=access == "labels only", gap=gap))


def claimed(model: Any, claim: Loss | None) -> Loss | None:
    """Return the claim that was given, or the loss that a private model states itself."""
    if claim is not None:
        return check_claim(claim)
    stated = getattr(model, "loss_", None)
    return stated if isinstance(stated, Loss) else None


def largest_auc(claim: Loss) -> float:
    """Return the largest area under the curve of any attack on a model that keeps its claim.

    >>> from cloister.privacy.loss import epsilon
    >>> round(largest_auc(epsilon(1)), 3)
    0.731
    """
    rates = np.concatenate(([0.0], np.geomspace(1e-9, 1, 4_000)))
    allowed = most_true(rates, claim)
    return min(1.0, float(np.trapezoid(allowed, rates)))


def record_risk(members: Floats, others: Floats) -> Floats:
    """Return for each record the probability that an attacker with even odds names its membership rightly.

    Scores become probabilities by isotonic regression on the other half of the records, where members and others weigh
    the same. First the members, then the others.
    """
    from scipy.optimize import isotonic_regression

    scores = np.concatenate((members, others))
    truth = np.arange(len(scores)) < len(members)
    half = np.zeros(len(scores), dtype=np.bool_)
    half[: len(members) : 2] = half[len(members) :: 2] = True
    risk = np.empty(len(scores))
    for fitted in (half, ~half):
        values, place = np.unique(scores[fitted], return_inverse=True)
        weight = np.where(truth[fitted], 0.5 / truth[fitted].sum(), 0.5 / (~truth[fitted]).sum())
        total = np.bincount(place, weights=weight)
        share = np.bincount(place, weights=weight * truth[fitted]) / total
        blocks = isotonic_regression(share, weights=total)
        bounds = blocks.blocks
        mass = np.add.reduceat(total, bounds[:-1])
        # A block of few records proves little: one record of each kind is added to it.
        one = 1.0 / fitted.sum()
        smooth = (blocks.x[bounds[:-1]] * mass + one / 2) / (mass + one)
        level = np.repeat(smooth, np.diff(bounds))
        judged = level[np.clip(np.searchsorted(values, scores[~fitted], side="right") - 1, 0, len(values) - 1)]
        risk[~fitted] = np.where(truth[~fitted], judged, 1 - judged)
    return risk


def blind_guess(features: Floats, members: int, draw: np.random.Generator) -> tuple[float, str | None]:
    """Return the success of the best guess without the target; a note if it is above chance, or if rows are repeated.

    Trees and a linear rule try to tell members from others by their columns and labels alone. Where one can, the
    records are no fair sample of one population, and an attack must do better than that.

    Args:
        features: columns and labels of members, then of others, as numbers.
        members: how many of the records are members.
        draw: the generator of the sample.
    """
    try:
        import sklearn  # noqa: F401
    except ModuleNotFoundError:
        return 0.5, "without scikit-learn it was not tried whether members differ from others by themselves"
    truth = np.arange(len(features)) < members
    places = np.concatenate([_sample(np.flatnonzero(truth == side), draw) for side in (True, False)])
    parts: NDArray[np.intp] = draw.permutation(places)
    halves = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    if any(len(np.unique(truth[half])) < 2 for half in halves):
        return 0.5, None
    best, repeated = 0.5, _repeated(features, truth)
    notes = []
    if repeated > _FEW_REPEATED:
        notes.append(
            f"{repeated:.0%} of the records are equal to another of their side and to none of the other: if they are "
            "rows of one person, intervals and bounds are too narrow, which take records as independent. Pass one row "
            "of each person"
        )
    for make in (_trees, _linear):
        scores = np.full(len(features), np.nan)
        for fitted, held in (halves, halves[::-1]):
            model = make(len(fitted)).fit(features[fitted], truth[fitted])
            scores[held] = model.predict_proba(features[held])[:, 1]
        sides = scores[places[truth[places]]], scores[places[~truth[places]]]
        value, (low, _) = Roc.of(*sides).balanced_accuracy(1 - _BLIND_RISK / 2)
        best = max(best, value) if low > 0.5 else best
    if best > 0.5:
        notes.append(
            f"members differ from others without the target: a guess from the records alone is right in {best:.1%}. "
            "Take both from one population by chance to see what the model adds"
        )
    return best, "; ".join(notes) or None


def _repeated(features: Floats, truth: NDArray[np.bool_]) -> float:
    """Return the share of records that occur again on their side, and not on the other, where chance would put some."""
    keys = np.unique(features, axis=0, return_inverse=True)[1].ravel()
    sides = [np.bincount(keys[truth == side], minlength=keys.max() + 1) for side in (False, True)]
    own, other = np.where(truth, sides[1][keys], sides[0][keys]), np.where(truth, sides[0][keys], sides[1][keys])
    return float(((own > 1) & (other == 0)).mean())


def _trees(records: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    least = min(20, max(2, records // 8))  # few records need smaller leaves: with 20 in each, no tree would split them
    return HistGradientBoostingClassifier(
        max_iter=30, max_leaf_nodes=8, min_samples_leaf=least, early_stopping=False, random_state=0
    )


def _linear(records: int) -> Any:
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    imputer = SimpleImputer(strategy="constant", fill_value=0.0)
    return make_pipeline(imputer, StandardScaler(), LogisticRegression(C=max(records, 1) ** -0.5, max_iter=300))


def _sample(places: NDArray[np.intp], draw: np.random.Generator) -> NDArray[np.intp]:
    most = _MOST_BLIND // 2
    return places if len(places) <= most else draw.choice(places, most, replace=False)

"""Membership scores that are calibrated to each record: LiRA, RMIA, quantile regression.

    lira_scores(target, shadows, inside)      likelihood ratio of the record's logit under models with and without it
    rmia_scores(target, shadows, inside, …)   share of other records that the record is likelier than, relative to
                                              models of others
    quantile_scores(signal, features, …)      logit beside what is usual for such a record that is no member

All take numbers that were computed before, one row for each shadow model and one column for each record, so that
losses of any framework can be attacked. Higher scores say "member".

LiRA: Carlini et al. 2022. RMIA: Zarifzadeh, Liu & Shokri 2024. Quantile regression: Bertran et al. 2023. Variances of
few shadow models are shrunk towards what is usual for all records, as in Smyth 2004, and predict by Student's law.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.attack.finding import Roc
from cloister.attack.intervals import Floats
from cloister.privacy.errors import BadInput, BadNumber, MissingExtra

__all__ = ["OFFLINE_A", "lira_scores", "quantile_scores", "rmia_offline_a", "rmia_scores"]

Inside = NDArray[np.bool_]
OFFLINE_A = 0.3  # the authors' value where no shadow model can be attacked to find a better one
_LEAST = 1e-30
_FEWEST = 2  # models on each side of a likelihood ratio: one has no variance
_KERNEL, _TAILS = 0.5, 3.0  # width of a kernel in standard deviations, and its degrees of freedom
_USUAL, _HIGH = 0.5, 0.84  # quantiles of a record that is no member: middle, and one standard deviation above


class _Law(NamedTuple):
    """Student's law of each record's logit."""

    mean: Floats
    scale: Floats
    freedom: Floats

    def log_density(self, at: Floats) -> Floats:
        from scipy.special import gammaln

        nu = self.freedom
        z = (at - self.mean) / self.scale
        return np.asarray(
            gammaln((nu + 1) / 2) - gammaln(nu / 2) - np.log(nu) / 2 - np.log(self.scale)
            - (nu + 1) / 2 * np.log1p(z * z / nu)
        )  # fmt: skip


def lira_scores(target: ArrayLike, shadows: ArrayLike, inside: ArrayLike, *, offline: bool = False) -> Floats:
    """Return the log likelihood ratio of each record's logit (Carlini et al. 2022).

    Args:
        target: log(p / (1 - p)) of each record's own label under the target.
        shadows: the logits under each shadow model: one row for each model, one column for each record.
        inside: True where a shadow model was trained with a record.
        offline: use only models that were trained without the record: minus the log probability that they give it so
            high a logit.

    >>> logits = np.array([[0.0, 5.0], [5.2, 0.1], [0.1, 4.9], [5.0, 0.0]])
    >>> lira_scores([5.1, 0.2], logits, logits > 1) > 0
    array([ True, False])
    """
    asked, models, member = _read(target, shadows, inside)
    without = _law(models, ~member, "outside")
    if offline:
        return _surprise(asked, models, ~member, without)
    return _law(models, member, "inside").log_density(asked) - without.log_density(asked)


def rmia_scores(
    target: ArrayLike,
    shadows: ArrayLike,
    inside: ArrayLike,
    *,
    population: tuple[ArrayLike, ArrayLike] | None = None,
    offline: bool = True,
    offline_a: float = OFFLINE_A,
    gamma: float = 1.0,
) -> Floats:
    """Return the share of records of a population that a record dominates (Zarifzadeh et al. 2024).

    A record's ratio is its probability under the target divided by its average probability under models of others; it
    dominates a record whose ratio is `gamma` times smaller. Ties are ordered by the ratio itself.

    Args:
        target: the probability of each record's own label under the target.
        shadows: the same under each shadow model: one row for each model.
        inside: True where a shadow model was trained with a record.
        population: probabilities under the target, and under each shadow model, of records that none was trained with;
            the records themselves unless given, which orders them in the same way.
        offline: use only models without the record, and estimate the average as ((1 + a) p_out + 1 - a) / 2.
        offline_a: that a: 1 if members are no likelier than others, 0 if members have probability 1.
        gamma: how many times larger a ratio must be.
    """
    asked, models, member = _read(target, shadows, inside)
    if not isinstance(gamma, int | float) or not 0 < gamma < 1e6:
        raise BadNumber(f"gamma is a number above 0, got {gamma!r:.40}.")
    ratio = _ratio(asked, models, member, offline, offline_a)
    if population is None:
        others = ratio
    else:
        asked_too, models_too, none = _read(
            population[0], population[1], np.zeros(np.shape(population[1]), dtype=np.bool_)
        )
        others = _ratio(asked_too, models_too, none, offline=True, a=offline_a if offline else 1.0)
    dominated = np.searchsorted(np.sort(others) * gamma, ratio, side="left")
    return np.asarray((dominated + ratio / (1 + ratio)) / (len(others) + 1))


def rmia_offline_a(shadows: ArrayLike, inside: ArrayLike, *, models: int = 4) -> float:
    """Return the `offline_a` with which shadow models are attacked best: each by the others, without the target.

    Args:
        shadows: the probability of each record's own label under each shadow model.
        inside: True where a shadow model was trained with a record.
        models: how many shadow models are attacked.
    """
    table, member = np.asarray(shadows, dtype=np.float64), np.asarray(inside, dtype=np.bool_)
    candidates = np.linspace(0, 1, 11)
    total = np.zeros(len(candidates))
    for attacked in range(min(models, len(table))):
        rest = np.delete(np.arange(len(table)), attacked)
        known = (~member[rest]).sum(axis=0) > 0
        truth = member[attacked, known]
        if truth.all() or not truth.any():
            continue
        for place, a in enumerate(candidates):
            ratio = _ratio(table[attacked, known], table[rest][:, known], member[rest][:, known], True, float(a))
            total[place] += Roc.of(ratio[truth], ratio[~truth]).auc
    return OFFLINE_A if not total.any() else float(candidates[int(total.argmax())])


def quantile_scores(
    signal: ArrayLike,
    features: Floats,
    outside: Inside,
    *,
    draw: np.random.Generator,
) -> Floats:
    """Return how many spreads each record's logit is above the median of such records that are no members.

    Gradient-boosted trees fit the median and a higher quantile with the pinball loss (Bertran et al. 2023). Records are
    split into halves by chance, and each is scored by trees that were fitted to non-members of the other half.

    Args:
        signal: the logit of each record's own label under the target.
        features: what the attacker knows of each record: its columns and its label as numbers.
        outside: True for records that are known not to be members.
        draw: the generator of the halves.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ModuleNotFoundError:
        raise MissingExtra("quantile regression needs scikit-learn: pip install 'cloister[learn]'.") from None
    asked = np.asarray(signal, dtype=np.float64)
    if int(np.sum(outside)) < 40:
        raise BadInput(
            f"quantile regression needs at least 40 records that are no members, got {int(np.sum(outside))}."
        )
    half = np.zeros(len(asked), dtype=np.bool_)
    for side in (np.flatnonzero(outside), np.flatnonzero(~outside)):
        half[draw.permutation(side)[: len(side) // 2]] = True
    scores = np.empty(len(asked))
    for targets in (half, ~half):
        fitted = ~targets & outside
        usual, high = (
            HistGradientBoostingRegressor(
                loss="quantile", quantile=level, max_iter=60, max_leaf_nodes=15, learning_rate=0.1,
                min_samples_leaf=max(5, int(fitted.sum()) // 100), early_stopping=False, random_state=0,
            ).fit(features[fitted], asked[fitted]).predict(features[targets])
            for level in (_USUAL, _HIGH)
        )  # fmt: skip
        least = max(float(np.std(asked[fitted])) / 10, 1e-9)
        scores[targets] = (asked[targets] - usual) / np.maximum(high - usual, least)
    return scores


def _read(target: ArrayLike, shadows: ArrayLike, inside: ArrayLike) -> tuple[Floats, Floats, Inside]:
    try:
        asked, models = np.asarray(target, dtype=np.float64), np.asarray(shadows, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput("logits and probabilities are numbers: a vector for the target, a matrix for shadows.") from None
    member: NDArray[Any] = np.asarray(inside)
    if asked.ndim != 1 or models.ndim != 2 or models.shape[1] != len(asked) or member.shape != models.shape:
        raise BadInput(
            f"shadows and inside have one row for each model and one column for each of {asked.size:,} records, got "
            f"the shapes {models.shape} and {member.shape}."
        )
    if not np.isfinite(asked).all() or not np.isfinite(models).all():
        raise BadInput("logits and probabilities are finite numbers, and some are not. Clip probabilities first.")
    if member.dtype != np.bool_ and not np.isin(member, (0, 1)).all():
        raise BadInput("inside is True or False for each model and record.")
    return asked, models, np.asarray(member, dtype=np.bool_)


def _law(models: Floats, used: Inside, side: str) -> _Law:
    """Return what a new model of the same kind gives each record, from the models that are used.

    The variance of few models errs much. It is shrunk towards the usual variance of all records, by as much as the
    spread of the variances shows that they do not differ in truth (Smyth 2004).
    """
    counts = used.sum(axis=0)
    if len(counts) and counts.min() < _FEWEST:
        raise BadInput(
            f"each record needs at least {_FEWEST} shadow models {side} of which it is. Train more of them, or use an "
            "offline attack if none was trained with the records."
        )
    mean = np.where(used, models, 0).sum(axis=0) / counts
    squares = np.where(used, (models - mean) ** 2, 0).sum(axis=0)
    freedom = counts - 1.0
    variance = squares / freedom
    usual, prior = _usual_variance(variance, freedom)
    shrunk = (prior * usual + squares) / (prior + freedom)
    return _Law(mean, np.sqrt(shrunk * (1 + 1 / counts)), prior + freedom)


def _surprise(asked: Floats, models: Floats, used: Inside, law: _Law) -> Floats:
    """Return minus the log probability that a model without the record gives it such a logit or a higher one.

    The paper takes a normal law. Logits of networks are skewed, so the law here is a mean of Student kernels, one at
    each model; their heavy tails still order logits that are above all models.
    """
    from scipy.special import stdtr

    z = (asked - models) / (_KERNEL * law.scale)
    above = np.where(used, stdtr(_TAILS, -z), 0).sum(axis=0) / used.sum(axis=0)
    return np.asarray(-np.log(np.maximum(above, 1e-300)))


def _usual_variance(variance: Floats, freedom: Floats) -> tuple[float, float]:
    """Return the prior of the variances as a scaled inverse chi-square: its scale and its degrees of freedom."""
    from scipy.special import polygamma, psi

    middle = float(np.median(variance))
    floor = max(middle, float(variance.mean()) * 1e-3) * 1e-3 + 1e-12
    logs = np.log(np.maximum(variance, floor)) - psi(freedom / 2) + np.log(freedom / 2)
    excess = float(np.var(logs)) - float(polygamma(1, freedom / 2).mean())
    if excess <= 0.01:
        return max(float(variance.mean()), floor), 1e3  # the variances differ by chance only
    prior = 2 * _inverse_trigamma(excess)
    return float(np.exp(logs.mean() + psi(prior / 2) - np.log(prior / 2))), min(prior, 1e3)


def _inverse_trigamma(value: float) -> float:
    from scipy.special import polygamma

    guess = 0.5 + 1 / value
    for _ in range(50):
        slope = float(polygamma(1, guess))
        step = slope * (1 - slope / value) / float(polygamma(2, guess))
        guess += step
        if abs(step) < 1e-9 * guess:
            break
    return guess


def _ratio(asked: Floats, models: Floats, inside: Inside, offline: bool, a: float) -> Floats:
    """Return each record's probability under the target, relative to the average over models."""
    if isinstance(a, bool) or not isinstance(a, int | float) or not 0 <= a <= 1:
        raise BadNumber(f"offline_a is a number from 0 to 1, got {a!r:.40}.")
    without = (~inside).sum(axis=0)
    if without.min(initial=1) < 1:
        raise BadInput("each record needs a shadow model that was trained without it. Train more of them.")
    outside = np.where(inside, 0, models).sum(axis=0) / without
    if offline:
        average = ((1 + a) * outside + 1 - a) / 2
    else:
        held = inside.sum(axis=0)
        if held.min(initial=1) < 1:
            raise BadInput("each record needs a shadow model that was trained with it, or pass offline=True.")
        average = (outside + np.where(inside, models, 0).sum(axis=0) / held) / 2
    return np.asarray(np.maximum(asked, 0) / np.maximum(average, _LEAST))

"""Faults of training: clipping, sampling, accounting, tuning, and models that keep rows.

Gradients are whole numbers in thousandths; a row's own is at most 1,000. Data are what one step would see: the
gradients of its rows, or the sums of the steps of a run.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cloister.attack.zoo.mechanisms import count
from cloister.attack.zoo.twins import Draw, Twins, generator, of_kind
from cloister.privacy.loss import epsilon, rho
from cloister.privacy.noise import Source, bernoulli, discrete_gaussian, discrete_laplace

__all__ = ["TRAINING"]

_NORM = 1000  # largest gradient of one row after clipping
_LOTS = 100
_SIGMA = 0.6
_END = -(10**6)  # stands for steps that were not taken


def _clipped_after_the_mean(data: Sequence[int], n: int, source: Source) -> Any:
    mean = int(np.clip(sum(data) // len(data), -_NORM, _NORM))
    return mean + discrete_gaussian(_NORM // len(data), n, source)


def _clipped_row_by_row(data: Sequence[int], n: int, source: Source) -> Any:
    return int(np.clip(data, -_NORM, _NORM).sum()) + discrete_gaussian(_NORM, n, source)


def _clipped_after_the_noise(data: Sequence[int], n: int, source: Source) -> Any:
    return np.clip(sum(data) + discrete_gaussian(_NORM, n, source), -5 * _NORM, 5 * _NORM)


def _steps(*, fresh: bool) -> Draw:
    """Return the sums of all steps with noise of their own, or with one noise for all."""

    def draw(data: Sequence[int], n: int, source: Source) -> Any:
        return np.asarray(data) + discrete_gaussian(_NORM, (n, len(data) if fresh else 1), source)

    return draw


def _sampled_count(rate: str) -> Draw:
    """Return a noisy count of rows, in which one row takes part with the given probability."""

    def draw(data: int, n: int, source: Source) -> Any:
        taken = np.asarray(bernoulli(rate, n, source)).astype(np.int64)
        return data * taken + discrete_laplace(1, n, source)

    return draw


def _mean_of_a_lot(*, public: bool) -> Draw:
    """Return a noisy sum divided by a public number, or by the exact number of rows."""

    def draw(data: Sequence[int], n: int, source: Source) -> Any:
        size = 10 if public else len(data)
        return (int(np.clip(data, -_NORM, _NORM).sum()) + discrete_laplace(_NORM, n, source)) / size

    return draw


def _largest_step(*, shuffled: bool) -> Draw:
    """Return the largest noisy sum of one epoch in 100 lots; other rows have gradient -1, the row of interest `data`.

    Every row is in one lot of a shuffled epoch, and in each lot with probability 1/100 under Poisson sampling.
    """

    def draw(data: int, n: int, source: Source) -> Any:
        random = generator(source)
        if shuffled:
            sums = np.full((n, _LOTS), -1.0, dtype=np.float32)
            sums[np.arange(n), random.integers(_LOTS, size=n)] = data
        else:
            sums = -random.binomial(_LOTS - 1, 1 / _LOTS, (n, _LOTS)).astype(np.float32)
            sums += data * (random.random((n, _LOTS), dtype=np.float32) < 1 / _LOTS)
        return (sums + _SIGMA * random.standard_normal((n, _LOTS), dtype=np.float32)).max(axis=1)

    return draw


def _until_it_fits(data: Sequence[int], n: int, source: Source) -> Any:
    """Return noisy steps up to the first at which fewer than five rows are wrong; data are the rows that are wrong."""
    noisy = np.asarray(data) + discrete_laplace(len(data), (n, len(data)), source)
    taken = int(np.argmax(np.asarray(data) < 5)) + 1
    noisy[:, taken:] = _END
    return noisy


def _all_steps(data: Sequence[int], n: int, source: Source) -> Any:
    return np.asarray(data) + discrete_laplace(len(data), (n, len(data)), source)


def _best_of_ten(scale: int) -> Draw:
    return lambda data, n, source: (data + discrete_laplace(scale, (n, 10), source)).max(axis=1)


def _with_its_loss(data: int, n: int, source: Source) -> Any:
    return np.column_stack((count(1)(data, n, source), np.full(n, data)))


def _loss_behind_noise(data: int, n: int, source: Source) -> Any:
    noisy = count(1)(data, n, source)
    return np.column_stack((noisy, np.maximum(noisy, 0)))


def _layers(sigma: int) -> Draw:
    return lambda data, n, source: np.asarray(data) + discrete_gaussian(sigma, (n, len(data)), source)


def _four_epochs(sigma: int) -> Draw:
    return lambda data, n, source: data + discrete_gaussian(sigma, (n, 4), source)


def _centres(*, public: bool) -> Draw:
    """Return the centre of the second of two clusters after one noisy step; an empty cluster keeps its start."""

    def draw(data: Sequence[int], n: int, source: Source) -> Any:
        random = generator(source)
        start = np.full(n, 50) if public else random.choice(data, size=n)
        near = np.abs(np.asarray(data)[None, :] - start[:, None]) < 10
        sizes = near.sum(axis=1) + discrete_laplace(2, n, source)
        sums = (near * np.asarray(data)).sum(axis=1) + discrete_laplace(200, n, source)
        return np.where(sizes > 3, sums // np.maximum(sizes, 1), start)

    return draw


def _cuts(*, public: bool) -> Draw:
    """Return a tree's cut and the noisy number of rows below: a value of a row, or one of a public list."""

    def draw(data: Sequence[int], n: int, source: Source) -> Any:
        cuts = generator(source).choice(np.arange(0, 100, 10) if public else np.asarray(data), size=n)
        below = (np.asarray(data)[None, :] < cuts[:, None]).sum(axis=1)
        return np.column_stack((cuts, below + discrete_laplace(1, n, source)))

    return draw


_twins = of_kind("training")


_SAMPLED = epsilon("0.16")  # ln(1 + (e - 1) / 10), rounded up

TRAINING: tuple[Twins, ...] = (
    _twins(
        "clipping after the mean",
        "The mean of a lot is clipped instead of each row's gradient, so that one row moves it all the way.",
        _clipped_after_the_mean, _clipped_row_by_row, [0] * 10, [0] * 9 + [10**5], rho("1/2"),
    ),
    _twins(
        "noise before clipping",
        "The noise is for a norm of 1, and only the noisy sum is clipped.",
        _clipped_after_the_noise, _clipped_row_by_row, [0] * 10, [0] * 9 + [10**5], rho("1/2"),
    ),
    _twins(
        "one noise for all steps",
        "Noise is drawn once an epoch; differences of steps are exact.",
        _steps(fresh=False), _steps(fresh=True), [0] * 5, [_NORM, 0, _NORM, 0, _NORM], rho("3/2"),
    ),
    _twins(
        "a sampling rate that is not the one accounted for",
        "Lots are drawn at rate 1/2 and priced at rate 1/10.",
        _sampled_count("1/2"), _sampled_count("1/10"), 0, 1, _SAMPLED,
    ),
    _twins(
        "a lot in fixed order priced as sampled",
        "A row is always in the first lot; amplification by sampling needs chance.",
        _sampled_count("1"), _sampled_count("1/10"), 0, 1, _SAMPLED,
    ),
    _twins(
        "shuffled lots priced as Poisson lots",
        "Every epoch has every row exactly once, which Poisson sampling does not; the price is that of Poisson.",
        _largest_step(shuffled=True), _largest_step(shuffled=False), 0, 1, epsilon("0.88", delta="0.01"),
        reference="Chua et al. 2024, How private are DP-SGD implementations?",
    ),
    _twins(
        "a mean divided by the exact number of rows",
        "The noise is right, and the divisor shows how many rows there are.",
        _mean_of_a_lot(public=False), _mean_of_a_lot(public=True), [0] * 10, [0] * 11, epsilon(1),
    ),
    _twins(
        "layers that are clipped one by one and priced as one",
        "Four layers with norm 1 each have norm 2 together.",
        _layers(_NORM), _layers(2 * _NORM), [0] * 4, [_NORM] * 4, rho("1/2"),
    ),
    _twins(
        "epochs that the accountant does not see",
        "Four epochs are released at the price of one.",
        _four_epochs(_NORM), _four_epochs(2 * _NORM), 0, _NORM, rho("1/2"),
    ),
    _twins(
        "early stopping on exact accuracy",
        "The number of steps depends on the training rows without noise.",
        _until_it_fits, _all_steps, [9, 7, 5, 4, 3, 3], [9, 7, 4, 4, 3, 3], epsilon(1),
    ),
    _twins(
        "the best of ten runs at the price of one",
        "Tuning looks at the rows once for each run.",
        _best_of_ten(1), _best_of_ten(10), 0, 1, epsilon(1),
        reference="Papernot & Steinke 2022, Hyperparameter tuning with Rényi differential privacy",
    ),
    _twins(
        "the training loss beside the model",
        "The model is noisy, and the loss that is printed with it is not.",
        _with_its_loss, _loss_behind_noise, 3, 4, epsilon(1),
    ),
    _twins(
        "clusters that start at rows",
        "An empty cluster keeps its start, which is a row.",
        _centres(public=False), _centres(public=True), [0] * 6, [0] * 6 + [77], epsilon(1),
    ),
    _twins(
        "a tree that cuts at values of rows",
        "The cut is a value that somebody has; cuts must come from a public list or be paid for.",
        _cuts(public=False), _cuts(public=True), [10, 20, 30], [10, 20, 30, 77], epsilon(1),
    ),
)  # fmt: skip

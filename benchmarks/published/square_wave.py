"""The square wave with EMS as published: Li et al. 2020, section 4 and 5.5, with the authors' stopping rule."""

import numpy as np
from numpy.typing import NDArray

from cloister import local

Floats = NDArray[np.float64]


def square_wave(values: Floats, epsilon: float, bins: int, random: np.random.Generator, cells: int) -> Floats:
    """Shares of equal bins of [0, 1], from one noisy report of each value in [0, 1], counted in so many cells."""
    power = np.exp(epsilon)
    half = (epsilon * power - power + 1) / (2 * power * (power - 1 - epsilon))
    p, q = power / (2 * half * power + 1), 1 / (2 * half * power + 1)
    drawn = random.random(len(values))
    left, inside = q * values, q * values + 2 * half * p
    reports = np.select(
        [drawn <= left, drawn <= inside],
        [drawn / q - half, (drawn - left) / p + values - half],
        (drawn - inside) / q + values + half,
    )
    seen = np.histogram(reports, bins=cells, range=(-half, 1 + half))[0].astype(np.float64)
    return _ems(seen, _channel(half, p, q, bins, cells), 1e-3 * power)


def _channel(half: float, p: float, q: float, bins: int, cells: int, points: int = 64) -> Floats:
    """The probability of each report's cell for a value's bin, averaged over the values in it."""
    edges = np.linspace(-half, 1 + half, cells + 1)
    values = (np.arange(bins * points) + 0.5) / (bins * points)
    reach = np.clip(edges[:, None], values - half, values + half) - (values - half)
    below = q * (edges[:, None] + half) + (p - q) * reach
    return np.diff(below, axis=0).reshape(cells, bins, points).mean(axis=2)


def _ems(seen: Floats, channel: Floats, tolerance: float) -> Floats:
    """Expectation, maximisation, and each share averaged with its neighbours, until the likelihood hardly grows."""
    shares, before = np.full(channel.shape[1], 1 / channel.shape[1]), -np.inf
    for _ in range(10_000):
        expected = channel @ shares
        shares = shares * (channel.T @ (seen / expected))
        shares = np.convolve(np.concatenate((shares[:1], shares, shares[-1:])), [0.25, 0.5, 0.25], "valid")
        shares /= shares.sum()
        reached = float(seen @ np.log(channel @ shares))
        if abs(reached - before) < tolerance:
            break
        before = reached
    return shares


def waves(ages: NDArray[np.int64], runs: int) -> tuple[float, float, float]:
    """Wasserstein distance in years from the true ages, of ours and of the published method; two standard errors."""
    wave = local.SquareWave.for_loss((17, 90), local.epsilon(1))
    truth = np.cumsum(np.bincount(ages - 17, minlength=74)) / len(ages)
    ours, theirs = [], []
    for run in range(runs):
        estimate = wave.estimate(wave.aggregate(wave.perturb(ages)))
        ours.append(np.abs(np.cumsum(estimate.frequencies) - truth).sum())
        # In the middle of their bins, and in 512 bins of reports: ages at the bins' edges would do the method wrong.
        shares = square_wave((ages - 16.5) / 74, 1.0, 74, np.random.default_rng(run), 512)
        theirs.append(np.abs(np.cumsum(shares) - truth).sum())
    doubt = 2 * float(np.sqrt((np.var(ours) + np.var(theirs)) / runs))
    return float(np.mean(ours)), float(np.mean(theirs)), doubt

"""A test of independence of two answers, on debiased covariances."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cloister.local.analysis.linked.pairs import ReportGroup
from cloister.local.base.oracle import Floats

__all__ = ["Independence", "independence"]

# Up to this many covariances their own covariance is inverted; beyond, the largest of them is tested.
_MOST = 400


@dataclass(frozen=True, slots=True)
class Independence:
    """The result of a test of independence.

    Attributes:
        statistic: chi-squared, or the largest covariance in standard errors if there are too many for that.
        freedom: degrees of freedom; None for the largest covariance.
        p: the p value; a small one indicates that the answers are related.
    """

    statistic: float
    freedom: int | None
    p: float

    @property
    def sentence(self) -> str:
        """The result in words."""
        if self.p < 0.01:
            return f"the two answers are related: chance alone would show as much with p = {self.p:.2g}."
        return f"nothing shows that the two answers are related (p = {self.p:.2g}); with more reports it might."


def independence(groups: Sequence[ReportGroup], first_adds_up: bool, second_adds_up: bool) -> Independence:
    """Test that all covariances of the answers are 0.

    Within a group of equal levels C[a, b], the covariance of the scores s_a and t_b, is unbiased for that of the
    answers' indicators. If the answers are independent, so are s and t, and C has the covariance cov(s) ⊗ cov(t) / n.
    The weighted sum over groups is compared with that, by chi-squared. Shares of a single choice add up to 1, so its
    scores are made to add up to 1 and the last is left out; shares of sets and numbers are taken as they are.

    If the answers were perturbed together, C[a, b] = f[a, b] - f[a] f[b], and its covariance is that of its
    linearisation.

    Args:
        groups: people of equal levels, with weights.
        first_adds_up: whether the shares of the first answer add up to 1.
        second_adds_up: likewise.
    """
    usable = [group for group in groups if group.n > 1]
    if not usable:
        return Independence(0.0, None, 1.0)
    if groups[0].joint is not None:
        return _tested(*_together(usable))
    return _tested(*_apart(usable, first_adds_up, second_adds_up))


def _apart(groups: Sequence[ReportGroup], first: bool, second: bool) -> tuple[Floats, Floats]:
    total = sum(group.weight for group in groups)
    covariances: list[Floats] = []
    spread: list[Floats] = []
    for group in groups:
        s, t = _free(group.first, first), _free(group.second, second)
        share, few = group.weight / total, group.n - 1
        covariances.append(share * (s.T @ t / few).ravel())
        left, right = s.T @ s / few, t.T @ t / few
        if covariances[0].size > _MOST:
            spread.append(np.asarray(share**2 / few * np.outer(np.diag(left), np.diag(right)).ravel()))
        else:
            spread.append(np.asarray(share**2 / few * np.kron(left, right), dtype=np.float64))
    return np.sum(covariances, axis=0), np.sum(spread, axis=0)


def _free(each: Floats, adds_up: bool) -> Floats:
    """Return centred scores; where shares add up to 1, scores are made to, and the last is omitted."""
    if adds_up:
        each = (each - (each.sum(axis=1, keepdims=True) - 1) / each.shape[1])[:, :-1]
    return np.asarray(each - each.mean(axis=0))


def _together(groups: Sequence[ReportGroup]) -> tuple[Floats, Floats]:
    share = np.array([group.weight for group in groups])
    share /= share.sum()
    cells = [_of_one(group.joint) for group in groups if group.joint is not None]
    joint = sum(part * scores.mean(axis=0) for part, scores in zip(share, cells, strict=True))
    rows, columns = joint.sum(axis=1), joint.sum(axis=0)
    spread: list[Floats] = []
    for part, scores in zip(share, cells, strict=True):
        moved = scores - scores.sum(axis=2, keepdims=True) * columns - scores.sum(axis=1, keepdims=True) * rows[:, None]
        flat = moved[:, :-1, :-1].reshape(len(scores), -1)
        flat = flat - flat.mean(axis=0)
        weight = part**2 / len(scores) / (len(scores) - 1)
        spread.append(weight * (np.square(flat).sum(axis=0) if flat.shape[1] > _MOST else flat.T @ flat))
    return (joint - np.outer(rows, columns))[:-1, :-1].ravel(), np.sum(spread, axis=0)


def _of_one(joint: Floats) -> Floats:
    size = joint.shape[1] * joint.shape[2]
    return np.asarray(joint - (joint.sum(axis=(1, 2), keepdims=True) - 1) / size)


def _tested(covariances: Floats, spread: Floats) -> Independence:
    from scipy.special import chdtrc, ndtr  # here, because scipy takes longer to import than this package

    if spread.ndim == 1:
        largest = float(np.max(np.abs(covariances) / np.sqrt(np.maximum(spread, 1e-300))))
        return Independence(largest, None, float(min(1.0, 2 * len(covariances) * ndtr(-largest))))
    values, vectors = np.linalg.eigh(spread)
    mask = values > 1e-10 * max(float(values[-1]), 1e-300)
    if not mask.any():
        return Independence(0.0, 0, 1.0)
    statistic = float((np.square(covariances @ vectors[:, mask]) / values[mask]).sum())
    freedom = int(mask.sum())
    return Independence(statistic, freedom, float(chdtrc(freedom, statistic)))
